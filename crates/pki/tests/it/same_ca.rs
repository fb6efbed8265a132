//! Whose lists count about a certificate: those by its CA's keys, and by nobody else who has the CA's name.

use std::sync::Arc;

use ike_proto::wire::der::{BIT_STRING, Der, SEQUENCE, context};
use pki::{Certificate, PeerPolicy, RevocationPolicy, TrustStore};

use crate::common::now;
use crate::lists::{
    DAY, List, Outcome, Owner, SERIAL, URL, by, entry, key, outcome_of, place, scope, template,
    trusting, wrap,
};

const STRICT: RevocationPolicy = RevocationPolicy::Strict;
const RELAXED: RevocationPolicy = RevocationPolicy::Relaxed;

/// What becomes of a peer, with `list` from a file or from its URL.
fn outcomes(
    peer: &Certificate,
    policy: &PeerPolicy,
    trust: &TrustStore,
    list: &[u8],
) -> [Outcome; 2] {
    let mut loaded = trust.clone();
    loaded.revocation.add_crl(list).unwrap();
    [
        outcome_of(&[peer], policy, &mut loaded, &[]),
        outcome_of(&[peer], policy, &mut trust.clone(), &[(URL, list)]),
    ]
}

/// Both keys are trusted as roots. Their lists count by the URL that the certificate names.
///
/// Fault: in `PathQuery::signers`, leave out the anchors of the name.
#[test]
fn a_new_root_key_signs_lists_about_certificates_by_the_old_one() {
    let (old, new) = (Owner::root("CA"), Owner::root("CA"));
    let trust = trusting(&[&old, &new]);
    for (issuer, other) in [(&old, &new), (&new, &old)] {
        let peer = issuer.peer();
        for list in [List::empty().by(issuer), List::empty().by(other)] {
            assert_eq!(outcomes(&peer, &by(STRICT), &trust, &list)[1], Outcome::Accepted);
        }
        for list in [List::default().by(issuer), List::default().by(other)] {
            assert_eq!(outcomes(&peer, &by(RELAXED), &trust, &list)[1], Outcome::Revoked);
        }
        // From a file, it says by itself whose it is.
        let named = List { extensions: vec![scope(&[place(URL)])], ..List::default() };
        assert_eq!(outcomes(&peer, &by(RELAXED), &trust, &named.by(other)), [Outcome::Revoked; 2]);
    }
}

/// A CA changes its key. Both roots are trusted, and a list comes by either key. Each peer, by either key, gets in, and
/// the one that is on the list does not. A list by the other key that is past its date stays at hand meanwhile.
///
/// Fault: in `PathQuery::signers`, leave out the anchors of the name: peers by the other key are locked out.
#[test]
fn a_rollover_of_the_cas_key_locks_nobody_out_under_strict_and_revokes_nobody_else() {
    let (old, new) = (Owner::root("CA"), Owner::root("CA"));
    let peer = |issuer: &Owner, serial: u8| {
        let (names, crl) = (vec![crate::common::id("peer.example.org")], vec![URL.to_owned()]);
        let peer = pki::issue::Template { names, crl, serial: vec![serial], ..template("peer") };
        issuer.certify(&peer, key().public_key())
    };
    let both = trusting(&[&old, &new]);
    for (signer, other) in [(&old, &new), (&new, &old)] {
        let list = List::default().by(signer);
        let before = List {
            this_update: now() - 9 * DAY,
            next_update: Some(now() - 2 * DAY),
            number: Some(1),
            extensions: vec![scope(&[place(URL)])],
            ..List::default()
        };
        let mut kept = both.clone();
        kept.revocation.add_crl(&before.by(other)).unwrap();
        for trust in [&both, &kept] {
            for issuer in [&old, &new] {
                for (serial, expected) in
                    [(SERIAL, Outcome::Revoked), (SERIAL + 1, Outcome::Accepted)]
                {
                    let (peer, served) = (peer(issuer, serial), [(URL, list.as_slice())]);
                    let found = outcome_of(&[&peer], &by(STRICT), &mut trust.clone(), &served);
                    assert_eq!(found, expected, "{serial}");
                }
            }
        }
    }
}

