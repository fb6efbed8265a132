//! ESP packets on their way in (RFC 4301 §5.2, RFC 4303 §3.4).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use ipsec_types::dataplane::{Encapsulation, Event, PolicyAction};

use crate::buffer::Buffer;
use crate::fields::Fields;
use crate::ip::{self, BadIp, Fragment, IpPacket, parse_each, proto};
use crate::mss;
use crate::packet;
use crate::plane::{Clock, RUN, Shared};
use crate::sad::{Accepted, Contents, Fit, Refused, Sa};
use crate::selector::sides;
use crate::slots::Slots;
use crate::stats::{DropReason, Tally};

/// Opens ESP packets. One per thread; it remembers the SAs it has seen.
pub struct Inbound {
    shared: Arc<Shared>,
    cache: Slots<(u32, IpAddr), Arc<Sa>>,
    tally: Tally,
    clock: Clock,
}

/// The headers that an ESP packet arrived under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// Source address; the port is 0 for ESP over IP.
    pub src: SocketAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Further fields; the default if the front end cannot know them. The ECN bits are enough unless
    /// [`Plane::needs_outer_fields`](crate::Plane::needs_outer_fields) is true.
    pub fields: Fields,
    /// The carrier of the packet.
    pub carrier: Carrier,
}

/// The carriers of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// IP, as protocol 50.
    Ip,
    /// UDP (RFC 3948).
    Udp,
    /// TCP (RFC 9329).
    Tcp,
}

impl Inbound {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let tally = shared.stats.tally();
        Self { shared, cache: Slots::new(), tally, clock: Clock::default() }
    }

    /// Releases state that was removed from the plane, keys among it. Every packet does this as well, so this is
    /// for workers without packets since.
    pub fn renew(&mut self) {
        self.cache.renew(self.shared.generation());
    }

    /// Opens `esp` and appends the IP packet it protects to `out`; returns its length. On an error `out`
    /// stays as it was.
    pub fn handle(
        &mut self,
        now: Instant,
        outer: &Outer,
        esp: &[u8],
        out: &mut Buffer,
    ) -> Result<usize, DropReason> {
        let mut result = Err(DropReason::Truncated);
        self.handle_batch(now, outer, &[esp], std::slice::from_mut(out), |that| result = that);
        result
    }

    /// As [`Self::handle`] for each of `packets`, which arrived under the same headers. The content of each is
    /// appended to a buffer of `out` of its own, in their order. Returns the number of buffers filled; the other
    /// buffers are unchanged. Buffers change places if packets of a run turn out to be copies. `each` is called
    /// with the results, in the order of the packets. If there are fewer buffers than packets, the remaining
    /// packets are dropped. Packets of one SA that follow one another are accounted for together, so this is
    /// faster than one by one.
    #[inline]
    pub fn handle_batch(
        &mut self,
        now: Instant,
        outer: &Outer,
        packets: &[&[u8]],
        out: &mut [Buffer],
        mut each: impl FnMut(Result<usize, DropReason>),
    ) -> usize {
        let Self { shared, cache, tally, clock } = self;
        let now = clock.tick(shared, now);
        let (mut rest, mut filled) = (packets, 0);
        while let Some(first) = rest.first() {
            let spi = spi_of(first);
            let count = rest.iter().take(RUN).take_while(|esp| spi_of(esp) == spi).count();
            let (run, others) = rest.split_at(count);
            rest = others;
            let sa = spi.ok_or(DropReason::Truncated).and_then(|spi| {
                let sa = lookup(shared, cache, spi, outer.dst)?;
                if sa.exhausted() { Err(DropReason::SaExpired) } else { Ok(sa) }
            });
            let free = out.get_mut(filled..).unwrap_or_default();
            match sa {
                Ok(sa) => filled += open_run(shared, tally, now, outer, sa, run, free, &mut each),
                Err(reason) => {
                    if let (DropReason::UnknownSpi, Some(spi)) = (reason, spi) {
                        shared.events.unknown_spi(spi, outer, first.len(), now);
                    }
                    run.iter().for_each(|_| each(Err(tally.dropped(reason))));
                }
            }
        }
        filled
    }

    /// Checks a packet that arrived in clear, for a front end that sees such packets. A packet that a policy
    /// protects must not arrive in clear (RFC 4301 §5.2).
    pub fn handle_clear(&mut self, packet: &[u8]) -> Result<(), DropReason> {
        let verdict = match IpPacket::parse(packet) {
            Err(_) => Err(DropReason::Malformed),
            Ok(ip) => {
                let (remote, local) = sides(&ip);
                match self.shared.tables().spd.find(&local, &remote).map(|p| &p.action) {
                    Some(PolicyAction::Pass) => Ok(()),
                    Some(PolicyAction::Drop) => Err(DropReason::PolicyDrop),
                    Some(
                        PolicyAction::Protect { .. }
                        | PolicyAction::Trap
                        | PolicyAction::Shunt { .. }
                        | PolicyAction::Hold { .. },
                    ) => Err(DropReason::Unprotected),
                    None => Err(DropReason::NoPolicy),
                }
            }
        };
        verdict.map_err(|reason| self.tally.dropped(reason))
    }
}

