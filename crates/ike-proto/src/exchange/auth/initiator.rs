//! The initiator's side of IKE_AUTH.

use std::collections::VecDeque;
use std::sync::Arc;

use super::announce::OwnAnnouncements;
use super::blame::{Blame, Claim};
use super::psk::{own_psk, peer_psk};
use super::questions::{Judging, OwnTurn, signed_by};
use super::rounds::{OwnAuth, used};
use super::{closed_placeholder, local_id, round_id, signature, takes};
use crate::config::{AuthConfig, IdMatch, RemoteAuth};
use crate::dataplane::TrafficSelector;
use crate::event::{Distrust, Failure, UsedAuth};
use crate::exchange::config::OwnedConfig;
use crate::exchange::ppk::{PpkStage, wire_id};
use crate::exchange::sa_init::floated;
use crate::exchange::{Payloads, Refusal, mode, payloads_of, qcd, resource, tfc};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::keeping::no_room;
use crate::ike_sa::state::{AwaitSignature, AwaitVerdict, ChildOffer, ExpectAuthResponse, State};
use crate::ike_sa::{Core, IkeSa, Twin, notify};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::{AuthFailure, PeerAuthenticated, SignedOctets, padded, verify_by};
use crate::question::{Answer, Question};
use crate::wire::decode_inner_payloads;
use crate::wire::payload::{Auth, Delete, Id, Payload, Sa};
use crate::wire::registry::{ExchangeType, NotifyType, ProtocolId};

impl IkeSa {
    // ---- this end ----

    /// Continues after IKE_SA_INIT and IKE_INTERMEDIATE: makes the first request.
    pub(crate) fn begin_auth(&mut self, ctx: &mut Context<'_>, auth: ExpectAuthResponse) {
        let several = self.core.connection.local.len() > 1 || self.core.connection.remote.len() > 1;
        let resumed = auth.resume.is_some();
        let missing = several && !auth.announced.multiple_auth && !resumed;
        self.state = State::ExpectAuthResponse(Box::new(auth));
        if resumed {
            return self.send_resumed_auth(ctx);
        }
        if missing {
            let text = "the peer does not announce MULTIPLE_AUTH_SUPPORTED";
            return self.close(ctx, Failure::Credentials(text.to_owned()));
        }
        self.next_auth_request(ctx);
    }

    /// Makes the request of the next round, after its signature if it needs one.
    fn next_auth_request(&mut self, ctx: &mut Context<'_>) {
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let connection = Arc::clone(&self.core.connection);
        let index = waiting.rounds.local.len();
        let Some(round) = connection.local.get(index) else {
            if index == 0 {
                return self.close(ctx, Failure::Config("no `local` section".to_owned()));
            }
            return self.send_auth_request(ctx, None);
        };
        let first = index == 0;
        let id = if first {
            waiting.local_id.clone()
        } else {
            round_id(&connection, round, self.core.channel.path)
        };
        if round.auth == AuthConfig::Eap {
            return self.begin_eap_round(ctx, index, id);
        }
        let unmixed = first && self.core.may_go_without_ppk();
        let unmixed = unmixed.then(|| self.core.own_covered(&waiting.transcript, &id));
        if first && let Err(failure) = self.core.mix_ppk_in_auth(ctx.config) {
            return self.close(ctx, failure);
        }
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let remote = connection.remote.get(index).or(connection.remote.last());
        let remote = remote.map_or(&IdMatch::Any, |round| &round.id);
        let psk = own_psk(ctx.lookup, &id, remote);
        let covered = (self.core.own_covered(&waiting.transcript, &id), unmixed);
        match self.own_turn(round, id, psk, &waiting.announced, covered) {
            Err(failure) => self.close(ctx, failure),
            Ok(OwnTurn::Ready(own)) => self.send_auth_request(ctx, Some(own)),
            Ok(OwnTurn::Sign(round, request)) => {
                let ticket = self.core.ask(ctx, Question::Sign(request));
                if let State::ExpectAuthResponse(waiting) = self.take_state() {
                    let asked = AwaitSignature { ticket, waiting: *waiting, round };
                    self.state = State::AwaitRequestSignature(Box::new(asked));
                }
            }
        }
    }

