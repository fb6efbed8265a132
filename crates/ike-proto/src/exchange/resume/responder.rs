//! The gateway's side: IKE_SESSION_RESUME, and the IKE_AUTH after it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fits::{InForce, Used};
use super::former::{Former, Resumed};
use super::ticket::{TicketState, Unusable};
use super::{METHOD, fits};
use crate::channel::{Channel, Extensions};
use crate::config::candidates::Candidates;
use crate::config::{Childless, ConnectionConfig, EndpointConfig, SeparateTransports};
use crate::event::{Disbelief, Distrust, Event, Failure, Path, Transport, UsedAuth};
use crate::exchange::auth::announce::Announcements;
use crate::exchange::auth::blame::Blame;
use crate::exchange::auth::questions::Judging;
use crate::exchange::auth::responder::ids;
use crate::exchange::auth::rounds::{AuthReply, OwnAuth, used};
use crate::exchange::sa_init::{Answer, NatHashes, detect_nat, status};
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::keeping::no_room;
use crate::ike_sa::state::{AwaitVerdict, ExpectAuthRequest, InitTranscript, State};
use crate::keys::Spis;
use crate::keys::epoch::Opened;
use crate::keys::int_auth::IntAuth;
use crate::keys::signed_octets::{PeerAuthenticated, SignedOctets, auth_by, verify_by};
use crate::question::{self, Question, ResumeClaim};
use crate::reason::TicketReason;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use crate::wire::{Flags, Header, Message, encode_message};

