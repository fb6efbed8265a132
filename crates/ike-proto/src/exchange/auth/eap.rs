//! EAP in IKE_AUTH (RFC 7296 §2.16), alone (RFC 5998) or in the last round of several (RFC 4739).
//!
//! ```text
//!    HDR, SK {IDi, [IDr,] [N(EAP_ONLY_AUTHENTICATION),] SAi2, TSi, TSr}  -->
//!                               <--  HDR, SK {IDr, [CERT,] [AUTH,] EAP}
//!    HDR, SK {EAP}  -->
//!                               <--  HDR, SK {EAP (success)}
//!    HDR, SK {AUTH}  -->
//!                               <--  HDR, SK {AUTH, SAr2, TSi, TSr}
//! ```
//!
//! The last two AUTH payloads are keyed by what EAP made. The packets are for whoever answers
//! [`Question::Eap`]; here is what IKE asks of them: an initiator hears none before the responder has proven
//! itself, unless both ends have agreed that EAP is to do that; who has succeeded in EAP has proven nothing
//! until its AUTH has.

use std::sync::Arc;

use super::blame::Blame;
use super::rounds::{AuthReply, OwnAuth, used};
use super::{closed_placeholder, local_id, matches_id, round_id, too_much};
use crate::config::{AuthConfig, ConnectionConfig};
use crate::crypto::{Prf, Secret};
use crate::event::{Failure, Ticket, UsedAuth, UsedEap};
use crate::exchange::ppk::auth::AuthData;
use crate::exchange::ppk::{PpkStage, wire_id};
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthRequest, ExpectAuthResponse, State};
use crate::ike_sa::{IkeSa, notify};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::{AuthFailure, auth_by, padded, verify_by};
use crate::question::{Answer, EapAnswer, EapMessage, EapState, EapSuccess, Question};
use crate::wire::payload::id::MAX_ID_LEN;
use crate::wire::payload::{Auth, Id, IdData, Payload};
use crate::wire::registry::{AuthMethod, ExchangeType, IdType, NotifyType};

/// What stands for the method of an AUTH payload that is not there. It is reserved on the wire.
pub(crate) const NO_AUTH: AuthMethod = AuthMethod(0);

/// EAP packets of the other end in one conversation; any method needs less.
const MAX_PACKETS: u32 = 150;

/// A round by EAP, as far as it has come.
pub(crate) struct EapRound {
    /// The other end's identity as its AUTH covers it: IDi on a responder, IDr on an initiator.
    id: IdData,
    reserved: [u8; 3],
    /// Nothing else authenticates the responder.
    pub(super) alone: bool,
    pub(super) stage: EapStage,
    state: EapState,
    packets: u32,
    /// Octets of memory that it has on a responder.
    held: usize,
}

/// How far it is.
pub(super) enum EapStage {
    /// No EAP packet was exchanged yet. On a responder, the first may be ready.
    Begun(Option<Vec<u8>>),
    /// The other end's next packet is due.
    Talking,
    /// EAP has succeeded; the other end's AUTH is due.
    Through(Option<Secret>, UsedAuth),
}

/// A packet is being looked at.
pub(crate) struct AwaitEap<W> {
    pub(crate) ticket: Ticket,
    pub(crate) waiting: W,
    /// The packet was EAP-Failure: the other end has given up.
    failure: bool,
}

impl EapRound {
    fn new(id: Option<Id<'_>>, alone: bool) -> Self {
        let id = id.unwrap_or(Id { kind: IdType::NULL, reserved: [0; 3], data: &[] });
        Self {
            id: id.to_owned(),
            reserved: id.reserved,
            alone,
            stage: EapStage::Begun(None),
            state: EapState::default(),
            packets: 0,
            held: 0,
        }
    }

    fn id(&self) -> Id<'_> {
        Id { reserved: self.reserved, ..self.id.as_id() }
    }
}

