//! The bench, and the messages of a peer with one additional key exchange.

use ike_proto::keys::Opened;
use ike_proto::wire::payload::{Delete, Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};
use ike_proto::wire::{Header, Message, decode_payloads};
use ike_tests::bench::{Bench, net};
use ike_tests::handmade::{ESP, Handmade, notifies, proposal};
use ike_tests::setup::side;

pub const CREATE_CHILD_SA: ExchangeType = ExchangeType::CREATE_CHILD_SA;
pub const FOLLOWUP: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;
pub const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;

/// The IKE SA begins without an additional key exchange, and has one in rekeys.
const IKE: &str = "aes256gcm16-prfsha256-x25519";
const IKE_HYBRID: &str = "aes256gcm16-prfsha256-x25519-ke1_ecp256";
const ESP_HYBRID: &str = "aes256gcm16-x25519-ke1_ecp256";

/// Octets of the public values of the cheap X25519 and ECP-256.
const FIRST: [u8; 32] = [7; 32];
const SECOND: [u8; 64] = [8; 64];

/// Host A, which has additional key exchanges for the peer.
pub fn bench() -> Bench {
    let mut side = side(1, 2);
    side.ike_proposals(&[IKE_HYBRID, IKE]);
    side.esp_proposals(&[ESP_HYBRID, ESP]);
    Bench::with(side)
}

/// The same with one more child, between `10.3.0.0/16` and `10.4.0.0/16`.
pub fn bench_with(child: &str) -> Bench {
    let mut side = side(1, 2);
    side.add_child(child, 3, 4);
    side.ike_proposals(&[IKE_HYBRID, IKE]);
    side.esp_proposals(&[ESP_HYBRID, ESP]);
    Bench::with(side)
}

/// What CREATE_CHILD_SA of the peer is for.
#[derive(Debug, Clone, Copy)]
pub enum For {
    /// A child whose inbound SPI at the peer is this.
    Child(u32),
    /// A child of this SPI in the place of the one with the second.
    Rekey(u32, u32),
    /// The successor of the IKE SA, with this SPI.
    Ike(u64),
    /// The same without an additional key exchange.
    IkeClassic(u64),
}

/// The one response in `sent`, opened.
#[track_caller]
pub fn answer(peer: &Handmade, sent: &[Vec<u8>]) -> Opened {
    let answers = sent.iter().filter(|sent| is(sent, None, true));
    let mut answers = answers.filter_map(|sent| peer.open(sent));
    let answer = answers.next().expect("an answer");
    assert!(answers.next().is_none(), "more than one answer");
    answer
}

/// The request of this exchange in `sent`, with its message ID.
#[track_caller]
pub fn request(peer: &Handmade, sent: &[Vec<u8>], exchange: ExchangeType) -> (u32, Opened) {
    let sent = sent.iter().find(|sent| is(sent, Some(exchange), false)).expect("a request");
    let id = Header::peek(sent).expect("a header").message_id;
    (id, peer.open(sent).expect("sealed for the peer"))
}

/// True if `datagram` is a message of `exchange`, or of any.
pub fn is(datagram: &[u8], exchange: Option<ExchangeType>, response: bool) -> bool {
    Message::decode(datagram).is_ok_and(|message| {
        message.header.flags.response == response
            && exchange.is_none_or(|exchange| message.header.exchange == exchange)
    })
}

/// The link that an answer names.
pub fn link_of(answer: &Opened) -> Option<Vec<u8>> {
    let payloads = decode_payloads(answer.first, &answer.octets, 0).expect("payloads");
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == NotifyType::ADDITIONAL_KEY_EXCHANGE => {
            Some(notify.data.to_vec())
        }
        _ => None,
    })
}

/// True if a request is a Delete of the IKE SA.
pub fn deletes_ike(request: &Opened) -> bool {
    let payloads = decode_payloads(request.first, &request.octets, 0).expect("payloads");
    payloads
        .iter()
        .any(|p| matches!(p, Payload::Delete(delete) if delete.protocol == ProtocolId::IKE))
}

