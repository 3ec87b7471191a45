//! When a rule about commands fires.

use std::collections::BTreeMap;

use super::see::{SeenCommand, see_shell};
use super::word::Word;
use super::wrap::program_name;
use crate::error::{ErrorCode, Problem};
use crate::policy::{CommandDecision, CommandRule, Layer, Sourced};

/// Most rules in one document.
pub const MOST_RULES: usize = 500;
/// Most characters of one rule: its words, its justification, and each of its examples.
pub const MOST_RULE_CHARACTERS: usize = 1000;
/// Most examples of one rule, of each kind.
pub const MOST_EXAMPLES: usize = 20;

/// Whether a rule fires for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fires {
    No,
    /// It depends on something that is only known when the command runs.
    Maybe,
    Yes,
}

/// One word of a rule: alternatives, each with `*` for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(Vec<Vec<String>>);

impl Pattern {
    fn new(text: &str) -> Self {
        Self(
            text.split('|')
                .map(|one| one.split('*').map(str::to_owned).collect())
                .collect(),
        )
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pieces| glob(pieces, text))
    }

    /// Gives the alternatives where none has a `*`.
    fn names(&self) -> Option<impl Iterator<Item = &str>> {
        let plain = self.0.iter().all(|pieces| pieces.len() == 1);
        plain.then(|| self.0.iter().map(|pieces| pieces[0].as_str()))
    }

    fn is_path(&self) -> bool {
        self.0.iter().flatten().any(|piece| piece.contains('/'))
    }
}

/// Matches pieces between stars, each at its first place: linear in the text for each piece.
fn glob(pieces: &[String], text: &str) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| only == text);
    };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else {
        return false;
    };
    for piece in middle {
        match rest.find(piece.as_str()) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

#[derive(Debug, Clone)]
struct Compiled {
    words: Vec<Pattern>,
    has: Vec<Pattern>,
    allows: bool,
}

/// Rules that are ready to be held against commands.
#[derive(Debug, Clone, Default)]
pub struct CompiledRules {
    rules: Vec<(Compiled, Sourced<CommandRule>)>,
    /// Rules by the name of their program.
    by_name: BTreeMap<String, Vec<usize>>,
    /// Rules for which any name has to be looked at.
    of_any: Vec<usize>,
}

impl CompiledRules {
    /// Makes rules ready; they were checked when the policy was read.
    pub fn new(rules: &[Sourced<CommandRule>]) -> Self {
        let mut made = Self::default();
        for (at, rule) in rules.iter().enumerate() {
            let compiled = Compiled {
                words: rule
                    .value
                    .command
                    .iter()
                    .map(|one| Pattern::new(one))
                    .collect(),
                has: rule.value.has.iter().map(|one| Pattern::new(one)).collect(),
                allows: rule.value.decision == CommandDecision::Allow,
            };
            match compiled.words.first().map(Pattern::names) {
                Some(Some(names)) => {
                    for name in names {
                        let name = program_name(name).to_owned();
                        made.by_name.entry(name).or_default().push(at);
                    }
                }
                _ => made.of_any.push(at),
            }
            made.rules.push((compiled, rule.clone()));
        }
        made
    }

    /// Tells whether there is no rule.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Lists the rules that fire, or may fire, for a command, with their number from 0.
    pub(super) fn firing(
        &self,
        command: &SeenCommand,
    ) -> Vec<(usize, &Sourced<CommandRule>, Fires)> {
        let Some(program) = command.words.first().and_then(Word::known) else {
            return Vec::new();
        };
        let named = self.by_name.get(program_name(program));
        let mut candidates: Vec<usize> = named.into_iter().flatten().copied().collect();
        candidates.extend(&self.of_any);
        candidates.sort_unstable();
        candidates.dedup();
        candidates
            .into_iter()
            .filter_map(|at| {
                let (compiled, rule) = &self.rules[at];
                let fires = compiled.fires(program, command);
                (fires != Fires::No).then_some((at, rule, fires))
            })
            .collect()
    }
}

impl Compiled {
    fn fires(&self, program: &str, command: &SeenCommand) -> Fires {
        let Some(head) = self.words.first() else {
            return Fires::No;
        };
        let name = program_name(program);
        let is_program = if head.is_path() {
            head.matches(program)
        } else if self.allows {
            head.matches(name) && is_plain(program, name)
        } else {
            head.matches(name)
        };
        if !is_program {
            return Fires::No;
        }
        let rest = &command.words[1..];
        if self.allows {
            let begins = begin_with(&self.words[1..], rest.iter());
            let fires = begins.min(self.has(name, rest));
            // What also writes a file, or changes what the program does, is more than was allowed.
            return if fires == Fires::Yes && changes_nothing_else(command) {
                Fires::Yes
            } else {
                Fires::No
            };
        }
        let raw = begin_with(&self.words[1..], rest.iter());
        let normal = begin_with(&self.words[1..], without_options(name, rest));
        raw.max(normal).min(self.has(name, rest))
    }

    fn has(&self, name: &str, rest: &[Word]) -> Fires {
        self.has
            .iter()
            .map(|pattern| {
                if rest.iter().any(|word| stands_in(pattern, name, word)) {
                    Fires::Yes
                } else if rest.iter().any(|word| !word.exact) {
                    Fires::Maybe
                } else {
                    Fires::No
                }
            })
            .min()
            .unwrap_or(Fires::Yes)
    }
}

/// Tells whether a program is the one that the shell would find by its name.
fn is_plain(program: &str, name: &str) -> bool {
    const SYSTEM: &[&str] = &[
        "/bin/",
        "/usr/bin/",
        "/usr/local/bin/",
        "/sbin/",
        "/usr/sbin/",
    ];
    program == name
        || SYSTEM
            .iter()
            .any(|directory| program.strip_prefix(directory) == Some(name))
}

fn begin_with<'a>(patterns: &[Pattern], mut words: impl Iterator<Item = &'a Word>) -> Fires {
    let mut fires = Fires::Yes;
    for pattern in patterns {
        match words.next() {
            None => {
                return if fires == Fires::Yes {
                    Fires::No
                } else {
                    Fires::Maybe
                };
            }
            Some(word) if !word.exact => fires = Fires::Maybe,
            Some(word) if !pattern.matches(&word.text) => return Fires::No,
            Some(_) => {}
        }
    }
    fires
}

