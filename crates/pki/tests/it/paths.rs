//! Paths from a certificate to a trusted CA: algorithms, validity, constraints, usages.

use std::time::Duration;

use pki::{ExtendedKeyUsagePolicy, LoadError, PeerPolicy, PkiError, TrustStore, verify_peer};

use crate::common::{certificate, id, now, refused, shared, trusting, verdict, verdict_at, x509};

/// The verdict on NAME.pem with its own name and the usual root.
fn outcome(shown: &[&str]) -> Result<(), String> {
    let identity = format!("{}.example.org", shown[0]);
    let verdict = verdict(&identity, shown, &PeerPolicy::default(), &trusting(&["root"]));
    verdict.map(|_| ()).map_err(|why| why.to_string())
}

#[test]
fn every_algorithm_has_a_path() {
    for (name, ca) in [
        ("moon", "root"),
        ("p384", "root"),
        ("p521", "root"),
        ("rsa", "rsa-root"),
        ("rsa-pss", "rsa-root"),
        ("ed25519", "ed25519-root"),
        ("mldsa44", "mldsa44-root"),
        ("mldsa65", "mldsa65-root"),
        ("mldsa87", "mldsa87-root"),
        ("slhdsa", "slhdsa-root"),
    ] {
        let identity = format!("{name}.example.org");
        let trust = trusting(&[ca]);
        let peer = verdict(&identity, &[name], &PeerPolicy::default(), &trust);
        let peer = peer.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(peer.spki, certificate(name).spki());
        assert_eq!(peer.not_after, Some(certificate(name).not_after()));
        // The same without that CA.
        let other = if ca == "root" { "rsa-root" } else { "root" };
        let refusal = verdict(&identity, &[name], &PeerPolicy::default(), &trusting(&[other]));
        assert!(matches!(refusal, Err(PkiError::UnknownCa { .. })), "{name}: {refusal:?}");
    }
}

#[test]
fn a_chain_needs_its_intermediate_from_the_peer_or_from_here() {
    assert_eq!(outcome(&["chained", "inter"]), Ok(()));
    assert_eq!(outcome(&["chained", "inter", "root"]), Ok(()));
    assert_eq!(outcome(&["chained", "moon", "inter", "inter", "rsa-root"]), Ok(()));
    let missing = "no trusted CA \"C=CH, O=pq-ike, CN=Intermediate\"";
    assert_eq!(outcome(&["chained"]), Err(missing.to_owned()));

    let mut trust = trusting(&["root"]);
    trust.add_intermediate(certificate("inter")).unwrap();
    let policy = PeerPolicy::default();
    verdict("chained.example.org", &["chained"], &policy, &trust).unwrap();
    // A CA that is none of the roots may be what is trusted.
    verdict("chained.example.org", &["chained"], &policy, &trusting(&["inter"])).unwrap();
}

#[test]
fn validity_is_that_of_every_certificate_of_the_path() {
    for (shown, why) in [
        (
            &["expired"][..],
            "certificate \"C=CH, O=pq-ike, CN=expired.example.org\" expired on 2025-01-01 00:00:00 UTC",
        ),
        (
            &["future"],
            "certificate \"C=CH, O=pq-ike, CN=future.example.org\" is valid from \
             2044-01-01 00:00:00 UTC on",
        ),
        (
            &["under-expired", "inter-expired"],
            "certificate \"C=CH, O=pq-ike, CN=Expired Intermediate\" expired on \
             2025-01-01 00:00:00 UTC",
        ),
    ] {
        assert_eq!(outcome(shown), Err(why.to_owned()));
    }
    let policy = PeerPolicy::default();
    let old = verdict(
        "under-old-root.example.org",
        &["under-old-root"],
        &policy,
        &trusting(&["root-expired"]),
    );
    assert_eq!(
        refused(old),
        "certificate \"C=CH, O=pq-ike, CN=Expired Root\" expired on 2025-01-01 00:00:00 UTC"
    );

    // The last second still counts, the next one does not.
    let trust = trusting(&["root"]);
    let last = certificate("moon").not_after();
    let second = Duration::from_secs(1);
    let at = |at| verdict_at("moon.example.org", &["moon"], &policy, &trust, at);
    assert!(at(last).is_ok());
    assert!(at(last + second / 2).is_ok());
    assert!(matches!(at(last + second), Err(PkiError::Expired { .. })));
    let first = certificate("moon").not_before();
    assert!(at(first).is_ok());
    assert!(matches!(at(first - second), Err(PkiError::NotYetValid { .. })));
}

