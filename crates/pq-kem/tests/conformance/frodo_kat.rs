//! FrodoKEM against the known answers of its authors.

use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aws_lc_rs::digest::{SHA256, digest};
use ike_wire::registry::KeMethodId;
use ipsec_types::crypto::SecureRandom;

use crate::data;

#[test]
fn known_answers() {
    let cases = data::json(include_str!("../data/frodokem/kat.json"));
    assert_eq!(cases.len(), 12 * 3);
    for case in cases {
        let set = case.text("set");
        let method = pq_kem::provider()
            .ke
            .into_iter()
            .find(|m| m.id().to_string() == set.to_uppercase().replace('-', "_"))
            .unwrap_or_else(|| panic!("{set}"));
        let mut rng = NistDrbg::new(&case.octets("seed"));
        let ours = method.initiate(&mut rng).unwrap();
        let sha256 = |octets: &[u8]| digest(&SHA256, octets).as_ref().to_vec();
        assert_eq!(sha256(ours.public()), case.octets("pkSha256"), "{set}: key");
        let (ciphertext, shared) = method.respond(ours.public(), &mut rng).unwrap();
        assert_eq!(sha256(&ciphertext), case.octets("ctSha256"), "{set}: ciphertext");
        assert_eq!(shared.expose(), case.octets("ss"), "{set}");
        assert_eq!(ours.complete(&ciphertext).unwrap().expose(), case.octets("ss"), "{set}");
    }
}

/// The salted and the unsalted scheme are two: their keys are alike and nothing else fits.
#[test]
fn the_two_schemes_do_not_mix() {
    let provider = pq_kem::provider();
    let salted = provider.ke(KeMethodId::FRODOKEM_640_AES).unwrap();
    let unsalted = provider.ke(KeMethodId::EFRODOKEM_640_AES).unwrap();
    let mut rng = pq_kem::os_random();
    let ours = salted.initiate(&mut rng).unwrap();
    let (ciphertext, _) = unsalted.respond(ours.public(), &mut rng).unwrap();
    assert!(ours.complete(&ciphertext).is_err());
    let (ciphertext, _) = salted.respond(ours.public(), &mut rng).unwrap();
    assert!(unsalted.initiate(&mut rng).unwrap().complete(&ciphertext).is_err());
}

/// The generator of NIST's known-answer files: CTR_DRBG with AES-256, without derivation function.
struct NistDrbg {
    key: [u8; 32],
    counter: u128,
}

impl NistDrbg {
    fn new(seed: &[u8]) -> Self {
        let mut this = Self { key: [0; 32], counter: 0 };
        this.update(Some(seed));
        this
    }

    fn block(&mut self) -> [u8; 16] {
        self.counter = self.counter.wrapping_add(1);
        let mut block = self.counter.to_be_bytes().into();
        Aes256::new(&self.key.into()).encrypt_block(&mut block);
        block.into()
    }

    fn update(&mut self, data: Option<&[u8]>) {
        let mut state = [self.block(), self.block(), self.block()].concat();
        for (octet, other) in state.iter_mut().zip(data.unwrap_or_default()) {
            *octet ^= other;
        }
        self.key.copy_from_slice(&state[..32]);
        self.counter = u128::from_be_bytes(state[32..].try_into().unwrap());
    }
}

impl SecureRandom for NistDrbg {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(16) {
            let block = self.block();
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
        self.update(None);
    }
}
