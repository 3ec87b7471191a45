//! The terminals of the in-memory double: a line discipline and a shell of a few words, played.
//!
//! Commands that are typed are looked up in the same [`Script`] as those that are run; their output
//! goes through a socket pair as through the two ends of a real terminal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outcome::{EndedBy, Usage};
use cofferdam_core::spec::CommandSpec;
use cofferdam_sandbox::{ForegroundLook, ForegroundSleep};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::memory::Script;
use crate::backend::{Ended, Exit, Foreground, Recipient, RunningCommand, Started};
use crate::control::TerminalSize;

const PROMPT: &[u8] = b"$ ";

/// A terminal on the stage: the shell in it, and what it is playing.
#[derive(Debug)]
pub(super) struct Stage {
    script: Script,
    inner: OwnedFd,
    outer: OwnedFd,
    wake: OwnedFd,
    done: OwnedFd,
    play: Mutex<Play>,
}

#[derive(Debug)]
struct Play {
    size: TerminalSize,
    /// Where the shell is; it never leaves the machine's memory.
    cwd: BytePath,
    line: Vec<u8>,
    doing: Doing,
    struck: Option<u8>,
    ended: Option<Exit>,
}

#[derive(Debug)]
enum Doing {
    /// The shell waits for a command.
    Prompt,
    /// A command takes its time.
    Playing {
        name: String,
        until: Instant,
        alone: Option<i32>,
    },
    /// A command reads what is typed, as `cat` does.
    Reading { name: String, alone: bool },
}

/// Begins to play a command in a terminal of its own.
pub(super) fn begin(
    script: &Script,
    command: &CommandSpec,
    size: TerminalSize,
) -> Result<(Started, Arc<Stage>), Problem> {
    let made = |error: rustix::io::Errno| {
        Problem::new(
            ErrorCode::SpawnFailed,
            format!("cannot make a terminal: {error}"),
        )
    };
    let (outer, inner) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(made)?;
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(made);
    let stage = Arc::new(Stage {
        script: script.clone(),
        inner,
        outer: outer.try_clone().map_err(|error| {
            Problem::new(
                ErrorCode::SpawnFailed,
                format!("cannot make a terminal: {error}"),
            )
        })?,
        wake: event()?,
        done: event()?,
        play: Mutex::new(Play {
            size,
            cwd: command.cwd.clone(),
            line: Vec::new(),
            doing: Doing::Prompt,
            struck: None,
            ended: None,
        }),
    });
    let words: Vec<String> = command.argv.iter().map(ToString::to_string).collect();
    let is_shell = words
        .first()
        .and_then(|word| word.rsplit('/').next())
        .is_some_and(|name| matches!(name, "sh" | "bash"))
        && words.iter().all(|word| word != "-c");
    {
        let mut play = stage.play();
        if is_shell {
            stage.say(PROMPT);
        } else {
            stage.perform(&mut play, &words, true)?;
        }
    }
    let actor = Arc::clone(&stage);
    std::thread::spawn(move || actor.act());
    let started = Started {
        pid: None,
        command: Box::new(StageCommand(Arc::clone(&stage))),
        master: Some(outer),
        foreground: Some(Arc::clone(&stage) as Arc<dyn Foreground>),
    };
    Ok((started, stage))
}

