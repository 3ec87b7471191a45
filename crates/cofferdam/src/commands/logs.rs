//! `logs`.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cofferdam_client::{Client, TerminalEvent};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::exit;
use cofferdam_core::id::{CommandId, TaskId};
use cofferdam_core::operation::{
    ListCommands, OutputStream, OutputView, ReadSessionLog, SessionLogPage, TerminalName,
    TerminalScreen, TerminalSnapshot,
};
use cofferdam_core::outcome::Status;
use cofferdam_runtime::{Follow, Runtime};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::living::{self, Lasting};
use super::reference;
use crate::arguments::logs::{LogsArguments, StreamChoice};
use crate::context::Context;
use crate::failure::{Ending, Failure};

/// How often is looked for more.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What somebody named.
pub(super) enum Target {
    Command(CommandId),
    Task(TaskId),
}

/// Finds the command or task that a text names.
pub(super) fn target(runtime: &Runtime, text: &str) -> Result<Target, Problem> {
    if !text.starts_with("cmd_") {
        return reference::task(runtime.journal().as_ref(), text).map(Target::Task);
    }
    if let Ok(id) = CommandId::parse(text)
        && runtime.command(&id).is_ok()
    {
        return Ok(Target::Command(id));
    }
    let mut found = known(runtime)?;
    found.retain(|id| id.as_str().starts_with(text));
    found.sort();
    found.dedup();
    let unknown = |message| {
        Problem::new(ErrorCode::CommandUnknown, message)
            .with_field("command")
            .with_hint("`cofferdam ps` shows what runs")
    };
    match found.as_slice() {
        [one] => Ok(Target::Command(one.clone())),
        [] => Err(unknown(format!("there is no command {text:?}"))),
        _ => Err(unknown(format!(
            "{text:?} is the beginning of several commands"
        ))),
    }
}

/// Lists commands that run, and those of the background.
fn known(runtime: &Runtime) -> Result<Vec<CommandId>, Problem> {
    let running = runtime.running()?;
    let of_tasks = running.tasks.iter().flat_map(|task| &task.commands);
    let mut all: Vec<CommandId> = running
        .commands
        .iter()
        .chain(of_tasks)
        .filter_map(|one| CommandId::parse(&one.command_id).ok())
        .collect();
    let listed = runtime.list_commands(&ListCommands {
        limit: Some(1000),
        status: None,
    })?;
    all.extend(listed.commands.into_iter().map(|one| one.command_id));
    Ok(all)
}

/// Tells whether what was followed has ended, and its server perhaps too.
fn is_over(problem: &Problem) -> bool {
    matches!(
        problem.code,
        ErrorCode::SessionUnknown | ErrorCode::ServerUnreachable
    )
}

/// Carries out `logs`.
pub(crate) fn logs(context: &Context, arguments: &LogsArguments) -> Ending {
    let runtime = context.runtime()?;
    let view = match arguments.stream {
        None => OutputView::Combined,
        Some(StreamChoice::Stdout) => OutputView::Stdout,
        Some(StreamChoice::Stderr) => OutputView::Stderr,
    };
    let stop = Arc::new(AtomicBool::new(false));
    if arguments.follow {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| {
                Problem::new(ErrorCode::Io, format!("signals cannot be watched: {error}"))
            })?;
        }
    }
    let reading = Reading {
        context,
        runtime: &runtime,
        view,
        follow: arguments.follow,
        stop: &stop,
    };
    match target(&runtime, &arguments.name) {
        Ok(Target::Command(id)) => reading.command(&id)?,
        Ok(Target::Task(task)) => reading.task(&task)?,
        Err(problem) => match living::lasting(context, &arguments.name) {
            Some((client, Lasting::Terminal(name))) => reading.terminal(&client, &name)?,
            Some((client, Lasting::Session(id))) => reading.session(&client, &id)?,
            None => return Err(problem.into()),
        },
    }
    Ok(exit::SUCCESS)
}

struct Reading<'a> {
    context: &'a Context,
    runtime: &'a Runtime,
    view: OutputView,
    follow: bool,
    stop: &'a AtomicBool,
}

