//! ESP states: the kernel's word for SAs.

mod algorithms;
mod decode;
mod encode;
mod replay;

use std::net::IpAddr;
use std::time::Duration;

use ipsec_types::crypto::Secret;
pub use ipsec_types::dataplane::{Direction, EncapPorts, Encapsulation, Mark, Mode};

use crate::selector::Selector;

pub use algorithms::Unsupported;
pub(crate) use decode::{decode, mode, offload};
pub(crate) use encode::{encapsulation, encode, mark_attribute, mode_number, offload_attribute};
pub(crate) use replay::Form;

/// The identity of a state. The kernel looks a state up by all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateId {
    /// SPI as on the wire.
    pub spi: u32,
    /// Destination address of its packets.
    pub dst: IpAddr,
    /// Mark that lookups must have; the default is none.
    pub mark: Mark,
}

/// An algorithm as the kernel's crypto API names it, its key and the length of its ICV.
pub struct Algorithm {
    /// For instance `rfc4106(gcm(aes))`.
    pub name: String,
    /// Key, salt last where there is one.
    pub key: Secret,
    /// ICV in bits; 0 for encryption alone.
    pub icv_bits: u32,
}

/// The protection of a state's packets.
#[derive(Debug)]
pub enum Protection {
    /// An AEAD.
    Aead(Algorithm),
    /// Encryption and integrity.
    Separate {
        /// Encryption.
        encryption: Algorithm,
        /// Integrity.
        integrity: Algorithm,
    },
}

/// When a state expires. Zero means never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Octets for a soft expiry.
    pub soft_bytes: u64,
    /// Octets for a hard expiry: the kernel deletes the state.
    pub hard_bytes: u64,
    /// Packets for a soft expiry.
    pub soft_packets: u64,
    /// Packets for a hard expiry.
    pub hard_packets: u64,
    /// Seconds since it was added for a soft expiry.
    pub soft_seconds: u64,
    /// Seconds since it was added for a hard expiry.
    pub hard_seconds: u64,
}

/// Sequence numbers and anti-replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replay {
    /// Extended sequence numbers.
    pub esn: bool,
    /// Window in packets: 0 turns the check off. Over 32, or with ESN, the kernel's long form is used.
    pub window: u32,
    /// Number of the last packet sent, with the high half if `esn`.
    pub sent: u64,
    /// Number of the last packet received.
    pub received: u64,
    /// Which of the last `window` packets came, the latest in bit 0 of the first word; may be shorter than
    /// the window.
    pub bitmap: Vec<u32>,
}

/// The device's share of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OffloadMode {
    /// The device does the cryptography.
    Crypto,
    /// The device does all of ESP.
    Packet,
}

/// Hardware offload of one state or policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offload {
    /// Interface index of the device.
    pub ifindex: u32,
    /// Mode.
    pub mode: OffloadMode,
}

/// Options of IP-TFS (RFC 9347); `None` and false are the kernel's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Iptfs {
    /// Inner packets are not split over payloads.
    pub dont_fragment: bool,
    /// Size of outer packets in bytes; the path MTU if `None`.
    pub packet_size: Option<u32>,
    /// Octets that may wait to be sent.
    pub max_queue_size: Option<u32>,
    /// How many packets late one may come, for reassembly.
    pub reorder_window: Option<u16>,
    /// How long to wait for a missing packet.
    pub drop_time: Option<Duration>,
    /// How long to collect packets before sending.
    pub init_delay: Option<Duration>,
}

