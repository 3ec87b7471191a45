//! One request and its answer, in both directions at once, nothing of either kept whole.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cofferdam_core::mask::{Masker, Stream};
use rustix::event::{PollFd, PollFlags};

use super::side::Side;
use crate::body::BodyFraming;
use crate::limits::Limits;
use crate::response::{AnswerTo, ResponseHead, parse_answer};
use crate::wait::{StopSignal, poll_for};

/// Bytes that one direction takes at once.
const PIECE: usize = 32 * 1024;
/// How long bytes that may begin a secret are held back, should nothing follow.
const HELD_TIME: Duration = Duration::from_millis(50);

/// Why an exchange ended before it was whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The client vanished, or what it sent is no body.
    Client,
    /// Nothing came from the host, or nothing that is an answer; the client has heard nothing.
    Unanswered,
    /// The host vanished, or its answer ended too soon.
    Upstream,
    /// Nothing moved for too long.
    Idle,
    /// Everything ends.
    Stopped,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exchanged {
    pub(crate) broken: Option<Broken>,
    pub(crate) status: Option<u16>,
    pub(crate) client_keeps: bool,
    pub(crate) upstream_keeps: bool,
    /// Bytes of the request's body that the host took.
    pub(crate) sent: u64,
    /// Bytes of the answer that the client took.
    pub(crate) received: u64,
    /// Whether a single byte came from the host.
    pub(crate) heard: bool,
}

/// Bytes on their way.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    start: usize,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    fn clear_sent(&mut self) {
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Writes what is taken; tells whether anything was.
    fn drain(&mut self, side: &mut Side) -> io::Result<u64> {
        let mut moved = 0;
        while !self.is_empty() {
            let count = side.write(&self.bytes[self.start..])?;
            if count == 0 {
                break;
            }
            self.start += count;
            moved += count as u64;
        }
        self.clear_sent();
        Ok(moved)
    }
}

/// Where the answer is.
enum Answer {
    /// Its head, as far as it came.
    Head(Vec<u8>),
    /// Its body.
    Body(Option<BodyFraming>),
    /// The connection became one of WebSocket.
    Switched,
    Over,
}

pub(crate) struct Exchange<'a> {
    pub(crate) client: &'a mut Side,
    pub(crate) upstream: &'a mut Side,
    /// What the client sent behind what was used; what is behind this request stays here.
    pub(crate) ahead: &'a mut Vec<u8>,
    pub(crate) body: BodyFraming,
    pub(crate) to: AnswerTo<'a>,
    pub(crate) limits: &'a Limits,
    pub(crate) stop: &'a StopSignal,
}

struct Course<'a, 'b> {
    it: Exchange<'a>,
    up: Pending,
    down: Pending,
    answer: Answer,
    screen: Option<Stream<'b>>,
    held_since: Option<Instant>,
    end: Exchanged,
    /// Nothing more goes to the host, though something may come.
    upstream_is_deaf: bool,
    /// Bytes of the head that are not of the body.
    head_bytes: u64,
    buffer: Vec<u8>,
}

impl<'a> Exchange<'a> {
    /// Carries a request, of which `head` goes first, and its answer.
    pub(crate) fn run(self, head: Vec<u8>) -> Exchanged {
        let screen: Option<&'a Masker> = self.to.screen;
        let mut course = Course {
            head_bytes: head.len() as u64,
            up: Pending {
                bytes: head,
                start: 0,
            },
            it: self,
            down: Pending::default(),
            answer: Answer::Head(Vec::new()),
            screen: screen.map(Masker::stream),
            held_since: None,
            end: Exchanged::default(),
            upstream_is_deaf: false,
            buffer: vec![0; PIECE],
        };
        let broken = course.go();
        let mut end = course.end;
        end.sent = end.sent.saturating_sub(course.head_bytes);
        // A host that answered before it had everything goes on with the body as if it were the next
        // request: neither connection can.
        if !course.it.body.is_over() || broken.is_some() {
            end.client_keeps = false;
            end.upstream_keeps = false;
        }
        end.broken = broken;
        end
    }
}

