//! What kind of address it is, whatever form it comes in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names what an address leads to.
///
/// An IPv6 address that carries an IPv4 address (mapped, compatible, translated, NAT64, 6to4,
/// Teredo, ISATAP) has the class of what it carries, unless its own class is worse already.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AddressClass {
    /// The open internet.
    Public,
    /// For books only, never routed.
    Documentation,
    /// Set aside by the registries: benchmarks, protocol assignments, future use, broadcast.
    Reserved,
    /// Between a provider and its customers (100.64.0.0/10).
    Shared,
    /// A site's own: RFC 1918, unique local, old site local.
    Private,
    /// One link only.
    LinkLocal,
    /// The machine itself.
    Loopback,
    /// Many receivers.
    Multicast,
    /// No address; connecting to it reaches the machine itself.
    Unspecified,
    /// A cloud's service that hands out credentials to whoever asks from the machine.
    Metadata,
}

/// Where clouds serve metadata, user data and credentials (AWS, Azure, Google, Oracle, Alibaba,
/// Tencent, Scaleway, and the container variants of AWS).
const METADATA_V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];

const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0xa9fe, 0xa9fe, 0),
];

impl AddressClass {
    /// Gives the class of an address.
    ///
    /// ```
    /// use cofferdam_core::hosts::AddressClass;
    ///
    /// let of = |text: &str| AddressClass::of(text.parse().unwrap());
    /// assert_eq!(of("93.184.215.14"), AddressClass::Public);
    /// assert_eq!(of("64:ff9b::a9fe:a9fe"), AddressClass::Metadata);
    /// ```
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    /// Tells whether a name on the allow-list may lead there.
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Public)
    }

    /// Tells whether the owner can allow the address at all, by naming it or by a `reach` grant.
    pub const fn can_be_granted(self) -> bool {
        !matches!(self, Self::Unspecified | Self::Multicast)
    }

    /// Tells whether the address lies in a network of the site, or where nobody's is: where a
    /// company has its mirrors. Never the machine itself, its link, or a metadata service.
    pub const fn is_of_site(self) -> bool {
        matches!(
            self,
            Self::Documentation | Self::Reserved | Self::Shared | Self::Private
        )
    }

    /// Gives the word that is written in events and refusals.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Documentation => "documentation",
            Self::Reserved => "reserved",
            Self::Shared => "shared",
            Self::Private => "private",
            Self::LinkLocal => "link_local",
            Self::Loopback => "loopback",
            Self::Multicast => "multicast",
            Self::Unspecified => "unspecified",
            Self::Metadata => "metadata",
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        if METADATA_V4.contains(&address) {
            return Self::Metadata;
        }
        match (a, b, c) {
            (0, ..) => Self::Unspecified,
            (127, ..) => Self::Loopback,
            (10, ..) | (172, 16..=31, _) | (192, 168, _) => Self::Private,
            (100, 64..=127, _) => Self::Shared,
            (169, 254, _) => Self::LinkLocal,
            (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => Self::Documentation,
            (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) | (240..=255, ..) => Self::Reserved,
            (224..=239, ..) => Self::Multicast,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if METADATA_V6.contains(&address) {
            return Self::Metadata;
        }
        let own = Self::of_v6_itself(address);
        embedded(address)
            .into_iter()
            .flatten()
            .map(Self::of_v4)
            .fold(own, Self::max)
    }

    /// The class of the address when what it carries is not looked at.
    fn of_v6_itself(address: Ipv6Addr) -> Self {
        let segments = address.segments();
        match segments {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Unspecified,
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            // The carriers: mapped, translated, compatible, NAT64, 6to4, Teredo. What they carry
            // decides.
            [0, 0, 0, 0, 0, 0 | 0xffff, ..]
            | [0, 0, 0, 0, 0xffff, 0, ..]
            | [0x64, 0xff9b, 0, 0, 0, 0, ..]
            | [0x2002, ..]
            | [0x2001, 0, ..] => Self::Public,
            [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Self::Documentation,
            [0x2001, 0..=0x1ff, ..] => Self::Reserved,
            [0xff00..=0xffff, ..] => Self::Multicast,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            // Unique local, old site local, a site's own translator.
            [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => Self::Private,
            [0x2000..=0x3fff, ..] => Self::Public,
            _ => Self::Reserved,
        }
    }
}

/// Gives the IPv4 addresses that an IPv6 address carries: none, one, or the two ends of a Teredo
/// tunnel.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let octets = address.octets();
    let at = |from: usize| {
        Ipv4Addr::new(
            octets[from],
            octets[from + 1],
            octets[from + 2],
            octets[from + 3],
        )
    };
    let last = || Some(at(12));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        [0x2002, ..] => [Some(at(2)), None],
        [0x2001, 0, ..] => {
            // The client's end stands inverted in a Teredo address.
            let client = u32::from(at(12)) ^ u32::MAX;
            [Some(at(4)), Some(Ipv4Addr::from(client))]
        }
        [0, 0, 0, 0, 0, 0xffff | 0, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [last(), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> AddressClass {
        AddressClass::of(text.parse().expect("an address"))
    }

    #[test]
    fn every_class_is_told() {
        use AddressClass::*;
        for (text, class) in [
            ("1.1.1.1", Public),
            ("8.8.8.8", Public),
            ("172.15.0.1", Public),
            ("172.32.0.1", Public),
            ("100.63.255.255", Public),
            ("100.128.0.0", Public),
            ("2606:4700::1111", Public),
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("127.0.0.1", Loopback),
            ("127.255.0.9", Loopback),
            ("10.1.2.3", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", Shared),
            ("169.254.1.1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("169.254.170.2", Metadata),
            ("100.100.100.200", Metadata),
            ("168.63.129.16", Metadata),
            ("192.0.0.192", Metadata),
            ("192.0.2.1", Documentation),
            ("198.51.100.1", Documentation),
            ("203.0.113.1", Documentation),
            ("198.18.0.1", Reserved),
            ("192.0.0.1", Reserved),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Reserved),
            ("224.0.0.1", Multicast),
            ("::", Unspecified),
            ("::1", Loopback),
            ("fe80::1", LinkLocal),
            ("fec0::1", Private),
            ("fc00::1", Private),
            ("fd12:3456::1", Private),
            ("fd00:ec2::254", Metadata),
            ("fd20:ce::254", Metadata),
            ("ff02::1", Multicast),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2001:2::1", Reserved),
            ("100::1", Reserved),
            ("4000::1", Reserved),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:0:127.0.0.1", Loopback),
            ("::127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", Metadata),
            ("64:ff9b::7f00:1", Loopback),
            ("64:ff9b::808:808", Public),
            ("64:ff9b:1::808:808", Private),
            ("2002:7f00:1::", Loopback),
            ("2002:a00:1::1", Private),
            ("2002:808:808::1", Public),
            ("2001:0:808:808:0:0:80ff:fffe", Loopback),
            ("2001:0:7f00:1:0:0:f7f7:f7f7", Loopback),
            ("2001:0:808:808:0:0:f7f7:f7f7", Public),
            ("2606:4700::5efe:10.0.0.1", Private),
            ("2606:4700::200:5efe:127.0.0.1", Loopback),
        ] {
            assert_eq!(of(text), class, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_form_makes_an_inner_address_public(
            inner in prop_oneof![
                Just(Ipv4Addr::new(169, 254, 169, 254)),
                any::<u32>().prop_map(|low| Ipv4Addr::from(0x7f00_0000 | (low & 0x00ff_ffff))),
                any::<u32>().prop_map(|low| Ipv4Addr::from(0x0a00_0000 | (low & 0x00ff_ffff))),
                any::<u32>().prop_map(|low| Ipv4Addr::from(0xc0a8_0000 | (low & 0xffff))),
            ],
            noise in any::<[u16; 8]>(),
        ) {
            let [a, b, c, d] = inner.octets();
            let high = u16::from_be_bytes([a, b]);
            let low = u16::from_be_bytes([c, d]);
            let n = noise;
            let forms = [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, n[0], n[1], n[2], high, low),
                Ipv6Addr::new(0x2002, high, low, n[0], n[1], n[2], n[3], n[4]),
                Ipv6Addr::new(0x2001, 0, high, low, n[0], n[1], n[2], n[3]),
                Ipv6Addr::new(0x2001, 0, n[0], n[1], n[2], n[3], !high, !low),
                Ipv6Addr::new(n[0], n[1], n[2], n[3], 0, 0x5efe, high, low),
            ];
            prop_assert!(!AddressClass::of(inner.into()).is_public());
            for form in forms {
                prop_assert!(!AddressClass::of(form.into()).is_public(), "{form}");
            }
        }

        #[test]
        fn every_address_has_a_class(v4 in any::<u32>(), v6 in any::<u128>()) {
            let _ = AddressClass::of(Ipv4Addr::from(v4).into());
            let _ = AddressClass::of(Ipv6Addr::from(v6).into());
        }
    }
}
