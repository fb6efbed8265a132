//! The initiator's side of IKE_AUTH.

use std::collections::VecDeque;
use std::sync::Arc;

use super::announce::OwnAnnouncements;
use super::blame::{Blame, Claim};
use super::psk::{own_psk, peer_psk};
use super::questions::{Judging, OwnTurn, peer_credentials, signed_by};
use super::rounds::{OwnAuth, used};
use super::{local_id, round_id, signature, takes};
use crate::channel::Channel;
use crate::config::{AuthConfig, IdMatch, RemoteAuth};
use crate::event::{Disbelief, Distrust, Failure, UsedAuth};
use crate::exchange::auth::questions::ask;
use crate::exchange::child_sa::KeyMaterial;
use crate::exchange::config::OwnedConfig;
use crate::exchange::esp_in_udp::Agreement;
use crate::exchange::mobike::Ends;
use crate::exchange::ppk::{PpkStage, wire_id};
use crate::exchange::qcd::OwnToken;
use crate::exchange::redirect::ToldGateway;
use crate::exchange::resume::fits::InForce;
use crate::exchange::{Payloads, Refusal, payloads_of};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::keeping::no_room;
use crate::ike_sa::state::{AwaitSignature, AwaitVerdict, ExpectAuthResponse, State};
use crate::ike_sa::{Stem, notify};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::{AuthFailure, PeerAuthenticated, SignedOctets, padded, verify_by};
use crate::question::{Answer, Question};
use crate::wire::decode_inner_payloads;
use crate::wire::payload::{Auth, Delete, Id, IdData, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};

impl ExpectAuthResponse {
    // ---- this end ----

    /// Continues after IKE_SA_INIT and IKE_INTERMEDIATE: makes the first request.
    pub(crate) fn begin_auth(self: Box<Self>, stem: &mut Stem<'_>, ctx: &mut Context<'_>) -> State {
        if let Some(held) = self.resume.clone() {
            return self.send_resumed_auth(stem, ctx, &held);
        }
        let several =
            stem.channel.connection().local.len() > 1 || stem.channel.connection().remote.len() > 1;
        if several && !self.announced.multiple_auth {
            let text = "the peer does not announce MULTIPLE_AUTH_SUPPORTED";
            return self.end(stem, Failure::Credentials(text.to_owned()));
        }
        self.next_auth_request(stem, ctx)
    }

    /// Makes the request of the next round, after its signature if it needs one.
    fn next_auth_request(self: Box<Self>, stem: &mut Stem<'_>, ctx: &mut Context<'_>) -> State {
        let connection = Arc::clone(stem.channel.connection());
        let index = self.rounds.local.len();
        let Some(round) = connection.local.get(index) else {
            if index == 0 {
                return self.end(stem, Failure::Config("no `local` section".to_owned()));
            }
            return self.send_auth_request(stem, ctx, None);
        };
        let first = index == 0;
        let id = self.own_id(stem.channel, index);
        if round.auth == AuthConfig::Eap {
            return self.begin_eap_round(stem, ctx, index, id);
        }
        let unmixed = first && PpkStage::is_optional(stem.channel.link());
        let unmixed = unmixed.then(|| self.transcript.own_covered(stem.channel, &id));
        if first && let Err(failure) = stem.peer.mix_ppk(stem.channel, InForce::at(ctx)) {
            return self.end(stem, failure);
        }
        let remote = connection.remote.get(index).or(connection.remote.last());
        let remote = remote.map_or(&IdMatch::Any, |round| &round.id);
        let psk = own_psk(ctx.lookup, &id, remote);
        let covered = (self.transcript.own_covered(stem.channel, &id), unmixed);
        let taken = (&ctx.crypto.schemes, &self.announced);
        match OwnTurn::begin(stem.channel, round, id, psk, taken, covered, None) {
            Err(failure) => self.end(stem, failure),
            Ok(OwnTurn::Ready(own)) => self.send_auth_request(stem, ctx, Some(own)),
            Ok(OwnTurn::Sign(round, request)) => {
                let ticket = ask(ctx, stem.channel, Question::Sign(request));
                let asked = AwaitSignature { ticket, waiting: self, round };
                State::AwaitRequestSignature(Box::new(asked))
            }
        }
    }

    /// This end's identity in the round `index`.
    pub(super) fn own_id(&self, channel: &Channel, index: usize) -> IdData {
        match channel.connection().local.get(index) {
            Some(round) if index > 0 => {
                round_id(channel.connection(), round, channel.route().path())
            }
            _ => self.local_id.clone(),
        }
    }

