//! The ESP packet (RFC 4303 §2):
//!
//! ```text
//!  0                   1                   2                   3
//! |               Security Parameters Index (SPI)                 | ─┐
//! |                      Sequence Number                          |  │ authenticated
//! |                    IV (of the algorithm)                      |  │
//! |                    Payload Data                             … | ─┤
//! |               … Padding (0-255 octets)                        |  │ encrypted, authenticated
//! |                               |  Pad Length   | Next Header   | ─┘
//! |         Integrity Check Value (ICV)                           |
//! ```
//!
//! With an extended sequence number the high 32 bits are authenticated and not sent: an AEAD has them
//! between the SPI and the low half (RFC 4106 §5), a MAC after the ciphertext (§2.2.1).

use ipsec_types::crypto::{CipherKey, CipherLengths, CryptoError, Frame};

use crate::buffer::Buffer;
use crate::stats::DropReason;

/// Octets of SPI and sequence number.
pub const HEADER: usize = 8;

/// Octets of the longest IV of any suite.
pub const MAX_IV: usize = 16;

/// Pad length and next header.
const TRAILER: usize = 2;

/// Octets of IV of the counter modes.
const COUNTER_IV: usize = 8;

/// Octets of padding that the blocks of no cipher ask for more of, and the trailer.
const MAX_TAIL: usize = 16 + TRAILER;

/// The padding of §2.4: 1, 2, 3, …
static PADDING: [u8; 255] = {
    let mut octets = [0; 255];
    let mut i = 0;
    while i < octets.len() {
        octets[i] = i as u8 + 1;
        i += 1;
    }
    octets
};

/// Padding that the trailer is written behind.
static TAIL: [u8; MAX_TAIL] = {
    let mut octets = [0; MAX_TAIL];
    let mut i = 0;
    while i < octets.len() {
        octets[i] = PADDING[i];
        i += 1;
    }
    octets
};

/// A keyed suite with its lengths.
pub struct Cipher {
    /// The key.
    pub key: Box<dyn CipherKey>,
    /// Its lengths.
    pub lengths: CipherLengths,
    /// Extended sequence numbers.
    pub esn: bool,
}

/// The content of an opened packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Octets of payload data.
    pub payload: usize,
    /// The kind of payload data: an IP protocol number.
    pub next_header: u8,
}

/// SPI and the low half of the sequence number, `None` if `packet` is too short to have them.
#[inline]
pub fn header(packet: &[u8]) -> Option<(u32, u32)> {
    let word = u64::from_be_bytes(*packet.first_chunk()?);
    Some(((word >> 32) as u32, word as u32))
}

impl Cipher {
    /// Octets of the ESP packet around `payload` octets.
    pub fn sealed_len(&self, payload: usize) -> usize {
        HEADER + self.lengths.iv + self.aligned(payload + TRAILER) + self.lengths.icv
    }

    /// The most octets of payload whose ESP packet is at most `packet` octets.
    pub fn payload_room(&self, packet: usize) -> usize {
        let room = packet.saturating_sub(HEADER + self.lengths.iv + self.lengths.icv);
        (room & !(self.alignment() - 1)).saturating_sub(TRAILER)
    }

