//! One IKE SA: keys, message window, timers and the stage it is in. No I/O.
//!
//! `on_datagram` and `on_timer` take inputs, `finish` ends each of them. What comes out goes to the
//! queue of the [`Context`].

mod closing;
pub(crate) mod collision;
pub(crate) mod context;
pub(crate) mod established;
pub(crate) mod flight;
pub(crate) mod fragment_ack;
mod path;
pub(crate) mod plane;
pub(crate) mod pmtu;
pub(crate) mod reassembly;
mod refragment;
pub(crate) mod rtt;
pub(crate) mod state;
mod status;
pub(crate) mod stream;
pub(crate) mod succession;
pub(crate) mod timer;
pub(crate) mod window;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::child::processing::IfIds;
use crate::config::{ConnectionConfig, Fragmentation};
use crate::dataplane::{self, DataPlaneError};
use crate::event::{
    Event, Failure, IkeSaId, Output, Path, RequestId, Ticket, Transmit, TransmitKind,
};
use crate::exchange::Refusal;
use crate::exchange::ppk::PpkStage;
use crate::keys::epoch::{Epoch, Opened, Outgoing};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use crate::wire::{Flags, Header, Message, decode_inner_payloads};
use context::{Context, Effect};
use flight::Departure;
use fragment_ack::FragmentAcks;
use pmtu::{Probe, headers};
use reassembly::{Fragment, Progress, Reassembly};
use state::{Extensions, IkePhase, NatStatus, Session, State};
use stream::Stream;
use timer::{Timer, TimerKey, TimerTable};
use window::{Class, Datagrams, NoRequest, Retransmit, Window};

/// How long an incomplete fragmented message is kept (RFC 7383 §2.6).
const REASSEMBLY_TIME: Duration = Duration::from_secs(30);

/// `half_open_timeout` is granted so often to a peer whose fragments arrive.
const HALF_OPEN_TIMES: u32 = 4;

/// How often a response is sent again to an address that its request did not come from, or that nobody has
/// shown to be his. A NAT may have changed its mind; but whoever plays back what he has captured may name
/// any address, and so may a peer that is not authenticated yet.
const ELSEWHERE: u8 = 8;

/// One IKE SA.
pub(crate) struct IkeSa {
    pub(crate) id: IkeSaId,
    /// True if this end is the original initiator, which sets the I flag.
    pub(crate) initiator: bool,
    pub(crate) spi_i: u64,
    pub(crate) spi_r: u64,
    /// Where requests go.
    pub(crate) path: Path,
    /// With transport TCP, the connection that `path` names.
    pub(crate) stream: Option<Stream>,
    /// The path of ESP where it is another one than that of IKE.
    pub(crate) separate: Option<Path>,
    /// Where the peer's latest request came from, and its response goes.
    answer_to: Path,
    /// Where the messages went that gave the peer its keys.
    reached: IpAddr,
    /// How often that response was sent elsewhere.
    elsewhere: u8,
    /// Another connection by which the request being answered came again.
    answer_also_to: Option<Path>,
    pub(crate) nat: NatStatus,
    pub(crate) extensions: Extensions,
    /// The connection; until the peer is authenticated the likeliest one.
    pub(crate) connection: Arc<ConnectionConfig>,
    pub(crate) session: Session,
    pub(crate) ppk: PpkStage,
    pub(crate) window: Window,
    pub(crate) timers: TimerTable,
    pub(crate) state: State,
    /// When the first message of the exchange that made it was sent or received.
    pub(crate) started: Instant,
    /// When the peer was last heard, authenticated.
    pub(crate) last_heard: Instant,
    /// Commands to answer when the SA is established or fails.
    pub(crate) waiting: Vec<RequestId>,
    /// The SA this one replaces by reauthentication, deleted when this one is established.
    pub(crate) reauthenticates: Option<IkeSaId>,
    /// Interface ids for children without their own, in and out.
    pub(crate) if_ids: IfIds,
    /// True if this end made it in the place of another, by reauthentication.
    pub(crate) renews: bool,
    /// Since when the peer has answered nothing but TEMPORARY_FAILURE.
    pub(crate) put_off_since: Option<Instant>,
    /// SAs that were rekeyed into this one and may still be there, the oldest first.
    pub(crate) predecessors: Vec<IkeSaId>,
    /// Responder: message ID of the request that follows the last IKE_AUTH. In it the initiator may say
    /// that the response failed (RFC 7296 §2.21.2).
    pub(crate) follows_auth: Option<u32>,
    /// Initiator, until the peer is authenticated: IKE_SA_INIT responses with the keys of this SA.
    pub(crate) twins: Vec<Twin>,
    /// What it has found out about the size of datagrams.
    pub(crate) probe: Probe,
    requests: Reassembly,
    responses: Reassembly,
    acks: FragmentAcks,
    /// Digest of the request in hand, or of its first fragment.
    request_digest: u64,
    /// Octets of the stranger's messages kept until there is a verdict, taken from the budget.
    held: usize,
}

