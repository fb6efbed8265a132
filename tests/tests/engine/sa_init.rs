//! IKE_SA_INIT: cookies, other key exchange methods, both together, and answers nobody can vouch for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, encode_message};
use ike_proto::{Event, Failure, RequestId};
use ike_tests::explore::interleavings;
use ike_tests::network::{Conditions, Fate, Packet};
use ike_tests::{A, B, Pair, Seeded, Setup, forge};

const INIT: ExchangeType = ExchangeType::IKE_SA_INIT;
const LONG: Duration = Duration::from_secs(300);

/// IKE_SA_INIT requests that A sent, retransmissions left out.
fn init_requests(pair: &Pair) -> usize {
    let mut requests: Vec<_> =
        pair.net.trace.iter().filter(|p| p.is(INIT, false)).map(|p| &p.octets).collect();
    requests.dedup();
    requests.len()
}

#[track_caller]
fn establishes(pair: &mut Pair, request: RequestId) {
    pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair.run_for(Duration::from_secs(40));
    pair.assert_agreement();
    pair.a().ike();
}

fn of_two_minds(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.ike_proposals(&["aes128gcm16-prfsha256-x25519-ecp256"]);
    setup.b.ike_proposals(&["aes128gcm16-prfsha256-ecp256"]);
    setup
}

#[test]
fn a_cookie_is_demanded_before_anything_is_kept() {
    let mut setup = Setup::new(1);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    pair.net.manual = true;
    let request = pair.initiate(A, Some("net"));
    pair.deliver_to(B);
    assert_eq!(pair.b().endpoint.half_open(), 0);
    assert!(pair.b().ikes().is_empty());
    pair.deliver_to(A);
    pair.deliver_to(B);
    assert_eq!(pair.b().endpoint.half_open(), 1);
    pair.net.manual = false;
    pair.deliver_all();
    establishes(&mut pair, request);
    assert_eq!(init_requests(&pair), 2);
}

#[test]
fn another_method_is_asked_for_and_tried() {
    let mut pair = of_two_minds(2).build();
    let request = pair.initiate(A, Some("net"));
    establishes(&mut pair, request);
    assert_eq!(init_requests(&pair), 2);
}

#[test]
fn a_cookie_and_another_method_together() {
    let mut setup = of_two_minds(3);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    establishes(&mut pair, request);
    // The cookie goes into the request with the other method as well (RFC 7296 §2.6.1).
    assert_eq!(init_requests(&pair), 3, "{}", pair.story());
}

#[test]
fn no_method_in_common_fails_at_both() {
    let mut setup = Setup::new(4);
    setup.a.ike_proposals(&["aes128gcm16-prfsha256-x25519"]);
    setup.b.ike_proposals(&["aes128gcm16-prfsha256-ecp256"]);
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(30));
    let failure = Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN);
    assert_eq!(pair.a().done(request), Some(Err(failure)), "{}", pair.story());
    assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty());
}

#[test]
fn a_handshake_survives_any_loss_of_one_and_any_order() {
    for cookie in [false, true] {
        let make = || {
            let mut setup = of_two_minds(5);
            setup.b.settings.cookie_threshold = if cookie { 1 } else { 100 };
            let mut pair = setup.build();
            pair.net.manual = true;
            pair.initiate(A, Some("net"));
            pair
        };
        let runs = interleavings(make, 2, |pair, choices| {
            assert_eq!(pair.a().done(RequestId(1)), Some(Ok(())), "{choices:?} {}", pair.story());
            pair.assert_agreement();
        });
        assert!(runs > 5, "{runs}");
    }
}

#[test]
fn the_threshold_turns_cookies_on_and_time_turns_them_off() {
    let mut setup = Setup::new(6);
    setup.b.settings.cookie_threshold = 6;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    establishes(&mut pair, request);
    assert_eq!(init_requests(&pair), 1);
    let template = pair.net.trace[0].clone();
    for n in 0..5 {
        pair.inject(with_spi_i(&template, 1000 + n));
    }
    assert_eq!(pair.b().endpoint.half_open(), 5);
    pair.inject(with_spi_i(&template, 2000));
    assert_eq!(pair.b().endpoint.half_open(), 5, "the sixth has to bring a cookie");
    pair.run_for(Duration::from_secs(31));
    assert_eq!(pair.b().endpoint.half_open(), 0, "half_open_timeout");
    pair.inject(with_spi_i(&template, 3000));
    assert_eq!(pair.b().endpoint.half_open(), 1);
}

