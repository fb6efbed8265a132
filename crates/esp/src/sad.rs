//! The security association database (RFC 4301 §4.4.2).

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ike_proto::crypto::{CipherProvider, Secret};
use ike_proto::dataplane::{
    DataPlaneError, Direction, Encapsulation, Limits, Mode, PolicyId, SaId, SaSpec, TrafficSelector,
};
use spin::Yield;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::packet::Cipher;
use crate::replay::{MAX_WINDOW, ReplayView, ReplayWindow};
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
    /// Sequence number of the last packet sent, and so how many were.
    sent: AtomicU64,
    /// Octets sent.
    bytes: AtomicU64,
    /// When it was last used, in ms of the plane's clock plus one; 0 for never.
    last_used: AtomicU64,
    soft: AtomicBool,
    hard: AtomicBool,
    seen: ReplayView,
    /// Held for some nanoseconds, by workers that never wait meanwhile.
    inbound: SpinMutex<InboundState, Yield>,
    keys: (Secret, Secret),
}

/// What every packet received changes.
struct InboundState {
    window: ReplayWindow,
    /// The address last reported by a mapping event.
    mapped: Option<SocketAddr>,
    bytes: u64,
    packets: u64,
}

/// What an authenticated packet means for its SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    /// It was the first packet.
    pub first: bool,
    /// The soft limit was reached, for the first time.
    pub soft: bool,
    /// The packets now come from here, reported for the first time.
    pub moved: Option<SocketAddr>,
}

/// Why an authenticated packet is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Another thread was faster with a copy of it.
    Replayed,
    /// The hard limit is reached.
    Exhausted(Exhausted),
}

/// The hard limit is reached; `first` says that nobody was told yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// Nobody was told yet.
    pub first: bool,
}

