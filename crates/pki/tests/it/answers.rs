//! OCSP responses that say different things, and those without nextUpdate.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ike_proto::wire::payload::Cert;
use ike_proto::wire::registry::CertEncoding;
use pki::issue::{self, CertificateStatus, Issuer, Template, ocsp_response};
use pki::{
    Authority, Certificate, FetchKind, FetchRequest, LoadError, PeerPolicy, PkiError, Revocation,
    RevocationPolicy, TrustStore, verify_peer,
};

use crate::common::{id, now, x509};
use crate::lists::{DAY, Owner, key, template, trusting};

const STRICT: RevocationPolicy = RevocationPolicy::Strict;
const URLS: [&str; 2] = ["http://one.example.org/", "http://two.example.org/"];

struct World {
    ca: Owner,
    /// A responder that the CA has certified.
    delegate: Owner,
    peer: Arc<Certificate>,
}

impl World {
    fn new() -> Self {
        let ca = Owner::root("CA");
        let names = vec![id("peer.example.org")];
        let peer = ca.certify(&Template { names, ..template("peer") }, key().public_key());
        let key = key();
        let usage = vec!["1.3.6.1.5.5.7.3.9".to_owned()];
        let template =
            Template { extended_key_usage: usage, serial: vec![2], ..template("responder") };
        let delegate = Owner { certificate: ca.certify(&template, key.public_key()), key };
        Self { ca, delegate, peer }
    }

    /// A response by `owner` about the peer, with these statuses: true for revoked.
    fn response(
        &self,
        owner: &Owner,
        revoked: &[bool],
        (this, next): (SystemTime, Option<SystemTime>),
    ) -> Vec<u8> {
        let scheme = issue::default_scheme(&*owner.key).unwrap();
        let name = owner.certificate.subject();
        let responder = Issuer { key: &*owner.key, scheme, name };
        let delegate = (owner.certificate != self.ca.certificate).then_some(&*owner.certificate);
        let status = |revoked: &bool| CertificateStatus {
            certificate: &self.peer,
            issuer: &self.ca.certificate,
            revoked: revoked.then(|| now() - 9 * DAY),
        };
        let statuses: Vec<_> = revoked.iter().map(status).collect();
        ocsp_response(&responder, delegate, &statuses, this, next).unwrap()
    }

    fn trust(&self) -> TrustStore {
        let mut trust = trusting(&[&self.ca]);
        let ocsp_uris = URLS.map(str::to_owned).to_vec();
        let ca = Arc::clone(&self.ca.certificate);
        let authority = Authority { ca, crl_uris: Vec::new(), ocsp_uris, cert_uri_base: None };
        trust.revocation.add_authority(authority).unwrap();
        trust
    }

    /// What becomes of the peer, which sends `sent` along; `Ok(false)` if something is to be fetched.
    fn verdict(&self, trust: &TrustStore, sent: &[&[u8]]) -> Result<bool, PkiError> {
        let policy = PeerPolicy { revocation: STRICT, ocsp: true, ..PeerPolicy::default() };
        let sent = sent.iter().map(|data| Cert { encoding: CertEncoding::OCSP, data });
        let certs: Vec<_> = [x509(self.peer.der())].into_iter().chain(sent).collect();
        let peer = verify_peer(&id("peer.example.org"), &certs, &policy, trust, now())?;
        Ok(matches!(peer.revocation, Revocation::Settled))
    }

    /// What is to be fetched; from a responder first.
    fn requests(&self, trust: &TrustStore) -> Vec<FetchRequest> {
        let policy = PeerPolicy { revocation: STRICT, ..PeerPolicy::default() };
        let certs = [x509(self.peer.der())];
        let peer = verify_peer(&id("peer.example.org"), &certs, &policy, trust, now()).unwrap();
        let Revocation::Pending(requests) = peer.revocation else { panic!("nothing to fetch") };
        assert!(matches!(requests[0].kind, FetchKind::Ocsp { .. }));
        requests
    }

    /// Delivers the answer of the first responder that is still to be asked.
    fn fetch(&self, trust: &mut TrustStore, body: &[u8]) -> Result<(), LoadError> {
        let requests = self.requests(trust);
        trust.revocation.deliver(&requests[0], Some(body), now())
    }
}

fn is_revoked(verdict: Result<bool, PkiError>) -> bool {
    matches!(verdict, Err(PkiError::Revoked { .. }))
}

/// Fault: in `ocsp::read`, take the first answer about the certificate.
#[test]
fn of_two_answers_in_one_response_the_worse_counts() {
    let world = World::new();
    let times = (now() - DAY / 2, Some(now() + DAY));
    for statuses in [[false, true], [true, false]] {
        let response = world.response(&world.ca, &statuses, times);
        let mut trust = world.trust();
        assert!(is_revoked(world.verdict(&trust, &[&response])), "{statuses:?}, sent along");
        assert_eq!(world.fetch(&mut trust, &response), Ok(()));
        assert!(is_revoked(world.verdict(&trust, &[])), "{statuses:?}, fetched");
    }
}