impl Course<'_, '_> {
    fn go(&mut self) -> Option<Broken> {
        let mut moved_at = Instant::now();
        loop {
            let moved = match self.step() {
                Ok(moved) => moved,
                Err(broken) => return Some(broken),
            };
            if self.is_over() {
                return None;
            }
            if moved {
                moved_at = Instant::now();
                continue;
            }
            let left = self.it.limits.idle_time.saturating_sub(moved_at.elapsed());
            if left.is_zero() {
                return Some(Broken::Idle);
            }
            if let Err(broken) = self.wait(left) {
                return Some(broken);
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.answer, Answer::Over) && self.down.is_empty() && !self.it.client.has_unsent()
    }

    /// Moves whatever can be moved now; tells whether anything was.
    fn step(&mut self) -> Result<bool, Broken> {
        let client = |_: io::Error| Broken::Client;
        let mut moved = self.take_from_client()?;
        let sent = self.up.drain(self.it.upstream);
        match sent {
            Ok(sent) => {
                self.end.sent += sent;
                moved |= sent > 0;
            }
            // It may have answered before it hung up.
            Err(_) if self.end.heard || self.has_more_to_hear() => self.up = Pending::default(),
            Err(_) => return Err(self.upstream_is_gone()),
        }
        // What TLS itself has to say is said, whether anything else is or not.
        self.upstream_is_deaf |= self.it.upstream.flush().is_err();
        moved |= self.take_from_upstream()?;
        self.release_held();
        let received = self.down.drain(self.it.client).map_err(client)?;
        self.it.client.flush().map_err(client)?;
        self.end.received += received;
        Ok(moved || received > 0)
    }

    fn has_more_to_hear(&mut self) -> bool {
        let mut piece = [0; 4 * 1024];
        match self.it.upstream.read(&mut piece) {
            Ok(Some(count)) if count > 0 => {
                self.end.heard = true;
                if let Answer::Head(head) = &mut self.answer {
                    head.extend_from_slice(&piece[..count]);
                }
                true
            }
            _ => false,
        }
    }

    const fn upstream_is_gone(&self) -> Broken {
        if self.end.heard {
            Broken::Upstream
        } else {
            Broken::Unanswered
        }
    }

    fn take_from_client(&mut self) -> Result<bool, Broken> {
        let is_switched = matches!(self.answer, Answer::Switched);
        if !self.up.is_empty() || (self.it.body.is_over() && !is_switched) {
            return Ok(false);
        }
        if self.it.ahead.is_empty() {
            match self.it.client.read(&mut self.buffer) {
                Ok(Some(0)) if is_switched => {
                    self.answer = Answer::Over;
                    return Ok(true);
                }
                Ok(Some(0)) | Err(_) => return Err(Broken::Client),
                Ok(Some(count)) => self.it.ahead.extend_from_slice(&self.buffer[..count]),
                Ok(None) => return Ok(false),
            }
        }
        let taken = if is_switched {
            self.it.ahead.len()
        } else {
            let fed = self.it.body.feed(self.it.ahead);
            fed.map_err(|_| Broken::Client)?
        };
        let rest = self.it.ahead.split_off(taken);
        self.up.bytes.append(self.it.ahead);
        *self.it.ahead = rest;
        Ok(true)
    }

    fn take_from_upstream(&mut self) -> Result<bool, Broken> {
        if !self.down.is_empty() || matches!(self.answer, Answer::Over) {
            return Ok(false);
        }
        let count = match self.it.upstream.read(&mut self.buffer) {
            Ok(Some(count)) => count,
            Ok(None) => return Ok(false),
            Err(_) => return Err(self.upstream_is_gone()),
        };
        if count == 0 {
            return self.upstream_said_end();
        }
        self.end.heard = true;
        let piece = std::mem::take(&mut self.buffer);
        let taken = self.take(&piece[..count]);
        self.buffer = piece;
        taken.map(|()| true)
    }

    fn upstream_said_end(&mut self) -> Result<bool, Broken> {
        match &self.answer {
            Answer::Body(None) | Answer::Switched => {
                self.end_answer();
                Ok(true)
            }
            _ => Err(self.upstream_is_gone()),
        }
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), Broken> {
        match &mut self.answer {
            Answer::Head(head) => {
                head.extend_from_slice(piece);
                let whole = std::mem::take(head);
                self.take_head(whole)
            }
            Answer::Body(_) => self.take_body(piece),
            Answer::Switched => {
                self.screened(piece);
                Ok(())
            }
            Answer::Over => Ok(()),
        }
    }

    fn take_head(&mut self, mut bytes: Vec<u8>) -> Result<(), Broken> {
        loop {
            match parse_answer(&bytes, &self.it.to) {
                ResponseHead::Partial if bytes.len() <= self.it.limits.head_bytes => {
                    self.answer = Answer::Head(bytes);
                    return Ok(());
                }
                ResponseHead::Partial | ResponseHead::Unreadable => return Err(Broken::Unanswered),
                ResponseHead::Interim { length } => {
                    let rest = bytes.split_off(length);
                    let screen = self.it.to.screen;
                    match screen {
                        Some(screen) => self
                            .down
                            .bytes
                            .extend_from_slice(&screen.mask_bytes(&bytes).0),
                        None => self.down.bytes.append(&mut bytes),
                    }
                    bytes = rest;
                }
                ResponseHead::Switched { length, head } => {
                    self.end.status = Some(101);
                    self.down.bytes.extend_from_slice(&head);
                    self.answer = Answer::Switched;
                    self.screened(&bytes[length..]);
                    return Ok(());
                }
                ResponseHead::Final {
                    length,
                    head,
                    body,
                    code,
                    keeps,
                } => {
                    self.end.status = Some(code);
                    self.end.upstream_keeps = keeps;
                    self.end.client_keeps = self.it.to.keeps && body.is_some();
                    self.down.bytes.extend_from_slice(&head);
                    self.answer = Answer::Body(body);
                    return self.take_body(&bytes[length..]);
                }
            }
        }
    }

    fn take_body(&mut self, piece: &[u8]) -> Result<(), Broken> {
        let Answer::Body(framing) = &mut self.answer else {
            return Ok(());
        };
        let Some(framing) = framing else {
            self.screened(piece);
            return Ok(());
        };
        let is_chunked = matches!(framing, BodyFraming::Chunked(_));
        let taken = match &mut self.screen {
            None => {
                let taken = framing.feed(piece).map_err(|_| Broken::Upstream)?;
                self.down.bytes.extend_from_slice(&piece[..taken]);
                taken
            }
            Some(screen) => {
                let mut plain = Vec::with_capacity(piece.len());
                let taken = framing.feed_data(piece, |data| screen.feed(data, &mut plain));
                put(&mut self.down.bytes, &plain, is_chunked);
                taken.map_err(|_| Broken::Upstream)?
            }
        };
        if framing.is_over() {
            if taken < piece.len() {
                // What nobody asked for must not become the answer to the next request.
                self.end.upstream_keeps = false;
            }
            self.end_answer();
        }
        Ok(())
    }

    /// Passes bytes on that have no framing.
    fn screened(&mut self, piece: &[u8]) {
        match &mut self.screen {
            Some(screen) => screen.feed(piece, &mut self.down.bytes),
            None => self.down.bytes.extend_from_slice(piece),
        }
    }

    fn end_answer(&mut self) {
        let is_chunked = matches!(self.answer, Answer::Body(Some(BodyFraming::Chunked(_))));
        if let Some(screen) = self.screen.take() {
            let mut plain = Vec::new();
            screen.finish(&mut plain);
            put(&mut self.down.bytes, &plain, is_chunked);
            if is_chunked {
                self.down.bytes.extend_from_slice(b"0\r\n\r\n");
            }
        }
        self.answer = Answer::Over;
    }

    /// Lets out what was held back too long.
    fn release_held(&mut self) {
        let is_chunked = matches!(self.answer, Answer::Body(Some(BodyFraming::Chunked(_))));
        let Some(screen) = self.screen.as_mut().filter(|screen| screen.held() > 0) else {
            self.held_since = None;
            return;
        };
        let since = *self.held_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= HELD_TIME {
            let mut plain = Vec::new();
            screen.release(&mut plain);
            put(&mut self.down.bytes, &plain, is_chunked);
            self.held_since = None;
        }
    }

    /// Waits for whatever can go on.
    fn wait(&self, left: Duration) -> Result<(), Broken> {
        let is_switched = matches!(self.answer, Answer::Switched);
        let mut client = PollFlags::empty();
        if self.up.is_empty() && (is_switched || !self.it.body.is_over()) {
            client |= PollFlags::IN;
        } else if self.it.client.is_secure() {
            client |= PollFlags::RDHUP;
        }
        if !self.down.is_empty() || self.it.client.has_unsent() {
            client |= PollFlags::OUT;
        }
        let mut upstream = PollFlags::empty();
        if self.down.is_empty() && !matches!(self.answer, Answer::Over) {
            upstream |= PollFlags::IN;
        }
        let has_unsent = self.it.upstream.has_unsent() && !self.upstream_is_deaf;
        if !self.up.is_empty() || has_unsent {
            upstream |= PollFlags::OUT;
        }
        let left = match self.held_since {
            Some(since) => left.min(HELD_TIME.saturating_sub(since.elapsed())),
            None => left,
        };
        let mut descriptors = vec![
            PollFd::from_borrowed_fd(self.it.stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.it.client.socket().as_fd(), client),
        ];
        // A socket from which nothing is wanted is left out: its hang-up would be reported again
        // and again.
        if !upstream.is_empty() {
            let socket = self.it.upstream.socket().as_fd();
            descriptors.push(PollFd::from_borrowed_fd(socket, upstream));
        }
        poll_for(&mut descriptors, Some(left)).map_err(|_| Broken::Client)?;
        if !descriptors[0].revents().is_empty() {
            return Err(Broken::Stopped);
        }
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let seen = descriptors[1].revents();
        // Within TLS a half-closed socket says nothing any more; without it may still listen.
        let has_left = if client.contains(PollFlags::RDHUP) {
            seen.intersects(gone)
        } else {
            seen.intersects(PollFlags::HUP | PollFlags::ERR) && !seen.contains(PollFlags::IN)
        };
        if has_left {
            return Err(Broken::Client);
        }
        Ok(())
    }
}

/// Adds a piece of a body, as a chunk of its own where there are chunks.
fn put(bytes: &mut Vec<u8>, plain: &[u8], is_chunked: bool) {
    if plain.is_empty() {
        return;
    }
    if is_chunked {
        bytes.extend_from_slice(format!("{:x}\r\n", plain.len()).as_bytes());
    }
    bytes.extend_from_slice(plain);
    if is_chunked {
        bytes.extend_from_slice(b"\r\n");
    }
}
