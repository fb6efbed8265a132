//! The `AlgorithmIdentifier` of each scheme, and of the public keys it verifies with.

use super::SignatureScheme::{self, *};
use super::{PssParameters, SubjectPublicKeyInfo};

impl SignatureScheme {
    /// The DER `AlgorithmIdentifier` that goes in front of a signature in authentication method 14
    /// (RFC 7427 §3, Appendix A; RFC 8420 Appendix A; draft-ietf-ipsecme-ikev2-pqc-auth Appendix B).
    pub fn algorithm_identifier(&self) -> &[u8] {
        match self {
            RsaPkcs1Sha1 => const { &pkcs1(5) },
            RsaPkcs1Sha256 => const { &pkcs1(11) },
            RsaPkcs1Sha384 => const { &pkcs1(12) },
            RsaPkcs1Sha512 => const { &pkcs1(13) },
            RsaPssSha256 => const { &pss(1, 32) },
            RsaPssSha384 => const { &pss(2, 48) },
            RsaPssSha512 => const { &pss(3, 64) },
            EcdsaP256Sha256 => const { &ecdsa(2) },
            EcdsaP384Sha384 => const { &ecdsa(3) },
            EcdsaP521Sha512 => const { &ecdsa(4) },
            Ed25519 => &[0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
            MlDsa44 => const { &nist(17) },
            MlDsa65 => const { &nist(18) },
            MlDsa87 => const { &nist(19) },
            SlhDsaSha2_128s => const { &nist(20) },
            SlhDsaSha2_128f => const { &nist(21) },
            SlhDsaSha2_192s => const { &nist(22) },
            SlhDsaSha2_192f => const { &nist(23) },
            SlhDsaSha2_256s => const { &nist(24) },
            SlhDsaSha2_256f => const { &nist(25) },
            SlhDsaShake128s => const { &nist(26) },
            SlhDsaShake128f => const { &nist(27) },
            SlhDsaShake192s => const { &nist(28) },
            SlhDsaShake192f => const { &nist(29) },
            SlhDsaShake256s => const { &nist(30) },
            SlhDsaShake256f => const { &nist(31) },
            // 1.3.9999.3.16, falconpadded512 of the Open Quantum Safe project: not a registered arc.
            Falcon512 => &[0x30, 0x07, 0x06, 0x05, 0x2b, 0xce, 0x0f, 0x03, 0x10],
            Outside(outside) => outside.algorithm_identifier(),
        }
    }

    /// True if signatures by both have the same `AlgorithmIdentifier`, as those of ECDSA with one hash on two curves.
    pub fn has_identifier_of(&self, other: &Self) -> bool {
        let brought = || matches!(self, Outside(_)) || matches!(other, Outside(_));
        self == other || brought() && self.algorithm_identifier() == other.algorithm_identifier()
    }

    /// The `AlgorithmIdentifier` that tells the scheme from all others of a register: of a built-in one that of its
    /// signatures, of one that the program has brought that of its keys.
    pub fn distinct_identifier(&self) -> &[u8] {
        match self {
            Outside(outside) => outside.key_algorithm_identifier(),
            built_in => built_in.algorithm_identifier(),
        }
    }

    /// The built-in scheme that a DER `AlgorithmIdentifier` names; `None` if it names none of those
    /// here, is malformed, or names SHA-1.
    /// [`SchemeRegister::from_algorithm_identifier`](super::SchemeRegister::from_algorithm_identifier)
    /// knows those of the program as well.
    ///
    /// Beside the identifiers of [`algorithm_identifier`](Self::algorithm_identifier), these are
    /// taken: PKCS#1 v1.5 without its NULL (RFC 4055 §5), and PSS parameters with the hashes' NULLs
    /// left out (§2.1) or an explicit trailer field (§3.1).
    pub fn from_built_in_identifier(identifier: &[u8]) -> Option<Self> {
        let exact = Self::BUILT_IN
            .iter()
            .filter(|scheme| **scheme != RsaPkcs1Sha1)
            .find(|scheme| scheme.algorithm_identifier() == identifier);
        exact
            .cloned()
            .or_else(|| {
                [RsaPkcs1Sha256, RsaPkcs1Sha384, RsaPkcs1Sha512]
                    .into_iter()
                    .find(|scheme| without_null(scheme.algorithm_identifier(), identifier))
            })
            .or_else(|| PssParameters::from_algorithm_identifier(identifier)?.scheme())
    }

    /// The `AlgorithmIdentifier` in the `SubjectPublicKeyInfo` of a key of the scheme. RSA keys may
    /// also have id-RSASSA-PSS there.
    pub fn key_algorithm_identifier(&self) -> &[u8] {
        match self {
            RsaPkcs1Sha1 | RsaPkcs1Sha256 | RsaPkcs1Sha384 | RsaPkcs1Sha512 | RsaPssSha256
            | RsaPssSha384 | RsaPssSha512 => RSA_ENCRYPTION,
            EcdsaP256Sha256 => EC_PUBLIC_KEY_P256,
            EcdsaP384Sha384 => EC_PUBLIC_KEY_P384,
            EcdsaP521Sha512 => EC_PUBLIC_KEY_P521,
            Outside(outside) => outside.key_algorithm_identifier(),
            other => other.algorithm_identifier(),
        }
    }

    /// Built-in schemes whose signatures the public key in `spki` can verify, in order of preference; none for
    /// a key of an unknown type. An RSA key with id-RSASSA-PSS is for PSS alone, and if it has
    /// parameters, for their hash and at least their length of salt (RFC 4055 §3.3).
    pub fn of_built_in_key(spki: &[u8]) -> &'static [Self] {
        let Some(SubjectPublicKeyInfo { algorithm, .. }) = SubjectPublicKeyInfo::parse(spki) else {
            return &[];
        };
        match algorithm {
            RSA_ENCRYPTION => RSA,
            RSASSA_PSS_ANY => &[RsaPssSha256, RsaPssSha384, RsaPssSha512],
            _ => {
                let index = Self::BUILT_IN
                    .iter()
                    .position(|scheme| scheme.key_algorithm_identifier() == algorithm)
                    .or_else(|| {
                        let scheme =
                            PssParameters::from_algorithm_identifier(algorithm)?.scheme_of_key()?;
                        Self::BUILT_IN.iter().position(|known| *known == scheme)
                    });
                index.and_then(|index| Self::BUILT_IN.get(index..=index)).unwrap_or_default()
            }
        }
    }
}

