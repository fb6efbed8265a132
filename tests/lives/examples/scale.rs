//! What one more IKE SA costs where there are many: as much as where there are few, as the figures it
//! prints should show.
//!
//! `cargo run --release -p ike-test-lives --example scale -- [IKE SAS]`, by default 100,000.

use std::time::Instant;

use ike_proto::dataplane::{Event, SaId};
use ike_proto::wire::payload::Payload;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::bench::{Bench, PSK, auth_payloads, initiate};
use ike_tests::handmade::Handmade;
use ike_tests::setup::{address, identity};

/// IKE SAs between two measurements.
const STEP: u32 = 1000;

/// A handshake of a peer that deletes nothing; the peer.
fn handshake(bench: &mut Bench, spi: u32) -> Handmade {
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, spi, true);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(bench.give(&request).len(), 1);
    peer
}

/// What goes by names other than an IKE SPI: an outbound SA, a peer's address, a child.
fn look_up(bench: &mut Bench, spi: u32) {
    let sa = SaId { spi, dst: address(2) };
    bench.world.plane_event(0, Event::FirstPacket(sa));
    bench.world.command(0, initiate());
    bench.sent();
}

fn main() {
    let count = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse());
    let Ok(count) = count else { panic!("the argument is a number of IKE SAs") };
    let mut bench = Bench::new();
    for step in 0..count / STEP {
        let begun = Instant::now();
        for n in 0..STEP {
            let mut peer = handshake(&mut bench, 1000 + step * STEP + n);
            let empty: [Payload<'_>; 0] = [];
            let request = peer.next_request(ExchangeType::INFORMATIONAL, &empty);
            assert_eq!(bench.give(&request).len(), 1);
        }
        let made = begun.elapsed() / STEP;
        let begun = Instant::now();
        for n in 0..100 {
            look_up(&mut bench, 1000 + step * STEP + n);
        }
        let found = begun.elapsed() / 100;
        if (step + 1).is_power_of_two() || step + 1 == count / STEP {
            println!("{:>7} IKE SAs: {made:?} a handshake, {found:?} a look-up", (step + 1) * STEP);
        }
    }
}
