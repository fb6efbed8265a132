//! What enters an [`Endpoint`](crate::Endpoint) and what leaves it.

mod hint;
mod notice;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::config::{EndpointConfig, PpkId};
use crate::crypto::SignatureScheme;
use crate::dataplane::{
    self, DataPlaneError, Encapsulation, Flow, Mode, Reply, SaId, TrafficSelector,
};
use crate::question::{Answer, Assignment, Authorization, Question};
use crate::wire::payload::IdData;
use crate::wire::registry::{AuthMethod, ExchangeType, NotifyType};
pub use hint::{BothSelectors, Hint};
pub use notice::Notice;

/// The time of an input.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time: every timer is computed from it.
    pub mono: Instant,
    /// Wall-clock time, for certificates.
    pub wall: SystemTime,
}

/// How a datagram travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP without the non-ESP marker: port 500.
    Udp,
    /// UDP with the non-ESP marker of RFC 3948 §2.2: port 4500. The driver strips and adds the
    /// marker.
    UdpEncap,
    /// A TCP connection (RFC 9329 §3). The driver adds and strips the prefix, lengths and non-ESP markers.
    ///
    /// A path names a connection from before it is there until after it is gone. At the end that opens it
    /// the port of `local` is therefore no port but a number of the engine's choice, another one for each
    /// connection; the operating system chooses the port. At the other end both ports are real.
    Tcp,
}

/// A local and a remote socket address and the transport between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Transport.
    pub transport: Transport,
}

/// Names one IKE SA of an endpoint, never used again. strongSwan's unique id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSaId(pub u64);

/// Names one Child SA of an endpoint, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildSaId(pub u64);

/// Matches an output to the [`Input::Completed`] or [`Input::Answered`] that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Chosen by the driver to match a [`Command`] to its [`Event::Done`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Something that happened outside the engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// A datagram arrived; `octets` begin with the IKE header.
    Datagram(Path, &'a [u8]),
    /// The time of the last [`Output::Timeout`] has come (calling early or late is harmless).
    Timeout,
    /// The operator or the driver wants something.
    Command(RequestId, Command),
    /// A batch given out as [`Output::DataPlane`] was applied, or failed at its first bad command.
    Completed(Ticket, Result<Vec<Reply>, DataPlaneError>),
    /// The answer to an [`Output::Ask`]. One that is asked no more is ignored.
    Answered(Ticket, Answer),
    /// The data plane reports something by itself.
    DataPlane(dataplane::Event),
    /// Something happened to the TCP connection of a path.
    Stream(Path, StreamEvent),
    /// The path's MTU, or the little that is known of it: that of the first link, or what a router has
    /// reported since. Octets of an IP packet. It need not be true: nobody authenticates it, and no
    /// value makes the engine send packets below 576 octets (IPv4) or 1280 (IPv6), or above 1500.
    PathMtu(Path, u32),
    /// Whether what arrives waits longer than it takes to be handled. As long as that is so a stranger needs
    /// a cookie (RFC 7296 §2.6) however few are half-open, unless `cookie_threshold` is 0. Over TCP one is
    /// demanded only if that is 1 (RFC 9329 §6.3).
    Behind(bool),
    /// What this host's addresses are, and by which of them it reaches peers: all that is known now. What
    /// peers there are to ask about [`Endpoint::mobile_peers`](crate::Endpoint::mobile_peers) says.
    Network(&'a Network),
    /// Another shard says this of an IKE SA, or an attempt, of this one: its [`Event::Notice`].
    Notice(IkeSaId, Notice),
}

/// The addresses of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Those that something can be sent from: of links that are up, and none of the loopback.
    pub addresses: Vec<IpAddr>,
    /// The source that packets to a peer's address get by the routes. Without an entry nothing leads there,
    /// or nobody has asked.
    pub sources: BTreeMap<IpAddr, IpAddr>,
}

impl Network {
    /// The source of packets to `remote`.
    pub fn source_to(&self, remote: IpAddr) -> Option<IpAddr> {
        self.sources.get(&remote.to_canonical()).copied()
    }
}

