//! Memory for peers' messages.
//!
//! There are four pools. No pool takes octets from another:
//!
//! - peers that began and are not authenticated: incomplete fragmented messages, and other octets that are kept
//! - the same peers: short messages that wait for a verdict, a signature or a key exchange
//! - peers that this end has begun with: both
//! - authenticated peers: both
//!
//! Inside each pool, [`Shares`] decides which peer gives way: by origin before authentication, by identity after.

use crate::event::IkeSaId;
use crate::shares::{Origin, Shares};

/// Which octets an IKE SA takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Of a peer that began, and is not authenticated yet.
    Strangers,
    /// The same, of a short message that waits for something.
    Short,
    /// Of a peer that this end began with, and that is not authenticated yet.
    Own,
    /// Of an authenticated peer.
    Peers,
}

/// All of them.
const POOLS: [Pool; 4] = [Pool::Strangers, Pool::Short, Pool::Own, Pool::Peers];

/// Octets of a message up to which it is [`Pool::Short`]: IKE_AUTH with a certificate or two of the usual
/// size. What is longer comes in fragments, or has no business to be so long.
const SHORT: usize = 4096;

/// Messages there is room for at the least in a pool.
const SHARES: usize = 4;

/// Who takes octets, from which pool.
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
    /// Who had to give way. What they keep is gone at the end of the input.
    given_way: Vec<(Pool, IkeSaId)>,
}

impl MemoryBudget {
    /// Pools of `limit` octets together.
    pub(crate) fn new(limit: usize) -> Self {
        let pools = POOLS.map(|pool| match pool {
            Pool::Peers => Shares::by_peer(0),
            Pool::Strangers | Pool::Short | Pool::Own => Shares::by_network(0),
        });
        let mut budget = Self { pools, given_way: Vec::new() };
        budget.set_limit(limit);
        budget
    }

    /// Divides `limit` octets among the pools: three eighths are for strangers, one for their short
    /// messages, a quarter each for what this end begins and for peers.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        for pool in POOLS {
            let part = match pool {
                Pool::Strangers => limit / 8 * 3,
                Pool::Short => limit / 8,
                Pool::Own | Pool::Peers => limit / 4,
            };
            self.pool(pool).set_limit(part);
        }
    }

    /// Octets held now.
    pub(crate) fn used(&self) -> usize {
        self.pools.iter().map(Shares::used).sum()
    }

    /// What one message may hold: no IKE SA takes all there is.
    pub(crate) fn share(&self, pool: Pool) -> usize {
        self.pools[pool as usize].limit() / SHARES
    }

    /// Takes `octets`; false if there are none for this one. Others may have to give way for it, see
    /// [`next_given_way`](Self::next_given_way).
    pub(crate) fn take(&mut self, payer: Payer, octets: usize) -> bool {
        let Payer { pool, ike, origin } = payer;
        let Ok(gone) = self.pool(pool).take(ike, origin, octets) else { return false };
        self.given_way.extend(gone.into_iter().map(|ike| (pool, ike)));
        true
    }

    /// True if there are `octets` for this one. As with [`take`](Self::take), others may have to give way for it.
    pub(crate) fn has_room(&mut self, payer: Payer, octets: usize) -> bool {
        if self.pool(payer.pool).has_left(octets) {
            return true;
        }
        let room = self.take(payer, octets);
        if room {
            self.give_back(payer.pool, payer.ike, octets);
        }
        room
    }

    /// Gives `octets` back to the pool they are from.
    pub(crate) fn give_back(&mut self, pool: Pool, ike: IkeSaId, octets: usize) {
        self.pool(pool).give_back(ike, octets);
    }

    /// An IKE SA whose octets of this pool belong to somebody else by now: it has to drop what they were for.
    pub(crate) fn next_given_way(&mut self) -> Option<(Pool, IkeSaId)> {
        self.given_way.pop()
    }

    fn pool(&mut self, pool: Pool) -> &mut Shares<IkeSaId> {
        &mut self.pools[pool as usize]
    }
}

/// Octets of messages that an IKE SA keeps until it knows more, by pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept([u32; POOLS.len()]);

impl Kept {
    /// Adds `octets` of `pool`.
    pub(crate) fn add(&mut self, pool: Pool, octets: usize) {
        let kept = &mut self.0[pool as usize];
        *kept = kept.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
    }

    /// Octets of `pool`.
    pub(crate) fn of(self, pool: Pool) -> usize {
        self.0[pool as usize] as usize
    }

    /// What is more than in `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n].saturating_sub(before.0[n])))
    }

    /// Takes away what there is of `part`, and gives it back to `budget`.
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
