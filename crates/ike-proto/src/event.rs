//! Inputs and outputs of an [`Endpoint`](crate::Endpoint).

mod disbelief;
mod hint;
mod notice;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::config::{ChildConfig, ConnectionConfig, EndpointConfig, PpkId};
use crate::dataplane::{
    self, DataPlaneError, Encapsulation, Flow, Mode, Reply, SaId, TrafficSelector,
};
use crate::question::{Answer, Assignment, Question};
use crate::wire::payload::IdData;
use crate::wire::registry::ExchangeType;
pub use disbelief::{AlgorithmOid, AuthKind, Disbelief};
pub use hint::{BothSelectors, Hint};
pub use notice::{ChildElsewhere, Notice, Redundancy};

pub use crate::ids::{ChildSaId, IkeSaId, Path, RequestId, Ticket, Transport};
pub use crate::question::{UsedAuth, UsedEap};
use crate::reason::DropReason;
pub use crate::reason::{Distrust, Failure, TicketReason};

/// The time of an input.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time: every timer is computed from it.
    pub mono: Instant,
    /// Wall-clock time, for certificates.
    pub wall: SystemTime,
}

/// Something that happened outside the engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// A datagram arrived; `octets` begin with the IKE header.
    Datagram(Path, &'a [u8]),
    /// The time of the last [`Output::Timeout`] has come. An earlier or later call is harmless.
    Timeout,
    /// A command of the operator or the driver.
    Command(RequestId, Command),
    /// A batch given out as [`Output::DataPlane`] was applied, or failed at its first bad command.
    Completed(Ticket, Result<Vec<Reply>, DataPlaneError>),
    /// The answer to an [`Output::Ask`]. The answer to a question that is no longer open is ignored.
    Answered(Ticket, Answer),
    /// The data plane reports something by itself.
    DataPlane(dataplane::Event),
    /// Something happened to the TCP connection of a path.
    Stream(Path, StreamEvent),
    /// The path's MTU, or what is known of it: that of the first link, or a value that a router has reported
    /// since. Octets of an IP packet. It need not be true, because nobody authenticates it. No value makes the
    /// engine send packets below 576 octets (IPv4) or 1280 (IPv6), or above 1500.
    PathMtu(Path, u32),
    /// Whether the driver is behind: received messages wait longer than it takes to handle them. Meanwhile every
    /// unauthenticated peer needs a cookie (RFC 7296 §2.6), however few SAs are half-open, unless
    /// `cookie_threshold` is 0. Over TCP a cookie is demanded only if that is 1 (RFC 9329 §6.3).
    Behind(bool),
    /// This host's addresses, and the sources by which it reaches its peers: everything that is known now.
    /// [`Endpoint::mobile_peers`](crate::Endpoint::mobile_peers) names the peers.
    Network(&'a Network),
    /// Another shard's [`Event::Notice`] about an IKE SA, or an attempt, of this one.
    Notice(IkeSaId, Notice),
}

/// The addresses of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Addresses from which packets can be sent to other hosts: of links that are up, those of the loopback among
    /// them, without 127.0.0.0/8 and ::1.
    pub addresses: Vec<IpAddr>,
    /// The source address of packets to a peer's address, by the routes. An address without an entry has no route,
    /// or was not looked up.
    pub sources: BTreeMap<IpAddr, IpAddr>,
}

impl Network {
    /// The source of packets to `remote`.
    pub fn source_to(&self, remote: IpAddr) -> Option<IpAddr> {
        self.sources.get(&remote.to_canonical()).copied()
    }
}

/// An event of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// The connection that this end was told to open is open, from this address and port (NAT detection needs
    /// them, RFC 9329 §6.5). A connection that the peer opened is reported by its first datagram.
    Opened(SocketAddr),
    /// The connection could not be opened, or has ended without a command of the engine. The text says why. This
    /// or [`Opened`](Self::Opened) follows every [`Open`](StreamCommand::Open) within a limited time.
    Closed(String),
}

/// A command for a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCommand {
    /// Open it. Its name was never used before, or a long time ago.
    Open,
    /// An established IKE SA uses this connection, which the peer has opened. It may be idle for any time. A
    /// connection without this command may be closed as soon as its peer is slow.
    Keep,
    /// No IKE SA uses it any more. The end that opened it closes it when everything queued has been sent. The
    /// other end leaves that to its peer for a few seconds (RFC 9329 §6.1).
    Close,
}

