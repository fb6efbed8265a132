//! The Child SAs of an IKE SA: those in use, and what is left of former ones.

mod carries;
mod per_cpu;

use std::collections::BTreeSet;
use std::time::Instant;

use crate::channel::timer::{ChildTimer, TimerKey};
use crate::child::{ChildSa, Limit, Phase};
use crate::config::ChildConfig;
use crate::dataplane::{Command, Encapsulation, PolicyId, Reply, SaId};
use crate::event::{ChildSaId, Failure, Path, RequestId, Ticket};
use crate::ike_sa::Life;
use crate::ike_sa::context::Context;
use crate::ike_sa::queue::{REFUSED_FOR, RETRY_AFTER, RETRY_SPREAD};
use crate::wants::Sought;
pub(crate) use carries::Carries;

/// Children of one configuration beside one for each pair of its selectors, if the peer grants less than a pair.
const SPARE: usize = 64;

/// The children of an IKE SA.
#[derive(Default)]
pub(crate) struct Children {
    all: Vec<ChildSa>,
    /// Children of this end's requests that the data plane is installing.
    installing: Vec<Installing>,
    /// SAs of rekeyed children. The inbound ones still decrypt. The outbound ones seal packets that the stack had.
    lingering: Vec<Lingering>,
    /// Policies for which the peer accepts no more children (RFC 9611 §5.2).
    full: Vec<PolicyId>,
}

/// A child of this end's request that the data plane is installing.
pub(crate) struct Installing {
    ticket: Ticket,
    pub(crate) child: ChildSaId,
    /// The command that waits for it.
    pub(crate) request: Option<RequestId>,
}

/// The rest of a rekeyed child. Packets may still be in flight from the peer, or in this host's stack on their way
/// to the outbound SA, which no policy names any more.
pub(crate) struct Lingering {
    pub(crate) child: ChildSaId,
    pub(crate) inbound: SaId,
    pub(crate) outbound: Option<SaId>,
    pub(crate) until: Instant,
}

impl Lingering {
    pub(crate) fn removals(&self) -> impl Iterator<Item = Command> + use<> {
        self.outbound.into_iter().chain([self.inbound]).map(Command::RemoveSa)
    }
}

/// The children of an IKE SA that has ended.
pub(crate) struct Released {
    pub(crate) children: Vec<ChildSa>,
    pub(crate) lingering: Vec<Lingering>,
    pub(crate) installing: Vec<Installing>,
}

/// What follows from new outer addresses.
#[derive(Default)]
pub(crate) struct Moves {
    /// The change to the data plane.
    pub(crate) batch: Vec<Command>,
    /// The children in it.
    pub(crate) moved: Vec<ChildSaId>,
    /// The names that their SAs had.
    pub(crate) stale: Vec<SaId>,
    /// Children that cannot move, because the names of their SAs are in use there.
    pub(crate) stuck: Vec<ChildSaId>,
    /// Children in use whose selectors name the addresses.
    pub(crate) renamed: Vec<ChildSaId>,
}

/// What follows when the peer uses the SA of its rekey.
pub(crate) struct Activated {
    pub(crate) replaced: ChildSaId,
    /// The change to the data plane.
    pub(crate) batch: Vec<Command>,
}

impl Children {
    /// The child `id`.
    pub(crate) fn get(&self, id: ChildSaId) -> Option<&ChildSa> {
        self.all.iter().find(|child| child.id == id)
    }

    /// As [`get`](Self::get).
    pub(crate) fn get_mut(&mut self, id: ChildSaId) -> Option<&mut ChildSa> {
        self.all.iter_mut().find(|child| child.id == id)
    }

