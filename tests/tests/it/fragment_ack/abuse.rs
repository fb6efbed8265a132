//! Acknowledgements that are forged, played back, contradict themselves or are too many; and fragments sent
//! to make an end acknowledge.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::PreSharedKey;
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::{IdData, MissingRange, Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_proto::wire::{Header, Message, decode_payloads};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, LooseFragment};
use ike_tests::network::Packet;
use ike_tests::setup::{address, identity, side};

const AUTH: ExchangeType = ExchangeType::IKE_AUTH;
const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;
const SUPPORTED: NotifyType = NotifyType(51_521);
const OF_REQUEST: NotifyType = NotifyType(51_522);
const OF_RESPONSE: NotifyType = NotifyType(51_523);
const SECOND: Duration = Duration::from_secs(1);
const DPD: Duration = Duration::from_secs(3000);

/// An endpoint whose IKE_AUTH messages have several fragments.
fn bench() -> Bench {
    let mut side = side(1, 2);
    side.settings.fragment_size = Some(160);
    side.connection.dpd_delay = DPD;
    // Long, so that its IKE_AUTH messages are.
    let id = IdData::fqdn(format!("{}.example", "a".repeat(300)));
    let ids = vec![id.clone(), identity(2)];
    side.connection.set_local_id(Some(id));
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids, secret: Secret::copy_from(PSK) })];
    Bench::with(side)
}

/// A peer that has announced fragment acknowledgement in the IKE_SA_INIT request that was answered.
fn half_open(bench: &mut Bench) -> Handmade {
    let mut started = bench.start();
    let mut payloads = started.payloads();
    payloads.push(Payload::Notify(Notify::new(SUPPORTED, &[])));
    let request = started.encode(&payloads);
    drop(payloads);
    started.request = request;
    let sent = bench.give(&started.request);
    started.finish(&sent[0]).expect("an SA in the response")
}

/// The same, and IKE_AUTH is answered: the fragments of the answer.
fn established(bench: &mut Bench) -> (Handmade, Vec<Vec<u8>>) {
    let mut peer = half_open(bench);
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let request = peer.next_request(AUTH, &auth_payloads(&id, &auth, 1007, true));
    let answer = bench.give(&request);
    assert!(answer.len() > 2, "{:?}", bench.host().dropped);
    (peer, answer)
}

/// An acknowledgement of `peer`'s.
fn ack(
    peer: &mut Handmade,
    kind: NotifyType,
    (exchange, id): (ExchangeType, u32),
    pairs: &[(u16, u16)],
) -> Vec<u8> {
    let ranges: Vec<_> = pairs.iter().map(|&(first, last)| MissingRange { first, last }).collect();
    let mut data = Vec::new();
    MissingRange::encode_all(&ranges, &mut data);
    peer.seal(exchange, id, true, &[Payload::Notify(Notify::new(kind, &data))])
}

/// Header, type and ranges of an acknowledgement.
type Read = (Header, NotifyType, Vec<(u16, u16)>);

/// What an acknowledgement of the endpoint says: header, kind, ranges.
fn read(peer: &Handmade, datagram: &[u8]) -> Option<Read> {
    let opened = peer.open(datagram)?;
    let payloads = decode_payloads(opened.first, &opened.octets, 0).ok()?;
    let [Payload::Notify(notify)] = payloads.as_slice() else { return None };
    let ranges = MissingRange::decode_all(notify.data, u16::MAX).ok()?;
    let pairs = ranges.iter().map(|range| (range.first, range.last)).collect();
    Some((Header::peek(datagram)?, notify.kind, pairs))
}

fn number(datagram: &[u8]) -> u16 {
    match Message::decode(datagram).unwrap().payloads.last() {
        Some(Payload::Skf(skf)) => skf.number,
        _ => 0,
    }
}

