//! What a peer may show: pinned certificates, raw keys, nothing, too much.

use ike_proto::wire::payload::Cert;
use ike_proto::wire::registry::CertEncoding;
use pki::{
    EncodingProblem, MAX_CERTS, MAX_CERTS_LEN, PeerPolicy, PkiError, RawKey, TrustStore,
    verify_peer,
};

use crate::common::{certificate, fixture, id, now, shared, trusting, verdict, x509};

fn pinning(names: &[&str]) -> PeerPolicy {
    let certs = names.iter().map(|name| shared(name)).collect();
    PeerPolicy { certs, ..PeerPolicy::default() }
}

#[test]
fn a_pinned_certificate_needs_no_ca_but_its_identity_and_validity() {
    let nobody = TrustStore::new();
    for name in ["moon", "selfsigned", "chained"] {
        let peer =
            verdict(&format!("{name}.example.org"), &[name], &pinning(&[name]), &nobody).unwrap();
        assert_eq!(peer.spki, certificate(name).spki());
        let other = verdict("other.example.org", &[name], &pinning(&[name]), &nobody);
        assert!(matches!(other, Err(PkiError::IdentityNotInCertificate { .. })), "{name}");
    }
    let expired = verdict("expired.example.org", &["expired"], &pinning(&["expired"]), &nobody);
    assert!(matches!(expired, Err(PkiError::Expired { .. })));
    let unfit = verdict("keyenc.example.org", &["keyenc"], &pinning(&["keyenc"]), &nobody);
    assert!(matches!(unfit, Err(PkiError::KeyUsage { .. })));
}

#[test]
fn no_other_certificate_passes_for_the_pinned_one() {
    let trust = trusting(&["root"]);
    // ekuike has the same key as moon, and another name.
    let refusal = verdict("nonrep.example.org", &["nonrep"], &pinning(&["moon"]), &trust);
    assert!(matches!(refusal, Err(PkiError::NotPinned { .. })));
    // A CA as well as a pin: both must be right.
    let policy = PeerPolicy { cacerts: vec![shared("rsa-root")], ..pinning(&["moon"]) };
    let refusal = verdict("moon.example.org", &["moon"], &policy, &trust);
    assert!(matches!(refusal, Err(PkiError::CaNotAllowed { .. })));
    let refusal = verdict("moon.example.org", &["moon"], &policy, &TrustStore::new());
    assert!(matches!(refusal, Err(PkiError::UnknownCa { .. })));
}

/// Bug class 31: a valid key that is not the asserted identity's.
#[test]
fn class_31_a_key_is_bound_to_its_identity() {
    let trust = trusting(&["root"]);
    let policy = PeerPolicy::default();
    // Somebody else's certificate from the same CA.
    let other = verdict("moon.example.org", &["chained", "inter"], &policy, &trust);
    assert!(matches!(other, Err(PkiError::IdentityNotInCertificate { .. })));
    // The identity's certificate, but not as the peer's own: only the first one counts.
    let second = verdict("moon.example.org", &["chained", "moon", "inter"], &policy, &trust);
    assert!(matches!(second, Err(PkiError::IdentityNotInCertificate { .. })));
    // Self-made with the right name.
    let own = verdict("selfsigned.example.org", &["selfsigned"], &policy, &trust);
    assert!(matches!(own, Err(PkiError::UnknownCa { .. })));
    // A raw key that nobody configured, and one configured for somebody else.
    let moon = certificate("moon");
    let raw = Cert { encoding: CertEncoding::RAW_PUBLIC_KEY, data: moon.spki() };
    for pubkeys in [
        Vec::new(),
        vec![RawKey { id: id("sun.example.org"), spki: moon.spki().to_vec() }],
        vec![RawKey { id: id("moon.example.org"), spki: certificate("p384").spki().to_vec() }],
    ] {
        let policy = PeerPolicy { pubkeys, ..PeerPolicy::default() };
        let verdict = verify_peer(&id("moon.example.org"), &[raw], &policy, &trust, now());
        assert_eq!(verdict.unwrap_err(), PkiError::UnknownRawKey);
    }
}