/// The same request from another initiator.
fn with_spi_i(packet: &Packet, spi_i: u64) -> Packet {
    let mut octets = packet.octets.to_vec();
    octets[..8].copy_from_slice(&spi_i.to_be_bytes());
    Packet { octets: octets.into(), from: None, ..packet.clone() }
}

#[test]
fn a_cookie_of_long_ago_is_worth_nothing() {
    let mut setup = Setup::new(7);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    pair.net.manual = true;
    pair.initiate(A, None);
    pair.deliver_to(B);
    pair.deliver_to(A);
    let with_cookie = pair.net.mailbox[0].clone();
    pair.net.mailbox.clear();
    let first = pair.net.trace[0].clone();
    // New secrets are made as cookies are: one a minute at most.
    for n in 0..2 {
        pair.run_for(Duration::from_secs(61));
        pair.inject(with_spi_i(&first, 5000 + n));
    }
    pair.inject(with_cookie.clone());
    assert_eq!(pair.b().endpoint.half_open(), 0, "two secrets later it is worth nothing");
}

#[test]
fn a_cookie_is_good_for_the_secret_before() {
    let mut setup = Setup::new(7);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    pair.net.manual = true;
    pair.initiate(A, None);
    pair.deliver_to(B);
    pair.deliver_to(A);
    let with_cookie = pair.net.mailbox[0].clone();
    let first = pair.net.trace[0].clone();
    pair.run_for(Duration::from_secs(61));
    pair.inject(with_spi_i(&first, 5000));
    pair.inject(with_cookie);
    assert_eq!(pair.b().endpoint.half_open(), 1);
}

#[test]
fn every_error_notify_is_ignored_when_the_answer_comes() {
    for kind in (1..=60).map(NotifyType) {
        let mut pair = Setup::new(8).build();
        let request = pair.initiate(A, Some("net"));
        let first = pair.net.trace[0].clone();
        pair.inject(forge::notify_response(&first, kind, &[]));
        pair.inject(forge::notify_response(&first, kind, &[0, 19]));
        establishes(&mut pair, request);
    }
}

#[test]
fn errors_before_every_answer_of_a_slow_peer_do_not_end_the_attempt() {
    let mut setup = Setup::new(9);
    setup.conditions.delay = Duration::from_millis(700);
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.trace[0].clone();
    for _ in 0..8 {
        pair.inject(forge::notify_response(&first, NotifyType::NO_PROPOSAL_CHOSEN, &[]));
        pair.run_for(Duration::from_millis(150));
    }
    establishes(&mut pair, request);
}

#[test]
fn forged_cookies_delay_but_do_not_prevent() {
    for seed in 0..8 {
        for cookie in [false, true] {
            let mut setup = Setup::new(seed);
            setup.b.settings.cookie_threshold = if cookie { 1 } else { 100 };
            let mut pair = setup.build();
            let request = pair.initiate(A, Some("net"));
            for n in 0..20_u8 {
                let newest =
                    pair.net.trace.iter().rev().find(|p| p.is(INIT, false)).unwrap().clone();
                pair.inject(forge::notify_response(&newest, NotifyType::COOKIE, &[n; 16]));
                pair.run_for(Duration::from_millis(5));
            }
            establishes(&mut pair, request);
            assert!(init_requests(&pair) < 24, "a forger may not make A send without end");
        }
    }
}

#[test]
fn forged_refusals_of_the_method_change_nothing() {
    let mut pair = Setup::new(10).build();
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.trace[0].clone();
    for method in 0..60_u16 {
        let data = method.to_be_bytes();
        pair.inject(forge::notify_response(&first, NotifyType::INVALID_KE_PAYLOAD, &data));
    }
    establishes(&mut pair, request);
    assert!(init_requests(&pair) < 12);
}