/// True if a round of `connection` by EAP, of this `index`, is one that can be done: it is the last of both
/// ends.
fn is_last(connection: &ConnectionConfig, initiator: bool, index: usize) -> bool {
    let (local, remote) = (connection.local.len(), connection.remote.len());
    let (eap, other) = if initiator { (local, remote) } else { (remote, local) };
    eap == index + 1 && other <= index + 1
}

/// True if the responder's `rounds` have a signature, which must authenticate it where it does no EAP itself.
//= RFC 7296 §2.16
//# For this reason, these protocols are typically used to authenticate
//# the initiator to the responder and MUST be used in conjunction with a
//# public-key-signature-based authentication of the responder to the
//# initiator.
fn signs<'a>(mut rounds: impl Iterator<Item = &'a AuthConfig>) -> bool {
    rounds.any(|auth| matches!(auth, AuthConfig::Pubkey(_)))
}

const UNSIGNED: &str =
    "EAP needs a gateway that authenticates by public key, or EAP alone at both ends";

/// What an AUTH of an end that has done EAP is keyed by: the MSK, else its own SK_p.
//= RFC 7296 §2.16
//# For EAP methods that create a shared key as a side effect of
//# authentication, that shared key MUST be used by both the initiator
//# and responder to generate AUTH payloads in messages 7 and 8 using the
//# syntax for shared secrets specified in Section 2.15.
fn key(prf: &dyn Prf, msk: Option<&Secret>, sk_p: &Secret) -> Secret {
    padded(prf, msk.unwrap_or(sk_p))
}

impl IkeSa {
    // ---- both ends ----

    fn ask_eap(
        &mut self,
        ctx: &mut Context<'_>,
        round: &str,
        local_id: IdData,
        eap: &mut EapRound,
        packet: Option<Vec<u8>>,
    ) -> Ticket {
        let path = if self.initiator { self.path } else { self.answer_to() };
        let message = EapMessage {
            connection: self.connection.name.clone(),
            round: round.to_owned(),
            initiator: self.initiator,
            alone: eap.alone,
            local_id,
            remote_id: eap.id.clone(),
            path,
            packet,
            state: std::mem::take(&mut eap.state),
        };
        self.ask(ctx, Question::Eap(Box::new(message)))
    }

    // ---- initiator ----

    /// Begins this end's round by EAP: no AUTH, which asks for it (RFC 7296 §2.16).
    pub(super) fn begin_eap_round(&mut self, ctx: &mut Context<'_>, index: usize, id: IdData) {
        let connection = Arc::clone(&self.connection);
        if !is_last(&connection, true, index) {
            let why = "EAP must be in the last round".to_owned();
            return self.close(ctx, Failure::Config(why));
        }
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let remote = connection.remote.get(waiting.rounds.proven());
        let alone = remote.is_some_and(|round| round.auth == AuthConfig::Eap);
        if !alone && !signs(connection.remote.iter().map(|round| &round.auth)) {
            return self.close(ctx, Failure::Config(UNSIGNED.to_owned()));
        }
        waiting.eap = Some(Box::new(EapRound::new(None, alone)));
        let own = OwnAuth::without(id);
        self.send_auth_request(ctx, Some(own));
    }

