//! Which crate may build on which: the picture of ARCHITECTURE.md as a table.

use super::Finding;
use super::tree::Tree;

/// A crate and the crates of ours that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("visibility", &["core"]),
    ("sandbox", &["core"]),
    ("egress", &["core"]),
    ("journal", &["core"]),
    ("client", &["core"]),
    ("keeper", &["core", "sandbox"]),
    ("search", &["keeper"]),
    ("exec", &["core", "sandbox", "keeper", "egress", "journal"]),
    ("runtime", &["core", "exec", "journal", "visibility"]),
    (
        "server",
        &["core", "exec", "runtime", "journal", "visibility"],
    ),
];

/// Crates at the end of all arrows: they may use any other.
const ENDS: &[&str] = &["cofferdam", "xtask"];

/// Packages from outside that have a room, and the crates that are it.
const ROOMS: &[(&str, &[&str])] = &[
    ("tokio", &["server", "egress", "client"]),
    ("tokio-stream", &["server", "egress", "client"]),
    ("axum", &["server"]),
    ("hyper", &["server", "egress", "client"]),
    ("rusqlite", &["journal"]),
    ("landlock", &["sandbox"]),
    ("seccompiler", &["sandbox"]),
    ("libc", &["sandbox"]),
    ("anyhow", &["cofferdam", "xtask"]),
    ("clap", &["cofferdam", "xtask"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in &tree.crates {
        let place = format!("{}/Cargo.toml", one.name);
        let arrows = ARROWS
            .iter()
            .find(|(name, _)| *name == one.name)
            .map(|(_, to)| *to);
        let end = ENDS.contains(&one.name.as_str());
        if arrows.is_none() && !end {
            findings.push(Finding::new(
                &place,
                "has no place in the picture of the crates",
            ));
        }
        for dependency in one.dependencies() {
            let package = dependency.package.as_str();
            let ours = package.strip_prefix("cofferdam-");
            if let (Some(to), Some(allowed)) = (ours, arrows)
                && !allowed.contains(&to)
            {
                findings.push(Finding::new(
                    &place,
                    format!("{} may not use {to}", one.name),
                ));
            }
            let room = ROOMS
                .iter()
                .find(|(name, _)| *name == package)
                .map(|(_, room)| *room);
            if room.is_some_and(|room| !room.contains(&one.name.as_str())) {
                let room = room.unwrap_or_default().join(", ");
                findings.push(Finding::new(
                    &place,
                    format!("{package} is only for {room}"),
                ));
            }
        }
    }
    findings
}

pub(super) fn summary(tree: &Tree) -> String {
    format!("{} crates", tree.crates.len())
}

#[cfg(test)]
mod tests {
    use super::super::tree::samples::sample;
    use super::*;

    #[test]
    fn an_arrow_backwards_is_found() {
        let tree = sample(
            "core",
            "[dependencies]\ncofferdam-journal.workspace = true",
            &[],
        );
        let findings = check(&tree);
        assert_eq!(
            findings,
            [Finding::new("core/Cargo.toml", "core may not use journal")]
        );
    }

    #[test]
    fn an_arrow_of_the_picture_is_fine() {
        let tree = sample(
            "keeper",
            "[dependencies]\ncofferdam-sandbox.workspace = true",
            &[],
        );
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_renamed_and_a_target_dependency_are_seen() {
        let renamed = "[target.'cfg(unix)'.dependencies]\nlog = { package = \"cofferdam-exec\" }";
        assert_eq!(check(&sample("visibility", renamed, &[])).len(), 1);
    }

    #[test]
    fn a_runtime_outside_its_room_is_found() {
        let findings = check(&sample(
            "exec",
            "[dependencies]\ntokio.workspace = true",
            &[],
        ));
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn a_crate_outside_the_picture_is_found() {
        assert_eq!(check(&sample("helpers", "", &[])).len(), 1);
    }
}
