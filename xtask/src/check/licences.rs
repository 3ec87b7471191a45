//! Every package that goes into the program has a licence from deny.toml's list.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::{Finding, Verdict};

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
}

pub(super) fn check(root: &Path) -> anyhow::Result<Verdict> {
    let allowed = allowed(&fs::read_to_string(root.join("deny.toml"))?)?;
    let output = Command::new("cargo")
        .args([
            "metadata",
            "--format-version",
            "1",
            "--all-features",
            "--filter-platform",
        ])
        .arg(host()?)
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        complaint.trim()
    );
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let good = format!("{} packages", metadata.packages.len());
    Ok(Verdict::of(judge(&metadata.packages, &allowed), good))
}

/// The triple of the machine that this runs on.
fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

fn allowed(deny: &str) -> anyhow::Result<BTreeSet<String>> {
    let deny: toml::Table = deny.parse().context("deny.toml is no TOML")?;
    let list = deny
        .get("licenses")
        .and_then(|table| table.get("allow")?.as_array());
    let list = list.context("deny.toml has no licenses.allow")?;
    Ok(list
        .iter()
        .filter_map(|one| Some(one.as_str()?.to_owned()))
        .collect())
}

fn judge(packages: &[Package], allowed: &BTreeSet<String>) -> Vec<Finding> {
    packages
        .iter()
        .filter(|package| !satisfied(package.license.as_deref().unwrap_or_default(), allowed))
        .map(|package| {
            let licence = package.license.as_deref().unwrap_or("none named");
            let message = format!("licence {licence} is not on deny.toml's list");
            Finding::new(format!("{} {}", package.name, package.version), message)
        })
        .collect()
}

/// Whether an SPDX expression can be met with licences of the list. AND binds closer than OR.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // The slash is how old manifests wrote OR.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Expression {
        words: &words,
        allowed,
    };
    let good = parser.any();
    good && parser.words.is_empty()
}

struct Expression<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl Expression<'_> {
    fn take(&mut self, word: &str) -> bool {
        let hit = self.words.first() == Some(&word);
        if hit {
            self.words = &self.words[1..];
        }
        hit
    }

    fn any(&mut self) -> bool {
        let mut good = self.all();
        while self.take("OR") {
            good |= self.all();
        }
        good
    }

    fn all(&mut self) -> bool {
        let mut good = self.one();
        while self.take("AND") {
            good &= self.one();
        }
        good
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            return self.any() && self.take(")");
        }
        let Some((name, rest)) = self.words.split_first() else {
            return false;
        };
        self.words = rest;
        let mut name = (*name).to_owned();
        if self.take("WITH")
            && let Some((exception, rest)) = self.words.split_first()
        {
            self.words = rest;
            name = format!("{name} WITH {exception}");
        }
        self.allowed.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .into()
    }

    #[test]
    fn one_of_a_choice_suffices_and_all_of_a_sum_are_needed() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 AND GPL-2.0 OR MIT",
        ] {
            assert!(satisfied(good, &list()), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT WITH Odd-exception",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!satisfied(bad, &list()), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_licence_is_found() {
        let package = Package {
            name: "odd".to_owned(),
            version: "1.0.0".to_owned(),
            license: None,
        };
        assert_eq!(judge(&[package], &list()).len(), 1);
    }
}
