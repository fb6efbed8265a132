//! An initiator's attempt at an IKE SA, from the first IKE_SA_INIT until a peer is authenticated.
//!
//! IKE_SA_INIT responses are not authenticated. Each response that could be genuine becomes a candidate, a
//! half-made [`IkeSa`] of its own. The first candidate whose IKE_AUTH response is authentic wins. A forged
//! response costs the genuine peer nothing (RFC 7296 §2.4, §2.21.1).

mod candidates;
mod line;
mod resuming;
mod waiting;
mod wanted;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::flight::Departure;
use crate::channel::memory::Pool;
use crate::channel::stream::Stream;
use crate::channel::window::{Retransmit, Window};
use crate::config::{ConnectionConfig, FragmentAckTypes, SeparateTransports, TcpUse};
use crate::crypto::{CipherSuite, PendingKe, Secret};
use crate::event::{
    Failure, IkeSaId, IkeState, IkeStatus, Output, Path, SecretsNow, Ticket, Transmit,
    TransmitKind, Transport,
};
use crate::exchange::auth::sends_initial_contact;
use crate::exchange::key_exchange::Undone;
use crate::exchange::ppk::{Announced, has_usable};
use crate::exchange::redirect::{Redirected, read_gateway};
use crate::exchange::requested_child::usable_methods;
use crate::exchange::resume;
use crate::exchange::sa_init::{self, Reading, Request, Sent};
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::State;
use crate::question::Answer;
use crate::reason::{DropReason, PolicyReason};
use crate::wants::Wanted;
use crate::wire::Message;
use crate::wire::payload::{Payload, Proposal, Spi};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};
pub(crate) use resuming::Carried;
use waiting::{Waiting, What};

/// How often a request is rebuilt for a COOKIE or INVALID_KE_PAYLOAD between two retransmissions. A peer that asks
/// more often is ignored until the next retransmission (bug class 19).
const MAX_RESTARTS: usize = 4;
/// Candidates accepted between two retransmissions. More than one already means an attack. The genuine peer
/// answers each retransmission, and so has a new chance after each. It may answer every rebuilt request. Only the
/// answer to the last one fits, and there must be room for it.
const MAX_CANDIDATES: usize = MAX_RESTARTS + 2;
/// How long a response that fails the attempt waits for one that contradicts it.
const SECOND_OPINION: Duration = Duration::from_secs(1);
/// How often the peer is asked again before such a response is believed. A failed IKE_AUTH, for which an attacker
/// must forge more than one datagram, costs two of them.
const SECOND_OPINIONS: u8 = 3;
/// How many hints at a restart of the peer one attempt follows.
const MAX_HINTS: u8 = 8;