    /// Sends the request: with this end's AUTH, or without one if only the peer's rounds are left.
    pub(crate) fn send_auth_request(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        own: Option<OwnAuth>,
    ) -> State {
        let connection = Arc::clone(stem.channel.connection());
        let (mut notifies, told) = Ends::of(stem.channel).in_auth(ctx, &[]);
        notifies.extend(Agreement::of(stem.channel, ctx.plane).notify());
        let token = OwnToken::of(stem.channel, ctx);
        let Some(own) = own else {
            let sent = stem.channel.request(&mut ctx.io, ExchangeType::IKE_AUTH, &[]);
            sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
            return State::ExpectAuthResponse(self);
        };
        let first = self.rounds.local.is_empty();
        if first {
            self.told = told;
        }
        let resumed = self.resume.is_some();
        if own.has_auth() {
            self.rounds.local.push(own.used.clone());
        }
        let another =
            own.has_auth() && !resumed && self.rounds.local.len() < connection.local.len();
        let eap_only = self.eap.as_ref().is_some_and(|eap| eap.alone);
        let announcements = (first && !resumed)
            .then(|| OwnAnnouncements::new(ctx.io.config, ctx.crypto, [&*connection]));
        let announcements = announcements.unwrap_or_default();
        let child = self.child.as_ref().filter(|_| first);
        let child = child.map(|offer| offer.payloads_in_auth());
        let config = OwnedConfig::request(&self.vips).filter(|_| first);
        let ppk_id = match stem.peer.ppk() {
            PpkStage::Offered(id, _) if first => Some(wire_id(id)),
            _ => None,
        };
        // The identity as in the ticket, which may have another spelling (RFC 5723 §4.3.3).
        let held = self.resume.clone();
        let former_id = held.as_ref().and_then(|held| held.former.remote_id());
        let mut payloads = Vec::with_capacity(12);
        payloads.push(Payload::IdI(own.used.id.as_id()));
        if first && self.initial_contact {
            payloads.push(notify(NotifyType::INITIAL_CONTACT, &[]));
        }
        payloads.extend(own.certs());
        payloads.extend(announcements.payloads(usize::MAX));
        if let IdMatch::Exact(id) = connection.remote_id()
            && first
        {
            payloads.push(Payload::IdR(former_id.unwrap_or(id).as_id()));
        }
        payloads.extend(own.auth());
        if eap_only {
            payloads.push(notify(NotifyType::EAP_ONLY_AUTHENTICATION, &[]));
        }
        if another {
            payloads.push(notify(NotifyType::ANOTHER_AUTH_FOLLOWS, &[]));
        }
        payloads.extend(token.iter().filter(|_| first).map(OwnToken::payload));
        payloads.extend(config.as_ref().map(OwnedConfig::payload));
        payloads.extend(child.unwrap_or_default());
        payloads.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads
            .extend(own.no_ppk.iter().map(|data| notify(NotifyType::NO_PPK_AUTH, data.expose())));
        if first {
            payloads.extend(payloads_of(&notifies));
        }
        if first && connection.session_resumption {
            payloads.push(notify(NotifyType::TICKET_REQUEST, &[]));
        }
        let sent = stem.channel.request(&mut ctx.io, ExchangeType::IKE_AUTH, &payloads);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        State::ExpectAuthResponse(self)
    }

    // ---- the peer ----

