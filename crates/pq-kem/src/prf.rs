//! Pseudorandom functions: HMAC over SHA-1 and SHA-2 (RFC 2104, RFC 4868).

use std::fmt;

use ike_wire::registry::PrfId;
use ipsec_types::crypto::{Prf, Secret};
use zeroize::Zeroizing;

use crate::ffi::hmac::{Hash, Hmac};

/// Every PRF, in order of preference.
pub const ALL: &[&dyn Prf] = &[&HMAC_SHA2_256, &HMAC_SHA2_384, &HMAC_SHA2_512, &HMAC_SHA1];

/// PRF_HMAC_SHA2_256 (RFC 4868), 32 octets.
pub static HMAC_SHA2_256: HmacPrf = HmacPrf { id: PrfId::HMAC_SHA2_256, hash: Hash::Sha256 };

/// PRF_HMAC_SHA2_384 (RFC 4868), 48 octets.
pub static HMAC_SHA2_384: HmacPrf = HmacPrf { id: PrfId::HMAC_SHA2_384, hash: Hash::Sha384 };

/// PRF_HMAC_SHA2_512 (RFC 4868), 64 octets.
pub static HMAC_SHA2_512: HmacPrf = HmacPrf { id: PrfId::HMAC_SHA2_512, hash: Hash::Sha512 };

/// PRF_HMAC_SHA1 (RFC 2104), 20 octets: for old peers.
pub static HMAC_SHA1: HmacPrf = HmacPrf { id: PrfId::HMAC_SHA1, hash: Hash::Sha1 };

/// HMAC as a [`Prf`]; keys may have any length.
pub struct HmacPrf {
    id: PrfId,
    hash: Hash,
}

/// Octets of the longest output.
const LONGEST: usize = Hash::Sha512.len();

const NEVER: &str = "HMAC takes keys and input of any length, and `output` has that of the hash";

impl Prf for HmacPrf {
    fn id(&self) -> PrfId {
        self.id
    }

    fn output_len(&self) -> usize {
        self.hash.len()
    }

    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        let mut output = vec![0; self.hash.len()];
        let into = &mut output;
        Hmac::with_key(self.hash, key, |hmac| hmac.compute(parts.iter().copied(), into))
            .expect(NEVER);
        Secret::new(output)
    }

    /// Keys the HMAC once for all blocks.
    fn prf_plus(&self, key: &[u8], seed: &[&[u8]], len: usize) -> Secret {
        let size = self.hash.len();
        let mut blocks = [Zeroizing::new([0; LONGEST]), Zeroizing::new([0; LONGEST])];
        let mut output = vec![0; len];
        let mut counter = 0_u8;
        Hmac::with_key(self.hash, key, |hmac| {
            for wanted in output.chunks_mut(size) {
                counter = counter.checked_add(1).expect("no more than 255 blocks");
                let [last, block] = &mut blocks;
                let (last, block) = (last.split_at(size).0, block.split_at_mut(size).0);
                let last = (counter > 1).then_some(last);
                let number = [counter];
                let parts = last.into_iter().chain(seed.iter().copied()).chain([&number[..]]);
                hmac.compute(parts, block)?;
                wanted.copy_from_slice(block.split_at(wanted.len()).0);
                blocks.swap(0, 1);
            }
            Some(())
        })
        .expect(NEVER);
        Secret::new(output)
    }
}

impl fmt::Debug for HmacPrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}
