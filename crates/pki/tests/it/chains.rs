//! What joins the certificates of a path, what an anchor is asked, and certificates of CAs as those of peers.

use std::time::{Duration, UNIX_EPOCH};

use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::der::{self, OBJECT_IDENTIFIER, SEQUENCE};
use pki::issue::{self, Issuer, OtherExtension, Template};
use pki::{
    Certificate, LoadError, PeerPolicy, PkiError, RevocationPolicy, TrustStore, verify_peer,
};

use crate::anchors::{Ca, ca_template, folders, leaf_template, new_key};
use crate::common::{certificate, id, now, refused, x509};

const LEAF: &str = "leaf.example.org";

/// The verdict on the first of `shown` as `leaf.example.org`.
fn verdict(
    shown: &[&Certificate],
    policy: &PeerPolicy,
    trust: &TrustStore,
) -> Result<pki::TrustedPeer, PkiError> {
    let shown: Vec<_> = shown.iter().map(|one| x509(one.der())).collect();
    verify_peer(&id(LEAF), &shown, policy, trust, now())
}

/// The Name `O=…, CN=…` with this type of string.
fn name(tag: u8, organization: &[u8], common: &[u8]) -> Vec<u8> {
    let set = |oid: &[u8], value: &[u8]| {
        let (mut fields, mut pair, mut set) = (Vec::new(), Vec::new(), Vec::new());
        der::push(&mut fields, OBJECT_IDENTIFIER, &[oid]);
        der::push(&mut fields, tag, &[value]);
        der::push(&mut pair, SEQUENCE, &[&fields]);
        der::push(&mut set, 0x31, &[&pair]);
        set
    };
    let mut name = Vec::new();
    let parts = [set(&[0x55, 4, 10], organization), set(&[0x55, 4, 3], common)];
    der::push(&mut name, SEQUENCE, &[&parts[0], &parts[1]]);
    name
}

/// The certificate of `template`, by the key of `ca` under another spelling of its name.
fn certified_as(ca: &Ca, name: &[u8], template: &Template, spki: &[u8]) -> Certificate {
    let issuer = Issuer { key: &*ca.key, scheme: SignatureScheme::Ed25519, name };
    Certificate::from_der(&issue::certificate(template, spki, &issuer).unwrap()).unwrap()
}

/// PKITS 4.3.3 to 4.3.5 and 4.3.11: case, spaces and types of strings differ.
///
/// Fault: in `Certificate::names_as_issuer`, compare the octets of the names.
#[test]
fn names_chain_without_regard_to_case_spaces_and_string_type() {
    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    let root = Ca::root(ca_template("Root"));
    let trust = folders(&[&root], &[]);
    for (tag, organization, common, good) in [
        (PRINTABLE, &b"Acme"[..], &b"Root"[..], true),
        (UTF8, b"Acme", b"Root", true),
        (PRINTABLE, b"ACME", b"root", true),
        (UTF8, b" Acme ", b"Root  ", true),
        (UTF8, b"Acme", b"Root A", false),
        (UTF8, b"Acme", b"Root2", false),
    ] {
        let issuer = name(tag, organization, common);
        let leaf = certified_as(&root, &issuer, &leaf_template(), new_key().public_key());
        // The same with a CA in between.
        let sub_key = new_key();
        let sub = certified_as(&root, &issuer, &ca_template("Sub"), sub_key.public_key());
        let sub = Ca { certificate: sub, key: sub_key };
        let below = certified_as(
            &sub,
            &name(tag, b"aCME", b"SUB"),
            &leaf_template(),
            new_key().public_key(),
        );
        for shown in [&[&leaf][..], &[&below, &sub.certificate]] {
            match verdict(shown, &PeerPolicy::default(), &trust) {
                Ok(peer) => assert!(good && peer.path.len() == shown.len() + 1, "{issuer:02x?}"),
                Err(PkiError::UnknownCa { .. }) => assert!(!good, "{issuer:02x?}"),
                Err(why) => panic!("{issuer:02x?}: {why}"),
            }
        }
    }
    // A name that differs in case alone is self-issued, and its CA is not counted (§6.1).
    let tight = Ca::root(Template { path_len: Some(0), ..ca_template("Tight") });
    let key = new_key();
    let renamed = Template {
        subject: name(UTF8, b"ACME", b"TIGHT"),
        serial: vec![9],
        ..ca_template("Tight")
    };
    let renamed = Ca { certificate: tight.certify(&renamed, &*key), key };
    let shown = [&renamed.leaf(), &renamed.certificate];
    assert_eq!(
        verdict(&shown, &PeerPolicy::default(), &folders(&[&tight], &[])).unwrap().path.len(),
        3
    );
}

