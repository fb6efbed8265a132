//! Classes 5, 15 and 21: what there is a lot of, from strangers and from peers that are authenticated.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::config::{AddressSpec, Fragmentation};
use ike_proto::wire::payload::{Delete, Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};
use ike_proto::wire::{Header, Message};
use ike_proto::{Command, RequestId};
use ike_tests::bench::{Bench, net};
use ike_tests::handmade::{ESP, Handmade, IKE, notifies, proposal};
use ike_tests::network::{Fate, Packet};
use ike_tests::setup::{address, side};
use ike_tests::{A, B, Setup};
use xfrm::{CommandKind, Fault};

const CREATE_CHILD_SA: ExchangeType = ExchangeType::CREATE_CHILD_SA;
const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;

/// An endpoint with these `cookie_threshold`, `cookie_threshold_ip` and `block_threshold`.
fn guarded(cookie: u32, cookie_ip: u32, block: u32) -> Bench {
    let mut side = side(1, 2);
    side.connection.remote_addrs = vec![AddressSpec::Any(None)];
    side.settings.cookie_threshold = cookie;
    side.settings.cookie_threshold_ip = cookie_ip;
    side.settings.block_threshold = block;
    Bench::with(side)
}

/// What a new request from host `n` is answered: an SA, a cookie, or not at all.
fn knock(bench: &mut Bench, n: u8) -> &'static str {
    let started = bench.start();
    answered(bench, n, &started.request)
}

fn answered(bench: &mut Bench, n: u8, request: &[u8]) -> &'static str {
    let sent = bench.give_from(SocketAddr::new(address(n), 500), request);
    let Some(answer) = sent.first() else { return "nothing" };
    match cookie_in(answer) {
        Some(_) => "cookie",
        None => "SA",
    }
}

fn cookie_in(answer: &[u8]) -> Option<Vec<u8>> {
    let message = Message::decode(answer).unwrap();
    message.payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => Some(notify.data.to_vec()),
        _ => None,
    })
}

