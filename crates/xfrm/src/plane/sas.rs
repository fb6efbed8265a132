//! The SAs of a plane, and the kernel's states for them.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use ike_proto::dataplane::{
    DataPlaneError, Direction, HwOffload, Limits, Mode, PolicyId, SaId, SaSpec, UdpEncap, Usage,
};

use super::install::{Install, InstallError};
use super::spec::{self, lifetime};
use super::{fail, reqid};
use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::selector::{Prefix, Selector};
use crate::state::{
    Algorithm, Encapsulation, Offload, OffloadMode, Protection, State, StateId, StateInfo,
};

/// One SA.
#[derive(Debug)]
pub(super) struct Sa {
    /// As installed. The keys are kept: an SA that moves to another address is made anew.
    pub(super) state: State,
    pub(super) direction: Direction,
    pub(super) policy: PolicyId,
    pub(super) limits: Limits,
    wanted: HwOffload,
    protocols: BTreeSet<u8>,
    /// Bytes and packets by states that it had before it moved.
    used: (u64, u64),
    /// The soft limit was told.
    pub(super) soft: bool,
    /// The kernel has deleted it, and that was told.
    pub(super) gone: bool,
}

/// All SAs of a plane.
#[derive(Debug, Default)]
pub(super) struct Sas {
    sas: HashMap<SaId, Sa>,
    /// States that may be in the kernel although installing or removing them failed.
    debris: HashMap<SaId, StateId>,
}

/// Numbers that an outbound SA skips when it moves. What it sends between the look at its last number and
/// its removal would be sent again with the same number: for counter modes, under the same IV.
const SKIPPED: u64 = 1 << 16;

/// How often room is made for a state that traffic waits for.
const TRIES: usize = 16;

impl Sas {
    /// The SA `id`.
    pub(super) fn get(&self, id: SaId) -> Option<&Sa> {
        self.sas.get(&canonical(id))
    }

    /// The SA `id`.
    pub(super) fn get_mut(&mut self, id: SaId) -> Option<&mut Sa> {
        self.sas.get_mut(&canonical(id))
    }