/// An attempt.
pub(crate) struct Attempt {
    pub(crate) id: IkeSaId,
    pub(crate) spi_i: u64,
    pub(crate) connection: Arc<ConnectionConfig>,
    pub(crate) path: Path,
    pub(crate) wanted: Vec<Wanted>,
    /// Virtual IPs of the SA that it replaces.
    pub(crate) vips: Vec<IpAddr>,
    /// The SA a reauthentication replaces.
    pub(crate) replaces: Option<IkeSaId>,
    /// Number of earlier attempts of the series (`keyingtries`).
    pub(crate) tries: u32,
    pub(crate) candidates: Vec<IkeSa>,
    /// How the attempt came to this gateway by redirects.
    pub(crate) redirected: Option<Redirected>,
    /// The ticket of the attempt.
    pub(crate) ticket: Option<Carried>,
    /// The reason for its transport.
    pub(crate) origin: Origin,
    /// True if the request has SEPARATE_TRANSPORTS.
    separate: bool,
    /// The TCP connection, of IKE_SA_INIT or of the messages after it.
    tcp: Option<Line>,
    /// The method of a request that waits for a connection.
    method: KeMethodId,
    /// When to check whether UDP gets through.
    fall_back_at: Option<Instant>,
    /// When the last answer came.
    heard: Instant,
    /// This host no longer has the address from which the attempt sends.
    pub(crate) stranded: bool,
    /// The attempt is done, and continues in another form.
    pub(crate) switch: Option<Switch>,
    started: Instant,
    initial_contact: bool,
    proposals: Vec<Proposal>,
    /// The ways to use a PPK that every request announces (RFC 8784 §3).
    ppk: Announced,
    /// What every request announces about fragment acknowledgements.
    fragment_ack: Option<FragmentAckTypes>,
    nonce: [u8; 32],
    cookie: Option<Vec<u8>>,
    /// Requests sent, the newest last.
    sent: Vec<Sent>,
    /// Rebuilt requests, and accepted candidates, since the last retransmission.
    restarts: usize,
    admitted: usize,
    /// True after the first retransmission. Rebuilt requests then do not start the schedule again, so that it
    /// ends.
    retrying: bool,
    /// Responses that were examined already.
    seen: Vec<Arc<[u8]>>,
    /// First keys that a candidate had: SK_ei for a suite, and the response from which they were derived.
    used: Vec<(CipherSuite, Secret, Arc<[u8]>)>,
    window: Window,
    /// Messages that wait for slow key exchanges.
    put_off: Vec<Waiting>,
    /// The best known reason for a failure, and the time from which it counts.
    failure: Option<Failure>,
    give_up_at: Option<Instant>,
    opinions_left: u8,
    /// How many hints at a restart of the peer are still followed, and when the last one came.
    hints_left: u8,
    hinted: Option<Instant>,
}

/// True for an unprotected response with INVALID_IKE_SPI.
fn is_unknown_spi(message: &Message<'_>) -> bool {
    message.header.flags.response
        && message.payloads.iter().any(|payload| match payload {
            Payload::Notify(notify) => notify.kind == NotifyType::INVALID_IKE_SPI,
            _ => false,
        })
}

/// Why an attempt uses its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The configuration says so.
    Configured,
    /// UDP got no answer in this series.
    FellBack,
    /// UDP got no answer some time ago.
    Remembered,
    /// UDP from beginning to end: the peer accepts no TCP connection.
    OneTransport,
}

/// How an attempt without a chance continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Over TCP (RFC 9329 §5.1).
    Tcp,
    /// Over UDP again.
    Udp,
    /// Over UDP, without separate transports.
    OneTransport,
    /// To another gateway (RFC 5685).
    Redirect(IpAddr),
    /// The other way round: with the ticket, or without it.
    Anew,
}

/// The TCP connection of an attempt.
struct Line {
    path: Path,
    stream: Stream,
    reopen_at: Option<Instant>,
    /// True once the connection was open.
    worked: bool,
}

/// What an attempt is made from.
pub(crate) struct NewAttempt {
    pub(crate) connection: Arc<ConnectionConfig>,
    pub(crate) path: Path,
    pub(crate) origin: Origin,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) replaces: Option<IkeSaId>,
    pub(crate) tries: u32,
    pub(crate) initial_contact: bool,
    pub(crate) redirected: Option<Redirected>,
    pub(crate) ticket: Option<Carried>,
}