/// The list has the name of the CA as the CA's own certificate has it, and the leaf has it otherwise.
///
/// Fault: in `Crl::is_for` or `Serials::find`, compare the octets of the names.
#[test]
fn a_list_revokes_what_its_ca_issued_under_another_spelling_of_its_name() {
    let root = Ca::root(ca_template("Root"));
    let issuer = name(0x0c, b"ACME", b"root");
    let leaf = certified_as(&root, &issuer, &leaf_template(), new_key().public_key());
    let other = root.certify(&ca_template("Other"), &*new_key());
    for (revoked, good) in [(&other, true), (&leaf, false)] {
        let trust = folders(&[&root], &[root.list(&[revoked])]);
        for revocation in [RevocationPolicy::Strict, RevocationPolicy::Relaxed] {
            let policy = PeerPolicy { revocation, ..PeerPolicy::default() };
            match verdict(&[&leaf], &policy, &trust) {
                Ok(_) => assert!(good),
                Err(PkiError::Revoked { .. }) => assert!(!good),
                Err(why) => panic!("{why}"),
            }
        }
    }
}

/// basicConstraints with cA TRUE, in a certificate whose key may make signatures.
fn signing_ca() -> Template {
    let value = vec![SEQUENCE, 3, 1, 1, 0xff];
    let basic = OtherExtension { oid: "2.5.29.19".to_owned(), critical: true, value };
    Template { others: vec![basic], ..leaf_template() }
}

/// PKITS 4.6.8 and 4.6.14.
///
/// Fault: in `check_end_entity`, refuse a CA.
#[test]
fn the_certificate_of_a_ca_may_be_that_of_a_peer() {
    let root = Ca::root(ca_template("Root"));
    let ca = root.certify(&signing_ca(), &*new_key());
    assert!(ca.is_ca());
    let trust = folders(&[&root], &[]);
    let peer = verdict(&[&ca], &PeerPolicy::default(), &trust).unwrap();
    assert_eq!(peer.path.len(), 2);
    // It is not counted as a CA below the root.
    let tight = Ca::root(Template { path_len: Some(0), ..ca_template("Tight") });
    let ca = tight.certify(&signing_ca(), &*new_key());
    verdict(&[&ca], &PeerPolicy::default(), &folders(&[&tight], &[])).unwrap();
}

/// What `openssl req -x509` makes is a CA that has issued itself.
///
/// Fault: in `dead_end`, leave out the anchor; in `certificate` of verify.rs, do not accept it if it is pinned.
#[test]
fn a_trusted_ca_does_not_vouch_for_itself_but_may_be_pinned() {
    // With keyCertSign beside digitalSignature. An anchor's own signature is not examined.
    let mut der = Ca::root(signing_ca()).certificate.der().to_vec();
    let at = der.windows(4).position(|octets| octets == [3, 2, 7, 0x80]).unwrap();
    der[at + 2..at + 4].copy_from_slice(&[2, 0x84]);
    let gateway = Certificate::from_der(&der).unwrap();
    assert_eq!(gateway.key_usages(), ["digitalSignature", "keyCertSign"]);
    let mut trust = TrustStore::new();
    trust.add_ca(gateway.clone()).unwrap();
    let refusal = verdict(&[&gateway], &PeerPolicy::default(), &trust);
    assert_eq!(
        refused(refusal),
        "certificate \"O=Acme, OU=Lab, CN=leaf\" is a trusted CA, which cannot vouch for itself; to accept it as the \
         peer's, name it in `certs` of `remote`"
    );
    let certs = vec![gateway.clone().into()];
    let pinned = PeerPolicy { certs, ..PeerPolicy::default() };
    for trust in [trust, TrustStore::new()] {
        assert_eq!(verdict(&[&gateway], &pinned, &trust).unwrap().path.len(), 1);
    }
}

