//! Both ends begin the same at once: one of two stays, the same at both ends, and no packet is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ike_proto::config::{Action, EndpointConfig, Unique};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Event, Failure, IkeSaId, IkeState};
use ike_tests::explore::interleavings_in_time;
use ike_tests::network::{Conditions, Fate};
use ike_tests::plane::Plane;
use ike_tests::setup::{Setup, address, side};
use ike_tests::{A, B, Pair, World, cheap};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// What `start_action = start` has a daemon say.
fn ensure(pair: &mut Pair, host: usize, child: &str) {
    let (local, remote) = (pair.address(host), pair.address(Pair::other(host)));
    let (connection, child) = ("ab".to_owned(), child.to_owned());
    pair.command(host, Command::Ensure { connection, child, local, remote });
}

/// Ends of `setup` that both begin, and whose datagrams are delivered by hand.
fn both_begin(setup: Setup, child: &str) -> Pair {
    let mut pair = setup.build();
    pair.net.manual = true;
    pair.traffic.watch();
    ensure(&mut pair, A, child);
    ensure(&mut pair, B, child);
    pair
}

fn ups(world: &World, host: usize) -> usize {
    world.hosts[host].events(|event| matches!(event, Event::IkeUp(_)).then_some(())).len()
}

#[track_caller]
fn check_one(pair: &Pair, told: &dyn std::fmt::Debug) {
    if let Err(what) = pair.agreement() {
        panic!("seed {}: {what}: {told:?}\n{}", pair.seed, pair.story());
    }
    for host in [pair.a(), pair.b()] {
        let (ikes, children) = (host.ikes().len(), host.children_up().len());
        assert_eq!((ikes, children), (1, 1), "{told:?}\n{}", pair.story());
    }
    let lost = &pair.traffic.lost;
    assert!(lost.is_empty(), "lost {lost:?}: {told:?}\n{}", pair.story());
}

/// In every order of the datagrams, and with any one of them lost.
///
/// Fault: in `closing::on_established_closed`, remove the inbound SAs at once;
/// in `Endpoint::on_established`, do not take those that crossed out of what `unique` is about; or in
/// `end_others`, what INITIAL_CONTACT is about; or in `Established::end_crossed`, leave the policies where they are; or in
/// `is_redundant`, answer `true`.
#[test]
fn ike_sas_that_cross_end_in_one() {
    for (unique, close_action, losses, seeds) in [
        (Unique::No, Action::None, 1, 1),
        (Unique::No, Action::Start, 0, 2),
        (Unique::Replace, Action::Start, 0, 2),
        (Unique::Keep, Action::None, 0, 2),
    ] {
        let (mut runs, mut crossed) = (0, std::cell::Cell::new(0));
        for seed in 0..seeds {
            let make = || {
                let mut setup = Setup::new(seed);
                setup.both(|side| {
                    side.connection.unique = unique;
                    side.net().close_action = close_action;
                });
                both_begin(setup, "net")
            };
            runs += interleavings_in_time(make, MS, losses, |pair, choices| {
                let told = (unique, close_action, choices);
                check_one(pair, &told);
                for host in [A, B] {
                    let ups = ups(pair, host);
                    assert!((1..=2).contains(&ups), "{ups} IKE SAs: {told:?}\n{}", pair.story());
                }
                if ups(pair, A) == 2 && ups(pair, B) == 2 {
                    crossed.set(crossed.get() + 1);
                }
            });
        }
        println!("{unique:?}, close_action {close_action:?}: {runs} runs, {crossed:?} crossed");
        assert!(runs > 20 && crossed.get_mut() > &mut 10);
    }
}

/// Over links that lose one datagram of ten, and mix them up.
#[test]
fn ike_sas_that_cross_end_in_one_over_bad_links() {
    for seed in 0..200 {
        let mut setup = Setup::new(seed);
        setup.conditions = Conditions {
            loss: 100,
            jitter: Duration::from_millis(if seed % 2 == 0 { 0 } else { 30 }),
            ..Conditions::default()
        };
        let mut pair = setup.build();
        ensure(&mut pair, A, "net");
        pair.run_for(MS * u32::try_from(seed).unwrap() / 2);
        ensure(&mut pair, B, "net");
        pair.run_for(SECOND * 400);
        for host in [pair.a(), pair.b()] {
            let (ikes, children) = (host.ikes().len(), host.children_up().len());
            assert_eq!((ikes, children), (1, 1), "seed {seed}\n{}", pair.story());
        }
    }
}

