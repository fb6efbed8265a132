//! Limits fetches for strangers to certain URLs and addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ike_config::{UrlParts, UrlPrefix};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::fetch::Outside;

/// From which addresses a URL may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Those of the public Internet: anybody may have named it.
    Public,
    /// Other networks' too, for a configured host: but not this host's own, nor what only a link has.
    Configured,
    /// This one, because it is configured.
    Exactly(IpAddr),
}

impl Allowed {
    /// What is allowed for `url` if these prefixes are configured; `None`: nothing.
    pub(super) fn of(url: &str, prefixes: &[UrlPrefix]) -> Option<Self> {
        let parts = UrlParts::parse(url)?;
        if prefixes.is_empty() {
            return Some(Self::Public);
        }
        let prefix = prefixes.iter().find(|prefix| prefix.covers(&parts))?;
        Some(prefix.address().map_or(Self::Configured, Self::Exactly))
    }

    /// True if `address` is allowed. `source` says from which address of this host packets to it leave.
    fn takes(self, address: IpAddr, source: impl FnOnce() -> io::Result<IpAddr>) -> bool {
        match self {
            Self::Exactly(only) => address == only,
            Self::Configured => is_elsewhere(address) && !is_own(address, source()),
            Self::Public => {
                is_elsewhere(address) && is_public(address) && !is_own(address, source())
            }
        }
    }
}

/// Resolves names to addresses that are allowed. The client connects to what this returns and to nothing
/// else, so that a name may have whatever other addresses a moment later.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) allowed: Allowed,
    /// Resolves where the system's resolver fails, and connects.
    pub(super) outside: Option<Outside>,
}

impl Guarded {
    fn takes(&self, server: SocketAddr) -> bool {
        let address = server.ip();
        let outside = self.outside.as_ref().and_then(|outside| outside.source(server));
        self.allowed.takes(address, || outside.unwrap_or_else(|| source(address)))
    }
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = match &self.outside {
            None => DefaultResolver::default().resolve(uri, config, timeout)?,
            Some(outside) => outside.resolve(uri, config, timeout)?,
        };
        let mut allowed = self.empty();
        for address in found.iter().filter(|address| self.takes(**address)) {
            allowed.push(*address);
        }
        if allowed.is_empty() {
            return Err(ureq::Error::Io(io::Error::other("nothing is fetched from its address")));
        }
        Ok(allowed)
    }
}

/// Not this host's loopback, not a link's, not a group's.
fn is_elsewhere(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            first != 0
                && first < 240
                && !v4.is_loopback()
                && !v4.is_link_local()
                && !v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            !v6.is_unspecified()
                && !v6.is_loopback()
                && !v6.is_unicast_link_local()
                && !v6.is_multicast()
        }
    }
}

/// Of the public Internet, by IANA's special-purpose address registries.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocols = a == 192 && b == 0 && c == 0 || a == 192 && b == 88 && c == 99;
    let benchmarks = a == 198 && (b == 18 || b == 19);
    !(address.is_private() || address.is_documentation() || shared || protocols || benchmarks)
}

/// Global unicast alone (2000::/3), and no tunnels that have an IPv4 address in them.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let documentation = first == 0x2001 && second == 0xdb8 || first == 0x3fff && second < 0x1000;
    let protocols = first == 0x2001 && second < 0x200;
    (0x2000..0x4000).contains(&first) && first != 0x2002 && !documentation && !protocols
}

/// True for an address of this host, and for one that there is no way to: packets to it would have that as their `source`.
fn is_own(address: IpAddr, source: io::Result<IpAddr>) -> bool {
    source.map_or(true, |source| source.to_canonical() == address.to_canonical())
}

/// The address of this host from which packets to `address` leave by the routes of the system. Nothing is sent.
fn source(address: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, DISCARD))?;
    Ok(socket.local_addr()?.ip())
}

/// A port; any would do.
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(url: &str, prefixes: &[&str]) -> Option<Allowed> {
        let prefixes: Vec<_> =
            prefixes.iter().map(|text| UrlPrefix::parse(text).unwrap()).collect();
        Allowed::of(url, &prefixes)
    }

    fn takes(allowed: Allowed, address: IpAddr) -> bool {
        allowed.takes(address, || source(address))
    }

    #[test]
    fn what_only_looks_like_a_prefix_is_not_covered() {
        let prefix = &["http://certs.example.org/ca/"][..];
        for good in [
            "http://certs.example.org/ca/0123",
            "http://certs.example.org:80/ca/0123",
            "HTTP://CERTS.example.org/ca/cert.pl?u=foo;a=pw",
            "http://user:password@certs.example.org/ca/0123",
        ] {
            assert_eq!(allowed(good, prefix), Some(Allowed::Configured), "{good}");
        }
        for bad in [
            "http://certs.example.org/",
            "http://certs.example.org/CA/0123",
            "http://certs.example.org:8080/ca/0123",
            "http://certs.example.org.example.com/ca/0123",
            "http://certs.example.org@example.com/ca/0123",
            "http://certs.example.org/ca/../admin",
            "http://certs.example.org/ca/%2E%2e/admin",
            "http://certs.example.org/ca/..%5cadmin",
            "https://certs.example.org/ca/0123",
            "http://certs.example.org:x/ca/0123",
        ] {
            assert_eq!(allowed(bad, prefix), None, "{bad}");
        }
        // With a whole host, RFC 4945 §4.3.1's forms will do.
        let url = "http://certs.example.org/%0a/../foo/bar/zappa";
        assert_eq!(allowed(url, &["http://certs.example.org/"]), Some(Allowed::Configured));
        assert_eq!(allowed(url, &[]), Some(Allowed::Public));
    }

    #[test]
    fn addresses_that_nobody_outside_may_choose() {
        let never = [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ];
        for text in never {
            let address = text.parse().unwrap();
            assert!(!takes(Allowed::Configured, address), "{text}");
            assert!(!takes(Allowed::Public, address), "{text}");
            assert!(takes(Allowed::Exactly(address), address), "{text}");
        }
        let not_public = [
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.7",
            "198.18.0.1",
            "192.0.0.9",
            "fd00::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2001::1",
            "64:ff9b::7f00:1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "3fff::1",
            "fec0::1",
        ];
        for text in not_public {
            assert!(!takes(Allowed::Public, text.parse().unwrap()), "{text}");
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["198.41.0.4", "9.9.9.9", "2620:fe::fe", "2001:500:2::c"] {
            let address = text.parse().unwrap();
            assert!(is_elsewhere(address) && is_public(address), "{text}");
        }
        let here = "127.0.0.1".parse().unwrap();
        assert!(is_own(here, source(here)));
        let exact = allowed("http://127.0.0.1:8080/x", &["http://127.0.0.1:8080/"]);
        assert_eq!(exact, Some(Allowed::Exactly("127.0.0.1".parse().unwrap())));
        assert!(!takes(exact.unwrap(), "127.0.0.2".parse().unwrap()));
    }
}
