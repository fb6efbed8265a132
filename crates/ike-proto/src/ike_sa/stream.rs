//! The TCP connection of an IKE SA (RFC 9329 §6): opening another one when it breaks, and what waits meanwhile.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::context::Context;
use super::io::Io;
use super::state::{Established, IkePhase, Task};
use super::timer::{Timer, TimerKey};
use super::{Channel, Core, IkeSa};
use crate::child::ChildSa;
use crate::dataplane::Encapsulation;
use crate::event::{Event, Output, Path, StreamCommand, StreamEvent, Transport};
use crate::exchange::sa_init::floated;
use crate::exchange::sent::Sent;

/// The wait before another connection is opened. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A connection of this age was a good one: the next wait is the first one again.
const GOOD: Duration = Duration::from_secs(10);

/// How long a peer has for a request. A connection carries a request faster, or breaks.
const PATIENCE: Duration = Duration::from_secs(10);

//= https://www.rfc-editor.org/rfc/rfc9329#section-6.3.1
//# it
//# is believed that 5-10 seconds is a good compromise.
/// How long a half-open SA without a connection waits for its initiator to come back. An SA that is being deleted
/// waits this long for its peer, which may have deleted it already.
const HALF_OPEN_GRACE: Duration = Duration::from_secs(10);

/// The TCP connection that an IKE SA uses.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    /// True if this end opens it: this end is the TCP Originator of RFC 9329.
    pub(super) ours: bool,
    condition: Condition,
    /// This end's address and port.
    local: Option<SocketAddr>,
    opened: Option<Instant>,
    /// Consecutive connections that were lost or not made.
    failures: u32,
    /// When the last request was sent.
    asked: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Opening,
    Open,
    Lost,
}

impl Stream {
    /// A connection that this end opens.
    pub(crate) fn opening() -> Self {
        let condition = Condition::Opening;
        Self { ours: true, condition, local: None, opened: None, failures: 0, asked: None }
    }

    /// A connection that the peer opened.
    pub(crate) fn accepted() -> Self {
        Self { ours: false, condition: Condition::Open, ..Self::opening() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.condition == Condition::Open
    }

    /// True if there is no connection and none is being opened.
    pub(crate) fn is_lost(&self) -> bool {
        self.condition == Condition::Lost
    }

    /// This end's address and port, once they are known.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    pub(crate) fn on_opened(&mut self, now: Instant, local: SocketAddr) {
        self.condition = Condition::Open;
        (self.local, self.opened) = (Some(local), Some(now));
    }

    /// Handles the end of the connection. Returns the wait before the next one is opened.
    pub(crate) fn on_closed(&mut self, now: Instant) -> Duration {
        self.condition = Condition::Lost;
        let held = self.opened.take().map(|at| now.saturating_duration_since(at));
        if held.is_some_and(|held| held >= GOOD) {
            self.failures = 0;
        }
        let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Records that a request is sent.
    pub(crate) fn on_asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.2
    //# (*) This is an optimization; implementations may continue to use the
    //# retransmission logic from Section 2.1 of [RFC7296] for simplicity.
    /// True if the request in flight is to be sent again although nothing was lost on the path: the peer may have
    /// dropped it, because it did not have the SA yet, was not as far, or was too busy.
    pub(crate) fn asks_again(&self, now: Instant) -> bool {
        self.is_open() && self.asked.is_none_or(|at| now.saturating_duration_since(at) >= PATIENCE)
    }

    /// Opens another connection instead of the one in `path`.
    pub(crate) fn open(&mut self, io: &mut Io<'_>, path: &mut Path) {
        self.condition = Condition::Opening;
        io.streams.name(path);
        io.out.push_back(Output::Stream(*path, StreamCommand::Open));
    }
}

impl Established {
    /// For the SA of an attempt: takes over the connection. It is to be opened again at `reopen_at`, if at all.
    pub(crate) fn take_over_stream(&mut self, core: &mut Core, reopen_at: Option<Instant>) {
        let Some(stream) = &core.channel.stream else { return };
        if stream.is_lost() {
            core.channel.timers.set_or_clear(TimerKey::Ike(Timer::Reopen), reopen_at);
        }
        // Messages repeated on the second connection did not make the peer use it.
        if stream.failures > 0 {
            self.show_up();
        }
    }

    /// Handles that this SA has the children of its predecessor. If its request was repeated on this connection,
    /// the peer has made its SA on an older one.
    pub(super) fn show_successor(&mut self, core: &mut Core) {
        let Some(stream) = core.channel.stream.as_ref().filter(|stream| stream.ours) else {
            return;
        };
        if core.is_initiator() && stream.opened.is_none_or(|at| at >= core.channel.link.started()) {
            self.show_up();
        }
    }