/// Fault: in `RevocationStore::answered`, take away `newest`; in `OcspAnswer::is_about_same`, leave the responder out.
#[test]
fn of_one_responder_the_newest_answer_counts_and_of_several_the_worst() {
    let world = World::new();
    let (early, late) = ((now() - 2 * DAY, Some(now() + DAY)), (now() - DAY, Some(now() + DAY)));
    let (ca, delegate) = (&world.ca, &world.delegate);
    let held = world.response(ca, &[true], early);
    let lifted = world.response(ca, &[false], late);
    assert_eq!(world.verdict(&world.trust(), &[&held, &lifted]), Ok(true));
    assert!(is_revoked(world.verdict(&world.trust(), &[&held])));
    let by_other = world.response(delegate, &[true], early);
    assert!(is_revoked(world.verdict(&world.trust(), &[&lifted, &by_other])));
    // One fetched, and one sent along.
    let mut trust = world.trust();
    assert_eq!(world.fetch(&mut trust, &lifted), Ok(()));
    assert_eq!(world.verdict(&trust, &[&held]), Ok(true));
    assert!(is_revoked(world.verdict(&trust, &[&by_other])));
    assert_eq!(world.verdict(&trust, &[]), Ok(true));
}

/// Fault: in `OcspAnswer::good_until`, take five minutes; in `Single::answer`, refuse an old answer that revokes.
#[test]
fn an_answer_without_next_update_is_good_for_a_day_and_revokes_without_end() {
    let world = World::new();
    let hours = |hours: u32| (now() - Duration::from_secs(3600) * hours, None);
    for (age, taken) in [(0, Ok(())), (23, Ok(())), (25, Err(LoadError::Stale))] {
        let mut trust = world.trust();
        let response = world.response(&world.ca, &[false], hours(age));
        assert_eq!(world.fetch(&mut trust, &response), taken, "{age}");
        assert_eq!(world.verdict(&trust, &[]), Ok(taken.is_ok()), "{age}");
    }
    let mut trust = world.trust();
    let response = world.response(&world.ca, &[true], hours(9000));
    assert_eq!(world.fetch(&mut trust, &response), Ok(()));
    assert!(is_revoked(world.verdict(&trust, &[])));
}

/// Fault: in `OcspAnswer::outranks`, do not ask whether the answer is from the future; in `Responses::take`, let one of
/// the future take the place of another.
#[test]
fn an_answer_from_the_future_revokes_but_outranks_none() {
    let world = World::new();
    let future = (now() + DAY, Some(now() + 3 * DAY));
    let present = (now() - DAY, Some(now() + DAY));
    let (good, bad) =
        (world.response(&world.ca, &[false], present), world.response(&world.ca, &[true], future));
    assert!(is_revoked(world.verdict(&world.trust(), &[&good, &bad])));
    let mut trust = world.trust();
    assert_eq!(world.fetch(&mut trust, &bad), Ok(()));
    assert!(is_revoked(world.verdict(&trust, &[])));
    // The answer of today stands when the time of the other has come: it is the older one then.
    assert!(is_revoked(world.verdict(&trust, &[&good])));
    // Both are kept, in whatever order they come.
    let request = world.requests(&world.trust()).remove(0);
    for first_good in [true, false] {
        let mut trust = world.trust();
        let mut bodies = [&bad, &good];
        if first_good {
            bodies.reverse();
        }
        for body in bodies {
            assert_eq!(trust.revocation.deliver(&request, Some(body), now()), Ok(()));
        }
        assert!(is_revoked(world.verdict(&trust, &[])));
    }
    let revoked_today = world.response(&world.ca, &[true], present);
    let cleared = world.response(&world.ca, &[false], future);
    let mut trust = world.trust();
    assert_eq!(world.fetch(&mut trust, &revoked_today), Ok(()));
    assert!(is_revoked(world.verdict(&trust, &[&cleared])));
}

/// Fault: in `RevocationStore::answered` or `take_answer`, do not ask whether the delegate is revoked.
#[test]
fn a_delegate_on_the_list_of_its_issuer_says_nothing() {
    let world = World::new();
    let times = (now() - DAY / 2, Some(now() + DAY));
    let good = world.response(&world.delegate, &[false], times);
    let mut trust = world.trust();
    assert_eq!(world.verdict(&trust, &[&good]), Ok(true));
    // The serial number of the delegate's certificate is 2.
    let list = crate::lists::List {
        entries: vec![crate::lists::entry(2, &[])],
        next_update: Some(now() - DAY / 2),
        ..crate::lists::List::default()
    };
    trust.revocation.add_crl(&list.by(&world.ca)).unwrap();
    assert_eq!(world.verdict(&trust, &[&good]), Ok(false));
    assert_eq!(world.fetch(&mut trust, &good), Err(LoadError::RevokedResponder));
    assert_ne!(world.verdict(&trust, &[]), Ok(true));
}
