//! A hand-made responder that answers as ours would not.

use std::net::{IpAddr, SocketAddr};

use ike_proto::config::{AddressSpec, TsSpec};
use ike_proto::wire::payload::{Notify, Payload, Spi, TrafficSelector};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::{ESP, Handmade, deleted, notifies, proposal};
use ike_tests::setup::{Side, address, identity, side};

use super::{SECOND, ip};

const SPI: u32 = 0x1000;

fn notify(kind: NotifyType, data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(kind, data))
}

/// A client with MOBIKE and an IKE SA with a gateway that has no NAT traversal.
fn bench() -> (Bench, Handmade) {
    let mut mobile = side(1, 2);
    mobile.connection.mobike = true;
    mobile.connection.local_addrs = vec![AddressSpec::Any(None)];
    let mut bench = Bench::with(mobile);
    bench.world.tell_network(0);
    let (request, mut peer, _) = bench.answering();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, SPI, false);
    payloads.push(notify(NotifyType::MOBIKE_SUPPORTED, &[]));
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    assert_eq!(bench.give(&response).len(), 0);
    assert_eq!(bench.host().done(request), Some(Ok(())), "dropped: {:?}", bench.host().dropped);
    assert!(bench.host().ike().mobike);
    (bench, peer)
}

/// The notifications of the one message in `sent`.
#[track_caller]
fn read(peer: &Handmade, sent: &[Vec<u8>]) -> Vec<NotifyType> {
    assert_eq!(sent.len(), 1);
    notifies(&peer.open(&sent[0]).expect("sealed for the peer"))
}

/// The list of addresses meets UNEXPECTED_NAT_DETECTED: it is sent again, five times and no more.
#[test]
fn a_list_that_was_changed_on_its_way_is_sent_again() {
    let (mut bench, mut peer) = bench();
    bench.world.add_address(0, ip("10.0.0.77"));
    bench.world.tell_network(0);
    let mut sent = bench.sent();
    for n in 0..6 {
        let told = read(&peer, &sent);
        assert!(told.contains(&NotifyType::ADDITIONAL_IP4_ADDRESS), "try {n}: {told:?}");
        assert!(told.contains(&NotifyType::NO_NATS_ALLOWED), "try {n}: {told:?}");
        let payloads = [notify(NotifyType::UNEXPECTED_NAT_DETECTED, &[])];
        let response = peer.seal(ExchangeType::INFORMATIONAL, 2 + n, true, &payloads);
        sent = bench.give(&response);
    }
    assert_eq!(sent.len(), 0, "it has to end");
}

/// The gateway says that it is elsewhere: its address, the end there, and what the client sends.
fn told_from_elsewhere(
    bench: &mut Bench,
    peer: &mut Handmade,
) -> (IpAddr, SocketAddr, Vec<Vec<u8>>) {
    let elsewhere = ip("10.0.0.22");
    let from = SocketAddr::new(elsewhere, 500);
    let list = [notify(NotifyType::NO_ADDITIONAL_ADDRESSES, &[])];
    let request = peer.seal(ExchangeType::INFORMATIONAL, 0, false, &list);
    let sent = bench.give_from(from, &request);
    assert_eq!(sent.len(), 2, "an answer and an update: {:?}", bench.host().dropped);
    (elsewhere, from, sent)
}

/// The gateway says that it is elsewhere, and answers the update without COOKIE2: that shows nothing.
#[test]
fn an_update_answered_without_the_cookie_moves_no_child() {
    for honest in [false, true] {
        let (mut bench, mut peer) = bench();
        let (elsewhere, from, sent) = told_from_elsewhere(&mut bench, &mut peer);
        let update = peer.open(&sent[1]).expect("sealed for the peer");
        assert!(notifies(&update).contains(&NotifyType::UPDATE_SA_ADDRESSES));
        assert_eq!(bench.host().child().outbound.dst, address(2), "until it has shown that");
        let cookie = cookie2(&update.octets);
        let payloads: &[_] = &[notify(NotifyType::COOKIE2, &cookie)];
        let payloads = if honest { payloads } else { &[] };
        let response = peer.seal(ExchangeType::INFORMATIONAL, 2, true, payloads);
        let sent = bench.give_from(from, &response);
        if honest {
            assert_eq!(sent.len(), 0);
            assert_eq!(bench.host().child().outbound.dst, elsewhere);
            continue;
        }
        assert_eq!(read(&peer, &sent), [], "DELETE, and no notification");
        let to = |ip: IpAddr| bench.host().plane.outbound().any(|(id, _)| id.dst == ip);
        assert!(!to(elsewhere));
        bench.world.run_for(SECOND);
        let response = peer.seal(ExchangeType::INFORMATIONAL, 3, true, &[]);
        bench.give_from(from, &response);
        assert_eq!(bench.host().ikes().len(), 0);
    }
}