impl Stage {
    /// Ends it by a signal.
    pub(super) fn strike(&self, signal: u8) {
        self.play().struck = Some(signal);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn act(&self) {
        loop {
            let wait = {
                let mut play = self.play();
                if let Some(signal) = play.struck {
                    // As on a real terminal: an interactive shell does not mind these.
                    if matches!(play.doing, Doing::Prompt) && matches!(signal, 2 | 15) {
                        play.struck = None;
                    } else {
                        return self.end(play, Exit::Signal(signal));
                    }
                }
                match &play.doing {
                    Doing::Playing { until, alone, .. } => {
                        let left = until.saturating_duration_since(Instant::now());
                        if left.is_zero() {
                            if let Some(code) = *alone {
                                return self.end(play, Exit::Code(code));
                            }
                            self.prompt(&mut play);
                            continue;
                        }
                        Some(left.min(Duration::from_hours(1)))
                    }
                    Doing::Prompt | Doing::Reading { .. } => None,
                }
            };
            self.wait(wait);
            let mut play = self.play();
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            let mut buffer = [0; 4096];
            if !is_readable(&self.inner) {
                continue;
            }
            // Taken and played in one piece, so that nobody sees bytes that are in neither place.
            let Ok(count @ 1..) = rustix::io::read(&self.inner, &mut buffer) else {
                return self.end(play, Exit::Signal(1));
            };
            for byte in &buffer[..count] {
                if let Some(exit) = self.type_byte(&mut play, *byte) {
                    return self.end(play, exit);
                }
            }
        }
    }

    fn wait(&self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = [
            PollFd::new(&self.inner, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        // An interrupted wait is a wait that is over.
        let _ = poll(&mut fds, limit.as_ref());
    }

    /// Takes one typed byte, as a terminal in its usual mode does; gives the end of the whole.
    fn type_byte(&self, play: &mut Play, byte: u8) -> Option<Exit> {
        match byte {
            3 => {
                self.say(b"^C\r\n");
                play.line.clear();
                match &play.doing {
                    Doing::Playing { alone: Some(_), .. } | Doing::Reading { alone: true, .. } => {
                        return Some(Exit::Signal(2));
                    }
                    _ => self.prompt(play),
                }
            }
            4 if play.line.is_empty() => match &play.doing {
                Doing::Reading { alone: false, .. } => self.prompt(play),
                Doing::Reading { .. } | Doing::Prompt => return Some(Exit::Code(0)),
                Doing::Playing { .. } => {}
            },
            b'\r' | b'\n' => {
                self.say(b"\r\n");
                let line = std::mem::take(&mut play.line);
                let text = String::from_utf8_lossy(&line).into_owned();
                match &play.doing {
                    Doing::Prompt => return self.command(play, &text),
                    Doing::Reading { .. } => self.say(format!("{text}\r\n").as_bytes()),
                    Doing::Playing { .. } => {}
                }
            }
            0x7f => {
                if play.line.pop().is_some() {
                    self.say(b"\x08 \x08");
                }
            }
            byte => {
                play.line.push(byte);
                self.say(&[byte]);
            }
        }
        None
    }

    fn command(&self, play: &mut Play, text: &str) -> Option<Exit> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let plain: Vec<&str> = words.iter().map(String::as_str).collect();
        match plain.as_slice() {
            [] => {}
            ["exit"] => return Some(Exit::Code(0)),
            ["exit", code] => return Some(Exit::Code(code.parse().unwrap_or(2))),
            ["tty"] => self.say(b"/dev/pts/0\r\n"),
            ["pwd"] => self.say(format!("{}\r\n", play.cwd).as_bytes()),
            ["cd", place] => play.cwd = play.cwd.join(place.as_bytes()),
            ["stty", "size"] => {
                let TerminalSize { rows, columns } = play.size;
                self.say(format!("{rows} {columns}\r\n").as_bytes());
            }
            _ => {
                if self.perform(play, &words, false).is_ok() {
                    if matches!(play.doing, Doing::Prompt) {
                        self.say(PROMPT);
                    }
                    return None;
                }
                let line = format!("sh: {}: not found\r\n", words[0]);
                self.say(line.as_bytes());
            }
        }
        self.prompt(play);
        None
    }

    /// Plays a scripted command; `alone` when there is no shell around it.
    fn perform(&self, play: &mut Play, words: &[String], alone: bool) -> Result<(), Problem> {
        let name = words.first().cloned().unwrap_or_default();
        let command = CommandSpec {
            argv: words
                .iter()
                .map(|word| BytePath::from(word.as_str()))
                .collect(),
            cwd: play.cwd.clone(),
            environment: Vec::new(),
            streams: cofferdam_core::spec::StreamPlan::Terminal,
            timeout_ms: None,
            idle_timeout_ms: None,
            limits: cofferdam_core::spec::ResourceLimits::default(),
        };
        let Some(scripted) = self.script.play(&command) else {
            return Err(Problem::new(
                ErrorCode::NotFound,
                format!("{name}: the script has no such program"),
            ));
        };
        for output in [&scripted.stdout, &scripted.stderr] {
            let text = String::from_utf8_lossy(output).replace('\n', "\r\n");
            self.say(text.as_bytes());
        }
        play.doing = if name == "cat" && words.len() == 1 {
            Doing::Reading { name, alone }
        } else if alone || !scripted.takes.is_zero() {
            let now = Instant::now();
            Doing::Playing {
                name,
                until: now
                    .checked_add(scripted.takes)
                    .unwrap_or(now + Duration::from_hours(1)),
                alone: alone.then_some(scripted.exit_code),
            }
        } else {
            Doing::Prompt
        };
        Ok(())
    }

    fn prompt(&self, play: &mut Play) {
        play.doing = Doing::Prompt;
        self.say(PROMPT);
    }

    fn say(&self, bytes: &[u8]) {
        // Nobody listens any more: the play goes on for the empty house.
        let _ = rustix::net::send(&self.inner, bytes, rustix::net::SendFlags::NOSIGNAL);
    }

    fn end(&self, mut play: MutexGuard<'_, Play>, exit: Exit) {
        play.ended = Some(exit);
        let _ = rustix::net::shutdown(&self.inner, rustix::net::Shutdown::Both);
        let _ = rustix::io::write(&self.done, &1_u64.to_ne_bytes());
    }

    fn play(&self) -> MutexGuard<'_, Play> {
        // A play that panicked is as whole as any of its moments.
        self.play.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_readable(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .is_ok_and(|ready| ready > 0)
}

impl Foreground for Stage {
    fn look(&self) -> ForegroundLook {
        let play = self.play();
        let unread = rustix::io::ioctl_fionread(&self.inner).unwrap_or_default();
        let (group, sleep, name) = match &play.doing {
            Doing::Prompt => (1, ForegroundSleep::Read(8192), "sh"),
            Doing::Reading { name, alone } => {
                let group = if *alone { 1 } else { 2 };
                (group, ForegroundSleep::Read(4096), name.as_str())
            }
            Doing::Playing { name, alone, .. } => {
                let group = if alone.is_some() { 1 } else { 2 };
                (group, ForegroundSleep::Elsewhere, name.as_str())
            }
        };
        ForegroundLook {
            leader: Some(1),
            group: Some(group),
            unread,
            lines: true,
            echo: true,
            sleep,
            name: Some(name.to_owned()),
            program: None,
        }
    }

    fn has_output(&self) -> bool {
        is_readable(&self.outer)
    }

    fn resize(&self, size: TerminalSize) {
        self.play().size = size;
    }
}

#[derive(Debug)]
struct StageCommand(Arc<Stage>);

impl RunningCommand for StageCommand {
    fn channel(&self) -> BorrowedFd<'_> {
        self.0.done.as_fd()
    }

    fn take_end(&mut self) -> Result<Option<Ended>, Problem> {
        Ok(self.0.play().ended.map(|exit| Ended {
            exit,
            usage: Usage::default(),
            leftovers: Vec::new(),
            kept: None,
            by: EndedBy::Itself,
        }))
    }

    fn signal(&mut self, _recipient: Recipient, number: i32) {
        if let Ok(number) = u8::try_from(number) {
            self.0.strike(number);
        }
    }

    fn end_tree(&mut self) {
        self.0.strike(9);
    }
}
