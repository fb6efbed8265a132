//! The policies of the engine, and the kernel's that follow from them.
//!
//! The kernel has one policy for each selector, direction, mark and interface: a *slot*. Several of the
//! engine's may want it; they wait in it in the order of [`precedence`](ipsec_types::dataplane::precedence),
//! and the first one's is in the kernel. When that goes the next takes its place in one step, so a child
//! that goes gives its traffic back to the trap that it came from without a moment in clear.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use ipsec_types::dataplane::patience::{Patience, Verdict};
use ipsec_types::dataplane::precedence::{Order, Rank, ahead_of};
use ipsec_types::dataplane::{DataPlaneError, PolicyAction, PolicyId, PolicySpec};

use super::fail;
use super::mended::Mended;
use super::others;
use super::overlaps::Overlaps;
use super::selectors::Unfit;
use super::templates::{Means, Wanted, wanted};
use super::view;
use crate::kernel::Kernel;
use crate::netlink::{Error, Transport};
use crate::policy::{Policy, PolicyDirection, PolicyId as SlotId, PolicyInfo};

/// All policies of a plane.
#[derive(Debug, Default)]
pub(super) struct Policies {
    entries: HashMap<PolicyId, Entry>,
    slots: HashMap<SlotId, Slot>,
    /// Slots of which the last request failed. They are put right before anything else is done.
    doubtful: HashSet<SlotId>,
    overlaps: Overlaps,
    /// Policies installed so far.
    count: u64,
    /// What others delete.
    patience: Patience<SlotId>,
    due: Option<Instant>,
    /// Slots for packets that leave whose first claim may be another, if somebody asks.
    leaving: Option<HashSet<SlotId>>,
    /// For packets that leave: what is to be protected or blocked and the kernel has refused, because another program has a
    /// policy in one of the slots. It stands in no slot, so that it does not take the place of that policy once that is gone.
    /// [`remove`](Self::remove) removes it, and so does another [`install`](Self::install) with its id.
    barred: HashMap<PolicyId, Vec<Policy>>,
}

/// One of the engine's.
#[derive(Debug, Clone)]
struct Entry {
    spec: Arc<PolicySpec>,
    /// `None` for those of an earlier run.
    means: Option<Means>,
    since: u64,
    slots: Vec<SlotId>,
}

/// What wants one of the kernel's, and what the kernel has.
#[derive(Debug)]
struct Slot {
    claims: Vec<Claim>,
    installed: Installed,
}

#[derive(Debug, Clone)]
struct Claim {
    spec: Arc<PolicySpec>,
    rank: Rank,
    policy: Policy,
}

#[derive(Debug)]
enum Installed {
    Nothing,
    This(Policy),
    /// The last request failed.
    Unknown,
}

impl Policies {
    /// Whether a policy that protects is refused if another owner's protects some of the same traffic.
    pub(super) fn refuse_overlaps(&mut self, refuse: bool) {
        self.overlaps.refused = refuse;
    }

    /// Notes from now on what changes for packets that leave.
    pub(super) fn follow_leaving(&mut self) {
        let leaving = |id: &&SlotId| id.direction == PolicyDirection::Out;
        self.leaving = Some(self.slots.keys().filter(leaving).copied().collect());
    }

    /// The policies for packets that leave that may have changed since the last call: each as it is wanted now, `None` if it
    /// is gone. One that another program's policy keeps out of the kernel is wanted as well.
    pub(super) fn leaving_changes(&mut self) -> Vec<(SlotId, Option<&Policy>)> {
        let changed = self.leaving.as_mut().map(std::mem::take).unwrap_or_default();
        let claimed = |id: &SlotId| Some(&self.slots.get(id)?.claims.first()?.policy);
        let barred = |id: &SlotId| {
            let there = self.barred.values().flatten().filter(|policy| policy.id == *id);
            there.min_by_key(|policy| policy.priority)
        };
        changed.into_iter().map(|id| (id, claimed(&id).or_else(|| barred(&id)))).collect()
    }

    fn note_leaving(&mut self, slots: impl IntoIterator<Item = SlotId>) {
        if let Some(leaving) = &mut self.leaving {
            let out = |id: &SlotId| id.direction == PolicyDirection::Out;
            leaving.extend(slots.into_iter().filter(out));
        }
    }

