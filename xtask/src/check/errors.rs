//! The published list of error codes is the one of the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::{Finding, Verdict};

const SOURCE: &str = "crates/core/src/error.rs";
const PLACE: &str = "docs/errors.md";

const HEAD: &str = "# Error codes

Every refusal and failure carries one of these words: in `--json` output, in HTTP problems and in
events. A word never changes its meaning; new ones may be added. What a command itself did wrong is
no error of Cofferdam and has no code: it is a `status` and a `return_code`.

This page is written by `cargo xtask write` from `crates/core/src/error.rs`.

| Code | Means |
|---|---|
";

pub(super) fn check(root: &Path) -> anyhow::Result<Verdict> {
    let (page, count) = page(root)?;
    let published = fs::read_to_string(root.join(PLACE)).unwrap_or_default();
    let message = "is not the list of the code: run cargo xtask write";
    let findings = (page != published).then(|| Finding::new(PLACE, message));
    Ok(Verdict::of(
        findings.into_iter().collect(),
        format!("{count} codes"),
    ))
}

/// Writes the list to its published place.
pub(super) fn write(root: &Path) -> anyhow::Result<()> {
    fs::write(root.join(PLACE), page(root)?.0).with_context(|| format!("cannot write {PLACE}"))
}

fn page(root: &Path) -> anyhow::Result<(String, usize)> {
    let source =
        fs::read_to_string(root.join(SOURCE)).with_context(|| format!("cannot read {SOURCE}"))?;
    let codes = codes(&source);
    ensure!(!codes.is_empty(), "{SOURCE} has no list of codes any more");
    let mut page = HEAD.to_owned();
    for (code, meaning) in &codes {
        writeln!(page, "| `{code}` | {meaning} |")?;
    }
    Ok((page, codes.len()))
}

/// Codes and what is said about them: `/// Meaning.` before `Name = "code";`.
fn codes(source: &str) -> Vec<(String, String)> {
    let mut codes = Vec::new();
    let mut meaning = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            meaning.push(text);
            continue;
        }
        let code = line
            .strip_suffix("\";")
            .and_then(|line| Some(line.split_once(" = \"")?.1));
        if let Some(code) = code.filter(|_| !meaning.is_empty()) {
            codes.push((code.to_owned(), meaning.join(" ")));
        }
        meaning.clear();
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_with_their_meaning() {
        let source = "codes! {\n    /// First line,\n    /// second.\n    Alpha = \"alpha\";\n    \
                      Bare = \"bare\";\n    /// Last.\n    Beta = \"beta_two\";\n}\n";
        let expected = [("alpha", "First line, second."), ("beta_two", "Last.")];
        let expected = expected.map(|(code, meaning)| (code.to_owned(), meaning.to_owned()));
        assert_eq!(codes(source), expected);
    }
}
