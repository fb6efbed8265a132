//! What is measured: every operation of every backend.

use ike_proto::crypto::{CryptoError, KeMethod, SignatureScheme, SignatureVerifier, SigningKey};
use ike_proto::wire::registry::KeMethodId;
use pq_kem::sign::{KeyType, generate, load_private_key};

/// A key exchange method and the backend it comes from.
#[derive(Debug, Clone, Copy)]
pub struct KeyExchange {
    /// Name of the backend.
    pub backend: &'static str,
    /// The method.
    pub method: &'static dyn KeMethod,
}

/// Every method of every backend that was compiled in, post-quantum ones first.
pub fn key_exchanges() -> Vec<KeyExchange> {
    let of = |backend, methods: &[&'static dyn KeMethod]| {
        methods.iter().map(|method| KeyExchange { backend, method: *method }).collect::<Vec<_>>()
    };
    let (post_quantum, classical): (Vec<&dyn KeMethod>, Vec<_>) =
        pq_kem::ke::ALL.iter().copied().partition(|method| method.id() >= KeMethodId::ML_KEM_512);
    let (ml_kem, frodo): (Vec<&dyn KeMethod>, Vec<_>) =
        post_quantum.into_iter().partition(|method| method.id() <= KeMethodId::ML_KEM_1024);
    let mut all = of(AWS_LC, &ml_kem);
    #[cfg(feature = "all-backends")]
    all.extend(of(RUSTCRYPTO, pq_kem::ke::rustcrypto::ALL));
    #[cfg(feature = "all-backends")]
    all.extend(of(PQCRYPTO, pq_kem::ke::pqcrypto::ALL));
    all.sort_by_key(|exchange| exchange.method.id());
    all.extend(of("frodo-kem-rs", &frodo));
    all.extend(of(AWS_LC, &classical));
    all
}

/// A signature scheme, the backend it comes from, and a key of that backend.
#[derive(Debug)]
pub struct Signature {
    /// Name of the backend.
    pub backend: &'static str,
    /// The scheme.
    pub scheme: SignatureScheme,
    /// Size of an RSA key in bits, 0 for all others.
    pub rsa_bits: u16,
    /// What verifies.
    pub verifier: &'static dyn SignatureVerifier,
    /// Makes a key; part of what is measured.
    pub keygen: fn(SignatureScheme, u16) -> Result<Box<dyn SigningKey>, CryptoError>,
}

impl Signature {
    /// The scheme's name, with the size of an RSA key.
    pub fn name(&self) -> String {
        match self.rsa_bits {
            0 => self.scheme.to_string(),
            bits => format!("{} ({bits})", self.scheme),
        }
    }
}

/// Every scheme of every backend that was compiled in, post-quantum ones first.
pub fn signatures() -> Vec<Signature> {
    let mut all: Vec<Signature> = Vec::new();
    for verifier in pq_kem::sign::VERIFIERS {
        for scheme in verifier.schemes() {
            let backend = if scheme.name().starts_with("SLH") { "slh-dsa" } else { AWS_LC };
            let sizes: &[u16] = if scheme.name().starts_with("RSA") { &[2048, 3072] } else { &[0] };
            all.extend(sizes.iter().map(|&rsa_bits| Signature {
                backend,
                scheme: scheme.clone(),
                rsa_bits,
                verifier: *verifier,
                keygen: default_key,
            }));
        }
    }
    #[cfg(feature = "all-backends")]
    all.extend(other_backends());
    // By scheme, and of one scheme the default backend first.
    let place = |wanted: &SignatureScheme| {
        SignatureScheme::BUILT_IN.iter().position(|scheme| scheme == wanted)
    };
    let order = |one: &Signature| (!one.scheme.is_post_quantum(), place(&one.scheme));
    all.sort_by_key(order);
    all
}

fn default_key(scheme: SignatureScheme, rsa_bits: u16) -> Result<Box<dyn SigningKey>, CryptoError> {
    let key_type = match rsa_bits {
        0 => KeyType::Scheme(scheme),
        2048 => KeyType::Rsa2048,
        _ => KeyType::Rsa3072,
    };
    load_private_key(&generate(key_type)?).map_err(|_| CryptoError::Backend)
}

#[cfg(feature = "all-backends")]
fn other_backends() -> Vec<Signature> {
    use pq_kem::sign::{falcon, pqcrypto, rustcrypto};

    let rustcrypto_key = |scheme, _| {
        let mut seed = [0; 32];
        ike_proto::crypto::SecureRandom::fill(&mut pq_kem::os_random(), &mut seed);
        rustcrypto::key_from_seed(scheme, &seed)
    };
    let mut all = vec![Signature {
        backend: "fn-dsa",
        scheme: SignatureScheme::Falcon512,
        rsa_bits: 0,
        verifier: &falcon::Falcon,
        keygen: default_key,
    }];
    for scheme in [SignatureScheme::MlDsa44, SignatureScheme::MlDsa65, SignatureScheme::MlDsa87] {
        all.push(Signature {
            backend: RUSTCRYPTO,
            scheme,
            rsa_bits: 0,
            verifier: &rustcrypto::MlDsa,
            keygen: rustcrypto_key,
        });
        all.push(Signature {
            backend: PQCRYPTO,
            scheme,
            rsa_bits: 0,
            verifier: &pqcrypto::MlDsa,
            keygen: |scheme, _| pqcrypto::generate(scheme),
        });
    }
    all
}

const AWS_LC: &str = "aws-lc-rs";
#[cfg(feature = "all-backends")]
const RUSTCRYPTO: &str = "rustcrypto";
#[cfg(feature = "all-backends")]
const PQCRYPTO: &str = "pqcrypto";
