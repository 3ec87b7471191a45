//! Secrets that hosts are told in the place of placeholders.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_core::hosts::{AddressClass, Host, HostPattern, HostPort, HostRule, split_query};
use cofferdam_core::mask::{Masker, secret_forms};
use cofferdam_core::policy::placeholder;
use secrecy::{ExposeSecret, SecretString};

use crate::inspect::InspectedHead;

const AUTHORIZATION: &str = "authorization";

/// Where in a request a secret stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// In `Authorization`, behind a word.
    Bearer,
    /// In `Authorization`, as the password of `Basic`.
    Basic {
        /// The user's name, where the secret is put in although nothing stands there.
        username: String,
    },
    /// In a header.
    Header {
        /// Its name.
        name: String,
    },
    /// In a parameter of the query.
    Query {
        /// Its name.
        name: String,
    },
}

/// Says why a value cannot be lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It is shorter than what can be masked where it shows.
    #[error("it has less than 8 bytes, and could not be masked where it shows")]
    TooShort,
    /// It has bytes that no request can hold.
    #[error("it has bytes in it that no header can hold")]
    Unwritable,
}

/// The shortest value that is lent.
const SHORTEST: usize = 8;

/// The value of a secret. It shows nowhere, and is wiped from memory with its last holder.
#[derive(Clone)]
pub struct SecretValue(Arc<SecretString>);

impl SecretValue {
    /// Takes a value, without the line's end behind it.
    ///
    /// # Errors
    ///
    /// [`SecretError`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        let text = std::str::from_utf8(bytes).map_err(|_| SecretError::Unwritable)?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.len() < SHORTEST {
            return Err(SecretError::TooShort);
        }
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || text.trim() != text {
            return Err(SecretError::Unwritable);
        }
        Ok(Self(Arc::new(SecretString::from(text))))
    }

    /// Gives the value in every spelling that it is known by, for masking.
    pub fn forms(&self) -> Vec<Vec<u8>> {
        secret_forms(self.0.expose_secret().as_bytes())
    }

    fn text(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretValue")
    }
}

impl PartialEq for SecretValue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text() == other.text()
    }
}

impl Eq for SecretValue {}

/// A secret with the hosts that are told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Its name, of which the placeholder is made.
    pub name: String,
    /// The hosts.
    pub hosts: Vec<HostRule>,
    /// Where it stands.
    pub place: SecretPlace,
    /// Whether it is put in also where nothing stands in that place.
    pub always: bool,
    /// The value.
    pub value: SecretValue,
}

/// How a request leaves the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Within TLS, to a host that was verified.
    Verified,
    /// As it is.
    Plain,
}

impl Broker {
    pub(crate) fn is_for(&self, target: &HostPort) -> bool {
        self.hosts
            .iter()
            .any(|rule| rule.holds_for(&target.host, target.port))
    }

    /// Tells whether a request may be told the secret on its way: without TLS only to loopback that
    /// is named as such.
    fn may_go(&self, target: &HostPort, transport: Transport) -> bool {
        let rules = self.hosts.iter();
        let mut holding = rules.filter(|rule| rule.holds_for(&target.host, target.port));
        match transport {
            Transport::Verified => holding.next().is_some(),
            Transport::Plain => holding.any(|rule| match &rule.pattern {
                HostPattern::Exact(Host::Name(name)) => name.is_localhost(),
                HostPattern::Exact(Host::Address(address)) => {
                    AddressClass::of(*address) == AddressClass::Loopback
                }
                _ => false,
            }),
        }
    }

