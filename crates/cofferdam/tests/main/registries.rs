//! Real package clients through the proxy, against what the ordinary client is configured to use
//! here. Each first asks outside of the walls: where that fails, there is nothing to be shown.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::scene::{Finished, Scene, finish, has_walls, skipped};

/// Sees whether a client reaches its registry by itself.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller's own configuration is what is tried"
)]
#[expect(clippy::print_stdout, reason = "a test that cannot run here says why")]
fn reaches(scene: &Scene, words: &[&str]) -> bool {
    let outside = scene.path("outside");
    std::fs::create_dir_all(&outside).expect("made");
    for file in ["Cargo.toml", "package.json", "go.mod", "go.sum"] {
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

/// Files of the caller's home by which clients know their registries.
const CONFIGURATION: [&str; 7] = [
    ".npmrc",
    ".yarnrc.yml",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".config/uv/uv.toml",
    ".cargo/config.toml",
    ".m2/settings.xml",
];

/// Places of the caller's home where the clients themselves lie.
const TOOLCHAINS: [&str; 5] = [".cargo/bin", ".rustup", ".pyenv", ".nvm", ".local/share/uv"];

/// Runs a client in a workspace and a home of its own with the hosts of `@dev`: of the caller's home
/// it has the configuration of registries, and the clients themselves for reading.
fn inside(scene: &Scene, words: &[&str]) -> Finished {
    inside_with(scene, "--allow", words)
}

/// The same by another flag than `--allow`.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller's own configuration is what is tried"
)]
fn inside_with(scene: &Scene, flag: &str, words: &[&str]) -> Finished {
    let caller = std::env::var_os("HOME").map(PathBuf::from).expect("a home");
    let mut arguments: Vec<OsString> = ["run", "--no-tty", flag, "@dev", "--timeout", "120"]
        .map(OsString::from)
        .to_vec();
    for file in CONFIGURATION {
        let target = scene.path("home").join(file);
        std::fs::create_dir_all(target.parent().expect("a parent")).expect("made");
        let _ = std::fs::copy(caller.join(file), target);
    }
    for place in TOOLCHAINS.map(|place| caller.join(place)) {
        if place.is_dir() {
            arguments.extend(["--ro".into(), place.into_os_string()]);
        }
    }
    let homes = [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv")].map(|(name, place)| {
        arguments.extend(["--env".into(), name.into()]);
        let value = std::env::var_os(name);
        (name, value.unwrap_or_else(|| caller.join(place).into()))
    });
    arguments.push("--".into());
    arguments.extend(words.iter().map(OsString::from));
    let mut command = scene.command(&[]);
    // Which certificates to trust is the machine's own matter.
    let trust = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    let trust = trust
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.args(arguments).envs(homes).envs(trust);
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
fn npm_installs_from_hosts_that_are_for_reading_only() {
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
    inside_with(&scene, "--allow-read", &words).expect_code(0);
    assert!(
        scene
            .work()
            .join("node_modules/is-number/package.json")
            .exists()
    );
    let requested = scene
        .run(&["events", "--type", "net.requested", "--json"])
        .json();
    let requested = requested["data"]["events"].as_array().map_or(0, Vec::len);
    assert!(requested > 0, "its requests were seen");
    let told = scene.run(&["policy", "explain", "--allow-read", "registry.test"]);
    assert!(
        told.text().contains("requests to registry.test: reading"),
        "{}",
        told.text()
    );
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
fn uv_downloads_through_the_proxy() {
    let scene = Scene::new();
    scene.write("requirements.txt", "six==1.17.0\n");
    let words = [
        "uv",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-cache",
        "--target",
        "wheels",
        "six==1.17.0",
    ];
    if !reaches(&scene, &words) {
        return;
    }
    inside(&scene, &words).expect_code(0);
    assert!(scene.work().join("wheels/six.py").exists());
    assert!(!reached(&scene).is_empty());
}

#[test]
fn yarn_and_pnpm_install_through_the_proxy() {
    for words in [
        &["yarn", "add", "-s", "is-number@7.0.0"][..],
        &["pnpm", "add", "is-number@7.0.0"],
    ] {
        let scene = Scene::new();
        scene.write("package.json", "{\"name\": \"x\", \"version\": \"1.0.0\"}");
        if words[0] == "yarn" {
            // By this it is seen that yarn is used here.
            scene.write("yarn.lock", "");
        }
        if !reaches(&scene, words) {
            continue;
        }
        inside(&scene, words).expect_code(0);
        let made = scene.work().join("node_modules/is-number/package.json");
        assert!(made.exists(), "{words:?}");
        assert!(!reached(&scene).is_empty());
    }
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

#[test]
fn go_downloads_through_the_proxy() {
    let scene = Scene::new();
    let module = "module example.com/x\n\ngo 1.20\n\nrequire github.com/google/uuid v1.6.0\n";
    scene.write("go.mod", module);
    let sums = "github.com/google/uuid v1.6.0 h1:NIvaJDMOsjHA8n1jAhLSgzrAzy1Hgr+hNrb57e+94F0=\n\
                github.com/google/uuid v1.6.0/go.mod h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo=\n";
    scene.write("go.sum", sums);
    let words = ["go", "mod", "download", "-json"];
    if !reaches(&scene, &words) {
        return;
    }
    let done = inside(&scene, &words).expect_code(0);
    assert!(
        done.text().contains("github.com/google/uuid"),
        "{}",
        done.text()
    );
    assert!(!reached(&scene).is_empty());
}

/// Maven takes no variable but the options of its own machine. Its registry need not be reached for
/// this: what it asks of the proxy is told in any case.
#[test]
fn maven_asks_through_the_proxy() {
    let program = std::path::Path::new("/usr/bin/mvn");
    if !program.exists() || !has_walls() {
        skipped("there is no mvn, or there are no walls");
        return;
    }
    let scene = Scene::new();
    scene.write(
        "pom.xml",
        "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId>\
         <version>1</version><packaging>pom</packaging></project>",
    );
    let words = [
        "run",
        "--net",
        "restricted",
        "--timeout",
        "50",
        "--",
        "mvn",
        "-B",
        "-q",
    ];
    let repository = "-Dmaven.repo.local=repository";
    scene.run(&[&words[..], &[repository, "dependency:resolve"]].concat());
    let told = scene
        .run(&["events", "--type", "net.decided", "--json"])
        .expect_code(0)
        .json();
    let events = told["data"]["events"].as_array().expect("a list");
    let refused = |event: &serde_json::Value| {
        event["data"]["protocol"] == "connect" && event["data"]["verdict"] == "refused"
    };
    assert!(events.iter().any(refused), "{told}");
}

#[test]
fn npm_ci_installs_what_its_lock_says_through_the_proxy() {
    let scene = Scene::new();
    scene.write(
        "package.json",
        "{\"name\": \"x\", \"version\": \"1.0.0\", \"dependencies\": {\"is-number\": \"7.0.0\"}}",
    );
    let lock = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--package-lock-only",
    ];
    if !reaches(&scene, &lock) {
        return;
    }
    let made = scene.path("outside").join("package-lock.json");
    std::fs::copy(made, scene.work().join("package-lock.json")).expect("copied");
    inside(&scene, &["npm", "ci", "--no-audit", "--no-fund"]).expect_code(0);
    let package = scene.work().join("node_modules/is-number/package.json");
    assert!(package.exists());
    assert!(!reached(&scene).is_empty());
}

#[test]
fn cargo_builds_with_a_dependency_through_the_proxy() {
    let scene = Scene::new();
    scene.write(
        "Cargo.toml",
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n[workspace]\n",
    );
    std::fs::create_dir(scene.work().join("src")).expect("made");
    scene.write(
        "src/main.rs",
        "fn main() { println!(\"{}\", itoa::Buffer::new().format(42)); }\n",
    );
    if !reaches(&scene, &["cargo", "fetch", "-q"]) {
        return;
    }
    inside(&scene, &["cargo", "build", "-q"]).expect_code(0);
    let made = inside(&scene, &["target/debug/x"]).expect_code(0);
    assert_eq!(made.text(), "42\n");
    assert!(!reached(&scene).is_empty());
}

/// Inside there is nobody who resolves names: a client that asks the proxy gets there, and one that
/// resolves by itself is told at once that it cannot.
#[test]
fn fc_50_a_client_inside_reaches_by_the_proxy_what_it_cannot_resolve() {
    let scene = Scene::new();
    // By this it is seen that pip is used here.
    scene.write("requirements.txt", "six==1.17.0\n");
    if !reaches(
        &scene,
        &[
            "python3",
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-cache-dir",
            "six==1.17.0",
        ],
    ) {
        return;
    }
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
    inside(&scene, &words).expect_code(0);
    let host = reached(&scene).into_iter().next().expect("a host");
    let host = host.trim_matches('"');
    if host.parse::<std::net::IpAddr>().is_ok() {
        return skipped("the index is an address here: there is nothing to resolve");
    }
    let script = format!(
        "import socket, time\nbegan = time.time()\ntry:\n  socket.getaddrinfo('{host}', 443)\n  \
         print('resolved')\nexcept socket.gaierror as error:\n  print(error.errno, time.time() - began < 5)\n"
    );
    let asked = inside(&scene, &["python3", "-c", &script]).expect_code(0);
    let text = asked.text();
    let known = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    if known.contains(host) {
        return skipped("the index stands in /etc/hosts, which is read inside too");
    }
    assert!(
        text.starts_with('-') && text.trim_end().ends_with("True"),
        "{text}"
    );
}
