//! The SAs of a plane, and the kernel's states for them.

mod moves;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ipsec_types::dataplane::{
    DataPlaneError, Direction, HwOffload, Limits, PolicyId, SaId, SaSpec, Usage,
};

use super::clock::Clock;
use super::install::{Install, InstallError};
use super::spec;
use super::{fail, reqid};
use crate::kernel::{Change, Kernel};
use crate::netlink::{Error, Transport};
use crate::state::{
    Algorithm, Lifetime, Offload, OffloadMode, Protection, State, StateId, StateInfo,
};

/// One SA.
#[derive(Debug)]
pub(super) struct Sa {
    /// As installed. The keys are kept, because an SA that moves to another address is made again.
    pub(super) state: State,
    pub(super) direction: Direction,
    pub(super) policy: PolicyId,
    pub(super) limits: Limits,
    wanted: HwOffload,
    protocols: BTreeSet<u8>,
    /// Which of those installed so far it is.
    number: u64,
    /// Bytes and packets by states that it had before it moved.
    used: (u64, u64),
    /// The last look at its counters.
    look: Look,
    /// How long it may be used after it was installed; zero for ever.
    lifetime: Duration,
    /// When it was installed, by [`Clock::steady`].
    installed: Duration,
    /// When the kernel dates its state, in seconds since 1970.
    dated: u64,
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
    count: u64,
}

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

    /// The device that does all of ESP for the outbound SA, or for the inbound SA of `policy` that was
    /// installed last. The latter goes through all SAs.
    pub(super) fn packet_offload(
        &self,
        policy: PolicyId,
        outbound: Option<SaId>,
    ) -> Option<Offload> {
        let of = |sa: &&Sa| sa.policy == policy && sa.direction == Direction::In && !sa.gone;
        let sa = match outbound {
            Some(id) => self.get(id),
            None => self.sas.values().filter(of).max_by_key(|sa| sa.number),
        }?;
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
        clock: &dyn Clock,
    ) -> Result<bool, DataPlaneError> {
        let id = canonical(spec.id);
        let mut state = spec::state(spec, reqid)?;
        let (installed, dated) = (clock.steady(), clock.wall());
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
        self.count += 1;
        self.sas.insert(
            id,
            Sa {
                number: self.count,
                state,
                direction: spec.direction,
                policy: spec.policy,
                limits: spec.limits,
                wanted,
                protocols,
                used: (0, 0),
                look: Look { at: installed, packets: 0, last: None },
                lifetime: spec.lifetime,
                installed,
                dated,
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

    /// Removes all. SAs that the kernel keeps are tried again by the next call.
    pub(super) fn clear<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        installer: &mut dyn Install<T>,
    ) -> Result<Vec<PolicyId>, DataPlaneError> {
        let mut policies = Vec::with_capacity(self.sas.len());
        let mut result = Ok(());
        let debris: Vec<SaId> = self.debris.keys().copied().collect();
        for id in debris {
            result = result.and(self.clean(kernel, id));
        }
        // Several in one call: with thousands the end of the daemon waits for this.
        let states: Vec<(SaId, StateId)> =
            self.sas.iter().map(|(&id, sa)| (id, sa.state.id)).collect();
        let deleted = kernel.apply(states.iter().map(|(_, state)| Change::DeleteState(state)));
        for ((id, state), deleted) in states.iter().zip(deleted) {
            match deleted {
                Ok(_) => {
                    installer.removed(kernel, state);
                    policies.extend(self.sas.remove(id).map(|sa| sa.policy));
                }
                Err(error) => result = result.and(Err(about(*id, &error))),
            }
        }
        result.map(|()| policies)
    }

    /// Counters.
    pub(super) fn usage<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        id: SaId,
        clock: &dyn Clock,
    ) -> Result<Usage, DataPlaneError> {
        let id = canonical(id);
        let Some(sa) = self.sas.get_mut(&id) else { return Err(no_such_sa(id)) };
        let info = kernel.state(&sa.state.id).map_err(|error| about(id, &error))?;
        let Some(info) = info.filter(|info| !is_larval(info)) else { return Err(no_such_sa(id)) };
        let idle = sa.idle(&info, clock);
        Ok(Usage {
            bytes: info.bytes.saturating_add(sa.used.0),
            packets: info.packets.saturating_add(sa.used.1),
            idle,
            offload: match info.offload.map(|offload| offload.mode) {
                None => HwOffload::No,
                Some(OffloadMode::Crypto) => HwOffload::Crypto,
                Some(OffloadMode::Packet) => HwOffload::Packet,
            },
            path_mtu: None,
        })
    }

    /// Checks whether the kernel still has the SA. True if it is lost and this was not reported yet.
    pub(super) fn is_lost<T: Transport>(&mut self, kernel: &mut Kernel<T>, id: SaId) -> bool {
        let Some(sa) = self.sas.get_mut(&canonical(id)).filter(|sa| !sa.gone) else { return false };
        match kernel.state(&sa.state.id) {
            Ok(info) => sa.gone = info.is_none_or(|info| is_larval(&info)),
            Err(error) => tracing::debug!(%error, "an SA without its packets cannot be read"),
        }
        sa.gone
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
                // An existing state belongs to another program. After any other failure the state may exist, even
                // if a later request failed than the first.
                if !error.is_present() && !matches!(vacate(kernel, &state.id), Ok(true)) {
                    // Its removal is tried again later.
                    self.debris.insert(id, state.id);
                }
                Err(about(id, &error))
            }
        }
    }

    /// Removes states that a failure may have left.
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

    /// Compares with the kernel's states. Returns SAs that it has lost, and SAs past their soft limit, if they
    /// were not reported yet.
    pub(super) fn compare(&mut self, states: &[StateInfo]) -> (Vec<SaId>, Vec<SaId>) {
        let there: HashMap<(u32, std::net::IpAddr), &StateInfo> = states
            .iter()
            .filter(|info| !is_larval(info))
            .map(|info| ((info.id.spi, info.id.dst), info))
            .collect();
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
    /// Sets for how long the state is used, from now on. The kernel reckons from when it `dated` the state, by the
    /// wall clock, and does so once more whenever a state is changed: if that clock was set since, its limit
    /// would come at once or never.
    fn set_time_limit(&mut self, clock: &dyn Clock) {
        if self.lifetime.is_zero() {
            return;
        }
        let left = self.lifetime.saturating_sub(clock.steady().saturating_sub(self.installed));
        let left = seconds(left).cast_signed();
        let since = clock.wall().cast_signed().saturating_sub(self.dated.cast_signed());
        // Before a date in the future the kernel's limit cannot be. The engine keeps its own.
        let limit = left.saturating_add(since).max(1);
        self.state.lifetime.hard_seconds = limit.cast_unsigned();
    }

    /// The limits of the installed state are the rest of the SA's limits.
    fn past_soft(&self, info: &StateInfo) -> bool {
        let past = |limit, used| limit != 0 && used >= limit;
        let Lifetime { soft_bytes, soft_packets, .. } = self.state.lifetime;
        past(soft_bytes, info.bytes) || past(soft_packets, info.packets)
    }

    /// The time since the last packet, `None` if there was none.
    ///
    /// The kernel dates packets by the wall clock, which may be set at any moment, forwards or back. Its dates
    /// are believed only about packets that came after the last look at this SA, and only within that
    /// time: a clock that was set makes the answer wrong by no more than the time between two looks.
    fn idle(&mut self, info: &StateInfo, clock: &dyn Clock) -> Option<Duration> {
        let now = clock.steady();
        let packets = info.packets.saturating_add(self.used.1);
        if packets != self.look.packets {
            let dated = info.last_used.and_then(|at| clock.wall().checked_sub(at));
            let idle = dated.map_or(Duration::ZERO, Duration::from_secs);
            let since = now.saturating_sub(self.look.at);
            self.look.last = Some(now.saturating_sub(idle.min(since)));
            self.look.packets = packets;
        }
        self.look.at = now;
        self.look.last.map(|last| now.saturating_sub(last))
    }
}

/// Whole seconds, not less than `time` and not none.
pub(super) fn seconds(time: Duration) -> u64 {
    let more = u64::from(time.subsec_nanos() != 0);
    time.as_secs().saturating_add(more).clamp(1, i64::MAX.cast_unsigned())
}

/// The result of the last look at the counters of an SA.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// When it was, by [`Clock::steady`]: at first, when the SA was made.
    at: Duration,
    /// Packets until then.
    packets: u64,
    /// When the last of them came.
    last: Option<Duration>,
}

/// True of a state that the kernel made itself, for an acquire without answer so far.
fn is_larval(info: &StateInfo) -> bool {
    info.algorithms.is_empty()
}

/// Makes room for a state whose id is taken by an acquire of the kernel, or by an earlier run of this plane. False
/// if the id belongs to another program.
fn vacate<T: Transport>(kernel: &mut Kernel<T>, id: &StateId) -> Result<bool, Error> {
    let Some(there) = kernel.state(id)? else { return Ok(true) };
    let ours = reqid::REQIDS.contains(&there.reqid);
    if !ours && !is_larval(&there) {
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

/// Addresses as the kernel has them: an address from an IPv6 socket may be IPv4.
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
