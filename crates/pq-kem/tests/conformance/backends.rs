//! The backends that every test runs over.

use ipsec_types::crypto::{KeMethod, KeyExchange, SignatureScheme, SignatureVerifier, SigningKey};
use pq_kem::ke::{ML_KEM_512, ML_KEM_768, ML_KEM_1024};
use pq_kem::sign::{KeyType, generate, load_private_key};

/// Every method of every backend.
pub fn key_exchanges() -> Vec<KeyExchange> {
    let mut all = pq_kem::provider().ke;
    all.extend(ml_kem_backends().into_iter().skip(1).flatten().map(KeyExchange::from));
    all
}

/// The parameter sets of ML-KEM by backend, the default one first.
pub fn ml_kem_backends() -> Vec<Vec<&'static dyn KeMethod>> {
    vec![
        vec![&ML_KEM_512, &ML_KEM_768, &ML_KEM_1024],
        pq_kem::ke::rustcrypto::ALL.to_vec(),
        #[cfg(feature = "backend-pqcrypto")]
        pq_kem::ke::pqcrypto::ALL.to_vec(),
    ]
}

/// A signature backend: what verifies, and what makes keys that sign.
#[derive(Clone, Copy)]
pub struct Backend {
    pub verifier: &'static dyn SignatureVerifier,
    pub key: fn(SignatureScheme) -> Box<dyn SigningKey>,
}

/// The signature backends, default ones first.
pub fn signatures() -> Vec<Backend> {
    let mut all: Vec<_> = pq_kem::provider()
        .verifiers
        .into_iter()
        .map(|verifier| Backend { verifier, key: default_key })
        .collect();
    all.push(Backend { verifier: &pq_kem::sign::falcon::Falcon, key: default_key });
    all.push(Backend { verifier: &pq_kem::sign::rustcrypto::MlDsa, key: rustcrypto_key });
    #[cfg(feature = "backend-pqcrypto")]
    all.push(Backend {
        verifier: &pq_kem::sign::pqcrypto::MlDsa,
        key: |scheme| pq_kem::sign::pqcrypto::generate(scheme).unwrap(),
    });
    all
}

/// Every scheme that a test can afford to sign with: of SLH-DSA, the fast sets of 128 bits.
pub fn affordable(backend: &Backend) -> impl Iterator<Item = SignatureScheme> {
    let slow = |scheme: &SignatureScheme| {
        scheme.is_slh_dsa()
            && !matches!(
                scheme,
                SignatureScheme::SlhDsaSha2_128f | SignatureScheme::SlhDsaShake128f
            )
    };
    backend.verifier.schemes().iter().filter(move |&scheme| !slow(scheme)).cloned()
}

/// A new key of a default backend, through PKCS#8.
pub fn default_key(scheme: SignatureScheme) -> Box<dyn SigningKey> {
    let key_type = match scheme.key_algorithm_identifier() == RSA.key_algorithm_identifier() {
        true => KeyType::Rsa2048,
        false => KeyType::Scheme(scheme),
    };
    load_private_key(&generate(key_type).unwrap()).unwrap()
}

fn rustcrypto_key(scheme: SignatureScheme) -> Box<dyn SigningKey> {
    let mut seed = [0; 32];
    ipsec_types::crypto::SecureRandom::fill(&mut pq_kem::os_random(), &mut seed);
    pq_kem::sign::rustcrypto::key_from_seed(&scheme, &seed).unwrap()
}

const RSA: SignatureScheme = SignatureScheme::RsaPssSha256;
