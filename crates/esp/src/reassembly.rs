//! Whole packets from fragments on their way into transport mode, or past selectors that look at ports.
//!
//! RFC 4303 §3.3.4: transport mode ESP "is applied only to whole IP datagrams (not to IP fragments)". And where a policy
//! looks at ports, or at type and code, fragments do not show which policy they are of: RFC 4301 §7.3 forbids to send
//! the later ones through an SA with such selectors, unless both ends have agreed to it.
//! The host above a TUN device fragments to its MTU before the packet gets here, so the packet is put
//! together again; ESP is applied, and IP may fragment the result.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::ip::{self, IPV6_HEADER, IpPacket, proto};
use crate::tos::ECN_MASK;

/// Packets in the making; with more, the oldest is given up.
const MAX_PACKETS: usize = 32;

/// Packets in the making from one source; with more, the oldest of that source is given up.
const MAX_OF_SOURCE: usize = 8;

/// Milliseconds until the last fragment has to be there. Fragments come from this host or a network behind it, one after
/// the other.
const TIMEOUT: u64 = 2000;

/// The most fragments of one packet. Together with the size and the number of packets this bounds the memory.
const MAX_PIECES: usize = 1024;

/// Octets by which an atomic fragment may be longer than one of whole units of eight.
const ATOMIC: usize = 8;

/// Octets behind the IP header at most.
const MAX_PAYLOAD: usize = 65535 - ip::IPV4_HEADER;

/// Fragments that do not fit together, or to be given up for another reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadFragment;

/// Puts packets together. Each worker has its own.
#[derive(Default)]
pub(crate) struct Reassembler {
    packets: HashMap<Key, Partial>,
    /// Fragments of packets that were given up, since the last call of [`Self::given_up`].
    given_up: u64,
}

/// A packet that was put together.
pub(crate) struct Whole {
    pub(crate) packet: Vec<u8>,
    /// Octets of its largest fragment.
    pub(crate) largest: usize,
    /// The identification of its fragments.
    pub(crate) id: u32,
}

/// Fragments with all of this in common belong together (RFC 791 §2.3, RFC 8200 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    id: u32,
}

struct Partial {
    started: u64,
    /// Fragments taken in, and octets of the largest.
    pieces: usize,
    largest: usize,
    /// The TOS of the first fragment, and the ECN fields of all.
    tos: u8,
    ecn: [bool; 4],
    /// The headers in front of the payload, from the first fragment.
    header: Vec<u8>,
    payload: Vec<u8>,
    /// Ranges received, in order, not touching each other.
    received: Vec<(usize, usize)>,
    /// Where the payload ends, once the last fragment is there.
    end: Option<usize>,
}

/// One fragment, parsed.
struct Piece<'a> {
    key: Key,
    /// The headers in front of the payload in every fragment, and where in them the protocol of the payload belongs.
    header: &'a [u8],
    next_at: usize,
    /// Octets of the fragment.
    len: usize,
    payload: &'a [u8],
    offset: usize,
    more: bool,
    tos: u8,
}

