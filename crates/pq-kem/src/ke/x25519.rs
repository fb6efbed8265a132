//! Curve25519 (RFC 7748) in IKEv2 (RFC 8031).

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};
use std::sync::Arc;
use zeroize::Zeroizing;

/// X25519, transform ID 31. 32 octets each way, 32 octets of secret; an all-zero result is refused.
#[derive(Debug, Clone, Copy)]
pub struct X25519;

impl KeMethod for X25519 {
    fn id(&self) -> KeMethodId {
        KeMethodId::CURVE_25519
    }

    fn lengths(&self) -> KeLengths {
        KeLengths { initiator: LEN, responder: LEN }
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        Ok(Arc::new(Pending::generate(rng)?))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let ours = Pending::generate(rng)?;
        Ok((ours.public.to_vec(), ours.complete(peer)?))
    }
}

struct Pending {
    key: PrivateKey,
    public: [u8; LEN],
}

impl Pending {
    fn generate(rng: &mut dyn SecureRandom) -> Result<Self, CryptoError> {
        let mut scalar = Zeroizing::new([0; LEN]);
        rng.fill(scalar.as_mut());
        Self::from_scalar(&scalar)
    }

    /// Every 32 octets are a private key: they are clamped as they are used (RFC 7748 §5).
    fn from_scalar(scalar: &[u8; LEN]) -> Result<Self, CryptoError> {
        let key = PrivateKey::from_private_key(&agreement::X25519, scalar)
            .map_err(|_| CryptoError::Backend)?;
        let point = key.compute_public_key().map_err(|_| CryptoError::Backend)?;
        let public = point.as_ref().try_into().map_err(|_| CryptoError::Backend)?;
        Ok(Self { key, public })
    }
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        // AWS-LC masks the top bit and takes non-canonical values (RFC 8031 §3.2), and refuses the all-zero
        // result (RFC 7748 §6.1); tests hold it to all three.
        agreement::agree(
            &self.key,
            UnparsedPublicKey::new(&agreement::X25519, peer),
            CryptoError::InvalidPublic,
            |shared| Ok(Secret::copy_from(shared)),
        )
    }
}

/// Octets of a scalar, a u-coordinate and the secret.
const LEN: usize = 32;
