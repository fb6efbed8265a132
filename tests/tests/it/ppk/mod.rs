//! Post-quantum preshared keys: RFC 8784 in IKE_AUTH, RFC 9867 in IKE_INTERMEDIATE and
//! CREATE_CHILD_SA; and policies that take no fallback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod chain;
mod details;
mod gateway;
mod initial;
mod rekeys;
mod signed;
mod strict;

use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{PostQuantumKey, PpkConfig, PpkExchange, PpkId, PpkMatch, PpkRekey};
use ike_proto::crypto::Secret;
use ike_proto::{Event, Failure};
use ike_tests::setup::Side;
use ike_tests::{Pair, Setup};

/// Longer than every ladder of retransmissions and second opinion.
const LONG: Duration = Duration::from_secs(400);

fn id(text: &str) -> PpkId {
    PpkId::new(text.as_bytes())
}

/// A key of these identifiers.
fn key(ids: &[&str], secret: &str) -> Arc<PostQuantumKey> {
    let ids = ids.iter().map(|text| id(text)).collect();
    Arc::new(PostQuantumKey { ids, secret: Secret::copy_from(secret.as_bytes()) })
}

/// A connection that uses the PPK `name`.
fn uses(name: &str, required: bool, exchange: PpkExchange) -> PpkConfig {
    let ids = vec![PpkMatch::Exact(id(name))];
    PpkConfig { ids, required, exchange, rekey: PpkRekey::No }
}

/// Gives `side` one PPK, and the connection that uses it.
fn give(side: &mut Side, name: &str, secret: &str, required: bool, exchange: PpkExchange) {
    side.settings.ppks = vec![key(&[name], secret)];
    side.connection.ppk = uses(name, required, exchange);
}

/// Two ends with the same PPK "x", taken in by `exchange`.
fn keyed(seed: u64, required: bool, exchange: PpkExchange) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| give(side, "x", "the secret both ends have", required, exchange));
    setup
}

/// Lets `initiator` try, and tells how it ended after a long time.
#[track_caller]
fn attempt(pair: &mut Pair, initiator: usize) -> Result<(), Failure> {
    let request = pair.initiate(initiator, Some("net"));
    pair.run_for(LONG);
    pair.hosts[initiator].done(request).unwrap_or_else(|| panic!("no end\n{}", pair.story()))
}

/// Checks that neither end has anything of an IKE SA.
#[track_caller]
fn assert_nothing(pair: &Pair) {
    for host in &pair.hosts {
        assert!(host.ikes().is_empty(), "{}", pair.story());
        assert_eq!(host.endpoint.half_open(), 0);
        assert!(host.plane.inbound_spis().is_empty() && host.plane.outbound_spis().is_empty());
        assert!(host.events(|event| matches!(event, Event::IkeUp(_)).then_some(())).is_empty());
    }
}

/// How often `host` told that it went without its PPK.
fn audits(pair: &Pair, host: usize) -> usize {
    pair.hosts[host].events(|event| matches!(event, Event::WithoutPpk(_)).then_some(())).len()
}
