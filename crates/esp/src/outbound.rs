//! Packets of the protected side on their way out (RFC 4301 §5.1).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use ipsec_types::crypto::{IvKind, SecureRandom};
use ipsec_types::dataplane::{Direction, Encapsulation, Event, PolicyAction, PolicySpec, SaId};

use crate::buffer::Buffer;
use crate::fields::Fields;
use crate::flow::{Decision, FlowCache, FlowKey};
use crate::ip::{BadIp, Fragment, IPV4_HEADER, IpPacket, parse_each, proto};
use crate::looping;
use crate::mss;
use crate::packet::MAX_IV;
use crate::plane::{Clock, RUN, Shared};
use crate::reassembly::{Reassembler, Whole};
use crate::sad::{Contents, Fit, Path, Sa, Spent};
use crate::segments;
use crate::selector::sides;
use crate::sizes::LEAST_V6;
use crate::split::split;
use crate::stats::{DropReason, Tally};

/// Protects packets. One per thread; it remembers the flows it has seen.
pub struct Outbound {
    shared: Arc<Shared>,
    cache: FlowCache,
    fragments: Reassembler,
    rng: Box<dyn SecureRandom>,
    tally: Tally,
    clock: Clock,
}

/// The result for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The ESP packet was appended to the buffer; it is to be sent like this.
    Send(Outgoing),
    /// A pass policy lets it through in clear.
    Pass,
    /// It is a fragment, and kept until the other fragments of its packet are there: for transport mode, or for policies
    /// that look at ports.
    Held,
    /// It is too big for the path, and must not be divided. Its sender is to be told the most octets, which are these.
    TooBig(u16),
    /// It goes nowhere.
    Drop(DropReason),
}

/// How to send an ESP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// The SA.
    pub sa: SaId,
    /// Outer source address.
    pub src: IpAddr,
    /// Outer destination address.
    pub dst: IpAddr,
    /// The UDP or TCP encapsulation and its ports; `None` for IP protocol 50.
    pub encap: Option<Encapsulation>,
    /// Fields of the outer header.
    pub fields: Fields,
    /// Octets of the ESP packet.
    pub len: usize,
}

/// The result for a packet of a batch: a [`Verdict`] that copies nothing.
#[derive(Debug, Clone, Copy)]
pub enum Fate<'a> {
    /// As [`Verdict::Send`].
    Send(Sealed<'a>),
    /// As [`Verdict::Pass`].
    Pass,
    /// As [`Verdict::Held`].
    Held,
    /// As [`Verdict::TooBig`].
    TooBig(u16),
    /// As [`Verdict::Drop`].
    Drop(DropReason),
}

/// An ESP packet and how to send it.
#[derive(Debug, Clone, Copy)]
pub struct Sealed<'a> {
    /// Its SA, which has the path.
    pub sa: &'a Sa,
    /// As in [`Outgoing`].
    pub fields: Fields,
    /// As in [`Outgoing`].
    pub len: usize,
}

impl From<Sealed<'_>> for Outgoing {
    fn from(sealed: Sealed<'_>) -> Self {
        let Sealed { sa, fields, len } = sealed;
        let Path { src, dst, encap } = sa.path;
        Self { sa: sa.id, src, dst, encap, fields, len }
    }
}

impl From<Fate<'_>> for Verdict {
    fn from(fate: Fate<'_>) -> Self {
        match fate {
            Fate::Send(sealed) => Self::Send(sealed.into()),
            Fate::Pass => Self::Pass,
            Fate::Held => Self::Held,
            Fate::TooBig(octets) => Self::TooBig(octets),
            Fate::Drop(reason) => Self::Drop(reason),
        }
    }
}

impl Outbound {
    pub(crate) fn new(shared: Arc<Shared>, rng: Box<dyn SecureRandom>) -> Self {
        let (cache, fragments, tally) =
            (FlowCache::new(), Reassembler::default(), shared.stats.tally());
        Self { shared, cache, fragments, rng, tally, clock: Clock::default() }
    }

