//! Who signs lists, what is asked of the signer, and lists that nobody can verify.

use std::sync::Arc;

use ike_proto::config::AuthConfig;
use ike_proto::crypto::SignatureScheme;
use pki::issue::Template;
use pki::{
    Certificate, Crl, LoadError, PeerPolicy, PkiError, RevocationPolicy, TrustStore, verify_peer,
};
use pq_kem::sign::KeyType;

use crate::common::{id, now, x509};
use crate::lists::{
    DAY, List, Outcome, Owner, SERIAL, by, entry, extension, key, key_of, outcome_of, template,
    trusting,
};

const RELAXED: RevocationPolicy = RevocationPolicy::Relaxed;

fn with_links(trust: &TrustStore, links: &[&Owner]) -> TrustStore {
    let mut trust = trust.clone();
    for link in links {
        trust.add_intermediate((*link.certificate).clone()).unwrap();
    }
    trust
}

/// Fault: in `list_signers`, judge the paths of signers by their issuers' lists alone; do not leave out the own list.
#[test]
fn a_signer_that_another_key_of_the_ca_revokes_says_nothing_and_cannot_clear_itself() {
    let old = Owner::root("CA");
    let (second, third) = (old.sub_ca("CA", key(), 9), old.sub_ca("CA", key(), 10));
    let trust = with_links(&trusting(&[&old]), &[&second, &third]);
    let peer = old.peer();
    let by_second = List { this_update: now() - 3 * DAY, number: Some(2), ..List::default() };
    let by_second = by_second.by(&second);
    // It is the older one: a newer one without the peer would end what the second key's list says.
    let revoking = List {
        this_update: now() - 5 * DAY,
        number: Some(1),
        entries: vec![entry(9, &[])],
        ..List::default()
    };
    let own = List { this_update: now(), number: Some(7), ..List::default() }.by(&second);
    for (lists, expected) in [
        (vec![&by_second], Outcome::Revoked),
        (vec![&by_second, &revoking.by(&third)], Outcome::Accepted),
        (vec![&by_second, &revoking.by(&third), &own], Outcome::Accepted),
    ] {
        let mut loaded = trust.clone();
        for list in &lists {
            loaded.revocation.add_crl(list).unwrap();
        }
        assert_eq!(
            outcome_of(&[&peer], &by(RELAXED), &mut loaded, &[]),
            expected,
            "{}",
            lists.len()
        );
    }
}

/// Fault: in `list_signers`, leave `check_strength` out.
#[test]
fn the_path_of_a_signer_is_as_strong_as_auth_asks() {
    let strong = || key_of(KeyType::Scheme(SignatureScheme::EcdsaP384Sha384));
    let old = Owner::root_with("CA", strong());
    let names = vec![id("peer.example.org")];
    let template = Template { names, serial: vec![SERIAL], ..template("peer") };
    let peer = old.certify(&template, strong().public_key());
    let Ok(AuthConfig::Pubkey(auth)) = AuthConfig::parse("ecdsa-384") else { panic!("no scheme") };
    for (key, expected) in [(key(), Outcome::Accepted), (strong(), Outcome::Revoked)] {
        let new = old.sub_ca("CA", key, 9);
        let mut trust = with_links(&trusting(&[&old]), &[&new]);
        trust.revocation.add_crl(&List::default().by(&new)).unwrap();
        let policy = PeerPolicy { chain: auth.chain.clone(), ..by(RELAXED) };
        assert_eq!(outcome_of(&[&peer], &policy, &mut trust, &[]), expected);
    }
}

/// Fault: in `PathQuery::is_under`, ask for the extended key usage of IKE.
#[test]
fn a_signer_needs_no_key_usage_of_ike() {
    let ca = Owner::root("CA");
    let mail = vec!["1.3.6.1.5.5.7.3.4".to_owned()];
    let template =
        Template { ca: true, serial: vec![9], extended_key_usage: mail, ..template("CA") };
    let key = key();
    let lister = Owner { certificate: ca.certify(&template, key.public_key()), key };
    let mut trust = with_links(&trusting(&[&ca]), &[&lister]);
    trust.revocation.add_crl(&List::default().by(&lister)).unwrap();
    assert_eq!(outcome_of(&[&ca.peer()], &by(RELAXED), &mut trust, &[]), Outcome::Revoked);
}

