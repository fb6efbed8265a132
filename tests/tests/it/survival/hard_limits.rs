//! Limits that are reached while a rekey is under way.

use std::time::Duration;

use ike_proto::Command;
use ike_proto::dataplane::Event as PlaneEvent;
use ike_proto::wire::payload::{Delete, Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};
use ike_proto::wire::{Header, decode_payloads};
use ike_tests::bench::{Bench, net};
use ike_tests::handmade::{ESP, Handmade, IKE, deleted, proposal};
use ike_tests::network::Fate;
use ike_tests::packets::Inner;
use ike_tests::setup::side;
use ike_tests::{A, B, Pair, Setup, cheap};
use xfrm::{CommandKind, Fault};

use super::found::{want, wanting};

const SECOND: Duration = Duration::from_secs(1);

/// Ends whose messages take two seconds; `addke` for rekeys of three additional key exchanges.
fn far_apart(seed: u64, addke: bool, life_time: Duration) -> Pair {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.net().rekey_time = Duration::ZERO;
        side.net().life_time = Duration::ZERO;
        if addke {
            side.crypto = cheap::post_quantum();
            side.esp_proposals(&["aes128gcm16-x25519-ke1_mlkem512-ke2_mlkem768-ke3_mlkem1024"]);
        }
    });
    // The other end's own limit would be its own reason to delete the child.
    setup.a.net().life_time = life_time;
    let mut pair = setup.build();
    pair.establish();
    pair.net.conditions.delay = 2 * SECOND;
    pair
}

/// There is one child, the one that the rekey made, and packets go through it.
#[track_caller]
fn has_new_child(mut pair: Pair, old: ike_proto::ChildSaId) {
    pair.net.conditions.delay = Duration::from_millis(10);
    pair.run_for(20 * SECOND);
    assert_ne!(pair.a().child().id, old, "{}", pair.story());
    pair.b().child();
    assert!(pair.a().child_downs().is_empty(), "{}", pair.story());
    assert!(pair.b().child_downs().is_empty(), "{}", pair.story());
    pair.assert_agreement();
    pair.traffic.watch();
    pair.send_traffic(A, 10);
    pair.send_traffic(B, 10);
    pair.run_for(2 * SECOND);
    assert!(pair.traffic.lost.is_empty() && pair.traffic.arrived > 0, "{}", pair.story());
}

/// The counters of the old child reach their hard limit while this end's rekey of it is in flight, with one exchange
/// and with four: the old child goes, the new one stays.
///
/// Fault: in `Established::retire` (ike_sa/established/children.rs), have every DeleteChild task of the old child name the
/// new one, whatever its reason.
#[test]
fn a_rekey_that_ends_after_the_limit_of_octets_keeps_its_child() {
    for addke in [false, true] {
        for inbound in [false, true] {
            let mut pair = far_apart(31, addke, Duration::ZERO);
            let old = pair.a().child();
            let rekey = pair.rekey_child(A);
            pair.run_for(SECOND);
            let sa = if inbound { old.inbound } else { old.outbound };
            pair.plane_event(A, PlaneEvent::HardExpire(sa));
            assert!(pair.run_until(60 * SECOND, |w| w.hosts[A].done(rekey).is_some()));
            assert_eq!(pair.a().done(rekey), Some(Ok(())), "{}", pair.story());
            has_new_child(pair, old.id);
        }
    }
}

/// The same by time: the old child's hard lifetime ends while the answer is on its way.
///
/// Fault: as above.
#[test]
fn a_rekey_that_ends_after_the_hard_lifetime_keeps_its_child() {
    for addke in [false, true] {
        let life = 100 * SECOND;
        let mut pair = far_apart(32, addke, life);
        let old = pair.a().child().id;
        // It has lived since some time after the world began.
        let so_far = pair.now();
        pair.run_for(life - SECOND - so_far);
        let rekey = pair.rekey_child(A);
        assert!(pair.run_until(60 * SECOND, |w| w.hosts[A].done(rekey).is_some()));
        assert_eq!(pair.a().done(rekey), Some(Ok(())), "{}", pair.story());
        has_new_child(pair, old);
    }
}

