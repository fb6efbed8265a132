//! Every scheme in both roles.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair};
use ike_proto::config::{AuthConfig, SendCert};
use ike_proto::crypto::SignatureScheme::{self, *};
use ike_proto::crypto::{CryptoError, SigningKey};
use ike_proto::wire::registry::{AuthMethod, NotifyType};
use ike_tests::credentials::{Authority, credential, key, key_type};
use ike_tests::network::Conditions;
use ike_tests::setup::identity;
use ike_tests::{Pair, Setup, Side};
use pki::{Answerer, Credential, PeerPolicy, RawKey};
use pq_kem::sign::{KeyType, generate, load_private_key};

use super::{comes_up, ec, refused, root, signing};

#[track_caller]
fn by(pair: &Pair, method: AuthMethod, scheme: Option<SignatureScheme>) {
    for host in &pair.hosts {
        let ike = host.ike();
        for used in ike.local_auth.iter().chain(&ike.remote_auth) {
            assert_eq!((used.method, used.scheme.clone()), (method, scheme.clone()));
        }
        assert_eq!(ike.local_auth.len() + ike.remote_auth.len(), 2);
    }
}

#[track_caller]
fn both_by(scheme: SignatureScheme) {
    let key_type = key_type(scheme.clone());
    let pair = comes_up(signing(1, key_type.clone(), key_type));
    by(&pair, AuthMethod::DIGITAL_SIGNATURE, Some(scheme));
    assert_eq!(pair.a().asked, ["sign", "judge"]);
    assert_eq!(pair.b().asked, ["judge", "sign"]);
}

#[test]
fn rsa_takes_pss() {
    both_by(RsaPssSha256);
}

#[test]
fn ecdsa() {
    for scheme in [EcdsaP256Sha256, EcdsaP384Sha384, EcdsaP521Sha512] {
        both_by(scheme);
    }
}

/// A P-521 key that signs with SHA-256, as RFC 7427 §6 lets it.
#[derive(Debug)]
struct OtherHash {
    pair: EcdsaKeyPair,
    spki: Vec<u8>,
}

impl OtherHash {
    fn new() -> Self {
        let pkcs8 = generate(KeyType::Scheme(EcdsaP521Sha512)).unwrap();
        let spki = load_private_key(&pkcs8).unwrap().public_key().to_vec();
        let algorithm = &signature::ECDSA_P521_SHA256_ASN1_SIGNING;
        Self { pair: EcdsaKeyPair::from_pkcs8(algorithm, &pkcs8).unwrap(), spki }
    }
}

impl SigningKey for OtherHash {
    fn schemes(&self) -> &[SignatureScheme] {
        // What its AlgorithmIdentifier says: ecdsa-with-SHA256.
        &[EcdsaP256Sha256]
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, _: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        Ok(signature.map_err(|_| CryptoError::Backend)?.as_ref().to_vec())
    }
}

/// libreswan, for one, signs with SHA-512 whatever the curve.
#[test]
fn ecdsa_with_another_hash() {
    for (auth, taken) in [("pubkey", true), ("ecdsa", true), ("ecdsa-384", false)] {
        let mut setup = signing(3, ec(), ec());
        let key = Arc::new(OtherHash::new());
        let certificate = root().issue(&*key, &identity(1), 1, |_| {});
        setup.a.answerer = Answerer::default();
        setup.a.show(Credential::new(key, certificate, &[]).unwrap());
        setup.a.want("pubkey", &root());
        setup.b.want(auth, &root());
        if taken {
            let mut pair = setup.build();
            pair.establish();
            assert_eq!(pair.b().ike().remote_auth[0].scheme, Some(EcdsaP521Sha512), "{auth}");
        } else {
            refused(&mut setup.build());
        }
    }
}

#[test]
fn ed25519() {
    both_by(Ed25519);
}

#[test]
fn ml_dsa() {
    for scheme in [MlDsa44, MlDsa65, MlDsa87] {
        both_by(scheme);
    }
}

/// Signatures of up to 50 KB: IKE_AUTH of forty fragments and more.
#[test]
fn slh_dsa_of_the_fast_kind() {
    for scheme in [SlhDsaSha2_128f, SlhDsaShake128f] {
        both_by(scheme);
    }
}

