//! Two children for the same traffic, of which one ends: never both for good.

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{Action, ConnectionConfig, TsSpec, Unique};
use ike_proto::dataplane::{Flow, TrafficSelector};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{ChildSaId, Command};
use ike_tests::network::Fate;
use ike_tests::packets::Inner;
use ike_tests::{A, B, Pair, Setup, World, cheap};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// The path is dead between these two times, counted from the rekey of the two children.
const DEAD: (Duration, Duration) = (Duration::from_secs(9), Duration::from_secs(23));

/// Both ends have two of "other".
fn are_crossed(world: &World) -> bool {
    [A, B].iter().all(|host| others(world, *host).len() == 2)
}

/// Both ends begin "other" at once.
fn cross(pair: &mut Pair) {
    for host in [A, B] {
        let (local, remote) = (pair.address(host), pair.address(Pair::other(host)));
        let (connection, child) = ("ab".to_owned(), "other".to_owned());
        pair.command(host, Command::Ensure { connection, child, local, remote });
    }
    assert!(pair.run_until(SECOND, are_crossed), "{}", pair.story());
}

/// Both ends begin "other" at once, by configuration. A rekeys both children, so that neither end knows any more that the
/// two have crossed.
fn doubles(seed: u64) -> Pair {
    let mut setup = Setup::new(seed);
    setup.a.add_child("other", 11, 12).start_action = Action::Start;
    setup.b.add_child("other", 12, 11).start_action = Action::Start;
    let mut pair = setup.build();
    pair.establish();
    cross(&mut pair);
    for child in others(&pair, A) {
        pair.command(A, Command::RekeyChild(child));
    }
    pair.run_for(SECOND / 2);
    assert!(are_crossed(&pair) && pair.a().child_rekeys().len() == 2, "{}", pair.story());
    pair
}

/// The children "other" of `host` that are up.
fn others(world: &World, host: usize) -> Vec<ChildSaId> {
    let up = world.hosts[host].children_up().into_iter();
    up.filter(|child| child.name == "other").map(|child| child.id).collect()
}

/// How many children of `host` have ended, rekeys apart.
fn downs(world: &World, host: usize) -> usize {
    world.hosts[host].child_downs().len()
}

/// One child is up at both ends, both still want it, and packets pass both ways.
#[track_caller]
fn check_one(pair: &mut Pair) {
    pair.assert_agreement();
    for host in [A, B] {
        assert_eq!(others(pair, host).len(), 1, "{}", pair.story());
        let wanted = pair.hosts[host].endpoint.wanted();
        let other = ("ab".to_owned(), Some("other".to_owned()));
        assert!(wanted.contains(&other), "{wanted:?}\n{}", pair.story());
    }
    let inner = Inner { src: [10, 11, 0, 5].into(), dst: [10, 12, 0, 5].into() };
    for (from, inner) in [(A, inner), (B, inner.reversed())] {
        let sent = pair.send_packet(from, 1 - from, inner, 84);
        assert_eq!(sent, Ok(()), "from {from}\n{}", pair.story());
    }
}

/// The Delete of the redundant child does not arrive, because the path is dead. The other end has waited for it for
/// longer than it waits for a peer that knows no rule, and does not end its own child on a path that is dead.
///
/// Fault: in `Fate::of`, let `heard` be true, and in `Established::stood_in`, return `None`. Then the child is down
/// at both ends for good.
#[test]
fn a_dead_path_does_not_end_both_doubles() {
    for seed in 0..8 {
        let mut pair = doubles(seed);
        pair.run_for(DEAD.0);
        pair.net.conditions.loss = 1000;
        pair.run_for(DEAD.1 - DEAD.0);
        assert_eq!((downs(&pair, A), downs(&pair, B)), (0, 0), "{}", pair.story());
        pair.net.conditions.loss = 0;
        pair.run_for(90 * SECOND);
        check_one(&mut pair);
        assert_eq!((downs(&pair, A), downs(&pair, B)), (1, 1), "{}", pair.story());
    }
}

/// The Delete of the redundant child alone is lost, again and again, while all else passes. The other end ends its own
/// one, and both are gone: each end knows that it has ended a double for the one that the peer ends.
///
/// Fault: in `Established::stood_in`, return `None`; or there, let `ended` be false.
#[test]
fn a_child_of_which_both_doubles_end_comes_back() {
    for end in [A, B] {
        let mut both = 0;
        for seed in 0..8 {
            let mut pair = doubles(seed);
            let from = pair.address(end);
            let (begin, over) = (pair.now() + DEAD.0, pair.now() + DEAD.1 + 17 * SECOND);
            pair.net.tap(move |packet| {
                let lost = packet.src.ip() == from
                    && packet.is(ExchangeType::INFORMATIONAL, false)
                    && (begin..over).contains(&packet.sent);
                if lost { Fate::Drop } else { Fate::Pass }
            });
            pair.run_for(200 * SECOND);
            check_one(&mut pair);
            both += usize::from(downs(&pair, A) > 1 || downs(&pair, B) > 1);
        }
        // In the others the redundant one was of the other end.
        assert!(both > 1, "{both} of 8 lost both, with Deletes of {end} lost");
    }
}

