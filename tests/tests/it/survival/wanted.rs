//! What is wanted up comes back: after hard limits, suspends, refusals, changes of address, and whatever else ends an
//! SA. docs/lifecycle.md has the rule.

use std::collections::BTreeSet;
use std::time::Duration;

use ike_proto::config::{Action, AddressSpec, Retransmission};
use ike_proto::dataplane::PolicyAction;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Event, Failure, Now};
use ike_tests::network::Fate;
use ike_tests::plane::Plane;
use ike_tests::setup::{address, shared_key};
use ike_tests::{A, B, Pair, Setup, World, cheap};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The longest back-off, and a little.
const BACK_OFF: Duration = Duration::from_secs(75 + 10);

/// A wants "net" for ever, and looks after its peer.
fn wanting(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.connection.keyingtries = 0;
    setup.a.connection.dpd_delay = 30 * SECOND;
    setup.a.net().start_action = Action::Start;
    setup.a.net().close_action = Action::Start;
    setup.a.net().dpd_action = Action::Start;
    setup
}

/// Tells A by its configuration that "net" is wanted.
fn want(pair: &mut Pair) {
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::Want { connection, child });
}

/// What gives A limits of so many seconds, soft and hard.
type Limits = fn(&mut Setup, u32, u32);

/// True if "net" is up at both ends, and exactly once.
fn is_up(world: &World) -> bool {
    world.hosts.iter().all(|host| host.children_up().len() == 1)
}

/// Waits until "net" is up at both ends; how long that took.
#[track_caller]
fn comes_up(pair: &mut Pair, limit: Duration) -> Duration {
    let begun = pair.now();
    let up = pair.run_until(limit, is_up);
    assert!(up, "not up within {limit:?}\n{}", pair.story());
    assert_eq!(pair.a().endpoint.neglected(), [], "{}", pair.story());
    pair.now() - begun
}

/// Gives A's IKE SA and child limits of so many seconds, soft and hard.
fn limits(setup: &mut Setup, soft: u32, hard: u32) {
    setup.a.connection.rekey_time = soft * SECOND;
    setup.a.connection.rand_time = Duration::ZERO;
    setup.a.connection.over_time = (hard - soft) * SECOND;
    child_limits(setup, soft, hard);
}

fn child_limits(setup: &mut Setup, soft: u32, hard: u32) {
    setup.a.net().rekey_time = soft * SECOND;
    setup.a.net().life_time = hard * SECOND;
    setup.a.net().rand_time = Duration::ZERO;
}

/// True if A drops, or protects, what is between the networks.
fn keeps_traffic_in(world: &World) -> bool {
    world.hosts[A].plane.table().policies().any(|policy| {
        matches!(policy.action, PolicyAction::Protect { .. } | PolicyAction::Shunt { .. })
    })
}

/// Fault: in `on_life_over` and `on_child_life_over`, leave the grace out: then SAs end that could be rekeyed.
#[test]
fn after_a_suspend_the_soft_limits_run_first() {
    for (seed, asleep) in [(1, 22), (2, 300)] {
        let mut setup = wanting(seed);
        limits(&mut setup, 15, 19);
        let mut pair = setup.build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        pair.sleep_through(A, asleep * SECOND);
        pair.run_for(3 * SECOND);
        assert_eq!(pair.a().child_downs(), [], "{}", pair.story());
        assert_eq!(pair.a().ike_downs(), [], "{}", pair.story());
        comes_up(&mut pair, 10 * SECOND);
        assert!(!pair.a().child_rekeys().is_empty() && !pair.a().ike_rekeys().is_empty());
    }
}

/// The peer has restarted meanwhile and knows nothing of the SAs: they are begun anew before the last request to it has
/// gone through the whole schedule, be it the IKE SA that is over or only its child.
///
/// Fault: in `grace`, leave `SILENT_GRACE` out; in `on_child_life_over`, end the child alone; in `expire`, push no `Ended`:
/// then everything waits for the answer to the Delete.
#[test]
fn after_a_suspend_with_a_peer_that_has_restarted() {
    for (seed, limit) in [(4, limits as Limits), (5, child_limits as Limits)] {
        let mut setup = wanting(seed);
        limit(&mut setup, 15, 19);
        let mut pair = setup.build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        pair.hosts[B].plane = Plane::new();
        pair.restart(B, cheap::provider());
        pair.sleep_through(A, 22 * SECOND);
        comes_up(&mut pair, 10 * SECOND);
        goes_on(&mut pair);
    }
}

