//! Whose a container is, and what planes that died have left of them.
//!
//! A container ends with its plane, since its keeper does, and its engine removes it then. What is
//! found here is what an engine was stopped in the middle of.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::Digest;

use super::engine::Engine;
use crate::provider::remove_tree;

/// The directory of a data directory for everything about containers.
const CONTAINERS: &str = "containers";
/// The file in it that names the engine's socket.
const ENGINE: &str = "engine";

const PLANE: &str = "cofferdam.plane";
const LEASE: &str = "cofferdam.lease";

/// Gives the labels by which a container of this data directory is known again.
pub(crate) fn labels(data: &Path, lease: &str) -> BTreeMap<String, String> {
    [(PLANE, plane(data)), (LEASE, lease.to_owned())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// Where a plane puts what its containers see until their keepers serve.
pub(crate) fn staging_of(data: &Path, lease: &str) -> PathBuf {
    data.join(CONTAINERS).join(lease)
}

/// Notes the engine that was asked, for whoever clears up after this plane.
pub(crate) fn remember_engine(data: &Path, socket: &Path) -> Result<(), Problem> {
    let note = data.join(CONTAINERS).join(ENGINE);
    if std::fs::read(&note).is_ok_and(|known| known == socket.as_os_str().as_bytes()) {
        return Ok(());
    }
    std::fs::create_dir_all(data.join(CONTAINERS))
        .and_then(|()| std::fs::write(&note, socket.as_os_str().as_bytes()))
        .map_err(|error| {
            let message = format!("cannot write {}: {error}", note.display());
            Problem::new(ErrorCode::Io, message)
        })
}

/// Removes what a dead plane has left.
pub(crate) fn clear_of(data: &Path, lease: &str) {
    let Ok(socket) = std::fs::read(data.join(CONTAINERS).join(ENGINE)) else {
        return;
    };
    let engine = Engine::new(Path::new(OsStr::from_bytes(&socket)));
    let wanted: Vec<String> = labels(data, lease)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // An engine that does not answer runs nothing of ours: each keeper has left with its plane. What
    // was made and never started is not looked for again; its labels tell whose it is.
    for id in engine.list(&wanted).unwrap_or_default() {
        let _ = engine.remove(&id);
    }
    remove_tree(&staging_of(data, lease));
}

/// Several users share an engine: the directory is named by its digest.
fn plane(data: &Path) -> String {
    let mut digest = Digest::of(data.as_os_str().as_bytes()).0;
    digest.truncate(32);
    digest
}
