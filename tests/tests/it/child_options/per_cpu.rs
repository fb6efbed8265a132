//! `per_cpu_sas` (RFC 9611), between two ends of our own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{Action, Childless};
use ike_proto::dataplane::{Event, Mode, PolicyId};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::{ChildStatus, Command, Failure};
use ike_tests::setup::{Side, address};
use ike_tests::{A, B, Pair, Setup};
use xfrm::{CommandKind, Fault};

/// Long enough for what is under way, and for a rekeyed inbound SA to go.
const WHILE: Duration = Duration::from_secs(20);

pub(crate) fn wants(side: &mut Side, cpus: u32) {
    for child in &mut side.children {
        Arc::make_mut(&mut child.processing).per_cpu = true;
    }
    side.plane.capabilities.per_cpu = true;
    side.plane.capabilities.cpus = cpus;
}

fn per_cpu(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| wants(side, 4));
    setup
}

fn established(seed: u64) -> Pair {
    let mut pair = per_cpu(seed).build();
    pair.establish();
    pair
}

/// The children in use, that for all CPUs first.
fn children(pair: &Pair, end: usize) -> Vec<ChildStatus> {
    let mut children = pair.hosts[end].children_up();
    children.sort_by_key(|child| child.cpu);
    children
}

fn cpus(pair: &Pair, end: usize) -> Vec<Option<u32>> {
    children(pair, end).iter().map(|child| child.cpu).collect()
}

/// The one policy of `end`.
#[track_caller]
fn policy(pair: &Pair, end: usize) -> PolicyId {
    let policies: BTreeSet<_> = children(pair, end).iter().map(|child| child.policy).collect();
    assert_eq!(policies.len(), 1, "{}", pair.story());
    policies.into_iter().next().unwrap()
}

/// CPU `cpu` of `end` met a packet, and what comes of it is done.
fn acquire(pair: &mut Pair, end: usize, cpu: u32) {
    meet(pair, end, cpu);
    pair.run_for(WHILE);
}

fn meet(pair: &mut Pair, end: usize, cpu: u32) {
    let policy = policy(pair, end);
    let own = if end == A { 1 } else { 2 };
    let host = |n: u8| format!("10.{n}.0.9[udp/1000]").parse().unwrap();
    let (local, remote) = (host(own), host(3 - own));
    pair.plane_event(end, Event::Acquire { policy, local, remote, cpu: Some(cpu) });
}

/// True if the policy of `end` sends by the child for all CPUs and asks for others.
#[track_caller]
fn assert_policy(pair: &Pair, end: usize) {
    let first = children(pair, end).remove(0);
    let policy = policy(pair, end);
    let table = pair.hosts[end].plane.table();
    assert!(table.policy(policy).unwrap().processing.per_cpu);
    let route = pair.hosts[end].plane.routes().into_iter().find(|(id, _)| *id == policy);
    let by =
        children(pair, end).into_iter().find(|child| route == Some((policy, Some(child.outbound))));
    // By the one for all, or by any other where that is missing.
    assert_eq!(by.unwrap().cpu.is_none(), first.cpu.is_none(), "{}", pair.story());
    for child in children(pair, end) {
        for sa in [child.inbound, child.outbound] {
            let sa = table.sa(sa).unwrap();
            assert_eq!((sa.cpu, sa.policy), (child.cpu, policy), "{}", pair.story());
        }
    }
}