/// Fault: in `Established::judge_crossing`, return at once.
#[test]
fn children_that_cross_end_in_one() {
    let mut redundant = BTreeMap::new();
    for seed in 0..6 {
        let make = || {
            let mut setup = Setup::new(seed);
            setup.both(|side| {
                let (local, remote) = if side.address == address(1) { (11, 12) } else { (12, 11) };
                side.add_child("other", local, remote);
            });
            let mut pair = setup.build();
            pair.establish();
            pair.net.manual = true;
            pair.traffic.watch();
            ensure(&mut pair, A, "other");
            ensure(&mut pair, B, "other");
            pair
        };
        let found = std::cell::RefCell::new(Vec::new());
        interleavings_in_time(make, MS, 1, |pair, choices| {
            if let Err(what) = pair.agreement() {
                panic!("seed {seed}: {what}: {choices:?}\n{}", pair.story());
            }
            for host in [pair.a(), pair.b()] {
                let mut names: Vec<_> = host.children_up().into_iter().map(|c| c.name).collect();
                names.sort();
                assert_eq!(names, ["net", "other"], "{choices:?}\n{}", pair.story());
                let downs = host.child_downs().into_iter().map(|(_, why)| format!("{why:?}"));
                found.borrow_mut().extend(downs);
            }
            assert!(pair.traffic.lost.is_empty(), "{choices:?}\n{}", pair.story());
        });
        for why in found.into_inner() {
            *redundant.entry(why).or_insert(0) += 1;
        }
    }
    println!("{redundant:?}");
    // Each was ended by its initiator, and the other end saw that.
    assert!(redundant["Replaced"] > 20 && redundant["Replaced"] == redundant["DeletedByPeer"]);
}

/// Two children cross, and one of them is rekeyed before the redundant one ends: how they came to be is forgotten with
/// that. One ends all the same, without a lost packet.
///
/// Fault: in `Established::judge_double`, return at once; or in `ChildSa::heritage`, let `ours` be false.
#[test]
fn children_that_cross_and_are_rekeyed_end_in_one() {
    for (seed, rekeyer) in (0..10).flat_map(|seed| [(seed, A), (seed, B)]) {
        let mut setup = Setup::new(seed);
        setup.both(|side| {
            let (local, remote) = if side.address == address(1) { (11, 12) } else { (12, 11) };
            side.add_child("other", local, remote);
            side.children.last_mut().expect("it was added").start_action = Action::Start;
        });
        let mut pair = setup.build();
        pair.establish();
        pair.traffic.watch();
        for host in [A, B] {
            ensure(&mut pair, host, "other");
        }
        let others = |world: &World, host: usize| {
            let ups = world.hosts[host].children_up().into_iter();
            ups.filter(|child| child.name == "other").collect::<Vec<_>>()
        };
        let crossed = |world: &World| [A, B].iter().all(|host| others(world, *host).len() == 2);
        assert!(pair.run_until(SECOND, crossed), "{}", pair.story());
        for child in others(&pair, rekeyer) {
            pair.command(rekeyer, Command::RekeyChild(child.id));
        }
        pair.run_for(SECOND * 40);
        for host in [A, B] {
            assert_eq!(others(&pair, host).len(), 1, "seed {seed}\n{}", pair.story());
        }
        pair.assert_agreement();
        assert!(pair.traffic.lost.is_empty(), "{}", pair.story());
    }
}

/// The responder was told to begin the child, too, and does so when it is there.
///
/// Fault: in `ChildSa::crosses`, let `late` be zero.
#[test]
fn a_peer_that_starts_what_is_there_gets_one() {
    for (start_action, children) in [(Action::Start, 1), (Action::None, 2)] {
        for seed in 0..10 {
            let mut setup = Setup::new(seed);
            setup.both(|side| side.net().start_action = start_action);
            let mut pair = setup.build();
            pair.establish();
            pair.traffic.watch();
            pair.run_for(SECOND);
            // As strongSwan does, that does not look for a child first.
            pair.initiate(B, Some("net"));
            pair.run_for(SECOND * 60);
            pair.assert_agreement();
            assert_eq!(pair.a().children_up().len(), children, "seed {seed}\n{}", pair.story());
            assert!(pair.traffic.lost.is_empty(), "{}", pair.story());
        }
    }
}

