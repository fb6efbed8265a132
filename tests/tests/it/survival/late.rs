//! Messages from the past: duplicates of the first ones that come when all is over.

use std::time::Duration;

use ike_proto::Command;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Packet;
use ike_tests::{A, B, Pair};

use super::{is_initial, large, up};

const MINUTE: Duration = Duration::from_secs(60);

/// Delivers everything of the handshake once more, oldest and newest first.
fn replay(pair: &mut Pair, packets: &[Packet]) {
    for packet in packets.iter().chain(packets.iter().rev()) {
        pair.inject(packet.clone());
    }
}

fn handshake(pair: &mut Pair) -> Vec<Packet> {
    up(pair, MINUTE);
    pair.net.trace.iter().filter(|packet| is_initial(packet)).cloned().collect()
}

/// What both ends have, and what they are to have for ever.
fn state(pair: &Pair) -> Vec<(u64, u64)> {
    [A, B]
        .into_iter()
        .flat_map(|host| pair.hosts[host].ikes())
        .filter(|ike| ike.state == ike_proto::IkeState::Established)
        .map(|ike| (ike.spi_i, ike.spi_r))
        .collect()
}

#[test]
fn after_establishment() {
    let mut pair = large(1, "mlkem512").build();
    let packets = handshake(&mut pair);
    let before = state(&pair);
    for _ in 0..20 {
        replay(&mut pair, &packets);
        assert_eq!(state(&pair), before, "{}", pair.story());
        assert_eq!(pair.b().endpoint.half_open(), 0, "no state for an old request");
        pair.run_for(Duration::from_secs(10));
    }
    pair.assert_agreement();
}

#[test]
fn after_a_rekey() {
    let mut pair = large(2, "mlkem512").build();
    let packets = handshake(&mut pair);
    pair.rekey_ike(A);
    pair.run_for(MINUTE);
    let before = state(&pair);
    assert_eq!(before.len(), 2);
    replay(&mut pair, &packets);
    // To a responder that has forgotten it, an old IKE_SA_INIT request is as good as a new one.
    assert!(pair.b().endpoint.half_open() <= 1);
    assert_eq!(state(&pair), before, "{}", pair.story());
    pair.run_for(10 * MINUTE);
    assert_eq!(pair.b().endpoint.half_open(), 0);
    assert_eq!(state(&pair), before, "{}", pair.story());
    pair.assert_agreement();
}

#[test]
fn after_deletion() {
    let mut pair = large(3, "mlkem512").build();
    let packets = handshake(&mut pair);
    let ike = pair.ike_id(A);
    pair.command(A, Command::TerminateIke(ike));
    pair.run_for(MINUTE);
    assert_eq!(state(&pair), []);
    let sent = pair.net.trace.len();
    replay(&mut pair, &packets);
    pair.run_for(10 * MINUTE);
    assert_eq!(state(&pair), [], "{}", pair.story());
    assert_eq!((pair.a().ikes().len(), pair.b().ikes().len()), (0, 0));
    let answers = pair.net.trace.len() - sent;
    assert!(answers <= 2 * packets.len(), "{answers} answers to {} packets", packets.len());
}

/// An IKE_SA_INIT response that was held up for long, and its request, which is answered once more.
#[test]
fn an_answer_that_comes_when_another_was_used() {
    let mut pair = large(4, "mlkem512").build();
    let mut held = Vec::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut first = true;
    pair.net.tap(move |packet| {
        let this = first && packet.is(ExchangeType::IKE_SA_INIT, true);
        if this {
            first = false;
            sender.send(packet.clone()).unwrap();
            return ike_tests::network::Fate::Drop;
        }
        ike_tests::network::Fate::Pass
    });
    up(&mut pair, MINUTE);
    held.extend(receiver.try_iter());
    let before = state(&pair);
    replay(&mut pair, &held);
    pair.run_for(MINUTE);
    assert_eq!((held.len(), state(&pair)), (1, before));
    pair.assert_agreement();
}
