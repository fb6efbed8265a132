//! Why a peer is not believed.

use std::fmt;

use super::Failure;
use crate::config::{AuthConfig, PpkId};
use crate::crypto::SignatureScheme;
use crate::wire::der::{self, Der};
use crate::wire::payload::IdData;
use crate::wire::registry::AuthMethod;

/// Why a claim of a peer was not believed. The texts are for the log of this host.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disbelief {
    /// No connection takes the peer's identity.
    NoConnection,
    /// The connections of this peer have not the identity that it requests of this end.
    OtherIdentityWanted,
    /// The connection has another proposal, or another number of rounds.
    OtherProposalOrRounds,
    /// The peer authenticates in another way than its connection wants.
    OtherMethod {
        /// What the peer shows.
        shown: AuthKind,
        /// What is configured, if there is a round for it.
        wanted: Option<AuthKind>,
    },
    /// No pre-shared key is configured for the two identities.
    NoPsk {
        /// The identity of this end.
        local: IdData,
        /// The identity of the peer.
        remote: IdData,
    },
    /// AUTH does not fit the pre-shared key.
    WrongPsk,
    /// AUTH does not fit the pre-shared key with the PPK.
    WrongPskOrPpk,
    /// AUTH does not verify.
    WrongAuth,
    /// AUTH after EAP does not verify.
    WrongAuthAfterEap,
    /// The signature in AUTH does not verify. The scheme is the one that AUTH names, if it names one.
    WrongSignature(Option<SignatureScheme>),
    /// AUTH is by a signature scheme that `auth` does not allow.
    SchemeNotAllowed(SignatureScheme),
    /// AUTH is by a signature scheme that this end does not know.
    UnknownScheme(AlgorithmOid),
    /// The Authentication Data of method 14 is malformed (RFC 7427 §3).
    MalformedAuth,
    /// The certificates or the key of the peer were refused, for this reason.
    Untrusted(String),
    /// A certificate of the path in the peer's ticket was refused, for this reason.
    VoidTicket(String),
    /// EAP failed, for this reason.
    Eap(String),
    /// EAP alone was not announced, and this end requires it.
    EapOnlyNotAnnounced,
    /// EAP is not in the last round.
    EapNotLast,
    /// A gateway does EAP and does not sign.
    EapUnsigned,
    /// The responder has another identity than the configured one.
    OtherResponder,
    /// The responder sends AUTH where EAP alone is configured.
    NotEapAlone,
    /// The PPK of the exchange before is not one of this connection.
    PpkOfOtherConnection(PpkId),
    /// A PPK is required.
    PpkRequired,
    /// A PPK is required, and no PPK that the peer offers is configured.
    NoCommonPpk,
    /// PPK_IDENTITY is missing.
    NoPpkIdentity,
    /// PPK_IDENTITY is malformed.
    MalformedPpkIdentity,
    /// The PPK is unknown, or is not one of this connection.
    UnknownPpk(PpkId),
    /// Any other reason.
    Failed(Failure),
}

/// The OBJECT IDENTIFIER of an `AlgorithmIdentifier`, in dotted form.
#[derive(Clone, PartialEq, Eq)]
pub struct AlgorithmOid(Option<String>);

impl AlgorithmOid {
    /// That of the DER `AlgorithmIdentifier` in `identifier`. One that is malformed has a text of its own.
    pub(crate) fn of(identifier: &[u8]) -> Self {
        let mut outer = Der::new(identifier);
        let oid = outer.nested(der::SEQUENCE).and_then(|mut parts| parts.object_identifier());
        Self(oid.and_then(|oid| {
            let mut text = String::new();
            der::write_dotted(&mut text, oid).ok().map(|()| text)
        }))
    }
}

impl fmt::Display for AlgorithmOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("of a malformed AlgorithmIdentifier"))
    }
}

