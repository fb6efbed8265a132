//! OCSP responses in CERT payloads (RFC 4806): what a peer's count for, and what this end sends.

use std::slice;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ike_proto::config::CertRequest;
use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::wire::payload::Cert;
use ike_proto::wire::registry::CertEncoding;
use ike_proto::{Answer, OwnedCert, PeerCredentials, Question, SignRequest};
use pki::issue::{CertificateStatus, Issuer, Template, ocsp_response};
use pki::{
    Answerer, Authority, Certificate, Credential, LoadError, PeerPolicy, Revocation,
    RevocationPolicy, TrustStore, verify_peer,
};

use crate::common::{certificate, fixture, id, now, shared, trusting, x509};

const P256: SignatureScheme = SignatureScheme::EcdsaP256Sha256;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// `revocation = strict` and `ocsp = request`.
fn strict() -> PeerPolicy {
    PeerPolicy { revocation: RevocationPolicy::Strict, ocsp: true, ..PeerPolicy::default() }
}

fn response(octets: Vec<u8>) -> OwnedCert {
    OwnedCert { encoding: CertEncoding::OCSP, data: octets }
}

fn response_named(name: &str) -> OwnedCert {
    response(fixture(&format!("{name}.der")))
}

/// A peer that shows the certificate `ocsp` and sends `responses` along.
fn peer(responses: Vec<OwnedCert>) -> PeerCredentials {
    let own = OwnedCert::from(x509(certificate("ocsp").der()));
    PeerCredentials {
        connection: "site".to_owned(),
        round: "remote".to_owned(),
        id: id("ocsp.example.org"),
        certs: [own].into_iter().chain(responses).collect(),
        chain: Default::default(),
    }
}

fn judging(policy: PeerPolicy) -> Answerer {
    let mut answerer = Answerer::new(trusting(&["root"]));
    answerer.set_policy("site", "remote", policy);
    answerer
}

/// What comes of it after the signature, when nothing can be fetched.
fn settled(answerer: &Answerer, peer: &PeerCredentials) -> Result<(), String> {
    match answerer.answer(&Question::Revocation(peer.clone()), now()) {
        Answer::Key(key) => {
            assert!(!key.revocation_pending);
            Ok(())
        }
        Answer::Untrusted(_, why) => Err(why),
        other => panic!("{other:?}"),
    }
}

/// How many things would be fetched.
fn fetches(answerer: &Answerer, peer: &PeerCredentials) -> usize {
    answerer.fetches(peer, now()).len()
}

#[test]
fn a_valid_response_of_the_peer_is_enough_and_nothing_is_fetched() {
    for name in ["ocsp-good", "ocsp-delegated"] {
        let answerer = judging(strict());
        let peer = peer(vec![response_named(name)]);
        assert_eq!((fetches(&answerer, &peer), settled(&answerer, &peer)), (0, Ok(())), "{name}");
        // It counts for this exchange alone.
        let without = self::peer(Vec::new());
        assert_eq!(fetches(&answerer, &without), 1);
        assert!(settled(&answerer, &without).unwrap_err().contains("not known"));
    }
    let revoked = peer(vec![response_named("ocsp-revoked")]);
    for policy in [RevocationPolicy::Strict, RevocationPolicy::Relaxed] {
        let why = settled(&judging(PeerPolicy { revocation: policy, ..strict() }), &revoked);
        assert!(why.unwrap_err().contains("revoked"));
    }
    // A good one does not outweigh a bad one, wherever that is from.
    let both = peer(vec![response_named("ocsp-good"), response_named("ocsp-revoked")]);
    assert!(settled(&judging(strict()), &both).unwrap_err().contains("revoked"));
    let mut listed = judging(strict());
    let request = listed.fetches(&peer(Vec::new()), now()).remove(0);
    listed.deliver(&request, Some(&fixture("ocsp-revoked.der")), now()).unwrap();
    let good = peer(vec![response_named("ocsp-good")]);
    assert!(settled(&listed, &good).unwrap_err().contains("revoked"));
}

