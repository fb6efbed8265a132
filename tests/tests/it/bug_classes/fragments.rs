//! Classes 13 and 15: fragments whose numbers lie, and fragments that never end.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{Fragmentation, IdMatch, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::keys::Epoch;
use ike_proto::wire::Message;
use ike_proto::wire::payload::Payload;
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_tests::Side;
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, LooseFragment, notifies};
use ike_tests::setup::{identity, side};

const AUTH: ExchangeType = ExchangeType::IKE_AUTH;
const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;

/// The good IKE_AUTH request of `peer`, in fragments of up to `max_datagram` octets.
fn auth_fragments(peer: &mut Handmade, max_datagram: usize) -> Vec<Vec<u8>> {
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    peer.seal_in(AUTH, 1, false, &payloads, Some(max_datagram))
}

/// Hands over fragments; the answers to all of them.
fn give_all(bench: &mut Bench, fragments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    fragments.iter().flat_map(|fragment| bench.give(fragment)).collect()
}

/// A piece of an IKE_AUTH request that is nobody's.
fn loose<'a>(number: u16, total: u16, content: &'a [u8]) -> LooseFragment<'a> {
    let first = if number == 1 { PayloadType::ID_I } else { PayloadType::NONE };
    LooseFragment { first, number, total, content }
}

#[test]
fn class_13_impossible_numbers_leave_no_trace() {
    let numbers = [(0, 0), (0, 1), (1, 0), (2, 1), (0, 5), (6, 5), (65_535, 1), (65_535, 65_534)];
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    for (number, total) in numbers {
        for content in [&[][..], &[0], &[7; 1000]] {
            let datagram = peer.seal_fragment(AUTH, 1, false, &loose(number, total, content));
            assert_eq!(bench.give(&datagram).len(), 0, "{number} of {total}");
            assert_eq!(bench.host().endpoint.reassembly_memory(), 0, "{number} of {total}");
        }
    }
    let fragments = auth_fragments(&mut peer, 120);
    assert!(fragments.len() > 2);
    assert_eq!(give_all(&mut bench, &fragments).len(), 1);
    bench.host().child();
}

#[test]
fn class_13_empty_fragments_fill_no_gap() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    for number in 2..=5 {
        let datagram = peer.seal_fragment(AUTH, 1, false, &loose(number, 5, &[]));
        assert_eq!(bench.give(&datagram).len(), 0);
    }
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0);
    let fragments = auth_fragments(&mut peer, 150);
    assert_eq!(give_all(&mut bench, &fragments).len(), 1);
    bench.host().child();
}

#[test]
fn class_13_a_set_that_grows_starts_over_and_one_that_shrinks_is_ignored() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    // Fewer and larger fragments first, then more and smaller ones, as after path MTU discovery.
    let (few, many) = (auth_fragments(&mut peer, 150), auth_fragments(&mut peer, 100));
    assert!(few.len() < many.len() && few.len() > 1);
    assert_eq!(give_all(&mut bench, &few[..few.len() - 1]).len(), 0);
    assert_eq!(bench.give(&many[0]).len(), 0);
    // The missing one of the old set is of no use any more.
    assert_eq!(bench.give(&few[few.len() - 1]).len(), 0);
    assert_eq!(give_all(&mut bench, &few).len(), 0);
    assert_eq!(give_all(&mut bench, &many[1..]).len(), 1);
    bench.host().child();
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0);
}

#[test]
fn class_13_a_fragment_there_twice_counts_once_and_the_first_stays() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let fragments = auth_fragments(&mut peer, 120);
    let (last, front) = fragments.split_last().expect("fragments");
    for fragment in front.iter().rev() {
        for _ in 0..3 {
            assert_eq!(bench.give(fragment).len(), 0);
        }
    }
    // Another content under the number of one that is there.
    let total = u16::try_from(fragments.len()).expect("a number");
    let held = bench.host().endpoint.reassembly_memory();
    let other = peer.seal_fragment(AUTH, 1, false, &loose(2, total, &[0xee; 60]));
    assert_eq!(bench.give(&other).len(), 0);
    assert_eq!(bench.host().endpoint.reassembly_memory(), held);
    assert_eq!(bench.give(last).len(), 1);
    bench.host().child();
}

