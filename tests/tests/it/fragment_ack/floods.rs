//! Ten thousand strangers who each send a part of a message.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::AddressSpec;
use ike_proto::wire::Message;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_tests::cheap;
use ike_tests::handmade::{Handmade, LooseFragment, Started};
use ike_tests::network::{Fate, Packet};
use ike_tests::{A, B, Pair};

use crate::fragment_ack::stage::{INTERMEDIATE, build, fragment, is_ack, large};

const STRANGERS: u32 = 10_000;
const AUTH: ExchangeType = ExchangeType::IKE_AUTH;

/// What B answered to strangers.
type Answers = Arc<Mutex<Vec<Packet>>>;

fn stranger_at(n: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::from((0x0b00_0000 + n).to_be_bytes()), 500)
}

/// Hands B a datagram of stranger `n`; the answers.
fn give(pair: &mut Pair, answers: &Answers, n: u32, octets: &[u8]) -> Vec<Packet> {
    let dst = pair.socket(B, 500);
    pair.inject(Packet::forged(stranger_at(n), dst, octets));
    std::mem::take(&mut *answers.lock().unwrap())
}

/// Stranger `n`, who has brought the cookie asked for, and agreed to acknowledge.
fn half_open(pair: &mut Pair, answers: &Answers, n: u32) -> Handmade {
    let mut started = Started::new(cheap::post_quantum(), u64::from(n) + 1);
    let mut cookie = Vec::new();
    for _ in 0..2 {
        let mut payloads = started.payloads();
        payloads.push(Payload::Notify(Notify::new(NotifyType(51_521), &[])));
        if !cookie.is_empty() {
            payloads.insert(0, Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie)));
        }
        let request = started.encode(&payloads);
        drop(payloads);
        started.request = request;
        let answer = give(pair, answers, n, &started.request).remove(0);
        if let Some(peer) = started.finish(&answer.octets) {
            return peer;
        }
        let message = Message::decode(&answer.octets).unwrap();
        let Some(Payload::Notify(notify)) = message.payloads.first() else { panic!("no cookie") };
        assert_eq!(notify.kind, NotifyType::COOKIE);
        cookie = notify.data.to_vec();
    }
    panic!("no SA for stranger {n}");
}

#[test]
fn ten_thousand_half_open_peers_with_parts_of_messages() {
    let mut setup = large(1);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let own = "aes256gcm16-prfsha384-x25519-ke1_frodoa3";
    setup.b.ike_proposals(&[own, ike_tests::handmade::IKE]);
    setup.b.settings.cookie_threshold = 1;
    setup.b.settings.init_limit_half_open = 0;
    setup.b.settings.reassembly_memory = 16 << 20;
    let budget = setup.b.settings.reassembly_memory;
    let mut pair = build(setup);
    pair.net.tracing = false;
    pair.audit.off = true;
    let answers = Answers::default();
    let (kept, acks) = (Arc::clone(&answers), Arc::new(Mutex::new([0_usize; 2])));
    let counted = Arc::clone(&acks);
    pair.net.tap(move |packet| {
        let stranger = matches!(packet.dst.ip(), IpAddr::V4(ip) if ip.octets()[0] == 11);
        if stranger && is_ack(packet) {
            let mut acks = counted.lock().unwrap();
            *acks = [acks[0] + 1, acks[1] + packet.octets.len()];
        } else if stranger {
            kept.lock().unwrap().push(packet.clone());
        }
        if stranger { Fate::Drop } else { Fate::Pass }
    });

    let mut fragments = 0;
    let mut octets = 0;
    for n in 0..STRANGERS {
        let mut peer = half_open(&mut pair, &answers, n);
        for number in [1, 3] {
            let content = [7; 1000];
            let loose =
                LooseFragment { first: PayloadType::ID_I, number, total: 9, content: &content };
            let datagram = peer.seal_fragment(AUTH, 1, false, &loose);
            octets += datagram.len();
            fragments += 1;
            give(&mut pair, &answers, n, &datagram);
        }
        let held = pair.b().endpoint.reassembly_memory();
        assert!(held <= budget / 2, "{held} octets held");
    }
    assert_eq!(pair.b().endpoint.half_open(), usize::try_from(STRANGERS).unwrap());
    assert!(pair.b().endpoint.reassembly_memory() > budget / 4, "the budget was put to use");

    // An honest peer with as many fragments gets through, before its attempt is over.
    let request = pair.initiate(A, Some("net"));
    pair.run_until(Duration::from_secs(100), |world| world.hosts[A].done(request).is_some());
    assert_eq!(pair.a().done(request), Some(Ok(())), "after {:?}", pair.now());

    let acks = *acks.lock().unwrap();
    assert!(acks[0] > 0 && acks[0] <= 3 * fragments, "{} for {fragments} fragments", acks[0]);
    assert!(acks[1] <= octets / 2, "{} octets for {octets}", acks[1]);
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.b().endpoint.reassembly_memory(), 0);
    assert_eq!(pair.b().endpoint.half_open(), 0);
}

/// A peer that nobody has authenticated asks for a large answer at an address where nothing has shown it to
/// be, again and again.
#[test]
fn an_address_that_was_never_reached_gets_little() {
    let mut setup = large(1);
    // It says that it is behind a NAT, so that it may be anywhere.
    setup.a.connection.encap = ike_proto::config::EspInUdp::Yes;
    let mut pair = build(setup);
    pair.audit.off = true;
    let victim = SocketAddr::new(stranger_at(1).ip(), 4500);
    let (taken, got) = (Answers::default(), Arc::new(Mutex::new(0_usize)));
    let (kept, counted) = (Arc::clone(&taken), Arc::clone(&got));
    pair.net.tap(move |packet| {
        if packet.dst == victim {
            *counted.lock().unwrap() += 1;
            return Fate::Drop;
        }
        let Some((INTERMEDIATE, false, ..)) = fragment(packet) else { return Fate::Pass };
        kept.lock().unwrap().push(packet.clone());
        Fate::Drop
    });
    pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_millis(300));
    let request = std::mem::take(&mut *taken.lock().unwrap());
    for packet in &request {
        pair.inject(Packet::forged(victim, packet.dst, packet.octets.clone()));
    }
    pair.run_for(Duration::from_millis(300));
    let first = *got.lock().unwrap();
    assert!(first > 8, "{first} fragments of an answer to {}", request.len());
    let again = request.iter().find(|packet| fragment(packet).is_some_and(|f| f.2 == 1)).unwrap();
    for _ in 0..1000 {
        pair.inject(Packet::forged(victim, again.dst, again.octets.clone()));
        pair.run_for(Duration::from_millis(20));
    }
    assert_eq!(pair.b().endpoint.half_open(), 1, "it is half-open all the while");
    let sent = *got.lock().unwrap();
    assert!(sent > first && sent <= 9 * first, "{sent} datagrams, {first} of them at first");
}
