//! The one loop: output, input, end, cancellation and time limits in a single `poll`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cofferdam_core::ambient::Ambient;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::backend::{Ended, Recipient, RunningCommand};
use crate::control::{Control, Request};
use crate::guard::Guard;
use crate::output::{OutputSink, Stream};

use super::collect::Collection;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// The same of a command that writes much: fewer system calls, and still within a processor's cache.
const BUSY_CHUNK: usize = 256 * 1024;
/// How long the pipes of such a command are left to fill when a read gave less than that: it writes a
/// few KiB at a time, and to be woken for each costs more than to read it.
const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// How long a command runs before its start is worth an event of its own.
const STARTED_AFTER: Duration = Duration::from_millis(25);
/// How long output is read after a command whose leftovers live on and may write for ever.
const KEPT_DRAIN: Duration = Duration::from_millis(10);
const SIGTERM: i32 = 15;
/// Time between two events about output at first; it doubles each time that many were told.
const TELL_EVERY: Duration = Duration::from_secs(1);
const TELL_AT_MOST_EVERY: Duration = Duration::from_mins(1);
const TELL_BEFORE_RARER: u32 = 64;
/// Events about output of one command, all in all.
const TELL_TIMES: u32 = 1_024;
/// Bytes that a pipe holds once it proves to be a busy one.
const BUSY_PIPE: usize = 1024 * 1024;

/// Why the plane ended a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    Cancelled,
    Timeout,
    Idle,
    /// What holds a protected name is gone, or the place itself.
    Lost(Problem),
    /// Standard output of the caller is closed.
    SinkClosed,
}

/// What came out of the loop.
#[derive(Debug)]
pub(super) struct Pumped {
    pub(super) ended: Option<Ended>,
    pub(super) stop: Option<Stop>,
    /// Streams that what was let live still holds.
    pub(super) held: Vec<OwnedFd>,
}

/// Time limits, counted from the start of the command.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimits {
    pub(super) wall: Option<Duration>,
    pub(super) idle: Option<Duration>,
}

/// What the loop works on.
pub(super) struct Pump<'a, 's, 'm> {
    pub(super) ambient: &'a dyn Ambient,
    pub(super) control: &'a Control,
    pub(super) guard: Option<&'a Guard>,
    pub(super) limits: TimeLimits,
    pub(super) sink: Option<&'s mut dyn OutputSink>,
    pub(super) collection: &'a mut Collection<'m>,
    /// Called once when the command has run for a while.
    pub(super) announce: &'a mut dyn FnMut(),
    /// Called now and then with the bytes of both streams so far.
    pub(super) tell: &'a mut dyn FnMut([u64; 2]),
}

/// The plane's ends of the command's streams.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    /// Where input is written to, and what is still to be written.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) pending: Vec<u8>,
    /// Where more input comes from.
    pub(super) source: Option<OwnedFd>,
    /// Whether the streams are one terminal.
    pub(super) terminal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Stdout,
    Stderr,
    Stdin,
    Source,
    Channel,
    Control,
    Guard,
}

struct Progress {
    started: Duration,
    last_output: Duration,
    announced: bool,
    told: Told,
    /// Whether the pipes are made for much output.
    is_busy: bool,
    /// Until when such pipes are left to fill.
    fills_until: Option<Duration>,
    stop: Option<Stop>,
    kill_at: Option<Duration>,
    ended: Option<Ended>,
    drain_until: Option<Duration>,
}

/// How much of the output was told of, and when more may be.
struct Told {
    totals: [u64; 2],
    at: Duration,
    every: Duration,
    times: u32,
}

impl Told {
    const fn new(now: Duration) -> Self {
        Self {
            totals: [0; 2],
            at: now,
            every: TELL_EVERY,
            times: 0,
        }
    }

    /// Tells when the next event is due, where there is something to tell.
    fn next(&self, totals: [u64; 2]) -> Option<Duration> {
        (totals != self.totals && self.times < TELL_TIMES).then(|| self.at + self.every)
    }

    fn tell(&mut self, totals: [u64; 2], now: Duration) {
        self.totals = totals;
        self.at = now;
        self.times += 1;
        if self.times.is_multiple_of(TELL_BEFORE_RARER) {
            self.every = (self.every * 2).min(TELL_AT_MOST_EVERY);
        }
    }
}

