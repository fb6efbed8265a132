//! Numbers of SAs by kind, counted a few at a time, so that no caller waits for a count of all.

use std::collections::{BTreeMap, BTreeSet};

use ike_proto::{ChildState, Endpoint, IkeSaId, IkeState};

/// SAs that a shard looks at in one go: some 50 µs.
pub(crate) const AT_A_TIME: usize = 256;

/// The state of a shard.
#[derive(Debug, Clone, Default)]
pub struct ShardState {
    /// Its IKE SAs and attempts; empty in the result of [`Handle::census`](crate::Handle::census).
    pub ids: Vec<IkeSaId>,
    /// The number of half-open IKE SAs of which this end is the responder.
    pub half_open: usize,
    /// Memory for incomplete fragmented messages, in octets.
    pub reassembly: usize,
}

impl ShardState {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let (half_open, reassembly) = (endpoint.half_open(), endpoint.reassembly_memory());
        Self { ids: endpoint.ids(), half_open, reassembly }
    }
}

/// Numbers of SAs of one connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// IKE SAs: connecting, established, rekeyed, deleting.
    pub ike: [u32; 4],
    /// Child SAs: installing, installed, rekeying, rekeyed, deleting.
    pub children: [u32; 5],
    /// The names of the children that carry traffic.
    pub up: BTreeSet<String>,
}

/// Numbers of SAs, by the name of the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<String, Counts>);

impl Tally {
    /// Counts these SAs of `endpoint`; those that are gone do not count.
    pub(crate) fn of(endpoint: &Endpoint, ids: &[IkeSaId]) -> Self {
        let mut tally = Self::default();
        for brief in ids.iter().filter_map(|id| endpoint.brief(*id)) {
            if !tally.0.contains_key(brief.connection) {
                tally.0.insert(brief.connection.to_owned(), Counts::default());
            }
            let Some(counts) = tally.0.get_mut(brief.connection) else { continue };
            counts.ike[ike_index(brief.state)] += 1;
            for child in brief.children() {
                counts.children[child_index(child.state)] += 1;
                let carries = matches!(child.state, ChildState::Installed | ChildState::Rekeying);
                if carries && !counts.up.contains(child.name) {
                    counts.up.insert(child.name.to_owned());
                }
            }
        }
        tally
    }

    /// The number of established IKE SAs, and the number of Child SAs in use.
    pub fn established(&self) -> (u64, u64) {
        let all = self.0.values();
        let both = all.map(|c| (u64::from(c.ike[1]), u64::from(c.children[1] + c.children[2])));
        both.fold((0, 0), |(ike, children), (more, others)| (ike + more, children + others))
    }

    /// Adds what another one has counted.
    pub(crate) fn add(&mut self, other: Self) {
        for (connection, theirs) in other.0 {
            let counts = self.0.entry(connection).or_default();
            for (sum, more) in counts.ike.iter_mut().zip(theirs.ike) {
                *sum += more;
            }
            for (sum, more) in counts.children.iter_mut().zip(theirs.children) {
                *sum += more;
            }
            counts.up.extend(theirs.up);
        }
    }
}

/// Labels of [`Counts::ike`], in its order.
pub const IKE_STATES: [&str; 4] = ["connecting", "established", "rekeyed", "deleting"];
/// Labels of [`Counts::children`], in its order.
pub const CHILD_STATES: [&str; 5] = ["installing", "installed", "rekeying", "rekeyed", "deleting"];

fn ike_index(state: IkeState) -> usize {
    match state {
        IkeState::Connecting => 0,
        IkeState::Established => 1,
        IkeState::Rekeyed => 2,
        IkeState::Deleting => 3,
    }
}

fn child_index(state: ChildState) -> usize {
    match state {
        ChildState::Installing => 0,
        ChildState::Installed => 1,
        ChildState::Rekeying => 2,
        ChildState::Rekeyed => 3,
        ChildState::Deleting => 4,
    }
}
