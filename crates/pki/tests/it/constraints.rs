//! Name constraints against names that nobody should write: nothing that a CA forbids gets through.

use ike_proto::wire::der::{self, SEQUENCE, context};
use ike_proto::wire::payload::IdData;
use pki::issue::{OtherExtension, Template};
use pki::{PeerPolicy, PkiError, verify_peer};

use crate::anchors::{Ca, ca_template, folders, leaf_template, new_key};
use crate::common::{now, x509};

const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const X400: u8 = context(3);
const EDI: u8 = context(5);
const URI: u8 = 0x86;
const REGISTERED_ID: u8 = 0x88;

fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    der::push(&mut out, tag, parts);
    out
}

/// A GeneralName.
type Name<'a> = (u8, &'a str);

fn name((tag, content): Name<'_>) -> Vec<u8> {
    wrap(tag, &[content.as_bytes()])
}

/// nameConstraints with these subtrees, and octets after each base.
fn limits(permitted: &[Name<'_>], excluded: &[Name<'_>], after: &[u8]) -> OtherExtension {
    let list = |tag, names: &[Name<'_>]| {
        let subtrees: Vec<u8> =
            names.iter().flat_map(|one| wrap(SEQUENCE, &[&name(*one), after])).collect();
        if subtrees.is_empty() { subtrees } else { wrap(tag, &[&subtrees]) }
    };
    let value = wrap(SEQUENCE, &[&list(context(0), permitted), &list(context(1), excluded)]);
    OtherExtension { oid: "2.5.29.30".to_owned(), critical: true, value }
}

