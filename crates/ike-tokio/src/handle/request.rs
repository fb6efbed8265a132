//! Requests of a handle to a driver.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::dataplane::{SaId, Usage};
use ike_proto::{Answer, IkeSaId, Ticket};
use tokio::sync::oneshot;

use super::Outcome;
use crate::report::{IkeView, PolicyView, ShardState, Tally};
use crate::target::Target;

/// A request to a driver.
pub(crate) enum Request {
    /// Feed the engine a command and answer with its result.
    Command(ike_proto::Command, oneshot::Sender<Outcome>),
    /// Describe one.
    View(IkeSaId, oneshot::Sender<Option<IkeView>>),
    /// Describe this shard in brief.
    State(oneshot::Sender<ShardState>),
    /// Count these SAs.
    Census(Vec<IkeSaId>, oneshot::Sender<Tally>),
    /// The counters of these ESP SAs.
    Usage(Vec<SaId>, oneshot::Sender<Vec<Usage>>),
    /// Answer, if this shard and the data plane are alive.
    Pulse(oneshot::Sender<()>),
    /// The numbers of all, in no order.
    Ids(oneshot::Sender<Vec<IkeSaId>>),
    /// The number of all, and of those that are not established.
    Count(oneshot::Sender<(usize, usize)>),
    /// Describe these, as far as they are there.
    Views(Vec<IkeSaId>, oneshot::Sender<Vec<IkeView>>),
    /// Traps and the daemon's own policies.
    Policies(oneshot::Sender<Vec<PolicyView>>),
    /// The answer to a question of this shard's engine.
    Answer(Ticket, Answer),
    /// Whether this child is up or being made.
    Carries(String, String, oneshot::Sender<bool>),
    /// The children that are wanted up.
    Wanted(oneshot::Sender<Vec<(String, Option<String>)>>),
    /// How long until this child is started again; `None` if it is not wanted.
    StartsIn(String, Option<String>, oneshot::Sender<Option<Duration>>),
    /// Whether there is an IKE SA of this connection with this peer.
    Serves(String, IpAddr, oneshot::Sender<bool>),
    /// This host's addresses are these.
    Network(Arc<[IpAddr]>, oneshot::Sender<()>),
    /// Let the traffic of children that are not up go again; the number of them.
    Lift(Target, oneshot::Sender<usize>),
    /// How long the slowest handshake of an IKE SA that is up took.
    SlowestHandshake(oneshot::Sender<Option<Duration>>),
    /// Delete every SA at the peers, then stop.
    Shutdown(oneshot::Sender<()>),
    /// Stop now, and empty the data plane.
    Stop,
    /// Stop without a word to the peers, and leave the data plane as it is.
    Leave(oneshot::Sender<()>),
    /// As [`Self::Leave`], and the data plane is never dropped.
    Abandon(oneshot::Sender<()>),
}
