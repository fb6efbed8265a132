//! The simulated kernel's treatment of packets.

use std::net::IpAddr;

use ipsec_types::dataplane::{Direction, Mark, Mode};

use super::states::SimState;
use super::{Inner, SimKernel};
use crate::event::{Acquire, Event};
use crate::policy::{Action, PolicyDirection, PolicyInfo, Template};
use crate::selector::{Port, Prefix, Selector};
use crate::state::{StateId, StateInfo};

/// A packet, or the content of a protected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port, or ICMP type.
    pub src_port: u16,
    /// Destination port, or ICMP code.
    pub dst_port: u16,
    /// Mark.
    pub mark: u32,
    /// XFRM interface.
    pub if_id: u32,
}

/// The result for an outbound packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves as it is.
    Clear,
    /// It leaves through this state.
    Esp(StateId),
    /// It is dropped.
    Dropped,
    /// It is dropped for want of a state, which the kernel asks for or has asked for.
    Acquire,
}

impl Packet {
    /// UDP from port 1000 to port 2000.
    pub fn udp(src: IpAddr, dst: IpAddr) -> Self {
        Self { src, dst, protocol: 17, src_port: 1000, dst_port: 2000, mark: 0, if_id: 0 }
    }

    fn selector(&self) -> Selector {
        Selector {
            src: Prefix::host(self.src),
            dst: Prefix::host(self.dst),
            protocol: self.protocol,
            src_port: Port::exact(self.src_port),
            dst_port: Port::exact(self.dst_port),
            ifindex: 0,
        }
    }
}

impl SimKernel {
    /// Sends a packet.
    pub fn send(&self, packet: &Packet) -> Verdict {
        let mut inner = self.lock();
        let verdict = inner.would(packet);
        match verdict {
            Verdict::Esp(id) => inner.charge(id, 100, 1),
            Verdict::Acquire => inner.acquire(packet),
            Verdict::Clear | Verdict::Dropped => {}
        }
        verdict
    }

    /// A packet arrives by the inbound state with this SPI: true if it is taken, for this host.
    pub fn receive(&self, spi: u32, inner_packet: &Packet) -> bool {
        let mut inner = self.lock();
        let state = inner.states.iter().map(SimState::info).find(|state| state.id.spi == spi);
        let Some(state) = state.filter(|state| state.direction != Some(Direction::Out)) else {
            return false;
        };
        inner.charge(state.id, 100, 1);
        if !state.selector.is_none_or(|selector| matches(&selector, inner_packet)) {
            return false;
        }
        match inner.lookup(PolicyDirection::In, inner_packet).map(|info| &info.policy.action) {
            None => true,
            Some(Action::Block) => false,
            // A policy without templates accepts packets in clear.
            Some(Action::Allow(templates)) => templates.first().is_some_and(|template| {
                fits(template, &state)
                    && (template.mode == Mode::Transport
                        || template.src.is_unspecified()
                        || template.src == state.src)
            }),
        }
    }

    /// True if a packet that arrives in clear, for this host, is taken.
    pub fn receive_clear(&self, packet: &Packet) -> bool {
        self.passes_clear(packet, PolicyDirection::In)
    }

    /// True if a packet in clear is passed on by this host, as far as forward policies go.
    pub fn forward_clear(&self, packet: &Packet) -> bool {
        self.passes_clear(packet, PolicyDirection::Forward)
    }

    fn passes_clear(&self, packet: &Packet, direction: PolicyDirection) -> bool {
        let inner = self.lock();
        match inner.lookup(direction, packet).map(|info| &info.policy.action) {
            None => true,
            Some(Action::Block) => false,
            Some(Action::Allow(templates)) => templates.iter().all(|template| template.optional),
        }
    }
}

impl Inner {
    /// The result that an outbound packet would have.
    pub(super) fn would(&self, packet: &Packet) -> Verdict {
        let policies: Vec<_> = self.policies.iter().map(|policy| policy.info.clone()).collect();
        let states: Vec<_> = self.states.iter().map(SimState::info).collect();
        judge(&policies, &states, packet)
    }

