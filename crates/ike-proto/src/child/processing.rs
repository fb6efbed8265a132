//! The numbers that tell one child's packets from another's: marks and interface ids, `%unique` among
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::{ChildConfig, ConnectionConfig, InterfaceId, Scope, Shard, UniqueNumbers};
use crate::dataplane::Processing;

/// Numbers below the shard's octet.
const LOCAL: u32 = 0x00ff_ffff;

/// Chooses numbers, and remembers those of traps.
#[derive(Default)]
pub(crate) struct Numbers {
    last: u32,
    /// What the trap of a connection's child has, and what it was chosen by.
    traps: HashMap<(String, String), (UniqueNumbers, Chosen)>,
}

/// What takes the place of numbers in a configuration.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    /// Of marks, in and out.
    marks: [Option<u32>; 2],
    /// Interface ids, in and out.
    if_ids: [Option<u32>; 2],
}

impl Numbers {
    /// The interface ids of a new IKE SA, in and out.
    pub(crate) fn of_ike(&mut self, shard: Shard, connection: &ConnectionConfig) -> [u32; 2] {
        let ids = [connection.if_id_in, connection.if_id_out];
        let mut chosen = self.pair(shard, ids.map(InterfaceId::scope)).into_iter();
        ids.map(|id| match (id, chosen.next().flatten()) {
            (_, Some(chosen)) => chosen,
            (InterfaceId::Fixed(id), None) => id,
            (InterfaceId::Unique(_), None) => 0,
        })
    }

    /// How packets of a new child are treated; `inherited` are the interface ids of its IKE SA.
    pub(crate) fn of_child(
        &mut self,
        shard: Shard,
        connection: &str,
        config: &ChildConfig,
        inherited: [u32; 2],
    ) -> Arc<Processing> {
        let name = (connection.to_owned(), config.name.clone());
        let chosen = match self.traps.get(&name) {
            Some((unique, chosen)) if *unique == config.unique => *chosen,
            _ => self.choose(shard, config, inherited),
        };
        chosen.applied(config)
    }

    /// How packets are treated that meet the trap of a child. Children of this name have the same from
    /// now on, or the traffic they are for would go on meeting the trap.
    pub(crate) fn of_trap(
        &mut self,
        shard: Shard,
        connection: &ConnectionConfig,
        config: &ChildConfig,
    ) -> Arc<Processing> {
        let name = (connection.name.clone(), config.name.clone());
        let chosen = match self.traps.get(&name) {
            Some((unique, chosen)) if *unique == config.unique => *chosen,
            _ => {
                let inherited = self.of_ike(shard, connection);
                let chosen = self.choose(shard, config, inherited);
                self.traps.insert(name, (config.unique, chosen));
                chosen
            }
        };
        let mut processing = chosen.applied(config);
        if processing.per_cpu {
            // The first SA is for all CPUs (RFC 9611 §4).
            Arc::make_mut(&mut processing).per_cpu = false;
        }
        processing
    }

    /// The trap is gone.
    pub(crate) fn forget_trap(&mut self, connection: &str, child: &str) {
        self.traps.remove(&(connection.to_owned(), child.to_owned()));
    }

    fn choose(&mut self, shard: Shard, config: &ChildConfig, inherited: [u32; 2]) -> Chosen {
        let UniqueNumbers { mark_in, mark_out, if_id_in, if_id_out, .. } = config.unique;
        let marks = self.pair(shard, [mark_in, mark_out]);
        let mut if_ids = self.pair(shard, [if_id_in, if_id_out]);
        let fixed = [config.processing.if_id_in, config.processing.if_id_out];
        for ((chosen, fixed), inherited) in if_ids.iter_mut().zip(fixed).zip(inherited) {
            if fixed == 0 {
                *chosen = chosen.or(Some(inherited));
            }
        }
        Chosen { marks, if_ids }
    }

    /// One number for each direction that has a scope, in and out.
    fn pair(&mut self, shard: Shard, scopes: [Option<Scope>; 2]) -> [Option<u32>; 2] {
        let mut shared = None;
        scopes.map(|scope| match scope? {
            Scope::Direction => Some(self.next(shard)),
            Scope::Pair => Some(*shared.get_or_insert_with(|| self.next(shard))),
        })
    }

    /// A number that this endpoint has not chosen lately, nor any other shard.
    fn next(&mut self, shard: Shard) -> u32 {
        self.last = (self.last % LOCAL) + 1;
        u32::from(shard.index) << 24 | self.last
    }
}

impl Chosen {
    fn applied(self, config: &ChildConfig) -> Arc<Processing> {
        let mut processing = Processing::clone(&config.processing);
        let [mark_in, mark_out] = self.marks;
        let [if_id_in, if_id_out] = self.if_ids;
        for (place, chosen) in [
            (&mut processing.mark_in.value, mark_in),
            (&mut processing.mark_out.value, mark_out),
            (&mut processing.if_id_in, if_id_in),
            (&mut processing.if_id_out, if_id_out),
        ] {
            *place = chosen.unwrap_or(*place);
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