/// A command of an operator.
#[derive(Debug)]
pub enum Command {
    /// Brings up a connection, or one child of it. An established IKE SA of the connection with the same peer is
    /// used again. Without a packet the child is wanted up from now on, until it is terminated or
    /// [`Unwant`](Self::Unwant) ends that.
    Initiate {
        /// Connection name.
        connection: String,
        /// Child name; `None` for the IKE SA alone (childless if allowed, otherwise with the first child).
        child: Option<String>,
        /// Address from which to initiate.
        local: IpAddr,
        /// Address to which to initiate.
        remote: IpAddr,
        /// The packet of [`Event::Acquire`] for which the child is made.
        packet: Option<Flow>,
    },
    /// Brings up a child unless it is up or being made, for `start_action`, `close_action` and `dpd_action`.
    /// [`Initiate`](Self::Initiate) makes one more in any case.
    Ensure {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// Address from which to initiate.
        local: IpAddr,
        /// Address to which to initiate.
        remote: IpAddr,
    },
    /// The configuration wants a child up (`start_action = start`). The child is started as soon as
    /// [`Question::Ends`] is answered, and again after it ends, as docs/lifecycle.md says. The command is done at once.
    Want {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
    },
    /// Ends the wish for a child, or for every child of a connection. SAs that are up stay. The command is done at
    /// once, with [`Failure::NotFound`] if no child was wanted.
    Unwant {
        /// Connection name.
        connection: String,
        /// Child name; `None` for all.
        child: Option<String>,
    },
    /// Deletes an IKE SA and its children at both ends.
    TerminateIke(IkeSaId),
    /// Deletes an IKE SA and its children here at once. The peer is told, but no answer is awaited.
    ForgetIke(IkeSaId),
    /// As [`ForgetIke`](Self::ForgetIke), because the configuration does not admit the peer any more. A child that this end
    /// wants stays wanted: it is started again, and its traffic stays protected until it is up.
    Exclude(IkeSaId),
    /// Deletes a Child SA at both ends.
    TerminateChild(ChildSaId),
    /// Rekeys an IKE SA.
    RekeyIke(IkeSaId),
    /// Makes a new IKE SA from the start, then deletes the old one (make before break).
    Reauthenticate(IkeSaId),
    /// Rekeys a Child SA.
    RekeyChild(ChildSaId),
    /// Sends the client of an IKE SA to the gateway at this address (RFC 5685).
    Redirect(IkeSaId, IpAddr),
    /// Requires the peer of an IKE SA to authenticate again within that time, otherwise ends the SA (RFC 4478).
    /// Done at once.
    LimitAuthentication(IkeSaId, Duration),
    /// Drops the tickets of this connection's lost IKE SAs, so that the next attempt begins in full.
    /// [`Failure::NotFound`] if there are none.
    ForgetTickets(String),
    /// Installs the trap policies of a child with `start_action = trap`.
    InstallTrap {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// This host's address, for `dynamic` selectors.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// Removes the trap policies of a child.
    UninstallTrap {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
    },
    /// Turns the trap policies of a child into blocks: its packets are dropped and ask for no SA, until the trap is
    /// installed anew or a reload changes the child. [`Failure::NotFound`] if there are none.
    BlockTrap {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
    },
    /// Takes new settings. SAs keep the configuration with which they were made.
    Reload(Box<EndpointConfig>),
    /// Deletes every SA at the peers and accepts no new one. Done when the last SA is gone.
    Shutdown,
}

/// What the driver has to do, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send a datagram.
    Transmit(Transmit),
    /// Carry out the command for the TCP connection of a path, in order with the datagrams on that path.
    Stream(Path, StreamCommand),
    /// Apply the commands in order, stop at the first failure, and report by [`Input::Completed`].
    DataPlane(Ticket, Vec<dataplane::Command>),
    /// Find an answer, in any order and at any speed, and report it by [`Input::Answered`].
    Ask(Ticket, Question),
    /// Something that happened.
    Event(Event),
    /// The queue is empty: call again at this time, or when there is input.
    Timeout(Option<Instant>),
}

