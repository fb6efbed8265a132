//! Routes of a real kernel, each test in a network namespace of its own.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use ike_test_namespace::{VETH, ip};
use ipsec_types::dataplane::{PolicyId, TrafficSelector};
use routes::address::{self, On};
use routes::{HostWatch, KeptAddresses, Leftovers, Near, NearWatch, RouteOptions, Routes, Via};

ike_test_namespace::harness! {
    VETH => [
        routes_lead_the_way_the_peer_is_reached,
        two_peers_with_one_network,
        what_is_for_the_own_side_of_a_full_tunnel_does_not_leave,
        networks_with_routes_are_watched,
        an_earlier_run_and_others,
        what_an_earlier_run_blocked_waits_for_the_policies_of_this_one,
        what_an_earlier_version_left_is_removed,
        rules_and_routes_that_others_take_away_are_back_within_a_second,
        what_others_take_away_all_the_time_is_put_back_seldom,
        a_look_at_very_many_routes_costs_little,
        a_virtual_ip_that_others_remove_is_set_again,
        the_addresses_of_the_host_are_watched,
        a_family_that_is_off_is_held_until_it_is_on,
    ],
}

/// 192.0.2.1 outside, with a default route, and 10.1.0.1 and fd01::1 inside.
fn host() {
    ip("link set lo up");
    ip("addr add 10.1.0.1/32 dev lo");
    ip("addr add fd01::1/128 dev lo");
    ip("link add out0 type veth peer name far0");
    ip("link set far0 up");
    ip("link set out0 up");
    ip("addr add 192.0.2.1/24 dev out0");
    ip("-6 addr add 2001:db8::1/64 dev out0 nodad");
    ip("route add default via 192.0.2.254");
    ip("-6 route add default via 2001:db8::fe dev out0");
}

fn ts(text: &str) -> Vec<TrafficSelector> {
    vec![text.parse().unwrap()]
}

fn peer(local: &str, remote: &str) -> Via {
    let [local, remote] = [local, remote].map(|text| text.parse::<IpAddr>().unwrap());
    Via::Peer { local, remote }
}

fn start(leftovers: Leftovers) -> Routes {
    Routes::start(RouteOptions::default(), leftovers).unwrap()
}

fn shown() -> Vec<String> {
    let table = ip("route show table 7296") + &ip("-6 route show table 7296");
    table.lines().map(|line| line.trim().to_owned()).collect()
}

/// The one route to `prefix` becomes one that contains `wanted`.
fn becomes(prefix: &str, wanted: &str) {
    let mut last = Vec::new();
    for _ in 0..100 {
        last = shown().into_iter().filter(|line| line.contains(prefix)).collect();
        if last.len() == 1 && last[0].contains(wanted) {
            return;
        }
        sleep(Duration::from_millis(50));
    }
    panic!("no route to {prefix} with {wanted}: {last:?}");
}

fn routes_lead_the_way_the_peer_is_reached() {
    host();
    let routes = start(Leftovers::Remove);
    let far = peer("192.0.2.1", "198.51.100.9");
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), far).unwrap();
    becomes("10.2.0.0/16", "via 192.0.2.254 dev out0 proto 122 src 10.1.0.1");
    let near = peer("192.0.2.1", "192.0.2.2");
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.3.0.0/16"), near).unwrap();
    becomes("10.3.0.0/16", "dev out0 proto 122");
    assert!(!shown().iter().any(|line| line.contains("10.3.0.0/16 via")));
    let six = peer("2001:db8::1", "2001:db8:9::9");
    routes.install(PolicyId(3), &ts("fd01::/64"), &ts("fd02::/64"), six).unwrap();
    becomes("fd02::/64", "via 2001:db8::fe dev out0 proto 122 src fd01::1");
    routes.install(PolicyId(4), &ts("::/0"), &ts("10.4.0.0/16"), Via::Elsewhere).unwrap();
    becomes("10.4.0.0/16", "throw");
    let itself = peer("192.0.2.1", "192.0.2.1");
    routes.install(PolicyId(5), &ts("10.1.0.0/16"), &ts("10.5.0.0/16"), itself).unwrap();
    assert!(!shown().iter().any(|line| line.contains("10.5.0.0")), "the peer is this host");
    // A route of ours to everything is not the way to the peer itself.
    routes.install(PolicyId(6), &ts("10.1.0.0/16"), &ts("0.0.0.0/0"), far).unwrap();
    becomes("default", "via 192.0.2.254");
    ip("route replace default via 192.0.2.253");
    becomes("10.2.0.0/16", "via 192.0.2.253 dev out0");
    becomes("default", "via 192.0.2.253 dev out0");
    ip("addr add 10.1.0.2/32 dev out0");
    ip("addr del 10.1.0.1/32 dev lo");
    becomes("10.2.0.0/16", "src 10.1.0.2");
    assert!(ip("rule").contains("not from all fwmark 0xdc lookup 7296"), "{}", ip("rule"));
    for id in 1..=6 {
        routes.remove(PolicyId(id)).unwrap();
    }
    assert_eq!(shown(), [""; 0]);
    drop(routes);
    assert!(!(ip("rule") + &ip("-6 rule")).contains("7296"));
}

