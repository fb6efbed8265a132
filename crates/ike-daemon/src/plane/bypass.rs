//! Networks that stay reachable beside a full tunnel: `charon.plugins.bypass-lan`.
//!
//! A child with a `remote_ts` of all addresses also covers the networks on this host's own links: on a gateway
//! those in `local_ts`, on a road warrior its LAN. [`Bypass`] wraps either data plane. It gives each such network
//! a policy that passes, and with it a route as without the tunnel. It follows the routes of the main table.
//!
//! [`exempt`] decides which networks are exempt:
//!
//! * a network inside `local_ts`, if `remote_ts` is wider than that: it is this side of the tunnel;
//! * any other network on a link, if `remote_ts` is all addresses and those of the network are not globally
//!   reachable. A link's claim to other addresses is not trusted: its operator could otherwise have traffic to any
//!   host in clear, by naming that host's network as the link's.
//!
//! If a child has a narrower `remote_ts` that contains the network, or is a part of it, that child's decision
//! holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, PolicyAction, PolicyId, PolicySpec,
    Processing, Reply, TrafficSelector,
};
use routes::{Near, NearWatch};
use tokio::sync::Notify;

/// These policies have numbers that neither the engine nor the shunts of the driver reach.
const FIRST: u64 = 3 << 62;

/// What is on the link itself, and never further: addresses that every host needs to have a link at all.
const ON_THE_LINK: [&str; 4] = ["224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff02::/16"];

/// The metadata server of a cloud. The exemption is for this host alone: hosts behind it must not learn its secrets.
const METADATA: &str = "169.254.169.254/32";

/// Addresses that are not globally reachable (RFC 6890 and the registries of it).
const NOT_GLOBAL: [&str; 14] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "fc00::/7",
    "fe80::/10",
    "2001:2::/48",
    "2001:db8::/32",
    "3fff::/20",
];

/// A data plane with such policies beside those it is told.
pub(super) struct Bypass {
    inner: Box<dyn DataPlane + Send>,
    watch: NearWatch,
    near: BTreeSet<Near>,
    claims: BTreeMap<PolicyId, Claim>,
    /// Those of them that may take in a network that is to stay reachable.
    broad: BTreeSet<PolicyId>,
    passes: HashMap<Exempt, PolicyId>,
    count: u64,
}

/// What a policy says, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    priority: u32,
    /// It protects all of its traffic, or stands in for a child that would.
    takes_all: bool,
    /// Its local selectors are all addresses because its own is not known yet.
    anywhere: bool,
}

/// Traffic that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Exempt {
    local: (IpAddr, IpAddr),
    remote: (IpAddr, IpAddr),
    priority: u32,
}

impl Bypass {
    /// Exempts networks in `inner`; `bell` is rung when they change. `table` is that of our own routes.
    pub(super) fn new(
        inner: Box<dyn DataPlane + Send>,
        bell: Arc<Notify>,
        table: u32,
    ) -> io::Result<Self> {
        let watch = NearWatch::start(table, move || bell.notify_one())?;
        Ok(Self {
            inner,
            watch,
            near: BTreeSet::new(),
            claims: BTreeMap::new(),
            broad: BTreeSet::new(),
            passes: HashMap::new(),
            count: 0,
        })
    }

    fn install(&mut self, spec: Box<PolicySpec>) -> Result<Reply, DataPlaneError> {
        let (id, claim) = (spec.id, Claim::of(&spec));
        let reply = self.inner.apply(Command::InstallPolicy(spec))?;
        if self.claims.get(&id) != Some(&claim) {
            self.broad.remove(&id);
            self.broad.extend(claim.is_broad().then_some(id));
            self.claims.insert(id, claim);
            self.refresh();
        }
        Ok(reply)
    }

    fn remove(&mut self, id: PolicyId) -> Result<Reply, DataPlaneError> {
        let reply = self.inner.apply(Command::RemovePolicy(id))?;
        self.broad.remove(&id);
        if self.claims.remove(&id).is_some() {
            self.refresh();
        }
        Ok(reply)
    }

