//! A child that the peer requests beside another one for the same traffic.
//!
//! The responder of a child has its SAs before the initiator has them. Packets that leave by the new SA meanwhile
//! are lost, although the older SAs would carry them. This happens if both ends start at once, or if a peer
//! reauthenticates before it deletes the old IKE SA. So the policy of the new child is on standby for a while:
//! packets leave by the other child as long as that exists.

use std::time::Duration;

use super::IkeSa;
use super::context::Context;
use super::state::State;
use crate::child::{ChildSa, Phase};
use crate::dataplane::TrafficSelector;
use crate::event::ChildSaId;

/// How long a policy is on standby after the answer was sent: the time on the path, and the time in which a busy
/// peer checks a certificate.
pub(crate) const STANDBY: Duration = Duration::from_millis(900);

impl IkeSa {
    /// True if there may be another child for the traffic of `child`, which is new: of this IKE SA, or of another
    /// one between the same identities.
    pub(crate) fn has_company(&self, ctx: &Context<'_>, child: &ChildSa) -> bool {
        let State::Established(established) = &self.state else { return false };
        let meet = |ours: &[TrafficSelector], theirs: &[TrafficSelector]| {
            ours.iter().any(|one| theirs.iter().any(|other| one.intersect(other).is_some()))
        };
        let same = |other: &ChildSa| {
            other.routed
                && other.policy != child.policy
                && meet(&other.local_ts, &child.local_ts)
                && meet(&other.remote_ts, &child.remote_ts)
        };
        established.children.iter().any(same)
            || self
                .identities()
                .is_some_and(|identities| ctx.registry.has_another(&identities, self.id))
    }

    /// True if each child `name` is on standby.
    pub(crate) fn is_on_standby(&self, name: &str) -> bool {
        let State::Established(established) = &self.state else { return false };
        let mut named = established.children.iter().filter(|child| child.config.name == name);
        named.all(|child| child.standby)
    }

    /// Ends the standby of `id`: its policy counts from now on, as the newest.
    pub(crate) fn end_standby(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let State::Established(established) = &mut self.state else { return };
        let Some(child) = established.children.iter_mut().find(|child| child.id == id) else {
            return;
        };
        child.standby = false;
        if child.routed && child.phase == Phase::Installed {
            self.route(ctx, id);
        }
    }
}
