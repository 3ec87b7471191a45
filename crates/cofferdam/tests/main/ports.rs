//! Reached services, published ports and ports of a task's own, through the command line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Scene, collect, has_walls, skipped, until, wait};

/// A service that answers `hello` to `count` clients, once they are all there.
fn service(count: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut clients = Vec::new();
        for stream in listener.incoming().flatten() {
            clients.push(stream);
            if clients.len() == count {
                for mut client in clients.drain(..) {
                    let _ = client.write_all(b"hello\n");
                }
            }
        }
    });
    address
}

fn ask(address: SocketAddr) -> String {
    format!(
        "exec 3<>/dev/tcp/{}/{} && cat <&3",
        address.ip(),
        address.port()
    )
}

#[test]
fn a_reached_service_answers_a_run_and_a_task_and_another_does_not() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let (granted, other) = (service(1), service(1));
    let reach = granted.to_string();
    let done = scene
        .run(&["run", "--reach", &reach, "--", "bash", "-c", &ask(granted)])
        .expect_code(0);
    assert_eq!(done.text(), "hello\n");
    let done = scene.run(&["run", "--reach", &reach, "--", "bash", "-c", &ask(other)]);
    assert_eq!(done.text(), "");
    assert!(done.stderr.contains("refused"), "{}", done.stderr);
    // What would open it is said only where the message names it, and only about what is closed.
    let told = format!("echo 'connect ECONNREFUSED {other}'; echo 'ECONNREFUSED {granted}'; false");
    let done = scene.run(&["run", "--reach", &reach, "--", "sh", "-c", &told]);
    assert!(
        done.stderr.contains(&format!("--reach {other}")),
        "{}",
        done.stderr
    );
    assert!(
        !done.stderr.contains(&format!("--reach {granted}")),
        "{}",
        done.stderr
    );
    // The checks of a task reach it, too.
    let check = format!("bash -c '{}' | grep hello", ask(granted));
    let task = scene
        .run(&[
            "task",
            "run",
            "--goal",
            "g",
            "--reach",
            &reach,
            "--verify",
            &check,
            "--json",
            "--",
            "bash",
            "-c",
            &ask(granted),
        ])
        .expect_code(0);
    assert_eq!(task.json()["task_result"]["stdout"], "hello\n");
}

#[test]
fn what_listens_is_told_of_a_plain_run_and_of_a_task() {
    if !has_walls() || !std::path::Path::new("/usr/bin/python3").exists() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    // It ends as soon as it is told, or after some time.
    let script = "import socket, os, time\ns = socket.create_server(('127.0.0.1', 4321))\n\
                  end = time.time() + 50\n\
                  while time.time() < end and not os.path.exists('told'): time.sleep(0.02)\n";
    for words in [
        &["run", "--net", "none", "--"][..],
        &["task", "run", "--isolation", "none", "--goal", "g", "--"],
    ] {
        let _ = std::fs::remove_file(scene.work().join("told"));
        let start = Instant::now();
        let before = listening(&scene).len();
        let words = [words, &["/usr/bin/python3", "-c", script]].concat();
        let child = scene.command(&words).spawn().expect("the program starts");
        let told = until(|| listening(&scene).len() > before);
        scene.write("told", "");
        collect(child, start).expect_code(0);
        assert!(told, "{words:?}");
        let event = listening(&scene).swap_remove(before);
        assert_eq!(event["data"]["port"], 4321, "{event}");
        assert_eq!(event["data"]["state"], "listening", "{event}");
    }
}

fn listening(scene: &Scene) -> Vec<serde_json::Value> {
    let told = scene.run(&["events", "--type", "net.listening", "--json"]);
    let told = told.expect_code(0).json();
    let events = told["data"]["events"].as_array().expect("a list").iter();
    events
        .filter(|one| one["data"]["state"] == "listening")
        .cloned()
        .collect()
}