    /// Puts in force what the policies and routes of now call for.
    fn refresh(&mut self) {
        let broad = !self.broad.is_empty();
        self.watch.want(broad);
        if !broad && self.passes.is_empty() {
            return;
        }
        let wanted = if broad { exempt(&self.claims, &self.near) } else { Vec::new() };
        for new in &wanted {
            if self.passes.contains_key(new) {
                continue;
            }
            let id = PolicyId(FIRST + self.count);
            self.count += 1;
            match self.inner.apply(Command::InstallPolicy(Box::new(new.policy(id)))) {
                Ok(_) => {
                    tracing::info!("{} stays reachable beside the tunnel", new.remote_text());
                    self.passes.insert(*new, id);
                }
                Err(error) => {
                    tracing::warn!(%error, "{} is not exempt from the tunnel: its packets go to the peer", new.remote_text());
                }
            }
        }
        let gone = self.passes.keys().filter(|old| !wanted.contains(old));
        for old in gone.copied().collect::<Vec<_>>() {
            let Some(&id) = self.passes.get(&old) else { continue };
            match self.inner.apply(Command::RemovePolicy(id)) {
                Ok(_) => _ = self.passes.remove(&old),
                Err(error) => {
                    tracing::warn!(%error, "{} still leaves in clear beside the tunnel: restart the daemon", old.remote_text());
                }
            }
        }
    }
}

impl DataPlane for Bypass {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        match command {
            Command::InstallPolicy(spec) => self.install(spec),
            Command::RemovePolicy(id) => self.remove(id),
            Command::Flush => {
                let reply = self.inner.apply(Command::Flush)?;
                self.claims.clear();
                self.broad.clear();
                self.passes.clear();
                self.watch.want(false);
                Ok(reply)
            }
            other => self.inner.apply(other),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        if let Some(near) = self.watch.take() {
            self.near = near;
            self.refresh();
        }
        self.inner.poll_event()
    }
}

impl Claim {
    fn of(spec: &PolicySpec) -> Self {
        let Processing { mark_in, mark_out, if_id_in, if_id_out, policies, ref interface, .. } =
            *spec.processing;
        let unmarked = (mark_in.mask, mark_out.mask, if_id_in, if_id_out) == (0, 0, 0, 0);
        let whole = |ts: &TrafficSelector| {
            ts.protocol == 0 && (ts.start_port, ts.end_port) == (0, u16::MAX)
        };
        let protects = matches!(
            spec.action,
            PolicyAction::Protect { .. }
                | PolicyAction::Trap
                | PolicyAction::Shunt { .. }
                | PolicyAction::Hold { .. }
        );
        Self {
            local: spec.local_ts.clone(),
            remote: spec.remote_ts.clone(),
            priority: spec.priority,
            takes_all: protects
                && policies
                && unmarked
                && interface.is_none()
                && spec.local_ts.iter().chain(&spec.remote_ts).all(whole),
            anywhere: spec.action == PolicyAction::Hold { anywhere: true },
        }
    }

    /// Pairs of its selectors of which the remote one takes in the local one and more.
    fn pairs(&self) -> impl Iterator<Item = (&TrafficSelector, &TrafficSelector)> {
        let remote = self.remote.iter().filter(|_| self.takes_all);
        remote.flat_map(move |remote| {
            let apart = move |local: &&TrafficSelector| {
                is_within(local, remote) || self.holds_all(local, remote)
            };
            let local = self.local.iter().filter(apart);
            local.map(move |local| (local, remote))
        })
    }

    /// `local` is all addresses because the host's own is not known yet, and `remote` is all addresses as well.
    fn holds_all(&self, local: &TrafficSelector, remote: &TrafficSelector) -> bool {
        self.anywhere && is_all(remote) && has(local, remote)
    }

    /// It may take in a network that is to stay reachable.
    fn is_broad(&self) -> bool {
        self.pairs().next().is_some()
    }

    /// It says of `network` by a remote selector narrower than `remote` that it is the other side's.
    fn objects(&self, network: &TrafficSelector, remote: &TrafficSelector) -> bool {
        self.remote.iter().any(|narrow| {
            let own = || self.local.iter().any(|l| has(l, network) && is_within(l, narrow));
            has(narrow, network) && is_within(narrow, remote) && !own()
        })
    }
}

