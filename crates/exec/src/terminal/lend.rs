//! The master of a terminal, as it was lent: looked at, typed at, and given another size.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_sandbox::{ForegroundLook, ForegroundWatch, resize_terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::backend::Foreground;
use crate::control::TerminalSize;

/// One end of a terminal.
#[derive(Debug)]
pub(super) struct Master {
    fd: OwnedFd,
    foreground: Arc<dyn Foreground>,
}

impl Foreground for ForegroundWatch {
    fn look(&self) -> ForegroundLook {
        Self::look(self)
    }

    fn has_output(&self) -> bool {
        Self::has_output(self)
    }

    fn resize(&self, size: TerminalSize) {
        // A terminal that is gone has no size.
        let _ = resize_terminal(self.master(), size.rows, size.columns);
    }
}

impl Master {
    /// Takes a master; `scripted` is what knows about it in the double.
    pub(super) fn new(fd: OwnedFd, scripted: Option<Arc<dyn Foreground>>) -> Result<Self, Problem> {
        let unusable = |why: String| {
            Problem::new(
                ErrorCode::SpawnFailed,
                format!("the terminal cannot be watched: {why}"),
            )
        };
        let foreground = if let Some(scripted) = scripted {
            scripted
        } else {
            let own = fd
                .try_clone()
                .map_err(|error| unusable(error.to_string()))?;
            let watch = ForegroundWatch::new(own).map_err(|error| unusable(error.to_string()))?;
            Arc::new(watch)
        };
        Ok(Self { fd, foreground })
    }

    pub(super) fn look(&self) -> ForegroundLook {
        self.foreground.look()
    }

    pub(super) fn has_output(&self) -> bool {
        self.foreground.has_output()
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        self.foreground.resize(size);
    }

    /// Types bytes; gives how many could be typed in time. Nobody has to read them for that, up to
    /// what the kernel keeps.
    pub(super) fn write(&self, mut bytes: &[u8], until: Instant) -> Result<usize, Errno> {
        let all = bytes.len();
        while !bytes.is_empty() {
            match rustix::io::write(&self.fd, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let limit = Timespec::try_from(left.min(Duration::from_millis(50))).ok();
                    let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::OUT)];
                    // An interrupted wait is a wait that is over.
                    let _ = poll(&mut fds, limit.as_ref());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all - bytes.len())
    }
}