#[test]
fn two_ends_need_not_use_the_same() {
    for (a, b) in [(MlDsa65, Ed25519), (RsaPssSha256, MlDsa44)] {
        let pair = comes_up(signing(2, key_type(a.clone()), key_type(b.clone())));
        assert_eq!(pair.a().ike().local_auth[0].scheme, Some(a));
        assert_eq!(pair.b().ike().local_auth[0].scheme, Some(b));
    }
}

#[test]
fn one_end_may_have_a_secret_and_the_other_a_key() {
    for initiator_signs in [true, false] {
        let ca = root();
        let mut setup = Setup::new(3);
        let (signer, verifier) = match initiator_signs {
            true => (&mut setup.a, &mut setup.b),
            false => (&mut setup.b, &mut setup.a),
        };
        signer.show(credential(&ca, ec(), if initiator_signs { 1 } else { 2 }));
        verifier.want("pubkey", &ca);
        let pair = comes_up(setup);
        let methods = |host: usize| pair.hosts[host].ike().local_auth[0].method;
        let signed = usize::from(!initiator_signs);
        assert_eq!(methods(signed), AuthMethod::DIGITAL_SIGNATURE);
        assert_eq!(methods(1 - signed), AuthMethod::PSK);
    }
}

/// Every kind of PKCS#1 and PSS is taken if `auth` asks for it, and nothing else.
#[test]
fn auth_of_the_remote_end_chooses_the_scheme() {
    for (auth, scheme) in [
        ("rsa-sha384", RsaPssSha384),
        ("rsa-sha512", RsaPssSha512),
        ("rsa/pss-sha512", RsaPssSha512),
        ("rsa-2048-sha256", RsaPssSha256),
        ("ike:pubkey-sha512", RsaPssSha512),
    ] {
        let mut setup = signing(4, KeyType::Rsa2048, KeyType::Rsa2048);
        let ca = Authority::root("rsa", KeyType::Rsa2048, 0);
        setup.a.show(credential(&ca, KeyType::Rsa2048, 1));
        setup.b.show(credential(&ca, KeyType::Rsa2048, 2));
        // The path of these is signed with SHA-256.
        let auth = if auth.starts_with("ike:") { auth.to_owned() } else { format!("ike:{auth}") };
        setup.both(|side| side.want(&auth, &ca));
        let pair = comes_up(setup);
        by(&pair, AuthMethod::DIGITAL_SIGNATURE, Some(scheme));
    }
}

/// A peer that announces no hashes (RFC 7427 §4): the methods before that, r and s as RFC 4754 has it.
#[test]
fn a_peer_without_announcement_gets_the_old_methods() {
    for (scheme, method) in [
        (RsaPkcs1Sha256, AuthMethod::RSA),
        (EcdsaP256Sha256, AuthMethod::ECDSA_256),
        (EcdsaP384Sha384, AuthMethod::ECDSA_384),
        (EcdsaP521Sha512, AuthMethod::ECDSA_521),
    ] {
        for seed in 0..4 {
            let key_type = key_type(scheme.clone());
            let mut setup = signing(seed, key_type.clone(), key_type);
            silent(&mut setup);
            by(&comes_up(setup), method, Some(scheme.clone()));
        }
    }
}

/// Makes both ends too old to announce anything.
fn silent(setup: &mut Setup) {
    setup.both(|side: &mut Side| side.settings.signature_authentication = false);
}

#[test]
fn raw_public_keys() {
    let mut setup = Setup::new(5);
    let keys = [key(key_type(Ed25519), 1), key(key_type(MlDsa44), 2)];
    for (n, side) in [&mut setup.a, &mut setup.b].into_iter().enumerate() {
        side.connection.send_cert = SendCert::IfAsked;
        side.show_in("local", AuthConfig::pubkey(), Credential::raw(keys[n].clone()));
        let id = identity(2 - n as u8);
        let spki = keys[1 - n].public_key().to_vec();
        let pubkeys = vec![RawKey { id: id.clone(), spki }];
        let policy = PeerPolicy { pubkeys, ..PeerPolicy::default() };
        side.answerer.set_policy("ab", "remote", policy);
        side.connection.remote[0].auth = AuthConfig::pubkey();
        side.connection.remote[0].certreqs = side.answerer.certreqs("ab", "remote");
        assert_eq!(side.connection.remote[0].certreqs.len(), 1);
    }
    let pair = comes_up(setup);
    assert_eq!(pair.a().ike().local_auth[0].scheme, Some(Ed25519));
    assert_eq!(pair.b().ike().local_auth[0].scheme, Some(MlDsa44));
}