/// An IKE_SA_INIT response that makes the keys of another one and differs elsewhere: one of the two is
/// forged. The peer's AUTH tells which.
pub(crate) struct Twin {
    pub(crate) response: Arc<[u8]>,
    pub(crate) extensions: Extensions,
    pub(crate) nat: NatStatus,
}

/// What an IKE SA is made of.
pub(crate) struct NewIkeSa {
    pub(crate) id: IkeSaId,
    pub(crate) initiator: bool,
    pub(crate) spis: (u64, u64),
    pub(crate) path: Path,
    pub(crate) nat: NatStatus,
    pub(crate) extensions: Extensions,
    pub(crate) connection: Arc<ConnectionConfig>,
    pub(crate) session: Session,
    pub(crate) state: State,
    pub(crate) started: Instant,
}

impl IkeSa {
    pub(crate) fn new(ctx: &Context<'_>, new: NewIkeSa) -> Self {
        Self {
            id: new.id,
            initiator: new.initiator,
            spi_i: new.spis.0,
            spi_r: new.spis.1,
            path: new.path,
            stream: None,
            separate: None,
            answer_to: new.path,
            reached: new.path.remote.ip().to_canonical(),
            elsewhere: 0,
            answer_also_to: None,
            nat: new.nat,
            extensions: new.extensions,
            connection: new.connection,
            session: new.session,
            ppk: PpkStage::default(),
            window: Window::new(ctx.config.retransmission),
            timers: TimerTable::default(),
            state: new.state,
            started: new.started,
            last_heard: ctx.now.mono,
            waiting: Vec::new(),
            reauthenticates: None,
            if_ids: IfIds::default(),
            renews: false,
            put_off_since: None,
            predecessors: Vec::new(),
            follows_auth: None,
            twins: Vec::new(),
            probe: Probe::default(),
            requests: Reassembly::new(ctx.config.max_packet),
            responses: Reassembly::new(ctx.config.max_packet),
            acks: FragmentAcks::default(),
            request_digest: 0,
            held: 0,
        }
    }

    /// Makes room for a stranger's message that must be kept; false if strangers hold too much already.
    pub(crate) fn hold(&mut self, ctx: &mut Context<'_>, message: &Opened) -> bool {
        let octets = message.octets.len() + message.front.len();
        let room = ctx.budget.take(octets, true);
        if room {
            self.held += octets;
        }
        room
    }

    /// Gives back what was held: the peer is no stranger any more, or gone.
    pub(crate) fn let_go(&mut self, ctx: &mut Context<'_>) {
        ctx.budget.give_back(std::mem::take(&mut self.held));
    }

    /// Where the peer's latest request came from.
    pub(crate) fn answer_to(&self) -> Path {
        self.answer_to
    }

