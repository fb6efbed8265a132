//! Session resumption (RFC 5723): a client that has lost its IKE SA, and gateways that know their tickets again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod attacks;
mod by_hand;
mod credentials;
mod grants;
mod lives;
mod refused;
mod revoked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ike_proto::config::{AddressSpec, TicketKey};
use ike_proto::crypto::Secret;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Event, IkeState};
use ike_tests::network::{Fate, Packet};
use ike_tests::plane::Plane;
use ike_tests::setup::{Side, address};
use ike_tests::{A, B, Pair, Setup, cheap};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than any ladder of retransmissions.
const LONG: Duration = Duration::from_secs(300);
/// The other gateway, at 10.0.0.3.
const C: usize = 2;

/// The key of this number.
fn ticket_key(n: u8) -> Arc<TicketKey> {
    Arc::new(TicketKey { id: [n; 8], secret: Secret::new(vec![n; 32]) })
}

/// Lets `side` give and take tickets, sealed by these keys.
fn gateway(side: &mut Side, keys: &[u8]) {
    side.connection.session_resumption = true;
    side.settings.resumption.keys = keys.iter().map(|n| ticket_key(*n)).collect();
}

/// A client at A that asks whether the gateway at B is there, and has tickets of it.
fn setup(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.connection.session_resumption = true;
    setup.a.connection.dpd_delay = 10 * SECOND;
    gateway(&mut setup.b, &[1]);
    setup
}

/// The same with another gateway at C that is like B but for what `change` does.
fn three(mut setup: Setup, change: impl Fn(&mut Side)) -> Pair {
    setup.a.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.b.connection.local_addrs = vec![AddressSpec::Any(None)];
    let mut other = self::setup(setup.seed);
    other.b.connection.local_addrs = vec![AddressSpec::Any(None)];
    change(&mut other.b);
    let mut pair = setup.build();
    let c = pair.add(address(3), other.b.config(), cheap::provider(), Plane::new());
    pair.hosts[c].answerer = other.b.answerer;
    assert_eq!(c, C);
    pair
}

/// What passes while this is set is lost.
fn switch(pair: &mut Pair) -> Arc<AtomicBool> {
    let cut = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&cut);
    pair.net.tap(move |_| if its.load(Ordering::Relaxed) { Fate::Drop } else { Fate::Pass });
    cut
}

/// Nothing gets through until A has given its IKE SA up.
#[track_caller]
fn lose(pair: &mut Pair) {
    let cut = switch(pair);
    cut.store(true, Ordering::Relaxed);
    pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
    assert!(pair.a().ikes().is_empty(), "{}", pair.story());
    cut.store(false, Ordering::Relaxed);
}

/// B knows nothing of its IKE SAs any more; A finds out.
#[track_caller]
fn crash(pair: &mut Pair) {
    pair.hosts[B].plane = Plane::new();
    pair.restart(B, cheap::provider());
    pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
    assert!(pair.a().ikes().is_empty(), "{}", pair.story());
}

/// Messages of `exchange` that were sent since `from` was how many there were in all.
fn sent(pair: &Pair, from: usize, exchange: ExchangeType, response: bool) -> usize {
    pair.net.trace[from..].iter().filter(|packet| packet.is(exchange, response)).count()
}

/// A begins anew, and is up. True if that was by its ticket.
#[track_caller]
fn again(pair: &mut Pair) -> bool {
    let from = pair.net.trace.len();
    let request = pair.initiate(A, Some("net"));
    pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair.settle();
    let resumed = pair.a().ikes_in(IkeState::Established)[0].resumed;
    let begun = sent(pair, from, ExchangeType::IKE_SA_INIT, false);
    assert_eq!(resumed, begun == 0, "{}", pair.story());
    resumed
}

/// What A and B, or another, say of tickets that were of no use.
fn complaints(pair: &Pair, host: usize) -> Vec<String> {
    pair.hosts[host].events(|event| match event {
        Event::TicketRefused { why, .. } => Some(why.to_string()),
        _ => None,
    })
}

fn is_resume(packet: &Packet) -> bool {
    packet.is(ExchangeType::IKE_SESSION_RESUME, false)
}