    /// All children.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, ChildSa> {
        self.all.iter()
    }

    /// The same as a slice.
    pub(crate) fn as_slice(&self) -> &[ChildSa] {
        &self.all
    }

    /// How many children there are, with the rests of former ones.
    pub(crate) fn count_all(&self) -> usize {
        self.all.len() + self.lingering.len()
    }

    /// Adds a child.
    pub(crate) fn add(&mut self, child: ChildSa) {
        self.all.reserve_exact(1);
        self.all.push(child);
    }

    /// True if `newest` is one of those that packets have asked for, and there are more of them than its configuration has
    /// pairs of selectors, and [`SPARE`] more.
    pub(crate) fn is_crowded(&self, newest: ChildSaId) -> bool {
        let newest = self.get(newest).filter(|new| new.may_give_way());
        newest.is_some_and(|new| self.for_packets(&new.config).count() > new.config.pairs() + SPARE)
    }

    /// True if there are so many children of `config` that packets have asked for that there is to be none beside them,
    /// even if the data plane does not say which of them are in use.
    pub(crate) fn is_full_of(&self, config: &ChildConfig) -> bool {
        self.for_packets(config).count() >= 2 * (config.pairs() + SPARE)
    }

    /// The child that is to end because there are too many like `newest`, without those that end already: the one that has
    /// been idle for longest, if that is as long as a refusal counts. If all are in use it is `newest`: another one would
    /// be asked for again by its next packet. `usage` is what the data plane says of them.
    pub(crate) fn gives_way(
        &self,
        newest: ChildSaId,
        usage: &[Reply],
        now: Instant,
        ends: impl Fn(ChildSaId) -> bool,
    ) -> Option<&ChildSa> {
        let idle = |child: &ChildSa| {
            let sas = [child.inbound(), child.outbound()];
            let used = usage.iter().filter_map(|reply| match reply {
                Reply::Usage(id, usage) if sas.contains(id) => Some(usage.idle),
                _ => None,
            });
            // An SA that was not used yet has been idle since its installation.
            let since = now.saturating_duration_since(child.installed);
            used.map(|idle| idle.unwrap_or(since)).min()
        };
        let new = self.get(newest).filter(|child| !ends(child.id))?;
        let others = self.for_packets(&new.config).filter(|child| child.id != newest);
        let others: Vec<_> = others.filter(|child| !ends(child.id)).collect();
        if others.len() < new.config.pairs() + SPARE {
            return None;
        }
        let idle = others.into_iter().filter_map(|child| Some((idle(child)?, child)));
        let longest = idle.max_by_key(|(idle, _)| *idle);
        Some(longest.filter(|(idle, _)| *idle >= REFUSED_FOR).map_or(new, |(_, child)| child))
    }

    /// The children of this configuration that packets have asked for and that are in use.
    fn for_packets(&self, config: &ChildConfig) -> impl Iterator<Item = &ChildSa> {
        self.all.iter().filter(|child| child.may_give_way() && child.config.name == config.name)
    }

    /// Adds a child of this end's request, which the data plane is installing.
    pub(crate) fn add_installing(
        &mut self,
        child: ChildSa,
        ticket: Ticket,
        request: Option<RequestId>,
    ) {
        self.installing.push(Installing { ticket, child: child.id, request });
        self.add(child);
    }

    /// The child of this end's request that the data plane has answered for.
    pub(crate) fn take_installing(&mut self, ticket: Ticket) -> Option<Installing> {
        let index = self.installing.iter().position(|one| one.ticket == ticket)?;
        Some(self.installing.swap_remove(index))
    }

    /// True while the data plane is installing a child of this end's request.
    pub(crate) fn is_installing(&self) -> bool {
        !self.installing.is_empty()
    }

    /// True if this end makes the child `wanted` by itself, and the data plane is installing it. `request` waits for it
    /// from now on.
    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        let named = |id| {
            self.all.iter().any(|child| {
                child.id == id
                    && Sought::Present(wanted).is(&child.config)
                    && child.cpu.is_none()
                    && child.replaces.is_none()
            })
        };
        let mut installing = self.installing.iter_mut();
        let own = installing.find(|one| one.request.is_none() && named(one.child));
        own.is_some_and(|one| {
            one.request = Some(request);
            true
        })
    }

    /// Removes a child that has ended.
    pub(crate) fn remove(&mut self, id: ChildSaId) -> Option<ChildSa> {
        let index = self.all.iter().position(|child| child.id == id)?;
        let child = self.all.remove(index);
        self.all.shrink_to_fit();
        Some(child)
    }

    /// Removes a child that the data plane has not installed.
    pub(crate) fn remove_failed(&mut self, id: ChildSaId) -> Option<ChildSa> {
        let index = self.all.iter().position(|child| child.id == id)?;
        Some(self.all.swap_remove(index))
    }

    /// Keeps the SAs of a child by which nothing is sent any more while packets may still be in flight; after a hard limit
    /// the inbound one alone.
    pub(crate) fn linger(
        &mut self,
        life: &mut Life,
        ctx: &mut Context<'_>,
        child: &ChildSa,
        reason: &Failure,
    ) {
        let until = ctx.io.now.mono + ctx.io.config.delete_rekeyed_delay;
        life.set(TimerKey::Child(child.id, ChildTimer::DeleteRekeyed), until);
        let mut outbound = child.has_outbound().then(|| child.outbound());
        if let Some(past) = outbound.take_if(|_| *reason == Failure::Expired) {
            ctx.data_plane(vec![Command::RemoveSa(past)]);
        }
        let (child, inbound) = (child.id, child.inbound());
        self.lingering.push(Lingering { child, inbound, outbound, until });
    }

    /// What is left of the former child `id`, which ends now.
    pub(crate) fn take_lingering(&mut self, id: ChildSaId) -> Vec<Lingering> {
        self.lingering.extract_if(.., |old| old.child == id).collect()
    }

    /// Releases all children, and what is left of former ones.
    pub(crate) fn release(&mut self) -> (Vec<ChildSa>, Vec<Lingering>) {
        (std::mem::take(&mut self.all), std::mem::take(&mut self.lingering))
    }

    /// Adds what another IKE SA has released.
    pub(crate) fn take_over(&mut self, children: Vec<ChildSa>, lingering: Vec<Lingering>) {
        self.all.reserve_exact(children.len());
        self.all.extend(children);
        self.lingering.extend(lingering);
    }

    /// Releases everything, because the IKE SA has ended.
    pub(crate) fn dissolve(self) -> Released {
        let Self { all, installing, lingering, full: _ } = self;
        Released { children: all, lingering, installing }
    }

    /// Frees the capacity of collections that are nearly always empty.
    pub(crate) fn trim(&mut self) {
        fn trim<T>(list: &mut Vec<T>) {
            if list.is_empty() && list.capacity() > 0 {
                *list = Vec::new();
            }
        }
        trim(&mut self.installing);
        trim(&mut self.lingering);
        trim(&mut self.full);
    }

    /// Sets the rekey timer of `child` again after a failed rekey.
    pub(crate) fn rearm_rekey(&self, life: &mut Life, ctx: &mut Context<'_>, child: ChildSaId) {
        let at = ctx.io.now.mono + ctx.jittered(RETRY_AFTER * 5, RETRY_SPREAD);
        life.set(TimerKey::Child(child, ChildTimer::RekeyChild), at);
        // The hard limit has waited for this rekey.
        let over = |old: &ChildSa| old.expires_at.is_some_and(|at| at <= ctx.io.now.mono);
        if self.get(child).is_some_and(over) {
            life.set(TimerKey::Child(child, ChildTimer::HardLifeChild), ctx.io.now.mono);
        }
    }

    // ---- policies ----

    /// True while the data plane is at work on the replacement of `child` by our own rekey.
    pub(crate) fn is_being_replaced(&self, child: ChildSaId) -> bool {
        let new = self.all.iter().filter(|new| new.replaces == Some(child));
        let mut new = new.map(|new| new.id);
        new.any(|new| self.installing.iter().any(|one| one.child == new))
    }

    /// The child of the peer's rekey of `old`, if it waits for the peer to use it.
    pub(crate) fn replacement_of(&self, old: ChildSaId) -> Option<ChildSaId> {
        let waits = |child: &&ChildSa| child.replaces == Some(old) && child.pending_out.is_some();
        self.all.iter().find(waits).map(|child| child.id)
    }

    /// True if the policy of `child` is to send by it. A child for one CPU gets the policy only if it replaces the
    /// child by which the policy was sending, or if the policy sends by none.
    pub(crate) fn routes(&self, child: &ChildSa) -> bool {
        let replaced = |old: &ChildSa| Some(old.id) == child.replaces && old.routed;
        child.cpu.is_none() || self.all.iter().any(replaced) || !self.is_routed(child.policy)
    }

    /// True if `policy` sends by an existing child.
    pub(crate) fn is_routed(&self, policy: PolicyId) -> bool {
        self.all.iter().any(|child| child.policy == policy && child.routed)
    }

    /// As [`routes`](Self::routes). If so, the policy no longer sends by the others.
    pub(crate) fn take_route(&mut self, child: &ChildSa) -> bool {
        let routes = self.routes(child);
        for other in self.all.iter_mut().filter(|other| other.policy == child.policy) {
            other.routed &= !routes;
        }
        routes
    }

    /// The child to which the policy of `gone` belongs without it: one of its line, otherwise another that shares
    /// the policy.
    pub(crate) fn heir(&self, gone: &ChildSa) -> Option<&ChildSa> {
        let lives = |other: &ChildSa| {
            other.policy == gone.policy
                && other.id != gone.id
                && matches!(other.phase, Phase::Installing | Phase::Installed)
        };
        let rank =
            |other: &ChildSa| (other.line == gone.line, other.carries(), other.cpu.is_none());
        self.all.iter().filter(|other| lives(other)).max_by_key(|other| rank(other))
    }

    // ---- their lives ----

    /// Records that the traffic of `id` has moved to another child. False if `id` is gone.
    pub(crate) fn retire(&mut self, id: ChildSaId) -> bool {
        let Some(child) = self.get_mut(id) else { return false };
        child.phase = Phase::Rekeyed;
        true
    }

    /// Records that an SA of `id` has reached a limit. True if the child is in use: a rekeyed one keeps the limit in case
    /// the peer goes back to it.
    pub(crate) fn reach(&mut self, id: ChildSaId, limit: Limit) -> bool {
        let Some(child) = self.get_mut(id) else { return false };
        if child.phase != Phase::Rekeyed {
            return true;
        }
        if limit == Limit::Hard || child.reached.is_none() {
            child.reached = Some(limit);
        }
        false
    }

    /// Starts to send by a child that the peer rekeyed, if its outbound SA is pending and `id` is still to be used.
    pub(crate) fn activate(&mut self, id: ChildSaId) -> Option<Activated> {
        let routed = self.get(id).is_some_and(|child| self.routes(child));
        let child = self.get_mut(id)?;
        if child.phase == Phase::Installing {
            // When it is installed, it is checked whether there is anything to wait for.
            return None;
        }
        let (spec, replaced) = child.pending_out.take().zip(child.replaces.take())?;
        if child.phase != Phase::Installed {
            // It was replaced, or was about to end, before the peer used it.
            child.half_closed = true;
            return None;
        }
        child.routed = routed;
        let mut batch = vec![Command::InstallSa(spec)];
        batch.extend(routed.then(|| child.install_policy()));
        if let Some(old) = self.get_mut(replaced) {
            old.phase = Phase::Rekeyed;
            old.routed = false;
        }
        Some(Activated { replaced, batch })
    }

    /// Takes the newest rekeyed child of the line of `new` into use again, because `new` is gone and no other child goes
    /// on with the line. A child that this end `deletes` does not count. Returns the child, and the limit that it has
    /// reached meanwhile.
    pub(crate) fn go_back(
        &mut self,
        new: &ChildSa,
        deletes: impl Fn(ChildSaId) -> bool,
    ) -> Option<(&ChildSa, Option<Limit>)> {
        // The line goes on by a third one, if rekeys have crossed.
        if self.all.iter().any(|other| other.line == new.line && other.carries()) {
            return None;
        }
        let left = self.all.iter_mut().filter(|old| {
            old.line == new.line
                && old.policy == new.policy
                && old.phase == Phase::Rekeyed
                && old.has_outbound()
                && !deletes(old.id)
        });
        let old = left.max_by_key(|old| old.installed)?;
        old.phase = Phase::Installed;
        let reached = old.reached.take();
        Some((&*old, reached))
    }

    /// Makes the policy of `child` send by this child.
    pub(crate) fn route(&mut self, ctx: &mut Context<'_>, child: ChildSaId) {
        if let Some(child) = self.all.iter_mut().find(|other| other.id == child) {
            child.routed = true;
            ctx.change(vec![child.install_policy()], vec![child.id], Vec::new());
        }
    }

    /// Removes the outbound SA of a child. Its policy keeps the traffic from leaving, unless another child has the
    /// policy.
    pub(crate) fn stop_sending(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let Some(child) = self.all.iter_mut().find(|child| child.id == id) else {
            return debug_assert!(false, "a child stops to send, and is gone");
        };
        if !child.has_outbound() {
            return;
        }
        child.half_closed = true;
        child.routed = false;
        let (removal, hold) = (Command::RemoveSa(child.outbound()), child.hold_policy());
        let policy = child.policy;
        let heir = self.all.iter_mut().find(|other| {
            other.policy == policy && other.id != id && other.carries() && other.has_outbound()
        });
        let (policy, sends) = match heir {
            Some(heir) => {
                heir.routed = true;
                (heir.install_policy(), vec![heir.id])
            }
            None => (hold, Vec::new()),
        };
        ctx.change(vec![policy], sends, Vec::new());
        ctx.data_plane(vec![removal]);
    }

    /// What each child carries by which packets leave, and since when.
    pub(crate) fn used_routes(&self) -> Vec<(Carries, Instant)> {
        let sends =
            |child: &&ChildSa| child.phase == Phase::Installed && child.routed && !child.standby;
        let sends = self.all.iter().filter(sends);
        sends.map(|child| (Carries::of(child), child.installed)).collect()
    }

    /// This IKE SA is about to end for another one with the routes `new`. Packets leave by those from now on, also where
    /// this one got its child later.
    pub(crate) fn send_by_others(&mut self, ctx: &mut Context<'_>, new: &[(Carries, Instant)]) {
        let mut standby = Vec::new();
        for child in self.all.iter_mut().filter(|child| child.routed) {
            let carries = Carries::of(child);
            let older =
                |(other, at): &(Carries, Instant)| *other == carries && *at <= child.installed;
            if !child.standby && new.iter().any(older) {
                child.standby = true;
                standby.push(child.id);
            }
        }
        for child in standby {
            self.route(ctx, child);
        }
    }

    /// Lets the policies name no child any more, because the IKE SA is about to end. Returns the policies.
    pub(crate) fn unroute(&mut self) -> BTreeSet<PolicyId> {
        for child in &mut self.all {
            child.routed = false;
        }
        self.all.iter().map(|child| child.policy).collect()
    }

    // ---- standby ----

    /// True if each child `name` is on standby.
    pub(crate) fn is_on_standby(&self, name: &str) -> bool {
        let mut named = self.all.iter().filter(|child| child.config.name == name);
        named.all(|child| child.standby)
    }

    /// Ends the standby of `id`: its policy counts from now on, as the newest.
    pub(crate) fn end_standby(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        let Some(child) = self.all.iter_mut().find(|child| child.id == id) else {
            return tracing::debug!(?id, "timer of a child that is gone");
        };
        child.standby = false;
        if child.routed && child.phase == Phase::Installed {
            self.route(ctx, id);
        }
    }

    // ---- addresses ----

    /// Moves the children's outer addresses to those of `path`. `proven` is the path of the IKE SA, if its peer has
    /// proven its address. `nat` says whether there is a NAT, if that is known to have changed. `claim` takes the name of an outbound SA for an inbound SPI.
    pub(crate) fn move_to(
        &mut self,
        path: Path,
        (proven, nat): (Option<Path>, Option<bool>),
        mut claim: impl FnMut(SaId, u32) -> bool,
    ) -> Moves {
        let Moves { mut batch, mut moved, mut stale, mut stuck, mut renamed } = Moves::default();
        for child in &mut self.all {
            let (inbound, outbound) = (child.inbound(), child.outbound());
            let there = SaId { dst: path.remote.ip(), ..outbound };
            if !claim(there, child.spi_in) {
                stuck.push(child.id);
                continue;
            }
            moved.push(child.id);
            stale.extend([inbound, outbound]);
            let installed_out = child.has_outbound();
            if child.follow_addresses(path, proven) && child.phase == Phase::Installed {
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
                child.carries() && known && !self.is_routed(child.policy)
            }
        };
        let sending = self.all.iter().filter(sends);
        let carrying: Vec<_> = sending.map(ChildSa::install_policy).collect();
        batch.extend(carrying);
        Moves { batch, moved, stale, stuck, renamed }
    }
}
