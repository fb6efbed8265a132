//! §2.11, §2.23: addresses and ports.

use std::net::SocketAddr;

use ike_proto::wire::registry::ExchangeType;
use ike_tests::bench::Bench;
use ike_tests::network::Packet;
use ike_tests::setup::address;

/// Hands `octets` to the endpoint as if from `src`; returns where its answers go.
fn answers_to(bench: &mut Bench, src: SocketAddr, octets: &[u8]) -> Vec<SocketAddr> {
    let dst = bench.world.socket(0, 500);
    bench.world.inject(Packet::forged(src, dst, octets));
    bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect()
}

#[test]
fn s2_11_a_response_goes_to_where_the_request_came_from() {
    let mut bench = Bench::new();
    let mut peer = bench.established(7);
    let elsewhere = SocketAddr::new(address(9), 1234);
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
    assert_eq!(answers_to(&mut bench, elsewhere, &request), [elsewhere]);
    // There is no NAT: nothing else goes there (§2.23).
    let home = SocketAddr::new(address(2), 500);
    assert_eq!(bench.host().ike().path.remote, home);
    let ike = bench.host().ike().id;
    bench.world.command(0, ike_proto::Command::TerminateIke(ike));
    let sent: Vec<_> = bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect();
    assert_eq!(sent, [home]);
}
