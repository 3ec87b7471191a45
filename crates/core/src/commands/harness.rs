//! What the known agents' harnesses put around a command of theirs.
//!
//! It is recognised by its whole shape and left alone: it is neither judged nor changed, so that the
//! harness finds its working directory and its exit code where it looks for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::see::SeenCommand;
use super::word::Word;

/// Whose harness put a command around another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Harness {
    /// claude: a snapshot of the shell before, the working directory written down after.
    Claude,
    /// codex: a snapshot of the shell before.
    Codex,
    /// gemini: options of the shell before, background processes and exit code after.
    Gemini,
}

/// Marks what belongs to a harness among the commands of one text. `top` are those of the text
/// itself, in order; from `from` on stands what was seen in it.
pub(super) fn mark(commands: &mut [SeenCommand], top: &[usize], from: usize) {
    let own = claude(commands, top)
        .or_else(|| codex(commands, top))
        .or_else(|| gemini(commands, top, from));
    for (at, harness) in own.unwrap_or_default() {
        commands[at].harness = Some(harness);
    }
}

type Marks = Vec<(usize, Harness)>;

fn is(command: &SeenCommand, words: &[&str]) -> bool {
    command.assignments.is_empty()
        && command.words.len() == words.len()
        && command
            .words
            .iter()
            .zip(words)
            .all(|(word, text)| word.is(text))
}

fn writes_nothing(command: &SeenCommand) -> bool {
    command
        .redirections
        .iter()
        .all(|one| one.target.is("/dev/null") || one.operator.ends_with('&'))
}

/// Reads a snapshot of a shell that the harness made before.
fn sources(command: &SeenCommand, directories: &[&str]) -> bool {
    let [verb, file] = command.words.as_slice() else {
        return false;
    };
    // The path begins with a variable where the harness wrote one.
    let plain = |word: &Word| !word.text.contains("..") && !word.text.contains(['(', '`']);
    (verb.is("source") || verb.is("."))
        && writes_nothing(command)
        && plain(file)
        && file.text.strip_suffix(".sh").is_some()
        && directories.iter().any(|one| file.text.contains(one))
}

fn claude(commands: &[SeenCommand], top: &[usize]) -> Option<Marks> {
    let (last, before) = top.split_last()?;
    let (eval, preamble) = before.split_last()?;
    if !(is(&commands[*last], &["pwd", "-P"]) && writes_cwd(&commands[*last])) {
        return None;
    }
    if !commands[*eval].words.first()?.is("eval") {
        return None;
    }
    let known = |command: &SeenCommand| {
        sources(command, &["/shell-snapshots/"])
            || (writes_nothing(command)
                && (is(command, &["true"])
                    || is(command, &["shopt", "-u", "extglob"])
                    || is(command, &["setopt", "NO_EXTENDED_GLOB"])
                    || is(
                        command,
                        &["setopt", "NO_EXTENDED_GLOB", "NO_BARE_GLOB_QUAL"],
                    )))
    };
    preamble.iter().all(|at| known(&commands[*at])).then(|| {
        let own = preamble.iter().chain([last]);
        own.map(|at| (*at, Harness::Claude)).collect()
    })
}

/// Tells whether a command writes the harness's own file for the working directory, and nothing else.
fn writes_cwd(command: &SeenCommand) -> bool {
    let [only] = command.redirections.as_slice() else {
        return false;
    };
    let Some((directory, name)) = only.target.known().and_then(|path| path.rsplit_once('/')) else {
        return false;
    };
    let id = name
        .strip_prefix("claude-")
        .and_then(|rest| rest.strip_suffix("-cwd"));
    matches!(only.operator.as_str(), ">|" | ">")
        && directory.starts_with('/')
        && !directory.contains("..")
        && id.is_some_and(|id| {
            !id.is_empty()
                && id
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

fn codex(commands: &[SeenCommand], top: &[usize]) -> Option<Marks> {
    // `if . SNAPSHOT >/dev/null 2>&1; then :; fi` and then `exec BASH -c COMMAND`.
    let (last, before) = top.split_last()?;
    let exec = &commands[*last];
    let has_snapshot = before
        .iter()
        .any(|at| sources(&commands[*at], &["/shell_snapshots/"]));
    let known = |command: &SeenCommand| {
        sources(command, &["/shell_snapshots/"]) || is(command, &[":"]) || is(command, &["true"])
    };
    (has_snapshot
        && exec.words.first()?.is("exec")
        && before.iter().all(|at| known(&commands[*at])))
    .then(|| before.iter().map(|at| (*at, Harness::Codex)).collect())
}

fn gemini(commands: &[SeenCommand], top: &[usize], from: usize) -> Option<Marks> {
    let first = &commands[*top.first()?];
    let second = &commands[*top.get(1)?];
    let is_shopt = is(
        first,
        &[
            "shopt",
            "-u",
            "promptvars",
            "nullglob",
            "extglob",
            "nocaseglob",
            "dotglob",
        ],
    );
    let [file] = second.assignments.as_slice() else {
        return None;
    };
    let is_file = second.words.is_empty()
        && file.name == "_bgpids_file"
        && file.value.known().is_some_and(|path| {
            path.starts_with('/') && path.contains("/gemini-shell-") && !path.contains("..")
        });
    if !(is_shopt && is_file) {
        return None;
    }
    let text = r#"jobs -p > "$_bgpids_file""#;
    let mut marks = vec![(top[0], Harness::Gemini), (top[1], Harness::Gemini)];
    let mut is_trap = false;
    for (at, command) in commands.iter().enumerate().skip(from) {
        let own = if is(command, &["trap", text, "EXIT"]) {
            is_trap = true;
            true
        } else if is_trap
            && is(command, &["jobs", "-p"])
            && command.through.ends_with(&["trap".to_owned()])
        {
            true
        } else {
            let sets = command.assignments.as_slice();
            let keeps_code = command.words.is_empty()
                && sets.len() == 1
                && sets[0].name == "__code"
                && sets[0].value.text == "$?";
            let leaves = matches!(command.words.as_slice(), [exit, code]
                if exit.is("exit") && code.text == "$__code");
            keeps_code || leaves
        };
        if own && !marks.iter().any(|mark| mark.0 == at) {
            marks.push((at, Harness::Gemini));
        }
    }
    is_trap.then_some(marks)
}
