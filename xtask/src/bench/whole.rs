//! `cofferdam run` as a whole process, as someone types it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{PROGRAM, Run, Subject, Yardstick, plain};
use crate::target;

const PLAIN: &str = "plain bwrap, for run";

/// The run and its yardstick, bubblewrap with the same namespaces and binds.
pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Subject> {
    let data = scratch.join("whole");
    let workspace = workspace.to_path_buf();
    let yardstick = plain::bwrap(PLAIN, plain::arguments(&workspace));
    let command = move |arguments: &[&str]| {
        let mut command = Command::new(target().join("release/cofferdam"));
        command
            .args(["run", "--provider", "bwrap", "--net", "none", "--"])
            .args(arguments)
            .env("COFFERDAM_DATA_DIR", &data)
            .current_dir(&workspace);
        command
    };
    let run: Result<Run, String> = match proof(command(&["/bin/echo", "proof"])) {
        Ok(()) => Ok(Box::new(move || plain::once(command(&[PROGRAM])))),
        Err(error) => Err(format!("{error:#}")),
    };
    let ours = Subject {
        name: "cofferdam run --net none",
        yardstick: Yardstick::Plain(PLAIN),
        bar: Some(2.2),
        run,
    };
    vec![yardstick, ours]
}

/// What is measured has to show first that it does what it is measured for.
fn proof(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().context("cannot run cofferdam")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.lines().next().unwrap_or("no word on stderr");
    ensure!(
        output.status.success(),
        "cofferdam run: {}, {complaint}",
        output.status
    );
    ensure!(
        output.stdout == b"proof\n",
        "cofferdam run gives another output than its command's"
    );
    Ok(())
}