const RSA: &[SignatureScheme] = &[
    RsaPssSha256,
    RsaPssSha384,
    RsaPssSha512,
    RsaPkcs1Sha256,
    RsaPkcs1Sha384,
    RsaPkcs1Sha512,
    RsaPkcs1Sha1,
];

/// True if `identifier` is `full`, which ends with a NULL, without that NULL.
fn without_null(full: &[u8], identifier: &[u8]) -> bool {
    match (full, identifier) {
        ([tag, len, body @ .., _, _], [other_tag, other_len, other_body @ ..]) => {
            tag == other_tag && len.checked_sub(2) == Some(*other_len) && body == other_body
        }
        _ => false,
    }
}

/// `{ pkcs-1 arc }` with NULL (RFC 7427 §A.1).
const fn pkcs1(arc: u8) -> [u8; 15] {
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, arc, 0x05, 0x00]
}

/// `{ ecdsa-with-SHA2 arc }` (RFC 7427 §A.3).
const fn ecdsa(arc: u8) -> [u8; 12] {
    [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, arc]
}

/// `{ sigAlgs arc }` of NIST, without parameters.
const fn nist(arc: u8) -> [u8; 13] {
    [0x30, 0x0b, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, arc]
}

/// id-RSASSA-PSS with `{ hashAlgs arc }` twice and the salt's length; the trailer field has its
/// default and is left out (RFC 4055 §3.1, and the erratum to RFC 7427 §A.4.3).
const fn pss(hash: u8, salt: u8) -> [u8; 67] {
    [
        0x30, 0x41, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x34,
        0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash,
        0x05, 0x00, 0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01,
        0x01, 0x08, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash,
        0x05, 0x00, 0xa2, 0x03, 0x02, 0x01, salt,
    ]
}

/// rsaEncryption with NULL (RFC 3279 §2.3.1).
const RSA_ENCRYPTION: &[u8] = &pkcs1(1);

/// id-RSASSA-PSS without parameters (RFC 4055 §3.1): any of them.
const RSASSA_PSS_ANY: &[u8] =
    &[0x30, 0x0b, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];

/// id-ecPublicKey with secp256r1 (RFC 5480 §2.1.1).
const EC_PUBLIC_KEY_P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07,
];

/// id-ecPublicKey with secp384r1.
const EC_PUBLIC_KEY_P384: &[u8] = &[
    0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
    0x00, 0x22,
];

/// id-ecPublicKey with secp521r1.
const EC_PUBLIC_KEY_P521: &[u8] = &[
    0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
    0x00, 0x23,
];
