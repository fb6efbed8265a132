//! One pool: the current and earlier owners of its addresses. Memory grows with the number of leases, not with the
//! size of the range.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::IdType;

use super::Range;

/// What an address may be had by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// The identity had it before.
    Known,
    /// Nobody has had it.
    New,
    /// Another identity had it, and has gone.
    Reassigned,
}

/// The order in which they are tried, all pools by one before the next.
pub(super) const CLAIMS: [Claim; 3] = [Claim::Known, Claim::New, Claim::Reassigned];

/// Leases of peers that have gone which a pool remembers: those of the longest gone are given up first.
pub(super) const MOST_OFFLINE: usize = 65_536;

/// An address that somebody has, or had.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    /// `None` for a peer that has shown nothing: he does not get it again.
    pub(super) identity: Option<IdData>,
    /// Lines of IKE SAs that it is for: more than one while a peer reauthenticates.
    pub(super) holders: u32,
    /// Where its holder was.
    remote: Option<IpAddr>,
    /// The number of its release.
    released: u64,
}

impl Lease {
    /// True if `peer` is who has it, or had it.
    pub(super) fn is_of(&self, peer: &IdData) -> bool {
        self.identity.as_ref() == named(peer)
    }
}

/// `identity`, unless it is of an anonymous peer: what that one calls itself is nobody's.
fn named(identity: &IdData) -> Option<&IdData> {
    (identity.kind != IdType::NULL).then_some(identity)
}

/// The leases of a range.
#[derive(Debug, Clone)]
pub(super) struct Leases {
    range: Range,
    leases: BTreeMap<u128, Lease>,
    by_identity: HashMap<IdData, BTreeSet<u128>>,
    /// Those without a holder, the longest gone first.
    offline: BTreeSet<(u64, u128)>,
    /// Below `next`, and never leased or free again.
    free: BTreeSet<u128>,
    /// All above have no lease but those that somebody asked for.
    next: u128,
    releases: u64,
}

impl Leases {
    pub(super) fn new(range: Range) -> Self {
        Self {
            range,
            leases: BTreeMap::new(),
            by_identity: HashMap::new(),
            offline: BTreeSet::new(),
            free: BTreeSet::new(),
            next: 0,
            releases: 0,
        }
    }

    pub(super) fn range(&self) -> &Range {
        &self.range
    }

    /// An address for `identity` at `remote`, who would like `wanted` and has `taken` already. One that is
    /// `sole` will have no other IKE SA in a moment, and who wants his `own` has it by one that ends.
    pub(super) fn acquire(
        &mut self,
        claim: Claim,
        identity: &IdData,
        wanted: IpAddr,
        (remote, sole, own): (IpAddr, bool, bool),
        taken: &[IpAddr],
    ) -> Option<IpAddr> {
        if wanted.is_ipv4() != self.range.is_ipv4() {
            return None;
        }
        let wanted = self.range.offset(wanted);
        let identity = named(identity);
        let offset = match claim {
            Claim::Known => self.known(identity?, wanted, (remote, sole, own), taken)?,
            Claim::New => {
                wanted.filter(|at| !self.leases.contains_key(at)).or_else(|| self.unused())?
            }
            Claim::Reassigned => self.offline.first()?.1,
        };
        self.hold(offset, identity, remote);
        self.range.at(offset)
    }

    /// One that `identity` had and has not now, or has by an SA that this one replaces: it reauthenticates, or
    /// comes again before anybody noticed that it had gone.
    fn known(
        &self,
        identity: &IdData,
        wanted: Option<u128>,
        (remote, sole, own): (IpAddr, bool, bool),
        taken: &[IpAddr],
    ) -> Option<u128> {
        let had = self.by_identity.get(identity)?;
        let is_open = |at: &u128| self.range.at(*at).is_some_and(|a| !taken.contains(&a));
        let had: BTreeSet<u128> = had.iter().copied().filter(is_open).collect();
        let is_gone = |at: &&u128| self.leases.get(at).is_some_and(|lease| lease.holders == 0);
        if let Some(at) = wanted.filter(|at| had.contains(at))
            && let Some(lease) = self.leases.get(&at)
            && (lease.holders == 0 || lease.remote == Some(remote) || own)
        {
            return Some(at);
        }
        let online = had.iter().find(|at| sole && !is_gone(at));
        online.or_else(|| had.iter().find(is_gone)).copied()
    }

