//! EAP at the responder: EAP's authenticator.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::blame::Blame;
use super::super::rounds::{AuthReply, OwnAuth, used};
use super::super::{local_id, null_id};
use super::{AwaitEap, EapRound, EapStage, MAX_PACKETS, is_last, key, may_be, outcome, signs};
use crate::channel::Channel;
use crate::config::{AuthConfig, ConnectionConfig};
use crate::crypto::Secret;
use crate::event::{Disbelief, Failure, UsedAuth, UsedEap};
use crate::exchange::ppk::auth::AuthData;
use crate::exchange::resume::fits::InForce;
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::keeping::no_room;
use crate::ike_sa::state::{ExpectAuthRequest, State};
use crate::keys::epoch::Opened;
use crate::keys::signed_octets::{SignedOctets, auth_by, verify_by};
use crate::question::{Answer, EapAnswer, EapSuccess};
use crate::reason::PolicyReason;
use crate::wire::payload::id::MAX_ID_LEN;
use crate::wire::payload::{Auth, IdData, Payload};
use crate::wire::registry::{AuthMethod, NotifyType};

impl ExpectAuthRequest {
    /// Begins EAP with an initiator that requests it and for which `candidates` are configured.
    pub(in crate::exchange::auth) fn begin_eap(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut candidates: VecDeque<Arc<ConnectionConfig>>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        let parsed = Payloads(payloads);
        let (Some(connection), Ok(Some(id))) = (&candidates.pop_front(), parsed.id_i()) else {
            return self.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
        };
        let index = self.rounds.proven();
        if self.first.is_none() {
            if !stem.channel.hold(&mut ctx.io, opened) {
                stem.ending.end(no_room());
                return State::ExpectAuthRequest(self);
            }
            self.announced.read(&ctx.crypto.schemes, &parsed);
            self.first = Some(opened.clone());
        }
        stem.channel.proving().set_connection(Arc::clone(connection));
        self.connections = Arc::from([Arc::clone(connection)]);
        let own = connection.local.get(self.rounds.local.len());
        let alone = own.is_some_and(|round| round.auth == AuthConfig::Eap);
        let announced = parsed.notify(NotifyType::EAP_ONLY_AUTHENTICATION).is_some();
        let why = match () {
            () if alone && !announced => Some(Disbelief::EapOnlyNotAnnounced),
            () if !is_last(connection, false, index) => Some(Disbelief::EapNotLast),
            () if !alone && !signs(connection.local.iter().map(|round| &round.auth)) => {
                Some(Disbelief::EapUnsigned)
            }
            () => None,
        };
        if let Some(why) = why {
            let ids = (Some(id.to_owned()), None);
            stem.refuse_peer(ctx, ids, Blame::of(Some(connection), why));
            return State::ExpectAuthRequest(self);
        }
        let mut eap = Box::new(EapRound::new(Some(*id), alone));
        candidates.retain(|other| may_be(other, connection, index));
        eap.others = candidates.into();
        self.ask_about_initiator(stem.channel, ctx, eap, None)
    }

    /// Handles a request in the round `eap`.
    pub(in crate::exchange::auth) fn on_eap_request(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut eap: Box<EapRound>,
        payloads: &[Payload<'_>],
    ) -> State {
        let parsed = Payloads(payloads);
        match (&eap.stage, parsed.eap(), parsed.auth()) {
            (EapStage::Talking, Ok(Some(packet)), Ok(None)) => {
                eap.packets += 1;
                if eap.packets > MAX_PACKETS {
                    return self.fail(stem, ctx, Failure::Policy(PolicyReason::TooManyEapPackets));
                }
                self.ask_about_initiator(stem.channel, ctx, eap, Some(packet.to_vec()))
            }
            (EapStage::Through(msk, used), Ok(None), Ok(Some(auth))) => {
                let through = Through { eap: &eap, msk: msk.as_ref(), used };
                self.on_initiator_confirms(stem, ctx, through, &parsed, auth)
            }
            _ => self.on_complaint(stem, ctx, payloads),
        }
    }

    fn ask_about_initiator(
        self: Box<Self>,
        channel: &mut Channel,
        ctx: &mut Context<'_>,
        mut eap: Box<EapRound>,
        packet: Option<Vec<u8>>,
    ) -> State {
        let index = self.rounds.proven();
        let name = channel.connection().remote.get(index).map(|round| round.name.clone());
        let local = local_id(channel.connection(), channel);
        let name = name.unwrap_or_default();
        let ticket = eap.ask(channel, ctx, &name, local, packet);
        let asked = AwaitEap { ticket, waiting: self, eap, failure: false };
        State::AwaitPeerPacket(Box::new(asked))
    }

    /// Handles the initiator's AUTH with the key of EAP.
    fn on_initiator_confirms(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        Through { eap, msk, used: used_eap }: Through<'_>,
        parsed: &Payloads<'_, '_>,
        auth: &Auth<'_>,
    ) -> State {
        let index = self.rounds.proven();
        if let Some(chosen) = &eap.chosen {
            self.connections = Arc::from([Arc::clone(chosen)]);
            stem.channel.proving().set_connection(Arc::clone(chosen));
        }
        let connection = Arc::clone(stem.channel.connection());
        let ids = || (Some(eap.id.clone()), None);
        let taken = match index {
            0 => stem.peer.take_ppk(stem.channel, InForce::at(ctx), &connection, parsed),
            _ => Ok(AuthData::Payload),
        };
        let data = match taken {
            Ok(AuthData::Payload) => auth.data,
            Ok(AuthData::NoPpkAuth(data)) => data,
            Err(why) => {
                stem.refuse_peer(ctx, ids(), Blame::of(Some(&connection), why));
                return State::ExpectAuthRequest(self);
            }
        };
        let prf = stem.channel.session().prf;
        let theirs = key(prf, msk, stem.channel.session().keys.pi());
        let verify = |octets: &SignedOctets| verify_by(prf, &theirs, octets, data);
        let verdict = self.transcript.verify_initiator(stem.channel, eap.id(), verify);
        let right = auth.method == AuthMethod::PSK
            && parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_none();
        let Some(evidence) = verdict.ok().filter(|_| right) else {
            let why = Disbelief::WrongAuthAfterEap;
            stem.refuse_peer(ctx, ids(), Blame::of(Some(&connection), why));
            return State::ExpectAuthRequest(self);
        };
        // This end's AUTH again, or for the first time.
        let last = self.rounds.local.last().map(|own| own.id.clone());
        let id = last.unwrap_or_else(|| local_id(&connection, stem.channel));
        let covered = self.transcript.own_covered(stem.channel, &id);
        let data = auth_by(prf, &key(prf, msk, &covered.sk_p), &covered.octets);
        let method = used_eap.eap.as_ref().map(|eap| eap.method.clone()).unwrap_or_default();
        let shown =
            Some(Box::new(UsedEap { method, id: None, password: None, authorization: None }));
        let shown = UsedAuth { eap: shown, ..used(id, AuthMethod::PSK) };
        let (certs, data) = (Vec::new(), Some(data));
        let own = OwnAuth { used: shown, certs, data, no_ppk: None, named: true };
        let ppk = (index == 0 && stem.peer.ppk().took_in_auth(stem.channel.link())).then(Vec::new);
        self.rounds.prove(used_eap.clone(), evidence);
        if eap.alone {
            self.rounds.local.push(own.used.clone());
        }
        if !self.rounds.are_complete(&connection) {
            return self.refuse(stem, ctx, NotifyType::AUTHENTICATION_FAILED.into());
        }
        let reply = AuthReply { own: Some(own), token: None, config: None, notifies: Vec::new() };
        self.configure_peer(stem, ctx, reply, ppk)
    }
}

/// An EAP round that has succeeded.
struct Through<'a> {
    eap: &'a EapRound,
    msk: Option<&'a Secret>,
    /// How the initiator authenticates, if its AUTH verifies.
    used: &'a UsedAuth,
}

