//! MOBIKE with IKE over TCP (RFC 9329 §7.1): in another network UDP is tried first, and TCP if there is no answer.

use super::context::Context;
use super::state::{Established, IkePhase};
use crate::channel::Channel;

impl Established {
    //= https://www.rfc-editor.org/rfc/rfc9329#section-7.1
    //# If no response is received within a
    //# certain period of time after several retransmissions, the Initiator
    //# ought to change its transport for this exchange from UDP to TCP and
    //# resend the request message.  A new INFORMATIONAL exchange MUST NOT be
    //# started in this situation.
    /// Handles that UDP got no answer.
    pub(super) fn fall_back(&mut self, channel: &mut Channel, ctx: &mut Context<'_>) {
        if matches!(self.phase, IkePhase::Alive | IkePhase::Closing) {
            channel.fall_back(&mut ctx.io);
        }
    }
}
