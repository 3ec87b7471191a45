//! A Docker engine of a test's own, and what containers promise beyond the conformance suite.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel, Status};
use cofferdam_core::spec::{EnclosureSpec, Network, ProviderKind};
use cofferdam_exec::{Enclosure, Plane};

use crate::smoke::{Outside, capture, command, plane, planned};

/// An engine that ends with this value, and everything it made with it.
pub(crate) struct TestEngine {
    child: Child,
    place: tempfile::TempDir,
}

impl TestEngine {
    /// Starts one; `None`, and the reason in print, where this host cannot.
    pub(crate) fn start() -> Option<Self> {
        let skip = |why: &str| {
            println!("skipped: no engine for containers: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("dockerd needs root");
        }
        let programs = [
            "/usr/bin/dockerd",
            "/usr/sbin/dockerd",
            "/usr/local/bin/dockerd",
        ];
        let Some(program) = programs.iter().find(|path| Path::new(path).exists()) else {
            return skip("dockerd is not installed; scripts/setup --tests does that");
        };
        // Its layers need a file system that holds overlays.
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let at = |name: &str| place.path().join(name);
        let log = std::fs::File::create(at("log")).expect("a file");
        #[expect(clippy::disallowed_methods, reason = "the engine is a real program")]
        let child = Command::new(program)
            .arg("--host")
            .arg(format!("unix://{}", at("d.sock").display()))
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("started");
        let mut engine = Self { child, place };
        let until = Instant::now() + Duration::from_secs(30);
        while std::os::unix::net::UnixStream::connect(engine.socket()).is_err() {
            let ended = engine.child.try_wait().expect("a child").is_some();
            if ended || Instant::now() > until {
                let log = std::fs::read_to_string(at_log(&engine)).unwrap_or_default();
                return skip(log.lines().last().unwrap_or("it does not answer"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(engine)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.place.path().join("d.sock")
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The ids of all containers that it has, by its own client where that is there.
    fn containers(&self) -> Vec<String> {
        let answer = self.ask(&["ps", "--all", "--quiet", "--no-trunc"]);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    fn ask(&self, words: &[&str]) -> Output {
        #[expect(
            clippy::disallowed_methods,
            reason = "the engine's own client is asked"
        )]
        Command::new("docker")
            .arg("--host")
            .arg(self.host())
            .args(words)
            .output()
            .expect("the engine's client runs")
    }
}

fn at_log(engine: &TestEngine) -> PathBuf {
    engine.place.path().join("log")
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A place of a container over a workspace of its own.
struct Place {
    plane: Plane,
    spec: EnclosureSpec,
    workspace: tempfile::TempDir,
    data: tempfile::TempDir,
    _home: tempfile::TempDir,
}

impl Place {
    fn over(engine: &TestEngine, change: impl FnOnce(&mut EnclosureSpec)) -> Self {
        let data = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let workspace = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let home = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let host = engine.host();
        let mut spec = planned(
            ProviderKind::Container,
            &Outside {
                workspace: workspace.path(),
                data: &data.path().join("data"),
                home: home.path(),
                docker_host: Some(&host),
            },
        );
        change(&mut spec);
        Self {
            plane: plane(data.path()),
            spec,
            workspace,
            data,
            _home: home,
        }
    }

    fn run(&self, enclosure: &Enclosure, words: &[&str]) -> CommandOutcome {
        capture(enclosure, command(self.workspace.path(), words))
    }

    fn enclose(&self) -> Enclosure {
        let level = IsolationLevel {
            provider: Some(ProviderKind::Container),
            network: Network::None,
        };
        self.plane
            .enclose(self.spec.clone(), level, &Subject::default())
            .expect("a container")
    }
}

#[test]
fn a_container_has_no_capabilities_and_bounds_that_its_engine_tells() {
    let Some(engine) = TestEngine::start() else {
        return;
    };
    let place = Place::over(&engine, |spec| {
        spec.limits.memory_bytes = Some(64 * 1024 * 1024);
        spec.limits.tasks = Some(50);
    });
    let enclosure = place.enclose();
    let id = engine.containers().pop().expect("one container");
    let told = engine.ask(&["inspect", &id]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let host = &told[0]["HostConfig"];
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert_eq!(
        host["SecurityOpt"],
        serde_json::json!(["no-new-privileges"])
    );
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["Memory"], 64 * 1024 * 1024);
    assert_eq!(host["PidsLimit"], 50 + 16);
    assert_eq!(host["Privileged"], false);
    let status = place.run(&enclosure, &["cat", "/proc/self/status"]);
    let text = status.stdout;
    for field in ["CapEff", "CapPrm", "CapBnd"] {
        assert!(
            text.contains(&format!("{field}:\t0000000000000000")),
            "{text}"
        );
    }
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    // Nothing of the way in is left inside.
    let left = place.run(&enclosure, &["ls", "-A", "/.cofferdam"]);
    assert_eq!(left.stdout, "", "{left:?}");
    drop(enclosure);
    assert_eq!(engine.containers(), Vec::<String>::new());
}

#[test]
fn row_52_a_file_for_everybody_is_not_written_in_a_read_only_workspace() {
    let Some(engine) = TestEngine::start() else {
        return;
    };
    let place = Place::over(&engine, |spec| {
        for mount in &mut spec.mounts {
            if let cofferdam_core::spec::Mount::Bind { access, .. } = mount {
                *access = cofferdam_core::spec::Access::Read;
            }
        }
    });
    let file = place.workspace.path().join("open");
    std::fs::write(&file, "before").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&file, mode).expect("set");
    let enclosure = place.enclose();
    let outcome = place.run(&enclosure, &["sh", "-c", "echo after > open"]);
    assert_eq!(outcome.status, Status::Failed, "{outcome:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "before");
}

#[test]
fn b17_a_container_that_was_killed_is_said_to_be_gone() {
    let Some(engine) = TestEngine::start() else {
        return;
    };
    let place = Place::over(&engine, |_| ());
    let enclosure = place.enclose();
    assert_eq!(place.run(&enclosure, &["true"]).status, Status::Completed);
    let id = engine.containers().pop().expect("one container");
    assert!(engine.ask(&["kill", &id]).status.success());
    let outcome = place.run(&enclosure, &["true"]);
    assert_eq!(outcome.status, Status::Error, "{outcome:?}");
    let code = outcome.error.expect("a reason").code;
    assert_eq!(code, cofferdam_core::error::ErrorCode::EnclosureLost);
}

#[test]
fn what_an_engine_kept_of_a_dead_plane_goes_with_the_next_start() {
    let Some(engine) = TestEngine::start() else {
        return;
    };
    let place = Place::over(&engine, |_| ());
    let enclosure = place.enclose();
    let id = engine.containers().pop().expect("one container");
    let told = engine.ask(&["inspect", &id]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let label = |name: &str| {
        told[0]["Config"]["Labels"][name]
            .as_str()
            .unwrap_or_default()
    };
    let living = place.plane.lease().as_str();
    assert_eq!(label("cofferdam.lease"), living);
    // A lease that nobody holds, and a container of its plane, as a stopped engine leaves it.
    let leases = place.data.path().join("data/leases");
    let (_, random) = place.plane.ambient().id_parts();
    let dead = cofferdam_core::id::LeaseId::new(0, random)
        .as_str()
        .to_owned();
    for found in std::fs::read_dir(&leases).expect("leases").flatten() {
        let text = std::fs::read_to_string(found.path()).expect("a lease");
        let name = found.file_name().to_string_lossy().replace(living, &dead);
        std::fs::write(leases.join(name), text.replace(living, &dead)).expect("written");
    }
    let labels = [
        format!("cofferdam.plane={}", label("cofferdam.plane")),
        format!("cofferdam.lease={dead}"),
    ];
    let image = told[0]["Image"].as_str().expect("an image");
    let made = engine.ask(&[
        "create", "--label", &labels[0], "--label", &labels[1], image, "/none",
    ]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(engine.containers().len(), 2);
    // The next start takes that one away, and leaves the other to its owner, who lives.
    drop(plane(place.data.path()));
    assert_eq!(engine.containers(), [id]);
    assert_eq!(place.run(&enclosure, &["true"]).status, Status::Completed);
}
