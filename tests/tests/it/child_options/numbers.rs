//! Marks and interface ids, fixed and `%unique`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{InterfaceId, Scope, UniqueNumbers};
use ike_proto::dataplane::{Event, Mark, PolicyAction, Processing};
use ike_proto::{Command, Failure};
use ike_tests::setup::{Side, address};
use ike_tests::{A, B, Pair, Setup};

const ALL: u32 = u32::MAX;

fn unique(side: &mut Side, scope: Scope) {
    for child in &mut side.children {
        let processing = Arc::make_mut(&mut child.processing);
        (processing.mark_in.mask, processing.mark_out.mask) = (ALL, 0xff0);
        processing.set_mark_in.mask = 0xf0;
        child.unique = UniqueNumbers {
            mark_in: Some(scope),
            mark_out: Some(scope),
            if_id_in: Some(scope),
            if_id_out: Some(scope),
            set_mark_in_same: true,
            set_mark_out_same: false,
        };
    }
}

/// What the child `name` of `end` has; the same in its status, its SAs and its policy.
#[track_caller]
fn numbers(pair: &Pair, end: usize, name: &str) -> Arc<Processing> {
    let host = &pair.hosts[end];
    let child = host.children_up().into_iter().find(|child| child.name == name).unwrap();
    let table = host.plane.table();
    for sa in [child.inbound, child.outbound] {
        assert_eq!(table.sa(sa).unwrap().processing, child.processing, "{}", pair.story());
    }
    assert_eq!(table.policy(child.policy).unwrap().processing, child.processing);
    child.processing
}

#[track_caller]
fn run(pair: &mut Pair, end: usize, command: Command) {
    let request = pair.command(end, command);
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
}

#[test]
fn each_child_has_its_own_and_keeps_them() {
    for scope in [Scope::Pair, Scope::Direction] {
        let mut setup = Setup::new(1);
        setup.a.add_child("more", 3, 4);
        setup.b.add_child("more", 4, 3);
        setup.both(|side| unique(side, scope));
        let mut pair = setup.build();
        pair.establish();
        let more = pair.initiate(A, Some("more"));
        pair.run_for(Duration::from_secs(10));
        assert_eq!(pair.a().done(more), Some(Ok(())), "{}", pair.story());
        let mut seen = BTreeSet::new();
        for end in [A, B] {
            let before = ["net", "more"].map(|name| numbers(&pair, end, name));
            for p in &before {
                assert_eq!(p.mark_in.value == p.mark_out.value, scope == Scope::Pair);
                assert_eq!(p.if_id_in == p.if_id_out, scope == Scope::Pair);
                assert_eq!((p.mark_in.mask, p.mark_out.mask), (ALL, 0xff0));
                let same = Mark { value: p.mark_in.value, mask: 0xf0 };
                assert_eq!((p.set_mark_in, p.set_mark_out), (same, Mark::default()));
                let all = [p.mark_in.value, p.mark_out.value, p.if_id_in, p.if_id_out];
                assert!(all.iter().all(|number| *number != 0));
                // The kernel compares what the mask leaves of a packet's mark with all of the value.
                assert_eq!(p.mark_out.value & !p.mark_out.mask, 0);
                assert!(
                    all.iter().all(|number| seen.insert((end, *number)) || scope == Scope::Pair)
                );
            }
            // A rekey of either end, of the child or of the IKE SA, changes nothing.
            for by in [A, B] {
                let child = pair.hosts[by].children_up()[0].id;
                run(&mut pair, by, Command::RekeyChild(child));
                let ike = pair.ike_id(by);
                run(&mut pair, by, Command::RekeyIke(ike));
            }
            let after = ["net", "more"].map(|name| numbers(&pair, end, name));
            assert_eq!(before, after, "{}", pair.story());
        }
        pair.assert_agreement();
    }
}

