//! The security association database (RFC 4301 §4.4.2).

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipsec_types::crypto::CipherProvider;
use ipsec_types::dataplane::{DataPlaneError, Direction, Encapsulation, SaId, SaSpec};

mod state;

pub use state::{Accepted, Accepting, Contents, Exhausted, Refused, SaState, Spent};

/// Outer addresses and ports of an SA, which a NAT or MOBIKE may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Source of its packets.
    pub src: IpAddr,
    /// Destination of its packets.
    pub dst: IpAddr,
    /// Encapsulation.
    pub encap: Option<Encapsulation>,
}

/// An SA on its present path. Replaced as a whole when the path changes, so that a worker never sees
/// half of a change.
#[derive(Clone)]
pub struct Sa {
    /// SPI and destination. The destination is that of the path.
    pub id: SaId,
    /// Outer addresses and ports.
    pub path: Path,
    state: Arc<SaState>,
}

/// All SAs of a plane.
#[derive(Debug, Default)]
pub struct Sad {
    sas: HashMap<SaId, Arc<Sa>>,
    /// Inbound SAs by SPI: mostly one each.
    inbound: HashMap<u32, Vec<Arc<Sa>>>,
}

impl Sad {
    /// Adds an SA. The same SA again (same keys) keeps its sequence numbers and its window, because
    /// starting them over would repeat IVs and admit replays. Another SA of its name is refused: the
    /// packets of one peer must never leave under the keys of another.
    pub fn install(
        &mut self,
        spec: SaSpec,
        ciphers: &dyn CipherProvider,
    ) -> Result<(), DataPlaneError> {
        let id = spec.id;
        let path = Path { src: spec.src, dst: id.dst, encap: spec.encap };
        if let Some(old) = self.sas.get(&id) {
            if old.direction == spec.direction && old.same_keys(&spec) {
                return Ok(());
            }
            return Err(in_use(id));
        }
        let sa = Arc::new(Sa { id, path, state: Arc::new(SaState::new(spec, ciphers)?) });
        self.put(sa);
        Ok(())
    }

    /// Removes an SA, if it is there.
    pub fn remove(&mut self, id: SaId) {
        self.sas.remove(&id);
        self.drop_inbound(id.spi, |sa| sa.id == id);
    }

    /// Removes an inbound SA, but for packets that have arrived already: [`Self::inbound`] finds it until
    /// [`Self::forget`]. `None` if there is no such inbound SA.
    pub fn retire(&mut self, id: SaId) -> Option<Arc<Sa>> {
        self.sas.get(&id).filter(|sa| sa.direction == Direction::In)?;
        self.sas.remove(&id)
    }

    /// Removes the rest of a retired SA. A new SA of its name stays.
    pub fn forget(&mut self, retired: &Arc<Sa>) {
        self.drop_inbound(retired.id.spi, |sa| Arc::ptr_eq(sa, retired));
    }

    /// Moves an SA to another path. The new destination is part of its name from then on.
    pub fn update(&mut self, id: SaId, path: Path) -> Result<(), DataPlaneError> {
        let state = Arc::clone(&self.get(id).ok_or_else(|| no_such_sa(id))?.state);
        let new = SaId { dst: path.dst, ..id };
        if new != id && self.sas.contains_key(&new) {
            return Err(in_use(new));
        }
        self.remove(id);
        self.put(Arc::new(Sa { id: new, path, state }));
        Ok(())
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The SA `id`.
    pub fn get(&self, id: SaId) -> Option<&Arc<Sa>> {
        self.sas.get(&id)
    }

    /// The inbound SA for a packet with `spi` sent to `dst`. The SPI alone decides where it is unique,
    /// as it is when one endpoint chose them all; then a packet to an address newly ours is found too.
    pub fn inbound(&self, spi: u32, dst: IpAddr) -> Option<&Arc<Sa>> {
        match self.inbound.get(&spi)?.as_slice() {
            [sa] => Some(sa),
            list => list.iter().find(|sa| sa.path.dst == dst),
        }
    }

    /// Number of SAs.
    pub fn len(&self) -> usize {
        self.sas.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.sas.is_empty()
    }

    fn drop_inbound(&mut self, spi: u32, which: impl Fn(&Arc<Sa>) -> bool) {
        if let Some(list) = self.inbound.get_mut(&spi) {
            list.retain(|sa| !which(sa));
            if list.is_empty() {
                self.inbound.remove(&spi);
            }
        }
    }

    fn put(&mut self, sa: Arc<Sa>) {
        if sa.direction == Direction::In {
            let list = self.inbound.entry(sa.id.spi).or_default();
            list.retain(|other| other.id != sa.id);
            list.push(Arc::clone(&sa));
        }
        self.sas.insert(sa.id, sa);
    }
}

fn in_use(id: SaId) -> DataPlaneError {
    DataPlaneError(format!("SPI {:#010x} to {} is in use", id.spi, id.dst))
}

pub(crate) fn no_such_sa(id: SaId) -> DataPlaneError {
    DataPlaneError(format!("no SA {:#010x} to {}", id.spi, id.dst))
}

impl std::ops::Deref for Sa {
    type Target = SaState;

    fn deref(&self) -> &SaState {
        &self.state
    }
}

impl fmt::Debug for Sa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sa")
            .field("id", &self.id)
            .field("direction", &self.direction)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
