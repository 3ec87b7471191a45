//! References: reading them, and changing several at once or none.

use std::time::Duration;

use super::{Git, GitError, Repository};
use crate::tool::Input;

/// One reference of the user's repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Its full name.
    pub(crate) name: String,
    /// What it names.
    pub(crate) oid: String,
    /// What its tag object leads to, when it names one.
    pub(crate) peeled: Option<String>,
    /// The reference that it stands for, when it is a symbolic one.
    pub(crate) symbolic: Option<String>,
}

/// A change of one reference, made only when it is where it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefChange {
    /// It does not exist yet.
    Create {
        /// Its full name.
        name: String,
        /// What it shall name.
        new: String,
    },
    /// It moves.
    Update {
        /// Its full name.
        name: String,
        /// What it shall name.
        new: String,
        /// What it names now.
        old: String,
    },
    /// It goes.
    Delete {
        /// Its full name.
        name: String,
        /// What it names now.
        old: String,
    },
}

impl RefChange {
    pub(crate) fn create(name: impl Into<String>, new: impl Into<String>) -> Self {
        Self::Create {
            name: name.into(),
            new: new.into(),
        }
    }

    pub(crate) fn update(
        name: impl Into<String>,
        new: impl Into<String>,
        old: impl Into<String>,
    ) -> Self {
        Self::Update {
            name: name.into(),
            new: new.into(),
            old: old.into(),
        }
    }

    pub(crate) fn delete(name: impl Into<String>, old: impl Into<String>) -> Self {
        Self::Delete {
            name: name.into(),
            old: old.into(),
        }
    }
}

impl Git {
    /// Lists references below prefixes, sorted by name.
    pub(crate) fn references(
        &self,
        repository: &Repository,
        prefixes: &[&str],
    ) -> Result<Vec<Reference>, GitError> {
        let output = self
            .on(&repository.git_dir, &repository.top)
            .args([
                "for-each-ref",
                "--format=%(objectname)%00%(*objectname)%00%(refname)%00%(symref)",
            ])
            .args(prefixes)
            .output()?;
        parse(&output).ok_or(GitError::Unreadable {
            command: "for-each-ref",
        })
    }

    /// Gives the commit or object that a full reference name names; `None` when there is none.
    pub(crate) fn reference(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<Option<String>, GitError> {
        let found = self.references(repository, &[name])?;
        Ok(found
            .into_iter()
            .find(|one| one.name == name)
            .map(|one| one.oid))
    }

    /// Makes all of these changes, or none.
    ///
    /// A lock file of somebody else's git is waited for; a reference that is not where it was seen
    /// gives [`GitError::RefMoved`].
    pub(crate) fn change_references(
        &self,
        repository: &Repository,
        message: &str,
        changes: &[RefChange],
    ) -> Result<(), GitError> {
        let mut input = Vec::new();
        let mut words = |words: &[&str]| {
            input.extend_from_slice(words[0].as_bytes());
            input.push(b' ');
            for word in &words[1..] {
                input.extend_from_slice(word.as_bytes());
                input.push(0);
            }
        };
        for change in changes {
            match change {
                RefChange::Create { name, new } => words(&["create", name, new]),
                RefChange::Update { name, new, old } => words(&["update", name, new, old]),
                RefChange::Delete { name, old } => words(&["delete", name, old]),
            }
        }
        let mut pause = Duration::from_millis(20);
        loop {
            let outcome = self
                .on(&repository.git_dir, &repository.top)
                .args(["update-ref", "-m", message, "-z", "--stdin"])
                .input(Input::Bytes(&input))
                .output();
            let Err(GitError::Failed { args, code, stderr }) = outcome else {
                remove_empty_directories(repository);
                return outcome.map(drop);
            };
            let held = stderr.contains(".lock': File exists");
            if held && pause < Duration::from_secs(1) {
                std::thread::sleep(pause);
                pause *= 2;
            } else if !held && stderr.contains("cannot lock ref") {
                return Err(GitError::RefMoved {
                    stderr: stderr.trim().to_owned(),
                });
            } else {
                return Err(GitError::Failed { args, code, stderr });
            }
        }
    }
}

/// Removes the directories of our own references when nothing is in them any more, which git itself
/// leaves standing.
fn remove_empty_directories(repository: &Repository) {
    let top = repository.common_dir.join("refs/cofferdam");
    for name in ["base", "saved", "trash", "undo"] {
        let _ = std::fs::remove_dir(top.join(name));
    }
    let _ = std::fs::remove_dir(top);
}

fn parse(output: &[u8]) -> Option<Vec<Reference>> {
    // Names of references hold neither newline nor NUL.
    let text = std::str::from_utf8(output).map_or_else(
        |_| String::from_utf8_lossy(output).into_owned(),
        str::to_owned,
    );
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    text.lines()
        .map(|line| {
            let mut fields = line.split('\0');
            let (oid, peeled) = (fields.next()?, fields.next()?);
            let (name, symbolic) = (fields.next()?, fields.next()?);
            Some(Reference {
                name: name.to_owned(),
                oid: oid.to_owned(),
                peeled: some(peeled),
                symbolic: some(symbolic),
            })
        })
        .collect()
}
