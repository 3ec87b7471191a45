//! Helpers of the plane's own inside the walls: run, collected whole, not journalled as commands.

use std::os::fd::AsFd;
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::CommandSpec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::backend::{Backend, Exit, Extra, Stdio};
use crate::enclosure::{QuietOutput, not_in_time};
use crate::plane::Plane;

/// Most bytes that a helper may give; what is behind the walls decides how much it says.
const OUTPUT_BYTES: usize = 512 * 1024 * 1024;

pub(crate) fn run(
    plane: &Plane,
    backend: &dyn Backend,
    command: &CommandSpec,
    input: Option<&[u8]>,
    extra: Extra,
) -> Result<QuietOutput, Problem> {
    let program = command
        .argv
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    let io = |error: Errno| {
        Problem::new(
            ErrorCode::Io,
            format!("cannot talk to {program} inside: {error}"),
        )
    };
    let (stdin, stdin_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(io)?;
    let (stdout, stdout_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(io)?;
    let (stderr, stderr_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(io)?;
    let nonblocking = |fd: &std::os::fd::OwnedFd| {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)
    };
    nonblocking(&stdin_writer).map_err(io)?;
    let stdio = Stdio::Three([stdin, stdout_writer, stderr_writer]);
    let mut started = backend.start_with(command, stdio, extra)?;
    let ambient = plane.ambient();
    let limit = Duration::from_millis(command.timeout_ms.unwrap_or(60_000));
    let until = ambient.monotonic() + limit;
    let mut pending = input.unwrap_or_default();
    let mut writer = (!pending.is_empty()).then_some(stdin_writer);
    let mut streams = [(Some(stdout), Vec::new()), (Some(stderr), Vec::new())];
    let mut ended = None;
    let mut buffer = vec![0; 64 * 1024];
    while ended.is_none() || streams.iter().any(|(end, _)| end.is_some()) {
        let left = until.saturating_sub(ambient.monotonic());
        if left.is_zero() {
            started.command.end_tree();
            return Err(not_in_time(&program));
        }
        let mut fds = Vec::with_capacity(4);
        if ended.is_none() {
            fds.push(PollFd::from_borrowed_fd(
                started.command.channel(),
                PollFlags::IN,
            ));
        }
        for (end, _) in &streams {
            if let Some(end) = end {
                fds.push(PollFd::new(end, PollFlags::IN));
            }
        }
        if let Some(writer) = &writer {
            fds.push(PollFd::new(writer, PollFlags::OUT));
        }
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        if poll(&mut fds, Some(&timeout)).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let channel = ended.is_none() && ready.next() == Some(true);
        for (end, bytes) in &mut streams {
            let Some(fd) = end.as_ref() else { continue };
            if ready.next() != Some(true) {
                continue;
            }
            match rustix::io::read(fd.as_fd(), &mut buffer) {
                Ok(0) | Err(_) => *end = None,
                Ok(count) if bytes.len() + count > OUTPUT_BYTES => {
                    started.command.end_tree();
                    return Err(Problem::new(
                        ErrorCode::HarvestRejected,
                        format!("{program} inside gave more than {OUTPUT_BYTES} bytes"),
                    ));
                }
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        if let Some(fd) = &writer
            && ready.next() == Some(true)
        {
            match rustix::io::write(fd, pending) {
                Ok(count) => pending = &pending[count..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => pending = &[],
            }
            if pending.is_empty() {
                writer = None;
            }
        }
        if channel {
            ended = started.command.take_end()?;
        }
    }
    let [(_, stdout), (_, stderr)] = streams;
    let code = match ended.map(|ended| ended.exit) {
        Some(Exit::Code(code)) => Some(code),
        _ => None,
    };
    Ok(QuietOutput {
        code,
        stdout,
        stderr,
    })
}
