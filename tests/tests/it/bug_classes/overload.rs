//! Classes 15 and 18: strangers who fill everything that is kept of strangers, for as long as they like. Peers
//! are let in all the same, in both directions.
//!
//! Time is simulated, and the engine takes none of it: what a handshake takes here is what it waits, for a
//! retransmission above all. `IKE_FLOOD_SECONDS` says how long each flood lasts.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::{AddressSpec, AuthConfig, CertRequest, LocalAuth, RemoteAuth};
use ike_proto::crypto::Secret;
use ike_proto::wire::Message;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{CertEncoding, ExchangeType, NotifyType, PayloadType};
use ike_proto::{Command, EapAnswer, EapState, EapSuccess};
use ike_tests::cheap::{self, Signer};
use ike_tests::eap::End;
use ike_tests::handmade::{Handmade, LooseFragment, Started};
use ike_tests::network::{Fate, Packet};
use ike_tests::{A, B, Pair, Setup};

const AUTH: ExchangeType = ExchangeType::IKE_AUTH;

/// What a handshake needs room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Certificates and signatures as long as those of ML-DSA-87, in fragments.
    Certificate,
    /// A message that waits, and a conversation.
    Eap,
    /// Two fragments in IKE_INTERMEDIATE, and a short certificate.
    MlKem,
}

/// A by `kind`, B by a certificate. B takes requests of everybody.
fn build(kind: Kind) -> Pair {
    let mut setup = Setup::new(7);
    let proposal = match kind {
        Kind::MlKem => "aes256gcm16-prfsha384-x25519-ke1_mlkem1024",
        Kind::Certificate | Kind::Eap => "aes256gcm16-prfsha384-x25519",
    };
    setup.both(|side| {
        side.crypto = cheap::post_quantum();
        let pubkey = AuthConfig::pubkey;
        let id = side.connection.local_id().cloned();
        side.connection.local = vec![LocalAuth { id, ..LocalAuth::new("local", pubkey()) }];
        let id = side.connection.remote_id().clone();
        let authorities = vec![0x5a; 20];
        let certreqs = vec![CertRequest { encoding: CertEncoding::X509_SIGNATURE, authorities }];
        side.connection.remote =
            vec![RemoteAuth { id, certreqs, ..RemoteAuth::new("remote", pubkey()) }];
        // What is the default but not of the other tests.
        side.settings.cookie_threshold_ip = 3;
        side.settings.block_threshold = 5;
    });
    setup.a.ike_proposals(&[proposal]);
    setup.b.ike_proposals(&[proposal, ike_tests::handmade::IKE]);
    setup.b.connection.local_addrs = vec![AddressSpec::Any(None)];
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    if kind == Kind::Eap {
        setup.a.connection.local[0].auth = AuthConfig::Eap;
        setup.b.connection.remote[0].auth = AuthConfig::Eap;
    }
    let mut pair = setup.build();
    let certificate = if kind == Kind::Certificate { 7000 } else { 900 };
    let signature = if kind == Kind::Certificate { 4627 } else { 64 };
    for host in &mut pair.hosts {
        host.signer = Some(Signer { certificate, signature });
        // Verdicts take a while, so that messages wait.
        host.answer_delay = Some(Duration::from_millis(20));
    }
    if kind == Kind::Eap {
        pair.hosts[A].eap = Some(eap_peer());
        pair.hosts[B].eap = Some(eap_server());
    }
    pair.hosts[A].answer_delay = Some(Duration::from_millis(20));
    pair.add_address(B, gateway(Family::V6));
    pair.tell_network(B);
    pair.net.tracing = false;
    pair.audit.off = true;
    pair
}

fn eap_peer() -> End {
    Box::new(|message| match message.packet.as_deref() {
        Some([1, ..]) => EapAnswer::Send(vec![2, 0, 0, 5, 99], EapState::default()),
        Some([3, ..]) => success(None),
        _ => EapAnswer::Failure { packet: None, why: "refused".to_owned() },
    })
}

/// It keeps as much of a peer as EAP-TLS may.
fn eap_server() -> End {
    Box::new(|message| match message.packet {
        None => EapAnswer::Send(vec![1, 0, 0, 5, 99], EapState::of_size((), 16 * 1024)),
        Some(_) => success(Some(vec![3, 0, 0, 4])),
    })
}

