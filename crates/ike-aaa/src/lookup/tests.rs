use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ike_proto::wire::payload::IdData;
use ike_tests::credentials::Authority;
use pq_kem::sign::KeyType;

use super::*;

const X509: CertEncoding = CertEncoding::HASH_AND_URL_X509;

/// A server that answers as it is told, each connection on a thread of its own.
struct Web {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Web {
    fn new(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let (all, answer) = (Arc::clone(&connections), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                all.fetch_add(1, Ordering::SeqCst);
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || {
                    let mut request = Vec::new();
                    let mut octets = [0; 1024];
                    while !request.ends_with(b"\r\n\r\n") {
                        match stream.read(&mut octets) {
                            Ok(n) if n > 0 => request.extend(&octets[..n]),
                            _ => break,
                        }
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    answer(request.split(' ').nth(1).unwrap_or_default(), &mut stream);
                });
            }
        });
        Self { address, connections }
    }

    /// Files by the number that is their name.
    fn of_files(files: Vec<Vec<u8>>) -> Self {
        Self::new(move |path, stream| {
            let file = path.trim_start_matches('/').parse().ok().and_then(|n: usize| files.get(n));
            let _ = match file {
                Some(file) => stream.write_all(&ok(file)),
                None => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            };
        })
    }

    fn asked(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A CERT payload that says `octets` are at the `n`-th file.
    fn cert(&self, encoding: CertEncoding, octets: &[u8], n: usize) -> OwnedCert {
        let url = format!("http://{}/{n}", self.address);
        OwnedCert { encoding, data: [&sha1(octets)[..], url.as_bytes()].concat() }
    }

    /// Looks up what is here.
    fn lookup(&self) -> Lookup {
        lookup_from(&[&format!("http://{}/", self.address)])
    }
}

fn ok(body: &[u8]) -> Vec<u8> {
    let header = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [header.as_bytes(), body].concat()
}

fn lookup_from(prefixes: &[&str]) -> Lookup {
    let prefixes = prefixes.iter().map(|text| UrlPrefix::parse(text).expect("a prefix"));
    let patience = [Duration::from_secs(5), Duration::from_millis(500)];
    let lookup = Lookup { patience, ..Lookup::default() };
    lookup.set(LookupRules::new(prefixes.collect()));
    lookup
}

fn peer(certs: Vec<OwnedCert>) -> PeerCredentials {
    PeerCredentials {
        connection: "site".to_owned(),
        round: "remote".to_owned(),
        id: IdData::fqdn("moon.example.org"),
        certs,
        chain: Default::default(),
    }
}

fn plain(octets: &[u8]) -> OwnedCert {
    OwnedCert { encoding: CertEncoding::X509_SIGNATURE, data: octets.to_vec() }
}

async fn resolved(lookup: &Lookup, certs: Vec<OwnedCert>) -> Result<Vec<OwnedCert>, String> {
    lookup.resolve(&peer(certs), None).await.map(|peer| peer.certs)
}

#[tokio::test]
async fn it_is_off_unless_configured() {
    let web = Web::of_files(vec![b"certificate".to_vec()]);
    let sent = peer(vec![plain(b"other"), web.cert(X509, b"certificate", 0)]);
    let lookup = Lookup::default();
    assert!(!lookup.concerns(&sent));
    lookup.set(LookupRules::new(Vec::new()));
    assert!(lookup.concerns(&sent) && !lookup.concerns(&peer(vec![plain(b"other")])));
    lookup.set(LookupRules::default());
    assert!(!lookup.concerns(&sent));
}

#[tokio::test]
async fn a_stranger_cannot_have_this_host_ask_itself() {
    let web = Web::of_files(vec![b"certificate".to_vec()]);
    let port = web.address.port();
    let sent = || vec![web.cert(X509, b"certificate", 0)];
    // Anything public; a name, which leads to loopback; another host; another folder.
    for prefixes in [
        &[][..],
        &[&*format!("http://localhost:{port}/")],
        &["http://127.0.0.2/", "http://127.0.0.1/"],
        &[&*format!("http://127.0.0.1:{port}/certs/")],
    ] {
        let lookup = lookup_from(prefixes);
        resolved(&lookup, sent()).await.expect_err("refused");
        let name = OwnedCert {
            encoding: X509,
            data: [&sha1(b"certificate")[..], format!("http://localhost:{port}/0").as_bytes()]
                .concat(),
        };
        resolved(&lookup, vec![name]).await.expect_err("refused");
    }
    assert_eq!(web.asked(), 0);
    // Who names the address itself means it.
    assert_eq!(resolved(&web.lookup(), sent()).await.unwrap(), [plain(b"certificate")]);
    assert_eq!(web.asked(), 1);
}

