//! The security association database (RFC 4301 §4.4.2).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipsec_types::crypto::CipherProvider;
use ipsec_types::dataplane::{
    DataPlaneError, Direction, EncapPorts, Encapsulation, Probed, SaId, SaSpec,
};

use crate::ip::{IPV4_HEADER, IPV6_HEADER};
use crate::sizes::{Ends, Sizes};

mod state;

pub(crate) use state::Fit;
pub use state::{Accepted, Accepting, Contents, Exhausted, Refused, SaState, Spent};

/// How many paths without an SA are remembered.
const SPARE_PATHS: usize = 64;

/// Octets of the longest ESP packet in TCP (RFC 9329 §3: the length counts itself).
const LONGEST_IN_TCP: usize = 65_533;

/// Octets of a UDP header.
const UDP_HEADER: usize = 8;

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
    sizes: Sizes,
    /// Octets of the longest packet that the device brings.
    mtu: u16,
}

impl Sad {
    /// No SAs, for a device with this MTU.
    pub(crate) fn with_mtu(mtu: u16) -> Self {
        Self { mtu, ..Self::default() }
    }

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
        let state = Arc::new(SaState::new(spec, ciphers)?);
        self.put(self.sized(id, path, state));
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
        self.put(self.sized(new, path, state));
        Ok(())
    }

    /// Sets the MTU of the device.
    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.sas.values().for_each(|sa| self.fit(sa));
    }

    /// Sets the MTU of the link between this end and a peer. True if that changes the MTU of a path that was known.
    pub(crate) fn link(&mut self, ends: Ends, octets: u16) -> bool {
        let known = self.sizes.outer(ends).is_some();
        let changes = self.sizes.link(ends, octets);
        if changes {
            self.refit(ends);
        }
        // An SA may have two paths for a moment.
        if self.sizes.len() > 2 * self.sas.len() + SPARE_PATHS {
            // The link is set before its SA is installed.
            let used = self.sas.values().map(|sa| sa.ends()).chain([ends]);
            let used: HashSet<Ends> = used.collect();
            self.sizes.keep(&used);
        }
        known && changes
    }

    /// The MTU of the path between this end and a peer, as far as it is known.
    pub(crate) fn path_mtu(&self, ends: Ends) -> Option<u16> {
        self.sizes.outer(ends)
    }

    /// Lowers the MTU of the path between this end and a peer to `octets`. True if that changes it.
    pub(crate) fn lower(&mut self, now: u64, ends: Ends, octets: u16) -> bool {
        let news = self.sizes.lower(now, ends, octets);
        if news {
            self.refit(ends);
        }
        news
    }

    /// The paths to `peer`, whatever its port.
    #[cfg(feature = "tun")]
    pub(crate) fn paths_to(&self, peer: IpAddr) -> Vec<Ends> {
        self.sizes.to(peer)
    }

    /// See [`Sizes::probe`].
    pub(crate) fn probe(&mut self) {
        self.sizes.probe();
    }

    /// See [`Sizes::is_probing`].
    #[cfg(feature = "tun")]
    pub(crate) fn is_probing(&self) -> bool {
        self.sizes.is_probing()
    }

    /// See [`Sizes::is_asked`].
    pub(crate) fn is_asked(&self, now: u64, ends: Ends) -> bool {
        self.sizes.is_asked(now, ends)
    }

    /// See [`Sizes::ask`].
    pub(crate) fn ask(&mut self, now: u64, ends: Ends) -> Option<u16> {
        self.sizes.ask(now, ends)
    }

    /// See [`Sizes::take`].
    pub(crate) fn take(&mut self, now: u64, ends: Ends, probed: Probed, unproven: u16) -> bool {
        let news = self.sizes.take(now, ends, probed, unproven);
        if news {
            self.refit(ends);
        }
        news
    }

    /// Begins a new search on paths on which packets have left since `since` (ms) and none has come.
    pub(crate) fn doubt(&mut self, now: u64, since: u64) {
        let mut heard: HashMap<Ends, [bool; 2]> = HashMap::new();
        for sa in self.sas.values() {
            let lately = sa.usage().2.is_some_and(|last| last >= since);
            let [sent, came] = heard.entry(sa.ends()).or_default();
            match sa.direction {
                Direction::Out => *sent |= lately,
                Direction::In => *came |= lately,
            }
        }
        let silent = heard.into_iter().filter(|(_, heard)| *heard == [true, false]);
        silent.for_each(|(ends, _)| self.sizes.doubt(now, ends));
    }

    /// An outbound SA and a size for each path that is to be probed. On untried paths a probe waits for a packet that needs
    /// it.
    pub(crate) fn questions(&mut self, now: u64) -> Vec<(SaId, u16)> {
        let Self { sas, sizes, .. } = self;
        let leaving = sas.values().filter(|sa| sa.direction == Direction::Out);
        let wanted = leaving.filter(|sa| !sizes.is_untried(sa.ends()));
        let wanted: Vec<_> = wanted.map(|sa| (sa.id, sa.ends())).collect();
        wanted.into_iter().filter_map(|(id, ends)| Some((id, sizes.ask(now, ends)?))).collect()
    }

    /// See [`Sizes::undivided`].
    pub(crate) fn undivided(&self, peer: SocketAddr) -> Vec<Ends> {
        self.sizes.undivided(peer)
    }

    /// Has the path between `ends` fragment packets for a while, from `now` (ms) on.
    pub(crate) fn divide(&mut self, now: u64, ends: Ends) {
        self.sizes.divide(now, ends);
        self.refit(ends);
    }

    /// True if [`Self::try_larger`] has something to do.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.sizes.is_due(now)
    }

    /// See [`Sizes::try_larger`].
    pub(crate) fn try_larger(&mut self, now: u64) {
        for ends in self.sizes.try_larger(now) {
            self.refit(ends);
        }
    }

    fn refit(&self, ends: Ends) {
        self.sas.values().filter(|sa| sa.ends() == ends).for_each(|sa| self.fit(sa));
    }

    /// The SA, with what its path takes.
    fn sized(&self, id: SaId, path: Path, state: Arc<SaState>) -> Arc<Sa> {
        let sa = Arc::new(Sa { id, path, state });
        self.fit(&sa);
        sa
    }

    /// Tells the SA what its path takes.
    fn fit(&self, sa: &Sa) {
        let (ends, outer) = (sa.ends(), self.sizes.outer(sa.ends()));
        let limit = outer.map_or(sa.longest(), |outer| sa.room(outer));
        let untried = self.sizes.is_untried(ends);
        let narrow = outer.is_some() && limit < self.mtu && !untried;
        sa.set_fit(Fit { limit, narrow, divided: self.sizes.is_divided(ends), untried });
    }

    /// Removes all SAs.
    pub fn clear(&mut self) {
        self.sas.clear();
        self.inbound.clear();
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

    /// All outbound SAs.
    pub(crate) fn outbound(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.sas.values().filter(|sa| sa.direction == Direction::Out)
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

impl Sa {
    /// The peer and this end.
    pub(crate) fn ends(&self) -> Ends {
        self.path.ends(self.direction)
    }

    /// Octets of the largest inner packet that fits into any outer packet.
    pub(crate) fn longest(&self) -> u16 {
        self.room(u16::MAX)
    }

    /// Octets of the largest inner packet that fits into `outer` octets.
    fn room(&self, outer: u16) -> u16 {
        let ip = if self.path.dst.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let packet = match self.path.encap {
            None => usize::from(outer).saturating_sub(ip),
            Some(Encapsulation::Udp(_)) => usize::from(outer).saturating_sub(ip + UDP_HEADER),
            // TCP cuts the stream as it likes.
            Some(Encapsulation::Tcp(_)) => LONGEST_IN_TCP,
        };
        let room = self.cipher.payload_room(packet);
        let room = match self.contents {
            Contents::Packet => room,
            Contents::Payload => room + ip,
        };
        u16::try_from(room).unwrap_or(u16::MAX)
    }
}

impl Path {
    /// The peer and this end, for an SA of `direction`.
    pub(crate) fn ends(&self, direction: Direction) -> Ends {
        let Self { src, dst, encap } = *self;
        let ports = match encap {
            Some(Encapsulation::Udp(ports)) => ports,
            None | Some(Encapsulation::Tcp(_)) => EncapPorts { src_port: 0, dst_port: 0 },
        };
        match direction {
            Direction::Out => Ends { local: src, peer: SocketAddr::new(dst, ports.dst_port) },
            Direction::In => Ends { local: dst, peer: SocketAddr::new(src, ports.src_port) },
        }
    }
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
