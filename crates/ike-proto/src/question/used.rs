//! How an end has authenticated.

use std::num::NonZeroU64;
use std::sync::Arc;

#[cfg(doc)]
use super::EapSuccess;
use super::{Authorization, PeerCertificate};
use crate::config::AuthConfig;
use crate::crypto::SignatureScheme;
use crate::wire::payload::{IdData, TrafficSelector};
use crate::wire::registry::AuthMethod;

/// How one end authenticated in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedAuth {
    /// Its identity. That of a peer with NULL authentication is not proven.
    pub id: IdData,
    /// The method of the AUTH payload.
    pub method: AuthMethod,
    /// The signature's scheme; `None` for a method without signature.
    pub scheme: Option<SignatureScheme>,
    /// A peer's certificate, or its raw public key.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The result of EAP, if the round used EAP.
    pub eap: Option<Box<UsedEap>>,
    /// The addresses that the peer's certificate authorizes (RFC 3779); `None` for any.
    pub addresses: Option<Arc<Vec<TrafficSelector>>>,
}

impl UsedAuth {
    /// True if it was done by the method of `auth`, by whatever signature scheme or EAP method.
    pub fn is_by(&self, auth: &AuthConfig) -> bool {
        match auth {
            AuthConfig::Psk => self.is_by_psk(),
            // All other methods are signatures.
            AuthConfig::Pubkey(_) => {
                self.eap.is_none() && ![AuthMethod::PSK, AuthMethod::NULL].contains(&self.method)
            }
            AuthConfig::Eap => self.eap.is_some(),
            AuthConfig::Null => self.method == AuthMethod::NULL && self.eap.is_none(),
        }
    }

    /// True if it was done by a pre-shared key.
    pub(crate) fn is_by_psk(&self) -> bool {
        self.method == AuthMethod::PSK && self.eap.is_none()
    }
}

/// What EAP has shown about an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedEap {
    /// The method and the identity in it, safe in a log line.
    pub method: String,
    /// The EAP identity of a peer, of type [`IdData::EAP`], or ID_NULL if the method does not prove an identity.
    /// `None` for this end.
    pub id: Option<IdData>,
    /// A number for the password of a peer whose password the answering side has ([`EapSuccess::password`]).
    pub password: Option<NonZeroU64>,
    /// What the peer was granted.
    pub authorization: Option<Box<Authorization>>,
}
