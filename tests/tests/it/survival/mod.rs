//! Handshakes that come up whatever happens to them on the way: narrow paths, lost answers, restarts, new
//! addresses, and messages from the past.

mod addresses;
mod chains;
mod crowded;
mod doubles;
mod found;
mod handover;
mod hard_limits;
mod late;
mod losses;
mod narrow;
mod probes;
mod replaced;
mod restarts;
mod times;
mod wanted;

use std::time::Duration;

use ike_proto::RequestId;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::network::Packet;
use ike_tests::{A, B, Pair, Setup, cheap};

/// Two ends whose IKE_INTERMEDIATE messages are as large as those of `method`.
fn large(seed: u64, method: &str) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.crypto = cheap::post_quantum();
        side.ike_proposals(&[&format!("aes256gcm16-prfsha384-x25519-ke1_{method}")]);
    });
    setup
}

/// Brings up "net" from A; returns how long it took.
#[track_caller]
fn up(pair: &mut Pair, limit: Duration) -> Duration {
    let request = pair.initiate(A, Some("net"));
    finish(pair, request, limit)
}

/// Waits until `request` of A is done; returns how long it took.
#[track_caller]
fn finish(pair: &mut Pair, request: RequestId, limit: Duration) -> Duration {
    let begun = pair.now();
    pair.run_until(limit, |w| w.hosts[A].done(request).is_some());
    let took = pair.now() - begun;
    assert_eq!(pair.hosts[A].done(request), Some(Ok(())), "{}", pair.story());
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.audit.complaints, Vec::<String>::new());
    for host in [A, B] {
        assert_eq!(pair.hosts[host].children_up().len(), 1, "{}", pair.story());
    }
    took
}

/// True for a message of the initial exchanges, or a fragment of one.
fn is_initial(packet: &Packet) -> bool {
    [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_INTERMEDIATE, ExchangeType::IKE_AUTH]
        .into_iter()
        .any(|exchange| packet.is(exchange, false) || packet.is(exchange, true))
}
