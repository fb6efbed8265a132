//! Bug classes that broke other IKE daemons, as far as decoding is concerned. Each test
//! is named after its class and cites where it was seen.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use ike_wire::payload::id::MAX_ID_LEN;
use ike_wire::payload::{Id, Payload};
use ike_wire::registry::{ExchangeType, IdType, PayloadType};
use ike_wire::{DecodeError, Flags, HEADER_LEN, Header, Message, decode_payloads, encode_message};

fn header() -> Header {
    Header {
        spi_i: 0x0102_0304_0506_0708,
        spi_r: 0,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SA_INIT,
        flags: Flags { initiator: true, ..Flags::default() },
        message_id: 0,
        length: 0,
    }
}

fn chain(kind: PayloadType, body: &[u8]) -> Result<Vec<Payload<'_>>, DecodeError> {
    decode_payloads(kind, body, HEADER_LEN)
}

/// A chain of one payload with `body`; its next-payload field is 0.
fn payload(body: &[u8]) -> Vec<u8> {
    let mut octets = vec![0, 0];
    octets.extend_from_slice(&u16::try_from(body.len() + 4).unwrap().to_be_bytes());
    octets.extend_from_slice(body);
    octets
}

/// An ID payload's body: an ID payload copied without bound, CVE-2025-9242.
#[test]
fn class_01_identity_without_bound() {
    for kind in (0..=255).map(IdType) {
        for length in [MAX_ID_LEN + 1, 8192, 65_527] {
            let mut body = vec![kind.0, 0, 0, 0];
            body.resize(4 + length, b'a');
            for payload_type in [PayloadType::ID_I, PayloadType::ID_R] {
                let octets = payload(&body);
                let result = chain(payload_type, &octets);
                assert_eq!(result, Err(DecodeError::Invalid("identity length")), "{kind:?}");
            }
        }
        for length in [520, MAX_ID_LEN] {
            let mut body = vec![kind.0, 0, 0, 0];
            body.resize(4 + length, b'a');
            // Borrowed, so nothing is copied; and printed in bounded printable form.
            if let Ok(id) = Id::decode(&body) {
                let text = id.to_owned().to_string();
                assert!(text.len() <= 2 * MAX_ID_LEN + 32);
            }
        }
    }
}