/// The peer has been heard since the resume, and its answers to rekeys are lost for a while: the rekey of the IKE SA has
/// the whole schedule of retransmissions, and nothing is begun anew.
///
/// Fault: in `grace`, take `SILENT_GRACE` for every peer.
#[test]
fn after_a_suspend_a_peer_that_was_heard_is_waited_for() {
    for seed in 0..5 {
        let mut setup = wanting(seed);
        limits(&mut setup, 30, 34);
        // The request that is on its way again and again when A resumes.
        setup.b.connection.dpd_delay = 39 * SECOND;
        let mut pair = setup.build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        pair.sleep_through(A, 40 * SECOND);
        let late = pair.now() + 8 * SECOND;
        pair.net.tap(move |packet| {
            let answer = packet.from == Some(B) && packet.is(ExchangeType::CREATE_CHILD_SA, true);
            if answer && packet.sent < late { Fate::Drop } else { Fate::Pass }
        });
        pair.run_for(20 * SECOND);
        assert_eq!(pair.a().child_downs(), [], "{}", pair.story());
        assert_eq!(pair.a().ike_downs(), [], "{}", pair.story());
        assert!(!pair.a().child_rekeys().is_empty() && !pair.a().ike_rekeys().is_empty());
    }
}

/// Rekeying goes on, of one IKE SA or of one and its successor.
#[track_caller]
fn goes_on(pair: &mut Pair) {
    pair.run_for(200 * SECOND);
    assert!(pair.run_until(5 * SECOND, is_up), "{}", pair.story());
    assert!(pair.a().ikes().len() <= 2, "{}", pair.story());
}

/// The peer is there, and the first requests after the suspend are lost: what is begun anew leaves one of each.
#[test]
fn after_a_suspend_the_network_comes_late() {
    for seed in 6..16 {
        let mut setup = wanting(seed);
        limits(&mut setup, 15, 19);
        let mut pair = setup.build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        pair.sleep_through(A, 22 * SECOND);
        let late = pair.now() + u32::try_from(seed - 5).unwrap_or(1) * SECOND;
        pair.net.tap(move |packet| if packet.sent < late { Fate::Drop } else { Fate::Pass });
        pair.run_until(15 * SECOND, |w| w.now() >= late);
        comes_up(&mut pair, 20 * SECOND);
        goes_on(&mut pair);
    }
}

/// Rekeying is off, or the peer does not do it: at its hard limit the child is made anew before the old one is deleted,
/// and nothing leaves in clear meanwhile.
///
/// Fault: in `expire_child`, leave `anew` out. Then the new child waits for the answer to the Delete.
#[test]
fn a_child_at_its_hard_limit_is_made_anew() {
    let mut setup = wanting(5);
    child_limits(&mut setup, 0, 20);
    let mut pair = setup.build();
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    for _ in 0..5 {
        let old = pair.child_id(A);
        let replaced = pair.run_until(25 * SECOND, |w| {
            assert!(keeps_traffic_in(w), "{}", w.story());
            assert!(!w.hosts[A].children_up().is_empty(), "{}", w.story());
            is_up(w) && w.hosts[A].child().id != old
        });
        assert!(replaced, "{}", pair.story());
    }
    pair.run_for(SECOND);
    pair.assert_agreement();
    assert_eq!(pair.a().ike_downs(), []);
}

/// The peer deletes the child alone. Its traffic is dropped until there is another child.
///
/// Fault: in `drop_child`, remove the policy whatever follows.
#[test]
fn a_child_that_the_peer_deletes_leaves_nothing_in_clear() {
    let mut pair = wanting(24).build();
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    pair.run_for(2 * MINUTE);
    let (old, theirs) = (pair.child_id(A), pair.child_id(B));
    pair.command(B, Command::TerminateChild(theirs));
    let replaced = pair.run_until(10 * SECOND, |w| {
        assert!(keeps_traffic_in(w), "{}", w.story());
        is_up(w) && w.hosts[A].child().id != old
    });
    assert!(replaced, "{}", pair.story());
    assert_eq!(pair.a().child_downs(), [(old, Failure::DeletedByPeer)]);
}

