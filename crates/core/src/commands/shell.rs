//! The grammar of the shell, read once from front to back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::simple::Pending;
use super::word::{Word, ends_word, is_name};

/// Most levels of nesting that are followed.
pub(super) const MOST_DEPTH: usize = 64;

/// One simple command as it stands in a shell text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Simple {
    pub(super) assignments: Vec<Assignment>,
    pub(super) words: Vec<Word>,
    pub(super) redirections: Vec<Redirection>,
    /// The level of substitution at which it stands.
    pub(super) level: usize,
}

/// A variable that is set for a command, or for the shell itself where there is no command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Its name, with an index where it has one.
    pub name: String,
    /// Its value.
    pub value: Word,
}

/// Where a stream of a command comes from or goes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirection {
    /// The number of the stream, where it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
    /// The operator, without the number before it.
    pub operator: String,
    /// A file, a number after `<&` and `>&`, or the text of a here-document.
    pub target: Word,
}

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    Syntax(String),
    TooDeep,
    TooLarge,
}

/// What is counted and bounded over a text and every text within it.
#[derive(Debug)]
pub(super) struct Work {
    /// Bytes that were stepped over.
    pub(super) steps: usize,
    pub(super) most_steps: usize,
    pub(super) depth: usize,
    pub(super) most_commands: usize,
    pub(super) found: Vec<Simple>,
}

/// What ended a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    End,
    Paren,
    Case,
    Word(&'static str),
}

const RESERVED: &[&str] = &[
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "select", "case",
    "esac", "function", "{", "}", "!", "time", "coproc", "[[",
];

#[derive(Debug)]
pub(super) struct Parser<'a> {
    pub(super) input: &'a [u8],
    pub(super) at: usize,
    pub(super) work: &'a mut Work,
    pub(super) pending: Vec<Pending>,
    pub(super) bodies: Vec<Word>,
    pub(super) level: usize,
}

/// Reads a whole text; what it finds is added to `work`.
pub(super) fn read(text: &[u8], work: &mut Work, level: usize) -> Result<(), Trouble> {
    let from = work.found.len();
    let mut parser = Parser {
        input: text,
        at: 0,
        work,
        pending: Vec::new(),
        bodies: Vec::new(),
        level,
    };
    if parser.list()? != Stop::End {
        return Err(parser.syntax("something is closed that was not opened"));
    }
    parser.here_documents()?;
    let bodies = std::mem::take(&mut parser.bodies);
    for redirection in work.found[from..]
        .iter_mut()
        .flat_map(|one| &mut one.redirections)
    {
        if let Some(body) = body_of(redirection).and_then(|body| bodies.get(body)) {
            redirection.target = body.clone();
            redirection.operator.truncate(2);
        }
    }
    Ok(())
}

