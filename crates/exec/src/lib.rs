//! The execution plane of Cofferdam.
//!
//! Every side effect goes through here: enclosures are put up by providers, commands are started in
//! them by a keeper, watched, ended and told to the journal. The plane is synchronous: the calling
//! thread writes the intent, waits in one `poll` for output, end, cancellation and time limits, and
//! returns the outcome. It knows no conversations and no HTTP.
//!
//! How the parts lie to each other is told in `ARCHITECTURE.md`.

mod backend;
mod background;
#[cfg(feature = "testing")]
pub mod conformance;
mod container;
mod control;
mod enclosure;
mod files;
mod git;
mod guard;
mod hints;
pub mod home;
pub mod host;
mod limits;
mod network;
mod output;
mod outside;
mod own;
mod pager;
mod peers;
mod plane;
mod pool;
mod ports;
mod protect;
mod provider;
mod quiet;
mod remembered;
mod run;
mod session;
mod settle;
mod spawner;
mod standing;
pub mod terminal;
mod terminal_guard;
mod tool;
pub mod workspace;

pub use background::{OutputPiece, OutputPieces, OutputReader};
pub use control::{Control, TerminalSize};
pub use enclosure::{Enclosure, QuietOutput};
pub use files::{DeniedReads, FileDoor, FileGate, FileIntent, FileTerms, FileVisits, OpenedPath};
pub use network::{AskHost, HostAnswer, HostQuestion, NetworkOptions};
pub use output::{OutputSink, Stream};
pub use outside::{check_write_outside, plan_write_outside, proposed_bytes, write_outside};
pub use own::{OwnDirectory, drop_own_file, keep_own_file};
pub use pager::page;
pub use peers::{LivePlane, live_planes};
pub use plane::{Plane, PlaneOptions};
pub use pool::{Pool, PoolCounts, PoolOptions};
pub use ports::PortBase;
pub use protect::{quarantined, restore_quarantined};
pub use provider::memory::{Script, ScriptedCommand};
pub use remembered::{
    all_remembered, forget_answer, is_as_authorised, remember_answer, remembered_answers,
};
pub use run::{CommandIo, LentTerminal, Run};
pub use session::{Job, Session, SessionEnd, SessionKind, SessionLog, SessionRun};
pub use settle::Settled;
pub use terminal_guard::TerminalGuard;
