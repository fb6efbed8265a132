//! What random lives have found about children that are wanted: a trap that the data plane refuses, a reauthentication
//! while other children come up, a Delete between two children, several replacements of one IKE SA.

use std::time::Duration;

use ike_proto::config::{Action, AddressSpec};
use ike_proto::dataplane::{Event as PlaneEvent, PolicyAction};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Failure, IkeState};
use ike_tests::machine::Crash;
use ike_tests::network::Fate;
use ike_tests::packets::Inner;
use ike_tests::setup::address;
use ike_tests::{A, B, ExchangeFate, Pair, Setup, cheap};
use xfrm::{CommandKind, Fault};

const SECOND: Duration = Duration::from_secs(1);

/// A wants "net" and "voice" for ever, from wherever it is.
pub(crate) fn wanting(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    for (side, local, remote) in [(&mut setup.a, 21, 22), (&mut setup.b, 22, 21)] {
        side.add_child("voice", local, remote);
        side.connection.local_addrs = vec![AddressSpec::Any(None)];
    }
    setup.a.connection.keyingtries = 0;
    setup.a.connection.dpd_delay = 30 * SECOND;
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    for child in &mut setup.a.children {
        child.start_action = Action::Start;
        child.close_action = Action::Start;
    }
    setup
}

pub(crate) fn want(pair: &mut Pair, child: &str) {
    let (connection, child) = ("ab".to_owned(), child.to_owned());
    pair.command(A, Command::Want { connection, child });
}

/// True if both ends have "net" and "voice", each once.
fn both_up(world: &ike_tests::World) -> bool {
    world.hosts.iter().all(|host| {
        let mut names: Vec<_> = host.children_up().into_iter().map(|child| child.name).collect();
        names.sort();
        names == ["net", "voice"]
    })
}

/// True if A has the trap of "net".
fn has_trap(pair: &Pair) -> bool {
    let mut policies = pair.a().plane.table().policies();
    policies.any(|policy| policy.action == PolicyAction::Trap)
}

/// A trap that the data plane refuses is installed later, as often as it takes: without it nothing brings the child up,
/// and its traffic leaves in clear. A trap that no configuration asks for ends with the command that has failed.
///
/// Fault: in `on_trap_answered`, take away the arm with `is_configured`.
#[test]
fn a_trap_that_the_data_plane_refuses_is_installed_later() {
    for action in [Action::Trap, Action::None] {
        let mut setup = Setup::new(31);
        setup.a.net().start_action = action;
        let mut pair = setup.build();
        let (connection, child) = ("ab".to_owned(), "net".to_owned());
        let (local, remote) = (address(1), address(2));
        pair.hosts[A].plane.inner.fail(Fault::Nth(1));
        let trap = Command::InstallTrap { connection, child, local, remote };
        let request = pair.command(A, trap);
        pair.settle();
        assert!(matches!(pair.a().done(request), Some(Err(Failure::DataPlane(_)))));
        assert!(!has_trap(&pair));
        if action == Action::Trap {
            // The next try is refused, too.
            pair.hosts[A].plane.inner.fail(Fault::Nth(1));
            pair.run_for(2 * SECOND);
            assert!(!has_trap(&pair));
        }
        pair.run_for(3 * SECOND);
        assert_eq!(has_trap(&pair), action == Action::Trap);
        assert_eq!(pair.a().endpoint.traps().len(), usize::from(action == Action::Trap));
        assert_eq!(pair.a().wake(), None);
    }
}

