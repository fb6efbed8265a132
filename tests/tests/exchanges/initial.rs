//! IKE_SA_INIT and IKE_INTERMEDIATE.

use std::time::Duration;

use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Answer, Command, Failure, IkeState, Input, Now, Ticket};
use ike_tests::ExchangeFate::{After, Broken, Never};
use ike_tests::{A, B, Pair};

use super::{SECOND, assert_nothing_left, count, fates, outcome, set_delay, setup};

const METHODS: [&str; 3] = ["modp2048", "x25519-ke1_modp2048", "modp2048-ke1_ecp256-ke2_modp3072"];

fn pair(seed: u64, methods: &str) -> Pair {
    setup(seed, methods, "").build()
}

/// Requests come again meanwhile, and are neither answered nor asked about again.
#[test]
fn slow_answers_are_waited_for() {
    for methods in METHODS {
        let slow = methods.matches("modp").count();
        let mut pair = pair(1, methods);
        set_delay(&mut pair, Some(4 * SECOND));
        pair.establish();
        assert_eq!((pair.a().exchanges, pair.b().exchanges), (2 * slow, slow), "{methods}");
        let exchange = match methods.starts_with("modp") {
            true => ExchangeType::IKE_SA_INIT,
            false => ExchangeType::IKE_INTERMEDIATE,
        };
        assert!(count(&pair, exchange, false) > 1, "it was sent again meanwhile");
        assert!(count(&pair, exchange, true) < count(&pair, exchange, false));
        assert!(pair.a().ike().setup_time.is_some_and(|time| time >= 4 * SECOND));
    }
}

/// Each step that never ends, at either end, costs the attempt and no more.
#[test]
fn steps_that_never_end_cost_the_attempt() {
    for methods in METHODS {
        let steps = methods.matches("modp").count();
        for (host, steps) in [(A, 2 * steps), (B, steps)] {
            for step in 0..steps {
                let mut pair = pair(2, methods);
                let before = (0..step).map(|_| After(SECOND / 10));
                // A responder asks again if an initiator does: it never ends, whoever asks.
                fates(&mut pair, host, before.chain((0..20).map(|_| Never)));
                let request = pair.initiate(A, Some("net"));
                pair.run_for(Duration::from_secs(900));
                assert!(outcome(&pair, request).is_err(), "{methods} {host} {step}");
                assert_nothing_left(&pair);
            }
        }
    }
}

/// The last retransmission is due while the response waits for its key exchange: the attempt waits on, and comes up or
/// ends.
///
/// Fault: in `Attempt::on_timeout`, leave out `abandon_request`. The endpoint does not return then.
#[test]
fn a_response_outlasts_the_last_retransmission() {
    for (fate, up) in [(After(9 * SECOND), true), (Never, false)] {
        let mut setup = setup(12, METHODS[0], "");
        setup.a.settings.retransmission.tries = Some(1);
        let mut pair = setup.build();
        fates(&mut pair, A, [After(Duration::ZERO), fate]);
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(120));
        assert_eq!(outcome(&pair, request).is_ok(), up, "{}", pair.story());
    }
}

/// The same of steps that break off.
#[test]
fn steps_that_break_off_cost_the_attempt_at_most() {
    for methods in METHODS {
        let steps = methods.matches("modp").count();
        for (host, steps) in [(A, 2 * steps), (B, steps)] {
            for step in 0..steps {
                let mut pair = pair(3, methods);
                let before = (0..step).map(|_| After(SECOND / 10));
                fates(&mut pair, host, before.chain([Broken]));
                let request = pair.initiate(A, Some("net"));
                pair.run_for(Duration::from_secs(900));
                match outcome(&pair, request) {
                    // Who had no answer yet has asked again.
                    Ok(()) => pair.assert_agreement(),
                    Err(_) => assert_nothing_left(&pair),
                }
                assert!(pair.b().ikes_in(IkeState::Connecting).is_empty());
            }
        }
    }
}

