//! The responder's side of IKE_AUTH.

use std::collections::VecDeque;
use std::sync::Arc;

use super::blame::{Blame, Claim, Unbelieved};
use super::eap::NO_AUTH;
use super::first_contact::{LastAnswer, LastReply};
use super::psk::peer_psk;
use super::questions::{Judging, OwnTurn, peer_credentials, signed_by};
use super::rounds::{AuthReply, OwnAuth, used};
use super::{answers_to, exactness, local_id, round_id, signature, takes};
use crate::channel::Channel;
use crate::config::proposal::{self, SelectOptions};
use crate::config::{AuthConfig, Childless, ConnectionConfig, RemoteAuth};
use crate::crypto::CryptoProvider;
use crate::crypto::sign::OutsideScheme;
use crate::event::{Disbelief, Distrust, Failure, UsedAuth};
use crate::exchange::auth::questions::ask;
use crate::exchange::child_sa::ChildRequest;
use crate::exchange::child_sa::KeyMaterial;
use crate::exchange::child_sa::ReadyChild;
use crate::exchange::create_child::{answer_notifies, child_failed};
use crate::exchange::esp_in_udp::Agreement;
use crate::exchange::followup::Reply;
use crate::exchange::key_exchange::Halt;
use crate::exchange::mobike::{Ends, Translated};
use crate::exchange::ppk::auth::{AuthData, PpkChoice};
use crate::exchange::qcd::OwnToken;
use crate::exchange::redirect::{self, gateway_data};
use crate::exchange::resume::fits::InForce;
use crate::exchange::sa_init::refuses_short_transcript;
use crate::exchange::{Payloads, Refusal, required};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::keeping::no_room;
use crate::ike_sa::state::{
    AwaitSignature, AwaitVerdict, Established, ExpectAuthRequest, InitTranscript, State,
};
use crate::ike_sa::{Stem, notify};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::{PeerAuthenticated, padded, verify_by};
use crate::question::{Answer, PeerKey, Question};
use crate::wire::decode_inner_payloads;
use crate::wire::payload::{Id, IdData, Payload, Sa, Spi};
use crate::wire::registry::NotifyType;

/// Connections that are tried for one request, because each may cost a certificate path.
const MAX_CANDIDATES: usize = 32;

/// What to do about a request.
enum Plan {
    /// The initiator is authenticated, and belongs to `connection`.
    Proven(Arc<ConnectionConfig>, UsedAuth, PeerAuthenticated),
    /// The initiator has sent a public key.
    Judge(Judging),
    /// The initiator is to be authenticated by EAP, for the first of these. The result may select another one.
    Eap(VecDeque<Arc<ConnectionConfig>>),
}

impl Established {
    /// Ends IKE_AUTH: reports the peer's addresses, makes the first child, and answers the request.
    pub(super) fn answer_last(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        parsed: &Payloads<'_, '_>,
        transcript: &InitTranscript,
        reply: LastReply,
    ) {
        stem.peer.assigned().tell(ctx);
        let initial_contact = parsed.notify(NotifyType::INITIAL_CONTACT).is_some();
        if self.answer_first_child(stem, ctx, parsed, transcript, reply) {
            ctx.effects
                .push_back(Effect::Established { ike: stem.channel.link().id(), initial_contact });
        }
    }

