//! From the kernel's events to the engine's, and the recovery from lost events.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ipsec_types::dataplane::{Event, PolicyAction, SaId, TrafficSelector};

use super::XfrmNetlink;
use super::sas::canonical;
use crate::event::{Acquire, Event as KernelEvent};
use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{PolicyDirection, PolicyId};
use crate::selector::{Port, Selector};
use crate::state::{State, StateInfo};

/// After so long the kernel asks again for an SA that it asked for, if there is traffic for it.
pub const ACQUIRE_INTERVAL: Duration = Duration::from_secs(1);

/// Events taken from the kernel at a time.
const AT_A_TIME: usize = 1024;

/// How long until a look at the policies that no event has called for.
pub(super) const REGULAR: Duration = Duration::from_secs(60);

/// How long after a failure to put policies right it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The most acquires that are remembered. While there are more, the kernel forgets them by itself.
const MAX_ACQUIRES: usize = 4096;

/// Where the kernel's events come from.
pub trait Source {
    /// The next event, `None` if there is none now. Does not wait.
    fn next(&mut self) -> io::Result<Option<KernelEvent>>;
}

impl Source for crate::event::Events {
    fn next(&mut self) -> io::Result<Option<KernelEvent>> {
        self.next()
    }
}

/// Work on acquires to be done later, with deadlines.
#[derive(Debug, Default)]
pub(super) struct Acquires {
    due: BTreeMap<(Instant, u64), Later>,
    count: u64,
}

#[derive(Debug)]
enum Later {
    /// The kernel is to forget that it asked.
    Forget(Acquire),
    /// A policy may ask for SAs of single CPUs again.
    Resume(PolicyId),
}

impl Acquires {
    fn add(&mut self, later: Later, now: Instant) {
        if self.due.len() < MAX_ACQUIRES || matches!(later, Later::Resume(_)) {
            self.count += 1;
            self.due.insert((now + ACQUIRE_INTERVAL, self.count), later);
        }
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn take_due(&mut self, now: Instant) -> Option<Later> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    /// Has the kernel forget all.
    pub(super) fn clear<T: Transport>(&mut self, kernel: &mut Kernel<T>) {
        for later in std::mem::take(&mut self.due).into_values() {
            if let Later::Forget(acquire) = later {
                forget(kernel, &acquire);
            }
        }
    }
}

/// The kernel forgets it by itself, only later, if this fails.
fn forget<T: Transport>(kernel: &mut Kernel<T>, acquire: &Acquire) {
    if let Err(error) = kernel.forget_acquire(acquire) {
        tracing::debug!(%error, "acquire not taken back");
    }
}

impl<T: Transport, S: Source> XfrmNetlink<T, S> {
    /// Moves the kernel's events to the queue.
    pub(super) fn collect(&mut self) {
        let now = self.clock.now();
        // Unread events cause no wake-up: the descriptor has been readable all the time.
        self.unread = true;
        let mut lost = false;
        for _ in 0..AT_A_TIME {
            match self.source.next() {
                // One comparison with the kernel makes up for any number of these reports.
                Ok(Some(KernelEvent::Lost)) => lost = true,
                Ok(Some(event)) => self.on_event(event, now),
                Ok(None) => {
                    self.unread = false;
                    break;
                }
                Err(error) => {
                    self.unread = false;
                    tracing::warn!(%error, "events of the kernel");
                    break;
                }
            }
        }
        if lost {
            self.installer.restore(&mut self.kernel);
            self.look_at_all();
        }
        let regular = self.looked.is_none_or(|at| now.saturating_duration_since(at) >= REGULAR);
        if self.policies_gone || self.policies.is_due(now) || regular {
            self.policies_gone = false;
            self.looked = Some(now);
            self.look_at_policies(now);
        }
        while let Some(later) = self.acquires.take_due(now) {
            match later {
                Later::Forget(acquire) => forget(&mut self.kernel, &acquire),
                Later::Resume(slot) => self.ask_per_cpu(&slot, true),
            }
        }
        self.adopted.remove_due(&mut self.kernel, &mut self.policies, now);
        if self.policies.in_doubt() && self.retry.is_none_or(|at| at <= now) {
            self.policies.settle(&mut self.kernel);
            self.retry = Some(now + RETRY);
        }
        for id in self.watch.take_due(now) {
            self.look_at(id);
        }
    }

