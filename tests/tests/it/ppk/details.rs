//! What a peer with the keys and no manners may say about PPKs.

use ike_proto::config::{PpkExchange, PpkRekey};
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, encode_message};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, notifies};
use ike_tests::setup::{identity, side};

use super::{give, id};

const SECRET: &str = "the secret of these two";

/// An endpoint with the PPK "x".
fn bench(required: bool, exchange: PpkExchange) -> Bench {
    let mut side = side(1, 2);
    give(&mut side, "x", SECRET, required, exchange);
    Bench::with(side)
}

fn notify(kind: NotifyType, data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(kind, data))
}

/// A half-open SA with `bench`, USE_PPK exchanged.
fn half_open(bench: &mut Bench) -> Handmade {
    let mut started = bench.start();
    let mut payloads = started.payloads();
    payloads.push(notify(NotifyType::USE_PPK, &[]));
    started.request = started.encode(&payloads);
    let sent = bench.give(&started.request);
    assert_eq!(sent.len(), 1, "{:?}", bench.host().dropped);
    let message = Message::decode(&sent[0]).unwrap();
    assert!(message.payloads.contains(&notify(NotifyType::USE_PPK, &[])));
    assert!(!message.payloads.contains(&notify(NotifyType::USE_PPK_INT, &[])));
    started.finish(&sent[0]).unwrap()
}

/// What the endpoint says to an IKE_AUTH request with these notifies besides.
fn authenticate(
    bench: &mut Bench,
    peer: &mut Handmade,
    mixed: bool,
    extra: &[Payload<'_>],
) -> Vec<NotifyType> {
    if mixed {
        peer.mix(SECRET.as_bytes());
    }
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, true);
    payloads.extend_from_slice(extra);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let sent = bench.give(&request);
    assert_eq!(sent.len(), 1, "{:?}", bench.host().dropped);
    notifies(&peer.open(&sent[0]).unwrap())
}

const FAILED: [NotifyType; 1] = [NotifyType::AUTHENTICATION_FAILED];

/// RFC 8784 §3, responder: table 1 and the sentences around it.
#[test]
fn the_responder_of_rfc_8784() {
    let ppk_id = [&[2], &b"x"[..]].concat();
    let opaque = [&[1], &b"x"[..]].concat();
    let known: [&[u8]; 2] = [&ppk_id, &opaque];
    for data in known {
        let mut bench = bench(true, PpkExchange::Any);
        let mut peer = half_open(&mut bench);
        let identity = notify(NotifyType::PPK_IDENTITY, data);
        let answer = authenticate(&mut bench, &mut peer, true, &[identity]);
        assert_eq!(answer, [NotifyType::PPK_IDENTITY], "and no error");
        assert_eq!(bench.host().ike().ppk, Some(id("x")));
    }
    // Announced, and then not named: whatever AUTH is made with.
    for required in [false, true] {
        for mixed in [false, true] {
            let mut bench = bench(required, PpkExchange::Any);
            let mut peer = half_open(&mut bench);
            assert_eq!(authenticate(&mut bench, &mut peer, mixed, &[]), FAILED);
            assert!(bench.host().ikes().is_empty());
        }
    }
    // Named, with AUTH made without it.
    let mut bench = bench(false, PpkExchange::Any);
    let mut peer = half_open(&mut bench);
    let identity = notify(NotifyType::PPK_IDENTITY, &ppk_id);
    assert_eq!(authenticate(&mut bench, &mut peer, false, &[identity]), FAILED);
}

#[test]
fn an_unknown_ppk_is_declined_only_with_a_good_no_ppk_auth() {
    let unknown: [&[u8]; 6] = [&[2, b'y'], &[2], &[], &[0, b'x'], &[3, b'x'], &[2, b'x', 0]];
    for data in unknown {
        for required in [false, true] {
            for good in [Some(true), Some(false), None] {
                let mut bench = bench(required, PpkExchange::Any);
                let mut peer = half_open(&mut bench);
                let mut without = peer.auth(&identity(2), PSK);
                if good == Some(false) {
                    without[0] ^= 1;
                }
                let mut extra = vec![notify(NotifyType::PPK_IDENTITY, data)];
                if good.is_some() {
                    extra.push(notify(NotifyType::NO_PPK_AUTH, &without));
                }
                let answer = authenticate(&mut bench, &mut peer, true, &extra);
                let what = format!("{data:?} required {required} NO_PPK_AUTH {good:?}");
                if !required && good == Some(true) {
                    assert_eq!(answer, [], "{what}");
                    assert_eq!(bench.host().ike().ppk, None, "{what}");
                } else {
                    assert_eq!(answer, FAILED, "{what}");
                    assert!(bench.host().ikes().is_empty(), "{what}");
                }
            }
        }
    }
}

/// NO_PPK_AUTH is no second chance for an AUTH payload that a known PPK makes wrong.
#[test]
fn no_ppk_auth_counts_for_nothing_where_the_ppk_is_known() {
    let mut bench = bench(false, PpkExchange::Any);
    let mut peer = half_open(&mut bench);
    let without = peer.auth(&identity(2), PSK);
    let extra =
        [notify(NotifyType::PPK_IDENTITY, &[2, b'x']), notify(NotifyType::NO_PPK_AUTH, &without)];
    assert_eq!(authenticate(&mut bench, &mut peer, false, &extra), FAILED);
}

