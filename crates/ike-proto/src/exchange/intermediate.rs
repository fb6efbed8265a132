//! IKE_INTERMEDIATE (RFC 9242) with the additional key exchanges of RFC 9370.
//!
//! ```text
//!    HDR, SK {KEi(n)}  -->
//!                               <--  HDR, SK {KEr(n)}
//! ```
//!
//! Each exchange is protected by the keys before it and makes new ones; AUTH covers them all.

use super::child_sa::respond_ke;
use super::{Payloads, Refusal, required};
use crate::crypto::{CryptoError, Secret};
use crate::event::Failure;
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{
    ExpectAuthRequest, ExpectAuthResponse, ExpectIntermediateRequest, ExpectIntermediateResponse,
    State,
};
use crate::keys::epoch::{Epoch, Opened};
use crate::keys::int_auth::NotCovered;
use crate::wire::payload::{Ke, Payload};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType, PayloadType};
use crate::wire::{Flags, Header, encode_payloads};

impl IkeSa {
    // ---- initiator ----

    /// Goes on after IKE_SA_INIT or an IKE_INTERMEDIATE: the next key exchange, or IKE_AUTH.
    pub(crate) fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        mut rest: Vec<KeMethodId>,
        auth: ExpectAuthResponse,
        initial_contact: bool,
    ) {
        if rest.is_empty() {
            self.state = State::ExpectAuthResponse(Box::new(auth));
            return self.send_auth_request(ctx, initial_contact);
        }
        let method = rest.remove(0);
        let started = ctx
            .crypto
            .ke(method)
            .ok_or(CryptoError::Unsupported)
            .and_then(|backend| backend.initiate(ctx.rng));
        let Ok(ke) = started else {
            self.state = State::ExpectAuthResponse(Box::new(auth));
            return self.close(ctx, Failure::Crypto);
        };
        let mut auth = auth;
        let public = ke.public().to_vec();
        let payloads = [Payload::Ke(Ke { method, data: &public })];
        let covered = self.window.next_request_id().map_err(|_| NotCovered).and_then(|id| {
            let (front, inner) = self.own_front(id, false, &payloads);
            let (prf, key) = (self.session.prf, &self.session.keys.pi);
            auth.transcript.int_auth.absorb(prf, key, true, &front, &inner)
        });
        let next = ExpectIntermediateResponse { method, ke, rest, auth, initial_contact };
        self.state = State::ExpectIntermediateResponse(Box::new(next));
        if covered.is_err() {
            return self.close(ctx, Failure::Crypto);
        }
        self.request(ctx, ExchangeType::IKE_INTERMEDIATE, &payloads);
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
        let shared = match required_ke(&parsed) {
            Ok(ke) if ke.method == waiting.method => {
                let lengths = ctx.crypto.ke(ke.method).map(|backend| backend.lengths());
                let fits = lengths.is_some_and(|lengths| lengths.responder == ke.data.len());
                if fits { waiting.ke.complete(ke.data).ok() } else { None }
            }
            _ => None,
        };
        let Some(shared) = shared else {
            return self.close(ctx, Failure::Refused(NotifyType::INVALID_SYNTAX));
        };
        let State::ExpectIntermediateResponse(waiting) =
            std::mem::replace(&mut self.state, State::Closed(Failure::Crypto))
        else {
            return;
        };
        let ExpectIntermediateResponse { rest, mut auth, initial_contact, .. } = *waiting;
        let (prf, key) = (self.session.prf, &self.session.keys.pr);
        let covered =
            auth.transcript.int_auth.absorb(prf, key, false, &opened.front, &opened.octets);
        let nonces = (&*auth.transcript.ni, &*auth.transcript.nr);
        if covered.is_err() || self.next_epoch(ctx, &shared, nonces).is_err() {
            self.state = State::ExpectAuthResponse(Box::new(auth));
            return self.close(ctx, Failure::Crypto);
        }
        // Nothing of the peer's comes under the old keys any more.
        self.session.previous = None;
        self.proceed(ctx, rest, auth, initial_contact);
    }

    // ---- responder ----

    pub(crate) fn on_intermediate_request(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        if let Err(refusal) = self.answer_intermediate(ctx, payloads, opened) {
            self.refuse(ctx, refusal);
        }
    }

    fn answer_intermediate(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) -> Result<(), Refusal> {
        let State::ExpectIntermediateRequest(waiting) = &self.state else { return Ok(()) };
        let ke = required_ke(&Payloads(payloads))?;
        //= RFC 9370 §2.2.2: the methods run in the order of their transform types
        if ke.method != waiting.method {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let (public, shared) = respond_ke(ctx, ke.method, &Payloads(payloads))?;
        let reply = [Payload::Ke(Ke { method: ke.method, data: &public })];
        let (message_id, _) = required(self.window.in_progress())?;
        let (front, inner) = self.own_front(message_id, true, &reply);
        let State::ExpectIntermediateRequest(waiting) = &mut self.state else { return Ok(()) };
        let session = &self.session;
        let int_auth = &mut waiting.auth.transcript.int_auth;
        int_auth
            .absorb(session.prf, &session.keys.pi, true, &opened.front, &opened.octets)
            .and_then(|()| int_auth.absorb(session.prf, &session.keys.pr, false, &front, &inner))
            .map_err(|NotCovered| Refusal::new(NotifyType::INVALID_SYNTAX))?;
        self.respond(ctx, &reply);
        let State::ExpectIntermediateRequest(waiting) =
            std::mem::replace(&mut self.state, State::Closed(Failure::Crypto))
        else {
            return Ok(());
        };
        let ExpectIntermediateRequest { mut rest, auth, .. } = *waiting;
        let nonces = (&*auth.transcript.ni, &*auth.transcript.nr);
        if self.next_epoch(ctx, &shared, nonces).is_err() {
            self.close(ctx, Failure::Crypto);
            return Ok(());
        }
        self.state = expect_request(&mut rest, auth);
        Ok(())
    }

    // ---- both ----

    /// Puts the next generation of keys in place. The one before still opens what the peer sent
    /// before it knew (RFC 9370 §2.2.2).
    fn next_epoch(
        &mut self,
        ctx: &Context<'_>,
        shared: &Secret,
        (ni, nr): (&[u8], &[u8]),
    ) -> Result<(), CryptoError> {
        let session = &mut self.session;
        let suite = session.selected.suite;
        let lengths = ctx.crypto.ciphers.lengths(suite).ok_or(CryptoError::Unsupported)?;
        let (prf, spi_i, spi_r) = (session.prf, self.spi_i, self.spi_r);
        let keys = session.keys.next(prf, shared, ni, nr, spi_i, spi_r, &lengths);
        let mut epoch = Epoch::new(ctx.crypto.ciphers, suite, &keys, self.initiator)?;
        epoch.continue_from(&session.epoch);
        session.previous = Some(std::mem::replace(&mut session.epoch, epoch));
        session.keys = keys;
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

/// The state of a responder that still has these key exchanges before it.
pub(crate) fn expect_request(rest: &mut Vec<KeMethodId>, auth: ExpectAuthRequest) -> State {
    if rest.is_empty() {
        return State::ExpectAuthRequest(Box::new(auth));
    }
    let method = rest.remove(0);
    let rest = std::mem::take(rest);
    State::ExpectIntermediateRequest(Box::new(ExpectIntermediateRequest { method, rest, auth }))
}

fn required_ke<'a>(payloads: &Payloads<'a, '_>) -> Result<Ke<'a>, Refusal> {
    required(payloads.ke()?.copied())
}
