//! Classes 5, 7, 11 and 17: what anybody may send to port 500.

use ike_proto::config::ProposalConfig;
use ike_proto::wire::payload::{Ke, Payload, Proposal, Sa, Spi, Transform};
use ike_proto::wire::registry::{
    EncrId, ExchangeType, IntegId, KeMethodId, NotifyType, PrfId, ProtocolId, TransformType,
};
use ike_proto::wire::{Message, Payload as Wire};
use ike_tests::bench::{Bench, PSK};
use ike_tests::handmade::{ESP, IKE, Started, notifies, proposal};
use ike_tests::setup::identity;

/// The one notify of an unprotected refusal.
fn refusal(sent: &[Vec<u8>]) -> Option<NotifyType> {
    let [only] = sent else { return None };
    let message = Message::decode(only).expect("a well-formed refusal");
    match message.payloads.as_slice() {
        [Wire::Notify(notify)] => Some(notify.kind),
        _ => None,
    }
}

/// The endpoint refused a stranger, kept nothing of it, and takes the next good peer.
#[track_caller]
fn assert_unharmed(bench: &mut Bench) {
    assert_eq!(bench.host().ikes().len(), 0);
    assert_eq!(bench.host().endpoint.half_open(), 0);
    bench.assert_nothing_leaked();
}

/// A good request with another first payload and another KE payload.
fn request_with(started: &Started, sa: Sa, method: KeMethodId, data: &[u8]) -> Vec<u8> {
    let mut payloads = started.payloads();
    payloads[0] = Payload::Sa(sa);
    payloads[1] = Payload::Ke(Ke { method, data });
    started.encode(&payloads)
}

#[test]
fn class_05_a_key_exchange_number_of_no_method_is_not_taken() {
    let mut bench = Bench::new();
    let internal = 1024..=1100;
    for id in [0, 13, 22, 23, 24, 36, 255, 256, 65_535].into_iter().chain(internal) {
        let started = bench.start();
        // Not offered in the SA: the good method of the proposal is asked for instead.
        let sa = proposal(ProtocolId::IKE, IKE, Spi::None);
        for octets in [0, 1, 32, 128, 1024] {
            let request = request_with(&started, sa.clone(), KeMethodId(id), &vec![1; octets]);
            let refused = refusal(&bench.give(&request));
            assert_eq!(refused, Some(NotifyType::INVALID_KE_PAYLOAD), "method {id}");
        }
        // Offered as well, alone.
        let mut sa = sa;
        for transform in &mut sa.proposals[0].transforms {
            if transform.kind == TransformType::KE {
                transform.id = id;
            }
        }
        let request = request_with(&started, sa, KeMethodId(id), &[1; 32]);
        let refused = refusal(&bench.give(&request));
        assert_eq!(refused, Some(NotifyType::NO_PROPOSAL_CHOSEN), "method {id}");
        // Courtesy is limited; another second begins.
        bench.world.run_for(std::time::Duration::from_secs(2));
    }
    assert_unharmed(&mut bench);
    bench.established(1007);
}

#[test]
fn class_05_a_public_value_of_another_length_is_not_taken() {
    let mut bench = Bench::new();
    for octets in [0, 1, 31, 33, 64, 1024] {
        let started = bench.start();
        let sa = proposal(ProtocolId::IKE, IKE, Spi::None);
        let request = request_with(&started, sa, KeMethodId::CURVE_25519, &vec![1; octets]);
        let refused = refusal(&bench.give(&request));
        assert_eq!(refused, Some(NotifyType::INVALID_SYNTAX), "{octets} octets");
    }
    assert_unharmed(&mut bench);
    bench.established(1007);
}

/// Transforms of IKE proposals that lack something or hold too much.
fn incomplete_ike() -> Vec<(&'static str, Vec<Transform>)> {
    let encr = Transform::encr(EncrId::AES_GCM_16, 256);
    let cbc = Transform::encr(EncrId::AES_CBC, 256);
    let prf = Transform::prf(PrfId::HMAC_SHA2_256);
    let integ = Transform::integ(IntegId::HMAC_SHA2_256_128);
    let ke = Transform::ke(KeMethodId::CURVE_25519);
    let unknown = |kind| Transform::new(kind, 0x7777);
    vec![
        ("no transform", vec![]),
        ("no encryption", vec![prf, ke]),
        ("no encryption but integrity", vec![integ, prf, ke]),
        ("no PRF", vec![encr, ke]),
        ("no key exchange", vec![encr, prf]),
        ("no integrity for CBC", vec![cbc, prf, ke]),
        ("integrity NONE for CBC", vec![cbc, Transform::integ(IntegId::NONE), prf, ke]),
        ("integrity for an AEAD", vec![encr, integ, prf, ke]),
        ("key exchange NONE", vec![encr, prf, Transform::ke(KeMethodId::NONE)]),
        ("an AEAD without key length", vec![Transform::new(TransformType::ENCR, 20), prf, ke]),
        ("an AEAD with a key of 7 bits", vec![Transform::encr(EncrId::AES_GCM_16, 7), prf, ke]),
        ("unknown encryption", vec![unknown(TransformType::ENCR), prf, ke]),
        ("unknown PRF", vec![encr, unknown(TransformType::PRF), ke]),
        ("unknown key exchange", vec![encr, prf, unknown(TransformType::KE)]),
        ("a transform type of nobody", vec![encr, prf, ke, unknown(TransformType(99))]),
        (
            "all unknown",
            vec![
                unknown(TransformType::ENCR),
                unknown(TransformType::PRF),
                unknown(TransformType::INTEG),
                unknown(TransformType::KE),
            ],
        ),
    ]
}