/// An action has brought the child up, and from then on it is wanted: after a reload, or because another shard wants it. It
/// comes back although no action says so.
///
/// Fault: in `on_want`, leave the origin of a wish as it is.
#[test]
fn what_an_action_has_brought_up_can_be_wanted() {
    let mut setup = wanting(28);
    setup.a.net().dpd_action = Action::None;
    setup.both(|side| {
        side.settings.retransmission = Retransmission {
            timeout: Some(SECOND),
            base: 1.0,
            tries: Some(3),
            ..Retransmission::strongswan()
        };
    });
    let mut pair = setup.build();
    pair.initiate(B, Some("net"));
    comes_up(&mut pair, 5 * SECOND);
    let (old, theirs) = (pair.child_id(A), pair.child_id(B));
    pair.command(B, Command::TerminateChild(theirs));
    let again = pair.run_until(10 * SECOND, |w| is_up(w) && w.hosts[A].child().id != old);
    assert!(again, "{}", pair.story());
    want(&mut pair);
    pair.hosts[B].plane = Plane::new();
    pair.restart(B, cheap::provider());
    comes_up(&mut pair, MINUTE);
}

/// The data plane ends it: by volume, or by a clock that was set.
///
/// Fault: in `on_data_plane_event`, enqueue the Delete alone, as it was.
#[test]
fn a_child_that_the_data_plane_ends_is_made_anew() {
    let mut pair = wanting(6).build();
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    let sa = pair.a().child().outbound;
    pair.plane_event(A, ike_proto::dataplane::Event::HardExpire(sa));
    assert!(keeps_traffic_in(&pair));
    pair.run_for(2 * SECOND);
    assert!(is_up(&pair), "{}", pair.story());
    pair.assert_agreement();
}

/// The peer wants other key exchanges for children: rekeys are refused, the child reaches its hard limit, and attempts at
/// another one go on.
///
/// Fault: in `child_failed`, push no `Ended`.
#[test]
fn a_child_that_is_refused_is_asked_for_again() {
    let mut setup = wanting(7);
    child_limits(&mut setup, 40, 60);
    // IKE_AUTH takes no notice of key exchanges.
    setup.a.esp_proposals(&["aes256gcm16-x25519"]);
    setup.b.esp_proposals(&["aes256gcm16"]);
    let mut pair = setup.build();
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    pair.run_for(5 * MINUTE);
    assert!(!is_up(&pair));
    let refused = pair.a().child_failures().len();
    assert!((6..20).contains(&refused), "{refused} times\n{}", pair.story());
    assert!(keeps_traffic_in(&pair), "{}", pair.story());
    assert_eq!(pair.a().endpoint.neglected(), []);
    let ike = pair.ike_id(B);
    pair.command(B, Command::TerminateIke(ike));
    comes_up(&mut pair, BACK_OFF);
}

/// The one reauthentication does not get through, and the hard limit ends the SA while the network is bad.
///
/// Fault: in `after`, take `End::Lifetime` to `Next::Nothing`.
#[test]
fn a_reauthentication_that_was_lost_is_made_up_for() {
    for tries in [0, 1] {
        let mut setup = wanting(8);
        setup.a.connection.keyingtries = tries;
        setup.a.connection.rekey_time = Duration::ZERO;
        setup.a.connection.reauth_time = 15 * SECOND;
        setup.a.connection.rand_time = Duration::ZERO;
        setup.a.connection.over_time = 4 * SECOND;
        setup.both(|side| {
            side.settings.retransmission = Retransmission {
                timeout: Some(SECOND),
                base: 1.5,
                tries: Some(3),
                ..Retransmission::strongswan()
            };
        });
        let mut pair = setup.build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        let (from, to) = (13 * SECOND, 24 * SECOND);
        pair.net.tap(move |packet| match packet.sent {
            at if at > from && at < to => Fate::Drop,
            _ => Fate::Pass,
        });
        pair.run_for(40 * SECOND);
        let up = pair.run_until(20 * SECOND, |w| !w.hosts[A].children_up().is_empty());
        assert!(up, "keyingtries {tries}\n{}", pair.story());
        assert_eq!(pair.a().endpoint.neglected(), []);
    }
}

