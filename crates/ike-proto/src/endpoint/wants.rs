//! Children that are wanted up, and when each is started again.
//!
//! That a child is wanted is a fact of its own. `start_action = start` or a command sets it. `down`, a
//! configuration without the child, or [`crate::wants::aftermath`] takes it back. A wanted child is up, or an attempt is
//! under way, or an attempt is due at a known time ([`Endpoint::neglected`] lists children that break this rule).

mod elsewhere;
pub(crate) mod ended;
mod starting;
mod watched;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::attempt::NewAttempt;
use super::deadline::Deadline;
use super::unattended::Removal;
use super::{Endpoint, Entry};
use crate::config::{Action, ConnectionConfig};
use crate::dataplane::PolicyId;
use crate::event::{Event, Failure, IkeSaId, Now, Output, Ticket};
use crate::ike_sa::context::jittered;
use crate::wants::{Ends, Sought, Wanted};
use watched::Watched;

/// The back-off after the first failure. It doubles with each failure up to the longest wait. Up to a quarter is
/// added or subtracted.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The same after a refusal that a server may count against an account: four attempts in half an hour at most.
pub(super) const FIRST_CAREFUL_WAIT: Duration = Duration::from_secs(5 * 60);
const LONGEST_CAREFUL_WAIT: Duration = Duration::from_secs(60 * 60);

/// The delay of a start that may be unnecessary because of another shard.
const PUT_OFF: Duration = Duration::from_secs(1);

/// A child that was up for so long has not failed.
const STABLE: Duration = Duration::from_secs(60);

/// A connection and a child of it; `None` is the IKE SA alone.
pub(crate) type Name = (String, Option<String>);

/// The origin of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// `start_action = start`.
    Configuration,
    /// A command.
    Command,
    /// `close_action` or `dpd_action` of a child that was up.
    Action,
}

impl By {
    /// The origin of the wish for `child` of `connection`.
    fn asking(connection: &ConnectionConfig, child: Option<&str>) -> Self {
        let config = child.and_then(|name| connection.child(name));
        match config.is_some_and(|child| child.start_action == Action::Start) {
            true => Self::Configuration,
            false => Self::Command,
        }
    }
}

/// A child that is wanted up.
#[derive(Debug)]
struct Want {
    by: By,
    /// Failures in a row.
    failures: u32,
    /// When the last start began.
    begun: Option<Instant>,
    /// When it last came up.
    up: Option<Instant>,
    /// When it is started again.
    at: Option<Instant>,
    /// The driver was asked for its addresses.
    asked: bool,
    /// Another shard was told to start it.
    elsewhere: bool,
    /// The start was put off, because another shard may have had the child.
    put_off: bool,
    /// An operator has requested the child a second time although it was up.
    several: bool,
    /// A server may count its attempts. Only the end of the back-off, or a command, begins the next one.
    careful: bool,
    /// Its last two ends.
    ends: Option<Ends>,
    /// Policies that keep its traffic from leaving in clear until it is up again.
    held: Vec<PolicyId>,
}

impl Want {
    /// Sets the next start to `at`, unless an earlier start is due or under way. True if the time was set.
    fn start_at(&mut self, at: Instant) -> bool {
        self.elsewhere = false;
        let later = !self.asked && self.at.is_none_or(|set| set > at);
        if later {
            self.at = Some(at);
        }
        later
    }

    fn new(by: By) -> Box<Self> {
        Box::new(Self {
            by,
            failures: 0,
            begun: None,
            up: None,
            at: None,
            asked: false,
            elsewhere: false,
            put_off: false,
            several: false,
            careful: false,
            ends: None,
            held: Vec::new(),
        })
    }

    /// Handles that it is up, as an earlier configuration has it: it is started as it is now.
    fn is_up_as_before(&mut self, now: Now) {
        self.up = Some(now.mono);
        if !self.asked {
            self.at.get_or_insert(now.mono);
        }
    }