#[test]
fn what_is_not_valid_is_as_if_it_had_not_come() {
    let junk = [
        "ocsp-not-delegated",
        "ocsp-forged",
        "ocsp-badsig",
        "ocsp-unknown",
        "ocsp-short",
        "ocsp-no-next",
        "ocsp-request",
    ];
    let mut all: Vec<_> = junk.iter().map(|name| response_named(name)).collect();
    all.extend([Vec::new(), vec![0x30, 3, 0x0a, 1, 3], vec![0xff; 2000]].map(response));
    for one in &all {
        let answerer = judging(strict());
        let peer = peer(vec![one.clone()]);
        assert_eq!(fetches(&answerer, &peer), 1, "{one:?}");
        assert!(settled(&answerer, &peer).is_err(), "{one:?}");
    }
    // About another certificate of the same CA.
    let answerer = judging(strict());
    let mut other = peer(vec![response_named("ocsp-good")]);
    other.certs[0] = OwnedCert::from(x509(certificate("cdp").der()));
    other.id = id("cdp.example.org");
    assert!(settled(&answerer, &other).is_err());
    // As many as the message holds cost no certificate its place, and what is beyond the first is not looked at.
    let mut many = peer(vec![response(vec![0x30, 0]); 40]);
    assert_eq!(fetches(&answerer, &many), 1);
    many.certs.push(response_named("ocsp-good"));
    assert_eq!(fetches(&answerer, &many), 1);
    many.certs.truncate(5);
    many.certs.push(response_named("ocsp-good"));
    assert_eq!(settled(&answerer, &many), Ok(()));
    // Nor does it come before the peer's own certificate by coming first.
    many.certs.rotate_right(1);
    assert_eq!(settled(&answerer, &many), Ok(()));
    let huge = peer(vec![response(vec![0; pki::MAX_CERTS_LEN])]);
    assert!(settled(&answerer, &huge).unwrap_err().contains("octets"));
}

/// Every octet of bad news matters or is outside what is looked at.
#[test]
fn changed_responses_are_never_better() {
    let answerer = judging(strict());
    let original = fixture("ocsp-revoked.der");
    for at in 0..original.len() {
        let mut changed = original.clone();
        changed[at] ^= 1;
        assert!(settled(&answerer, &peer(vec![response(changed)])).is_err(), "octet {at}");
    }
}

#[test]
fn what_was_not_asked_for_does_not_count() {
    let unasked = judging(PeerPolicy { ocsp: false, ..strict() });
    let peer = peer(vec![response_named("ocsp-good")]);
    assert_eq!(fetches(&unasked, &peer), 1);
    assert!(settled(&unasked, &peer).is_err());
}