#[tokio::test]
async fn hostile_servers_are_given_up_and_not_asked_again_soon() {
    let target = Web::of_files(vec![b"certificate".to_vec()]);
    let location = format!("http://{}/0", target.address);
    let web = Web::new(move |path, stream| {
        let _ = match path {
            "/0" => stream.write_all(&ok(b"something else")),
            "/1" => stream.write_all(
                format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
                    .as_bytes(),
            ),
            "/2" => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                while stream.write_all(&[0x30; 8192]).is_ok() {}
                Ok(())
            }
            "/3" => {
                std::thread::sleep(Duration::from_secs(10));
                stream.write_all(&ok(b"certificate"))
            }
            "/4" => {
                let whole = ok(b"certificate");
                for octet in whole {
                    if stream.write_all(&[octet]).is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok(())
            }
            _ => stream.write_all(b"\x1b[31mgarbage"),
        };
    });
    let prefixes = [web.address, target.address].map(|address| format!("http://{address}/"));
    let lookup = lookup_from(&[&prefixes[0], &prefixes[1]]);
    for (n, text) in
        [(0, "another hash"), (1, "302"), (2, "limit"), (3, "timeout"), (4, "timeout"), (5, "")]
    {
        let begin = Instant::now();
        let sent = vec![web.cert(X509, b"certificate", n)];
        let why = resolved(&lookup, sent.clone()).await.expect_err("refused");
        assert!(why.contains(text) && !why.contains('\x1b'), "{n}: {why}");
        assert!(begin.elapsed() < Duration::from_secs(8), "{n}");
        let why = resolved(&lookup, sent).await.expect_err("refused");
        assert!(why.contains("a short while ago"), "{why}");
        assert_eq!(web.asked(), n + 1);
    }
    assert_eq!(target.asked(), 0);
    // The same hash from elsewhere is another matter; and new rules are a new start.
    let sent = vec![target.cert(X509, b"certificate", 0)];
    assert_eq!(resolved(&lookup, sent).await.unwrap(), [plain(b"certificate")]);
}

#[tokio::test]
async fn only_http_and_only_four() {
    let web = Web::of_files(vec![b"certificate".to_vec()]);
    let lookup = web.lookup();
    let with = |url: &str| OwnedCert {
        encoding: X509,
        data: [&sha1(b"certificate")[..], url.as_bytes()].concat(),
    };
    let long = format!("http://{}/{}", web.address, "0".repeat(500));
    for url in ["https://127.0.0.1/0", "ftp://127.0.0.1/0", "file:///0", "", "http://", &long] {
        let why = resolved(&lookup, vec![with(url)]).await.expect_err("refused");
        assert!(why.contains("no hash and http URL"), "{url}: {why}");
    }
    let five = vec![web.cert(X509, b"certificate", 0); 5];
    let why = resolved(&lookup, five).await.expect_err("refused");
    assert!(why.contains("more than 4"), "{why}");
    assert_eq!(web.asked(), 0);
}

/// However many strangers there are, so many fetches are on their way, and so many wait.
#[tokio::test]
async fn a_flood_is_bounded() {
    let (open, peak) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let most = Arc::clone(&peak);
    let all_are_there = Arc::new(AtomicBool::new(false));
    let begin = Arc::clone(&all_are_there);
    let web = Web::new(move |_, stream| {
        most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        while !begin.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(3));
        }
        open.fetch_sub(1, Ordering::SeqCst);
        let _ = stream.write_all(&ok(b"something else"));
    });
    let patience = [Duration::from_secs(60), Duration::from_secs(60)];
    let lookup = Arc::new(Lookup { patience, ..web.lookup() });
    let mut strangers = tokio::task::JoinSet::new();
    for n in 0..WAITING + 50 {
        let sent = vec![web.cert(X509, format!("certificate {n}").as_bytes(), n)];
        let lookup = Arc::clone(&lookup);
        strangers.spawn(async move { resolved(&lookup, sent).await.expect_err("refused") });
    }
    let mut answers = Vec::new();
    while answers.len() < 50 {
        answers.push(strangers.join_next().await.expect("one more").expect("no panic"));
    }
    all_are_there.store(true, Ordering::SeqCst);
    answers.extend(strangers.join_all().await);
    let turned_away = answers.iter().filter(|why| why.contains("too many others")).count();
    assert_eq!(turned_away, 50);
    assert_eq!(web.asked(), WAITING);
    let peak = peak.load(Ordering::SeqCst);
    assert!(peak <= FETCHES, "{peak} at a time");
}

