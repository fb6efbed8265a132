//! Messages lost one by one: each request and each answer, once and several times.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Fate;
use ike_tests::{A, B, Setup};

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

/// The first request of the responder is answered after an outage. If the next one is lost, it is sent again soon.
///
/// Fault: in `Rtt::most_cost` (channel/rtt.rs), leave `SLOWEST` out.
#[test]
fn what_is_lost_after_an_outage_is_sent_again_soon() {
    let mut setup = Setup::new(72);
    setup.b.connection.dpd_delay = Duration::from_secs(20);
    let mut pair = setup.build();
    pair.establish();
    pair.net.conditions.loss = 1000;
    pair.run_for(Duration::from_secs(90));
    pair.net.conditions.loss = 0;
    pair.run_for(Duration::from_secs(19));
    pair.net.lose(1, |packet| packet.is(ExchangeType::CREATE_CHILD_SA, false));
    let rekey = pair.rekey_child(B);
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.b().done(rekey), Some(Ok(())), "{}", pair.story());
}