    /// All SAs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SaId, &Sa)> {
        self.sas.iter().map(|(&id, sa)| (id, sa))
    }

    /// True if none is installed and none failed to be removed.
    pub(super) fn is_empty(&self) -> bool {
        self.sas.is_empty() && self.debris.is_empty()
    }

    /// The device that does all of ESP for the SAs of `policy` in this direction. Goes through all SAs.
    pub(super) fn packet_offload(&self, policy: PolicyId, direction: Direction) -> Option<Offload> {
        let mut sas = self.sas.values();
        let sa = sas.find(|sa| sa.policy == policy && sa.direction == direction && !sa.gone)?;
        sa.state.offload.filter(|offload| offload.mode == OffloadMode::Packet)
    }

    /// Adds an SA. True if it is new; the same once more (same keys) is left as it is, because its
    /// sequence numbers must not start over.
    pub(super) fn install<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        spec: &SaSpec,
        reqid: u32,
    ) -> Result<bool, DataPlaneError> {
        let id = canonical(spec.id);
        let mut state = spec::state(spec, reqid)?;
        if let Some(old) = self.sas.get(&id) {
            let same = old.direction == spec.direction
                && same_keys(&old.state.protection, &state.protection);
            return match (same, old.gone) {
                (true, false) => Ok(false),
                (true, true) => Err(DataPlaneError(format!("{} has expired", named(id)))),
                (false, _) => Err(DataPlaneError(format!("{} is in use", named(id)))),
            };
        }
        self.clean(kernel, id)?;
        let wanted = spec.processing.hw_offload;
        let protocols = spec::protocols(spec);
        self.add(kernel, installer, &mut state, wanted, &protocols)?;
        self.sas.insert(
            id,
            Sa {
                state,
                direction: spec.direction,
                policy: spec.policy,
                limits: spec.limits,
                wanted,
                protocols,
                used: (0, 0),
                soft: false,
                gone: false,
            },
        );
        Ok(true)
    }

    /// Removes an SA, and says which policy it served. `None` if there is no such SA.
    pub(super) fn remove<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        id: SaId,
    ) -> Result<Option<PolicyId>, DataPlaneError> {
        let id = canonical(id);
        self.clean(kernel, id)?;
        let Some(sa) = self.sas.get(&id) else { return Ok(None) };
        kernel.delete_state(&sa.state.id).map_err(|error| about(id, &error))?;
        installer.removed(kernel, &sa.state.id);
        Ok(self.sas.remove(&id).map(|sa| sa.policy))
    }

    /// Removes all. What the kernel keeps is there for the next call.
    pub(super) fn clear<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
    ) -> Result<Vec<PolicyId>, DataPlaneError> {
        let mut policies = Vec::with_capacity(self.sas.len());
        let mut result = Ok(());
        let ids: Vec<SaId> = self.sas.keys().chain(self.debris.keys()).copied().collect();
        for id in ids {
            match self.remove(kernel, installer, id) {
                Ok(policy) => policies.extend(policy),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| policies)
    }

    /// Counters.
    pub(super) fn usage<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        id: SaId,
        wall: u64,
    ) -> Result<Usage, DataPlaneError> {
        let id = canonical(id);
        let Some(sa) = self.sas.get(&id) else { return Err(no_such_sa(id)) };
        let info = kernel.state(&sa.state.id).map_err(|error| about(id, &error))?;
        let Some(info) = info else { return Err(no_such_sa(id)) };
        let idle = info.last_used.map(|at| std::time::Duration::from_secs(wall.saturating_sub(at)));
        let idle = idle.filter(|_| info.packets > 0);
        Ok(Usage {
            bytes: info.bytes.saturating_add(sa.used.0),
            packets: info.packets.saturating_add(sa.used.1),
            idle,
            offload: match info.offload.map(|offload| offload.mode) {
                None => HwOffload::No,
                Some(OffloadMode::Crypto) => HwOffload::Crypto,
                Some(OffloadMode::Packet) => HwOffload::Packet,
            },
        })
    }

    /// Moves an SA. Its sequence numbers, its window, its counters and its limits go on.
    pub(super) fn update<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        id: SaId,
        path: (SocketAddr, SocketAddr),
        encap: Option<UdpEncap>,
    ) -> Result<SaId, DataPlaneError> {
        let id = canonical(id);
        let (src, dst) = (path.0.ip().to_canonical(), path.1.ip().to_canonical());
        let new = SaId { dst, ..id };
        if new != id && self.sas.contains_key(&new) {
            return Err(DataPlaneError(format!("{} is in use", named(new))));
        }
        self.clean(kernel, new)?;
        let Some(sa) = self.sas.get_mut(&id) else { return Err(no_such_sa(id)) };
        let encap = encap.map(Encapsulation::Udp);
        let stays = new == id && sa.state.src == src;
        if stays && sa.state.encapsulation == encap {
            return Ok(id);
        }
        // The kernel changes ports where there are some, and neither addresses nor the rest.
        if stays && sa.state.encapsulation.is_some() && encap.is_some() {
            let old = std::mem::replace(&mut sa.state.encapsulation, encap);
            match kernel.update_state(&sa.state) {
                Ok(()) => return Ok(id),
                Err(error) => {
                    sa.state.encapsulation = old;
                    tracing::debug!(%error, "{}: made anew for other ports", named(id));
                }
            }
        }
        let Some(sa) = self.sas.remove(&id) else { return Err(no_such_sa(id)) };
        self.make_anew(kernel, installer, sa, (src, dst), encap)?;
        Ok(new)
    }

    /// Removes the state of `sa` and adds one for its new path; for the old one if that fails.
    fn make_anew<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        mut sa: Sa,
        (src, dst): (std::net::IpAddr, std::net::IpAddr),
        encap: Option<Encapsulation>,
    ) -> Result<(), DataPlaneError> {
        let old = sa.state.id;
        let id = SaId { spi: old.spi, dst: old.dst };
        let result = match kernel.state(&old) {
            Ok(Some(info)) => kernel.delete_state(&old).map(|_| Some(info)),
            other => other,
        };
        let info = match result {
            Ok(Some(info)) => info,
            Ok(None) => {
                self.sas.insert(id, sa);
                return Err(no_such_sa(id));
            }
            Err(error) => {
                self.sas.insert(id, sa);
                return Err(about(id, &error));
            }
        };
        installer.removed(kernel, &old);
        sa.carry_on(&info);
        let before = (sa.state.src, old.dst, sa.state.encapsulation);
        let (wanted, protocols) = (sa.wanted, sa.protocols.clone());
        sa.state.relocate(src, dst, encap);
        let moved = SaId { dst, ..id };
        let Err(error) = self.add(kernel, installer, &mut sa.state, wanted, &protocols) else {
            self.sas.insert(moved, sa);
            return Ok(());
        };
        sa.state.relocate(before.0, before.1, before.2);
        let restored = self.add(kernel, installer, &mut sa.state, wanted, &protocols);
        if let Err(again) = restored {
            // Whoever removes it finds it.
            tracing::warn!(error = %again, "{}: lost while it moved", named(id));
            sa.gone = true;
        }
        self.sas.insert(id, sa);
        Err(error)
    }

    /// Adds a state that is not one of this plane's. After a failure it is not in the kernel, or known to
    /// be debris.
    fn add<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
        state: &mut State,
        wanted: HwOffload,
        protocols: &BTreeSet<u8>,
    ) -> Result<(), DataPlaneError> {
        let id = SaId { spi: state.id.spi, dst: state.id.dst };
        let mut result = installer.install(kernel, state, wanted, protocols);
        for _ in 0..TRIES {
            match &result {
                Err(InstallError::Kernel(error)) if error.is_present() => {}
                _ => break,
            }
            // Traffic may have the kernel ask for it once more between the two requests.
            if !vacate(kernel, &state.id).map_err(|error| about(id, &error))? {
                break;
            }
            result = installer.install(kernel, state, wanted, protocols);
        }
        match result {
            Ok(offload) => {
                state.offload = offload;
                Ok(())
            }
            Err(InstallError::Refused(sentence)) => Err(DataPlaneError(sentence)),
            Err(InstallError::Kernel(error)) => {
                if error.is_unanswered() || error.errno == 0 {
                    self.debris.insert(id, state.id);
                    // Tried again by whoever removes it, if it fails now.
                    _ = self.clean(kernel, id);
                }
                Err(about(id, &error))
            }
        }
    }

    /// Removes what a failure may have left behind.
    fn clean<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        id: SaId,
    ) -> Result<(), DataPlaneError> {
        if let Some(state) = self.debris.get(&id) {
            kernel.delete_state(state).map_err(|error| about(id, &error))?;
            self.debris.remove(&id);
        }
        Ok(())
    }

    /// Compares with what the kernel has: SAs it has lost, and SAs past their soft limit, that were not
    /// told as such yet.
    pub(super) fn compare(&mut self, states: &[StateInfo]) -> (Vec<SaId>, Vec<SaId>) {
        let there: HashMap<(u32, std::net::IpAddr), &StateInfo> =
            states.iter().map(|info| ((info.id.spi, info.id.dst), info)).collect();
        let (mut lost, mut soft) = (Vec::new(), Vec::new());
        for (&id, sa) in &mut self.sas {
            match there.get(&(id.spi, id.dst)) {
                None if !sa.gone => {
                    sa.gone = true;
                    lost.push(id);
                }
                Some(info) if !sa.soft && sa.past_soft(info) => {
                    sa.soft = true;
                    soft.push(id);
                }
                _ => {}
            }
        }
        (lost, soft)
    }
}

