use std::time::Duration;

use ipsec_types::dataplane::{PolicyId, TrafficSelector};

use super::*;
use crate::Via;

const UPLINK: u32 = 2;
const TUNNEL: u32 = 3;

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn ts(text: &str) -> Vec<TrafficSelector> {
    vec![text.parse().unwrap()]
}

/// A host with a default route, and a device of a tunnel.
fn host() -> SimHost {
    let host = SimHost::new();
    assert_eq!([host.add_link(false), host.add_link(false)], [UPLINK, TUNNEL]);
    host.set_link(UPLINK, true);
    host.set_link(TUNNEL, true);
    host.add_address(UPLINK, ip("192.0.2.1"), 24);
    host.add_route(ip("0.0.0.0"), 0, UPLINK, Some(ip("192.0.2.254")));
    host
}

fn any() -> Instant {
    Instant::now()
}

fn leaves_by(host: &SimHost, mark: u32) -> Option<u32> {
    host.road(None, ip("198.51.100.7").into(), mark).map(|road| road.device)
}

/// Faults: in `Table::mend`, take no steps; in `heard`, take news of rules and routes of the own table for those of this
/// thread.
#[test]
fn what_others_take_away_is_back_within_a_second() {
    let (host, start, options) = (host(), any(), RouteOptions::default());
    let (routes, thread) = Routes::simulated(&host, options, Leftovers::Settle, start).unwrap();
    let all = ts("0.0.0.0/0");
    routes.hold(PolicyId(1), &all, &all, [Via::Device(TUNNEL), Via::Unreachable]).unwrap();
    assert_eq!(leaves_by(&host, 0), Some(TUNNEL));
    assert_eq!(leaves_by(&host, options.mark), Some(UPLINK));
    let hands =
        [Hand::Rules(options.priority), Hand::Table(options.table), Hand::Route(options.table, 0)];
    for (turn, hand) in (1..).zip(hands) {
        let now = start + Duration::from_secs(20 * turn);
        thread.hear(now);
        thread.act_until(now);
        assert!(host.take_away(hand) > 0);
        thread.hear(now);
        thread.act_until(now + Duration::from_secs(1));
        assert_eq!(leaves_by(&host, 0), Some(TUNNEL), "{hand:?}: {}", host.story());
    }
}

/// A road warrior's child is up with a virtual IP, and its block for the host's other addresses stays.
///
/// Faults, each by itself: in `Holders::yields`, return false for what is no `Prohibited` route; in `Holders::fate`, leave
/// `other_source` out.
#[test]
fn packets_have_the_source_of_the_child_that_is_up() {
    let (host, start, options) = (host(), any(), RouteOptions::default());
    host.add_address(UPLINK, ip("10.9.0.1"), 32);
    let (routes, thread) = Routes::simulated(&host, options, Leftovers::Settle, start).unwrap();
    let source = || host.road(None, ip("198.51.100.7").into(), 0).unwrap().source;
    let (own, granted) = (Some(ip("192.0.2.1").into()), Some(ip("10.9.0.1").into()));
    let block = |id| {
        let vias = [Via::Device(TUNNEL), Via::Unreachable];
        routes.hold(PolicyId(id), &ts("192.0.2.1/32"), &ts("0.0.0.0/0"), vias).unwrap();
    };
    block(1);
    assert_eq!(source(), own);
    let child = (ts("10.9.0.1/32"), ts("0.0.0.0/0"));
    routes.install(PolicyId(2), &child.0, &child.1, Via::Device(TUNNEL)).unwrap();
    for id in [1, 3] {
        block(id);
        assert_eq!(source(), granted);
    }
    let later = start + Duration::from_secs(70);
    thread.hear(later);
    thread.act_until(later);
    assert_eq!(source(), granted, "after a look: {}", host.story());
    routes.remove(PolicyId(2)).unwrap();
    assert_eq!(source(), own, "{}", host.story());
}

