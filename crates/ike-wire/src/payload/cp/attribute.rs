//! The contents of configuration attributes (RFC 7296 §3.15.1, RFC 8598, RFC 9464).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ConfigAttribute;
use super::dns::{DnssecTa, EncDigest, EncDns, domain};
use crate::registry::CfgAttribute;

/// One configuration attribute, by its meaning. `None` is an attribute without a value, which in a request
/// stands for whatever the peer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// INTERNAL_IP4_ADDRESS.
    Ip4Address(Option<Ipv4Addr>),
    /// INTERNAL_IP4_NETMASK.
    Ip4Netmask(Option<Ipv4Addr>),
    /// INTERNAL_IP4_DNS.
    Ip4Dns(Option<Ipv4Addr>),
    /// INTERNAL_IP4_NBNS.
    Ip4Nbns(Option<Ipv4Addr>),
    /// INTERNAL_IP4_DHCP.
    Ip4Dhcp(Option<Ipv4Addr>),
    /// INTERNAL_IP4_SUBNET: an address and the length of its prefix.
    Ip4Subnet(Option<(Ipv4Addr, u8)>),
    /// APPLICATION_VERSION: text without a terminator.
    ApplicationVersion(Vec<u8>),
    /// INTERNAL_IP6_ADDRESS: an address and the length of its prefix.
    Ip6Address(Option<(Ipv6Addr, u8)>),
    /// INTERNAL_IP6_DNS.
    Ip6Dns(Option<Ipv6Addr>),
    /// INTERNAL_IP6_DHCP.
    Ip6Dhcp(Option<Ipv6Addr>),
    /// INTERNAL_IP6_SUBNET: an address and the length of its prefix.
    Ip6Subnet(Option<(Ipv6Addr, u8)>),
    /// SUPPORTED_ATTRIBUTES: attribute types.
    Supported(Vec<CfgAttribute>),
    /// INTERNAL_DNS_DOMAIN (RFC 8598 §4.1): a domain that the internal servers are to be asked about.
    DnsDomain(Option<String>),
    /// INTERNAL_DNSSEC_TA (RFC 8598 §4.2), about the domain before it.
    DnssecTa(Option<DnssecTa>),
    /// ENCDNS_IP4 or ENCDNS_IP6 (RFC 9464 §3.1); the bool is true for IPv6.
    EncDns(bool, Option<EncDns>),
    /// ENCDNS_DIGEST_INFO (RFC 9464 §3.2).
    EncDigest(Option<EncDigest>),
    /// Any other, as it is on the wire.
    Other(CfgAttribute, Vec<u8>),
}

impl Attribute {
    /// Reads an attribute; `None` if it is malformed, so that it is to be ignored.
    pub fn decode(attribute: &ConfigAttribute<'_>) -> Option<Self> {
        let ConfigAttribute { kind, value } = *attribute;
        Some(match kind {
            CfgAttribute::INTERNAL_IP4_ADDRESS => Self::Ip4Address(ip4(value)?),
            CfgAttribute::INTERNAL_IP4_NETMASK => Self::Ip4Netmask(ip4(value)?),
            CfgAttribute::INTERNAL_IP4_DNS => Self::Ip4Dns(ip4(value)?),
            CfgAttribute::INTERNAL_IP4_NBNS => Self::Ip4Nbns(ip4(value)?),
            CfgAttribute::INTERNAL_IP4_DHCP => Self::Ip4Dhcp(ip4(value)?),
            CfgAttribute::INTERNAL_IP4_SUBNET => Self::Ip4Subnet(subnet4(value)?),
            CfgAttribute::APPLICATION_VERSION => Self::ApplicationVersion(value.to_vec()),
            CfgAttribute::INTERNAL_IP6_ADDRESS => Self::Ip6Address(prefix6(value)?),
            CfgAttribute::INTERNAL_IP6_DNS => Self::Ip6Dns(ip6(value)?),
            CfgAttribute::INTERNAL_IP6_DHCP => Self::Ip6Dhcp(ip6(value)?),
            CfgAttribute::INTERNAL_IP6_SUBNET => Self::Ip6Subnet(prefix6(value)?),
            CfgAttribute::SUPPORTED_ATTRIBUTES => {
                let (types, rest) = value.as_chunks::<2>();
                if !rest.is_empty() {
                    return None;
                }
                // The reserved bit is ignored.
                let number = |octets: &[u8; 2]| CfgAttribute(u16::from_be_bytes(*octets) & 0x7fff);
                Self::Supported(types.iter().map(number).collect())
            }
            CfgAttribute::INTERNAL_DNS_DOMAIN if value.is_empty() => Self::DnsDomain(None),
            CfgAttribute::INTERNAL_DNS_DOMAIN => Self::DnsDomain(Some(domain(value)?)),
            CfgAttribute::INTERNAL_DNSSEC_TA if value.is_empty() => Self::DnssecTa(None),
            CfgAttribute::INTERNAL_DNSSEC_TA => Self::DnssecTa(Some(DnssecTa::decode(value)?)),
            CfgAttribute::ENCDNS_IP4 | CfgAttribute::ENCDNS_IP6 => {
                let v6 = kind == CfgAttribute::ENCDNS_IP6;
                let empty = value.is_empty();
                Self::EncDns(v6, if empty { None } else { Some(EncDns::decode(v6, value)?) })
            }
            CfgAttribute::ENCDNS_DIGEST_INFO if value.is_empty() => Self::EncDigest(None),
            CfgAttribute::ENCDNS_DIGEST_INFO => Self::EncDigest(Some(EncDigest::decode(value)?)),
            other => Self::Other(other, value.to_vec()),
        })
    }

