//! Keys, certificates and PKCS#12 from files.

use std::sync::Arc;

use ike_proto::crypto::{SchemeRegister, SigningKey};
use pki::{LoadError, files};
use pq_kem::sign::VERIFIERS;

use crate::common::{certificate, fixture};

/// Signs and verifies with every scheme of the key.
fn works(key: &dyn SigningKey) {
    assert!(!key.schemes().is_empty());
    for scheme in key.schemes() {
        let signature = key.sign(scheme, b"message").unwrap();
        let verifier = VERIFIERS.iter().find(|verifier| verifier.schemes().contains(scheme));
        let Some(verifier) = verifier else { continue };
        verifier.verify(scheme, key.public_key(), b"message", &signature).unwrap();
    }
}

fn key(name: &str, passphrase: Option<&[u8]>) -> Result<Arc<dyn SigningKey>, LoadError> {
    files::load_private_key(&fixture(name), passphrase)
}

#[test]
fn private_keys_of_every_form() {
    for (file, name) in [
        ("moon.key", "moon"),
        ("moon-sec1.key", "moon"),
        ("p384.key", "p384"),
        ("p521.key", "p521"),
        ("rsa.key", "rsa"),
        ("rsa-pkcs1.key", "rsa"),
        ("ed25519.key", "ed25519"),
        ("mldsa44.key", "mldsa44"),
        ("mldsa65.key", "mldsa65"),
        ("mldsa65-seed-only.key", "mldsa65"),
        ("mldsa65-priv-only.key", "mldsa65"),
        ("mldsa65-seed-priv.key", "mldsa65"),
        ("mldsa87.key", "mldsa87"),
        ("slhdsa.key", "slhdsa"),
    ] {
        let key = key(file, None).unwrap_or_else(|why| panic!("{file}: {why}"));
        assert_eq!(key.public_key(), certificate(name).spki(), "{file}");
        if name != "slhdsa" {
            works(&*key);
        }
        // The same as DER.
        let der = pem::parse(fixture(file)).unwrap().into_contents();
        let again = files::load_private_key(&der, None).unwrap();
        assert_eq!(again.public_key(), key.public_key(), "{file}");
    }
}

#[test]
fn encrypted_private_keys() {
    for (file, name) in [
        ("moon-pbes2.key", "moon"),
        ("moon-pbes2-sha1.key", "moon"),
        ("moon-scrypt.key", "moon"),
        ("mldsa65-pbes2.key", "mldsa65"),
    ] {
        let opened = key(file, Some(b"tunnel")).unwrap_or_else(|why| panic!("{file}: {why}"));
        assert_eq!(opened.public_key(), certificate(name).spki(), "{file}");
        let der = pem::parse(fixture(file)).unwrap().into_contents();
        assert!(files::load_private_key(&der, Some(b"tunnel")).is_ok(), "{file}");
        for (passphrase, why) in [
            (None, LoadError::PassphraseNeeded),
            (Some(&b"funnel"[..]), LoadError::Passphrase),
            (Some(b""), LoadError::Passphrase),
        ] {
            assert_eq!(key(file, passphrase).err(), Some(why), "{file}");
        }
    }
    let old = key("moon-sec1-encrypted.key", Some(b"tunnel"));
    assert!(matches!(old.err(), Some(LoadError::Unsupported(_))));
}

/// The three private-key forms of RFC 9881 §6, and its examples of keys that contradict themselves.
#[test]
fn ml_dsa_keys_of_rfc_9881() {
    let spki = files::load_public_key(&fixture("rfc9881/ML-DSA-44.crt")).unwrap();
    for form in ["seed", "expanded", "both"] {
        let key = key(&format!("rfc9881/ML-DSA-44-{form}.priv"), None).unwrap();
        assert_eq!(key.public_key(), spki, "{form}");
        works(&*key);
    }
    for bad in 1..=3 {
        let refusal = key(&format!("rfc9881/bad-ML-DSA-44-{bad}.priv"), None);
        let Some(LoadError::Malformed(why)) = refusal.err() else { panic!("{bad}") };
        assert!(why.starts_with("ML-DSA private key: its parts differ"), "{bad}: {why}");
    }
}

#[test]
fn what_is_no_private_key() {
    for (octets, why) in [
        (&b""[..], LoadError::Nothing("private key")),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA", LoadError::Nothing("private key")),
        (&[0x30, 3, 2, 1, 0], LoadError::Malformed("private key")),
        (&fixture("moon.pem"), LoadError::Nothing("private key")),
    ] {
        let refusal = files::load_private_key(octets, None);
        let refusal = refusal.expect_err("should have been refused");
        let close = [why, LoadError::Malformed("private key")];
        assert!(close.contains(&refusal), "{refusal:?}");
    }
}

