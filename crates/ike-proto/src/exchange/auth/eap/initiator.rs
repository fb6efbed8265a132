//! EAP at the initiator, which EAP authenticates: EAP's peer.

use super::super::blame::Blame;
use super::super::rounds::{OwnAuth, used};
use super::super::{local_id, matches_id};
use super::{AwaitEap, EapRound, EapStage, MAX_PACKETS, is_last, key, outcome, signs};
use crate::config::AuthConfig;
use crate::crypto::Secret;
use crate::event::{Disbelief, Failure, UsedAuth, UsedEap};
use crate::exchange::Payloads;
use crate::exchange::ppk::{PpkStage, wire_id};
use crate::exchange::resume::fits::InForce;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthResponse, State};
use crate::ike_sa::{Stem, notify};
use crate::keys::signed_octets::{AuthFailure, SignedOctets, auth_by, verify_by};
use crate::question::{Answer, EapAnswer, EapSuccess};
use crate::reason::PolicyReason;
use crate::wire::payload::{Auth, IdData, Payload};
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};

impl ExpectAuthResponse {
    /// Begins this end's round by EAP. A request without AUTH asks for EAP (RFC 7296 §2.16).
    pub(in crate::exchange::auth) fn begin_eap_round(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        index: usize,
        id: IdData,
    ) -> State {
        if !is_last(stem.channel.connection(), true, index) {
            let why = Disbelief::EapNotLast.to_string();
            return self.end(stem, Failure::Config(why));
        }
        let remote = stem.channel.connection().remote.get(self.rounds.proven());
        let alone = remote.is_some_and(|round| round.auth == AuthConfig::Eap);
        if !alone && !signs(stem.channel.connection().remote.iter().map(|round| &round.auth)) {
            return self.end(stem, Failure::Config(Disbelief::EapUnsigned.to_string()));
        }
        self.eap = Some(Box::new(EapRound::new(None, alone)));
        let own = OwnAuth::before_eap(id);
        self.send_auth_request(stem, ctx, Some(own))
    }

