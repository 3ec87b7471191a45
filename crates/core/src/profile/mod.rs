//! Profiles: what is known about an agent, as data.
//!
//! A profile is strict TOML. It names the programs, the hosts of the model and of signing in, the
//! state in the home directory with what of it may come back, the variables, and the arguments by
//! which the agent's own sandbox and questions are switched off where ours hold.

mod command;
mod read;
mod state;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::{EffectivePolicy, Layer, Sourced};

pub use command::{Adapted, program_name};
pub use read::{profile_schema, read_profile};
pub use state::{KeyChange, StateChange, StateChangeKind, StateContent};

/// Version of the format that this version reads.
pub const PROFILE_SCHEMA: u32 = 1;

/// The name by which somebody says that no profile is wished.
pub const NO_PROFILE: &str = "none";

/// What is known about an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Version of this format: 1.
    pub schema: u32,
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The agent's name as people write it; else the name above.
    pub title: String,
    /// Names of its programs, without a directory.
    pub programs: Vec<String>,
    /// What of it nobody has tried, in words; said when the agent begins.
    pub untried: Vec<String>,
    /// Whether it is of use without a terminal.
    pub terminal: TerminalNeed,
    /// The hosts that it cannot do without.
    pub network: ProfileNetwork,
    /// What it finds in its environment.
    pub environment: ProfileEnvironment,
    /// How its command line is completed.
    pub command: ProfileCommand,
    /// How its sessions go on.
    pub resume: ProfileResume,
    /// Its state in the home directory.
    pub home: ProfileHome,
}

/// Whether an agent is of use without a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TerminalNeed {
    /// It runs as well without one.
    #[default]
    Optional,
    /// It does nothing without one.
    Required,
}

/// The hosts that an agent cannot do without.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileNetwork {
    /// Where its model is.
    pub model: Vec<String>,
    /// Where it signs in and renews its tokens.
    pub login: Vec<String>,
}

impl ProfileNetwork {
    /// Lists every host.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.model.iter().chain(&self.login).map(String::as_str)
    }
}

/// What an agent finds in its environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileEnvironment {
    /// Names of the caller's variables that come along, secrets included; written out, no patterns.
    pub pass: Vec<String>,
    /// Variables with their values: updates of its own off, needless traffic off.
    pub set: BTreeMap<String, String>,
}

/// How an agent's command line is completed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileCommand {
    /// Put behind the program's name, always.
    pub arguments: Vec<String>,
    /// Switch the agent's own sandbox off; only where walls of ours stand.
    pub inner_sandbox: Switch,
    /// Switch the agent's own questions off; only where walls of ours stand.
    pub questions: Switch,
    /// What the agent puts around the commands that it starts.
    pub preambles: Vec<Preamble>,
}

/// Something of an agent that is switched off where walls of ours stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Switch {
    /// Put behind the program's name.
    pub off: Vec<String>,
    /// Variables that do it.
    pub set: BTreeMap<String, String>,
    /// Words of a command line that say what the caller wants, so that nothing is put there.
    pub unless: Vec<String>,
    /// Said to the caller.
    pub say: String,
}

/// What an agent puts around the commands that it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Preamble {
    /// How such a command begins.
    pub begins: String,
    /// What stands right before the command itself.
    pub before: String,
    /// What stands right after it.
    pub after: String,
}

impl Preamble {
    /// Gives the command itself, `None` where this preamble is not around it.
    pub fn unwrap<'a>(&self, command: &'a str) -> Option<&'a str> {
        if !command.starts_with(&self.begins) {
            return None;
        }
        let (_, rest) = command.split_once(&self.before)?;
        if self.after.is_empty() {
            return Some(rest);
        }
        rest.rfind(&self.after).map(|end| &rest[..end])
    }
}

/// How an agent's sessions go on; the words after the program's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileResume {
    /// With the newest session of the directory.
    pub newest: Vec<String>,
    /// With a session by its id, which stands for `{id}`.
    pub by_id: Vec<String>,
}

