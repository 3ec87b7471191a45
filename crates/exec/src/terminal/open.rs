//! One terminal from its opening to its end.

use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, Subject, event_type};
use cofferdam_core::id::{CommandId, TerminalId};
use cofferdam_core::operation::{TerminalEnd, TerminalName, TerminalState, TerminalTarget};
use cofferdam_core::outcome::{CommandOutcome, Status, signal_name};
use cofferdam_core::spec::CommandSpec;
use serde_json::{Value, json};

use super::lend::Master;
use super::record::{Header, Recorder};
use super::ring::Chunk;
use super::screen::Lines;
use super::settle::{self, Prompt};
use super::state::{Feed, Shared};
use super::tell::Teller;
use crate::control::{Control, TerminalSize};
use crate::enclosure::Enclosure;
use crate::run::{CommandIo, LentTerminal, Run};

/// How long the first prompt may take before the terminal is given out without it.
const FIRST_PROMPT: Duration = Duration::from_secs(3);
/// How long a terminal that was hung up may take to leave.
const LEAVE: Duration = Duration::from_millis(400);
const SIGHUP: i32 = 1;
/// Both threads of a terminal do little and call little.
const STACK: usize = 512 * 1024;

/// What a terminal is opened with.
#[derive(Debug)]
pub struct TerminalOptions {
    /// What it is called.
    pub name: TerminalName,
    /// The program in it.
    pub command: CommandSpec,
    /// How large it is.
    pub size: TerminalSize,
    /// On whose behalf.
    pub subject: Subject,
    /// Whether a recording is kept, where there is a data directory.
    pub record: bool,
    /// What the journal is told about it beside name, command, directory and size.
    pub about: Value,
}

/// A terminal that is open. Dropping it closes it.
#[derive(Debug)]
pub struct Terminal {
    pub(super) shared: Arc<Shared>,
    pub(super) teller: Arc<Teller>,
    pub(super) master: Master,
    pub(super) control: Control,
    pub(super) prompt: Mutex<Option<Prompt>>,
    /// Held by whoever types, so that two do not type into each other.
    pub(super) typing: Mutex<()>,
    enclosure: Arc<Enclosure>,
    command_id: CommandId,
    command: CommandSpec,
    recording: Option<PathBuf>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Is told of changes of a terminal until it is dropped, see [`Terminal::watch`].
#[derive(Debug)]
pub struct TerminalWatch {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for TerminalWatch {
    fn drop(&mut self) {
        self.shared.remove_hook(self.id);
    }
}

impl Terminal {
    /// Opens a terminal in an enclosure and starts its program; waits for its first prompt.
    ///
    /// # Errors
    ///
    /// Those of starting a command, and of writing its intent: nothing runs then.
    pub fn open(enclosure: Arc<Enclosure>, options: TerminalOptions) -> Result<Self, Problem> {
        let plane = enclosure.plane().clone();
        let (time, random) = plane.ambient().id_parts();
        let terminal_id = TerminalId::new(time, random);
        let TerminalOptions {
            name,
            command,
            size,
            subject,
            record,
            about,
        } = options;
        let teller = Arc::new(Teller {
            plane: plane.clone(),
            subject: subject.clone(),
            terminal_id: terminal_id.clone(),
            name: name.clone(),
            telling: Mutex::new(()),
        });
        let recorder = plane.data().filter(|_| record).map(|data| {
            let path = data
                .path()
                .join("terminals")
                .join(format!("{terminal_id}.cast"));
            let words: Vec<String> = command.argv.iter().map(ToString::to_string).collect();
            let header = Header {
                size,
                timestamp: plane.ambient().now().as_second(),
                title: name.as_str(),
                command: words.join(" "),
            };
            Recorder::create(&path, &header).map_err(|error| {
                Problem::new(
                    ErrorCode::Io,
                    format!("the recording {} cannot be made: {error}", path.display()),
                )
            })
        });
        let recorder = recorder.transpose()?;
        let recording = recorder.as_ref().map(|one| one.path().to_owned());
        let mut data = json!({
            "terminal_id": terminal_id,
            "name": name,
            "lease": plane.lease(),
            "command": command.argv,
            "cwd": command.cwd,
            "rows": size.rows,
            "columns": size.columns,
            "recording": recording,
        });
        if let (Some(data), Value::Object(about)) = (data.as_object_mut(), about) {
            data.extend(about);
        }
        // Nothing happens that the journal does not know of.
        plane.record(&subject, event_type::TERMINAL_STARTED, Severity::Info, data)?;
        let shared = Arc::new(Shared::new(size, recorder));
        let control = Control::new();
        let (lender, lent) = mpsc::channel();
        let thread = {
            let (shared, teller) = (Arc::clone(&shared), Arc::clone(&teller));
            let (enclosure, control) = (Arc::clone(&enclosure), control.clone());
            let command = command.clone();
            std::thread::Builder::new()
                .name("terminal".to_owned())
                .stack_size(STACK)
                .spawn(move || {
                    let run = |sink: &mut Feed<'_>| {
                        enclosure.run(Run {
                            command,
                            subject,
                            io: CommandIo::Lent {
                                size,
                                sink,
                                lend: &mut |terminal| drop(lender.send(terminal)),
                            },
                            control,
                            timeout_clamped: false,
                        })
                    };
                    live(&shared, &teller, run);
                })
                .map_err(|error| {
                    Problem::new(ErrorCode::SpawnFailed, format!("no thread: {error}"))
                })?
        };
        let Ok(LentTerminal {
            master,
            foreground,
            command_id,
        }) = lent.recv()
        else {
            // It never began; the thread has told why.
            let _ = thread.join();
            let problem = shared.state().ended.take().and_then(|end| end.problem);
            return Err(problem.unwrap_or_else(|| {
                Problem::new(ErrorCode::SpawnFailed, "the terminal did not begin")
            }));
        };
        let terminal = Self {
            master: Master::new(master, foreground).inspect_err(|_| control.cancel())?,
            shared,
            teller,
            control,
            prompt: Mutex::new(None),
            typing: Mutex::new(()),
            enclosure,
            command_id,
            command,
            recording,
            thread: Mutex::new(Some(thread)),
        };
        terminal.first_prompt()
    }