impl Pump<'_, '_, '_> {
    /// Runs until the tree has ended and its output is read.
    pub(super) fn run(mut self, command: &mut dyn RunningCommand, mut ends: Ends) -> Pumped {
        let now = self.ambient.monotonic();
        let mut progress = Progress {
            started: now,
            last_output: now,
            announced: false,
            told: Told::new(now),
            is_busy: false,
            fills_until: None,
            stop: None,
            kill_at: None,
            ended: None,
            drain_until: None,
        };
        // Made when something comes: most commands say nothing.
        let mut buffer = Vec::new();
        loop {
            if self.is_over(&progress, &ends) {
                break;
            }
            let ready = self.wait(&progress, command, &ends);
            for (token, flags) in ready {
                self.handle(
                    (token, flags),
                    command,
                    &mut ends,
                    &mut progress,
                    &mut buffer,
                );
            }
            self.keep_time(command, &mut progress);
        }
        if progress.ended.is_some() {
            self.take_rest(command, &mut ends, &mut progress, &mut buffer);
        }
        let is_kept = progress
            .ended
            .as_ref()
            .is_some_and(|ended| ended.kept.is_some());
        let held = [ends.stdout.take(), ends.stderr.take()]
            .into_iter()
            .flatten()
            .filter(|_| is_kept)
            .collect();
        Pumped {
            ended: progress.ended,
            stop: progress.stop,
            held,
        }
    }

    fn is_over(&self, progress: &Progress, ends: &Ends) -> bool {
        let lost = matches!(progress.stop, Some(Stop::Lost(_))) && progress.ended.is_none();
        let drained = ends.stdout.is_none() && ends.stderr.is_none();
        match progress.drain_until {
            Some(until) => drained || self.ambient.monotonic() >= until,
            None => lost && progress.kill_at.is_none(),
        }
    }

    /// Waits for something to do, and tells what it is.
    fn wait(
        &self,
        progress: &Progress,
        command: &dyn RunningCommand,
        ends: &Ends,
    ) -> Vec<(Token, PollFlags)> {
        let mut tokens = Vec::with_capacity(7);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(7);
        let mut watch = |token, fd, flags| {
            tokens.push(token);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if progress.ended.is_none() && !matches!(progress.stop, Some(Stop::Lost(_))) {
            watch(Token::Channel, command.channel(), PollFlags::IN);
        }
        let is_filling = progress.fills_until.is_some();
        if let Some(stdout) = ends.stdout.as_ref().filter(|_| !is_filling) {
            watch(Token::Stdout, stdout.as_fd(), PollFlags::IN);
        }
        if let Some(stderr) = ends.stderr.as_ref().filter(|_| !is_filling) {
            watch(Token::Stderr, stderr.as_fd(), PollFlags::IN);
        }
        match (&ends.stdin, &ends.source) {
            (Some(stdin), _) if !ends.pending.is_empty() => {
                watch(Token::Stdin, stdin.as_fd(), PollFlags::OUT);
            }
            (Some(_), Some(source)) if !self.control.is_input_held() => {
                watch(Token::Source, source.as_fd(), PollFlags::IN);
            }
            _ => {}
        }
        if let Some(wake) = self.control.wake() {
            watch(Token::Control, wake, PollFlags::IN);
        }
        if let Some(wake) = self.guard.and_then(Guard::wake) {
            watch(Token::Guard, wake, PollFlags::IN);
        }
        let timeout = self.timeout(progress).map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal of the host program: look again.
            return Vec::new();
        }
        tokens
            .into_iter()
            .zip(&fds)
            .map(|(token, fd)| (token, fd.revents()))
            .filter(|(_, flags)| !flags.is_empty())
            .collect()
    }

    fn timeout(&self, progress: &Progress) -> Option<Duration> {
        let stopping = progress.stop.is_some();
        let limits = self.limits;
        let tell = progress.told.next(self.collection.totals());
        [
            self.collection.held_until(),
            tell.filter(|_| progress.ended.is_none()),
            limits
                .wall
                .filter(|_| !stopping)
                .map(|wall| progress.started + wall),
            limits
                .idle
                .filter(|_| !stopping)
                .map(|idle| progress.last_output + idle),
            progress.kill_at,
            progress.drain_until,
            progress.fills_until,
            (!progress.announced).then_some(progress.started + STARTED_AFTER),
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|at| at.saturating_sub(self.ambient.monotonic()))
    }

    fn handle(
        &mut self,
        (token, flags): (Token, PollFlags),
        command: &mut dyn RunningCommand,
        ends: &mut Ends,
        progress: &mut Progress,
        buffer: &mut Vec<u8>,
    ) {
        match token {
            // Nothing is in it, and nobody holds the other end.
            Token::Stdout if flags == PollFlags::HUP => ends.stdout = None,
            Token::Stderr if flags == PollFlags::HUP => ends.stderr = None,
            Token::Stdout | Token::Stderr => {
                let _ = self.take_output(token, command, ends, progress, buffer);
            }
            Token::Stdin => write_pending(ends),
            Token::Source => read_source(ends, chunk(buffer)),
            Token::Channel => self.take_end(command, ends, progress),
            Token::Control => self.take_requests(command, ends, progress),
            Token::Guard => {
                if let Some(problem) = self.guard.and_then(Guard::look) {
                    self.lose(command, progress, problem);
                }
            }
        }
    }

    fn take_output(
        &mut self,
        token: Token,
        command: &mut dyn RunningCommand,
        ends: &mut Ends,
        progress: &mut Progress,
        buffer: &mut Vec<u8>,
    ) -> usize {
        let (end, stream) = if token == Token::Stdout {
            (&mut ends.stdout, Stream::Stdout)
        } else {
            (&mut ends.stderr, Stream::Stderr)
        };
        let Some(fd) = end else { return 0 };
        match rustix::io::read(&*fd, chunk(buffer)) {
            Ok(count) if count > 0 => {
                progress.last_output = self.ambient.monotonic();
                let bytes = &buffer[..count];
                self.collection.push(stream, bytes, progress.last_output);
                let passed = self
                    .sink
                    .as_mut()
                    .map_or(Ok(()), |sink| sink.write(stream, bytes));
                if passed.is_err() {
                    // As with a closed pipe: the command learns it by SIGPIPE at its next write.
                    *end = None;
                    if ends.terminal {
                        progress.stop.get_or_insert(Stop::SinkClosed);
                        command.end_tree();
                    }
                } else if !progress.is_busy && self.collection.is_much() {
                    progress.is_busy = true;
                    widen(ends);
                    buffer.resize(BUSY_CHUNK, 0);
                } else if progress.is_busy && count < BUSY_CHUNK && !ends.terminal {
                    progress.fills_until = Some(progress.last_output + BUSY_PAUSE);
                }
                return count;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // EIO is how the master of a terminal says that nobody holds the other end.
            Ok(_) | Err(_) => *end = None,
        }
        0
    }

    /// Reads what is in the pipes when the time for draining them is over: all that the command wrote is
    /// in there by then, and on a busy machine, or with a sink that takes its time, it may not have been
    /// looked at. No more than that: whoever still holds a pipe may write for ever.
    fn take_rest(
        &mut self,
        command: &mut dyn RunningCommand,
        ends: &mut Ends,
        progress: &mut Progress,
        buffer: &mut Vec<u8>,
    ) {
        for token in [Token::Stdout, Token::Stderr] {
            let end = if token == Token::Stdout {
                &ends.stdout
            } else {
                &ends.stderr
            };
            let left = end.as_ref().map(rustix::io::ioctl_fionread);
            let mut left = left.and_then(Result::ok).unwrap_or(0);
            while left > 0 {
                let count = self.take_output(token, command, ends, progress, buffer);
                if count == 0 {
                    break;
                }
                left = left.saturating_sub(count as u64);
            }
        }
    }

    fn take_end(
        &mut self,
        command: &mut dyn RunningCommand,
        ends: &mut Ends,
        progress: &mut Progress,
    ) {
        match command.take_end() {
            Ok(None) => {}
            Ok(Some(ended)) => {
                // Whoever still holds a pipe is no part of the tree any more, or is let live: then
                // all that the command itself wrote is in the pipe already.
                let drain = if ended.kept.is_some() {
                    KEPT_DRAIN
                } else {
                    Duration::from_millis(limits::DRAIN_MILLISECONDS)
                };
                progress.drain_until = Some(self.ambient.monotonic() + drain);
                progress.ended = Some(ended);
                progress.fills_until = None;
                progress.kill_at = None;
                ends.stdin = None;
                ends.source = None;
            }
            Err(problem) => self.lose(command, progress, problem),
        }
    }

    fn lose(&self, command: &mut dyn RunningCommand, progress: &mut Progress, problem: Problem) {
        command.end_tree();
        let watcher_lives = problem.code != ErrorCode::EnclosureLost || self.guard_tripped();
        progress.stop = Some(Stop::Lost(problem));
        progress.kill_at = None;
        progress.drain_until = Some(
            self.ambient.monotonic()
                + Duration::from_millis(if watcher_lives {
                    limits::SWEEP_MILLISECONDS
                } else {
                    1
                }),
        );
    }

    fn guard_tripped(&self) -> bool {
        self.guard.is_some_and(Guard::is_tripped)
    }

    fn take_requests(
        &self,
        command: &mut dyn RunningCommand,
        ends: &Ends,
        progress: &mut Progress,
    ) {
        for request in self.control.take() {
            match request {
                Request::Cancel => {
                    if progress.stop.is_none() {
                        progress.stop = Some(Stop::Cancelled);
                    }
                    command.end_tree();
                }
                Request::End => {
                    if progress.stop.is_none() {
                        progress.stop = Some(Stop::Cancelled);
                        command.signal(Recipient::Tree, SIGTERM);
                        progress.kill_at = Some(
                            self.ambient.monotonic()
                                + Duration::from_millis(limits::GRACE_MILLISECONDS),
                        );
                    }
                }
                Request::Sync => self.control.answer_sync(),
                Request::Signal(number) => command.signal(Recipient::Leader, number),
                Request::Resize(size) => {
                    if let (true, Some(master)) = (ends.terminal, &ends.stdout) {
                        let size = rustix::termios::Winsize {
                            ws_row: size.rows,
                            ws_col: size.columns,
                            ws_xpixel: 0,
                            ws_ypixel: 0,
                        };
                        let _ = rustix::termios::tcsetwinsize(master, size);
                    }
                }
            }
        }
    }

    fn keep_time(&mut self, command: &mut dyn RunningCommand, progress: &mut Progress) {
        let now = self.ambient.monotonic();
        if progress.fills_until.is_some_and(|until| now >= until) {
            progress.fills_until = None;
        }
        if self
            .collection
            .held_until()
            .is_some_and(|until| now >= until)
        {
            self.collection.release();
        }
        if progress.ended.is_some() {
            return;
        }
        let totals = self.collection.totals();
        if progress.told.next(totals).is_some_and(|at| now >= at) {
            progress.told.tell(totals, now);
            (self.tell)(totals);
        }
        if !progress.announced && now >= progress.started + STARTED_AFTER {
            progress.announced = true;
            self.collection.go_live();
            (self.announce)();
            if let Some(guard) = self.guard {
                guard.arm();
                if let Some(problem) = guard.look() {
                    self.lose(command, progress, problem);
                    return;
                }
            }
        }
        if progress.stop.is_none() {
            let over = |limit: Option<Duration>, since: Duration| {
                limit.is_some_and(|limit| now >= since + limit)
            };
            let stop = if over(self.limits.wall, progress.started) {
                Some(Stop::Timeout)
            } else if over(self.limits.idle, progress.last_output) {
                Some(Stop::Idle)
            } else {
                None
            };
            if stop.is_some() {
                progress.stop = stop;
                command.signal(Recipient::Tree, SIGTERM);
                progress.kill_at = Some(now + Duration::from_millis(limits::GRACE_MILLISECONDS));
            }
        }
        if progress.kill_at.is_some_and(|at| now >= at) {
            progress.kill_at = None;
            command.end_tree();
        }
    }
}

