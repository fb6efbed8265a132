//! Payloads, one file each.

pub mod auth;
pub mod cert;
pub mod cp;
pub mod delete;
pub mod fragment_ack;
pub mod id;
pub mod ke;
pub mod nonce;
pub mod notify;
pub mod sa;
pub mod sk;
pub mod skf;
pub mod ts;
pub mod vendor;

use super::codec::DecodeError;
use super::registry::PayloadType;
pub use auth::Auth;
pub use cert::{Cert, CertReq};
pub use cp::{Attribute, Config, ConfigAttribute};
pub use delete::Delete;
pub use fragment_ack::MissingRange;
pub use id::{Id, IdData};
pub use ke::Ke;
pub use notify::Notify;
pub use sa::{Proposal, Sa, Spi, Transform};
pub use sk::Sk;
pub use skf::Skf;
pub use ts::TrafficSelector;

/// A payload. Bulky fields borrow from the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Security Association.
    Sa(Sa),
    /// Key Exchange.
    Ke(Ke<'a>),
    /// Identification of the initiator.
    IdI(Id<'a>),
    /// Identification of the responder.
    IdR(Id<'a>),
    /// Certificate.
    Cert(Cert<'a>),
    /// Certificate request.
    CertReq(CertReq<'a>),
    /// Authentication.
    Auth(Auth<'a>),
    /// Nonce data.
    Nonce(&'a [u8]),
    /// Notify.
    Notify(Notify<'a>),
    /// Delete.
    Delete(Delete),
    /// Vendor ID.
    Vendor(&'a [u8]),
    /// Traffic selectors of the initiator.
    TsI(Vec<TrafficSelector>),
    /// Traffic selectors of the responder.
    TsR(Vec<TrafficSelector>),
    /// Encrypted and authenticated; always the last of a message.
    Sk(Sk<'a>),
    /// Encrypted and authenticated fragment; always the last of a message.
    Skf(Skf<'a>),
    /// Configuration.
    Config(Config<'a>),
    /// Extensible Authentication, undecoded.
    Eap(&'a [u8]),
    /// A type not known here, critical bit clear (set is a [`DecodeError`]).
    Unknown {
        /// Payload type.
        kind: PayloadType,
        /// Body after the generic header.
        body: &'a [u8],
    },
}

impl<'a> Payload<'a> {
    /// Payload type.
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::SA,
            Self::Ke(_) => PayloadType::KE,
            Self::IdI(_) => PayloadType::ID_I,
            Self::IdR(_) => PayloadType::ID_R,
            Self::Cert(_) => PayloadType::CERT,
            Self::CertReq(_) => PayloadType::CERTREQ,
            Self::Auth(_) => PayloadType::AUTH,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::NOTIFY,
            Self::Delete(_) => PayloadType::DELETE,
            Self::Vendor(_) => PayloadType::VENDOR,
            Self::TsI(_) => PayloadType::TS_I,
            Self::TsR(_) => PayloadType::TS_R,
            Self::Sk(_) => PayloadType::SK,
            Self::Skf(_) => PayloadType::SKF,
            Self::Config(_) => PayloadType::CP,
            Self::Eap(_) => PayloadType::EAP,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Decodes the body of a payload of type `kind`. `next` is the next-payload field of its generic
    /// header, `offset` where `body` begins in the message; only SK and SKF keep them.
    pub fn decode(
        kind: PayloadType,
        next: PayloadType,
        body: &'a [u8],
        offset: usize,
    ) -> Result<Self, DecodeError> {
        Ok(match kind {
            PayloadType::SA => Self::Sa(Sa::decode(body)?),
            PayloadType::KE => Self::Ke(Ke::decode(body)?),
            PayloadType::ID_I => Self::IdI(Id::decode(body)?),
            PayloadType::ID_R => Self::IdR(Id::decode(body)?),
            PayloadType::CERT => Self::Cert(Cert::decode(body)?),
            PayloadType::CERTREQ => Self::CertReq(CertReq::decode(body)?),
            PayloadType::AUTH => Self::Auth(Auth::decode(body)?),
            PayloadType::NONCE => Self::Nonce(nonce::decode(body)?),
            PayloadType::NOTIFY => Self::Notify(Notify::decode(body)?),
            PayloadType::DELETE => Self::Delete(Delete::decode(body)?),
            PayloadType::VENDOR => Self::Vendor(body),
            PayloadType::TS_I => Self::TsI(ts::decode(body)?),
            PayloadType::TS_R => Self::TsR(ts::decode(body)?),
            PayloadType::SK => Self::Sk(Sk::decode(next, body, offset)),
            PayloadType::SKF => Self::Skf(Skf::decode(next, body, offset)?),
            PayloadType::CP => Self::Config(Config::decode(body)?),
            PayloadType::EAP => Self::Eap(body),
            kind => Self::Unknown { kind, body },
        })
    }

    /// Appends the body, without the generic header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sa(sa) => sa.encode(out),
            Self::Ke(ke) => ke.encode(out),
            Self::IdI(id) | Self::IdR(id) => id.encode(out),
            Self::Cert(cert) => cert.encode(out),
            Self::CertReq(request) => request.encode(out),
            Self::Auth(auth) => auth.encode(out),
            Self::Notify(notify) => notify.encode(out),
            Self::Delete(delete) => delete.encode(out),
            Self::TsI(ts) | Self::TsR(ts) => ts::encode(ts, out),
            Self::Sk(sk) => sk.encode(out),
            Self::Skf(skf) => skf.encode(out),
            Self::Config(config) => config.encode(out),
            Self::Nonce(octets) | Self::Vendor(octets) | Self::Eap(octets) => {
                out.extend_from_slice(octets);
            }
            Self::Unknown { kind: _, body } => out.extend_from_slice(body),
        }
    }
}

/// Asserts that `payload` and `body`, which begins at offset 0, are each other's encoding.
#[cfg(test)]
fn assert_round_trip(payload: &Payload<'_>, body: &[u8]) {
    let next = match payload {
        Payload::Sk(sk) => sk.first,
        Payload::Skf(skf) => skf.first,
        _ => PayloadType::NONE,
    };
    let mut encoded = Vec::new();
    payload.encode(&mut encoded);
    assert_eq!(encoded, body, "{payload:?} encodes differently");
    assert_eq!(Payload::decode(payload.kind(), next, body, 0).as_ref(), Ok(payload));
}
