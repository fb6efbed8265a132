//! Why something was dropped, refused or ended, as types. A log line or a reply makes the text.

mod dropped;
mod refused;

use std::fmt;

use crate::crypto::CryptoError;
use crate::wire::DecodeError;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::NotifyType;
pub use dropped::{DropClass, DropReason};
pub use refused::{PolicyReason, TicketReason};

/// The kind of reason for which a peer's certificates or key were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Distrust {
    /// A certificate has been revoked.
    Revoked,
    /// The status of a certificate is unknown, and the configuration requires it (`revocation`).
    RevocationUnknown,
    /// A certificate has expired.
    Expired,
    /// Any other reason.
    #[default]
    Other,
}

/// Why something failed or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The peer did not answer within the retransmission schedule.
    Timeout,
    /// The peer sent this error notify.
    Peer(NotifyType),
    /// This end refused the peer's message and answered with this error notify.
    Refused(NotifyType),
    /// No configured key fits the peer, or its AUTH payload is wrong.
    Authentication,
    /// The peer's certificates or key were refused, with the kind of reason and its text.
    Untrusted(Distrust, String),
    /// This end has no usable credentials, or they could not be used. The text says why.
    Credentials(String),
    /// The data plane refused a command.
    DataPlane(String),
    /// The configuration lacks the name, or something that is needed. The text says what.
    Config(String),
    /// The SA does not exist, or no longer exists.
    NotFound,
    /// Replaced by another SA (INITIAL_CONTACT, `unique`, reauthentication).
    Replaced,
    /// A hard lifetime was reached.
    Expired,
    /// No traffic for `inactivity`.
    Inactive,
    /// The peer has shown by its token that it has lost the SA, as in a crash (RFC 6290).
    LostByPeer,
    /// Deleted by the peer.
    DeletedByPeer,
    /// Deleted by command.
    Terminated,
    /// Policy forbids to continue: a PPK or downgrade prevention is required, and the peer has none.
    Policy(PolicyReason),
    /// The crypto backend failed.
    Crypto,
}

impl Failure {
    /// A word for the failure, for labels and scripts. It is one of a fixed few whatever the peer sends, and does
    /// not change between releases.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Peer(notify) | Self::Refused(notify) => notify.name().unwrap_or("other notify"),
            Self::Authentication => "authentication",
            Self::Untrusted(..) => "untrusted",
            Self::Credentials(_) => "credentials",
            Self::DataPlane(_) => "data_plane",
            Self::Config(_) => "configuration",
            Self::NotFound => "not_found",
            Self::Replaced => "replaced",
            Self::Expired => "expired",
            Self::Inactive => "inactive",
            Self::LostByPeer => "lost_by_peer",
            Self::DeletedByPeer => "deleted_by_peer",
            Self::Terminated => "terminated",
            Self::Policy(_) => "policy",
            Self::Crypto => "crypto",
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the peer does not answer"),
            Self::Peer(kind) => write!(f, "the peer answered {kind}"),
            Self::Refused(kind) => write!(f, "refused with {kind}"),
            Self::Authentication => f.write_str("authentication failed"),
            Self::Untrusted(_, text) => write!(f, "authentication failed: {text}"),
            Self::Credentials(text) => write!(f, "cannot authenticate: {text}"),
            Self::DataPlane(text) => write!(f, "data plane: {text}"),
            Self::Config(text) => write!(f, "configuration: {text}"),
            Self::NotFound => f.write_str("no such SA"),
            Self::Replaced => f.write_str("replaced by another SA"),
            Self::Expired => f.write_str("lifetime expired"),
            Self::Inactive => f.write_str("inactive"),
            Self::LostByPeer => f.write_str("the peer has lost the SA (QCD)"),
            Self::DeletedByPeer => f.write_str("deleted by the peer"),
            Self::Terminated => f.write_str("terminated"),
            Self::Policy(why) => write!(f, "refused by policy: {why}"),
            Self::Crypto => f.write_str("crypto backend failed"),
        }
    }
}

/// An error notify with which a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: NotifyType,
    pub(crate) data: Vec<u8>,
}

impl Refusal {
    pub(crate) fn new(kind: NotifyType) -> Self {
        Self { kind, data: Vec::new() }
    }

    /// The notify payload, without an SPI.
    pub(crate) fn payload(&self) -> Payload<'_> {
        Payload::Notify(Notify::new(self.kind, &self.data))
    }

    /// True for the two errors that end an authenticated IKE SA at both peers without a Delete
    /// (RFC 7296 §2.21.2, §2.21.3).
    pub(crate) fn ends_sa(&self) -> bool {
        matches!(self.kind, NotifyType::INVALID_SYNTAX | NotifyType::AUTHENTICATION_FAILED)
    }
}

impl From<NotifyType> for Refusal {
    fn from(kind: NotifyType) -> Self {
        Self::new(kind)
    }
}

impl From<DecodeError> for Refusal {
    /// RFC 7296 §2.5: the notify about an unsupported critical payload carries its type.
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::UnsupportedCritical(kind) => {
                Self { kind: NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, data: vec![kind] }
            }
            DecodeError::Truncated(_)
            | DecodeError::Trailing(_)
            | DecodeError::Invalid(_)
            | DecodeError::Version(_)
            | DecodeError::TooMany(_) => Self::new(NotifyType::INVALID_SYNTAX),
            // Another crate's, which may get more.
            _ => Self::new(NotifyType::INVALID_SYNTAX),
        }
    }
}

impl From<CryptoError> for Refusal {
    fn from(error: CryptoError) -> Self {
        match error {
            // The peer has done nothing wrong.
            CryptoError::Backend => Self::new(NotifyType::TEMPORARY_FAILURE),
            CryptoError::InvalidPublic
            | CryptoError::Integrity
            | CryptoError::Length
            | CryptoError::Unsupported => Self::new(NotifyType::INVALID_SYNTAX),
            // Another crate's, which may get more.
            _ => Self::new(NotifyType::INVALID_SYNTAX),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.kind)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)
    }
}
