//! ECP groups: NIST curves in IKEv2 (RFC 5903).

use std::fmt;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use ike_proto::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};
use ike_proto::wire::registry::KeMethodId;

/// ECP_256, transform ID 19: 64 octets each way, 32 octets of secret.
pub static ECP_256: Ecp =
    Ecp { id: KeMethodId::ECP_256, algorithm: &agreement::ECDH_P256, coordinate: 32 };

/// ECP_384, transform ID 20: 96 octets each way, 48 octets of secret.
pub static ECP_384: Ecp =
    Ecp { id: KeMethodId::ECP_384, algorithm: &agreement::ECDH_P384, coordinate: 48 };

/// ECP_521, transform ID 21: 132 octets each way, 66 octets of secret.
pub static ECP_521: Ecp =
    Ecp { id: KeMethodId::ECP_521, algorithm: &agreement::ECDH_P521, coordinate: 66 };

/// An ECP group. A public value is `x | y`, each coordinate padded to the field's length, without a
/// point-format octet (RFC 5903 §7); the secret is the x coordinate (§7, as errata of RFC 4753 had it).
/// A point that is not on the curve is refused.
///
/// Private keys come from AWS-LC's own random source: the other way in checks a key it
/// has no doubt about at the price of another multiplication.
pub struct Ecp {
    id: KeMethodId,
    algorithm: &'static agreement::Algorithm,
    coordinate: usize,
}

impl Ecp {
    fn generate(&self) -> Result<Pending, CryptoError> {
        let key = PrivateKey::generate(self.algorithm).map_err(|_| CryptoError::Backend)?;
        self.pending(key)
    }

    fn pending(&self, key: PrivateKey) -> Result<Pending, CryptoError> {
        let point = key.compute_public_key().map_err(|_| CryptoError::Backend)?;
        match point.as_ref().split_first() {
            Some((&UNCOMPRESSED, xy)) if xy.len() == 2 * self.coordinate => {
                Ok(Pending { key, algorithm: self.algorithm, public: xy.to_vec() })
            }
            _ => Err(CryptoError::Backend),
        }
    }
}

impl KeMethod for Ecp {
    fn id(&self) -> KeMethodId {
        self.id
    }

    fn lengths(&self) -> KeLengths {
        KeLengths { initiator: 2 * self.coordinate, responder: 2 * self.coordinate }
    }

    fn initiate(&self, _: &mut dyn SecureRandom) -> Result<Box<dyn PendingKe>, CryptoError> {
        Ok(Box::new(self.generate()?))
    }

    fn respond(
        &self,
        peer: &[u8],
        _: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let ours = self.generate()?;
        let shared = ours.complete(peer)?;
        Ok((ours.public, shared))
    }
}

impl fmt::Debug for Ecp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

struct Pending {
    key: PrivateKey,
    algorithm: &'static agreement::Algorithm,
    public: Vec<u8>,
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        // Only the exact length: AWS-LC takes other encodings too (compressed points, DER), and none
        // of them is IKE's.
        if peer.len() != self.public.len() {
            return Err(CryptoError::InvalidPublic);
        }
        let mut point = Vec::with_capacity(1 + peer.len());
        point.push(UNCOMPRESSED);
        point.extend_from_slice(peer);
        agreement::agree(
            &self.key,
            UnparsedPublicKey::new(self.algorithm, point),
            CryptoError::InvalidPublic,
            |shared| Ok(Secret::copy_from(shared)),
        )
    }
}

/// SEC 1's mark of a point given by both coordinates.
const UNCOMPRESSED: u8 = 4;
