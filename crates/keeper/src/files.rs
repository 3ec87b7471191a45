//! The file worker: serves files beneath one root, behind the same walls as commands.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use cofferdam_sandbox::{
    Entry, Metadata, OpenHow, Replaced, Root, SandboxError, Step, Temporary, restrict_self,
    set_process_name,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::channel::{ChannelError, receive, send};
use crate::client::{ClientError, KeeperClient, unexpected};
use crate::protocol::{Bytes, Failure, KeeperRequest};
use crate::supervisor::Walls;

/// Most temporary files that wait for a name at once.
const MOST_TEMPORARIES: usize = 64;
/// Bytes of files after which an answer about many ends.
const MOST_AT_ONCE: usize = 6 * 1024 * 1024;
/// Bytes of stack for who frees a file, which is one system call.
const FREEING_STACK: usize = 64 * 1024;

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
    /// Reads where a symbolic link leads, as it says itself; answered by `Link`.
    ReadLink {
        /// Where it stands.
        path: Bytes,
    },
    /// Makes a symbolic link where nothing stands; answered by `Done`.
    MakeLink {
        /// Where.
        path: Bytes,
        /// Where it leads, as it says itself.
        target: Bytes,
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
    /// Follows every link of a path; answered by `Real`.
    Real {
        /// Where.
        path: Bytes,
        /// Whether a link that the last name is, is followed too.
        follow: bool,
    },
    /// Reads a file, every link followed first; answered by `Read`.
    Read {
        /// Where.
        path: Bytes,
        /// Up to which size the answer holds the content; a larger file comes as a descriptor.
        inline: u32,
    },
    /// Reads many files; answered by `Many`.
    ReadMany {
        /// Where.
        paths: Vec<Bytes>,
        /// Most bytes of one file.
        most: u32,
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
    /// Brings the names in a directory to the disk; answered by `Done`.
    Sync {
        /// Which one.
        directory: Bytes,
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
    /// Where a path really leads.
    Real {
        /// The path, without links.
        path: Bytes,
        /// What stands there; `None` where nothing does.
        metadata: Option<Metadata>,
    },
    /// Where a symbolic link leads, as it says itself.
    Link {
        /// The text.
        target: Bytes,
    },
    /// A file that is read; carries it where it is not inline.
    Read(FileContent),
    /// What came of each of many, in their order; those after the last did not fit in one answer.
    Many(Vec<Result<FileContent, Failure>>),
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

/// A file, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileContent {
    /// Where it really stands, without links.
    pub path: Bytes,
    /// What it is.
    pub metadata: Metadata,
    /// All of it; `None` where it is more than was asked for.
    pub bytes: Option<ContentBytes>,
}

/// Bytes of a file, which travel as one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentBytes(pub Vec<u8>);

impl Serialize for ContentBytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ContentBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <&'de [u8]>::deserialize(deserializer)?;
        Ok(Self(bytes.to_vec()))
    }
}

struct Worker {
    root: Root,
    /// Where it stands, for those who made absolute links.
    shown: Bytes,
    temporaries: BTreeMap<u64, Temporary>,
    next: u64,
    /// What the request at hand has replaced: freed when that is answered, not before.
    replaced: Option<Replaced>,
    /// Who frees what was replaced before.
    freeing: Option<JoinHandle<()>>,
}

