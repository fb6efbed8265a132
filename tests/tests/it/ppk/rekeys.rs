//! PPKs in CREATE_CHILD_SA (RFC 9867 §3.2): rekeys of either SA by either end, with and without key
//! exchanges of their own.

use std::time::Duration;

use ike_proto::config::{PpkExchange, PpkMatch, PpkRekey};
use ike_proto::wire::registry::NotifyType;
use ike_proto::{Failure, PolicyReason};
use ike_tests::{A, B, Pair, Setup};

use super::{give, id, key, keyed};

const REKEYS: [PpkRekey; 3] = [PpkRekey::No, PpkRekey::Yes, PpkRekey::Require];
const METHODS: [(&str, &str); 3] = [
    ("x25519", ""),
    ("x25519", "-ecp256"),
    ("x25519-ke1_ecp256", "-x25519-ke1_ecp256-ke2_modp2048"),
];

fn with_methods(setup: &mut Setup, (ike, esp): (&str, &str)) {
    setup.both(|side| {
        side.ike_proposals(&[&format!("aes256gcm16-prfsha384-{ike}")]);
        side.esp_proposals(&[&format!("aes256gcm16{esp}")]);
    });
}

/// What becomes of a rekey by `end`, told apart from the engine.
fn expected(ours: PpkRekey, theirs: PpkRekey, same_key: bool) -> Result<bool, Failure> {
    let taken = same_key && ours != PpkRekey::No && theirs != PpkRekey::No;
    match (taken, ours, theirs) {
        (true, ..) => Ok(true),
        (false, _, PpkRekey::Require) => Err(Failure::Peer(NotifyType::NO_PROPOSAL_CHOSEN)),
        (false, PpkRekey::Require, _) => Err(Failure::Policy(PolicyReason::NoPpkInRekey)),
        _ => Ok(false),
    }
}

fn rekey(pair: &mut Pair, end: usize, ike: bool) -> Result<(), Failure> {
    let request = if ike { pair.rekey_ike(end) } else { pair.rekey_child(end) };
    // Short of the time after which a refused rekey is tried again.
    pair.run_until(Duration::from_secs(4), |w| w.hosts[end].done(request).is_some());
    pair.settle();
    pair.hosts[end].done(request).unwrap_or_else(|| panic!("no end\n{}", pair.story()))
}

fn one(
    seed: u64,
    modes: [PpkRekey; 2],
    same_key: bool,
    methods: (&str, &str),
    end: usize,
    ike: bool,
) {
    let mut setup = keyed(seed, false, PpkExchange::Auth);
    with_methods(&mut setup, methods);
    setup.a.connection.ppk.rekey = modes[A];
    setup.b.connection.ppk.rekey = modes[B];
    let mut pair = setup.build();
    pair.establish();
    if !same_key {
        // The keys the SA was made with are gone from one end, others came.
        let mut side = ike_tests::setup::side(2, 1);
        side.connection.ppk.rekey = modes[B];
        with_side_methods(&mut side, methods);
        give(&mut side, "x", "not the same any more", false, PpkExchange::Auth);
        pair.reload(B, side.config());
    }
    let before = pair.hosts[end].child().inbound.spi;
    let result = rekey(&mut pair, end, ike);
    let wanted = expected(modes[end], modes[Pair::other(end)], same_key);
    let what = format!("{modes:?} same {same_key} {methods:?} by {end}, IKE {ike}: {result:?}");
    assert_eq!(result, wanted.clone().map(|_| ()), "{what}\n{}", pair.story());
    pair.run_for(Duration::from_secs(2));
    match wanted {
        Ok(taken) => {
            pair.run_for(Duration::from_secs(30));
            pair.assert_agreement();
            for host in &pair.hosts {
                assert_eq!(host.ike().ppk, Some(id("x")), "handed on by SK_d: {what}");
                let own = (taken && !ike).then(|| id("x"));
                assert_eq!(host.child().ppk, own, "{what}\n{}", pair.story());
            }
        }
        Err(_) => {
            // What was there before is there still, or nothing is.
            for host in &pair.hosts {
                let spis: Vec<_> =
                    host.children_up().iter().map(|child| child.inbound.spi).collect();
                let kept = host.children_up().len() == 1;
                assert!(kept || host.ikes().is_empty(), "{spis:x?}: {what}\n{}", pair.story());
            }
            let now: Vec<_> =
                pair.hosts[end].children_up().iter().map(|child| child.inbound.spi).collect();
            assert!(now.is_empty() || now == [before], "{what}\n{}", pair.story());
            assert!(!ike || pair.hosts[end].ike_rekeys().is_empty(), "{what}\n{}", pair.story());
        }
    }
}