/// An agent's state in the home directory. Paths are relative to it, with `/` between.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileHome {
    /// Files and directories that are copied in, what is more exact last. The last part may be a
    /// pattern; `{workspace}` stands for the workspace's path with `-` for all but letters and digits.
    pub state: Vec<String>,
    /// Patterns of what is never copied in.
    pub never: Vec<String>,
    /// Directories that are shown as they are, read-only: where the agent itself is installed.
    pub read: Vec<String>,
    /// State that a variable puts elsewhere.
    pub moved: Vec<Moved>,
    /// Patterns of transcripts: new ones come back, and what was written to the end of old ones.
    pub transcripts: Vec<String>,
    /// Patterns of files that come back in a newer form, when nobody else changed them meanwhile.
    pub rewritten: Vec<String>,
    /// Patterns of SQLite databases, which come back with what belongs to them.
    pub databases: Vec<String>,
    /// JSON and TOML files of which some keys come back.
    pub keys: Vec<KeyRule>,
    /// Questions of the agent that are answered in the private home, and nowhere else.
    pub answers: Vec<Answer>,
    /// Patterns of what is of no account: caches, locks, logs.
    pub ignore: Vec<String>,
    /// Patterns of files that hold credentials; nothing of their content is shown or kept.
    pub secret: Vec<String>,
    /// Places outside of the home directory that the agent writes to; `{uid}` stands for the user.
    pub places: Vec<String>,
}

/// State that a variable puts elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// The variable, whose value is a directory.
    pub variable: String,
    /// Where it stands in the home directory when the variable is not set.
    pub path: String,
    /// Where it stands below that directory; the directory itself when empty.
    #[serde(default)]
    pub below: String,
}

/// A question of the agent that the private home answers, so that it is not asked: whether this very
/// directory is trusted, for example.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The file, one of those of which keys come back; the answer never does.
    pub file: String,
    /// The key, with `.` between its parts; a part `{tree}` stands for the path of the task's tree.
    pub key: String,
    /// The answer: a text, a number, or a truth value.
    pub value: Value,
}

/// A JSON or TOML file of which some keys come back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRule {
    /// The file.
    pub file: String,
    /// The keys, with `.` between their parts; a last part `*` stands for every plain value there.
    pub keys: Vec<String>,
    /// The key that tells which of two forms is newer.
    #[serde(default)]
    pub newer_by: Option<String>,
    /// Keys that are of no account, with everything below them; `*` stands for any part.
    #[serde(default)]
    pub ignore: Vec<String>,
}

impl Profile {
    /// Lays what the profile wants below everything that an owner says.
    pub fn lay_under(&self, base: &mut EffectivePolicy) {
        for name in &self.environment.pass {
            base.env
                .allow
                .push(Sourced::new(name.clone(), Layer::BuiltIn));
        }
        for (name, value) in &self.environment.set {
            let value = Sourced::new(value.clone(), Layer::BuiltIn);
            base.env.set.insert(name.clone(), value);
        }
        let hosts = self.network.hosts().filter_map(|host| host.parse().ok());
        base.network_allow
            .extend(hosts.map(|host| Sourced::new(host, Layer::BuiltIn)));
    }

    /// Tells whether a program is the agent's.
    pub fn is_program(&self, name: &str) -> bool {
        self.programs.iter().any(|one| one == name)
    }
}

/// Writes a path as agents do that make one name of it: `-` for all but letters and digits.
pub fn dashed(path: &str) -> String {
    path.chars()
        .map(|one| {
            if one.is_ascii_alphanumeric() {
                one
            } else {
                '-'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_comes_off() {
        let preamble = Preamble {
            begins: "source ".to_owned(),
            before: "&& eval '".to_owned(),
            after: "' && pwd -P".to_owned(),
        };
        let text = "source x.sh || true && eval 'echo a' && pwd -P >| /tmp/c";
        assert_eq!(preamble.unwrap(text), Some("echo a"));
        assert_eq!(preamble.unwrap("echo a"), None);
        assert_eq!(preamble.unwrap("source x"), None);
    }

    #[test]
    fn a_path_becomes_one_name() {
        assert_eq!(dashed("/home/a.b/code"), "-home-a-b-code");
    }

    #[test]
    fn a_profile_lies_below_what_an_owner_says() {
        let mut base = EffectivePolicy::built_in();
        let mut profile = Profile::default();
        profile.environment.pass.push("X_API_KEY".to_owned());
        profile
            .environment
            .set
            .insert("X_UPDATE".to_owned(), "0".to_owned());
        profile.lay_under(&mut base);
        assert!(crate::plan::is_inheritable(&base, "X_API_KEY"));
        assert_eq!(base.env.set["X_UPDATE"].layer, Layer::BuiltIn);
    }
}
