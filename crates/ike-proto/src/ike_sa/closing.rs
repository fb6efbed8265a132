//! How an established IKE SA ends, and which parts of a child end first.

use super::Stem;
use super::context::{Context, Effect};
use super::state::{Established, IkePhase, Task};
use super::succession::Inheritance;
use crate::channel::Channel;
use crate::child::{ChildSa, Phase};
use crate::config::{ConnectionConfig, FailureShunt};
use crate::dataplane::{Command, PolicyId};
use crate::event::{ChildSaId, Event, Failure};
use crate::exchange::requested_child::RequestedChild;
use crate::exchange::sent::Sent;
use crate::ike_sa::Peer;
use crate::ike_sa::children::Released;
use crate::wants::Ended;
use crate::wants::aftermath::{End, Next, Wishes, after};
use crate::wire::registry::NotifyType;

impl Established {
    /// Handles a response to `ours` that cannot be used, so that the two ends have different states: the IKE SA is
    /// deleted at both ends.
    ///
    /// The Delete is a request that is retransmitted until it is answered, because the peer may think that all is
    /// well.
    pub(crate) fn abandon(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        ours: Sent,
        kind: NotifyType,
    ) {
        let reason = Failure::Refused(kind);
        if let Some(spi_in) = ours.spi_in() {
            ctx.ids.esp.remove(&spi_in);
        }
        let crossed = ours.ike().and_then(|offer| offer.crossed.as_ref()?.ike);
        let again = ours.child().and_then(RequestedChild::once_more);
        let (request, wants_end) = ours.request();
        ctx.done(request, if wants_end { Ok(()) } else { Err(reason.clone()) });
        match crossed {
            // The peer's own rekey has made an SA that both ends can use.
            Some(theirs) => self.replaced_by(channel, ctx, theirs),
            //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21
            //# Such errors in parsing or
            //# processing response packets should still cause the recipient to clean
            //# up the IKE state (for example, by sending a Delete for a bad SA).
            None => {
                self.queue.push_first(Task::DeleteIke { reason, request: None });
                // A child that has not come up ends with the SA (`endings`). It may be wanted all the same.
                if let Some(task) = again {
                    self.queue.push(task);
                }
            }
        }
    }

    /// Handles a Delete of the peer for `id` while this end's own Delete for it is in flight.
    pub(crate) fn close_outbound(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        id: ChildSaId,
    ) {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-1.4.1
        //# If a node receives a
        //# delete request for SAs for which it has already issued a delete
        //# request, it MUST delete the outgoing SAs while processing the request
        //# and the incoming SAs while processing the response.
        if let Some(new) = self.children.replacement_of(id) {
            self.activate(channel, ctx, new);
        }
        let reason = self.work().reason_to_delete(id).cloned().unwrap_or(Failure::DeletedByPeer);
        let Some(child) = self.children.get_mut(id) else {
            return debug_assert!(false, "half of a child closes, and the child is gone");
        };
        // What is made in its place may have no policy yet.
        let held = ctx.holds(channel.connection(), child, &reason).then(|| child.hold_policy());
        child.half_closed = true;
        child.pending_out = None;
        let routed = std::mem::take(&mut child.routed);
        let (phase, policy, outbound) = (child.phase, child.policy, child.outbound());
        let heir = self.children.iter().find(|other| {
            other.policy == policy
                && other.id != id
                && matches!(other.phase, Phase::Installing | Phase::Installed)
        });
        let heir = heir.map(|heir| (heir.id, heir.carries()));
        let mut batch = vec![Command::RemoveSa(outbound)];
        match heir {
            // The policy names another child already.
            _ if phase == Phase::Rekeyed => {}
            None => match held {
                Some(hold) => ctx.change(vec![hold], Vec::new(), Vec::new()),
                None => batch.insert(0, Command::RemovePolicy(policy)),
            },
            Some((heir, true)) if routed => self.children.route(ctx, heir),
            Some(_) => {}
        }
        ctx.data_plane(batch);
    }