fn with_side_methods(side: &mut ike_tests::setup::Side, (ike, esp): (&str, &str)) {
    side.ike_proposals(&[&format!("aes256gcm16-prfsha384-{ike}")]);
    side.esp_proposals(&[&format!("aes256gcm16{esp}")]);
}

#[test]
fn every_combination_of_policies_keys_and_exchanges() {
    let mut seed = 1000;
    for a in REKEYS {
        for b in REKEYS {
            for methods in METHODS {
                for same_key in [true, false] {
                    for end in [A, B] {
                        for ike in [true, false] {
                            seed += 1;
                            one(seed, [a, b], same_key, methods, end, ike);
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seed, 1216);
}

/// A fresh key, and an IKE SA that came about without any: the rekey brings one in (RFC 9867 §3.2).
#[test]
fn a_fresh_ppk_comes_in_with_a_rekey() {
    let mut setup = keyed(1, false, PpkExchange::Auth);
    setup.both(|side| {
        side.settings.ppks.clear();
        side.connection.ppk.ids = vec![PpkMatch::Suffix(id(".qkd"))];
        side.connection.ppk.rekey = PpkRekey::Yes;
    });
    let configs = [&setup.a, &setup.b].map(|side| {
        let mut config = side.config();
        config.ppks = vec![key(&["old.qkd", "2030-06-01.qkd"], "fresh from the link")];
        config
    });
    let mut pair = setup.build();
    pair.establish();
    assert_eq!(pair.a().ike().ppk, None);
    for (host, config) in configs.into_iter().enumerate() {
        pair.reload(host, config);
    }
    assert_eq!(rekey(&mut pair, B, true), Ok(()));
    pair.run_for(Duration::from_secs(30));
    pair.assert_agreement();
    for host in &pair.hosts {
        assert_eq!(host.ike().ppk, Some(id("old.qkd")));
    }
    assert_eq!(rekey(&mut pair, A, false), Ok(()));
    pair.run_for(Duration::from_secs(30));
    pair.assert_agreement();
    assert_eq!(pair.b().child().ppk, Some(id("old.qkd")));
}

/// The keys are taken out of the configuration: what needs one is put off, and nothing ends.
#[test]
fn without_a_key_nothing_is_asked_for() {
    for ike in [false, true] {
        let mut setup = keyed(3, true, PpkExchange::Any);
        setup.both(|side| side.connection.ppk.rekey = PpkRekey::Require);
        let mut config = setup.a.config();
        config.ppks.clear();
        let mut pair = setup.build();
        pair.establish();
        pair.reload(A, config);
        let sent = pair.a().sent;
        let result = rekey(&mut pair, A, ike);
        assert_eq!(result, Err(Failure::Policy(PolicyReason::NoPpkKey)));
        assert_eq!(pair.a().sent, sent);
        pair.run_for(Duration::from_secs(60));
        pair.assert_agreement();
        assert_eq!(pair.a().children_up().len(), 1);
    }
}

#[test]
fn rekeys_with_a_ppk_under_loss_and_both_ends_at_once() {
    for seed in 2000..2024 {
        let mut setup = keyed(seed, true, PpkExchange::Any);
        with_methods(&mut setup, METHODS[usize::try_from(seed % 3).unwrap()]);
        setup.both(|side| {
            side.connection.ppk.rekey = PpkRekey::Require;
            side.settings.retransmission.tries = Some(14);
            side.settings.retransmission.limit = Duration::from_secs(10);
        });
        setup.conditions.loss = 150;
        setup.conditions.duplication = 100;
        setup.conditions.jitter = Duration::from_millis(60);
        let mut pair = setup.build();
        pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(300));
        for ike in [true, false] {
            for end in [A, B] {
                if ike {
                    pair.rekey_ike(end)
                } else {
                    pair.rekey_child(end)
                };
            }
            pair.run_for(Duration::from_secs(400));
            pair.assert_agreement();
        }
        for host in &pair.hosts {
            assert_eq!(host.ike().ppk, Some(id("x")));
            assert_eq!(host.child().ppk, Some(id("x")), "{}", pair.story());
        }
    }
}
