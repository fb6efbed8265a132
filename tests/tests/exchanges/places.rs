//! CREATE_CHILD_SA and IKE_FOLLOWUP_KE.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Failure};
use ike_tests::ExchangeFate::{After, Broken, Never};
use ike_tests::{A, B};

use super::{PLACES, Place, SECOND, assert_nothing_left, count, fates, outcome, set_delay, setup};

/// Requests come again meanwhile, and are neither answered nor asked about again.
#[test]
fn slow_answers_are_waited_for() {
    for place in PLACES {
        for host in [A, B] {
            let mut pair = place.pair(1);
            set_delay(&mut pair, Some(3 * SECOND));
            let request = place.rekey(&mut pair, host);
            pair.run_for(Duration::from_secs(120));
            assert_eq!(pair.hosts[host].done(request), Some(Ok(())), "{place:?} {}", pair.story());
            let (own, other) = (&pair.hosts[host], &pair.hosts[1 - host]);
            assert_eq!((own.exchanges, other.exchanges), (2 * place.slow, place.slow), "{place:?}");
            let (asked, answered) =
                (count(&pair, place.exchange, false), count(&pair, place.exchange, true));
            assert!(asked > answered, "{place:?}: it was sent again meanwhile");
            pair.assert_agreement();
        }
    }
}

/// A step that breaks off or never ends: either the IKE SA goes on and the next try succeeds, or both ends
/// agree that it is over.
#[test]
fn steps_that_break_off_or_never_end() {
    for (fate, place) in [Broken, Never].into_iter().flat_map(|f| PLACES.map(|place| (f, place))) {
        for (host, steps) in [(A, 2 * place.slow), (B, place.slow)] {
            for step in 0..steps {
                let mut pair = place.pair(2);
                let before = (0..step).map(|_| After(SECOND / 10));
                fates(&mut pair, host, before.chain([fate]));
                let request = place.rekey(&mut pair, A);
                pair.run_for(Duration::from_secs(400));
                let what = format!("{fate:?} {place:?} {host} {step} {}", pair.story());
                assert!(pair.a().done(request).is_some(), "{what}");
                if pair.a().ikes().is_empty() {
                    // The peer had made what this end has no keys for.
                    assert!(host == A, "{what}");
                    match place.of_ike {
                        // But for the successor that the peer has made, which only DPD ends.
                        true => assert!(pair.b().ikes().len() <= 1, "{what}"),
                        false => assert_nothing_left(&pair),
                    }
                    continue;
                }
                pair.assert_agreement();
                let again = place.rekey(&mut pair, A);
                pair.run_for(Duration::from_secs(60));
                assert_eq!(pair.a().done(again), Some(Ok(())), "{what}");
                pair.assert_agreement();
            }
        }
    }
}

/// Nobody asks again: this end does so by itself, before the hard lifetime comes.
#[test]
fn a_rekey_whose_half_breaks_off_is_made_again() {
    for place in PLACES.iter().filter(|place| place.exchange == ExchangeType::CREATE_CHILD_SA) {
        let mut pair = place.pair(5);
        fates(&mut pair, A, [Broken]);
        let request = place.rekey(&mut pair, A);
        pair.run_for(Duration::from_secs(400));
        assert!(pair.a().done(request).is_some(), "{place:?} {}", pair.story());
        let exchanges = count(&pair, place.exchange, true);
        assert!(exchanges > 0, "{place:?} {}", pair.story());
        pair.assert_agreement();
    }
}

/// Who answers a request by TEMPORARY_FAILURE because its step broke off is asked again.
#[test]
fn the_responder_says_that_it_may_be_tried_again() {
    for place in PLACES {
        let mut pair = place.pair(3);
        fates(&mut pair, B, [Broken]);
        let request = place.rekey(&mut pair, A);
        pair.run_for(Duration::from_secs(60));
        assert_eq!(outcome(&pair, request), Ok(()), "{place:?} {}", pair.story());
        assert_eq!(pair.b().exchanges, 1 + place.slow);
        pair.assert_agreement();
    }
}

/// The IKE SA goes at any moment of it.
#[test]
fn an_sa_that_is_gone_by_then() {
    for place in PLACES {
        for at in 0..8 {
            for ender in [A, B] {
                let mut pair = place.pair(4);
                set_delay(&mut pair, Some(SECOND));
                let request = place.rekey(&mut pair, A);
                pair.run_for(SECOND / 2 * at + SECOND / 4);
                for ike in pair.hosts[ender].ikes() {
                    pair.command(ender, Command::TerminateIke(ike.id));
                }
                pair.run_for(Duration::from_secs(200));
                assert!(pair.a().done(request).is_some(), "{place:?} {at} {ender}");
                if pair.a().ikes().is_empty() {
                    assert_nothing_left(&pair);
                } else {
                    pair.assert_agreement();
                }
            }
        }
    }
}

/// Both ends at once, at all speeds: they agree as ever.
#[test]
fn both_ends_at_once() {
    for place in PLACES {
        for seed in 0..12 {
            let mut pair = place.pair(100 + seed);
            set_delay(&mut pair, Some(SECOND));
            for host in &mut pair.hosts {
                host.exchanges_vary = true;
            }
            place.rekey(&mut pair, A);
            pair.run_for(SECOND / 10 * u32::try_from(seed).unwrap());
            place.rekey(&mut pair, B);
            pair.run_for(Duration::from_secs(200));
            assert_eq!(pair.a().ikes().len(), 1, "{place:?} {}", pair.story());
            pair.assert_agreement();
        }
    }
}

