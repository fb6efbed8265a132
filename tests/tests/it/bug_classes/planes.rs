//! Class 45: a data plane that fails, at every command of every operation.

use std::time::Duration;

use ike_proto::config::AddressSpec;
use ike_proto::dataplane::{Event, TrafficSelector};
use ike_proto::{Command, IkeState};
use ike_tests::network::{Fate, Nat};
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup};
use xfrm::{CommandKind, Fault};

/// Something two hosts do, from a quiet state.
struct Operation {
    name: &'static str,
    before: fn() -> Pair,
    run: fn(&mut Pair),
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "establish",
        before: fresh,
        run: |pair| {
            pair.initiate(A, Some("net"));
        },
    },
    Operation {
        name: "another child",
        before: established,
        run: |pair| {
            pair.initiate(A, Some("more"));
        },
    },
    Operation {
        name: "rekey a child",
        before: established,
        run: |pair| {
            pair.rekey_child(A);
        },
    },
    Operation {
        name: "rekey a child from both sides",
        before: established,
        run: |pair| {
            pair.rekey_child(A);
            pair.rekey_child(B);
        },
    },
    Operation {
        name: "rekey the IKE SA",
        before: established,
        run: |pair| {
            pair.rekey_ike(A);
        },
    },
    Operation {
        name: "delete a child",
        before: established,
        run: |pair| {
            let child = pair.child_id(A);
            pair.command(A, Command::TerminateChild(child));
        },
    },
    Operation {
        name: "delete the IKE SA",
        before: established,
        run: |pair| {
            let ike = pair.ike_id(A);
            pair.command(A, Command::TerminateIke(ike));
        },
    },
    Operation {
        name: "reauthenticate",
        before: established,
        run: |pair| {
            let ike = pair.ike_id(A);
            pair.command(A, Command::Reauthenticate(ike));
        },
    },
    Operation { name: "trap", before: fresh, run: trap_and_hit_it },
    Operation { name: "ask for counters", before: watchful, run: |_| {} },
    Operation {
        name: "follow a NAT",
        before: behind_nat,
        run: |pair| {
            pair.net.nats[0].rebind();
            pair.rekey_child(A);
        },
    },
    Operation {
        name: "shut down",
        before: established,
        run: |pair| {
            pair.command(A, Command::Shutdown);
        },
    },
];

fn setup() -> Setup {
    let mut setup = Setup::new(45);
    setup.a.add_child("more", 3, 4);
    setup.b.add_child("more", 4, 3);
    // A peer that has lost a child or an SA is found out.
    setup.both(|side| side.connection.dpd_delay = Duration::from_secs(30));
    setup
}

fn fresh() -> Pair {
    setup().build()
}

fn established() -> Pair {
    let mut pair = fresh();
    pair.establish();
    pair
}

/// With a short inactivity limit, so that counters are asked for in both directions.
fn watchful() -> Pair {
    let mut setup = setup();
    setup.both(|side| side.net().inactivity = Duration::from_secs(45));
    let mut pair = setup.build();
    pair.establish();
    pair
}

fn behind_nat() -> Pair {
    let mut setup = setup();
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), [192, 0, 2, 1].into()));
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair
}

fn trap_and_hit_it(pair: &mut Pair) {
    let (local, remote) = (pair.address(A), pair.address(B));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::InstallTrap { connection, child, local, remote });
    pair.settle();
    let Some(policy) = pair.a().plane.table().policies().map(|policy| policy.id).next() else {
        return;
    };
    let local = TrafficSelector::host([10, 1, 0, 1].into());
    let remote = TrafficSelector::host([10, 2, 0, 1].into());
    pair.plane_event(A, Event::Acquire { policy, local, remote, cpu: None });
    pair.initiate(A, Some("net"));
}

