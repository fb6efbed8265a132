//! `[pools.<name>]`, in the words of swanctl.conf(5), and words of this project's for split and encrypted DNS.

use std::net::IpAddr;

use ike_proto::wire::payload::Attribute;
use ike_proto::wire::payload::cp::{DnssecTa, EncDigest, EncDns, domain};
use ike_proto::wire::registry::CfgAttribute;

use super::connection::check_name;
use crate::diagnostic::{Place, Report};
use crate::settings::{PoolConfig, Range};
use crate::tree::{self, Section, Text, join};

/// What `server` takes, for messages.
const ADDRESSES: &str = "IPv4 and IPv6 addresses";
/// What [`subnet`] takes.
const SUBNETS: &str = "subnets such as \"10.1.0.0/16\" or \"2001:db8::/48\"";
const RANGE: &str = "a subnet, a range \"from-to\" or an address";
const NOT_ALL: &str = "a smaller subnet: no host can have most of these addresses";
const ENCDNS: &str =
    "resolvers such as \"1 10.1.0.53 doh.example.com alpn=h2 dohpath=/dns-query{?dns}\"";
const DIGEST: &str = "digests such as \"doh.example.com 2 8b6e7a59…\": [name] hash digest";
const ANCHOR: &str =
    "trust anchors such as \"example.com 43547 8 1 B6225AB2…\", of domains in `split_dns`";

// Attribute types that IANA has not given, or took back, and the field uses.
const INTERNAL_IP6_NETMASK: u16 = 9;
const INTERNAL_IP6_NBNS: u16 = 11;
const INTERNAL_IP4_SERVER: u16 = 23_456;
const INTERNAL_IP6_SERVER: u16 = 23_457;
const UNITY_SPLIT_INCLUDE: u16 = 28_676;
const UNITY_LOCAL_LAN: u16 = 28_678;

/// Reads all pools.
pub(crate) fn read(mut s: Section<'_>, report: &mut Report) -> Vec<PoolConfig> {
    let mut pools: Vec<PoolConfig> = Vec::new();
    for (name, section) in s.subsections(report) {
        check_name(name, report);
        let offset = section.place("addrs");
        let Some(pool) = pool(name, section, report) else { continue };
        if let Some(other) = pools.iter().find(|other| other.range.overlaps(&pool.range)) {
            let message =
                format!("pools {} and {} have addresses in common", other.name, pool.name);
            report.expected(offset, message, "addresses that no other pool has");
        }
        pools.push(pool);
    }
    s.finish(&[], report);
    pools
}

fn pool(name: Text<'_>, mut s: Section<'_>, report: &mut Report) -> Option<PoolConfig> {
    let range = s.parsed("addrs", RANGE, report, Range::parse);
    if range.is_none() && !s.has("addrs") {
        s.missing("addrs", RANGE, report);
    }
    if range.is_some_and(|range| range.has_all()) {
        let message = format!("`{}` has all addresses there are", join(&s.path, "addrs"));
        report.expected(s.place("addrs"), message, NOT_ALL);
    }
    let mut all = Vec::new();
    let other = |kind: u16, value: Vec<u8>| Attribute::Other(CfgAttribute(kind), value);
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    items(&mut s, "dns", ADDRESSES, &mut all, report, |text| match text.parse().ok()? {
        IpAddr::V4(address) => Some(Attribute::Ip4Dns(Some(address))),
        IpAddr::V6(address) => Some(Attribute::Ip6Dns(Some(address))),
    });
    items(&mut s, "nbns", ADDRESSES, &mut all, report, |text| match text.parse().ok()? {
        IpAddr::V4(address) => Some(Attribute::Ip4Nbns(Some(address))),
        address @ IpAddr::V6(_) => Some(other(INTERNAL_IP6_NBNS, octets(address))),
    });
    items(&mut s, "dhcp", ADDRESSES, &mut all, report, |text| match text.parse().ok()? {
        IpAddr::V4(address) => Some(Attribute::Ip4Dhcp(Some(address))),
        IpAddr::V6(address) => Some(Attribute::Ip6Dhcp(Some(address))),
    });
    items(&mut s, "netmask", ADDRESSES, &mut all, report, |text| match text.parse().ok()? {
        IpAddr::V4(address) => Some(Attribute::Ip4Netmask(Some(address))),
        address @ IpAddr::V6(_) => Some(other(INTERNAL_IP6_NETMASK, octets(address))),
    });
    items(&mut s, "server", ADDRESSES, &mut all, report, |text| {
        let address: IpAddr = text.parse().ok()?;
        let kinds = [INTERNAL_IP6_SERVER, INTERNAL_IP4_SERVER];
        Some(other(kinds[usize::from(address.is_ipv4())], octets(address)))
    });
    items(&mut s, "p_cscf", ADDRESSES, &mut all, report, |text| {
        let address: IpAddr = text.parse().ok()?;
        let kinds = [CfgAttribute::P_CSCF_IP6_ADDRESS, CfgAttribute::P_CSCF_IP4_ADDRESS];
        Some(Attribute::Other(kinds[usize::from(address.is_ipv4())], octets(address)))
    });
    items(&mut s, "subnet", SUBNETS, &mut all, report, |text| match subnet(text)? {
        (IpAddr::V4(address), length) => Some(Attribute::Ip4Subnet(Some((address, length)))),
        (IpAddr::V6(address), length) => Some(Attribute::Ip6Subnet(Some((address, length)))),
    });
    for (key, kind) in [("split_include", UNITY_SPLIT_INCLUDE), ("split_exclude", UNITY_LOCAL_LAN)]
    {
        items(&mut s, key, SUBNETS, &mut all, report, |text| {
            let (IpAddr::V4(address), length) = subnet(text)? else { return None };
            // Cisco's form: address, mask and six octets of nothing.
            let mut value = Attribute::Ip4Subnet(Some((address, length))).value();
            value.extend([0; 6]);
            Some(other(kind, value))
        });
    }
    split_dns(&mut s, &mut all, report);
    items(&mut s, "encdns", ENCDNS, &mut all, report, resolver);
    items(&mut s, "encdns_digest", DIGEST, &mut all, report, digest);
    numbered(&mut s, &mut all, report);
    s.finish(&[], report);
    Some(PoolConfig { name: name.text.to_owned(), range: range?, attributes: all })
}

