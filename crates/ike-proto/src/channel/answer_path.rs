//! Where the response to the peer's latest request goes.

use std::net::IpAddr;

use crate::event::Path;

/// How often a response is sent again to an address other than that of its request, or to an address that the peer
/// has not proven. A NAT may have changed its mapping. But an attacker who replays a captured request may name any
/// address, and so may a peer that is not authenticated yet.
const ELSEWHERE: u8 = 8;

/// The same for a peer with MOBIKE, which tries one path after the other.
const ELSEWHERE_MOBILE: u8 = 64;

/// The path of the peer's latest request, and how often its response has gone elsewhere.
pub(crate) struct AnswerPath {
    to: Path,
    /// The address to which the messages went that gave the peer its keys.
    reached: IpAddr,
    /// How often that response was sent to another address.
    elsewhere: u8,
    /// Another connection by which a copy of the request in progress came.
    also_to: Option<Box<Path>>,
}

impl AnswerPath {
    /// For an SA whose keys were made by messages on `path`.
    pub(crate) fn new(path: Path) -> Self {
        Self { to: path, reached: path.remote.ip().to_canonical(), elsewhere: 0, also_to: None }
    }

    /// The path of the peer's latest request.
    pub(crate) fn to(&self) -> Path {
        self.to
    }

    /// Handles a new request that came by `path`.
    pub(crate) fn begin(&mut self, path: Path) {
        (self.to, self.elsewhere, self.also_to) = (path, 0, None);
    }

    /// Has the response go by `path` as well.
    pub(crate) fn add(&mut self, path: Path) {
        self.also_to = Some(Box::new(path));
    }

    /// The other path of the response, once.
    pub(crate) fn take_other(&mut self) -> Option<Path> {
        self.also_to.take().map(|path| *path)
    }

    /// True if the messages that gave the peer its keys went to the address of `path`.
    pub(crate) fn has_reached(&self, path: Path) -> bool {
        path.remote.ip().to_canonical() == self.reached
    }

    /// Counts one more response to another address. False if it is one too many.
    pub(crate) fn count_elsewhere(&mut self, mobile: bool) -> bool {
        self.elsewhere = self.elsewhere.saturating_add(1);
        self.elsewhere <= if mobile { ELSEWHERE_MOBILE } else { ELSEWHERE }
    }
}
