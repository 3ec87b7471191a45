//! Much output: a gigabyte that a command writes, into the plane's files and into a file of a shell.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::ensure;
use cofferdam_core::event::Subject;
use cofferdam_core::policy::{Caches, ProviderChoice};

use super::plane::{command, completed, open, requested, spec};
use super::{Run, Subject as Measured, Yardstick, few, plain, told};

const BYTES: u64 = 1_000_000_000;
const PLAIN: &str = "1 GB into a file";
/// A round takes a second and more: so many are measured, and later rounds give their median again.
const ROUNDS: usize = 5;
/// Growth of the largest resident set of this process that is still called flat.
const FLAT_KIB: i64 = 16 * 1024;

pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Measured> {
    vec![
        Measured {
            name: PLAIN,
            yardstick: Yardstick::Itself,
            bar: None,
            run: Ok(few(into_file(scratch), ROUNDS)),
        },
        Measured {
            name: "1 GB into the spill",
            yardstick: Yardstick::Plain(PLAIN),
            bar: Some(1.5),
            run: told(into_spill(scratch, workspace).map(|run| few(run, ROUNDS))),
        },
    ]
}

fn script() -> String {
    format!("head -c {BYTES} /dev/zero")
}

fn into_file(scratch: &Path) -> Run {
    let file = scratch.join("redirected");
    Box::new(move || {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("{} >\"$0\"", script()))
            .arg(&file);
        let time = plain::once(shell)?;
        std::fs::remove_file(&file)?;
        Ok(time)
    })
}

fn into_spill(scratch: &Path, workspace: &Path) -> anyhow::Result<Run> {
    let data = scratch.join("output");
    let plane = open(&data)?;
    let spec = spec(ProviderChoice::Direct, Caches::None, &data, workspace)?;
    let workspace = spec.workspace.clone();
    let enclosure = plane.enclose(spec, requested(), &Subject::default())?;
    completed(&command(
        &enclosure,
        &workspace,
        &["sh", "-c", "head -c 10000000 /dev/zero"],
    ))?;
    Ok(Box::new(move || {
        let before = largest_resident()?;
        let start = Instant::now();
        let outcome = command(&enclosure, &workspace, &["sh", "-c", &script()]);
        let time = start.elapsed();
        completed(&outcome)?;
        let kept = &outcome.stdout_full;
        ensure!(
            (kept.bytes, kept.dropped) == (BYTES, 0) && kept.digest.is_some(),
            "not all of it was kept: {kept:?}"
        );
        let grown = largest_resident()? - before;
        ensure!(grown <= FLAT_KIB, "the resident set grew by {grown} KiB");
        Ok(time)
    }))
}

/// Reads the largest resident set of this process, in KiB.
fn largest_resident() -> anyhow::Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next());
    Ok(line.map(str::parse).transpose()?.unwrap_or_default())
}
