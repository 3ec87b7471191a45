//! The kernel's lists of TCP sockets, read for what listens.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// Bytes of one list that are read at most: what is guarded decides how long it is.
const MOST_BYTES: usize = 4 * 1024 * 1024;
const CHUNK: usize = 32 * 1024;
/// How the kernel writes the state of a socket that listens.
const LISTENS: &str = "0A";

/// Ports on which something listens, with the addresses at which it does.
pub(super) type Listening = BTreeMap<u16, BTreeSet<IpAddr>>;

/// The lists of one network.
#[derive(Debug)]
pub(super) struct Tables {
    files: Vec<OwnedFd>,
}

impl Tables {
    pub(super) const fn new(files: Vec<OwnedFd>) -> Self {
        Self { files }
    }

    /// Reads what listens now, but for sockets with the inodes that `own` gives, which is asked
    /// after the lists were read: what they hold is known by then.
    pub(super) fn read(&self, own: impl FnOnce() -> BTreeSet<u64>) -> io::Result<Listening> {
        let texts = self
            .files
            .iter()
            .map(whole)
            .collect::<io::Result<Vec<_>>>()?;
        let own = own();
        let mut found = Listening::new();
        for text in texts {
            for line in String::from_utf8_lossy(&text).lines().skip(1) {
                if let Some((address, port, inode)) = listener(line)
                    && !own.contains(&inode)
                {
                    found.entry(port).or_default().insert(address);
                }
            }
        }
        Ok(found)
    }
}

fn whole(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = vec![0; CHUNK];
    while text.len() < MOST_BYTES {
        match rustix::io::pread(file, &mut *buffer, text.len() as u64) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(text)
}

/// Reads one line: where it listens, and which socket it is.
fn listener(line: &str) -> Option<(IpAddr, u16, u64)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = words.next()?;
    let state = words.nth(1)?;
    if state != LISTENS {
        return None;
    }
    let inode = words.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    Some((
        address_of(address)?,
        u16::from_str_radix(port, 16).ok()?,
        inode,
    ))
}

/// Reads an address: words of four bytes, each written as this machine reads a number.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(text)?).into());
    }
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, place) in bytes.chunks_exact_mut(4).enumerate() {
        place.copy_from_slice(&word(text.get(index * 8..index * 8 + 8)?)?);
    }
    Some(Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_listeners_are_found_in_the_lists_of_the_kernel() {
        let four = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let six = std::net::TcpListener::bind("[::1]:0").ok();
        let open = |name: &str| std::fs::File::open(name).map(OwnedFd::from);
        let mut files = vec![open("/proc/self/net/tcp").expect("a list")];
        files.extend(open("/proc/self/net/tcp6"));
        let inode = rustix::fs::fstat(&four).expect("a socket").st_ino;
        let port = four.local_addr().expect("bound").port();
        let found = Tables::new(files);
        let listening = found.read(BTreeSet::new).expect("readable");
        assert!(listening[&port].contains(&IpAddr::from(Ipv4Addr::LOCALHOST)));
        if let Some(six) = six {
            let port = six.local_addr().expect("bound").port();
            assert!(listening[&port].contains(&IpAddr::from(Ipv6Addr::LOCALHOST)));
        }
        // Read again, and without what is our own.
        let own = BTreeSet::from([inode]);
        assert!(!found.read(|| own).expect("readable").contains_key(&port));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for line in [
            "",
            "0:",
            "0: x y 0A",
            "0: 0100007F:1F90 00000000:0000 01 0:0 0:0 0 0 0 7",
        ] {
            assert_eq!(listener(line), None, "{line}");
        }
    }
}