fn items(
    s: &mut Section<'_>,
    key: &'static str,
    what: &str,
    all: &mut Vec<Attribute>,
    report: &mut Report,
    parse: impl Fn(&str) -> Option<Attribute>,
) {
    for item in s.list(key, what, report).unwrap_or_default() {
        match parse(item.text) {
            Some(attribute) => all.push(attribute),
            None => {
                let message = format!("`{}` cannot be {:?}", join(&s.path, key), item.text);
                report.expected(item.offset, message, what);
            }
        }
    }
}

fn subnet(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let width = if address.is_ipv4() { 32 } else { 128 };
    (length <= width).then_some((address, length))
}

/// `split_dns`: the domains, each followed by its `dnssec_ta` (RFC 8598 §4.2).
fn split_dns(s: &mut Section<'_>, all: &mut Vec<Attribute>, report: &mut Report) {
    let mut anchors: Vec<(Text<'_>, Option<(String, DnssecTa)>)> = Vec::new();
    for item in s.list("dnssec_ta", ANCHOR, report).unwrap_or_default() {
        anchors.push((item, anchor(item.text)));
    }
    let domains = s.list("split_dns", "domains such as \"example.com\"", report);
    let mut known = Vec::new();
    for item in domains.unwrap_or_default() {
        let Some(name) = domain(item.text.as_bytes()) else {
            let message = format!("`{}` cannot be {:?}", join(&s.path, "split_dns"), item.text);
            report.expected(item.offset, message, "domains such as \"example.com\"");
            continue;
        };
        all.push(Attribute::DnsDomain(Some(name.clone())));
        let own = anchors.iter().filter_map(|(_, anchor)| anchor.as_ref());
        let own = own.filter(|(of, _)| of.eq_ignore_ascii_case(&name));
        all.extend(own.map(|(_, anchor)| Attribute::DnssecTa(Some(anchor.clone()))));
        known.push(name);
    }
    for (item, anchor) in anchors {
        let used = anchor.is_some_and(|(of, _)| known.iter().any(|n| n.eq_ignore_ascii_case(&of)));
        if !used {
            let message = format!("`{}` cannot be {:?}", join(&s.path, "dnssec_ta"), item.text);
            report.expected(item.offset, message, ANCHOR);
        }
    }
}

fn anchor(text: &str) -> Option<(String, DnssecTa)> {
    let [name, key_tag, algorithm, digest_type, digest] =
        text.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let anchor = DnssecTa {
        key_tag: key_tag.parse().ok()?,
        algorithm: algorithm.parse().ok()?,
        digest_type: digest_type.parse().ok()?,
        digest: hex(digest)?,
    };
    Some((domain(name.as_bytes())?, anchor))
}

/// `priority address[ address…] [name] [key=value…]` (RFC 9464 §3.1).
fn resolver(text: &str) -> Option<Attribute> {
    let mut words = text.split_whitespace().peekable();
    let priority = words.next()?.parse::<u16>().ok().filter(|priority| *priority != 0)?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    while let Some(address) = words.peek().and_then(|word| word.parse().ok()) {
        addresses.push(address);
        words.next();
    }
    let name = words.next_if(|word| !word.contains('=')).unwrap_or_default();
    let name = if name.is_empty() { String::new() } else { domain(name.as_bytes())? };
    let mut params: Vec<(u16, Vec<u8>)> = words.map(parameter).collect::<Option<_>>()?;
    params.sort();
    let distinct = params.windows(2).all(|pair| pair[0].0 != pair[1].0);
    let v6 = addresses.first()?.is_ipv6();
    let good = distinct && addresses.len() < 256 && addresses.iter().all(|a| a.is_ipv6() == v6);
    let encoded = params.into_iter().flat_map(|(key, value)| {
        let length = value.len() as u16;
        [&key.to_be_bytes()[..], &length.to_be_bytes(), &value].concat()
    });
    let resolver = EncDns { priority, addresses, name, params: encoded.collect() };
    good.then_some(Attribute::EncDns(v6, Some(resolver)))
}

/// A SvcParam in the presentation of RFC 9460 §7, RFC 9461 §5, or `keyNNNNN=` and hexadecimal.
fn parameter(text: &str) -> Option<(u16, Vec<u8>)> {
    let (key, value) = text.split_once('=')?;
    if value.is_empty() || value.len() > 1024 {
        return None;
    }
    match key {
        "alpn" => {
            let ids = value.split(':').map(|id| {
                let length = u8::try_from(id.len()).ok().filter(|length| *length > 0)?;
                Some([&[length], id.as_bytes()].concat())
            });
            Some((1, ids.collect::<Option<Vec<_>>>()?.concat()))
        }
        "port" => Some((3, value.parse::<u16>().ok()?.to_be_bytes().to_vec())),
        "dohpath" => Some((7, value.as_bytes().to_vec())),
        _ => {
            let number = key.strip_prefix("key")?.parse::<u16>().ok()?;
            // Hints are what the addresses are for (RFC 9464 §3.1).
            (![4, 6].contains(&number)).then_some(())?;
            Some((number, hex(value)?))
        }
    }
}

/// `[name] hash digest` (RFC 9464 §3.2).
fn digest(text: &str) -> Option<Attribute> {
    let words: Vec<_> = text.split_whitespace().collect();
    let (name, hash, digest) = match words[..] {
        [hash, digest] => (String::new(), hash, digest),
        [name, hash, digest] => (domain(name.as_bytes())?, hash, digest),
        _ => return None,
    };
    let hashes = vec![hash.parse().ok()?];
    Some(Attribute::EncDigest(Some(EncDigest { name, hashes, digest: hex(digest)? })))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let octets: Option<Vec<u8>> = pairs.iter().map(octet).collect();
    octets.filter(|octets| rest.is_empty() && !octets.is_empty())
}

/// Attributes by their numbers: addresses, subnets, or else text, as strongSwan takes them.
fn numbered(s: &mut Section<'_>, all: &mut Vec<Attribute>, report: &mut Report) {
    for digit in ["1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        for (name, value) in s.with_prefix(digit) {
            let path = join(&s.path, name.get_ref());
            let kind = name.get_ref().parse::<u16>().ok().filter(|kind| *kind < 0x8000);
            let Some(kind) = kind else {
                let message = format!("`{path}` is no attribute type");
                report.expected(Place::of(name), message, "a number from 1 to 32767");
                continue;
            };
            let what = "addresses, subnets or text";
            for item in tree::list(&path, value, what, report).unwrap_or_default() {
                let value = match (item.text.parse(), subnet(item.text)) {
                    (Ok(IpAddr::V4(address)), _) => address.octets().to_vec(),
                    (Ok(IpAddr::V6(address)), _) => address.octets().to_vec(),
                    (_, Some((IpAddr::V4(address), length))) => {
                        Attribute::Ip4Subnet(Some((address, length))).value()
                    }
                    (_, Some((IpAddr::V6(address), length))) => {
                        Attribute::Ip6Subnet(Some((address, length))).value()
                    }
                    _ => item.text.as_bytes().to_vec(),
                };
                all.push(Attribute::Other(CfgAttribute(kind), value));
            }
        }
    }
}
