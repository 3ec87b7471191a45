//! What the file door has done to a workspace: how much more its files hold than before, which counts
//! against the quota, and which older states are kept for the way back, of which there is a bound.
//!
//! It stands in the data directory, one small file a workspace, because a quota that a restart gives
//! anew is none. Processes take turns by a lock on it. One that cannot be read is begun anew: what it
//! told of kept states is then bounded by the journal's retention only.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::event::{Severity, event_type};
use cofferdam_core::operation::{PathChange, PathChangeKind, QuotaUse};
use cofferdam_core::spec::Digest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::FileDoor;

/// How long a workspace has been gone before what is told of it goes.
const GONE: Duration = Duration::from_hours(7 * 24);
/// Most bytes of one ledger that are read.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// One workspace.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    workspace: BytePath,
    /// Bytes that its files hold more than before, by what the door did.
    grown: u64,
    /// What is kept, the oldest first.
    kept: VecDeque<Kept>,
}

/// An older state of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept(Digest, u64, u64);

impl Kept {
    const fn bytes(&self) -> u64 {
        self.1
    }

    /// Where the journal tells of the change before which it was.
    const fn pos(&self) -> u64 {
        self.2
    }
}

/// The ledgers of a data directory, or those of a plane without one.
#[derive(Debug)]
pub(crate) struct Ledgers {
    directory: Option<PathBuf>,
    memory: Mutex<BTreeMap<BytePath, Page>>,
}

impl Ledgers {
    pub(crate) fn new(data: Option<&Path>) -> Self {
        Self {
            directory: data.map(|data| data.join("files")),
            memory: Mutex::default(),
        }
    }

    /// Reads the page of a workspace, and writes it back as it was left.
    fn turn<T>(&self, workspace: &BytePath, act: impl FnOnce(&mut Page) -> T) -> io::Result<T> {
        let new = || Page {
            workspace: workspace.clone(),
            ..Page::default()
        };
        let Some(directory) = &self.directory else {
            let mut pages = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(act(pages.entry(workspace.clone()).or_insert_with(new)));
        };
        let name = Digest::sha256(workspace.as_bytes());
        let path = directory.join(format!("{}.json", &name.as_str()[..32]));
        let mut file = open(directory, &path)?;
        file.lock()?;
        let mut text = Vec::new();
        (&mut file).take(MOST_BYTES).read_to_end(&mut text)?;
        // What follows the page is of a longer one, whose writer was killed before it cut it off.
        let mut page = serde_json::Deserializer::from_slice(&text)
            .into_iter::<Page>()
            .next()
            .and_then(Result::ok)
            .filter(|page| page.workspace == *workspace)
            .unwrap_or_else(new);
        let done = act(&mut page);
        let text = serde_json::to_vec(&page)?;
        file.rewind()?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)?;
        Ok(done)
    }
}

fn open(directory: &Path, path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    sweep(directory);
    options.create(true).truncate(false).open(path)
}

/// Removes what is told of workspaces that are gone for long.
fn sweep(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_old = fs::metadata(&path)
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|then| {
                SystemTime::now()
                    .duration_since(then)
                    .is_ok_and(|age| age > GONE)
            });
        let is_gone = || {
            let page: Page = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            let found = fs::symlink_metadata(page.workspace.as_path());
            Some(found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound))
        };
        if is_old && is_gone() == Some(true) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Bytes that a change may add, taken from the quota beforehand.
#[derive(Debug)]
pub(super) struct Reserved(u64);