    /// Releases state that was removed from the plane, keys among it. Every packet does this as well, so this is
    /// for workers without packets since.
    pub fn renew(&mut self) {
        self.cache.renew(self.shared.generation());
    }

    /// Packets that this worker has dropped for `reason`.
    #[cfg(feature = "tun")]
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.tally.count(reason)
    }

    /// Decides about the IP packet at the start of `packet`, and appends to `out` the ESP packet that
    /// protects it. Unless the verdict is [`Verdict::Send`], `out` stays as it was.
    pub fn handle(&mut self, now: Instant, packet: &[u8], out: &mut Buffer) -> Verdict {
        let mut verdict = Verdict::Held;
        self.handle_batch(now, &[packet], out, |_, fate| verdict = fate.into());
        verdict
    }

    /// As [`Self::handle`] for each of `packets`. `each` is called with the results, in their order. When it is
    /// called for a packet to be sent, that packet is the end of the buffer. Packets of one SA that follow one
    /// another are accounted for together, so this is faster than one by one. For a fragment that completes a packet,
    /// `each` gets the whole packet, or, where a policy lets it through, each of its fragments. For TCP segments that are
    /// too big for the path, `each` gets the smaller ones that replace them.
    #[inline]
    pub fn handle_batch(
        &mut self,
        now: Instant,
        packets: &[&[u8]],
        out: &mut Buffer,
        mut each: impl FnMut(&[u8], Fate<'_>),
    ) {
        let Self { shared, cache, fragments, rng, tally, clock } = self;
        let now = clock.tick(shared, now);
        let mut run = Run { sa: None, items: ArrayVec::new() };
        let mut rest = packets;
        while let Some((&packet, after)) = rest.split_first() {
            rest = after;
            let other = match judge(shared, cache, packet) {
                Ok((sa, item)) => {
                    if !run.takes(sa) {
                        run.seal(shared, rng.as_mut(), now, out, tally, &mut each);
                        run.sa = Some(Arc::clone(sa));
                    }
                    run.items.push(item);
                    continue;
                }
                Err(other) => other,
            };
            run.seal(shared, rng.as_mut(), now, out, tally, &mut each);
            let fate = match other {
                Other::Fragment => match reassemble(fragments, now, packet) {
                    Ok(None) => Fate::Held,
                    Err(BadIp) => Fate::Drop(tally.dropped(DropReason::Incomplete)),
                    Ok(Some(whole)) => {
                        // Ports are seen now, and may make it a matter of another policy.
                        let packet = &*whole.packet;
                        let sa = match judge(shared, cache, packet) {
                            Ok((sa, _)) => Arc::clone(sa),
                            // The packet came in fragments, so the ESP packet may be fragmented.
                            Err(Other::Misfit(sa)) => sa,
                            Err(Other::Pass) => {
                                pass_pieces(&whole, tally, &mut each);
                                continue;
                            }
                            Err(other) => {
                                each(packet, settle(shared, now, packet, other, tally));
                                continue;
                            }
                        };
                        let mut alone = Alone { shared, rng: rng.as_mut(), now, out, tally };
                        alone.seal(&sa, &[packet], &mut each);
                        continue;
                    }
                },
                Other::Misfit(sa) => match fit(shared, now, &sa, packet, &mut rest) {
                    Ok(pieces) => {
                        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
                        let mut alone = Alone { shared, rng: rng.as_mut(), now, out, tally };
                        alone.seal(&sa, &pieces, &mut each);
                        continue;
                    }
                    Err(most) => {
                        tally.dropped(DropReason::TooBig);
                        Fate::TooBig(most)
                    }
                },
                other => settle(shared, now, packet, other, tally),
            };
            each(packet, fate);
        }
        run.seal(shared, rng.as_mut(), now, out, tally, &mut each);
        tally.lost(DropReason::Incomplete, fragments.given_up());
    }
}