/// The new key is certified by the old one, or the old one by the new.
///
/// Fault: in `PathQuery::signers`, leave out the intermediates.
#[test]
fn a_key_that_the_old_one_certifies_signs_lists_too() {
    let old = Owner::root("CA");
    let new = old.sub_ca("CA", key(), 9);
    let mut trust = trusting(&[&old]);
    trust.add_intermediate((*new.certificate).clone()).unwrap();
    for (issuer, other) in [(&old, &new), (&new, &old)] {
        let peer = issuer.peer();
        let empty = List::empty().by(other);
        // The status of the new key itself is known, too.
        let mut known = trust.clone();
        known.revocation.add_crl(&List::empty().by(&old)).unwrap();
        assert_eq!(outcomes(&peer, &by(STRICT), &known, &empty), [Outcome::Accepted; 2]);
        let list = List::default().by(other);
        assert_eq!(outcomes(&peer, &by(RELAXED), &trust, &list), [Outcome::Revoked; 2]);
    }
    // The old key's list revokes the new key, whose lists say nothing from then on.
    let entries = vec![entry(9, &[])];
    let revoking =
        List { entries, this_update: now() - 2 * DAY, number: Some(1), ..List::default() };
    let mut without = trust.clone();
    without.revocation.add_crl(&revoking.by(&old)).unwrap();
    let list = List::default().by(&new);
    assert_eq!(outcomes(&old.peer(), &by(RELAXED), &without, &list), [Outcome::Accepted; 2]);
}

/// Any trusted CA could issue a CA of any name.
///
/// Fault: in `PathQuery::is_under`, take any anchor.
#[test]
fn a_ca_of_the_same_name_under_another_anchor_says_nothing() {
    let (ca, other) = (Owner::root("CA"), Owner::root("other"));
    let impostor = other.sub_ca("CA", key(), 5);
    let mut trust = trusting(&[&ca, &other]);
    trust.add_intermediate((*impostor.certificate).clone()).unwrap();
    let peer = ca.peer();
    let revoking = List::default().by(&impostor);
    assert_eq!(outcomes(&peer, &by(RELAXED), &trust, &revoking), [Outcome::Accepted; 2]);
    let empty = List { this_update: now(), number: Some(9), ..List::empty() }.by(&impostor);
    assert_eq!(outcomes(&peer, &by(STRICT), &trust, &empty), [Outcome::Unknown; 2]);
    let mut held = trust.clone();
    held.revocation.add_crl(&List::default().by(&ca)).unwrap();
    assert_eq!(outcomes(&peer, &by(RELAXED), &held, &empty), [Outcome::Revoked; 2]);
}

/// Fault: in `PathQuery::signers`, do not ask whether the connection trusts the anchor.
#[test]
fn a_connection_hears_no_ca_that_it_does_not_trust() {
    let (ca, other) = (Owner::root("CA"), Owner::root("CA"));
    let trust = trusting(&[&ca, &other]);
    let peer = ca.peer();
    let list = List::default().by(&other);
    for (cacerts, expected) in [
        (vec![Arc::clone(&ca.certificate)], Outcome::Accepted),
        (vec![Arc::clone(&ca.certificate), Arc::clone(&other.certificate)], Outcome::Revoked),
        (Vec::new(), Outcome::Revoked),
    ] {
        let policy = PeerPolicy { cacerts, ..by(RELAXED) };
        assert_eq!(outcomes(&peer, &policy, &trust, &list)[1], expected);
    }
}

