use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ike_proto::{Command, Endpoint, Exchange, Input, Now, Output, Path, RequestId, Ticket};
use ike_tests::{Seeded, World};
use ike_tokio::Answerer as _;

use super::*;

const STRANGERS: u8 = 24;

/// However many strangers have their key exchanges done, one of a peer that this end knows waits for few.
#[tokio::test]
async fn strangers_have_a_line_of_their_own() {
    let credentials = Credentials::new(
        Answerer::default(),
        EapConfig::default(),
        Fetcher::new(Duration::from_secs(1)),
    );
    let mut responder = endpoint(1, 100);
    let mut ours = Vec::new();
    for n in 0..STRANGERS {
        let mut initiator = endpoint(100 + n, 1);
        initiate(&mut initiator, 100 + n, 1);
        let (ticket, half) = asked(&mut initiator);
        initiator.handle(now(), Input::Answered(ticket, half.perform(&mut Seeded::new(1))));
        let request = std::iter::from_fn(|| match initiator.poll_output() {
            Output::Timeout(_) => None,
            output => Some(output),
        });
        let request = request.filter_map(|output| match output {
            Output::Transmit(request) => Some(request),
            _ => None,
        });
        let request = request.last().expect("a request");
        let path = Path { local: request.path.remote, remote: request.path.local, ..request.path };
        responder.handle(now(), Input::Datagram(path, &request.octets));
        ours.push(asked(&mut responder).1);
    }
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for exchange in ours {
        let (credentials, done) = (credentials.clone(), Arc::clone(&done));
        tasks.spawn(async move {
            let answer = credentials.answer(Question::Exchange(exchange)).await;
            done.fetch_add(1, Ordering::Relaxed);
            answer
        });
    }
    tokio::task::yield_now().await;
    let mut known = endpoint(2, 1);
    initiate(&mut known, 2, 1);
    let half = asked(&mut known).1;
    assert!(credentials.answer(Question::Exchange(half)).await.is_some());
    let before = done.load(Ordering::Relaxed);
    assert!(before < usize::from(STRANGERS) / 2, "{before} strangers were before it");
    // What they do not wait for any more is not done.
    drop(responder);
    let mut left_out = 0;
    while let Some(answer) = tasks.join_next().await {
        left_out += usize::from(answer.expect("no panic").is_none());
    }
    assert!(left_out > 0);
}

/// A stranger can show anybody's certificates. What was fetched is kept after the signature, not before it.
#[tokio::test]
async fn what_was_fetched_is_kept_when_the_peer_has_proven_itself() {
    use std::io::{Read, Write};

    use ike_proto::OwnedCert;
    use ike_proto::wire::registry::CertEncoding;
    let [ca, own] = ["root", "moon"].map(|name| {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../pki/tests/fixtures");
        let pem = std::fs::read(format!("{fixtures}/{name}.pem")).expect("a fixture");
        let certificates = ::pki::files::load_certificates(&pem).expect("a certificate");
        Arc::new(certificates.into_iter().next().expect("a certificate"))
    });
    let id = own.identities().into_iter().next().expect("an identity");
    let own = own.der().to_vec();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let base = format!("http://{}/", listener.local_addr().expect("an address"));
    let body = own.clone();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody asks");
        let _ = stream.read(&mut [0; 1024]);
        let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[header.as_bytes(), &body].concat());
    });
    let mut answerer = Answerer::default();
    let policy = ::pki::PeerPolicy { cacerts: vec![ca], ..Default::default() };
    answerer.set_policy("c", "r", policy);
    let credentials =
        Credentials::new(answerer, EapConfig::default(), Fetcher::new(Duration::from_secs(5)));
    let prefix = ike_config::UrlPrefix::parse(&base).expect("a prefix");
    credentials.look_up(LookupRules::new(vec![prefix]));
    let cert = OwnedCert {
        encoding: CertEncoding::HASH_AND_URL_X509,
        data: [&::pki::sha1(&own)[..], format!("{base}0").as_bytes()].concat(),
    };
    let peer = PeerCredentials {
        connection: "c".to_owned(),
        round: "r".to_owned(),
        id,
        certs: vec![cert],
        chain: Default::default(),
    };
    let asked = async |question: fn(PeerCredentials) -> Question| match credentials
        .answer(question(peer.clone()))
        .await
    {
        Some(Answer::Key(key)) => key.revocation_pending,
        other => panic!("{other:?}"),
    };
    let strangers = || credentials.0.lookup.would_keep(&peer, &[&own]);
    for _ in 0..2 {
        assert!(asked(Question::Judge).await, "the signature first");
        assert!(strangers());
    }
    assert!(!asked(Question::Revocation).await);
    assert!(!strangers());
    assert!(!asked(Question::Judge).await, "nothing is new");
}