/// What this end wants to be up is not begun if the peer has begun it.
///
/// Fault: in `on_ensure`, initiate whatever there is.
#[test]
fn what_is_to_be_up_is_not_begun_twice() {
    let mut pair = Pair::established(3);
    ensure(&mut pair, B, "net");
    ensure(&mut pair, A, "net");
    pair.run_for(SECOND);
    assert_eq!((pair.a().children_up().len(), pair.b().children_up().len()), (1, 1));
    pair.assert_agreement();
}

/// An operator who brings up a child twice has two; so has one who does it at both ends one after the other.
///
/// Fault: in `want_several`, note nothing; or in `Endpoint::replacement_of`, leave `several` out.
#[test]
fn a_second_one_that_somebody_wants_stays() {
    let mut pair = Pair::established(4);
    pair.initiate(A, Some("net"));
    pair.run_for(SECOND * 60);
    assert_eq!(pair.a().children_up().len(), 2);
    pair.initiate(B, Some("net"));
    pair.run_for(SECOND * 60);
    pair.assert_agreement();
    assert_eq!(pair.a().children_up().len(), 3, "{}", pair.story());
    // They outlive rekeys and a reauthentication.
    let ike = pair.ike_id(A);
    pair.command(A, Command::RekeyIke(ike));
    pair.run_for(SECOND * 60);
    assert_eq!(pair.a().children_up().len(), 3, "{}", pair.story());
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(SECOND * 60);
    assert_eq!(pair.a().children_up().len(), 3, "{}", pair.story());
}

/// The two IKE SAs of `host`, redundant first.
fn by_rule(pair: &Pair, host: usize) -> Option<[IkeSaId; 2]> {
    let mut ikes = pair.hosts[host].ikes_in(IkeState::Established);
    ikes.sort_by_key(|ike| {
        let mut spis = [ike.spi_i, ike.spi_r];
        spis.sort_unstable();
        spis
    });
    <[_; 2]>::try_from(ikes).ok().map(|both| both.map(|ike| ike.id))
}

/// Both begin; B does not know the rule, and keeps what it has. The pair when both have both.
fn with_another_implementation(seed: u64) -> Pair {
    let mut setup = Setup::new(seed);
    setup.b.connection.unique = Unique::Never;
    let mut pair = setup.build();
    pair.traffic.watch();
    ensure(&mut pair, A, "net");
    ensure(&mut pair, B, "net");
    let both = |w: &World| {
        w.hosts.iter().all(|host| {
            host.ikes_in(IkeState::Established).len() == 2 && host.children_up().len() == 2
        })
    };
    assert!(pair.run_until(SECOND, both), "{}", pair.story());
    pair
}

/// A peer that was up first sends IKE_SA_INIT again and again, and goes on with it though ours is there by then. Packets
/// leave by the first child until the peer has the second.
///
/// Fault: let `LATE_INIT` be zero; or in `Established::has_company`, answer `false`.
#[test]
fn a_peer_that_goes_on_with_an_old_request_gets_one() {
    for seed in 0..20 {
        let mut setup = Setup::new(seed);
        setup.b.connection.unique = Unique::Never;
        let mut pair = setup.build();
        // This host is not up yet.
        pair.net.lose(1, |_| true);
        ensure(&mut pair, B, "net");
        pair.settle();
        // Its second try is on its way for a while.
        ensure(&mut pair, A, "net");
        pair.run_for(MS * 300);
        assert_eq!((ups(&pair, A), ups(&pair, B)), (1, 1), "{}", pair.story());
        pair.traffic.watch();
        let late = |w: &World| ups(w, A) == 2 && ups(w, B) == 2;
        assert!(pair.run_until(SECOND * 30, late), "{}", pair.story());
        pair.run_for(SECOND * 30);
        assert_eq!(pair.traffic.early, 0, "{}", pair.story());
        check_one(&pair, &"late");
    }
}