/// Programs whose options with one dash are whole words.
const WORD_OPTIONS: &[&str] = &[
    "find",
    "java",
    "javac",
    "go",
    "gcc",
    "g++",
    "clang",
    "clang++",
    "terraform",
    "openssl",
    "ffmpeg",
    "convert",
    "ip",
];

/// Tells whether a word is, or has in it, what a rule asks for.
fn stands_in(pattern: &Pattern, program: &str, word: &Word) -> bool {
    let Some(text) = word.known() else {
        return false;
    };
    if pattern.matches(text) {
        return true;
    }
    let Some(letters) = text.strip_prefix('-') else {
        return false;
    };
    if let Some((option, _)) = text.split_once('=') {
        return text.starts_with("--") && pattern.matches(option);
    }
    if letters.starts_with('-') || WORD_OPTIONS.contains(&program) || letters.len() > 12 {
        return false;
    }
    letters
        .chars()
        .any(|letter| letter.is_ascii_alphanumeric() && pattern.matches(&format!("-{letter}")))
}

/// Options that come before the word that says what a program does, with a word of their own.
const VALUED: &[(&[&str], &[&str])] = &[
    (
        &["git"],
        &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--config-env",
            "--exec-path",
        ],
    ),
    (
        &["docker", "podman", "nerdctl"],
        &[
            "-H",
            "--host",
            "-c",
            "--context",
            "--config",
            "-l",
            "--log-level",
            "--url",
        ],
    ),
    (
        &["kubectl", "oc", "helm"],
        &[
            "-n",
            "--namespace",
            "--context",
            "--cluster",
            "--kubeconfig",
            "-s",
            "--server",
            "--user",
            "--token",
            "--as",
            "--kube-context",
        ],
    ),
    (
        &["npm", "pnpm", "yarn", "bun"],
        &[
            "--prefix",
            "-C",
            "--dir",
            "--cwd",
            "-w",
            "--workspace",
            "--filter",
            "-F",
        ],
    ),
    (
        &["cargo"],
        &["-C", "--config", "-Z", "--color", "--manifest-path"],
    ),
    (
        &["systemctl"],
        &["-H", "-M", "-p", "-t", "--host", "--machine"],
    ),
    (
        &["aws"],
        &["--profile", "--region", "--output", "--endpoint-url"],
    ),
    (&["gh"], &["-R", "--repo"]),
    (&["go", "make"], &["-C", "-f"]),
    (
        &["uv", "pip", "pip3"],
        &["--project", "--directory", "--python", "--proxy", "--log"],
    ),
];

/// Gives the words without the options before the first one that is none.
fn without_options<'a>(name: &str, words: &'a [Word]) -> impl Iterator<Item = &'a Word> {
    let valued = VALUED
        .iter()
        .find(|(names, _)| names.contains(&name))
        .map_or(&[][..], |(_, options)| options);
    let mut at = 0;
    while let Some(text) = words.get(at).and_then(Word::known) {
        if text.starts_with('-') && text.len() > 1 {
            at += if valued.contains(&text) { 2 } else { 1 };
        } else if text.starts_with('+') && name == "cargo" {
            at += 1;
        } else {
            break;
        }
    }
    words.get(at..).unwrap_or_default().iter()
}

