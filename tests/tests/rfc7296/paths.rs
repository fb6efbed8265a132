//! §2.4, §2.11, §2.23: addresses, ports, and who is the only one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::Command;
use ike_proto::config::{AddressSpec, TsSpec};
use ike_proto::dataplane::{Mode, TrafficSelector};
use ike_proto::wire::registry::ExchangeType;
use ike_tests::bench::Bench;
use ike_tests::network::{Nat, Packet};
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup};

/// Hands `octets` to the endpoint as if from `src`; returns where its answers go.
fn answers_to(bench: &mut Bench, src: SocketAddr, octets: &[u8]) -> Vec<SocketAddr> {
    let dst = bench.world.socket(0, 500);
    bench.world.inject(Packet::forged(src, dst, octets));
    bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect()
}

#[test]
fn s2_11_a_response_goes_to_where_the_request_came_from() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let elsewhere = SocketAddr::new(address(9), 1234);
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
    assert_eq!(answers_to(&mut bench, elsewhere, &request), [elsewhere]);
    // There is no NAT: nothing else goes there (§2.23).
    let home = SocketAddr::new(address(2), 500);
    assert_eq!(bench.host().ike().path.remote, home);
    let ike = bench.host().ike().id;
    bench.world.command(0, Command::TerminateIke(ike));
    let sent: Vec<_> = bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect();
    assert_eq!(sent, [home]);
}

/// The client is behind a NAT, the server names itself by its own address: what each end installs is
/// in its own terms, and rekeying keeps it so.
#[test]
fn s2_23_1_transport_mode_behind_a_nat() {
    let outside: IpAddr = [192, 0, 2, 1].into();
    let mut setup = Setup::new(1);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.both(|side| {
        let net = side.net();
        net.mode = Mode::Transport;
        (net.local_ts, net.remote_ts) = (vec![TsSpec::DYNAMIC], vec![TsSpec::DYNAMIC]);
    });
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), outside));
    pair.establish();
    let seen = |local: IpAddr, remote: IpAddr| {
        (vec![TrafficSelector::host(local)], vec![TrafficSelector::host(remote)])
    };
    let assert_in_own_terms = |pair: &Pair| {
        let (a, b) = (pair.a().child(), pair.b().child());
        assert_eq!((a.mode, b.mode), (Mode::Transport, Mode::Transport));
        assert!(a.encap && b.encap);
        assert_eq!((a.local_ts, a.remote_ts), seen(address(1), address(2)));
        assert_eq!((b.local_ts, b.remote_ts), seen(address(2), outside));
    };
    assert_in_own_terms(&pair);
    for end in [A, B] {
        pair.rekey_child(end);
        pair.run_for(Duration::from_secs(30));
        assert_in_own_terms(&pair);
    }
}

/// Two connections between the same identities, brought up at once: neither says that it is the only
/// one.
#[test]
fn s2_4_initial_contact_is_not_said_of_a_second_ike_sa() {
    let mut setup = Setup::new(1);
    setup.both(|side| {
        let mut more = side.connection.clone();
        more.name = "more".to_owned();
        more.children = side.children.iter().cloned().map(Arc::new).collect();
        side.more.push(more);
    });
    let mut pair = setup.build();
    for connection in ["ab", "more"] {
        let child = Some("net".to_owned());
        let (local, remote) = (address(1), address(2));
        let connection = connection.to_owned();
        pair.command(A, Command::Initiate { connection, child, local, remote, packet: None });
    }
    pair.run_for(Duration::from_secs(30));
    assert_eq!((pair.a().ikes().len(), pair.b().ikes().len()), (2, 2), "{}", pair.story());
}
