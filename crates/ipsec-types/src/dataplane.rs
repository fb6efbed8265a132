//! Commands of the engine to a data plane, and its answers and events.
//!
//! There is one command enum, so that recording, tracing and fault injection are one `match` each. The engine
//! chooses inbound SPIs itself, because they contain the shard. So no command allocates an SPI.

pub mod overlaps;
pub mod patience;
pub mod precedence;
mod routes;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::crypto::{CipherSuite, Secret};
pub use ike_wire::payload::TrafficSelector;
pub use routes::{DEFAULT_MARK, DEFAULT_PRIORITY, DEFAULT_TABLE, RouteOptions};

/// Names one ESP SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaId {
    /// SPI as on the wire.
    pub spi: u32,
    /// Destination address of its packets.
    pub dst: IpAddr,
}

/// Names one policy. The name is stable while a child is rekeyed, and an endpoint never uses it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId(pub u64);

/// Direction of an SA, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Protects incoming packets.
    In,
    /// Protects outgoing packets.
    Out,
}

/// IPsec mode (RFC 4301 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// ESP carries whole packets.
    #[default]
    Tunnel,
    /// ESP protects only the payload, from host to host.
    Transport,
    /// Tunnel mode with fixed inner addresses that are not in the packets (draft-nikander-esp-beet-mode).
    Beet,
    /// Tunnel mode in which payloads carry several inner packets and parts of them: AGGFRAG (RFC 9347).
    Iptfs,
}

/// Ports of ESP in another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EncapPorts {
    /// Source port of the packets of this SA.
    pub src_port: u16,
    /// Destination port of the packets of this SA.
    pub dst_port: u16,
}

/// The protocol that carries ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// UDP (RFC 3948).
    Udp(EncapPorts),
    /// The TCP connection of IKE (RFC 9329). At the end that opens the connection its own port is 0, as in
    /// `Path` of `ike-proto`.
    Tcp(EncapPorts),
}

impl Encapsulation {
    /// Ports, of either kind.
    pub fn ports(&self) -> EncapPorts {
        match *self {
            Self::Udp(ports) | Self::Tcp(ports) => ports,
        }
    }

    /// The encapsulation of packets in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        let turned = |EncapPorts { src_port, dst_port }| EncapPorts {
            src_port: dst_port,
            dst_port: src_port,
        };
        match self {
            Self::Udp(ports) => Self::Udp(turned(ports)),
            Self::Tcp(ports) => Self::Tcp(turned(ports)),
        }
    }

    /// Ports, if the protocol is UDP.
    pub fn udp(&self) -> Option<EncapPorts> {
        match *self {
            Self::Udp(ports) => Some(ports),
            Self::Tcp(_) => None,
        }
    }
}

/// Byte and packet limits. The engine counts time itself. Zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Octets after which [`Event::SoftExpire`] is due.
    pub soft_bytes: u64,
    /// Octets after which the SA must not be used and [`Event::HardExpire`] is due.
    pub hard_bytes: u64,
    /// Packets for a soft expiry.
    pub soft_packets: u64,
    /// Packets for a hard expiry.
    pub hard_packets: u64,
}

/// The hardware offload that is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HwOffload {
    /// None.
    #[default]
    No,
    /// Crypto only.
    Crypto,
    /// Whole packets.
    Packet,
    /// The best that the device supports.
    Auto,
}

/// A mark and its significant bits (`mark_in` and the like). A zero mask means no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Mark {
    /// Value.
    pub value: u32,
    /// Mask.
    pub mask: u32,
}

/// The direction in which the DSCP is copied between the headers (`copy_dscp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyDscp {
    /// From the inner to the outer header of outgoing packets.
    #[default]
    Out,
    /// From the outer to the inner header of incoming packets.
    In,
    /// Both ways.
    Yes,
    /// Not at all.
    No,
}

/// The length to which outgoing packets in tunnel mode are padded, so that it does not reveal the length of the
/// inner packets (`tfc_padding`, RFC 4303 §2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TfcPadding {
    /// No padding.
    #[default]
    None,
    /// As if the inner packet had this number of octets, or as many as fit the path MTU.
    To(u32),
    /// The path MTU.
    Mtu,
}

