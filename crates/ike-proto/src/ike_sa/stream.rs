//! The TCP connection of an IKE SA (RFC 9329 §6): opening another one when it breaks, and what waits meanwhile.

use std::time::{Duration, Instant};

use super::IkeSa;
use super::context::Context;
use super::state::{Established, IkePhase, Task};
use crate::channel::Channel;
use crate::child::ChildSa;
use crate::dataplane::Encapsulation;
use crate::event::{Event, Path, StreamEvent};
use crate::exchange::sent::Sent;

//= https://www.rfc-editor.org/rfc/rfc9329#section-6.3.1
//# it
//# is believed that 5-10 seconds is a good compromise.
/// How long a half-open SA without a connection waits for its initiator to come back. An SA that is being deleted
/// waits this long for its peer, which may have deleted it already.
const HALF_OPEN_GRACE: Duration = Duration::from_secs(10);

impl Established {
    /// For the SA of an attempt: takes over the connection. It is to be opened again at `reopen_at`, if at all.
    pub(crate) fn take_over_stream(&mut self, channel: &mut Channel, reopen_at: Option<Instant>) {
        // Messages repeated on the second connection did not make the peer use it.
        if channel.take_over_stream(reopen_at) {
            self.show_up();
        }
    }

    /// Handles that this SA has the children of its predecessor. If its request was repeated on this connection,
    /// the peer has made its SA on an older one.
    pub(super) fn show_successor(&mut self, channel: &Channel) {
        if channel.route().has_newer_stream(channel.link()) {
            self.show_up();
        }
    }

    /// Moves children on other connections to this SA's connection.
    pub(super) fn gather_children(&mut self, channel: &Channel, ctx: &mut Context<'_>) {
        let astray = |child: &ChildSa| {
            matches!(child.encap, Some(Encapsulation::Tcp(_)))
                && child.encap != ChildSa::encap_on(channel.route().esp_path(), false)
        };
        if self.children.iter().any(astray) {
            self.move_children(channel, ctx);
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
        if path != self.channel.route().path() {
            return;
        }
        match event {
            StreamEvent::Opened(local) => {
                if !self.channel.roaming().on_stream_opened(&ctx.io, *local) {
                    return;
                }
                self.when_established(|established, stem| {
                    ctx.io.event(Event::PathChanged { ike: stem.channel.link().id(), path });
                    if stem.channel.route().esp_is_beside() {
                        established.move_children(stem.channel, ctx);
                    }
                });
                self.channel.send_again(&mut ctx.io);
            }
            StreamEvent::Closed(_) => {
                let ends = |own: &Established| own.sent.as_ref().is_some_and(Sent::ends_sa);
                match self.channel.on_stream_closed(&ctx.io) {
                    Some(true) => _ = self.when_established(|own, _| own.show_up()),
                    Some(false) if self.is_half_open() || self.established().is_some_and(ends) => {
                        let at = ctx.io.now.mono + HALF_OPEN_GRACE;
                        self.channel.deadlines().hasten_half_open(at);
                    }
                    Some(false) | None => {}
                }
            }
        }
    }
}
