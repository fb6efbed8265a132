//! The second line behind the kernel's policies: nf_tables drops what they protect if it has no SA when it leaves.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use esp::io::{Changes, Leaving, Verdict, XfrmGuard, XfrmGuardOptions};
use ike_proto::dataplane::{DataPlaneError, TrafficSelector};
use ike_tokio::Ports;
use xfrm::offload::Devices;
use xfrm::plane::is_priority_of_hold;
use xfrm::policy::{Policy, PolicyId};
use xfrm::selector::{Port, Prefix, Selector};

use super::adopt;

/// The ports that other programs may use for IKE.
const IKE_PORTS: [u16; 2] = [500, 4500];

/// The second line.
#[derive(Debug)]
pub(super) struct SecondLine {
    /// None if it has been removed, or has no thread.
    guard: Option<XfrmGuard>,
    /// Interfaces of policies, so far.
    interfaces: BTreeSet<u32>,
}

impl SecondLine {
    /// Begins it, for a daemon whose own packets have `mark`. What an earlier run has left stays in force until `settle`. The
    /// tunnels work without it.
    pub(super) fn start(mark: u32, ports: Ports, settle: Duration) -> Self {
        let mut all = vec![ports.ike, ports.nat_t];
        all.extend(IKE_PORTS);
        all.sort_unstable();
        all.dedup();
        let warn = |error: &io::Error| {
            tracing::warn!(%error, "nf_tables: no thread for the table ike-xfrm: there is no second line behind the XFRM policies; start the daemon again (docs/security.md)");
        };
        let options = XfrmGuardOptions { mark, ports: all, settle, ownerless: false };
        let guard = XfrmGuard::start(options).inspect_err(warn).ok();
        Self { guard, interfaces: BTreeSet::new() }
    }

    /// Follows changes of the policies for what leaves.
    pub(super) fn follow(&mut self, policies: Vec<(PolicyId, Option<&Policy>)>) {
        let changes = changes(policies);
        if let Some(guard) = self.guard.as_ref().filter(|_| !changes.is_empty()) {
            for interface in changes.keys().map(|policy| policy.interface) {
                if interface != 0 && self.interfaces.insert(interface) {
                    look_at(interface, Devices::open().and_then(|mut all| all.kind_of(interface)));
                }
            }
            guard.change(changes);
        }
    }

    /// Ends it: nothing is dropped any more.
    ///
    /// # Errors
    /// The kernel refuses: the table goes on dropping.
    pub(super) fn remove(&mut self) -> Result<(), DataPlaneError> {
        let removed = match self.guard.take() {
            Some(guard) => guard.remove(),
            // This run has not been able to put its own table in the place of an earlier run's.
            None => XfrmGuard::remove_left().map(drop),
        };
        removed.map_err(|error| DataPlaneError(kept(&error)))
    }
}

/// Ends that of an earlier run. False if there is none.
///
/// # Errors
/// The kernel refuses: the table goes on dropping.
pub(super) fn remove_left() -> io::Result<bool> {
    XfrmGuard::remove_left().map_err(|error| io::Error::new(error.kind(), kept(&error)))
}

/// What that of an earlier run drops: from the first selector to the second one.
pub(super) fn left() -> Vec<(TrafficSelector, TrafficSelector)> {
    let left = XfrmGuard::left().unwrap_or_else(|error| {
        tracing::warn!(
            %error,
            "nf_tables: not known what the table ike-xfrm of an earlier run drops: it may leave in clear as soon as this run has a \
             table of its own, and until its child is up"
        );
        Vec::new()
    });
    selectors(left)
}

/// A hold of an earlier run is for a child that was never up. This run makes its own holds.
fn selectors(left: Vec<(Leaving, u32)>) -> Vec<(TrafficSelector, TrafficSelector)> {
    let blocks = left.into_iter().filter(|(_, priority)| !is_priority_of_hold(*priority));
    blocks
        .map(|(Leaving { src, dst, protocol, src_port, dst_port, interface, .. }, _)| {
            let port = |(value, mask)| Port { value, mask };
            adopt::selectors(&Selector {
                src: Prefix::new(src.0, src.1),
                dst: Prefix::new(dst.0, dst.1),
                protocol,
                src_port: port(src_port),
                dst_port: port(dst_port),
                ifindex: interface,
            })
        })
        .collect()
}

/// Whether an earlier run has left one.
pub(super) fn is_left() -> io::Result<bool> {
    XfrmGuard::is_left()
        .map_err(|error| io::Error::new(error.kind(), format!("nf_tables: {error}")))
}

/// Says so if an interface of policies is a VRF: packets leave by the interfaces behind it, and nf_tables does not know to which VRF
/// these belong.
fn look_at(index: u32, found: io::Result<Option<(String, String)>>) {
    match found {
        Ok(Some((name, kind))) if kind == "vrf" => tracing::warn!(
            "nf_tables: interface {name} of a child is a VRF: the child has no second line, and its packets leave in clear while \
             another program has removed XFRM policies (docs/security.md)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(
            %error,
            "nf_tables: not known whether the interface {index} of a child is a VRF: then the child has no second line"
        ),
    }
}