#[test]
fn class_07_a_proposal_without_a_mandatory_transform_is_not_chosen() {
    for (what, transforms) in incomplete_ike() {
        let mut bench = Bench::with(wide_open());
        let started = bench.start();
        let sa = Sa {
            proposals: vec![Proposal {
                number: 1,
                protocol: ProtocolId::IKE,
                spi: Spi::None,
                transforms,
            }],
        };
        let request = request_with(&started, sa, KeMethodId::CURVE_25519, &[1; 32]);
        let sent = bench.give(&request);
        let refused = refusal(&sent);
        let expected = [NotifyType::NO_PROPOSAL_CHOSEN, NotifyType::INVALID_SYNTAX];
        assert!(
            sent.is_empty() || refused.is_some_and(|kind| expected.contains(&kind)),
            "{what}: {refused:?}"
        );
        assert_unharmed(&mut bench);
    }
    // A good one behind any of the bad ones is found.
    for (what, transforms) in incomplete_ike().into_iter().skip(1) {
        let mut bench = Bench::with(wide_open());
        let started = bench.start();
        let mut sa = proposal(ProtocolId::IKE, IKE, Spi::None);
        let bad = Proposal { transforms, ..sa.proposals[0].clone() };
        sa.proposals[0].number = 2;
        sa.proposals.insert(0, bad);
        let mut payloads = started.payloads();
        payloads[0] = Payload::Sa(sa);
        let sent = bench.give(&started.encode(&payloads));
        let peer = sent.first().and_then(|response| started.finish(response));
        assert!(peer.is_some(), "{what} and then a good one: {:?}", refusal(&sent));
    }
}

/// Takes AEADs and CBC.
fn wide_open() -> ike_tests::Side {
    let mut side = ike_tests::setup::side(1, 2);
    side.connection.proposals = ProposalConfig::default_ike();
    side
}

#[test]
fn class_07_an_esp_proposal_without_a_mandatory_transform_makes_no_child() {
    let esn = Transform::esn(false);
    let encr = Transform::encr(EncrId::AES_GCM_16, 256);
    let cbc = Transform::encr(EncrId::AES_CBC, 256);
    let integ = Transform::integ(IntegId::HMAC_SHA2_256_128);
    let null = Transform::new(TransformType::ENCR, 11);
    let cases: &[(&str, &[Transform])] = &[
        ("no encryption", &[integ, esn]),
        ("CBC without integrity", &[cbc, esn]),
        ("NULL without integrity", &[null, esn]),
        ("NULL with integrity", &[null, integ, esn]),
        ("an AEAD with integrity", &[encr, integ, esn]),
        ("no sequence numbers", &[encr]),
        ("nothing but sequence numbers", &[esn]),
    ];
    for (what, transforms) in cases {
        let mut bench = Bench::new();
        let mut peer = bench.half_open();
        let mut sa = proposal(ProtocolId::ESP, ESP, Spi::Esp(1007));
        sa.proposals[0].transforms = transforms.to_vec();
        let auth = peer.auth(&identity(2), PSK);
        let id = identity(2);
        let mut payloads = ike_tests::bench::auth_payloads(&id, &auth, 1007, true);
        payloads[2] = Payload::Sa(sa);
        let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
        let sent = bench.give(&request);
        let answer = peer.open(&sent[0]).expect("sealed for the peer");
        assert_eq!(notifies(&answer), [NotifyType::NO_PROPOSAL_CHOSEN], "{what}");
        // RFC 7296 §1.2: the IKE SA is created all the same.
        bench.host().ike();
        bench.assert_nothing_leaked();
    }
}

