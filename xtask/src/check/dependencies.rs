//! Dependencies that no line of the crate mentions.

use super::Finding;
use super::tree::{Tree, find_word};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in &tree.crates {
        for dependency in one.all_dependencies() {
            let used = one
                .files
                .iter()
                .any(|file| find_word(&file.code, &dependency.identifier).is_some());
            if !used {
                let message = format!("{} is not used: remove it", dependency.package);
                findings.push(Finding::new(format!("{}/Cargo.toml", one.name), message));
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
    fn a_dependency_that_only_a_comment_mentions_is_found() {
        let manifest = "[dependencies]\nserde.workspace = true\nserde_json.workspace = true";
        let tree = sample(
            "core",
            manifest,
            &[("src/lib.rs", "// serde\nuse serde_json::Value;")],
        );
        let findings = check(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].message.starts_with("serde is not used"),
            "{findings:?}"
        );
    }

    #[test]
    fn a_dependency_with_a_dash_is_looked_for_with_an_underscore() {
        let manifest = "[dev-dependencies]\nsignal-hook.workspace = true";
        let tree = sample(
            "cofferdam",
            manifest,
            &[("tests/main.rs", "signal_hook::low_level()")],
        );
        assert_eq!(check(&tree), []);
    }
}
