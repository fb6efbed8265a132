//! Whether the path of a live SA still stands: the lists that count are those of the peer's own path.

use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::config::IdMatch;
use ike_proto::{Answer, OwnedCert, PeerCredentials, Question};
use pki::issue::{self, CertificateStatus, Issuer, Template};
use pki::{
    Answerer, Authority, Certificate, Credential, FetchKind, FetchRequest, LoadError, PeerPolicy,
    Record, RecordedKind, Standing, TrustStore, verify_peer,
};

use crate::common::{id, now, x509};
use crate::lists::{DAY, List, Owner, SERIAL, URL, key, template, trusting};

/// Judges a peer that shows these certificates, and keeps what the answerer keeps of it.
fn judged(answerer: &Answerer, shown: &[&Certificate]) -> bool {
    let peer = PeerCredentials {
        connection: "site".to_owned(),
        round: "remote".to_owned(),
        id: id("peer.example.org"),
        certs: shown.iter().map(|one| OwnedCert::from(x509(one.der()))).collect(),
        chain: Default::default(),
    };
    matches!(answerer.answer(&Question::Judge(peer), now()), Answer::Key(_))
}

/// Another trusted CA certifies the key of the peer's CA once more, and a key of its own under that CA's name.
/// Anybody can show the peer's certificate with this second path.
///
/// Fault: in `RecordedKind`, leave the anchor out.
#[test]
fn a_second_path_to_another_anchor_does_not_decide_whose_lists_count() {
    let (own, other) = (Owner::root("own"), Owner::root("other"));
    let ca = own.sub_ca("CA", key(), 2);
    let namesake = other.sub_ca("CA", key(), 3);
    let cross = Template { ca: true, serial: vec![4], ..template("CA") };
    let cross = namesake.certify(&cross, ca.key.public_key());
    let peer = ca.peer();
    let mut trust = trusting(&[&own, &other]);
    trust.revocation.add_crl(&List::default().by(&namesake)).unwrap();
    let policy = PeerPolicy::default();
    let shown = [x509(peer.der()), x509(ca.certificate.der())];
    let accepted = verify_peer(&id("peer.example.org"), &shown, &policy, &trust, now()).unwrap();
    let path = accepted.shown().path.clone();
    let mut answerer = Answerer::new(trust);
    answerer.set_policy("site", "remote", policy);
    assert!(judged(&answerer, &[&peer, &ca.certificate]));
    let revoked = |answerer: &Answerer| answerer.standings(now()).revoked("site", &path);
    assert_eq!(revoked(&answerer), None);
    // The stranger shows the other path with the peer's certificate, or with one of the namesake's own.
    let stranger = ca.certify(
        &Template {
            names: vec![id("peer.example.org")],
            serial: vec![SERIAL + 1],
            crl: vec![URL.to_owned()],
            ..template("peer")
        },
        key().public_key(),
    );
    judged(&answerer, &[&stranger, &cross, &namesake.certificate]);
    assert_eq!(revoked(&answerer), None);
    // A list by the peer's CA counts.
    let mut trust = trusting(&[&own, &other]);
    trust.revocation.add_crl(&List::default().by(&ca)).unwrap();
    let mut listed = Answerer::new(trust);
    listed.set_policy("site", "remote", PeerPolicy::default());
    listed.inherit_examples(&answerer);
    assert!(revoked(&listed).is_some());
    // No path to an anchor that is not trusted any more counts.
    let mut without = trusting(&[&other]);
    without.revocation.add_crl(&List::default().by(&ca)).unwrap();
    let mut without = Answerer::new(without);
    without.set_policy("site", "remote", PeerPolicy::default());
    without.inherit_examples(&answerer);
    assert_eq!(revoked(&without), None);
}

/// An answerer that has accepted the peer, and the peer's path.
fn accepting(trust: TrustStore, ca: &Owner, lists: &[Vec<u8>]) -> (Answerer, Arc<[u8]>) {
    accepting_by(PeerPolicy::default(), trust, ca, lists)
}

