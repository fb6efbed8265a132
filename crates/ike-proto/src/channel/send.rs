//! Sent messages of an IKE SA: requests and responses, sealed and paced.

use std::sync::Arc;
use std::time::Duration;

use super::Channel;
use super::flight::Departure;
use super::io::Io;
use super::timer::{Timer, TimerKey};
use super::window::Datagrams;
use crate::config::Fragmentation;
use crate::event::{Output, Path, Transmit, TransmitKind};
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
        self.window.start_response(self.route.answers.to(), response);
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.1
        //# In order to allow saving memory, responders are
        //# allowed to forget the response after a timeout of several minutes.
        self.timers.set(TimerKey::Ike(Timer::Forget), io.now.mono + ANSWER_KEPT);
        self.pace(io);
        if let Some(path) = self.route.answers.take_other() {
            self.window.answer_again(path);
            self.pace(io);
        }
        Ok(())
    }

    /// Sends a request. The window must be free: `ours` is `None`.
    ///
    /// # Errors
    ///
    /// Why it is not sent. Then nothing has changed, and the SA ends.
    pub(crate) fn request(
        &mut self,
        io: &mut Io<'_>,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
    ) -> Result<(), Unsent> {
        let message_id = self.window.next_request_id().inspect_err(|unsent| {
            if *unsent == Unsent::Busy {
                tracing::error!(ike = ?self.link.id(), "request not sent: another one is outstanding; report this as a bug");
            }
        })?;
        let request = self.seal(io, exchange, message_id, false, payloads)?;
        self.probe.on_request_sent(io.now.mono);
        self.acks.on_request();
        if let Some(stream) = &mut self.route.stream {
            stream.on_asked(io.now.mono);
        }
        self.window.start_request(io.now.mono, exchange, request, io.rng)?;
        self.pace(io);
        Ok(())
    }

    pub(crate) fn seal(
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
            max_datagram: may_fragment
                .then(|| self.probe.room(io.mtus, io.now.mono, self.route.path)),
            force_fragment: may_fragment
                && !self.route.path.transport.is_reliable()
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
            self.depart(io, self.route.path, departure);
        }
        while let Some((to, departure)) = self.window.take_response(io.now.mono) {
            self.depart(io, to, departure);
        }
    }

    pub(crate) fn depart(&mut self, io: &mut Io<'_>, path: Path, departure: Departure) {
        if path == self.route.path
            && self.route.stream.as_ref().is_some_and(|stream| !stream.is_open())
        {
            // A request waits for the next connection. On that connection the peer repeats its request for a lost
            // answer.
            return;
        }
        let Departure { octets, again, whole } = departure;
        let kind = match (again, whole) {
            (true, _) => TransmitKind::Retransmission,
            (false, true) => TransmitKind::Probe,
            (false, false) => TransmitKind::Ike,
        };
        let dscp = self.link.connection().dscp;
        io.out.push_back(Output::Transmit(Transmit { path, kind, dscp, octets }));
        self.arm_keepalive(io);
    }
}
