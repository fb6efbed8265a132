//! Certificates, requests and revocation lists made here.

use std::time::{Duration, SystemTime};

use ike_proto::crypto::{SchemeRegister, SignatureScheme, SigningKey};
use pki::issue::{self, IssueError, Issuer, Request, RevokedEntry, Template};
use pki::{Certificate, LoadError, PeerPolicy, PkiError, TrustStore, files, verify_peer};
use pq_kem::sign::{KeyType, generate, load_private_key};

use crate::common::{certificate, fixture, id, now, x509};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn key(key_type: KeyType) -> Box<dyn SigningKey> {
    load_private_key(&generate(key_type).unwrap()).unwrap()
}

fn template(subject: &str) -> Template {
    Template {
        subject: issue::distinguished_name(subject).unwrap(),
        not_before: now() - YEAR,
        not_after: now() + YEAR,
        ..Template::default()
    }
}

fn self_signed(subject: &str, key: &dyn SigningKey) -> Certificate {
    let template = Template { ca: true, ..template(subject) };
    let scheme = issue::default_scheme(key).unwrap();
    let issuer = Issuer { key, scheme, name: &template.subject };
    let der = issue::certificate(&template, key.public_key(), &issuer).unwrap();
    Certificate::from_der(&der).unwrap()
}

fn trust(ca: &Certificate) -> TrustStore {
    let mut trust = TrustStore::new();
    trust.add_ca(ca.clone()).unwrap();
    trust
}

#[test]
fn a_ca_of_every_algorithm_certifies_and_revokes() {
    use SignatureScheme as S;
    for key_type in [
        KeyType::Rsa2048,
        KeyType::Scheme(S::EcdsaP256Sha256),
        KeyType::Scheme(S::EcdsaP384Sha384),
        KeyType::Scheme(S::EcdsaP521Sha512),
        KeyType::Scheme(S::Ed25519),
        KeyType::Scheme(S::MlDsa44),
        KeyType::Scheme(S::MlDsa65),
        KeyType::Scheme(S::MlDsa87),
        KeyType::Scheme(S::SlhDsaSha2_128f),
    ] {
        let ca_key = key(key_type.clone());
        let peer_key = key(KeyType::Scheme(S::Ed25519));
        let ca = self_signed("C=CH, O=pq-ike, CN=CA", &*ca_key);
        assert!(ca.is_ca() && ca.is_self_issued());
        let scheme = issue::default_scheme(&*ca_key).unwrap();
        let issuer = Issuer { key: &*ca_key, scheme, name: ca.subject() };
        let template = Template {
            names: ["peer.example.org", "peer@example.org", "192.0.2.9", "2001:db8::9"]
                .map(id)
                .to_vec(),
            serial: vec![0x80, 1],
            extended_key_usage: vec!["1.3.6.1.5.5.7.3.17".to_owned()],
            crl: vec!["http://crl.example.org/".to_owned()],
            ocsp: vec!["http://ocsp.example.org/".to_owned()],
            ..template("CN=peer")
        };
        let der = issue::certificate(&template, peer_key.public_key(), &issuer).unwrap();
        let peer = Certificate::from_der(&der).unwrap();
        assert_eq!(peer.serial(), [0, 0x80, 1]);
        assert_eq!(peer.crl_urls(), template.crl);
        assert_eq!(peer.ocsp_urls(), template.ocsp);
        assert_eq!(peer.key_usages(), ["digitalSignature"]);

        let mut trust = trust(&ca);
        for identity in template.names.iter().chain([&id("CN=peer")]) {
            let shown = [x509(&der)];
            let verdict = verify_peer(identity, &shown, &PeerPolicy::default(), &trust, now());
            assert_eq!(verdict.unwrap().spki, peer_key.public_key(), "{key_type:?}");
        }
        let entry = RevokedEntry {
            serial: peer.serial().to_vec(),
            at: now(),
            reason: RevokedEntry::reason("key-compromise"),
        };
        for (entries, revoked) in [(&[][..], false), (&[entry], true)] {
            let number = u64::from(revoked);
            let crl =
                issue::revocation_list(&issuer, now(), now() + YEAR, number, entries).unwrap();
            trust.revocation.add_crl(&crl).unwrap();
            let shown = [x509(&der)];
            let id = id("peer.example.org");
            let verdict = verify_peer(&id, &shown, &PeerPolicy::default(), &trust, now());
            assert_eq!(matches!(verdict, Err(PkiError::Revoked { .. })), revoked, "{key_type:?}");
            trust.revocation = Default::default();
        }
    }
}

