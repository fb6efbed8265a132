//! ML-KEM (FIPS 203) in IKEv2 (draft-ietf-ipsecme-ikev2-mlkem).

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::kem::{self, Ciphertext, DecapsulationKey, EncapsulationKey};
use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};

/// ML-KEM-512, transform ID 35: 800 octets from the initiator, 768 from the responder.
pub static ML_KEM_512: MlKem =
    MlKem { id: KeMethodId::ML_KEM_512, algorithm: &kem::ML_KEM_512, key: 800, ciphertext: 768 };

/// ML-KEM-768, transform ID 36: 1184 octets from the initiator, 1088 from the responder.
pub static ML_KEM_768: MlKem =
    MlKem { id: KeMethodId::ML_KEM_768, algorithm: &kem::ML_KEM_768, key: 1184, ciphertext: 1088 };

/// ML-KEM-1024, transform ID 37: 1568 octets each way.
pub static ML_KEM_1024: MlKem = MlKem {
    id: KeMethodId::ML_KEM_1024,
    algorithm: &kem::ML_KEM_1024,
    key: 1568,
    ciphertext: 1568,
};

/// An ML-KEM parameter set. The initiator sends an encapsulation key and the responder a ciphertext;
/// the secret has 32 octets.
///
/// A key that fails FIPS 203's checks (§7.2) is refused, and so is a ciphertext of the wrong length
/// (§7.3), as the draft's §2.2 demands. A wrong ciphertext of the right length
/// gives a secret that differs from the peer's (implicit rejection, §6.3), never an error.
///
/// Randomness comes from AWS-LC's own source.
pub struct MlKem {
    id: KeMethodId,
    algorithm: &'static kem::Algorithm<kem::AlgorithmId>,
    key: usize,
    ciphertext: usize,
}

impl MlKem {
    fn pending(&self, key: DecapsulationKey) -> Result<Pending, CryptoError> {
        let public = key
            .encapsulation_key()
            .and_then(|public| public.key_bytes())
            .map_err(|_| CryptoError::Backend)?
            .as_ref()
            .to_vec();
        Ok(Pending { key, public, ciphertext: self.ciphertext })
    }
}

impl KeMethod for MlKem {
    fn id(&self) -> KeMethodId {
        self.id
    }

    fn lengths(&self) -> KeLengths {
        KeLengths { initiator: self.key, responder: self.ciphertext }
    }

    fn initiate(&self, _: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        let key = DecapsulationKey::generate(self.algorithm).map_err(|_| CryptoError::Backend)?;
        Ok(Arc::new(self.pending(key)?))
    }

    fn respond(
        &self,
        peer: &[u8],
        _: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let key =
            EncapsulationKey::new(self.algorithm, peer).map_err(|_| CryptoError::InvalidPublic)?;
        // The modulus check is made here, not above.
        let (ciphertext, shared) = key.encapsulate().map_err(|_| CryptoError::InvalidPublic)?;
        Ok((ciphertext.as_ref().to_vec(), Secret::copy_from(shared.as_ref())))
    }
}

impl fmt::Debug for MlKem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

struct Pending {
    key: DecapsulationKey,
    public: Vec<u8>,
    ciphertext: usize,
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        if peer.len() != self.ciphertext {
            return Err(CryptoError::InvalidPublic);
        }
        let shared =
            self.key.decapsulate(Ciphertext::from(peer)).map_err(|_| CryptoError::InvalidPublic)?;
        Ok(Secret::copy_from(shared.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    /// NIST's cases: ciphertexts that others made, damaged ones (whose secret is the implicit
    /// rejection's) among them; and our own encapsulation to the keys of others.
    #[test]
    fn acvp() {
        let mut dk = Vec::new();
        let (mut decapsulated, mut encapsulated) = (0, 0);
        for case in data::json(include_str!("../../tests/data/acvp/ml_kem.json")) {
            let method = match case.text("set") {
                "ML-KEM-512" => &ML_KEM_512,
                "ML-KEM-768" => &ML_KEM_768,
                "ML-KEM-1024" => &ML_KEM_1024,
                other => panic!("{other}"),
            };
            if let Some(key) = case.optional("dk") {
                dk = key;
            }
            let key = DecapsulationKey::new(method.algorithm, &dk).unwrap();
            let ours = Pending { key, public: Vec::new(), ciphertext: method.ciphertext };
            let shared = ours.complete(&case.octets("c")).unwrap();
            assert_eq!(shared.expose(), case.octets("k"), "{}", case.name);
            decapsulated += 1;
            if let Some(ek) = case.optional("ek") {
                let (ciphertext, shared) = method.respond(&ek, &mut crate::os_random()).unwrap();
                assert!(ours.complete(&ciphertext).unwrap().ct_eq(shared.expose()));
                encapsulated += 1;
            }
        }
        assert_eq!((decapsulated, encapsulated), (15 + 30, 15));
    }
}
