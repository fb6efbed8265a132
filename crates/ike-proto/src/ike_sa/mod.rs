//! One IKE SA: keys, message window, timers and the stage it is in. No I/O.
//!
//! `on_datagram` and `on_timer` take inputs, and `finish` ends each of them. Outputs go to the queue of the
//! [`Context`].

mod answer_path;
mod children;
mod closing;
pub(crate) mod collision;
pub(crate) mod context;
pub(crate) mod crossing;
mod entry;
pub(crate) mod established;
pub(crate) mod flight;
pub(crate) mod fragment_ack;
mod identity;
pub(crate) mod io;
mod joining;
pub(crate) mod keeping;
mod life;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod mobike;
pub(crate) mod mobility;
mod open;
mod path;
pub(crate) mod pending;
pub(crate) mod plane;
pub(crate) mod pmtu;
mod queue;
pub(crate) mod reassembly;
mod receive;
mod refragment;
pub(crate) mod rtt;
mod send;
pub(crate) mod session;
pub(crate) mod standby;
pub(crate) mod state;
mod status;
pub(crate) mod stream;
pub(crate) mod succession;
pub(crate) mod timer;
mod transport_move;
pub(crate) mod window;
mod work;

use std::sync::Arc;
use std::time::Instant;

use crate::child::processing::IfIds;
use crate::config::ConnectionConfig;
use crate::crypto::Secret;
use crate::dataplane::{self, DataPlaneError};
use crate::event::{
    Event, Failure, Hint, IkeSaId, Output, Path, RequestId, Ticket, Transmit, TransmitKind,
};
use crate::exchange::config::Assigned;
use crate::exchange::ppk::PpkStage;
use crate::exchange::redirect::Redirected;
use crate::ike_sa::session::Session;
use crate::keys::Spis;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;
use answer_path::AnswerPath;
pub(crate) use children::{Carries, Children};
pub(crate) use context::Context;
use fragment_ack::FragmentAcks;
pub(crate) use identity::Identity;
use io::Io;
pub(crate) use life::Life;
pub(crate) use link::Twin;
use link::{Link, NewLink};
use memory::Kept;
use mobike::Mobike;
use pending::Pending;
use pmtu::Probe;
pub(crate) use queue::Queue;
use reassembly::Reassembly;
use state::{Extensions, NatStatus, State};
use stream::Stream;
use timer::{Timer, TimerKey, TimerTable};
use window::{Retransmit, Window};
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
    pub(crate) assigned: Option<Arc<Assigned>>,
    /// Gateway: a ticket was given for this SA (RFC 5723).
    pub(crate) ticketed: bool,
    /// The token that the peer will send if it loses this SA (RFC 6290).
    pub(crate) peer_token: Option<Secret>,
    /// Slow key exchanges that are done outside the engine.
    pending: Option<Box<Pending>>,
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

/// How the messages of an IKE SA travel: paths, keys, message window, timers, fragments. It knows no exchange.
pub(crate) struct Channel {
    /// What it knows of the SA and of the peer.
    pub(crate) link: Link,
    /// The path of requests.
    pub(crate) path: Path,
    /// With transport TCP, the connection that `path` names.
    stream: Option<Box<Stream>>,
    /// The path of ESP if it differs from that of IKE.
    separate: Option<Box<Path>>,
    answers: AnswerPath,
    pub(crate) nat: NatStatus,
    /// Present if both ends have MOBIKE.
    pub(crate) mobike: Option<Box<Mobike>>,
    pub(crate) session: Session,
    pub(crate) window: Window,
    pub(crate) timers: TimerTable,
    /// When the last authentic message of the peer came.
    pub(crate) last_heard: Instant,
    /// What the SA has found out about the size of datagrams.
    probe: Probe,
    requests: Reassembly,
    responses: Reassembly,
    acks: FragmentAcks,
    /// Digest of the request in progress, or of its first fragment.
    request_digest: u64,
    /// Octets of the peer's messages that are kept until there is a verdict. They are taken from the budget.
    kept: Kept,
}