/// Who is taken down while the pool is at work: its answer is nobody's.
#[test]
fn an_answer_for_an_attempt_that_is_gone_is_dropped() {
    for methods in METHODS {
        for at in 0..12 {
            let mut pair = pair(4, methods);
            set_delay(&mut pair, Some(SECOND));
            let request = pair.initiate(A, Some("net"));
            pair.run_for(SECOND / 2 * at + SECOND / 4);
            let Some(ike) = pair.a().ikes().first().map(|ike| ike.id) else { continue };
            pair.command(A, Command::TerminateIke(ike));
            pair.run_for(Duration::from_secs(300));
            assert!(pair.a().done(request).is_some());
            assert_nothing_left(&pair);
        }
    }
}

/// An IKE_SA_INIT request that waits for its key exchange is half-open: it counts, and has its time.
#[test]
fn a_request_that_waits_is_half_open() {
    for (methods, again) in [(METHODS[0], 0), (METHODS[1], 1)] {
        let mut pair = pair(5, methods);
        pair.hosts[B].exchange_delay = None;
        pair.initiate(A, Some("net"));
        pair.run_for(SECOND);
        assert_eq!((pair.b().endpoint.half_open(), pair.b().exchanges), (1, 1));
        assert_eq!(pair.b().ikes_in(IkeState::Connecting).len(), 1);
        // Retransmissions of the very request change nothing.
        pair.run_for(9 * SECOND);
        assert_eq!((pair.b().endpoint.half_open(), pair.b().exchanges), (1, 1));
        let timeout = pair.b().endpoint.config().half_open_timeout;
        let held = pair.b().endpoint.reassembly_memory();
        assert_eq!(held > 0, again == 1, "a stranger's message is counted, but for IKE_SA_INIT");
        pair.command(A, Command::Shutdown);
        pair.run_for(timeout);
        assert_nothing_left(&pair);
    }
}

/// Limits of half-open SAs hold: requests that wait are among them.
#[test]
fn requests_that_wait_call_for_cookies() {
    let mut setup = setup(6, METHODS[0], "");
    setup.b.settings.cookie_threshold = 1;
    let mut pair = setup.build();
    set_delay(&mut pair, Some(SECOND));
    pair.establish();
    // The request without a cookie cost no key exchange.
    assert_eq!((pair.a().exchanges, pair.b().exchanges), (2, 1));

    let mut setup = super::setup(7, METHODS[0], "");
    setup.b.settings.block_threshold = 1;
    let mut pair = setup.build();
    pair.hosts[B].exchange_delay = None;
    for _ in 0..3 {
        let request = pair.initiate(A, Some("net"));
        pair.run_for(SECOND);
        let ike = pair.a().ikes()[0].id;
        pair.command(A, Command::TerminateIke(ike));
        pair.run_for(SECOND / 10);
        assert_eq!(pair.a().done(request), Some(Err(Failure::Terminated)));
    }
    assert_eq!((pair.b().endpoint.half_open(), pair.b().exchanges), (1, 1), "{}", pair.story());
}

/// A response that comes twice while its secret is being made is taken once.
#[test]
fn a_response_that_comes_twice_costs_once() {
    for methods in METHODS {
        let slow = methods.matches("modp").count();
        let mut setup = setup(8, methods, "");
        setup.conditions.duplication = 1000;
        let mut pair = setup.build();
        set_delay(&mut pair, Some(SECOND / 10));
        pair.establish();
        assert_eq!((pair.a().exchanges, pair.b().exchanges), (2 * slow, slow));
    }
}

/// A response in the genuine one's place that arrives first: the genuine one is worked on beside it.
#[test]
fn a_forged_response_costs_the_genuine_one_nothing() {
    for methods in [METHODS[0], METHODS[2]] {
        let mut pair = pair(9, methods);
        set_delay(&mut pair, Some(SECOND / 10));
        // Two candidates have the same SPIs and message IDs.
        pair.audit.off = true;
        pair.net.manual = true;
        let request = pair.initiate(A, Some("net"));
        pair.run_for(SECOND / 2);
        pair.deliver_all();
        pair.run_for(SECOND / 2);
        let genuine =
            pair.net.mailbox.iter().find(|packet| packet.is(ExchangeType::IKE_SA_INIT, true));
        let mut forged = genuine.expect("a response").clone();
        let mut octets = forged.octets.to_vec();
        // The public value is the longest thing in it.
        let middle = octets.len() / 2;
        octets[middle] ^= 1;
        forged.octets = octets.into();
        pair.net.mailbox.insert(0, forged);
        pair.net.manual = false;
        pair.deliver_all();
        pair.run_for(Duration::from_secs(60));
        assert_eq!(outcome(&pair, request), Ok(()), "{}", pair.story());
        assert!(pair.a().exchanges > 2 * methods.matches("modp").count());
        assert_eq!(pair.b().children_up().len(), 1);
    }
}

