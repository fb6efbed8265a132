//! What a life of a host is like: its connections, their peers, and what may happen.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{
    Action, AddressSpec, ChildConfig, ConnectionConfig, EndpointConfig, FailureShunt, IdMatch,
    Retransmission, TsSpec,
};
use ike_proto::crypto::CryptoProvider;
use ike_proto::wire::registry::ProtocolId;
use ike_tests::network::Conditions;
use ike_tests::packets::Inner;
use ike_tests::plane::Plane;
use ike_tests::setup::{self, identity, proposals, shared_key};
use ike_tests::{Seeded, World, cheap};

/// The machine of the daemon with the host. Its peers follow.
pub const HERE: usize = 0;

/// A connection of the daemon with one child.
#[derive(Debug, Clone, Copy)]
pub struct Tunnel {
    /// Of the connection, and of its child.
    pub name: &'static str,
    /// The machine of the peer.
    pub peer: usize,
    pub address: Ipv4Addr,
    /// What is behind the peer, and one host of it.
    remote: &'static str,
    beyond: Ipv4Addr,
}

/// A full tunnel, whose selectors take in all peers; a network, whose selectors take in the address of the third peer; and
/// that peer.
pub const TUNNELS: [Tunnel; 3] = [
    Tunnel {
        name: "full",
        peer: 1,
        address: Ipv4Addr::new(10, 0, 0, 2),
        remote: "0.0.0.0/0",
        beyond: Ipv4Addr::new(203, 0, 113, 5),
    },
    Tunnel {
        name: "site",
        peer: 2,
        address: Ipv4Addr::new(192, 0, 2, 3),
        remote: "10.2.0.0/16",
        beyond: Ipv4Addr::new(10, 2, 0, 5),
    },
    Tunnel {
        name: "inner",
        peer: 3,
        address: Ipv4Addr::new(10, 2, 0, 9),
        remote: "10.3.0.0/16",
        beyond: Ipv4Addr::new(10, 3, 0, 5),
    },
];

/// Of this host's side.
const LOCAL: &str = "10.1.0.0/16";
const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 5);

impl Tunnel {
    /// A packet to what is behind the peer.
    pub fn out(&self) -> Inner {
        Inner { src: HOST.into(), dst: self.beyond.into() }
    }
}

/// The addresses at which this host may be.
pub const PLACES: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(10, 0, 0, 12)];
/// Its address on the loopback, if it is a router that announces one.
pub const ANNOUNCED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// What a life has.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Of [`TUNNELS`], the first so many.
    pub tunnels: usize,
    /// Children are trapped, not started.
    pub traps: bool,
    /// Of [`TUNNELS`], those whose child has `hold`. The traffic of the others may leave in clear until they are trapped or up.
    pub held: [bool; 3],
    /// The tunnels end at an address on the loopback.
    pub announced: bool,
    /// The kernel has nf_tables.
    pub second_line: bool,
    /// The daemon starts before the first link is up.
    pub boots: bool,
    /// It ends before a peer has answered.
    pub ends_early: bool,
    pub mobike: bool,
    /// The longest from the last disturbance until all carry traffic.
    pub bound: Duration,
}

/// The longest a failed attempt waits before the next: a minute and a quarter of it.
const BACK_OFF: Duration = Duration::from_secs(75);

impl Plan {
    pub fn draw(rng: &mut Seeded) -> Self {
        let tunnels = [1, 2, 3, 3][usize::try_from(rng.below(4)).unwrap_or_default()];
        let announced = rng.chance(250);
        Self {
            tunnels,
            traps: rng.chance(300),
            held: std::array::from_fn(|_| rng.chance(600)),
            announced,
            second_line: rng.chance(600),
            boots: rng.chance(500),
            ends_early: rng.chance(250),
            mobike: rng.chance(500),
            bound: Duration::ZERO,
        }
    }

    pub fn tunnels(&self) -> &'static [Tunnel] {
        &TUNNELS[..self.tunnels]
    }

    /// True if the child of `tunnel` has `hold`.
    pub fn holds(&self, tunnel: &Tunnel) -> bool {
        let mut held = TUNNELS.iter().zip(self.held);
        held.any(|(it, held)| it.name == tunnel.name && held)
    }
}

