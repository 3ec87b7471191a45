//! The caller's own pager, on the caller's own terminal.

use std::ffi::{CString, OsString};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_sandbox::{ExitStatus, Program, Spawn, spawn, wait_pid};
use rustix::fs::{MemfdFlags, memfd_create};

/// Shows text in a pager; tells whether there was one to show it.
///
/// `command` is a line for the shell, as `PAGER` holds it. The pager gets the caller's terminal and
/// environment: it is the owner's program, and nothing of a task runs in it. The text is a file in
/// memory, so that a pager that ends early disturbs nobody.
///
/// # Errors
///
/// When the text cannot be laid out or the shell cannot be started.
pub fn page(
    command: &str,
    environment: &[(OsString, OsString)],
    text: &[u8],
) -> Result<bool, Problem> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Problem::new(ErrorCode::Io, format!("the pager {what}: {error}"))
    };
    let words = ["/bin/sh", "-c", command]
        .map(CString::new)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed("has no usable name", &error))?;
    let memory = memfd_create("review", MemfdFlags::CLOEXEC)
        .map_err(|error| failed("has no file to read", &error))?;
    let mut file = std::fs::File::from(memory);
    file.write_all(text)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .map_err(|error| failed("has no file to read", &error))?;
    let mut spec = Spawn::new(Program::Paths(words[..1].to_vec()), words);
    spec.environment = environment
        .iter()
        .filter_map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        })
        .collect();
    spec.descriptors = vec![
        (file.as_fd(), 0),
        (rustix::stdio::stdout(), 1),
        (rustix::stdio::stderr(), 2),
    ];
    let child = spawn(&spec).map_err(|error| failed("cannot be started", &error))?;
    let ended = wait_pid(child.pid).map_err(|error| failed("cannot be waited for", &error))?;
    // 126 and 127 are the shell's words for a program that it cannot execute or find.
    Ok(!matches!(ended.status, ExitStatus::Code(126 | 127)))
}
