//! IKE_INTERMEDIATE (RFC 9242) with the additional key exchanges of RFC 9370, and with a PPK
//! (RFC 9867 §3.1).
//!
//! ```text
//!    HDR, SK {[KEi(n)] [, N(PPK_IDENTITY_KEY)+]}  -->
//!                               <--  HDR, SK {[KEr(n)] [, N(PPK_IDENTITY)]}
//! ```
//!
//! Each exchange is protected by the keys before it and makes new ones. AUTH covers all of them. A PPK is part of
//! the last exchange, and is mixed in after its KE.

use std::sync::Arc;

use super::auth::announce::OwnAnnouncements;
use super::auth::blame::Blame;
use super::child_sa::respond_ke;
use super::key_exchange::{Halt, Undone};
use super::ppk::{self, CommonPpk, OfferedPpk, PpkPlace, PpkStage};
use super::{Payloads, Refusal, required};
use crate::config::{EndpointConfig, PostQuantumKey, PpkId};
use crate::crypto::{CryptoError, Secret};
use crate::event::Failure;
use crate::ike_sa::context::Context;
use crate::ike_sa::pending::What;
use crate::ike_sa::state::{
    ExpectAuthRequest, ExpectAuthResponse, ExpectIntermediateRequest, ExpectIntermediateResponse,
    State, Step, Steps,
};
use crate::ike_sa::{Core, IkeSa, notify};
use crate::keys::epoch::{Epoch, Opened};
use crate::keys::int_auth::NotCovered;
use crate::wire::payload::{Ke, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType};
use crate::wire::{Flags, Header, encode_payloads};

/// IKE_INTERMEDIATE exchanges with which one IKE SA may begin. At most nine have a purpose (seven key exchanges, a
/// PPK, authentication methods), and a peer may send as many empty ones.
const MOST_EXCHANGES: u32 = 18;

impl IkeSa {
    // ---- initiator ----

