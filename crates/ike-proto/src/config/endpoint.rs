//! Settings of a whole endpoint; names and defaults as in strongswan.conf(5).

use std::sync::Arc;
use std::time::Duration;

use super::child::ShuntConfig;
use super::connection::{ConnectionConfig, PreSharedKey};
use super::ppk::PostQuantumKey;

/// Which of several endpoints this is. The index is the top octet of every SPI chosen here, so that
/// a datagram can be steered to its shard by SPI alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// This shard, below `count`.
    pub index: u8,
    /// Shards in all, at least 1.
    pub count: u8,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 0, count: 1 }
    }
}

/// The retransmission ladder: try `n` (from 0) waits `timeout * base^n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retransmission {
    /// `retransmit_timeout`.
    pub timeout: Duration,
    /// `retransmit_base`.
    pub base: f64,
    /// `retransmit_tries`: sends after the first before giving up.
    pub tries: u32,
    /// `retransmit_limit`: no wait is longer; zero for no limit.
    pub limit: Duration,
    /// `retransmit_jitter`: up to this many percent are taken off each wait.
    pub jitter: u32,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(4),
            base: 1.8,
            tries: 5,
            limit: Duration::ZERO,
            jitter: 0,
        }
    }
}

/// Settings and connections of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Shard of this endpoint.
    pub shard: Shard,
    /// Connections in order; the first that fits is taken. A responder takes, of those that fit, the
    /// first of those whose `id` says most exactly who the peer is.
    pub connections: Vec<Arc<ConnectionConfig>>,
    /// Policies without SAs that are to be there from the start. The engine leaves them to who runs the
    /// data plane.
    pub shunts: Vec<ShuntConfig>,
    /// Pre-shared keys.
    pub secrets: Vec<Arc<PreSharedKey>>,
    /// Post-quantum preshared keys, in order of preference.
    pub ppks: Vec<Arc<PostQuantumKey>>,
    /// Retransmission ladder.
    pub retransmission: Retransmission,
    /// `cookie_threshold`: half-open SAs, the one asked for among them, from which a COOKIE is demanded
    /// (RFC 7296 §2.6): 1 demands one always, 0 never.
    pub cookie_threshold: u32,
    /// `cookie_threshold_ip`: the same for those begun from one address, of IPv6 from one /64. Below
    /// `block_threshold`, so that nobody can block an address he does not have.
    pub cookie_threshold_ip: u32,
    /// `block_threshold`: half-open SAs begun from one address above which requests from there are
    /// dropped; 0 for no limit.
    pub block_threshold: u32,
    /// `init_limit_half_open`: half-open SAs in all above which requests are dropped; 0 for no limit.
    pub init_limit_half_open: u32,
    /// `half_open_timeout`: a responder's SA that is not established by then is dropped.
    pub half_open_timeout: Duration,
    /// `fragment_size`: octets of an IP packet carrying a fragment, 160 at least; 0 takes 1280. (Of
    /// IPv6 1280 is always safe, of IPv4 576.)
    pub fragment_size: u16,
    /// `max_packet`: the largest reassembled message accepted, in octets.
    pub max_packet: usize,
    /// Octets that incomplete fragmented messages of all SAs together may hold; half of it those of
    /// peers not authenticated yet. One message gets a quarter of either at the most.
    pub reassembly_memory: usize,
    /// `signature_authentication`: announce and use the method of RFC 7427, for signatures by other
    /// schemes than the old methods have.
    pub signature_authentication: bool,
    /// `keep_alive`: interval of NAT keepalives; zero turns them off.
    pub keep_alive: Duration,
    /// `retry_initiate_interval`: wait before a failed `start` is tried again.
    pub retry_initiate_interval: Duration,
    /// `delete_rekeyed_delay`: a rekeyed inbound SA still decrypts this long.
    pub delete_rekeyed_delay: Duration,
    /// UDP port this endpoint receives encapsulated traffic on, 4500 unless tests say otherwise.
    pub natt_port: u16,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            shard: Shard::default(),
            connections: Vec::new(),
            shunts: Vec::new(),
            secrets: Vec::new(),
            ppks: Vec::new(),
            retransmission: Retransmission::default(),
            cookie_threshold: 30,
            cookie_threshold_ip: 3,
            block_threshold: 5,
            init_limit_half_open: 0,
            half_open_timeout: Duration::from_secs(30),
            fragment_size: 1280,
            max_packet: 65_535,
            reassembly_memory: 16 << 20,
            signature_authentication: true,
            keep_alive: Duration::from_secs(20),
            retry_initiate_interval: Duration::from_secs(60),
            delete_rekeyed_delay: Duration::from_secs(5),
            natt_port: 4500,
        }
    }
}
