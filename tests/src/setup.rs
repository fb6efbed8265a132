//! Two endpoints that fit together, to be changed before they are built.

use std::net::IpAddr;
use std::sync::Arc;

use ike_proto::config::{
    AddressSpec, ChildConfig, ConnectionConfig, EndpointConfig, IdMatch, PostQuantumKey, PpkConfig,
    PpkExchange, PpkId, PpkMatch, PpkRekey, PreSharedKey, ProposalConfig, TsSpec,
};
use ike_proto::crypto::{CryptoProvider, Secret};
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::ProtocolId;
use pki::Answerer;

use crate::cheap;
use crate::network::Conditions;
use crate::pair::Pair;
use crate::plane::Plane;
use crate::random::Seeded;
use crate::world::World;

/// IKE proposals without additional key exchanges.
pub const CLASSICAL_IKE: &[&str] = &[
    "aes256gcm16-aes128gcm16-chacha20poly1305-prfsha256-prfsha384-prfsha512-\
     x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048",
    "aes256-aes128-sha256-sha384-sha512-prfsha256-prfsha384-prfsha512-\
     x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048",
];
/// ESP proposals without key exchanges.
pub const CLASSICAL_ESP: &[&str] =
    &["aes256gcm16-aes128gcm16-chacha20poly1305", "aes256-aes128-sha256-sha384-sha512"];

/// One end of a [`Setup`].
pub struct Side {
    /// Its address.
    pub address: IpAddr,
    /// Settings; connections are added from `connection` and `more`.
    pub settings: EndpointConfig,
    /// The connection, called "ab"; its children are those of `children`.
    pub connection: ConnectionConfig,
    /// The children; the first is called "net".
    pub children: Vec<ChildConfig>,
    /// Connections besides.
    pub more: Vec<ConnectionConfig>,
    /// Backends.
    pub crypto: Arc<CryptoProvider>,
    /// Data plane.
    pub plane: Plane,
    /// Keys and certificates.
    pub answerer: Answerer,
}

impl Side {
    /// The configuration as the endpoint gets it.
    pub fn config(&self) -> EndpointConfig {
        let children = self.children.iter().cloned().map(Arc::new).collect();
        let connection = ConnectionConfig { children, ..self.connection.clone() };
        let more = self.more.iter().cloned();
        let connections = std::iter::once(connection).chain(more).map(Arc::new).collect();
        EndpointConfig { connections, ..self.settings.clone() }
    }

    /// The first child, "net".
    pub fn net(&mut self) -> &mut ChildConfig {
        &mut self.children[0]
    }

    /// Sets `proposals`.
    ///
    /// # Panics
    ///
    /// If one cannot be parsed.
    pub fn ike_proposals(&mut self, texts: &[&str]) {
        self.connection.proposals = proposals(ProtocolId::IKE, texts);
    }

    /// Sets `esp_proposals` of every child.
    ///
    /// # Panics
    ///
    /// If one cannot be parsed.
    pub fn esp_proposals(&mut self, texts: &[&str]) {
        for child in &mut self.children {
            child.esp_proposals = proposals(ProtocolId::ESP, texts);
        }
    }

    /// Adds a child between `10.local.0.0/16` and `10.remote.0.0/16`.
    pub fn add_child(&mut self, name: &str, local: u8, remote: u8) -> &mut ChildConfig {
        self.children.push(child(name, local, remote));
        let last = self.children.len() - 1;
        &mut self.children[last]
    }
}

/// Two ends, the conditions between them, and a seed.
pub struct Setup {
    /// Seed.
    pub seed: u64,
    /// `10.0.0.1`, "a.example", in front of `10.1.0.0/16`.
    pub a: Side,
    /// `10.0.0.2`, "b.example", in front of `10.2.0.0/16`.
    pub b: Side,
    /// The network.
    pub conditions: Conditions,
}

impl Setup {
    /// Two ends that agree on everything, with a child "net". Lifetimes are long; timers that need
    /// no reason to fire are off. Proposals are classical, so that exchanges are few:
    /// [`default_proposals`](Self::default_proposals) has the others.
    pub fn new(seed: u64) -> Self {
        Self { seed, a: side(1, 2), b: side(2, 1), conditions: Conditions::default() }
    }

    /// With the proposals that a configuration has which names none, and the key exchanges for them.
    pub fn default_proposals(mut self) -> Self {
        self.both(|side| {
            side.connection.proposals = ProposalConfig::default_ike();
            for child in &mut side.children {
                child.esp_proposals = ProposalConfig::default_esp();
            }
            side.crypto = cheap::hybrid();
        });
        self
    }

