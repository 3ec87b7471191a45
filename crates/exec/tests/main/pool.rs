//! Ready places: what they save, and what never passes from one command to the next.

use std::time::{Duration, Instant};

use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{CommandOutcome, IsolationLevel};
use cofferdam_core::spec::{EnclosureSpec, Network, ProviderKind};
use cofferdam_exec::{CommandIo, Control, Plane, Pool, PoolOptions, Run};

use crate::smoke::{command, default_spec, plane};

struct Scene {
    pool: Pool,
    provider: ProviderKind,
    workspace: tempfile::TempDir,
    home: tempfile::TempDir,
    data: tempfile::TempDir,
    _plane: Plane,
}

impl Scene {
    fn new(provider: ProviderKind, options: PoolOptions) -> Self {
        let data = tempfile::tempdir().expect("a directory");
        let plane = plane(data.path());
        Self {
            pool: Pool::new(plane.clone(), options),
            provider,
            workspace: tempfile::tempdir_in("/var/tmp").expect("a directory"),
            home: tempfile::tempdir_in("/var/tmp").expect("a directory"),
            data,
            _plane: plane,
        }
    }

    fn spec(&self) -> EnclosureSpec {
        default_spec(
            self.provider,
            self.workspace.path(),
            self.data.path(),
            self.home.path(),
        )
    }

    fn sh(&self, text: &str) -> CommandOutcome {
        self.run(self.spec(), text)
    }

    fn run(&self, spec: EnclosureSpec, text: &str) -> CommandOutcome {
        let level = IsolationLevel {
            provider: Some(self.provider),
            network: Network::None,
        };
        self.pool.run(
            spec,
            level,
            Run {
                command: command(self.workspace.path(), &["sh", "-c", text]),
                subject: Subject::default(),
                io: CommandIo::Capture { input: None },
                control: Control::new(),
                timeout_clamped: false,
            },
        )
    }

    /// Waits until so many places are ready.
    fn ready(&self, wanted: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.pool.counts().ready < wanted && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(self.pool.counts().ready, wanted, "{:?}", self.pool.counts());
    }
}

fn everywhere(options: PoolOptions, check: impl Fn(&Scene)) {
    for provider in [
        ProviderKind::Direct,
        ProviderKind::Landlock,
        ProviderKind::Bwrap,
    ] {
        if provider == ProviderKind::Bwrap && !std::path::Path::new("/usr/bin/bwrap").exists() {
            println!("skipped for bwrap: bubblewrap is not installed");
            continue;
        }
        println!("{provider}");
        check(&Scene::new(provider, options));
    }
}

#[test]
fn a_place_in_which_nothing_was_left_is_used_again() {
    everywhere(PoolOptions::default(), |scene| {
        for number in 0..5 {
            let outcome = scene.sh(&format!("echo {number}; t=$(mktemp); rm $t; exit {number}"));
            assert_eq!(outcome.stdout, format!("{number}\n"), "{outcome:?}");
            assert_eq!(outcome.return_code, Some(number), "{outcome:?}");
        }
        let counts = scene.pool.counts();
        assert_eq!((counts.misses, counts.hits), (1, 4), "{counts:?}");
        assert_eq!(counts.discarded, 0, "{counts:?}");
    });
}

#[test]
fn what_a_command_leaves_in_a_private_place_is_met_by_nobody() {
    everywhere(PoolOptions::default(), |scene| {
        for left in [
            "echo x > $TMPDIR/left",
            "mkdir -p $TMPDIR/left/deep",
            "ln -s /etc $TMPDIR/left",
        ] {
            let outcome = scene.sh(&format!("{left}; ls -A $TMPDIR"));
            assert_eq!(outcome.stdout, "left\n", "{outcome:?}");
            let outcome = scene.sh("ls -A $TMPDIR; echo clean");
            assert_eq!(outcome.stdout, "clean\n", "{outcome:?}");
        }
        if scene.provider == ProviderKind::Bwrap {
            scene.sh("echo x > ~/left; echo x > /dev/shm/left");
            let outcome = scene.sh("ls -A ~ /dev/shm | grep left; echo clean");
            assert_eq!(outcome.stdout, "clean\n", "{outcome:?}");
        }
        // A process that outlives its command is ended, and the place is good again.
        let before = scene.pool.counts();
        let outcome = scene.sh("setsid sleep 300 >/dev/null 2>&1 & echo now");
        assert_eq!(outcome.leftovers.len(), 1, "{outcome:?}");
        let after = scene.pool.counts();
        assert_eq!(after.discarded, before.discarded, "{after:?}");
        assert!(before.discarded >= 3, "{before:?}");
    });
}

#[test]
fn e16_only_a_place_that_answers_is_handed_out() {
    everywhere(PoolOptions::default(), |scene| {
        scene.sh("true");
        scene.ready(1);
        stop_supervisors();
        let began = Instant::now();
        let outcome = scene.sh("echo here");
        assert_eq!(outcome.stdout, "here\n", "{outcome:?}");
        assert!(began.elapsed() < Duration::from_secs(3));
        assert_eq!(scene.pool.counts().discarded, 1);
        // Only what was planned alike is the same.
        let mut other = scene.spec();
        other.limits.open_files = Some(100);
        let outcome = scene.run(other, "ulimit -n");
        assert_eq!(outcome.stdout, "100\n", "{outcome:?}");
        assert_eq!(scene.pool.counts().hits, 0);
    });
}

/// Stops every supervisor below this test.
fn stop_supervisors() {
    let own = std::process::id();
    let stat = |pid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let name = text.split(['(', ')']).nth(1).unwrap_or_default().to_owned();
        let parent = text
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1))
            .unwrap_or_default()
            .to_owned();
        (name, parent)
    };
    for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        let (name, mut above) = stat(&pid);
        if !name.starts_with("cofferdam-super") {
            continue;
        }
        while !above.is_empty() && above != "0" && above != own.to_string() {
            above = stat(&above).1;
        }
        if above == own.to_string()
            && let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
        }
    }
}

#[test]
fn a_workspace_that_was_replaced_is_seen_as_it_is_now() {
    everywhere(PoolOptions::default(), |scene| {
        scene.sh("true");
        let place = scene.workspace.path();
        std::fs::remove_dir(place).expect("empty");
        std::fs::create_dir(place).expect("made");
        std::fs::write(place.join("new"), "").expect("written");
        let outcome = scene.sh("ls");
        assert_eq!(outcome.stdout, "new\n", "{outcome:?}");
    });
}

#[test]
fn places_that_nobody_uses_are_taken_down() {
    let options = PoolOptions {
        idle: Duration::from_millis(100),
        ahead: 1,
        most: 4,
    };
    everywhere(options, |scene| {
        scene.sh("true");
        let until = Instant::now() + Duration::from_secs(20);
        while scene.pool.counts().ready > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(scene.pool.counts().ready, 0);
        assert!(scene.sh("true").success);
    });
}
