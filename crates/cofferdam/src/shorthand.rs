//! Short forms: the name of an agent in the place of a command.

use std::ffi::OsString;

/// Agents that have a short form.
const AGENTS: &[&str] = &["claude", "codex", "gemini", "opencode"];

/// Writes a short form out: `cofferdam claude ARGS…` is a task that runs `claude ARGS…` with the
/// profile of that name. Everything behind the name is the agent's own.
pub(crate) fn expand(words: Vec<OsString>) -> Vec<OsString> {
    let mut index = 1;
    while let Some(word) = words.get(index).and_then(|word| word.to_str()) {
        match word {
            "--json" => index += 1,
            "--data-dir" => index += 2,
            _ if word.starts_with("--data-dir=") => index += 1,
            _ => break,
        }
    }
    let name = words.get(index).and_then(|word| word.to_str());
    let Some(name) = name.filter(|name| AGENTS.contains(name)) else {
        return words;
    };
    let inserted: Vec<OsString> = ["task", "run", "--profile", name, "--"]
        .into_iter()
        .map(OsString::from)
        .collect();
    let mut expanded = words;
    expanded.splice(index..index, inserted);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> String {
        let words = text.split(' ').map(OsString::from).collect();
        let words = expand(words);
        let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
        words.join(" ")
    }

    #[test]
    fn an_agent_in_the_place_of_a_command_is_a_task() {
        assert_eq!(
            expanded("cofferdam claude -p x --json"),
            "cofferdam task run --profile claude -- claude -p x --json"
        );
        assert_eq!(
            expanded("cofferdam --json --data-dir d codex exec"),
            "cofferdam --json --data-dir d task run --profile codex -- codex exec"
        );
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "cofferdam run -- claude",
            "cofferdam setup claude",
            "cofferdam",
            "cofferdam --json",
        ] {
            assert_eq!(expanded(text), text);
        }
    }
}
