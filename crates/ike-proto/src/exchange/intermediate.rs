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
use super::ppk::{self, CommonPpk, OfferedPpk};
use super::{Payloads, Refusal, required};
use crate::channel::link::Link;
use crate::channel::{Channel, PpkPlace};
use crate::config::{EndpointConfig, PostQuantumKey, PpkId};
use crate::crypto::{CryptoError, Secret};
use crate::event::{Disbelief, Failure};
use crate::ike_sa::context::Context;
use crate::ike_sa::pending::What;
use crate::ike_sa::state::{
    ExpectAuthRequest, ExpectAuthResponse, ExpectIntermediateRequest, ExpectIntermediateResponse,
    State, Step, Steps,
};
use crate::ike_sa::{Stem, notify};
use crate::keys::epoch::{Epoch, Opened};
use crate::keys::int_auth::NotCovered;
use crate::keys::{IkeKeys, Nonces, Seed};
use crate::reason::PolicyReason;
use crate::wire::payload::{Ke, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType};
use crate::wire::{Flags, Header, encode_payloads};

/// IKE_INTERMEDIATE exchanges with which one IKE SA may begin. At most nine have a purpose (seven key exchanges, a
/// PPK, authentication methods), and a peer may send as many empty ones.
const MOST_EXCHANGES: u32 = 18;

impl ExpectAuthResponse {
    /// Continues after IKE_SA_INIT or an IKE_INTERMEDIATE: with the next key exchange, or with IKE_AUTH.
    pub(crate) fn proceed(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut rest: Steps,
    ) -> State {
        match rest.next() {
            Some(step) => {
                let next =
                    ExpectIntermediateResponse { ke: None, ppks: Vec::new(), rest, auth: self };
                Box::new(next).take_step(stem, ctx, step)
            }
            None => self.begin_auth(stem, ctx),
        }
    }
}

impl ExpectIntermediateResponse {
    /// Sends the request of `step`.
    pub(crate) fn take_step(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        step: Step,
    ) -> State {
        self.ke = None;
        if let Some(method) = step.method {
            match ctx.initiate(method) {
                Ok(ke) => self.ke = Some((method, ke)),
                Err(Undone::Ask(exchange)) => {
                    stem.put_off(ctx, exchange, What::Step(step));
                    return State::ExpectIntermediateResponse(self);
                }
                Err(Undone::Failed(_)) => return self.end(stem, Failure::Crypto),
            }
        }
        self.ppks =
            if step.ppk { self.auth.ppks_for_intermediate(stem.channel, ctx) } else { Vec::new() };
        let public = self.ke.as_ref().map(|(method, ke)| (*method, ke.public().to_vec()));
        let ke = public.iter().map(|(method, data)| Payload::Ke(Ke { method: *method, data }));
        let offers = self.ppks.iter().map(|ppk| notify(NotifyType::PPK_IDENTITY_KEY, &ppk.data));
        let payloads: Vec<_> = ke.chain(offers).collect();
        let covered =
            stem.channel.window().next_request_id().map_err(|_| NotCovered).and_then(|id| {
                let (front, inner) = own_front(stem.channel.link(), id, false, &payloads);
                let (prf, key) = (stem.channel.session().prf, stem.channel.session().keys.pi());
                self.auth.transcript.int_auth.absorb(prf, key, true, &front, &inner)
            });
        match covered {
            Ok(()) => {
                let sent =
                    stem.channel.request(&mut ctx.io, ExchangeType::IKE_INTERMEDIATE, &payloads);
                sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
            }
            Err(NotCovered) => stem.ending.end(Failure::Crypto),
        }
        drop(payloads);
        State::ExpectIntermediateResponse(self)
    }

