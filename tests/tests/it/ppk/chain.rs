//! Long chains of real key exchanges, with a PPK at their end.

use std::time::Duration;

use ike_proto::config::{PpkExchange, PpkRekey};
use ike_proto::wire::registry::ExchangeType;
use ike_tests::{A, B, Pair, Setup};

use super::{id, keyed};

/// FrodoKEM-976, ML-KEM-1024 and X25519 among them; seven besides the first.
const SEVEN: &str =
    "x25519-ke1_mlkem1024-ke2_frodoa3-ke3_mlkem768-ke4_ecp384-ke5_frodos1-ke6_ecp521-ke7_modp2048";
/// One of each family.
const THREE: &str = "x25519-ke1_mlkem1024-ke2_frodos3";

fn setup(seed: u64, methods: &str) -> Setup {
    let mut setup = keyed(seed, true, PpkExchange::Intermediate).real();
    setup.both(|side| {
        side.connection.ppk.rekey = PpkRekey::Require;
        side.ike_proposals(&[&format!("aes256gcm16-prfsha384-{methods}")]);
        side.esp_proposals(&[&format!("aes256gcm16-{methods}")]);
        side.settings.retransmission.tries = Some(12);
        side.settings.retransmission.limit = Duration::from_secs(8);
    });
    setup
}

fn rekey(pair: &mut Pair, end: usize, ike: bool) {
    let request = if ike { pair.rekey_ike(end) } else { pair.rekey_child(end) };
    pair.run_for(Duration::from_secs(300));
    assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
    pair.assert_agreement();
}

#[test]
fn seven_additional_key_exchanges_and_a_ppk() {
    let mut pair = setup(1, SEVEN).build();
    pair.establish();
    // The PPK travels with the seventh: there is no eighth exchange.
    let mut ids: Vec<u32> = pair
        .net
        .trace
        .iter()
        .filter(|packet| packet.is(ExchangeType::IKE_INTERMEDIATE, false))
        .map(|packet| packet.header().unwrap().message_id)
        .collect();
    ids.dedup();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7]);
    for host in &pair.hosts {
        assert_eq!(host.ike().algorithms.unwrap().additional().count(), 7);
        assert_eq!(host.ike().ppk, Some(id("x")));
    }
    rekey(&mut pair, A, false);
    rekey(&mut pair, B, true);
    for host in &pair.hosts {
        assert_eq!(host.ike().algorithms.unwrap().additional().count(), 7);
        assert_eq!(host.child().algorithms.additional().count(), 7);
        assert_eq!(host.child().ppk, Some(id("x")));
    }
}

#[test]
fn frodokem_ml_kem_and_x25519_on_a_bad_network() {
    for seed in 10..13 {
        let mut setup = setup(seed, THREE);
        setup.conditions.loss = 60;
        setup.conditions.duplication = 50;
        setup.conditions.jitter = Duration::from_millis(40);
        let mut pair = setup.build();
        let end = if seed % 2 == 0 { A } else { B };
        let request = pair.initiate(end, Some("net"));
        pair.run_for(Duration::from_secs(400));
        assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{seed}\n{}", pair.story());
        rekey(&mut pair, A, true);
        rekey(&mut pair, B, false);
    }
}
