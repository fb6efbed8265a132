//! The second line behind the kernel's policies, and packets that this host forwards. No policy is in force here.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code")]

use std::collections::HashSet;
use std::time::{Duration, Instant};

use esp::io::{Changes, Leaving, Verdict, XfrmGuard, missing};
use tun_rs::{AsyncDevice, DeviceBuilder};

use crate::common::{addr, udp};
use crate::device::{inside, socket, with_checksum};
use crate::leaving::{leaves, nft};
use crate::xfrm::{DROP, guard, in_clear, listed, outside, policy, rules};

/// A network behind this host: 10.7.2.0/24 and fd07::/64.
fn lan() -> AsyncDevice {
    let lan = DeviceBuilder::new().name("lan0").ipv4("10.7.2.1", 24, None);
    let lan = lan.build_async().unwrap();
    ike_test_namespace::ip("-6 addr add fd07::1/64 dev lan0 nodad");
    let set = |name: &str, value| std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
    set("ipv4/ip_forward", "1");
    set("ipv6/conf/all/forwarding", "1");
    for device in ["all", "out0", "lan0"] {
        set(&format!("ipv4/conf/{device}/rp_filter"), "0");
    }
    lan
}

async fn forward(
    (lan, outside): (&AsyncDevice, &AsyncDevice),
    from: (&str, u16),
    to: &str,
) -> Option<String> {
    let packet = with_checksum(udp(addr(from.0), addr(to), from.1, 7, 30));
    lan.send(&packet).await.unwrap();
    leaves(outside).await
}

/// How many packets have come to the chains of other programs in `postrouting`.
fn came_to_postrouting() -> u64 {
    let chain = listed(&["chain", "inet", "site", "seen"]);
    let count = chain.split("packets ").nth(1).unwrap().split(' ').next();
    count.unwrap().parse().unwrap()
}