/// As [`accepting`], by `policy`.
fn accepting_by(
    policy: PeerPolicy,
    mut trust: TrustStore,
    ca: &Owner,
    lists: &[Vec<u8>],
) -> (Answerer, Arc<[u8]>) {
    let peer = ca.peer();
    let shown = [x509(peer.der())];
    let accepted = verify_peer(&id("peer.example.org"), &shown, &policy, &trust, now()).unwrap();
    let path = accepted.shown().path.clone();
    let mut answerer = Answerer::new(trust.clone());
    answerer.set_policy("site", "remote", policy.clone());
    assert!(judged(&answerer, &[&peer]));
    for list in lists {
        trust.revocation.add_crl(list).unwrap();
    }
    let mut listed = Answerer::new(trust);
    listed.set_policy("site", "remote", policy);
    listed.inherit_examples(&answerer);
    (listed, path.as_ref().into())
}

/// `cacerts` names one CA and `ca_id` another: a peer of either may log in, and the lists of both count.
///
/// Fault: in `signers`, return `None` if none of `cacerts` is in the path.
#[test]
fn lists_count_for_a_path_that_ca_id_has_admitted_beside_cacerts() {
    let (ca, other) = (Owner::root("CA"), Owner::root("other"));
    let policy = PeerPolicy {
        cacerts: vec![Arc::clone(&other.certificate)],
        ca_id: Some(IdMatch::Exact(id("CN=CA"))),
        ..PeerPolicy::default()
    };
    let trust = || trusting(&[&ca, &other]);
    for (lists, revoked) in [(vec![List::default().by(&ca)], true), (vec![], false)] {
        let (answerer, path) = accepting_by(policy.clone(), trust(), &ca, &lists);
        let standings = answerer.standings(now()).revoked("site", &path);
        assert_eq!(standings.is_some(), revoked);
        let kind = RecordedKind::of_path(&path)[0];
        assert!(answerer.list_due("site", kind, now()).is_some());
    }
}

/// A login asks for a newer list first, since the certificate may have been on hold. Once there is none, the old one
/// decides.
///
/// Fault: in `Standings::standing`, take an outdated list for a current one.
#[test]
fn an_outdated_list_ends_no_sa_before_a_newer_one_is_asked_for() {
    let ca = Owner::root("CA");
    let old = List { next_update: Some(now() - DAY / 2), number: Some(2), ..List::default() };
    let (mut answerer, path) = accepting(trusting(&[&ca]), &ca, &[old.by(&ca)]);
    let standing = |answerer: &Answerer, free: bool| {
        answerer.standings(now()).standing("site", &path, &|url| free && url == URL)
    };
    let Standing::Outdated(fetch) = standing(&answerer, true) else { panic!("a fetch first") };
    assert_eq!((fetch.url.as_str(), &fetch.kind), (URL, &FetchKind::Crl));
    // The URL was asked just now, or has failed: there is no newer list to be had.
    assert!(matches!(standing(&answerer, false), Standing::Revoked(_)));
    let mut failed = answerer.clone();
    assert!(failed.deliver(&fetch, None, now()).is_err());
    assert!(matches!(standing(&failed, true), Standing::Revoked(_)));
    // The newer one says so too, or it does not.
    let mut again = answerer.clone();
    again.deliver(&fetch, Some(&List::default().by(&ca)), now()).unwrap();
    assert!(matches!(standing(&again, true), Standing::Revoked(_)));
    answerer.deliver(&fetch, Some(&List::empty().by(&ca)), now()).unwrap();
    assert!(matches!(standing(&answerer, true), Standing::Good));
}

