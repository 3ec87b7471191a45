//! The guard of a caller's terminal: it gives the terminal back where the program that made it raw
//! was killed and cannot.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;

use cofferdam_sandbox::{set_process_name, take_inherited_channel};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::termios::{LocalModes, OptionalActions, OutputModes, Termios, tcgetattr, tcsetattr};

/// A message that begins so says that the terminal was given back already.
pub const TERMINAL_DONE: u8 = 0;
/// A message that begins so holds what undoes the modes of the screen.
pub const TERMINAL_UNDO: u8 = 1;
/// Longest message to the guard, in bytes.
pub const TERMINAL_MESSAGE: usize = 1024;
/// How long a terminal may take until it takes anything.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Guards the terminal that is standard input until the channel with this number says that it was
/// given back, or closes without a word: then the guard gives it back.
///
/// For the keeper's own program. It says one byte once it knows how the terminal was.
pub fn guard_terminal(channel: RawFd) -> ExitCode {
    let Ok(channel) = take_inherited_channel(channel) else {
        return ExitCode::from(125);
    };
    set_process_name(c"cofferdam-tty");
    let terminal = rustix::stdio::stdin();
    let Ok(original) = tcgetattr(terminal) else {
        return ExitCode::from(125);
    };
    if rustix::net::send(&channel, &[TERMINAL_DONE], SendFlags::NOSIGNAL).is_err() {
        return ExitCode::from(125);
    }
    if let Some(undo) = wait(&channel) {
        give_back(terminal, &original, &undo);
    }
    ExitCode::SUCCESS
}

/// Waits for the end; gives what undoes the modes of the screen where nobody did.
fn wait(channel: &OwnedFd) -> Option<Vec<u8>> {
    let mut undo = Vec::new();
    let mut buffer = [0; TERMINAL_MESSAGE];
    loop {
        match rustix::net::recv(channel, buffer.as_mut_slice(), RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((0, _)) | Err(_) => return Some(undo),
            Ok((length, _)) => match buffer[..length].split_first() {
                Some((&TERMINAL_UNDO, rest)) => undo = rest.to_vec(),
                _ => return None,
            },
        }
    }
}

fn give_back(terminal: BorrowedFd<'_>, original: &Termios, undo: &[u8]) {
    // A shell that edits its line has modes of its own by now; those of a raw terminal are nobody's.
    let is_left_raw = tcgetattr(terminal).is_ok_and(|now| {
        !now.local_modes.contains(LocalModes::ICANON)
            && !now.output_modes.contains(OutputModes::OPOST)
    });
    if is_left_raw {
        let _ = tcsetattr(terminal, OptionalActions::Now, original);
    }
    if undo.is_empty() {
        return;
    }
    let mut fds = [PollFd::from_borrowed_fd(terminal, PollFlags::OUT)];
    if poll(&mut fds, Some(&PATIENCE)).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(terminal, undo);
    }
}