/// A child that comes up while its IKE SA is being reauthenticated moves along: it is not missing for as long as a
/// back-off takes.
///
/// Fault: in `on_established`, leave `make_what_came_since` out.
#[test]
fn a_child_that_comes_up_during_a_reauthentication_moves_along() {
    let mut pair = wanting(32).build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    let old = pair.ike_id(A);
    pair.net.conditions.delay = SECOND / 10;
    pair.command(A, Command::Reauthenticate(old));
    want(&mut pair, "voice");
    // Less than the shortest back-off.
    let there = pair.run_until(SECOND * 6 / 5, |w| {
        let ikes = w.hosts.iter().all(|host| host.ikes().len() == 1);
        ikes && w.hosts[A].ikes()[0].id != old && both_up(w)
    });
    assert!(there, "{}", pair.story());
    pair.run_for(10 * SECOND);
    pair.assert_agreement();
}

/// The peer deletes the IKE SA after its first child, while this end asks for the second one. That was never up, and is
/// wanted all the same, whatever `close_action` says: the peer never had it, and so has not ended it on purpose.
///
/// Fault: in `on_ended`, take `without_actions` for what is wanted, too; and leave out what makes `End::Refused` of
/// `End::Deleted`.
#[test]
fn a_delete_before_the_second_child_gives_up_none() {
    for action in [Action::Start, Action::None] {
        let mut setup = wanting(33);
        for child in &mut setup.a.children {
            child.close_action = action;
        }
        // The first child comes back in any case.
        setup.a.net().close_action = Action::Start;
        let mut pair = setup.build();
        // The request for the second child is lost for a while.
        pair.net.tap(|packet| {
            let lost = packet.is(ExchangeType::CREATE_CHILD_SA, false) && packet.sent < 5 * SECOND;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        want(&mut pair, "net");
        want(&mut pair, "voice");
        pair.run_for(2 * SECOND);
        assert!(!both_up(&pair), "{}", pair.story());
        let ike = pair.ike_id(B);
        pair.command(B, Command::TerminateIke(ike));
        assert!(pair.run_until(15 * SECOND, both_up), "{}", pair.story());
        assert_eq!(pair.a().endpoint.neglected(), []);
    }
}

/// A host without MOBIKE moves while a reauthentication is under way: one IKE SA takes the place of the old one, not one
/// for the attempt that moves along and another one for the old IKE SA.
///
/// Fault: in `leave_stranded`, look at `index.replacing` alone.
#[test]
fn a_move_during_a_reauthentication_makes_one_ike_sa() {
    let mut pair = wanting(34).build();
    pair.tell_network(A);
    want(&mut pair, "net");
    want(&mut pair, "voice");
    assert!(pair.run_until(5 * SECOND, both_up));
    let from = pair.now();
    pair.net.tap(move |packet| {
        if packet.sent > from && packet.sent < from + 6 * SECOND { Fate::Drop } else { Fate::Pass }
    });
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(6 * SECOND);
    pair.roam(A, address(9));
    let here = |w: &ike_tests::World| {
        let ups = w.hosts[A].children_up();
        ups.iter().filter(|up| up.inbound.dst == address(9)).count() >= 2
    };
    assert!(pair.run_until(10 * SECOND, here), "{}", pair.story());
    // The old one goes when its Delete is given up: it has no address to be sent from.
    pair.run_for(5 * 60 * SECOND);
    assert_eq!(pair.a().ikes_in(IkeState::Established).len(), 1, "{}", pair.story());
    assert_eq!(pair.a().children_up().len(), 2);
}

/// A child of a trap is not wanted, but its traffic is no better off: without MOBIKE its IKE SA is replaced, too, when its
/// address is gone.
///
/// Fault: in `leave_stranded`, look at `wants.has` alone.
#[test]
fn an_ike_sa_of_traps_leaves_an_address_that_is_gone() {
    let mut setup = wanting(35);
    setup.a.net().start_action = Action::Trap;
    setup.a.net().dpd_action = Action::Trap;
    let mut pair = setup.build();
    pair.tell_network(A);
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::InstallTrap { connection, child, local, remote });
    let packet = Some(ike_proto::dataplane::Flow {
        local: ike_proto::dataplane::TrafficSelector::host([10, 1, 0, 9].into()),
        remote: ike_proto::dataplane::TrafficSelector::host([10, 2, 0, 9].into()),
    });
    let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
    pair.command(A, Command::Initiate { connection, child, local, remote, packet });
    pair.run_for(2 * SECOND);
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
    assert_eq!(pair.a().endpoint.wanted(), []);
    pair.roam(A, address(9));
    let here = |w: &ike_tests::World| {
        w.hosts[A].children_up().iter().any(|up| up.inbound.dst == address(9))
    };
    assert!(pair.run_until(10 * SECOND, here), "{}", pair.story());
}

/// The peer was first, perhaps with another shard of this host: that shard is told to want the child that it has. It
/// brings the child back, even with `dpd_action = none`.
///
/// Fault: in `on_want`, note nothing if the child is carried. In the daemon's `Operator::restart`, give no `Want` to the
/// shard that carries the child.
#[test]
fn a_child_that_the_peer_began_can_be_wanted() {
    let mut setup = wanting(36);
    setup.b.connection.remote_addrs = vec![AddressSpec::single(address(1))];
    let mut pair = setup.build();
    pair.initiate(B, Some("net"));
    pair.run_for(2 * SECOND);
    want(&mut pair, "net");
    assert_eq!(pair.a().ikes().len(), 1);
    let end = pair.now() + 400 * SECOND;
    pair.net.tap(move |packet| if packet.sent < end { Fate::Drop } else { Fate::Pass });
    pair.run_for(400 * SECOND);
    assert_eq!(pair.a().children_up().len(), 0, "{}", pair.story());
    assert_eq!(pair.a().endpoint.neglected(), []);
    let up = |w: &ike_tests::World| !w.hosts[A].children_up().is_empty();
    assert!(pair.run_until(250 * SECOND, up), "{}", pair.story());
}

/// A second command to reauthenticate joins the first one: there is one new IKE SA, and both commands are answered.
///
/// Fault: in `reauthenticate`, leave `joins_reauthentication` out.
#[test]
fn two_commands_to_reauthenticate_make_one_ike_sa() {
    let mut pair = wanting(37).build();
    want(&mut pair, "net");
    want(&mut pair, "voice");
    assert!(pair.run_until(5 * SECOND, both_up));
    pair.net.conditions.delay = SECOND / 10;
    let ike = pair.ike_id(A);
    let first = pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(SECOND / 20);
    let second = pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(10 * SECOND);
    assert_eq!(pair.a().done(first), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.a().done(second), Some(Ok(())));
    assert!(both_up(&pair), "{}", pair.story());
    assert_ne!(pair.ike_id(A), ike);
    pair.assert_agreement();
}

/// An IKE SA that has been replaced waits to be deleted, since it has asked the peer for something else. It is not
/// replaced a second time meanwhile.
///
/// Fault: in `replacement_of`, leave out what looks whether the IKE SA `carries`.
#[test]
fn an_ike_sa_that_is_about_to_end_is_not_reauthenticated() {
    let mut pair = wanting(38).build();
    want(&mut pair, "net");
    want(&mut pair, "voice");
    assert!(pair.run_until(5 * SECOND, both_up));
    let old = pair.ike_id(A);
    let end = pair.now() + 20 * SECOND;
    pair.net.tap(move |packet| {
        let lost = packet.is(ExchangeType::INFORMATIONAL, false) && packet.sent < end;
        if lost { Fate::Drop } else { Fate::Pass }
    });
    let child = pair.a().children_up()[0].id;
    pair.command(A, Command::TerminateChild(child));
    let first = pair.command(A, Command::Reauthenticate(old));
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().done(first), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.a().ikes().len(), 2);
    let second = pair.command(A, Command::Reauthenticate(old));
    assert_eq!(pair.a().done(second), Some(Err(Failure::NotFound)));
    pair.run_for(300 * SECOND);
    assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
    pair.assert_agreement();
}