#[test]
fn an_acknowledgement_names_what_is_missing_and_nothing_else() {
    let mut bench = bench();
    let mut peer = half_open(&mut bench);
    let loose =
        |number| LooseFragment { first: PayloadType::NONE, number, total: 9, content: &[7; 50] };
    for number in [2, 3, 7] {
        let datagram = peer.seal_fragment(AUTH, 1, false, &loose(number));
        assert!(bench.give(&datagram).is_empty());
    }
    bench.world.run_for(SECOND);
    let sent = bench.sent();
    let (header, kind, pairs) = read(&peer, &sent[0]).expect("an acknowledgement");
    assert_eq!((header.exchange, header.message_id), (AUTH, 1));
    assert!(header.flags.response && !header.flags.initiator);
    assert_eq!((kind, pairs), (OF_REQUEST, vec![(1, 1), (4, 6), (8, 9)]));
    // No more come than fragments and a few, and none that says anything else.
    bench.world.run_for(Duration::from_secs(25));
    let all: Vec<_> = sent.into_iter().chain(bench.sent()).collect();
    assert!(all.len() <= 3 + 4, "{}", all.len());
    for datagram in &all {
        assert_eq!(read(&peer, datagram).expect("acknowledgement").2, [(1, 1), (4, 6), (8, 9)]);
    }
}

#[test]
fn nobody_is_acknowledged_who_has_not_agreed() {
    let mut bench = bench();
    let mut peer = bench.half_open();
    let fragment =
        LooseFragment { first: PayloadType::NONE, number: 2, total: 9, content: &[7; 50] };
    for _ in 0..10 {
        let datagram = peer.seal_fragment(AUTH, 1, false, &fragment);
        bench.give(&datagram);
    }
    bench.world.run_for(Duration::from_secs(25));
    assert!(bench.sent().is_empty());
}

/// A fragment that comes again asks; who plays it back gets fewer octets than it sends.
#[test]
fn duplicates_are_no_amplifier() {
    let mut bench = bench();
    let mut peer = half_open(&mut bench);
    let fragment =
        LooseFragment { first: PayloadType::NONE, number: 2, total: 3, content: &[7; 50] };
    let datagram = peer.seal_fragment(AUTH, 1, false, &fragment);
    let (mut given, mut got) = (0, 0);
    for step in [1, 20, 100] {
        for _ in 0..2000 {
            given += 1;
            got += bench.give(&datagram).len();
            bench.world.run_for(Duration::from_millis(step) / 10);
            got += bench.sent().len();
            assert!(got <= given + 4, "{got} of {given}");
        }
    }
    // Less and less: a second apart in the end.
    assert!(got < 60, "{got} of {given}");
    // Changed in one bit they are nothing.
    bench.world.run_for(SECOND);
    bench.sent();
    for bit in [0x01, 0x80] {
        for place in 28..datagram.len() {
            let mut forged = datagram.clone();
            forged[place] ^= bit;
            assert!(bench.give(&forged).is_empty(), "{place}");
        }
    }
}

/// Whoever has half an SA can send the tiniest fragments in somebody else's name: the acknowledgements that
/// he gets are no larger.
#[test]
fn acknowledgements_to_where_nobody_was_seen_are_short() {
    let victim = SocketAddr::new(address(77), 4711);
    let peer = SocketAddr::new(address(2), 500);
    let factor = |from| {
        let mut bench = bench();
        let mut peer = half_open(&mut bench);
        let (mut given, mut got) = (0, 0);
        for number in (1..=128).map(|n| 2 * n) {
            let loose =
                LooseFragment { first: PayloadType::NONE, number, total: 300, content: &[7] };
            let datagram = peer.seal_fragment(AUTH, 1, false, &loose);
            given += 28 + datagram.len();
            let mut sent = bench.give_from(from, &datagram);
            bench.world.run_for(Duration::from_millis(200));
            sent.extend(bench.sent());
            got += sent.iter().map(|datagram| 28 + datagram.len()).sum::<usize>();
        }
        assert!(got > 0);
        got as f64 / given as f64
    };
    let (elsewhere, home) = (factor(victim), factor(peer));
    assert!(elsewhere < 1.5, "{elsewhere}");
    assert!(home < 3.0, "{home}");
}

#[test]
fn only_what_is_named_is_sent_again_and_to_the_peer() {
    let mut bench = bench();
    let (mut peer, answer) = established(&mut bench);
    bench.world.run_for(SECOND);
    let datagram = ack(&mut peer, OF_RESPONSE, (AUTH, 1), &[(2, 2)]);
    // From anywhere: it went through a NAT, or somebody has taken it along.
    let elsewhere = SocketAddr::new(address(77), 4711);
    let dst = SocketAddr::new(address(1), 500);
    bench.world.inject(Packet::forged(elsewhere, dst, datagram.clone()));
    let packets: Vec<_> = bench.world.net.mailbox.drain(..).collect();
    assert_eq!(packets.len(), 1, "{:?}", bench.host().dropped);
    assert_eq!(*packets[0].octets, answer[1][..], "bit for bit, under its old IV");
    assert_eq!(packets[0].dst, SocketAddr::new(address(2), 500));
    // Played back it does nothing.
    bench.world.run_for(SECOND);
    assert!(bench.give(&datagram).is_empty());
    let datagram = ack(&mut peer, OF_RESPONSE, (AUTH, 1), &[(1, 1), (3, 3)]);
    let again = bench.give(&datagram);
    assert_eq!(again.iter().map(|datagram| number(datagram)).collect::<Vec<_>>(), [1, 3]);
    bench.assert_nothing_leaked();
}

