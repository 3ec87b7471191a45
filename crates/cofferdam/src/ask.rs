//! Questions, put to whoever sits at the terminal.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk, ApprovalKind, Remember};
use cofferdam_core::policy::Permission;
use cofferdam_exec::Control;
use cofferdam_runtime::{AskOwner, OwnerAnswer, PolicyRequest, Runtime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};

use crate::context::Context;
use crate::output::Output;
use crate::render::approvals;

/// How often an open question is looked at, whether it is still waited for.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Ctrl-C as a raw terminal gives it.
const INTERRUPT: u8 = 3;

/// Sees to it that what needs the owner's word becomes a question on the terminal, where there is
/// one; else it is said how to answer it from elsewhere. Hosts that nothing allows are among it where
/// `--ask` or the permission says so.
pub(crate) fn on_terminal(
    context: &Context,
    runtime: &Arc<Runtime>,
    control: &Control,
    policy: &PolicyRequest,
    ask: bool,
) {
    runtime.on_approval(Arc::new(Owner {
        output: context.output,
        control: control.clone(),
        one: Mutex::new(()),
    }));
    runtime.on_review_by_url(Arc::new(crate::review_by_url::Http));
    if ask || asks_about_hosts(policy) {
        runtime.ask_about_hosts();
    }
}

/// Tells whether the permission asks about hosts that nothing allows.
pub(crate) fn asks_about_hosts(policy: &PolicyRequest) -> bool {
    matches!(
        policy.owner.permission,
        Some(Permission::Approval | Permission::AutoApproval)
    )
}

struct Owner {
    output: Output,
    control: Control,
    /// Who has the terminal: one question after the other.
    one: Mutex<()>,
}

impl AskOwner for Owner {
    fn is_there(&self) -> bool {
        terminal().is_some()
    }

    fn ask(&self, ask: &ApprovalAsk, is_open: &dyn Fn() -> bool) -> Option<OwnerAnswer> {
        let Some(terminal) = terminal() else {
            let id = &ask.approval_id;
            self.output.note(&format!(
                "waiting for an answer: cofferdam approvals approve {id}, or deny"
            ));
            return None;
        };
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_open() {
            return None;
        }
        self.control.hold_input(true);
        let answer = with_raw(&terminal, || key(&terminal, ask, is_open));
        self.control.hold_input(false);
        answer.unwrap_or(None)
    }
}

/// Puts a question that any process asks, as long as it is open and nobody interrupts; gives nothing
/// where there is no terminal, and what was said otherwise.
pub(crate) fn put_watched(
    ask: &ApprovalAsk,
    is_open: &dyn Fn() -> bool,
) -> Option<io::Result<Option<OwnerAnswer>>> {
    let terminal = terminal()?;
    Some(with_raw(&terminal, || key(&terminal, ask, is_open)))
}

/// Opens the terminal of this program, where it is in the foreground there.
fn terminal() -> Option<OwnedFd> {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    tcgetpgrp(&file)
        .is_ok_and(|group| group == rustix::process::getpgrp())
        .then(|| file.into())
}

/// Does something while keys come one by one.
fn with_raw<T>(terminal: &OwnedFd, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = tcgetattr(terminal)?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(terminal, OptionalActions::Now, &raw)?;
    let done = work();
    tcsetattr(terminal, OptionalActions::Now, &before)?;
    done
}

/// Shows a question and waits for a key that answers it, as long as it is open.
fn key(
    terminal: &OwnedFd,
    ask: &ApprovalAsk,
    is_open: &dyn Fn() -> bool,
) -> io::Result<Option<OwnerAnswer>> {
    let mut screen = std::fs::File::from(terminal.try_clone()?);
    write!(screen, "\r\n{}", words(ask).replace('\n', "\r\n"))?;
    while is_open() {
        let mut fds = [PollFd::from_borrowed_fd(terminal.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&LOOK)).unwrap_or(0) == 0 {
            continue;
        }
        let mut key = [0];
        if rustix::io::read(terminal, &mut key)? == 0 {
            break;
        }
        if let Some(answer) = answer_of(key[0], ask.remember.is_some()) {
            let word = answer.answer.as_str();
            let held = match answer.remember {
                Remember::Once => "",
                Remember::Task => " for this task",
                Remember::Repository => " for this repository",
            };
            write!(screen, "{word}{held}\r\n")?;
            return Ok(Some(answer));
        }
    }
    write!(screen, "no answer here\r\n")?;
    Ok(None)
}

const fn answer_of(key: u8, can_remember: bool) -> Option<OwnerAnswer> {
    let (answer, remember) = match key {
        b'o' | b'y' => (ApprovalAnswer::Approve, Remember::Once),
        b't' => (ApprovalAnswer::Approve, Remember::Task),
        b'r' => (ApprovalAnswer::Approve, Remember::Repository),
        b'n' | INTERRUPT => (ApprovalAnswer::Reject, Remember::Once),
        b'v' => (ApprovalAnswer::Reject, Remember::Repository),
        _ => return None,
    };
    if !can_remember && !matches!(remember, Remember::Once) {
        return None;
    }
    Some(OwnerAnswer { answer, remember })
}

/// Puts a question into words: a host in one line, the rest with all that is needed to answer.
fn words(ask: &ApprovalAsk) -> String {
    let of = match &ask.binding.task {
        Some(_) => "this task",
        None => "this run",
    };
    let keys = match &ask.remember {
        Some(what) => format!(
            "{}\n[o]nce, {of} [t], this [r]epository, [n]o, ne[v]er? ",
            approvals::saved(what)
        ),
        None => "[y]es, [n]o? ".to_owned(),
    };
    if ask.kind == ApprovalKind::Host {
        // Names come from inside, where anybody may call anything by any name.
        let asked = crate::render::one_line(&ask.summary, 160);
        return format!("cofferdam: {asked}, which nothing allows?\n{keys}");
    }
    format!(
        "{}cofferdam: exactly this? {keys}",
        approvals::question(ask)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_answers_and_others_are_none() {
        let of = |key: u8, can_remember| {
            answer_of(key, can_remember).map(|one| (one.answer.as_str(), one.remember.as_str()))
        };
        assert_eq!(of(b'o', true), Some(("approve", "once")));
        assert_eq!(of(b'r', true), Some(("approve", "repository")));
        assert_eq!(of(b'v', true), Some(("reject", "repository")));
        assert_eq!(of(b'r', false), None);
        assert_eq!(of(INTERRUPT, false), Some(("reject", "once")));
        assert_eq!(of(b'\r', true), None);
    }
}
