//! The second line behind the kernel's policies. No policy is in force here, as after another program has removed all.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esp::io::{Changes, Leaving, Verdict, XfrmGuard, XfrmGuardOptions, missing, put_back};
use ike_test_namespace::ip;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};
use tun_rs::{AsyncDevice, DeviceBuilder};

use crate::common::{addr, packet, udp};
use crate::device::{inside, raw, send, socket, with_checksum};
use crate::leaving::{leaves, nft};

pub(crate) const DROP: Option<Verdict> =
    Some(Verdict { priority: 1000, passes: false, by_device: false });

/// 192.0.2.1 outside, 10.1.0.1 and fd01::1 inside, and all routes lead outside.
pub(crate) fn outside() -> AsyncDevice {
    ip("link set lo up");
    ip("addr add 10.1.0.1/32 dev lo");
    ip("addr add fd01::1/128 dev lo");
    let outside = DeviceBuilder::new().name("out0").ipv4("192.0.2.1", 24, None);
    let outside = outside.build_async().unwrap();
    ip("-6 addr add 2001:db8::1/64 dev out0 nodad");
    ip("route add default dev out0");
    ip("-6 route add default dev out0");
    outside
}

pub(crate) fn options(settle: Duration) -> XfrmGuardOptions {
    XfrmGuardOptions { mark: 220, ports: vec![500, 4500], settle, ownerless: false }
}

pub(crate) fn guard(settle: Duration) -> XfrmGuard {
    XfrmGuard::start(options(settle)).unwrap()
}

/// As on a kernel before Linux 6.9.
pub(crate) fn ownerless() -> XfrmGuard {
    XfrmGuard::start(XfrmGuardOptions { ownerless: true, ..options(Duration::ZERO) }).unwrap()
}

pub(crate) fn policy(src: &str, dst: &str) -> Leaving {
    let prefix = |text: &str| {
        let (address, length) = text.split_once('/').unwrap();
        (address.parse().unwrap(), length.parse().unwrap())
    };
    Leaving {
        src: prefix(src),
        dst: prefix(dst),
        protocol: 0,
        src_port: (0, 0),
        dst_port: (0, 0),
        interface: 0,
        mark: (0, 0),
    }
}

/// What `nft` lists of the table.
pub(crate) fn listed(what: &[&str]) -> String {
    let nft = Command::new("nft").args(["list"]).args(what).output().unwrap();
    String::from_utf8(nft.stdout).unwrap()
}