    /// Judges the response. An error here ends this candidate, not the attempt.
    pub(crate) fn on_response(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        if let Some(eap) = self.eap.take_if(|eap| eap.judges_response()) {
            return self.on_eap_response(stem, ctx, eap, payloads);
        }
        if let Some(held) = self.resume.clone() {
            return self.on_resumed_response(stem, ctx, &held, payloads);
        }
        let parsed = Payloads(payloads);
        let connection = Arc::clone(stem.channel.connection());
        let index = self.rounds.proven();
        let Some(round) = connection.remote.get(index) else {
            return match parsed.auth() {
                Ok(None) if index > 0 => self.round_done(stem, ctx, payloads),
                _ => self.reject(stem, ctx, Failure::Authentication),
            };
        };
        let (id, auth) = match claim(&parsed) {
            Ok(claim) => claim,
            Err(failure) => return self.reject(stem, ctx, failure),
        };
        if matches!(stem.peer.ppk(), PpkStage::Offered(..))
            && let Err(failure) = stem.peer.settle_ppk(stem.channel, &parsed)
        {
            return self.disbelieve(stem, ctx, id, None, failure);
        }
        let another = parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_some();
        if !takes(round, &id.to_owned(), auth.method)
            || another != (index + 1 < connection.remote.len())
        {
            let (id, method) = (id.to_owned(), auth.method);
            let claim = Claim { index, id: &id, wanted: None, method };
            let blame = Blame::for_none(stem.channel, std::slice::from_ref(&connection), claim);
            return self.disbelieve(stem, ctx, id.as_id(), Some(blame), Failure::Authentication);
        }
        match self.judge(stem.channel, ctx, round, id, auth) {
            Some(Ok((used, evidence))) => {
                self.responder_proven(stem, ctx, used, evidence, payloads)
            }
            Some(Err(failure)) => {
                let (id, method) = (id.to_owned(), auth.method);
                let claim = Claim { index, id: &id, wanted: None, method };
                let blame = Blame::for_secret(stem.seen(), ctx.lookup, &connection, claim);
                self.disbelieve(stem, ctx, id.as_id(), Some(blame), failure)
            }
            None if !stem.channel.hold(&mut ctx.io, opened) => self.reject(stem, ctx, no_room()),
            None => {
                let asked = peer_credentials(&connection, index, id.to_owned(), payloads);
                let Some(asked) = asked else {
                    return self.reject(stem, ctx, Failure::Authentication);
                };
                let ticket = ask(ctx, stem.channel, Question::Judge(asked));
                let judging = Judging {
                    candidates: VecDeque::new(),
                    decoy: None,
                    without_ppk: false,
                    proven: None,
                };
                let message = opened.clone();
                let asked = AwaitVerdict { ticket, waiting: self, message, judging };
                State::AwaitResponderVerdict(Box::new(asked))
            }
        }
    }

    /// Checks a claim that needs no certificate; `None` if it needs one.
    fn judge(
        &mut self,
        channel: &mut Channel,
        ctx: &Context<'_>,
        round: &RemoteAuth,
        id: Id<'_>,
        auth: &Auth<'_>,
    ) -> Option<Result<(UsedAuth, PeerAuthenticated), Failure>> {
        let prf = channel.session().prf;
        let mut psk = None;
        let key = match &round.auth {
            AuthConfig::Pubkey(_) => return None,
            AuthConfig::Null => padded(prf, channel.session().keys.pr()),
            // `eap.rs` decides about it.
            AuthConfig::Eap => return Some(Err(Failure::Authentication)),
            AuthConfig::Psk => {
                let local = self.rounds.local.last().map(|used| &used.id);
                let local = local.unwrap_or(&self.local_id);
                psk = peer_psk(ctx.lookup, local, &id.to_owned());
                match &psk {
                    Some(psk) => psk.padded(prf),
                    None => return Some(Err(Failure::Authentication)),
                }
            }
        };
        let verify = |octets: &SignedOctets| verify_by(prf, &key, octets, auth.data);
        let verdict = self.with_twins(channel, ctx, id, verify);
        if let (Ok(_), Some(psk)) = (&verdict, &psk) {
            self.rounds.note_secret(ctx.registry.seed().print(psk.secret()));
        }
        let proven = |evidence| (used(id.to_owned(), auth.method), evidence);
        Some(verdict.map(proven).map_err(|AuthFailure| Failure::Authentication))
    }

    /// Verifies with each IKE_SA_INIT response that makes the keys of this SA.
    pub(crate) fn with_twins<T>(
        &mut self,
        channel: &mut Channel,
        ctx: &Context<'_>,
        id: Id<'_>,
        verify: impl Fn(&SignedOctets) -> Result<T, AuthFailure>,
    ) -> Result<T, AuthFailure> {
        loop {
            match verify(&self.transcript.peer_octets(channel, id)) {
                Ok(proof) => return Ok(proof),
                Err(AuthFailure) if self.take_twin(channel, ctx) => {}
                Err(AuthFailure) => return Err(AuthFailure),
            }
        }
    }

    /// Replaces the IKE_SA_INIT response in use by another one with the same keys. False if there is none left.
    fn take_twin(&mut self, channel: &mut Channel, ctx: &Context<'_>) -> bool {
        let Some(response) = channel.proving().take_twin(&ctx.io) else { return false };
        self.transcript.response = response;
        true
    }