impl Attempt {
    /// Makes the attempt and sends the first request.
    pub(super) fn start(ctx: &mut Context<'_>, new: NewAttempt) -> Result<Self, Failure> {
        let NewAttempt {
            connection,
            path,
            origin,
            wanted,
            replaces,
            tries,
            initial_contact,
            redirected,
            ticket,
        } = new;
        if connection.requires_ppk() && !has_usable(ctx.io.config, &connection.ppk) {
            return Err(Failure::Config("no PPK for ppk_id".to_owned()));
        }
        let method = usable_methods(ctx, &connection.proposals)
            .first()
            .copied()
            .ok_or_else(|| Failure::Config("no usable key exchange method".to_owned()))?;
        let tcp = path.transport == Transport::Tcp;
        let separate = connection.separate_transports == SeparateTransports::Yes
            && match origin {
                Origin::Configured => true,
                // If IKE does not get through over UDP, ESP over UDP would not either.
                Origin::FellBack | Origin::Remembered => !ctx.plane.tcp_esp,
                Origin::OneTransport => false,
            };
        if tcp && !separate && !ctx.plane.tcp_esp {
            let text =
                "the data plane has no ESP in TCP: enable_tcp needs separate_transports = yes";
            return Err(Failure::Config(text.to_owned()));
        }
        let fall_back_at = match connection.enable_tcp {
            TcpUse::Fallback(time) if !tcp && origin != Origin::OneTransport => {
                Some(ctx.io.now.mono + time)
            }
            _ => None,
        };
        let proposals = (1..)
            .zip(&connection.proposals)
            .map(|(number, proposal)| proposal.to_wire(number, Spi::None))
            .collect();
        let id = ctx.ids.ike();
        // Questions of the request belong to this attempt.
        ctx.ids.owner = Some(id);
        let spi_i = ctx.ids.first_spi(ctx.io.rng);
        let mut attempt = Self {
            id,
            spi_i,
            initial_contact: initial_contact && sends_initial_contact(&connection),
            ppk: Announced::by(ctx.io.config, &connection),
            fragment_ack: ctx.io.config.fragment_ack,
            connection,
            path,
            wanted,
            replaces,
            vips: Vec::new(),
            tries,
            candidates: Vec::new(),
            redirected,
            ticket,
            origin,
            separate,
            tcp: None,
            method,
            fall_back_at,
            heard: ctx.io.now.mono,
            stranded: false,
            switch: None,
            started: ctx.io.now.mono,
            proposals,
            nonce: ctx.nonce(),
            cookie: None,
            sent: Vec::new(),
            restarts: 0,
            admitted: 0,
            retrying: false,
            seen: Vec::new(),
            used: Vec::new(),
            window: Window::new(ctx.io.config.retransmission),
            put_off: Vec::new(),
            failure: None,
            give_up_at: None,
            opinions_left: SECOND_OPINIONS,
            hints_left: MAX_HINTS,
            hinted: None,
        };
        if tcp {
            attempt.path = attempt.open_line(ctx).0;
        } else {
            attempt.send(ctx, method)?;
        }
        Ok(attempt)
    }

    /// Sends an IKE_SA_INIT request with `method`. A method that was used before keeps its key.
    fn send(&mut self, ctx: &mut Context<'_>, method: KeMethodId) -> Result<(), Failure> {
        if let Some(held) = self.presented().cloned() {
            self.send_ticket(ctx, &held);
            return Ok(());
        }
        let ke = match self.sent.iter().find(|sent| sent.method == method) {
            Some(sent) => Arc::clone(&sent.ke),
            None if self.is_making(method) => return Ok(()),
            None => match ctx.initiate(method) {
                Ok(ke) => ke,
                Err(Undone::Ask(exchange)) => {
                    self.put_off(ctx, exchange, What::Request(method));
                    return Ok(());
                }
                Err(Undone::Failed(_)) => return Err(Failure::Crypto),
            },
        };
        let octets: Arc<[u8]> =
            self.request(ctx, method, ke.public()).encode(ctx.io.config, ctx.crypto).into();
        self.send_request(ctx, octets, method, ke);
        Ok(())
    }

    fn send_request(
        &mut self,
        ctx: &mut Context<'_>,
        octets: Arc<[u8]>,
        method: KeMethodId,
        ke: Arc<dyn PendingKe>,
    ) {
        self.sent.push(Sent { octets: Arc::clone(&octets), method, ke });
        let datagrams = Arc::from([octets]);
        let replaced = if self.retrying {
            self.window.swap_request(ctx.io.now.mono, Arc::clone(&datagrams))
        } else {
            self.window.replace_request(ctx.io.now.mono, Arc::clone(&datagrams), ctx.io.rng)
        };
        if !replaced {
            // A new window accepts its first request.
            let _ = self.window.start_request(
                ctx.io.now.mono,
                self.first_exchange(),
                datagrams,
                ctx.io.rng,
            );
        }
        self.depart(ctx);
    }