    /// The SPI this end chose.
    pub(crate) fn local_spi(&self) -> u64 {
        if self.initiator { self.spi_i } else { self.spi_r }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    pub(crate) fn is_half_open(&self) -> bool {
        self.state.half_open().is_some()
    }

    /// True if a peer that nobody has authenticated wants to be answered at `to`, where nothing has shown
    /// it to be.
    fn is_unproven(&self, to: Path) -> bool {
        self.is_half_open() && to.remote.ip().to_canonical() != self.reached
    }

    /// Counts one more sending of a response elsewhere; false if it is one too many.
    fn may_send_elsewhere(&mut self) -> bool {
        self.elsewhere = self.elsewhere.saturating_add(1);
        self.elsewhere <= ELSEWHERE
    }

    /// A datagram with this SA's SPIs. Changes nothing unless it is authentic.
    pub(crate) fn on_datagram(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) {
        let header = &message.header;
        if header.flags.initiator == self.initiator {
            return ctx.dropped(path, "initiator flag of the wrong end");
        }
        if (header.spi_i, header.spi_r) != (self.spi_i, self.spi_r) {
            return ctx.dropped(path, "SPIs of no IKE SA");
        }
        if !self.takes_from(path) {
            return ctx.dropped(path, "not the transport of the IKE SA");
        }
        let fragment = match message.payloads.last() {
            Some(Payload::Sk(_)) => None,
            Some(Payload::Skf(skf)) if self.takes_fragments() => Some((skf.number, skf.total)),
            _ => return ctx.dropped(path, "unprotected message for an IKE SA"),
        };
        let class = self.window.classify(header, fragment);
        if self.on_possible_ack(ctx, path, octets, message, &class) {
            return;
        }
        match class {
            Class::NewRequest | Class::ExpectedResponse => {
                match self.open(ctx, path, octets, message) {
                    Ok(Some(opened)) => {
                        let whole = fragment.is_none();
                        if whole && self.take_ack(ctx, path, octets, header, &opened) {
                            return;
                        }
                        if whole && header.flags.response {
                            self.window.on_response_datagram(ctx.now.mono, None, octets.len());
                        }
                        self.on_authentic(ctx, path, header, &opened);
                    }
                    Ok(None) => {}
                    Err(why) => ctx.dropped(path, why),
                }
            }
            Class::RetransmittedRequest => {
                // Only a peer that holds the keys gets an answer: nobody else can make this end
                // send large responses (bug class 39).
                if self.opens(octets, message) {
                    self.fit_response(ctx, path, octets, fragment);
                    // To a new address only if the peer's may change: what was captured could be
                    // played back from anywhere. A connection goes nowhere but to who opened it.
                    let anywhere = path.transport.is_reliable() || self.may_follow(path);
                    let to = if anywhere { path } else { self.answer_to };
                    let elsewhere = to != self.answer_to || self.is_unproven(to);
                    if elsewhere && !path.transport.is_reliable() && !self.may_send_elsewhere() {
                        return ctx.dropped(path, "response sent elsewhere too often");
                    }
                    self.acks.on_answered_again(ctx.now.mono, header.message_id);
                    self.window.answer_again(to);
                    self.pace(ctx);
                } else {
                    ctx.dropped(path, "integrity check failed");
                }
            }
            // Somebody else may have played a copy of it, so that the answer goes both ways.
            Class::InProgress if path != self.answer_to && path.transport.is_reliable() => {
                if self.opens(octets, message) {
                    self.answer_also_to = Some(path);
                }
            }
            Class::InProgress => {
                if let Some((_, total)) = fragment
                    && self.may_be_asked(ctx.now.mono, header, total)
                    && self.opens(octets, message)
                {
                    self.on_fragment(ctx, path, header, (1, total), true);
                }
            }
            Class::Stale => ctx.dropped(path, "message ID already used"),
            Class::OutOfWindow => ctx.dropped(path, "message ID out of window"),
        }
    }

    /// True if the peer may send fragments: it announced them in the IKE_SA_INIT response in use, or in
    /// one with the same keys, of which nobody knows yet which is genuine.
    fn takes_fragments(&self) -> bool {
        self.extensions.fragmentation || self.twins.iter().any(|twin| twin.extensions.fragmentation)
    }

    /// True if the peer sealed this, with the keys in force or with those before.
    fn opens(&self, octets: &[u8], message: &Message<'_>) -> bool {
        let Session { epoch, previous, .. } = &self.session;
        [Some(epoch), previous.as_ref()].into_iter().flatten().any(|epoch| {
            match message.payloads.last() {
                Some(Payload::Sk(sk)) => epoch.open(octets, sk).is_ok(),
                Some(Payload::Skf(skf)) => epoch.open_fragment(octets, skf).is_ok(),
                _ => false,
            }
        })
    }

    /// Opens the message, or adds a fragment of it; `Ok(None)` while fragments are missing.
    fn open(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) -> Result<Option<Opened>, &'static str> {
        const BAD: &str = "integrity check failed";
        let header = &message.header;
        let skf = match message.payloads.last() {
            Some(Payload::Sk(sk)) => {
                let opened = self.session.epoch.open(octets, sk).map_err(|_| BAD)?;
                if !header.flags.response {
                    self.request_digest = ctx.digest(octets);
                    self.probe.on_new_request(octets.len() + headers(path), 1);
                }
                return Ok(Some(opened));
            }
            Some(Payload::Skf(skf)) => skf,
            _ => return Err(BAD),
        };
        let set = if header.flags.response { &mut self.responses } else { &mut self.requests };
        set.set_stranger(!matches!(self.state, State::Established(_)));
        let numbers = (skf.number, skf.total);
        if !set.wants(header.message_id, skf.number, skf.total) {
            if set.has(header.message_id, numbers)
                && self.may_be_asked(ctx.now.mono, header, skf.total)
                && self.session.epoch.open_fragment(octets, skf).is_ok()
            {
                self.on_fragment(ctx, path, header, numbers, true);
            }
            return Err("fragment already received");
        }
        let content = self.session.epoch.open_fragment(octets, skf).map_err(|_| BAD)?;
        let fragment = Fragment {
            message_id: header.message_id,
            exchange: header.exchange,
            number: skf.number,
            total: skf.total,
            first: skf.first,
            content,
            front: if skf.number == 1 { Epoch::fragment_front(octets, skf) } else { Vec::new() },
        };
        if skf.number == 1 && !header.flags.response {
            self.request_digest = ctx.digest(octets);
            self.probe.on_new_request(octets.len() + headers(path), skf.total);
        }
        self.timers.set(TimerKey::Ike(Timer::Reassembly), ctx.now.mono + REASSEMBLY_TIME);
        let progress = set.insert(fragment, ctx.budget);
        if matches!(progress, Progress::Incomplete | Progress::Complete(_)) {
            if header.flags.response {
                let number = Some(numbers);
                self.window.on_response_datagram(ctx.now.mono, number, octets.len());
            } else {
                self.window.on_request_fragment();
                self.prolong_half_open(ctx);
            }
        }
        match progress {
            Progress::Complete(opened) => Ok(Some(opened)),
            Progress::Incomplete => {
                self.on_fragment(ctx, path, header, numbers, false);
                Ok(None)
            }
            Progress::Duplicate => Err("fragment already received"),
            Progress::Rejected => Err("fragment refused"),
        }
    }

