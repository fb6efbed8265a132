//! Sent messages of an IKE SA: requests, responses and refusals, sealed and paced.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::flight::Departure;
use super::io::Io;
use super::timer::{Timer, TimerKey};
use super::window::Datagrams;
use super::{Channel, Core};
use crate::config::Fragmentation;
use crate::event::{Failure, Output, Path, Transmit, TransmitKind};
use crate::exchange::Refusal;
use crate::keys::epoch::Outgoing;
use crate::wire::Flags;
use crate::wire::payload::Payload;
use crate::wire::registry::ExchangeType;

/// How long a response is kept in case its request is repeated: longer than any peer's retransmission schedule.
const ANSWER_KEPT: Duration = Duration::from_secs(240);

/// Why a request has not been sent.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// A request is outstanding, and the window is one (RFC 7296 §2.3).
    Busy,
    /// The last message ID is used: the IKE SA must be closed (RFC 7296 §2.2).
    Exhausted,
    /// The crypto backend failed.
    Crypto,
}

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
        let unauthenticated = !self.is_authenticated();
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

impl Channel {
    /// Sends the response to the request in progress, and keeps it in case the request is repeated.
    pub(crate) fn respond(
        &mut self,
        io: &mut Io<'_>,
        payloads: &[Payload<'_>],
    ) -> Result<(), Unsent> {
        let Some((message_id, exchange)) = self.window.in_progress() else { return Ok(()) };
        let response = self.seal(io, exchange, message_id, true, payloads)?;
        self.acks.on_answered(io.now.mono, message_id);
        self.window.suppose_round_trip(self.acks.shortest_turn());
        self.window.start_response(self.answers.to(), response);
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
        //# In order to allow saving memory, responders are
        //# allowed to forget the response after a timeout of several minutes.
        self.timers.set(TimerKey::Ike(Timer::Forget), io.now.mono + ANSWER_KEPT);
        self.pace(io);
        if let Some(path) = self.answers.take_other() {
            self.window.answer_again(path);
            self.pace(io);
        }
        Ok(())
    }

    /// Sends a request. The window must be free: `ours` is `None`.
    ///
    /// # Errors
    ///
    /// Why it is not sent. Then nothing has changed, and [`Unsent::end`] ends the SA.
    pub(crate) fn request(
        &mut self,
        io: &mut Io<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
    ) -> Result<(), Unsent> {
        let message_id = self.window.next_request_id()?;
        let request = self.seal(io, exchange, message_id, false, payloads)?;
        self.probe.on_request_sent(io.now.mono);
        self.acks.on_request();
        if let Some(stream) = &mut self.stream {
            stream.on_asked(io.now.mono);
        }
        self.window.start_request(io.now.mono, exchange, request, io.rng)?;
        self.pace(io);
        Ok(())
    }

    pub(super) fn seal(
        &mut self,
        io: &mut Io<'_>,
        exchange: ExchangeType,
        message_id: u32,
        response: bool,
        payloads: &[Payload<'_>],
    ) -> Result<Datagrams, Unsent> {
        let may_fragment = self.link.may_fragment();
        let outgoing = Outgoing {
            spi_i: self.link.spis().i(),
            spi_r: self.link.spis().r(),
            exchange,
            flags: Flags { initiator: self.link.is_initiator(), version: false, response },
            message_id,
            payloads,
            max_datagram: may_fragment.then(|| self.probe.room(io.mtus, io.now.mono, self.path)),
            force_fragment: may_fragment
                && !self.path.transport.is_reliable()
                && self.link.connection().fragmentation == Fragmentation::Force
                && exchange == ExchangeType::IKE_AUTH
                && !response,
        };
        let sealed = self.session.epoch.seal(&outgoing, io.rng);
        let datagrams = sealed.map_err(|_| Unsent::Crypto)?;
        Ok(datagrams.into_iter().map(Arc::from).collect())
    }

    /// Sends the datagrams of our request and of our response that are due.
    pub(crate) fn pace(&mut self, io: &mut Io<'_>) {
        while let Some(departure) = self.window.take_request(io.now.mono) {
            self.depart(io, self.path, departure);
        }
        while let Some((to, departure)) = self.window.take_response(io.now.mono) {
            self.depart(io, to, departure);
        }
    }

    pub(super) fn depart(&mut self, io: &mut Io<'_>, path: Path, departure: Departure) {
        if path == self.path && self.stream.as_ref().is_some_and(|stream| !stream.is_open()) {
            // A request waits for the next connection. On that connection the peer repeats its request for a lost
            // answer.
            return;
        }
        let Departure { octets, again } = departure;
        let kind = if again { TransmitKind::Retransmission } else { TransmitKind::Ike };
        let dscp = self.link.connection().dscp;
        io.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
        self.arm_keepalive(io);
    }
}
