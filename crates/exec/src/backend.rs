//! What a provider gives the plane: a place in which commands are started.
//!
//! Real providers reach a keeper; the in-memory double plays a script. Above this line nothing
//! knows which of them it is: one loop pumps, waits and ends (see the `run` module).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::bytes::BytePath;
use cofferdam_core::error::Problem;
use cofferdam_core::outcome::{EndedBy, Leftover, Usage};
use cofferdam_core::spec::CommandSpec;
use cofferdam_sandbox::ForegroundLook;

use crate::control::TerminalSize;
use crate::files::FileWorker;
use crate::limits::Limiter;
use crate::protect::LastUndo;

/// The descriptors that a command begins with.
#[derive(Debug)]
pub(crate) enum Stdio {
    /// Standard input, output and error.
    Three([OwnedFd; 3]),
    /// A terminal of its own, of this size; the backend makes it.
    Terminal(TerminalSize),
}

/// What a command of a session gets beyond its streams.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Descriptors, each with the number that it gets.
    pub(crate) descriptors: Vec<(OwnedFd, i32)>,
    /// Whether what it leaves running stays for as long as the place.
    pub(crate) keep_rest: bool,
    /// Whether its own environment is the whole of it, without the place's.
    pub(crate) own_environment_only: bool,
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its pid where that is known already.
    pub(crate) pid: Option<i32>,
    /// Its watch and its strings.
    pub(crate) command: Box<dyn RunningCommand>,
    /// The master of its terminal, where it has one.
    pub(crate) master: Option<OwnedFd>,
    /// What tells about the terminal where the kernel does not: in the double.
    pub(crate) foreground: Option<Arc<dyn Foreground>>,
}

/// Tells who has a terminal, beside what it shows.
pub(crate) trait Foreground: Debug + Send + Sync {
    /// Looks at it now; what was typed before has arrived by then.
    fn look(&self) -> ForegroundLook;

    /// Tells whether there is output that nobody has taken.
    fn has_output(&self) -> bool;

    /// Gives it another size.
    fn resize(&self, size: TerminalSize);
}

/// How the tree of a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) usage: Usage,
    pub(crate) leftovers: Vec<Leftover>,
    /// What was let live.
    pub(crate) kept: Option<KeptTree>,
    pub(crate) by: EndedBy,
}

/// What a command left running and was let live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptTree {
    /// By what the place knows it.
    pub(crate) number: u64,
    /// What it was when the command ended.
    pub(crate) processes: Vec<Leftover>,
}

/// What `wait` said about the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It left with this code.
    Code(i32),
    /// This signal ended it.
    Signal(u8),
}

/// To whom a signal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// The command's foreground: its leader and the group it leads.
    Leader,
    /// Every process of its tree.
    Tree,
}

/// One command in a place.
pub(crate) trait RunningCommand: Debug + Send {
    /// Becomes readable when there is an end to take.
    fn channel(&self) -> BorrowedFd<'_>;

    /// Takes the end without waiting; `None` when there is none yet.
    ///
    /// # Errors
    ///
    /// Those of [`Backend::start`], when it never ran; `enclosure_lost` when whoever watched the
    /// command has vanished.
    fn take_end(&mut self) -> Result<Option<Ended>, Problem>;

    /// Sends a signal; one that comes too late is no error.
    fn signal(&mut self, recipient: Recipient, number: i32);

    /// Ends the whole tree by force; the end is then taken as usual.
    fn end_tree(&mut self);
}

/// A place in which commands are started.
pub(crate) trait Backend: Debug + Send + Sync {
    /// Starts a command. A place that answers later tells by [`RunningCommand::take_end`] that it
    /// did not start. One where nothing is real passes over the extra.
    ///
    /// # Errors
    ///
    /// `not_found`, `not_executable`, `cwd_missing`, `spawn_failed`: nothing runs. `enclosure_lost`
    /// when the place is gone.
    fn start_with(
        &self,
        command: &CommandSpec,
        stdio: Stdio,
        extra: Extra,
    ) -> Result<Started, Problem>;

    /// Lists what commands have left running and is still there, by number.
    fn kept(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Ends what a command has left running; one that is gone is no error.
    fn end_kept(&self, _number: u64) {}

    /// Proves that a command would be taken: asked of whoever would start it, and answered in time.
    fn prove(&self, _limit: Duration) -> bool {
        self.is_standing()
    }

    /// Ends everything in the place, by the strongest means there is, and waits until it is so.
    fn end(&self) -> EndedBy;

    /// Tells whether the place still stands.
    fn is_standing(&self) -> bool;

    /// Starts something that serves files beneath a directory, as seen inside, behind the walls of
    /// commands.
    ///
    /// # Errors
    ///
    /// `enclosure_lost` when the place is gone; `file_missing` when the directory is not there.
    fn file_worker(&self, root: &BytePath) -> Result<Box<dyn FileWorker>, Problem>;

    /// Gives one number for the state of the private places; `None` where it cannot be told.
    fn traces(&self, _limit: Duration) -> Option<u64> {
        None
    }

    /// Lends what is shared with a keeper that puts protected names back when the plane dies.
    fn undo(&self) -> Option<&LastUndo> {
        None
    }

    /// Lends what bounds the place, where something does.
    fn limiter(&self) -> Option<&Limiter> {
        None
    }

    /// Gives the network of a place that has one of its own, and somebody inside who opens sockets.
    fn network(&self) -> Option<Arc<dyn InnerNetwork>> {
        None
    }
}

/// A network of a place's own, of which sockets are handed out.
pub(crate) trait InnerNetwork: Debug + Send + Sync {
    /// Opens a listening socket inside.
    ///
    /// # Errors
    ///
    /// The kernel's, or that the place is gone.
    fn listen(&self, address: SocketAddr) -> io::Result<OwnedFd>;

    /// Tells which listeners inside are the plane's own, by their inodes.
    fn own_listeners(&self) -> BTreeSet<u64>;

    /// Makes a TCP socket of the inside, to be connected by whoever asked.
    ///
    /// # Errors
    ///
    /// As for `listen`.
    fn open_socket(&self, ipv6: bool) -> io::Result<OwnedFd>;

    /// Opens the lists of TCP sockets of the inside, see `/proc/net/tcp`; or, by netlink, a socket
    /// that tells what listens.
    ///
    /// # Errors
    ///
    /// As for `listen`.
    fn open_socket_tables(&self, by_netlink: bool) -> io::Result<Vec<OwnedFd>>;
}
