//! Peers that do not acknowledge fragments: a response of which a part is there is asked for at once.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::Pair;
use ike_tests::link::LinkModel;

use super::scene::{MS, Suite, establish, pair, silent};

fn setup_time(pair: &mut Pair) -> Duration {
    establish(pair).unwrap_or_else(|| panic!("{}", pair.story()))
}

#[test]
fn each_lost_fragment_of_a_response_is_asked_for_at_once() {
    let lossless = setup_time(&mut pair(1, Suite::MlDsa, LinkModel::rtt(100 * MS), silent));
    for lost in 1..=10 {
        let mut pair = pair(1, Suite::MlDsa, LinkModel::rtt(100 * MS), silent);
        pair.net.lose(lost, |packet| packet.is(ExchangeType::IKE_AUTH, true));
        let took = setup_time(&mut pair);
        // The stall and a round trip: not the timer, which leaves room for the request's octets.
        assert!(took < lossless + 220 * MS, "{lost}: {took:?}, {lossless:?}: {}", pair.story());
        assert!(took > lossless + 50 * MS);
    }
}

/// Whole fragments that are kept make the second time enough: what arrived of the first is not needed
/// again.
#[test]
fn what_arrived_is_kept_across_retransmissions() {
    let mut pair = pair(2, Suite::MlDsa, LinkModel::rtt(100 * MS), silent);
    let mut times = 0;
    pair.net.tap(move |packet| {
        // Of the first request the even fragments get through, of the second the odd ones.
        if packet.is(ExchangeType::IKE_AUTH, false) {
            times += 1;
            let number =
                packet.octets[32..34].iter().fold(0, |n, octet| n << 8 | u32::from(*octet));
            if times <= 24 && (number % 2 == 0) == (times > 12) {
                return ike_tests::network::Fate::Drop;
            }
        }
        ike_tests::network::Fate::Pass
    });
    setup_time(&mut pair);
}
