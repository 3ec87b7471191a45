//! Bytes in both directions, by one thread.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use crate::body::BodyFraming;
use crate::decision::{Ended, Reason};
use crate::limits::Limits;
use crate::response::{BodyAllowed, ResponseHead, parse_response};
use crate::wait::{StopSignal, poll_for};

/// Bytes that one direction takes at once.
const BUFFER: usize = 256 * 1024;

/// What is carried.
#[derive(Debug)]
pub(crate) enum Carried {
    /// Whatever either side says.
    Tunnel,
    /// One request, of which this is the rest, and its answer.
    Exchange(BodyFraming, BodyAllowed),
}

/// How carrying ended.
#[derive(Debug)]
pub(crate) struct RelayEnd {
    pub(crate) ended: Ended,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

struct Flow {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// More may come from the source.
    reading: bool,
    /// The sink was told that nothing more comes.
    shut: bool,
    moved: u64,
}

impl Flow {
    fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            reading: true,
            shut: false,
            moved: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once into the empty buffer. `None` means that nothing is there yet.
    fn fill(&mut self, mut source: &TcpStream) -> io::Result<Option<usize>> {
        match source.read(&mut self.buffer) {
            Ok(count) => {
                self.start = 0;
                self.end = count;
                Ok(Some(count))
            }
            Err(error) if is_later(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes what the sink takes.
    fn drain(&mut self, mut sink: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match sink.write(&self.buffer[self.start..self.end]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.start += count;
                    self.moved += count as u64;
                }
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn put(&mut self, pieces: &[&[u8]]) {
        self.start = 0;
        self.end = 0;
        for piece in pieces {
            let end = self.end + piece.len();
            if end > self.buffer.len() {
                self.buffer.resize(end, 0);
            }
            self.buffer[self.end..end].copy_from_slice(piece);
            self.end = end;
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The two sockets and what is known about them.
pub(crate) struct Relay<'a> {
    client: &'a TcpStream,
    upstream: &'a TcpStream,
    up: Flow,
    down: Flow,
    /// What is left of the request; `None` for a tunnel.
    body: Option<BodyFraming>,
    /// The head of the answer, as far as it came; `None` once it was passed on, and for a tunnel.
    head: Option<Vec<u8>>,
    head_limit: usize,
    body_allowed: BodyAllowed,
    /// What is left of the answer, where its end is known.
    answer: Option<BodyFraming>,
    client_left: bool,
}

/// Why carrying cannot go on.
enum Failure {
    Broken,
    Upstream,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl<'a> Relay<'a> {
    /// Begins with what goes to the host first and what the client already sent behind its head.
    pub(crate) fn new(
        client: &'a TcpStream,
        upstream: &'a TcpStream,
        carried: Carried,
        first: &[u8],
        early: &[u8],
        limits: &Limits,
    ) -> Result<Self, Ended> {
        let mut relay = Self {
            client,
            upstream,
            up: Flow::new(),
            down: Flow::new(),
            body: None,
            head: None,
            head_limit: limits.head_bytes,
            body_allowed: BodyAllowed::Yes,
            answer: None,
            client_left: false,
        };
        let mut taken = early.len();
        if let Carried::Exchange(mut body, body_allowed) = carried {
            relay.body_allowed = body_allowed;
            taken = body.feed(early).map_err(|_| Ended::Broken)?;
            relay.up.reading = !body.is_over();
            relay.body = Some(body);
            relay.head = Some(Vec::new());
        }
        relay.up.put(&[first, &early[..taken]]);
        Ok(relay)
    }

    /// Carries until one of the ends.
    pub(crate) fn run(mut self, limits: &Limits, stop: &StopSignal) -> RelayEnd {
        let mut moved_at = Instant::now();
        let mut moved = 0;
        let mut outcome = self.up.drain(self.upstream).map_err(Failure::from);
        let ended = loop {
            match outcome {
                Err(Failure::Upstream) => break Ended::Failed(Reason::UpstreamInvalid),
                Err(Failure::Broken) => break Ended::Broken,
                Ok(()) if self.is_over() => break Ended::Finished,
                Ok(()) => {}
            }
            if self.up.moved + self.down.moved != moved {
                moved = self.up.moved + self.down.moved;
                moved_at = Instant::now();
            }
            let left = limits.idle_time.saturating_sub(moved_at.elapsed());
            if left.is_zero() {
                break Ended::Idle;
            }
            outcome = match self.wait(left, stop) {
                Ok(Some(ready)) => self.step(ready),
                Ok(None) => break Ended::Stopped,
                Err(_) => break Ended::Broken,
            };
        };
        RelayEnd {
            ended,
            sent: self.up.moved,
            received: self.down.moved,
        }
    }

    fn is_over(&self) -> bool {
        let answered = !self.down.reading && self.down.is_empty();
        match self.body {
            Some(_) => answered,
            None => answered && !self.up.reading && self.up.is_empty(),
        }
    }

    /// Waits for whatever can go on; `None` when everything ends.
    fn wait(
        &self,
        left: std::time::Duration,
        stop: &StopSignal,
    ) -> io::Result<Option<[PollFlags; 2]>> {
        let mut wanted = [PollFlags::empty(); 2];
        if self.up.reading && self.up.is_empty() {
            wanted[0] |= PollFlags::IN;
        } else if !self.up.reading && !self.client_left && self.body.is_some() {
            wanted[0] |= PollFlags::RDHUP;
        }
        if !self.down.is_empty() {
            wanted[0] |= PollFlags::OUT;
        }
        if self.down.reading && self.down.is_empty() {
            wanted[1] |= PollFlags::IN;
        }
        if !self.up.is_empty() {
            wanted[1] |= PollFlags::OUT;
        }
        let mut descriptors = Vec::with_capacity(3);
        descriptors.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
        // A socket from which nothing is wanted is left out: its hang-up would be reported again
        // and again.
        let sockets = [self.client.as_fd(), self.upstream.as_fd()];
        for (socket, flags) in sockets.into_iter().zip(wanted) {
            if !flags.is_empty() {
                descriptors.push(PollFd::from_borrowed_fd(socket, flags));
            }
        }
        poll_for(&mut descriptors, Some(left))?;
        if !descriptors[0].revents().is_empty() {
            return Ok(None);
        }
        let mut seen = descriptors[1..].iter().map(PollFd::revents);
        let ready = wanted.map(|flags| {
            let asked = !flags.is_empty();
            let seen = if asked { seen.next() } else { None };
            seen.unwrap_or(PollFlags::empty())
        });
        Ok(Some(ready))
    }

    fn step(&mut self, [client, upstream]: [PollFlags; 2]) -> Result<(), Failure> {
        if !client.is_empty() {
            if self.up.reading && self.up.is_empty() {
                self.take_from_client()?;
            } else if client.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
                && self.body.is_some()
                && !self.client_left
            {
                // The client is gone, or has only said its last word. Its host is told the same.
                self.client_left = true;
                let _ = self.upstream.shutdown(Shutdown::Write);
            }
        }
        if !upstream.is_empty() && self.down.reading && self.down.is_empty() {
            self.take_from_upstream()?;
        }
        self.up.drain(self.upstream)?;
        self.down.drain(self.client)?;
        // An interim answer may have left the beginning of the real one behind.
        if self.down.is_empty() && self.head.as_ref().is_some_and(|head| !head.is_empty()) {
            self.pass_head()?;
            self.down.drain(self.client)?;
        }
        self.pass_ends();
        Ok(())
    }

    fn take_from_client(&mut self) -> Result<(), Failure> {
        let Some(count) = self.up.fill(self.client)? else {
            return Ok(());
        };
        let Some(body) = &mut self.body else {
            self.up.reading = count > 0;
            return Ok(());
        };
        if count == 0 {
            return Err(Failure::Broken);
        }
        let taken = body.feed(&self.up.buffer[..count]);
        self.up.end = taken.map_err(|_| Failure::Broken)?;
        self.up.reading = !body.is_over();
        Ok(())
    }

    fn take_from_upstream(&mut self) -> Result<(), Failure> {
        let count = match self.down.fill(self.upstream) {
            Ok(Some(count)) => count,
            Ok(None) => return Ok(()),
            Err(_) if self.head.is_some() => return Err(Failure::Upstream),
            Err(error) => return Err(error.into()),
        };
        self.down.reading = count > 0;
        let Some(head) = &mut self.head else {
            self.end_answer();
            return Ok(());
        };
        if count == 0 {
            return Err(Failure::Upstream);
        }
        head.extend_from_slice(&self.down.buffer[..count]);
        self.down.put(&[]);
        self.pass_head()
    }

    fn pass_head(&mut self) -> Result<(), Failure> {
        let Some(bytes) = self.head.take() else {
            return Ok(());
        };
        match parse_response(&bytes, self.body_allowed) {
            ResponseHead::Partial if bytes.len() <= self.head_limit => self.head = Some(bytes),
            ResponseHead::Partial | ResponseHead::Unreadable | ResponseHead::Switched { .. } => {
                return Err(Failure::Upstream);
            }
            ResponseHead::Interim { length } => {
                self.down.put(&[&bytes[..length]]);
                self.head = Some(bytes[length..].to_vec());
            }
            ResponseHead::Final {
                length, head, body, ..
            } => {
                self.answer = body;
                self.down.put(&[&bytes[length..]]);
                self.end_answer();
                let rest = self.down.buffer[..self.down.end].to_vec();
                self.down.put(&[&head, &rest]);
            }
        }
        Ok(())
    }

    /// Leaves only what belongs to the answer in the buffer: not every host ends the connection
    /// because it was told so.
    fn end_answer(&mut self) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        match answer.feed(&self.down.buffer[..self.down.end]) {
            Ok(taken) => {
                self.down.end = taken;
                self.down.reading &= !answer.is_over();
            }
            // The client can see for itself what it makes of such a body.
            Err(_) => self.answer = None,
        }
    }

    /// Tells each side of a tunnel that the other has said its last word.
    fn pass_ends(&mut self) {
        if self.body.is_some() {
            return;
        }
        let directions = [(&mut self.up, self.upstream), (&mut self.down, self.client)];
        for (flow, sink) in directions {
            if !flow.reading && flow.is_empty() && !flow.shut {
                flow.shut = true;
                let _ = sink.shutdown(Shutdown::Write);
            }
        }
    }
}
