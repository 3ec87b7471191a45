//! A host as a client or a rule writes it, parsed once.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The longest name there is, in bytes, without the trailing dot.
const MAX_NAME: usize = 253;
/// The longest label there is, in bytes.
const MAX_LABEL: usize = 63;

/// Says why bytes are no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is nothing.
    #[error("the host is empty")]
    Empty,
    /// A control byte, a NUL or a blank.
    #[error("the host has the control byte 0x{byte:02x} in it")]
    ControlByte {
        /// The byte.
        byte: u8,
    },
    /// A byte outside ASCII.
    #[error("the host has letters outside ASCII")]
    NotAscii,
    /// A letter that no name has.
    #[error("the host has the letter {letter:?} in it")]
    InvalidLetter {
        /// The letter.
        letter: char,
    },
    /// An empty label, one that is too long, or one that begins or ends with a hyphen.
    #[error("the host has an invalid label in it")]
    InvalidLabel,
    /// More bytes than a name can have.
    #[error("the host is {length} bytes long, a name has at most 253")]
    TooLong {
        /// How long it is, in bytes.
        length: usize,
    },
    /// A number that resolvers take for an address and that is not written as four parts.
    #[error("the host is neither a name nor an address written in full")]
    AmbiguousAddress,
    /// Square brackets around something else than an IPv6 address.
    #[error("the brackets hold no IPv6 address")]
    InvalidAddress,
    /// An IPv6 address without its brackets.
    #[error("an IPv6 address stands in square brackets")]
    BracketsMissing,
    /// The port is not a number from 1 to 65535.
    #[error("the port is no number from 1 to 65535")]
    InvalidPort,
    /// There is no port where one must stand.
    #[error("the port is missing")]
    PortMissing,
}

impl HostError {
    /// Gives the stable word for this failure.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Empty => "host_empty",
            Self::ControlByte { .. } => "host_control_byte",
            Self::NotAscii => "host_not_ascii",
            Self::InvalidLetter { .. } => "host_invalid_letter",
            Self::InvalidLabel => "host_invalid_label",
            Self::TooLong { .. } => "host_too_long",
            Self::AmbiguousAddress => "host_ambiguous_address",
            Self::InvalidAddress => "host_invalid_address",
            Self::BracketsMissing => "host_brackets_missing",
            Self::InvalidPort => "host_invalid_port",
            Self::PortMissing => "host_port_missing",
        }
    }

    /// Says what to write instead, where there is something to say.
    pub const fn hint(self) -> Option<&'static str> {
        match self {
            Self::NotAscii => Some("write the name in its ASCII form, xn--…"),
            Self::AmbiguousAddress => {
                Some("write an IPv4 address as four decimal numbers: 192.0.2.1")
            }
            Self::BracketsMissing => Some("write [2001:db8::1] or [2001:db8::1]:443"),
            _ => None,
        }
    }
}

/// Holds a name: lowercase ASCII labels without the trailing dot, never something that a resolver
/// would read as an address.
///
/// A label is 1–63 letters, digits, hyphens or underscores and neither begins nor ends with a hyphen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// Parses a name; one trailing dot is dropped.
    pub fn parse(bytes: &[u8]) -> Result<Self, HostError> {
        let text = text_of(bytes)?;
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(if bytes.is_empty() {
                HostError::Empty
            } else {
                HostError::InvalidLabel
            });
        }
        if text.len() > MAX_NAME {
            return Err(HostError::TooLong { length: text.len() });
        }
        for label in text.split('.') {
            check_label(label)?;
        }
        // Resolvers read `127.1`, `0x7f000001` and `2130706433` as addresses. A name whose last
        // label is a number is therefore none, as in the URL standard.
        if text.rsplit('.').next().is_some_and(is_number) {
            return Err(HostError::AmbiguousAddress);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// Lends the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether `self` lies below `top`, by whole labels; a name does not lie below itself.
    pub fn is_below(&self, top: &Self) -> bool {
        self.0
            .strip_suffix(top.as_str())
            .is_some_and(|front| front.len() > 1 && front.ends_with('.'))
    }

    /// Tells whether the name means the machine itself by convention: `localhost` and what lies
    /// below it.
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Holds a host: a name or an address.
///
/// An IPv4 address in its IPv6-mapped form is the IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name that has to be resolved.
    Name(HostName),
    /// An address that was written as such.
    Address(IpAddr),
}