/// A datagram to send.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// Source and destination.
    pub path: Path,
    /// The kind of datagram.
    pub kind: TransmitKind,
    /// DSCP of the IP packet, 6 bits (RFC 2474).
    pub dscp: u8,
    /// The octets, without the non-ESP marker. Shared with the retransmission buffer.
    pub octets: Arc<[u8]>,
}

/// The kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitKind {
    /// An IKE message or fragment, sent for the first time.
    Ike,
    /// An IKE message that probes the path (RFC 8899). It is to be sent with Don't Fragment, also if the host knows a smaller
    /// path MTU. If the message is lost, the engine sends it again as another kind.
    Probe,
    /// An IKE message or fragment sent again.
    Retransmission,
    /// Names missing fragments of the peer's message (draft-antony-ipsecme-ikev2-fragment-acknowledgment).
    FragmentAck,
    /// A NAT keepalive (RFC 3948 §2.3): one octet 0xFF, never with a marker.
    KeepAlive,
}

/// A claim of a peer that was not believed, with the reason. The reason never leaves this host.
#[derive(Debug, Clone)]
pub struct PeerRefused {
    /// The IKE SA that was not established.
    pub ike: IkeSaId,
    /// The path of the peer.
    pub path: Path,
    /// The connection that was tried; empty if there is none.
    pub connection: String,
    /// The identity that the peer requests of this end, if it named one.
    pub local_id: Option<IdData>,
    /// The identity that the peer claims.
    pub remote_id: Option<IdData>,
    /// The kind of reason, if the peer's certificates or key were refused.
    pub distrust: Option<Distrust>,
    /// Why.
    pub why: Disbelief,
}