impl Reading<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Shows the output of one command, and follows it to its end where that was asked for.
    fn command(&self, id: &CommandId) -> Result<(), Failure> {
        let mut follow = Follow::new(id.clone(), self.view);
        while !self.is_stopped() {
            let followed = follow.next(self.runtime)?;
            let is_quiet = followed.pieces.is_empty();
            for (stream, bytes) in followed.pieces {
                self.show(id, stream, &bytes)?;
            }
            if followed.dropped > 0 {
                self.context.output.note(&format!(
                    "{} more bytes came and were not kept",
                    followed.dropped
                ));
            }
            if followed.eof {
                if followed.status == Status::Interrupted {
                    let note = format!("{id} was interrupted: its process died");
                    self.context.output.note(&note);
                }
                return Ok(());
            }
            if is_quiet {
                if !self.follow {
                    return Ok(());
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        Ok(())
    }

    /// Shows the output of every command of a task, also of those that begin meanwhile.
    fn task(&self, task: &TaskId) -> Result<(), Failure> {
        let mut seen = 0;
        let mut waiting: VecDeque<CommandId> = VecDeque::new();
        while !self.is_stopped() {
            if waiting.is_empty() {
                // Looked at first: what begins afterwards is in the list.
                let is_over = !self.follow || self.has_ended(task)?;
                let all = self.runtime.commands_of_task(task)?;
                waiting.extend(all.into_iter().skip(seen));
                if waiting.is_empty() && is_over {
                    return Ok(());
                }
            }
            let Some(id) = waiting.pop_front() else {
                std::thread::sleep(LOOK_AGAIN * 5);
                continue;
            };
            seen += 1;
            if !self.context.output.is_json() {
                let record = self.runtime.command(&id)?.command;
                self.context
                    .output
                    .note(&format!("{id} {}", record.command));
            }
            self.command(&id)?;
        }
        Ok(())
    }

    /// Shows what a terminal shows, and what it writes from then on where that was asked for.
    fn terminal(&self, client: &Client, name: &TerminalName) -> Result<(), Failure> {
        if !self.follow {
            let request = TerminalSnapshot {
                name: Some(name.clone()),
                lines: Some(0),
                ..TerminalSnapshot::default()
            };
            let screen: TerminalScreen = client.call("terminal_snapshot", &request)?;
            self.context
                .output
                .result(&screen, |screen| screen.text.clone())?;
            return Ok(());
        }
        let (sender, told) = channel();
        let stream = client.watch_terminal(name)?;
        // It ends with the program: an interruption does not wait for more of it.
        std::thread::spawn(move || {
            for event in stream {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        while !self.is_stopped() {
            let bytes = match told.recv_timeout(LOOK_AGAIN) {
                Ok(Ok(TerminalEvent::Screen(bytes) | TerminalEvent::Output(bytes))) => bytes,
                Ok(Ok(TerminalEvent::Closed(_))) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => continue,
                Ok(Err(problem)) => return Err(problem.into()),
            };
            if self.context.output.is_json() {
                self.context.output.line(&json!({
                    "terminal": name,
                    "bytes": bytes.len(),
                    "text": String::from_utf8_lossy(&bytes),
                }))?;
            } else {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
            }
        }
        Ok(())
    }

    /// Shows what background jobs of a session wrote, until it is closed where that was asked for.
    fn session(&self, client: &Client, id: &str) -> Result<(), Failure> {
        let mut offset = 0;
        while !self.is_stopped() {
            let request = ReadSessionLog {
                session: id.to_owned(),
                offset,
            };
            let page: SessionLogPage = match client.call("session_log", &request) {
                Ok(page) => page,
                Err(problem) if self.follow && is_over(&problem) => return Ok(()),
                Err(problem) => return Err(problem.into()),
            };
            if !page.text.is_empty() {
                if self.context.output.is_json() {
                    self.context.output.line(&page)?;
                } else {
                    let mut out = io::stdout().lock();
                    out.write_all(page.text.as_bytes())?;
                    out.flush()?;
                }
            }
            let is_whole = page.next_offset == offset;
            offset = page.next_offset;
            if is_whole {
                if !self.follow {
                    return Ok(());
                }
                std::thread::sleep(LOOK_AGAIN * 5);
            }
        }
        Ok(())
    }

    fn has_ended(&self, task: &TaskId) -> Result<bool, Problem> {
        let running = self.runtime.running()?;
        Ok(!running.tasks.iter().any(|one| one.task_id == *task))
    }

    fn show(&self, id: &CommandId, stream: OutputStream, bytes: &[u8]) -> Result<(), Failure> {
        if self.context.output.is_json() {
            return self.context.output.line(&json!({
                "command_id": id,
                "stream": stream,
                "bytes": bytes.len(),
                "text": String::from_utf8_lossy(bytes),
            }));
        }
        match stream {
            OutputStream::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()?;
            }
            OutputStream::Stderr => io::stderr().lock().write_all(bytes)?,
        }
        Ok(())
    }
}
