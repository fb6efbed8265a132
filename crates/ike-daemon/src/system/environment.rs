//! The environment of an `updown` program, with the variables of strongSwan's.

use std::net::IpAddr;
use std::sync::Arc;

use ike_proto::dataplane::{Encapsulation, TrafficSelector};
use ike_proto::wire::payload::Attribute;
use ike_proto::{Assignment, ChildStatus, IkeStatus};

use super::encdns;

/// Runs of a program for one child. The peer chooses how many selectors there are.
const MOST_PAIRS: usize = 32;
/// Variables that come of what the other end has configured this one with.
const MOST_CONFIGURED: usize = 64;

/// The variables of one run, but for the verb; both runs get the same.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// `host` or `client`, and `-v6` for IPv6.
    what: String,
    /// What all runs for a child have in common.
    common: Arc<[(String, String)]>,
    pair: Vec<(String, String)>,
}

impl Environment {
    /// One for each pair of traffic selectors of one family, as strongSwan does it, up to a limit.
    pub(super) fn of(ike: &IkeStatus, child: &ChildStatus) -> Vec<Self> {
        let common = common(ike, child);
        let me = ike.path.local.ip().to_canonical();
        let (all, pairs) = Self::pairs(common, me, &child.local_ts, &child.remote_ts);
        if pairs > all.len() {
            let connection = ike.connection.as_str();
            let (child, runs) = (child.name.as_str(), all.len());
            tracing::warn!(
                connection,
                child,
                pairs,
                runs,
                "updown is not run for every pair of selectors"
            );
        }
        all
    }

    /// The first of them, and how many there are.
    fn pairs(
        mut common: Vec<(String, String)>,
        me: IpAddr,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> (Vec<Self>, usize) {
        let ipv4 = |all: &[TrafficSelector]| all.iter().filter(|ts| ts.start.is_ipv4()).count();
        let (mine, theirs) = (ipv4(local), ipv4(remote));
        let count = mine * theirs + (local.len() - mine) * (remote.len() - theirs);
        if count > MOST_PAIRS {
            let all = |all: &[TrafficSelector]| {
                all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            };
            common
                .push(("PLUTO_ALL_CLIENTS".to_owned(), format!("{} {}", all(local), all(remote))));
        }
        let common: Arc<[_]> = common.into();
        let pairs = local.iter().flat_map(|mine| remote.iter().map(move |theirs| (mine, theirs)));
        let pairs = pairs.filter(|(mine, theirs)| mine.start.is_ipv4() == theirs.start.is_ipv4());
        let environments = pairs.take(MOST_PAIRS).map(|(local, remote)| {
            let host = local.start == me && local.end == me;
            let kind = if host { "host" } else { "client" };
            let family = if local.start.is_ipv4() { "" } else { "-v6" };
            let mut pair = Vec::with_capacity(6);
            for (side, ts) in [("MY", local), ("PEER", remote)] {
                pair.push((format!("PLUTO_{side}_CLIENT"), subnet(ts)));
                pair.push((format!("PLUTO_{side}_PORT"), ports(ts)));
                pair.push((format!("PLUTO_{side}_PROTOCOL"), ts.protocol.to_string()));
            }
            Self { what: format!("{kind}{family}"), common: Arc::clone(&common), pair }
        });
        (environments.collect(), count)
    }

    /// All variables of the run when the child comes up, or ends.
    pub(super) fn variables(&self, up: bool) -> Vec<(String, String)> {
        let verb = if up { "up" } else { "down" };
        let verb = ("PLUTO_VERB".to_owned(), format!("{verb}-{}", self.what));
        let all = std::iter::once(&verb).chain(&*self.common).chain(&self.pair);
        all.map(|(name, value)| (name.clone(), harmless(value))).collect()
    }

    /// The child's name.
    pub(super) fn child(&self) -> String {
        let name = self.common.iter().find(|(name, _)| name == "PLUTO_CONNECTION");
        name.map_or_else(|| "?".to_owned(), |(_, child)| harmless(child))
    }

    #[cfg(test)]
    pub(super) fn with(common: Vec<(String, String)>) -> Self {
        Self { what: "client".to_owned(), common: common.into(), pair: Vec::new() }
    }
}

/// Control characters, which would make two lines or a command to a terminal out of one value, as `\xNN`.
fn harmless(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if c.is_control() {
            let mut octets = [0; 4];
            out.extend(c.encode_utf8(&mut octets).bytes().map(|octet| format!("\\x{octet:02x}")));
        } else {
            out.push(c);
        }
    }
    out
}