    /// The response to a request in a round by EAP. False if it is to be judged as any other: it is the first,
    /// and has the responder's AUTH, or has nothing to prove any more.
    pub(super) fn on_eap_auth_response(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> bool {
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return false };
        let Some(eap) = &mut waiting.eap else { return false };
        let parsed = Payloads(payloads);
        match &eap.stage {
            EapStage::Begun(_) if !eap.alone => return false,
            EapStage::Begun(_) => {
                let round = self.connection.remote.get(waiting.rounds.proven());
                let (id, auth) = match (parsed.id_r(), parsed.auth()) {
                    (Ok(Some(id)), Ok(auth)) => (*id, auth),
                    (Ok(None), _) if parsed.error().is_some() => {
                        self.eap_refused(ctx, &parsed);
                        return true;
                    }
                    _ => {
                        self.reject_responder(ctx, Failure::Authentication);
                        return true;
                    }
                };
                let known = round.is_some_and(|round| matches_id(&round.id, &id.to_owned()));
                let why = match (known, auth) {
                    (true, None) => None,
                    (false, _) => Some("the responder has another identity than `id`"),
                    //= RFC 5998 §3
                    //# If the responder supports this notification and chooses to use it, it
                    //# omits the public-key-based AUTH payload and CERT payloads from
                    //# message 4.
                    (_, Some(_)) => Some("the responder does not do with EAP alone"),
                };
                if let Some(why) = why {
                    let blame = Blame::of(Some(&self.connection), why);
                    self.disbelieve(ctx, id, Some(blame), Failure::Authentication);
                    return true;
                }
                (eap.id, eap.reserved) = (id.to_owned(), id.reserved);
                self.hear_authenticator(ctx, payloads);
            }
            EapStage::Talking => self.hear_authenticator(ctx, payloads),
            EapStage::Through(..) => self.on_responder_confirms(ctx, payloads),
        }
        true
    }

    /// The responder has proven itself, and the first EAP packet is in the same message.
    pub(super) fn responder_begins_eap(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let last = waiting.rounds.last_remote_id().cloned();
        let Some(eap) = &mut waiting.eap else { return };
        match (Payloads(payloads).id_r(), last) {
            (Ok(Some(id)), _) => (eap.id, eap.reserved) = (id.to_owned(), id.reserved),
            (_, Some(id)) => eap.id = id,
            _ => return self.reject_responder(ctx, Failure::Authentication),
        }
        self.hear_authenticator(ctx, payloads);
    }

    /// There is an EAP packet, or it is over.
    fn hear_authenticator(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let parsed = Payloads(payloads);
        let Ok(Some(packet)) = parsed.eap() else { return self.eap_refused(ctx, &parsed) };
        let packet = packet.to_vec();
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let index = waiting.rounds.local.len();
        let local_id = match index {
            0 => waiting.local_id.clone(),
            _ => match self.connection.local.get(index) {
                Some(round) => round_id(&self.connection, round, self.path),
                None => return,
            },
        };
        let Some(mut eap) = waiting.eap.take() else { return };
        eap.packets += 1;
        if eap.packets > MAX_PACKETS {
            let failure = Failure::Policy("too many EAP packets");
            return self.reject_responder(ctx, failure);
        }
        eap.stage = EapStage::Talking;
        let failure = packet.first() == Some(&4);
        let name = self.connection.local.get(index).map(|round| round.name.clone());
        let name = name.unwrap_or_default();
        let ticket = self.ask_eap(ctx, &name, local_id, &mut eap, Some(packet));
        let state = std::mem::replace(&mut self.state, closed_placeholder());
        if let State::ExpectAuthResponse(mut waiting) = state {
            waiting.eap = Some(eap);
            let asked = AwaitEap { ticket, waiting: *waiting, failure };
            self.state = State::AwaitAuthenticatorPacket(Box::new(asked));
        }
    }

    /// No EAP where there must be: what the responder says is wrong, or it breaks the protocol.
    fn eap_refused(&mut self, ctx: &mut Context<'_>, parsed: &Payloads<'_, '_>) {
        let failure = match parsed.error() {
            Some(error) => Failure::Peer(error.kind),
            None => Failure::Refused(NotifyType::INVALID_SYNTAX),
        };
        self.reject_responder(ctx, failure);
    }

