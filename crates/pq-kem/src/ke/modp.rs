//! MODP groups: finite-field Diffie-Hellman (RFC 3526).

use std::fmt;
use std::sync::{Arc, OnceLock};

use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::{CryptoError, KeLengths, KeMethod, PendingKe, Secret, SecureRandom};
use zeroize::{Zeroize, Zeroizing};

use crate::ffi::{self, Rfc3526};

/// MODP_2048, transform ID 14: 256 octets each way, a private exponent of 256 bits.
pub static MODP_2048: Modp = Modp(&GROUP_14);

/// MODP_3072, transform ID 15: 384 octets each way, a private exponent of 320 bits.
pub static MODP_3072: Modp = Modp(&GROUP_15);

/// MODP_4096, transform ID 16: 512 octets each way, a private exponent of 384 bits.
pub static MODP_4096: Modp = Modp(&GROUP_16);

/// A MODP group. Public values and the secret are padded to the prime's length (RFC 7296 §2.14 and
/// §3.4); a public value `y` is refused unless `1 < y < p - 1` (RFC 6989 §2.1).
///
/// A private exponent of twice the group's strength (RFC 3526 §1) is enough, and many times faster
/// than one of full length; those here are longer than what §8's first estimate asks for.
pub struct Modp(&'static Group);

impl KeMethod for Modp {
    fn id(&self) -> KeMethodId {
        self.0.id
    }

    fn lengths(&self) -> KeLengths {
        KeLengths { initiator: self.0.len, responder: self.0.len }
    }

    fn is_slow(&self) -> bool {
        // The responder's part of MODP_2048 takes 0.4 ms, that of MODP_3072 1 ms.
        self.0.len > GROUP_14.len
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        Ok(Arc::new(self.0.generate(rng)?))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        // Before the slow part: a bad value costs nothing.
        if !self.0.is_in_range(peer) {
            return Err(CryptoError::InvalidPublic);
        }
        let ours = self.0.generate(rng)?;
        let shared = ours.complete(peer)?;
        Ok((ours.public, shared))
    }
}

impl fmt::Debug for Modp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.id)
    }
}

struct Group {
    id: KeMethodId,
    source: Rfc3526,
    /// Octets of the prime.
    len: usize,
    /// Octets of a private exponent.
    exponent: usize,
    prime: OnceLock<Vec<u8>>,
}

impl Group {
    fn prime(&self) -> &[u8] {
        self.prime.get_or_init(|| {
            ffi::prime(self.source, self.len)
                .expect("the prime is a constant of AWS-LC of `len` octets")
        })
    }

    fn generate(&'static self, rng: &mut dyn SecureRandom) -> Result<Pending, CryptoError> {
        let mut exponent = Zeroizing::new(vec![0; self.exponent]);
        rng.fill(&mut exponent);
        // The top bit makes the exponent's length a constant, and keeps it from being 0 or 1.
        if let Some(top) = exponent.first_mut() {
            *top |= 0x80;
        }
        self.pending(exponent)
    }

    fn pending(&'static self, exponent: Zeroizing<Vec<u8>>) -> Result<Pending, CryptoError> {
        let mut public = vec![0; self.len];
        ffi::mod_exp(&[GENERATOR], &exponent, self.prime(), &mut public)
            .ok_or(CryptoError::Backend)?;
        Ok(Pending { group: self, exponent, public })
    }

    /// 1 < y < p - 1, for `y` of the right length. Public values: time does not matter.
    fn is_in_range(&self, y: &[u8]) -> bool {
        let Some((&last, head)) = y.split_last() else { return false };
        let above_one = last > 1 || head.iter().any(|&octet| octet != 0);
        // p is odd, so p - 1 differs in the last octet only; big-endian of one length orders as octets.
        let below = match self.prime().split_last() {
            Some((&p_last, p_head)) => (head, last) < (p_head, p_last - 1),
            None => false,
        };
        y.len() == self.len && above_one && below
    }
}

struct Pending {
    group: &'static Group,
    exponent: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
}

impl PendingKe for Pending {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        if !self.group.is_in_range(peer) {
            return Err(CryptoError::InvalidPublic);
        }
        let mut shared = vec![0; self.group.len];
        match ffi::mod_exp(peer, &self.exponent, self.group.prime(), &mut shared) {
            Some(()) => Ok(Secret::new(shared)),
            None => {
                shared.zeroize();
                Err(CryptoError::Backend)
            }
        }
    }
}

/// The generator of every group of RFC 3526.
const GENERATOR: u8 = 2;

static GROUP_14: Group = Group {
    id: KeMethodId::MODP_2048,
    source: Rfc3526::Modp2048,
    len: 256,
    exponent: 32,
    prime: OnceLock::new(),
};

