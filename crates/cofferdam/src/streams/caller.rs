//! The caller around one command: which streams it gets, and what is put back afterwards.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::outcome::Status;
use cofferdam_exec::{CommandIo, Control, Plane};

use super::pass::{Discard, Pass, has_input};
use super::signals::Watch;
use super::terminal::{CallerTerminal, Suspend, is_foreground_terminal};
use crate::arguments::run::TerminalArguments;

/// Shells have jobs of their own, so Ctrl-Z is for them.
const SHELLS: &[&[u8]] = &[
    b"ash", b"bash", b"dash", b"fish", b"ksh", b"mksh", b"nu", b"screen", b"sh", b"tmux", b"zsh",
];

/// What the caller wants of the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A terminal of the command's own.
    Terminal(Suspend),
    /// The caller's streams, byte for byte.
    Pass,
    /// Output in the result only.
    Collect,
}

impl Wish {
    /// Follows the flags, and the terminal where they say nothing.
    pub(crate) fn of(flags: TerminalArguments, json: bool, words: &[BytePath]) -> Self {
        if flags.tty || (!flags.no_tty && !json && is_foreground_terminal()) {
            Self::Terminal(suspend(words))
        } else if json {
            Self::Collect
        } else {
            Self::Pass
        }
    }
}

/// The caller's side while a command runs.
#[derive(Debug)]
pub(crate) struct Caller {
    watch: Option<Watch>,
    terminal: Option<Arc<CallerTerminal>>,
    pass: Pass,
    discard: Discard,
    quiet: bool,
}

impl Caller {
    /// Begins to pass signals on; `timeout` is the command's limit in seconds.
    pub(crate) fn begin(
        wish: Wish,
        control: Control,
        timeout: Option<f64>,
        plane: &Plane,
    ) -> Result<Self, Problem> {
        let terminal = match wish {
            Wish::Terminal(suspend) => Some(Arc::new(
                CallerTerminal::new(suspend, plane).map_err(no_terminal)?,
            )),
            Wish::Pass | Wish::Collect => None,
        };
        let watch = Watch::start(control, terminal.clone()).map_err(|error| {
            Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
        })?;
        let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Self {
            pass: Pass::new(watch.urgency(), limit, terminal.clone()),
            watch: Some(watch),
            terminal,
            discard: Discard,
            quiet: wish == Wish::Collect,
        })
    }

    /// Gives the streams of the command, and makes the terminal raw where it gets one.
    pub(crate) fn io(&mut self) -> Result<CommandIo<'_>, Problem> {
        if let Some(terminal) = &self.terminal {
            terminal.make_raw().map_err(no_terminal)?;
            return Ok(CommandIo::Terminal {
                input: terminal.input().map_err(no_terminal)?,
                size: terminal.size(),
                sink: &mut self.pass,
            });
        }
        Ok(CommandIo::Stream {
            input: if has_input() { Some(input()?) } else { None },
            sink: if self.quiet {
                &mut self.discard
            } else {
                &mut self.pass
            },
        })
    }

    /// Gives the terminal and the signals back; tells which signal asked for the end. `status` is how
    /// the command ended, where it began at all.
    pub(crate) fn end(&mut self, status: Option<Status>) -> Option<u8> {
        if let Some(terminal) = &self.terminal {
            terminal.finish();
            // What a command that ended by itself leaves is its own affair.
            if !matches!(status, Some(Status::Completed | Status::Failed)) {
                terminal.undo_screen();
            }
        }
        self.watch.take().and_then(|watch| watch.urgency().first())
    }
}

/// Gives the exit code: of a command that this program ended, that of the signal that asked for it.
pub(crate) fn exit_code(status: Status, code: u8, asked: Option<u8>) -> u8 {
    match (status, asked) {
        (Status::Cancelled, Some(signal)) => exit::signalled(signal),
        _ => code,
    }
}

fn input() -> Result<OwnedFd, Problem> {
    rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|error| {
        Problem::new(
            ErrorCode::Io,
            format!("standard input cannot be passed on: {error}"),
        )
    })
}

fn no_terminal(error: std::io::Error) -> Problem {
    Problem::new(
        ErrorCode::Io,
        format!("standard input is no terminal to work with: {error}"),
    )
    .with_hint("leave --tty out, or give --no-tty")
}

/// Tells who gets Ctrl-Z: an interactive shell, or else this program as a job of the caller's shell.
fn suspend(words: &[BytePath]) -> Suspend {
    let Some((program, rest)) = words.split_first() else {
        return Suspend::Outside;
    };
    let name = Path::new(program.as_os_str())
        .file_name()
        .unwrap_or_default();
    let interactive = rest.iter().all(|word| {
        let word = word.as_bytes();
        word.starts_with(b"-") && !word.contains(&b'c')
    });
    if interactive && SHELLS.contains(&name.as_encoded_bytes()) {
        Suspend::Inside
    } else {
        Suspend::Outside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interactive_shell_keeps_its_ctrl_z() {
        let of = |words: &[&str]| {
            suspend(
                &words
                    .iter()
                    .map(|word| BytePath::from(*word))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&["bash"]), Suspend::Inside);
        assert_eq!(of(&["/usr/bin/zsh", "-i"]), Suspend::Inside);
        assert_eq!(of(&["bash", "-c", "sleep 9"]), Suspend::Outside);
        assert_eq!(of(&["sh", "script.sh"]), Suspend::Outside);
        assert_eq!(of(&["sleep", "9"]), Suspend::Outside);
    }
}