    /// Makes the first child, and answers. False if the SA has ended.
    fn answer_first_child(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        parsed: &Payloads<'_, '_>,
        transcript: &InitTranscript,
        (auth, ppk, unconfigured): LastReply,
    ) -> bool {
        let child = match (parsed.sa(), unconfigured) {
            (Ok(_), Some(kind)) => Some(Err(kind.into())),
            (Ok(None), None) => None,
            (Ok(Some(_)), None) if stem.channel.connection().childless == Childless::Force => {
                Some(Err(Refusal::new(NotifyType::NO_ADDITIONAL_SAS)))
            }
            (Ok(Some(_)), None) => {
                let request = ChildRequest { rekeys: None, with_ke: false };
                // There is no key exchange in IKE_AUTH (RFC 7296 §1.2).
                let child = self.answer_child(stem.seen(), ctx, parsed, &request, None);
                Some(child.map_err(Halt::refusal))
            }
            (Err(refusal), _) => {
                stem.refuse(ctx, refusal);
                return false;
            }
        };
        let token = OwnToken::of(stem.channel, ctx);
        let (notifies, told) = Ends::of(stem.channel).in_auth(ctx, self.children.as_slice());
        stem.channel.roaming().note_told(told);
        let mut auth = AuthReply { notifies, token, ..auth };
        auth.notifies.extend(Agreement::of(stem.channel, ctx.plane).notify());
        auth.notifies.extend(self.own_auth_lifetime(stem.seen(), ctx.io.now.mono));
        auth.notifies.extend(self.answer_ticket_request(stem.channel, stem.peer, ctx, parsed));
        let mut payloads = auth.payloads();
        payloads.extend(ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        match child {
            None => stem.respond(ctx, &payloads),
            // RFC 7296 §2.21.2: this error is fatal at both ends, so there is no AUTH beside it.
            Some(Err(refusal)) if refusal.ends_sa() => {
                stem.refuse(ctx, refusal);
                return false;
            }
            Some(Err(refusal)) => {
                payloads.push(refusal.payload());
                stem.respond(ctx, &payloads);
                child_failed(ctx, stem.channel, "", refusal.into());
            }
            Some(Ok(answered)) => {
                drop(payloads);
                let child = &answered.child;
                let reply = Reply {
                    auth: Some(auth),
                    proposal: Some(child.selected.to_wire(Spi::Esp(child.spi_in))),
                    ke: None,
                    nonce: None,
                    ts_i: child.remote_ts.clone(),
                    ts_r: child.local_ts.clone(),
                    notifies: answer_notifies(child),
                    ppk,
                };
                let nonces = transcript.nonces();
                let material = KeyMaterial { shared: &[], nonces, ppk: None };
                let (channel, child) = (&*stem.channel, answered.child);
                match ReadyChild::keyed(channel, &self.children, ctx, child, material) {
                    Ok(ready) => self.install_then_respond(stem, ctx, ready, reply),
                    Err(refusal) => {
                        stem.refuse(ctx, refusal);
                        return false;
                    }
                }
            }
        }
        true
    }
}

impl ExpectAuthRequest {
    // ---- the peer ----

    /// Judges the request. Only an authenticated peer changes anything beyond this SA.
    pub(crate) fn on_request(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        if let Some(eap) = self.eap.take() {
            return self.on_eap_request(stem, ctx, eap, payloads);
        }
        if let Some(ticket) = self.resume.take() {
            return self.on_resumed_request(stem, ctx, ticket, payloads, opened);
        }
        let parsed = Payloads(payloads);
        let proven = self.rounds.proven();
        if proven > 0 && proven >= stem.channel.connection().remote.len() {
            // The peer has completed its rounds. Now it is this end's turn (RFC 4739 §2.5).
            return match (parsed.id_i(), parsed.auth()) {
                (Ok(None), Ok(None)) => self.next_auth_response(stem, ctx),
                _ => self.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into()),
            };
        }
        match self.plan(stem, InForce::at(ctx), &parsed) {
            Err(Unbelieved::Malformed(refusal)) => self.refuse(stem, ctx, refusal),
            Err(Unbelieved::Peer(blame)) => {
                stem.refuse_peer(ctx, ids(&parsed), blame);
                State::ExpectAuthRequest(self)
            }
            Ok(Plan::Proven(connection, used, evidence)) => {
                self.initiator_proven(stem, ctx, &connection, (used, evidence), payloads, opened)
            }
            Ok(Plan::Eap(candidates)) => self.begin_eap(stem, ctx, candidates, payloads, opened),
            Ok(Plan::Judge(_)) if !stem.channel.hold(&mut ctx.io, opened) => {
                // A request that could not be examined gets no verdict.
                stem.ending.end(no_room());
                State::ExpectAuthRequest(self)
            }
            Ok(Plan::Judge(judging)) => {
                self.ask_for_key(stem, ctx, opened.clone(), judging, payloads)
            }
        }
    }

