//! Class 37: responses that differ from the genuine one where the keys do not.
//!
//! IKE_SA_INIT is not protected. Whoever sees the response can send an altered copy before it arrives:
//! KE, nonce and SPI as they are, so that the keys are those of the genuine one.

use std::time::Duration;

use ike_proto::Failure;
use ike_proto::config::{Childless, Retransmission};
use ike_proto::crypto::SignatureScheme;
use ike_proto::wire::payload::{Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{Message, decode_payloads, encode_message};
use ike_tests::bench::{Bench, PSK, auth_payloads};
use ike_tests::cheap;
use ike_tests::credentials::{Authority, credential, key_type};
use ike_tests::handmade::Handmade;
use ike_tests::setup::{identity, side};

/// `response` with a notify more.
fn altered(response: &[u8], kind: NotifyType) -> Vec<u8> {
    let message = Message::decode(response).unwrap();
    let mut payloads = message.payloads.clone();
    payloads.push(Payload::Notify(Notify::new(kind, &[])));
    encode_message(&message.header, &payloads)
}

/// The SPI of the child that an IKE_AUTH request asks for.
fn offered_spi(peer: &Handmade, request: &[u8]) -> Spi {
    let opened = peer.open(request).expect("sealed for the peer");
    let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap();
    payloads
        .iter()
        .find_map(|payload| match payload {
            Payload::Sa(sa) => sa.proposals.first().map(|proposal| proposal.spi),
            _ => None,
        })
        .expect("a child")
}

#[test]
fn class_37_an_altered_response_makes_no_second_message_under_the_same_iv() {
    for forged_first in [true, false] {
        let mut bench = Bench::new();
        let (request, mut peer) = bench.initiate_to_peer();
        let genuine = peer.response.clone();
        let forged = altered(&genuine, NotifyType::CHILDLESS_IKEV2_SUPPORTED);
        let (first, second) = if forged_first { (forged, genuine) } else { (genuine, forged) };
        let sent = bench.give(&first);
        assert_eq!(sent.len(), 1, "IKE_AUTH");
        let spi = offered_spi(&peer, &sent[0]);
        assert_eq!(bench.give(&second), Vec::<Vec<u8>>::new(), "nothing else under these keys");

        let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let payloads = auth_payloads(&id, &auth, 1007, false);
        let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
        assert_eq!(bench.give(&response).len(), 0);
        assert_eq!(bench.host().done(request), Some(Ok(())), "{:?}", bench.host().dropped);
        assert_eq!(Spi::Esp(bench.host().child().inbound.spi), spi);
        bench.assert_nothing_leaked();
    }
}

/// What the altered response asks for, this end's key cannot do: the genuine one, which came while the
/// signature was made, is looked at when it comes again.
#[test]
fn class_37_a_response_that_asks_for_another_signature_ends_no_attempt() {
    for signs_at_all in [false, true] {
        let mut side = side(1, 2);
        let root = Authority::root("root", key_type(SignatureScheme::EcdsaP256Sha256), 0);
        side.show(credential(&root, key_type(SignatureScheme::EcdsaP256Sha256), 1));
        side.settings.retransmission = Retransmission::strongswan();
        let mut bench = Bench::with(side);
        bench.world.hosts[0].answer_delay = Some(Duration::from_millis(50));
        let (request, init) = bench.initiate();
        let seed = bench.seed();
        let peer = Handmade::answer(&cheap::provider(), &init, seed).unwrap();
        let genuine = peer.response.clone();
        // SHA2-512 and no other, or with the one that fits.
        let hashes: &[u8] = if signs_at_all { &[0, 4, 0, 2] } else { &[0, 4] };
        let message = Message::decode(&genuine).unwrap();
        let mut payloads = message.payloads.clone();
        let hashes = Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, hashes);
        payloads.push(Payload::Notify(hashes));
        assert_eq!(bench.give(&encode_message(&message.header, &payloads)).len(), 0);
        assert_eq!(bench.give(&genuine).len(), 0, "the signature is being made");
        bench.world.run_for(Duration::from_millis(500));
        assert_eq!(bench.host().done(request), None);
        let mut sent = bench.sent();
        if !signs_at_all {
            assert_eq!(sent, [init], "asked again");
            assert_eq!(bench.give(&genuine).len(), 0);
            bench.world.run_for(Duration::from_millis(100));
            sent = bench.sent();
        }
        assert_eq!(sent.len(), 1, "{:?}", bench.host().dropped);
        assert!(peer.open(&sent[0]).is_some(), "IKE_AUTH");
    }
}

/// `response` without its notifies of `kind`.
fn stripped(response: &[u8], kind: NotifyType) -> Vec<u8> {
    let message = Message::decode(response).unwrap();
    let mut payloads = message.payloads.clone();
    payloads.retain(|payload| !matches!(payload, Payload::Notify(notify) if notify.kind == kind));
    assert_ne!(payloads.len(), message.payloads.len());
    encode_message(&message.header, &payloads)
}

#[test]
fn class_37_a_response_that_hides_fragmentation_hides_no_fragments() {
    for forged_first in [true, false] {
        let mut bench = Bench::new();
        let (request, mut peer) = bench.initiate_to_peer();
        let genuine = peer.response.clone();
        let forged = stripped(&genuine, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
        let (first, second) = if forged_first { (forged, genuine) } else { (genuine, forged) };
        assert_eq!(bench.give(&first).len(), 1, "IKE_AUTH");
        assert_eq!(bench.give(&second).len(), 0);

        let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let payloads = auth_payloads(&id, &auth, 1007, false);
        let fragments = peer.seal_in(ExchangeType::IKE_AUTH, 1, true, &payloads, Some(120));
        assert!(fragments.len() > 1);
        for fragment in &fragments {
            assert_eq!(bench.give(fragment).len(), 0);
        }
        assert_eq!(bench.host().done(request), Some(Ok(())), "{:?}", bench.host().dropped);
        bench.assert_nothing_leaked();
    }
}

#[test]
fn class_37_a_response_that_forbids_what_must_be_ends_no_attempt() {
    let mut side = side(1, 2);
    side.connection.childless = Childless::Force;
    let mut bench = Bench::with(side);
    let (request, init) = bench.initiate();
    let seed = bench.seed();
    // Childless SAs are not announced in it.
    let forged = Handmade::answer(&cheap::provider(), &init, seed).unwrap().response;
    assert_eq!(bench.give(&forged).len(), 0);
    assert_eq!(bench.host().done(request), None, "the genuine peer may still answer");
    let seed = bench.seed();
    let peer = Handmade::answer(&cheap::provider(), &init, seed).unwrap();
    let genuine = altered(&peer.response, NotifyType::CHILDLESS_IKEV2_SUPPORTED);
    assert_eq!(bench.give(&genuine).len(), 1, "{:?}", bench.host().dropped);
    bench.world.run_for(Duration::from_secs(1));
    assert_eq!(bench.host().done(request), None);

    // Alone it is believed, after a while.
    let mut side = ike_tests::setup::side(1, 2);
    side.connection.childless = Childless::Force;
    let mut bench = Bench::with(side);
    let (request, init) = bench.initiate();
    let seed = bench.seed();
    let response = Handmade::answer(&cheap::provider(), &init, seed).unwrap().response;
    bench.give(&response);
    bench.world.run_for(Duration::from_secs(10));
    assert!(matches!(bench.host().done(request), Some(Err(Failure::Config(_)))));
}
