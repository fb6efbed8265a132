//! Daemons over TCP (RFC 9329), and strangers at their ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use esp::io::MemoryHost;
use ike_control::views::IkeSa;
use ike_daemon::config::Config;
use ike_daemon::daemon::{Daemon, open, os_crypto};
use ike_proto::config::{ConnectionConfig, SeparateTransports, TcpUse};
use ike_tokio::{Listen, Plane, Sockets};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::common::{ANY, configuration, list, packet, start, until};
use crate::daemons::{net, site};

/// Two daemons; the right one accepts TCP connections.
struct Ends {
    left: Daemon,
    right: Daemon,
    hosts: (MemoryHost, MemoryHost),
    tcp: SocketAddr,
}

const IDS: [&str; 2] = ["left.example.org", "right.example.org"];

/// Starts both. The left one's connection is as `configure` makes it from the right one's TCP port and
/// UDP port.
async fn ends(configure: impl FnOnce(&mut ConnectionConfig, u16, u16)) -> Ends {
    let listen = |tcp| Listen {
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        lenient: false,
        esp: true,
        kernel: false,
        mark: None,
        tcp,
        tcp_remote: Vec::new(),
        shards: 1,
    };
    let mut hosts = Vec::new();
    let mut memory = |sockets: &Sockets| {
        let (plane, host, _) = Plane::memory(sockets, &os_crypto(pq_kem::provider()), 256)?;
        hosts.push(host);
        Ok(plane)
    };
    let (left, left_plane) = open(&listen(None), ANY, &mut memory).expect("sockets");
    let (right, right_plane) = open(&listen(Some(0)), ANY, &mut memory).expect("sockets");
    let (left_udp, right_udp) = (left.ports().nat_t, right.ports().nat_t);
    let tcp = right.tcp_port().expect("sockets");
    assert_ne!(tcp, 0);
    let mut config = configuration("left", IDS, right_udp, "", "");
    change(&mut config, |c| configure(c, tcp, right_udp));
    let left = start(config, left, left_plane).await;
    let charon = "listen_tcp = true\ntcp_port = 0";
    let config = configuration("right", IDS, left_udp, charon, "");
    let right = start(config, right, right_plane).await;
    let (Some(right_host), Some(left_host)) = (hosts.pop(), hosts.pop()) else { panic!() };
    let tcp = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), tcp);
    Ends { left, right, hosts: (left_host, right_host), tcp }
}

fn change(config: &mut Config, by: impl FnOnce(&mut ConnectionConfig)) {
    by(Arc::make_mut(&mut config.endpoint.connections[0]));
}

fn over_tcp(c: &mut ConnectionConfig, tcp: u16, _: u16) {
    c.enable_tcp = TcpUse::Yes;
    c.tcp_remote_port = tcp;
    c.separate_transports = SeparateTransports::No;
}

/// Sends packets both ways and sees them arrive.
async fn traffic(hosts: &mut (MemoryHost, MemoryHost), times: u32) {
    let (left, right) = hosts;
    for number in 0..times {
        let there = packet([10, 1, 0, 1], [10, 2, 0, 1], &number.to_be_bytes());
        let back = packet([10, 2, 0, 1], [10, 1, 0, 1], &vec![7; 1200]);
        assert!(left.send(there.clone()).await);
        let arrived = timeout(Duration::from_secs(10), right.recv()).await;
        assert_eq!(arrived.expect("in time").as_deref(), Some(&there[..]));
        assert!(right.send(back.clone()).await);
        let arrived = timeout(Duration::from_secs(10), left.recv()).await;
        assert_eq!(arrived.expect("in time").as_deref(), Some(&back[..]));
    }
}