/// An operator who ends a child that is being rekeyed means what it carries: the new one goes.
#[test]
fn a_child_that_an_operator_ends_during_its_rekey_goes_altogether() {
    let mut pair = far_apart(33, false, Duration::ZERO);
    let old = pair.child_id(A);
    pair.rekey_child(A);
    pair.run_for(SECOND);
    let end = pair.command(A, Command::TerminateChild(old));
    pair.run_for(60 * SECOND);
    assert_eq!(pair.a().done(end), Some(Ok(())), "{}", pair.story());
    assert!(pair.a().children().is_empty() && pair.b().children().is_empty(), "{}", pair.story());
    pair.assert_agreement();
}

/// Both ends rekey the IKE SA. A's request never arrives, and the IKE SA of B's rekey reaches its hard limit meanwhile: the
/// child, which has waited on the old IKE SA, ends with that one.
///
/// Fault: in `expire`, set the phase whatever it is.
#[test]
fn the_hard_limit_of_one_of_two_rekeys_leaves_nothing_behind() {
    let mut setup = Setup::new(33);
    setup.a.connection.rekey_time = 20 * SECOND;
    setup.a.connection.over_time = 10 * SECOND;
    setup.a.connection.rand_time = Duration::ZERO;
    // A request of B on the new IKE SA would show that B uses it.
    setup.both(|side| side.connection.dpd_delay = Duration::ZERO);
    let mut pair = setup.build();
    // A does not want the child: nothing is begun anew.
    let up = pair.initiate(B, Some("net"));
    assert!(pair.run_until(10 * SECOND, |w| w.hosts[B].done(up).is_some()));
    pair.settle();
    let (old, from) = (pair.a().ike().spi_i, pair.now());
    pair.net.tap(move |packet| {
        let of_old = packet.header().is_some_and(|header| header.spi_i == old);
        let lost = of_old
            && packet.sent >= from
            && match packet.from {
                Some(A) => packet.is(ExchangeType::CREATE_CHILD_SA, false),
                _ => packet.is(ExchangeType::INFORMATIONAL, false),
            };
        if lost { Fate::Drop } else { Fate::Pass }
    });
    pair.rekey_ike(A);
    pair.rekey_ike(B);
    pair.run_for(400 * SECOND);
    for host in [A, B] {
        assert!(pair.hosts[host].ikes().is_empty(), "{}", pair.story());
        assert!(pair.hosts[host].plane.table().is_empty(), "{}", pair.story());
    }
}

fn requests(pair: &Pair, host: usize) -> usize {
    let sent = pair.net.trace.iter().filter(|packet| {
        packet.from == Some(host) && packet.is(ExchangeType::CREATE_CHILD_SA, false)
    });
    sent.count()
}

/// Both SAs of a child reach their soft limits at once. The peer refuses the rekey: this end tries again in half a minute,
/// and not twice at once.
///
/// Fault: in `queue_rekey`, take no account of what is queued or sent.
#[test]
fn the_soft_limits_of_both_sas_of_a_child_cause_one_rekey() {
    let mut pair = wanting(44).build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    let old = pair.a().child();
    pair.hosts[B].plane.inner.fail(Fault::Nth(1));
    for sa in [old.inbound, old.outbound] {
        pair.plane_event(A, PlaneEvent::SoftExpire(sa));
    }
    pair.run_for(10 * SECOND);
    assert_eq!(requests(&pair, A), 1, "{}", pair.story());
    pair.run_for(40 * SECOND);
    assert_eq!(requests(&pair, A), 2, "{}", pair.story());
    assert_ne!(pair.a().child().id, old.id, "{}", pair.story());
    pair.assert_agreement();
}