/// A peer reauthenticates: its new IKE SA comes beside the old one. Packets leave by the old child until the peer has the
/// new one, and by the new one soon after.
///
/// Fault: in `Established::has_company`, answer `false`; or in `Established::end_standby`, return at once; or in
/// `closing::on_established_closed`, keep no inbound SA of a child that is `routed`.
#[test]
fn the_child_of_a_reauthentication_waits_for_its_initiator() {
    for seed in 0..20 {
        let mut setup = Setup::new(seed);
        setup.a.connection.reauth_time = SECOND * 60;
        setup.a.connection.rand_time = Duration::ZERO;
        let mut pair = setup.build();
        pair.establish();
        pair.run_for(SECOND * 2);
        pair.traffic.watch();
        let anew = |w: &World| ups(w, A) == 2;
        assert!(pair.run_until(SECOND * 70, anew), "{}", pair.story());
        pair.run_for(SECOND * 30);
        assert_eq!((pair.traffic.early, &pair.traffic.lost[..]), (0, &[][..]), "{}", pair.story());
        pair.assert_agreement();
        // Its end would show a policy that is still on standby.
        assert!(pair.b().plane.table().policies().all(|policy| !policy.standby));
    }
}

/// Fault: in `Endpoint::on_crossed`, leave those alone that the peer has begun.
#[test]
fn one_end_that_knows_the_rule_is_enough() {
    for seed in 0..20 {
        let mut pair = with_another_implementation(seed);
        pair.run_for(SECOND * 30);
        check_one(&pair, &"one end knows");
        let deletes = pair.a().ike_downs().into_iter().chain(pair.b().ike_downs());
        let deletes: Vec<_> = deletes.map(|(_, reason)| reason).collect();
        assert_eq!(deletes, [Failure::Replaced, Failure::DeletedByPeer], "{}", pair.story());
    }
}

/// The peer has a rule of its own, and ends the one that ours keeps: before, while and after this end acts.
///
/// Fault: in `Endpoint::end_crossing`, restart nothing.
#[test]
fn two_rules_that_disagree_leave_one() {
    let mut restarted = 0;
    for offset in (0..2_500).step_by(20) {
        let mut pair = with_another_implementation(offset);
        let kept = by_rule(&pair, B).unwrap()[1];
        pair.run_for(MS * u32::try_from(offset).unwrap());
        if pair.b().ikes().iter().any(|ike| ike.id == kept) {
            pair.command(B, Command::TerminateIke(kept));
        }
        pair.run_for(SECOND * 60);
        pair.assert_agreement();
        let (ikes, children) = (pair.a().ikes().len(), pair.a().children_up().len());
        assert_eq!((ikes, children), (1, 1), "after {offset} ms\n{}", pair.story());
        restarted += usize::from(ups(&pair, A) > 2);
    }
    println!("begun anew: {restarted}");
    assert!(restarted > 10);
    // What an operator at the other end closes later stays closed.
    let mut pair = with_another_implementation(1);
    pair.run_for(SECOND * 30);
    let last = pair.b().ike().id;
    pair.command(B, Command::TerminateIke(last));
    pair.run_for(SECOND * 60);
    assert!(pair.a().ikes().is_empty());
}

/// The peer has ended the one that our rule keeps, and its Delete is lost for a while. The other one stays: the first
/// shows no sign of life, and the traffic has nothing else to go by.
///
/// Fault: in `on_take_over`, do not wait for a sign of life.
#[test]
fn the_one_that_stays_shows_that_it_is_alive_first() {
    for seed in 0..20 {
        let mut pair = with_another_implementation(seed);
        let [redundant, kept] = by_rule(&pair, B).unwrap();
        let begun = pair.now();
        // The first packet of the peer to get through is the Delete.
        let mut open = false;
        pair.net.tap(move |packet| {
            let delete = packet.is(ExchangeType::INFORMATIONAL, false);
            open |= packet.from == Some(B) && delete && packet.sent > begun + SECOND * 4;
            if packet.from == Some(A) || open { Fate::Pass } else { Fate::Drop }
        });
        pair.command(B, Command::TerminateIke(kept));
        pair.run_for(SECOND * 60);
        pair.assert_agreement();
        assert_eq!(pair.b().ike().id, redundant, "{}", pair.story());
        assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
        assert_eq!(ups(&pair, A), 2, "begun anew\n{}", pair.story());
    }
}

