//! From UDP to TCP and back (RFC 9329 §5.1).

use ike_proto::config::TcpUse;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Event, Failure, Transport};
use ike_tests::network::{Fate, Packet};
use ike_tests::{A, B, Pair, Setup};

use crate::tcp::stage::{
    NO_STREAMS, assert_on_tcp, block_udp, comes_up, end, in_tcp, seconds, sent,
};

fn falling_back(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.connection.enable_tcp = TcpUse::Fallback(seconds(5));
    setup
}

fn init_spis(pair: &Pair, tcp: bool) -> Vec<u64> {
    let requests = pair
        .net
        .trace
        .iter()
        .filter(|p| p.is(ExchangeType::IKE_SA_INIT, false) && p.stream.is_some() == tcp);
    requests.map(|p| p.header().unwrap().spi_i).collect()
}

#[test]
fn where_udp_works_tcp_is_not_touched() {
    let mut pair = falling_back(1).build();
    pair.establish();
    pair.run_for(seconds(60));
    assert!(pair.streams.all.is_empty());
    assert_eq!(pair.a().ike().path.transport, Transport::Udp);
}

#[test]
fn where_udp_is_blocked_tcp_takes_over() {
    let mut pair = falling_back(2).build();
    block_udp(&mut pair);
    let started = pair.now();
    pair.establish();
    let took = pair.now() - started;
    assert!(took >= seconds(5) && took < seconds(8), "{took:?}");
    assert_on_tcp(&pair, in_tcp);
    // RFC 9329 §5.1: sent again over UDP at least once, and made anew, with another SPI, over TCP.
    let (udp, tcp) = (init_spis(&pair, false), init_spis(&pair, true));
    assert!(udp.len() >= 2 && tcp.len() == 1, "{}", pair.story());
    assert!(!udp.contains(&tcp[0]));
    // Nobody was told of a failure.
    assert_eq!(pair.a().ike_downs(), []);
    // But of the other transport, once.
    let changed = pair.a().events(|event| match event {
        Event::TransportChanged { connection, path } => Some((connection.clone(), path.transport)),
        _ => None,
    });
    assert_eq!(changed, [("ab".to_owned(), Transport::Tcp)]);
    end(&mut pair);
}

/// Port 500 passes, port 4500 does not: the handshake falls back from IKE_AUTH as well.
#[test]
fn where_udp_is_blocked_half_way() {
    let mut setup = falling_back(3);
    setup.both(|side| side.connection.encap = ike_proto::config::EspInUdp::Yes);
    let mut pair = setup.build();
    pair.net.tap(|packet: &mut Packet| {
        let blocked = packet.stream.is_none() && packet.dst.port() == 4500;
        if blocked { Fate::Drop } else { Fate::Pass }
    });
    comes_up(&mut pair);
    assert_on_tcp(&pair, in_tcp);
}

/// A slow answer is an answer: no fallback while messages come.
#[test]
fn a_slow_peer_is_not_a_blocked_one() {
    let mut setup = falling_back(4);
    setup.conditions.delay = std::time::Duration::from_millis(2400);
    let mut pair = setup.build();
    pair.establish();
    assert!(pair.streams.all.is_empty(), "{}", pair.story());
}

/// What was learnt holds for a while; then UDP is tried first again.
#[test]
fn the_next_attempts_and_back() {
    let mut pair = falling_back(5).build();
    block_udp(&mut pair);
    pair.establish();
    end(&mut pair);
    let udp = sent(&pair).1;
    let started = pair.now();
    pair.establish();
    assert!(pair.now() - started < seconds(1), "{}", pair.story());
    assert_eq!(sent(&pair).1, udp, "UDP was not tried");
    end(&mut pair);
    // The firewall is gone, and the memory after ten minutes.
    pair.net.taps.clear();
    pair.run_for(seconds(600));
    pair.establish();
    assert_eq!(pair.a().ike().path.transport, Transport::Udp);
}

/// What was learnt is wrong by now: TCP is refused, and UDP has its turn at once.
#[test]
fn what_was_learnt_is_forgotten_if_it_is_of_no_use() {
    let mut pair = falling_back(6).build();
    block_udp(&mut pair);
    pair.establish();
    end(&mut pair);
    pair.net.taps.clear();
    pair.streams.refuse.insert(B);
    let started = pair.now();
    pair.establish();
    assert!(pair.now() - started < seconds(1), "{}", pair.story());
    assert_eq!(pair.a().ike().path.transport, Transport::Udp);
}

/// A peer that is down is not remembered as one that UDP does not reach.
#[test]
fn a_peer_that_is_down() {
    let mut setup = falling_back(7);
    setup.a.connection.keyingtries = 2;
    let mut pair = setup.build();
    block_udp(&mut pair);
    pair.streams.refuse.insert(B);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(seconds(400));
    assert_eq!(pair.a().done(request), Some(Err(Failure::Timeout)), "{}", pair.story());
    // Each try began over UDP, and ended there when TCP was refused.
    let mut spis = init_spis(&pair, false);
    spis.dedup();
    assert_eq!(spis.len(), 4, "{}", pair.story());
    assert_eq!(pair.a().ike_downs().len(), 1);
    assert_eq!(pair.streams.open(), NO_STREAMS);
}

/// A peer that takes no TCP is not lost to a link that was silent for longer than the fallback time.
#[test]
fn where_tcp_is_refused_udp_has_the_rest_of_the_time() {
    let mut pair = falling_back(8).build();
    block_udp(&mut pair);
    pair.streams.refuse.insert(B);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(seconds(30));
    assert_eq!(pair.a().done(request), None);
    pair.net.taps.clear();
    pair.run_for(seconds(16));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.a().ike().path.transport, Transport::Udp);
    assert_eq!(init_spis(&pair, true), [0; 0]);
}