#[tokio::test]
async fn one_fetch_does_for_all_and_junk_does_not_displace_what_was_good() {
    let web = Web::of_files(vec![b"certificate".to_vec(), vec![7; 60_000]]);
    let lookup = Arc::new(web.lookup());
    let sent = peer(vec![web.cert(X509, b"certificate", 0)]);
    let mut peers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (lookup, sent) = (Arc::clone(&lookup), sent.clone());
        peers.spawn(async move { lookup.resolve(&sent, None).await.expect("found").certs });
    }
    for certs in peers.join_all().await {
        assert_eq!(certs, [plain(b"certificate")]);
    }
    assert_eq!(web.asked(), 1);
    let path: [&[u8]; 1] = [b"certificate"];
    assert!(lookup.would_keep(&sent, &path));
    lookup.keep(&sent, &path);
    assert!(!lookup.would_keep(&sent, &path));
    for n in 0..40_u8 {
        locked(&lookup.other).insert([n; 20], vec![n; 60_000].into());
    }
    lookup.resolve(&sent, None).await.expect("found");
    // Also from another URL, and after a reload.
    let elsewhere = peer(vec![web.cert(X509, b"certificate", 9)]);
    lookup.set(LookupRules::new(Vec::new()));
    assert_eq!(
        lookup.resolve(&elsewhere, None).await.expect("found").certs,
        [plain(b"certificate")]
    );
    assert_eq!(web.asked(), 1);
}

#[tokio::test]
async fn what_is_here_is_not_fetched_and_what_is_of_no_use_is_left_out() {
    let ca =
        Authority::root("root", KeyType::Scheme(ike_proto::crypto::SignatureScheme::Ed25519), 0);
    let known = &ca.certificate;
    let bundle = ::pki::bundle(std::slice::from_ref(known)).expect("a bundle");
    let web = Web::of_files(vec![bundle.clone(), vec![0x30; 70_000]]);
    let prefix = UrlPrefix::parse(&format!("http://{}/", web.address)).expect("a prefix");
    let mut rules = LookupRules::new(vec![prefix]);
    rules.know(std::iter::once(known));
    let lookup = web.lookup();
    lookup.set(rules);
    let sent = vec![web.cert(X509, known.der(), 8)];
    assert_eq!(resolved(&lookup, sent).await.unwrap(), [plain(known.der())]);
    assert_eq!(web.asked(), 0);
    let sent = vec![
        web.cert(CertEncoding::HASH_AND_URL_BUNDLE, &bundle, 0),
        // Longer than a certificate may be; not there; no bundle.
        web.cert(X509, &[0x30; 70_000], 1),
        web.cert(X509, b"certificate", 2),
        OwnedCert { encoding: CertEncoding::CRL, data: vec![0x30, 0] },
    ];
    let crl = sent[3].clone();
    assert_eq!(resolved(&lookup, sent).await.unwrap(), [plain(known.der()), crl]);
    assert_eq!(web.asked(), 3);
}

/// Whoever has a key still cannot fill the memory of others with what is not of its path.
#[tokio::test]
async fn only_what_is_of_a_path_is_kept() {
    let (own, ca) = (bundle_item(1, 400), bundle_item(2, 400));
    let der = |item: &Vec<u8>| item[4..].to_vec();
    let path = [&*der(&own), &*der(&ca)].map(<[u8]>::to_vec);
    let path = path.each_ref().map(Vec::as_slice);
    let whole = bundle_of(&[&own, &ca]);
    let more = bundle_of(&[&own, &bundle_item(3, 60_000)]);
    let twice = bundle_of(&[&own, &ca, &own]);
    let files = vec![der(&own), whole, more, twice, b"junk".to_vec()];
    let web = Web::of_files(files.clone());
    let lookup = web.lookup();
    for (n, kept) in [(0, true), (1, true), (2, false), (3, false), (4, false)] {
        let bundle = (1..4).contains(&n);
        let encoding = if bundle { CertEncoding::HASH_AND_URL_BUNDLE } else { X509 };
        let sent = peer(vec![web.cert(encoding, &files[n], n)]);
        lookup.resolve(&sent, None).await.expect("found");
        assert_eq!(lookup.would_keep(&sent, &path), kept, "{n}");
        lookup.keep(&sent, &path);
        assert_eq!(locked(&lookup.good).get(&sha1(&files[n])).is_some(), kept, "{n}");
        assert_eq!(locked(&lookup.other).get(&sha1(&files[n])).is_some(), !kept, "{n}");
        // Nor without a path.
        assert!(!lookup.would_keep(&sent, &[]));
    }
}