/// What of `near` is exempt from the policies `claims`, and from which of their traffic.
pub(super) fn exempt(claims: &BTreeMap<PolicyId, Claim>, near: &BTreeSet<Near>) -> Vec<Exempt> {
    let known = |list: &[&str]| -> Vec<TrafficSelector> {
        list.iter().filter_map(|text| text.parse().ok()).collect()
    };
    let (on_the_link, not_global) = (known(&ON_THE_LINK), known(&NOT_GLOBAL));
    let metadata = known(&[METADATA]);
    let of = |n: &Near| TrafficSelector::from_cidr(n.address, n.len);
    let mut own_addresses: Vec<_> = near.iter().filter(|n| n.own).filter_map(of).collect();
    let near = near.iter().filter(|n| !n.own);
    let near: Vec<_> = near.filter_map(|n| Some((of(n)?, n.attached))).collect();
    // The kernel applies policies to packets between addresses of this host, but only for IPv6.
    own_addresses.extend(known(&["::1/128"]));
    let mut list: Vec<Exempt> = Vec::new();
    let mut add = |local: &TrafficSelector, remote: &TrafficSelector, priority: u32| {
        let exempt = Exempt {
            local: (local.start, local.end),
            remote: (remote.start, remote.end),
            // A configured priority comes before an automatic one: it needs one as well.
            priority: if priority == 0 { 0 } else { (priority - 1).max(1) },
        };
        if !list.contains(&exempt) {
            list.push(exempt);
        }
    };
    for claim in claims.values() {
        for (local, remote) in claim.pairs() {
            let all = is_all(remote);
            let own = |network: &TrafficSelector| !claim.anywhere && has(local, network);
            let mut taken: Vec<&TrafficSelector> = Vec::new();
            // The wider come first: they take in what is within them.
            let mut order: Vec<_> = near.iter().filter(|(n, _)| is_within(n, remote)).collect();
            order.sort_by_key(|(n, _)| ike_proto::dataplane::precedence::address_bits(n));
            for (network, attached) in order.into_iter().rev() {
                let link = *attached && all && not_global.iter().any(|known| has(known, network));
                let objects = || claims.values().any(|other| other.objects(network, remote));
                if taken.iter().any(|wide| has(wide, network))
                    || !(own(network) || link)
                    || objects()
                {
                    continue;
                }
                taken.push(network);
                add(local, network, claim.priority);
                if !has(local, network) {
                    add(network, network, claim.priority);
                }
            }
            if all {
                let same = |ts: &&TrafficSelector| ts.start.is_ipv4() == remote.start.is_ipv4();
                let open = |ts: &&TrafficSelector| {
                    same(ts) && !claims.values().any(|other| other.objects(ts, remote))
                };
                for link in on_the_link.iter().filter(open) {
                    add(local, link, claim.priority);
                }
                for server in metadata.iter().filter(open) {
                    let host = own_addresses.iter().filter(same);
                    host.for_each(|host| add(host, server, claim.priority));
                }
                let host = own_addresses.iter().filter(|own| claim.anywhere && own.start.is_ipv6());
                host.filter(same).for_each(|host| add(local, host, claim.priority));
            }
        }
    }
    list
}

/// True for an address that is not globally reachable.
pub(crate) fn is_not_global(address: IpAddr) -> bool {
    let mut known = NOT_GLOBAL.iter().filter_map(|text| text.parse::<TrafficSelector>().ok());
    let one = TrafficSelector { start: address, end: address, ..TrafficSelector::any_v4() };
    known.any(|known| has(&known, &one))
}

/// True for an address that packets reach on their link alone.
pub(crate) fn is_on_the_link(address: IpAddr) -> bool {
    let mut known = ON_THE_LINK.iter().filter_map(|text| text.parse::<TrafficSelector>().ok());
    let one = TrafficSelector { start: address, end: address, ..TrafficSelector::any_v4() };
    known.any(|known| has(&known, &one))
}

/// All addresses of a family, or half of them: two halves are a known way to write all.
pub(crate) fn is_all(ts: &TrafficSelector) -> bool {
    let width = if ts.start.is_ipv4() { 32 } else { 128 };
    ike_proto::dataplane::precedence::address_bits(ts) >= width - 1
}

/// All addresses of `inner` are in `outer`.
fn has(outer: &TrafficSelector, inner: &TrafficSelector) -> bool {
    outer.start.is_ipv4() == inner.start.is_ipv4()
        && outer.start <= inner.start
        && inner.end <= outer.end
}

/// They are, and `outer` has more.
fn is_within(inner: &TrafficSelector, outer: &TrafficSelector) -> bool {
    has(outer, inner) && (outer.start, outer.end) != (inner.start, inner.end)
}

impl Exempt {
    fn policy(&self, id: PolicyId) -> PolicySpec {
        let range = |(start, end)| TrafficSelector { start, end, ..TrafficSelector::any_v4() };
        PolicySpec {
            id,
            child: NAME.into(),
            owner: NAME.into(),
            local_ts: vec![range(self.local)],
            remote_ts: vec![range(self.remote)],
            action: PolicyAction::Pass,
            priority: self.priority,
            processing: Arc::default(),
            outer: None,
            standby: false,
        }
    }

