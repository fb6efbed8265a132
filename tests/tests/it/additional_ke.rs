//! Additional key exchanges (RFC 9370): IKE_INTERMEDIATE (RFC 9242) and IKE_FOLLOWUP_KE.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Fate;
use ike_tests::{A, B, Pair, Setup};

const METHODS: [&str; 4] = [
    "x25519-ke1_mlkem768",
    "ecp256-ke2_x25519",
    "x25519-ke1_mlkem512-ke3_mlkem768-ke7_ecp384",
    "mlkem512-ke1_x25519-ke2_mlkem768-ke3_mlkem1024-ke4_ecp256-ke5_ecp384-ke6_ecp521-ke7_modp2048",
];

fn hybrid(seed: u64, methods: &str) -> Setup {
    let mut setup = Setup::new(seed).real();
    setup.both(|side| {
        side.ike_proposals(&[&format!("aes256gcm16-prfsha384-{methods}")]);
        side.esp_proposals(&[&format!("aes256gcm16-{methods}")]);
    });
    setup
}

fn rekeys_from_both_ends(pair: &mut Pair) {
    for end in [A, B] {
        for ike in [false, true] {
            let request = if ike { pair.rekey_ike(end) } else { pair.rekey_child(end) };
            pair.run_for(Duration::from_secs(120));
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
            pair.assert_agreement();
        }
    }
}

#[test]
fn a_handshake_and_every_rekey() {
    for (seed, methods) in (0..).zip(METHODS) {
        let mut pair = hybrid(seed, methods).build();
        pair.establish();
        let intermediates = methods.matches("-ke").count();
        let seen =
            |exchange| pair.net.trace.iter().filter(|packet| packet.is(exchange, true)).count();
        assert!(seen(ExchangeType::IKE_INTERMEDIATE) >= intermediates, "{}", pair.story());
        pair.traffic.watch();
        rekeys_from_both_ends(&mut pair);
        assert!(pair.traffic.lost.is_empty());
    }
}

#[test]
fn under_loss_reordering_and_duplication() {
    for seed in 100..130 {
        let mut setup = hybrid(seed, METHODS[2]);
        setup.conditions.loss = 150;
        setup.conditions.duplication = 100;
        setup.conditions.jitter = Duration::from_millis(80);
        setup.both(|side| side.settings.retransmission.tries = Some(12));
        let mut pair = setup.build();
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(600));
        assert_eq!(pair.hosts[A].done(request), Some(Ok(())), "{seed}: {}", pair.story());
        rekeys_from_both_ends(&mut pair);
    }
}

#[test]
fn both_ends_rekey_at_once() {
    for seed in 200..216 {
        for ike in [false, true] {
            let mut pair = hybrid(seed, METHODS[0]).build();
            pair.establish();
            for end in [A, B] {
                if ike {
                    pair.rekey_ike(end)
                } else {
                    pair.rekey_child(end)
                };
            }
            pair.run_for(Duration::from_secs(120));
            pair.assert_agreement();
            assert_eq!(pair.a().ikes().len(), 1, "{seed} {ike}: {}", pair.story());
            assert_eq!(pair.a().ike().children.len(), 1, "{seed} {ike}: {}", pair.story());
        }
    }
}

#[test]
fn a_peer_without_them_gets_the_classic_proposal() {
    let mut setup = hybrid(300, METHODS[0]);
    setup.a.ike_proposals(&[
        "aes256gcm16-prfsha384-x25519-ke1_mlkem768",
        "aes256gcm16-prfsha384-x25519",
    ]);
    setup.b.ike_proposals(&["aes256gcm16-prfsha384-x25519"]);
    setup.both(|side| side.esp_proposals(&["aes256gcm16"]));
    let mut pair = setup.build();
    pair.establish();
    assert!(pair.net.trace.iter().all(|packet| !packet.is(ExchangeType::IKE_INTERMEDIATE, false)));
}

/// Who changes one octet of an IKE_INTERMEDIATE message never gets an SA established with it: the
/// message is dropped, and the genuine one is heard.
#[test]
fn an_altered_intermediate_is_not_heard() {
    for response in [false, true] {
        let mut pair = hybrid(400, METHODS[0]).build();
        let mut altered = 0;
        pair.net.tap(move |packet| {
            if altered == 0 && packet.is(ExchangeType::IKE_INTERMEDIATE, response) {
                altered += 1;
                let mut octets = packet.octets.to_vec();
                let middle = octets.len() / 2;
                octets[middle] ^= 1;
                packet.octets = octets.into();
            }
            Fate::Pass
        });
        pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(60));
        pair.assert_agreement();
        assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
    }
}
