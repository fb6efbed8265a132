//! Connections that break (RFC 9329 §6.1, §6.2).

use std::time::Duration;

use ike_proto::dataplane::{Encapsulation, Event};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Failure};
use ike_tests::network::{Fate, Nat};
use ike_tests::{A, B, Pair};

use crate::tcp::stage::{LONG, assert_esp_on, assert_on_tcp, end, in_tcp, over_tcp, seconds, sent};

/// Breaks the connection in the place of the `n`-th message from now.
fn cut_at(pair: &mut Pair, n: usize) {
    let mut seen = 0;
    pair.net.tap(move |_| {
        seen += 1;
        if seen == n { Fate::Drop } else { Fate::Pass }
    });
}

/// Whichever message the connection breaks under, the handshake is completed on the next.
#[test]
fn in_the_handshake() {
    for n in 1..=6 {
        let mut setup = over_tcp(n as u64);
        setup.both(|side| {
            side.ike_proposals(&["aes256gcm16-prfsha384-x25519-ke1_ecp256"]);
        });
        let mut pair = setup.build();
        cut_at(&mut pair, n);
        let started = pair.now();
        pair.establish();
        assert!(pair.now() - started < seconds(2), "{n}: {}", pair.story());
        assert_eq!(pair.streams.all.len(), 2, "{n}: {}", pair.story());
        pair.run_for(seconds(60));
        assert_on_tcp(&pair, in_tcp);
        assert_esp_on(&pair, 1);
        pair.assert_agreement();
        end(&mut pair);
    }
}

/// The same in every exchange of an established SA, begun by either end.
#[test]
fn in_an_exchange() {
    for host in [A, B] {
        for n in 1..=4 {
            for what in 0..4 {
                let mut pair = over_tcp(7).build();
                pair.establish();
                cut_at(&mut pair, n);
                match what {
                    0 => _ = pair.rekey_child(host),
                    1 => _ = pair.rekey_ike(host),
                    2 => {
                        let child = pair.child_id(host);
                        pair.command(host, Command::TerminateChild(child));
                    }
                    _ => {
                        let ike = pair.ike_id(host);
                        pair.command(host, Command::TerminateIke(ike));
                    }
                }
                pair.run_for(seconds(60));
                if let Err(why) = pair.agreement() {
                    panic!("{host} {n} {what}: {why}\n{}", pair.story());
                }
                if what < 2 {
                    assert_on_tcp(&pair, in_tcp);
                    assert_esp_on(&pair, pair.streams.newest());
                    assert_eq!(pair.a().child_downs(), [], "{}", pair.story());
                }
            }
        }
    }
}

/// Nothing is under way: the end that opened it opens another, and shows itself on it at once.
#[test]
fn an_idle_connection_is_opened_anew() {
    let mut pair = over_tcp(20).build();
    pair.establish();
    for n in 0..5 {
        pair.cut(n);
        pair.run_for(seconds(60));
        assert_eq!(pair.streams.open(), [n + 1], "{}", pair.story());
        assert_esp_on(&pair, n + 1);
        assert!(pair.streams.all[n + 1].kept, "{}", pair.story());
        pair.assert_agreement();
    }
    end(&mut pair);
}

/// Some peers, and some NATs, use one port always: the next connection has the ends of the one before.
#[test]
fn the_next_connection_has_the_same_ends() {
    let mut pair = over_tcp(24).build();
    pair.streams.same_port = true;
    pair.establish();
    for n in 0..3 {
        pair.cut(n);
        pair.run_for(seconds(5));
        assert_esp_on(&pair, n + 1);
        assert!(pair.streams.all[n + 1].kept, "{}", pair.story());
        let request = pair.rekey_child(B);
        pair.run_for(seconds(5));
        assert_eq!(pair.b().done(request), Some(Ok(())), "{}", pair.story());
        pair.run_for(seconds(30));
        pair.assert_agreement();
    }
    end(&mut pair);
}

/// A peer that shows itself on its next connection by ESP alone. The end that opens them knows better.
#[test]
fn esp_comes_by_another_connection() {
    let mut pair = over_tcp(25).build();
    pair.establish();
    let next: std::net::SocketAddr = "10.0.0.1:50000".parse().unwrap();
    for cut in [false, true] {
        if cut {
            let path = pair.b().ike().path;
            pair.tell_stream(B, path, "reset");
        }
        let sa = pair.b().child().inbound;
        pair.plane_event(B, Event::Mapping { sa, remote: next });
        assert_eq!(pair.b().ike().path.remote, next);
        let Some(Encapsulation::Tcp(ports)) = pair.b().child().encap else { panic!() };
        assert_eq!(ports.dst_port, 50000, "{}", pair.story());
        for (id, sa) in pair.b().plane.table().sas() {
            let Some(Encapsulation::Tcp(ports)) = sa.encap else { panic!("{id:?}") };
            assert!([ports.src_port, ports.dst_port].contains(&50000), "{id:?} {ports:?}");
        }
        // By what really comes it is found again.
        pair.rekey_child(A);
        pair.run_for(seconds(10));
        assert_esp_on(&pair, pair.streams.newest());
    }
    let path = pair.a().ike().path;
    let sa = pair.a().child().inbound;
    pair.plane_event(A, Event::Mapping { sa, remote: "10.0.0.2:50000".parse().unwrap() });
    assert_eq!(pair.a().ike().path, path);
    pair.run_for(seconds(30));
    pair.assert_agreement();
}

