//! Fragments get lost: only they are sent again, without waiting for a timer.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Fate;
use ike_tests::{A, B};

use crate::fragment_ack::stage::{
    AUTH, CREATE_CHILD_SA, FOLLOWUP, INTERMEDIATE, Sent, build, come_up, count, fragments, is_ack,
    large, lose,
};

const MS: Duration = Duration::from_millis(1);

/// Every message of a handshake that is lost in part: exchange, response, fragments.
fn handshake() -> Vec<(ExchangeType, bool, u16)> {
    let mut pair = build(large(1));
    let sent = count(&mut pair);
    come_up(&mut pair);
    let sent = sent.lock().unwrap().clone();
    assert!(sent.again.is_empty() && sent.acks.is_empty(), "nothing was lost: {sent:?}");
    let messages = [(INTERMEDIATE, false), (INTERMEDIATE, true), (AUTH, false), (AUTH, true)];
    let all = messages.map(|(exchange, response)| {
        let total = fragments(&pair, exchange, response);
        assert!(total > 8, "{exchange} {response}: {total} fragments");
        (exchange, response, total)
    });
    all.to_vec()
}

/// Loses these fragments of one message of a handshake; what was sent, and what time it cost.
#[track_caller]
fn lost(
    seed: u64,
    (exchange, response): (ExchangeType, bool),
    numbers: &[u16],
    clean: Duration,
) -> (Sent, Duration) {
    let mut pair = build(large(seed));
    let sent = count(&mut pair);
    lose(&mut pair, exchange, response, numbers);
    let took = come_up(&mut pair);
    assert!(pair.audit.complaints.is_empty(), "{:?}", pair.audit.complaints);
    let sent = sent.lock().unwrap().clone();
    (sent, took.saturating_sub(clean))
}

fn clean() -> Duration {
    come_up(&mut build(large(1)))
}

#[test]
fn every_single_fragment_of_a_handshake() {
    let clean = clean();
    for (exchange, response, total) in handshake() {
        for number in 1..=total {
            let (sent, cost) = lost(1, (exchange, response), &[number], clean);
            let what = format!("{exchange} {response} {number} of {total}: {sent:?} {cost:?}");
            assert_eq!(sent.again, [(exchange, response, number)], "{what}");
            assert!((1..=2).contains(&sent.acks.len()), "{what}");
            // A round trip is 20 ms; the way of the fragment was not lost twice.
            assert!(cost <= 45 * MS, "{what}");
        }
    }
}

#[test]
fn every_two_fragments_of_a_request_and_of_a_response() {
    let clean = clean();
    for (exchange, response, total) in handshake().into_iter().take(2) {
        for first in 1..=total {
            for second in first + 1..=total {
                let (sent, cost) = lost(1, (exchange, response), &[first, second], clean);
                let what = format!("{exchange} {response} {first} {second}: {sent:?} {cost:?}");
                let mut again = sent.again.clone();
                again.sort_by_key(|(.., number)| *number);
                let both = [first, second].map(|number| (exchange, response, number));
                assert_eq!(again, both, "{what}");
                assert!(cost <= 90 * MS, "{what}");
            }
        }
    }
}

#[test]
fn bursts_of_any_length_up_to_all_but_one() {
    let clean = clean();
    for (exchange, response, total) in handshake() {
        for length in [3, 5, total - 2, total - 1] {
            for first in [1, 2, total - length + 1] {
                let burst: Vec<_> = (first..first + length).filter(|n| *n <= total).collect();
                let (sent, cost) = lost(1, (exchange, response), &burst, clean);
                let what = format!("{exchange} {response} {burst:?}: {sent:?} {cost:?}");
                let mut again: Vec<_> = sent.again.iter().map(|(.., number)| *number).collect();
                again.sort_unstable();
                assert_eq!(again, burst, "{what}");
                assert!(cost <= 150 * MS, "{what}");
            }
        }
    }
}

/// Nothing came, so that nobody acknowledges: the timer asks, and the answer says that all is missing.
#[test]
fn a_message_lost_whole_is_asked_for_by_one_fragment() {
    let clean = clean();
    for (exchange, response, total) in handshake() {
        let all: Vec<_> = (1..=total).collect();
        let (sent, cost) = lost(1, (exchange, response), &all, clean);
        let what = format!("{exchange} {response}: {sent:?} {cost:?}");
        let of_it = sent.again.iter().filter(|(its, to, _)| (*its, *to) == (exchange, response));
        let of_it = of_it.count();
        assert!(of_it <= usize::from(total) + 1, "{of_it} fragments again: {what}");
        assert!(sent.again.len() - of_it <= 2, "{what}");
        assert!(cost <= 2000 * MS, "{what}");
    }
}

/// CREATE_CHILD_SA and IKE_FOLLOWUP_KE, of either end, for a child and for the IKE SA.
#[test]
fn every_exchange_of_an_established_sa_in_both_roles() {
    for host in [A, B] {
        for ike in [false, true] {
            let messages = [
                (FOLLOWUP, false),
                (FOLLOWUP, true),
                // The key exchange of the IKE proposal is short there.
                (CREATE_CHILD_SA, false),
                (CREATE_CHILD_SA, true),
            ];
            for (exchange, response) in messages.into_iter().take(if ike { 2 } else { 4 }) {
                for number in [1, 2] {
                    rekeyed(host, ike, (exchange, response), number);
                }
            }
        }
    }
}