/// Faults: in `Served::end`, remove all, or put nothing back; in `Table::open`, forget leftovers in any case.
#[test]
fn blocks_outlive_a_process_that_ends_and_go_when_nothing_wants_them() {
    let (host, start, options) = (host(), any(), RouteOptions::default());
    let open = |now| Routes::simulated(&host, options, Leftovers::Settle, now).unwrap();
    let (routes, thread) = open(start);
    let all = ts("0.0.0.0/0");
    routes.hold(PolicyId(1), &all, &all, [Via::Device(TUNNEL), Via::Unreachable]).unwrap();
    // Another program has been at it all the time.
    for _ in 0..7 {
        host.take_away(Hand::Rules(options.priority));
        host.take_away(Hand::Table(options.table));
        thread.hear(start);
        thread.act_until(start + Duration::from_secs(1));
    }
    assert_eq!(leaves_by(&host, 0), Some(UPLINK), "put back more seldom");
    thread.end(start + Duration::from_secs(2));
    host.remove_link(TUNNEL);
    assert_eq!(leaves_by(&host, 0), None, "blocked");
    assert_eq!(leaves_by(&host, options.mark), Some(UPLINK));
    let (routes, thread) = open(start);
    assert_eq!(routes.blocked(), all);
    thread.act_until(start + super::super::SETTLE);
    assert_eq!(leaves_by(&host, 0), Some(UPLINK), "nothing wants it: {}", host.story());
}

/// Faults: in `Table::block`, leave `keeps` alone, or set no route.
#[test]
fn what_is_blocked_at_the_end_alone_stays_blocked() {
    let (host, start, options) = (host(), any(), RouteOptions::default());
    let (routes, thread) = Routes::simulated(&host, options, Leftovers::Settle, start).unwrap();
    let all = ts("0.0.0.0/0");
    routes.install(PolicyId(1), &all, &all, Via::Device(TUNNEL)).unwrap();
    let end = start + super::super::SETTLE + Duration::from_secs(1);
    thread.act_until(end);
    routes.block().unwrap();
    thread.end(end);
    host.remove_link(TUNNEL);
    assert_eq!(leaves_by(&host, 0), None, "blocked: {}", host.story());
}

/// An earlier version had another table, and was killed. What it has blocked can at first not be read, or not be set in this
/// table. Without the block, traffic of a child leaves in clear until that is up.
///
/// Faults, each by itself: in `Table::replace_others`, take an error for no routes; forget the routes that were kept; in
/// `Table::remove_other_rules`, or in `Table::present`, keep no rule; in `Served::act`, leave `forget_others` out.
#[test]
fn what_another_table_blocks_stays_blocked_until_this_one_has_it() {
    let (start, options) = (any(), RouteOptions::default());
    let another = RouteOptions { table: 220, ..options };
    let earlier = [RouteOptions { priority: 220, ..another }, another];
    let all = ts("0.0.0.0/0");
    for (before, unreadable) in
        earlier.into_iter().flat_map(|before| [(before, true), (before, false)])
    {
        let host = host();
        let earlier = Routes::simulated(&host, before, Leftovers::Settle, start).unwrap();
        let held = [Via::Device(TUNNEL), Via::Unreachable];
        earlier.0.hold(PolicyId(1), &all, &all, held).unwrap();
        *earlier.1.lock() = None;
        host.remove_link(TUNNEL);
        assert_eq!(leaves_by(&host, 0), None, "blocked");
        let set = |is_bad: bool| {
            let mut state = host.lock();
            state.unreadable = unreadable && is_bad;
            state.full = (is_bad && !unreadable).then_some(options.table);
        };
        set(true);
        let (_routes, thread) =
            Routes::simulated(&host, options, Leftovers::Settle, start).unwrap();
        // The event has the thread look at rules and routes meanwhile.
        host.add_address(UPLINK, ip("192.0.2.2"), 24);
        thread.hear(start);
        thread.act_until(start + super::super::SETTLE - Duration::from_secs(1));
        assert_eq!(leaves_by(&host, 0), None, "{}", host.story());
        assert_eq!(leaves_by(&host, options.mark), Some(UPLINK));
        if unreadable {
            thread.act_until(start + super::super::SETTLE);
            assert_eq!(leaves_by(&host, 0), None, "{}", host.story());
        }
        set(false);
        thread.act_until(start + super::super::SETTLE + Duration::from_secs(61));
        assert_eq!(leaves_by(&host, 0), Some(UPLINK), "nothing wants it: {}", host.story());
        assert_eq!(host.take_away(Hand::Table(before.table)), 0);
        let rules = led_to(&host, true);
        assert_eq!(rules, [(options.table, options.mark)], "{}", host.story());
    }
}

/// The tables to which the rules of a family lead, and the marks of what they leave alone.
fn led_to(host: &SimHost, ipv4: bool) -> Vec<(u32, u32)> {
    let rules = host.lock().rules(ipv4);
    let rules = rules.iter().map(crate::picture::Rule::of);
    rules.map(|rule| (rule.table, rule.mark)).collect()
}

