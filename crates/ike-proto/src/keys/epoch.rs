//! The keys that protect messages now, in both directions: sealing and opening of the Encrypted
//! payload (RFC 7296 §3.14, RFC 5282) and of its fragments (RFC 7383 §2.5).

use std::fmt;

use zeroize::Zeroizing;

use super::schedule::IkeKeys;
use crate::crypto::{
    CipherKey, CipherLengths, CipherProvider, CipherSuite, CryptoError, Frame, IvKind, Secret,
    SecureRandom,
};
use crate::wire::message::USUAL_LEN;
use crate::wire::payload::{Payload, Sk, Skf};
use crate::wire::registry::{ExchangeType, PayloadType};
use crate::wire::{Flags, HEADER_LEN, Header, Message, encode_payloads};

/// A message before it is sealed.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Initiator's SPI.
    pub spi_i: u64,
    /// Responder's SPI.
    pub spi_r: u64,
    /// Exchange type.
    pub exchange: ExchangeType,
    /// Flags.
    pub flags: Flags,
    /// Message ID.
    pub message_id: u32,
    /// The payloads inside the Encrypted payload, in order.
    pub payloads: &'a [Payload<'a>],
    /// The most octets of IKE message, from the header on, that one datagram may carry; `None` never
    /// fragments.
    pub max_datagram: Option<usize>,
    /// Sends Encrypted Fragment payloads even where one Encrypted payload would do.
    pub force_fragment: bool,
}

/// The content of an Encrypted payload, authenticated and without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Type of the first payload in `octets`; NONE if there is none.
    pub first: PayloadType,
    /// The chain of inner payloads.
    pub octets: Vec<u8>,
    /// The message from the IKE header through the generic header of the Encrypted payload, as
    /// [`IntAuth`](super::int_auth::IntAuth) covers it.
    pub front: Vec<u8>,
}

impl Opened {
    /// Octets that it takes while it is kept.
    pub(crate) fn kept_octets(&self) -> usize {
        self.octets.len() + self.front.len()
    }
}

/// A datagram that the peer did not seal with these keys. One value for every cause, so that no
/// answer can tell an attacker which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenError;

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not authenticated by the keys of this IKE SA")
    }
}

impl std::error::Error for OpenError {}

/// The keys protecting the messages of one IKE SA, one per direction, and the IVs used so far.
///
/// It holds only the octets of the keys. A cipher with its key schedule is many times larger and takes a fraction
/// of a microsecond to make, and an IKE SA is nearly always idle.
pub struct Epoch {
    suite: CipherSuite,
    ciphers: &'static dyn CipherProvider,
    /// Encryption and integrity keys for sending and for receiving.
    keys: Secret,
    /// IVs handed out under `outbound`. Advances for every datagram sealed, sent or not.
    sealed: u64,
}

impl Epoch {
    /// Keys for both directions of `suite`. `is_initiator` is true for the original initiator of the IKE SA (or of
    /// the exchange that rekeyed it), which sends under SK_ei and SK_ai.
    ///
    /// # Errors
    ///
    /// [`CryptoError::Unsupported`] if the backend lacks the suite, [`CryptoError::Length`] if a key has
    /// not the length of it.
    pub fn new(
        ciphers: &'static dyn CipherProvider,
        suite: CipherSuite,
        keys: &IkeKeys,
        is_initiator: bool,
    ) -> Result<Self, CryptoError> {
        let lengths = ciphers.lengths(suite).ok_or(CryptoError::Unsupported)?;
        let initiator = [keys.ei.expose(), keys.ai.expose()];
        let responder = [keys.er.expose(), keys.ar.expose()];
        let fits = |key: &[&[u8]; 2]| key.map(<[u8]>::len) == [lengths.encr_key, lengths.integ_key];
        if !fits(&initiator) || !fits(&responder) {
            return Err(CryptoError::Length);
        }
        let [outbound, inbound] =
            if is_initiator { [initiator, responder] } else { [responder, initiator] };
        let keys = Secret::new([outbound, inbound].as_flattened().concat());
        Ok(Self { suite, ciphers, keys, sealed: 0 })
    }

    /// The cipher of one direction.
    fn cipher(&self, outbound: bool) -> Result<Cipher, CryptoError> {
        let lengths = self.ciphers.lengths(self.suite).ok_or(CryptoError::Unsupported)?;
        let (ours, theirs) = self.keys.expose().split_at(self.keys.len() / 2);
        let key = if outbound { ours } else { theirs };
        let (encr, integ) = key.split_at_checked(lengths.encr_key).ok_or(CryptoError::Length)?;
        Ok(Cipher { key: self.ciphers.key(self.suite, encr, integ)?, lengths })
    }

