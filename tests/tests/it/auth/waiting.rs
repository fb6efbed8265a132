//! While a question is open: what arrives meanwhile, what never comes, and what comes too late.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Answer, Command, Failure, IkeState, Input, Now, Ticket};
use ike_tests::{A, B, Pair, Setup};

use super::{ec, refused, signing};

fn slow(seed: u64, delay: Duration) -> Setup {
    let mut setup = signing(seed, ec(), ec());
    setup.both(|side| side.settings.half_open_timeout = Duration::from_secs(30));
    let _ = delay;
    setup
}

fn with_delays(setup: Setup, a: Option<Duration>, b: Option<Duration>) -> Pair {
    let mut pair = setup.build();
    pair.hosts[A].answer_delay = a;
    pair.hosts[B].answer_delay = b;
    pair
}

/// Retransmissions meanwhile are neither answered nor asked about again.
#[test]
fn slow_answers_are_waited_for() {
    let delay = Duration::from_secs(9);
    let mut pair = with_delays(slow(1, delay), Some(delay), Some(delay));
    pair.establish();
    assert_eq!(pair.b().asked, ["judge", "sign"]);
    assert_eq!(pair.a().asked, ["sign", "judge"]);
    let auths = pair.net.trace.iter().filter(|packet| packet.is(ExchangeType::IKE_AUTH, false));
    assert!(auths.count() > 1, "IKE_AUTH was sent again meanwhile");
    let answers = pair.net.trace.iter().filter(|packet| packet.is(ExchangeType::IKE_AUTH, true));
    assert_eq!(answers.count(), 1);
}

/// An answer that never comes costs the attempt, within the time of a half-open SA.
#[test]
fn an_answer_that_never_comes_ends_the_attempt() {
    for (a, b) in [(None, Some(Duration::ZERO)), (Some(Duration::ZERO), None)] {
        let mut pair = with_delays(slow(2, Duration::ZERO), a, b);
        let (at_a, at_b) = refused(&mut pair);
        match a {
            None => assert!(matches!(at_a, Failure::Credentials(_)), "{at_a}"),
            Some(_) => {
                assert_eq!(at_a, Failure::Timeout);
                assert!(matches!(at_b[0], Failure::Credentials(_)), "{}", at_b[0]);
            }
        }
        assert_eq!(pair.b().endpoint.half_open(), 0);
    }
}

/// An SA that waits for a verdict counts as half-open: it is limited as any other.
#[test]
fn waiting_for_a_verdict_is_half_open() {
    let mut pair = with_delays(slow(3, Duration::ZERO), Some(Duration::ZERO), None);
    pair.initiate(A, Some("net"));
    pair.settle();
    assert_eq!(pair.b().asked, ["judge"]);
    assert_eq!(pair.b().endpoint.half_open(), 1);
    assert!(pair.b().ikes_in(IkeState::Established).is_empty());
    pair.run_for(Duration::from_secs(31));
    assert_eq!(pair.b().endpoint.half_open(), 0);
}

/// The operator gives up while the signer thinks: its answer is nobody's.
#[test]
fn an_answer_to_a_dead_ticket_is_ignored() {
    let delay = Some(Duration::from_secs(3));
    let mut pair = with_delays(slow(4, Duration::ZERO), delay, delay);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().asked, ["sign"]);
    let ike = pair.a().ikes()[0].id;
    pair.command(A, Command::TerminateIke(ike));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.a().done(request), Some(Err(Failure::Terminated)), "{}", pair.story());
    assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty());
}

/// The signer answers a question of an attempt that has ended, while the next attempt waits for its own signature. The
/// next attempt goes on waiting, and comes up by its own answer.
///
/// Fault: in `Endpoint::on_answered`, hand an answer whose ticket nobody has to any SA that waits.
#[test]
fn a_late_signature_for_an_ended_attempt_leaves_the_next_attempt_waiting() {
    let delay = Some(Duration::from_secs(3));
    let mut pair = with_delays(slow(10, Duration::ZERO), delay, Some(Duration::ZERO));
    let first = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(1));
    let ike = pair.a().ikes()[0].id;
    pair.command(A, Command::ForgetIke(ike));
    pair.run_for(Duration::from_millis(500));
    assert_eq!(pair.a().done(first), Some(Err(Failure::Terminated)), "{}", pair.story());
    let second = pair.initiate(A, Some("net"));
    // The first answer comes after 3 s, the second one after 4.5 s.
    pair.run_for(Duration::from_secs(2));
    assert_eq!((pair.a().asked.len(), pair.a().signed.len()), (2, 1), "{}", pair.story());
    assert_eq!(pair.a().done(second), None, "{}", pair.story());
    assert!(pair.run_until(Duration::from_secs(20), |w| w.hosts[A].done(second).is_some()));
    assert_eq!(pair.a().done(second), Some(Ok(())), "{}", pair.story());
    // The half-open SA of the first attempt ends at the peer.
    pair.run_for(Duration::from_secs(60));
    pair.assert_agreement();
}

