//! Certificates that somebody has changed: nothing panics, nothing changed is trusted, and work is
//! bounded (bug class 35).

use ike_proto::crypto::{SchemeRegister, SignatureScheme};
use ike_proto::wire::der::{
    self, Der, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, context,
};
use ike_proto::wire::payload::Cert;
use ike_proto::wire::registry::CertEncoding;
use pki::issue::{self, Issuer, Template};
use pki::{
    Certificate, Crl, MAX_INTERMEDIATES, PeerPolicy, PkiError, TrustStore, files, verify_peer,
};
use pq_kem::sign::{KeyType, generate, load_private_key};
use proptest::prelude::*;

use crate::common::{certificate, fixture, id, now, trusting, x509};

/// A change to some octets.
#[derive(Debug, Clone)]
enum Change {
    Flip(prop::sample::Index, u8),
    Delete(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, usize),
    Truncate(prop::sample::Index),
}

impl Change {
    fn apply(&self, octets: &mut Vec<u8>) {
        if octets.is_empty() {
            return;
        }
        match self {
            Self::Flip(at, mask) => {
                let at = at.index(octets.len());
                octets[at] ^= mask;
            }
            Self::Delete(at, count) => {
                let at = at.index(octets.len());
                let end = (at + count).min(octets.len());
                octets.drain(at..end);
            }
            Self::Insert(at, new) => {
                let at = at.index(octets.len());
                octets.splice(at..at, new.iter().copied());
            }
            Self::Repeat(at, count) => {
                let at = at.index(octets.len());
                let end = (at + count).min(octets.len());
                let copy = octets[at..end].to_vec();
                octets.splice(at..at, copy);
            }
            Self::Truncate(at) => octets.truncate(at.index(octets.len())),
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        8 => (at(), 1u8..).prop_map(|(at, mask)| Change::Flip(at, mask)),
        2 => (at(), 1usize..40).prop_map(|(at, count)| Change::Delete(at, count)),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, new)| Change::Insert(at, new)),
        1 => (at(), 1usize..40).prop_map(|(at, count)| Change::Repeat(at, count)),
        1 => at().prop_map(Change::Truncate),
    ]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 1..4)
}