fn two_peers_with_one_network() {
    host();
    ip("route add 203.0.113.0/24 via 192.0.2.77");
    let routes = start(Leftovers::Remove);
    let (one, two) = (peer("192.0.2.1", "198.51.100.9"), peer("192.0.2.1", "203.0.113.9"));
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), one).unwrap();
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), two).unwrap();
    becomes("10.2.0.0/16", "via 192.0.2.77");
    routes.remove(PolicyId(2)).unwrap();
    becomes("10.2.0.0/16", "via 192.0.2.254");
    routes.remove(PolicyId(1)).unwrap();
    assert_eq!(shown(), [""; 0]);
}

/// Where a packet goes that is for `to`; with `from`, one that this host passes on.
fn way(to: &str) -> String {
    let mut command = std::process::Command::new("ip");
    let output = command.args(["route", "get"]).args(to.split(' ')).output().unwrap();
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    String::from_utf8_lossy(text).trim().to_owned()
}

/// True if the answer of [`way`] is that there is none.
fn is_nowhere(way: &str) -> bool {
    // By a route of ours, or by a rule.
    let refused = ["No route to host", "Network is unreachable"];
    refused.iter().any(|why| way == format!("RTNETLINK answers: {why}"))
}

/// A full tunnel's routes take in this host's own side. What is for there does not follow the route to the peer, and
/// not the default route either, whatever comes and goes.
///
/// Fault: in `Table::set_walls`, make no rules: the packet leaves by out0 once lan0 is down.
fn what_is_for_the_own_side_of_a_full_tunnel_does_not_leave() {
    host();
    ip("link add lan0 type veth peer name lanfar");
    ip("link set lanfar up");
    ip("link set lan0 up");
    ip("addr add 10.1.2.1/24 dev lan0");
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0").unwrap();
    std::fs::write("/proc/sys/net/ipv4/conf/out0/rp_filter", "0").unwrap();
    let routes = start(Leftovers::Remove);
    let far = peer("192.0.2.1", "198.51.100.9");
    // Decrypted, as a kernel's ESP has it: it comes by the interface that ESP came by.
    const DECRYPTED: &str = "10.1.2.9 from 10.2.0.9 iif out0";
    assert!(way(DECRYPTED).contains("dev lan0"), "{}", way(DECRYPTED));
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("0.0.0.0/0"), far).unwrap();
    for to in [DECRYPTED, "10.1.2.9", "10.1.77.9"] {
        assert!(is_nowhere(&way(to)), "{to}: {}", way(to));
    }
    assert!(way("10.2.0.9").contains("via 192.0.2.254 dev out0 table 7296"));
    assert!(way("10.1.2.1").contains("dev lo"), "an address of this host is here");
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.1.2.0/24"), Via::Elsewhere).unwrap();
    for to in [DECRYPTED, "10.1.2.9"] {
        assert!(way(to).contains("dev lan0"), "{to}: {}", way(to));
    }
    ip("link set lan0 down");
    for to in [DECRYPTED, "10.1.2.9"] {
        assert!(is_nowhere(&way(to)), "{to}: {}", way(to));
    }
    // IKE and ESP go their way, and so does what is for elsewhere.
    assert!(way("10.1.77.9 mark 220").contains("via 192.0.2.254"));
    assert!(way("10.2.0.9").contains("table 7296"));
    routes.remove(PolicyId(2)).unwrap();
    routes.remove(PolicyId(1)).unwrap();
    assert_eq!(shown(), [""; 0]);
    assert!(!ip("rule").contains("10.1.0.0/16"), "{}", ip("rule"));
    // Between two networks there is nothing to keep in.
    routes.install(PolicyId(3), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), far).unwrap();
    assert_eq!(shown().len(), 1);
    assert!(!ip("rule").contains("10.1.0.0/16"), "{}", ip("rule"));
    routes
        .install(PolicyId(4), &ts("fd01::/64"), &ts("::/0"), peer("2001:db8::1", "2001:db8:9::9"))
        .unwrap();
    assert!(ip("-6 rule").contains("fd01::/64"), "{}", ip("-6 rule"));
    drop(routes);
    assert!(!(ip("rule") + &ip("-6 rule")).contains("proto 122"));
    assert!(!(ip("rule") + &ip("-6 rule")).contains("fd01"), "{}", ip("-6 rule"));
}