#[test]
fn a_service_is_reached_by_a_name_of_this_machine() {
    if !has_walls() {
        return;
    }
    let list = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let name = list.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|address| *address == "127.0.0.1")?;
        words.find(|name| !name.ends_with("localhost") && !name.starts_with('#'))
    });
    let Some(name) = name else {
        skipped("/etc/hosts has no other name for 127.0.0.1");
        return;
    };
    let scene = Scene::new();
    let port = service(1).port();
    let reach = format!("{name}:{port}");
    let script = format!("exec 3<>/dev/tcp/{name}/{port} && cat <&3");
    let done = scene
        .run(&["run", "--reach", &reach, "--", "bash", "-c", &script])
        .expect_code(0);
    assert_eq!(done.text(), "hello\n");
    let far = scene.run(&["run", "--reach", "nobody-knows.example:80", "--", "true"]);
    assert_eq!(far.code, Some(125));
    assert!(
        far.stderr.contains("error[unsupported_field]"),
        "{}",
        far.stderr
    );
}

#[test]
fn a_service_on_a_low_port_stands_inside_at_the_same_address() {
    if !has_walls() {
        return;
    }
    let Some(listener) = (600..1024).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
    else {
        skipped("only root has a service on a low port");
        return;
    };
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.write_all(b"hello\n");
        }
    });
    let scene = Scene::new();
    scene.repository();
    let reach = address.to_string();
    // Nothing of that is left for the command.
    let script = format!(
        "grep CapEff /proc/self/status | grep -o '0*$'; {}",
        ask(address)
    );
    for flags in [&["run"][..], &["task", "run", "--goal", "g"]] {
        let words = [flags, &["--reach", &reach, "--", "bash", "-c", &script]].concat();
        let done = scene.run(&words).expect_code(0);
        assert!(
            done.text().contains("0000000000000000\nhello\n"),
            "{}",
            done.text()
        );
    }
}

#[test]
fn what_cannot_be_reached_is_refused_and_what_needs_no_door_is_said() {
    let scene = Scene::new();
    let far = scene.run(&["run", "--reach", "10.0.0.5:80", "--", "true"]);
    let far = far.expect_code(125);
    assert!(
        far.stderr.contains("error[unsupported_field]"),
        "{}",
        far.stderr
    );
    assert!(far.stderr.contains("127.0.0.1"), "{}", far.stderr);
    if !has_walls() {
        return;
    }
    let none = scene.run(&[
        "run",
        "--provider",
        "landlock",
        "--net",
        "none",
        "--reach",
        "127.0.0.1:80",
        "--",
        "true",
    ]);
    if none.stderr.contains("landlock_unavailable") {
        skipped("landlock does not work here");
    } else {
        let none = none.expect_code(125);
        assert!(
            none.stderr.contains("error[unenforceable]"),
            "{}",
            none.stderr
        );
    }
    let full = scene
        .run(&[
            "run",
            "--json",
            "--net",
            "full",
            "--reach",
            "127.0.0.1:80",
            "--",
            "true",
        ])
        .expect_code(0)
        .json();
    let gaps = full["isolation"]["gaps"].as_array().expect("gaps");
    assert!(gaps.iter().any(|gap| gap["what"] == "reach"), "{gaps:?}");
}

#[test]
fn a_server_inside_is_opened_said_and_gone_with_its_command() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.write("page", "from inside");
    let server = "import http.server as h; h.test(h.SimpleHTTPRequestHandler,port=0)";
    let mut command = scene.command(&[
        "run",
        "--publish",
        "auto",
        "--",
        "python3",
        "-u",
        "-c",
        server,
    ]);
    let mut child = command.stdout(Stdio::null()).spawn().expect("it starts");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut address = None;
    while address.is_none() {
        let mut line = String::new();
        if errors.read_line(&mut line).expect("readable") == 0 {
            break;
        }
        address = line
            .split("http://")
            .nth(1)
            .map(|rest| rest.trim().to_owned());
        if address.is_none() && line.contains("No such file") {
            wait(&mut child);
            skipped("there is no python3 inside");
            return;
        }
    }
    let address = address.expect("said while it runs");
    let mut answer = String::new();
    let mut stream = TcpStream::connect(&address).expect("open");
    write!(stream, "GET /page HTTP/1.0\r\n\r\n").expect("sent");
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.ends_with("from inside"), "{answer}");
    // `localhost` may mean the other family.
    let port = address.rsplit(':').next().expect("a port");
    if TcpListener::bind("[::1]:0").is_ok() {
        let mut stream = TcpStream::connect(format!("[::1]:{port}")).expect("open");
        write!(stream, "GET /page HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.ends_with("from inside"), "{answer}");
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::KILL).expect("killed");
    wait(&mut child);
    assert!(until(|| TcpStream::connect(&address).is_err()));
}

