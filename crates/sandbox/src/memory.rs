//! Anonymous memory that is passed on as a descriptor.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::error::{SandboxError, Step, at_step};

/// Puts bytes into a memory file that nobody can change any more. Close-on-exec, read from 0.
pub fn sealed_memory(name: &str, content: &[u8]) -> Result<OwnedFd, SandboxError> {
    fill(name, content, MemfdFlags::NOEXEC_SEAL)
}

/// Puts a program into a memory file that nobody can change and that can be executed.
///
/// # Errors
///
/// `EACCES` where the kernel's settings forbid memory files to be executed.
pub fn sealed_program(name: &str, content: &[u8]) -> Result<OwnedFd, SandboxError> {
    fill(name, content, MemfdFlags::EXEC)
}

fn fill(name: &str, content: &[u8], kind: MemfdFlags) -> Result<OwnedFd, SandboxError> {
    let step = at_step(Step::Memory);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create(name, flags | kind) {
        // Before Linux 6.3 there was no such flag, and every memory file could be executed.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags).map_err(&step)?,
        other => other.map_err(&step)?,
    };
    let mut rest = content;
    while !rest.is_empty() {
        let written =
            rustix::io::retry_on_intr(|| rustix::io::write(&file, rest)).map_err(&step)?;
        rest = &rest[written..];
    }
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(&step)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(&step)?;
    Ok(file)
}

/// Reads a whole memory file, at most `limit` bytes.
///
/// # Errors
///
/// `EFBIG` when it is longer, `EPERM` when it is not sealed against changes while it is read.
pub fn read_memory(file: &impl AsFd, limit: u64) -> Result<Vec<u8>, SandboxError> {
    let step = at_step(Step::Memory);
    let seals = rustix::fs::fcntl_get_seals(file).map_err(&step)?;
    if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW) {
        return Err(SandboxError::new(Step::Memory, libc::EPERM));
    }
    let size = u64::try_from(rustix::fs::fstat(file).map_err(&step)?.st_size).unwrap_or(u64::MAX);
    if size > limit {
        return Err(SandboxError::new(Step::Memory, libc::EFBIG));
    }
    let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
    let mut done = 0;
    while done < content.len() {
        let at = u64::try_from(done).unwrap_or(0);
        match rustix::io::pread(file, &mut content[done..], at).map_err(&step)? {
            0 => return Err(SandboxError::new(Step::Memory, libc::EIO)),
            read => done += read,
        }
    }
    Ok(content)
}
