//! Key exchange that costs nothing and protects nothing: for runs by the thousand.

use std::fmt;
use std::sync::Arc;

use ike_proto::crypto::{
    CryptoError, CryptoProvider, KeLengths, KeMethod, PendingKe, Secret, SecureRandom,
};
use ike_proto::wire::registry::KeMethodId;

/// A key exchange in the clothes of a real one: its number and lengths, but whoever sees both public
/// values has the secret.
pub struct CheapKe {
    id: KeMethodId,
    octets: usize,
}

/// As X25519.
pub static CURVE_25519: CheapKe = CheapKe { id: KeMethodId::CURVE_25519, octets: 32 };
/// As ECP-256.
pub static ECP_256: CheapKe = CheapKe { id: KeMethodId(19), octets: 64 };
/// As MODP-2048.
pub static MODP_2048: CheapKe = CheapKe { id: KeMethodId(14), octets: 256 };

/// The real ciphers and PRFs with these key exchanges.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { ke: vec![&CURVE_25519, &ECP_256, &MODP_2048], ..pq_kem::provider() })
}

/// Every backend there is.
pub fn real() -> Arc<CryptoProvider> {
    Arc::new(pq_kem::provider())
}

impl fmt::Debug for CheapKe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheapKe({})", self.id)
    }
}

impl KeMethod for CheapKe {
    fn id(&self) -> KeMethodId {
        self.id
    }

    fn lengths(&self) -> KeLengths {
        KeLengths { initiator: self.octets, responder: self.octets }
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Box<dyn PendingKe>, CryptoError> {
        Ok(Box::new(Half(draw(rng, self.octets))))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let ours = Half(draw(rng, self.octets));
        let shared = ours.complete(peer)?;
        Ok((ours.0, shared))
    }
}

struct Half(Vec<u8>);

impl PendingKe for Half {
    fn public(&self) -> &[u8] {
        &self.0
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        if peer.len() != self.0.len() {
            return Err(CryptoError::InvalidPublic);
        }
        Ok(Secret::new(self.0.iter().zip(peer).map(|(a, b)| a ^ b).collect()))
    }
}

fn draw(rng: &mut dyn SecureRandom, octets: usize) -> Vec<u8> {
    let mut out = vec![0; octets];
    rng.fill(&mut out);
    out
}