fn success(packet: Option<Vec<u8>>) -> EapAnswer {
    EapAnswer::Success(EapSuccess {
        packet,
        msk: Some(Secret::new(vec![7; 64])),
        method: "short".to_owned(),
        identity: None,
        password: None,
        authorization: None,
        certificate: None,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => ike_tests::setup::address(2),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2]),
    }
}

/// Where stranger `n` is: one of 460 IPv4 addresses, or of 1,000 /64s, of which half are of one /48 and the
/// others of as many.
fn stranger(family: Family, n: u32) -> SocketAddr {
    let ip = match family {
        Family::V4 => {
            let n = n % 460;
            let (net, host) = if n.is_multiple_of(2) { (n, 1) } else { (0xffff, n) };
            IpAddr::from((0x0b00_0000 + (net << 8) + (host & 0xff)).to_be_bytes())
        }
        Family::V6 => {
            let n = (n % 1000) as u16;
            let (site, link) = if n.is_multiple_of(2) { (n, 0) } else { (0xeeee, n) };
            IpAddr::from([0x2001, 0xdb8, site, link, 0, 0, 0, 9])
        }
    };
    SocketAddr::new(ip, 500)
}

/// Strangers, each of whom agrees on keys and sends most of a message that is as long as it may be.
struct Flood {
    family: Family,
    sent: u32,
    octets: usize,
    answers: Arc<Mutex<Vec<Packet>>>,
}

impl Flood {
    fn new(pair: &mut Pair, family: Family) -> Self {
        let answers = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&answers);
        pair.net.tap(move |packet| {
            let theirs = match packet.dst.ip() {
                IpAddr::V4(ip) => ip.octets()[0] == 11,
                IpAddr::V6(_) => true,
            };
            if theirs {
                kept.lock().unwrap().push(packet.clone());
            }
            if theirs { Fate::Drop } else { Fate::Pass }
        });
        Self { family, sent: 0, octets: 0, answers }
    }

    fn give(&mut self, pair: &mut Pair, from: SocketAddr, octets: &[u8]) -> Option<Packet> {
        self.octets += octets.len();
        let to = SocketAddr::new(gateway(self.family), 500);
        pair.inject(Packet::forged(from, to, octets));
        std::mem::take(&mut *self.answers.lock().unwrap()).into_iter().next()
    }

    /// One more stranger.
    fn one(&mut self, pair: &mut Pair) {
        self.sent += 1;
        let from = stranger(self.family, self.sent);
        let mut started = Started::new(cheap::post_quantum(), u64::from(self.sent) << 8);
        let mut peer = None;
        for _ in 0..2 {
            let Some(answer) = self.give(pair, from, &started.request.clone()) else { return };
            peer = started.finish(&answer.octets);
            if peer.is_some() {
                break;
            }
            let message = Message::decode(&answer.octets).unwrap();
            let Some(Payload::Notify(notify)) = message.payloads.first() else { return };
            assert_eq!(notify.kind, NotifyType::COOKIE);
            let cookie = Payload::Notify(Notify::new(NotifyType::COOKIE, notify.data));
            let payloads: Vec<_> = [cookie].into_iter().chain(started.payloads()).collect();
            let request = started.encode(&payloads);
            drop(payloads);
            started.request = request;
        }
        if let Some(mut peer) = peer {
            self.fragments(pair, from, &mut peer);
        }
    }

    /// About 62,000 octets in five datagrams, which are as good as fifty.
    fn fragments(&mut self, pair: &mut Pair, from: SocketAddr, peer: &mut Handmade) {
        let content = [7; 12_400];
        for number in 2..=6 {
            let first = PayloadType::ID_I;
            let loose = LooseFragment { first, number, total: 9, content: &content };
            let datagram = peer.seal_fragment(AUTH, 1, false, &loose);
            self.give(pair, from, &datagram);
        }
    }
}

/// How long handshakes take, begun by turns by A and by B, one after the other; `flood` strangers come each
/// second, if there is a flood.
struct Outcome {
    took: Vec<Duration>,
    failed: usize,
    half_open: usize,
    octets: usize,
}

