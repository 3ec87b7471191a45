//! How long a file may grow before it owns two things.

use super::Finding;
use super::tree::{Role, SourceFile, Tree};

/// Lines that a file should stay under.
const AIM: usize = 500;
/// Lines at which a file is refused; tests are exempt.
const LIMIT: usize = 800;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files()
        .filter(|file| file.role != Role::Test && file.lines > LIMIT)
        .map(|file| {
            let message = format!("{} lines, {LIMIT} at most: split it", file.lines);
            Finding::new(file.path.display().to_string(), message)
        })
        .collect()
}

pub(super) fn summary(tree: &Tree) -> String {
    let mut long: Vec<&SourceFile> = tree.files().filter(|file| file.lines > AIM).collect();
    long.sort_by_key(|file| std::cmp::Reverse(file.lines));
    let list: String = long
        .iter()
        .map(|file| {
            format!(
                "\n        over {AIM}: {} {}",
                file.path.display(),
                file.lines
            )
        })
        .collect();
    let mut lines: Vec<usize> = tree.files().map(|file| file.lines).collect();
    lines.sort_unstable();
    let median = lines.get(lines.len() / 2).copied().unwrap_or_default();
    format!("{} files, median {median} lines{list}", lines.len())
}

#[cfg(test)]
mod tests {
    use super::super::tree::samples::sample;
    use super::*;

    #[test]
    fn a_long_file_is_found_and_a_long_test_is_not() {
        let long = "\n".repeat(801);
        let tree = sample("core", "", &[("src/a.rs", &long), ("tests/main.rs", &long)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].place.ends_with("src/a.rs"), "{findings:?}");
        assert_eq!(
            check(&sample("core", "", &[("src/a.rs", &"\n".repeat(800))])),
            []
        );
    }

    #[test]
    fn a_file_over_the_aim_is_named() {
        let tree = sample("core", "", &[("src/a.rs", &"\n".repeat(501))]);
        assert!(summary(&tree).contains("over 500: crates/core/src/a.rs 501"));
    }
}