/// Whoever has one address of an IPv6 link has all of them.
#[test]
fn class_05_block_threshold_limits_the_half_open_sas_of_one_ipv6_link() {
    let mut bench = guarded(0, 0, 5);
    let mut knock_from = |prefix: u16, host: u16| {
        let from = IpAddr::from([0x2001, 0xdb8, 0, prefix, 0, 0, 0, host]);
        let started = bench.start();
        bench.give_from(SocketAddr::new(from, 500), &started.request).len()
    };
    let answers: Vec<_> = (1..8).map(|host| knock_from(1, host)).collect();
    assert_eq!(answers, [1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(knock_from(2, 1), 1, "another link");
    assert_eq!(bench.host().endpoint.half_open(), 6);
    bench.world.run_for(Duration::from_secs(31));
    assert_eq!(bench.host().endpoint.half_open(), 0);
}

#[test]
fn class_05_block_threshold_limits_the_half_open_sas_of_one_address() {
    let mut bench = guarded(0, 0, 5);
    let answers: Vec<_> = (0..8).map(|_| knock(&mut bench, 2)).collect();
    assert_eq!(answers, ["SA", "SA", "SA", "SA", "SA", "nothing", "nothing", "nothing"]);
    assert_eq!(bench.host().endpoint.half_open(), 5);
    assert_eq!(knock(&mut bench, 3), "SA", "another address");
    // From another port it is the same address.
    let started = bench.start();
    assert_eq!(bench.give_from(SocketAddr::new(address(2), 4711), &started.request).len(), 0);
    bench.world.run_for(Duration::from_secs(31));
    assert_eq!(bench.host().endpoint.half_open(), 0);
    assert_eq!(knock(&mut bench, 2), "SA");
    // Who is authenticated does not count.
    for spi in 1000..1010 {
        bench.established(spi);
        let ike = bench.host().ike().id;
        bench.world.command(0, Command::TerminateIke(ike));
        bench.sent();
        bench.world.run_for(Duration::from_secs(400));
        bench.sent();
    }
    let mut bench = guarded(0, 0, 0);
    assert!((0..50).all(|_| knock(&mut bench, 2) == "SA"), "0 is no limit");
}

#[test]
fn class_05_cookie_thresholds_are_strongswans() {
    // 0 is never, 1 is always.
    let mut bench = guarded(0, 0, 0);
    assert!((0..50).all(|_| knock(&mut bench, 2) == "SA"));
    let mut bench = guarded(1, 0, 0);
    assert_eq!(knock(&mut bench, 2), "cookie");
    let mut bench = guarded(0, 1, 0);
    assert_eq!(knock(&mut bench, 2), "cookie");
    let mut bench = guarded(4, 0, 0);
    let answers: Vec<_> = (2..8).map(|n| knock(&mut bench, n)).collect();
    assert_eq!(answers, ["SA", "SA", "SA", "cookie", "cookie", "cookie"]);
}

/// Who cannot receive at an address does not keep others there from being let in.
#[test]
fn class_05_spoofed_requests_do_not_block_an_address() {
    let mut bench = guarded(30, 3, 5);
    let answers: Vec<_> = (0..5).map(|_| knock(&mut bench, 2)).collect();
    assert_eq!(answers, ["SA", "SA", "cookie", "cookie", "cookie"]);
    let started = bench.start();
    let cookie = cookie_in(&bench.give(&started.request)[0]).expect("a cookie");
    let mut payloads = vec![Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
    payloads.extend(started.payloads());
    assert_eq!(answered(&mut bench, 2, &started.encode(&payloads)), "SA");
    assert_eq!(bench.host().endpoint.half_open(), 3);
}

/// A copy of the request that is faster, as through a NAT that changes its mind, makes no SA of its own,
/// and each is answered where it came from.
#[test]
fn class_21_a_racing_copy_of_a_request_is_answered_where_it_came_from() {
    let mut setup = Setup::new(7);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.net.manual = true;
    let request = pair.initiate(A, Some("net"));
    let genuine = pair.net.mailbox[0].clone();
    let elsewhere = SocketAddr::new(IpAddr::from([10, 0, 0, 9]), 4711);
    pair.inject(Packet::forged(elsewhere, genuine.dst, genuine.octets.clone()));
    let answer = pair.net.mailbox.remove(1);
    assert_eq!(answer.dst, elsewhere);
    pair.deliver_to(B);
    assert_eq!(pair.b().endpoint.half_open(), 1);
    let again = pair.net.mailbox[0].clone();
    assert_eq!((again.dst, again.octets), (genuine.src, answer.octets));
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.b().ikes().len(), 1);
    assert_eq!(pair.b().ike().path.remote.ip(), genuine.src.ip());
    // What is sent to places that asked for nothing is bounded.
    let mut bench = Bench::new();
    let started = bench.start();
    bench.give(&started.request);
    let away = (0..500).filter(|n| {
        let src = SocketAddr::new(address(9), 1000 + n);
        !bench.give_from(src, &started.request).is_empty()
    });
    assert_eq!(away.count(), 100);
}

/// Rekeys the IKE SA of A again and again; B never hears a Delete.
#[test]
fn class_15_predecessors_of_a_rekeyed_ike_sa_are_few() {
    let mut pair = Setup::new(8).build();
    pair.establish();
    pair.net.tap(|packet| if packet.is(INFORMATIONAL, false) { Fate::Drop } else { Fate::Pass });
    for n in 0..20 {
        let newest = pair.a().ikes().iter().map(|ike| ike.id).max().unwrap();
        let request = pair.command(A, Command::RekeyIke(newest));
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{n}: {}", pair.story());
        assert!(pair.a().ikes().len() <= 4 && pair.b().ikes().len() <= 4, "{n}");
    }
    assert_eq!(pair.b().ike_rekeys().len(), 20);
    assert!(pair.b().child_downs().is_empty() && pair.b().ike_downs().is_empty());
    pair.run_for(Duration::from_secs(300));
    pair.assert_agreement();
    pair.a().ike();
    pair.a().child();
}

fn rekey_ike(spi: u64) -> Vec<Payload<'static>> {
    vec![
        Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::Ike(spi))),
        Payload::Nonce(&[3; 32]),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &[9; 32] }),
    ]
}

fn rekey_child(spi: u32, old: u32) -> Vec<Payload<'static>> {
    vec![
        Payload::Notify(Notify::esp(NotifyType::REKEY_SA, old)),
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(spi))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![net(2)]),
        Payload::TsR(vec![net(1)]),
    ]
}