/// Makes the pipes of a command that writes much hold more, so that both sides wait less.
fn widen(ends: &Ends) {
    for end in [&ends.stdout, &ends.stderr].into_iter().flatten() {
        // One that cannot be widened, or a terminal, works as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(end, BUSY_PIPE);
    }
}

/// Gives the buffer that is read into.
fn chunk(buffer: &mut Vec<u8>) -> &mut [u8] {
    if buffer.is_empty() {
        buffer.resize(CHUNK, 0);
    }
    buffer
}

/// Writes as much of the pending input as goes without waiting.
fn write_pending(ends: &mut Ends) {
    let Some(stdin) = &ends.stdin else { return };
    match rustix::io::write(stdin, &ends.pending) {
        Ok(count) => {
            ends.pending.drain(..count);
        }
        Err(Errno::AGAIN | Errno::INTR) => return,
        Err(_) => {
            // The command does not read any more; that is its right.
            ends.stdin = None;
            ends.source = None;
            return;
        }
    }
    if ends.pending.is_empty() && ends.source.is_none() && !ends.terminal {
        ends.stdin = None;
    }
}

/// Takes more input from its source.
fn read_source(ends: &mut Ends, buffer: &mut [u8]) {
    let Some(source) = &ends.source else { return };
    match rustix::io::read(source, &mut *buffer) {
        Ok(0) => {
            ends.source = None;
            if !ends.terminal {
                ends.stdin = None;
            }
        }
        Ok(count) => {
            ends.pending.extend_from_slice(&buffer[..count]);
            write_pending(ends);
        }
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(_) => ends.source = None,
    }
}

/// Makes a descriptor return instead of waiting.
pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok(())
}

/// The same for the reading end of a pipe that was just made.
pub(super) fn set_nonblocking_reader(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK)?)
}

/// Opens the empty input.
pub(super) fn null_input() -> io::Result<OwnedFd> {
    Ok(File::open("/dev/null")?.into())
}