/// No packet passes for a while that one attempt to reauthenticate does not fill: the next one follows at once, for the
/// old IKE SA comes nearer to its hard limit.
///
/// Fault: in `attempt_again`, wait for `new.tries` failures.
#[test]
fn a_reauthentication_is_tried_again_at_once_while_the_old_ike_sa_is_up() {
    for seed in 30..38 {
        let mut setup = wanting(seed);
        setup.a.connection.rekey_time = Duration::ZERO;
        setup.a.connection.reauth_time = 15 * SECOND;
        setup.a.connection.rand_time = Duration::ZERO;
        setup.a.connection.over_time = 40 * SECOND;
        setup.a.connection.dpd_delay = 2 * MINUTE;
        setup.both(|side| {
            side.settings.retransmission = Retransmission {
                timeout: Some(SECOND),
                base: 1.0,
                tries: Some(3),
                ..Retransmission::strongswan()
            };
        });
        let mut pair = setup.build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        let dark = 14 * SECOND..40 * SECOND;
        pair.net.tap(move |packet| match dark.contains(&packet.sent) {
            true => Fate::Drop,
            false => Fate::Pass,
        });
        pair.run_for(40 * SECOND);
        let up = pair.run_until(7 * SECOND, |w| {
            let made = |event: &Event| matches!(event, Event::IkeUp { .. }).then_some(());
            w.hosts[A].events(made).len() > 1
        });
        assert!(up, "seed {seed}\n{}", pair.story());
    }
}

/// The lid is closed at home and opened in the office: every try looks its addresses up again, whether the IKE SA was
/// found dead meanwhile or not.
///
/// Fault: in `again_between` or in `start_between`, take the addresses of the last attempt.
#[test]
fn further_tries_are_made_from_where_the_host_is() {
    for mobike in [false, true] {
        for (told, away) in [(false, 400), (true, 400), (false, 100)] {
            let mut setup = wanting(9);
            setup.both(|side| {
                side.connection.mobike = mobike;
                side.connection.local_addrs = vec![AddressSpec::Any(None)];
            });
            setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
            let mut pair = setup.build();
            pair.tell_network(A);
            want(&mut pair);
            comes_up(&mut pair, 5 * SECOND);
            // No network for as long as it takes to find the peer dead, and for less.
            let away = away * SECOND;
            let end = pair.now() + away;
            pair.net.tap(move |packet| if packet.sent < end { Fate::Drop } else { Fate::Pass });
            pair.run_until(away, |w| w.now() >= end);
            pair.set_address(A, address(9));
            let limit = match (told, away < 3 * MINUTE) {
                (true, _) => {
                    pair.tell_network(A);
                    10 * SECOND
                }
                // The rest of DPD, and the first try after it.
                (false, true) => 110 * SECOND,
                (false, false) => 180 * SECOND + BACK_OFF,
            };
            let up = pair.run_until(limit, |w| {
                let there = |up: &ike_proto::ChildStatus| up.inbound.dst == address(9);
                w.hosts[A].children_up().iter().any(there)
            });
            assert!(up, "MOBIKE {mobike}, told {told}, {away:?}\n{}", pair.story());
        }
    }
}

/// Without MOBIKE a change of address leaves the IKE SA behind.
///
/// Fault: in `start_on_network`, leave `leave_stranded` out.
#[test]
fn an_sa_without_mobike_is_replaced_when_its_address_is_gone() {
    let mut setup = wanting(10);
    setup.both(|side| side.connection.local_addrs = vec![AddressSpec::Any(None)]);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.tell_network(A);
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    pair.run_for(MINUTE);
    pair.roam(A, address(9));
    let up = pair.run_until(10 * SECOND, |w| {
        w.hosts[A].children_up().iter().any(|up| up.inbound.dst == address(9))
    });
    assert!(up, "{}", pair.story());
}

