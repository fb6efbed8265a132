//! §2.19, §3.15: configuration payloads from peers that mean no good, or only ask.

use std::net::IpAddr;

use ike_proto::config::TsSpec;
use ike_proto::dataplane::TrafficSelector;
use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Attribute, Config, ConfigAttribute, Payload};
use ike_proto::wire::registry::{CfgAttribute, CfgType, ExchangeType, NotifyType};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, notifies};
use ike_tests::setup::{identity, side};

fn config<'a>(kind: CfgType, attributes: &[(CfgAttribute, &'a [u8])]) -> Payload<'a> {
    let attributes = attributes.iter().map(|(kind, value)| ConfigAttribute { kind: *kind, value });
    Payload::Config(Config { kind, attributes: attributes.collect() })
}

/// Type and value of an attribute.
type Told = (CfgAttribute, Vec<u8>);

/// The attributes of the only CP payload in a datagram, by number.
fn told(peer: &Handmade, datagram: &[u8]) -> Option<(CfgType, Vec<Told>)> {
    let opened = peer.open(datagram).unwrap();
    let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap();
    let mut found = payloads.iter().filter_map(|payload| match payload {
        Payload::Config(config) => Some(config),
        _ => None,
    });
    let config = found.next()?;
    assert!(found.next().is_none(), "one is enough");
    let attributes = config.attributes.iter().map(|one| (one.kind, one.value.to_vec()));
    Some((config.kind, attributes.collect()))
}

/// An initiator that wants one IPv4 address, and the traffic of its child goes by that.
fn warrior() -> Bench {
    let mut side = side(1, 2);
    side.connection.vips = vec![IpAddr::from([0, 0, 0, 0])];
    side.net().local_ts = vec![TsSpec::DYNAMIC];
    Bench::with(side)
}

/// Brings the warrior up with `reply` as the peer's answer and `ts` as its TSi.
fn answered(bench: &mut Bench, reply: Option<Payload<'_>>, ts: TrafficSelector) -> Handmade {
    let (_, mut peer, request) = bench.answering();
    let (kind, asked) = told(&peer, &request).expect("it asks");
    assert_eq!(kind, CfgType::REQUEST);
    assert_eq!(asked[0], (CfgAttribute::INTERNAL_IP4_ADDRESS, Vec::new()));
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, false);
    let at = payloads.iter().position(|payload| matches!(payload, Payload::TsI(_))).unwrap();
    payloads[at] = Payload::TsI(vec![ts]);
    payloads.extend(reply);
    bench.give(&peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads));
    peer
}

#[test]
fn s2_19_an_initiator_takes_what_it_asked_for_and_can_use() {
    let address = CfgAttribute::INTERNAL_IP4_ADDRESS;
    let six = CfgAttribute::INTERNAL_IP6_ADDRESS;
    let all: [(CfgAttribute, &[u8]); 10] = [
        (address, &[10, 3, 0]),
        (address, &[224, 0, 0, 1]),
        (address, &[127, 0, 0, 1]),
        (address, &[]),
        (six, &[0xfe; 17]),
        (address, &[10, 3, 0, 7]),
        (address, &[10, 3, 0, 8]),
        (CfgAttribute::INTERNAL_IP4_DNS, &[10, 2, 0, 53]),
        (CfgAttribute::INTERNAL_DNS_DOMAIN, b"evil\nnameserver 192.0.2.1"),
        (CfgAttribute::INTERNAL_DNSSEC_TA, &[0, 1, 8, 2, 9]),
    ];
    let mut bench = warrior();
    answered(&mut bench, Some(config(CfgType::REPLY, &all)), TrafficSelector::any_v4());
    let assignment = bench.host().ike().assignment.unwrap();
    assert_eq!(assignment.addresses, [IpAddr::from([10, 3, 0, 7])]);
    assert_eq!(assignment.attributes, [Attribute::Ip4Dns(Some([10, 2, 0, 53].into()))]);
    let own = TrafficSelector::host([10, 3, 0, 7].into());
    assert_eq!(bench.host().child().local_ts, [own], "whatever the peer makes of all IPv4");
}

#[test]
fn s2_19_without_an_address_the_own_one_is_protected_and_nothing_else() {
    let mut bench = warrior();
    answered(&mut bench, None, TrafficSelector::any_v4());
    assert_eq!(bench.host().child().local_ts, [TrafficSelector::host([10, 0, 0, 1].into())]);
    assert!(bench.host().ike().assignment.is_none());
    let mut bench = warrior();
    let address = (CfgAttribute::INTERNAL_IP4_ADDRESS, &[10, 3, 0, 7][..]);
    let elsewhere = TrafficSelector::host([10, 9, 9, 9].into());
    answered(&mut bench, Some(config(CfgType::REPLY, &[address])), elsewhere);
    assert!(bench.host().children_up().is_empty(), "somebody else's address");
}

#[test]
fn s3_15_requests_in_informational_are_answered_and_change_nothing() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let mut ask = |payload: Payload<'_>| {
        let sent = bench.give(&peer.next_request(ExchangeType::INFORMATIONAL, &[payload]));
        assert_eq!(notifies(&peer.open(&sent[0]).unwrap()), [NotifyType(0); 0]);
        told(&peer, &sent[0])
    };
    let version = (CfgAttribute::APPLICATION_VERSION, &[][..]);
    let address = (CfgAttribute::INTERNAL_IP4_ADDRESS, &[][..]);
    let answer = ask(config(CfgType::REQUEST, &[version, address]));
    let empty = vec![(CfgAttribute::APPLICATION_VERSION, Vec::new())];
    assert_eq!(answer, Some((CfgType::REPLY, empty)), "a gateway does not say what it is");
    let set = (CfgAttribute::INTERNAL_IP4_ADDRESS, &[10, 9, 9, 9][..]);
    assert_eq!(ask(config(CfgType::SET, &[set])), Some((CfgType::ACK, Vec::new())));
    assert_eq!(ask(config(CfgType::REPLY, &[set])), None);
    assert_eq!(ask(config(CfgType::ACK, &[])), None);
    assert_eq!(ask(config(CfgType(99), &[set])), None);
    assert!(bench.host().ike().assignment.is_none());
    assert_eq!(bench.host().children_up().len(), 1);
}

#[test]
fn s2_19_many_and_malformed_requests_cost_one_question() {
    let mut side = side(1, 2);
    side.connection.pools = vec!["p".to_owned()];
    let mut bench = Bench::with(side);
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, true);
    let many = [(CfgAttribute::INTERNAL_IP4_ADDRESS, &[][..]); 200];
    payloads.push(config(CfgType::REQUEST, &many));
    payloads.push(config(CfgType::REQUEST, &many));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let sent = bench.give(&request);
    assert_eq!(bench.host().asked, ["lease"]);
    let failed = [NotifyType::INTERNAL_ADDRESS_FAILURE];
    assert_eq!(notifies(&peer.open(&sent[0]).unwrap()), failed, "AUTH is beside it");
    assert!(bench.host().ike().children.is_empty());
}
