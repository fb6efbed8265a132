//! Our decoder and Wireshark's dissector agree on 185 datagrams of real traffic.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use ike_wire::payload::Payload;
use ike_wire::registry::PayloadType;
use ike_wire::{DecodeError, Message};
use serde_json::Value;

const MESSAGES: &str = include_str!("../data/dissected/messages.jsonl");

/// A datagram made by hand, with SPIs of zero, which no IKE SA has.
const FORGED: &str = "tcpdump/ikev2-id-normal.pcap";

#[test]
fn dissected_datagrams_decode_alike() {
    let (mut v2, mut other) = (0, 0);
    for line in MESSAGES.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let name = format!("{} frame {}", record["file"], record["frame"]);
        let payload = hex(record["udp_payload"].as_str().unwrap());
        if record["kind"] != "ike" {
            assert!(Message::decode(&payload).is_err(), "{name} is not IKE");
            other += 1;
            continue;
        }
        let marker = if record["non_esp_marker"] == true { 4 } else { 0 };
        let datagram = &payload[marker..];
        let oracle = &record["tshark"];
        if number(&oracle["version"]) >> 4 != 2 {
            let version = number(&oracle["version"]) as u8;
            assert_eq!(Message::decode(datagram), Err(DecodeError::Version(version)), "{name}");
            other += 1;
            continue;
        }
        if record["file"] == FORGED {
            let error = DecodeError::Invalid("initiator's SPI");
            assert_eq!(Message::decode(datagram), Err(error), "{name}");
            other += 1;
            continue;
        }
        let message = Message::decode(datagram).unwrap_or_else(|e| panic!("{name}: {e}"));
        compare(&name, &message, oracle);
        v2 += 1;
    }
    assert_eq!((v2, other), (55, 130));
}

fn compare(name: &str, message: &Message<'_>, oracle: &Value) {
    let header = &message.header;
    let spi = |field: &Value| u64::from_str_radix(field.as_str().unwrap(), 16).unwrap();
    assert_eq!(header.spi_i, spi(&oracle["ispi"]), "{name}");
    assert_eq!(header.spi_r, spi(&oracle["rspi"]), "{name}");
    assert_eq!(u64::from(header.exchange.0), number(&oracle["exchangetype"]), "{name}");
    assert_eq!(u64::from(header.flags.encode()), number(&oracle["flags"]), "{name}");
    assert_eq!(u64::from(header.message_id), number(&oracle["messageid"]), "{name}");
    assert_eq!(u64::from(header.length), number(&oracle["length"]), "{name}");
    assert_eq!(types(message), numbers(&oracle["typepayload"]), "{name}: payload types");
    let notifies: Vec<u64> = message
        .payloads
        .iter()
        .filter_map(|p| if let Payload::Notify(n) = p { Some(n.kind.0.into()) } else { None })
        .collect();
    assert_eq!(notifies, numbers(&oracle["notify.msgtype"]), "{name}: notify types");
    if let Some(Payload::Sa(sa)) = message.payloads.first() {
        let kinds = sa.proposals.iter().flat_map(|p| &p.transforms).map(|t| t.kind.0.into());
        assert_eq!(kinds.collect::<Vec<u64>>(), numbers(&oracle["tf.type"]), "{name}: transforms");
    }
}

/// Payload types as the dissector lists them: proposals are type 2, transforms type 3.
fn types(message: &Message<'_>) -> Vec<u64> {
    let mut types = Vec::new();
    for payload in &message.payloads {
        types.push(payload.kind().0.into());
        if let Payload::Sa(sa) = payload {
            for proposal in &sa.proposals {
                types.push(2);
                types.extend(proposal.transforms.iter().map(|_| 3));
            }
        }
    }
    assert!(!types.contains(&u64::from(PayloadType::NONE.0)));
    types
}

/// A field the dissector printed once or several times, or not at all.
fn numbers(field: &Value) -> Vec<u64> {
    match field {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(number).collect(),
        one => vec![number(one)],
    }
}

fn number(field: &Value) -> u64 {
    let text = field.as_str().unwrap();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}
