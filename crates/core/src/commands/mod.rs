//! Rules about commands: what a command line would run, and what the owner says about it.
//!
//! A command line is read with the grammar of the shell, so that every simple command in it is seen:
//! in pipelines and lists, subshells and functions, loops, substitutions, and behind what runs
//! another command (`bash -c`, `eval`, `env`, `xargs`, `find -exec`, `sudo` and their like). Each is
//! judged by [`CommandRule`](crate::policy::CommandRule)s and the strictest judgement wins.
//!
//! **This is advice, not a wall.** A program may do anything under any name; what holds is the
//! enclosure. Rules keep honest mistakes away and say why, nothing more.
//!
//! Reading is linear in the length of the text and bounded in depth: what is too large or too deep
//! cannot be told, and never takes long. It is our own reading because of that: the shell parsers
//! that were tried either take exponential time on nested parentheses or come under a licence that
//! this project cannot take.

mod compound;
mod harness;
mod judge;
mod rule;
mod see;
mod shell;
mod simple;
mod word;
mod wrap;

pub use harness::Harness;
pub use judge::{CommandJudgement, CommandRuleReference, Judged, JudgedCommand, judge};
pub use rule::{
    CompiledRules, MOST_EXAMPLES, MOST_RULE_CHARACTERS, MOST_RULES, check_command_rules,
};
pub use see::{Seen, SeenCommand, Unclear, see_argv, see_shell};
pub use shell::{Assignment, Redirection};
pub use word::Word;