/// Seconds since 1970.
pub(super) fn seconds(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Judges a request, and makes the answer. `connections` fit the addresses.
///
/// # Errors
///
/// Why the ticket is not accepted. The client is only told that it is not.
pub(crate) fn respond(
    ctx: &mut Context<'_>,
    connections: &[Arc<ConnectionConfig>],
    path: Path,
    message: &Message<'_>,
    octets: &[u8],
) -> Result<Answer, TicketReason> {
    let payloads = Payloads(&message.payloads);
    let ni = payloads
        .nonce()
        .map_err(|_| TicketReason::RepeatedPayload)?
        .ok_or(TicketReason::NoNonce)?;
    let presented = payloads.notify(NotifyType::TICKET_OPAQUE).ok_or(TicketReason::NoTicket)?;
    let ticket = TicketState::open(
        &ctx.io.config.resumption,
        ctx.crypto,
        presented.data,
        seconds(ctx.io.now.wall),
    )
    .map_err(|why| match why {
        Unusable::Foreign => TicketReason::Foreign,
        Unusable::Expired => TicketReason::Expired,
    })?;
    let connection = connections.iter().find(|known| known.name == ticket.connection);
    let connection = connection.filter(|known| known.session_resumption);
    let connection = connection.ok_or(TicketReason::ConnectionGone)?;
    let former = &ticket.former;
    let selected = former.select(connection).ok_or(TicketReason::AlgorithmsGone)?;
    let prf = ctx.crypto.prf(selected.prf).ok_or(TicketReason::AlgorithmsUnknown)?;
    ctx.crypto.ciphers.lengths(selected.suite).ok_or(TicketReason::AlgorithmsUnknown)?;
    fits::check(ctx.io.config, ctx.lookup, prf, (connection, path), &ticket)?;
    //= https://www.rfc-editor.org/rfc/rfc5723#section-4.3.1
    //# A reused ticket SHOULD be rejected by a gateway.
    if ctx.registry.is_spent(former.spis) {
        return Err(TicketReason::Spent);
    }
    let mut extensions =
        Extensions::negotiate(connection, ctx.io.config.fragment_ack, &payloads, None);
    extensions.resume(former);
    let tcp = path.transport == Transport::Tcp;
    let separate = NotifyType(ctx.io.config.separate_transports);
    extensions.separate = connection.separate_transports != SeparateTransports::No
        && (tcp || ctx.io.config.accepts_tcp)
        && payloads.notify(separate).is_some();
    if tcp && !extensions.separate && !ctx.plane.tcp_esp {
        return Err(TicketReason::NoEspInTcp);
    }
    let spi_i = message.header.spi_i;
    let spi_r = ctx.ids.ike_spi(ctx.io.rng);
    let spis = Spis::new(spi_i, spi_r);
    let nr = ctx.nonce();
    let force_nat = connection.encap.fakes_nat(ctx.plane);
    let mut nat = detect_nat(ctx.crypto, &payloads, Spis::new(spi_i, 0), path);
    nat.local |= force_nat && nat.supported;
    let hashes = nat.supported.then(|| NatHashes::new(ctx.crypto, spis, path, force_nat));
    let response = encode_response(&nr, spis, connection, extensions, hashes, separate);
    let transcript = InitTranscript {
        request: octets.into(),
        cookies: None,
        response: response.into(),
        ni: (*ni).into(),
        nr: nr.as_slice().into(),
        int_auth: IntAuth::default(),
    };
    let connections: Candidates = Arc::from([Arc::clone(connection)]);
    Ok(Answer {
        selected,
        shared: former.sk_d.duplicate(),
        transcript,
        extensions,
        announced: Announcements::default(),
        deferred: false,
        nat,
        spi_r,
        connections,
        resume: Some(Box::new(ticket)),
    })
}

fn encode_response(
    nonce: &[u8],
    spis: Spis,
    connection: &ConnectionConfig,
    extensions: Extensions,
    nat: Option<NatHashes>,
    separate: NotifyType,
) -> Vec<u8> {
    let mut reply = Vec::with_capacity(8);
    reply.push(Payload::Nonce(nonce));
    if let Some(hashes) = &nat {
        hashes.push(&mut reply);
    }
    if extensions.fragmentation {
        reply.push(status(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
    }
    reply.extend(extensions.fragment_ack.map(|types| status(NotifyType(types.supported))));
    if connection.childless != Childless::Never {
        let kind = NotifyType::CHILDLESS_IKEV2_SUPPORTED;
        let notify = Notify { protocol: ProtocolId::IKE, ..Notify::new(kind, &[]) };
        reply.push(Payload::Notify(notify));
    }
    reply.extend(extensions.separate.then(|| status(separate)));
    let header = Header {
        spi_i: spis.i(),
        spi_r: spis.r(),
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SESSION_RESUME,
        flags: Flags { initiator: false, version: false, response: true },
        message_id: 0,
        length: 0,
    };
    encode_message(&header, &reply)
}

impl ExpectAuthRequest {
    /// Handles the IKE_AUTH request of an SA that is to be resumed by `ticket`. If the peer has authenticated by a
    /// certificate, a key or a password, the request waits for the answer whether that still holds.
    pub(crate) fn on_resumed_request(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        ticket: Box<TicketState>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        let rounds = &ticket.former.remote;
        let by_password =
            |used: &UsedAuth| used.eap.as_ref().is_some_and(|eap| eap.password.is_some());
        if !rounds.iter().any(|used| used.certificate.is_some() || by_password(used)) {
            return self.end_resumption(stem, ctx, &ticket, payloads, opened);
        }
        // Nobody but the owner of the ticket may cause work.
        if let Err(refusal) = self.verify_owner(stem.channel, &ticket, payloads) {
            stem.refuse_because(ctx, &refusal, Failure::Authentication);
            return State::ExpectAuthRequest(self);
        }
        if !stem.channel.hold(&mut ctx.io, opened) {
            stem.ending.end(no_room());
            return State::ExpectAuthRequest(self);
        }
        let connection = ticket.connection.clone();
        // The ticket fits the connection, so that there is a name for each round.
        let names = stem.channel.connection().remote.iter().map(|round| round.name.clone());
        let rounds = names.zip(rounds.iter().cloned()).collect();
        let asked = ctx.ask(Question::Resume(ResumeClaim { connection, rounds }));
        self.resume = Some(ticket);
        let (message, judging) = (opened.clone(), Judging::default());
        let asked = AwaitVerdict { ticket: asked, waiting: self, message, judging };
        State::AwaitInitiatorVerdict(Box::new(asked))
    }

    /// Handles the answer whether what has authenticated the peer still does.
    pub(crate) fn on_resumable(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        ticket: &TicketState,
        (payloads, opened): (&[Payload<'_>], &Opened),
        answer: question::Answer,
    ) -> State {
        let (kind, why) = match answer {
            question::Answer::Resumable => {
                return self.end_resumption(stem, ctx, ticket, payloads, opened);
            }
            question::Answer::Untrusted(kind, why) => (kind, why),
            question::Answer::Failed(why) => (Distrust::Other, why),
            _ => (Distrust::Other, "an answer to another question".to_owned()),
        };
        let void = Disbelief::VoidTicket(why);
        let why = void.to_string();
        let blame = Blame::of(self.connections.first().map(|one| &**one), void).distrusting(kind);
        blame.tell(stem.channel, ctx, ids(&Payloads(payloads)));
        self.fail(stem, ctx, Failure::Untrusted(kind, why))
    }

    fn end_resumption(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        ticket: &TicketState,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        match self.go_on(stem, ctx, ticket, payloads, opened) {
            Ok(own) => {
                let own = Some(own);
                let reply = AuthReply { own, token: None, config: None, notifies: Vec::new() };
                self.configure_peer(stem, ctx, reply, None)
            }
            Err(refusal) => {
                stem.refuse_because(ctx, &refusal, Failure::Authentication);
                State::ExpectAuthRequest(self)
            }
        }
    }

    /// Verifies that the ticket is the peer's own.
    fn verify_owner(
        &mut self,
        channel: &Channel,
        ticket: &TicketState,
        payloads: &[Payload<'_>],
    ) -> Result<PeerAuthenticated, Refusal> {
        let failed = || Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let parsed = Payloads(payloads);
        let (Some(id), Some(auth)) = (parsed.id_i()?, parsed.auth()?) else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        let (own_id, peer_id) = (ticket.former.local_id(), ticket.former.remote_id());
        let own_id = own_id.ok_or_else(failed)?;
        //= https://www.rfc-editor.org/rfc/rfc5723#section-4.3.3
        //# The IDi value sent in the IKE_AUTH exchange MUST be identical to the
        //# value included in the ticket.
        if peer_id != Some(&id.to_owned())
            || parsed.id_r()?.is_some_and(|id| id.to_owned() != *own_id)
        {
            return Err(failed());
        }
        let (prf, key) = (channel.session().prf, channel.session().keys.pi().duplicate());
        let verdict = {
            let verify = |octets: &SignedOctets| verify_by(prf, &key, octets, auth.data);
            self.transcript.verify_initiator(channel, *id, verify)
        };
        verdict.map_err(|_| failed())
    }

    /// Verifies the peer's AUTH, and makes this end's.
    fn go_on(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        ticket: &TicketState,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<OwnAuth, Refusal> {
        let failed = || Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let evidence = self.verify_owner(stem.channel, ticket, payloads)?;
        // There may be another configuration since IKE_SESSION_RESUME.
        if let Err(why) = InForce::at(ctx).still_takes(stem.channel, ticket) {
            let path = stem.channel.route().path();
            ctx.io.event(Event::TicketRefused { path, client: false, why });
            return Err(failed());
        }
        let Former { spis, local, remote, ppk, .. } = &ticket.former;
        let own_id = ticket.former.local_id().ok_or_else(failed)?;
        let keys = &stem.channel.session().keys;
        // Of two simultaneous uses of one ticket the second arrives here too late. There may be later tickets of
        // that IKE SA.
        let until = UNIX_EPOCH.checked_add(Duration::from_secs(ticket.expires));
        let until =
            until.unwrap_or(UNIX_EPOCH).max(ctx.io.now.wall + ctx.io.config.resumption.lifetime);
        if !ctx.registry.spend(*spis, ctx.io.now, until) {
            return Err(failed());
        }
        // There may be tickets of another configuration, which are valid for longer.
        ctx.void_tickets(stem.channel.link().id(), Some(*spis));
        let octets = self.transcript.own_covered(stem.channel, own_id).octets;
        let data = auth_by(stem.channel.session().prf, keys.pr(), &octets);
        let used = used(own_id.clone(), METHOD);
        let own = OwnAuth { used, certs: Vec::new(), data: Some(data), no_ppk: None, named: false };
        let (now, wall) = (ctx.io.now.mono, seconds(ctx.io.now.wall));
        let at = |by: u64| now.checked_add(Duration::from_secs(by.saturating_sub(wall)));
        let (reauth_by, ends_by) = (ticket.reauth_by.and_then(at), ticket.ends_by.and_then(at));
        let resumed = Resumed { spis: *spis, reauth_by, ends_by };
        if let Some(id) = ppk {
            stem.peer.use_ppk(id.clone(), InForce::at(ctx).ppk_print(id));
        }
        let used = Used { local, remote, ppk: None };
        self.rounds.resume(local.clone(), remote.clone(), evidence, resumed);
        self.rounds.note_secret(InForce::at(ctx).peer_print(used));
        self.first = Some(opened.clone());
        Ok(own)
    }
}

/// True if `config` gives and accepts tickets.
pub(super) fn is_gateway(config: &EndpointConfig, connection: &ConnectionConfig) -> bool {
    connection.session_resumption && !config.resumption.keys.is_empty()
}
