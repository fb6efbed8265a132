//! MOBIKE with IKE over TCP (RFC 9329 §7.1): in another network UDP is tried first, and TCP if there is no answer.

use std::net::SocketAddr;

use super::context::Context;
use super::io::Io;
use super::state::{Established, IkePhase};
use super::stream::Stream;
use super::timer::{Timer, TimerKey};
use super::{Channel, Core};
use crate::config::TcpUse;
use crate::event::{Path, Transport};
use crate::exchange::sa_init::NATT_PORT;

/// The IKE port: another `remote_port` has UDP encapsulation.
const IKE_PORT: u16 = 500;

impl Established {
    //= https://www.rfc-editor.org/rfc/rfc9329#section-7.1
    //# If no response is received within a
    //# certain period of time after several retransmissions, the Initiator
    //# ought to change its transport for this exchange from UDP to TCP and
    //# resend the request message.  A new INFORMATIONAL exchange MUST NOT be
    //# started in this situation.
    /// Handles that UDP got no answer.
    pub(super) fn fall_back(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        if core.channel.path.transport == Transport::Tcp
            || !core.channel.switches_transports()
            || !matches!(self.phase, IkePhase::Alive | IkePhase::Closing)
        {
            return;
        }
        let port = core.connection().tcp_remote_port;
        let path = Path {
            local: SocketAddr::new(core.channel.path.local.ip(), 0),
            remote: SocketAddr::new(core.channel.path.remote.ip(), port),
            transport: Transport::Tcp,
        };
        core.channel.stream = Some(Box::new(Stream::opening()));
        core.channel.take_path(&mut ctx.io, path);
    }
}

impl Channel {
    //= https://www.rfc-editor.org/rfc/rfc9329#section-7.1
    //# When a MOBIKE-enabled Initiator changes networks, the INFORMATIONAL
    //# exchange with the UPDATE_SA_ADDRESSES notification SHOULD be
    //# initiated first over UDP before attempting over TCP.
    /// The path that replaces `path`, which has the present transport.
    pub(super) fn first_tried(&self, io: &Io<'_>, path: Path) -> Path {
        // A configuration with TCP from the start has a reason.
        let falls_back = matches!(self.link.connection().enable_tcp, TcpUse::Fallback(_));
        if path.transport != Transport::Tcp || !falls_back || !self.switches_transports() {
            return path;
        }
        let port = match self.link.connection().remote_port {
            IKE_PORT => NATT_PORT,
            other => other,
        };
        Path {
            local: SocketAddr::new(path.local.ip(), io.config.natt_port),
            remote: SocketAddr::new(path.remote.ip(), port),
            transport: Transport::UdpEncap,
        }
    }

    /// True if IKE and ESP may move to another transport together.
    pub(super) fn switches_transports(&self) -> bool {
        self.mobike.is_some()
            && self.link.is_authenticated()
            && !self.link.extensions().separate
            && self.separate.is_none()
    }

    /// Handles a path that differs from `before`: opens or closes the connection.
    pub(super) fn change_line(&mut self, io: &mut Io<'_>, before: Transport) {
        let Some(mobike) = &mut self.mobike else { return };
        let had_tcp = mobike.note_tcp(before == Transport::Tcp && self.separate.is_none());
        if self.path.transport == Transport::Tcp || self.separate.is_some() {
            self.timers.clear(TimerKey::Ike(Timer::Fallback));
            match &mut self.stream {
                Some(stream) if stream.ours => stream.open(io, &mut self.path),
                Some(_) => {}
                None if self.path.transport == Transport::Tcp => {
                    self.stream = Some(Box::new(Stream::accepted()));
                }
                None => {}
            }
            return;
        }
        self.stream = None;
        self.timers.clear(TimerKey::Ike(Timer::Reopen));
        if let TcpUse::Fallback(patience) = self.link.connection().enable_tcp
            && had_tcp
            && self.decides()
        {
            self.timers.set(TimerKey::Ike(Timer::Fallback), io.now.mono + patience);
        }
    }

    /// Handles an authentic response by `transport`.
    pub(super) fn on_response_over(&mut self, transport: Transport) {
        if transport != Transport::Tcp {
            self.timers.clear(TimerKey::Ike(Timer::Fallback));
        }
    }
}