#[test]
fn a_trap_has_its_own_and_its_child_the_same() {
    let mut setup = Setup::new(2);
    setup.both(|side| unique(side, Scope::Pair));
    let mut pair = setup.build();
    let (local, remote) = (address(1), address(2));
    let trap =
        || Command::InstallTrap { connection: "ab".into(), child: "net".into(), local, remote };
    run(&mut pair, A, trap());
    let trapped = |pair: &Pair| {
        let mut policies = pair.a().plane.table().policies();
        policies.find(|p| p.action == PolicyAction::Trap).map(|p| p.processing.clone()).unwrap()
    };
    let numbers_of_trap = trapped(&pair);
    assert_ne!(numbers_of_trap.mark_out.value, 0);
    // Installed again it is the same, and the child that its packets ask for passes by it.
    run(&mut pair, A, trap());
    assert_eq!(trapped(&pair), numbers_of_trap);
    for _ in 0..2 {
        pair.establish();
        assert_eq!(numbers(&pair, A, "net"), numbers_of_trap);
        let ike = pair.ike_id(A);
        run(&mut pair, A, Command::TerminateIke(ike));
    }
    // The end without a trap has others each time.
    pair.establish();
    assert_eq!(numbers(&pair, B, "net").mark_in.value, 0x50);
}

#[test]
fn children_inherit_the_interface_of_their_connection() {
    let mut setup = Setup::new(3);
    setup.a.add_child("own", 3, 4);
    setup.b.add_child("own", 4, 3);
    Arc::make_mut(&mut setup.a.children[1].processing).if_id_in = 77;
    setup.a.connection.if_id_in = InterfaceId::Unique(Scope::Direction);
    setup.a.connection.if_id_out = InterfaceId::Unique(Scope::Direction);
    setup.b.connection.if_id_in = InterfaceId::Fixed(8);
    setup.b.connection.if_id_out = InterfaceId::Fixed(9);
    let mut pair = setup.build();
    pair.establish();
    pair.initiate(A, Some("own"));
    pair.run_for(Duration::from_secs(10));
    let ids = |pair: &Pair, end, name| {
        let p = numbers(pair, end, name);
        (p.if_id_in, p.if_id_out)
    };
    for _ in 0..2 {
        let (net, own) = (ids(&pair, A, "net"), ids(&pair, A, "own"));
        assert_eq!((net, own), ((1, 2), (77, 2)), "{}", pair.story());
        assert_eq!((ids(&pair, B, "net"), ids(&pair, B, "own")), ((8, 9), (8, 9)));
        // They are of the IKE SA, rekeyed or not; a child made later has them as well.
        let ike = pair.ike_id(A);
        run(&mut pair, A, Command::RekeyIke(ike));
        let own = pair.a().children_up().into_iter().find(|child| child.name == "own").unwrap();
        run(&mut pair, A, Command::TerminateChild(own.id));
        pair.initiate(A, Some("own"));
        pair.run_for(Duration::from_secs(10));
    }
    // Another IKE SA has others.
    let ike = pair.ike_id(A);
    run(&mut pair, A, Command::TerminateIke(ike));
    pair.establish();
    assert_eq!(ids(&pair, A, "net"), (3, 4));
}

fn trap(name: &str) -> Command {
    let (local, remote) = (address(1), address(2));
    Command::InstallTrap { connection: "ab".into(), child: name.into(), local, remote }
}

/// How packets are treated that meet the trap of this child at A.
#[track_caller]
fn trapped(pair: &Pair, name: &str) -> Arc<Processing> {
    let mut policies = pair.a().plane.table().policies();
    let found = policies.find(|p| p.action == PolicyAction::Trap && p.child == name);
    found.map(|p| p.processing.clone()).unwrap()
}

#[test]
fn a_mark_that_no_value_is_left_for_costs_the_child() {
    let mut setup = Setup::new(4);
    for n in 0..4 {
        setup.a.add_child(&format!("c{n}"), 10 + n, 20 + n);
        setup.b.add_child(&format!("c{n}"), 20 + n, 10 + n);
    }
    for child in &mut setup.a.children[1..] {
        Arc::make_mut(&mut child.processing).mark_out.mask = 0x3000;
        child.unique.mark_out = Some(Scope::Pair);
    }
    let mut pair = setup.build();
    pair.establish();
    let ask = |pair: &mut Pair, name: &str| {
        let request = pair.initiate(A, Some(name));
        pair.run_for(Duration::from_secs(10));
        pair.a().done(request).unwrap()
    };
    for name in ["c0", "c1", "c2"] {
        assert_eq!(ask(&mut pair, name), Ok(()), "{}", pair.story());
    }
    let values: BTreeSet<_> =
        ["c0", "c1", "c2"].iter().map(|name| numbers(&pair, A, name).mark_out.value).collect();
    assert_eq!(values, BTreeSet::from([0x1000, 0x2000, 0x3000]));
    assert!(matches!(ask(&mut pair, "c3"), Err(Failure::Refused(_))), "{}", pair.story());
    pair.assert_agreement();
    let gone = pair.a().children_up().into_iter().find(|child| child.name == "c1").unwrap();
    run(&mut pair, A, Command::TerminateChild(gone.id));
    assert_eq!(ask(&mut pair, "c3"), Ok(()), "{}", pair.story());
    assert_eq!(numbers(&pair, A, "c3").mark_out, gone.processing.mark_out);
}

