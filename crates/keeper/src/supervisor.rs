//! A supervisor: runs one command at a time and ends its whole tree.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cofferdam_sandbox::{
    ChildSignals, Directory, ExitStatus, LandlockPlan, OwnOomScore, Program, Reap, Ruleset,
    SandboxError, SeccompProgram, Spawn, Step, Sweep, Swept, Usage, build_ruleset, candidates,
    children, default_signals, living, reap_any, set_process_name, set_subreaper, signal_pid,
    signal_tree, spawn, sweep, wait_for_no_child,
};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::PidfdFlags;

use crate::channel::{ChannelError, receive, send};
use crate::protocol::{Exited, SignalTarget, SpawnRequest, SupervisorReply, SupervisorRequest};

/// The longest that ending the tree may take when the channel has closed.
const LAST_SWEEP: Duration = Duration::from_secs(2);

/// What every command of an enclosure is put behind.
#[derive(Debug, Default)]
pub(crate) struct Walls {
    pub(crate) plan: LandlockPlan,
    pub(crate) ruleset: Option<Ruleset>,
    pub(crate) seccomp: Option<SeccompProgram>,
}

struct Running {
    pid: i32,
    sweep: Duration,
    linger: Duration,
    keep_rest: bool,
}

struct Supervisor<'a, S> {
    socket: &'a S,
    walls: &'a Walls,
    oom_score: Option<OwnOomScore>,
    running: Option<Running>,
    /// Whether descendants of an ended command are let live, and how long ending them may take.
    keeping: Option<Duration>,
    usage: Usage,
}

/// Serves a channel until it, or the other one, closes, or until the keeper above is gone. Gives the
/// exit code.
pub(crate) fn serve<S: AsFd>(socket: &S, walls: &Walls, also: Option<&S>) -> i32 {
    set_process_name(c"cofferdam-super");
    default_signals();
    // On the host nobody else ends us when the keeper is killed, and the plane would not see it.
    let keeper = if also.is_none() {
        rustix::process::getppid()
            .and_then(|parent| rustix::process::pidfd_open(parent, PidfdFlags::empty()).ok())
    } else {
        None
    };
    // Inherited by every command, and nothing in it is in our own way: loading it for each of them
    // would cost more than all the rest of the walls.
    let filtered = walls
        .seccomp
        .as_ref()
        .map_or(Ok(()), SeccompProgram::load_self);
    let prepared = filtered
        .and_then(|()| set_subreaper())
        .and_then(|()| ChildSignals::new());
    let Ok(children) = prepared else { return 1 };
    let mut supervisor = Supervisor {
        socket,
        walls,
        // Behind Landlock no command can look into us; without walls none has to.
        oom_score: OwnOomScore::open_undumpable(walls.ruleset.is_some() || walls.seccomp.is_none()),
        running: None,
        keeping: None,
        usage: Usage::default(),
    };
    loop {
        let mut waiting = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(&children, PollFlags::IN),
            match &keeper {
                Some(keeper) => PollFd::new(keeper, PollFlags::IN),
                // Only whether it is closed; without another one, the same question twice.
                None => PollFd::new(also.unwrap_or(socket), PollFlags::empty()),
            },
        ];
        match rustix::event::poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => break,
        }
        let (asked, ended) = (
            !waiting[0].revents().is_empty(),
            !waiting[1].revents().is_empty(),
        );
        let closed = (also.is_some() || keeper.is_some()) && !waiting[2].revents().is_empty();
        let outcome = if ended {
            children.drain();
            supervisor.reap()
        } else {
            Ok(())
        };
        let outcome = match outcome {
            Ok(()) if asked => supervisor.answer(),
            other => other,
        };
        if outcome.is_err() || closed {
            break;
        }
    }
    if rustix::process::getpid() == rustix::process::Pid::INIT {
        // The kernel ends the rest of the namespace with its first process.
        return 0;
    }
    match sweep(LAST_SWEEP, &BTreeSet::new(), |_| ()) {
        Ok(Sweep {
            swept: Swept::NothingLeft | Swept::Ended,
            ..
        }) => 0,
        _ => 1,
    }
}

