//! From what the kernel says about a terminal to what it is doing.

use cofferdam_core::operation::TerminalState;
use cofferdam_sandbox::{ForegroundLook, ForegroundSleep};

/// How the first process of a terminal waits when it waits for a command, learnt when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prompt {
    lines: bool,
    sleep: ForegroundSleep,
    program: Option<(u64, u64)>,
}

impl Prompt {
    /// Learns from a look at which the first process waits for input; `None` when it does not.
    pub(super) fn learn(look: &ForegroundLook) -> Option<Self> {
        let waits = look.is_leader() && is_waiting(look);
        waits.then_some(Self {
            lines: look.lines,
            sleep: look.sleep,
            program: look.program,
        })
    }

    fn fits(&self, look: &ForegroundLook) -> bool {
        // Another program in the shell's place (`exec`) waits in its own way.
        self.program != look.program || (self.lines == look.lines && self.sleep == look.sleep)
    }
}

/// What a terminal is doing, and how certain that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doing {
    pub(super) state: TerminalState,
    /// Whether one look is enough; else it has to stay so for a moment.
    pub(super) certain: bool,
}

const fn certainly(state: TerminalState) -> Doing {
    Doing {
        state,
        certain: true,
    }
}

const RUNNING: Doing = certainly(TerminalState::Running);

/// Tells whether something in the foreground may be waiting for what is typed.
const fn is_waiting(look: &ForegroundLook) -> bool {
    match look.sleep {
        ForegroundSleep::Read(_) => true,
        // Without lines somebody has taken the keyboard over, and waits for it among other things.
        ForegroundSleep::Poll | ForegroundSleep::PollFor => !look.lines,
        ForegroundSleep::Elsewhere | ForegroundSleep::Hidden { .. } => false,
    }
}

/// Tells what a terminal is doing.
pub(super) fn doing(look: &ForegroundLook, prompt: Option<&Prompt>) -> Doing {
    if look.unread > 0 {
        return RUNNING;
    }
    let leader = look.is_leader();
    let awaited = match (look.lines, look.echo) {
        (true, true) => TerminalState::AwaitingLine,
        (true, false) => TerminalState::AwaitingHiddenLine,
        (false, _) => TerminalState::AwaitingKeys,
    };
    if let ForegroundSleep::Hidden { asleep } = look.sleep {
        // What may not be looked into: only its kind of waiting is seen, and for how long.
        let state = match (leader, look.lines, look.echo) {
            _ if !asleep => TerminalState::Running,
            (true, ..) => TerminalState::Ready,
            (false, true, true) => TerminalState::Running,
            _ => awaited,
        };
        return Doing {
            state,
            certain: state == TerminalState::Running,
        };
    }
    let fits = leader && prompt.is_none_or(|prompt| prompt.fits(look));
    if !is_waiting(look) {
        return RUNNING;
    }
    Doing {
        state: if fits { TerminalState::Ready } else { awaited },
        certain: look.sleep != ForegroundSleep::PollFor,
    }
}

/// Tells whether what is typed now is hidden: not shown by the terminal, nor by the shell at its
/// prompt, which shows what it gets by itself.
pub(super) fn is_hidden(look: &ForegroundLook, prompt: Option<&Prompt>) -> bool {
    let at_prompt = look.is_leader() && prompt.is_none_or(|prompt| prompt.fits(look));
    !look.echo && (look.lines || !at_prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(group: i32, sleep: ForegroundSleep, lines: bool, echo: bool) -> ForegroundLook {
        ForegroundLook {
            leader: Some(7),
            group: Some(group),
            unread: 0,
            lines,
            echo,
            sleep,
            name: None,
            program: Some((1, 1)),
        }
    }

    fn state(look: &ForegroundLook, prompt: Option<&Prompt>) -> TerminalState {
        doing(look, prompt).state
    }

    #[test]
    fn a_shell_that_reads_a_variable_is_not_at_its_prompt() {
        let prompt = Prompt::learn(&look(7, ForegroundSleep::Poll, false, false));
        let at_prompt = look(7, ForegroundSleep::Poll, false, false);
        assert_eq!(state(&at_prompt, prompt.as_ref()), TerminalState::Ready);
        let read = look(7, ForegroundSleep::Read(1), true, true);
        assert_eq!(state(&read, prompt.as_ref()), TerminalState::AwaitingLine);
        let secret = look(7, ForegroundSleep::Read(1), true, false);
        assert_eq!(
            state(&secret, prompt.as_ref()),
            TerminalState::AwaitingHiddenLine
        );
        assert!(is_hidden(&secret, prompt.as_ref()));
        assert!(!is_hidden(&at_prompt, prompt.as_ref()));
        // As dash does it: lines at the prompt, too, but not one byte at a time.
        let prompt = Prompt::learn(&look(7, ForegroundSleep::Read(8192), true, true));
        assert_eq!(state(&read, prompt.as_ref()), TerminalState::AwaitingLine);
    }

    #[test]
    fn what_is_typed_and_not_read_says_that_somebody_is_busy() {
        let mut reading = look(9, ForegroundSleep::Read(4096), true, true);
        assert_eq!(state(&reading, None), TerminalState::AwaitingLine);
        reading.unread = 3;
        assert_eq!(state(&reading, None), TerminalState::Running);
    }

    #[test]
    fn a_server_that_polls_is_running_and_an_editor_that_polls_waits() {
        assert_eq!(
            state(&look(9, ForegroundSleep::Poll, true, true), None),
            TerminalState::Running
        );
        let editor = doing(&look(9, ForegroundSleep::PollFor, false, false), None);
        assert_eq!(editor.state, TerminalState::AwaitingKeys);
        assert!(!editor.certain);
    }
}
