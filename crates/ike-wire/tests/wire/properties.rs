//! Properties of the codecs, over generated values.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::IpAddr;

use ike_wire::payload::skf::SKF_HEADER_LEN;
use ike_wire::payload::{
    Auth, Cert, CertReq, Config, ConfigAttribute, Delete, Id, IdData, Ke, Notify, Payload,
    Proposal, Sa, Sk, Skf, Spi, TrafficSelector, Transform,
};
use ike_wire::registry::{
    AuthMethod, CertEncoding, CfgAttribute, CfgType, ExchangeType, IdType, KeMethodId, NotifyType,
    PayloadType, ProtocolId, TransformType,
};
use ike_wire::{Flags, HEADER_LEN, Header, Message, decode_payloads, encode_message};
use proptest::collection::vec;
use proptest::prelude::*;

/// A payload that owns its octets; [`Owned::borrow`] makes the one under test.
#[derive(Debug, Clone)]
enum Owned {
    Sa(Sa),
    Ke(u16, Vec<u8>),
    Id(bool, IdData),
    Cert(bool, u8, Vec<u8>),
    Auth(u8, Vec<u8>),
    Nonce(Vec<u8>),
    Notify(ProtocolId, Spi, u16, Vec<u8>),
    Delete(Delete),
    Ts(bool, Vec<TrafficSelector>),
    Config(u8, Vec<(u16, Vec<u8>)>),
    Vendor(Vec<u8>),
    Eap(Vec<u8>),
    Unknown(u8, Vec<u8>),
}

impl Owned {
    fn borrow(&self) -> Payload<'_> {
        match self {
            Self::Sa(sa) => Payload::Sa(sa.clone()),
            Self::Ke(method, data) => Payload::Ke(Ke { method: KeMethodId(*method), data }),
            Self::Id(true, id) => Payload::IdI(id.as_id()),
            Self::Id(false, id) => Payload::IdR(id.as_id()),
            Self::Cert(true, encoding, data) => {
                Payload::Cert(Cert { encoding: CertEncoding(*encoding), data })
            }
            Self::Cert(false, encoding, authorities) => {
                Payload::CertReq(CertReq { encoding: CertEncoding(*encoding), authorities })
            }
            Self::Auth(method, data) => Payload::Auth(Auth { method: AuthMethod(*method), data }),
            Self::Nonce(octets) => Payload::Nonce(octets),
            Self::Notify(protocol, spi, kind, data) => {
                let kind = NotifyType(*kind);
                Payload::Notify(Notify { protocol: *protocol, spi: *spi, kind, data })
            }
            Self::Delete(delete) => Payload::Delete(delete.clone()),
            Self::Ts(true, selectors) => Payload::TsI(selectors.clone()),
            Self::Ts(false, selectors) => Payload::TsR(selectors.clone()),
            Self::Config(kind, attributes) => {
                let attributes = attributes
                    .iter()
                    .map(|(kind, value)| ConfigAttribute { kind: CfgAttribute(*kind), value })
                    .collect();
                Payload::Config(Config { kind: CfgType(*kind), attributes })
            }
            Self::Vendor(octets) => Payload::Vendor(octets),
            Self::Eap(octets) => Payload::Eap(octets),
            Self::Unknown(kind, body) => Payload::Unknown { kind: PayloadType(*kind), body },
        }
    }
}

fn octets(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), range)
}

fn transform() -> impl Strategy<Value = Transform> {
    (1_u8..20, any::<u16>(), any::<Option<u16>>()).prop_map(|(kind, id, key_bits)| Transform {
        kind: TransformType(kind),
        id,
        key_bits,
        unknown_attribute: false,
    })
}