    pub(super) fn on_request_signed(&mut self, ctx: &mut Context<'_>, answer: Answer) {
        let State::AwaitRequestSignature(asked) = self.take_state() else { return };
        let AwaitSignature { waiting, round, .. } = *asked;
        let own = round.finish(answer, &waiting.announced, self.core.connection.send_cert);
        self.state = State::ExpectAuthResponse(Box::new(waiting));
        match own {
            Ok(own) => self.send_auth_request(ctx, Some(own)),
            Err(failure) => self.close(ctx, failure),
        }
    }

    /// Sends the request: with this end's AUTH, or without one if only the peer's rounds are left.
    pub(crate) fn send_auth_request(&mut self, ctx: &mut Context<'_>, own: Option<OwnAuth>) {
        let connection = Arc::clone(&self.core.connection);
        let mobike = self.core.mobike_in_auth(ctx, &[]);
        let token = self.core.own_token(ctx);
        let told =
            if mobike.is_empty() { Vec::new() } else { self.core.further_addresses(ctx, &[]) };
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let Some(own) = own else { return self.core.request(ctx, ExchangeType::IKE_AUTH, &[]) };
        let first = waiting.rounds.local.is_empty();
        if first {
            waiting.told = told;
        }
        let resumed = waiting.resume.is_some();
        if own.has_auth() {
            waiting.rounds.local.push(own.used.clone());
        }
        let another =
            own.has_auth() && !resumed && waiting.rounds.local.len() < connection.local.len();
        let eap_only = waiting.eap.as_ref().is_some_and(|eap| eap.alone);
        let announcements = (first && !resumed)
            .then(|| OwnAnnouncements::new(ctx.config, ctx.crypto, [&*connection]));
        let announcements = announcements.unwrap_or_default();
        let child = waiting.child.as_ref().filter(|_| first);
        let child = child.map(|offer| OfferParts::of(offer));
        let config = OwnedConfig::request(&waiting.vips).filter(|_| first);
        let ppk_id = match &self.core.ppk {
            PpkStage::Offered(id, _) if first => Some(wire_id(id)),
            _ => None,
        };
        // The identity as in the ticket, which may have another spelling (RFC 5723 §4.3.3).
        let held = waiting.resume.clone();
        let former_id = held.as_ref().and_then(|held| held.former.remote_id());
        let mut payloads = Vec::with_capacity(12);
        payloads.push(Payload::IdI(own.used.id.as_id()));
        if first && waiting.initial_contact {
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
        payloads.extend(token.iter().filter(|_| first).map(qcd::payload));
        payloads.extend(config.as_ref().map(OwnedConfig::payload));
        payloads.extend(child.map(OfferParts::payloads).unwrap_or_default());
        payloads.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads
            .extend(own.no_ppk.iter().map(|data| notify(NotifyType::NO_PPK_AUTH, data.expose())));
        if first {
            payloads.extend(payloads_of(&mobike));
        }
        if first && connection.session_resumption {
            payloads.push(notify(NotifyType::TICKET_REQUEST, &[]));
        }
        self.core.request(ctx, ExchangeType::IKE_AUTH, &payloads);
    }

    // ---- the peer ----

    /// Judges the response. An error here ends this candidate, not the attempt.
    pub(crate) fn on_auth_response(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        if self.on_eap_auth_response(ctx, payloads) {
            return;
        }
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        if waiting.resume.is_some() {
            return self.on_resumed_auth_response(ctx, payloads);
        }
        let parsed = Payloads(payloads);
        let connection = Arc::clone(&self.core.connection);
        let index = waiting.rounds.proven();
        let Some(round) = connection.remote.get(index).filter(|_| index < connection.remote.len())
        else {
            return match parsed.auth() {
                Ok(None) if index > 0 => self.auth_round_done(ctx, payloads),
                _ => self.reject_responder(ctx, Failure::Authentication),
            };
        };
        let (id, auth) = match claim(&parsed) {
            Ok(claim) => claim,
            Err(failure) => return self.reject_responder(ctx, failure),
        };
        if matches!(self.core.ppk, PpkStage::Offered(..))
            && let Err(failure) = self.core.settle_ppk(&parsed)
        {
            return self.disbelieve(ctx, id, None, failure);
        }
        let another = parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_some();
        if !takes(round, &id.to_owned(), auth.method)
            || another != (index + 1 < connection.remote.len())
        {
            let (id, method) = (id.to_owned(), auth.method);
            let blame = self.blame_for_none(Claim { index, id: &id, wanted: None, method });
            return self.disbelieve(ctx, id.as_id(), Some(blame), Failure::Authentication);
        }
        match self.judge_responder(ctx, round, id, auth) {
            Some(Ok((used, evidence))) => self.responder_proven(ctx, used, evidence, payloads),
            Some(Err(failure)) => {
                let (id, method) = (id.to_owned(), auth.method);
                let claim = Claim { index, id: &id, wanted: None, method };
                let blame = self.core.blame_for_secret(ctx.lookup, &connection, claim);
                self.disbelieve(ctx, id.as_id(), Some(blame), failure);
            }
            None if !self.core.hold(ctx, opened) => {
                self.reject_responder(ctx, no_room());
            }
            None => {
                let judging = Judging {
                    candidates: VecDeque::new(),
                    decoy: None,
                    without_ppk: false,
                    proven: None,
                };
                let asked = Core::peer_credentials(&connection, index, id.to_owned(), payloads);
                let Some(asked) = asked else {
                    return self.reject_responder(ctx, Failure::Authentication);
                };
                let ticket = self.core.ask(ctx, Question::Judge(asked));
                if let State::ExpectAuthResponse(waiting) = self.take_state() {
                    let message = opened.clone();
                    let asked = AwaitVerdict { ticket, waiting: *waiting, message, judging };
                    self.state = State::AwaitResponderVerdict(Box::new(asked));
                }
            }
        }
    }

    /// Checks a claim that needs no certificate; `None` if it needs one.
    fn judge_responder(
        &mut self,
        ctx: &Context<'_>,
        round: &RemoteAuth,
        id: Id<'_>,
        auth: &Auth<'_>,
    ) -> Option<Result<(UsedAuth, PeerAuthenticated), Failure>> {
        let prf = self.core.channel.session.prf;
        let key = match &round.auth {
            AuthConfig::Pubkey(_) => return None,
            AuthConfig::Null => padded(prf, &self.core.channel.session.keys.pr),
            // `eap.rs` decides about it.
            AuthConfig::Eap => return Some(Err(Failure::Authentication)),
            AuthConfig::Psk => {
                let State::ExpectAuthResponse(waiting) = &self.state else { return None };
                let local = waiting.rounds.local.last().map(|used| &used.id);
                let local = local.unwrap_or(&waiting.local_id);
                match peer_psk(ctx.lookup, local, &id.to_owned()) {
                    Some(psk) => psk.padded(prf),
                    None => return Some(Err(Failure::Authentication)),
                }
            }
        };
        let verdict = self.with_twins(ctx, id, |octets| verify_by(prf, &key, octets, auth.data));
        let proven = |evidence| (used(id.to_owned(), auth.method), evidence);
        Some(verdict.map(proven).map_err(|AuthFailure| Failure::Authentication))
    }

    pub(super) fn on_responder_verdict(&mut self, ctx: &mut Context<'_>, answer: Answer) {
        let State::AwaitResponderVerdict(asked) = &mut self.state else { return };
        let index = asked.waiting.rounds.proven();
        let known = asked.judging.proven.take();
        let message = asked.message.clone();
        let payloads = decode_inner_payloads(message.first, &message.octets).unwrap_or_default();
        let parsed = Payloads(&payloads);
        let connection = Arc::clone(&self.core.connection);
        let round = connection.remote.get(index).map(|round| &round.auth);
        let (Ok((id, auth)), Some(AuthConfig::Pubkey(pubkey))) = (claim(&parsed), round) else {
            return self.reject_responder(ctx, Failure::Authentication);
        };
        let key = match answer {
            Answer::Key(key) => key,
            Answer::Untrusted(kind, why) => {
                return self.disbelieve(ctx, id, None, Failure::Untrusted(kind, why));
            }
            Answer::Failed(why) => {
                let failure = Failure::Untrusted(Distrust::Other, why);
                return self.disbelieve(ctx, id, None, failure);
            }
            Answer::Signed(_)
            | Answer::Exchanged(_)
            | Answer::Leased(..)
            | Answer::Eap(_)
            | Answer::Ends { .. } => {
                return self.reject_responder(ctx, Failure::Authentication);
            }
        };
        if let Some((known, used, evidence)) = known {
            if key.revocation_pending || key.spki != known.spki {
                let why = "revocation is not settled".to_owned();
                let failure = Failure::Untrusted(Distrust::RevocationUnknown, why);
                return self.disbelieve(ctx, id, None, failure);
            }
            return self.responder_proven(ctx, used, evidence, &payloads);
        }
        let (config, crypto) = (ctx.config, ctx.crypto);
        let data = (auth.method, auth.data);
        let verdict = self.with_twins(ctx, id, |octets| {
            signature::verify((config, crypto), &pubkey.ike, &key.spki, octets, data)
        });
        let Ok((evidence, scheme)) = verdict else {
            let blame = Blame::of(Some(&connection), "the signature does not verify");
            return self.disbelieve(ctx, id, Some(blame), Failure::Authentication);
        };
        let used = signed_by(id.to_owned(), auth.method, scheme, &key);
        if !key.revocation_pending {
            return self.responder_proven(ctx, used, evidence, &payloads);
        }
        let asked = Core::peer_credentials(&connection, index, id.to_owned(), &payloads);
        let Some(asked) = asked else {
            return self.reject_responder(ctx, Failure::Authentication);
        };
        let ticket = self.core.ask(ctx, Question::Revocation(asked));
        if let State::AwaitResponderVerdict(asked) = &mut self.state {
            asked.ticket = ticket;
            asked.judging.proven = Some((key, used, evidence));
        }
    }

    /// Verifies with each IKE_SA_INIT response that makes the keys of this SA.
    pub(crate) fn with_twins<T>(
        &mut self,
        ctx: &Context<'_>,
        id: Id<'_>,
        verify: impl Fn(&SignedOctets) -> Result<T, AuthFailure>,
    ) -> Result<T, AuthFailure> {
        loop {
            let transcript = self.state.transcript().ok_or(AuthFailure)?;
            match verify(&self.core.peer_octets(transcript, id)) {
                Ok(proof) => return Ok(proof),
                Err(AuthFailure) if self.take_twin(ctx) => {}
                Err(AuthFailure) => return Err(AuthFailure),
            }
        }
    }

    /// Replaces the IKE_SA_INIT response in use by another one with the same keys. False if there is none left.
    fn take_twin(&mut self, ctx: &Context<'_>) -> bool {
        let Some(waiting) = self.state.unproven() else { return false };
        let mut twins = std::mem::take(&mut self.core.twins).into_vec();
        let Some(Twin { response, extensions, nat }) = twins.pop() else { return false };
        self.core.twins = twins.into();
        waiting.transcript.response = response;
        self.core.extensions = extensions;
        self.core.channel.nat = nat;
        self.core.channel.path =
            floated(self.core.channel.path, nat, self.core.connection.mobike, ctx.config.natt_port);
        true
    }

    /// Handles that the peer is authenticated in one more round.
    pub(super) fn responder_proven(
        &mut self,
        ctx: &mut Context<'_>,
        used: UsedAuth,
        evidence: PeerAuthenticated,
        payloads: &[Payload<'_>],
    ) {
        self.core.twins = Box::default();
        self.core.genuine = true;
        let mut waiting = match self.take_state() {
            State::ExpectAuthResponse(waiting) => waiting,
            State::AwaitResponderVerdict(asked) => Box::new(asked.waiting),
            _ => return,
        };
        waiting.rounds.prove(used, evidence);
        self.state = State::ExpectAuthResponse(waiting);
        self.auth_round_done(ctx, payloads);
    }

    /// Handles a genuine response: begins the next round, or ends IKE_AUTH.
    pub(crate) fn auth_round_done(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        if let Some(kind) = Payloads(payloads).fatal_in_auth() {
            return self.close(ctx, Failure::Peer(kind));
        }
        if let Some(kind) = Payloads(payloads).unrecognized_error() {
            // The peer is authenticated, and its IKE SA may be up: the SA is deleted. Only the three errors above
            // end it without a Delete (RFC 7296 §2.21.2).
            let delete = Delete { protocol: ProtocolId::IKE, spis: Vec::new() };
            self.core.request(ctx, ExchangeType::INFORMATIONAL, &[Payload::Delete(delete)]);
            return self.close(ctx, Failure::Peer(kind));
        }
        if self.is_redirected_early(ctx, payloads) {
            return;
        }
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        if waiting.is_in_eap() {
            return self.responder_begins_eap(ctx, payloads);
        }
        if !waiting.rounds.are_complete(&self.core.connection) {
            return self.next_auth_request(ctx);
        }
        let State::ExpectAuthResponse(waiting) = self.take_state() else { return };
        let ExpectAuthResponse { transcript, child, queue, rounds, vips, told, .. } = *waiting;
        let Some(authenticated) = rounds.finish(&self.core.connection) else { return };
        let Some((established, core)) = self.establish(ctx, authenticated, queue) else { return };
        core.read_mobike(&Payloads(payloads), told);
        if let Some(to) = core.redirect_in(ctx, &Payloads(payloads)) {
            return established.leave_for(core, ctx, to, child);
        }
        core.take_token(payloads);
        established.take_configuration(core, ctx, &vips, payloads);
        established.take_auth_lifetime(core, ctx.now.mono, &Payloads(payloads));
        established.take_ticket(core, ctx, &Payloads(payloads), true);
        ctx.effects.push_back(Effect::Established { ike: core.id, initial_contact: false });
        if let Some(offer) = child {
            established.finish_offer(
                core,
                ctx,
                offer,
                payloads,
                (&transcript.ni, &transcript.nr),
                (&[], None),
            );
        }
        established.on_network_meanwhile(core, ctx);
    }

    /// As [`reject_responder`](Self::reject_responder), with a report to the log. Without a `blame` the failure
    /// has the reason.
    pub(super) fn disbelieve(
        &mut self,
        ctx: &mut Context<'_>,
        id: Id<'_>,
        blame: Option<Blame>,
        failure: Failure,
    ) {
        let blame = blame.unwrap_or_else(|| match &failure {
            Failure::Untrusted(kind, why) => {
                Blame::of(Some(&self.core.connection), why).distrusting(*kind)
            }
            other => Blame::of(Some(&self.core.connection), other),
        });
        let local = local_id(&self.core.connection, &self.core);
        self.core.blame(ctx, (Some(id.to_owned()), Some(local)), blame);
        self.reject_responder(ctx, failure);
    }

    pub(crate) fn reject_responder(&mut self, ctx: &mut Context<'_>, failure: Failure) {
        if matches!(failure, Failure::Peer(_)) {
            return self.close(ctx, failure);
        }
        let refusal = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        self.reject_response(ctx, &refusal, failure);
    }

    pub(crate) fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, closed_placeholder())
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

/// The offer's payloads, owned, so that the SA is not borrowed while it sends them.
struct OfferParts {
    sa: Sa,
    ts_i: Vec<TrafficSelector>,
    ts_r: Vec<TrafficSelector>,
    notifies: Vec<Payload<'static>>,
}

impl OfferParts {
    fn of(offer: &ChildOffer) -> Self {
        Self {
            sa: Sa { proposals: offer.proposals.clone() },
            ts_i: offer.local_ts.clone(),
            ts_r: offer.remote_ts.clone(),
            // In IKE_AUTH it is the first for its traffic, and has no identifier.
            notifies: mode::payload(offer.mode, &offer.config.processing)
                .into_iter()
                .chain(tfc::payload(offer.mode))
                .chain(offer.per_cpu.then(|| resource::payload(&[])))
                .collect(),
        }
    }

    fn payloads(self) -> Vec<Payload<'static>> {
        let rest = [Payload::Sa(self.sa), Payload::TsI(self.ts_i), Payload::TsR(self.ts_r)];
        self.notifies.into_iter().chain(rest).collect()
    }
}
