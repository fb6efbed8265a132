//! MOBIKE (RFC 4555) between our own, on a simulated network.

mod answers;
mod attacks;
mod hosts;
mod moves;
mod nat;
mod paths;
mod udp;

use std::net::IpAddr;
use std::time::Duration;

use ike_proto::config::AddressSpec;
use ike_proto::wire::registry::ExchangeType;
use ike_tests::{A, B, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Two ends that have MOBIKE, and may be anywhere.
fn setup(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.connection.mobike = true;
        side.connection.local_addrs = vec![AddressSpec::Any(None)];
    });
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup
}

/// Such a pair with a child, A the initiator.
fn established(seed: u64) -> Pair {
    let mut pair = setup(seed).build();
    for host in [A, B] {
        pair.tell_network(host);
    }
    pair.establish();
    assert!(pair.a().ike().mobike && pair.b().ike().mobike);
    pair
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Both ends use exactly this pair of addresses, for IKE and for every child, in the data planes too.
#[track_caller]
fn assert_at(pair: &Pair, a: IpAddr, b: IpAddr) {
    pair.assert_agreement();
    for (host, local, remote) in [(A, a, b), (B, b, a)] {
        let ike = pair.hosts[host].ike();
        let ends = (ike.path.local.ip(), ike.path.remote.ip());
        assert_eq!(ends, (local, remote), "host {host}\n{}", pair.story());
        for child in &ike.children {
            let ends = (child.inbound.dst, child.outbound.dst);
            assert_eq!(ends, (local, remote), "host {host}\n{}", pair.story());
        }
        let plane = &pair.hosts[host].plane;
        assert!(plane.inbound().all(|(id, _)| id.dst == local), "{}", pair.story());
        assert!(plane.outbound().all(|(id, _)| id.dst == remote), "{}", pair.story());
    }
}

/// Exchanges of this kind that were answered.
fn responses(pair: &Pair, exchange: ExchangeType) -> usize {
    pair.net.trace.iter().filter(|packet| packet.is(exchange, true)).count()
}
