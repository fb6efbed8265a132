//! The SSH connection of the shell that runs this program, and the children that hold its packets while they are down.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ike_proto::config::{Action, ChildConfig, ConnectionConfig, FailureShunt, TsSpec};
use ike_proto::dataplane::TrafficSelector;

use crate::config::Config;
use crate::plane::{is_all, is_not_global, is_on_the_link};

/// How many ancestors of this process are examined.
const ANCESTORS: usize = 32;
const TCP: u8 = 6;

/// The two ends of an SSH connection, as this host sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ssh {
    peer: (IpAddr, u16),
    own: (IpAddr, u16),
}

impl Ssh {
    /// The SSH connection of this process, or of its nearest ancestor that has one: sudo does not pass `SSH_CONNECTION` on.
    pub(super) fn here() -> Option<Self> {
        if let Ok(text) = std::env::var("SSH_CONNECTION") {
            return Self::parse(&text);
        }
        let mut process = "self".to_owned();
        for _ in 0..ANCESTORS {
            let folder = PathBuf::from("/proc").join(&process);
            let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
            let found = environment.split(|octet| *octet == 0).find_map(|variable| {
                let text = std::str::from_utf8(variable).ok()?;
                Self::parse(text.strip_prefix("SSH_CONNECTION=")?)
            });
            if found.is_some() {
                return found;
            }
            let status = std::fs::read_to_string(folder.join("status")).ok()?;
            process = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_owned();
        }
        None
    }

    /// `CLIENT PORT SERVER PORT`.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut end = || {
            // A link-local address is followed by the name of the link.
            let address: IpAddr = words.next()?.split('%').next()?.parse().ok()?;
            Some((address.to_canonical(), words.next()?.parse().ok()?))
        };
        Some(Self { peer: end()?, own: end()? })
    }

    /// A warning for each child of `config` that holds packets of this connection while the child is down.
    pub(super) fn warnings(&self, config: &Config) -> Vec<String> {
        let endpoint = &config.endpoint;
        let near = config.plane.bypass_lan && is_near(self.peer.0);
        let passes = endpoint.shunts.iter().any(|shunt| {
            let of = |list: &[TrafficSelector], end| list.iter().any(|ts| has(ts, end));
            !shunt.drop && of(&shunt.local_ts, self.own) && of(&shunt.remote_ts, self.peer)
        });
        let children = endpoint.connections.iter().flat_map(|connection| {
            connection.children.iter().map(move |child| (connection, child))
        });
        let held = children.filter(|(connection, child)| self.is_held(connection, child, near));
        let warning = |(connection, child): (&Arc<ConnectionConfig>, &Arc<ChildConfig>)| {
            let (peer, name, child) = (self.peer.0, &connection.name, &child.name);
            format!(
                "connection {name}, child {child}: while the child is down, it holds packets to {peer}, from where the SSH \
                 connection of this shell comes; set `hold = no` in the child, or add a child with `mode = pass` for {peer}"
            )
        };
        held.filter(|_| !passes).map(warning).collect()
    }

    fn is_held(&self, connection: &ConnectionConfig, child: &ChildConfig, near: bool) -> bool {
        let holds = child.hold
            && child.start_action != Action::None
            && child.failure_shunt != FailureShunt::Passthrough
            && child.processing.policies;
        let hosts = |specs: &[ike_proto::config::AddressSpec]| -> Vec<IpAddr> {
            specs.iter().filter_map(|spec| spec.host()).collect()
        };
        let remote = child.remote_ts.iter().any(|spec| match spec {
            TsSpec::Fixed(ts) => has(ts, self.peer) && !(near && is_all(ts)),
            TsSpec::Dynamic { .. } => hosts(&connection.remote_addrs)
                .iter()
                .any(|host| has(&spec.resolve(*host), self.peer)),
        });
        // Without `local_addrs`, or with virtual IPs, `dynamic` may be each address of this host.
        let own = hosts(&connection.local_addrs);
        let anywhere = own.is_empty() || !connection.vips.is_empty();
        let local = || {
            child.local_ts.iter().any(|spec| match spec {
                TsSpec::Fixed(ts) => has(ts, self.own),
                TsSpec::Dynamic { .. } if anywhere => has(&spec.resolve(self.own.0), self.own),
                TsSpec::Dynamic { .. } => {
                    own.iter().any(|host| has(&spec.resolve(*host), self.own))
                }
            })
        };
        holds && remote && local()
    }
}

