//! Certificate policies that CAs require, map and inhibit (RFC 5280 §6.1), on every path.

use ike_proto::wire::der::{self, INTEGER, OBJECT_IDENTIFIER, SEQUENCE};
use pki::issue::{OtherExtension, Template};
use pki::{Certificate, CertificatePolicy, PeerPolicy, PkiError, verify_peer};

use crate::anchors::{Ca, ca_template, folders, leaf_template, new_key};
use crate::common::{id, now, x509};

const ANY: &str = "2.5.29.32.0";
const GOLD: &str = "1.2.3.1";
const SILVER: &str = "1.2.3.2";

fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    der::push(&mut out, tag, parts);
    out
}

/// An OBJECT IDENTIFIER of small numbers.
fn oid(text: &str) -> Vec<u8> {
    let arcs: Vec<u8> = text.split('.').map(|arc| arc.parse().unwrap()).collect();
    wrap(OBJECT_IDENTIFIER, &[&[arcs[0] * 40 + arcs[1]], &arcs[2..]])
}

fn critical(oid: &str, value: Vec<u8>) -> OtherExtension {
    OtherExtension { oid: oid.to_owned(), critical: true, value }
}

/// certificatePolicies with octets after each policy.
fn policies_and(policies: &[&str], after: &[u8]) -> OtherExtension {
    let all: Vec<u8> =
        policies.iter().flat_map(|one| wrap(SEQUENCE, &[&oid(one), after])).collect();
    critical("2.5.29.32", wrap(SEQUENCE, &[&all]))
}

fn policies(policies: &[&str]) -> OtherExtension {
    policies_and(policies, &[])
}

fn mappings(pairs: &[(&str, &str)]) -> OtherExtension {
    let pair = |(a, b): &(&str, &str)| wrap(SEQUENCE, &[&oid(a), &oid(b)]);
    let all: Vec<u8> = pairs.iter().flat_map(pair).collect();
    critical("2.5.29.33", wrap(SEQUENCE, &[&all]))
}

/// requireExplicitPolicy after `count` certificates.
fn explicit_after(count: u8) -> OtherExtension {
    critical("2.5.29.36", wrap(SEQUENCE, &[&[0x80, 1, count]]))
}

fn no_mapping_after(count: u8) -> OtherExtension {
    critical("2.5.29.36", wrap(SEQUENCE, &[&[0x81, 1, count]]))
}

fn no_any_after(count: u8) -> OtherExtension {
    critical("2.5.29.54", wrap(INTEGER, &[&[count]]))
}

type Extensions = Vec<OtherExtension>;

/// The verdict on the leaf of a chain of CAs with these extensions: the root first, the leaf last. A CA named `Same` is
/// issued by another key of its own name.
fn outcome(chain: &[(&str, Extensions)], wanted: &[&str]) -> Result<(), PkiError> {
    let [(root, of_root), middle @ .., (_, of_leaf)] = chain else { panic!("too short") };
    let with = |name: &str, others: &Extensions, serial: usize| Template {
        others: others.clone(),
        serial: vec![1, serial as u8],
        ..ca_template(name)
    };
    let root = Ca::root(with(root, of_root, 0));
    let mut cas = Vec::new();
    for (name, others) in middle {
        let above = cas.last().unwrap_or(&root);
        cas.push(above.sub(with(name, others, cas.len() + 1)));
    }
    let leaf = Template { others: of_leaf.clone(), ..leaf_template() };
    let leaf = cas.last().unwrap_or(&root).certify(&leaf, &*new_key());
    let shown: Vec<&Certificate> =
        [&leaf].into_iter().chain(cas.iter().map(|ca| &ca.certificate)).collect();
    let shown: Vec<_> = shown.iter().map(|one| x509(one.der())).collect();
    let cert_policies = wanted.iter().map(|one| CertificatePolicy::parse(one).unwrap()).collect();
    let policy = PeerPolicy { cert_policies, ..PeerPolicy::default() };
    let trust = folders(&[&root], &[]);
    verify_peer(&id("leaf.example.org"), &shown, &policy, &trust, now()).map(drop)
}

fn is_required(chain: &[(&str, Extensions)]) -> bool {
    match outcome(chain, &[]) {
        Ok(()) => false,
        Err(PkiError::PolicyRequired { .. }) => true,
        Err(why) => panic!("{why}"),
    }
}