    /// The suite in use.
    pub fn suite(&self) -> CipherSuite {
        self.suite
    }

    /// Goes on counting IVs where `before`, the generation before, left off: none is used twice on an
    /// IKE SA, not even under different keys.
    pub fn continue_from(&mut self, before: &Self) {
        self.sealed = self.sealed.max(before.sealed);
    }

    /// Seals a message into the datagrams that carry it: one Encrypted payload, or the fragments of
    /// RFC 7383 if that would exceed `max_datagram`. Every fragment but the last is as large as fits.
    ///
    /// # Errors
    ///
    /// [`CryptoError::Length`] if the message fits neither one payload nor 65535 fragments of
    /// `max_datagram`, or if the IVs are used up; else what the backend answers.
    pub fn seal(
        &mut self,
        m: &Outgoing<'_>,
        rng: &mut dyn SecureRandom,
    ) -> Result<Vec<Vec<u8>>, CryptoError> {
        let mut inner = Vec::with_capacity(USUAL_LEN);
        let first = encode_payloads(m.payloads, &mut inner);
        let limit = m.max_datagram.unwrap_or(usize::MAX);
        let cipher = self.cipher(true)?;
        let fits = cipher.room(Shape::Whole, limit).is_some_and(|room| inner.len() <= room);
        if !m.force_fragment && fits {
            return Ok(vec![self.seal_one(&cipher, m, Part::Whole(first), &inner, rng)?]);
        }
        if m.max_datagram.is_none() && !m.force_fragment {
            return Err(CryptoError::Length);
        }
        self.seal_fragments(&cipher, m, (first, &inner), (limit, 1), rng)
    }

    /// Seals the content of `sealed` again. `sealed` is one message of this end. The result is fragments for
    /// datagrams of `max_datagram` octets, more of them than before and with IVs of their own.
    ///
    /// # Errors
    ///
    /// [`CryptoError::Integrity`] if these keys have not sealed it, [`CryptoError::Length`] if the content cannot
    /// be split in this way; otherwise the backend's error.
    pub fn refragment(
        &mut self,
        sealed: &[impl AsRef<[u8]>],
        max_datagram: usize,
        rng: &mut dyn SecureRandom,
    ) -> Result<Vec<Vec<u8>>, CryptoError> {
        // Never more than all of it, so that no copy of a part is left behind.
        let size = sealed.iter().map(|datagram| datagram.as_ref().len()).sum();
        let mut inner = Zeroizing::new(Vec::with_capacity(size));
        let mut head = None;
        let cipher = self.cipher(true)?;
        for datagram in sealed {
            let datagram = datagram.as_ref();
            let message = Message::decode(datagram).map_err(|_| CryptoError::Integrity)?;
            let (first, offset, body) = match message.payloads.last() {
                Some(Payload::Sk(sk)) => (sk.first, sk.offset, sk.body),
                Some(Payload::Skf(skf)) => (skf.first, skf.offset, skf.body),
                _ => return Err(CryptoError::Integrity),
            };
            let content = cipher.open_body(datagram, offset, body);
            let content = content.map_err(|_| CryptoError::Integrity)?;
            inner.extend_from_slice(&Zeroizing::new(content));
            head.get_or_insert((message.header, first));
        }
        let (header, first) = head.ok_or(CryptoError::Length)?;
        let m = Outgoing {
            spi_i: header.spi_i,
            spi_r: header.spi_r,
            exchange: header.exchange,
            flags: header.flags,
            message_id: header.message_id,
            payloads: &[],
            max_datagram: Some(max_datagram),
            force_fragment: true,
        };
        //= https://www.rfc-editor.org/rfc/rfc7383#section-2.5.2
        //# the sender MUST
        //# ensure that the value in the Total Fragments field is really
        //# increased.
        self.seal_fragments(&cipher, &m, (first, &inner), (max_datagram, sealed.len() + 1), rng)
    }

    /// Opens the Encrypted payload `sk` of `datagram`, which is one IKE message without non-ESP
    /// marker.
    pub fn open(&self, datagram: &[u8], sk: &Sk<'_>) -> Result<Opened, OpenError> {
        let cipher = self.cipher(false).map_err(|_| OpenError)?;
        let octets = cipher.open_body(datagram, sk.offset, sk.body)?;
        let front = datagram.get(..sk.offset).unwrap_or_default().to_vec();
        Ok(Opened { first: sk.first, octets, front })
    }