/// What becomes of `packet`, which is not sealed and not kept.
#[cold]
fn settle(
    shared: &Shared,
    now: u64,
    packet: &[u8],
    other: Other,
    tally: &mut Tally,
) -> Fate<'static> {
    let reason = match other {
        Other::Pass => {
            tally.passed();
            return Fate::Pass;
        }
        Other::Drop(reason) => reason,
        Other::Trap(policy) => {
            if let Ok(ip) = IpPacket::parse(packet) {
                shared.events.acquire(policy.id, &ip, now);
            }
            DropReason::Trapped
        }
        // What was put together is no fragment.
        Other::Fragment | Other::Misfit(_) => DropReason::Incomplete,
    };
    Fate::Drop(tally.dropped(reason))
}

/// Lets a packet through in fragments as large as those in which it came.
fn pass_pieces(whole: &Whole, tally: &mut Tally, each: &mut impl FnMut(&[u8], Fate<'_>)) {
    let Some(pieces) = split(&whole.packet, whole.largest, whole.id) else {
        return each(&whole.packet, Fate::Drop(tally.dropped(DropReason::Incomplete)));
    };
    for piece in pieces {
        tally.passed();
        each(&piece, Fate::Pass);
    }
}

/// Packets to be sealed under one SA.
struct Run<'p> {
    sa: Option<Arc<Sa>>,
    items: ArrayVec<Item<'p>, RUN>,
}

/// A packet to be sealed.
struct Item<'p> {
    packet: &'p [u8],
    /// The part of it that ESP protects.
    payload: &'p [u8],
    next_header: u8,
    /// Those of the outer header.
    fields: Fields,
}

/// The result for a packet that is not to be sealed as it is.
enum Other {
    Pass,
    Drop(DropReason),
    Trap(Arc<PolicySpec>),
    /// It is a fragment of a packet that has to be whole.
    Fragment,
    /// It is for this SA, but too big for the path, or a SYN whose segment size may be.
    Misfit(Arc<Sa>),
}

/// What is needed to seal packets whose SA is known already.
struct Alone<'a> {
    shared: &'a Shared,
    rng: &'a mut dyn SecureRandom,
    now: u64,
    out: &'a mut Buffer,
    tally: &'a mut Tally,
}

impl Alone<'_> {
    #[cold]
    fn seal(&mut self, sa: &Arc<Sa>, packets: &[&[u8]], each: &mut impl FnMut(&[u8], Fate<'_>)) {
        let Self { shared, rng, now, out, tally } = self;
        for packets in packets.chunks(RUN) {
            let mut run = Run { sa: Some(Arc::clone(sa)), items: ArrayVec::new() };
            for packet in packets {
                match Item::of(sa, packet) {
                    Ok(item) => run.items.push(item),
                    Err(reason) => each(packet, Fate::Drop(tally.dropped(reason))),
                }
            }
            run.seal(shared, *rng, *now, out, tally, each);
        }
    }
}

/// The packets that are sent in place of `packet`, which does not fit the path of `sa` at `now` (ms). An error is the size of
/// the largest packet that fits, for its sender (RFC 4301 §8.2.1).
///
/// An IPv6 packet of 1,280 octets or less is never too big (RFC 8200 §5), and later fragments do not go through an SA that
/// looks at ports. TCP segments are divided, and the ESP packets of other such packets are fragmented. The same is done while
/// it is unknown whether the path carries the packet. Then TCP segments are divided for a second more: senders on this host
/// learn of the size from their route, and lose nothing. Segments at the start of `rest` that are divided together with the
/// packet are taken from it.
#[cold]
fn fit(
    shared: &Shared,
    now: u64,
    sa: &Arc<Sa>,
    packet: &[u8],
    rest: &mut &[&[u8]],
) -> Result<Vec<Vec<u8>>, u16> {
    let mut whole = packet.to_vec();
    let Fit { limit, untried, .. } = sa.fit();
    let mut segments = || {
        let (pieces, joined) = segments::divide(packet, rest, limit)?;
        *rest = rest.get(joined..).unwrap_or_default();
        Some(pieces)
    };
    if untried {
        shared.ask_for_probe(sa, now);
        return Ok(segments().unwrap_or_else(|| vec![whole]));
    }
    if packet.len() <= usize::from(limit) {
        mss::lower(&mut whole, limit);
        return Ok(vec![whole]);
    }
    // A sender that is told sends all again that it has on its way, also what has arrived.
    if sa.was_refitted(now)
        && let Some(segments) = segments()
    {
        return Ok(segments);
    }
    let Ok(ip) = IpPacket::parse(packet) else { return Ok(vec![whole]) };
    let most = if ip.dst.is_ipv4() { limit } else { limit.max(LEAST_V6) };
    if ip.dont_fragment && packet.len() > usize::from(most) {
        return Err(most);
    }
    if packet.len() <= usize::from(most)
        && let Some(segments) = segments()
    {
        return Ok(segments);
    }
    let divides = !ip.dont_fragment && sa.contents == Contents::Packet && !sa.looks_at_ports();
    let pieces = if divides { split(packet, limit.into(), 0) } else { None };
    Ok(pieces.unwrap_or_else(|| vec![whole]))
}