/// How AGGFRAG payloads (RFC 9347) are sent and received: `charon.iptfs` of strongswan.conf(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iptfs {
    /// `dont_frag`, or the peer's request: this end does not split inner packets between its payloads.
    pub dont_frag: bool,
    /// `accept_fragments`: the peer may split inner packets. This is announced to the peer; the data plane accepts
    /// such packets in any case.
    pub accept_fragments: bool,
    /// `drop_time`: how long packets out of order wait for the packets before them.
    pub drop_time: Duration,
    /// `init_delay`: how long a packet waits for others with which to share its payload.
    pub init_delay: Duration,
    /// `max_queue_size`: octets that may wait to be sent.
    pub max_queue_size: u32,
    /// `packet_size`: the most octets of an outer packet; 0 for the path MTU.
    pub packet_size: u32,
    /// `reorder_window`: packets that may arrive out of order.
    pub reorder_window: u16,
}

impl Default for Iptfs {
    fn default() -> Self {
        Self {
            dont_frag: false,
            accept_fragments: true,
            drop_time: Duration::from_secs(1),
            init_delay: Duration::ZERO,
            max_queue_size: 1 << 20,
            packet_size: 0,
            reorder_window: 3,
        }
    }
}

/// How packets are treated beyond the negotiated parameters: the processing info of an SPD entry (RFC 4301
/// §4.4.1.2), and the further options of a child in swanctl.conf(5). It is the same for all SAs and policies of
/// one child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processing {
    /// `reqid`; 0 leaves it to the data plane.
    pub reqid: u32,
    /// `if_id_in`: XFRM interface of inbound SAs and policies; 0 is none.
    pub if_id_in: u32,
    /// `if_id_out`.
    pub if_id_out: u32,
    /// `mark_in`: the mark of packets that inbound policies match.
    pub mark_in: Mark,
    /// `mark_out`: the mark of packets that outbound SAs and policies match.
    pub mark_out: Mark,
    /// `mark_in_sa`: inbound SAs have `mark_in` as well.
    pub mark_in_sa: bool,
    /// `set_mark_in`: set on packets after inbound processing.
    pub set_mark_in: Mark,
    /// `set_mark_out`: set on packets after outbound processing.
    pub set_mark_out: Mark,
    /// `interface`: the only interface on which the policies apply.
    pub interface: Option<String>,
    /// `hw_offload`.
    pub hw_offload: HwOffload,
    /// `copy_df`: the DF bit is copied to the outer header.
    pub copy_df: bool,
    /// `copy_ecn`: ECN is copied between the headers (RFC 6040).
    pub copy_ecn: bool,
    /// `copy_dscp`.
    pub copy_dscp: CopyDscp,
    /// `icmp`: ICMP errors that answer tunnelled packets pass the inbound policies.
    pub icmp: bool,
    /// `policies`: false if another program installs them.
    pub policies: bool,
    /// `policies_fwd_out`: forward policies for outgoing packets, too.
    pub policies_fwd_out: bool,
    /// Outbound policies request an SA for each CPU (RFC 9611). In a child's configuration this is the option; for
    /// the data plane it is true once the peers have agreed.
    pub per_cpu: bool,
    /// `tfc_padding`. For the data plane it is set only in tunnel mode and if the peer accepts padding.
    pub tfc_padding: TfcPadding,
    /// For SAs of [`Mode::Iptfs`].
    pub iptfs: Iptfs,
}

impl Default for Processing {
    fn default() -> Self {
        Self {
            reqid: 0,
            if_id_in: 0,
            if_id_out: 0,
            mark_in: Mark::default(),
            mark_out: Mark::default(),
            mark_in_sa: false,
            set_mark_in: Mark::default(),
            set_mark_out: Mark::default(),
            interface: None,
            hw_offload: HwOffload::No,
            copy_df: true,
            copy_ecn: true,
            copy_dscp: CopyDscp::Out,
            icmp: false,
            policies: true,
            policies_fwd_out: false,
            per_cpu: false,
            tfc_padding: TfcPadding::None,
            iptfs: Iptfs::default(),
        }
    }
}

