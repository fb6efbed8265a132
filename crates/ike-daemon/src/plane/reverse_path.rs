//! What the kernel's check of source addresses (`rp_filter`) does to tunnels, and what to set.
//!
//! It drops what arrives from an address to which its routes lead by another interface (1), or nowhere (1 and 2). Where
//! the `remote_ts` of a child cover the peer itself, the routes of the child have that effect: with ESP in user space they
//! lead into the TUN device. With ESP in the kernel they lead nowhere while a child that was up is down.

use std::net::IpAddr;

use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig};
use ike_proto::dataplane::TrafficSelector;

use super::{Choice, is_all};
use crate::config::Config;

const FOLDER: &str = "/proc/sys/net/ipv4/conf";

/// Interfaces that are named in the line.
const NAMED: usize = 5;

/// A sentence that says what to set if the kernel drops packets of a peer of `config`.
pub fn reverse_path(choice: Choice, config: &Config) -> Option<String> {
    let kernel = match choice {
        Choice::Kernel(_) => true,
        Choice::Userspace => false,
        Choice::None => return None,
    };
    let installs = config.plane.install_routes;
    installs.then(|| warning(kernel, &config.unresolved(), &filters())).flatten()
}

/// `rp_filter` of each interface, as it is in force.
fn filters() -> Vec<(String, u8)> {
    let of = |name: &str| -> Option<u8> {
        std::fs::read_to_string(format!("{FOLDER}/{name}/rp_filter")).ok()?.trim().parse().ok()
    };
    let all = of("all").unwrap_or_default();
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let interfaces = names.filter(|name| !["all", "default", "lo"].contains(&name.as_str()));
    let mut found: Vec<_> =
        interfaces.filter_map(|name| Some((name.clone(), of(&name)?.max(all)))).collect();
    // Early in the boot there is no other interface. Those that come take this value.
    if found.is_empty() {
        found.extend(of("default").map(|filter| ("default".to_owned(), filter.max(all))));
    }
    found.sort();
    found
}

fn warning(kernel: bool, config: &EndpointConfig, filters: &[(String, u8)]) -> Option<String> {
    let drops = |filter: u8| filter == 1 || kernel && filter == 2;
    let drops: Vec<&str> = filters
        .iter()
        .filter(|(_, filter)| drops(*filter))
        .map(|(name, _)| name.as_str())
        .collect();
    let first = drops.first()?;
    let children = config
        .connections
        .iter()
        .flat_map(|connection| connection.children.iter().map(move |child| (connection, child)));
    let mut meant = children.filter(|(connection, child)| {
        (!kernel || child.blocks_from().is_some()) && covers_peer(config, connection, child)
    });
    let (connection, child) = meant.next()?;
    let named = drops.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let of = format!("remote_ts of child {} of connection {}", child.name, connection.name);
    let set = |name: &str, value: u8| format!("net.ipv4.conf.{name}.rp_filter={value}");
    Some(match kernel {
        false => format!(
            "rp_filter is 1 on {named}: the kernel drops what the peer sends while {of} cover its address. On the interface \
             that leads to the peer loosen it, as by `sysctl -w {}`",
            set(first, 2)
        ),
        true => format!(
            "rp_filter is on for {named}: after the peer was away the kernel drops what it sends, for {of} cover its address. \
             On the interface that leads to the peer turn it off, as by `sysctl -w {} {}`, or make a child with `mode = pass` \
             for the peer",
            set("all", 0),
            set(first, 0)
        ),
    })
}

/// True if the routes of `child` take in the way to its peer.
fn covers_peer(
    config: &EndpointConfig,
    connection: &ConnectionConfig,
    child: &ChildConfig,
) -> bool {
    let peers: Vec<IpAddr> = connection
        .remote_addrs
        .iter()
        .filter_map(|spec| spec.host())
        .filter(IpAddr::is_ipv4)
        .collect();
    let has = |ts: &TrafficSelector, peer: IpAddr| {
        ts.start.is_ipv4() && (ts.start..=ts.end).contains(&peer)
    };
    let passes = |peer: IpAddr| {
        let pass = config.shunts.iter().filter(|shunt| !shunt.drop);
        pass.flat_map(|shunt| &shunt.remote_ts).any(|ts| has(ts, peer))
    };
    let remote = child.remote_ts.iter().flat_map(|spec| spec.resolved(peers.iter().copied()));
    let is_own = child.fixed_interfaces(connection).is_some_and(|(_, of_output)| of_output == 0);
    child.processing.policies
        && is_own
        && remote.filter(|ts| ts.start.is_ipv4()).any(|ts| {
            // The name of a peer that has no address yet may get any.
            connection.remote_addrs.is_empty() && is_all(&ts)
                || peers.iter().any(|peer| has(&ts, *peer) && !passes(*peer))
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn said(kernel: bool, children: &str, filter: u8) -> Option<String> {
        let text = format!(
            "[connections.home]\nremote_addrs = '192.0.2.9'\nvips = '0.0.0.0'\n\
             [connections.home.local]\nauth = 'psk'\nid = 'a'\n\
             [connections.home.remote]\nauth = 'psk'\nid = 'b'\n{children}\n\
             [secrets.ike]\nsecret = 'a secret of this test'\n"
        );
        let config = crate::config::parse(&text, Path::new("/")).unwrap();
        warning(kernel, &config.unresolved(), &[("e0".to_owned(), 0), ("e1".to_owned(), filter)])
    }

    /// Faults: in `warning`, leave out `drops`, or `blocks_from`; in `covers_peer`, leave out `has`, or `passes`.
    #[test]
    fn the_start_says_what_to_set_for_the_peer_of_a_full_tunnel() {
        let full =
            "[connections.home.children.net]\nremote_ts = '0.0.0.0/0'\nstart_action = 'trap'\n";
        let user = |children: &str, filter| said(false, children, filter);
        let kernel = |children: &str, filter| said(true, children, filter);
        let line = user(full, 1).unwrap();
        assert!(line.contains("`sysctl -w net.ipv4.conf.e1.rp_filter=2`"), "{line}");
        assert_eq!(user(full, 2), None);
        assert_eq!(user(&full.replace("0.0.0.0/0", "10.2.0.0/16"), 1), None);
        let line = kernel(full, 2).unwrap();
        assert!(line.contains("net.ipv4.conf.e1.rp_filter=0`"), "{line}");
        assert!(kernel(full, 1).is_some());
        assert_eq!(kernel(full, 0), None);
        assert_eq!(kernel(&full.replace("trap", "none"), 1), None);
        let pass = "[connections.home.children.peer]\nmode = 'pass'\nstart_action = 'trap'\n\
                    local_ts = '0.0.0.0/0'\nremote_ts = '192.0.2.9/32'\n";
        assert_eq!(user(&format!("{full}{pass}"), 1), None);
    }
}