    /// The response to our key exchange. An error ends this candidate, not the attempt.
    pub(crate) fn on_response(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.end(stem, Failure::Peer(error.kind));
        }
        let shared = match (&self.ke, parsed.ke()) {
            (None, Ok(None)) => Some(None),
            (Some((method, half)), Ok(Some(ke))) if ke.method == *method => {
                match ctx.complete(*method, half, ke.data) {
                    Ok(shared) => Some(Some(shared)),
                    Err(Undone::Ask(exchange)) => {
                        stem.put_off(ctx, exchange, What::Response(opened.clone()));
                        return State::ExpectIntermediateResponse(self);
                    }
                    Err(Undone::Failed(_)) => None,
                }
            }
            _ => None,
        };
        let Some(shared) = shared else {
            return self.end(stem, Failure::Refused(NotifyType::INVALID_SYNTAX));
        };
        let Ok(ppk) = ppk::taken(&self.ppks, &parsed) else {
            return self.end(stem, Failure::Policy(PolicyReason::PpkNotOffered));
        };
        //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1
        //# In this case, the initiator cannot achieve quantum computer
        //# resistance using the proposed PPKs. If this is a requirement for
        //# the initiator, then it MUST abort creating the IKE SA.
        if !self.ppks.is_empty() && ppk.is_none() && stem.channel.connection().requires_ppk() {
            return self.end(stem, Failure::Policy(PolicyReason::NoCommonPpk));
        }
        let ppk = ppk.map(|ppk| (ppk.id.clone(), Arc::clone(&ppk.key)));
        let Self { rest, mut auth, .. } = *self;
        auth.announced.read_methods(&ctx.crypto.schemes, &parsed);
        let (prf, key) = (stem.channel.session().prf, stem.channel.session().keys.pr());
        let covered =
            auth.transcript.int_auth.absorb(prf, key, false, &opened.front, &opened.octets);
        let nonces = auth.transcript.nonces();
        let ppk = ppk.as_ref().map(|(id, key)| (id, &**key));
        if covered.is_err() || stem.next_epoch(ctx, shared.as_ref(), ppk, nonces).is_err() {
            return auth.end(stem, Failure::Crypto);
        }
        // No message of the peer comes under the old keys any more.
        stem.channel.proving().forget_former_keys();
        auth.proceed(stem, ctx, rest)
    }

    fn end(self: Box<Self>, stem: &mut Stem<'_>, failure: Failure) -> State {
        stem.ending.end(failure);
        State::ExpectIntermediateResponse(self)
    }
}

/// The secrets of an IKE_INTERMEDIATE that a responder has answered.
struct Answered {
    shared: Option<Secret>,
    ppk: Option<CommonPpk>,
    /// A PPK was due, and none came.
    lacks_ppk: bool,
}

impl ExpectIntermediateRequest {
    pub(crate) fn on_request(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        let Answered { shared, ppk, lacks_ppk } = match self.answer(stem, ctx, payloads, opened) {
            Ok(Some(answered)) => answered,
            Ok(None) => return State::ExpectIntermediateRequest(self),
            Err(Halt::Refuse(refusal)) => {
                stem.refuse(ctx, refusal);
                return State::ExpectIntermediateRequest(self);
            }
            Err(Halt::Ask(exchange)) => {
                let what = What::Request(ExchangeType::IKE_INTERMEDIATE, opened.clone());
                stem.put_off(ctx, exchange, what);
                return State::ExpectIntermediateRequest(self);
            }
        };
        let Self { mut rest, auth, .. } = *self;
        let nonces = auth.transcript.nonces();
        let mixed = ppk.as_ref().map(|ppk| (&ppk.id, &*ppk.key));
        if stem.next_epoch(ctx, shared.as_ref(), mixed, nonces).is_err() {
            stem.ending.end(Failure::Crypto);
        }
        if lacks_ppk {
            rest.put_off_ppk();
        }
        expect_request(rest, auth)
    }

