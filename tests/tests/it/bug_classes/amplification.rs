//! Class 39: nobody can make this end send more than a stranger's datagram was worth, or at all.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::config::{AddressSpec, CertRequest};
use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::payload::{Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{
    CertEncoding, ExchangeType, KeMethodId, NotifyType, PayloadType, ProtocolId,
};
use ike_proto::wire::{Flags, Header, Message, encode_message};
use ike_tests::Side;
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::credentials::{Authority, key_type};
use ike_tests::handmade::proposal;
use ike_tests::setup::{address, identity, side};

/// Octets of IP and UDP headers, which count on both sides.
const HEADERS: usize = 28;

fn octets(datagrams: &[Vec<u8>]) -> usize {
    datagrams.iter().map(|datagram| HEADERS + datagram.len()).sum()
}

/// Takes each key exchange there is, and never demands a cookie.
fn open_house() -> Side {
    let mut side = side(1, 2);
    side.settings.cookie_threshold = u32::MAX;
    side.ike_proposals(&["aes256gcm16-prfsha256-x25519-ecp256-modp2048"]);
    side
}

/// The smallest IKE_SA_INIT requests that are taken, one for each key exchange.
fn smallest_requests(bench: &mut Bench) -> Vec<Vec<u8>> {
    [("x25519", 31, 32), ("ecp256", 19, 64), ("modp2048", 14, 256)]
        .into_iter()
        .map(|(name, id, octets)| {
            let started = bench.start();
            let keywords = format!("aes256gcm16-prfsha256-{name}");
            let data = vec![1; octets];
            started.encode(&[
                Payload::Sa(proposal(ProtocolId::IKE, &keywords, Spi::None)),
                Payload::Ke(Ke { method: KeMethodId(id), data: &data }),
                Payload::Nonce(&[5; 16]),
            ])
        })
        .collect()
}

#[test]
fn class_39_an_answer_to_a_spoofed_request_is_hardly_larger() {
    let mut bench = Bench::with(open_house());
    for request in smallest_requests(&mut bench) {
        let (given, sent) = (octets(std::slice::from_ref(&request)), bench.give(&request));
        assert_eq!(sent.len(), 1);
        let factor = octets(&sent) as f64 / given as f64;
        assert!(factor < 1.25, "{} octets for {given}: {factor:.2}", octets(&sent));
    }
}

#[test]
fn class_39_refusals_and_demands_are_smaller_than_requests() {
    let mut side = open_house();
    side.settings.cookie_threshold = 1;
    let mut demanding = Bench::with(side);
    for request in smallest_requests(&mut demanding) {
        let sent = demanding.give(&request);
        assert_eq!(sent.len(), 1);
        assert!(octets(&sent) < octets(&[request]));
    }
    let mut side = open_house();
    side.ike_proposals(&["aes128-sha384-ecp384"]);
    let mut refusing = Bench::with(side);
    for request in smallest_requests(&mut refusing) {
        let sent = refusing.give(&request);
        assert_eq!(sent.len(), 1);
        assert!(octets(&sent) < octets(&[request]));
    }
}

#[test]
fn class_39_a_storm_of_one_request_gains_nothing() {
    let mut bench = Bench::with(open_house());
    let request = smallest_requests(&mut bench).remove(0);
    let (mut given, mut sent) = (0, 0);
    let mut answers = Vec::new();
    for _ in 0..1000 {
        given += octets(std::slice::from_ref(&request));
        let answer = bench.give(&request);
        sent += octets(&answer);
        answers.extend(answer);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "the same answer each time");
    assert_eq!(bench.host().endpoint.half_open(), 1, "and one SA");
    assert!((sent as f64) < 1.25 * given as f64, "{sent} octets for {given}");
}

#[test]
fn class_39_a_responder_sends_nothing_unasked() {
    let mut side = open_house();
    side.connection.rekey_time = Duration::ZERO;
    side.net().rekey_time = Duration::ZERO;
    side.net().life_time = Duration::ZERO;
    let mut bench = Bench::with(side);
    // A half-open SA, whose IKE_SA_INIT response may have been lost.
    bench.half_open();
    bench.world.run_for(Duration::from_secs(600));
    assert_eq!(bench.sent().len(), 0);
    // An SA whose IKE_AUTH response may have been lost.
    bench.established(1007);
    bench.world.run_for(Duration::from_secs(600));
    assert_eq!(bench.sent().len(), 0);
}

#[test]
fn class_39_messages_of_no_sa_are_answered_seldom_and_briefly() {
    let mut bench = Bench::new();
    let header = |response, exchange| Header {
        spi_i: 0x1122_3344,
        spi_r: 0x5566_7788,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange,
        flags: Flags { initiator: true, version: false, response },
        message_id: 5,
        length: 0,
    };
    let exchanges = [
        ExchangeType::IKE_SA_INIT,
        ExchangeType::IKE_AUTH,
        ExchangeType::CREATE_CHILD_SA,
        ExchangeType::INFORMATIONAL,
        ExchangeType(99),
    ];
    // RFC 7296 §2.21.4: never in answer to a response, or errors would go round in circles.
    for exchange in exchanges {
        let response = encode_message(&header(true, exchange), &[]);
        assert_eq!(bench.give(&response).len(), 0, "{exchange}");
    }
    let sealed =
        ike_proto::wire::payload::Sk { first: PayloadType::NONE, offset: 0, body: &[0xaa; 32] };
    let request =
        encode_message(&header(false, ExchangeType::INFORMATIONAL), &[Payload::Sk(sealed)]);
    let mut answers = 0;
    for n in 0..10_000u32 {
        let from = SocketAddr::new(IpAddr::from(n.to_be_bytes()), 500);
        let sent = bench.give_from(from, &request);
        assert!(octets(&sent) <= octets(std::slice::from_ref(&request)));
        answers += sent.len();
    }
    assert!((1..=200).contains(&answers), "{answers} answers in one instant");
    bench.world.run_for(Duration::from_secs(1));
    assert_eq!(bench.give(&request).len(), 1, "later there is an answer again");
    assert_eq!(bench.host().ikes().len(), 0);
}

#[test]
fn class_39_captured_requests_played_back_are_answered_to_the_peer_alone() {
    let mut bench = Bench::with(open_house());
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    bench.give(&request);
    let victim = SocketAddr::new(IpAddr::from([203, 0, 113, 9]), 500);
    let (mut given, mut sent) = (0, 0);
    for _ in 0..1000 {
        given += octets(std::slice::from_ref(&request));
        let dst = bench.world.socket(0, 500);
        bench.world.inject(ike_tests::network::Packet::forged(victim, dst, &*request));
        for packet in bench.world.net.mailbox.drain(..) {
            assert_ne!(packet.dst, victim, "an answer to an address of the attacker's choice");
            sent += HEADERS + packet.octets.len();
        }
    }
    assert!(sent <= given, "{sent} octets for {given}");
    // Older requests get nothing at all.
    for _ in 0..3 {
        let next = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
        assert_eq!(bench.give(&next).len(), 1);
    }
    assert_eq!(bench.give(&request).len(), 0);
}

/// CA hashes make the response several times as large as a small request.
fn side_with_many_authorities() -> Side {
    let mut side = open_house();
    side.want("pubkey", &Authority::root("ca", key_type(SignatureScheme::Ed25519), 1));
    side.connection.remote[0].certreqs =
        vec![CertRequest { encoding: CertEncoding::X509_SIGNATURE, authorities: vec![7; 20 * 60] }];
    side
}

#[test]
fn class_39_a_large_answer_waits_for_a_cookie() {
    let mut bench = Bench::with(side_with_many_authorities());
    let mut demanded = 0;
    for request in smallest_requests(&mut bench) {
        let sent = bench.give(&request);
        assert_eq!(sent.len(), 1);
        assert!(sent[0].len() <= 3 * request.len(), "{} for {}", sent[0].len(), request.len());
        let answer = Message::decode(&sent[0]).unwrap();
        let [Payload::Notify(notify)] = answer.payloads.as_slice() else { continue };
        assert_eq!(notify.kind, NotifyType::COOKIE);
        demanded += 1;
        // Who shows that he is there gets it all, as often as he asks, and nobody else does.
        let with_cookie = |cookie: &[u8]| {
            let plain = Message::decode(&request).unwrap();
            let mut payloads = vec![Payload::Notify(Notify::new(NotifyType::COOKIE, cookie))];
            payloads.extend(plain.payloads.iter().cloned());
            encode_message(&plain.header, &payloads)
        };
        let half_open = bench.host().endpoint.half_open();
        let mangled = bench.give(&with_cookie(&vec![9; notify.data.len()]));
        assert!(mangled[0].len() <= 3 * request.len());
        assert_eq!(bench.host().endpoint.half_open(), half_open, "nothing is kept before");
        let validated = with_cookie(notify.data);
        for _ in 0..3 {
            let sent = bench.give(&validated);
            assert_eq!(sent.len(), 1);
            assert!(sent[0].len() > 640);
        }
        let victim = SocketAddr::new(IpAddr::from([203, 0, 113, 9]), 500);
        assert_eq!(bench.give_from(victim, &validated), Vec::<Vec<u8>>::new());
    }
    assert!(demanded >= 2, "{demanded}");
}

/// A request that waits for a cookie has cost a key exchange: many of them count as half-open SAs do.
#[test]
fn class_39_many_large_answers_make_everybody_bring_a_cookie() {
    let mut side = side_with_many_authorities();
    side.settings.cookie_threshold = 30;
    side.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut bench = Bench::with(side);
    let small = smallest_requests(&mut bench).remove(0);
    for n in 0..300_u32 {
        let from = SocketAddr::new(IpAddr::from((0x0b00_0000 + n).to_be_bytes()), 500);
        assert_eq!(bench.give_from(from, &small).len(), 1);
    }
    assert_eq!(bench.host().endpoint.half_open(), 0);
    let demanded = |bench: &mut Bench| {
        // With a public value so long that the answer is not three times as large.
        let request = smallest_requests(bench).remove(2);
        let sent = bench.give(&request);
        let answer = Message::decode(&sent[0]).unwrap();
        matches!(answer.payloads.as_slice(), [Payload::Notify(n)] if n.kind == NotifyType::COOKIE)
    };
    assert!(demanded(&mut bench), "nobody is let in without");
    bench.world.run_for(Duration::from_secs(2));
    let calm = demanded(&mut bench);
    assert!(!calm, "later everybody is");
}

/// The peer is behind a NAT, so that its address may change; what was captured of it is played back from
/// the address of somebody else.
#[test]
fn class_39_captured_requests_of_a_peer_behind_a_nat_gain_little() {
    let mut side = open_house();
    // Large answers.
    side.settings.fragment_size = Some(160);
    let mut bench = Bench::with(side);
    let started = bench.start();
    let mut payloads = started.payloads();
    let nowhere = [0x55; 20];
    for kind in [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP] {
        payloads.push(Payload::Notify(Notify::new(kind, &nowhere)));
    }
    let request = started.encode(&payloads);
    let sent = bench.give(&request);
    let mut started = started;
    started.request = request;
    let mut peer = started.finish(&sent[0]).unwrap();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    bench.give(&request);
    let mut answers = 0;
    for n in 0..1000u32 {
        let victim = SocketAddr::new(IpAddr::from([203, 0, 113, (n % 200) as u8]), 500);
        let dst = bench.world.socket(0, 500);
        bench.world.inject(ike_tests::network::Packet::forged(victim, dst, &*request));
        answers += bench.world.net.mailbox.drain(..).count();
    }
    assert!((1..=8).contains(&answers), "{answers} answers");
    bench.world.run_for(Duration::from_secs(1));
    bench.sent();
    let (home, dst) = (SocketAddr::new(address(2), 500), bench.world.socket(0, 500));
    bench.world.inject(ike_tests::network::Packet::forged(home, dst, &*request));
    bench.world.run_for(Duration::from_secs(1));
    assert!(bench.world.net.mailbox.drain(..).any(|packet| packet.dst == home));
}
