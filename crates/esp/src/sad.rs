//! The security association database (RFC 4301 §4.4.2).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipsec_types::crypto::CipherProvider;
use ipsec_types::dataplane::{
    DataPlaneError, Direction, EncapPorts, Encapsulation, Probed, SaId, SaSpec,
};

use crate::ip::{IPV4_HEADER, IPV6_HEADER, IpPacket, proto};
use crate::sizes::{Ends, Sizes};

mod outers;
mod state;

use outers::Outers;
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
    /// The SAs of each path, those that are outbound last. With 10,000 SAs a look at all of them would stop the workers.
    paths: BTreeSet<(Ends, bool, SaId)>,
    /// The outer packets of the outbound SAs.
    outers: Outers,
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
        self.take_out(id);
        self.drop_inbound(id.spi, |sa| sa.id == id);
    }

    /// Removes an inbound SA, but for packets that have arrived already: [`Self::inbound`] finds it until
    /// [`Self::forget`]. `None` if there is no such inbound SA.
    pub fn retire(&mut self, id: SaId) -> Option<Arc<Sa>> {
        self.sas.get(&id).filter(|sa| sa.direction == Direction::In)?;
        self.take_out(id)
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
            let used = self.paths.iter().map(|(ends, ..)| *ends).chain([ends]);
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
            self.refit_at(now, ends);
        }
        news
    }

    /// The paths to `peer`, whatever its port.
    #[cfg(feature = "tun")]
    pub(crate) fn paths_to(&self, peer: IpAddr) -> Vec<Ends> {
        self.sizes.to(peer)
    }

    /// See [`Sizes::enable_probes`].
    pub(crate) fn enable_probes(&mut self) {
        self.sizes.enable_probes();
    }

    /// See [`Sizes::is_probing`].
    #[cfg(feature = "tun")]
    pub(crate) fn is_probing(&self) -> bool {
        self.sizes.is_probing()
    }

    /// See [`Sizes::has_no_question`].
    pub(crate) fn has_no_question(&self, now: u64, ends: Ends) -> bool {
        self.sizes.has_no_question(now, ends)
    }

    /// See [`Sizes::ask`].
    pub(crate) fn ask(&mut self, now: u64, ends: Ends) -> Option<u16> {
        self.sizes.ask(now, ends)
    }

    /// See [`Sizes::take`].
    pub(crate) fn take(&mut self, now: u64, ends: Ends, probed: Probed, unproven: u16) -> bool {
        let news = self.sizes.take(now, ends, probed, unproven);
        if news {
            self.refit_at(now, ends);
        }
        news
    }

    /// See [`Sizes::give_up`].
    pub(crate) fn give_up(&mut self, now: u64, ends: Ends) -> bool {
        let gives_up = self.sizes.give_up(now, ends);
        if gives_up {
            self.refit_at(now, ends);
        }
        gives_up
    }

    /// The paths that are to be confirmed at `now` (ms), and whether that is because none has come of the packets since `since`
    /// (ms). On others packets have left since then, and the last confirmation was a minute ago: what comes does not show
    /// that large packets arrive (RFC 8899 §5.1.1).
    pub(crate) fn unconfirmed(&self, now: u64, since: u64) -> Vec<(Ends, bool)> {
        let lately = |sa: &Arc<Sa>| sa.usage().2.is_some_and(|last| last >= since);
        let any = |ends, direction| self.on(ends, direction).any(lately);
        let used = self.sizes.unconfirmed(now).filter(|(ends, _)| any(*ends, Direction::Out));
        let silent = used.map(|(ends, shown)| (ends, shown, !any(ends, Direction::In)));
        silent
            .filter(|(_, shown, silent)| *silent || !shown)
            .map(|(ends, _, silent)| (ends, silent))
            .collect()
    }

    /// See [`Sizes::doubt`].
    pub(crate) fn doubt(&mut self, now: u64, ends: Ends, silent: bool) {
        self.sizes.doubt(now, ends, silent);
    }

    /// An outbound SA for each path that is to be probed. See [`Sizes::unasked`].
    pub(crate) fn unasked(&self, now: u64) -> Vec<(SaId, Ends)> {
        let leaving = |ends| self.on(ends, Direction::Out).next().map(|sa| (sa.id, ends));
        self.sizes.unasked(now).filter_map(leaving).collect()
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

    /// As [`Self::refit`], where the MTU of the path was found or lowered at `now` (ms).
    fn refit_at(&self, now: u64, ends: Ends) {
        self.on(ends, Direction::Out).for_each(|sa| sa.refitted(now));
        self.refit(ends);
    }

    fn refit(&self, ends: Ends) {
        for direction in [Direction::In, Direction::Out] {
            self.on(ends, direction).for_each(|sa| self.fit(sa));
        }
    }

    /// The SAs of one direction on the path between `ends`.
    fn on(&self, ends: Ends, direction: Direction) -> impl Iterator<Item = &Arc<Sa>> {
        let out = direction == Direction::Out;
        let (first, last) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::from(u128::MAX).into());
        let [first, last] = [(0, first), (u32::MAX, last)].map(|(spi, dst)| SaId { spi, dst });
        let all = self.paths.range((ends, out, first)..=(ends, out, last));
        all.filter_map(|(.., id)| self.sas.get(id))
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
        self.paths.clear();
        self.outers = Outers::default();
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

    /// True if an outbound SA may have sent `packet`.
    pub(crate) fn may_have_sent(&self, packet: &IpPacket) -> bool {
        self.outers.have(packet)
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
        let out = sa.direction == Direction::Out;
        if out {
            self.outers.add(&sa.path);
        }
        self.paths.insert((sa.ends(), out, sa.id));
        self.sas.insert(sa.id, sa);
    }

    fn take_out(&mut self, id: SaId) -> Option<Arc<Sa>> {
        let sa = self.sas.remove(&id)?;
        let out = sa.direction == Direction::Out;
        if out {
            self.outers.remove(&sa.path);
        }
        self.paths.remove(&(sa.ends(), out, id));
        Some(sa)
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
        #[cfg(test)]
        crate::looks::note();
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
    /// Protocol and ports of the outer packets of an SA with this path. The port from which a TCP connection was opened is
    /// not known.
    pub(crate) fn outside(&self) -> (u8, Option<u16>, Option<u16>) {
        #[cfg(test)]
        crate::looks::note();
        let known = |port: u16| (port != 0).then_some(port);
        match self.encap {
            None => (proto::ESP, None, None),
            Some(Encapsulation::Udp(ports)) => {
                (proto::UDP, known(ports.src_port), known(ports.dst_port))
            }
            Some(Encapsulation::Tcp(ports)) => {
                (proto::TCP, known(ports.src_port), known(ports.dst_port))
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::{looks, looping};

    const MANY: u32 = 10_000;
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    /// How many looks are few.
    const FEW: usize = 16;

    fn peer(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    fn spec(number: u32, direction: Direction, encap: Option<Encapsulation>) -> SaSpec {
        let (src, dst) = match direction {
            Direction::Out => (HERE, peer(number)),
            Direction::In => (peer(number), HERE),
        };
        SaSpec {
            id: SaId { spi: 1000 + number, dst },
            src,
            encap,
            replay_window: 0,
            ..state::tests::spec(direction)
        }
    }

    /// Both SAs of many peers, on paths that are probed if `links`.
    fn many(links: bool) -> Sad {
        let mut sad = Sad::with_mtu(1400);
        sad.enable_probes();
        for number in 0..MANY {
            if links {
                sad.link(ends(number), 1500);
            }
            for direction in [Direction::In, Direction::Out] {
                sad.install(spec(number, direction, None), &pq_kem::sym::Ciphers).unwrap();
            }
        }
        sad
    }

    fn ends(number: u32) -> Ends {
        Ends { peer: SocketAddr::new(peer(number), 0), local: HERE }
    }

    fn packet(dst: IpAddr, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let payload = ports.map(u16::to_be_bytes).concat();
        let (head, len) = ip::header(HERE, dst, 0, protocol, payload.len()).unwrap();
        [&head[..len], &payload].concat()
    }

    fn is_own(sad: &Sad, packet: &[u8]) -> bool {
        looping::may_be_own_outer(sad, &IpPacket::parse(packet).unwrap())
    }

    /// A host behind the gateway that sends to a blocked address begins a new flow with each packet. The paths of a plane
    /// without links are not known, and its packets are found all the same.
    ///
    /// Fault: in `may_be_own_outer`, compare the packet with each outbound SA.
    #[test]
    fn an_outer_packet_is_looked_for_in_few_looks() {
        let mut sad = many(false);
        let asks = |dst, protocol, ports, own| {
            let packet = packet(dst, protocol, ports);
            let (is, looks) = looks::of(|| is_own(&sad, &packet));
            assert_eq!(is, own, "{dst} {protocol} {ports:?}");
            assert!(looks <= FEW, "{looks} looks for {dst}");
        };
        asks(peer(MANY - 1), proto::ESP, [0, 0], true);
        asks(peer(MANY), proto::ESP, [0, 0], false);
        asks(peer(7), proto::UDP, [4500, 4500], false);
        // Neighbours behind one NAT have one address.
        for number in MANY..2 * MANY {
            let ports = EncapPorts { src_port: 4500, dst_port: 1000 + number as u16 };
            let mut spec = spec(number, Direction::Out, Some(Encapsulation::Udp(ports)));
            spec.id.dst = peer(7);
            sad.install(spec, &pq_kem::sym::Ciphers).unwrap();
        }
        let asks = |ports, own| {
            let packet = packet(peer(7), proto::UDP, ports);
            let (is, looks) = looks::of(|| is_own(&sad, &packet));
            assert_eq!(is, own, "{ports:?}");
            assert!(looks <= FEW, "{looks} looks for {ports:?}");
        };
        asks([4500, 1000 + MANY as u16], true);
        asks([4500, 999], false);
        asks([53, 1000 + MANY as u16], false);
    }

    /// Fault: in `take_out`, leave the outer packets or the path of the SA as they are.
    #[test]
    fn an_sa_that_is_removed_or_moves_leaves_nothing_in_the_indices() {
        let udp = |to| Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: to }));
        let mut sad = Sad::with_mtu(1400);
        let id = |spi| SaId { spi, dst: peer(1) };
        for (number, to) in [(1, 4500), (2, 4500), (3, 0)] {
            let mut spec = spec(number, Direction::Out, udp(to));
            spec.id.dst = peer(1);
            sad.install(spec, &pq_kem::sym::Ciphers).unwrap();
        }
        let of = |port| packet(peer(1), proto::UDP, [4500, port]);
        let mut later = of(4500);
        later[6..8].copy_from_slice(&[0, 9]);
        assert!(is_own(&sad, &of(9)), "the port of the third SA is not known");
        sad.remove(id(1003));
        assert!(is_own(&sad, &of(4500)) && is_own(&sad, &later) && !is_own(&sad, &of(9)));
        sad.remove(id(1001));
        assert!(is_own(&sad, &of(4500)), "the second one is there");
        let path = Path { src: HERE, dst: peer(2), encap: udp(4500) };
        sad.update(id(1002), path).unwrap();
        assert!(!is_own(&sad, &of(4500)) && !is_own(&sad, &later));
        assert!(is_own(&sad, &packet(peer(2), proto::UDP, [4500, 4500])));
        sad.remove(SaId { spi: 1002, dst: peer(2) });
        assert!(sad.paths.is_empty() && format!("{:?}", sad.outers) == "Outers({})");
    }

    /// What changes the tables keeps the workers waiting, so it looks at the SAs of one path alone.
    ///
    /// Faults: in `refit`, look at all SAs for those of the path; in `unasked`, begin with the SAs and not with the paths.
    #[test]
    fn what_is_done_about_one_path_looks_at_its_own_sas() {
        let mut sad = many(true);
        let carried = |octets| Probed::Carried(octets);
        assert_eq!(looks::of(|| sad.unasked(0)), (Vec::new(), 0), "no packet needs it");
        assert_eq!(sad.ask(0, ends(7)), Some(1500));
        let (news, looks) = looks::of(|| sad.take(0, ends(7), carried(1500), 1500));
        assert!(news && looks <= FEW, "{looks} looks");
        sad.get(SaId { spi: 1007, dst: peer(7) }).unwrap().take_sequence(1, 9000).unwrap();
        let (silent, looks) = looks::of(|| sad.unconfirmed(10_000, 5000));
        assert!(silent == [(ends(7), true)] && looks <= FEW, "{silent:?}, {looks} looks");
        let (_, looks) = looks::of(|| sad.doubt(10_000, ends(7), true));
        assert!(looks <= FEW, "{looks} looks");
        let (unasked, looks) = looks::of(|| sad.unasked(10_000));
        assert_eq!(unasked, [(SaId { spi: 1007, dst: peer(7) }, ends(7))]);
        assert!(looks <= FEW, "{looks} looks");
        let (lowered, looks) = looks::of(|| sad.lower(10_000, ends(7), 1400));
        assert!(lowered && looks <= FEW, "{looks} looks");
        let limit =
            |number| sad.get(SaId { spi: 1000 + number, dst: peer(number) }).unwrap().fit().limit;
        assert!(limit(7) > limit(8) && limit(7) < 1400);
    }
}