#[test]
fn forged_and_contradictory_acknowledgements_send_nothing() {
    let mut bench = bench();
    let (mut peer, answer) = established(&mut bench);
    let total = u16::try_from(answer.len()).unwrap();
    bench.world.run_for(SECOND);
    let genuine = ack(&mut peer, OF_RESPONSE, (AUTH, 1), &[(1, total)]);
    for place in 0..genuine.len() {
        let mut forged = genuine.clone();
        forged[place] ^= 1;
        assert!(bench.give(&forged).is_empty(), "octet {place}");
    }
    let bad: [&[(u16, u16)]; 8] = [
        &[],
        &[(0, 0)],
        &[(0, 1)],
        &[(2, 1)],
        &[(1, total + 1)],
        &[(2, 2), (1, 1)],
        &[(1, 2), (2, 3)],
        &[(1, u16::MAX)],
    ];
    for pairs in bad {
        let datagram = ack(&mut peer, OF_RESPONSE, (AUTH, 1), pairs);
        assert!(bench.give(&datagram).is_empty(), "{pairs:?}");
    }
    // Of the wrong message, exchange or direction.
    let all = [(1, total)];
    for (kind, about) in [
        (OF_REQUEST, (AUTH, 1)),
        (OF_RESPONSE, (AUTH, 0)),
        (OF_RESPONSE, (AUTH, 2)),
        (OF_RESPONSE, (AUTH, u32::MAX)),
        (OF_RESPONSE, (INFORMATIONAL, 1)),
        (SUPPORTED, (AUTH, 1)),
    ] {
        let datagram = ack(&mut peer, kind, about, &all);
        assert!(bench.give(&datagram).is_empty(), "{kind} {about:?}");
    }
    // As a request, with another payload, twice, without an end.
    let data = [0, 1, 0, 2];
    let notify = Payload::Notify(Notify::new(OF_RESPONSE, &data));
    for payloads in [
        vec![notify.clone(), notify.clone()],
        vec![notify.clone(), Payload::Vendor(b"x")],
        vec![Payload::Vendor(b"x"), notify.clone()],
        vec![Payload::Notify(Notify::new(OF_RESPONSE, &data[..3]))],
    ] {
        let datagram = peer.seal(AUTH, 1, true, &payloads);
        assert!(bench.give(&datagram).is_empty(), "{payloads:?}");
    }
    let long = vec![0; 5000];
    let datagram =
        peer.seal(AUTH, 1, true, &[Payload::Notify(Notify::new(OF_RESPONSE, &long)), notify]);
    assert!(bench.give(&datagram).is_empty());
    // The SA is as it was, and the genuine one still counts.
    assert_eq!(bench.give(&genuine).len(), answer.len());
    let request = peer.next_request(INFORMATIONAL, &[]);
    assert_eq!(bench.give(&request).len(), 1);
}

/// However many acknowledgements there are, a fragment rests between two sendings, and an end comes.
#[test]
fn acknowledgements_without_end() {
    let mut bench = bench();
    let (mut peer, answer) = established(&mut bench);
    let total = u16::try_from(answer.len()).unwrap();
    bench.world.run_for(SECOND);
    let mut sent = 0;
    for _ in 0..50 {
        let datagram = ack(&mut peer, OF_RESPONSE, (AUTH, 1), &[(1, total)]);
        sent += bench.give(&datagram).len();
    }
    assert_eq!(sent, answer.len(), "all at once");
    for _ in 0..1000 {
        bench.world.run_for(SECOND);
        let datagram = ack(&mut peer, OF_RESPONSE, (AUTH, 1), &[(1, total)]);
        sent += bench.give(&datagram).len();
    }
    assert!(sent <= 128 * answer.len(), "{sent}");
    // Another message starts anew.
    let request = peer.next_request(INFORMATIONAL, &[]);
    assert_eq!(bench.give(&request).len(), 1);
}

