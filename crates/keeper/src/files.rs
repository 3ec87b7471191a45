//! The file worker: serves files beneath one root, behind the same walls as commands.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_sandbox::{
    Entry, Metadata, OpenHow, Root, SandboxError, Step, Temporary, restrict_self, set_process_name,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::channel::{ChannelError, receive, send};
use crate::client::{ClientError, KeeperClient, unexpected};
use crate::protocol::{Bytes, Failure, KeeperRequest};
use crate::supervisor::Walls;

/// Most temporary files that wait for a name at once.
const MOST_TEMPORARIES: usize = 64;

/// Asks a file worker. Paths are relative to its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Opens a file; answered by `Opened`.
    Open {
        /// Where.
        path: Bytes,
        /// How.
        how: OpenHow,
    },
    /// Looks at a path; answered by `Metadata`.
    Metadata {
        /// Where.
        path: Bytes,
        /// Whether a symbolic link is followed.
        follow: bool,
    },
    /// Lists a directory; answered by `Entries`.
    List {
        /// Where.
        path: Bytes,
        /// Most names.
        limit: u32,
    },
    /// Makes a directory; answered by `Done`.
    MakeDirectory {
        /// Where.
        path: Bytes,
        /// Permission bits.
        mode: u32,
        /// Whether those above it are made as well, and one that is there is fine.
        parents: bool,
    },
    /// Removes a name; answered by `Done`.
    Remove {
        /// Where.
        path: Bytes,
        /// Whether it is an empty directory.
        directory: bool,
    },
    /// Renames; answered by `Done`.
    Rename {
        /// The old name.
        from: Bytes,
        /// The new name.
        to: Bytes,
        /// Whether something there is replaced.
        replace: bool,
    },
    /// Asks the kernel whether a path may be used; answered by `Done`. No link is followed.
    Access {
        /// Where.
        path: Bytes,
        /// Whether for writing, else for reading.
        write: bool,
    },
    /// Reads a symbolic link; answered by `Link`.
    ReadLink {
        /// Where.
        path: Bytes,
    },
    /// Makes a file without a name; answered by `Temporary`.
    Temporary {
        /// In which directory.
        directory: Bytes,
        /// Permission bits.
        mode: u32,
    },
    /// Gives a temporary file its name; answered by `Done`.
    Commit {
        /// Which one.
        token: u64,
        /// Its name.
        path: Bytes,
        /// Whether something there is replaced.
        replace: bool,
    },
    /// Gives a temporary file up; answered by `Done`.
    Discard {
        /// Which one.
        token: u64,
    },
    /// Answered by `Done`.
    Ping,
}

/// Answers of a file worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    /// The file is open; carries it.
    Opened(Metadata),
    /// What stands there.
    Metadata(Metadata),
    /// What is in the directory.
    Entries {
        /// The names, in no order.
        entries: Vec<Entry>,
        /// Whether there are more.
        truncated: bool,
    },
    /// Where the link points.
    Link(Bytes),
    /// A file without a name; carries it.
    Temporary {
        /// What it is called until then.
        token: u64,
    },
    /// It is done.
    Done,
    /// It failed.
    Failed(Failure),
}

struct Worker {
    root: Root,
    temporaries: BTreeMap<u64, Temporary>,
    next: u64,
}

/// Serves a channel until it closes, in a process made for it. Gives the exit code.
pub(crate) fn serve(socket: &OwnedFd, walls: &Walls, root: &[u8]) -> i32 {
    set_process_name(c"cofferdam-files");
    let mut worker = match confine(walls).and_then(|()| Root::open(root)) {
        Ok(root) => Worker {
            root,
            temporaries: BTreeMap::new(),
            next: 0,
        },
        Err(error) => {
            // Whoever asked finds the reason in the answer to the first request.
            let _ = send(socket, &FileReply::Failed(error.into()), &[]);
            return 1;
        }
    };
    while worker.answer(socket).is_ok() {}
    let Worker {
        root, temporaries, ..
    } = worker;
    for temporary in temporaries.into_values() {
        root.discard(temporary);
    }
    0
}

fn confine(walls: &Walls) -> Result<(), SandboxError> {
    if let Some(ruleset) = &walls.ruleset {
        restrict_self(ruleset)?;
    }
    walls
        .seccomp
        .as_ref()
        .map_or(Ok(()), cofferdam_sandbox::SeccompProgram::load_self)
}