#[test]
fn extended_key_usage_is_absent_or_for_ike() {
    for (name, strict, tolerant) in [
        ("moon", true, true),
        ("ekuike", true, true),
        ("ekuany", true, true),
        ("ekutls", false, true),
        ("ekumail", false, false),
    ] {
        for (policy, expected) in [
            (ExtendedKeyUsagePolicy::Ike, strict),
            (ExtendedKeyUsagePolicy::IkeOrTls, tolerant),
            (ExtendedKeyUsagePolicy::default(), tolerant),
        ] {
            let identity = format!("{name}.example.org");
            let policy = PeerPolicy { extended_key_usage: policy, ..PeerPolicy::default() };
            match verdict(&identity, &[name], &policy, &trusting(&["root"])) {
                Ok(_) => assert!(expected, "{name}"),
                Err(PkiError::ExtendedKeyUsage { .. }) => assert!(!expected, "{name}"),
                Err(why) => panic!("{name}: {why}"),
            }
        }
    }
}

#[test]
fn key_usage_must_allow_signatures_and_a_cas_certificates() {
    assert_eq!(outcome(&["nonrep"]), Ok(()));
    let why = "the keyUsage of \"C=CH, O=pq-ike, CN=keyenc.example.org\" does not allow this use";
    assert_eq!(outcome(&["keyenc"]), Err(why.to_owned()));
    let why = "the keyUsage of \"C=CH, O=pq-ike, CN=Unable Intermediate\" does not allow this use";
    assert_eq!(outcome(&["under-nosign", "inter-nosign"]), Err(why.to_owned()));
    let mut trust = TrustStore::new();
    assert_eq!(trust.add_ca(certificate("inter-nosign")), Err(LoadError::NotCa));
}

#[test]
fn only_a_ca_issues_and_only_as_deep_as_it_may() {
    let basic = "the basicConstraints do not allow this path".to_owned();
    assert_eq!(outcome(&["notca-child", "moon"]), Err(basic.clone()));
    assert_eq!(outcome(&["toodeep-leaf", "toodeep", "inter"]), Err(basic.clone()));
    let mut trust = trusting(&["root"]);
    for name in ["moon", "v1", "selfsigned"] {
        assert_eq!(trust.add_ca(certificate(name)), Err(LoadError::NotCa), "{name}");
        assert_eq!(trust.add_intermediate(certificate(name)), Err(LoadError::NotCa), "{name}");
    }
    // The key of this CA may not sign anything else.
    let root = verdict(
        "C=CH, O=pq-ike, CN=Intermediate",
        &["inter"],
        &PeerPolicy::default(),
        &trusting(&["root"]),
    );
    assert!(matches!(root, Err(PkiError::KeyUsage { .. })));
}

#[test]
fn names_stay_within_the_constraints_of_the_ca() {
    let good = "nc-good.example.org";
    let policy = PeerPolicy::default();
    let trust = trusting(&["root"]);
    verdict(good, &["nc-good", "constrained"], &policy, &trust).unwrap();
    for (name, identity) in [
        ("nc-dns", "moon.example.net"),
        ("nc-excluded", "a.secret.example.org"),
        ("nc-ip", "198.51.100.1"),
    ] {
        let refusal = verdict(identity, &[name, "constrained"], &policy, &trust);
        assert!(matches!(refusal, Err(PkiError::NameConstraints { .. })), "{name}: {refusal:?}");
    }
    // The constraints of a trusted CA hold as well.
    let trust = trusting(&["constrained"]);
    verdict(good, &["nc-good"], &policy, &trust).unwrap();
    let refusal = verdict("moon.example.net", &["nc-dns"], &policy, &trust);
    assert!(matches!(refusal, Err(PkiError::NameConstraints { .. })), "{refusal:?}");
}