#[test]
fn a_raw_key_authenticates_the_identity_it_is_configured_for() {
    for name in ["moon", "rsa", "ed25519", "mldsa65"] {
        let spki = certificate(name).spki().to_vec();
        let key = RawKey { id: id("moon.example.org"), spki: spki.clone() };
        let policy = PeerPolicy { pubkeys: vec![key], ..PeerPolicy::default() };
        let raw = Cert { encoding: CertEncoding::RAW_PUBLIC_KEY, data: &spki };
        let nobody = TrustStore::new();
        for shown in [&[raw][..], &[]] {
            let peer =
                verify_peer(&id("moon.example.org"), shown, &policy, &nobody, now()).unwrap();
            assert_eq!(peer.spki, spki);
            assert!(peer.certificate.is_none() && peer.not_after.is_none());
        }
    }
}

/// A certificate is known for a raw key if the peer sends it, or if the configuration has it. Then revocation counts,
/// if its CA is trusted. The path counts as that of the peer.
///
/// Fault: in `raw_key`, return the peer before the search for a path.
#[test]
fn a_raw_key_is_judged_by_the_certificate_that_is_known_for_it() {
    let key = |name: &str| {
        let spki = certificate(name).spki().to_vec();
        let pubkeys = vec![RawKey { id: id("gw.example.org"), spki }];
        PeerPolicy { pubkeys, ..PeerPolicy::default() }
    };
    let mut trust = trusting(&["root"]);
    trust.revocation.add_crl(&fixture("root.crl")).unwrap();
    for (name, trust, revoked) in
        [("revoked", &trust, true), ("moon", &trust, false), ("revoked", &TrustStore::new(), false)]
    {
        let spki = certificate(name).spki().to_vec();
        let raw = Cert { encoding: CertEncoding::RAW_PUBLIC_KEY, data: &spki };
        let der = certificate(name).der().to_vec();
        let sent = Cert { encoding: CertEncoding::X509_SIGNATURE, data: &der };
        let known = PeerPolicy { key_certificates: vec![shared(name)], ..key(name) };
        for (shown, policy) in [(&[sent][..], key(name)), (&[raw], known.clone()), (&[], known)] {
            let verdict = verify_peer(&id("gw.example.org"), shown, &policy, trust, now());
            match verdict {
                Err(PkiError::Revoked { .. }) => assert!(revoked, "{name}"),
                Ok(peer) => {
                    assert!(!revoked && peer.certificate.is_none(), "{name}");
                    let path = if trust.cas().is_empty() { 0 } else { 2 };
                    assert_eq!(peer.path.len(), path, "{name}");
                }
                Err(why) => panic!("{name}: {why}"),
            }
        }
        // Of the key alone nothing is known.
        assert!(verify_peer(&id("gw.example.org"), &[raw], &key(name), trust, now()).is_ok());
    }
}

#[test]
fn with_raw_keys_configured_a_certificate_is_but_their_wrapping() {
    let trust = trusting(&["root"]);
    let policy = |name: &str, owner: &str| {
        let spki = certificate(name).spki().to_vec();
        PeerPolicy { pubkeys: vec![RawKey { id: id(owner), spki }], ..PeerPolicy::default() }
    };
    // The key is the one that is configured: neither CA nor validity nor names count.
    for name in ["moon", "expired", "selfsigned"] {
        let own = policy(name, "moon.example.org");
        let peer = verdict("moon.example.org", &[name], &own, &TrustStore::new()).unwrap();
        assert!(peer.certificate.is_none() && peer.spki == certificate(name).spki(), "{name}");
    }
    // A certificate of a trusted CA is not enough.
    for (name, owner) in [("p384", "moon.example.org"), ("moon", "sun.example.org")] {
        let refusal = verdict("moon.example.org", &["moon"], &policy(name, owner), &trust);
        assert!(matches!(refusal, Err(PkiError::NotPinned { .. })), "{name}");
    }
    let pinned = PeerPolicy { certs: vec![shared("moon")], ..policy("p384", "sun.example.org") };
    verdict("moon.example.org", &["moon"], &pinned, &trust).unwrap();
}

