//! Unprotected answers, which keep no state and prove nothing.

use crate::exchange::Refusal;
use crate::exchange::qcd::OwnToken;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{NotifyType, PayloadType};
use crate::wire::{Flags, Header, encode_message};

/// An unprotected answer that refuses `request` and keeps no state.
pub(crate) fn refuse(request: &Header, refusal: &Refusal) -> Vec<u8> {
    stateless(request, request.spi_r, Notify::new(refusal.kind, &refusal.data))
}

/// The answer to a request for an IKE SA that this end does not have, with the tokens of RFC 6290 §4.5.
pub(crate) fn answer_unknown_spi(request: &Header, tokens: &[OwnToken]) -> Vec<u8> {
    let unknown = Payload::Notify(Notify::new(NotifyType::INVALID_IKE_SPI, &[]));
    let payloads: Vec<_> =
        std::iter::once(unknown).chain(tokens.iter().map(OwnToken::payload)).collect();
    unprotected(request, request.spi_r, &payloads)
}

/// An unprotected answer with one notify that keeps no state.
pub(crate) fn answer_alone(request: &Header, kind: NotifyType, data: &[u8]) -> Vec<u8> {
    stateless(request, 0, Notify::new(kind, data))
}

/// An unprotected answer that demands a cookie.
pub(crate) fn demand_cookie(request: &Header, cookie: &[u8]) -> Vec<u8> {
    stateless(request, 0, Notify::new(NotifyType::COOKIE, cookie))
}

fn stateless(request: &Header, spi_r: u64, notify: Notify<'_>) -> Vec<u8> {
    unprotected(request, spi_r, &[Payload::Notify(notify)])
}

fn unprotected(request: &Header, spi_r: u64, payloads: &[Payload<'_>]) -> Vec<u8> {
    let header = Header {
        spi_r,
        next_payload: PayloadType::NONE,
        flags: Flags { initiator: !request.flags.initiator, version: false, response: true },
        minor_version: 0,
        ..*request
    };
    encode_message(&header, payloads)
}