fn kept(error: &io::Error) -> String {
    format!(
        "nf_tables: table ike-xfrm not removed: {error}; it drops what the children protected: remove it with `nft delete \
         table inet ike-xfrm`, or end the process that owns it"
    )
}

/// Policies of XFRM interfaces are left out: without a policy such an interface sends nothing.
fn changes(policies: Vec<(PolicyId, Option<&Policy>)>) -> Changes {
    let of_all = policies.into_iter().filter(|(id, _)| id.if_id == 0);
    of_all.map(|(id, policy)| (leaving(&id), policy.map(verdict))).collect()
}

fn leaving(id: &PolicyId) -> Leaving {
    let selector = &id.selector;
    Leaving {
        src: (selector.src.address, selector.src.length),
        dst: (selector.dst.address, selector.dst.length),
        protocol: selector.protocol,
        src_port: (selector.src_port.value, selector.src_port.mask),
        dst_port: (selector.dst_port.value, selector.dst_port.mask),
        interface: selector.ifindex,
        mark: (id.mark.value, id.mark.mask),
    }
}

fn verdict(policy: &Policy) -> Verdict {
    let by_device = policy.offload.is_some();
    Verdict { priority: policy.priority, passes: policy.passes(), by_device }
}

#[cfg(test)]
mod tests {
    use ike_proto::dataplane::{Mark, Mode};
    use xfrm::policy::{Action, PolicyDirection, Template};
    use xfrm::state::{Offload, OffloadMode};

    use super::*;

    /// Faults: in `changes`, take policies of XFRM interfaces; in `verdict`, let nothing pass, or take no policy for one of a
    /// device; in `leaving`, leave the mark, the interface or a port out.
    #[test]
    fn the_second_line_has_what_the_policies_have() {
        let prefix = |text: &str, length| Prefix::new(text.parse().unwrap(), length);
        let mut selector = Selector::between(prefix("10.1.0.0", 16), prefix("10.2.3.0", 24));
        (selector.protocol, selector.dst_port, selector.ifindex) = (UDP, Port::exact(53), 7);
        let mut id = PolicyId::new(selector, PolicyDirection::Out);
        id.mark = Mark { value: 0x40, mask: 0xf0 };
        let interface = PolicyId { if_id: 42, ..id };
        let outer = ["192.0.2.1", "192.0.2.2"].map(|end| end.parse().unwrap());
        let template = Template::new(outer[0], outer[1], 7, Mode::Tunnel);
        let of = |action| {
            let policy = Policy::new(id, 9, action);
            changes(vec![(id, Some(&policy)), (interface, Some(&policy))])
        };
        let protects = of(Action::Allow(vec![template]));
        let (key, verdict) = protects.iter().next().unwrap();
        assert_eq!(protects.len(), 1);
        assert_eq!((key.src.1, key.dst.0.to_string(), key.dst.1), (16, "10.2.3.0".to_owned(), 24));
        assert_eq!((key.protocol, key.src_port.1, key.dst_port), (UDP, 0, (53, 0xffff)));
        assert_eq!((key.interface, key.mark), (7, (0x40, 0xf0)));
        assert_eq!(*verdict, Some(Verdict { priority: 9, passes: false, by_device: false }));
        let offload = Some(Offload { ifindex: 3, mode: OffloadMode::Packet });
        let by_device = Policy { offload, ..Policy::new(id, 9, Action::Block) };
        assert!(super::verdict(&by_device).by_device);
        let passes = |action| of(action).values().next().unwrap().unwrap().passes;
        assert!(!passes(Action::Block));
        assert!(passes(Action::Allow(Vec::new())));
        assert_eq!(changes(vec![(id, None)]).values().next(), Some(&None));
    }

    /// Faults: in `selectors`, take holds, take the source for the destination, or leave the ports out.
    #[test]
    fn what_the_table_of_an_earlier_run_drops_is_blocked() {
        let leaving = Leaving {
            src: ("10.1.0.0".parse().unwrap(), 16),
            dst: ("10.2.3.0".parse().unwrap(), 24),
            protocol: UDP,
            src_port: (0, 0),
            dst_port: (53, 0xffff),
            interface: 7,
            mark: (0, 0),
        };
        let told = |priority| {
            let all = selectors(vec![(leaving, priority)]).into_iter();
            all.map(|(from, to)| format!("{from} {to}")).collect::<Vec<_>>()
        };
        // Shunts have odd priorities, and holds even ones behind them.
        let holds = (1..=u32::MAX / 2).rev().map(|half| half * 2);
        let hold = holds.take(10).find(|priority| is_priority_of_hold(*priority));
        assert_eq!(told(1000), ["10.1.0.0/16[udp] 10.2.3.0/24[udp/53]"]);
        assert_eq!(told(hold.unwrap()), [""; 0]);
    }

    const UDP: u8 = 17;
}
