//! Commands that hold others: loops, conditions, groups and functions.

use super::shell::{Parser, Stop, Trouble};
use super::word::ends_word;

impl Parser<'_> {
    pub(super) fn command(&mut self) -> Result<(), Trouble> {
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
    pub(super) fn body(&mut self) -> Result<(), Trouble> {
        self.enter()?;
        self.newlines()?;
        self.command()?;
        self.leave();
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
}