impl FileDoor<'_> {
    fn ledger<T>(&self, act: impl FnOnce(&mut Page) -> T) -> io::Result<T> {
        let workspace = &self.standing.spec().workspace_source;
        self.plane.ledgers().turn(workspace, act)
    }

    /// Takes from the quota what a change is going to add.
    ///
    /// # Errors
    ///
    /// `quota_exceeded`, with `details.limit_bytes`, `used_bytes` and `needed_bytes`; `io` where the
    /// ledger cannot be read: then nobody knows what is left.
    pub(super) fn reserve(&self, growth: u64) -> Result<Reserved, Problem> {
        let Some(limit) = self.terms.bounds.quota_bytes.filter(|_| growth > 0) else {
            return Ok(Reserved(0));
        };
        let told = self.ledger(|page| {
            let wanted = page.grown.saturating_add(growth);
            if wanted > limit {
                return Err(page.grown);
            }
            page.grown = wanted;
            Ok(())
        });
        match told {
            Ok(Ok(())) => Ok(Reserved(growth)),
            Ok(Err(used)) => Err(Problem::new(
                ErrorCode::QuotaExceeded,
                format!(
                    "the change adds {growth} bytes to the {used} that file operations have added; \
                     the policy allows {limit}"
                ),
            )
            .with_field("path")
            .with_hint("remove what is not needed any more; the owner sets `limits.files`")
            .with_details(json!({
                "limit_bytes": limit,
                "used_bytes": used,
                "needed_bytes": growth,
            }))),
            Err(error) => Err(Problem::new(
                ErrorCode::Io,
                format!("what counts against the quota cannot be read: {error}"),
            )),
        }
    }

    /// Gives back what was taken for a change that is not made.
    pub(super) fn release(&self, reserved: &Reserved) {
        if reserved.0 > 0 {
            // Where it cannot be written, less is left than could be: never more.
            let _ = self.ledger(|page| page.grown = page.grown.saturating_sub(reserved.0));
        }
    }

    /// Enters what was changed, as the journal tells it at a position, and lets the oldest kept states
    /// go where there are more than the bounds allow. Tells what counts against the quota.
    pub(super) fn enter(
        &self,
        reserved: &Reserved,
        changes: &[PathChange],
        pos: u64,
    ) -> Option<QuotaUse> {
        let bounds = &self.terms.bounds;
        // Where a link leads is no content.
        let of_files = || {
            let is_link = |kind| {
                matches!(
                    kind,
                    PathChangeKind::LinkDeleted | PathChangeKind::LinkCreated
                )
            };
            changes.iter().filter(move |one| !is_link(one.kind))
        };
        let bytes = |of: fn(&PathChange) -> u64| of_files().map(of).sum::<u64>();
        let come = bytes(|one| one.after.as_ref().map_or(0, |after| after.bytes));
        let gone = bytes(|one| one.before.as_ref().map_or(0, |before| before.bytes));
        let entered = self.ledger(|page| {
            // What others made and the door removed gives no room: else a command could make it.
            page.grown = (page.grown + come).saturating_sub(reserved.0 + gone);
            let kept = changes.iter().filter_map(|one| one.before.as_ref());
            page.kept
                .extend(kept.map(|kept| Kept(kept.digest.clone(), kept.bytes, pos)));
            let mut total: u64 = page.kept.iter().map(Kept::bytes).sum();
            let mut expired = Vec::new();
            while page.kept.len() > bounds.versions.max(1)
                || total > bounds.version_bytes && page.kept.len() > 1
            {
                let Some(oldest) = page.kept.pop_front() else {
                    break;
                };
                total -= oldest.bytes();
                expired.push(oldest);
            }
            (page.grown, page.kept.len(), total, expired)
        });
        // The change is made, whatever becomes of the ledger.
        let (grown, left, left_bytes, expired) = entered.ok()?;
        self.expire(&expired, left, left_bytes);
        bounds.quota_bytes.map(|limit| QuotaUse {
            used_bytes: grown,
            limit_bytes: limit,
        })
    }

    fn expire(&self, expired: &[Kept], left: usize, left_bytes: u64) {
        let removed: Vec<_> = expired
            .iter()
            // What a later event names has an entry of its own, or is no older state.
            .filter(|one| {
                let journal = self.plane.journal();
                matches!(journal.remove_content(&one.0, one.pos()), Ok(true))
            })
            // By a key that does not name a content to the journal: it is gone.
            .map(|one| json!({"version": one.0, "bytes": one.bytes(), "pos": one.pos()}))
            .collect();
        if removed.is_empty() {
            return;
        }
        let data = json!({
            "workspace": self.standing.spec().workspace_source,
            "removed": removed,
            "kept": left,
            "kept_bytes": left_bytes,
        });
        // A receipt that cannot be written now would be the journal's failure, which the next change
        // meets anyway.
        let _ = self.plane.record(
            &self.subject,
            event_type::FILE_EXPIRED,
            Severity::Info,
            data,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_outlives_the_process_and_a_writer_that_was_killed() {
        let place = tempfile::tempdir().expect("a directory");
        let workspace = BytePath::from("/w");
        let ledgers = || Ledgers::new(Some(place.path()));
        let kept = || Kept(Digest::of(b"x"), 1, 2);
        ledgers()
            .turn(&workspace, |page| {
                page.grown = 7;
                page.kept.push_back(kept());
            })
            .expect("written");
        let name = Digest::sha256(b"/w");
        let path = place.path().join("files");
        let path = path.join(format!("{}.json", &name.as_str()[..32]));
        let mut file = OpenOptions::new().append(true).open(path).expect("there");
        file.write_all(b"]}rest of a longer one").expect("written");
        let (grown, all) = ledgers()
            .turn(&workspace, |page| (page.grown, page.kept.pop_back()))
            .expect("read");
        assert_eq!((grown, all), (7, Some(kept())));
        let other = ledgers().turn(&BytePath::from("/v"), |page| page.grown);
        assert_eq!(other.expect("read"), 0);
    }
}
