//! Another path for an IKE SA: because the peer has one, because this end chooses one (MOBIKE), or because a TCP
//! connection broke (RFC 7296 §2.23, RFC 4555, RFC 9329 §6.1, §7.1).

use std::net::SocketAddr;

use super::Channel;
use super::io::Io;
use super::mobike::Mobike;
use super::nat::{NatStatus, floated};
use super::probing::Probing;
use super::rtt::Rtt;
use super::stream::Stream;
use super::timer::{Timer, TimerKey};
use crate::config::TcpUse;
use crate::event::{Event, Path, Transport};

/// What a rekeyed IKE SA hands to its successor.
pub(crate) struct Whereabouts {
    pub(super) path: Path,
    pub(super) nat: NatStatus,
    pub(super) mobike: Box<Mobike>,
    pub(super) stream: Option<Box<Stream>>,
}

impl Channel {
    /// The same before the peer is authenticated.
    pub(crate) fn follow_unauthenticated(&mut self, io: &mut Io<'_>, path: Path) {
        if self.adopt_path(io, path) && path.transport == Transport::Tcp {
            self.send_again(io);
        }
    }

    /// Replaces the path by that of a new and authentic message. False if the SA keeps its path.
    pub(crate) fn adopt_path(&mut self, io: &mut Io<'_>, path: Path) -> bool {
        // A peer may open its next connection from the port of the former one.
        let back = self.route.stream.as_deref().is_some_and(Stream::is_lost);
        if (path == self.route.path && !back) || !self.route.may_follow(&self.link, path) {
            return false;
        }
        if path.transport == Transport::Tcp {
            self.follow_stream(io, path);
            return true;
        }
        if path.remote.ip() != self.route.path.remote.ip() {
            self.probe = self.probe.moved();
        }
        self.route.path = path;
        true
    }

    /// Sets the keepalive timer if this end is behind a NAT, or if a firewall may be between the ends: nothing else shows
    /// it that UDP without packets is still in use.
    pub(crate) fn arm_keepalive(&mut self, io: &Io<'_>) {
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-reliable-transport-04#section-3.6
        //# Peers MUST
        //# maintain NAT mappings for the ESP path by sending NAT keepalive
        //# packets as specified in Section 2.23 of [RFC7296]
        let wanted = (self.route.nat.local || self.route.prefers_udp)
            && self.route.esp_path().transport == Transport::UdpEncap
            && !io.config.keep_alive.is_zero();
        let at = wanted.then(|| io.now.mono + io.config.keep_alive);
        self.timers.set_or_clear(TimerKey::Ike(Timer::KeepAlive), at);
    }

    /// Moves IKE to `path`, with the request in flight. Nothing is known of the new path.
    pub(crate) fn take_path(&mut self, io: &mut Io<'_>, path: Path) {
        let Some(mobike) = &mut self.route.mobike else {
            let ike = self.link.id();
            return tracing::debug!(?ike, ?path, "path not taken: no MOBIKE");
        };
        mobike.moved();
        self.probe = self.probe.moved();
        let before = std::mem::replace(&mut self.route.path, path).transport;
        self.route.bring_separate();
        self.change_line(io, before);
        self.window.inherit(Rtt::default());
        // On the new path the request goes at once without padding.
        Probing::fall_back(self, io);
        //= https://www.rfc-editor.org/rfc/rfc4555#section-3.5
        //# continues retransmitting
        //# them using the addresses in the IKE_SA (the new addresses).
        self.window.on_moved(io.now.mono, io.rng);
        io.event(Event::PathChanged { ike: self.link.id(), path: self.route.path });
        self.pace(io);
        self.arm_keepalive(io);
    }

