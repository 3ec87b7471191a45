//! One end of a connection whose requests are seen: a socket, with or without TLS on it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use rustls::Connection;

use crate::wait::{StopSignal, WaitEnd, wait_for};

/// A socket that does not block, and what was read from it before.
struct Raw {
    socket: Arc<TcpStream>,
    early: Vec<u8>,
    taken: usize,
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let early = &self.early[self.taken..];
        if early.is_empty() {
            return (&*self.socket).read(buffer);
        }
        let count = early.len().min(buffer.len());
        buffer[..count].copy_from_slice(&early[..count]);
        self.taken += count;
        Ok(count)
    }
}

/// Why TLS was not agreed on.
#[derive(Debug)]
pub(crate) enum Disagreed {
    /// The other side said so, or spoke no TLS.
    Tls(String),
    /// It went away.
    Gone,
    /// It took too long.
    Late,
    /// Everything ends.
    Stopped,
}

pub(crate) struct Side {
    raw: Raw,
    tls: Option<Box<Connection>>,
}

fn is_later(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl Side {
    pub(crate) const fn new(
        socket: Arc<TcpStream>,
        early: Vec<u8>,
        tls: Option<Box<Connection>>,
    ) -> Self {
        Self {
            raw: Raw {
                socket,
                early,
                taken: 0,
            },
            tls,
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.raw.socket
    }

    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Gives the name that the client gave within TLS.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self.tls.as_deref() {
            Some(Connection::Server(server)) => server.server_name(),
            _ => None,
        }
    }

    /// Agrees on TLS, where it is spoken.
    pub(crate) fn agree(&mut self, stop: &StopSignal, deadline: Instant) -> Result<(), Disagreed> {
        let gone = |_: io::Error| Disagreed::Gone;
        loop {
            let flushed = self.flush().map_err(gone)?;
            let Some(tls) = &mut self.tls else {
                return Ok(());
            };
            if !tls.is_handshaking() && flushed {
                return Ok(());
            }
            let mut wanted = PollFlags::empty();
            if tls.wants_read() && tls.is_handshaking() {
                match tls.read_tls(&mut self.raw) {
                    Ok(0) => return Err(Disagreed::Gone),
                    Ok(_) => {
                        if let Err(error) = tls.process_new_packets() {
                            // The other side is told why, as far as it listens.
                            let _ = self.flush();
                            return Err(Disagreed::Tls(error.to_string()));
                        }
                        continue;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if is_later(&error) => wanted |= PollFlags::IN,
                    Err(_) => return Err(Disagreed::Gone),
                }
            }
            if !flushed {
                wanted |= PollFlags::OUT;
            }
            let socket = self.raw.socket.as_fd();
            match wait_for(socket, wanted, stop.as_fd(), deadline) {
                Ok(()) => {}
                Err(WaitEnd::Deadline) => return Err(Disagreed::Late),
                Err(WaitEnd::Stopped) => return Err(Disagreed::Stopped),
                Err(WaitEnd::Broken) => return Err(Disagreed::Gone),
            }
        }
    }

    /// Reads what is there. `None` is nothing yet, 0 the end that the other side told.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let Some(tls) = &mut self.tls else {
                return match self.raw.read(buffer) {
                    Ok(count) => Ok(Some(count)),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if is_later(&error) => Ok(None),
                    Err(error) => Err(error),
                };
            };
            match tls.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error),
            }
            match tls.read_tls(&mut self.raw) {
                // That it is an end without a word shows when the reader is asked again.
                Ok(_) => {
                    if let Err(error) = tls.process_new_packets() {
                        let _ = self.flush();
                        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_later(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what is taken; 0 is nothing yet.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match &mut self.tls {
            Some(tls) => tls.writer().write(bytes)?,
            None => loop {
                match (&*self.raw.socket).write(bytes) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => break count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if is_later(&error) => break 0,
                    Err(error) => return Err(error),
                }
            },
        };
        self.flush()?;
        Ok(count)
    }

    /// Sends what TLS has ready; tells whether all of it is gone.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            return Ok(true);
        };
        while tls.wants_write() {
            match tls.write_tls(&mut &*self.raw.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Tells whether bytes wait within TLS for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Says within TLS that nothing more comes.
    pub(crate) fn say_end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = self.flush();
        }
    }
}