/// Sends CREATE_CHILD_SA and returns the answer.
#[track_caller]
pub fn create(bench: &mut Bench, peer: &mut Handmade, what: For) -> Opened {
    let nonce = bench.seed().to_be_bytes().repeat(4);
    let mut payloads = Vec::new();
    match what {
        For::Rekey(_, old) => {
            payloads.push(Payload::Notify(Notify::esp(NotifyType::REKEY_SA, old)));
        }
        For::Child(_) | For::Ike(_) | For::IkeClassic(_) => {}
    }
    payloads.push(Payload::Sa(match what {
        For::Child(spi) | For::Rekey(spi, _) => {
            proposal(ProtocolId::ESP, ESP_HYBRID, Spi::Esp(spi))
        }
        For::Ike(spi) => proposal(ProtocolId::IKE, IKE_HYBRID, Spi::Ike(spi)),
        For::IkeClassic(spi) => proposal(ProtocolId::IKE, IKE, Spi::Ike(spi)),
    }));
    payloads.push(Payload::Nonce(&nonce));
    payloads.push(Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &FIRST }));
    if !matches!(what, For::Ike(_) | For::IkeClassic(_)) {
        payloads.extend([Payload::TsI(vec![net(2)]), Payload::TsR(vec![net(1)])]);
    }
    let request = peer.next_request(CREATE_CHILD_SA, &payloads);
    let sent = bench.give(&request);
    answer(peer, &sent)
}

/// The same, which is answered with a link.
#[track_caller]
pub fn opened(bench: &mut Bench, peer: &mut Handmade, what: For) -> Vec<u8> {
    let answer = create(bench, peer, what);
    link_of(&answer).unwrap_or_else(|| panic!("refused: {:?}", notifies(&answer)))
}

/// Sends the IKE_FOLLOWUP_KE of `link`; the errors in the answer.
#[track_caller]
pub fn follow(bench: &mut Bench, peer: &mut Handmade, link: &[u8]) -> Vec<NotifyType> {
    let request = peer.next_request(FOLLOWUP, &key_exchange(link));
    let sent = bench.give(&request);
    notifies(&answer(peer, &sent))
}

/// The payloads of an IKE_FOLLOWUP_KE request.
pub fn key_exchange(link: &[u8]) -> [Payload<'_>; 2] {
    [
        Payload::Ke(Ke { method: KeMethodId::ECP_256, data: &SECOND }),
        Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, link)),
    ]
}

/// Deletes the child of which the peer has the inbound SPI `spi`.
pub fn delete(bench: &mut Bench, peer: &mut Handmade, spi: u32) {
    let delete = Delete { protocol: ProtocolId::ESP, spis: vec![spi] };
    let request = peer.next_request(INFORMATIONAL, &[Payload::Delete(delete)]);
    let sent = bench.give(&request);
    answer(peer, &sent);
}

/// Deletes the IKE SA.
pub fn delete_ike(bench: &mut Bench, peer: &mut Handmade) {
    let delete = Delete { protocol: ProtocolId::IKE, spis: Vec::new() };
    let request = peer.next_request(INFORMATIONAL, &[Payload::Delete(delete)]);
    let sent = bench.give(&request);
    answer(peer, &sent);
}

/// Answers CREATE_CHILD_SA of the endpoint with a child of `spi`, its additional key exchange to come.
pub fn accept_child(
    bench: &mut Bench,
    peer: &mut Handmade,
    id: u32,
    spi: u32,
    nonce: &[u8],
) -> Vec<Vec<u8>> {
    let response = [
        Payload::Sa(proposal(ProtocolId::ESP, ESP_HYBRID, Spi::Esp(spi))),
        Payload::Nonce(nonce),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &FIRST }),
        Payload::TsI(vec![net(1)]),
        Payload::TsR(vec![net(2)]),
        Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, b"onward")),
    ];
    let response = peer.seal(CREATE_CHILD_SA, id, true, &response);
    bench.give(&response)
}

/// The same for the IKE SA.
pub fn accept_ike(
    bench: &mut Bench,
    peer: &mut Handmade,
    id: u32,
    spi: u64,
    nonce: &[u8],
) -> Vec<Vec<u8>> {
    let response = [
        Payload::Sa(proposal(ProtocolId::IKE, IKE_HYBRID, Spi::Ike(spi))),
        Payload::Nonce(nonce),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &FIRST }),
        Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, b"onward")),
    ];
    let response = peer.seal(CREATE_CHILD_SA, id, true, &response);
    bench.give(&response)
}

/// Answers a request of the endpoint with one notify.
pub fn refuse(
    bench: &mut Bench,
    peer: &mut Handmade,
    exchange: ExchangeType,
    id: u32,
    kind: NotifyType,
) -> Vec<Vec<u8>> {
    let notify = [Payload::Notify(Notify::new(kind, &[]))];
    let response = peer.seal(exchange, id, true, &notify);
    bench.give(&response)
}