/// Fault: in `Lists::due`, do not take a list for due where none is at hand.
#[test]
fn a_list_is_due_at_once_where_none_is_at_hand() {
    let ca = Owner::root("CA");
    let (mut answerer, path) = accepting(trusting(&[&ca]), &ca, &[]);
    let kind = RecordedKind::of_path(&path)[0];
    let due = |answerer: &Answerer, connection: &str| answerer.list_due(connection, kind, now());
    let first = due(&answerer, "site").expect("a list is due");
    assert!(first.is_at_once());
    assert!(due(&answerer, "removed").is_some(), "SAs of a connection that was removed stay up");
    let free = |answerer: &Answerer, free: bool| {
        answerer.list_again("site", kind, (&first, &|_| free), now())
    };
    assert!(free(&answerer, false).is_none());
    let fetch = free(&answerer, true).expect("a fetch");
    // Its nextUpdate decides then, and what was taken before is nothing new.
    let list = List::empty();
    answerer.deliver(&fetch, Some(&list.by(&ca)), now()).unwrap();
    assert_eq!(due(&answerer, "site").map(|due| due.at), list.next_update);
    let taken = answerer.lists_taken();
    let der = answerer.trust().revocation.crls().next().unwrap().der().unwrap().to_vec();
    answerer.deliver(&fetch, Some(&der), now()).unwrap();
    assert_eq!(answerer.lists_taken(), taken);
    let newer = List { number: Some(4), ..List::empty() };
    answerer.deliver(&fetch, Some(&newer.by(&ca)), now()).unwrap();
    assert_eq!(answerer.lists_taken(), taken + 1);
    // It is gone: a list is due again.
    answerer.trust_mut().revocation.flush(true, false);
    assert!(due(&answerer, "site").is_some_and(|due| due.is_at_once()));
    // One that does not say when there is another counts for an hour.
    let endless = List { next_update: None, ..List::default() };
    answerer.deliver(&fetch, Some(&endless.by(&ca)), now()).unwrap();
    assert_eq!(due(&answerer, "site").unwrap().at, now() + DAY / 24);
    // One from a file will do as long as it is current.
    let filed_kind = |next: SystemTime| {
        let list = List { next_update: Some(next), ..List::empty() };
        let (filed, path) = accepting(trusting(&[&ca]), &ca, &[list.by(&ca)]);
        filed.list_due("site", RecordedKind::of_path(&path)[0], now()).expect("it is due")
    };
    assert_eq!(filed_kind(now() + DAY).at, now() + DAY);
    assert!(filed_kind(now() - DAY / 4).is_at_once());
}

/// However many other peers come, what the judgement of a live SA needs stays.
///
/// Fault: in `Known::make_room`, let what is held go.
#[test]
fn examples_that_live_sas_depend_on_are_kept() {
    const MOST: usize = 1024;
    let ca = Owner::root("CA");
    let (answerer, path) = accepting(trusting(&[&ca]), &ca, &[]);
    let kinds = RecordedKind::of_path(&path);
    let is_known = || answerer.list_due("site", kinds[0], now()).is_some();
    let others = || {
        for n in 0..=MOST {
            let peer = ca.peer_with(vec![format!("http://ca.example.org/{n}.crl")]);
            assert!(judged(&answerer, &[&peer]));
        }
    };
    answerer.hold_examples(&kinds);
    others();
    assert!(is_known());
    answerer.release_examples(&kinds);
    others();
    assert!(!is_known(), "no SA depends on it any more");
    // If there is one again, it is told that the example has come.
    answerer.hold_examples(&kinds);
    let before = answerer.awaited_examples();
    assert!(judged(&answerer, &[&ca.peer()]));
    assert_eq!(answerer.awaited_examples(), before + 1);
    assert!(is_known());
}

const RESPONDER: &str = "http://ocsp.example.org/";

/// The responder's statement about the peer.
fn response(ca: &Owner, peer: &Certificate, revoked: bool, next: Option<SystemTime>) -> Vec<u8> {
    let scheme = issue::default_scheme(&*ca.key).unwrap();
    let responder = Issuer { key: &*ca.key, scheme, name: ca.certificate.subject() };
    let revoked = revoked.then(now);
    let status = CertificateStatus { certificate: peer, issuer: &ca.certificate, revoked };
    issue::ocsp_response(&responder, None, &[status], now() - DAY / 4, next).unwrap()
}

