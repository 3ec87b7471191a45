//! The commits that a task made, for whoever looks at it step by step.

use cofferdam_core::bytes::BytePath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::WorktreeRecord;
use super::{WorkspaceError, Workspaces};

/// A commit that a task made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskCommit {
    /// Its id.
    pub oid: String,
    /// The first line of its message; bytes that are not UTF-8 are replaced.
    pub subject: String,
    /// Files that it changed against its first parent.
    pub files: Vec<BytePath>,
}

impl Workspaces {
    /// Lists the commits of a harvested task along its first parents, oldest first, the newest
    /// `at_most` of them.
    pub fn commits(
        &self,
        record: &WorktreeRecord,
        at_most: usize,
    ) -> Result<Vec<TaskCommit>, WorkspaceError> {
        let Some(harvest) = &record.harvest else {
            return Ok(Vec::new());
        };
        self.acting(|| {
            let repository = record.user_repository();
            let output = self
                .git
                .on(&repository.git_dir, &repository.top)
                .args(["log", "-z", "--first-parent", "--diff-merges=first-parent"])
                .args(["--no-renames", "--no-ext-diff", "--no-textconv"])
                .args(["-r", "--raw", "--no-show-signature", "--no-color"])
                .args(["--no-mailmap", "--encoding=UTF-8", "--format=%H %s"])
                .args([
                    &format!("--max-count={at_most}"),
                    &harvest.commit,
                    &format!("^{}", record.measured_from()),
                    "--",
                ])
                .output()?;
            let mut commits = parse(&output);
            commits.reverse();
            Ok(commits)
        })
    }
}

/// Reads `log -z --raw`: a head, then for each file a record that begins with a colon and its name.
/// A name is taken by its place only, so that none can pass for a head.
fn parse(output: &[u8]) -> Vec<TaskCommit> {
    let mut commits: Vec<TaskCommit> = Vec::new();
    let mut fields = output.split(|byte| *byte == 0);
    while let Some(field) = fields.next() {
        // A line end stands between the head and the first record.
        let field = field.strip_prefix(b"\n").unwrap_or(field);
        if field.starts_with(b":") {
            if let (Some(name), Some(commit)) = (fields.next(), commits.last_mut()) {
                commit.files.push(BytePath::from_bytes(name));
            }
        } else if !field.is_empty() {
            let head = String::from_utf8_lossy(field);
            let (oid, subject) = head.split_once(' ').unwrap_or((&head, ""));
            commits.push(TaskCommit {
                oid: oid.to_owned(),
                subject: subject.to_owned(),
                files: Vec::new(),
            });
        }
    }
    commits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_names_are_told_apart() {
        let output =
            b"aa second one\0\n:1 A\0b.txt\0:2 A\0dd forged\0bb first\0\n:3 M\0a.txt\0cc empty\0";
        let told: Vec<_> = parse(output)
            .into_iter()
            .map(|one| (one.oid, one.subject, one.files.len()))
            .collect();
        let expected = [
            ("aa", "second one", 2),
            ("bb", "first", 1),
            ("cc", "empty", 0),
        ]
        .map(|(oid, subject, files)| (oid.to_owned(), subject.to_owned(), files));
        assert_eq!(told, expected);
    }
}
