//! Fair shares of a limited resource, by origin.
//!
//! Any stranger may request a share. So the shares are added up by origin: by address, and by the prefixes of
//! networks. When the limit is reached, the network that holds the most gives way, inside it the smaller network
//! that holds the most, inside that the address that holds the most, and of that address the oldest holder. A
//! newcomer counts with the amount that it requests. It is refused only if its own origin holds the most and it is
//! the oldest holder there.
//!
//! So no origin loses anything to an origin that holds more. The addresses of one network displace each other,
//! however many they are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::net::IpAddr;

use crate::table::{HashSeed, OwnTable, Table};

/// Where a holder comes from: an IPv4 address, an IPv6 /64, or one authenticated peer.
///
/// Any host on an IPv6 link may take any address of its /64, so that a /64 is what an IPv4 address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin(u64);

/// The upper half of an [`Origin`] of IPv4. As an IPv6 prefix it is multicast, so no datagram comes from it.
const IPV4: u64 = 0xffff_ffff_0000_0000;

impl Origin {
    /// The origin of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(IPV4 | u64::from(u32::from(address))),
            IpAddr::V6(address) => Self((u128::from(address) >> 64) as u64),
        }
    }

    /// The origin of a peer whose identity has this digest.
    pub(crate) fn of_peer(digest: u64) -> Self {
        Self(digest)
    }

    fn is_ipv4(self) -> bool {
        self.0 & IPV4 == IPV4
    }

    /// The networks of the origin, the widest first: IPv6 /48 and /56, IPv4 /24. The last one is the origin
    /// itself.
    fn networks(self) -> [u64; LEVELS] {
        let Self(own) = self;
        match self.is_ipv4() {
            true => [own & !0xff, own, own],
            false => [own & !0xffff, own & !0xff, own],
        }
    }
}

/// Levels of networks that are added up.
const LEVELS: usize = 3;

/// The largest limit: a newcomer's amount on top of it still fits [`Total`].
const LARGEST: usize = (u32::MAX / 2) as usize;

/// There is no room, and no other holder would have to give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// The shares of one limited resource. `I` names holders.
pub(crate) struct Shares<I> {
    /// Never exceeded.
    limit: usize,
    used: usize,
    /// True if origins are unrelated, so that there are no networks.
    flat: bool,
    /// Counts takings. A lower number is older.
    clock: u64,
    holders: OwnTable<I, Holder>,
    /// What each network of a level holds.
    totals: [Table<u64, Total>; LEVELS],
    /// Made when the limit is reached, and dropped when half of it is free again. Without pressure no holder has
    /// to give way, and no order is kept.
    order: Option<Box<Order<I>>>,
}

/// The order in which holders give way.
struct Order<I> {
    /// Holders of each origin, the oldest first.
    ages: BTreeMap<(Origin, u64), I>,
    /// What each network of a level holds, in order within the surrounding network. The last one gives way.
    ranks: [BTreeSet<Rank>; LEVELS],
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    origin: Origin,
    amount: usize,
    /// When it first took something.
    since: u64,
}

// In 32 bits, because there is one for each half-open SA, and more.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    amount: u32,
    /// When something was last taken. Of two networks that hold the same amount, the older gives way.
    last: u32,
}

impl Total {
    /// The rank of `network` among the networks in `around`.
    fn rank(self, around: u64, network: u64) -> Rank {
        (around, self.amount, Reverse(self.last), network)
    }
}

/// The surrounding network, the amount, the age, and the network's number.
type Rank = (u64, u32, Reverse<u32>, u64);

impl<I: Copy + Eq + Hash> Shares<I> {
    /// Shares of `limit`, with origins in networks.
    pub(crate) fn by_network(limit: usize, seed: HashSeed) -> Self {
        Self::new(limit, false, seed)
    }

    /// Shares of `limit` for peers, without networks.
    pub(crate) fn by_peer(limit: usize, seed: HashSeed) -> Self {
        Self::new(limit, true, seed)
    }