#[test]
fn each_cpu_gets_its_own_when_it_has_a_packet() {
    let mut pair = established(1);
    assert_eq!((cpus(&pair, A), cpus(&pair, B)), (vec![None], vec![None]));
    for (n, cpu) in [(1, 2), (2, 0), (3, 3)] {
        acquire(&mut pair, A, cpu);
        // Met again, and again while it is under way.
        meet(&mut pair, A, cpu);
        acquire(&mut pair, A, cpu);
        assert_eq!(cpus(&pair, A).len(), n + 1, "{}", pair.story());
        assert!(cpus(&pair, A).contains(&Some(cpu)));
        pair.assert_agreement();
    }
    //= https://www.rfc-editor.org/rfc/rfc9611#section-4
    //= type=test
    //# Responders should install the additional Child
    //# SA on a CPU with the least amount of additional Child SAs for this
    //# TSi/TSr pair.
    assert_eq!(cpus(&pair, B), [None, Some(0), Some(1), Some(2)]);
    for end in [A, B] {
        assert_policy(&pair, end);
        let all = children(&pair, end);
        assert!(all.iter().all(|child| child.local_ts == all[0].local_ts));
        assert!(all.iter().all(|child| child.remote_ts == all[0].remote_ts));
    }
    // What the peer's have filled already is not asked for.
    acquire(&mut pair, B, 2);
    assert_eq!(cpus(&pair, B).len(), 4);
    acquire(&mut pair, B, 3);
    assert_eq!((cpus(&pair, A).len(), cpus(&pair, B).len()), (5, 5), "{}", pair.story());
    assert_eq!(pair.a().child_failures(), []);
}

#[test]
fn both_ends_ask_at_once() {
    for seed in 10..30 {
        let mut setup = per_cpu(seed);
        if seed % 2 == 0 {
            setup.conditions.loss = 100;
            setup.conditions.jitter = Duration::from_millis(50);
            setup.both(|side| side.settings.retransmission.tries = Some(12));
        }
        let mut pair = setup.build();
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(300));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        for cpu in [0, 1, 2, 3] {
            meet(&mut pair, A, cpu);
            meet(&mut pair, B, 3 - cpu);
        }
        pair.run_for(Duration::from_secs(600));
        pair.assert_agreement();
        for end in [A, B] {
            let there: BTreeSet<_> = cpus(&pair, end).into_iter().collect();
            assert_eq!(there.len(), 5, "one for each CPU, one for all: {}", pair.story());
            // Twice what one end has CPUs, and the one for all.
            assert!(cpus(&pair, end).len() <= 9, "{}", pair.story());
            assert_policy(&pair, end);
        }
    }
}

#[test]
fn both_ends_ask_for_the_first_at_once() {
    for seed in 70..80 {
        let mut setup = per_cpu(seed);
        setup.both(|side| side.connection.childless = Childless::Prefer);
        let mut pair = setup.build();
        let request = pair.initiate(A, None);
        pair.run_for(WHILE);
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        let both = [A, B].map(|end| (end, pair.initiate(end, Some("net"))));
        pair.run_for(WHILE);
        for (end, request) in both {
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
            assert_eq!(cpus(&pair, end), [None, None], "{}", pair.story());
            policy(&pair, end);
        }
        for cpu in 0..4 {
            acquire(&mut pair, A, cpu);
            acquire(&mut pair, B, cpu);
        }
        pair.assert_agreement();
        for end in [A, B] {
            assert_eq!(cpus(&pair, end), [None, None, Some(0), Some(1), Some(2), Some(3)]);
            assert_policy(&pair, end);
        }
        // Either of the two may go, and then the other.
        for end in [A, B] {
            let first = children(&pair, end).remove(0);
            pair.command(end, Command::TerminateChild(first.id));
            pair.run_for(WHILE);
            assert_policy(&pair, A);
            assert_policy(&pair, B);
            pair.assert_agreement();
        }
    }
}

#[test]
fn rekeys_keep_the_cpu() {
    //= https://www.rfc-editor.org/rfc/rfc9611#section-3
    //= type=test
    //# the rekeyed Child SA should be bound
    //# to the same resource(s) as the Child SA that is being rekeyed.
    let mut pair = established(2);
    for cpu in [1, 3] {
        acquire(&mut pair, A, cpu);
    }
    pair.traffic.watch();
    let before = (cpus(&pair, A), cpus(&pair, B));
    for end in [A, B] {
        for n in 0..3 {
            let child = children(&pair, end).remove(n);
            let request = pair.command(end, Command::RekeyChild(child.id));
            pair.run_for(WHILE);
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
            assert_eq!((cpus(&pair, A), cpus(&pair, B)), before, "{}", pair.story());
            pair.assert_agreement();
            assert_policy(&pair, A);
            assert_policy(&pair, B);
        }
    }
    assert!(pair.traffic.lost.is_empty(), "{:#?}", pair.traffic.lost);
    assert!(pair.a().child_downs().is_empty() && pair.b().child_downs().is_empty());
}

