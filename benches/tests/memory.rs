//! What an SA holds on the heap stays within its limits, and what is refused leaves nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use ike_bench::memory::stages::{self, Measured};
use ike_bench::memory::suite::named;
use ike_bench::soak::{self, shapes::SHAPES};
use ike_tests::heap::Counting;

#[global_allocator]
static HEAP: Counting = Counting;

/// Tables at their usual fill: they double at 1,792 entries.
const SAS: usize = 1500;

/// What an established IKE SA has in the registry, by which those that cross it are known.
const PARTIES: f64 = 112.0;
/// What an initiator has beside its SA: that the child is wanted, and where it was last.
const WANTED: f64 = 272.0;
/// Octets for each established IKE SA with one child.
const ESTABLISHED: f64 = 4096.0 + PARTIES;
/// The same once all of them were rekeyed: tables that much comes to and goes from keep twice the room.
const REKEYED: f64 = ESTABLISHED + 1024.0;
/// The same of a half-open one, besides its IKE_SA_INIT messages.
const HALF_OPEN: f64 = 1024.0;

#[track_caller]
fn check(measured: &Measured) {
    let name = measured.suite.name;
    let half_open = measured.stage(stages::HALF_OPEN).unwrap().responder.octets;
    assert!(
        half_open <= HALF_OPEN + measured.init,
        "{name}: {half_open} half-open, {} of it messages",
        measured.init
    );
    for (stage, limit) in
        [(stages::IDLE, ESTABLISHED), (stages::CHILD_IDLE, REKEYED), (stages::IKE_IDLE, REKEYED)]
    {
        let stage = measured.stage(stage).unwrap();
        for (end, held) in [("responder", stage.responder), ("initiator", stage.initiator)] {
            let limit = if end == "initiator" { limit + WANTED } else { limit };
            let octets = held.octets;
            assert!(octets <= limit, "{name}, {}: {end} has {octets}", stage.name);
        }
    }
}

#[test]
fn an_sa_with_a_pre_shared_key_is_within_the_limits() {
    check(&stages::measure(named("psk-x25519").unwrap(), SAS, false).unwrap());
}

#[test]
fn an_sa_with_certificates_and_ml_kem_is_within_the_limits() {
    check(&stages::measure(named("ecdsa-mlkem768").unwrap(), SAS, false).unwrap());
}

#[test]
fn rekeys_leave_nothing() {
    let suite = named("psk-x25519").unwrap();
    let (readings, [ike, child]) = soak::lives(suite, 10, Duration::from_secs(4 * 3600)).unwrap();
    assert!(ike > 100 && child > 200, "{ike} and {child} rekeys");
    soak::check("rekeys", &readings).unwrap();
}

#[test]
fn what_is_refused_leaves_nothing() {
    let suite = named("psk-x25519").unwrap();
    for shape in SHAPES {
        let readings = soak::attack(suite, *shape, 1000).unwrap();
        soak::check(shape.name, &readings).unwrap();
        let (first, last) = (readings[0].gateway, readings.last().unwrap().gateway);
        assert!(last - first < 16 << 10, "{}: {first} octets became {last}", shape.name);
    }
}
