//! A command under its supervisor, from its start to the end of its tree.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::outcome::{EndedBy, Leftover, Usage};
use cofferdam_keeper::{Exited, SignalTarget, SupervisorClient, SupervisorReply};
use cofferdam_sandbox::{ExitStatus, SandboxError, Step, Swept};
use rustix::io::Errno;

use super::keeper::{Shared, lock};
use crate::backend::{Ended, Exit, KeptTree, Recipient, RunningCommand};

/// A command under its supervisor.
#[derive(Debug)]
pub(super) struct SupervisedCommand {
    pub(super) supervisor: Option<SupervisorClient>,
    pub(super) shared: Arc<Shared>,
    pub(super) program: String,
    pub(super) cwd: String,
}

impl RunningCommand for SupervisedCommand {
    fn channel(&self) -> BorrowedFd<'_> {
        match &self.supervisor {
            Some(supervisor) => supervisor.as_fd(),
            // Only asked before the end is taken; a descriptor that is never readable otherwise.
            None => rustix::stdio::stdin(),
        }
    }

    fn take_end(&mut self) -> Result<Option<Ended>, Problem> {
        let Some(supervisor) = &self.supervisor else {
            return Ok(None);
        };
        match supervisor.receive() {
            Ok(SupervisorReply::Exited(exited)) => {
                let supervisor = self.supervisor.take();
                self.conclude(exited, supervisor).map(Some)
            }
            Ok(SupervisorReply::Failed(failure)) => {
                if let Some(supervisor) = self.supervisor.take() {
                    self.shared.recycle(supervisor);
                }
                Err(start_problem(
                    &SandboxError::from(failure),
                    &self.program,
                    &self.cwd,
                ))
            }
            Ok(
                SupervisorReply::Started { .. } | SupervisorReply::Pong | SupervisorReply::Emptied,
            ) => Ok(None),
            Err(error) => {
                self.supervisor = None;
                if let Some(problem) = self.shared.set_up_failure() {
                    return Err(problem);
                }
                let problem = Problem::new(
                    ErrorCode::EnclosureLost,
                    format!("the supervisor of {} vanished: {error}", self.program),
                )
                .with_hint("its tree was ended and the enclosure closed");
                self.shared.standing.store(false, Ordering::Release);
                Err(problem)
            }
        }
    }

    fn signal(&mut self, recipient: Recipient, number: i32) {
        let target = match recipient {
            Recipient::Leader => SignalTarget::Tree,
            Recipient::Tree => SignalTarget::Everything,
        };
        if let Some(supervisor) = &self.supervisor {
            // A supervisor that has vanished is noticed by its channel.
            let _ = supervisor.signal(target, number);
        }
    }

    fn end_tree(&mut self) {
        if let Some(supervisor) = &self.supervisor {
            let _ = supervisor.end_tree();
        }
    }
}

impl SupervisedCommand {
    fn conclude(
        &self,
        exited: Exited,
        supervisor: Option<SupervisorClient>,
    ) -> Result<Ended, Problem> {
        let by = match exited.swept {
            Swept::NothingLeft => EndedBy::Itself,
            Swept::Ended => EndedBy::Sweep,
            Swept::Deadline => {
                // What a sweep cannot end goes down with the place.
                self.shared.standing.store(false, Ordering::Release);
                drop(supervisor);
                return Err(Problem::new(
                    ErrorCode::EnclosureLost,
                    format!("the tree of {} could not be ended in time", self.program),
                ));
            }
        };
        let leftovers: Vec<Leftover> = exited
            .leftovers
            .into_iter()
            .map(|one| Leftover {
                pid: one.pid,
                name: String::from_utf8_lossy(&one.name).into_owned(),
            })
            .collect();
        let (leftovers, kept) = match supervisor {
            Some(supervisor) if exited.kept => {
                let number = self.shared.next_kept.fetch_add(1, Ordering::Relaxed);
                lock(&self.shared.keeping).push((number, supervisor));
                let processes = leftovers;
                (Vec::new(), Some(KeptTree { number, processes }))
            }
            other => {
                if let Some(supervisor) = other {
                    self.shared.recycle(supervisor);
                }
                (leftovers, None)
            }
        };
        let exit = match exited.status {
            Some(ExitStatus::Code(code)) => Exit::Code(code),
            Some(ExitStatus::Signal { number, .. }) => Exit::Signal(number as u8),
            None => {
                return Err(Problem::new(
                    ErrorCode::EnclosureLost,
                    format!("the end of {} was not seen", self.program),
                ));
            }
        };
        Ok(Ended {
            exit,
            usage: Usage {
                user_ms: exited.usage.user_microseconds / 1000,
                system_ms: exited.usage.system_microseconds / 1000,
                max_resident_kib: exited.usage.max_resident_kib,
            },
            leftovers,
            kept,
            by,
        })
    }
}

/// Names why a command did not start.
fn start_problem(error: &SandboxError, program: &str, cwd: &str) -> Problem {
    let not_found = [Errno::NOENT, Errno::NOTDIR].contains(&Errno::from_raw_os_error(error.errno));
    match error.step {
        Step::Execute if not_found => {
            Problem::new(ErrorCode::NotFound, format!("{program}: not found inside"))
                .with_hint("look at what is there with: cofferdam policy explain")
        }
        Step::Execute => Problem::new(
            ErrorCode::NotExecutable,
            format!("{program}: cannot be executed: {error}"),
        ),
        Step::Directory if not_found => Problem::new(
            ErrorCode::CwdMissing,
            format!("{cwd}: no such directory inside"),
        ),
        _ => Problem::new(ErrorCode::SpawnFailed, format!("{program}: {error}")),
    }
}