    /// Changes to the connection `path`, on which a new and authentic message of the peer came.
    pub(crate) fn follow_stream(&mut self, io: &Io<'_>, path: Path) {
        if self.route.path.transport != Transport::Tcp {
            let separate = floated(self.route.path, self.route.nat, false, io.config.natt_port);
            self.route.separate = Some(Box::new(separate));
        }
        self.route.path = path;
        self.route.stream = Some(Box::new(Stream::accepted()));
        if self.link.is_authenticated() {
            self.deadlines().limit_half_open(None);
        } else {
            let at = self.link.started() + io.config.half_open_timeout;
            self.deadlines().limit_half_open(Some(at));
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.2
    //# If a new TCP connection for the IKE SA is established while the
    //# exchange Initiator is waiting for a response, the Initiator MUST
    //# retransmit its request over this connection and continue to wait
    //# for a response.
    /// Sends the request in flight on the present connection.
    pub(crate) fn send_again(&mut self, io: &mut Io<'_>) {
        if self.window.request_again() {
            if let Some(stream) = &mut self.route.stream {
                stream.on_asked(io.now.mono);
            }
            self.pace(io);
        }
    }

    /// Handles a path that differs from `before`: opens or closes the connection.
    fn change_line(&mut self, io: &mut Io<'_>, before: Transport) {
        let had_tcp = self.route.left_tcp(before);
        if self.route.path.transport == Transport::Tcp || self.route.separate.is_some() {
            self.timers.clear(TimerKey::Ike(Timer::Fallback));
            match &mut self.route.stream {
                Some(stream) if stream.ours => stream.open(io, &mut self.route.path),
                Some(_) => {}
                None if self.route.path.transport == Transport::Tcp => {
                    self.route.stream = Some(Box::new(Stream::accepted()));
                }
                None => {}
            }
            return;
        }
        self.route.stream = None;
        self.timers.clear(TimerKey::Ike(Timer::Reopen));
        if let TcpUse::Fallback(patience) = self.link.connection().enable_tcp
            && had_tcp
            && self.route.decides()
        {
            self.timers.set(TimerKey::Ike(Timer::Fallback), io.now.mono + patience);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
    //# Multiple IKE SAs MUST NOT share a single TCP connection, unless one
    //# is a rekey of an existing IKE SA
    /// Takes over what outlasts the keys of `old`, which this SA replaces by a rekey: the trust in the peer, the
    /// connection, MOBIKE, and what is known of the path.
    pub(crate) fn succeed(&mut self, io: &Io<'_>, old: &Self) {
        self.link.trust_as(&old.link);
        (self.route.stream, self.route.separate) =
            (old.route.stream.clone(), old.route.separate.clone());
        if self.route.stream.as_ref().is_some_and(|stream| stream.is_lost() && stream.ours) {
            self.timers.set(TimerKey::Ike(Timer::Reopen), io.now.mono);
        }
        self.route.prefers_udp = old.route.prefers_udp;
        self.route.mobike = old.route.mobike.as_ref().map(|mobike| Box::new(mobike.inherited()));
        self.probe = old.probe.inherited();
        self.window.inherit(old.window.rtt().clone());
        self.acks = old.acks.inherited();
        self.arm_keepalive(io);
    }

    /// Takes over the path of the SA that this one replaces by a rekey, if it is newer. True if the peer knows it; `None`
    /// without MOBIKE, by which a peer learns of it.
    pub(crate) fn continue_from(&mut self, io: &mut Io<'_>, before: Whereabouts) -> Option<bool> {
        let told = before.mobike.is_confirmed();
        let mobike = self.route.mobike.as_mut()?;
        if before.mobike.moves() > mobike.moves() {
            mobike.continue_from(*before.mobike);
            if before.path.transport != self.route.path.transport {
                self.route.stream = before.stream;
                if let TcpUse::Fallback(patience) = self.link.connection().enable_tcp
                    && self.route.stream.is_none()
                    && self.route.decides()
                {
                    self.timers.set(TimerKey::Ike(Timer::Fallback), io.now.mono + patience);
                }
            }
            (self.route.path, self.route.nat) = (before.path, before.nat);
            self.window.on_moved(io.now.mono, io.rng);
        } else if before.path == self.route.path {
            mobike.note_esp_remote(before.mobike.esp_remote());
        }
        Some(told)
    }

    /// Handles an update of the peer that moves the SA to `path`.
    pub(crate) fn take_update(&mut self, io: &mut Io<'_>, path: Path, nat: NatStatus) {
        self.route.nat = nat;
        if path != self.route.path {
            self.take_path(io, path);
        }
        if let Some(mobike) = &mut self.route.mobike {
            mobike.note_esp_remote(None);
        }
        self.route.bring_separate();
    }

    /// Changes from UDP to TCP, because UDP got no answer.
    pub(crate) fn fall_back(&mut self, io: &mut Io<'_>) {
        let here = self.route.path;
        if here.transport == Transport::Tcp || !self.route.switches_transports(&self.link) {
            return;
        }
        let path = Path {
            local: SocketAddr::new(here.local.ip(), 0),
            remote: SocketAddr::new(here.remote.ip(), self.link.connection().tcp_remote_port),
            transport: Transport::Tcp,
        };
        self.route.stream = Some(Box::new(Stream::opening()));
        self.take_path(io, path);
    }
}