/// The rules of policies that there are. The other thread makes them in its own time.
pub(crate) async fn rules(count: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let chain = listed(&["chain", "inet", "ike-xfrm", "leave-clear"]);
        let there =
            chain.lines().filter(|line| line.contains("meta nfproto") || line.contains('@'));
        if there.count() == count {
            return;
        }
        assert!(Instant::now() < end, "not {count} rules: {chain}");
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn in_clear(outside: &AsyncDevice, from: &UdpSocket, to: &str) -> bool {
    // What the kernel drops there may be an error of the sender, too.
    _ = send(from, to).await;
    leaves(outside).await.is_some()
}

fn set_class(socket: &UdpSocket, class: u32) {
    socket2::SockRef::from(socket).set_priority(class).unwrap();
}

/// Faults: in `chains::hooks`, leave the jump to LEAVE out of both hooks, or check no packets with an octet that another program
/// has chosen; in `chains::write`, let packets pass to a policy of a device without a class, or with any priority but 0; in
/// `Shape::rule`, leave the interface or the protocol out, or take policies of a device for others; in `Shape::fields`, leave the
/// ports or the mark out; in `Content::write_rules`, put new rules at the end.
pub(crate) fn what_policies_protect_does_not_leave_without_them() {
    inside(async {
        let outside = outside();
        let clear = async |from: &UdpSocket, to: &str| in_clear(&outside, from, to).await;
        let guard = guard(Duration::ZERO);
        let (four, six) = (socket("10.1.0.1:4000").await, socket("[fd01::1]:4000").await);
        assert!(clear(&four, "10.2.0.1").await, "without a policy");
        let change = |list: &[(Leaving, Option<Verdict>)]| {
            guard.change(list.iter().copied().collect::<Changes>());
        };
        let net = policy("10.1.0.0/16", "10.2.0.0/17");
        change(&[(net, DROP), (policy("fd01::/64", "fd02::/63"), DROP)]);
        rules(2).await;
        assert!(!clear(&four, "10.2.0.1").await);
        assert!(!clear(&four, "10.2.127.255").await, "to the last address");
        assert!(clear(&four, "10.2.128.0").await, "and no further");
        assert!(!clear(&six, "fd02:0:0:1::1").await);
        assert!(clear(&six, "fd02:0:0:2::1").await);
        // The daemon's own, and IKE of this host.
        let marked = socket("10.1.0.1:4001").await;
        socket2::SockRef::from(&marked).set_mark(220).unwrap();
        assert!(clear(&marked, "10.2.0.1").await);
        assert!(clear(&socket("10.1.0.1:500").await, "10.2.0.1").await);
        // An exemption inside, with precedence and without.
        let dmz = policy("10.1.0.0/16", "10.2.9.0/24");
        let pass = |priority| Some(Verdict { priority, passes: true, by_device: false });
        change(&[(dmz, pass(900))]);
        rules(3).await;
        assert!(clear(&four, "10.2.9.1").await);
        assert!(!clear(&four, "10.2.8.1").await);
        change(&[(dmz, pass(1100))]);
        change(&[(policy("10.1.0.0/16", "10.9.0.0/24"), pass(1101))]);
        rules(4).await;
        assert!(!clear(&four, "10.2.9.1").await, "the net has precedence");
        // For a port, a mark, an interface.
        let from_80 = Leaving {
            protocol: 17,
            src_port: (80, 0xffff),
            ..policy("10.1.0.0/16", "10.5.0.0/16")
        };
        let web = socket("10.1.0.1:80").await;
        let marks = Leaving { mark: (0x40, 0xf0), ..policy("10.1.0.0/16", "10.6.0.0/16") };
        let other = Leaving { interface: 4096, ..policy("10.1.0.0/16", "10.7.0.0/16") };
        let tcp = Leaving { protocol: 6, ..policy("10.1.0.0/16", "10.8.0.0/16") };
        change(&[(from_80, DROP), (marks, DROP), (other, DROP), (tcp, DROP)]);
        rules(8).await;
        assert!(!clear(&web, "10.5.0.1").await);
        assert!(clear(&four, "10.5.0.1").await);
        assert!(clear(&four, "10.6.0.1").await);
        socket2::SockRef::from(&marked).set_mark(0x4f).unwrap();
        assert!(!clear(&marked, "10.6.0.1").await);
        assert!(clear(&four, "10.7.0.1").await, "by another interface");
        assert!(clear(&four, "10.8.0.1").await, "of another protocol");
        // The traffic class that a program has chosen is no note of the table, but for the one that UDP comes again.
        let class = socket("10.1.0.1:4003").await;
        for (major, to, leaves) in [
            (0xa501, "10.3.0.1", true),
            (0xa501, "10.2.0.1", false),
            (0xa601, "10.2.0.1", true),
            (0x8001, "10.2.0.1", false),
            (0x10, "10.2.0.1", false),
        ] {
            set_class(&class, major << 16 | 1);
            assert_eq!(clear(&class, to).await, leaves, "{major:x}, {to}");
        }
        // A device transforms behind the hooks, and a class erases the note that it is to do so.
        let device = Some(Verdict { by_device: true, ..DROP.unwrap() });
        change(&[(policy("10.1.0.0/16", "10.10.0.0/16"), device)]);
        rules(9).await;
        assert!(clear(&class, "10.10.0.1").await);
        assert!(!clear(&four, "10.10.0.1").await);
        // As the TOS of the packet makes one, too.
        set_class(&class, 6);
        assert!(!clear(&class, "10.10.0.1").await, "a priority without a major number is no class");
        // All, and none.
        change(&[(policy("0.0.0.0/0", "0.0.0.0/0"), DROP)]);
        rules(10).await;
        assert!(!clear(&four, "10.3.0.1").await);
        guard.remove().unwrap();
        assert!(clear(&four, "10.2.0.1").await);
        assert!(!listed(&["tables"]).contains("ike"), "nothing is left");
    });
}

/// Fault: in `chains::hooks`, leave the jump to LEAVE out of either hook.
pub(crate) fn what_policies_protect_does_not_leave_with_a_translated_address() {
    inside(async {
        let outside = outside();
        let guard = guard(Duration::ZERO);
        nft("table ip site { chain nat { type nat hook postrouting priority srcnat; ip saddr 10.1.0.1 oif out0 snat to 192.0.2.1
             ip saddr 192.0.2.1 udp sport 4002 snat to 10.1.0.1; }; }");
        guard.change(Changes::from([(policy("10.1.0.0/16", "10.2.0.0/16"), DROP)]));
        rules(1).await;
        let (inner, outer) = (socket("10.1.0.1:4000").await, socket("192.0.2.1:4002").await);
        assert!(in_clear(&outside, &inner, "10.3.0.1").await, "it is translated");
        assert!(!in_clear(&outside, &inner, "10.2.0.1").await, "and what is protected is not");
        assert!(!in_clear(&outside, &outer, "10.2.0.1").await, "translated into what is protected");
    });
}