    fn new(limit: usize, flat: bool, seed: HashSeed) -> Self {
        Self {
            limit: limit.min(LARGEST),
            used: 0,
            flat,
            clock: 0,
            holders: OwnTable::default(),
            totals: std::array::from_fn(|_| Table::new(seed)),
            order: None,
        }
    }

    /// Changes the limit. Holders above it give way at the next request.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(LARGEST);
    }

    /// The limit.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The amount in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The origin of `id`, if it holds something.
    pub(crate) fn origin_of(&self, id: I) -> Option<Origin> {
        self.holders.get(&id).map(|holder| holder.origin)
    }

    /// What is held by `origin`.
    #[cfg(test)]
    pub(crate) fn used_by(&self, origin: Origin) -> usize {
        self.totals[LEVELS - 1].get(&origin.0).map_or(0, |total| total.amount as usize)
    }

    /// Holders of `origin`, the oldest first.
    #[cfg(test)]
    pub(crate) fn holders_of(&self, origin: Origin) -> impl Iterator<Item = I> + use<I> {
        let all = self.holders.iter().filter(|(_, holder)| holder.origin == origin);
        let mut all: Vec<_> = all.map(|(id, holder)| (holder.since, *id)).collect();
        all.sort_unstable_by_key(|(since, _)| *since);
        all.into_iter().map(|(_, id)| id)
    }

    /// True if `amount` is left without another holder giving way.
    pub(crate) fn has_left(&self, amount: usize) -> bool {
        self.used.saturating_add(amount) <= self.limit
    }

    /// Adds `amount` to `id`, whatever the limit is.
    pub(crate) fn add(&mut self, id: I, origin: Origin, amount: usize) {
        let holder = self.next_holder(id, origin);
        self.put_down(id, holder, amount);
    }

    /// The entry of `id`. It becomes the newest.
    fn next_holder(&mut self, id: I, origin: Origin) -> Holder {
        self.clock += 1;
        let fresh = Holder { origin, amount: 0, since: self.clock };
        self.holders.get(&id).copied().unwrap_or(fresh)
    }

    /// Adds `amount` to the entry of `id`.
    fn put_down(&mut self, id: I, holder: Holder, amount: usize) {
        let more = Holder { amount: holder.amount.saturating_add(amount), ..holder };
        // Wraps around after four thousand million. Entries that seem younger then may stay longer.
        self.set(id, more, Some([self.clock as u32; LEVELS]));
    }

    /// Takes `amount` for `id`. A holder keeps its first origin. Returns the holders that give way; their entries
    /// are removed.
    ///
    /// # Errors
    ///
    /// [`Full`] if `id` itself would have to give way. Then nothing has changed.
    pub(crate) fn take(&mut self, id: I, origin: Origin, amount: usize) -> Result<Vec<I>, Full> {
        let gone = self.displace(id, origin, amount)?;
        Ok(gone.into_iter().map(|(other, _)| other).collect())
    }

    /// The same. Says where each holder that has to give way comes from.
    pub(crate) fn displace(
        &mut self,
        id: I,
        origin: Origin,
        amount: usize,
    ) -> Result<Vec<(I, Origin)>, Full> {
        if amount == 0 {
            return Ok(Vec::new());
        }
        if amount > self.limit {
            return Err(Full);
        }
        let enough = self.has_left(amount);
        let holder = self.next_holder(id, origin);
        if enough {
            self.put_down(id, holder, amount);
            return Ok(Vec::new());
        }
        self.keep_order();
        let before = self.last_of(holder.origin);
        self.put_down(id, holder, amount);
        let mut gone: Vec<(I, Holder, [u32; LEVELS])> = Vec::new();
        while self.used > self.limit {
            match self.first_to_go().filter(|other| *other != id) {
                Some(other) => {
                    let Some(its) = self.holders.get(&other).copied() else { break };
                    gone.push((other, its, self.last_of(its.origin)));
                    self.set(other, Holder { amount: 0, ..its }, None);
                }
                None => {
                    // In the order that restores each network.
                    for (other, its, last) in gone.into_iter().rev() {
                        self.set(other, its, Some(last));
                    }
                    self.set(id, holder, Some(before));
                    return Err(Full);
                }
            }
        }
        Ok(gone.into_iter().map(|(other, its, _)| (other, its.origin)).collect())
    }

    /// Gives back the amount of `id`, or a part of it. An amount that is not held is ignored.
    pub(crate) fn give_back(&mut self, id: I, amount: usize) {
        if let Some(holder) = self.holders.get(&id).copied() {
            let amount = holder.amount.saturating_sub(amount);
            self.set(id, Holder { amount, ..holder }, None);
        }
        if self.used <= self.limit / 2 {
            self.order = None;
        }
    }

    /// Begins to keep holders in order.
    fn keep_order(&mut self) {
        if self.order.is_some() {
            return;
        }
        let mut order = Box::new(Order { ages: BTreeMap::new(), ranks: Default::default() });
        for (id, holder) in self.holders.iter() {
            order.ages.insert((holder.origin, holder.since), *id);
            let mut around = 0;
            for (level, network) in self.levels(holder.origin).into_iter().enumerate() {
                let Some(network) = network else { continue };
                if let Some(total) = self.totals[level].get(&network) {
                    order.ranks[level].insert(total.rank(around, network));
                }
                around = network;
            }
        }
        self.order = Some(order);
    }

    /// The holder that gives way next.
    fn first_to_go(&self) -> Option<I> {
        let order = self.order.as_ref()?;
        let mut around = 0;
        for ranks in &order.ranks {
            let all = (around, 0, Reverse(u32::MAX), 0)..=(around, u32::MAX, Reverse(0), u64::MAX);
            // It has no inner network of this level: see `levels`.
            let Some(most) = ranks.range(all).next_back() else { continue };
            around = most.3;
        }
        let all = (Origin(around), 0)..=(Origin(around), u64::MAX);
        order.ages.range(all).map(|(_, id)| *id).next()
    }

    /// Stores the entry of `id`, and when its networks last took something.
    fn set(&mut self, id: I, holder: Holder, last: Option<[u32; LEVELS]>) {
        let levels = self.levels(holder.origin);
        let before = match holder.amount {
            0 => self.holders.remove(&id),
            _ => self.holders.insert(id, holder),
        };
        let before = before.map_or(0, |holder| holder.amount);
        self.used = self.used - before + holder.amount;
        let mut order = self.order.as_deref_mut();
        if let Some(order) = &mut order {
            match holder.amount {
                0 => _ = order.ages.remove(&(holder.origin, holder.since)),
                _ => _ = order.ages.insert((holder.origin, holder.since), id),
            }
        }
        let mut around = 0;
        for (level, network) in levels.into_iter().enumerate() {
            let Some(network) = network else { continue };
            let total = self.totals[level].entry(network).or_default();
            let old = *total;
            total.amount = (old.amount as usize - before + holder.amount) as u32;
            total.last = last.map_or(old.last, |last| last[level]);
            let new = *total;
            if new.amount == 0 {
                self.totals[level].remove(&network);
            }
            if let Some(order) = &mut order {
                order.ranks[level].remove(&old.rank(around, network));
                if new.amount != 0 {
                    order.ranks[level].insert(new.rank(around, network));
                }
            }
            around = network;
        }
    }

    /// When the networks of `origin` last took something.
    fn last_of(&self, origin: Origin) -> [u32; LEVELS] {
        let networks = self.levels(origin);
        std::array::from_fn(|level| {
            let total = networks[level].and_then(|network| self.totals[level].get(&network));
            total.map_or(0, |total| total.last)
        })
    }

    /// The network of each level that is stored. A level that always equals the next one is not stored.
    fn levels(&self, origin: Origin) -> [Option<u64>; LEVELS] {
        let [wide, middle, own] = origin.networks();
        match (self.flat, origin.is_ipv4()) {
            (true, _) => [None, None, Some(own)],
            (false, true) => [Some(wide), None, Some(own)],
            (false, false) => [Some(wide), Some(middle), Some(own)],
        }
    }
}

#[cfg(test)]
mod tests;