/// All parameters of one ESP SA.
#[derive(Debug)]
pub struct SaSpec {
    /// SPI and destination.
    pub id: SaId,
    /// Source address of its packets.
    pub src: IpAddr,
    /// Direction.
    pub direction: Direction,
    /// Mode.
    pub mode: Mode,
    /// The policy of its child, which all SAs of the child share across rekeys. The kernel's reqid.
    pub policy: PolicyId,
    /// Cipher suite.
    pub suite: CipherSuite,
    /// Encryption key, salt last.
    pub encr_key: Secret,
    /// Integrity key, empty for an AEAD.
    pub integ_key: Secret,
    /// Extended sequence numbers (RFC 4303 §2.2.1).
    pub esn: bool,
    /// Anti-replay window in packets; 0 turns the check off.
    pub replay_window: u32,
    /// Encapsulation; `None` for ESP directly over IP.
    pub encap: Option<Encapsulation>,
    /// Inner addresses on this host's side.
    pub local_ts: Vec<TrafficSelector>,
    /// Inner addresses on the peer's side.
    pub remote_ts: Vec<TrafficSelector>,
    /// Byte and packet limits.
    pub limits: Limits,
    /// The longest time for which the SA is used after its installation, even if the engine is gone; zero for no
    /// limit. It is `life_time` plus the whole retransmission schedule, so that a rekey in progress at `life_time`
    /// has that long to end. A data plane with such a limit raises [`Event::HardExpire`] at its end.
    pub lifetime: Duration,
    /// The CPU for whose packets it is (RFC 9611), as Linux counts them; `None` for all.
    pub cpu: Option<u32>,
    /// How packets are treated.
    pub processing: Arc<Processing>,
}

/// What happens to packets that match a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyAction {
    /// ESP. Inbound packets must come through an inbound SA with this policy's id.
    Protect {
        /// Mode.
        mode: Mode,
        /// This end of the tunnel.
        local: IpAddr,
        /// The peer's end of the tunnel.
        remote: IpAddr,
        /// The outbound SA; `None` drops outbound packets until one is set.
        outbound: Option<SaId>,
    },
    /// Drop, and raise [`Event::Acquire`] for outbound packets.
    Trap,
    /// Let packets pass in clear.
    Pass,
    /// Drop without notice.
    Drop,
    /// For traffic that a child is to protect while the child is not up: drop it in both directions, if no policy
    /// of another kind matches.
    Shunt {
        /// False if senders are to be notified, if the data plane can do so.
        silent: bool,
    },
    /// As [`Self::Shunt`], for a child that has not been up yet. The daemon has yet to find the peer, so its own packets
    /// and the answers to them find their ways beside this policy.
    Hold {
        /// True if the child's own address is not known yet. The local selectors are then all addresses, and what
        /// arrives may pass.
        anywhere: bool,
    },
}

/// A policy for traffic between `local_ts` and `remote_ts`, in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySpec {
    /// Its name. Installing a name again replaces the policy.
    pub id: PolicyId,
    /// Name of the child configuration, for logs.
    pub child: String,
    /// The owner of the traffic: the connection, and the peer's identity if it is known. Of two policies for the
    /// same selectors that of the older owner applies. Of one owner's policies the newest applies.
    pub owner: String,
    /// This host's side.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side.
    pub remote_ts: Vec<TrafficSelector>,
    /// The action.
    pub action: PolicyAction,
    /// The lowest applies first; 0 computes it from the selectors, the more specific first.
    pub priority: u32,
    /// How packets are treated.
    pub processing: Arc<Processing>,
    /// Between which addresses the SAs will be: for a trap, and for policies of a child that is down if that is known. A
    /// kernel needs it for templates and routes. [`PolicyAction::Protect`] has the addresses itself. With
    /// [`PolicyAction::Pass`], [`Mode::Transport`] means that packets that this host forwards do not pass. Other actions
    /// need none.
    pub outer: Option<Outer>,
    /// Another policy of the owner for the same selectors applies before this one, however old it is, because the
    /// peer may not have the SAs of this one yet.
    pub standby: bool,
}

