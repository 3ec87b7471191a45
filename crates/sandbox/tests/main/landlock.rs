//! Landlock: files, TCP and signals really tried.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cofferdam_sandbox::{
    Access, ExitStatus, LANDLOCK_ABI_WANTED, LandlockPlan, PathRule, Ruleset, build_ruleset,
    landlock_abi,
};

use crate::helper::{program, run};

#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn available() -> bool {
    let abi = landlock_abi();
    if abi < LANDLOCK_ABI_WANTED {
        println!("skipped: Landlock has version {abi} here, {LANDLOCK_ABI_WANTED} is wanted");
    }
    abi >= LANDLOCK_ABI_WANTED
}

fn rule(path: &Path, access: Access) -> PathRule {
    PathRule {
        path: path.as_os_str().as_bytes().to_vec(),
        access,
    }
}

fn plan(workspace: &Path) -> LandlockPlan {
    let mut files: Vec<PathRule> = ["/usr", "/bin", "/lib", "/lib64", "/etc"]
        .iter()
        .map(|path| rule(Path::new(path), Access::ReadExecute))
        .collect();
    files.push(rule(workspace, Access::Write));
    files.push(rule(Path::new("/dev/null"), Access::Device));
    LandlockPlan {
        files: Some(files),
        deny_tcp: true,
        scope_signals: true,
        scope_abstract_sockets: true,
    }
}

fn shell(ruleset: &Ruleset, script: &str) -> (ExitStatus, String) {
    let mut spec = program(&["sh", "-c", script]);
    spec.landlock = Some(ruleset.fd.as_fd());
    run(spec)
}

#[test]
fn files_outside_are_closed_and_the_workspace_is_open() {
    if !available() {
        return;
    }
    let (inside, outside) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "planted").expect("written");
    std::fs::hard_link(&secret, outside.path().join("other")).expect("linked");
    let ruleset = build_ruleset(&plan(inside.path())).expect("built");
    assert!(ruleset.skipped.is_empty(), "{:?}", ruleset.skipped);
    let (w, o) = (inside.path().display(), outside.path().display());
    let refused = |script: &str| {
        let (status, output) = shell(&ruleset, script);
        assert_ne!(status, ExitStatus::Code(0), "{script}: {output}");
        assert!(!output.contains("planted"), "{script}: {output}");
    };
    refused(&format!("cat {o}/secret"));
    refused(&format!("ls {o}"));
    refused(&format!("echo x > {o}/new"));
    refused(&format!("echo x >> {o}/secret"));
    refused(&format!("rm -f {o}/secret"));
    refused(&format!("ln -s {o}/secret {w}/link && cat {w}/link"));
    refused(&format!("ln {o}/secret {w}/hard && cat {w}/hard"));
    refused(&format!("mv {o}/secret {w}/moved"));
    refused(&format!("mkdir {o}/folder"));
    refused(&format!("cat /proc/self/root{o}/secret"));
    let (status, output) = shell(
        &ruleset,
        &format!(
            "cd {w} && mkdir -p a/b && echo hi > a/f && mv a/f a/b/g && cat a/b/g && \
             printf '#!/bin/sh\\necho ran\\n' > run && chmod +x run && ./run && rm -r a && cat /dev/null"
        ),
    );
    assert_eq!(
        (status, output.as_str()),
        (ExitStatus::Code(0), "hi\nran\n")
    );
    assert_eq!(
        std::fs::read_to_string(&secret).expect("still there"),
        "planted"
    );
}

#[test]
fn what_is_not_there_is_told_and_not_allowed() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut plan = plan(folder.path());
    plan.files
        .as_mut()
        .expect("rules")
        .push(rule(&folder.path().join("no/such"), Access::Read));
    let ruleset = build_ruleset(&plan).expect("built");
    assert_eq!(
        ruleset.skipped,
        [folder
            .path()
            .join("no/such")
            .as_os_str()
            .as_bytes()
            .to_vec()]
    );
}

#[test]
fn signals_stay_inside() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let ruleset = build_ruleset(&plan(folder.path())).expect("built");
    let (status, output) = shell(&ruleset, "kill -0 $PPID");
    assert_ne!(status, ExitStatus::Code(0), "{output}");
    let (status, output) = shell(&ruleset, "sleep 60 & kill $!; wait $!; echo $?");
    assert_eq!(status, ExitStatus::Code(0));
    assert!(output.ends_with("143\n"), "{output}");
    // Without the scope the same signal is delivered.
    assert_eq!(
        run(program(&["sh", "-c", "kill -0 $PPID"])).0,
        ExitStatus::Code(0)
    );
}

#[test]
fn an_empty_list_allows_nothing_and_none_governs_nothing() {
    if !available() {
        return;
    }
    let closed = LandlockPlan {
        files: Some(Vec::new()),
        ..LandlockPlan::default()
    };
    let ruleset = build_ruleset(&closed).expect("built");
    let mut spec = program(&["true"]);
    spec.landlock = Some(ruleset.fd.as_fd());
    assert_eq!(
        cofferdam_sandbox::spawn(&spec)
            .map(drop)
            .expect_err("refused")
            .code(),
        "not_executable"
    );
    let open = LandlockPlan {
        scope_signals: true,
        ..LandlockPlan::default()
    };
    let ruleset = build_ruleset(&open).expect("built");
    assert_eq!(
        shell(&ruleset, "cat /etc/hostname >/dev/null").0,
        ExitStatus::Code(0)
    );
}