#[test]
fn class_13_every_order_of_fragments_makes_the_same_message() {
    for rotation in 0..5 {
        for reversed in [false, true] {
            let mut bench = Bench::new();
            let mut peer = bench.half_open();
            let mut fragments = auth_fragments(&mut peer, 120);
            let by = rotation.min(fragments.len());
            fragments.rotate_left(by);
            if reversed {
                fragments.reverse();
            }
            assert_eq!(give_all(&mut bench, &fragments).len(), 1);
            bench.host().child();
        }
    }
}

#[test]
fn class_13_fragments_nobody_agreed_on_are_dropped() {
    let mut side = side(1, 2);
    side.connection.fragmentation = Fragmentation::No;
    let mut bench = Bench::with(side);
    let mut peer = bench.half_open();
    let fragments = auth_fragments(&mut peer, 120);
    assert_eq!(give_all(&mut bench, &fragments).len(), 0);
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0);
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let whole = peer.seal(AUTH, 1, false, &auth_payloads(&id, &auth, 1007, true));
    assert_eq!(bench.give(&whole).len(), 1);
    bench.host().child();
}

#[test]
fn class_13_garbage_that_completes_is_refused_once() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    assert_eq!(bench.give(&peer.seal_fragment(AUTH, 1, false, &loose(1, 2, &[1; 50]))).len(), 0);
    let sent = bench.give(&peer.seal_fragment(AUTH, 1, false, &loose(2, 2, &[2; 50])));
    assert_eq!(sent.len(), 1);
    let answer = peer.open(&sent[0]).expect("sealed for the peer");
    assert_eq!(notifies(&answer), [NotifyType::INVALID_SYNTAX]);
    assert_eq!(bench.host().ikes().len(), 0);
    bench.established(1007);
}

// ---- class 15 ----

const BUDGET: usize = 1 << 20;

fn small_budget() -> Side {
    let mut side = side(1, 2);
    side.settings.reassembly_memory = BUDGET;
    side
}

/// An INFORMATIONAL request of about `octets`, which changes nothing.
fn long_request(peer: &mut Handmade, octets: usize) -> Vec<Vec<u8>> {
    let body = vec![0; octets];
    let vendor = [Payload::Vendor(&body)];
    let id = peer.next_id;
    peer.next_id += 1;
    peer.seal_in(INFORMATIONAL, id, false, &vendor, Some(1200))
}

#[test]
fn class_15_one_sa_holds_no_more_than_two_messages() {
    let mut bench = Bench::with(small_budget());
    let mut peer = bench.half_open();
    // As many fragments as there are numbers, of one octet each, the worst order first.
    for number in (1..=65_535u16).rev().step_by(7) {
        let datagram = peer.seal_fragment(AUTH, 1, false, &loose(number, 65_535, &[0]));
        assert_eq!(bench.give(&datagram).len(), 0);
        let held = bench.host().endpoint.reassembly_memory();
        assert!(held <= 2 * 65_535, "{held} octets");
    }
    // And of as many octets as fit.
    let mut peer = bench.half_open();
    for number in 1..=100 {
        let datagram = peer.seal_fragment(AUTH, 1, false, &loose(number, 101, &[0; 60_000]));
        assert_eq!(bench.give(&datagram).len(), 0);
    }
    let held = bench.host().endpoint.reassembly_memory();
    assert!(held <= 4 * 65_535, "{held} octets for two SAs");
    bench.world.run_for(Duration::from_secs(31));
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0);
}

