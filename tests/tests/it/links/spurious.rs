//! Links that lose nothing: after IKE_SA_INIT nothing is sent twice, and setup takes what it must.

use ike_tests::link::{Jitter, LinkModel};

use super::scene::{MS, Suite, establish, pair, resent, serialization};

const RATES: [Option<u64>; 5] = [Some(9600), Some(19_200), Some(64_000), Some(1_000_000), None];
const ROUND_TRIPS: [u32; 4] = [0, 10, 100, 600];
const SUITES: [Suite; 4] = [Suite::Psk, Suite::MlDsa, Suite::MlDsa1024, Suite::Frodo];

#[test]
fn nothing_is_sent_again_without_need() {
    for suite in SUITES {
        for rate in RATES {
            for round_trip in ROUND_TRIPS {
                let model = LinkModel { rate, ..LinkModel::rtt(MS * round_trip) };
                let mut pair = pair(1, suite, model, |_| {});
                let took = establish(&mut pair);
                assert!(took.is_some(), "{suite:?} {rate:?} {round_trip} ms: {}", pair.story());
                // A liveness check and a rekey after it are small again.
                let again = resent(&pair);
                assert!(again.is_empty(), "{suite:?} {rate:?} {round_trip} ms: {}", pair.story());
            }
        }
    }
}

#[test]
fn later_exchanges_of_any_size_are_not_sent_again_either() {
    for rate in [Some(9600), Some(1_000_000), None] {
        for round_trip in [0, 600] {
            let model = LinkModel { rate, ..LinkModel::rtt(MS * round_trip) };
            let mut pair = pair(2, Suite::Frodo, model, |_| {});
            assert!(establish(&mut pair).is_some(), "{}", pair.story());
            pair.rekey_child(0);
            pair.run_for(MS * 20_000);
            pair.rekey_ike(1);
            pair.run_for(MS * 120_000);
            pair.rekey_child(1);
            pair.run_for(MS * 60_000);
            pair.assert_agreement();
            assert!(resent(&pair).is_empty(), "{rate:?} {round_trip} ms: {}", pair.story());
        }
    }
}

/// The PSK and RSA paper's path, 100 ms and 20 ms more or less, without its loss. Nothing tells fragments
/// that overtake each other by so much from lost ones for certain: a few are acknowledged as missing.
#[test]
fn jitter_is_seldom_taken_for_loss() {
    for suite in SUITES {
        let (mut sent, mut again) = (0, 0);
        for seed in 0..20 {
            let jitter = Jitter::Uniform(20 * MS);
            let model = LinkModel { jitter, ..LinkModel::rtt(100 * MS) };
            let mut pair = pair(seed, suite, model, |_| {});
            assert!(establish(&mut pair).is_some());
            sent += pair.net.trace.len();
            again += resent(&pair).len();
        }
        println!("{suite:?}: {again} of {sent}");
        assert!(again * 10 <= sent, "{suite:?}: {again} of {sent}");
        assert!(suite != Suite::Psk || again == 0);
    }
}

#[test]
fn setup_takes_what_the_link_takes() {
    for suite in SUITES {
        for (rate, round_trip) in
            [(Some(9600), 0), (Some(9600), 100), (None, 600), (Some(1_000_000), 600)]
        {
            let model = LinkModel { rate, ..LinkModel::rtt(MS * round_trip) };
            let mut pair = pair(3, suite, model, |_| {});
            let took = establish(&mut pair).unwrap_or_else(|| panic!("{}", pair.story()));
            let least = serialization(&pair, &model) + MS * round_trip * suite.round_trips();
            assert!(
                took <= least.mul_f64(1.3),
                "{suite:?} {rate:?} {round_trip} ms: {took:?}, not {least:?}: {}",
                pair.story()
            );
        }
    }
}

/// A peer that takes its time is asked again, for nobody can know; but the exchange goes on.
#[test]
fn a_peer_that_thinks_long_is_waited_for() {
    let mut pair = pair(4, Suite::MlDsa, LinkModel::rtt(20 * MS), |setup| {
        // Only the initiator's patience counts here.
        setup.b.settings.half_open_timeout = MS * 200_000;
    });
    pair.hosts[1].answer_delay = Some(MS * 60_000);
    let took = establish(&mut pair).expect("an IKE SA");
    assert!(took > MS * 120_000, "two questions of a minute each: {took:?}");
    // It says that it has all of the request: there is no reason to try smaller packets.
    assert!(pair.net.trace.iter().all(|packet| packet.ip_octets() != 576), "{}", pair.story());
}
