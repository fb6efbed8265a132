//! What one look at the host has put back, for the log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ipsec_types::dataplane::patience::{Patience, Verdict};
use tracing::warn;

use super::picture::Place;

/// How many things a line names.
const NAMED: usize = 4;

/// What this process has put back.
static PUT_BACK: AtomicU64 = AtomicU64::new(0);

/// How many rules, routes and addresses of this process other programs have taken away, and it has put back. The rules
/// of one address family count as one.
pub fn put_back() -> u64 {
    PUT_BACK.load(Ordering::Relaxed)
}

pub(super) fn count_put_back(things: u64) {
    PUT_BACK.fetch_add(things, Ordering::Relaxed);
}

/// Something of this program on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Thing {
    /// The rules of IPv4, or of IPv6.
    Rules {
        ipv4: bool,
    },
    Route(Place),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules { ipv4: true } => f.write_str("the routing rules of IPv4"),
            Self::Rules { ipv4: false } => f.write_str("the routing rules of IPv6"),
            Self::Route((prefix, _)) => write!(f, "the route to {}/{}", prefix.address, prefix.len),
        }
    }
}

/// The outcome of one look.
#[derive(Debug, Default)]
pub(super) struct Mended {
    /// What was taken away, and whether it is put back now.
    lost: BTreeMap<Thing, bool>,
    /// What other programs take away all the time, since this look.
    strained: Vec<Thing>,
    /// When to look again.
    pub(super) due: Option<Instant>,
}

impl Mended {
    /// True if `thing`, which another program has taken away, is put back now.
    pub(super) fn may_put_back(
        &mut self,
        patience: &mut Patience<Thing>,
        thing: Thing,
        now: Instant,
    ) -> bool {
        if let Some(&may) = self.lost.get(&thing) {
            return may;
        }
        let may = match patience.ask(thing, now) {
            Verdict::Now => true,
            Verdict::Later { due, news } => {
                self.again(Some(due));
                self.strained.extend(news.then_some(thing));
                false
            }
        };
        self.lost.insert(thing, may);
        may
    }

    /// There is to be a look at `due`.
    pub(super) fn again(&mut self, due: Option<Instant>) {
        self.due = [self.due, due].into_iter().flatten().min();
    }

    /// Counts, and writes the lines.
    pub(super) fn tell(&self, table: u32) {
        let back: Vec<&Thing> =
            self.lost.iter().filter(|(_, may)| **may).map(|(thing, _)| thing).collect();
        if !back.is_empty() {
            count_put_back(back.len() as u64);
            warn!(table, "{}: another program took this away; it is put back", names(&back));
        }
        if !self.strained.is_empty() {
            let strained: Vec<_> = self.strained.iter().collect();
            warn!(
                table,
                "{}: another program takes this away all the time; it is put back every 10 s only. Find that program \
                 with `ip monitor rule route`",
                names(&strained)
            );
        }
    }
}

fn names(things: &[&Thing]) -> String {
    let mut named: Vec<_> = things.iter().take(NAMED).map(ToString::to_string).collect();
    if things.len() > NAMED {
        named.push(format!("{} more", things.len() - NAMED));
    }
    named.join(", ")
}