impl AwaitEap<ExpectAuthRequest> {
    pub(in crate::exchange::auth) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { mut waiting, mut eap, .. } = self;
        let begun = matches!(eap.stage, EapStage::Begun(_));
        match outcome(answer, eap.alone) {
            Ok(EapAnswer::Send(packet, state)) => {
                let more = state.octets().saturating_sub(eap.held);
                if !stem.channel.hold_octets(&mut ctx.io, more) {
                    stem.ending.end(no_room());
                    return State::ExpectAuthRequest(waiting);
                }
                eap.held += more;
                eap.state = state;
                if begun {
                    // It goes with this end's own AUTH.
                    eap.stage = EapStage::Begun(Some(packet));
                    waiting.eap = Some(eap);
                    return waiting.next_auth_response(stem, ctx);
                }
                waiting.eap = Some(eap);
                stem.respond(ctx, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(EapSuccess {
                packet: Some(packet),
                msk,
                method,
                identity,
                password,
                authorization,
                certificate,
            })) if !begun => {
                let wanted = authorization.as_ref().and_then(|a| a.connection.as_ref());
                if let Some(name) = wanted.filter(|name| **name != stem.channel.connection().name) {
                    eap.chosen = eap.others.iter().find(|other| other.name == *name).cloned();
                    if eap.chosen.is_none() {
                        let why = "it is good for another connection".to_owned();
                        stem.eap_failed(ctx, eap.id, None, why);
                        return State::ExpectAuthRequest(waiting);
                    }
                }
                let known = identity.filter(|id| !id.is_empty() && id.len() <= MAX_ID_LEN);
                // The peer chooses IDi itself, so IDi does not replace a missing identity.
                let proven = Some(known.map_or_else(null_id, IdData::eap));
                let shown = Some(Box::new(UsedEap { method, id: proven, password, authorization }));
                let plain = used(eap.id.clone(), AuthMethod::PSK);
                let used = UsedAuth { eap: shown, certificate, ..plain };
                eap.stage = EapStage::Through(msk, used);
                waiting.eap = Some(eap);
                stem.respond(ctx, &[Payload::Eap(&packet)]);
            }
            Ok(EapAnswer::Success(_)) => {
                let why = "EAP: success out of place".to_owned();
                stem.eap_failed(ctx, eap.id, None, why);
            }
            Ok(EapAnswer::Failure { packet, why }) => stem.eap_failed(ctx, eap.id, packet, why),
            Err(why) => stem.eap_failed(ctx, eap.id, None, why),
        }
        State::ExpectAuthRequest(waiting)
    }
}

impl Stem<'_> {
    /// Tells the peer about the failure, and ends the SA.
    fn eap_failed(
        &mut self,
        ctx: &mut Context<'_>,
        id: IdData,
        packet: Option<Vec<u8>>,
        why: String,
    ) {
        let blame = Blame::of(Some(self.channel.connection()), Disbelief::Eap(why));
        blame.tell(self.channel, ctx, (Some(id), None));
        // The packet is for EAP, and the notify is for IKE (RFC 7296 §2.21.2).
        let failed = Refusal::new(NotifyType::AUTHENTICATION_FAILED);
        let mut payloads: Vec<Payload<'_>> =
            packet.iter().map(|packet| Payload::Eap(packet)).collect();
        payloads.push(failed.payload());
        self.respond(ctx, &payloads);
        self.ending.end(Failure::Authentication);
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
