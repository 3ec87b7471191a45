//! Which words can be the name of a run or a worker.

use super::WorkspaceError;

/// The run under which trees that last lie; no run may have this name.
pub(crate) const PERSISTENT: &str = "persistent";

/// Checks a word that becomes a part of a branch, of a reference and of a path.
pub(crate) fn check(what: &'static str, name: &str) -> Result<(), WorkspaceError> {
    let refuse = |why| {
        Err(WorkspaceError::Name {
            what,
            name: name.to_owned(),
            why,
        })
    };
    if name.is_empty() || name.len() > 100 {
        return refuse("it has to have 1 to 100 bytes");
    }
    if name.starts_with(['.', '-']) || name.ends_with('.') {
        return refuse("it may not begin with a dot or a dash, nor end with a dot");
    }
    if name.contains("..") || name.contains("@{") || name == "@" {
        return refuse("git does not take it in a branch name");
    }
    if std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("lock"))
    {
        return refuse("git does not take .lock at the end of a branch name");
    }
    let bad = |one: char| one.is_control() || one.is_whitespace() || "/~^:?*[\\\"'`$".contains(one);
    if name.contains(bad) {
        return refuse("it may hold letters, digits, dots, dashes and the like");
    }
    if what == "run" && name == PERSISTENT {
        return refuse("it is kept for trees that last");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_or_a_path_would_trip_over_are_refused() {
        for good in ["fix-parser", "a.b_c", "größe", "1"] {
            check("worker", good).unwrap();
        }
        for bad in [
            "", "a/b", "..", ".git", "-x", "a..b", "a b", "a.lock", "x.", "a\n", "@",
        ] {
            assert!(check("worker", bad).is_err(), "{bad:?}");
        }
        assert!(check("run", "persistent").is_err());
    }
}
