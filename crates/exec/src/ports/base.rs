//! Ports that one task has to itself, outside: so that tasks side by side do not clash.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use cofferdam_core::ports::PORTS_PER_TASK;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The first port that is given away.
const FIRST: u16 = 20_000;
/// Blocks of ports: they end below those that the kernel gives to outgoing connections.
const BLOCKS: u16 = 1_200;

/// A block of ports that nobody else has as long as this lives.
///
/// It is held by an abstract socket of this host's network: whatever plane of whatever user gives
/// ports away sees it, and it goes with its process.
#[derive(Debug)]
pub struct PortBase {
    first: u16,
    _held: OwnedFd,
}

impl PortBase {
    /// Takes a block: always the same one for a name, if it is free.
    pub fn take(name: &str) -> Option<Self> {
        // FNV-1a: any even spread does, the same in every process.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let start = (hash % u64::from(BLOCKS)) as u16;
        (0..BLOCKS).find_map(|step| {
            let block = (start + step) % BLOCKS;
            let first = FIRST + block * PORTS_PER_TASK;
            let held = hold(first)?;
            is_free(first).then_some(Self { first, _held: held })
        })
    }

    /// Gives the first port of the block.
    pub const fn first(&self) -> u16 {
        self.first
    }
}

fn hold(first: u16) -> Option<OwnedFd> {
    let held = || {
        let name = format!("cofferdam-ports-{first}");
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::bind(&socket, &address)?;
        Ok::<_, Errno>(socket)
    };
    held().ok()
}

/// Tells whether nothing listens on any port of a block.
fn is_free(first: u16) -> bool {
    (first..first + PORTS_PER_TASK).all(|port| {
        let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let six = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        // A machine without IPv6 has nothing in the way there.
        let taken = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
        TcpListener::bind(four).is_ok() && !TcpListener::bind(six).is_err_and(taken)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b12_a_block_is_stable_and_nobody_elses() {
        let name = format!("task-of-{}", std::process::id());
        let one = PortBase::take(&name).expect("a block");
        let first = one.first();
        let other = PortBase::take(&name).expect("another block");
        assert_ne!(other.first(), first);
        drop((one, other));
        let again = PortBase::take(&name).expect("the block again");
        assert_eq!(again.first(), first);
        // A port that somebody took makes the block no good.
        drop(again);
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 3)).expect("a listener");
        assert_ne!(PortBase::take(&name).expect("another").first(), first);
    }

    #[test]
    fn a_hundred_blocks_do_not_overlap() {
        let all: Vec<_> = (0..100)
            .map(|number| PortBase::take(&format!("{}-{number}", std::process::id())))
            .map(|one| one.expect("a block"))
            .collect();
        let firsts: std::collections::BTreeSet<u16> = all.iter().map(PortBase::first).collect();
        assert_eq!(firsts.len(), 100);
        assert!(
            firsts
                .iter()
                .all(|first| (first - FIRST).is_multiple_of(PORTS_PER_TASK))
        );
        assert!(
            firsts
                .iter()
                .all(|first| *first >= FIRST && *first < 32_000)
        );
    }
}
