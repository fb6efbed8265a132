//! EAP at the responder: EAP's authenticator.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::blame::Blame;
use super::super::rounds::{AuthReply, OwnAuth, used};
use super::super::{local_id, null_id};
use super::{
    AwaitEap, EapRound, EapStage, MAX_PACKETS, UNSIGNED, is_last, key, may_be, outcome, signs,
};
use crate::config::{AuthConfig, ConnectionConfig};
use crate::event::{Failure, UsedAuth, UsedEap};
use crate::exchange::ppk::auth::AuthData;
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::context::Context;
use crate::ike_sa::keeping::no_room;
use crate::ike_sa::state::{ExpectAuthRequest, State};
use crate::ike_sa::{Core, IkeSa};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::{auth_by, verify_by};
use crate::question::{Answer, EapAnswer, EapSuccess};
use crate::wire::payload::id::MAX_ID_LEN;
use crate::wire::payload::{Auth, IdData, Payload};
use crate::wire::registry::{AuthMethod, NotifyType};

impl IkeSa {
    /// Begins EAP with an initiator that requests it and for which `candidates` are configured.
    pub(in crate::exchange::auth) fn begin_eap(
        &mut self,
        ctx: &mut Context<'_>,
        mut candidates: VecDeque<Arc<ConnectionConfig>>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let failed = || Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let Some(connection) = &candidates.pop_front() else {
            return self.core.refuse(ctx, failed());
        };
        let parsed = Payloads(payloads);
        let Ok(Some(id)) = parsed.id_i() else { return self.core.refuse(ctx, failed()) };
        let State::ExpectAuthRequest(waiting) = &self.state else { return };
        let (index, fresh) = (waiting.rounds.proven(), waiting.first.is_none());
        if fresh && !self.core.hold(ctx, opened) {
            return self.close(ctx, no_room());
        }
        self.core.connection = Arc::clone(connection);
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
            return self.core.refuse_peer(ctx, ids, blame);
        }
        let mut eap = EapRound::new(Some(*id), alone);
        candidates.retain(|other| may_be(other, connection, index));
        eap.others = candidates.into();
        waiting.eap = Some(Box::new(eap));
        self.ask_about_initiator(ctx, None);
    }

    /// Handles a request in a round by EAP. False if no such round is in progress.
    pub(in crate::exchange::auth) fn on_eap_auth_request(
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
                    self.core.refuse_because(ctx, &refusal, why);
                    return true;
                }
                self.ask_about_initiator(ctx, Some(packet.to_vec()));
            }
            (EapStage::Through(..), Ok(None), Ok(Some(auth))) => {
                self.on_initiator_confirms(ctx, &parsed, auth);
            }
            _ => match parsed.fatal_in_auth() {
                Some(kind) => {
                    self.core.respond(ctx, &[]);
                    self.close(ctx, Failure::Peer(kind));
                }
                None => self.core.refuse(ctx, NotifyType::INVALID_SYNTAX.into()),
            },
        }
        true
    }

    fn ask_about_initiator(&mut self, ctx: &mut Context<'_>, packet: Option<Vec<u8>>) {
        let State::ExpectAuthRequest(mut waiting) = self.take_state() else { return };
        let Some(mut eap) = waiting.eap.take() else { return };
        let index = waiting.rounds.proven();
        let name = self.core.connection.remote.get(index).map(|round| round.name.clone());
        let local = local_id(&self.core.connection, &self.core);
        let name = name.unwrap_or_default();
        let ticket = self.core.ask_eap(ctx, &name, local, &mut eap, packet);
        waiting.eap = Some(eap);
        let asked = AwaitEap { ticket, waiting: *waiting, failure: false };
        self.state = State::AwaitPeerPacket(Box::new(asked));
    }

    pub(in crate::exchange::auth) fn on_peer_packet(
        &mut self,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) {
        let State::AwaitPeerPacket(asked) = self.take_state() else { return };
        let AwaitEap { mut waiting, .. } = *asked;
        let Some(eap) = &mut waiting.eap else { return };
        let outcome = outcome(answer, eap.alone);
        let begun = matches!(eap.stage, EapStage::Begun(_));
        let id = eap.id.clone();
        match outcome {
            Ok(EapAnswer::Send(packet, state)) => {
                let more = state.octets().saturating_sub(eap.held);
                if !self.core.hold_octets(ctx, more) {
                    self.state = State::ExpectAuthRequest(Box::new(waiting));
                    return self.close(ctx, no_room());
                }
                eap.held += more;
                eap.state = state;
                if begun {
                    // It goes with this end's own AUTH.
                    eap.stage = EapStage::Begun(Some(packet));
                    self.state = State::ExpectAuthRequest(Box::new(waiting));
                    return self.next_auth_response(ctx);
                }
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.core.respond(ctx, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(EapSuccess {
                packet: Some(packet),
                msk,
                method,
                identity,
                authorization,
            })) if !begun => {
                let wanted = authorization.as_ref().and_then(|a| a.connection.as_ref());
                if let Some(name) = wanted.filter(|name| **name != self.core.connection.name) {
                    eap.chosen = eap.others.iter().find(|other| other.name == *name).cloned();
                    if eap.chosen.is_none() {
                        self.state = State::ExpectAuthRequest(Box::new(waiting));
                        let why = "it is good for another connection".to_owned();
                        return self.core.eap_failed(ctx, id, None, why);
                    }
                }
                let known = identity.filter(|id| !id.is_empty() && id.len() <= MAX_ID_LEN);
                // The peer chooses IDi itself, so IDi does not replace a missing identity.
                let proven = Some(known.map_or_else(null_id, IdData::eap));
                let shown = Some(Box::new(UsedEap { method, id: proven, authorization }));
                let used = UsedAuth { eap: shown, ..used(id, AuthMethod::PSK) };
                eap.stage = EapStage::Through(msk, used);
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.core.respond(ctx, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(_)) => {
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                let why = "EAP: success out of place".to_owned();
                self.core.eap_failed(ctx, id, None, why);
            }
            Ok(EapAnswer::Failure { packet, why }) => {
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.core.eap_failed(ctx, id, packet, why);
            }
            Err(why) => {
                self.state = State::ExpectAuthRequest(Box::new(waiting));
                self.core.eap_failed(ctx, id, None, why);
            }
        }
    }

    /// Handles the initiator's AUTH with the key of EAP.
    fn on_initiator_confirms(
        &mut self,
        ctx: &mut Context<'_>,
        parsed: &Payloads<'_, '_>,
        auth: &Auth<'_>,
    ) {
        let State::ExpectAuthRequest(waiting) = &mut self.state else { return };
        let index = waiting.rounds.proven();
        let Some(mut eap) = waiting.eap.take() else { return };
        if let Some(chosen) = eap.chosen.take() {
            waiting.connections = Arc::from([Arc::clone(&chosen)]);
            self.core.connection = chosen;
        }
        let connection = Arc::clone(&self.core.connection);
        let EapStage::Through(msk, used_eap) = &eap.stage else { return };
        let ids = || (Some(eap.id.clone()), None);
        let taken = match index {
            0 => self.core.take_ppk_in_auth(ctx.config, &connection, parsed),
            _ => Ok(AuthData::Payload),
        };
        let data = match taken {
            Ok(AuthData::Payload) => auth.data,
            Ok(AuthData::NoPpkAuth(data)) => data,
            Err(why) => {
                return self.core.refuse_peer(ctx, ids(), Blame::of(Some(&connection), why));
            }
        };
        let prf = self.core.channel.session.prf;
        let theirs = key(prf, msk.as_ref(), &self.core.channel.session.keys.pi);
        let verdict = self.verify_waiting(eap.id(), |octets| verify_by(prf, &theirs, octets, data));
        let State::ExpectAuthRequest(waiting) = &self.state else { return };
        let right = auth.method == AuthMethod::PSK
            && parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_none();
        let Some(evidence) = verdict.ok().filter(|_| right) else {
            let why = "AUTH does not verify by the key of EAP";
            return self.core.refuse_peer(ctx, ids(), Blame::of(Some(&connection), why));
        };
        // This end's AUTH again, or for the first time.
        let last = waiting.rounds.local.last().map(|own| own.id.clone());
        let id = last.unwrap_or_else(|| local_id(&connection, &self.core));
        let covered = self.core.own_covered(&waiting.transcript, &id);
        let data = auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets);
        let mut own = OwnAuth::without(id);
        let method = used_eap.eap.as_ref().map(|eap| eap.method.clone()).unwrap_or_default();
        let shown = Some(Box::new(UsedEap { method, id: None, authorization: None }));
        own.used = UsedAuth { eap: shown, ..used(own.used.id, AuthMethod::PSK) };
        (own.data, own.named) = (data, true);
        let ppk = (index == 0 && self.core.took_ppk_in_auth()).then(Vec::new);
        let State::ExpectAuthRequest(waiting) = &mut self.state else { return };
        waiting.rounds.prove(used_eap.clone(), evidence);
        if eap.alone {
            waiting.rounds.local.push(own.used.clone());
        }
        if !waiting.rounds.are_complete(&connection) {
            return self.core.refuse(ctx, NotifyType::AUTHENTICATION_FAILED.into());
        }
        let reply = AuthReply { own: Some(own), token: None, config: None, notifies: Vec::new() };
        self.configure_peer(ctx, reply, ppk);
    }
}

impl Core {
    /// Tells the peer about the failure, and ends the SA.
    fn eap_failed(
        &mut self,
        ctx: &mut Context<'_>,
        id: IdData,
        packet: Option<Vec<u8>>,
        why: String,
    ) {
        let blame = Blame::of(Some(&self.connection), format_args!("EAP: {why}"));
        self.blame(ctx, (Some(id), None), blame);
        // The packet is for EAP, and the notify is for IKE (RFC 7296 §2.21.2).
        let failed = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let mut payloads: Vec<Payload<'_>> =
            packet.iter().map(|packet| Payload::Eap(packet)).collect();
        payloads.push(failed.payload());
        self.respond(ctx, &payloads);
        self.end(Failure::Authentication);
    }
}

impl ExpectAuthRequest {
    /// The first EAP packet, which goes with this end's first AUTH.
    pub(in crate::exchange::auth) fn take_first_packet(&mut self) -> Option<Vec<u8>> {
        let eap = self.eap.as_mut()?;
        let EapStage::Begun(packet) = &mut eap.stage else { return None };
        let packet = packet.take()?;
        eap.stage = EapStage::Talking;
        Some(packet)
    }
}
