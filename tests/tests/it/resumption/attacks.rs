//! What somebody can do who has no keys.

use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::NotifyType;
use ike_proto::wire::{Flags, Header, Message, encode_message};
use ike_tests::network::Packet;

use super::*;

/// A network that stands still as soon as A has presented its ticket; that request.
#[track_caller]
pub(super) fn presented(pair: &mut Pair) -> Packet {
    pair.establish();
    lose(pair);
    pair.net.manual = true;
    pair.initiate(A, Some("net"));
    let request = pair.net.mailbox.iter().find(|packet| is_resume(packet)).cloned();
    request.expect("a ticket is presented")
}

/// `request` with a ticket that `change` has seen.
pub(super) fn with_ticket(request: &Packet, change: impl FnOnce(&mut Vec<u8>)) -> Packet {
    let message = Message::decode(&request.octets).unwrap();
    let is_ticket = |kind| kind == NotifyType::TICKET_OPAQUE;
    let mut ticket = Vec::new();
    for payload in &message.payloads {
        if let Payload::Notify(notify) = payload
            && is_ticket(notify.kind)
        {
            ticket = notify.data.to_vec();
        }
    }
    change(&mut ticket);
    let payloads: Vec<_> = message
        .payloads
        .iter()
        .map(|payload| match payload {
            Payload::Notify(notify) if is_ticket(notify.kind) => {
                Payload::Notify(Notify::new(notify.kind, &ticket))
            }
            other => other.clone(),
        })
        .collect();
    let octets = encode_message(&message.header, &payloads);
    Packet::forged(request.src, request.dst, octets)
}

pub(super) fn ticket_of(request: &Packet) -> Vec<u8> {
    let mut found = Vec::new();
    with_ticket(request, |ticket| found = ticket.clone());
    found
}