/// A way to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthKind {
    /// By a pre-shared key.
    Psk,
    /// By a signature.
    Signature,
    /// By nothing.
    Null,
    /// By EAP, which a peer requests by sending no AUTH.
    Eap,
    /// Another method.
    Other(AuthMethod),
}

impl From<&AuthConfig> for AuthKind {
    fn from(auth: &AuthConfig) -> Self {
        match auth {
            AuthConfig::Psk => Self::Psk,
            AuthConfig::Pubkey(_) => Self::Signature,
            AuthConfig::Null => Self::Null,
            AuthConfig::Eap => Self::Eap,
        }
    }
}

impl fmt::Display for AuthKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Psk => f.write_str("a pre-shared key"),
            Self::Signature => f.write_str("a signature"),
            Self::Null => f.write_str("null authentication"),
            Self::Eap => f.write_str("EAP"),
            Self::Other(method) => write!(f, "authentication method {}", method.0),
        }
    }
}

impl fmt::Debug for Disbelief {
    /// The text, in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

impl fmt::Display for Disbelief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "no connection for the peer's identity",
            Self::OtherIdentityWanted => "no connection of this peer has the identity it asks for",
            Self::OtherProposalOrRounds => {
                "the proposal chosen or the number of authentication rounds is another than wanted"
            }
            Self::OtherMethod { shown, wanted } => {
                match shown {
                    AuthKind::Eap => {
                        f.write_str("the peer shows no AUTH, which is to ask for EAP, wanted is ")?;
                    }
                    shown => write!(f, "the peer shows {shown}, wanted is ")?,
                }
                return match wanted {
                    Some(wanted) => wanted.fmt(f),
                    None => f.write_str("nothing"),
                };
            }
            Self::NoPsk { local, remote } => {
                return write!(f, "no pre-shared key for {local} and {remote}");
            }
            Self::WrongPsk => "wrong pre-shared key",
            Self::WrongPskOrPpk => "wrong pre-shared key or PPK",
            Self::WrongAuth => "AUTH does not verify",
            Self::WrongAuthAfterEap => "AUTH does not verify by the key of EAP",
            Self::WrongSignature(None) => "the signature in AUTH does not verify",
            Self::WrongSignature(Some(scheme)) => {
                return write!(f, "the signature in AUTH, by {scheme}, does not verify");
            }
            Self::SchemeNotAllowed(scheme) => {
                return write!(
                    f,
                    "AUTH is by signature scheme {scheme}, which `auth` does not allow"
                );
            }
            Self::UnknownScheme(oid) => {
                return write!(f, "the signature scheme {oid} is not known here");
            }
            Self::MalformedAuth => "AUTH has no AlgorithmIdentifier",
            Self::Untrusted(why) => why,
            Self::VoidTicket(why) => return write!(f, "its ticket is void: {why}"),
            Self::Eap(why) => return write!(f, "EAP: {why}"),
            Self::EapOnlyNotAnnounced => "the peer does not announce EAP_ONLY_AUTHENTICATION",
            Self::EapNotLast => "EAP must be in the last round",
            Self::EapUnsigned => {
                "EAP needs a gateway that authenticates by public key, or EAP alone at both ends"
            }
            Self::OtherResponder => "the responder has another identity than `id`",
            Self::NotEapAlone => "the responder does not do with EAP alone",
            Self::PpkOfOtherConnection(id) => {
                return write!(f, "PPK {id} is not in ppk_id of this connection");
            }
            Self::PpkRequired => "a PPK is required",
            Self::NoCommonPpk => "a PPK is required, and none of those offered is known here",
            Self::NoPpkIdentity => "PPK_IDENTITY is missing",
            Self::MalformedPpkIdentity => "PPK_IDENTITY is malformed",
            Self::UnknownPpk(id) => {
                return write!(f, "PPK {id} is unknown or not of this connection");
            }
            Self::Failed(why) => return why.fmt(f),
        })
    }
}
