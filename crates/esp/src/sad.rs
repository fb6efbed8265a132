//! The security association database (RFC 4301 §4.4.2).

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ike_proto::crypto::{CipherProvider, Secret};
use ike_proto::dataplane::{
    DataPlaneError, Direction, Encapsulation, Limits, Mode, PolicyId, SaId, SaSpec, TrafficSelector,
};

use crate::packet::Cipher;
use crate::replay::{MAX_WINDOW, ReplayWindow};
use crate::selector::{Side, any_match};

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

/// The part of an SA that all workers share.
pub struct SaState {
    /// Direction.
    pub direction: Direction,
    /// What its packets have in them.
    pub contents: Contents,
    /// The policy it serves.
    pub policy: PolicyId,
    /// Keyed suite.
    pub cipher: Cipher,
    limits: Limits,
    local_ts: Vec<TrafficSelector>,
    remote_ts: Vec<TrafficSelector>,
    /// Sequence number of the last packet sent.
    sent: AtomicU64,
    bytes: AtomicU64,
    packets: AtomicU64,
    /// When it was last used, in ms of the plane's clock plus one; 0 for never.
    last_used: AtomicU64,
    soft: AtomicBool,
    hard: AtomicBool,
    /// Replay window, and the address last reported by a mapping event.
    inbound: Mutex<InboundState>,
    keys: (Secret, Secret),
}

struct InboundState {
    window: ReplayWindow,
    mapped: Option<SocketAddr>,
}

/// What using an SA for one more packet means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// It was the first packet.
    pub first: bool,
    /// The soft limit was reached, for the first time.
    pub soft: bool,
}

/// What an authenticated packet means for the replay window and the peer's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    /// The packets now come from here, reported for the first time.
    pub moved: Option<SocketAddr>,
}

/// The hard limit is reached; `first` says that nobody was told yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// Nobody was told yet.
    pub first: bool,
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
        if let Some(list) = self.inbound.get_mut(&id.spi) {
            list.retain(|sa| sa.id != id);
            if list.is_empty() {
                self.inbound.remove(&id.spi);
            }
        }
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

/// What the packets of an SA have in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// A whole packet: tunnel mode.
    Packet,
    /// The payload of one: transport mode.
    Payload,
}

impl SaState {
    fn new(spec: SaSpec, ciphers: &dyn CipherProvider) -> Result<Self, DataPlaneError> {
        let SaSpec {
            id: _,
            src: _,
            direction,
            mode,
            policy,
            suite,
            encr_key,
            integ_key,
            esn,
            replay_window,
            encap: _,
            local_ts,
            remote_ts,
            limits,
            cpu: _,
            processing: _,
        } = spec;
        if replay_window > MAX_WINDOW {
            return Err(DataPlaneError(format!("replay window over {MAX_WINDOW} packets")));
        }
        let contents = match mode {
            Mode::Tunnel => Contents::Packet,
            Mode::Transport => Contents::Payload,
            Mode::Beet | Mode::Iptfs => {
                return Err(DataPlaneError(format!("no {mode:?} mode in user space")));
            }
        };
        let lengths = ciphers.lengths(suite).ok_or_else(|| {
            DataPlaneError(format!("no cipher {} with {}", suite.encr, suite.integ))
        })?;
        let key = ciphers
            .key(suite, encr_key.expose(), integ_key.expose())
            .map_err(|e| DataPlaneError(format!("keying {}: {e}", suite.encr)))?;
        Ok(Self {
            direction,
            contents,
            policy,
            cipher: Cipher { key, lengths, esn },
            limits,
            local_ts,
            remote_ts,
            sent: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            soft: AtomicBool::new(false),
            hard: AtomicBool::new(false),
            inbound: Mutex::new(InboundState {
                window: ReplayWindow::new(replay_window, esn),
                mapped: None,
            }),
            keys: (encr_key, integ_key),
        })
    }

