//! Words of a shell text: quotes, escapes and expansions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shell::{Parser, Trouble};

/// One word of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Word {
    /// The word without its quotes. What is only known when the command runs stands as it was
    /// written: `$HOME`, `$(…)`, `*.rs`.
    pub text: String,
    /// Whether the text is exactly what the program gets.
    pub exact: bool,
}

impl Word {
    /// Makes a word that is known.
    pub fn exact(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            exact: true,
        }
    }

    /// Makes a word that is known only when the command runs.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            exact: false,
        }
    }

    /// Lends the text where it is known.
    pub fn known(&self) -> Option<&str> {
        self.exact.then_some(self.text.as_str())
    }

    /// Tells whether it is this very text.
    pub fn is(&self, text: &str) -> bool {
        self.exact && self.text == text
    }
}

/// A word while it is read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    bytes: Vec<u8>,
    dynamic: bool,
    pub(super) quoted: bool,
    brace: Brace,
    bracket: bool,
}

/// How far an unquoted `{a,b}` or `{1..9}` has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Brace {
    #[default]
    None,
    Open,
    Several,
}

impl Draft {
    pub(super) fn into_word(self) -> Word {
        Word {
            text: String::from_utf8_lossy(&self.bytes).into_owned(),
            exact: !self.dynamic,
        }
    }

    /// Tells whether the word so far is the name of an assignment, with its index where it has one.
    pub(super) fn is_assignment_name(&self) -> bool {
        let bytes = self.bytes.strip_suffix(b"+").unwrap_or(&self.bytes);
        let name = match bytes.iter().position(|byte| *byte == b'[') {
            Some(at) if bytes.last() == Some(&b']') => &bytes[..at],
            Some(_) => return false,
            None if self.dynamic => return false,
            None => bytes,
        };
        !self.quoted && is_name(name)
    }

    fn follow_pattern(&mut self, byte: u8) {
        match byte {
            b'*' | b'?' => self.dynamic = true,
            b'[' => self.bracket = true,
            // A bracket alone is the command of this name.
            b']' if self.bracket => self.dynamic = true,
            _ => {}
        }
    }

    fn follow_brace(&mut self, byte: u8) {
        self.brace = match (self.brace, byte) {
            (Brace::None, b'{') => Brace::Open,
            (Brace::Open, b',') => Brace::Several,
            (Brace::Open, b'.') if self.bytes.last() == Some(&b'.') => Brace::Several,
            (Brace::Several, b'}') => {
                self.dynamic = true;
                Brace::None
            }
            (state, _) => state,
        };
    }
}

pub(super) fn is_name(bytes: &[u8]) -> bool {
    let starts = bytes
        .first()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    starts && bytes.iter().all(goes_on)
}

pub(super) const fn ends_word(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')'
    )
}

/// What ends a text with expansions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// `"…"`.
    Quotes,
    /// `${…}`, within double quotes or not.
    Braces { quoted: bool },
}

