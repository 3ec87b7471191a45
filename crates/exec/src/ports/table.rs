//! What listens in a network, as the kernel tells it.
//!
//! By netlink it is asked for what listens alone. The files below `/proc/net` say the same, but the
//! kernel makes them by walking every socket of the machine, which takes milliseconds; they are for
//! a kernel that does not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags};

use crate::backend::InnerNetwork;

/// Bytes of one list that are read at most: what is guarded decides how long it is.
const MOST_BYTES: usize = 4 * 1024 * 1024;
const CHUNK: usize = 32 * 1024;
/// How the kernel writes the state of a socket that listens.
const LISTENS: &str = "0A";

/// Ports on which something listens, with the addresses at which it does.
pub(super) type Listening = BTreeMap<u16, BTreeSet<IpAddr>>;

/// The lists of one network.
#[derive(Debug)]
pub(super) enum Tables {
    Netlink(Diagnosis),
    Files(Vec<OwnedFd>),
}

impl Tables {
    /// Opens them, in the way that works here.
    pub(super) fn open(network: &dyn InnerNetwork) -> io::Result<Self> {
        let by_netlink = network.open_socket_tables(true).and_then(|made| {
            let socket = made.into_iter().next();
            let socket = socket.ok_or(io::ErrorKind::InvalidData)?;
            let mut diagnosis = Diagnosis { socket, asked: 0 };
            diagnosis.listeners(&mut |_, _, _| {})?;
            Ok(diagnosis)
        });
        match by_netlink {
            Ok(diagnosis) => Ok(Self::Netlink(diagnosis)),
            Err(_) => Ok(Self::Files(network.open_socket_tables(false)?)),
        }
    }

    /// Reads what listens now, but for sockets with the inodes that `own` gives, which is asked
    /// after the lists were read: what they hold is known by then.
    pub(super) fn read(&mut self, own: impl FnOnce() -> BTreeSet<u64>) -> io::Result<Listening> {
        let mut all = Vec::new();
        match self {
            Self::Netlink(diagnosis) => {
                diagnosis
                    .listeners(&mut |address, port, inode| all.push((address, port, inode)))?;
            }
            Self::Files(files) => {
                for file in files {
                    let text = whole(file)?;
                    let text = String::from_utf8_lossy(&text);
                    all.extend(text.lines().skip(1).filter_map(listener));
                }
            }
        }
        let own = own();
        let mut found = Listening::new();
        for (address, port, inode) in all {
            if !own.contains(&inode) {
                found.entry(port).or_default().insert(address);
            }
        }
        Ok(found)
    }
}

/// `TCP_LISTEN` as a bit of a mask of states.
const LISTENS_BIT: u32 = 1 << 10;
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH`: all there are.
const DUMP: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Bytes before what a message holds: length, kind, flags, number, port.
const HEAD: usize = 16;
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;

/// A socket of `NETLINK_SOCK_DIAG` within a network.
#[derive(Debug)]
pub(super) struct Diagnosis {
    socket: OwnedFd,
    /// The number of the last question: answers to an older one are passed over.
    asked: u32,
}

impl Diagnosis {
    fn listeners(&mut self, found: &mut dyn FnMut(IpAddr, u16, u64)) -> io::Result<()> {
        for family in FAMILIES {
            self.asked = self.asked.wrapping_add(1);
            let mut question = Vec::with_capacity(HEAD + 56);
            question.extend_from_slice(&(HEAD as u32 + 56).to_ne_bytes());
            question.extend_from_slice(&BY_FAMILY.to_ne_bytes());
            question.extend_from_slice(&DUMP.to_ne_bytes());
            question.extend_from_slice(&self.asked.to_ne_bytes());
            question.extend_from_slice(&[0; 4]);
            question.extend_from_slice(&[family, TCP, 0, 0]);
            question.extend_from_slice(&LISTENS_BIT.to_ne_bytes());
            // No single socket is asked for.
            question.extend_from_slice(&[0; 48]);
            rustix::net::send(&self.socket, &question, SendFlags::empty())?;
            self.answers(found)?;
        }
        Ok(())
    }

    /// Reads answers to their end. A dump is made while it is read, so nothing is waited for.
    fn answers(&self, found: &mut dyn FnMut(IpAddr, u16, u64)) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        let mut read = 0;
        while read < MOST_BYTES {
            let (length, _) =
                rustix::net::recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            read += length;
            let mut rest = &buffer[..length];
            while let Some((kind, number, body, next)) = message(rest) {
                rest = next;
                if number != self.asked {
                    continue;
                }
                match kind {
                    DONE => return Ok(()),
                    ERROR => return Err(io::ErrorKind::Unsupported.into()),
                    _ => {
                        if let Some((address, port, inode)) = diagnosed(body) {
                            found(address, port, inode);
                        }
                    }
                }
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Splits the first message off: its kind, its number, what it holds, and the rest.
fn message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let number = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    let body = bytes.get(HEAD..length)?;
    let next = length.next_multiple_of(4).min(bytes.len());
    Some((kind, number, body, &bytes[next..]))
}

/// Reads `inet_diag_msg`: where it listens, and which socket it is.
fn diagnosed(body: &[u8]) -> Option<(IpAddr, u16, u64)> {
    let port = u16::from_be_bytes(body.get(4..6)?.try_into().ok()?);
    let inode = u32::from_ne_bytes(body.get(68..72)?.try_into().ok()?);
    let address = match body.first()? {
        2 => IpAddr::V4(<[u8; 4]>::try_from(body.get(8..12)?).ok()?.into()),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(body.get(8..24)?).ok()?).to_canonical(),
    };
    Some((address, port, inode.into()))
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
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

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
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(rustix::net::netlink::SOCK_DIAG),
        )
        .expect("a socket");
        let diagnosis = Diagnosis { socket, asked: 0 };
        for mut found in [Tables::Files(files), Tables::Netlink(diagnosis)] {
            let listening = found.read(BTreeSet::new).expect("readable");
            assert!(listening[&port].contains(&IpAddr::from(Ipv4Addr::LOCALHOST)));
            if let Some(six) = &six {
                let port = six.local_addr().expect("bound").port();
                assert!(listening[&port].contains(&IpAddr::from(Ipv6Addr::LOCALHOST)));
            }
            // Read again, and without what is our own.
            let own = BTreeSet::from([inode]);
            assert!(!found.read(|| own).expect("readable").contains_key(&port));
        }
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
