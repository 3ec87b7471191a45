//! Starts a keeper, runs commands in it and looks at what is left.

use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_keeper::{
    Exited, KeeperClient, Setup, SpawnRequest, SupervisorClient, SupervisorReply,
};
use cofferdam_sandbox::{Program, Spawn, Spawned, message_pair, spawn, try_wait_pid};

pub(crate) struct Host {
    pub(crate) process: Spawned,
    pub(crate) keeper: Option<KeeperClient>,
    pub(crate) supervisors: Vec<SupervisorClient>,
}

/// Starts the keeper's program on this end of a channel.
pub(crate) fn start_program(channel: BorrowedFd<'_>) -> Spawned {
    let program = CString::new(env!("CARGO_BIN_EXE_cofferdam-keeper")).expect("a path");
    let mut spec = Spawn::new(Program::Paths(vec![program]), vec![c"keeper".to_owned()]);
    spec.descriptors = vec![(channel, 3)];
    spec.new_session = true;
    spawn(&spec).expect("the keeper starts")
}

impl Host {
    pub(crate) fn start(setup: &Setup, supervisors: usize) -> Self {
        let (ours, theirs) = message_pair().expect("a channel");
        let process = start_program(theirs.as_fd());
        drop(theirs);
        let keeper = KeeperClient::new(ours);
        let (ready, supervisors) = keeper.hello(setup, supervisors).expect("a greeting");
        assert_eq!(ready.pid, process.pid);
        Self {
            process,
            keeper: Some(keeper),
            supervisors,
        }
    }

    pub(crate) fn plain() -> Self {
        Self::start(&Setup::default(), 1)
    }

    pub(crate) fn keeper(&self) -> &KeeperClient {
        self.keeper.as_ref().expect("still connected")
    }

    pub(crate) fn supervisor(&self) -> &SupervisorClient {
        &self.supervisors[0]
    }

    pub(crate) fn run(&self, argv: &[&str]) -> Done {
        run(self.supervisor(), request(argv))
    }

    /// Closes every channel and waits until the keeper has left.
    pub(crate) fn close(&mut self) -> Duration {
        let begin = Instant::now();
        self.keeper = None;
        self.supervisors.clear();
        wait_until("the keeper leaves", || {
            try_wait_pid(self.process.pid).expect("ours").is_some()
        });
        begin.elapsed()
    }
}

pub(crate) struct Done {
    pub(crate) stdout: Vec<u8>,
    pub(crate) reply: SupervisorReply,
}

impl Done {
    pub(crate) fn exited(self) -> Exited {
        match self.reply {
            SupervisorReply::Exited(exited) => exited,
            other => panic!("did not exit but {other:?}"),
        }
    }
}

pub(crate) fn request(argv: &[&str]) -> SpawnRequest {
    SpawnRequest {
        argv: argv.iter().map(|one| one.as_bytes().to_vec()).collect(),
        env: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec()],
        cwd: b"/".to_vec(),
        descriptors: vec![0, 1, 2],
        sweep_milliseconds: 2000,
        ..SpawnRequest::default()
    }
}

pub(crate) fn null() -> OwnedFd {
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .expect("null")
        .into()
}

/// Sends a command with a pipe as output and reads both to their end.
pub(crate) fn run(supervisor: &SupervisorClient, request: SpawnRequest) -> Done {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let null = null();
    supervisor
        .spawn(request, &[null.as_fd(), writer.as_fd(), writer.as_fd()])
        .expect("sent");
    drop(writer);
    let mut stdout = Vec::new();
    reader.read_to_end(&mut stdout).expect("output");
    let reply = supervisor.receive().expect("an answer");
    Done { stdout, reply }
}

/// Sends a command whose output nobody reads.
pub(crate) fn begin(supervisor: &SupervisorClient, mut request: SpawnRequest) -> i32 {
    request.announce = true;
    let null = null();
    supervisor
        .spawn(request, &[null.as_fd(), null.as_fd(), null.as_fd()])
        .expect("sent");
    match supervisor.receive().expect("an answer") {
        SupervisorReply::Started { pid } => pid,
        other => panic!("did not start but {other:?}"),
    }
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts living processes whose command line holds this word.
pub(crate) fn count(word: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| holds(&entry.path(), word) && !is_zombie(&entry.path()))
        .count()
}

fn holds(process: &Path, word: &str) -> bool {
    std::fs::read(process.join("cmdline")).is_ok_and(|line| {
        line.windows(word.len())
            .any(|window| window == word.as_bytes())
    })
}

fn is_zombie(process: &Path) -> bool {
    std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    })
}

/// A number of seconds to sleep that nobody else uses, as a mark on command lines.
pub(crate) fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("7{:07}.{next:04}", std::process::id())
}
