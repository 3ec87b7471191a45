//! Bounds of a place: row 57, B10.

use std::path::PathBuf;
use std::time::Instant;

use cofferdam_core::event::Subject;
use cofferdam_core::outcome::{
    CommandOutcome, EndedBy, IsolationLevel, LimitHolder, LimitReason, LimitedResource, Status,
};
use cofferdam_core::spec::{Mechanism, Network, ProviderKind, ResourceLimits};
use cofferdam_exec::{Enclosure, Plane};
use cofferdam_journal::Query;

use crate::smoke::{capture, command, default_spec, plane};
use crate::worktree::bwrap_works;

const MEMORY: u64 = 96 << 20;
const TASKS: u64 = 24;

struct Bounded {
    top: tempfile::TempDir,
    plane: Plane,
    enclosure: Enclosure,
}

impl Bounded {
    fn new(provider: ProviderKind) -> Self {
        let top = tempfile::tempdir().expect("a directory");
        let workspace = top.path().join("w");
        let home = top.path().join("home");
        for path in [&workspace, &home] {
            std::fs::create_dir(path).expect("made");
        }
        let plane = plane(top.path());
        let mut spec = default_spec(provider, &workspace, &top.path().join("data"), &home);
        spec.limits = ResourceLimits {
            memory_bytes: Some(MEMORY),
            tasks: Some(TASKS),
            open_files: Some(64),
            ..ResourceLimits::default()
        };
        let requested = IsolationLevel {
            provider: Some(provider),
            network: Network::None,
        };
        let enclosure = plane
            .enclose(spec, requested, &Subject::default())
            .expect("walls");
        Self {
            top,
            plane,
            enclosure,
        }
    }

    fn run(&self, script: &str) -> CommandOutcome {
        let workspace = self.top.path().join("w");
        capture(&self.enclosure, command(&workspace, &["sh", "-c", script]))
    }

    /// Tells by what memory and tasks are bounded; says so where it is not together.
    fn has_group(&self) -> bool {
        let outcome = self.run("true");
        assert_eq!(outcome.status, Status::Completed, "{outcome:?}");
        let held = |wanted| {
            let found = outcome.limits.iter().find(|one| one.limit == wanted);
            found.and_then(|one| one.by)
        };
        assert_eq!(held(LimitedResource::OpenFiles), Some(LimitHolder::Rlimit));
        let by = [held(LimitedResource::Memory), held(LimitedResource::Tasks)];
        let grouped = by
            .iter()
            .all(|by| matches!(by, Some(LimitHolder::CgroupV1 | LimitHolder::CgroupV2)));
        let told = outcome.isolation.enforced_by.contains(&Mechanism::Cgroup);
        assert_eq!(grouped, told, "{by:?}");
        if !grouped {
            println!("skipped: no control group of our own here: {by:?}");
        }
        grouped
    }
}

/// Lists the groups that were written down before they were made.
fn planned_groups(plane: &Plane) -> Vec<PathBuf> {
    let query = Query::default().limit(1000).resolved();
    let page = plane.journal().read(&query).expect("events");
    page.events
        .iter()
        .filter_map(|event| event.data.get("control_groups")?.as_array())
        .flatten()
        .filter_map(|path| path.as_str().map(PathBuf::from))
        .collect()
}

fn b10(provider: ProviderKind) {
    let bounded = Bounded::new(provider);
    if !bounded.has_group() {
        return;
    }
    // A fork bomb of commands that wait: at the bound each further one is refused.
    let began = Instant::now();
    let bomb = bounded.run("i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done; wait");
    assert_eq!(bomb.status, Status::Failed, "{bomb:?}");
    assert_eq!(bomb.reasons, [LimitReason::PidsLimit]);
    assert!(began.elapsed().as_secs() < 30);
    // Twice the memory: ended, and the reason is told, not guessed.
    let hog = bounded.run("a=0123456789abcdef; while :; do a=$a$a; done");
    assert_eq!(hog.status, Status::Failed, "{hog:?}");
    assert_eq!(hog.signal.as_deref(), Some("SIGKILL"), "{hog:?}");
    assert_eq!(hog.reasons, [LimitReason::Oom]);
    // Neither the plane nor the place is hurt by it.
    let after = bounded.run("echo alive");
    assert_eq!(
        (after.status, &*after.stdout),
        (Status::Completed, "alive\n")
    );
    assert!(after.reasons.is_empty());
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let planned = planned_groups(&bounded.plane);
    assert!(!planned.is_empty());
    for name in planned.iter().filter_map(|path| path.file_name()?.to_str()) {
        assert!(!own.contains(name), "the plane itself stays outside");
    }
    let kills = planned.iter().any(|path| path.join("cgroup.kill").exists());
    let ended = bounded.enclosure.close();
    assert_eq!(ended == EndedBy::Cgroup, kills, "{ended:?}");
}

#[test]
fn b10_a_fork_bomb_and_a_memory_hog_stop_at_their_bound_without_walls() {
    b10(ProviderKind::Direct);
}