/// What happens to a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// What this end was told to open is open, from this address and port (NAT detection needs them,
    /// RFC 9329 §6.5). A connection that the peer opened is made known by its first datagram.
    Opened(SocketAddr),
    /// It could not be opened, or has ended, though the engine did not ask for that. Says why. Every
    /// [`Open`](StreamCommand::Open) is followed by this or [`Opened`](Self::Opened) in bounded time.
    Closed(String),
}

/// What is to be done with a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamCommand {
    /// Open it. Its name was never used before, or long ago.
    Open,
    /// An IKE SA that is established uses this connection, which the peer opened: it may be idle for any
    /// time. One of which this was not said may be closed as soon as its peer is slow.
    Keep,
    /// No IKE SA uses it any more. The end that opened it closes it once what is queued has been sent;
    /// the other end leaves that to its peer for a few seconds (RFC 9329 §6.1).
    Close,
}

/// What an operator may ask for.
#[derive(Debug)]
pub enum Command {
    /// Brings up a connection, or one child of it; an established IKE SA of the connection to the
    /// same peer is used again. Without a packet the child is wanted up from now on, until it is terminated or
    /// [`Unwant`](Self::Unwant) takes that back.
    Initiate {
        /// Connection name.
        connection: String,
        /// Child name; `None` takes the IKE SA alone (childless where allowed, else the first child).
        child: Option<String>,
        /// Address to initiate from.
        local: IpAddr,
        /// Address to initiate to.
        remote: IpAddr,
        /// The packet that the child is for, of [`Event::Acquire`].
        packet: Option<Flow>,
    },
    /// Brings up a child unless it is up or being made, for `start_action`, `close_action` and `dpd_action`.
    /// [`Initiate`](Self::Initiate) makes one more in any case.
    Ensure {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// Address to initiate from.
        local: IpAddr,
        /// Address to initiate to.
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
    /// A child, or every child of a connection, is not wanted up any more. SAs that are up stay. The command is done at
    /// once; [`Failure::NotFound`] if no child was wanted.
    Unwant {
        /// Connection name.
        connection: String,
        /// Child name; `None` for all.
        child: Option<String>,
    },
    /// Deletes an IKE SA and its children at both ends.
    TerminateIke(IkeSaId),
    /// Deletes an IKE SA and its children here at once. The peer is told, but nothing waits for its answer.
    ForgetIke(IkeSaId),
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
    /// Has the peer of an IKE SA authenticate anew within that time, or ends the SA (RFC 4478). Done at once.
    LimitAuthentication(IkeSaId, Duration),
    /// Drops the tickets of this connection's lost IKE SAs, so that it begins anew in full.
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
    /// Takes the trap policies of a child away.
    UninstallTrap {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
    },
    /// Takes new settings; SAs keep the configuration they were made with.
    Reload(Box<EndpointConfig>),
    /// Deletes every SA at the peers and accepts nothing new. Done when the last is gone.
    Shutdown,
}

/// What the engine wants done, in this order.
#[derive(Debug)]
pub enum Output {
    /// Send a datagram.
    Transmit(Transmit),
    /// Do something with the TCP connection of a path, in order with what is sent by it.
    Stream(Path, StreamCommand),
    /// Apply the commands in order, stop at the first failure, and report by [`Input::Completed`].
    DataPlane(Ticket, Vec<dataplane::Command>),
    /// Find out, in any order and as slowly as need be, and report by [`Input::Answered`].
    Ask(Ticket, Question),
    /// Something worth telling.
    Event(Event),
    /// The queue is empty: call again at this time, or when there is input.
    Timeout(Option<Instant>),
}

/// A datagram to send.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// Where from and to.
    pub path: Path,
    /// What it is.
    pub kind: TransmitKind,
    /// DSCP of the IP packet, 6 bits (RFC 2474).
    pub dscp: u8,
    /// The octets, without the non-ESP marker. Shared with the retransmission buffer.
    pub octets: Arc<[u8]>,
}

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitKind {
    /// An IKE message or fragment, sent for the first time.
    Ike,
    /// An IKE message or fragment sent again.
    Retransmission,
    /// Names fragments of the peer's message that are missing
    /// (draft-antony-ipsecme-ikev2-fragment-acknowledgment).
    FragmentAck,
    /// A NAT keepalive (RFC 3948 §2.3): one octet 0xFF, never with a marker.
    KeepAlive,
}

