//! What strangers and eavesdroppers can do with connections of their own (RFC 9329 §10).

use std::net::SocketAddr;

use ike_proto::wire::registry::ExchangeType;
use ike_proto::{DropReason, Path, StreamEvent, Transport};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::setup::{address, identity};
use ike_tests::{A, B, ExchangeFate, Pair};

use crate::tcp::stage::{assert_esp_on, over_tcp, seconds, separate};

fn elsewhere() -> SocketAddr {
    "203.0.113.9:5555".parse().unwrap()
}

/// Everything that was ever sent, played to the responder by a connection of somebody else.
#[test]
fn a_replay_moves_nothing() {
    let mut pair = over_tcp(1).build();
    pair.establish();
    pair.rekey_child(A);
    pair.run_for(seconds(5));
    let path = pair.b().ike().path;
    let stranger = pair.stranger(B, elsewhere());
    let played: Vec<_> = pair.net.trace.iter().map(|p| p.octets.clone()).collect();
    for octets in &played {
        pair.receive(B, stranger, octets);
    }
    assert_eq!(pair.b().ike().path, path);
    assert_esp_on(&pair, 0);
    // The last request came again: who has the keys may want the answer, and nobody else can read it.
    let answers = pair.net.trace.iter().filter(|p| p.dst == elsewhere()).count();
    assert!(answers <= 2, "{answers}\n{}", pair.story());
    pair.tell_stream(B, stranger, "closed");
    pair.run_for(seconds(60));
    assert_eq!(pair.b().ike().path, path);
    assert_eq!(pair.streams.open(), [0]);
}

/// The connection of an IKE SA is for no other one: there the SA ends with it, and a message is routed.
#[test]
fn a_connection_has_one_ike_sa() {
    let mut pair = over_tcp(6).build();
    pair.establish();
    let path = pair.b().ike().path;
    let mut octets = pair.net.trace[0].octets.to_vec();
    octets[7] ^= 1;
    let other = pair.stranger(B, pair.socket(A, 5555));
    for (path, half_open) in [(path, 0), (other, 1)] {
        pair.receive(B, path, &octets);
        assert_eq!(pair.b().endpoint.half_open(), half_open, "{:?}", pair.b().dropped);
    }
    // The successor keeps the connection.
    pair.rekey_ike(A);
    pair.run_for(seconds(60));
    pair.assert_agreement();
    assert_eq!(pair.b().ike().path, path);
}

//= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
//# Multiple IKE SAs MUST NOT share a single TCP connection, unless one
//# is a rekey of an existing IKE SA
/// Two that are begun on one connection before either is established.
#[test]
fn of_two_half_open_ones_a_connection_keeps_one() {
    let mut side = ike_tests::setup::side(1, 2);
    side.settings.accepts_tcp = true;
    let mut bench = Bench::with(side);
    let here = SocketAddr::new(address(1), 4500);
    let from = SocketAddr::new(address(2), 5555);
    let path = Path { local: here, remote: from, transport: Transport::Tcp };
    let give = |bench: &mut Bench, octets: &[u8]| {
        bench.world.net.tracing = true;
        let before = bench.world.net.trace.len();
        bench.world.receive(0, path, octets);
        let sent = bench.world.net.trace[before..].iter().map(|p| p.octets.to_vec());
        sent.collect::<Vec<_>>()
    };
    let mut peers: Vec<_> = (0..2)
        .map(|_| {
            let started = bench.start();
            let sent = give(&mut bench, &started.request);
            started.finish(&sent[0]).unwrap()
        })
        .collect();
    assert_eq!(bench.host().endpoint.half_open(), 2);
    let id = identity(2);
    for (n, peer) in peers.iter_mut().enumerate() {
        let auth = peer.auth(&id, PSK);
        let payloads = auth_payloads(&id, &auth, 1007 + n as u32, true);
        let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
        let sent = give(&mut bench, &request);
        assert_eq!(sent.iter().filter_map(|sent| peer.open(sent)).count(), usize::from(n == 0));
    }
    assert_eq!(bench.host().ike().spi_i, peers[0].spi_i);
    assert_eq!(bench.host().endpoint.half_open(), 0);
    bench.assert_nothing_leaked();
}

