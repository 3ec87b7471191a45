//! How an agent is found in a command line, and how that is completed.

use super::{Profile, Switch};
use crate::bytes::BytePath;

/// A command line with what the profile adds to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adapted {
    /// The words.
    pub argv: Vec<BytePath>,
    /// Variables that hold for the agent, by name.
    pub set: Vec<(String, String)>,
    /// What the caller is told.
    pub said: Vec<String>,
}

/// Finds the program in a command line: the first word, or the one that `env` starts.
fn program_index(argv: &[BytePath]) -> Option<usize> {
    let mut words = argv.iter().enumerate();
    let (_, first) = words.next()?;
    if first.file_name() != b"env" {
        return Some(0);
    }
    // What is an option here might take the next word: such a line is left as it is.
    words
        .find(|(_, word)| !word.as_bytes().contains(&b'='))
        .filter(|(_, word)| !word.as_bytes().starts_with(b"-"))
        .map(|(index, _)| index)
}

/// Gives the name of the program that a command line starts, also through `env NAME=VALUE…`.
pub fn program_name(argv: &[BytePath]) -> Option<String> {
    let index = program_index(argv)?;
    String::from_utf8(argv[index].file_name().to_vec()).ok()
}

impl Profile {
    /// Completes a command line; `walled` tells whether walls of ours stand around it.
    ///
    /// Without walls the agent's own sandbox and questions stay as they are.
    pub fn adapt(&self, argv: &[BytePath], walled: bool) -> Adapted {
        let mut adapted = Adapted {
            argv: argv.to_vec(),
            ..Adapted::default()
        };
        let index = program_index(argv).filter(|index| {
            let name = argv[*index].file_name();
            self.programs.iter().any(|one| one.as_bytes() == name)
        });
        let mut more: Vec<&str> = Vec::new();
        if index.is_some() {
            more.extend(self.command.arguments.iter().map(String::as_str));
        }
        let switches = [&self.command.inner_sandbox, &self.command.questions];
        for switch in switches.into_iter().filter(|_| walled) {
            if switch.is_wished_for(argv) {
                continue;
            }
            if index.is_some() {
                more.extend(switch.off.iter().map(String::as_str));
            }
            let set = switch.set.iter();
            adapted
                .set
                .extend(set.map(|(name, value)| (name.clone(), value.clone())));
            // Half of it is not said to be the whole.
            let whole = index.is_some() || switch.off.is_empty();
            if whole && !switch.say.is_empty() {
                adapted.said.push(switch.say.clone());
            }
        }
        let wanted = !self.command.arguments.is_empty()
            || !self.command.inner_sandbox.off.is_empty()
            || !self.command.questions.off.is_empty();
        if let Some(index) = index {
            let more = more.into_iter().map(BytePath::from);
            adapted.argv.splice(index + 1..=index, more);
        } else if wanted {
            adapted.said.push(format!(
                "no program of {} stands in the command line, so it is left as it is",
                self.title
            ));
        }
        adapted
    }
}

impl Switch {
    /// Tells whether the caller says what is wanted.
    fn is_wished_for(&self, argv: &[BytePath]) -> bool {
        argv.iter().any(|word| {
            let word = word.as_bytes();
            self.unless.iter().any(|one| {
                let one = one.as_bytes();
                word == one
                    || word
                        .strip_prefix(one)
                        .is_some_and(|rest| rest.starts_with(b"="))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<BytePath> {
        text.split(' ').map(BytePath::from).collect()
    }

    fn profile() -> Profile {
        let mut profile = Profile {
            title: "Agent".to_owned(),
            programs: vec!["agent".to_owned()],
            ..Profile::default()
        };
        profile.command.questions = Switch {
            off: vec!["--yes".to_owned()],
            unless: vec!["--yes".to_owned(), "--ask".to_owned()],
            say: "questions are off".to_owned(),
            ..Switch::default()
        };
        profile
    }

    #[test]
    fn a_program_is_found_also_through_env() {
        let name = |text| program_name(&words(text));
        assert_eq!(name("/opt/bin/agent -p x").as_deref(), Some("agent"));
        assert_eq!(name("env A=1 B=2 agent x").as_deref(), Some("agent"));
        assert_eq!(name("env -i agent"), None);
        assert_eq!(name("env A=1"), None);
    }

    #[test]
    fn words_go_behind_the_program() {
        let adapted = profile().adapt(&words("env A=1 agent run x"), true);
        assert_eq!(adapted.argv, words("env A=1 agent --yes run x"));
        assert_eq!(adapted.said, ["questions are off"]);
    }

    #[test]
    fn what_the_caller_says_holds() {
        for text in ["agent --yes", "agent --ask=all"] {
            assert_eq!(profile().adapt(&words(text), true).argv, words(text));
        }
    }

    #[test]
    fn nothing_is_switched_off_without_walls() {
        let adapted = profile().adapt(&words("agent x"), false);
        assert_eq!(adapted.argv, words("agent x"));
        assert!(adapted.said.is_empty());
    }

    #[test]
    fn another_program_is_left_as_it_is_and_that_is_said() {
        let adapted = profile().adapt(&words("sh -c agent"), true);
        assert_eq!(adapted.argv, words("sh -c agent"));
        assert_eq!(adapted.said.len(), 1);
    }
}
