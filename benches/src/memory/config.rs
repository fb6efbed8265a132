//! What the gateway and its clients are configured with.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{
    AddressSpec, AuthConfig, CertRequest, ChildConfig, ConnectionConfig, EndpointConfig, IdMatch,
    LocalAuth, PreSharedKey, RemoteAuth, TsSpec,
};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::Capabilities;
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::{CertEncoding, ProtocolId};
use ike_tests::setup::proposals;

use super::suite::{Auth, Suite};

/// Where the gateway is.
pub const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The name of the gateway's connection.
const CONNECTION: &str = "roadwarriors";

/// When SAs are rekeyed, and peers that are silent asked whether they live.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// `rekey_time` of IKE SAs.
    pub ike: Duration,
    /// `rekey_time` of children.
    pub child: Duration,
    /// `dpd_delay`.
    pub dpd: Duration,
}

/// The gateway's: any address, any identity.
pub(super) fn gateway(suite: Suite, times: Option<Times>) -> EndpointConfig {
    let mut connection = connection(suite, times, CONNECTION, IdData::fqdn("gateway.example.org"));
    connection.remote_addrs = vec![AddressSpec::Any(None)];
    let ts = TsSpec::Fixed("10.200.0.0/16".parse().expect("a prefix"));
    let child = ChildConfig { local_ts: vec![ts], ..child(suite, times) };
    connection.children = vec![Arc::new(child)];
    config(vec![connection])
}

/// One endpoint's with a connection for each of the clients `numbers`.
pub fn clients(
    suite: Suite,
    times: Option<Times>,
    numbers: impl Iterator<Item = usize>,
) -> EndpointConfig {
    let ts = TsSpec::Fixed("10.200.0.0/16".parse().expect("a prefix"));
    let child = Arc::new(ChildConfig { remote_ts: vec![ts], ..child(suite, times) });
    let one = |number| {
        let id = IdData::fqdn(format!("client-{number:06}.example.org"));
        let mut connection = connection(suite, times, &name(number), id);
        connection.remote_addrs = vec![AddressSpec::single(GATEWAY)];
        connection.set_remote_id(IdMatch::Exact(IdData::fqdn("gateway.example.org")));
        connection.children = vec![Arc::clone(&child)];
        connection
    };
    config(numbers.map(one).collect())
}

fn child(suite: Suite, times: Option<Times>) -> ChildConfig {
    let esp_proposals = proposals(ProtocolId::ESP, &[suite.esp]);
    let mut child = ChildConfig { esp_proposals, ..ChildConfig::new("net") };
    if let Some(times) = times {
        child.rekey_time = times.child;
        child.life_time = times.child * 2;
        child.rand_time = times.child / 2;
    }
    child
}

fn connection(suite: Suite, times: Option<Times>, name: &str, id: IdData) -> ConnectionConfig {
    let mut connection = ConnectionConfig::new(name);
    if let Some(times) = times {
        connection.rekey_time = times.ike;
        connection.over_time = times.ike;
        connection.rand_time = times.ike / 2;
        connection.dpd_delay = times.dpd;
    }
    connection.proposals = proposals(ProtocolId::IKE, &[suite.ike]);
    if suite.auth == Auth::Certificates {
        connection.local = vec![LocalAuth::new("local", AuthConfig::pubkey())];
        let encoding = CertEncoding::X509_SIGNATURE;
        let certreqs = vec![CertRequest { encoding, authorities: vec![0x5a; 20] }];
        let remote = RemoteAuth::new("remote", AuthConfig::pubkey());
        connection.remote = vec![RemoteAuth { certreqs, ..remote }];
    }
    connection.set_local_id(Some(id));
    connection
}

/// Of an endpoint that takes any number of strangers.
fn config(connections: Vec<ConnectionConfig>) -> EndpointConfig {
    let secret = Secret::copy_from(b"a secret that all of them share");
    EndpointConfig {
        connections: connections.into_iter().map(Arc::new).collect(),
        secrets: vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })],
        cookie_threshold: 0,
        cookie_threshold_ip: 0,
        block_threshold: 0,
        init_limit_half_open: 0,
        ..EndpointConfig::default()
    }
}

/// The name of a client's connection.
pub fn name(number: usize) -> String {
    format!("client-{number}")
}

/// The address of a client; there are 2^24.
pub fn address(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(FIRST + u32::try_from(number).unwrap_or(u32::MAX - FIRST)))
}

/// Which client has this address; `None` is the gateway's.
pub(super) fn number(address: IpAddr) -> Option<usize> {
    let IpAddr::V4(address) = address else { return None };
    if IpAddr::V4(address) == GATEWAY {
        return None;
    }
    address.to_bits().checked_sub(FIRST).and_then(|number| usize::try_from(number).ok())
}

/// 10.0.0.0.
const FIRST: u32 = 0x0a00_0000;

/// A data plane that has all but what it would have to show.
pub const PLANE: Capabilities = Capabilities {
    transport_mode: true,
    esn: true,
    plain_esp: true,
    udp_costs_less: false,
    tcp_esp: false,
    iptfs: false,
    per_cpu: false,
    cpus: 1,
    processing: true,
    header_fields: true,
};