#[test]
fn after_an_interruption() {
    let mut pair = setup(1).build();
    pair.establish();
    assert!(!pair.a().ike().resumed && !pair.b().ike().resumed);
    let (old_a, old_b) = (pair.a().ike(), pair.b().ike());
    lose(&mut pair);
    assert_eq!(pair.b().ikes().len(), 1, "B has noticed nothing");
    let from = pair.net.trace.len();
    assert!(again(&mut pair));
    // Two round trips, as ever, and no word about the old SA.
    let trace = &pair.net.trace[from..];
    let exchanges: Vec<_> = trace.iter().map(|packet| packet.header().unwrap().exchange).collect();
    let (resume, auth) = (ExchangeType::IKE_SESSION_RESUME, ExchangeType::IKE_AUTH);
    assert_eq!(exchanges, [resume, resume, auth, auth]);
    let (a, b) = (pair.a().ike(), pair.b().ike());
    assert!(a.resumed && b.resumed && a.id != old_a.id && b.id != old_b.id);
    assert_ne!((a.spi_i, a.spi_r), (old_a.spi_i, old_a.spi_r));
    assert_eq!((&a.local_id, &a.remote_id), (&old_a.local_id, &old_a.remote_id));
    assert_eq!((&b.local_auth, &b.remote_auth), (&old_b.local_auth, &old_b.remote_auth));
    assert_eq!(a.algorithms, old_a.algorithms);
    pair.assert_agreement();
    // Rekeys go on from there, and what they make is as good as what it was made of.
    pair.rekey_ike(A);
    pair.run_for(5 * SECOND);
    pair.rekey_child(B);
    pair.run_for(10 * SECOND);
    assert!(pair.a().ike().resumed);
    pair.assert_agreement();
}

#[test]
fn after_the_gateway_has_crashed() {
    let mut pair = setup(2).build();
    pair.establish();
    for _ in 0..3 {
        crash(&mut pair);
        assert!(again(&mut pair), "each IKE SA has a ticket of its own");
        pair.assert_agreement();
    }
}

#[test]
fn at_another_gateway_with_the_same_keys() {
    let mut pair = three(setup(3), |_| {});
    pair.establish();
    // A's way to B is gone.
    let (a, b) = (pair.address(A), pair.address(B));
    pair.net.tap(move |packet| {
        let ends = [packet.src.ip(), packet.dst.ip()];
        if ends.contains(&a) && ends.contains(&b) { Fate::Drop } else { Fate::Pass }
    });
    pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
    let request = initiate_to(&mut pair, C);
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert!(pair.a().ike().resumed && pair.hosts[C].ike().resumed);
    assert_eq!(pair.a().ike().path.remote.ip(), address(3));
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SA_INIT, false), 1, "the one to B");
    assert_eq!((pair.a().children_up().len(), pair.hosts[C].children_up().len()), (1, 1));
}

#[track_caller]
fn initiate_to(pair: &mut Pair, gateway: usize) -> ike_proto::RequestId {
    let (local, remote) = (pair.address(A), pair.address(gateway));
    let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
    let up = ike_proto::Command::Initiate { connection, child, local, remote, packet: None };
    pair.command(A, up)
}

#[test]
fn where_nobody_wants_it_nothing_is_said() {
    for (client, server) in [(true, false), (false, true)] {
        let mut setup = setup(4);
        setup.a.connection.session_resumption = client;
        setup.b.connection.session_resumption = server;
        let mut pair = setup.build();
        pair.establish();
        lose(&mut pair);
        assert!(!again(&mut pair));
        assert_eq!(sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false), 0);
        assert!(complaints(&pair, B).is_empty());
    }
}

/// Half a minute and more in which the gateway may be started by hand is nothing.
#[test]
fn a_gateway_that_does_not_answer_is_asked_in_the_ordinary_way() {
    let mut pair = setup(5).build();
    pair.establish();
    lose(&mut pair);
    pair.net.tap(|packet| if is_resume(packet) { Fate::Drop } else { Fate::Pass });
    let from = pair.now();
    assert!(!again(&mut pair));
    assert!(pair.now() - from < 9 * SECOND, "{}", pair.story());
    assert_eq!(complaints(&pair, A), ["the peer does not answer"]);
}

/// Where nobody answers at all it is the network that is gone. A client that is there when it comes back goes on
/// by its ticket, more likely than not.
#[test]
fn a_network_that_is_away_for_longer() {
    let mut resumed = 0;
    for away in [5, 20, 30, 40, 55, 70, 90] {
        let mut pair = setup(away).build();
        pair.establish();
        lose(&mut pair);
        let cut = switch(&mut pair);
        cut.store(true, Ordering::Relaxed);
        let request = pair.initiate(A, Some("net"));
        pair.run_for(SECOND * u32::try_from(away).unwrap());
        assert_eq!(pair.a().done(request), None, "{away}: not given up");
        cut.store(false, Ordering::Relaxed);
        pair.run_until(LONG, |w| w.hosts[A].done(request).is_some());
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        pair.settle();
        resumed += u32::from(pair.a().ike().resumed);
        pair.assert_agreement();
    }
    assert!(resumed >= 6, "{resumed} of 7");
}

#[test]
fn losses_and_copies() {
    for seed in 0..20 {
        let mut pair = setup(seed).build();
        pair.establish();
        lose(&mut pair);
        pair.net.conditions.loss = 250;
        pair.net.conditions.duplication = 250;
        pair.net.conditions.jitter = SECOND / 5;
        again(&mut pair);
        pair.net.conditions.loss = 0;
        pair.run_for(MINUTE);
        pair.assert_agreement();
    }
}
