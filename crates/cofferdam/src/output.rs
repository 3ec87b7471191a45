//! What the program says: results on standard output, everything else on standard error.

use std::io::{self, IsTerminal as _, Write as _};

use cofferdam_core::error::Problem;
use cofferdam_core::ports::PublishedPort;
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::render;

/// How results are to be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Writes what the program says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    /// Prints in a format.
    pub(crate) const fn new(format: Format) -> Self {
        Self { format }
    }

    /// Tells whether the results are for programs.
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints a result in the form that was asked for.
    pub(crate) fn result<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => object(value),
            Format::Text => self.text(&text(value)),
        }
    }

    /// Prints text for people, with colours where they can be seen.
    #[expect(clippy::unused_self, reason = "one door for all that is printed")]
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        let mut stream = anstream::stdout().lock();
        stream.write_all(text.as_bytes())?;
        if !text.ends_with('\n') && !text.is_empty() {
            stream.write_all(b"\n")?;
        }
        stream.flush()?;
        Ok(())
    }

    /// Prints one object on one line, at once, for a stream of them.
    #[expect(clippy::unused_self, reason = "one door for all that is printed")]
    pub(crate) fn line(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        let mut stream = io::stdout().lock();
        stream.write_all(&text)?;
        stream.flush()?;
        Ok(())
    }

    /// Says something beside the result; a closed standard error is no reason to stop.
    #[expect(clippy::unused_self, reason = "one door for all that is printed")]
    pub(crate) fn note(self, text: &str) {
        let mut stream = anstream::stderr().lock();
        let end = line_end();
        for line in text.lines() {
            let _ = write!(stream, "{}{end}", render::note(line));
        }
    }

    /// Says that a port was opened.
    pub(crate) fn published(self, port: &PublishedPort) {
        self.note(&render::published(port));
    }

    /// Says what failed on standard error.
    #[expect(clippy::unused_self, reason = "one door for all that is printed")]
    pub(crate) fn explain(self, problem: &Problem) {
        let _ = anstream::stderr()
            .lock()
            .write_all(render::problem(problem).as_bytes());
    }

    /// Says what failed, and with JSON also on standard output.
    pub(crate) fn problem(self, problem: &Problem, fields: &[(&str, serde_json::Value)]) {
        self.explain(problem);
        if self.is_json() {
            let mut whole = serde_json::Map::new();
            for (name, value) in fields {
                whole.insert((*name).to_owned(), value.clone());
            }
            whole.insert("error".to_owned(), json!(problem));
            let _ = object(&whole);
        }
    }
}

/// Gives the end of a line beside the result: a command that runs may have made the terminal its own,
/// and a raw one does not go back to the beginning by itself.
fn line_end() -> &'static str {
    if io::stderr().is_terminal() {
        "\r\n"
    } else {
        "\n"
    }
}

/// Prints one object: on one line for programs, indented where a person looks.
fn object(value: &impl Serialize) -> Result<(), Failure> {
    let stream = io::stdout();
    let mut text = if stream.is_terminal() {
        serde_json::to_vec_pretty(value)?
    } else {
        serde_json::to_vec(value)?
    };
    text.push(b'\n');
    let mut stream = stream.lock();
    stream.write_all(&text)?;
    stream.flush()?;
    Ok(())
}