#[test]
fn b10_a_fork_bomb_and_a_memory_hog_stop_at_their_bound_in_bwrap() {
    if !bwrap_works() {
        return;
    }
    b10(ProviderKind::Bwrap);
}

#[test]
fn row_57_nothing_is_left_of_a_group_and_none_is_made_unasked() {
    let bounded = Bounded::new(ProviderKind::Direct);
    let grouped = bounded.has_group();
    let planned = planned_groups(&bounded.plane);
    if grouped {
        assert!(!planned.is_empty() && planned.iter().all(|path| path.is_dir()));
    }
    bounded.enclosure.close();
    assert!(planned.iter().all(|path| !path.exists()), "{planned:?}");
    let plain = default_spec(
        ProviderKind::Direct,
        &bounded.top.path().join("w"),
        &bounded.top.path().join("data"),
        &bounded.top.path().join("home"),
    );
    let requested = IsolationLevel {
        provider: Some(ProviderKind::Direct),
        network: Network::Full,
    };
    let enclosure = bounded
        .plane
        .enclose(plain, requested, &Subject::default())
        .expect("a place");
    let outcome = capture(
        &enclosure,
        command(&bounded.top.path().join("w"), &["true"]),
    );
    assert!(outcome.limits.is_empty() && outcome.reasons.is_empty());
    assert!(!outcome.isolation.enforced_by.contains(&Mechanism::Cgroup));
}

/// A place without walls that is bounded in what single processes and the plane hold.
fn place(limits: ResourceLimits) -> (tempfile::TempDir, Enclosure) {
    let top = tempfile::tempdir().expect("a directory");
    let workspace = top.path().join("w");
    let home = top.path().join("home");
    for path in [&workspace, &home] {
        std::fs::create_dir(path).expect("made");
    }
    let plane = plane(top.path());
    let data = top.path().join("data");
    let mut spec = default_spec(ProviderKind::Direct, &workspace, &data, &home);
    spec.limits = limits;
    let requested = IsolationLevel {
        provider: Some(ProviderKind::Direct),
        network: Network::Full,
    };
    let enclosure = plane.enclose(spec, requested, &Subject::default());
    (top, enclosure.expect("a place"))
}

#[test]
fn row_57_each_bound_is_named_as_the_reason() {
    let (top, enclosure) = place(ResourceLimits {
        cpu_seconds: Some(1),
        open_files: Some(32),
        output_bytes: Some(100_000),
        ..ResourceLimits::default()
    });
    let workspace = top.path().join("w");
    let run = |script: &str, change: &dyn Fn(&mut cofferdam_core::spec::CommandSpec)| {
        let mut command = command(&workspace, &["bash", "-c", script]);
        change(&mut command);
        capture(&enclosure, command)
    };
    let fine = run("echo fine", &|_| ());
    assert!(fine.success && fine.reasons.is_empty(), "{fine:?}");
    // Processor time, of the command itself and of what it waits for.
    let busy = run("while :; do :; done", &|_| ());
    assert_eq!(busy.signal.as_deref(), Some("SIGXCPU"), "{busy:?}");
    assert_eq!(busy.reasons, [LimitReason::CpuLimit]);
    let child = run("(trap - EXIT; while :; do :; done); exit $?", &|_| ());
    assert_eq!(child.return_code, Some(152), "{child:?}");
    assert_eq!(child.reasons, [LimitReason::CpuLimit]);
    let own = run("exit 152", &|_| ());
    assert!(own.reasons.is_empty(), "a code alone says nothing: {own:?}");
    // Output: as much as is kept, the rest counted to the byte; the command is not disturbed.
    let flood = run("head -c 3000000 /dev/zero; echo end >&2", &|_| ());
    assert!(flood.success, "{flood:?}");
    assert_eq!(flood.reasons, [LimitReason::OutputLimit]);
    assert_eq!(flood.stdout_full.bytes, 3_000_000);
    assert!(flood.stdout_full.dropped >= 2_000_000, "{flood:?}");
    // Open files: nobody but the program is told, so it is a guess.
    let open = "for i in $(seq 60); do exec {x}</dev/null || exit 9; done";
    let open = run(open, &|_| ());
    assert_eq!(
        (open.status, &*open.reasons),
        (Status::Failed, &[][..]),
        "{open:?}"
    );
    let hints = format!("{:?}", open.hints);
    assert!(hints.contains("limits.open_files"), "{open:?}");
    // Both clocks.
    let long = run("while :; do echo x; sleep 0.02; done", &|one| {
        one.timeout_ms = Some(300);
    });
    assert_eq!(
        (long.status, &*long.reasons),
        (Status::Timeout, &[LimitReason::TimeLimit][..])
    );
    let quiet = run("echo x; sleep 60", &|one| one.idle_timeout_ms = Some(200));
    assert_eq!(
        (quiet.status, &*quiet.reasons),
        (Status::Timeout, &[LimitReason::IdleLimit][..])
    );
}
