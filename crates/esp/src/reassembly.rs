//! Whole packets from fragments on their way into transport mode.
//!
//! RFC 4303 §3.3.4: transport mode ESP "is applied only to whole IP datagrams (not to IP fragments)".
//! The host above a TUN device fragments to its MTU before the packet gets here, so the packet is put
//! together again; ESP is applied, and IP may fragment the result.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::ip::{self, IPV6_HEADER, IpPacket, proto};

/// Packets in the making; with more, the oldest is given up.
const MAX_PACKETS: usize = 32;

/// Milliseconds for the last fragment to come. They come from this host, one after the other.
const TIMEOUT: u64 = 2000;

/// Octets behind the IP header at most.
const MAX_PAYLOAD: usize = 65535 - ip::IPV4_HEADER;

/// Fragments that do not fit together, or to be given up for another reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadFragment;

/// Puts packets together. Each worker has its own.
#[derive(Default)]
pub(crate) struct Reassembler {
    packets: HashMap<Key, Partial>,
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
    header: &'a [u8],
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
    ) -> Result<Option<Vec<u8>>, BadFragment> {
        let piece = Piece::read(packet, ip).ok_or(BadFragment)?;
        if !self.packets.contains_key(&piece.key) {
            self.make_room(now);
        }
        let key = piece.key;
        let partial = self.packets.entry(key).or_insert_with(|| Partial::new(now));
        match partial.add(&piece) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let whole = self.packets.remove(&key).and_then(|p| p.finish(key.protocol));
                whole.map(Some).ok_or(BadFragment)
            }
            Err(bad) => {
                // RFC 5722: with an overlap the whole packet is given up.
                self.packets.remove(&key);
                Err(bad)
            }
        }
    }

    fn make_room(&mut self, now: u64) {
        self.packets.retain(|_, partial| now.saturating_sub(partial.started) < TIMEOUT);
        if self.packets.len() >= MAX_PACKETS {
            let oldest = self.packets.iter().min_by_key(|(_, partial)| partial.started);
            if let Some(oldest) = oldest.map(|(&key, _)| key) {
                self.packets.remove(&oldest);
            }
        }
    }
}

impl Partial {
    fn new(started: u64) -> Self {
        let (header, payload, received) = (Vec::new(), Vec::new(), Vec::new());
        Self { started, header, payload, received, end: None }
    }

    /// True if the packet is complete.
    fn add(&mut self, piece: &Piece<'_>) -> Result<bool, BadFragment> {
        let (start, stop) = (piece.offset, piece.offset + piece.payload.len());
        let ragged = piece.more && !piece.payload.len().is_multiple_of(8);
        let beyond = self.end.is_some_and(|end| stop > end || !piece.more && stop != end);
        if piece.payload.is_empty() || stop > MAX_PAYLOAD || ragged || beyond {
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
        }
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

    /// The whole packet of `protocol`, with a header that says so.
    fn finish(self, protocol: u8) -> Option<Vec<u8>> {
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
                let len = u16::try_from(payload.len()).ok()?;
                header.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
                *header.get_mut(6)? = protocol;
            }
        }
        header.extend_from_slice(&payload);
        Some(header)
    }
}

impl<'a> Piece<'a> {
    fn read(packet: &'a [u8], ip: &IpPacket) -> Option<Self> {
        let (header, rest) = packet.get(..ip.total_len)?.split_at_checked(ip.base_len)?;
        let key = |protocol, id| Key { src: ip.src, dst: ip.dst, protocol, id };
        if ip.dst.is_ipv4() {
            let id = u16::from_be_bytes(*header.get(4..)?.first_chunk()?);
            let field = u16::from_be_bytes(*header.get(6..)?.first_chunk()?);
            return Some(Self {
                key: key(ip.base_next, id.into()),
                header,
                payload: rest,
                offset: usize::from(field & 0x1fff) * 8,
                more: field & 0x2000 != 0,
            });
        }
        // With other extension headers in front, transport mode could not carry the packet anyway.
        if ip.base_next != proto::FRAGMENT || header.len() != IPV6_HEADER {
            return None;
        }
        let (&[next, _, o0, o1, i0, i1, i2, i3], payload) = rest.split_first_chunk()?;
        let field = u16::from_be_bytes([o0, o1]);
        Some(Self {
            key: key(next, u32::from_be_bytes([i0, i1, i2, i3])),
            header,
            payload,
            offset: usize::from(field & !7),
            more: field & 1 != 0,
        })
    }
}
