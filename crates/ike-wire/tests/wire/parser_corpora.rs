//! Inputs that fuzzing found for other parsers: none panics here, and what decodes encodes again to
//! the same meaning.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use ike_wire::payload::{IdData, Payload, TrafficSelector};
use ike_wire::registry::PayloadType;
use ike_wire::{
    HEADER_LEN, Header, Message, Reader, decode_payloads, encode_message, encode_payloads,
};

const INPUTS: &[u8] = include_bytes!("../data/parser-corpora/inputs.bin");

#[test]
fn every_input_as_a_message() {
    let mut decoded = 0;
    for input in inputs() {
        decoded += usize::from(check_message(&input));
        // Nearly all inputs lack the version octet and the right length: mend both, so that the
        // payloads are looked at too.
        let mut mended = input;
        if mended.len() >= HEADER_LEN {
            mended[17] = 0x20;
            let length = u32::try_from(mended.len()).unwrap();
            mended[24..28].copy_from_slice(&length.to_be_bytes());
            decoded += usize::from(check_message(&mended));
        }
    }
    assert!(decoded > 100, "only {decoded} messages decoded: the corpus does not reach the parser");
}

#[test]
fn every_input_as_a_payload_chain_of_every_type() {
    let mut decoded = 0;
    for input in inputs() {
        for kind in KINDS {
            for chain in [&*input, input.get(HEADER_LEN..).unwrap_or_default()] {
                let Ok(payloads) = decode_payloads(kind, chain, 0) else { continue };
                check_chain(&payloads);
                decoded += 1;
            }
        }
    }
    assert!(decoded > 1000, "only {decoded} chains decoded");
}

#[test]
fn every_input_as_a_payload_body_of_every_type() {
    let mut decoded = 0;
    for input in inputs() {
        for kind in KINDS {
            for body in [&*input, input.get(4..).unwrap_or_default()] {
                let Ok(payload) = Payload::decode(kind, PayloadType::NONE, body, 0) else {
                    continue;
                };
                check_payload(&payload);
                decoded += 1;
            }
        }
    }
    assert!(decoded > 10_000, "only {decoded} bodies decoded");
}

#[test]
fn every_input_as_text() {
    for input in inputs() {
        let Ok(text) = std::str::from_utf8(&input) else { continue };
        if let Ok(id) = IdData::parse(text) {
            assert!(id.to_string().bytes().all(|b| (0x20..0x7f).contains(&b)), "{id}");
        }
        if let Ok(ts) = text.parse::<TrafficSelector>() {
            assert_eq!(ts.to_string().parse(), Ok(ts));
        }
    }
}

fn check_message(input: &[u8]) -> bool {
    let header = Header::decode(input);
    let Ok(message) = Message::decode(input) else { return false };
    assert_eq!(header, Ok(message.header));
    let encoded = encode_message(&message.header, &message.payloads);
    let again = Message::decode(&encoded).unwrap();
    assert_eq!(
        again.payloads.iter().map(normalised).collect::<Vec<_>>(),
        message.payloads.iter().map(normalised).collect::<Vec<_>>()
    );
    true
}

fn check_chain(payloads: &[Payload<'_>]) {
    let mut encoded = Vec::new();
    let first = encode_payloads(payloads, &mut encoded);
    let again = decode_payloads(first, &encoded, 0).unwrap();
    assert_eq!(
        again.iter().map(normalised).collect::<Vec<_>>(),
        payloads.iter().map(normalised).collect::<Vec<_>>()
    );
}

fn check_payload(payload: &Payload<'_>) {
    let mut body = Vec::new();
    payload.encode(&mut body);
    let again = Payload::decode(payload.kind(), PayloadType::NONE, &body, 0).unwrap();
    assert_eq!(normalised(&again), normalised(payload));
}

/// Without what encoding does not keep: attributes we do not know (only their presence is kept), and
/// where SK began when a payload before it shrank by them or by unknown traffic selectors.
fn normalised<'a>(payload: &Payload<'a>) -> Payload<'a> {
    let mut payload = payload.clone();
    match &mut payload {
        Payload::Sa(sa) => {
            for transform in sa.proposals.iter_mut().flat_map(|p| &mut p.transforms) {
                transform.unknown_attribute = false;
            }
        }
        Payload::Sk(sk) => sk.offset = 0,
        Payload::Skf(skf) => skf.offset = 0,
        _ => {}
    }
    payload
}

/// Undoes the coding that `data/parser-corpora/README.md` describes.
fn inputs() -> impl Iterator<Item = Vec<u8>> {
    let mut r = Reader::new(INPUTS);
    let mut input: Vec<u8> = Vec::new();
    std::iter::from_fn(move || {
        if r.is_empty() {
            return None;
        }
        let shared = r.u16("record").unwrap();
        let fresh = r.u16("record").unwrap();
        input.truncate(shared.into());
        input.extend_from_slice(r.take(fresh.into(), "record").unwrap());
        Some(input.clone())
    })
}

/// Every type with a decoder, and one without.
const KINDS: [PayloadType; 18] = [
    PayloadType::SA,
    PayloadType::KE,
    PayloadType::ID_I,
    PayloadType::ID_R,
    PayloadType::CERT,
    PayloadType::CERTREQ,
    PayloadType::AUTH,
    PayloadType::NONCE,
    PayloadType::NOTIFY,
    PayloadType::DELETE,
    PayloadType::VENDOR,
    PayloadType::TS_I,
    PayloadType::TS_R,
    PayloadType::SK,
    PayloadType::CP,
    PayloadType::EAP,
    PayloadType::SKF,
    PayloadType(200),
];