static GROUP_15: Group = Group {
    id: KeMethodId::MODP_3072,
    source: Rfc3526::Modp3072,
    len: 384,
    exponent: 40,
    prime: OnceLock::new(),
};

static GROUP_16: Group = Group {
    id: KeMethodId::MODP_4096,
    source: Rfc3526::Modp4096,
    len: 512,
    exponent: 48,
    prime: OnceLock::new(),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    const GROUPS: [&Modp; 3] = [&MODP_2048, &MODP_3072, &MODP_4096];

    #[test]
    fn primes_are_those_of_rfc3526() {
        let cases = data::sections(include_str!("../../tests/data/rfc/rfc3526.txt"));
        assert_eq!(cases.len(), GROUPS.len());
        for (case, group) in cases.iter().zip(GROUPS) {
            assert_eq!(case.name, group.id().to_string());
            assert_eq!(group.0.prime(), case.octets("p"));
        }
    }

    #[test]
    fn strongswan() {
        let mut checked = 0;
        for case in data::json(include_str!("../../tests/data/strongswan/ke.json")) {
            let group = match case.text("method") {
                "MODP_2048_BIT" => &GROUP_14,
                "MODP_3072_BIT" => &GROUP_15,
                "MODP_4096_BIT" => &GROUP_16,
                _ => continue,
            };
            let seed = case.octets("seed");
            let (i, r) = seed.split_at(seed.len() / 2);
            let i = group.pending(Zeroizing::new(i.to_vec())).unwrap();
            let r = group.pending(Zeroizing::new(r.to_vec())).unwrap();
            assert_eq!(i.public(), case.octets("pub_i"), "{}", case.name);
            assert_eq!(r.public(), case.octets("pub_r"), "{}", case.name);
            let shared = case.octets("shared");
            assert_eq!(i.complete(&r.public).unwrap().expose(), shared, "{}", case.name);
            assert_eq!(r.complete(&i.public).unwrap().expose(), shared, "{}", case.name);
            checked += 1;
        }
        assert_eq!(checked, 3);
    }

    /// 1 < y < p - 1 (RFC 6989 §2.1): each border from both sides, in both roles.
    #[test]
    fn public_values_out_of_range_are_refused() {
        for group in GROUPS {
            let prime = group.0.prime().to_vec();
            let small = |value| {
                let mut y = vec![0; prime.len()];
                *y.last_mut().unwrap() = value;
                y
            };
            let near_prime = |change: i16| {
                let mut y = prime.clone();
                let last = y.last_mut().unwrap();
                *last = u8::try_from(i16::from(*last) + change).unwrap_or(0xff);
                y
            };
            // p ends with 64 one bits: p + 1 carries over them all.
            let mut above = prime.clone();
            let carry = above.len() - 8;
            above[carry..].fill(0);
            above[carry - 1] += 1;
            let mut rng = crate::os_random();
            let ours = group.initiate(&mut rng).unwrap();
            for bad in [small(0), small(1), near_prime(-1), near_prime(0), above] {
                assert_eq!(ours.complete(&bad).unwrap_err(), CryptoError::InvalidPublic);
                let responded = group.respond(&bad, &mut rng);
                assert_eq!(responded.unwrap_err(), CryptoError::InvalidPublic);
            }
            for good in [small(2), near_prime(-2)] {
                assert!(ours.complete(&good).is_ok(), "{group:?}");
                assert!(group.respond(&good, &mut rng).is_ok(), "{group:?}");
            }
        }
    }

    /// RFC 7296 §2.14: g^ir keeps the length of the prime, leading zeros included.
    #[test]
    fn short_results_are_padded() {
        // An exponent of 5 gives 2^5 and, with a peer value of 2, the secret 32.
        let ours = GROUP_14.pending(Zeroizing::new(vec![5])).unwrap();
        let mut two = vec![0; 256];
        two[255] = 2;
        let mut expected = vec![0; 256];
        expected[255] = 32;
        assert_eq!(ours.public(), expected);
        assert_eq!(ours.complete(&two).unwrap().expose(), expected);
    }

    #[test]
    fn exponents_have_their_full_length() {
        struct Zeros;
        impl SecureRandom for Zeros {
            fn fill(&mut self, out: &mut [u8]) {
                out.fill(0);
            }
        }
        for (group, bits) in GROUPS.into_iter().zip([256, 320, 384]) {
            let exponent = group.0.generate(&mut Zeros).unwrap().exponent;
            assert_eq!(exponent.len() * 8, bits);
            assert_eq!(exponent[0], 0x80, "the top bit is set whatever is drawn");
        }
    }
}