/// A CA was lost and made anew under its name: the same serial numbers are other certificates.
///
/// Fault: in `lists::signer`, take lists by keys of the second sort from anywhere.
#[test]
fn a_ca_made_anew_neither_revokes_nor_clears_certificates_of_the_one_before() {
    let (before, anew) = (Owner::root("CA"), Owner::root("CA"));
    let trust = trusting(&[&before, &anew]);
    let elsewhere = "http://anew.example.org/ca.crl";
    let peer = before.peer();
    let of_anew = anew.peer_with(vec![elsewhere.to_owned()]);
    // Its list comes by its own URL, when its own peer connects, and by a file.
    let list = List::default().by(&anew);
    let mut both = trust.clone();
    let served = [(elsewhere, list.as_slice())];
    assert_eq!(outcome_of(&[&of_anew], &by(RELAXED), &mut both, &served), Outcome::Revoked);
    assert_eq!(outcome_of(&[&peer], &by(RELAXED), &mut both, &[]), Outcome::Accepted);
    let mut loaded = trust.clone();
    loaded.revocation.add_crl(&list).unwrap();
    assert_eq!(outcome_of(&[&peer], &by(RELAXED), &mut loaded, &[]), Outcome::Accepted);
    // Nor does it clear what the other has revoked, or say that it is good.
    let empty = List { this_update: now(), number: Some(9), ..List::empty() }.by(&anew);
    let mut both = trust.clone();
    both.revocation.add_crl(&List::default().by(&before)).unwrap();
    let served = [(elsewhere, empty.as_slice())];
    assert_eq!(outcome_of(&[&of_anew], &by(STRICT), &mut both, &served), Outcome::Accepted);
    both.revocation.add_crl(&empty).unwrap();
    assert_eq!(outcome_of(&[&peer], &by(RELAXED), &mut both, &[]), Outcome::Revoked);
    let mut unknown = trust.clone();
    unknown.revocation.add_crl(&empty).unwrap();
    assert_eq!(outcome_of(&[&peer], &by(STRICT), &mut unknown, &[]), Outcome::Unknown);
}

/// Fault: in `Lists::status`, leave out delta lists; in `Crl::updates`, take any base.
#[test]
fn a_delta_list_is_taken_with_its_base() {
    let ca = Owner::root("CA");
    let peer = ca.peer();
    let indicator = |base: u8| crate::lists::extension(&[0x55, 0x1d, 27], true, &[2, 1, base]);
    let base = List { this_update: now() - 5 * DAY, number: Some(4), ..List::empty() };
    let late = List { next_update: Some(now() - DAY), ..base.clone() };
    let delta = |number: u8, from: u8, entries: Vec<Vec<u8>>| List {
        number: Some(number),
        extensions: vec![indicator(from)],
        entries,
        ..List::default()
    };
    let here = || vec![entry(SERIAL, &[])];
    let removed = || vec![entry(SERIAL, &[crate::lists::reason(8)])];
    let hold = List { entries: vec![entry(SERIAL, &[crate::lists::reason(6)])], ..late.clone() };
    for (name, lists, expected) in [
        ("current with the base", vec![&late, &delta(6, 4, Vec::new())], Outcome::Accepted),
        ("of a base in between", vec![&late, &delta(6, 3, Vec::new())], Outcome::Accepted),
        ("of a newer base", vec![&late, &delta(6, 5, Vec::new())], Outcome::Unknown),
        ("older than the base", vec![&late, &delta(3, 2, Vec::new())], Outcome::Unknown),
        ("without a base", vec![&delta(6, 4, Vec::new())], Outcome::Unknown),
        ("that revokes", vec![&base, &delta(6, 4, here())], Outcome::Revoked),
        ("that revokes, of another base", vec![&base, &delta(9, 8, here())], Outcome::Revoked),
        ("that lifts a hold", vec![&hold, &delta(6, 4, removed())], Outcome::Accepted),
        ("that lifts, of another base", vec![&hold, &delta(9, 8, removed())], Outcome::Revoked),
        (
            "after one that revokes",
            vec![
                &late,
                &delta(5, 4, here()),
                &List { this_update: now(), ..delta(6, 4, removed()) },
            ],
            Outcome::Accepted,
        ),
    ] {
        let mut trust = trusting(&[&ca]);
        for list in lists {
            trust.revocation.add_crl(&list.by(&ca)).unwrap();
        }
        assert_eq!(outcome_of(&[&peer], &by(STRICT), &mut trust, &[]), expected, "{name}");
    }
}