/// Eighteen bundles of nothing, after a certificate that anybody may show.
#[tokio::test]
async fn junk_beside_a_public_certificate_does_not_displace_what_was_good() {
    let (good, public) = (b"genuine certificate".to_vec(), b"a public certificate".to_vec());
    let junk: Vec<_> = (0..18_u8).map(|n| vec![n; 256 << 10]).collect();
    let files = [vec![good.clone(), public.clone()], junk.clone()].concat();
    let web = Web::of_files(files);
    let lookup = web.lookup();
    let genuine = peer(vec![web.cert(X509, &good, 0)]);
    lookup.resolve(&genuine, None).await.expect("found");
    lookup.keep(&genuine, &[&good]);
    for round in 0..6 {
        let mut certs = vec![web.cert(X509, &public, 1)];
        for (n, one) in junk.iter().enumerate().skip(3 * round).take(3) {
            certs.push(web.cert(CertEncoding::HASH_AND_URL_BUNDLE, one, n + 2));
        }
        let stranger = peer(certs);
        assert_eq!(lookup.resolve(&stranger, None).await.expect("found").certs.len(), 1);
        lookup.keep(&stranger, &[&public]);
    }
    assert!(locked(&lookup.good).get(&sha1(&good)).is_some());
}

/// Who names a bundle as one certificate, which may not be as long, spoils it for nobody.
#[tokio::test]
async fn a_wrong_encoding_is_no_veto() {
    let bundle = bundle_of(&[&bundle_item(5, 70_000)]);
    let web = Web::of_files(vec![bundle.clone()]);
    let lookup = web.lookup();
    let why = resolved(&lookup, vec![web.cert(X509, &bundle, 0)]).await.expect_err("too long");
    assert!(why.contains("limit"), "{why}");
    let genuine = vec![web.cert(CertEncoding::HASH_AND_URL_BUNDLE, &bundle, 0)];
    assert_eq!(resolved(&lookup, genuine).await.expect("found").len(), 1);
}

/// What is fetched when nobody waits any more is there for the next who asks, and so is that it failed.
#[tokio::test]
async fn a_fetch_that_nobody_waits_for_is_not_lost() {
    let given_up = Arc::new(AtomicUsize::new(0));
    let answers = Arc::clone(&given_up);
    let web = Web::new(move |path, stream| {
        let number = if path == "/0" { 0 } else { 1 };
        while answers.load(Ordering::SeqCst) <= number {
            std::thread::sleep(Duration::from_millis(3));
        }
        let _ = match path {
            "/0" => stream.write_all(&ok(b"certificate")),
            _ => stream.write_all(&ok(b"something else")),
        };
    });
    let patience = [Duration::from_secs(20), Duration::from_secs(10)];
    let lookup = Lookup { patience, ..web.lookup() };
    for n in [0, 1] {
        let sent = vec![web.cert(X509, format!("certificate{}", "!".repeat(n)).as_bytes(), n)];
        let soon = Duration::from_millis(50);
        let first = tokio::time::timeout(soon, resolved(&lookup, sent.clone())).await;
        assert!(first.is_err(), "nobody has answered");
        given_up.store(n + 1, Ordering::SeqCst);
        match resolved(&lookup, sent).await {
            Ok(found) => assert_eq!((n, found), (0, vec![plain(b"certificate")])),
            Err(why) => assert!(n == 1 && why.contains("a short while ago"), "{why}"),
        }
        assert_eq!(web.asked(), n + 1);
    }
}

/// `cert [0]` with a SEQUENCE of `length` octets in it. Its own header has four octets if it is shorter than
/// 65,532, else five.
fn bundle_item(fill: u8, length: usize) -> Vec<u8> {
    let inner = [header(0x30, length), vec![fill; length]].concat();
    [header(0xa0, inner.len()), inner].concat()
}

fn bundle_of(items: &[&Vec<u8>]) -> Vec<u8> {
    let all: Vec<u8> = items.iter().flat_map(|item| item.iter().copied()).collect();
    [header(0x30, all.len()), all].concat()
}

fn header(tag: u8, length: usize) -> Vec<u8> {
    match u16::try_from(length) {
        Ok(short) => [&[tag, 0x82], &short.to_be_bytes()[..]].concat(),
        Err(_) => [&[tag, 0x83], &length.to_be_bytes()[5..]].concat(),
    }
}