#[tokio::test]
async fn ike_and_esp_go_by_one_connection_through_a_whole_life() {
    let Ends { left, right, mut hosts, tcp } = ends(over_tcp).await;
    let operator = left.operator();
    operator.up(&net()).await.unwrap();
    traffic(&mut hosts, 20).await;
    let ours = list(&left).await;
    assert_eq!((ours[0].transport.as_str(), ours[0].remote_port), ("tcp", tcp.port()));
    assert!(ours[0].child_sas[0].tcp && !ours[0].child_sas[0].encap);
    let theirs = list(&right).await;
    assert_eq!((theirs[0].transport.as_str(), theirs[0].local_port), ("tcp", tcp.port()));
    assert_eq!(theirs[0].remote_port, ours[0].local_port, "the port the system chose");
    let child = &theirs[0].child_sas[0];
    assert!(child.tcp);
    assert_eq!((child.packets_in, child.packets_out), (20, 20));

    operator.rekey(&net()).await.unwrap();
    traffic(&mut hosts, 5).await;
    operator.rekey(&site()).await.unwrap();
    until(&left, "one IKE SA", |s| s.len() == 1).await;
    right.operator().rekey(&net()).await.unwrap();
    traffic(&mut hosts, 5).await;
    let again = list(&left).await;
    assert_eq!(again[0].local_port, ours[0].local_port, "still the same connection");
    assert_ne!(again[0].initiator_spi, ours[0].initiator_spi);

    assert_eq!(operator.down(&site()).await, Ok(1));
    until(&left, "nothing", <[_]>::is_empty).await;
    until(&right, "nothing", <[_]>::is_empty).await;
    // And once more, by a connection of its own.
    operator.up(&net()).await.unwrap();
    traffic(&mut hosts, 1).await;
    assert_ne!(list(&left).await[0].local_port, ours[0].local_port);
    assert!(left.shutdown(Duration::from_secs(5)).await);
    until(&right, "deleted", <[_]>::is_empty).await;
}

/// IKE over TCP, and ESP in UDP.
async fn are_separate(ends: &Ends) {
    for daemon in [&ends.left, &ends.right] {
        // The one before is gone.
        let one = |s: &[IkeSa]| s.len() == 1 && s[0].child_sas.len() == 1;
        let sas = until(daemon, "one child", one).await;
        assert_eq!(sas[0].transport, "tcp");
        assert!(sas[0].child_sas[0].encap && !sas[0].child_sas[0].tcp, "{sas:#?}");
    }
}

#[tokio::test]
async fn separate_transports_leave_esp_to_udp() {
    let mut ends = ends(|c, tcp, _| {
        c.tcp_remote_port = tcp;
        c.separate_transports = SeparateTransports::Yes;
    })
    .await;
    ends.left.operator().up(&net()).await.unwrap();
    are_separate(&ends).await;
    // By the ports that IKE_SA_INIT went by.
    traffic(&mut ends.hosts, 5).await;
    ends.left.operator().rekey(&net()).await.unwrap();
    ends.left.operator().rekey(&site()).await.unwrap();
    are_separate(&ends).await;
    traffic(&mut ends.hosts, 5).await;
    assert_eq!(ends.left.operator().down(&site()).await, Ok(1));
    until(&ends.right, "nothing", <[_]>::is_empty).await;
}

#[tokio::test]
async fn separate_transports_from_a_start_over_tcp() {
    // Their UDP ports are the system's choice here, so that no ESP could find its way.
    let ends = ends(|c, tcp, _| {
        c.enable_tcp = TcpUse::Yes;
        c.tcp_remote_port = tcp;
        c.separate_transports = SeparateTransports::Yes;
    })
    .await;
    ends.left.operator().up(&net()).await.unwrap();
    are_separate(&ends).await;
    ends.left.operator().rekey(&site()).await.unwrap();
    are_separate(&ends).await;
}

#[tokio::test]
async fn where_udp_is_blocked_tcp_is_fallen_back_to() {
    // What arrives there is never answered.
    let blocked = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = blocked.local_addr().unwrap().port();
    let Ends { left, right, mut hosts, .. } = ends(|c, tcp, _| {
        c.remote_port = port;
        c.enable_tcp = TcpUse::Fallback(Duration::from_secs(1));
        c.tcp_remote_port = tcp;
    })
    .await;
    left.operator().up(&net()).await.unwrap();
    let mut octets = [0; 4000];
    let (len, _) = blocked.try_recv_from(&mut octets).expect("UDP was tried first");
    assert!(len > 28);
    traffic(&mut hosts, 5).await;
    assert_eq!(list(&left).await[0].transport, "tcp");
    assert!(list(&right).await[0].child_sas[0].tcp);
}

#[tokio::test]
async fn where_udp_is_answered_tcp_is_not_used() {
    let Ends { left, right: _right, mut hosts, .. } = ends(|c, tcp, _| {
        c.enable_tcp = TcpUse::Fallback(Duration::from_secs(5));
        c.tcp_remote_port = tcp;
    })
    .await;
    left.operator().up(&net()).await.unwrap();
    traffic(&mut hosts, 1).await;
    let sas = list(&left).await;
    assert_eq!(sas[0].transport, "udp");
    assert!(sas[0].child_sas[0].encap);
}

