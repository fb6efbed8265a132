//! An IKE SA that is rekeyed has another token.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ike_tests::network::Fate;

use super::*;

/// Rekeys by each end, then a crash of each: the new SA's token is known, whoever made it.
#[test]
fn a_rekeyed_sa_has_tokens_of_its_own() {
    for rekeyed in [A, B] {
        for (crashed, other) in [(B, A), (A, B)] {
            let mut pair = established(setup(11));
            let request = pair.rekey_ike(rekeyed);
            pair.run_for(SECOND);
            assert_eq!(pair.hosts[rekeyed].done(request), Some(Ok(())));
            pair.assert_agreement();
            crash(&mut pair, crashed);
            let took = find(&mut pair, other);
            assert_eq!(took, Duration::from_millis(20), "{rekeyed}, {crashed}");
            pair.run_for(SECOND);
            assert_eq!(found(&pair, other), 1, "{}", pair.story());
            pair.assert_agreement();
        }
    }
}

/// The rekey's initiator needs an exchange of its own for that, at once, and only if it makes tokens.
#[test]
fn the_initiator_of_a_rekey_tells_its_token() {
    for makes in [true, false] {
        let mut setup = setup(12);
        setup.both(|side| side.connection.dpd_delay = Duration::ZERO);
        if !makes {
            setup.a.settings.qcd = QcdConfig::default();
        }
        let mut pair = established(setup);
        pair.rekey_ike(A);
        pair.run_for(SECOND);
        let new = pair.a().ike();
        let sent = pair.net.trace.iter().filter(|p| p.from == Some(A)).filter(|p| {
            p.is(ExchangeType::INFORMATIONAL, false) && p.header().unwrap().spi_i == new.spi_i
        });
        assert_eq!(sent.count(), usize::from(makes), "{}", pair.story());
    }
}

/// With additional key exchanges the token comes with the first response of them all.
#[test]
fn after_a_rekey_with_additional_key_exchanges() {
    let mut setup = setup(13);
    setup.both(|side| {
        side.crypto = cheap::post_quantum();
        side.ike_proposals(&["aes256gcm16-prfsha256-x25519-ke1_mlkem512"]);
    });
    let mut pair = established(setup);
    pair.rekey_ike(A);
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().ike_rekeys().len(), 1, "{}", pair.story());
    pair.restart(B, cheap::post_quantum());
    pair.hosts[B].plane = Plane::new();
    assert_eq!(find(&mut pair, A), Duration::from_millis(20));
}

/// Both rekey at once: of three SAs one stays, and that one's tokens are the right ones.
#[test]
fn after_rekeys_that_crossed() {
    for seed in 0..8 {
        for (crashed, other) in [(B, A), (A, B)] {
            let mut setup = setup(14);
            setup.seed = 14 + seed;
            let mut pair = established(setup);
            pair.rekey_ike(A);
            pair.rekey_ike(B);
            pair.run_for(5 * SECOND);
            pair.assert_agreement();
            crash(&mut pair, crashed);
            find(&mut pair, other);
            pair.run_for(SECOND);
            assert_eq!(pair.hosts[other].children_up().len(), 1, "{}", pair.story());
        }
    }
}

/// Both rekey at once, and the peer is gone before it answers: the SA of its own rekey, whose token it could not
/// tell, is lost with the old one.
#[test]
fn while_rekeys_cross() {
    for (crashed, other) in [(B, A), (A, B)] {
        let mut pair = established(setup(15));
        let child = pair.hosts[other].children_up().len();
        let lost = Arc::new(AtomicBool::new(true));
        let losing = Arc::clone(&lost);
        pair.net.tap(move |packet| {
            let answers = packet.is(ExchangeType::CREATE_CHILD_SA, true);
            if answers && losing.load(Relaxed) { Fate::Drop } else { Fate::Pass }
        });
        let request = pair.rekey_ike(other);
        pair.rekey_ike(crashed);
        pair.run_for(Duration::from_millis(15));
        assert_eq!((pair.hosts[other].ikes().len(), child), (2, 1), "{}", pair.story());
        crash(&mut pair, crashed);
        lost.store(false, Relaxed);
        let begun = pair.now();
        assert!(pair.run_until(MINUTE, |w| !w.hosts[other].child_downs().is_empty()));
        assert!(pair.now() - begun < 5 * SECOND, "the request made again: {}", pair.story());
        assert_eq!(pair.hosts[other].child_downs()[0].1, Failure::LostByPeer);
        assert_eq!(pair.hosts[other].done(request), Some(Err(Failure::LostByPeer)));
        // The last start was a moment ago, so the next one waits for the first back-off: 2.5 s at most.
        pair.run_for(3 * SECOND);
        // One IKE SA was known, and one there is now.
        let there = (found(&pair, other), pair.hosts[other].ikes().len());
        assert_eq!(there, (1, 1), "{}", pair.story());
        assert_eq!(pair.hosts[other].children_up().len(), 1, "begun anew: {}", pair.story());
        pair.assert_agreement();
    }
}
