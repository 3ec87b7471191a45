//! What a terminal shows: a screen that is fed with bytes, and the lines that left it at the top.
//!
//! The bytes are the truth and the screen is a view of them. Bytes come from whatever runs inside,
//! so nothing that they say may do more than change what is shown.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cofferdam_core::limits::{TERMINAL_HISTORY_CHARACTERS, TERMINAL_HISTORY_LINES};
use vt100::capture::{BasicFormattedCaptureState, RowContents, basic_formatted_to_plain};

use crate::control::TerminalSize;

/// Longest title that is kept, in characters.
const TITLE_CHARACTERS: usize = 200;

/// A screen and its history.
pub struct Screen {
    parser: vt100::Parser<History>,
    size: TerminalSize,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Screen")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Lines of a screen and of its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// The lines, oldest first, without those at the end that hold nothing.
    pub lines: Vec<String>,
    /// Whether there is, or was, more before them.
    pub truncated: bool,
}

impl Screen {
    /// Makes an empty screen.
    pub fn new(size: TerminalSize) -> Self {
        let (rows, columns) = numbers(size);
        Self {
            parser: vt100::Parser::new_with_callbacks(rows, columns, 0, History::default()),
            size,
        }
    }

    /// Shows bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        // A defect of the emulator must not take the terminal with it: then the screen begins anew.
        let fed = catch_unwind(AssertUnwindSafe(|| self.parser.process(bytes)));
        if fed.is_err() {
            *self = Self::new(self.size);
        }
    }

    /// Gives it another size.
    pub fn resize(&mut self, size: TerminalSize) {
        self.size = size;
        let (rows, columns) = numbers(size);
        let done = catch_unwind(AssertUnwindSafe(|| self.parser.set_size(rows, columns)));
        if done.is_err() {
            *self = Self::new(size);
        }
    }

    /// Tells how large it is.
    pub const fn size(&self) -> TerminalSize {
        self.size
    }

    /// Gives line and column of the cursor, from 0.
    pub fn cursor(&self) -> (u16, u16) {
        self.parser.screen().cursor_position()
    }

    /// Tells whether a program uses the whole screen, as editors do.
    pub fn is_alternate(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// Tells whether a program wants arrow keys as application keys.
    pub fn wants_application_keys(&self) -> bool {
        self.parser.screen().application_cursor()
    }

    /// Gives the title that a program set.
    pub fn title(&self) -> Option<&str> {
        self.parser.callbacks().title.as_deref()
    }

    /// Gives what a terminal must be sent to show the same.
    pub fn redraw(&self) -> Vec<u8> {
        self.parser.screen().state_formatted().into_bytes()
    }

    /// Gives the last lines of history and screen; all of them for `None`. With colours each line
    /// carries its own escape sequences.
    pub fn lines(&self, last: Option<usize>, colors: bool) -> Lines {
        let screen = self.parser.screen();
        let history = self.parser.callbacks();
        let (_, columns) = screen.size();
        let rows = if colors {
            screen.rows_formatted(0, columns.get()).collect::<Vec<_>>()
        } else {
            screen.rows(0, columns.get()).collect()
        };
        let mut lines: Vec<String> = if screen.alternate_screen() {
            Vec::new()
        } else {
            history.lines(colors).collect()
        };
        // The last line of the history goes on where the screen begins.
        let goes_on = !screen.alternate_screen() && history.open;
        for (index, row) in rows.into_iter().enumerate() {
            let joined = if index == 0 {
                goes_on
            } else {
                screen.row_wrapped(index as u16 - 1)
            };
            match lines.last_mut() {
                Some(line) if joined => line.push_str(&row),
                _ => lines.push(row),
            }
        }
        if colors {
            for line in &mut lines {
                if line.contains('\x1b') && !line.ends_with("\x1b[m") {
                    line.push_str("\x1b[m");
                }
            }
        }
        while lines
            .last()
            .is_some_and(|line| plain(line).trim_end().is_empty())
        {
            lines.pop();
        }
        let mut truncated = history.forgotten;
        if let Some(last) = last
            && lines.len() > last
        {
            lines.drain(..lines.len() - last);
            truncated = true;
        }
        Lines { lines, truncated }
    }
}

/// Gives what bytes show on a terminal of this width, without anything that moves or colours: a view
/// for reading, made by a real screen.
pub fn clean(bytes: &[u8], size: TerminalSize) -> Lines {
    let mut screen = Screen::new(size);
    screen.feed(bytes);
    screen.lines(None, false)
}

fn plain(line: &str) -> String {
    basic_formatted_to_plain(line).collect()
}

fn numbers(size: TerminalSize) -> (NonZeroU16, NonZeroU16) {
    let number = |value: u16| NonZeroU16::new(value).unwrap_or(NonZeroU16::MIN);
    (number(size.rows), number(size.columns))
}

/// Lines that left the screen at the top, with their colours.
#[derive(Debug, Default)]
struct History {
    lines: VecDeque<String>,
    characters: usize,
    /// Whether the last line goes on.
    open: bool,
    /// Whether lines were given up.
    forgotten: bool,
    state: BasicFormattedCaptureState,
    title: Option<String>,
}

impl History {
    fn lines(&self, colors: bool) -> impl Iterator<Item = String> {
        self.lines
            .iter()
            .map(move |line| if colors { line.clone() } else { plain(line) })
    }

