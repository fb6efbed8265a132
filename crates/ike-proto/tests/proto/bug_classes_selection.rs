//! Bug classes that broke other IKE daemons, as far as the selection of proposals is concerned. Each test
//! is named after its class and cites where it was seen.

use ike_proto::config::ProposalConfig;
use ike_proto::config::proposal::{SelectOptions, select};
use ike_proto::wire::payload::{Payload, Proposal, Sa, Spi, Transform};
use ike_proto::wire::registry::{
    EncrId, ExchangeType, IntegId, KeMethodId, PayloadType, PrfId, ProtocolId, TransformType,
};
use ike_proto::wire::{
    DecodeError, Flags, HEADER_LEN, Header, Message, decode_payloads, encode_message,
};

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

/// An internal number accepted from the wire: KE method 1025, CVE-2014-9221.
#[test]
fn class_05_key_exchange_number_from_the_private_range() {
    let ours = ProposalConfig::default_ike();
    let unassigned = (38..=100).chain(1024..=1100).chain([0, 3, 65_535]);
    for id in unassigned.map(KeMethodId) {
        let octets = payload(&[&id.0.to_be_bytes()[..], &[0, 0], &[7; 32]].concat());
        let payloads = chain(PayloadType::KE, &octets).unwrap();
        assert!(matches!(&payloads[..], [Payload::Ke(ke)] if ke.method == id));
        let mut proposal = ours[0].to_wire(1, Spi::None);
        proposal.transforms.retain(|t| t.kind != TransformType::KE);
        proposal.transforms.push(Transform::ke(id));
        let offer = Sa { proposals: vec![proposal] };
        assert_eq!(select(&ours, &offer, SelectOptions::default()), None, "{id}");
    }
}

/// A proposal without a mandatory transform: CVE-2016-5391.
#[test]
fn class_07_proposal_without_mandatory_transform() {
    let ours = ["aes256gcm16-prfsha256-x25519", "aes256-sha256-x25519"]
        .map(|text| ProposalConfig::parse(ProtocolId::IKE, text).unwrap());
    let cbc = Transform::encr(EncrId::AES_CBC, 256);
    let gcm = Transform::encr(EncrId::AES_GCM_16, 256);
    let sha = Transform::integ(IntegId::HMAC_SHA2_256_128);
    let no_integ = Transform::integ(IntegId::NONE);
    let prf = Transform::prf(PrfId::HMAC_SHA2_256);
    let ke = Transform::ke(KeMethodId::CURVE_25519);
    let unknown = Transform::new(TransformType(15), 1);
    let chosen = |transforms: &[Transform]| {
        let (protocol, spi) = (ProtocolId::IKE, Spi::None);
        let proposal = Proposal { number: 1, protocol, spi, transforms: transforms.to_vec() };
        let sent = [Payload::Sa(Sa { proposals: vec![proposal] })];
        let datagram = encode_message(&header(), &sent);
        let message = Message::decode(&datagram).unwrap();
        assert_eq!(message.payloads, sent);
        let [Payload::Sa(sa)] = &message.payloads[..] else { panic!("one SA payload") };
        select(&ours, sa, SelectOptions::default()).is_some()
    };
    assert!(chosen(&[gcm, prf, ke]));
    assert!(chosen(&[gcm, no_integ, prf, ke]));
    assert!(chosen(&[cbc, sha, prf, ke]));

    assert!(!chosen(&[]), "no transforms at all");
    assert!(!chosen(&[prf, ke]), "no encryption");
    assert!(!chosen(&[gcm, ke]), "no PRF");
    assert!(!chosen(&[gcm, prf]), "no key exchange");
    assert!(!chosen(&[gcm, prf, Transform::ke(KeMethodId::NONE)]), "key exchange NONE");
    assert!(!chosen(&[cbc, prf, ke]), "no integrity");
    assert!(!chosen(&[cbc, no_integ, prf, ke]), "integrity NONE");
    assert!(!chosen(&[gcm, sha, prf, ke]), "AEAD with integrity");
    assert!(!chosen(&[unknown]), "only an unknown type");
    assert!(!chosen(&[gcm, prf, ke, unknown]), "an unknown type beside a whole suite");
    assert!(!chosen(&[gcm, prf, ke, Transform::esn(false)]), "a type that IKE does not have");
    let unknown_ids = [TransformType::ENCR, TransformType::PRF, TransformType::KE];
    assert!(!chosen(&unknown_ids.map(|kind| Transform::new(kind, 999))), "only unknown algorithms");

    let esp = [ProposalConfig::parse(ProtocolId::ESP, "aes256gcm16").unwrap()];
    let (protocol, spi) = (ProtocolId::ESP, Spi::Esp(1));
    let proposal = Proposal { number: 1, protocol, spi, transforms: vec![gcm] };
    let sa = Sa { proposals: vec![proposal] };
    assert_eq!(select(&esp, &sa, SelectOptions::default()), None, "ESP without sequence numbers");
}