    fn acquire(&mut self, packet: &Packet) {
        let Some(info) = self.lookup(PolicyDirection::Out, packet).cloned() else { return };
        let Action::Allow(templates) = &info.policy.action else { return };
        let Some(template) = templates.first() else { return };
        let (src, dst) = ends(template, packet);
        let sequence = self.count + 1;
        let acquire = Acquire {
            packet: packet.selector(),
            src,
            dst,
            reqid: template.reqid,
            mode: Some(template.mode),
            policy: info.policy.id,
            index: info.index,
            sequence,
            cpu: None,
        };
        let waiting = SimState::waiting(&acquire);
        let there = waiting.info();
        let same = |state: &SimState| {
            let info = state.info();
            state.is_acquire()
                && (info.reqid, info.mode, info.src, info.id.dst)
                    == (there.reqid, there.mode, there.src, there.id.dst)
        };
        if !self.states.iter().any(same) {
            self.count += 1;
            self.states.push(waiting);
            self.events.push_back(Event::Acquire(acquire));
        }
    }

    fn lookup(&self, direction: PolicyDirection, packet: &Packet) -> Option<&PolicyInfo> {
        find(self.policies.iter().map(|policy| &policy.info), direction, packet)
    }
}

/// The result for an outbound packet in a kernel with these policies and states. Of policies with one priority the
/// first one counts.
pub fn judge(policies: &[PolicyInfo], states: &[StateInfo], packet: &Packet) -> Verdict {
    let Some(info) = find(policies.iter(), PolicyDirection::Out, packet) else {
        return Verdict::Clear;
    };
    let Action::Allow(templates) = &info.policy.action else { return Verdict::Dropped };
    let Some(template) = templates.first() else { return Verdict::Clear };
    let (src, dst) = ends(template, packet);
    let takes = |state: &&StateInfo| {
        // A state that the kernel made for an acquire has no algorithms.
        !state.algorithms.is_empty()
            && fits(template, state)
            && (src.is_unspecified() || state.src == src)
            && state.id.dst == dst
            && state.direction != Some(Direction::In)
            && (template.spi == 0 || template.spi == state.id.spi)
            && marked(state.id.mark, packet.mark)
            && state.if_id == packet.if_id
            && state.selector.is_none_or(|selector| matches(&selector, packet))
    };
    match states.iter().find(takes) {
        Some(state) => Verdict::Esp(state.id),
        None => Verdict::Acquire,
    }
}

/// The policy that a packet meets.
fn find<'a>(
    policies: impl Iterator<Item = &'a PolicyInfo>,
    direction: PolicyDirection,
    packet: &Packet,
) -> Option<&'a PolicyInfo> {
    let meets = |info: &&PolicyInfo| {
        let id = &info.policy.id;
        id.direction == direction
            && id.if_id == packet.if_id
            && marked(id.mark, packet.mark)
            && matches(&id.selector, packet)
    };
    policies.filter(meets).min_by_key(|info| info.policy.priority)
}

/// Outer addresses that a template requires.
fn ends(template: &Template, packet: &Packet) -> (IpAddr, IpAddr) {
    match template.mode {
        Mode::Transport => (packet.src, packet.dst),
        _ => (template.src, template.dst),
    }
}

fn fits(template: &Template, state: &StateInfo) -> bool {
    (template.reqid == 0 || template.reqid == state.reqid) && state.mode == Some(template.mode)
}

fn marked(wanted: Mark, mark: u32) -> bool {
    mark & wanted.mask == wanted.value
}

fn matches(selector: &Selector, packet: &Packet) -> bool {
    let within = |prefix: Prefix, address: IpAddr| {
        prefix.address.is_ipv4() == address.is_ipv4()
            && Prefix::new(address, prefix.length) == prefix
    };
    let port = |wanted: Port, port: u16| port & wanted.mask == wanted.value & wanted.mask;
    within(selector.src, packet.src)
        && within(selector.dst, packet.dst)
        && (selector.protocol == 0 || selector.protocol == packet.protocol)
        && port(selector.src_port, packet.src_port)
        && port(selector.dst_port, packet.dst_port)
}