/// Where no list is named, a responder is asked at once, and again after its nextUpdate. What it says then decides, for
/// an SA of which the serial number alone is known.
///
/// Fault: in `RevocationStore::status_due`, leave `at_once` out; in `Responses::due`, leave the newest response out; in
/// `stand_in`, take another serial number.
#[test]
fn a_responder_is_due_again_after_its_next_update_and_revokes() {
    let ca = Owner::root("CA");
    let names = vec![id("peer.example.org")];
    let named = |serial: u8, crl: Vec<String>| Template {
        names: names.clone(),
        serial: vec![serial],
        ocsp: vec![RESPONDER.to_owned()],
        crl,
        ..template("peer")
    };
    let made = |template: &Template| ca.certify(template, key().public_key());
    let (peer, other) = (made(&named(SERIAL, vec![])), made(&named(SERIAL + 1, vec![])));
    let mut answerer = Answerer::new(trusting(&[&ca]));
    answerer.set_policy("site", "remote", PeerPolicy::default());
    let path_of = |peer: &Certificate| {
        let (shown, policy) = ([x509(peer.der())], PeerPolicy::default());
        let trust = trusting(&[&ca]);
        let accepted = verify_peer(&id("peer.example.org"), &shown, &policy, &trust, now());
        accepted.unwrap().shown().path.clone()
    };
    let path = path_of(&peer);
    let record = Record::of_path(&path)[0];
    let due = |answerer: &Answerer| answerer.status_due(&record, now());
    let again = |answerer: &Answerer| answerer.status_again(&record, &|_| true, now());
    assert!(due(&answerer).is_none(), "nothing of its kind is known");
    // Another peer of this CA has logged in.
    assert!(judged(&answerer, &[&other]));
    assert!(due(&answerer).is_some_and(|due| due.is_at_once()));
    assert!(answerer.status_again(&record, &|_| false, now()).is_none());
    let fetch: FetchRequest = again(&answerer).expect("a question");
    assert_eq!(fetch.url, RESPONDER);
    let FetchKind::Ocsp { request } = &fetch.kind else { panic!("a question to a responder") };
    assert_eq!(request.last(), Some(&SERIAL));
    // A failure is not repeated at once.
    let mut failed = answerer.clone();
    failed.deliver(&fetch, None, now()).unwrap_err();
    assert!(again(&failed).is_none());
    for (next, at) in [(Some(now() + DAY), now() + DAY), (None, now() + DAY * 3 / 4)] {
        let mut answered = answerer.clone();
        answered.deliver(&fetch, Some(&response(&ca, &peer, false, next)), now()).unwrap();
        assert_eq!(due(&answered).map(|due| due.at), Some(at));
    }
    let is_revoked = |answerer: &Answerer| {
        matches!(answerer.standings(now()).standing("site", &path, &|_| true), Standing::Revoked(_))
    };
    assert!(!is_revoked(&answerer));
    answerer.deliver(&fetch, Some(&response(&ca, &peer, true, None)), now()).unwrap();
    assert!(is_revoked(&answerer));
    // Where a list is at hand, it is fetched again, and no responder is asked.
    let listed = made(&named(SERIAL + 2, vec![URL.to_owned()]));
    let record = Record::of_path(&path_of(&listed))[0];
    assert!(judged(&answerer, &[&listed]));
    assert!(answerer.status_due(&record, now()).is_some_and(|due| due.is_at_once()));
    let due = answerer.list_due("site", record.kind, now()).expect("a URL is known");
    let fetch =
        answerer.list_again("site", record.kind, (&due, &|_| true), now()).expect("a fetch");
    let list = List { entries: Vec::new(), ..List::default() };
    answerer.deliver(&fetch, Some(&list.by(&ca)), now()).unwrap();
    assert!(answerer.status_due(&record, now()).is_none());
}

