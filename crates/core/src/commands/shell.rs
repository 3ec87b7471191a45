//! The grammar of the shell, read once from front to back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::word::{Draft, Word, ends_word, is_name};

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

#[derive(Debug)]
struct Pending {
    delimiter: Vec<u8>,
    quoted: bool,
    strip: bool,
    body: usize,
}

/// What ended a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    End,
    Paren,
    Case,
    Word(&'static str),
}

const RESERVED: &[&str] = &[
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "select", "case",
    "esac", "function", "{", "}", "!", "time", "coproc", "[[",
];

/// Builtins whose arguments may be assignments of arrays.
const DECLARING: &[&str] = &["declare", "typeset", "local", "export", "readonly"];

/// Tells whether a text is the name of an assignment and its `=`.
fn names_variable(text: &[u8]) -> bool {
    let Some(name) = text.strip_suffix(b"=") else {
        return false;
    };
    let name = name.strip_suffix(b"+").unwrap_or(name);
    is_name(name.split(|byte| *byte == b'[').next().unwrap_or_default())
}

#[derive(Debug)]
pub(super) struct Parser<'a> {
    input: &'a [u8],
    pub(super) at: usize,
    work: &'a mut Work,
    pending: Vec<Pending>,
    bodies: Vec<Word>,
    level: usize,
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

    fn blanks(&mut self) {
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
    fn newlines(&mut self) -> Result<(), Trouble> {
        loop {
            self.blanks();
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.advance(1);
            self.here_documents()?;
        }
    }

    fn here_documents(&mut self) -> Result<(), Trouble> {
        for pending in std::mem::take(&mut self.pending) {
            let mut body = Vec::new();
            // Without its last line a here-document goes on to the end of the text, as in the shell.
            while self.at < self.input.len() {
                let rest = &self.input[self.at..];
                let length = rest.iter().position(|byte| *byte == b'\n');
                let line = &rest[..length.unwrap_or(rest.len())];
                let mut own = line;
                while let (true, [b'\t', tail @ ..]) = (pending.strip, own) {
                    own = tail;
                }
                let is_last = own == pending.delimiter;
                if !is_last {
                    body.extend_from_slice(own);
                    body.push(b'\n');
                }
                self.advance(line.len() + 1);
                if is_last {
                    break;
                }
            }
            let dynamic = if pending.quoted {
                false
            } else {
                self.enter()?;
                let mut inner = Parser {
                    input: &body,
                    at: 0,
                    work: self.work,
                    pending: Vec::new(),
                    bodies: Vec::new(),
                    level: self.level + 1,
                };
                let dynamic = inner.expansions()?;
                self.leave();
                dynamic
            };
            let text = String::from_utf8_lossy(&body).into_owned();
            self.bodies[pending.body] = Word {
                text,
                exact: !dynamic,
            };
        }
        Ok(())
    }

    /// Looks whether a reserved word stands here; it is not taken.
    fn reserved(&self) -> Option<&'static str> {
        let rest = &self.input[self.at..];
        RESERVED.iter().copied().find(|word| {
            rest.strip_prefix(word.as_bytes()).is_some_and(|after| {
                let byte = after.first().copied();
                byte.is_none_or(ends_word)
            })
        })
    }

    /// Reads commands up to what closes them, which is taken.
    fn list(&mut self) -> Result<Stop, Trouble> {
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

    fn expect_list(&mut self, wanted: &[&'static str]) -> Result<&'static str, Trouble> {
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

    fn command(&mut self) -> Result<(), Trouble> {
        match self.reserved() {
            Some("if") => {
                self.advance(2);
                self.expect_list(&["then"])?;
                while self.expect_list(&["then", "elif", "else", "fi"])? != "fi" {
                    // Their order decides nothing about what is seen.
                }
                self.after_compound()
            }
            Some(word @ ("while" | "until")) => {
                self.advance(word.len());
                self.expect_list(&["do"])?;
                self.expect_list(&["done"])?;
                self.after_compound()
            }
            Some(word @ ("for" | "select")) => {
                self.advance(word.len());
                self.loop_head()?;
                self.after_compound()
            }
            Some("case") => {
                self.advance(4);
                self.case()?;
                self.after_compound()
            }
            Some("{") => {
                self.advance(1);
                self.expect_list(&["}"])?;
                self.after_compound()
            }
            Some("[[") => {
                self.advance(2);
                self.condition()?;
                self.after_compound()
            }
            Some("function") => {
                self.advance(8);
                self.blanks();
                self.word()?;
                self.blanks();
                if self.peek() == Some(b'(') {
                    self.advance(1);
                    self.blanks();
                    if self.next() != Some(b')') {
                        return Err(self.syntax("a function is badly begun"));
                    }
                }
                self.body()
            }
            Some(_) => Err(self.syntax("a reserved word stands where a command begins")),
            None if self.peek() == Some(b'(') => {
                self.advance(1);
                if self.peek() == Some(b'(') {
                    self.advance(1);
                    self.arithmetic(b')')?;
                } else if self.list()? != Stop::Paren {
                    return Err(self.unended("a subshell"));
                }
                self.after_compound()
            }
            None => self.simple(),
        }
    }

    /// Reads the body of a function.
    fn body(&mut self) -> Result<(), Trouble> {
        self.enter()?;
        self.newlines()?;
        self.command()?;
        self.leave();
        Ok(())
    }

    /// Takes redirections of a compound command: they stand as a command without words.
    fn after_compound(&mut self) -> Result<(), Trouble> {
        let mut holder = Simple {
            level: self.level,
            ..Simple::default()
        };
        loop {
            self.blanks();
            let from = self.at;
            let digits = self.input[self.at..]
                .iter()
                .take(4)
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            self.advance(digits);
            let number =
                (digits > 0).then(|| String::from_utf8_lossy(self.slice(from)).into_owned());
            if !self.redirection(&mut holder, number)? {
                self.at = from;
                break;
            }
        }
        if !holder.redirections.is_empty() {
            self.add(holder)?;
        }
        Ok(())
    }

    fn add(&mut self, command: Simple) -> Result<(), Trouble> {
        if self.work.found.len() >= self.work.most_commands
            || self.work.steps > self.work.most_steps
        {
            return Err(Trouble::TooLarge);
        }
        self.work.found.push(command);
        Ok(())
    }

    fn loop_head(&mut self) -> Result<(), Trouble> {
        self.blanks();
        if self.peek() == Some(b'(') && self.peek_at(1) == Some(b'(') {
            self.advance(2);
            self.arithmetic(b')')?;
        } else {
            self.word()?;
            self.newlines()?;
            if self.input[self.at..].starts_with(b"in") && self.peek_at(2).is_none_or(ends_word) {
                self.advance(2);
                self.blanks();
                while self
                    .peek()
                    .is_some_and(|byte| byte != b'\n' && byte != b';')
                {
                    if self.peek().is_some_and(ends_word) && !self.is_substitution() {
                        return Err(self.syntax("the words of a loop are badly ended"));
                    }
                    self.word()?;
                    self.blanks();
                }
            }
        }
        self.blanks();
        if self.peek() == Some(b';') {
            self.advance(1);
        }
        self.newlines()?;
        match self.reserved() {
            Some("do") => {
                self.advance(2);
                self.expect_list(&["done"])?;
            }
            Some("{") => {
                self.advance(1);
                self.expect_list(&["}"])?;
            }
            _ => return Err(self.syntax("do is missing")),
        }
        Ok(())
    }

    fn is_substitution(&self) -> bool {
        matches!(self.peek(), Some(b'<' | b'>')) && self.peek_at(1) == Some(b'(')
    }

    fn case(&mut self) -> Result<(), Trouble> {
        self.enter()?;
        self.blanks();
        self.word()?;
        self.newlines()?;
        if !self.input[self.at..].starts_with(b"in") {
            return Err(self.syntax("in is missing"));
        }
        self.advance(2);
        loop {
            self.newlines()?;
            if self.reserved() == Some("esac") {
                self.advance(4);
                break;
            }
            if self.peek() == Some(b'(') {
                self.advance(1);
            }
            loop {
                self.blanks();
                self.word()?;
                self.blanks();
                match self.next() {
                    Some(b'|') => {}
                    Some(b')') => break,
                    _ => return Err(self.syntax("a pattern is badly ended")),
                }
            }
            match self.list()? {
                Stop::Case => {}
                Stop::Word("esac") => break,
                _ => return Err(self.unended("case")),
            }
        }
        self.leave();
        Ok(())
    }

    /// Reads `[[ … ]]`: no command of it runs but those of its expansions.
    fn condition(&mut self) -> Result<(), Trouble> {
        loop {
            self.blanks();
            let rest = &self.input[self.at..];
            if rest.starts_with(b"]]") && rest.get(2).copied().is_none_or(ends_word) {
                self.advance(2);
                return Ok(());
            }
            match self.peek() {
                None => return Err(self.unended("[[")),
                Some(byte) if ends_word(byte) && !self.is_substitution() => self.advance(1),
                Some(_) => {
                    self.word()?;
                }
            }
        }
    }

    fn simple(&mut self) -> Result<(), Trouble> {
        let mut command = Simple {
            level: self.level,
            ..Simple::default()
        };
        let from = self.at;
        loop {
            self.blanks();
            let Some(byte) = self.peek() else { break };
            match byte {
                b'&' if self.peek_at(1) == Some(b'>') => {
                    self.redirection(&mut command, None)?;
                }
                b'\n' | b';' | b'&' | b'|' | b')' => break,
                b'(' => return self.function(&command),
                b'<' | b'>' if !self.is_substitution() => {
                    self.redirection(&mut command, None)?;
                }
                _ => self.piece(&mut command)?,
            }
        }
        if self.at == from {
            return Err(self.syntax("a command is missing"));
        }
        self.add(command)
    }

    /// Reads an assignment, a word, or the number before a redirection.
    fn piece(&mut self, command: &mut Simple) -> Result<(), Trouble> {
        let mut draft = Draft::default();
        let before = command.words.is_empty();
        let declares = command
            .words
            .first()
            .is_some_and(|word| DECLARING.contains(&word.text.as_str()));
        let from = self.at;
        self.go_on(&mut draft, before || declares)?;
        if (before || declares) && names_variable(self.slice(from)) {
            let mut name = draft.into_word().text;
            name.pop();
            let value = if self.peek() == Some(b'(') {
                self.advance(1);
                self.array()?
            } else {
                self.word()?.into_word()
            };
            if before {
                command.assignments.push(Assignment { name, value });
            } else {
                command.words.push(Word {
                    text: format!("{name}={}", value.text),
                    exact: value.exact,
                });
            }
            return Ok(());
        }
        let before_redirection =
            matches!(self.peek(), Some(b'<' | b'>')) && !draft.quoted && !self.is_substitution();
        let word = draft.into_word();
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        let is_variable = word.text.starts_with('{') && word.text.ends_with('}');
        if before_redirection && (is_number || is_variable) {
            return self.redirection(command, Some(word.text)).map(|_| ());
        }
        command.words.push(word);
        Ok(())
    }

    fn array(&mut self) -> Result<Word, Trouble> {
        loop {
            self.newlines()?;
            match self.peek() {
                Some(b')') => {
                    self.advance(1);
                    return Ok(Word::unknown("(…)"));
                }
                Some(byte) if ends_word(byte) && !self.is_substitution() => {
                    return Err(self.syntax("an array is badly ended"));
                }
                Some(_) => {
                    self.word()?;
                }
                None => return Err(self.unended("an array")),
            }
        }
    }

    fn function(&mut self, command: &Simple) -> Result<(), Trouble> {
        self.advance(1);
        self.blanks();
        let is_begun = command.words.len() == 1
            && command.assignments.is_empty()
            && command.redirections.is_empty()
            && self.next() == Some(b')');
        if !is_begun {
            return Err(self.syntax("a parenthesis stands within a command"));
        }
        self.body()
    }

    /// Reads one redirection; tells whether there was one.
    fn redirection(
        &mut self,
        command: &mut Simple,
        number: Option<String>,
    ) -> Result<bool, Trouble> {
        const OPERATORS: &[&str] = &[
            "&>>", "<<<", "<<-", "&>", "<<", ">>", "<&", ">&", "<>", ">|", "<", ">",
        ];
        let rest = &self.input[self.at..];
        let found = OPERATORS
            .iter()
            .find(|operator| rest.starts_with(operator.as_bytes()));
        let Some(operator) = found.filter(|_| !self.is_substitution()) else {
            return Ok(false);
        };
        self.advance(operator.len());
        self.blanks();
        let from = self.at;
        let draft = self.word()?;
        if self.at == from {
            return Err(self.syntax("a redirection has no target"));
        }
        let quoted = draft.quoted;
        let target = draft.into_word();
        if !matches!(*operator, "<<" | "<<-") {
            command.redirections.push(Redirection {
                number,
                operator: (*operator).to_owned(),
                target,
            });
            return Ok(true);
        }
        let body = self.bodies.len();
        self.bodies.push(Word::default());
        self.pending.push(Pending {
            delimiter: target.text.into_bytes(),
            quoted,
            strip: *operator == "<<-",
            body,
        });
        command.redirections.push(Redirection {
            number,
            operator: format!("<<#{body}"),
            target: Word::default(),
        });
        Ok(true)
    }
}
