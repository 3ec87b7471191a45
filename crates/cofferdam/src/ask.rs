//! Questions about hosts and approvals, put to whoever sits at the terminal.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::approval::{ApprovalAnswer, ApprovalAsk};
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_exec::{AskHost, Control, HostAnswer, HostQuestion, NetworkOptions};
use cofferdam_runtime::{AskOwner, Runtime};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};

use crate::context::Context;
use crate::output::Output;
use crate::render::{approvals, one_line};

/// How often an open question is looked at, whether it is still waited for.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Ctrl-C as a raw terminal gives it.
const INTERRUPT: u8 = 3;

/// Sees to it that misses become questions on the terminal, where there is one.
pub(crate) fn on_terminal(
    context: &Context,
    runtime: &Runtime,
    control: &Control,
) -> Result<(), Problem> {
    let Some(terminal) = terminal() else {
        context
            .output
            .note("--ask: nobody is at a terminal, so hosts that nothing allows are refused");
        return Ok(());
    };
    let (sender, receiver) = channel();
    let control = control.clone();
    std::thread::Builder::new()
        .name("ask".to_owned())
        .spawn(move || answer_all(&receiver, &terminal, &control))
        .map_err(|error| {
            Problem::new(
                ErrorCode::Internal,
                format!("no thread is left for questions: {error}"),
            )
        })?;
    runtime.plane().set_network(NetworkOptions {
        ask: Some(Arc::new(Asker(Mutex::new(sender)))),
        ..NetworkOptions::default()
    });
    Ok(())
}

/// Sees to it that what needs the owner's word becomes a question on the terminal, where there is
/// one; else it is said how to answer it from elsewhere.
pub(crate) fn approvals_on_terminal(context: &Context, runtime: &Runtime, control: &Control) {
    runtime.on_approval(Arc::new(Owner {
        output: context.output,
        control: control.clone(),
    }));
}

struct Owner {
    output: Output,
    control: Control,
}

impl AskOwner for Owner {
    fn ask(&self, ask: &ApprovalAsk, is_open: &dyn Fn() -> bool) -> Option<ApprovalAnswer> {
        let elsewhere = || {
            let id = &ask.approval_id;
            self.output.note(&format!(
                "waiting for an answer: cofferdam approvals answer {id} approve|reject"
            ));
        };
        let Some(terminal) = terminal() else {
            elsewhere();
            return None;
        };
        self.control.hold_input(true);
        let text = approvals::question(ask).replace('\n', "\r\n");
        let words = format!("{text}cofferdam: approve exactly this, once? [y]es, [n]o ");
        let answer = with_raw(&terminal, || {
            key(
                &terminal,
                &words,
                is_open,
                approval_of,
                ApprovalAnswer::as_str,
            )
        });
        self.control.hold_input(false);
        answer.unwrap_or(None)
    }
}

const fn approval_of(key: u8) -> Option<ApprovalAnswer> {
    match key {
        b'y' => Some(ApprovalAnswer::Approve),
        b'n' | INTERRUPT => Some(ApprovalAnswer::Reject),
        _ => None,
    }
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

struct Asker(Mutex<Sender<HostQuestion>>);

impl AskHost for Asker {
    fn ask(&self, question: HostQuestion) {
        // Without the other end the question is dropped, which refuses it.
        let _ = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(question);
    }
}

fn answer_all(questions: &Receiver<HostQuestion>, terminal: &OwnedFd, control: &Control) {
    for question in questions {
        if !question.is_open() {
            continue;
        }
        control.hold_input(true);
        let answer = put(&question, terminal).unwrap_or(None);
        control.hold_input(false);
        // Without an answer it is dropped, and refused.
        if let Some(answer) = answer {
            question.answer(answer);
        }
    }
}

/// Puts one question and waits for a key, at most as long as the connection waits.
fn put(question: &HostQuestion, terminal: &OwnedFd) -> io::Result<Option<HostAnswer>> {
    let until = Instant::now() + question.limit.saturating_sub(Duration::from_millis(200));
    let is_open = || question.is_open() && Instant::now() < until;
    with_raw(terminal, || {
        key(
            terminal,
            &words(question),
            &is_open,
            answer_of,
            HostAnswer::as_str,
        )
    })
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
fn key<T: Copy>(
    terminal: &OwnedFd,
    words: &str,
    is_open: &dyn Fn() -> bool,
    answer_of: fn(u8) -> Option<T>,
    word: fn(T) -> &'static str,
) -> io::Result<Option<T>> {
    let mut screen = std::fs::File::from(terminal.try_clone()?);
    write!(screen, "\r\n{words}")?;
    while is_open() {
        let mut fds = [PollFd::from_borrowed_fd(terminal.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&LOOK)).unwrap_or(0) == 0 {
            continue;
        }
        let mut key = [0];
        if rustix::io::read(terminal, &mut key)? == 0 {
            break;
        }
        if let Some(answer) = answer_of(key[0]) {
            write!(screen, "{}\r\n", word(answer))?;
            return Ok(Some(answer));
        }
    }
    write!(screen, "no answer\r\n")?;
    Ok(None)
}

const fn answer_of(key: u8) -> Option<HostAnswer> {
    match key {
        b'o' | b'y' => Some(HostAnswer::Once),
        b't' => Some(HostAnswer::Task),
        b'r' => Some(HostAnswer::Repository),
        b'n' | INTERRUPT => Some(HostAnswer::No),
        b'v' => Some(HostAnswer::Never),
        _ => None,
    }
}

fn words(question: &HostQuestion) -> String {
    let program = question.program.as_deref().unwrap_or("a program");
    // Both come from inside, where anybody may call anything by any name.
    let program = one_line(program, 40);
    let target = one_line(&question.target.to_string(), 120);
    let of = match &question.subject.task {
        Some(_) => "this task",
        None => "this command",
    };
    format!(
        "cofferdam: {program} of {of} wants to reach {target}, which nothing allows.\r\n\
         [o]nce, {of} [t], this [r]epository, [n]o, ne[v]er? "
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_answers_and_others_are_none() {
        let of = |key: u8| answer_of(key).map(HostAnswer::as_str);
        assert_eq!(of(b'o'), Some("once"));
        assert_eq!(of(b'v'), Some("never"));
        assert_eq!(of(INTERRUPT), Some("no"));
        assert_eq!(of(b'\r'), None);
    }
}