#[test]
fn rekeys_of_both_ends_cross() {
    for seed in 40..60 {
        let mut pair = established(seed);
        acquire(&mut pair, A, 1);
        let before = (cpus(&pair, A), cpus(&pair, B));
        for end in [A, B] {
            for child in children(&pair, end) {
                pair.command(end, Command::RekeyChild(child.id));
            }
        }
        pair.run_for(Duration::from_secs(60));
        assert_eq!((cpus(&pair, A), cpus(&pair, B)), before, "{}", pair.story());
        pair.assert_agreement();
        assert_policy(&pair, A);
        assert_policy(&pair, B);
    }
}

#[test]
fn they_move_to_the_successor_of_their_ike_sa() {
    let mut pair = established(3);
    acquire(&mut pair, A, 1);
    for end in [B, A] {
        pair.rekey_ike(end);
        pair.run_for(WHILE);
        acquire(&mut pair, end, 2);
        pair.assert_agreement();
        assert_policy(&pair, A);
    }
    assert!(cpus(&pair, A).contains(&Some(2)) && cpus(&pair, B).contains(&Some(2)));
}

#[test]
fn one_that_is_deleted_leaves_the_others() {
    for by in [A, B] {
        let mut setup = per_cpu(4);
        // Whatever should be made again when the peer deletes it: this is not.
        setup.both(|side| side.net().close_action = Action::Start);
        let mut pair = setup.build();
        pair.establish();
        for cpu in [1, 2] {
            acquire(&mut pair, A, cpu);
        }
        let gone = children(&pair, by).remove(1);
        let request = pair.command(by, Command::TerminateChild(gone.id));
        pair.run_for(WHILE);
        assert_eq!(pair.hosts[by].done(request), Some(Ok(())));
        //= https://www.rfc-editor.org/rfc/rfc9611#section-6
        //= type=test
        //# bringing the deleted per-CPU Child SA up again
        //# immediately after receiving the Delete Notify might cause an infinite
        //# loop between the peers.
        assert_eq!((cpus(&pair, A).len(), cpus(&pair, B).len()), (2, 2), "{}", pair.story());
        for end in [A, B] {
            assert_eq!(pair.hosts[end].child_downs().len(), 1);
            assert_policy(&pair, end);
        }
        pair.assert_agreement();
        // Its CPU asks for another when it has a packet.
        acquire(&mut pair, by, gone.cpu.unwrap());
        assert!(cpus(&pair, by).contains(&gone.cpu), "{}", pair.story());
        pair.assert_agreement();
    }
}

#[test]
fn without_the_one_for_all_that_one_comes_first() {
    for (by, close_action) in [(A, Action::None), (B, Action::None), (B, Action::Start)] {
        let mut setup = per_cpu(5);
        setup.a.net().close_action = close_action;
        let mut pair = setup.build();
        pair.establish();
        for cpu in [1, 2] {
            acquire(&mut pair, A, cpu);
        }
        let gone = children(&pair, by).remove(0);
        assert_eq!(gone.cpu, None);
        pair.command(by, Command::TerminateChild(gone.id));
        pair.run_for(WHILE);
        pair.assert_agreement();
        if close_action == Action::None {
            assert_eq!((cpus(&pair, A).len(), cpus(&pair, B).len()), (2, 2), "{}", pair.story());
            // What there is goes on.
            assert_policy(&pair, A);
            assert_policy(&pair, B);
            acquire(&mut pair, A, 0);
        }
        assert_eq!(cpus(&pair, A), [None, Some(1), Some(2)], "{}", pair.story());
        assert_eq!(cpus(&pair, B), [None, Some(0), Some(1)], "{}", pair.story());
        pair.assert_agreement();
        assert_policy(&pair, A);
        assert_policy(&pair, B);
        acquire(&mut pair, A, 0);
        assert_eq!(cpus(&pair, A).len(), 4);
    }
}

