//! AEADs: strongSwan (GCM, CCM, ChaCha20-Poly1305), Wycheproof, RFC 7634.

use ike_wire::registry::{EncrId, IntegId};
use ipsec_types::crypto::{CipherSuite, CryptoError, Frame};

use crate::data;

/// One case in the terms of the trait: `key` with its salt last.
struct Vector<'a> {
    name: &'a str,
    encr: EncrId,
    key_bits: u16,
    key: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    plain: Vec<u8>,
    cipher: Vec<u8>,
    tag: Vec<u8>,
}

impl Vector<'_> {
    fn suite(&self) -> CipherSuite {
        CipherSuite { encr: self.encr, key_bits: self.key_bits, integ: IntegId::NONE }
    }

    fn frame(&self) -> Frame<'_> {
        Frame { iv: &self.iv, aad: &self.aad, trailer: &[] }
    }

    #[track_caller]
    fn check(&self) {
        let key = pq_kem::provider().ciphers.key(self.suite(), &self.key, &[]).unwrap();
        let (mut buffer, mut icv) = (self.plain.clone(), vec![0; self.tag.len()]);
        key.seal(self.frame(), &mut buffer, &mut icv).unwrap();
        assert_eq!((&buffer, &icv), (&self.cipher, &self.tag), "{}", self.name);
        key.open(self.frame(), &mut buffer, &icv).unwrap();
        assert_eq!(buffer, self.plain, "{}", self.name);
    }

    #[track_caller]
    fn check_refused(&self) {
        let key = pq_kem::provider().ciphers.key(self.suite(), &self.key, &[]).unwrap();
        let mut buffer = self.cipher.clone();
        let result = key.open(self.frame(), &mut buffer, &self.tag);
        assert_eq!(result, Err(CryptoError::Integrity), "{}", self.name);
    }
}

/// All of strongSwan's but the GCM cases with a short ICV, which no backend here has.
#[test]
fn strongswan() {
    let (mut checked, mut left_out) = (0, 0);
    for case in data::json(include_str!("../data/strongswan/aead.json")) {
        let (encr, salt, icv) = match case.text("alg") {
            "ENCR_AES_GCM_ICV16" => (EncrId::AES_GCM_16, 4, 16),
            "ENCR_AES_CCM_ICV8" => (EncrId::AES_CCM_8, 3, 8),
            "ENCR_AES_CCM_ICV12" => (EncrId::AES_CCM_12, 3, 12),
            "ENCR_AES_CCM_ICV16" => (EncrId::AES_CCM_16, 3, 16),
            "ENCR_CHACHA20_POLY1305" => (EncrId::CHACHA20_POLY1305, 4, 16),
            "ENCR_AES_GCM_ICV8" | "ENCR_AES_GCM_ICV12" => {
                left_out += 1;
                continue;
            }
            other => panic!("{other}"),
        };
        // One case lists a longer key than its size: strongSwan takes the front.
        let key_size: usize = case.text("key_size").parse().unwrap();
        let key = case.octets("key")[..key_size + salt].to_vec();
        let key_bits = if encr == EncrId::CHACHA20_POLY1305 { 0 } else { key_size * 8 };
        let mut cipher = case.octets("cipher");
        let tag = cipher.split_off(cipher.len() - icv);
        Vector {
            name: &case.name,
            encr,
            key_bits: key_bits as u16,
            key,
            iv: case.octets("iv"),
            aad: case.optional("adata").unwrap_or_default(),
            plain: case.optional("plain").unwrap_or_default(),
            cipher,
            tag,
        }
        .check();
        checked += 1;
    }
    assert_eq!((checked, left_out), (35, 6));
}

#[track_caller]
fn wycheproof(text: &str, encr: EncrId) -> (usize, usize) {
    let (mut valid, mut invalid) = (0, 0);
    for case in data::json(text) {
        let mut key = case.octets("key");
        let key_bits = if encr == EncrId::CHACHA20_POLY1305 { 0 } else { key.len() * 8 };
        let nonce = case.octets("iv");
        let (salt, iv) = nonce.split_at(4);
        key.extend_from_slice(salt);
        let vector = Vector {
            name: &case.name,
            encr,
            key_bits: key_bits as u16,
            key,
            iv: iv.to_vec(),
            aad: case.octets("aad"),
            plain: case.octets("msg"),
            cipher: case.octets("ct"),
            tag: case.octets("tag"),
        };
        match case.text("result") {
            "valid" => {
                vector.check();
                valid += 1;
            }
            "invalid" => {
                vector.check_refused();
                invalid += 1;
            }
            other => panic!("{other}"),
        }
    }
    (valid, invalid)
}

#[test]
fn wycheproof_aes_gcm() {
    let counts = wycheproof(include_str!("../data/wycheproof/aes_gcm.json"), EncrId::AES_GCM_16);
    assert_eq!(counts, (116, 81));
}

#[test]
fn wycheproof_chacha20_poly1305() {
    let (valid, invalid) = wycheproof(
        include_str!("../data/wycheproof/chacha20_poly1305.json"),
        EncrId::CHACHA20_POLY1305,
    );
    assert_eq!(valid + invalid, 316);
    assert!(invalid > 50 && valid > 200, "{valid} {invalid}");
}

/// The ESP packet of appendix A and the IKE message of appendix B.
#[test]
fn rfc7634() {
    for case in data::sections(include_str!("../data/rfc/rfc7634.txt")) {
        Vector {
            name: &case.name,
            encr: EncrId::CHACHA20_POLY1305,
            key_bits: 0,
            key: case.octets("keymat"),
            iv: case.octets("iv"),
            aad: case.octets("aad"),
            plain: case.octets("plaintext"),
            cipher: case.octets("ciphertext"),
            tag: case.octets("tag"),
        }
        .check();
    }
}
