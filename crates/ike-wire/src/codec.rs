//! Reading and writing octets with checked lengths.

use std::fmt;

/// Why octets are not a well-formed message. Says where, never repeats the octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer octets than a field needs.
    Truncated(&'static str),
    /// Octets left over after the last field.
    Trailing(&'static str),
    /// A field holds a value its definition forbids.
    Invalid(&'static str),
    /// Major version other than 2 (RFC 7296 §2.5); carries the version octet.
    Version(u8),
    /// A payload of unknown type with the critical bit set (RFC 7296 §2.5); carries the type.
    UnsupportedCritical(u8),
    /// More payloads, proposals, transforms or selectors than this implementation takes.
    TooMany(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(what) => write!(f, "truncated {what}"),
            Self::Trailing(what) => write!(f, "trailing octets after {what}"),
            Self::Invalid(what) => write!(f, "invalid {what}"),
            Self::Version(v) => write!(f, "version {}.{}", v >> 4, v & 15),
            Self::UnsupportedCritical(t) => write!(f, "unsupported critical payload {t}"),
            Self::TooMany(what) => write!(f, "too many {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Reads octets front to back; never past the end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `octets` from the start.
    #[inline]
    pub fn new(octets: &'a [u8]) -> Self {
        Self { rest: octets }
    }

    /// The unread rest.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True at the end.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes `n` octets.
    #[inline]
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes `N` octets as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated(what))?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes one octet.
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[b]| b)
    }

    /// Takes a big-endian `u16`.
    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// Takes a big-endian `u32`.
    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// Takes a big-endian `u64`.
    #[inline]
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Takes everything that is left.
    #[inline]
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Ends the reading: nothing may be left.
    #[inline]
    pub fn all(self, what: &'static str) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(what)) }
    }
}

/// Writes a 16-bit length field that covers everything from `start` on, over the two octets at
/// `field`.
///
/// A length over 65,535 cannot be said on the wire: the field saturates, and the peer refuses the
/// message. No caller builds one, because a message must fit a UDP datagram.
pub fn patch_length(out: &mut [u8], start: usize, field: usize) {
    let length = out.len().saturating_sub(start);
    debug_assert!(length <= usize::from(u16::MAX), "payload longer than its length field can say");
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    if let Some(octets) = out.get_mut(field..field + 2) {
        octets.copy_from_slice(&length.to_be_bytes());
    }
}