/// The end that opened it learns of it alone: the peer moves to the newest by what comes there.
#[test]
fn the_peer_does_not_know() {
    let mut pair = over_tcp(21).build();
    pair.establish();
    pair.cut_opener(0);
    pair.run_for(seconds(5));
    assert_esp_on(&pair, 1);
    // And its requests go there.
    let request = pair.rekey_child(B);
    pair.run_for(seconds(5));
    assert_eq!(pair.b().done(request), Some(Ok(())), "{}", pair.story());
    pair.run_for(seconds(30));
    pair.assert_agreement();
}

/// A responder cannot open one. What it asks waits for its peer, which is away for a while.
#[test]
fn requests_of_the_responder_wait() {
    let mut pair = over_tcp(22).build();
    pair.establish();
    pair.streams.refuse.insert(B);
    pair.cut(0);
    let before = pair.b().sent;
    let request = pair.rekey_child(B);
    pair.run_for(seconds(60));
    assert_eq!(pair.b().sent, before, "{}", pair.story());
    assert_eq!(pair.b().done(request), None);
    pair.streams.refuse.clear();
    pair.run_for(seconds(40));
    assert_eq!(pair.b().done(request), Some(Ok(())), "{}", pair.story());
    pair.assert_agreement();
    assert_on_tcp(&pair, in_tcp);
}

/// Nobody comes back: the peer is dead by the usual time, at both ends where both have asked.
#[test]
fn nobody_comes_back() {
    for refuse in [true, false] {
        let mut setup = over_tcp(23);
        setup.b.connection.dpd_delay = seconds(20);
        let mut pair = setup.build();
        pair.establish();
        if refuse {
            pair.streams.refuse.insert(B);
        } else {
            pair.streams.swallow = true;
        }
        pair.cut(0);
        pair.run_for(LONG);
        for host in [A, B] {
            assert!(pair.hosts[host].ikes().is_empty(), "{}", pair.story());
            assert_eq!(pair.hosts[host].ike_downs()[0].1, Failure::Timeout);
        }
        // Waits grow: a connection that is refused at once is not tried all the time.
        let tried = pair.streams.all.len();
        assert!((5..30).contains(&tried), "{tried}");
    }
}

/// A connection that breaks whenever it is there does not make a storm of them.
#[test]
fn a_connection_that_never_holds() {
    let mut pair = over_tcp(24).build();
    pair.net.tap(|_| Fate::Drop);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(LONG);
    assert_eq!(pair.a().done(request), Some(Err(Failure::Timeout)), "{}", pair.story());
    assert!(pair.streams.all.len() < 30, "{}", pair.streams.all.len());
    assert!(pair.b().ikes().is_empty());
}

/// The address changes with the connection: a NAT takes another one.
#[test]
fn the_next_comes_from_elsewhere() {
    let mut setup = over_tcp(25);
    setup.b.connection.remote_addrs = vec![ike_proto::config::AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into()));
    pair.establish();
    pair.net.nats[0].outside = [192, 0, 2, 99].into();
    pair.net.nats[0].rebind();
    pair.cut(0);
    pair.run_for(seconds(10));
    let path = pair.b().ike().path;
    assert_eq!(path.remote.ip(), std::net::IpAddr::from([192, 0, 2, 99]), "{}", pair.story());
    assert_esp_on(&pair, 1);
    assert!(pair.b().plane.outbound().all(|(id, _)| id.dst == path.remote.ip()));
    pair.assert_agreement();
}

/// The data plane takes its time with the child, the verdict too, and meanwhile the connection breaks: the
/// answer goes by the one the request came by again.
#[test]
fn while_the_answer_is_being_made() {
    let mut setup = over_tcp(26);
    setup.b.plane.delay = seconds(2);
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    let auth =
        |w: &ike_tests::World| w.net.trace.iter().any(|p| p.is(ExchangeType::IKE_AUTH, false));
    assert!(pair.run_until(seconds(1), auth));
    pair.run_for(Duration::from_millis(100));
    pair.cut_opener(0);
    pair.run_for(seconds(10));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair.assert_agreement();
    assert_esp_on(&pair, 1);
}

/// The half-open SA of an initiator that is not seen again goes before its time.
#[test]
fn a_half_open_sa_goes_with_its_connection() {
    let mut pair = over_tcp(27).build();
    pair.net.tap(|packet| {
        // The initiator is cut off for good after IKE_SA_INIT.
        if packet.is(ExchangeType::IKE_AUTH, false) { Fate::Drop } else { Fate::Pass }
    });
    pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_millis(60));
    assert_eq!(pair.b().endpoint.half_open(), 1, "{}", pair.story());
    pair.streams.refuse.insert(B);
    pair.run_for(seconds(12));
    assert_eq!(pair.b().endpoint.half_open(), 0, "{}", pair.story());
}

/// Nothing is sent by a connection that is not there.
#[test]
fn nothing_is_sent_into_the_void() {
    let mut pair = over_tcp(28).build();
    pair.establish();
    pair.streams.refuse.insert(B);
    pair.cut(0);
    let before = sent(&pair);
    pair.run_for(seconds(100));
    assert_eq!(sent(&pair), before, "{}", pair.story());
}
