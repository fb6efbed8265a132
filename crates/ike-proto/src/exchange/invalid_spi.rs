//! INVALID_SPI (RFC 7296 §1.5, §2.21.4): an ESP packet arrived that belongs to no SA. `endpoint/unknown_spi.rs`
//! decides when to send it, and what follows when it is received.
//!
//! ```text
//!    HDR(0, 0), N(INVALID_SPI)     -->        without an IKE SA: nobody answers
//!    HDR, SK {N(INVALID_SPI)}      -->        with one
//!                              <--  HDR, SK {}
//! ```

use super::Payloads;
use crate::event::Transport;
use crate::exchange::sent::Sent;
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::wire::payload::Payload;
use crate::wire::registry::{ExchangeType, NotifyType, PayloadType};
use crate::wire::{Flags, Header, Message, encode_message};

/// Octets of the unprotected message with UDP's header, and the non-ESP marker if there is one. The receiver has
/// sent at least as many.
pub(crate) fn length(transport: Transport) -> usize {
    let marker = if transport == Transport::UdpEncap { 4 } else { 0 };
    8 + marker + 28 + 12
}

/// The message to a host with which there is no IKE SA.
pub(crate) fn encode(spi: u32) -> Vec<u8> {
    //= https://www.rfc-editor.org/rfc/rfc7296#section-1.5
    //# there are no IKE SPI values that would be meaningful to the
    //# recipient of such a notification; using zero values or random values
    //# are both acceptable, this being the exception to the rule in
    //# Section 3.1 that prohibits zero IKE Initiator SPIs.  The Initiator
    //# flag is set to 1, the Response flag is set to 0
    let header = Header {
        spi_i: 0,
        spi_r: 0,
        next_payload: PayloadType::NONE,
        minor_version: 0,
        exchange: ExchangeType::INFORMATIONAL,
        flags: Flags { initiator: true, version: false, response: false },
        message_id: 0,
        length: 0,
    };
    encode_message(&header, &[notify(NotifyType::INVALID_SPI, &spi.to_be_bytes())])
}

/// The SPI in an unprotected message of this kind.
pub(crate) fn read(message: &Message<'_>) -> Option<u32> {
    let header = &message.header;
    let sealed = |payload: &Payload<'_>| matches!(payload, Payload::Sk(_) | Payload::Skf(_));
    if header.flags.response
        || header.exchange != ExchangeType::INFORMATIONAL
        || message.payloads.iter().any(sealed)
    {
        return None;
    }
    let notify = Payloads(&message.payloads).notify(NotifyType::INVALID_SPI)?;
    Some(u32::from_be_bytes(notify.data.try_into().ok()?))
}

impl Established {
    /// Handles that the peer sends ESP packets with this SPI, for which there is no SA. Queues INVALID_SPI, unless
    /// another request is queued, which also shows that this end is alive.
    pub(crate) fn tell_invalid_spi(&mut self, spi: u32) -> bool {
        if self.phase != IkePhase::Alive {
            return false;
        }
        if self.work().is_none() {
            self.queue.push(Task::InvalidSpi(spi));
        }
        true
    }

    pub(crate) fn send_invalid_spi(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        spi: u32,
    ) {
        let spi = spi.to_be_bytes();
        self.inform(stem, ctx, &[notify(NotifyType::INVALID_SPI, &spi)], Sent::Liveness);
    }
}
