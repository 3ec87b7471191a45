//! Whether the files of a policy are still those that a session was planned by.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::spec::Access;
use cofferdam_exec::host::{self, Surroundings};

use crate::host::PolicyRequest;

/// What the files of a policy looked like. Telling it costs a few system calls, reading them much more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<(PathBuf, Option<Look>)>, Vec<(BytePath, Access)>);

/// Device, inode, size, and time of the last change in seconds and nanoseconds.
type Look = (u64, u64, u64, i64, i64);

impl Stamp {
    pub(crate) fn take(
        surroundings: &Surroundings,
        policy: &PolicyRequest,
        mode: Option<PathBuf>,
        authorised: Vec<(BytePath, Access)>,
    ) -> Self {
        let mut paths: Vec<PathBuf> = host::policy_files(surroundings, policy.workspace.as_deref())
            .into_iter()
            .map(|file| file.path)
            .collect();
        paths.extend(
            policy
                .policy_file
                .as_ref()
                .map(|path| surroundings.directory().join(path)),
        );
        paths.extend(mode);
        Self(
            paths
                .into_iter()
                .map(|path| {
                    let look = std::fs::metadata(&path).ok().map(|found| {
                        (
                            found.dev(),
                            found.ino(),
                            found.size(),
                            found.ctime(),
                            found.ctime_nsec(),
                        )
                    });
                    (path, look)
                })
                .collect(),
            authorised,
        )
    }
}
