//! The yardsticks: the program by itself, and bubblewrap by itself.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{FLOOR, PROGRAM, Subject, Yardstick};

/// Starting and awaiting the program. The standard library takes posix_spawn for it.
pub(super) fn floor() -> Subject {
    Subject {
        name: FLOOR,
        yardstick: Yardstick::Itself,
        bar: None,
        run: Ok(Box::new(|| once(Command::new(PROGRAM)))),
    }
}

/// bubblewrap with these arguments before the program.
pub(super) fn bwrap(name: &'static str, arguments: Vec<OsString>) -> Subject {
    Subject {
        name,
        yardstick: Yardstick::Itself,
        bar: None,
        run: Ok(Box::new(move || {
            let mut command = Command::new("bwrap");
            command.args(&arguments).arg(PROGRAM);
            once(command)
        })),
    }
}

/// Every namespace, no capability, the host read-only and a private /tmp, the workspace writable.
pub(super) fn arguments(workspace: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = [
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]
    .map(Into::into)
    .into();
    arguments.push("--bind".into());
    arguments.push(workspace.into());
    arguments.push(workspace.into());
    arguments
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