fn handshakes(
    pair: &mut Pair,
    count: usize,
    flood: &mut Option<(Flood, f64)>,
    kind: Kind,
) -> Outcome {
    let mut outcome = Outcome { took: Vec::new(), failed: 0, half_open: 0, octets: 0 };
    let step = Duration::from_millis(10);
    let (mut due, begun) = (0.0, pair.now());
    let seconds = flood_seconds();
    for n in 0..count {
        // Only the client has EAP.
        let from = if kind == Kind::Eap || n % 2 == 0 { A } else { B };
        let (request, start) = (pair.initiate(from, Some("net")), pair.now());
        let mut result = None;
        let mut next = begun + seconds.mul_f64((n + 1) as f64 / count as f64);
        while result.is_none() || pair.now() < next {
            if let Some((flood, rate)) = flood {
                due += *rate * step.as_secs_f64();
                while due >= 1.0 {
                    flood.one(pair);
                    due -= 1.0;
                }
            }
            pair.run_for(step);
            outcome.half_open = outcome.half_open.max(pair.b().endpoint.half_open());
            outcome.octets = outcome.octets.max(pair.b().endpoint.reassembly_memory());
            if result.is_none() {
                result = pair.hosts[from].done(request);
                if let Some(result) = &result {
                    outcome.failed += usize::from(result.is_err());
                    outcome.took.push(pair.now() - start);
                    // Nothing of it is left when the next begins.
                    next = next.max(pair.now() + Duration::from_millis(150));
                    for ike in pair.a().ikes() {
                        pair.command(A, Command::TerminateIke(ike.id));
                    }
                }
            }
        }
        for host in &mut pair.hosts {
            host.log.clear();
        }
    }
    outcome
}

fn flood_seconds() -> Duration {
    let seconds = std::env::var("IKE_FLOOD_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(15))
}

fn p95(took: &[Duration]) -> Duration {
    let mut took = took.to_vec();
    took.sort_unstable();
    took[took.len() * 95 / 100]
}

/// Ten times what a hundred strangers in fourteen seconds are, who fill what there was when memory was for
/// whoever came first.
fn peers_get_through(kind: Kind, family: Family) {
    const RATE: f64 = 10.0 * 250.0 / 14.0;
    let unloaded = handshakes(&mut build(kind), 20, &mut None, kind);
    assert_eq!(unloaded.failed, 0, "{kind:?}");
    let mut pair = build(kind);
    let mut flood = Some((Flood::new(&mut pair, family), RATE));
    // It has begun before they do.
    if let Some((flood, _)) = &mut flood {
        for _ in 0..1000 {
            flood.one(&mut pair);
        }
    }
    let loaded = handshakes(&mut pair, 100, &mut flood, kind);
    let (sent, octets) = flood.map(|(flood, _)| (flood.sent, flood.octets)).unwrap_or_default();
    let (before, after) = (p95(&unloaded.took), p95(&loaded.took));
    let Outcome { failed, half_open, octets: held, .. } = loaded;
    println!(
        "{kind:?} {family:?}: {sent} strangers with {octets} octets; {} of 100 up, p95 {after:?} ({before:?} \
         unloaded); {half_open} half-open, {held} octets held at the most",
        100 - failed
    );
    assert!(failed <= 5, "{kind:?} {family:?}: {failed} of 100 failed");
    assert!(after <= before * 2 + Duration::from_millis(50), "{kind:?} {family:?}: {after:?}");
    assert!(half_open > 100 && held > 8 << 20, "there was a flood");
    assert!(held <= pair.b().endpoint.config().reassembly_memory);
    pair.run_for(Duration::from_secs(130));
    assert_eq!((pair.b().endpoint.half_open(), pair.b().endpoint.reassembly_memory()), (0, 0));
}

// Fault: in `Shares::take`, refuse instead of looking who gives way.

#[test]
fn class_15_floods_over_ipv4_keep_out_no_certificate() {
    peers_get_through(Kind::Certificate, Family::V4);
}

#[test]
fn class_15_floods_over_ipv4_keep_out_no_eap() {
    peers_get_through(Kind::Eap, Family::V4);
}

#[test]
fn class_15_floods_over_ipv4_keep_out_no_ml_kem() {
    peers_get_through(Kind::MlKem, Family::V4);
}

#[test]
fn class_15_floods_from_a_thousand_links_keep_out_no_certificate() {
    peers_get_through(Kind::Certificate, Family::V6);
}

#[test]
fn class_15_floods_from_a_thousand_links_keep_out_no_eap() {
    peers_get_through(Kind::Eap, Family::V6);
}

#[test]
fn class_15_floods_from_a_thousand_links_keep_out_no_ml_kem() {
    peers_get_through(Kind::MlKem, Family::V6);
}