#[test]
fn without_a_certificate_the_configured_ones_are_looked_through() {
    let trust = trusting(&["root"]);
    let policy = pinning(&["chained", "expired", "moon"]);
    let peer = verdict("moon.example.org", &[], &policy, &trust).unwrap();
    assert_eq!(peer.spki, certificate("moon").spki());
    for identity in ["sun.example.org", "expired.example.org"] {
        let refusal = verdict(identity, &[], &policy, &trust);
        assert_eq!(refusal.unwrap_err(), PkiError::NoCertificate, "{identity}");
    }
    let refusal = verdict("moon.example.org", &[], &PeerPolicy::default(), &trust);
    assert_eq!(refusal.unwrap_err(), PkiError::NoCertificate);
}

#[test]
fn hash_and_url_and_other_encodings_are_refused_by_name() {
    let moon = certificate("moon");
    let policy = PeerPolicy::default();
    let trust = trusting(&["root"]);
    for (encoding, problem, text) in [
        (
            CertEncoding::HASH_AND_URL_X509,
            EncodingProblem::HashAndUrl,
            "Hash and URL of X.509 certificate: refused, HTTP_CERT_LOOKUP_SUPPORTED was not announced",
        ),
        (
            CertEncoding::HASH_AND_URL_BUNDLE,
            EncodingProblem::HashAndUrl,
            "Hash and URL of X.509 bundle: refused, HTTP_CERT_LOOKUP_SUPPORTED was not announced",
        ),
        (
            CertEncoding::PKCS7,
            EncodingProblem::Unsupported,
            "PKCS #7 wrapped X.509 certificate: not supported",
        ),
        (CertEncoding::RAW_RSA, EncodingProblem::Unsupported, "Raw RSA Key: not supported"),
    ] {
        let shown = [Cert { encoding, data: moon.der() }];
        let why = verify_peer(&id("moon.example.org"), &shown, &policy, &trust, now()).unwrap_err();
        assert_eq!(why, PkiError::Encoding(encoding, problem));
        assert_eq!(why.to_string(), text);
    }
    // After the peer's own certificate they are passed over (RFC 4945 §3.3.10.1).
    let shown = [x509(moon.der()), Cert { encoding: CertEncoding::CRL, data: &[0x30, 0] }];
    verify_peer(&id("moon.example.org"), &shown, &policy, &trust, now()).unwrap();
}

#[test]
fn too_many_certificates_are_refused_before_any_work() {
    let moon = certificate("moon");
    let policy = PeerPolicy::default();
    let trust = trusting(&["root"]);
    let verdict = |shown: &[Cert<'_>]| {
        verify_peer(&id("moon.example.org"), shown, &policy, &trust, now()).map(|_| ())
    };
    assert_eq!(verdict(&vec![x509(moon.der()); MAX_CERTS]), Ok(()));
    let many = vec![x509(moon.der()); MAX_CERTS + 1];
    assert_eq!(verdict(&many), Err(PkiError::TooMuch { what: "CERT payloads", most: 16 }));
    let long = vec![0x30; MAX_CERTS_LEN];
    let shown = [x509(moon.der()), x509(&long)];
    let too_long = PkiError::TooMuch { what: "octets of certificates", most: 262_144 };
    assert_eq!(verdict(&shown), Err(too_long));
    let names = [
        "moon",
        "inter",
        "constrained",
        "rsa-root",
        "ed25519-root",
        "toodeep",
        "inter-expired",
        "inter-nosign",
        "impostor",
        "mldsa44-root",
    ];
    let shown: Vec<_> = names.iter().map(|name| certificate(name)).collect();
    let shown: Vec<_> = shown.iter().map(|certificate| x509(certificate.der())).collect();
    let refusal = verdict(&shown).unwrap_err().to_string();
    assert_eq!(refusal, "the peer sends more than 8 certificates besides its own");
}

#[test]
fn a_malformed_certificate_is_refused_and_malformed_company_passed_over() {
    let moon = certificate("moon");
    let policy = PeerPolicy::default();
    let trust = trusting(&["root"]);
    let verdict = |shown: &[Cert<'_>]| {
        verify_peer(&id("moon.example.org"), shown, &policy, &trust, now()).map(|_| ())
    };
    for bad in [&[][..], &[0x30], &[0x30, 0], &moon.der()[..100], &[moon.der(), &[0]].concat()] {
        assert!(matches!(verdict(&[x509(bad)]), Err(PkiError::Malformed(_))), "{bad:02x?}");
        assert_eq!(verdict(&[x509(moon.der()), x509(bad)]), Ok(()));
    }
}
