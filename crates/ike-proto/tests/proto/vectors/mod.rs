//! Shared by the tests that read `data/keys`.

use ike_proto::crypto::{CipherLengths, CipherSuite, IvKind, Prf, Secret, SecureRandom};
use ike_proto::wire::registry::{EncrId, IntegId, PrfId};
use serde_json::Value;

/// Octets from hexadecimal digits.
pub fn hex(digits: &str) -> Vec<u8> {
    assert_eq!(digits.len() % 2, 0, "half an octet in {digits}");
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The octets of a field that holds hexadecimal digits.
pub fn octets(value: &Value) -> Vec<u8> {
    hex(value.as_str().unwrap_or_else(|| panic!("no digits in {value}")))
}

/// The same as a secret.
pub fn secret(value: &Value) -> Secret {
    Secret::new(octets(value))
}

/// A field of 16 hexadecimal digits.
pub fn spi(value: &Value) -> u64 {
    u64::from_be_bytes(octets(value).try_into().unwrap())
}

/// A PRF of the default backend.
pub fn prf(id: PrfId) -> &'static dyn Prf {
    pq_kem::provider().prf(id).unwrap_or_else(|| panic!("no {id}"))
}

/// Lengths that matter to key derivation; the others are those of no cipher.
pub fn key_lengths(encr_key: usize, integ_key: usize) -> CipherLengths {
    let iv_kind = IvKind::Counter;
    CipherLengths { encr_key, integ_key, iv: 8, iv_kind, icv: 16, block: 1, aead: integ_key == 0 }
}

/// Random octets for tests: a counter, whose octets never repeat in groups of four or more.
pub struct Counting(pub u32);

impl SecureRandom for Counting {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(4) {
            self.0 += 1;
            chunk.copy_from_slice(&self.0.to_be_bytes()[..chunk.len()]);
        }
    }
}

/// A suite by its three parts.
pub const fn suite(encr: EncrId, key_bits: u16, integ: IntegId) -> CipherSuite {
    CipherSuite { encr, key_bits, integ }
}