/// The ends and the mode of SAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Mode.
    pub mode: Mode,
    /// This end.
    pub local: IpAddr,
    /// The peer's end.
    pub remote: IpAddr,
}

/// A command for the data plane. Applying one twice is harmless, and removing something that does not exist
/// succeeds, so that the engine can always clean up.
#[derive(Debug)]
pub enum Command {
    /// Installs an SA.
    InstallSa(Box<SaSpec>),
    /// Removes an SA.
    RemoveSa(SaId),
    /// Installs or replaces a policy.
    InstallPolicy(Box<PolicySpec>),
    /// Removes a policy.
    RemovePolicy(PolicyId),
    /// Moves an SA to other outer addresses or ports (NAT mapping change).
    UpdateSa {
        /// The SA as installed.
        id: SaId,
        /// New source address and port.
        src: SocketAddr,
        /// New destination address and port.
        dst: SocketAddr,
        /// New encapsulation.
        encap: Option<Encapsulation>,
    },
    /// Requests the counters of an SA.
    QueryUsage(SaId),
    /// Tells what a probe after [`Event::ProbePath`] has shown about the path of an outbound SA.
    PathProbed(SaId, Probed),
    /// Removes everything that this endpoint has installed.
    Flush,
    /// Removes all SAs. Policies stay, also after the data plane is dropped: what they protect or block does not leave
    /// in clear until another run of the program has taken their places.
    RemoveSas,
}

/// What a probe has shown about a path (RFC 8899 §4.1). Sizes are octets of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probed {
    /// A packet of this size has arrived in one piece.
    Carried(u16),
    /// A packet of this size was lost, or its answer was.
    Lost {
        /// The size.
        octets: u16,
        /// The size that ICMP has named for the path. It may be forged.
        hint: Option<u16>,
    },
    /// The path cannot be probed: IKE takes another path, or runs over TCP.
    Impossible,
}

/// Counters of one SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Octets of inner packets.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time since the last packet, `None` if there was none.
    pub idle: Option<Duration>,
    /// Hardware offload in use, as the data plane found it: [`HwOffload::No`], `Crypto` or `Packet`.
    pub offload: HwOffload,
    /// Octets that the path to the peer takes, of an outbound SA of a data plane that knows it.
    pub path_mtu: Option<u16>,
}

/// The answer to one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Done,
    /// The counters for [`Command::QueryUsage`].
    Usage(SaId, Usage),
}

/// Why a command failed. The text names the device or errno; it never holds key material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPlaneError(pub String);

impl fmt::Display for DataPlaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DataPlaneError {}

/// Both ends of one packet, as selectors of one address, protocol and port each. An initiator offers them before
/// the selectors of its policy, so that a responder that narrows knows what is needed (RFC 7296 §2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The packet's source.
    pub local: TrafficSelector,
    /// The packet's destination.
    pub remote: TrafficSelector,
}

/// An event that a data plane reports by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An outbound packet met a trap policy.
    Acquire {
        /// The trap.
        policy: PolicyId,
        /// The packet's source as a selector of one address and port.
        local: TrafficSelector,
        /// The packet's destination.
        remote: TrafficSelector,
        /// The CPU that met it, if the policy requests SAs per CPU and there is an SA for all CPUs already (RFC
        /// 9611).
        cpu: Option<u32>,
    },
    /// A soft limit was reached: the SA is to be rekeyed.
    SoftExpire(SaId),
    /// A hard limit was reached: the SA cannot be used any more.
    HardExpire(SaId),
    /// Authenticated packets of this inbound SA now come from another address or port.
    Mapping {
        /// The SA.
        sa: SaId,
        /// The present source of its packets.
        remote: SocketAddr,
    },
    /// The first authenticated packet on this inbound SA: the peer uses it.
    FirstPacket(SaId),
    /// Asks the engine to find out by a probe whether the path of this outbound SA carries packets of this size.
    /// [`Command::PathProbed`] tells the result. A data plane that finds sizes by other means never raises this event.
    ProbePath {
        /// The SA.
        sa: SaId,
        /// The size, in octets of an IP packet.
        octets: u16,
    },
    /// An ESP packet arrived that belongs to no SA. A data plane raises this event a limited number of times per
    /// second.
    UnknownSpi {
        /// Its SPI.
        spi: u32,
        /// Its destination.
        local: IpAddr,
        /// Its source; the port is 0 if it was not in UDP.
        remote: SocketAddr,
        /// Its length in octets, from the SPI.
        octets: usize,
    },
}

