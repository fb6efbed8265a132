//! One IKE SA: keys, message window, timers and the stage it is in. No I/O.
//!
//! `on_datagram` and `on_timer` take inputs, and `finish` ends each of them. Outputs go to the queue of the
//! [`Context`].

mod children;
mod closing;
pub(crate) mod collision;
pub(crate) mod context;
pub(crate) mod crossing;
mod entry;
pub(crate) mod established;
mod identity;
mod joining;
pub(crate) mod keeping;
mod life;
pub(crate) mod mobility;
mod path;
pub(crate) mod pending;
pub(crate) mod plane;
mod queue;
mod receive;
mod send;
pub(crate) mod standby;
pub(crate) mod state;
mod status;
mod stream;
pub(crate) mod succession;
mod transport_move;
mod work;

use std::sync::Arc;
use std::time::Instant;

use crate::channel::timer::{Timer, TimerKey};
use crate::channel::{Channel, Extensions, NewChannel, Stalled};
use crate::child::processing::IfIds;
use crate::config::ConnectionConfig;
use crate::dataplane::{self, DataPlaneError};
use crate::event::{Event, Failure, IkeSaId, RequestId, Ticket};
use crate::exchange::config::Assigned;
use crate::exchange::ppk::PpkStage;
use crate::exchange::qcd::PeerToken;
use crate::exchange::redirect::Redirected;
use crate::keys::Spis;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;
pub(crate) use children::{Carries, Children};
pub(crate) use context::Context;
pub(crate) use identity::Identity;
pub(crate) use life::Life;
use pending::Waits;
pub(crate) use queue::Queue;
use state::State;
pub(crate) use work::Work;

/// One IKE SA: what it has in every state, and its state.
pub(crate) struct IkeSa {
    pub(crate) core: Core,
    pub(crate) state: State,
}

/// What an IKE SA has in every state: its identity, its channel, and what its exchanges share.
pub(crate) struct Core {
    pub(crate) channel: Channel,
    /// Why the SA ends. The state is closed once the handler that found the reason has returned.
    ending: Option<Box<Failure>>,
    pub(crate) lineage: Lineage,
    /// True if this end made the SA to replace another one by reauthentication.
    pub(crate) renews: bool,
    pub(crate) ppk: PpkStage,
    /// Commands to answer when the SA is established or fails.
    pub(crate) waiting: Vec<RequestId>,
    /// Interface ids, in and out, for children without their own.
    pub(crate) if_ids: IfIds,
    /// What one end has got from the other by configuration payloads.
    pub(crate) assigned: Assigned,
    /// Gateway: a ticket was given for this SA (RFC 5723).
    pub(crate) ticketed: bool,
    /// The token that the peer will send if it loses this SA (RFC 6290).
    pub(crate) peer_token: PeerToken,
    /// Slow key exchanges that are done outside the engine.
    pending: Waits,
}

/// The IKE SAs before this one.
#[derive(Default)]
pub(crate) struct Lineage {
    /// Initiator: how the SA came to its gateway by redirects.
    pub(crate) redirected: Option<Box<Redirected>>,
    /// The SA that this one replaces by reauthentication. It is deleted when this one is established.
    pub(crate) reauthenticates: Option<IkeSaId>,
    /// SAs whose rekeys led to this one and that may still exist, the oldest first.
    pub(crate) predecessors: Box<[IkeSaId]>,
}

impl Core {
    pub(crate) fn new(ctx: &Context<'_>, new: NewChannel) -> Self {
        let channel = Channel::new(&ctx.io, new);
        Self {
            channel,
            ending: None,
            lineage: Lineage::default(),
            renews: false,
            ppk: PpkStage::default(),
            waiting: Vec::new(),
            if_ids: IfIds::default(),
            assigned: Assigned::default(),
            ticketed: false,
            peer_token: PeerToken::default(),
            pending: Waits::default(),
        }
    }
}

impl IkeSa {
    /// Has the state handle something, and goes to the state that its handler names.
    pub(crate) fn change(&mut self, handle: impl FnOnce(State, &mut Core) -> State) {
        // The handler owns the state meanwhile, and cannot see this one.
        let state = std::mem::replace(&mut self.state, State::Closed(Failure::NotFound));
        self.state = handle(state, &mut self.core);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core.is_ending() || matches!(self.state, State::Closed(_))
    }

    /// Closes the state if a handler has found that the SA ends.
    pub(crate) fn settle(&mut self, ctx: &mut Context<'_>) {
        if let Some(reason) = self.core.ending.take().map(|reason| *reason) {
            self.close(ctx, reason);
        }
    }

    /// Octets of the request that made the SA, while the SA is half-open.
    pub(crate) fn half_open_octets(&self) -> Option<usize> {
        self.state.half_open().map(|waiting| waiting.transcript.request.len())
    }

    pub(crate) fn is_half_open(&self) -> bool {
        self.state.half_open().is_some()
    }

    /// Handles every timer that is due.
    pub(crate) fn on_timeout(&mut self, ctx: &mut Context<'_>) {
        while !self.is_closed()
            && let Some(key) = self.pop_due(ctx.io.now.mono)
        {
            match key {
                TimerKey::Ike(Timer::HalfOpen) => {
                    let asked = self.state.ticket().is_some() || self.core.pending.get().is_some();
                    let unanswered = || Failure::Credentials("no answer in time".to_owned());
                    self.close(ctx, if asked { unanswered() } else { Failure::Timeout });
                }
                TimerKey::Ike(Timer::Exchange) => self.on_exchange_timeout(ctx),
                TimerKey::Ike(
                    timer @ (Timer::Pace
                    | Timer::Retransmit
                    | Timer::Reassembly
                    | Timer::Acknowledge
                    | Timer::KeepAlive
                    | Timer::Reopen
                    | Timer::Forget),
                ) => {
                    if let Some(stalled) = self.core.channel.on_timer(&mut ctx.io, timer) {
                        self.on_stalled(ctx, stalled);
                    }
                }
                key => {
                    if let Some((established, core)) = self.established_mut() {
                        established.on_timer(core, ctx, key);
                    }
                }
            }
        }
    }