impl<'p> Run<'p> {
    #[inline]
    fn takes(&self, sa: &Arc<Sa>) -> bool {
        !self.items.is_full() && self.sa.as_ref().is_some_and(|own| Arc::ptr_eq(own, sa))
    }

    /// Seals all there is, each packet behind the one before.
    #[inline]
    fn seal(
        &mut self,
        shared: &Shared,
        rng: &mut dyn SecureRandom,
        now: u64,
        out: &mut Buffer,
        tally: &mut Tally,
        each: &mut impl FnMut(&[u8], Fate<'_>),
    ) {
        let Some(sa) = self.sa.take() else { return };
        let sa = &*sa;
        let len = self.items.iter().map(|item| item.payload.len() as u64).sum();
        let mut first = sa.take_sequences(self.items.len() as u64, len, now);
        let mut sealed = 0;
        let least = sa.least_payload(shared.mtu().min(sa.fit().limit.into()));
        for item in &self.items {
            let seq = match &mut first {
                Some(next) => Ok(std::mem::replace(next, *next + 1)),
                None => one_sequence(shared, sa, item.payload.len(), now),
            };
            let start = out.len();
            let fate = match seq.and_then(|seq| item.seal(sa, seq, least, rng, out)) {
                Ok(()) => {
                    sealed += 1;
                    Fate::Send(Sealed { sa, fields: item.fields, len: out.len() - start })
                }
                Err(reason) => Fate::Drop(tally.dropped(reason)),
            };
            each(item.packet, fate);
        }
        self.items.clear();
        tally.sealed(sealed);
    }
}

impl<'p> Item<'p> {
    /// `packet`, which `sa` is to carry, whatever its size. If it does not fit the path, the ESP packet may be fragmented.
    fn of(sa: &Sa, packet: &'p [u8]) -> Result<Self, DropReason> {
        let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
        let packet = packet.get(..ip.total_len).ok_or(DropReason::Malformed)?;
        let (next_header, payload, mut fields) = match sa.contents {
            Contents::Packet => {
                let fields = sa.copied.outside(ip.tos, ip.dont_fragment);
                (ip.tunnel_protocol(), packet, fields)
            }
            Contents::Payload => transport_payload(sa, packet)?,
        };
        if packet.len() > usize::from(sa.longest()) {
            return Err(DropReason::TooBig);
        }
        let Fit { limit, divided, .. } = sa.fit();
        let fits = packet.len() <= usize::from(limit);
        fields.dont_fragment = stays_whole(sa, &fields) && fits && !divided;
        Ok(Self { packet, payload, next_header, fields })
    }
}

impl Item<'_> {
    #[inline]
    fn seal(
        &self,
        sa: &Sa,
        seq: u64,
        least: usize,
        rng: &mut dyn SecureRandom,
        out: &mut Buffer,
    ) -> Result<(), DropReason> {
        let Self { payload, next_header, .. } = *self;
        let lengths = &sa.cipher.lengths;
        let counter = seq.to_be_bytes();
        let mut other = [0; MAX_IV];
        let iv = if lengths.iv_kind == IvKind::Counter && lengths.iv == counter.len() {
            &counter
        } else {
            let iv = other.get_mut(..lengths.iv).ok_or(DropReason::Crypto)?;
            make_iv(lengths.iv_kind, seq, rng, iv);
            &*iv
        };
        let sealed = match least.checked_sub(payload.len()) {
            None | Some(0) => sa.cipher.seal(sa.id.spi, seq, iv, next_header, payload, out),
            Some(more) => {
                sa.cipher.seal_padded((sa.id.spi, seq), iv, next_header, (payload, more), out)
            }
        };
        sealed.map_err(|_| DropReason::Crypto)
    }
}

