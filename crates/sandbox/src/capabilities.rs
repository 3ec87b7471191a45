//! Giving privileges up for good.

use crate::error::{SandboxError, Step};

const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up every capability of the calling thread, the ambient set and, where it may, the bounding
/// set, so that nothing that it executes can have any again.
pub fn drop_all_capabilities() -> Result<(), SandboxError> {
    // SAFETY: only system calls on locals.
    if unsafe { drop_all_raw() } == 0 {
        Ok(())
    } else {
        Err(SandboxError::last(Step::Capabilities))
    }
}

/// As [`drop_all_capabilities`], for the child between clone and exec; −1 with errno on failure.
///
/// # Safety
///
/// Nothing is asked of the caller; the function makes system calls on its own locals.
pub(crate) unsafe fn drop_all_raw() -> i32 {
    // SAFETY: numbers and pointers to locals that live through the calls.
    unsafe {
        for capability in 0..64 {
            // Asking is many times cheaper than dropping, and often there is nothing to drop.
            match libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) {
                0 => {}
                1 if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 => {}
                // Past the last one, or an ordinary user, who has none to lose.
                _ => break,
            }
        }
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
        let mut header = Header {
            version: VERSION_3,
            pid: 0,
        };
        let none = [Data {
            effective: 0,
            permitted: 0,
            inheritable: 0,
        }; 2];
        let result = libc::syscall(libc::SYS_capset, &raw mut header, none.as_ptr());
        if result == 0 { 0 } else { -1 }
    }
}

/// Says whether other processes of the same user may inspect this one (`ptrace`, `/proc/N/mem`).
pub fn set_dumpable(dumpable: bool) -> Result<(), SandboxError> {
    attribute(libc::PR_SET_DUMPABLE, u64::from(dumpable))
}

/// Makes this process the one to which orphaned descendants fall.
pub fn set_subreaper() -> Result<(), SandboxError> {
    attribute(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Makes sure that this process and what it executes gain nothing from set-id files.
pub fn set_no_new_privileges() -> Result<(), SandboxError> {
    attribute(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Names the calling thread as `ps` shows it; at most 15 bytes count.
pub fn set_process_name(name: &std::ffi::CStr) {
    // SAFETY: a C string that lives through the call. A failure leaves the old name.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0);
    }
}

fn attribute(option: i32, value: u64) -> Result<(), SandboxError> {
    // SAFETY: numbers only.
    if unsafe { libc::prctl(option, value, 0, 0, 0) } == 0 {
        Ok(())
    } else {
        Err(SandboxError::last(Step::Attribute))
    }
}
