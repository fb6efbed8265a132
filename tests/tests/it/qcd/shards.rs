//! Several shards of one host have one secret, and one knows nothing of what the others have.

use std::net::SocketAddr;

use ike_proto::config::Shard;
use ike_proto::dataplane::DataPlane;
use ike_proto::{Endpoint, Input, Now, Output, Path, Registry, Transport};
use ike_tests::setup::{address, side};
use ike_tests::{Seeded, World};

use super::*;

/// What a shard answers to a request for an IKE SA of which it chose the responder's SPI.
fn answer(shard: Shard, spi_r: u64) -> Vec<Vec<u8>> {
    let mut side = side(2, 1);
    side.settings.shard = shard;
    side.settings.qcd = secrets(2, 4, 1);
    let capabilities = side.plane.capabilities();
    let rng = Box::new(Seeded::new(1));
    let config = side.config();
    let mut endpoint = Endpoint::shard(config, side.crypto, rng, capabilities, Registry::default());
    let octets = sealed(&request(0x4711, spi_r));
    let (local, remote) = (SocketAddr::new(address(2), 500), SocketAddr::new(address(1), 500));
    let path = Path { local, remote, transport: Transport::Udp };
    let now = Now { mono: World::new(1).instant(), wall: World::dawn() };
    endpoint.handle(now, Input::Datagram(path, &octets));
    loop {
        match endpoint.poll_output() {
            Output::Transmit(sent) => return tokens(&Packet::forged(local, remote, sent.octets)),
            Output::Timeout(_) => panic!("INVALID_IKE_SPI at least"),
            _ => {}
        }
    }
}

#[test]
fn a_shard_gives_no_token_for_what_another_may_have() {
    let spi = |index: u64| (index << 56) | 0x99;
    for index in 0..4 {
        let shard = Shard { index, count: 4 };
        for of in 0..4_u8 {
            let got = answer(shard, spi(of.into())).len();
            assert_eq!(got, usize::from(of == index), "{index} asked about one of {of}");
        }
    }
}

/// The SA was of a shard that is no more: any may answer, and all say the same.
#[test]
fn after_a_restart_with_fewer_shards() {
    let spi = (3 << 56) | 0x99;
    let before = answer(Shard { index: 3, count: 4 }, spi);
    assert_eq!(before.len(), 1);
    for index in 0..2 {
        assert_eq!(answer(Shard { index, count: 2 }, spi), before);
    }
    assert_eq!(answer(Shard::default(), spi), before);
}
