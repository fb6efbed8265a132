//! This end's certificates and CERTREQ.

use std::sync::Arc;

use ike_proto::crypto::SigningKey;
use ike_proto::wire::payload::CertReq;
use ike_proto::wire::registry::{CertEncoding, IdType};
use pki::{Credential, LoadError, ca_hash, certificate_request, choose, files, requested_cas};

use crate::common::{certificate, fixture, id, shared, trusting};

fn key(name: &str) -> Arc<dyn SigningKey> {
    files::load_private_key(&fixture(&format!("{name}.key")), None).unwrap()
}

fn credential(name: &str, others: &[&str]) -> Credential {
    let others: Vec<_> = others.iter().map(|name| shared(name)).collect();
    Credential::new(key(name), shared(name), &others).unwrap()
}

fn subjects(credential: &Credential) -> Vec<String> {
    credential.chain().iter().map(|certificate| certificate.subject_text()).collect()
}

#[test]
fn the_chain_goes_up_to_the_root_and_without_it() {
    let own = "C=CH, O=pq-ike, CN=chained.example.org";
    let inter = "C=CH, O=pq-ike, CN=Intermediate";
    let all = credential("chained", &["root", "rsa-root", "moon", "inter"]);
    assert_eq!(subjects(&all), [own, inter]);
    let payloads = all.payloads();
    assert_eq!(payloads.len(), 2);
    assert!(payloads.iter().all(|cert| cert.encoding == CertEncoding::X509_SIGNATURE));
    assert_eq!(payloads[0].data, certificate("chained").der());
    assert_eq!(subjects(&credential("chained", &[])), [own]);
    assert_eq!(subjects(&credential("moon", &["root"])), ["C=CH, O=pq-ike, CN=moon"]);
}

#[test]
fn a_key_goes_with_its_own_certificate_only() {
    let refusal = Credential::new(key("rsa"), shared("moon"), &[]);
    assert_eq!(refusal.err(), Some(LoadError::KeyMismatch));
    assert!(Credential::new(key("rsa"), shared("rsa-pss"), &[]).is_ok());
}

#[test]
fn the_identity_is_one_of_the_certificate() {
    let moon = credential("moon", &[]);
    for text in ["moon.example.org", "moon@example.org", "192.0.2.1", "C=CH, O=pq-ike, CN=moon"] {
        assert_eq!(moon.identity(Some(&id(text))), Ok(id(text)).map(|id| exact(&moon, id)));
    }
    assert_eq!(moon.identity(Some(&id("sun.example.org"))), Err(LoadError::Identity));
    // By default the subject. OpenSSL wrote UTF8String where a parsed DN has PrintableString: what is
    // sent is the certificate's.
    let subject = moon.identity(None).unwrap();
    assert_eq!(subject.kind, IdType::DER_ASN1_DN);
    assert_eq!(subject.data, certificate("moon").subject());
    assert_ne!(subject.data, id("C=CH, O=pq-ike, CN=moon").data);
    let raw = Credential::raw(key("moon"));
    assert_eq!(raw.identity(Some(&id("a.example"))), Ok(id("a.example")));
    assert_eq!(raw.identity(None), Err(LoadError::Identity));
}

/// A DN as the certificate has it.
fn exact(
    credential: &Credential,
    mut id: ike_proto::wire::payload::IdData,
) -> ike_proto::wire::payload::IdData {
    if id.kind == IdType::DER_ASN1_DN {
        id.data = credential.certificate().unwrap().subject().to_vec();
    }
    id
}

#[test]
fn a_raw_key_is_shown_as_such() {
    let raw = Credential::raw(key("mldsa65"));
    let payloads = raw.payloads();
    assert_eq!(payloads.len(), 1);
    assert_eq!(payloads[0].encoding, CertEncoding::RAW_PUBLIC_KEY);
    assert_eq!(payloads[0].data, certificate("mldsa65").spki());
}

#[test]
fn a_certificate_request_names_cas_by_the_hash_of_their_key() {
    // SHA-1 over the SubjectPublicKeyInfo, as `openssl x509 -pubkey | openssl sha1` prints it.
    let spki = certificate("root").spki().to_vec();
    let hash = ca_hash(&spki);
    let roots = [shared("root"), shared("rsa-root"), shared("root"), shared("root-expired")];
    let data = certificate_request(&roots);
    // root-expired has the key of root: one hash for both.
    assert_eq!(data.len(), 40);
    assert_eq!(data[..20], hash);
    assert_eq!(requested_cas(&data).count(), 2);
    assert_eq!(requested_cas(&data[..39]).count(), 1);
    assert_eq!(requested_cas(&[]).count(), 0);
    assert_ne!(ca_hash(certificate("rsa-root").spki()), hash);
}

#[test]
fn the_peers_request_chooses_the_certificate() {
    let credentials = [
        credential("rsa", &[]),
        credential("chained", &["inter"]),
        credential("mldsa65", &[]),
        Credential::raw(key("moon")),
    ];
    let trust = trusting(&["root", "rsa-root", "mldsa65-root"]);
    let request = |encoding, authorities| CertReq { encoding, authorities };
    let x509 = CertEncoding::X509_SIGNATURE;
    let hash = |name: &str| ca_hash(certificate(name).spki()).to_vec();
    let both = [hash("mldsa65-root"), hash("root")].concat();
    let noise = [hash("ed25519-root"), vec![1, 2, 3]].concat();
    let raw = CertEncoding::RAW_PUBLIC_KEY;
    for (requests, chosen) in [
        (vec![], 0),
        (vec![request(x509, &[][..])], 0),
        (vec![request(x509, &hash("rsa-root"))], 0),
        (vec![request(x509, &hash("root"))], 1),
        (vec![request(x509, &hash("inter"))], 1),
        (vec![request(x509, &hash("mldsa65-root"))], 2),
        (vec![request(x509, &both)], 1),
        (vec![request(x509, &noise)], 0),
        (vec![request(CertEncoding::PKCS7, &hash("root"))], 0),
        (vec![request(x509, &noise), request(x509, &hash("mldsa65-root"))], 2),
        (vec![request(raw, &[])], 3),
    ] {
        let choice = choose(&credentials, &requests, &trust).unwrap();
        assert!(std::ptr::eq(choice, &credentials[chosen]), "{requests:02x?}");
    }
    assert!(choose(&[], &[], &trust).is_none());
}