impl Sa {
    fn past_soft(&self, info: &StateInfo) -> bool {
        let past = |limit, used| limit != 0 && used >= limit;
        let (bytes, packets) = (info.bytes + self.used.0, info.packets + self.used.1);
        past(self.limits.soft_bytes, bytes) || past(self.limits.soft_packets, packets)
    }

    /// Makes the state to be added one that goes on where `info` stopped.
    fn carry_on(&mut self, info: &StateInfo) {
        self.used.0 = self.used.0.saturating_add(info.bytes);
        self.used.1 = self.used.1.saturating_add(info.packets);
        self.state.lifetime = lifetime(&self.limits, self.used);
        let last = if self.state.replay.esn { u64::MAX } else { u64::from(u32::MAX) };
        let mut replay = info.replay.clone();
        if self.direction == Direction::Out {
            replay.sent = replay.sent.saturating_add(SKIPPED).min(last);
        }
        replay.esn = self.state.replay.esn;
        replay.window = self.state.replay.window;
        self.state.replay = replay;
    }
}

impl State {
    /// Gives it other outer addresses. In transport mode those are in its selector as well.
    fn relocate(
        &mut self,
        src: std::net::IpAddr,
        dst: std::net::IpAddr,
        encapsulation: Option<Encapsulation>,
    ) {
        if self.mode == Mode::Transport
            && let Some(selector) = &mut self.selector
        {
            let follow = |prefix: Prefix, old, new| {
                if prefix == Prefix::host(old) { Prefix::host(new) } else { prefix }
            };
            let Selector { src: from, dst: to, .. } = *selector;
            selector.src = follow(from, self.src, src);
            selector.dst = follow(to, self.id.dst, dst);
        }
        self.src = src;
        self.id.dst = dst;
        self.encapsulation = encapsulation;
    }
}

/// Makes room for a state whose id is taken: by an acquire of the kernel, or by what an earlier run of this
/// plane left. False if it is somebody else's.
fn vacate<T: Transport>(kernel: &mut Kernel<T>, id: &StateId) -> Result<bool, Error> {
    let Some(there) = kernel.state(id)? else { return Ok(true) };
    let ours = reqid::REQIDS.contains(&there.reqid);
    let acquire = there.algorithms.is_empty();
    if !ours && !acquire {
        return Ok(false);
    }
    kernel.delete_state(id).map(|_| true)
}

fn same_keys(a: &Protection, b: &Protection) -> bool {
    let same = |a: &Algorithm, b: &Algorithm| a.name == b.name && a.key.ct_eq(b.key.expose());
    match (a, b) {
        (Protection::Aead(a), Protection::Aead(b)) => same(a, b),
        (
            Protection::Separate { encryption: a, integrity: c },
            Protection::Separate { encryption: b, integrity: d },
        ) => same(a, b) && same(c, d),
        _ => false,
    }
}

/// Addresses as the kernel has them: what came by an IPv6 socket may be IPv4.
pub(super) fn canonical(id: SaId) -> SaId {
    SaId { dst: id.dst.to_canonical(), ..id }
}

fn named(id: SaId) -> String {
    format!("SA {:08x} to {}", id.spi, id.dst)
}

fn about(id: SaId, error: &Error) -> DataPlaneError {
    fail(format!("{}: {error}", named(id)))
}

fn no_such_sa(id: SaId) -> DataPlaneError {
    DataPlaneError(format!("no {}", named(id)))
}
