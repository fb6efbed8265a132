//! Large messages leave as a burst and then one by one.

use std::time::Duration;

use ike_proto::config::Retransmission;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::link::LinkModel;
use ike_tests::{A, B};

use super::scene::{MS, Suite, establish, pair, resent, rules};

/// Times at which the datagrams of one message left.
fn departures(pair: &ike_tests::Pair, exchange: ExchangeType, response: bool) -> Vec<Duration> {
    let trace = pair.net.trace.iter().filter(|packet| packet.is(exchange, response));
    trace.map(|packet| packet.sent).collect()
}

#[test]
fn a_burst_of_ten_and_a_twentieth_of_the_round_trip_time() {
    let mut pair = pair(1, Suite::Frodo, LinkModel::rtt(100 * MS), |_| {});
    assert!(establish(&mut pair).is_some());
    let request = departures(&pair, ExchangeType::IKE_INTERMEDIATE, false);
    assert!(request.len() > 12, "{}", pair.story());
    assert!(request[..10].iter().all(|at| *at == request[0]));
    for two in request[9..].windows(2) {
        assert_eq!(two[1] - two[0], 5 * MS);
    }
    let response = departures(&pair, ExchangeType::IKE_INTERMEDIATE, true);
    assert!(response[..10].iter().all(|at| *at == response[0]));
    assert!(response[9..].windows(2).all(|two| two[1] > two[0]));
}

#[test]
fn strongswans_rules_do_not_pace() {
    let mut pair = pair(2, Suite::Frodo, LinkModel::rtt(100 * MS), |setup| {
        rules(setup, Retransmission::strongswan());
    });
    assert!(establish(&mut pair).is_some());
    for response in [false, true] {
        let times = departures(&pair, ExchangeType::IKE_INTERMEDIATE, response);
        assert!(times.iter().all(|at| *at == times[0]));
    }
}

/// A queue of a dozen datagrams in front of 2 Mbit/s overflows by a burst of 14, and not by the
/// same 14 paced.
#[test]
fn short_queues_hold() {
    let model = LinkModel { rate: Some(2_000_000), queue: 12, ..LinkModel::rtt(100 * MS) };
    let mut paced = pair(3, Suite::Frodo, model, |_| {});
    assert!(establish(&mut paced).is_some());
    assert!(resent(&paced).is_empty(), "{}", paced.story());
    assert_eq!(paced.net.modelled[&(A, B)].overflowed, 0);
    let mut burst =
        pair(3, Suite::Frodo, model, |setup| rules(setup, Retransmission::strongswan()));
    assert!(establish(&mut burst).is_some());
    assert!(burst.net.modelled[&(A, B)].overflowed > 0);
}

/// The end of an IKE SA does not cut its last response off.
#[test]
fn an_ike_sa_that_ends_sends_the_rest() {
    let mut pair = pair(4, Suite::Frodo, LinkModel::rtt(20 * MS), |_| {});
    assert!(establish(&mut pair).is_some());
    pair.rekey_ike(A);
    pair.run_for(MS * 10_000);
    pair.assert_agreement();
    assert!(resent(&pair).is_empty(), "{}", pair.story());
}