/// Tickets that were never given out, given out for something else, or used already.
#[test]
fn invented_tickets_change_nothing() {
    let mut pair = signing(5, ec(), ec()).build();
    pair.establish();
    let before = (pair.a().ike(), pair.b().ike());
    for host in [A, B] {
        for ticket in 0..200 {
            let now = Now { mono: pair.instant(), wall: pair.wall() };
            let answer = Answer::Failed("invented".to_owned());
            let input = Input::Answered(Ticket(ticket), answer);
            pair.hosts[host].endpoint.handle(now, input);
        }
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().ike().spi_i, before.0.spi_i);
    assert_eq!(pair.b().ike().children.len(), before.1.children.len());
    pair.assert_agreement();
}

/// Answers to other questions than the one that is open.
#[test]
fn an_answer_of_the_wrong_kind_is_a_failure_and_no_panic() {
    for host in [A, B] {
        let mut setup = slow(6, Duration::ZERO);
        setup.both(|side| side.settings.half_open_timeout = Duration::from_secs(30));
        let mut pair = setup.build();
        pair.hosts[host].answer_delay = None;
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.hosts[host].asked.len(), 1);
        let wrong = || match host {
            A => Answer::Key(useless(vec![0x30])),
            _ => Answer::Signed(ike_proto::Signed {
                certs: Vec::new(),
                scheme: ike_proto::crypto::SignatureScheme::Ed25519,
                signatures: Vec::new(),
            }),
        };
        for ticket in 0..100 {
            let now = Now { mono: pair.instant(), wall: pair.wall() };
            let input = Input::Answered(Ticket(ticket), wrong());
            pair.hosts[host].endpoint.handle(now, input);
        }
        pair.wake(host);
        pair.run_for(Duration::from_secs(400));
        assert!(pair.a().done(request).unwrap().is_err(), "{}", pair.story());
        assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty());
    }
}

/// A key that is no key: malformed, of another type, with nothing in it.
#[test]
fn a_verdict_with_a_useless_key_is_a_refusal() {
    let mut spki = ike_tests::credentials::key(ec(), 1).public_key().to_vec();
    spki.truncate(40);
    for key in [Vec::new(), vec![0x30, 0x80], spki] {
        let mut pair = with_delays(slow(7, Duration::ZERO), Some(Duration::ZERO), None);
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(1));
        for ticket in 0..100 {
            let now = Now { mono: pair.instant(), wall: pair.wall() };
            let input = Input::Answered(Ticket(ticket), Answer::Key(useless(key.clone())));
            pair.hosts[B].endpoint.handle(now, input);
        }
        pair.wake(B);
        pair.run_for(Duration::from_secs(60));
        assert_eq!(pair.b().ike_downs()[0].1, Failure::Authentication, "{}", pair.story());
        assert_ne!(pair.a().done(request), Some(Ok(())));
    }
}

/// What strangers may make an endpoint keep is bounded, and given back however it ends.
#[test]
fn messages_that_wait_are_counted_against_the_memory_of_strangers() {
    for (memory, delay, up) in [
        (1 << 20, Some(Duration::ZERO), true),
        (1 << 20, None, false),
        // Half of it is for strangers, and an IKE_AUTH with a certificate is larger.
        (1000, Some(Duration::ZERO), false),
    ] {
        for host in [A, B] {
            let mut setup = signing(8, ec(), ec());
            let side = if host == A { &mut setup.a } else { &mut setup.b };
            side.settings.reassembly_memory = memory;
            let mut pair = setup.build();
            if host == B {
                pair.hosts[host].answer_delay = delay;
            }
            let request = pair.initiate(A, Some("net"));
            pair.run_for(Duration::from_secs(1));
            if delay.is_none() && host == B {
                assert!(pair.b().endpoint.reassembly_memory() > 500);
            }
            pair.run_for(Duration::from_secs(900));
            if delay.is_some() || host == B {
                assert_eq!(pair.a().done(request).unwrap().is_ok(), up, "{}", pair.story());
            }
            assert_eq!(pair.hosts[host].endpoint.reassembly_memory(), 0);
        }
    }
}

/// The peer's IKE SA comes up while this end's signature is being made: what is signed then is not the only
/// one any more (RFC 7296 §2.4). The peer would drop the other without a word.
#[test]
fn initial_contact_is_not_said_after_a_slow_signature() {
    let mut pair = with_delays(slow(9, Duration::ZERO), Some(Duration::from_secs(20)), None);
    let first = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().asked, ["sign"]);
    for host in [A, B] {
        pair.hosts[host].answer_delay = Some(Duration::ZERO);
    }
    let second = pair.initiate(B, Some("net"));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.b().done(second), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.a().done(first), None);
    assert!(pair.run_until(Duration::from_secs(60), |w| w.hosts[A].done(first).is_some()));
    assert_eq!(pair.a().done(first), Some(Ok(())), "{}", pair.story());
    pair.settle();
    assert!(pair.b().ike_downs().is_empty(), "{}", pair.story());
    assert_eq!((pair.a().ikes().len(), pair.b().ikes().len()), (2, 2), "{}", pair.story());
    pair.assert_agreement();
    // The two have crossed.
    pair.run_for(Duration::from_secs(60));
    assert_eq!((pair.a().ikes().len(), pair.b().ikes().len()), (1, 1), "{}", pair.story());
    pair.assert_agreement();
}

fn useless(spki: Vec<u8>) -> ike_proto::PeerKey {
    ike_proto::PeerKey { spki, revocation_pending: false, certificate: None, addresses: None }
}
