//! The client's side: IKE_SESSION_RESUME, and the IKE_AUTH after it.

use std::sync::Arc;

use super::fits::InForce;
use super::former::{Former, Held, Resumed};
use super::{METHOD, session};
use crate::channel::Extensions;
use crate::config::{EndpointConfig, FragmentAckTypes, Fragmentation};
use crate::crypto::{CryptoError, CryptoProvider, PendingKe, Secret};
use crate::event::{Failure, Transport};
use crate::exchange::Payloads;
use crate::exchange::auth::announce::Announcements;
use crate::exchange::auth::claim;
use crate::exchange::auth::rounds::{OwnAuth, used};
use crate::exchange::redirect::gateway_data;
use crate::exchange::sa_init::{Accepted, NatHashes, Reading, Request, Unfit, detect_nat, status};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{ExpectAuthResponse, InitTranscript, State};
use crate::ike_sa::{Stem, notify};
use crate::keys::int_auth::IntAuth;
use crate::keys::signed_octets::{auth_by, verify_by};
use crate::keys::{Nonces, Seed, Spis};
use crate::reason::{DropReason, PolicyReason};
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType};
use crate::wire::{Flags, Header, Message, encode_message};

/// Takes the place of the key exchange of IKE_SA_INIT.
pub(crate) struct NoKe;

impl PendingKe for NoKe {
    fn public(&self) -> &[u8] {
        &[]
    }

    fn complete(&self, _peer: &[u8]) -> Result<Secret, CryptoError> {
        Err(CryptoError::Unsupported)
    }
}

/// The request that presents `held`. Of `request`, only what is negotiated again counts.
pub(crate) fn encode_request(
    request: &Request<'_>,
    config: &EndpointConfig,
    crypto: &CryptoProvider,
    held: &Held,
) -> Vec<u8> {
    let nat = NatHashes::new(crypto, Spis::new(request.spi_i, 0), request.path, request.force_nat);
    let vendor = request.fragment_ack.map(FragmentAckTypes::vendor_id);
    let mut payloads = Vec::with_capacity(8);
    payloads.extend(
        request.cookie.map(|cookie| Payload::Notify(Notify::new(NotifyType::COOKIE, cookie))),
    );
    payloads.push(Payload::Nonce(request.nonce));
    payloads.push(notify(NotifyType::TICKET_OPAQUE, &held.octets));
    nat.push(&mut payloads);
    if request.connection.fragmentation != Fragmentation::No {
        payloads.push(status(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED));
        payloads.extend(vendor.as_deref().map(Payload::Vendor));
    }
    if request.separate {
        payloads.push(status(NotifyType(config.separate_transports)));
    }
    let from = request.redirect.flatten().map(|from| gateway_data(from, &[]));
    payloads.extend(match (&from, request.redirect) {
        (Some(from), _) => Some(notify(NotifyType::REDIRECTED_FROM, from)),
        (None, Some(_)) => Some(status(NotifyType::REDIRECT_SUPPORTED)),
        (None, None) => None,
    });
    let header = Header {
        spi_i: request.spi_i,
        spi_r: 0,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SESSION_RESUME,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 0,
        length: 0,
    };
    encode_message(&header, &payloads)
}

/// Classifies a response without changing any state.
pub(crate) fn read_response(message: &Message<'_>) -> Reading {
    let payloads = Payloads(&message.payloads);
    // A response with a nonce is the answer, whatever else it has.
    if matches!(payloads.nonce(), Ok(None)) {
        if let Some(cookie) = payloads.notify(NotifyType::COOKIE) {
            return match cookie.data.len() {
                1..=64 => Reading::Cookie(cookie.data.to_vec()),
                _ => Reading::Useless(DropReason::CookieLength),
            };
        }
        if let Some(notify) = payloads.notify(NotifyType::REDIRECT) {
            return Reading::Redirect(notify.data.to_vec());
        }
        if payloads.notify(NotifyType::TICKET_NACK).is_some() {
            return Reading::TicketRefused(NotifyType::TICKET_NACK);
        }
        if let Some(error) = payloads.error() {
            return Reading::TicketRefused(error.kind);
        }
        return Reading::Useless(DropReason::NoNonce);
    }
    if message.header.spi_r == 0 {
        return Reading::Useless(DropReason::ResumeResponseWithoutSpi);
    }
    Reading::Usable
}