/// IKE_AUTH does not wait for a responder that takes long, and no time at all for one that failed.
#[tokio::test]
async fn a_signature_does_not_wait_long_for_a_responder() {
    use ::pki::{Authority, Credential};
    use ike_proto::SignRequest;
    use ike_proto::config::CertRequest;
    use ike_proto::crypto::{CryptoError, SignatureScheme, SigningKey};
    use ike_proto::wire::registry::CertEncoding;

    #[derive(Debug)]
    struct Key(Vec<u8>);
    impl SigningKey for Key {
        fn schemes(&self) -> &[SignatureScheme] {
            &[SignatureScheme::EcdsaP256Sha256]
        }
        fn public_key(&self) -> &[u8] {
            &self.0
        }
        fn sign(&self, _: &SignatureScheme, _: &[u8]) -> Result<Vec<u8>, CryptoError> {
            Ok(vec![0; 70])
        }
    }
    let [ca, own] = ["root", "moon"].map(|name| {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../pki/tests/fixtures");
        let pem = std::fs::read(format!("{fixtures}/{name}.pem")).expect("a fixture");
        ::pki::files::load_certificates(&pem).expect("a certificate").remove(0)
    });
    let request = || {
        let asked = |encoding| CertRequest { encoding, authorities: Vec::new() };
        let scheme = SignatureScheme::EcdsaP256Sha256;
        SignRequest {
            connection: "c".to_owned(),
            round: "r".to_owned(),
            id: own.identities().remove(0),
            requests: vec![asked(CertEncoding::X509_SIGNATURE), asked(CertEncoding::OCSP)],
            hash_and_url: false,
            schemes: vec![ike_proto::AcceptedScheme {
                scheme: scheme.clone(),
                authorities: Vec::new(),
            }],
            announced: false,
            octets: Vec::new(),
        }
    };
    // It takes connections, and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let mut answerer = Answerer::default();
    let authority = Authority {
        ca: Arc::new(ca.clone()),
        crl_uris: Vec::new(),
        ocsp_uris: vec![url],
        cert_uri_base: None,
    };
    answerer.trust_mut().add_ca(ca).expect("a CA");
    answerer.trust_mut().revocation.add_authority(authority).expect("an authority");
    let key = Arc::new(Key(own.spki().to_vec()));
    let credential = Credential::new(key, Arc::new(own.clone()), &[]).expect("a credential");
    answerer.add_credential("c", "r", credential);
    let hour = Duration::from_secs(3600);
    let credentials = Credentials::new(answerer.clone(), EapConfig::default(), Fetcher::new(hour));
    let waits = || !credentials.present().status_fetches(&request(), SystemTime::now()).is_empty();
    assert!(!waits(), "nobody replies here");
    answerer.reply_by_ocsp("c", false);
    credentials.replace(answerer, EapConfig::default());

    assert!(waits() && credentials.answer_at_once(&Question::Sign(request())).is_none());
    let begin = Instant::now();
    let signature = || Question::Sign(request());
    let both = async {
        tokio::join!(
            credentials.answer(signature()),
            credentials.answer(signature()),
            listener.accept()
        )
    };
    let (first, second, connection) =
        tokio::time::timeout(hour / 60, both).await.expect("less than a minute");
    assert!(begin.elapsed() >= Duration::from_secs(1), "it was waited for");
    for answer in [first, second] {
        match answer {
            Some(Answer::Signed(signed)) => assert_eq!(signed.certs.len(), 1),
            other => panic!("{other:?}"),
        }
    }
    // One asks for all of them. When it fails, the next does not wait.
    drop(connection);
    drop(listener);
    let end = Instant::now() + hour / 60;
    while waits() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// However many signatures wait for a signer that does not answer, other work is done. Fault: in `answer_by_work`, let every
/// place be `Here`.
#[tokio::test]
async fn work_does_not_wait_for_a_signer_that_is_stopped() {
    use std::sync::atomic::AtomicBool;

    use ::pki::Credential;
    use ike_proto::SignRequest;
    use ike_proto::crypto::{CryptoError, Secret, SignatureScheme, SigningKey};
    use ike_proto::keys::{SignedOctets, Transcript};

    static STOPPED: AtomicBool = AtomicBool::new(true);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    #[derive(Debug)]
    struct Key(Vec<u8>);
    impl SigningKey for Key {
        fn schemes(&self) -> &[SignatureScheme] {
            &[SignatureScheme::EcdsaP256Sha256]
        }
        fn public_key(&self) -> &[u8] {
            &self.0
        }
        fn sign(&self, _: &SignatureScheme, _: &[u8]) -> Result<Vec<u8>, CryptoError> {
            ASKED.fetch_add(1, Ordering::Relaxed);
            while STOPPED.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(CryptoError::Backend)
        }
        fn is_elsewhere(&self) -> bool {
            true
        }
    }
    let pem = concat!(env!("CARGO_MANIFEST_DIR"), "/../pki/tests/fixtures/moon.pem");
    let pem = std::fs::read(pem).expect("a fixture");
    let own = ::pki::files::load_certificates(&pem).expect("a certificate").remove(0);
    let id = own.identities().remove(0);
    let octets = || {
        let (prf, key) = (pq_kem::provider().prf[0], Secret::copy_from(&[1; 32]));
        let message = Transcript::RealMessage(b"message");
        SignedOctets::new(prf, &key, message, b"nonce", id.as_id(), None)
    };
    let scheme = SignatureScheme::EcdsaP256Sha256;
    let request = || SignRequest {
        connection: "c".to_owned(),
        round: "r".to_owned(),
        id: id.clone(),
        requests: Vec::new(),
        hash_and_url: false,
        schemes: vec![ike_proto::AcceptedScheme {
            scheme: scheme.clone(),
            authorities: Vec::new(),
        }],
        announced: false,
        octets: vec![octets()],
    };
    let mut answerer = Answerer::default();
    let key = Arc::new(Key(own.spki().to_vec()));
    let credential = Credential::new(key, Arc::new(own.clone()), &[]).expect("a credential");
    answerer.add_credential("c", "r", credential);
    let fetcher = Fetcher::new(Duration::from_secs(1));
    let credentials = Credentials::new(answerer, EapConfig::default(), fetcher);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 * ELSEWHERE {
        let (credentials, question) = (credentials.clone(), Question::Sign(request()));
        tasks.spawn(async move { credentials.answer(question).await });
    }
    let end = Instant::now() + Duration::from_secs(20);
    while ASKED.load(Ordering::Relaxed) == 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut known = endpoint(2, 1);
    initiate(&mut known, 2, 1);
    let half = Question::Exchange(asked(&mut known).1);
    let limit = Duration::from_secs(20);
    let answer = tokio::time::timeout(limit, credentials.answer(half)).await;
    let waiting = tasks.len();
    STOPPED.store(false, Ordering::Relaxed);
    assert!(matches!(answer, Ok(Some(_))), "it waits behind signatures");
    assert_eq!((waiting, tasks.join_all().await.len()), (3 * ELSEWHERE, 3 * ELSEWHERE));
}

/// With a server that does not answer, so many sockets are open and no more; who gives up makes room.
#[cfg(feature = "radius")]
#[tokio::test]
async fn radius_exchanges_have_a_limit() {
    use crate::eap::EapRound;
    use crate::radius::{EXCHANGES as RADIUS_EXCHANGES, RadiusClient};
    use ike_config::{EapId, RadiusOptions, RadiusServer, Way};
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    let server = RadiusServer {
        name: "silent".to_owned(),
        address: socket.local_addr().expect("an address"),
        accounting: socket.local_addr().expect("an address"),
        secret: ike_proto::crypto::Secret::copy_from(b"shared"),
        nas_identifier: "gw".to_owned(),
    };
    let radius = RadiusClient::new(RadiusOptions {
        servers: vec![server],
        retransmit_tries: 0,
        retransmit_timeout: Duration::from_secs(60),
        ..RadiusOptions::default()
    });
    let round = EapRound {
        way: Way::Radius,
        eap_id: Some(EapId::Exact("carol".to_owned())),
        aaa_id: None,
        credentials: Vec::new(),
        groups: Vec::new(),
        judged_by: String::new(),
    };
    let key = ("c".to_owned(), "r".to_owned());
    let book = EapConfig {
        rounds: [(key, Arc::new(round))].into(),
        radius: Some(Arc::new(radius)),
        ..EapConfig::default()
    };
    let credentials =
        Credentials::new(Answerer::default(), book, Fetcher::new(Duration::from_secs(1)));
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while socket.recv_from(&mut buffer).await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let id = ike_proto::wire::payload::IdData::fqdn("x");
    let tasks: Vec<_> = (0..RADIUS_EXCHANGES + 20)
        .map(|_| {
            let message = EapMessage {
                connection: "c".to_owned(),
                round: "r".to_owned(),
                initiator: false,
                alone: false,
                local_id: id.clone(),
                remote_id: id.clone(),
                path: Path {
                    local: ([192, 0, 2, 1], 4500).into(),
                    remote: ([192, 0, 2, 2], 4500).into(),
                    transport: ike_proto::Transport::UdpEncap,
                },
                packet: None,
                others: Vec::new(),
                state: Default::default(),
            };
            let credentials = credentials.clone();
            tokio::spawn(async move {
                credentials.answer(Question::Eap(Box::new(message))).await;
            })
        })
        .collect();
    let seen_are = async |wanted| {
        let end = Instant::now() + Duration::from_secs(10);
        while seen.load(Ordering::Relaxed) < wanted && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        seen.load(Ordering::Relaxed)
    };
    assert_eq!(seen_are(RADIUS_EXCHANGES).await, RADIUS_EXCHANGES);
    tasks.iter().take(20).for_each(|task| task.abort());
    assert_eq!(seen_are(RADIUS_EXCHANGES + 20).await, RADIUS_EXCHANGES + 20);
    tasks.iter().for_each(|task| task.abort());
}

fn endpoint(host: u8, other: u8) -> Endpoint {
    let mut side = ike_tests::setup::side(host, other);
    side.crypto = pq_kem::provider().into();
    side.connection.remote_addrs = vec![ike_proto::config::AddressSpec::Any(None)];
    side.settings.cookie_threshold = 0;
    side.ike_proposals(&["aes128gcm16-prfsha256-modp4096"]);
    let capabilities = side.plane.capabilities;
    let rng = Box::new(Seeded::new(u64::from(host)));
    Endpoint::new(side.config(), pq_kem::provider().into(), rng, capabilities)
}

fn initiate(endpoint: &mut Endpoint, host: u8, other: u8) {
    let command = Command::Initiate {
        connection: "ab".to_owned(),
        child: None,
        local: ike_tests::setup::address(host),
        remote: ike_tests::setup::address(other),
        packet: None,
    };
    endpoint.handle(now(), Input::Command(RequestId(1), command));
}

fn asked(endpoint: &mut Endpoint) -> (Ticket, Exchange) {
    loop {
        match endpoint.poll_output() {
            Output::Ask(ticket, Question::Exchange(exchange)) => return (ticket, exchange),
            Output::Timeout(_) => panic!("no question"),
            _ => {}
        }
    }
}

fn now() -> Now {
    let world = World::new(1);
    Now { mono: world.instant() + Duration::from_secs(1), wall: world.wall() }
}

/// Exchanges with RADIUS servers have so many places in the daemon, not in each configuration.
#[cfg(feature = "radius")]
#[tokio::test]
async fn a_reload_makes_no_more_room_for_radius() {
    let book = || EapConfig { radius: Some(Arc::default()), ..EapConfig::default() };
    let credentials =
        Credentials::new(Answerer::default(), book(), Fetcher::new(Duration::from_secs(1)));
    let limits = || credentials.radius().expect("servers").limits();
    let before = limits();
    credentials.replace(Answerer::default(), book());
    assert!(Arc::ptr_eq(&before, &limits()));
    credentials.replace(Answerer::default(), EapConfig::default());
    credentials.replace(Answerer::default(), book());
    assert!(Arc::ptr_eq(&before, &limits()));
}