/// B's answer with another responder SPI and, in the nonce, other octets: nobody but B can tell.
fn false_answer(genuine: &Packet, n: u8) -> Packet {
    let message = Message::decode(&genuine.octets).unwrap();
    let nonce = [n; 32];
    let payloads: Vec<_> = message
        .payloads
        .iter()
        .map(|payload| match payload {
            Payload::Nonce(_) => Payload::Nonce(&nonce),
            other => other.clone(),
        })
        .collect();
    let header = ike_proto::wire::Header { spi_r: 77 + u64::from(n), ..message.header };
    let octets = encode_message(&header, &payloads).into();
    Packet { octets, from: None, ..genuine.clone() }
}

#[test]
fn a_false_answer_before_the_genuine_one_does_not_win() {
    for forgeries in 1..=3 {
        let mut pair = Setup::new(11).build();
        pair.net.manual = true;
        let request = pair.initiate(A, Some("net"));
        pair.deliver_to(B);
        let genuine = pair.net.mailbox[0].clone();
        for n in 0..forgeries {
            pair.inject(false_answer(&genuine, n));
        }
        pair.net.manual = false;
        let waiting = std::mem::take(&mut pair.net.mailbox);
        waiting.into_iter().for_each(|packet| pair.inject(packet));
        establishes(&mut pair, request);
    }
}

#[test]
fn more_false_answers_than_candidates_delay_but_do_not_prevent() {
    for forgeries in [4, 8, 40] {
        let mut pair = Setup::new(12).build();
        pair.net.manual = true;
        let request = pair.initiate(A, Some("net"));
        pair.deliver_to(B);
        let genuine = pair.net.mailbox[0].clone();
        for n in 0..forgeries {
            pair.inject(false_answer(&genuine, n));
        }
        pair.net.manual = false;
        let waiting = std::mem::take(&mut pair.net.mailbox);
        waiting.into_iter().for_each(|packet| pair.inject(packet));
        pair.run_until(Duration::from_secs(900), |w| w.hosts[A].done(request).is_some());
        assert_eq!(pair.a().done(request), Some(Ok(())), "{forgeries}: {}", pair.story());
    }
}

#[test]
fn the_answer_again_is_no_second_candidate() {
    let mut setup = Setup::new(13);
    setup.conditions.duplication = 1000;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    establishes(&mut pair, request);
    let auths: std::collections::HashSet<_> = pair
        .net
        .trace
        .iter()
        .filter(|p| p.is(ExchangeType::IKE_AUTH, false))
        .map(|p| p.octets.clone())
        .collect();
    assert_eq!(auths.len(), 1);
}

#[test]
fn a_request_sent_again_gets_the_same_answer_while_half_open_and_none_later() {
    let mut pair = Setup::new(14).build();
    pair.net.manual = true;
    pair.initiate(A, Some("net"));
    let first = pair.net.mailbox[0].clone();
    pair.deliver_to(B);
    pair.inject(first.clone());
    pair.inject(first.clone());
    let answers: Vec<_> = pair.net.mailbox.iter().map(|p| p.octets.clone()).collect();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(pair.b().endpoint.half_open(), 1);
    pair.deliver_all();
    pair.b().ike();
    let before = pair.b().sent;
    pair.inject(first);
    assert_eq!(pair.b().sent, before);
    assert_eq!(pair.b().ikes().len(), 1);
}

/// A responder under load asks for a cookie. A copy of the request without one comes when the load is over, and is let in
/// before the request with the cookie: there is one IKE SA, and AUTH covers the later request.
///
/// Fault: in `on_init_request`, take the digest of the whole request.
#[test]
fn a_request_that_was_let_in_without_its_cookie_comes_with_it() {
    let mut pair = Setup::new(14).build();
    pair.net.manual = true;
    pair.set_behind(B, true);
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.mailbox[0].clone();
    pair.deliver_to(B);
    pair.set_behind(B, false);
    // The cookie is on its way.
    pair.inject(first);
    pair.deliver_all();
    pair.net.manual = false;
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!((pair.b().ikes().len(), pair.b().endpoint.half_open()), (1, 0), "{}", pair.story());
    assert_eq!(pair.b().ike_downs(), [], "{}", pair.story());
}