impl Host {
    /// Parses a host without a port: a name, four decimal numbers, or an IPv6 address in brackets.
    ///
    /// ```
    /// use cofferdam_core::hosts::Host;
    ///
    /// assert_eq!(Host::parse(b"Example.COM.").unwrap().to_string(), "example.com");
    /// assert_eq!(Host::parse(b"[::FFFF:7f00:1]").unwrap().to_string(), "127.0.0.1");
    /// assert!(Host::parse(b"evil.test\0.good.test").is_err());
    /// assert!(Host::parse(b"0x7f.1").is_err());
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self, HostError> {
        let text = text_of(bytes)?;
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(HostError::InvalidAddress)?;
            let address = Ipv6Addr::from_str(inner).map_err(|_| HostError::InvalidAddress)?;
            return Ok(Self::from_address(address.into()));
        }
        if text.contains(':') {
            return Err(HostError::BracketsMissing);
        }
        // The standard parser takes four decimal numbers and nothing else: no octal, no hex.
        let plain = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = Ipv4Addr::from_str(plain) {
            return Ok(Self::Address(address.into()));
        }
        HostName::parse(bytes).map(Self::Name)
    }

    /// Takes an address, an IPv6-mapped one as the IPv4 address that it holds.
    pub fn from_address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Gives the address, where it is one.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Address(address) => Some(*address),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(formatter),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// A host and a port, written `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

