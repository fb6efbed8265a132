//! Class 37: every bit of protected messages turned over, one at a time.

use ike_proto::wire::registry::ExchangeType;
use ike_proto::wire::{Message, Payload};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::Handmade;
use ike_tests::setup::identity;

/// What an attacker could change: everything a status shows, and what the data plane holds.
fn state(bench: &Bench) -> String {
    let host = bench.host();
    let planes = (host.plane.inbound_spis(), host.plane.outbound_spis(), host.plane.routes());
    format!("{:?} {:?} {planes:?} {:?}", host.ikes(), host.log, host.wake())
}

/// Gives every corruption of one bit of `datagram`; nothing comes of any.
fn flip_all(bench: &mut Bench, peer: &Handmade, datagram: &[u8]) {
    let before = state(bench);
    for bit in 0..8 * datagram.len() {
        let mut mangled = datagram.to_vec();
        mangled[bit / 8] ^= 0x80 >> (bit % 8);
        for answer in bench.give(&mangled) {
            // Outside any SA there may be an unprotected hint, and no more (RFC 7296 §2.21.4, §2.5).
            let message = Message::decode(&answer).expect("well-formed");
            let hint = matches!(message.payloads.as_slice(), [Payload::Notify(_)]);
            assert!(hint && peer.open(&answer).is_none(), "bit {bit} was answered");
            assert!(bit < 8 * 28, "bit {bit} is not in the header");
        }
        assert_eq!(bench.host().endpoint.reassembly_memory(), 0, "bit {bit}");
    }
    assert_eq!(state(bench), before);
}

/// The good IKE_AUTH request of `peer`.
fn auth_request(peer: &mut Handmade, max_datagram: Option<usize>) -> Vec<Vec<u8>> {
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    peer.seal_in(ExchangeType::IKE_AUTH, 1, false, &payloads, max_datagram)
}

#[test]
fn class_37_requests_before_authentication() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let request = auth_request(&mut peer, None).remove(0);
    flip_all(&mut bench, &peer, &request);
    assert_eq!(bench.give(&request).len(), 1, "and the genuine one is taken");
    bench.host().child();
}

#[test]
fn class_37_fragments() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let fragments = auth_request(&mut peer, Some(120));
    for fragment in &fragments {
        flip_all(&mut bench, &peer, fragment);
    }
    let answers: usize = fragments.iter().map(|fragment| bench.give(fragment).len()).sum();
    assert_eq!(answers, 1, "and the genuine ones are taken");
    bench.host().child();
}

#[test]
fn class_37_requests_over_an_established_sa() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let deletes = [
        ike_proto::wire::payload::Delete::esp(vec![1007]),
        ike_proto::wire::payload::Delete::ike(),
    ];
    for delete in deletes {
        let payloads = [Payload::Delete(delete)];
        let request = peer.next_request(ExchangeType::INFORMATIONAL, &payloads);
        flip_all(&mut bench, &peer, &request);
        assert_eq!(bench.give(&request).len(), 1, "and the genuine one is taken");
    }
    assert_eq!(bench.host().ikes().len(), 0);
}

#[test]
fn class_37_a_request_that_was_answered() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
    let answer = bench.give(&request);
    flip_all(&mut bench, &peer, &request);
    assert_eq!(bench.give(&request), answer, "the genuine one again gets the same answer");
}

#[test]
fn class_37_responses() {
    let mut bench = Bench::new();
    let (_, mut peer, _) = bench.answering();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, false);
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    flip_all(&mut bench, &peer, &response);
    bench.give(&response);
    let ike = bench.host().ike().id;

    bench.world.command(0, ike_proto::Command::TerminateIke(ike));
    assert_eq!(bench.sent().len(), 1);
    let response = peer.seal(ExchangeType::INFORMATIONAL, 2, true, &[]);
    flip_all(&mut bench, &peer, &response);
    bench.give(&response);
    assert_eq!(bench.host().ikes().len(), 0);
}

#[test]
fn class_37_cut_short_or_drawn_out() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let request = auth_request(&mut peer, None).remove(0);
    let before = state(&bench);
    // The lengths of header and payload agree with what is there; the octets do not.
    let mend = |mut datagram: Vec<u8>| {
        let length = datagram.len();
        datagram[24..28].copy_from_slice(&(length as u32).to_be_bytes());
        datagram[30..32].copy_from_slice(&((length - 28) as u16).to_be_bytes());
        datagram
    };
    for length in 32..request.len() {
        assert_eq!(bench.give(&mend(request[..length].to_vec())).len(), 0, "{length} octets");
    }
    for more in [1, 15, 16, 17, 1000] {
        let longer = [&request[..], &vec![0; more]].concat();
        assert_eq!(bench.give(&mend(longer)).len(), 0, "{more} octets more");
    }
    assert_eq!(state(&bench), before);
    assert_eq!(bench.give(&request).len(), 1);
}