    /// A half-open SA whose peer makes progress, with fragments that hold what it agreed to, is not the one
    /// that `half_open_timeout` is against: FrodoKEM takes longer than that over 9.6 kbit/s. It gets the
    /// time again, but never more than four times of it in all.
    fn prolong_half_open(&mut self, ctx: &Context<'_>) {
        let key = TimerKey::Ike(Timer::HalfOpen);
        let timeout = ctx.config.half_open_timeout;
        if let Some(at) = self.timers.get(key).filter(|_| !self.initiator) {
            let latest = self.started + timeout.saturating_mul(HALF_OPEN_TIMES);
            self.timers.set(key, at.max((ctx.now.mono + timeout).min(latest)));
        }
    }

    /// A whole message from a peer that holds the keys.
    fn on_authentic(&mut self, ctx: &mut Context<'_>, path: Path, header: &Header, inner: &Opened) {
        self.last_heard = ctx.now.mono;
        self.acks.on_heard(ctx.now.mono, header);
        self.acks.on_whole(header.flags.response);
        let decoded = decode_inner_payloads(inner.first, &inner.octets);
        if header.flags.response {
            self.responses.release(ctx.budget);
            self.probe.on_answered(self.largest_request());
            self.probe.on_heard(ctx.mtus, ctx.now.mono, self.path.remote.ip());
            if !self.window.on_response_authenticated(header.message_id) {
                return;
            }
            if matches!(self.state, State::Established(_)) {
                self.follow(ctx, path);
            }
            match decoded {
                Ok(payloads) => self.on_response(ctx, &payloads, inner),
                Err(error) => {
                    let refusal = Refusal::from(error);
                    let failure = refusal.clone().into();
                    self.reject_response(ctx, &refusal, failure);
                }
            }
        } else {
            self.requests.release(ctx.budget);
            if self.state.is_unproven() {
                // It has overtaken the response that lets the peer make requests, and comes again.
                return ctx.dropped(path, "request before the IKE_AUTH response");
            }
            if let Ok(payloads) = &decoded
                && self.is_early(ctx, payloads)
            {
                return;
            }
            let (id, exchange) = (header.message_id, header.exchange);
            if !self.window.on_request_authenticated(id, exchange, self.request_digest) {
                return;
            }
            // The peer has our last response: nothing under the old keys is to be sent again.
            self.session.previous = None;
            self.probe.on_heard(ctx.mtus, ctx.now.mono, self.path.remote.ip());
            self.follow(ctx, path);
            //= RFC 7296 §2.11
            //# An implementation MUST
            //# accept incoming requests even if the source port is not 500 or 4500,
            //# and MUST respond to the address and port from which the request was
            //# received.
            self.answer_to = path;
            self.elsewhere = 0;
            self.answer_also_to = None;
            match decoded {
                Ok(payloads) => self.on_request(ctx, header.exchange, &payloads, inner),
                Err(error) => self.refuse(ctx, Refusal::from(error)),
            }
        }
    }

