//! What a connection asks of the CAs above a certificate: `ca_id` and `cert_policy`.

use ike_proto::config::{IdMatch, IdRegex};
use ike_proto::wire::payload::IdData;
use pki::{Certificate, CertificatePolicy, PeerPolicy, PkiError, RawKey, sha1};

use crate::common::{certificate, fixture, id, refused, shared, trusting, verdict};

/// The octets of NAME.pem, whatever they are.
fn pem_octets(name: &str) -> Vec<u8> {
    pem::parse(fixture(&format!("{name}.pem"))).unwrap().into_contents()
}

fn wants(policies: &[&str]) -> PeerPolicy {
    let parse = |text: &&str| CertificatePolicy::parse(text).unwrap();
    PeerPolicy { cert_policies: policies.iter().map(parse).collect(), ..PeerPolicy::default() }
}

/// True if the first of `shown` has all `policies` below `root`.
fn has(root: &str, shown: &[&str], policies: &[&str]) -> bool {
    let identity = format!("{}.example.org", shown[0]);
    let trust = trusting(&[root]);
    verdict(&identity, shown, &wants(&[]), &trust).unwrap();
    match verdict(&identity, shown, &wants(policies), &trust) {
        Ok(_) => true,
        Err(PkiError::CertificatePolicy { .. }) => false,
        Err(why) => panic!("{shown:?} {policies:?}: {why}"),
    }
}

#[test]
fn a_policy_is_in_the_certificate_and_allowed_by_its_cas() {
    for (shown, policies, fits) in [
        (["policy-leaf", "policy-inter"], &["1.2.3.1"][..], true),
        (["policy-leaf", "policy-inter"], &["1.2.3.1", "1.2.3.3"], true),
        // The CA has it, the certificate has not; the other way round; one of two.
        (["policy-leaf", "policy-inter"], &["1.2.3.2"], false),
        (["policy-leaf", "policy-inter"], &["1.2.3.9"], false),
        (["policy-leaf", "policy-inter"], &["1.2.3.1", "1.2.3.2"], false),
        (["policy-none", "policy-inter"], &["1.2.3.1"], false),
        // Any policy of an end entity is each that its CAs allow.
        (["policy-every", "policy-inter"], &["1.2.3.1"], true),
        (["policy-every", "policy-inter"], &["1.2.3.9"], false),
        (["policy-bare", "policy-bare-inter"], &["1.2.3.1"], false),
        (["policy-any", "policy-any-inter"], &["1.2.3.1"], true),
        (["policy-any", "policy-any-inter"], &["1.2.3.2"], false),
        // 1.2.3.1 above is 1.2.3.7 below; 1.2.3.6 comes from one that the CA does not have. The connection speaks in
        // the terms of the trusted CA, which does not know 1.2.3.7.
        (["policy-map", "policy-map-inter"], &["1.2.3.1"], true),
        (["policy-map", "policy-map-inter"], &["1.2.3.7"], false),
        (["policy-map", "policy-map-inter"], &["1.2.3.6"], false),
    ] {
        assert_eq!(has("policy-root", &shown, policies), fits, "{shown:?} {policies:?}");
    }
    // A root that has policies counts.
    assert!(has("policy-own-root", &["policy-own"], &["1.2.3.1"]));
    assert!(!has("policy-own-root", &["policy-own"], &["1.2.3.2"]));
    // So does a CA that is trusted and is no root.
    assert!(has("policy-inter", &["policy-leaf"], &["1.2.3.1"]));
    assert!(!has("policy-bare-inter", &["policy-bare"], &["1.2.3.1"]));
}