/// A peer that is trusted by itself withholds its issuer, which alone could verify the list.
///
/// Fault: in `verify::certificate`, do not call `check_pinned`; in `Lists::naming`, leave out what newer lists end; in
/// `check_pinned`, take the list of any known CA.
#[test]
fn a_list_at_hand_counts_for_a_pinned_peer_without_a_path() {
    let root = Owner::root("root");
    let sub = root.sub_ca("sub", key(), 2);
    let namesake = Owner::root("other").sub_ca("sub", key(), 2);
    let peer = sub.peer();
    let policy = PeerPolicy { certs: vec![Arc::clone(&peer)], ..by(RELAXED) };
    let lifted = List { this_update: now(), number: Some(9), ..List::empty() };
    let (listed, lifted, foreign) =
        (List::default().by(&sub), lifted.by(&sub), List::default().by(&namesake));
    let verdict = |lists: &[&Vec<u8>], trust: TrustStore| {
        let mut trust = trust;
        for list in lists {
            trust.revocation.add_crl(list).unwrap();
        }
        let certs = [x509(peer.der())];
        verify_peer(&id("peer.example.org"), &certs, &policy, &trust, now()).map(|_| ())
    };
    let none = TrustStore::new;
    assert_eq!(verdict(&[], none()), Ok(()));
    let unverified = |verdict| matches!(verdict, Err(PkiError::ListUnverified { .. }));
    assert!(unverified(verdict(&[&listed], none())));
    assert_eq!(verdict(&[&listed, &lifted], none()), Ok(()));
    // This end has the certificate of the CA, and not that of its issuer.
    let with_sub = || with_links(&none(), &[&sub]);
    assert!(matches!(verdict(&[&listed], with_sub()), Err(PkiError::Revoked { .. })));
    // The list is by another CA of this name.
    let both = with_links(&none(), &[&sub, &namesake]);
    assert_eq!(verdict(&[&foreign], both), Ok(()));
}

/// This end trusts another CA of the name that the pinned certificate has for its issuer.
///
/// Fault: in `verify::certificate`, leave `BadSignature` out.
#[test]
fn a_pinned_peer_is_accepted_beside_an_anchor_of_its_cas_name() {
    let (ca, namesake) = (Owner::root("CA"), Owner::root("CA"));
    let peer = ca.peer();
    let verdict = |certs: Vec<Arc<Certificate>>, lists: &[Vec<u8>]| {
        let mut trust = trusting(&[&namesake]);
        for list in lists {
            trust.revocation.add_crl(list).unwrap();
        }
        let policy = PeerPolicy { certs, ..by(RELAXED) };
        let certs = [x509(peer.der())];
        verify_peer(&id("peer.example.org"), &certs, &policy, &trust, now()).map(|_| ())
    };
    let pinned = || vec![Arc::clone(&peer)];
    assert_eq!(verdict(pinned(), &[]), Ok(()));
    assert_eq!(verdict(pinned(), &[List::default().by(&namesake)]), Ok(()));
    let unverified = verdict(pinned(), &[List::default().by(&ca)]);
    assert!(matches!(unverified, Err(PkiError::ListUnverified { .. })));
    assert!(matches!(verdict(Vec::new(), &[]), Err(PkiError::BadSignature { .. })));
}

/// Fault: in `read::tbs`, refuse a list whose nextUpdate is no date.
#[test]
fn a_list_whose_next_update_cannot_be_read_revokes_and_calls_nobody_good() {
    let ca = Owner::root("CA");
    // 99 is no month.
    let cut = |list: &List| {
        let der = list.by(&ca);
        let (tag, date) = (b"\x17\x0d", b"300608");
        let at = der.windows(6).position(|six| six == date).expect("nextUpdate");
        assert_eq!(der[at - 2..at], tag[..]);
        let mut changed = der.clone();
        changed[at + 2..at + 4].copy_from_slice(b"99");
        changed
    };
    assert!(Crl::load(&cut(&List::default())).unwrap().revokes(&ca.peer()));
    assert!(!Crl::load(&cut(&List::default())).unwrap().is_understood());
    assert!(Crl::load(&List::default().by(&ca)).unwrap().is_understood());
}

