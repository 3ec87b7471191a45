//! Bytes in and out.

use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::time::Instant;

use serde_json::json;

use crate::scene::{Scene, collect, finish, has_walls, wait};

/// Every byte value, over and over.
fn pattern(size: usize) -> Vec<u8> {
    (0..=255_u8).cycle().take(size).collect()
}

#[test]
fn ten_megabytes_come_through_byte_for_byte() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let bytes = pattern(10 * 1024 * 1024);
    std::fs::write(scene.work().join("data.bin"), &bytes).expect("writable");
    let done = scene.run(&["run", "--", "cat", "data.bin"]).expect_code(0);
    assert!(
        done.stdout == bytes,
        "{} of {} bytes",
        done.stdout.len(),
        bytes.len()
    );
    assert_eq!(done.stderr, "");
}

#[test]
fn both_streams_stay_apart() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let done = scene
        .run(&["run", "--", "sh", "-c", "echo out; echo err >&2"])
        .expect_code(0);
    assert_eq!(
        (done.text().as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
}

#[test]
fn output_comes_at_once() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut command = scene.command(&[
        "run",
        "--",
        "sh",
        "-c",
        "printf first; read -r line; echo $line",
    ]);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut first = [0; 5];
    // Without a line end, and while the command still waits for us.
    stdout.read_exact(&mut first).expect("the first word");
    assert_eq!(&first, b"first");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"second\n")
        .expect("it reads");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "second\n");
    assert!(wait(&mut child).success());
}

#[test]
fn standard_input_is_passed_on_where_it_is_data() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let bytes = pattern(300_000);
    std::fs::write(scene.path("input"), &bytes).expect("writable");
    let mut command = scene.command(&["run", "--", "cat"]);
    command.stdin(std::fs::File::open(scene.path("input")).expect("readable"));
    let done = finish(command).expect_code(0);
    assert!(
        done.stdout == bytes,
        "{} of {} bytes",
        done.stdout.len(),
        bytes.len()
    );

    let mut command = scene.command(&["run", "--json", "--", "wc", "-c"]);
    command.stdin(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().expect("the program starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(&bytes[..1000])
        .expect("it reads");
    assert_eq!(
        collect(child, start).expect_code(0).json()["stdout"],
        json!("1000\n")
    );
}

#[test]
fn fc_71_an_empty_input_ends_at_once() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let done = scene
        .run(&["run", "--timeout", "20", "--", "cat"])
        .expect_code(0);
    assert_eq!(done.text(), "");
}

#[test]
fn the_callers_file_is_never_handed_over() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let target = std::fs::File::create(scene.path("log")).expect("writable");
    let mut command = scene.command(&[
        "run",
        "--",
        "sh",
        "-c",
        "echo one; : >/proc/self/fd/1; echo two",
    ]);
    command.stdout(target);
    finish(command).expect_code(0);
    assert_eq!(
        std::fs::read_to_string(scene.path("log")).expect("readable"),
        "one\ntwo\n"
    );
}

#[test]
fn a_reader_that_goes_ends_the_command_as_in_a_shell() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut child = scene
        .command(&["run", "--", "yes"])
        .spawn()
        .expect("the program starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 4096]).expect("some output");
    drop(stdout);
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut stderr)
        .expect("text");
    assert_eq!(wait(&mut child).code(), Some(141), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_the_end() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut command = scene.command(&["run", "--timeout", "1", "--", "yes"]);
    let mut child = command.spawn().expect("the program starts");
    // Nobody reads standard output, which stays open.
    let _held = child.stdout.take();
    assert_eq!(wait(&mut child).code(), Some(124));
}

#[test]
fn fc_75_bytes_that_are_no_text_are_kept() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let mut command = scene.command(&["run", "--", "printf", "%s"]);
    command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    assert_eq!(finish(command).expect_code(0).stdout, b"caf\xe9");

    let mut command = scene.command(&[
        "run",
        "--json",
        "--",
        "sh",
        "-c",
        "printf 'a\\377b'; touch \"$1\"",
        "sh",
    ]);
    command.arg(std::ffi::OsStr::from_bytes(b"f\xff"));
    let said = finish(command).expect_code(0).json();
    assert_eq!(said["stdout"], json!("a\u{fffd}b"));
    assert_eq!(said["stdout_encoding"], json!("utf8_replaced"));
    assert!(
        scene
            .work()
            .join(std::ffi::OsStr::from_bytes(b"f\xff"))
            .exists()
    );
}

#[test]
fn fc_77_a_flood_keeps_its_tail_and_its_count() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let said = scene
        .run(&[
            "run",
            "--json",
            "--",
            "sh",
            "-c",
            "head -c 20000000 /dev/zero | tr '\\0' x; echo end",
        ])
        .expect_code(0)
        .json();
    assert_eq!(said["truncated"], json!(true));
    assert_eq!(said["stdout_full"]["bytes"], json!(20_000_004));
    assert!(
        said["stdout"]
            .as_str()
            .is_some_and(|text| text.ends_with("xend\n"))
    );
}

#[test]
fn a_child_that_holds_the_pipe_does_not_hold_the_answer() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let done = scene
        .run(&["run", "--", "sh", "-c", "sleep 300 & echo done"])
        .expect_code(0);
    assert!(done.elapsed.as_secs() < 10, "{:?}", done.elapsed);
    assert_eq!(done.text(), "done\n");
    assert!(
        done.stderr.contains("outlived the command"),
        "{}",
        done.stderr
    );
}
