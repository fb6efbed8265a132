//! Redirects in the first IKE_AUTH response of several (RFC 5685 §6), which gateways here do not send.

use ike_proto::config::{AuthConfig, LocalAuth, RemoteAuth};
use ike_proto::crypto::{Secret, SignatureScheme};
use ike_proto::wire::payload::{Notify, Payload};
use ike_proto::wire::registry::NotifyType;
use ike_proto::wire::{decode_payloads, encode_payloads};
use ike_proto::{EapAnswer, EapMessage, EapState, EapSuccess};
use ike_tests::credentials::{Authority, credential};
use ike_tests::wiretap::Wiretap;
use pq_kem::sign::KeyType;

use super::*;

/// A client by EAP and gateways by certificates.
fn by_eap(seed: u64) -> Pair {
    let curve = || KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);
    let ca = Authority::root("root", curve(), 0);
    let mut pair = three(seed, |_, setup| {
        setup.b.show(credential(&ca, curve(), 2));
        setup.b.connection.remote[0].auth = AuthConfig::Eap;
        setup.a.want("pubkey", &ca);
        setup.a.connection.local[0].auth = AuthConfig::Eap;
    });
    for host in [A, B, C] {
        pair.hosts[host].eap = Some(Box::new(eap));
    }
    pair
}

/// A method of one request and one response.
fn eap(message: EapMessage) -> EapAnswer {
    let success = |packet| {
        EapAnswer::Success(EapSuccess {
            packet,
            msk: Some(Secret::new(vec![7; 64])),
            method: "short".to_owned(),
            identity: None,
            password: None,
            authorization: None,
            certificate: None,
        })
    };
    match message.packet.as_deref() {
        None => EapAnswer::Send(vec![1, 0, 0, 5, 99], EapState::default()),
        Some([1, ..]) => EapAnswer::Send(vec![2, 0, 0, 5, 99], EapState::default()),
        Some([2, ..]) => success(Some(vec![3, 0, 0, 4])),
        Some(_) => success(None),
    }
}

/// Two rounds at both ends (RFC 4739).
fn by_rounds(seed: u64) -> Pair {
    three(seed, |_, setup| {
        setup.both(|side| {
            let own = side.connection.local_id().cloned();
            let second = LocalAuth { id: own, ..LocalAuth::new("local-2", AuthConfig::Psk) };
            side.connection.local.push(second);
            let id = side.connection.remote_id().clone();
            let second = RemoteAuth { id, ..RemoteAuth::new("remote-2", AuthConfig::Psk) };
            side.connection.remote.push(second);
        });
    })
}

/// B says in its IKE_AUTH response number `which` that the client is to go to C, and nothing about EAP.
fn redirect_in(pair: &mut Pair, which: u32) {
    let (mut request, mut tap) = (Vec::new(), None::<Wiretap>);
    let gateway = pair.address(B);
    pair.net.tap(move |packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, false) && packet.dst.ip() == gateway {
            request = packet.octets.to_vec();
        } else if packet.is(ExchangeType::IKE_SA_INIT, true) && packet.src.ip() == gateway {
            tap = Wiretap::new(cheap::provider(), &request, &packet.octets);
        } else if packet.is(ExchangeType::IKE_AUTH, true)
            && packet.header().is_some_and(|header| header.message_id == which)
            && let Some(tap) = &tap
            && let Some(opened) = tap.open(&packet.octets)
        {
            let mut payloads = decode_payloads(opened.first, &opened.octets, 0).expect("payloads");
            payloads.retain(|payload| !matches!(payload, Payload::Eap(_)));
            let to = [1, 4, 10, 0, 0, 3];
            payloads.push(Payload::Notify(Notify::new(NotifyType::REDIRECT, &to)));
            let mut inner = Vec::new();
            let first = encode_payloads(&payloads, &mut inner);
            packet.octets = tap.reseal(&packet.octets, first, &inner).into();
        }
        Fate::Pass
    });
}

#[test]
fn in_the_first_response_of_several() {
    for mut pair in [by_eap(20), by_rounds(21)] {
        redirect_in(&mut pair, 1);
        up(&mut pair);
        assert_eq!(pair.a().ike().path.remote.ip(), address(3), "{}", pair.story());
        pair.run_for(MINUTE);
        assert_served_by(&pair, C);
        // He is silent to the first gateway, which had made no SA.
        let ups = |host: &ike_tests::Host| {
            host.events(|e| matches!(e, ike_proto::Event::IkeUp(_)).then_some(())).len()
        };
        assert_eq!((ups(pair.b()), ups(&pair.hosts[C])), (0, 1));
    }
}

/// In the middle nobody is sent anywhere.
#[test]
fn not_in_a_response_between() {
    let mut pair = by_eap(22);
    redirect_in(&mut pair, 2);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(2 * MINUTE);
    assert!(matches!(pair.a().done(request), Some(Err(_))), "{}", pair.story());
    assert_eq!(children(&pair, C), 0);
}

/// Who has not proven that it is the gateway sends nobody anywhere.
#[test]
fn not_by_a_stranger() {
    let curve = || KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);
    let mut pair = by_eap(23);
    let other = Authority::root("other", curve(), 9);
    let mut setup = Setup::new(1);
    setup.b.show(credential(&other, curve(), 2));
    pair.hosts[B].answerer = setup.b.answerer;
    redirect_in(&mut pair, 1);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(2 * MINUTE);
    assert!(matches!(pair.a().done(request), Some(Err(_))), "{}", pair.story());
    assert_eq!(children(&pair, C), 0);
}