/// The peer rekeys a child and takes that back. Meanwhile an SA of the old child has reached a limit at this end. It is
/// rekeyed or made anew now: its SA counts no further limit, or is gone.
///
/// Fault: in `go_back`, take no account of `reached`.
#[test]
fn a_limit_counts_when_the_peer_takes_a_rekey_back() {
    for hard in [false, true] {
        let mut pair = wanting(45).build();
        want(&mut pair, "net");
        pair.run_for(2 * SECOND);
        let old = pair.a().child();
        pair.hosts[B].plane.inner.fail(Fault::Nth(1));
        pair.rekey_child(B);
        let two = |w: &ike_tests::World| w.hosts[A].children_up().len() == 2;
        assert!(pair.run_until(SECOND, two), "{}", pair.story());
        let new = pair.a().children_up().into_iter().find(|child| child.id != old.id);
        pair.plane_event(A, PlaneEvent::FirstPacket(new.expect("the new one").inbound));
        pair.run_for(SECOND / 1000);
        assert_eq!(pair.a().child_rekeys().len(), 1, "{}", pair.story());
        pair.plane_event(
            A,
            match hard {
                false => PlaneEvent::SoftExpire(old.outbound),
                true => PlaneEvent::HardExpire(old.outbound),
            },
        );
        // Less than the half minute until the peer rekeys again.
        pair.run_for(10 * SECOND);
        assert_ne!(pair.a().child().id, old.id, "{hard}: {}", pair.story());
        pair.assert_agreement();
        let inner = Inner { src: [10, 1, 0, 5].into(), dst: [10, 2, 0, 5].into() };
        for (from, inner) in [(A, inner), (B, inner.reversed())] {
            assert_eq!(pair.send_packet(from, 1 - from, inner, 84), Ok(()), "{}", pair.story());
        }
    }
}

/// The data plane of this end refuses the child that the peer has made for it, and the Delete is lost at first. The peer
/// rekeys that child at once. It is being closed: the peer does not make another one in its place (RFC 7296 §2.25.1).
///
/// Fault: in `peer_may_have_more`, take no account of `DeleteSpi`.
#[test]
fn a_child_that_this_end_is_about_to_delete_is_not_unknown() {
    let mut pair = wanting(46).build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    pair.hosts[A].plane.inner.fail(Fault::Nth(1));
    let mut lost = false;
    pair.net.tap(move |packet| {
        let delete = packet.from == Some(A) && packet.is(ExchangeType::INFORMATIONAL, false);
        if delete && !std::mem::replace(&mut lost, true) { Fate::Drop } else { Fate::Pass }
    });
    let up = pair.initiate(A, Some("voice"));
    let two = |w: &ike_tests::World| w.hosts[B].children_up().len() == 2;
    assert!(pair.run_until(SECOND, two), "{}", pair.story());
    let voice = pair.b().children_up().into_iter().find(|child| child.name == "voice");
    pair.command(B, Command::RekeyChild(voice.expect("it is up").id));
    pair.run_for(2 * SECOND);
    assert!(matches!(pair.a().done(up), Some(Err(_))), "{}", pair.story());
    assert_eq!(requests(&pair, B), 1, "{}", pair.story());
}

/// A child has reached its hard limit at both ends, and the Deletes cross. The peer cannot make it anew at first: meanwhile the
/// traffic of the child does not leave.
///
/// Fault: in `close_outbound`, let `held` be `None`.
#[test]
fn deletes_that_cross_let_nothing_leave_in_clear() {
    let mut pair = wanting(47).build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    let until = pair.now() + 5 * SECOND;
    pair.net.tap(move |packet| {
        let delete = packet.from == Some(A) && packet.is(ExchangeType::INFORMATIONAL, false);
        if delete && packet.sent < until { Fate::Drop } else { Fate::Pass }
    });
    pair.hosts[B].plane.inner.fail(Fault::Nth(1));
    for host in [A, B] {
        let sa = pair.hosts[host].child().outbound;
        pair.plane_event(host, PlaneEvent::HardExpire(sa));
        pair.run_for(SECOND / 40);
    }
    let inner = Inner { src: [10, 1, 0, 5].into(), dst: [10, 2, 0, 5].into() };
    for _ in 0..20 {
        pair.run_for(SECOND / 5);
        assert_eq!(pair.send_packet(A, B, inner, 84), Err("Shunted".into()), "{}", pair.story());
    }
    pair.run_for(60 * SECOND);
    assert_eq!(pair.send_packet(A, B, inner, 84), Ok(()), "{}", pair.story());
}

