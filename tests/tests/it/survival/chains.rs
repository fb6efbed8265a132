//! Rekeys with up to seven additional key exchanges (RFC 9370) on links that lose a good deal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::Command;
use ike_proto::crypto::{CryptoProvider, KeMethod};
use ike_proto::dataplane::Event as PlaneEvent;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Conditions;
use ike_tests::{A, B, Pair, Setup, cheap};

const SECOND: Duration = Duration::from_secs(1);

/// The keywords of so many additional key exchanges, from the last of these on.
const METHODS: [&str; 7] =
    ["frodoa3", "modp3072", "mlkem1024", "modp2048", "mlkem768", "ecp256", "mlkem512"];

fn chain(addke: usize) -> String {
    let methods = METHODS.iter().rev().take(addke).enumerate();
    methods.map(|(n, method)| format!("-ke{}_{method}", n + 1)).collect()
}

/// Two ends that propose so many additional key exchanges.
fn setup(seed: u64, addke: usize) -> Setup {
    let mut setup = Setup::new(seed);
    let methods = chain(addke);
    setup.both(|side| {
        let mut ke = cheap::post_quantum().ke.clone();
        let another: &'static dyn KeMethod = &cheap::MODP_3072;
        ke.push(another.into());
        side.crypto =
            Arc::new(CryptoProvider { ke, ..CryptoProvider::clone(&cheap::post_quantum()) });
        side.ike_proposals(&[&format!("aes256gcm16-prfsha256-x25519{methods}")]);
        side.esp_proposals(&[&format!("aes256gcm16-x25519{methods}")]);
        side.connection.dpd_delay = 30 * SECOND;
    });
    setup
}

/// An established pair, and then a link that loses `loss` of a thousand datagrams, with a round trip of 150 ms.
fn pair(setup: Setup, loss: u32) -> Pair {
    let mut pair = setup.build();
    pair.establish();
    pair.net.tracing = false;
    let delay = Duration::from_millis(75);
    pair.net.conditions = Conditions { loss, delay, ..Conditions::default() };
    pair
}

/// Rekeys of the IKE SA and of the child by turns, by both ends, on a link that loses one datagram in four: none ends
/// the IKE SA, and each is done before the peer's ladder is over.
///
/// Fault: in `Rtt::carry`, leave out `needed`, and set CHAIN_LIFE (exchange/followup/responder.rs) to 20 s and
/// MAX_FORGOTTEN to 1.
#[test]
fn rekeys_with_seven_additional_key_exchanges_survive_a_lossy_link() {
    for addke in [1, 3, 7] {
        for seed in 0..6 {
            let mut pair = pair(setup(seed, addke), 250);
            let ends = if seed % 2 == 0 { [A, B] } else { [B, A] };
            for end in ends {
                let child = pair.hosts[end].children_up()[0].id;
                let rekey = pair.command(end, Command::RekeyChild(child));
                let done = pair.run_until(600 * SECOND, |w| w.hosts[end].done(rekey).is_some());
                assert!(done, "{addke} {seed}: {}", pair.story());
                assert_eq!(pair.hosts[end].done(rekey), Some(Ok(())), "{addke} {seed}");
                let ike = pair.hosts[end].ikes().iter().map(|ike| ike.id).max().expect("an IKE SA");
                let rekey = pair.command(end, Command::RekeyIke(ike));
                let done = pair.run_until(600 * SECOND, |w| w.hosts[end].done(rekey).is_some());
                assert!(done, "{addke} {seed}: {}", pair.story());
            }
            pair.net.conditions.loss = 0;
            pair.run_for(200 * SECOND);
            for host in [A, B] {
                let downs = pair.hosts[host].ike_downs();
                assert!(downs.is_empty(), "{addke} {seed}: {downs:?}\n{}", pair.story());
                let downs = pair.hosts[host].child_downs();
                assert!(downs.is_empty(), "{addke} {seed}: {downs:?}\n{}", pair.story());
            }
            pair.assert_agreement();
        }
    }
}

/// The link is dead for two minutes in the middle of a chain: it goes on where it was, for the responder has kept it,
/// though its own schedule of retransmissions is short. No second CREATE_CHILD_SA request is needed.
///
/// Fault: set CHAIN_LIFE (exchange/followup/responder.rs) to 20 s.
#[test]
fn a_chain_goes_on_after_two_minutes_of_silence() {
    for ike in [false, true] {
        let mut setup = setup(40, 3);
        setup.b.settings.retransmission.tries = Some(2);
        setup.b.connection.dpd_delay = Duration::ZERO;
        let mut pair = pair(setup, 0);
        pair.net.tracing = true;
        pair.net.trace.clear();
        let command = match ike {
            true => Command::RekeyIke(pair.ike_id(A)),
            false => Command::RekeyChild(pair.child_id(A)),
        };
        let rekey = pair.command(A, command);
        pair.run_for(Duration::from_millis(400));
        assert_eq!(pair.a().done(rekey), None, "in the middle of it");
        pair.net.conditions.loss = 1000;
        pair.run_for(120 * SECOND);
        pair.net.conditions.loss = 0;
        assert!(pair.run_until(30 * SECOND, |w| w.hosts[A].done(rekey).is_some()));
        assert_eq!(pair.a().done(rekey), Some(Ok(())), "{}", pair.story());
        let sent = pair.net.trace.iter().filter(|p| p.from == Some(A));
        let sent = sent.filter(|p| p.is(ExchangeType::CREATE_CHILD_SA, false));
        let requests: BTreeSet<_> = sent.filter_map(|p| Some(p.header()?.message_id)).collect();
        assert_eq!(requests.len(), 1, "{}", pair.story());
        pair.run_for(10 * SECOND);
        let rekeys = (pair.b().ike_rekeys().len(), pair.b().child_rekeys().len());
        assert_eq!(rekeys, if ike { (1, 0) } else { (0, 1) }, "{}", pair.story());
        pair.assert_agreement();
    }
}

/// Both ends rekey the child at once, and its hard limit comes before the rekey that wins is done: both end. The rekey that
/// has lost stays nowhere, so the IKE SA is rekeyed at once, by either end.
///
/// Fault: in `drop_child`, do not call `drop_chains`.
#[test]
fn a_rekey_that_has_lost_does_not_outlive_its_child() {
    for seed in 60..66 {
        let mut pair = pair(setup(seed, 3), 0);
        let ends = [A, B].map(|host| pair.hosts[host].child().outbound);
        pair.rekey_child(A);
        pair.rekey_child(B);
        // Each end has the other one's answer; the first additional key exchange is under way.
        pair.run_for(Duration::from_millis(200));
        for (host, sa) in [A, B].into_iter().zip(ends) {
            pair.plane_event(host, PlaneEvent::HardExpire(sa));
        }
        // A makes the child anew, because a command has brought it up.
        pair.run_for(20 * SECOND);
        for host in [A, B] {
            let rekey = pair.rekey_ike(host);
            assert!(
                pair.run_until(3 * SECOND, |w| w.hosts[host].done(rekey).is_some()),
                "{seed}: by {host}"
            );
            assert_eq!(pair.hosts[host].done(rekey), Some(Ok(())), "{seed}: by {host}");
            pair.run_for(10 * SECOND);
        }
        pair.assert_agreement();
    }
}