    fn plan(
        &mut self,
        stem: &mut Stem<'_>,
        in_force: InForce<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Plan, Unbelieved> {
        let (lookup, config) = (in_force.lookup(), in_force.config());
        let index = self.rounds.proven();
        let malformed = Unbelieved::Malformed;
        let id_i = *payloads.id_i().and_then(required).map_err(malformed)?;
        let id_r = payloads.id_r().map_err(malformed)?;
        let auth = payloads.auth().map_err(malformed)?;
        let remote_id = id_i.to_owned();
        let another = payloads.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_some();
        let method = auth.map_or(NO_AUTH, |auth| auth.method);
        if auth.is_some() && method == NO_AUTH {
            return Err(malformed(NotifyType::INVALID_SYNTAX.into()));
        }
        let mut candidates: Vec<_> = self
            .connections
            .iter()
            .filter(|connection| {
                let rounds = &connection.remote;
                rounds.get(index).is_some_and(|round| takes(round, &remote_id, method))
                    // The notify is valid only with AUTH.
                    && (auth.is_none() || another == (index + 1 < rounds.len()))
            })
            .filter(|connection| {
                index > 0
                    || id_r.is_none_or(|wanted| answers_to(connection, stem.channel, wanted))
                        && still_fits(connection, stem.channel)
            })
            .collect();
        //= https://www.rfc-editor.org/rfc/rfc4945#section-3.1.10
        //# The
        //# recipient MUST also use the most specific policy from that database
        //# if there are overlapping policies caused by wildcards
        candidates.sort_by_key(|connection| {
            std::cmp::Reverse(connection.remote.get(index).map_or(0, exactness))
        });
        let mut candidates: VecDeque<_> =
            candidates.into_iter().take(MAX_CANDIDATES).cloned().collect();
        let first = candidates.front().cloned();
        if let (None, Some(_)) = (auth, &first) {
            // A request without AUTH begins EAP. A PPK comes with the AUTH after EAP.
            return Ok(Plan::Eap(candidates));
        }
        let first = match index {
            0 => {
                let choice = |connection: &Arc<ConnectionConfig>| {
                    let (ppk, link) = (stem.peer.ppk(), stem.channel.link());
                    ppk.choose_in_auth(link, config, connection, payloads).ok()
                };
                first_by_ppk(&mut candidates, choice).or(first)
            }
            _ => first,
        };
        let taken = match &first {
            Some(connection) if index == 0 => {
                stem.peer.take_ppk(stem.channel, in_force, connection, payloads)
            }
            _ => Ok(AuthData::Payload),
        };
        let claim = Claim { index, id: &remote_id, wanted: id_r, method };
        let blame = match (&first, &taken) {
            (Some(first), Err(why)) => Some(Blame::of(Some(first), why.clone())),
            (Some(_), Ok(_)) => None,
            (None, _) => Some(Blame::for_none(stem.channel, &self.connections, claim)),
        };
        // If no connection accepts signatures, a signature fails as a wrong secret does.
        if signature::is_signature(method) && self.takes_keys(index) {
            let without_ppk = matches!(taken, Ok(AuthData::NoPpkAuth(_)));
            return Ok(Plan::Judge(Judging {
                candidates,
                decoy: blame,
                without_ppk,
                proven: None,
            }));
        }
        let data = match &taken {
            Ok(AuthData::NoPpkAuth(data)) => data,
            _ => auth.map_or(&[][..], |auth| auth.data),
        };
        let verdict =
            self.check_secret(stem.channel, in_force, first.as_deref(), (id_i, id_r), data);
        match (blame, first, verdict) {
            (Some(blame), _, _) => Err(Unbelieved::Peer(blame)),
            (None, Some(connection), Some(evidence)) => {
                Ok(Plan::Proven(connection, used(remote_id, method), evidence))
            }
            (None, Some(connection), None) => {
                Err(Unbelieved::Peer(Blame::for_secret(stem.seen(), lookup, &connection, claim)))
            }
            (None, None, _) => Err(malformed(NotifyType::AUTHENTICATION_FAILED.into())),
        }
    }

    /// Checks an AUTH without a signature. `connection` accepts its method.
    fn check_secret(
        &mut self,
        channel: &Channel,
        in_force: InForce<'_>,
        connection: Option<&ConnectionConfig>,
        (id_i, id_r): (Id<'_>, Option<&Id<'_>>),
        data: &[u8],
    ) -> Option<PeerAuthenticated> {
        let index = self.rounds.proven();
        let local_id = match (connection, id_r) {
            (Some(connection), _) => local_id(connection, channel),
            (None, Some(wanted)) => wanted.to_owned(),
            (None, None) => local_id(channel.connection(), channel),
        };
        let round = connection.and_then(|connection| connection.remote.get(index));
        let prf = channel.session().prf;
        let mut psk = None;
        let key = match round.map(|round| &round.auth) {
            Some(AuthConfig::Psk) => {
                psk = peer_psk(in_force.lookup(), &local_id, &id_i.to_owned());
                psk.as_ref().map(|psk| psk.padded(prf))
            }
            Some(AuthConfig::Null) => Some(padded(prf, channel.session().keys.pi())),
            _ => None,
        };
        // Without a connection or a key the same check runs with a random key: an unknown identity and a wrong
        // secret must take the same path (bug class 43).
        let known = key.is_some();
        let key = key.unwrap_or_else(|| in_force.lookup().decoy(prf));
        let verdict = self
            .transcript
            .verify_initiator(channel, id_i, |octets| verify_by(prf, &key, octets, data));
        let evidence = verdict.ok().filter(|_| known)?;
        if let Some(psk) = psk {
            self.rounds.note_secret(in_force.seed().print(psk.secret()));
        }
        Some(evidence)
    }

    /// Asks about the key for the first candidate. `payloads` are those of `message`.
    fn ask_for_key(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        message: Opened,
        judging: Judging,
        payloads: &[Payload<'_>],
    ) -> State {
        let index = self.rounds.proven();
        let id = Payloads(payloads).id_i().ok().flatten().map(Id::to_owned);
        // Any connection that accepts public keys will do for a decoy.
        let mut possible = judging.candidates.iter().chain(&*self.connections);
        let asked = id.and_then(|id| {
            possible
                .find_map(|connection| peer_credentials(connection, index, id.clone(), payloads))
        });
        let Some(asked) = asked else {
            return self.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
        };
        let ticket = ask(ctx, stem.channel, Question::Judge(asked));
        let asked = AwaitVerdict { ticket, waiting: self, message, judging };
        State::AwaitInitiatorVerdict(Box::new(asked))
    }

    /// Handles that the peer is authenticated in one more round.
    fn initiator_proven(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        connection: &Arc<ConnectionConfig>,
        (used, evidence): (UsedAuth, PeerAuthenticated),
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        stem.channel.proving().set_connection(Arc::clone(connection));
        self.connections = Arc::from([Arc::clone(connection)]);
        self.rounds.prove(used, evidence);
        if self.first.is_none() {
            self.announced.read(&ctx.crypto.schemes, &Payloads(payloads));
            self.first = Some(opened.clone());
        }
        if connection.local.len() > 1 && !self.announced.multiple_auth {
            let why = "the peer does not announce MULTIPLE_AUTH_SUPPORTED".to_owned();
            return self.fail(stem, ctx, Failure::Credentials(why));
        }
        self.next_auth_response(stem, ctx)
    }

    /// Handles an INFORMATIONAL between two rounds, in which the initiator reports an error in the last response
    /// (RFC 7296 §2.21.2). No other one is expected.
    pub(crate) fn on_complaint(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> State {
        match Payloads(payloads).fatal_in_auth() {
            Some(kind) => {
                stem.respond(ctx, &[]);
                stem.ending.end(Failure::Peer(kind));
            }
            None => stem.refuse(ctx, NotifyType::INVALID_SYNTAX.into()),
        }
        State::ExpectAuthRequest(self)
    }

    // ---- this end ----

    /// Makes this end's part of the round, and answers.
    pub(super) fn next_auth_response(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
    ) -> State {
        let connection = Arc::clone(stem.channel.connection());
        let index = self.rounds.local.len();
        let Some(round) = connection.local.get(index) else {
            return self.answer_round(stem, ctx, None);
        };
        if round.auth == AuthConfig::Eap && self.eap.is_none() {
            let why = Failure::Config("EAP is for initiators, or for both ends".to_owned());
            return self.fail(stem, ctx, why);
        }
        let id = if index == 0 {
            local_id(&connection, stem.channel)
        } else {
            round_id(&connection, round, stem.channel.route().path())
        };
        // A peer that only claims an identity gets no AUTH by a secret, because it could guess the secret from
        // that.
        let remote = self.rounds.remote_id();
        let psk = remote.and_then(|remote| peer_psk(ctx.lookup, &id, remote));
        let covered = (self.transcript.own_covered(stem.channel, &id), None);
        let taken = (&ctx.crypto.schemes, &self.announced);
        match OwnTurn::begin(stem.channel, round, id, psk, taken, covered, remote) {
            Err(failure) => self.fail(stem, ctx, failure),
            Ok(OwnTurn::Ready(own)) => self.answer_round(stem, ctx, Some(own)),
            Ok(OwnTurn::Sign(round, request)) => {
                let ticket = ask(ctx, stem.channel, Question::Sign(request));
                let asked = AwaitSignature { ticket, waiting: self, round };
                State::AwaitResponseSignature(Box::new(asked))
            }
        }
    }

    /// Answers a round. The last round establishes the SA.
    fn answer_round(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        own: Option<OwnAuth>,
    ) -> State {
        let first = self.rounds.local.is_empty();
        let proves = own.as_ref().filter(|own| own.has_auth());
        self.rounds.local.extend(proves.map(|own| own.used.clone()));
        let proves = proves.is_some();
        let packet = self.take_first_packet();
        let another = self.rounds.local.len() < stem.channel.connection().local.len();
        let ppk = (first && stem.peer.ppk().took_in_auth(stem.channel.link())).then(Vec::new);
        let reply = AuthReply { own, token: None, config: None, notifies: Vec::new() };
        if packet.is_none() && self.rounds.are_complete(stem.channel.connection()) {
            return self.configure_peer(stem, ctx, reply, ppk);
        }
        let more = (proves && another).then(|| notify(NotifyType::ANOTHER_AUTH_FOLLOWS, &[]));
        let mut payloads = reply.payloads();
        payloads.extend(ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads.extend(more);
        payloads.extend(packet.iter().map(|packet| Payload::Eap(packet)));
        stem.respond(ctx, &payloads);
        State::ExpectAuthRequest(self)
    }
    /// Handles that both ends have completed their rounds: makes the child of `request`, the first one, unless the peer's
    /// configuration has failed, and answers when the child is installed.
    pub(crate) fn finish_auth(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        request: Opened,
        (auth, ppk, unconfigured): LastReply,
    ) -> State {
        let payloads = match decode_inner_payloads(request.first, &request.octets) {
            Ok(payloads) => payloads,
            // It was decoded once already.
            Err(error) => return self.refuse(stem, ctx, error.into()),
        };
        let parsed = Payloads(&payloads);
        if stem.channel.connection().childless == Childless::Never
            && matches!(parsed.sa(), Ok(None))
        {
            //= https://www.rfc-editor.org/rfc/rfc6023#section-3
            //# It MUST NOT advertise the capability with a
            //# notification, and it SHOULD reply with an INVALID_SYNTAX Notify
            //# payload if the client sends an IKE_AUTH request that is modified as
            //# described in Section 5.
            return self.refuse(stem, ctx, NotifyType::INVALID_SYNTAX.into());
        }
        match Ends::of(stem.channel).of_auth(&parsed) {
            Ok(Some(peer)) => stem.channel.roaming().begin_mobike(peer, Vec::new()),
            Ok(None) => {}
            Err(Translated) => {
                return self.refuse(stem, ctx, NotifyType::UNEXPECTED_NAT_DETECTED.into());
            }
        }
        if Agreement::of(stem.channel, ctx.plane).is_shared_by(&parsed) {
            stem.channel.roaming().agree_on_udp();
        }
        let Some(authenticated) = self.rounds.finish(stem.channel.connection()) else {
            debug_assert!(false, "IKE_AUTH ends before its last round");
            return self.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
        };
        let initial_contact = parsed.notify(NotifyType::INITIAL_CONTACT).is_some();
        let transcript = self.transcript;
        let lifetime = authenticated.lifetime();
        let mut established = stem.establish(ctx, authenticated, VecDeque::new());
        if let Some(lifetime) = lifetime {
            let (connection, now) = (stem.channel.connection(), ctx.io.now.mono);
            established.life.limit_authentication(connection, now, lifetime);
        }
        let elsewhere = redirect::target(ctx, stem.channel);
        if let Some(to) = elsewhere {
            // A client that is redirected gets no address and no other attribute.
            let mut auth = AuthReply { config: None, ..auth };
            stem.peer.give_back(ctx);
            auth.notifies.push((NotifyType::REDIRECT, gateway_data(to, &[])));
            if parsed.notify(NotifyType::TICKET_REQUEST).is_some() {
                auth.notifies.push((NotifyType::TICKET_NACK, Vec::new()));
            }
            let mut payloads = auth.payloads();
            payloads.extend(ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
            stem.respond(ctx, &payloads);
            established.queue.let_leave(&mut established.life, ctx);
            return State::Established(established);
        }
        stem.peer.take_token(stem.channel, &payloads);
        let reply = (auth, ppk, unconfigured);
        if established.ends_others(stem.channel, ctx, initial_contact) {
            drop(payloads);
            let answer = Box::new(LastAnswer { request, transcript, reply, initial_contact });
            ctx.effects.push_back(Effect::EndOthers(stem.channel.link().id(), answer));
        } else {
            established.answer_last(stem, ctx, &parsed, &transcript, reply);
        }
        State::Established(established)
    }

    // ---- ends ----

    /// Answers with an error. As the peer is not authenticated, the SA ends.
    pub(crate) fn refuse(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        refusal: Refusal,
    ) -> State {
        stem.refuse(ctx, refusal);
        State::ExpectAuthRequest(self)
    }

    /// As [`refuse`](Self::refuse) with AUTHENTICATION_FAILED, for a reason that the peer is not told.
    pub(crate) fn fail(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        reason: Failure,
    ) -> State {
        stem.refuse_because(ctx, &NotifyType::AUTHENTICATION_FAILED.into(), reason);
        State::ExpectAuthRequest(self)
    }

    /// True if a possible connection of the initiator accepts a public key in this round.
    fn takes_keys(&self, index: usize) -> bool {
        let rounds = self.connections.iter().filter_map(|connection| connection.remote.get(index));
        rounds.into_iter().any(|round| matches!(round.auth, AuthConfig::Pubkey(_)))
    }
}

impl AwaitVerdict<ExpectAuthRequest> {
    pub(super) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { mut waiting, message, mut judging, .. } = self;
        let index = waiting.rounds.proven();
        let octets = message.octets.clone();
        let payloads = match decode_inner_payloads(message.first, &octets) {
            Ok(payloads) => payloads,
            // It was decoded once already.
            Err(error) => return waiting.refuse(stem, ctx, error.into()),
        };
        if let Some(ticket) = waiting.resume.take() {
            return waiting.on_resumable(stem, ctx, &ticket, (&payloads, &message), answer);
        }
        let of_key = match &answer {
            Answer::Key(key) => ctx.crypto.schemes.of_key(&key.spki).cloned(),
            _ => None,
        };
        let judged = waiting.check_key(stem.channel, ctx, &mut judging, &payloads, answer);
        let connection = judging.candidates.front().cloned();
        match (judged, connection) {
            (Ok((key, used, evidence)), Some(connection)) if judging.decoy.is_none() => {
                if !key.revocation_pending {
                    let proof = (used, evidence);
                    return waiting.initiator_proven(
                        stem,
                        ctx,
                        &connection,
                        proof,
                        &payloads,
                        &message,
                    );
                }
                let id = used.id.clone();
                let asked = peer_credentials(&connection, index, id, &payloads);
                let Some(asked) = asked else {
                    return waiting.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
                };
                let ticket = ask(ctx, stem.channel, Question::Revocation(asked));
                judging.proven = Some((key, used, evidence));
                State::AwaitInitiatorVerdict(Box::new(Self { ticket, waiting, message, judging }))
            }
            (judged, connection) => {
                judging.candidates.pop_front();
                if judging.decoy.is_none() && !judging.candidates.is_empty() {
                    return waiting.ask_for_key(stem, ctx, message, judging, &payloads);
                }
                let reason = judged.err().unwrap_or(Failure::Authentication);
                let blame = judging.decoy.unwrap_or_else(|| match &reason {
                    Failure::Untrusted(kind, why) => {
                        Blame::of(connection.as_deref(), Disbelief::Untrusted(why.clone()))
                            .distrusting(*kind)
                    }
                    _ => {
                        let connection = connection.as_deref();
                        let asked = connection.and_then(|one| one.remote.get(index));
                        let why = wrong_signature(ctx.crypto, asked, of_key, &payloads);
                        Blame::of(connection, why)
                    }
                });
                blame.tell(stem.channel, ctx, ids(&Payloads(&payloads)));
                waiting.fail(stem, ctx, reason)
            }
        }
    }
}

/// Why the signature in these payloads was not believed, where `asked` is wanted. `of_key` is the scheme of the peer's key,
/// if the program has brought it.
fn wrong_signature(
    crypto: &CryptoProvider,
    asked: Option<&RemoteAuth>,
    of_key: Option<OutsideScheme>,
    payloads: &[Payload<'_>],
) -> Disbelief {
    let asked = asked.and_then(|round| match &round.auth {
        AuthConfig::Pubkey(pubkey) => Some(&pubkey.ike),
        _ => None,
    });
    match Payloads(payloads).auth() {
        Ok(Some(auth)) => signature::disbelief(crypto, asked, of_key, (auth.method, auth.data)),
        // It was read before.
        Ok(None) | Err(_) => Disbelief::WrongSignature(None),
    }
}

impl AwaitSignature<ExpectAuthRequest> {
    pub(super) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { waiting, round, .. } = self;
        match round.finish(answer, &waiting.announced, stem.channel.connection().send_cert) {
            Ok(own) => waiting.answer_round(stem, ctx, Some(own)),
            Err(failure) => waiting.fail(stem, ctx, failure),
        }
    }
}

impl ExpectAuthRequest {
    /// Checks whether the answer is a key that has made the signature, or such a key after the check of
    /// revocation.
    fn check_key(
        &mut self,
        channel: &Channel,
        ctx: &Context<'_>,
        judging: &mut Judging,
        payloads: &[Payload<'_>],
        answer: Answer,
    ) -> Result<(PeerKey, UsedAuth, PeerAuthenticated), Failure> {
        let key = match answer {
            Answer::Key(key) => key,
            Answer::Untrusted(kind, why) => return Err(Failure::Untrusted(kind, why)),
            Answer::Failed(why) => return Err(Failure::Untrusted(Distrust::Other, why)),
            Answer::Signed(_)
            | Answer::Resumable
            | Answer::Exchanged(_)
            | Answer::Leased(..)
            | Answer::Eap(_)
            | Answer::Ends { .. } => {
                return Err(Failure::Authentication);
            }
        };
        if let Some((known, mut used, evidence)) = judging.proven.take() {
            if key.revocation_pending || key.spki != known.spki {
                let why = "revocation is not settled".to_owned();
                return Err(Failure::Untrusted(Distrust::RevocationUnknown, why));
            }
            // What is known of its certificates is the outcome of the question.
            used.certificate.clone_from(&key.certificate);
            return Ok((key, used, evidence));
        }
        let parsed = Payloads(payloads);
        let index = self.rounds.proven();
        let connections = judging.candidates.iter().chain(&*self.connections);
        let constraints =
            connections.flat_map(|c| c.remote.get(index)).find_map(|round| match &round.auth {
                AuthConfig::Pubkey(pubkey) => Some(&pubkey.ike),
                _ => None,
            });
        let id = required(parsed.id_i()?)?;
        let (Some(asked), Some(data)) = (constraints, judging.auth_data(&parsed)) else {
            return Err(Failure::Authentication);
        };
        let verdict = self.transcript.verify_initiator(channel, *id, |octets| {
            signature::verify((ctx.io.config, ctx.crypto), asked, &key.spki, octets, data)
        });
        let (evidence, scheme) = verdict.map_err(|_| Failure::Authentication)?;
        let used = signed_by(id.to_owned(), data.0, scheme, &key);
        Ok((key, used, evidence))
    }
}

/// The first of `candidates` that can use the PPK of the request, or go without one: `choice` says how. Of candidates
/// that identify the peer equally exactly, one that has the PPK is better. Only candidates that make the same keys are
/// kept. None, without any change, if none fits.
fn first_by_ppk<'a>(
    candidates: &mut VecDeque<Arc<ConnectionConfig>>,
    choice: impl Fn(&Arc<ConnectionConfig>) -> Option<PpkChoice<'a>>,
) -> Option<Arc<ConnectionConfig>> {
    let fit = candidates.iter().filter_map(|candidate| Some((candidate, choice(candidate)?)));
    let (first, chosen) = fit.min_by_key(|(candidate, choice)| {
        let exact = candidate.remote.first().map_or(0, exactness);
        (std::cmp::Reverse(exact), matches!(choice, PpkChoice::Without(_)))
    })?;
    let first = Arc::clone(first);
    candidates.retain(|other| choice(other).is_some_and(|choice| choice.is_like(&chosen)));
    // It is tried first. The others stay in their order.
    candidates.retain(|other| !Arc::ptr_eq(other, &first));
    candidates.push_front(Arc::clone(&first));
    Some(first)
}

/// True if `connection` accepts what IKE_SA_INIT has negotiated.
fn still_fits(connection: &ConnectionConfig, channel: &Channel) -> bool {
    let extensions = channel.link().extensions();
    if refuses_short_transcript(connection, extensions) {
        return false;
    }
    let chosen = Sa { proposals: vec![channel.session().selected.to_wire(Spi::None)] };
    let options = SelectOptions { intermediate: extensions.intermediate, ..Default::default() };
    proposal::select(&connection.proposals, &chosen, options).is_some()
}

/// The identities that a request claims for the peer and requests of this end.
pub(crate) fn ids(payloads: &Payloads<'_, '_>) -> (Option<IdData>, Option<IdData>) {
    let owned = |id: Result<Option<&Id<'_>>, Refusal>| id.ok().flatten().map(Id::to_owned);
    (owned(payloads.id_i()), owned(payloads.id_r()))
}