fn proposal() -> impl Strategy<Value = Proposal> {
    let spi = prop_oneof![
        Just((ProtocolId::IKE, Spi::None)),
        any::<u64>().prop_map(|spi| (ProtocolId::IKE, Spi::Ike(spi))),
        any::<u32>().prop_map(|spi| (ProtocolId::ESP, Spi::Esp(spi))),
        any::<u32>().prop_map(|spi| (ProtocolId::AH, Spi::Esp(spi))),
        Just((ProtocolId(77), Spi::None)),
    ];
    (any::<u8>(), spi, vec(transform(), 0..12)).prop_map(|(number, (protocol, spi), transforms)| {
        Proposal { number, protocol, spi, transforms }
    })
}

fn address() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[a, b]| (a.min(b).into(), a.max(b).into())),
        any::<[[u8; 16]; 2]>().prop_map(|[a, b]| (a.min(b).into(), a.max(b).into())),
        (any::<[u8; 4]>(), 0_u8..=32).prop_map(|(a, len)| {
            let ts = TrafficSelector::from_cidr(a.into(), len).unwrap();
            (ts.start, ts.end)
        }),
        (any::<[u8; 16]>(), 0_u8..=128).prop_map(|(a, len)| {
            let ts = TrafficSelector::from_cidr(a.into(), len).unwrap();
            (ts.start, ts.end)
        }),
    ]
}

fn selector() -> impl Strategy<Value = TrafficSelector> {
    let ports = prop_oneof![
        Just((0, u16::MAX)),
        Just((u16::MAX, 0)),
        any::<[u16; 2]>().prop_map(|[a, b]| (a.min(b), a.max(b))),
    ];
    let protocol = prop_oneof![Just(0), Just(1), Just(6), Just(17), Just(58), any::<u8>()];
    (protocol, ports, address()).prop_map(|(protocol, (start_port, end_port), (start, end))| {
        TrafficSelector { protocol, start_port, end_port, start, end }
    })
}

fn identity() -> impl Strategy<Value = IdData> {
    prop_oneof![
        any::<IpAddr>().prop_map(IdData::ip),
        "[a-z0-9.é-]{1,40}".prop_map(IdData::fqdn),
        "[a-z]{1,9}@[a-z0-9.-]{1,40}".prop_map(IdData::email),
        octets(1..60).prop_map(IdData::keyid),
        Just(IdData { kind: IdType::NULL, data: Vec::new() }),
        octets(0..60).prop_map(|data| IdData { kind: IdType(201), data }),
    ]
}