#[test]
fn class_15_strangers_together_stay_within_the_budget_and_starve_nobody() {
    let mut bench = Bench::with(small_budget());
    let mut friend = bench.established(1007);
    let established = bench.host().ike().id;
    bench.world.hosts[0].log.clear();
    // Their number is not limited here, and cookies are no obstacle to whoever receives them.
    let mut side = small_budget();
    side.settings.cookie_threshold = u32::MAX;
    let config = Box::new(side.config());
    bench.world.command(0, ike_proto::Command::Reload(config));
    let mut gave_way = 0;
    for _ in 0..60 {
        let mut stranger = bench.half_open();
        for number in 1..=4 {
            let fragment = loose(number, 5, &[0; 12_000]);
            let before = bench.host().endpoint.reassembly_memory();
            let datagram = stranger.seal_fragment(AUTH, 1, false, &fragment);
            assert_eq!(bench.give(&datagram).len(), 0);
            let held = bench.host().endpoint.reassembly_memory();
            assert!(held <= BUDGET, "{held} octets");
            gave_way += usize::from(held < before);
        }
    }
    assert!(gave_way > 0, "the budget was never reached");
    // Who is authenticated is still heard, with messages of the greatest length.
    for octets in [100, 5000, 60_000] {
        let fragments = long_request(&mut friend, octets);
        assert_eq!(give_all(&mut bench, &fragments).len(), 1, "{octets} octets");
    }
    assert_eq!(bench.host().ike().id, established);
    // The attack over, nothing of it is left.
    bench.world.run_for(Duration::from_secs(61));
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0);
    assert_eq!(bench.host().endpoint.half_open(), 0);
    assert_eq!(bench.host().ikes().len(), 1);
}

/// One more IKE SA of the peer with this number.
fn another(bench: &mut Bench, name: u8, spi: u32) -> Handmade {
    let mut peer = bench.half_open();
    let (id, auth) = (identity(name), peer.auth(&identity(name), PSK));
    let request = peer.next_request(AUTH, &auth_payloads(&id, &auth, spi, true));
    let sent = bench.give(&request);
    assert!(peer.open(&sent[0]).is_some(), "sealed for the peer");
    peer
}

/// What one authenticated peer has this end keep is nothing to a newcomer, however many IKE SAs it has; nor to
/// another peer.
///
/// Fault: in `Link::payer`, take `Pool::Strangers` for all. Another: make `Origin::of_peer` of `self.id`.
#[test]
fn class_15_seventy_ike_sas_of_one_peer_change_nothing_for_a_newcomer() {
    let mut side = side(1, 2);
    side.connection.unique = ike_proto::config::Unique::Never;
    side.connection.set_remote_id(IdMatch::Any);
    let secret = Secret::copy_from(PSK);
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })];
    side.settings.cookie_threshold = 0;
    // So little that the peer could fill more than the part of all peers.
    side.settings.reassembly_memory = 8 << 20;
    let part = side.settings.reassembly_memory / 4;
    let mut bench = Bench::with(side);
    bench.world.audit.off = true;
    let mut other = another(&mut bench, 3, 1999);
    let mut peers: Vec<_> = (0..70).map(|n| another(&mut bench, 2, 2000 + n)).collect();
    // All of them hold as much as each other, until fewer octets are left than one more round takes.
    let mut number = 2;
    while bench.host().endpoint.reassembly_memory() + 70 * 600 < part {
        for peer in &mut peers {
            let (id, fragment) = (peer.next_id, loose(number, 2000, &[0; 500]));
            bench.give(&peer.seal_fragment(INFORMATIONAL, id, false, &fragment));
        }
        number += 1;
    }
    // One message has more octets than each of the 70 SAs keeps, and fewer than their peer does.
    let fragments = long_request(&mut other, 60_000);
    assert_eq!(give_all(&mut bench, &fragments).len(), 1, "of another peer");
    let mut most = 0;
    // What the first of them has is not lost to a stranger either, only to others of the same peer.
    for peer in &mut peers {
        let id = peer.next_id;
        for number in number..500 {
            let fragment = loose(number, 2000, &[0; 500]);
            bench.give(&peer.seal_fragment(INFORMATIONAL, id, false, &fragment));
        }
        most = most.max(bench.host().endpoint.reassembly_memory());
    }
    println!("70 IKE SAs of one peer hold {most} octets at the most");
    assert!(most > part / 8 * 7 && most <= part, "{most} of {part}");
    let fragments = long_request(&mut other, 60_000);
    assert_eq!(give_all(&mut bench, &fragments).len(), 1, "of another peer, once more");
    let before = bench.host().endpoint.reassembly_memory();
    let mut newcomer = bench.half_open();
    let (id, auth) = (identity(2), newcomer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1008, true);
    let parts = newcomer.seal_in(AUTH, 1, false, &payloads, Some(200));
    let (last, first) = parts.split_last().unwrap();
    assert_eq!(give_all(&mut bench, first).len(), 0);
    assert!(bench.host().endpoint.reassembly_memory() > before, "kept");
    assert_eq!(bench.give(last).len(), 1, "{:?}", bench.host().dropped.last());
}