    /// Opens the Encrypted Fragment payload `skf` of `datagram`: a piece of the content of an
    /// Encrypted payload.
    pub fn open_fragment(&self, datagram: &[u8], skf: &Skf<'_>) -> Result<Vec<u8>, OpenError> {
        let cipher = self.cipher(false).map_err(|_| OpenError)?;
        cipher.open_body(datagram, skf.offset, skf.body)
    }

    /// [`Opened::front`] of the message whose fragment 1 is `datagram`: its Encrypted Fragment payload
    /// as an Encrypted payload.
    pub fn fragment_front(datagram: &[u8], skf: &Skf<'_>) -> Vec<u8> {
        let end = skf.offset.saturating_sub(Shape::Fragment.front() - Shape::Whole.front());
        let mut front = datagram.get(..end).unwrap_or_default().to_vec();
        // The Next Payload that names it: that of the IKE header, or of the payload before it.
        let (mut names, mut at) = (NEXT_PAYLOAD, HEADER_LEN);
        while at + GENERIC_HEADER < end
            && let Some(&[high, low]) = front.get(at + 2..at + GENERIC_HEADER)
        {
            names = at;
            at += usize::from(u16::from_be_bytes([high, low])).max(GENERIC_HEADER);
        }
        if let Some(next) = front.get_mut(names) {
            *next = PayloadType::SK.0;
        }
        front
    }

    /// Splits `inner`, whose first payload is of the type `first`, into `least` fragments or more.
    fn seal_fragments(
        &mut self,
        cipher: &Cipher,
        m: &Outgoing<'_>,
        (first, inner): (PayloadType, &[u8]),
        (limit, least): (usize, usize),
        rng: &mut dyn SecureRandom,
    ) -> Result<Vec<Vec<u8>>, CryptoError> {
        let room = cipher.room(Shape::Fragment, limit).filter(|room| *room > 0);
        let mut room = room.ok_or(CryptoError::Length)?;
        if let (Some(last), Some(others)) = (inner.len().checked_sub(1), least.checked_sub(1)) {
            // The most that leaves something for the last of them.
            room = room.min(last.checked_div(others).unwrap_or(room));
        }
        if room == 0 {
            return Err(CryptoError::Length);
        }
        let total = inner.len().div_ceil(room).max(1);
        let total = u16::try_from(total).map_err(|_| CryptoError::Length)?;
        let mut rest = inner;
        let mut datagrams = Vec::with_capacity(total.into());
        for number in 1..=total {
            let (chunk, tail) = rest.split_at(room.min(rest.len()));
            rest = tail;
            let first = if number == 1 { first } else { PayloadType::NONE };
            datagrams.push(self.seal_one(
                cipher,
                m,
                Part::Fragment { first, number, total },
                chunk,
                rng,
            )?);
        }
        Ok(datagrams)
    }

    /// Seals `content` into one datagram. The caller has checked that it fits.
    fn seal_one(
        &mut self,
        cipher: &Cipher,
        m: &Outgoing<'_>,
        part: Part,
        content: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        let CipherLengths { iv, icv, block, .. } = cipher.lengths;
        let front = part.shape().front();
        let padding = padding(content.len(), block);
        let len = front + iv + content.len() + padding + 1 + icv;
        let mut datagram = Vec::with_capacity(len);
        part.write_front(m, len, &mut datagram)?;
        datagram.resize(front + iv, 0);
        datagram.extend_from_slice(content);
        datagram.resize(datagram.len() + padding, 0);
        datagram.push(u8::try_from(padding).map_err(|_| CryptoError::Length)?);
        datagram.resize(len, 0);

        let (aad, rest) = datagram.split_at_mut(front);
        let (iv, rest) = rest.split_at_mut(iv);
        let (data, icv) = rest.split_at_mut(rest.len() - icv);
        self.next_iv(cipher.lengths.iv_kind, iv, rng)?;
        cipher.key.seal(Frame { iv, aad, trailer: &[] }, data, icv)?;
        Ok(datagram)
    }

