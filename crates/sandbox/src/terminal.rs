//! Pseudo terminals.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::error::{SandboxError, Step, at_step};

/// Holds a new terminal.
#[derive(Debug)]
pub struct Terminal {
    /// The side of whoever looks at it.
    pub master: OwnedFd,
    /// The side of the command.
    pub slave: OwnedFd,
    /// The slave's path, as the maker of the terminal sees it.
    pub name: Vec<u8>,
}

/// Opens a terminal of the `/dev/pts` that the caller sees, of this size in characters.
pub fn open_terminal(rows: u16, columns: u16) -> Result<Terminal, SandboxError> {
    let step = at_step(Step::Terminal);
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    // The multiplexer of the mounted instance first: /dev/ptmx may be a node of the host's.
    let master = match rustix::fs::open(c"/dev/pts/ptmx", flags, Mode::empty()) {
        Err(_) => rustix::fs::open(c"/dev/ptmx", flags, Mode::empty()).map_err(&step)?,
        Ok(master) => master,
    };
    rustix::pty::unlockpt(&master).map_err(&step)?;
    let name = rustix::pty::ptsname(&master, Vec::new())
        .map_err(&step)?
        .into_bytes();
    let peer = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, peer).map_err(&step)?;
    resize_terminal(&master, rows, columns)?;
    Ok(Terminal {
        master,
        slave,
        name,
    })
}

/// Gives a terminal a size in characters; its foreground group gets SIGWINCH where that changed it.
pub fn resize_terminal(master: &impl AsFd, rows: u16, columns: u16) -> Result<(), SandboxError> {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(master, size).map_err(at_step(Step::Terminal))
}
