//! Sent messages of an IKE SA: requests, responses and refusals, sealed and paced.

use crate::channel::Unsent;

use super::Core;
use super::context::Context;
use crate::event::Failure;
use crate::exchange::Refusal;
use crate::wire::payload::Payload;
use crate::wire::registry::ExchangeType;

impl Unsent {
    /// Ends the SA whose request was not sent.
    pub(crate) fn end(self, core: &mut Core) {
        match self {
            Self::Busy => {
                debug_assert!(false, "a request, and another one is outstanding");
                tracing::error!(ike = ?core.id(), "request not sent: another one is outstanding; report this as a bug");
            }
            Self::Exhausted => core.end(Failure::Expired),
            Self::Crypto => core.end(Failure::Crypto),
        }
    }
}

impl Core {
    /// Tells the peer, which may think that all is well, that its IKE_AUTH response cannot be used. It is told
    /// once, because no SA is left to send it again.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.2
    //# If the error occurs on the initiator, the notification MAY be
    //# returned in a separate INFORMATIONAL exchange, usually with no other
    //# payloads.
    pub(crate) fn report_error(&mut self, ctx: &mut Context<'_>, refusal: &Refusal) {
        let sent =
            self.channel.request(&mut ctx.io, ExchangeType::INFORMATIONAL, &[refusal.payload()]);
        sent.unwrap_or_else(|unsent| unsent.end(self));
    }

    /// Answers the request in progress with an error notify. INVALID_SYNTAX and AUTHENTICATION_FAILED end the SA
    /// (RFC 7296 §2.21.2, §2.21.3).
    pub(crate) fn refuse(&mut self, ctx: &mut Context<'_>, refusal: Refusal) {
        let reason = refusal.clone().into();
        self.refuse_because(ctx, &refusal, reason);
    }

    /// As [`refuse`](Self::refuse), with a reason that is not sent to the peer.
    pub(crate) fn refuse_because(
        &mut self,
        ctx: &mut Context<'_>,
        refusal: &Refusal,
        reason: Failure,
    ) {
        self.respond(ctx, &[refusal.payload()]);
        let unauthenticated = self.channel.link().is_stranger();
        if refusal.ends_sa() || unauthenticated {
            self.end(reason);
        }
    }

    /// Answers the request in progress.
    pub(crate) fn respond(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let sent = self.channel.respond(&mut ctx.io, payloads);
        sent.unwrap_or_else(|unsent| unsent.end(self));
    }
}
