//! Bug classes 27 and 29: RSA signatures that the private key really made, over encodings that no
//! verifier may take.

use aws_lc_rs::digest::{self, SHA256, SHA384};
use ike_wire::der::{self, Der};
use ipsec_types::crypto::sign::SubjectPublicKeyInfo;

use super::*;
use crate::ffi;

const MESSAGE: &[u8] = b"octets that both peers have seen";

/// A private key of 2048 bits that signs whatever it is given.
struct Forger {
    spki: Vec<u8>,
    modulus: Vec<u8>,
    private_exponent: Vec<u8>,
}

impl Forger {
    fn new() -> Self {
        let pkcs8 = crate::sign::generate(crate::sign::KeyType::Rsa2048).unwrap();
        let spki = crate::sign::load_private_key(&pkcs8).unwrap().public_key().to_vec();
        let mut fields = Der::new(&pkcs8).nested(der::SEQUENCE).unwrap();
        fields.unsigned().unwrap();
        fields.element(der::SEQUENCE).unwrap();
        let mut key =
            Der::new(fields.content(der::OCTET_STRING).unwrap()).nested(der::SEQUENCE).unwrap();
        let [_, modulus, _, private_exponent] = [(); 4].map(|()| key.unsigned().unwrap().to_vec());
        Self { spki, modulus, private_exponent }
    }

    /// RSASP1 (RFC 8017 §5.2.1) of an encoded message as long as the modulus.
    fn sign(&self, encoded: &[u8]) -> Vec<u8> {
        assert_eq!(encoded.len(), self.modulus.len());
        let mut signature = vec![0; self.modulus.len()];
        ffi::mod_exp(encoded, &self.private_exponent, &self.modulus, &mut signature).unwrap();
        signature
    }

    fn verify(&self, scheme: &SignatureScheme, signature: &[u8]) -> Result<(), CryptoError> {
        AwsLc.verify(scheme, &self.spki, MESSAGE, signature)
    }
}

/// `0x00 0x01 PS 0x00 T` with enough padding for 256 octets, and `T | rest`.
fn pkcs1(digest_info: &[u8], rest: &[u8]) -> Vec<u8> {
    let padding = vec![0xff; 256 - 3 - digest_info.len() - rest.len()];
    [&[0, 1], &padding[..], &[0], digest_info, rest].concat()
}

/// `DigestInfo` of `digest` under an identifier of `parameters` and SHA-256.
fn digest_info(parameters: &[u8], digest: &[u8]) -> Vec<u8> {
    let mut identifier = Vec::new();
    der::push(&mut identifier, der::SEQUENCE, &[SHA256_OID, parameters]);
    let mut octets = Vec::new();
    der::push(&mut octets, der::OCTET_STRING, &[digest]);
    let mut out = Vec::new();
    der::push(&mut out, der::SEQUENCE, &[&identifier, &octets]);
    out
}

#[test]
fn bug_class_27_pkcs1_encodings() {
    let forger = Forger::new();
    let scheme = &SignatureScheme::RsaPkcs1Sha256;
    let digest = digest::digest(&SHA256, MESSAGE);
    let digest = digest.as_ref();
    let null = [5, 0];
    let good = digest_info(&null, digest);
    assert_eq!(forger.verify(scheme, &forger.sign(&pkcs1(&good, &[]))), Ok(()));

    let mut wrong_type = pkcs1(&good, &[]);
    wrong_type[1] = 2;
    let mut leading = pkcs1(&good, &[]);
    leading[0] = 1;
    let mut padding_byte = pkcs1(&good, &[]);
    padding_byte[100] = 0xfe;
    let no_padding = [&[0, 1, 0][..], &good, &vec![0xff; 256 - 3 - good.len()]].concat();
    let short_padding =
        [&[0, 1][..], &[0xff; 7], &[0], &good, &vec![0; 256 - 10 - good.len()]].concat();
    // 0x81 and indefinite lengths, where DER has one octet.
    let long_form = [&[0x30, 0x81, 49][..], &good[2..]].concat();
    let indefinite = [&[0x30, 0x80][..], &good[2..], &[0, 0]].concat();
    let sha384 = digest::digest(&SHA384, MESSAGE);
    let garbage_parameters = [&[4, 24][..], &[0xaa; 24]].concat();
    let encodings = [
        ("digest of 16 octets", pkcs1(&digest_info(&null, &digest[..16]), &[])),
        ("digest of 31 octets", pkcs1(&digest_info(&null, &digest[..31]), &[])),
        ("digest of 40 octets", pkcs1(&digest_info(&null, &[digest, &[0; 8]].concat()), &[])),
        ("no digest", pkcs1(&digest_info(&null, &[]), &[])),
        ("SHA-384 under SHA-256", pkcs1(&digest_info(&null, sha384.as_ref()), &[])),
        ("other parameters", pkcs1(&digest_info(&garbage_parameters, digest), &[])),
        ("parameters twice", pkcs1(&digest_info(&[5, 0, 5, 0], digest), &[])),
        ("NULL with content", pkcs1(&digest_info(&[5, 1, 0], digest), &[])),
        ("garbage behind", pkcs1(&good, &[0xaa; 100])),
        ("a zero behind", pkcs1(&good, &[0])),
        ("bare digest", pkcs1(digest, &[])),
        ("long length", pkcs1(&long_form, &[])),
        ("indefinite length", pkcs1(&indefinite, &[])),
        ("block type 2", wrong_type),
        ("leading octet", leading),
        ("padding", padding_byte),
        ("no padding", no_padding),
        ("seven octets of padding", short_padding),
    ];
    for (name, encoded) in encodings {
        let verified = forger.verify(scheme, &forger.sign(&encoded));
        assert_eq!(verified, Err(CryptoError::Integrity), "{name}");
    }
}