#[test]
fn a_request_without_a_word_of_ppks_is_refused_in_ike_sa_init() {
    let mut bench = bench(true, PpkExchange::Any);
    let started = bench.start();
    let sent = bench.give(&started.request);
    let message = Message::decode(&sent[0]).unwrap();
    assert_eq!(message.payloads, [notify(NotifyType::NO_PROPOSAL_CHOSEN, &[])]);
    assert_eq!(bench.host().endpoint.half_open(), 0);
}

/// USE_PPK_INT means nothing without IKE_INTERMEDIATE.
#[test]
fn use_ppk_int_alone_is_not_taken() {
    let mut bench = bench(false, PpkExchange::Intermediate);
    let started = bench.start();
    let mut payloads = started.payloads();
    payloads.push(notify(NotifyType::USE_PPK_INT, &[]));
    let sent = bench.give(&started.encode(&payloads));
    let message = Message::decode(&sent[0]).unwrap();
    assert!(!message.payloads.contains(&notify(NotifyType::USE_PPK_INT, &[])));
}

/// RFC 9867 §3.1: a response has one of the two.
#[test]
fn the_initiator_takes_no_response_with_both_notifies() {
    let mut bench = bench(false, PpkExchange::Any);
    let (request, peer) = bench.initiate_to_peer();
    let message = Message::decode(&peer.response).unwrap();
    let mut payloads = message.payloads.clone();
    for kind in
        [NotifyType::USE_PPK, NotifyType::USE_PPK_INT, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED]
    {
        payloads.push(notify(kind, &[]));
    }
    let both = encode_message(&message.header, &payloads);
    assert_eq!(bench.give(&both).len(), 0);
    assert_eq!(bench.host().done(request), None, "the genuine peer may still answer");
    assert_eq!(bench.give(&peer.response.clone()).len(), 1, "and does");
}

/// RFC 8784 §3, initiator: a required PPK that the response does not confirm.
#[test]
fn the_initiator_wants_ppk_identity_in_the_response() {
    for required in [false, true] {
        let mut bench = bench(required, PpkExchange::Auth);
        let (request, mut peer) = bench.initiate_to_peer();
        let message = Message::decode(&peer.response).unwrap();
        let mut payloads = message.payloads.clone();
        payloads.push(notify(NotifyType::USE_PPK, &[]));
        peer.response = encode_message(&message.header, &payloads);
        let sent = bench.give(&peer.response.clone());
        let asked = notifies(&peer.open(&sent[0]).unwrap());
        assert!(asked.contains(&NotifyType::PPK_IDENTITY));
        assert_eq!(asked.contains(&NotifyType::NO_PPK_AUTH), !required);
        let (own, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let response =
            peer.seal(ExchangeType::IKE_AUTH, 1, true, &auth_payloads(&own, &auth, 1007, false));
        let sent = bench.give(&response);
        if required {
            assert_eq!(notifies(&peer.open(&sent[0]).unwrap()), FAILED, "in INFORMATIONAL");
            assert!(bench.host().children().is_empty());
        } else {
            assert_eq!(bench.host().done(request), Some(Ok(())));
            assert_eq!(bench.host().ike().ppk, None);
        }
    }
}

#[test]
fn offers_that_cannot_be_read_are_no_offers() {
    let mut side = side(1, 2);
    give(&mut side, "x", SECRET, false, PpkExchange::Any);
    side.connection.ppk.rekey = PpkRekey::Require;
    let mut bench = Bench::with(side);
    let mut peer = half_open(&mut bench);
    let named = notify(NotifyType::PPK_IDENTITY, &[2, b'x']);
    authenticate(&mut bench, &mut peer, true, &[named]);
    let long = [[2].as_slice(), &[b'x'; 300]].concat();
    let offers: [&[u8]; 5] =
        [&[], &[2], &[2, b'x', 0, 0, 0, 0], &[2, b'x', 0, 0, 0, 0, 0, 0, 0, 0], &long];
    for data in offers {
        use ike_proto::wire::payload::Spi;
        use ike_proto::wire::registry::ProtocolId;
        let nonce = [5; 32];
        let payloads = [
            Payload::Sa(ike_tests::handmade::proposal(ProtocolId::ESP, "aes256gcm16", Spi::Esp(9))),
            Payload::Nonce(&nonce),
            Payload::TsI(vec![ike_tests::bench::net(2)]),
            Payload::TsR(vec![ike_tests::bench::net(1)]),
            notify(NotifyType::PPK_IDENTITY_KEY, data),
        ];
        let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &payloads);
        let sent = bench.give(&request);
        let answer = notifies(&peer.open(&sent[0]).unwrap());
        assert_eq!(answer, [NotifyType::NO_PROPOSAL_CHOSEN], "{data:?}");
        assert_eq!(bench.host().children().len(), 1);
    }
}
