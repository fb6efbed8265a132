//! Both ends announce it in IKE_SA_INIT, or it is not used.

use std::time::Duration;

use ike_proto::config::{DowngradePrevention, FragmentAckTypes, Fragmentation};
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, encode_message};
use ike_tests::network::{Fate, Packet};
use ike_tests::{Pair, Setup};

use crate::fragment_ack::stage::{INTERMEDIATE, build, come_up, count, is_ack, large, lose};

const INIT: ExchangeType = ExchangeType::IKE_SA_INIT;
const SUPPORTED: NotifyType = NotifyType(51_521);

fn announces(packet: &Packet, kind: NotifyType) -> bool {
    let message = Message::decode(&packet.octets).unwrap();
    let has = |payload: &Payload<'_>| match payload {
        Payload::Notify(notify) => notify.kind == kind && notify.data.is_empty(),
        Payload::Vendor(id) => kind == SUPPORTED && *id == vendor_id(),
        _ => false,
    };
    message.payloads.iter().any(has)
}

fn is_announcement(payload: &Payload<'_>) -> bool {
    match payload {
        Payload::Notify(notify) => notify.kind == SUPPORTED,
        Payload::Vendor(id) => *id == vendor_id(),
        _ => false,
    }
}

fn vendor_id() -> Vec<u8> {
    FragmentAckTypes::default().vendor_id()
}

fn init(pair: &Pair, response: bool) -> &Packet {
    pair.net.trace.iter().find(|packet| packet.is(INIT, response)).unwrap()
}

/// Who begins shows by a Vendor ID which numbers it has: to others a private number means something else. The answer to
/// that is the number.
///
/// Fault: in `Request::encode` (exchange/sa_init/initiator.rs), send FRAGMENT_ACK_SUPPORTED in the place of the Vendor
/// ID.
#[test]
fn a_private_number_is_sent_to_nobody_that_has_not_shown_it() {
    let mut pair = build(large(1));
    come_up(&mut pair);
    // Payload length 8, no protocol, no SPI, 51521, no data.
    let notify = [0, 0, 8, 0, 0, 0xc9, 0x41];
    let has = |packet: &Packet, wanted: &[u8]| {
        packet.octets.windows(wanted.len()).any(|octets| octets == wanted)
    };
    let (request, response) = (init(&pair, false), init(&pair, true));
    assert!(has(request, b"pq\xee\x3d"));
    assert!(!has(request, &notify));
    assert!(has(response, &notify));
}

/// An end that lacks it, has it turned off, has other numbers, or does no fragmentation.
#[test]
fn it_is_off_when_either_end_lacks_it() {
    let others = FragmentAckTypes { supported: 50_000, ..FragmentAckTypes::default() };
    for lacking in [0, 1] {
        for how in 0..3 {
            let mut setup = large(1);
            let side = if lacking == 0 { &mut setup.a } else { &mut setup.b };
            match how {
                0 => side.settings.fragment_ack = None,
                1 => side.settings.fragment_ack = Some(others),
                _ => side.connection.fragmentation = Fragmentation::No,
            }
            let mut pair = build(setup);
            let sent = count(&mut pair);
            lose(&mut pair, INTERMEDIATE, false, &[2]);
            lose(&mut pair, INTERMEDIATE, true, &[3]);
            come_up(&mut pair);
            let sent = sent.lock().unwrap().clone();
            assert!(sent.acks.is_empty(), "{lacking} {how}: {sent:?}");
            // All of the message goes again.
            assert!(how == 2 || sent.again.len() > 10, "{lacking} {how}: {sent:?}");
            // Without fragmentation there is nothing to announce.
            assert_eq!(announces(init(&pair, false), SUPPORTED), lacking == 1, "{how}");
            assert!(!announces(init(&pair, true), SUPPORTED), "{lacking} {how}");
        }
    }
}

/// Somebody who cannot change the genuine IKE_SA_INIT response, but is faster or slower with another one:
/// with the announcement more, or less.
fn with_a_copy(mut setup: Setup, strip: bool, copy_first: bool) -> Pair {
    setup.conditions.jitter = Duration::ZERO;
    let mut pair = build(setup);
    pair.net.manual = true;
    pair.initiate(ike_tests::A, Some("net"));
    pair.deliver_to(ike_tests::B);
    let genuine = pair.net.mailbox.remove(0);
    let message = Message::decode(&genuine.octets).unwrap();
    let mut payloads = message.payloads.clone();
    if strip {
        payloads.retain(|payload| !is_announcement(payload));
    } else {
        payloads.push(Payload::Notify(Notify::new(SUPPORTED, &[])));
    }
    let octets = encode_message(&message.header, &payloads);
    let copy = Packet { octets: octets.into(), from: None, ..genuine.clone() };
    pair.net.manual = false;
    let both = if copy_first { [copy, genuine] } else { [genuine, copy] };
    for packet in both {
        pair.inject(packet);
    }
    pair
}

#[test]
fn a_copy_of_the_response_that_says_otherwise_breaks_nothing() {
    for prevention in [DowngradePrevention::No, DowngradePrevention::Yes] {
        for strip in [true, false] {
            for copy_first in [true, false] {
                let mut setup = large(1);
                setup.both(|side| side.connection.downgrade_prevention = prevention);
                if !strip {
                    setup.b.settings.fragment_ack = None;
                }
                let mut pair = with_a_copy(setup, strip, copy_first);
                let what = format!("{prevention:?} strip {strip} first {copy_first}");
                lose(&mut pair, ExchangeType::IKE_AUTH, false, &[2]);
                lose(&mut pair, ExchangeType::IKE_AUTH, true, &[3]);
                let up = pair.run_until(Duration::from_secs(60), |world| {
                    world.hosts.iter().all(|host| !host.children_up().is_empty())
                });
                assert!(up, "{}\n{what}", pair.story());
                pair.settle();
                // From now on the authenticated message counts.
                let acks = pair.net.trace.iter().filter(|packet| is_ack(packet)).count();
                let request = pair.rekey_child(ike_tests::A);
                lose(&mut pair, ExchangeType::CREATE_CHILD_SA, false, &[1]);
                lose(&mut pair, ExchangeType::CREATE_CHILD_SA, true, &[1]);
                pair.run_for(Duration::from_secs(20));
                assert_eq!(pair.a().done(request), Some(Ok(())), "{what}");
                let later = pair.net.trace.iter().filter(|packet| is_ack(packet)).count() - acks;
                assert_eq!(later > 0, strip, "{what}: {later} acknowledgements");
                pair.assert_agreement();
            }
        }
    }
}

/// The announcement is in what AUTH covers: whoever takes it out of the request ends the attempt.
#[test]
fn a_request_without_it_is_not_the_one_that_was_sent() {
    let mut setup = large(1);
    setup.both(|side| side.settings.half_open_timeout = Duration::from_secs(10));
    let mut pair = build(setup);
    pair.net.tap(|packet| {
        if packet.is(INIT, false) {
            let message = Message::decode(&packet.octets).unwrap();
            let mut payloads = message.payloads.clone();
            payloads.retain(|payload| !is_announcement(payload));
            packet.octets = encode_message(&message.header, &payloads).into();
        }
        Fate::Pass
    });
    pair.initiate(ike_tests::A, Some("net"));
    pair.run_for(Duration::from_secs(30));
    assert!(pair.a().children_up().is_empty() && pair.b().children_up().is_empty());
}
