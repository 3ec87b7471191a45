//! Resource limits of a process, which are only ever lowered.

use serde::{Deserialize, Serialize};

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
            let lowered = libc::rlimit {
                rlim_cur: value,
                rlim_max: value,
            };
            libc::setrlimit(resource, &raw const lowered)
        }
    }
}