/// The sequence number of a packet where a limit of its SA may be near.
fn one_sequence(shared: &Shared, sa: &Sa, len: usize, now: u64) -> Result<u64, DropReason> {
    let (seq, soft) = sa.take_sequence(len, now).map_err(|spent| {
        let (exhausted, reason) = match spent {
            Spent::Limit(exhausted) => (exhausted, DropReason::SaExpired),
            Spent::Sequence(exhausted) => (exhausted, DropReason::SequenceOverflow),
        };
        if exhausted.first {
            shared.events.push(Event::HardExpire(sa.id));
        }
        reason
    })?;
    if soft {
        shared.events.push(Event::SoftExpire(sa.id));
    }
    Ok(seq)
}

/// The treatment of `packet`: seal it under an SA, or something else.
#[inline(always)]
fn judge<'c, 'p>(
    shared: &Shared,
    cache: &'c mut FlowCache,
    packet: &'p [u8],
) -> Result<(&'c Arc<Sa>, Item<'p>), Other> {
    parse_each!(packet, |BadIp| Other::Drop(DropReason::Malformed), |ip| {
        let decide = || decide(shared, packet);
        let sa = match cache.get_or_insert(shared.generation(), &FlowKey::new(&ip), decide) {
            Decision::Protect(sa) => sa,
            Decision::Assemble => return Err(Other::Fragment),
            Decision::Pass => return Err(Other::Pass),
            Decision::Drop(reason) => return Err(Other::Drop(*reason)),
            Decision::Trap(policy) => return Err(Other::Trap(Arc::clone(policy))),
        };
        let packet = packet.get(..ip.total_len).ok_or(Other::Drop(DropReason::Malformed))?;
        let fragment = sa.contents == Contents::Payload && ip.fragment != Fragment::None;
        let Fit { limit, narrow, divided, untried } = sa.fit();
        let fits = packet.len() <= usize::from(limit);
        // On an untried path, the answer to a probe comes with that to the SYN.
        if !fragment && (!fits || (narrow || untried) && mss::opens(packet, &ip)) {
            return Err(Other::Misfit(Arc::clone(sa)));
        }
        let (next_header, payload, mut fields) = match sa.contents {
            Contents::Packet => {
                let fields = sa.copied.outside(ip.tos, ip.dont_fragment);
                (ip.tunnel_protocol(), packet, fields)
            }
            Contents::Payload if ip.fragment != Fragment::None => return Err(Other::Fragment),
            Contents::Payload => transport_payload(sa, packet).map_err(Other::Drop)?,
        };
        fields.dont_fragment = stays_whole(sa, &fields) && !divided;
        Ok((sa, Item { packet, payload, next_header, fields }))
    })
}

/// True if an ESP packet under `fields` that fits the path of `sa` must not be divided. Over IPv6 no router divides, so a packet
/// that fits needs no fragments.
#[inline(always)]
fn stays_whole(sa: &Sa, fields: &Fields) -> bool {
    fields.dont_fragment || sa.path.dst.is_ipv6()
}

/// Takes in a fragment; the whole packet if it was the last to come.
fn reassemble(
    fragments: &mut Reassembler,
    now: u64,
    packet: &[u8],
) -> Result<Option<Whole>, BadIp> {
    fragments.add(now, packet, &IpPacket::parse(packet)?).map_err(|_| BadIp)
}

