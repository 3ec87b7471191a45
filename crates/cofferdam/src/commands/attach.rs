//! `attach`: a terminal of a running server, or a shell in a session of it, on the caller's own.

use std::io::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use cofferdam_client::{Client, TerminalEvent, TerminalStream};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::operation::{
    SessionReference, SessionView, TerminalChoice, TerminalClosed, TerminalEnd, TerminalInfo,
    TerminalList, TerminalListRequest, TerminalName, TerminalOpen, TerminalOpened, TerminalResize,
    TerminalScreen, TerminalSnapshot, TerminalState,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::living;
use super::terminal::live::{WHAT, name};
use crate::arguments::terminal::AttachArguments;
use crate::context::Context;
use crate::failure::{Ending, Failure};
use crate::render::terminals as render;
use crate::streams::{CallerTerminal, Suspend};

/// Ctrl-]: the key that leaves, as in telnet.
const DETACH: u8 = 0x1d;
/// Ctrl-C: leaves as well where nothing is typed.
const INTERRUPT: u8 = 0x03;
/// Bytes of the keyboard that are sent at once.
const KEYS: usize = 4096;
/// How soon keys are offered again that the terminal had no room for.
const ROOM: Duration = Duration::from_millis(20);

/// What happens while attached.
enum Happening {
    Told(TerminalEvent),
    Detached,
    Resized,
    Signal(i32),
    Lost(Problem),
}

/// Carries out `attach`.
pub(crate) fn attach(context: &Context, arguments: &AttachArguments) -> Ending {
    let name = name(&arguments.name)?;
    let client = living::client_of_lasting(context, &arguments.server, name.as_str(), WHAT)?;
    let of_session = in_session(context, &client, &name, arguments)?;
    let no_terminal = |error: std::io::Error| {
        Problem::new(
            ErrorCode::Io,
            format!("standard input is no terminal to attach with: {error}"),
        )
        .with_hint("see what it shows with `cofferdam terminal snapshot`")
    };
    let runtime = context.runtime()?;
    // Taken before anything changes: it is given back as it is now.
    let caller = CallerTerminal::new(Suspend::Inside, runtime.plane()).map_err(no_terminal)?;
    // The size first: what is shown then fits.
    let fit = || -> Result<(), Problem> {
        if arguments.read_only {
            return Ok(());
        }
        let size = caller.size();
        let request = TerminalResize {
            name: Some(name.clone()),
            rows: size.rows,
            columns: size.columns,
        };
        client.call::<_, TerminalInfo>("terminal_resize", &request)?;
        Ok(())
    };
    fit()?;
    let stream = client.watch_terminal(&name)?;
    let (sender, happenings) = channel();
    watch_signals(sender.clone())?;
    context.output.note(&if arguments.read_only {
        format!("looking on at {name}; Ctrl-] leaves")
    } else {
        format!("attached to {name}; Ctrl-] leaves, and it goes on")
    });
    caller.make_raw().map_err(no_terminal)?;
    follow(stream, sender.clone());
    let typing = (!arguments.read_only).then(|| (client.clone(), name.clone()));
    watch_keyboard(caller.input().map_err(no_terminal)?, typing, sender);
    let ended = live(&happenings, &caller, fit);
    // The other screen, mouse and cursor of what was shown are not the caller's.
    caller.undo_screen();
    caller.finish();
    let _ = std::io::stdout().write_all(b"\r\n");
    match ended? {
        End::Closed(end) => {
            if of_session {
                // A shell that was left is of no more use; the session goes on.
                let choice = TerminalChoice {
                    name: Some(name.clone()),
                };
                let _ = client.call::<_, TerminalClosed>("terminal_close", &choice);
            }
            context
                .output
                .note(&format!("{name}: {}", render::end(&end)));
            Ok(exit::SUCCESS)
        }
        End::Signal(number) => Ok(exit::signalled(u8::try_from(number).unwrap_or(1))),
        End::Detached => {
            context
                .output
                .note(&format!("left {name}; back with: cofferdam attach {name}"));
            Ok(exit::SUCCESS)
        }
    }
}

/// Why it is over.
enum End {
    Closed(TerminalEnd),
    Detached,
    Signal(i32),
}

/// Shows what comes until there is a reason to stop.
fn live(
    happenings: &Receiver<Happening>,
    caller: &CallerTerminal,
    resized: impl Fn() -> Result<(), Problem>,
) -> Result<End, Failure> {
    let mut output = std::io::stdout().lock();
    loop {
        match happenings.recv() {
            Ok(Happening::Told(TerminalEvent::Screen(bytes) | TerminalEvent::Output(bytes))) => {
                caller.watch(&bytes);
                output.write_all(&bytes)?;
                output.flush()?;
            }
            Ok(Happening::Told(TerminalEvent::Gap(bytes))) => {
                write!(output, "\r\n[{bytes} bytes came too fast]\r\n")?;
            }
            // Of somebody else who is attached.
            Ok(Happening::Told(TerminalEvent::Resized { .. })) => {}
            Ok(Happening::Told(TerminalEvent::Closed(end))) => return Ok(End::Closed(end)),
            Ok(Happening::Resized) => resized()?,
            Ok(Happening::Signal(number)) => return Ok(End::Signal(number)),
            Ok(Happening::Lost(problem)) => return Err(problem.into()),
            Ok(Happening::Detached) | Err(_) => return Ok(End::Detached),
        }
    }
}

/// Finds out whether the terminal stands in a session, and opens it where only the session is there;
/// it has the session's name, so that the next one who attaches finds it.
fn in_session(
    context: &Context,
    client: &Client,
    name: &TerminalName,
    arguments: &AttachArguments,
) -> Result<bool, Problem> {
    let list: TerminalList = client.call("terminal_list", &TerminalListRequest {})?;
    let there = list.terminals.iter().find(|one| one.name == *name);
    if let Some(there) = there {
        let is_over = there.session.is_some() && there.state == TerminalState::Ended;
        if !is_over {
            return Ok(there.session.is_some());
        }
        let choice = TerminalChoice {
            name: Some(name.clone()),
        };
        client.call::<_, TerminalClosed>("terminal_close", &choice)?;
    }
    let reference = SessionReference {
        session: name.to_string(),
    };
    match client.call::<_, SessionView>("session_get", &reference) {
        Ok(_) if arguments.read_only => {
            return Err(Problem::new(
                ErrorCode::TerminalUnknown,
                format!("nobody is attached to the session {name}: there is nothing to look on at"),
            )
            .with_field("name")
            .with_hint(format!("cofferdam attach {name}")));
        }
        Ok(_) => {}
        // The terminal is what is missing; it is told with those that are there.
        Err(_) => {
            let snapshot = TerminalSnapshot {
                name: Some(name.clone()),
                ..TerminalSnapshot::default()
            };
            client.call::<_, TerminalScreen>("terminal_snapshot", &snapshot)?;
            return Ok(false);
        }
    }
    let open = TerminalOpen {
        session: Some(name.to_string()),
        ..TerminalOpen::new(name.clone())
    };
    client.call::<_, TerminalOpened>("terminal_open", &open)?;
    context
        .output
        .note(&format!("a shell in the place of the session {name}"));
    Ok(true)
}

/// Reads the stream on a thread of its own, which ends with the program.
fn follow(stream: TerminalStream, sender: Sender<Happening>) {
    std::thread::spawn(move || {
        for event in stream {
            let happening = match event {
                Ok(event) => Happening::Told(event),
                Err(problem) => Happening::Lost(problem),
            };
            if sender.send(happening).is_err() {
                return;
            }
        }
        let _ = sender.send(Happening::Lost(Problem::new(
            ErrorCode::ServerUnreachable,
            "the server has ended the stream",
        )));
    });
}

/// Passes the keyboard on, on a thread of its own, which ends with the program.
fn watch_keyboard(
    input: std::os::fd::OwnedFd,
    typing: Option<(Client, TerminalName)>,
    sender: Sender<Happening>,
) {
    std::thread::spawn(move || {
        let mut keys = [0; KEYS];
        loop {
            let count = match rustix::io::read(&input, &mut keys) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            let leaving = |key: &u8| *key == DETACH || (typing.is_none() && *key == INTERRUPT);
            let leaves = keys[..count].iter().position(leaving);
            let typed = &keys[..leaves.unwrap_or(count)];
            if let Some((client, name)) = &typing
                && let Err(problem) = type_all(client, name, typed)
                && problem.code == ErrorCode::ServerUnreachable
            {
                let _ = sender.send(Happening::Lost(problem));
                return;
            }
            // A terminal that has ended says so in the stream.
            if leaves.is_some() {
                break;
            }
        }
        let _ = sender.send(Happening::Detached);
    });
}

fn type_all(client: &Client, name: &TerminalName, mut keys: &[u8]) -> Result<(), Problem> {
    while !keys.is_empty() {
        let typed = client.type_into_terminal(name, keys)?.min(keys.len());
        keys = &keys[typed..];
        if !keys.is_empty() {
            std::thread::sleep(ROOM);
        }
    }
    Ok(())
}

fn watch_signals(sender: Sender<Happening>) -> Result<(), Problem> {
    let failed = |error: std::io::Error| {
        Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
    };
    let mut signals = Signals::new([SIGWINCH, SIGTERM, SIGHUP, SIGINT]).map_err(failed)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let happening = match signal {
                    SIGWINCH => Happening::Resized,
                    other => Happening::Signal(other),
                };
                if sender.send(happening).is_err() {
                    return;
                }
            }
        })
        .map_err(failed)?;
    Ok(())
}
