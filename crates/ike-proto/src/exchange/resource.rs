//! Several Child SAs for the same traffic, one for each CPU that has some (RFC 9611).
//!
//! The first child is for all CPUs. Both ends announce by SA_RESOURCE_INFO that further ones are possible. The end
//! that has the packet makes a further one when a CPU meets a packet. All of them share the policy of the first.
//! The data plane chooses among them.
//!
//! ```text
//!    HDR, SK {N(SA_RESOURCE_INFO), SA, Ni, [KEi,] TSi, TSr}  -->
//!                         <--  HDR, SK {N(SA_RESOURCE_INFO), SA, Nr, [KEr,] TSi, TSr}
//! ```

use crate::exchange::followup::Answering;
use crate::ike_sa::{Children, Work};
use std::collections::BTreeSet;

use super::{Payloads, Refusal};
use crate::child::ChildSa;
use crate::child::Join;
use crate::child::selectors::same;
use crate::config::ChildConfig;
use crate::config::proposal::Selected;
use crate::dataplane::{Capabilities, Flow, Mode, PolicyId, TrafficSelector};
use crate::exchange::sent::Retry;
use crate::ike_sa::state::{Established, Task};
use crate::wire::payload::{Notify, Payload, Sa, Transform};
use crate::wire::registry::{IntegId, NotifyType, TransformType};

/// True if children of `config` may be several for the same traffic.
pub(crate) fn wanted(config: &ChildConfig, plane: &Capabilities) -> bool {
    config.processing.per_cpu && plane.per_cpu
}

/// SA_RESOURCE_INFO with `data`.
pub(crate) fn payload(data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(NotifyType::SA_RESOURCE_INFO, data))
}

/// True if the message has SA_RESOURCE_INFO. Its contents are for debugging, and an SPI or a protocol in it does
/// not matter.
pub(crate) fn is_asked(payloads: &Payloads<'_, '_>) -> bool {
    payloads.notify(NotifyType::SA_RESOURCE_INFO).is_some()
}

/// What of the offer `sa` has the suite of `other`.
pub(crate) fn alike(sa: &Sa, other: &Selected) -> Sa {
    let fits = |transform: &Transform| match transform.kind {
        // Beside AEAD a proposal may say that there is none.
        TransformType::INTEG if transform.id == IntegId::NONE.0 => true,
        TransformType::ENCR | TransformType::INTEG | TransformType::SN => {
            other.transforms.contains(transform)
        }
        _ => true,
    };
    let mut alike = sa.clone();
    for proposal in &mut alike.proposals {
        proposal.transforms.retain(fits);
    }
    alike
}

/// True if a further child has in common with `other` what it must.
//= https://www.rfc-editor.org/rfc/rfc9611#section-3
//# These resource-
//# specific Child SAs MUST be negotiated with identical Child SA
//# properties that were negotiated for the initial Child SA.
pub(crate) fn is_alike(
    other: &ChildSa,
    selected: &Selected,
    mode: Mode,
    local_ts: &[TrafficSelector],
    remote_ts: &[TrafficSelector],
) -> bool {
    (other.selected.suite, other.selected.esn, other.mode) == (selected.suite, selected.esn, mode)
        && same(&other.local_ts, local_ts)
        && same(&other.remote_ts, remote_ts)
}

/// A place among children that share a policy.
pub(crate) struct Place {
    /// `None` if it is for all CPUs.
    pub(crate) cpu: Option<u32>,
    pub(crate) ordinal: u32,
}

/// The places in use and requested, among children that share a policy. They are in three parts of an SA.
pub(crate) struct Places<'a> {
    children: &'a Children,
    answering: &'a Answering,
    work: Work<'a>,
}

impl Established {
    /// The places for one CPU each.
    pub(crate) fn places(&self) -> Places<'_> {
        let Self { children, answering, .. } = self;
        Places { children, answering, work: self.work() }
    }
}