/// Somebody sends a copy of the request from an address of its own before the peer comes with its cookie: the peer gets an
/// IKE SA of its own.
///
/// Fault: in `answer_again`, do not look at the path of a valid cookie.
#[test]
fn a_copy_from_elsewhere_does_not_take_the_answer() {
    let mut pair = Setup::new(20).build();
    pair.net.manual = true;
    pair.set_behind(B, true);
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.mailbox[0].clone();
    pair.deliver_to(B);
    pair.set_behind(B, false);
    let elsewhere = std::net::SocketAddr::from(([10, 0, 0, 1], 4711));
    pair.inject(Packet { src: elsewhere, from: None, ..first });
    // The one that sent it does not pass the answer on.
    pair.net.mailbox.retain(|packet| packet.dst != elsewhere);
    pair.net.manual = false;
    pair.deliver_all();
    establishes(&mut pair, request);
    let wrong = Failure::Refused(NotifyType::AUTHENTICATION_FAILED);
    assert!(pair.b().ike_downs().iter().all(|(_, why)| *why != wrong), "{}", pair.story());
}

/// A responder that demands cookies at some moments, on a path that delays, repeats and reorders: whichever request and
/// response meet, AUTH verifies.
///
/// Faults: in `verify_initiator`, leave out the other forms; do not call `tell_cookies`.
#[test]
fn auth_verifies_whichever_request_was_answered() {
    for seed in 0..600 {
        let mut random = Seeded::new(seed);
        let mut setup = Setup::new(seed);
        let slow = random.chance(500);
        if slow {
            let proposals = &["aes128gcm16-prfsha256-modp2048"];
            setup.a.ike_proposals(proposals);
            setup.b.ike_proposals(proposals);
        }
        let mut pair = setup.build();
        pair.hosts[B].exchange_delay = Some(Duration::from_millis(random.below(3000)));
        pair.net.conditions = Conditions {
            loss: 50,
            duplication: 300,
            delay: Duration::from_millis(1 + random.below(300)),
            jitter: Duration::from_millis(random.below(4000)),
        };
        let request = pair.initiate(A, Some("net"));
        for _ in 0..20 {
            pair.set_behind(B, random.chance(500));
            pair.run_for(Duration::from_millis(random.below(1000)));
        }
        pair.set_behind(B, false);
        pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
        assert_eq!(pair.a().done(request), Some(Ok(())), "seed {seed}: {}", pair.story());
        let refused = pair.b().events(|event| match event {
            Event::PeerRefused(refused) => Some(refused.why.to_string()),
            _ => None,
        });
        assert!(refused.is_empty(), "seed {seed}: {refused:?}, {}", pair.story());
    }
}

/// `request` with a cookie in front (RFC 7296 §2.6), or behind.
fn with_cookie(request: &Packet, cookie: &[u8], behind: bool) -> Packet {
    let mut message = Message::decode(&request.octets).unwrap();
    let cookie = Payload::Notify(Notify::new(NotifyType::COOKIE, cookie));
    let at = if behind { message.payloads.len() } else { 0 };
    message.payloads.insert(at, cookie);
    let octets = encode_message(&message.header, &message.payloads);
    Packet { octets: octets.into(), ..request.clone() }
}