/// The networks that have routes are known, and the addresses of the host, and known again when they change.
fn networks_with_routes_are_watched() {
    host();
    let (bell, rung) = std::sync::mpsc::channel();
    let watch = NearWatch::start(7296, move || _ = bell.send(())).unwrap();
    // The way to a network, and "own" for an address of this host.
    let becomes = |wanted: &[(&str, &str)]| {
        let mut found = Vec::new();
        for _ in 0..20 {
            _ = rung.recv_timeout(Duration::from_secs(1));
            let Some(now) = watch.take() else { continue };
            let text = |near: &Near| {
                let way = match (near.own, near.attached) {
                    (true, _) => "own",
                    (false, true) => "link",
                    (false, false) => "router",
                };
                (format!("{}/{}", near.address, near.len), way)
            };
            found = now.iter().map(text).filter(|(net, _)| !net.starts_with("fe80")).collect();
            if found.iter().map(|(net, way)| (net.as_str(), *way)).eq(wanted.iter().copied()) {
                return;
            }
        }
        panic!("{found:?}, not {wanted:?}");
    };
    sleep(Duration::from_millis(300));
    assert!(watch.take().is_none(), "nobody wants to know");
    watch.want(true);
    becomes(&[
        ("10.1.0.1/32", "own"),
        ("192.0.2.0/24", "link"),
        ("192.0.2.1/32", "own"),
        ("2001:db8::/64", "link"),
        ("2001:db8::1/128", "own"),
        ("fd01::1/128", "link"),
        ("fd01::1/128", "own"),
    ]);
    ip("route add 10.9.0.0/16 via 192.0.2.9");
    ip("route add 10.7.0.0/16 via 192.0.2.9 table 7296");
    becomes(&[
        ("10.1.0.1/32", "own"),
        ("10.9.0.0/16", "router"),
        ("192.0.2.0/24", "link"),
        ("192.0.2.1/32", "own"),
        ("2001:db8::/64", "link"),
        ("2001:db8::1/128", "own"),
        ("fd01::1/128", "link"),
        ("fd01::1/128", "own"),
    ]);
    ip("link set out0 down");
    // The kernel keeps IPv4 addresses of a link that is down.
    becomes(&[
        ("10.1.0.1/32", "own"),
        ("192.0.2.1/32", "own"),
        ("fd01::1/128", "link"),
        ("fd01::1/128", "own"),
    ]);
}