    /// Continues after IKE_SA_INIT or an IKE_INTERMEDIATE: with the next key exchange, or with IKE_AUTH.
    pub(crate) fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        mut rest: Steps,
        auth: ExpectAuthResponse,
    ) {
        match rest.next() {
            Some(step) => self.take_step(ctx, step, rest, auth),
            None => self.begin_auth(ctx, auth),
        }
    }

    /// Sends the request of `step`.
    pub(crate) fn take_step(
        &mut self,
        ctx: &mut Context<'_>,
        step: Step,
        rest: Steps,
        mut auth: ExpectAuthResponse,
    ) {
        let mut started = None;
        if let Some(method) = step.method {
            match ctx.initiate(method) {
                Ok(ke) => started = Some((method, ke)),
                Err(Undone::Ask(exchange)) => {
                    let next =
                        ExpectIntermediateResponse { ke: None, ppks: Vec::new(), rest, auth };
                    self.state = State::ExpectIntermediateResponse(Box::new(next));
                    return self.core.put_off(ctx, exchange, What::Step(step));
                }
                Err(Undone::Failed(_)) => {
                    self.state = State::ExpectAuthResponse(Box::new(auth));
                    return self.close(ctx, Failure::Crypto);
                }
            }
        }
        let ppks = if step.ppk { self.core.ppks_for_intermediate(ctx, &auth) } else { Vec::new() };
        let public = started.as_ref().map(|(method, ke)| (*method, ke.public().to_vec()));
        let data: Vec<_> = ppks.iter().map(|ppk| ppk.data.clone()).collect();
        let ke = public.iter().map(|(method, data)| Payload::Ke(Ke { method: *method, data }));
        let offers = data.iter().map(|data| notify(NotifyType::PPK_IDENTITY_KEY, data));
        let payloads: Vec<_> = ke.chain(offers).collect();
        let covered =
            self.core.channel.window.next_request_id().map_err(|_| NotCovered).and_then(|id| {
                let (front, inner) = self.core.own_front(id, false, &payloads);
                let (prf, key) =
                    (self.core.channel.session.prf, &self.core.channel.session.keys.pi);
                auth.transcript.int_auth.absorb(prf, key, true, &front, &inner)
            });
        let next = ExpectIntermediateResponse { ke: started, ppks, rest, auth };
        self.state = State::ExpectIntermediateResponse(Box::new(next));
        if covered.is_err() {
            return self.close(ctx, Failure::Crypto);
        }
        self.core.request(ctx, ExchangeType::IKE_INTERMEDIATE, &payloads);
    }

    /// The response to our key exchange. An error ends this candidate, not the attempt.
    pub(crate) fn on_intermediate_response(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let State::ExpectIntermediateResponse(waiting) = &self.state else { return };
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.close(ctx, Failure::Peer(error.kind));
        }
        let shared = match (&waiting.ke, parsed.ke()) {
            (None, Ok(None)) => Some(None),
            (Some((method, half)), Ok(Some(ke))) if ke.method == *method => {
                match ctx.complete(*method, half, ke.data) {
                    Ok(shared) => Some(Some(shared)),
                    Err(Undone::Ask(exchange)) => {
                        return self.core.put_off(ctx, exchange, What::Response(opened.clone()));
                    }
                    Err(Undone::Failed(_)) => None,
                }
            }
            _ => None,
        };
        let Some(shared) = shared else {
            return self.close(ctx, Failure::Refused(NotifyType::INVALID_SYNTAX));
        };
        let ppk = match ppk::taken(&waiting.ppks, &parsed) {
            Ok(taken) => taken.map(|ppk| (ppk.id.clone(), Arc::clone(&ppk.key))),
            Err(ppk::NotOffered) => {
                return self
                    .close(ctx, Failure::Policy("the peer names a PPK that was not offered"));
            }
        };
        //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
        //# In this case, the initiator cannot achieve quantum computer
        //# resistance using the proposed PPKs. If this is a requirement for
        //# the initiator, then it MUST abort creating the IKE SA.
        if !waiting.ppks.is_empty() && ppk.is_none() && self.core.connection.requires_ppk() {
            return self.close(ctx, Failure::Policy("the peer has none of the PPKs offered"));
        }
        let State::ExpectIntermediateResponse(waiting) =
            std::mem::replace(&mut self.state, State::Closed(Failure::Crypto))
        else {
            return;
        };
        let ExpectIntermediateResponse { rest, mut auth, .. } = *waiting;
        auth.announced.read_methods(&parsed);
        let (prf, key) = (self.core.channel.session.prf, &self.core.channel.session.keys.pr);
        let covered =
            auth.transcript.int_auth.absorb(prf, key, false, &opened.front, &opened.octets);
        let nonces = (&*auth.transcript.ni, &*auth.transcript.nr);
        let ppk = ppk.as_ref().map(|(id, key)| (id, &**key));
        if covered.is_err() || self.core.next_epoch(ctx, shared.as_ref(), ppk, nonces).is_err() {
            self.state = State::ExpectAuthResponse(Box::new(auth));
            return self.close(ctx, Failure::Crypto);
        }
        // No message of the peer comes under the old keys any more.
        self.core.channel.session.previous = None;
        self.proceed(ctx, rest, auth);
    }

    // ---- responder ----

    pub(crate) fn on_intermediate_request(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let answered = match &self.state {
            State::ExpectAuthRequest(_) => self.answer_idle(ctx, payloads, opened),
            _ => self.answer_intermediate(ctx, payloads, opened),
        };
        match answered {
            Ok(()) => {}
            Err(Halt::Refuse(refusal)) => self.core.refuse(ctx, refusal),
            Err(Halt::Ask(exchange)) => {
                let what = What::Request(ExchangeType::IKE_INTERMEDIATE, opened.clone());
                self.core.put_off(ctx, exchange, what);
            }
        }
    }

    fn answer_intermediate(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<(), Halt> {
        let State::ExpectIntermediateRequest(waiting) = &self.state else { return Ok(()) };
        let Step { method, ppk: ppk_due, announce } = waiting.step;
        let parsed = Payloads(payloads);
        let brings_ppk = self.core.extensions.ppk == Some(PpkPlace::Intermediate)
            && ppk::offers(&parsed).next().is_some();
        let brings_ke = parsed.ke()?.is_some();
        let announces = announce && method.is_none();
        if !brings_ke && !brings_ppk && !announces {
            return self.answer_idle(ctx, payloads, opened);
        }
        // RFC 9370 §2.2.2: the methods run in the order of their transform types
        let in_order = parsed.ke()?.map(|ke| ke.method) == method;
        // RFC 9867 §3.1: PPKs are offered in the last exchange
        if !in_order || brings_ppk && !ppk_due {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let ppk =
            if brings_ppk { self.core.take_initial_ppk(ctx, waiting, &parsed)? } else { None };
        let (public, shared) = match method {
            Some(method) => {
                let (public, shared) = respond_ke(ctx, method, &parsed)?;
                (Some((method, public)), Some(shared))
            }
            None => (None, None),
        };
        let ke = public.iter().map(|(method, data)| Payload::Ke(Ke { method: *method, data }));
        let chosen = ppk.iter().map(|ppk| notify(NotifyType::PPK_IDENTITY, &ppk.wire));
        let connections = waiting.auth.connections.iter().map(|connection| &**connection);
        let own = announce.then(|| OwnAnnouncements::new(ctx.config, ctx.crypto, connections));
        let methods = own.iter().filter_map(OwnAnnouncements::methods_payload);
        let reply: Vec<_> = ke.chain(chosen).chain(methods).collect();
        let (message_id, _) = required(self.core.channel.window.in_progress())?;
        let (front, inner) = self.core.own_front(message_id, true, &reply);
        let State::ExpectIntermediateRequest(waiting) = &mut self.state else { return Ok(()) };
        let session = &self.core.channel.session;
        let int_auth = &mut waiting.auth.transcript.int_auth;
        int_auth
            .absorb(session.prf, &session.keys.pi, true, &opened.front, &opened.octets)
            .and_then(|()| int_auth.absorb(session.prf, &session.keys.pr, false, &front, &inner))
            .map_err(|NotCovered| Refusal::new(NotifyType::INVALID_SYNTAX))?;
        self.core.respond(ctx, &reply);
        let State::ExpectIntermediateRequest(waiting) =
            std::mem::replace(&mut self.state, State::Closed(Failure::Crypto))
        else {
            return Ok(());
        };
        let ExpectIntermediateRequest { mut rest, auth, .. } = *waiting;
        let nonces = (&*auth.transcript.ni, &*auth.transcript.nr);
        let mixed = ppk.as_ref().map(|ppk| (&ppk.id, &*ppk.key));
        if self.core.next_epoch(ctx, shared.as_ref(), mixed, nonces).is_err() {
            self.close(ctx, Failure::Crypto);
            return Ok(());
        }
        if ppk_due && !brings_ppk {
            rest.put_off_ppk();
        }
        self.state = expect_request(rest, auth);
        Ok(())
    }

    //= https://www.rfc-editor.org/rfc/rfc9242#section-3.3.2
    //# The IntAuth_[i/r]*P chunk is present if the Encrypted payload is not
    //# empty.
    /// Answers an exchange that has no purpose for this end with an empty response: an end that announces
    /// IKE_INTERMEDIATE must expect such a request (RFC 9242 §3.2). AUTH covers both messages. The next steps are
    /// still due.
    fn answer_idle(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<(), Halt> {
        let parsed = Payloads(payloads);
        let foreign = parsed.ke()?.is_some() || ppk::offers(&parsed).next().is_some();
        let (message_id, _) = required(self.core.channel.window.in_progress())?;
        // IKE_SA_INIT had message ID 0.
        let too_many = message_id > MOST_EXCHANGES;
        if foreign || parsed.error().is_some() || !self.core.extensions.intermediate || too_many {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let (front, inner) = self.core.own_front(message_id, true, &[]);
        let session = &self.core.channel.session;
        let waiting = match &mut self.state {
            State::ExpectIntermediateRequest(waiting) => &mut waiting.auth,
            State::ExpectAuthRequest(waiting) => waiting,
            _ => return Err(NotifyType::INVALID_SYNTAX.into()),
        };
        let int_auth = &mut waiting.transcript.int_auth;
        int_auth
            .absorb(session.prf, &session.keys.pi, true, &opened.front, &opened.octets)
            .and_then(|()| int_auth.absorb(session.prf, &session.keys.pr, false, &front, &inner))
            .map_err(|NotCovered| Refusal::new(NotifyType::INVALID_SYNTAX))?;
        self.core.respond(ctx, &[]);
        Ok(())
    }

    /// Continues without a PPK, because the initiator offers none although both ends announced one: as if this end
    /// had none of the offered ones. IKE_AUTH refuses that if a PPK is required.
    pub(crate) fn go_without_initial_ppk(&mut self) {
        if let State::ExpectIntermediateRequest(waiting) =
            std::mem::replace(&mut self.state, State::Closed(Failure::Crypto))
        {
            self.state = State::ExpectAuthRequest(Box::new(waiting.auth));
        }
    }
}

impl Core {
    /// As [`choose_initial_ppk`](Self::choose_initial_ppk). The log hears if there is none.
    fn take_initial_ppk(
        &self,
        ctx: &mut Context<'_>,
        waiting: &ExpectIntermediateRequest,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<CommonPpk>, Refusal> {
        let chosen = self.choose_initial_ppk(ctx.config, waiting, payloads);
        if chosen.is_err() {
            let why = "a PPK is required, and none of those offered is known here";
            self.blame(ctx, (None, None), Blame::of(Some(&self.connection), why));
        }
        chosen
    }

    /// The PPK to use of those that the peer offers: one that a possible connection allows.
    fn choose_initial_ppk(
        &self,
        config: &EndpointConfig,
        waiting: &ExpectIntermediateRequest,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<CommonPpk>, Refusal> {
        let ExpectAuthRequest { transcript, connections, .. } = &waiting.auth;
        let allowed = |id: &PpkId| connections.iter().any(|connection| connection.takes_ppk(id));
        let (spi_i, spi_r) = (self.spi_i.to_be_bytes(), self.spi_r.to_be_bytes());
        let parts = [&transcript.ni, &transcript.nr, &spi_i[..], &spi_r];
        let chosen = ppk::choose(config, allowed, self.channel.session.prf, payloads, &parts);
        //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
        //# if using PPK is mandatory for the responder, then it MUST
        //# return an AUTHENTICATION_FAILED notification and abort creating
        //# the IKE SA.
        let needed = connections.iter().all(|connection| connection.requires_ppk());
        if chosen.is_none() && needed {
            return Err(NotifyType::AUTHENTICATION_FAILED.into());
        }
        Ok(chosen)
    }

    // ---- both ----

    /// The PPKs to offer in the last IKE_INTERMEDIATE.
    fn ppks_for_intermediate(
        &self,
        ctx: &Context<'_>,
        auth: &ExpectAuthResponse,
    ) -> Vec<OfferedPpk> {
        let (spi_i, spi_r) = (self.spi_i.to_be_bytes(), self.spi_r.to_be_bytes());
        let parts = [&*auth.transcript.ni, &auth.transcript.nr, &spi_i, &spi_r];
        ppk::offer(ctx.config, &self.connection.ppk, self.channel.session.prf, &parts)
    }

    /// Puts the next keys in force. The former ones still open messages that the peer sent before it knew (RFC
    /// 9370 §2.2.2).
    fn next_epoch(
        &mut self,
        ctx: &Context<'_>,
        shared: Option<&Secret>,
        ppk: Option<(&PpkId, &PostQuantumKey)>,
        (ni, nr): (&[u8], &[u8]),
    ) -> Result<(), CryptoError> {
        if shared.is_none() && ppk.is_none() {
            return Ok(());
        }
        let session = &mut self.channel.session;
        let suite = session.selected.suite;
        let lengths = ctx.crypto.ciphers.lengths(suite).ok_or(CryptoError::Unsupported)?;
        let (prf, spi_i, spi_r) = (session.prf, self.spi_i, self.spi_r);
        let mut keys =
            shared.map(|shared| session.keys.next(prf, shared, ni, nr, spi_i, spi_r, &lengths));
        if let Some((id, key)) = ppk {
            //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1.1
            //# applying the PPK MUST be done after all of them so that
            //# recalculating IKE SA keys with the PPK is the last action before they
            //# are used in the next exchange.
            let before = keys.as_ref().unwrap_or(&session.keys);
            let secret = &key.secret;
            keys = Some(before.mixed_in_intermediate(prf, secret, ni, nr, spi_i, spi_r, &lengths));
            self.ppk = PpkStage::Used(id.clone());
        }
        let Some(keys) = keys else { return Ok(()) };
        let mut epoch = Epoch::new(ctx.crypto.ciphers, suite, &keys, self.initiator)?;
        epoch.continue_from(&session.epoch);
        session.previous = Some(Box::new(std::mem::replace(&mut session.epoch, epoch)));
        session.keys = keys;
        session.wipe_cipher_keys();
        Ok(())
    }

    /// What [`IntAuth`](crate::keys::int_auth::IntAuth) covers of a message of ours.
    fn own_front(
        &self,
        message_id: u32,
        response: bool,
        payloads: &[Payload<'_>],
    ) -> (Vec<u8>, Vec<u8>) {
        let mut inner = Vec::new();
        let first = encode_payloads(payloads, &mut inner);
        let mut front = Vec::new();
        let header = Header {
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            next_payload: PayloadType::SK,
            minor_version: 0,
            exchange: ExchangeType::IKE_INTERMEDIATE,
            flags: Flags { initiator: self.initiator, version: false, response },
            message_id,
            length: 0,
        };
        header.encode(&mut front);
        front.extend([first.0, 0, 0, 0]);
        (front, inner)
    }
}

/// The state of a responder with these steps still to come.
pub(crate) fn expect_request(mut rest: Steps, auth: ExpectAuthRequest) -> State {
    match rest.next() {
        None => State::ExpectAuthRequest(Box::new(auth)),
        Some(step) => {
            let waiting = ExpectIntermediateRequest { step, rest, auth };
            State::ExpectIntermediateRequest(Box::new(waiting))
        }
    }
}
