//! The keeper: the one small program of ours inside an enclosure, and the protocol it speaks.
//!
//! The keeper starts commands under supervisors, ends whole trees, opens terminals, listeners and
//! files, and does nothing else. It decides nothing: what shall be allowed comes from the plane in
//! one [`Setup`]. It trusts nothing of what it guards: single-threaded, not dumpable, without
//! capabilities, and never opening anything that could make it wait.
//!
//! Three kinds of process, each with a channel of its own to the plane:
//!
//! - the **keeper**, first process inside or a subreaper on the host ([`KeeperClient`]);
//! - **supervisors**, forked by it: each runs one command at a time and ends its whole tree
//!   ([`SupervisorClient`]);
//! - **file workers**, forked by it and put behind the same walls as commands ([`FileClient`]).
//!
//! A channel that closes means: end everything below, then leave. On the host a keeper whose plane
//! died in the middle of a command then puts protected names back ([`UndoTable`]).
//!
//! The same program guards a caller's terminal while that is raw ([`guard_terminal`]): on the host,
//! by itself, with nothing below it.
//!
//! The library holds the protocol, blocking clients for the plane, and the program itself
//! ([`run`]), whose `main` is a few lines.
//!
//! The design is told in `ARCHITECTURE.md`.

#![cfg(target_os = "linux")]

mod channel;
mod client;
mod files;
mod protocol;
mod search;
mod serve;
mod supervisor;
mod terminal;
mod undo;

pub use channel::{ChannelError, INLINE_BYTES, receive, send};
pub use client::{ClientError, KeeperClient, OpenedTerminal, SupervisorClient};
pub use files::{ContentBytes, FileClient, FileContent, FileReply, FileRequest};
pub use protocol::{
    Bytes, Exited, Failure, Hello, KeeperReply, KeeperRequest, PROTOCOL_VERSION, Ready, Setup,
    SignalTarget, SpawnRequest, SupervisorReply, SupervisorRequest,
};
pub use search::{FoundFile, FoundLine, SearchOrder, SearchRefusal, SearchReport};
pub use serve::{connect, run};
pub use terminal::{TERMINAL_DONE, TERMINAL_MESSAGE, TERMINAL_UNDO, guard_terminal};
pub use undo::{UNDO_HEAD, UndoName, UndoNode, UndoTable};