/// RFC 8017 §8.2.2: the signature is exactly as long as the modulus, and its number is below it.
#[test]
fn bug_class_27_rsa_signature_extents() {
    let forger = Forger::new();
    let scheme = &SignatureScheme::RsaPkcs1Sha256;
    let digest = digest::digest(&SHA256, MESSAGE);
    let good = forger.sign(&pkcs1(&digest_info(&[5, 0], digest.as_ref()), &[]));
    let mut sum = vec![0; 256];
    let mut carry = 0;
    for ((out, a), b) in sum.iter_mut().zip(&good).zip(&forger.modulus).rev() {
        let octet = u16::from(*a) + u16::from(*b) + carry;
        (*out, carry) = (octet as u8, octet >> 8);
    }
    let modulus = forger.modulus.clone();
    let zero_padded = [&[0], &good[..]].concat();
    let sum = if carry == 1 { [&[1], &sum[..]].concat() } else { sum };
    for (name, bad) in [
        ("zero", vec![0; 256]),
        ("one", [vec![0; 255], vec![1]].concat()),
        ("modulus", modulus),
        ("with the modulus added", sum),
        ("with a zero in front", zero_padded),
        ("empty", Vec::new()),
        ("of 8 KiB", vec![1; 8192]),
    ] {
        assert_eq!(forger.verify(scheme, &bad), Err(CryptoError::Integrity), "{name}");
    }
}

/// EMSA-PSS (RFC 8017 §9.1.1) with SHA-256, for a modulus of 2048 bits.
fn pss(salt: &[u8], trailer: u8, padding_end: u8) -> Vec<u8> {
    let hash = |parts: &[&[u8]]| digest::digest(&SHA256, &parts.concat()).as_ref().to_vec();
    let h = hash(&[&[0; 8], &hash(&[MESSAGE]), salt]);
    let db_len = 256 - 32 - 1;
    let mut db = vec![0; db_len - salt.len() - 1];
    db.push(padding_end);
    db.extend_from_slice(salt);
    let mask = (0_u32..).flat_map(|counter| hash(&[&h, &counter.to_be_bytes()]));
    for (octet, mask) in db.iter_mut().zip(mask) {
        *octet ^= mask;
    }
    db[0] &= 0x7f;
    [&db[..], &h, &[trailer]].concat()
}

#[test]
fn bug_class_29_pss_encodings() {
    let forger = Forger::new();
    let scheme = &SignatureScheme::RsaPssSha256;
    let verify = |encoded: &[u8]| forger.verify(scheme, &forger.sign(encoded));
    assert_eq!(verify(&pss(&[7; 32], 0xbc, 1)), Ok(()));
    // The salt has the length that the scheme says, whatever else would fit.
    for len in [0, 1, 20, 31, 33, 64, 222] {
        assert_eq!(verify(&pss(&vec![7; len], 0xbc, 1)), Err(CryptoError::Integrity), "{len}");
    }
    assert_eq!(verify(&pss(&[7; 32], 0xcc, 1)), Err(CryptoError::Integrity), "trailer");
    assert_eq!(verify(&pss(&[7; 32], 0xbc, 2)), Err(CryptoError::Integrity), "padding's end");
    let mut top_bit = pss(&[7; 32], 0xbc, 1);
    top_bit[0] |= 0x80;
    if top_bit < forger.modulus {
        assert_eq!(verify(&top_bit), Err(CryptoError::Integrity), "top bit");
    }
}

/// An RSA key made for PSS (RFC 4055 §1.2) verifies PSS with its own parameters and nothing else.
#[test]
fn keys_restricted_to_pss() {
    let forger = Forger::new();
    let SubjectPublicKeyInfo { key, .. } = SubjectPublicKeyInfo::parse(&forger.spki).unwrap();
    let signature = forger.sign(&pss(&[7; 32], 0xbc, 1));
    for (algorithm, verified) in [
        (SignatureScheme::RsaPssSha256.algorithm_identifier(), Ok(())),
        (SignatureScheme::RsaPssSha384.algorithm_identifier(), Err(CryptoError::InvalidPublic)),
        (SignatureScheme::RsaPkcs1Sha256.algorithm_identifier(), Err(CryptoError::InvalidPublic)),
    ] {
        let spki = SubjectPublicKeyInfo { algorithm, key }.encode();
        let scheme = &SignatureScheme::RsaPssSha256;
        assert_eq!(AwsLc.verify(scheme, &spki, MESSAGE, &signature), verified);
        let pkcs1 = AwsLc.verify(&SignatureScheme::RsaPkcs1Sha256, &spki, MESSAGE, &signature);
        assert_eq!(pkcs1, Err(CryptoError::InvalidPublic));
    }
}

/// SHA-1 signatures of old peers verify where that backend was asked for.
#[test]
fn sha1_verifies() {
    let forger = Forger::new();
    let sha1 = [
        &[0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14],
        &crate::hash::sha1(&[MESSAGE])[..],
    ]
    .concat();
    let signature = forger.sign(&pkcs1(&sha1, &[]));
    let scheme = &SignatureScheme::RsaPkcs1Sha1;
    assert_eq!(RsaSha1.verify(scheme, &forger.spki, MESSAGE, &signature), Ok(()));
    let other = RsaSha1.verify(scheme, &forger.spki, b"other", &signature);
    assert_eq!(other, Err(CryptoError::Integrity));
}

/// 2.16.840.1.101.3.4.2.1
const SHA256_OID: &[u8] = &[0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
