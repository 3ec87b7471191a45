//! What else a keeper does for the plane than start commands: files behind the same walls, and
//! sockets of the place's own network.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_keeper::{ClientError, FileClient, FileReply, FileRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::keeper::{Shared, lock};
use crate::backend::InnerNetwork;
use crate::files::{FileFault, FileWorker};

/// A file worker behind the walls of commands.
#[derive(Debug)]
pub(super) struct InnerFiles {
    pub(super) client: FileClient,
    pub(super) shared: Arc<Shared>,
}

impl FileWorker for InnerFiles {
    fn call(
        &mut self,
        request: &FileRequest,
        limit: Duration,
    ) -> Result<(FileReply, Option<OwnedFd>), FileFault> {
        let fault = |error: ClientError| match error {
            ClientError::Refused(error) => FileFault::Refused(error),
            other => FileFault::Lost(other.to_string()),
        };
        self.client.send(request).map_err(fault)?;
        let timeout = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        loop {
            match poll(
                &mut [PollFd::new(&self.client, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(0) => {
                    // It waits for a disk, or was stopped: whoever comes next gets another.
                    if let Some(keeper) = lock(&self.shared.keeper).as_ref() {
                        let _ = keeper.end_child(self.client.pid());
                    }
                    return Err(FileFault::TooLate);
                }
                Ok(_) => return self.client.receive().map_err(fault),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FileFault::Lost(errno.to_string())),
            }
        }
    }
}

impl InnerNetwork for Shared {
    fn listen(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        // Held from before it is there: whoever finds it in the lists has to wait for its inode.
        let mut listeners = lock(&self.listeners);
        let socket = self.ask(|keeper| keeper.listen(address).map(|(_, socket)| socket))?;
        let inode = rustix::fs::fstat(&socket)?.st_ino;
        listeners.insert(inode);
        Ok(socket)
    }

    fn own_listeners(&self) -> BTreeSet<u64> {
        lock(&self.listeners).clone()
    }

    fn open_socket(&self, ipv6: bool) -> io::Result<OwnedFd> {
        self.ask(|keeper| keeper.open_socket(ipv6))
    }

    fn open_socket_tables(&self, by_netlink: bool) -> io::Result<Vec<OwnedFd>> {
        if self.unanswered {
            // The keeper is the supervisor of the only command, and answers nobody else.
            if by_netlink {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let process = lock(&self.process);
            let process = process.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            return process.socket_tables();
        }
        self.ask(|keeper| keeper.open_socket_tables(by_netlink))
    }
}