    /// One that nobody has had, or that is nobody's any more.
    fn unused(&mut self) -> Option<u128> {
        if let Some(at) = self.free.first() {
            return Some(*at);
        }
        while self.leases.contains_key(&self.next) {
            self.next += 1;
        }
        (self.next < self.range.size()).then_some(self.next)
    }

    fn hold(&mut self, at: u128, identity: Option<&IdData>, remote: IpAddr) {
        self.free.remove(&at);
        let same = self.leases.get(&at).is_some_and(|lease| lease.identity.as_ref() == identity);
        if !same {
            self.forget(at);
        }
        let new = || Lease { identity: identity.cloned(), holders: 0, remote: None, released: 0 };
        let lease = self.leases.entry(at).or_insert_with(new);
        self.offline.remove(&(lease.released, at));
        lease.holders += 1;
        lease.remote = Some(remote);
        if let Some(identity) = identity {
            self.by_identity.entry(identity.clone()).or_default().insert(at);
        }
    }

    fn forget(&mut self, at: u128) {
        let Some(lease) = self.leases.remove(&at) else { return };
        self.offline.remove(&(lease.released, at));
        if let Some(identity) = &lease.identity
            && let Some(had) = self.by_identity.get_mut(identity)
        {
            had.remove(&at);
            if had.is_empty() {
                self.by_identity.remove(identity);
            }
        }
    }

    /// `peer` was a holder of `address` and has gone. False if it held nothing there.
    pub(super) fn release(&mut self, address: IpAddr, peer: &IdData) -> bool {
        let Some(at) = self.range.offset(address) else { return false };
        let held = self.leases.get_mut(&at).filter(|lease| lease.holders > 0 && lease.is_of(peer));
        let Some(lease) = held else { return false };
        lease.holders -= 1;
        if lease.holders > 0 {
            return true;
        }
        self.releases += 1;
        lease.released = self.releases;
        lease.remote = None;
        if lease.identity.is_none() {
            self.give_up(at);
            return true;
        }
        self.offline.insert((self.releases, at));
        if self.offline.len() > MOST_OFFLINE
            && let Some((_, longest_gone)) = self.offline.first().copied()
        {
            self.give_up(longest_gone);
        }
        true
    }

    /// It is nobody's any more.
    fn give_up(&mut self, at: u128) {
        self.forget(at);
        if at < self.next {
            self.free.insert(at);
        }
    }

    /// Takes in what is known from before: `identity` had `address`.
    pub(super) fn remember(&mut self, address: IpAddr, identity: &IdData) {
        let Some(at) = self.range.offset(address) else { return };
        if !self.leases.contains_key(&at) && identity.kind != IdType::NULL {
            self.hold(at, Some(identity), address);
            self.release(address, identity);
        }
    }

    /// Goes on with the leases of another range, as far as they are in this one.
    pub(super) fn inherit(&mut self, former: &Self) {
        for (at, lease) in &former.leases {
            if let Some(address) = former.range.at(*at) {
                self.take_in(address, lease);
            }
        }
    }

    /// Goes on with a lease of `address`, if that is in this range.
    pub(super) fn take_in(&mut self, address: IpAddr, lease: &Lease) {
        match (self.range.offset(address), &lease.identity) {
            (Some(_), Some(identity)) if lease.holders == 0 => self.remember(address, identity),
            (Some(at), identity) => {
                for _ in 0..lease.holders {
                    self.hold(at, identity.as_ref(), lease.remote.unwrap_or(address));
                }
            }
            (None, _) => {}
        }
    }

    /// The leases that somebody holds now, with their addresses.
    pub(super) fn held(&self) -> impl Iterator<Item = (IpAddr, Lease)> + '_ {
        let held = self.leases.iter().filter(|(_, lease)| lease.holders > 0);
        held.filter_map(|(at, lease)| Some((self.range.at(*at)?, lease.clone())))
    }

    pub(super) fn online(&self) -> usize {
        self.leases.len() - self.offline.len()
    }

    pub(super) fn offline(&self) -> usize {
        self.offline.len()
    }

    /// Every lease, by address.
    pub(super) fn views(&self) -> impl Iterator<Item = LeaseView> + '_ {
        self.leases.iter().filter_map(|(at, lease)| {
            Some(LeaseView {
                address: self.range.at(*at)?,
                identity: lease.identity.clone(),
                online: lease.holders > 0,
            })
        })
    }
}

/// One lease of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// The address.
    pub address: IpAddr,
    /// Who has it, or had it; `None` for a peer with NULL authentication.
    pub identity: Option<IdData>,
    /// True if he has it now.
    pub online: bool,
}
