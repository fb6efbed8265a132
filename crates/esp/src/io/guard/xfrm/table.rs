//! The table, and what is to be in it.

use std::collections::HashMap;
use std::io;

use tracing::{debug, warn};

use super::super::batch::Owner;
use super::super::transactions::Transactions;
use super::chains::{self, Abilities, STAGE, TABLE, XfrmGuardOptions};
use super::content::{Change, Content};
use super::shape::{self, Changes, Leaving, Verdict};

/// How often the rules are read while other programs go on changing theirs.
const READINGS: usize = 3;

/// The table, as far as it is known.
pub(super) struct Table {
    transactions: Transactions,
    options: XfrmGuardOptions,
    abilities: Abilities,
    /// The policies in the table.
    policies: HashMap<Leaving, Verdict>,
    /// Changes that are not in the table yet.
    pending: Changes,
    content: Content,
    /// False if the kernel may have something else.
    in_step: bool,
    /// [`STAGE`] is in force, and the table may not be complete.
    staged: bool,
    /// The kernel's last transaction when the table was as it is to be.
    generation: Option<u32>,
    standing: Standing,
}

/// What is in force before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The table of an earlier run.
    Earlier,
    /// What this run wanted last: a change is in force or not.
    Ours,
    /// Another program has changed the table, or it is not there.
    Unknown,
}

impl Standing {
    /// What a change that fails leaves, for the log.
    pub(super) fn after_failure(self) -> &'static str {
        match self {
            Self::Earlier => {
                "table ike-xfrm of an earlier run not replaced: its rules stay in force, and what this run protects is not behind \
                 the second line yet"
            }
            Self::Ours => {
                "table ike-xfrm not changed: its rules from before stay in force, and what has changed since then is not, or not \
                 wholly, in the second line"
            }
            Self::Unknown => {
                "table ike-xfrm not put back: there may be no second line behind the XFRM policies"
            }
        }
    }
}

impl Table {
    /// # Errors
    /// The kernel does not tell what it can do.
    pub(super) fn new(
        mut transactions: Transactions,
        options: XfrmGuardOptions,
    ) -> io::Result<Self> {
        let abilities = Abilities::probe(&mut transactions, &options)?;
        Ok(Self {
            transactions,
            options,
            abilities,
            policies: HashMap::new(),
            pending: HashMap::new(),
            content: Content::new(TABLE),
            in_step: false,
            staged: false,
            generation: None,
            standing: Standing::Unknown,
        })
    }

    /// True if an earlier run has left the table. It stays as it is.
    pub(super) fn is_left(&mut self) -> io::Result<bool> {
        let left = chains::is_there(&mut self.transactions)?;
        self.staged = left && chains::is_staged(&mut self.transactions)?;
        if left {
            self.standing = Standing::Earlier;
        }
        Ok(left)
    }

    /// Takes changes down.
    pub(super) fn want(&mut self, changes: Changes) {
        self.pending.extend(changes);
    }