/// PKITS 4.8 and 4.9.
///
/// Fault: in `Tree::prepare`, leave out require_explicit; in `valid`, do not prepare with the anchor; in
/// `Tree::wrap_up`, leave out the end entity's own.
#[test]
fn a_ca_may_require_a_policy_of_every_path() {
    let none = Vec::new;
    for (of_root, of_sub, of_leaf, required) in [
        (none(), none(), none(), false),
        (none(), vec![explicit_after(0)], none(), true),
        // The certificate of that CA has to have it as well.
        (none(), vec![explicit_after(0)], vec![policies(&[GOLD])], true),
        (none(), vec![explicit_after(0), policies(&[GOLD])], vec![policies(&[GOLD])], false),
        (none(), vec![explicit_after(0), policies(&[GOLD])], vec![policies(&[SILVER])], true),
        (none(), vec![explicit_after(0), policies(&[ANY])], vec![policies(&[SILVER])], false),
        (none(), vec![explicit_after(0), policies(&[GOLD])], vec![policies(&[ANY])], false),
        // RFC 5280 §6.1.5 (a) counts the end entity too.
        (none(), vec![explicit_after(1)], none(), true),
        (none(), vec![explicit_after(2)], none(), false),
        (vec![explicit_after(0)], none(), none(), true),
        (vec![explicit_after(2)], none(), none(), true),
        (vec![explicit_after(3)], none(), none(), false),
        (vec![explicit_after(0)], vec![policies(&[GOLD])], vec![policies(&[GOLD])], false),
        (
            vec![explicit_after(0), policies(&[SILVER])],
            vec![policies(&[GOLD])],
            vec![policies(&[GOLD])],
            true,
        ),
        (none(), none(), vec![explicit_after(0)], true),
        (none(), none(), vec![explicit_after(1)], false),
    ] {
        let chain = [("Root", of_root), ("Sub", of_sub), ("leaf", of_leaf)];
        assert_eq!(is_required(&chain), required, "{chain:?}");
    }
    let chain = [("Root", none()), ("Sub", vec![explicit_after(0)]), ("leaf", none())];
    assert_eq!(
        outcome(&chain, &[]).unwrap_err().to_string(),
        "certificate \"O=Acme, OU=Lab, CN=leaf\" has no policy that its CAs allow, and \"O=Acme, CN=Sub\" requires one \
         (requireExplicitPolicy)"
    );
    // A CA of the same name is not counted.
    let renewed = [("Root", vec![explicit_after(2)]), ("Root", none()), ("leaf", none())];
    assert!(!is_required(&renewed));
}

/// PKITS 4.10 to 4.12.
///
/// Fault: in `Tree::map`, ignore `policy_mapping`; in `Tree::process`, ignore `inhibit_any`.
#[test]
fn mappings_and_any_policy_count_as_far_as_the_cas_above_allow() {
    let required = |limits: OtherExtension| vec![explicit_after(0), limits];
    let gold = || vec![policies(&[GOLD])];
    let to_silver = || vec![policies(&[GOLD]), mappings(&[(GOLD, SILVER)])];
    for (count, fits) in [(0, false), (1, true)] {
        let mut of_top = vec![policies(&[GOLD])];
        of_top.push(critical("2.5.29.36", wrap(SEQUENCE, &[&[0x80, 1, 0], &[0x81, 1, count]])));
        let chain = [
            ("Root", Vec::new()),
            ("Top", of_top),
            ("Sub", to_silver()),
            ("leaf", vec![policies(&[SILVER])]),
        ];
        assert_eq!(!is_required(&chain), fits, "mapping {count}");
        let mut of_top = required(no_any_after(count));
        of_top.push(policies(&[GOLD]));
        let chain = [
            ("Root", Vec::new()),
            ("Top", of_top),
            ("Sub", vec![policies(&[ANY])]),
            ("leaf", gold()),
        ];
        assert_eq!(!is_required(&chain), fits, "anyPolicy {count}");
    }
    // anyPolicy of a CA of the same name counts all the same (§6.1.3 (d) (2)).
    let of_top = || vec![explicit_after(0), no_any_after(0), policies(&[GOLD])];
    let chain = [
        ("Root", Vec::new()),
        ("Top", of_top()),
        ("Top", vec![policies(&[ANY])]),
        ("leaf", gold()),
    ];
    assert!(!is_required(&chain));
    let chain = [("Root", Vec::new()), ("Top", of_top()), ("leaf", vec![policies(&[ANY])])];
    assert!(is_required(&chain));
    // The terms of the connection are those of the trusted CA.
    let chain = [("Root", Vec::new()), ("Sub", to_silver()), ("leaf", vec![policies(&[SILVER])])];
    assert_eq!(outcome(&chain, &[GOLD]), Ok(()));
    assert!(matches!(outcome(&chain, &[SILVER]), Err(PkiError::CertificatePolicy { .. })));
    let of_sub = vec![policies(&[ANY]), mappings(&[(GOLD, SILVER)])];
    let chain = [("Root", Vec::new()), ("Sub", of_sub), ("leaf", vec![policies(&[SILVER])])];
    assert_eq!(outcome(&chain, &[GOLD]), Ok(()));
    let limits = vec![no_mapping_after(0)];
    let chain = [("Root", limits), ("Sub", to_silver()), ("leaf", vec![policies(&[SILVER])])];
    assert!(matches!(outcome(&chain, &[GOLD]), Err(PkiError::CertificatePolicy { .. })));
}