    /// Handles a peer that does not answer or has lost the SA: the SA ends, and `dpd_action` says what follows.
    pub(crate) fn on_peer_dead(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        reason: Failure,
    ) {
        if let Some(to) = self.sent.as_ref().and_then(Sent::crossed_rekey) {
            // The peer may well be alive on the SA of its own rekey.
            return self.succeeded_by(stem.channel, ctx, to);
        }
        stem.ending.end(reason);
    }
}

/// Handles that an established SA is closed: what it has ends with it.
pub(super) fn on_established_closed(
    ctx: &mut Context<'_>,
    channel: &Channel,
    peer: &Peer,
    established: Established,
    reason: &Failure,
) {
    let ike = channel.link().id();
    let endings = endings(ctx, channel, &established, reason);
    let Established { children, sent, queue, phase, answering, .. } = established;
    let deletes = |task: &Task| matches!(task, Task::DeleteIke { .. });
    let wanted = phase == IkePhase::Closing
        || sent.as_ref().is_some_and(Sent::ends_sa)
        || queue.tasks().any(deletes);
    // An end that deletes an SA does not resume it, even if the peer did not get the Delete. An end that
    // learns of the loss by a token does (RFC 6290 §7).
    let lost = matches!(reason, Failure::Timeout | Failure::LostByPeer);
    if channel.connection().session_resumption && (wanted || !lost) {
        ctx.void_tickets(ike, peer.spis_of_tickets(channel));
    }
    let Released { children, lingering, installing } = children.dissolve();
    let (mut batch, mut stay) = (Vec::new(), Vec::new());
    if let Some(spi_in) = sent.as_ref().and_then(Sent::spi_in) {
        ctx.ids.esp.remove(&spi_in);
    }
    answering.dissolve(ctx);
    if let Some(to) = sent.as_ref().and_then(Sent::crossed_rekey) {
        // The SA of the peer's own rekey continues, without children to wait for.
        let estate = Inheritance::default();
        ctx.effects.push_back(Effect::MoveChildren { from: ike, to, estate });
    }
    for child in &children {
        ctx.ids.esp.remove(&child.spi_in);
        match endings.iter().any(|ended| ended.held.contains(&child.policy)) {
            // In a batch of its own: only batches of removals are repeated until they succeed.
            true => ctx.change(vec![child.hold_policy()], Vec::new(), Vec::new()),
            false => batch.push(Command::RemovePolicy(child.policy)),
        }
        batch.push(Command::RemoveSa(child.outbound()));
        // The SA was replaced by another one. The peer may have sent by it until it answered the Delete.
        match *reason == Failure::Replaced && (wanted || !child.routed) {
            true => stay.push(child.inbound()),
            false => batch.push(Command::RemoveSa(child.inbound())),
        }
    }
    if !stay.is_empty() {
        ctx.effects.push_back(Effect::RemoveLater(stay));
    }
    for old in &lingering {
        ctx.ids.esp.remove(&old.inbound.spi);
        batch.extend(old.removals());
    }
    if !batch.is_empty() {
        ctx.data_plane(batch);
    }
    for child in children.iter().filter(|child| child.phase != Phase::Rekeyed) {
        let name = child.config.name.clone();
        ctx.io.event(Event::ChildDown { ike, child: child.id, name, reason: reason.clone() });
    }
    let closing = sent.into_iter().map(Sent::request);
    let queued = queue.into_all().map(Task::request);
    let installing = installing.into_iter().map(|one| (one.request, false));
    for (request, wants_end) in closing.chain(queued).chain(installing) {
        let result = if wants_end { Ok(()) } else { Err(reason.clone()) };
        ctx.done(request, result);
    }
    if let IkePhase::Replaced(to) = phase {
        ctx.effects.push_back(Effect::Seen(to));
    }
    if let IkePhase::Crossed(from) = phase {
        ctx.effects.push_back(Effect::Uncross { from });
    } else if !matches!(phase, IkePhase::Replaced(_)) {
        let connection = channel.connection().name.clone();
        let reason = reason.clone();
        ctx.io.event(Event::IkeDown { ike, connection, established: true, reason });
    }
    for ended in endings {
        ctx.effects.push_back(Effect::Ended(Box::new(ended)));
    }
}