/// Something that happened, for a log, a control client, or another shard.
#[derive(Debug, Clone)]
pub enum Event {
    /// The command of this id has ended.
    Done(RequestId, Result<(), Failure>),
    /// An IKE SA is established (both ends authenticated).
    IkeUp(IkeSaId),
    /// One end of an established IKE SA has got addresses and other attributes from the other, or has requested
    /// them.
    Assigned(Arc<Assignment>),
    /// The last IKE SA of an [`Assignment`] has ended: its addresses may be released or removed. Also for an
    /// assignment that [`Assigned`](Self::Assigned) never reported, because the SA was not established.
    Unassigned(Arc<Assignment>),
    /// A PPK is configured for this IKE SA, but it was established without one (RFC 8784 §6).
    WithoutPpk(IkeSaId),
    /// A ticket cannot be used (RFC 5723), and the client begins with IKE_SA_INIT. Both a gateway that refuses a
    /// ticket and the client report it.
    TicketRefused {
        /// The path of the client, or of the gateway.
        path: Path,
        /// True at the client.
        client: bool,
        /// Why.
        why: TicketReason,
    },
    /// An IKE SA, or an attempt at one, has ended. `established` tells which.
    IkeDown {
        /// The IKE SA.
        ike: IkeSaId,
        /// Its connection; empty if none was selected.
        connection: String,
        /// True if it had been established.
        established: bool,
        /// Why.
        reason: Failure,
    },
    /// A peer was not believed. It gets AUTHENTICATION_FAILED, whatever the reason. Another event reports the end
    /// of the IKE SA or of the attempt.
    PeerRefused(Box<PeerRefused>),
    /// A request for an IKE SA was refused before there was one. There is a maximum per second. Further refusals
    /// during a flood are only reported as [`Dropped`](Self::Dropped).
    InitRefused {
        /// The path of the request.
        path: Path,
        /// Why: the received values, and the configured ones.
        why: String,
    },
    /// The peer has requested a Child SA that fits no configuration of its connection.
    ChildRefused {
        /// The IKE SA.
        ike: IkeSaId,
        /// The peer.
        remote_id: Option<IdData>,
        /// Why: the received values, and the configured ones.
        why: String,
    },
    /// A hint for the operator; nothing has failed.
    Hint(Box<Hint>),
    /// An IKE SA was rekeyed: its children now belong to `new`.
    IkeRekeyed {
        /// The replaced SA.
        old: IkeSaId,
        /// The SA that replaces it.
        new: IkeSaId,
    },
    /// A Child SA is installed.
    ChildUp {
        /// Its IKE SA.
        ike: IkeSaId,
        /// The Child SA.
        child: ChildSaId,
    },
    /// A Child SA was rekeyed.
    ChildRekeyed {
        /// Its IKE SA.
        ike: IkeSaId,
        /// The replaced SA.
        old: ChildSaId,
        /// The SA that replaces it.
        new: ChildSaId,
    },
    /// A Child SA has ended, other than by rekeying.
    ChildDown {
        /// Its IKE SA.
        ike: IkeSaId,
        /// The Child SA.
        child: ChildSaId,
        /// Its configuration.
        name: String,
        /// Why.
        reason: Failure,
    },
    /// A Child SA could not be made or rekeyed.
    ChildFailed {
        /// The IKE SA.
        ike: IkeSaId,
        /// The child configuration, if one was selected.
        name: String,
        /// Why.
        reason: Failure,
    },
    /// A packet met a trap policy, and the driver should [`Command::Initiate`] this child.
    Acquire {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// The packet.
        packet: Flow,
    },
    /// The peer of this IKE SA now sends from another address.
    PathChanged {
        /// The IKE SA.
        ike: IkeSaId,
        /// The new path.
        path: Path,
    },
    /// An attempt starts over with another transport: UDP got no answer within the time of
    /// [`TcpUse::Fallback`](crate::config::TcpUse::Fallback) (RFC 9329 §5.1), or the peer could not be reached
    /// over TCP.
    TransportChanged {
        /// Connection name.
        connection: String,
        /// The path from now on.
        path: Path,
    },
    /// A peer with this identity has sent INITIAL_CONTACT, or `unique` allows it one IKE SA. Its other IKE SAs of
    /// this shard end. Those of other shards get a [`Notice`](Self::Notice).
    Unique {
        /// The IKE SA that stays.
        ike: IkeSaId,
        /// This end's identity.
        local: IdData,
        /// The peer's identity.
        remote: IdData,
    },
    /// A message for the shard that has this IKE SA or attempt
    /// ([`Shard::of_number`](crate::config::Shard::of_number)), as [`Input::Notice`].
    Notice(IkeSaId, Notice),
    /// A child has ended that traffic is to bring up again: the shard that has its trap should
    /// [`Command::InstallTrap`]. Only if there are several shards.
    Trap {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// This host's address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// A child has ended that is to be made again, and this shard has no IKE SA for it: the shard that has one, or
    /// that begins the connection, should [`Command::Initiate`] it. Only if there are several shards.
    Restart {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// This host's address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// A child, or an IKE SA, that is wanted up is down and is started again later, with the reason.
    StartsAgain {
        /// Connection name.
        connection: String,
        /// Child name; `None` for the IKE SA alone.
        child: Option<String>,
        /// How long until the start, unless this host's addresses change before.
        after: Duration,
        /// The peer has refused this end's EAP. The wait is long, because a server that counts refusals locks the
        /// account, and a change of addresses does not end it.
        careful: bool,
        /// Why it is not up.
        reason: Failure,
    },
    /// A child, or an IKE SA, that was wanted up is not started again, with the reason. A command or another
    /// configuration starts it.
    GivenUp {
        /// Connection name.
        connection: String,
        /// Child name; `None` for the IKE SA alone.
        child: Option<String>,
        /// Why.
        reason: Failure,
    },
    /// A message came for an IKE SA that does not exist. The answer had the token of such an SA (RFC 6290).
    TokenGiven {
        /// The path of the answer.
        path: Path,
    },
    /// A message was dropped. For counters and debug logs; under attack there are many.
    Dropped {
        /// The path of the message.
        path: Path,
        /// Why.
        why: DropReason,
    },
}

/// State of an IKE SA, in strongSwan's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IkeState {
    /// Not established yet.
    Connecting,
    /// Both ends are authenticated.
    Established,
    /// Replaced by a rekey, waiting for its delete.
    Rekeyed,
    /// Waiting for the peer to confirm the delete.
    Deleting,
}

/// State of a Child SA, in strongSwan's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildState {
    /// The data plane is at work.
    Installing,
    /// In use.
    Installed,
    /// A rekey is under way.
    Rekeying,
    /// Replaced, waiting for its delete.
    Rekeyed,
    /// Waiting for the peer to confirm the delete.
    Deleting,
}