impl Parser<'_> {
    /// Reads one word; it is empty where none begins here.
    pub(super) fn word(&mut self) -> Result<Draft, Trouble> {
        let mut draft = Draft::default();
        self.go_on(&mut draft, false)?;
        Ok(draft)
    }

    /// Reads on in a word. In an `assignment` it stops after the first unquoted `=` of one.
    pub(super) fn go_on(&mut self, draft: &mut Draft, assignment: bool) -> Result<(), Trouble> {
        while let Some(byte) = self.peek() {
            match byte {
                b'<' | b'>' if self.peek_at(1) == Some(b'(') => {
                    let from = self.at;
                    self.advance(2);
                    self.substituted()?;
                    self.unknown(draft, from);
                }
                b'(' if is_extended(draft) => {
                    let from = self.at;
                    self.advance(1);
                    self.pattern_list()?;
                    self.unknown(draft, from);
                }
                byte if ends_word(byte) => break,
                b'\'' => {
                    self.advance(1);
                    draft.quoted = true;
                    self.single(draft)?;
                }
                b'"' => {
                    self.advance(1);
                    draft.quoted = true;
                    self.expanded(draft, Inside::Quotes)?;
                }
                b'\\' => match self.peek_at(1) {
                    Some(b'\n') => self.advance(2),
                    Some(next) => {
                        self.advance(2);
                        draft.quoted = true;
                        draft.bytes.push(next);
                    }
                    None => {
                        self.advance(1);
                        draft.bytes.push(b'\\');
                    }
                },
                b'$' => self.dollar(draft, false)?,
                b'`' => self.backtick(draft, false)?,
                byte => {
                    self.advance(1);
                    draft.follow_pattern(byte);
                    draft.follow_brace(byte);
                    let names = assignment && byte == b'=' && draft.is_assignment_name();
                    draft.bytes.push(byte);
                    if names {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn unknown(&self, draft: &mut Draft, from: usize) {
        draft.dynamic = true;
        draft.bytes.extend_from_slice(self.slice(from));
    }

    fn single(&mut self, draft: &mut Draft) -> Result<(), Trouble> {
        loop {
            match self.next() {
                Some(b'\'') => return Ok(()),
                Some(byte) => draft.bytes.push(byte),
                None => return Err(self.unended("a single quote")),
            }
        }
    }

    /// Reads text in which expansions happen, to its end.
    fn expanded(&mut self, draft: &mut Draft, inside: Inside) -> Result<(), Trouble> {
        self.enter()?;
        loop {
            let Some(byte) = self.peek() else {
                return Err(self.unended("a double quote or ${"));
            };
            match (byte, inside) {
                (b'"', Inside::Quotes) | (b'}', Inside::Braces { .. }) => {
                    self.advance(1);
                    break;
                }
                (b'"', Inside::Braces { .. }) => {
                    self.advance(1);
                    self.expanded(draft, Inside::Quotes)?;
                }
                (b'\'', Inside::Braces { quoted: false }) => {
                    self.advance(1);
                    self.single(draft)?;
                }
                (b'\'', Inside::Braces { quoted: true }) => self.ambiguous_quote(draft)?,
                (b'\\', _) => {
                    let next = self.peek_at(1);
                    self.advance(2);
                    match next {
                        Some(b'\n') => {}
                        Some(next @ (b'$' | b'`' | b'"' | b'\\')) => draft.bytes.push(next),
                        Some(next) => draft.bytes.extend([b'\\', next]),
                        None => return Err(self.unended("a double quote or ${")),
                    }
                }
                (b'$', inside) => {
                    self.dollar(draft, inside != Inside::Braces { quoted: false })?;
                }
                (b'`', inside) => self.backtick(draft, inside == Inside::Quotes)?,
                (byte, _) => {
                    self.advance(1);
                    draft.bytes.push(byte);
                }
            }
        }
        self.leave();
        Ok(())
    }

    /// Reads a single quote in `"${…}"`: whether it quotes depends on the operator and the shell. It
    /// is taken where that makes no difference.
    fn ambiguous_quote(&mut self, draft: &mut Draft) -> Result<(), Trouble> {
        let from = self.at;
        self.advance(1);
        loop {
            match self.next() {
                Some(b'\'') => break,
                Some(b'}' | b'"' | b'$' | b'`' | b'\\') | None => {
                    return Err(self.syntax("a single quote within \"${…}\""));
                }
                Some(_) => {}
            }
        }
        draft.bytes.extend_from_slice(self.slice(from));
        Ok(())
    }

    fn dollar(&mut self, draft: &mut Draft, quoted: bool) -> Result<(), Trouble> {
        let from = self.at;
        self.advance(1);
        match self.peek() {
            Some(b'(') if self.peek_at(1) == Some(b'(') => {
                self.advance(2);
                self.arithmetic(b')')?;
                self.unknown(draft, from);
            }
            Some(b'(') => {
                self.advance(1);
                self.substituted()?;
                self.unknown(draft, from);
            }
            Some(b'[') => {
                self.advance(1);
                self.arithmetic(b']')?;
                self.unknown(draft, from);
            }
            Some(b'{') => {
                self.advance(1);
                // `${ command; }` runs one.
                if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|')) {
                    self.advance(1);
                    self.braced()?;
                } else {
                    // `${#}` and `${#name}`: the mark is no comment.
                    let mut inner = Draft::default();
                    self.expanded(&mut inner, Inside::Braces { quoted })?;
                }
                self.unknown(draft, from);
            }
            Some(b'\'') if !quoted => {
                self.advance(1);
                draft.quoted = true;
                self.ansi(draft)?;
            }
            Some(b'"') if !quoted => {
                self.advance(1);
                draft.quoted = true;
                self.expanded(draft, Inside::Quotes)?;
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                while let Some(byte) = self.peek() {
                    if !(byte.is_ascii_alphanumeric() || byte == b'_') {
                        break;
                    }
                    self.advance(1);
                }
                self.unknown(draft, from);
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.advance(1);
                self.unknown(draft, from);
            }
            _ => draft.bytes.push(b'$'),
        }
        Ok(())
    }

    /// Reads `$'…'`, which knows the escapes of C.
    fn ansi(&mut self, draft: &mut Draft) -> Result<(), Trouble> {
        loop {
            let Some(byte) = self.next() else {
                return Err(self.unended("a single quote"));
            };
            match byte {
                b'\'' => return Ok(()),
                b'\\' => {
                    let Some(escape) = self.next() else {
                        return Err(self.unended("a single quote"));
                    };
                    self.escape(escape, draft);
                }
                other => draft.bytes.push(other),
            }
        }
    }

    fn escape(&mut self, escape: u8, draft: &mut Draft) {
        let plain = match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => escape,
            b'0'..=b'7' => {
                let mut value = u32::from(escape - b'0');
                for _ in 0..2 {
                    match self.peek() {
                        Some(digit @ b'0'..=b'7') => {
                            self.advance(1);
                            value = value * 8 + u32::from(digit - b'0');
                        }
                        _ => break,
                    }
                }
                value as u8
            }
            b'x' => self.hexadecimal(2).map_or(b'x', |value| value as u8),
            b'u' | b'U' => {
                let most = if escape == b'u' { 4 } else { 8 };
                let character = self.hexadecimal(most).and_then(char::from_u32);
                let mut buffer = [0; 4];
                let text = character.unwrap_or('\u{fffd}').encode_utf8(&mut buffer);
                draft.bytes.extend_from_slice(text.as_bytes());
                return;
            }
            b'c' => match self.next() {
                Some(byte) => byte & 0x1f,
                None => return,
            },
            other => {
                draft.bytes.push(b'\\');
                other
            }
        };
        draft.bytes.push(plain);
    }

    fn hexadecimal(&mut self, most: usize) -> Option<u32> {
        let mut value = None;
        for _ in 0..most {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { break };
            self.advance(1);
            value = Some(value.unwrap_or(0) * 16 + digit);
        }
        value
    }

    /// Reads `` `…` ``: its text loses one layer of escapes, and is a script of its own.
    fn backtick(&mut self, draft: &mut Draft, quoted: bool) -> Result<(), Trouble> {
        let from = self.at;
        self.advance(1);
        let mut inner = Vec::new();
        loop {
            match self.next() {
                Some(b'`') => break,
                Some(b'\\') => match self.next() {
                    Some(next @ (b'$' | b'`' | b'\\')) => inner.push(next),
                    Some(b'"') if quoted => inner.push(b'"'),
                    Some(next) => inner.extend([b'\\', next]),
                    None => return Err(self.unended("a backtick")),
                },
                Some(byte) => inner.push(byte),
                None => return Err(self.unended("a backtick")),
            }
        }
        self.nested(&inner)?;
        self.unknown(draft, from);
        Ok(())
    }

    /// Reads an arithmetic expression after `((`, `$((` or `$[`. Only expansions in it run anything.
    pub(super) fn arithmetic(&mut self, close: u8) -> Result<(), Trouble> {
        self.enter()?;
        let open = if close == b')' { b'(' } else { b'[' };
        let mut depth = 0_usize;
        let mut ignored = Draft::default();
        loop {
            let Some(byte) = self.peek() else {
                return Err(self.unended("an arithmetic expression"));
            };
            match byte {
                byte if byte == open => {
                    depth += 1;
                    self.advance(1);
                }
                byte if byte == close && depth > 0 => {
                    depth -= 1;
                    self.advance(1);
                }
                byte if byte == close => {
                    self.advance(1);
                    if close == b')' && self.next() != Some(b')') {
                        // Two subshells, written without a blank between them: nobody does.
                        return Err(self.syntax("(( is not ended by ))"));
                    }
                    break;
                }
                b'$' => self.dollar(&mut ignored, true)?,
                b'`' => self.backtick(&mut ignored, true)?,
                b'"' => {
                    self.advance(1);
                    self.expanded(&mut ignored, Inside::Quotes)?;
                }
                b'\'' => return Err(self.syntax("a quote within an arithmetic expression")),
                b'\\' => self.advance(2),
                _ => self.advance(1),
            }
            ignored.bytes.clear();
        }
        self.leave();
        Ok(())
    }

    /// Reads the rest of `@(a|b)` and its like.
    fn pattern_list(&mut self) -> Result<(), Trouble> {
        self.enter()?;
        loop {
            let mut piece = Draft::default();
            self.go_on(&mut piece, false)?;
            match self.next() {
                Some(b')') => break,
                Some(b'|' | b' ' | b'<' | b'>' | b'&' | b';') => {}
                _ => return Err(self.unended("a pattern")),
            }
        }
        self.leave();
        Ok(())
    }

    /// Reads text in which only expansions mean something: the body of a here-document.
    pub(super) fn expansions(&mut self) -> Result<bool, Trouble> {
        let mut draft = Draft::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => self.advance(2),
                b'$' => self.dollar(&mut draft, true)?,
                b'`' => self.backtick(&mut draft, false)?,
                _ => self.advance(1),
            }
            draft.bytes.clear();
        }
        Ok(draft.dynamic)
    }
}

/// Tells whether a word so far ends with what makes `(` the begin of a pattern.
fn is_extended(draft: &Draft) -> bool {
    draft
        .bytes
        .last()
        .is_some_and(|byte| b"?*+@!".contains(byte))
}