/// The decision of the policies for the flow of `ip`.
#[cold]
fn decide(shared: &Shared, packet: &[u8]) -> Decision {
    let Ok(ip) = IpPacket::parse(packet) else { return Decision::Drop(DropReason::Malformed) };
    let tables = shared.tables();
    let (local, remote) = sides(&ip);
    if ip.fragment != Fragment::None && tables.spd.needs_whole(&local, &remote) {
        return Decision::Assemble;
    }
    let policy = tables.spd.find(&local, &remote);
    let goes_on = |action| matches!(action, &PolicyAction::Protect { .. } | &PolicyAction::Pass);
    if !policy.is_some_and(|policy| goes_on(&policy.action))
        && looping::may_be_own_outer(&tables.sad, &ip)
    {
        return Decision::Drop(DropReason::OwnOuter);
    }
    let Some(policy) = policy else { return Decision::Drop(DropReason::NoPolicy) };
    let outbound = match &policy.action {
        PolicyAction::Protect { outbound, .. } => *outbound,
        PolicyAction::Trap => return Decision::Trap(Arc::clone(policy)),
        PolicyAction::Pass => return Decision::Pass,
        PolicyAction::Drop => return Decision::Drop(DropReason::PolicyDrop),
        PolicyAction::Shunt { silent: true } => return Decision::Drop(DropReason::NoSa),
        PolicyAction::Shunt { silent: false } | PolicyAction::Hold { .. } => {
            return Decision::Drop(DropReason::Blocked);
        }
    };
    // Without its SA a protect policy drops: nothing it covers leaves in clear.
    let Some(sa) = outbound.and_then(|id| tables.sad.get(id)) else {
        return Decision::Drop(DropReason::NoSa);
    };
    if sa.direction != Direction::Out {
        return Decision::Drop(DropReason::NoSa);
    }
    // Later fragments show no ports: the packet that they make may be an outer packet, or one from this host to the peer.
    let divided = ip.fragment != Fragment::None;
    let seen = if divided { IpPacket { ports: None, ..ip } } else { ip };
    if looping::comes_back(&tables.sad, &tables.spd, sa, &seen) {
        return if divided { Decision::Assemble } else { Decision::Drop(DropReason::OwnOuter) };
    }
    if !sa.admits(&local, &remote) {
        return Decision::Drop(DropReason::Selectors);
    }
    Decision::Protect(Arc::clone(sa))
}

/// The part of `packet` that goes into a transport mode ESP packet (RFC 4303 §3.1.1): everything behind the IP
/// header. The front end makes the header in front of ESP, with the fields of that header. So a packet with options or
/// extension headers that belong there cannot be carried.
#[inline(never)]
fn transport_payload<'a>(sa: &Sa, packet: &'a [u8]) -> Result<(u8, &'a [u8], Fields), DropReason> {
    // Parsed again, so that the caller's copy stays in registers.
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    if ip.fragment != Fragment::None {
        return Err(DropReason::TransportFragment);
    }
    if ip.dst != sa.path.dst {
        return Err(DropReason::Selectors);
    }
    let headers = match ip.dst {
        IpAddr::V4(_) => ip.base_len != IPV4_HEADER,
        IpAddr::V6(_) => matches!(ip.base_next, proto::HOP_BY_HOP | proto::ROUTING),
    };
    if headers {
        return Err(DropReason::TransportHeaders);
    }
    let payload = packet.get(ip.base_len..).ok_or(DropReason::Malformed)?;
    let fields = Fields::of(packet).ok_or(DropReason::Malformed)?;
    Ok((ip.base_next, payload, fields))
}

/// An IV that never repeats under a key: the sequence number does not either. A random one for CBC.
fn make_iv(kind: IvKind, seq: u64, rng: &mut dyn SecureRandom, iv: &mut [u8]) {
    match kind {
        IvKind::Random => rng.fill(iv),
        IvKind::Counter => {
            for (octet, count) in iv.iter_mut().rev().zip(seq.to_be_bytes().into_iter().rev()) {
                *octet = count;
            }
        }
    }
}
