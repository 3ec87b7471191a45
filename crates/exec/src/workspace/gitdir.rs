//! The git directory of a task, written by hand: no clone, no git process.
//!
//! It borrows the user's objects, knows the user's branches, tags and remote branches as they were,
//! and holds copies of those settings that say how files and people are written. Nothing in it leads
//! to a program: no hooks, no helpers, no drivers; only what is pushed meets a hook of ours, see
//! [`outbox`].

use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::carry::person;
use super::outbox;
use crate::git::{Configuration, Reference};

/// The marker's name in a task's git directory.
pub(crate) const MARKER: &str = "cofferdam";

/// Settings that are copied as they are.
const COPIED: &[&str] = &[
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.bigfilethreshold",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "i18n.commitencoding",
    "user.name",
    "user.email",
    "author.name",
    "author.email",
    "committer.name",
    "committer.email",
    "pull.rebase",
    "merge.conflictstyle",
    "merge.renames",
    "diff.renames",
];

/// What a git directory is made from.
#[derive(Debug)]
pub(crate) struct GitDirectory<'a> {
    /// Directories of objects that are borrowed, by paths that hold outside and inside.
    pub(crate) borrowed: &'a [&'a Path],
    /// `sha1` or `sha256`.
    pub(crate) object_format: &'a str,
    /// Configuration of the user's repository.
    pub(crate) configuration: &'a Configuration,
    /// References that it shall know.
    pub(crate) references: &'a [Reference],
    /// What `HEAD` holds: `ref: …` or a commit.
    pub(crate) head: &'a str,
    /// The branch that is made, by its full name, with its commit.
    pub(crate) branch: Option<(&'a str, &'a str)>,
    /// `info/exclude`.
    pub(crate) exclude: &'a [u8],
    /// `info/attributes`, where there is one.
    pub(crate) attributes: Option<&'a [u8]>,
    /// `info/sparse-checkout`, where there is one.
    pub(crate) sparse: Option<&'a [u8]>,
    /// `shallow`, where there is one.
    pub(crate) shallow: Option<&'a [u8]>,
    /// `core.worktree`, for submodules.
    pub(crate) work_tree: Option<&'a str>,
}

impl GitDirectory<'_> {
    /// Writes it to a path where nothing stands yet.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)?;
        // What git makes when it needs it is left to git.
        for directory in ["objects", "objects/info", "refs", "refs/heads", "info"] {
            std::fs::create_dir(path.join(directory))?;
        }
        std::fs::write(path.join("HEAD"), format!("{}\n", self.head))?;
        std::fs::write(path.join("config"), self.configuration_text())?;
        let alternates: Vec<u8> = self
            .borrowed
            .iter()
            .flat_map(|one| alternate_line(one))
            .collect();
        std::fs::write(path.join("objects/info/alternates"), alternates)?;
        std::fs::write(path.join("info/exclude"), self.exclude)?;
        if let Some(attributes) = self.attributes {
            std::fs::write(path.join("info/attributes"), attributes)?;
        }
        if let Some(sparse) = self.sparse {
            std::fs::write(path.join("info/sparse-checkout"), sparse)?;
        }
        if let Some(shallow) = self.shallow {
            std::fs::write(path.join("shallow"), shallow)?;
        }
        std::fs::write(path.join("packed-refs"), packed_references(self.references))?;
        for reference in self.references {
            if let Some(target) = &reference.symbolic {
                write_reference(path, &reference.name, &format!("ref: {target}"))?;
            }
        }
        if let Some((name, commit)) = self.branch {
            write_reference(path, name, commit)?;
        }
        outbox::make(path, &self.held_remotes(), self.object_format)
    }

    /// Gives the remotes to which a push goes to a place of the task's own; of a submodule none.
    fn held_remotes(&self) -> Vec<String> {
        if self.work_tree.is_some() {
            return Vec::new();
        }
        outbox::remotes(self.configuration)
    }

    fn configuration_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let version = if self.object_format == "sha1" {
            "0"
        } else {
            "1"
        };
        let fixed = [
            ("core.repositoryformatversion", version),
            ("core.bare", "false"),
            ("core.logallrefupdates", "true"),
            // A maintenance process in the background would outlive the command that started it.
            ("gc.auto", "0"),
            ("gc.worktreepruneexpire", "never"),
            ("maintenance.auto", "false"),
        ];
        for (key, value) in fixed {
            setting(&mut text, key, value.as_bytes());
        }
        if self.object_format != "sha1" {
            setting(
                &mut text,
                "extensions.objectformat",
                self.object_format.as_bytes(),
            );
        }
        if let Some(work_tree) = self.work_tree {
            setting(&mut text, "core.worktree", work_tree.as_bytes());
        }
        for key in COPIED {
            if let Some(value) = self.configuration.get(key) {
                let sparse = key.starts_with("core.sparse");
                if !sparse || self.sparse.is_some() {
                    setting(&mut text, key, value);
                }
            }
        }
        // A commit in the tree shall not fail for want of a name where the user has none.
        if self.configuration.get("user.email").is_none() {
            let (name, email) = person(self.configuration);
            setting(&mut text, "user.name", name.as_bytes());
            setting(&mut text, "user.email", email.as_bytes());
        }
        let held = self.held_remotes();
        for (key, value) in self.configuration.entries() {
            let Some(rest) = key.strip_prefix("remote.") else {
                continue;
            };
            let is_held = |name: &str| held.iter().any(|one| one == name);
            match rest.rsplit_once('.') {
                Some((name, "pushurl")) if is_held(name) => {}
                Some((_, "url" | "pushurl")) => setting(&mut text, key, &without_password(value)),
                Some((_, "fetch")) => setting(&mut text, key, value),
                _ => {}
            }
        }
        for name in &held {
            let key = format!("remote.{name}.pushurl");
            setting(&mut text, &key, outbox::address(name).as_bytes());
        }
        for name in self.configuration.names("filter") {
            setting(&mut text, &format!("filter.{name}.smudge"), b"");
            setting(&mut text, &format!("filter.{name}.process"), b"");
            setting(&mut text, &format!("filter.{name}.required"), b"false");
        }
        text
    }
}