    /// Handles the response to a request in the round `eap`.
    pub(in crate::exchange::auth) fn on_eap_response(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut eap: Box<EapRound>,
        payloads: &[Payload<'_>],
    ) -> State {
        let parsed = Payloads(payloads);
        match &eap.stage {
            EapStage::Begun(_) => {
                let round = stem.channel.connection().remote.get(self.rounds.proven());
                let (id, auth) = match (parsed.id_r(), parsed.auth()) {
                    (Ok(Some(id)), Ok(auth)) => (*id, auth),
                    (Ok(None), _) if parsed.error().is_some() => {
                        return self.eap_refused(stem, ctx, &parsed);
                    }
                    _ => return self.reject(stem, ctx, Failure::Authentication),
                };
                let known = round.is_some_and(|round| matches_id(&round.id, &id.to_owned()));
                let why = match (known, auth) {
                    (true, None) => None,
                    (false, _) => Some(Disbelief::OtherResponder),
                    //= https://www.rfc-editor.org/rfc/rfc5998#section-3
                    //# If the responder supports this notification and chooses to use it, it
                    //# omits the public-key-based AUTH payload and CERT payloads from
                    //# message 4.
                    (_, Some(_)) => Some(Disbelief::NotEapAlone),
                };
                if let Some(why) = why {
                    let blame = Blame::of(Some(stem.channel.connection()), why);
                    return self.disbelieve(stem, ctx, id, Some(blame), Failure::Authentication);
                }
                (eap.id, eap.reserved) = (id.to_owned(), id.reserved);
                self.hear_authenticator(stem, ctx, eap, payloads)
            }
            EapStage::Talking => self.hear_authenticator(stem, ctx, eap, payloads),
            EapStage::Through(msk, own) => {
                self.on_responder_confirms(stem, ctx, (&eap, msk.as_ref(), own), payloads)
            }
        }
    }

    /// Handles the first EAP packet in the message that has authenticated the responder.
    pub(in crate::exchange::auth) fn responder_begins_eap(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut eap: Box<EapRound>,
        payloads: &[Payload<'_>],
    ) -> State {
        match (Payloads(payloads).id_r(), self.rounds.last_remote_id()) {
            (Ok(Some(id)), _) => (eap.id, eap.reserved) = (id.to_owned(), id.reserved),
            (_, Some(id)) => eap.id = id.clone(),
            _ => return self.reject(stem, ctx, Failure::Authentication),
        }
        self.hear_authenticator(stem, ctx, eap, payloads)
    }

    /// Handles an EAP packet, or its absence.
    fn hear_authenticator(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut eap: Box<EapRound>,
        payloads: &[Payload<'_>],
    ) -> State {
        let parsed = Payloads(payloads);
        let Ok(Some(packet)) = parsed.eap() else { return self.eap_refused(stem, ctx, &parsed) };
        let packet = packet.to_vec();
        let index = self.rounds.local.len();
        let local_id = self.own_id(stem.channel, index);
        eap.packets += 1;
        if eap.packets > MAX_PACKETS {
            return self.reject(stem, ctx, Failure::Policy(PolicyReason::TooManyEapPackets));
        }
        eap.stage = EapStage::Talking;
        let failure = packet.first() == Some(&4);
        let name = stem.channel.connection().local.get(index).map(|round| round.name.clone());
        let name = name.unwrap_or_default();
        let ticket = eap.ask(stem.channel, ctx, &name, local_id, Some(packet));
        let asked = AwaitEap { ticket, waiting: self, eap, failure };
        State::AwaitAuthenticatorPacket(Box::new(asked))
    }

    /// Handles a response without an EAP packet that must have one: it has an error notify, or violates the
    /// protocol.
    fn eap_refused(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        parsed: &Payloads<'_, '_>,
    ) -> State {
        let failure = match parsed.error() {
            Some(error) => Failure::Peer(error.kind),
            None => Failure::Refused(NotifyType::INVALID_SYNTAX),
        };
        self.reject(stem, ctx, failure)
    }

    /// Handles the success of EAP: sends AUTH, with the key of EAP.
    fn confirm_eap(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut eap: Box<EapRound>,
        success: EapSuccess,
    ) -> State {
        let index = self.rounds.local.len();
        let first = index == 0;
        let id = self.own_id(stem.channel, index);
        let prf = stem.channel.session().prf;
        let EapSuccess { msk, method, .. } = success;
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# The general rule for using a PPK in the IKE_AUTH exchange, which
        //# covers the EAP authentication case too, is that the initiator
        //# includes a PPK_IDENTITY (and optionally a NO_PPK_AUTH) notification
        //# in the request message containing the AUTH payload.
        let unmixed = (first && PpkStage::is_optional(stem.channel.link())).then(|| {
            let covered = self.transcript.own_covered(stem.channel, &id);
            auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets)
        });
        if first && let Err(failure) = stem.peer.mix_ppk(stem.channel, InForce::at(ctx)) {
            return self.end(stem, failure);
        }
        let shown =
            Some(Box::new(UsedEap { method, id: None, password: None, authorization: None }));
        let own = UsedAuth { eap: shown, ..used(id, AuthMethod::PSK) };
        let covered = self.transcript.own_covered(stem.channel, &own.id);
        let data = auth_by(prf, &key(prf, msk.as_ref(), &covered.sk_p), &covered.octets);
        self.rounds.local.push(own.clone());
        eap.stage = EapStage::Through(msk, own);
        self.eap = Some(eap);
        let ppk_id = match stem.peer.ppk() {
            PpkStage::Offered(id, _) if first => Some(wire_id(id)),
            _ => None,
        };
        let auth = Auth { method: AuthMethod::PSK, data: data.expose() };
        let mut payloads = vec![Payload::Auth(auth)];
        payloads.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        payloads.extend(unmixed.iter().map(|data| notify(NotifyType::NO_PPK_AUTH, data.expose())));
        let sent = stem.channel.request(&mut ctx.io, ExchangeType::IKE_AUTH, &payloads);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        State::ExpectAuthResponse(self)
    }

    /// Handles the responder's AUTH with the key of EAP.
    fn on_responder_confirms(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        (eap, msk, own): (&EapRound, Option<&Secret>, &UsedAuth),
        payloads: &[Payload<'_>],
    ) -> State {
        let parsed = Payloads(payloads);
        let auth = match parsed.auth() {
            Ok(Some(auth)) => auth,
            _ => return self.eap_refused(stem, ctx, &parsed),
        };
        if matches!(stem.peer.ppk(), PpkStage::Offered(..))
            && let Err(failure) = stem.peer.settle_ppk(stem.channel, &parsed)
        {
            return self.reject(stem, ctx, failure);
        }
        let prf = stem.channel.session().prf;
        let key = key(prf, msk, stem.channel.session().keys.pr());
        let right = auth.method == AuthMethod::PSK
            && parsed.notify(NotifyType::ANOTHER_AUTH_FOLLOWS).is_none();
        let verify = |octets: &SignedOctets| verify_by(prf, &key, octets, auth.data);
        let verdict = match right {
            true => self.with_twins(stem.channel, ctx, eap.id(), verify),
            false => Err(AuthFailure),
        };
        let Ok(evidence) = verdict else {
            let why = Disbelief::WrongAuthAfterEap;
            let blame = Blame::of(Some(stem.channel.connection()), why);
            return self.disbelieve(stem, ctx, eap.id(), Some(blame), Failure::Authentication);
        };
        if eap.alone {
            let used = UsedAuth { eap: own.eap.clone(), ..used(eap.id.clone(), AuthMethod::PSK) };
            return self.responder_proven(stem, ctx, used, evidence, payloads);
        }
        self.round_done(stem, ctx, payloads)
    }

    /// True while a round by EAP is in progress.
    pub(crate) fn is_in_eap(&self) -> bool {
        self.eap.is_some()
    }
}

impl AwaitEap<ExpectAuthResponse> {
    pub(in crate::exchange::auth) fn on_answer(
        self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        answer: Answer,
    ) -> State {
        let Self { mut waiting, mut eap, failure, .. } = self;
        match outcome(answer, eap.alone) {
            Ok(EapAnswer::Send(packet, state)) => {
                eap.state = state;
                waiting.eap = Some(eap);
                let sent = stem.channel.request(
                    &mut ctx.io,
                    ExchangeType::IKE_AUTH,
                    &[Payload::Eap(&packet)],
                );
                sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
                State::ExpectAuthResponse(waiting)
            }
            Ok(EapAnswer::Success(success)) => waiting.confirm_eap(stem, ctx, eap, success),
            Ok(EapAnswer::Failure { why, .. }) | Err(why) => {
                let blame = Blame::of(Some(stem.channel.connection()), Disbelief::Eap(why.clone()));
                let local = local_id(stem.channel.connection(), stem.channel);
                blame.tell(stem.channel, ctx, (Some(eap.id), Some(local)));
                let why = Failure::Credentials(format!("EAP: {why}"));
                if failure {
                    // The responder has completed its part already.
                    return waiting.end(stem, why);
                }
                waiting.reject(stem, ctx, why)
            }
        }
    }
}
