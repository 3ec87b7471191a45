//! What plane, keeper and supervisors say to each other.
//!
//! The keeper travels inside the plane's binary, so both always speak the same version; [`Hello`]
//! says it all the same.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use cofferdam_sandbox::{
    ExitStatus, LandlockPlan, Leftover, Limit, PathRule, SandboxError, SeccompOptions, SetupMount,
    Step, Swept, Usage,
};
use serde::{Deserialize, Serialize};

/// The version of these messages.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes that are a path, an argument or a variable.
pub type Bytes = Vec<u8>;

/// Begins the conversation with a keeper.
///
/// Carries one descriptor per supervisor to start: the supervisor's end of a channel whose other
/// end the plane keeps. The plane may send to that end at once, before the keeper has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the plane.
    pub version: u32,
    /// What is done once, before anything runs.
    pub setup: Setup,
}

/// What a keeper does once, before anything runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Mounts, in order; they need CAP_SYS_ADMIN in the keeper's namespace.
    pub mounts: Vec<SetupMount>,
    /// Addresses on which the keeper is to listen while it still may: ports below 1024. Each is handed
    /// out when it is asked for by `Listen`; what cannot be had then is not there.
    pub listeners: Vec<SocketAddr>,
    /// Whether every capability is given up afterwards.
    pub drop_capabilities: bool,
    /// What Landlock allows each command; paths as seen inside.
    pub landlock: LandlockPlan,
    /// What the seccomp filter of each command leaves; `None` for no filter.
    pub seccomp: Option<SeccompOptions>,
}

/// Asks a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeeperRequest {
    /// The first request. Answered by [`KeeperReply::Ready`].
    Hello(Hello),
    /// Starts a supervisor on the channel end that comes along. Answered by `Started`.
    NewSupervisor,
    /// As `NewSupervisor`, and the last request but closing: a keeper that is the first process of
    /// its namespace, and has nothing below it, goes on as this supervisor itself. A command that
    /// is alone in its enclosure starts and ends sooner so. Answered by `Started`.
    LastSupervisor,
    /// Starts a file worker on the channel end that comes along. Answered by `Started`.
    NewFileWorker {
        /// The directory beneath which it works, as seen inside.
        root: Bytes,
    },
    /// Ends a supervisor or file worker that does not answer, and what is below it. Answered by
    /// `Done`.
    EndChild {
        /// Its process id as told by `Ready` or `Started`.
        pid: i32,
    },
    /// Opens a terminal of the enclosure. Answered by `Terminal`.
    OpenTerminal {
        /// Height in characters.
        rows: u16,
        /// Width in characters.
        columns: u16,
    },
    /// Opens a listening TCP socket inside. Answered by `Listening`.
    Listen {
        /// Where; port 0 lets the kernel choose.
        address: SocketAddr,
    },
    /// Makes a TCP socket inside that is not connected yet: where it goes, whoever holds it decides,
    /// and waits by himself. Answered by `Socket`.
    OpenSocket {
        /// Whether it is one for IPv6.
        ipv6: bool,
    },
    /// Opens the lists of TCP sockets of the inside. Answered by `SocketTables`.
    OpenSocketTables {
        /// Whether a netlink socket is wanted that answers for what listens alone: the files are made
        /// by walking every socket of the machine, which takes milliseconds each time.
        by_netlink: bool,
    },
    /// Tells whether anything was left in the private places of the enclosure. Answered by `Traces`.
    LookForTraces {
        /// Directories of the enclosure's own, as seen inside; what is mounted below is passed over.
        roots: Vec<Bytes>,
        /// Whether its System V objects are its own, too.
        ipc: bool,
    },
    /// Answered by `Done`.
    Ping,
    /// Ends everything and leaves; not answered.
    End,
}

/// Answers of a keeper, in the order of the requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeeperReply {
    /// Set-up is done and supervisors run.
    Ready(Ready),
    /// A supervisor or file worker runs.
    Started {
        /// Its process id inside.
        pid: i32,
    },
    /// A terminal; carries the master and the slave, in this order.
    Terminal {
        /// Path of the slave inside.
        name: Bytes,
    },
    /// A listening socket; carries it.
    Listening {
        /// Where it listens.
        address: SocketAddr,
    },
    /// A socket that is not connected; carries it.
    Socket,
    /// The lists of TCP sockets, in the kernel's text form, read anew from offset 0; carries that of
    /// IPv4 and, where there is IPv6, the one of it.
    SocketTables,
    /// The same number for the same state of the private places; `None` where there is too much to
    /// look at.
    Traces(Option<u64>),
    /// It is done.
    Done,
    /// It failed.
    Failed(Failure),
}