fn an_earlier_run_and_others() {
    host();
    ip("route add 10.9.0.0/16 via 192.0.2.9 table 7296");
    let far = peer("192.0.2.1", "198.51.100.9");
    let routes = start(Leftovers::Keep);
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), far).unwrap();
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.3.0.0/16"), far).unwrap();
    drop(routes);
    becomes("10.2.0.0/16", "via 192.0.2.254");
    becomes("10.3.0.0/16", "via 192.0.2.254");
    let rules = ip("rule");
    assert!(rules.contains("lookup 7296"), "{rules}");

    let routes = start(Leftovers::Keep);
    assert_eq!(ip("rule"), rules, "neither twice nor gone");
    routes.install(PolicyId(7), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), far).unwrap();
    becomes("10.3.0.0/16", "via 192.0.2.254");
    routes.forget_leftovers().unwrap();
    becomes("10.2.0.0/16", "via 192.0.2.254");
    assert!(!shown().iter().any(|line| line.contains("10.3.0.0/16")), "{:?}", shown());
    drop(routes);

    drop(start(Leftovers::Remove));
    assert_eq!(shown().len(), 1, "somebody else's stays: {:?}", shown());
    becomes("10.9.0.0/16", "via 192.0.2.9");
    assert!(!ip("rule").contains("7296"));
    // Another table now: the rule of before goes.
    let routes = start(Leftovers::Keep);
    drop(routes);
    let options = RouteOptions { table: 300, priority: 300, mark: 9 };
    drop(Routes::start(options, Leftovers::Keep).unwrap());
    let rules = ip("rule");
    assert!(!rules.contains("lookup 7296") && rules.contains("lookup 300"), "{rules}");
}

/// A run that was restarted: what the one before has blocked stays until this one has the same route, or for a while.
/// Without a stop all stays at the end.
///
/// Fault: in `Table::open`, forget what is left in either case, or in `serve`, never.
fn what_an_earlier_run_blocked_waits_for_the_policies_of_this_one() {
    host();
    let routes = start(Leftovers::Settle);
    let none: [TrafficSelector; 0] = [];
    assert_eq!(routes.blocked(), none);
    for (id, prefix) in [(1, "10.2.0.0/16"), (2, "10.3.0.0/16")] {
        routes.install(PolicyId(id), &ts("10.1.0.0/16"), &ts(prefix), Via::Unreachable).unwrap();
    }
    drop(routes);
    let routes = start(Leftovers::Settle);
    assert_eq!(routes.blocked(), ["10.2.0.0/16", "10.3.0.0/16"].map(|text| text.parse().unwrap()));
    routes.install(PolicyId(7), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), Via::Unreachable).unwrap();
    assert_eq!(shown().len(), 2);
    let end = std::time::Instant::now() + routes::SETTLE + Duration::from_secs(5);
    while shown().len() > 1 && std::time::Instant::now() < end {
        sleep(Duration::from_millis(100));
    }
    assert_eq!(shown().len(), 1, "{:?}", shown());
    becomes("10.2.0.0/16", "unreachable");
    routes.flush().unwrap();
    routes.at_the_end(Leftovers::Remove).unwrap();
    drop(routes);
    assert_eq!(shown(), [""; 0]);
    assert!(!ip("rule").contains("7296"));
    // A start that failed leaves nothing, where there was nothing.
    drop(start(Leftovers::Settle));
    assert!(!ip("rule").contains("7296"));
}

/// It had charon's table, and charon's routes may be there as well. What it has blocked stays blocked, until the policies of
/// this run are there.
///
/// Fault: in `Table::replace_others`, leave `forget`, `remove_other_rules` or `take_over` out.
fn what_an_earlier_version_left_is_removed() {
    host();
    let earlier = RouteOptions { table: 220, priority: 220, ..RouteOptions::default() };
    let routes = Routes::start(earlier, Leftovers::Keep).unwrap();
    let far = peer("192.0.2.1", "198.51.100.9");
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("0.0.0.0/0"), far).unwrap();
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), Via::Unreachable).unwrap();
    drop(routes);
    ip("route add 10.9.0.0/16 via 192.0.2.9 table 220");
    ip("rule add lookup 220 pref 220");
    let left = || ip("route show table 220").lines().count();
    assert_eq!(left(), 4);
    let routes = start(Leftovers::Remove);
    assert_eq!(left(), 1, "charon's: {}", ip("route show table 220"));
    let rules = ip("rule");
    assert!(
        rules.contains("fwmark 0xdc lookup 7296") && !rules.contains("fwmark 0xdc lookup 220"),
        "{rules}"
    );
    assert!(rules.contains("from all lookup 220") && !rules.contains("to 10.1.0.0/16"), "{rules}");
    drop(routes);
    ip("rule del lookup 220 pref 220");
    // It was killed: only the block is left, and the way of what the kernel protects.
    let routes = Routes::start(earlier, Leftovers::Keep).unwrap();
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("0.0.0.0/0"), Via::Unreachable).unwrap();
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), far).unwrap();
    routes.install(PolicyId(3), &ts("fd01::/64"), &ts("fd02::/64"), Via::BlackHole).unwrap();
    drop(routes);
    let routes = start(Leftovers::Settle);
    assert_eq!(left(), 1, "charon's: {}", ip("route show table 220"));
    assert!(!ip("rule").contains("fwmark 0xdc lookup 220"), "{}", ip("rule"));
    let blocked = ["0.0.0.0/0", "10.1.0.0/16", "fd02::/64"];
    assert_eq!(routes.blocked(), blocked.map(|text| text.parse().unwrap()));
    becomes("10.2.0.0/16", "via 192.0.2.254 dev out0 proto 122 src 10.1.0.1 onlink");
    becomes("default", "unreachable");
    becomes("fd02::/64", "blackhole");
    routes.forget_leftovers().unwrap();
    assert_eq!(shown(), [""; 0]);
}

