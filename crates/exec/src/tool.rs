//! Running a helper program of the host to its end, for the plane's own ends.
//!
//! This is for `git`, for package clients that are asked where they look, for what the owner names as
//! the source of a secret, and for what they have released from the outbox. The program is named by an
//! absolute path that was fixed at
//! start-up, gets exactly the environment it is given, a session of its own (so that Ctrl-C cannot
//! stop it between two steps) and a time limit. What it prints is collected, up to a bound.

use std::ffi::{CString, OsStr};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_sandbox::{
    Directory, ExitStatus, Program, SandboxError, Spawn, signal_pidfd, spawn, wait_pid,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// What a program that ended may still have in its pipes is there at once.
const DRAIN: Duration = Duration::from_millis(50);

/// What stands at descriptor 0.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Nothing.
    Empty,
    /// These bytes.
    Bytes(&'a [u8]),
    /// An open file.
    File(BorrowedFd<'a>),
}

/// One call of a helper program.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Absolute path of the program.
    pub(crate) program: &'a CString,
    /// Arguments, the program's name not among them.
    pub(crate) arguments: &'a [Vec<u8>],
    /// The whole environment.
    pub(crate) environment: &'a [(Vec<u8>, Vec<u8>)],
    /// Where it runs.
    pub(crate) directory: &'a Path,
    /// Its standard input.
    pub(crate) input: Input<'a>,
    /// After this it is ended.
    pub(crate) timeout: Duration,
    /// Bytes of standard output that are collected; more is an error.
    pub(crate) bound: usize,
}

/// What a helper program gave.
#[derive(Debug)]
pub(crate) struct Answer {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// Its standard error, the first 64 KiB.
    pub(crate) stderr: Vec<u8>,
}

impl Answer {
    /// Gives the exit code; `None` after a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        match self.status {
            ExitStatus::Code(code) => Some(code),
            ExitStatus::Signal { .. } => None,
        }
    }
}

/// Says why a helper program gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// It could not be started.
    #[error("could not be started: {0}")]
    Start(#[from] SandboxError),
    /// It took too long.
    #[error("did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It printed too much.
    #[error("printed more than {0} bytes")]
    TooMuch(usize),
    /// Its streams could not be served.
    #[error("its streams failed: {0}")]
    Streams(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for ToolError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Streams(errno.into())
    }
}

fn c_string(bytes: Vec<u8>) -> Result<CString, ToolError> {
    CString::new(bytes)
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidInput, "NUL byte").into())
}

/// Runs a helper program to its end.
pub(crate) fn run(call: &Call<'_>) -> Result<Answer, ToolError> {
    let mut arguments = vec![call.program.clone()];
    for argument in call.arguments {
        arguments.push(c_string(argument.clone())?);
    }
    let mut environment = Vec::with_capacity(call.environment.len());
    for (name, value) in call.environment {
        environment.push(c_string(
            [name.as_slice(), b"=", value.as_slice()].concat(),
        )?);
    }
    let input: OwnedFd = match call.input {
        Input::Empty => std::fs::File::open("/dev/null")?.into(),
        Input::Bytes(bytes) => {
            // A file in memory, not a pipe: nothing to pump, and no SIGPIPE.
            let mut file = std::fs::File::from(memfd_create("input", MemfdFlags::CLOEXEC)?);
            file.write_all(bytes)?;
            file.seek(SeekFrom::Start(0))?;
            file.into()
        }
        Input::File(file) => file.try_clone_to_owned()?,
    };
    let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC)?;
    let (error_read, error_write) = pipe_with(PipeFlags::CLOEXEC)?;
    for end in [&out_read, &error_read] {
        fcntl_setfl(end, OFlags::NONBLOCK)?;
    }
    let mut spec = Spawn::new(Program::Paths(vec![call.program.clone()]), arguments);
    spec.environment = environment;
    spec.directory = Some(Directory::Path(c_string(
        call.directory.as_os_str().as_bytes().to_vec(),
    )?));
    spec.descriptors = vec![
        (input.as_fd(), 0),
        (out_write.as_fd(), 1),
        (error_write.as_fd(), 2),
    ];
    spec.new_session = true;
    // git takes its lock files away on SIGTERM; the spawning thread is this one, which waits below.
    spec.parent_death_signal = Some(SIGTERM);
    let child = spawn(&spec)?;
    drop((input, out_write, error_write));
    let collected = collect(call, &child.pidfd, out_read, error_read);
    if collected.is_err() {
        // It may have ended meanwhile, then there is nobody to signal.
        let _ = signal_pidfd(child.pidfd.as_fd(), SIGTERM);
        let _ = await_end(&child.pidfd, Duration::from_secs(2));
        let _ = signal_pidfd(child.pidfd.as_fd(), SIGKILL);
    }
    let status = wait_pid(child.pid)?.status;
    let (stdout, stderr) = collected?;
    Ok(Answer {
        status,
        stdout,
        stderr,
    })
}

fn await_end(pidfd: &OwnedFd, at_most: Duration) -> rustix::io::Result<()> {
    let time = timespec(at_most);
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&time)).map(drop)
}