/// What this host has made for an SA comes to the hooks again, and leaves. A packet of another host does not, also if it has
/// got an address of this host on its way.
///
/// Faults: in `chains::hooks`, jump to OWN_SOURCE or to MADE_HERE in no chain; in `chains::may_be_outer`, leave AH out; in
/// `chains::write`, let UDP with the note not pass.
pub(crate) fn what_an_sa_has_made_leaves_and_nothing_else_with_its_port() {
    inside(async {
        let outside = outside();
        let lan = DeviceBuilder::new().name("lan0").ipv4("10.7.2.1", 24, None);
        let lan = lan.build_async().unwrap();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        for device in ["all", "out0", "lan0"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{device}/rp_filter"), "0").unwrap();
        }
        // Of this host, and by the interface of another one.
        std::fs::write("/proc/sys/net/ipv4/conf/lan0/accept_local", "1").unwrap();
        nft("table ip site {
               chain nat { type nat hook postrouting priority srcnat; ip saddr 10.7.2.9 snat to 10.1.0.1; }
               chain class { type filter hook postrouting priority mangle; udp sport 5000 meta priority set \"a600:1\"
                             udp sport 4500 ip saddr 192.0.2.1 meta priority set \"1:10\"; }
             }");
        let guard = guard(Duration::ZERO);
        guard.change(Changes::from([(policy("10.1.0.0/16", "10.2.0.0/16"), DROP)]));
        rules(1).await;
        let forward = async |source: &str, port: u16, to: &str| {
            let packet = with_checksum(udp(addr(source), addr(to), port, 7, 30));
            lan.send(&packet).await.unwrap();
            leaves(&outside).await
        };
        let translated = Some("10.1.0.1".to_owned());
        assert_eq!(forward("10.7.2.9", 4500, "10.3.0.1").await, translated);
        for port in [1000, 4500, 500] {
            let left = forward("10.7.2.9", port, "10.2.0.1").await;
            assert_eq!(left, None, "from port {port} of another host");
        }
        guard.change(Changes::from([(policy("0.0.0.0/0", "10.2.0.0/16"), DROP)]));
        let end = Instant::now() + Duration::from_secs(10);
        while forward("10.7.2.8", 1000, "10.2.0.1").await.is_some() {
            assert!(Instant::now() < end, "no rule for all sources");
        }
        assert_eq!(forward("10.7.2.8", 4500, "10.2.0.1").await, None, "no address of this host");
        let ike = socket("192.0.2.1:4500").await;
        assert!(in_clear(&outside, &ike, "10.2.0.1").await, "its class erases the note");
        assert_eq!(forward("192.0.2.1", 4500, "10.2.0.1").await, None, "it is not of this host");
        // As of a proxy: the address is not of this host, which sends from it.
        let free = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        free.set_ip_transparent_v4(true).unwrap();
        free.set_nonblocking(true).unwrap();
        free.bind(&"10.66.0.1:500".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        let free = UdpSocket::from_std(free.into()).unwrap();
        assert!(in_clear(&outside, &free, "10.2.0.1").await, "made here, from any address");
        assert_eq!(forward("192.0.2.1", 4501, "10.2.0.1").await, None);
        // ESP in UDP of another program, on a port of its own.
        assert!(forward("192.0.2.1", 5000, "10.2.0.1").await.is_some(), "with the note");
        let ah = async |sent: bool| {
            let mut buffer = [0; 2000];
            while let Ok(Ok(_)) =
                timeout(Duration::from_millis(200), outside.recv(&mut buffer)).await
            {
                if buffer[9] == AH {
                    return sent;
                }
            }
            !sent
        };
        let made = raw(socket2::Domain::IPV4, AH.into());
        made.send_to(&[0; 24], "10.2.0.1:0").await.unwrap();
        assert!(ah(true).await, "AH of this host");
        lan.send(&packet(addr("10.7.2.8"), addr("10.2.0.1"), 0, AH, &[0; 24])).await.unwrap();
        assert!(ah(false).await, "AH of another host");
        guard.remove().unwrap();
    });
}

const AH: u8 = 51;

/// The policies look at the mark that the packet has when its route is looked up, and the second line at the one with which it
/// leaves. docs/security.md says so.
///
/// Fault: in `Hook::place`, call the chains before those that set marks.
pub(crate) fn a_mark_counts_as_it_is_when_the_packet_leaves() {
    inside(async {
        let outside = outside();
        nft("table ip site { chain marks { type filter hook postrouting priority mangle
             udp sport 4001 meta mark set 0x41; udp sport 4002 meta mark set 0; }; }");
        let guard = guard(Duration::ZERO);
        let marked = Leaving { mark: (0x40, 0xf0), ..policy("10.1.0.0/16", "10.2.0.0/16") };
        guard.change(Changes::from([(marked, DROP)]));
        rules(1).await;
        let (gets, loses) = (socket("10.1.0.1:4001").await, socket("10.1.0.1:4002").await);
        socket2::SockRef::from(&loses).set_mark(0x41).unwrap();
        assert!(!in_clear(&outside, &gets, "10.2.0.1").await);
        assert!(in_clear(&outside, &loses, "10.2.0.1").await);
        guard.remove().unwrap();
    });
}

/// Faults: in `Shape::of`, take the address of the destination for its length, so that each policy has a rule of its own; in
/// `Content::remove_empty`, leave the rules.
pub(crate) fn ten_thousand_policies_are_one_rule() {
    inside(async {
        let outside = outside();
        let guard = guard(Duration::ZERO);
        let all: Vec<Leaving> = (0..10_000)
            .map(|n| policy("10.1.0.0/16", &format!("10.{}.{}.0/24", 100 + n / 256, n % 256)))
            .collect();
        let begin = Instant::now();
        guard.change(all.iter().map(|policy| (*policy, DROP)).collect());
        let handed = begin.elapsed();
        rules(1).await;
        eprintln!("10,000 policies: handed over in {handed:?}, listed after {:?}", begin.elapsed());
        let four = socket("10.1.0.1:4000").await;
        // The rule comes with the first of them, and the others follow.
        let end = begin + Duration::from_secs(10);
        for to in ["10.100.0.1", "10.139.15.1"] {
            while in_clear(&outside, &four, to).await {
                assert!(Instant::now() < end, "{to} is not protected");
            }
        }
        assert!(in_clear(&outside, &four, "10.139.16.1").await, "and no further");
        guard.change(all.iter().skip(1).map(|policy| (*policy, None)).collect());
        let end = Instant::now() + Duration::from_secs(10);
        while !in_clear(&outside, &four, "10.100.1.1").await {
            assert!(Instant::now() < end, "policies that are gone go on dropping");
        }
        assert!(!in_clear(&outside, &four, "10.100.0.1").await, "the last one stays");
        guard.change(Changes::from([(all[0], None)]));
        rules(0).await;
        assert!(!listed(&["sets"]).contains("set s"), "no set is left: {}", listed(&["sets"]));
    });
}

/// Between the start of a run and its policies the table of the run before holds.
///
/// Fault: in `XfrmGuard::start`, take no table for left.
pub(crate) fn the_table_of_an_earlier_run_stays_until_this_one_has_its_policies() {
    inside(async {
        let outside = outside();
        let four = socket("10.1.0.1:4000").await;
        let first = guard(Duration::ZERO);
        first.change(Changes::from([(policy("10.1.0.0/16", "10.2.0.0/16"), DROP)]));
        rules(1).await;
        // As by a kernel that keeps the table of a process that has died.
        drop(first);
        sleep(Duration::from_millis(200)).await;
        assert!(listed(&["tables"]).contains("ike-xfrm"), "the table goes with its process");
        let begin = Instant::now();
        let second = guard(Duration::from_secs(3));
        second.change(Changes::from([(policy("10.1.0.0/16", "10.3.0.0/16"), DROP)]));
        assert!(!in_clear(&outside, &four, "10.2.0.1").await);
        assert!(begin.elapsed() < Duration::from_secs(2), "too slow to tell");
        let end = begin + Duration::from_secs(10);
        while in_clear(&outside, &four, "10.3.0.1").await {
            assert!(Instant::now() < end, "the new table does not come");
        }
        assert!(in_clear(&outside, &four, "10.2.0.1").await, "the old one stays");
        second.remove().unwrap();
        assert!(!listed(&["tables"]).contains("ike"));
    });
}

/// A policy of each priority, to 10.100.0.0/24, 10.100.1.0/24 and so on.
fn shapes(count: u32) -> Vec<(Leaving, Option<Verdict>)> {
    let of = |n: u32| {
        let policy = policy("10.1.0.0/16", &format!("10.{}.{}.0/24", 100 + n / 256, n % 256));
        (policy, Some(Verdict { priority: n, passes: false, by_device: false }))
    };
    (0..count).map(of).collect()
}

/// Policies of other shapes, as of children with other priorities, have a rule each, and the kernel tells the handle of each.
/// When all are written again, as after another program has removed one rule, those that go on being protected are protected
/// all the time.
///
/// Faults: in `Content::fill`, count no octets of new rules: the kernel refuses the transaction for ever (EMSGSIZE, ENOBUFS); in
/// `Table::make_again`, make no second table.
pub(crate) fn two_thousand_rules_are_made_again_without_a_gap() {
    inside(async {
        const COUNT: u32 = 2000;
        let outside = outside();
        let guard = ownerless();
        let begin = Instant::now();
        guard.change(shapes(COUNT).into_iter().collect());
        rules(COUNT as usize).await;
        eprintln!("{COUNT} rules: listed after {:?}", begin.elapsed());
        let four = socket("10.1.0.1:4000").await;
        assert!(!in_clear(&outside, &four, "10.100.0.1").await, "the first one");
        assert!(!in_clear(&outside, &four, "10.107.207.1").await, "the last one");
        assert!(in_clear(&outside, &four, "10.107.208.1").await);
        let before = put_back();
        let (flooding, sender) =
            (AtomicBool::new(true), std::net::UdpSocket::bind("10.1.0.1:4009"));
        let sender = sender.unwrap();
        std::thread::scope(|scope| {
            // The threads of a scope are in the namespace of the thread that makes them.
            scope.spawn(|| {
                let mut sent = 0_u64;
                while flooding.load(Ordering::Relaxed) {
                    _ = sender.send_to(b"test", "10.107.207.1:7");
                    sent += 1;
                }
                eprintln!("{sent} packets sent meanwhile");
            });
            nft("delete chain inet ike-xfrm restore");
            let end = Instant::now() + Duration::from_secs(20);
            let is_made = || {
                put_back() > before
                    && listed(&["chain", "inet", "ike-xfrm", "restore"]).contains("vrf")
                    && !listed(&["tables"]).contains("stage")
            };
            while !is_made() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            flooding.store(false, Ordering::Relaxed);
            assert!(is_made(), "it is not made again: {}", listed(&["tables"]));
        });
        rules(COUNT as usize).await;
        assert_eq!(leaves(&outside).await, None, "in clear while the table was made again");
        let gone = shapes(COUNT).into_iter().map(|(policy, _)| (policy, None));
        guard.change(gone.collect());
        rules(0).await;
        assert!(
            in_clear(&outside, &four, "10.100.0.1").await,
            "policies that are gone go on dropping"
        );
        guard.remove().unwrap();
        assert!(!listed(&["tables"]).contains("ike"), "nothing is left");
    });
}

/// The next run would take an empty table for one that an earlier run has left, and would have no second line meanwhile.
///
/// Fault: in `Table::is_left`, make the table if it is not there.
pub(crate) fn a_table_that_the_kernel_refuses_leaves_nothing() {
    inside(async {
        // More rules than one transaction can have.
        let ports = (0..=u16::MAX).collect();
        let options = XfrmGuardOptions { ports, ..options(Duration::ZERO) };
        let refused = XfrmGuard::start(options).unwrap();
        assert!(missing().unwrap().contains("table ike-xfrm of nf_tables not made"));
        assert!(!listed(&["tables"]).contains("ike"), "{}", listed(&["tables"]));
        assert!(!XfrmGuard::is_left().unwrap());
        assert!(!XfrmGuard::remove_left().unwrap(), "there is nothing to remove");
        refused.remove().unwrap();
    });
}

/// On a kernel that does not keep the table of a process that has ended it has no owner, and others can remove it.
///
/// Faults: in `Abilities::probe`, give the table an owner all the same, one that goes with the socket; in `Server::serve`, do
/// not look; in `Content::is_in`, compare the numbers of rules, or no values of sets, or do not ask whether the table is dormant.
pub(crate) fn a_table_without_an_owner_is_put_back_and_outlives_its_process() {
    inside(async {
        let outside = outside();
        let four = socket("10.1.0.1:4000").await;
        let guard = ownerless();
        guard.change(Changes::from([(policy("10.1.0.0/16", "10.2.0.0/16"), DROP)]));
        rules(1).await;
        let before = put_back();
        let as_many = "flush chain inet ike-xfrm protected
            add rule inet ike-xfrm protected accept
            add rule inet ike-xfrm protected accept
            add rule inet ike-xfrm protected accept
            add rule inet ike-xfrm protected accept";
        let ways = [
            "flush ruleset",
            as_many,
            "flush set inet ike-xfrm s1
             add element inet ike-xfrm s1 { 10.1.0.0 . 10.9.0.0 }",
            "add table inet ike-xfrm { flags dormant; }",
            "delete table inet ike-xfrm",
        ];
        for (round, how) in ways.into_iter().enumerate() {
            nft(how);
            let begin = Instant::now();
            while put_back() == before + round as u64 || in_clear(&outside, &four, "10.2.0.1").await
            {
                assert!(begin.elapsed() < Duration::from_secs(3), "not put back after `{how}`");
                sleep(Duration::from_millis(50)).await;
            }
            eprintln!("put back {:?} after `{how}`", begin.elapsed());
        }
        let settled = put_back();
        nft("add table ip theirs");
        sleep(Duration::from_millis(1200)).await;
        assert_eq!(put_back(), settled, "what others do to their own tables is no change");
        drop(guard);
        sleep(Duration::from_millis(200)).await;
        assert!(!in_clear(&outside, &four, "10.2.0.1").await, "it is there after its process");
        assert!(XfrmGuard::is_left().unwrap());
        assert!(XfrmGuard::remove_left().unwrap());
        assert!(in_clear(&outside, &four, "10.2.0.1").await);
        assert!(!XfrmGuard::is_left().unwrap());
    });
}

/// A table that another process owns goes on dropping what is in the selectors of its policies. Needs Linux 5.12.
///
/// Faults: in `XfrmGuard::remove_left`, take an error of `chains::remove` for no table; in `chains::is_there`, ask for one of the
/// tables only; in `chains::remove`, remove one of them.
pub(crate) fn a_table_that_cannot_be_removed_is_an_error() {
    inside(async {
        nft("add table inet ike-xfrm-stage");
        assert!(XfrmGuard::is_left().unwrap(), "an earlier run has ended while making it");
        assert!(XfrmGuard::remove_left().unwrap());
        assert!(!listed(&["tables"]).contains("ike"));
        // The table goes with the process that owns it.
        let mut nft = Command::new("nft");
        let nft = nft.arg("-i").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut other = nft.spawn().unwrap();
        let mut lines = other.stdin.take().unwrap();
        writeln!(lines, "add table inet ike-xfrm {{ flags owner; }}").unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while !XfrmGuard::is_left().unwrap() {
            assert!(Instant::now() < end, "no table of another process");
            sleep(Duration::from_millis(20)).await;
        }
        XfrmGuard::remove_left().unwrap_err();
        assert!(XfrmGuard::is_left().unwrap(), "it is still there");
        drop(lines);
        assert!(other.wait().unwrap().success());
        assert!(!XfrmGuard::is_left().unwrap());
    });
}