impl Reassembler {
    /// Takes the fragment `packet` at `now` (ms); returns the packet it completes.
    pub(crate) fn add(
        &mut self,
        now: u64,
        packet: &[u8],
        ip: &IpPacket,
    ) -> Result<Option<Whole>, BadFragment> {
        let piece = Piece::read(packet, ip).ok_or(BadFragment)?;
        if piece.offset == 0 && !piece.more {
            // RFC 6946: an atomic fragment has nothing to do with others, whatever their identification.
            let mut alone = Partial::new(now);
            let complete = alone.add(&piece)?;
            let whole = alone.finish().filter(|_| complete).ok_or(BadFragment)?;
            return Ok(Some(Whole {
                packet: whole,
                largest: piece.len + ATOMIC,
                id: piece.key.id,
            }));
        }
        if !self.packets.get(&piece.key).is_some_and(|partial| partial.is_awaited(now)) {
            self.make_room(now, piece.key.src);
        }
        let key = piece.key;
        let partial = self.packets.entry(key).or_insert_with(|| Partial::new(now));
        match partial.add(&piece) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let partial = self.packets.remove(&key).ok_or(BadFragment)?;
                let (largest, pieces) = (partial.largest, partial.pieces);
                let whole = partial.finish().map(|packet| Whole { packet, largest, id: key.id });
                if whole.is_none() {
                    self.lose(pieces - 1);
                }
                whole.map(Some).ok_or(BadFragment)
            }
            Err(bad) => {
                // RFC 5722: with an overlap the whole packet is given up.
                let pieces = self.packets.remove(&key).map_or(0, |partial| partial.pieces);
                self.lose(pieces);
                Err(bad)
            }
        }
    }

    /// How many fragments were kept and then given up since the last call, because their packets did not become whole. A
    /// fragment that [`Self::add`] refused is not among them.
    pub(crate) fn given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    fn lose(&mut self, pieces: usize) {
        self.given_up += pieces as u64;
    }

    /// Gives up what has waited for too long, and more where there is no room for a packet from `src`.
    fn make_room(&mut self, now: u64, src: IpAddr) {
        let mut lost = 0;
        self.packets.retain(|_, partial| {
            let stays = partial.is_awaited(now);
            lost += if stays { 0 } else { partial.pieces };
            stays
        });
        self.lose(lost);
        if self.packets.keys().filter(|key| key.src == src).count() >= MAX_OF_SOURCE {
            self.give_up_oldest(|key| key.src == src);
        }
        if self.packets.len() >= MAX_PACKETS {
            self.give_up_oldest(|_| true);
        }
    }

    fn give_up_oldest(&mut self, among: impl Fn(&Key) -> bool) {
        let some = self.packets.iter().filter(|(key, _)| among(key));
        let oldest = some.min_by_key(|(_, partial)| partial.started).map(|(&key, _)| key);
        let oldest = oldest.and_then(|key| self.packets.remove(&key));
        self.lose(oldest.map_or(0, |partial| partial.pieces));
    }
}

impl Partial {
    fn new(started: u64) -> Self {
        let (header, payload, received) = (Vec::new(), Vec::new(), Vec::new());
        let (tos, ecn) = (0, [false; 4]);
        Self { started, pieces: 0, largest: 0, tos, ecn, header, payload, received, end: None }
    }

    fn is_awaited(&self, now: u64) -> bool {
        now.saturating_sub(self.started) < TIMEOUT
    }

    /// True if all of `piece` is there already. RFC 8200 §4.5 lets the network duplicate fragments.
    fn has(&self, piece: &Piece<'_>) -> bool {
        let (start, stop) = (piece.offset, piece.offset + piece.payload.len());
        let within = self.received.iter().any(|&(from, to)| from <= start && stop <= to);
        let ends = piece.more || self.end == Some(stop);
        within && ends && self.payload.get(start..stop) == Some(piece.payload)
    }

    /// True if the packet is complete.
    fn add(&mut self, piece: &Piece<'_>) -> Result<bool, BadFragment> {
        let (start, stop) = (piece.offset, piece.offset + piece.payload.len());
        let ragged = piece.more && !piece.payload.len().is_multiple_of(8);
        let beyond = self.end.is_some_and(|end| stop > end || !piece.more && stop != end);
        let many = self.pieces >= MAX_PIECES;
        if piece.payload.is_empty() || stop > MAX_PAYLOAD || ragged || beyond || many {
            return Err(BadFragment);
        }
        if self.has(piece) {
            return Ok(false);
        }
        if !piece.more {
            self.end = Some(stop);
        }
        let at = self.received.partition_point(|&(_, end)| end <= start);
        if self.received.get(at).is_some_and(|&(next, _)| next < stop) {
            return Err(BadFragment);
        }
        self.received.insert(at, (start, stop));
        self.received.dedup_by(|next, before| {
            let touch = before.1 == next.0;
            if touch {
                before.1 = next.1;
            }
            touch
        });
        if start == 0 {
            self.tos = piece.tos;
            self.header = piece.header.to_vec();
            // The field that names the fragment header has to name the header after it.
            *self.header.get_mut(piece.next_at).ok_or(BadFragment)? = piece.key.protocol;
        }
        self.pieces += 1;
        if let Some(seen) = self.ecn.get_mut(usize::from(piece.tos & ECN_MASK)) {
            *seen = true;
        }
        self.largest = self.largest.max(piece.len);
        if self.payload.len() < stop {
            self.payload.resize(stop, 0);
        }
        self.payload.get_mut(start..stop).ok_or(BadFragment)?.copy_from_slice(piece.payload);
        match self.end {
            Some(end) if self.payload.len() > end => Err(BadFragment),
            Some(end) => Ok(self.received == [(0, end)]),
            None => Ok(false),
        }
    }

