//! Class 39: nobody can make this end send more than a stranger's datagram was worth, or at all.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::wire::payload::{Ke, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, PayloadType, ProtocolId};
use ike_proto::wire::{Flags, Header, encode_message};
use ike_tests::Side;
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::proposal;
use ike_tests::setup::{identity, side};

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
