//! The published JSON Schema of a policy is the one that the program prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{Finding, Verdict};
use crate::target;

const PLACE: &str = "docs/policy.schema.json";

pub(super) fn check(root: &Path) -> anyhow::Result<Verdict> {
    let printed = printed(root)?;
    let published = fs::read_to_string(root.join(PLACE)).unwrap_or_default();
    let findings = drift(&printed, &published)?;
    Ok(Verdict::of(findings.into_iter().collect(), PLACE))
}

/// Writes what the program prints to its published place.
pub(super) fn write(root: &Path) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(&parse(&printed(root)?)?)?;
    text.push('\n');
    fs::write(root.join(PLACE), text).with_context(|| format!("cannot write {PLACE}"))
}

fn printed(root: &Path) -> anyhow::Result<String> {
    // With the features that the tests are built with: nothing is built twice.
    let status = Command::new("cargo")
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--all-features",
            "--bin",
            "cofferdam",
        ])
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "cofferdam does not build");
    let output = Command::new(target().join("debug/cofferdam"))
        .args(["policy", "schema"])
        .output()
        .context("cannot run cofferdam")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cofferdam policy schema: {}",
        complaint.trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn parse(text: &str) -> anyhow::Result<serde_json::Value> {
    serde_json::from_str(text).context("cofferdam policy schema prints no JSON")
}

/// Compared as values: white space is nobody's contract.
fn drift(printed: &str, published: &str) -> anyhow::Result<Option<Finding>> {
    let printed = parse(printed)?;
    let same = serde_json::from_str::<serde_json::Value>(published).is_ok_and(|it| it == printed);
    let message = "is not what `cofferdam policy schema` prints: run cargo xtask write";
    Ok((!same).then(|| Finding::new(PLACE, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_found_and_white_space_is_none() {
        assert_eq!(drift("{\"a\": 1}", "{\n\"a\":1\n}").expect("JSON"), None);
        assert!(drift("{\"a\": 1}", "{\"a\": 2}").expect("JSON").is_some());
        assert!(drift("{\"a\": 1}", "").expect("JSON").is_some());
        assert!(drift("no JSON", "{}").is_err());
    }
}
