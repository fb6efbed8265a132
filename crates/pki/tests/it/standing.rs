//! Whether the path of a live SA still stands: the lists that count are those of the peer's own path.

use ike_proto::{Answer, OwnedCert, PeerCredentials, Question};
use pki::{Answerer, Certificate, PeerPolicy, verify_peer};

use crate::common::{id, now, x509};
use crate::lists::{List, Owner, SERIAL, key, template, trusting};

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
    let cross = pki::issue::Template { ca: true, serial: vec![4], ..template("CA") };
    let cross = namesake.certify(&cross, ca.key.public_key());
    let peer = ca.peer();
    let mut trust = trusting(&[&own, &other]);
    trust.revocation.add_crl(&List::default().by(&namesake)).unwrap();
    let policy = PeerPolicy::default();
    let shown = [x509(peer.der()), x509(ca.certificate.der())];
    let accepted = verify_peer(&id("peer.example.org"), &shown, &policy, &trust, now()).unwrap();
    let path = accepted.shown().expect("a certificate").path.clone();
    let mut answerer = Answerer::new(trust);
    answerer.set_policy("site", "remote", policy);
    assert!(judged(&answerer, &[&peer, &ca.certificate]));
    let revoked = |answerer: &Answerer| answerer.standings(now()).revoked("site", &path);
    assert_eq!(revoked(&answerer), None);
    // The stranger shows the other path with the peer's certificate, or with one of the namesake's own.
    let stranger = ca.certify(
        &pki::issue::Template {
            names: vec![id("peer.example.org")],
            serial: vec![SERIAL + 1],
            crl: vec![crate::lists::URL.to_owned()],
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