/// The features of a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Transport mode.
    pub transport_mode: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// ESP directly over IP, without UDP. Without this the engine forces UDP encapsulation.
    pub plain_esp: bool,
    /// ESP in UDP costs less than ESP over IP. Two such data planes use UDP, if the configuration of both ends permits.
    pub udp_costs_less: bool,
    /// ESP in the TCP connection of IKE (RFC 9329 §3.2). Without this a connection over TCP needs separate
    /// transports.
    pub tcp_esp: bool,
    /// AGGFRAG payloads (RFC 9347).
    pub iptfs: bool,
    /// SAs per CPU (RFC 9611).
    pub per_cpu: bool,
    /// The number of CPUs, for `per_cpu`: a peer may make twice as many SAs of one child.
    pub cpus: u32,
    /// Options of [`Processing`] other than the defaults. Without this an SA or a policy that needs them is
    /// refused.
    pub processing: bool,
    /// Of these options, those that say which header fields are copied: `copy_df`, `copy_ecn` and `copy_dscp`.
    pub header_fields: bool,
}

impl Capabilities {
    /// The first option of a child that the data plane does not support, in swanctl.conf(5)'s spelling.
    /// `hw_offload = auto` needs no support.
    pub fn lacks(&self, mode: Mode, processing: &Processing) -> Option<&'static str> {
        let Processing {
            reqid,
            if_id_in,
            if_id_out,
            mark_in,
            mark_out,
            mark_in_sa,
            set_mark_in,
            set_mark_out,
            ref interface,
            hw_offload,
            copy_df,
            copy_ecn,
            copy_dscp,
            icmp,
            policies,
            policies_fwd_out,
            per_cpu,
            tfc_padding: _,
            iptfs: _,
        } = *processing;
        let none = Mark::default();
        let fields = self.processing || self.header_fields;
        let offload = !matches!(hw_offload, HwOffload::No | HwOffload::Auto);
        let asked = [
            ("mode = transport", mode == Mode::Transport && !self.transport_mode),
            ("mode = iptfs", mode == Mode::Iptfs && !self.iptfs),
            ("mode = beet", mode == Mode::Beet && !self.processing),
            ("per_cpu_sas", per_cpu && !self.per_cpu),
            ("reqid", reqid != 0 && !self.processing),
            ("if_id_in", if_id_in != 0 && !self.processing),
            ("if_id_out", if_id_out != 0 && !self.processing),
            ("mark_in", mark_in != none && !self.processing),
            ("mark_out", mark_out != none && !self.processing),
            ("mark_in_sa", mark_in_sa && !self.processing),
            ("set_mark_in", set_mark_in != none && !self.processing),
            ("set_mark_out", set_mark_out != none && !self.processing),
            ("interface", interface.is_some() && !self.processing),
            ("hw_offload", offload && !self.processing),
            ("copy_df = no", !copy_df && !fields),
            ("copy_ecn = no", !copy_ecn && !fields),
            ("copy_dscp", copy_dscp != CopyDscp::Out && !fields),
            ("icmp", icmp && !self.processing),
            ("policies = no", !policies && !self.processing),
            ("policies_fwd_out", policies_fwd_out && !self.processing),
        ];
        asked.into_iter().find_map(|(option, lacking)| lacking.then_some(option))
    }
}

/// A data plane. `apply` is synchronous, as netlink is.
pub trait DataPlane {
    /// Its features.
    fn capabilities(&self) -> Capabilities;
    /// Applies one command.
    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError>;
    /// The next event that is due, if any.
    fn poll_event(&mut self) -> Option<Event>;
}

/// Applies a batch in order and stops at the first failure. The engine removes what was applied.
pub fn apply_all(
    plane: &mut dyn DataPlane,
    batch: Vec<Command>,
) -> Result<Vec<Reply>, DataPlaneError> {
    batch.into_iter().map(|command| plane.apply(command)).collect()
}
