//! What the engine needs of cryptography, as traits.
//!
//! Backends are values in a plain struct, [`CryptoProvider`]; there is no process-wide default. The
//! `ike-pq-kem` crate implements these traits on maintained libraries.

use std::fmt;
use std::sync::Arc;

use ike_wire::registry::{EncrId, IntegId, KeMethodId, PrfId};

pub mod sign;

mod exchange;
mod secret;

pub use exchange::KeyExchange;
pub use secret::Secret;
pub use sign::{Scheme, SchemeRegister, SignatureScheme, SignatureVerifier, SigningKey};

/// Why a cryptographic operation failed. Carries no detail that could become an oracle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CryptoError {
    /// The peer's public value or ciphertext has the wrong length or is not in the group.
    InvalidPublic,
    /// An integrity check failed.
    Integrity,
    /// Key, IV or buffer lengths do not fit the algorithm: a local bug.
    Length,
    /// The backend does not have this algorithm.
    Unsupported,
    /// The backend refused for a reason of its own.
    Backend,
}

impl fmt::Display for CryptoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidPublic => "invalid public value",
            Self::Integrity => "integrity check failed",
            Self::Length => "wrong key, IV or buffer length",
            Self::Unsupported => "algorithm not supported",
            Self::Backend => "crypto backend failed",
        })
    }
}

impl std::error::Error for CryptoError {}

/// A source of unpredictable octets, injected into the engine.
pub trait SecureRandom: Send {
    /// Fills `out` with unpredictable octets.
    fn fill(&mut self, out: &mut [u8]);
}

/// Lengths of the two key exchange payloads of a method, in octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeLengths {
    /// Octets of Key Exchange Data the initiator sends.
    pub initiator: usize,
    /// Octets of Key Exchange Data the responder sends.
    pub responder: usize,
}

/// A key exchange method (transform type 4): a Diffie-Hellman group or a KEM; the engine does not
/// tell them apart.
pub trait KeMethod: Send + Sync + fmt::Debug {
    /// Transform ID of the method.
    fn id(&self) -> KeMethodId;
    /// Lengths of the payloads; the engine checks the peer's against them before calling the method.
    fn lengths(&self) -> KeLengths;
    /// True if a step of it takes so long, half a millisecond and more, that nothing else should wait for
    /// it: the engine then asks for each step by a question (`Question::Exchange` of `ike-proto`).
    fn is_slow(&self) -> bool {
        false
    }
    /// Makes the initiator's half.
    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError>;
    /// Answers the initiator's public value: the responder's payload and the shared secret.
    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError>;
}

/// The initiator's half of a key exchange that waits for the responder's.
pub trait PendingKe: Send + Sync {
    /// Key Exchange Data to send.
    fn public(&self) -> &[u8];
    /// Derives the shared secret. Takes `&self`: a forged response must not use the key up.
    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError>;
}

/// A pseudorandom function (transform type 2) with variable-length keys.
pub trait Prf: Send + Sync + fmt::Debug {
    /// Transform ID.
    fn id(&self) -> PrfId;
    /// Octets of output, which is also the preferred key length (RFC 7296 §2.13).
    fn output_len(&self) -> usize;
    /// `prf(key, parts[0] | parts[1] | …)`.
    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret;
    /// `prf+(key, seed[0] | seed[1] | …)` of `len` octets, 255 blocks at most (RFC 7296 §2.13), which
    /// `keys::prf_plus` of `ike-proto` checks. A backend that sets its key up once for all blocks
    /// has its own.
    fn prf_plus(&self, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
        let mut out = Vec::with_capacity(len);
        let mut last: Option<Secret> = None;
        for counter in 1..=u8::MAX {
            if out.len() == len {
                break;
            }
            let counter = [counter];
            let mut parts: Vec<&[u8]> = Vec::with_capacity(seed.len() + 2);
            parts.extend(last.as_ref().map(Secret::expose));
            parts.extend_from_slice(seed);
            parts.push(&counter);
            let block = self.prf(key, &parts);
            let (wanted, _) = block.expose().split_at(block.len().min(len - out.len()));
            out.extend_from_slice(wanted);
            last = Some(block);
        }
        Secret::new(out)
    }
}

/// Encryption and integrity as one suite: an AEAD (`integ` NONE) or a cipher with a MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CipherSuite {
    /// Encryption algorithm.
    pub encr: EncrId,
    /// Key length in bits, without salt; 0 where the algorithm has one fixed length.
    pub key_bits: u16,
    /// Integrity algorithm; [`IntegId::NONE`] for an AEAD.
    pub integ: IntegId,
}

/// How the IV of a suite must be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IvKind {
    /// Must never repeat under one key: the caller counts.
    Counter,
    /// Must be unpredictable: the caller draws it at random (CBC).
    Random,
}

/// Lengths of a suite, in octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CipherLengths {
    /// Encryption key with its salt, as taken from the key material.
    pub encr_key: usize,
    /// Integrity key; 0 for an AEAD.
    pub integ_key: usize,
    /// Explicit IV on the wire.
    pub iv: usize,
    /// How the IV is made.
    pub iv_kind: IvKind,
    /// Integrity check value on the wire.
    pub icv: usize,
    /// The plaintext with padding must be a multiple of this (1 for stream modes).
    pub block: usize,
    /// True for an AEAD: an ESN's high half is then part of `aad`, not of `trailer`.
    pub aead: bool,
}