fn payload() -> impl Strategy<Value = Owned> {
    let notify_spi = prop_oneof![
        Just((ProtocolId::NONE, Spi::None)),
        Just((ProtocolId::IKE, Spi::None)),
        any::<u64>().prop_map(|spi| (ProtocolId::IKE, Spi::Ike(spi))),
        any::<u32>().prop_map(|spi| (ProtocolId::ESP, Spi::Esp(spi))),
    ];
    prop_oneof![
        vec(proposal(), 1..5).prop_map(|proposals| Owned::Sa(Sa { proposals })),
        (any::<u16>(), octets(0..100)).prop_map(|(method, data)| Owned::Ke(method, data)),
        (any::<bool>(), identity()).prop_map(|(i, id)| Owned::Id(i, id)),
        (any::<bool>(), any::<u8>(), octets(0..100)).prop_map(|(c, e, d)| Owned::Cert(c, e, d)),
        (any::<u8>(), octets(0..100)).prop_map(|(method, data)| Owned::Auth(method, data)),
        octets(16..257).prop_map(Owned::Nonce),
        (notify_spi, any::<u16>(), octets(0..60))
            .prop_map(|((protocol, spi), kind, data)| Owned::Notify(protocol, spi, kind, data)),
        Just(Owned::Delete(Delete::ike())),
        vec(any::<u32>(), 0..20).prop_map(|spis| Owned::Delete(Delete::esp(spis))),
        (any::<bool>(), vec(selector(), 0..9)).prop_map(|(i, list)| Owned::Ts(i, list)),
        (any::<u8>(), vec((0_u16..0x8000, octets(0..30)), 0..9))
            .prop_map(|(kind, attributes)| Owned::Config(kind, attributes)),
        octets(1..40).prop_map(Owned::Vendor),
        octets(0..40).prop_map(Owned::Eap),
        (54_u8..=255, octets(0..40)).prop_map(|(kind, body)| Owned::Unknown(kind, body)),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    (1_u64.., any::<u64>(), 0_u8..16, any::<u8>(), any::<[bool; 3]>(), any::<u32>()).prop_map(
        |(spi_i, spi_r, minor_version, exchange, [initiator, version, response], message_id)| {
            let flags = Flags { initiator, version, response };
            let (next_payload, exchange) = (PayloadType::NONE, ExchangeType(exchange));
            Header {
                spi_i,
                spi_r,
                next_payload,
                minor_version,
                exchange,
                flags,
                message_id,
                length: 0,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_to_the_same(header in header(), owned in vec(payload(), 0..8)) {
        let payloads: Vec<Payload<'_>> = owned.iter().map(Owned::borrow).collect();
        let datagram = encode_message(&header, &payloads);
        let message = Message::decode(&datagram).unwrap();
        prop_assert_eq!(&message.payloads, &payloads);
        let Header { next_payload, length, .. } = message.header;
        prop_assert_eq!(message.header, Header { next_payload, length, ..header });
        prop_assert_eq!(encode_message(&message.header, &message.payloads), datagram);
    }

    #[test]
    fn sealed_payloads_keep_their_place(
        header in header(),
        before in octets(0..40),
        body in octets(0..80),
        first in any::<u8>(),
        number in 1_u16..,
        more in 0_u16..20,
    ) {
        let offset = HEADER_LEN + 4 + before.len() + 4;
        let first = PayloadType(first);
        let sk = Payload::Sk(Sk { first, offset, body: &body });
        let skf = Payload::Skf(Skf {
            first: if number == 1 { first } else { PayloadType::NONE },
            number,
            total: number.saturating_add(more),
            offset: offset + SKF_HEADER_LEN,
            body: &body,
        });
        for sealed in [sk, skf] {
            let payloads = [Payload::Eap(&before), sealed];
            let datagram = encode_message(&header, &payloads);
            prop_assert_eq!(Message::decode(&datagram).unwrap().payloads, payloads);
        }
    }

    #[test]
    fn mutated_messages_never_panic(
        header in header(),
        owned in vec(payload(), 1..5),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let payloads: Vec<Payload<'_>> = owned.iter().map(Owned::borrow).collect();
        let mut datagram = encode_message(&header, &payloads);
        for (at, octet) in changes {
            let at = at.index(datagram.len());
            datagram[at] = octet;
        }
        let _ = Message::decode(&datagram);
        let chain = &datagram[HEADER_LEN..];
        let chain = &chain[..cut.index(chain.len() + 1)];
        let _ = decode_payloads(payloads[0].kind(), chain, HEADER_LEN);
    }

    #[test]
    fn selectors_print_what_they_read(ts in selector()) {
        prop_assert_eq!(ts.to_string().parse(), Ok(ts));
    }

    #[test]
    fn intersection_is_within_both(a in selector(), b in selector()) {
        let common = a.intersect(&b);
        prop_assert_eq!(common, b.intersect(&a));
        if let Some(common) = common {
            prop_assert!(a.contains(&common) && b.contains(&common));
        }
        prop_assert!(a.contains(&a));
        prop_assert_eq!(a.contains(&b), common == Some(b));
    }
}

#[test]
fn an_identity_parses_as_what_it_prints() {
    for text in ["192.0.2.1", "2001:db8::1", "a.example", "a@b.example", "@#0102", "C=CH, CN=a b"] {
        let id = IdData::parse(text).unwrap();
        assert_eq!(id.to_string(), text);
        let body = [&[id.kind.0, 0, 0, 0], &id.data[..]].concat();
        assert_eq!(Id::decode(&body).unwrap().to_owned(), id);
    }
}