    /// True for a request on an SA that has no children yet because two rekeys crossed. It tells that
    /// the peer uses this SA, not the one of our rekey: the children move, and the peer's next try
    /// finds them.
    fn is_early(&self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) -> bool {
        let State::Established(established) = &self.state else { return false };
        let IkePhase::Crossed(from) = established.phase else { return false };
        let redundant = payloads.iter().any(|payload| {
            matches!(payload, Payload::Delete(delete) if delete.protocol == ProtocolId::IKE)
        });
        if !redundant {
            ctx.effects.push_back(Effect::Adopt { from, to: self.id });
        }
        !redundant
    }

    fn on_request(
        &mut self,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        match (&self.state, exchange) {
            (State::ExpectIntermediateRequest(_), ExchangeType::IKE_INTERMEDIATE) => {
                self.on_intermediate_request(ctx, payloads, opened);
            }
            (State::ExpectIntermediateRequest(waiting), ExchangeType::IKE_AUTH)
                if waiting.step.method.is_none() =>
            {
                self.go_without_initial_ppk();
                self.on_auth_request(ctx, payloads, opened);
            }
            (State::ExpectAuthRequest(_), ExchangeType::IKE_AUTH) => {
                self.on_auth_request(ctx, payloads, opened);
            }
            (State::ExpectAuthRequest(waiting), ExchangeType::INFORMATIONAL)
                if waiting.first.is_some() =>
            {
                self.on_complaint(ctx, payloads);
            }
            (State::Established(_), ExchangeType::CREATE_CHILD_SA) => {
                self.on_create_child_request(ctx, payloads);
            }
            (State::Established(_), ExchangeType::IKE_FOLLOWUP_KE) => {
                self.on_followup_request(ctx, payloads);
            }
            (State::Established(_), ExchangeType::INFORMATIONAL) => {
                self.on_informational_request(ctx, payloads);
            }
            _ => self.refuse(ctx, NotifyType::INVALID_SYNTAX.into()),
        }
    }