/// The ends that follow from the end of an established SA: one for each child that it has or makes.
fn endings(
    ctx: &Context<'_>,
    channel: &Channel,
    established: &Established,
    reason: &Failure,
) -> Vec<Ended> {
    if matches!(established.phase, IkePhase::Replaced(_) | IkePhase::Crossed(_)) {
        // Its children, if there are any, belong to another SA.
        return Vec::new();
    }
    // The reason of this end's Delete counts, whether or not the peer has got the Delete.
    let sent = match &established.sent {
        Some(Sent::DeleteIke { reason, .. }) => Some(reason),
        _ => None,
    };
    let queued = established.queue.tasks().filter_map(|task| match task {
        Task::DeleteIke { reason, .. } => Some(reason),
        _ => None,
    });
    let own: Vec<_> = sent.into_iter().chain(queued).collect();
    let commanded = own.iter().find(|reason| ***reason == Failure::Terminated);
    let cause = commanded.or(own.first()).copied().unwrap_or(reason);
    let mut endings: Vec<Ended> = Vec::new();
    for child in established.children.iter() {
        if child.phase == Phase::Rekeyed {
            continue;
        }
        let own = established.work().reason_to_delete(child.id);
        let cause = own.filter(|own| **own == Failure::Terminated).unwrap_or(cause);
        let held = ctx.holds(channel.connection(), child, cause).then_some(child.policy);
        let name = &child.config.name;
        match endings.iter_mut().find(|ended| ended.child.as_ref() == Some(name)) {
            // Of one name there may be several, each for a part of the traffic.
            Some(ended) => ended.held.extend(held),
            None => endings.push(Ended::of(channel, Some(name), cause, true, held)),
        }
    }
    let tasks = established.queue.all().filter_map(|task| match task {
        Task::CreateChild { config, .. } => Some(&config.name),
        _ => None,
    });
    let sent = established.sent.as_ref().and_then(Sent::child);
    for name in tasks.chain(sent.map(|offer| &offer.config().name)) {
        if !endings.iter().any(|ended| ended.child.as_ref() == Some(name)) {
            endings.push(Ended::of(channel, Some(name), cause, false, None));
        }
    }
    endings.push(Ended::of(channel, None, cause, true, None));
    endings
}

impl Ended {
    /// The end of a child, or of the IKE SA of `channel` itself.
    pub(crate) fn of(
        channel: &Channel,
        child: Option<&str>,
        reason: &Failure,
        was_up: bool,
        held: Option<PolicyId>,
    ) -> Self {
        Self {
            connection: channel.connection().name.clone(),
            child: child.map(str::to_owned),
            end: End::of_sa(reason),
            reason: reason.clone(),
            was_up,
            ends: (channel.route().path().local.ip(), channel.route().path().remote.ip()),
            held: held.into_iter().collect(),
        }
    }
}

impl Context<'_> {
    /// True if the traffic of `child`, which ends for `reason`, must not leave until the child is up again or its trap
    /// is installed.
    pub(crate) fn holds(
        &self,
        connection: &ConnectionConfig,
        child: &ChildSa,
        reason: &Failure,
    ) -> bool {
        let config = &child.config;
        let wanted = self.wants.has(&connection.name, &config.name);
        let wishes = Wishes::of(connection, Some(config), wanted, 0);
        // A replacement may have no policy of its own yet, or may never get one.
        config.failure_shunt != FailureShunt::Passthrough
            && after(End::of_sa(reason), wishes) != Next::Nothing
    }
}