/// SPI of an ESP packet, if it has a header at all.
#[inline]
fn spi_of(esp: &[u8]) -> Option<u32> {
    packet::header(esp).map(|(spi, _)| spi)
}

/// The result for a packet of a run.
struct Item {
    /// It is authentic: this sequence number, and so many octets of payload data.
    authentic: bool,
    seq: u64,
    payload: usize,
    /// Why it is dropped, or else the length of the IP packet.
    dropped: Option<DropReason>,
    len: usize,
    /// The length of its buffer before, and whether it has one.
    before: usize,
    filled: bool,
}

/// Opens packets of one SA into the first buffers of `out`; returns into how many.
#[inline]
#[expect(clippy::too_many_arguments, reason = "a loop taken out of its function")]
fn open_run(
    shared: &Shared,
    tally: &mut Tally,
    now: u64,
    outer: &Outer,
    sa: &Sa,
    run: &[&[u8]],
    out: &mut [Buffer],
    each: &mut impl FnMut(Result<usize, DropReason>),
) -> usize {
    let mut items = ArrayVec::<Item, RUN>::new();
    let mut filled = 0;
    for esp in run.iter().take(RUN) {
        let (mut seq, mut payload, mut authentic) = (0, 0, false);
        let (mut dropped, mut len, mut before) = (Some(DropReason::QueueFull), 0, 0);
        if let Some(buffer) = out.get_mut(filled) {
            before = buffer.len();
            let result = open(sa, outer, esp, buffer, |of_seq, of_payload| {
                (seq, payload, authentic) = (of_seq, of_payload, true);
            });
            match result {
                Ok(of) => (len, dropped) = (of, None),
                Err(reason) => dropped = Some(reason),
            }
            buffer.truncate(before + len);
            filled += usize::from(dropped.is_none());
        }
        let filled = dropped.is_none();
        items.push(Item { authentic, seq, payload, dropped, len, before, filled });
    }

    let (remote, expected) = ends(sa, outer);
    let mut news = Accepted::default();
    let mut hard = false;
    let mut accepting = sa.accepting(now, remote, expected);
    for item in items.iter_mut().filter(|item| item.authentic) {
        match accepting.accept(item.seq, item.payload) {
            Ok(Accepted { first, soft, moved }) => {
                news.first |= first;
                news.soft |= soft;
                news.moved |= moved;
            }
            Err(Refused::Replayed) => item.dropped = Some(DropReason::Replay),
            Err(Refused::Exhausted(exhausted)) => {
                hard |= exhausted.first;
                item.dropped = Some(DropReason::SaExpired);
            }
        }
    }
    drop(accepting);
    if hard || news != Accepted::default() {
        tell(shared, sa, outer, news, hard);
    }

    let mut opened = 0;
    for item in &items {
        let Some(reason) = item.dropped else {
            opened += 1;
            each(Ok(item.len));
            continue;
        };
        if item.filled {
            // Authentic, but a copy. The next packet takes its place.
            let left = out.get_mut(opened..filled).unwrap_or_default();
            left.rotate_left(1);
            left.last_mut().into_iter().for_each(|buffer| buffer.truncate(item.before));
            filled -= 1;
        }
        each(Err(tally.dropped(reason)));
    }
    tally.opened(opened as u64);
    opened
}

/// Opens one packet and checks its content. Returns the length of the IP packet, which is appended to `out`. Calls
/// `authentic` with the sequence number and the octets of payload data once the packet is authentic.
#[inline(always)]
fn open(
    sa: &Sa,
    outer: &Outer,
    esp: &[u8],
    out: &mut Buffer,
    authentic: impl FnOnce(u64, usize),
) -> Result<usize, DropReason> {
    let (_, low) = packet::header(esp).ok_or(DropReason::Truncated)?;
    let seq = sa.check_replay(low).ok_or(DropReason::Replay)?;
    let start = out.len();
    // The header that transport mode puts in front of the payload.
    let header = match (sa.contents, outer.dst) {
        (Contents::Packet, _) => 0,
        (Contents::Payload, IpAddr::V4(_)) => ip::IPV4_HEADER,
        (Contents::Payload, IpAddr::V6(_)) => ip::IPV6_HEADER,
    };
    out.append(header);
    let opened = sa.cipher.open(esp, seq, out)?;
    authentic(seq, opened.payload);

    let packet = out.get_mut(start..).ok_or(DropReason::Truncated)?;
    match (opened.next_header, sa.contents) {
        (proto::NONE, _) => Err(DropReason::Dummy),
        (proto::IPV4 | proto::IPV6, Contents::Packet) => {
            tunnel(sa, outer, opened.next_header, packet)
        }
        (_, Contents::Packet) => Err(DropReason::NextHeader),
        (next, Contents::Payload) => transport(sa, outer, next, header, packet),
    }
}

