//! A key exchange method from outside the engine: two methods of a backend in one payload, under a number for private use.

use std::fmt;
use std::sync::Arc;

use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{
    CryptoError, CryptoProvider, KeLengths, KeMethod, KeyExchange, PendingKe, Secret, SecureRandom,
};

/// The number, of the range for private use (RFC 7296 §3.3.2): `kem60001` in proposals.
pub const JOINED: KeMethodId = KeMethodId(60_001);

/// Two methods, one after the other in each payload.
#[derive(Debug)]
pub struct Joined {
    first: KeyExchange,
    second: KeyExchange,
}

impl Joined {
    /// X25519 and ML-KEM-768 of `provider`; `None` if it lacks one of them.
    pub fn of(provider: &CryptoProvider) -> Option<KeyExchange> {
        let first = provider.ke(KeMethodId::CURVE_25519)?.clone();
        let second = provider.ke(KeMethodId::ML_KEM_768)?.clone();
        Some(KeyExchange::new(Self { first, second }))
    }
}

impl KeMethod for Joined {
    fn id(&self) -> KeMethodId {
        JOINED
    }

    fn lengths(&self) -> KeLengths {
        let (first, second) = (self.first.lengths(), self.second.lengths());
        KeLengths {
            initiator: first.initiator + second.initiator,
            responder: first.responder + second.responder,
        }
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        let halves = [self.first.initiate(rng)?, self.second.initiate(rng)?];
        let public = halves.iter().flat_map(|half| half.public().to_vec()).collect();
        Ok(Arc::new(Pending { halves, public, split: self.first.lengths().responder }))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let split = self.first.lengths().initiator;
        let (one, other) = peer.split_at_checked(split).ok_or(CryptoError::InvalidPublic)?;
        let (mut public, first) = self.first.respond(one, rng)?;
        let (rest, second) = self.second.respond(other, rng)?;
        public.extend(rest);
        Ok((public, joined(&first, &second)))
    }
}

/// The initiator's half.
struct Pending {
    halves: [Arc<dyn PendingKe>; 2],
    public: Vec<u8>,
    split: usize,
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        let (one, other) = peer.split_at_checked(self.split).ok_or(CryptoError::InvalidPublic)?;
        let [first, second] = &self.halves;
        Ok(joined(&first.complete(one)?, &second.complete(other)?))
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// The two secrets, one after the other. The engine's PRF makes keys of them.
fn joined(first: &Secret, second: &Secret) -> Secret {
    Secret::new([first.expose(), second.expose()].concat())
}
