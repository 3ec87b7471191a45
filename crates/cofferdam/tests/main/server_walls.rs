//! F3: the server is not reached from inside the walls that it puts up.

use cofferdam_client::find_server;
use serde_json::Value;

use crate::scene::{Finished, Scene, Server, has_walls, skipped};

/// What a command tries: the server's port, its token, the data directory, and its sockets.
fn attempt(scene: &Scene, server: &str) -> String {
    let (host, port) = server.rsplit_once(':').expect("an address");
    let data = scene.path("data");
    let data = data.display();
    format!(
        "
if exec 3<>/dev/tcp/{host}/{port}; then
  printf 'POST /api/v1/run_command HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nContent-Type: application/json\\r\\nContent-Length: 18\\r\\nConnection: close\\r\\n\\r\\n{{\"command\":\"true\"}}' >&3
  read -r answer <&3; echo \"connected ${{answer%%$'\\r'}}\"
else echo unreachable; fi 2>/dev/null
cat {data}/server.token 2>/dev/null && echo token
cat {data}/server.json {data}/journal.db >/dev/null 2>&1 && echo files
find {data} -type s 2>/dev/null | grep . && echo sockets
grep -q {port} /proc/net/unix 2>/dev/null && echo abstract
exit 0"
    )
}

fn inside(scene: &Scene, walls: &[&str]) -> Finished {
    let found = find_server(&scene.path("data")).expect("it lives");
    let script = attempt(scene, &found.address);
    let line = [&["run"], walls, &["--", "bash", "-c", &script]].concat();
    scene.run(&line)
}

#[test]
fn f3_the_server_is_out_of_reach_in_bwrap() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let server = Server::start(&scene, &["--provider", "bwrap"]);
    for (walls, expected) in [
        (&["--net", "none"][..], "unreachable\n"),
        (
            &["--net", "restricted", "--allow", "example.org"],
            "unreachable\n",
        ),
        // The host's network is the host's: what it is worth without the token, is said.
        (&["--net", "full"], "connected HTTP/1.1 401 Unauthorized\n"),
    ] {
        let walls = [&["--provider", "bwrap"], walls].concat();
        let told = inside(&scene, &walls).expect_code(0);
        assert_eq!(told.text(), expected, "{walls:?} {}", told.stderr);
    }
    // Nor from what the server itself runs.
    scene.run(&["session", "open", "work"]).expect_code(0);
    let found = find_server(&scene.path("data")).expect("it lives");
    let script = attempt(&scene, &found.address);
    let told = scene
        .run(&["session", "run", "work", "-c", &script])
        .expect_code(0);
    assert_eq!(told.text(), "unreachable\n");
    server.stop();
}

#[test]
fn f3_the_server_is_out_of_reach_on_landlock() {
    let scene = Scene::new();
    let works = scene.run(&["run", "--provider", "landlock", "--", "true"]);
    if works.code != Some(0) {
        skipped(&format!(
            "landlock does not work here: {}",
            works.stderr.trim()
        ));
        return;
    }
    let server = Server::start(&scene, &["--provider", "landlock"]);
    scene.run(&["session", "open", "work"]).expect_code(0);
    let told = inside(&scene, &["--provider", "landlock", "--net", "none"]).expect_code(0);
    assert_eq!(told.text(), "unreachable\n", "{}", told.stderr);
    server.stop();
}

#[test]
fn f3_without_walls_the_server_is_reached_and_that_is_said() {
    let scene = Scene::new();
    let server = Server::start(&scene, &["--provider", "direct", "--net", "full"]);
    scene.run(&["session", "open", "work"]).expect_code(0);
    let told = inside(&scene, &["--provider", "direct"]).expect_code(0);
    assert!(
        told.text().contains("connected HTTP/1.1 401"),
        "{}",
        told.text()
    );
    assert!(told.text().contains("token"), "{}", told.text());
    let explained: Value = scene
        .run(&["run", "--provider", "direct", "--json", "--", "true"])
        .json();
    assert_eq!(explained["isolation"]["effective"]["provider"], "direct");
    server.stop();
}