/// The notifies that a request is answered with.
fn told(bench: &mut Bench, peer: &mut Handmade, payloads: &[Payload<'_>]) -> Vec<NotifyType> {
    let request = peer.next_request(CREATE_CHILD_SA, payloads);
    let sent = bench.give(&request);
    notifies(&peer.open(&sent[0]).expect("an answer"))
}

/// One rekey of the peer may cross one of ours. More would pile up what nobody deletes.
#[test]
fn class_21_rekeys_that_cross_ours_are_not_taken_twice() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let ike = bench.host().ike().id;
    bench.world.command(0, Command::RekeyIke(ike));
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(told(&mut bench, &mut peer, &rekey_ike(1)), []);
    for spi in 2..10 {
        let answer = told(&mut bench, &mut peer, &rekey_ike(spi));
        assert_eq!(answer, [NotifyType::TEMPORARY_FAILURE]);
    }
    assert_eq!(bench.host().ikes().len(), 2);

    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::RekeyChild(child));
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(told(&mut bench, &mut peer, &rekey_child(2000, 1007)), []);
    for spi in 2001..2010 {
        let answer = told(&mut bench, &mut peer, &rekey_child(spi, 1007));
        assert_eq!(answer, [NotifyType::TEMPORARY_FAILURE]);
    }
    assert_eq!(bench.host().children().len(), 2);
}

/// A peer that answers a rekey with an SPI it uses already has the rekey made again, later.
#[test]
fn class_45_a_rekey_to_an_spi_in_use_is_made_again() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::RekeyChild(child));
    let request = |sent: &[Vec<u8>], exchange| {
        let headers = sent.iter().map(|sent| Header::peek(sent).unwrap());
        headers.rev().find(|header| header.exchange == exchange).map(|header| header.message_id)
    };
    let id = request(&bench.sent(), CREATE_CHILD_SA).expect("a rekey");
    let answer = [
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(1007))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![net(1)]),
        Payload::TsR(vec![net(2)]),
    ];
    let sent = bench.give(&peer.seal(CREATE_CHILD_SA, id, true, &answer));
    let id = request(&sent, INFORMATIONAL).expect("a Delete of what cannot be used");
    bench.give(&peer.seal(INFORMATIONAL, id, true, &[]));
    assert_eq!(bench.host().child().id, child);
    bench.world.run_for(Duration::from_secs(60));
    assert!(request(&bench.sent(), CREATE_CHILD_SA).is_some(), "the rekey again");
    bench.assert_nothing_leaked();
}

/// A removal that failed is made again, and must not hit what has the same name since.
#[test]
fn class_45_a_removal_made_again_does_not_hit_what_took_the_name() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    bench.world.hosts[0].plane.inner.fail(Fault::Every(CommandKind::RemoveSa));
    let delete = [Payload::Delete(Delete::esp(vec![1007]))];
    bench.give(&peer.next_request(INFORMATIONAL, &delete));
    assert!(bench.host().children().is_empty());
    assert_eq!(bench.host().plane.outbound_spis(), [1007], "still there");
    // The peer takes the same SPI for another child.
    let child = &rekey_child(1007, 0)[1..];
    assert_eq!(told(&mut bench, &mut peer, child), []);
    let new = bench.host().child();
    assert_eq!(new.outbound.spi, 1007);
    bench.world.hosts[0].plane.inner.heal();
    bench.world.run_for(Duration::from_secs(200));
    bench.sent();
    assert_eq!(bench.host().child().id, new.id);
    // The former inbound SA is gone, the new pair is not.
    bench.assert_nothing_leaked();
}

/// `fragment_size = 0` is the default of strongswan.conf(5).
#[test]
fn class_15_fragment_sizes_of_no_use_close_nothing() {
    for size in [0, 1, 28, 60, 100, 160] {
        let mut setup = Setup::new(9);
        setup.both(|side| {
            side.settings.fragment_size = Some(size);
            side.connection.fragmentation = Fragmentation::Force;
        });
        let mut pair = setup.build();
        let request: RequestId = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{size}: {}", pair.story());
        let longest = pair.net.trace.iter().filter(|p| !p.is(ExchangeType::IKE_SA_INIT, false));
        let longest = longest.map(|p| p.octets.len()).max().unwrap();
        let limit = if size == 0 { 1280 } else { 400 };
        assert!(longest <= limit, "{size}: {longest}");
    }
}