    /// Sends the datagrams of the request that are due.
    fn depart(&mut self, ctx: &mut Context<'_>) {
        while let Some(Departure { octets, again, .. }) = self.window.take_request(ctx.io.now.mono)
        {
            let kind = if again { TransmitKind::Retransmission } else { TransmitKind::Ike };
            self.transmit(ctx, octets, kind);
        }
    }

    fn request<'a>(
        &'a self,
        ctx: &Context<'_>,
        method: KeMethodId,
        public: &'a [u8],
    ) -> Request<'a> {
        Request {
            spi_i: self.spi_i,
            connection: &self.connection,
            proposals: &self.proposals,
            path: self.path_seen(),
            method,
            public,
            nonce: &self.nonce,
            cookie: self.cookie.as_deref(),
            force_nat: self.connection.encap.fakes_nat(ctx.plane),
            ppk: self.ppk,
            separate: self.separate,
            fragment_ack: self.fragment_ack,
            redirect: ctx
                .io
                .config
                .follow_redirects
                .then_some(self.redirected.and_then(|by| by.from)),
        }
    }

    fn transmit(&mut self, ctx: &mut Context<'_>, octets: Arc<[u8]>, kind: TransmitKind) {
        if self.is_over_tcp() {
            let open = self.tcp.as_mut().filter(|line| line.stream.is_open());
            let Some(line) = open else {
                return tracing::debug!(path = ?self.path, "request: waits until the TCP connection is open");
            };
            line.stream.on_asked(ctx.io.now.mono);
        }
        let (path, dscp) = (self.path, self.connection.dscp);
        ctx.io.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
    }

    /// Handles a datagram for this attempt's SPI.
    pub(super) fn on_datagram(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) {
        let header = &message.header;
        if matches!(header.exchange, ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME) {
            if header.exchange != self.first_exchange() {
                return ctx.io.dropped(path, DropReason::OtherExchange);
            }
            // Over TCP a response is accepted only on the connection of its request.
            let tcp = path.transport == Transport::Tcp;
            if tcp != self.is_over_tcp() || (tcp && path != self.path) {
                return ctx.io.dropped(path, DropReason::InitResponseTransport);
            }
            if header.flags.response && !header.flags.initiator && header.message_id == 0 {
                return self.on_init_response(ctx, path, octets, message);
            }
            return ctx.io.dropped(path, DropReason::NotInitResponse);
        }
        for candidate in &mut self.candidates {
            if candidate.channel.link().spis().r() == header.spi_r {
                candidate.on_datagram(ctx, path, octets, message);
            }
        }
        self.reap(ctx);
        if is_unknown_spi(message) {
            self.on_unknown_spi(ctx);
        }
    }

    /// Handles a hint that the peer does not know its own SPI and may have restarted. The hint is not
    /// authenticated (RFC 7296 §2.21.4), so the attempt only asks again. A peer that has restarted sends a new
    /// answer. Any other peer repeats its answer, or sends nothing.
    fn on_unknown_spi(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.io.now.mono;
        let lately = |at: Instant| now.saturating_duration_since(at) < SECOND_OPINION;
        if self.hints_left > 0 && !self.hinted.is_some_and(lately) && !self.candidates.is_empty() {
            self.hints_left -= 1;
            self.hinted = Some(now);
            self.ask_again(ctx);
        }
    }

    /// Handles a smaller path MTU.
    pub(super) fn on_path_mtu(&mut self, ctx: &mut Context<'_>) {
        for candidate in &mut self.candidates {
            candidate.channel.refit_request(&mut ctx.io);
        }
    }

    /// Hands an answer to the candidate that asked.
    pub(super) fn on_answered(&mut self, ctx: &mut Context<'_>, ticket: Ticket, answer: Answer) {
        let asker = |candidate: &&mut IkeSa| {
            candidate.state.ticket() == Some(ticket) || candidate.pending.awaits(ticket)
        };
        if let Some(answer) = self.on_exchanged(ctx, ticket, answer)
            && let Some(candidate) = self.candidates.iter_mut().find(asker)
        {
            candidate.on_answered(ctx, ticket, answer);
        }
        self.reap(ctx);
    }

    /// Handles a response that redirects this client. It is not authenticated. Its nonce only shows that its sender
    /// has seen the request.
    fn on_redirect(&mut self, ctx: &mut Context<'_>, path: Path, data: &[u8]) {
        if !ctx.io.config.follow_redirects || !self.candidates.is_empty() {
            return ctx.io.dropped(path, DropReason::RedirectNotAskedFor);
        }
        let (gateway, nonce) = match read_gateway(data) {
            Ok(read) => read,
            Err(why) => return ctx.io.dropped(path, why),
        };
        //= https://www.rfc-editor.org/rfc/rfc5685#section-3
        //# If the values do not match, the client MUST silently
        //# discard the response
        if nonce != self.nonce {
            return ctx.io.dropped(path, DropReason::RedirectNonce);
        }
        if let Err(why) = self.follow(ctx, gateway) {
            self.doubt(ctx, Failure::Policy(why));
        }
    }

    /// Follows a redirect by an authenticated gateway before the end of IKE_AUTH.
    fn redirected_to(&mut self, ctx: &mut Context<'_>, gateway: IpAddr) {
        if let Err(why) = self.follow(ctx, gateway) {
            let failure = Failure::Policy(why);
            for candidate in &mut self.candidates {
                candidate.close(ctx, failure.clone());
            }
            self.candidates.clear();
            self.give_up(ctx, failure);
        }
    }

    /// Begins again at `gateway`. The error says why not.
    fn follow(&mut self, ctx: &Context<'_>, gateway: IpAddr) -> Result<(), PolicyReason> {
        let family = |ip: &IpAddr| ip.to_canonical().is_ipv4() == gateway.is_ipv4();
        let own = ctx.network.addresses.iter().copied();
        if !std::iter::once(self.path.local.ip()).chain(own).any(|ip| family(&ip)) {
            return Err(PolicyReason::RedirectFamily);
        }
        let from = self.path.remote.ip().to_canonical();
        let redirected = Redirected::again(self.redirected, from, ctx.io.now.mono);
        self.redirected = Some(redirected.ok_or(PolicyReason::RedirectedTooOften)?);
        self.switch = Some(Switch::Redirect(gateway));
        Ok(())
    }

    fn on_init_response(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        octets: &[u8],
        message: &Message<'_>,
    ) {
        let reading = match self.presented() {
            Some(_) => resume::initiator::read_response(message),
            None => sa_init::read_response(message),
        };
        if !matches!(reading, Reading::Useless(_)) {
            self.heard = ctx.io.now.mono;
        }
        match reading {
            Reading::Useless(why) => ctx.io.dropped(path, why),
            Reading::TicketRefused(kind) => self.on_ticket_refused(ctx, path, kind),
            Reading::Error(kind) => self.doubt(ctx, Failure::Peer(kind)),
            Reading::Redirect(data) => self.on_redirect(ctx, path, &data),
            Reading::Cookie(cookie) => {
                let known = self.cookie.as_ref() == Some(&cookie);
                if known || !self.may_restart() {
                    return ctx.io.dropped(path, DropReason::TooManyCookies);
                }
                self.cookie = Some(cookie);
                let method = self.sent.last().map(|sent| sent.method);
                self.restart(ctx, method);
            }
            Reading::OtherMethod(method) => {
                let offered = usable_methods(ctx, &self.connection.proposals).contains(&method);
                let tried = self.sent.iter().any(|sent| sent.method == method);
                if !offered || tried || !self.may_restart() {
                    return ctx.io.dropped(path, DropReason::UselessMethod);
                }
                self.restart(ctx, Some(method));
            }
            Reading::Usable => {
                self.add_candidate(ctx, path, octets, message, ctx.io.now.mono, None);
            }
        }
    }

    /// Remembers a failure until something better comes, because the response may be forged.
    fn doubt(&mut self, ctx: &Context<'_>, failure: Failure) {
        self.failure = Some(failure);
        if !self.candidates.is_empty() {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc9329#section-6.4
        //# in the case of TCP encapsulation, an Initiator SHOULD NOT wait
        //# for additional messages in case it receives an error notification
        //# from the Responder in the IKE_SA_INIT exchange.
        if self.is_over_tcp() {
            (self.give_up_at, self.opinions_left) = (Some(ctx.io.now.mono), 0);
        } else if self.give_up_at.is_none() {
            self.give_up_at = Some(ctx.io.now.mono + SECOND_OPINION);
        }
    }

    fn may_restart(&mut self) -> bool {
        self.restarts += 1;
        self.struggles() && self.restarts <= MAX_RESTARTS
    }

    /// True if no candidate seems to have a live peer.
    fn struggles(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.channel.window().tries() > 0)
    }

    fn restart(&mut self, ctx: &mut Context<'_>, method: Option<KeMethodId>) {
        if let Some(method) = method
            && let Err(failure) = self.send(ctx, method)
        {
            self.failure = Some(failure);
        }
    }

    /// Ends the attempt: the peer cannot change the result.
    fn give_up(&mut self, ctx: &Context<'_>, failure: Failure) {
        self.failure = Some(failure);
        self.give_up_at = Some(ctx.io.now.mono);
        self.opinions_left = 0;
    }

    /// Sends IKE_SA_INIT once more. A genuine peer answers again, and answers this request.
    fn ask_again(&mut self, ctx: &mut Context<'_>) {
        (self.restarts, self.admitted) = (0, 0);
        if let Some(sent) = self.sent.last() {
            self.transmit(ctx, Arc::clone(&sent.octets), TransmitKind::Retransmission);
        }
    }

    pub(super) fn on_timeout(&mut self, ctx: &mut Context<'_>) {
        self.on_exchange_timeout(ctx);
        for candidate in &mut self.candidates {
            candidate.on_timeout(ctx);
        }
        self.reap(ctx);
        // With candidates, their own requests count. The IKE_SA_INIT response of a genuine peer may have been lost
        // behind a forged one, so the peer is asked again from time to time.
        match self.window.retransmit(ctx.io.now.mono, ctx.io.rng) {
            Retransmit::Again if self.is_over_tcp() => {
                self.window.hold_request();
                let patient = |line: &Line| !line.stream.asks_again(ctx.io.now.mono);
                if self.candidates.is_empty() && !self.tcp.as_ref().is_some_and(patient) {
                    self.ask_again(ctx);
                }
            }
            Retransmit::Again => {
                let patient =
                    self.candidates.iter().any(|candidate| candidate.channel.window().tries() < 2);
                if self.struggles() && !patient {
                    (self.restarts, self.admitted, self.retrying) = (0, 0, true);
                    self.depart(ctx);
                } else {
                    self.window.hold_request();
                }
            }
            Retransmit::GiveUp => {
                // A response that waits for its key exchange may keep the attempt alive. Nothing is retransmitted
                // meanwhile.
                self.window.abandon_request();
                if self.candidates.is_empty() {
                    let failure = self.failure.take().unwrap_or(Failure::Timeout);
                    self.give_up(ctx, failure);
                }
            }
            Retransmit::Nothing => {}
        }
        let doubtful = self.candidates.is_empty() && self.opinions_left > 0;
        if doubtful && self.give_up_at.is_some_and(|at| at <= ctx.io.now.mono) {
            self.opinions_left -= 1;
            self.give_up_at = Some(ctx.io.now.mono + SECOND_OPINION);
            self.ask_again(ctx);
        }
        self.on_line_timeout(ctx);
        self.on_resume_timeout(ctx);
    }

    /// The candidate whose peer is authenticated, if there is one.
    pub(super) fn take_winner(&mut self) -> Option<IkeSa> {
        let index = self
            .candidates
            .iter()
            .position(|candidate| matches!(candidate.state, State::Established(_)))?;
        let mut winner = self.candidates.swap_remove(index);
        winner.peer.set_reauthenticates(self.replaces);
        winner.take_over_stream(self.tcp.as_ref().and_then(|line| line.reopen_at));
        Some(winner)
    }

    /// The reason of the failure, if the attempt has failed.
    pub(super) fn failed(&self, now: Instant) -> Option<Failure> {
        if self.switch.is_some() {
            return Some(Failure::Timeout);
        }
        let over = self.give_up_at.is_some_and(|at| at <= now)
            && self.opinions_left == 0
            && self.candidates.is_empty()
            && self.put_off.is_empty();
        over.then(|| self.failure.clone().unwrap_or(Failure::Timeout))
    }

    /// Releases what the candidates hold. For an attempt that has failed, has won or was cancelled.
    pub(super) fn dispose(mut self, ctx: &mut Context<'_>, reason: &Failure) {
        self.give_up_exchanges(ctx);
        for candidate in &mut self.candidates {
            candidate.waiting.clear();
            candidate.close(ctx, reason.clone());
        }
    }

    /// Other peers have got the octets of `pool` that the candidates had.
    pub(super) fn give_way(&mut self, ctx: &mut Context<'_>, pool: Pool) {
        for candidate in &mut self.candidates {
            candidate.give_way(ctx, pool);
        }
        self.reap(ctx);
    }

    /// Another IKE SA with this peer has been established meanwhile, so this one will not be the only one.
    pub(super) fn is_not_first_contact(&mut self) {
        self.initial_contact = false;
        for candidate in &mut self.candidates {
            // The IKE_AUTH request of a candidate may be waiting for a signature.
            candidate.state.with_unproven(|waiting| waiting.initial_contact = false);
        }
    }

    /// The next deadline.
    pub(super) fn deadline(&mut self, ctx: &mut Context<'_>) -> Option<Instant> {
        let line = self.line_deadline();
        let exchange = self.exchange_deadline();
        // The attempt does not end before the work that is being done for it.
        let end = self.give_up_at.filter(|_| exchange.is_none());
        let own = [
            self.window.next_retransmit(),
            end,
            self.fall_back_at,
            line,
            exchange,
            self.patience_ends(),
        ];
        let theirs = self.candidates.iter_mut().map(|candidate| candidate.finish(ctx));
        own.into_iter().chain(theirs).flatten().min()
    }

    /// When the attempt began.
    pub(super) fn begun(&self) -> Instant {
        self.started
    }

    pub(super) fn connection(&self) -> &ConnectionConfig {
        &self.connection
    }

    pub(super) fn status(&self) -> IkeStatus {
        IkeStatus {
            id: self.id,
            connection: self.connection.name.clone(),
            config: None,
            secrets: SecretsNow::Same,
            state: IkeState::Connecting,
            initiator: true,
            spi_i: self.spi_i,
            spi_r: self
                .candidates
                .first()
                .map_or(0, |candidate| candidate.channel.link().spis().r()),
            path: self
                .candidates
                .first()
                .map_or(self.path, |candidate| candidate.channel.route().path()),
            local_id: None,
            remote_id: None,
            esp_in_udp: false,
            nat_local: false,
            nat_remote: false,
            mobike: false,
            ppk: None,
            resumed: false,
            full_transcript: false,
            assignment: None,
            local_auth: Vec::new(),
            remote_auth: Vec::new(),
            algorithms: None,
            established: None,
            setup_time: None,
            rekey_at: None,
            reauth_at: None,
            outstanding: Some(match self.candidates.first() {
                None => self.first_exchange(),
                Some(_) => ExchangeType::IKE_AUTH,
            }),
            children: Vec::new(),
        }
    }
}
