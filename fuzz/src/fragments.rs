//! Target `fragments`: hand-made peers, who hold the keys, send an endpoint fragments of every kind.
//! Memory stays within the budget and comes back, no more is answered than was asked, and a genuine
//! message still gets through.

use std::time::Duration;

use ike_proto::config::EndpointConfig;
use ike_proto::wire::payload::Payload;
use ike_proto::wire::registry::{ExchangeType, PayloadType};
use ike_tests::Setup;
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, LooseFragment};
use ike_tests::setup::identity;

use crate::input::Input;

/// Octets that all incomplete messages together may take.
const BUDGET: usize = 256 << 10;
/// The largest message that is put together.
const MAX_PACKET: usize = 20_000;
/// Decisions taken from one input.
const MAX_STEPS: usize = 300;

/// Runs one input; counts the genuine messages that were answered.
pub fn run(octets: &[u8]) -> usize {
    let mut input = Input(octets);
    let mut bench = bench();
    // The first is established, the others are strangers.
    let mut peers = vec![bench.established(1007)];
    let mut answers = 0;
    for _ in 0..MAX_STEPS {
        let Some(step) = input.next() else { break };
        let who = usize::from(step >> 5) % peers.len();
        match step & 0x1f {
            0 if peers.len() < 5 => peers.push(bench.half_open()),
            1 => bench.world.run_for(Duration::from_millis(u64::from(input.word()))),
            2..=9 => answers += genuine(&mut bench, &mut peers[who], who == 0, &mut input),
            10..=25 => {
                let datagram = loose(&mut peers[who], &mut input);
                bench.give(&datagram);
            }
            _ => {
                let mut datagram = loose(&mut peers[who], &mut input);
                let at = usize::from(input.word()) % datagram.len();
                datagram[at] ^= input.octet().max(1);
                let held = bench.host().endpoint.reassembly_memory();
                bench.give(&datagram);
                assert_eq!(bench.host().endpoint.reassembly_memory(), held, "a forged fragment");
            }
        }
        let held = bench.host().endpoint.reassembly_memory();
        assert!(held <= BUDGET, "{held} octets held");
        assert!(held <= peers.len() * 2 * MAX_PACKET, "{held} octets held by {}", peers.len());
    }
    bench.world.run_for(Duration::from_secs(61));
    assert_eq!(bench.host().endpoint.reassembly_memory(), 0, "memory comes back");
    assert_eq!(bench.host().endpoint.half_open(), 0);
    bench.assert_nothing_leaked();
    round_trip(octets, &mut peers[0]);
    answers
}

fn bench() -> Bench {
    let mut side = Setup::new(1).a;
    side.settings = EndpointConfig {
        reassembly_memory: BUDGET,
        max_packet: MAX_PACKET,
        cookie_threshold: u32::MAX,
        ..side.settings
    };
    Bench::with(side)
}

/// A genuine message in fragments, all of them or some, in any order, some twice. Counts answers.
fn genuine(bench: &mut Bench, peer: &mut Handmade, friend: bool, input: &mut Input<'_>) -> usize {
    let max_datagram = 100 + usize::from(input.octet()) * 4;
    let filler = vec![0x2a; usize::from(input.word()) % MAX_PACKET];
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = vec![Payload::Vendor(&filler)];
    let (exchange, message_id) = if friend {
        (ExchangeType::INFORMATIONAL, peer.next_id)
    } else {
        payloads.extend(auth_payloads(&id, &auth, 1009, true));
        (ExchangeType::IKE_AUTH, 1)
    };
    let mut fragments = peer.seal_in(exchange, message_id, false, &payloads, Some(max_datagram));
    let order = input.octet();
    if order & 1 != 0 {
        fragments.reverse();
    }
    if order & 2 != 0 {
        let by = usize::from(order) % fragments.len();
        fragments.rotate_left(by);
    }
    if order & 4 != 0 {
        let at = usize::from(order) % fragments.len();
        fragments.remove(at);
    }
    if order & 8 != 0 {
        let again = fragments.first().cloned();
        fragments.extend(again);
    }
    let answers: Vec<_> = fragments.iter().flat_map(|fragment| bench.give(fragment)).collect();
    let sealed = answers.iter().filter(|answer| peer.open(answer).is_some()).count();
    assert!(sealed <= 2, "{sealed} answers to one message");
    if friend && sealed > 0 {
        peer.next_id += 1;
    }
    sealed
}

/// A fragment of no particular message.
fn loose(peer: &mut Handmade, input: &mut Input<'_>) -> Vec<u8> {
    let shape = input.octet();
    let number = if shape & 1 != 0 { input.word() } else { u16::from(input.octet() % 8) };
    let total = if shape & 2 != 0 { input.word() } else { u16::from(input.octet() % 8) };
    let length = if shape & 4 != 0 { usize::from(input.word()) } else { 0 };
    let message_id = if shape & 8 != 0 { u32::from(input.octet()) } else { peer.next_id };
    let exchange = match shape >> 6 {
        0 => ExchangeType::IKE_AUTH,
        1 => ExchangeType::INFORMATIONAL,
        2 => ExchangeType::CREATE_CHILD_SA,
        _ => ExchangeType(input.octet()),
    };
    let first = PayloadType(input.octet());
    let own = usize::from(input.octet());
    let mut content = input.take(own).to_vec();
    content.resize(length.max(content.len()).min(60_000), 0);
    let fragment = LooseFragment { first, number, total, content: &content };
    peer.seal_fragment(exchange, message_id, shape & 16 != 0, &fragment)
}

/// Whatever is sealed in fragments of any size fits them, and comes out again.
fn round_trip(octets: &[u8], peer: &mut Handmade) {
    use ike_proto::wire::{HEADER_LEN, Message};
    let room = 62 + usize::from(octets.first().copied().unwrap_or(0));
    let payloads = [Payload::Vendor(octets), Payload::Vendor(&[])];
    let sealed = peer.seal_in(ExchangeType::INFORMATIONAL, 99, false, &payloads, Some(room));
    for (index, datagram) in sealed.iter().enumerate() {
        assert!(datagram.len() <= room && datagram.len() > HEADER_LEN);
        let message = Message::decode(datagram).expect("well-formed");
        let Some(Payload::Skf(skf)) = message.payloads.last() else { panic!("no fragment") };
        assert_eq!(usize::from(skf.number), index + 1);
        assert_eq!(usize::from(skf.total), sealed.len());
    }
}
