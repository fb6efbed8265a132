//! FrodoKEM: the standard, salted scheme of ISO/IEC 18033-2:2006/Amd 2:2026, and eFrodoKEM, the
//! unsalted one of NIST's third round, which old strongSwan and liboqs know as FrodoKEM.

use std::fmt;
use std::sync::Arc;

use frodo_kem_rs::{Algorithm, DecryptionKey, EncryptionKey};
use ike_wire::registry::FrodoNumbers;
use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{
    CryptoError, KeLengths, KeMethod, KeyExchange, PendingKe, Secret, SecureRandom,
};
use zeroize::Zeroizing;

/// A FrodoKEM parameter set under a transform ID: the encapsulation key one way, the ciphertext the
/// other. Both roles draw everything from the source they are given.
///
/// The unsalted sets are for keys that see few ciphertexts; an IKE key exchange uses a key once.
pub struct FrodoKem {
    id: KeMethodId,
    set: FrodoSet,
}

/// A parameter set, and with it the sizes in octets of encapsulation key, ciphertext and secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrodoSet {
    /// FrodoKEM-640-AES: 9,616, 9,752 and 16.
    Aes640,
    /// FrodoKEM-976-AES: 15,632, 15,792 and 24.
    Aes976,
    /// FrodoKEM-1344-AES: 21,520, 21,696 and 32.
    Aes1344,
    /// FrodoKEM-640-SHAKE: as with AES.
    Shake640,
    /// FrodoKEM-976-SHAKE: as with AES.
    Shake976,
    /// FrodoKEM-1344-SHAKE: as with AES.
    Shake1344,
    /// eFrodoKEM-640-AES: 9,616, 9,720 and 16.
    EphemeralAes640,
    /// eFrodoKEM-976-AES: 15,632, 15,744 and 24.
    EphemeralAes976,
    /// eFrodoKEM-1344-AES: 21,520, 21,632 and 32.
    EphemeralAes1344,
    /// eFrodoKEM-640-SHAKE: as with AES.
    EphemeralShake640,
    /// eFrodoKEM-976-SHAKE: as with AES.
    EphemeralShake976,
    /// eFrodoKEM-1344-SHAKE: as with AES.
    EphemeralShake1344,
}

impl FrodoKem {
    /// `set` under a transform ID of the caller's choice: IANA has assigned none, and peers may agree
    /// on other numbers than those of [`KeMethodId`].
    pub const fn new(set: FrodoSet, id: KeMethodId) -> Self {
        Self { id, set }
    }

    fn pending(&self, seed: &[u8]) -> Result<Pending, CryptoError> {
        let algorithm = self.set.algorithm();
        let (public, key) =
            algorithm.generate_keypair_from_seed(seed).map_err(|_| CryptoError::Backend)?;
        Ok(Pending { algorithm, key, public })
    }

    fn encapsulate(
        &self,
        peer: &[u8],
        message: &[u8],
        salt: &[u8],
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let algorithm = self.set.algorithm();
        let key =
            EncryptionKey::from_bytes(algorithm, peer).map_err(|_| CryptoError::InvalidPublic)?;
        let (ciphertext, shared) =
            algorithm.encapsulate(&key, message, salt).map_err(|_| CryptoError::Backend)?;
        Ok((ciphertext.value().to_vec(), Secret::copy_from(shared.value())))
    }
}

impl KeMethod for FrodoKem {
    fn id(&self) -> KeMethodId {
        self.id
    }

    fn lengths(&self) -> KeLengths {
        let params = self.set.algorithm().params();
        KeLengths { initiator: params.encryption_key_length, responder: params.ciphertext_length }
    }

    fn is_slow(&self) -> bool {
        // FrodoKEM-640 with AES takes a quarter of a millisecond, but only on processors that have AES.
        true
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        let seed = draw(rng, self.set.algorithm().params().key_seed_length);
        Ok(Arc::new(self.pending(&seed)?))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        if peer.len() != self.lengths().initiator {
            return Err(CryptoError::InvalidPublic);
        }
        let params = self.set.algorithm().params();
        let drawn = draw(rng, params.message_length + params.salt_length);
        let (message, salt) = drawn.split_at(params.message_length);
        self.encapsulate(peer, message, salt)
    }
}