/// The old address goes, and each part of the new network (an address, its routes, the default route) is told by itself.
/// The replacement that waits for a way to the peer stays the only one.
///
/// Fault: in `leave_stranded`, leave `alone` out.
#[test]
fn a_network_that_comes_in_parts_replaces_an_ike_sa_once() {
    let mut setup = wanting(13);
    setup.both(|side| side.connection.local_addrs = vec![AddressSpec::Any(None)]);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.tell_network(A);
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    pair.run_for(MINUTE);
    pair.offline.insert(A);
    pair.set_address(A, address(8));
    for _ in 0..3 {
        pair.tell_network(A);
        pair.run_for(4 * SECOND);
    }
    pair.set_address(A, address(9));
    pair.tell_network(A);
    pair.offline.clear();
    for _ in 0..3 {
        pair.tell_network(A);
    }
    pair.run_until(10 * SECOND, |w| {
        w.hosts[A].children_up().iter().any(|up| up.inbound.dst == address(9))
    });
    let begun = pair.net.trace.iter().filter(|p| p.is(ExchangeType::IKE_SA_INIT, false));
    let begun: BTreeSet<_> = begun
        .filter(|p| p.src.ip() == address(9))
        .filter_map(|p| Some(p.header()?.spi_i))
        .collect();
    assert_eq!(begun.len(), 1, "{}", pair.story());
    // The Delete of the old one finds no way, and is given up.
    pair.run_for(200 * SECOND);
    assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
}

/// An attempt under way follows a change of address at once, however many attempts have failed before it.
///
/// Fault: in `start_on_network`, keep attempts from addresses that are gone; in `on_attempt_failed`, call
/// `attempt_again` for them.
#[test]
fn an_attempt_in_flight_follows_a_change_of_address() {
    for away in [MINUTE, 20 * MINUTE] {
        let mut setup = wanting(11);
        setup.a.connection.local_addrs = vec![AddressSpec::Any(None)];
        setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
        let mut pair = setup.build();
        pair.tell_network(A);
        let end = pair.now() + away;
        pair.net.tap(move |packet| if packet.sent < end { Fate::Drop } else { Fate::Pass });
        want(&mut pair);
        // No answer comes, and the next transmission is not due yet.
        pair.run_for(away);
        pair.roam(A, address(9));
        comes_up(&mut pair, 5 * SECOND);
    }
}

/// Offline at the start: what is wanted waits, and is started as soon as there is a network.
///
/// Fault: in `start_on_network`, leave the times as they are.
#[test]
fn a_network_that_comes_ends_the_wait() {
    let mut pair = wanting(12).build();
    pair.offline.insert(A);
    want(&mut pair);
    pair.run_for(10 * MINUTE);
    assert_eq!(pair.a().ikes().len(), 0);
    assert_eq!(pair.a().endpoint.neglected(), [], "{}", pair.story());
    let waits = pair.a().events(|event| match event {
        Event::StartsAgain { after, .. } => Some(*after),
        _ => None,
    });
    let longest = waits.iter().max().copied().unwrap_or_default();
    assert!(longest >= 45 * SECOND && longest <= 75 * SECOND, "{waits:?}");
    assert!(waits.len() < 30, "{waits:?}");
    // The next try is far away when the network comes.
    let far = |w: &World| {
        let now = Now { mono: w.instant(), wall: w.wall() };
        let wait = w.hosts[A].endpoint.starts_in("ab", Some("net"), now);
        wait.is_some_and(|wait| wait > 40 * SECOND)
    };
    assert!(pair.run_until(2 * MINUTE, far), "{waits:?}");
    pair.offline.clear();
    pair.run_for(3 * SECOND);
    pair.tell_network(A);
    comes_up(&mut pair, 5 * SECOND);
}

