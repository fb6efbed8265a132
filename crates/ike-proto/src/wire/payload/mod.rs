//! Payloads, one file each.

pub mod auth;
pub mod cert;
pub mod cp;
pub mod delete;
pub mod id;
pub mod ke;
pub mod nonce;
pub mod notify;
pub mod sa;
pub mod sk;
pub mod skf;
pub mod ts;
pub mod vendor;

use super::registry::PayloadType;
pub use auth::Auth;
pub use cert::{Cert, CertReq};
pub use cp::{Config, ConfigAttribute};
pub use delete::Delete;
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
    /// A type not known here, critical bit clear (set is a [`DecodeError`](super::DecodeError)).
    Unknown {
        /// Payload type.
        kind: PayloadType,
        /// Body after the generic header.
        body: &'a [u8],
    },
}
