//! Settings of a whole endpoint; names and defaults as in strongswan.conf(5).

use std::sync::Arc;
use std::time::Duration;

use super::child::ShuntConfig;
use super::connection::{ConnectionConfig, PreSharedKey};
use super::ppk::PostQuantumKey;
use super::qcd::QcdConfig;
use super::redirect::RedirectPolicy;
use super::resumption::ResumptionConfig;
use super::shard::Shard;
use crate::wire::registry::FrodoNumbers;

/// The longest retransmission timer, unless the octets alone take longer.
pub(crate) const LONGEST_TIMER: Duration = Duration::from_secs(15);

/// When an unanswered request is sent again (RFC 7296 §2.4).
///
/// With a `timeout` this is the schedule of strongswan.conf(5): try `n` (from 0) waits `timeout * base^n`. Without
/// one the wait follows the path: 500 ms at first, then the round-trip time and its variation (RFC 6298), plus the
/// time that the octets of the message take at the path's rate. It grows by `base` with each try, up to 15 s.
/// Large messages are then paced as well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retransmission {
    /// `retransmit_timeout`; `None` follows the path's round-trip time.
    pub timeout: Option<Duration>,
    /// `retransmit_base`.
    pub base: f64,
    /// `retransmit_tries`: retransmissions before giving up; `None` gives up with the schedule of
    /// [`strongswan`](Self::strongswan), 165 s after the first transmission.
    pub tries: Option<u32>,
    /// `retransmit_limit`: the longest wait; zero for no limit.
    pub limit: Duration,
    /// `retransmit_jitter`: the highest percentage by which each wait of the schedule is shortened, or each wait
    /// that follows the path is lengthened.
    pub jitter: u32,
}

impl Retransmission {
    /// The defaults of strongswan.conf(5): 4.0 s, growing 1.8 times with each of five tries.
    pub fn strongswan() -> Self {
        Self {
            timeout: Some(Duration::from_secs(4)),
            tries: Some(5),
            jitter: 0,
            ..Self::adaptive()
        }
    }

    /// Waits that follow the path, for as long as strongSwan's schedule. The default.
    pub fn adaptive() -> Self {
        Self { timeout: None, base: 1.8, tries: None, limit: Duration::ZERO, jitter: 10 }
    }

    /// The longest time from the first transmission of a request until it is given up: the whole schedule, without
    /// the time that large messages take on slow links. At most a day.
    pub fn longest(&self) -> Duration {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let capped = |wait: Duration| match self.limit {
            Duration::ZERO => wait,
            limit => wait.min(limit),
        };
        let ladder = |timeout: Duration, base: f64, tries: u32| {
            let mut all = Duration::ZERO;
            let mut wait = timeout;
            for _ in 0..=tries {
                all += capped(wait);
                if all >= DAY {
                    return DAY;
                }
                wait = Duration::try_from_secs_f64(wait.as_secs_f64() * base.max(1.0))
                    .map_or(DAY, |wait| wait.min(DAY));
            }
            all
        };
        let field = Self::strongswan();
        let field_tries = field.tries.unwrap_or(5);
        match (self.timeout, self.tries) {
            (Some(timeout), tries) => ladder(timeout, self.base, tries.unwrap_or(field_tries)),
            (None, None) => Self { limit: Duration::ZERO, ..field }.longest(),
            // Each wait is limited, and jitter is added to it.
            (None, Some(tries)) => {
                let jitter = 1.0 + f64::from(self.jitter.min(100)) / 100.0;
                ladder(LONGEST_TIMER.mul_f64(jitter), 1.0, tries)
            }
        }
    }
}

impl Default for Retransmission {
    fn default() -> Self {
        Self::adaptive()
    }
}

/// Notify message types of draft-antony-ipsecme-ikev2-fragment-acknowledgment. IANA has assigned none yet. These
/// are of the private range, and both ends must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentAckTypes {
    /// FRAGMENT_ACK_SUPPORTED.
    pub supported: u16,
    /// FRAGMENT_ACK_REQ.
    pub request: u16,
    /// FRAGMENT_ACK_RES.
    pub response: u16,
}

