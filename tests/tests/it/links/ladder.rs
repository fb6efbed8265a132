//! When requests go again and when they are given up.

use std::time::Duration;

use ike_proto::config::Retransmission;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::link::{LinkModel, Loss};
use ike_tests::network::Fate;
use ike_tests::{A, Pair};

use super::scene::{MS, Suite, establish, pair, rules};

/// When requests of `exchange` were sent, from the first on, and when the initiator gave up; no
/// response to them arrives.
fn unanswered(rules_: Retransmission, exchange: ExchangeType) -> (Vec<Duration>, Duration) {
    let mut pair = pair(5, Suite::Psk, LinkModel::rtt(40 * MS), |setup| rules(setup, rules_));
    pair.net.tap(move |packet| if packet.is(exchange, true) { Fate::Drop } else { Fate::Pass });
    let request = pair.initiate(A, Some("net"));
    assert!(pair.run_until(Duration::from_secs(3600), |w| w.hosts[A].done(request).is_some()));
    assert!(pair.hosts[A].done(request).is_some_and(|result| result.is_err()));
    let sent = sent(&pair, exchange);
    let first = sent[0];
    (sent.iter().map(|at| *at - first).collect(), pair.now() - first)
}

fn sent(pair: &Pair, exchange: ExchangeType) -> Vec<Duration> {
    let requests = pair.net.trace.iter().filter(|packet| packet.is(exchange, false));
    requests.map(|packet| packet.sent).collect()
}

/// Seconds in which a failed IKE_AUTH is doubted: IKE_SA_INIT is sent again, for its response may have
/// been forged.
fn doubts(exchange: ExchangeType) -> u64 {
    if exchange == ExchangeType::IKE_AUTH { 2 } else { 0 }
}

fn steady(rules: Retransmission) -> Retransmission {
    Retransmission { jitter: 0, ..rules }
}

#[test]
fn strongswans_ladder_is_exact() {
    for exchange in [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_AUTH] {
        let (sent, over) = unanswered(Retransmission::strongswan(), exchange);
        let sent: Vec<_> = sent.iter().map(Duration::as_millis).collect();
        assert_eq!(sent, [0, 4000, 11_200, 24_160, 47_488, 89_478]);
        assert_eq!(over.as_secs(), 165 + doubts(exchange));
    }
}

#[test]
fn the_first_timer_is_half_a_second_and_the_end_is_strongswans() {
    let (sent, over) = unanswered(steady(Retransmission::adaptive()), ExchangeType::IKE_SA_INIT);
    let ms: Vec<_> = sent.iter().map(Duration::as_millis).collect();
    assert_eq!(ms[..5], [0, 500, 1400, 3020, 5936]);
    assert!(sent.len() > 12, "a dozen tries (RFC 7296 §2.4): {ms:?}");
    assert!(sent.windows(2).all(|two| two[1] - two[0] <= Duration::from_secs(15)));
    assert_eq!(over.as_secs(), 165);
}

#[test]
fn later_timers_follow_the_round_trip_time() {
    let (sent, over) = unanswered(steady(Retransmission::adaptive()), ExchangeType::IKE_AUTH);
    let first = sent[1];
    // 40 ms, four times their half, and what the octets may take.
    assert!(first >= 120 * MS && first < 400 * MS, "{first:?}");
    assert!(sent.len() > 12);
    assert_eq!(over.as_secs(), 165 + doubts(ExchangeType::IKE_AUTH));
}

#[test]
fn tries_are_counted_where_they_are_set() {
    let rules = Retransmission { tries: Some(3), ..steady(Retransmission::adaptive()) };
    let (sent, over) = unanswered(rules, ExchangeType::IKE_SA_INIT);
    assert_eq!(sent.len(), 4);
    assert_eq!(over.as_millis(), 5936);
}

#[test]
fn a_limit_caps_every_wait() {
    let rules =
        Retransmission { limit: Duration::from_secs(2), ..steady(Retransmission::adaptive()) };
    let (sent, over) = unanswered(rules, ExchangeType::IKE_SA_INIT);
    assert!(sent.windows(2).all(|two| two[1] - two[0] <= Duration::from_secs(2)));
    assert_eq!(over.as_secs(), 165);
}

/// Jitter never makes a timer shorter here: that would send without need.
#[test]
fn jitter_is_added() {
    let rules = Retransmission { jitter: 100, ..Retransmission::adaptive() };
    let (sent, over) = unanswered(rules, ExchangeType::IKE_SA_INIT);
    let mut least = 500.0;
    for two in sent.windows(2).take(5) {
        let wait = (two[1] - two[0]).as_secs_f64() * 1000.0;
        assert!(wait >= least && wait <= 2.0 * least, "{wait} {least}");
        least *= 1.8;
    }
    assert_eq!(over.as_secs(), 165);
}

/// RFC 6298 §5.7 and Karn: an IKE_SA_INIT that was sent twice tells nothing, and its timer stays.
#[test]
fn a_backed_off_timer_carries_over() {
    let mut pair = pair(6, Suite::Psk, LinkModel::rtt(40 * MS), |setup| {
        rules(setup, steady(Retransmission::adaptive()));
    });
    pair.net.lose(1, |packet| packet.is(ExchangeType::IKE_SA_INIT, false));
    pair.net.lose(1, |packet| packet.is(ExchangeType::IKE_AUTH, false));
    assert!(establish(&mut pair).is_some());
    let auth = sent(&pair, ExchangeType::IKE_AUTH);
    assert_eq!(auth.len(), 2);
    let waited = auth[1] - auth[0];
    assert!(waited >= 900 * MS && waited < 3000 * MS, "{waited:?}");
    // The next exchange is clean, and the timer of the one after it short.
    pair.rekey_child(A);
    pair.run_for(MS * 5000);
    let before = sent(&pair, ExchangeType::CREATE_CHILD_SA).len();
    pair.net.lose(1, |packet| packet.is(ExchangeType::CREATE_CHILD_SA, false));
    pair.rekey_child(A);
    pair.run_for(MS * 5000);
    let rekeys = sent(&pair, ExchangeType::CREATE_CHILD_SA);
    assert_eq!(rekeys.len(), before + 2);
    assert!(rekeys[before + 1] - rekeys[before] < 400 * MS);
}

/// What an IKE SA has learnt its successor knows.
#[test]
fn a_rekeyed_ike_sa_inherits_the_round_trip_time() {
    let mut pair = pair(7, Suite::Psk, LinkModel::rtt(40 * MS), |setup| {
        rules(setup, steady(Retransmission::adaptive()));
    });
    assert!(establish(&mut pair).is_some());
    pair.rekey_ike(A);
    pair.run_for(MS * 5000);
    let before = sent(&pair, ExchangeType::CREATE_CHILD_SA).len();
    pair.net.lose(1, |packet| packet.is(ExchangeType::CREATE_CHILD_SA, false));
    pair.rekey_child(A);
    pair.run_for(MS * 5000);
    let rekeys = sent(&pair, ExchangeType::CREATE_CHILD_SA);
    assert!(rekeys[before + 1] - rekeys[before] < 400 * MS, "{}", pair.story());
}

/// A third of everything is lost, and the handshake ends well all the same.
#[test]
fn a_third_of_all_lost() {
    for seed in 0..20 {
        let model = LinkModel { loss: Loss::Random(0.33), ..LinkModel::rtt(20 * MS) };
        let mut pair = pair(seed, Suite::Psk, model, |setup| {
            setup.b.settings.half_open_timeout = MS * 200_000;
        });
        assert!(establish(&mut pair).is_some(), "{seed}: {}", pair.story());
    }
}