/// True if the selector covers this end of the connection.
fn has(ts: &TrafficSelector, (address, port): (IpAddr, u16)) -> bool {
    (ts.start..=ts.end).contains(&address)
        && ts.start.is_ipv4() == address.is_ipv4()
        && (ts.protocol == 0 || ts.protocol == TCP)
        && (ts.start_port..=ts.end_port).contains(&port)
}

/// True for an address on a link of this host that stays reachable beside a full tunnel.
fn is_near(address: IpAddr) -> bool {
    let attached = || match address {
        IpAddr::V4(address) => is_on_link_v4(address, &read("/proc/net/route")),
        IpAddr::V6(address) => is_on_link_v6(address, &read("/proc/net/ipv6_route")),
    };
    is_on_the_link(address) || is_not_global(address) && attached()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Reads /proc/net/route: interface, destination, gateway, five numbers and a mask in each line. Addresses are in the
/// processor's order of octets.
fn is_on_link_v4(address: Ipv4Addr, table: &str) -> bool {
    let address = u32::from_ne_bytes(address.octets());
    let takes = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (to, gateway, mask) = (number(1)?, number(2)?, number(7)?);
        Some(gateway == 0 && mask != 0 && address & mask == to)
    };
    table.lines().filter_map(takes).any(|takes| takes)
}

/// Reads /proc/net/ipv6_route: each line begins with a destination, its prefix length, a source, its prefix length and the
/// next hop.
fn is_on_link_v6(address: Ipv6Addr, table: &str) -> bool {
    let takes = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let to = u128::from_str_radix(words.first()?, 16).ok()?;
        let length = u32::from_str_radix(words.get(1)?, 16).ok()?;
        let differs = u128::from(address) ^ to;
        let is_in = (1..=128).contains(&length) && differs.leading_zeros() >= length;
        Some(is_in && words.get(4)?.bytes().all(|digit| digit == b'0'))
    };
    table.lines().filter_map(takes).any(|takes| takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(ssh: &str, children: &str) -> usize {
        let text = format!(
            "[connections.home]\nremote_addrs = '192.0.2.9'\nvips = '0.0.0.0'\n\
             [connections.home.local]\nauth = 'psk'\nid = 'a'\n\
             [connections.home.remote]\nauth = 'psk'\nid = 'b'\n{children}\n\
             [secrets.ike]\nsecret = 'a secret of this test'\n"
        );
        let config = crate::config::parse(&text, std::path::Path::new("/")).unwrap();
        Ssh::parse(ssh).unwrap().warnings(&config).len()
    }

    const FAR: &str = "198.51.100.7 50000 192.0.2.1 22";

    /// Faults: in `is_held`, leave out `hold`, or the local side; in `warnings`, leave out `passes`.
    #[test]
    fn a_child_that_holds_the_answers_of_this_shell_is_named() {
        let full =
            "[connections.home.children.net]\nremote_ts = '0.0.0.0/0'\nstart_action = 'trap'\n";
        assert_eq!(warnings(FAR, full), 1);
        assert_eq!(warnings("::ffff:198.51.100.7 50000 ::ffff:192.0.2.1 22", full), 1);
        assert_eq!(warnings("2001:db8::7 50000 2001:db8::1 22", full), 0, "of the other family");
        assert_eq!(warnings(FAR, &format!("{full}hold = 'no'\n")), 0);
        assert_eq!(warnings(FAR, &full.replace("trap", "none")), 0);
        assert_eq!(warnings(FAR, &format!("{full}local_ts = '10.1.0.0/16'\n")), 0);
        assert_eq!(warnings(FAR, &full.replace("0.0.0.0/0", "0.0.0.0/0[udp]")), 0);
        let pass = "[connections.home.children.ssh]\nmode = 'pass'\nstart_action = 'trap'\n\
                    local_ts = '0.0.0.0/0'\nremote_ts = '198.51.100.0/24'\n";
        assert_eq!(warnings(FAR, &format!("{full}{pass}")), 0);
    }

    #[test]
    fn a_host_on_the_link_stays_reachable() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                     e0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\n\
                     e0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";
        if cfg!(target_endian = "little") {
            assert!(is_on_link_v4("192.168.1.7".parse().unwrap(), table));
            assert!(!is_on_link_v4("192.168.2.7".parse().unwrap(), table));
        }
        let table = "fd010000000000000000000000000000 40 0 00 00000000000000000000000000000000 0 0 0 1 e0\n\
                     00000000000000000000000000000000 00 0 00 fe800000000000000000000000000001 0 0 0 3 e0\n"
            .replace(" 0 00 ", " 00000000000000000000000000000000 00 ");
        assert!(is_on_link_v6("fd01::7".parse().unwrap(), &table));
        assert!(!is_on_link_v6("fd02::7".parse().unwrap(), &table));
    }
}
