//! Class 19: cookies that are mangled, too long, somebody else's, or never enough.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ike_proto::config::AddressSpec;
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_proto::wire::{Flags, Header, Message, Payload as Wire, encode_message};
use ike_tests::bench::Bench;
use ike_tests::handmade::Started;
use ike_tests::setup::{address, side};

/// An endpoint that demands a cookie of everybody.
fn demanding() -> Bench {
    let mut side = side(1, 2);
    side.settings.cookie_threshold = 1;
    Bench::with(side)
}

/// The cookie an answer demands, if it is that.
fn demanded(sent: &[Vec<u8>]) -> Option<Vec<u8>> {
    let [only] = sent else { return None };
    let message = Message::decode(only).expect("well-formed");
    assert_eq!(message.header.spi_r, 0, "RFC 7296 §2.6: nothing is kept, so there is no SPI");
    match message.payloads.as_slice() {
        [Wire::Notify(notify)] if notify.kind == NotifyType::COOKIE => Some(notify.data.to_vec()),
        _ => None,
    }
}

/// The request again, with `cookie` in front.
fn with_cookie(started: &Started, cookie: &[u8]) -> Vec<u8> {
    let mut payloads = vec![Payload::Notify(Notify::new(NotifyType::COOKIE, cookie))];
    payloads.extend(started.payloads());
    started.encode(&payloads)
}

#[test]
fn class_19_only_the_cookie_that_was_made_is_good() {
    let mut bench = demanding();
    let started = bench.start();
    let cookie = demanded(&bench.give(&started.request)).expect("a cookie");
    assert!((1..=64).contains(&cookie.len()), "{} octets", cookie.len());
    for octet in 0..cookie.len() {
        for bit in 0..8 {
            let mut mangled = cookie.clone();
            mangled[octet] ^= 1 << bit;
            let sent = bench.give(&with_cookie(&started, &mangled));
            assert!(demanded(&sent).is_some(), "octet {octet}, bit {bit}");
        }
    }
    for length in [0, 1, 2, 32, 64, 65, 66, 255, 1000] {
        let sent = bench.give(&with_cookie(&started, &vec![cookie[0]; length]));
        assert!(demanded(&sent).is_some(), "{length} octets");
    }
    for cut in 0..cookie.len() {
        assert!(demanded(&bench.give(&with_cookie(&started, &cookie[..cut]))).is_some());
    }
    let longer = [&cookie[..], &[0]].concat();
    assert!(demanded(&bench.give(&with_cookie(&started, &longer))).is_some());
    assert_eq!(bench.host().ikes().len(), 0, "nothing was kept for a peer without a cookie");

    let sent = bench.give(&with_cookie(&started, &cookie));
    assert!(started.finish(&sent[0]).is_some(), "the good one");
}