    /// Its type.
    pub fn kind(&self) -> CfgAttribute {
        match self {
            Self::Ip4Address(_) => CfgAttribute::INTERNAL_IP4_ADDRESS,
            Self::Ip4Netmask(_) => CfgAttribute::INTERNAL_IP4_NETMASK,
            Self::Ip4Dns(_) => CfgAttribute::INTERNAL_IP4_DNS,
            Self::Ip4Nbns(_) => CfgAttribute::INTERNAL_IP4_NBNS,
            Self::Ip4Dhcp(_) => CfgAttribute::INTERNAL_IP4_DHCP,
            Self::Ip4Subnet(_) => CfgAttribute::INTERNAL_IP4_SUBNET,
            Self::ApplicationVersion(_) => CfgAttribute::APPLICATION_VERSION,
            Self::Ip6Address(_) => CfgAttribute::INTERNAL_IP6_ADDRESS,
            Self::Ip6Dns(_) => CfgAttribute::INTERNAL_IP6_DNS,
            Self::Ip6Dhcp(_) => CfgAttribute::INTERNAL_IP6_DHCP,
            Self::Ip6Subnet(_) => CfgAttribute::INTERNAL_IP6_SUBNET,
            Self::Supported(_) => CfgAttribute::SUPPORTED_ATTRIBUTES,
            Self::DnsDomain(_) => CfgAttribute::INTERNAL_DNS_DOMAIN,
            Self::DnssecTa(_) => CfgAttribute::INTERNAL_DNSSEC_TA,
            Self::EncDns(false, _) => CfgAttribute::ENCDNS_IP4,
            Self::EncDns(true, _) => CfgAttribute::ENCDNS_IP6,
            Self::EncDigest(_) => CfgAttribute::ENCDNS_DIGEST_INFO,
            Self::Other(kind, _) => *kind,
        }
    }

    /// Its value on the wire.
    pub fn value(&self) -> Vec<u8> {
        match self {
            Self::Ip4Address(address)
            | Self::Ip4Netmask(address)
            | Self::Ip4Dns(address)
            | Self::Ip4Nbns(address)
            | Self::Ip4Dhcp(address) => address.map_or(Vec::new(), |a| a.octets().to_vec()),
            Self::Ip4Subnet(subnet) => match subnet {
                Some((address, length)) => {
                    let mask = u32::MAX.checked_shl(32 - u32::from((*length).min(32))).unwrap_or(0);
                    [address.octets(), mask.to_be_bytes()].concat()
                }
                None => Vec::new(),
            },
            Self::ApplicationVersion(text) => text.clone(),
            Self::Ip6Dns(address) | Self::Ip6Dhcp(address) => {
                address.map_or(Vec::new(), |a| a.octets().to_vec())
            }
            Self::Ip6Address(prefix) | Self::Ip6Subnet(prefix) => match prefix {
                Some((address, length)) => [&address.octets()[..], &[*length]].concat(),
                None => Vec::new(),
            },
            Self::Supported(types) => types.iter().flat_map(|kind| kind.0.to_be_bytes()).collect(),
            Self::DnsDomain(name) => name.clone().unwrap_or_default().into_bytes(),
            Self::DnssecTa(anchor) => anchor.as_ref().map(DnssecTa::encode).unwrap_or_default(),
            Self::EncDns(_, resolver) => resolver.as_ref().map(EncDns::encode).unwrap_or_default(),
            Self::EncDigest(digest) => digest.as_ref().map(EncDigest::encode).unwrap_or_default(),
            Self::Other(_, value) => value.clone(),
        }
    }

