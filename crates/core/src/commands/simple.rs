//! Simple commands: assignments, words, redirections and the documents that follow them.

use super::shell::{Assignment, Parser, Redirection, Simple, Trouble};
use super::word::{Draft, Word, ends_word, is_name};

/// A here-document whose text is still to come.
#[derive(Debug)]
pub(super) struct Pending {
    delimiter: Vec<u8>,
    quoted: bool,
    strip: bool,
    body: usize,
}

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

impl Parser<'_> {
    pub(super) fn simple(&mut self) -> Result<(), Trouble> {
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
    pub(super) fn redirection(
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

    /// Takes redirections of a compound command: they stand as a command without words.
    pub(super) fn after_compound(&mut self) -> Result<(), Trouble> {
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

    pub(super) fn here_documents(&mut self) -> Result<(), Trouble> {
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
}
