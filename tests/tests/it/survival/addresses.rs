//! NATs that give another port, or another address, in mid-handshake or while the peer has something to say.

use std::net::IpAddr;
use std::time::Duration;

use ike_proto::Command;
use ike_proto::config::AddressSpec;
use ike_proto::wire::Message;
use ike_proto::wire::Payload;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::{Fate, Nat};
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup};

use super::{finish, large};

const MINUTE: Duration = Duration::from_secs(60);

fn behind_a_nat(seed: u64, method: &str) -> Pair {
    let mut setup = large(seed, method);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    let outside: IpAddr = [192, 0, 2, 1].into();
    pair.net.nats.push(Nat::new(address(1), outside));
    pair
}

fn sent(pair: &Pair, exchange: ExchangeType, response: bool) -> usize {
    pair.net.trace.iter().filter(|packet| packet.is(exchange, response)).count()
}

/// The NAT forgets its mapping at every point of the handshake, and once more a moment later.
#[test]
fn a_nat_that_rebinds_between_any_two_messages() {
    for exchange in
        [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_INTERMEDIATE, ExchangeType::IKE_AUTH]
    {
        for response in [false, true] {
            for new_address in [false, true] {
                let mut pair = behind_a_nat(1, "mlkem1024");
                let request = pair.initiate(A, Some("net"));
                assert!(pair.run_until(MINUTE, |w| {
                    w.net.trace.iter().any(|packet| packet.is(exchange, response))
                }));
                pair.net.nats[0].rebind();
                if new_address {
                    pair.net.nats[0].outside = [192, 0, 2, 77].into();
                }
                let took = finish(&mut pair, request, MINUTE);
                let what = format!("{exchange} {response} {new_address}: {took:?}");
                assert!(took < Duration::from_secs(3), "{what}");
                pair.run_for(MINUTE);
                pair.assert_agreement();
            }
        }
    }
}

/// One fragment of a request comes from the old port and the others, sent again, from the new one.
#[test]
fn a_nat_that_rebinds_between_fragments() {
    for lost in 1..=2 {
        let mut pair = behind_a_nat(2, "mlkem1024");
        let mut done = false;
        pair.net.tap(move |packet| {
            let fragment = |octets: &[u8]| {
                let message = Message::decode(octets).ok()?;
                match message.payloads.last()? {
                    Payload::Skf(skf) => Some(skf.number),
                    _ => None,
                }
            };
            let this = packet.is(ExchangeType::IKE_INTERMEDIATE, false)
                && fragment(&packet.octets) == Some(lost);
            if this && !done {
                done = true;
                return Fate::Drop;
            }
            Fate::Pass
        });
        let request = pair.initiate(A, Some("net"));
        assert!(pair.run_until(MINUTE, |w| {
            w.net.trace.iter().any(|packet| packet.is(ExchangeType::IKE_INTERMEDIATE, false))
        }));
        pair.run_for(Duration::from_millis(15));
        pair.net.nats[0].rebind();
        let took = finish(&mut pair, request, MINUTE);
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert!(sent(&pair, ExchangeType::IKE_INTERMEDIATE, false) > 2);
        pair.assert_agreement();
    }
}

/// The NAT has another mapping, and the peer's Delete of the IKE SA goes to the former one. Until it is answered, the peer puts
/// off all requests of this end, so that this end hears of the peer all the time. A liveness check shows the mapping all the
/// same: at once if this host's addresses may have changed, although a request is in flight, and otherwise after `dpd_delay`.
///
/// Fault: in `on_network`, call `check_liveness` in place of `check_mapping`; in `on_dpd`, leave `may_be_lost_behind_nat` out.
#[test]
fn a_peer_that_puts_off_all_requests_hides_no_new_mapping() {
    for told in [true, false] {
        let mut setup = Setup::new(3);
        setup.both(|side| {
            side.connection.mobike = true;
            side.connection.local_addrs = vec![AddressSpec::Any(None)];
        });
        setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
        let delay = Duration::from_secs(if told { 0 } else { 20 });
        setup.a.connection.dpd_delay = delay;
        let mut pair = setup.build();
        pair.net.nats.push(Nat::new(address(1), [192, 0, 2, 1].into()));
        pair.establish();
        pair.net.nats[0].rebind();
        let ike = pair.ike_id(B);
        pair.command(B, Command::TerminateIke(ike));
        pair.rekey_child(A);
        if told {
            pair.tell_network(A);
        }
        let ended = |w: &ike_tests::World| w.hosts.iter().all(|host| host.ikes().is_empty());
        let limit = delay + Duration::from_secs(2);
        assert!(pair.run_until(limit, ended), "told: {told}\n{}", pair.story());
    }
}