#[test]
fn what_is_not_understood_or_too_weak_is_refused() {
    let why = "certificate \"C=CH, O=pq-ike, CN=critical.example.org\" has a critical extension that is not understood";
    assert_eq!(outcome(&["critical"]), Err(why.to_owned()));
    let why = "certificate \"C=CH, O=pq-ike, CN=sha1.example.org\" has a signature by algorithm 1.2.840.10045.4.1, which is not accepted";
    assert_eq!(outcome(&["sha1"]), Err(why.to_owned()));
    let v1 = verdict("CN=v1", &["v1"], &PeerPolicy::default(), &trusting(&["root"]));
    assert_eq!(v1.unwrap_err(), PkiError::Malformed("not version 3"));
}

#[test]
fn the_name_of_a_ca_is_not_the_ca() {
    let why = "certificate \"C=CH, O=pq-ike, CN=forged.example.org\" has a signature by ECDSA-256 that does not verify by the key of its CA";
    assert_eq!(outcome(&["forged"]), Err(why.to_owned()));
    // Nor does it help to show the impostor.
    assert!(outcome(&["forged", "impostor"]).is_err());
    // With both trusted, each issues for itself.
    let both = trusting(&["root", "impostor"]);
    let policy = PeerPolicy::default();
    verdict("forged.example.org", &["forged"], &policy, &both).unwrap();
    verdict("moon.example.org", &["moon"], &policy, &both).unwrap();
}

#[test]
fn a_connection_may_want_a_certain_ca() {
    let trust = trusting(&["root", "rsa-root"]);
    let wants = |ca| PeerPolicy { cacerts: vec![shared(ca)], ..PeerPolicy::default() };
    for (name, shown, ca, expected) in [
        ("moon.example.org", &["moon"][..], "root", true),
        ("moon.example.org", &["moon"], "rsa-root", false),
        ("moon.example.org", &["moon"], "inter", false),
        ("chained.example.org", &["chained", "inter"], "root", true),
        ("chained.example.org", &["chained", "inter"], "inter", true),
        ("rsa.example.org", &["rsa"], "root", false),
    ] {
        match verdict(name, shown, &wants(ca), &trust) {
            Ok(_) => assert!(expected, "{name} {ca}"),
            Err(PkiError::CaNotAllowed { .. }) => assert!(!expected, "{name} {ca}"),
            Err(why) => panic!("{name} {ca}: {why}"),
        }
    }
    // It is trusted for this connection then, whatever else is.
    let none = TrustStore::new();
    verdict("ed25519.example.org", &["ed25519"], &wants("ed25519-root"), &none).unwrap();
}

#[test]
fn trust_ends_with_the_first_certificate_of_the_path_to_expire() {
    let peer = verdict(
        "chained.example.org",
        &["chained", "inter"],
        &PeerPolicy::default(),
        &trusting(&["root"]),
    )
    .unwrap();
    assert_eq!(peer.not_after, Some(certificate("inter").not_after()));
    assert!(peer.not_after.unwrap() > now());
}

#[test]
fn what_was_found_good_before_excuses_nothing() {
    let mut trust = trusting(&["root"]);
    let (name, shown) = ("chained.example.org", ["chained", "inter"]);
    let policy = PeerPolicy::default();
    let late = certificate("inter").not_after() + Duration::from_secs(2);
    let mut other = trusting(&["rsa-root"]);
    let mut forged = certificate("chained").der().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let inter = certificate("inter");
    for cached in [true, false] {
        trust.set_cert_cache(cached);
        other.inherit(&trust);
        for _ in 0..2 {
            verdict(name, &shown, &policy, &trust).unwrap();
            let refusal = verdict_at(name, &shown, &policy, &trust, late);
            assert!(matches!(refusal, Err(PkiError::Expired { .. })), "{refusal:?}");
            let refusal = verdict(name, &shown, &policy, &other);
            assert!(matches!(refusal, Err(PkiError::UnknownCa { .. })), "{refusal:?}");
            let wants = PeerPolicy { cacerts: vec![shared("rsa-root")], ..PeerPolicy::default() };
            let refusal = verdict(name, &shown, &wants, &trust);
            assert!(matches!(refusal, Err(PkiError::CaNotAllowed { .. })), "{refusal:?}");
            let refusal = verdict("moon.example.org", &shown, &policy, &trust);
            assert!(refused(refusal).contains("moon.example.org"));
            let payloads = [x509(&forged), x509(inter.der())];
            let refusal = verify_peer(&id(name), &payloads, &policy, &trust, now());
            assert!(matches!(refusal, Err(PkiError::BadSignature { .. })), "{refusal:?}");
        }
    }
}