    /// The whole packet.
    fn finish(self) -> Option<Vec<u8>> {
        let Self { mut header, payload, tos, ecn: [not_ect, _, _, congestion], .. } = self;
        if congestion {
            // RFC 3168 §5.3: congestion of a fragment is that of the packet, which is dropped if its flow does not
            // understand it.
            if not_ect {
                return None;
            }
            ip::set_tos(&mut header, tos | ECN_MASK);
        }
        match header.first()? >> 4 {
            4 => {
                let len = u16::try_from(header.len() + payload.len()).ok()?;
                header.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
                header.get_mut(6..8)?.fill(0);
                header.get_mut(10..12)?.fill(0);
                let sum = ip::checksum(&[&header]);
                header.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
            }
            _ => {
                let extensions = header.len().checked_sub(IPV6_HEADER)?;
                let len = u16::try_from(extensions + payload.len()).ok()?;
                header.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
            }
        }
        header.extend_from_slice(&payload);
        Some(header)
    }
}

impl<'a> Piece<'a> {
    fn read(packet: &'a [u8], ip: &IpPacket) -> Option<Self> {
        let packet = packet.get(..ip.total_len)?;
        let (len, tos) = (packet.len(), ip.tos);
        let key = |protocol, id| Key { src: ip.src, dst: ip.dst, protocol, id };
        if ip.dst.is_ipv4() {
            let (header, payload) = packet.split_at_checked(ip.base_len)?;
            let id = u16::from_be_bytes(*header.get(4..)?.first_chunk()?);
            let field = u16::from_be_bytes(*header.get(6..)?.first_chunk()?);
            let (offset, more) = (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
            let key = key(ip.base_next, id.into());
            return Some(Self { key, header, next_at: 9, len, payload, offset, more, tos });
        }
        let (next_at, at) = ip::fragmentable(packet)?;
        if *packet.get(next_at)? != proto::FRAGMENT {
            return None;
        }
        let (header, rest) = packet.split_at_checked(at)?;
        let (&[next, _, o0, o1, i0, i1, i2, i3], payload) = rest.split_first_chunk()?;
        let field = u16::from_be_bytes([o0, o1]);
        let (offset, more) = (usize::from(field & !7), field & 1 != 0);
        let key = key(next, u32::from_be_bytes([i0, i1, i2, i3]));
        Some(Self { key, header, next_at, len, payload, offset, more, tos })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::split;

    /// A packet of either version, and its four fragments with the identification `id`.
    fn packet(v6: bool, source: u8, id: u8, tos: u8) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (src, dst): (IpAddr, IpAddr) = match v6 {
            false => ([10, 1, 0, source].into(), [10, 2, 0, 1].into()),
            true => ([9, 0, 0, 0, 0, 0, 0, source.into()].into(), [9, 0, 0, 0, 0, 0, 1, 1].into()),
        };
        let (head, len) = ip::header(src, dst, tos, proto::UDP, 2000).unwrap();
        let mut whole = [&head[..len], &[source; 2000]].concat();
        if !v6 {
            (whole[5], whole[6]) = (id, 0);
            whole[10..12].fill(0);
            let sum = ip::checksum(&[&whole[..len]]).to_be_bytes();
            whole[10..12].copy_from_slice(&sum);
        }
        let pieces = split(&whole, 600, id.into()).unwrap();
        assert_eq!(pieces.len(), 4);
        (whole, pieces)
    }

    fn add(to: &mut Reassembler, now: u64, piece: &[u8]) -> Result<Option<Vec<u8>>, BadFragment> {
        let whole = to.add(now, piece, &IpPacket::parse(piece).unwrap())?;
        Ok(whole.map(|whole| whole.packet))
    }

    /// Fault: in `add`, ask whether the packet is there and not whether it is awaited. The identification comes again,
    /// and fragments of two packets come together.
    #[test]
    fn an_old_packet_is_given_up_when_its_identification_comes_again() {
        for v6 in [false, true] {
            let (mut all, (whole, pieces)) = (Reassembler::default(), packet(v6, 1, 9, 0));
            assert_eq!(add(&mut all, 0, &pieces[0]), Ok(None));
            for piece in &pieces[1..] {
                assert_eq!(add(&mut all, TIMEOUT, piece), Ok(None));
            }
            assert_eq!(all.given_up(), 1);
            assert_eq!(add(&mut all, TIMEOUT, &pieces[0]), Ok(Some(whole)));
        }
    }

    /// Fault: in `add`, leave atomic fragments out.
    #[test]
    fn an_atomic_fragment_has_nothing_to_do_with_others() {
        let (mut all, (whole, pieces)) = (Reassembler::default(), packet(true, 1, 9, 0));
        let (src, dst) = ([9, 0, 0, 0, 0, 0, 0, 1].into(), [9, 0, 0, 0, 0, 0, 1, 1].into());
        let of = |next, payload: &[u8]| {
            let (head, len) = ip::header(src, dst, 0, next, payload.len()).unwrap();
            [&head[..len], payload].concat()
        };
        let atomic = of(proto::FRAGMENT, &[proto::UDP, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3]);
        for piece in &pieces[..3] {
            assert_eq!(add(&mut all, 0, piece), Ok(None));
            assert_eq!(add(&mut all, 0, &atomic), Ok(Some(of(proto::UDP, &[1, 2, 3]))));
        }
        let alone = all.add(0, &atomic, &IpPacket::parse(&atomic).unwrap()).unwrap().unwrap();
        assert_eq!(split(&alone.packet, alone.largest, alone.id), Some(vec![atomic]));
        assert_eq!(add(&mut all, 0, &pieces[3]), Ok(Some(whole)));
    }

    /// RFC 8200 §4.5, RFC 5722.
    ///
    /// Fault: in `Partial::add`, leave `has` out, or in `has` the octets.
    #[test]
    fn duplicates_are_ignored_and_overlaps_are_not() {
        for v6 in [false, true] {
            let (mut all, (whole, pieces)) = (Reassembler::default(), packet(v6, 1, 9, 0));
            for piece in pieces[1..].iter().flat_map(|piece| [piece, piece]) {
                assert_eq!(add(&mut all, 0, piece), Ok(None));
            }
            assert_eq!(add(&mut all, 0, &pieces[0]), Ok(Some(whole)));
            assert_eq!(add(&mut all, 0, &pieces[0]), Ok(None));
            let mut other = pieces[0].clone();
            *other.last_mut().unwrap() ^= 1;
            assert_eq!(add(&mut all, 0, &other), Err(BadFragment));
            assert_eq!(all.given_up(), 1);
        }
    }

    /// Fault: in `finish`, leave `congestion` or `not_ect` out.
    #[test]
    fn congestion_of_a_fragment_is_that_of_the_packet() {
        for v6 in [false, true] {
            for (tos, marked) in [(0b10, Some(0xbb)), (0b01, Some(0xbb)), (0, None)] {
                let (mut all, (_, mut pieces)) =
                    (Reassembler::default(), packet(v6, 1, 9, 0xb8 | tos));
                ip::set_tos(&mut pieces[2], 0xbb);
                let last = pieces.pop().unwrap();
                for piece in pieces {
                    assert_eq!(add(&mut all, 0, &piece), Ok(None));
                }
                let whole = add(&mut all, 0, &last).map(Option::unwrap);
                let tos = whole.map(|whole| IpPacket::parse(&whole).unwrap().tos);
                assert_eq!(tos, marked.ok_or(BadFragment), "{v6}");
            }
        }
    }

    /// Fault: in `make_room`, leave `MAX_OF_SOURCE` out.
    #[test]
    fn one_source_does_not_take_the_room_of_others() {
        let (mut all, (whole, pieces)) = (Reassembler::default(), packet(false, 1, 9, 0));
        assert_eq!(add(&mut all, 0, &pieces[0]), Ok(None));
        for id in 0..100 {
            let (_, pieces) = packet(false, 2, id, 0);
            assert_eq!(add(&mut all, 1, &pieces[0]), Ok(None));
        }
        assert_eq!(all.given_up(), 100 - MAX_OF_SOURCE as u64);
        let rest: Vec<_> = pieces[1..].iter().map(|piece| add(&mut all, 2, piece)).collect();
        assert_eq!(rest.last(), Some(&Ok(Some(whole))));
    }
}