/// Another authority makes the lists, and the certificate says so.
///
/// Fault: in `read::entries`, let each entry be one of the list's own issuer; in `Crl::is_for`, take any list.
#[test]
fn an_indirect_list_counts_for_the_issuers_that_it_names() {
    use der::{Decode, Encode};
    use x509_cert::ext::pkix::CrlDistributionPoints;
    use x509_cert::ext::pkix::crl::dp::DistributionPoint;
    use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
    let root = Owner::root("root");
    let (ca, lister) = (root.sub_ca("CA", key(), 2), root.sub_ca("lists", key(), 3));
    let name = |owner: &Owner| {
        let name = x509_cert::name::Name::from_der(owner.certificate.subject()).unwrap();
        GeneralName::DirectoryName(name)
    };
    let url = der::asn1::Ia5String::new(URL).unwrap();
    let full = vec![GeneralName::UniformResourceIdentifier(url)];
    let peer = |cited: bool| {
        let point = DistributionPoint {
            distribution_point: Some(DistributionPointName::FullName(full.clone())),
            reasons: None,
            crl_issuer: cited.then(|| vec![name(&lister)]),
        };
        let value = CrlDistributionPoints(vec![point]).to_der().unwrap();
        let others =
            vec![pki::issue::OtherExtension { oid: "2.5.29.31".into(), critical: false, value }];
        let names = vec![crate::common::id("peer.example.org")];
        let template =
            pki::issue::Template { names, serial: vec![SERIAL], others, ..template("peer") };
        ca.certify(&template, key().public_key())
    };
    let of = |owner: &Owner| {
        let names = vec![name(owner)].to_der().unwrap();
        crate::lists::extension(&[0x55, 0x1d, 29], true, &names)
    };
    let list = |entries: Vec<Vec<u8>>| {
        let extensions = vec![scope(&[place(URL), crate::lists::only(4)])];
        List { entries, extensions, ..List::default() }.by(&lister)
    };
    let ours = list(vec![entry(1, &[of(&ca)]), entry(SERIAL, &[])]);
    let others = list(vec![entry(SERIAL, &[]), entry(1, &[of(&ca)]), entry(SERIAL, &[of(&root)])]);
    let cas = List::empty().by(&root);
    let mut trust = trusting(&[&root]);
    for link in [&ca, &lister] {
        trust.add_intermediate((*link.certificate).clone()).unwrap();
    }
    trust.revocation.add_crl(&cas).unwrap();
    for (cited, list, strict, relaxed) in [
        (true, &ours, Outcome::Revoked, Outcome::Revoked),
        (true, &others, Outcome::Accepted, Outcome::Accepted),
        // The certificate says nothing of another who makes lists.
        (false, &ours, Outcome::Unknown, Outcome::Accepted),
    ] {
        let peer = peer(cited);
        for (policy, expected) in [(STRICT, strict), (RELAXED, relaxed)] {
            let found = outcomes(&peer, &by(policy), &trust, list);
            assert_eq!(found[0], expected, "{cited}, {policy:?}");
        }
    }
    // It is fetched, too.
    assert_eq!(outcomes(&peer(true), &by(STRICT), &trust, &ours)[1], Outcome::Revoked);
}