    /// Handles that it is up; `named` if it is one child, and not whatever the connection has. Returns the policies that
    /// kept its traffic from leaving.
    fn is_up(&mut self, now: Now, named: bool) -> Vec<PolicyId> {
        self.up = Some(now.mono);
        (self.at, self.elsewhere, self.put_off) = (None, false, false);
        // The question for the addresses of one child is dropped with its start.
        self.asked &= !named;
        std::mem::take(&mut self.held)
    }

    /// Records who wants it.
    fn note_wish(&mut self, by: By) {
        // A command outlives a configuration that wants the same.
        if self.by != By::Command {
            self.by = by;
        }
    }

    /// True if the configuration or a command wants it up, or an action that has not brought it up yet. A child
    /// that an action has brought up is not wanted for that reason.
    fn is_wish(&self) -> bool {
        self.by != By::Action || self.up.is_none()
    }
}

/// An attempt to be repeated.
struct Again {
    at: Instant,
    /// When it last began.
    begun: Instant,
    new: Box<NewAttempt>,
}

/// Starts that wait for the addresses of a connection.
pub(super) enum Asked {
    Want(Name),
    Again(Box<NewAttempt>),
}

/// All wanted children.
#[derive(Default)]
pub(crate) struct Wants {
    // Boxes, because half of the capacity of a B-tree's nodes may be empty.
    all: Watched<BTreeMap<Box<Name>, Box<Want>>>,
    again: Watched<Vec<Again>>,
    pub(super) asked: BTreeMap<Ticket, Asked>,
    /// Policies that keep a child's traffic in until another shard has its trap installed, by the child's digest.
    until_trapped: Vec<(u64, Vec<PolicyId>)>,
    /// The deadline that is armed.
    armed: Option<Instant>,
}

impl Wants {
    /// True if `child` of `connection` is wanted up.
    pub(crate) fn has(&self, connection: &str, child: &str) -> bool {
        !self.all.is_empty()
            && self
                .all
                .get(&(connection.to_owned(), Some(child.to_owned())))
                .is_some_and(|want| want.is_wish())
    }

    /// True if an operator wants more than one `child` of `connection`.
    pub(crate) fn has_several(&self, connection: &str, child: &str) -> bool {
        !self.all.is_empty()
            && self
                .all
                .get(&(connection.to_owned(), Some(child.to_owned())))
                .is_some_and(|want| want.several)
    }

    /// True if no child is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if the time of the next start may have changed since the last call.
    fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.all.changed) | std::mem::take(&mut self.again.changed)
    }

    fn next(&self) -> Option<Instant> {
        let wants = self.all.values().filter_map(|want| want.at);
        wants.chain(self.again.iter().map(|again| again.at)).min()
    }

    /// Adds to the attempt to replace `ike` that waits for its time or for addresses. False if there is none.
    pub(super) fn add_to_parked(&mut self, ike: IkeSaId, wanted: Option<Wanted>) -> bool {
        let mut wanted = wanted;
        self.any_parked(ike, |new| {
            new.wanted.extend(wanted.take());
            true
        })
    }

    /// Attempts that wait replace `to` in place of `from`.
    pub(super) fn replace_parked(&mut self, from: IkeSaId, to: IkeSaId) {
        self.any_parked(from, |new| {
            new.replaces = Some(to);
            false
        });
    }

    /// Changes attempts that wait and are to replace `ike`, up to the one for which `change` returns true. False if
    /// there is none.
    fn any_parked(
        &mut self,
        ike: IkeSaId,
        mut change: impl FnMut(&mut NewAttempt) -> bool,
    ) -> bool {
        let asked = self.asked.values_mut().filter_map(|asked| match asked {
            Asked::Again(new) => Some(new),
            Asked::Want(_) => None,
        });
        let again = self.again.iter_mut().map(|again| &mut again.new);
        again.chain(asked).any(|new| new.replaces == Some(ike) && change(new))
    }

    /// Attempts that wait for their time or for addresses.
    fn parked(&self) -> impl Iterator<Item = &NewAttempt> {
        let asked = self.asked.values().filter_map(|asked| match asked {
            Asked::Again(new) => Some(new),
            Asked::Want(_) => None,
        });
        self.again.iter().map(|again| &again.new).chain(asked).map(|new| &**new)
    }

    /// True if an attempt at `name` is parked.
    fn is_parked(&self, name: &Name) -> bool {
        self.parked().any(|new| {
            new.connection.name == name.0 && new.wanted.iter().any(|wanted| wanted.is_for(&name.1))
        })
    }

    /// True if an attempt that is to replace `ike` is parked.
    fn replaces(&self, ike: IkeSaId) -> bool {
        self.parked().any(|new| new.replaces == Some(ike))
    }
}

