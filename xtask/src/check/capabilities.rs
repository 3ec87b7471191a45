//! The capability table: complete, honest about its state, and backed by tests that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::tree::Tree;
use super::{Finding, Verdict};

const PLACE: &str = "docs/capabilities.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    capability: Vec<Row>,
}

/// One row of the mission.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    number: u32,
    /// What it is, in a line.
    #[serde(rename = "name")]
    _name: String,
    state: State,
    /// Tests that show it, each `crate::function`.
    #[serde(default)]
    tests: Vec<String>,
    /// What is there and what is not; needed for everything that is not done.
    #[serde(default)]
    note: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Done,
    Partly,
    Missing,
}

pub(super) fn check(root: &Path, tree: &Tree) -> anyhow::Result<Verdict> {
    let path = root.join(PLACE);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: Table = toml::from_str(&text).with_context(|| format!("{PLACE} is not a table"))?;
    let count = |state| {
        table
            .capability
            .iter()
            .filter(|row| row.state == state)
            .count()
    };
    let good = format!(
        "{} done, {} partly, {} missing",
        count(State::Done),
        count(State::Partly),
        count(State::Missing)
    );
    Ok(Verdict::of(judge(&table.capability, &tests_of(tree)), good))
}

/// Numbers of the rows that the mission has.
fn expected() -> BTreeSet<u32> {
    (1..=125).chain(130..=155).collect()
}

fn judge(rows: &[Row], tests: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for row in rows {
        let mut found = |message: String| {
            findings.push(Finding::new(format!("{PLACE} row {}", row.number), message));
        };
        if !expected().contains(&row.number) {
            found("is no row of the mission".to_owned());
        }
        if !seen.insert(row.number) {
            found("is there twice".to_owned());
        }
        match row.state {
            State::Done if row.tests.is_empty() => {
                found("is done, and no test shows it".to_owned());
            }
            State::Missing if !row.tests.is_empty() => {
                found("is missing, and has tests: say what they show".to_owned());
            }
            State::Partly | State::Missing if row.note.is_empty() => {
                found("needs a note that says what is not there".to_owned());
            }
            _ => {}
        }
        for test in &row.tests {
            let exists = test.split_once("::").is_some_and(|(place, name)| {
                tests.get(place).is_some_and(|all| all.contains(name))
            });
            if !exists {
                found(format!(
                    "names the test {test}, which is not there (crate::function)"
                ));
            }
        }
    }
    for number in expected().difference(&seen) {
        findings.push(Finding::new(PLACE, format!("row {number} is not there")));
    }
    findings
}

/// Names of the test functions of each crate.
pub(super) fn tests_of(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    tree.crates
        .iter()
        .map(|one| {
            let names = one.files.iter().flat_map(|file| test_functions(&file.code));
            (one.name.clone(), names.collect())
        })
        .collect()
}

/// Names of the functions that stand under a test attribute.
fn test_functions(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut under_test = false;
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[") {
            let attribute = line.trim_start_matches("#[").split([']', '(']).next();
            under_test |= attribute.is_some_and(|path| path == "test" || path.ends_with("::test"));
        }
        let Some(after) = line.split_once("fn ").map(|(_, after)| after) else {
            continue;
        };
        let name: String = after
            .chars()
            .take_while(|one| one.is_alphanumeric() || *one == '_')
            .collect();
        if std::mem::take(&mut under_test) && !name.is_empty() {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tree::samples::sample;
    use super::*;

    fn row(number: u32, state: State, tests: &[&str], note: &str) -> Row {
        let tests = tests.iter().map(|&test| test.to_owned()).collect();
        Row {
            number,
            _name: String::new(),
            state,
            tests,
            note: note.to_owned(),
        }
    }

    /// What is said about these rows, those that are not there left out.
    fn said(rows: &[Row]) -> Vec<String> {
        let text = "#[test]\nfn here() {}\nfn helper() {}\n";
        let tree = sample("exec", "", &[("src/lib.rs", text)]);
        let findings = judge(rows, &tests_of(&tree)).into_iter();
        findings
            .map(|finding| finding.message)
            .filter(|text| !text.starts_with("row "))
            .collect()
    }

    #[test]
    fn a_missing_test_is_found() {
        assert_eq!(
            said(&[row(1, State::Done, &["exec::here"], "")]),
            Vec::<String>::new()
        );
        for name in ["exec::gone", "exec::helper", "core::here", "here"] {
            let said = said(&[row(1, State::Done, &[name], "")]);
            assert!(
                said.len() == 1 && said[0].contains("not there"),
                "{name}: {said:?}"
            );
        }
    }

    #[test]
    fn a_claim_needs_its_backing() {
        assert_eq!(said(&[row(1, State::Done, &[], "trust me")]).len(), 1);
        assert_eq!(
            said(&[row(1, State::Missing, &["exec::here"], "later")]).len(),
            1
        );
        assert_eq!(said(&[row(1, State::Partly, &["exec::here"], "")]).len(), 1);
        assert_eq!(said(&[row(1, State::Missing, &[], "")]).len(), 1);
    }

    #[test]
    fn every_row_stands_once() {
        assert_eq!(said(&[row(126, State::Missing, &[], "later")]).len(), 1);
        let twice = [
            row(1, State::Missing, &[], "later"),
            row(1, State::Missing, &[], "later"),
        ];
        assert_eq!(said(&twice).len(), 1);
        let absent = judge(&[row(1, State::Missing, &[], "later")], &BTreeMap::new());
        assert_eq!(absent.len(), expected().len() - 1);
    }

    #[test]
    fn test_functions_are_read_from_code() {
        let code = "#[test]\n#[expect(unused)]\nfn one() {}\n#[tokio::test(flavor = \"x\")]\n\
                    async fn two() {}\n#[cfg(test)]\nfn three() {}\n#[test] fn four(x in 0..3) {}";
        assert_eq!(test_functions(code), ["one", "two", "four"]);
    }
}