    /// Writes an IV never used before under the outbound key.
    fn next_iv(
        &mut self,
        kind: IvKind,
        iv: &mut [u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(), CryptoError> {
        let count = self.sealed;
        self.sealed = count.checked_add(1).ok_or(CryptoError::Length)?;
        match kind {
            IvKind::Random => rng.fill(iv),
            IvKind::Counter => {
                let tail = iv.last_chunk_mut::<8>().ok_or(CryptoError::Unsupported)?;
                *tail = count.to_be_bytes();
            }
        }
        Ok(())
    }
}

/// A cipher of one direction, ready for use.
struct Cipher {
    key: Box<dyn CipherKey>,
    lengths: CipherLengths,
}

impl Cipher {
    /// How many octets of content fit into one datagram of `limit` octets; `None` if not even the Pad
    /// Length octet does. The one home of this sum.
    fn room(&self, shape: Shape, limit: usize) -> Option<usize> {
        let CipherLengths { iv, icv, block, .. } = self.lengths;
        // Payload Length is 16 bits and counts from the generic header.
        let limit = limit.min(HEADER_LEN + usize::from(u16::MAX));
        let sealed = limit.checked_sub(shape.front() + iv + icv)?;
        (sealed - sealed % block.max(1)).checked_sub(1)
    }

    /// Opens the part after `offset`, checks it and removes the padding.
    fn open_body(&self, datagram: &[u8], offset: usize, body: &[u8]) -> Result<Vec<u8>, OpenError> {
        let CipherLengths { iv, icv, block, .. } = self.lengths;
        // The payload is the last of the message, and the ICV covers all of it.
        let (aad, rest) = datagram.split_at_checked(offset).ok_or(OpenError)?;
        if rest.len() != body.len() {
            return Err(OpenError);
        }
        let (iv, rest) = rest.split_at_checked(iv).ok_or(OpenError)?;
        let data_len = rest.len().checked_sub(icv).ok_or(OpenError)?;
        let (data, icv) = rest.split_at_checked(data_len).ok_or(OpenError)?;
        if data.is_empty() || !data.len().is_multiple_of(block.max(1)) {
            return Err(OpenError);
        }
        let mut data = data.to_vec();
        self.key.open(Frame { iv, aad, trailer: &[] }, &mut data, icv).map_err(|_| OpenError)?;
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.14
        //# the recipient MUST accept any length that results
        //# in proper alignment.
        let padding = usize::from(data.pop().ok_or(OpenError)?);
        let content = data.len().checked_sub(padding).ok_or(OpenError)?;
        data.truncate(content);
        Ok(data)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Offset of Next Payload in the IKE header.
const NEXT_PAYLOAD: usize = 16;
/// Octets of a generic payload header, which begins with Next Payload and ends with the length.
const GENERIC_HEADER: usize = 4;

/// The two payloads that carry sealed content.
#[derive(Clone, Copy)]
enum Shape {
    Whole,
    Fragment,
}

impl Shape {
    /// Octets in front of the IV, which are authenticated as they stand.
    fn front(self) -> usize {
        match self {
            Self::Whole => HEADER_LEN + 4,
            Self::Fragment => HEADER_LEN + 8,
        }
    }
}

/// The part of a message in one datagram.
#[derive(Clone, Copy)]
enum Part {
    Whole(PayloadType),
    Fragment { first: PayloadType, number: u16, total: u16 },
}

impl Part {
    fn shape(self) -> Shape {
        match self {
            Self::Whole(_) => Shape::Whole,
            Self::Fragment { .. } => Shape::Fragment,
        }
    }

    /// Writes header and payload header of a datagram of `len` octets.
    fn write_front(
        self,
        m: &Outgoing<'_>,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CryptoError> {
        let (kind, first) = match self {
            Self::Whole(first) => (PayloadType::SK, first),
            Self::Fragment { first, .. } => (PayloadType::SKF, first),
        };
        let payload = u16::try_from(len - HEADER_LEN).map_err(|_| CryptoError::Length)?;
        let header = Header {
            spi_i: m.spi_i,
            spi_r: m.spi_r,
            next_payload: kind,
            minor_version: 0,
            exchange: m.exchange,
            flags: m.flags,
            message_id: m.message_id,
            length: u32::try_from(len).map_err(|_| CryptoError::Length)?,
        };
        header.encode(out);
        out.extend([first.0, 0]);
        out.extend(payload.to_be_bytes());
        if let Self::Fragment { number, total, .. } = self {
            out.extend(number.to_be_bytes());
            out.extend(total.to_be_bytes());
        }
        Ok(())
    }
}

/// The fewest octets of padding that align `content` and the Pad Length octet to `block`.
fn padding(content: usize, block: usize) -> usize {
    (content + 1).next_multiple_of(block.max(1)) - (content + 1)
}