/// With `unique = never` this end ends no child because of another one (RFC 7296 §2.8), whichever has the lowest SPI,
/// and whether or not the two crossed.
///
/// Fault: in `Fate::of`, leave `unique` out; or in `Established::judge_crossing`.
#[test]
fn unique_never_lets_both_doubles_live() {
    for seed in 0..6 {
        for wait in [6 * SECOND, SECOND] {
            let mut setup = Setup::new(seed);
            setup.a.connection.unique = Unique::Never;
            setup.a.net().start_action = Action::Start;
            let mut pair = setup.build();
            pair.establish();
            pair.run_for(wait);
            pair.initiate(B, Some("net"));
            pair.run_for(60 * SECOND);
            pair.assert_agreement();
            assert_eq!(pair.a().children_up().len(), 2, "{}", pair.story());
            assert_eq!(pair.b().children_up().len(), 2, "{}", pair.story());
        }
    }
}

/// `unique = never` keeps what each end wants. A child of an end that does not want it gives way to the peer's.
///
/// Fault: in `Fate::of`, let `configured` be false with `unique = never`.
#[test]
fn unique_never_keeps_no_double_that_nobody_has_asked_for() {
    for seed in 0..6 {
        let mut setup = Setup::new(seed);
        setup.a.add_child("other", 11, 12);
        setup.b.add_child("other", 12, 11);
        setup.both(|side| side.connection.unique = Unique::Never);
        let mut pair = setup.build();
        pair.establish();
        cross(&mut pair);
        let (connection, child) = ("ab".to_owned(), Some("other".to_owned()));
        pair.command(B, Command::Unwant { connection, child });
        pair.run_for(60 * SECOND);
        for host in [A, B] {
            assert_eq!(others(&pair, host).len(), 1, "{}", pair.story());
        }
        pair.assert_agreement();
    }
}

/// A's request for a child waits for the answer to another one. B makes the child meanwhile, at once or by key
/// exchanges that take their time. A has no use for a second one, which `unique = never` would keep.
///
/// Fault: in `Established::start`, take no account of `has_one`; or of `makes`.
#[test]
fn a_child_that_the_peer_makes_meanwhile_is_not_made_again() {
    for slow in [false, true] {
        let mut setup = Setup::new(9);
        setup.a.add_child("other", 11, 12);
        setup.b.add_child("other", 12, 11);
        setup.both(|side| {
            side.connection.unique = Unique::Never;
            side.crypto = cheap::post_quantum();
            side.esp_proposals(&["aes128gcm16-x25519-ke1_mlkem512"]);
            side.settings.retransmission.timeout = Some(SECOND);
            side.settings.retransmission.jitter = 0;
        });
        let mut pair = setup.build();
        pair.establish();
        let now = pair.now();
        // A's rekey goes on after 2.8 s, and B's key exchange after 3.3 s.
        pair.net.tap(move |packet| {
            let rekey = packet.from == Some(A) && packet.is(ExchangeType::CREATE_CHILD_SA, false);
            let chain = packet.from == Some(B) && packet.is(ExchangeType::IKE_FOLLOWUP_KE, false);
            let lost = rekey && packet.sent < now + 2 * SECOND
                || slow && chain && packet.sent < now + 3 * SECOND;
            if lost { Fate::Drop } else { Fate::Pass }
        });
        pair.rekey_child(A);
        let mut requests = Vec::new();
        for host in [A, B] {
            let (local, remote) = (pair.address(host), pair.address(Pair::other(host)));
            let (connection, child) = ("ab".to_owned(), "other".to_owned());
            let ensure = Command::Ensure { connection, child, local, remote };
            requests.push((host, pair.command(host, ensure)));
            pair.run_for(SECOND / 2);
        }
        pair.run_for(14 * SECOND);
        for (host, request) in requests {
            assert_eq!(pair.hosts[host].done(request), Some(Ok(())), "{}", pair.story());
            assert_eq!(others(&pair, host).len(), 1, "{slow}: {}", pair.story());
        }
        pair.assert_agreement();
    }
}