#[test]
fn a_peer_that_takes_no_more_is_not_asked_again() {
    let mut setup = per_cpu(6);
    setup.both(|side| wants(side, 16));
    setup.b.plane.capabilities.cpus = 1;
    let mut pair = setup.build();
    pair.establish();
    for cpu in 0..2 {
        acquire(&mut pair, A, cpu);
    }
    assert_eq!((cpus(&pair, A).len(), cpus(&pair, B).len()), (3, 3), "{}", pair.story());
    let requests = |pair: &Pair| {
        let sent = pair.net.trace.iter();
        sent.filter(|packet| packet.is(ExchangeType::CREATE_CHILD_SA, false)).count()
    };
    let before = requests(&pair);
    for cpu in 2..16 {
        acquire(&mut pair, A, cpu);
    }
    assert_eq!(requests(&pair), before + 1, "{}", pair.story());
    assert_eq!(pair.a().child_failures(), [Failure::Peer(NotifyType::TS_MAX_QUEUE)]);
    pair.assert_agreement();
    // Nor does this touch other traffic, or the rekeying of what there is.
    let child = children(&pair, A).remove(1);
    let request = pair.command(A, Command::RekeyChild(child.id));
    pair.run_for(WHILE);
    assert_eq!(pair.a().done(request), Some(Ok(())));
    // There is room again.
    let child = children(&pair, A).remove(1);
    pair.command(A, Command::TerminateChild(child.id));
    pair.run_for(WHILE);
    acquire(&mut pair, A, 9);
    assert!(cpus(&pair, A).contains(&Some(9)), "{}", pair.story());
    pair.assert_agreement();
}

#[test]
fn whoever_does_not_want_it_has_one_child() {
    let unwilling = |side: &mut Side| {
        Arc::make_mut(&mut side.net().processing).per_cpu = false;
    };
    let unable = |side: &mut Side| side.plane.capabilities.per_cpu = false;
    for without in [A, B] {
        for why in [unwilling as fn(&mut Side), unable] {
            let mut setup = per_cpu(7);
            why(if without == A { &mut setup.a } else { &mut setup.b });
            let mut pair = setup.build();
            pair.establish();
            for end in [A, B] {
                let table = pair.hosts[end].plane.table();
                assert!(table.policies().all(|policy| !policy.processing.per_cpu));
                acquire(&mut pair, end, 1);
            }
            assert_eq!((cpus(&pair, A), cpus(&pair, B)), (vec![None], vec![None]));
            pair.rekey_child(A);
            pair.run_for(WHILE);
            pair.assert_agreement();
        }
    }
}

#[test]
fn with_everything_else_there_is() {
    let modes = [Mode::Tunnel, Mode::Transport, Mode::Iptfs];
    let proposals = ["aes256gcm16", "aes256gcm16-x25519", "aes256gcm16-x25519-ke1_mlkem768"];
    let mut seed = 100;
    for mode in modes {
        for proposal in proposals {
            for childless in [Childless::Allow, Childless::Prefer] {
                seed += 1;
                let mut setup = per_cpu(seed).real();
                setup.both(|side| {
                    side.net().mode = mode;
                    side.plane.capabilities.iptfs = true;
                    side.connection.childless = childless;
                    side.ike_proposals(&["aes256gcm16-prfsha384-x25519-ke1_mlkem768"]);
                    side.esp_proposals(&[proposal]);
                });
                let mut pair = setup.build();
                pair.establish();
                for (end, cpu) in [(A, 3), (B, 2), (B, 3)] {
                    acquire(&mut pair, end, cpu);
                }
                assert_eq!(
                    (cpus(&pair, A).len(), cpus(&pair, B).len()),
                    (4, 4),
                    "{}",
                    pair.story()
                );
                for end in [A, B] {
                    let child = children(&pair, end).remove(2);
                    pair.command(end, Command::RekeyChild(child.id));
                    pair.run_for(WHILE);
                    assert!(children(&pair, end).iter().all(|child| child.mode == mode));
                    assert_policy(&pair, end);
                }
                pair.assert_agreement();
            }
        }
    }
}