/// Derives the client's data from a usable response to `sent`.
pub(crate) fn accept_response(
    ctx: &Context<'_>,
    request: &Request<'_>,
    held: &Held,
    sent: &Arc<[u8]>,
    message: &Message<'_>,
    octets: &[u8],
) -> Result<Accepted, Unfit> {
    let payloads = Payloads(&message.payloads);
    let nr =
        payloads.nonce().map_err(|_| DropReason::RepeatedPayload)?.ok_or(DropReason::NoNonce)?;
    let former = &held.former;
    let selected = former.select(request.connection).ok_or(DropReason::AlgorithmsGone)?;
    let mut extensions =
        Extensions::negotiate(request.connection, request.fragment_ack, &payloads, None);
    extensions.resume(former);
    extensions.client = true;
    let separate = NotifyType(ctx.io.config.separate_transports);
    extensions.separate = request.separate && payloads.notify(separate).is_some();
    if request.path.transport == Transport::Tcp && !extensions.separate && !ctx.plane.tcp_esp {
        return Err(Unfit::Policy(PolicyReason::NoEspInTcp));
    }
    let spis = Spis::of(&message.header);
    let seed = Seed::new(Nonces { i: request.nonce, r: nr }, spis);
    let session = session(ctx.crypto, selected, &former.sk_d, &seed, true)
        .map_err(|_| DropReason::KeysNotDerived)?;
    let mut nat = detect_nat(ctx.crypto, &payloads, spis, request.path);
    nat.local |= request.force_nat && nat.supported;
    Ok(Accepted {
        session,
        transcript: InitTranscript {
            request: Arc::clone(sent),
            cookies: None,
            response: octets.into(),
            ni: request.nonce.into(),
            nr: (*nr).into(),
            int_auth: IntAuth::default(),
        },
        extensions,
        announced: Announcements::default(),
        nat,
        spi_r: spis.r(),
    })
}

impl Extensions {
    /// Takes what a resumed SA has from `former`, and drops what it does not need.
    pub(super) fn resume(&mut self, former: &Former) {
        (self.intermediate, self.ppk) = (false, None);
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-downgrade-prevention-08#section-7.2
        //# This means that in the IKE_SESSION_RESUME
        //# exchange peers do not send the IKE_SA_INIT_FULL_TRANSCRIPT_AUTH
        //# notification and do not expect it in the received messages.
        self.full_transcript = former.full_transcript;
    }
}

impl ExpectAuthResponse {
    /// Makes the IKE_AUTH request of a resumed SA.
    pub(crate) fn send_resumed_auth(
        self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        held: &Held,
    ) -> State {
        // SK_d depends on the former PPK. No PPK is mixed in now.
        //= https://www.rfc-editor.org/rfc/rfc8784#section-3
        //# It MUST NOT be used when these
        //# subkeys are calculated as result of IKE SA rekey, resumption, or
        //# other similar operations.
        if let Some(id) = &held.former.ppk {
            stem.peer.use_ppk(id.clone(), InForce::at(ctx).ppk_print(id));
        }
        let Some(id) = held.former.local_id().cloned() else {
            return self.end(stem, Failure::Credentials("the ticket has no identity".to_owned()));
        };
        let octets = self.transcript.own_covered(stem.channel, &id).octets;
        let data = auth_by(stem.channel.session().prf, stem.channel.session().keys.pi(), &octets);
        let used = used(id, METHOD);
        let own = OwnAuth { used, certs: Vec::new(), data: Some(data), no_ppk: None, named: false };
        self.send_auth_request(stem, ctx, Some(own))
    }

    /// Judges the response to that request. An error ends this candidate. The attempt starts over without the
    /// ticket.
    pub(crate) fn on_resumed_response(
        mut self: Box<Self>,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        held: &Held,
        payloads: &[Payload<'_>],
    ) -> State {
        let parsed = Payloads(payloads);
        let (id, auth) = match claim(&parsed) {
            Ok(claim) => claim,
            Err(failure) => return self.reject(stem, ctx, failure),
        };
        //= https://www.rfc-editor.org/rfc/rfc5723#section-4.3.3
        //# the IDr value
        //# sent (by the gateway, and optionally by the client) in this exchange
        //# MUST also be identical to the value included in the ticket.
        if held.former.remote_id() != Some(&id.to_owned()) {
            return self.reject(stem, ctx, Failure::Authentication);
        }
        let (prf, key) = (stem.channel.session().prf, stem.channel.session().keys.pr().duplicate());
        let verdict = self
            .with_twins(stem.channel, ctx, id, |octets| verify_by(prf, &key, octets, auth.data));
        let Ok(evidence) = verdict else {
            return self.reject(stem, ctx, Failure::Authentication);
        };
        let Former { local, remote, spis, .. } = &held.former;
        let resumed = Resumed { spis: *spis, reauth_by: held.reauth_by, ends_by: None };
        self.rounds.resume(local.clone(), remote.clone(), evidence, resumed);
        self.rounds.note_secret(InForce::at(ctx).print_of_held(prf, held));
        stem.channel.proving().note_genuine();
        self.round_done(stem, ctx, payloads)
    }
}