/// A state as it is to be. [`State::new`] has the defaults.
#[derive(Debug)]
pub struct State {
    /// SPI, destination and mark.
    pub id: StateId,
    /// Source address of its packets.
    pub src: IpAddr,
    /// Mode.
    pub mode: Mode,
    /// Ties it to the templates of policies.
    pub reqid: u32,
    /// The protection of its packets.
    pub protection: Protection,
    /// Sequence numbers.
    pub replay: Replay,
    /// Encapsulation of ESP; in TCP the socket has the `espintcp` protocol.
    pub encapsulation: Option<Encapsulation>,
    /// Inner packets it is for; `None` for any. BEET takes the inner addresses from it.
    pub selector: Option<Selector>,
    /// Direction, sent where the kernel knows it (6.10).
    pub direction: Option<Direction>,
    /// XFRM interface; 0 is none.
    pub if_id: u32,
    /// Set on packets after processing (XFRMA_SET_MARK).
    pub set_mark: Mark,
    /// Limits.
    pub lifetime: Lifetime,
    /// DF is not copied to the outer header (XFRM_STATE_NOPMTUDISC).
    pub no_pmtu_discovery: bool,
    /// ECN is not copied from the outer to the inner header (XFRM_STATE_NOECN).
    pub no_ecn: bool,
    /// DSCP is copied from the outer to the inner header (XFRM_STATE_DECAP_DSCP).
    pub decapsulate_dscp: bool,
    /// DSCP is not copied from the inner to the outer header (XFRM_SA_XFLAG_DONT_ENCAP_DSCP).
    pub dont_encapsulate_dscp: bool,
    /// ICMP errors that the selector does not match pass if the packet within does (XFRM_STATE_ICMP).
    pub icmp: bool,
    /// Tunnel mode between address families: no selector is made of the outer addresses (XFRM_STATE_AF_UNSPEC).
    pub any_family: bool,
    /// CPU whose packets use it (XFRMA_SA_PCPU).
    pub cpu: Option<u32>,
    /// Hardware offload.
    pub offload: Option<Offload>,
    /// Traffic flow confidentiality: pad to this many octets; 0 is none.
    pub tfc_padding: u32,
    /// IP-TFS, if the mode is that.
    pub iptfs: Iptfs,
    /// Least time between two MAPPING events; zero is the kernel's default.
    pub mapping_interval: Duration,
    /// How often the kernel sends NAT keepalives; zero is never. Outbound states in UDP alone (6.11).
    pub nat_keepalive: Duration,
}

/// A state as the kernel has it, without its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateInfo {
    /// SPI, destination and mark.
    pub id: StateId,
    /// Source address of its packets.
    pub src: IpAddr,
    /// IP protocol; 50 is ESP.
    pub protocol: u8,
    /// Mode; `None` for one this crate does not know.
    pub mode: Option<Mode>,
    /// Reqid.
    pub reqid: u32,
    /// Names of the algorithms.
    pub algorithms: Vec<String>,
    /// Sequence numbers.
    pub replay: Replay,
    /// Encapsulation.
    pub encapsulation: Option<Encapsulation>,
    /// Selector, if it has one.
    pub selector: Option<Selector>,
    /// Direction, if the kernel says.
    pub direction: Option<Direction>,
    /// XFRM interface.
    pub if_id: u32,
    /// Set on packets after processing.
    pub set_mark: Mark,
    /// CPU.
    pub cpu: Option<u32>,
    /// Limits.
    pub lifetime: Lifetime,
    /// Octets and packets so far.
    pub bytes: u64,
    /// Packets so far.
    pub packets: u64,
    /// When it was added, in seconds since 1970.
    pub added: u64,
    /// When a packet last used it, in seconds since 1970.
    pub last_used: Option<u64>,
    /// Packets outside the replay window, replayed, and with a wrong ICV.
    pub errors: StateErrors,
    /// Hardware offload as the kernel did it.
    pub offload: Option<Offload>,
    /// IP-TFS, if the mode is that.
    pub iptfs: Iptfs,
    /// How often the kernel sends NAT keepalives; zero is never.
    pub nat_keepalive: Duration,
    /// XFRM_STATE_* flags, raw.
    pub flags: u8,
    /// XFRM_SA_XFLAG_* flags, raw.
    pub extra_flags: u32,
    /// Number of the ACQUIRE it answers; 0 is none.
    pub sequence: u32,
}

/// Counters of packets a state refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateErrors {
    /// Left of the replay window.
    pub replay_window: u32,
    /// Received before.
    pub replay: u32,
    /// ICV wrong.
    pub integrity_failed: u32,
}

impl State {
    /// A state with these essentials and the kernel's defaults: any inner packet, no limits, no
    /// encapsulation, no direction, a replay window of 32.
    pub fn new(id: StateId, src: IpAddr, mode: Mode, protection: Protection) -> Self {
        Self {
            id,
            src,
            mode,
            reqid: 0,
            protection,
            replay: Replay { window: 32, ..Replay::default() },
            encapsulation: None,
            selector: None,
            direction: None,
            if_id: 0,
            set_mark: Mark::default(),
            lifetime: Lifetime::default(),
            no_pmtu_discovery: false,
            no_ecn: false,
            decapsulate_dscp: false,
            dont_encapsulate_dscp: false,
            icmp: false,
            any_family: false,
            cpu: None,
            offload: None,
            tfc_padding: 0,
            iptfs: Iptfs::default(),
            mapping_interval: Duration::ZERO,
            nat_keepalive: Duration::ZERO,
        }
    }
}

impl StateId {
    /// The state `spi` to `dst`, without a mark.
    pub fn new(spi: u32, dst: IpAddr) -> Self {
        Self { spi, dst, mark: Mark::default() }
    }
}

impl std::fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Algorithm").field("name", &self.name).finish_non_exhaustive()
    }
}