    /// The address that a request for an address names, unspecified if any will do, or that a reply gives.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Ip4Address(address) => Some(address.unwrap_or(Ipv4Addr::UNSPECIFIED).into()),
            Self::Ip6Address(prefix) => {
                Some(prefix.map_or(Ipv6Addr::UNSPECIFIED, |(address, _)| address).into())
            }
            _ => None,
        }
    }

    /// The name server that it gives.
    pub fn dns(&self) -> Option<IpAddr> {
        match self {
            Self::Ip4Dns(address) => address.map(IpAddr::from),
            Self::Ip6Dns(address) => address.map(IpAddr::from),
            _ => None,
        }
    }

    /// A request for `address`, or the reply that gives it. An unspecified one asks for any.
    pub fn for_address(address: IpAddr) -> Self {
        let some = !address.is_unspecified();
        match address {
            IpAddr::V4(address) => Self::Ip4Address(some.then_some(address)),
            // The prefix of a link with no other host (RFC 7296 §3.15.1), as in strongSwan.
            IpAddr::V6(address) => Self::Ip6Address(some.then_some((address, 64))),
        }
    }
}

fn ip4(value: &[u8]) -> Option<Option<Ipv4Addr>> {
    match value {
        [] => Some(None),
        _ => Some(Some(<[u8; 4]>::try_from(value).ok()?.into())),
    }
}

fn ip6(value: &[u8]) -> Option<Option<Ipv6Addr>> {
    match value {
        [] => Some(None),
        _ => Some(Some(<[u8; 16]>::try_from(value).ok()?.into())),
    }
}

fn subnet4(value: &[u8]) -> Option<Option<(Ipv4Addr, u8)>> {
    if value.is_empty() {
        return Some(None);
    }
    let (address, mask) = value.split_first_chunk::<4>()?;
    let mask = u32::from_be_bytes(mask.try_into().ok()?);
    // Ones, then zeros.
    let length = mask.leading_ones();
    (mask.count_ones() == length).then_some(Some(((*address).into(), length as u8)))
}

/// An address and the length of its prefix; some leave the length out.
fn prefix6(value: &[u8]) -> Option<Option<(Ipv6Addr, u8)>> {
    if value.is_empty() {
        return Some(None);
    }
    let (address, rest) = value.split_first_chunk::<16>()?;
    let length = match rest {
        [] => 128,
        [length @ 0..=128] => *length,
        _ => return None,
    };
    Some(Some(((*address).into(), length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: CfgAttribute, value: &[u8]) -> Option<Attribute> {
        Attribute::decode(&ConfigAttribute { kind, value })
    }

    #[test]
    fn values_are_as_the_rfcs_have_them() {
        let subnet = Attribute::Ip4Subnet(Some(([10, 1, 0, 0].into(), 16)));
        assert_eq!(subnet.value(), [10, 1, 0, 0, 255, 255, 0, 0]);
        let all = Attribute::Ip4Subnet(Some((Ipv4Addr::UNSPECIFIED, 0)));
        assert_eq!(all.value(), [0; 8]);
        let address = Attribute::for_address("2001:db8::5".parse().unwrap());
        assert_eq!(address.value().len(), 17);
        assert_eq!(address.value()[16], 64);
        assert_eq!(Attribute::DnsDomain(Some("corp.example".into())).value(), b"corp.example");
        // RFC 8598 §3.4.2: key tag, algorithm, digest type, digest.
        let anchor = read(CfgAttribute::INTERNAL_DNSSEC_TA, &[0xaa, 0x1b, 8, 1, 0xb6, 0x22]);
        let wanted =
            DnssecTa { key_tag: 43547, algorithm: 8, digest_type: 1, digest: vec![0xb6, 0x22] };
        assert_eq!(anchor, Some(Attribute::DnssecTa(Some(wanted))));
    }

    #[test]
    fn malformed_values_are_nothing() {
        assert_eq!(read(CfgAttribute::INTERNAL_IP4_ADDRESS, &[10, 0, 0]), None);
        assert_eq!(read(CfgAttribute::INTERNAL_IP4_SUBNET, &[10, 0, 0, 0, 255, 0, 255, 0]), None);
        assert_eq!(read(CfgAttribute::INTERNAL_IP6_ADDRESS, &[0; 18]), None);
        let mut long = [0; 17];
        long[16] = 129;
        assert_eq!(read(CfgAttribute::INTERNAL_IP6_ADDRESS, &long), None);
        for bad in [&b"a\nb"[..], b"a\0b", b"a b", b"-x.\xff", b"..", b"a..b", &[b'a'; 64]] {
            assert_eq!(read(CfgAttribute::INTERNAL_DNS_DOMAIN, bad), None, "{bad:?}");
        }
        assert_eq!(read(CfgAttribute::INTERNAL_DNSSEC_TA, &[1, 2, 3, 4]), None);
        assert_eq!(read(CfgAttribute::SUPPORTED_ATTRIBUTES, &[0, 1, 2]), None);
    }

    proptest! {
        /// Whatever is read is written as it was, up to what the reading leaves out on purpose.
        #[test]
        fn what_is_read_is_written_again(kind in 0_u16..32, value: Vec<u8>) {
            if let Some(attribute) = read(CfgAttribute(kind), &value) {
                let again = attribute.value();
                let back = read(attribute.kind(), &again);
                prop_assert_eq!(back, Some(attribute));
            }
        }
    }
}
