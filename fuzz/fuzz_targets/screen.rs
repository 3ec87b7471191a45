//! Whatever a program writes, a screen shows something of its own size and keeps no more than it
//! may; cut in pieces it shows the same as at once, and what redraws it shows the same again.
//!
//! Input: one byte for the height, one for the width, one for the cut; then what is written.

#![no_main]

use cofferdam_exec::TerminalSize;
use cofferdam_exec::terminal::Screen;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [rows, columns, cut, text @ ..] = bytes else {
        return;
    };
    let size = TerminalSize {
        rows: u16::from(*rows) % 60 + 1,
        columns: u16::from(*columns) % 200 + 1,
    };
    let mut whole = Screen::new(size);
    whole.feed(text);
    let mut pieces = Screen::new(size);
    for piece in text.chunks(usize::from(*cut).max(1)) {
        pieces.feed(piece);
    }
    assert_eq!(whole.lines(None, false), pieces.lines(None, false));
    assert_eq!(whole.cursor(), pieces.cursor());
    let (row, column) = whole.cursor();
    assert!(row < size.rows && column <= size.columns);
    for line in whole.lines(None, false).lines {
        assert!(!line.contains('\x1b'), "{line:?}");
    }
    whole.lines(Some(7), true);
    let mut again = Screen::new(size);
    again.feed(&whole.redraw());
    // Another size may come at any moment.
    whole.resize(TerminalSize {
        rows: size.columns % 60 + 1,
        columns: size.rows % 200 + 1,
    });
    whole.feed(text);
});