/// Before Linux 5.5 `meta iif` is 0 there, as for packets of this host.
///
/// Faults: in `chains::write`, let OUTER accept what `arrived_by(0)`, or put no `jump(LEAVE_CLEAR)` into NOT_MADE_HERE; in
/// `chains::hooks`, let FORWARDED jump to no NOT_MADE_HERE, or jump to OWN_SOURCE in `after` as well; in BY_DEVICE, drop nothing
/// with the note FORWARDS.
pub(crate) fn who_has_made_a_packet_is_told_before_postrouting() {
    inside(async {
        let (outside, lan) = (outside(), lan());
        let by = (&lan, &outside);
        nft("table inet site {
               chain seen { type filter hook postrouting priority mangle; udp sport 4500 counter meta priority set \"1:10\"; }
             }
             table ip site { chain nat { type nat hook postrouting priority srcnat; ip saddr 10.7.2.9 snat to 10.1.0.1; }; }");
        let guard = guard(Duration::ZERO);
        let device = Some(Verdict { by_device: true, ..DROP.unwrap() });
        guard.change(Changes::from([
            (policy("10.7.0.0/16", "10.2.0.0/16"), DROP),
            (policy("10.1.0.0/16", "10.3.0.0/16"), DROP),
            (policy("10.1.0.0/16", "10.4.0.0/16"), device),
        ]));
        rules(2).await;
        let table = listed(&["table", "inet", "ike-xfrm"]);
        assert!(!table.contains("iif"), "{table}");
        assert!(forward(by, ("10.7.2.8", 4500), "10.9.0.1").await.is_some());
        let before = came_to_postrouting();
        assert!(before > 0, "the test can see them");
        assert_eq!(forward(by, ("10.7.2.8", 4500), "10.2.0.1").await, None);
        assert_eq!(came_to_postrouting(), before, "it is told too late");
        // With a class and without, after its source address has become a protected one.
        for port in [4500, 500] {
            assert_eq!(forward(by, ("10.7.2.9", port), "10.3.0.1").await, None, "{port}");
        }
        assert_eq!(forward(by, ("10.7.2.9", 500), "10.4.0.1").await, None, "its note is no class");
        guard.remove().unwrap();
    });
}

/// Linux takes IPv6 packets with a source address of its own from everywhere.
///
/// Faults: in `chains::write`, put no `jump(LEAVE_CLEAR)` into NOT_MADE_HERE (with a class), or no note FORWARDS (source NAT).
pub(crate) fn a_forwarded_packet_with_an_address_of_this_host_is_not_of_this_host() {
    inside(async {
        let (outside, lan) = (outside(), lan());
        let by = (&lan, &outside);
        nft("table ip6 site {
               chain class { type filter hook postrouting priority mangle; udp sport 4500 meta priority set \"1:10\"; }
               chain nat { type nat hook postrouting priority srcnat; ip6 daddr fd03::/64 snat to fd01::1; }
             }");
        let guard = guard(Duration::ZERO);
        guard.change(Changes::from([
            (policy("::/0", "fd02::/64"), DROP),
            (policy("fd01::/64", "fd03::/64"), DROP),
        ]));
        rules(2).await;
        let own = "2001:db8::1";
        assert!(forward(by, (own, 4500), "fd09::1").await.is_some(), "the host takes it");
        for port in [500, 4500] {
            assert_eq!(forward(by, (own, port), "fd02::1").await, None, "from port {port}");
        }
        assert_eq!(forward(by, (own, 500), "fd03::1").await, None, "translated");
        // One of this host, with a class and without.
        for port in [500, 4500] {
            let made_here = socket(&format!("[{own}]:{port}")).await;
            assert!(in_clear(&outside, &made_here, "fd02::1").await, "from port {port}");
        }
        guard.remove().unwrap();
    });
}

/// The usual packet of an SA costs no look-up of its source address, and another one that may be an SA's two at most.
///
/// Fault: in `chains::write`, leave a rule `noted` or `forwards` out of OWN_SOURCE.
pub(crate) fn the_source_address_of_what_was_noted_is_not_looked_up() {
    inside(async {
        let guard = guard(Duration::ZERO);
        let chain = listed(&["chain", "inet", "ike-xfrm", "own-source"]);
        let rules = chain
            .lines()
            .map(str::trim)
            .filter(|line| line.contains("meta") || line.contains("fib"));
        let rules: Vec<&str> = rules.collect();
        let is = |at: usize, what: &[&str]| what.iter().all(|part| rules[at].contains(part));
        assert_eq!(rules.len(), 5, "{chain}");
        for (at, place) in [(0, "0xa6000000"), (1, "0xa7000000"), (3, "0xa6000000")] {
            assert!(is(at, &[place, "return"]) || is(at, &["return"]), "{at}: {chain}");
        }
        assert!(
            is(2, &["fib saddr type local"]) && is(4, &["fib saddr . oif type local"]),
            "{chain}"
        );
        guard.remove().unwrap();
    });
}

/// A table that another program has made is not removed, and says nothing about the kernel. What the kernel has refused is tried
/// again, and is then told to be there.
///
/// Faults: in `chains::knows`, make the table by `new_table`, or take every error for a kernel that cannot; in `Server::want`, leave
/// `due` as it is, or keep no changes; in `Server::make`, tell no reason, or take none back.
pub(crate) fn a_table_that_was_refused_is_made_later_with_what_was_wanted_meanwhile() {
    inside(async {
        let outside = outside();
        let name = format!("ike-xfrm-probe-{}", std::process::id());
        nft(&format!("table inet {name} {{ chain theirs {{ }}; }}; add table inet ike-probe"));
        let guard = guard(Duration::ZERO);
        assert!(missing().unwrap().contains("File exists"));
        assert!(listed(&["table", "inet", &name]).contains("theirs"));
        guard.change(Changes::from([(policy("10.1.0.0/16", "10.2.0.0/16"), DROP)]));
        nft(&format!("delete table inet {name}"));
        let four = socket("10.1.0.1:4000").await;
        let end = Instant::now() + Duration::from_secs(20);
        while in_clear(&outside, &four, "10.2.0.1").await {
            assert!(Instant::now() < end, "it is not tried again");
        }
        assert_eq!(missing(), None);
        assert!(listed(&["tables"]).contains("ike-probe"));
        guard.remove().unwrap();
    });
}

/// Another run blocks it until it is protected again.
///
/// Faults: in `Content::write_rules`, write no comment, or the name of another set; in `content::blocks`, leave out rules without a
/// set; in `XfrmGuard::left`, look at one of the tables only.
pub(crate) fn what_the_table_of_an_earlier_run_blocks_is_told() {
    inside(async {
        let first = guard(Duration::ZERO);
        let web = Leaving {
            protocol: 6,
            dst_port: (443, 0xffff),
            mark: (0x40, 0xf0),
            ..policy("fd01::/64", "fd02::/63")
        };
        let (site, all) = (policy("10.1.0.0/16", "10.2.0.0/17"), policy("0.0.0.0/0", "0.0.0.0/0"));
        let other = policy("10.1.0.0/16", "10.4.0.0/17");
        let device = Some(Verdict { priority: 2000, passes: false, by_device: true });
        let pass = Some(Verdict { passes: true, ..DROP.unwrap() });
        first.change(Changes::from([
            (site, DROP),
            (other, DROP),
            (web, DROP),
            (all, device),
            (policy("10.1.0.0/16", "10.9.0.0/16"), pass),
        ]));
        rules(4).await;
        drop(first);
        let told: HashSet<_> = XfrmGuard::left().unwrap().into_iter().collect();
        assert_eq!(told, HashSet::from([(site, 1000), (other, 1000), (web, 1000), (all, 2000)]));
        let list = listed(&["chain", "inet", "ike-xfrm", "leave-clear"]);
        assert!(list.contains("comment \"") && list.contains(" drop 1000 ipv4 16 17 "), "{list}");
        assert!(XfrmGuard::remove_left().unwrap());
        assert!(XfrmGuard::left().unwrap().is_empty());
        // While it was made again.
        nft(
            "table inet ike-xfrm-stage { chain leave-clear { drop comment \"- drop 7 ipv4 0 0 0 0 0 0 0\"; }; }",
        );
        assert_eq!(XfrmGuard::left().unwrap(), [(all, 7)]);
        assert!(XfrmGuard::remove_left().unwrap());
    });
}