#[test]
fn a_trap_is_for_all_cpus_and_hands_on_what_one_meets() {
    let mut pair = per_cpu(8).build();
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::InstallTrap { connection, child, local, remote });
    pair.settle();
    let trap = {
        let mut policies = pair.a().plane.table().policies();
        let trap = policies.next().unwrap();
        assert!(!trap.processing.per_cpu);
        trap.id
    };
    let packet = |n: u8| format!("10.{n}.0.9").parse().unwrap();
    let met = |pair: &mut Pair, cpu| {
        let (local, remote) = (packet(1), packet(2));
        pair.plane_event(A, Event::Acquire { policy: trap, local, remote, cpu });
    };
    met(&mut pair, Some(3));
    let acquired = pair.a().events(|event| match event {
        ike_proto::Event::Acquire { child, .. } => Some(child.clone()),
        _ => None,
    });
    assert_eq!(acquired, ["net"]);
    pair.establish();
    assert_eq!(cpus(&pair, A), [None], "the first is for all");
    // Both have the same selectors: a data plane may name either.
    met(&mut pair, Some(3));
    pair.run_for(WHILE);
    assert_eq!(cpus(&pair, A), [None, Some(3)], "{}", pair.story());
    met(&mut pair, None);
    pair.run_for(WHILE);
    assert_eq!(cpus(&pair, A).len(), 2);
}

#[test]
fn reauthentication_takes_the_one_for_all_along() {
    let mut pair = established(9);
    for cpu in [0, 1] {
        acquire(&mut pair, A, cpu);
    }
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(WHILE);
    assert_eq!((cpus(&pair, A), cpus(&pair, B)), (vec![None], vec![None]), "{}", pair.story());
    pair.assert_agreement();
    acquire(&mut pair, A, 1);
    assert_eq!(cpus(&pair, A), [None, Some(1)]);
}

#[test]
fn a_data_plane_that_refuses_one_leaves_the_others() {
    let mut pair = established(10);
    acquire(&mut pair, A, 0);
    for end in [A, B] {
        let before = (cpus(&pair, A), cpus(&pair, B));
        pair.hosts[end].plane.inner.fail(Fault::NthOf(CommandKind::InstallSa, 2));
        acquire(&mut pair, A, 2);
        assert_eq!((cpus(&pair, A), cpus(&pair, B)), before, "{}", pair.story());
        pair.assert_agreement();
        assert_policy(&pair, A);
        assert_policy(&pair, B);
        if end == B {
            //= https://www.rfc-editor.org/rfc/rfc9611#section-6
            //= type=test
            //# An implementation that does not accept any further resource-specific
            //# Child SAs MUST NOT return the NO_ADDITIONAL_SAS error
            let last = pair.a().child_failures().pop();
            assert_eq!(last, Some(Failure::Peer(NotifyType::TS_MAX_QUEUE)));
        }
    }
}

#[test]
fn reauthentication_takes_a_group_along_that_is_without_the_one_for_all() {
    let mut pair = established(11);
    for cpu in [0, 1] {
        acquire(&mut pair, A, cpu);
    }
    let first = children(&pair, B).remove(0);
    pair.command(B, Command::TerminateChild(first.id));
    pair.run_for(WHILE);
    assert_eq!(cpus(&pair, A), [Some(0), Some(1)]);
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(WHILE);
    assert_eq!((cpus(&pair, A), cpus(&pair, B)), (vec![None], vec![None]), "{}", pair.story());
    pair.assert_agreement();
}

#[test]
fn both_ends_restore_the_one_for_all_at_once() {
    for seed in 120..130 {
        let mut pair = established(seed);
        acquire(&mut pair, A, 1);
        let first = children(&pair, A).remove(0);
        pair.command(A, Command::TerminateChild(first.id));
        pair.run_for(WHILE);
        meet(&mut pair, A, 2);
        meet(&mut pair, B, 2);
        pair.run_for(WHILE);
        for end in [A, B] {
            let for_all = cpus(&pair, end).iter().filter(|cpu| cpu.is_none()).count();
            assert_eq!(for_all, 1, "{}", pair.story());
            assert_policy(&pair, end);
        }
        pair.assert_agreement();
    }
}

