//! ML-KEM by RustCrypto: a second backend, in portable Rust, several times slower than AWS-LC.
//!
//! Both roles draw everything from the source they are given, in the order of FIPS 203: `d | z` for a
//! key, `m` for a ciphertext; so known answers can be reproduced.

use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};
use ml_kem::kem::{Decapsulate, KeyExport};
use ml_kem::{B32, Seed};
use std::sync::Arc;
use zeroize::Zeroize;

/// Every parameter set.
pub const ALL: &[&dyn KeMethod] = &[&MlKem768, &MlKem1024, &MlKem512];

macro_rules! ml_kem {
    ($(#[$doc:meta])* $name:ident, $id:ident, $module:ident, $key:literal, $ciphertext:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl KeMethod for $name {
            fn id(&self) -> KeMethodId {
                KeMethodId::$id
            }

            fn lengths(&self) -> KeLengths {
                KeLengths { initiator: $key, responder: $ciphertext }
            }

            fn initiate(
                &self,
                rng: &mut dyn SecureRandom,
            ) -> Result<Arc<dyn PendingKe>, CryptoError> {
                let mut seed = Seed::default();
                rng.fill(&mut seed);
                let key = ml_kem::$module::DecapsulationKey::from_seed(seed);
                seed.zeroize();
                let public = key.encapsulation_key().to_bytes().to_vec();
                Ok(Arc::new(Pending { key, public }))
            }

            fn respond(
                &self,
                peer: &[u8],
                rng: &mut dyn SecureRandom,
            ) -> Result<(Vec<u8>, Secret), CryptoError> {
                let peer = peer.try_into().map_err(|_| CryptoError::InvalidPublic)?;
                let key = ml_kem::$module::EncapsulationKey::new(peer)
                    .map_err(|_| CryptoError::InvalidPublic)?;
                let mut m = B32::default();
                rng.fill(&mut m);
                let (ciphertext, mut shared) = key.encapsulate_deterministic(&m);
                m.zeroize();
                let secret = Secret::copy_from(&shared);
                shared.zeroize();
                Ok((ciphertext.to_vec(), secret))
            }
        }

        impl PendingKe for Pending<ml_kem::$module::DecapsulationKey> {
            fn public(&self) -> &[u8] {
                &self.public
            }

            fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
                let peer = peer.try_into().map_err(|_| CryptoError::InvalidPublic)?;
                let mut shared = self.key.decapsulate(peer);
                let secret = Secret::copy_from(&shared);
                shared.zeroize();
                Ok(secret)
            }
        }
    };
}

struct Pending<K> {
    key: K,
    public: Vec<u8>,
}

ml_kem!(
    /// ML-KEM-512, transform ID 35.
    MlKem512, ML_KEM_512, ml_kem_512, 800, 768
);
ml_kem!(
    /// ML-KEM-768, transform ID 36.
    MlKem768, ML_KEM_768, ml_kem_768, 1184, 1088
);
ml_kem!(
    /// ML-KEM-1024, transform ID 37.
    MlKem1024, ML_KEM_1024, ml_kem_1024, 1568, 1568
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    /// NIST's cases; keys are given in expanded form.
    #[test]
    #[expect(deprecated, reason = "the vectors have no seeds")]
    fn acvp_decapsulation() {
        let mut dk = Vec::new();
        let mut checked = 0;
        for case in data::json(include_str!("../../tests/data/acvp/ml_kem.json")) {
            if let Some(key) = case.optional("dk") {
                dk = key;
            }
            macro_rules! pending {
                ($module:ident) => {{
                    let key = dk.as_slice().try_into().unwrap();
                    let key = ml_kem::$module::DecapsulationKey::from_expanded(key).unwrap();
                    Box::new(Pending { key, public: Vec::new() }) as Box<dyn PendingKe>
                }};
            }
            let pending = match case.text("set") {
                "ML-KEM-512" => pending!(ml_kem_512),
                "ML-KEM-768" => pending!(ml_kem_768),
                "ML-KEM-1024" => pending!(ml_kem_1024),
                other => panic!("{other}"),
            };
            let shared = pending.complete(&case.octets("c")).unwrap();
            assert_eq!(shared.expose(), case.octets("k"), "{}", case.name);
            checked += 1;
        }
        assert_eq!(checked, 45);
    }
}