/// Any CA can give an end entity the name that a certificate cites as the maker of its lists. Without a keyUsage, the
/// key may make any signature (RFC 5280 §4.2.1.3), and is nevertheless not that of a list's maker.
///
/// Fault: in `PathQuery::signers`, let `is_other` not ask for a CA or cRLSign.
#[test]
fn the_list_of_an_end_entity_without_key_usage_says_nothing() {
    use der::Encode;
    use pki::issue::{OtherExtension, Template};
    let ca = Owner::root("CA");
    // crlIssuer: CN=lists.
    let lister = wrap(context(2), &wrap(context(4), &template("lists").subject));
    let point = wrap(
        SEQUENCE,
        &[wrap(context(0), &wrap(context(0), &wrap(0x86, URL.as_bytes()))), lister].concat(),
    );
    let value = wrap(SEQUENCE, &point);
    let others = vec![OtherExtension { oid: "2.5.29.31".into(), critical: false, value }];
    let names = vec![crate::common::id("peer.example.org")];
    let peer = Template { names, serial: vec![SERIAL], others, ..template("peer") };
    let peer = ca.certify(&peer, key().public_key());
    let of_ca = wrap(SEQUENCE, &wrap(context(4), ca.certificate.subject()));
    let of_ca = crate::lists::extension(&[0x55, 0x1d, 29], true, &of_ca);
    let sign = x509_cert::ext::pkix::KeyUsage(x509_cert::ext::pkix::KeyUsages::CRLSign.into());
    let sign = crate::lists::extension(&[0x55, 0x1d, 15], true, &sign.to_der().unwrap());
    for (usage, expected) in [(&[][..], Outcome::Accepted), (&sign, Outcome::Revoked)] {
        let key = key();
        let certificate = with_key_usage(&ca, key.public_key(), usage);
        let entity = Owner { key, certificate };
        let entries = vec![entry(SERIAL, std::slice::from_ref(&of_ca))];
        let extensions = vec![scope(&[place(URL), crate::lists::only(4)])];
        let list = List { entries, extensions, ..List::default() }.by(&entity);
        let mut trust = trusting(&[&ca]);
        trust.revocation.add_crl(&list).unwrap();
        let shown = [&*peer, &*entity.certificate];
        assert_eq!(outcome_of(&shown, &by(RELAXED), &mut trust, &[]), expected);
    }
}

/// The certificate of CN=lists, an end entity, with this extension in place of its keyUsage.
fn with_key_usage(ca: &Owner, spki: &[u8], usage: &[u8]) -> Arc<Certificate> {
    let entity = pki::issue::Template { serial: vec![8], ..template("lists") };
    let made = ca.certify(&entity, spki);
    let mut outer = Der::new(made.der()).nested(SEQUENCE).unwrap();
    let mut from = outer.nested(SEQUENCE).unwrap();
    let mut tbs = Vec::new();
    while let Some(tag) = from.peek() {
        let element = from.element(tag).unwrap();
        if tag != context(3) {
            tbs.extend_from_slice(element);
            continue;
        }
        let mut list = Der::new(element).nested(tag).unwrap().nested(SEQUENCE).unwrap();
        let mut kept = usage.to_vec();
        while !list.is_empty() {
            let extension = list.element(SEQUENCE).unwrap();
            if !extension.windows(5).any(|octets| octets == [6, 3, 0x55, 0x1d, 15]) {
                kept.extend_from_slice(extension);
            }
        }
        tbs.extend(wrap(tag, &wrap(SEQUENCE, &kept)));
    }
    let tbs = wrap(SEQUENCE, &tbs);
    let scheme = pki::issue::default_scheme(&*ca.key).unwrap();
    let bits = [vec![0], ca.key.sign(&scheme, &tbs).unwrap()].concat();
    let parts = [&tbs, scheme.algorithm_identifier(), &wrap(BIT_STRING, &bits)].concat();
    Arc::new(Certificate::from_der(&wrap(SEQUENCE, &parts)).unwrap())
}

/// Another CA may have been made under the name, and an attacker on the path may put its list behind the URL.
///
/// Fault: in `Counted::ends`, do not ask who signed the older list.
#[test]
fn the_list_of_a_namesake_ends_no_revocation() {
    let (ca, namesake) = (Owner::root("CA"), Owner::root("CA"));
    let mut trust = trusting(&[&ca, &namesake]);
    let outdated = List {
        this_update: now() - 8 * DAY,
        next_update: Some(now() - DAY),
        number: Some(1),
        ..List::default()
    };
    trust.revocation.add_crl(&outdated.by(&ca)).unwrap();
    let peer = ca.peer();
    for policy in [RELAXED, STRICT] {
        for (owner, expected) in [(&namesake, Outcome::Revoked), (&ca, Outcome::Accepted)] {
            let newer = List { this_update: now(), number: Some(9), ..List::empty() }.by(owner);
            let served = [(URL, newer.as_slice())];
            assert_eq!(outcome_of(&[&peer], &by(policy), &mut trust.clone(), &served), expected);
        }
    }
}