/// The rekey of a child of the peer's SPI 1007 by one of 1008.
fn rekey() -> [Payload<'static>; 5] {
    [
        Payload::Notify(Notify::esp(NotifyType::REKEY_SA, 1007)),
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(1008))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![net(2)]),
        Payload::TsR(vec![net(1)]),
    ]
}

/// A hand-made peer that has rekeyed its child, of SPI 1007, uses the new one, of SPI 1008, and deletes nothing.
fn replaced_by_the_peer() -> (Bench, Handmade) {
    let mut side = side(1, 2);
    side.net().rekey_time = Duration::ZERO;
    side.net().life_time = 20 * SECOND;
    let mut bench = Bench::with(side);
    let mut peer = bench.established(1007);
    bench.world.run_for(8 * SECOND);
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &rekey());
    bench.give(&request);
    let new = bench.host().children().into_iter().find(|child| child.outbound.spi == 1008);
    bench.world.plane_event(0, PlaneEvent::FirstPacket(new.expect("the new one").inbound));
    bench.sent();
    (bench, peer)
}

/// RFC 4301 §4.4.2.1: an SA past its hard limit is not used, whether the peer has deleted it or not.
///
/// What was on its way still arrives for `delete_rekeyed_delay`. Faults: in `expire_child`, return if the child is not in use. In
/// `Children::linger`, keep both SAs whatever the reason is.
#[test]
fn what_the_peer_has_replaced_and_never_deletes_ends_at_its_own_hard_limit() {
    let (mut bench, mut peer) = replaced_by_the_peer();
    let old = bench.host().children().into_iter().find(|child| child.outbound.spi == 1007);
    let (old, outbound) = old.map(|old| (old.inbound, old.outbound)).expect("the old one");
    bench.world.run_for(11 * SECOND);
    assert!(bench.sent().is_empty(), "{:?}", bench.host().children());
    bench.world.run_for(2 * SECOND);
    let sent = bench.sent();
    let request = sent.first().expect("a Delete");
    assert_eq!(deleted(&peer.open(request).expect("sealed for the peer")), [old.spi]);
    let id = Header::peek(request).expect("a header").message_id;
    bench.give(&peer.seal(ExchangeType::INFORMATIONAL, id, true, &[]));
    let is_there = |sa| bench.host().plane.table().sa(sa).is_some();
    assert_eq!((is_there(old), is_there(outbound)), (true, false), "nothing leaves by it");
    bench.world.run_for(6 * SECOND);
    let child = bench.host().child();
    assert_eq!(child.outbound.spi, 1008);
    bench.assert_nothing_leaked();
}

/// The same after a rekey of the IKE SA, to whose successor the child has moved.
///
/// Fault: in `Life::begin_child`, return for a child that the peer has replaced.
#[test]
fn a_replaced_child_keeps_its_hard_limit_when_its_ike_sa_is_rekeyed() {
    let (mut bench, mut peer) = replaced_by_the_peer();
    let rekey = [
        Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::Ike(9))),
        Payload::Nonce(&[3; 32]),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &[9; 32] }),
    ];
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &rekey);
    bench.give(&request);
    let delete = [Payload::Delete(Delete { protocol: ProtocolId::IKE, spis: Vec::new() })];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    bench.give(&request);
    assert_eq!(bench.host().ike().spi_i, 9);
    assert_eq!(bench.host().children().len(), 2);
    bench.world.run_for(11 * SECOND);
    assert!(bench.sent().is_empty(), "{:?}", bench.host().children());
    bench.world.run_for(2 * SECOND);
    let sent = bench.sent();
    let header = sent.first().and_then(|sent| Header::peek(sent)).expect("a Delete");
    assert_eq!((header.spi_i, header.exchange), (9, ExchangeType::INFORMATIONAL));
}