#[tokio::test]
async fn a_port_where_nobody_listens_yet_is_tried_again() {
    let later = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let ends = ends(|c, _, _| over_tcp(c, later.port(), 0)).await;
    let Ends { left, right: _right, mut hosts, tcp } = ends;
    let listening = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let listener = TcpListener::bind(later).await.unwrap();
        relay(listener, tcp, Arc::default()).await;
    });
    left.operator().up(&net()).await.unwrap();
    traffic(&mut hosts, 3).await;
    listening.abort();
}

/// Passes octets on between one client after the other and `to`, until told to cut the connection.
async fn relay(listener: TcpListener, to: SocketAddr, cut: Arc<tokio::sync::Notify>) {
    loop {
        let (mut client, _) = listener.accept().await.expect("a client");
        let mut server = TcpStream::connect(to).await.expect("a server");
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = cut.notified() => {}
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_opened_again_and_the_sas_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let Ends { left, right, mut hosts, tcp } = ends(|c, _, _| over_tcp(c, port, 0)).await;
    let cut = Arc::new(tokio::sync::Notify::new());
    let relay = tokio::spawn(relay(listener, tcp, Arc::clone(&cut)));
    left.operator().up(&net()).await.unwrap();
    traffic(&mut hosts, 3).await;
    let before = list(&left).await;
    let theirs = list(&right).await[0].remote_port;
    cut.notify_one();
    until(&right, "another connection", |s| s[0].remote_port != theirs).await;
    let after = until(&left, "again", |s| s[0].local_port != before[0].local_port).await;
    assert_eq!(after[0].initiator_spi, before[0].initiator_spi);
    assert_eq!(after[0].child_sas[0].spi_in, before[0].child_sas[0].spi_in);
    traffic(&mut hosts, 3).await;
    right.operator().rekey(&net()).await.unwrap();
    traffic(&mut hosts, 3).await;
    relay.abort();
}

/// A stranger's connection.
async fn stranger(to: SocketAddr) -> TcpStream {
    TcpStream::connect(to).await.expect("a connection")
}

/// Waits for the other end to close.
async fn ended(stream: &mut TcpStream, within: Duration) -> bool {
    let mut octets = [0; 256];
    let reading = async { while stream.read(&mut octets).await.is_ok_and(|octets| octets > 0) {} };
    timeout(within, reading).await.is_ok()
}

/// An IKE header of a request that begins an IKE SA, with nothing behind it.
fn header() -> Vec<u8> {
    let mut message = vec![0; 28];
    message[..8].copy_from_slice(&[1; 8]);
    message[17..20].copy_from_slice(&[0x20, 34, 8]);
    message[27] = 28;
    message
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len() + 2).expect("a length");
    [&length.to_be_bytes()[..], message].concat()
}

#[tokio::test]
async fn every_malformed_stream_is_closed_and_costs_no_sa() {
    let Ends { left, right, mut hosts, tcp } = ends(over_tcp).await;
    left.operator().up(&net()).await.unwrap();
    let giant = [&[0xff, 0xff][..], &[1; 65_533]].concat().repeat(20);
    let ike = frame(&[&[0; 4][..], &header()].concat());
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("another protocol", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec()),
        ("no prefix", ike.clone()),
        ("nearly the prefix", b"IKETCQ".to_vec()),
        ("length 0", b"IKETCP\0\0".to_vec()),
        ("length 1", b"IKETCP\0\x01".to_vec()),
        ("length 0 after IKE", [b"IKETCP", &ike[..], &[0, 0]].concat()),
        ("neither IKE nor ESP", [b"IKETCP".to_vec(), frame(&[9, 9]).repeat(20)].concat()),
        ("no marker", [b"IKETCP".to_vec(), frame(&header()), vec![0, 0]].concat()),
        ("ESP of nobody, huge", [b"IKETCP", &giant[..], &[0, 1]].concat()),
    ];
    for (what, octets) in cases {
        let mut stream = stranger(tcp).await;
        // It may be closed before all is written.
        let _ = stream.write_all(&octets).await;
        assert!(ended(&mut stream, Duration::from_secs(5)).await, "{what}");
    }
    // The end of our half is the end of it all.
    for octets in [&b"IKE"[..], b"IKETCP", b"IKETCP\0\x40\0\0\0\0"] {
        let mut stream = stranger(tcp).await;
        stream.write_all(octets).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(ended(&mut stream, Duration::from_secs(5)).await, "{octets:?}");
    }
    // Forged ESP of the SA in use, and IKE of the IKE SA in use, on a connection of a stranger's.
    let sas = list(&right).await;
    let spi = u32::from_str_radix(&sas[0].child_sas[0].spi_in, 16).unwrap().to_be_bytes();
    let mut stream = stranger(tcp).await;
    let esp = frame(&[&spi[..], &[0; 60]].concat());
    let mut forged = header();
    let spis = [&sas[0].initiator_spi, &sas[0].responder_spi];
    for (at, spi) in spis.iter().enumerate() {
        let spi = u64::from_str_radix(spi, 16).unwrap().to_be_bytes();
        forged[8 * at..8 * at + 8].copy_from_slice(&spi);
    }
    let ike = frame(&[&[0; 4][..], &forged].concat());
    stream.write_all(&[&b"IKETCP"[..], &esp, &ike].concat()).await.unwrap();
    traffic(&mut hosts, 5).await;
    let still = list(&right).await;
    assert_eq!(still.len(), 1, "no state is left of any of it");
    assert_eq!(still[0].remote_port, sas[0].remote_port, "a stranger does not move an SA");
}

