//! What a runtime is opened with.

use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_core::ambient::Ambient;
use cofferdam_exec::Script;
use cofferdam_exec::host::Surroundings;
use cofferdam_journal::{Journal, Patience};

use crate::host::HostDoor;

/// What a runtime is opened with.
#[derive(Debug)]
pub struct RuntimeOptions {
    /// The data directory; where the surroundings say when there is none.
    pub data_dir: Option<PathBuf>,
    /// The caller's environment and directory.
    pub surroundings: Surroundings,
    /// Clock and randomness.
    pub ambient: Arc<dyn Ambient>,
    /// How long the journal of the data directory is waited for, and who is told of it.
    pub patience: Patience,
    /// A journal in place of the one in the data directory.
    pub journal: Option<Arc<dyn Journal>>,
    /// What looks at the host in place of the plane's own eyes.
    pub host: Option<Box<dyn HostDoor>>,
    /// What the memory provider plays.
    pub script: Option<Script>,
}

impl RuntimeOptions {
    /// Makes the options of a program that runs on this machine for real.
    pub fn new(surroundings: Surroundings, ambient: Arc<dyn Ambient>) -> Self {
        Self {
            data_dir: None,
            surroundings,
            ambient,
            patience: Patience::default(),
            journal: None,
            host: None,
            script: None,
        }
    }
}
