//! An IKE SA with so many children that one rekey follows the other: the window is one request.

use std::collections::BTreeSet;
use std::time::Duration;

use ike_proto::Command;
use ike_tests::network::Conditions;
use ike_tests::{A, B, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

/// Fourteen children with additional key exchanges that take up to two seconds, on a link that loses a good deal, and
/// rekey times that leave the IKE SA no time to rest.
fn crowded(seed: u64) -> Pair {
    let mut setup = Setup::new(seed);
    let methods = "modp2048-ke1_modp3072";
    setup.both(|side| {
        side.ike_proposals(&[&format!("aes128gcm16-prfsha256-{methods}")]);
        side.esp_proposals(&[&format!("aes128gcm16-{methods}")]);
        side.connection.dpd_delay = 30 * SECOND;
        let child = side.net();
        child.rekey_time = 60 * SECOND;
        child.rand_time = 12 * SECOND;
        child.life_time = 460 * SECOND;
    });
    let mut pair = setup.build();
    for host in &mut pair.hosts {
        host.exchange_delay = Some(2 * SECOND);
        host.exchanges_vary = true;
    }
    pair.establish();
    for n in 0..13 {
        let request = pair.initiate(n % 2, Some("net"));
        assert!(pair.run_until(60 * SECOND, |w| w.hosts[n % 2].done(request).is_some()));
        assert_eq!(pair.hosts[n % 2].done(request), Some(Ok(())), "{}", pair.story());
    }
    pair.net.tracing = false;
    let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(200));
    pair.net.conditions = Conditions { loss: 150, delay, jitter, ..Conditions::default() };
    pair
}

/// What a child is at one end, by the other end's names.
fn children(pair: &Pair, host: usize) -> BTreeSet<(u32, u32)> {
    let all = pair.hosts[host].children();
    let spis = all.iter().map(|child| (child.inbound.spi, child.outbound.spi));
    spis.map(|(i, o)| if host == A { (i, o) } else { (o, i) }).collect()
}

/// There is always a request in flight or an old SA that lingers, for as long as the children are that many. For an hour
/// no child comes to its hard lifetime for want of a turn, and none is lost; the two ends differ in what is in flight
/// and in nothing else. When an operator ends what is too much, both come to rest.
///
/// Fault: in `Established::pump` (ike_sa/established/queue.rs), take the newest task of the queue in the place of the oldest.
#[test]
fn a_crowded_ike_sa_rekeys_all_of_its_children_in_time() {
    for seed in [188_299, 521_390] {
        let mut pair = crowded(seed);
        for _ in 0..360 {
            pair.run_for(10 * SECOND);
            let (a, b) = (children(&pair, A), children(&pair, B));
            let apart = a.symmetric_difference(&b).count();
            assert!(apart <= 4, "{apart} children are known to one end alone: {a:x?} {b:x?}");
        }
        let rekeyed = pair.a().child_rekeys().len();
        assert!(rekeyed >= 14 * 8, "{rekeyed} rekeys in an hour");
        for host in [A, B] {
            assert!(
                pair.hosts[host].child_downs().is_empty(),
                "{:?}",
                pair.hosts[host].child_downs()
            );
            assert!(pair.hosts[host].ike_downs().is_empty(), "{:?}", pair.hosts[host].ike_downs());
        }
        assert_eq!(pair.a().children_up().len(), 14);
        while pair.a().children_up().len() > 1 {
            let child = pair.a().children_up()[0].id;
            let end = pair.command(A, Command::TerminateChild(child));
            assert!(pair.run_until(300 * SECOND, |w| w.hosts[A].done(end).is_some()));
        }
        let rests = pair.run_until(300 * SECOND, |w| {
            w.is_settled() && w.hosts.iter().all(|host| host.children().len() == 1)
        });
        assert!(rests);
        pair.net.conditions.loss = 0;
        let mut agree = Err(String::new());
        for _ in 0..60 {
            pair.run_for(5 * SECOND);
            agree = pair.agreement();
            if agree.is_ok() {
                break;
            }
        }
        assert_eq!(agree, Ok(()));
    }
}
