//! Identities and the certificates they are in (RFC 4945 §3.1).

use ike_proto::wire::payload::{Cert, IdData};
use ike_proto::wire::registry::IdType;
use pki::{PeerPolicy, PkiError, verify_peer};

use crate::common::{certificate, id, now, refused, trusting, verdict, x509};

fn is_moon(identity: &IdData) -> Result<(), PkiError> {
    is(identity, "moon")
}

fn is(identity: &IdData, name: &str) -> Result<(), PkiError> {
    let certificate = certificate(name);
    let payloads: [Cert<'_>; 1] = [x509(certificate.der())];
    let trust = trusting(&["root"]);
    verify_peer(identity, &payloads, &PeerPolicy::default(), &trust, now()).map(|_| ())
}

#[test]
fn a_certificate_has_its_subject_and_its_alternative_names() {
    for text in [
        "moon.example.org",
        "MOON.example.ORG",
        "moon@example.org",
        "192.0.2.1",
        "2001:db8::1",
        "C=CH, O=pq-ike, CN=moon",
        "C=CH, O=PQ-IKE, CN=Moon",
    ] {
        assert_eq!(is_moon(&id(text)), Ok(()), "{text}");
    }
}

#[test]
fn it_has_no_other() {
    for text in [
        "sun.example.org",
        "moon",
        "example.org",
        "moon.example.org.",
        "sun@example.org",
        "example.org@moon",
        "192.0.2.2",
        "2001:db8::2",
        "C=CH, O=pq-ike",
        "C=CH, O=pq-ike, CN=sun",
        "CN=moon, O=pq-ike, C=CH",
        "C=CH, O=pq-ike, CN=moon, OU=x",
        // An identity of one type in the place of another.
        "fqdn:192.0.2.1",
        "fqdn:moon@example.org",
        "email:moon.example.org",
        "CN=moon.example.org",
    ] {
        let refusal = is_moon(&id(text));
        assert!(
            matches!(refusal, Err(PkiError::IdentityNotInCertificate { .. })),
            "{text}: {refusal:?}"
        );
    }
}

#[test]
fn a_wildcard_is_a_character_like_any_other() {
    for text in ["C=CH, O=pq-ike, CN=*", "C=*, O=*, CN=*", "*.example.org", "fqdn:*"] {
        assert!(is_moon(&id(text)).is_err(), "{text}");
    }
    for text in ["a.example.org", "*.example.org", "wildcard.example.org"] {
        assert!(is(&id(text), "wildcard").is_err(), "{text}");
    }
    assert_eq!(is(&id("CN=wildcard"), "wildcard"), Ok(()));
}

#[test]
fn a_common_name_is_no_host_name() {
    for text in ["moon.example.org", "moon@example.org"] {
        assert!(is(&id(text), "cnonly").is_err(), "{text}");
    }
    let subject = "C=CH, O=pq-ike, CN=moon.example.org, E=moon@example.org";
    assert_eq!(is(&id(subject), "cnonly"), Ok(()));
}

#[test]
fn an_empty_subject_is_no_identity() {
    assert_eq!(is(&id("emptysubject.example.org"), "emptysubject"), Ok(()));
    let nobody = IdData { kind: IdType::DER_ASN1_DN, data: vec![0x30, 0] };
    assert!(is(&nobody, "emptysubject").is_err());
    assert!(is_moon(&nobody).is_err());
}

#[test]
fn identities_that_no_certificate_has() {
    for identity in [
        IdData::keyid(*b"moon.example.org"),
        IdData { kind: IdType::NULL, data: Vec::new() },
        IdData { kind: IdType::DER_ASN1_GN, data: b"\x82\x10moon.example.org".to_vec() },
        IdData { kind: IdType(200), data: b"moon.example.org".to_vec() },
    ] {
        assert_eq!(is_moon(&identity), Err(PkiError::IdentityType(identity.clone())));
    }
}

/// Bug class 25: names cut short, with octets after them, with terminators inside.
#[test]
fn class_25_malformed_names_match_nothing() {
    let subject = certificate("moon").subject().to_vec();
    for data in [
        subject[..subject.len() - 1].to_vec(),
        [&subject[..], &[0]].concat(),
        [&[0x30, 0x81], &subject[1..]].concat(),
        vec![0x30, 0x80, 0, 0],
        Vec::new(),
    ] {
        let identity = IdData { kind: IdType::DER_ASN1_DN, data };
        assert!(is_moon(&identity).is_err(), "{identity}");
    }
    for data in ["moon.example.org\0", "moon.example.org\0.evil.example", "moon.example.org\n"] {
        let identity = IdData { kind: IdType::FQDN, data: data.into() };
        assert!(is_moon(&identity).is_err());
    }
    for data in [vec![192, 0, 2], vec![192, 0, 2, 1, 0], Vec::new()] {
        assert!(is_moon(&IdData { kind: IdType::IPV4_ADDR, data }).is_err());
    }
}

#[test]
fn a_refusal_says_what_the_certificate_has() {
    let refusal =
        verdict("sun.example.org", &["moon"], &PeerPolicy::default(), &trusting(&["root"]));
    assert_eq!(
        refused(refusal),
        "the certificate does not have the identity \"sun.example.org\"; it has \
         \"C=CH, O=pq-ike, CN=moon\", \"moon.example.org\", \"moon@example.org\", \"192.0.2.1\", \
         \"2001:db8::1\""
    );
}

#[test]
fn a_peer_can_be_looked_up_by_all_its_identities() {
    let peer = verdict("192.0.2.1", &["moon"], &PeerPolicy::default(), &trusting(&["root"]));
    let peer = peer.unwrap();
    for (text, expected) in [
        ("moon.example.org", true),
        ("C=CH, O=pq-ike, CN=*", true),
        ("C=*, O=other, CN=*", false),
        ("sun.example.org", false),
    ] {
        assert_eq!(peer.has_identity(&id(text)), expected, "{text}");
    }
}