fn changed(original: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut octets = original.to_vec();
    for change in changes {
        change.apply(&mut octets);
    }
    octets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_certificate_is_refused(
        which in prop::sample::select(vec!["moon", "mldsa44", "ocsp", "critical"]),
        changes in changes(),
    ) {
        let original = certificate(which);
        let octets = changed(original.der(), &changes);
        prop_assume!(octets != original.der());
        let trust = trusting(&["root", "mldsa44-root"]);
        for identity in original.identities() {
            let shown = [x509(&octets)];
            let verdict = verify_peer(&identity, &shown, &PeerPolicy::default(), &trust, now());
            prop_assert!(verdict.is_err());
        }
        if let Ok(parsed) = Certificate::from_der(&octets) {
            let printed = format!("{parsed:?} {} {:?}", parsed.issuer_text(), parsed.identities());
            prop_assert!(printed.bytes().all(|octet| (0x20..0x7f).contains(&octet)));
        }
    }

    #[test]
    fn a_changed_intermediate_breaks_the_chain(changes in changes()) {
        let (leaf, inter) = (certificate("chained"), certificate("inter"));
        let octets = changed(inter.der(), &changes);
        prop_assume!(octets != inter.der());
        let shown = [x509(leaf.der()), x509(&octets)];
        let trust = trusting(&["root"]);
        let id = id("chained.example.org");
        let verdict = verify_peer(&id, &shown, &PeerPolicy::default(), &trust, now());
        prop_assert!(verdict.is_err());
    }

    #[test]
    fn changed_files_do_no_harm(
        which in prop::sample::select(vec![
            "moon.key", "rsa-pkcs1.key", "moon-sec1.key", "mldsa44.key", "moon.pem", "root.crl",
            "mldsa65.csr", "moon.der", "ocsp-delegated.der",
        ]),
        changes in changes(),
    ) {
        let octets = changed(&fixture(which), &changes);
        // Whatever comes out, nothing panics.
        let _ = files::load_private_key(&octets, Some(b"tunnel"));
        let _ = files::load_certificates(&octets);
        let _ = files::load_public_key(&octets);
        let _ = files::load_pkcs12(&SchemeRegister::built_in(), &octets, b"tunnel");
        let _ = Crl::load(&octets);
        let _ = issue::Request::load(&SchemeRegister::built_in(), &octets);
    }

    #[test]
    fn an_ocsp_response_of_any_octets_does_no_harm(changes in changes()) {
        let octets = changed(&fixture("ocsp-delegated.der"), &changes);
        prop_assume!(octets != fixture("ocsp-delegated.der"));
        let mut trust = trusting(&["root"]);
        let certificate = certificate("ocsp");
        let id = id("ocsp.example.org");
        let ask = |trust: &TrustStore| {
            let shown = [x509(certificate.der())];
            verify_peer(&id, &shown, &PeerPolicy::default(), trust, now()).unwrap().revocation
        };
        let pki::Revocation::Pending(requests) = ask(&trust) else { panic!("settled") };
        let taken = trust.revocation.deliver(&requests[0], Some(&octets), now());
        // The signature covers everything but the certificates sent along, of which more than the
        // right one may be there.
        if taken.is_err() {
            let pki::Revocation::Pending(again) = ask(&trust) else { panic!("settled") };
            prop_assert_ne!(&again[0].url, &requests[0].url);
        }
        // What a peer sends is taken as what is fetched is.
        let ocsp = Cert { encoding: CertEncoding::OCSP, data: &octets };
        let policy = PeerPolicy { ocsp: true, ..PeerPolicy::default() };
        let shown = [x509(certificate.der()), ocsp];
        let verdict = verify_peer(&id, &shown, &policy, &trusting(&["root"]), now());
        let settled = matches!(verdict.unwrap().revocation, pki::Revocation::Settled);
        prop_assert_eq!(settled, taken.is_ok());
    }
}

/// The octets outside the signature: infinitely many certificates could be made of one by parameters of
/// the outer signatureAlgorithm. None of them is taken for the certificate.
#[test]
fn class_35_outer_parameters_make_no_new_certificate() {
    let rsa = certificate("rsa");
    let der = rsa.der();
    let sha256_with_rsa =
        [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00];
    let outer = der.windows(15).rposition(|window| window == sha256_with_rsa).unwrap();
    let trust = trusting(&["rsa-root"]);
    let verdict = |der: &[u8]| {
        let id = id("rsa.example.org");
        verify_peer(&id, &[x509(der)], &PeerPolicy::default(), &trust, now()).map(|_| ())
    };
    assert_eq!(verdict(der), Ok(()));
    for parameters in [&[0x04, 0x00][..], &[0x05, 0x81, 0x00], &[0x04, 0x01, 0x07], &[]] {
        let mut identifier = vec![0x30, 0x0b + parameters.len() as u8];
        identifier.extend_from_slice(&sha256_with_rsa[2..13]);
        identifier.extend_from_slice(parameters);
        let mut variant = der.to_vec();
        variant.splice(outer..outer + 15, identifier);
        let length = (variant.len() - 4) as u16;
        variant[2..4].copy_from_slice(&length.to_be_bytes());
        let refusal = verdict(&variant);
        assert!(matches!(refusal, Err(PkiError::Malformed(_))), "{parameters:02x?}: {refusal:?}");
    }
}