/// Tells what a keeper found and made when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// [`PROTOCOL_VERSION`] of the keeper.
    pub version: u32,
    /// Its process id as it sees it.
    pub pid: i32,
    /// Process ids of the supervisors, in the order of their descriptors.
    pub supervisors: Vec<i32>,
    /// Paths of the Landlock plan that were not there, and so are not allowed.
    pub skipped_paths: Vec<Bytes>,
}

/// Tells which step failed, on what and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What was being done.
    pub step: Step,
    /// What it was done to, where that is a path.
    pub path: Option<Bytes>,
    /// The kernel's error number.
    pub errno: i32,
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let path = error.path.map(|path| path.as_os_str().as_bytes().to_vec());
        Self {
            step: error.step,
            path,
            errno: error.errno,
        }
    }
}

impl From<Failure> for SandboxError {
    fn from(failure: Failure) -> Self {
        let path = failure
            .path
            .map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(&path)));
        Self {
            step: failure.step,
            path,
            errno: failure.errno,
        }
    }
}

/// Asks a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorRequest {
    /// Starts a command. Carries its descriptors. Answered by `Started` where that is asked for, and
    /// then by `Exited`; by `Failed` alone when it did not start.
    Spawn(Box<SpawnRequest>),
    /// Sends a signal. Not answered; nothing happens when nothing runs any more.
    Signal {
        /// Who gets it.
        target: SignalTarget,
        /// Its number.
        number: i32,
    },
    /// Ends the command and everything below it. Answered by `Exited` if it still ran, else not.
    EndTree,
    /// Answered by `Pong`.
    Ping,
}

/// Says who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalTarget {
    /// The command's first process.
    Leader,
    /// It and all its descendants.
    Tree,
    /// Everything that it started, orphans too, because it is to end: nothing of it is kept then.
    Everything,
}

/// Describes a command to a supervisor, whose walls it gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRequest {
    /// The program and its arguments. A name without a slash is looked up in the `PATH` of `env`,
    /// behind the walls.
    pub argv: Vec<Bytes>,
    /// The whole environment, each `NAME=value`.
    pub env: Vec<Bytes>,
    /// The working directory.
    pub cwd: Bytes,
    /// The numbers that the descriptors of the message get, in their order; nothing else is open.
    pub descriptors: Vec<i32>,
    /// Whether descriptor 0 is a terminal that becomes the command's controlling one.
    pub controlling_terminal: bool,
    /// Resource limits, which can only lower.
    pub limits: Vec<Limit>,
    /// The out-of-memory score adjustment.
    pub oom_score_adjustment: Option<i16>,
    /// The file creation mask; the keeper's when absent.
    pub umask: Option<u32>,
    /// Paths that this command may use beside those of the set-up, its terminal for instance.
    pub extra_paths: Vec<PathRule>,
    /// Whether `Started` is sent. Without it one wake-up less is needed.
    pub announce: bool,
    /// Milliseconds that descendants get to end by themselves after the command has ended.
    pub linger_milliseconds: u32,
    /// Milliseconds that ending the tree may take.
    pub sweep_milliseconds: u32,
    /// Whether descendants that outlive the command stay, until `EndTree` or the end of the channel.
    /// The supervisor takes no other command before they are gone.
    pub keep_rest: bool,
}

/// Answers of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorReply {
    /// The command runs.
    Started {
        /// Its process id inside.
        pid: i32,
    },
    /// The command did not start.
    Failed(Failure),
    /// The command has ended, and its tree with it, unless it was to be kept.
    Exited(Exited),
    /// What an ended command had left running is gone: the next command can come.
    Emptied,
    /// It is alive.
    Pong,
}

/// Tells how a command and its tree ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// Its process id inside.
    pub pid: i32,
    /// How it ended; `None` when it could not be ended in time.
    pub status: Option<ExitStatus>,
    /// What it and its descendants used.
    pub usage: Usage,
    /// Descendants that were still there, at most [`Exited::MOST_LEFTOVERS`] of them.
    pub leftovers: Vec<Leftover>,
    /// Whether they were let live; `Emptied` follows when they have ended.
    pub kept: bool,
    /// How many there were.
    pub leftover_count: u32,
    /// How the tree was ended.
    pub swept: Swept,
}

impl Exited {
    /// Most leftovers that are named.
    pub const MOST_LEFTOVERS: usize = 64;
}