    /// Waits until the program waits for its first input, and learns how that looks.
    fn first_prompt(self) -> Result<Self, Problem> {
        self.settle(Instant::now() + FIRST_PROMPT, &self.control);
        let never_ran = self
            .shared
            .state()
            .ended
            .as_ref()
            .filter(|end| end.return_code.is_none() && end.signal.is_none())
            .and_then(|end| end.problem.clone());
        if let Some(problem) = never_ran {
            return Err(problem);
        }
        *self.prompt() = Prompt::learn(&self.master.look());
        Ok(self)
    }

    pub(super) fn prompt(&self) -> std::sync::MutexGuard<'_, Option<Prompt>> {
        self.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives its id.
    pub fn id(&self) -> &TerminalId {
        &self.teller.terminal_id
    }

    /// Tells how long ago it wrote something.
    pub fn since_output(&self) -> Option<Duration> {
        self.shared.state().last_output.map(|last| last.elapsed())
    }

    /// Gives its name.
    pub fn name(&self) -> &TerminalName {
        &self.teller.name
    }

    /// Gives the id of the command that it is, as the journal knows it.
    pub const fn command_id(&self) -> &CommandId {
        &self.command_id
    }

    /// Lends what runs in it.
    pub const fn command(&self) -> &CommandSpec {
        &self.command
    }

    /// Lends the walls.
    pub const fn enclosure(&self) -> &Arc<Enclosure> {
        &self.enclosure
    }

    /// Tells where its recording lies.
    pub const fn recording(&self) -> Option<&PathBuf> {
        self.recording.as_ref()
    }

    /// Tells how large it is.
    pub fn size(&self) -> TerminalSize {
        self.shared.state().screen.size()
    }

    /// Counts the bytes that it has written.
    pub fn written(&self) -> u64 {
        self.shared.state().ring.total()
    }

    /// Tells how long ago it last wrote something.
    pub fn quiet_for(&self) -> Option<Duration> {
        self.shared.state().last_output.map(|at| at.elapsed())
    }

    /// Gives the last text that was typed and shown.
    pub fn last_input(&self) -> Option<String> {
        self.shared.state().last_input.clone()
    }

    /// Tells how its program ended; `None` while it runs.
    pub fn end(&self) -> Option<TerminalEnd> {
        self.shared.state().ended.clone()
    }

    /// Tells what it is doing now, and the name of the program in the foreground.
    pub fn doing(&self) -> (TerminalState, Option<String>) {
        if self.shared.state().ended.is_some() {
            return (TerminalState::Ended, None);
        }
        let look = self.master.look();
        let doing = settle::doing(&look, self.prompt().as_ref());
        (doing.state, look.name)
    }

    /// Gives at most `most` of its bytes from an offset on, without waiting; known secrets are
    /// masked in them.
    pub fn read(&self, offset: u64, most: usize) -> Chunk {
        self.shared.state().ring.read(offset, most)
    }

    /// Gives what a terminal must be sent to show the same as this one, and the offset from which it
    /// then goes on.
    pub fn redraw(&self) -> (u64, Vec<u8>) {
        let state = self.shared.state();
        (state.ring.total(), state.screen.redraw())
    }

    /// Gives the last lines of history and screen.
    pub fn lines(&self, last: Option<usize>, colors: bool) -> Lines {
        self.shared.state().screen.lines(last, colors)
    }

    /// Gives line and column of the cursor, whether a program uses the whole screen, and the title.
    pub fn view(&self) -> ((u16, u16), bool, Option<String>) {
        let state = self.shared.state();
        let screen = &state.screen;
        (
            screen.cursor(),
            screen.is_alternate(),
            screen.title().map(str::to_owned),
        )
    }

