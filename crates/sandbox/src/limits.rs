//! Resource limits of a process, which are only ever lowered.

use std::io::{Seek, Write};

use serde::{Deserialize, Serialize};

use crate::capabilities::set_dumpable;

/// Names a resource that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Address space, in bytes.
    AddressSpace,
    /// Size of a core file, in bytes.
    Core,
    /// Processor time, in seconds.
    Cpu,
    /// Size of a file that is written, in bytes.
    FileSize,
    /// Open files.
    OpenFiles,
    /// Processes of the user; does not bind for root.
    Processes,
    /// Stack of the main thread, in bytes.
    Stack,
}

/// Lowers one resource to a value.
#[expect(
    clippy::unsafe_derive_deserialize,
    reason = "any value is a valid request to the kernel"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limit {
    /// What is limited.
    pub resource: Resource,
    /// The highest value, in the resource's unit. Above the present hard limit it means that one.
    pub value: u64,
}

impl Limit {
    /// Lowers the limit of the calling process; −1 with errno on failure. Only system calls.
    pub(crate) fn lower(&self) -> i32 {
        let resource = match self.resource {
            Resource::AddressSpace => libc::RLIMIT_AS,
            Resource::Core => libc::RLIMIT_CORE,
            Resource::Cpu => libc::RLIMIT_CPU,
            Resource::FileSize => libc::RLIMIT_FSIZE,
            Resource::OpenFiles => libc::RLIMIT_NOFILE,
            Resource::Processes => libc::RLIMIT_NPROC,
            Resource::Stack => libc::RLIMIT_STACK,
        };
        let mut present = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: reads into and writes from one local structure.
        unsafe {
            if libc::getrlimit(resource, &raw mut present) != 0 {
                return -1;
            }
            let value = self.value.min(present.rlim_max);
            // A second later is enough to end in order, and the first signal says why it comes.
            let last = match self.resource {
                Resource::Cpu => value.saturating_add(1).min(present.rlim_max),
                _ => value,
            };
            let lowered = libc::rlimit {
                rlim_cur: value,
                rlim_max: last,
            };
            libc::setrlimit(resource, &raw const lowered)
        }
    }
}

/// Holds the calling process's own out-of-memory score, to be lent to children.
///
/// A child inherits it. That is how a process that is not dumpable gives one to its children: their
/// files in `/proc` belong to root until they have executed something, and so do its own.
#[derive(Debug)]
pub struct OwnOomScore {
    file: std::fs::File,
    usual: Vec<u8>,
}

impl OwnOomScore {
    /// Opens the score of this process, which is not dumpable afterwards; `None` where that cannot
    /// be done.
    ///
    /// Where the process has to be dumpable for a moment, `briefly` says whether that may be: it may
    /// not where something hostile of the same user could look into this process just then.
    pub fn open_undumpable(briefly: bool) -> Option<Self> {
        let path = "/proc/self/oom_score_adj";
        let open = || std::fs::OpenOptions::new().write(true).open(path).ok();
        let file = match open() {
            Some(file) => Some(file),
            None if briefly => {
                set_dumpable(true).ok()?;
                let file = open();
                set_dumpable(false).ok()?;
                file
            }
            None => None,
        };
        let usual = std::fs::read(path).ok()?;
        Some(Self { file: file?, usual })
    }

    /// Has the score while `body` runs. What the kernel does not let us set stays as it is: the
    /// score only helps it choose.
    pub fn lend<T>(&self, score: i16, body: impl FnOnce() -> T) -> T {
        let _ = self.write(score.to_string().as_bytes());
        let outcome = body();
        let _ = self.write(&self.usual);
        outcome
    }

    fn write(&self, score: &[u8]) -> std::io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(score)
    }
}
