//! Links between the documents lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Finding, Verdict};

pub(super) fn check(root: &Path) -> anyhow::Result<Verdict> {
    let mut findings = Vec::new();
    let mut count = 0;
    for directory in [root.to_path_buf(), root.join("docs")] {
        for page in pages(&directory)? {
            let text = fs::read_to_string(&page)
                .with_context(|| format!("cannot read {}", page.display()))?;
            for target in targets(&text) {
                count += 1;
                if !directory.join(target).exists() {
                    let place = page
                        .strip_prefix(root)
                        .unwrap_or(&page)
                        .display()
                        .to_string();
                    findings.push(Finding::new(
                        place,
                        format!("links to {target}, which is not there"),
                    ));
                }
            }
        }
    }
    Ok(Verdict::of(
        findings,
        format!("{count} links lead somewhere"),
    ))
}

fn pages(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// Files that a page links to: `](path)`, without addresses and anchors.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_targets_and_addresses_and_anchors_are_not() {
        let text = "[a](docs/a.md) [b](https://b.example/c) [c](#d) [e](e.md#f) (plain)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["docs/a.md", "e.md"]);
    }
}
