//! SLH-DSA (FIPS 205) by RustCrypto: pure mode, empty context, all twelve parameter sets.

use std::fmt;

use ::slh_dsa::{ParameterSet, Signature, VerifyingKey};
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;
use ipsec_types::crypto::{CryptoError, SignatureScheme, SignatureVerifier, SigningKey};
use zeroize::Zeroizing;

use super::private_key::KeyError;
use super::public_key::key_for;

/// SLH-DSA.
#[derive(Debug, Clone, Copy)]
pub struct SlhDsa;

/// Calls `$function::<P>($arguments)` with the parameter set `P` of `$scheme`.
macro_rules! with_set {
    ($scheme:expr, $function:ident($($argument:expr),*), $otherwise:expr) => {
        match $scheme {
            SignatureScheme::SlhDsaSha2_128s => $function::<::slh_dsa::Sha2_128s>($($argument),*),
            SignatureScheme::SlhDsaSha2_128f => $function::<::slh_dsa::Sha2_128f>($($argument),*),
            SignatureScheme::SlhDsaSha2_192s => $function::<::slh_dsa::Sha2_192s>($($argument),*),
            SignatureScheme::SlhDsaSha2_192f => $function::<::slh_dsa::Sha2_192f>($($argument),*),
            SignatureScheme::SlhDsaSha2_256s => $function::<::slh_dsa::Sha2_256s>($($argument),*),
            SignatureScheme::SlhDsaSha2_256f => $function::<::slh_dsa::Sha2_256f>($($argument),*),
            SignatureScheme::SlhDsaShake128s => $function::<::slh_dsa::Shake128s>($($argument),*),
            SignatureScheme::SlhDsaShake128f => $function::<::slh_dsa::Shake128f>($($argument),*),
            SignatureScheme::SlhDsaShake192s => $function::<::slh_dsa::Shake192s>($($argument),*),
            SignatureScheme::SlhDsaShake192f => $function::<::slh_dsa::Shake192f>($($argument),*),
            SignatureScheme::SlhDsaShake256s => $function::<::slh_dsa::Shake256s>($($argument),*),
            SignatureScheme::SlhDsaShake256f => $function::<::slh_dsa::Shake256f>($($argument),*),
            _ => $otherwise,
        }
    };
}

impl SignatureVerifier for SlhDsa {
    fn schemes(&self) -> &[SignatureScheme] {
        SCHEMES
    }

    fn verify(
        &self,
        scheme: &SignatureScheme,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CryptoError> {
        if !SCHEMES.contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        let key = key_for(scheme, spki)?;
        with_set!(scheme, verify(key, message, signature), Err(CryptoError::Unsupported))
    }
}

fn verify<P: ParameterSet>(
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), CryptoError> {
    let key = VerifyingKey::<P>::try_from(key).map_err(|_| CryptoError::InvalidPublic)?;
    let signature = Signature::<P>::try_from(signature).map_err(|_| CryptoError::Integrity)?;
    key.try_verify_with_context(message, &[], &signature).map_err(|_| CryptoError::Integrity)
}

/// A new private key, the `4n` octets of FIPS 205 §9.1.
pub(super) fn generate(scheme: &SignatureScheme) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
    with_set!(scheme, generate_of(n(scheme)), Err(CryptoError::Unsupported))
}

fn generate_of<P: ParameterSet>(n: usize) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
    let mut seeds = Zeroizing::new(vec![0; 3 * n]);
    aws_lc_rs::rand::fill(&mut seeds).map_err(|_| CryptoError::Backend)?;
    Ok(from_seeds::<P>(&seeds))
}

/// The private key of `SK.seed | SK.prf | PK.seed`, each a third of `seeds`.
fn from_seeds<P: ParameterSet>(seeds: &[u8]) -> Zeroizing<Vec<u8>> {
    let n = seeds.len() / 3;
    let (sk_seed, rest) = seeds.split_at(n);
    let (sk_prf, pk_seed) = rest.split_at(n);
    let key = ::slh_dsa::SigningKey::<P>::slh_keygen_internal(sk_seed, sk_prf, pk_seed);
    Zeroizing::new(key.to_vec())
}

/// The private key of `scheme` in `octets`, which PKCS#8 holds without another header (RFC 9909 §6).
pub(super) fn load(
    scheme: &SignatureScheme,
    octets: &[u8],
) -> Result<Box<dyn SigningKey>, KeyError> {
    with_set!(scheme, load_of(scheme, octets), Err(KeyError::Unsupported))
}