/// What `look` tells, once it is as wanted, or after a second.
fn within_a_second(look: impl Fn() -> String, wanted: impl Fn(&str) -> bool) -> String {
    let begun = std::time::Instant::now();
    loop {
        let seen = look();
        if wanted(&seen) || begun.elapsed() > Duration::from_secs(1) {
            return seen;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Another program removes rules, flushes the table, or puts its own route in the place of one. All is back within a
/// second, in the order of before, and what others have put there stays.
///
/// Fault: in `news`, leave `Ipv4Rule` and `Ipv6Rule` out; or routes of `table`, as before.
fn rules_and_routes_that_others_take_away_are_back_within_a_second() {
    host();
    ip("route add 10.9.0.0/16 via 192.0.2.9 table 7296");
    ip("rule add lookup 7296 pref 219 proto 3");
    let routes = start(Leftovers::Remove);
    let far = peer("192.0.2.1", "198.51.100.9");
    let six = peer("2001:db8::1", "2001:db8:9::9");
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &ts("0.0.0.0/0"), far).unwrap();
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("10.2.0.0/16"), Via::Unreachable).unwrap();
    routes.install(PolicyId(3), &ts("fd01::/64"), &ts("::/0"), six).unwrap();
    let all = || ip("rule") + &ip("-6 rule") + &shown().join("\n");
    let before = all();
    for wanted in [
        "not from all fwmark 0xdc lookup 7296",
        "to 10.1.0.0/16",
        "to fd01::/64",
        "unreachable 10.2.0.0/16",
    ] {
        assert!(before.contains(wanted), "{before}");
    }
    let ways: [&[&str]; 8] = [
        &["rule del not fwmark 220 lookup 7296 pref 219"],
        &["-6 rule del pref 219"],
        &["rule del to 10.1.0.0/16 lookup main"],
        &["rule del to 10.1.0.0/16 unreachable", "rule del not fwmark 220 lookup 7296"],
        &["route flush table 7296 proto 122", "-6 route flush table 7296"],
        &["route del unreachable 10.2.0.0/16 table 7296"],
        &["route replace default dev lo table 7296"],
        &["-6 route replace ::/0 dev lo table 7296 metric 1024"],
    ];
    for way in ways {
        way.iter().for_each(|command| _ = ip(command));
        assert_ne!(all(), before, "{way:?}");
        let after = within_a_second(all, |now| now == before);
        assert_eq!(after, before, "{way:?}");
    }
    assert_eq!(routes::put_back(), 12, "the rules of a family are one, and so is each route");
    // What nobody wants is not set again.
    drop(routes);
    assert_eq!(shown().len(), 1, "{:?}", shown());
    let rules = ip("rule") + &ip("-6 rule");
    assert!(
        rules.contains("from all lookup 7296 proto boot") && !rules.contains("proto 122"),
        "{rules}"
    );
}

/// A program that removes a rule whenever it sees it does not keep this one busy.
///
/// Fault: in `Mended::may_put_back`, answer true.
fn what_others_take_away_all_the_time_is_put_back_seldom() {
    host();
    let routes = start(Leftovers::Remove);
    let there = || ip("rule");
    let taken = |turn: u32| {
        let rules = within_a_second(there, |rules| rules.contains("lookup 7296"));
        if rules.contains("lookup 7296") {
            ip("rule del not fwmark 220 lookup 7296 pref 219");
        }
        (turn, rules.contains("lookup 7296"))
    };
    for turn in 0..6 {
        assert_eq!(taken(turn), (turn, true));
    }
    assert_eq!(taken(6), (6, false), "not at once any more");
    assert_eq!(routes::put_back(), 5);
    for _ in 0..12 {
        if taken(7).1 {
            assert_eq!(routes::put_back(), 6);
            drop(routes);
            return;
        }
    }
    panic!("not put back any more: {}", ip("rule"));
}

/// Of all routes, by the thread that sees to them. There is a look each minute, and `IKE_MANY_ROUTES` is another number: a
/// look at 10,000 takes at most 1 % of a minute.
///
/// Fault: in `Table::mend`, ask `Table::in_kernel` for each step; in `Table::wanted`, ask the kernel for the addresses of this
/// host for each route.
fn a_look_at_very_many_routes_costs_little() {
    host();
    let text = std::env::var("IKE_MANY_ROUTES").unwrap_or_else(|_| "500".into());
    let count: u32 = text.parse().unwrap();
    let routes = start(Leftovers::Remove);
    let far = peer("192.0.2.1", "198.51.100.9");
    for n in 0..count {
        let one = std::net::Ipv4Addr::from(0x0a80_0000 + n);
        let to = ts(&format!("{one}/32"));
        routes.install(PolicyId(u64::from(n)), &ts("10.1.0.0/16"), &to, far).unwrap();
    }
    let spent = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let read = |task: &std::fs::DirEntry, file: &str| {
            std::fs::read_to_string(task.path().join(file)).unwrap_or_default()
        };
        let mut of_routes = tasks.filter(|task| read(task, "comm").trim() == "ike-routes");
        let all = read(&of_routes.next().unwrap(), "schedstat");
        Duration::from_nanos(all.split(' ').next().unwrap().parse().unwrap())
    };
    // What the kernel told of these routes has been heard, and looked at.
    sleep(Duration::from_secs(1));
    let before = spent();
    ip("rule del pref 219");
    let back = within_a_second(|| ip("rule"), |rules| rules.contains("lookup 7296"));
    assert!(back.contains("lookup 7296"), "{back}");
    sleep(Duration::from_millis(700));
    let took = spent() - before;
    println!("{count} routes: {took:?}");
    // News of the rule that is back may call for a second one.
    assert!(took < 2 * Duration::from_millis(600) * count / 10_000, "{count} routes: {took:?}");
}

