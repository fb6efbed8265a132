//! Memory for peers' messages.
//!
//! There are four pools. No pool takes octets from another:
//!
//! - responders' SAs before authentication: incomplete fragmented messages, and other kept octets
//! - the same SAs: short messages that wait for a verdict, a signature or a key exchange
//! - initiators' SAs before authentication: both
//! - authenticated peers: both
//!
//! Inside each pool, [`Shares`] decides which peer gives way: by origin before authentication, by identity after.

use crate::event::IkeSaId;
use crate::shares::{Origin, Shares};
use crate::table::HashSeed;

/// The pool from which an IKE SA takes octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Of a peer that has initiated and is not authenticated yet.
    Strangers,
    /// The same, for a short message that waits.
    Short,
    /// Of a peer with which this end has initiated and that is not authenticated yet.
    Own,
    /// Of an authenticated peer.
    Peers,
}

/// All pools.
const POOLS: [Pool; 4] = [Pool::Strangers, Pool::Short, Pool::Own, Pool::Peers];

/// Octets of a message up to which it is [`Pool::Short`]: IKE_AUTH with one or two certificates of the usual size.
/// Longer messages come in fragments, or need not be so long.
const SHORT: usize = 4096;

/// A pool has room for at least this number of messages.
const SHARES: usize = 4;

/// The SA that takes octets, and the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payer {
    pub(crate) pool: Pool,
    pub(crate) ike: IkeSaId,
    pub(crate) origin: Origin,
}

impl Payer {
    /// The same for a whole message of `octets` that is to wait.
    pub(crate) fn of_message(self, octets: usize) -> Self {
        let short = self.pool == Pool::Strangers && octets <= SHORT;
        Self { pool: if short { Pool::Short } else { self.pool }, ..self }
    }
}

/// The pools of an endpoint.
pub(crate) struct MemoryBudget {
    pools: [Shares<IkeSaId>; POOLS.len()],
    /// The SAs that had to give way. Their messages are dropped at the end of the input.
    given_way: Vec<(Pool, IkeSaId)>,
}

impl MemoryBudget {
    /// Pools of `limit` octets together.
    pub(crate) fn new(limit: usize, seed: HashSeed) -> Self {
        let pools = POOLS.map(|pool| match pool {
            Pool::Peers => Shares::by_peer(0, seed),
            Pool::Strangers | Pool::Short | Pool::Own => Shares::by_network(0, seed),
        });
        let mut budget = Self { pools, given_way: Vec::new() };
        budget.set_limit(limit);
        budget
    }

    /// Divides `limit` octets among the pools: three eighths for unauthenticated peers, one eighth for their short
    /// messages, a quarter each for SAs that this end begins and for authenticated peers.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        for pool in POOLS {
            let part = match pool {
                Pool::Strangers => limit / 8 * 3,
                Pool::Short => limit / 8,
                Pool::Own | Pool::Peers => limit / 4,
            };
            self.pools[pool as usize].set_limit(part);
        }
    }

    /// Octets in use.
    pub(crate) fn used(&self) -> usize {
        self.pools.iter().map(Shares::used).sum()
    }

    /// The octets that one message may take: no IKE SA takes a whole pool.
    pub(crate) fn share(&self, pool: Pool) -> usize {
        self.pools[pool as usize].limit() / SHARES
    }

    /// Takes `octets`. False if there are none for this SA. Others may have to give way, see
    /// [`next_given_way`](Self::next_given_way).
    pub(crate) fn take(&mut self, payer: Payer, octets: usize) -> bool {
        let Payer { pool, ike, origin } = payer;
        let Ok(gone) = self.pools[pool as usize].take(ike, origin, octets) else { return false };
        self.given_way.extend(gone.into_iter().map(|ike| (pool, ike)));
        true
    }

    /// True if there are `octets` for this SA. As with [`take`](Self::take), others may have to give way.
    pub(crate) fn has_room(&mut self, payer: Payer, octets: usize) -> bool {
        if self.pools[payer.pool as usize].has_left(octets) {
            return true;
        }
        let room = self.take(payer, octets);
        if room {
            self.give_back(payer.pool, payer.ike, octets);
        }
        room
    }

    /// Gives `octets` back to their pool.
    pub(crate) fn give_back(&mut self, pool: Pool, ike: IkeSaId, octets: usize) {
        self.pools[pool as usize].give_back(ike, octets);
    }

    /// An IKE SA whose octets of this pool belong to another SA by now. It has to drop its messages in them.
    pub(crate) fn next_given_way(&mut self) -> Option<(Pool, IkeSaId)> {
        self.given_way.pop()
    }
}

/// Octets of the kept messages of an IKE SA, by pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept([u32; POOLS.len()]);

impl Kept {
    /// Takes `octets` for `payer`. False if there is no room.
    pub(crate) fn take(&mut self, budget: &mut MemoryBudget, payer: Payer, octets: usize) -> bool {
        let room = budget.take(payer, octets);
        if room {
            self.add(payer.pool, octets);
        }
        room
    }

    fn add(&mut self, pool: Pool, octets: usize) {
        let kept = &mut self.0[pool as usize];
        *kept = kept.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
    }

    /// Octets of `pool`.
    pub(crate) fn of(self, pool: Pool) -> usize {
        self.0[pool as usize] as usize
    }

    /// The octets that exceed those in `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n].saturating_sub(before.0[n])))
    }

    /// Subtracts `part`, as far as it is there, and gives it back to `budget`.
    pub(crate) fn give_back(&mut self, part: Self, ike: IkeSaId, budget: &mut MemoryBudget) {
        for (pool, (kept, part)) in POOLS.into_iter().zip(self.0.iter_mut().zip(part.0)) {
            let part = part.min(*kept);
            if part == 0 {
                continue;
            }
            *kept -= part;
            budget.give_back(pool, ike, part as usize);
        }
    }
}

#[cfg(test)]
mod tests;