/// The kind of reason for which a peer's certificates or key were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Distrust {
    /// A certificate has been revoked.
    Revoked,
    /// The status of a certificate is unknown, and the configuration requires it (`revocation`).
    RevocationUnknown,
    /// A certificate has expired.
    Expired,
    /// Any other reason.
    #[default]
    Other,
}

/// Why something failed or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The peer did not answer within the retransmission ladder.
    Timeout,
    /// The peer sent this error notify.
    Peer(NotifyType),
    /// This end refused the peer's message and answered with this error notify.
    Refused(NotifyType),
    /// No configured key fits the peer, or its AUTH payload is wrong.
    Authentication,
    /// The peer's certificates or key were refused, with the kind of reason and its text.
    Untrusted(Distrust, String),
    /// This end has no credentials that could be used, or they could not be; says why.
    Credentials(String),
    /// The data plane refused.
    DataPlane(String),
    /// The configuration does not know the name, or lacks what is needed; says what.
    Config(String),
    /// The SA is gone, or never was.
    NotFound,
    /// Replaced by another SA (INITIAL_CONTACT, `unique`, reauthentication).
    Replaced,
    /// A hard lifetime was reached.
    Expired,
    /// No traffic for `inactivity`.
    Inactive,
    /// The peer has shown by its token that it has lost the SA, as in a crash (RFC 6290).
    LostByPeer,
    /// Deleted by the peer.
    DeletedByPeer,
    /// Deleted by command.
    Terminated,
    /// Policy forbids to go on: a PPK or downgrade prevention is required and the peer has none.
    Policy(&'static str),
    /// The crypto backend failed.
    Crypto,
}

impl Failure {
    /// A word for it, for labels and scripts: one of a few whatever the peer sends, and it stays the same.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Peer(notify) | Self::Refused(notify) => notify.name().unwrap_or("other notify"),
            Self::Authentication => "authentication",
            Self::Untrusted(..) => "untrusted",
            Self::Credentials(_) => "credentials",
            Self::DataPlane(_) => "data_plane",
            Self::Config(_) => "configuration",
            Self::NotFound => "not_found",
            Self::Replaced => "replaced",
            Self::Expired => "expired",
            Self::Inactive => "inactive",
            Self::LostByPeer => "lost_by_peer",
            Self::DeletedByPeer => "deleted_by_peer",
            Self::Terminated => "terminated",
            Self::Policy(_) => "policy",
            Self::Crypto => "crypto",
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the peer does not answer"),
            Self::Peer(kind) => write!(f, "the peer answered {kind}"),
            Self::Refused(kind) => write!(f, "refused with {kind}"),
            Self::Authentication => f.write_str("authentication failed"),
            Self::Untrusted(_, text) => write!(f, "authentication failed: {text}"),
            Self::Credentials(text) => write!(f, "cannot authenticate: {text}"),
            Self::DataPlane(text) => write!(f, "data plane: {text}"),
            Self::Config(text) => write!(f, "configuration: {text}"),
            Self::NotFound => f.write_str("no such SA"),
            Self::Replaced => f.write_str("replaced by another SA"),
            Self::Expired => f.write_str("lifetime expired"),
            Self::Inactive => f.write_str("inactive"),
            Self::LostByPeer => f.write_str("the peer has lost the SA (QCD)"),
            Self::DeletedByPeer => f.write_str("deleted by the peer"),
            Self::Terminated => f.write_str("terminated"),
            Self::Policy(text) => write!(f, "refused by policy: {text}"),
            Self::Crypto => f.write_str("crypto backend failed"),
        }
    }
}