    /// Appends to `out` the ESP packet around `payload`. `iv` is [`CipherLengths::iv`] octets. On an
    /// error `out` is as before.
    #[inline]
    pub fn seal(
        &self,
        spi: u32,
        seq: u64,
        iv: &[u8],
        next_header: u8,
        payload: &[u8],
        out: &mut Buffer,
    ) -> Result<(), CryptoError> {
        let start = out.len();
        let packet = out.append(self.sealed_len(payload.len()));
        let result = self.seal_to(spi, seq, iv, next_header, payload, packet);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// As [`Self::seal`], with `more` octets behind the payload that hide its length (§2.7).
    #[cold]
    #[inline(never)]
    pub fn seal_padded(
        &self,
        (spi, seq): (u32, u64),
        iv: &[u8],
        next_header: u8,
        (payload, more): (&[u8], usize),
        out: &mut Buffer,
    ) -> Result<(), CryptoError> {
        let mut padded = Vec::with_capacity(payload.len() + more);
        padded.extend_from_slice(payload);
        padded.resize(payload.len() + more, 0);
        self.seal(spi, seq, iv, next_header, &padded, out)
    }

    /// Checks `packet` and appends the payload data in it to `out`. `seq` is the full sequence number. On an
    /// error `out` is as before.
    #[inline]
    pub fn open(&self, packet: &[u8], seq: u64, out: &mut Buffer) -> Result<Opened, DropReason> {
        let start = out.len();
        let opened = self.open_to(packet, seq, out);
        out.truncate(start + opened.map_or(0, |opened| opened.payload));
        opened
    }

    #[inline]
    fn open_to(&self, packet: &[u8], seq: u64, out: &mut Buffer) -> Result<Opened, DropReason> {
        let Self { key, lengths, .. } = self;
        let (header, rest) = packet.split_at_checked(HEADER).ok_or(DropReason::Truncated)?;
        let (iv, rest) = rest.split_at_checked(lengths.iv).ok_or(DropReason::Truncated)?;
        let data_len = rest.len().checked_sub(lengths.icv).ok_or(DropReason::Truncated)?;
        let (data, icv) = rest.split_at_checked(data_len).ok_or(DropReason::Truncated)?;
        if data_len < TRAILER || data_len & lengths.block.saturating_sub(1) != 0 {
            return Err(DropReason::Truncated);
        }
        let associated = Associated::new(header, seq, self.esn, lengths.aead);
        let plain = out.append(data_len);
        let frame = associated.frame(header, iv);
        key.open_to(frame, data, icv, plain).map_err(|_| DropReason::Integrity)?;
        let (payload, next_header) = strip(plain).ok_or(DropReason::Padding)?;
        Ok(Opened { payload, next_header })
    }

    #[inline]
    fn seal_to(
        &self,
        spi: u32,
        seq: u64,
        iv: &[u8],
        next_header: u8,
        payload: &[u8],
        packet: &mut [u8],
    ) -> Result<(), CryptoError> {
        let Self { key, lengths, .. } = self;
        if iv.len() != lengths.iv {
            return Err(CryptoError::Length);
        }
        let unpadded = payload.len() + TRAILER;
        let pad = self.aligned(unpadded) - unpadded;
        // Of fixed length: cheaper than as many octets as there are.
        let mut tail = TAIL;
        *tail.get_mut(pad..).and_then(<[u8]>::first_chunk_mut).ok_or(CryptoError::Length)? =
            [pad as u8, next_header];
        let tail = tail.get(..pad + TRAILER).ok_or(CryptoError::Length)?;

        let (header, rest) = packet.split_first_chunk_mut().ok_or(CryptoError::Length)?;
        *header = (u64::from(spi) << 32 | u64::from(seq as u32)).to_be_bytes();
        let (place, rest) = rest.split_at_mut_checked(lengths.iv).ok_or(CryptoError::Length)?;
        match (place.first_chunk_mut::<COUNTER_IV>(), iv.try_into()) {
            (Some(place), Ok(iv)) => *place = iv,
            _ => place.copy_from_slice(iv),
        }
        let associated = Associated::new(header, seq, self.esn, lengths.aead);
        key.seal_to(associated.frame(header, iv), payload, tail, rest)
    }

    /// The ciphertext ends on a multiple of this: of four octets, and of the cipher's block (§2.4).
    fn alignment(&self) -> usize {
        self.lengths.block.max(4)
    }

    /// `len` rounded up to the alignment. Blocks are powers of two, which saves a division.
    #[inline]
    fn aligned(&self, len: usize) -> usize {
        let mask = self.alignment() - 1;
        (len + mask) & !mask
    }
}

/// The data authenticated beside IV and payload.
struct Associated {
    /// The header with the high half of an ESN in it, where that is part of it.
    extended: Option<[u8; 12]>,
    high: [u8; 4],
    trailer_len: usize,
}

impl Associated {
    #[inline]
    fn new(header: &[u8], seq: u64, esn: bool, aead: bool) -> Self {
        let high = ((seq >> 32) as u32).to_be_bytes();
        let extended = (esn && aead).then(|| {
            let mut aad = [0; 12];
            let (spi, low) = header.split_at(4);
            aad[..4].copy_from_slice(spi);
            aad[4..8].copy_from_slice(&high);
            aad[8..].copy_from_slice(low);
            aad
        });
        Self { extended, high, trailer_len: if esn && !aead { 4 } else { 0 } }
    }

    #[inline]
    fn frame<'a>(&'a self, header: &'a [u8], iv: &'a [u8]) -> Frame<'a> {
        let aad = self.extended.as_ref().map_or(header, <[u8; 12]>::as_slice);
        Frame { iv, aad, trailer: &self.high[..self.trailer_len] }
    }
}

/// Length of the payload data and the next header of decrypted `data`.
#[inline]
fn strip(data: &[u8]) -> Option<(usize, u8)> {
    let (rest, &[pad, next_header]) = data.split_last_chunk()?;
    let payload_len = rest.len().checked_sub(usize::from(pad))?;
    // §2.4: "the receiver SHOULD inspect the Padding field". Mostly there are three octets at the most.
    let sound = match (pad, rest) {
        (0, _) => true,
        (1, [.., 1]) | (2, [.., 1, 2]) | (3, [.., 1, 2, 3]) => true,
        (..=3, _) => false,
        _ => rest.get(payload_len..)? == PADDING.get(..usize::from(pad))?,
    };
    sound.then_some((payload_len, next_header))
}
