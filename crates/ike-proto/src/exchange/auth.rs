//! IKE_AUTH (RFC 7296 §1.2, §2.15), and childless as RFC 6023 has it.
//!
//! ```text
//!    Initiator                              Responder
//!    HDR, SK {IDi, [IDr,] AUTH,
//!      [SAi2, TSi, TSr]}  -->
//!                               <--  HDR, SK {IDr, AUTH, [SAr2, TSi, TSr]}
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use super::child_sa::ChildRequest;
use super::ppk::auth::AuthData;
use super::sa_init::{floated, refuses_short_transcript};
use super::{Payloads, Refusal, required};
use crate::config::proposal::{self, SelectOptions};
use crate::config::{Childless, ConnectionConfig, EndpointConfig, IdMatch, PreSharedKey, Unique};
use crate::crypto::Secret;
use crate::dataplane::Mode;
use crate::event::{Event, Failure, Path};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::{
    ChildOffer, Established, ExpectAuthResponse, IkePhase, InitTranscript, Reply, State,
};
use crate::ike_sa::{IkeSa, Twin, notify};
use crate::keys::signed_octets::{
    AuthFailure, PeerAuthenticated, SignedOctets, psk_auth, verify_psk,
};
use crate::wire::payload::{Auth, Id, IdData, Payload, Sa, Spi};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};

impl IkeSa {
    /// Initiator: sends the request. `initial_contact` if no other SA with this peer is known.
    pub(crate) fn send_auth_request(&mut self, ctx: &mut Context<'_>, initial_contact: bool) {
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let Some(psk) = own_psk(ctx.config, &waiting.local_id, &self.connection.remote_id) else {
            let text = format!("no pre-shared key for {}", waiting.local_id);
            return self.close(ctx, Failure::Config(text));
        };
        let local_id = waiting.local_id.clone();
        let child = waiting.child.as_ref().map(|offer| OfferParts::of(offer));
        let unmixed = self
            .may_go_without_ppk()
            .then(|| self.own_auth(&waiting.transcript, &waiting.local_id, &psk.secret));
        let ppk_id = match self.mix_ppk_in_auth(ctx.config) {
            Ok(ppk_id) => ppk_id,
            Err(failure) => return self.close(ctx, failure),
        };
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let auth = self.own_auth(&waiting.transcript, &waiting.local_id, &psk.secret);
        let mut payloads = vec![Payload::IdI(local_id.as_id())];
        if initial_contact {
            payloads.push(notify(NotifyType::INITIAL_CONTACT, &[]));
        }
        let remote_id = match &self.connection.remote_id {
            IdMatch::Exact(id) => Some(id.clone()),
            IdMatch::Any | IdMatch::Suffix(_) | IdMatch::DnPattern(_) => None,
        };
        if let Some(id) = &remote_id {
            payloads.push(Payload::IdR(id.as_id()));
        }
        payloads.push(Payload::Auth(Auth { method: AuthMethod::PSK, data: auth.expose() }));
        if let Some(child) = child {
            payloads.extend(child.payloads());
        }
        payloads.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        let unmixed = unmixed.as_ref().map(Secret::expose);
        payloads.extend(unmixed.map(|data| notify(NotifyType::NO_PPK_AUTH, data)));
        self.request(ctx, ExchangeType::IKE_AUTH, &payloads);
    }

    /// Responder: judges the request. Only an authenticated peer changes anything beyond this SA.
    pub(crate) fn on_auth_request(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        match self.authenticate_initiator(ctx.config, &Payloads(payloads)) {
            Ok(peer) => self.answer_auth(ctx, payloads, peer),
            Err(refusal) => self.refuse(ctx, refusal),
        }
    }