    pub(super) fn on_authenticator_packet(&mut self, ctx: &mut Context<'_>, answer: Answer) {
        let State::AwaitAuthenticatorPacket(asked) = self.take_state() else { return };
        let AwaitEap { mut waiting, failure, .. } = *asked;
        let Some(eap) = &mut waiting.eap else { return };
        let alone = eap.alone;
        let (id, outcome) = (eap.id.clone(), outcome(answer, alone));
        match outcome {
            Ok(EapAnswer::Send(packet, state)) => {
                eap.state = state;
                self.state = State::ExpectAuthResponse(Box::new(waiting));
                self.request(ctx, ExchangeType::IKE_AUTH, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(success)) => {
                self.state = State::ExpectAuthResponse(Box::new(waiting));
                self.confirm_as_initiator(ctx, success);
            }
            Ok(EapAnswer::Failure { why, .. }) | Err(why) => {
                self.state = State::ExpectAuthResponse(Box::new(waiting));
                let blame = Blame::of(Some(&self.connection), format_args!("EAP: {why}"));
                let local = local_id(&self.connection, self);
                self.blame(ctx, (Some(id), Some(local)), blame);
                let why = Failure::Credentials(format!("EAP: {why}"));
                if failure {
                    // The responder is through with this end already.
                    return self.close(ctx, why);
                }
                self.reject_responder(ctx, why);
            }
        }
    }

    /// EAP has succeeded: AUTH, keyed by what it made.
    fn confirm_as_initiator(&mut self, ctx: &mut Context<'_>, success: EapSuccess) {
        let connection = Arc::clone(&self.connection);
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let index = waiting.rounds.local.len();
        let Some(round) = connection.local.get(index) else { return };
        let first = index == 0;
        let id =
            if first { waiting.local_id.clone() } else { round_id(&connection, round, self.path) };
        let prf = self.session.prf;
        let EapSuccess { msk, method, .. } = success;
        //= RFC 8784 §3
        //# The general rule for using a PPK in the IKE_AUTH exchange, which
        //# covers the EAP authentication case too, is that the initiator
        //# includes a PPK_IDENTITY (and optionally a NO_PPK_AUTH) notification
        //# in the request message containing the AUTH payload.
        let unmixed = (first && self.may_go_without_ppk()).then(|| {
            let covered = self.own_covered(&waiting.transcript, &id);
            auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets)
        });
        if first && let Err(failure) = self.mix_ppk_in_auth(ctx.config) {
            return self.close(ctx, failure);
        }
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let eap = Some(Box::new(UsedEap { method, id: None }));
        let own = UsedAuth { eap, ..used(id, AuthMethod::PSK) };
        waiting.rounds.local.push(own.clone());
        if let Some(eap) = &mut waiting.eap {
            eap.stage = EapStage::Through(msk.as_ref().map(Secret::duplicate), own.clone());
        }
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let covered = self.own_covered(&waiting.transcript, &own.id);
        let data = auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets);
        let ppk_id = match &self.ppk {
            PpkStage::Offered(id, _) if first => Some(wire_id(id)),
            _ => None,
        };
        let auth = Auth { method: AuthMethod::PSK, data: data.expose() };
        let mut payloads = vec![Payload::Auth(auth)];
        payloads.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads.extend(unmixed.iter().map(|data| notify(NotifyType::NO_PPK_AUTH, data.expose())));
        self.request(ctx, ExchangeType::IKE_AUTH, &payloads);
    }

    /// The responder shows that it has the key of EAP, too.
    fn on_responder_confirms(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let parsed = Payloads(payloads);
        let auth = match parsed.auth() {
            Ok(Some(auth)) => auth,
            _ => return self.eap_refused(ctx, &parsed),
        };
        if matches!(self.ppk, PpkStage::Offered(..))
            && let Err(failure) = self.settle_ppk(&parsed)
        {
            return self.reject_responder(ctx, failure);
        }
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let Some(eap) = waiting.eap.take() else { return };
        let EapStage::Through(msk, own) = &eap.stage else { return };
        let prf = self.session.prf;
        let key = key(prf, msk.as_ref(), &self.session.keys.pr);
        let right = auth.method == AuthMethod::PSK
            && parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_none();
        let verdict = match right {
            true => {
                self.with_twins(ctx, eap.id(), |octets| verify_by(prf, &key, octets, auth.data))
            }
            false => Err(AuthFailure),
        };
        let Ok(evidence) = verdict else {
            let why = "AUTH does not verify by the key of EAP";
            let blame = Blame::of(Some(&self.connection), why);
            return self.disbelieve(ctx, eap.id(), Some(blame), Failure::Authentication);
        };
        if eap.alone {
            let used = UsedAuth { eap: own.eap.clone(), ..used(eap.id.clone(), AuthMethod::PSK) };
            return self.responder_proven(ctx, used, evidence, payloads);
        }
        self.auth_round_done(ctx, payloads);
    }

    // ---- responder ----

    /// The initiator wants to be authenticated by EAP, and `connection` does that.
    pub(super) fn begin_eap(
        &mut self,
        ctx: &mut Context<'_>,
        connection: &Arc<ConnectionConfig>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let failed = || Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let parsed = Payloads(payloads);
        let Ok(Some(id)) = parsed.id_i() else { return self.refuse(ctx, failed()) };
        let State::ExpectAuthRequest(waiting) = &self.state else { return };
        let (index, fresh) = (waiting.rounds.proven(), waiting.first.is_none());
        if fresh && !self.hold(ctx, opened) {
            return self.refuse_because(ctx, &failed(), too_much());
        }
        self.connection = Arc::clone(connection);
        let State::ExpectAuthRequest(waiting) = &mut self.state else { return };
        waiting.connections = Arc::from([Arc::clone(connection)]);
        if fresh {
            waiting.announced.read(&parsed);
            waiting.first = Some(opened.clone());
        }
        let own = connection.local.get(waiting.rounds.local.len());
        let alone = own.is_some_and(|round| round.auth == AuthConfig::Eap);
        let announced = parsed.notify(NotifyType::EAP_ONLY_AUTHENTICATION).is_some();
        let why = match () {
            () if alone && !announced => Some("the peer does not announce EAP_ONLY_AUTHENTICATION"),
            () if !is_last(connection, false, index) => Some("EAP must be in the last round"),
            () if !alone && !signs(connection.local.iter().map(|round| &round.auth)) => {
                Some(UNSIGNED)
            }
            () => None,
        };
        if let Some(why) = why {
            let blame = Blame::of(Some(connection), why);
            let ids = (Some(id.to_owned()), None);
            return self.refuse_peer(ctx, ids, blame);
        }
        waiting.eap = Some(Box::new(EapRound::new(Some(*id), alone)));
        self.ask_about_initiator(ctx, None);
    }

    /// A request in a round by EAP that has begun. False if there is none.
    pub(super) fn on_eap_auth_request(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> bool {
        let State::ExpectAuthRequest(waiting) = &mut self.state else { return false };
        let Some(eap) = &mut waiting.eap else { return false };
        let parsed = Payloads(payloads);
        match (&eap.stage, parsed.eap(), parsed.auth()) {
            (EapStage::Talking, Ok(Some(packet)), Ok(None)) => {
                eap.packets += 1;
                if eap.packets > MAX_PACKETS {
                    let why = Failure::Policy("too many EAP packets");
                    let refusal = NotifyType::AUTHENTICATION_FAILED.into();
                    self.refuse_because(ctx, &refusal, why);
                    return true;
                }
                self.ask_about_initiator(ctx, Some(packet.to_vec()));
            }
            (EapStage::Through(..), Ok(None), Ok(Some(auth))) => {
                self.on_initiator_confirms(ctx, &parsed, auth);
            }
            _ => match parsed.fatal_in_auth() {
                Some(kind) => {
                    self.respond(ctx, &[]);
                    self.close(ctx, Failure::Peer(kind));
                }
                None => self.refuse(ctx, NotifyType::INVALID_SYNTAX.into()),
            },
        }
        true
    }

    fn ask_about_initiator(&mut self, ctx: &mut Context<'_>, packet: Option<Vec<u8>>) {
        let State::ExpectAuthRequest(mut waiting) = self.take_state() else { return };
        let Some(mut eap) = waiting.eap.take() else { return };
        let index = waiting.rounds.proven();
        let name = self.connection.remote.get(index).map(|round| round.name.clone());
        let local = local_id(&self.connection, self);
        let name = name.unwrap_or_default();
        let ticket = self.ask_eap(ctx, &name, local, &mut eap, packet);
        waiting.eap = Some(eap);
        let asked = AwaitEap { ticket, waiting: *waiting, failure: false };
        self.state = State::AwaitPeerPacket(Box::new(asked));
    }

    pub(super) fn on_peer_packet(&mut self, ctx: &mut Context<'_>, answer: Answer) {
        let State::AwaitPeerPacket(asked) = self.take_state() else { return };
        let AwaitEap { mut waiting, .. } = *asked;
        let Some(eap) = &mut waiting.eap else { return };
        let outcome = outcome(answer, eap.alone);
        let begun = matches!(eap.stage, EapStage::Begun(_));
        let id = eap.id.clone();
        match outcome {
            Ok(EapAnswer::Send(packet, state)) => {
                let more = state.octets().saturating_sub(eap.held);
                if !self.hold_octets(ctx, more) {
                    self.state = State::ExpectAuthRequest(Box::new(waiting));
                    let refusal = NotifyType::AUTHENTICATION_FAILED.into();
                    return self.refuse_because(ctx, &refusal, too_much());
                }
                eap.held += more;
                eap.state = state;
                if begun {
                    // With it goes this end's own AUTH.
                    eap.stage = EapStage::Begun(Some(packet));
                    self.state = State::ExpectAuthRequest(Box::new(waiting));
                    return self.next_auth_response(ctx);
                }
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.respond(ctx, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(EapSuccess { packet: Some(packet), msk, method, identity }))
                if !begun =>
            {
                let known = identity.filter(|id| !id.is_empty() && id.len() <= MAX_ID_LEN);
                // IDi is the peer's own choice: it is not fallen back to.
                let proven = Some(known.map_or_else(super::null_id, IdData::eap));
                let shown = Some(Box::new(UsedEap { method, id: proven }));
                let used = UsedAuth { eap: shown, ..used(id, AuthMethod::PSK) };
                eap.stage = EapStage::Through(msk, used);
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.respond(ctx, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(_)) => {
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                let why = "EAP: success out of place".to_owned();
                self.eap_failed(ctx, id, None, why);
            }
            Ok(EapAnswer::Failure { packet, why }) => {
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.eap_failed(ctx, id, packet, why);
            }
            Err(why) => {
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.eap_failed(ctx, id, None, why);
            }
        }
    }

    /// Tells the peer, and ends the SA.
    fn eap_failed(
        &mut self,
        ctx: &mut Context<'_>,
        id: IdData,
        packet: Option<Vec<u8>>,
        why: String,
    ) {
        let blame = Blame::of(Some(&self.connection), format_args!("EAP: {why}"));
        self.blame(ctx, (Some(id), None), blame);
        // The packet is for EAP, the notify for IKE (RFC 7296 §2.21.2).
        let failed = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let mut payloads: Vec<Payload<'_>> =
            packet.iter().map(|packet| Payload::Eap(packet)).collect();
        payloads.push(failed.payload());
        self.respond(ctx, &payloads);
        self.close(ctx, Failure::Authentication);
    }

    /// The initiator shows that it has the key of EAP.
    fn on_initiator_confirms(
        &mut self,
        ctx: &mut Context<'_>,
        parsed: &Payloads<'_, '_>,
        auth: &Auth<'_>,
    ) {
        let connection = Arc::clone(&self.connection);
        let State::ExpectAuthRequest(waiting) = &mut self.state else { return };
        let index = waiting.rounds.proven();
        let Some(eap) = waiting.eap.take() else { return };
        let EapStage::Through(msk, used_eap) = &eap.stage else { return };
        let ids = || (Some(eap.id.clone()), None);
        let taken = match index {
            0 => self.take_ppk_in_auth(ctx.config, &connection, parsed),
            _ => Ok(AuthData::Payload),
        };
        let data = match taken {
            Ok(AuthData::Payload) => auth.data,
            Ok(AuthData::NoPpkAuth(data)) => data,
            Err(why) => return self.refuse_peer(ctx, ids(), Blame::of(Some(&connection), why)),
        };
        let prf = self.session.prf;
        let State::ExpectAuthRequest(waiting) = &self.state else { return };
        let octets = self.peer_octets(&waiting.transcript, eap.id());
        let verdict = verify_by(prf, &key(prf, msk.as_ref(), &self.session.keys.pi), &octets, data);
        let right = auth.method == AuthMethod::PSK
            && parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_none();
        let Some(evidence) = verdict.ok().filter(|_| right) else {
            let why = "AUTH does not verify by the key of EAP";
            return self.refuse_peer(ctx, ids(), Blame::of(Some(&connection), why));
        };
        // This end's AUTH once more, or for the first time.
        let last = waiting.rounds.local.last().map(|own| own.id.clone());
        let id = last.unwrap_or_else(|| local_id(&connection, self));
        let covered = self.own_covered(&waiting.transcript, &id);
        let data = auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets);
        let mut own = OwnAuth::without(id);
        let method = used_eap.eap.as_ref().map(|eap| eap.method.clone()).unwrap_or_default();
        let shown = Some(Box::new(UsedEap { method, id: None }));
        own.used = UsedAuth { eap: shown, ..used(own.used.id, AuthMethod::PSK) };
        (own.data, own.named) = (data, true);
        let ppk = (index == 0 && self.took_ppk_in_auth()).then(Vec::new);
        let State::ExpectAuthRequest(waiting) = &mut self.state else { return };
        waiting.rounds.prove(used_eap.clone(), evidence);
        if eap.alone {
            waiting.rounds.local.push(own.used.clone());
        }
        if !waiting.rounds.are_complete(&connection) {
            return self.refuse(ctx, NotifyType::AUTHENTICATION_FAILED.into());
        }
        let reply = AuthReply { own: Some(own), config: None, notifies: Vec::new() };
        self.configure_peer(ctx, reply, ppk);
    }
}

/// What to do by an answer; an error is one of this end.
fn outcome(answer: Answer, alone: bool) -> Result<EapAnswer, String> {
    match answer {
        //= RFC 5998 §3
        //# Both the initiator and responder MUST verify that the EAP method
        //# actually used provided mutual authentication and established a shared
        //# secret key.
        Answer::Eap(answer) => match *answer {
            EapAnswer::Success(EapSuccess { msk: None, .. }) if alone => {
                Err("the method makes no key, and EAP is all there is".to_owned())
            }
            EapAnswer::Success(EapSuccess { msk: Some(msk), .. }) if msk.is_empty() => {
                Err("an empty key".to_owned())
            }
            answer => Ok(answer),
        },
        Answer::Failed(why) => Err(why),
        _ => Err("an answer to another question".to_owned()),
    }
}

impl ExpectAuthRequest {
    /// The first EAP packet, which goes with this end's first AUTH.
    pub(super) fn take_first_packet(&mut self) -> Option<Vec<u8>> {
        let eap = self.eap.as_mut()?;
        let EapStage::Begun(packet) = &mut eap.stage else { return None };
        let packet = packet.take()?;
        eap.stage = EapStage::Talking;
        Some(packet)
    }
}

impl ExpectAuthResponse {
    /// True if a round by EAP has begun, and not ended.
    pub(crate) fn is_in_eap(&self) -> bool {
        self.eap.is_some()
    }
}