    fn push(&mut self, text: &str) {
        self.characters += text.len();
        match self.lines.back_mut() {
            Some(line) if self.open => line.push_str(text),
            _ => self.lines.push_back(text.to_owned()),
        }
        while self.lines.len() > TERMINAL_HISTORY_LINES
            || (self.characters > TERMINAL_HISTORY_CHARACTERS && !self.lines.is_empty())
        {
            let gone = self.lines.pop_front().map_or(0, |line| line.len());
            self.characters -= gone;
            self.forgotten = true;
        }
    }
}

impl vt100::Callbacks for History {
    fn on_scroll(&mut self, contents: RowContents<'_>, alternate_screen: bool) {
        if alternate_screen {
            return;
        }
        // Only the state knows whether the row before this one went on in it.
        let mut seen = String::new();
        let known = contents.write_formatted_basic(&mut seen, &mut self.state);
        self.open = known.is_ok() && !seen.starts_with('\n') && !self.lines.is_empty();
        let mut text = String::new();
        let mut fresh = BasicFormattedCaptureState::new();
        // Writing to a text cannot fail.
        let _ = contents.write_formatted_basic(&mut text, &mut fresh);
        if text.contains('\x1b') {
            text.push_str("\x1b[m");
        }
        self.push(&text);
        // Whether this row goes on shows when it is written after itself.
        let mut again = String::new();
        let _ = contents.write_formatted_basic(&mut again, &mut fresh);
        self.open = !again.starts_with('\n');
    }

    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        let text = String::from_utf8_lossy(title);
        self.title = Some(
            text.chars()
                .filter(|character| !character.is_control())
                .take(TITLE_CHARACTERS)
                .collect(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: TerminalSize = TerminalSize {
        rows: 4,
        columns: 10,
    };

    fn shown(bytes: &[u8]) -> Vec<String> {
        clean(bytes, SIZE).lines
    }

    #[test]
    fn c6_titles_progress_and_backspaces_leave_what_a_person_sees() {
        assert_eq!(shown(b"\x1b]0;title\x07a\rb"), ["b"]);
        assert_eq!(shown(b"10%\r50%\r100%\r\ndone\r\n"), ["100%", "done"]);
        assert_eq!(shown(b"abc\x08\x08XY"), ["aXY"]);
        assert_eq!(shown(b"\x1b[?2004h$ ls\x1b[?2004l\r\n"), ["$ ls"]);
        assert_eq!(
            shown(b"\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"),
            ["red link"]
        );
        assert_eq!(
            shown(b"one\x1b[?1049h\x1b[2J\x1b[Heditor\x1b[?1049l two"),
            ["one two"]
        );
        assert_eq!(
            shown("h\u{e9}\u{4e16}\u{754c}".as_bytes()),
            ["h\u{e9}\u{4e16}\u{754c}"]
        );
    }

    #[test]
    fn lines_that_left_the_screen_are_kept_and_joined_where_they_wrapped() {
        let mut bytes = Vec::new();
        for number in 0..9 {
            bytes.extend(format!("line {number}\r\n").into_bytes());
        }
        bytes.extend(b"0123456789abcdefghijKLMNO\r\nend");
        let lines = shown(&bytes);
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[0], "line 0");
        assert_eq!(lines[9], "0123456789abcdefghijKLMNO");
        bytes.extend(b"\r\n1\r\n2\r\n3\r\n4");
        assert_eq!(shown(&bytes)[9], "0123456789abcdefghijKLMNO");
        let mut screen = Screen::new(SIZE);
        screen.feed(&bytes);
        let two = screen.lines(Some(2), false);
        assert_eq!(
            (two.lines, two.truncated),
            (vec!["3".to_owned(), "4".to_owned()], true)
        );
    }

    #[test]
    fn colours_stay_with_their_line() {
        let mut screen = Screen::new(SIZE);
        screen.feed(b"\x1b[31mred\r\nstill\r\n\x1b[mplain\r\n1\r\n2\r\n3");
        let lines = screen.lines(None, true).lines;
        assert_eq!(lines[0], "\x1b[31mred\x1b[m");
        assert_eq!(lines[1], "\x1b[31mstill\x1b[m");
        assert_eq!(lines[2], "plain");
    }

    #[test]
    fn the_history_is_bounded() {
        let mut screen = Screen::new(SIZE);
        for number in 0..(TERMINAL_HISTORY_LINES + 50) {
            screen.feed(format!("{number}\r\n").as_bytes());
        }
        let lines = screen.lines(None, false);
        assert!(lines.truncated);
        assert!(lines.lines.len() <= TERMINAL_HISTORY_LINES + 4);
        screen.feed(&b"x".repeat(3 * TERMINAL_HISTORY_CHARACTERS));
        let kept: usize = screen
            .lines(None, false)
            .lines
            .iter()
            .map(String::len)
            .sum();
        assert!(kept <= TERMINAL_HISTORY_CHARACTERS + 40, "{kept}");
    }

    #[test]
    fn hostile_bytes_change_nothing_but_what_is_shown() {
        let mut seed = 7_u64;
        let mut screen = Screen::new(SIZE);
        for round in 0..3_000_u64 {
            let bytes: Vec<u8> = (0..40)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let value = (seed >> 33) as u8;
                    if value < 60 {
                        b"\x1b[]0;?hl9HJKrmLMPX@"[usize::from(value) % 19]
                    } else {
                        value
                    }
                })
                .collect();
            screen.feed(&bytes);
            if round % 7 == 0 {
                screen.resize(TerminalSize {
                    rows: 1 + (seed >> 40) as u16 % 30,
                    columns: 1 + (seed >> 20) as u16 % 50,
                });
            }
            if round % 50 == 0 {
                screen.lines(None, true);
                screen.redraw();
            }
        }
    }
}