/// Finds the body of a here-document, whose number stands in the operator until it was read.
fn body_of(redirection: &Redirection) -> Option<usize> {
    redirection.operator.strip_prefix("<<#")?.parse().ok()
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, offset: usize) -> Option<u8> {
        self.input.get(self.at + offset).copied()
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.work.steps += count;
        self.at = (self.at + count).min(self.input.len());
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.advance(1);
        Some(byte)
    }

    pub(super) fn slice(&self, from: usize) -> &[u8] {
        &self.input[from..self.at]
    }

    pub(super) fn syntax(&self, what: &str) -> Trouble {
        Trouble::Syntax(format!("{what}, at byte {}", self.at))
    }

    pub(super) fn unended(&self, what: &str) -> Trouble {
        self.syntax(&format!("{what} does not end"))
    }

    pub(super) fn enter(&mut self) -> Result<(), Trouble> {
        self.work.depth += 1;
        if self.work.depth > MOST_DEPTH {
            return Err(Trouble::TooDeep);
        }
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.work.depth -= 1;
    }

    /// Reads a command substitution after its opening parenthesis.
    pub(super) fn substituted(&mut self) -> Result<(), Trouble> {
        self.level += 1;
        let stop = self.list()?;
        self.level -= 1;
        if stop == Stop::Paren {
            return Ok(());
        }
        Err(self.unended("a substitution"))
    }

    /// Reads `${ command; }` after its opening.
    pub(super) fn braced(&mut self) -> Result<(), Trouble> {
        self.level += 1;
        let stop = self.list()?;
        self.level -= 1;
        if stop == Stop::Word("}") {
            return Ok(());
        }
        Err(self.unended("${"))
    }

    /// Reads a text of its own, as backticks hold one.
    pub(super) fn nested(&mut self, text: &[u8]) -> Result<(), Trouble> {
        self.enter()?;
        read(text, self.work, self.level + 1)?;
        self.leave();
        Ok(())
    }

    pub(super) fn blanks(&mut self) {
        loop {
            match (self.peek(), self.peek_at(1)) {
                (Some(b' ' | b'\t'), _) => self.advance(1),
                (Some(b'\\'), Some(b'\n')) => self.advance(2),
                _ => break,
            }
        }
        if self.peek() == Some(b'#') {
            while self.peek().is_some_and(|byte| byte != b'\n') {
                self.advance(1);
            }
        }
    }

    /// Skips blanks and newlines; here-documents are read where their line ends.
    pub(super) fn newlines(&mut self) -> Result<(), Trouble> {
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.advance(1);
            self.here_documents()?;
        }
    }

    /// Looks whether a reserved word stands here; it is not taken.
    pub(super) fn reserved(&self) -> Option<&'static str> {
        let rest = &self.input[self.at..];
        RESERVED.iter().copied().find(|word| {
            rest.strip_prefix(word.as_bytes()).is_some_and(|after| {
                let byte = after.first().copied();
                byte.is_none_or(ends_word)
            })
        })
    }

    /// Reads commands up to what closes them, which is taken.
    pub(super) fn list(&mut self) -> Result<Stop, Trouble> {
        self.enter()?;
        let stop = loop {
            self.newlines()?;
            let Some(byte) = self.peek() else {
                break Stop::End;
            };
            if byte == b')' {
                self.advance(1);
                break Stop::Paren;
            }
            if byte == b';' && matches!(self.peek_at(1), Some(b';' | b'&')) {
                self.advance(2);
                if self.peek() == Some(b'&') {
                    self.advance(1);
                }
                break Stop::Case;
            }
            if let Some(word @ ("then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}")) =
                self.reserved()
            {
                self.advance(word.len());
                break Stop::Word(word);
            }
            self.pipeline()?;
            self.blanks();
            match (self.peek(), self.peek_at(1)) {
                (Some(b'&'), Some(b'&')) | (Some(b'|'), Some(b'|' | b'&')) => {
                    self.advance(2);
                    self.follows()?;
                }
                (Some(b'|'), _) => {
                    self.advance(1);
                    self.follows()?;
                }
                (Some(b';'), Some(b';' | b'&')) | (None | Some(b')' | b'\n'), _) => {}
                (Some(b';' | b'&'), _) => self.advance(1),
                // A compound command is ended by its own last word.
                _ if self.reserved().is_some() => {}
                _ => return Err(self.syntax("something follows a command")),
            }
        };
        self.leave();
        Ok(stop)
    }

    /// Takes the newlines after `&&` and its like; a command has to follow.
    fn follows(&mut self) -> Result<(), Trouble> {
        self.newlines()?;
        match self.peek() {
            None | Some(b')' | b';' | b'&' | b'|') => Err(self.syntax("a command is missing")),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn expect_list(&mut self, wanted: &[&'static str]) -> Result<&'static str, Trouble> {
        match self.list()? {
            Stop::Word(word) if wanted.contains(&word) => Ok(word),
            _ => Err(self.syntax(&format!("{} is missing", wanted.join(" or ")))),
        }
    }

    fn pipeline(&mut self) -> Result<(), Trouble> {
        loop {
            self.blanks();
            match self.reserved() {
                Some(word @ ("!" | "time" | "coproc")) => {
                    self.advance(word.len());
                    self.blanks();
                    if word == "coproc" {
                        self.coprocess_name();
                    }
                    while word == "time" && self.peek() == Some(b'-') {
                        self.word()?;
                        self.blanks();
                    }
                    if self.peek().is_none_or(|byte| b"\n;&|)".contains(&byte)) {
                        return Ok(());
                    }
                }
                _ if self.peek() == Some(b'!') && self.peek_at(1) == Some(b'(') => self.advance(1),
                _ => return self.command(),
            }
        }
    }

    /// Skips the name of a coprocess, which only stands before a compound command.
    fn coprocess_name(&mut self) {
        let from = self.at;
        let rest = &self.input[self.at..];
        let length = rest.iter().take(64).position(|byte| ends_word(*byte));
        let Some(length) = length.filter(|length| is_name(&rest[..*length])) else {
            return;
        };
        self.advance(length);
        self.blanks();
        if self.reserved().is_none() && self.peek() != Some(b'(') {
            self.at = from;
        }
    }

    pub(super) fn add(&mut self, command: Simple) -> Result<(), Trouble> {
        if self.work.found.len() >= self.work.most_commands
            || self.work.steps > self.work.most_steps
        {
            return Err(Trouble::TooLarge);
        }
        self.work.found.push(command);
        Ok(())
    }

    pub(super) fn is_substitution(&self) -> bool {
        matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) == Some(b'(')
    }
}