    /// Handles that the peer is authenticated in one more round.
    pub(super) fn responder_proven(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        used: UsedAuth,
        evidence: PeerAuthenticated,
        payloads: &[Payload<'_>],
    ) -> State {
        stem.channel.proving().note_genuine();
        self.rounds.prove(used, evidence);
        self.round_done(stem, ctx, payloads)
    }

    /// Handles a genuine response: begins the next round, or ends IKE_AUTH.
    pub(crate) fn round_done(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> State {
        let parsed = Payloads(payloads);
        if let Some(kind) = parsed.fatal_in_auth() {
            return self.end(stem, Failure::Peer(kind));
        }
        if let Some(kind) = parsed.unrecognized_error() {
            // The peer is authenticated, and its IKE SA may be up: the SA is deleted. Only the three errors above
            // end it without a Delete (RFC 7296 §2.21.2).
            let delete = Delete { protocol: ProtocolId::IKE, spis: Vec::new() };
            let sent = stem.channel.request(
                &mut ctx.io,
                ExchangeType::INFORMATIONAL,
                &[Payload::Delete(delete)],
            );
            sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
            return self.end(stem, Failure::Peer(kind));
        }
        if self.is_redirected_early(stem.channel, ctx, payloads) {
            return State::ExpectAuthResponse(self);
        }
        if let Some(eap) = self.eap.take() {
            return self.responder_begins_eap(stem, ctx, eap, payloads);
        }
        let Some(authenticated) = self.rounds.finish(stem.channel.connection()) else {
            return self.next_auth_request(stem, ctx);
        };
        let Self { transcript, child, queue, vips, told, .. } = *self;
        let mut established = stem.establish(ctx, authenticated, queue);
        if let Ok(Some(peer)) = Ends::of(stem.channel).of_auth(&parsed) {
            stem.channel.roaming().begin_mobike(peer, told);
        }
        if Agreement::of(stem.channel, ctx.plane).is_shared_by(&parsed) {
            stem.channel.roaming().agree_on_udp();
            stem.channel.arm_keepalive(&ctx.io);
        }
        if let Some(told) = ToldGateway::read(&parsed, stem.channel, ctx) {
            let waiting = std::mem::take(stem.waiting);
            told.follow_at_once(&mut established.parts(stem, ctx), child, waiting);
            return State::Established(established);
        }
        stem.peer.take_token(stem.channel, payloads);
        if !vips.is_empty() {
            established.take_configuration(stem, ctx, &vips, payloads);
        }
        established.take_auth_lifetime(stem.channel, ctx.io.now.mono, &parsed);
        established.take_ticket(stem.seen(), ctx, &parsed, true);
        ctx.effects.push_back(Effect::Established {
            ike: stem.channel.link().id(),
            initial_contact: false,
        });
        if let Some(offer) = child {
            let nonces = transcript.nonces();
            let material = KeyMaterial { shared: &[], nonces, ppk: None };
            let outcome = offer.finish(&mut established.parts(stem, ctx), payloads, material);
            established.conclude(stem.channel, ctx, outcome);
        }
        established.on_network_meanwhile(stem.channel, ctx);
        State::Established(established)
    }

    // ---- ends ----

    /// As [`reject`](Self::reject), with a report to the log. Without a `blame` the failure has the reason.
    pub(super) fn disbelieve(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        id: Id<'_>,
        blame: Option<Blame>,
        failure: Failure,
    ) -> State {
        let blame = blame.unwrap_or_else(|| match &failure {
            Failure::Untrusted(kind, why) => {
                Blame::of(Some(stem.channel.connection()), Disbelief::Untrusted(why.clone()))
                    .distrusting(*kind)
            }
            other => Blame::of(Some(stem.channel.connection()), Disbelief::Failed(other.clone())),
        });
        let local = local_id(stem.channel.connection(), stem.channel);
        blame.tell(stem.channel, ctx, (Some(id.to_owned()), Some(local)));
        self.reject(stem, ctx, failure)
    }

    /// Ends the SA because the responder is not believed, and tells the responder, unless it refused by itself.
    pub(crate) fn reject(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        failure: Failure,
    ) -> State {
        if !matches!(failure, Failure::Peer(_)) {
            stem.report_error(ctx, &Refusal::new(NotifyType::AUTHENTICATION_FAILED));
        }
        self.end(stem, failure)
    }

    /// Ends the SA without a message to the peer.
    pub(crate) fn end(self: Box<Self>, stem: &mut Stem<'_>, failure: Failure) -> State {
        stem.ending.end(failure);
        State::ExpectAuthResponse(self)
    }
}

impl AwaitSignature<ExpectAuthResponse> {
    pub(super) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { waiting, round, .. } = self;
        match round.finish(answer, &waiting.announced, stem.channel.connection().send_cert) {
            Ok(own) => waiting.send_auth_request(stem, ctx, Some(own)),
            Err(failure) => waiting.end(stem, failure),
        }
    }
}

impl AwaitVerdict<ExpectAuthResponse> {
    pub(super) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { mut waiting, message, mut judging, .. } = self;
        let index = waiting.rounds.proven();
        let payloads = match decode_inner_payloads(message.first, &message.octets) {
            Ok(payloads) => payloads,
            // It was decoded once already.
            Err(error) => return waiting.reject(stem, ctx, Refusal::from(error).into()),
        };
        let parsed = Payloads(&payloads);
        let connection = Arc::clone(stem.channel.connection());
        let round = connection.remote.get(index).map(|round| &round.auth);
        let (Ok((id, auth)), Some(AuthConfig::Pubkey(pubkey))) = (claim(&parsed), round) else {
            return waiting.reject(stem, ctx, Failure::Authentication);
        };
        let key = match answer {
            Answer::Key(key) => key,
            Answer::Untrusted(kind, why) => {
                return waiting.disbelieve(stem, ctx, id, None, Failure::Untrusted(kind, why));
            }
            Answer::Failed(why) => {
                let failure = Failure::Untrusted(Distrust::Other, why);
                return waiting.disbelieve(stem, ctx, id, None, failure);
            }
            Answer::Signed(_)
            | Answer::Resumable
            | Answer::Exchanged(_)
            | Answer::Leased(..)
            | Answer::Eap(_)
            | Answer::Ends { .. } => {
                return waiting.reject(stem, ctx, Failure::Authentication);
            }
        };
        if let Some((known, mut used, evidence)) = judging.proven.take() {
            if key.revocation_pending || key.spki != known.spki {
                let why = "revocation is not settled".to_owned();
                let failure = Failure::Untrusted(Distrust::RevocationUnknown, why);
                return waiting.disbelieve(stem, ctx, id, None, failure);
            }
            // What is known of its certificates is the outcome of the question.
            used.certificate.clone_from(&key.certificate);
            return waiting.responder_proven(stem, ctx, used, evidence, &payloads);
        }
        let (config, crypto) = (ctx.io.config, ctx.crypto);
        let data = (auth.method, auth.data);
        let verdict = waiting.with_twins(stem.channel, ctx, id, |octets| {
            signature::verify((config, crypto), &pubkey.ike, &key.spki, octets, data)
        });
        let Ok((evidence, scheme)) = verdict else {
            let of_key = crypto.schemes.of_key(&key.spki).cloned();
            let why = signature::disbelief(crypto, Some(&pubkey.ike), of_key, data);
            let blame = Blame::of(Some(&connection), why);
            return waiting.disbelieve(stem, ctx, id, Some(blame), Failure::Authentication);
        };
        let used = signed_by(id.to_owned(), auth.method, scheme, &key);
        if !key.revocation_pending {
            return waiting.responder_proven(stem, ctx, used, evidence, &payloads);
        }
        let asked = peer_credentials(&connection, index, id.to_owned(), &payloads);
        let Some(asked) = asked else {
            return waiting.reject(stem, ctx, Failure::Authentication);
        };
        drop(payloads);
        let ticket = ask(ctx, stem.channel, Question::Revocation(asked));
        judging.proven = Some((key, used, evidence));
        State::AwaitResponderVerdict(Box::new(Self { ticket, waiting, message, judging }))
    }
}

/// IDr and AUTH of a response.
pub(crate) fn claim<'a, 'b>(
    payloads: &Payloads<'a, 'b>,
) -> Result<(Id<'a>, &'b Auth<'a>), Failure> {
    let (Some(id), Some(auth)) = (payloads.id_r()?, payloads.auth()?) else {
        // No AUTH: the exchange failed as a whole (RFC 7296 §2.21.2).
        let error = payloads.error().map(|notify| notify.kind);
        return Err(match error {
            Some(kind) => Failure::Peer(kind),
            None => Failure::Refused(NotifyType::INVALID_SYNTAX),
        });
    };
    Ok((*id, auth))
}