impl fmt::Debug for FrodoKem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl FrodoSet {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Aes640 => Algorithm::FrodoKem640Aes,
            Self::Aes976 => Algorithm::FrodoKem976Aes,
            Self::Aes1344 => Algorithm::FrodoKem1344Aes,
            Self::Shake640 => Algorithm::FrodoKem640Shake,
            Self::Shake976 => Algorithm::FrodoKem976Shake,
            Self::Shake1344 => Algorithm::FrodoKem1344Shake,
            Self::EphemeralAes640 => Algorithm::EphemeralFrodoKem640Aes,
            Self::EphemeralAes976 => Algorithm::EphemeralFrodoKem976Aes,
            Self::EphemeralAes1344 => Algorithm::EphemeralFrodoKem1344Aes,
            Self::EphemeralShake640 => Algorithm::EphemeralFrodoKem640Shake,
            Self::EphemeralShake976 => Algorithm::EphemeralFrodoKem976Shake,
            Self::EphemeralShake1344 => Algorithm::EphemeralFrodoKem1344Shake,
        }
    }
}

struct Pending {
    algorithm: Algorithm,
    key: DecryptionKey,
    public: EncryptionKey,
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        self.public.value()
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        let ciphertext =
            self.algorithm.ciphertext_from_bytes(peer).map_err(|_| CryptoError::InvalidPublic)?;
        let (shared, message) = self
            .algorithm
            .decapsulate(&self.key, &ciphertext)
            .map_err(|_| CryptoError::InvalidPublic)?;
        drop(Zeroizing::new(message));
        Ok(Secret::copy_from(shared.value()))
    }
}

fn draw(rng: &mut dyn SecureRandom, len: usize) -> Zeroizing<Vec<u8>> {
    let mut octets = Zeroizing::new(vec![0; len]);
    rng.fill(&mut octets);
    octets
}

/// The salted sets, AES before SHAKE, small before large.
pub static FRODOKEM: [FrodoKem; 6] = [
    FrodoKem::new(FrodoSet::Aes640, KeMethodId::FRODOKEM_640_AES),
    FrodoKem::new(FrodoSet::Aes976, KeMethodId::FRODOKEM_976_AES),
    FrodoKem::new(FrodoSet::Aes1344, KeMethodId::FRODOKEM_1344_AES),
    FrodoKem::new(FrodoSet::Shake640, KeMethodId::FRODOKEM_640_SHAKE),
    FrodoKem::new(FrodoSet::Shake976, KeMethodId::FRODOKEM_976_SHAKE),
    FrodoKem::new(FrodoSet::Shake1344, KeMethodId::FRODOKEM_1344_SHAKE),
];

/// The unsalted sets, in the same order, under numbers of this project.
pub static EFRODOKEM: [FrodoKem; 6] = [
    FrodoKem::new(FrodoSet::EphemeralAes640, KeMethodId::EFRODOKEM_640_AES),
    FrodoKem::new(FrodoSet::EphemeralAes976, KeMethodId::EFRODOKEM_976_AES),
    FrodoKem::new(FrodoSet::EphemeralAes1344, KeMethodId::EFRODOKEM_1344_AES),
    FrodoKem::new(FrodoSet::EphemeralShake640, KeMethodId::EFRODOKEM_640_SHAKE),
    FrodoKem::new(FrodoSet::EphemeralShake976, KeMethodId::EFRODOKEM_976_SHAKE),
    FrodoKem::new(FrodoSet::EphemeralShake1344, KeMethodId::EFRODOKEM_1344_SHAKE),
];

/// `ke` with FrodoKEM under other numbers, for peers that use those.
pub fn renumbered(ke: Vec<KeyExchange>, numbers: FrodoNumbers) -> Vec<KeyExchange> {
    let sets = || FRODOKEM.iter().chain(&EFRODOKEM);
    let other = |method: KeyExchange| {
        let id = numbers.of(method.id());
        match sets().find(|set| set.id == method.id() && set.id != id) {
            Some(set) => KeyExchange::new(FrodoKem::new(set.set, id)),
            None => method,
        }
    };
    ke.into_iter().map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `renumbered`, leave the methods as they are.
    #[test]
    fn other_numbers_are_the_same_schemes() {
        let numbers = FrodoNumbers { salted: 1183, unsalted: 1083 };
        let usual = crate::provider().ke;
        let moved = renumbered(usual.clone(), numbers);
        assert_eq!(moved.len(), usual.len());
        let lengths = |all: &[KeyExchange], id: u16| {
            let found: Vec<_> = all.iter().filter(|method| method.id().0 == id).collect();
            assert_eq!(found.len(), 1, "{id}");
            found[0].lengths()
        };
        for set in 0..6 {
            assert_eq!(lengths(&moved, 1183 + set), lengths(&usual, 1083 + set));
            assert_eq!(lengths(&moved, 1083 + set), lengths(&usual, 1183 + set));
            assert_ne!(lengths(&moved, 1083 + set), lengths(&usual, 1083 + set));
        }
        let ml_kem = KeMethodId::ML_KEM_768.0;
        assert_eq!(lengths(&moved, ml_kem), lengths(&usual, ml_kem));
    }
}