impl<S: AsFd> Supervisor<'_, S> {
    /// Takes one request. An error ends the supervisor: the channel is closed or not to be trusted.
    fn answer(&mut self) -> Result<(), ChannelError> {
        let (request, descriptors) = receive::<SupervisorRequest>(self.socket)?;
        match request {
            SupervisorRequest::Spawn(request) => {
                let announce = request.announce;
                match self.start(&request, &descriptors) {
                    Ok(pid) if announce => self.say(&SupervisorReply::Started { pid }),
                    Ok(_) => Ok(()),
                    Err(error) => self.say(&SupervisorReply::Failed(error.into())),
                }
            }
            SupervisorRequest::Signal { target, number } => {
                // Whoever is gone already needs no signal.
                match (&mut self.running, target) {
                    (Some(running), SignalTarget::Leader) => drop(signal_pid(running.pid, number)),
                    (Some(running), SignalTarget::Tree) => drop(signal_tree(running.pid, number)),
                    (Some(running), SignalTarget::Everything) => {
                        running.keep_rest = false;
                        signal_everything(number);
                    }
                    (None, _) => {}
                }
                Ok(())
            }
            SupervisorRequest::EndTree => match (self.running.take(), self.keeping) {
                (Some(running), _) => self.finish(&running, None),
                (None, Some(limit)) => self.end_kept(limit),
                (None, None) => Ok(()),
            },
            SupervisorRequest::Ping => self.say(&SupervisorReply::Pong),
        }
    }

    fn say(&self, reply: &SupervisorReply) -> Result<(), ChannelError> {
        send(self.socket, reply, &[])
    }

    fn start(&mut self, request: &SpawnRequest, given: &[OwnedFd]) -> Result<i32, SandboxError> {
        if self.running.is_some() || self.keeping.is_some() {
            return Err(SandboxError::new(Step::Prepare, Errno::BUSY.raw_os_error()));
        }
        let invalid = || SandboxError::new(Step::Prepare, Errno::INVAL.raw_os_error());
        let name = request.argv.first().ok_or_else(invalid)?;
        let path = request
            .env
            .iter()
            .find_map(|one| one.strip_prefix(b"PATH="));
        // An empty or impossible name is a program that is not there.
        let paths = candidates(name, path)
            .ok_or_else(|| SandboxError::at(Step::Execute, name, Errno::NOENT.raw_os_error()))?;
        let strings = |all: &[Vec<u8>]| {
            all.iter()
                .map(|one| CString::new(one.as_slice()).map_err(|_| invalid()))
                .collect::<Result<Vec<_>, _>>()
        };
        if given.len() != request.descriptors.len() {
            return Err(invalid());
        }
        let own_ruleset = if request.extra_paths.is_empty() || self.walls.plan.files.is_none() {
            None
        } else {
            let mut plan = self.walls.plan.clone();
            plan.files
                .get_or_insert_default()
                .extend(request.extra_paths.iter().cloned());
            Some(build_ruleset(&plan)?)
        };
        let ruleset = own_ruleset.as_ref().or(self.walls.ruleset.as_ref());
        let mut spec = Spawn::new(Program::Paths(paths), strings(&request.argv)?);
        spec.environment = strings(&request.env)?;
        if !request.cwd.is_empty() {
            let directory = CString::new(request.cwd.as_slice()).map_err(|_| invalid())?;
            spec.directory = Some(Directory::Path(directory));
        }
        spec.descriptors = given
            .iter()
            .map(AsFd::as_fd)
            .zip(request.descriptors.iter().copied())
            .collect();
        spec.new_session = true;
        spec.controlling_terminal = request.controlling_terminal;
        spec.limits.clone_from(&request.limits);
        spec.umask = request.umask;
        spec.keeps_signals = true;
        spec.landlock = ruleset.map(|ruleset| ruleset.fd.as_fd());
        let pid = match (request.oom_score_adjustment, &self.oom_score) {
            (Some(score), Some(own)) => own.lend(score, || spawn(&spec)),
            _ => spawn(&spec),
        }?
        .pid;
        self.usage = Usage::default();
        self.running = Some(Running {
            pid,
            sweep: Duration::from_millis(request.sweep_milliseconds.into()),
            linger: Duration::from_millis(request.linger_milliseconds.into()),
            keep_rest: request.keep_rest,
        });
        Ok(pid)
    }

    /// Takes ended processes away; when the command is among them, ends its tree and tells.
    fn reap(&mut self) -> Result<(), ChannelError> {
        loop {
            match reap_any() {
                Ok(Reap::Ended(reaped)) => {
                    self.usage.add(reaped.usage);
                    if let Some(running) = self.running.take_if(|running| running.pid == reaped.pid)
                    {
                        return self.finish(&running, Some(reaped.status));
                    }
                }
                Ok(Reap::NoChild) if self.keeping.take().is_some() => {
                    return self.say(&SupervisorReply::Emptied);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Ends what an ended command had left running. What cannot be ended in time goes down with us.
    fn end_kept(&mut self, limit: Duration) -> Result<(), ChannelError> {
        self.keeping = None;
        match sweep(limit, &BTreeSet::new(), |_| ()) {
            Ok(Sweep {
                swept: Swept::NothingLeft | Swept::Ended,
                ..
            }) => self.say(&SupervisorReply::Emptied),
            _ => Err(ChannelError::Closed),
        }
    }

    /// Ends what is left of the tree and tells how the command ended. Without a status the command
    /// itself is still there.
    fn finish(
        &mut self,
        running: &Running,
        status: Option<ExitStatus>,
    ) -> Result<(), ChannelError> {
        let mut usage = self.usage;
        let linger = if status.is_some() {
            running.linger
        } else {
            Duration::ZERO
        };
        let empty = wait_for_no_child(linger, &mut usage).unwrap_or(false);
        let mut exited = Exited {
            pid: running.pid,
            status,
            usage,
            leftovers: Vec::new(),
            leftover_count: 0,
            kept: false,
            swept: Swept::NothingLeft,
        };
        if !empty && running.keep_rest && status.is_some() {
            exited.leftovers = living();
            exited.leftover_count = u32::try_from(exited.leftovers.len()).unwrap_or(u32::MAX);
            exited.leftovers.truncate(Exited::MOST_LEFTOVERS);
            exited.kept = true;
            self.keeping = Some(running.sweep);
        } else if !empty {
            end_rest(running, &mut exited);
        }
        self.say(&SupervisorReply::Exited(exited))
    }
}

fn signal_everything(number: i32) {
    for pid in children().unwrap_or_default() {
        signal_tree(pid, number);
    }
}

fn end_rest(running: &Running, exited: &mut Exited) {
    let mut status = exited.status;
    let swept = sweep(running.sweep, &BTreeSet::new(), |reaped| {
        if reaped.pid == running.pid && status.is_none() {
            status = Some(reaped.status);
        }
    });
    exited.status = status;
    match swept {
        Ok(mut sweep) => {
            sweep
                .leftovers
                .retain(|leftover| leftover.pid != running.pid);
            exited.usage.add(sweep.usage);
            exited.leftover_count = u32::try_from(sweep.leftovers.len()).unwrap_or(u32::MAX);
            sweep.leftovers.truncate(Exited::MOST_LEFTOVERS);
            exited.leftovers = sweep.leftovers;
            exited.swept = sweep.swept;
        }
        // Whoever cannot look must not say that nothing is there.
        Err(_) => exited.swept = Swept::Deadline,
    }
}