/// A cookie covers nonce, SPI, address and port, each by itself (RFC 7296 §2.6).
///
/// Fault: in `Cookies::mac` (endpoint/cookie.rs), leave out `spi_i`; or `ni`, `ip` or `port`.
#[test]
fn class_19_a_cookie_is_good_for_one_nonce_spi_and_address() {
    let mut side = side(1, 2);
    side.settings.cookie_threshold = 1;
    // The connection is for every address: the cookie alone decides.
    side.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut bench = Bench::with(side);
    let (started, other) = (bench.start(), bench.start());
    let cookie = demanded(&bench.give(&started.request)).expect("a cookie");
    // Another nonce and SPI.
    assert!(demanded(&bench.give(&with_cookie(&other, &cookie))).is_some());
    // Another SPI alone.
    let mut payloads = vec![Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
    payloads.extend(started.payloads());
    assert!(demanded(&bench.give(&other.encode(&payloads))).is_some(), "for another SPI");
    // Another nonce.
    let mut payloads = vec![Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
    payloads.extend(started.payloads());
    payloads[3] = Payload::Nonce(&other.ni);
    assert!(demanded(&bench.give(&started.encode(&payloads))).is_some());
    // Another address, and another port.
    let request = with_cookie(&started, &cookie);
    let elsewhere = SocketAddr::new(IpAddr::from([10, 0, 0, 99]), 500);
    assert!(demanded(&bench.give_from(elsewhere, &request)).is_some(), "from another address");
    let elsewhere = SocketAddr::new(address(2), 501);
    assert!(demanded(&bench.give_from(elsewhere, &request)).is_some(), "from another port");
    // For what it was made for, a cookie is good.
    let mut same = demanding();
    let own = demanded(&same.give(&started.request)).expect("a cookie");
    let answer = same.give(&with_cookie(&started, &own));
    assert!(started.finish(&answer[0]).is_some(), "as it was made");
    // Two secrets are good at a time; the third forgets the first.
    for minute in 1..=2 {
        bench.world.run_for(Duration::from_secs(61));
        let another = bench.start();
        assert!(demanded(&bench.give(&another.request)).is_some(), "minute {minute}");
    }
    assert!(demanded(&bench.give(&request)).is_some(), "an old one");
}

#[test]
fn class_19_the_cookie_comes_before_any_work() {
    let mut bench = demanding();
    // What would be refused is not even looked at without a cookie.
    let started = bench.start();
    let mut payloads = started.payloads();
    payloads.remove(1);
    assert!(demanded(&bench.give(&started.encode(&payloads))).is_some(), "no KE");
    // Without a nonce there is nothing to make a cookie of.
    let mut payloads = started.payloads();
    payloads.remove(2);
    assert_eq!(bench.give(&started.encode(&payloads)).len(), 0, "no nonce");
}

/// An unprotected answer to the endpoint's IKE_SA_INIT request.
fn answer(request: &[u8], payloads: &[Payload<'_>]) -> Vec<u8> {
    let header = Header {
        next_payload: PayloadType::NONE,
        flags: Flags { initiator: false, version: false, response: true },
        ..Header::decode(request).expect("a request")
    };
    encode_message(&header, payloads)
}

#[test]
fn class_19_a_peer_that_keeps_demanding_is_not_obeyed_for_ever() {
    let mut bench = Bench::new();
    let (_, mut request) = bench.initiate();
    let mut repeated = 0;
    for n in 0..1000u32 {
        let cookie = n.to_be_bytes();
        let demand = [Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
        for sent in bench.give(&answer(&request, &demand)) {
            repeated += 1;
            request = sent;
        }
    }
    assert!((1..=16).contains(&repeated), "{repeated} requests for 1000 cookies");
    // The genuine peer still gets its turn: it demands nothing.
    genuine_peer_answers(&mut bench, &request);
}

#[test]
fn class_19_a_cookie_of_no_length_or_too_long_is_not_repeated() {
    let mut bench = Bench::new();
    let (_, request) = bench.initiate();
    for length in [0, 65, 66, 1000] {
        let cookie = vec![7; length];
        let demand = [Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
        assert_eq!(bench.give(&answer(&request, &demand)).len(), 0, "{length} octets");
    }
    for length in [1, 64] {
        let cookie = vec![7; length];
        let demand = [Payload::Notify(Notify::new(NotifyType::COOKIE, &cookie))];
        let sent = bench.give(&answer(&request, &demand));
        assert_eq!(sent.len(), 1, "{length} octets");
        let message = Message::decode(&sent[0]).expect("a request");
        let first = message.payloads.first();
        let Some(Wire::Notify(notify)) = first else { panic!("{first:?} is first") };
        assert_eq!((notify.kind, notify.data), (NotifyType::COOKIE, &*cookie));
        // The same demand again is a duplicate.
        assert_eq!(bench.give(&answer(&request, &demand)).len(), 0);
    }
}

#[test]
fn class_19_cookie_and_invalid_ke_together_end() {
    let mut bench = Bench::new();
    let (_, mut request) = bench.initiate();
    let mut sent_in_all = 0;
    for n in 0..200u16 {
        let cookie = n.to_be_bytes();
        let method = [31u16, 19, 14, 1025, 0][usize::from(n) % 5].to_be_bytes();
        let demand = if n % 2 == 0 {
            Notify::new(NotifyType::COOKIE, &cookie)
        } else {
            Notify::new(NotifyType::INVALID_KE_PAYLOAD, &method)
        };
        for sent in bench.give(&answer(&request, &[Payload::Notify(demand)])) {
            sent_in_all += 1;
            request = sent;
        }
    }
    assert!((2..=16).contains(&sent_in_all), "{sent_in_all} requests");
}

/// The peer that was meant answers the endpoint's latest request.
#[track_caller]
fn genuine_peer_answers(bench: &mut Bench, request: &[u8]) {
    let crypto = ike_tests::cheap::provider();
    let peer = ike_tests::handmade::Handmade::answer(&crypto, request, 5).expect("an answer");
    let sent = bench.give(&peer.response);
    assert_eq!(sent.len(), 1, "dropped: {:?}", bench.host().dropped);
    let header = Header::decode(&sent[0]).expect("a message");
    assert_eq!(header.exchange, ExchangeType::IKE_AUTH);
    assert!(peer.open(&sent[0]).is_some());
}
