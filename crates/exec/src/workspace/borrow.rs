//! Objects of the user that a task's git directory borrows, at paths that hold outside and inside.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Places, WorkspaceError};

static LINKS: AtomicU64 = AtomicU64::new(0);

/// Puts a link to a directory of objects where it can be shown inside, and gives the whole chain of
/// what it borrows itself.
pub(super) fn borrow_objects(
    places: &Places,
    label: &str,
    objects: &Path,
) -> Result<Vec<PathBuf>, WorkspaceError> {
    let mut chain = vec![objects.to_path_buf()];
    let mut next = 0;
    while next < chain.len() && chain.len() < 16 {
        let own = chain[next].clone();
        let listed = std::fs::read(own.join("info/alternates")).unwrap_or_default();
        for line in listed.split(|byte| *byte == b'\n') {
            let path = Path::new(std::ffi::OsStr::from_bytes(line));
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let path = if path.is_absolute() {
                path.to_path_buf()
            } else {
                own.join(path)
            };
            if let Ok(path) = path.canonicalize()
                && !chain.contains(&path)
            {
                chain.push(path);
            }
        }
        next += 1;
    }
    let mut links = Vec::new();
    for (number, target) in chain.iter().enumerate() {
        let name = if number == 0 {
            label.to_owned()
        } else {
            format!("{label}-{number}")
        };
        let link = places.borrowed().join(name);
        if std::fs::read_link(&link).ok().as_deref() != Some(target) {
            let unique = LINKS.fetch_add(1, Ordering::Relaxed);
            let temporary = places
                .incoming()
                .join(format!("link-{}-{unique}", std::process::id()));
            let _ = std::fs::remove_file(&temporary);
            std::os::unix::fs::symlink(target, &temporary)
                .and_then(|()| std::fs::rename(&temporary, &link))
                .map_err(WorkspaceError::file("linking", &link))?;
        }
        links.push(link);
    }
    Ok(links)
}