    /// With the real key exchanges in the place of the cheap ones.
    pub fn real(mut self) -> Self {
        self.a.crypto = cheap::real();
        self.b.crypto = cheap::real();
        self
    }

    /// Gives both ends a post-quantum preshared key, used in one of the ways there are.
    pub fn share_ppk(&mut self, rng: &mut Seeded) {
        let exchange = match rng.below(3) {
            0 => PpkExchange::Auth,
            1 => PpkExchange::Intermediate,
            _ => PpkExchange::Any,
        };
        let rekey = match rng.below(3) {
            0 => PpkRekey::No,
            1 => PpkRekey::Yes,
            _ => PpkRekey::Require,
        };
        let required = rng.chance(500);
        let secret = self.seed.to_be_bytes();
        self.both(|side| {
            let id = PpkId::new(&b"ppk"[..]);
            let secret = Secret::copy_from(&secret);
            side.settings.ppks = vec![Arc::new(PostQuantumKey { ids: vec![id], secret })];
            let ids = vec![PpkMatch::Any];
            side.connection.ppk = PpkConfig { ids, required, exchange, rekey };
        });
    }

    /// Does the same to both ends.
    pub fn both(&mut self, f: impl Fn(&mut Side)) {
        f(&mut self.a);
        f(&mut self.b);
    }

    /// Builds the pair.
    pub fn build(self) -> Pair {
        let mut world = World::new(self.seed);
        world.net.conditions = self.conditions;
        for side in [self.a, self.b] {
            let config = side.config();
            let host = world.add(side.address, config, side.crypto, side.plane);
            world.hosts[host].answerer = side.answerer;
        }
        Pair::new(world)
    }
}

/// Proposals of `texts`.
///
/// # Panics
///
/// If one cannot be parsed.
pub fn proposals(protocol: ProtocolId, texts: &[&str]) -> Vec<ProposalConfig> {
    texts.iter().map(|text| ProposalConfig::parse(protocol, text).expect("a proposal")).collect()
}

/// A child between `10.local.0.0/16` and `10.remote.0.0/16`.
pub fn child(name: &str, local: u8, remote: u8) -> ChildConfig {
    let net = |n: u8| TsSpec::Fixed(format!("10.{n}.0.0/16").parse().expect("a selector"));
    ChildConfig {
        esp_proposals: proposals(ProtocolId::ESP, CLASSICAL_ESP),
        local_ts: vec![net(local)],
        remote_ts: vec![net(remote)],
        ..ChildConfig::new(name)
    }
}

/// The identity of the host with this number: "a.example" for 1.
pub fn identity(n: u8) -> IdData {
    IdData::fqdn(format!("{}.example", char::from(b'a' + n - 1)))
}

/// The address of the host with this number.
pub fn address(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

/// A key that hosts `n` and `m` share.
pub fn shared_key(n: u8, m: u8) -> Arc<PreSharedKey> {
    let (low, high) = (n.min(m), n.max(m));
    Arc::new(PreSharedKey {
        ids: vec![identity(n), identity(m)],
        secret: Secret::copy_from(format!("secret of {low} and {high}").as_bytes()),
    })
}

/// The end of host `n` towards host `m`.
pub fn side(n: u8, m: u8) -> Side {
    let mut connection = ConnectionConfig::new("ab");
    connection.local_addrs = vec![AddressSpec::single(address(n))];
    connection.remote_addrs = vec![AddressSpec::single(address(m))];
    // Nobody moves or goes, unless a test wants it: ports and sizes stay what they are.
    connection.mobike = false;
    connection.proposals = proposals(ProtocolId::IKE, CLASSICAL_IKE);
    connection.set_local_id(Some(identity(n)));
    connection.set_remote_id(IdMatch::Exact(identity(m)));
    // One address stands for any number of peers here.
    let settings = EndpointConfig {
        secrets: vec![shared_key(n, m)],
        cookie_threshold_ip: 0,
        block_threshold: 0,
        follow_redirects: false,
        ..EndpointConfig::default()
    };
    Side {
        address: address(n),
        settings,
        connection,
        children: vec![child("net", n, m)],
        more: Vec::new(),
        crypto: cheap::provider(),
        plane: Plane::new(),
        answerer: Answerer::default(),
    }
}
