//! What the rules say about a whole command line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{CompiledRules, Fires, changes_nothing_else};
use super::see::{Seen, SeenCommand, Unclear};
use super::wrap::program_name;
use crate::bytes::BytePath;
use crate::decide::Verdict;
use crate::policy::{CommandDecision, CommandRule, Layer, Sourced};

/// A rule, as it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRuleReference {
    /// Which layer has it.
    pub layer: Layer,
    /// Its words, with what has to stand after them.
    pub rule: String,
    /// What it decides.
    pub decision: CommandDecision,
    /// Why, as its owner says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
}

impl CommandRuleReference {
    fn new(rule: &Sourced<CommandRule>) -> Self {
        let mut text = rule.value.command.join(" ");
        if !rule.value.has.is_empty() {
            text.push_str(" … ");
            text.push_str(&rule.value.has.join(" … "));
        }
        Self {
            layer: rule.layer,
            rule: text,
            decision: rule.value.decision,
            justification: rule.value.justification.clone(),
        }
    }

    /// Gives the name by which a denial refers to it.
    pub fn name(&self) -> String {
        format!("commands ({}): {}", self.layer, self.rule)
    }
}

/// What was found about one simple command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// A rule allows it.
    Allow,
    /// A rule asks.
    Ask,
    /// A rule denies it.
    Deny,
    /// No rule says anything.
    Unmatched,
    /// Whether a rule fires is only known when it runs.
    Unclear,
    /// There is nothing to decide: it only runs what is listed too, or is the shell's own and
    /// changes nothing.
    Nothing,
    /// An agent's harness put it there.
    Harness,
}

impl Judged {
    /// Gives the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Unmatched => "unmatched",
            Self::Unclear => "unclear",
            Self::Nothing => "nothing",
            Self::Harness => "harness",
        }
    }
}

/// A simple command and what was found about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgedCommand {
    /// The command, in one line.
    pub line: String,
    /// What runs it, from the outside in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// What was found.
    pub judged: Judged,
    /// The rule that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<CommandRuleReference>,
}

/// What the rules say about a command line. Advice: the walls are what holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandJudgement {
    /// The strictest of all.
    pub verdict: Verdict,
    /// Why, in one sentence.
    pub why: String,
    /// The rule that decided it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<CommandRuleReference>,
    /// The simple command that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Each simple command.
    pub commands: Vec<JudgedCommand>,
    /// What cannot be told before it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclear: Vec<Unclear>,
    /// Whether walls stand around the command: then what no rule names is allowed.
    pub walls: bool,
    /// Always true: rules about commands advise, and a program may do anything under any name.
    pub advisory: bool,
}

impl CommandJudgement {
    /// Lists what no rule names or nobody can tell.
    pub fn unsettled(&self) -> impl Iterator<Item = &str> {
        self.commands
            .iter()
            .filter(|one| matches!(one.judged, Judged::Unmatched | Judged::Unclear))
            .map(|one| one.line.as_str())
            .chain(self.unclear.iter().map(|one| one.on.as_str()))
    }
}

/// Judges what was seen. Behind `walls`, what no rule names is allowed; else somebody is asked.
/// `root` is the directory within which `cd` changes nothing.
pub fn judge(
    rules: &CompiledRules,
    seen: &Seen,
    walls: bool,
    root: Option<&BytePath>,
) -> CommandJudgement {
    let commands: Vec<JudgedCommand> = seen
        .commands
        .iter()
        .map(|command| judge_one(rules, command, root))
        .collect();
    let find = |wanted: Judged| commands.iter().find(|one| one.judged == wanted);
    let told = |why: &str, one: &JudgedCommand| {
        let reason = one
            .rule
            .as_ref()
            .and_then(|rule| rule.justification.as_deref());
        match reason {
            Some(reason) => format!("{why} `{}`: {reason}", one.line),
            None => format!("{why} `{}`", one.line),
        }
    };
    let (verdict, why, by) = if let Some(one) = find(Judged::Deny) {
        (Verdict::Deny, told("a rule denies", one), Some(one))
    } else if let Some(one) = find(Judged::Ask) {
        (Verdict::Ask, told("a rule asks about", one), Some(one))
    } else if let Some(unclear) = seen.unclear.first() {
        (
            settle(walls),
            format!("{}: `{}`", unclear.why, unclear.on),
            None,
        )
    } else if let Some(one) = find(Judged::Unclear).or_else(|| find(Judged::Unmatched)) {
        (settle(walls), told("no rule settles", one), Some(one))
    } else {
        let why = "rules allow every command that was seen";
        (Verdict::Allow, why.to_owned(), find(Judged::Allow))
    };
    CommandJudgement {
        verdict,
        why,
        rule: by.and_then(|one| one.rule.clone()),
        on: by.map(|one| one.line.clone()),
        unclear: seen.unclear.clone(),
        commands,
        walls,
        advisory: true,
    }
}

const fn settle(walls: bool) -> Verdict {
    if walls { Verdict::Allow } else { Verdict::Ask }
}

fn judge_one(
    rules: &CompiledRules,
    command: &SeenCommand,
    root: Option<&BytePath>,
) -> JudgedCommand {
    let found = |judged, rule: Option<&Sourced<CommandRule>>| JudgedCommand {
        line: command.line(),
        through: command.through.clone(),
        judged,
        rule: rule.map(CommandRuleReference::new),
    };
    if command.harness.is_some() {
        return found(Judged::Harness, None);
    }
    let firing = rules.firing(command);
    for (decision, judged) in [
        (CommandDecision::Deny, Judged::Deny),
        (CommandDecision::Ask, Judged::Ask),
    ] {
        if let Some((_, rule, _)) = firing
            .iter()
            .find(|(_, rule, fires)| rule.value.decision == decision && *fires == Fires::Yes)
        {
            return found(judged, Some(rule));
        }
    }
    if let Some((_, rule, _)) = firing.iter().find(|(_, _, fires)| *fires == Fires::Maybe) {
        return found(Judged::Unclear, Some(rule));
    }
    if let Some((_, rule, _)) = firing.first() {
        return found(Judged::Allow, Some(rule));
    }
    let is_nothing = changes_nothing_else(command)
        && (command.runs_others || command.words.is_empty() || is_own(command, root));
    let judged = if is_nothing {
        Judged::Nothing
    } else {
        Judged::Unmatched
    };
    found(judged, None)
}

/// Builtins of the shell that start nothing and change nothing that lasts.
const OWN: &[&str] = &[
    ":", "true", "false", "pwd", "echo", "printf", "test", "[", "exit", "return", "break",
    "continue", "shift", "wait", "set",
];

fn is_own(command: &SeenCommand, root: Option<&BytePath>) -> bool {
    let Some(name) = command.words.first().and_then(|word| word.known()) else {
        return false;
    };
    if program_name(name) != name {
        return false;
    }
    match name {
        "cd" => match &command.words[1..] {
            [place] => place.known().is_some_and(|place| {
                let up = place.split('/').any(|piece| piece == "..");
                let within = root.is_some_and(|root| BytePath::from(place).is_within(root));
                !up && place != "-"
                    && !place.starts_with('~')
                    && (within || !place.starts_with('/'))
            }),
            _ => false,
        },
        "printf" => !command.words.iter().any(|word| word.text.starts_with("-v")),
        other => OWN.contains(&other),
    }
}
