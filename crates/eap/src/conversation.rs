//! The common parts of both ends of a conversation.

use std::fmt;
use std::sync::Arc;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::packet::EapType;

/// Packets one end takes in a conversation: what a method needs most, TLS with long chains, is below it.
pub(crate) const MAX_ROUNDS: u32 = 128;

/// Fills a buffer with random octets.
pub type Fill = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Finds the password of an identity; both are octets as they stand in packets, passwords UTF-8 text.
pub trait Secrets: Send + Sync {
    /// The password of `identity`, if it has one here.
    fn password(&self, identity: &[u8]) -> Option<Zeroizing<Vec<u8>>>;

    /// The one name of whoever has the password of `identity`: several spellings may have it.
    fn canonical(&self, identity: &[u8]) -> Vec<u8> {
        identity.to_vec()
    }
}

/// The Master Session Key, 64 octets (RFC 3748 §7.10). Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Msk(Vec<u8>);

impl Msk {
    /// Takes the octets: 64 of them, or what a RADIUS server gave.
    pub fn new(octets: Vec<u8>) -> Self {
        Self(octets)
    }

    /// The octets.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Msk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Msk({} octets)", self.0.len())
    }
}

/// The conversation has come to a good end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success {
    /// EAP-Success, which the authenticator sends.
    pub packet: Option<Vec<u8>>,
    /// The key, if the method makes one.
    pub msk: Option<Msk>,
    /// The method that did it; `None` if it is a server's secret.
    pub method: Option<EapType>,
    /// The peer's identity: proven to the authenticator.
    pub identity: Vec<u8>,
}

/// What comes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this, and go on.
    Send(Vec<u8>),
    /// Good end.
    Success(Success),
    /// Bad end: EAP-Failure, if this end sends it, and why, for the log alone.
    Failure(Option<Vec<u8>>, String),
}

impl Step {
    pub(crate) fn fail(why: impl fmt::Display) -> Self {
        Self::Failure(None, why.to_string())
    }
}

/// One end of a conversation. After [`Step::Success`] or [`Step::Failure`] it is over.
pub trait Conversation: Send {
    /// The other end's packet; `None` to begin, which is the authenticator's part.
    fn handle(&mut self, packet: Option<&[u8]>) -> Step;

    /// Octets that the other end can make it keep, at most and about.
    fn room(&self) -> usize {
        1024
    }
}

/// An identity or a name as text that is safe in a log line.
pub(crate) fn shown(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).chars().take(64).flat_map(char::escape_debug).collect()
}
