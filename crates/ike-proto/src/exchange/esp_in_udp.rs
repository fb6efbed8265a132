//! The agreement to send ESP in UDP where there is no NAT, because that costs both data planes less. RFC 7296 §2.23
//! permits ESP in UDP on port 4500 at any time, and its receivers take it.
//!
//! ```text
//!    HDR, SK {IDi, …, SAi2, TSi, TSr, N(ESP_IN_UDP)}  -->
//!                           <--  HDR, SK {IDr, AUTH, …, N(ESP_IN_UDP)}
//! ```
//!
//! The notify is of the private range and has no data. An initiator sends it only to a peer that has agreed to this
//! project's own numbers in IKE_SA_INIT. NAT detection is not forged for it. The agreement goes on to the IKE SAs that
//! replace this one, and has no effect on a path without UDP encapsulation.

use super::Payloads;
use crate::channel::Channel;
use crate::config::{EspInUdp, FragmentAckTypes};
use crate::dataplane::Capabilities;
use crate::event::Transport;
use crate::wire::registry::NotifyType;

/// The notify. The numbers up to 51,524 are taken: [`EndpointConfig`](crate::config::EndpointConfig) has them.
const ESP_IN_UDP: NotifyType = NotifyType(51_525);

/// What this end says and thinks of ESP in UDP in IKE_AUTH.
#[derive(Clone, Copy)]
pub(crate) struct Agreement {
    /// ESP in UDP costs this end less, and nothing forbids it.
    wanted: bool,
    /// The notify is to be sent: a proposal, or the responder's consent.
    told: bool,
}

impl Agreement {
    /// That of an end with this data plane.
    pub(crate) fn of(channel: &Channel, plane: Capabilities) -> Self {
        let (link, route) = (channel.link(), channel.route());
        let wanted = plane.udp_costs_less
            && link.connection().encap == EspInUdp::Auto
            && link.extensions().fragment_ack == Some(FragmentAckTypes::default())
            && route.path().transport == Transport::UdpEncap;
        Self { wanted, told: if link.is_initiator() { wanted } else { route.agreed_on_udp() } }
    }

    /// The notify of this end's IKE_AUTH message with the traffic selectors.
    pub(crate) fn notify(self) -> Option<(NotifyType, Vec<u8>)> {
        self.told.then(|| (ESP_IN_UDP, Vec::new()))
    }

    /// True if the peer's message makes it an agreement of both ends.
    pub(crate) fn is_shared_by(self, peer: &Payloads<'_, '_>) -> bool {
        self.wanted && peer.notify(ESP_IN_UDP).is_some()
    }
}
