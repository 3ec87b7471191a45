//! SOCKS5 as clients speak it: no password, `CONNECT` only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cofferdam_core::hosts::{Host, HostError, HostPort};

/// The version byte that every message begins with.
pub(crate) const VERSION: u8 = 5;

/// Says why a message is refused, each with the reply that the client gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// It is not SOCKS5.
    #[error("the message is not SOCKS5")]
    Malformed,
    /// It asks for something else than a connection.
    #[error("only CONNECT is served, not command {command}")]
    Command {
        /// The number of the command.
        command: u8,
    },
    /// It names its host in a form that there is not.
    #[error("there is no form of address {form}")]
    AddressForm {
        /// The number of the form.
        form: u8,
    },
    /// What stands for its host is none.
    #[error("{source}")]
    Host {
        /// What stands there.
        text: Vec<u8>,
        /// Why it is none.
        source: HostError,
    },
}

impl SocksError {
    /// Gives the code of the reply.
    pub const fn reply(&self) -> u8 {
        match self {
            Self::Malformed => 0x01,
            Self::Host { .. } => 0x02,
            Self::Command { .. } => 0x07,
            Self::AddressForm { .. } => 0x08,
        }
    }
}

/// The client's first message: how it can identify itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocksGreeting {
    /// Whether it can do without.
    pub offers_no_authentication: bool,
    /// Its length in bytes.
    pub length: usize,
}

impl SocksGreeting {
    /// Reads a greeting; `None` means that more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, SocksError> {
        match bytes {
            [] | [VERSION] => Ok(None),
            [VERSION, 0, ..] => Err(SocksError::Malformed),
            [VERSION, count, methods @ ..] => {
                let count = usize::from(*count);
                Ok(methods.get(..count).map(|methods| Self {
                    offers_no_authentication: methods.contains(&0),
                    length: 2 + count,
                }))
            }
            _ => Err(SocksError::Malformed),
        }
    }
}

/// The target of a request.
pub type SocksTarget = HostPort;

/// The client's second message: where it wants to be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocksRequest {
    /// The host and port.
    pub target: SocksTarget,
    /// Its length in bytes; what follows is the tunnel's.
    pub length: usize,
}

impl SocksRequest {
    /// Reads a request; `None` means that more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, SocksError> {
        let [version, command, reserved, form, rest @ ..] = bytes else {
            return match bytes.first() {
                Some(version) if *version != VERSION => Err(SocksError::Malformed),
                _ => Ok(None),
            };
        };
        if (*version, *reserved) != (VERSION, 0) {
            return Err(SocksError::Malformed);
        }
        if *command != 1 {
            return Err(SocksError::Command { command: *command });
        }
        let (start, length) = match (*form, rest.first()) {
            (1, _) => (0, 4),
            (4, _) => (0, 16),
            (3, Some(length)) => (1, usize::from(*length)),
            (3, None) => return Ok(None),
            (form, _) => return Err(SocksError::AddressForm { form }),
        };
        let Some(address) = rest.get(start..start + length) else {
            return Ok(None);
        };
        let Some([high, low]) = rest.get(start + length..start + length + 2) else {
            return Ok(None);
        };
        let no_host = |source| SocksError::Host {
            text: address.to_vec(),
            source,
        };
        let host = if *form == 3 {
            Host::parse(address).map_err(no_host)?
        } else if let Ok(octets) = <[u8; 4]>::try_from(address) {
            Host::from_address(IpAddr::V4(Ipv4Addr::from(octets)))
        } else if let Ok(octets) = <[u8; 16]>::try_from(address) {
            Host::from_address(IpAddr::V6(Ipv6Addr::from(octets)))
        } else {
            return Err(SocksError::Malformed);
        };
        let port = u16::from_be_bytes([*high, *low]);
        if port == 0 {
            return Err(no_host(HostError::InvalidPort));
        }
        Ok(Some(Self {
            target: HostPort { host, port },
            length: 4 + start + length + 2,
        }))
    }
}

/// Writes a reply; the bound address is always told as nothing, it is none of the client's business.
pub(crate) const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_name(name: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, name.len() as u8];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn the_three_forms_are_read_and_parts_ask_for_more() {
        let v4 = [5, 1, 0, 1, 127, 0, 0, 1, 0, 80].to_vec();
        let mut v6 = vec![5, 1, 0, 4];
        v6.extend_from_slice(&"::ffff:10.0.0.1".parse::<Ipv6Addr>().expect("v6").octets());
        v6.extend_from_slice(&[1, 187]);
        for (bytes, target) in [
            (v4, "127.0.0.1:80"),
            (v6, "10.0.0.1:443"),
            (by_name(b"A.test.", 443), "a.test:443"),
            (by_name(b"127.0.0.1", 1), "127.0.0.1:1"),
        ] {
            let request = SocksRequest::parse(&bytes)
                .expect("a request")
                .expect("whole");
            assert_eq!(request.target.to_string(), target);
            assert_eq!(request.length, bytes.len());
            for end in 0..bytes.len() {
                assert_eq!(
                    SocksRequest::parse(&bytes[..end]),
                    Ok(None),
                    "{target} {end}"
                );
            }
        }
    }

    #[test]
    fn fc_48_names_with_control_bytes_are_refused_by_rule() {
        for name in [
            b"evil.test\0.good.test".as_slice(),
            b"a\r\n.test",
            b"",
            b"a b",
            b"*.test",
        ] {
            let error = SocksRequest::parse(&by_name(name, 443)).expect_err("no host");
            assert_eq!(error.reply(), 0x02, "{name:?}");
        }
        let error = SocksRequest::parse(&by_name(b"a.test", 0)).expect_err("no port");
        assert_eq!(error.reply(), 0x02);
    }

    #[test]
    fn only_connect_is_served() {
        for (command, reply) in [(2, 0x07), (3, 0x07), (0, 0x07), (0xf0, 0x07)] {
            let error =
                SocksRequest::parse(&[5, command, 0, 1, 1, 1, 1, 1, 0, 80]).expect_err("no");
            assert_eq!(error.reply(), reply);
        }
        assert_eq!(
            SocksRequest::parse(&[5, 1, 0, 2, 0])
                .expect_err("no form")
                .reply(),
            0x08
        );
    }

    #[test]
    fn a_greeting_offers_what_it_offers() {
        assert_eq!(SocksGreeting::parse(&[5, 2, 0]), Ok(None));
        let both = SocksGreeting::parse(&[5, 2, 2, 0, 9])
            .expect("one")
            .expect("whole");
        assert!(both.offers_no_authentication);
        assert_eq!(both.length, 4);
        let password = SocksGreeting::parse(&[5, 1, 2])
            .expect("one")
            .expect("whole");
        assert!(!password.offers_no_authentication);
        assert_eq!(SocksGreeting::parse(&[4, 1]), Err(SocksError::Malformed));
        assert_eq!(SocksGreeting::parse(&[5, 0]), Err(SocksError::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            name in proptest::collection::vec(any::<u8>(), 0..255),
        ) {
            let _ = SocksGreeting::parse(&bytes);
            let _ = SocksRequest::parse(&bytes);
            if let Ok(Some(request)) = SocksRequest::parse(&by_name(&name, 443)) {
                prop_assert!(!name.iter().any(u8::is_ascii_control));
                prop_assert_eq!(Ok(request.target.host), Host::parse(&name));
            }
        }
    }
}
