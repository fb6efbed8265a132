//! The addresses an IKE SA and its children use: following the peer behind a NAT, keeping the NAT's
//! mapping (RFC 7296 §2.11, §2.23).

use std::net::SocketAddr;

use super::IkeSa;
use super::context::Context;
use super::state::{Retry, State, Task};
use super::timer::{Timer, TimerKey};
use crate::child::{ChildSa, Phase};
use crate::dataplane::{Command, SaId, UdpEncap};
use crate::event::{ChildSaId, Event, Failure, Path, Transport};
use crate::wire::registry::NotifyType;

impl IkeSa {
    /// A new and authentic message came by `path`: what this end sends from now on goes back by it,
    /// if the peer is behind a NAT or so far unproven.
    pub(super) fn follow(&mut self, ctx: &mut Context<'_>, path: Path) {
        if path == self.path || !self.may_follow(path) {
            return;
        }
        self.path = path;
        if matches!(self.state, State::Established(_)) {
            ctx.event(Event::PathChanged { ike: self.id, path });
            self.move_children(ctx);
        }
    }

    /// An authentic ESP packet of `child` came from `remote`: IKE and every child go there from now on,
    /// as if an IKE message had come from there (RFC 7296 §2.23 speaks of any validated packet). ESP that
    /// is not in UDP has no port to follow, and no NAT that would change it.
    pub(crate) fn follow_esp(
        &mut self,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        remote: SocketAddr,
    ) {
        let State::Established(established) = &self.state else { return };
        let encapsulated = established.children.iter().any(|c| c.id == child && c.encap.is_some());
        if encapsulated && self.path.transport == Transport::UdpEncap {
            self.follow(ctx, Path { remote, ..self.path });
        }
    }

    /// True if the peer may be reached by `path` from now on.
    pub(super) fn may_follow(&self, path: Path) -> bool {
        if self.path.transport == Transport::UdpEncap && path.transport == Transport::Udp {
            // Nobody goes back from port 4500: the message was redirected on its way.
            return false;
        }
        if !matches!(self.state, State::Established(_)) {
            // A peer that was seen without a NAT changes its port for IKE_AUTH and nothing else.
            let same = path.remote.ip().to_canonical() == self.path.remote.ip().to_canonical();
            return same || self.nat.remote || !self.nat.supported;
        }
        //= RFC 7296 §2.23
        //# A host behind a NAT SHOULD NOT
        //# do this type of dynamic address update if a validated packet has
        //# different port and/or address values because it opens a possible
        //# DoS attack
        // An initiator has no need to: it reached the peer at this address, whatever NAT the peer is
        // behind. A responder behind a static NAT would lose a peer behind another one.
        let behind_nat = self.nat.local && self.initiator;
        path.remote == self.path.remote || (self.nat.remote && !behind_nat)
    }

    /// Arms the keepalive, if this end is behind a NAT.
    pub(super) fn arm_keepalive(&mut self, ctx: &Context<'_>) {
        let wanted = self.nat.local
            && self.path.transport == Transport::UdpEncap
            && !ctx.config.keep_alive.is_zero();
        let at = wanted.then(|| ctx.now.mono + ctx.config.keep_alive);
        self.timers.set_or_clear(TimerKey::Ike(Timer::KeepAlive), at);
    }

    /// The peer's address changed: the children's outer addresses follow.
    fn move_children(&mut self, ctx: &mut Context<'_>) {
        let path = self.path;
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
            child.encap = ChildSa::encap_on(path, child.encap.is_some());
            let ports = child.encap;
            batch.push(update(inbound, path, ports, true));
            if installed_out {
                batch.push(update(outbound, path, ports, false));
            }
            if let Some(spec) = &mut child.pending_out {
                spec.src = path.local.ip();
                spec.id.dst = path.remote.ip();
                spec.encap = ports.map(|(src_port, dst_port)| UdpEncap { src_port, dst_port });
                spec.local_ts.clone_from(&child.local_ts);
                spec.remote_ts.clone_from(&child.remote_ts);
            }
        }
        let carrying: Vec<_> = established
            .children
            .iter()
            .filter(|c| c.carries() && (c.routed || !c.processing.per_cpu))
            .map(ChildSa::install_policy)
            .collect();
        batch.extend(carrying);
        if !batch.is_empty() {
            ctx.change(batch, moved, stale);
        }
        // The SAs in the data plane have the selectors they were made with; a rekey makes others.
        for child in renamed {
            self.enqueue(Task::RekeyChild { child, request: None, retry: Retry::default() });
        }
        for child in stuck {
            let reason = Failure::Refused(NotifyType::NO_ADDITIONAL_SAS);
            self.give_up_child(child, reason);
        }
    }
}

fn update(id: SaId, path: Path, ports: Option<(u16, u16)>, inbound: bool) -> Command {
    let (src, dst) = if inbound { (path.remote, path.local) } else { (path.local, path.remote) };
    let encap = ports.map(|_| UdpEncap { src_port: src.port(), dst_port: dst.port() });
    Command::UpdateSa { id, src, dst, encap }
}
