//! Which program stands behind a connection, as well as it can be found out.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Names the program at the other end of a connection to the proxy's port inside.
///
/// The tables of other network namespaces are read through the processes in them. Where two
/// enclosures use the same port at the same moment the answer may be the other's: it is shown to a
/// person and decides nothing.
pub(super) fn of_client(client: SocketAddr, proxy_port: u16) -> Option<String> {
    let IpAddr::V4(address) = client.ip() else {
        return None;
    };
    let from = format!(
        "{:08X}:{:04X}",
        u32::from_le_bytes(address.octets()),
        client.port()
    );
    let to = format!("0100007F:{proxy_port:04X}");
    let own = namespace(Path::new("/proc/self"));
    let mut looked_at: Vec<(OsString, Option<String>)> = Vec::new();
    for process in processes() {
        let Some(space) = namespace(&process) else {
            continue;
        };
        if Some(&space) == own.as_ref() {
            continue;
        }
        let known = looked_at.iter().find(|(one, _)| *one == space);
        let inode = if let Some((_, inode)) = known {
            inode.clone()
        } else {
            let inode = inode_of(&process, &from, &to);
            looked_at.push((space, inode.clone()));
            inode
        };
        if let Some(inode) = inode
            && holds(&process, &inode)
        {
            return name(&process);
        }
    }
    None
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    })
}

fn namespace(process: &Path) -> Option<OsString> {
    std::fs::read_link(process.join("ns/net"))
        .ok()
        .map(PathBuf::into_os_string)
}

/// Finds the socket of a connection in the table of a namespace.
fn inode_of(process: &Path, from: &str, to: &str) -> Option<String> {
    let table = std::fs::read_to_string(process.join("net/tcp")).ok()?;
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let found = words.nth(1) == Some(from) && words.next() == Some(to);
        found.then(|| words.nth(6).map(str::to_owned)).flatten()
    })
}

fn holds(process: &Path, inode: &str) -> bool {
    let wanted = format!("socket:[{inode}]");
    std::fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| target.as_os_str() == wanted.as_str())
}

fn name(process: &Path) -> Option<String> {
    let text = std::fs::read_to_string(process.join("comm")).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
