//! Finding a repository and reading its configuration.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::{Git, GitError};

/// The user's repository, as git sees it from a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// Top of the working tree.
    pub(crate) top: PathBuf,
    /// The git directory of this tree.
    pub(crate) git_dir: PathBuf,
    /// The git directory that linked trees share.
    pub(crate) common_dir: PathBuf,
    /// Where its objects are.
    pub(crate) objects: PathBuf,
    /// `sha1` or `sha256`.
    pub(crate) object_format: String,
    /// Path from the top to the directory from which it was found, empty or ending in a slash.
    pub(crate) prefix: PathBuf,
}

/// A repository together with where its `HEAD` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// The repository.
    pub(crate) repository: Repository,
    /// The commit at `HEAD`.
    pub(crate) head: String,
    /// The branch at `HEAD` by its full name; `None` when it is detached.
    pub(crate) branch: Option<String>,
}

const QUESTIONS: [&str; 7] = [
    "--is-bare-repository",
    "--show-object-format",
    "--show-toplevel",
    "--absolute-git-dir",
    "--git-common-dir",
    "--show-prefix",
    "HEAD^{commit}",
];

/// Finds the repository around a directory. It has a working tree and at least one commit.
pub(crate) fn discover(git: &Git, directory: &Path) -> Result<Discovered, GitError> {
    let answer = git
        .call(directory)
        .args(["rev-parse", "--path-format=absolute"])
        .args(QUESTIONS)
        .args(["--symbolic-full-name", "HEAD"])
        .run()?;
    let path = directory.to_path_buf();
    let lines: Vec<&[u8]> = lines(&answer.stdout);
    if answer.code() != Some(0) {
        let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
        let is_bare = lines.first() == Some(&b"true".as_slice());
        return Err(if is_bare {
            GitError::Bare { path }
        } else if stderr.contains("dubious ownership") {
            GitError::ForeignOwner { path }
        } else if stderr.contains("not a git repository")
            || stderr.contains("must be run in a work tree")
        {
            GitError::NotARepository { path }
        } else if lines.len() >= 6 {
            let known = git.reference_exists(directory)?;
            if known {
                GitError::failed(vec!["rev-parse".to_owned(), "HEAD".to_owned()], &answer)
            } else {
                let top = PathBuf::from(OsStr::from_bytes(lines[2]));
                GitError::Unborn { path: top }
            }
        } else {
            GitError::failed(vec!["rev-parse".to_owned()], &answer)
        });
    }
    if lines.len() == QUESTIONS.len() + 1 {
        let lines: Vec<OsString> = lines
            .into_iter()
            .map(|line| OsString::from_vec(line.to_vec()))
            .collect();
        return assemble(&lines).ok_or(GitError::Unreadable {
            command: "rev-parse",
        });
    }
    // A path holds a newline: ask for each alone, where only the last newline is git's.
    let mut answers = Vec::new();
    for question in QUESTIONS
        .iter()
        .map(|one| vec![*one])
        .chain([vec!["--symbolic-full-name", "HEAD"]])
    {
        let mut output = git
            .call(directory)
            .args(["rev-parse", "--path-format=absolute"])
            .args(question)
            .output()?;
        output.pop();
        answers.push(OsString::from_vec(output));
    }
    assemble(&answers).ok_or(GitError::Unreadable {
        command: "rev-parse",
    })
}

fn lines(output: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = output.split(|byte| *byte == b'\n').collect();
    lines.pop();
    lines
}

fn assemble(answers: &[OsString]) -> Option<Discovered> {
    let [_, format, top, git_dir, common, prefix, head, branch] = answers else {
        return None;
    };
    let common_dir = PathBuf::from(common);
    let branch = branch
        .to_str()
        .filter(|name| name.starts_with("refs/heads/"));
    Some(Discovered {
        repository: Repository {
            top: top.into(),
            git_dir: git_dir.into(),
            objects: common_dir.join("objects"),
            common_dir,
            object_format: format.to_str()?.to_owned(),
            prefix: prefix.into(),
        },
        head: head.to_str()?.to_owned(),
        branch: branch.map(str::to_owned),
    })
}

impl Git {
    /// Whether `HEAD` names something that exists as a reference.
    fn reference_exists(&self, directory: &Path) -> Result<bool, GitError> {
        let answer = self
            .call(directory)
            .args(["rev-parse", "-q", "--verify", "HEAD"])
            .run()?;
        Ok(answer.code() == Some(0))
    }

    /// Resolves a revision to a commit.
    pub(crate) fn commit(
        &self,
        repository: &Repository,
        revision: &str,
    ) -> Result<String, GitError> {
        self.on(&repository.git_dir, &repository.top)
            .args(["rev-parse", "-q", "--verify", "--end-of-options"])
            .args([format!("{revision}^{{commit}}")])
            .line()
    }

    /// Reads the whole effective configuration of a repository.
    pub(crate) fn configuration(&self, repository: &Repository) -> Result<Configuration, GitError> {
        let output = self
            .on(&repository.git_dir, &repository.top)
            .args(["config", "--list", "-z"])
            .output()?;
        Ok(Configuration::parse(&output))
    }

    /// Reads the same as it is for the owner: without what the plane sets for its own calls, such as
    /// that there are no hooks and nothing is signed.
    pub(crate) fn owner_configuration(
        &self,
        repository: &Repository,
    ) -> Result<Configuration, GitError> {
        let output = self
            .on(&repository.git_dir, &repository.top)
            .in_owners_name()
            .args(["config", "--list", "-z"])
            .output()?;
        Ok(Configuration::parse(&output))
    }
}

/// The effective configuration of a repository, in the order in which git reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    entries: Vec<(String, Vec<u8>)>,
}

impl Configuration {
    /// Reads the `-z` form: key, newline, value, NUL; a key without a value has no newline.
    pub(crate) fn parse(output: &[u8]) -> Self {
        let entries = output
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.is_empty())
            .map(|entry| {
                let cut = entry.iter().position(|byte| *byte == b'\n');
                let (key, value) = match cut {
                    Some(cut) => (&entry[..cut], entry[cut + 1..].to_vec()),
                    None => (entry, b"true".to_vec()),
                };
                (String::from_utf8_lossy(key).into_owned(), value)
            })
            .collect();
        Self { entries }
    }

    /// Lends every entry; section and last part of a key are in lower case.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_slice()))
    }

    /// Gives the value that counts.
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.entries
            .iter()
            .rev()
            .find(|(own, _)| own == key)
            .map(|(_, value)| value.as_slice())
    }

    /// Gives a value as text.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key)
            .map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            !matches!(value.as_slice(), b"false" | b"no" | b"off" | b"0" | b"")
        })
    }

    /// Gives the middle parts of keys of a section, such as the names of remotes, once each.
    pub(crate) fn names(&self, section: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (key, _) in &self.entries {
            let rest = key
                .strip_prefix(section)
                .and_then(|rest| rest.strip_prefix('.'));
            if let Some((name, _)) = rest.and_then(|rest| rest.rsplit_once('.'))
                && !names.iter().any(|own| own == name)
            {
                names.push(name.to_owned());
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_read_exactly() {
        let own = Configuration::parse(
            b"user.name\nA\nB\0core.bare\nfalse\0filter.lfs.required\0filter.a.b.smudge\nx\0user.name\nC\0",
        );
        assert_eq!(own.get("user.name"), Some(b"C".as_slice()));
        assert!(!own.is_on("core.bare"));
        assert!(own.is_on("filter.lfs.required"));
        assert_eq!(own.names("filter"), ["lfs", "a.b"]);
    }
}