/// Runs the operation with a fault at `host`; false if there was nothing to fail.
fn survives(operation: &Operation, host: usize, fault: Fault) -> bool {
    let mut pair = (operation.before)();
    let before = pair.hosts[host].plane.inner.failed();
    pair.hosts[host].plane.inner.fail(fault);
    (operation.run)(&mut pair);
    pair.run_for(Duration::from_secs(100));
    pair.hosts[host].plane.inner.heal();
    let failed = pair.hosts[host].plane.inner.failed() > before;
    pair.run_for(Duration::from_secs(300));
    let what = format!("{}, {fault:?} at {host}", operation.name);
    // Whatever became of it, it is the same at both ends, and in their data planes.
    if let Err(why) = pair.agreement() {
        panic!("{what}: {why}\n{}", pair.story());
    }
    // And all of it goes away.
    for host in [A, B] {
        pair.command(host, Command::Shutdown);
    }
    pair.run_for(Duration::from_secs(600));
    for host in &pair.hosts {
        assert!(host.ikes().is_empty(), "{what}: {:?}", host.ikes());
        assert!(
            host.plane.table().is_empty(),
            "{what}: left behind: {:?} {:?}\n{}",
            host.plane.table().sas().map(|(id, _)| id).collect::<Vec<_>>(),
            host.plane.table().policies().collect::<Vec<_>>(),
            pair.story()
        );
        assert_eq!(host.endpoint.reassembly_memory(), 0, "{what}");
    }
    failed
}

#[test]
fn class_45_one_command_fails() {
    let mut failures = 0;
    for operation in OPERATIONS {
        for host in [A, B] {
            for n in 1.. {
                if !survives(operation, host, Fault::Nth(n)) {
                    break;
                }
                failures += 1;
            }
        }
    }
    assert!(failures > 50, "only {failures} commands failed");
}

#[test]
fn class_45_one_answer_is_lost() {
    let mut failures = 0;
    for operation in OPERATIONS {
        for host in [A, B] {
            for n in 1.. {
                if !survives(operation, host, Fault::LostAnswer(n)) {
                    break;
                }
                failures += 1;
            }
        }
    }
    assert!(failures > 50, "only {failures} answers were lost");
}

#[test]
fn class_45_every_command_of_a_kind_fails_for_a_while() {
    let kinds = [
        CommandKind::InstallSa,
        CommandKind::InstallPolicy,
        CommandKind::UpdateSa,
        CommandKind::QueryUsage,
    ];
    for operation in OPERATIONS {
        for host in [A, B] {
            for kind in kinds {
                survives(operation, host, Fault::Every(kind));
            }
        }
    }
}

#[test]
fn class_45_removals_that_fail_are_made_again() {
    for operation in OPERATIONS {
        for host in [A, B] {
            let mut pair = (operation.before)();
            for kind in [CommandKind::RemoveSa, CommandKind::RemovePolicy] {
                pair.hosts[host].plane.inner.fail(Fault::Every(kind));
            }
            (operation.run)(&mut pair);
            pair.run_for(Duration::from_secs(40));
            pair.command(host, Command::Shutdown);
            pair.run_for(Duration::from_secs(40));
            assert!(pair.hosts[host].ikes().is_empty(), "{}", operation.name);
            pair.hosts[host].plane.inner.heal();
            pair.run_for(Duration::from_secs(300));
            let left = pair.hosts[host].plane.table();
            assert!(left.is_empty(), "{} at {host}: {left:?}", operation.name);
        }
    }
}

#[test]
fn class_45_a_data_plane_that_refuses_everything_is_no_reason_to_crash() {
    for operation in OPERATIONS {
        for host in [A, B] {
            let mut pair = (operation.before)();
            pair.hosts[host].plane.inner.fail(Fault::All);
            (operation.run)(&mut pair);
            pair.run_for(Duration::from_secs(600));
            for host in [A, B] {
                pair.command(host, Command::Shutdown);
            }
            pair.run_for(Duration::from_secs(600));
            for host in &pair.hosts {
                assert!(host.ikes().is_empty(), "{}: {:?}", operation.name, host.ikes());
            }
        }
    }
}