#[test]
fn b12_tasks_side_by_side_have_ports_of_their_own() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    // Nobody is answered before both run.
    let barrier = service(2);
    let script = format!("echo $COFFERDAM_PORT_BASE; {}", ask(barrier));
    let reach = barrier.to_string();
    let arguments = [
        "task",
        "run",
        "--goal",
        "g",
        "--reach",
        &reach,
        "--verify",
        "test $COFFERDAM_PORT_BASE -ge 20000",
        "--json",
        "--",
        "bash",
        "-c",
        &script,
    ];
    let both: Vec<_> = (0..2)
        .map(|_| {
            (
                scene.command(&arguments).spawn().expect("it starts"),
                Instant::now(),
            )
        })
        .collect();
    let mut bases: Vec<u16> = both
        .into_iter()
        .map(|(child, start)| collect(child, start).expect_code(0).json())
        .map(|result| {
            let said = result["task_result"]["stdout"]
                .as_str()
                .expect("text")
                .to_owned();
            let base = said.strip_suffix("\nhello\n").expect("both were there");
            base.parse().expect("a port")
        })
        .collect();
    bases.sort_unstable();
    assert!(bases[1] - bases[0] >= 10, "{bases:?}");
}

#[test]
fn a_run_that_opens_ports_has_some_of_its_own() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let script = "echo ${COFFERDAM_PORT_BASE-none}";
    let done = scene.run(&["run", "--publish", "auto", "--", "sh", "-c", script]);
    let text = done.expect_code(0).text();
    assert!(text.trim().parse::<u16>().expect("a port") >= 20_000);
    let done = scene.run(&["run", "--", "sh", "-c", script]);
    assert_eq!(done.expect_code(0).text(), "none\n");
}

#[test]
fn the_way_out_is_nobodys_server_and_a_reached_service_goes_past_it() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let granted = service(1);
    // Long enough to be looked at twice.
    let script = format!(
        "env | grep -qi '^no_proxy=.*127.0.0.1' && echo past; {}; sleep 0.6",
        ask(granted)
    );
    let reach = granted.to_string();
    let done = scene
        .run(&[
            "run",
            "--net",
            "restricted",
            "--publish",
            "auto",
            "--reach",
            &reach,
            "--",
            "bash",
            "-c",
            &script,
        ])
        .expect_code(0);
    assert_eq!(done.text(), "past\nhello\n");
    assert!(!done.stderr.contains("is open at"), "{}", done.stderr);
}

#[test]
fn what_listens_inside_is_told_where_nothing_is_published() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    scene.repository();
    let server = "import socket, time\n\
        s = socket.create_server((\"127.0.0.1\", 0)); print(s.getsockname()[1], flush=True)\n\
        time.sleep(2)";
    let task = [
        "task", "run", "--goal", "g", "--json", "--", "python3", "-c", server,
    ];
    let done = scene.run(&task);
    if done.code == Some(127) {
        skipped("there is no python3 inside");
        return;
    }
    let result = done.expect_code(0).json();
    let port = result["task_result"]["stdout"].as_str().expect("text");
    let events = scene
        .run(&["events", "--json", "--type", "net.listening"])
        .expect_code(0)
        .text();
    assert!(
        events.contains(&format!("\"port\":{}", port.trim())),
        "{events}"
    );
    assert!(events.contains("\"published\":null"), "{events}");
}