    fn on_stalled(&mut self, ctx: &mut Context<'_>, stalled: Stalled) {
        match (self.established_mut(), stalled) {
            (Some((established, core)), Stalled::Repeated) => established.probe_paths(core, ctx),
            (Some((established, core)), Stalled::Unanswered) => {
                established.on_peer_dead(core, ctx, Failure::Timeout);
            }
            (None, Stalled::Repeated) => {}
            (None, Stalled::Unanswered) => self.core.end(Failure::Timeout),
        }
    }

    /// Takes the soonest timer that is due at `now`.
    fn pop_due(&mut self, now: Instant) -> Option<TimerKey> {
        let mut channel = self.core.channel.deadlines();
        match &mut self.state {
            State::Established(established) => established.life.pop_due(channel, now),
            _ => channel.pop_due(now),
        }
    }

    /// The soonest timer of the channel and of the life of the SA.
    fn next_timer(&self) -> Option<(Instant, TimerKey)> {
        let life = self.established().and_then(|(established, _)| established.life.next());
        [self.core.channel.next_deadline(), life].into_iter().flatten().min()
    }

    /// Ends an input: sends what is queued and sets the timers of what is still to be sent. Returns the next
    /// deadline.
    pub(crate) fn finish(&mut self, ctx: &mut Context<'_>) -> Option<Instant> {
        self.settle(ctx);
        self.core.channel.settle_acks();
        if let Some((established, core)) = self.established_mut() {
            established.pump(core, ctx);
        }
        self.settle(ctx);
        if self.is_closed() {
            return None;
        }
        self.core.channel.finish(&mut ctx.io);
        if let Some((established, core)) = self.established_mut() {
            established.trim();
            if established.sent.is_none() {
                core.channel.deadlines().trim();
                established.life.trim();
            }
        }
        self.next_timer().map(|(at, _)| at)
    }

    /// Ends the SA without a message to the peer: removes its children from the data plane and answers waiting
    /// commands.
    pub(crate) fn close(&mut self, ctx: &mut Context<'_>, reason: Failure) {
        // The first reason counts.
        let reason = self.core.ending.take().map_or(reason, |first| *first);
        let state = std::mem::replace(&mut self.state, State::Closed(reason.clone()));
        if let Some(ticket) = state.ticket() {
            ctx.ids.asked.remove(&ticket);
        }
        self.core.pending.give_up(ctx);
        self.core.channel.close(&mut ctx.io);
        match state {
            State::Established(mut established) => {
                established.life.clear_all();
                self.core.on_established_closed(ctx, *established, &reason);
            }
            State::ExpectIntermediateRequest(_)
            | State::ExpectAuthRequest(_)
            | State::AwaitInitiatorVerdict(_)
            | State::AwaitPeerPacket(_)
            | State::AwaitResponseSignature(_)
            | State::AwaitLease(_) => {
                ctx.io.event(Event::IkeDown {
                    ike: self.core.id(),
                    connection: String::new(),
                    established: false,
                    reason: reason.clone(),
                });
            }
            // The attempt that made this candidate reports for all its candidates.
            State::ExpectIntermediateResponse(waiting) => waiting.auth.forget_child(ctx),
            State::ExpectAuthResponse(waiting) => waiting.forget_child(ctx),
            State::AwaitRequestSignature(asked) => asked.waiting.forget_child(ctx),
            State::AwaitAuthenticatorPacket(asked) => asked.waiting.forget_child(ctx),
            State::AwaitResponderVerdict(asked) => asked.waiting.forget_child(ctx),
            closed @ State::Closed(_) => self.state = closed,
        }
        self.core.assigned.give_back(ctx);
        for request in std::mem::take(&mut self.core.waiting) {
            ctx.done(Some(request), Err(reason.clone()));
        }
    }

    /// Handles the data plane's answer to a ticket.
    pub(crate) fn on_completed(
        &mut self,
        ctx: &mut Context<'_>,
        ticket: Ticket,
        result: Result<Vec<dataplane::Reply>, DataPlaneError>,
    ) {
        if let Some((established, core)) = self.established_mut() {
            established.on_data_plane(core, ctx, ticket, result);
        }
    }
}

impl Core {
    /// The number of the SA.
    pub(crate) fn id(&self) -> IkeSaId {
        self.channel.link().id()
    }

    /// True if this end is the original initiator.
    pub(crate) fn is_initiator(&self) -> bool {
        self.channel.link().is_initiator()
    }

    /// The SPIs of both ends.
    pub(crate) fn spis(&self) -> Spis {
        self.channel.link().spis()
    }

    /// The connection. Until the peer is authenticated, the most likely one.
    pub(crate) fn connection(&self) -> &Arc<ConnectionConfig> {
        self.channel.link().connection()
    }

    /// What both ends support.
    pub(crate) fn extensions(&self) -> Extensions {
        self.channel.link().extensions()
    }

    /// Ends the SA once the present handler has returned. The first reason counts.
    pub(crate) fn end(&mut self, reason: Failure) {
        self.ending.get_or_insert_with(|| Box::new(reason));
    }

    /// True if the SA ends once the present handler has returned.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }
}

/// A notify payload that concerns no SPI.
pub(crate) fn notify(kind: NotifyType, data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(kind, data))
}
