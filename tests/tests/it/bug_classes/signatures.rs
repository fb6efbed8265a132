//! Bug classes 27, 29, 31 and 35 at the engine: AUTH payloads and certificates made by hand.

use ike_proto::crypto::SignatureScheme::{self, *};
use ike_proto::crypto::SigningKey;
use ike_proto::wire::payload::{Auth, Cert, Payload};
use ike_proto::wire::registry::{AuthMethod, CertEncoding, ExchangeType, NotifyType};
use ike_tests::bench::{Bench, auth_payloads};
use ike_tests::credentials::{Authority, key, key_type};
use ike_tests::handmade::{Handmade, notifies};
use ike_tests::setup::{identity, side};
use pq_kem::sign::KeyType;

fn root() -> Authority {
    Authority::root("root", key_type(EcdsaP256Sha256), 0)
}

/// A bench whose peer must sign, and the peer as far as IKE_SA_INIT.
fn half_open() -> (Bench, Handmade) {
    let mut side = side(1, 2);
    side.want("pubkey", &root());
    let mut bench = Bench::with(side);
    let peer = bench.half_open();
    (bench, peer)
}

/// Sends IKE_AUTH with this AUTH payload and the certificates; true if it makes an SA. A refusal is
/// AUTHENTICATION_FAILED, whatever was wrong.
fn accepted(
    (mut bench, mut peer): (Bench, Handmade),
    (method, data): (AuthMethod, &[u8]),
    certs: &[Vec<u8>],
) -> bool {
    let id = identity(2);
    let mut payloads = auth_payloads(&id, &[], 1007, true);
    payloads[1] = Payload::Auth(Auth { method, data });
    for der in certs.iter().rev() {
        let cert = Cert { encoding: CertEncoding::X509_SIGNATURE, data: der };
        payloads.insert(1, Payload::Cert(cert));
    }
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let mut sent = bench.give(&request);
    sent.extend(bench.sent());
    assert_eq!(sent.len(), 1, "{:?}", bench.host().dropped);
    let told = notifies(&peer.open(&sent[0]).expect("sealed for the peer"));
    bench.assert_nothing_leaked();
    if bench.host().ikes().is_empty() {
        assert_eq!(told, [NotifyType::AUTHENTICATION_FAILED]);
        return false;
    }
    bench.host().ike();
    true
}

fn certificate(key: &dyn SigningKey) -> Vec<u8> {
    root().issue(key, &identity(2), 7, |_| {}).der().to_vec()
}

/// Authentication Data of method 14.
fn method_14(identifier: &[u8], signature: &[u8]) -> Vec<u8> {
    [&[identifier.len() as u8], identifier, signature].concat()
}

fn signature(peer: &Handmade, key: &dyn SigningKey, scheme: SignatureScheme) -> Vec<u8> {
    key.sign(&scheme, peer.octets(&identity(2)).as_bytes()).unwrap()
}

/// What is changed below is taken unchanged.
#[test]
fn the_same_without_a_fault_is_taken() {
    for scheme in [RsaPkcs1Sha256, RsaPssSha384, EcdsaP256Sha256, Ed25519, MlDsa44] {
        let key = key(key_type(scheme.clone()), 2);
        let (bench, peer) = half_open();
        let data =
            method_14(scheme.algorithm_identifier(), &signature(&peer, &*key, scheme.clone()));
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(accepted((bench, peer), auth, &[certificate(&*key)]), "{scheme}");
    }
}

#[test]
fn class_27_authentication_data_of_method_14_that_lies_about_itself() {
    let key = key(KeyType::Rsa2048, 2);
    let scheme = RsaPkcs1Sha256;
    let good = |peer: &Handmade| {
        method_14(scheme.algorithm_identifier(), &signature(peer, &*key, scheme.clone()))
    };
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 10] = [
        ("empty", |data| data.clear()),
        ("no identifier", |data| data[0] = 0),
        ("identifier longer than the payload", |data| data.truncate(9)),
        ("length too great by one", |data| data[0] += 1),
        ("length too small by one", |data| data[0] -= 1),
        ("nothing but an identifier", |data| data.truncate(16)),
        ("signature cut", |data| data.truncate(data.len() - 1)),
        ("signature with an octet after it", |data| data.push(0)),
        ("octets between identifier and signature", |data| data.insert(16, 0)),
        ("BER length", |data| {
            data[0] += 1;
            data.splice(2..3, [0x81, 13]);
        }),
    ];
    for (name, change) in changes {
        let (bench, peer) = half_open();
        let mut data = good(&peer);
        change(&mut data);
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(!accepted((bench, peer), auth, &[certificate(&*key)]), "{name}");
    }
    // Each octet of the identifier matters.
    for at in 1..16 {
        let (bench, peer) = half_open();
        let mut data = good(&peer);
        data[at] ^= 1;
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(!accepted((bench, peer), auth, &[certificate(&*key)]), "octet {at}");
    }
}