#[test]
fn a_request_proves_its_key_and_says_what_it_wants() {
    let names = [id("peer.example.org"), id("192.0.2.9")];
    for scheme in [SignatureScheme::EcdsaP256Sha256, SignatureScheme::MlDsa65] {
        let key = key(KeyType::Scheme(scheme.clone()));
        let subject = issue::distinguished_name("C=CH, CN=peer").unwrap();
        let requester = Issuer { key: &*key, scheme: scheme.clone(), name: &subject };
        for names in [&names[..], &[]] {
            let der = Request::make(&requester, names).unwrap();
            let request = Request::load(&SchemeRegister::built_in(), &der).unwrap();
            assert_eq!(request.subject_text(), "C=CH, CN=peer");
            assert_eq!(request.spki, key.public_key());
            assert_eq!(request.names, names);
            let mut forged = der.clone();
            let last = forged.len() - 1;
            forged[last] ^= 1;
            assert!(
                matches!(
                    Request::load(&SchemeRegister::built_in(), &forged),
                    Err(LoadError::Signature)
                ),
                "{scheme}"
            );
        }
    }
}

#[test]
fn requests_made_by_openssl() {
    let request = Request::load(&SchemeRegister::built_in(), &fixture("mldsa65.csr")).unwrap();
    assert_eq!(request.subject_text(), "C=CH, O=pq-ike, CN=requested");
    assert_eq!(request.spki, certificate("mldsa65").spki());
    assert_eq!(request.names, [id("requested.example.org"), id("192.0.2.7")]);
    let plain = Request::load(&SchemeRegister::built_in(), &fixture("plain.csr")).unwrap();
    assert!(plain.names.is_empty());
    assert!(Request::load(&SchemeRegister::built_in(), &fixture("moon.pem")).is_err());
}

#[test]
fn names_stay_bit_by_bit_what_they_are() {
    let key = key(KeyType::Scheme(SignatureScheme::Ed25519));
    let ca = self_signed("C=CH, O=M\u{f6}nd+OU=x, CN=CA", &*key);
    let issuer = Issuer { key: &*key, scheme: SignatureScheme::Ed25519, name: ca.subject() };
    assert!(issue::is_certificate_of(&issuer, &ca));
    let der = issue::certificate(&template("CN=a"), key.public_key(), &issuer).unwrap();
    assert_eq!(Certificate::from_der(&der).unwrap().issuer(), ca.subject());
}

#[test]
fn what_cannot_be_issued() {
    let key = key(KeyType::Scheme(SignatureScheme::Ed25519));
    let name = issue::distinguished_name("CN=CA").unwrap();
    let issuer = Issuer { key: &*key, scheme: SignatureScheme::Ed25519, name: &name };
    let failure = |template: Template, issuer: &Issuer<'_>| {
        issue::certificate(&template, key.public_key(), issuer).unwrap_err()
    };
    let plain = || template("CN=a");
    for (template, what) in [
        (Template { serial: Vec::new(), ..plain() }, "serial number"),
        (Template { serial: vec![1; 21], ..plain() }, "serial number"),
        (Template { names: vec![id("keyid:x")], ..plain() }, "this type of subjectAltName"),
        (Template { names: vec![id("m\u{f6}nd.example")], ..plain() }, "name"),
        (Template { crl: vec!["http://m\u{f6}nd/".to_owned()], ..plain() }, "URL"),
        (Template { extended_key_usage: vec!["x".to_owned()], ..plain() }, "extended key usage"),
        (Template { not_before: SystemTime::UNIX_EPOCH - YEAR, ..plain() }, "date"),
    ] {
        assert_eq!(failure(template, &issuer), IssueError::Value(what));
    }
    let wrong = Issuer { scheme: SignatureScheme::MlDsa65, ..issuer };
    assert!(matches!(failure(plain(), &wrong), IssueError::Sign(_)));
    assert!(issue::distinguished_name("moon").is_err());
    assert!(RevokedEntry::reason("boredom").is_none());
}

#[test]
fn rsa_certificates_have_the_padding_everybody_knows() {
    let key = files::load_private_key(&fixture("rsa.key"), None).unwrap();
    assert_eq!(issue::default_scheme(&*key), Some(SignatureScheme::RsaPkcs1Sha256));
}
