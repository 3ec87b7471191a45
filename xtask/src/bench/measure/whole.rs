//! `cofferdam run` as a whole process, as someone types it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use cofferdam_core::policy::{Caches, ProviderChoice};

use super::plane::spec;
use super::{PROGRAM, Run, Subject, Yardstick, plain, told};
use crate::target;

const PLAIN: &str = "plain bwrap, default policy";

/// The run and its yardstick, bubblewrap with the same namespaces and binds.
pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Subject> {
    let data = scratch.join("whole");
    let directory = workspace.to_path_buf();
    let home = data.clone();
    let command = move |arguments: &[&str]| {
        let mut command = Command::new(target().join("release/cofferdam"));
        command
            .args(["run", "--provider", "bwrap", "--net", "none", "--"])
            .args(arguments)
            .env("COFFERDAM_DATA_DIR", &home)
            .current_dir(&directory);
        command
    };
    let proof = told(proof(command(&["/bin/echo", "proof"])));
    // After the proof: it makes the places of the caches, which plain bwrap is to bind.
    let spec = spec(ProviderChoice::Bwrap, Caches::Private, &data, workspace);
    vec![
        Subject {
            name: PLAIN,
            yardstick: Yardstick::Itself,
            bar: None,
            run: told(spec.and_then(|spec| plain::bwrap(&spec))),
        },
        Subject {
            name: "cofferdam run --net none",
            yardstick: Yardstick::Plain(PLAIN),
            bar: Some(2.2),
            run: proof.map(|()| -> Run { Box::new(move || plain::once(command(&[PROGRAM]))) }),
        },
    ]
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