    /// Takes the next sequence number. It never wraps (RFC 4303 §3.3.3): past the last one the SA is
    /// unusable. `soft` is set once when an eighth of them is left.
    pub fn next_sequence(&self) -> Result<(u64, bool), Exhausted> {
        let last = if self.cipher.esn { u64::MAX } else { u64::from(u32::MAX) };
        let next = |sent: u64| (sent < last).then(|| sent + 1);
        match self.sent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(sent) => {
                Ok((sent + 1, sent >= last - last / 8 && !self.soft.swap(true, Ordering::Relaxed)))
            }
            Err(_) => Err(self.exhaust()),
        }
    }

    /// Accounts for a packet of `len` inner octets at `now` (ms of the plane's clock), unless that
    /// would pass a hard limit.
    pub fn charge(&self, len: usize, now: u64) -> Result<Used, Exhausted> {
        let Limits { soft_bytes, hard_bytes, soft_packets, hard_packets } = self.limits;
        if self.hard.load(Ordering::Relaxed) {
            return Err(Exhausted { first: false });
        }
        let len = len as u64;
        let bytes = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        let packets = self.packets.fetch_add(1, Ordering::Relaxed) + 1;
        let over = |count, limit| limit != 0 && count > limit;
        if over(bytes, hard_bytes) || over(packets, hard_packets) {
            self.bytes.fetch_sub(len, Ordering::Relaxed);
            self.packets.fetch_sub(1, Ordering::Relaxed);
            return Err(self.exhaust());
        }
        self.last_used.store(now + 1, Ordering::Relaxed);
        let reached = |count, limit| limit != 0 && count >= limit;
        let soft = reached(bytes, soft_bytes) || reached(packets, soft_packets);
        Ok(Used {
            first: packets == 1,
            soft: soft
                && !self.soft.load(Ordering::Relaxed)
                && !self.soft.swap(true, Ordering::Relaxed),
        })
    }

    /// True once a hard limit was reached.
    pub fn exhausted(&self) -> bool {
        self.hard.load(Ordering::Relaxed)
    }

    /// Octets, packets, and when it was last used in ms of the plane's clock.
    pub fn usage(&self) -> (u64, u64, Option<u64>) {
        (
            self.bytes.load(Ordering::Relaxed),
            self.packets.load(Ordering::Relaxed),
            self.last_used.load(Ordering::Relaxed).checked_sub(1),
        )
    }

    /// The full sequence number `low` stands for, if no such packet was authenticated yet.
    pub fn check_replay(&self, low: u32) -> Option<u64> {
        self.lock().window.check(low).ok()
    }

    /// Marks `seq` as authenticated, from `remote` on a path that has it as `expected`. `None` if it
    /// is a replay after all. Only the newest packet moves the peer: an old one may have been overtaken.
    pub fn accept(
        &self,
        seq: u64,
        remote: Option<SocketAddr>,
        expected: SocketAddr,
    ) -> Option<Accepted> {
        let mut state = self.lock();
        let newest = state.window.accept(seq).ok()?;
        let mut moved = None;
        if let Some(remote) = remote.filter(|_| newest) {
            if remote == expected {
                state.mapped = None;
            } else if state.mapped != Some(remote) {
                state.mapped = Some(remote);
                moved = Some(remote);
            }
        }
        Some(Accepted { moved })
    }

    /// True if the SA's traffic selectors take in a packet between `local` and `remote`.
    pub fn admits(&self, local: &Side, remote: &Side) -> bool {
        any_match(&self.local_ts, local, &self.remote_ts, remote)
    }

    fn same_keys(&self, spec: &SaSpec) -> bool {
        self.keys.0.ct_eq(spec.encr_key.expose()) && self.keys.1.ct_eq(spec.integ_key.expose())
    }

    fn exhaust(&self) -> Exhausted {
        Exhausted { first: !self.hard.swap(true, Ordering::Relaxed) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InboundState> {
        self.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ike_proto::crypto::CipherSuite;
    use ike_proto::wire::registry::{EncrId, IntegId};

    use super::*;

    fn state(esn: bool, direction: Direction) -> SaState {
        let suite = CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE };
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let spec = SaSpec {
            id: SaId { spi: 7, dst: address },
            src: address,
            direction,
            mode: Mode::Tunnel,
            policy: PolicyId(1),
            suite,
            encr_key: Secret::new(vec![1; 20]),
            integ_key: Secret::new(Vec::new()),
            esn,
            replay_window: 32,
            encap: None,
            local_ts: Vec::new(),
            remote_ts: Vec::new(),
            limits: Limits::default(),
            cpu: None,
            processing: Arc::default(),
        };
        SaState::new(spec, &pq_kem::sym::Ciphers).unwrap()
    }

    /// RFC 4303 §3.3.3: "the sender MUST NOT send a packet on an SA if doing so would cause the
    /// sequence number to cycle".
    #[test]
    fn the_sequence_number_does_not_wrap() {
        for (esn, last) in [(false, u64::from(u32::MAX)), (true, u64::MAX)] {
            let sa = state(esn, Direction::Out);
            assert_eq!(sa.next_sequence(), Ok((1, false)));
            sa.sent.store(last - 2, Ordering::Relaxed);
            assert_eq!(sa.next_sequence(), Ok((last - 1, true)), "time to rekey");
            assert_eq!(sa.next_sequence(), Ok((last, false)), "which is said once");
            assert_eq!(sa.next_sequence(), Err(Exhausted { first: true }));
            assert_eq!(sa.next_sequence(), Err(Exhausted { first: false }));
            assert!(sa.exhausted());
            assert_eq!(sa.charge(1, 0), Err(Exhausted { first: false }));
        }
    }

    /// The high half of an extended sequence number is never sent and both ends agree on it.
    #[test]
    fn packets_cross_the_boundary_of_32_bits() {
        let (sender, receiver) = (state(true, Direction::Out), state(true, Direction::In));
        let anywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let boundary = 1u64 << 32;
        for start in [1 << 31, boundary - 3, boundary + (1 << 31), 2 * boundary - 3] {
            sender.sent.store(start, Ordering::Relaxed);
            for _ in 0..6 {
                let (seq, _) = sender.next_sequence().unwrap();
                let mut out = Vec::new();
                sender.cipher.seal(7, seq, &seq.to_be_bytes(), 59, b"..", &mut out).unwrap();
                let (_, low) = crate::packet::header(&out).unwrap();
                assert_eq!(receiver.check_replay(low), Some(seq));
                receiver.cipher.open(&mut out, seq).unwrap();
                assert!(receiver.accept(seq, None, anywhere).is_some());
                assert_eq!(receiver.check_replay(low), None);
            }
        }
    }

    /// Two threads that pass the first check with copies of one packet: one of them wins.
    #[test]
    fn the_second_check_finds_a_race() {
        let sa = state(false, Direction::In);
        let anywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        assert_eq!((sa.check_replay(5), sa.check_replay(5)), (Some(5), Some(5)));
        assert!(sa.accept(5, None, anywhere).is_some());
        assert!(sa.accept(5, None, anywhere).is_none());
    }
}