#[track_caller]
fn rekeyed(host: usize, ike: bool, (exchange, response): (ExchangeType, bool), number: u16) {
    let mut pair = build(large(1));
    come_up(&mut pair);
    let sent = count(&mut pair);
    lose(&mut pair, exchange, response, &[number]);
    let request = if ike { pair.rekey_ike(host) } else { pair.rekey_child(host) };
    pair.run_for(Duration::from_secs(10));
    assert_eq!(pair.hosts[host].done(request), Some(Ok(())), "{}", pair.story());
    pair.assert_agreement();
    let sent = sent.lock().unwrap().clone();
    let what = format!("host {host} ike {ike} {exchange} {response} {number}: {sent:?}");
    assert_eq!(sent.again, [(exchange, response, number)], "{what}");
    assert!((1..=2).contains(&sent.acks.len()), "{what}");
}

/// Acknowledgements get lost as well, and duplicated, and everything is late.
#[test]
fn any_loss_duplication_and_reordering() {
    for seed in 0..40 {
        let mut setup = large(seed);
        setup.conditions.loss = 50 * (1 + u32::try_from(seed % 4).unwrap());
        setup.conditions.duplication = 100;
        setup.conditions.jitter = Duration::from_millis(seed % 3 * 30);
        let mut pair = build(setup);
        come_up(&mut pair);
        for host in [A, B] {
            for ike in [false, true] {
                let request = if ike { pair.rekey_ike(host) } else { pair.rekey_child(host) };
                pair.run_for(Duration::from_secs(120));
                assert_eq!(pair.hosts[host].done(request), Some(Ok(())), "{}", pair.story());
                pair.assert_agreement();
            }
        }
    }
}

/// Without acknowledgements getting through, the fragments do, by the timers.
#[test]
fn acknowledgements_that_never_arrive_cost_time_and_nothing_else() {
    for (exchange, response) in [(INTERMEDIATE, false), (INTERMEDIATE, true), (AUTH, true)] {
        let mut pair = build(large(1));
        lose(&mut pair, exchange, response, &[3]);
        pair.net.tap(|packet| if is_ack(packet) { Fate::Drop } else { Fate::Pass });
        let took = come_up(&mut pair);
        assert!(took < Duration::from_secs(3), "{took:?}\n{}", pair.story());
    }
}

/// A responder that takes its time over a request that it has whole says so when it is asked, and is asked
/// less and less.
#[test]
fn a_responder_at_work_tells_that_it_has_the_request() {
    let mut pair = build(large(1));
    pair.hosts[B].answer_delay = Some(Duration::from_secs(10));
    let sent = count(&mut pair);
    let took = come_up(&mut pair);
    assert!(took > Duration::from_secs(20) && took < Duration::from_secs(21), "{took:?}");
    let sent = sent.lock().unwrap().clone();
    assert!(sent.again.iter().all(|again| *again == (AUTH, false, 1)), "{sent:?}");
    assert!(!sent.acks.is_empty() && sent.acks.len() <= sent.again.len(), "{sent:?}");
    assert!(sent.again.len() <= 14, "{sent:?}");
}

/// After IKE_INTERMEDIATE the responder has other keys; what acknowledges its response has the old ones.
#[test]
fn a_response_is_acknowledged_under_the_keys_before() {
    let mut pair = build(large(1));
    lose(&mut pair, INTERMEDIATE, true, &[2, 5]);
    let sent = count(&mut pair);
    come_up(&mut pair);
    let sent = sent.lock().unwrap().clone();
    assert_eq!(sent.again, [(INTERMEDIATE, true, 2), (INTERMEDIATE, true, 5)]);
    assert!(pair.b().dropped.is_empty(), "{:?}", pair.b().dropped);
}

/// Lowest first, each once.
#[test]
fn what_is_missing_is_sent_lowest_first() {
    let mut pair = build(large(1));
    lose(&mut pair, INTERMEDIATE, false, &[9, 2, 12, 4]);
    let sent = count(&mut pair);
    come_up(&mut pair);
    let sent = sent.lock().unwrap().clone();
    let numbers: Vec<_> = sent.again.iter().map(|(.., number)| *number).collect();
    assert_eq!(numbers, [2, 4, 9, 12]);
}

/// An acknowledgement is one datagram that every path carries, however much is missing.
#[test]
fn acknowledgements_are_small() {
    let mut setup = large(1);
    setup.both(|side| side.settings.fragment_size = Some(200));
    let mut pair = build(setup);
    let sent = count(&mut pair);
    let even: Vec<_> = (1..=100).map(|number| 2 * number).collect();
    lose(&mut pair, INTERMEDIATE, false, &even);
    come_up(&mut pair);
    let sent = sent.lock().unwrap().clone();
    let most = 200 - 20 - 8 - 4;
    assert!(!sent.acks.is_empty() && sent.acks.iter().all(|len| *len <= most), "{sent:?}");
    let total = usize::from(fragments(&pair, INTERMEDIATE, false));
    assert_eq!(sent.again.len(), total / 2, "{} of {total}", sent.again.len());
}

/// The fragments of a long message are told apart from those of a slow link.
#[test]
fn no_acknowledgement_on_a_slow_or_long_link_without_loss() {
    use ike_tests::link::LinkModel;
    for (rate, rtt) in [(9600, 0), (9600, 600), (64_000, 100), (1_000_000, 10), (0, 600), (0, 1)] {
        let mut setup = large(1);
        // At 9.6 kbit/s each message takes a quarter of a minute.
        setup.both(|side| side.settings.half_open_timeout = Duration::from_secs(200));
        let mut pair = build(setup);
        let model = LinkModel {
            rate: (rate > 0).then_some(rate),
            ..LinkModel::rtt(Duration::from_millis(rtt))
        };
        pair.net.join(A, B, model);
        let sent = count(&mut pair);
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(300));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{rate} {rtt}: {}", pair.story());
        let sent = sent.lock().unwrap().clone();
        assert_eq!((sent.acks.len(), sent.again.len()), (0, 0), "{rate} bit/s, {rtt} ms: {sent:?}");
    }
}