/// The kernel refuses the rule of IPv6 for a while. Without one, what is for a tunnel of IPv6 leaves in clear.
///
/// Faults, each by itself: in `Table::open`, take each error for a kernel without IPv6; in `Served::open`, look at the regular
/// time alone; in `Table::remove_other_rules`, look at both families in any case; in `Table::mend`, keep no
/// foreign rule.
#[test]
fn a_rule_for_ipv6_that_fails_is_tried_again_and_the_one_of_before_stays_until_then() {
    let (start, options) = (any(), RouteOptions::default());
    let another = RouteOptions { table: 220, ..options };
    let marked = RouteOptions { mark: options.mark + 1, ..options };
    let earlier = [RouteOptions { priority: 220, ..another }, another, marked];
    for (before, leftovers) in earlier
        .into_iter()
        .flat_map(|before| [(before, Leftovers::Settle), (before, Leftovers::Remove)])
    {
        let host = host();
        host.lock().ipv6 = true;
        let earlier = Routes::simulated(&host, before, Leftovers::Settle, start).unwrap();
        *earlier.1.lock() = None;
        host.lock().rules_full = Some(false);
        let (_routes, thread) = Routes::simulated(&host, options, leftovers, start).unwrap();
        let settled = start + super::super::SETTLE + Duration::from_secs(1);
        thread.act_until(settled);
        assert_eq!(
            led_to(&host, false),
            [(before.table, before.mark)],
            "{before:?}, {leftovers:?}"
        );
        host.lock().rules_full = None;
        thread.act_until(settled + Duration::from_secs(1));
        for ipv4 in [true, false] {
            let story = host.story();
            let all = led_to(&host, ipv4);
            assert_eq!(all, [(options.table, options.mark)], "{before:?}, {leftovers:?}: {story}");
        }
    }
}

/// Another program has set a rule a second time, and the kernel takes none at present: those that are there stay.
///
/// Fault: in `Table::mend`, forget the rules that could not be set.
#[test]
fn a_rule_stays_while_the_one_in_its_place_cannot_be_set() {
    let (host, start, options) = (host(), any(), RouteOptions::default());
    let (routes, thread) = Routes::simulated(&host, options, Leftovers::Settle, start).unwrap();
    let all = ts("0.0.0.0/0");
    routes.hold(PolicyId(1), &all, &all, [Via::Device(TUNNEL), Via::Unreachable]).unwrap();
    let count = |host: &SimHost| host.lock().rules(true).len();
    let [rule] = host.lock().rules(true).try_into().unwrap();
    host.lock().add_rule(rule, true).unwrap();
    host.lock().rules_full = Some(true);
    thread.act_until(start + Duration::from_secs(70));
    assert_eq!((count(&host), leaves_by(&host, 0)), (2, Some(TUNNEL)), "{}", host.story());
    host.lock().rules_full = None;
    thread.act_until(start + Duration::from_secs(72));
    assert_eq!((count(&host), leaves_by(&host, 0)), (1, Some(TUNNEL)), "{}", host.story());
}

/// What an earlier run has blocked in another table stays so while the block of this run cannot be set.
///
/// Fault: in `Table::waits`, let none wait.
#[test]
fn a_block_of_another_table_stays_until_the_own_one_is_set() {
    let (host, start, options) = (host(), any(), RouteOptions::default());
    let before = RouteOptions { table: 220, priority: 220, ..options };
    let all = ts("0.0.0.0/0");
    let earlier = Routes::simulated(&host, before, Leftovers::Settle, start).unwrap();
    earlier.0.install(PolicyId(1), &all, &all, Via::Unreachable).unwrap();
    *earlier.1.lock() = None;
    host.lock().full = Some(options.table);
    let (routes, thread) = Routes::simulated(&host, options, Leftovers::Settle, start).unwrap();
    assert!(routes.install(PolicyId(1), &all, &all, Via::Unreachable).is_err());
    let settled = start + super::super::SETTLE + Duration::from_secs(1);
    thread.act_until(settled);
    assert_eq!(leaves_by(&host, 0), None, "{}", host.story());
    host.lock().full = None;
    thread.act_until(settled + Duration::from_secs(60));
    assert_eq!(leaves_by(&host, 0), None, "{}", host.story());
    assert_eq!(host.take_away(Hand::Table(before.table)), 0, "{}", host.story());
    assert_eq!(host.take_away(Hand::Rules(before.priority)), 0);
}
