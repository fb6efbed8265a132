//! Lives with connections that break at any time.

use std::time::Duration;

use ike_proto::config::{SeparateTransports, TcpUse};
use ike_proto::{Command, Transport};
use ike_tests::network::Nat;
use ike_tests::{A, B, Pair, Seeded};

use crate::tcp::stage::{over_tcp, seconds, separate};

fn some(rng: &mut Seeded, bound: u64) -> Duration {
    Duration::from_millis(rng.below(bound))
}

fn act(pair: &mut Pair, rng: &mut Seeded) {
    let host = if rng.chance(500) { A } else { B };
    let Some(ike) = pair.hosts[host].ikes().into_iter().next_back() else { return };
    let child = ike.children.last().map(|child| child.id);
    match (rng.below(10), child) {
        (0..3, Some(child)) => _ = pair.command(host, Command::RekeyChild(child)),
        (3..5, _) => _ = pair.command(host, Command::RekeyIke(ike.id)),
        (5, _) if host == A => _ = pair.command(host, Command::Reauthenticate(ike.id)),
        _ => {}
    }
    let open = pair.streams.open();
    if let Some(n) = open.last().copied() {
        match rng.below(10) {
            0..4 => pair.cut(n),
            4..6 => pair.cut_opener(n),
            _ => {}
        }
    }
    if rng.chance(50) {
        pair.streams.swallow = true;
        let time = some(rng, 30_000);
        pair.run_for(time);
        pair.streams.swallow = false;
    }
    if let Some(nat) = pair.net.nats.first_mut().filter(|_| rng.chance(100)) {
        nat.rebind();
    }
}

/// Nothing is deleted on purpose: whatever breaks, both ends have one SA and its child in the end.
#[test]
fn a_thousand_lives() {
    for seed in 0..1000 {
        let mut rng = Seeded::new(seed);
        let mut setup = if rng.chance(300) { separate(seed) } else { over_tcp(seed) };
        if rng.chance(300) {
            setup.a.connection.enable_tcp = TcpUse::Yes;
            setup.a.connection.separate_transports = SeparateTransports::Yes;
        }
        setup.conditions.delay = Duration::from_millis(1 + rng.below(200));
        setup.b.plane.delay = some(&mut rng, 300);
        setup.both(|side| side.connection.dpd_delay = seconds(30));
        setup.b.connection.remote_addrs = vec![ike_proto::config::AddressSpec::Any(None)];
        let nat = rng.chance(300);
        let mut pair = setup.build();
        if nat {
            pair.net.nats.push(Nat::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into()));
        }
        let request = pair.initiate(A, Some("net"));
        // The handshake does not go undisturbed either.
        for _ in 0..rng.below(4) {
            let time = some(&mut rng, 1500);
            pair.run_for(time);
            if let Some(n) = pair.streams.open().last().copied() {
                pair.cut(n);
            }
        }
        pair.run_until(seconds(120), |w| w.hosts[A].done(request).is_some());
        assert_eq!(pair.a().done(request), Some(Ok(())), "seed {seed}: {}", pair.story());
        for _ in 0..rng.below(20) {
            act(&mut pair, &mut rng);
            let time = some(&mut rng, 3000);
            pair.run_for(time);
        }
        pair.run_for(seconds(200));
        // A liveness check may be under way.
        for _ in 0..100 {
            if pair.agreement().is_err() {
                pair.run_for(Duration::from_millis(100));
            }
        }
        if let Err(why) = pair.agreement() {
            panic!("seed {seed}: {why}\n{}", pair.story());
        }
        assert!(!pair.a().children_up().is_empty(), "seed {seed}: {}", pair.story());
        // Where TCP was of no use at the start, separate transports were given up.
        let by_tcp = |ike: &ike_proto::IkeStatus| ike.path.transport == Transport::Tcp;
        let users = pair.a().ikes().iter().filter(|ike| by_tcp(ike)).count();
        assert_eq!(pair.streams.open().len(), users, "seed {seed}: {}", pair.story());
    }
}