/// Where the lengths went wrong, all that follows looks like ESP of no SA. A few such packets are no reason,
/// for a new SA may not be installed yet.
#[tokio::test]
async fn a_stream_of_esp_that_nobody_sent_is_closed() {
    let Ends { left: _left, right: _right, tcp, .. } = ends(over_tcp).await;
    let esp = frame(&[7; 60]);
    let mut nonsense = stranger(tcp).await;
    let mut in_step = stranger(tcp).await;
    let ike = frame(&[&[0; 4][..], &header()].concat());
    nonsense.write_all(&[b"IKETCP", &esp.repeat(100)[..]].concat()).await.unwrap();
    in_step.write_all(&[b"IKETCP", &esp.repeat(100)[..], &ike].concat()).await.unwrap();
    assert!(!ended(&mut nonsense, Duration::from_secs(1)).await);
    let drip = async {
        loop {
            let _ = nonsense.write_all(&esp).await;
            let _ = in_step.write_all(&[&esp.repeat(15)[..], &ike].concat()).await;
            if ended(&mut nonsense, Duration::from_millis(200)).await {
                return;
            }
        }
    };
    assert!(timeout(Duration::from_secs(10), drip).await.is_ok());
    assert!(!ended(&mut in_step, Duration::from_secs(1)).await);
}

#[tokio::test]
async fn slow_strangers_are_not_waited_for() {
    let Ends { left: _left, right: _right, tcp, .. } = ends(over_tcp).await;
    let mut slow = stranger(tcp).await;
    let silent = stranger(tcp).await;
    let mut begun = stranger(tcp).await;
    begun.write_all(b"IKETCP\xff\xff").await.unwrap();
    let drip = async {
        for octet in b"IKETC" {
            let _ = slow.write_all(&[*octet]).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    };
    drip.await;
    for mut stream in [slow, silent] {
        assert!(ended(&mut stream, Duration::from_millis(500)).await);
    }
    // A message may take half a minute.
    assert!(!ended(&mut begun, Duration::from_secs(5)).await);
    assert!(ended(&mut begun, Duration::from_secs(20)).await);
}

#[tokio::test]
async fn ten_thousand_connections_keep_no_peer_out() {
    let Ends { left, right: _right, mut hosts, tcp } = ends(over_tcp).await;
    let mut open: std::collections::VecDeque<TcpStream> = std::collections::VecDeque::new();
    let mut refused = 0;
    for number in 0..10_000_u32 {
        // From one address beside the peer's, and some of them with the prefix.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let Ok(mut stream) = socket.connect(tcp).await else { continue };
        let _ = stream.write_all(if number % 2 == 0 { b"IKETCP\0" } else { b"IKE" }).await;
        if open.len() < 100 {
            open.push_back(stream);
        } else if ended(&mut stream, Duration::from_secs(2)).await {
            refused += 1;
        }
    }
    assert_eq!(refused, 9900, "one address has few places");
    left.operator().up(&net()).await.unwrap();
    traffic(&mut hosts, 3).await;
}

#[tokio::test]
async fn what_piles_up_before_a_peer_that_reads_nothing_is_bounded() {
    // A stranger that asks and asks, and never reads.
    let Ends { left, right: _right, mut hosts, tcp } = ends(over_tcp).await;
    let mut stream = stranger(tcp).await;
    stream.write_all(b"IKETCP").await.unwrap();
    let request = frame(&[&[0; 4][..], &header()].concat());
    let flood = async {
        let many = request.repeat(1000);
        for _ in 0..200 {
            if stream.write_all(&many).await.is_err() {
                return;
            }
        }
    };
    // It may be cut off, or be held up; the peer is neither.
    let _ = timeout(Duration::from_secs(5), flood).await;
    left.operator().up(&net()).await.unwrap();
    traffic(&mut hosts, 3).await;
}
