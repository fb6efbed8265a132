//! Target `fragment_ack`: a hand-made peer, who holds the keys, acknowledges the fragments of an endpoint as
//! the input says, and sends fragments to be acknowledged; somebody else plays its datagrams back, or
//! changes them. Each acknowledgement of the endpoint is well-formed, there are never many more of them
//! than fragments, no fragment is sent again too often, and the SA is none the worse.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::PreSharedKey;
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::{IdData, MissingRange, Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_proto::wire::{Message, decode_payloads};
use ike_tests::Setup;
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, LooseFragment};
use ike_tests::setup::identity;

use crate::input::Input;

/// The defaults of the engine: supported, of a request, of a response.
const TYPES: [NotifyType; 3] = [NotifyType(51_521), NotifyType(51_522), NotifyType(51_523)];
/// Decisions taken from one input.
const MAX_STEPS: usize = 300;
/// The most times a fragment is sent again because of acknowledgements.
const MOST: usize = 128;

/// What has gone in and out since the beginning.
#[derive(Default)]
struct Books {
    /// Fragments given to the endpoint, and acknowledgements it made.
    given: usize,
    acks: usize,
    /// How often each of its fragments left.
    sent: HashMap<Vec<u8>, usize>,
}

/// Runs one input; counts the fragments sent again and the acknowledgements made.
pub fn run(octets: &[u8]) -> (usize, usize) {
    let mut input = Input(octets);
    let (mut bench, mut peer, answer) = established();
    let mut books = Books::default();
    let mut before: Vec<Vec<u8>> = Vec::new();
    for _ in 0..MAX_STEPS {
        let Some(step) = input.next() else { break };
        let mut datagram = match step & 0x1f {
            0..=3 => {
                bench.world.run_for(Duration::from_millis(u64::from(input.word()) / 4));
                let sent = bench.sent();
                books.note(&peer, &sent);
                continue;
            }
            4..=15 => acknowledgement(&mut peer, &mut input),
            16..=25 => {
                books.given += 1;
                loose(&mut peer, &mut input)
            }
            _ => {
                let Some(place) = input.index(before.len()) else { continue };
                // Played back, it may be a fragment.
                books.given += 1;
                before[place].clone()
            }
        };
        if step & 0xe0 == 0xe0 {
            let place = usize::from(input.word()) % datagram.len();
            datagram[place] ^= input.octet().max(1);
        } else if before.len() < 64 {
            before.push(datagram.clone());
        }
        let sent = bench.give(&datagram);
        books.note(&peer, &sent);
    }
    bench.world.run_for(Duration::from_secs(61));
    let sent = bench.sent();
    books.note(&peer, &sent);
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0, "memory comes back");
    // A request that is due is answered.
    if !bench.host().ikes().is_empty() {
        let id = peer.next_id;
        let request = peer.seal(ExchangeType::INFORMATIONAL, id, false, &[]);
        assert_eq!(bench.give(&request).len(), 1, "{:?}", bench.host().dropped.last());
    }
    bench.assert_nothing_leaked();
    let again = answer.iter().filter_map(|fragment| books.sent.get(fragment)).sum();
    (again, books.acks)
}

impl Books {
    fn note(&mut self, peer: &Handmade, sent: &[Vec<u8>]) {
        for datagram in sent {
            let message = Message::decode(datagram).expect("well-formed");
            if let Some(Payload::Skf(_)) = message.payloads.last() {
                let times = self.sent.entry(datagram.clone()).or_default();
                *times += 1;
                // Playing the request back makes it leave as well, once each time.
                assert!(*times <= MOST + MAX_STEPS, "a fragment left {times} times");
                continue;
            }
            let Some(opened) = peer.open(datagram) else { continue };
            let payloads =
                decode_payloads(opened.first, &opened.octets, 0).expect("well-formed inside");
            if let [Payload::Notify(notify)] = payloads.as_slice()
                && TYPES[1..].contains(&notify.kind)
            {
                assert!(message.header.flags.response && datagram.len() < 576);
                assert!(MissingRange::decode_all(notify.data, u16::MAX).is_ok());
                self.acks += 1;
                assert!(self.acks <= 5 * self.given + 4, "{} for {}", self.acks, self.given);
            }
        }
    }
}

/// An endpoint with an IKE SA, its peer, and the fragments of its IKE_AUTH response.
fn established() -> (Bench, Handmade, Vec<Vec<u8>>) {
    let mut side = Setup::new(1).a;
    side.settings.fragment_size = Some(160);
    // Long, so that the response has several fragments.
    let id = IdData::fqdn(format!("{}.example", "a".repeat(300)));
    let ids = vec![id.clone(), identity(2)];
    side.connection.set_local_id(Some(id));
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids, secret: Secret::copy_from(PSK) })];
    let mut bench = Bench::with(side);
    let mut started = bench.start();
    let mut payloads = started.payloads();
    payloads.push(Payload::Notify(Notify::new(TYPES[0], &[])));
    let request = started.encode(&payloads);
    drop(payloads);
    started.request = request;
    let sent = bench.give(&started.request);
    let mut peer = started.finish(&sent[0]).expect("an SA in the response");
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, 1007, true));
    let answer = bench.give(&request);
    assert!(answer.len() > 4, "fragments");
    (bench, peer, answer)
}

/// An acknowledgement of the last response, or of something else; in order, or not.
fn acknowledgement(peer: &mut Handmade, input: &mut Input<'_>) -> Vec<u8> {
    let shape = input.octet();
    let kind = if shape & 1 == 0 { TYPES[2] } else { TYPES[usize::from(shape >> 1) % 3] };
    let message_id = if shape & 8 == 0 { 1 } else { u32::from(input.octet()) };
    let exchange = match shape >> 4 & 3 {
        1 => ExchangeType::INFORMATIONAL,
        2 => ExchangeType::CREATE_CHILD_SA,
        _ => ExchangeType::IKE_AUTH,
    };
    let count = usize::from(input.octet() % 9);
    let mut data = Vec::new();
    for _ in 0..count {
        let first = u16::from(input.octet() % 16);
        let last = if shape & 0x40 == 0 { first } else { input.word() };
        MissingRange::encode_all(&[MissingRange { first, last }], &mut data);
    }
    if shape & 0x80 != 0 {
        data.push(shape);
    }
    peer.seal(exchange, message_id, true, &[Payload::Notify(Notify::new(kind, &data))])
}

/// A fragment of a request that never becomes whole.
fn loose(peer: &mut Handmade, input: &mut Input<'_>) -> Vec<u8> {
    let number = u16::from(input.octet() % 20);
    let total = 20 + u16::from(input.octet() % 4) * 1000;
    let fragment = LooseFragment { first: PayloadType::NONE, number, total, content: &[7; 30] };
    let message_id = peer.next_id;
    peer.seal_fragment(ExchangeType::INFORMATIONAL, message_id, false, &fragment)
}