    /// Puts the changes in force. After an error the whole table is made again.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let mut changes: Vec<Change> = Vec::with_capacity(self.pending.len());
        for (policy, after) in self.pending.drain() {
            let before = match after {
                Some(verdict) => self.policies.insert(policy, verdict),
                None => self.policies.remove(&policy),
            };
            if before != after {
                changes.push((policy, before, after));
                if let Some(what) = after.and_then(|verdict| shape::unguarded(&policy, verdict)) {
                    warn!(
                        "nf_tables: second line: {what}, because nf_tables does not know the ports of this protocol; give the \
                         child selectors without ports, or with TCP, UDP, SCTP, DCCP or ICMP"
                    );
                }
            }
        }
        let done = match self.in_step {
            true if changes.is_empty() => Ok(()),
            true => {
                changes.sort_by_key(turn);
                self.content.change(&mut self.transactions, &changes)
            }
            false => self.make_again(),
        };
        self.in_step = done.is_ok();
        if self.in_step {
            self.standing = Standing::Ours;
        }
        done
    }

    /// What is in force if a change has failed.
    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// True if other programs can change the table.
    pub(super) fn is_watched(&self) -> bool {
        self.abilities.owner == Owner::None
    }

    /// True if the table is not as this run has made it. What it looks at again is a transaction of another program. A set
    /// takes a question, so that the values are looked at only if `values` is set.
    pub(super) fn is_changed(&mut self, values: bool) -> io::Result<bool> {
        let mut generation = self.transactions.generation()?;
        if self.generation == Some(generation) {
            return Ok(false);
        }
        for _ in 0..READINGS {
            let Self { content, transactions, .. } = self;
            let same = content
                .is_in(transactions)
                .and_then(|same| Ok(same && (!values || content.has_values(transactions)?)));
            let same = match same {
                Err(error) if error.raw_os_error() == Some(ENOENT) => false,
                same => same?,
            };
            let now = self.transactions.generation()?;
            if same {
                if values {
                    self.generation = Some(generation);
                }
                return Ok(false);
            }
            if now == generation {
                return Ok(true);
            }
            generation = now;
        }
        Ok(true)
    }

    /// The whole table is to be made again.
    pub(super) fn distrust(&mut self) {
        self.in_step = false;
        self.standing = Standing::Unknown;
    }

    /// Removes the table.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        chains::remove(&mut self.transactions)
    }

    /// Makes the table again. In one transaction there is no moment without it. If it takes several ones, a second table with
    /// the same rules is in force meanwhile: a packet passes if both let it pass.
    fn make_again(&mut self) -> io::Result<()> {
        let Self { transactions, options, abilities, policies, content, staged, .. } = self;
        let with = (&*options, *abilities);
        let mut all: Vec<Change> =
            policies.iter().map(|(policy, verdict)| (*policy, None, Some(*verdict))).collect();
        all.sort_by_key(turn);
        if !*staged && !Content::fits(transactions, with, &all) {
            Content::new(STAGE).make(transactions, with, &all).inspect_err(|_| {
                // It is not in force. The next try removes it as well.
                if let Err(error) = remove_stage(transactions) {
                    debug!(%error, "nf_tables: table not removed");
                }
            })?;
            *staged = true;
        }
        content.make(transactions, with, &all)?;
        // One that is not in force may be there: an earlier run has ended while making it.
        if transactions.has_table(STAGE)? {
            remove_stage(transactions)?;
        }
        *staged = false;
        Ok(())
    }
}

fn remove_stage(transactions: &mut Transactions) -> io::Result<()> {
    let mut batch = transactions.begin();
    chains::write_removal(&mut batch, STAGE);
    transactions.commit(batch).map(drop)
}

/// There is no such table, or no such set.
const ENOENT: i32 = 2;

/// The order of changes that take several transactions: exemptions come before what they exempt from and go after it, and what
/// drops comes before what it replaces goes.
fn turn((_, before, after): &Change) -> u8 {
    match (before, after) {
        (_, Some(Verdict { passes: true, .. })) => 0,
        (_, Some(_)) => 1,
        (Some(Verdict { passes: false, .. }), None) => 2,
        (_, None) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that the kernel refuses takes nothing away.
    ///
    /// Fault: in `Standing::after_failure`, say of all what is said of `Unknown`.
    #[test]
    fn a_change_that_fails_is_not_told_as_the_end_of_the_second_line() {
        for standing in [Standing::Earlier, Standing::Ours] {
            let line = standing.after_failure();
            assert!(line.contains("stay in force") && !line.contains("no second line"), "{line}");
        }
        assert!(Standing::Unknown.after_failure().contains("may be no second line"));
    }

    /// Fault: in `turn`, give two of these the same number.
    #[test]
    fn exemptions_are_there_before_what_they_exempt_from_and_after_that() {
        let all = |length| ("0.0.0.0".parse().unwrap(), length);
        let policy = Leaving {
            src: all(0),
            dst: all(8),
            protocol: 0,
            src_port: (0, 0),
            dst_port: (0, 0),
            interface: 0,
            mark: (0, 0),
        };
        let is = |passes| Some(Verdict { priority: 1, passes, by_device: false });
        let order = [
            (policy, None, is(true)),
            (policy, None, is(false)),
            (policy, is(false), None),
            (policy, is(true), None),
        ];
        let mut sorted = order;
        sorted.reverse();
        sorted.sort_by_key(turn);
        assert_eq!(sorted, order);
    }
}