/// The addresses of an interface are flushed, as network managers do, or the interface is made anew.
///
/// Fault: in `mend` of `kept.rs`, set nothing again.
fn a_virtual_ip_that_others_remove_is_set_again() {
    host();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kept = KeptAddresses::start().unwrap();
    let [four, six] = ["10.9.0.1", "fd09::1"].map(|text| text.parse().unwrap());
    let add = |address: IpAddr| {
        let added =
            runtime.block_on(address::add(address, On::Holder("192.0.2.1".parse().unwrap())));
        let added = added.unwrap();
        kept.keep(added.clone());
        added
    };
    let [first, second] = [four, six].map(add);
    let shown = || ip("addr show dev out0");
    let both = |shown: &str| shown.contains("10.9.0.1/32") && shown.contains("fd09::1/128");
    assert!(both(&shown()), "{}", shown());
    let before = routes::put_back();
    ip("addr flush dev out0");
    let after = within_a_second(shown, both);
    assert!(both(&after), "{after}");
    assert!(!after.contains("192.0.2.1"), "it is somebody else's: {after}");
    ip("addr del 10.9.0.1/32 dev out0");
    assert!(both(&within_a_second(shown, both)), "{}", shown());
    assert_eq!(routes::put_back() - before, 3);
    ip("link del out0");
    ip("link add out0 type veth peer name far1");
    ip("link set out0 up");
    assert!(both(&within_a_second(shown, both)), "{}", shown());
    // What is let go stays away.
    for installed in [first, second] {
        let now = kept.release(installed.address).unwrap();
        runtime.block_on(address::remove(&now)).unwrap();
    }
    sleep(Duration::from_millis(500));
    assert!(!shown().contains("10.9.0.1") && !shown().contains("fd09::1"), "{}", shown());
}