/// Nobody has verified a list before it is read.
///
/// Fault: in `read::tbs`, do not ask whether the algorithm is known, or whether the list may be long.
#[test]
fn a_list_by_an_unknown_algorithm_and_a_long_one_without_a_hash_are_not_read_on() {
    let ca = Owner::root("CA");
    let mut unknown = List::default().by(&ca);
    let ecdsa = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    while let Some(at) = unknown.windows(8).position(|eight| eight == ecdsa) {
        unknown[at + 7] = 99;
    }
    // Cut in the middle, it is refused for its algorithm all the same.
    let half = &unknown[..unknown.len() / 2];
    let refused = LoadError::Unsupported("signature algorithm of the revocation list");
    assert_eq!(Crl::from_stream(half).unwrap_err(), refused);
    let ed25519 = Owner::root_with("CA", key_of(KeyType::Scheme(SignatureScheme::Ed25519)));
    let long = |octets: usize| {
        let filler = extension(&[0x2b, 6, 1, 4, 1, 0x83, 0xb3, 0x3a, 2], false, &vec![0; 60_000]);
        let one = entry(SERIAL + 1, &[filler]);
        List { entries: vec![one; octets / 60_000], ..List::default() }
    };
    let short = Crl::load(&long(1 << 20).by(&ed25519)).unwrap();
    assert!(short.is_signed_by(&ed25519.certificate));
    let refused = Crl::from_stream(long(17 << 20).by(&ed25519).as_slice()).unwrap_err();
    assert!(matches!(refused, LoadError::TooLong { most: 16_777_216, .. }), "{refused}");
    // The signature of this one is over a hash.
    assert!(Crl::load(&long(17 << 20).by(&ca)).unwrap().is_signed_by(&ca.certificate));
}

/// Fault: in `RevocationStore::standing`, call each path known; in `Counted::ends`, let any signer end a revocation.
#[test]
fn under_strict_a_signer_of_unknown_status_revokes_and_calls_nobody_good() {
    let old = Owner::root("CA");
    let new = old.sub_ca("CA", key(), 9);
    let trust = with_links(&trusting(&[&old]), &[&new]);
    let earlier = |list: List| List { this_update: now() - 3 * DAY, number: Some(1), ..list };
    let outdated = |list: List| List { next_update: Some(now() - DAY), ..earlier(list) };
    let (empty, listed) = (List::empty().by(&new), List::default().by(&new));
    let by_old = earlier(List { entries: vec![entry(99, &[])], ..List::default() }).by(&old);
    let verdict = |lists: &[&Vec<u8>], policy: RevocationPolicy| {
        let mut loaded = trust.clone();
        for list in lists {
            loaded.revocation.add_crl(list).unwrap();
        }
        outcome_of(&[&old.peer()], &by(policy), &mut loaded, &[])
    };
    let strict = RevocationPolicy::Strict;
    assert_eq!(verdict(&[&empty], strict), Outcome::Unknown);
    assert_eq!(verdict(&[&empty], RELAXED), Outcome::Accepted);
    assert_eq!(verdict(&[&listed], strict), Outcome::Revoked);
    // The old key's list tells that the new key is good. It has not the peer, which the newer list has.
    assert_eq!(verdict(&[&by_old, &listed], strict), Outcome::Revoked);
    assert_eq!(verdict(&[&by_old, &empty], strict), Outcome::Accepted);
    // A list past its date revokes, and says no more that the new key is good: so that one cannot lift it.
    let revoking = outdated(List::default()).by(&old);
    assert_eq!(verdict(&[&revoking, &empty], strict), Outcome::Revoked);
    assert_eq!(verdict(&[&revoking, &empty], RELAXED), Outcome::Accepted);
}