/// Whose unprotected answer it is.
fn answer(request: &Packet, spi_r: u64, payloads: &[Payload<'_>]) -> Packet {
    let header = request.header().unwrap();
    let flags = Flags { initiator: false, version: false, response: true };
    let octets = encode_message(&Header { spi_r, flags, ..header }, payloads);
    Packet::forged(request.dst, request.src, octets)
}

/// What B says to it.
pub(super) fn said(pair: &mut Pair, packet: Packet) -> Vec<NotifyType> {
    pair.net.mailbox.clear();
    pair.inject(packet);
    let mut kinds = Vec::new();
    for answer in pair.net.mailbox.drain(..) {
        let message = Message::decode(&answer.octets).unwrap();
        kinds.extend(message.payloads.iter().filter_map(|payload| match payload {
            Payload::Notify(notify) => Some(notify.kind),
            _ => None,
        }));
    }
    kinds
}

#[test]
fn every_octet_of_a_ticket_counts() {
    let mut setup = setup(1);
    // So many at once would be asked for cookies.
    setup.b.settings.cookie_threshold = 0;
    let mut pair = setup.build();
    let request = presented(&mut pair);
    let length = ticket_of(&request).len();
    assert!((100..600).contains(&length), "{length} octets");
    for at in 0..length {
        for bit in [1, 0x80] {
            let forged = with_ticket(&request, |ticket| ticket[at] ^= bit);
            assert_eq!(said(&mut pair, forged), [NotifyType::TICKET_NACK], "octet {at}");
        }
        let cut = with_ticket(&request, |ticket| ticket.truncate(at));
        assert_eq!(said(&mut pair, cut), [NotifyType::TICKET_NACK], "{at} octets");
    }
    let longer = with_ticket(&request, |ticket| ticket.push(0));
    assert_eq!(said(&mut pair, longer), [NotifyType::TICKET_NACK]);
    assert_eq!(pair.b().endpoint.half_open(), 0, "nothing is kept of it");
    // The genuine one is as good as before.
    pair.inject(request);
    assert_eq!(pair.b().endpoint.half_open(), 1);
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(2 * SECOND);
    assert!(pair.a().ike().resumed, "{}", pair.story());
}

/// Whoever has seen the request knows its SPI and can say anything to it. As long as the genuine gateway
/// answers, too, that is of no use to him.
#[test]
fn forged_answers_do_not_stop_it() {
    let nonce = [7; 32];
    let forged: [&[Payload<'_>]; 4] = [
        &[Payload::Nonce(&nonce)],
        &[Payload::Nonce(&nonce), Payload::Nonce(&nonce)],
        &[],
        &[Payload::Notify(Notify::new(NotifyType::COOKIE, &[]))],
    ];
    for (n, payloads) in forged.iter().enumerate() {
        let mut pair = setup(2).build();
        let request = presented(&mut pair);
        for spi_r in [0, 1, 2] {
            pair.inject(answer(&request, spi_r, payloads));
        }
        pair.net.manual = false;
        pair.deliver_all();
        pair.run_for(30 * SECOND);
        assert!(pair.a().ike().resumed, "{n}: {}", pair.story());
        pair.run_for(MINUTE);
        pair.assert_agreement();
    }
}

/// The refusal of somebody costs an ordinary handshake at the most, and the ticket is not lost by it.
#[test]
fn a_forged_refusal_does_not_cost_the_ticket() {
    for kind in [NotifyType::TICKET_NACK, NotifyType::INVALID_SYNTAX] {
        let mut pair = setup(3).build();
        let request = presented(&mut pair);
        let nack = [Payload::Notify(Notify::new(kind, &[]))];
        pair.inject(answer(&request, 0, &nack));
        // Then nobody answers any more, until A has given up.
        pair.net.mailbox.clear();
        pair.net.manual = false;
        let cut = switch(&mut pair);
        cut.store(true, Ordering::Relaxed);
        pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
        assert!(pair.a().ikes().is_empty(), "{}", pair.story());
        cut.store(false, Ordering::Relaxed);
        assert!(again(&mut pair), "{}", pair.story());
    }
}

#[test]
fn a_refusal_after_the_answer_is_not_heard() {
    let mut pair = setup(4).build();
    let request = presented(&mut pair);
    pair.deliver_to(B);
    pair.deliver_to(A);
    let nack = [Payload::Notify(Notify::new(NotifyType::TICKET_NACK, &[]))];
    pair.inject(answer(&request, 0, &nack));
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(SECOND);
    assert!(pair.a().ike().resumed, "{}", pair.story());
}

/// A copy of the request, from anywhere and at any time, makes no IKE SA and ends none.
#[test]
fn a_request_that_is_played_back() {
    let mut pair = setup(5).build();
    let request = presented(&mut pair);
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(5 * SECOND);
    assert!(pair.a().ike().resumed);
    let before = pair.b().ike().id;
    // To B it is a copy of what it has answered.
    pair.inject(request.clone());
    pair.run_for(5 * SECOND);
    // And with another SPI a ticket that was used.
    let mut octets = request.octets.to_vec();
    octets[0] ^= 1;
    pair.net.manual = true;
    let copy = Packet::forged(request.src, request.dst, octets);
    assert_eq!(said(&mut pair, copy), [NotifyType::TICKET_NACK]);
    assert_eq!(complaints(&pair, B), ["its IKE SA was resumed, rekeyed or deleted"]);
    assert_eq!((pair.b().ike().id, pair.b().endpoint.half_open()), (before, 0));
    pair.net.manual = false;
    pair.assert_agreement();
}

/// Before it is used, a stranger can make something half-open of it, and no more.
#[test]
fn a_stranger_with_a_ticket_gets_nowhere() {
    let mut pair = setup(6).build();
    let request = presented(&mut pair);
    let old = pair.b().ike().id;
    let mut octets = request.octets.to_vec();
    octets[0] ^= 1;
    pair.inject(Packet::forged(request.src, request.dst, octets));
    assert_eq!(pair.b().endpoint.half_open(), 1);
    pair.net.mailbox.retain(is_resume);
    assert!(pair.b().ikes().iter().any(|ike| ike.id == old), "the old one goes on");
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(MINUTE);
    assert!(pair.a().ike().resumed);
    pair.assert_agreement();
}

#[test]
fn cookies() {
    let mut setup = setup(7);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    pair.establish();
    lose(&mut pair);
    let from = pair.net.trace.len();
    assert!(again(&mut pair));
    assert_eq!(sent(&pair, from, ExchangeType::IKE_SESSION_RESUME, false), 2);
    assert_eq!(sent(&pair, from, ExchangeType::IKE_AUTH, false), 1);
    pair.assert_agreement();
}

/// A gateway does nothing for whoever is not let in.
#[test]
fn limits_hold() {
    let mut setup = setup(8);
    setup.b.settings.block_threshold = 1;
    setup.b.settings.init_limit_half_open = 1;
    let mut pair = setup.build();
    let request = presented(&mut pair);
    for n in 1..4 {
        let mut octets = request.octets.to_vec();
        octets[0] ^= n;
        pair.inject(Packet::forged(request.src, request.dst, octets));
    }
    assert_eq!(pair.b().endpoint.half_open(), 1);
}
