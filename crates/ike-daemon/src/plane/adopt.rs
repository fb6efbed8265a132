//! `--keep-sas`: the children of an earlier run that are still configured.
//!
//! Nothing is written to disk for this. The kernel's policies identify a child, and the current configuration
//! decides whether it may stay.

use std::time::Duration;

use ike_proto::config::{AddressSpec, ChildConfig, TsSpec};
use ike_proto::dataplane::{Mode, TrafficSelector};
use ike_tokio::Adopted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use xfrm::plane::Orphan;
use xfrm::policy::PolicyDirection;
use xfrm::selector::{Port, Prefix, Selector};

use crate::config::{Config, HostSpec};

/// What a child without `life_time` has, if nobody brings it up again.
const LIFE: Duration = Duration::from_secs(66 * 60);

/// The child of `config` that `orphan` was, and how long it may stay.
pub(super) fn find(config: &Config, orphan: &Orphan) -> Option<(Adopted, Duration)> {
    config.endpoint.connections.iter().find_map(|connection| {
        let hosts = config.hosts.get(&connection.name)?;
        let (local, remote) = (orphan.outer.local, orphan.outer.remote);
        if !may_be(&hosts.local, local) || !may_be(&hosts.remote, remote) {
            return None;
        }
        let child = connection.children.iter().find(|child| covers(child, orphan))?;
        let (connection, life) = (connection.name.clone(), child.life_time);
        let adopted = Adopted { connection, child: child.name.clone(), local, remote };
        Some((adopted, if life.is_zero() { LIFE } else { life }))
    })
}

/// A name may stand for any address: it is not known yet which. So may an end that the kernel does not say.
fn may_be(hosts: &[HostSpec], address: IpAddr) -> bool {
    address.is_unspecified()
        || hosts.iter().any(|host| match host {
            HostSpec::Address(spec) => AddressSpec::contains(*spec, address),
            HostSpec::Name(_) => true,
        })
}

/// True if `child` may have negotiated what `orphan` protects.
fn covers(child: &ChildConfig, orphan: &Orphan) -> bool {
    // In place of another mode that the peer would not have there is tunnel mode.
    let mode = orphan.outer.mode;
    if mode != child.mode && (mode != Mode::Tunnel || child.mode == Mode::Tunnel) {
        return false;
    }
    let within = |specs: &[TsSpec], host: IpAddr, ts: TrafficSelector| {
        specs.iter().any(|spec| spec.resolve(host).contains(&ts))
    };
    let mut outward = orphan
        .policies
        .iter()
        .map(|info| info.policy.id)
        .filter(|id| id.direction == PolicyDirection::Out)
        .peekable();
    outward.peek().is_some()
        && outward.all(|id| {
            let (local, remote) = selectors(&id.selector);
            within(&child.local_ts, orphan.outer.local, local)
                && within(&child.remote_ts, orphan.outer.remote, remote)
        })
}

/// The two ends of an outward selector.
pub(super) fn selectors(selector: &Selector) -> (TrafficSelector, TrafficSelector) {
    let local = range(selector.src, selector.protocol, selector.src_port);
    (local, range(selector.dst, selector.protocol, selector.dst_port))
}

/// A selector of the kernel's as one of IKE's.
fn range(prefix: Prefix, protocol: u8, port: Port) -> TrafficSelector {
    let end = match prefix.address {
        IpAddr::V4(first) => {
            let host = u32::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
            Ipv4Addr::from(u32::from(first) | host).into()
        }
        IpAddr::V6(first) => {
            let host = u128::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
            Ipv6Addr::from(u128::from(first) | host).into()
        }
    };
    TrafficSelector {
        protocol,
        start_port: port.value & port.mask,
        end_port: port.value | !port.mask,
        start: prefix.address,
        end,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ike_proto::dataplane::Outer;
    use xfrm::policy::{Action, Policy, PolicyId, PolicyInfo};

    use super::*;

    const CONFIG: &str = r#"
        [connections.site]
        local_addrs = ["192.0.2.1"]
        remote_addrs = ["198.51.100.0/24"]
        [connections.site.local]
        auth = "psk"
        [connections.site.remote]
        auth = "psk"
        [connections.site.children.net]
        local_ts = ["10.1.0.0/16"]
        remote_ts = ["10.2.0.0/16"]
        life_time = "2h"
        [connections.site.children.hosts]
        mode = "transport"
        life_time = "0"
        [connections.named]
        remote_addrs = ["peer.example.org"]
        [connections.named.local]
        auth = "psk"
        [connections.named.remote]
        auth = "psk"
        [connections.named.children.web]
        local_ts = ["10.1.0.0/16"]
        remote_ts = ["10.3.0.0/16[tcp/443]"]
    "#;

    fn orphan(mode: Mode, ends: [&str; 2], local: &str, remote: &str, port: Port) -> Orphan {
        let [local_end, remote_end] = ends.map(|end| end.parse().unwrap());
        let net = |text: &str| {
            let (address, length) = text.split_once('/').unwrap();
            Prefix::new(address.parse().unwrap(), length.parse().unwrap())
        };
        let protocol = if port.mask == 0 { 0 } else { 6 };
        let between = Selector::between(net(local), net(remote));
        let selector = Selector { protocol, dst_port: port, ..between };
        let direction = PolicyDirection::Out;
        let id = PolicyId { selector, direction, mark: Default::default(), if_id: 0 };
        let policy = Policy::new(id, 1, Action::Block);
        Orphan {
            reqid: 1,
            outer: Outer { mode, local: local_end, remote: remote_end },
            policies: vec![PolicyInfo { policy, index: 1, added: 0, last_used: 0 }],
            states: Vec::new(),
        }
    }

    #[test]
    fn what_is_still_configured_is_found_by_what_the_kernel_has() {
        let config = crate::config::parse(CONFIG, Path::new("")).unwrap();
        let name = |mode, ends, local, remote, port| {
            let found = find(&config, &orphan(mode, ends, local, remote, port));
            found.map(|(adopted, life)| (adopted.child, life.as_secs()))
        };
        let ends = ["192.0.2.1", "198.51.100.7"];
        let (any, https) = (Port::default(), Port::exact(443));
        let some = |name: &str, life| Some((name.to_owned(), life));
        use Mode::{Transport, Tunnel};
        assert_eq!(name(Tunnel, ends, "10.1.0.0/16", "10.2.0.0/16", any), some("net", 7200));
        assert_eq!(name(Tunnel, ends, "10.1.4.0/24", "10.2.0.9/32", https), some("net", 7200));
        assert_eq!(name(Tunnel, ends, "10.0.0.0/8", "10.2.0.0/16", any), None, "it was wider");
        assert_eq!(name(Transport, ends, "10.1.0.0/16", "10.2.0.0/16", any), None);
        let hosts = name(Transport, ends, "192.0.2.1/32", "198.51.100.7/32", any);
        assert_eq!(hosts, some("hosts", LIFE.as_secs()), "without a limit of its own");
        let other = ["192.0.2.1", "203.0.113.7"];
        assert_eq!(name(Tunnel, other, "10.1.0.0/16", "10.2.0.0/16", any), None, "another peer");
        assert_eq!(name(Tunnel, other, "10.1.0.0/16", "10.3.0.0/16", any), None, "all ports");
        let web = name(Tunnel, other, "10.1.0.0/16", "10.3.0.0/16", https);
        assert_eq!(web.map(|(child, _)| child).as_deref(), Some("web"), "a name may be anybody");
    }
}
