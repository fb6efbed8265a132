//! The addresses that an IKE SA and its children use: following a peer behind a NAT, and keeping the NAT's mapping
//! (RFC 7296 §2.11, §2.23).

use std::net::SocketAddr;

use super::context::Context;
use super::state::{Retry, State, Task};
use super::stream::Stream;
use super::timer::{Timer, TimerKey};
use super::{Core, IkeSa};
use crate::child::{ChildSa, Phase};
use crate::dataplane::{Command, Encapsulation, SaId};
use crate::event::{ChildSaId, Event, Failure, Path, Transport};
use crate::wire::registry::NotifyType;

impl IkeSa {
    /// Handles a new and authentic message by `path`: this end sends by that path from now on, if the peer is
    /// behind a NAT or not proven so far.
    pub(super) fn follow(&mut self, ctx: &mut Context<'_>, path: Path) {
        // A peer may open its next connection from the port of the former one.
        let back = self.core.channel.stream.as_deref().is_some_and(Stream::is_lost);
        if (path == self.core.channel.path && !back) || !self.may_follow(path) {
            return;
        }
        if path.transport == Transport::Tcp {
            return self.follow_stream(ctx, path);
        }
        if path.remote.ip() != self.core.channel.path.remote.ip() {
            self.core.channel.probe = self.core.channel.probe.moved();
        }
        self.core.channel.path = path;
        if matches!(self.state, State::Established(_)) {
            ctx.event(Event::PathChanged { ike: self.core.id, path });
            self.move_children(ctx);
        }
    }

    /// Handles an authentic ESP packet of `child` from `remote`: IKE (without MOBIKE) and all children move there,
    /// as if an IKE message had come from there (RFC 7296 §2.23 names any validated packet). ESP without UDP has
    /// no port to follow, and no NAT that would change it.
    pub(crate) fn follow_esp(
        &mut self,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        remote: SocketAddr,
    ) {
        let State::Established(established) = &self.state else { return };
        let found = established.children.iter().find(|c| c.id == child);
        if found.is_none_or(|child| child.encap.is_none()) {
            return;
        }
        let roams =
            self.core.channel.nat.remote && !(self.core.channel.nat.local && self.core.initiator);
        match &mut self.core.channel.separate {
            Some(path) if path.remote != remote && roams => {
                path.remote = remote;
                self.move_children(ctx);
            }
            Some(_) => {}
            None if self.core.channel.mobike.is_some() => self.follow_esp_only(ctx, remote, roams),
            None if self.core.channel.path.transport != Transport::Udp => {
                self.follow(ctx, Path { remote, ..self.core.channel.path });
            }
            None => {}
        }
    }

    /// The same with MOBIKE: what RFC 4555 §3.8 permits to an end that is not behind a NAT.
    fn follow_esp_only(&mut self, ctx: &mut Context<'_>, remote: SocketAddr, roams: bool) {
        if !roams
            || self.core.decides()
            || self.core.is_held()
            || remote == self.core.esp_path().remote
        {
            return;
        }
        if let Some(mobike) = &mut self.core.channel.mobike {
            mobike.esp_remote = Some(Box::new(remote));
        }
        self.move_children(ctx);
    }

    /// True if the peer may be reached by `path` from now on.
    pub(super) fn may_follow(&self, path: Path) -> bool {
        if path.transport == Transport::Tcp {
            //= RFC 9329 §6.1
            //# the TCP Responder MUST
            //# allow packets for existing SAs to be received from new source IP
            //# addresses and ports.
            // The end that opens connections knows which one is the newest.
            return self.core.is_on_line(path)
                && self.core.channel.stream.as_ref().is_none_or(|s| !s.ours);
        }
        if self.core.channel.mobike.is_some() && matches!(self.state, State::Established(_)) {
            //= RFC 4555 §3.8
            //# The host not behind a NAT MUST NOT use these dynamic
            //# updates for IKEv2 packets, but MAY use them for ESP packets.
            return false;
        }
        if self.core.channel.path.transport == Transport::UdpEncap
            && path.transport == Transport::Udp
        {
            // A peer does not go back from port 4500, so the message was redirected on its way.
            return false;
        }
        if !matches!(self.state, State::Established(_)) {
            // A peer without a NAT changes its port for IKE_AUTH only.
            let same = path.remote.ip().to_canonical()
                == self.core.channel.path.remote.ip().to_canonical();
            return same || self.core.channel.nat.remote || !self.core.channel.nat.supported;
        }
        //= RFC 7296 §2.23
        //# A host behind a NAT SHOULD NOT
        //# do this type of dynamic address update if a validated packet has
        //# different port and/or address values because it opens a possible
        //# DoS attack
        // An initiator need not follow: it has reached the peer at this address, whatever NAT the peer is behind.
        // A responder behind a static NAT would lose a peer behind another NAT.
        let behind_nat = self.core.channel.nat.local && self.core.initiator;
        path.remote == self.core.channel.path.remote
            || (self.core.channel.nat.remote && !behind_nat)
    }