/// The responder of an authority may be named in certificates since some day alone, or have moved.
///
/// Fault: in `Examples::keep`, do not compare the URLs of responders.
#[test]
fn a_responder_that_newer_certificates_name_is_asked() {
    let ca = Owner::root("CA");
    let named = |serial: u8, ocsp: &[&str]| {
        let ocsp = ocsp.iter().map(|url| (*url).to_owned()).collect();
        let names = vec![id("peer.example.org")];
        let template = Template { names, serial: vec![serial], ocsp, ..template("peer") };
        ca.certify(&template, key().public_key())
    };
    let (old, new, moved) = (named(1, &[]), named(2, &[RESPONDER]), named(3, &["http://moved/"]));
    let mut answerer = Answerer::new(trusting(&[&ca]));
    answerer.set_policy("site", "remote", PeerPolicy::default());
    let (shown, policy) = ([x509(new.der())], PeerPolicy::default());
    let accepted =
        verify_peer(&id("peer.example.org"), &shown, &policy, &trusting(&[&ca]), now()).unwrap();
    let record = Record::of_path(&accepted.shown().path)[0];
    for (login, url) in [
        (&old, None),
        (&new, Some(RESPONDER)),
        (&old, Some(RESPONDER)),
        (&moved, Some("http://moved/")),
    ] {
        judged(&answerer, &[login]);
        let fetch = answerer.status_again(&record, &|_| true, now());
        assert_eq!(fetch.map(|fetch| fetch.url).as_deref(), url);
    }
}

/// A list of the CA revokes the delegate before its response arrives, or after that. Its response is refused, or counts
/// no more: the responder is asked again at once.
///
/// Fault: in `RevocationStore::answered_revoked`, `take_answer` or `status_due`, do not ask whether the delegate is
/// revoked.
#[test]
fn a_revoked_delegate_ends_no_sa() {
    let ca = Owner::root("CA");
    let delegate_key = key();
    let usage = vec!["1.3.6.1.5.5.7.3.9".to_owned()];
    let delegate = Template { extended_key_usage: usage, serial: vec![2], ..template("responder") };
    let delegate = ca.certify(&delegate, delegate_key.public_key());
    let ocsp = vec![RESPONDER.to_owned()];
    let names = vec![id("peer.example.org")];
    let peer = Template { names, serial: vec![SERIAL], ocsp, ..template("peer") };
    let peer = ca.certify(&peer, key().public_key());
    let scheme = issue::default_scheme(&*delegate_key).unwrap();
    let responder = Issuer { key: &*delegate_key, scheme, name: delegate.subject() };
    let (certificate, issuer) = (&*peer, &*ca.certificate);
    let status = CertificateStatus { certificate, issuer, revoked: Some(now()) };
    let says = issue::ocsp_response(&responder, Some(&delegate), &[status], now(), None).unwrap();
    let list = List { entries: vec![crate::lists::entry(2, &[])], ..List::default() }.by(&ca);
    for (before, after, ends) in [(false, false, true), (true, false, false), (false, true, false)]
    {
        let mut trust = trusting(&[&ca]);
        if before {
            trust.revocation.add_crl(&list).unwrap();
        }
        let mut answerer = Answerer::new(trust.clone());
        answerer.set_policy("site", "remote", PeerPolicy::default());
        assert!(judged(&answerer, &[&peer]));
        let (shown, policy) = ([x509(peer.der())], PeerPolicy::default());
        let accepted = verify_peer(&id("peer.example.org"), &shown, &policy, &trust, now());
        let path = accepted.unwrap().shown().path.clone();
        let record = Record::of_path(&path)[0];
        let fetch = answerer.status_again(&record, &|_| true, now()).expect("a question");
        let taken = answerer.deliver(&fetch, Some(&says), now());
        assert_eq!(matches!(taken, Err(LoadError::RevokedResponder)), before, "{taken:?}");
        assert_eq!(taken.is_err(), before);
        if after {
            answerer.trust_mut().revocation.add_crl(&list).unwrap();
        }
        let revoked = answerer.standings(now()).revoked("site", &path);
        assert_eq!(revoked.is_some(), ends, "{before} {after}");
        let due = answerer.status_due(&record, now()).expect("a responder is known");
        assert_eq!(due.is_at_once(), !ends);
    }
}