fn common(ike: &IkeStatus, child: &ChildStatus) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut put = |name: &str, value: String| all.push((name.to_owned(), value));
    let me = ike.path.local.ip().to_canonical();
    put("PLUTO_VERSION", "1.1".to_owned());
    // The child's name, as strongSwan has it; the connection's beside it.
    put("PLUTO_CONNECTION", child.name.clone());
    put("PLUTO_IKE_CONNECTION", ike.connection.clone());
    put("PLUTO_INTERFACE", interface(me).unwrap_or_else(|| "unknown".to_owned()));
    put("PLUTO_REQID", child.policy.0.to_string());
    put("PLUTO_PROTO", "esp".to_owned());
    put("PLUTO_UNIQUEID", ike.id.0.to_string());
    put("PLUTO_ME", me.to_string());
    put("PLUTO_PEER", ike.path.remote.ip().to_canonical().to_string());
    for (name, id) in [("PLUTO_MY_ID", &ike.local_id), ("PLUTO_PEER_ID", &ike.remote_id)] {
        put(name, id.as_ref().map(ToString::to_string).unwrap_or_default());
    }
    let processing = &child.processing;
    for (name, mark) in
        [("PLUTO_MARK_IN", processing.mark_in), ("PLUTO_MARK_OUT", processing.mark_out)]
    {
        if mark.value != 0 {
            put(name, format!("{}/0x{:08x}", mark.value, mark.mask));
        }
    }
    for (name, id) in
        [("PLUTO_IF_ID_IN", processing.if_id_in), ("PLUTO_IF_ID_OUT", processing.if_id_out)]
    {
        if id != 0 {
            put(name, id.to_string());
        }
    }
    if let Some(Encapsulation::Udp(ports)) = child.encap {
        put("PLUTO_UDP_ENC", ports.dst_port.to_string());
    }
    if child.config.hostaccess {
        put("PLUTO_HOST_ACCESS", "1".to_owned());
    }
    if let Some(assignment) = &ike.assignment {
        assigned(assignment, &mut all);
    }
    all
}

/// What a configuration payload has brought, or given.
fn assigned(assignment: &Assignment, all: &mut Vec<(String, String)>) {
    let most = all.len() + MOST_CONFIGURED;
    let mut put = |name: &str, value: String| {
        if all.len() < most {
            all.push((name.to_owned(), value));
        }
    };
    let side = if assignment.ours { "MY" } else { "PEER" };
    if let Some(first) = assignment.addresses.first() {
        put(&format!("PLUTO_{side}_SOURCEIP"), first.to_string());
    }
    families(&assignment.addresses, &format!("PLUTO_{side}_SOURCEIP"), &mut put);
    if assignment.ours {
        let servers: Vec<_> = assignment.attributes.iter().filter_map(Attribute::dns).collect();
        families(&servers, "PLUTO_DNS", &mut put);
        configured(&assignment.attributes, &mut put);
    }
}

/// Split and encrypted DNS, which strongSwan has no variables for.
fn configured(attributes: &[Attribute], put: &mut impl FnMut(&str, String)) {
    let (mut domains, mut resolvers, mut digests, mut subnets) = (0, 0, 0, 0);
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    for attribute in attributes {
        match attribute {
            Attribute::DnsDomain(Some(name)) => {
                domains += 1;
                put(&format!("PLUTO_DNS_DOMAIN_{domains}"), name.clone());
            }
            Attribute::EncDns(_, Some(resolver)) => {
                resolvers += 1;
                put(&format!("PLUTO_ENCDNS_{resolvers}"), encdns::line(resolver));
            }
            Attribute::EncDigest(Some(digest)) => {
                digests += 1;
                let hash = digest.hashes.first().copied().unwrap_or_default();
                put(
                    &format!("PLUTO_ENCDNS_DIGEST_{digests}"),
                    format!("name={} hash={hash} digest={}", digest.name, hex(&digest.digest)),
                );
            }
            Attribute::Ip4Subnet(Some((address, length))) => {
                subnets += 1;
                put(&format!("PLUTO_SUBNET_{subnets}"), format!("{address}/{length}"));
            }
            Attribute::Ip6Subnet(Some((address, length))) => {
                subnets += 1;
                put(&format!("PLUTO_SUBNET_{subnets}"), format!("{address}/{length}"));
            }
            _ => {}
        }
    }
}

/// Variables `<prefix>4_1`, `<prefix>4_2`, `<prefix>6_1` and so on.
fn families(addresses: &[IpAddr], prefix: &str, put: &mut impl FnMut(&str, String)) {
    for (family, ipv4) in [("4", true), ("6", false)] {
        let own = addresses.iter().filter(|address| address.is_ipv4() == ipv4);
        for (number, address) in (1..).zip(own) {
            put(&format!("{prefix}{family}_{number}"), address.to_string());
        }
    }
}

/// The smallest subnet that has all of the range in it.
fn subnet(ts: &TrafficSelector) -> String {
    let (start, end, width) = match (ts.start, ts.end) {
        (IpAddr::V4(start), IpAddr::V4(end)) => {
            (u128::from(u32::from(start)) << 96, u128::from(u32::from(end)) << 96, 32)
        }
        (IpAddr::V6(start), IpAddr::V6(end)) => (start.into(), end.into(), 128),
        // There is no such range.
        _ => return ts.start.to_string(),
    };
    let length = (start ^ end).leading_zeros().min(width);
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    let network = start & mask;
    let network: IpAddr = match ts.start {
        IpAddr::V4(_) => std::net::Ipv4Addr::from((network >> 96) as u32).into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::from(network).into(),
    };
    format!("{network}/{length}")
}

