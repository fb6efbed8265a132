//! From one SA to the next: traffic of a child that ends is dropped until its successor is up, and a wanted child is
//! not forgotten between the two.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ike_proto::config::{Action, FailureShunt, Retransmission, Unique};
use ike_proto::dataplane::{Flow, PolicyAction, TrafficSelector};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Event, Failure, IkeState};
use ike_tests::network::Fate;
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup, World, cheap};
use xfrm::{CommandKind, Fault};

use crate::survival::found::want;

const SECOND: Duration = Duration::from_secs(1);

/// From here there is no way to the peer.
const OTHER_FAMILY: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

/// A schedule of four transmissions in as many seconds.
fn short() -> Retransmission {
    Retransmission {
        timeout: Some(SECOND),
        base: 1.0,
        tries: Some(3),
        ..Retransmission::strongswan()
    }
}

/// A wants "net" and "voice" for ever, from wherever it is, and soon finds a silent peer dead.
fn wanting(seed: u64) -> Setup {
    let mut setup = crate::survival::found::wanting(seed);
    setup.both(|side| side.settings.retransmission = short());
    setup.a.connection.dpd_delay = 10 * SECOND;
    setup
}

/// The policies that A has for `child`.
fn policies(world: &World, child: &str) -> Vec<PolicyAction> {
    let table = world.hosts[A].plane.table();
    let of_child = table.policies().filter(|policy| policy.child == child);
    of_child.map(|policy| policy.action.clone()).collect()
}

/// True if nothing keeps the traffic of `child` from leaving in clear.
fn is_open(world: &World, child: &str) -> bool {
    policies(world, child).is_empty()
}

/// True if A has `child` in use.
fn has(world: &World, child: &str) -> bool {
    world.hosts[A].children_up().iter().any(|up| up.name == child)
}

#[track_caller]
fn runs_until(pair: &mut Pair, limit: Duration, done: impl Fn(&World) -> bool) {
    assert!(pair.run_until(limit, done), "{}", pair.story());
}

/// Runs for `limit`. Nothing of `child` may leave in clear.
#[track_caller]
fn stays_closed(pair: &mut Pair, limit: Duration, child: &str) {
    let open = pair.run_until(limit, |w| is_open(w, child));
    assert!(!open, "{child} is open at {:?}\n{}", pair.now(), pair.story());
}

/// The peer restarts and brings up one of two children with INITIAL_CONTACT: the other one stays closed until it is up
/// again, also while the peer refuses it.
///
/// Fault: in `Context::holds`, answer `false` for `End::Replaced`.
#[test]
fn a_child_that_initial_contact_ends_stays_closed() {
    for refused in [false, true] {
        let mut pair = wanting(51).build();
        want(&mut pair, "net");
        want(&mut pair, "voice");
        runs_until(&mut pair, 5 * SECOND, |w| has(w, "net") && has(w, "voice"));
        pair.hosts[B].plane = ike_tests::plane::Plane::new();
        pair.restart(B, cheap::provider());
        if refused {
            let mut config = wanting(51).b;
            config.children.truncate(1);
            let config = config.config();
            pair.reload(B, config);
        }
        pair.initiate(B, Some("net"));
        stays_closed(&mut pair, 8 * SECOND, "voice");
        assert!(has(&pair, "net"), "{}", pair.story());
        assert_eq!(has(&pair, "voice"), !refused, "{}", pair.story());
        if refused {
            stays_closed(&mut pair, 60 * SECOND, "voice");
        }
    }
}

