//! The route of an IKE SA: the paths of its messages and of its children, the TCP connection, NAT and MOBIKE.

use std::net::SocketAddr;

use super::answer_path::AnswerPath;
use super::io::Io;
use super::link::Link;
use super::mobike::Mobike;
use super::moving::Whereabouts;
use super::nat::{NATT_PORT, NatStatus};
use super::stream::Stream;
use crate::config::TcpUse;
use crate::event::{Path, Transport};

/// The IKE port: another `remote_port` has UDP encapsulation.
const IKE_PORT: u16 = 500;

/// The paths of an IKE SA.
pub(crate) struct Route {
    /// The path of requests.
    pub(super) path: Path,
    /// With transport TCP, the connection that `path` names.
    pub(super) stream: Option<Box<Stream>>,
    /// The path of ESP if it differs from that of IKE.
    pub(super) separate: Option<Box<Path>>,
    pub(super) answers: AnswerPath,
    pub(super) nat: NatStatus,
    /// Both ends prefer ESP in UDP.
    pub(super) prefers_udp: bool,
    /// Present if both ends have MOBIKE.
    pub(super) mobike: Option<Box<Mobike>>,
}

/// What moves because of a packet of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EspMove {
    Nothing,
    /// The children alone.
    Children,
    /// IKE and the children.
    All,
}

impl Route {
    /// For an SA whose keys were made by messages on `path`.
    pub(super) fn new(path: Path, nat: NatStatus) -> Self {
        let answers = AnswerPath::new(path);
        Self { path, stream: None, separate: None, answers, nat, prefers_udp: false, mobike: None }
    }

    /// The path of requests.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Where NATs are.
    pub(crate) fn nat(&self) -> NatStatus {
        self.nat
    }

    /// True if both ends prefer ESP in UDP, NAT or not.
    pub(crate) fn agreed_on_udp(&self) -> bool {
        self.prefers_udp
    }

    /// True if ESP is to use UDP on a path with UDP encapsulation.
    pub(crate) fn puts_esp_in_udp(&self) -> bool {
        self.nat.local || self.nat.remote || self.prefers_udp
    }

    /// MOBIKE's data, if both ends support it.
    pub(crate) fn mobike(&self) -> Option<&Mobike> {
        self.mobike.as_deref()
    }

    /// True if the peer may be reached by `path` from now on.
    pub(crate) fn may_follow(&self, link: &Link, path: Path) -> bool {
        if path.transport == Transport::Tcp {
            //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
            //# the TCP Responder MUST
            //# allow packets for existing SAs to be received from new source IP
            //# addresses and ports.
            // The end that opens connections knows which one is the newest.
            return self.is_on_line(link, path) && self.stream.as_ref().is_none_or(|s| !s.ours);
        }
        if self.mobike.is_some() && link.is_authenticated() {
            //= https://www.rfc-editor.org/rfc/rfc4555#section-3.8
            //# The host not behind a NAT MUST NOT use these dynamic
            //# updates for IKEv2 packets, but MAY use them for ESP packets.
            return false;
        }
        if self.path.transport == Transport::UdpEncap && path.transport == Transport::Udp {
            // A peer does not go back from port 4500, so the message was redirected on its way.
            return false;
        }
        if !link.is_authenticated() {
            // A peer without a NAT changes its port for IKE_AUTH only.
            let same = path.remote.ip().to_canonical() == self.path.remote.ip().to_canonical();
            return same || self.nat.remote || !self.nat.supported;
        }
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.23
        //# A host behind a NAT SHOULD NOT
        //# do this type of dynamic address update if a validated packet has
        //# different port and/or address values because it opens a possible
        //# DoS attack
        // An initiator need not follow: it has reached the peer at this address, whatever NAT the peer is behind.
        // A responder behind a static NAT would lose a peer behind another NAT.
        let behind_nat = self.nat.local && link.is_initiator();
        path.remote == self.path.remote || (self.nat.remote && !behind_nat)
    }

    /// The path of ESP.
    pub(crate) fn esp_path(&self) -> Path {
        if let Some(separate) = self.separate.as_deref() {
            return *separate;
        }
        let elsewhere = self.mobike.as_ref().and_then(|mobike| mobike.esp_remote());
        Path { remote: elsewhere.unwrap_or(self.path.remote), ..self.path }
    }

    /// Moves a separate path of ESP to the same addresses.
    pub(super) fn bring_separate(&mut self) {
        let (local, remote) = (self.path.local.ip(), self.path.remote.ip());
        if let Some(separate) = &mut self.separate {
            separate.local.set_ip(local);
            separate.remote.set_ip(remote);
        }
    }

    /// True if this end chooses the paths.
    pub(crate) fn decides(&self) -> bool {
        self.mobike.as_ref().is_some_and(|mobike| mobike.decides())
    }

    /// Handles a move from the transport `before`. True if IKE was over TCP, together with ESP, at any time.
    pub(super) fn left_tcp(&mut self, before: Transport) -> bool {
        let left = before == Transport::Tcp && self.separate.is_none();
        self.mobike.as_mut().is_some_and(|mobike| mobike.note_tcp(left))
    }

    /// True if the children are not on the path of the IKE SA.
    pub(crate) fn is_held(&self) -> bool {
        self.mobike.as_ref().is_some_and(|mobike| mobike.is_held())
    }