fn load_of<P: ParameterSet + Send + Sync + 'static>(
    scheme: &SignatureScheme,
    octets: &[u8],
) -> Result<Box<dyn SigningKey>, KeyError> {
    let key = ::slh_dsa::SigningKey::<P>::try_from(octets).map_err(|_| KeyError::Malformed)?;
    let public = octets.get(octets.len() / 2..).unwrap_or_default();
    let algorithm = scheme.key_algorithm_identifier();
    let spki = SubjectPublicKeyInfo { algorithm, key: public }.encode();
    Ok(Box::new(Key { schemes: [scheme.clone()], key, spki }))
}

/// Octets of a seed: FIPS 205's `n`.
fn n(scheme: &SignatureScheme) -> usize {
    match scheme {
        SignatureScheme::SlhDsaSha2_128s
        | SignatureScheme::SlhDsaSha2_128f
        | SignatureScheme::SlhDsaShake128s
        | SignatureScheme::SlhDsaShake128f => 16,
        SignatureScheme::SlhDsaSha2_192s
        | SignatureScheme::SlhDsaSha2_192f
        | SignatureScheme::SlhDsaShake192s
        | SignatureScheme::SlhDsaShake192f => 24,
        _ => 32,
    }
}

struct Key<P: ParameterSet> {
    schemes: [SignatureScheme; 1],
    key: ::slh_dsa::SigningKey<P>,
    spki: Vec<u8>,
}

impl<P: ParameterSet + Send + Sync> SigningKey for Key<P> {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    /// Hedged: `opt_rand` is drawn (FIPS 205 §9.2).
    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        if !self.schemes.contains(scheme) {
            return Err(CryptoError::Unsupported);
        }
        let mut opt_rand = vec![0; n(scheme)];
        aws_lc_rs::rand::fill(&mut opt_rand).map_err(|_| CryptoError::Backend)?;
        let signature = self
            .key
            .try_sign_with_context(message, &[], Some(&opt_rand))
            .map_err(|_| CryptoError::Backend)?;
        Ok(signature.to_vec())
    }
}

impl<P: ParameterSet> fmt::Debug for Key<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// Small signatures before fast ones.
const SCHEMES: &[SignatureScheme] = &[
    SignatureScheme::SlhDsaSha2_128s,
    SignatureScheme::SlhDsaSha2_128f,
    SignatureScheme::SlhDsaSha2_192s,
    SignatureScheme::SlhDsaSha2_192f,
    SignatureScheme::SlhDsaSha2_256s,
    SignatureScheme::SlhDsaSha2_256f,
    SignatureScheme::SlhDsaShake128s,
    SignatureScheme::SlhDsaShake128f,
    SignatureScheme::SlhDsaShake192s,
    SignatureScheme::SlhDsaShake192f,
    SignatureScheme::SlhDsaShake256s,
    SignatureScheme::SlhDsaShake256f,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    /// NIST's keys; and a signature with the fast ones among them.
    #[test]
    fn acvp_keys() {
        let cases = data::json(include_str!("../../tests/data/slhdsa/keygen.json"));
        assert_eq!(cases.len(), 7);
        for case in cases {
            let scheme = SCHEMES.iter().find(|s| s.name() == case.text("set")).unwrap();
            let seeds = ["skSeed", "skPrf", "pkSeed"].map(|field| case.octets(field)).concat();
            assert_eq!(seeds.len(), 3 * n(scheme), "{scheme}");
            let private = with_set!(scheme, from_seeds(&seeds), panic!("{scheme}"));
            let public = case.octets("pk");
            assert_eq!(private[2 * n(scheme)..], public, "{scheme}");
            let key = load(scheme, &private).unwrap();
            let spki = SubjectPublicKeyInfo::parse(key.public_key()).unwrap();
            assert_eq!(spki.key, public, "{scheme}");
        }
    }

    /// FIPS 205 table 2.
    #[test]
    fn signature_sizes() {
        for (scheme, len) in [
            (SignatureScheme::SlhDsaSha2_128f, 17_088),
            (SignatureScheme::SlhDsaShake128f, 17_088),
            (SignatureScheme::SlhDsaSha2_192f, 35_664),
            (SignatureScheme::SlhDsaSha2_256f, 49_856),
        ] {
            let key = load(&scheme, &generate(&scheme).unwrap()).unwrap();
            let signature = key.sign(&scheme, b"message").unwrap();
            assert_eq!(signature.len(), len, "{scheme}");
            assert_eq!(SlhDsa.verify(&scheme, key.public_key(), b"message", &signature), Ok(()));
        }
    }
}
