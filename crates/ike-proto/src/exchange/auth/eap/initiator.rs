//! EAP at the initiator, which EAP authenticates: EAP's peer.

use std::sync::Arc;

use super::super::blame::Blame;
use super::super::rounds::{OwnAuth, used};
use super::super::{closed_placeholder, local_id, matches_id, round_id};
use super::{AwaitEap, EapRound, EapStage, MAX_PACKETS, UNSIGNED, is_last, key, outcome, signs};
use crate::config::AuthConfig;
use crate::crypto::Secret;
use crate::event::{Failure, UsedAuth, UsedEap};
use crate::exchange::Payloads;
use crate::exchange::ppk::{PpkStage, wire_id};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthResponse, State};
use crate::ike_sa::{IkeSa, notify};
use crate::keys::signed_octets::{AuthFailure, auth_by, verify_by};
use crate::question::{Answer, EapAnswer, EapSuccess};
use crate::wire::payload::{Auth, IdData, Payload};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};

impl IkeSa {
    /// Begins this end's round by EAP. A request without AUTH asks for EAP (RFC 7296 §2.16).
    pub(in crate::exchange::auth) fn begin_eap_round(
        &mut self,
        ctx: &mut Context<'_>,
        index: usize,
        id: IdData,
    ) {
        let connection = Arc::clone(&self.core.connection);
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

    /// Handles the response to a request in a round by EAP. False if it is to be judged as any other response: it
    /// is the first one and has the responder's AUTH, or needs none.
    pub(in crate::exchange::auth) fn on_eap_auth_response(
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
                let round = self.core.connection.remote.get(waiting.rounds.proven());
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
                    //= https://www.rfc-editor.org/rfc/rfc5998#section-3
                    //# If the responder supports this notification and chooses to use it, it
                    //# omits the public-key-based AUTH payload and CERT payloads from
                    //# message 4.
                    (_, Some(_)) => Some("the responder does not do with EAP alone"),
                };
                if let Some(why) = why {
                    let blame = Blame::of(Some(&self.core.connection), why);
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

    /// Handles the first EAP packet in the message that has authenticated the responder.
    pub(in crate::exchange::auth) fn responder_begins_eap(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) {
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

    /// Handles an EAP packet, or its absence.
    fn hear_authenticator(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let parsed = Payloads(payloads);
        let Ok(Some(packet)) = parsed.eap() else { return self.eap_refused(ctx, &parsed) };
        let packet = packet.to_vec();
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let index = waiting.rounds.local.len();
        let local_id = match index {
            0 => waiting.local_id.clone(),
            _ => match self.core.connection.local.get(index) {
                Some(round) => round_id(&self.core.connection, round, self.core.channel.path),
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
        let name = self.core.connection.local.get(index).map(|round| round.name.clone());
        let name = name.unwrap_or_default();
        let ticket = self.core.ask_eap(ctx, &name, local_id, &mut eap, Some(packet));
        let state = std::mem::replace(&mut self.state, closed_placeholder());
        if let State::ExpectAuthResponse(mut waiting) = state {
            waiting.eap = Some(eap);
            let asked = AwaitEap { ticket, waiting: *waiting, failure };
            self.state = State::AwaitAuthenticatorPacket(Box::new(asked));
        }
    }

    /// Handles a response without an EAP packet that must have one: it has an error notify, or violates the
    /// protocol.
    fn eap_refused(&mut self, ctx: &mut Context<'_>, parsed: &Payloads<'_, '_>) {
        let failure = match parsed.error() {
            Some(error) => Failure::Peer(error.kind),
            None => Failure::Refused(NotifyType::INVALID_SYNTAX),
        };
        self.reject_responder(ctx, failure);
    }

    pub(in crate::exchange::auth) fn on_authenticator_packet(
        &mut self,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) {
        let State::AwaitAuthenticatorPacket(asked) = self.take_state() else { return };
        let AwaitEap { mut waiting, failure, .. } = *asked;
        let Some(eap) = &mut waiting.eap else { return };
        let alone = eap.alone;
        let (id, outcome) = (eap.id.clone(), outcome(answer, alone));
        match outcome {
            Ok(EapAnswer::Send(packet, state)) => {
                eap.state = state;
                self.state = State::ExpectAuthResponse(Box::new(waiting));
                self.core.request(ctx, ExchangeType::IKE_AUTH, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(success)) => {
                self.state = State::ExpectAuthResponse(Box::new(waiting));
                self.confirm_as_initiator(ctx, success);
            }
            Ok(EapAnswer::Failure { why, .. }) | Err(why) => {
                self.state = State::ExpectAuthResponse(Box::new(waiting));
                let blame = Blame::of(Some(&self.core.connection), format_args!("EAP: {why}"));
                let local = local_id(&self.core.connection, &self.core);
                self.core.blame(ctx, (Some(id), Some(local)), blame);
                let why = Failure::Credentials(format!("EAP: {why}"));
                if failure {
                    // The responder has completed its part already.
                    return self.close(ctx, why);
                }
                self.reject_responder(ctx, why);
            }
        }
    }

    /// Handles the success of EAP: sends AUTH, with the key of EAP.
    fn confirm_as_initiator(&mut self, ctx: &mut Context<'_>, success: EapSuccess) {
        let connection = Arc::clone(&self.core.connection);
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let index = waiting.rounds.local.len();
        let Some(round) = connection.local.get(index) else { return };
        let first = index == 0;
        let id = if first {
            waiting.local_id.clone()
        } else {
            round_id(&connection, round, self.core.channel.path)
        };
        let prf = self.core.channel.session.prf;
        let EapSuccess { msk, method, .. } = success;
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# The general rule for using a PPK in the IKE_AUTH exchange, which
        //# covers the EAP authentication case too, is that the initiator
        //# includes a PPK_IDENTITY (and optionally a NO_PPK_AUTH) notification
        //# in the request message containing the AUTH payload.
        let unmixed = (first && self.core.may_go_without_ppk()).then(|| {
            let covered = self.core.own_covered(&waiting.transcript, &id);
            auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets)
        });
        if first && let Err(failure) = self.core.mix_ppk_in_auth(ctx.config) {
            return self.close(ctx, failure);
        }
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let eap = Some(Box::new(UsedEap { method, id: None, authorization: None }));
        let own = UsedAuth { eap, ..used(id, AuthMethod::PSK) };
        waiting.rounds.local.push(own.clone());
        if let Some(eap) = &mut waiting.eap {
            eap.stage = EapStage::Through(msk.as_ref().map(Secret::duplicate), own.clone());
        }
        let State::ExpectAuthResponse(waiting) = &self.state else { return };
        let covered = self.core.own_covered(&waiting.transcript, &own.id);
        let data = auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets);
        let ppk_id = match &self.core.ppk {
            PpkStage::Offered(id, _) if first => Some(wire_id(id)),
            _ => None,
        };
        let auth = Auth { method: AuthMethod::PSK, data: data.expose() };
        let mut payloads = vec![Payload::Auth(auth)];
        payloads.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads.extend(unmixed.iter().map(|data| notify(NotifyType::NO_PPK_AUTH, data.expose())));
        self.core.request(ctx, ExchangeType::IKE_AUTH, &payloads);
    }

    /// Handles the responder's AUTH with the key of EAP.
    fn on_responder_confirms(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let parsed = Payloads(payloads);
        let auth = match parsed.auth() {
            Ok(Some(auth)) => auth,
            _ => return self.eap_refused(ctx, &parsed),
        };
        if matches!(self.core.ppk, PpkStage::Offered(..))
            && let Err(failure) = self.core.settle_ppk(&parsed)
        {
            return self.reject_responder(ctx, failure);
        }
        let State::ExpectAuthResponse(waiting) = &mut self.state else { return };
        let Some(eap) = waiting.eap.take() else { return };
        let EapStage::Through(msk, own) = &eap.stage else { return };
        let prf = self.core.channel.session.prf;
        let key = key(prf, msk.as_ref(), &self.core.channel.session.keys.pr);
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
            let blame = Blame::of(Some(&self.core.connection), why);
            return self.disbelieve(ctx, eap.id(), Some(blame), Failure::Authentication);
        };
        if eap.alone {
            let used = UsedAuth { eap: own.eap.clone(), ..used(eap.id.clone(), AuthMethod::PSK) };
            return self.responder_proven(ctx, used, evidence, payloads);
        }
        self.auth_round_done(ctx, payloads);
    }
}

impl ExpectAuthResponse {
    /// True while a round by EAP is in progress.
    pub(crate) fn is_in_eap(&self) -> bool {
        self.eap.is_some()
    }
}
