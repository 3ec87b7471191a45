//! The table of field cases: each has a test that shows it, and the test is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::capabilities::tests_of;
use super::tree::Tree;
use super::{Finding, Verdict};

const PLACE: &str = "docs/field-cases.toml";

/// Cases of one kind, each with its tests as `crate::function`.
type Cases = BTreeMap<String, Vec<String>>;

pub(super) fn check(root: &Path, tree: &Tree) -> anyhow::Result<Verdict> {
    let path = root.join(PLACE);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: BTreeMap<String, Cases> =
        toml::from_str(&text).with_context(|| format!("{PLACE} is not a table"))?;
    let count: usize = table.values().map(BTreeMap::len).sum();
    let findings = judge(&table, &tests_of(tree));
    Ok(Verdict::of(findings, format!("{count} cases with tests")))
}

fn judge(
    table: &BTreeMap<String, Cases>,
    tests: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, cases) in table {
        for (case, named) in cases {
            let mut found = |message: String| {
                findings.push(Finding::new(format!("{PLACE} {kind} {case}"), message));
            };
            if named.is_empty() {
                found("has no test".to_owned());
            }
            for test in named {
                let exists = test.split_once("::").is_some_and(|(place, name)| {
                    tests.get(place).is_some_and(|all| all.contains(name))
                });
                if !exists {
                    found(format!("names the test {test}, which is not there"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::samples::sample;
    use super::*;

    #[test]
    fn a_case_without_a_test_that_is_there_is_found() {
        let text = "#[test]\nfn here() {}\n";
        let tests = tests_of(&sample("exec", "", &[("src/lib.rs", text)]));
        let said = |named: &[&str]| {
            let named = named.iter().map(|&one| one.to_owned()).collect();
            let cases = Cases::from([("A1".to_owned(), named)]);
            judge(&BTreeMap::from([("service".to_owned(), cases)]), &tests).len()
        };
        assert_eq!(said(&["exec::here"]), 0);
        assert_eq!(said(&[]), 1);
        assert_eq!(said(&["exec::here", "exec::gone", "here"]), 2);
    }
}
