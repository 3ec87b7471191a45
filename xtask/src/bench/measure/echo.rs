//! A key pressed until it is seen: a program on a terminal by itself, and through ours.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};
use cofferdam_sandbox::{Directory, Program, Spawn, open_terminal, spawn, wait_pid};

use super::{Run, Subject, Yardstick, told};
use crate::target;

const BARE: &str = "terminal echo, bare";
/// Answers each byte; the terminal itself does not.
const ANSWER: &str = "stty raw -echo; echo ready; exec cat";

/// The echo of a program behind walls, and that of the same program without.
pub(super) fn subjects(scratch: &Path, workspace: &Path) -> Vec<Subject> {
    let own = target().join("release/cofferdam");
    let through = [
        own.as_os_str(),
        OsStr::new("run"),
        OsStr::new("--net"),
        OsStr::new("none"),
        OsStr::new("--"),
    ];
    let data = scratch.join("echo");
    vec![
        Subject {
            name: BARE,
            yardstick: Yardstick::Itself,
            bar: None,
            run: told(echo(&[], workspace, &data)),
        },
        Subject {
            name: "terminal echo, through ours",
            yardstick: Yardstick::Over(BARE),
            bar: Some(1.0),
            run: told(echo(&through, workspace, &data)),
        },
    ]
}

/// The outer side of a terminal with a program on the other.
struct Answering {
    master: Option<File>,
    pid: i32,
}

impl Drop for Answering {
    fn drop(&mut self) {
        // The program is told that its terminal is gone.
        drop(self.master.take());
        let _ = wait_pid(self.pid);
    }
}

fn echo(before: &[&OsStr], workspace: &Path, data: &Path) -> anyhow::Result<Run> {
    let words = before
        .iter()
        .copied()
        .chain(["/bin/sh", "-c", ANSWER].map(OsStr::new))
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    let terminal = open_terminal(24, 80)?;
    let directory = CString::new(workspace.as_os_str().as_bytes())?;
    let mut start = Spawn::new(Program::Paths(vec![words[0].clone()]), words);
    start.environment = ["PATH=/usr/bin:/bin", "TERM=xterm"]
        .iter()
        .map(|text| CString::new(*text))
        .collect::<Result<_, _>>()?;
    for (name, value) in [("COFFERDAM_DATA_DIR", data), ("HOME", data)] {
        let mut text = name.as_bytes().to_vec();
        text.push(b'=');
        text.extend_from_slice(value.as_os_str().as_bytes());
        start.environment.push(CString::new(text)?);
    }
    start.directory = Some(Directory::Path(directory));
    start.descriptors = (0..3)
        .map(|number| (terminal.slave.as_fd(), number))
        .collect();
    start.controlling_terminal = true;
    let child = spawn(&start)?;
    drop(start);
    drop(terminal.slave);
    let mut master = File::from(terminal.master);
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !seen.windows(5).any(|part| part == b"ready") {
        match master.read(&mut buffer) {
            Ok(count) if count > 0 => seen.extend_from_slice(&buffer[..count]),
            _ => bail!("it does not start: {}", String::from_utf8_lossy(&seen)),
        }
    }
    // The end of that line.
    while !seen.ends_with(b"\n") {
        let count = master.read(&mut buffer).context("no end of a line")?;
        seen.extend_from_slice(&buffer[..count]);
    }
    let mut answering = Answering {
        master: Some(master),
        pid: child.pid,
    };
    Ok(Box::new(move || {
        let master = answering.master.as_mut().context("it has ended")?;
        let begin = Instant::now();
        master.write_all(b"x")?;
        let count = master.read(&mut buffer)?;
        let time = begin.elapsed();
        if buffer[..count] != *b"x" {
            bail!(
                "another answer: {:?}",
                String::from_utf8_lossy(&buffer[..count])
            );
        }
        Ok(time)
    }))
}
