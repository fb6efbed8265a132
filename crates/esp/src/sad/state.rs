//! The state of an SA that all workers share: its key, its sequence numbers, its window, its limits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ipsec_types::crypto::{CipherProvider, Secret};
use ipsec_types::dataplane::{
    DataPlaneError, Direction, Limits, Mode, PolicyId, SaSpec, TfcPadding, TrafficSelector,
};
use spin::Yield;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::fields::Copied;
use crate::packet::Cipher;
use crate::replay::{MAX_WINDOW, ReplayView, ReplayWindow};
use crate::selector::{Side, any_match, looks_at_ports};

/// Packets that all other threads together may send between a look at the counters and the addition.
const OTHERS: u64 = 1 << 12;

/// Milliseconds after which senders know of another MTU of the path, and packets that had left before have arrived.
const ON_THE_WAY: u64 = 1000;

/// A report about a packet is believed if the packet is among this many last ones.
const LATELY: u64 = 4096;

/// The part of an SA that all workers share.
pub struct SaState {
    /// Direction.
    pub direction: Direction,
    /// The kind of its packets' content.
    pub contents: Contents,
    /// The policy it serves.
    pub policy: PolicyId,
    /// Keyed suite.
    pub cipher: Cipher,
    /// Which header fields the SA copies in tunnel mode.
    pub copied: Copied,
    limits: Limits,
    tfc_padding: TfcPadding,
    local_ts: Vec<TrafficSelector>,
    remote_ts: Vec<TrafficSelector>,
    /// Sequence number of the last packet sent, and so how many were.
    sent: AtomicU64,
    /// Octets sent.
    bytes: AtomicU64,
    /// When it was last used, in ms of the plane's clock plus one; 0 for never.
    last_used: AtomicU64,
    lately: Lately,
    fit: Fitted,
    soft: AtomicBool,
    hard: AtomicBool,
    seen: ReplayView,
    /// Held for some nanoseconds, by workers that never wait meanwhile.
    inbound: SpinMutex<InboundState, Yield>,
    keys: (Secret, Secret),
}

/// What the path takes, which changes while packets are sent.
struct Fitted {
    /// A [`Fit`].
    packed: AtomicU32,
    /// When the MTU of the path was found or lowered last, in ms of the plane's clock plus one; 0 for never.
    changed: AtomicU64,
}

/// How many packets were sent lately.
#[derive(Default)]
struct Lately {
    /// The second of the plane's clock in which the SA was last used.
    second: AtomicU64,
    /// Packets sent before that second, and before the one before.
    before: [AtomicU64; 2],
}

/// The state that every received packet changes.
struct InboundState {
    window: ReplayWindow,
    /// The address last reported by a mapping event.
    mapped: Option<SocketAddr>,
    bytes: u64,
    packets: u64,
}

/// The consequence of an authenticated packet for its SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    /// It was the first packet.
    pub first: bool,
    /// The soft limit was reached, for the first time.
    pub soft: bool,
    /// The packets now come from elsewhere, which is reported for the first time.
    pub moved: bool,
}

/// Why an authenticated packet is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Another thread was faster with a copy of it.
    Replayed,
    /// The hard limit is reached.
    Exhausted(Exhausted),
}

/// The hard limit is reached. `first` is true for the first report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// No report was made before.
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

/// The kind of content of an SA's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// A whole packet: tunnel mode.
    Packet,
    /// The payload of one: transport mode.
    Payload,
}

/// What the path of an SA takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Octets of the largest inner packet whose outer packet fits the path.
    pub(crate) limit: u16,
    /// TCP on both ends of the tunnel is to know of the limit.
    pub(crate) narrow: bool,
    /// The path may fragment: Don't Fragment is not set outside.
    pub(crate) divided: bool,
    /// The path may carry more than `limit`. Until a probe has shown it, larger packets go without Don't Fragment.
    pub(crate) untried: bool,
}

