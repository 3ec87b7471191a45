//! Unix sockets of the host that stand in what is granted, against real listeners.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::scene::{Scene, has_walls, skipped};

/// A listener that was made before anything ran.
struct Outside {
    listener: UnixListener,
    path: PathBuf,
}

impl Outside {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        let listener = UnixListener::bind(&path).expect("listens");
        listener.set_nonblocking(true).expect("set");
        Self { listener, path }
    }

    fn was_reached(&self) -> bool {
        self.listener.accept().is_ok()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

/// Tries to connect to each of some paths; `None` where there is no python.
fn connect(scene: &Scene, options: &[&str], paths: &[&Path]) -> Option<Vec<String>> {
    let program = "import socket, sys\n\
                   for path in sys.argv[1:]:\n  \
                     try:\n    \
                       s = socket.socket(socket.AF_UNIX); s.connect(path); print('reached')\n  \
                     except OSError as e: print('refused')";
    let mut line = vec!["run"];
    line.extend(options);
    line.extend(["--", "python3", "-c", program]);
    line.extend(paths.iter().map(|path| text(path)));
    let done = scene.run(&line);
    if done.code == Some(127) {
        skipped("there is no python3");
        return None;
    }
    let done = done.expect_code(0);
    Some(done.text().lines().map(str::to_owned).collect())
}

fn policy(scene: &Scene, text: &str) {
    let place = scene.path("home/.config/cofferdam");
    fs::create_dir_all(&place).expect("made");
    fs::write(place.join("policy.toml"), format!("schema = 1\n{text}")).expect("written");
}

#[test]
fn fc_42_a_socket_in_what_is_granted_is_not_reached() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let read = scene.path("read");
    let write = scene.path("write");
    let outside = [
        Outside::at(read.join("deep/er/a.sock")),
        Outside::at(write.join("b.sock")),
        Outside::at(scene.work().join("c.sock")),
    ];
    let paths: Vec<&Path> = outside.iter().map(|one| one.path.as_path()).collect();
    let refused = ["refused"; 3];
    for network in ["none", "restricted"] {
        let options = ["--net", network, "--ro", text(&read), "--rw", text(&write)];
        let Some(said) = connect(&scene, &options, &paths) else {
            return;
        };
        assert_eq!(said, refused, "{network}");
    }
    // With the host's network what may be written is a gap that is told; what may be read is not.
    let options = ["--net", "full", "--ro", text(&read)];
    let said = connect(&scene, &options, &paths[..1]).expect("python is there");
    assert_eq!(said, ["refused"]);
    for one in &outside {
        assert!(!one.was_reached(), "{}", one.path.display());
    }
}

#[test]
fn a_socket_that_is_granted_by_name_is_reached_and_no_other() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let place = scene.path("services");
    let granted = Outside::at(place.join("granted.sock"));
    let other = Outside::at(place.join("other.sock"));
    let rules = format!(
        "read = [{:?}]\n[allow]\nsockets = [{:?}]\n",
        text(&place),
        text(&granted.path)
    );
    policy(&scene, &rules);
    let Some(said) = connect(&scene, &[], &[&granted.path, &other.path]) else {
        return;
    };
    assert_eq!(said, ["reached", "refused"]);
    assert!(granted.was_reached() && !other.was_reached());
}

#[test]
fn an_engines_socket_and_a_socket_as_a_file_are_refused_by_their_code() {
    if !has_walls() {
        return;
    }
    let scene = Scene::new();
    let engine = Outside::at(scene.path("run/docker.sock"));
    let other = Outside::at(scene.path("run/other.sock"));
    let link = scene.path("run/harmless.sock");
    std::os::unix::fs::symlink(&engine.path, &link).expect("linked");
    let code = |rules: &str, options: &[&str]| {
        policy(&scene, rules);
        let mut line = vec!["run", "--json"];
        line.extend(options);
        line.extend(["--", "true"]);
        scene.run(&line).json()["error"]["code"].clone()
    };
    let refused = json!("socket_refused");
    for path in [&engine.path, &link] {
        let rules = format!("[allow]\nsockets = [{:?}]\n", text(path));
        assert_eq!(code(&rules, &[]), refused, "{}", path.display());
        assert_eq!(code("", &["--rw", text(path)]), refused);
    }
    assert_eq!(code("", &["--ro", text(&other.path)]), refused);
    let landlock = ["--provider", "landlock", "--ro", text(&engine.path)];
    assert_eq!(code("", &landlock), refused);
    // In a directory it is hidden like any other.
    policy(&scene, "");
    let run = scene.path("run");
    if let Some(said) = connect(&scene, &["--ro", text(&run)], &[&engine.path, &link]) {
        assert_eq!(said, ["refused", "refused"]);
    }
    assert!(!engine.was_reached());
}