/// A gateway with MOBIKE and a client, made by hand, that has its child.
fn gateway(change: impl Fn(&mut Side), ts_i: TrafficSelector) -> (Bench, Handmade) {
    let mut gateway = side(1, 2);
    gateway.connection.mobike = true;
    gateway.connection.local_addrs = vec![AddressSpec::Any(None)];
    gateway.connection.remote_addrs = vec![AddressSpec::Any(None)];
    change(&mut gateway);
    let mut bench = Bench::with(gateway);
    bench.world.tell_network(0);
    let started = bench.start_with_nat_detection();
    let sent = bench.give(&started.request);
    let mut peer = started.finish(&sent[0]).expect("an SA in the response");
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, SPI, true);
    payloads[3] = Payload::TsI(vec![ts_i]);
    payloads.push(notify(NotifyType::MOBIKE_SUPPORTED, &[]));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(bench.give(&request).len(), 1, "dropped: {:?}", bench.host().dropped);
    assert!(bench.host().ike().mobike);
    (bench, peer)
}

/// The client moves to `elsewhere`, and answers the check of the gateway as one of libreswan's kind. Returns what the
/// gateway sends then.
fn moves(bench: &mut Bench, peer: &mut Handmade, elsewhere: IpAddr) -> Vec<Vec<u8>> {
    let from = SocketAddr::new(elsewhere, 500);
    let update = [notify(NotifyType::UPDATE_SA_ADDRESSES, &[])];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &update);
    let sent = bench.give_from(from, &request);
    assert_eq!(sent.len(), 2, "an answer and a check: {:?}", bench.host().dropped);
    let check = peer.open(&sent[1]).expect("sealed for the peer");
    let told = notifies(&check);
    let nat = [NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP];
    let cookie = cookie2(&check.octets);
    let copied = [notify(NotifyType::COOKIE2, &cookie)];
    let copied: &[_] = if nat.iter().all(|kind| told.contains(kind)) { &copied } else { &[] };
    let response = peer.seal(ExchangeType::INFORMATIONAL, 0, true, copied);
    let sent = bench.give_from(from, &response);
    assert_eq!(bench.host().child().outbound.dst, elsewhere, "{told:?}");
    sent
}

/// A client of libreswan's kind moves: it copies COOKIE2 only to a response that has NAT detection, and to
/// that it comes where the request had it (RFC 4555 §3.8). The check of the gateway has both, and the child moves.
///
/// Fault: in `send_mobility`, make the NAT hashes for `Mobility::Update` alone.
#[test]
fn a_client_that_copies_the_cookie_beside_nat_detection_alone_moves() {
    let (mut bench, mut peer) = gateway(|_| {}, net(2));
    let sent = moves(&mut bench, &mut peer, ip("10.0.0.22"));
    assert!(sent.is_empty(), "nothing more to say");
}

