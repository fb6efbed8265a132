//! ESP packets for which there is no SA (RFC 7296 §1.5, RFC 6290 §8.2).

use std::net::SocketAddr;

use ike_proto::dataplane::{Event as PlaneEvent, SaId};
use ike_tests::setup::address;

use super::*;

/// Nobody asks after anybody by himself; B says that it has no SA.
fn silent(seed: u64) -> Setup {
    let mut setup = setup(seed);
    setup.both(|side| side.connection.dpd_delay = Duration::ZERO);
    setup.b.settings.send_invalid_spi = true;
    setup
}

/// B's data plane has no SA for a packet of A's.
fn packet(pair: &mut Pair, spi: u32, port: u16, octets: usize) {
    let (local, remote) = (pair.address(B), SocketAddr::new(pair.address(A), port));
    pair.plane_event(B, PlaneEvent::UnknownSpi { spi, local, remote, octets });
}

/// What A sends by.
fn outbound(pair: &Pair) -> SaId {
    pair.a().child().outbound
}

/// How many INFORMATIONAL requests `host` has sent.
fn asked(pair: &Pair, host: usize) -> usize {
    let all = pair.net.trace.iter().filter(|packet| packet.from == Some(host));
    all.filter(|packet| packet.is(ExchangeType::INFORMATIONAL, false)).count()
}

/// Somebody at B's address says that B has no such SA.
fn hint(pair: &mut Pair, spi: u32) {
    let header = Header { message_id: 0, ..request(0, 0) };
    let spi = spi.to_be_bytes();
    let said = [Payload::Notify(Notify::new(NotifyType::INVALID_SPI, &spi))];
    let (src, dst) = (pair.socket(B, 500), pair.socket(A, 500));
    pair.inject(Packet::forged(src, dst, encode_message(&header, &said)));
}

#[test]
fn a_crash_is_found_by_a_packet_of_esp() {
    for port in [0, 4500] {
        let mut pair = established(silent(1));
        pair.run_for(MINUTE);
        let spi = outbound(&pair).spi;
        crash(&mut pair, B);
        let begun = pair.now();
        packet(&mut pair, spi, port, 100);
        let found = |pair: &Pair| found(pair, A);
        assert!(pair.run_until(MINUTE, |w| !w.hosts[A].ike_downs().is_empty()), "{}", pair.story());
        assert_eq!(found(&pair), 1);
        assert_eq!(pair.now() - begun, Duration::from_millis(30), "one way, and there and back");
        // What B said, in so many octets and to where the packet came from.
        let said =
            pair.net.trace.iter().find(|packet| packet.from == Some(B) && packet.sent == begun);
        let said = said.unwrap();
        assert_eq!((said.octets.len(), said.dst.port()), (40, if port == 0 { 500 } else { port }));
        let header = said.header().unwrap();
        assert_eq!((header.spi_i, header.spi_r, header.message_id), (0, 0, 0));
        assert!(header.flags.initiator && !header.flags.response);
        pair.run_for(5 * SECOND);
        pair.assert_agreement();
    }
}

/// Without the option nothing is said, and a crash is found as late as ever.
#[test]
fn nobody_is_told_who_does_not_want_that() {
    let mut setup = silent(2);
    setup.b.settings.send_invalid_spi = false;
    let mut pair = established(setup);
    pair.run_for(MINUTE);
    let spi = outbound(&pair).spi;
    crash(&mut pair, B);
    let before = pair.hosts[B].sent;
    packet(&mut pair, spi, 0, 100);
    pair.run_for(MINUTE);
    assert_eq!((pair.hosts[B].sent, found(&pair, A)), (before, 0));
}

