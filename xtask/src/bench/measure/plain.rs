//! The yardsticks: the program by itself, and bubblewrap by itself.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cofferdam_core::spec::EnclosureSpec;
use cofferdam_sandbox::{
    ExitStatus, Program, Spawn, bwrap_arguments, sealed_memory, spawn, wait_pid,
};

use super::{FLOOR, PROGRAM, Run, Subject, Yardstick};

/// Starting and awaiting the program. The standard library takes posix_spawn for it.
pub(super) fn floor() -> Subject {
    Subject {
        name: FLOOR,
        yardstick: Yardstick::Itself,
        bar: None,
        run: Ok(Box::new(|| once(Command::new(PROGRAM)))),
    }
}

/// bubblewrap by itself with exactly the flags that the plane gives it.
pub(super) fn bwrap(spec: &EnclosureSpec) -> anyhow::Result<Run> {
    let bwrap = spec.program.clone().context("bwrap is not installed")?;
    let program = CString::new(bwrap.as_bytes())?;
    let plan = bwrap_arguments(spec);
    let contents = plan
        .contents
        .iter()
        .map(|content| sealed_memory("content", content));
    let contents: Vec<OwnedFd> = contents.collect::<Result<_, _>>()?;
    let words = [
        &[b"bwrap".to_vec()],
        plan.arguments.as_slice(),
        &[PROGRAM.into()],
    ]
    .concat();
    let words = words
        .into_iter()
        .map(CString::new)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(move || {
        let mut start = Spawn::new(Program::Paths(vec![program.clone()]), words.clone());
        // The arguments name the contents by these numbers.
        start.descriptors = contents.iter().map(OwnedFd::as_fd).zip(7..).collect();
        let begin = Instant::now();
        let child = spawn(&start)?;
        let reaped = wait_pid(child.pid)?;
        let time = begin.elapsed();
        ensure!(
            reaped.status == ExitStatus::Code(0),
            "bwrap: {:?}",
            reaped.status
        );
        Ok(time)
    }))
}

/// Runs a command to its end with nothing on its streams; anything but exit 0 is an error.
pub(super) fn once(mut command: Command) -> anyhow::Result<Duration> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status();
    let time = start.elapsed();
    let name = command.get_program().to_string_lossy().into_owned();
    let status = status.with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name}: {status}");
    Ok(time)
}

/// Finds a program on the search path; the reason why its rows are not measured otherwise.
#[expect(
    clippy::disallowed_methods,
    reason = "what is measured beside is found as a shell would find it"
)]
pub(super) fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| format!("{name} is not installed"))
}