/// A client moves that is itself one end of its tunnel, and rekeys the child with its new address, as strongSwan does. That is
/// what the configuration calls `dynamic` now. A rekey for less is refused all the same.
///
/// Fault: in `choose_child`, look at `old` alone.
#[test]
fn a_client_that_has_moved_rekeys_with_its_new_address() {
    let host = |ip: &str| ip.parse::<TrafficSelector>().expect("a selector");
    let (mut bench, mut peer) =
        gateway(|side| side.net().remote_ts = vec![TsSpec::DYNAMIC], host("10.0.0.2"));
    assert_eq!(bench.host().child().remote_ts, [host("10.0.0.2")]);
    // The gateway would rekey the child as well. This client answers that with nothing.
    let sent = moves(&mut bench, &mut peer, ip("10.0.0.22"));
    assert_eq!(sent.len(), 1);
    for (ts_r, accepted) in [("10.1.7.0/24", false), ("10.1.0.0/16", true)] {
        let rekey = [
            Payload::Notify(Notify::esp(NotifyType::REKEY_SA, SPI)),
            Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(SPI + 1))),
            Payload::Nonce(&[7; 32]),
            Payload::TsI(vec![host("10.0.0.22")]),
            Payload::TsR(vec![host(ts_r)]),
        ];
        let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &rekey);
        let sent = bench.give_from(SocketAddr::new(ip("10.0.0.22"), 500), &request);
        let refused = read(&peer, &sent).contains(&NotifyType::TS_UNACCEPTABLE);
        assert_eq!(refused, !accepted, "{ts_r}");
    }
    let new = bench.host().children_up().into_iter().max_by_key(|child| child.id);
    assert_eq!(new.expect("a child").remote_ts, [host("10.0.0.22")]);
}

//= https://www.rfc-editor.org/rfc/rfc4555#section-3.7
//# If the values do not
//# match, the IKE_SA MUST be closed.
/// A COOKIE2 of other octets, or of another length, closes the IKE SA and moves nothing.
///
/// Fault: in `on_mobility_response` (exchange/mobike.rs), leave out the comparison with `sent.cookie`; or compare the
/// first octet alone.
#[test]
fn a_wrong_cookie_closes_the_ike_sa() {
    type Change = fn(&mut Vec<u8>);
    let wrong: [(&str, Change); 6] = [
        ("first octet", |cookie| cookie[0] ^= 1),
        ("last octet", |cookie| cookie[15] ^= 0x80),
        ("other octets", |cookie| cookie.fill(7)),
        ("one octet less", |cookie| cookie.truncate(15)),
        ("one octet more", |cookie| cookie.push(0)),
        ("no octets", Vec::clear),
    ];
    for (what, change) in wrong {
        let (mut bench, mut peer) = bench();
        let (elsewhere, from, sent) = told_from_elsewhere(&mut bench, &mut peer);
        let mut cookie =
            cookie2(&peer.open(&sent[1]).expect("sealed for the peer").octets).to_vec();
        change(&mut cookie);
        let payloads = [notify(NotifyType::COOKIE2, &cookie)];
        let response = peer.seal(ExchangeType::INFORMATIONAL, 2, true, &payloads);
        let sent = bench.give_from(from, &response);
        assert_eq!(sent.len(), 1, "{what}");
        let delete = peer.open(&sent[0]).expect("sealed for the peer");
        assert_eq!((delete.first, deleted(&delete)), (PayloadType::DELETE, vec![]), "{what}");
        assert!(bench.host().plane.outbound().all(|(id, _)| id.dst != elsewhere), "{what}");
        let response = peer.seal(ExchangeType::INFORMATIONAL, 3, true, &[]);
        bench.give_from(from, &response);
        assert_eq!(bench.host().ikes().len(), 0, "{what}");
    }
}

/// An address that traffic in the tunnel goes to is none of the gateway's.
#[test]
fn an_address_inside_of_the_tunnel_is_no_gateway() {
    let (mut bench, mut peer) = bench();
    let inside = SocketAddr::new(net(2).start, 500);
    let list = [notify(NotifyType::NO_ADDITIONAL_ADDRESSES, &[])];
    let request = peer.seal(ExchangeType::INFORMATIONAL, 0, false, &list);
    assert_eq!(bench.give_from(inside, &request).len(), 1, "an answer alone");
    assert_eq!(bench.host().ike().path.remote.ip(), address(2));
}

/// The data of COOKIE2, which is the last of the payloads.
fn cookie2(inner: &[u8]) -> [u8; 16] {
    *inner.last_chunk().expect("a cookie at the end")
}