/// The data from which an IKE SA is made.
pub(crate) struct NewIkeSa {
    pub(crate) id: IkeSaId,
    pub(crate) initiator: bool,
    pub(crate) spis: Spis,
    pub(crate) path: Path,
    pub(crate) nat: NatStatus,
    pub(crate) extensions: Extensions,
    pub(crate) connection: Arc<ConnectionConfig>,
    pub(crate) session: Session,
    pub(crate) started: Instant,
}

impl Core {
    pub(crate) fn new(ctx: &Context<'_>, new: NewIkeSa) -> Self {
        let channel = Channel {
            link: Link::new(NewLink {
                id: new.id,
                initiator: new.initiator,
                spis: new.spis,
                connection: new.connection,
                extensions: new.extensions,
                started: new.started,
            }),
            path: new.path,
            stream: None,
            separate: None,
            answers: AnswerPath::new(new.path),
            nat: new.nat,
            mobike: None,
            session: new.session,
            window: Window::new(ctx.io.config.retransmission),
            timers: TimerTable::default(),
            last_heard: ctx.io.now.mono,
            probe: Probe::default(),
            requests: Reassembly::new(ctx.io.config.max_packet),
            responses: Reassembly::new(ctx.io.config.max_packet),
            acks: FragmentAcks::default(),
            request_digest: 0,
            kept: Kept::default(),
        };
        Self {
            channel,
            ending: None,
            lineage: Lineage::default(),
            renews: false,
            ppk: PpkStage::default(),
            waiting: Vec::new(),
            if_ids: IfIds::default(),
            assigned: None,
            ticketed: false,
            peer_token: None,
            pending: None,
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
                    let asked = self.state.ticket().is_some() || self.core.pending.is_some();
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
        let channel = &mut self.core.channel.timers;
        match &mut self.state {
            State::Established(established) => established.life.pop_due(channel, now),
            _ => channel.pop_due(now),
        }
    }

    /// The soonest timer of the channel and of the life of the SA.
    fn next_timer(&self) -> Option<(Instant, TimerKey)> {
        let life = self.established().and_then(|(established, _)| established.life.next());
        [self.core.channel.timers.next(), life].into_iter().flatten().min()
    }

    /// Ends an input: sends what is queued and sets the timers of what is still to be sent. Returns the next
    /// deadline.
    pub(crate) fn finish(&mut self, ctx: &mut Context<'_>) -> Option<Instant> {
        self.settle(ctx);
        self.core.channel.window.set_fragment_acks(self.core.channel.link.surely_acknowledged());
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
                core.channel.timers.trim();
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
        self.core.give_up_pending(ctx);
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
        self.core.give_back_assigned(ctx);
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
        self.channel.link.id()
    }

    /// True if this end is the original initiator.
    pub(crate) fn is_initiator(&self) -> bool {
        self.channel.link.is_initiator()
    }

    /// The SPIs of both ends.
    pub(crate) fn spis(&self) -> Spis {
        self.channel.link.spis()
    }

    /// The connection. Until the peer is authenticated, the most likely one.
    pub(crate) fn connection(&self) -> &Arc<ConnectionConfig> {
        self.channel.link.connection()
    }

    /// What both ends support.
    pub(crate) fn extensions(&self) -> Extensions {
        self.channel.link.extensions()
    }

    /// True if the peer is authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.channel.link.is_authenticated()
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

impl Channel {
    /// True if a peer that is not authenticated asks for an answer to `to`, an address that nothing has proven.
    fn is_unproven(&self, to: Path) -> bool {
        !self.link.is_initiator() && self.link.is_stranger() && !self.answers.has_reached(to)
    }

    /// True if messages of the peer may come from another address than those before.
    pub(crate) fn peer_roams(&self) -> bool {
        let comes_anew = || self.stream.as_ref().is_some_and(|stream| !stream.ours);
        self.nat.remote || self.mobike.is_some() || comes_anew()
    }

    /// The path of the peer's latest request.
    pub(crate) fn answer_to(&self) -> Path {
        self.answers.to()
    }
}

/// What the channel leaves to the SA when a request has no response.
pub(crate) enum Stalled {
    /// The request was sent again.
    Repeated,
    /// The time for the response is over.
    Unanswered,
}

impl Channel {
    /// Handles that `timer` is due, which is one of the channel.
    fn on_timer(&mut self, io: &mut Io<'_>, timer: Timer) -> Option<Stalled> {
        match timer {
            Timer::Pace => self.pace(io),
            Timer::Retransmit => return self.on_retransmit(io),
            Timer::Reassembly => {
                self.requests.release(io.budget);
                self.responses.release(io.budget);
            }
            Timer::Acknowledge => self.acknowledge(io),
            Timer::KeepAlive => {
                let octets = Arc::from([0xff].as_slice());
                let (kind, path) = (TransmitKind::KeepAlive, self.esp_path());
                let dscp = self.link.connection().dscp;
                io.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
                self.arm_keepalive(io);
            }
            Timer::Reopen => self.reopen(io),
            Timer::Forget => {
                self.window.forget_answer();
                self.acks.forget();
                self.timers.trim();
            }
            _ => debug_assert!(false, "a timer that is not the channel's: {timer:?}"),
        }
        None
    }

    fn on_retransmit(&mut self, io: &mut Io<'_>) -> Option<Stalled> {
        if self.try_smaller(io) {
            return None;
        }
        match self.window.retransmit(io.now.mono, io.rng) {
            // The schedule continues without sending, and ends when it would over UDP.
            Retransmit::Again if self.path.transport.is_reliable() => {
                self.window.hold_request();
                if self.stream.as_ref().is_some_and(|stream| stream.asks_again(io.now.mono)) {
                    self.send_again(io);
                }
                None
            }
            Retransmit::Again => {
                self.pace(io);
                if let Some((exchange, octets)) = self.window.large_unanswered() {
                    let (ike, remote) = (self.link.id(), self.path.remote);
                    let hint = Hint::LargeUnanswered { ike, remote, exchange, octets };
                    io.event(Event::Hint(Box::new(hint)));
                }
                Some(Stalled::Repeated)
            }
            Retransmit::GiveUp => Some(Stalled::Unanswered),
            Retransmit::Nothing => None,
        }
    }

    /// Ends an input: sends what is due, and sets the timers of what is still to be sent.
    fn finish(&mut self, io: &mut Io<'_>) {
        self.pace(io);
        let due = self.window.next_retransmit();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Retransmit), due);
        let due = self.window.next_departure(io.now.mono);
        self.timers.set_or_clear(TimerKey::Ike(Timer::Pace), due);
        let acknowledges = self.link.acknowledges().is_some();
        let due = acknowledges.then(|| self.acks.due(self.window.rtt())).flatten();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Acknowledge), due);
    }

    /// Sends the rest of what was paced, and gives back what it keeps of the peer.
    fn close(&mut self, io: &mut Io<'_>) {
        self.let_go(io);
        self.requests.release(io.budget);
        self.responses.release(io.budget);
        while let Some((to, departure)) = self.window.take_rest() {
            self.depart(io, to, departure);
        }
        self.timers.clear_all();
    }

    /// Has the SA end at `at` if it is still half-open. `None` if it is not, or waits for this end.
    pub(crate) fn limit_half_open(&mut self, at: Option<Instant>) {
        self.timers.set_or_clear(TimerKey::Ike(Timer::HalfOpen), at);
    }
}

/// A notify payload that concerns no SPI.
pub(crate) fn notify(kind: NotifyType, data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(kind, data))
}
