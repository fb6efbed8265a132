//! Policies that leave no way back: hybrids alone, downgrade prevention required.

use std::time::Duration;

use ike_proto::Failure;
use ike_proto::config::{Childless, DowngradePrevention};
use ike_proto::wire::payload::{Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};
use ike_tests::handmade::{notifies, proposal};
use ike_tests::network::Packet;
use ike_tests::setup::Side;
use ike_tests::wiretap::Wiretap;
use ike_tests::{A, B, Pair, Setup, bench, cheap};

use super::{assert_nothing, attempt};

const CLASSICAL: &str = "aes256gcm16-prfsha256-x25519";
const HYBRID: &str = "aes256gcm16-prfsha256-x25519-ke1_ecp256";
const ESP_CLASSICAL: &str = "aes256gcm16-x25519";
const ESP_HYBRID: &str = "aes256gcm16-x25519-ke1_ecp256";

fn sides(setup: &mut Setup, strict: usize) -> (&mut Side, &mut Side) {
    if strict == A { (&mut setup.a, &mut setup.b) } else { (&mut setup.b, &mut setup.a) }
}

#[test]
fn hybrids_alone_take_no_classical_ike_sa() {
    for strict in [A, B] {
        for initiator in [A, B] {
            let mut setup = Setup::new(1);
            let (ours, theirs) = sides(&mut setup, strict);
            ours.ike_proposals(&[HYBRID]);
            theirs.ike_proposals(&[CLASSICAL]);
            let mut pair = setup.build();
            assert!(attempt(&mut pair, initiator).is_err());
            assert_nothing(&pair);
        }
    }
}

#[test]
fn hybrids_alone_bring_a_willing_peer_to_them_whatever_it_prefers() {
    for strict in [A, B] {
        for initiator in [A, B] {
            let mut setup = Setup::new(2);
            let (ours, theirs) = sides(&mut setup, strict);
            ours.ike_proposals(&[HYBRID]);
            theirs.ike_proposals(&[CLASSICAL, HYBRID]);
            let mut pair = setup.build();
            assert_eq!(attempt(&mut pair, initiator), Ok(()), "{}", pair.story());
            pair.assert_agreement();
            assert_eq!(pair.a().ike().algorithms.unwrap().additional().count(), 1);
        }
    }
}

#[test]
fn hybrids_alone_take_no_classical_child() {
    for strict in [A, B] {
        for initiator in [A, B] {
            let mut setup = Setup::new(3);
            setup.both(|side| {
                side.ike_proposals(&[CLASSICAL]);
                side.connection.childless = Childless::Force;
            });
            let (ours, theirs) = sides(&mut setup, strict);
            ours.esp_proposals(&[ESP_HYBRID]);
            theirs.esp_proposals(&[ESP_CLASSICAL, "aes256gcm16"]);
            let mut pair = setup.build();
            let result = attempt(&mut pair, initiator);
            assert_eq!(result, Err(Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN)));
            assert!(pair.a().children().is_empty() && pair.b().children().is_empty());
        }
    }
}

/// A classical IKE SA whose children are hybrids: IKE_INTERMEDIATE is announced for them alone.
#[test]
fn a_childless_ike_sa_gets_a_hybrid_child() {
    let mut setup = Setup::new(4);
    setup.both(|side| {
        side.ike_proposals(&[CLASSICAL]);
        side.esp_proposals(&[ESP_HYBRID]);
        side.connection.childless = Childless::Force;
    });
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(pair.a().child().algorithms.additional().count(), 1);
    let followups = |p: &&Packet| p.is(ExchangeType::IKE_FOLLOWUP_KE, true);
    assert_eq!(pair.net.trace.iter().filter(followups).count(), 1);
}