/// While the peer's request waits, this end's own go on; and the other way round.
#[test]
fn other_exchanges_go_on() {
    for (rekeys, other) in [(A, B), (B, A)] {
        let mut setup = setup(5, "x25519", "-modp2048");
        setup.both(|side| side.net().esp_proposals.truncate(1));
        for (side, local, remote) in [(&mut setup.a, 3, 4), (&mut setup.b, 4, 3)] {
            side.add_child("more", local, remote);
        }
        let mut pair = setup.build();
        pair.establish();
        set_delay(&mut pair, Some(10 * SECOND));
        let slow = pair.rekey_child(rekeys);
        // Its half is made by now, and the responder is at work.
        pair.run_for(15 * SECOND);
        let quick = pair.initiate(other, Some("more"));
        pair.run_for(4 * SECOND);
        assert_eq!(pair.hosts[other].done(quick), Some(Ok(())), "{}", pair.story());
        assert_eq!(pair.hosts[rekeys].done(slow), None);
        pair.run_for(60 * SECOND);
        assert_eq!(pair.hosts[rekeys].done(slow), Some(Ok(())), "{}", pair.story());
        pair.assert_agreement();
    }
}

/// A task that waits for its half does not hold up the end of the SA.
#[test]
fn a_delete_does_not_wait_for_a_half() {
    for place in PLACES {
        let mut pair = place.pair(6);
        set_delay(&mut pair, None);
        let request = place.rekey(&mut pair, A);
        let waits_at_once = place.slow > 0 && place.exchange.0 == 36 && pair.a().exchanges == 1;
        let ike = pair.ike_id(A);
        pair.command(A, Command::TerminateIke(ike));
        pair.run_for(SECOND);
        if waits_at_once {
            assert!(matches!(outcome(&pair, request), Err(Failure::Terminated)), "{place:?}");
            assert_nothing_left(&pair);
        }
    }
}

/// Loss, reordering and duplication on top.
#[test]
fn on_a_bad_network() {
    for (seed, place) in (0..).zip(PLACES) {
        let Place { ike, esp, .. } = place;
        let mut setup = setup(200 + seed, ike, esp);
        setup.conditions.loss = 150;
        setup.conditions.duplication = 100;
        setup.conditions.jitter = SECOND / 10;
        setup.both(|side| side.settings.retransmission.tries = Some(12));
        let mut pair = setup.build();
        set_delay(&mut pair, Some(2 * SECOND));
        for host in &mut pair.hosts {
            host.exchanges_vary = true;
        }
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(300));
        assert_eq!(outcome(&pair, request), Ok(()), "{}", pair.story());
        for host in [A, B] {
            let request = place.rekey(&mut pair, host);
            pair.run_for(Duration::from_secs(300));
            assert_eq!(pair.hosts[host].done(request), Some(Ok(())), "{}", pair.story());
            pair.assert_agreement();
        }
    }
}

/// The half is ready while the window is not free: it is for when it is, and nobody is asked again.
#[test]
fn a_half_that_is_ready_early_is_kept() {
    for place in PLACES.iter().filter(|place| place.exchange == ExchangeType::CREATE_CHILD_SA) {
        let mut setup = setup(6, place.ike, place.esp);
        setup.a.add_child("more", 3, 4);
        setup.b.add_child("more", 4, 3);
        let mut pair = setup.build();
        pair.establish();
        let (child, ike) = (pair.child_id(A), pair.ike_id(A));
        let more = pair.initiate(A, Some("more"));
        pair.run_for(5 * SECOND);
        assert_eq!(pair.a().done(more), Some(Ok(())), "{}", pair.story());
        let other = pair.a().children_up().into_iter().find(|other| other.id != child).unwrap();
        let before = pair.a().exchanges;
        set_delay(&mut pair, Some(SECOND));
        let command =
            if place.of_ike { Command::RekeyIke(ike) } else { Command::RekeyChild(child) };
        let request = pair.command(A, command);
        pair.run_for(SECOND / 2);
        // Its answers are lost for a while.
        let until = pair.now() + 2 * SECOND;
        pair.net.tap(move |packet| {
            let lost = packet.from == Some(B) && packet.sent < until;
            if lost { ike_tests::network::Fate::Drop } else { ike_tests::network::Fate::Pass }
        });
        pair.command(A, Command::TerminateChild(other.id));
        pair.run_for(60 * SECOND);
        assert_eq!(pair.a().done(request), Some(Ok(())), "{place:?} {}", pair.story());
        assert_eq!(pair.a().exchanges - before, 2 * place.slow, "{place:?} {}", pair.story());
        pair.assert_agreement();
    }
}

/// What takes the initiator longer than a stranger would be waited for costs no IKE SA.
#[test]
fn a_secret_that_takes_long() {
    for place in PLACES {
        for step in (0..2 * place.slow).filter(|step| step % 2 == 1) {
            let mut pair = place.pair(7);
            let before = (0..step).map(|_| After(SECOND / 10));
            fates(&mut pair, A, before.chain([After(Duration::from_secs(45))]));
            let request = place.rekey(&mut pair, A);
            pair.run_for(Duration::from_secs(120));
            assert_eq!(outcome(&pair, request), Ok(()), "{place:?} {step} {}", pair.story());
            pair.assert_agreement();
        }
    }
}
