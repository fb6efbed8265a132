//! §2.1: who asks again is answered again, also by an IKE SA that is gone.

use std::net::SocketAddr;
use std::time::Duration;

use ike_proto::wire::Message;
use ike_proto::wire::payload::{Delete, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_tests::bench::{Bench, auth_payloads};
use ike_tests::handmade::{Handmade, notifies};
use ike_tests::network::Packet;
use ike_tests::setup::{address, identity};

/// A peer that deletes its IKE SA, its request, and the answer.
fn deleted(bench: &mut Bench) -> (Handmade, Vec<u8>, Vec<Vec<u8>>) {
    let mut peer = bench.established(1007);
    let delete = [Payload::Delete(Delete::ike())];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    let sent = bench.give(&request);
    assert_eq!(sent.len(), 1);
    assert!(bench.host().ikes().is_empty());
    (peer, request, sent)
}

/// The only notify of an answer in the clear.
fn in_clear(sent: &[Vec<u8>]) -> Vec<NotifyType> {
    let payloads = sent.iter().flat_map(|sent| Message::decode(sent).unwrap().payloads);
    let notify = |payload| match payload {
        Payload::Notify(notify) => Some(notify.kind),
        _ => None,
    };
    payloads.filter_map(notify).collect()
}

#[test]
fn s2_1_a_deleted_ike_sa_answers_its_delete_again() {
    let mut bench = Bench::new();
    let (mut peer, request, answer) = deleted(&mut bench);
    for seconds in [1, 4, 8, 15] {
        bench.world.run_for(Duration::from_secs(seconds));
        assert_eq!(bench.give(&request), answer);
    }
    assert!(bench.host().ikes().is_empty() && bench.host().ike_downs().len() == 1);
    // A request that was never made is about an SA that nobody knows.
    let next = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
    assert_eq!(in_clear(&bench.give(&next)), [NotifyType::INVALID_IKE_SPI]);
    // In the end the request is one of those.
    bench.world.run_for(Duration::from_secs(5));
    assert_eq!(in_clear(&bench.give(&request)), [NotifyType::INVALID_IKE_SPI]);
    assert_eq!(bench.host().wake(), None);
}

#[test]
fn s2_1_a_closed_ike_sa_ignores_what_it_was_not_sent_before() {
    let mut bench = Bench::new();
    let (mut peer, request, answer) = deleted(&mut bench);
    for at in [0, 17, 19, 20, 28, request.len() - 1] {
        let mut other = request.clone();
        other[at] ^= 1;
        let sent = bench.give(&other);
        assert!(sent.iter().all(|sent| peer.open(sent).is_none()), "octet {at}");
    }
    // Sealed anew it is not what it was, and nobody has the keys to see that it is genuine.
    let delete = [Payload::Delete(Delete::ike())];
    let again = peer.seal(ExchangeType::INFORMATIONAL, 2, false, &delete);
    assert_eq!(bench.give(&again).len(), 0);
    assert_eq!(bench.give(&request), answer, "and is none the worse for it");
}

#[test]
fn s2_1_the_answer_goes_to_the_peer_and_not_just_anywhere() {
    let mut bench = Bench::new();
    let (_, request, _) = deleted(&mut bench);
    // There is no NAT: the peer is where it was.
    let dst = bench.world.socket(0, 500);
    let elsewhere = SocketAddr::new(address(9), 1234);
    bench.world.inject(Packet::forged(elsewhere, dst, &*request));
    let to: Vec<_> = bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect();
    assert_eq!(to, [SocketAddr::new(address(2), 500)]);
    // And it is not answered for ever.
    let again = (0..100).filter(|_| !bench.give(&request).is_empty()).count();
    assert!(again < 20, "{again}");
}

#[test]
fn s2_1_a_failed_ike_auth_is_answered_again() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), b"another secret"));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let answer = bench.give(&request);
    assert_eq!(notifies(&peer.open(&answer[0]).unwrap()), [NotifyType::AUTHENTICATION_FAILED]);
    assert!(bench.host().ikes().is_empty());
    bench.world.run_for(Duration::from_secs(4));
    assert_eq!(bench.give(&request), answer);
}

#[test]
fn s2_1_a_fragmented_request_is_known_by_its_first_fragment() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), b"another secret"));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    let fragments = peer.seal_in(ExchangeType::IKE_AUTH, 1, false, &payloads, Some(120));
    assert!(fragments.len() > 2);
    let sent: Vec<_> = fragments.iter().rev().map(|fragment| bench.give(fragment)).collect();
    let answer = sent.last().unwrap();
    assert_eq!(answer.len(), 1);
    assert!(bench.host().ikes().is_empty());
    for (index, fragment) in fragments.iter().enumerate() {
        let expected = if index == 0 { answer.clone() } else { Vec::new() };
        assert_eq!(bench.give(fragment), expected, "fragment {index} (RFC 7383 §2.6.1)");
    }
}

/// Whoever authenticates nothing cannot push out the answers to those who did.
#[test]
fn s2_1_strangers_do_not_push_out_the_answers_to_friends() {
    let mut bench = Bench::new();
    let (_, request, answer) = deleted(&mut bench);
    let mut first = None;
    for _ in 0..4000 {
        let mut stranger = bench.half_open();
        let bad = [Payload::Nonce(&[1])];
        let request = stranger.next_request(ExchangeType::IKE_AUTH, &bad);
        let sent = bench.give(&request);
        assert_eq!(sent.len(), 1);
        first.get_or_insert((stranger, request));
    }
    let (stranger, old) = first.unwrap();
    assert!(stranger.open(&bench.give(&old)[0]).is_none(), "theirs are bounded");
    assert_eq!(bench.give(&request), answer);
}