/// The peer is making a child that is wanted here, and does not come to an end with it. This end makes the child itself, a
/// while later, and there is one of it in the end.
///
/// Fault: in `on_ensure`, leave `look_again` out.
#[test]
fn a_child_that_the_peer_does_not_finish_is_made_here() {
    let mut setup = wanting(39);
    setup.both(|side| {
        side.crypto = cheap::chains();
        side.esp_proposals(&["aes128gcm16-x25519-ke1_mlkem768"]);
    });
    setup.b.connection.remote_addrs = vec![AddressSpec::single(address(1))];
    let mut pair = setup.build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    let end = pair.now() + 40 * SECOND;
    pair.net.tap(move |packet| {
        let followup = packet.is(ExchangeType::IKE_FOLLOWUP_KE, false);
        let lost = followup && packet.from == Some(B) && packet.sent < end;
        if lost { Fate::Drop } else { Fate::Pass }
    });
    pair.initiate(B, Some("voice"));
    pair.run_for(SECOND);
    let (connection, child) = ("ab".to_owned(), "voice".to_owned());
    let (local, remote) = (address(1), address(2));
    pair.command(A, Command::Ensure { connection, child, local, remote });
    assert_eq!(pair.a().endpoint.neglected(), []);
    assert!(
        pair.run_until(15 * SECOND, |w| w.hosts[A].children_up().len() == 2),
        "{}",
        pair.story()
    );
    pair.run_for(100 * SECOND);
    assert!(both_up(&pair), "{}", pair.story());
    pair.assert_agreement();
}

