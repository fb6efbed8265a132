//! Somebody who breaks the key exchange and so holds SK_e and SK_a, against PPKs.
//!
//! In IKE_AUTH (RFC 8784) an optional PPK can be talked away: with another PPK_ID in the request the
//! responder has no such key and takes NO_PPK_AUTH. That is the price of "optional" (RFC 8784 §6); both
//! ends say that they went without. A required one cannot, and in IKE_INTERMEDIATE (RFC 9867) none can,
//! because AUTH covers what was offered.

use ike_proto::Event;
use ike_proto::config::DowngradePrevention;
use ike_proto::wire::payload::Payload;
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{decode_payloads, encode_payloads};
use ike_tests::cheap;
use ike_tests::network::{Fate, Packet};
use ike_tests::wiretap::Wiretap;

use crate::mitm::stage::{NOTHING, Outcome, Scene, run, set};

/// Replaces the PPKs that the initiator names by one that nobody has.
fn attack(scene: Scene) -> (ike_tests::Pair, Outcome) {
    let mut pair = set(scene, DowngradePrevention::Yes);
    let (mut request, mut tap) = (Vec::new(), None::<Wiretap>);
    let outcome = run(&mut pair, move |packet: &mut Packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, false) {
            request = packet.octets.to_vec();
        } else if packet.is(ExchangeType::IKE_SA_INIT, true) {
            tap = Wiretap::new(cheap::provider(), &request, &packet.octets);
        } else if let Some(tap) = &mut tap
            && let Some(opened) = tap.open(&packet.octets)
        {
            let response = packet.header().is_some_and(|header| header.flags.response);
            let mut payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap();
            for payload in &mut payloads {
                if let Payload::Notify(notify) = payload
                    && !response
                {
                    notify.data = match notify.kind {
                        NotifyType::PPK_IDENTITY => &[2, b'?'],
                        NotifyType::PPK_IDENTITY_KEY => &[2, b'?', 1, 2, 3, 4, 5, 6, 7, 8],
                        _ => notify.data,
                    };
                }
            }
            let mut inner = Vec::new();
            let first = encode_payloads(&payloads, &mut inner);
            packet.octets = tap.reseal(&packet.octets, first, &inner).into();
            if packet.is(ExchangeType::IKE_INTERMEDIATE, response) {
                tap.follow(&opened, response);
            }
        }
        Fate::Pass
    });
    (pair, outcome)
}

#[test]
fn an_optional_ppk_in_ike_auth_is_talked_away_and_both_ends_say_so() {
    let (pair, outcome) = attack(Scene::PpkOptional);
    assert_eq!(outcome.established, [1, 1], "{}", pair.story());
    for host in &pair.hosts {
        assert_eq!(host.ike().ppk, None);
        let told = host.events(|event| matches!(event, Event::WithoutPpk(_)).then_some(()));
        assert_eq!(told.len(), 1);
    }
}

#[test]
fn a_required_ppk_is_not() {
    let (pair, outcome) = attack(Scene::PpkRequiredInAuth);
    assert_eq!(outcome, NOTHING, "{}", pair.story());
}

#[test]
fn in_ike_intermediate_not_even_an_optional_one_is() {
    for scene in [Scene::HybridPpk, Scene::PpkRequired] {
        let (pair, outcome) = attack(scene);
        assert_eq!(outcome, NOTHING, "{scene:?}\n{}", pair.story());
    }
}
