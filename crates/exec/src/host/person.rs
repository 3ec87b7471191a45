//! Users of the host, by the files that name them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_core::bytes::BytePath;
use cofferdam_core::facts::Person;
use cofferdam_core::spec::Identity;

use super::surroundings::Surroundings;

/// One line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: PathBuf,
}

/// Reads the accounts; no file is no accounts.
pub(super) fn accounts() -> Vec<Account> {
    std::fs::read("/etc/passwd").map_or_else(|_| Vec::new(), |text| parse_accounts(&text))
}

fn parse_accounts(text: &[u8]) -> Vec<Account> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            let name = String::from_utf8(fields.next()?.to_vec()).ok()?;
            let uid = number(fields.nth(1)?)?;
            let gid = number(fields.next()?)?;
            let home = PathBuf::from(OsStr::from_bytes(fields.nth(1)?));
            Some(Account {
                name,
                uid,
                gid,
                home,
            })
        })
        .collect()
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Gives the groups in which a user stands besides the primary one.
fn groups_of(name: &str) -> Vec<u32> {
    let text = std::fs::read("/etc/group").unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            let gid = number(fields.nth(2)?)?;
            let is_member = fields
                .next()?
                .split(|byte| *byte == b',')
                .any(|member| member == name.as_bytes());
            is_member.then_some(gid)
        })
        .collect()
}

/// Tells who calls.
pub(super) fn caller(surroundings: &Surroundings, accounts: &[Account]) -> Person {
    let uid = rustix::process::geteuid().as_raw();
    let account = accounts.iter().find(|one| one.uid == uid);
    let groups = rustix::process::getgroups()
        .unwrap_or_default()
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect();
    let home = surroundings
        .path("HOME")
        .or_else(|| account.map(|one| one.home.as_path()))
        .unwrap_or(Path::new("/"));
    Person {
        identity: Identity {
            uid,
            gid: rustix::process::getegid().as_raw(),
            groups,
        },
        name: account.map_or_else(|| uid.to_string(), |one| one.name.clone()),
        home: BytePath::from(home),
    }
}

/// Tells as whom commands act: the workspace's owner where root calls, else the caller.
pub(super) fn owner(caller: &Person, workspace_uid: u32, accounts: &[Account]) -> Person {
    if caller.identity.uid != 0 || workspace_uid == 0 {
        return caller.clone();
    }
    let account = accounts.iter().find(|one| one.uid == workspace_uid);
    let name = account.map_or_else(|| workspace_uid.to_string(), |one| one.name.clone());
    let gid = account.map_or(workspace_uid, |one| one.gid);
    Person {
        identity: Identity {
            uid: workspace_uid,
            gid,
            groups: groups_of(&name),
        },
        home: account.map_or_else(
            || BytePath::from("/"),
            |one| BytePath::from(one.home.as_path()),
        ),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_and_broken_lines_passed_over() {
        let found = parse_accounts(b"root:x:0:0:root:/root:/bin/sh\nbroken\nu:x:7:8::/home/u:\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].name, "u");
        assert_eq!((found[1].uid, found[1].gid), (7, 8));
        assert_eq!(found[1].home, Path::new("/home/u"));
    }

    #[test]
    fn only_root_acts_as_somebody_else() {
        let person = |uid| Person {
            identity: Identity {
                uid,
                gid: uid,
                groups: Vec::new(),
            },
            name: "n".to_owned(),
            home: BytePath::from("/h"),
        };
        assert_eq!(owner(&person(5), 6, &[]), person(5));
        assert_eq!(owner(&person(0), 0, &[]), person(0));
        assert_eq!(owner(&person(0), 6, &[]).identity.uid, 6);
    }
}