/// Whose certificate it is, is not known before the signature: nothing is verified for a stranger.
#[test]
fn responses_wait_for_the_signature() {
    for (name, strictly) in [("ocsp-good", true), ("ocsp-badsig", true), ("ocsp-revoked", false)] {
        let policy = if strictly { RevocationPolicy::Strict } else { RevocationPolicy::Relaxed };
        let answerer = judging(PeerPolicy { revocation: policy, ..strict() });
        let question = Question::Judge(peer(vec![response_named(name)]));
        assert!(answerer.is_quick(&question));
        match answerer.answer(&question, now()) {
            Answer::Key(key) => assert!(key.revocation_pending, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// RFC 4806 §6: the required freshness is configurable.
#[test]
fn responses_may_be_too_old_before_their_time() {
    let shown = peer(vec![response_named("ocsp-good")]);
    let certs: Vec<_> = shown.certs.iter().map(OwnedCert::as_cert).collect();
    let known = |max_age: Duration, at: SystemTime| {
        let policy = PeerPolicy { ocsp_max_age: max_age, ..strict() };
        let trust = trusting(&["root"]);
        let peer = verify_peer(&shown.id, &certs, &policy, &trust, at).expect("a good path");
        matches!(peer.revocation, Revocation::Settled)
    };
    assert!(known(Duration::ZERO, now()));
    assert!(known(100 * 365 * DAY, now()));
    // The fixture was made years before.
    assert!(!known(DAY, now()));
    // Bad news has no age.
    let revoked = peer(vec![response_named("ocsp-revoked")]);
    let answerer = judging(PeerPolicy { ocsp_max_age: DAY, ..strict() });
    assert!(settled(&answerer, &revoked).unwrap_err().contains("revoked"));
}

/// RFC 6960 §4.2.2.2: by a local configuration, another may speak for the CA. The fixtures have one that the CA
/// has certified, but not for that, and one that it has.
#[test]
fn a_responder_that_is_trusted_here_needs_no_certificate_of_the_ca() {
    let (response, responder) = (fixture("ocsp-forged.der"), shared("impostor"));
    let mut answerer = judging(strict());
    let refused = answerer.trust_mut().revocation.add_responder(responder);
    assert_eq!(refused, Err(LoadError::NotResponder));
    let peer = peer(vec![self::response(response)]);
    assert!(settled(&answerer, &peer).is_err());

    let key = pki::files::load_private_key(&fixture("moon.key"), None).unwrap();
    let name = pki::issue::distinguished_name("CN=responder").unwrap();
    let issuer = Issuer { key: &*key, scheme: P256, name: &name };
    let root = certificate("root");
    let status =
        CertificateStatus { certificate: &certificate("ocsp"), issuer: &root, revoked: None };
    let response = ocsp_response(&issuer, None, &[status], now() - DAY, Some(now() + DAY)).unwrap();
    let peer = self::peer(vec![self::response(response)]);
    for (until, good) in [(now() + DAY, true), (now() - DAY, false)] {
        let template = Template {
            subject: name.clone(),
            not_after: until,
            extended_key_usage: vec!["1.3.6.1.5.5.7.3.9".to_owned()],
            ..Template::default()
        };
        let responder = pki::issue::certificate(&template, key.public_key(), &issuer).unwrap();
        let responder = Arc::new(Certificate::from_der(&responder).unwrap());
        let mut answerer = judging(strict());
        assert!(settled(&answerer, &peer).is_err());
        answerer.trust_mut().revocation.add_responder(Arc::clone(&responder)).unwrap();
        assert_eq!(settled(&answerer, &peer).is_ok(), good);
        let requests = answerer.certreqs("site", "remote");
        assert_eq!(requests[1].encoding, CertEncoding::OCSP);
        assert_eq!(requests[1].authorities, pki::ca_hash(responder.spki()));
    }
}

/// A CA whose key is here.
struct Made {
    key: Box<dyn SigningKey>,
    name: Vec<u8>,
    root: Certificate,
}

fn made_key() -> Box<dyn SigningKey> {
    let der = pq_kem::sign::generate(pq_kem::sign::KeyType::Scheme(P256)).unwrap();
    pq_kem::sign::load_private_key(&der).unwrap()
}

impl Made {
    fn new() -> Self {
        let name = pki::issue::distinguished_name("CN=made").unwrap();
        let (key, root) = (made_key(), certificate("root"));
        let mut this = Self { key, name, root };
        let template = Template { subject: this.name.clone(), ca: true, ..Template::default() };
        this.root = this.issue(template, this.key.public_key());
        this
    }

    fn issuer(&self) -> Issuer<'_> {
        Issuer { key: &*self.key, scheme: P256, name: &self.name }
    }

    fn issue(&self, template: Template, spki: &[u8]) -> Certificate {
        let template = Template { not_after: now() + DAY, ..template };
        let der = pki::issue::certificate(&template, spki, &self.issuer()).unwrap();
        Certificate::from_der(&der).unwrap()
    }

    /// Of made.example.org.
    fn own(&self, key: &dyn SigningKey) -> Certificate {
        let names = vec![id("made.example.org")];
        let ocsp = vec!["http://ocsp.example.org/".to_owned()];
        let template = Template { names, ocsp, serial: vec![7], ..Template::default() };
        self.issue(template, key.public_key())
    }

    fn trust(&self) -> TrustStore {
        let mut trust = TrustStore::new();
        trust.add_ca(self.root.clone()).unwrap();
        trust
    }
}

/// By the CA, by a delegate, and by one that is none.
#[test]
fn responses_that_are_made_here_are_read_here() {
    let (ca, key) = (Made::new(), made_key());
    let own = ca.own(&*key);
    let name = pki::issue::distinguished_name("CN=delegate").unwrap();
    let delegate = |usage: &str| {
        let (subject, extended_key_usage) = (name.clone(), vec![usage.to_owned()]);
        ca.issue(Template { subject, extended_key_usage, ..Template::default() }, key.public_key())
    };
    let delegates = [delegate("1.3.6.1.5.5.7.3.9"), delegate("1.3.6.1.5.5.7.3.1")];
    let status = CertificateStatus { certificate: &own, issuer: &ca.root, revoked: None };
    let signer = Issuer { key: &*key, scheme: P256, name: &name };
    for (signer, delegate, good) in [
        (&ca.issuer(), None, true),
        (&signer, Some(&delegates[0]), true),
        (&signer, Some(&delegates[1]), false),
        (&signer, None, false),
    ] {
        let response = ocsp_response(signer, delegate, &[status], now() - DAY, Some(now() + DAY));
        let response = response.unwrap();
        let shown = [x509(own.der()), Cert { encoding: CertEncoding::OCSP, data: &response }];
        let peer = verify_peer(&id("made.example.org"), &shown, &strict(), &ca.trust(), now());
        // If not, the responder is to be asked.
        let settled = matches!(peer.unwrap().revocation, Revocation::Settled);
        assert_eq!(settled, good);
    }
}

#[test]
fn who_wants_responses_asks_for_them_where_certificates_are_asked_for() {
    let encodings = |policy: PeerPolicy, trust: TrustStore| -> Vec<CertEncoding> {
        let mut answerer = Answerer::new(trust);
        answerer.set_policy("site", "remote", policy);
        let requests = answerer.certreqs("site", "remote");
        let ocsp = requests.iter().filter(|request| request.encoding == CertEncoding::OCSP);
        // RFC 4806 §4.1: separate from others; and it names nobody.
        ocsp.for_each(|request| assert!(request.authorities.is_empty()));
        requests.iter().map(|request| request.encoding).collect()
    };
    let [x509, ocsp] = [CertEncoding::X509_SIGNATURE, CertEncoding::OCSP];
    assert_eq!(encodings(strict(), trusting(&["root"])), [x509, ocsp]);
    assert_eq!(encodings(PeerPolicy::default(), trusting(&["root"])), [x509]);
    assert_eq!(encodings(strict(), TrustStore::new()), []);
    let pubkeys =
        vec![pki::RawKey { id: id("ocsp.example.org"), spki: certificate("ocsp").spki().to_vec() }];
    let raw = PeerPolicy { pubkeys, ..strict() };
    assert_eq!(encodings(raw, trusting(&["root"])), [CertEncoding::RAW_PUBLIC_KEY]);
}

// What this end sends.

/// A key that is that of a fixture's certificate; its signatures are worth nothing.
#[derive(Debug)]
struct Key(Vec<u8>);

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &[SignatureScheme::EcdsaP256Sha256]
    }

    fn public_key(&self) -> &[u8] {
        &self.0
    }

    fn sign(
        &self,
        _: &SignatureScheme,
        _: &[u8],
    ) -> Result<Vec<u8>, ike_proto::crypto::CryptoError> {
        Ok(vec![0; 70])
    }
}

/// This end shows NAME.pem in the connections "site", which replies, "other", which does not, and "both", which
/// fetches ahead.
fn showing(name: &str) -> Answerer {
    let mut answerer = Answerer::new(trusting(&["root"]));
    let own = shared(name);
    let key = Arc::new(Key(own.spki().to_vec()));
    for connection in ["site", "other", "both"] {
        let credential = Credential::new(key.clone(), Arc::clone(&own), &[]).unwrap();
        answerer.add_credential(connection, "local", credential);
    }
    answerer.reply_by_ocsp("site", false);
    answerer
}

fn request(connection: &str, name: &str, wanted: &[CertEncoding]) -> SignRequest {
    let scheme = SignatureScheme::EcdsaP256Sha256;
    let accepted = ike_proto::AcceptedScheme { scheme, authorities: Vec::new() };
    let wanted = wanted.iter();
    let wanted =
        wanted.map(|encoding| CertRequest { encoding: *encoding, authorities: Vec::new() });
    SignRequest {
        connection: connection.to_owned(),
        round: "local".to_owned(),
        id: id(&format!("{name}.example.org")),
        requests: wanted.collect(),
        hash_and_url: false,
        schemes: vec![accepted],
        announced: false,
        octets: Vec::new(),
    }
}

fn asking(connection: &str, name: &str) -> SignRequest {
    request(connection, name, &[CertEncoding::X509_SIGNATURE, CertEncoding::OCSP])
}

fn sent(answerer: &Answerer, request: SignRequest, at: SystemTime) -> Vec<OwnedCert> {
    match answerer.answer(&Question::Sign(request), at) {
        Answer::Signed(signed) => signed.certs,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_gets_what_was_fetched() {
    let answerer = showing("ocsp");
    let own = OwnedCert::from(x509(certificate("ocsp").der()));
    // Nothing is fetched for who does not ask, or where it is not configured.
    let only_x509 = request("site", "ocsp", &[CertEncoding::X509_SIGNATURE]);
    assert!(answerer.status_fetches(&only_x509, now()).is_empty());
    assert!(answerer.status_fetches(&asking("other", "ocsp"), now()).is_empty());
    let fetch = answerer.status_fetches(&asking("site", "ocsp"), now()).lacking.remove(0);
    assert_eq!(fetch.requests[0].url, "http://ocsp.example.org/");
    assert_eq!(sent(&answerer, asking("site", "ocsp"), now()), slice::from_ref(&own), "without it");

    let good = fixture("ocsp-good.der");
    let status = answerer.own_status();
    assert_eq!(answerer.deliver_status(&fetch.requests[0], &good, now()), Ok(false));
    assert!(!status.is_due(&fetch, now()));
    assert!(answerer.status_fetches(&asking("site", "ocsp"), now()).is_empty());
    let expected = [own.clone(), response(good.clone())];
    assert_eq!(sent(&answerer, asking("site", "ocsp"), now()), expected);
    assert_eq!(sent(&answerer, request("site", "ocsp", &[CertEncoding::OCSP]), now()), expected);
    for other in [asking("other", "ocsp"), request("site", "ocsp", &[CertEncoding::X509_SIGNATURE])]
    {
        assert_eq!(sent(&answerer, other, now()), slice::from_ref(&own));
    }
    // It is renewed while it is good, and not sent when it is not.
    let half = now() + 365 * 6 * DAY;
    let fetches = answerer.status_fetches(&asking("site", "ocsp"), half);
    assert_eq!((fetches.aging.len(), fetches.lacking.len()), (1, 0));
    assert_eq!(sent(&answerer, asking("site", "ocsp"), half).len(), 2);
    let late = now() + 365 * 14 * DAY;
    let fetches = answerer.status_fetches(&asking("site", "ocsp"), late);
    assert_eq!((fetches.aging.len(), fetches.lacking.len()), (0, 1));
    assert_eq!(sent(&answerer, asking("site", "ocsp"), late), [own]);
    // A new configuration keeps it; one without the certificate does not.
    let mut next = showing("ocsp");
    next.inherit_status(&answerer);
    assert_eq!(sent(&next, asking("site", "ocsp"), now()), expected);
    let mut without = showing("moon");
    without.inherit_status(&next);
    assert!(next.own_status().response(&certificate("ocsp"), now()).is_none());
}

#[test]
fn what_is_of_no_use_is_not_sent_and_not_asked_for_again_soon() {
    let answerer = showing("ocsp");
    let fetch = answerer.status_fetches(&asking("site", "ocsp"), now()).lacking.remove(0);
    let status = answerer.own_status();
    for (name, why) in [
        ("ocsp-forged", LoadError::Signature),
        ("ocsp-badsig", LoadError::Signature),
        ("ocsp-short", LoadError::Stale),
        ("ocsp-unknown", LoadError::Nothing("answer about this certificate")),
    ] {
        let refused =
            answerer.deliver_status(&fetch.requests[0], &fixture(&format!("{name}.der")), now());
        assert_eq!(refused, Err(why));
        assert!(status.is_due(&fetch, now()), "another responder may do better");
    }
    let mut at = now();
    for wait in [1, 2, 4, 8, 16, 32, 64, 64] {
        status.failed(&fetch, at);
        assert!(answerer.status_fetches(&asking("site", "ocsp"), at).is_empty());
        at += Duration::from_secs(wait * 60);
        assert!(!status.is_due(&fetch, at - Duration::from_secs(1)), "{wait} minutes");
        assert!(status.is_due(&fetch, at));
    }
    assert_eq!(sent(&answerer, asking("site", "ocsp"), now()).len(), 1);
    // Bad news is told as well; an older answer does not replace it.
    assert_eq!(
        answerer.deliver_status(&fetch.requests[0], &fixture("ocsp-revoked.der"), now()),
        Ok(true)
    );
    assert_eq!(sent(&answerer, asking("site", "ocsp"), now()).len(), 2);
    let replayed = answerer.deliver_status(&fetch.requests[0], &fixture("ocsp-good.der"), now());
    assert_eq!(replayed, Err(LoadError::Stale));
    status.clear();
    assert_eq!(sent(&answerer, asking("site", "ocsp"), now()).len(), 1);
}

/// Fault: in `OwnStatus::due`, look at `until` alone.
#[test]
fn a_clock_that_is_set_back_delays_no_response() {
    let answerer = showing("ocsp");
    let fetch = answerer.status_fetches(&asking("site", "ocsp"), now()).lacking.remove(0);
    let status = answerer.own_status();
    // Two years ahead nothing that comes is of use.
    status.failed(&fetch, now() + 700 * DAY);
    assert!(!status.is_due(&fetch, now() + 700 * DAY), "not at once");
    assert!(status.is_due(&fetch, now()));
    // What is had is renewed, and sent meanwhile.
    let ahead = now() + 7 * DAY;
    answerer.deliver_status(&fetch.requests[0], &fixture("ocsp-good.der"), ahead).unwrap();
    assert!(answerer.status_fetches(&asking("site", "ocsp"), ahead).is_empty());
    let back = answerer.status_fetches(&asking("site", "ocsp"), now());
    assert_eq!((back.aging.len(), back.lacking.len()), (1, 0));
    assert_eq!(sent(&answerer, asking("site", "ocsp"), now()).len(), 2);
}

#[test]
fn what_is_wanted_ahead_or_was_wanted_once_is_renewed() {
    let mut answerer = showing("ocsp");
    assert!(answerer.status_ahead(now()).0.is_empty(), "nobody has asked");
    answerer.reply_by_ocsp("both", true);
    let (mut fetches, next) = answerer.status_ahead(now());
    assert_eq!((fetches.len(), next), (1, None), "once, though two connections have it");
    let fetch = fetches.remove(0);
    answerer.deliver_status(&fetch.requests[0], &fixture("ocsp-good.der"), now()).unwrap();
    let (fetches, next) = answerer.status_ahead(now());
    assert!(fetches.is_empty());
    let renew = next.expect("a time");
    assert!(renew > now() + DAY);
    let mut later = showing("ocsp");
    later.inherit_status(&answerer);
    assert_eq!(later.status_ahead(renew).0.len(), 1, "also where it waited for somebody to ask");
}

/// What is good for half a minute is had when it is asked for.
#[test]
fn what_does_not_last_is_not_renewed() {
    let (ca, key) = (Made::new(), made_key());
    let own = ca.own(&*key);
    let mut answerer = Answerer::new(ca.trust());
    let credential = Credential::new(Arc::from(key), Arc::new(own.clone()), &[]).unwrap();
    answerer.add_credential("site", "local", credential);
    answerer.reply_by_ocsp("site", true);
    let asking = || asking("site", "made");
    let fetch = answerer.status_fetches(&asking(), now()).lacking.remove(0);
    let status = CertificateStatus { certificate: &own, issuer: &ca.root, revoked: None };
    let response = ocsp_response(&ca.issuer(), None, &[status], now(), None).unwrap();
    answerer.deliver_status(&fetch.requests[0], &response, now()).unwrap();
    assert_eq!(sent(&answerer, asking(), now()).len(), 2);
    let later = now() + Duration::from_secs(31);
    assert!(answerer.status_ahead(later).0.is_empty());
    assert_eq!(answerer.status_fetches(&asking(), later).lacking.len(), 1);
    assert_eq!(sent(&answerer, asking(), later).len(), 1);
}

/// A certificate without a responder has one by its CA's authority; without an issuer there is nobody to ask.
#[test]
fn responders_are_those_of_the_certificate_and_of_the_authority() {
    let mut answerer = showing("moon");
    assert!(answerer.status_fetches(&asking("site", "moon"), now()).is_empty());
    let authority = Authority {
        ca: shared("root"),
        crl_uris: Vec::new(),
        ocsp_uris: vec!["http://ca.example.org/ocsp".to_owned()],
        cert_uri_base: None,
    };
    answerer.trust_mut().revocation.add_authority(authority).unwrap();
    let fetches = answerer.status_fetches(&asking("site", "moon"), now());
    assert_eq!(fetches.lacking[0].requests[0].url, "http://ca.example.org/ocsp");
    let mut unknown = Answerer::new(trusting(&["rsa-root"]));
    let key = Arc::new(Key(shared("ocsp").spki().to_vec()));
    unknown.add_credential("site", "local", Credential::new(key, shared("ocsp"), &[]).unwrap());
    unknown.reply_by_ocsp("site", true);
    assert!(unknown.status_fetches(&asking("site", "ocsp"), now()).is_empty());
    assert!(unknown.status_ahead(now()).0.is_empty());
}
