//! Do two hosts have the same SAs, and their data planes exactly those?

use std::collections::BTreeSet;

use ike_proto::dataplane::PolicyAction;
use ike_proto::{ChildState, IkeState};

use crate::host::Host;
use crate::pair::Pair;

pub(crate) fn check(pair: &Pair) -> Result<(), String> {
    let (a, b) = (pair.a(), pair.b());
    if let Some(complaint) = pair.audit.complaints.first() {
        return Err(format!("audit: {complaint}"));
    }
    if pair.net.misdirected > 0 {
        return Err("a datagram with a marker on port 500, or without one on 4500".to_owned());
    }
    for (name, host) in [("A", a), ("B", b)] {
        quiet(host).map_err(|what| format!("{name}: {what}"))?;
        exact(host).map_err(|what| format!("{name}: {what}"))?;
    }
    if ike_spis(a) != ike_spis(b) {
        return Err(format!("IKE SAs differ: {:x?} and {:x?}", ike_spis(a), ike_spis(b)));
    }
    let swapped: BTreeSet<_> = child_spis(b).into_iter().map(|(i, o)| (o, i)).collect();
    if child_spis(a) != swapped {
        return Err(format!("children differ: {:x?} and {swapped:x?}", child_spis(a)));
    }
    keys(a, b).and(keys(b, a))
}

/// Nothing half done.
pub(crate) fn quiet(host: &Host) -> Result<(), String> {
    if host.endpoint.half_open() > 0 {
        return Err(format!("{} half-open", host.endpoint.half_open()));
    }
    if host.endpoint.reassembly_memory() > 0 {
        return Err(format!("{} octets of fragments", host.endpoint.reassembly_memory()));
    }
    for ike in host.ikes() {
        if ike.state != IkeState::Established {
            return Err(format!("{:?} is {:?}", ike.id, ike.state));
        }
        if let Some(exchange) = ike.outstanding {
            return Err(format!("{:?} waits for {exchange}", ike.id));
        }
        for child in &ike.children {
            if child.state != ChildState::Installed {
                return Err(format!("{:?} is {:?}", child.id, child.state));
            }
        }
    }
    Ok(())
}

/// The data plane has the children's SAs and policies, no more and no less.
pub(crate) fn exact(host: &Host) -> Result<(), String> {
    let children = host.children();
    let wanted: BTreeSet<u32> = children.iter().map(|child| child.inbound.spi).collect();
    let there: BTreeSet<u32> = host.plane.inbound_spis().into_iter().collect();
    if wanted != there {
        return Err(format!("inbound SAs {there:x?}, children {wanted:x?}"));
    }
    let wanted: BTreeSet<u32> = children.iter().map(|child| child.outbound.spi).collect();
    let there: BTreeSet<u32> = host.plane.outbound_spis().into_iter().collect();
    if wanted != there {
        return Err(format!("outbound SAs {there:x?}, children {wanted:x?}"));
    }
    let users: BTreeSet<_> =
        children.iter().map(|child| (child.policy, Some(child.outbound))).collect_policies();
    let there: BTreeSet<_> = host.plane.routes().into_iter().collect_policies();
    // Several children may share a policy, which names one of them (RFC 9611).
    let ids = |set: &BTreeSet<(u64, _)>| set.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>();
    if !there.is_subset(&users) || ids(&there) != ids(&users) {
        return Err(format!("policies {there:x?}, children {users:x?}"));
    }
    let stray = host
        .plane
        .table()
        .policies()
        .find(|policy| matches!(policy.action, PolicyAction::Pass | PolicyAction::Drop));
    stray.map_or(Ok(()), |policy| Err(format!("stray policy {policy:?}")))
}

trait Policies {
    fn collect_policies(self) -> BTreeSet<(u64, Option<u32>)>;
}

impl<I> Policies for I
where
    I: Iterator<Item = (ike_proto::dataplane::PolicyId, Option<ike_proto::dataplane::SaId>)>,
{
    fn collect_policies(self) -> BTreeSet<(u64, Option<u32>)> {
        self.map(|(policy, sa)| (policy.0, sa.map(|sa| sa.spi))).collect()
    }
}

fn ike_spis(host: &Host) -> BTreeSet<(u64, u64)> {
    host.ikes().into_iter().map(|ike| (ike.spi_i, ike.spi_r)).collect()
}

fn child_spis(host: &Host) -> BTreeSet<(u32, u32)> {
    host.children().into_iter().map(|child| (child.inbound.spi, child.outbound.spi)).collect()
}

/// What `from` sends, `to` can decrypt.
fn keys(from: &Host, to: &Host) -> Result<(), String> {
    for (sa, key) in from.plane.outbound() {
        let fits = to.plane.inbound().any(|(id, other)| id.spi == sa.spi && other == key);
        if !fits {
            return Err(format!("the keys of {:08x} differ", sa.spi));
        }
    }
    Ok(())
}