impl Places<'_> {
    /// The place of a further child beside `sibling`, for a request of the peer.
    pub(crate) fn beside(&self, sibling: &ChildSa, plane: &Capabilities) -> Result<Place, Refusal> {
        //= https://www.rfc-editor.org/rfc/rfc9611#section-6
        //# An implementation that does not accept any further resource-specific
        //# Child SAs MUST NOT return the NO_ADDITIONAL_SAS error because it
        //# could be misinterpreted by the peer to mean that no other Child SA
        //# with a different TSi and/or TSr is allowed either.  Instead, it MUST
        //# return TS_MAX_QUEUE.
        let full = || Refusal::new(NotifyType::TS_MAX_QUEUE);
        if !sibling.processing.per_cpu {
            return Err(full());
        }
        //= https://www.rfc-editor.org/rfc/rfc9611#section-6
        //# As additional
        //# Child SAs consume little additional resources, allowing at the very
        //# least double the number of available CPUs is RECOMMENDED.
        let additional = self.taken(sibling.policy).filter(|(_, cpu)| cpu.is_some()).count();
        let most = plane.cpus.saturating_mul(2);
        if additional >= usize::try_from(most).unwrap_or(usize::MAX) {
            return Err(full());
        }
        // A child for all CPUs that this end is requesting itself is not missing either.
        let missing = self.taken(sibling.policy).all(|(_, cpu)| cpu.is_some())
            && self.work.asked(sibling.policy).all(|join| join.cpu.is_some());
        let cpu = match missing {
            true => None,
            false => Some(self.least_used_cpu(sibling.policy, plane.cpus).ok_or_else(full)?),
        };
        Ok(Place { cpu, ordinal: self.unused_ordinal(sibling.policy) })
    }

    /// The ordinals and CPUs in use: by children, a rekeyed child and its successor counted once, and by children
    /// whose additional key exchanges the peer has still to make.
    fn taken(&self, policy: PolicyId) -> impl Iterator<Item = (u32, Option<u32>)> {
        let mut lines = BTreeSet::new();
        let coming = self.answering.children();
        self.children
            .sharing(policy)
            .chain(coming.filter(move |child| child.policy == policy))
            .filter(move |child| lines.insert(child.line))
            .map(|child| (child.ordinal, child.cpu))
    }

    /// The CPU with the fewest children of its own, requested ones included.
    //= https://www.rfc-editor.org/rfc/rfc9611#section-4
    //# Responders should install the additional Child
    //# SA on a CPU with the least amount of additional Child SAs for this
    //# TSi/TSr pair.
    fn least_used_cpu(&self, policy: PolicyId, cpus: u32) -> Option<u32> {
        let there = self.taken(policy).filter_map(|(_, cpu)| cpu);
        let used: Vec<_> =
            there.chain(self.work.asked(policy).filter_map(|join| join.cpu)).collect();
        (0..cpus).min_by_key(|cpu| used.iter().filter(|used| *used == cpu).count())
    }

    /// An ordinal that is not in use.
    pub(crate) fn unused_ordinal(&self, policy: PolicyId) -> u32 {
        let taken = |n: &u32| self.taken(policy).any(|(ordinal, _)| ordinal == *n);
        (1..=u32::MAX).find(|n| !taken(n)).unwrap_or(u32::MAX)
    }
}

impl Established {
    /// Handles a packet for `policy` on a CPU that has no child of its own.
    pub(crate) fn want_cpu(&mut self, policy: PolicyId, cpu: u32, packet: Flow) {
        if self.children.is_full(policy) {
            return;
        }
        let shared = self.children.sharing(policy).next();
        let Some(config) = shared.map(|child| child.config.clone()) else {
            return tracing::debug!(?policy, cpu, "child not requested: none has the policy");
        };
        // A child for all CPUs comes first.
        let missing = self.children.sharing(policy).all(|child| child.cpu.is_some());
        let cpu = (!missing).then_some(cpu);
        let there = self.children.sharing(policy).any(|child| child.cpu == cpu);
        if there || self.work().asked(policy).any(|join| join.cpu == cpu) {
            return;
        }
        self.queue.push(Task::CreateChild {
            config,
            packet: Some(packet),
            request: None,
            retry: Retry::default(),
            join: Some(Join { policy, cpu }),
        });
    }
}