fn write_reference(git_dir: &Path, name: &str, content: &str) -> io::Result<()> {
    let path = git_dir.join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, format!("{content}\n"))
}

fn packed_references(references: &[Reference]) -> String {
    let mut text = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for reference in references.iter().filter(|one| one.symbolic.is_none()) {
        let _ = writeln!(text, "{} {}", reference.oid, reference.name);
        if let Some(peeled) = &reference.peeled {
            let _ = writeln!(text, "^{peeled}");
        }
    }
    text
}

/// Writes one setting, with its section, in git's quoting.
fn setting(text: &mut Vec<u8>, key: &str, value: &[u8]) {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    match rest.rsplit_once('.') {
        Some((name, last)) => {
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            text.extend_from_slice(format!("[{section} \"{name}\"]\n\t{last} = \"").as_bytes());
        }
        None => text.extend_from_slice(format!("[{section}]\n\t{rest} = \"").as_bytes()),
    }
    for byte in value {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            _ => text.push(*byte),
        }
    }
    text.extend_from_slice(b"\"\n");
}

/// Gives the line of an alternates file for a directory, in git's quoting where it needs it.
pub(crate) fn alternate_line(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let plain = !bytes.contains(&b'\n') && !matches!(bytes.first(), Some(b'"' | b'#'));
    let mut line = if plain {
        bytes.to_vec()
    } else {
        let mut quoted = vec![b'"'];
        for byte in bytes {
            match byte {
                b'\n' => quoted.extend_from_slice(b"\\n"),
                b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', *byte]),
                _ => quoted.push(*byte),
            }
        }
        quoted.push(b'"');
        quoted
    };
    line.push(b'\n');
    line
}

/// Takes a password out of a URL; over HTTP the user too, which there often is a token.
pub(super) fn without_password(url: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(url);
    let Some((scheme, rest)) = text.split_once("://") else {
        return url.to_vec();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let Some((user, host)) = authority.rsplit_once('@') else {
        return url.to_vec();
    };
    let user = user.split(':').next().unwrap_or("");
    if scheme.starts_with("http") || user.is_empty() {
        format!("{scheme}://{host}{path}").into_bytes()
    } else {
        format!("{scheme}://{user}@{host}{path}").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_stay_out() {
        let strip = |url: &str| String::from_utf8(without_password(url.as_bytes())).unwrap();
        assert_eq!(
            strip("https://me:tok@h.example/a@b.git"),
            "https://h.example/a@b.git"
        );
        assert_eq!(strip("ssh://git:pw@h.example/a"), "ssh://git@h.example/a");
        assert_eq!(strip("git@h.example:a/b.git"), "git@h.example:a/b.git");
        assert_eq!(strip("/srv/x"), "/srv/x");
    }

    #[test]
    fn settings_are_quoted() {
        let mut text = Vec::new();
        setting(&mut text, "remote.a \"b\".url", b"x\\y\"\nz # ;");
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "[remote \"a \\\"b\\\"\"]\n\turl = \"x\\\\y\\\"\\nz # ;\"\n"
        );
    }
}
