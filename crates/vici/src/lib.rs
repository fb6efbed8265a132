//! VICI, the Versatile IKE Control Interface of strongSwan: its packets and messages, both ways, without
//! any I/O.
//!
//! A stream carries segments: a length of four octets, the most significant first, and as many octets,
//! [`LONGEST_SEGMENT`] at the most. A segment is a [`Packet`], and most packets carry a [`Section`], a tree
//! of named texts, lists of texts, and sections.
//!
//! ```
//! use vici::{Packet, Section};
//!
//! let request = Packet::Request("terminate".into(), Section::new().text("ike", "site"));
//! let segment = request.encode()?;
//! assert_eq!(Packet::decode(&segment[4..])?, request);
//! # Ok::<(), vici::Error>(())
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod message;
mod packet;

use std::fmt;

pub use message::{Section, Value};
pub use packet::Packet;

/// Octets that a segment may have, its length not counted.
pub const LONGEST_SEGMENT: usize = 512 << 10;

/// Sections within sections that a message may have.
pub const DEEPEST: usize = 32;

/// What is wrong with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// It ends within an element.
    Truncated,
    /// A type of packet that is not known.
    PacketType(u8),
    /// A type of element that is not known, or not where it stands.
    Element(u8),
    /// Octets behind a packet that carries none.
    Trailing,
    /// A section or list that is not closed.
    Open,
    /// More than [`DEEPEST`] sections within each other.
    TooDeep,
    /// A name of more than 255 octets, or not of printable ASCII characters.
    Name,
    /// A value of more than 65,535 octets.
    Value,
    /// More than [`LONGEST_SEGMENT`] octets.
    TooLong,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("it ends within an element"),
            Self::PacketType(kind) => write!(f, "packets of type {kind} are not known"),
            Self::Element(kind) => write!(f, "no element of type {kind} may stand there"),
            Self::Trailing => f.write_str("octets behind its end"),
            Self::Open => f.write_str("a section or list is not closed"),
            Self::TooDeep => f.write_str("too many sections within each other"),
            Self::Name => f.write_str("a name is too long, or not of printable characters"),
            Self::Value => f.write_str("a value is too long"),
            Self::TooLong => f.write_str("it is too long"),
        }
    }
}

impl std::error::Error for Error {}
