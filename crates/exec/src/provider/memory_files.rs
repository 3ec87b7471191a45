//! Files of the in-memory double: a tree of names that lives as long as the place.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_keeper::{ContentBytes, FileContent, FileReply, FileRequest};
use cofferdam_sandbox::{Create, Entry, FileKind, Metadata, OpenHow, SandboxError, Step};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::files::{FileFault, FileWorker};

/// What a name stands for.
#[derive(Debug, Clone)]
enum Node {
    File { bytes: Vec<u8>, mode: u32 },
    Folder { mode: u32 },
}

/// The files of one place. Symbolic links do not exist here.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryFiles(Arc<Mutex<Tree>>);

#[derive(Debug, Default)]
struct Tree {
    nodes: BTreeMap<Vec<u8>, Node>,
    temporaries: BTreeMap<u64, (std::fs::File, u32)>,
    next: u64,
}

impl MemoryFiles {
    /// Gives a worker for them.
    pub(super) fn worker(&self) -> Box<dyn FileWorker> {
        Box::new(self.clone())
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // A tree is whole after every request.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileWorker for MemoryFiles {
    fn call(
        &mut self,
        request: &FileRequest,
        _limit: Duration,
    ) -> Result<(FileReply, Option<OwnedFd>), FileFault> {
        self.tree().act(request).map_err(FileFault::Refused)
    }
}

fn refused(path: &[u8], errno: Errno) -> SandboxError {
    SandboxError::at(Step::File, path, errno.raw_os_error())
}

fn memory(bytes: &[u8]) -> Result<std::fs::File, SandboxError> {
    let failed = |errno: i32| SandboxError::new(Step::File, errno);
    let file = memfd_create("cofferdam-file", MemfdFlags::CLOEXEC)
        .map_err(|errno| failed(errno.raw_os_error()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .map_err(|error| failed(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())))?;
    Ok(file)
}

impl Tree {
    fn act(&mut self, request: &FileRequest) -> Result<(FileReply, Option<OwnedFd>), SandboxError> {
        let reply = match request {
            FileRequest::Open { path, how } => return self.open(path, *how),
            FileRequest::Metadata { path, .. } => FileReply::Metadata(self.metadata(path)?),
            FileRequest::List { path, limit } => self.list(path, *limit)?,
            FileRequest::MakeDirectory {
                path,
                mode,
                parents,
            } => {
                self.make_folder(path, *mode, *parents)?;
                FileReply::Done
            }
            FileRequest::Remove { path, directory } => {
                self.remove(path, *directory)?;
                FileReply::Done
            }
            FileRequest::ReadLink { path } | FileRequest::MakeLink { path, .. } => {
                return Err(refused(path, Errno::INVAL));
            }
            FileRequest::Rename { from, to, replace } => {
                self.rename(from, to, *replace)?;
                FileReply::Done
            }
            FileRequest::Access { path, .. } => {
                self.metadata(path)?;
                FileReply::Done
            }
            FileRequest::Real { path, .. } => FileReply::Real {
                path: path.clone(),
                metadata: match self.metadata(path) {
                    Ok(metadata) => Some(metadata),
                    Err(error) if error.errno == Errno::NOENT.raw_os_error() => None,
                    Err(error) => return Err(error),
                },
            },
            FileRequest::Read { path, .. } => FileReply::Read(self.content(path)?),
            FileRequest::ReadMany { paths, most } => FileReply::Many(
                paths
                    .iter()
                    .map(|path| {
                        let mut content = self.content(path)?;
                        content.bytes = content.bytes.filter(|one| one.0.len() <= *most as usize);
                        Ok(content)
                    })
                    .map(|one| one.map_err(|error: SandboxError| error.into()))
                    .collect(),
            ),
            FileRequest::Temporary { directory, mode } => {
                self.is_folder(directory)?;
                let file = memory(&[])?;
                let lent = file
                    .try_clone()
                    .map_err(|_| refused(directory, Errno::IO))?;
                let token = self.next;
                self.next += 1;
                self.temporaries.insert(token, (file, *mode & 0o755));
                return Ok((FileReply::Temporary { token }, Some(lent.into())));
            }
            FileRequest::Commit {
                token,
                path,
                replace,
            } => {
                self.commit(*token, path, *replace)?;
                FileReply::Done
            }
            FileRequest::Sync { directory } => {
                self.is_folder(directory)?;
                FileReply::Done
            }
            FileRequest::Discard { token } => {
                self.temporaries.remove(token);
                FileReply::Done
            }
            FileRequest::Ping => FileReply::Done,
        };
        Ok((reply, None))
    }

    /// Refuses names that no kernel would take.
    fn is_named(path: &[u8]) -> Result<(), SandboxError> {
        let is_long = path
            .split(|byte| *byte == b'/')
            .any(|name| name.len() > 255);
        if is_long {
            Err(refused(path, Errno::NAMETOOLONG))
        } else {
            Ok(())
        }
    }

    fn node(&self, path: &[u8]) -> Result<Node, SandboxError> {
        if path.is_empty() {
            return Ok(Node::Folder { mode: 0o755 });
        }
        Self::is_named(path)?;
        if path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|piece| piece == b"..") {
            return Err(refused(path, Errno::XDEV));
        }
        self.nodes
            .get(path)
            .cloned()
            .ok_or_else(|| refused(path, Errno::NOENT))
    }

    fn is_folder(&self, path: &[u8]) -> Result<(), SandboxError> {
        match self.node(path)? {
            Node::Folder { .. } => Ok(()),
            Node::File { .. } => Err(refused(path, Errno::NOTDIR)),
        }
    }

    fn has_parent(&self, path: &[u8]) -> Result<(), SandboxError> {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        self.is_folder(cut.map_or(&[][..], |cut| &path[..cut]))
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, SandboxError> {
        let (kind, size, mode) = match self.node(path)? {
            Node::File { bytes, mode } => (FileKind::File, bytes.len() as u64, mode),
            Node::Folder { mode } => (FileKind::Directory, 0, mode),
        };
        Ok(Metadata {
            kind,
            size,
            mode,
            modified_nanoseconds: 0,
            device: 0,
            inode: 0,
            links: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        })
    }

    fn content(&self, path: &[u8]) -> Result<FileContent, SandboxError> {
        match self.node(path)? {
            Node::Folder { .. } => Err(refused(path, Errno::ISDIR)),
            Node::File { bytes, .. } => Ok(FileContent {
                path: path.to_vec(),
                metadata: self.metadata(path)?,
                bytes: Some(ContentBytes(bytes)),
            }),
        }
    }

    fn open(
        &mut self,
        path: &[u8],
        how: OpenHow,
    ) -> Result<(FileReply, Option<OwnedFd>), SandboxError> {
        if let OpenHow::Write { create, mode, .. } = how {
            let is_there = self.nodes.contains_key(path);
            match create {
                Create::New if is_there => return Err(refused(path, Errno::EXIST)),
                Create::New | Create::IfMissing if !is_there => {
                    self.has_parent(path)?;
                    let made = Node::File {
                        bytes: Vec::new(),
                        mode: mode & 0o755,
                    };
                    self.nodes.insert(path.to_vec(), made);
                }
                _ => {}
            }
        }
        match self.node(path)? {
            Node::Folder { .. } => Err(refused(path, Errno::ISDIR)),
            Node::File { bytes, .. } => Ok((
                FileReply::Opened(self.metadata(path)?),
                Some(memory(&bytes)?.into()),
            )),
        }
    }

    fn list(&self, path: &[u8], limit: u32) -> Result<FileReply, SandboxError> {
        self.is_folder(path)?;
        let mut entries = Vec::new();
        for (name, node) in &self.nodes {
            let below = match path {
                [] => Some(name.as_slice()),
                path => name
                    .strip_prefix(path)
                    .and_then(|rest| rest.strip_prefix(b"/")),
            };
            let Some(below) = below.filter(|below| !below.contains(&b'/')) else {
                continue;
            };
            if entries.len() == limit as usize {
                return Ok(FileReply::Entries {
                    entries,
                    truncated: true,
                });
            }
            entries.push(Entry {
                name: below.to_vec(),
                kind: match node {
                    Node::File { .. } => FileKind::File,
                    Node::Folder { .. } => FileKind::Directory,
                },
            });
        }
        Ok(FileReply::Entries {
            entries,
            truncated: false,
        })
    }

    fn make_folder(&mut self, path: &[u8], mode: u32, parents: bool) -> Result<(), SandboxError> {
        if self.nodes.contains_key(path) {
            return match (parents, self.is_folder(path)) {
                (true, Ok(())) => Ok(()),
                _ => Err(refused(path, Errno::EXIST)),
            };
        }
        if parents && let Some(cut) = path.iter().rposition(|byte| *byte == b'/') {
            self.make_folder(&path[..cut], mode, true)?;
        }
        self.has_parent(path)?;
        self.nodes
            .insert(path.to_vec(), Node::Folder { mode: mode & 0o755 });
        Ok(())
    }

    fn remove(&mut self, path: &[u8], directory: bool) -> Result<(), SandboxError> {
        match (self.node(path)?, directory) {
            (Node::Folder { .. }, false) => Err(refused(path, Errno::ISDIR)),
            (Node::File { .. }, true) => Err(refused(path, Errno::NOTDIR)),
            (Node::Folder { .. }, true) if self.below(path).next().is_some() => {
                Err(refused(path, Errno::NOTEMPTY))
            }
            _ => {
                self.nodes.remove(path);
                Ok(())
            }
        }
    }

    fn below<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
        self.nodes
            .keys()
            .filter(|name| {
                name.strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with(b"/"))
            })
            .cloned()
    }

    fn rename(&mut self, from: &[u8], to: &[u8], replace: bool) -> Result<(), SandboxError> {
        let node = self.node(from)?;
        self.has_parent(to)?;
        if !replace && self.nodes.contains_key(to) {
            return Err(refused(to, Errno::EXIST));
        }
        let below: Vec<Vec<u8>> = self.below(from).collect();
        for name in below {
            if let Some(moved) = self.nodes.remove(&name) {
                let new = [to, &name[from.len()..]].concat();
                self.nodes.insert(new, moved);
            }
        }
        self.nodes.remove(from);
        self.nodes.insert(to.to_vec(), node);
        Ok(())
    }

    fn commit(&mut self, token: u64, path: &[u8], replace: bool) -> Result<(), SandboxError> {
        let (mut file, mode) = self
            .temporaries
            .remove(&token)
            .ok_or_else(|| refused(path, Errno::BADF))?;
        self.has_parent(path)?;
        if !replace && self.nodes.contains_key(path) {
            return Err(refused(path, Errno::EXIST));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_end(&mut bytes))
            .map_err(|_| refused(path, Errno::IO))?;
        self.nodes.insert(path.to_vec(), Node::File { bytes, mode });
        Ok(())
    }
}