/// A ticket has resumed an SA after a restart: this end has accepted no certificate yet.
///
/// Fault: in `Answerer::own_example`, look for no certificate of this end, or make no stand-in; in `issuers_of`, end at
/// the CA itself.
#[test]
fn lists_about_an_sa_that_is_resumed_after_a_restart_are_due_at_once() {
    let root = Owner::root("root");
    let middle = root.sub_ca("middle", key(), 9);
    for (ca, links) in [(&root, vec![]), (&middle, vec![&middle])] {
        let peer = ca.peer();
        let mut trust = trusting(&[&root]);
        for link in &links {
            trust.add_intermediate((*link.certificate).clone()).unwrap();
        }
        let (shown, policy) = ([x509(peer.der())], PeerPolicy::default());
        let accepted = verify_peer(&id("peer.example.org"), &shown, &policy, &trust, now());
        let path = accepted.unwrap().shown().path.clone();
        let kind = RecordedKind::of_path(&path)[0];
        let restarted = |trust: TrustStore| {
            let mut answerer = Answerer::new(trust);
            answerer.set_policy("site", "remote", PeerPolicy::default());
            answerer
        };
        let due = |answerer: &Answerer| answerer.list_due("site", kind, now());
        let none = restarted(trust.clone());
        assert!(due(&none).is_none(), "no URL is known");
        // The URL is that of its own certificate, or of the CA's authority.
        let own_key = key();
        let template = Template { crl: vec![URL.to_owned()], ..template("gateway") };
        let own = ca.certify(&template, own_key.public_key());
        let mut with_own = restarted(trust.clone());
        let credential = Credential::new(own_key.into(), own, &[]).unwrap();
        with_own.add_credential("site", "local", credential);
        let mut with_authority = restarted(trust.clone());
        let authority = Authority {
            ca: Arc::clone(&ca.certificate),
            crl_uris: vec![URL.to_owned()],
            ocsp_uris: vec![RESPONDER.to_owned()],
            cert_uri_base: None,
        };
        with_authority.trust_mut().revocation.add_authority(authority).unwrap();
        for mut answerer in [with_own, with_authority] {
            let first = due(&answerer).expect("a URL is known");
            assert!(first.is_at_once());
            let fetch = answerer.list_again("site", kind, (&first, &|_| true), now());
            let fetch = fetch.expect("a fetch");
            assert_eq!((fetch.url.as_str(), &fetch.kind), (URL, &FetchKind::Crl));
            let list = List::default();
            answerer.deliver(&fetch, Some(&list.by(ca)), now()).unwrap();
            assert_eq!(due(&answerer).map(|due| due.at), list.next_update);
            let standing = answerer.standings(now()).standing("site", &path, &|_| true);
            assert!(matches!(standing, Standing::Revoked(_)), "{standing:?}");
        }
        // The same by OCSP alone.
        let mut responder = restarted(trust.clone());
        let authority = Authority {
            ca: Arc::clone(&ca.certificate),
            crl_uris: Vec::new(),
            ocsp_uris: vec![RESPONDER.to_owned()],
            cert_uri_base: None,
        };
        responder.trust_mut().revocation.add_authority(authority).unwrap();
        let record = Record::of_path(&path)[0];
        assert!(responder.status_due(&record, now()).is_some_and(|due| due.is_at_once()));
        let fetch = responder.status_again(&record, &|_| true, now()).expect("a question");
        responder.deliver(&fetch, Some(&response(ca, &peer, true, None)), now()).unwrap();
        assert!(responder.standings(now()).revoked("site", &path).is_some());
    }
}

/// A CA may publish two lists at one time, each for a part of its certificates. If each ends many SAs, there are two
/// lines.
///
/// Fault: in `Crl::describe`, leave the URL out.
#[test]
fn two_lists_of_one_time_are_told_apart() {
    let ca = Owner::root("CA");
    let by = |url: &str| {
        let extensions = vec![crate::lists::scope(&[crate::lists::place(url)])];
        let list = List { extensions, ..List::default() }.by(&ca);
        let (answerer, path) = accepting(trusting(&[&ca]), &ca, &[list]);
        answerer.standings(now()).revoked("site", &path).expect("it is revoked").by
    };
    assert_ne!(by(URL), by("http://ca.example.org/2.crl"));
    assert!(by(URL).ends_with(&format!(" for {URL:?}")));
}
