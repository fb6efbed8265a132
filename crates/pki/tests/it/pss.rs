//! RSASSA-PSS (RFC 4055): lengths of salt, keys of type id-RSASSA-PSS, and refusals that name the property.

use ike_proto::config::AuthConfig;
use ike_proto::crypto::SignatureScheme;
use pki::{PeerPolicy, RevocationPolicy};

use crate::common::{certificate, fixture, trusting, verdict};

/// The verdict on a peer whose certificate `name` is issued by `ca`.
fn outcome(name: &str, ca: &str, policy: &PeerPolicy) -> Result<Vec<u8>, String> {
    let (shown, ca) = (format!("pss/{name}"), format!("pss/{ca}"));
    let identity = format!("{name}.example.org");
    let verdict = verdict(&identity, &[&shown], policy, &trusting(&[&ca]));
    verdict.map(|peer| peer.spki).map_err(|why| why.to_string())
}

/// Fault: in `Pss::new`, leave `with_pss_salt_length` out.
#[test]
fn a_salt_of_any_length_is_accepted() {
    for name in ["longest", "none", "short"] {
        let verdict = outcome(name, "plain-ca", &PeerPolicy::default());
        assert_eq!(verdict.as_deref(), Ok(certificate(&format!("pss/{name}")).spki()), "{name}");
    }
}

/// Fault: in `Certificate::signature_scheme`, leave `scheme_of_hash` out.
#[test]
fn auth_names_the_hash_and_not_the_length_of_the_salt() {
    let mut policy = PeerPolicy::default();
    policy.chain.schemes = vec![SignatureScheme::RsaPssSha256];
    outcome("longest", "plain-ca", &policy).unwrap();
    outcome("none", "plain-ca", &policy).unwrap_err();
}

/// Fault: in `Pss::is_for`, leave `is_bare` out; then `any-ca` issues nothing.
#[test]
fn keys_of_type_id_rsassa_pss_are_accepted() {
    assert!(certificate("pss/any-ca").is_self_signed());
    assert!(certificate("pss/bound-ca").is_self_signed());
    outcome("under-any", "any-ca", &PeerPolicy::default()).unwrap();
    outcome("under-bound", "bound-ca", &PeerPolicy::default()).unwrap();
    let peer = outcome("any-key", "plain-ca", &PeerPolicy::default()).unwrap();
    assert!(SignatureScheme::of_built_in_key(&peer).contains(&SignatureScheme::RsaPssSha384));
}

/// Fault: in `Pss::is_for`, compare the length of the salt with `>`, or leave out the comparison of the hash.
#[test]
fn the_parameters_of_the_key_bind_those_of_the_signature() {
    for (name, property) in [("bound-salt", "salt length"), ("bound-hash", "hash")] {
        let why = format!(
            "certificate \"O=pq-ike, CN={name}\": RSASSA-PSS signature: {property} not allowed by the parameters of the CA's key"
        );
        assert_eq!(outcome(name, "bound-ca", &PeerPolicy::default()), Err(why));
    }
}

/// No scheme of `auth` has the parameters of this CA's key, and `pubkey` takes it, whatever else is named beside it.
///
/// Fault: in `check_strength`, return for the default alone.
#[test]
fn a_key_with_parameters_of_no_scheme_is_taken_where_nothing_is_asked() {
    let chain = |auth: &str| match AuthConfig::parse(auth) {
        Ok(AuthConfig::Pubkey(pubkey)) => {
            PeerPolicy { chain: pubkey.chain, ..PeerPolicy::default() }
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(SignatureScheme::of_built_in_key(certificate("pss/bound-ca").spki()), []);
    for auth in ["pubkey", "pubkey-falcon512"] {
        outcome("under-bound", "bound-ca", &chain(auth)).unwrap();
    }
    for auth in ["rsa", "pubkey-sha256", "rsa-2048-ecdsa"] {
        outcome("under-bound", "bound-ca", &chain(auth)).unwrap_err();
    }
}

/// Fault: in `Pss::new`, leave the comparison of the two hashes out; or, in `Signed::check`, `unaccepted_modulus`.
#[test]
fn a_refusal_names_the_property() {
    let pss = |property| {
        format!(
            "RSASSA-PSS signature: {property} not accepted; use SHA-2, and MGF1 with the same hash"
        )
    };
    let modulus = "RSA key of the CA not accepted: 1024 bits; 2048 to 8192 are accepted";
    for (name, ca, why) in [
        ("sha1-mask", "plain-ca", pss("mask generation function")),
        ("sha1", "plain-ca", pss("hash")),
        ("under-small", "small-ca", modulus.to_owned()),
    ] {
        let why = format!("certificate \"O=pq-ike, CN={name}\": {why}");
        assert_eq!(outcome(name, ca, &PeerPolicy::default()), Err(why));
    }
}

/// Fault: in `Pss::new`, take the length of the hash for the salt.
#[test]
fn a_list_may_have_any_length_of_salt() {
    let policy = PeerPolicy { revocation: RevocationPolicy::Strict, ..PeerPolicy::default() };
    outcome("longest", "plain-ca", &policy).unwrap_err();
    let mut trust = trusting(&["pss/plain-ca"]);
    trust.revocation.add_crl(&fixture("pss/longest.crl")).unwrap();
    verdict("longest.example.org", &["pss/longest"], &policy, &trust).unwrap();
}

/// Fault: in `files::key_error`, leave `PssKey` out.
#[test]
fn a_private_key_of_its_own_type_is_refused_by_name() {
    let mut key = pq_kem::sign::generate(pq_kem::sign::KeyType::Rsa2048).unwrap().to_vec();
    let oid = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    let at = key.windows(9).position(|nine| nine == oid).unwrap();
    key[at + 8] = 10;
    let why = pki::files::load_private_key(&key, None).unwrap_err().to_string();
    assert!(why.starts_with("private key of type id-RSASSA-PSS"), "{why}");
}