/// The peer has not answered a liveness check yet. An operator takes the IKE SA down, and at once up again. The Delete
/// waits for the check. The daemon begins nothing on an IKE SA that it is about to delete, and forgets nothing.
///
/// Fault: in `sa_towards`, look at the phase alone, and in `on_ended`, do not ask `is_left_out`.
#[test]
fn up_after_down_is_not_lost_while_a_request_is_in_flight() {
    for by_want in [false, true] {
        let mut pair = wanting(52).build();
        want(&mut pair, "net");
        runs_until(&mut pair, 5 * SECOND, |w| has(w, "net"));
        pair.net.tap(|packet| {
            let lost = packet.is(ExchangeType::INFORMATIONAL, false)
                && packet.sent < 12 * SECOND
                && packet.sent > 2 * SECOND;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        runs_until(&mut pair, 20 * SECOND, |w| w.hosts[A].ike().outstanding.is_some());
        let ike = pair.ike_id(A);
        pair.command(A, Command::TerminateIke(ike));
        match by_want {
            true => want(&mut pair, "net"),
            false => _ = pair.initiate(A, Some("net")),
        }
        pair.run_for(20 * SECOND);
        assert_eq!(pair.a().endpoint.neglected(), [], "{}", pair.story());
        assert!(has(&pair, "net"), "{}", pair.story());
    }
}

/// The peer rekeys the IKE SA while this end cannot authenticate anew. The rekey puts off neither the next attempt nor
/// the end.
///
/// Fault: in `successor`, set `renewing` to `false`; or leave `armed.min(until)` out.
#[test]
fn a_rekey_puts_no_reauthentication_off() {
    for ever in [false, true] {
        let mut setup = wanting(53);
        setup.a.connection.keyingtries = 1;
        setup.a.connection.rekey_time = Duration::ZERO;
        setup.a.connection.reauth_time = 15 * SECOND;
        setup.a.connection.over_time = 60 * SECOND;
        setup.a.connection.rand_time = Duration::ZERO;
        let mut pair = setup.build();
        want(&mut pair, "net");
        runs_until(&mut pair, 5 * SECOND, |w| has(w, "net"));
        pair.net.tap(move |packet| {
            let first = packet.is(ExchangeType::IKE_SA_INIT, false);
            let until = if ever { 1000 } else { 25 };
            let lost = first && packet.sent > 10 * SECOND && packet.sent < until * SECOND;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        for _ in 0..8 {
            pair.run_for(8 * SECOND);
            if pair.b().ikes_in(IkeState::Established).len() == 1 {
                pair.rekey_ike(B);
            }
        }
        pair.run_for(15 * SECOND);
        let begun =
            pair.net.trace.iter().filter(|packet| {
                packet.is(ExchangeType::IKE_SA_INIT, false) && packet.from == Some(A)
            });
        let begun: std::collections::BTreeSet<_> =
            begun.filter_map(|packet| packet.header()).map(|header| header.spi_i).collect();
        assert!(begun.len() >= 3, "{begun:x?}\n{}", pair.story());
        let expired = pair.a().ike_downs().iter().any(|(_, reason)| *reason == Failure::Expired);
        assert_eq!(expired, ever, "{}", pair.story());
        assert_eq!(has(&pair, "net"), !ever, "{}", pair.story());
    }
}

/// The peer has brought up a child that comes back by `dpd_action` alone. The peer dies while this end
/// reauthenticates. The attempt includes that child, but fails. Its traffic is dropped, and the child comes back.
///
/// Fault: in `on_ended`, lift what is carried and not wanted.
#[test]
fn dpd_action_outlasts_a_reauthentication_that_fails() {
    let mut setup = wanting(54);
    setup.a.connection.keyingtries = 1;
    let net = setup.a.net();
    (net.start_action, net.close_action) = (Action::None, Action::None);
    net.dpd_action = Action::Start;
    let mut pair = setup.build();
    pair.initiate(B, Some("net"));
    runs_until(&mut pair, 5 * SECOND, |w| has(w, "net"));
    pair.net.tap(|packet| match packet.sent > 5 * SECOND && packet.sent < 17 * SECOND {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    // Shortly before the old IKE SA is found dead.
    runs_until(&mut pair, 30 * SECOND, |w| w.hosts[A].ike().outstanding.is_some());
    pair.run_for(2 * SECOND);
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    runs_until(&mut pair, 10 * SECOND, |w| w.hosts[A].children_up().is_empty());
    let over = |w: &World| has(w, "net") || is_open(w, "net");
    runs_until(&mut pair, 10 * SECOND, over);
    assert!(has(&pair, "net"), "{}", pair.story());
}

/// Without MOBIKE a host loses its address before it has another one. No way to the peer is the end of the attempt to
/// replace the IKE SA, not of the wish.
///
/// Fault: in `attempt_has_no_way`, call `give_up` for each child.
#[test]
fn a_host_without_a_way_still_wants_its_children() {
    let mut setup = wanting(55);
    setup.a.connection.keyingtries = 1;
    setup.a.connection.dpd_delay = Duration::ZERO;
    let mut pair = setup.build();
    pair.tell_network(A);
    want(&mut pair, "net");
    runs_until(&mut pair, 5 * SECOND, |w| has(w, "net"));
    pair.roam(A, OTHER_FAMILY);
    pair.run_for(4 * SECOND);
    pair.roam(A, address(9));
    runs_until(&mut pair, 10 * SECOND, |w| {
        w.hosts[A].children_up().iter().any(|up| up.inbound.dst == address(9))
    });
}

/// An attempt for a packet finds no way to the peer, and is to be made again later. Meanwhile the next packet brings the
/// child up: the attempt is not made again.
///
/// Fault: in `again_between`, ask `carries` only where there is no packet.
#[test]
fn what_a_packet_wants_is_made_once() {
    let mut setup = wanting(63);
    setup.a.net().start_action = Action::Trap;
    let mut pair = setup.build();
    let packet = Some(Flow {
        local: TrafficSelector::host([10, 1, 0, 9].into()),
        remote: TrafficSelector::host([10, 2, 0, 9].into()),
    });
    let initiate = || {
        let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
        Command::Initiate { connection, child, local: address(1), remote: address(2), packet }
    };
    pair.offline.insert(A);
    pair.command(A, initiate());
    // The schedule takes four seconds, and the wait after it three at least.
    pair.run_for(SECOND * 11 / 2);
    assert_eq!(pair.a().ikes().len(), 0, "{}", pair.story());
    pair.offline.clear();
    pair.command(A, initiate());
    runs_until(&mut pair, SECOND, |w| has(w, "net"));
    pair.run_for(8 * SECOND);
    let ups = pair.a().events(|event| matches!(event, Event::IkeUp(_)).then_some(()));
    assert_eq!(ups.len(), 1, "{}", pair.story());
    assert_eq!(pair.a().children_up().len(), 1);
}

/// A host without MOBIKE has moved, and deletes the old IKE SA from an address that is gone. Meanwhile the peer ends the new
/// one. Nothing but the trap is left then: the next packet brings the child up.
///
/// Fault: in `leave_handovers`, do not look at `leaving`.
#[test]
fn an_ike_sa_of_a_lost_address_hides_no_trap() {
    let mut setup = crate::survival::found::wanting(64);
    let net = setup.a.net();
    (net.start_action, net.close_action, net.dpd_action) =
        (Action::Trap, Action::Trap, Action::Trap);
    let mut pair = setup.build();
    pair.tell_network(A);
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::InstallTrap { connection, child, local, remote });
    let packet = Some(Flow {
        local: TrafficSelector::host([10, 1, 0, 9].into()),
        remote: TrafficSelector::host([10, 2, 0, 9].into()),
    });
    let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
    pair.command(A, Command::Initiate { connection, child, local, remote, packet });
    runs_until(&mut pair, 2 * SECOND, |w| has(w, "net"));
    pair.roam(A, address(9));
    runs_until(&mut pair, 10 * SECOND, |w| {
        w.hosts[A].children_up().iter().any(|up| up.inbound.dst == address(9))
    });
    let ikes = pair.b().ikes();
    let new = ikes.iter().find(|ike| ike.path.remote.ip() == address(9)).map(|ike| ike.id);
    pair.command(B, Command::TerminateIke(new.expect("the new IKE SA")));
    pair.run_for(SECOND);
    assert_eq!(policies(&pair, "net"), [PolicyAction::Trap], "{}", pair.story());
}

/// A host without MOBIKE moves while a rekey of the IKE SA is in flight, and once more. The old IKE SA waits to be deleted
/// by then: the second move replaces the new one alone.
///
/// Fault: in `ike_activity`, look at the follow-ups before the queue.
#[test]
fn an_ike_sa_that_a_rekey_keeps_from_its_end_is_replaced_once() {
    let mut setup = crate::survival::found::wanting(65);
    setup.both(|side| {
        side.crypto = cheap::chains();
        side.ike_proposals(&["aes128gcm16-prfsha256-x25519-ke1_mlkem768"]);
        side.connection.mobike = false;
    });
    let mut pair = setup.build();
    pair.tell_network(A);
    want(&mut pair, "net");
    want(&mut pair, "voice");
    runs_until(&mut pair, 5 * SECOND, |w| has(w, "net") && has(w, "voice"));
    pair.net.tap(|packet| {
        let lost = packet.is(ExchangeType::IKE_FOLLOWUP_KE, true);
        if lost { Fate::Drop } else { Fate::Pass }
    });
    pair.rekey_ike(A);
    pair.run_for(SECOND);
    assert_eq!(pair.a().ike().outstanding, Some(ExchangeType::IKE_FOLLOWUP_KE));
    for to in [8, 9] {
        let has_moved = |w: &World, name: &str| {
            let all = w.hosts[A].children_up();
            all.iter().any(|up| up.name == name && up.inbound.dst == address(to))
        };
        pair.roam(A, address(to));
        runs_until(&mut pair, 10 * SECOND, |w| has_moved(w, "net") && has_moved(w, "voice"));
    }
    let begun = pair.net.trace.iter().filter(|packet| {
        packet.is(ExchangeType::IKE_SA_INIT, false) && packet.src.ip() == address(9)
    });
    let begun: std::collections::BTreeSet<_> =
        begun.filter_map(|packet| packet.header()).map(|header| header.spi_i).collect();
    assert_eq!(begun.len(), 1, "{begun:x?}\n{}", pair.story());
}

/// The peer has made two children of one name, each for a part of the traffic. `dpd_action` brings the name back: both
/// parts are dropped until then.
///
/// Fault: in `endings`, take the first child of each name alone.
#[test]
fn each_child_of_a_name_stays_closed() {
    let mut setup = wanting(56);
    setup.a.net().dpd_action = Action::Start;
    for (name, part) in [("low", "10.2.1.0/24"), ("high", "10.2.2.0/24")] {
        let child = setup.b.add_child(name, 2, 1);
        child.local_ts = vec![ike_proto::config::TsSpec::Fixed(part.parse().unwrap())];
    }
    let mut pair = setup.build();
    for child in ["low", "high"] {
        pair.initiate(B, Some(child));
    }
    runs_until(&mut pair, 5 * SECOND, |w| w.hosts[A].children_up().len() == 2);
    assert_eq!(policies(&pair, "net").len(), 2, "{}", pair.story());
    pair.net.tap(|_| Fate::Drop);
    let parts = |w: &World| policies(w, "net").len() < 2;
    assert!(!pair.run_until(120 * SECOND, parts), "{}", pair.story());
    assert!(pair.a().children_up().is_empty(), "{}", pair.story());
}

/// A Delete leaves a trap, which the data plane refuses at first. The traffic stays in until the trap is there, and the
/// trap is the only policy then.
///
/// Fault: in `Context::holds`, ask `starts()`; or in `trap_again`, lift at once.
#[test]
fn nothing_leaves_between_a_child_and_its_trap() {
    for (shunt, refused) in [
        (FailureShunt::Auto, 1),
        (FailureShunt::Auto, 2),
        (FailureShunt::Drop, 1),
        (FailureShunt::Drop, 2),
    ] {
        let mut setup = wanting(57);
        setup.a.net().start_action = Action::None;
        setup.a.net().close_action = Action::Trap;
        setup.a.net().failure_shunt = shunt;
        let mut pair = setup.build();
        let request = pair.initiate(A, Some("net"));
        runs_until(&mut pair, 5 * SECOND, |w| w.hosts[A].done(request).is_some());
        // What keeps the traffic in comes first.
        pair.hosts[A].plane.inner.fail(Fault::NthOf(CommandKind::InstallPolicy, refused));
        let ike = pair.ike_id(B);
        pair.command(B, Command::TerminateIke(ike));
        stays_closed(&mut pair, 20 * SECOND, "net");
        assert_eq!(policies(&pair, "net"), [PolicyAction::Trap], "{}", pair.story());
    }
}

/// A reauthentication waits for a way to the peer, and the peer rekeys the IKE SA meanwhile: the attempt is for the new
/// IKE SA then, and takes place.
///
/// Fault: in `move_children`, leave `parked_for` out.
#[test]
fn a_reauthentication_that_waits_follows_a_rekey() {
    let mut setup = wanting(58);
    setup.a.connection.rekey_time = Duration::ZERO;
    setup.a.connection.reauth_time = 15 * SECOND;
    setup.a.connection.over_time = 600 * SECOND;
    setup.a.connection.rand_time = Duration::ZERO;
    setup.a.connection.dpd_delay = Duration::ZERO;
    let mut pair = setup.build();
    want(&mut pair, "net");
    runs_until(&mut pair, 5 * SECOND, |w| has(w, "net"));
    pair.net.tap(|packet| {
        let first = packet.is(ExchangeType::IKE_SA_INIT, false);
        let lost = first && packet.sent > 10 * SECOND && packet.sent < 20 * SECOND;
        if lost { Fate::Drop } else { Fate::Pass }
    });
    let before = pair.address(A);
    runs_until(&mut pair, 20 * SECOND, |w| w.now() > 18 * SECOND);
    pair.set_address(A, OTHER_FAMILY);
    runs_until(&mut pair, 20 * SECOND, |w| w.now() > 19 * SECOND + SECOND / 2);
    pair.set_address(A, before);
    pair.rekey_ike(B);
    let begun = pair.now();
    let again = |w: &World| {
        let first = |p: &ike_tests::network::Packet| p.is(ExchangeType::IKE_SA_INIT, false);
        w.net.trace.iter().any(|packet| packet.sent > begun && first(packet))
    };
    runs_until(&mut pair, 20 * SECOND, again);
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
    assert!(has(&pair, "net"), "{}", pair.story());
}

/// A peer that rekeys a child has that child: packets leave by the new one as soon as the peer uses it, also where the
/// IKE SA has other children.
///
/// Fault: in `install_then_respond`, do not look at `replaces`.
#[test]
fn a_rekeyed_child_is_never_on_standby() {
    let mut setup = wanting(59);
    setup.both(|side| {
        // For the same traffic.
        let net = side.children[0].clone();
        let voice = &mut side.children[1];
        (voice.local_ts, voice.remote_ts) = (net.local_ts, net.remote_ts);
    });
    let mut pair = setup.build();
    want(&mut pair, "net");
    want(&mut pair, "voice");
    runs_until(&mut pair, 5 * SECOND, |w| w.hosts[B].children_up().len() == 2);
    pair.run_for(5 * SECOND);
    let children = pair.a().children_up();
    for child in children {
        pair.command(A, Command::RekeyChild(child.id));
        let standby = |w: &World| w.hosts[B].plane.table().policies().any(|policy| policy.standby);
        assert!(!pair.run_until(5 * SECOND, standby), "{}", pair.story());
    }
    assert_eq!(pair.a().child_rekeys().len(), 2);
}

/// Two children of one IKE SA have nothing in common: neither waits for the other one.
///
/// Fault: in `has_company`, leave the selectors out.
#[test]
fn children_for_other_traffic_are_no_reason_for_standby() {
    let mut pair = wanting(60).build();
    want(&mut pair, "net");
    want(&mut pair, "voice");
    let standby = |w: &World| w.hosts[B].plane.table().policies().any(|policy| policy.standby);
    assert!(!pair.run_until(5 * SECOND, standby), "{}", pair.story());
    assert_eq!(pair.b().children_up().len(), 2);
}

/// The peer has brought up a child whose `dpd_action` is a trap, and dies while this end reauthenticates. The attempt
/// includes the child, but fails. The traffic is dropped until the trap is there.
///
/// Fault: in `on_ended`, lift what is carried, whatever follows.
#[test]
fn a_trap_follows_although_an_attempt_carries_the_child() {
    let mut setup = wanting(61);
    setup.a.connection.keyingtries = 1;
    let net = setup.a.net();
    (net.start_action, net.close_action) = (Action::None, Action::None);
    net.dpd_action = Action::Trap;
    let mut pair = setup.build();
    pair.initiate(B, Some("net"));
    runs_until(&mut pair, 5 * SECOND, |w| has(w, "net"));
    pair.net.tap(|packet| if packet.sent > 5 * SECOND { Fate::Drop } else { Fate::Pass });
    runs_until(&mut pair, 30 * SECOND, |w| w.hosts[A].ike().outstanding.is_some());
    pair.run_for(2 * SECOND);
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    stays_closed(&mut pair, 60 * SECOND, "net");
    assert_eq!(policies(&pair, "net"), [PolicyAction::Trap], "{}", pair.story());
}

/// The peer has two children that are one of ours, each for a part of the traffic, and reauthenticates. The old IKE SA
/// stays until both are up on the new one.
///
/// Fault: in `look_at_handover`, do not count children.
#[test]
fn each_child_of_a_name_is_handed_over() {
    let mut setup = wanting(62);
    setup.a.connection.unique = Unique::Replace;
    for child in &mut setup.a.children {
        (child.start_action, child.close_action) = (Action::None, Action::None);
    }
    for (name, part) in [("low", "10.2.1.0/24"), ("high", "10.2.2.0/24")] {
        let child = setup.b.add_child(name, 2, 1);
        child.local_ts = vec![ike_proto::config::TsSpec::Fixed(part.parse().unwrap())];
    }
    let mut pair = setup.build();
    for child in ["low", "high"] {
        pair.initiate(B, Some(child));
    }
    let parts = |w: &World| {
        let all = w.hosts[A].children_up();
        let parts: std::collections::BTreeSet<_> =
            all.iter().map(|child| format!("{:?}", child.remote_ts)).collect();
        parts.len()
    };
    runs_until(&mut pair, 5 * SECOND, |w| parts(w) == 2);
    let begun = pair.now();
    pair.net.tap(move |packet| {
        let asks = packet.is(ExchangeType::CREATE_CHILD_SA, false);
        if asks && packet.sent < begun + 5 * SECOND / 2 { Fate::Drop } else { Fate::Pass }
    });
    let old = pair.ike_id(B);
    pair.command(B, Command::Reauthenticate(old));
    assert!(!pair.run_until(20 * SECOND, |w| parts(w) < 2), "{}", pair.story());
    assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
}