/// Serves a channel until it closes, in a process made for it. Gives the exit code.
pub(crate) fn serve(socket: &OwnedFd, walls: &Walls, root: &[u8]) -> i32 {
    set_process_name(c"cofferdam-files");
    let mut worker = match confine(walls).and_then(|()| Root::open(root)) {
        Ok(at) => Worker {
            root: at,
            shown: root.to_vec(),
            temporaries: BTreeMap::new(),
            next: 0,
            replaced: None,
            freeing: None,
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
        let sent = match self.act(request) {
            Ok((FileReply::Temporary { token }, _)) => {
                let file = self.temporaries.get(&token).map(AsFd::as_fd);
                send(socket, &FileReply::Temporary { token }, file.as_slice())
            }
            Ok((reply, file)) => send(socket, &reply, file.as_ref().map(AsFd::as_fd).as_slice()),
            Err(error) => send(socket, &FileReply::Failed(error.into()), &[]),
        };
        if let Some(replaced) = self.replaced.take() {
            self.free(replaced);
        }
        sent
    }

    /// Frees a file beside the next request where that may take its time; one at a time, so that what
    /// is held never amounts to more than two files.
    fn free(&mut self, replaced: Replaced) {
        if !replaced.is_large() {
            return;
        }
        if let Some(before) = self.freeing.take() {
            // It does nothing that could panic.
            let _ = before.join();
        }
        // Without a thread it is freed here and now.
        self.freeing = thread::Builder::new()
            .stack_size(FREEING_STACK)
            .spawn(move || drop(replaced))
            .ok();
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
            FileRequest::ReadLink { path } => FileReply::Link {
                target: root.read_link(&path)?,
            },
            FileRequest::MakeLink { path, target } => {
                root.make_link(&path, &target)?;
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
            FileRequest::Real { path, follow } => {
                let real = root.real(&self.shown, &path, follow)?;
                FileReply::Real {
                    path: real.path,
                    metadata: real.metadata,
                }
            }
            FileRequest::Read { path, inline } => {
                let (file, content) = self.content(&path, inline)?;
                let file = content.bytes.is_none().then_some(file);
                return Ok((FileReply::Read(content), file));
            }
            FileRequest::ReadMany { paths, most } => {
                let mut all = Vec::with_capacity(paths.len());
                let mut total = 0;
                for path in &paths {
                    if total >= MOST_AT_ONCE {
                        break;
                    }
                    let one = self.content(path, most).map(|(_, content)| content);
                    let bytes = one.as_ref().ok().and_then(|one| one.bytes.as_ref());
                    total += bytes.map_or(0, |bytes| bytes.0.len());
                    all.push(one.map_err(Failure::from));
                }
                FileReply::Many(all)
            }
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
                let temporary = taken(&mut self.temporaries, token)?;
                self.replaced = Some(root.commit(temporary, &path, replace)?);
                FileReply::Done
            }
            FileRequest::Sync { directory } => {
                root.sync(&directory)?;
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

impl Worker {
    /// Opens a file, and reads it where it is not larger than `inline`.
    fn content(&self, path: &[u8], inline: u32) -> Result<(OwnedFd, FileContent), SandboxError> {
        let (file, real, metadata) = self.root.read_real(&self.shown, path)?;
        let bytes = if metadata.size <= u64::from(inline) {
            whole(&file, metadata.size, inline as usize)
                .map_err(|errno| SandboxError::at(Step::File, path, errno.raw_os_error()))?
        } else {
            None
        };
        let content = FileContent {
            path: real,
            metadata,
            bytes: bytes.map(ContentBytes),
        };
        Ok((file, content))
    }
}

/// Reads a whole file from its beginning; `None` where it turns out to be larger than `most`. Its
/// position stays.
fn whole(file: &OwnedFd, size: u64, most: usize) -> Result<Option<Vec<u8>>, Errno> {
    let size = usize::try_from(size).unwrap_or(most);
    let mut bytes = Vec::with_capacity(size.min(most) + 1);
    loop {
        let free = bytes.capacity() - bytes.len();
        if free == 0 {
            bytes.reserve(bytes.len());
            continue;
        }
        let offset = bytes.len() as u64;
        let spare = rustix::buffer::spare_capacity(&mut bytes);
        let read = match rustix::io::pread(file, spare, offset) {
            Err(Errno::INTR) => continue,
            read => read?,
        };
        if read == 0 {
            return Ok(Some(bytes));
        }
        if bytes.len() > most {
            return Ok(None);
        }
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
