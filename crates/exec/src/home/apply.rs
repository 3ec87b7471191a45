//! Applying a change of an agent's state: the owner's doing, never by itself.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::profile::{StateChange, StateChangeKind};
use cofferdam_core::spec::Identity;

use super::document::{Document, Format};
use super::files::{open_in, problem};
use super::write::{self, Content, NewFile};

/// Bytes of a file that is changed.
const BYTES: u64 = 32 << 20;

/// A change that the owner wants applied.
#[derive(Debug)]
pub struct ApplyState<'a> {
    /// The change as it was recorded.
    pub change: &'a StateChange,
    /// What the agent put there, for a change that keeps the whole content.
    pub after: Option<&'a [u8]>,
    /// Whose the home is, where that is not this process.
    pub identity: Option<&'a Identity>,
}

/// Applies a change to the real home.
///
/// # Errors
///
/// `denied` for what is not kept (credentials, links, conflicts), `target_moved` where the file is not
/// any more what it was when the agent changed it, `io`.
pub fn apply_state(request: &ApplyState<'_>) -> Result<(), Problem> {
    crate::workspace::as_identity(request.identity, || apply(request))
}

fn apply(request: &ApplyState<'_>) -> Result<(), Problem> {
    let change = request.change;
    let host = change.host.as_path();
    if !change.is_applicable() {
        return Err(Problem::new(
            ErrorCode::Denied,
            format!("the change of {} is not kept as a whole", change.path),
        )
        .with_hint("it holds credentials or is no plain file: make it by hand if it is wanted"));
    }
    let (Some(top), Some(name)) = (host.parent(), host.file_name().map(Path::new)) else {
        return Err(Problem::new(
            ErrorCode::Internal,
            "a change without a place",
        ));
    };
    let failed = |error: std::io::Error| problem("write", host, &error);
    let existing = open_in(top, name).map_err(failed)?;
    let (now, mode) = match &existing {
        None => (None, None),
        Some((file, metadata)) => (
            write::read_whole(file, BYTES).map_err(failed)?,
            Some(metadata.mode()),
        ),
    };
    let put = |bytes: &[u8], replace: bool| {
        write::put(
            top,
            name,
            &NewFile {
                content: Content::Bytes(bytes),
                mode: mode.unwrap_or(0o600),
                modified: None,
                replace,
                owner: request.identity,
            },
        )
        .map_err(failed)
    };
    if !change.keys.is_empty() {
        let format = Format::of(change.path.as_path());
        let mut document = match &now {
            None => Document::empty(format),
            Some(text) => Document::read(format, text).ok_or_else(|| {
                Problem::new(
                    ErrorCode::Io,
                    format!("{} is no {}", change.host, format.as_str()),
                )
            })?,
        };
        for key in &change.keys {
            document.set(&key.key, key.after.as_ref());
        }
        return put(&document.bytes(), true);
    }
    let before = change.before.as_ref().map(|content| &content.digest);
    let is_as_before = match (before, &now) {
        (None, None) => existing.is_none(),
        (Some(before), Some(now)) => before.is_of(now),
        _ => false,
    };
    if !is_as_before {
        return Err(Problem::new(
            ErrorCode::TargetMoved,
            format!("{} has changed since the agent worked", change.host),
        )
        .with_hint("look at both and put them together by hand"));
    }
    match (change.what, request.after) {
        (StateChangeKind::Deleted, _) => write::remove(top, name).map_err(failed),
        (_, Some(after)) => put(after, existing.is_some()),
        (_, None) => Err(Problem::new(
            ErrorCode::Io,
            format!(
                "what the agent wrote to {} is not kept any more",
                change.path
            ),
        )),
    }
}
