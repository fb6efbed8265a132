//! What the kernel knows of path MTUs, and what it refuses to send, each test in network namespaces of its own.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use ike_test_namespace::{Host, Need, VETH, namespace, run};
use ike_tokio::net::path_mtu::path_mtu;
use ike_tokio::net::socket::{PktSocket, SocketOptions};

ike_test_namespace::harness! {
    VETH => [
        what_a_router_reports_is_known_soon,
        routes_have_mtus,
        what_is_refused_harms_nothing_else,
    ],
    NFT => [what_a_rule_drops_harms_nothing_else],
}

/// A namespace in which `nft` makes rules.
const NFT: Need = Need { met: || namespace("nft", &["nft", "add", "table", "inet", "t"]) };

/// 192.0.2.1, and behind the router 192.0.2.254 a link with an MTU of 1000 to 198.51.100.2.
fn behind_a_narrow_link() -> (Host, Host) {
    let (router, far) = (Host::new(), Host::new());
    run("ip link set lo up");
    run("ip link add out0 type veth peer name in0");
    run(&format!("ip link set in0 netns {}", router.id()));
    run("ip addr add 192.0.2.1/24 dev out0");
    run("ip -6 addr add 2001:db8::1/64 dev out0 nodad");
    run("ip link set out0 up");
    router.run("ip addr add 192.0.2.254/24 dev in0");
    router.run("ip link set in0 up");
    router.run("ip link add mid0 type veth peer name mid1");
    router.run(&format!("ip link set mid1 netns {}", far.id()));
    router.run("ip addr add 198.51.100.1/24 dev mid0");
    router.run("ip link set mid0 mtu 1000");
    router.run("ip link set mid0 up");
    router.run("sysctl -qw net.ipv4.ip_forward=1");
    far.run("ip addr add 198.51.100.2/24 dev mid1");
    far.run("ip link set mid1 mtu 1000");
    far.run("ip link set mid1 up");
    run("ip route add default via 192.0.2.254");
    (router, far)
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 500)
}

fn mtu(local: &str, remote: &str) -> u32 {
    path_mtu(local.parse().unwrap(), at(remote), SocketOptions::default()).unwrap()
}

fn what_a_router_reports_is_known_soon() {
    let _hosts = behind_a_narrow_link();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    assert_eq!(mtu("192.0.2.1", "198.51.100.2"), 1500, "the first link's");
    let socket = PktSocket::bind(at("0.0.0.0"), SocketOptions::default()).unwrap();
    let local: IpAddr = "192.0.2.1".parse().unwrap();
    socket.send(local, at("198.51.100.2"), &[&[], &[0; 900]]).unwrap();
    sleep(Duration::from_millis(200));
    assert_eq!(mtu("192.0.2.1", "198.51.100.2"), 1500, "nothing was too large");
    socket.send(local, at("198.51.100.2"), &[&[], &[0; 1300]]).unwrap();
    let known = (0..100).any(|_| {
        sleep(Duration::from_millis(20));
        mtu("192.0.2.1", "198.51.100.2") == 1000
    });
    assert!(known);
    // What cannot be helped leaves in IP fragments.
    socket.send(local, at("198.51.100.2"), &[&[], &[0; 1300]]).unwrap();
    // Other ways are as wide as they were.
    assert_eq!(mtu("192.0.2.1", "192.0.2.254"), 1500);
}

fn routes_have_mtus() {
    let _hosts = behind_a_narrow_link();
    run("ip route add 203.0.113.0/24 via 192.0.2.254 mtu lock 1380");
    run("ip -6 route add 2001:db8:9::/48 via 2001:db8::fe dev out0 mtu 1400");
    assert_eq!(mtu("192.0.2.1", "203.0.113.9"), 1380);
    assert_eq!(mtu("2001:db8::1", "2001:db8:9::9"), 1400);
    let strange = "192.0.2.77".parse().unwrap();
    assert!(path_mtu(strange, at("203.0.113.9"), SocketOptions::default()).is_err());
}

/// EMSGSIZE and the like are of one datagram: the socket goes on.
fn what_is_refused_harms_nothing_else() {
    refused(|errno| {
        assert_eq!(errno("198.51.100.2", 65_530), Some(nix::libc::EMSGSIZE));
        run("ip route add prohibit 203.0.113.1");
        assert_eq!(errno("203.0.113.1", 100), Some(nix::libc::EACCES));
        run("ip route add unreachable 203.0.113.2");
        assert_eq!(errno("203.0.113.2", 100), Some(nix::libc::EHOSTUNREACH));
    });
}

/// So is EPERM.
fn what_a_rule_drops_harms_nothing_else() {
    refused(|errno| {
        run("nft add table inet t");
        run("nft add chain inet t o { type filter hook output priority 0 ; }");
        run("nft add rule inet t o ip daddr 198.51.100.3 drop");
        assert_eq!(errno("198.51.100.3", 100), Some(nix::libc::EPERM));
    });
}

/// Lets `test` send so many octets to addresses, which fails with these errors; then the socket must still work.
fn refused(test: impl FnOnce(&dyn Fn(&str, usize) -> Option<i32>)) {
    let _hosts = behind_a_narrow_link();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let socket = PktSocket::bind(at("0.0.0.0"), SocketOptions::default()).unwrap();
    let local: IpAddr = "192.0.2.1".parse().unwrap();
    test(&|to, octets| {
        socket.send(local, at(to), &[&[], &vec![0; octets]]).unwrap_err().raw_os_error()
    });
    socket.send(local, at("198.51.100.2"), &[&[], &[0; 100]]).unwrap();
}
