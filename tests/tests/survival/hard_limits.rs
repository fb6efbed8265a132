//! Hard limits that are reached while a rekey is under way.

use std::time::Duration;

use ike_proto::Command;
use ike_proto::dataplane::Event as PlaneEvent;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Fate;
use ike_tests::{A, B, Pair, Setup, cheap};

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