#[inline]
fn lookup<'a>(
    shared: &Shared,
    cache: &'a mut Slots<(u32, IpAddr), Arc<Sa>>,
    spi: u32,
    dst: IpAddr,
) -> Result<&'a Sa, DropReason> {
    let find = || shared.tables().sad.inbound(spi, dst).cloned().ok_or(DropReason::UnknownSpi);
    // This end chose the SPIs in use at random, except for the top octet, which is the shard.
    let found = cache.get_or_try_insert(shared.generation(), u64::from(spi), &(spi, dst), find);
    found.map(|sa| &**sa)
}

/// Where packets under `outer` come from, if that may be where the peer is now, and where it was.
#[inline]
fn ends(sa: &Sa, outer: &Outer) -> (Option<SocketAddr>, SocketAddr) {
    let (carrier, port) = match sa.path.encap {
        Some(Encapsulation::Udp(ports)) => (Carrier::Udp, ports.src_port),
        //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
        //# It SHOULD choose the TCP connection on which it last received
        //# a valid and decryptable IKE or ESP message.
        Some(Encapsulation::Tcp(ports)) => (Carrier::Tcp, ports.src_port),
        None => (Carrier::Ip, 0),
    };
    let moves = carrier != Carrier::Ip && outer.carrier == carrier;
    (moves.then_some(outer.src), SocketAddr::new(sa.path.src, port))
}

/// Raises the events that follow from accepted packets.
#[cold]
fn tell(shared: &Shared, sa: &Sa, outer: &Outer, news: Accepted, hard: bool) {
    let events = &shared.events;
    if news.first {
        events.push(Event::FirstPacket(sa.id));
    }
    if news.soft {
        events.push(Event::SoftExpire(sa.id));
    }
    if news.moved {
        events.push(Event::Mapping { sa: sa.id, remote: outer.src });
    }
    if hard {
        events.push(Event::HardExpire(sa.id));
    }
}

/// Checks the payload of tunnel mode, and sets the ECN bits of its packet as RFC 6040 says. Returns the length of
/// the packet. The octets after it are TFC padding (RFC 4303 §2.7).
#[inline(always)]
fn tunnel(
    sa: &Sa,
    outer: &Outer,
    next_header: u8,
    payload: &mut [u8],
) -> Result<usize, DropReason> {
    let (len, inner, syn) = parse_each!(payload, |BadIp| DropReason::InnerMalformed, |ip| {
        if ip.tunnel_protocol() != next_header {
            return Err(DropReason::NextHeader);
        }
        let (remote, local) = sides(&ip);
        if !sa.admits(&local, &remote) {
            return Err(DropReason::Selectors);
        }
        (ip.total_len, ip.tos, sa.fit().narrow && mss::opens(payload, &ip))
    });
    let tos = sa.copied.inside(inner, outer.fields.tos).ok_or(DropReason::Congestion)?;
    if tos != inner {
        ip::set_tos(payload, tos);
    }
    if syn {
        mss::lower(payload, sa.fit().limit);
    }
    Ok(len)
}

/// Makes a packet of a transport mode payload, which begins `header` octets into `packet`. Its header has the fields of the
/// outer header. Returns its length.
fn transport(
    sa: &Sa,
    outer: &Outer,
    next_header: u8,
    header: usize,
    packet: &mut [u8],
) -> Result<usize, DropReason> {
    let (src, dst) = (outer.src.ip(), outer.dst);
    let payload_len = packet.len().saturating_sub(header);
    let (mut octets, len) = ip::header(src, dst, outer.fields.tos, next_header, payload_len)
        .filter(|(_, len)| *len == header)
        .ok_or(DropReason::InnerMalformed)?;
    ip::set_fields(octets.get_mut(..len).unwrap_or_default(), &outer.fields);
    let place = packet.get_mut(..header).ok_or(DropReason::InnerMalformed)?;
    place.copy_from_slice(octets.get(..len).unwrap_or_default());
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::InnerMalformed)?;
    if ip.fragment != Fragment::None {
        return Err(DropReason::TransportFragment);
    }
    let (remote, local) = sides(&ip);
    if !sa.admits(&local, &remote) {
        return Err(DropReason::Selectors);
    }
    let Fit { limit, narrow, .. } = sa.fit();
    if narrow {
        mss::lower(packet, limit);
    }
    if outer.carrier != Carrier::Ip {
        ip::fix_checksum(src, dst, next_header, packet.get_mut(len..).unwrap_or_default());
    }
    Ok(packet.len())
}
