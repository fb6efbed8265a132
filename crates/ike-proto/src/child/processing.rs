//! The numbers that distinguish one child's packets from another's: marks and interface ids, `%unique` ones
//! included.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::config::{ChildConfig, ConnectionConfig, InterfaceId, Scope, Shard, UniqueNumbers};
use crate::dataplane::Processing;

/// Numbers below the shard's octet.
const LOCAL: u32 = 0x00ff_ffff;

/// Chooses numbers, and remembers those of traps.
#[derive(Default)]
pub(crate) struct Numbers {
    last: u32,
    marks: Taken,
    if_ids: Taken,
    /// The numbers of the trap of a connection's child, and the rule by which they were chosen.
    traps: BTreeMap<(String, String), (UniqueNumbers, Chosen)>,
    /// The interface ids of the traps of a connection, and the rule by which they were chosen.
    connections: BTreeMap<String, ([InterfaceId; 2], IfIds)>,
}

/// Numbers that may still be in use, by the mask for which they were chosen.
#[derive(Default)]
struct Taken {
    by_mask: BTreeMap<u32, BTreeMap<u32, Weak<()>>>,
    /// At this size, numbers that no child has any more are dropped.
    limit: usize,
}

/// Keeps numbers reserved while it exists.
pub(crate) type Lease = Arc<()>;

/// The origin of the request for a child. It decides about the numbers of the child, and whether the child may give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The peer.
    Peer,
    /// This end: the child gets the numbers of its trap, if no other child has them.
    Us,
    /// This end, to replace a child that may have the numbers of the trap. The new child gets them too, because its
    /// traffic would otherwise continue to meet the trap.
    Renewal,
    /// The same, for a packet that met the trap.
    Packet,
}

/// The interface ids of an IKE SA, for children without their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct IfIds {
    /// In and out.
    pub(crate) values: [u32; 2],
    lease: Lease,
}

/// The chosen numbers. Only those that are `%unique` in the configuration are set.
#[derive(Debug, Clone)]
struct Chosen {
    /// Of marks, in and out.
    marks: [Option<u32>; 2],
    /// Interface ids, in and out.
    if_ids: [Option<u32>; 2],
    lease: Lease,
}

/// All numbers that fit the mask of a mark are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoneLeft;

impl Asker {
    fn has_those_of_trap(self, lease: &Lease) -> bool {
        match self {
            Self::Peer => false,
            Self::Us => Arc::strong_count(lease) == 1,
            Self::Renewal | Self::Packet => true,
        }
    }
}

impl Numbers {
    /// The interface ids of a new IKE SA.
    pub(crate) fn of_ike(
        &mut self,
        shard: Shard,
        connection: &ConnectionConfig,
        asker: Asker,
    ) -> IfIds {
        let scopes = [connection.if_id_in, connection.if_id_out];
        match self.connections.get(&connection.name) {
            Some((by, ids)) if *by == scopes && asker.has_those_of_trap(&ids.lease) => ids.clone(),
            _ => self.ids(shard, scopes),
        }
    }

    /// How packets of a new child are treated, and the reservation of its numbers. `inherited` are the interface
    /// ids of its IKE SA.
    pub(crate) fn of_child(
        &mut self,
        shard: Shard,
        connection: &ConnectionConfig,
        config: &ChildConfig,
        inherited: [u32; 2],
        asker: Asker,
    ) -> Result<(Arc<Processing>, Lease), NoneLeft> {
        let traps = Some(&self.traps).filter(|traps| !traps.is_empty());
        let name = || (connection.name.clone(), config.name.clone());
        let (chosen, inherited) = match traps.and_then(|traps| traps.get(&name())) {
            Some((unique, chosen))
                if *unique == config.unique && asker.has_those_of_trap(&chosen.lease) =>
            {
                let trapped = self.connections.get(&connection.name);
                (chosen.clone(), trapped.map_or(inherited, |(_, ids)| ids.values))
            }
            _ => (self.choose(shard, config)?, inherited),
        };
        Ok((chosen.applied(config, inherited), chosen.lease))
    }