#[test]
fn null_authentication_if_both_ends_want_it_so() {
    let mut setup = Setup::new(6);
    setup.both(|side| {
        side.connection.local[0].auth = AuthConfig::Null;
        side.connection.local[0].id = None;
        side.connection.remote[0].auth = AuthConfig::Null;
        side.connection.set_remote_id(ike_proto::config::IdMatch::Any);
    });
    let pair = comes_up(setup);
    by(&pair, AuthMethod::NULL, None);
    let remote = pair.a().ike().remote_id.unwrap();
    assert_eq!(remote.kind, ike_proto::wire::registry::IdType::NULL);
    assert!(pair.a().asked.is_empty() && pair.b().asked.is_empty());
}

/// One end is known, the other is anybody: a public service.
#[test]
fn null_authentication_of_one_end() {
    let ca = root();
    let mut setup = Setup::new(7);
    setup.a.connection.local[0].auth = AuthConfig::Null;
    setup.a.connection.local[0].id = None;
    setup.a.want("pubkey", &ca);
    setup.b.show(credential(&ca, ec(), 2));
    setup.b.connection.remote[0].auth = AuthConfig::Null;
    let pair = comes_up(setup);
    assert_eq!(pair.b().ike().remote_auth[0].method, AuthMethod::NULL);
    assert_eq!(pair.b().ike().local_auth[0].method, AuthMethod::DIGITAL_SIGNATURE);
}

#[test]
fn intermediate_certificates_are_sent_and_used() {
    let ca = root();
    let middle = ca.intermediate("middle", ec(), 1);
    let low = middle.intermediate("low", ec(), 2);
    let mut setup = Setup::new(8);
    for (n, side) in [(1, &mut setup.a), (2, &mut setup.b)] {
        let key = key(ec(), n);
        let certificate = low.issue(&*key, &identity(n), n, |_| {});
        let chain = [middle.certificate.clone(), low.certificate.clone()];
        side.show(Credential::new(key, certificate, &chain).unwrap());
        side.want("pubkey", &ca);
    }
    comes_up(setup);
}

/// IKE_AUTH of several fragments through a bad network.
#[test]
fn lost_reordered_and_duplicated_fragments_of_ml_dsa() {
    for seed in 0..20 {
        let mut setup = signing(seed, key_type(MlDsa87), key_type(MlDsa87));
        setup.conditions = Conditions {
            loss: 200,
            duplication: 200,
            jitter: Duration::from_millis(200),
            ..Conditions::default()
        };
        setup.both(|side| {
            let ladder = &mut side.settings.retransmission;
            (ladder.tries, ladder.base, ladder.timeout) =
                (Some(25), 1.0, Some(Duration::from_secs(1)));
        });
        let pair = comes_up(setup);
        // Whatever came twice was asked about once.
        assert_eq!(pair.b().asked, ["judge", "sign"], "seed {seed}");
        assert_eq!(pair.a().asked.iter().filter(|what| **what == "judge").count(), 1);
    }
}

#[test]
fn hashes_are_announced_by_those_who_sign_or_verify() {
    let announced = |pair: &Pair| {
        let first = pair.net.trace.first().unwrap();
        let message = ike_proto::wire::Message::decode(&first.octets).unwrap();
        message.payloads.iter().any(|payload| {
            matches!(payload, ike_proto::wire::Payload::Notify(notify)
                if notify.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS)
        })
    };
    assert!(announced(&comes_up(signing(9, ec(), ec()))));
    assert!(!announced(&comes_up(Setup::new(9))));
}
