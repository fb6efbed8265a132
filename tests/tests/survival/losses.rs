//! Messages lost one by one: each request and each answer, once and several times.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::A;
use ike_tests::network::Fate;

use super::{large, up};

const EXCHANGES: [ExchangeType; 3] =
    [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_INTERMEDIATE, ExchangeType::IKE_AUTH];

/// Loses all there is of a message, in all its fragments, for the first `times` times.
fn lossy(exchange: ExchangeType, response: bool, times: usize) -> Duration {
    let mut pair = large(times as u64, "mlkem512").build();
    let mut lost = Vec::new();
    pair.net.tap(move |packet| {
        if !packet.is(exchange, response) {
            return Fate::Pass;
        }
        // What is sent in one instant is one try.
        if lost.last() != Some(&packet.sent) {
            lost.push(packet.sent);
        }
        if lost.len() <= times { Fate::Drop } else { Fate::Pass }
    });
    let took = up(&mut pair, Duration::from_secs(160));
    assert_eq!(pair.a().ikes().len(), 1);
    assert_eq!(pair.b().ikes().len(), 1, "{}", pair.story());
    assert_eq!(pair.b().endpoint.half_open(), 0);
    // Whoever looks for them finds one pair of SAs at either end.
    pair.run_for(Duration::from_secs(60));
    pair.assert_agreement();
    let _ = A;
    took
}

#[test]
fn each_request_is_lost_and_lost_again() {
    for exchange in EXCHANGES {
        for times in [1, 2, 4] {
            let took = lossy(exchange, false, times);
            // 0.5 s, 0.9 s, 1.6 s, 2.9 s: the ladder from the first timer on, and then a round trip.
            let bound = [700, 1700, 0, 6500].get(times - 1).copied().unwrap();
            assert!(took < Duration::from_millis(bound), "{exchange} {times}: {took:?}");
        }
    }
}

#[test]
fn each_answer_is_lost_and_lost_again() {
    for exchange in EXCHANGES {
        for times in [1, 2, 4] {
            let took = lossy(exchange, true, times);
            let bound = [700, 1700, 0, 6500].get(times - 1).copied().unwrap();
            assert!(took < Duration::from_millis(bound), "{exchange} {times}: {took:?}");
        }
    }
}