    /// How packets that meet the trap of a child are treated.
    pub(crate) fn of_trap(
        &mut self,
        shard: Shard,
        connection: &ConnectionConfig,
        config: &ChildConfig,
    ) -> Result<Arc<Processing>, NoneLeft> {
        let name = (connection.name.clone(), config.name.clone());
        let chosen = match self.traps.get(&name) {
            Some((unique, chosen)) if *unique == config.unique => chosen.clone(),
            _ => self.choose(shard, config)?,
        };
        let scopes = [connection.if_id_in, connection.if_id_out];
        let ids = match self.connections.get(&connection.name) {
            Some((by, ids)) if *by == scopes => ids.values,
            _ => {
                let ids = self.ids(shard, scopes);
                let values = ids.values;
                self.connections.insert(connection.name.clone(), (scopes, ids));
                values
            }
        };
        let mut processing = chosen.applied(config, ids);
        self.traps.insert(name, (config.unique, chosen));
        if processing.per_cpu {
            // The first SA is for all CPUs (RFC 9611 §4).
            Arc::make_mut(&mut processing).per_cpu = false;
        }
        Ok(processing)
    }

    /// How packets that meet the trap of a child are treated, if this shard has the trap.
    pub(crate) fn trapped(
        &self,
        connection: &ConnectionConfig,
        config: &ChildConfig,
    ) -> Option<Arc<Processing>> {
        if self.traps.is_empty() {
            return None;
        }
        let (_, chosen) = self.traps.get(&(connection.name.clone(), config.name.clone()))?;
        let ids = self.connections.get(&connection.name);
        Some(chosen.applied(config, ids.map_or([0; 2], |(_, ids)| ids.values)))
    }

    /// Drops the numbers of a trap that is gone.
    pub(crate) fn forget_trap(&mut self, connection: &str, child: &str) {
        self.traps.remove(&(connection.to_owned(), child.to_owned()));
        if !self.traps.keys().any(|(other, _)| other == connection) {
            self.connections.remove(connection);
        }
    }

    fn ids(&mut self, shard: Shard, ids: [InterfaceId; 2]) -> IfIds {
        let lease = Lease::default();
        let scopes = ids.map(InterfaceId::scope);
        let taken = &mut self.if_ids;
        // There are more numbers than memory for SAs, so one is always free.
        let chosen = taken.pair(&mut self.last, shard, scopes, [u32::MAX; 2], &lease);
        let mut chosen = chosen.unwrap_or_default().into_iter();
        let values = ids.map(|id| match (id, chosen.next().flatten()) {
            (_, Some(chosen)) => chosen,
            (InterfaceId::Fixed(id), None) => id,
            (InterfaceId::Unique(_), None) => 0,
        });
        IfIds { values, lease }
    }

    fn choose(&mut self, shard: Shard, config: &ChildConfig) -> Result<Chosen, NoneLeft> {
        let UniqueNumbers { mark_in, mark_out, if_id_in, if_id_out, .. } = config.unique;
        let (last, lease) = (&mut self.last, Lease::default());
        let masks = [config.processing.mark_in.mask, config.processing.mark_out.mask];
        let marks = self.marks.pair(last, shard, [mark_in, mark_out], masks, &lease)?;
        let all = [u32::MAX; 2];
        let if_ids = self.if_ids.pair(last, shard, [if_id_in, if_id_out], all, &lease)?;
        Ok(Chosen { marks, if_ids, lease })
    }
}

impl Taken {
    /// One number for each direction with a scope, in and out, without bits outside its mask: the kernel compares
    /// the masked bits of a packet's mark with the whole value.
    fn pair(
        &mut self,
        last: &mut u32,
        shard: Shard,
        scopes: [Option<Scope>; 2],
        masks: [u32; 2],
        lease: &Lease,
    ) -> Result<[Option<u32>; 2], NoneLeft> {
        let ([one, other], [mask_in, mask_out]) = (scopes, masks);
        if one.is_some() && one == other && one == Some(Scope::Pair) {
            let both = self.next(last, shard, mask_in & mask_out, lease)?;
            return Ok([Some(both); 2]);
        }
        let mut next = |mask| self.next(last, shard, mask, lease);
        let one = one.map(|_| next(mask_in)).transpose()?;
        Ok([one, other.map(|_| next(mask_out)).transpose()?])
    }

