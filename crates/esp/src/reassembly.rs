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

/// Packets in the making; with more, the oldest is given up.
const MAX_PACKETS: usize = 32;

/// Milliseconds until the last fragment has to be there. Fragments come from this host or a network behind it, one after
/// the other.
const TIMEOUT: u64 = 2000;

/// The most fragments of one packet. Together with the size and the number of packets this bounds the memory.
const MAX_PIECES: usize = 1024;

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
        if !self.packets.contains_key(&piece.key) {
            self.make_room(now);
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

    fn make_room(&mut self, now: u64) {
        let mut lost = 0;
        self.packets.retain(|_, partial| {
            let stays = now.saturating_sub(partial.started) < TIMEOUT;
            lost += if stays { 0 } else { partial.pieces };
            stays
        });
        if self.packets.len() >= MAX_PACKETS {
            let oldest = self.packets.iter().min_by_key(|(_, partial)| partial.started);
            let oldest = oldest.map(|(&key, _)| key).and_then(|key| self.packets.remove(&key));
            lost += oldest.map_or(0, |partial| partial.pieces);
        }
        self.lose(lost);
    }
}

impl Partial {
    fn new(started: u64) -> Self {
        let (header, payload, received) = (Vec::new(), Vec::new(), Vec::new());
        Self { started, pieces: 0, largest: 0, header, payload, received, end: None }
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
            self.header = piece.header.to_vec();
            // The field that names the fragment header has to name the header after it.
            *self.header.get_mut(piece.next_at).ok_or(BadFragment)? = piece.key.protocol;
        }
        self.pieces += 1;
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
        let Self { mut header, payload, .. } = self;
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
        let len = packet.len();
        let key = |protocol, id| Key { src: ip.src, dst: ip.dst, protocol, id };
        if ip.dst.is_ipv4() {
            let (header, payload) = packet.split_at_checked(ip.base_len)?;
            let id = u16::from_be_bytes(*header.get(4..)?.first_chunk()?);
            let field = u16::from_be_bytes(*header.get(6..)?.first_chunk()?);
            let (offset, more) = (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
            let key = key(ip.base_next, id.into());
            return Some(Self { key, header, next_at: 9, len, payload, offset, more });
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
        Some(Self { key, header, next_at, len, payload, offset, more })
    }
}
