//! The parts of an IKE message that are visible without its keys.

use std::fmt;
use std::time::Instant;

use ike_proto::Path;
use ike_proto::wire::header::{HEADER_LEN, Header};
use ike_proto::wire::registry::{ExchangeType, PayloadType};

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// A message, or a fragment of one, that was sent or received.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The time, by the clock of [`now`](crate::now()), which differs from [`Instant::now`] after a suspend.
    pub at: Instant,
    /// Received or sent.
    pub direction: Direction,
    /// The addresses, ports and transport.
    pub path: Path,
    /// The exchange type.
    pub exchange: ExchangeType,
    /// True for a response.
    pub response: bool,
    /// Message ID.
    pub message_id: u32,
    /// Initiator's SPI of its IKE SA.
    pub spi_i: u64,
    /// Number of this fragment and of all of them (RFC 7383), if it is one.
    pub fragment: Option<(u16, u16)>,
    /// Octets of the IKE message or fragment, without UDP header and non-ESP marker.
    pub size: usize,
    /// True for a retransmission by this end.
    pub again: bool,
}

impl Message {
    /// Reads the header; `None` if there is none.
    pub(crate) fn read(
        at: Instant,
        direction: Direction,
        path: Path,
        again: bool,
        octets: &[u8],
    ) -> Option<Self> {
        let header = Header::decode(octets).ok()?;
        Some(Self {
            at,
            direction,
            path,
            exchange: header.exchange,
            response: header.flags.response,
            message_id: header.message_id,
            spi_i: header.spi_i,
            fragment: fragment(header.next_payload, octets),
            size: octets.len(),
            again,
        })
    }
}

/// Fragment Number and Total Fragments follow the generic header of an SKF payload.
fn fragment(first: PayloadType, octets: &[u8]) -> Option<(u16, u16)> {
    if first != PayloadType::SKF {
        return None;
    }
    let (number, rest) = octets.get(HEADER_LEN + 4..)?.split_first_chunk::<2>()?;
    let total = rest.first_chunk::<2>()?;
    Some((u16::from_be_bytes(*number), u16::from_be_bytes(*total)))
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (way, preposition) = match self.direction {
            Direction::In => ("received", "from"),
            Direction::Out if self.again => ("sent again", "to"),
            Direction::Out => ("sent", "to"),
        };
        let kind = if self.response { "response" } else { "request" };
        write!(f, "{way} {} {kind} {}", self.exchange, self.message_id)?;
        if let Some((number, total)) = self.fragment {
            write!(f, ", fragment {number}/{total}")?;
        }
        write!(f, ", {} octets, {preposition} {}", self.size, self.path.remote)
    }
}
