//! The image of the root: directories and links, nothing to run.

use std::os::unix::ffi::OsStrExt as _;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_core::spec::Digest;
use cofferdam_sandbox::{CONTAINER_STAGING, ContainerPlan, RootEntry};
use tar::{Builder, EntryType, Header};

use super::engine::Engine;

const REPOSITORY: &str = "cofferdam/root";

/// Gives the name of the image for a plan's root, and makes it where the engine has it not.
pub(crate) fn root_image(engine: &Engine, plan: &ContainerPlan) -> Result<String, Problem> {
    let archive = archive(plan).map_err(|error| {
        Problem::new(
            ErrorCode::Internal,
            format!("cannot make the root of a container: {error}"),
        )
    })?;
    let mut tag = Digest::of(&archive).0;
    tag.truncate(32);
    let name = format!("{REPOSITORY}:{tag}");
    if !engine.has_image(&name)? {
        engine.import(REPOSITORY, &tag, &archive)?;
    }
    Ok(name)
}

/// The same bytes for the same plan: nothing of this moment or this user is in them.
fn archive(plan: &ContainerPlan) -> std::io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    let staging = RootEntry::Directory {
        path: CONTAINER_STAGING.into(),
        mode: 0o755,
    };
    let usual = ["/dev", "/proc", "/sys"].map(|path| RootEntry::Directory {
        path: path.into(),
        mode: 0o755,
    });
    for entry in usual.iter().chain([&staging]).chain(&plan.root) {
        let mut header = Header::new_gnu();
        header.set_size(0);
        let path = match entry {
            RootEntry::Directory { path, mode } => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(*mode);
                path
            }
            RootEntry::Link { path, .. } => {
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                path
            }
        };
        let relative = path.as_path().as_os_str().as_bytes();
        let relative = relative.strip_prefix(b"/").unwrap_or(relative);
        let relative = std::path::Path::new(std::ffi::OsStr::from_bytes(relative));
        match entry {
            RootEntry::Directory { .. } => {
                builder.append_data(&mut header, relative, std::io::empty())?;
            }
            RootEntry::Link { link, .. } => {
                builder.append_link(&mut header, relative, link.as_path())?;
            }
        }
    }
    builder.into_inner()
}