/// The cookie in front of `packet`.
fn cookie_of(packet: &Packet) -> Vec<u8> {
    match &Message::decode(&packet.octets).unwrap().payloads[0] {
        Payload::Notify(notify) if notify.kind == NotifyType::COOKIE => notify.data.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Somebody on the path puts more cookies into the request, and sends it at once: the peer's AUTH is that of the request
/// as it was.
///
/// Fault: let `without_cookie` take a second cookie.
#[test]
fn more_cookies_do_not_change_the_request() {
    let mut setup = Setup::new(18);
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    pair.net.manual = true;
    let request = pair.initiate(A, Some("net"));
    pair.deliver_to(B);
    pair.deliver_to(A);
    let genuine = pair.net.mailbox[0].clone();
    let cookie = cookie_of(&genuine);
    pair.deliver_to(B);
    let answer = Message::decode(&pair.net.mailbox.last().unwrap().octets).unwrap().header;
    pair.inject(with_cookie(&genuine, b"junk", true));
    let twice = with_cookie(&genuine, &cookie, false);
    pair.inject(twice.clone());
    pair.inject(with_cookie(&twice, &cookie, false));
    pair.net.manual = false;
    pair.deliver_all();
    establishes(&mut pair, request);
    assert_eq!(pair.b().ike().spi_r, answer.spi_r, "the first answer: {}", pair.story());
}

/// Somebody on the path makes the responder demand a cookie for a request that it has let in without one, and sends the
/// request with the cookie: the peer's AUTH is that of the request without it.
///
/// Fault: in `verify_initiator`, leave out the other forms.
#[test]
fn a_cookie_of_others_does_not_change_the_request() {
    let mut pair = Setup::new(19).build();
    pair.net.manual = true;
    pair.set_behind(B, true);
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.mailbox[0].clone();
    pair.deliver_to(B);
    let demand = pair.net.mailbox.pop().unwrap();
    let cookie = cookie_of(&demand);
    pair.set_behind(B, false);
    pair.inject(first.clone());
    pair.inject(with_cookie(&first, &cookie, false));
    assert_eq!(pair.b().endpoint.half_open(), 1);
    pair.net.manual = false;
    pair.deliver_all();
    establishes(&mut pair, request);
    assert_eq!(pair.b().ike_downs(), [], "{}", pair.story());
}

#[test]
fn the_limit_of_half_open_sas_holds() {
    let mut setup = Setup::new(15);
    setup.b.settings.init_limit_half_open = 3;
    setup.b.settings.cookie_threshold = 100;
    let mut pair = setup.build();
    pair.net.manual = true;
    pair.initiate(A, None);
    let template = pair.net.mailbox.remove(0);
    for n in 0..10 {
        pair.inject(with_spi_i(&template, 100 + n));
    }
    assert_eq!(pair.b().endpoint.half_open(), 3);
    let cookies = pair.net.mailbox.iter().filter(|packet| packet.octets.len() < 100);
    assert_eq!((pair.b().sent, cookies.count()), (10, 7), "the others are asked for cookies");
}

#[test]
fn a_silent_peer_is_given_up_after_the_ladder() {
    let mut pair = Setup::new(16).build();
    pair.net.tap(|_| Fate::Drop);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(164));
    assert_eq!(pair.a().done(request), None);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.a().done(request), Some(Err(Failure::Timeout)));
    assert!(pair.a().ikes().is_empty());
    assert_eq!(pair.a().wake(), None);
}

#[test]
fn an_error_alone_ends_the_attempt_after_other_answers_had_a_chance() {
    let mut pair = Setup::new(17).build();
    let asked = std::sync::Arc::new(AtomicU32::new(0));
    let count = std::sync::Arc::clone(&asked);
    pair.net.tap(move |packet| {
        count.fetch_add(u32::from(packet.is(INIT, false)), Ordering::Relaxed);
        Fate::Drop
    });
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.trace[0].clone();
    pair.inject(forge::notify_response(&first, NotifyType::NO_PROPOSAL_CHOSEN, &[]));
    pair.run_for(Duration::from_secs(30));
    let failure = Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN);
    assert_eq!(pair.a().done(request), Some(Err(failure)));
    assert!(asked.load(Ordering::Relaxed) > 2, "the peer is asked again before it is believed");
}

#[test]
fn status_notifies_of_the_future_are_ignored() {
    let mut pair = Setup::new(18).build();
    // Both messages carry status types nobody knows; AUTH covers them, so that B has to see them too.
    pair.net.tap(|packet| {
        if packet.is(INIT, false) || packet.is(INIT, true) {
            packet.octets = with_notify(&packet.octets, NotifyType(40_000)).into();
        }
        Fate::Pass
    });
    let request = pair.initiate(A, Some("net"));
    pair.run_for(LONG);
    // Altered on the way: AUTH must not verify.
    assert_ne!(pair.a().done(request), Some(Ok(())));
    assert!(pair.b().children().is_empty());
}

fn with_notify(octets: &[u8], kind: NotifyType) -> Vec<u8> {
    let message = Message::decode(octets).unwrap();
    let mut payloads = message.payloads.clone();
    payloads.push(Payload::Notify(Notify::new(kind, &[])));
    encode_message(&message.header, &payloads)
}