    fn authenticate_initiator(
        &mut self,
        config: &EndpointConfig,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Peer, Refusal> {
        let State::ExpectAuthRequest(waiting) = &self.state else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        let id_i = required(payloads.id_i()?)?;
        let id_r = payloads.id_r()?;
        let auth = payloads.auth()?;
        let remote_id = id_i.to_owned();
        let connection = waiting
            .connections
            .iter()
            .filter(|connection| matches_id(&connection.remote_id, &remote_id))
            .filter(|connection| id_r.is_none_or(|wanted| answers_to(connection, self, wanted)))
            .find(|connection| self.still_fits(connection))
            .cloned();
        let local_id = match (&connection, id_r) {
            (Some(connection), _) => local_id(connection, self),
            (None, Some(wanted)) => wanted.to_owned(),
            (None, None) => local_id(&self.connection, self),
        };
        // Without a connection or a key the check runs all the same, on a key nobody has: an unknown
        // identity and a wrong secret must take the same way (bug class 43).
        let psk = connection.as_ref().and_then(|_| peer_psk(config, &local_id, &remote_id));
        let nobody = Secret::copy_from(&[0x5a; 32]);
        let secret = psk.as_deref().map_or(&nobody, |psk| &psk.secret);
        let method = auth.map(|auth| auth.method);
        let data = auth.map_or(&[][..], |auth| auth.data);
        let taken = match &connection {
            Some(connection) => self.take_ppk_in_auth(config, connection, payloads),
            None => Ok(AuthData::Payload),
        };
        let data = match &taken {
            Ok(AuthData::NoPpkAuth(data)) => data,
            _ => data,
        };
        let State::ExpectAuthRequest(waiting) = &self.state else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        let verdict = self.verify_peer(&waiting.transcript, *id_i, secret, data);
        taken?;
        match (connection, psk, verdict) {
            (Some(connection), Some(psk), Ok(evidence)) if method == Some(AuthMethod::PSK) => {
                Ok(Peer { connection, local_id, remote_id, psk, _evidence: evidence })
            }
            _ => Err(NotifyType::AUTHENTICATION_FAILED.into()),
        }
    }

    /// True if what IKE_SA_INIT agreed on is among what `connection` wants.
    fn still_fits(&self, connection: &ConnectionConfig) -> bool {
        if refuses_short_transcript(connection, self.extensions) {
            return false;
        }
        let chosen = Sa { proposals: vec![self.session.selected.to_wire(Spi::None)] };
        let options =
            SelectOptions { intermediate: self.extensions.intermediate, ..Default::default() };
        proposal::select(&connection.proposals, &chosen, options).is_some()
    }

    /// Responder: the peer is authenticated; makes the child it asks for, and answers once that is
    /// installed.
    fn answer_auth(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>], peer: Peer) {
        let parsed = Payloads(payloads);
        if peer.connection.childless == Childless::Never && matches!(parsed.sa(), Ok(None)) {
            //= RFC 6023 §3
            //# It MUST NOT advertise the capability with a
            //# notification, and it SHOULD reply with an INVALID_SYNTAX Notify
            //# payload if the client sends an IKE_AUTH request that is modified as
            //# described in Section 5.
            return self.refuse(ctx, NotifyType::INVALID_SYNTAX.into());
        }
        self.connection = Arc::clone(&peer.connection);
        let State::ExpectAuthRequest(waiting) =
            std::mem::replace(&mut self.state, closed_placeholder())
        else {
            return;
        };
        let auth = self.own_auth(&waiting.transcript, &peer.local_id, &peer.psk.secret);
        let initial_contact = parsed.notify(NotifyType::INITIAL_CONTACT).is_some();
        let transcript = &waiting.transcript;
        self.establish(ctx, peer.local_id.clone(), peer.remote_id, VecDeque::new());
        let child = match parsed.sa() {
            Ok(None) => None,
            Ok(Some(_)) if self.connection.childless == Childless::Force => {
                Some(Err(Refusal::new(NotifyType::NO_ADDITIONAL_SAS)))
            }
            Ok(Some(_)) => {
                let request = ChildRequest { rekeys: None, with_ke: false };
                Some(self.answer_child(ctx, &parsed, &request, None))
            }
            Err(refusal) => return self.refuse(ctx, refusal),
        };
        let auth = auth.expose().to_vec();
        let ppk = self.took_ppk_in_auth().then(Vec::new);
        match child {
            None => {
                let mut reply = auth_payloads(&peer.local_id, &auth);
                reply.extend(ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
                self.respond(ctx, &reply);
            }
            // RFC 7296 §2.21.2: fatal in both peers, so there is no AUTH beside it.
            Some(Err(refusal)) if refusal.ends_sa() => return self.refuse(ctx, refusal),
            Some(Err(refusal)) => {
                let mut reply = auth_payloads(&peer.local_id, &auth);
                reply.extend(ppk.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
                reply.push(refusal.payload());
                self.respond(ctx, &reply);
                self.child_failed(ctx, "", refusal.into());
            }
            Some(Ok(answered)) => {
                let child = &answered.child;
                let reply = Reply {
                    auth: Some((peer.local_id, auth)),
                    proposal: Some(child.selected.to_wire(Spi::Esp(child.spi_in))),
                    ke: None,
                    nonce: None,
                    ts_i: child.remote_ts.clone(),
                    ts_r: child.local_ts.clone(),
                    transport: child.mode == Mode::Transport,
                    ppk,
                };
                let nonces = (&*transcript.ni, &*transcript.nr);
                match self.keyed(ctx, answered.child, &[], nonces, None) {
                    Ok(ready) => self.install_then_respond(ctx, ready, reply),
                    Err(refusal) => return self.refuse(ctx, refusal),
                }
            }
        }
        ctx.effects.push_back(Effect::Established { ike: self.id, initial_contact });
    }

    /// Initiator: judges the response. An error here ends this candidate, not the attempt.
    pub(crate) fn on_auth_response(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let parsed = Payloads(payloads);
        if parsed.auth().is_ok_and(|auth| auth.is_some())
            && let Err(failure) = self.settle_ppk(&parsed)
        {
            let refusal = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
            return self.reject_response(ctx, &refusal, failure);
        }
        let remote_id = loop {
            let State::ExpectAuthResponse(waiting) = &self.state else { return };
            match self.authenticate_responder(ctx.config, waiting, &parsed) {
                Ok(remote_id) => break remote_id,
                Err(Failure::Authentication) if self.take_twin(ctx) => {}
                Err(failure @ Failure::Peer(_)) => return self.close(ctx, failure),
                Err(failure) => {
                    let refusal = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
                    return self.reject_response(ctx, &refusal, failure);
                }
            }
        };
        if let Some(kind) = parsed.fatal_in_auth() {
            return self.close(ctx, Failure::Peer(kind));
        }
        self.twins = Vec::new();
        let State::ExpectAuthResponse(waiting) =
            std::mem::replace(&mut self.state, closed_placeholder())
        else {
            return;
        };
        let ExpectAuthResponse { transcript, child, local_id, queue, .. } = *waiting;
        self.establish(ctx, local_id, remote_id, queue);
        ctx.effects.push_back(Effect::Established { ike: self.id, initial_contact: false });
        if let Some(offer) = child {
            self.finish_offer(ctx, offer, payloads, (&transcript.ni, &transcript.nr), (&[], None));
        }
    }

    /// Puts another IKE_SA_INIT response with the same keys in the place of the one in use; false if
    /// there is none left.
    fn take_twin(&mut self, ctx: &Context<'_>) -> bool {
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return false };
        let Some(Twin { response, extensions, nat }) = self.twins.pop() else { return false };
        waiting.transcript.response = response;
        self.extensions = extensions;
        self.nat = nat;
        self.path = floated(self.path, nat, ctx.config.natt_port);
        true
    }

    fn authenticate_responder(
        &self,
        config: &EndpointConfig,
        waiting: &ExpectAuthResponse,
        payloads: &Payloads<'_, '_>,
    ) -> Result<IdData, Failure> {
        let (Some(id_r), Some(auth)) = (payloads.id_r()?, payloads.auth()?) else {
            // No AUTH: the exchange failed as a whole (RFC 7296 §2.21.2).
            let error = payloads.error().map(|notify| notify.kind);
            return Err(match error {
                Some(kind) => Failure::Peer(kind),
                None => Failure::Refused(NotifyType::INVALID_SYNTAX),
            });
        };
        let remote_id = id_r.to_owned();
        let psk = peer_psk(config, &waiting.local_id, &remote_id);
        if !matches_id(&self.connection.remote_id, &remote_id) || auth.method != AuthMethod::PSK {
            return Err(Failure::Authentication);
        }
        let psk = psk.ok_or(Failure::Authentication)?;
        self.verify_peer(&waiting.transcript, *id_r, &psk.secret, auth.data)
            .map(|_: PeerAuthenticated| remote_id)
            .map_err(|AuthFailure| Failure::Authentication)
    }

    fn own_auth(&self, transcript: &InitTranscript, id: &IdData, psk: &Secret) -> Secret {
        let (nonce, key) = if self.initiator {
            (&transcript.nr, &self.session.keys.pi)
        } else {
            (&transcript.ni, &self.session.keys.pr)
        };
        let message = transcript.covered(self.initiator, self.extensions.full_transcript);
        let prf = self.session.prf;
        let int_auth = transcript.int_auth.finish();
        let octets = SignedOctets::new(prf, key, message, nonce, id.as_id(), int_auth.as_deref());
        psk_auth(prf, psk, &octets)
    }

    fn verify_peer(
        &self,
        transcript: &InitTranscript,
        id: Id<'_>,
        psk: &Secret,
        received: &[u8],
    ) -> Result<PeerAuthenticated, AuthFailure> {
        let (nonce, key) = if self.initiator {
            (&transcript.ni, &self.session.keys.pr)
        } else {
            (&transcript.nr, &self.session.keys.pi)
        };
        let message = transcript.covered(!self.initiator, self.extensions.full_transcript);
        let prf = self.session.prf;
        let int_auth = transcript.int_auth.finish();
        let octets = SignedOctets::new(prf, key, message, nonce, id, int_auth.as_deref());
        verify_psk(prf, psk, &octets, received)
    }

    /// Both ends are authenticated.
    fn establish(
        &mut self,
        ctx: &mut Context<'_>,
        local_id: IdData,
        remote_id: IdData,
        queue: VecDeque<crate::ike_sa::state::Task>,
    ) {
        self.state = State::Established(Box::new(Established {
            local_id,
            remote_id,
            since: ctx.now.mono,
            children: Vec::new(),
            ours: None,
            responding: None,
            queue,
            installing: Vec::new(),
            phase: IkePhase::Alive,
            delayed: Vec::new(),
            lingering: Vec::new(),
            queries: Vec::new(),
            theirs: Vec::new(),
        }));
        self.arm_lifetimes(ctx);
        ctx.event(Event::IkeUp(self.id));
        self.audit_ppk(ctx);
    }
}

/// An authenticated initiator.
struct Peer {
    connection: Arc<ConnectionConfig>,
    local_id: IdData,
    remote_id: IdData,
    psk: Arc<PreSharedKey>,
    _evidence: PeerAuthenticated,
}

/// The offer's payloads, owned, so that the SA is free to send them.
struct OfferParts {
    sa: Sa,
    ts_i: Vec<crate::dataplane::TrafficSelector>,
    ts_r: Vec<crate::dataplane::TrafficSelector>,
    transport: bool,
}

impl OfferParts {
    fn of(offer: &ChildOffer) -> Self {
        Self {
            sa: Sa { proposals: offer.proposals.clone() },
            ts_i: offer.local_ts.clone(),
            ts_r: offer.remote_ts.clone(),
            transport: offer.mode == Mode::Transport,
        }
    }

