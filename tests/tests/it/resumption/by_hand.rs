//! A client made by hand, whose keys and AUTH are computed here, by the words of RFC 5723.

use aws_lc_rs::hmac;
use ike_proto::config::RedirectPolicy;
use ike_proto::crypto::SecureRandom;
use ike_proto::keys::{Epoch, IkeKeys, Nonces, Outgoing, Seed, Spis};
use ike_proto::wire::payload::{Auth, Notify, Payload};
use ike_proto::wire::registry::{AuthMethod, NotifyType, PayloadType};
use ike_proto::wire::{Flags, Header, Message, decode_inner_payloads, encode_message};
use ike_tests::Seeded;
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, notifies};
use ike_tests::setup::{identity, side};

use super::*;

/// HMAC-SHA2-256, which is the PRF of what a hand-made peer proposes.
fn prf(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, &parts.concat()).as_ref().to_vec()
}

/// prf+ of RFC 7296 §2.13.
pub(super) fn prf_plus(key: &[u8], seed: &[u8], length: usize) -> Vec<u8> {
    let (mut stream, mut last) = (Vec::new(), Vec::new());
    for n in 1..=255_u8 {
        last = prf(key, &[&last, seed, &[n]]);
        stream.extend(&last);
    }
    stream.truncate(length);
    stream
}

/// Notification Data of `kind`.
fn notified(payloads: &[Payload<'_>], kind: NotifyType) -> Option<Vec<u8>> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Notify(notify) if notify.kind == kind => Some(notify.data.to_vec()),
        _ => None,
    })
}

/// An IKE SA that has a ticket, and that ticket.
fn ticket(bench: &mut Bench) -> (Handmade, Vec<u8>) {
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 0x1000, true);
    payloads.push(Payload::Notify(Notify::new(NotifyType::TICKET_REQUEST, &[])));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let sent = bench.give(&request);
    let opened = peer.open(&sent[0]).unwrap();
    let payloads = decode_inner_payloads(opened.first, &opened.octets).unwrap();
    let given = notified(&payloads, NotifyType::TICKET_LT_OPAQUE).unwrap();
    let (lifetime, ticket) = given.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*lifetime), 3600);
    (peer, ticket.to_vec())
}

#[test]
fn keys_and_auth_are_those_of_the_rfc() {
    let mut gateway_side = side(1, 2);
    gateway(&mut gateway_side, &[1]);
    let crypto = Arc::clone(&gateway_side.crypto);
    let mut bench = Bench::with(gateway_side);
    let (old, ticket) = ticket(&mut bench);
    let before = bench.host().ike();

    // 4.3.2: HDR, Ni, N(TICKET_OPAQUE)
    let (spi_i, ni) = (0x1122_3344_5566_7788_u64, [5_u8; 24]);
    let header = Header {
        spi_i,
        spi_r: 0,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::IKE_SESSION_RESUME,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 0,
        length: 0,
    };
    let presented = Notify::new(NotifyType::TICKET_OPAQUE, &ticket);
    let request = encode_message(&header, &[Payload::Nonce(&ni), Payload::Notify(presented)]);
    assert_eq!(request[18], 38);
    let response = bench.give(&request).remove(0);
    assert_eq!(response[18], 38);
    let message = Message::decode(&response).unwrap();
    let spi_r = message.header.spi_r;
    assert!(spi_r != 0 && message.header.spi_i == spi_i);
    let nr = message.payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(nonce.to_vec()),
        _ => None,
    });
    let nr = nr.unwrap();
    assert!(notified(&message.payloads, NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH).is_none());

    // 5.1
    let skeyseed = prf(old.sk_d(), &[b"Resumption", &ni, &nr]);
    let seed = [&ni[..], &nr, &spi_i.to_be_bytes(), &spi_r.to_be_bytes()].concat();
    let stream = prf_plus(&skeyseed, &seed, 32 + 36 + 36 + 32 + 32);
    let (d, rest) = stream.split_at(32);
    let (ei, rest) = rest.split_at(36);
    let (er, rest) = rest.split_at(36);
    let (pi, pr) = rest.split_at(32);
    let secret = Secret::copy_from;
    let keys = IkeKeys {
        d: secret(d),
        ai: secret(&[]),
        ar: secret(&[]),
        ei: secret(ei),
        er: secret(er),
        pi: secret(pi),
        pr: secret(pr),
    };
    let suite = before.algorithms.as_ref().unwrap().suite;
    let mut epoch = Epoch::new(crypto.ciphers, suite, &keys, true).unwrap();

    // 4.3.3: AUTH = prf(SK_px, <message octets>), the octets being those of RFC 7296 2.15
    let id = identity(2);
    let id_octets =
        |id: &ike_proto::wire::payload::IdData| [&[id.kind.0, 0, 0, 0][..], &id.data].concat();
    let auth = prf(pi, &[&request, &nr, &prf(pi, &[&id_octets(&id)])]);
    let payloads = auth_payloads(&id, &auth, 0x2000, true);
    let outgoing = Outgoing {
        spi_i,
        spi_r,
        exchange: ExchangeType::IKE_AUTH,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 1,
        payloads: &payloads,
        max_datagram: None,
        force_fragment: false,
    };
    let mut rng = Seeded::new(1);
    rng.fill(&mut [0; 8]);
    let sealed = epoch.seal(&outgoing, &mut rng).unwrap().remove(0);
    let answer = bench.give(&sealed).remove(0);
    let message = Message::decode(&answer).unwrap();
    let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!("not sealed") };
    let opened = epoch.open(&answer, sk).unwrap();
    let payloads = decode_inner_payloads(opened.first, &opened.octets).unwrap();
    let own = id_octets(&identity(1));
    let expected = prf(pr, &[&response, &ni, &prf(pr, &[&own])]);
    assert!(payloads.iter().any(|payload| {
        matches!(payload, Payload::Auth(Auth { method, data })
            if *method == AuthMethod::PSK && *data == expected)
    }));
    assert!(payloads.iter().any(|payload| matches!(payload, Payload::Sa(_))), "and a child");
    assert!(notified(&payloads, NotifyType::TICKET_LT_OPAQUE).is_none(), "nobody asked");

    // 4.3.4: the old one is gone, silently
    let now = bench.host().ike();
    assert!(now.resumed && now.id != before.id && (now.spi_i, now.spi_r) == (spi_i, spi_r));
    assert_eq!(now.algorithms.map(|all| all.suite), Some(suite));
    bench.assert_nothing_leaked();
}

