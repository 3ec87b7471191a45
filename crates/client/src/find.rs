use std::fs::{File, TryLockError};
use std::path::Path;

use cofferdam_core::announce::{ANNOUNCEMENT_FILE, Announcement, LOCK_FILE};

/// Finds the server that lives in a data directory.
///
/// What a server that was killed left behind is none: a server holds its lock, and the lock and the
/// announcement name the same process.
pub fn find_server(data_dir: &Path) -> Option<Announcement> {
    let lock = data_dir.join(LOCK_FILE);
    let file = File::open(&lock).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let pid: u32 = std::fs::read_to_string(&lock).ok()?.trim().parse().ok()?;
    let text = std::fs::read(data_dir.join(ANNOUNCEMENT_FILE)).ok()?;
    let found: Announcement = serde_json::from_slice(&text).ok()?;
    (found.pid == pid).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_its_lock_is_a_server() {
        let data = tempfile::tempdir().expect("a directory");
        assert_eq!(find_server(data.path()), None);
        let announcement = Announcement {
            pid: 7,
            address: "127.0.0.1:1".to_owned(),
            token_file: "/token".into(),
            workspace: None,
        };
        let text = serde_json::to_vec(&announcement).expect("JSON");
        std::fs::write(data.path().join(ANNOUNCEMENT_FILE), text).expect("written");
        std::fs::write(data.path().join(LOCK_FILE), "7\n").expect("written");
        // Of one that was killed: both files, and no lock.
        assert_eq!(find_server(data.path()), None);
        let held = File::open(data.path().join(LOCK_FILE)).expect("opened");
        held.lock().expect("locked");
        assert_eq!(find_server(data.path()), Some(announcement));
        std::fs::write(data.path().join(LOCK_FILE), "8\n").expect("written");
        assert_eq!(find_server(data.path()), None);
    }
}