#[test]
fn class_27_sha1_and_other_hashes_than_the_identifier_names() {
    let key = key(KeyType::Rsa2048, 2);
    // sha1WithRSAEncryption: RFC 8247 §3.2 says MUST NOT.
    let mut sha1 = RsaPkcs1Sha256.algorithm_identifier().to_vec();
    sha1[12] = 5;
    for (identifier, made_by) in [
        (&*sha1, RsaPkcs1Sha256),
        (RsaPkcs1Sha384.algorithm_identifier(), RsaPkcs1Sha256),
        (RsaPssSha256.algorithm_identifier(), RsaPkcs1Sha256),
        (RsaPkcs1Sha256.algorithm_identifier(), RsaPssSha256),
        (RsaPssSha512.algorithm_identifier(), RsaPssSha256),
        (EcdsaP256Sha256.algorithm_identifier(), RsaPkcs1Sha256),
        (Ed25519.algorithm_identifier(), RsaPkcs1Sha256),
    ] {
        let (bench, peer) = half_open();
        let data = method_14(identifier, &signature(&peer, &*key, made_by));
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(!accepted((bench, peer), auth, &[certificate(&*key)]), "{identifier:02x?}");
    }
}

/// Method 1 does not say which hash it used, and takes no other padding.
#[test]
fn class_27_method_1_takes_pkcs1_of_sha2_alone() {
    let key = key(KeyType::Rsa2048, 2);
    for (scheme, good) in [
        (RsaPkcs1Sha256, true),
        (RsaPkcs1Sha384, true),
        (RsaPkcs1Sha512, true),
        (RsaPssSha256, false),
    ] {
        let (bench, peer) = half_open();
        let data = signature(&peer, &*key, scheme.clone());
        let auth = (AuthMethod::RSA, &*data);
        assert_eq!(accepted((bench, peer), auth, &[certificate(&*key)]), good, "{scheme}");
    }
    for len in [0, 1, 255, 257] {
        let (bench, peer) = half_open();
        let mut data = signature(&peer, &*key, RsaPkcs1Sha256);
        data.resize(len, 0);
        assert!(!accepted((bench, peer), (AuthMethod::RSA, &data), &[certificate(&*key)]));
    }
}

/// RFC 4754 §7: r and s with leading zeros and nothing around them.
#[test]
fn class_27_ecdsa_of_the_old_methods_has_one_form() {
    let own = key(key_type(EcdsaP256Sha256), 2);
    let certs = [certificate(&*own)];
    let (bench, peer) = half_open();
    let der = signature(&peer, &*own, EcdsaP256Sha256);
    let pair = EcdsaP256Sha256.signature_to_legacy(&der).unwrap();
    assert!(accepted((bench, peer), (AuthMethod::ECDSA_256, &pair), &certs));
    type Form = fn(Vec<u8>, Vec<u8>) -> Vec<u8>;
    let forms: [Form; 6] = [
        |der, _| der,
        |_, pair| pair[..63].to_vec(),
        |_, pair| [&pair, &[0][..]].concat(),
        |_, pair| [&[0], &pair[..]].concat(),
        |_, _| vec![0; 64],
        |_, pair| [&pair[32..], &pair[..32]].concat(),
    ];
    for (n, form) in forms.into_iter().enumerate() {
        let (bench, peer) = half_open();
        let der = signature(&peer, &*own, EcdsaP256Sha256);
        let pair = EcdsaP256Sha256.signature_to_legacy(&der).unwrap();
        let data = form(der, pair);
        assert!(!accepted((bench, peer), (AuthMethod::ECDSA_256, &data), &certs), "form {n}");
    }
    // Another curve's method, and RSA's.
    for method in [AuthMethod::ECDSA_384, AuthMethod::ECDSA_521, AuthMethod::RSA, AuthMethod::DSS] {
        let (bench, peer) = half_open();
        let der = signature(&peer, &*own, EcdsaP256Sha256);
        let pair = EcdsaP256Sha256.signature_to_legacy(&der).unwrap();
        assert!(!accepted((bench, peer), (method, &pair), &certs));
    }
}