/// Fault: in `Extensions::add`, ignore what `Policies::add` yields; in `Tree::prepare`, leave out the check of
/// mappings.
#[test]
fn critical_extensions_about_policies_are_taken_where_they_are_understood() {
    let qualifier =
        |of: &str| wrap(SEQUENCE, &[&wrap(SEQUENCE, &[&oid(of), &wrap(0x0c, &[b"x"])])]);
    // id-qt-cps, id-qt-unotice, and one that nobody knows.
    for (of, good) in [("1.3.6.1.5.5.7.2.1", true), ("1.3.6.1.5.5.7.2.2", true), ("1.2.3.4", false)]
    {
        let of_leaf = policies_and(&[GOLD], &qualifier(of));
        let chain = [("Root", Vec::new()), ("leaf", vec![of_leaf.clone()])];
        match outcome(&chain, &[]) {
            Ok(()) => assert!(good, "{of}"),
            Err(PkiError::CriticalExtension { .. }) => assert!(!good, "{of}"),
            Err(why) => panic!("{of}: {why}"),
        }
        let of_leaf = OtherExtension { critical: false, ..of_leaf };
        assert_eq!(outcome(&[("Root", Vec::new()), ("leaf", vec![of_leaf])], &[GOLD]), Ok(()));
    }
    for pair in [(ANY, GOLD), (GOLD, ANY)] {
        let of_sub = vec![policies(&[GOLD]), mappings(&[pair])];
        let chain = [("Root", Vec::new()), ("Sub", of_sub), ("leaf", Vec::new())];
        let ca = "O=Acme, CN=Sub".to_owned();
        assert_eq!(outcome(&chain, &[]), Err(PkiError::PolicyMapping { ca }));
    }
    // A negative number of certificates is malformed.
    let negative = Template { others: vec![explicit_after(0x80)], ..leaf_template() };
    let key = new_key();
    let root = Ca::root(ca_template("Root"));
    let der = pki::issue::certificate(&negative, key.public_key(), &root.issuer()).unwrap();
    assert_eq!(Certificate::from_der(&der), Err("policyConstraints"));
}

/// Seven CAs that each map eight policies to all eight: the tree of the RFC would have 8^8 leaves.
#[test]
fn class_35_mappings_do_not_multiply() {
    let names: Vec<String> = (1..=8).map(|last| format!("1.2.4.{last}")).collect();
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    let pairs: Vec<(&str, &str)> =
        named.iter().flat_map(|a| named.iter().map(move |b| (*a, *b))).collect();
    let of_ca = || vec![policies(&named), mappings(&pairs)];
    let layers = ["A", "B", "C", "D", "E", "F", "G"];
    let middle = layers.iter().map(|name| (*name, of_ca()));
    let chain: Vec<_> = [("Root", vec![explicit_after(0)])]
        .into_iter()
        .chain(middle)
        .chain([("leaf", vec![policies(&named)])])
        .collect();
    assert_eq!(outcome(&chain, &named), Ok(()));
}