impl Fit {
    fn pack(self) -> u32 {
        let Self { limit, narrow, divided, untried } = self;
        let flags = u32::from(narrow) | u32::from(divided) << 1 | u32::from(untried) << 2;
        u32::from(limit) | flags << 16
    }
}

impl SaState {
    pub(super) fn new(spec: SaSpec, ciphers: &dyn CipherProvider) -> Result<Self, DataPlaneError> {
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
            lifetime: _,
            cpu: _,
            processing,
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
        if !lengths.block.is_power_of_two() {
            return Err(DataPlaneError(format!("{} has blocks of no power of two", suite.encr)));
        }
        let key = ciphers
            .key(suite, encr_key.expose(), integ_key.expose())
            .map_err(|e| DataPlaneError(format!("keying {}: {e}", suite.encr)))?;
        let window = ReplayWindow::new(replay_window, esn);
        Ok(Self {
            direction,
            contents,
            policy,
            cipher: Cipher { key, lengths, esn },
            copied: Copied::from(&*processing),
            limits,
            tfc_padding: match contents {
                Contents::Packet => processing.tfc_padding,
                Contents::Payload => TfcPadding::None,
            },
            local_ts,
            remote_ts,
            sent: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            lately: Lately::default(),
            fit: Fitted { packed: AtomicU32::new(u16::MAX.into()), changed: AtomicU64::new(0) },
            soft: AtomicBool::new(false),
            hard: AtomicBool::new(false),
            seen: window.view(),
            inbound: SpinMutex::new(InboundState { window, mapped: None, bytes: 0, packets: 0 }),
            keys: (encr_key, integ_key),
        })
    }