/// Addresses as they come and go, and with the links that they are on. Those of the loopback are sent from like others,
/// and a deprecated one while there is no other.
///
/// Fault: in `HostWatch::addresses`, leave links with `LinkFlags::Loopback` out, or take all of `found`.
fn the_addresses_of_the_host_are_watched() {
    host();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut watch = HostWatch::open(7296).unwrap();
        let parse = |list: &[&str]| -> Vec<IpAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let becomes = async |watch: &mut HostWatch, wanted: &[&str]| {
            let mut now = Vec::new();
            for _ in 0..20 {
                now = watch.addresses().await.unwrap();
                if now == parse(wanted) {
                    return;
                }
                let changed = tokio::time::timeout(Duration::from_secs(5), watch.changed());
                assert!(changed.await.unwrap(), "{now:?}, not {wanted:?}");
            }
            panic!("{now:?}, not {wanted:?}");
        };
        // Neither 127.0.0.1, ::1 nor link-local ones.
        let inner = "10.1.0.1";
        becomes(&mut watch, &["192.0.2.1", "2001:db8::1", inner, "fd01::1"]).await;
        ip("addr add 198.51.100.1/24 dev out0");
        becomes(&mut watch, &["192.0.2.1", "198.51.100.1", "2001:db8::1", inner, "fd01::1"]).await;
        ip("addr del 192.0.2.1/24 dev out0");
        becomes(&mut watch, &["198.51.100.1", "2001:db8::1", inner, "fd01::1"]).await;
        ip("-6 addr change 2001:db8::1/64 dev out0 nodad preferred_lft 0");
        becomes(&mut watch, &["198.51.100.1", inner, "fd01::1"]).await;
        ip("-6 addr del fd01::1/128 dev lo");
        becomes(&mut watch, &["198.51.100.1", "2001:db8::1", inner]).await;
        // The far end of the link goes down: there is no carrier.
        ip("link set far0 down");
        becomes(&mut watch, &[inner]).await;
    });
}

/// A tunnel of both families on a host where IPv6 is disabled, and then enabled.
///
/// Fault: in `Table::add_route`, make `is_off` an error as others; in `Table::hold`, set no route; in
/// `Table::delete`, ask for no other routes.
fn a_family_that_is_off_is_held_until_it_is_on() {
    let disabled = |on: &str| {
        for of in ["all", "default"] {
            let file = format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6");
            std::fs::write(file, on).unwrap();
        }
    };
    ip("link set lo up");
    disabled("1");
    ip("link add out0 type veth peer name far0");
    ip("link set far0 up");
    ip("link set out0 up");
    ip("addr add 192.0.2.1/24 dev out0");
    let index = ip("-o link show out0").split(':').next().unwrap().trim().parse().unwrap();
    let routes = start(Leftovers::Remove);
    let both: Vec<TrafficSelector> = [ts("10.2.0.0/16"), ts("fd02::/64")].concat();
    routes.install(PolicyId(1), &ts("10.1.0.0/16"), &both, Via::Device(index)).unwrap();
    becomes("10.2.0.0/16", "dev out0");
    becomes("fd02::/64", "unreachable");
    disabled("0");
    let carried = within_a_second(|| shown().join("\n"), |all| all.contains("fd02::/64 dev out0"));
    assert!(carried.contains("fd02::/64 dev out0"), "{carried}");
    disabled("1");
    becomes("fd02::/64", "unreachable");
    // A block of the same prefix takes nothing with it.
    routes.install(PolicyId(2), &ts("10.1.0.0/16"), &ts("fd02::/64"), Via::Unreachable).unwrap();
    routes.remove(PolicyId(2)).unwrap();
    becomes("fd02::/64", "unreachable");
    routes.remove(PolicyId(1)).unwrap();
    assert_eq!(shown(), [""; 0]);
}