#[test]
fn class_29_pss_parameters_in_auth() {
    let own = key(KeyType::Rsa2048, 2);
    let good = RsaPssSha256.algorithm_identifier();
    let salt = good.len() - 1;
    for (name, at, value) in [
        ("salt 0", salt, 0),
        ("salt 31", salt, 31),
        ("salt -1", salt, 0xff),
        ("MGF1 with another hash", good.len() - 8, 2),
        ("another hash", 33, 2),
    ] {
        let (bench, peer) = half_open();
        let mut identifier = good.to_vec();
        assert_ne!(identifier[at], value, "{name}");
        identifier[at] = value;
        let data = method_14(&identifier, &signature(&peer, &*own, RsaPssSha256));
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(!accepted((bench, peer), auth, &[certificate(&*own)]), "{name}");
    }
    // Empty parameters mean SHA-1 (RFC 8247 §3.2).
    let empty = [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10, 0x30, 0];
    let (bench, peer) = half_open();
    let data = method_14(&empty, &signature(&peer, &*own, RsaPssSha256));
    let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
    assert!(!accepted((bench, peer), auth, &[certificate(&*own)]));
}

/// The certificate of one, the signature of another, with both certificates sent, in both orders.
#[test]
fn class_31_a_second_certificate_lends_no_key() {
    let (own, other) = (key(key_type(Ed25519), 2), key(key_type(Ed25519), 3));
    // The other has a certificate of the same CA, for itself.
    let others = root().issue(&*other, &identity(3), 8, |_| {}).der().to_vec();
    for certs in [[certificate(&*own), others.clone()], [others.clone(), certificate(&*own)]] {
        let (bench, peer) = half_open();
        let signature = signature(&peer, &*other, Ed25519);
        let data = method_14(Ed25519.algorithm_identifier(), &signature);
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(!accepted((bench, peer), auth, &certs));
    }
}

/// AUTH covers the identity: another ID payload than the one that was signed is refused although the
/// certificate has both names.
#[test]
fn class_31_the_signature_is_over_the_identity() {
    let own = key(key_type(Ed25519), 2);
    let both = root().issue(&*own, &identity(2), 9, |template| {
        template.names.push(identity(4));
    });
    let (bench, peer) = half_open();
    let signature = own.sign(&Ed25519, peer.octets(&identity(4)).as_bytes()).unwrap();
    let data = method_14(Ed25519.algorithm_identifier(), &signature);
    let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
    assert!(!accepted((bench, peer), auth, &[both.der().to_vec()]));
}

/// A signature of another handshake between the same two ends.
#[test]
fn class_31_a_signature_is_good_once() {
    let own = key(key_type(MlDsa44), 2);
    let (_, before) = half_open();
    let signature = signature(&before, &*own, MlDsa44);
    let data = method_14(MlDsa44.algorithm_identifier(), &signature);
    let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
    assert!(!accepted(half_open_anew(), auth, &[certificate(&*own)]));
    assert!(accepted(half_open(), auth, &[certificate(&*own)]), "the very same handshake again");
}

/// As [`half_open`], with other nonces.
fn half_open_anew() -> (Bench, Handmade) {
    let mut side = side(1, 2);
    side.want("pubkey", &root());
    let mut bench = Bench::with(side);
    bench.seed();
    let peer = bench.half_open();
    (bench, peer)
}

/// CERT payloads of every encoding but X.509, and what is no certificate at all.
#[test]
fn class_35_certificates_that_are_none() {
    let own = key(key_type(Ed25519), 2);
    let good = certificate(&*own);
    let mut outside = good.clone();
    // The outer signatureAlgorithm, which nobody signed, with other parameters.
    let at = outside.len() - 80;
    outside[at] ^= 0x40;
    for der in [Vec::new(), vec![0x30, 0x80], good[..good.len() - 1].to_vec(), outside] {
        let (bench, peer) = half_open();
        let signature = signature(&peer, &*own, Ed25519);
        let data = method_14(Ed25519.algorithm_identifier(), &signature);
        let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
        assert!(!accepted((bench, peer), auth, &[der]));
    }
    // Very many.
    let (bench, peer) = half_open();
    let signature = signature(&peer, &*own, Ed25519);
    let data = method_14(Ed25519.algorithm_identifier(), &signature);
    let auth = (AuthMethod::DIGITAL_SIGNATURE, &*data);
    let many: Vec<_> = (0..40).map(|_| good.clone()).collect();
    assert!(!accepted((bench, peer), auth, &many));
}