/// A peer rekeys its IKE SA and deletes neither the old one nor its children. The old IKE SA ends at its hard limit, or when the
/// peer cannot ask for the answer any more, and the peer gets its Delete.
///
/// Fault: in `replaced_by_theirs`, leave out `await_delete_until`, or `limit`.
#[test]
fn an_ike_sa_that_the_peer_has_replaced_and_never_deletes_ends_with_a_delete() {
    for (limit, ends_after) in [(100, 92), (600, 165)].map(|(a, b)| (a * SECOND, b * SECOND)) {
        let mut side = side(1, 2);
        (side.connection.rekey_time, side.connection.over_time) = (limit, Duration::ZERO);
        side.connection.dpd_delay = Duration::ZERO;
        let mut bench = Bench::with(side);
        let mut peer = bench.established(1007);
        let old = bench.host().ike().spi_r;
        bench.world.run_for(8 * SECOND);
        let rekey = [
            Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::Ike(9))),
            Payload::Nonce(&[3; 32]),
            Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &[9; 32] }),
        ];
        let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &rekey);
        bench.give(&request);
        bench.sent();
        let of_old = |bench: &mut Bench| -> Vec<_> {
            let sent = bench.sent();
            let is_old = |it: &Vec<u8>| Header::peek(it).is_some_and(|it| it.spi_r == old);
            sent.into_iter().filter(is_old).collect()
        };
        bench.world.run_for(ends_after - 2 * SECOND);
        assert!(of_old(&mut bench).is_empty(), "{limit:?}");
        bench.world.run_for(4 * SECOND);
        let sent = of_old(&mut bench);
        let request = peer.open(sent.first().expect("a Delete")).expect("sealed for the peer");
        let is_delete = |payload: &Payload<'_>| matches!(payload, Payload::Delete(delete) if delete.protocol == ProtocolId::IKE);
        let payloads = decode_payloads(request.first, &request.octets, 0).expect("payloads");
        assert!(payloads.iter().any(is_delete), "{limit:?}");
        // The peer does not answer either.
        bench.world.run_for(62 * SECOND);
        let there = bench.host().ikes().iter().any(|ike| ike.spi_r == old);
        assert!(!there && bench.host().ike_downs().is_empty(), "{limit:?}");
    }
}

/// `inactivity` ends a child for good. A child whose counters cannot be read, or that has no outbound SA yet because the peer
/// has not used its rekey, is not idle.
///
/// Faults: in `Established::on_data_plane`, take an error for an empty answer to `Inactivity`; or do nothing then.
#[test]
fn counters_that_cannot_be_read_are_no_inactivity() {
    let mut side = side(1, 2);
    side.net().inactivity = 10 * SECOND;
    let mut bench = Bench::with(side);
    let mut peer = bench.established(1007);
    bench.world.hosts[0].plane.inner.fail(Fault::Every(CommandKind::QueryUsage));
    bench.world.run_for(35 * SECOND);
    assert!(bench.sent().is_empty() && bench.host().children_up().len() == 1);
    bench.world.hosts[0].plane.inner.heal();

    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &rekey());
    bench.give(&request);
    let mut children = bench.host().children_up().into_iter();
    let new = children.find(|child| child.outbound.spi == 1008).expect("the new one").inbound;
    for _ in 0..30 {
        let now = bench.world.now();
        bench.world.hosts[0].plane.count(new, 100, now);
        bench.world.run_for(SECOND);
    }
    let child = bench.host().child();
    assert_eq!(child.outbound.spi, 1008, "the old one ended, and the new one is in use");
}
