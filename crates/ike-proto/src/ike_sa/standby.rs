//! A child that the peer requests beside another one for the same traffic.
//!
//! The responder of a child has its SAs before the initiator has them. Packets that leave by the new SA meanwhile
//! are lost, although the older SAs would carry them. This happens if both ends start at once, or if a peer
//! reauthenticates before it deletes the old IKE SA. So the policy of the new child is on standby for a while:
//! packets leave by the other child as long as that exists.

use std::time::Duration;

use super::context::Context;
use crate::channel::Channel;
use crate::child::ChildSa;
use crate::dataplane::TrafficSelector;
use crate::ike_sa::{Children, Identity};

/// How long a policy is on standby after the answer was sent: the time on the path, and the time in which a busy
/// peer checks a certificate.
pub(crate) const STANDBY: Duration = Duration::from_millis(900);

/// The most comparisons of two selectors for one new child. The peer chooses how many selectors and children there
/// are.
const COMPARISONS: usize = 4096;

/// True if the traffic of a child with the selectors `new`, of this end and of the peer, may be that of one of `others`.
/// So it may be if there are too many to know.
fn may_meet<'a>(
    new: [&[TrafficSelector]; 2],
    others: impl Iterator<Item = [&'a [TrafficSelector]; 2]>,
) -> bool {
    let mut left = COMPARISONS;
    let mut meet = |ours: &[TrafficSelector], theirs: &[TrafficSelector]| {
        ours.iter().flat_map(|one| theirs.iter().map(move |other| (one, other))).any(
            |(one, other)| {
                let Some(less) = left.checked_sub(1) else { return true };
                left = less;
                one.intersect(other).is_some()
            },
        )
    };
    others.into_iter().any(|[local, remote]| meet(local, new[0]) && meet(remote, new[1]))
}

impl Children {
    /// True if there may be another child for the traffic of `child`, which is new: of this IKE SA, or of another
    /// one between the same identities.
    pub(crate) fn has_company(
        &self,
        channel: &Channel,
        ctx: &Context<'_>,
        identity: &Identity,
        child: &ChildSa,
    ) -> bool {
        let others = self.iter();
        let others = others.filter(|other| other.routed && other.policy != child.policy);
        let others = others.map(|other| [&other.local_ts[..], &other.remote_ts[..]]);
        may_meet([&child.local_ts, &child.remote_ts], others)
            || ctx.registry.has_another(identity.both(), channel.link().id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(port: u16) -> TrafficSelector {
        let any = TrafficSelector::any_v4();
        TrafficSelector { protocol: 17, start_port: port, end_port: port, ..any }
    }

    /// Lists of `n` selectors, of which those from different `at` do not meet.
    fn list(at: u16, n: u16) -> Vec<TrafficSelector> {
        (0..n).map(|i| selector(at * 300 + i + 1)).collect()
    }

    /// `n` children with the selectors `theirs` at both ends.
    fn others(
        theirs: &[TrafficSelector],
        n: usize,
    ) -> impl Iterator<Item = [&[TrafficSelector]; 2]> {
        std::iter::repeat_n([theirs, theirs], n)
    }

    /// A peer with 255 selectors in each of its children has a bounded number of them compared.
    ///
    /// Fault: in `may_meet`, let `left` stay as it is.
    #[test]
    fn what_is_too_much_to_compare_may_meet() {
        let any = vec![TrafficSelector::any_v4()];
        let (new, few, many) = (list(0, 1), list(1, 10), list(1, 255));
        assert!(!may_meet([&new, &any], others(&few, COMPARISONS / 10)), "all are compared");
        assert!(may_meet([&new, &any], others(&few, COMPARISONS / 10 + 1)), "one too many");
        assert!(may_meet([&list(2, 255), &any], others(&many, 1)), "65,025 comparisons");
        assert!(may_meet([&list(1, 1), &any], others(&few, 1)), "they meet");
        assert!(!may_meet([&new, &any], others(&few, 0)), "there is no other one");
    }
}
