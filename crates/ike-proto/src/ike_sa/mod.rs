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
pub(crate) mod path_probe;
mod peer;
pub(crate) mod pending;
pub(crate) mod plane;
mod queue;
mod receive;
pub(crate) mod standby;
pub(crate) mod state;
mod status;
mod stem;
mod stream;
pub(crate) mod succession;
mod transport_move;
mod work;

use std::time::Instant;

use crate::channel::timer::{Timer, TimerKey};
use crate::channel::{Channel, Stalled};
use crate::dataplane::{self, DataPlaneError};
use crate::event::{Event, Failure, RequestId, Ticket};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;
pub(crate) use children::{Carries, Children};
pub(crate) use context::Context;
pub(crate) use identity::Identity;
pub(crate) use life::Life;
pub(crate) use peer::Peer;
use pending::Waits;
pub(crate) use queue::Queue;
use state::State;
pub(crate) use stem::{Ending, Seen, Stem};
pub(crate) use work::Work;

/// One IKE SA: the channel of its messages, what this end knows of the other end, and its state.
pub(crate) struct IkeSa {
    pub(crate) channel: Channel,
    pub(crate) peer: Peer,
    pub(crate) state: State,
    ending: Ending,
    /// Slow key exchanges that are done outside the engine.
    pub(crate) pending: Waits,
    /// Commands to answer when the SA is established or fails.
    pub(crate) waiting: Vec<RequestId>,
}

impl IkeSa {
    pub(crate) fn new(channel: Channel, peer: Peer, state: State) -> Self {
        let (ending, pending, waiting) = Default::default();
        Self { channel, peer, state, ending, pending, waiting }
    }

    /// The channel and the peer, to read.
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen { channel: &self.channel, peer: &self.peer }
    }

    /// What it lends a handler beside the state.
    fn stem(&mut self) -> Stem<'_> {
        let Self { channel, peer, ending, pending, waiting, .. } = self;
        Stem { channel, peer, ending, pending, waiting }
    }

    /// Has the state handle something, and goes to the state that its handler names.
    pub(crate) fn change(&mut self, handle: impl FnOnce(State, &mut Stem<'_>) -> State) {
        // The handler owns the state meanwhile, and cannot see this one.
        let state = std::mem::replace(&mut self.state, State::Closed(Failure::NotFound));
        self.state = handle(state, &mut self.stem());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.ending.is_set() || matches!(self.state, State::Closed(_))
    }

    /// Closes the state if a handler has found that the SA ends.
    pub(crate) fn settle(&mut self, ctx: &mut Context<'_>) {
        if let Some(reason) = self.ending.take() {
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
                    let asked = self.state.ticket().is_some() || self.pending.get().is_some();
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
                    if let Some(stalled) = self.channel.on_timer(&mut ctx.io, timer) {
                        self.on_stalled(ctx, stalled);
                    }
                }
                key => {
                    self.when_established(|established, stem| established.on_timer(stem, ctx, key));
                }
            }
        }
    }

    fn on_stalled(&mut self, ctx: &mut Context<'_>, stalled: Stalled) {
        let told = self.when_established(|established, stem| match stalled {
            Stalled::Repeated => established.probe_paths(stem.channel, ctx),
            Stalled::Unanswered => established.on_peer_dead(stem, ctx, Failure::Timeout),
        });
        if told.is_none() && matches!(stalled, Stalled::Unanswered) {
            self.ending.end(Failure::Timeout);
        }
    }

    /// Takes the soonest timer that is due at `now`.
    fn pop_due(&mut self, now: Instant) -> Option<TimerKey> {
        let mut channel = self.channel.deadlines();
        match &mut self.state {
            State::Established(established) => established.life.pop_due(channel, now),
            _ => channel.pop_due(now),
        }
    }

    /// The soonest timer of the channel and of the life of the SA.
    fn next_timer(&self) -> Option<(Instant, TimerKey)> {
        let life = self.established().and_then(|established| established.life.next());
        [self.channel.next_deadline(), life].into_iter().flatten().min()
    }

    /// Ends an input: sends what is queued and sets the timers of what is still to be sent. Returns the next
    /// deadline.
    pub(crate) fn finish(&mut self, ctx: &mut Context<'_>) -> Option<Instant> {
        self.settle(ctx);
        self.channel.settle_acks();
        self.when_established(|established, stem| established.pump(stem, ctx));
        self.settle(ctx);
        if self.is_closed() {
            return None;
        }
        self.channel.finish(&mut ctx.io);
        self.when_established(|established, stem| {
            established.trim();
            if established.sent.is_none() {
                stem.channel.deadlines().trim();
                established.life.trim();
            }
        });
        self.next_timer().map(|(at, _)| at)
    }

    /// Ends the SA without a message to the peer: removes its children from the data plane and answers waiting
    /// commands.
    pub(crate) fn close(&mut self, ctx: &mut Context<'_>, reason: Failure) {
        // The first reason counts.
        let reason = self.ending.take().unwrap_or(reason);
        let state = std::mem::replace(&mut self.state, State::Closed(reason.clone()));
        if let Some(ticket) = state.ticket() {
            ctx.ids.asked.remove(&ticket);
        }
        self.pending.give_up(ctx);
        self.channel.close(&mut ctx.io);
        match state {
            State::Established(mut established) => {
                established.life.clear_all();
                let (channel, peer) = (&self.channel, &self.peer);
                closing::on_established_closed(ctx, channel, peer, *established, &reason);
            }
            State::ExpectIntermediateRequest(_)
            | State::ExpectAuthRequest(_)
            | State::AwaitInitiatorVerdict(_)
            | State::AwaitPeerPacket(_)
            | State::AwaitResponseSignature(_)
            | State::AwaitLease(_) => {
                ctx.io.event(Event::IkeDown {
                    ike: self.channel.link().id(),
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
        self.peer.give_back(ctx);
        for request in std::mem::take(&mut self.waiting) {
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
        self.when_established(|established, stem| {
            established.on_data_plane(stem, ctx, ticket, result);
        });
    }
}

/// A notify payload that concerns no SPI.
pub(crate) fn notify(kind: NotifyType, data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(kind, data))
}