fn timespec(duration: Duration) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn collect(
    call: &Call<'_>,
    pidfd: &OwnedFd,
    out: OwnedFd,
    error: OwnedFd,
) -> Result<(Vec<u8>, Vec<u8>), ToolError> {
    const STDERR_BOUND: usize = 64 * 1024;
    let mut deadline = Instant::now() + call.timeout;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut out, mut error) = (
        Some(std::fs::File::from(out)),
        Some(std::fs::File::from(error)),
    );
    let mut ended = false;
    while out.is_some() || error.is_some() {
        let now = Instant::now();
        if now >= deadline {
            if ended {
                break; // Somebody else holds the pipe; the program itself has said everything.
            }
            return Err(ToolError::TimedOut(call.timeout));
        }
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(3);
        if !ended {
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        for file in [&out, &error].into_iter().flatten() {
            fds.push(PollFd::new(file, PollFlags::IN));
        }
        match poll(&mut fds, Some(&timespec(deadline - now))) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        if !ended && !fds[0].revents().is_empty() {
            ended = true;
            deadline = deadline.min(Instant::now() + DRAIN);
        }
        take(&mut out, &mut stdout)?;
        take(&mut error, &mut stderr)?;
        if stdout.len() > call.bound {
            return Err(ToolError::TooMuch(call.bound));
        }
        stderr.truncate(STDERR_BOUND);
    }
    Ok((stdout, stderr))
}

/// Reads what is there; closes the file at its end.
fn take(file: &mut Option<std::fs::File>, into: &mut Vec<u8>) -> Result<(), ToolError> {
    let mut buffer = vec![0; 64 * 1024];
    while let Some(open) = file {
        match open.read(&mut buffer) {
            Ok(0) => *file = None,
            Ok(count) => {
                into.extend_from_slice(&buffer[..count]);
                if count < buffer.len() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Finds a program on a search path, passing over what is relative or lies in a refused directory.
///
/// Both the directory and what the program's name leads to are looked at by their real paths, so
/// that a link into a workspace is no way in.
pub(crate) fn find_program(name: &str, search: &[u8], refused: &[&Path]) -> Option<CString> {
    let outside = |path: &Path| !refused.iter().any(|top| path.starts_with(top));
    for piece in search.split(|byte| *byte == b':') {
        let directory = Path::new(OsStr::from_bytes(piece));
        if !directory.is_absolute() || !outside(directory) {
            continue;
        }
        let candidate = directory.join(name);
        let Ok(real) = candidate.canonicalize() else {
            continue;
        };
        let executable = rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok();
        if real.is_file() && executable && outside(&real) && outside(&candidate) {
            return CString::new(candidate.as_os_str().as_bytes()).ok();
        }
    }
    None
}

/// Gives a search path without relative pieces and without what lies in a refused directory.
pub(crate) fn safe_search_path(search: &[u8], refused: &[&Path]) -> Vec<u8> {
    let kept: Vec<&[u8]> = search
        .split(|byte| *byte == b':')
        .filter(|piece| {
            let path = Path::new(OsStr::from_bytes(piece));
            let real = path.canonicalize();
            path.is_absolute()
                && !refused.iter().any(|top| {
                    path.starts_with(top) || real.as_ref().is_ok_and(|real| real.starts_with(top))
                })
        })
        .collect();
    kept.join(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: Input<'_>, timeout: Duration) -> Result<Answer, ToolError> {
        run(&Call {
            program: &c"/bin/sh".to_owned(),
            arguments: &[b"-c".to_vec(), script.as_bytes().to_vec()],
            environment: &[(b"A".to_vec(), b"b c".to_vec())],
            directory: Path::new("/"),
            input,
            timeout,
            bound: 1 << 20,
        })
    }

    #[test]
    fn streams_status_and_environment_are_exact() {
        let answer = shell(
            "cat; printf %s \"$A\"; printf e >&2; exit 3",
            Input::Bytes(b"in\0put"),
            Duration::from_secs(10),
        )
        .unwrap();
        assert_eq!(answer.code(), Some(3));
        assert_eq!(answer.stdout, b"in\0putb c");
        assert_eq!(answer.stderr, b"e");
    }

    #[test]
    fn a_time_limit_ends_it_and_a_held_pipe_does_not_hold_the_answer() {
        let begin = Instant::now();
        let error = shell("sleep 30", Input::Empty, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ToolError::TimedOut(_)), "{error}");
        let answer = shell("sleep 3 & echo done", Input::Empty, Duration::from_secs(20)).unwrap();
        assert_eq!(answer.stdout, b"done\n");
        assert!(begin.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn fc_41_a_program_in_a_workspace_is_passed_over() {
        let top = tempfile::tempdir().unwrap();
        let bin = top.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::copy("/bin/true", bin.join("env")).unwrap();
        let search = format!("{}:.::/usr/bin:/bin", bin.display());
        let found = find_program("env", search.as_bytes(), &[top.path()]).unwrap();
        assert!(
            !found
                .to_bytes()
                .starts_with(top.path().as_os_str().as_bytes())
        );
        assert_eq!(
            safe_search_path(search.as_bytes(), &[top.path()]),
            b"/usr/bin:/bin"
        );
        let other = find_program("env", search.as_bytes(), &[]).unwrap();
        assert!(
            other
                .to_bytes()
                .starts_with(top.path().as_os_str().as_bytes())
        );
    }
}
