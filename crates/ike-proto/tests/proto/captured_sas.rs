//! We open what other implementations sealed: four captured IKE SAs with their keys, the message of
//! RFC 7634, and one of free5GC. All suites of these vectors are there; none is left out.

use crate::vectors::{Counting, hex, octets, secret, suite};
use ike_proto::crypto::{CipherSuite, Secret};
use ike_proto::keys::{Epoch, IkeKeys, Outgoing};
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{EncrId, ExchangeType, IntegId, NotifyType, PayloadType};
use ike_proto::wire::{Flags, Message, decode_payloads};
use serde_json::Value;

const CAPTURES: &str = include_str!("../data/keys/captured_sas.json");
const RFC7634: &str = include_str!("../data/keys/rfc7634_ike_message.json");
const FREE5GC: &str = include_str!("../data/keys/free5gc_keys.json");

fn none() -> Secret {
    Secret::new(Vec::new())
}

/// One end's keys, made of what protects messages.
fn epoch(suite: CipherSuite, [ei, er, ai, ar]: [Secret; 4], is_initiator: bool) -> Epoch {
    let keys = IkeKeys { d: none(), ai, ar, ei, er, pi: none(), pr: none() };
    Epoch::new(pq_kem::provider().ciphers, suite, &keys, is_initiator).unwrap()
}

fn captured_suite(sa: &Value) -> CipherSuite {
    match (sa["encr"].as_str().unwrap(), sa["integ"].as_str().unwrap()) {
        ("AES-CCM-128 with 12 octet ICV [RFC5282]", "NONE [RFC4306]") => {
            suite(EncrId::AES_CCM_12, 128, IntegId::NONE)
        }
        ("AES-CTR-192 [RFC5930]", "HMAC_SHA2_512_256 [RFC4868]") => {
            suite(EncrId::AES_CTR, 192, IntegId::HMAC_SHA2_512_256)
        }
        ("AES-CBC-256 [RFC3602]", "HMAC_SHA2_256_128 [RFC4868]") => {
            suite(EncrId::AES_CBC, 256, IntegId::HMAC_SHA2_256_128)
        }
        ("AES-GCM-256 with 16 octet ICV [RFC5282]", "NONE [RFC4306]") => {
            suite(EncrId::AES_GCM_16, 256, IntegId::NONE)
        }
        other => panic!("{other:?}"),
    }
}

/// The content of the Encrypted payload of `datagram`, and the type of its first payload.
fn open(epoch: &Epoch, datagram: &[u8]) -> (PayloadType, Vec<u8>) {
    let message = Message::decode(datagram).unwrap();
    let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!("no SK payload") };
    let opened = epoch.open(datagram, sk).unwrap();
    (opened.first, opened.octets)
}

/// The dissector shows padding and Pad Length with the plaintext, but nothing of an empty message.
fn without_padding(mut plaintext: Vec<u8>) -> Vec<u8> {
    let padding = usize::from(plaintext.pop().unwrap_or(0));
    plaintext.truncate(plaintext.len() - padding);
    plaintext
}

#[test]
fn wireshark_captures_open_to_the_same_plaintext() {
    let captures: Value = serde_json::from_str(CAPTURES).unwrap();
    let mut sealed = 0;
    for sa in captures.as_array().unwrap() {
        let keys = || ["sk_ei", "sk_er", "sk_ai", "sk_ar"].map(|name| secret(&sa[name]));
        let initiator = epoch(captured_suite(sa), keys(), true);
        let responder = epoch(captured_suite(sa), keys(), false);
        for record in sa["messages"].as_array().unwrap() {
            let datagram = octets(&record["datagram"]);
            let message = Message::decode(&datagram).unwrap();
            let Some(plaintext) = record.get("plaintext") else {
                assert_eq!(message.header.exchange, ExchangeType::IKE_SA_INIT);
                continue;
            };
            let name = format!("{} message {}", sa["capture"], message.header.message_id);
            let from_initiator = message.header.flags.initiator;
            let (to, from) =
                if from_initiator { (&responder, &initiator) } else { (&initiator, &responder) };
            let (first, content) = open(to, &datagram);
            assert_eq!(content, without_padding(octets(plaintext)), "{name}");
            decode_payloads(first, &content, 0).unwrap_or_else(|e| panic!("{name}: {e}"));
            let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!("{name}: no SK") };
            assert!(from.open(&datagram, sk).is_err(), "{name}: keys of the other direction");
            sealed += 1;
        }
    }
    assert_eq!((captures.as_array().unwrap().len(), sealed), (4, 14));
}

/// RFC 7634, Appendix B.
#[test]
fn rfc_7634_ike_message() {
    let v: Value = serde_json::from_str(RFC7634).unwrap();
    let chacha = suite(EncrId::CHACHA20_POLY1305, 0, IntegId::NONE);
    let key = || [secret(&v["key_with_salt"]), secret(&v["key_with_salt"]), none(), none()];
    let packet = octets(&v["expected_packet"]);
    let (first, content) = open(&epoch(chacha, key(), true), &packet);
    assert_eq!(content, hex("0000000c000040010000000a"));
    let notify = Notify::new(NotifyType::SET_WINDOW_SIZE, &[0, 0, 0, 10]);
    let payloads = [Payload::Notify(notify)];
    assert_eq!(decode_payloads(first, &content, 0).unwrap(), payloads);

    // Sealed by us the message has the same header and size; the IV is our own counter.
    let message = Message::decode(&packet).unwrap();
    let outgoing = Outgoing {
        spi_i: message.header.spi_i,
        spi_r: message.header.spi_r,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags::default(),
        message_id: 9,
        payloads: &payloads,
        max_datagram: Some(1280),
        force_fragment: false,
    };
    let sealed = epoch(chacha, key(), false).seal(&outgoing, &mut Counting(0)).unwrap();
    let [ours] = &sealed[..] else { panic!("{} datagrams", sealed.len()) };
    assert_eq!((ours.len(), &ours[..32]), (packet.len(), &packet[..32]));
    assert_eq!(open(&epoch(chacha, key(), true), ours), (first, content));
}

#[test]
fn free5gc_message() {
    let file: Value = serde_json::from_str(FREE5GC).unwrap();
    let v = &file["ike_auth_eap_message"];
    let keys = ["sk_ei", "sk_er", "sk_ai", "sk_ar"].map(|name| secret(&v[name]));
    let cbc = suite(EncrId::AES_CBC, 256, IntegId::HMAC_SHA1_96);
    let (first, content) = open(&epoch(cbc, keys, false), &octets(&v["raw"]));
    let payloads = decode_payloads(first, &content, 0).unwrap();
    let [Payload::Eap(eap)] = &payloads[..] else { panic!("{payloads:?}") };
    let data = "0200000000157e00572d10f507362e322de368579365d2862b50ed";
    assert!(v["plain_payload"].as_str().unwrap().contains(data));
    // Response, identifier, length; expanded type 254, vendor 10415, vendor type 3.
    let length = u16::try_from(eap.len()).unwrap().to_be_bytes();
    let header = [2, 0x3b, length[0], length[1], 254, 0, 0x28, 0xaf, 0, 0, 0, 3];
    assert_eq!(*eap, [&header[..], &hex(data)].concat());
}