    fn on_response(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>], opened: &Opened) {
        match &self.state {
            State::ExpectIntermediateResponse(_) => {
                self.on_intermediate_response(ctx, payloads, opened);
            }
            State::ExpectAuthResponse(_) => self.on_auth_response(ctx, payloads, opened),
            State::Established(_) => self.on_established_response(ctx, payloads, opened),
            // Nothing is outstanding in these.
            State::ExpectIntermediateRequest(_)
            | State::ExpectAuthRequest(_)
            | State::AwaitRequestSignature(_)
            | State::AwaitResponderVerdict(_)
            | State::AwaitInitiatorVerdict(_)
            | State::AwaitResponseSignature(_)
            | State::Closed(_) => {}
        }
    }

    /// Answers the request in progress with an error notify. INVALID_SYNTAX and
    /// AUTHENTICATION_FAILED end the SA (RFC 7296 §2.21.2, §2.21.3).
    pub(crate) fn refuse(&mut self, ctx: &mut Context<'_>, refusal: Refusal) {
        let reason = refusal.clone().into();
        self.refuse_because(ctx, &refusal, reason);
    }

    /// As [`refuse`](Self::refuse), with a reason that the peer is not told.
    pub(crate) fn refuse_because(
        &mut self,
        ctx: &mut Context<'_>,
        refusal: &Refusal,
        reason: Failure,
    ) {
        self.respond(ctx, &[refusal.payload()]);
        let unauthenticated = !matches!(self.state, State::Established(_));
        if refusal.ends_sa() || unauthenticated {
            self.close(ctx, reason);
        }
    }

    /// Ends the SA over a response that cannot be used, and tells the peer, which may think that all
    /// is well. One that is not authenticated is told once: nothing is left here to send it again.
    pub(crate) fn reject_response(
        &mut self,
        ctx: &mut Context<'_>,
        refusal: &Refusal,
        reason: Failure,
    ) {
        //= RFC 7296 §2.21.3
        //# If
        //# errors are seen that indicate that the peers do not have the same
        //# state, it might be good to delete the IKE SA to clean up state and
        //# start over.
        if let State::Established(established) = &mut self.state
            && let Some(ours) = established.ours.take_if(|ours| !ours.ends_sa())
        {
            return self.abandon(ctx, ours, refusal.kind);
        }
        //= RFC 7296 §2.21.2
        //# If the error occurs on the initiator, the notification MAY be
        //# returned in a separate INFORMATIONAL exchange, usually with no other
        //# payloads.
        if matches!(self.state, State::ExpectAuthResponse(_) | State::AwaitResponderVerdict(_)) {
            self.request(ctx, ExchangeType::INFORMATIONAL, &[refusal.payload()]);
        }
        self.close(ctx, reason);
    }

    /// Sends the response to the request in progress, and keeps it for when the request comes again.
    pub(crate) fn respond(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let Some((message_id, exchange)) = self.window.in_progress() else { return };
        let Some(response) = self.seal(ctx, exchange, message_id, true, payloads) else { return };
        self.acks.on_answered(ctx.now.mono, message_id);
        self.window.suppose_round_trip(self.turns().map(|turns| turns.since_first));
        self.window.start_response(self.answer_to, response);
        self.pace(ctx);
        if let Some(path) = self.answer_also_to.take() {
            self.window.answer_again(path);
            self.pace(ctx);
        }
    }

    /// Sends a request. The window must be free: `ours` is `None`.
    pub(crate) fn request(
        &mut self,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
    ) {
        let message_id = match self.window.next_request_id() {
            Ok(id) => id,
            Err(NoRequest::Outstanding) => return,
            Err(NoRequest::Exhausted) => return self.close(ctx, Failure::Expired),
        };
        let Some(request) = self.seal(ctx, exchange, message_id, false, payloads) else { return };
        self.probe.on_request_sent(ctx.now.mono);
        self.acks.on_request();
        if let Some(stream) = &mut self.stream {
            stream.on_asked(ctx.now.mono);
        }
        // Cannot fail: `next_request_id` has just said so.
        let _ = self.window.start_request(ctx.now.mono, exchange, request, ctx.rng);
        self.pace(ctx);
    }

    fn seal(
        &mut self,
        ctx: &mut Context<'_>,
        exchange: ExchangeType,
        message_id: u32,
        response: bool,
        payloads: &[Payload<'_>],
    ) -> Option<Datagrams> {
        let may_fragment = self.may_fragment();
        let outgoing = Outgoing {
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            exchange,
            flags: Flags { initiator: self.initiator, version: false, response },
            message_id,
            payloads,
            max_datagram: may_fragment.then(|| self.room(ctx)),
            force_fragment: may_fragment
                && !self.path.transport.is_reliable()
                && self.connection.fragmentation == Fragmentation::Force
                && exchange == ExchangeType::IKE_AUTH
                && !response,
        };
        match self.session.epoch.seal(&outgoing, ctx.rng) {
            Ok(datagrams) => Some(datagrams.into_iter().map(Arc::from).collect()),
            Err(_) => {
                self.close(ctx, Failure::Crypto);
                None
            }
        }
    }

    /// Sends what may leave now of our request and of our response.
    pub(crate) fn pace(&mut self, ctx: &mut Context<'_>) {
        while let Some(departure) = self.window.take_request(ctx.now.mono) {
            self.depart(ctx, self.path, departure);
        }
        while let Some((to, departure)) = self.window.take_response(ctx.now.mono) {
            self.depart(ctx, to, departure);
        }
    }

    fn depart(&mut self, ctx: &mut Context<'_>, path: Path, departure: Departure) {
        if path == self.path && self.is_cut() {
            // A request waits for the next connection, by which a lost answer is asked for again.
            return;
        }
        let Departure { octets, again } = departure;
        let kind = if again { TransmitKind::Retransmission } else { TransmitKind::Ike };
        ctx.out.push_back(Output::Transmit(Transmit { path, kind, octets }));
        self.arm_keepalive(ctx);
    }

    /// Handles every timer that is due.
    pub(crate) fn on_timeout(&mut self, ctx: &mut Context<'_>) {
        while !self.is_closed()
            && let Some(key) = self.timers.pop_due(ctx.now.mono)
        {
            match key {
                TimerKey::Ike(Timer::Pace) => self.pace(ctx),
                TimerKey::Ike(Timer::Retransmit) => self.on_retransmit(ctx),
                TimerKey::Ike(Timer::HalfOpen) => {
                    let asked = self.state.ticket().is_some();
                    let unanswered = || Failure::Credentials("no answer in time".to_owned());
                    self.close(ctx, if asked { unanswered() } else { Failure::Timeout });
                }
                TimerKey::Ike(Timer::Reassembly) => {
                    self.requests.release(ctx.budget);
                    self.responses.release(ctx.budget);
                }
                TimerKey::Ike(Timer::Acknowledge) => self.acknowledge(ctx),
                TimerKey::Ike(Timer::KeepAlive) => {
                    let octets = Arc::from([0xff].as_slice());
                    let (kind, path) = (TransmitKind::KeepAlive, self.esp_path());
                    ctx.out.push_back(Output::Transmit(Transmit { path, kind, octets }));
                    self.arm_keepalive(ctx);
                }
                TimerKey::Ike(Timer::Reopen) => self.reopen(ctx),
                TimerKey::Ike(timer) => self.on_ike_timer(ctx, timer),
                TimerKey::Child(child, timer) => self.on_child_timer(ctx, child, timer),
            }
        }
    }

    fn on_retransmit(&mut self, ctx: &mut Context<'_>) {
        if self.try_smaller(ctx) {
            return;
        }
        match self.window.retransmit(ctx.now.mono, ctx.rng) {
            // The ladder goes on in silence, and gives up when it would over UDP.
            Retransmit::Again if self.path.transport.is_reliable() => {
                self.window.hold_request();
                if self.stream.as_ref().is_some_and(|stream| stream.asks_again(ctx.now.mono)) {
                    self.send_again(ctx);
                }
            }
            Retransmit::Again => self.pace(ctx),
            Retransmit::GiveUp => self.on_peer_dead(ctx),
            Retransmit::Nothing => {}
        }
    }

    /// Ends an input: sends what is queued and arms the timers of what is to be sent. Returns the
    /// next deadline.
    pub(crate) fn finish(&mut self, ctx: &mut Context<'_>) -> Option<Instant> {
        self.window.set_fragment_acks(self.surely_acknowledged());
        self.pump(ctx);
        if self.is_closed() {
            return None;
        }
        self.pace(ctx);
        let due = self.window.next_retransmit();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Retransmit), due);
        let due = self.window.next_departure(ctx.now.mono);
        self.timers.set_or_clear(TimerKey::Ike(Timer::Pace), due);
        let due = self.next_ack();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Acknowledge), due);
        self.timers.next().map(|(at, _)| at)
    }

    /// Ends the SA here, without a word to the peer: removes its children from the data plane and
    /// tells whoever waits.
    pub(crate) fn close(&mut self, ctx: &mut Context<'_>, reason: Failure) {
        let state = std::mem::replace(&mut self.state, State::Closed(reason.clone()));
        if let Some(ticket) = state.ticket() {
            ctx.ids.asked.remove(&ticket);
        }
        self.let_go(ctx);
        self.requests.release(ctx.budget);
        self.responses.release(ctx.budget);
        while let Some((to, departure)) = self.window.take_rest() {
            self.depart(ctx, to, departure);
        }
        self.timers.clear_all();
        match state {
            State::Established(established) => {
                self.on_established_closed(ctx, *established, &reason);
            }
            State::ExpectIntermediateRequest(_)
            | State::ExpectAuthRequest(_)
            | State::AwaitInitiatorVerdict(_)
            | State::AwaitResponseSignature(_) => {
                ctx.event(Event::IkeDown {
                    ike: self.id,
                    connection: String::new(),
                    established: false,
                    reason: reason.clone(),
                });
            }
            // The attempt that made this candidate reports for all of them.
            mut state @ (State::ExpectIntermediateResponse(_)
            | State::ExpectAuthResponse(_)
            | State::AwaitRequestSignature(_)
            | State::AwaitResponderVerdict(_)) => {
                let Some(waiting) = state.unproven() else { return };
                if let Some(offer) = &waiting.child {
                    ctx.ids.esp.remove(&offer.spi_in);
                }
            }
            closed @ State::Closed(_) => self.state = closed,
        }
        for request in std::mem::take(&mut self.waiting) {
            ctx.done(Some(request), Err(reason.clone()));
        }
    }

    /// The data plane has done, or refused, what a ticket stands for.
    pub(crate) fn on_completed(
        &mut self,
        ctx: &mut Context<'_>,
        ticket: Ticket,
        result: Result<Vec<dataplane::Reply>, DataPlaneError>,
    ) {
        if matches!(self.state, State::Established(_)) {
            self.on_data_plane(ctx, ticket, result);
        }
    }
}

/// A notify payload about no SPI.
pub(crate) fn notify(kind: NotifyType, data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(kind, data))
}
