//! What an operator should hear of though nothing has failed by it yet.

use std::net::SocketAddr;

use super::IkeSaId;
use crate::dataplane::TrafficSelector;
use crate::wire::registry::ExchangeType;

/// Selectors of this end, and of the peer.
pub type BothSelectors = (Vec<TrafficSelector>, Vec<TrafficSelector>);

/// What a peer or a path does that is likely to matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The peer has answered with wider traffic selectors than it was asked for, which RFC 7296 §2.9 does not allow.
    /// The child uses what this end has asked for.
    SelectorsTooWide {
        /// The IKE SA.
        ike: IkeSaId,
        /// Name of the child's configuration.
        child: String,
        /// What the peer has answered.
        answered: BothSelectors,
        /// What is used.
        used: BothSelectors,
    },
    /// The peer has answered a small message, and has been silent about a large one since.
    LargeUnanswered {
        /// The IKE SA.
        ike: IkeSaId,
        /// The peer.
        remote: SocketAddr,
        /// What the message is.
        exchange: ExchangeType,
        /// Octets of it, in all its datagrams, with their headers.
        octets: usize,
    },
}
