//! Initial IKE SAs: every combination of what the two ends want, know and can.

use ike_proto::config::PpkExchange;
use ike_tests::{A, B, Pair, Setup};

use super::{LONG, assert_nothing, attempt, audits, give, id, keyed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    Nothing,
    Optional,
    Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Same,
    UnknownId,
    WrongSecret,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    WithPpk,
    Without,
    Refused,
}

/// One end.
type End = (Wants, PpkExchange);

const WANTS: [Wants; 3] = [Wants::Nothing, Wants::Optional, Wants::Required];
const EXCHANGES: [PpkExchange; 3] =
    [PpkExchange::Any, PpkExchange::Auth, PpkExchange::Intermediate];
const KEYS: [Keys; 3] = [Keys::Same, Keys::UnknownId, Keys::WrongSecret];

/// What the two RFCs say, told apart from the engine: RFC 8784 table 1, RFC 9867 table 1.
fn expected(i: End, r: End, keys: Keys) -> Outcome {
    let required = i.0 == Wants::Required || r.0 == Wants::Required;
    let without = if required { Outcome::Refused } else { Outcome::Without };
    if i.0 == Wants::Nothing || r.0 == Wants::Nothing {
        return without;
    }
    let can =
        |exchange| [i.1, r.1].iter().all(|ours| *ours == PpkExchange::Any || *ours == exchange);
    let intermediate = can(PpkExchange::Intermediate);
    match keys {
        Keys::Same if intermediate || can(PpkExchange::Auth) => Outcome::WithPpk,
        // In IKE_AUTH there is no confirmation: AUTH is wrong.
        Keys::WrongSecret if !intermediate && can(PpkExchange::Auth) => Outcome::Refused,
        _ => without,
    }
}

fn pair_of(seed: u64, ends: [End; 2], keys: Keys) -> Pair {
    let mut setup = Setup::new(seed);
    let (name, secret) = match keys {
        Keys::Same => ("x", "one secret"),
        Keys::UnknownId => ("y", "one secret"),
        Keys::WrongSecret => ("x", "another secret"),
    };
    let sides = [(&mut setup.a, "x", "one secret"), (&mut setup.b, name, secret)];
    for ((side, name, secret), (wants, exchange)) in sides.into_iter().zip(ends) {
        if wants != Wants::Nothing {
            give(side, name, secret, wants == Wants::Required, exchange);
        }
    }
    setup.build()
}

fn check(seed: u64, initiator: usize, ends: [End; 2], keys: Keys) -> Outcome {
    let mut pair = pair_of(seed, ends, keys);
    let wanted = expected(ends[initiator], ends[Pair::other(initiator)], keys);
    let result = attempt(&mut pair, initiator);
    let what = format!("{initiator} initiates, {ends:?}, {keys:?}: {result:?}");
    if wanted == Outcome::Refused {
        assert!(result.is_err(), "{what}\n{}", pair.story());
        assert_nothing(&pair);
        return wanted;
    }
    assert_eq!(result, Ok(()), "{what}\n{}", pair.story());
    pair.assert_agreement();
    let used = (wanted == Outcome::WithPpk).then(|| id("x"));
    for (host, (wants, _)) in ends.into_iter().enumerate() {
        assert_eq!(pair.hosts[host].ike().ppk, used, "{what}\n{}", pair.story());
        let audited = wants != Wants::Nothing && used.is_none();
        assert_eq!(audits(&pair, host), usize::from(audited), "{what}");
    }
    wanted
}

#[test]
fn every_combination_of_wishes_keys_and_exchanges() {
    let mut seen = [0; 3];
    let mut seed = 0;
    for initiator in [A, B] {
        for a in WANTS {
            for b in WANTS {
                for ea in EXCHANGES {
                    for eb in EXCHANGES {
                        for keys in KEYS {
                            seed += 1;
                            let outcome = check(seed, initiator, [(a, ea), (b, eb)], keys);
                            seen[outcome as usize] += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen.iter().sum::<usize>(), 486);
    assert!(seen.iter().all(|count| *count > 40), "{seen:?}");
}

/// The keys of both ends depend on the PPK: with all else the same, another one makes others.
#[test]
fn another_ppk_makes_other_keys() {
    for exchange in [PpkExchange::Auth, PpkExchange::Intermediate] {
        let keys = |secret: &str| {
            let mut setup = Setup::new(7);
            setup.both(|side| give(side, "x", secret, true, exchange));
            let mut pair = setup.build();
            pair.establish();
            pair.a().plane.outbound().map(|(_, key)| key).collect::<Vec<_>>()
        };
        assert_eq!(keys("one"), keys("one"));
        assert_ne!(keys("one"), keys("two"), "{exchange:?}");
    }
}

#[test]
fn under_loss_reordering_and_duplication() {
    for seed in 0..30 {
        for exchange in EXCHANGES {
            let mut setup = keyed(seed, true, exchange);
            setup.conditions.loss = 200;
            setup.conditions.duplication = 150;
            setup.conditions.jitter = std::time::Duration::from_millis(80);
            setup.both(|side| {
                side.settings.retransmission.tries = Some(12);
                side.settings.retransmission.limit = std::time::Duration::from_secs(10);
            });
            let mut pair = setup.build();
            let initiator = usize::try_from(seed % 2).unwrap();
            let request = pair.initiate(initiator, Some("net"));
            pair.run_for(LONG);
            let done = pair.hosts[initiator].done(request);
            assert_eq!(done, Some(Ok(())), "{seed} {exchange:?}\n{}", pair.story());
            pair.assert_agreement();
            assert_eq!(pair.b().ike().ppk, Some(id("x")));
        }
    }
}
