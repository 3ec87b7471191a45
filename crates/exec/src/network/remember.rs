//! What was answered about hosts for a repository, kept in the data directory.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::hosts::HostRule;
use cofferdam_core::spec::Digest;
use serde::{Deserialize, Serialize};

use super::ask::HostAnswer;
use crate::plane::Plane;

/// Most bytes of one such file.
const MOST_BYTES: u64 = 1 << 20;

/// Hosts that were allowed, or refused for good, for one repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RememberedHosts {
    /// The top of the repository's working tree.
    pub(crate) repository: BytePath,
    /// What was allowed.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    /// What was refused for good.
    #[serde(default)]
    pub(crate) deny: Vec<String>,
}

fn path(data_dir: &Path, repository: &BytePath) -> PathBuf {
    let digest = Digest::of(repository.as_bytes());
    data_dir
        .join("hosts")
        .join(format!("{}.json", &digest.as_str()[..32]))
}

/// Reads what was answered for a repository; nothing where there is nothing, or nothing that can be
/// read.
pub(crate) fn remembered_hosts(data_dir: &Path, repository: &BytePath) -> RememberedHosts {
    let read = || {
        let path = path(data_dir, repository);
        if std::fs::metadata(&path).ok()?.len() > MOST_BYTES {
            return None;
        }
        let text = std::fs::read(path).ok()?;
        let found: RememberedHosts = serde_json::from_slice(&text).ok()?;
        (found.repository == *repository).then_some(found)
    };
    read().unwrap_or_default()
}

/// Adds an answer.
pub(super) fn remember(
    plane: &Plane,
    repository: &BytePath,
    rule: &HostRule,
    answer: HostAnswer,
) -> Result<(), Problem> {
    let Some(data) = plane.data() else {
        return Ok(());
    };
    let failed = |error: std::io::Error| {
        Problem::new(
            ErrorCode::Io,
            format!("the answer cannot be remembered: {error}"),
        )
    };
    let target = path(data.path(), repository);
    let directory = target.parent().unwrap_or(data.path());
    std::fs::create_dir_all(directory).map_err(failed)?;
    let lock = std::fs::File::create(directory.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut hosts = remembered_hosts(data.path(), repository);
    hosts.repository = repository.clone();
    let text = rule.to_string();
    hosts.allow.retain(|one| *one != text);
    hosts.deny.retain(|one| *one != text);
    match answer {
        HostAnswer::Never => hosts.deny.push(text),
        _ => hosts.allow.push(text),
    }
    let fresh = target.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(failed)?;
    let text = serde_json::to_vec_pretty(&hosts).map_err(|error| failed(error.into()))?;
    file.write_all(&text).map_err(failed)?;
    std::fs::rename(&fresh, &target).map_err(failed)
}