/// One port, 0 for any, or a range.
fn ports(ts: &TrafficSelector) -> String {
    match (ts.start_port, ts.end_port) {
        (0, u16::MAX) => "0".to_owned(),
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start}:{end}"),
    }
}

/// The interface that has `address`.
fn interface(address: IpAddr) -> Option<String> {
    let all = nix::ifaddrs::getifaddrs().ok()?;
    let mut found = all.filter(|one| {
        let Some(storage) = &one.address else { return false };
        match address {
            IpAddr::V4(v4) => storage.as_sockaddr_in().is_some_and(|own| own.ip() == v4),
            IpAddr::V6(v6) => storage.as_sockaddr_in6().is_some_and(|own| own.ip() == v6),
        }
    });
    found.next().map(|one| one.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_subnets_and_ports() {
        let of = |text: &str| {
            let ts: TrafficSelector = text.parse().unwrap();
            (subnet(&ts), ports(&ts))
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("10.1.0.0/16"), pair("10.1.0.0/16", "0"));
        assert_eq!(of("10.1.0.5..10.1.0.9[tcp/80]"), pair("10.1.0.0/28", "80"));
        assert_eq!(of("0.0.0.0/0[udp/5-9]"), pair("0.0.0.0/0", "5:9"));
        assert_eq!(of("fec1::7"), pair("fec1::7/128", "0"));
        assert_eq!(of("::/0"), pair("::/0", "0"));
        assert_eq!(of("10.3.0.1"), pair("10.3.0.1/32", "0"));
    }

    #[test]
    fn a_peer_with_many_selectors_gets_a_few_runs_and_one_list() {
        let ts = |of: &dyn Fn(u8) -> String| -> Vec<TrafficSelector> {
            (0..255).map(|n| of(n).parse().unwrap()).collect()
        };
        let (local, remote) =
            (ts(&|n| format!("10.1.{n}.0/24")), ts(&|n| format!("10.2.{n}.1[tcp/80]")));
        let me = "192.0.2.1".parse().unwrap();
        let (few, count) = Environment::pairs(vec![("A".into(), "b".into())], me, &local, &remote);
        assert_eq!((few.len(), count), (MOST_PAIRS, 255 * 255));
        assert!(few.iter().all(|one| Arc::ptr_eq(&one.common, &few[0].common)));
        let variables = few[31].variables(false);
        let value = |name: &str| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        assert_eq!((value("PLUTO_VERB"), value("A")), (Some("down-client"), Some("b")));
        assert_eq!(value("PLUTO_PEER_CLIENT"), Some("10.2.31.1/32"));
        let list = value("PLUTO_ALL_CLIENTS").unwrap();
        assert!(list.starts_with("10.1.0.0/24,10.1.1.0/24,"), "{list}");
        assert!(list.ends_with(",10.2.254.1/32[tcp/80]"), "{list}");
        // One string of an environment has room for 128 KiB.
        assert!(list.len() < 64 << 10);
        let six: Vec<TrafficSelector> = vec!["fec1::/64".parse().unwrap()];
        let both = [&local[..2], &six].concat();
        let (all, count) = Environment::pairs(Vec::new(), me, &both, &both);
        assert_eq!((all.len(), count), (5, 5));
        assert!(!all[0].variables(true).iter().any(|(name, _)| name == "PLUTO_ALL_CLIENTS"));
        assert_eq!(all[4].variables(true)[0].1, "up-client-v6");
    }

    #[test]
    fn a_gateway_with_many_attributes_makes_few_variables() {
        let domain = |n: u32| Attribute::DnsDomain(Some(format!("d{n}.example.org")));
        let at = |host| ([192, 0, 2, host], 4500).into();
        let assignment = Assignment {
            ike: ike_proto::IkeSaId(1),
            connection: "rw".to_owned(),
            ours: true,
            pools: Vec::new(),
            peer: ike_proto::wire::payload::IdData::fqdn("gw"),
            path: ike_proto::Path {
                local: at(1),
                remote: at(2),
                transport: ike_proto::Transport::UdpEncap,
            },
            addresses: vec!["10.3.0.1".parse().unwrap()],
            attributes: (0..5000).map(domain).collect(),
        };
        let mut all = vec![("PLUTO_ME".to_owned(), "192.0.2.1".to_owned())];
        assigned(&assignment, &mut all);
        assert_eq!(all.len(), 1 + MOST_CONFIGURED);
        assert_eq!(all[1], ("PLUTO_MY_SOURCEIP".to_owned(), "10.3.0.1".to_owned()));
        assert_eq!(all[3], ("PLUTO_DNS_DOMAIN_1".to_owned(), "d0.example.org".to_owned()));
    }

    #[test]
    fn control_characters_are_written_out() {
        assert_eq!(
            harmless("carol\nPATH=/tmp\u{1b}[2J\u{85}é'"),
            "carol\\x0aPATH=/tmp\\x1b[2J\\xc2\\x85é'"
        );
    }
}