#[test]
fn class_15_a_closed_sa_gives_its_memory_back() {
    let mut bench = Bench::with(small_budget());
    let mut peer = bench.established(1007);
    let fragments = long_request(&mut peer, 50_000);
    give_all(&mut bench, &fragments[1..]);
    assert!(bench.host().endpoint.reassembly_memory() > 40_000);
    let ike = bench.host().ike().id;
    bench.world.command(0, ike_proto::Command::TerminateIke(ike));
    bench.sent();
    let empty = peer.seal(INFORMATIONAL, 0, true, &[]);
    bench.give(&empty);
    assert_eq!(bench.host().ikes().len(), 0);
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0);
    bench.assert_nothing_leaked();
}

#[test]
fn class_15_half_open_sas_end_and_their_number_can_be_limited() {
    let mut side = side(1, 2);
    side.settings.cookie_threshold = u32::MAX;
    side.settings.init_limit_half_open = 50;
    let mut bench = Bench::with(side);
    let mut friend = bench.established(1007);
    for _ in 0..200 {
        let stranger = bench.start();
        bench.give(&stranger.request);
        assert!(bench.host().endpoint.half_open() <= 50);
    }
    assert_eq!(bench.host().endpoint.half_open(), 50);
    let request = friend.next_request(INFORMATIONAL, &[]);
    assert_eq!(bench.give(&request).len(), 1);
    bench.world.run_for(Duration::from_secs(31));
    assert_eq!(bench.host().endpoint.half_open(), 0);
    bench.half_open();
}

/// What AUTH covers of a fragmented message is what it covers of the whole one, whatever stands in front of
/// the Encrypted payload in clear (RFC 9242 §3.3.2).
#[test]
fn payloads_in_front_of_a_fragment_keep_their_types() {
    // Vendor IDs of these lengths, and then the payload of this type.
    let message = |vendors: &[u16], kind: u8, body: &[u8]| {
        let mut datagram = vec![0; 28];
        datagram[16] = if vendors.is_empty() { kind } else { 43 };
        datagram[..16].fill(1);
        datagram[17] = 0x20;
        datagram[18] = 43;
        let octets = |n: u16| n.to_be_bytes();
        for (n, &length) in vendors.iter().enumerate() {
            let next = if n + 1 == vendors.len() { kind } else { 43 };
            datagram.extend([&[next, 0], &octets(length)[..], &vec![53; length.into()]].concat());
            datagram.truncate(datagram.len() - 4);
        }
        datagram.extend([40, 0]);
        datagram.extend(octets(u16::try_from(4 + body.len()).unwrap()));
        datagram.extend(body);
        let length = u32::try_from(datagram.len()).unwrap();
        datagram[24..28].copy_from_slice(&length.to_be_bytes());
        datagram
    };
    for vendors in [&[][..], &[20], &[4, 57, 8]] {
        let (skf, sk) = (message(vendors, 53, &[0, 1, 0, 2, 7, 7, 7]), message(vendors, 46, &[]));
        let decoded = Message::decode(&skf).expect("a message");
        let Some(Payload::Skf(fragment)) = decoded.payloads.last() else { panic!("no fragment") };
        let front = Epoch::fragment_front(&skf, fragment);
        // Both lengths are replaced by others in either case.
        let end = front.len() - 2;
        assert_eq!((&front[..24], &front[28..end]), (&sk[..24], &sk[28..end]), "{vendors:?}");
        assert_eq!(front.len(), sk.len());
    }
}
