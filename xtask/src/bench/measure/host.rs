//! What the machine is and how busy it was: figures without it cannot be compared.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// The machine that was measured on.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Host {
    /// Kernel release.
    pub(super) kernel: String,
    /// Processors that this process may use.
    pub(super) processors: usize,
    /// What `bwrap --version` says; empty where there is none.
    pub(super) bwrap: String,
    /// Load averages over 1, 5 and 15 minutes.
    pub(super) load: [f64; 3],
}

impl Host {
    pub(super) fn look() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let version = Command::new("bwrap")
            .arg("--version")
            .output()
            .map(|output| output.stdout);
        let version = String::from_utf8_lossy(&version.unwrap_or_default())
            .trim()
            .to_owned();
        Self {
            kernel: release.trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            bwrap: version,
            load: load(),
        }
    }
}

/// Load averages over 1, 5 and 15 minutes; zeros where they cannot be read.
pub(super) fn load() -> [f64; 3] {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut numbers = text.split(' ').map_while(|word| word.parse().ok());
    std::array::from_fn(|_| numbers.next().unwrap_or_default())
}
