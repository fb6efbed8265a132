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
use crate::event::Transport;
use crate::ike_sa::context::Context;
use crate::wire::registry::NotifyType;

/// The notify. The numbers up to 51,524 are taken: [`EndpointConfig`](crate::config::EndpointConfig) has them.
const ESP_IN_UDP: NotifyType = NotifyType(51_525);

/// The notify of this end's IKE_AUTH message: a proposal, or the responder's consent.
pub(crate) fn in_auth(channel: &Channel, ctx: &Context<'_>) -> Option<(NotifyType, Vec<u8>)> {
    let wanted = match channel.link().is_initiator() {
        true => wants(channel, ctx),
        false => channel.route().agreed_on_udp(),
    };
    wanted.then(|| (ESP_IN_UDP, Vec::new()))
}

/// Handles the peer's IKE_AUTH message with the traffic selectors: both ends agree if this one wants it, too.
pub(crate) fn of_auth(channel: &mut Channel, ctx: &Context<'_>, peer: &Payloads<'_, '_>) {
    if peer.notify(ESP_IN_UDP).is_some() && wants(channel, ctx) {
        channel.roaming().agree_on_udp();
    }
}

/// True if ESP in UDP costs this end less, and nothing forbids it.
fn wants(channel: &Channel, ctx: &Context<'_>) -> bool {
    let (link, route) = (channel.link(), channel.route());
    ctx.plane.udp_costs_less
        && link.connection().encap == EspInUdp::Auto
        && link.extensions().fragment_ack == Some(FragmentAckTypes::default())
        && route.path().transport == Transport::UdpEncap
}
