//! Questions that an agent asks once and that the private home answers, for the task's tree only.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::profile::Answer;
use rustix::fs::{Gid, Uid};
use serde_json::Value;

use super::HomeRequest;
use super::document::{Document, Format};
use super::files::problem;
use super::record::{HOME, HomeRecord, Stamp};
use super::seed::make_parents;

/// What stands in a profile for the path of the tree.
const TREE: &str = "{tree}";

/// Writes the answers into the private home, before its seed is kept: so they are no change of the
/// agent's, and never come back. What somebody answered already stays, a `false` excepted: agents
/// write that before they ask.
pub(super) fn answer(
    request: &HomeRequest<'_>,
    record: &mut HomeRecord,
) -> Result<Vec<String>, Problem> {
    let mut files: BTreeMap<&str, Vec<&Answer>> = BTreeMap::new();
    for one in &request.rules.answers {
        files.entry(&one.file).or_default().push(one);
    }
    let mut notes = Vec::new();
    let home = request.directory.join(HOME);
    for (file, answers) in files {
        let path = home.join(file);
        let format = Format::of(&path);
        let failed = |error: io::Error| problem("write", &path, &error);
        let document = match fs::read(&path) {
            Ok(bytes) => Document::read(format, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Document::empty(format)),
            Err(error) => return Err(failed(error)),
        };
        let Some(mut document) = document else {
            notes.push(format!(
                "~/{file} cannot be read as {}; the agent may ask what it would be told there",
                format.as_str()
            ));
            continue;
        };
        let values = document.value();
        let mut is_changed = false;
        for one in answers {
            let key = key(one, request.workspace);
            let found = key.iter().try_fold(&values, |at, part| at.get(part));
            if matches!(found, None | Some(Value::Bool(false) | Value::Null)) {
                document.set(&key, Some(&one.value));
                is_changed = true;
            }
        }
        if is_changed {
            make_parents(&home, Path::new(file), request.identity.as_ref()).map_err(failed)?;
            write(&path, &document.bytes(), request).map_err(failed)?;
            if let Some(copied) = record.seeded.get_mut(&BytePath::from(file)) {
                copied.layer = Stamp::of(&fs::metadata(&path).map_err(failed)?);
            }
        }
    }
    Ok(notes)
}

/// Gives the parts of a key, the tree's path filled in.
fn key(answer: &Answer, tree: &BytePath) -> Vec<String> {
    let parts = answer.key.split('.');
    parts
        .map(|part| {
            if part == TREE {
                tree.to_text().into_owned()
            } else {
                part.to_owned()
            }
        })
        .collect()
}

fn write(path: &Path, bytes: &[u8], request: &HomeRequest<'_>) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    let mode = file.metadata()?.permissions().mode();
    file.set_permissions(fs::Permissions::from_mode(mode | 0o600))?;
    if let Some(identity) = request.identity.as_ref().filter(|_| is_new) {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    Ok(())
}