    /// Installs `spec`, in place of an earlier policy with its id. If that fails, the earlier one is there again,
    /// or will be once the kernel accepts it.
    pub(super) fn install<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        spec: PolicySpec,
        means: &Means,
    ) -> Result<(), DataPlaneError> {
        let wanted = self
            .wanted(&spec, means)
            .map_err(|unfit| DataPlaneError(format!("policy of child {}: {unfit}", spec.child)))?;
        if !self.entries.contains_key(&spec.id) {
            self.overlaps.judge(&spec, self.count + 1)?;
        }
        self.settle(kernel);
        let (id, child) = (spec.id, spec.child.clone());
        self.unbar(id);
        let leaving = wanted.iter().map(|wanted| &wanted.policy);
        let leaving = leaving
            .filter(|policy| policy.id.direction == PolicyDirection::Out && !policy.passes());
        let leaving: Vec<Policy> = leaving.cloned().collect();
        let before = self.take(id);
        let since = match &before {
            Some((entry, _)) => entry.since,
            None => {
                self.count += 1;
                self.count
            }
        };
        let inherited = before.as_ref().map_or(&[][..], |(_, claims)| claims);
        let spec = Arc::new(spec);
        self.put(Arc::clone(&spec), *means, since, wanted, inherited);
        let former = before.as_ref().map(|(entry, _)| &*entry.spec);
        let protecting = self.put_ahead(former.into_iter().chain([&*spec]));
        let mut touched: Vec<SlotId> = self.slots_of(id).to_vec();
        touched.extend(protecting.iter().flat_map(|(entry, _)| self.slots_of(entry.spec.id)));
        // New policies are added before old ones are removed, so that there is no moment without either.
        touched.extend(before.iter().chain(&protecting).flat_map(|(entry, _)| &entry.slots));
        let Err(error) = self.sync(kernel, &touched) else {
            if let Some(entry) = self.entries.get(&id) {
                self.overlaps.add(&entry.spec, since);
            }
            return Ok(());
        };
        self.take(id);
        for (entry, claims) in before.into_iter().chain(protecting) {
            self.take(entry.spec.id);
            self.put_back(entry, claims);
        }
        if let Err(again) = self.sync(kernel, &touched) {
            tracing::debug!(error = %again, "policies are put right later");
        }
        if error.is_present() {
            self.note_leaving(leaving.iter().map(|policy| policy.id));
            self.barred.insert(id, leaving);
        }
        Err(DataPlaneError(format!("policy of child {child}: {error}")))
    }

    /// Takes note that the kernel has `policies`, of an earlier run, under the name of `spec`. Where another
    /// policy of this run is wanted it comes first; of those that stand in for others only if `yields`.
    pub(super) fn adopt(&mut self, spec: PolicySpec, policies: Vec<Policy>, yields: bool) {
        self.take(spec.id);
        let order = Order {
            stands_in: yields,
            automatic: true,
            priority: u32::MAX,
            breadth: u32::MAX,
            class: u8::MAX,
        };
        let (spec, mut slots) = (Arc::new(spec), Vec::with_capacity(policies.len()));
        for policy in policies {
            let slot = self.slots.entry(policy.id).or_insert_with(|| Slot {
                claims: Vec::new(),
                installed: Installed::This(policy.clone()),
            });
            slots.push(policy.id);
            let rank = Rank { order, claim: u64::MAX, standby: false, since: Reverse(0) };
            slot.add(Claim { spec: Arc::clone(&spec), rank, policy });
        }
        self.note_leaving(slots.iter().copied());
        self.entries.insert(spec.id, Entry { spec, means: None, since: 0, slots });
    }

    /// Removes a policy, if it is there. The next policy in its slot takes its place.
    pub(super) fn remove<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        id: PolicyId,
    ) -> Result<(), DataPlaneError> {
        self.unbar(id);
        let taken = self.take(id);
        self.overlaps.remove(id);
        let protecting = self.put_ahead(taken.iter().map(|(entry, _)| &*entry.spec));
        let all = taken.iter().chain(&protecting);
        let touched: Vec<SlotId> = all.flat_map(|(entry, _)| &entry.slots).copied().collect();
        // A policy that cannot be removed now is in doubt, and the next call removes it.
        let result = self.sync(kernel, &touched).map_err(fail);
        self.settle(kernel);
        result
    }

    /// Removes all. Policies that the kernel keeps are tried again by the next call.
    pub(super) fn clear<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
    ) -> Result<(), DataPlaneError> {
        self.entries.clear();
        self.overlaps.clear();
        let barred = std::mem::take(&mut self.barred);
        self.note_leaving(barred.into_values().flatten().map(|policy| policy.id));
        for slot in self.slots.values_mut() {
            slot.claims.clear();
        }
        let mut all: Vec<SlotId> = self.slots.keys().copied().collect();
        self.note_leaving(all.iter().copied());
        // Outbound policies are removed last.
        all.sort_by_key(|id| id.direction == PolicyDirection::Out);
        self.sync(kernel, &all).map_err(fail)
    }

    /// Sets whether the policy in `slot` asks for SAs of single CPUs, until it is installed again.
    pub(super) fn ask_per_cpu<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        slot: &SlotId,
        asks: bool,
    ) -> Result<(), Error> {
        let claims = self.slots.get_mut(slot).map(|slot| &mut slot.claims);
        for claim in claims.into_iter().flatten().filter(|claim| {
            claim.spec.processing.per_cpu
                && matches!(claim.spec.action, PolicyAction::Protect { outbound: Some(_), .. })
        }) {
            claim.policy.cpu_acquire = asks;
        }
        self.sync(kernel, std::slice::from_ref(slot))
    }

    /// Corrects earlier failures, as far as the kernel allows. A policy that it still refuses does not keep others
    /// from being changed.
    pub(super) fn settle<T: Transport>(&mut self, kernel: &mut Kernel<T>) {
        if self.doubtful.is_empty() {
            return;
        }
        let doubtful: Vec<SlotId> = self.doubtful.iter().copied().collect();
        if let Err(error) = self.sync(kernel, &doubtful) {
            tracing::debug!(%error, "policies are put right later");
        }
    }

    /// True if some policies in the kernel differ from the wanted ones.
    pub(super) fn in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Compares with the kernel's policies. Those that others have deleted or changed are installed again; one of another
    /// program in the place of one of ours stays.
    pub(super) fn repair<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        there: &[PolicyInfo],
        now: Instant,
    ) {
        let there: HashMap<&SlotId, &PolicyInfo> =
            there.iter().map(|info| (&info.policy.id, info)).collect();
        let mut mended = Mended::default();
        for (id, slot) in &mut self.slots {
            let Installed::This(policy) = &slot.installed else { continue };
            let child = slot.claims.first().map(|claim| claim.spec.child.as_str());
            let next = match there.get(id) {
                Some(info)
                    if info.policy.action == policy.action
                        && info.policy.priority == policy.priority =>
                {
                    continue;
                }
                Some(info) if !view::is_ours(info) => {
                    let named =
                        child.map(|child| format!("{child} {}", others::packets(&id.selector)));
                    mended.foreign.extend(named);
                    Installed::Nothing
                }
                _ => match self.patience.ask(*id, now) {
                    Verdict::Later { due, news } => {
                        mended.again(due);
                        mended.strained.extend(child.filter(|_| news).map(ToOwned::to_owned));
                        continue;
                    }
                    Verdict::Now => {
                        mended.back.extend(child.map(ToOwned::to_owned));
                        mended.count += 1;
                        Installed::Unknown
                    }
                },
            };
            slot.installed = next;
            self.doubtful.insert(*id);
        }
        self.patience.forget(now);
        self.due = mended.due;
        mended.tell();
        self.settle(kernel);
    }

    /// When to compare with the kernel's policies although nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if the time for that has come.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The policy `id`.
    pub(super) fn spec(&self, id: PolicyId) -> Option<&Arc<PolicySpec>> {
        self.entries.get(&id).map(|entry| &entry.spec)
    }

    /// All policies.
    pub(super) fn specs(&self) -> impl Iterator<Item = &Arc<PolicySpec>> {
        self.entries.values().map(|entry| &entry.spec)
    }

    /// The slots that the policy `id` wants.
    pub(super) fn slots_of(&self, id: PolicyId) -> &[SlotId] {
        self.entries.get(&id).map_or(&[], |entry| &entry.slots)
    }

    /// The owner of the policy in the kernel for `slot`.
    pub(super) fn holder(&self, slot: &SlotId) -> Option<&Arc<PolicySpec>> {
        self.slots.get(slot)?.claims.first().map(|claim| &claim.spec)
    }

    /// True if nothing is installed and nothing failed to be removed.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.slots.is_empty()
    }

    /// The kernel policies for `spec`. First come those for packets that the trap of its child would take.
    fn wanted(&self, spec: &PolicySpec, means: &Means) -> Result<Vec<Wanted>, Unfit> {
        let mut all = Vec::new();
        for common in self.specs().filter_map(|trap| ahead_of(trap, spec)) {
            match wanted(&common, means) {
                Ok(ahead) => all.extend(ahead),
                Err(unfit) => {
                    let PolicySpec { owner, child, .. } = spec;
                    tracing::warn!(%owner, %child, "policy: the trap of the child takes packets of its SA, because {unfit}; give the child other selectors");
                }
            }
        }
        all.extend(wanted(spec, means)?);
        Ok(all)
    }

    /// Puts the policies of SAs ahead of the `traps` of their children, which have just changed. Returns these policies
    /// as they were before.
    fn put_ahead<'a>(
        &mut self,
        traps: impl Iterator<Item = &'a PolicySpec> + Clone,
    ) -> Vec<(Entry, Vec<Claim>)> {
        let is_taken =
            |entry: &&Entry| traps.clone().any(|trap| ahead_of(trap, &entry.spec).is_some());
        let mut taken: Vec<Entry> = self.entries.values().filter(is_taken).cloned().collect();
        taken.sort_by_key(|entry| entry.since);
        let mut before = Vec::with_capacity(taken.len());
        for Entry { spec, means, since, .. } in taken {
            let Some(means) = means else { continue };
            let Ok(wanted) = self.wanted(&spec, &means) else { continue };
            let Some((entry, claims)) = self.take(spec.id) else { continue };
            self.put(spec, means, since, wanted, &claims);
            before.push((entry, claims));
        }
        before
    }

    /// Adds the claims of `spec`, which had those in `before`.
    fn put(
        &mut self,
        spec: Arc<PolicySpec>,
        means: Means,
        since: u64,
        wanted: Vec<Wanted>,
        before: &[Claim],
    ) {
        let earlier: HashMap<SlotId, u64> = before
            .iter()
            .filter(|claim| claim.spec.owner == spec.owner)
            .map(|claim| (claim.policy.id, claim.rank.claim))
            .collect();
        let mut slots = Vec::with_capacity(wanted.len());
        for Wanted { order, policy } in wanted {
            let slot = self.slots.entry(policy.id).or_insert(Slot::new());
            if slot.claims.iter().any(|claim| claim.spec.id == spec.id) {
                // The same by another of its selectors, or by one that matters less.
                continue;
            }
            let claims = [slot.claim_of(&spec.owner), earlier.get(&policy.id).copied()];
            let claim = claims.into_iter().flatten().min().unwrap_or(since);
            slots.push(policy.id);
            let rank = Rank { order, claim, standby: spec.standby, since: Reverse(since) };
            slot.add(Claim { spec: Arc::clone(&spec), rank, policy });
        }
        self.note_leaving(slots.iter().copied());
        self.entries.insert(spec.id, Entry { spec, means: Some(means), since, slots });
    }

    fn unbar(&mut self, id: PolicyId) {
        let barred = self.barred.remove(&id).unwrap_or_default();
        self.note_leaving(barred.into_iter().map(|policy| policy.id));
    }

    fn take(&mut self, id: PolicyId) -> Option<(Entry, Vec<Claim>)> {
        let entry = self.entries.remove(&id)?;
        self.note_leaving(entry.slots.iter().copied());
        let mut claims = Vec::with_capacity(entry.slots.len());
        for slot in &entry.slots {
            let Some(slot) = self.slots.get_mut(slot) else { continue };
            claims.extend(slot.claims.extract_if(.., |claim| claim.spec.id == id));
        }
        Some((entry, claims))
    }

    fn put_back(&mut self, entry: Entry, claims: Vec<Claim>) {
        for claim in claims {
            self.slots.entry(claim.policy.id).or_insert(Slot::new()).add(claim);
        }
        self.entries.insert(entry.spec.id, entry);
    }

    /// Makes the first policy of each slot the one in the kernel. Policies are added first, and old ones are
    /// removed only if all additions succeeded. A failure does not stop other requests of the same kind. Slots
    /// that may then differ from the wanted state are remembered, and the first failure is returned.
    fn sync<T: Transport>(
        &mut self,
        kernel: &mut Kernel<T>,
        slots: &[SlotId],
    ) -> Result<(), Error> {
        let is_held = |id: &&SlotId| self.slots.get(id).is_some_and(|slot| !slot.claims.is_empty());
        let (held, vacant): (Vec<&SlotId>, Vec<&SlotId>) = slots.iter().partition(is_held);
        let mut result = Ok(());
        for id in held {
            result = result.and(self.sync_one(kernel, id));
        }
        if result.is_err() {
            let right = |id: &SlotId| self.slots.get(id).is_none_or(Slot::is_right);
            let later: Vec<SlotId> = vacant.into_iter().copied().filter(|id| !right(id)).collect();
            self.doubtful.extend(later);
            return result;
        }
        for id in vacant {
            result = result.and(self.sync_one(kernel, id));
        }
        result
    }

    fn sync_one<T: Transport>(&mut self, kernel: &mut Kernel<T>, id: &SlotId) -> Result<(), Error> {
        let Some(slot) = self.slots.get_mut(id) else { return Ok(()) };
        if !slot.is_right() {
            // Whatever the answer, and even if there is none.
            let result = match (slot.claims.first(), &slot.installed) {
                (Some(claim), Installed::Nothing) => add(kernel, &claim.policy),
                (Some(claim), Installed::Unknown) => put_back(kernel, &claim.policy),
                (Some(claim), Installed::This(_)) => kernel.set_policy(&claim.policy),
                (None, _) => kernel.delete_policy(id).map(drop),
            };
            if let Err(error) = result {
                if error.is_present() {
                    // The policy belongs to another program, which keeps it.
                    return Err(error);
                }
                slot.installed = Installed::Unknown;
                self.doubtful.insert(*id);
                return Err(error);
            }
            slot.installed = match slot.claims.first() {
                Some(claim) => Installed::This(claim.policy.clone()),
                None => Installed::Nothing,
            };
        }
        self.doubtful.remove(id);
        if slot.claims.is_empty() {
            self.slots.remove(id);
        }
        Ok(())
    }
}

