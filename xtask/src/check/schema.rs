//! What the program prints of itself is what is published: the JSON Schema of a policy, the OpenAPI
//! document and the reference of operations.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{Finding, Verdict};
use crate::target;

/// A page that the program prints.
struct Page {
    place: &'static str,
    arguments: &'static [&'static str],
}

const PAGES: &[Page] = &[
    Page {
        place: "docs/policy.schema.json",
        arguments: &["policy", "schema"],
    },
    Page {
        place: "docs/openapi.json",
        arguments: &["call", "--openapi"],
    },
    Page {
        place: "docs/reference.md",
        arguments: &["call", "--reference"],
    },
];

pub(super) fn check(root: &Path) -> anyhow::Result<Verdict> {
    build(root)?;
    let mut findings = Vec::new();
    for page in PAGES {
        let printed = page.printed()?;
        let published = fs::read_to_string(root.join(page.place)).unwrap_or_default();
        findings.extend(page.drift(&printed, &published)?);
    }
    let places: Vec<&str> = PAGES.iter().map(|page| page.place).collect();
    Ok(Verdict::of(findings, places.join(", ")))
}

/// Writes what the program prints to its published places.
pub(super) fn write(root: &Path) -> anyhow::Result<()> {
    build(root)?;
    for page in PAGES {
        let text = page.text(&page.printed()?)?;
        fs::write(root.join(page.place), text)
            .with_context(|| format!("cannot write {}", page.place))?;
    }
    Ok(())
}

fn build(root: &Path) -> anyhow::Result<()> {
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
    Ok(())
}

impl Page {
    fn line(&self) -> String {
        format!("cofferdam {}", self.arguments.join(" "))
    }

    fn printed(&self) -> anyhow::Result<String> {
        let output = Command::new(target().join("debug/cofferdam"))
            .args(self.arguments)
            .output()
            .context("cannot run cofferdam")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}: {}",
            self.line(),
            complaint.trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    fn is_json(&self) -> bool {
        Path::new(self.place)
            .extension()
            .is_some_and(|end| end == "json")
    }

    fn parse(&self, text: &str) -> anyhow::Result<serde_json::Value> {
        serde_json::from_str(text).with_context(|| format!("{} prints no JSON", self.line()))
    }

    /// Gives what is published of what was printed.
    fn text(&self, printed: &str) -> anyhow::Result<String> {
        if !self.is_json() {
            return Ok(printed.to_owned());
        }
        let mut text = serde_json::to_string_pretty(&self.parse(printed)?)?;
        text.push('\n');
        Ok(text)
    }

    /// JSON is compared as a value: white space is nobody's contract.
    fn drift(&self, printed: &str, published: &str) -> anyhow::Result<Option<Finding>> {
        let is_same = if self.is_json() {
            let printed = self.parse(printed)?;
            serde_json::from_str::<serde_json::Value>(published).is_ok_and(|it| it == printed)
        } else {
            printed == published
        };
        let message = format!(
            "is not what `{}` prints: run cargo xtask write",
            self.line()
        );
        Ok((!is_same).then(|| Finding::new(self.place, message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_found_and_white_space_is_none() {
        let [schema, _, page] = PAGES else {
            panic!("three pages");
        };
        let drift = |page: &Page, printed, published| {
            page.drift(printed, published).map(|found| found.is_some())
        };
        assert!(!drift(schema, "{\"a\": 1}", "{\n\"a\":1\n}").expect("JSON"));
        assert!(drift(schema, "{\"a\": 1}", "{\"a\": 2}").expect("JSON"));
        assert!(drift(schema, "{\"a\": 1}", "").expect("JSON"));
        assert!(drift(schema, "no JSON", "{}").is_err());
        assert!(!drift(page, "# A\n", "# A\n").expect("text"));
        assert!(drift(page, "# A\n", "# B\n").expect("text"));
    }
}
