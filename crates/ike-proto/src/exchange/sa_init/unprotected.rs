//! Unprotected answers, which keep no state and prove nothing.

use crate::exchange::Refusal;
use crate::exchange::qcd::OwnToken;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType};
use crate::wire::{DecodeError, Flags, Header, encode_message};

/// An unprotected answer that refuses `request` and keeps no state.
pub(crate) fn refuse(request: &Header, refusal: &Refusal) -> Vec<u8> {
    stateless(request, request.spi_r, Notify::new(refusal.kind, &refusal.data))
}

/// The answer to `octets`, which cannot be decoded because of `error`; `None` if they are no request, or if no answer is
/// due.
pub(crate) fn refusal_of(octets: &[u8], error: DecodeError) -> Option<Vec<u8>> {
    let request = Header::peek(octets).filter(|header| !header.flags.response)?;
    let begins = request.spi_r == 0
        && matches!(request.exchange, ExchangeType::IKE_SA_INIT | ExchangeType::IKE_SESSION_RESUME);
    let refusal = match error {
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.5
        //# If an endpoint receives a message with a higher major version number,
        //# it MUST drop the message and SHOULD send an unauthenticated Notify
        //# message of type INVALID_MAJOR_VERSION containing the highest
        //# (closest) version number it supports.
        // The answer's header has the highest version. Only a request is answered (RFC 7296 §1.5).
        DecodeError::Version(version) if version >> 4 > 2 => {
            Some(NotifyType::INVALID_MAJOR_VERSION.into())
        }
        DecodeError::UnsupportedCritical(_) if begins => Some(Refusal::from(error)),
        _ => None,
    };
    refusal.map(|refusal| refuse(&request, &refusal))
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