/// The peer's administrator has the wrong key for a minute. `up` hears of the first failure; attempts go on.
///
/// Fault: in `after`, take `End::Refused` to `Next::Nothing`.
#[test]
fn a_refused_attempt_is_made_again() {
    let mut setup = wanting(13);
    let right = setup.b.config();
    setup.b.settings.secrets = vec![shared_key(2, 3)];
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(30 * SECOND);
    assert!(matches!(pair.a().done(request), Some(Err(Failure::Peer(_)))), "{}", pair.story());
    assert_eq!(pair.a().endpoint.neglected(), []);
    pair.run_for(MINUTE);
    pair.reload(B, right);
    comes_up(&mut pair, BACK_OFF);
}

/// A peer that is not there yet is tried until it is; the command hears of the first failure.
///
/// Fault: in `on_attempt_failed`, keep the requests for the next attempt.
#[test]
fn an_attempt_without_an_answer_is_made_again_and_reported() {
    let mut pair = wanting(14).build();
    pair.net.tap(|packet| if packet.sent < 1000 * SECOND { Fate::Drop } else { Fate::Pass });
    let request = pair.initiate(A, Some("net"));
    pair.run_for(170 * SECOND);
    assert_eq!(pair.a().done(request), Some(Err(Failure::Timeout)));
    let left = 1000 * SECOND - pair.now();
    pair.run_for(left);
    comes_up(&mut pair, BACK_OFF);
}

/// With `keyingtries = 1` it is given up, as in charon, and that is told.
#[test]
fn with_one_try_a_failure_is_the_end() {
    let mut setup = wanting(15);
    setup.a.connection.keyingtries = 1;
    setup.b.settings.secrets = vec![shared_key(2, 3)];
    let mut pair = setup.build();
    pair.initiate(A, Some("net"));
    pair.run_for(10 * MINUTE);
    let given_up = pair.a().events(|event| matches!(event, Event::GivenUp { .. }).then_some(()));
    assert_eq!(given_up.len(), 1, "{}", pair.story());
    assert_eq!(pair.a().endpoint.wanted(), []);
    assert_eq!(pair.a().ike_downs().len(), 1);
}

/// What an operator takes down stays down, whatever is under way.
///
/// Fault: in `on_terminate`, leave `unwant_of` out.
#[test]
fn what_is_taken_down_stays_down() {
    for by_child in [false, true] {
        let mut pair = wanting(16).build();
        want(&mut pair);
        comes_up(&mut pair, 5 * SECOND);
        let command = match by_child {
            false => Command::TerminateIke(pair.ike_id(A)),
            true => Command::TerminateChild(pair.child_id(A)),
        };
        pair.command(A, command);
        pair.run_for(10 * MINUTE);
        assert!(pair.a().children().is_empty(), "{}", pair.story());
        assert_eq!(pair.a().endpoint.wanted(), []);
        assert!(!keeps_traffic_in(&pair));
    }
    // While it waits for the next attempt.
    let mut pair = wanting(17).build();
    pair.offline.insert(A);
    want(&mut pair);
    pair.run_for(MINUTE);
    let request = pair.command(A, Command::Unwant { connection: "ab".to_owned(), child: None });
    assert_eq!(pair.a().done(request), Some(Ok(())));
    pair.offline.clear();
    pair.tell_network(A);
    pair.run_for(10 * MINUTE);
    assert_eq!(pair.a().ikes().len(), 0);
    assert_eq!(pair.a().wake(), None, "a timer is left");
}

/// The peer takes it down: `close_action = start` brings it back, at once, and not again and again at once.
///
/// Fault: in `start_again`, count from `now.mono` whenever it was begun.
#[test]
fn a_peer_that_takes_it_down_is_not_fought() {
    let mut pair = wanting(18).build();
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    pair.run_for(2 * MINUTE);
    let begun = pair.now();
    let mut ups = 0;
    while pair.now() < begun + 5 * MINUTE {
        let up = pair.run_until(5 * MINUTE, is_up);
        if !up {
            break;
        }
        ups += 1;
        let ike = pair.ike_id(B);
        pair.command(B, Command::TerminateIke(ike));
        pair.run_for(SECOND);
    }
    assert!((5..20).contains(&ups), "{ups} times in five minutes");
}