/// Tells whether a command writes no file by a redirection and sets no variable that matters.
pub(super) fn changes_nothing_else(command: &SeenCommand) -> bool {
    command.redirections.iter().all(|one| {
        let reads = matches!(one.operator.as_str(), "<" | "<<" | "<<<" | "<&");
        let duplicates = one.operator == ">&" && is_number(&one.target);
        reads || duplicates || one.target.is("/dev/null")
    }) && command
        .assignments
        .iter()
        .all(|one| is_harmless(&one.name) || (command.words.is_empty() && !is_powerful(&one.name)))
}

fn is_number(word: &Word) -> bool {
    word.exact
        && word
            .text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Variables that change how a program writes, not what it does.
fn is_harmless(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "CI",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "TERM",
        "COLUMNS",
        "LINES",
        "LANG",
        "LC_ALL",
        "TZ",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "NODE_ENV",
        "DEBUG",
    ];
    NAMES.contains(&name) || name.starts_with("LC_")
}

/// Variables by which the shell, the loader or common programs are made to run something else.
fn is_powerful(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "PATH",
        "IFS",
        "ENV",
        "BASH_ENV",
        "PS4",
        "SHELLOPTS",
        "BASHOPTS",
        "PAGER",
        "EDITOR",
        "VISUAL",
        "BROWSER",
        "SHELL",
        "HOME",
        "NODE_OPTIONS",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PERL5OPT",
        "PERL5LIB",
        "RUBYOPT",
        "RUSTC_WRAPPER",
        "MAKEFLAGS",
    ];
    let name = name.split('[').next().unwrap_or(name);
    NAMES.contains(&name)
        || ["LD_", "DYLD_", "GIT_", "BASH_FUNC", "CARGO_"]
            .iter()
            .any(|begin| name.starts_with(begin))
        || name.ends_with("_COMMAND")
}

fn wrong(at: usize, text: impl std::fmt::Display) -> Problem {
    Problem::new(
        ErrorCode::PolicyInvalidValue,
        format!("rule {} about commands: {text}", at + 1),
    )
    .with_field("commands")
}

/// Checks rules about commands when a policy is read: their number, their size, and that every
/// example fires or does not fire as it says.
///
/// # Errors
///
/// `policy_invalid_value`, which names the rule by its number.
pub fn check_command_rules(rules: &[CommandRule], layer: Layer) -> Result<(), Problem> {
    if rules.len() > MOST_RULES {
        let text = format!("there are {} rules about commands", rules.len());
        return Err(Problem::new(ErrorCode::PolicyInvalidValue, text)
            .with_field("commands")
            .with_hint(format!("at most {MOST_RULES} are taken")));
    }
    for (at, rule) in rules.iter().enumerate() {
        check_shape(at, rule)?;
        let one = [Sourced::new(rule.clone(), layer)];
        let compiled = CompiledRules::new(&one);
        let fires = |text: &String| {
            let seen = see_shell(text);
            seen.commands
                .iter()
                .flat_map(|command| compiled.firing(command))
                .any(|(_, _, fires)| fires == Fires::Yes)
        };
        if let Some(text) = rule.matches.iter().find(|text| !fires(text)) {
            return Err(wrong(
                at,
                format!("it does not fire for its example {text:?}"),
            ));
        }
        if let Some(text) = rule.not_match.iter().find(|text| fires(text)) {
            return Err(wrong(
                at,
                format!("it fires for {text:?}, and says it does not"),
            ));
        }
    }
    Ok(())
}

fn check_shape(at: usize, rule: &CommandRule) -> Result<(), Problem> {
    if rule.command.is_empty() {
        return Err(wrong(at, "command names no word").with_hint("command = [\"git\", \"push\"]"));
    }
    let words = || rule.command.iter().chain(&rule.has);
    if words().any(|word| word.split('|').any(str::is_empty)) {
        return Err(wrong(at, "a word, or an alternative of one, is empty"));
    }
    if let Some(word) = rule
        .command
        .first()
        .filter(|word| word.contains(char::is_whitespace))
    {
        return Err(
            wrong(at, format!("{word:?} is one word with a blank in it"))
                .with_hint("write each word by itself: command = [\"git\", \"push\"]"),
        );
    }
    let size: usize = words().map(|word| word.chars().count()).sum();
    let others = rule
        .justification
        .iter()
        .chain(&rule.matches)
        .chain(&rule.not_match);
    let is_long = |text: &String| text.chars().count() > MOST_RULE_CHARACTERS;
    if size > MOST_RULE_CHARACTERS || others.clone().any(is_long) {
        return Err(wrong(at, "it is too long").with_hint(format!(
            "at most {MOST_RULE_CHARACTERS} characters are taken"
        )));
    }
    if others
        .clone()
        .chain(words())
        .any(|text| text.contains(['\0', '\u{1b}']))
    {
        return Err(wrong(at, "it holds a control character"));
    }
    if rule.matches.len() > MOST_EXAMPLES || rule.not_match.len() > MOST_EXAMPLES {
        return Err(wrong(
            at,
            format!("it has more than {MOST_EXAMPLES} examples"),
        ));
    }
    Ok(())
}
