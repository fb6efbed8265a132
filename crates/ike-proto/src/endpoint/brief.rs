//! A little about many IKE SAs: what counters and gauges need, without copies.

use std::time::Duration;

use super::{Endpoint, Entry};
use crate::child::{ChildSa, Phase};
use crate::config::ConnectionConfig;
use crate::dataplane::SaId;
use crate::event::{ChildSaId, ChildState, IkeSaId, IkeState};
use crate::ike_sa::IkeSa;

/// An IKE SA, or an attempt at one, in brief.
#[derive(Clone, Copy)]
pub struct IkeBrief<'a> {
    /// Id.
    pub id: IkeSaId,
    /// Connection name; empty while it is not known.
    pub connection: &'a str,
    /// State.
    pub state: IkeState,
    /// True if this end is the original initiator.
    pub initiator: bool,
    /// True if it was resumed by a ticket (RFC 5723), or is a rekey of one that was.
    pub resumed: bool,
    /// From the first message to established.
    pub setup_time: Option<Duration>,
    children: &'a [ChildSa],
}

/// A Child SA in brief.
#[derive(Debug, Clone, Copy)]
pub struct ChildBrief<'a> {
    /// Id.
    pub id: ChildSaId,
    /// Configuration name.
    pub name: &'a str,
    /// State.
    pub state: ChildState,
    /// The SA of incoming traffic.
    pub inbound: SaId,
    /// The SA of outgoing traffic.
    pub outbound: SaId,
    /// From the first message of its exchange to installed.
    pub setup_time: Duration,
}

impl<'a> IkeBrief<'a> {
    /// Its children.
    pub fn children(&self) -> impl Iterator<Item = ChildBrief<'a>> + use<'a> {
        self.children.iter().map(|child| ChildBrief {
            id: child.id,
            name: &child.config.name,
            state: match child.phase {
                Phase::Installing => ChildState::Installing,
                Phase::Installed => ChildState::Installed,
                Phase::Rekeyed => ChildState::Rekeyed,
                Phase::Deleting => ChildState::Deleting,
            },
            inbound: child.inbound(),
            outbound: child.outbound(),
            setup_time: child.setup_time,
        })
    }

    fn unborn(id: IkeSaId, connection: Option<&'a ConnectionConfig>, initiator: bool) -> Self {
        let connection = connection.map_or("", |connection| connection.name.as_str());
        let state = IkeState::Connecting;
        Self { id, connection, state, initiator, resumed: false, setup_time: None, children: &[] }
    }

    fn of_sa(sa: &'a IkeSa) -> Self {
        let (state, setup_time, children) = sa.brief();
        let connection = sa.channel.connection().name.as_str();
        let (initiator, resumed) = (sa.channel.link().is_initiator(), sa.is_resumed());
        Self {
            id: sa.channel.link().id(),
            connection,
            state,
            initiator,
            resumed,
            setup_time,
            children,
        }
    }
}

impl Endpoint {
    /// One IKE SA or attempt, in brief.
    pub fn brief(&self, id: IkeSaId) -> Option<IkeBrief<'_>> {
        self.entries.get(&id).map(|slot| match &slot.entry {
            Entry::Attempt(attempt) => IkeBrief::unborn(id, Some(attempt.connection()), true),
            Entry::Sa(sa) => IkeBrief::of_sa(sa),
            Entry::Parked(parked) => IkeBrief::unborn(id, parked.connection(), false),
        })
    }

    /// The IKE SA or attempt for which this end has chosen `spi`, in brief.
    pub fn brief_by_spi(&self, spi: u64) -> Option<IkeBrief<'_>> {
        self.by_spi.get(&spi).and_then(|id| self.brief(*id))
    }

    /// The ids of all IKE SAs and attempts, in no order. A caller with thousands of them describes a few at a time by
    /// [`ike_sa`](Self::ike_sa) or [`brief`](Self::brief), so that messages do not wait.
    pub fn ids(&self) -> Vec<IkeSaId> {
        self.entries.keys().copied().collect()
    }
}