#[test]
fn what_a_ca_forbids_those_below_it_does_not_count() {
    for (count, fits) in [("0", false), ("1", true)] {
        for (kind, policy) in [("any", "1.2.3.1"), ("map", "1.2.3.1")] {
            let above = format!("policy-strict{count}");
            let issuer = format!("{above}-{kind}");
            let leaf = format!("{issuer}-leaf");
            assert_eq!(has("policy-root", &[&leaf, &issuer, &above], &[policy]), fits, "{leaf}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    // What can be read may be critical.
    assert!(has("policy-root", &["policy-critical", "policy-inter"], &["1.2.3.1"]));
    let malformed = pem_octets("policy-malformed");
    assert_eq!(Certificate::from_der(&malformed), Err("certificatePolicies"));
    let without =
        verdict("moon.example.org", &["moon"], &wants(&["1.2.3.1"]), &trusting(&["root"]));
    assert_eq!(
        refused(without),
        "certificate \"C=CH, O=pq-ike, CN=moon\" does not have the policy 1.2.3.1, or not by its CAs"
    );
    for wrong in ["", "1", "1.2.x", "1.2.3.", "3.1.1", "id-policy"] {
        assert_eq!(CertificatePolicy::parse(wrong), None, "{wrong}");
    }
    assert_eq!(CertificatePolicy::parse("2.5.29.32.0").unwrap().to_string(), "2.5.29.32.0");
}

#[test]
fn a_ca_is_asked_for_by_its_identity() {
    let trust = trusting(&["root", "rsa-root", "policy-root"]);
    let exact = |text: &str| IdMatch::Exact(id(text));
    let regex = |text: &str| IdMatch::Regex(IdRegex::parse(text).unwrap());
    let inter = certificate("inter");
    let keyid = |octets: &[u8]| IdMatch::Exact(IdData::keyid(octets));
    let chained = &["chained", "inter"][..];
    let named = &["policy-leaf", "policy-inter"][..];
    for (shown, ca_id, fits) in [
        (chained, exact("C=CH, O=pq-ike, CN=Intermediate"), true),
        (chained, exact("C=ch, O=PQ-IKE, CN=root"), true),
        (chained, exact("C=CH, O=pq-ike, CN=RSA Root"), false),
        // It is no CA.
        (chained, exact("C=CH, O=pq-ike, CN=chained.example.org"), false),
        (chained, exact("chained.example.org"), false),
        (chained, IdMatch::DnPattern(id("C=CH, O=pq-ike, CN=*")), true),
        (chained, IdMatch::DnPattern(id("C=DE, O=pq-ike, CN=*")), false),
        (chained, regex("asn1dn:^.*CN=Inter.+$"), true),
        (chained, regex("asn1dn:^.*CN=chained.+$"), false),
        (chained, IdMatch::Any, true),
        (chained, keyid(inter.key_identifier().unwrap()), true),
        (chained, keyid(&sha1(inter.der())), true),
        (chained, keyid(&sha1(inter.spki())), true),
        (chained, keyid(inter.serial()), true),
        (chained, keyid(&sha1(certificate("chained").der())), false),
        (chained, keyid(&[]), false),
        (&["moon"], exact("C=CH, O=pq-ike, CN=Intermediate"), false),
        (&["moon"], exact("C=CH, O=pq-ike, CN=Root"), true),
        (named, exact("ca.example.org"), true),
        (named, exact("CA.example.org"), true),
        (named, IdMatch::Suffix(IdData::fqdn("*.example.org")), true),
        (named, exact("ca.example.net"), false),
    ] {
        let policy = PeerPolicy { ca_id: Some(ca_id), ..PeerPolicy::default() };
        let identity = format!("{}.example.org", shown[0]);
        match verdict(&identity, shown, &policy, &trust) {
            Ok(_) => assert!(fits, "{shown:?} {:?}", policy.ca_id),
            Err(PkiError::CaIdentity { .. }) => assert!(!fits, "{shown:?} {:?}", policy.ca_id),
            Err(why) => panic!("{shown:?} {:?}: {why}", policy.ca_id),
        }
    }
}

/// Either will do, as in charon; neither does not.
#[test]
fn a_ca_by_identity_or_by_file() {
    let trust = trusting(&["root"]);
    let policy = |ca: &str, file: &str| PeerPolicy {
        ca_id: Some(IdMatch::Exact(id(ca))),
        cacerts: vec![shared(file)],
        ..PeerPolicy::default()
    };
    let root = "C=CH, O=pq-ike, CN=Root";
    for (ca, file, fits) in
        [(root, "rsa-root", true), ("CN=nobody", "root", true), ("CN=nobody", "rsa-root", false)]
    {
        let found = verdict("moon.example.org", &["moon"], &policy(ca, file), &trust);
        assert_eq!(found.is_ok(), fits, "{ca} {file}");
    }
}

#[test]
fn what_has_no_ca_satisfies_neither() {
    let trust = trusting(&[]);
    let pinned = PeerPolicy { certs: vec![shared("moon")], ..PeerPolicy::default() };
    let key = RawKey { id: id("moon.example.org"), spki: certificate("moon").spki().to_vec() };
    let raw = PeerPolicy { pubkeys: vec![key], ..PeerPolicy::default() };
    for (policy, kind) in [(pinned, "pinned"), (raw, "raw")] {
        verdict("moon.example.org", &["moon"], &policy, &trust).unwrap();
        let ca_id = Some(IdMatch::Any);
        let cert_policies = wants(&["1.2.3.1"]).cert_policies;
        for policy in
            [PeerPolicy { ca_id, ..policy.clone() }, PeerPolicy { cert_policies, ..policy }]
        {
            let found = verdict("moon.example.org", &["moon"], &policy, &trust).unwrap_err();
            let fits = match kind {
                "raw" => found == PkiError::RawKeyWithoutCa,
                _ => matches!(found, PkiError::UnknownCa { .. }),
            };
            assert!(fits, "{kind}: {found}");
        }
    }
    // One that is pinned and has a CA is looked at.
    let both = PeerPolicy { certs: vec![shared("policy-leaf")], ..wants(&["1.2.3.1"]) };
    let shown = ["policy-leaf", "policy-inter"];
    verdict("policy-leaf.example.org", &shown, &both, &trusting(&["policy-root"])).unwrap();
}