/// IDi must be that of the ticket, and so must IDr; AUTH must be by the keys.
#[test]
fn another_identity_or_auth_is_refused() {
    for wrong in 0..3 {
        let mut gateway_side = side(1, 2);
        gateway(&mut gateway_side, &[1]);
        gateway_side.connection.set_remote_id(ike_proto::config::IdMatch::Any);
        let crypto = Arc::clone(&gateway_side.crypto);
        let mut bench = Bench::with(gateway_side);
        let (old, ticket) = ticket(&mut bench);
        let before = bench.host().ike();
        let header = Header {
            spi_i: 99,
            spi_r: 0,
            next_payload: PayloadType::NONE,
            minor_version: 0,
            exchange: ExchangeType::IKE_SESSION_RESUME,
            flags: Flags { initiator: true, version: false, response: false },
            message_id: 0,
            length: 0,
        };
        let ni = [3; 32];
        let presented = Notify::new(NotifyType::TICKET_OPAQUE, &ticket);
        let request = encode_message(&header, &[Payload::Nonce(&ni), Payload::Notify(presented)]);
        let response = bench.give(&request).remove(0);
        let message = Message::decode(&response).unwrap();
        let nr = message.payloads.iter().find_map(|payload| match payload {
            Payload::Nonce(nonce) => Some(nonce.to_vec()),
            _ => None,
        });
        let (nr, spi_r) = (nr.unwrap(), message.header.spi_r);
        let suite = before.algorithms.as_ref().unwrap().suite;
        let lengths = crypto.ciphers.lengths(suite).unwrap();
        let prf256 = crypto.prf(before.algorithms.as_ref().unwrap().prf).unwrap();
        let sk_d = Secret::copy_from(old.sk_d());
        let nonces = Nonces { i: &ni, r: &nr };
        let seed = Seed::new(nonces, Spis::new(99, spi_r));
        let keys = IkeKeys::resumed(prf256, &sk_d, &seed, &lengths);
        let mut epoch = Epoch::new(crypto.ciphers, suite, &keys, true).unwrap();
        let id = identity(if wrong == 0 { 3 } else { 2 });
        let maced = prf(keys.pi.expose(), &[&[id.kind.0, 0, 0, 0], &id.data]);
        let mut auth = prf(keys.pi.expose(), &[&request, &nr, &maced]);
        if wrong == 1 {
            auth[7] ^= 1;
        }
        let other = identity(4);
        let mut payloads = auth_payloads(&id, &auth, 0x2000, true);
        if wrong == 2 {
            payloads.push(Payload::IdR(other.as_id()));
        }
        let outgoing = Outgoing {
            spi_i: 99,
            spi_r,
            exchange: ExchangeType::IKE_AUTH,
            flags: Flags { initiator: true, version: false, response: false },
            message_id: 1,
            payloads: &payloads,
            max_datagram: None,
            force_fragment: false,
        };
        let sealed = epoch.seal(&outgoing, &mut Seeded::new(2)).unwrap().remove(0);
        let answer = bench.give(&sealed).remove(0);
        let message = Message::decode(&answer).unwrap();
        let Some(Payload::Sk(sk)) = message.payloads.last() else { panic!("not sealed") };
        let opened = epoch.open(&answer, sk).unwrap();
        let payloads = decode_inner_payloads(opened.first, &opened.octets).unwrap();
        assert!(notified(&payloads, NotifyType::AUTHENTICATION_FAILED).is_some(), "{wrong}");
        assert_eq!(bench.host().ike().id, before.id, "the old one stays");
        bench.assert_nothing_leaked();
    }
}

/// TICKET_REQUEST is answered whatever else is (RFC 5723 §4.1).
#[test]
fn who_is_sent_elsewhere_is_told_that_there_is_no_ticket() {
    for asks in [true, false] {
        let mut gateway_side = side(1, 2);
        gateway(&mut gateway_side, &[1]);
        let to = vec![address(3)];
        gateway_side.settings.redirect =
            RedirectPolicy { in_auth: true, to, ..RedirectPolicy::default() };
        let mut bench = Bench::with(gateway_side);
        let mut started = bench.start();
        let mut payloads = started.payloads();
        payloads.push(Payload::Notify(Notify::new(NotifyType::REDIRECT_SUPPORTED, &[])));
        started.request = started.encode(&payloads);
        let sent = bench.give(&started.request);
        let mut peer = started.finish(&sent[0]).unwrap();
        let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let mut payloads = auth_payloads(&id, &auth, 1007, true);
        let ask = Payload::Notify(Notify::new(NotifyType::TICKET_REQUEST, &[]));
        payloads.extend(asks.then_some(ask));
        let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
        let sent = bench.give(&request);
        let told = notifies(&peer.open(&sent[0]).unwrap());
        let expected = [NotifyType::REDIRECT, NotifyType::TICKET_NACK];
        assert_eq!(told, expected[..1 + usize::from(asks)]);
    }
}