/// What a peer claimed that was not believed, and why not. The cause never leaves this host.
#[derive(Debug, Clone)]
pub struct PeerRefused {
    /// The IKE SA that does not come about.
    pub ike: IkeSaId,
    /// Where the peer is.
    pub path: Path,
    /// The connection tried; empty if there is none.
    pub connection: String,
    /// The identity the peer wants this end to have, if it said so.
    pub local_id: Option<IdData>,
    /// The identity the peer claims.
    pub remote_id: Option<IdData>,
    /// The kind of reason, if the peer's certificates or key were refused.
    pub distrust: Option<Distrust>,
    /// Why.
    pub why: String,
}

/// Something worth telling: to a log, a control client, or another shard.
#[derive(Debug, Clone)]
pub enum Event {
    /// The command of this id has ended.
    Done(RequestId, Result<(), Failure>),
    /// An IKE SA is established (both ends authenticated).
    IkeUp(IkeSaId),
    /// One end of an IKE SA that is up has got addresses and the like from the other, or has tried to.
    Assigned(Arc<Assignment>),
    /// The last IKE SA that an [`Assignment`] was for is over: its addresses may be taken back, or away.
    /// Also of one that was never told by [`Assigned`](Self::Assigned), because the SA did not come about.
    Unassigned(Arc<Assignment>),
    /// A PPK is configured for this IKE SA, but it came about without one (RFC 8784 §6).
    WithoutPpk(IkeSaId),
    /// A ticket is of no use (RFC 5723), and the client begins by IKE_SA_INIT. Of a gateway that refuses one, and
    /// of a client that was refused.
    TicketRefused {
        /// Where the client is, or the gateway.
        path: Path,
        /// True of the client.
        client: bool,
        /// Why.
        why: String,
    },
    /// An IKE SA, or an attempt at one, has ended. `established` tells which.
    IkeDown {
        /// The IKE SA.
        ike: IkeSaId,
        /// Its connection; empty if the peer never got as far as one.
        connection: String,
        /// True if it had been established.
        established: bool,
        /// Why.
        reason: Failure,
    },
    /// A peer was not believed. It is told AUTHENTICATION_FAILED, whatever the cause; the end of the
    /// IKE SA, or of the attempt, is told by an event of its own.
    PeerRefused(Box<PeerRefused>),
    /// A request for an IKE SA was refused before there was one. So many a second at most: what a
    /// flood brings beyond that is [`Dropped`](Self::Dropped) alone.
    InitRefused {
        /// Where it came from.
        path: Path,
        /// Why: what was received, and what is configured.
        why: String,
    },
    /// The peer asked for a Child SA that no configuration of its connection fits.
    ChildRefused {
        /// The IKE SA.
        ike: IkeSaId,
        /// The peer.
        remote_id: Option<IdData>,
        /// Why: what was received, and what is configured.
        why: String,
    },
    /// A hint for the operator; nothing has failed.
    Hint(Box<Hint>),
    /// An IKE SA was rekeyed: its children now belong to `new`.
    IkeRekeyed {
        /// Replaced.
        old: IkeSaId,
        /// In its place.
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
        /// Replaced.
        old: ChildSaId,
        /// In its place.
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
        /// The child configuration, if it got as far as one.
        name: String,
        /// Why.
        reason: Failure,
    },
    /// A trap policy was hit and the driver should [`Command::Initiate`] this child.
    Acquire {
        /// Connection name.
        connection: String,
        /// Child name.
        child: String,
        /// The packet that hit it.
        packet: Flow,
    },
    /// The peer of this IKE SA now sends from another address.
    PathChanged {
        /// The IKE SA.
        ike: IkeSaId,
        /// The new path.
        path: Path,
    },
    /// An attempt starts over with another transport: nobody answered over UDP for the time of
    /// [`TcpUse::Fallback`](crate::config::TcpUse::Fallback) (RFC 9329 §5.1), or the peer could not be had
    /// over TCP.
    TransportChanged {
        /// Connection name.
        connection: String,
        /// The path from now on.
        path: Path,
    },
    /// A peer with this identity says that this is its only IKE SA, or `unique` wants it so. Others of this
    /// shard end; those of other shards get a [`Notice`](Self::Notice).
    Unique {
        /// The IKE SA that stays.
        ike: IkeSaId,
        /// This end's identity.
        local: IdData,
        /// The peer's identity.
        remote: IdData,
    },
    /// For the shard that has this IKE SA or attempt ([`Shard::of_number`](crate::config::Shard::of_number)),
    /// as [`Input::Notice`].
    Notice(IkeSaId, Notice),
    /// A child has ended whose traffic is to bring it up again: the shard that has its trap should
    /// [`Command::InstallTrap`]. Only of an endpoint that is one of several.
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
    /// A child has ended that is to be made again, and this shard has no IKE SA for it: the shard that has one,
    /// or begins the connection, should [`Command::Initiate`] it. Only of an endpoint that is one of several.
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
        /// Child name; `None` of the IKE SA alone.
        child: Option<String>,
        /// How long until the start, unless this host's addresses change before.
        after: Duration,
        /// The peer has refused this end's EAP: the wait is long, since a server that counts refusals locks the
        /// account, and a change of addresses does not end it.
        careful: bool,
        /// Why it is not up.
        reason: Failure,
    },
    /// A child, or an IKE SA, that was wanted up is not started again, with the reason. A command or another configuration
    /// starts it.
    GivenUp {
        /// Connection name.
        connection: String,
        /// Child name; `None` of the IKE SA alone.
        child: Option<String>,
        /// Why.
        reason: Failure,
    },
    /// A message came for an IKE SA that is not there: the answer had the token of such an SA (RFC 6290).
    TokenGiven {
        /// Where it went.
        path: Path,
    },
    /// A message was dropped. For counters and debug logs; under attack there are many.
    Dropped {
        /// Where it came from.
        path: Path,
        /// Why, in a few fixed words.
        why: &'static str,
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

/// One IKE SA as `list` shows it.
#[derive(Debug, Clone)]
pub struct IkeStatus {
    /// Id.
    pub id: IkeSaId,
    /// Connection name.
    pub connection: String,
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
    /// True if the peer is behind a NAT.
    pub nat_remote: bool,
    /// True if both ends have MOBIKE.
    pub mobike: bool,
    /// The PPK its keys depend on, by what it was made with or by a rekey since.
    pub ppk: Option<PpkId>,
    /// True if it was resumed by a ticket (RFC 5723), or is a rekey of one that was.
    pub resumed: bool,
    /// True if AUTH covered both IKE_SA_INIT messages (downgrade prevention).
    pub full_transcript: bool,
    /// What one end has got from the other by configuration payloads: virtual IPs and the like.
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
    /// Exchange of the request this end waits on, if any.
    pub outstanding: Option<ExchangeType>,
    /// Children.
    pub children: Vec<ChildStatus>,
}

/// How one end authenticated in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedAuth {
    /// Its identity; that of a peer with NULL authentication is anybody's word.
    pub id: IdData,
    /// The method of the AUTH payload.
    pub method: AuthMethod,
    /// The signature's scheme; `None` for a method without signature.
    pub scheme: Option<SignatureScheme>,
    /// The subject of a peer's certificate, safe in a log line.
    pub certificate: Option<String>,
    /// What EAP has shown, if it was by EAP.
    pub eap: Option<Box<UsedEap>>,
    /// The addresses that the peer's certificate authorizes (RFC 3779); `None` for any.
    pub addresses: Option<Arc<[TrafficSelector]>>,
}

/// What EAP has shown of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedEap {
    /// The method and the identity in it, safe in a log line.
    pub method: String,
    /// The EAP identity of a peer, which tells it from others; of type [`IdData::EAP`], or ID_NULL if its method
    /// left open who it is. `None` of this end.
    pub id: Option<IdData>,
    /// What the peer was granted with it.
    pub authorization: Option<Box<Authorization>>,
}

/// One Child SA as `list` shows it.
#[derive(Debug, Clone)]
pub struct ChildStatus {
    /// Id.
    pub id: ChildSaId,
    /// Configuration name.
    pub name: String,
    /// `updown` of its configuration.
    pub updown: Option<String>,
    /// `hostaccess` of its configuration.
    pub hostaccess: bool,
    /// State.
    pub state: ChildState,
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
    /// Encapsulation of what this end sends.
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