impl Endpoint {
    /// Children that are wanted up and neither up, nor being made, nor due at a known time. For tests: the list is
    /// empty, unless another shard has them. Each entry is a connection and a child of it; `None` is the IKE SA
    /// alone.
    pub fn neglected(&self) -> Vec<(String, Option<String>)> {
        let all = self.wants.all.iter().filter(|(name, want)| !self.is_cared_for(name, want));
        all.map(|(name, _)| Name::clone(name)).collect()
    }

    /// The children that are wanted up. Each entry is a connection and a child of it; `None` is the IKE SA alone.
    pub fn wanted(&self) -> Vec<(String, Option<String>)> {
        self.wants.all.keys().map(|name| Name::clone(name)).collect()
    }

    /// How long until `child` of `connection` is started again. Zero if it is up or under way, `None` if it is not
    /// wanted. Without a child, of the IKE SA alone.
    pub fn starts_in(&self, connection: &str, child: Option<&str>, now: Now) -> Option<Duration> {
        let name = (connection.to_owned(), child.map(str::to_owned));
        let want = self.wants.all.get(&name)?;
        let of_name = |again: &&Again| {
            again.new.connection.name == name.0
                && again.new.wanted.iter().any(|w| w.is_for(&name.1))
        };
        let parked = self.wants.again.iter().filter(of_name).map(|again| again.at);
        let at = want.at.into_iter().chain(parked).min();
        Some(at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now.mono)))
    }

    /// True if an IKE SA of this shard has or makes the child and is not about to end, or if an attempt is under way.
    /// Without a child, of the IKE SA alone.
    pub fn carries(&self, connection: &str, child: Option<&str>) -> bool {
        let sought = Sought::present(&self.lookup, connection, child);
        self.index.of(connection).any(|id| match self.entries.get(&id).map(|slot| &slot.entry) {
            Some(Entry::Attempt(attempt)) => {
                let child = child.map(str::to_owned);
                attempt.wanted.iter().any(|wanted| wanted.is_for(&child))
            }
            Some(Entry::Sa(sa)) => sa.carries(sought),
            Some(Entry::Parked(_)) | None => false,
        })
    }

    /// True if an IKE SA of this shard has the child in use.
    fn is_up(&self, (connection, child): &Name) -> bool {
        let sought = Sought::present(&self.lookup, connection, child.as_deref());
        self.index.of(connection).any(|id| match self.entries.get(&id).map(|slot| &slot.entry) {
            Some(Entry::Sa(sa)) => sa.has_up(sought),
            _ => false,
        })
    }

    /// Records that a child is wanted, by configuration or by command, and that its start begins now.
    pub(super) fn want(
        &mut self,
        now: Now,
        connection: &ConnectionConfig,
        child: Option<&str>,
        ends: Option<Ends>,
    ) {
        let by = By::asking(connection, child);
        let name = (connection.name.clone(), child.map(str::to_owned));
        let want = self.wants.all.entry(name.into()).or_insert_with(|| Want::new(by));
        want.note_wish(by);
        (want.at, want.elsewhere, want.begun) = (None, false, Some(now.mono));
        want.ends = ends.or(want.ends);
    }

    /// An operator wants one more of what is wanted already.
    pub(super) fn want_several(&mut self, connection: &str, child: &str) {
        let name = (connection.to_owned(), Some(child.to_owned()));
        if let Some(want) = self.wants.all.get_mut(&name) {
            want.several = true;
        }
    }

    /// Wants a child because of the configuration. It is started as soon as the driver knows its addresses.
    pub(super) fn on_want(
        &mut self,
        now: Now,
        connection: &str,
        child: &str,
    ) -> Result<(), Failure> {
        let connection = self.find_connection(connection)?;
        if connection.child(child).is_none() {
            return Err(Failure::Config(format!("no child {child:?}")));
        }
        let by = By::asking(&connection, Some(child));
        let name = (connection.name.clone(), Some(child.to_owned()));
        if self.carries(&name.0, Some(child)) || self.wants.is_parked(&name) {
            if self.is_up(&name) {
                self.tell_child_up(&name);
            }
            // An action may have brought it up.
            let want = self.wants.all.entry(name.into()).or_insert_with(|| Want::new(by));
            want.note_wish(by);
            return Ok(());
        }
        let want = self.wants.all.entry(name.into()).or_insert_with(|| Want::new(by));
        want.note_wish(by);
        want.elsewhere = false;
        if !want.asked {
            want.at = Some(now.mono);
            self.run_starts(now);
        }
        Ok(())
    }

    /// Puts off the start of a child, unless it was put off already.
    pub(super) fn put_off_start(&mut self, now: Now, connection: &str, child: &str) -> bool {
        let name = (connection.to_owned(), Some(child.to_owned()));
        let Some(want) = self.wants.all.get_mut(&name) else { return false };
        let first = !std::mem::replace(&mut want.put_off, true);
        if first {
            want.at = Some(now.mono + PUT_OFF);
        }
        first
    }

    /// Ends the wish for children: for one, or for all of a connection. False if none was wanted.
    pub(super) fn unwant(&mut self, connection: &str, child: Option<&str>) -> bool {
        let meant = |name: &Name| {
            name.0 == connection && child.is_none_or(|child| name.1.as_deref() == Some(child))
        };
        let names: Vec<_> = self.wants.all.keys().filter(|name| meant(name)).cloned().collect();
        let gone: Vec<_> = names.iter().filter_map(|name| self.wants.all.remove(name)).collect();
        for want in &gone {
            self.lift(want);
        }
        for name in &names {
            self.tell_given_up(name);
        }
        let parked = self.drop_parked(&meant, true, &Err(Failure::Terminated));
        !gone.is_empty() || parked
    }

    /// As [`unwant`](Self::unwant), for one child.
    pub(super) fn unwant_name(&mut self, name: &Name) {
        if self.drop_want(name) {
            self.tell_given_up(name);
        }
    }

    /// As [`unwant_name`](Self::unwant_name), but other shards that wait for the child go on waiting. False if it was not
    /// wanted.
    fn drop_want(&mut self, name: &Name) -> bool {
        let gone = self.wants.all.remove(name);
        if let Some(want) = &gone {
            self.lift(want);
        }
        self.drop_parked(&|other: &Name| other == name, true, &Err(Failure::Terminated));
        gone.is_some()
    }

    /// Ends all wishes.
    pub(super) fn unwant_all(&mut self) {
        let all = std::mem::take(&mut *self.wants.all);
        for want in all.values() {
            self.lift(want);
        }
        let waiting = std::mem::take(&mut self.wants.until_trapped);
        let held = waiting.into_iter().flat_map(|(_, held)| held);
        self.remove_each(held.map(Removal::Policy));
        self.drop_parked(&|_| true, true, &Err(Failure::Terminated));
    }

    /// Removes children from attempts that wait for their time. `replacing` says whether attempts to replace an
    /// IKE SA are included. Commands that wait for such a child get `outcome`. False if there was nothing to
    /// remove.
    fn drop_parked(
        &mut self,
        meant: &dyn Fn(&Name) -> bool,
        replacing: bool,
        outcome: &Result<(), Failure>,
    ) -> bool {
        let mut dropped = Vec::new();
        let mut any = false;
        let mut thin = |new: &mut NewAttempt| {
            if new.replaces.is_some() && !replacing {
                return true;
            }
            let connection = new.connection.name.clone();
            let of = |wanted: &Wanted| wanted.child.as_ref().map(|child| child.name.clone());
            let gone = new.wanted.extract_if(.., |wanted| meant(&(connection.clone(), of(wanted))));
            for wanted in gone {
                any = true;
                dropped.extend(wanted.request);
            }
            !new.wanted.is_empty()
        };
        self.wants.again.retain_mut(|again| thin(&mut again.new));
        self.wants.asked.retain(|_, asked| match asked {
            Asked::Again(new) => thin(new),
            Asked::Want(name) => !meant(name),
        });
        for request in dropped {
            self.done(request, outcome.clone());
        }
        any
    }

    /// Removes the policies that kept a child's traffic from leaving.
    fn lift(&mut self, want: &Want) {
        let held = want.held.clone();
        self.remove_each(held.into_iter().map(Removal::Policy));
    }

    /// Ends the wishes for all children that `ike` has or makes.
    pub(super) fn unwant_of(&mut self, ike: IkeSaId) {
        if self.wants.is_empty() {
            return;
        }
        let (connection, names): (String, Vec<_>) =
            match self.entries.get(&ike).map(|slot| &slot.entry) {
                Some(Entry::Attempt(attempt)) => {
                    let of =
                        |wanted: &Wanted| wanted.child.as_ref().map(|child| child.name.clone());
                    (attempt.connection.name.clone(), attempt.wanted.iter().map(of).collect())
                }
                Some(Entry::Sa(sa)) => {
                    let names = sa.names_of_children().into_iter().map(Some);
                    (sa.channel.connection().name.clone(), names.chain([None]).collect())
                }
                Some(Entry::Parked(_)) | None => return,
            };
        for child in names {
            self.unwant_name(&(connection.clone(), child));
        }
    }

    /// Handles a new configuration. Children that it lacks, or no longer wants, are not wanted any more. A child that is
    /// up, and that it has changed, is started as it is now.
    pub(super) fn review_wants(&mut self, now: Now) {
        let lookup = &self.lookup;
        let stays = |name: &Name, want: &Want| {
            let Some(connection) = lookup.connection(&name.0) else { return false };
            match &name.1 {
                None => true,
                Some(child) => connection.child(child).is_some_and(|child| {
                    want.by != By::Configuration || child.start_action == Action::Start
                }),
            }
        };
        let gone = self.wants.all.iter().filter(|(name, want)| !stays(name, want));
        let gone: Vec<_> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.unwant_name(&name);
        }
        let changed = self.wants.all.iter().filter(|(name, want)| {
            want.up.is_some() && want.is_wish() && !self.is_cared_for(name, want)
        });
        let changed: Vec<_> = changed.map(|(name, _)| name.clone()).collect();
        for name in changed {
            if let Some(want) = self.wants.all.get_mut(&name) {
                want.at = Some(now.mono);
            }
        }
        self.run_starts(now);
    }

    /// Handles that a child is up: removes the policies that kept its traffic from leaving.
    pub(super) fn on_carried(&mut self, now: Now, connection: &str, child: Option<&str>) {
        let name = (connection.to_owned(), child.map(str::to_owned));
        self.tell_child_up(&name);
        let is_former = self.has_former(&name);
        match self.wants.all.get_mut(&name) {
            Some(want) if is_former => want.is_up_as_before(now),
            Some(want) => {
                let held = want.is_up(now, child.is_some());
                self.remove_each(held.into_iter().map(Removal::Policy));
                // A start of the same child by this end is not needed any more.
                self.drop_parked(&|other: &Name| *other == name && child.is_some(), false, &Ok(()));
            }
            // The peer has made it, or an operator who wanted it only once.
            None => {}
        }
    }

    /// True if an IKE SA of this shard has or makes the child as an earlier configuration had it, and nothing has or makes
    /// it as it is now.
    fn has_former(&self, (connection, child): &Name) -> bool {
        let sought = Sought::named(child.as_deref());
        let is = |id| match self.entries.get(&id).map(|slot| &slot.entry) {
            Some(Entry::Sa(sa)) => sa.carries(sought),
            _ => false,
        };
        self.index.of(connection).any(is) && !self.carries(connection, child.as_deref())
    }

    fn is_cared_for(&self, name: &Name, want: &Want) -> bool {
        let due = want.at.is_some() || want.asked || want.elsewhere;
        due || self.carries(&name.0, name.1.as_deref()) || self.wants.is_parked(name)
    }

    fn tell_start(&mut self, name: Name, after: Duration, reason: &Failure) {
        let careful = self.wants.all.get(&name).is_some_and(|want| want.careful);
        let ((connection, child), reason) = (name, reason.clone());
        let event = Event::StartsAgain { connection, child, after, careful, reason };
        self.out.push_back(Output::Event(event));
    }

    /// The wait after `failures` in a row.
    pub(super) fn back_off(&mut self, failures: u32) -> Duration {
        self.doubled(FIRST_WAIT, LONGEST_WAIT, failures)
    }

    /// The same if each failure may count against an account.
    fn careful_back_off(&mut self, failures: u32) -> Duration {
        self.doubled(FIRST_CAREFUL_WAIT, LONGEST_CAREFUL_WAIT, failures.max(1))
    }

    fn doubled(&mut self, first: Duration, longest: Duration, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let wait = first.saturating_mul(1 << doublings.min(8)).min(longest);
        // Subtracts up to two fifths of five quarters: a quarter either way.
        jittered(&mut *self.rng, wait * 5 / 4, wait / 2)
    }

    /// Repeats a failed attempt when it is due.
    pub(super) fn attempt_again(
        &mut self,
        now: Now,
        begun: Instant,
        new: NewAttempt,
        reason: &Failure,
    ) {
        // An IKE SA that is still up has a hard limit, so longer waits gain nothing.
        let renews = new.replaces.is_some_and(|old| self.entries.contains_key(&old));
        let failures = match renews && *reason == Failure::Timeout {
            true => new.tries.min(1),
            false => new.tries,
        };
        let at = (begun + self.back_off(failures)).max(now.mono);
        self.attempt_at(now, (begun, at), new, reason);
    }

    /// Repeats at `at` an attempt that last began at `begun`.
    pub(super) fn attempt_at(
        &mut self,
        now: Now,
        (begun, at): (Instant, Instant),
        new: NewAttempt,
        reason: &Failure,
    ) {
        let children: Vec<_> =
            new.wanted.iter().map(|w| w.child.as_ref().map(|c| c.name.clone())).collect();
        for child in children {
            let name = (new.connection.name.clone(), child);
            self.tell_start(name, at.saturating_duration_since(now.mono), reason);
        }
        self.wants.again.push(Again { at, begun, new: Box::new(new) });
        self.run_starts(now);
    }

    /// Sets the deadline of the next start.
    pub(super) fn arm_starts(&mut self) {
        // Most inputs change nothing here, and there may be thousands of wants to look at.
        if !self.wants.has_changed() {
            return;
        }
        let next = self.wants.next();
        if next == self.wants.armed {
            return;
        }
        if let Some(old) = std::mem::replace(&mut self.wants.armed, next) {
            self.deadlines.remove(&(old, Deadline::Starts));
        }
        self.deadlines.extend(next.map(|at| (at, Deadline::Starts)));
    }

    /// Handles the deadline of the next start.
    pub(super) fn on_starts_due(&mut self, now: Now) {
        if let Some(at) = self.wants.armed.take() {
            self.deadlines.remove(&(at, Deadline::Starts));
        }
        self.run_starts(now);
        self.wants.again.changed = true;
        self.arm_starts();
    }
}