/// A maze of CAs with fitting names and no root: every order of them would be a path to try. What no
/// trusted CA signed is not walked into.
#[test]
fn class_35_a_maze_of_certificates_is_not_walked() {
    let name = issue::distinguished_name("CN=Maze").unwrap();
    let root = certificate("root");
    let mut shown: Vec<Vec<u8>> = Vec::new();
    for number in 0..=MAX_INTERMEDIATES {
        let pkcs8 = generate(KeyType::Scheme(SignatureScheme::Ed25519)).unwrap();
        let key = load_private_key(&pkcs8).unwrap();
        // Every other one claims to be issued by the root.
        let issuer = if number % 2 == 0 { &name } else { &root.subject().to_vec() };
        let issuer = Issuer { key: &*key, scheme: SignatureScheme::Ed25519, name: issuer };
        let template = Template {
            subject: name.clone(),
            names: vec![id("maze.example.org")],
            ca: number > 0,
            not_after: now() + std::time::Duration::from_secs(1),
            ..Template::default()
        };
        shown.push(issue::certificate(&template, key.public_key(), &issuer).unwrap());
    }
    let shown: Vec<Cert<'_>> = shown.iter().map(|der| x509(der)).collect();
    let trust = trusting(&["root"]);
    let id = id("maze.example.org");
    let verdict = verify_peer(&id, &shown, &PeerPolicy::default(), &trust, now());
    assert!(matches!(verdict, Err(PkiError::UnknownCa { .. } | PkiError::BadSignature { .. })));
}

/// The certificate of moon under another name and with `extensions` that nobody knows. Anybody can make
/// it: the signature is as wrong as can be.
fn remade(name: &[u8], extensions: u16) -> Vec<u8> {
    let moon = certificate("moon");
    let mut signed = Der::new(moon.der()).nested(SEQUENCE).unwrap();
    let mut tbs = signed.nested(SEQUENCE).unwrap();
    let mut content = Vec::new();
    for tag in [context(0), INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        content.extend_from_slice(tbs.element(tag).unwrap());
    }
    tbs.element(SEQUENCE).unwrap();
    content.extend_from_slice(name);
    content.extend_from_slice(tbs.element(SEQUENCE).unwrap());
    let mut list = Vec::new();
    for number in 0..extensions {
        let mut extension = Vec::new();
        let oid = [0x55, 0x81 + (number >> 7) as u8, (number & 0x7f) as u8];
        der::push(&mut extension, OBJECT_IDENTIFIER, &[&oid]);
        der::push(&mut extension, OCTET_STRING, &[]);
        der::push(&mut list, SEQUENCE, &[&extension]);
    }
    let mut sequence = Vec::new();
    der::push(&mut sequence, SEQUENCE, &[&list]);
    der::push(&mut content, context(3), &[&sequence]);
    let (mut body, mut made) = (Vec::new(), Vec::new());
    der::push(&mut body, SEQUENCE, &[&content]);
    body.extend_from_slice(signed.element(SEQUENCE).unwrap());
    der::push(&mut body, 0x03, &[&[0], signed.bits().unwrap()]);
    der::push(&mut made, SEQUENCE, &[&body]);
    made
}

/// Extensions are told apart each from each: their number is limited.
#[test]
fn class_35_a_certificate_full_of_extensions_is_not_read() {
    let name = issue::distinguished_name("CN=Full").unwrap();
    assert!(Certificate::from_der(&remade(&name, 60)).is_ok());
    let full = remade(&name, 6000);
    assert!(full.len() < 65_536);
    assert_eq!(Certificate::from_der(&full), Err("more than 64 extensions"));
}

/// What is said about a stranger's certificate is a line, not a page.
#[test]
fn class_35_a_long_name_is_not_printed_whole() {
    let mut attribute = Vec::new();
    der::push(&mut attribute, OBJECT_IDENTIFIER, &[&[0x55, 4, 3]]);
    der::push(&mut attribute, 0x0c, &[&[b'x'; 50_000]]);
    let (mut inner, mut set, mut name) = (Vec::new(), Vec::new(), Vec::new());
    der::push(&mut inner, SEQUENCE, &[&attribute]);
    der::push(&mut set, 0x31, &[&inner]);
    der::push(&mut name, SEQUENCE, &[&set]);
    let made = remade(&name, 1);
    let trust = trusting(&["root"]);
    let id = id("moon.example.org");
    let refusal = verify_peer(&id, &[x509(&made)], &PeerPolicy::default(), &trust, now());
    let said = refusal.unwrap_err().to_string();
    assert!(said.len() < 2000, "{} octets", said.len());
    assert!(Certificate::from_der(&made).unwrap().subject_text().len() < 2000);
}