    /// Puts the value in its place; tells whether it was.
    fn lend(&self, head: &mut InspectedHead) -> bool {
        let placeholder = placeholder(&self.name);
        let value = self.value.text();
        let mut lent = false;
        match &self.place {
            SecretPlace::Bearer | SecretPlace::Basic { .. } => {
                for field in head.values_mut(AUTHORIZATION) {
                    lent |= replace(field, &placeholder, value);
                    if let Some(mut pair) = basic(field)
                        && replace(&mut pair, &placeholder, value)
                    {
                        *field = format!("Basic {}", STANDARD.encode(&pair)).into_bytes();
                        lent = true;
                    }
                }
                if self.always && !head.has(AUTHORIZATION) {
                    let text = match &self.place {
                        SecretPlace::Basic { username } => {
                            format!("Basic {}", STANDARD.encode(format!("{username}:{value}")))
                        }
                        _ => format!("Bearer {value}"),
                    };
                    head.add("Authorization", text.into_bytes());
                    lent = true;
                }
            }
            SecretPlace::Header { name } => {
                for field in head.values_mut(name) {
                    lent |= replace(field, &placeholder, value);
                }
                if self.always && !head.has(name) {
                    head.add(name, value.as_bytes().to_vec());
                    lent = true;
                }
            }
            SecretPlace::Query { name } => {
                let written = encode(value);
                let (path, query) = split_query(&head.target);
                let mut has = false;
                let parts: Vec<String> = query
                    .into_iter()
                    .flat_map(|query| query.split('&'))
                    .map(|part| match part.split_once('=') {
                        Some((one, old)) if one == name => {
                            has = true;
                            if old == placeholder {
                                lent = true;
                                format!("{name}={written}")
                            } else {
                                part.to_owned()
                            }
                        }
                        _ => part.to_owned(),
                    })
                    .collect();
                let mut target = path.to_owned();
                if query.is_some() {
                    target.push('?');
                    target.push_str(&parts.join("&"));
                }
                if self.always && !has {
                    target.push(if query.is_some() { '&' } else { '?' });
                    let _ = write!(target, "{name}={written}");
                    lent = true;
                }
                head.target = target;
            }
        }
        lent
    }
}

/// Every secret of one policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brokers(Vec<Broker>);

/// What was done to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lent {
    /// These secrets were put in.
    Names(Vec<String>),
    /// It holds the placeholder of a secret that is not for its host.
    Elsewhere(String),
}