impl HostPort {
    /// Parses `host:port`; without a port it has `default`, and is refused where there is none.
    pub fn parse(bytes: &[u8], default: Option<u16>) -> Result<Self, HostError> {
        let (host, port) = split_port(bytes)?;
        let port = match (port, default) {
            (Some(port), _) => parse_port(port).ok_or(HostError::InvalidPort)?,
            (None, Some(port)) => port,
            (None, None) => return Err(HostError::PortMissing),
        };
        Ok(Self {
            host: Host::parse(host)?,
            port,
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// Splits what stands before the port from the port; a colon within brackets does not count.
pub(super) fn split_port(bytes: &[u8]) -> Result<(&[u8], Option<&[u8]>), HostError> {
    let from = match bytes.first() {
        Some(b'[') => bytes
            .iter()
            .position(|byte| *byte == b']')
            .ok_or(HostError::InvalidAddress)?,
        _ => 0,
    };
    let colon = bytes.iter().skip(from).position(|byte| *byte == b':');
    let Some(colon) = colon.map(|found| found + from) else {
        return Ok((bytes, None));
    };
    let port = &bytes[colon + 1..];
    if port.contains(&b':') {
        return Err(HostError::BracketsMissing);
    }
    Ok((&bytes[..colon], Some(port)))
}

/// Reads a port of 1–65535 in plain decimal digits.
pub(super) fn parse_port(bytes: &[u8]) -> Option<u16> {
    if bytes.is_empty() || bytes.len() > 5 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = bytes
        .iter()
        .fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    u16::try_from(number).ok().filter(|port| *port != 0)
}

fn text_of(bytes: &[u8]) -> Result<&str, HostError> {
    if let Some(byte) = bytes
        .iter()
        .find(|byte| byte.is_ascii_control() || **byte == b' ')
    {
        return Err(HostError::ControlByte { byte: *byte });
    }
    if !bytes.is_ascii() {
        return Err(HostError::NotAscii);
    }
    if bytes.is_empty() {
        return Err(HostError::Empty);
    }
    std::str::from_utf8(bytes).map_err(|_| HostError::NotAscii)
}

fn check_label(label: &str) -> Result<(), HostError> {
    if let Some(letter) = label
        .chars()
        .find(|letter| !letter.is_ascii_alphanumeric() && !matches!(letter, '-' | '_'))
    {
        return Err(HostError::InvalidLetter { letter });
    }
    if label.is_empty() || label.len() > MAX_LABEL || label.starts_with('-') || label.ends_with('-')
    {
        return Err(HostError::InvalidLabel);
    }
    Ok(())
}

/// Tells whether a resolver could read the label as a number: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hexadecimal = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> Result<String, HostError> {
        Host::parse(text.as_bytes()).map(|host| host.to_string())
    }

    #[test]
    fn a_host_has_one_spelling() {
        assert_eq!(host("Example.COM"), Ok("example.com".into()));
        assert_eq!(host("example.com."), Ok("example.com".into()));
        assert_eq!(host("my_host.internal"), Ok("my_host.internal".into()));
        assert_eq!(
            host("xn--bcher-kva.example"),
            Ok("xn--bcher-kva.example".into())
        );
        assert_eq!(host("192.0.2.7"), Ok("192.0.2.7".into()));
        assert_eq!(host("192.0.2.7."), Ok("192.0.2.7".into()));
        assert_eq!(host("[2001:DB8:0::1]"), Ok("[2001:db8::1]".into()));
        assert_eq!(host("[::ffff:10.0.0.1]"), Ok("10.0.0.1".into()));
    }

    #[test]
    fn fc_48_what_a_resolver_would_read_otherwise_is_no_host() {
        assert_eq!(
            Host::parse(b"evil.test\0.good.test"),
            Err(HostError::ControlByte { byte: 0 })
        );
        for (text, error) in [
            ("", HostError::Empty),
            (".", HostError::InvalidLabel),
            ("a..b", HostError::InvalidLabel),
            ("a.b..", HostError::InvalidLabel),
            (".a", HostError::InvalidLabel),
            ("-a.b", HostError::InvalidLabel),
            ("a b", HostError::ControlByte { byte: b' ' }),
            ("a\r\nb", HostError::ControlByte { byte: b'\r' }),
            ("b\u{fc}cher.example", HostError::NotAscii),
            ("good.test%2eevil", HostError::InvalidLetter { letter: '%' }),
            ("user@good.test", HostError::InvalidLetter { letter: '@' }),
            ("good.test/x", HostError::InvalidLetter { letter: '/' }),
            ("*.good.test", HostError::InvalidLetter { letter: '*' }),
            ("127.1", HostError::AmbiguousAddress),
            ("2130706433", HostError::AmbiguousAddress),
            ("0x7f000001", HostError::AmbiguousAddress),
            ("0177.0.0.1", HostError::AmbiguousAddress),
            ("1.2.3.4.5", HostError::AmbiguousAddress),
            ("256.0.0.1", HostError::AmbiguousAddress),
            ("a.0x", HostError::AmbiguousAddress),
            ("::1", HostError::BracketsMissing),
            ("[::1", HostError::InvalidAddress),
            ("[fe80::1%eth0]", HostError::InvalidAddress),
            ("[127.0.0.1]", HostError::InvalidAddress),
        ] {
            assert_eq!(Host::parse(text.as_bytes()), Err(error), "{text:?}");
        }
        let long = format!("{}.example", "a".repeat(64));
        assert_eq!(Host::parse(long.as_bytes()), Err(HostError::InvalidLabel));
        let long = vec!["abcdefg"; 40].join(".");
        assert!(matches!(
            Host::parse(long.as_bytes()),
            Err(HostError::TooLong { .. })
        ));
    }

    #[test]
    fn ports_are_plain_numbers() {
        let parse = |text: &str| HostPort::parse(text.as_bytes(), None).map(|it| it.to_string());
        assert_eq!(parse("A.test:443"), Ok("a.test:443".into()));
        assert_eq!(parse("[::1]:80"), Ok("[::1]:80".into()));
        assert_eq!(parse("a.test"), Err(HostError::PortMissing));
        for text in [
            "a.test:",
            "a.test:0",
            "a.test:65536",
            "a.test:+80",
            "a.test:8a",
            "a:000080",
        ] {
            assert_eq!(parse(text), Err(HostError::InvalidPort), "{text}");
        }
        assert_eq!(parse("a.test:80:80"), Err(HostError::BracketsMissing));
        assert_eq!(parse("::1:80"), Err(HostError::BracketsMissing));
        assert_eq!(parse("[::1]x:80"), Err(HostError::InvalidAddress));
    }

    #[test]
    fn below_is_by_whole_labels() {
        let name = |text: &str| HostName::parse(text.as_bytes()).expect("a name");
        assert!(name("a.good.test").is_below(&name("good.test")));
        assert!(name("a.b.good.test").is_below(&name("good.test")));
        assert!(!name("good.test").is_below(&name("good.test")));
        assert!(!name("evilgood.test").is_below(&name("good.test")));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(host) = Host::parse(&bytes) {
                let written = host.to_string();
                prop_assert!(written.is_ascii());
                prop_assert!(!written.bytes().any(|byte| byte.is_ascii_control()));
                prop_assert_eq!(Host::parse(written.as_bytes()), Ok(host));
            }
            let _ = HostPort::parse(&bytes, None);
        }

        #[test]
        fn likely_text_parses_or_is_refused(text in "[a-zA-Z0-9.:*\\[\\]%@x_-]{0,40}") {
            if let Ok(Host::Name(name)) = Host::parse(text.as_bytes()) {
                prop_assert!(name.as_str().parse::<IpAddr>().is_err());
            }
        }
    }
}