impl Worker {
    fn answer(&mut self, socket: &OwnedFd) -> Result<(), ChannelError> {
        let (request, _) = receive::<FileRequest>(socket)?;
        match self.act(request) {
            Ok((FileReply::Temporary { token }, _)) => {
                let file = self.temporaries.get(&token).map(AsFd::as_fd);
                send(socket, &FileReply::Temporary { token }, file.as_slice())
            }
            Ok((reply, file)) => send(socket, &reply, file.as_ref().map(AsFd::as_fd).as_slice()),
            Err(error) => send(socket, &FileReply::Failed(error.into()), &[]),
        }
    }

    fn act(&mut self, request: FileRequest) -> Result<(FileReply, Option<OwnedFd>), SandboxError> {
        let root = &self.root;
        let reply = match request {
            FileRequest::Open { path, how } => {
                let (file, metadata) = root.open_file(&path, how)?;
                // A directory would lead out of the root in whoever's hands it came.
                let file = (metadata.kind == cofferdam_sandbox::FileKind::File).then_some(file);
                if file.is_none() {
                    let errno = Errno::ISDIR.raw_os_error();
                    return Err(SandboxError::at(Step::File, &path, errno));
                }
                return Ok((FileReply::Opened(metadata), file));
            }
            FileRequest::Metadata { path, follow } => {
                FileReply::Metadata(root.metadata(&path, follow)?)
            }
            FileRequest::List { path, limit } => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let (entries, truncated) = root.list(&path, limit)?;
                FileReply::Entries { entries, truncated }
            }
            FileRequest::MakeDirectory {
                path,
                mode,
                parents,
            } => {
                root.make_directory(&path, mode, parents)?;
                FileReply::Done
            }
            FileRequest::Remove { path, directory } => {
                root.remove(&path, directory)?;
                FileReply::Done
            }
            FileRequest::Rename { from, to, replace } => {
                root.rename(&from, &to, replace)?;
                FileReply::Done
            }
            FileRequest::Access { path, write } => {
                root.access(&path, write)?;
                FileReply::Done
            }
            FileRequest::ReadLink { path } => FileReply::Link(root.read_link(&path)?),
            FileRequest::Temporary { directory, mode } => {
                if self.temporaries.len() == MOST_TEMPORARIES {
                    return Err(SandboxError::new(Step::File, Errno::MFILE.raw_os_error()));
                }
                let token = self.next;
                self.temporaries
                    .insert(token, root.temporary(&directory, mode)?);
                self.next += 1;
                FileReply::Temporary { token }
            }
            FileRequest::Commit {
                token,
                path,
                replace,
            } => {
                root.commit(taken(&mut self.temporaries, token)?, &path, replace)?;
                FileReply::Done
            }
            FileRequest::Discard { token } => {
                root.discard(taken(&mut self.temporaries, token)?);
                FileReply::Done
            }
            FileRequest::Ping => FileReply::Done,
        };
        Ok((reply, None))
    }
}

fn taken(all: &mut BTreeMap<u64, Temporary>, token: u64) -> Result<Temporary, SandboxError> {
    all.remove(&token)
        .ok_or(SandboxError::new(Step::File, Errno::BADF.raw_os_error()))
}

/// Talks to a file worker. Dropping it ends the worker.
#[derive(Debug)]
pub struct FileClient {
    socket: OwnedFd,
    pid: i32,
}

impl FileClient {
    /// Starts a file worker beneath a directory, as seen inside.
    pub fn start(keeper: &KeeperClient, root: &[u8]) -> Result<Self, ClientError> {
        let request = KeeperRequest::NewFileWorker {
            root: root.to_vec(),
        };
        let (pid, socket) = keeper.start(&request)?;
        Ok(Self { socket, pid })
    }

    /// Gives the worker's process id inside, by which [`KeeperClient::end_child`] ends it when it
    /// does not answer.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Asks and waits for the answer and the file that comes with it.
    ///
    /// A deadline is kept by polling the channel after [`FileClient::send`] instead.
    pub fn call(&self, request: &FileRequest) -> Result<(FileReply, Option<OwnedFd>), ClientError> {
        self.send(request)?;
        self.receive()
    }

    /// Asks without waiting.
    pub fn send(&self, request: &FileRequest) -> Result<(), ClientError> {
        Ok(send(&self.socket, request, &[])?)
    }

    /// Waits for an answer.
    pub fn receive(&self) -> Result<(FileReply, Option<OwnedFd>), ClientError> {
        let (reply, mut descriptors) = receive(&self.socket)?;
        match reply {
            FileReply::Failed(failure) => Err(ClientError::Refused(failure.into())),
            reply if descriptors.len() <= 1 => Ok((reply, descriptors.pop())),
            reply => Err(unexpected(&reply)),
        }
    }
}

impl AsFd for FileClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
