//! Pseudorandom functions: HMAC over SHA-1 and SHA-2 (RFC 2104, RFC 4868).

use std::fmt;

use aws_lc_rs::hmac;
use ike_proto::crypto::{Prf, Secret};
use ike_proto::wire::registry::PrfId;
use zeroize::Zeroizing;

/// Every PRF, in order of preference.
pub const ALL: &[&dyn Prf] = &[&HMAC_SHA2_256, &HMAC_SHA2_384, &HMAC_SHA2_512, &HMAC_SHA1];

/// PRF_HMAC_SHA2_256 (RFC 4868), 32 octets.
pub static HMAC_SHA2_256: HmacPrf =
    HmacPrf { id: PrfId::HMAC_SHA2_256, algorithm: &hmac::HMAC_SHA256, output_len: 32 };

/// PRF_HMAC_SHA2_384 (RFC 4868), 48 octets.
pub static HMAC_SHA2_384: HmacPrf =
    HmacPrf { id: PrfId::HMAC_SHA2_384, algorithm: &hmac::HMAC_SHA384, output_len: 48 };

/// PRF_HMAC_SHA2_512 (RFC 4868), 64 octets.
pub static HMAC_SHA2_512: HmacPrf =
    HmacPrf { id: PrfId::HMAC_SHA2_512, algorithm: &hmac::HMAC_SHA512, output_len: 64 };

/// PRF_HMAC_SHA1 (RFC 2104), 20 octets: for old peers.
pub static HMAC_SHA1: HmacPrf = HmacPrf {
    id: PrfId::HMAC_SHA1,
    algorithm: &hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
    output_len: 20,
};

/// HMAC as a [`Prf`]; keys may have any length.
pub struct HmacPrf {
    id: PrfId,
    algorithm: &'static hmac::Algorithm,
    output_len: usize,
}

impl Prf for HmacPrf {
    fn id(&self) -> PrfId {
        self.id
    }

    fn output_len(&self) -> usize {
        self.output_len
    }

    fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
        // Gathered and signed straight into the result: the incremental interface would return its
        // tag, a secret here, in a value that nothing wipes.
        let mut input = Zeroizing::new(Vec::with_capacity(parts.iter().map(|p| p.len()).sum()));
        for part in parts {
            input.extend_from_slice(part);
        }
        let key = hmac::Key::new(*self.algorithm, key);
        let mut output = vec![0; self.output_len];
        hmac::sign_to_buffer(&key, &input, &mut output)
            .expect("output_len is the tag length of the algorithm");
        Secret::new(output)
    }
}

impl fmt::Debug for HmacPrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}
