//! `local_addrs` and `remote_addrs`: addresses, ranges, and names that are resolved when needed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ike_proto::config::AddressSpec;

/// What [`HostSpec::parse`] takes, for messages.
pub(crate) const HOST: &str =
    "an address, a subnet, a range \"from-to\", a host name, \"%any\", \"%any4\" or \"%any6\"";

/// One entry of `local_addrs` or `remote_addrs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSpec {
    /// Known as it stands.
    Address(AddressSpec),
    /// A DNS name.
    Name(String),
}

/// The ends of one connection as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// `local_addrs`.
    pub local: Vec<HostSpec>,
    /// `remote_addrs`.
    pub remote: Vec<HostSpec>,
}

impl Hosts {
    /// True if an entry is a name.
    pub fn has_names(&self) -> bool {
        self.local.iter().chain(&self.remote).any(|host| matches!(host, HostSpec::Name(_)))
    }
}

impl Hosts {
    /// The entries that need no resolving.
    pub fn known(&self) -> Ends {
        let known = |hosts: &[HostSpec]| {
            let address = |host: &HostSpec| match host {
                HostSpec::Address(spec) => Some(*spec),
                HostSpec::Name(_) => None,
            };
            hosts.iter().filter_map(address).collect()
        };
        Ends { local: known(&self.local), remote: known(&self.remote) }
    }
}

/// The ends of a connection with every name resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// `local_addrs`.
    pub local: Vec<AddressSpec>,
    /// `remote_addrs`.
    pub remote: Vec<AddressSpec>,
}

impl HostSpec {
    /// Reads one entry.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "%any" => return Some(Self::Address(AddressSpec::Any(None))),
            "%any4" | "0.0.0.0" => return Some(Self::Address(AddressSpec::Any(Some(false)))),
            "%any6" | "::" => return Some(Self::Address(AddressSpec::Any(Some(true)))),
            _ => {}
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(AddressSpec::single(address)));
        }
        if let Some((address, bits)) = text.split_once('/') {
            return subnet(address.parse().ok()?, bits.parse().ok()?).map(Self::Address);
        }
        if let Some((start, end)) = text.split_once('-')
            && let (Ok(start), Ok(end)) =
                (start.trim().parse::<IpAddr>(), end.trim().parse::<IpAddr>())
        {
            let fits = start.is_ipv4() == end.is_ipv4() && start <= end;
            return fits.then_some(Self::Address(AddressSpec::Range(start, end)));
        }
        is_host_name(text).then(|| Self::Name(text.to_owned()))
    }
}

/// All addresses that share the first `bits` bits with `address`.
fn subnet(address: IpAddr, bits: u32) -> Option<AddressSpec> {
    match address {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(bits).unwrap_or(0);
            let start = u32::from(v4) & !host;
            let range = |octets| IpAddr::V4(Ipv4Addr::from(octets));
            (bits <= 32).then(|| AddressSpec::Range(range(start), range(start | host)))
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(bits).unwrap_or(0);
            let start = u128::from(v6) & !host;
            let range = |octets| IpAddr::V6(Ipv6Addr::from(octets));
            (bits <= 128).then(|| AddressSpec::Range(range(start), range(start | host)))
        }
    }
}

/// Labels of letters, digits, `-` and `_`; the last is no number, or a mistyped address would pass.
fn is_host_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(label) && last.bytes().any(|c| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> Option<HostSpec> {
        let range = AddressSpec::Range(start.parse().unwrap(), end.parse().unwrap());
        Some(HostSpec::Address(range))
    }

    #[test]
    fn entries() {
        let name = |text: &str| Some(HostSpec::Name(text.to_owned()));
        let any = |family| Some(HostSpec::Address(AddressSpec::Any(family)));
        let table = [
            ("%any", any(None)),
            ("::", any(Some(true))),
            ("%any4", any(Some(false))),
            ("192.0.2.1", range("192.0.2.1", "192.0.2.1")),
            ("192.0.2.77/24", range("192.0.2.0", "192.0.2.255")),
            ("0.0.0.0/0", range("0.0.0.0", "255.255.255.255")),
            ("192.0.2.1/32", range("192.0.2.1", "192.0.2.1")),
            ("2001:db8::/126", range("2001:db8::", "2001:db8::3")),
            ("::/0", range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
            ("192.0.2.1-192.0.2.9", range("192.0.2.1", "192.0.2.9")),
            ("192.0.2.9-192.0.2.1", None),
            ("192.0.2.9-2001:db8::1", None),
            ("192.0.2.0/33", None),
            ("2001:db8::/129", None),
            ("192.0.2.256", None),
            ("192.0.2", None),
            ("peer.example.org", name("peer.example.org")),
            ("peer-1", name("peer-1")),
            ("-peer", None),
            ("peer..example", None),
            ("peer example", None),
            ("", None),
            ("%anyone", None),
        ];
        for (text, expected) in table {
            assert_eq!(HostSpec::parse(text), expected, "{text:?}");
        }
    }
}