/// A captured acknowledgement proves nobody alive: the liveness check comes all the same.
#[test]
fn acknowledgements_played_back_are_no_sign_of_life() {
    for pairs in [&[(2, 2)][..], &[(2, 1)], &[(1, 1), (1, 1)]] {
        let mut bench = bench();
        let (mut peer, _) = established(&mut bench);
        let captured = ack(&mut peer, OF_RESPONSE, (AUTH, 1), pairs);
        bench.world.run_for(SECOND);
        bench.give(&captured);
        for _ in 0..30 {
            bench.world.run_for(DPD / 20);
            bench.world.inject(Packet::forged(
                SocketAddr::new(address(2), 500),
                SocketAddr::new(address(1), 500),
                captured.clone(),
            ));
        }
        let asked = bench.sent().into_iter().any(|datagram| {
            let header = Header::peek(&datagram).unwrap();
            header.exchange == INFORMATIONAL && !header.flags.response
        });
        assert!(asked, "{pairs:?}: no liveness check");
    }
}

/// Acknowledged before the window moves, not after.
#[test]
fn an_answer_that_was_superseded_is_not_sent_again() {
    let mut bench = bench();
    let (mut peer, _) = established(&mut bench);
    let late = ack(&mut peer, OF_RESPONSE, (AUTH, 1), &[(1, 1)]);
    let request = peer.next_request(INFORMATIONAL, &[]);
    assert_eq!(bench.give(&request).len(), 1);
    bench.world.run_for(SECOND);
    assert!(bench.give(&late).is_empty());
    // The answer to it has one datagram: there is nothing to acknowledge.
    let datagram = ack(&mut peer, OF_RESPONSE, (INFORMATIONAL, 2), &[(1, 1)]);
    assert!(bench.give(&datagram).is_empty());
}

/// The endpoint as initiator: an acknowledgement of its request is not the response, whoever says so.
#[test]
fn an_acknowledgement_is_no_response() {
    let mut bench = bench();
    let (request, mut peer) = bench.initiate_to_peer();
    let message = Message::decode(&peer.response).unwrap();
    let mut payloads = message.payloads.clone();
    payloads.push(Payload::Notify(Notify::new(SUPPORTED, &[])));
    let response = ike_proto::wire::encode_message(&message.header, &payloads);
    peer.response = response.clone();
    let fragments = bench.give(&response);
    assert!(fragments.len() > 1, "{:?}", bench.host().dropped);
    let total = u16::try_from(fragments.len()).unwrap();
    bench.world.run_for(Duration::from_millis(20));
    bench.sent();
    let datagram = ack(&mut peer, OF_REQUEST, (AUTH, 1), &[(total, total)]);
    let again = bench.give(&datagram);
    assert_eq!(again, [fragments[fragments.len() - 1].clone()], "{:?}", bench.host().dropped);
    for pairs in [&[][..], &[(9, 3)], &[(1, 1), (1, 1)]] {
        let datagram = ack(&mut peer, OF_REQUEST, (AUTH, 1), pairs);
        assert!(bench.give(&datagram).is_empty());
    }
    assert_eq!(bench.host().done(request), None);
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, false);
    let response = peer.seal(AUTH, 1, true, &payloads);
    assert!(bench.give(&response).is_empty());
    assert_eq!(bench.host().done(request), Some(Ok(())), "{:?}", bench.host().dropped);
    bench.host().child();
}

/// Who says for ever that it has nothing does not keep an attempt alive for ever.
#[test]
fn acknowledgements_do_not_keep_an_attempt_alive() {
    let mut bench = bench();
    let (request, mut peer) = bench.initiate_to_peer();
    let message = Message::decode(&peer.response).unwrap();
    let mut payloads = message.payloads.clone();
    payloads.push(Payload::Notify(Notify::new(SUPPORTED, &[])));
    peer.response = ike_proto::wire::encode_message(&message.header, &payloads);
    let response = peer.response.clone();
    bench.give(&response);
    for _ in 0..600 {
        bench.world.run_for(SECOND);
        bench.sent();
        let datagram = ack(&mut peer, OF_REQUEST, (AUTH, 1), &[]);
        bench.give(&datagram);
    }
    assert!(matches!(bench.host().done(request), Some(Err(_))), "still trying");
    assert_eq!(bench.host().ikes().len(), 0);
}