/// An authenticated peer proposes less than was agreed: new children and rekeys of either SA.
#[test]
fn an_authenticated_peer_gets_no_classical_rekey() {
    let asked: [(&str, bool, &str); 4] = [
        ("a new child without a key exchange", false, "aes256gcm16"),
        ("a new classical child", false, ESP_CLASSICAL),
        ("a classical rekey of the child", true, ESP_CLASSICAL),
        ("a classical rekey of the IKE SA", false, CLASSICAL),
    ];
    for (what, rekeys, keywords) in asked {
        let mut setup = Setup::new(5);
        setup.both(|side| {
            side.ike_proposals(&[HYBRID]);
            side.esp_proposals(&[ESP_HYBRID]);
        });
        let mut pair = setup.build();
        pair.establish();
        let tap = tapped(&pair);
        let (rng, nonce) = ([7; 32], [9; 32]);
        let ike = keywords == CLASSICAL;
        let (protocol, spi) = if ike {
            (ProtocolId::IKE, Spi::Ike(0x0102_0304_0506_0708))
        } else {
            (ProtocolId::ESP, Spi::Esp(0xc000_0001))
        };
        let spi_out = pair.b().child().outbound.spi;
        let mut payloads = Vec::new();
        if rekeys {
            payloads.push(Payload::Notify(Notify::esp(NotifyType::REKEY_SA, spi_out)));
        }
        payloads.push(Payload::Sa(proposal(protocol, keywords, spi)));
        payloads.push(Payload::Nonce(&nonce));
        if keywords != "aes256gcm16" {
            payloads.push(Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &rng }));
        }
        if !ike {
            payloads.push(Payload::TsI(vec![bench::net(1)]));
            payloads.push(Payload::TsR(vec![bench::net(2)]));
        }
        // IKE_SA_INIT, IKE_INTERMEDIATE and IKE_AUTH were 0, 1 and 2.
        let request = tap.seal(ExchangeType::CREATE_CHILD_SA, 3, true, &payloads);
        let (from, to) = (pair.a().ike().path.local, pair.a().ike().path.remote);
        pair.net.trace.clear();
        pair.inject(Packet::forged(from, to, request));
        let answer = pair.net.trace.first().unwrap_or_else(|| panic!("no answer to {what}"));
        let opened = tap.open(&answer.octets).unwrap();
        assert_eq!(notifies(&opened), [NotifyType::NO_PROPOSAL_CHOSEN], "{what}");
        assert_eq!(pair.b().children().len(), 1, "{what}");
        assert_eq!(pair.b().ikes().len(), 1, "{what}");
    }
}

/// The keys of the only IKE SA there was.
fn tapped(pair: &Pair) -> Wiretap {
    let mut tap: Option<Wiretap> = None;
    let mut request = Vec::new();
    for packet in &pair.net.trace {
        if packet.is(ExchangeType::IKE_SA_INIT, false) {
            request = packet.octets.to_vec();
        } else if packet.is(ExchangeType::IKE_SA_INIT, true) {
            tap = Wiretap::new(cheap::provider(), &request, &packet.octets);
        } else if let Some(tap) = &mut tap {
            for response in [false, true] {
                if packet.is(ExchangeType::IKE_INTERMEDIATE, response) {
                    let opened = tap.open(&packet.octets).unwrap();
                    tap.follow(&opened, response);
                }
            }
        }
    }
    tap.unwrap()
}

#[test]
fn downgrade_prevention_is_used_where_both_have_it_and_required_where_one_says_so() {
    use DowngradePrevention::{No, Require, Yes};
    for (a, b, wanted) in [
        (Yes, Yes, Some(true)),
        (Yes, No, Some(false)),
        (No, Yes, Some(false)),
        (No, No, Some(false)),
        (Require, Yes, Some(true)),
        (Yes, Require, Some(true)),
        (Require, Require, Some(true)),
        (Require, No, None),
        (No, Require, None),
    ] {
        for initiator in [A, B] {
            let mut setup = Setup::new(6);
            setup.a.connection.downgrade_prevention = a;
            setup.b.connection.downgrade_prevention = b;
            let mut pair = setup.build();
            let result = attempt(&mut pair, initiator);
            let Some(full) = wanted else {
                assert!(result.is_err(), "{a:?} {b:?}");
                assert_nothing(&pair);
                continue;
            };
            assert_eq!(result, Ok(()), "{a:?} {b:?}\n{}", pair.story());
            pair.assert_agreement();
            for host in &pair.hosts {
                assert_eq!(host.ike().full_transcript, full, "{a:?} {b:?}");
            }
            // An IKE rekey carries it over.
            let request = pair.rekey_ike(initiator);
            pair.run_for(Duration::from_secs(60));
            assert_eq!(pair.hosts[initiator].done(request), Some(Ok(())));
            assert_eq!(pair.b().ike().full_transcript, full);
        }
    }
}