/// A command for a child that is being started by itself waits for that one: a second one would stay for ever. At each
/// stage: before the peer answers, in IKE_AUTH, and on an IKE SA that is there.
///
/// Fault: in `Attempt::add`, leave out `is_joined_by`; in `initiate`, the same of an IKE SA.
#[test]
fn a_command_joins_what_is_under_way() {
    for (seed, passes) in [(19, 0), (20, 1)] {
        let mut pair = wanting(seed).build();
        let (begun, mut left) = (pair.now(), passes);
        pair.net.tap(move |packet| match packet.sent < begun + 10 * SECOND {
            true if packet.from == Some(A) && left == 0 => Fate::Drop,
            true => {
                left -= u32::from(packet.from == Some(A));
                Fate::Pass
            }
            false => Fate::Pass,
        });
        want(&mut pair);
        pair.run_for(3 * SECOND);
        let request = pair.initiate(A, Some("net"));
        pair.run_for(3 * SECOND);
        assert_eq!(pair.a().done(request), None, "{}", pair.story());
        comes_up(&mut pair, 30 * SECOND);
        pair.run_for(MINUTE);
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        assert!(is_up(&pair), "{passes} passed\n{}", pair.story());
    }
    let mut pair = wanting(21).build();
    want(&mut pair);
    comes_up(&mut pair, 5 * SECOND);
    pair.run_for(2 * MINUTE);
    let child = pair.child_id(B);
    pair.command(B, Command::TerminateChild(child));
    let begun = pair.now();
    pair.net.tap(move |packet| {
        let lost = begun + SECOND / 200..begun + 9 * SECOND;
        match packet.from == Some(A) && lost.contains(&packet.sent) {
            true => Fate::Drop,
            false => Fate::Pass,
        }
    });
    pair.run_for(3 * SECOND);
    let request = pair.initiate(A, Some("net"));
    comes_up(&mut pair, 30 * SECOND);
    pair.run_for(MINUTE);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert!(is_up(&pair), "{}", pair.story());
}

/// What `close_action` has brought up is not wanted for that: the configuration of this end does not ask for it.
///
/// Fault: in `Want::is_wish`, say that all are.
#[test]
fn what_an_action_has_brought_up_is_not_wanted_for_ever() {
    let mut setup = Setup::new(22);
    setup.b.connection.keyingtries = 0;
    setup.b.connection.dpd_delay = 30 * SECOND;
    setup.b.net().close_action = Action::Start;
    let mut pair = setup.build();
    pair.initiate(A, Some("net"));
    comes_up(&mut pair, 5 * SECOND);
    let child = pair.child_id(A);
    pair.command(A, Command::TerminateChild(child));
    comes_up(&mut pair, 5 * SECOND);
    pair.offline.insert(A);
    pair.run_for(20 * MINUTE);
    assert_eq!(pair.b().ikes().len(), 0, "{}", pair.story());
    assert_eq!(pair.b().endpoint.wanted(), [], "{}", pair.story());
}

/// A host without MOBIKE has left the address of an IKE SA that nobody wants, so nothing has replaced that one. It is
/// reauthenticated all the same, from the address that the host has now.
///
/// Fault: in `reauthenticate`, call `begin` in any case.
#[test]
fn an_ike_sa_of_a_lost_address_is_reauthenticated_from_another_one() {
    let mut setup = Setup::new(60);
    setup.both(|side| {
        side.connection.mobike = false;
        side.connection.local_addrs = vec![AddressSpec::Any(None)];
        side.connection.dpd_delay = Duration::ZERO;
    });
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.tell_network(A);
    let up = pair.initiate(A, None);
    assert!(pair.run_until(10 * SECOND, |w| w.hosts[A].done(up).is_some()));
    pair.settle();
    pair.roam(A, address(9));
    pair.run_for(SECOND);
    let old = pair.a().ikes()[0].id;
    let request = pair.command(A, Command::Reauthenticate(old));
    assert!(pair.run_until(5 * SECOND, |w| w.hosts[A].done(request).is_some()), "{}", pair.story());
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    let ikes = pair.a().ikes();
    assert!(ikes.iter().any(|ike| ike.path.local.ip() == address(9)), "{}", pair.story());
}
