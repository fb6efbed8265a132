//! Target `message`: the input as a datagram, as one with its lengths mended, and as a chain and a
//! body of the payload type that its first octet names. Nothing panics, what decodes encodes again to
//! the same meaning, and what prints, prints in one line of ASCII.

use std::fmt::Display;

use ike_proto::wire::payload::{IdData, Payload, TrafficSelector};
use ike_proto::wire::registry::PayloadType;
use ike_proto::wire::{
    HEADER_LEN, Header, Message, decode_payloads, encode_message, encode_payloads,
};

/// Runs one input.
pub fn run(octets: &[u8]) {
    datagram(octets);
    let mut mended = octets.to_vec();
    if mended.len() >= HEADER_LEN {
        mended[17] = 0x20;
        let length = u32::try_from(mended.len()).unwrap_or(u32::MAX);
        mended[24..28].copy_from_slice(&length.to_be_bytes());
        datagram(&mended);
    }
    if let Some((&kind, rest)) = octets.split_first() {
        let kind = PayloadType(kind);
        if let Ok(payloads) = decode_payloads(kind, rest, 0) {
            chain(&payloads);
        }
        if let Ok(payload) = Payload::decode(kind, PayloadType::NONE, rest, 0) {
            body(&payload);
        }
    }
    text(octets);
}

fn datagram(octets: &[u8]) {
    let header = Header::decode(octets);
    match Message::decode(octets) {
        Ok(message) => {
            assert_eq!(header, Ok(message.header));
            let encoded = encode_message(&message.header, &message.payloads);
            let again = Message::decode(&encoded).expect("what was encoded decodes");
            assert!(same(&again.payloads, &message.payloads), "{message:?} became {again:?}");
            message.payloads.iter().for_each(printable);
        }
        Err(error) => assert_printable(&error),
    }
}

fn chain(payloads: &[Payload<'_>]) {
    let mut encoded = Vec::new();
    let first = encode_payloads(payloads, &mut encoded);
    let again = decode_payloads(first, &encoded, 0).expect("what was encoded decodes");
    assert!(same(&again, payloads), "{payloads:?} became {again:?}");
    payloads.iter().for_each(printable);
}

fn body(payload: &Payload<'_>) {
    let mut encoded = Vec::new();
    payload.encode(&mut encoded);
    let again = Payload::decode(payload.kind(), PayloadType::NONE, &encoded, 0);
    let again = again.expect("what was encoded decodes");
    assert_eq!(normalised(&again), normalised(payload));
}

fn same(a: &[Payload<'_>], b: &[Payload<'_>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| normalised(a) == normalised(b))
}

/// Without what encoding does not keep: attributes we do not know (only that there was one), and
/// where SK began if a payload before it shrank by them or by unknown traffic selectors.
fn normalised<'a>(payload: &Payload<'a>) -> Payload<'a> {
    let mut payload = payload.clone();
    match &mut payload {
        Payload::Sa(sa) => {
            for transform in sa.proposals.iter_mut().flat_map(|p| &mut p.transforms) {
                transform.unknown_attribute = false;
            }
        }
        Payload::Sk(sk) => (sk.offset, sk.first) = (0, PayloadType::NONE),
        Payload::Skf(skf) => (skf.offset, skf.first) = (0, PayloadType::NONE),
        _ => {}
    }
    payload
}

fn printable(payload: &Payload<'_>) {
    match payload {
        Payload::IdI(id) | Payload::IdR(id) => assert_printable(&id.to_owned()),
        Payload::Sa(sa) => assert_printable(sa),
        Payload::Notify(notify) => assert_printable(&notify.kind),
        Payload::TsI(ts) | Payload::TsR(ts) => ts.iter().for_each(|ts| {
            assert_printable(ts);
            let text = ts.to_string();
            assert_eq!(text.parse().as_ref(), Ok(ts), "{text}");
        }),
        other => assert_printable(&other.kind()),
    }
}

fn assert_printable(value: &impl Display) {
    let text = value.to_string();
    assert!(text.bytes().all(|b| (0x20..0x7f).contains(&b)), "{text:?}");
}

/// What operators write: identities, selectors, proposals.
fn text(octets: &[u8]) {
    use ike_proto::config::ProposalConfig;
    use ike_proto::wire::registry::ProtocolId;
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match IdData::parse(text) {
        Ok(id) => assert_printable(&id),
        Err(error) => drop(error.to_string()),
    }
    if let Ok(ts) = text.parse::<TrafficSelector>() {
        assert_eq!(ts.to_string().parse(), Ok(ts));
    }
    for protocol in [ProtocolId::IKE, ProtocolId::ESP] {
        match ProposalConfig::parse(protocol, text) {
            Ok(proposal) => {
                let again = ProposalConfig::parse(protocol, &proposal.to_string());
                assert_eq!(again.as_ref(), Ok(&proposal), "{proposal}");
            }
            Err(error) => drop(error.to_string()),
        }
    }
}
