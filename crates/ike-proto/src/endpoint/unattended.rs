//! Batches for the data plane that no exchange waits for, and what follows if they fail.
//!
//! Removals are repeated until they succeed, because an SA or a policy that stayed behind would outlive its keys.
//! If a change of a child fails, the child is deleted at both ends. If a trap fails, that is reported, and the
//! trap is installed again if the configuration wants it.

use std::time::{Duration, Instant};

use super::Endpoint;
use super::deadline::Deadline;
use crate::dataplane::{Command, DataPlaneError, PolicyId, SaId};
use crate::event::{ChildSaId, Failure, Now, Output, RequestId, Ticket};

/// The wait before a failed removal is repeated. It doubles with each failure up to a maximum.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 6;
/// Removals that are kept at most. A data plane with so many failures has lost more than these.
const MAX_CHORES: usize = 4096;

/// What a batch is about.
#[derive(Debug)]
pub(crate) enum Unattended {
    /// Removals, how often the wait for them has doubled, and when they were requested first.
    Removals { removals: Vec<Removal>, failures: u32, issued: Ticket },
    /// A change to these children. If it fails, they are deleted, and so are the SAs in `stale`, by the names that
    /// they had before the change.
    Change { children: Vec<ChildSaId>, stale: Vec<SaId> },
    /// A trap was installed, by command.
    Trap(PolicyId, Option<RequestId>),
}

/// An object to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    Sa(SaId),
    Policy(PolicyId),
}

impl Removal {
    /// The removal that `command` is, if it is one.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        match command {
            Command::RemoveSa(id) => Some(Self::Sa(*id)),
            Command::RemovePolicy(id) => Some(Self::Policy(*id)),
            _ => None,
        }
    }
}

impl From<Removal> for Command {
    fn from(removal: Removal) -> Self {
        match removal {
            Removal::Sa(id) => Self::RemoveSa(id),
            Removal::Policy(id) => Self::RemovePolicy(id),
        }
    }
}

/// A removal to be repeated.
pub(super) struct Chore {
    at: Instant,
    removal: Removal,
    failures: u32,
    issued: Ticket,
}

impl Endpoint {
    pub(super) fn on_unattended(
        &mut self,
        now: Now,
        batch: Unattended,
        result: Result<(), DataPlaneError>,
    ) {
        match (batch, result) {
            (Unattended::Removals { .. } | Unattended::Change { .. }, Ok(())) => {}
            (Unattended::Removals { removals, failures, issued }, Err(_)) => {
                self.on_removals_failed(now, &removals, failures, issued);
            }
            (Unattended::Change { children, stale }, Err(error)) => {
                self.remove_each(stale.into_iter().map(Removal::Sa));
                for child in children {
                    self.on_change_failed(now, child, &error);
                }
            }
            (Unattended::Trap(policy, request), result) => {
                self.on_trap_answered(now, policy, request, result);
            }
        }
    }

    /// Handles a failed batch. A batch stops at the first failure, and the removals after it must not wait.
    fn on_removals_failed(
        &mut self,
        now: Now,
        removals: &[Removal],
        failures: u32,
        issued: Ticket,
    ) {
        match removals {
            [removal] if self.chores.len() < MAX_CHORES => {
                let at = now.mono + FIRST_WAIT * 2_u32.pow(failures);
                let failures = (failures + 1).min(MAX_DOUBLINGS);
                self.chores.push(Chore { at, removal: *removal, failures, issued });
                self.deadlines.insert((at, Deadline::Housekeeping));
            }
            [removal] => tracing::warn!(?removal, "the data plane keeps what was to be removed"),
            several => {
                for removal in several {
                    self.remove_again(*removal, failures, issued);
                }
            }
        }
    }

    /// Removes each object by a batch of its own. A policy by which a child sends stays: it has kept the child's traffic
    /// in until then.
    pub(super) fn remove_each(&mut self, removals: impl Iterator<Item = Removal>) {
        for removal in removals {
            if matches!(removal, Removal::Policy(policy) if self.ids.user_of(policy).is_some()) {
                continue;
            }
            let ticket = self.ids.ticket();
            self.remove_one(ticket, removal, 0, ticket);
        }
    }

    /// Removes inbound SAs after `delete_rekeyed_delay`.
    pub(super) fn remove_later(&mut self, now: Now, all: Vec<SaId>) {
        let at = now.mono + self.config.delete_rekeyed_delay;
        let issued = self.ids.ticket();
        self.ids.tickets.remove(&issued);
        let chore = |id| Chore { at, removal: Removal::Sa(id), failures: 0, issued };
        self.chores.extend(all.into_iter().map(chore));
        self.deadlines.insert((at, Deadline::Housekeeping));
    }

    /// As [`remove_each`](Self::remove_each), for a removal that has failed before. Does nothing if another owner
    /// has the name by now.
    fn remove_again(&mut self, removal: Removal, failures: u32, issued: Ticket) {
        if !self.ids.is_taken_anew(removal, issued) {
            let ticket = self.ids.ticket();
            self.remove_one(ticket, removal, failures, issued);
        }
    }

    fn remove_one(&mut self, ticket: Ticket, removal: Removal, failures: u32, issued: Ticket) {
        let batch = vec![removal.into()];
        self.ids.policies.note(&batch, ticket);
        let unattended = Unattended::Removals { removals: vec![removal], failures, issued };
        self.ids.unattended.insert(ticket, unattended);
        self.out.push_back(Output::DataPlane(ticket, batch));
    }

    fn on_change_failed(&mut self, now: Now, child: ChildSaId, error: &DataPlaneError) {
        if let Some(owner) = self.ids.esp.ike_of(child) {
            let reason = Failure::DataPlane(error.0.clone());
            self.with_sa(now, owner, |sa, _| {
                sa.when_established(|established, _| {
                    established.queue.give_up_child(child, reason)
                });
            });
        }
    }

    /// Repeats the removals that are due.
    pub(super) fn run_chores(&mut self, now: Now) {
        let due: Vec<_> = self.chores.extract_if(.., |chore| chore.at <= now.mono).collect();
        for Chore { removal, failures, issued, .. } in due {
            self.remove_again(removal, failures, issued);
        }
    }
}
