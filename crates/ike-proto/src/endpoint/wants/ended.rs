//! What an end means for what is wanted: nothing, a trap, or another start and when.

use super::{By, Name, STABLE, Want};
use crate::config::Action;
use crate::dataplane::PolicyId;
use crate::endpoint::Endpoint;
use crate::endpoint::unattended::Removal;
use crate::event::{Event, Failure, Now, Output};
use crate::wants::aftermath::{self, End, Next, Wishes};
use crate::wants::{Ended, Ends};

impl Endpoint {
    /// Does what follows an end.
    pub(in crate::endpoint) fn on_ended(&mut self, now: Now, ended: Ended) {
        let Ended { connection, child, end, reason, was_up, ends, held } = ended;
        let name = (connection, child);
        let found = self.lookup.connection(&name.0).cloned();
        let config = found
            .as_ref()
            .filter(|found| name.1.as_ref().is_none_or(|child| found.child(child).is_some()));
        let lift = |held: Vec<PolicyId>, this: &mut Self| {
            this.remove_each(held.into_iter().map(Removal::Policy));
        };
        let Some(connection) = config.filter(|_| !self.shutdown.has_begun()) else {
            lift(held, self);
            return self.unwant_name(&name);
        };
        let wanted = self.wants.all.get(&name).is_some_and(|want| want.is_wish());
        let config = name.1.as_ref().and_then(|child| connection.child(child));
        // A series of attempts ends with its last one (`on_attempt_failed`).
        let wishes = Wishes::of(connection, config.map(|c| &**c), wanted, u32::MAX);
        // The actions of a wanted child apply from its first attempt on.
        let wishes = if was_up || wanted { wishes } else { wishes.without_actions() };
        // The peer cannot have ended on purpose a child that it never had. It would not have the child now.
        let end = match end {
            End::Deleted if wanted && !was_up && wishes.close == Action::None => End::Refused,
            end => end,
        };
        let next = aftermath::after(end, wishes);
        // Another IKE SA has the child, or is getting it.
        let carried = self.carries(&name.0, name.1.as_deref()) || self.wants.is_parked(&name);
        let up = carried && self.is_up(&name);
        match next {
            // The command took back that it was wanted. Somebody wants it again since then.
            _ if end == End::Commanded && self.is_left_out(&name) => {
                self.start_again(now, name, (Next::Start, was_up), Some(ends), held, &reason);
            }
            _ if end == End::Commanded => lift(held, self),
            // It is not up yet, and may never be: its traffic stays in, and its end here is not forgotten.
            _ if carried && !up && (wanted || next.starts()) => {
                let want = self.wants.all.entry(name.into());
                want.or_insert_with(|| Want::new(By::Action)).held.extend(held);
            }
            // The other one may not come up either, and then nothing is left that would bring it up.
            Next::Trap if carried && !up => match &name.1 {
                Some(child) => self.trap_again(now, &name.0, child, ends, held),
                None => lift(held, self),
            },
            _ if carried => lift(held, self),
            // A reload tries it again. What is up is wanted as before.
            Next::Nothing if self.has_former(&name) => lift(held, self),
            Next::Nothing => {
                lift(held, self);
                self.give_up(&name, &reason);
            }
            Next::Trap => match &name.1 {
                Some(child) => {
                    // What an earlier end has left waits for the trap, too.
                    let before = self.wants.all.get_mut(&name);
                    let before = before.map(|want| std::mem::take(&mut want.held));
                    let held = before.into_iter().flatten().chain(held).collect();
                    self.trap_again(now, &name.0, child, ends, held);
                    self.drop_want(&name);
                }
                None => {
                    lift(held, self);
                    self.unwant_name(&name);
                }
            },
            Next::Start | Next::StartLater => {
                self.start_again(now, name, (next, was_up), Some(ends), held, &reason);
            }
        }
    }

