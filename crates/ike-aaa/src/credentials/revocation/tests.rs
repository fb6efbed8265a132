use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use ::pki::issue::{self, Issuer, RevokedEntry, Template};
use ::pki::{Credential, PeerPolicy, RecordedKind};
use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::CertEncoding;
use ike_proto::{Distrust, OwnedCert, Question};
use ike_tokio::Answerer as _;
use pq_kem::sign::{KeyType, generate, load_private_key};

use super::*;
use crate::eap::EapConfig;
use crate::fetch::{Fetcher, ListLimits};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SERIAL: u8 = 77;

/// A CA, the list that its server has, and a peer whose certificate names the URL.
struct World {
    key: Box<dyn SigningKey>,
    ca: Certificate,
    peer: PeerCredentials,
    /// The key and certificate of the peer, and of gw.example.org, which names no URL.
    own: [Credential; 2],
    asked: Arc<AtomicUsize>,
}

impl World {
    /// `served` makes the list. The second half of its body comes when `held` says so, if there is one.
    fn new(served: impl FnOnce(&dyn SigningKey) -> Vec<u8>, held: Option<Receiver<()>>) -> Self {
        let scheme = SignatureScheme::EcdsaP256Sha256;
        let made = || generate(KeyType::Scheme(SignatureScheme::EcdsaP256Sha256)).unwrap();
        let make = || load_private_key(&made()).unwrap();
        let (key, own, gateway) = (make(), make(), make());
        let issuer = Issuer { key: &*key, scheme, name: &name("CA") };
        let certify = |template: &Template, spki: &[u8]| {
            let der = issue::certificate(template, spki, &issuer).unwrap();
            Certificate::from_der(&der).unwrap()
        };
        let ca = certify(&Template { ca: true, ..template("CA") }, key.public_key());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ca.crl", listener.local_addr().unwrap());
        let id = IdData::fqdn("peer.example.org");
        let (names, serial) = (vec![id.clone()], vec![SERIAL]);
        let peer = Template { names, serial, crl: vec![url], ..template("peer") };
        let peer = certify(&peer, own.public_key());
        let names = vec![IdData::fqdn("gw.example.org")];
        let shown = certify(&Template { names, ..template("gw") }, gateway.public_key());
        let owns = [(own, peer.clone()), (gateway, shown)].map(|(key, certificate)| {
            Credential::new(key.into(), Arc::new(certificate), &[]).unwrap()
        });
        let encoding = CertEncoding::X509_SIGNATURE;
        let peer = PeerCredentials {
            connection: "c".to_owned(),
            round: "r".to_owned(),
            id,
            certs: vec![OwnedCert { encoding, data: peer.der().to_vec() }],
            chain: Default::default(),
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let (body, count) = (served(&*key), Arc::clone(&asked));
        std::thread::spawn(move || serve(&listener, &body, &count, held.as_ref()));
        Self { key, ca, peer, own: owns, asked }
    }

    fn credentials(&self, loaded: &[Vec<u8>], patience: Duration) -> Credentials {
        self.fetching(loaded, Fetcher::new(patience))
    }

    fn fetching(&self, loaded: &[Vec<u8>], fetcher: Fetcher) -> Credentials {
        let mut answerer = Answerer::default();
        answerer.trust_mut().add_ca(self.ca.clone()).unwrap();
        for list in loaded {
            answerer.trust_mut().revocation.add_crl(list).unwrap();
        }
        answerer.set_policy("c", "r", PeerPolicy::default());
        Credentials::new(answerer, EapConfig::default(), fetcher)
    }

    /// As [`credentials`](Self::credentials), with a round of EAP-TLS.
    #[cfg(feature = "eap")]
    fn by_eap(&self, own: &Credential) -> Credentials {
        use crate::eap::EapRound;
        use ike_config::{EapId, EapMethod, Way};
        let round = EapRound {
            way: Way::One(EapMethod::Tls),
            eap_id: Some(EapId::Exact("peer.example.org".to_owned())),
            aaa_id: None,
            credentials: vec![own.clone()],
            groups: Vec::new(),
            judged_by: "r".to_owned(),
        };
        let key = ("c".to_owned(), "r".to_owned());
        let rounds = [(key, Arc::new(round))].into();
        let credentials = self.credentials(&[], Duration::from_secs(5));
        let answerer = Answerer::clone(&credentials.present());
        let eap = EapConfig { rounds, ..EapConfig::default() };
        Credentials::new(answerer, eap, Fetcher::new(Duration::from_secs(5)))
    }

    async fn answer(&self, credentials: &Credentials) -> Answer {
        let question = Question::Revocation(self.peer.clone());
        credentials.answer(question).await.expect("an answer")
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn serve(listener: &TcpListener, body: &[u8], count: &AtomicUsize, held: Option<&Receiver<()>>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        count.fetch_add(1, Ordering::Relaxed);
        let _ = stream.read(&mut [0; 1024]);
        let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let (first, second) = body.split_at(body.len() / 2);
        let _ = stream.write_all(&[header.as_bytes(), first].concat());
        if let Some(held) = held {
            let _ = held.recv();
        }
        let _ = stream.write_all(second);
    }
}

fn name(text: &str) -> Vec<u8> {
    issue::distinguished_name(&format!("CN={text}")).unwrap()
}

fn template(subject: &str) -> Template {
    let now = SystemTime::now();
    Template {
        subject: name(subject),
        not_before: now - 90 * DAY,
        not_after: now + 90 * DAY,
        ..Template::default()
    }
}

/// A list of `age` days that is valid for `days`.
fn list(key: &dyn SigningKey, number: u64, (age, days): (u32, u32), revoked: &[u8]) -> Vec<u8> {
    let scheme = SignatureScheme::EcdsaP256Sha256;
    let issuer = Issuer { key, scheme, name: &name("CA") };
    let this = SystemTime::now() - DAY * age;
    let entry = |serial: &u8| RevokedEntry { serial: vec![*serial], at: this, reason: None };
    let revoked: Vec<_> = revoked.iter().map(entry).collect();
    issue::revocation_list(&issuer, this, this + DAY * days, number, &revoked).unwrap()
}

/// The list at hand is past its date, and the server has one that is older still, and current.
///
/// Fault: in `Lists::deliver`, keep a list that is older than the one at hand.
#[tokio::test]
async fn a_list_older_than_the_one_at_hand_is_fetched_once() {
    let world = World::new(|key| list(key, 1, (20, 90), &[]), None);
    let held = list(&*world.key, 2, (10, 5), &[]);
    let credentials = world.credentials(&[held], Duration::from_secs(5));
    for peers in 1..4 {
        assert!(matches!(world.answer(&credentials).await, Answer::Key(_)));
        assert_eq!((world.asked(), credentials.unchecked_peers()), (1, peers));
    }
    assert_eq!(credentials.unusable_answers(), 1);
    assert_eq!(credentials.present().trust().revocation.crls().count(), 1);
}

/// Fault: in `Fetcher::with_limits`, limit the whole fetch of a list.
#[tokio::test]
async fn a_fetch_that_outlasts_the_handshake_serves_the_next_peer() {
    let (go, held): (Sender<()>, _) = channel();
    let world = World::new(|key| list(key, 1, (1, 5), &[SERIAL]), Some(held));
    let credentials = world.credentials(&[], Duration::from_millis(200));
    assert!(matches!(world.answer(&credentials).await, Answer::Key(_)));
    assert_eq!((world.asked(), credentials.unchecked_peers()), (1, 1));
    go.send(()).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while credentials.present().trust().revocation.crls().count() == 0 {
        assert!(Instant::now() < end, "the fetch did not go on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let answer = world.answer(&credentials).await;
    assert!(matches!(answer, Answer::Untrusted(Distrust::Revoked, _)), "{answer:?}");
    assert_eq!((world.asked(), credentials.unchecked_peers()), (1, 1));
}

/// The server sends half of the list, and no more. The connection stays open.
///
/// Fault: in `Fetcher::with_limits`, leave `timeout_per_read` out.
#[tokio::test]
async fn a_server_that_stops_in_the_middle_of_a_list_frees_its_place() {
    let (_never, held): (Sender<()>, _) = channel();
    let world = World::new(|key| list(key, 1, (1, 5), &[SERIAL]), Some(held));
    let limits = ListLimits { pause: Duration::from_millis(500), ..ListLimits::default() };
    let fetcher = Fetcher::with_limits(Duration::from_millis(100), limits);
    let credentials = world.fetching(&[], fetcher);
    assert!(matches!(world.answer(&credentials).await, Answer::Key(_)));
    assert_eq!(world.asked(), 1);
    let end = Instant::now() + Duration::from_secs(30);
    while credentials.0.lists.available_permits() < super::super::LISTS {
        assert!(Instant::now() < end, "the server keeps its place");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What came of it tells nothing, and the URL is not asked again at once.
    assert_eq!(credentials.present().trust().revocation.crls().count(), 0);
    assert!(matches!(world.answer(&credentials).await, Answer::Key(_)));
    assert_eq!((world.asked(), credentials.unchecked_peers()), (1, 2));
}

/// Fault: in `Fetcher::list`, hand on what has broken off.
#[tokio::test]
async fn a_list_beyond_the_limit_of_all_breaks_off_with_a_line() {
    let world = World::new(|key| list(key, 1, (1, 5), &[SERIAL]), None);
    let limits = ListLimits { unverified: 100, ..ListLimits::default() };
    let fetcher = Fetcher::with_limits(Duration::from_secs(5), limits);
    let credentials = world.fetching(&[], fetcher.clone());
    let [fetch] = &credentials.present().fetches(&world.peer, SystemTime::now())[..] else {
        panic!("one list is to be fetched")
    };
    let why =
        fetcher.list(fetch, |body| ::pki::Crl::from_stream(body), |_| ()).unwrap_err().to_string();
    assert!(why.starts_with("revocation lists that are being read have more than 100 octets"));
    assert!(matches!(world.answer(&credentials).await, Answer::Key(_)));
    assert_eq!((world.asked(), credentials.unchecked_peers()), (2, 1));
    assert_eq!(credentials.present().trust().revocation.crls().count(), 0);
}

/// Fault: in `Said::is_due`, forget what was said, or leave the CA or the warning out.
#[test]
fn a_warning_about_a_ca_is_given_once_an_hour() {
    let said = Said::default();
    let due: Vec<bool> =
        ["a", "a", "b", "a"].into_iter().map(|ca| said.is_due("unchecked", ca)).collect();
    assert_eq!(due, [true, false, true, false]);
    assert!(said.is_due("unusable", "a"));
}

/// The client shows a certificate whose list nobody has fetched yet. It is fetched before the gateway answers.
///
/// Fault: in `Credentials::eap`, leave `settle_in_tls` out; in `judge`, let `judge_in_tls` decide.
#[cfg(feature = "eap")]
#[tokio::test]
async fn a_revoked_client_of_eap_tls_is_refused_although_its_list_was_never_fetched() {
    for revoked in [&[][..], &[SERIAL]] {
        let world = World::new(|key| list(key, 1, (1, 5), revoked), None);
        let [client, gateway] = world.own.each_ref().map(|own| world.by_eap(own));
        let refused = converse(&gateway, &client).await;
        assert_eq!(world.asked(), 1);
        match refused {
            None => assert!(revoked.is_empty()),
            Some(why) => assert!(!revoked.is_empty() && why.contains("revoked"), "{why}"),
        }
    }
}

/// Passes packets from one to the other until the gateway is done; why it refuses the client.
#[cfg(feature = "eap")]
async fn converse(gateway: &Credentials, client: &Credentials) -> Option<String> {
    use ike_proto::{EapAnswer, EapMessage, EapState};
    let message = |initiator: bool, packet: Option<Vec<u8>>, state: EapState| {
        let ids = ["gw.example.org", "peer.example.org"].map(IdData::fqdn);
        let [local_id, remote_id] = ids.clone();
        let (local_id, remote_id) =
            if initiator { (remote_id, local_id) } else { (local_id, remote_id) };
        let path = ike_proto::Path {
            local: ([192, 0, 2, 1], 4500).into(),
            remote: ([192, 0, 2, 2], 4500).into(),
            transport: ike_proto::Transport::UdpEncap,
        };
        let (connection, round) = ("c".to_owned(), "r".to_owned());
        let (alone, others) = (false, Vec::new());
        Question::Eap(Box::new(EapMessage {
            connection,
            round,
            initiator,
            alone,
            local_id,
            remote_id,
            path,
            packet,
            others,
            state,
        }))
    };
    let (mut ours, mut theirs) = (EapState::default(), EapState::default());
    let mut packet = None;
    for _ in 0..40 {
        let asked = message(false, packet.take(), std::mem::take(&mut ours));
        let request = match gateway.answer(asked).await {
            Some(Answer::Eap(answer)) => match *answer {
                EapAnswer::Send(request, state) => {
                    ours = state;
                    request
                }
                EapAnswer::Success(_) => return None,
                EapAnswer::Failure { packet, why } => {
                    assert!(matches!(packet.as_deref(), Some([4, _, 0, 4])), "{packet:?}");
                    return Some(why);
                }
            },
            other => panic!("{other:?}"),
        };
        match client.answer(message(true, Some(request), std::mem::take(&mut theirs))).await {
            Some(Answer::Eap(answer)) => match *answer {
                EapAnswer::Send(response, state) => {
                    theirs = state;
                    packet = Some(response);
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    panic!("the conversation has no end")
}

/// A list that is at hand already says nothing new about the SAs that are up.
///
/// Fault: in `Credentials::fetch_now`, have all SAs judged after each list.
#[tokio::test]
async fn a_list_that_is_at_hand_has_no_sa_judged() {
    let world = World::new(|key| list(key, 1, (1, 7), &[]), None);
    let credentials = world.credentials(&[], Duration::from_secs(5));
    let Answer::Key(key) = world.answer(&credentials).await else { panic!("it is accepted") };
    assert!(credentials.0.live.takes_all());
    let kind = RecordedKind::of_path(&key.certificate.expect("a certificate").path)[0];
    let (present, now) = (credentials.present(), SystemTime::now());
    let due = present.list_due("c", kind, now).expect("a list");
    let fetch = present.list_again("c", kind, (&due, &|_| true), now).expect("a fetch");
    let again = credentials.clone();
    let fetched = spawn_blocking(move || again.fetch_now(&fetch, &again.0.fetcher));
    assert!(fetched.await.unwrap());
    assert_eq!(world.asked(), 2);
    assert!(!credentials.0.live.takes_all());
}

/// More SAs than are judged at a time, some with a revoked certificate.
///
/// Fault: in `judge_live`, judge the first `CHUNK` alone; in `suspects`, name all SAs, or end after the first piece.
#[tokio::test]
async fn a_round_finds_every_sa_of_a_revoked_certificate_by_the_index_and_looks_at_no_other() {
    let world = World::new(|key| list(key, 1, (1, 7), &[]), None);
    let revoking = list(&*world.key, 1, (1, 7), &[SERIAL]);
    let accepting = world.credentials(&[], Duration::from_secs(5));
    let Answer::Key(key) = world.answer(&accepting).await else { panic!("it is accepted") };
    let path = key.certificate.expect("a certificate").path.clone();
    let credentials = world.credentials(&[revoking], Duration::from_secs(5));
    // The last octet of a path is that of the serial number.
    let with_serial = |serial: u8| [&path[..path.len() - 1], &[serial]].concat();
    for ike in 0..700 {
        let serial = if ike % 2 == 0 { SERIAL } else { SERIAL - 1 - (ike % 9) as u8 };
        credentials.has_up(ike, "c", &with_serial(serial));
    }
    // They have come up.
    let fresh = credentials.looked_at().await.0;
    assert_eq!(fresh.len(), 350);
    let (revoked, looked_at) = credentials.looked_at().await;
    assert_eq!((revoked.len(), looked_at), (350, 350));
    assert!(revoked.iter().all(|ike| ike.0 % 2 == 0));
}

/// Fault: in `renew_lists`, end where neither a list nor a response is at hand.
#[tokio::test]
async fn lists_about_live_sas_are_fetched_after_a_flush_of_everything() {
    let world = World::new(|key| list(key, 1, (1, 7), &[]), None);
    let credentials = world.credentials(&[], Duration::from_secs(5));
    let Answer::Key(key) = world.answer(&credentials).await else { panic!("it is accepted") };
    credentials.has_up(1, "c", &key.certificate.expect("a certificate").path);
    credentials.renew_now().await;
    credentials.flush(true, true);
    assert_eq!(credentials.present().trust().revocation.crls().count(), 0);
    credentials.renew_now().await;
    let end = Instant::now() + Duration::from_secs(30);
    while credentials.present().trust().revocation.crls().count() == 0 {
        assert!(Instant::now() < end, "it is not fetched again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.asked(), 2, "not before the flush");
}
