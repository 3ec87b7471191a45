//! From a command line to every simple command in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::harness::{self, Harness};
use super::shell::{self, Assignment, Redirection, Simple, Trouble, Work};
use super::word::Word;
use super::wrap::{Inner, unwrap};
use crate::bytes::BytePath;
use crate::limits::ARGUMENT_BYTES;

/// Most simple commands that are seen in one command line.
const MOST_COMMANDS: usize = 4096;
/// Most texts within texts, and commands before commands.
const MOST_LAYERS: usize = 16;

/// One simple command of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenCommand {
    /// Variables that are set for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
    /// Its words; none where only variables are set or streams are opened.
    pub words: Vec<Word>,
    /// Its streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirections: Vec<Redirection>,
    /// What runs it, from the outside in: `bash -c`, `sudo`, `xargs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// Whether all that it does is to run others that are listed too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_others: bool,
    /// Whose own it is, where an agent's harness put it around the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<Harness>,
}

impl SeenCommand {
    /// Gives one line for people.
    pub fn line(&self) -> String {
        let mut pieces: Vec<String> = self
            .assignments
            .iter()
            .map(|one| format!("{}={}", one.name, one.value.text))
            .collect();
        pieces.extend(self.words.iter().map(|word| word.text.clone()));
        pieces.extend(self.redirections.iter().map(|one| {
            let number = one.number.as_deref().unwrap_or_default();
            if one.operator == "<<" {
                format!("{number}<<…")
            } else {
                format!("{number}{}{}", one.operator, one.target.text)
            }
        }));
        pieces.join(" ")
    }
}

/// Something in a command line that nobody can tell before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unclear {
    /// Why not.
    pub why: String,
    /// On what: the command, or the begin of the text.
    pub on: String,
}

/// What was seen in a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Every simple command, in the order of the text; what runs another one stands before it.
    pub commands: Vec<SeenCommand>,
    /// What cannot be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclear: Vec<Unclear>,
    /// Bytes that were stepped over: a measure of the work.
    pub steps: usize,
}

/// Sees the commands of a text for a shell.
pub fn see_shell(text: &str) -> Seen {
    let mut seeing = Seeing::new(text.len());
    seeing.script(text.as_bytes(), &[]);
    seeing.finish()
}

/// Sees the commands of words that are started as they are.
pub fn see_argv(argv: &[BytePath]) -> Seen {
    let size = argv.iter().map(|word| word.as_bytes().len()).sum();
    let mut seeing = Seeing::new(size);
    if argv
        .iter()
        .any(|word| word.as_bytes().len() > ARGUMENT_BYTES)
    {
        seeing.unclear(&Trouble::TooLarge, &argv[0].to_text());
        return seeing.finish();
    }
    let words = argv
        .iter()
        .map(|word| Word::exact(word.to_text().into_owned()))
        .collect();
    let simple = Simple {
        words,
        ..Simple::default()
    };
    seeing.command(simple, &[]);
    seeing.finish()
}

struct Seeing {
    work: Work,
    seen: Seen,
}

impl Seeing {
    fn new(size: usize) -> Self {
        Self {
            work: Work {
                steps: 0,
                // Each text within a text is a part of it, and read once.
                most_steps: (size + 1024) * (MOST_LAYERS + 4),
                depth: 0,
                most_commands: MOST_COMMANDS,
                found: Vec::new(),
            },
            seen: Seen::default(),
        }
    }

    fn finish(mut self) -> Seen {
        self.seen.steps = self.work.steps;
        self.seen
    }

    fn unclear(&mut self, trouble: &Trouble, on: &str) {
        let why = match trouble {
            Trouble::Syntax(what) => format!("the text cannot be read: {what}"),
            Trouble::TooDeep => "the text is nested too deep".to_owned(),
            Trouble::TooLarge => "the text is too large".to_owned(),
        };
        self.say_unclear(why, on);
    }

    fn say_unclear(&mut self, why: String, on: &str) {
        if self.seen.unclear.len() < 64 {
            self.seen.unclear.push(Unclear {
                why,
                on: on.chars().take(200).collect(),
            });
        }
    }

    fn script(&mut self, text: &[u8], through: &[String]) {
        let shown = String::from_utf8_lossy(&text[..text.len().min(400)]).into_owned();
        if text.len() > ARGUMENT_BYTES {
            return self.unclear(&Trouble::TooLarge, &shown);
        }
        if through.len() > MOST_LAYERS {
            return self.unclear(&Trouble::TooDeep, &shown);
        }
        self.work.found.clear();
        self.work.depth = 0;
        if let Err(trouble) = shell::read(text, &mut self.work, 0) {
            // What was seen before stays: each of it runs, or nothing does.
            self.unclear(&trouble, &shown);
        }
        let found = std::mem::take(&mut self.work.found);
        let from = self.seen.commands.len();
        let mut top = Vec::with_capacity(found.len());
        for simple in found {
            if simple.level == 0 {
                top.push(self.seen.commands.len());
            }
            self.command(simple, through);
        }
        harness::mark(&mut self.seen.commands, &top, from);
    }

    fn command(&mut self, simple: Simple, through: &[String]) {
        if self.seen.commands.len() >= MOST_COMMANDS {
            return self.unclear(&Trouble::TooLarge, "");
        }
        let wrapped = unwrap(&simple.words, &simple.redirections);
        let seen = SeenCommand {
            assignments: simple.assignments,
            words: simple.words,
            redirections: simple.redirections,
            through: through.to_vec(),
            runs_others: wrapped.transparent,
            harness: None,
        };
        let line = seen.line();
        let own = seen.words.first().map(|word| word.text.clone());
        self.seen.commands.push(seen);
        if wrapped.inner.is_empty() {
            return;
        }
        let mut through = through.to_vec();
        through.extend(own);
        if through.len() > MOST_LAYERS {
            return self.unclear(&Trouble::TooDeep, &line);
        }
        for inner in wrapped.inner {
            match inner {
                Inner::Words { assignments, words } => {
                    let simple = Simple {
                        assignments,
                        words,
                        ..Simple::default()
                    };
                    self.command(simple, &through);
                }
                Inner::Script(text) => self.script(text.as_bytes(), &through),
                Inner::Unknown(why) => self.say_unclear(why.to_owned(), &line),
            }
        }
    }
}