#[test]
fn a_reload_changes_the_numbers_of_a_trap() {
    let setup = Setup::new(5);
    let mut side = ike_tests::setup::side(1, 2);
    let mut pair = setup.build();
    run(&mut pair, A, trap("net"));
    assert_eq!(trapped(&pair, "net").if_id_out, 0);
    let processing = Arc::make_mut(&mut side.net().processing);
    (processing.if_id_in, processing.if_id_out) = (9, 9);
    pair.reload(A, side.config());
    run(&mut pair, A, trap("net"));
    assert_eq!(trapped(&pair, "net").if_id_out, 9);
    pair.establish();
    let p = numbers(&pair, A, "net");
    assert_eq!((p.if_id_in, p.if_id_out), (9, 9));
}

#[test]
fn the_traps_of_a_connection_have_the_interface_of_its_ike_sa() {
    let mut setup = Setup::new(6);
    setup.a.add_child("more", 3, 4);
    setup.b.add_child("more", 4, 3);
    setup.a.connection.if_id_in = InterfaceId::Unique(Scope::Pair);
    setup.a.connection.if_id_out = InterfaceId::Unique(Scope::Pair);
    let mut pair = setup.build();
    run(&mut pair, A, trap("net"));
    run(&mut pair, A, trap("more"));
    let id = trapped(&pair, "net").if_id_out;
    assert_ne!(id, 0);
    assert_eq!(trapped(&pair, "more").if_id_out, id);
    pair.establish();
    pair.initiate(A, Some("more"));
    pair.run_for(Duration::from_secs(10));
    for again in [false, true] {
        if again {
            let ike = pair.ike_id(A);
            run(&mut pair, A, Command::Reauthenticate(ike));
        }
        for name in ["net", "more"] {
            assert_eq!(numbers(&pair, A, name).if_id_out, id, "{again} {}", pair.story());
        }
    }
}

#[test]
fn what_the_peer_asks_for_does_not_have_the_numbers_of_the_trap() {
    let mut setup = Setup::new(7);
    setup.a.net().unique.if_id_out = Some(Scope::Pair);
    let mut pair = setup.build();
    run(&mut pair, A, trap("net"));
    let id = trapped(&pair, "net").if_id_out;
    pair.initiate(B, Some("net"));
    pair.run_for(Duration::from_secs(10));
    assert_ne!(numbers(&pair, A, "net").if_id_out, id, "{}", pair.story());
    // Packets that meet the trap would not travel through it: they ask for another.
    let policy = {
        let mut policies = pair.a().plane.table().policies();
        policies.find(|p| p.action == PolicyAction::Trap).unwrap().id
    };
    let packet = |n: u8| format!("10.{n}.0.9").parse().unwrap();
    let (local, remote) = (packet(1), packet(2));
    pair.plane_event(A, Event::Acquire { policy, local, remote, cpu: None });
    let acquired = pair.a().events(|event| match event {
        ike_proto::Event::Acquire { child, packet, .. } => Some((child.clone(), *packet)),
        _ => None,
    });
    assert_eq!(acquired.len(), 1, "{}", pair.story());
    let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
    let (local, remote, packet) = (address(1), address(2), Some(acquired[0].1));
    run(&mut pair, A, Command::Initiate { connection, child, local, remote, packet });
    let ids: Vec<_> =
        pair.a().children_up().iter().map(|child| child.processing.if_id_out).collect();
    assert!(ids.len() == 2 && ids.contains(&id), "{ids:?}");
    // Now there is one.
    let packet = |n: u8| format!("10.{n}.0.9").parse().unwrap();
    let (local, remote) = (packet(1), packet(2));
    pair.plane_event(A, Event::Acquire { policy, local, remote, cpu: None });
    let acquired =
        pair.a().events(|event| matches!(event, ike_proto::Event::Acquire { .. }).then_some(()));
    assert_eq!(acquired.len(), 1);
}
