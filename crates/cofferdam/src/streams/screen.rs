//! The modes in which a command left the screen: known, so that they can be undone for one that was
//! killed and could not do it itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Private modes that a screen begins without.
const OFF: &[u16] = &[
    1, 9, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1049, 2004, 2026,
    2031,
];
/// Private modes that a screen begins with: lines wrap, the cursor is seen.
const ON: &[u16] = &[7, 25];
/// Digits and the like of a sequence that are looked at; longer ones set no mode.
const LENGTH: usize = 64;
/// Levels of keyboard modes that are taken back.
const LEVELS: u32 = 16;

/// What a command's output made of the screen.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    state: State,
    /// Private modes that are not as a screen begins.
    private: BTreeSet<u16>,
    /// Keyboard modes that were put on top of each other.
    keyboard: u32,
    keypad: bool,
    cursor_shape: bool,
    other_keys: bool,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    Escape,
    /// A control sequence, as far as it came.
    Control(Vec<u8>),
}

impl Screen {
    /// Looks at output; tells whether what undoes it is another thing now.
    pub(crate) fn watch(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let mut changed = false;
        while !rest.is_empty() {
            if self.state == State::Plain {
                let Some(at) = rest.iter().position(|byte| *byte == 0x1b) else {
                    break;
                };
                self.state = State::Escape;
                rest = &rest[at + 1..];
                continue;
            }
            changed |= self.take(rest[0]);
            rest = &rest[1..];
        }
        changed
    }

    fn take(&mut self, byte: u8) -> bool {
        match std::mem::take(&mut self.state) {
            State::Plain => false,
            State::Escape => match byte {
                b'[' => {
                    self.state = State::Control(Vec::new());
                    false
                }
                b'=' => !std::mem::replace(&mut self.keypad, true),
                b'>' => std::mem::replace(&mut self.keypad, false),
                // A full reset.
                b'c' => {
                    let before = self.undo();
                    *self = Self::default();
                    !before.is_empty()
                }
                0x1b => {
                    self.state = State::Escape;
                    false
                }
                _ => false,
            },
            State::Control(mut text) => match byte {
                0x20..=0x3f if text.len() < LENGTH => {
                    text.push(byte);
                    self.state = State::Control(text);
                    false
                }
                0x40..=0x7e => self.control(&text, byte),
                0x1b => {
                    self.state = State::Escape;
                    false
                }
                _ => false,
            },
        }
    }

    fn control(&mut self, text: &[u8], last: u8) -> bool {
        let text = std::str::from_utf8(text).unwrap_or_default();
        match (text.as_bytes().first(), last) {
            (Some(b'?'), b'h' | b'l') => {
                let mut changed = false;
                for mode in text[1..].split(';').filter_map(|part| part.parse().ok()) {
                    let begins_without = OFF.contains(&mode);
                    if !begins_without && !ON.contains(&mode) {
                        continue;
                    }
                    changed |= if begins_without == (last == b'h') {
                        self.private.insert(mode)
                    } else {
                        self.private.remove(&mode)
                    };
                }
                changed
            }
            (Some(b'>'), b'u') => {
                self.keyboard = (self.keyboard + 1).min(LEVELS);
                true
            }
            (Some(b'<'), b'u') => {
                let levels = text[1..].parse().unwrap_or(1);
                let before = self.keyboard;
                self.keyboard = before.saturating_sub(levels);
                self.keyboard != before
            }
            (Some(b'>'), b'm') => {
                let is_on = text.strip_prefix(">4;").is_some_and(|value| value != "0");
                std::mem::replace(&mut self.other_keys, is_on) != is_on
            }
            (_, b'q') if text.ends_with(' ') => {
                let is_own = !matches!(text, " " | "0 ");
                std::mem::replace(&mut self.cursor_shape, is_own) != is_own
            }
            _ => false,
        }
    }

    /// Gives what undoes the modes; nothing where there are none.
    pub(crate) fn undo(&self) -> Vec<u8> {
        let mut text = String::new();
        if self.keyboard > 0 {
            let _ = write!(text, "\x1b[<{}u", self.keyboard);
        }
        if self.other_keys {
            text.push_str("\x1b[>4;0m");
        }
        if self.keypad {
            text.push_str("\x1b>");
        }
        if self.cursor_shape {
            text.push_str("\x1b[0 q");
        }
        // The other screen is left before the cursor of this one is shown.
        for mode in self.private.iter().rev() {
            let end = if ON.contains(mode) { 'h' } else { 'l' };
            let _ = write!(text, "\x1b[?{mode}{end}");
        }
        if !text.is_empty() {
            text.push_str("\x1b[0m");
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(output: &str) -> String {
        let mut screen = Screen::default();
        screen.watch(output.as_bytes());
        String::from_utf8(screen.undo()).expect("text")
    }

    #[test]
    fn what_is_set_is_undone_the_other_screen_first() {
        assert_eq!(
            undo("\x1b[?25l\x1b[?1049hhello\x1b[?1002;1006h"),
            "\x1b[?1049l\x1b[?1006l\x1b[?1002l\x1b[?25h\x1b[0m"
        );
    }

    #[test]
    fn what_was_taken_back_is_not_undone() {
        assert_eq!(undo("\x1b[?1049h\x1b[?2004h\x1b[?2004l\x1b[?1049l"), "");
        assert_eq!(undo("\x1b[>1u\x1b[<u"), "");
        assert_eq!(undo("\x1b[?1049h\x1b[>1u\x1bc"), "");
        assert_eq!(undo("plain [?1049h \x1b[31mred"), "");
    }

    #[test]
    fn keyboard_keypad_and_cursor_are_undone() {
        assert_eq!(
            undo("\x1b[>7u\x1b[>1u\x1b[>4;2m\x1b=\x1b[5 q"),
            "\x1b[<2u\x1b[>4;0m\x1b>\x1b[0 q\x1b[0m"
        );
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        let text = b"\x1b[?1049h";
        for cut in 1..text.len() {
            let mut screen = Screen::default();
            assert!(!screen.watch(&text[..cut]), "{cut}");
            assert!(screen.watch(&text[cut..]), "{cut}");
            assert!(!screen.watch(text), "nothing new");
        }
    }

    #[test]
    fn endless_sequences_take_no_room() {
        let mut screen = Screen::default();
        screen.watch(b"\x1b[");
        screen.watch(&vec![b'1'; 100_000]);
        assert!(screen.watch(b"\x1b[?25l"));
    }
}