/// Why a packet cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The hard limit is reached.
    Limit(Exhausted),
    /// The sequence numbers are used up.
    Sequence(Exhausted),
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
        let window = ReplayWindow::new(replay_window, esn);
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
            last_used: AtomicU64::new(0),
            soft: AtomicBool::new(false),
            hard: AtomicBool::new(false),
            seen: window.view(),
            inbound: SpinMutex::new(InboundState { window, mapped: None, bytes: 0, packets: 0 }),
            keys: (encr_key, integ_key),
        })
    }

    /// Accounts for a packet of `len` inner octets that is to be sent at `now` (ms of the plane's clock)
    /// and takes the next sequence number, unless a hard limit would be passed. Numbers never wrap
    /// (RFC 4303 §3.3.3): past the last one the SA is unusable. True once, when a soft limit is reached or
    /// an eighth of the numbers is left.
    #[inline]
    pub fn take_sequence(&self, len: usize, now: u64) -> Result<(u64, bool), Spent> {
        let Limits { soft_bytes, hard_bytes, soft_packets, hard_packets } = self.limits;
        if self.exhausted() {
            return Err(Spent::Limit(Exhausted { first: false }));
        }
        let len = len as u64;
        let bytes = self.bytes.fetch_add(len, Ordering::Relaxed) + len;
        let refuse = |spent: fn(Exhausted) -> Spent| {
            self.bytes.fetch_sub(len, Ordering::Relaxed);
            spent(self.exhaust())
        };
        if over(bytes, hard_bytes) {
            return Err(refuse(Spent::Limit));
        }
        let last = if self.cipher.esn { u64::MAX } else { u64::from(u32::MAX) };
        let seq = self.next_sequence(last).ok_or_else(|| refuse(Spent::Sequence))?;
        if over(seq, hard_packets) {
            return Err(refuse(Spent::Limit));
        }
        self.used(now);
        let soft =
            reached(bytes, soft_bytes) || reached(seq, soft_packets) || seq > last - last / 8;
        Ok((seq, soft && self.first_soft()))
    }

    fn next_sequence(&self, last: u64) -> Option<u64> {
        // Far from the end the additions of all threads together do not reach it.
        if self.sent.load(Ordering::Relaxed) < last - (1 << 24) {
            return Some(self.sent.fetch_add(1, Ordering::Relaxed) + 1);
        }
        let next = |sent: u64| (sent < last).then(|| sent + 1);
        self.sent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|sent| sent + 1)
    }

    /// True once a hard limit was reached.
    #[inline]
    pub fn exhausted(&self) -> bool {
        self.hard.load(Ordering::Relaxed)
    }

    /// Octets, packets, and when it was last used in ms of the plane's clock.
    pub fn usage(&self) -> (u64, u64, Option<u64>) {
        let (bytes, packets) = match self.direction {
            Direction::In => {
                let state = self.lock();
                (state.bytes, state.packets)
            }
            Direction::Out => {
                let sent = self.sent.load(Ordering::Relaxed);
                // A packet past the limit took a number and was not sent.
                let sent = match self.limits.hard_packets {
                    0 => sent,
                    limit => sent.min(limit),
                };
                (self.bytes.load(Ordering::Relaxed), sent)
            }
        };
        (bytes, packets, self.last_used.load(Ordering::Relaxed).checked_sub(1))
    }

    /// The full sequence number `low` stands for, if no such packet was authenticated yet.
    #[inline]
    pub fn check_replay(&self, low: u32) -> Option<u64> {
        self.seen.check(low).ok()
    }

    /// Marks `seq` as authenticated and accounts for its `len` inner octets at `now` (ms of the plane's
    /// clock). It came from `remote`, on a path that has it as `expected`. Only the newest packet moves the
    /// peer: an old one may have been overtaken.
    #[inline]
    pub fn accept(
        &self,
        seq: u64,
        len: usize,
        now: u64,
        remote: Option<SocketAddr>,
        expected: SocketAddr,
    ) -> Result<Accepted, Refused> {
        let Limits { soft_bytes, hard_bytes, soft_packets, hard_packets } = self.limits;
        let mut state = self.lock();
        let InboundState { window, mapped, bytes, packets } = &mut *state;
        let newest = window.accept(seq).map_err(|_| Refused::Replayed)?;
        let mut moved = None;
        if let Some(remote) = remote.filter(|_| newest) {
            if remote == expected {
                *mapped = None;
            } else if *mapped != Some(remote) {
                *mapped = Some(remote);
                moved = Some(remote);
            }
        }
        let (more_bytes, more_packets) = (*bytes + len as u64, *packets + 1);
        if over(more_bytes, hard_bytes) || over(more_packets, hard_packets) || self.exhausted() {
            return Err(Refused::Exhausted(self.exhaust()));
        }
        (*bytes, *packets) = (more_bytes, more_packets);
        drop(state);
        self.used(now);
        let soft = reached(more_bytes, soft_bytes) || reached(more_packets, soft_packets);
        Ok(Accepted { first: more_packets == 1, soft: soft && self.first_soft(), moved })
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

    /// True for the first who asks.
    fn first_soft(&self) -> bool {
        !self.soft.load(Ordering::Relaxed) && !self.soft.swap(true, Ordering::Relaxed)
    }

    fn used(&self, now: u64) {
        // Without the look first, every packet would take the cache line from the other workers.
        if self.last_used.load(Ordering::Relaxed) != now + 1 {
            self.last_used.store(now + 1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn lock(&self) -> SpinMutexGuard<'_, InboundState, Yield> {
        self.inbound.lock()
    }
}

fn over(count: u64, limit: u64) -> bool {
    limit != 0 && count > limit
}

fn reached(count: u64, limit: u64) -> bool {
    limit != 0 && count >= limit
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ike_proto::crypto::CipherSuite;
    use ike_proto::wire::registry::{EncrId, IntegId};

    use super::*;
    use crate::buffer::Buffer;

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
            assert_eq!(sa.take_sequence(1, 0), Ok((1, false)));
            sa.sent.store(last - 2, Ordering::Relaxed);
            assert_eq!(sa.take_sequence(1, 0), Ok((last - 1, true)), "time to rekey");
            assert_eq!(sa.take_sequence(1, 0), Ok((last, false)), "which is said once");
            let first = Exhausted { first: true };
            assert_eq!(sa.take_sequence(1, 0), Err(Spent::Sequence(first)));
            assert!(sa.exhausted());
            let again = Exhausted { first: false };
            assert_eq!(sa.take_sequence(1, 0), Err(Spent::Limit(again)));
            assert_eq!(sa.sent.load(Ordering::Relaxed), last);
            assert_eq!(sa.usage().0, 3, "octets of what was not sent");
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
                let (seq, _) = sender.take_sequence(2, 0).unwrap();
                let (mut out, mut inner) = (Buffer::new(), Buffer::new());
                sender.cipher.seal(7, seq, &seq.to_be_bytes(), 59, b"..", &mut out).unwrap();
                let (_, low) = crate::packet::header(&out).unwrap();
                assert_eq!(receiver.check_replay(low), Some(seq));
                receiver.cipher.open(&out, seq, &mut inner).unwrap();
                assert_eq!(*inner, *b"..");
                assert!(receiver.accept(seq, 2, 0, None, anywhere).is_ok());
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
        assert!(sa.accept(5, 1, 0, None, anywhere).is_ok());
        assert_eq!(sa.accept(5, 1, 0, None, anywhere), Err(Refused::Replayed));
    }
}