/// Fault: in `PathQuery::check` or `TrustStore::add_ca`, do not ask the anchor.
#[test]
fn an_anchor_has_no_critical_extension_that_is_not_understood() {
    let unknown = |critical| OtherExtension {
        oid: "1.3.6.1.4.1.55738.1".to_owned(),
        critical,
        value: vec![5, 0],
    };
    for critical in [false, true] {
        let root = Ca::root(Template { others: vec![unknown(critical)], ..ca_template("Root") });
        let added = TrustStore::new().add(root.certificate.clone());
        assert_eq!(added, if critical { Err(LoadError::CriticalExtension) } else { Ok(()) });
        let cacerts = vec![root.certificate.clone().into()];
        let policy = PeerPolicy { cacerts, ..PeerPolicy::default() };
        match verdict(&[&root.leaf()], &policy, &TrustStore::new()) {
            Ok(_) => assert!(!critical),
            Err(PkiError::CriticalExtension { subject }) => {
                assert!(critical && subject == "O=Acme, CN=Root", "{subject}");
            }
            Err(why) => panic!("{why}"),
        }
    }
    // Its extendedKeyUsage is not asked (certificates.md).
    let mail = vec!["1.3.6.1.5.5.7.3.4".to_owned()];
    let root = Ca::root(Template { extended_key_usage: mail.clone(), ..ca_template("Root") });
    let trust = folders(&[&root], &[]);
    verdict(&[&root.leaf()], &PeerPolicy::default(), &trust).unwrap();
    let sub = root.sub(Template { extended_key_usage: mail, ..ca_template("Sub") });
    let refusal = verdict(&[&sub.leaf(), &sub.certificate], &PeerPolicy::default(), &trust);
    assert!(matches!(refusal, Err(PkiError::ExtendedKeyUsage { .. })), "{refusal:?}");
}

/// PKITS 4.2.3. The signature does not fit any more, and is not examined here.
///
/// Fault: in `Certificate::from_der`, read the validity by x509-cert.
#[test]
fn a_certificate_may_be_valid_from_a_day_before_1970() {
    let mut der = certificate("moon").der().to_vec();
    let at = der.windows(2).position(|octets| octets == [0x17, 13]).unwrap() + 2;
    der[at..at + 12].copy_from_slice(b"500101000000");
    let old = Certificate::from_der(&der).unwrap();
    let before = UNIX_EPOCH.duration_since(old.not_before()).unwrap();
    assert_eq!(before, Duration::from_secs(631_152_000));
    assert_eq!(old.not_after(), certificate("moon").not_after());
}

/// Fault: in `Search::extend`, do not note that a path goes on above its limit.
#[test]
fn a_path_that_is_too_long_is_refused_with_the_limit() {
    let root = Ca::root(ca_template("Root"));
    let mut trust = folders(&[&root], &[]);
    let mut above = root;
    for layer in 0..8 {
        let ca = above.sub(ca_template(&format!("Layer {layer}")));
        trust.add(ca.certificate.clone()).unwrap();
        above = ca;
        let verdict = verdict(&[&above.leaf()], &PeerPolicy::default(), &trust);
        match layer {
            7 => assert_eq!(
                refused(verdict),
                "the certificate path needs more than 7 CAs below the trusted one"
            ),
            _ => assert_eq!(verdict.unwrap().path.len(), layer + 3),
        }
    }
}