/// A's request for a child waits for the answer to another one. Meanwhile B makes a child for one pair of addresses, which has
/// that name at A. A makes the whole one all the same.
///
/// Fault: in `Established::start`, call `has_one` in place of `has_whole`.
#[test]
fn a_child_for_one_pair_of_addresses_does_not_stand_in_for_all() {
    let mut setup = Setup::new(9);
    setup.a.add_child("other", 11, 12);
    let single = |ip: &str| vec![TsSpec::Fixed(ip.parse().expect("a selector"))];
    let narrow = setup.b.add_child("narrow", 12, 11);
    (narrow.local_ts, narrow.remote_ts) = (single("10.12.0.9/32"), single("10.11.0.9/32"));
    setup.b.add_child("other", 12, 11);
    let mut pair = setup.build();
    pair.establish();
    let now = pair.now();
    pair.net.tap(move |packet| {
        let rekey = packet.from == Some(A) && packet.is(ExchangeType::CREATE_CHILD_SA, false);
        if rekey && packet.sent < now + 2 * SECOND { Fate::Drop } else { Fate::Pass }
    });
    pair.rekey_child(A);
    for (host, child) in [(A, "other"), (B, "narrow")] {
        let (local, remote) = (pair.address(host), pair.address(Pair::other(host)));
        let (connection, child) = ("ab".to_owned(), child.to_owned());
        pair.command(host, Command::Ensure { connection, child, local, remote });
        pair.run_for(SECOND / 2);
    }
    assert_eq!(others(&pair, A).len(), 1, "{}", pair.story());
    pair.run_for(14 * SECOND);
    assert_eq!(others(&pair, A).len(), 2, "{}", pair.story());
    let inner = Inner { src: [10, 11, 0, 5].into(), dst: [10, 12, 0, 5].into() };
    for (from, inner) in [(A, inner), (B, inner.reversed())] {
        assert_eq!(pair.send_packet(from, 1 - from, inner, 84), Ok(()), "{}", pair.story());
    }
}

/// A packet has met a trap, and B makes the child while A's request for it waits. Nothing would end a second
/// one, because neither end has `start_action = start`.
///
/// Fault: in `Established::start`, let `there` be false if there is a packet.
#[test]
fn a_child_that_takes_the_packet_by_now_is_not_made_again() {
    let mut setup = Setup::new(10);
    setup.a.add_child("other", 11, 12);
    setup.b.add_child("other", 12, 11);
    setup.both(|side| {
        side.settings.retransmission.timeout = Some(SECOND);
        side.settings.retransmission.jitter = 0;
    });
    let mut pair = setup.build();
    pair.establish();
    let now = pair.now();
    pair.net.tap(move |packet| {
        let rekey = packet.from == Some(A) && packet.is(ExchangeType::CREATE_CHILD_SA, false);
        if rekey && packet.sent < now + 2 * SECOND { Fate::Drop } else { Fate::Pass }
    });
    pair.rekey_child(A);
    let packet = Some(Flow {
        local: TrafficSelector::host([10, 11, 0, 5].into()),
        remote: TrafficSelector::host([10, 12, 0, 5].into()),
    });
    let (local, remote) = (pair.address(A), pair.address(B));
    let (connection, child) = ("ab".to_owned(), Some("other".to_owned()));
    let request = pair.command(A, Command::Initiate { connection, child, local, remote, packet });
    pair.run_for(SECOND / 2);
    pair.initiate(B, Some("other"));
    pair.run_for(SECOND / 2);
    assert_eq!(others(&pair, A).len(), 1, "{}", pair.story());
    assert_eq!(pair.hosts[A].done(request), None, "{}", pair.story());
    pair.run_for(40 * SECOND);
    assert_eq!(pair.hosts[A].done(request), Some(Ok(())), "{}", pair.story());
    for host in [A, B] {
        assert_eq!(others(&pair, host).len(), 1, "{}", pair.story());
    }
    pair.assert_agreement();
}

/// A peer has a second IKE SA beside ours for a while, again and again, and ours is rekeyed meanwhile: what was noted for
/// that is forgotten each time.
///
/// Fault: in `Endpoint::offer`, leave `forget_estate` out where the others are gone.
#[test]
fn nothing_is_kept_of_a_second_ike_sa_that_is_gone() {
    let mut setup = Setup::new(5);
    let name = "two".to_owned();
    let children = setup.b.children.iter().cloned().map(Arc::new).collect();
    setup.b.more.push(ConnectionConfig { name, children, ..setup.b.connection.clone() });
    let mut pair = setup.build();
    pair.establish();
    for round in 0..4 {
        // So late that the two cannot cross.
        pair.run_for(90 * SECOND);
        let (local, remote) = (pair.address(B), pair.address(A));
        let (connection, child) = ("two".to_owned(), Some("net".to_owned()));
        let initiate = Command::Initiate { connection, child, local, remote, packet: None };
        let request = pair.command(B, initiate);
        pair.run_for(12 * SECOND);
        assert_eq!(pair.b().done(request), Some(Ok(())), "{}", pair.story());
        assert_eq!(pair.a().endpoint.offered(), 1, "round {round}\n{}", pair.story());
        let second = pair.b().ikes().iter().map(|ike| ike.id).max().unwrap();
        pair.command(B, Command::TerminateIke(second));
        pair.run_for(2 * SECOND + 100 * MS);
        assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
        assert_eq!(pair.a().endpoint.offered(), 0, "round {round}\n{}", pair.story());
        pair.rekey_ike(A);
        pair.run_for(SECOND);
        assert_eq!(pair.a().endpoint.offered(), 0, "round {round}\n{}", pair.story());
    }
}
