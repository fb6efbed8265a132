//! Hints for an operator about conditions that have caused no failure yet.

use std::net::SocketAddr;

use super::IkeSaId;
use crate::dataplane::TrafficSelector;
use crate::wire::registry::ExchangeType;

/// Traffic selectors of this end, then those of the peer.
pub type BothSelectors = (Vec<TrafficSelector>, Vec<TrafficSelector>);

/// A condition at the peer or on the path that is likely to cause a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The peer has answered with wider traffic selectors than the request had, which RFC 7296 §2.9 does not allow.
    /// The child uses the part that the request had.
    SelectorsTooWide {
        /// The IKE SA.
        ike: IkeSaId,
        /// Name of the child's configuration.
        child: String,
        /// The selectors in the answer.
        answered: BothSelectors,
        /// The selectors of the child.
        used: BothSelectors,
    },
    /// The peer has answered a small message, and has not answered a large one since.
    LargeUnanswered {
        /// The IKE SA.
        ike: IkeSaId,
        /// The peer.
        remote: SocketAddr,
        /// The exchange of the large message.
        exchange: ExchangeType,
        /// Its size in octets: all of its datagrams, with their headers.
        octets: usize,
    },
}