    /// Moves the children's outer addresses to those of the peer.
    pub(crate) fn move_children(&mut self, ctx: &mut Context<'_>) {
        let path = self.core.esp_path();
        let nat = self
            .core
            .channel
            .mobike
            .is_some()
            .then_some(self.core.channel.nat.local || self.core.channel.nat.remote);
        let State::Established(established) = &mut self.state else { return };
        let mut batch = Vec::new();
        let (mut moved, mut stale, mut stuck) = (Vec::new(), Vec::new(), Vec::new());
        let mut renamed = Vec::new();
        for child in &mut established.children {
            let (inbound, outbound) = (child.inbound(), child.outbound());
            let there = SaId { dst: path.remote.ip(), ..outbound };
            if !ctx.ids.claim(there, child.spi_in) {
                stuck.push(child.id);
                continue;
            }
            moved.push(child.id);
            stale.extend([inbound, outbound]);
            let installed_out = child.has_outbound();
            if child.follow_addresses(path) && child.phase == Phase::Installed {
                renamed.push(child.id);
            }
            child.local = path.local.ip();
            child.remote = path.remote.ip();
            child.encap = ChildSa::encap_on(path, nat.unwrap_or(child.encap.is_some()));
            let (encap, local, remote) = (child.encap, path.local, path.remote);
            let reversed = encap.map(Encapsulation::reversed);
            batch.push(Command::UpdateSa { id: inbound, src: remote, dst: local, encap: reversed });
            if installed_out {
                batch.push(Command::UpdateSa { id: outbound, src: local, dst: remote, encap });
            }
            if let Some(spec) = &mut child.pending_out {
                spec.src = path.local.ip();
                spec.id.dst = path.remote.ip();
                spec.encap = encap;
                spec.local_ts.clone_from(&child.local_ts);
                spec.remote_ts.clone_from(&child.remote_ts);
            }
        }
        // A policy that sends by a child which the data plane is at work on goes on with that one: the child that it
        // replaces is about to go.
        let sends = |child: &&ChildSa| match child.routed {
            true => child.carries() || child.phase == Phase::Installing,
            false => {
                let known = child.has_outbound() && !child.processing.per_cpu;
                child.carries() && known && !established.is_routed(child.policy)
            }
        };
        let sending = established.children.iter().filter(sends);
        let carrying: Vec<_> = sending.map(ChildSa::install_policy).collect();
        batch.extend(carrying);
        if !batch.is_empty() {
            ctx.change(batch, moved, stale);
        }
        // The SAs in the data plane keep their selectors. A rekey makes others.
        for child in renamed {
            self.enqueue(Task::RekeyChild { child, request: None, retry: Retry::default() });
        }
        for child in stuck {
            let reason = Failure::Refused(NotifyType::NO_ADDITIONAL_SAS);
            self.give_up_child(child, reason);
        }
    }
}

impl Core {
    /// The path of ESP.
    pub(crate) fn esp_path(&self) -> Path {
        if let Some(separate) = self.channel.separate.as_deref() {
            return *separate;
        }
        let elsewhere =
            self.channel.mobike.as_ref().and_then(|mobike| mobike.esp_remote.as_deref().copied());
        Path { remote: elsewhere.unwrap_or(self.channel.path.remote), ..self.channel.path }
    }

    /// Sets the keepalive timer if this end is behind a NAT.
    pub(crate) fn arm_keepalive(&mut self, ctx: &Context<'_>) {
        //= draft-ietf-ipsecme-ikev2-reliable-transport §3.6
        //# Peers MUST
        //# maintain NAT mappings for the ESP path by sending NAT keepalive
        //# packets as specified in Section 2.23 of [RFC7296]
        let wanted = self.channel.nat.local
            && self.esp_path().transport == Transport::UdpEncap
            && !ctx.config.keep_alive.is_zero();
        let at = wanted.then(|| ctx.now.mono + ctx.config.keep_alive);
        self.channel.timers.set_or_clear(TimerKey::Ike(Timer::KeepAlive), at);
    }
}
