//! The engine's questions, answered with the fixtures.

use std::sync::Arc;

use ike_proto::config::{AuthConfig, SchemeConstraints};
use ike_proto::crypto::SignatureScheme::{self, *};
use ike_proto::wire::payload::IdData;
use ike_proto::{AcceptedScheme, Answer, OwnedCert, PeerCredentials, Question, SignRequest};
use pki::{Answerer, Credential, PeerPolicy, RevocationPolicy};
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::common::{certificate, id, now, trusting, x509};

/// What a peer that shows these certificates as `identity` is asked about.
fn peer(identity: &str, shown: &[&str], auth: &str) -> PeerCredentials {
    let certs = shown.iter().map(|name| OwnedCert::from(x509(certificate(name).der())));
    let chain = match AuthConfig::parse(auth) {
        Ok(AuthConfig::Pubkey(pubkey)) => pubkey.chain,
        other => panic!("{other:?}"),
    };
    PeerCredentials {
        connection: "site".to_owned(),
        round: "remote".to_owned(),
        id: id(identity),
        certs: certs.collect(),
        chain,
    }
}

fn refusal(answer: Answer) -> String {
    match answer {
        Answer::Untrusted(_, why) | Answer::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_belongs_to_its_connection_and_round() {
    let mut answerer = Answerer::new(trusting(&["root"]));
    let strict = PeerPolicy { revocation: RevocationPolicy::Strict, ..PeerPolicy::default() };
    answerer.set_policy("site", "remote", strict);
    let moon = peer("moon.example.org", &["moon"], "pubkey");
    let judged = |peer: &PeerCredentials| answerer.answer(&Question::Judge(peer.clone()), now());
    assert!(refusal(judged(&moon)).contains("not known whether"));
    let elsewhere = PeerCredentials { round: "remote-2".to_owned(), ..moon.clone() };
    answerer.set_policy("site", "remote-2", PeerPolicy::default());
    let judged = |peer: &PeerCredentials| answerer.answer(&Question::Judge(peer.clone()), now());
    match judged(&elsewhere) {
        Answer::Key(key) => assert_eq!(key.spki, certificate("moon").spki()),
        other => panic!("{other:?}"),
    }
    let stranger = PeerCredentials { id: IdData::fqdn("venus.example.org"), ..elsewhere };
    assert!(refusal(judged(&stranger)).contains("does not have the identity"));
}

/// Class 31: a peer that began before the configuration changed, in a round that is not in it any more.
#[test]
fn class_31_nobody_is_trusted_without_a_policy() {
    let mut answerer = Answerer::new(trusting(&["root"]));
    let moon = peer("moon.example.org", &["moon"], "pubkey");
    for question in [Question::Judge(moon.clone()), Question::Revocation(moon.clone())] {
        assert!(refusal(answerer.answer(&question, now())).contains("nothing is configured"));
    }
    assert!(answerer.fetches(&moon, now()).is_empty());
    for (connection, round) in [("site", "remote-2"), ("other", "remote")] {
        answerer.set_policy(connection, round, PeerPolicy::default());
        refusal(answerer.answer(&Question::Judge(moon.clone()), now()));
    }
}

/// `auth` may ask for more than that the path is valid.
#[test]
fn keys_and_signatures_of_the_path_are_as_strong_as_auth_asks() {
    let trust = trusting(&["root", "rsa-root", "mldsa65-root", "ed25519-root"]);
    let mut answerer = Answerer::new(trust);
    answerer.set_policy("site", "remote", PeerPolicy::default());
    let own = |name: &str| SignatureScheme::of_built_in_key(certificate(name).spki())[0].clone();
    assert_eq!((own("moon"), own("rsa")), (EcdsaP256Sha256, RsaPssSha256), "the fixtures");
    let verdict = |name: &str, auth: &str| {
        let names = certificate(name).identities();
        let fqdn = names.into_iter().next_back().expect("a name");
        let mut peer = peer("moon.example.org", &[name], auth);
        peer.id = fqdn;
        answerer.answer(&Question::Judge(peer), now())
    };
    for (name, good, bad) in [
        ("moon", "ecdsa-256", "ecdsa-384"),
        ("moon", "pubkey-sha256", "pubkey-sha512"),
        ("rsa", "rsa-2048", "rsa-8192"),
        ("mldsa65", "mldsa", "mldsa87"),
        ("mldsa65", "mldsa65-slhdsa", "slhdsa"),
        ("ed25519", "ed25519", "mldsa"),
    ] {
        assert!(matches!(verdict(name, good), Answer::Key(_)), "{name}: {good}");
        assert!(refusal(verdict(name, bad)).contains("`auth`"), "{name}: {bad}");
        // Asked of AUTH alone, the path is free.
        let ike = format!("ike:{bad}");
        assert!(matches!(verdict(name, &ike), Answer::Key(_)), "{name}: {ike}");
    }
}

/// The engine gets a verdict although nothing can be fetched: the policy decides.
#[test]
fn without_a_fetch_the_policy_decides() {
    for (policy, good) in [
        (RevocationPolicy::Relaxed, true),
        (RevocationPolicy::IfUri, false),
        (RevocationPolicy::Strict, false),
    ] {
        let mut answerer = Answerer::new(trusting(&["root"]));
        let policy = PeerPolicy { revocation: policy, ..PeerPolicy::default() };
        answerer.set_policy("site", "remote", policy);
        let names = certificate("cdp").identities();
        let mut peer = peer("cdp.example.org", &["cdp"], "pubkey");
        peer.id = names.into_iter().next_back().expect("a name");
        match answerer.answer(&Question::Judge(peer.clone()), now()) {
            Answer::Key(key) => assert!(key.revocation_pending),
            other => panic!("{other:?}"),
        }
        assert!(!answerer.fetches(&peer, now()).is_empty());
        let settled = answerer.answer(&Question::Revocation(peer), now());
        match settled {
            Answer::Key(key) => assert!(good && !key.revocation_pending),
            Answer::Untrusted(_, why) => assert!(!good, "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn constraints_default_to_what_is_not_broken() {
    let none = SchemeConstraints::default();
    assert!(!none.allows(&RsaPkcs1Sha1) && none.allows(&RsaPkcs1Sha256));
}

/// The URL of the list is in its back-off, so that nothing is fetched. What is not known is said after the proof.
///
/// Fault: in `Answerer::answer`, do not look at `unchecked` in `Judge`.
#[test]
fn a_peer_whose_status_no_url_tells_is_judged_once_more_after_its_proof() {
    use crate::lists::{List, Owner, trusting};
    let ca = Owner::root("CA");
    let shown = ca.peer();
    let peer = PeerCredentials {
        certs: vec![OwnedCert::from(x509(shown.der()))],
        ..peer("peer.example.org", &[], "pubkey")
    };
    let pending = |answerer: &Answerer| match answerer.answer(&Question::Judge(peer.clone()), now())
    {
        Answer::Key(key) => key.revocation_pending,
        other => panic!("{other:?}"),
    };
    let mut answerer = Answerer::new(trusting(&[&ca]));
    answerer.set_policy("site", "remote", PeerPolicy::default());
    let fetches = answerer.fetches(&peer, now());
    assert_eq!(fetches.len(), 1);
    answerer.deliver(&fetches[0], None, now()).unwrap_err();
    assert!(answerer.fetches(&peer, now()).is_empty(), "back-off");
    assert!(pending(&answerer));
    let later = now() + std::time::Duration::from_secs(600);
    let fetches = answerer.fetches(&peer, later);
    answerer.deliver(&fetches[0], Some(&List::empty().by(&ca)), later).unwrap();
    assert!(!pending(&answerer));
}

/// Fault: in `Answerer::chosen`, go by the order of the credentials always.
#[test]
fn the_announced_order_counts_more_than_that_of_the_credentials() {
    let key = |scheme: &SignatureScheme| {
        let octets = generate(KeyType::Scheme(scheme.clone())).expect("a key");
        Arc::from(load_private_key(&octets).expect("a key"))
    };
    let schemes = [MlDsa65, EcdsaP256Sha256];
    let mut answerer = Answerer::default();
    for scheme in schemes.iter().rev() {
        answerer.add_credential("site", "local", Credential::raw(key(scheme)));
    }
    for (announced, expected) in [(true, MlDsa65), (false, EcdsaP256Sha256)] {
        let accepted = |scheme: &SignatureScheme| AcceptedScheme {
            scheme: scheme.clone(),
            authorities: Vec::new(),
        };
        let request = SignRequest {
            connection: "site".to_owned(),
            round: "local".to_owned(),
            id: id("moon.example.org"),
            requests: Vec::new(),
            hash_and_url: false,
            schemes: schemes.iter().map(accepted).collect(),
            announced,
            octets: Vec::new(),
        };
        match answerer.answer(&Question::Sign(request), now()) {
            Answer::Signed(signed) => assert_eq!(signed.scheme, expected),
            other => panic!("{other:?}"),
        }
    }
}