/// Adds a policy where this plane has none. It may replace a policy of an earlier run, but none of another
/// program.
fn add<T: Transport>(kernel: &mut Kernel<T>, policy: &Policy) -> Result<(), Error> {
    let Err(error) = kernel.add_policy(policy) else { return Ok(()) };
    if !error.is_present() {
        return Err(error);
    }
    match kernel.policy(&policy.id)? {
        Some(there) if !view::is_ours(&there) => {
            Err(Error { message: Some(others::has_policy(&policy.id.selector)), ..error })
        }
        _ => kernel.set_policy(policy),
    }
}

/// Sets a policy that may have been lost. If the device that applied it is gone as well, the kernel is to
/// apply it, for without it packets would leave in clear.
fn put_back<T: Transport>(kernel: &mut Kernel<T>, policy: &Policy) -> Result<(), Error> {
    let result = kernel.set_policy(policy);
    if let Err(error) = &result
        && policy.offload.is_some()
        && !error.is_unanswered()
    {
        // The error stands: what is wanted is another one.
        kernel.set_policy(&Policy { offload: None, ..policy.clone() })?;
    }
    result
}

impl Slot {
    fn new() -> Self {
        Self { claims: Vec::new(), installed: Installed::Nothing }
    }

    /// Since when `owner` has had it.
    fn claim_of(&self, owner: &str) -> Option<u64> {
        let same = self.claims.iter().filter(|claim| claim.spec.owner == owner);
        same.map(|claim| claim.rank.claim).min()
    }

    fn add(&mut self, claim: Claim) {
        let at = self.claims.partition_point(|other| other.rank <= claim.rank);
        self.claims.insert(at, claim);
    }

    fn is_right(&self) -> bool {
        match (self.claims.first(), &self.installed) {
            (Some(claim), Installed::This(policy)) => claim.policy == *policy,
            (None, Installed::Nothing) => true,
            _ => false,
        }
    }
}