/// The world of `plan`: this host's engine and its peers.
pub fn build(plan: &mut Plan, seed: u64, rng: &mut Seeded) -> (World, Arc<CryptoProvider>) {
    let crypto = cheap::provider();
    let mut world = World::new(seed);
    world.net.conditions = Conditions {
        delay: Duration::from_millis(1 + rng.below(40)),
        jitter: Duration::from_millis(rng.below(40)),
        ..Conditions::default()
    };
    let retransmission = Retransmission {
        timeout: Some(Duration::from_secs(1)),
        base: 1.5,
        tries: Some(3),
        ..Retransmission::default()
    };
    let dpd = Duration::from_secs(15 + rng.below(15));
    plan.bound = dpd + retransmission.longest() + BACK_OFF;
    let action = if plan.traps { Action::Trap } else { Action::Start };
    let local = if plan.announced { single(ANNOUNCED) } else { AddressSpec::Any(None) };
    let base = |name: &str, own: u8, peer: u8| {
        let mut connection = ConnectionConfig::new(name);
        connection.local_addrs = vec![AddressSpec::Any(None)];
        connection.remote_addrs = vec![AddressSpec::Any(None)];
        connection.mobike = plan.mobike;
        connection.dpd_delay = dpd;
        connection.keyingtries = 0;
        connection.proposals = proposals(ProtocolId::IKE, &["aes128gcm16-prfsha256-x25519"]);
        connection.set_local_id(Some(identity(own)));
        connection.set_remote_id(IdMatch::Exact(identity(peer)));
        connection
    };
    let settings = |secrets| EndpointConfig {
        secrets,
        retransmission,
        cookie_threshold_ip: 0,
        block_threshold: 0,
        follow_redirects: false,
        ..EndpointConfig::default()
    };
    let mut connections = Vec::new();
    let mut secrets = Vec::new();
    for tunnel in plan.tunnels() {
        let number = u8::try_from(tunnel.peer).expect("a few peers") + 1;
        let mut connection = base(tunnel.name, 1, number);
        connection.local_addrs = vec![local];
        connection.remote_addrs = vec![single(tunnel.address)];
        let mut own = child(tunnel.name, LOCAL, tunnel.remote);
        (own.start_action, own.close_action, own.dpd_action) = (action, action, action);
        own.hold = plan.holds(tunnel);
        connection.children = vec![Arc::new(own)];
        connections.push(Arc::new(connection));
        secrets.push(shared_key(1, number));
    }
    let here = EndpointConfig { connections, ..settings(secrets) };
    world.add(PLACES[0].into(), here, Arc::clone(&crypto), Plane::new());
    for tunnel in plan.tunnels() {
        let number = u8::try_from(tunnel.peer).expect("a few peers") + 1;
        let mut connection = base(tunnel.name, number, 1);
        let mut theirs = child(tunnel.name, tunnel.remote, LOCAL);
        (theirs.start_action, theirs.close_action, theirs.dpd_action) =
            (Action::None, Action::None, Action::None);
        theirs.failure_shunt = FailureShunt::Passthrough;
        connection.children = vec![Arc::new(theirs)];
        let config = EndpointConfig {
            connections: vec![Arc::new(connection)],
            ..settings(vec![shared_key(1, number)])
        };
        world.add(tunnel.address.into(), config, Arc::clone(&crypto), Plane::new());
    }
    (world, crypto)
}

fn single(address: Ipv4Addr) -> AddressSpec {
    AddressSpec::single(IpAddr::from(address))
}

fn child(name: &str, local: &str, remote: &str) -> ChildConfig {
    let fixed = |text: &str| vec![TsSpec::Fixed(text.parse().expect("a selector"))];
    ChildConfig {
        esp_proposals: proposals(ProtocolId::ESP, &["aes128gcm16"]),
        local_ts: fixed(local),
        remote_ts: fixed(remote),
        rekey_time: Duration::from_secs(3600),
        life_time: Duration::from_secs(4000),
        ..setup::child(name, 1, 2)
    }
}
