//! §1.4, §2.3, §2.9, §3.14: what a message may hold, and when it may come.

use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Delete, Payload, Sk, TrafficSelector};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_proto::{Command, Event};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::notifies;
use ike_tests::setup::{identity, side};

#[test]
fn s1_4_1_deletes_that_cross_name_nothing_in_their_answers() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::TerminateChild(child));
    assert_eq!(bench.sent().len(), 1);
    let delete = [Payload::Delete(Delete::esp(vec![1007]))];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    let sent = bench.give(&request);
    let opened = peer.open(&sent[0]).unwrap();
    assert_eq!(decode_payloads(opened.first, &opened.octets, 0), Ok(Vec::new()), "no Delete");
    // The outgoing SA goes with the request, the incoming one with the response.
    assert!(bench.host().plane.outbound_spis().is_empty());
    assert_eq!(bench.host().plane.inbound_spis().len(), 1);
    assert!(bench.host().child_downs().is_empty());
    let response = peer.seal(ExchangeType::INFORMATIONAL, 0, true, &[]);
    assert_eq!(bench.give(&response).len(), 0);
    assert!(bench.host().children().is_empty());
    bench.assert_nothing_leaked();
}

#[test]
fn s2_3_a_request_that_overtakes_the_ike_auth_response_waits() {
    let mut bench = Bench::new();
    let (request, mut peer, _) = bench.answering();
    let early = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
    assert_eq!(bench.give(&early).len(), 0);
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, false);
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    assert_eq!(bench.give(&response).len(), 0);
    assert_eq!(bench.host().done(request), Some(Ok(())), "dropped: {:?}", bench.host().dropped);
    assert_eq!(bench.give(&early).len(), 1, "its retransmission is answered");
}

/// Narrows to the child that takes the initiator's first choice, not to the first child there is.
#[test]
fn s2_9_the_initiators_first_choice_is_in_the_narrowed_set() {
    let mut side = side(1, 2);
    side.add_child("other", 3, 4);
    let mut bench = Bench::with(side);
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, true);
    let wanted = |n: u8| TrafficSelector::host([10, n, 0, 9].into());
    let any = TrafficSelector::any_v4();
    payloads[3] = Payload::TsI(vec![wanted(4), any]);
    payloads[4] = Payload::TsR(vec![wanted(3), any]);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(bench.give(&request).len(), 1);
    let child = bench.host().child();
    assert_eq!(child.name, "other");
    assert!(child.local_ts[0].contains(&wanted(3)) && child.remote_ts[0].contains(&wanted(4)));
}

/// A responder that answers with wider selectors than it was asked for: the child has what was asked for, the log hears
/// of it, and what has nothing in common with that is refused.
///
/// Fault: in `complete_child` (exchange/child_offer.rs), refuse whatever is not `within` the offer; or use the answer as
/// it is.
#[test]
fn s2_9_of_an_answer_that_is_too_wide_the_intersection_counts() {
    let wide: TrafficSelector = "10.0.0.0/8".parse().unwrap();
    let any = TrafficSelector::any_v4();
    let narrower: TrafficSelector = "10.2.7.0/24".parse().unwrap();
    let elsewhere: TrafficSelector = "192.168.0.0/16".parse().unwrap();
    let cases = [
        (vec![net(1)], vec![wide], Some((net(1), net(2))), true),
        (vec![any], vec![any], Some((net(1), net(2))), true),
        (vec![wide], vec![narrower], Some((net(1), narrower)), true),
        (vec![net(1)], vec![elsewhere, wide], Some((net(1), net(2))), true),
        (vec![net(1)], vec![narrower], Some((net(1), narrower)), false),
        (vec![net(1)], vec![elsewhere], None, false),
        (vec![elsewhere], vec![wide], None, false),
    ];
    for (ts_i, ts_r, expected, told) in cases {
        let mut bench = Bench::new();
        let (request, mut peer, _) = bench.answering();
        let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let mut payloads = auth_payloads(&id, &auth, 1007, false);
        payloads[3] = Payload::TsI(ts_i.clone());
        payloads[4] = Payload::TsR(ts_r.clone());
        let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
        bench.give(&response);
        let hints = bench.host().events(|event| match event {
            Event::Hint(hint) => Some((**hint).clone()),
            _ => None,
        });
        assert_eq!(hints.len(), usize::from(told), "{ts_i:?} {ts_r:?}: {hints:?}");
        match expected {
            Some((local, remote)) => {
                let child = bench.host().child();
                assert_eq!((child.local_ts, child.remote_ts), (vec![local], vec![remote]));
                assert_eq!(bench.host().done(request), Some(Ok(())));
            }
            None => assert!(bench.host().children().is_empty(), "{ts_i:?} {ts_r:?}"),
        }
        bench.assert_nothing_leaked();
    }
}

#[test]
fn s3_14_an_encrypted_payload_is_not_inside_another() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let sk = Sk { first: PayloadType::NONE, offset: 0, body: &[0; 40] };
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &[Payload::Sk(sk)]);
    let sent = bench.give(&request);
    assert_eq!(notifies(&peer.open(&sent[0]).unwrap()), [NotifyType::INVALID_SYNTAX]);
    assert!(bench.host().ikes().is_empty(), "fatal in both peers (§2.21.3)");
    bench.assert_nothing_leaked();
}