    /// True if this end began the SA before it opened the present connection.
    pub(crate) fn has_newer_stream(&self, link: &Link) -> bool {
        let started = link.started();
        link.is_initiator()
            && self.stream.as_ref().is_some_and(|stream| stream.is_newer_than(started))
    }

    /// Opens the connection again.
    pub(super) fn reopen(&mut self, io: &mut Io<'_>) {
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.ours && stream.is_lost())
        {
            stream.open(io, &mut self.path);
        }
    }

    /// What the successor must know about the path of this SA.
    pub(crate) fn whereabouts(&self) -> Option<Whereabouts> {
        let mobike = self.mobike.clone()?;
        let stream = self.stream.clone();
        Some(Whereabouts { path: self.path, nat: self.nat, mobike, stream })
    }

    /// True if this end opens the connections.
    pub(crate) fn opens_stream(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.ours)
    }

    /// True if the transport of `path` is one by which messages for this SA may come.
    pub(crate) fn takes_from(&self, link: &Link, path: Path) -> bool {
        self.is_on_line(link, path) || self.switches_transports(link)
    }

    /// The connection in use or being opened.
    pub(crate) fn stream_path(&self) -> Option<Path> {
        self.stream.as_ref().filter(|stream| !stream.is_lost()).map(|_| self.path)
    }

    /// The same without a move to another transport.
    pub(crate) fn is_on_line(&self, link: &Link, path: Path) -> bool {
        match (self.path.transport, path.transport) {
            //= https://www.rfc-editor.org/rfc/rfc9329#section-5
            //# all IKE
            //# messages for that IKE SA and ESP packets for its Child SAs MUST be
            //# sent over a TCP connection until the SA is deleted or IKEv2 Mobility
            //# and Multihoming (MOBIKE) is used
            (Transport::Tcp, transport) => transport == Transport::Tcp,
            //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-reliable-transport-04#section-3.1
            //# the initiator MUST switch to TCP port
            //# 4500 for subsequent exchanges (IKE_INTERMEDIATE or IKE_AUTH).
            (_, transport) => (transport == Transport::Tcp) == link.extensions().separate,
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-7.1
    //# When a MOBIKE-enabled Initiator changes networks, the INFORMATIONAL
    //# exchange with the UPDATE_SA_ADDRESSES notification SHOULD be
    //# initiated first over UDP before attempting over TCP.
    /// The path that replaces `path`, which has the present transport.
    pub(crate) fn first_tried(&self, link: &Link, io: &Io<'_>, path: Path) -> Path {
        // A configuration with TCP from the start has a reason.
        let falls_back = matches!(link.connection().enable_tcp, TcpUse::Fallback(_));
        if path.transport != Transport::Tcp || !falls_back || !self.switches_transports(link) {
            return path;
        }
        let port = match link.connection().remote_port {
            IKE_PORT => NATT_PORT,
            other => other,
        };
        Path {
            local: SocketAddr::new(path.local.ip(), io.config.natt_port),
            remote: SocketAddr::new(path.remote.ip(), port),
            transport: Transport::UdpEncap,
        }
    }

    /// True if IKE and ESP may move to another transport together.
    pub(crate) fn switches_transports(&self, link: &Link) -> bool {
        self.mobike.is_some()
            && link.is_authenticated()
            && !link.extensions().separate
            && self.separate.is_none()
    }

    /// True if a peer that is not authenticated asks for an answer to `to`, an address that nothing has proven.
    pub(super) fn is_unproven(&self, link: &Link, to: Path) -> bool {
        !link.is_initiator() && link.is_stranger() && !self.answers.has_reached(to)
    }

    /// True if messages of the peer may come from another address than those before.
    pub(crate) fn peer_roams(&self) -> bool {
        let comes_anew = || self.stream.as_ref().is_some_and(|stream| !stream.ours);
        self.nat.remote || self.mobike.is_some() || comes_anew()
    }

    /// The path of the peer's latest request.
    pub(crate) fn answer_to(&self) -> Path {
        self.answers.to()
    }

    /// True if ESP has the path of IKE.
    pub(crate) fn esp_is_beside(&self) -> bool {
        self.separate.is_none()
    }

    /// Handles an authentic ESP packet from `remote`.
    pub(super) fn note_esp(&mut self, link: &Link, remote: SocketAddr) -> EspMove {
        let roams = self.nat.remote && !(self.nat.local && link.is_initiator());
        if let Some(path) = &mut self.separate {
            if path.remote == remote || !roams {
                return EspMove::Nothing;
            }
            path.remote = remote;
            return EspMove::Children;
        }
        let (decides, elsewhere) = (self.decides(), remote != self.esp_path().remote);
        match &mut self.mobike {
            // What RFC 4555 §3.8 permits to an end that is not behind a NAT.
            Some(mobike) if roams && !decides && !mobike.is_held() && elsewhere => {
                mobike.note_esp_remote(Some(remote));
                EspMove::Children
            }
            None if self.path.transport != Transport::Udp => EspMove::All,
            _ => EspMove::Nothing,
        }
    }
}

impl Transport {
    /// True if the transport loses nothing while it exists, so that nothing is retransmitted (RFC 9329 §6.2).
    pub(crate) fn is_reliable(self) -> bool {
        self == Self::Tcp
    }
}