    /// Octets that shorter packets are padded to, where `mtu` is the size of the longest (`tfc_padding`).
    #[inline]
    pub fn least_payload(&self, mtu: usize) -> usize {
        match self.tfc_padding {
            TfcPadding::None => 0,
            TfcPadding::To(octets) => mtu.min(octets as usize),
            TfcPadding::Mtu => mtu,
        }
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

    /// As [`Self::take_sequence`] for `count` packets with `len` inner octets together, with consecutive sequence
    /// numbers. Returns the first. `None` near a limit; each packet must then ask by itself.
    #[inline]
    pub fn take_sequences(&self, count: u64, len: u64, now: u64) -> Option<u64> {
        let Limits { soft_bytes, hard_bytes, soft_packets, hard_packets } = self.limits;
        let last = if self.cipher.esn { u64::MAX } else { u64::from(u32::MAX) };
        let (sent, bytes) = (self.sent.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let packets = sent.saturating_add(count + OTHERS);
        let octets = bytes.saturating_add(len + OTHERS * 0xffff);
        let near = reached(packets, soft_packets)
            || reached(packets, hard_packets)
            || reached(octets, soft_bytes)
            || reached(octets, hard_bytes)
            || packets > last - last / 8;
        if near || self.exhausted() {
            return None;
        }
        self.bytes.fetch_add(len, Ordering::Relaxed);
        let first = self.sent.fetch_add(count, Ordering::Relaxed) + 1;
        self.used(now);
        Some(first)
    }

    /// True if the packet with the low half `low` of its sequence number was among the last sent, or sent in the last
    /// second, at `now` (ms of the plane's clock).
    pub(crate) fn sent_lately(&self, low: u32, now: u64) -> bool {
        let sent = self.sent.load(Ordering::Relaxed);
        let before = self.lately.before(now / 1000).unwrap_or(sent);
        let lately = sent.saturating_sub(before).max(LATELY).min(sent);
        let age = (sent as u32).wrapping_sub(low);
        u64::from(age) < lately
    }

    /// What its path takes.
    #[inline]
    pub(crate) fn fit(&self) -> Fit {
        let packed = self.fit.packed.load(Ordering::Relaxed);
        let flag = |bit: u32| packed & (1 << bit) != 0;
        Fit { limit: packed as u16, narrow: flag(16), divided: flag(17), untried: flag(18) }
    }

    pub(super) fn set_fit(&self, fit: Fit) {
        self.fit.packed.store(fit.pack(), Ordering::Relaxed);
    }

    /// The MTU of the path was found or lowered at `now` (ms).
    pub(super) fn refitted(&self, now: u64) {
        self.fit.changed.store(now + 1, Ordering::Relaxed);
    }

    /// True if senders may not know of the MTU of the path at `now` (ms), because it was found or lowered lately.
    pub(crate) fn was_refitted(&self, now: u64) -> bool {
        let at = self.fit.changed.load(Ordering::Relaxed).checked_sub(1);
        at.is_some_and(|at| now.saturating_sub(at) < ON_THE_WAY)
    }

    /// True if its traffic selectors look at ports, so that it must not carry later fragments.
    pub(crate) fn looks_at_ports(&self) -> bool {
        self.local_ts.iter().chain(&self.remote_ts).any(looks_at_ports)
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
                let state = self.inbound.lock();
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

    /// To account for packets that are authentic, which came from `remote` on a path that has it as
    /// `expected`, at `now` (ms of the plane's clock). Other threads wait meanwhile.
    #[inline]
    pub fn accepting(
        &self,
        now: u64,
        remote: Option<SocketAddr>,
        expected: SocketAddr,
    ) -> Accepting<'_> {
        let moved = remote.filter(|remote| *remote != expected);
        Accepting { sa: self, state: self.inbound.lock(), now, moves: remote.is_some(), moved }
    }

    /// True if the SA's traffic selectors take in a packet between `local` and `remote`.
    #[inline(always)]
    pub fn admits(&self, local: &Side, remote: &Side) -> bool {
        any_match(&self.local_ts, local, &self.remote_ts, remote)
    }

    pub(super) fn same_keys(&self, spec: &SaSpec) -> bool {
        self.keys.0.ct_eq(spec.encr_key.expose()) && self.keys.1.ct_eq(spec.integ_key.expose())
    }

    fn exhaust(&self) -> Exhausted {
        Exhausted { first: !self.hard.swap(true, Ordering::Relaxed) }
    }

    /// True for the first caller.
    fn first_soft(&self) -> bool {
        !self.soft.load(Ordering::Relaxed) && !self.soft.swap(true, Ordering::Relaxed)
    }

    fn used(&self, now: u64) {
        // Without the look first, every packet would take the cache line from the other workers.
        if self.last_used.load(Ordering::Relaxed) != now + 1 {
            self.last_used.store(now + 1, Ordering::Relaxed);
            self.lately.begin(now / 1000, self.sent.load(Ordering::Relaxed));
        }
    }
}

impl Lately {
    /// Takes note that `sent` packets were sent when `second` begins. That the first run of it is among them does not matter:
    /// it is not longer than what counts as sent lately in any case.
    fn begin(&self, second: u64, sent: u64) {
        let last = self.second.load(Ordering::Relaxed);
        if last != second {
            let [this, one_before] = &self.before;
            // Nothing was sent in a second that is left out.
            let previous = if last + 1 == second { this.load(Ordering::Relaxed) } else { sent };
            one_before.store(previous, Ordering::Relaxed);
            this.store(sent, Ordering::Relaxed);
            self.second.store(second, Ordering::Relaxed);
        }
    }

    /// Packets sent until a second ago or longer, in `second`. `None` if nothing was sent since.
    fn before(&self, second: u64) -> Option<u64> {
        let [this, one_before] = &self.before;
        match second.saturating_sub(self.second.load(Ordering::Relaxed)) {
            0 => Some(one_before.load(Ordering::Relaxed)),
            1 => Some(this.load(Ordering::Relaxed)),
            _ => None,
        }
    }
}

/// A run of packets that are accepted one after the other.
pub struct Accepting<'a> {
    sa: &'a SaState,
    state: SpinMutexGuard<'a, InboundState, Yield>,
    now: u64,
    /// Where they come from may be where the peer is now.
    moves: bool,
    /// Where they come from, if that is not where the peer was.
    moved: Option<SocketAddr>,
}

impl Accepting<'_> {
    /// Marks `seq` as authenticated and accounts for its `len` inner octets. Only the newest packet moves
    /// the peer: an old one may have been overtaken.
    #[inline]
    pub fn accept(&mut self, seq: u64, len: usize) -> Result<Accepted, Refused> {
        let Self { sa, state, now, moves, moved } = self;
        let Limits { soft_bytes, hard_bytes, soft_packets, hard_packets } = sa.limits;
        let InboundState { window, mapped, bytes, packets } = &mut **state;
        let newest = window.accept(seq).map_err(|_| Refused::Replayed)?;
        let mut news = false;
        if *moves && newest && *mapped != *moved {
            *mapped = *moved;
            news = moved.is_some();
        }
        let (more_bytes, more_packets) = (*bytes + len as u64, *packets + 1);
        if over(more_bytes, hard_bytes) || over(more_packets, hard_packets) || sa.exhausted() {
            return Err(Refused::Exhausted(sa.exhaust()));
        }
        (*bytes, *packets) = (more_bytes, more_packets);
        sa.used(*now);
        let soft = reached(more_bytes, soft_bytes) || reached(more_packets, soft_packets);
        Ok(Accepted { first: more_packets == 1, soft: soft && sa.first_soft(), moved: news })
    }
}