#[test]
fn class_45_a_peer_hears_that_its_child_could_not_be_installed() {
    let mut pair = setup().build();
    pair.hosts[B].plane.inner.fail(Fault::Every(CommandKind::InstallSa));
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(5));
    // The IKE SA stands, the child does not, and nobody waits for it.
    assert!(matches!(pair.a().done(request), Some(Err(_))));
    for host in &pair.hosts {
        assert_eq!(host.ikes_in(IkeState::Established).len(), 1);
        assert_eq!(host.children().len(), 0);
        assert!(host.plane.table().is_empty());
    }
    pair.hosts[B].plane.inner.heal();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "and it can be made later");
}

#[test]
fn class_45_a_childless_sa_asks_whether_its_peer_is_alive() {
    // There are no counters to ask for then.
    let mut pair = setup().build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().done(request), Some(Ok(())));
    let child = pair.child_id(A);
    pair.command(A, Command::TerminateChild(child));
    pair.settle();
    pair.net.tap(|_| Fate::Drop);
    pair.run_for(Duration::from_secs(600));
    for host in &pair.hosts {
        assert!(host.ikes().is_empty(), "{:?}", host.ikes());
    }
}

#[test]
fn class_45_events_about_what_is_not_there() {
    use ike_proto::dataplane::{PolicyId, SaId};
    let mut pair = established();
    let before = format!("{:?}", pair.a().ikes());
    for spi in [0, 1, 255, 256, u32::MAX] {
        for dst in [address(1), address(2), [0, 0, 0, 0].into()] {
            let sa = SaId { spi, dst };
            let remote = (address(2), 4500).into();
            for event in [
                Event::SoftExpire(sa),
                Event::HardExpire(sa),
                Event::FirstPacket(sa),
                Event::Mapping { sa, remote },
            ] {
                pair.plane_event(A, event);
            }
        }
    }
    let host = TrafficSelector::host(address(1));
    for policy in [0, 1, u64::MAX] {
        let policy = PolicyId(policy);
        pair.plane_event(A, Event::Acquire { policy, local: host, remote: host, cpu: None });
    }
    assert_eq!(format!("{:?}", pair.a().ikes()), before);
    pair.settle();
    pair.assert_agreement();
}
/// A rekey whose timer has fired, and which fails as late as in the data plane, is made again.
#[test]
fn class_45_a_rekey_that_could_not_be_installed_is_made_again() {
    let mut setup = setup();
    setup.a.net().rekey_time = Duration::from_secs(600);
    setup.a.net().rand_time = Duration::ZERO;
    setup.a.net().life_time = Duration::from_secs(3600);
    let mut pair = setup.build();
    pair.establish();
    let old = pair.child_id(A);
    pair.run_for(Duration::from_secs(500));
    pair.hosts[A].plane.inner.fail(Fault::Every(CommandKind::InstallSa));
    pair.run_for(Duration::from_secs(110));
    assert_eq!(pair.a().child_failures().len(), 1, "{}", pair.story());
    pair.hosts[A].plane.inner.heal();
    pair.run_for(Duration::from_secs(60));
    let rekeys = pair.a().child_rekeys();
    assert_eq!(rekeys.first().map(|(from, _)| *from), Some(old), "{}", pair.story());
    pair.assert_agreement();
}

/// The old child expires while the data plane of the end that answers is at work on the new one: no Delete of
/// the peer will tell that end to use the new one.
#[test]
fn class_45_a_successor_is_used_if_what_it_replaces_goes_first() {
    let mut pair = established();
    let old = pair.b().child();
    pair.hosts[B].plane.delay = Duration::from_secs(2);
    let rekey = pair.rekey_child(A);
    pair.run_for(Duration::from_secs(1));
    pair.plane_event(B, Event::HardExpire(old.inbound));
    pair.run_for(Duration::from_secs(100));
    assert_eq!(pair.a().done(rekey), Some(Ok(())), "{}", pair.story());
    assert_ne!(pair.b().child().id, old.id);
    pair.assert_agreement();
}
