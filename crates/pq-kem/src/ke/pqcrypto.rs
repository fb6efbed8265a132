//! ML-KEM by PQClean's C, through the `pqcrypto` crates: a third backend, for comparison.
//!
//! Upstream has stopped: both PQClean and `pqcrypto` are archived, with advisories that say so
//! (RUSTSEC-2026-0161, -0162 and -0163). Two more reasons not to use it for real traffic: it takes
//! randomness from a source of its own, and its keys lie in plain arrays that are wiped only here.

use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};
use pqcrypto_traits::kem::{Ciphertext, PublicKey, SecretKey, SharedSecret};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Every parameter set.
pub const ALL: &[&dyn KeMethod] = &[&MlKem768, &MlKem1024, &MlKem512];

macro_rules! ml_kem {
    ($(#[$doc:meta])* $name:ident, $id:ident, $module:ident, $pending:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl KeMethod for $name {
            fn id(&self) -> KeMethodId {
                KeMethodId::$id
            }

            fn lengths(&self) -> KeLengths {
                KeLengths {
                    initiator: pqcrypto_mlkem::$module::public_key_bytes(),
                    responder: pqcrypto_mlkem::$module::ciphertext_bytes(),
                }
            }

            fn initiate(
                &self,
                _: &mut dyn SecureRandom,
            ) -> Result<Arc<dyn PendingKe>, CryptoError> {
                let (public, key) = pqcrypto_mlkem::$module::keypair();
                let key = Zeroizing::new(key.as_bytes().to_vec());
                Ok(Arc::new($pending { key, public: public.as_bytes().to_vec() }))
            }

            fn respond(
                &self,
                peer: &[u8],
                _: &mut dyn SecureRandom,
            ) -> Result<(Vec<u8>, Secret), CryptoError> {
                if !coefficients_are_reduced(peer) {
                    return Err(CryptoError::InvalidPublic);
                }
                let peer = PublicKey::from_bytes(peer).map_err(|_| CryptoError::InvalidPublic)?;
                let (shared, ciphertext) = pqcrypto_mlkem::$module::encapsulate(&peer);
                Ok((ciphertext.as_bytes().to_vec(), Secret::copy_from(shared.as_bytes())))
            }
        }

        struct $pending {
            key: Zeroizing<Vec<u8>>,
            public: Vec<u8>,
        }

        impl PendingKe for $pending {
            fn public(&self) -> &[u8] {
                &self.public
            }

            fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
                let peer = Ciphertext::from_bytes(peer).map_err(|_| CryptoError::InvalidPublic)?;
                let key = SecretKey::from_bytes(&self.key).map_err(|_| CryptoError::Backend)?;
                let shared = pqcrypto_mlkem::$module::decapsulate(&peer, &key);
                Ok(Secret::copy_from(shared.as_bytes()))
            }
        }
    };
}

ml_kem!(
    /// ML-KEM-512, transform ID 35.
    MlKem512, ML_KEM_512, mlkem512, Pending512
);
ml_kem!(
    /// ML-KEM-768, transform ID 36.
    MlKem768, ML_KEM_768, mlkem768, Pending768
);
ml_kem!(
    /// ML-KEM-1024, transform ID 37.
    MlKem1024, ML_KEM_1024, mlkem1024, Pending1024
);

/// The modulus check of FIPS 203 §7.2, which PQClean leaves to its caller: every 12-bit coefficient in
/// front of the 32 octets of rho is below q.
fn coefficients_are_reduced(key: &[u8]) -> bool {
    let coefficients = key.get(..key.len().saturating_sub(32)).unwrap_or_default();
    coefficients.chunks_exact(3).all(|three| {
        let [a, b, c] = [three[0], three[1], three[2]].map(u16::from);
        (a | (b & 0x0f) << 8) < Q && (b >> 4 | c << 4) < Q
    })
}

/// The modulus of ML-KEM.
const Q: u16 = 3329;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    /// NIST's cases.
    #[test]
    fn acvp_decapsulation() {
        let mut key = Zeroizing::new(Vec::new());
        let mut checked = 0;
        for case in data::json(include_str!("../../tests/data/acvp/ml_kem.json")) {
            if let Some(dk) = case.optional("dk") {
                key = Zeroizing::new(dk);
            }
            let (key, public) = (key.clone(), Vec::new());
            let pending: Box<dyn PendingKe> = match case.text("set") {
                "ML-KEM-512" => Box::new(Pending512 { key, public }),
                "ML-KEM-768" => Box::new(Pending768 { key, public }),
                "ML-KEM-1024" => Box::new(Pending1024 { key, public }),
                other => panic!("{other}"),
            };
            let shared = pending.complete(&case.octets("c")).unwrap();
            assert_eq!(shared.expose(), case.octets("k"), "{}", case.name);
            checked += 1;
        }
        assert_eq!(checked, 45);
    }
}