/// What surrounds the data of one seal or open.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Explicit IV, exactly [`CipherLengths::iv`] octets.
    pub iv: &'a [u8],
    /// Authenticated, not encrypted, in front of the IV: the IKE header through the SK payload's
    /// generic header, or the ESP header.
    pub aad: &'a [u8],
    /// Authenticated after the ciphertext by a MAC suite only: the high half of an extended sequence
    /// number (RFC 4303 §2.2.1). Empty otherwise.
    pub trailer: &'a [u8],
}

/// A keyed suite. The MAC of a non-AEAD suite covers `aad | iv | ciphertext | trailer`.
pub trait CipherKey: Send + Sync {
    /// Encrypts `data` in place and writes the ICV to `icv` (exactly [`CipherLengths::icv`]).
    fn seal(&self, frame: Frame<'_>, data: &mut [u8], icv: &mut [u8]) -> Result<(), CryptoError>;
    /// Checks `icv` in constant time, then decrypts `data` in place. On `Err` the content of `data`
    /// is unspecified and must not be used.
    fn open(&self, frame: Frame<'_>, data: &mut [u8], icv: &[u8]) -> Result<(), CryptoError>;

    /// As [`Self::seal`] of `data | tail`, which are left as they are: ciphertext and ICV fill `out`, which
    /// is as long as all three.
    fn seal_to(
        &self,
        frame: Frame<'_>,
        data: &[u8],
        tail: &[u8],
        out: &mut [u8],
    ) -> Result<(), CryptoError> {
        let (head, rest) = out.split_at_mut_checked(data.len()).ok_or(CryptoError::Length)?;
        head.copy_from_slice(data);
        rest.get_mut(..tail.len()).ok_or(CryptoError::Length)?.copy_from_slice(tail);
        let (data, icv) = out.split_at_mut(data.len() + tail.len());
        self.seal(frame, data, icv)
    }

    /// As [`Self::open`], but leaves `data` as they are: the plaintext fills `out`, which is as long. On
    /// `Err` its content must not be used.
    fn open_to(
        &self,
        frame: Frame<'_>,
        data: &[u8],
        icv: &[u8],
        out: &mut [u8],
    ) -> Result<(), CryptoError> {
        if out.len() != data.len() {
            return Err(CryptoError::Length);
        }
        out.copy_from_slice(data);
        self.open(frame, out, icv)
    }
}

/// Where cipher suites come from, for IKE's SK payload and for ESP.
pub trait CipherProvider: Send + Sync + fmt::Debug {
    /// Lengths of `suite`, `None` if the backend does not have it.
    fn lengths(&self, suite: CipherSuite) -> Option<CipherLengths>;
    /// Keys `suite`: `encr_key` with its salt last, `integ_key` empty for an AEAD.
    fn key(
        &self,
        suite: CipherSuite,
        encr_key: &[u8],
        integ_key: &[u8],
    ) -> Result<Box<dyn CipherKey>, CryptoError>;
}

/// The backends an endpoint uses.
#[derive(Clone)]
pub struct CryptoProvider {
    /// Key exchange methods, in order of preference.
    pub ke: Vec<KeyExchange>,
    /// Pseudorandom functions.
    pub prf: Vec<&'static dyn Prf>,
    /// Cipher suites.
    pub ciphers: &'static dyn CipherProvider,
    /// Backends of the built-in signature schemes, in order of preference.
    pub verifiers: Vec<&'static dyn SignatureVerifier>,
    /// The signature schemes that are known: with those that the program has brought, which verify by themselves.
    pub schemes: SchemeRegister,
    /// SHA-1 over the concatenated parts, for NAT detection (RFC 7296 §2.23) and nothing else.
    pub sha1: fn(&[&[u8]]) -> [u8; 20],
}

impl CryptoProvider {
    /// The key exchange method `id`.
    #[inline]
    pub fn ke(&self, id: KeMethodId) -> Option<&KeyExchange> {
        self.ke.iter().find(|m| m.id() == id)
    }

    /// The pseudorandom function `id`.
    #[inline]
    pub fn prf(&self, id: PrfId) -> Option<&'static dyn Prf> {
        self.prf.iter().copied().find(|p| p.id() == id)
    }

    /// Schemes that are verified here, without repetition: those of the backends in their order, and those that the
    /// program has brought at their places among them.
    pub fn signature_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = Vec::new();
        for scheme in self.verifiers.iter().flat_map(|verifier| verifier.schemes()) {
            if !schemes.contains(scheme) {
                schemes.push(scheme.clone());
            }
        }
        if self.schemes.outside().next().is_none() {
            return schemes;
        }
        self.schemes.with_brought(&schemes).cloned().collect()
    }

    /// Verifies `signature` over `message` by the first backend that has `scheme`, or by a registered scheme itself;
    /// `spki` is a DER `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// Those of [`SignatureVerifier::verify`]; [`CryptoError::Unsupported`] if no backend has `scheme`.
    pub fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        if let SignatureScheme::Outside(outside) = scheme {
            // The registered one: another value may have the same identifier.
            let known = self.schemes.outside().find(|known| *known == outside);
            return known.ok_or(CryptoError::Unsupported)?.verify_by(spki, message, signature);
        }
        self.verifiers
            .iter()
            .find(|verifier| verifier.schemes().contains(scheme))
            .ok_or(CryptoError::Unsupported)?
            .verify(scheme, spki, message, signature)
    }
}

impl fmt::Debug for CryptoProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoProvider")
            .field("ke", &self.ke)
            .field("prf", &self.prf)
            .field("verifiers", &self.verifiers)
            .finish_non_exhaustive()
    }
}