    fn remote_text(&self) -> String {
        let (start, end) = self.remote;
        TrafficSelector { start, end, ..TrafficSelector::any_v4() }.to_string()
    }
}

const NAME: &str = "bypass-lan";

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use ike_proto::dataplane::Mode;

    use super::*;

    fn spec(id: u64, local: &str, remote: &str, action: PolicyAction) -> PolicySpec {
        let list = |text: &str| text.split(' ').map(|ts| ts.parse().unwrap()).collect();
        PolicySpec {
            id: PolicyId(id),
            child: "net".into(),
            owner: "site".into(),
            local_ts: list(local),
            remote_ts: list(remote),
            action,
            priority: 0,
            processing: Arc::default(),
            outer: None,
            standby: false,
        }
    }

    fn networks(list: &[(&str, bool)]) -> BTreeSet<Near> {
        list.iter()
            .map(|(text, attached)| {
                let (address, len) = text.split_once('/').unwrap();
                let (address, len) = (address.parse().unwrap(), len.parse().unwrap());
                Near { address, len, attached: *attached, own: false }
            })
            .collect()
    }

    fn text((start, end): (IpAddr, IpAddr)) -> String {
        TrafficSelector { start, end, ..TrafficSelector::any_v4() }.to_string()
    }

    /// What is exempt, without what is on the link itself.
    fn exempt_text(policies: &[PolicySpec], near: &[(&str, bool)]) -> Vec<String> {
        let claims = policies.iter().map(|spec| (spec.id, Claim::of(spec))).collect();
        let link = |e: &Exempt| ON_THE_LINK.contains(&text(e.remote).as_str());
        let all = exempt(&claims, &networks(near));
        let rest = all.iter().filter(|e| !link(e));
        rest.map(|e| format!("{} === {}", text(e.local), text(e.remote))).collect()
    }

    const TRAP: PolicyAction = PolicyAction::Trap;

    /// Fault: in `exempt`, leave `has(local, network)` out: the gateway's own LAN is cut off.
    #[test]
    fn a_gateways_own_networks_are_exempt_from_a_full_tunnel() {
        let full = spec(1, "10.1.0.0/16", "0.0.0.0/0", TRAP);
        let near = [
            ("10.1.0.0/24", true),
            // Behind another router, and within what has been said already.
            ("10.1.7.0/24", false),
            ("10.1.0.64/26", false),
            // Somebody else's network behind a router.
            ("10.9.0.0/16", false),
            ("8.8.8.0/24", true),
        ];
        assert_eq!(
            exempt_text(&[full], &near),
            ["10.1.0.0/16 === 10.1.7.0/24", "10.1.0.0/16 === 10.1.0.0/24"]
        );
        // A hub whose spokes are in one network with it has the same need.
        let hub = spec(1, "10.1.0.0/16", "10.0.0.0/8", TRAP);
        assert_eq!(exempt_text(&[hub], &near).len(), 2);
        let site = spec(1, "10.1.0.0/16", "10.2.0.0/16", TRAP);
        assert_eq!(exempt_text(&[site], &near), [""; 0], "nothing is in the way");
    }

    /// Whoever runs a link says what is on it. Of addresses that are reached through the Internet that is not believed,
    /// nor where the configuration names the networks that are to be reached through the tunnel.
    ///
    /// Fault: in `exempt`, take any attached network where `remote_ts` is wider.
    #[test]
    fn a_link_does_not_take_over_what_the_tunnel_is_for() {
        let near = [("192.168.7.0/24", true), ("8.8.8.0/24", true), ("10.20.1.0/24", true)];
        let road = |remote| spec(1, "10.3.0.5/32", remote, TRAP);
        let lan = ["10.3.0.5/32 === 192.168.7.0/24", "192.168.7.0/24 === 192.168.7.0/24"];
        let both = exempt_text(&[road("0.0.0.0/0")], &near);
        assert!(lan.iter().all(|line| both.iter().any(|b| b == line)), "{both:?}");
        assert!(!both.iter().any(|line| line.contains("8.8.8.0")), "{both:?}");
        assert!(both.iter().any(|line| line.contains("10.20.1.0")), "{both:?}");
        let named = exempt_text(&[road("0.0.0.0/0 10.20.0.0/16")], &near);
        assert!(!named.iter().any(|line| line.contains("10.20.1.0")), "{named:?}");
        let split = exempt_text(&[road("10.20.0.0/16")], &near);
        assert_eq!(split, [""; 0]);
        // So does another child, and one that drops.
        let drop = spec(2, "0.0.0.0/0", "192.168.0.0/16", PolicyAction::Drop);
        let dropped = exempt_text(&[road("0.0.0.0/0"), drop], &near);
        assert!(!dropped.iter().any(|line| line.contains("192.168")), "{dropped:?}");
    }

    #[test]
    fn what_is_told_apart_otherwise_is_let_alone() {
        let near = [("10.1.0.0/24", true)];
        let of = |change: fn(&mut PolicySpec)| {
            let mut spec = spec(1, "10.1.0.0/16", "0.0.0.0/0", TRAP);
            change(&mut spec);
            exempt_text(&[spec], &near)
        };
        assert_eq!(of(|_| ()).len(), 1);
        let none = [""; 0];
        assert_eq!(of(|spec| spec.action = PolicyAction::Drop), none);
        assert_eq!(of(|spec| spec.remote_ts = vec!["0.0.0.0/0[tcp]".parse().unwrap()]), none);
        assert_eq!(of(|spec| Arc::make_mut(&mut spec.processing).if_id_out = 1), none);
        assert_eq!(of(|spec| Arc::make_mut(&mut spec.processing).mark_out.mask = 1), none);
        assert_eq!(of(|spec| spec.local_ts = vec!["0.0.0.0/0".parse().unwrap()]), none);
    }

    /// Before a road warrior has an address, everything is held but what a tunnel would exempt.
    ///
    /// Faults: in `Claim::pairs`, leave `holds_all` out; in `exempt`, take `has(local, network)` for `own(network)`.
    #[test]
    fn a_hold_from_all_addresses_exempts_what_the_tunnel_exempts() {
        let near = [("192.168.7.0/24", true), ("8.8.8.0/24", true), ("10.9.0.0/16", false)];
        let hold = |local, anywhere| spec(1, local, "0.0.0.0/0", PolicyAction::Hold { anywhere });
        assert_eq!(
            exempt_text(&[hold("0.0.0.0/0", true)], &near),
            ["0.0.0.0/0 === 192.168.7.0/24"]
        );
        // With addresses of its own it is as any other policy, and with all of them it means all.
        assert_eq!(
            exempt_text(&[hold("10.9.0.0/16", false)], &near),
            exempt_text(&[spec(1, "10.9.0.0/16", "0.0.0.0/0", TRAP)], &near)
        );
        assert_eq!(exempt_text(&[hold("0.0.0.0/0", false)], &near), [""; 0]);
        let claims = BTreeMap::from([(
            PolicyId(1),
            Claim::of(&spec(1, "::/0", "::/0", PolicyAction::Hold { anywhere: true })),
        )]);
        let all: Vec<_> = exempt(&claims, &networks(&[])).iter().map(|e| text(e.remote)).collect();
        assert_eq!(all, ["fe80::/10", "ff02::/16", "::1/128"]);
        let own =
            Near { address: "2001:db8::5".parse().unwrap(), len: 128, attached: true, own: true };
        let all = exempt(&claims, &BTreeSet::from([own]));
        let all: Vec<_> = all.iter().map(|e| (text(e.local), text(e.remote))).collect();
        assert!(all.contains(&("::/0".into(), "2001:db8::5/128".into())), "{all:?}");
    }

    /// Without a link that has 169.254.0.0/16, packets to it would go through a router, which is not trusted. A child with a
    /// narrower selector for it has precedence.
    ///
    /// Faults: in `exempt`, exempt the metadata server for all of `local`; do not ask `objects` about it.
    #[test]
    fn link_local_addresses_of_ipv4_stay_reachable_on_a_link_that_has_them() {
        let own = |address: &str| Near {
            address: address.parse().unwrap(),
            len: 32,
            attached: true,
            own: true,
        };
        let of = |specs: &[PolicySpec], link: &[(&str, bool)]| -> Vec<String> {
            let claims = specs.iter().map(|spec| (spec.id, Claim::of(spec))).collect();
            let mut near = networks(link);
            near.insert(own("192.0.2.9"));
            let all = exempt(&claims, &near);
            let all = all.iter().map(|e| format!("{} === {}", text(e.local), text(e.remote)));
            all.filter(|line| line.contains("=== 169.254")).collect()
        };
        let full = || spec(1, "10.3.0.5/32", "0.0.0.0/0", TRAP);
        let metadata = "192.0.2.9/32 === 169.254.169.254/32";
        assert_eq!(of(&[full()], &[]), [metadata]);
        assert_eq!(of(&[full()], &[("169.254.0.0/16", false)]), [metadata]);
        let link = of(&[full()], &[("169.254.0.0/16", true)]);
        assert!(link.contains(&"10.3.0.5/32 === 169.254.0.0/16".to_owned()), "{link:?}");
        let narrow = spec(2, "10.3.0.5/32", "169.254.0.0/16", TRAP);
        assert_eq!(of(&[full(), narrow], &[("169.254.0.0/16", true)]), [""; 0]);
    }

    /// Neighbor discovery, multicast on the link and link-local addresses are no business of a tunnel's.
    #[test]
    fn the_link_itself_works_beside_a_full_tunnel() {
        let spec = spec(1, "fd01::/64", "::/0", TRAP);
        let claims = BTreeMap::from([(spec.id, Claim::of(&spec))]);
        let all = exempt(&claims, &networks(&[("2001:db8::/64", true), ("10.1.0.0/24", true)]));
        let all: Vec<_> = all.iter().map(|e| text(e.remote)).collect();
        assert_eq!(all, ["2001:db8::/64", "2001:db8::/64", "fe80::/10", "ff02::/16"]);
    }

    /// What a data plane was told, policies alone.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<BTreeMap<PolicyId, PolicySpec>>>);

    impl Told {
        fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PolicyId, PolicySpec>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// All policies, and those of them that pass.
        fn count(&self) -> (usize, usize) {
            let told = self.lock();
            let passing = told.values().filter(|spec| spec.action == PolicyAction::Pass);
            (told.len(), passing.count())
        }
    }

    impl DataPlane for Told {
        fn capabilities(&self) -> Capabilities {
            ike_tokio::NoPlane::CAPABILITIES
        }

        fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
            match command {
                Command::InstallPolicy(spec) => _ = self.lock().insert(spec.id, *spec),
                Command::RemovePolicy(id) => _ = self.lock().remove(&id),
                Command::Flush => self.lock().clear(),
                _ => {}
            }
            Ok(Reply::Done)
        }

        fn poll_event(&mut self) -> Option<Event> {
            None
        }
    }

    /// From the trap to the child and back, and with networks that come and go.
    #[test]
    fn exemptions_come_and_go_with_policies_and_networks() {
        let told = Told::default();
        let bell = Arc::new(Notify::new());
        let mut plane = Bypass::new(Box::new(told.clone()), bell, 220).unwrap();
        let apply = |plane: &mut Bypass, command| plane.apply(command).map(drop).unwrap();
        let install = |spec: PolicySpec| Command::InstallPolicy(Box::new(spec));
        plane.near = networks(&[("10.1.0.0/24", true)]);
        apply(&mut plane, install(spec(1, "10.1.0.0/16", "10.2.0.0/16", TRAP)));
        assert_eq!(told.count(), (1, 0));
        apply(&mut plane, install(spec(2, "10.1.0.0/16", "0.0.0.0/0", TRAP)));
        assert_eq!(told.count().1, 3, "the network, and two of the link itself");
        let (mode, local) = (Mode::Tunnel, "192.0.2.1".parse().unwrap());
        let up = PolicyAction::Protect { mode, local, remote: local, outbound: None };
        let before: Vec<_> = told.lock().keys().copied().collect();
        apply(&mut plane, install(spec(2, "10.1.0.0/16", "0.0.0.0/0", up)));
        assert_eq!(told.lock().keys().copied().collect::<Vec<_>>(), before, "nothing is made anew");
        plane.near = networks(&[("10.1.3.0/24", true)]);
        plane.refresh();
        let remotes = |told: &Told| -> Vec<String> {
            let told = told.lock();
            told.values().map(|spec| spec.remote_ts[0].to_string()).collect()
        };
        assert!(remotes(&told).contains(&"10.1.3.0/24".to_owned()), "{:?}", remotes(&told));
        assert!(!remotes(&told).contains(&"10.1.0.0/24".to_owned()), "{:?}", remotes(&told));
        apply(&mut plane, Command::RemovePolicy(PolicyId(2)));
        assert_eq!(told.count(), (1, 0));
        apply(&mut plane, install(spec(2, "10.1.0.0/16", "0.0.0.0/0", TRAP)));
        apply(&mut plane, Command::Flush);
        assert_eq!(told.lock().len(), 0);
        assert!(plane.passes.is_empty());
    }
}
