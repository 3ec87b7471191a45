//! Answers that are remembered for a repository, kept in the data directory, which nothing inside
//! reaches: one file for each repository.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::approval::{ApprovalAnswer, RememberedAnswer, RememberedWhat};
use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::id::RuleId;
use cofferdam_core::spec::Digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::workspace::replace_file;

/// Most bytes of one file.
const MOST_BYTES: u64 = 4 << 20;
/// Most answers of one repository; the oldest gives way.
const MOST: usize = 2_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    repository: BytePath,
    answers: Vec<RememberedAnswer>,
}

/// Hosts that were allowed, or refused for good.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RememberedHosts {
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
}

fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("answers")
}

fn path(data_dir: &Path, repository: &BytePath) -> PathBuf {
    let digest = Digest::sha256(repository.as_bytes());
    directory(data_dir).join(format!("{}.json", &digest.as_str()[..32]))
}

fn read(path: &Path) -> Option<Record> {
    if std::fs::metadata(path).ok()?.len() > MOST_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Reads what was answered for a repository, in the order in which it was said; nothing where there
/// is nothing, or nothing that can be read: then it is asked again.
pub fn remembered_answers(data_dir: &Path, repository: &BytePath) -> Vec<RememberedAnswer> {
    read(&path(data_dir, repository))
        .filter(|found| found.repository == *repository)
        .map(|found| found.answers)
        .unwrap_or_default()
}

/// Reads what was answered for every repository.
pub fn all_remembered(data_dir: &Path) -> Vec<RememberedAnswer> {
    let entries = std::fs::read_dir(directory(data_dir)).into_iter().flatten();
    let mut answers: Vec<RememberedAnswer> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "json"))
        .filter_map(|entry| read(&entry.path()))
        .flat_map(|record| record.answers)
        .collect();
    answers.sort_by_key(|one| one.created);
    answers
}

/// Remembers an answer; one about the same gives way.
///
/// # Errors
///
/// `io`.
pub fn remember_answer(data_dir: &Path, answer: RememberedAnswer) -> Result<(), Problem> {
    let repository = answer.repository.clone();
    change(data_dir, &repository, |answers| {
        answers.retain(|one| one.what != answer.what);
        answers.push(answer);
        let surplus = answers.len().saturating_sub(MOST);
        answers.drain(..surplus);
    })
    .map_err(|error| {
        Problem::new(
            ErrorCode::Io,
            format!("the answer cannot be remembered: {error}"),
        )
    })
}

/// Takes an answer back; gives it, where there is one of that id.
///
/// # Errors
///
/// `io`.
pub fn forget_answer(data_dir: &Path, id: &RuleId) -> Result<Option<RememberedAnswer>, Problem> {
    let found = all_remembered(data_dir)
        .into_iter()
        .find(|one| one.rule_id == *id);
    let Some(found) = found else {
        return Ok(None);
    };
    change(data_dir, &found.repository, |answers| {
        answers.retain(|one| one.rule_id != *id);
    })
    .map_err(|error| {
        Problem::new(
            ErrorCode::Io,
            format!("the answer cannot be taken back: {error}"),
        )
    })?;
    Ok(Some(found))
}

fn change(
    data_dir: &Path,
    repository: &BytePath,
    change: impl FnOnce(&mut Vec<RememberedAnswer>),
) -> io::Result<()> {
    let directory = directory(data_dir);
    std::fs::create_dir_all(&directory)?;
    let lock = File::create(directory.join("lock"))?;
    lock.lock()?;
    let mut record = Record {
        repository: repository.clone(),
        answers: remembered_answers(data_dir, repository),
    };
    change(&mut record.answers);
    replace_file(
        &path(data_dir, repository),
        &serde_json::to_vec_pretty(&record)?,
    )
}

/// Tells whether a path that was authorised is still what it was: a link that stands on the way by now
/// would lead elsewhere.
pub fn is_as_authorised(path: &BytePath) -> bool {
    path.as_path()
        .canonicalize()
        .is_ok_and(|real| real == path.as_path())
}

/// Gives the hosts among what was answered for a repository and still holds.
pub(crate) fn remembered_hosts(data_dir: &Path, repository: &BytePath) -> RememberedHosts {
    let now = Timestamp::now();
    let mut hosts = RememberedHosts::default();
    for one in remembered_answers(data_dir, repository) {
        let RememberedWhat::Host { rule } = one.what else {
            continue;
        };
        if now < one.expires {
            match one.answer {
                ApprovalAnswer::Approve => hosts.allow.push(rule),
                ApprovalAnswer::Reject => hosts.deny.push(rule),
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(repository: &str, rule: &str, answer: ApprovalAnswer, random: u8) -> RememberedAnswer {
        let created = Timestamp::now();
        RememberedAnswer {
            rule_id: RuleId::new(u64::from(random), [random; 10]),
            repository: BytePath::from(repository),
            answer,
            what: RememberedWhat::Host {
                rule: rule.to_owned(),
            },
            approval_id: None,
            created,
            expires: created + jiff::SignedDuration::from_hours(1),
        }
    }

    #[test]
    fn an_answer_is_kept_for_its_repository_listed_and_taken_back() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path();
        let yes = host("/one", "a.example:443", ApprovalAnswer::Approve, 1);
        let no = host("/one", "b.example:443", ApprovalAnswer::Reject, 2);
        let other = host("/two", "c.example:443", ApprovalAnswer::Approve, 3);
        for one in [&yes, &no, &other] {
            remember_answer(data, one.clone()).expect("remembered");
        }
        let of = |repository: &str| remembered_hosts(data, &BytePath::from(repository));
        assert_eq!(of("/one").allow, ["a.example:443"]);
        assert_eq!(of("/one").deny, ["b.example:443"]);
        assert_eq!(of("/three"), RememberedHosts::default());
        assert_eq!(all_remembered(data).len(), 3);
        // The last word about something is the one that stands.
        let changed = host("/one", "a.example:443", ApprovalAnswer::Reject, 4);
        remember_answer(data, changed.clone()).expect("remembered");
        assert_eq!(of("/one").allow, [""; 0]);
        let gone = forget_answer(data, &changed.rule_id).expect("taken back");
        assert_eq!(gone, Some(changed));
        assert_eq!(of("/one").deny, ["b.example:443"]);
        assert_eq!(forget_answer(data, &yes.rule_id).expect("looked"), None);
    }

    #[test]
    fn what_has_expired_answers_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let mut old = host("/one", "a.example:443", ApprovalAnswer::Approve, 1);
        old.expires = old.created;
        remember_answer(place.path(), old).expect("remembered");
        let found = remembered_hosts(place.path(), &BytePath::from("/one"));
        assert_eq!(found, RememberedHosts::default());
    }
}