/// Short datagrams and lengths that lie: CVE-2013-4564, tcpdump's isakmp-pointer-loop.
#[test]
fn class_11_short_datagram_and_lying_length() {
    let nonce = [7; 32];
    let whole = encode_message(&header(), &[Payload::Nonce(&nonce)]);
    assert!(Message::decode(&whole).is_ok());
    for short in 0..whole.len() {
        assert!(Message::decode(&whole[..short]).is_err(), "{short} octets");
        if short < HEADER_LEN {
            assert_eq!(Header::decode(&whole[..short]), Err(DecodeError::Truncated("IKE header")));
        }
    }
    let true_length = u32::try_from(whole.len()).unwrap();
    let lies = (0..true_length).chain([true_length + 1, 65_535, u32::MAX]);
    for length in lies {
        let mut datagram = whole.clone();
        datagram[24..28].copy_from_slice(&length.to_be_bytes());
        assert_eq!(Message::decode(&datagram), Err(DecodeError::Invalid("message length")));
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert_eq!(Message::decode(&longer), Err(DecodeError::Invalid("message length")));
    assert!(Message::decode(&[0; 4]).is_err(), "only the non-ESP marker");
    for major in (0..16).filter(|major| *major != 2) {
        let mut datagram = whole.clone();
        datagram[17] = major << 4 | 1;
        assert_eq!(Message::decode(&datagram), Err(DecodeError::Version(major << 4 | 1)));
    }
    for minor in 0..16 {
        let mut datagram = whole.clone();
        datagram[17] = 2 << 4 | minor;
        assert!(Message::decode(&datagram).is_ok(), "minor version {minor} is to be ignored");
    }
    // Each payload length but the true one.
    for length in 0..=u16::MAX {
        let mut datagram = whole.clone();
        datagram[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(Message::decode(&datagram).is_ok(), length == 36, "payload length {length}");
    }
}

/// Fragment fields: CVE-2016-1287, CVE-2016-1344, CVE-2013-6076.
#[test]
fn class_13_fragment_fields() {
    let fragment = |number: u16, total: u16| {
        payload(&[&number.to_be_bytes()[..], &total.to_be_bytes(), &[9; 24]].concat())
    };
    let invalid = Err(DecodeError::Invalid("fragment number"));
    for (number, total) in [(0, 0), (0, 1), (0, 65_535), (1, 0), (2, 1), (65_535, 65_534)] {
        assert_eq!(chain(PayloadType::SKF, &fragment(number, total)), invalid, "{number}/{total}");
    }
    for (number, total) in [(1, 1), (1, 65_535), (2, 2), (65_535, 65_535)] {
        let octets = fragment(number, total);
        let payloads = chain(PayloadType::SKF, &octets).unwrap();
        let [Payload::Skf(skf)] = &payloads[..] else { panic!("one SKF payload") };
        assert_eq!((skf.number, skf.total), (number, total));
        assert_eq!((skf.offset, skf.body.len()), (HEADER_LEN + 8, 24));
    }
    for length in 0..8_u16 {
        let mut octets = fragment(1, 1);
        octets[2..4].copy_from_slice(&length.to_be_bytes());
        assert!(chain(PayloadType::SKF, &octets).is_err(), "payload length {length}");
        octets.truncate(usize::from(length));
        assert!(chain(PayloadType::SKF, &octets).is_err(), "{length} octets");
    }
    // The type of what is inside counts in the first fragment only.
    let mut octets = fragment(2, 3);
    octets[0] = PayloadType::ID_I.0;
    let payloads = chain(PayloadType::SKF, &octets).unwrap();
    assert!(matches!(&payloads[..], [Payload::Skf(skf)] if skf.first == PayloadType::NONE));
    // Nothing may follow.
    let mut octets = fragment(1, 1);
    octets.extend_from_slice(&payload(&[7; 16]));
    assert!(chain(PayloadType::SKF, &octets).is_err());
}

/// Lists whose elements have length 0 or 1: CVE-2025-20253, CVE-2026-35330, CVE-2017-9023.
#[test]
fn class_17_list_elements_of_no_length() {
    // Payload chains: every payload points at a payload of its own type.
    for length in 0..4_u8 {
        let octets = [PayloadType::NOTIFY.0, 0, 0, length].repeat(100);
        let result = chain(PayloadType::NOTIFY, &octets);
        assert_eq!(result, Err(DecodeError::Invalid("payload length")));
    }
    let octets = [PayloadType::EAP.0, 0, 0, 4].repeat(16_000);
    assert_eq!(chain(PayloadType::EAP, &octets), Err(DecodeError::TooMany("payloads")));

    // Proposals, transforms and their attributes.
    for length in 0..8_u8 {
        let proposals = [2, 0, 0, length].repeat(100);
        assert!(chain(PayloadType::SA, &payload(&proposals)).is_err());
        let mut transforms = vec![0, 0, 1, 0x90, 1, 1, 0, 98];
        transforms.extend([3, 0, 0, length].repeat(98));
        assert!(chain(PayloadType::SA, &payload(&transforms)).is_err());
    }
    // Ten attributes of length 0 are ten unknown attributes; of length 1 they are cut short.
    let attributes = |length: u8| {
        let mut sa = vec![0, 0, 0, 56, 1, 1, 0, 1, 0, 0, 0, 48, 1, 0, 0, 12];
        sa.extend([0x00, 14, 0, length].repeat(10));
        payload(&sa)
    };
    let octets = attributes(0);
    let payloads = chain(PayloadType::SA, &octets).unwrap();
    let [Payload::Sa(sa)] = &payloads[..] else { panic!("one SA payload") };
    assert!(sa.proposals[0].transforms[0].unknown_attribute);
    assert!(chain(PayloadType::SA, &attributes(1)).is_err());

    // Traffic selectors, whatever their type.
    for kind in [0, 7, 8, 9, 255] {
        for length in 0..4_u8 {
            let mut ts = vec![255, 0, 0, 0];
            ts.extend([kind, 0, 0, length].repeat(255));
            assert!(chain(PayloadType::TS_I, &payload(&ts)).is_err());
        }
    }

    // Configuration attributes may be empty, but not without number.
    let mut cp = vec![1, 0, 0, 0];
    cp.extend([0, 1, 0, 0].repeat(16_000));
    let result = chain(PayloadType::CP, &payload(&cp)).map(|_| ());
    assert_eq!(result, Err(DecodeError::TooMany("configuration attributes")));

    // Proposals without transforms may be many, but not without number.
    let sa = [2, 0, 0, 8, 1, 1, 0, 0].repeat(8_000);
    let result = chain(PayloadType::SA, &payload(&sa)).map(|_| ());
    assert_eq!(result, Err(DecodeError::TooMany("proposals")));
}

/// Identities compared and printed: CVE-2013-6075, CVE-2023-38711, OpenIKED's ikev2_print_id.
#[test]
fn class_25_identity_compare_and_print() {
    let id = |kind: IdType, data: &[u8]| [&[kind.0, 0, 0, 0], data].concat();
    for length in (0..64).filter(|length| *length != 4) {
        assert!(Id::decode(&id(IdType::IPV4_ADDR, &vec![1; length])).is_err());
    }
    for length in (0..64).filter(|length| *length != 16) {
        assert!(Id::decode(&id(IdType::IPV6_ADDR, &vec![1; length])).is_err());
    }
    for name in ["", "a\0b", "gate.example.org\0", "a\nb", "a\rb", "\x1b[31m", "a\x7fb", "a\u{85}b"]
    {
        assert!(Id::decode(&id(IdType::FQDN, name.as_bytes())).is_err(), "{name:?}");
        assert!(Id::decode(&id(IdType::RFC822_ADDR, name.as_bytes())).is_err(), "{name:?}");
    }
    assert!(Id::decode(&id(IdType::FQDN, b"\xff\xfe")).is_err(), "not text");

    // A DN is one DER SEQUENCE, no more and no less.
    let dn = [0x30, 0x04, 0x31, 0x02, 0x30, 0x00];
    assert!(Id::decode(&id(IdType::DER_ASN1_DN, &dn)).is_ok());
    for short in 0..dn.len() {
        assert!(Id::decode(&id(IdType::DER_ASN1_DN, &dn[..short])).is_err());
    }
    assert!(Id::decode(&id(IdType::DER_ASN1_DN, &[&dn[..], &[0]].concat())).is_err());
    assert!(Id::decode(&id(IdType::DER_ASN1_DN, &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff])).is_err());

    // What prints is printable ASCII, and no type passes for another.
    let long = "a".repeat(255);
    let texts = [long.as_str(), "$(reboot)", "\";bash -c x", "münchen.example"];
    for kind in (0..=255).map(IdType) {
        for text in texts {
            let body = id(kind, text.as_bytes());
            let Ok(decoded) = Id::decode(&body) else { continue };
            let owned = decoded.to_owned();
            for shown in [owned.to_string(), format!("{owned:?}")] {
                assert!(shown.bytes().all(|b| (0x20..0x7f).contains(&b)), "{shown}");
                assert!(!shown.contains(['"', '$', '`', '\'']), "{shown}");
            }
            let other = Id { kind: IdType(kind.0.wrapping_add(1)), ..decoded };
            assert!(owned.matches(decoded) && !owned.matches(other));
        }
    }
}