#[test]
fn certificates_one_or_many() {
    let chain = [fixture("chained.pem"), b"a comment\n".to_vec(), fixture("inter.pem")].concat();
    let chain = files::load_certificates(&chain).unwrap();
    assert_eq!(chain, [certificate("chained"), certificate("inter")]);
    assert_eq!(files::load_certificates(&fixture("moon.der")).unwrap(), [certificate("moon")]);
    for (octets, why) in [
        (&b""[..], LoadError::Nothing("certificate")),
        (&fixture("moon.key"), LoadError::Nothing("certificate")),
        (&[0x30, 0], LoadError::Certificate("tbsCertificate")),
        (
            b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            LoadError::Certificate("tbsCertificate"),
        ),
    ] {
        assert_eq!(files::load_certificates(octets), Err(why));
    }
}

#[test]
fn public_keys_as_such_or_in_a_certificate() {
    let spki = certificate("moon").spki().to_vec();
    for file in ["moon-public.pem", "moon.pem", "moon.der"] {
        assert_eq!(files::load_public_key(&fixture(file)).unwrap(), spki, "{file}");
    }
    assert_eq!(files::load_public_key(&spki).unwrap(), spki);
    assert!(files::load_public_key(&fixture("moon.key")).is_err());
}

#[test]
fn pkcs12_files() {
    let opened =
        files::load_pkcs12(&SchemeRegister::built_in(), &fixture("chained.p12"), b"tunnel")
            .unwrap();
    assert_eq!(opened.keys.len(), 1);
    assert_eq!(opened.keys[0].public_key(), certificate("chained").spki());
    assert_eq!(opened.certificates, [certificate("chained"), certificate("inter")]);

    let ml_dsa =
        files::load_pkcs12(&SchemeRegister::built_in(), &fixture("mldsa65.p12"), b"tunnel")
            .unwrap();
    assert_eq!(ml_dsa.keys[0].public_key(), certificate("mldsa65").spki());

    for (file, passphrase, why) in [
        ("chained.p12", &b"funnel"[..], LoadError::Passphrase),
        ("chained.p12", b"", LoadError::NullPassphrase),
        ("chained.p12", b"\xff", LoadError::Passphrase),
        ("nomac.p12", b"tunnel", LoadError::Unsupported("PKCS#12 without a MAC")),
        ("moon.pem", b"tunnel", LoadError::Malformed("PKCS#12 file")),
    ] {
        assert_eq!(
            files::load_pkcs12(&SchemeRegister::built_in(), &fixture(file), passphrase).err(),
            Some(why),
            "{file}"
        );
    }
    let mut damaged = fixture("chained.p12");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    assert_eq!(
        files::load_pkcs12(&SchemeRegister::built_in(), &damaged, b"tunnel").err(),
        Some(LoadError::Passphrase)
    );
}

#[test]
fn nothing_secret_is_printed() {
    let key = key("moon.key", None).unwrap();
    let printed = format!("{key:?}");
    let der = pem::parse(fixture("moon.key")).unwrap().into_contents();
    let hex: String = der.iter().map(|octet| format!("{octet:02x}")).collect();
    assert!(hex.len() > 100 && !printed.contains(&hex[70..100]), "{printed}");
}

/// What Botan writes, and what RFC 9881 §6 does not have.
///
/// Fault: in `load_pkcs8`, read ML-DSA keys by the library alone.
#[test]
fn a_bare_seed_of_ml_dsa_is_a_key_and_other_bare_octets_are_not() {
    use ike_proto::crypto::SignatureScheme;
    use ike_proto::wire::der::{self, Der, INTEGER, OCTET_STRING, SEQUENCE};
    use pq_kem::sign::{KeyType, generate, load_private_key};

    for scheme in [SignatureScheme::MlDsa44, SignatureScheme::MlDsa65, SignatureScheme::MlDsa87] {
        let pkcs8 = generate(KeyType::Scheme(scheme.clone())).unwrap();
        let mut fields = Der::new(&pkcs8).nested(SEQUENCE).unwrap();
        fields.content(INTEGER).unwrap();
        fields.element(SEQUENCE).unwrap();
        let private = fields.content(OCTET_STRING).unwrap();
        let seed = &private[private.len() - 32..];
        let bare = |key: &[u8]| {
            let (mut fields, mut out) = (vec![INTEGER, 1, 0], Vec::new());
            fields.extend_from_slice(scheme.key_algorithm_identifier());
            der::push(&mut fields, OCTET_STRING, &[key]);
            der::push(&mut out, SEQUENCE, &[&fields]);
            out
        };
        let key = files::load_private_key(&bare(seed), None).unwrap();
        assert_eq!(key.public_key(), load_private_key(&pkcs8).unwrap().public_key());
        for other in [&seed[1..], &[seed, &[0]].concat()] {
            let why = files::load_private_key(&bare(other), None).unwrap_err().to_string();
            assert!(why.contains("RFC 9881 §6") && why.contains("32 octets"), "{why}");
        }
    }
}