/// Both ends rekey a child at once. The peer's answer is lost for a while, and all that the peer has of the child
/// reaches a hard limit meanwhile. The late answer makes no child that only this end has.
///
/// Fault: in `Established::meanwhile`, look at `crossed` before `deleted`.
#[test]
fn a_late_answer_makes_no_child_that_the_peer_has_deleted() {
    // The nonces decide whose child stays.
    for seed in 50..58 {
        let mut pair = wanting(seed).build();
        want(&mut pair, "net");
        pair.run_for(2 * SECOND);
        pair.net.conditions.delay = SECOND / 10;
        let end = pair.now() + 20 * SECOND;
        pair.net.tap(move |packet| {
            let answer = packet.is(ExchangeType::CREATE_CHILD_SA, true);
            let lost = answer && packet.from == Some(B) && packet.sent < end;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        pair.rekey_child(A);
        pair.rekey_child(B);
        pair.run_for(SECOND);
        for sa in pair.b().plane.sas_in_order() {
            pair.plane_event(B, PlaneEvent::HardExpire(sa));
        }
        pair.run_for(120 * SECOND);
        for host in [A, B] {
            assert_eq!(pair.hosts[host].children_up().len(), 1, "{seed}: {}", pair.story());
        }
        pair.assert_agreement();
    }
}

/// A slow key exchange for the second child breaks off here, in the middle of the chain. The ends are out of step, and
/// the IKE SA ends. Both children come back, not only the one that was up.
///
/// Fault: in `abandon`, enqueue no task.
#[test]
fn a_child_whose_key_exchange_breaks_off_is_made_again() {
    let mut setup = wanting(40);
    setup.both(|side| side.esp_proposals(&["aes128gcm16-x25519-ke1_modp2048"]));
    let mut pair = setup.build();
    // Its own half of the additional key exchange.
    pair.hosts[A].exchange_fates.push_back(ExchangeFate::Broken);
    want(&mut pair, "net");
    want(&mut pair, "voice");
    assert!(pair.run_until(60 * SECOND, both_up), "{}", pair.story());
    assert_eq!(pair.a().ike_downs().len(), 1, "{}", pair.story());
    assert_eq!(pair.a().endpoint.neglected(), []);
    pair.run_for(32 * SECOND);
    pair.assert_agreement();
}

/// The peer crashes in the middle of its rekey of the IKE SA. Its kernel keeps the SAs, and packets arrive by them. A
/// child that waits for that rekey does not wait until the chain expires: this end looks whether the peer is there.
///
/// Fault: in `on_usage`, take no account of `held_since`.
#[test]
fn packets_do_not_hide_a_peer_that_crashed_in_its_rekey() {
    let mut setup = wanting(41);
    setup.both(|side| {
        side.crypto = cheap::chains();
        side.ike_proposals(&["aes128gcm16-prfsha256-x25519-ke1_mlkem768"]);
        side.settings.retransmission.timeout = Some(SECOND);
        side.settings.retransmission.tries = Some(3);
    });
    let mut pair = setup.build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    pair.net.tap(|packet| {
        let lost = packet.is(ExchangeType::IKE_FOLLOWUP_KE, false) && packet.from == Some(B);
        if lost { Fate::Drop } else { Fate::Pass }
    });
    let old = pair.ike_id(A);
    pair.rekey_ike(B);
    pair.run_for(SECOND / 2);
    pair.crash(B, &cheap::chains(), Crash::Program);
    want(&mut pair, "voice");
    let inner = Inner { src: [10, 2, 0, 5].into(), dst: [10, 1, 0, 5].into() };
    // One `dpd_delay`, one schedule of retransmissions, and a little.
    let end = pair.now() + 60 * SECOND;
    while pair.now() < end && !both_up(&pair) {
        let sent = pair.send_packet(B, A, inner, 84);
        let is_over = pair.a().ikes().iter().all(|ike| ike.id != old);
        assert!(sent.is_ok() || is_over, "{sent:?}");
        pair.run_for(SECOND);
    }
    assert!(both_up(&pair), "{}", pair.story());
}

/// The answer to a rekey is lost, and the Delete of the old child, which has reached a hard limit at the peer, comes
/// first. The child is to be started again then, and its policy keeps the traffic in. The rekey is done all the same,
/// and its child has that policy for good.
///
/// Fault: in `remove_each`, remove what is in use.
#[test]
fn a_rekey_that_outlives_the_old_child_keeps_its_policy() {
    for seed in 40..48 {
        let mut pair = wanting(seed).build();
        want(&mut pair, "net");
        pair.run_for(2 * SECOND);
        let until = pair.now() + SECOND / 2;
        pair.net.tap(move |packet| {
            let lost = packet.sent < until && packet.is(ExchangeType::CREATE_CHILD_SA, true);
            if lost { Fate::Drop } else { Fate::Pass }
        });
        let old = pair.b().child().inbound;
        pair.rekey_child(A);
        pair.run_for(SECOND / 5);
        pair.plane_event(B, PlaneEvent::HardExpire(old));
        pair.run_for(SECOND / 5);
        assert_eq!(pair.a().child_downs().len(), 1, "{}", pair.story());
        pair.run_for(60 * SECOND);
        assert_eq!(pair.a().child_rekeys().len(), 1, "{}", pair.story());
        for host in [A, B] {
            assert_eq!(pair.hosts[host].children_up().len(), 1, "{}", pair.story());
        }
        pair.assert_agreement();
        let inner = Inner { src: [10, 1, 0, 5].into(), dst: [10, 2, 0, 5].into() };
        for (from, inner) in [(A, inner), (B, inner.reversed())] {
            let sent = pair.send_packet(from, 1 - from, inner, 84);
            assert_eq!(sent, Ok(()), "{}", pair.story());
        }
    }
}

/// The peer rekeys the child. It has sent a packet by the new one when its data plane refuses a part of that, and deletes
/// the new one. Both ends go on with the old one, which can be rekeyed later.
///
/// Fault: in `drop_child`, leave `go_back` out.
#[test]
fn a_rekey_that_the_peer_takes_back_leaves_the_old_child() {
    let mut pair = wanting(43).build();
    want(&mut pair, "net");
    pair.run_for(2 * SECOND);
    let old = [A, B].map(|host| pair.child_id(host));
    pair.hosts[B].plane.inner.fail(Fault::Nth(1));
    pair.rekey_child(B);
    assert!(pair.run_until(SECOND, |w| w.hosts[A].children_up().len() == 2), "{}", pair.story());
    let new = pair.a().children_up().into_iter().find(|child| child.id != old[A]);
    pair.plane_event(A, PlaneEvent::FirstPacket(new.expect("the new one").inbound));
    pair.run_for(SECOND / 1000);
    assert_eq!(pair.a().child_rekeys().len(), 1, "{}", pair.story());
    pair.run_for(10 * SECOND);
    assert_eq!([A, B].map(|host| pair.child_id(host)), old, "{}", pair.story());
    assert!(pair.a().child_downs().is_empty(), "{}", pair.story());
    pair.assert_agreement();
    let inner = Inner { src: [10, 1, 0, 5].into(), dst: [10, 2, 0, 5].into() };
    for (from, inner) in [(A, inner), (B, inner.reversed())] {
        let sent = pair.send_packet(from, 1 - from, inner, 84);
        assert_eq!(sent, Ok(()), "{}", pair.story());
    }
    // The next try, half a minute later, succeeds.
    pair.run_for(40 * SECOND);
    assert_eq!(pair.b().child_rekeys().len(), 1, "{}", pair.story());
    assert_ne!(pair.child_id(A), old[A]);
    pair.assert_agreement();
}

/// The peer deletes a child, and does not answer when this end makes it again. A trap is to take its place, and the data
/// plane refuses that at first. What has kept the traffic in since the Delete stays until the trap is there.
///
/// Fault: in `on_ended`, let `trap_again` have `held` alone.
#[test]
fn what_an_earlier_end_has_left_waits_for_the_trap() {
    let mut setup = Setup::new(61);
    (setup.a.net().close_action, setup.a.net().dpd_action) = (Action::Start, Action::Trap);
    let mut pair = setup.build();
    pair.establish();
    pair.net.tap(|packet| {
        let lost = packet.from == Some(A) && packet.is(ExchangeType::CREATE_CHILD_SA, false);
        if lost { Fate::Drop } else { Fate::Pass }
    });
    let child = pair.child_id(B);
    pair.command(B, Command::TerminateChild(child));
    pair.run_for(2 * SECOND);
    pair.hosts[A].plane.inner.fail(Fault::NthOf(CommandKind::InstallPolicy, 1));
    let inner = Inner { src: [10, 1, 0, 5].into(), dst: [10, 2, 0, 5].into() };
    let end = pair.now() + 300 * SECOND;
    loop {
        match pair.send_packet(A, B, inner, 84).expect_err("no child is up").as_str() {
            "it met a trap" => break,
            fate => assert_eq!(fate, "Shunted", "{}", pair.story()),
        }
        assert!(pair.now() < end, "{}", pair.story());
        pair.run_for(SECOND / 10);
    }
    assert_eq!(pair.hosts[A].plane.inner.failed(), 1, "{}", pair.story());
}

/// A host loses its only address during its only try, and gets another one a moment later. To look for a route meanwhile would
/// fail, and the command with it.
///
/// Fault: in `on_attempt_failed`, make `wait` zero.
#[test]
fn a_host_without_an_address_spends_no_try() {
    let mut setup = wanting(64);
    setup.a.connection.keyingtries = 1;
    let mut pair = setup.build();
    let up = pair.initiate(A, Some("net"));
    pair.run_for(SECOND / 200);
    pair.relocate(A, None, true);
    pair.run_for(SECOND);
    assert_eq!(pair.a().done(up), None, "{}", pair.story());
    pair.relocate(A, Some([10, 0, 0, 7].into()), true);
    assert!(pair.run_until(60 * SECOND, |w| w.hosts[A].done(up).is_some()), "{}", pair.story());
    assert_eq!(pair.a().done(up), Some(Ok(())), "{}", pair.story());
}
