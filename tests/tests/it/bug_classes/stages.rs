//! Class 41: a message that stops making sense at every octet in turn, and then comes whole.

use std::time::Duration;

use ike_proto::keys::Opened;
use ike_proto::wire::encode_payloads;
use ike_proto::wire::registry::{ExchangeType, NotifyType, PayloadType};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::handmade::{Handmade, LooseFragment, notifies};
use ike_tests::setup::identity;

/// The lengths of header and first payload, made to agree with a datagram cut short.
fn mend(mut datagram: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(datagram.len()).expect("a length");
    if let Some(field) = datagram.get_mut(24..28) {
        field.copy_from_slice(&length.to_be_bytes());
    }
    datagram
}

#[test]
fn class_41_ike_sa_init_requests() {
    let mut bench = Bench::new();
    let started = bench.start();
    for length in 0..started.request.len() {
        let cut = mend(started.request[..length].to_vec());
        for _ in 0..2 {
            bench.give(&cut);
        }
        // A chain that ends early on purpose.
        for offset in [28, 28 + length / 2] {
            let mut other = started.request.clone();
            if let Some(next) = other.get_mut(offset) {
                *next = u8::try_from(length % 256).expect("an octet");
            }
            bench.give(&other);
        }
    }
    let before = bench.host().endpoint.half_open();
    for n in 0..2 {
        let sent = bench.give(&started.request);
        assert_eq!(sent.len(), 1, "time {n}");
        assert!(started.finish(&sent[0]).is_some());
    }
    assert!(bench.host().endpoint.half_open() <= before + 1);
    bench.world.run_for(Duration::from_secs(60));
    assert_eq!(bench.host().endpoint.half_open(), 0);
    bench.assert_nothing_leaked();
    bench.established(1007);
}

#[test]
fn class_41_ike_sa_init_responses() {
    let crypto = ike_tests::cheap::provider();
    let mut bench = Bench::new();
    let (_, request) = bench.initiate();
    let peer = Handmade::answer(&crypto, &request, 9).expect("an answer");
    for length in 0..peer.response.len() {
        let cut = mend(peer.response[..length].to_vec());
        for _ in 0..2 {
            assert_eq!(bench.give(&cut).len(), 0, "{length} octets");
        }
    }
    assert_eq!(bench.give(&peer.response).len(), 1, "and the whole one is taken");
    assert_eq!(bench.give(&peer.response).len(), 0, "once");
}

/// The good payloads of host B's IKE_AUTH message, encoded.
fn auth_chain(peer: &Handmade, initiator: bool) -> Opened {
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut octets = Vec::new();
    let first = encode_payloads(&auth_payloads(&id, &auth, 1007, initiator), &mut octets);
    Opened { first, octets, front: Vec::new() }
}

/// Seals a piece of a chain as it stands, as the only fragment of a message.
fn seal(
    peer: &mut Handmade,
    message_id: u32,
    response: bool,
    first: PayloadType,
    content: &[u8],
) -> Vec<u8> {
    let whole = LooseFragment { first, number: 1, total: 1, content };
    peer.seal_fragment(ExchangeType::IKE_AUTH, message_id, response, &whole)
}

#[test]
fn class_41_ike_auth_requests() {
    let length = auth_chain(&Bench::new().half_open(), true).octets.len();
    for cut in 0..length {
        let mut bench = Bench::new();
        let mut peer = bench.half_open();
        let Opened { first, octets, .. } = auth_chain(&peer, true);
        let request = seal(&mut peer, 1, false, first, &octets[..cut]);
        let sent = bench.give(&request);
        assert_eq!(sent.len(), 1, "cut at {cut}");
        let answer = peer.open(&sent[0]).expect("sealed for the peer");
        assert_eq!(notifies(&answer), [NotifyType::INVALID_SYNTAX], "cut at {cut}");
        assert_eq!(bench.host().ikes().len(), 0);
        bench.assert_nothing_leaked();
        // The same again, then the whole: there is no SA any more to hear it.
        for content in [&octets[..cut], &octets[..]] {
            let request = seal(&mut peer, 1, false, first, content);
            for sent in bench.give(&request) {
                assert!(peer.open(&sent).is_none(), "cut at {cut}: the SA is back");
            }
        }
        bench.established(1007);
    }
}

#[test]
fn class_41_ike_auth_responses() {
    let length = auth_chain(&Bench::new().half_open(), false).octets.len();
    for cut in 0..length {
        let mut bench = Bench::new();
        let (request, mut peer, _) = bench.answering();
        let Opened { first, octets, .. } = auth_chain(&peer, false);
        for _ in 0..2 {
            let response = seal(&mut peer, 1, true, first, &octets[..cut]);
            bench.give(&response);
        }
        let response = seal(&mut peer, 1, true, first, &octets);
        bench.give(&response);
        assert_eq!(bench.host().children().len(), 0, "cut at {cut}");
        bench.world.run_for(Duration::from_secs(600));
        bench.sent();
        assert_eq!(bench.host().ikes().len(), 0, "cut at {cut}");
        assert!(matches!(bench.host().done(request), Some(Err(_))));
        bench.assert_nothing_leaked();
        bench.answered(1007);
    }
}

#[test]
fn class_41_requests_over_an_established_sa() {
    // A wrong octet anywhere in the chain of a CREATE_CHILD_SA request.
    let mut octets = Vec::new();
    let (id, auth) = (identity(2), [0; 32]);
    let payloads = auth_payloads(&id, &auth, 1009, true);
    let nonce = ike_proto::wire::Payload::Nonce(&[3; 32]);
    let chain = [&payloads[2..3], &[nonce], &payloads[3..]].concat();
    let first = encode_payloads(&chain, &mut octets);
    for at in 0..octets.len() {
        for with in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut bench = Bench::new();
            let mut peer = bench.established(1007);
            let mut content = octets.clone();
            content[at] = with;
            let whole = LooseFragment { first, number: 1, total: 1, content: &content };
            let exchange = ExchangeType::CREATE_CHILD_SA;
            let request = peer.seal_fragment(exchange, 2, false, &whole);
            let sent = bench.give(&request);
            assert_eq!(sent.len(), 1, "octet {at} as {with:02x}");
            bench.assert_nothing_leaked();
            // RFC 7296 §2.1: the same request has the same answer, even if the SA is gone.
            assert_eq!(bench.give(&request), sent);
            if bench.host().ikes().is_empty() {
                bench.established(1007);
            }
            bench.assert_nothing_leaked();
        }
    }
}