    fn payloads(self) -> Vec<Payload<'static>> {
        let transport = self.transport.then(|| notify(NotifyType::USE_TRANSPORT_MODE, &[]));
        let rest = [Payload::Sa(self.sa), Payload::TsI(self.ts_i), Payload::TsR(self.ts_r)];
        transport.into_iter().chain(rest).collect()
    }
}

pub(crate) fn auth_payloads<'a>(id: &'a IdData, auth: &'a [u8]) -> Vec<Payload<'a>> {
    vec![Payload::IdR(id.as_id()), Payload::Auth(Auth { method: AuthMethod::PSK, data: auth })]
}

/// This end's identity: the configured one, else its address.
pub(crate) fn local_id_at(connection: &ConnectionConfig, path: Path) -> IdData {
    connection.local_id.clone().unwrap_or_else(|| IdData::ip(path.local.ip().to_canonical()))
}

fn local_id(connection: &ConnectionConfig, sa: &IkeSa) -> IdData {
    local_id_at(connection, sa.path)
}

fn answers_to(connection: &ConnectionConfig, sa: &IkeSa, wanted: &Id<'_>) -> bool {
    local_id(connection, sa).matches(*wanted)
}

/// True if `id` is one the peer may assert.
pub(crate) fn matches_id(wanted: &IdMatch, id: &IdData) -> bool {
    match wanted {
        IdMatch::Any => true,
        IdMatch::Exact(exact) => exact.matches(id.as_id()),
        IdMatch::DnPattern(pattern) => pattern.covers(id.as_id()),
        IdMatch::Suffix(pattern) => {
            let suffix = pattern.data.strip_prefix(b"*").unwrap_or(&pattern.data);
            pattern.kind == id.kind
                && id.data.len() > suffix.len()
                && id.data[id.data.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
        }
    }
}

/// The key to sign with before the peer's identity is proven.
fn own_psk(config: &EndpointConfig, local: &IdData, remote: &IdMatch) -> Option<Arc<PreSharedKey>> {
    match remote {
        IdMatch::Exact(remote) => peer_psk(config, local, remote),
        IdMatch::Any | IdMatch::Suffix(_) | IdMatch::DnPattern(_) => {
            best(config, |psk| match psk.ids.iter().find(|id| !id.matches(local.as_id())) {
                None => Some(u8::from(!psk.ids.is_empty())),
                Some(other) => matches_id(remote, other).then_some(2),
            })
        }
    }
}

/// The key shared with exactly this peer. A key that names identities besides this end's is good
/// for those alone (bug class 31).
fn peer_psk(config: &EndpointConfig, local: &IdData, remote: &IdData) -> Option<Arc<PreSharedKey>> {
    best(config, |psk| {
        let mine = psk.ids.iter().any(|id| id.matches(local.as_id()));
        // This end's own identity, asserted by the peer, is none of those.
        let is_remote = |id: &IdData| id.matches(remote.as_id()) && !id.matches(local.as_id());
        if psk.ids.iter().any(is_remote) {
            return Some(2 + u8::from(mine));
        }
        psk.ids.iter().all(|id| id.matches(local.as_id())).then_some(u8::from(mine))
    })
}

fn best(
    config: &EndpointConfig,
    score: impl Fn(&PreSharedKey) -> Option<u8>,
) -> Option<Arc<PreSharedKey>> {
    // The first of equals wins, hence the reversal.
    config
        .secrets
        .iter()
        .rev()
        .filter_map(|psk| Some((score(psk)?, psk)))
        .max_by_key(|(score, _)| *score)
        .map(|(_, psk)| Arc::clone(psk))
}

/// True if INITIAL_CONTACT is to be sent by `connection`.
pub(crate) fn sends_initial_contact(connection: &ConnectionConfig) -> bool {
    connection.unique != Unique::Never
}

/// Stands in while a state is taken apart; never seen from outside.
fn closed_placeholder() -> State {
    State::Closed(Failure::NotFound)
}
