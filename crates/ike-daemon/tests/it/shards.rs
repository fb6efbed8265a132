//! Daemons of several shards: whatever a peer sees, an operator wants or `unique` says is as with one.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ike_control::views::IkeSa;
use ike_daemon::config::{self, Config, Ports};
use ike_daemon::daemon::{Daemon, open};
use ike_tokio::Target;
use ike_tokio::{Listen, Plane};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::common::{self, ANY, Carrier, PSK, Pair, list, start, until};
use crate::daemons::{life, loses_no_packet, reloads, traps};

/// Peers of one gateway. The odds that all of them begin, or end, on one shard are nil.
const PEERS: usize = 24;

fn configuration(us: &str, port: u16, shards: u8, unique: &str) -> Config {
    configuration_at(Ipv4Addr::LOCALHOST, us, port, shards, unique)
}

fn configuration_at(address: Ipv4Addr, us: &str, port: u16, shards: u8, unique: &str) -> Config {
    let mut text = format!(
        "[charon]
        port = 0
        port_nat_t = 0
        shards = {shards}
        retransmit_timeout = 0.5
        retransmit_tries = 3
        cookie_threshold = 0
        cookie_threshold_ip = 0
        block_threshold = 0
        [secrets.ike]
        secret = '{PSK}'
        "
    );
    // A gateway has one connection for all peers, the host of the peers one for each of them.
    let names = if us == "gateway" { 0..1 } else { 0..PEERS };
    for n in names {
        let (local, remote, id) = match us {
            "gateway" => ("gw.example.org".to_owned(), "%any".to_owned(), String::new()),
            _ => (format!("p{n}.example.org"), "gw.example.org".to_owned(), format!("{n}")),
        };
        let (ours, theirs) = match us {
            "gateway" => ("10.1.0.0/16", "10.2.0.0/16".to_owned()),
            _ => ("", "10.1.0.0/16".to_owned()),
        };
        let from = if us == "gateway" { "%any" } else { "127.0.0.1" };
        let ours = if ours.is_empty() { format!("10.2.{n}.0/24") } else { ours.to_owned() };
        text += &format!(
            "[connections.site{id}]
            local_addrs = '{address}'
            remote_addrs = '{from}'
            remote_port = {port}
            unique = '{unique}'
            proposals = 'aes256gcm16-prfsha256-x25519'
            [connections.site{id}.local]
            auth = 'psk'
            id = '{local}'
            [connections.site{id}.remote]
            auth = 'psk'
            id = '{remote}'
            [connections.site{id}.children.net{id}]
            local_ts = '{ours}'
            remote_ts = '{theirs}'
            esp_proposals = 'aes256gcm16-x25519'
            "
        );
    }
    config::parse(&text, Path::new("")).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

async fn daemon(us: &str, port: u16, shards: u8, unique: &str) -> Daemon {
    daemon_at(Ipv4Addr::LOCALHOST, configuration(us, port, shards, unique)).await
}

async fn daemon_at(address: Ipv4Addr, config: Config) -> Daemon {
    let (addresses, shards) = (vec![IpAddr::V4(address)], config.shards);
    let listen = Listen { addresses, lenient: false, shards, ..Listen::default() };
    let (sockets, plane) = open(&listen, ANY, |_| Ok(Plane::none())).expect("sockets");
    start(config, sockets, plane).await
}

/// The shards that the SAs of `sas` are on, by the SPIs of this end.
fn shards_of(sas: &[IkeSa]) -> BTreeSet<String> {
    let spi = |sa: &IkeSa| if sa.initiator { &sa.initiator_spi } else { &sa.responder_spi }.clone();
    sas.iter().map(|sa| spi(sa)[..2].to_owned()).collect()
}

fn ike(name: &str) -> Target {
    Target { ike: Some(name.to_owned()), ..Target::default() }
}

/// A gateway with `shards` and the host of all the peers, everything up.
async fn many(shards: u8, unique: &str) -> (Daemon, Daemon) {
    let gateway = daemon("gateway", 4500, shards, unique).await;
    let peers = daemon("peers", gateway.ports().nat_t, shards, unique).await;
    assert_eq!(peers.operator().up_all().await, Ok(PEERS));
    let up = |sas: &[IkeSa]| {
        sas.len() == PEERS
            && sas.iter().all(|sa| sa.state == "ESTABLISHED" && sa.child_sas.len() == 1)
    };
    for daemon in [&gateway, &peers] {
        let sas = until(daemon, "all up", up).await;
        let ids: BTreeSet<_> = sas.iter().map(|sa| sa.uniqueid).collect();
        let reqids: BTreeSet<_> = sas.iter().map(|sa| sa.child_sas[0].reqid).collect();
        assert_eq!((ids.len(), reqids.len()), (PEERS, PEERS), "numbers differ between shards");
    }
    (gateway, peers)
}

/// Everything that goes by an SA's number, in both roles, and what concerns all of them.
async fn life_with(shards: u8) {
    let (gateway, peers) = many(shards, "no").await;
    let before = list(&gateway).await;
    let met = shards_of(&before);
    assert!(met.iter().all(|top| u8::from_str_radix(top, 16).is_ok_and(|top| top < shards)));
    assert!(shards_of(&list(&peers).await).len() > 1, "connections have different homes");

    // By the responder, who has them on any shard.
    assert_eq!(gateway.operator().rekey(&ike("site")).await, Ok(PEERS));
    assert_eq!(gateway.operator().rekey(&Target::named("net")).await, Ok(PEERS));
    let settled = |sas: &[IkeSa]| {
        sas.len() == PEERS && sas.iter().all(|s| s.state == "ESTABLISHED" && s.child_sas.len() == 1)
    };
    let after = until(&gateway, "rekeyed", settled).await;
    let spis = |sas: &[IkeSa]| sas.iter().map(|s| s.responder_spi.clone()).collect::<BTreeSet<_>>();
    assert!(spis(&before).is_disjoint(&spis(&after)));
    // By the initiator, whose second `up` makes nothing new.
    until(&peers, "rekeyed", settled).await;
    for n in 0..PEERS {
        peers.operator().up(&ike(&format!("site{n}"))).await.unwrap();
        assert_eq!(peers.operator().rekey(&ike(&format!("site{n}"))).await, Ok(1));
    }
    until(&peers, "rekeyed again", settled).await;
    until(&gateway, "rekeyed again", settled).await;

    let config = configuration("gateway", 4500, shards, "no");
    gateway.reload(config).await.unwrap();
    assert_eq!(list(&gateway).await.len(), PEERS);
    assert_eq!(peers.operator().down(&ike("site0")).await, Ok(1));
    until(&gateway, "one less", |s| s.len() == PEERS - 1).await;
    // On a busy machine the end does not wait for the last confirmations. The peers have the Deletes all the same.
    gateway.shutdown(Duration::from_secs(10)).await;
    until(&peers, "nothing", <[_]>::is_empty).await;
    assert!(peers.shutdown(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn many_peers_on_two_shards() {
    life_with(2).await;
}

#[tokio::test]
async fn many_peers_on_four_shards() {
    life_with(4).await;
}

#[tokio::test]
async fn one_peer_sees_no_difference() {
    life("shards = 4").await;
    loses_no_packet("shards = 2").await;
    reloads("shards = 2").await;
    traps("shards = 4").await;
}

/// What a kernel that steers wrongly, or not at all, gives to a shard gets to the right one.
#[tokio::test]
async fn what_arrives_at_the_wrong_shard_is_handed_over() {
    let gateway = daemon("gateway", 4500, 3, "no").await;
    let peers = daemon("peers", gateway.ports().nat_t, 3, "no").await;
    for Ports { ike, nat_t } in [gateway.ports(), peers.ports()] {
        for port in [ike, nat_t] {
            all_to(port, 2);
        }
    }
    assert_eq!(peers.operator().up_all().await, Ok(PEERS));
    let sas = until(&gateway, "all up", |s| s.len() == PEERS).await;
    assert!(sas.iter().all(|sa| sa.state == "ESTABLISHED"));
    assert!(shards_of(&list(&peers).await).len() > 1);
    assert_eq!(gateway.operator().rekey(&ike("site")).await, Ok(PEERS));
    // As above: the end does not wait for all confirmations.
    peers.shutdown(Duration::from_secs(10)).await;
    until(&gateway, "nothing", <[_]>::is_empty).await;
}

/// Replaces the program of the sockets of `port`: all goes to the one of this number.
fn all_to(port: u16, number: u32) {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut code = [libc::sock_filter { code, jt: 0, jf: 0, k: number }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    setsockopt(&socket, sockopt::AttachReusePortCbpf, &program).unwrap();
}

/// Somebody who is between a host and its peers has a TCP connection go to the other shard, and sends the
/// host's own request by it: answered, and passed on, it would lead the host to itself.
#[tokio::test]
async fn a_host_does_not_answer_its_own_request_by_tcp() {
    let between = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let listen = Listen { addresses, lenient: false, shards: 2, tcp: Some(0), ..Listen::default() };
    let (sockets, plane) = open(&listen, ANY, |_| Ok(Plane::none())).expect("sockets");
    let tcp = (Ipv4Addr::LOCALHOST, sockets.tcp_port().unwrap());
    let port = between.local_addr().unwrap().port();
    let host = start(configuration("peers", port, 2, "no"), sockets, plane).await;
    let operator = host.operator().clone();
    let up = tokio::spawn(async move { operator.up(&ike("site0")).await });
    let mut datagram = [0; 4096];
    let length = between.recv(&mut datagram).await.unwrap();
    let request = datagram[..length].strip_prefix(&[0; 4]).unwrap_or(&datagram[..length]);
    let shard = request[0];

    let mut stream = TcpStream::connect(tcp).await.unwrap();
    stream.write_all(b"IKETCP").await.unwrap();
    let frame = |message: &[u8]| {
        let length = u16::try_from(message.len() + 6).unwrap();
        [&length.to_be_bytes()[..], &[0; 4], message].concat()
    };
    // To an IKE SA that there is not: it is told so.
    let informational = |spi_i: u8| {
        let rest = [0, 0x20, 37, 0x08, 0, 0, 0, 0, 0, 0, 0, 28];
        frame(&[&[spi_i; 8][..], &[1 - shard, 7, 7, 7, 7, 7, 7, 7], &rest].concat())
    };
    for message in [informational(3), frame(request), informational(4)] {
        stream.write_all(&message).await.unwrap();
    }
    for spi_i in [3, 4] {
        let length = usize::from(stream.read_u16().await.unwrap());
        let mut answer = vec![0; length - 2];
        stream.read_exact(&mut answer).await.unwrap();
        let message = &answer[4..];
        assert_eq!((message[18], message[0]), (37, spi_i), "the host's own request is answered");
    }
    up.abort();
}

/// The same peer comes again and again, each time to the shard that its SPI says.
async fn comes_again(gateways: &str, peers: &str) -> (Daemon, Vec<Daemon>) {
    let gateway = daemon("gateway", 4500, 4, gateways).await;
    let (mut all, mut met) = (Vec::new(), BTreeSet::new());
    // Until it has met two shards: the odds of a single one in so many times are nil.
    while met.len() < 2 || all.len() < 4 {
        assert!(all.len() < 40, "always the same shard");
        let peer = daemon("peers", gateway.ports().nat_t, 1, peers).await;
        peer.operator().up(&ike("site0")).await.unwrap();
        let one = |s: &[IkeSa]| s.len() == 1 && s[0].state == "ESTABLISHED";
        met.extend(shards_of(&until(&gateway, "a single one", one).await));
        all.push(peer);
    }
    (gateway, all)
}

#[tokio::test]
async fn unique_replace_holds_across_shards() {
    let (_gateway, peers) = comes_again("replace", "never").await;
    let (last, earlier) = peers.split_last().unwrap();
    for peer in earlier {
        until(peer, "replaced, and told so", <[_]>::is_empty).await;
    }
    assert_eq!(list(last).await.len(), 1);
}

#[tokio::test]
async fn initial_contact_holds_across_shards() {
    let (_gateway, peers) = comes_again("no", "no").await;
    // Nobody told those that were forgotten.
    for peer in &peers {
        assert_eq!(list(peer).await.len(), 1);
    }
}

/// The others are elsewhere: from its own address a peer may authenticate anew.
///
/// Fault: in `Endpoint::all_are_at`, answer `true`.
#[tokio::test]
async fn unique_keep_holds_across_shards() {
    let gateway = daemon("gateway", 4500, 4, "keep").await;
    let first = daemon("peers", gateway.ports().nat_t, 1, "never").await;
    first.operator().up(&ike("site0")).await.unwrap();
    let kept = until(&gateway, "the first", |s| s.len() == 1).await;
    for n in 2..8 {
        let elsewhere = Ipv4Addr::new(127, 0, 0, n);
        let config = configuration_at(elsewhere, "peers", gateway.ports().nat_t, 1, "never");
        let next = daemon_at(elsewhere, config).await;
        // It is up for a moment.
        assert_eq!(next.operator().up(&ike("site0")).await, Ok(()));
        until(&next, "deleted", <[_]>::is_empty).await;
    }
    let left = until(&gateway, "the first alone", |s| s.len() == 1).await;
    assert_eq!(left[0].responder_spi, kept[0].responder_spi);
}

/// Two connections between the same identities, begun on different shards: the second does not claim to be
/// the only one, which would take the first down.
#[tokio::test]
async fn a_second_connection_of_the_same_identities_leaves_the_first_alone() {
    let gateway = daemon("gateway", 4500, 4, "no").await;
    let mut config = configuration("peers", gateway.ports().nat_t, 4, "no");
    let id = config.endpoint.connections[0].local[0].id.clone();
    for connection in &mut config.endpoint.connections {
        Arc::make_mut(connection).local[0].id.clone_from(&id);
    }
    let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let listen = Listen { addresses, lenient: false, shards: 4, ..Listen::default() };
    let (sockets, plane) = open(&listen, ANY, |_| Ok(Plane::none())).expect("sockets");
    let peers = start(config, sockets, plane).await;
    for n in 0..PEERS {
        peers.operator().up(&ike(&format!("site{n}"))).await.unwrap();
    }
    assert!(shards_of(&list(&peers).await).len() > 1);
    assert_eq!(list(&gateway).await.len(), PEERS);
}

#[tokio::test]
async fn a_second_child_joins_the_sa_of_another_shard() {
    let pair = Pair::start(Carrier::None, "shards = 4", "").await;
    let net = Target::named("net");
    // The SA of the peer is on any of the shards, this end would begin one on its home.
    for _ in 0..12 {
        pair.right.operator().up(&net).await.unwrap();
        until(&pair.left, "up", |s| s.len() == 1 && s[0].child_sas.len() == 1).await;
        pair.left.operator().up(&net).await.unwrap();
        let ours = until(&pair.left, "a second child", |s| {
            s.iter().map(|s| s.child_sas.len()).sum::<usize>() == 2
        });
        assert_eq!(ours.await.len(), 1, "on the same IKE SA");
        pair.left.operator().down(&Target::named("site")).await.unwrap();
        until(&pair.left, "nothing", <[_]>::is_empty).await;
        until(&pair.right, "nothing", <[_]>::is_empty).await;
    }
}

#[test]
fn how_many_shards() {
    let parse = |value: &str| {
        let text = format!("[charon]\nshards = {value}");
        config::parse(&text, Path::new("")).map(|config| config.shards)
    };
    assert_eq!(config::parse("", Path::new("")).unwrap().shards, 1);
    assert_eq!(parse("64").unwrap(), 64);
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_eq!(usize::from(parse("'auto'").unwrap()), processors.min(16));
    for wrong in ["0", "65", "-1", "'many'", "true"] {
        let mistakes = format!("{:?}", parse(wrong).unwrap_err());
        assert!(mistakes.contains("charon.shards"), "{wrong}: {mistakes}");
    }
}

/// The peer deletes the IKE SA once it has another one, which may be on any shard: what is to be made again is made
/// on that, and not on a third.
#[tokio::test]
async fn a_child_comes_again_on_the_sa_of_another_shard() {
    // A peer with as many shards would always come back to the same one.
    let ids = ["left.example.org", "right.example.org"];
    let charon = ["shards = 4", ""];
    let made = [4, 1].map(|shards| {
        let addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let listen = Listen { addresses, lenient: false, shards, ..Listen::default() };
        open(&listen, ANY, |_| Ok(Plane::none())).expect("sockets")
    });
    let [left_port, right_port] = [0, 1].map(|n: usize| made[n].0.ports().nat_t);
    let action = "close_action = 'start'";
    let [(sockets, plane), other] = made;
    let left =
        start(common::configuration("left", ids, right_port, charon[0], action), sockets, plane)
            .await;
    let (sockets, plane) = other;
    let right =
        start(common::configuration("right", ids, left_port, charon[1], ""), sockets, plane).await;
    left.operator().up(&Target::named("net")).await.unwrap();
    let mut met = BTreeSet::new();
    let mut before = until(&left, "up", |s| s.len() == 1).await[0].initiator_spi.clone();
    for _ in 0..12 {
        assert_eq!(right.operator().reauthenticate(&ike("site")).await, Ok(1));
        let up = |s: &[IkeSa]| {
            s.len() == 1 && s[0].initiator_spi != before && s[0].state == "ESTABLISHED" && {
                let children = &s[0].child_sas;
                !children.is_empty() && children.iter().all(|c| c.state == "INSTALLED")
            }
        };
        let sas = until(&left, "settled", up).await;
        before.clone_from(&sas[0].initiator_spi);
        met.extend(shards_of(&sas));
    }
    assert!(met.len() > 1, "not always on one shard");
}