fn over(count: u64, limit: u64) -> bool {
    limit != 0 && count > limit
}

fn reached(count: u64, limit: u64) -> bool {
    limit != 0 && count >= limit
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use ike_wire::registry::{EncrId, IntegId};
    use ipsec_types::crypto::CipherSuite;
    use ipsec_types::dataplane::SaId;

    use super::*;
    use crate::buffer::Buffer;

    /// An SA of AES-GCM between two addresses of this host.
    pub(in crate::sad) fn spec(direction: Direction) -> SaSpec {
        let suite = CipherSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: IntegId::NONE };
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        SaSpec {
            id: SaId { spi: 7, dst: address },
            src: address,
            direction,
            mode: Mode::Tunnel,
            policy: PolicyId(1),
            suite,
            encr_key: Secret::new(vec![1; 20]),
            integ_key: Secret::new(Vec::new()),
            esn: false,
            replay_window: 32,
            encap: None,
            local_ts: Vec::new(),
            remote_ts: Vec::new(),
            limits: Limits::default(),
            lifetime: std::time::Duration::ZERO,
            cpu: None,
            processing: Arc::default(),
        }
    }

    fn state(esn: bool, direction: Direction) -> SaState {
        SaState::new(SaSpec { esn, ..spec(direction) }, &pq_kem::sym::Ciphers).unwrap()
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

    /// A fast sender has more packets under way than a slow one.
    ///
    /// Fault: in `sent_lately`, leave `before` out; or in `Lately::begin`, take what was sent before a pause.
    #[test]
    fn packets_of_the_last_second_were_sent_lately() {
        let sa = state(true, Direction::Out);
        let send = |count, now| {
            for _ in 0..count / 32 {
                sa.take_sequences(32, 32, now).unwrap();
            }
        };
        let oldest = |now| (1..).find(|low| sa.sent_lately(*low, now));
        send(3200, 0);
        send(64_000, 5000);
        assert_eq!(oldest(5000), Some(3200 + 33), "but for the first run");
        send(32_000, 6000);
        assert_eq!(oldest(6000), Some(3200 + 33), "and the second before");
        assert_eq!(oldest(7000), Some(67_200 + 33));
        let last = 99_200;
        assert_eq!(oldest(8000), Some(last - 4095));
        send(64, 9000);
        assert_eq!(oldest(9000), Some(last + 64 - 4095));
        assert!(!sa.sent_lately(last + 65, 9000) && !sa.sent_lately(0, 9000));
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
                assert!(receiver.accepting(0, None, anywhere).accept(seq, 2).is_ok());
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
        assert!(sa.accepting(0, None, anywhere).accept(5, 1).is_ok());
        assert_eq!(sa.accepting(0, None, anywhere).accept(5, 1), Err(Refused::Replayed));
    }
}
