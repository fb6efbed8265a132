//! What one look at the kernel's policies has put back, for the log.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::warn;

use super::others;

/// How many children a line names.
const NAMED: usize = 4;

/// Policies that this process has put back.
static PUT_BACK: AtomicU64 = AtomicU64::new(0);

/// How many policies of this process other programs have deleted or changed, and it has put back.
pub fn put_back() -> u64 {
    PUT_BACK.load(Ordering::Relaxed)
}

/// The outcome of one look: names of children.
#[derive(Debug, Default)]
pub(super) struct Mended {
    /// Whose policies are put back.
    pub(super) back: BTreeSet<String>,
    /// How many policies that are.
    pub(super) count: u64,
    /// Whose policies others delete all the time, since this look.
    pub(super) strained: BTreeSet<String>,
    /// In the place of whose policies, and of which, another program has put its own.
    pub(super) foreign: BTreeSet<String>,
    /// When to look again.
    pub(super) due: Option<Instant>,
}

impl Mended {
    /// There is to be a look at `due`.
    pub(super) fn again(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
    }

    /// Counts, and writes the lines.
    pub(super) fn tell(&self) {
        PUT_BACK.fetch_add(self.count, Ordering::Relaxed);
        let Self { back, count, strained, foreign, .. } = self;
        if !back.is_empty() {
            warn!(
                children = names(back),
                count, "XFRM policies: another program removed these; they are put back"
            );
        }
        if !strained.is_empty() {
            warn!(
                children = names(strained),
                "XFRM policies: another program removes these all the time; they are put back every 10 s only. Find that \
                 program with `ip xfrm monitor policy`"
            );
        }
        if !foreign.is_empty() {
            warn!(
                children = names(foreign),
                charon = others::charon(),
                "XFRM policies: another program has put its own in the place of these, and keeps them; delete its policies, \
                 and these are installed again"
            );
        }
    }
}

fn names(children: &BTreeSet<String>) -> String {
    let mut named: Vec<_> = children.iter().take(NAMED).cloned().collect();
    if children.len() > NAMED {
        named.push(format!("{} more", children.len() - NAMED));
    }
    named.join(", ")
}
