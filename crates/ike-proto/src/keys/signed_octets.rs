//! What an AUTH payload covers, and authentication by a pre-shared key (RFC 7296 §2.15).
//!
//! ```text
//! InitiatorSignedOctets = RealMessage1 | NonceRData | MACedIDForI [| IntAuth]
//! ResponderSignedOctets = RealMessage2 | NonceIData | MACedIDForR [| IntAuth]
//! MACedIDForI           = prf(SK_pi, IDType | RESERVED | InitIDData)
//! AUTH (shared key)     = prf(prf(Shared Secret, "Key Pad for IKEv2"), <SignedOctets>)
//! ```
//!
//! If both ends announced IKE_SA_INIT_FULL_TRANSCRIPT_AUTH
//! (draft-ietf-ipsecme-ikev2-downgrade-prevention §6), each covers both messages:
//!
//! ```text
//! InitiatorSignedOctets = ZeroPrefix | RealMessage2 | RealMessage1 | NonceRData | MACedIDForI [| IntAuth]
//! ResponderSignedOctets = ZeroPrefix | RealMessage1 | RealMessage2 | NonceIData | MACedIDForR [| IntAuth]
//! ```

use std::fmt;

use crate::crypto::{CryptoProvider, Prf, Secret, SignatureScheme};
use crate::wire::payload::Id;

/// The messages of IKE_SA_INIT that an AUTH payload covers.
#[derive(Debug, Clone, Copy)]
pub enum Transcript<'a> {
    /// The signer's own message, from the first octet of the header (no non-ESP marker) to the last
    /// octet of the last payload: the request for the initiator, the response for the responder.
    RealMessage(&'a [u8]),
    /// Both messages, each as in [`RealMessage`](Self::RealMessage): both ends announced
    /// IKE_SA_INIT_FULL_TRANSCRIPT_AUTH.
    Full {
        /// The signer's own message.
        own: &'a [u8],
        /// The message the signer received.
        peer: &'a [u8],
    },
}

/// Eight zero octets, which no message begins with: an initiator's SPI is never zero
/// (draft-ietf-ipsecme-ikev2-downgrade-prevention §6).
const ZERO_PREFIX: &[u8] = &[0; 8];

/// InitiatorSignedOctets or ResponderSignedOctets.
pub struct SignedOctets(Vec<u8>);

impl SignedOctets {
    /// Assembles the octets of one signer.
    ///
    /// `sk_p` is the signer's SK_pi or SK_pr and `id` its identity; `peer_nonce` is the nonce of the
    /// other side, without payload header. `int_auth` is IntAuth of RFC 9242 §3.3.2 if there were
    /// IKE_INTERMEDIATE exchanges.
    pub fn new(
        prf: &dyn Prf,
        sk_p: &Secret,
        transcript: Transcript<'_>,
        peer_nonce: &[u8],
        id: Id<'_>,
        int_auth: Option<&[u8]>,
    ) -> Self {
        let [prefix, first, second] = match transcript {
            Transcript::RealMessage(message) => [&[][..], &[], message],
            Transcript::Full { own, peer } => [ZERO_PREFIX, peer, own],
        };
        let maced_id = prf.prf(sk_p.expose(), &[&[id.kind.0], &id.reserved, id.data]);
        let int_auth = int_auth.unwrap_or_default();
        Self([prefix, first, second, peer_nonce, maced_id.expose(), int_auth].concat())
    }

    /// The octets, for a signature.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SignedOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignedOctets({} octets)", self.0.len())
    }
}

/// Evidence that the peer proved its identity. Only a verifying function of this module makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAuthenticated(());

/// The peer did not prove its identity. Says no more, so that no answer can tell an attacker more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthFailure;

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("authentication failed")
    }
}

impl std::error::Error for AuthFailure {}

/// Authentication Data of a shared key (RFC 7296 §2.15).
pub fn psk_auth(prf: &dyn Prf, psk: &Secret, octets: &SignedOctets) -> Secret {
    auth_by(prf, &padded(prf, psk), octets)
}

/// `prf(Shared Secret, "Key Pad for IKEv2")`: the same in every handshake.
pub(crate) fn padded(prf: &dyn Prf, psk: &Secret) -> Secret {
    prf.prf(psk.expose(), &[KEY_PAD])
}

/// [`psk_auth`] by the [`padded`] key.
pub(crate) fn auth_by(prf: &dyn Prf, padded: &Secret, octets: &SignedOctets) -> Secret {
    prf.prf(padded.expose(), &[octets.as_bytes()])
}

/// Checks the peer's Authentication Data `received` in constant time; `octets` are the peer's.
pub fn verify_psk(
    prf: &dyn Prf,
    psk: &Secret,
    octets: &SignedOctets,
    received: &[u8],
) -> Result<PeerAuthenticated, AuthFailure> {
    verify_by(prf, &padded(prf, psk), octets, received)
}

/// [`verify_psk`] by the [`padded`] key.
pub(crate) fn verify_by(
    prf: &dyn Prf,
    padded: &Secret,
    octets: &SignedOctets,
    received: &[u8],
) -> Result<PeerAuthenticated, AuthFailure> {
    if auth_by(prf, padded, octets).ct_eq(received) {
        Ok(PeerAuthenticated(()))
    } else {
        Err(AuthFailure)
    }
}

/// Verifies the peer's `signature`, in the form of X.509, with the public key in `spki`, a DER
/// SubjectPublicKeyInfo; `octets` are the peer's. Whose key it is was settled before.
pub fn verify_signature(
    crypto: &CryptoProvider,
    scheme: &SignatureScheme,
    spki: &[u8],
    octets: &SignedOctets,
    signature: &[u8],
) -> Result<PeerAuthenticated, AuthFailure> {
    crypto
        .verify(scheme, spki, octets.as_bytes(), signature)
        .map(|()| PeerAuthenticated(()))
        .map_err(|_| AuthFailure)
}

/// 17 octets, no terminating zero.
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";