impl FragmentAckTypes {
    /// The Vendor ID (RFC 7296 §3.12) by which an initiator announces these numbers. Numbers of the private range mean
    /// something else to other implementations. So a responder uses them only with a peer that has sent this
    /// Vendor ID or FRAGMENT_ACK_SUPPORTED, and an initiator never begins with them.
    ///
    /// Its four octets take no more space in IKE_SA_INIT than the notify that it replaces.
    pub fn vendor_id(self) -> Vec<u8> {
        let numbers = self.supported ^ self.request.rotate_left(5) ^ self.response.rotate_left(10);
        b"pq".iter().copied().chain(numbers.to_be_bytes()).collect()
    }
}

impl Default for FragmentAckTypes {
    fn default() -> Self {
        Self { supported: 51_521, request: 51_522, response: 51_523 }
    }
}

/// Settings and connections of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Shard of this endpoint.
    pub shard: Shard,
    /// Connections in order; the first one that fits is used. A responder uses, of those that fit, the first one
    /// with the most exact `id`.
    pub connections: Vec<Arc<ConnectionConfig>>,
    /// Policies without SAs that are to be installed from the start. The owner of the data plane installs them,
    /// not the engine.
    pub shunts: Vec<ShuntConfig>,
    /// Pre-shared keys.
    pub secrets: Vec<Arc<PreSharedKey>>,
    /// Post-quantum preshared keys, in order of preference.
    pub ppks: Vec<Arc<PostQuantumKey>>,
    /// `retransmit_…`.
    pub retransmission: Retransmission,
    /// `fragment_ack`: whether fragments are acknowledged, with peers that announce it too
    /// (draft-antony-ipsecme-ikev2-fragment-acknowledgment), and by which numbers.
    pub fragment_ack: Option<FragmentAckTypes>,
    /// `frodokem_type`, `efrodokem_type`: transform IDs of FrodoKEM. The key exchanges of the endpoint's crypto
    /// provider must have the same.
    pub frodokem: FrodoNumbers,
    /// Notify message type of SEPARATE_TRANSPORTS (draft-ietf-ipsecme-ikev2-reliable-transport), of the
    /// private range as well.
    pub separate_transports: u16,
    /// `send_invalid_spi`: a host that sends ESP packets without an SA gets INVALID_SPI (RFC 7296 §1.5), if the
    /// data plane reports such packets ([`Event::UnknownSpi`](crate::dataplane::Event::UnknownSpi)).
    pub send_invalid_spi: bool,
    /// The driver accepts TCP connections (RFC 9329): a peer that has begun over UDP may continue over TCP.
    pub accepts_tcp: bool,
    /// `cookie_threshold`: half-open SAs, the requested one included, from which on a COOKIE is demanded (RFC 7296
    /// §2.6): 1 always demands one, 0 never. With any value but 0 a COOKIE is also demanded while the driver is
    /// [behind](crate::Input::Behind). This is about UDP. Over TCP only 1 demands a COOKIE (RFC 9329 §6.3).
    pub cookie_threshold: u32,
    /// `cookie_threshold_ip`: the same for SAs from one address, or one /64 of IPv6. It is below
    /// `block_threshold`, so that no attacker can block an address that it does not have.
    pub cookie_threshold_ip: u32,
    /// `block_threshold`: half-open SAs of one IPv4 address or IPv6 /64 at the most; 0 for no limit. Above it, a peer
    /// with a cookie takes the place of the half-open SA that has been silent for the longest time, if for a second or
    /// more. Other requests are dropped.
    pub block_threshold: u32,
    /// `init_limit_half_open`: half-open SAs in all at the most; 0 for no limit, which is strongSwan's default. A
    /// half-open SA counts once for each 2 KiB of its IKE_SA_INIT request. Above the limit, a peer with a cookie
    /// takes the place of the oldest half-open SA of the network that has the most. Other requests are dropped.
    pub init_limit_half_open: u32,
    /// `half_open_timeout`: a responder's SA that is not established within this time is dropped.
    pub half_open_timeout: Duration,
    /// `fragment_size`: octets of an IP packet with a fragment, 160 at least; 0 uses a size that is always safe,
    /// 1280 over IPv6 and 576 over IPv4. `None` discovers the path MTU (RFC 7383 §2.5.2). It begins with the value
    /// of [`Input::PathMtu`](crate::Input::PathMtu), 1500 at most, or with 1280, and goes down to 1280 and 576 if
    /// no answer comes.
    pub fragment_size: Option<u16>,
    /// `max_packet`: the largest reassembled message accepted, in octets.
    pub max_packet: usize,
    /// `reassembly_memory`: octets of peers' messages in all, at the most: incomplete fragmented messages, and messages
    /// that wait for a verdict, a signature or a slow key exchange. Three eighths are for peers that began and are not
    /// authenticated, an eighth for their waiting messages up to 4 KiB, a quarter for peers that this end began with, a
    /// quarter for authenticated peers. One message gets a quarter of a part at the most. If a part is used up, the
    /// origin that holds the most loses its oldest message.
    pub reassembly_memory: usize,
    /// `signature_authentication`: announce and use the method of RFC 7427, for schemes that the older methods
    /// lack.
    pub signature_authentication: bool,
    /// `hash_and_url`: when certificates are requested, announce that they may come as hash and URL (RFC 7296
    /// §3.6). The answering side of [`Question::Judge`](crate::Question::Judge) must then fetch them.
    pub hash_and_url: bool,
    /// `keep_alive`: interval of NAT keepalives; zero turns them off.
    pub keep_alive: Duration,
    /// `retry_initiate_interval`: the wait before a failed `start` is tried again.
    pub retry_initiate_interval: Duration,
    /// `delete_rekeyed_delay`: how long the SAs of a rekeyed child stay, the inbound one to decrypt, the outbound
    /// one for packets that are still in the stack.
    pub delete_rekeyed_delay: Duration,
    /// `prefer_best_path`: an IKE SA with MOBIKE moves to the path that the routes prefer, even if its present
    /// path still exists.
    pub prefer_best_path: bool,
    /// `return_routability`: a responder with MOBIKE moves the children to another address of the peer only after
    /// the peer has answered from there (RFC 4555 §3.7).
    pub return_routability: bool,
    /// `follow_redirects`: whether a client follows redirects of its gateway (RFC 5685).
    pub follow_redirects: bool,
    /// `redirect`: which clients this gateway redirects.
    pub redirect: RedirectPolicy,
    /// Quick crash detection (RFC 6290): the secrets of tokens.
    pub qcd: QcdConfig,
    /// `session_resumption`: the keys with which this gateway seals tickets (RFC 5723).
    pub resumption: ResumptionConfig,
    /// The UDP port of this endpoint for encapsulated traffic; 4500 except in tests.
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
            fragment_ack: Some(FragmentAckTypes::default()),
            frodokem: FrodoNumbers::default(),
            separate_transports: 51_524,
            send_invalid_spi: false,
            accepts_tcp: false,
            cookie_threshold: 30,
            cookie_threshold_ip: 3,
            block_threshold: 5,
            init_limit_half_open: 10_000,
            half_open_timeout: Duration::from_secs(30),
            fragment_size: None,
            max_packet: 65_535,
            reassembly_memory: 64 << 20,
            signature_authentication: true,
            hash_and_url: false,
            keep_alive: Duration::from_secs(20),
            retry_initiate_interval: Duration::from_secs(60),
            delete_rekeyed_delay: Duration::from_secs(5),
            prefer_best_path: false,
            return_routability: true,
            follow_redirects: true,
            redirect: RedirectPolicy::default(),
            qcd: QcdConfig::default(),
            resumption: ResumptionConfig::default(),
            natt_port: 4500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `longest`, leave `limit` out; or count one try less.
    #[test]
    fn the_whole_schedule_is_known_before_it_begins() {
        let ladder = |timeout, base, tries, limit, jitter| Retransmission {
            timeout: Option::map(timeout, Duration::from_secs),
            base,
            tries,
            limit: Duration::from_secs(limit),
            jitter,
        };
        let table = [
            (Retransmission::strongswan(), 165),
            (Retransmission::adaptive(), 165),
            (ladder(Some(1), 2.0, Some(3), 0, 0), 15),
            (ladder(Some(1), 2.0, Some(3), 3, 50), 9),
            (ladder(Some(2), 0.5, Some(1), 0, 0), 4),
            (ladder(None, 1.8, Some(3), 0, 100), 120),
            (ladder(Some(1000), 100.0, Some(100), 0, 0), 24 * 3600),
        ];
        for (ladder, seconds) in table {
            assert_eq!(ladder.longest().as_secs(), seconds, "{ladder:?}");
        }
    }
}