    fn on_event(&mut self, event: KernelEvent, now: Instant) {
        match event {
            KernelEvent::Acquire(acquire) => self.on_acquire(acquire, now),
            KernelEvent::Expire { id, reqid, hard } => {
                let sa = canonical(SaId { spi: id.spi, dst: id.dst });
                // Another program may have a state with the same SPI, told apart by its mark.
                let ours = |state: &State| state.id.mark == id.mark && state.reqid == reqid;
                if self.sas.get(sa).is_some_and(|sa| ours(&sa.state)) {
                    self.on_expire(sa, hard);
                }
            }
            KernelEvent::Mapping { id, new, .. } => {
                let sa = canonical(SaId { spi: id.spi, dst: id.dst });
                if self.sas.get(sa).is_some() {
                    let remote = SocketAddr::new(new.0, new.1);
                    self.events.push_back(Event::Mapping { sa, remote });
                }
            }
            KernelEvent::Link(change) => {
                let lost = self.installer.link_changed(&mut self.kernel, change);
                if lost {
                    self.look_at_all();
                }
            }
            // Of a policy that this plane has deleted, the plane no longer has the slot.
            KernelEvent::PolicyDeleted(id) if self.policies.holder(&id).is_some() => {
                self.policies_gone = true;
            }
            KernelEvent::PoliciesFlushed => self.policies_gone = true,
            KernelEvent::StateDeleted(id) => {
                let sa = canonical(SaId { spi: id.spi, dst: id.dst });
                let ours = self.sas.get(sa).is_some_and(|sa| sa.state.id.mark == id.mark);
                // One that has moved is there again.
                if ours && self.sas.is_lost(&mut self.kernel, sa) {
                    self.watch.end(sa);
                    self.events.push_back(Event::HardExpire(sa));
                }
            }
            KernelEvent::StatesFlushed => self.look_at_all(),
            // Policies have no limits here.
            KernelEvent::PolicyDeleted(_)
            | KernelEvent::PolicyExpire { .. }
            | KernelEvent::Lost => {}
        }
    }

    /// Compares policies with the kernel's, and puts back what others have removed.
    fn look_at_policies(&mut self, now: Instant) {
        if self.policies.is_empty() {
            return;
        }
        match self.kernel.policies() {
            Ok(there) => self.policies.repair(&mut self.kernel, &there, now),
            Err(error) => {
                self.policies_gone = true;
                tracing::warn!(%error, "XFRM policies cannot be read; the next look is at the next event");
            }
        }
    }

    fn look_at_all(&mut self) {
        if let Err(error) = self.resync() {
            tracing::warn!(%error, "events were lost, and what there is cannot be read");
        }
    }

    fn on_acquire(&mut self, acquire: Acquire, now: Instant) {
        let Some(spec) = self.policies.holder(&acquire.policy) else { return };
        let per_cpu = match spec.action {
            PolicyAction::Trap => false,
            // There is an SA for all CPUs; this asks for one of one CPU.
            PolicyAction::Protect { .. } if spec.processing.per_cpu => true,
            // Its SA is gone, or not there yet. If the kernel lost it without a word, the engine has to know.
            PolicyAction::Protect { outbound: Some(outbound), .. } => {
                if self.sas.is_lost(&mut self.kernel, outbound) {
                    self.events.push_back(Event::HardExpire(outbound));
                }
                return self.acquires.add(Later::Forget(acquire), now);
            }
            _ => return self.acquires.add(Later::Forget(acquire), now),
        };
        let policy = spec.id;
        let cpu = acquire.cpu.filter(|_| per_cpu);
        if !per_cpu || cpu.is_some() {
            let (local, remote) = sides(&acquire.packet);
            self.events.push_back(Event::Acquire { policy, local, remote, cpu });
        }
        if !per_cpu {
            return self.acquires.add(Later::Forget(acquire), now);
        }
        // While the kernel remembers that it asked for an SA of one CPU, it drops that CPU's packets, and does
        // not use the SA for all. So it forgets at once, and does not ask again for a while.
        self.ask_per_cpu(&acquire.policy, false);
        forget(&mut self.kernel, &acquire);
        self.acquires.add(Later::Resume(acquire.policy), now);
    }