impl Brokers {
    /// Takes secrets.
    pub fn new(brokers: impl IntoIterator<Item = Broker>) -> Self {
        Self(brokers.into_iter().collect())
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn are_for(&self, target: &HostPort) -> bool {
        self.0.iter().any(|one| one.is_for(target))
    }

    /// Prepares for masking what a host says that was told secrets.
    pub(crate) fn screen(&self, target: &HostPort) -> Option<Masker> {
        let own: Vec<&Broker> = self.0.iter().filter(|one| one.is_for(target)).collect();
        if own.is_empty() {
            return None;
        }
        let forms = own.iter().flat_map(|one| {
            let mut forms = one.value.forms();
            if let SecretPlace::Basic { username } = &one.place {
                let pair = format!("{username}:{}", one.value.text());
                forms.push(STANDARD.encode(pair).into_bytes());
            }
            forms
        });
        Some(Masker::new(forms))
    }

    /// Puts the secrets of a host in their places.
    pub(crate) fn lend(
        &self,
        head: &mut InspectedHead,
        target: &HostPort,
        transport: Transport,
    ) -> Lent {
        // Looked for before anything is put in: a value is never searched for placeholders.
        let elsewhere = self
            .0
            .iter()
            .filter(|one| !one.may_go(target, transport))
            .find(|one| holds(head, &placeholder(&one.name)));
        if let Some(one) = elsewhere {
            return Lent::Elsewhere(one.name.clone());
        }
        let mut names = Vec::new();
        for one in self.0.iter().filter(|one| one.may_go(target, transport)) {
            if one.lend(head) {
                names.push(one.name.clone());
            }
        }
        if self.are_for(target) {
            // What comes back is looked through, which it cannot be in pieces or packed.
            head.remove("accept-encoding");
            head.remove("range");
            head.remove("if-range");
            head.add("Accept-Encoding", b"identity".to_vec());
        }
        Lent::Names(names)
    }
}

/// Tells whether a request holds a placeholder, also as a password of `Basic`.
fn holds(head: &InspectedHead, placeholder: &str) -> bool {
    let found = |bytes: &[u8]| find(bytes, placeholder, 0).is_some();
    found(head.target.as_bytes())
        || head
            .fields
            .iter()
            .any(|(_, value)| found(value) || basic(value).is_some_and(|pair| found(&pair)))
}

/// Finds a placeholder that is not the beginning of a longer one.
fn find(bytes: &[u8], placeholder: &str, from: usize) -> Option<usize> {
    let wanted = placeholder.as_bytes();
    let mut at = from;
    while at + wanted.len() <= bytes.len() {
        let next = bytes.get(at + wanted.len());
        let ends = next
            .is_none_or(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-'));
        if ends && bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn replace(field: &mut Vec<u8>, placeholder: &str, value: &str) -> bool {
    let mut from = 0;
    let mut done = false;
    while let Some(at) = find(field, placeholder, from) {
        let rest = field.split_off(at + placeholder.len());
        field.truncate(at);
        field.extend_from_slice(value.as_bytes());
        from = field.len();
        field.extend_from_slice(&rest);
        done = true;
    }
    done
}

/// Gives the pair of a field of the form `Basic …`.
fn basic(field: &[u8]) -> Option<Vec<u8>> {
    let (scheme, pair) = field.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    STANDARD.decode(pair.trim_ascii()).ok()
}

fn encode(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::TargetForm;

    const VALUE: &str = "s3cr3t value/+";

    fn broker(name: &str, host: &str, place: SecretPlace, always: bool) -> Broker {
        Broker {
            name: name.to_owned(),
            hosts: vec![host.parse().expect("a host")],
            place,
            always,
            value: SecretValue::new(VALUE.as_bytes()).expect("a value"),
        }
    }

    fn target(text: &str) -> HostPort {
        HostPort::parse(text.as_bytes(), None).expect("a target")
    }

    fn head(path: &str, fields: &str) -> InspectedHead {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        InspectedHead::parse(
            text.as_bytes(),
            &target("a.test:443"),
            443,
            TargetForm::Origin,
        )
        .expect("a head")
        .expect("whole")
    }

    fn lent(broker: Broker, path: &str, fields: &str) -> (Lent, String) {
        let mut head = head(path, fields);
        let lent =
            Brokers::new([broker]).lend(&mut head, &target("a.test:443"), Transport::Verified);
        (lent, String::from_utf8(head.write()).expect("text"))
    }

    fn named(name: &str) -> Lent {
        Lent::Names(vec![name.to_owned()])
    }

    #[test]
    fn each_place_is_filled() {
        let (told, text) = lent(
            broker("n", "a.test", SecretPlace::Bearer, false),
            "/",
            "Authorization: token cofferdam-secret-n\r\nX-Other: cofferdam-secret-n\r\n",
        );
        assert_eq!(told, named("n"));
        assert!(text.contains("Authorization: token s3cr3t value/+\r\n"));
        // Only the named place is filled.
        assert!(text.contains("X-Other: cofferdam-secret-n\r\n"));
        let basic = SecretPlace::Basic {
            username: "me".to_owned(),
        };
        let pair = STANDARD.encode("you:cofferdam-secret-n");
        let fields = format!("Authorization: Basic {pair}\r\n");
        let (told, text) = lent(broker("n", "a.test", basic.clone(), false), "/", &fields);
        assert_eq!(told, named("n"));
        let pair = STANDARD.encode(format!("you:{VALUE}"));
        assert!(text.contains(&format!("Authorization: Basic {pair}\r\n")));
        let header = SecretPlace::Header {
            name: "X-Api-Key".to_owned(),
        };
        let (told, text) = lent(
            broker("n", "a.test", header, false),
            "/",
            "x-api-key: cofferdam-secret-n\r\n",
        );
        assert_eq!(told, named("n"));
        assert!(text.contains("x-api-key: s3cr3t value/+\r\n"));
        let query = SecretPlace::Query {
            name: "key".to_owned(),
        };
        let (told, text) = lent(
            broker("n", "a.test", query.clone(), false),
            "/p?a=1&key=cofferdam-secret-n&b=cofferdam-secret-n",
            "",
        );
        assert_eq!(told, named("n"));
        assert!(text.starts_with("GET /p?a=1&key=s3cr3t%20value%2F%2B&b=cofferdam-secret-n HTTP"));
        let (told, text) = lent(broker("n", "a.test", query, true), "/p", "");
        assert_eq!(told, named("n"));
        assert!(text.starts_with("GET /p?key=s3cr3t%20value%2F%2B HTTP"));
        let (told, text) = lent(broker("n", "a.test", basic, true), "/", "");
        assert_eq!(told, named("n"));
        let pair = STANDARD.encode(format!("me:{VALUE}"));
        assert!(text.contains(&format!("Authorization: Basic {pair}\r\n")));
    }

    #[test]
    fn what_the_client_says_itself_stays() {
        let (told, text) = lent(
            broker("n", "a.test", SecretPlace::Bearer, true),
            "/",
            "Authorization: Bearer mine\r\n",
        );
        assert_eq!(told, Lent::Names(Vec::new()));
        assert!(text.contains("Authorization: Bearer mine\r\n"));
        // A longer name is another secret.
        let (told, text) = lent(
            broker("n", "a.test", SecretPlace::Bearer, false),
            "/",
            "Authorization: Bearer cofferdam-secret-no\r\n",
        );
        assert_eq!(told, Lent::Names(Vec::new()));
        assert!(!text.contains("s3cr3t"));
    }

    #[test]
    fn a_placeholder_for_another_host_is_found_wherever_it_stands() {
        let pair = STANDARD.encode("me:cofferdam-secret-n");
        for (path, fields) in [
            (
                "/",
                "Authorization: Bearer cofferdam-secret-n\r\n".to_owned(),
            ),
            ("/", format!("Authorization: Basic {pair}\r\n")),
            ("/?x=cofferdam-secret-n", String::new()),
            ("/", "Cookie: a=cofferdam-secret-n; b=1\r\n".to_owned()),
        ] {
            let (told, text) = lent(
                broker("n", "b.test", SecretPlace::Bearer, true),
                path,
                &fields,
            );
            assert_eq!(told, Lent::Elsewhere("n".to_owned()), "{path} {fields}");
            assert!(!text.contains("s3cr3t"));
        }
    }

    #[test]
    fn without_tls_only_named_loopback_is_told() {
        for (host, asked, goes) in [
            ("a.test", "a.test:80", false),
            ("**.test", "a.test:80", false),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("localhost", "localhost:80", true),
            ("10.0.0.1", "10.0.0.1:80", false),
        ] {
            let one = broker("n", host, SecretPlace::Bearer, true);
            assert_eq!(one.may_go(&target(asked), Transport::Plain), goes, "{host}");
            assert!(one.may_go(&target(asked), Transport::Verified), "{host}");
        }
    }

    #[test]
    fn what_comes_back_can_be_looked_through() {
        let (_, text) = lent(
            broker("n", "a.test", SecretPlace::Bearer, false),
            "/",
            "Accept-Encoding: gzip, br\r\nRange: bytes=0-3\r\n",
        );
        assert!(text.contains("Accept-Encoding: identity\r\n"));
        assert!(!text.contains("gzip") && !text.contains("Range"));
        let screen = Brokers::new([broker("n", "a.test", SecretPlace::Bearer, false)])
            .screen(&target("a.test:443"))
            .expect("a screen");
        for shown in [
            format!("x{VALUE}x"),
            format!("x{}x", encode(VALUE)),
            STANDARD.encode(VALUE),
            STANDARD.encode(format!("user:{VALUE}")),
            STANDARD.encode(format!("users:{VALUE}")),
        ] {
            assert!(screen.mask_bytes(shown.as_bytes()).1 > 0, "{shown}");
        }
    }

    #[test]
    fn values_that_cannot_be_lent_say_why() {
        for (bytes, why) in [
            (b"short".as_slice(), SecretError::TooShort),
            (b"\n\n\n\n\n\n\n\n\n", SecretError::TooShort),
            (b"two\nlines of it", SecretError::Unwritable),
            (b"with\0a zero byte", SecretError::Unwritable),
            (b" in front of it", SecretError::Unwritable),
            (b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", SecretError::Unwritable),
        ] {
            assert_eq!(SecretValue::new(bytes).expect_err("none"), why, "{bytes:?}");
        }
        let value = SecretValue::new(b"long enough\r\n").expect("a value");
        assert_eq!(value.text(), "long enough");
        assert_eq!(format!("{value:?}"), "SecretValue");
    }
}
