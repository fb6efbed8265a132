//! What an IKE SA lends the handlers of its states for one input, and why it ends.

use super::Peer;
use super::context::Context;
use super::pending::Waits;
use crate::channel::{Channel, Unsent};
use crate::event::{Failure, RequestId};
use crate::exchange::Refusal;
use crate::wire::payload::Payload;
use crate::wire::registry::ExchangeType;

/// The parts that an IKE SA has beside its state, lent to the handler of the state. What one part does alone is a
/// method of that part.
pub(crate) struct Stem<'a> {
    pub(crate) channel: &'a mut Channel,
    pub(crate) peer: &'a mut Peer,
    pub(crate) ending: &'a mut Ending,
    /// Slow key exchanges that are done outside the engine.
    pub(crate) pending: &'a mut Waits,
    /// Commands to answer when the SA is established or fails.
    pub(crate) waiting: &'a mut Vec<RequestId>,
}

/// Why an IKE SA ends, once a handler has found that it does. The state is closed when that handler has returned.
#[derive(Default)]
pub(crate) struct Ending(Option<Box<Failure>>);

impl Ending {
    /// Ends the SA once the present handler has returned. The first reason counts.
    pub(crate) fn end(&mut self, reason: Failure) {
        self.0.get_or_insert_with(|| Box::new(reason));
    }

    /// True if the SA ends once the present handler has returned.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The reason, for the one who closes the state.
    pub(super) fn take(&mut self) -> Option<Failure> {
        self.0.take().map(|reason| *reason)
    }

    /// Ends the SA whose message was not sent.
    pub(crate) fn on_unsent(&mut self, unsent: Unsent) {
        match unsent {
            Unsent::Busy => debug_assert!(false, "a request, and another one is outstanding"),
            Unsent::Exhausted => self.end(Failure::Expired),
            Unsent::Crypto => self.end(Failure::Crypto),
        }
    }
}

impl Stem<'_> {
    /// The channel and the peer, to read.
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen { channel: self.channel, peer: self.peer }
    }

    /// Tells the peer, which may think that all is well, that its IKE_AUTH response cannot be used. It is told
    /// once, because no SA is left to send it again.
    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.21.2
    //# If the error occurs on the initiator, the notification MAY be
    //# returned in a separate INFORMATIONAL exchange, usually with no other
    //# payloads.
    pub(crate) fn report_error(&mut self, ctx: &mut Context<'_>, refusal: &Refusal) {
        let sent =
            self.channel.request(&mut ctx.io, ExchangeType::INFORMATIONAL, &[refusal.payload()]);
        sent.unwrap_or_else(|unsent| self.ending.on_unsent(unsent));
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
            self.ending.end(reason);
        }
    }

    /// Answers the request in progress.
    pub(crate) fn respond(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        let sent = self.channel.respond(&mut ctx.io, payloads);
        sent.unwrap_or_else(|unsent| self.ending.on_unsent(unsent));
    }
}

/// What this end knows of the channel and of the other end, for those who only read.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) channel: &'a Channel,
    pub(crate) peer: &'a Peer,
}