/// The state of one IKE SA, for `list`.
#[derive(Debug, Clone)]
pub struct IkeStatus {
    /// Id.
    pub id: IkeSaId,
    /// Connection name.
    pub connection: String,
    /// The configuration that it was made with; `None` before it is established. After a reload, the configuration of the same
    /// name may be another one.
    pub config: Option<Arc<ConnectionConfig>>,
    /// Whether the secrets that authenticated it are in force.
    pub secrets: SecretsNow,
    /// State.
    pub state: IkeState,
    /// True if this end is the original initiator.
    pub initiator: bool,
    /// Initiator's SPI.
    pub spi_i: u64,
    /// Responder's SPI.
    pub spi_r: u64,
    /// Path.
    pub path: Path,
    /// This end's identity, once known.
    pub local_id: Option<IdData>,
    /// The peer's identity, once authenticated.
    pub remote_id: Option<IdData>,
    /// True if this end is behind a NAT.
    pub nat_local: bool,
    /// Both ends have agreed to send ESP in UDP although there may be no NAT.
    pub esp_in_udp: bool,
    /// True if the peer is behind a NAT.
    pub nat_remote: bool,
    /// True if both ends have MOBIKE.
    pub mobike: bool,
    /// The PPK on which its keys depend, from its set-up or from a later rekey.
    pub ppk: Option<PpkId>,
    /// True if it was resumed by a ticket (RFC 5723), or is a rekey of one that was.
    pub resumed: bool,
    /// True if AUTH covered both IKE_SA_INIT messages (downgrade prevention).
    pub full_transcript: bool,
    /// What one end has got from the other by configuration payloads: virtual IPs and other attributes.
    pub assignment: Option<Arc<Assignment>>,
    /// How this end authenticated, round by round, once established.
    pub local_auth: Vec<UsedAuth>,
    /// How the peer authenticated, round by round, once established.
    pub remote_auth: Vec<UsedAuth>,
    /// Negotiated algorithms, once known.
    pub algorithms: Option<crate::config::proposal::Selected>,
    /// When it was established.
    pub established: Option<Instant>,
    /// From the first message sent or received to established.
    pub setup_time: Option<Duration>,
    /// When it will be rekeyed.
    pub rekey_at: Option<Instant>,
    /// When it will be reauthenticated.
    pub reauth_at: Option<Instant>,
    /// The exchange of the outstanding request, if any.
    pub outstanding: Option<ExchangeType>,
    /// Children.
    pub children: Vec<ChildStatus>,
}

/// Whether the configuration in force still has the pre-shared keys and the PPK that have authenticated an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecretsNow {
    /// The same ones, or the IKE SA needed none.
    #[default]
    Same,
    /// Others for the same identities.
    Replaced,
    /// There is no pre-shared key for one of the pairs of identities, or no PPK of this ID.
    Removed,
}

/// The state of one Child SA, for `list`.
#[derive(Debug, Clone)]
pub struct ChildStatus {
    /// Id.
    pub id: ChildSaId,
    /// Configuration name.
    pub name: String,
    /// The configuration that it was made with. After a reload, that of its name may be another one.
    pub config: Arc<ChildConfig>,
    /// State.
    pub state: ChildState,
    /// True if this end has requested it, or the first child of its line.
    pub ours: bool,
    /// Mode.
    pub mode: Mode,
    /// The policy, which is also the reqid.
    pub policy: dataplane::PolicyId,
    /// How its packets are treated: marks and interface ids as chosen for it.
    pub processing: Arc<dataplane::Processing>,
    /// The CPU it is for (RFC 9611); `None` for all.
    pub cpu: Option<u32>,
    /// Inbound SA.
    pub inbound: SaId,
    /// Outbound SA.
    pub outbound: SaId,
    /// Encapsulation of the packets that this end sends.
    pub encap: Option<Encapsulation>,
    /// The PPK mixed into its own keys in CREATE_CHILD_SA (RFC 9867 §3.2).
    pub ppk: Option<PpkId>,
    /// Negotiated algorithms.
    pub algorithms: crate::config::proposal::Selected,
    /// Inner addresses on this side.
    pub local_ts: Vec<TrafficSelector>,
    /// Inner addresses on the peer's side.
    pub remote_ts: Vec<TrafficSelector>,
    /// When it was installed.
    pub installed: Instant,
    /// From the first message of its exchange to installed.
    pub setup_time: Duration,
    /// When it will be rekeyed.
    pub rekey_at: Option<Instant>,
    /// When its hard lifetime ends.
    pub expires_at: Option<Instant>,
}