#[test]
fn one_that_is_still_being_installed_takes_the_policy_over() {
    for by in [A, B] {
        let mut pair = established(12);
        pair.hosts[A].plane.delay = Duration::from_secs(5);
        meet(&mut pair, A, 1);
        pair.run_for(Duration::from_secs(1));
        let first = children(&pair, by).remove(0);
        assert_eq!((first.cpu, cpus(&pair, A).len()), (None, 1), "{}", pair.story());
        pair.command(by, Command::TerminateChild(first.id));
        pair.run_for(2 * WHILE);
        assert_eq!((cpus(&pair, A), cpus(&pair, B)), (vec![Some(1)], vec![Some(0)]));
        assert_policy(&pair, A);
        assert_policy(&pair, B);
        pair.assert_agreement();
    }
}

#[test]
fn a_chain_that_outlives_the_others_makes_no_child_without_a_policy() {
    let mut setup = per_cpu(13).real();
    setup.both(|side| side.esp_proposals(&["aes256gcm16-x25519-ke1_mlkem768"]));
    let mut pair = setup.build();
    pair.establish();
    pair.settle();
    pair.net.manual = true;
    meet(&mut pair, A, 1);
    pair.deliver_to(B);
    pair.deliver_to(A);
    let first = children(&pair, B).remove(0);
    pair.command(B, Command::TerminateChild(first.id));
    // The Delete and its answer overtake the next exchange of the chain.
    for response in [false, true] {
        let found = pair.deliver_first(|packet| packet.is(ExchangeType::INFORMATIONAL, response));
        assert!(found, "{}", pair.story());
    }
    assert!(pair.b().children_up().is_empty(), "{}", pair.story());
    pair.deliver_all();
    let last = pair.a().child_failures().pop();
    assert_eq!(last, Some(Failure::Peer(NotifyType::TS_MAX_QUEUE)), "{}", pair.story());
    for end in [A, B] {
        assert!(pair.hosts[end].children().is_empty(), "{}", pair.story());
        assert!(pair.hosts[end].plane.routes().is_empty(), "{}", pair.story());
    }
    pair.assert_agreement();
}

/// The child by which the policy sends ends, and the data plane refuses the policy that is to send by another one. That
/// one is deleted at both ends, and A makes the child again: no policy goes on to name an SA that is gone.
///
/// Fault: in `drop_child`, hand the policy of the heir to `ctx.data_plane`.
#[test]
fn a_policy_that_cannot_go_to_another_one_ends_that_one() {
    for end in [A, B] {
        let mut setup = per_cpu(14);
        setup.a.net().close_action = Action::Start;
        let mut pair = setup.build();
        pair.establish();
        acquire(&mut pair, A, 1);
        let first = children(&pair, A).remove(0);
        assert_eq!(first.cpu, None);
        pair.hosts[end].plane.inner.fail(Fault::NthOf(CommandKind::InstallPolicy, 1));
        pair.command(A, Command::TerminateChild(first.id));
        pair.run_for(2 * WHILE);
        assert_eq!(pair.hosts[end].plane.inner.failed(), 1, "{}", pair.story());
        assert_eq!((cpus(&pair, A), cpus(&pair, B)), (vec![None], vec![None]), "{}", pair.story());
        assert_policy(&pair, A);
        assert_policy(&pair, B);
        pair.assert_agreement();
    }
}

/// The ends prefer different suites. Further children and those of rekeys have the suite of the first one all the same,
/// whoever asks for them.
///
/// Fault: in `make_child`, let `alike` be `None`.
#[test]
fn the_suite_of_the_others_counts_more_than_preference() {
    let (one, other) = ("aes128gcm16-x25519", "aes256-sha256-x25519");
    let mut setup = per_cpu(15);
    setup.a.esp_proposals(&[one, other]);
    setup.b.esp_proposals(&[other, one]);
    let mut pair = setup.build();
    pair.establish();
    for end in [B, A] {
        acquire(&mut pair, end, 1);
    }
    for end in [B, A] {
        assert_eq!(cpus(&pair, end).len(), 3, "{}", pair.story());
        for child in children(&pair, end) {
            let request = pair.command(end, Command::RekeyChild(child.id));
            pair.run_for(WHILE);
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
        }
        let suites: Vec<_> =
            children(&pair, end).iter().map(|child| child.algorithms.suite).collect();
        assert!(suites.iter().all(|suite| *suite == suites[0]), "{suites:?}");
        assert_policy(&pair, end);
    }
    pair.assert_agreement();
}