#[test]
fn class_11_lengths_that_lie_are_dropped() {
    let mut bench = Bench::new();
    let started = bench.start();
    let good = started.request.clone();
    for length in 0..28 {
        assert_eq!(bench.give(&good[..length]).len(), 0, "{length} octets");
    }
    // The length field against the datagram.
    let claims = [0, 1, 27, 28, good.len() - 1, good.len() + 1, 65_535, u32::MAX as usize];
    for claim in claims {
        let mut datagram = good.clone();
        datagram[24..28].copy_from_slice(&(claim as u32).to_be_bytes());
        assert_eq!(bench.give(&datagram).len(), 0, "length field {claim}");
    }
    // Payload lengths, of each payload in turn.
    let mut offset = 28;
    while offset < good.len() {
        let length = usize::from(u16::from_be_bytes([good[offset + 2], good[offset + 3]]));
        for claim in [0, 1, 2, 3, length - 1, length + 1, good.len(), 65_535] {
            let mut datagram = good.clone();
            datagram[offset + 2..offset + 4].copy_from_slice(&(claim as u16).to_be_bytes());
            bench.give(&datagram);
            assert_unharmed(&mut bench);
        }
        offset += length;
    }
    // Nothing but a marker, or what is left of one.
    for datagram in [&[0, 0, 0, 0][..], &[0xff], &[0; 28], &[0xff; 28]] {
        assert_eq!(bench.give(datagram).len(), 0);
    }
    bench.established(1007);
}

#[test]
fn class_11_other_major_versions() {
    let mut bench = Bench::new();
    let started = bench.start();
    for major in 0..16u8 {
        let mut datagram = started.request.clone();
        datagram[17] = major << 4;
        let refused = refusal(&bench.give(&datagram));
        match major {
            2 => continue,
            // RFC 7296 §2.5: only a higher one is answered; 1 is IKEv1, with an answer of its own.
            0 | 1 => assert_eq!(refused, None, "major version {major}"),
            _ => assert_eq!(refused, Some(NotifyType::INVALID_MAJOR_VERSION), "{major}"),
        }
        // A response is never answered.
        datagram[19] |= 0x20;
        assert_eq!(refusal(&bench.give(&datagram)), None, "response of version {major}");
    }
    assert_eq!(bench.host().endpoint.half_open(), 1, "version 2 alone");
}

#[test]
fn class_17_lists_whose_elements_have_no_length_end() {
    let mut bench = Bench::new();
    let started = bench.start();
    // Every 16-bit word of the SA payload as 0, 1, 2 and 3: substructure and attribute lengths
    // among them.
    let good = started.request.clone();
    let sa_end = 28 + usize::from(u16::from_be_bytes([good[30], good[31]]));
    for offset in 32..sa_end - 1 {
        for length in 0..4u16 {
            let mut datagram = good.clone();
            datagram[offset..offset + 2].copy_from_slice(&length.to_be_bytes());
            // Ends, whatever it says.
            bench.give(&datagram);
        }
    }
    // A chain that names the same type again and again, to the end of the datagram.
    let mut chain = good[..28].to_vec();
    chain[16] = 43;
    for _ in 0..2000 {
        chain.extend([43, 0, 0, 4]);
    }
    let length = u32::try_from(chain.len()).expect("a length");
    chain[24..28].copy_from_slice(&length.to_be_bytes());
    assert_eq!(bench.give(&chain).len(), 0);
    bench.world.run_for(std::time::Duration::from_secs(60));
    assert_unharmed(&mut bench);
    bench.established(1007);
}

/// A request that is refused leaves no half-open SA behind, but may have cost a key pair.
#[test]
fn class_05_bad_public_values_from_spoofed_addresses_lead_to_cookies() {
    let mut bench = Bench::new();
    let mut refused = 0;
    for _ in 0..2000 {
        let started = bench.start();
        let sa = proposal(ProtocolId::IKE, IKE, Spi::None);
        let request = request_with(&started, sa, KeMethodId::CURVE_25519, &[0; 31]);
        refused += usize::from(refusal(&bench.give(&request)) != Some(NotifyType::COOKIE));
    }
    assert_eq!(refused, 232, "eight for each of cookie_threshold but the request itself");
    bench.world.run_for(std::time::Duration::from_secs(1));
    let started = bench.start();
    assert!(started.finish(&bench.give(&started.request)[0]).is_some(), "and it is over");
}

/// Whatever a flood has used up: without this answer a genuine peer gets no further.
#[test]
fn class_05_a_flood_does_not_keep_a_peer_from_the_method_it_needs() {
    let mut bench = Bench::new();
    for _ in 0..500 {
        let mut stray = bench.start();
        stray.request[8] = 1;
        bench.give(&stray.request.clone());
    }
    let started = bench.start();
    let sa = proposal(ProtocolId::IKE, IKE, Spi::None);
    let request = request_with(&started, sa, KeMethodId::MODP_2048, &[1; 256]);
    assert_eq!(refusal(&bench.give(&request)), Some(NotifyType::INVALID_KE_PAYLOAD));
}

#[test]
fn class_15_an_init_request_is_not_kept_at_any_length() {
    let mut bench = Bench::new();
    let started = bench.start();
    let padding = vec![0; 20_000];
    let mut payloads = started.payloads();
    payloads.push(Payload::Unknown {
        kind: ike_proto::wire::registry::PayloadType(200),
        body: &padding,
    });
    assert_eq!(bench.give(&started.encode(&payloads)).len(), 0);
    assert_unharmed(&mut bench);
}