/// Where there is an IKE SA it is said on that, and changes nothing.
#[test]
fn a_peer_with_an_ike_sa_is_told_by_it() {
    let mut pair = established(silent(3));
    pair.run_for(MINUTE);
    let before = (asked(&pair, B), pair.net.trace.len());
    for _ in 0..10 {
        packet(&mut pair, 0x1234_5678, 0, 100);
        pair.run_for(SECOND / 100);
    }
    pair.run_for(5 * SECOND);
    assert_eq!(asked(&pair, B) - before.0, 1, "{}", pair.story());
    let clear = pair.net.trace[before.1..].iter().any(|packet| packet.header().unwrap().spi_i == 0);
    assert!(!clear);
    // An SPI of this end's own is of an SA that comes or goes.
    let own = pair.b().child().inbound.spi;
    packet(&mut pair, own, 0, 100);
    pair.run_for(5 * SECOND);
    assert_eq!(asked(&pair, B) - before.0, 1);
    pair.assert_agreement();
}

/// Who makes packets up has nobody sent more than that, nor more often than now and then.
#[test]
fn nobody_is_flooded() {
    let mut pair = established(silent(4));
    crash(&mut pair, B);
    let before = pair.hosts[B].sent;
    // In UDP its header has come, too, and the marker goes back.
    for (port, least) in [(0, 48), (4500, 44)] {
        for octets in 0..least {
            packet(&mut pair, 7, port, octets);
        }
    }
    assert_eq!(pair.hosts[B].sent, before, "too short to be worth an answer");
    for _ in 0..1000 {
        packet(&mut pair, 7, 0, 1400);
    }
    assert_eq!(pair.hosts[B].sent - before, 2);
    for n in 0..=u8::MAX {
        let (local, remote) = (address(2), SocketAddr::new([10, 7, 0, n].into(), 0));
        for _ in 0..4 {
            let event = PlaneEvent::UnknownSpi { spi: 7, local, remote, octets: 1400 };
            pair.plane_event(B, event);
        }
    }
    assert_eq!(pair.hosts[B].sent - before, 100, "to all of them");
}

/// It is a hint and no more: whoever makes it up has A ask B once in a while, and has to know an SPI for that.
#[test]
fn a_hint_that_is_made_up() {
    let mut pair = established(silent(5));
    let spi = outbound(&pair).spi;
    // B was heard a moment ago.
    hint(&mut pair, spi);
    assert_eq!(asked(&pair, A), 0);
    pair.run_for(MINUTE);
    let own = pair.a().child().inbound.spi;
    let before = pair.hosts[A].sent;
    for wrong in [0, 1, own, spi ^ 1] {
        hint(&mut pair, wrong);
        pair.run_for(2 * SECOND);
    }
    assert_eq!(pair.hosts[A].sent, before, "no answer, and nothing is asked");
    for _ in 0..100 {
        hint(&mut pair, spi);
        pair.run_for(SECOND / 10);
    }
    assert!((1..=3).contains(&asked(&pair, A)), "{}", pair.story());
    assert!(pair.a().ike_downs().is_empty());
    pair.assert_agreement();
}

/// It is no answer to be answered, whatever else is in it.
#[test]
fn it_is_not_answered() {
    let mut pair = established(silent(6));
    pair.run_for(MINUTE);
    let before = pair.hosts[A].sent;
    let spi = 0x0102_0304_u32.to_be_bytes();
    let unknown = Payload::Notify(Notify::new(NotifyType::INVALID_SPI, &spi));
    let none = Payload::Notify(Notify::new(NotifyType::INVALID_SPI, &[]));
    for (spis, payloads) in [
        ((0, 0), vec![unknown.clone()]),
        ((0, 0), vec![none]),
        ((0, 0), vec![]),
        ((9, 0), vec![unknown.clone()]),
        ((9, 9), vec![unknown]),
    ] {
        let octets = encode_message(&request(spis.0, spis.1), &payloads);
        let (src, dst) = (pair.socket(B, 500), pair.socket(A, 500));
        pair.inject(Packet::forged(src, dst, octets));
        assert_eq!(pair.hosts[A].sent, before, "{spis:?}");
        pair.run_for(SECOND);
    }
}