    /// Whether a policy asks for SAs of single CPUs.
    fn ask_per_cpu(&mut self, slot: &PolicyId, asks: bool) {
        if let Err(error) = self.policies.ask_per_cpu(&mut self.kernel, slot, asks) {
            tracing::debug!(%error, "a policy is put right later");
        }
    }

    /// A limit of an SA is reached; it is told once.
    pub(super) fn on_expire(&mut self, id: SaId, hard: bool) {
        let id = canonical(id);
        let Some(sa) = self.sas.get_mut(id) else { return };
        if hard && !sa.gone {
            sa.gone = true;
            self.watch.end(id);
            self.events.push_back(Event::HardExpire(id));
        } else if !hard && !sa.soft {
            sa.soft = true;
            self.events.push_back(Event::SoftExpire(id));
        }
    }

    /// An SA of which the first packet matters.
    fn look_at(&mut self, id: SaId) {
        let Some(sa) = self.sas.get(id) else { return self.watch.end(id) };
        match self.kernel.state(&sa.state.id) {
            Ok(Some(info)) if info.packets > 0 => {
                self.watch.end(id);
                self.events.push_back(Event::FirstPacket(id));
            }
            Ok(Some(_)) => {}
            Ok(None) => self.on_expire(id, true),
            Err(error) => tracing::debug!(%error, "an SA is looked at again later"),
        }
    }

    /// Compares the installed SAs and policies with those in the kernel. A missing SA expires, and a missing
    /// policy is installed again. Passed limits are reported, and acquires are raised.
    pub fn resync(&mut self) -> Result<(), Error> {
        let states = self.kernel.states()?;
        let (lost, soft) = self.sas.compare(&states);
        for id in lost {
            self.watch.end(id);
            self.events.push_back(Event::HardExpire(id));
        }
        self.events.extend(soft.into_iter().map(Event::SoftExpire));
        let there = self.kernel.policies()?;
        let now = self.clock.now();
        self.policies.repair(&mut self.kernel, &there, now);
        for acquire in states.iter().filter_map(waiting) {
            let traps = self.policies.specs().filter(|spec| spec.action == PolicyAction::Trap);
            let Some(policy) = traps
                .filter(|spec| self.reqids.of(spec.id) == Some(acquire.reqid))
                .map(|spec| spec.id)
                .next()
            else {
                continue;
            };
            let (local, remote) = sides(&acquire.packet);
            self.events.push_back(Event::Acquire { policy, local, remote, cpu: None });
            self.acquires.add(Later::Forget(acquire), now);
        }
        Ok(())
    }
}

/// The acquire for which the kernel made `state`, if it did. Which policy wanted it is not known.
fn waiting(state: &StateInfo) -> Option<Acquire> {
    let packet = state.selector.filter(|_| state.algorithms.is_empty() && state.id.spi == 0)?;
    let direction = PolicyDirection::Out;
    Some(Acquire {
        packet,
        policy: PolicyId { selector: packet, direction, mark: state.id.mark, if_id: state.if_id },
        src: state.src,
        dst: state.id.dst,
        reqid: state.reqid,
        mode: state.mode,
        index: 0,
        cpu: state.cpu,
        sequence: state.sequence,
    })
}

/// The two ends of a packet that leaves.
fn sides(packet: &Selector) -> (TrafficSelector, TrafficSelector) {
    let Selector { src, dst, protocol, src_port, dst_port, .. } = *packet;
    let side = |address: IpAddr, (start_port, end_port)| TrafficSelector {
        protocol,
        start_port,
        end_port,
        start: address,
        end: address,
    };
    // The kernel says port 0 where there are none.
    let ports = matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE);
    let range = |port: Port| match port.mask {
        0 => (0, u16::MAX),
        _ if !ports => (0, u16::MAX),
        _ => (port.value, port.value),
    };
    let (local, remote) = match protocol {
        // Type and code are one number, the same at both ends (RFC 7296 §3.13.1).
        ICMP | ICMPV6 if src_port.mask != 0 => {
            let both = (src_port.value & 0xff) << 8 | (dst_port.value & 0xff);
            ((both, both), (both, both))
        }
        _ => (range(src_port), range(dst_port)),
    };
    (side(src.address, local), side(dst.address, remote))
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
