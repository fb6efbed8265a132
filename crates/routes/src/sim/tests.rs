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
/// `Table::remove_other_rules`, keep no rule; in `Served::act`, leave `forget_others` out.
#[test]
fn what_another_table_blocks_stays_blocked_until_this_one_has_it() {
    let (start, options) = (any(), RouteOptions::default());
    let before = RouteOptions { table: 220, priority: 220, ..options };
    let all = ts("0.0.0.0/0");
    for unreadable in [true, false] {
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
        assert_eq!(host.take_away(Hand::Rules(before.priority)), 0);
    }
}
