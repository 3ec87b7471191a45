//! What commands of a session left running, and what that writes afterwards.
//!
//! A job keeps the streams of the command that started it. Somebody has to read them, or it would be
//! stopped by a full pipe, or ended by a closed one: one thread reads for all jobs of a session, and
//! keeps the last of it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use cofferdam_core::id::CommandId;
use cofferdam_core::limits;
use cofferdam_core::mask::{self, Masker};
use cofferdam_core::outcome::Leftover;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::output::keep_tail;
use crate::run::Kept;

/// Something that a command left running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The command that started it.
    pub command: CommandId,
    /// What it was when the command ended.
    pub processes: Vec<Leftover>,
    /// By what the place knows it.
    pub(super) number: u64,
}

/// A piece of what jobs wrote after their commands had ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLog {
    /// Offset of the first byte that is given.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Offset after the last of them.
    pub next_offset: u64,
}

#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    arriving: Vec<OwnedFd>,
    closed: bool,
    tail: Vec<u8>,
    total: u64,
}

/// The jobs of one session. Dropping it ends the reading.
#[derive(Debug)]
pub(super) struct Jobs {
    masker: Masker,
    living: Mutex<Vec<Job>>,
    reader: Mutex<Option<Reader>>,
}

#[derive(Debug)]
struct Reader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Jobs {
    pub(super) const fn new(masker: Masker) -> Self {
        Self {
            masker,
            living: Mutex::new(Vec::new()),
            reader: Mutex::new(None),
        }
    }

    /// Takes over what a command left.
    pub(super) fn take(&self, command: &CommandId, kept: Kept) {
        let Kept { tree, streams } = kept;
        if let Some(tree) = tree {
            lock(&self.living).push(Job {
                command: command.clone(),
                processes: tree.processes,
                number: tree.number,
            });
        }
        if streams.is_empty() {
            return;
        }
        let mut reader = lock(&self.reader);
        if reader.is_none() {
            // Without a reader the jobs meet closed streams, as after any shell that left.
            *reader = Reader::start(self.masker.clone()).ok();
        }
        if let Some(reader) = reader.as_ref() {
            lock(&reader.shared.state).arriving.extend(streams);
            reader.shared.ring();
        }
    }

    /// Lists those that still run, by what the place says.
    pub(super) fn list(&self, running: &[u64]) -> Vec<Job> {
        let mut jobs = lock(&self.living);
        jobs.retain(|job| running.contains(&job.number));
        jobs.clone()
    }

    /// Gives what was written, from an offset on; what is older than the tail is gone.
    pub(super) fn log(&self, offset: u64) -> SessionLog {
        let reader = lock(&self.reader);
        let Some(reader) = reader.as_ref() else {
            return SessionLog {
                offset: 0,
                bytes: Vec::new(),
                next_offset: 0,
            };
        };
        let state = lock(&reader.shared.state);
        let first = state.total - state.tail.len() as u64;
        let offset = offset.clamp(first, state.total);
        SessionLog {
            offset,
            bytes: state.tail[(offset - first) as usize..].to_vec(),
            next_offset: state.total,
        }
    }

    /// Forgets all of them: the place has ended.
    pub(super) fn clear(&self) {
        lock(&self.living).clear();
    }
}

impl Reader {
    fn start(masker: Masker) -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            wake,
            state: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("cofferdam-jobs".to_owned())
            .spawn(move || own.read(&masker))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell any more.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ring(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn read(&self, masker: &Masker) {
        // Each has a mask of its own, so that a secret value that two reads cut is found.
        let mut streams: Vec<(OwnedFd, mask::Stream<'_>)> = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            {
                let mut state = lock(&self.state);
                if state.closed {
                    return;
                }
                let arrived = state.arriving.drain(..);
                streams.extend(arrived.map(|stream| (stream, masker.stream())));
            }
            let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
            fds.extend(
                streams
                    .iter()
                    .map(|(stream, _)| PollFd::new(stream, PollFlags::IN)),
            );
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.first() == Some(&true) {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            }
            let mut ready = ready.into_iter().skip(1);
            streams.retain_mut(|(stream, mask)| {
                if ready.next() != Some(true) {
                    return true;
                }
                let mut masked = Vec::new();
                let goes_on = match rustix::io::read(stream.as_fd(), &mut buffer) {
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => true,
                    Ok(count) if count > 0 => {
                        mask.feed(&buffer[..count], &mut masked);
                        true
                    }
                    _ => {
                        std::mem::replace(mask, masker.stream()).finish(&mut masked);
                        false
                    }
                };
                self.keep(&masked);
                goes_on
            });
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.total += bytes.len() as u64;
        keep_tail(&mut state.tail, bytes, limits::OUTPUT_RING_BYTES);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after every statement that changes it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