/// Who asks again by a connection of his own is where he says: no limit for others is his.
#[test]
fn a_request_that_comes_again_is_always_answered() {
    let mut pair = over_tcp(7).build();
    pair.net.manual = true;
    pair.initiate(A, Some("net"));
    pair.run_for(std::time::Duration::from_millis(25));
    let init = pair.net.trace[0].octets.clone();
    for n in 0..200_u16 {
        let path = pair.stranger(B, pair.socket(A, 10_000 + n));
        pair.receive(B, path, &init);
    }
    let answers = pair.net.trace.iter().filter(|p| p.dst.port() >= 10_000).count();
    assert_eq!(answers, 200);
}

/// The request that is being answered is played by somebody else: its sender gets the answer all the same.
#[test]
fn a_replay_draws_no_answer_away() {
    let mut setup = over_tcp(2);
    setup.b.plane.delay = seconds(1);
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    let seen =
        |w: &ike_tests::World| w.net.trace.iter().any(|p| p.is(ExchangeType::IKE_AUTH, false));
    assert!(pair.run_until(seconds(1), seen));
    pair.run_for(std::time::Duration::from_millis(100));
    let auth = pair.net.trace.last().unwrap().octets.clone();
    let stranger = pair.stranger(B, elsewhere());
    pair.receive(B, stranger, &auth);
    pair.run_for(seconds(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.streams.all.len(), 1);
    assert_ne!(pair.b().ike().path.remote, elsewhere());
}

/// An IKE_SA_INIT response by any other connection than that of the request is forged.
#[test]
fn a_response_by_another_connection_is_not_taken() {
    let mut pair = over_tcp(3).build();
    pair.net.manual = true;
    let request = pair.initiate(A, Some("net"));
    pair.run_for(std::time::Duration::from_millis(25));
    let init = pair.net.trace[0].clone();
    let forged =
        ike_tests::forge::notify_response(&init, ike_proto::wire::registry::NotifyType(14), &[]);
    let udp =
        Path { local: pair.socket(A, 500), remote: pair.socket(B, 500), transport: Transport::Udp };
    let stranger = pair.stranger(A, pair.socket(B, 4500));
    for path in [udp, stranger] {
        pair.receive(A, path, &forged.octets);
        assert_eq!(pair.a().dropped.last(), Some(&DropReason::InitResponseTransport));
    }
    pair.net.manual = false;
    pair.run_for(seconds(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
}

/// A stranger's connection costs nothing, opened, used for nonsense, or closed.
#[test]
fn a_strangers_connection_costs_no_state() {
    let mut pair = over_tcp(4).build();
    pair.establish();
    let trace = pair.net.trace.len();
    let child = pair.b().child();
    for n in 0..1000_u16 {
        let from = SocketAddr::new([203, 0, 113, 9].into(), 1024 + n);
        let stranger = pair.stranger(B, from);
        pair.receive(B, stranger, &[0; 28]);
        pair.receive(B, stranger, &[0xff; 3]);
        let mut forged = pair.net.trace[trace - 1].octets.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        pair.receive(B, stranger, &forged);
        pair.handle_stream(B, stranger, StreamEvent::Closed("reset".to_owned()));
    }
    assert_eq!(pair.b().endpoint.half_open(), 0);
    assert_eq!(pair.b().child().id, child.id);
    assert_eq!(pair.streams.open(), [0]);
    // Answers to messages outside any SA are few.
    assert!(pair.net.trace.len() - trace < 50, "{}", pair.net.trace.len() - trace);
    // A connection that is none of ours, said to be open or closed, is nothing either.
    let nobody = Path { local: pair.socket(A, 7), ..pair.a().ike().path };
    let local = pair.socket(A, 4711);
    pair.handle_stream(A, nobody, StreamEvent::Opened(local));
    pair.handle_stream(A, nobody, StreamEvent::Closed(String::new()));
    pair.run_for(seconds(60));
    pair.assert_agreement();
}

/// Half-open SAs are limited over TCP as over UDP.
#[test]
fn half_open_sas_are_limited() {
    let mut setup = over_tcp(5);
    setup.b.connection.remote_addrs = vec![ike_proto::config::AddressSpec::Any(None)];
    setup.b.settings.init_limit_half_open = 20;
    let mut pair = setup.build();
    pair.initiate(A, Some("net"));
    pair.run_for(std::time::Duration::from_millis(25));
    let init = pair.net.trace[0].octets.to_vec();
    for n in 0..200_u16 {
        let mut octets = init.clone();
        octets[..2].copy_from_slice(&(n + 1).to_be_bytes());
        let stranger = pair.stranger(B, SocketAddr::new([203, 0, 113, 9].into(), 1024 + n));
        pair.receive(B, stranger, &octets);
        assert!(pair.b().endpoint.half_open() <= 20);
    }
    assert!(pair.b().endpoint.half_open() >= 10, "{:?}", pair.b().dropped);
    pair.run_for(seconds(40));
    assert_eq!(pair.b().endpoint.half_open(), 0);
}

/// An SA over UDP is not to be had over TCP, nor the other way round.
#[test]
fn transports_are_not_mixed() {
    let mut pair = Pair::established(6);
    pair.net.manual = true;
    pair.rekey_child(A);
    let octets = pair.net.mailbox[0].octets.clone();
    let stranger = pair.stranger(B, elsewhere());
    pair.receive(B, stranger, &octets);
    assert_eq!(pair.b().dropped.last(), Some(&DropReason::WrongTransport));
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(seconds(30));
    pair.assert_agreement();

    let mut pair = separate(6).build();
    pair.establish();
    let octets = pair.net.trace.last().unwrap().octets.clone();
    let udp = Path {
        local: pair.socket(A, 4500),
        remote: pair.socket(B, 4500),
        transport: Transport::UdpEncap,
    };
    pair.receive(A, udp, &octets);
    assert_eq!(pair.a().dropped.last(), Some(&DropReason::WrongTransport));
}

/// A request that waits for a slow key exchange uses its connection as one that was answered does: that of
/// another one that comes to nothing does not end with it.
#[test]
fn a_request_that_waits_keeps_its_connection() {
    const SLOW: &str = "aes256gcm16-prfsha256-modp2048";
    let setup = |seed| {
        let mut setup = over_tcp(seed);
        setup.both(|side| side.ike_proposals(&[SLOW]));
        // The initiator waits for its own secret all the time.
        setup.a.settings.half_open_timeout = seconds(200);
        let mut pair = setup.build();
        let fates = [ExchangeFate::After(seconds(0)), ExchangeFate::Never];
        pair.hosts[A].exchange_fates = fates.into();
        pair.initiate(A, Some("net"));
        pair.run_for(seconds(20));
        pair
    };
    let other = setup(8).net.trace[0].octets.clone();
    let mut pair = setup(9);
    let (_, path) = pair.streams.all[0].acceptor.unwrap();
    assert_eq!(pair.b().endpoint.half_open(), 1);
    pair.hosts[B].exchange_delay = Some(seconds(15));
    pair.receive(B, path, &other);
    pair.run_for(seconds(12));
    assert_eq!(pair.b().ikes().len(), 1, "the first is given up\n{}", pair.story());
    assert_eq!(pair.streams.open(), [0], "{}", pair.story());
    let before = pair.net.trace.len();
    pair.run_for(seconds(5));
    let answers = pair.net.trace[before..].iter().filter(|p| p.from == Some(B));
    assert_eq!(answers.filter(|p| p.stream == Some(0)).count(), 1, "{}", pair.story());
    // Its sender does not go on; that of the first asks again, by the same connection.
    pair.run_for(seconds(30));
    assert_eq!(pair.streams.all.len(), 1, "{}", pair.story());
    pair.assert_agreement();
}

/// What waits on a connection that another has made its own is over.
#[test]
fn what_waits_ends_with_its_connection() {
    let mut setup = over_tcp(11);
    setup.both(|side| {
        side.ike_proposals(&["aes256gcm16-prfsha256-modp2048", "aes256gcm16-prfsha256-x25519"]);
    });
    let mut other = over_tcp(12);
    other.a.ike_proposals(&["aes256gcm16-prfsha256-modp2048"]);
    let mut other = other.build();
    other.initiate(A, Some("net"));
    other.run_for(seconds(1));
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    let auth =
        |w: &ike_tests::World| w.net.trace.iter().any(|p| p.is(ExchangeType::IKE_AUTH, false));
    assert!(pair.run_until(seconds(10), auth));
    pair.hosts[B].exchange_delay = Some(seconds(15));
    let (_, path) = pair.streams.all[0].acceptor.unwrap();
    pair.receive(B, path, &other.net.trace[0].octets);
    assert_eq!(pair.b().endpoint.half_open(), 2);
    pair.run_for(seconds(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!((pair.b().endpoint.half_open(), pair.b().ikes().len()), (0, 1), "{}", pair.story());
    pair.run_for(seconds(60));
    pair.assert_agreement();
}
