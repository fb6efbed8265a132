//! What the tests have in common.

use std::time::Duration;

use ike_proto::Transport;
use ike_proto::config::{SeparateTransports, TcpUse};
use ike_proto::dataplane::Encapsulation;
use ike_tests::network::Fate;
use ike_tests::{A, Pair, Setup};

pub const LONG: Duration = Duration::from_secs(300);
/// What `Streams::open` has when all are closed, with a type that comparisons can tell.
pub const NO_STREAMS: [usize; 0] = [];

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A is configured to use TCP.
pub fn over_tcp(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.connection.enable_tcp = TcpUse::Yes;
    setup
}

/// Both ends take separate transports, and A asks for them. It begins over UDP.
pub fn separate(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.connection.separate_transports = SeparateTransports::Yes;
    setup.b.settings.accepts_tcp = true;
    setup
}

/// Brings "net" up from A, and checks that both ends agree once what is left of other attempts is gone.
#[track_caller]
pub fn comes_up(pair: &mut Pair) {
    let request = pair.initiate(A, Some("net"));
    pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair.run_for(seconds(40));
    pair.assert_agreement();
}

/// Nothing gets through that is not TCP.
pub fn block_udp(pair: &mut Pair) {
    pair.net.tap(|packet| if packet.stream.is_none() { Fate::Drop } else { Fate::Pass });
}

/// Messages sent by TCP, and otherwise.
pub fn sent(pair: &Pair) -> (usize, usize) {
    let tcp = pair.net.trace.iter().filter(|packet| packet.stream.is_some()).count();
    (tcp, pair.net.trace.len() - tcp)
}

/// Checks that IKE is on TCP at both ends, and where ESP is.
#[track_caller]
pub fn assert_on_tcp(pair: &Pair, esp: fn(&Option<Encapsulation>) -> bool) {
    for host in [pair.a(), pair.b()] {
        assert_eq!(host.ike().path.transport, Transport::Tcp, "{}", pair.story());
        for child in host.children() {
            assert!(esp(&child.encap), "{:?}\n{}", child.encap, pair.story());
        }
        for (id, sa) in host.plane.table().sas() {
            assert!(esp(&sa.encap), "{id:?} {:?}\n{}", sa.encap, pair.story());
        }
    }
}

pub fn in_tcp(encap: &Option<Encapsulation>) -> bool {
    matches!(encap, Some(Encapsulation::Tcp(_)))
}

pub fn in_udp(encap: &Option<Encapsulation>) -> bool {
    matches!(encap, Some(Encapsulation::Udp(_)))
}

pub fn in_ip(encap: &Option<Encapsulation>) -> bool {
    encap.is_none()
}

/// Every SA of both data planes names the connection that is there now.
#[track_caller]
pub fn assert_esp_on(pair: &Pair, n: usize) {
    let connection = &pair.streams.all[n];
    for (host, path) in [Some(connection.opener), connection.acceptor].into_iter().flatten() {
        for (id, sa) in pair.hosts[host].plane.table().sas() {
            let Some(Encapsulation::Tcp(ports)) = sa.encap else { panic!("{id:?} not in TCP") };
            let ends = [path.local.port(), path.remote.port()];
            let named = [ports.src_port, ports.dst_port];
            let fits = named == ends || named == [ends[1], ends[0]];
            assert!(fits, "host {host}: {named:?} {ends:?}\n{}", pair.story());
        }
    }
}

/// Deletes the IKE SA from A, and checks that nothing is left, connections neither.
#[track_caller]
pub fn end(pair: &mut Pair) {
    let ike = pair.ike_id(A);
    let request = pair.command(A, ike_proto::Command::TerminateIke(ike));
    pair.run_for(seconds(30));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty(), "{}", pair.story());
    assert_eq!(pair.streams.open(), NO_STREAMS, "{}", pair.story());
}