    /// A number of bits in `mask` that no child has, nor another shard if the mask covers the shard's octet. Never
    /// 0, which means none.
    fn next(
        &mut self,
        last: &mut u32,
        shard: Shard,
        mask: u32,
        lease: &Lease,
    ) -> Result<u32, NoneLeft> {
        let own = if shard.count > 1 { mask & LOCAL } else { mask };
        let octet = if shard.count > 1 { u32::from(shard.index) << 24 & mask } else { 0 };
        for _ in 0..1_u32 << own.count_ones().min(24) {
            *last = (*last % LOCAL) + 1;
            let value = spread(*last, own) | octet;
            if value != 0 && self.is_free(value, mask) {
                self.prune();
                let of_mask = self.by_mask.entry(mask).or_default();
                of_mask.insert(value, Arc::downgrade(lease));
                return Ok(value);
            }
        }
        Err(NoneLeft)
    }

    /// True if no packet's mark can match both this number and one in use.
    fn is_free(&self, value: u32, mask: u32) -> bool {
        self.by_mask.iter().all(|(theirs, values)| {
            let common = mask & theirs;
            if common == *theirs {
                return values.get(&(value & common)).is_none_or(|held| held.strong_count() == 0);
            }
            let clashes = |other: &u32| (other ^ value) & common == 0;
            !values.iter().any(|(other, held)| clashes(other) && held.strong_count() > 0)
        })
    }

    fn prune(&mut self) {
        let count = |by_mask: &BTreeMap<u32, BTreeMap<u32, Weak<()>>>| {
            by_mask.values().map(BTreeMap::len).sum::<usize>()
        };
        if count(&self.by_mask) >= self.limit {
            for values in self.by_mask.values_mut() {
                values.retain(|_, held| held.strong_count() > 0);
            }
            self.by_mask.retain(|_, values| !values.is_empty());
            self.limit = 2 * count(&self.by_mask) + 64;
        }
    }
}

/// The lowest bits of `number` in the places of the bits of `mask`.
fn spread(mut number: u32, mask: u32) -> u32 {
    let mut value = 0;
    for bit in (0..32).map(|n| 1 << n).filter(|bit| mask & bit != 0) {
        value |= if number & 1 == 1 { bit } else { 0 };
        number >>= 1;
    }
    value
}

impl Chosen {
    /// The configuration with these numbers. `inherited` are the interface ids if the child sets none.
    fn applied(&self, config: &ChildConfig, inherited: [u32; 2]) -> Arc<Processing> {
        let mut processing = Processing::clone(&config.processing);
        let [mark_in, mark_out] = self.marks;
        for (mark, chosen) in
            [(&mut processing.mark_in, mark_in), (&mut processing.mark_out, mark_out)]
        {
            mark.value = chosen.unwrap_or(mark.value);
        }
        let ids = [&mut processing.if_id_in, &mut processing.if_id_out];
        for ((id, chosen), inherited) in ids.into_iter().zip(self.if_ids).zip(inherited) {
            *id = match (chosen, *id) {
                (Some(chosen), _) => chosen,
                (None, 0) => inherited,
                (None, fixed) => fixed,
            };
        }
        if config.unique.set_mark_in_same {
            processing.set_mark_in.value = processing.mark_in.value;
        }
        if config.unique.set_mark_out_same {
            processing.set_mark_out.value = processing.mark_out.value;
        }
        if processing == *config.processing {
            // The usual case: one for all children.
            return Arc::clone(&config.processing);
        }
        Arc::new(processing)
    }
}

impl InterfaceId {
    fn scope(self) -> Option<Scope> {
        match self {
            Self::Fixed(_) => None,
            Self::Unique(scope) => Some(scope),
        }
    }
}