    /// Answers. `None` if the exchange had no purpose, so that the step is still due.
    fn answer(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<Option<Answered>, Halt> {
        let Step { method, ppk: ppk_due, announce } = self.step;
        let parsed = Payloads(payloads);
        let brings_ppk = stem.channel.link().extensions().ppk == Some(PpkPlace::Intermediate)
            && ppk::offers(&parsed).next().is_some();
        let brings_ke = parsed.ke()?.is_some();
        let announces = announce && method.is_none();
        if !brings_ke && !brings_ppk && !announces {
            self.auth.answer_idle(stem, ctx, payloads, opened)?;
            return Ok(None);
        }
        // RFC 9370 §2.2.2: the methods run in the order of their transform types
        let in_order = parsed.ke()?.map(|ke| ke.method) == method;
        // RFC 9867 §3.1: PPKs are offered in the last exchange
        if !in_order || brings_ppk && !ppk_due {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let ppk =
            if brings_ppk { self.take_initial_ppk(stem.channel, ctx, &parsed)? } else { None };
        let (public, shared) = match method {
            Some(method) => {
                let (public, shared) = respond_ke(ctx, method, &parsed)?;
                (Some((method, public)), Some(shared))
            }
            None => (None, None),
        };
        let ke = public.iter().map(|(method, data)| Payload::Ke(Ke { method: *method, data }));
        let chosen = ppk.iter().map(|ppk| notify(NotifyType::PPK_IDENTITY, &ppk.wire));
        let connections = self.auth.connections.iter().map(|connection| &**connection);
        let own = announce.then(|| OwnAnnouncements::new(ctx.io.config, ctx.crypto, connections));
        let methods = own.iter().filter_map(OwnAnnouncements::methods_payload);
        let reply: Vec<_> = ke.chain(chosen).chain(methods).collect();
        self.auth.answer_covered(stem, ctx, &reply, opened)?;
        drop(reply);
        Ok(Some(Answered { shared, ppk, lacks_ppk: ppk_due && !brings_ppk }))
    }
}

impl ExpectAuthRequest {
    /// Handles an IKE_INTERMEDIATE after the last one that has a purpose.
    pub(crate) fn on_idle_request(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> State {
        if let Err(refusal) = self.answer_idle(stem, ctx, payloads, opened) {
            stem.refuse(ctx, refusal);
        }
        State::ExpectAuthRequest(self)
    }

    //= https://www.rfc-editor.org/rfc/rfc9242#section-3.3.2
    //# The IntAuth_[i/r]*P chunk is present if the Encrypted payload is not
    //# empty.
    /// Answers an exchange that has no purpose for this end with an empty response: an end that announces
    /// IKE_INTERMEDIATE must expect such a request (RFC 9242 §3.2). AUTH covers both messages. The next steps are
    /// still due.
    fn answer_idle(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<(), Refusal> {
        let parsed = Payloads(payloads);
        let foreign = parsed.ke()?.is_some() || ppk::offers(&parsed).next().is_some();
        let (message_id, _) = required(stem.channel.window().in_progress())?;
        // IKE_SA_INIT had message ID 0.
        let too_many = message_id > MOST_EXCHANGES;
        if foreign
            || parsed.error().is_some()
            || !stem.channel.link().extensions().intermediate
            || too_many
        {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        self.answer_covered(stem, ctx, &[], opened)
    }

    /// Answers `opened` with `reply`. AUTH covers both.
    fn answer_covered(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        reply: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<(), Refusal> {
        let (message_id, _) = required(stem.channel.window().in_progress())?;
        let (front, inner) = own_front(stem.channel.link(), message_id, true, reply);
        let session = stem.channel.session();
        let int_auth = &mut self.transcript.int_auth;
        int_auth
            .absorb(session.prf, session.keys.pi(), true, &opened.front, &opened.octets)
            .and_then(|()| int_auth.absorb(session.prf, session.keys.pr(), false, &front, &inner))
            .map_err(|NotCovered| Refusal::new(NotifyType::INVALID_SYNTAX))?;
        stem.respond(ctx, reply);
        Ok(())
    }
}

impl ExpectIntermediateRequest {
    /// As [`choose_initial_ppk`](Self::choose_initial_ppk). The log hears if there is none.
    fn take_initial_ppk(
        &self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<CommonPpk>, Refusal> {
        let chosen = self.choose_initial_ppk(channel, ctx.io.config, payloads);
        if chosen.is_err() {
            let why = Disbelief::NoCommonPpk;
            Blame::of(Some(channel.connection()), why).tell(channel, ctx, (None, None));
        }
        chosen
    }

    /// The PPK to use of those that the peer offers: one that a possible connection allows.
    fn choose_initial_ppk(
        &self,
        channel: &Channel,
        config: &EndpointConfig,
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<CommonPpk>, Refusal> {
        let ExpectAuthRequest { transcript, connections, .. } = &*self.auth;
        let allowed = |id: &PpkId| connections.iter().any(|connection| connection.takes_ppk(id));
        let [spi_i, spi_r] = channel.link().spis().octets();
        let parts = [&transcript.ni, &transcript.nr, &spi_i[..], &spi_r];
        let chosen = ppk::choose(config, allowed, channel.session().prf, payloads, &parts);
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
}

impl ExpectAuthResponse {
    /// The PPKs to offer in the last IKE_INTERMEDIATE.
    fn ppks_for_intermediate(&self, channel: &Channel, ctx: &Context<'_>) -> Vec<OfferedPpk> {
        let [spi_i, spi_r] = channel.link().spis().octets();
        let parts = [&*self.transcript.ni, &self.transcript.nr, &spi_i, &spi_r];
        ppk::offer(ctx.io.config, &channel.connection().ppk, channel.session().prf, &parts)
    }
}

/// What [`IntAuth`](crate::keys::int_auth::IntAuth) covers of a message of ours.
fn own_front(
    link: &Link,
    message_id: u32,
    response: bool,
    payloads: &[Payload<'_>],
) -> (Vec<u8>, Vec<u8>) {
    let mut inner = Vec::new();
    let first = encode_payloads(payloads, &mut inner);
    let mut front = Vec::new();
    let header = Header {
        spi_i: link.spis().i(),
        spi_r: link.spis().r(),
        next_payload: PayloadType::SK,
        minor_version: 0,
        exchange: ExchangeType::IKE_INTERMEDIATE,
        flags: Flags { initiator: link.is_initiator(), version: false, response },
        message_id,
        length: 0,
    };
    header.encode(&mut front);
    front.extend([first.0, 0, 0, 0]);
    (front, inner)
}

impl Stem<'_> {
    /// Puts the next keys in force. The former ones still open messages that the peer sent before it knew (RFC
    /// 9370 §2.2.2).
    fn next_epoch(
        &mut self,
        ctx: &Context<'_>,
        shared: Option<&Secret>,
        ppk: Option<(&PpkId, &PostQuantumKey)>,
        nonces: Nonces<'_>,
    ) -> Result<(), CryptoError> {
        if shared.is_none() && ppk.is_none() {
            return Ok(());
        }
        let (spis, initiator) = (self.channel.link().spis(), self.channel.link().is_initiator());
        let session = self.channel.session();
        let suite = session.selected.suite;
        let lengths = ctx.crypto.ciphers.lengths(suite).ok_or(CryptoError::Unsupported)?;
        let (prf, seed) = (session.prf, Seed::new(nonces, spis));
        let sk_d = session.keys.d();
        let mut keys = shared.map(|shared| IkeKeys::next(prf, sk_d, shared, &seed, &lengths));
        if let Some((id, key)) = ppk {
            //= https://www.rfc-editor.org/rfc/rfc9867#section-3.1.1
            //# applying the PPK MUST be done after all of them so that
            //# recalculating IKE SA keys with the PPK is the last action before they
            //# are used in the next exchange.
            let before = keys.as_ref().map_or(sk_d, |keys| &keys.d);
            let secret = &key.secret;
            keys = Some(IkeKeys::mixed_in_intermediate(prf, before, secret, &seed, &lengths));
            self.peer.use_ppk(id.clone(), ctx.registry.seed().print(secret));
        }
        let Some(keys) = keys else { return Ok(()) };
        let epoch = Epoch::new(ctx.crypto.ciphers, suite, &keys, initiator)?;
        self.channel.proving().advance(keys, epoch);
        Ok(())
    }
}

/// The state of a responder with these steps still to come.
pub(crate) fn expect_request(mut rest: Steps, auth: Box<ExpectAuthRequest>) -> State {
    match rest.next() {
        None => State::ExpectAuthRequest(auth),
        Some(step) => {
            let waiting = ExpectIntermediateRequest { step, rest, auth };
            State::ExpectIntermediateRequest(Box::new(waiting))
        }
    }
}
