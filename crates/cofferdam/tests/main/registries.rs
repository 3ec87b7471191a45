//! Real package clients through the proxy, against what the ordinary client is configured to use
//! here. Each first asks outside of the walls: where that fails, there is nothing to be shown.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::scene::{Finished, Scene, finish};

/// Sees whether a client reaches its registry by itself.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller's own configuration is what is tried"
)]
#[expect(clippy::print_stdout, reason = "a test that cannot run here says why")]
fn reaches(scene: &Scene, words: &[&str]) -> bool {
    let outside = scene.path("outside");
    std::fs::create_dir_all(&outside).expect("made");
    for file in ["Cargo.toml", "package.json"] {
        let _ = std::fs::copy(scene.work().join(file), outside.join(file));
    }
    std::fs::create_dir_all(outside.join("src")).expect("made");
    std::fs::write(outside.join("src/lib.rs"), "").expect("written");
    let child = Command::new(words[0])
        .args(&words[1..])
        .current_dir(&outside)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: there is no {}", words[0]);
        return false;
    };
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match child.try_wait().expect("waited for") {
            Some(status) if status.success() => return true,
            Some(status) => {
                println!("skipped: {} fails outside of the walls: {status}", words[0]);
                return false;
            }
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                println!("skipped: {} does not end outside of the walls", words[0]);
                return false;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Runs a client in a workspace of its own with the hosts of `@dev`, with the caller's home.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller's own configuration is what is tried"
)]
fn inside(scene: &Scene, words: &[&str]) -> Finished {
    let mut arguments = vec![
        "run",
        "--no-tty",
        "--allow",
        "@dev",
        "--timeout",
        "120",
        "--",
    ];
    arguments.extend_from_slice(words);
    let mut command = scene.command(&arguments);
    for name in [
        "HOME",
        "PATH",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "XDG_CONFIG_HOME",
    ] {
        match std::env::var_os(name) {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    finish(command)
}

/// Gives the hosts that were let through.
fn reached(scene: &Scene) -> Vec<String> {
    let told = scene
        .run(&["events", "--type", "net.decided", "--json"])
        .json();
    told["data"]["events"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|event| event["data"]["verdict"] == "allowed")
        .map(|event| event["data"]["host"].to_string())
        .collect()
}

#[test]
fn npm_installs_through_the_proxy() {
    let scene = Scene::new();
    scene.write("package.json", "{\"name\": \"x\", \"version\": \"1.0.0\"}");
    let words = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--prefer-online",
        "is-number@7.0.0",
    ];
    if !reaches(&scene, &words) {
        return;
    }
    inside(&scene, &words).expect_code(0);
    assert!(
        scene
            .work()
            .join("node_modules/is-number/package.json")
            .exists()
    );
    assert!(!reached(&scene).is_empty());
}

#[test]
fn pip_downloads_through_the_proxy() {
    let scene = Scene::new();
    scene.write("requirements.txt", "six==1.17.0\n");
    let words = [
        "python3",
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-cache-dir",
        "-d",
        "wheels",
        "six==1.17.0",
    ];
    if !reaches(&scene, &words) {
        return;
    }
    inside(&scene, &words).expect_code(0);
    assert!(
        scene
            .work()
            .join("wheels")
            .read_dir()
            .expect("made")
            .count()
            > 0
    );
    assert!(!reached(&scene).is_empty());
}

#[test]
fn cargo_resolves_and_fetches_through_the_proxy() {
    let scene = Scene::new();
    scene.write(
        "Cargo.toml",
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n[workspace]\n",
    );
    std::fs::create_dir(scene.work().join("src")).expect("made");
    scene.write("src/lib.rs", "");
    if !reaches(&scene, &["cargo", "fetch", "-q"]) {
        return;
    }
    inside(&scene, &["cargo", "fetch", "-q"]).expect_code(0);
    assert!(scene.work().join("Cargo.lock").exists());
    assert!(!reached(&scene).is_empty());
}
