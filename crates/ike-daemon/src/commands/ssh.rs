//! The SSH connection of the shell that runs this program, and the children that block its packets while they are down.

use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ike_proto::config::{AddressSpec, ChildConfig, ConnectionConfig, Since, TsSpec};
use ike_proto::dataplane::TrafficSelector;

use crate::config::Config;
use crate::plane::{is_all, is_not_global, is_on_the_link};

/// How many ancestors of this process are examined.
const ANCESTORS: usize = 32;
/// How much of a process's environment is read, in octets.
const LONGEST: u64 = 1 << 20;
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
            let environment = head(&folder.join("environ")).unwrap_or_default();
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

    /// A warning for each child of `config` that blocks packets of this connection from the start, while the child is down.
    pub(super) fn warnings(&self, config: &Config) -> Vec<String> {
        let endpoint = config.unresolved();
        let near = config.plane.bypass_lan && is_near(self.peer.0);
        let passes = endpoint.shunts.iter().any(|shunt| {
            let of = |list: &[TrafficSelector], end| list.iter().any(|ts| has(ts, end));
            !shunt.drop && of(&shunt.local_ts, self.own) && of(&shunt.remote_ts, self.peer)
        });
        let children = endpoint.connections.iter().flat_map(|connection| {
            connection.children.iter().map(move |child| (connection, child))
        });
        let warning = |(connection, child): (&Arc<ConnectionConfig>, &Arc<ChildConfig>)| {
            let (does, set) = match child.blocks_from()? {
                Since::Up => return None,
                Since::Start => ("`failureshunt` blocks", "add"),
                Since::Held => ("it holds", "set `hold = no` in the child, or add"),
            };
            let (peer, name) = (self.peer.0, &connection.name);
            self.is_blocked(connection, child, near).then(|| {
                format!(
                    "connection {name}, child {}: while the child is down, {does} packets to {peer}, from where the SSH \
                     connection of this shell comes; {set} a child with `mode = pass` for {peer}",
                    child.name
                )
            })
        };
        if passes { Vec::new() } else { children.filter_map(warning).collect() }
    }

    /// True if `child` covers this connection. `near`: the SSH client stays reachable beside a full tunnel.
    fn is_blocked(&self, connection: &ConnectionConfig, child: &ChildConfig, near: bool) -> bool {
        let hosts = |specs: &[AddressSpec]| -> Vec<IpAddr> {
            specs.iter().filter_map(|spec| spec.host()).collect()
        };
        // Without `local_addrs`, or with virtual IPs, `dynamic` may be each address of this host.
        let mut own = hosts(&connection.local_addrs);
        if own.is_empty() || !connection.vips.is_empty() {
            own = vec![self.own.0];
        }
        let peers = hosts(&connection.remote_addrs);
        let of = |specs: &[TsSpec], hosts: &[IpAddr], end| -> Vec<TrafficSelector> {
            let all = specs.iter().flat_map(|spec| spec.resolved(hosts.iter().copied()));
            all.filter(|ts| has(ts, end)).collect()
        };
        let remote = of(&child.remote_ts, &peers, self.peer);
        of(&child.local_ts, &own, self.own).iter().any(|local| {
            // A child from all addresses blocks packets to networks on links as well.
            remote.iter().any(|remote| !(near && is_all(remote) && !is_all(local)))
        }) && child.fixed_interfaces(connection).is_some()
    }
}

/// The beginning of a file. The environment of another user's process may be of any length.
fn head(file: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    std::fs::File::open(file)?.take(LONGEST).read_to_end(&mut head)?;
    Ok(head)
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
    let attached = || {
        let networks = routes::networks().unwrap_or_default();
        let mut attached = networks.iter().filter(|near| near.attached && !near.own);
        attached.any(|near| {
            let network = TrafficSelector::from_cidr(near.address, near.len);
            network.is_some_and(|network| has(&network, (address, 0)))
        })
    };
    is_on_the_link(address) || is_not_global(address) && attached()
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
        let config = crate::config::parse(&text, Path::new("/")).unwrap();
        Ssh::parse(ssh).unwrap().warnings(&config).len()
    }

    const FAR: &str = "198.51.100.7 50000 192.0.2.1 22";

    /// Faults: in `is_blocked`, leave out the local side, or the peers; in `warnings`, leave out `passes`, or take `Since::Start` for
    /// `Since::Up`.
    #[test]
    fn a_child_that_blocks_the_answers_of_this_shell_is_named() {
        let full =
            "[connections.home.children.net]\nremote_ts = '0.0.0.0/0'\nstart_action = 'trap'\n";
        assert_eq!(warnings(FAR, full), 1);
        assert_eq!(warnings("::ffff:198.51.100.7 50000 ::ffff:192.0.2.1 22", full), 1);
        let host = full.replace("remote_ts = '0.0.0.0/0'\n", "");
        assert_eq!(warnings("192.0.2.9 50000 192.0.2.1 22", &host), 1, "between hosts");
        assert_eq!(warnings(FAR, &host), 0);
        assert_eq!(warnings("2001:db8::7 50000 2001:db8::1 22", full), 0, "of the other family");
        assert_eq!(warnings(FAR, &format!("{full}hold = 'no'\n")), 0);
        assert_eq!(warnings(FAR, &full.replace("trap", "none")), 0);
        assert_eq!(warnings(FAR, &format!("{full}local_ts = '10.1.0.0/16'\n")), 0);
        assert_eq!(warnings(FAR, &full.replace("0.0.0.0/0", "0.0.0.0/0[udp]")), 0);
        let reject = full
            .replace("0.0.0.0/0'", "0.0.0.0/0'\nlocal_ts = '0.0.0.0/0'\nfailureshunt = 'reject'");
        assert_eq!(warnings(FAR, &format!("{reject}hold = 'no'\n")), 1);
        let pass = "[connections.home.children.ssh]\nmode = 'pass'\nstart_action = 'trap'\n\
                    local_ts = '0.0.0.0/0'\nremote_ts = '198.51.100.0/24'\n";
        assert_eq!(warnings(FAR, &format!("{full}{pass}")), 0);
    }
}
