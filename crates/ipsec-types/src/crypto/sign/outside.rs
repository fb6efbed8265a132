//! Signature schemes that a program brings.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::{SignatureScheme, SigningKey, SubjectPublicKeyInfo};
use crate::crypto::{CryptoError, Secret};
use ike_wire::registry::HashId;

/// A signature scheme from outside this tree: its facts, its verifier, and its private keys.
///
/// Connections use it only where their configuration names it. [`SchemeRegister::add`](super::SchemeRegister::add)
/// says which facts are refused.
pub trait Scheme: Send + Sync + fmt::Debug {
    /// The word for `auth` in configuration text, and the name in the log: `[a-z0-9_]+`, 64 octets at most.
    fn name(&self) -> &str;

    /// The DER `AlgorithmIdentifier` of a signature, in AUTH payloads (RFC 7427 §3) and in certificates: 252 octets
    /// at most, because an announcement has one octet for the length of all (RFC 9593 §3.2.3).
    ///
    /// Several schemes may have it if their keys are on different curves: `ecdsa-with-SHA256` does not name one. Then
    /// the key decides.
    fn algorithm_identifier(&self) -> &[u8];

    /// The DER `AlgorithmIdentifier` in the `SubjectPublicKeyInfo` of a key of the scheme. No other scheme has it. Its
    /// OBJECT IDENTIFIER may be that of other schemes if the parameters of all of them are OBJECT IDENTIFIERs, as
    /// those of `id-ecPublicKey` that name curves (RFC 5480 §2.1.1), and differ.
    fn key_algorithm_identifier(&self) -> &[u8] {
        self.algorithm_identifier()
    }

    /// The hash that SIGNATURE_HASH_ALGORITHMS must list for the scheme to be used (RFC 7427 §4), or
    /// [`HashId::IDENTITY`] if the message goes into the scheme as it is (RFC 8420 §2).
    fn hash(&self) -> HashId;

    /// True if a quantum computer is not known to forge signatures of the scheme. It is for displays: no decision
    /// of the engine hangs on it.
    fn is_post_quantum(&self) -> bool;

    /// True if a signature takes less than a millisecond on a common processor. Other keys sign on threads of their
    /// own.
    fn signs_quickly(&self) -> bool {
        false
    }

    /// The built-in scheme before which this one stands in the order of this end; `None`: after all of them. The
    /// order that the peer announces comes first.
    fn preferred_to(&self) -> Option<SignatureScheme> {
        None
    }

    /// The greatest lengths. Longer keys and signatures are refused and never reach [`verify`](Self::verify).
    fn lengths(&self) -> SchemeLengths;

    /// Verifies `signature` over `message` with `key`, the octets of the BIT STRING of a `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// [`CryptoError::Integrity`] if the signature is not valid, whatever is wrong with it;
    /// [`CryptoError::InvalidPublic`] if the key is malformed.
    fn verify(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), CryptoError>;

    /// The private key whose PKCS#8 `privateKey` has the content `octets` (RFC 5958 §2). Its
    /// [`schemes`](SigningKey::schemes) name this scheme.
    ///
    /// # Errors
    /// [`CryptoError::Length`] if `octets` are no private key of the scheme.
    fn private_key(&self, octets: &[u8]) -> Result<Box<dyn SigningKey>, CryptoError>;

    /// A new private key, as the content of a PKCS#8 `privateKey`.
    ///
    /// # Errors
    /// [`CryptoError::Backend`] if the backend fails.
    fn generate(&self) -> Result<Secret, CryptoError>;
}

/// The greatest lengths of a scheme, in octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemeLengths {
    /// Of a public key: the content of the BIT STRING.
    pub public_key: usize,
    /// Of a signature.
    pub signature: usize,
}

/// A [`Scheme`], owned or static. Two are equal if their `AlgorithmIdentifier`s are, of signatures and of keys.
// One pointer: each IKE SA has two.
#[derive(Clone)]
pub struct OutsideScheme(Arc<Handle>);

enum Handle {
    Static(&'static dyn Scheme),
    Shared(Arc<dyn Scheme>),
}

impl OutsideScheme {
    /// The key in `spki`, a DER `SubjectPublicKeyInfo`; `None` if it is malformed, of another algorithm, or too long.
    pub fn key_in<'a>(&self, spki: &'a [u8]) -> Option<&'a [u8]> {
        let SubjectPublicKeyInfo { algorithm, key } = SubjectPublicKeyInfo::parse(spki)?;
        let fits =
            algorithm == self.key_algorithm_identifier() && key.len() <= self.lengths().public_key;
        fits.then_some(key)
    }

    /// Verifies `signature` over `message` with the key in `spki`, a DER `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// Those of [`Scheme::verify`]; [`CryptoError::InvalidPublic`] as well for a key of another algorithm or length,
    /// and [`CryptoError::Integrity`] for a signature that is too long.
    pub fn verify_by(
        &self,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        let key = self.key_in(spki).ok_or(CryptoError::InvalidPublic)?;
        if signature.len() > self.lengths().signature {
            return Err(CryptoError::Integrity);
        }
        self.verify(key, message, signature)
    }
}

impl Deref for OutsideScheme {
    type Target = dyn Scheme;

    fn deref(&self) -> &Self::Target {
        match &*self.0 {
            Handle::Static(scheme) => *scheme,
            Handle::Shared(scheme) => &**scheme,
        }
    }
}

impl From<&'static dyn Scheme> for OutsideScheme {
    fn from(scheme: &'static dyn Scheme) -> Self {
        Self(Arc::new(Handle::Static(scheme)))
    }
}

impl From<Arc<dyn Scheme>> for OutsideScheme {
    fn from(scheme: Arc<dyn Scheme>) -> Self {
        Self(Arc::new(Handle::Shared(scheme)))
    }
}

impl fmt::Debug for OutsideScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for OutsideScheme {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm_identifier() == other.algorithm_identifier()
            && self.key_algorithm_identifier() == other.key_algorithm_identifier()
    }
}

impl Eq for OutsideScheme {}

impl Hash for OutsideScheme {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.algorithm_identifier().hash(state);
        self.key_algorithm_identifier().hash(state);
    }
}