/// A begins "more", B "net": whichever IKE SA stays has both, and gets what it lacks before the other one ends.
///
/// Fault: in `Established::covers`, say `Never` where a child is missing; or `Whole`.
#[test]
fn what_the_one_that_stays_lacks_is_made_on_it() {
    for seed in 0..10 {
        let mut setup = Setup::new(seed);
        setup.both(|side| {
            let (local, remote) = if side.address == address(1) { (11, 12) } else { (12, 11) };
            side.add_child("more", local, remote);
        });
        let mut pair = setup.build();
        pair.traffic.watch();
        ensure(&mut pair, A, "more");
        ensure(&mut pair, B, "net");
        let names = |w: &World, host: usize| -> BTreeSet<_> {
            w.hosts[host].children_up().into_iter().map(|child| child.name).collect()
        };
        let both = |w: &World| names(w, A).len() == 2 && names(w, B).len() == 2;
        assert!(pair.run_until(SECOND, both), "{}", pair.story());
        let end = pair.now() + SECOND * 60;
        pair.run_until(SECOND * 60, |w| {
            assert!(both(w), "a child is missing\n{}", w.story());
            w.now() >= end
        });
        pair.assert_agreement();
        assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
        assert_eq!(pair.a().children_up().len(), 2, "{}", pair.story());
        assert!(pair.traffic.lost.is_empty(), "{}", pair.story());
    }
}

const MESH: u8 = 12;

fn towards(m: u8) -> String {
    format!("to-{m}")
}

/// Host `n` of a mesh, with a connection for every other host.
fn node(n: u8, unique: Unique) -> EndpointConfig {
    let mut node = side(n, n % MESH + 1).config();
    node.connections.clear();
    node.secrets.clear();
    for m in (1..=MESH).filter(|m| *m != n) {
        let mut one = side(n, m);
        one.connection.name = towards(m);
        one.connection.unique = unique;
        one.connection.keyingtries = 0;
        let mut one = one.config();
        node.connections.append(&mut one.connections);
        node.secrets.append(&mut one.secrets);
    }
    node
}

/// Twelve hosts that all begin with all others at nearly the same time, over links that lose one datagram of twenty: 132
/// IKE SAs and children, none twice.
///
/// Fault: in `Registry::note_party`, report nothing.
#[test]
fn a_mesh_of_twelve_has_one_of_each() {
    for (seed, unique) in [Unique::No, Unique::Replace, Unique::Keep].into_iter().enumerate() {
        let seed = u64::try_from(seed).unwrap();
        let mut world = World::new(seed);
        world.net.conditions =
            Conditions { loss: 50, jitter: Duration::from_millis(20), ..Conditions::default() };
        for n in 1..=MESH {
            world.add(address(n), node(n, unique), cheap::provider(), Plane::new());
        }
        for step in 0..MESH {
            // Each begins with the nearest first.
            for n in 1..=MESH {
                let m = (n + step) % MESH + 1;
                if m == n {
                    continue;
                }
                let (local, remote) = (address(n), address(m));
                let (connection, child) = (towards(m), "net".to_owned());
                let command = Command::Ensure { connection, child, local, remote };
                world.command(usize::from(n) - 1, command);
            }
            world.run_for(MS * 3);
        }
        world.run_for(SECOND * 400);
        let mut spis = BTreeMap::<_, usize>::new();
        let mut begun = 0;
        for host in &world.hosts {
            assert_eq!(host.ikes().len(), host.ikes_in(IkeState::Established).len());
            for ike in host.ikes() {
                assert_eq!(ike.children.len(), 1, "{unique:?}: {ike:?}");
                *spis.entry((ike.spi_i, ike.spi_r)).or_default() += 1;
            }
            begun += host.events(|event| matches!(event, Event::IkeUp(_)).then_some(())).len();
        }
        let wanted = usize::from(MESH) * usize::from(MESH - 1);
        println!("{unique:?}: {} of {wanted} at the ends, {begun} made", 2 * spis.len());
        assert!(spis.values().all(|ends| *ends == 2), "{unique:?}: an IKE SA at one end alone");
        assert_eq!(2 * spis.len(), wanted, "{unique:?}");
        assert!(begun > wanted + 40, "{unique:?}: {begun}: nothing crossed");
    }
}