    /// Starts a child again that two different rules have ended.
    pub(in crate::endpoint) fn bring_back(
        &mut self,
        now: Now,
        connection: String,
        child: String,
        ends: Ends,
    ) {
        let known = self.lookup.connection(&connection);
        let known = known.is_some_and(|connection| connection.child(&child).is_some());
        let name = (connection, Some(child));
        if known && !self.shutdown.has_begun() && !self.carries(&name.0, name.1.as_deref()) {
            let next = (Next::Start, true);
            self.start_again(now, name, next, Some(ends), Vec::new(), &Failure::DeletedByPeer);
        }
    }

    /// Ends the wish for a child, because of `reason`.
    pub(super) fn give_up(&mut self, name: &Name, reason: &Failure) {
        let known = self.wants.all.get(name).map(|want| want.is_wish());
        if let Some(wish) = known {
            self.unwant_name(name);
            if wish {
                let (connection, child) = name.clone();
                let reason = reason.clone();
                self.out.push_back(Output::Event(Event::GivenUp { connection, child, reason }));
            }
        }
    }

    /// Installs the trap of a child that has ended. The policies in `held` drop its traffic until the trap is
    /// installed.
    fn trap_again(
        &mut self,
        now: Now,
        connection: &str,
        child: &str,
        (local, remote): Ends,
        held: Vec<PolicyId>,
    ) {
        let (connection, child) = (connection.to_owned(), child.to_owned());
        if self.config.shard.count > 1 {
            let name = (connection.clone(), Some(child.clone()));
            self.hold_until_trapped_elsewhere(&name, held);
            let event = Event::Trap { connection, child, local, remote };
            return self.out.push_back(Output::Event(event));
        }
        let held = match self.install_trap(now, None, &connection, &child, local, remote) {
            Ok(()) => self.hold_until_trapped(&connection, &child, held),
            // The configuration is gone by now. Then there is nothing to trap for.
            Err(_) => held,
        };
        self.remove_each(held.into_iter().map(Removal::Policy));
    }

    /// True if the child is wanted, and neither up, nor being made, nor due at a known time.
    fn is_left_out(&self, name: &Name) -> bool {
        self.wants
            .all
            .get(name)
            .is_some_and(|want| want.is_wish() && !self.is_cared_for(name, want))
    }

    pub(super) fn start_again(
        &mut self,
        now: Now,
        name: Name,
        (next, was_up): (Next, bool),
        ends: Option<Ends>,
        held: Vec<PolicyId>,
        reason: &Failure,
    ) {
        let careful = self.may_lock_account(&name.0, reason);
        let want =
            self.wants.all.entry(name.clone().into()).or_insert_with(|| Want::new(By::Action));
        want.careful = careful;
        want.held.extend(held);
        want.ends = ends.or(want.ends);
        let lived = want.up.take().map(|up| now.mono.saturating_duration_since(up));
        if was_up && lived.is_none_or(|lived| lived >= STABLE) {
            want.failures = 0;
        } else {
            want.failures = want.failures.saturating_add(1);
        }
        let (failures, begun) = (want.failures, want.begun);
        let wait = self.back_off(failures);
        let at = match next {
            _ if careful => now.mono + self.careful_back_off(failures),
            // Counted from the last start: the time of a retransmission schedule is enough.
            Next::Start => begun.map_or(now.mono, |begun| begun + wait),
            _ => now.mono + wait.max(self.back_off(1)),
        };
        let at = at.max(now.mono);
        if self.wants.all.get_mut(&name).is_some_and(|want| want.start_at(at)) {
            self.tell_start(name, at.saturating_duration_since(now.mono), reason);
        }
    }

    /// True if `reason` is a refusal that a server may count against this end's account.
    fn may_lock_account(&self, connection: &str, reason: &Failure) -> bool {
        self.lookup
            .connection(connection)
            .is_some_and(|connection| aftermath::may_lock_account(connection, reason))
    }
}
