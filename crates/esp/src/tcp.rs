//! IKE and ESP in a TCP stream (RFC 9329 §3, §4).
//!
//! ```text
//! "IKETCP"  once, from the end that opened the connection
//! ┌────────────┬──────────────────────────┐
//! │ length, 16 │ 0x00000000, IKE message  │   the length counts itself
//! ├────────────┼──────────────────────────┤
//! │ length, 16 │ ESP packet               │
//! └────────────┴──────────────────────────┘
//! ```
//!
//! [`Deframer`] keeps no more octets than have arrived, whatever a length says.

use std::fmt;

use crate::udp::{self, Datagram, NON_ESP_MARKER};

/// The prefix that the end that opened a connection sends first, once (§4).
pub const PREFIX: [u8; 6] = *b"IKETCP";

/// Octets of a length, which counts them too (§3).
pub const LENGTH: usize = 2;

/// Octets of the longest message, non-ESP marker and all (§3).
pub const LARGEST: usize = u16::MAX as usize - LENGTH;

/// Octets of an IKE header (RFC 7296 §3.1).
const IKE_HEADER: usize = 28;

/// Octets of SPI and sequence number.
const ESP_HEADER: usize = 8;

/// Messages in a row that are neither IKE nor ESP, after which a stream counts as corrupt (§6.1).
const MOST_SENSELESS: u32 = 16;

/// Why a stream cannot go on. The connection is to be closed (§3.1, §6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// It does not begin with [`PREFIX`].
    Prefix,
    /// A length of 0 or 1.
    Length(u16),
    /// Too many messages in a row that are neither IKE nor ESP.
    Senseless,
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => f.write_str("the stream does not begin with IKETCP"),
            Self::Length(length) => write!(f, "a message has the length {length}"),
            Self::Senseless => f.write_str("the stream is neither IKE nor ESP"),
        }
    }
}

impl std::error::Error for FramingError {}

/// A message taken from a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// IKE, without the non-ESP marker. As long as its header says.
    Ike(&'a [u8]),
    /// An ESP packet, to be opened in place. Its SPI is not zero.
    Esp(&'a mut [u8]),
}

/// Takes a stream apart into messages. Keepalives and empty messages are left out (§3, §6.6).
#[derive(Debug)]
pub struct Deframer {
    /// Octets of the prefix that are still to come.
    prefix: usize,
    buffer: Vec<u8>,
    /// Octets at the start of `buffer` that are done with.
    done: usize,
    senseless: u32,
}

impl Deframer {
    /// For a connection that the peer opened: [`PREFIX`] comes first.
    pub fn accepted() -> Self {
        Self { prefix: PREFIX.len(), ..Self::opened() }
    }

    /// For a connection that this end opened: the peer sends no prefix.
    pub fn opened() -> Self {
        Self { prefix: 0, buffer: Vec::new(), done: 0, senseless: 0 }
    }

    /// Octets that wait for the rest of their message.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// The buffer for received octets, with room for at least `more`.
    pub fn room(&mut self, more: usize) -> &mut Vec<u8> {
        self.buffer.drain(..self.done);
        self.done = 0;
        self.buffer.reserve(more);
        // A large message has been taken: a quiet connection keeps a small buffer.
        self.buffer.shrink_to(self.buffer.len() + more);
        &mut self.buffer
    }

    /// The next message that is there as a whole.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, FramingError> {
        if !self.begin()? {
            return Ok(None);
        }
        let Some(range) = self.next_range()? else { return Ok(None) };
        let message = self.buffer.get_mut(range).unwrap_or_default();
        // Which it is has been seen already.
        match message.split_first_chunk::<4>() {
            Some((&NON_ESP_MARKER, _)) => {
                Ok(Some(Message::Ike(message.get(NON_ESP_MARKER.len()..).unwrap_or_default())))
            }
            _ => Ok(Some(Message::Esp(message))),
        }
    }

    /// Takes the available part of the prefix; true once the prefix is complete.
    pub fn begin(&mut self) -> Result<bool, FramingError> {
        while self.prefix > 0 {
            let Some(octet) = self.buffer.get(self.done) else { return Ok(false) };
            if PREFIX.get(PREFIX.len() - self.prefix) != Some(octet) {
                return Err(FramingError::Prefix);
            }
            self.prefix -= 1;
            self.done += 1;
        }
        Ok(true)
    }

    /// Where the next IKE message or ESP packet is.
    fn next_range(&mut self) -> Result<Option<std::ops::Range<usize>>, FramingError> {
        loop {
            let rest = self.buffer.get(self.done..).unwrap_or_default();
            let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else { return Ok(None) };
            let length = u16::from_be_bytes(*length);
            let Some(len) = usize::from(length).checked_sub(LENGTH) else {
                return Err(FramingError::Length(length));
            };
            let Some(message) = rest.get(..len) else { return Ok(None) };
            let start = self.done + LENGTH;
            let kind = kind(message);
            self.done = start + len;
            match kind {
                Kind::Message => {
                    self.senseless = 0;
                    return Ok(Some(start..self.done));
                }
                Kind::Nothing => {}
                Kind::Senseless => {
                    self.senseless += 1;
                    if self.senseless >= MOST_SENSELESS {
                        return Err(FramingError::Senseless);
                    }
                }
            }
        }
    }
}

/// The kind of a message.
enum Kind {
    /// IKE or ESP.
    Message,
    /// A keepalive, or nothing at all: both are passed over in silence.
    Nothing,
    /// Neither.
    Senseless,
}

fn kind(message: &[u8]) -> Kind {
    match udp::classify(message) {
        Datagram::Keepalive => Kind::Nothing,
        Datagram::Runt if message.is_empty() => Kind::Nothing,
        Datagram::Runt => Kind::Senseless,
        Datagram::Ike(ike) if is_ike(ike) => Kind::Message,
        Datagram::Ike(_) => Kind::Senseless,
        Datagram::Esp(esp) if esp.len() >= ESP_HEADER => Kind::Message,
        Datagram::Esp(_) => Kind::Senseless,
    }
}

/// True if the header is present and its length is right. The engine checks the rest, and answers errors inside
/// (§6.1).
fn is_ike(message: &[u8]) -> bool {
    let length = message.get(IKE_HEADER - 4..IKE_HEADER).and_then(|octets| octets.first_chunk());
    length.is_some_and(|length| u32::from_be_bytes(*length) as usize == message.len())
}

/// Appends `message`, behind the non-ESP marker, as IKE to `stream`. False, and nothing is appended, if
/// it is longer than a stream can carry.
pub fn push_ike(stream: &mut Vec<u8>, message: &[u8]) -> bool {
    push(stream, &[&NON_ESP_MARKER, message])
}

/// Appends an ESP packet to `stream`. False, and nothing is appended, if it is longer than a stream can
/// carry.
pub fn push_esp(stream: &mut Vec<u8>, packet: &[u8]) -> bool {
    push(stream, &[packet])
}

fn push(stream: &mut Vec<u8>, parts: &[&[u8]]) -> bool {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let Ok(length) = u16::try_from(len + LENGTH) else { return false };
    stream.reserve(len + LENGTH);
    stream.extend_from_slice(&length.to_be_bytes());
    for part in parts {
        stream.extend_from_slice(part);
    }
    true
}
