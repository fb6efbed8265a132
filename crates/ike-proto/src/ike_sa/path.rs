//! The addresses that an IKE SA and its children use: following a peer behind a NAT, and keeping the NAT's mapping
//! (RFC 7296 §2.11, §2.23).

use std::net::SocketAddr;

use super::context::{Context, Effect};
use super::io::Io;
use super::state::{Established, Task};
use super::stream::Stream;
use super::timer::{Timer, TimerKey};
use super::{Channel, Core};
use crate::event::{ChildSaId, Event, Failure, Path, Transport};
use crate::exchange::sent::Retry;
use crate::ike_sa::children::Moves;
use crate::wire::registry::NotifyType;

impl Established {
    /// Handles a new and authentic message by `path`: this end sends by that path from now on, if the peer is
    /// behind a NAT or not proven so far.
    pub(super) fn follow(&mut self, core: &mut Core, ctx: &mut Context<'_>, path: Path) {
        if !core.channel.adopt_path(&mut ctx.io, path) {
            return;
        }
        ctx.io.event(Event::PathChanged { ike: core.id(), path });
        if path.transport != Transport::Tcp || core.channel.separate.is_none() {
            self.move_children(core, ctx);
        }
        if path.transport == Transport::Tcp {
            core.channel.send_again(&mut ctx.io);
        }
    }

    /// Handles an authentic ESP packet of `child` from `remote`: IKE (without MOBIKE) and all children move there,
    /// as if an IKE message had come from there (RFC 7296 §2.23 names any validated packet). ESP without UDP has
    /// no port to follow, and no NAT that would change it.
    pub(crate) fn follow_esp(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        remote: SocketAddr,
    ) {
        let found = self.children.get(child);
        if found.is_none_or(|child| child.encap.is_none()) {
            return;
        }
        let roams = core.channel.nat.remote && !(core.channel.nat.local && core.is_initiator());
        match &mut core.channel.separate {
            Some(path) if path.remote != remote && roams => {
                path.remote = remote;
                self.move_children(core, ctx);
            }
            Some(_) => {}
            None if core.channel.mobike.is_some() => self.follow_esp_only(core, ctx, remote, roams),
            None if core.channel.path.transport != Transport::Udp => {
                self.follow(core, ctx, Path { remote, ..core.channel.path });
            }
            None => {}
        }
    }

    /// The same with MOBIKE: what RFC 4555 §3.8 permits to an end that is not behind a NAT.
    fn follow_esp_only(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        remote: SocketAddr,
        roams: bool,
    ) {
        if !roams
            || core.channel.decides()
            || core.channel.is_held()
            || remote == core.channel.esp_path().remote
        {
            return;
        }
        if let Some(mobike) = &mut core.channel.mobike {
            mobike.note_esp_remote(Some(remote));
        }
        self.move_children(core, ctx);
    }

    /// Moves the children's outer addresses to those of the peer.
    pub(crate) fn move_children(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        let path = core.channel.esp_path();
        let mobike = core.channel.mobike.is_some();
        let nat = mobike.then_some(core.channel.nat.local || core.channel.nat.remote);
        // Without MOBIKE no peer has proven its address (RFC 4555 §3.7).
        let proven = (mobike && !core.channel.is_held()).then_some(core.channel.path);
        let claim = |there, spi_in| ctx.ids.claim(there, spi_in);
        let from = self.children.as_slice().first().map(|child| child.remote);
        let Moves { batch, moved, stale, stuck, renamed } =
            self.children.move_to(path, (proven, nat), claim);
        if let (Some(from), Some(to)) = (from, proven) {
            let connection = core.connection().name.clone();
            ctx.effects.push_back(Effect::Moved { connection, from, to });
        }
        if !batch.is_empty() {
            ctx.change(batch, moved, stale);
        }
        // The SAs in the data plane keep their selectors. A rekey makes others.
        for child in renamed {
            self.queue.push(Task::RekeyChild { child, request: None, retry: Retry::default() });
        }
        for child in stuck {
            let reason = Failure::Refused(NotifyType::NO_ADDITIONAL_SAS);
            self.queue.give_up_child(child, reason);
        }
    }
}

impl Channel {
    /// True if the peer may be reached by `path` from now on.
    pub(super) fn may_follow(&self, path: Path) -> bool {
        if path.transport == Transport::Tcp {
            //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
            //# the TCP Responder MUST
            //# allow packets for existing SAs to be received from new source IP
            //# addresses and ports.
            // The end that opens connections knows which one is the newest.
            return self.is_on_line(path) && self.stream.as_ref().is_none_or(|s| !s.ours);
        }
        if self.mobike.is_some() && self.link.is_authenticated() {
            //= https://www.rfc-editor.org/rfc/rfc4555#section-3.8
            //# The host not behind a NAT MUST NOT use these dynamic
            //# updates for IKEv2 packets, but MAY use them for ESP packets.
            return false;
        }
        if self.path.transport == Transport::UdpEncap && path.transport == Transport::Udp {
            // A peer does not go back from port 4500, so the message was redirected on its way.
            return false;
        }
        if !self.link.is_authenticated() {
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
        let behind_nat = self.nat.local && self.link.is_initiator();
        path.remote == self.path.remote || (self.nat.remote && !behind_nat)
    }

    /// The same before the peer is authenticated.
    pub(super) fn follow_unauthenticated(&mut self, io: &mut Io<'_>, path: Path) {
        if self.adopt_path(io, path) && path.transport == Transport::Tcp {
            self.send_again(io);
        }
    }

    /// Replaces the path by that of a new and authentic message. False if the SA keeps its path.
    fn adopt_path(&mut self, io: &mut Io<'_>, path: Path) -> bool {
        // A peer may open its next connection from the port of the former one.
        let back = self.stream.as_deref().is_some_and(Stream::is_lost);
        if (path == self.path && !back) || !self.may_follow(path) {
            return false;
        }
        if path.transport == Transport::Tcp {
            self.follow_stream(io, path);
            return true;
        }
        if path.remote.ip() != self.path.remote.ip() {
            self.probe = self.probe.moved();
        }
        self.path = path;
        true
    }

    /// The path of ESP.
    pub(crate) fn esp_path(&self) -> Path {
        if let Some(separate) = self.separate.as_deref() {
            return *separate;
        }
        let elsewhere = self.mobike.as_ref().and_then(|mobike| mobike.esp_remote());
        Path { remote: elsewhere.unwrap_or(self.path.remote), ..self.path }
    }

    /// Sets the keepalive timer if this end is behind a NAT.
    pub(crate) fn arm_keepalive(&mut self, io: &Io<'_>) {
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-reliable-transport-04#section-3.6
        //# Peers MUST
        //# maintain NAT mappings for the ESP path by sending NAT keepalive
        //# packets as specified in Section 2.23 of [RFC7296]
        let wanted = self.nat.local
            && self.esp_path().transport == Transport::UdpEncap
            && !io.config.keep_alive.is_zero();
        let at = wanted.then(|| io.now.mono + io.config.keep_alive);
        self.timers.set_or_clear(TimerKey::Ike(Timer::KeepAlive), at);
    }
}