/// What strangers may make an endpoint keep is bounded; who has no room for it refuses.
#[test]
fn messages_that_wait_are_counted_against_the_memory_of_strangers() {
    for host in [A, B] {
        for (memory, up) in [(1 << 20, true), (100, false)] {
            let mut setup = setup(10, METHODS[1], "");
            let side = if host == A { &mut setup.a } else { &mut setup.b };
            side.settings.reassembly_memory = memory;
            let mut pair = setup.build();
            set_delay(&mut pair, Some(SECOND));
            let request = pair.initiate(A, Some("net"));
            pair.run_for(Duration::from_secs(900));
            assert_eq!(outcome(&pair, request).is_ok(), up, "{}", pair.story());
            assert_eq!(pair.hosts[host].endpoint.reassembly_memory(), 0);
        }
    }
}

/// Answers to questions of another kind, to tickets that were never given out, and to those of before.
#[test]
fn answers_of_the_wrong_kind_are_failures_and_no_panic() {
    for methods in METHODS {
        for host in [A, B] {
            let mut pair = pair(11, methods);
            pair.hosts[host].exchange_delay = None;
            let request = pair.initiate(A, Some("net"));
            pair.run_for(SECOND);
            assert_eq!(pair.hosts[host].exchanges, 1);
            for ticket in 0..100 {
                let now = Now { mono: pair.instant(), wall: pair.wall() };
                let answer = Answer::Signed(ike_proto::Signed {
                    certs: Vec::new(),
                    scheme: ike_proto::crypto::SignatureScheme::Ed25519,
                    signatures: Vec::new(),
                });
                pair.hosts[host].endpoint.handle(now, Input::Answered(Ticket(ticket), answer));
            }
            pair.wake(host);
            pair.hosts[host].exchange_delay = Some(Duration::ZERO);
            pair.run_for(Duration::from_secs(900));
            match outcome(&pair, request) {
                Ok(()) => pair.assert_agreement(),
                Err(_) => assert_nothing_left(&pair),
            }
        }
    }
}

/// Over TCP there is no parking: the SA begins when its answer leaves.
#[test]
fn over_tcp() {
    for methods in METHODS {
        let mut setup = setup(12, methods, "");
        setup.a.connection.enable_tcp = ike_proto::config::TcpUse::Yes;
        setup.both(|side| {
            side.settings.accepts_tcp = true;
            side.plane.capabilities.tcp_esp = true;
        });
        let mut pair = setup.build();
        set_delay(&mut pair, Some(2 * SECOND));
        pair.establish();
    }
}

/// A cookie is demanded, by whomever, while the secret of the response is being made: the response answers the
/// request without one, and that is what AUTH covers.
#[test]
fn a_cookie_that_comes_meanwhile() {
    let mut pair = pair(9, METHODS[0]);
    fates(&mut pair, A, [After(SECOND / 10), After(4 * SECOND)]);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(SECOND);
    let asked = pair.net.trace.iter().find(|p| p.is(ExchangeType::IKE_SA_INIT, false)).cloned();
    assert_eq!(count(&pair, ExchangeType::IKE_SA_INIT, true), 1, "it has come");
    // Nobody answers the request that has the cookie.
    pair.net.tap(|packet| match packet.is(ExchangeType::IKE_SA_INIT, false) {
        true => ike_tests::network::Fate::Drop,
        false => ike_tests::network::Fate::Pass,
    });
    let cookie = ike_proto::wire::registry::NotifyType::COOKIE;
    pair.inject(ike_tests::forge::notify_response(&asked.unwrap(), cookie, &[7; 16]));
    pair.run_for(10 * SECOND);
    assert!(count(&pair, ExchangeType::IKE_SA_INIT, false) > 1, "{}", pair.story());
    assert_eq!(outcome(&pair, request), Ok(()), "{}", pair.story());
    pair.assert_agreement();
}