    /// Moves children on other connections to this SA's connection.
    pub(super) fn gather_children(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        let astray = |child: &ChildSa| {
            matches!(child.encap, Some(Encapsulation::Tcp(_)))
                && child.encap != ChildSa::encap_on(core.channel.esp_path(), false)
        };
        if self.children.iter().any(astray) {
            self.move_children(core, ctx);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
    //# it is suggested that the TCP Originator send an
    //# UPDATE_SA_ADDRESSES message if MOBIKE is supported and an empty
    //# informational message if it is not.
    /// Sends the peer a new request on the next connection. A request that the peer has seen before does not make
    /// it use that connection. The new request also limits the time without a connection.
    fn show_up(&mut self) {
        let pending = matches!(self.sent, Some(Sent::Liveness))
            || self.queue.tasks().any(|task| matches!(task, Task::Liveness));
        if !matches!(self.phase, IkePhase::Closing | IkePhase::Crossed(_)) && !pending {
            self.queue.push(Task::Liveness);
        }
    }
}

impl IkeSa {
    /// Handles an event of the connection `path`.
    pub(crate) fn on_stream(&mut self, ctx: &mut Context<'_>, path: Path, event: &StreamEvent) {
        if path != self.core.channel.path {
            return;
        }
        let now = ctx.io.now.mono;
        let Some(stream) = &mut self.core.channel.stream else { return };
        match event {
            StreamEvent::Opened(local) => {
                stream.on_opened(now, *local);
                if let Some((established, core)) = self.established_mut() {
                    ctx.io.event(Event::PathChanged { ike: core.id(), path });
                    if core.channel.separate.is_none() {
                        established.move_children(core, ctx);
                    }
                }
                self.core.channel.send_again(&mut ctx.io);
            }
            StreamEvent::Closed(_) => {
                let wait = stream.on_closed(now);
                //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
                //# The TCP
                //# Originator is responsible for re-establishing the TCP connection if
                //# it is torn down for any unexpected reason.
                if stream.ours {
                    self.core.channel.timers.set(TimerKey::Ike(Timer::Reopen), now + wait);
                    if let Some((established, _)) = self.established_mut() {
                        established.show_up();
                    }
                } else if self.is_half_open()
                    || self.established().is_some_and(|(established, _)| {
                        established.sent.as_ref().is_some_and(Sent::ends_sa)
                    })
                {
                    let key = TimerKey::Ike(Timer::HalfOpen);
                    let grace = now + HALF_OPEN_GRACE;
                    let at = self.core.channel.timers.get(key).map_or(grace, |at| at.min(grace));
                    self.core.channel.timers.set(key, at);
                }
            }
        }
    }
}

impl Channel {
    /// For a new SA: its connection, and the path of ESP if that is another one.
    pub(crate) fn begin_stream(&mut self, stream: Option<Stream>, separate: Option<Path>) {
        (self.stream, self.separate) = (stream.map(Box::new), separate.map(Box::new));
    }

    /// For a candidate: if it has a connection, `stream`, which its attempt opens as `path`, takes the place of that.
    pub(crate) fn change_stream(&mut self, path: Path, stream: &Stream) {
        if let Some(place) = &mut self.stream {
            self.path = path;
            **place = stream.clone();
        }
    }

    /// True if this end opens the connections.
    pub(crate) fn opens_stream(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.ours)
    }

    /// True if the transport of `path` is one by which messages for this SA may come.
    pub(super) fn takes_from(&self, path: Path) -> bool {
        self.is_on_line(path) || self.switches_transports()
    }

    /// Changes to the connection `path`, on which a new and authentic message of the peer came.
    pub(super) fn follow_stream(&mut self, io: &Io<'_>, path: Path) {
        if self.path.transport != Transport::Tcp {
            let separate = floated(self.path, self.nat, false, io.config.natt_port);
            self.separate = Some(Box::new(separate));
        }
        self.path = path;
        self.stream = Some(Box::new(Stream::accepted()));
        if self.link.is_authenticated() {
            self.limit_half_open(None);
        } else {
            let at = self.link.started() + io.config.half_open_timeout;
            self.limit_half_open(Some(at));
        }
    }

    /// The connection in use or being opened.
    pub(crate) fn stream_path(&self) -> Option<Path> {
        self.stream.as_ref().filter(|stream| !stream.is_lost()).map(|_| self.path)
    }

    /// The same without a move to another transport.
    pub(super) fn is_on_line(&self, path: Path) -> bool {
        match (self.path.transport, path.transport) {
            //= https://www.rfc-editor.org/rfc/rfc9329#section-5
            //# all IKE
            //# messages for that IKE SA and ESP packets for its Child SAs MUST be
            //# sent over a TCP connection until the SA is deleted or IKEv2 Mobility
            //# and Multihoming (MOBIKE) is used
            (Transport::Tcp, transport) => transport == Transport::Tcp,
            //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-reliable-transport-04#section-3.1
            //# the initiator MUST switch to TCP port
            //# 4500 for subsequent exchanges (IKE_INTERMEDIATE or IKE_AUTH).
            (_, transport) => (transport == Transport::Tcp) == self.link.extensions().separate,
        }
    }

    /// For a candidate: the connection is gone, and the attempt opens another one.
    pub(crate) fn lose_stream(&mut self, path: Path, now: Instant) {
        if let Some(stream) = self.stream.as_mut().filter(|_| self.path == path) {
            stream.on_closed(now);
        }
    }

    /// Opens the connection again.
    pub(super) fn reopen(&mut self, io: &mut Io<'_>) {
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.ours && stream.is_lost())
        {
            stream.open(io, &mut self.path);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-6.2
    //# If a new TCP connection for the IKE SA is established while the
    //# exchange Initiator is waiting for a response, the Initiator MUST
    //# retransmit its request over this connection and continue to wait
    //# for a response.
    /// Sends the request in flight on the present connection.
    pub(super) fn send_again(&mut self, io: &mut Io<'_>) {
        if self.window.request_again() {
            if let Some(stream) = &mut self.stream {
                stream.on_asked(io.now.mono);
            }
            self.pace(io);
        }
    }
}

impl Transport {
    /// True if the transport loses nothing while it exists, so that nothing is retransmitted (RFC 9329 §6.2).
    pub(crate) fn is_reliable(self) -> bool {
        self == Self::Tcp
    }
}
