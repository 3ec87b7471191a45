//! What a pull request, a publication and a write outside of the workspace would do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::effect::HeldCommit;
use crate::approval::PreviewLine;
use crate::bytes::BytePath;
use crate::operation::Encoding;
use crate::spec::Digest;
use crate::task::DiffSummary;

/// What a program of the owner's is given at its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgramInput {
    /// Nothing.
    Nothing,
    /// The body of the pull request.
    Body,
    /// One JSON object: `remote`, `url`, `head`, `commit`, `base`, `title`, `body`.
    Json,
}

/// One pull request, of a task's own branch into another one of the repository that the branch is
/// pushed to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullRequestEffect {
    /// Top of the owner's working tree.
    pub repository: BytePath,
    /// The remote, by its name in the owner's configuration.
    pub remote: String,
    /// Where that leads, without passwords.
    pub urls: Vec<String>,
    /// The branch by its full name, as the remote has to have it before.
    pub branch: String,
    /// The commit at which the remote has to have it: exactly this one is offered.
    pub commit: String,
    /// The branch into which it is offered, by its short name.
    pub base: String,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// What is run, whole: the program by its absolute path, and its arguments.
    pub argv: Vec<String>,
    /// What that is given at its standard input.
    pub input: ProgramInput,
    /// What differs from where the task began.
    pub summary: DiffSummary,
    /// What is to be known before an answer, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
}

/// One command that is run in a clean export of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishEffect {
    /// Top of the owner's working tree.
    pub repository: BytePath,
    /// The branch by its full name.
    pub branch: String,
    /// The commit: exactly what it holds is exported.
    pub commit: String,
    /// What is run, word for word, as it was asked for.
    pub argv: Vec<String>,
    /// Where its first word was found.
    pub program: BytePath,
    /// The folder in the export where it runs; empty for its top.
    #[serde(default, skip_serializing_if = "BytePath::is_empty")]
    pub directory: BytePath,
    /// Commits of the task in it, oldest first; the newest fifty.
    pub commits: Vec<HeldCommit>,
    /// What differs from where the task began.
    pub summary: DiffSummary,
    /// What is to be known before an answer, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
}

impl PublishEffect {
    /// Gives the command in one line, quoted where a shell would need it.
    pub fn line(&self) -> String {
        words(&self.argv)
    }
}

impl PullRequestEffect {
    /// Gives the command in one line, quoted where a shell would need it.
    pub fn line(&self) -> String {
        words(&self.argv)
    }
}

/// Writes words so that a person sees where each one ends.
fn words(argv: &[String]) -> String {
    let is_plain = |word: &String| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=@+,%".contains(&byte))
    };
    let quoted = argv.iter().map(|word| {
        if is_plain(word) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// What stands in a file before it is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileBefore {
    /// The digest of its bytes. Where the file holds something else, nothing is written.
    pub digest: Digest,
    /// How many bytes.
    pub bytes: u64,
    /// Its permissions, which it keeps.
    pub mode: u32,
}

/// One file outside of the workspace that would hold certain bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteOutsideEffect {
    /// The workspace from which it was proposed.
    pub workspace: BytePath,
    /// The file, where it really is: every link above it is resolved, and it is none itself.
    pub path: BytePath,
    /// What stands in it; nothing where it is not there. Then it is made with permissions 0644, less
    /// what the owner's mask takes away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileBefore>,
    /// The digest of what it would hold.
    pub digest: Digest,
    /// How many bytes that is.
    pub bytes: u64,
    /// What it would hold.
    pub content: String,
    /// How `content` is told.
    pub encoding: Encoding,
    /// What changes in it, with three lines around it.
    pub diff: Vec<PreviewLine>,
    /// Whether lines of the diff, or parts of lines, are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diff_cut: bool,
    /// What is to be known before an answer, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_seen_apart() {
        let argv = ["npm", "publish", "a b", "", "it's"].map(str::to_owned);
        insta::assert_snapshot!(words(&argv), @r"npm publish 'a b' '' 'it'\''s'");
    }
}
