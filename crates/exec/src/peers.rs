//! Other planes of one data directory: who they are, and asking one of them to end.
//!
//! A plane shows that it lives by the lock on its lease. A process gets a signal only when the lease
//! names it together with boot and start time, and both are those of the process that has this id
//! now; the signal goes through a handle that was opened before that was looked at, so it cannot
//! reach a process that took the id later.

use std::fs::{self, File, TryLockError};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use cofferdam_core::error::{ErrorCode, Problem};
use cofferdam_journal::LeaseRecord;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A plane that lives in some process.
#[derive(Debug)]
pub struct LivePlane {
    record: LeaseRecord,
    process: Result<OwnedFd, String>,
}

impl LivePlane {
    /// Tells whose lease it is.
    pub fn record(&self) -> &LeaseRecord {
        &self.record
    }

    /// Tells why its process could not be proved; `None` when it is.
    pub fn doubt(&self) -> Option<&str> {
        self.process.as_ref().err().map(String::as_str)
    }

    /// Asks its process to end what it runs and then itself, by SIGTERM.
    ///
    /// # Errors
    ///
    /// When the process is not proved, or belongs to somebody else.
    pub fn terminate(&self) -> Result<(), Problem> {
        let pid = self.record.pid;
        let process = self.process.as_ref().map_err(|why| {
            Problem::new(
                ErrorCode::TaskState,
                format!("process {pid} is not signalled: {why}"),
            )
            .with_hint("end it where it runs")
        })?;
        match pidfd_send_signal(process, Signal::TERM) {
            // It has ended meanwhile: that is what was wanted.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(Problem::new(
                ErrorCode::Io,
                format!("process {pid} cannot be signalled: {errno}"),
            )),
        }
    }

    /// Waits until its process has ended; tells whether it did within the time.
    pub fn wait(&self, at_most: Duration) -> bool {
        let Ok(process) = &self.process else {
            return false;
        };
        let limit = Timespec::try_from(at_most).ok();
        let mut fds = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        matches!(poll(&mut fds, limit.as_ref()), Ok(ready) if ready > 0)
    }
}

/// Finds the planes that live in a data directory, oldest first.
pub fn live_planes(data: &Path) -> Vec<LivePlane> {
    let Ok(entries) = fs::read_dir(data.join("leases")) else {
        return Vec::new();
    };
    let mut planes: Vec<LivePlane> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let record = live_record(&entry.path())?;
            (record.lease.as_str() == name).then(|| LivePlane {
                process: proved(&record),
                record,
            })
        })
        .collect();
    planes.sort_by(|one, other| one.record.lease.cmp(&other.record.lease));
    planes
}

/// Reads the record of a lease that somebody holds.
fn live_record(path: &Path) -> Option<LeaseRecord> {
    let mut file = File::open(path).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Gives a handle to the process that a lease names, or why it cannot be that process.
fn proved(record: &LeaseRecord) -> Result<OwnedFd, String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if record.boot.is_empty() || record.boot != boot.trim() {
        return Err("its lease is of another start of the machine".to_owned());
    }
    let pid = i32::try_from(record.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("its lease names no process")?;
    let handle = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| format!("there is no such process here: {errno}"))?;
    // Only now: what is read here is about the process that the handle holds, or about none.
    let place = format!("/proc/{}", record.pid);
    let stat = fs::read_to_string(format!("{place}/stat"))
        .map_err(|error| format!("it cannot be looked at: {error}"))?;
    if record.start == 0 || start_of(&stat) != Some(record.start) {
        return Err("another process has its id now".to_owned());
    }
    let owner = fs::metadata(&place).map(|found| found.uid());
    if owner.ok() != Some(rustix::process::geteuid().as_raw()) {
        return Err("it belongs to another user".to_owned());
    }
    Ok(handle)
}

/// Reads when a process started from its `stat`, field 22 of proc_pid_stat(5).
fn start_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cofferdam_journal::{DataDir, Lease, SystemAmbient};

    use super::*;

    fn lease(place: &Path) -> (DataDir, Lease) {
        let data = DataDir::open(place.join("data")).expect("a data directory");
        let ambient = Arc::new(SystemAmbient::new());
        let lease = Lease::take(&data, ambient.as_ref(), 0).expect("a lease");
        (data, lease)
    }

    #[test]
    fn a_held_lease_proves_its_process_and_a_dropped_one_is_gone() {
        let place = tempfile::tempdir().expect("a directory");
        let (data, lease) = lease(place.path());
        let planes = live_planes(data.path());
        assert_eq!(planes.len(), 1);
        assert_eq!(planes[0].record(), lease.record());
        assert_eq!(planes[0].doubt(), None);
        assert!(!planes[0].wait(Duration::ZERO));
        drop(lease);
        assert_eq!(live_planes(data.path()).len(), 0);
    }

    #[test]
    fn a_process_that_started_at_another_time_is_never_signalled() {
        let place = tempfile::tempdir().expect("a directory");
        let (_data, lease) = lease(place.path());
        let good = lease.record().clone();
        assert!(proved(&good).is_ok());
        let start = good.start + 1;
        for record in [
            LeaseRecord {
                start,
                ..good.clone()
            },
            LeaseRecord {
                start: 0,
                ..good.clone()
            },
            LeaseRecord {
                boot: "x".to_owned(),
                ..good.clone()
            },
            LeaseRecord {
                pid: 0,
                ..good.clone()
            },
            LeaseRecord { pid: 1, ..good },
        ] {
            let process = proved(&record);
            assert!(process.is_err(), "{record:?}");
            let plane = LivePlane { record, process };
            assert!(plane.terminate().is_err());
        }
    }
}