/// The verdict on a certificate with `names` alone, which asserts the first of them or `id`, below a root with
/// `limits`.
fn verdict(limits: OtherExtension, names: &[Name<'_>], id: Option<IdData>) -> Result<(), PkiError> {
    let root = Ca::root(Template { others: vec![limits], ..ca_template("Root") });
    let value: Vec<u8> = names.iter().flat_map(|one| name(*one)).collect();
    let value = wrap(SEQUENCE, &[&value]);
    let san = OtherExtension { oid: "2.5.29.17".to_owned(), critical: true, value };
    let template = Template {
        subject: vec![SEQUENCE, 0],
        names: Vec::new(),
        others: vec![san],
        ..leaf_template()
    };
    let leaf = root.certify(&template, &*new_key());
    let id = id.unwrap_or_else(|| match names[0] {
        (DNS, name) => IdData::fqdn(name),
        (_, name) => IdData::email(name),
    });
    let shown = [x509(leaf.der())];
    let trust = folders(&[&root], &[]);
    verify_peer(&id, &shown, &PeerPolicy::default(), &trust, now()).map(drop)
}

#[track_caller]
fn check(verdict: Result<(), PkiError>, good: bool) {
    match verdict {
        Ok(()) => assert!(good),
        Err(PkiError::NameConstraints { .. }) => assert!(!good),
        Err(why) => panic!("{why}"),
    }
}

const ROOT: &str = "root@example.com";

/// The peer says `root@example.com`, and its certificate has `ROOT@example.com`: one identity (`Id::matches`).
///
/// Fault: in `Mailbox::relation`, compare the local parts with case alone.
#[test]
fn what_is_one_identity_is_one_name_for_a_constraint() {
    let id = || Some(IdData::email(ROOT));
    let upper = (EMAIL, "ROOT@example.com");
    let without = limits(&[(EMAIL, "example.com")], &[(EMAIL, "admin@example.com")], &[]);
    check(verdict(without, &[upper], id()), true);
    check(verdict(limits(&[], &[(EMAIL, ROOT)], &[]), &[(EMAIL, ROOT)], id()), false);
    check(verdict(limits(&[], &[(EMAIL, ROOT)], &[]), &[upper], id()), false);
    check(verdict(limits(&[(EMAIL, "example.com")], &[(EMAIL, ROOT)], &[]), &[upper], id()), false);
    // RFC 5280 §7.5 permits the one in small letters alone.
    check(verdict(limits(&[(EMAIL, ROOT)], &[], &[]), &[upper], id()), false);
    check(verdict(limits(&[(EMAIL, ROOT)], &[], &[]), &[(EMAIL, ROOT)], id()), true);
}

/// Fault: in `Subtree::relation`, have a name or base that cannot be read outside of the subtree; in `domain`, strip
/// every period from the base.
#[test]
fn what_cannot_be_compared_for_certain_is_forbidden() {
    for (permitted, excluded, name) in [
        (None, Some((EMAIL, "@example.com")), (EMAIL, ROOT)),
        (None, Some((EMAIL, "")), (EMAIL, ROOT)),
        (None, Some((EMAIL, "foo@example.com")), (EMAIL, "foo@x@example.com")),
        (None, Some((EMAIL, "example.com")), (EMAIL, "root@example.com.")),
        (None, Some((EMAIL, ".example.com")), (EMAIL, "root@a.example.com.")),
        (Some((EMAIL, "example.com")), None, (EMAIL, "a@b@example.com")),
        (Some((EMAIL, "@example.com")), None, (EMAIL, ROOT)),
        (None, Some((DNS, "example.com")), (DNS, "gw.example.com.")),
        (None, Some((DNS, "example.com")), (DNS, "gw.example.com..")),
        (None, Some((DNS, "")), (DNS, "gw.example.com")),
        (None, Some((DNS, "*.example.com")), (DNS, "gw.example.com")),
        (Some((DNS, ".")), None, (DNS, "gw.other.org")),
        (Some((DNS, "..")), None, (DNS, "gw.other.org")),
    ] {
        let limits = limits(permitted.as_slice(), excluded.as_slice(), &[]);
        assert!(verdict(limits, &[name], None).is_err(), "{permitted:?} {excluded:?} {name:?}");
    }
    // RFC 5280 §4.2.1.10: an empty dNSName with zero or more labels before it is every name.
    check(verdict(limits(&[(DNS, "")], &[], &[]), &[(DNS, "gw.other.org")], None), true);
    // Subtrees with a minimum or maximum are not processed.
    let net = (DNS, "gw.other.org");
    for (after, good) in [(&[0x80, 1, 0][..], true), (&[0x80, 1, 1], false), (&[0x81, 1, 9], false)]
    {
        check(verdict(limits(&[(DNS, "other.org")], &[], after), &[net], None), good);
        check(verdict(limits(&[], &[(DNS, "example.com")], after), &[net], None), good);
        check(verdict(limits(&[], &[(EMAIL, "example.com")], after), &[net], None), true);
    }
}

/// Fault: in `Subtree::relation`, have a base that cannot be read forbid names of every form; in `GeneralName::read`,
/// refuse x400Address or ediPartyName.
#[test]
fn what_cannot_be_compared_forbids_no_names_of_other_forms() {
    let host = (DNS, "gw.example.org");
    for excluded in
        [(EMAIL, ""), (EMAIL, "@"), (URI, "/"), (X400, ""), (EDI, ""), (REGISTERED_ID, "*")]
    {
        check(verdict(limits(&[], &[excluded], &[]), &[host], None), true);
        check(verdict(limits(&[excluded], &[], &[]), &[host], None), true);
    }
    // Names of forms that IKE does not use are beside the one that it uses.
    let edi = "\u{1}\u{4}\u{c}\u{2}me";
    for other in [(X400, "0\0"), (EDI, edi), (REGISTERED_ID, "*"), (URI, "urn:x"), (EMAIL, "a@b@c")]
    {
        check(verdict(limits(&[(DNS, "example.org")], &[], &[]), &[host, other], None), true);
        check(verdict(limits(&[], &[(other.0, "")], &[]), &[host, other], None), false);
        check(verdict(limits(&[(other.0, "")], &[], &[]), &[host, other], None), false);
    }
}