    /// Calls `hook` after each change, from the thread that made it; it must not wait.
    pub fn watch(&self, hook: impl Fn() + Send + Sync + 'static) -> TerminalWatch {
        TerminalWatch {
            id: self.shared.add_hook(Arc::new(hook)),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Gives it another size.
    pub fn resize(&self, size: TerminalSize) {
        {
            let mut state = self.shared.state();
            if state.screen.size() == size {
                return;
            }
            let at = state.began.elapsed();
            state
                .recorder
                .iter_mut()
                .for_each(|recorder| recorder.resized(at, size));
            state.screen.resize(size);
        }
        self.master.resize(size);
        let TerminalSize { rows, columns } = size;
        self.teller.say(
            event_type::TERMINAL_RESIZED,
            Severity::Debug,
            json!({"rows": rows, "columns": columns}),
        );
        self.shared.tell();
    }

    /// Sends a signal, by number.
    ///
    /// # Errors
    ///
    /// `terminal_ended`, or what the kernel says.
    pub fn signal(&self, number: i32, target: TerminalTarget) -> Result<(), Problem> {
        if self.end().is_some() {
            return Err(self.has_ended());
        }
        let word = u8::try_from(number).map(signal_name).unwrap_or_default();
        self.teller.say(
            event_type::TERMINAL_SIGNALLED,
            Severity::Info,
            json!({"signal": word, "target": target}),
        );
        self.shared.state().marker(&format!("signal {word}"));
        let look = self.master.look();
        let group = match (target, look.group) {
            (TerminalTarget::Foreground, Some(group)) if group > 1 => group,
            // Everything, and in the double, where there are no groups.
            _ => {
                self.control.signal(number);
                return Ok(());
            }
        };
        cofferdam_sandbox::signal_group(group, look.leader, number).map_err(|error| {
            Problem::new(
                ErrorCode::Io,
                format!("{word} cannot be sent to the foreground: {error}"),
            )
        })
    }

    pub(super) fn has_ended(&self) -> Problem {
        Problem::new(
            ErrorCode::TerminalEnded,
            format!("the program of terminal {} has ended", self.name()),
        )
        .with_hint("reset it, or close it")
    }

    /// Hangs up, ends what does not leave, and waits until nothing is left of it.
    pub fn close(&self, reason: &str) -> TerminalEnd {
        {
            let mut state = self.shared.state();
            if state.ended.is_none() {
                state.reason.get_or_insert_with(|| reason.to_owned());
            }
        }
        let thread = {
            let mut slot = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            slot.take()
        };
        if let Some(thread) = thread {
            self.control.signal(SIGHUP);
            let until = Instant::now() + LEAVE;
            let mut state = self.shared.state();
            while state.ended.is_none() && Instant::now() < until {
                state = self.shared.wait(state, Duration::from_millis(50));
            }
            let left = state.ended.is_some();
            drop(state);
            if !left {
                self.control.cancel();
            }
            let _ = thread.join();
        }
        self.end().unwrap_or(TerminalEnd {
            return_code: None,
            signal: None,
            problem: None,
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close("dropped");
    }
}

/// Lives as long as the terminal: runs the program, and tells what it writes.
fn live(shared: &Arc<Shared>, teller: &Teller, run: impl FnOnce(&mut Feed<'_>) -> CommandOutcome) {
    let mut feed = Feed::new(Arc::clone(shared), teller.plane.masker());
    let release = feed.release();
    std::thread::scope(|scope| {
        let watcher = std::thread::Builder::new()
            .name("terminal-tell".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || teller.watch(shared, &release));
        let outcome = run(&mut feed);
        feed.let_go(true);
        let end = end_of(&outcome);
        {
            let mut state = shared.state();
            state.silent = true;
            state
                .recorder
                .iter_mut()
                .for_each(super::record::Recorder::flush);
        }
        shared.tell();
        if let Ok(watcher) = watcher {
            let _ = watcher.join();
        }
        teller.output(shared, None, true);
        let (written, reason) = {
            let mut state = shared.state();
            let reason = state.reason.take().unwrap_or_else(|| {
                let code = outcome.error.as_ref().map(|problem| problem.code.as_str());
                code.unwrap_or("exited").to_owned()
            });
            state.marker(&format!("closed: {reason}"));
            state.recorder = None;
            (state.ring.total(), reason)
        };
        teller.say(
            event_type::TERMINAL_CLOSED,
            Severity::Info,
            json!({
                "command_id": outcome.command_id,
                "reason": reason,
                "return_code": end.return_code,
                "signal": end.signal,
                "written": written,
                "problem": end.problem,
            }),
        );
        shared.state().ended = Some(end);
        shared.tell();
    });
}

fn end_of(outcome: &CommandOutcome) -> TerminalEnd {
    TerminalEnd {
        return_code: outcome.return_code,
        signal: outcome.signal.clone(),
        problem: outcome
            .error
            .clone()
            .filter(|_| outcome.status != Status::Cancelled),
    }
}
