//! The TCP connection of an attempt, and the change from one transport to the other (RFC 9329 §5.1).

use std::time::{Duration, Instant};

use super::{Attempt, Line, Origin, Switch};
use crate::channel::stream::Stream;
use crate::config::TcpUse;
use crate::event::{Failure, Path, StreamEvent, TransmitKind, Transport};
use crate::ike_sa::context::Context;

/// How long an attempt tries to open its first connection.
const OPENING: Duration = Duration::from_secs(60);
/// How long UDP has after the fallback time if nothing was retransmitted yet.
const ONE_MORE: Duration = Duration::from_secs(1);

impl Attempt {
    pub(super) fn is_over_tcp(&self) -> bool {
        self.path.transport == Transport::Tcp
    }

    /// The connection in use or being opened.
    pub(in crate::endpoint) fn stream_path(&self) -> Option<Path> {
        self.tcp.as_ref().filter(|line| !line.stream.is_lost()).map(|line| line.path)
    }

    /// The path with this end's address in the connection.
    pub(super) fn path_seen(&self) -> Path {
        let local = match &self.tcp {
            Some(line) if self.is_over_tcp() => line.stream.local(),
            _ => None,
        };
        Path { local: local.unwrap_or(self.path.local), ..self.path }
    }

    /// The connection. Opens one if there is none.
    pub(super) fn open_line(&mut self, ctx: &mut Context<'_>) -> (Path, Stream) {
        let line = self.tcp.get_or_insert_with(|| {
            let mut path = Path { transport: Transport::Tcp, ..self.path };
            path.remote.set_port(self.connection.tcp_remote_port);
            let mut stream = Stream::opening();
            stream.open(&mut ctx.io, &mut path);
            Line { path, stream, reopen_at: None, worked: false }
        });
        (line.path, line.stream.clone())
    }

    /// Handles an event of the connection `path`.
    pub(in crate::endpoint) fn on_stream(
        &mut self,
        ctx: &mut Context<'_>,
        path: Path,
        event: &StreamEvent,
    ) {
        let Some(line) = self.tcp.as_mut().filter(|line| line.path == path) else {
            return tracing::debug!(?path, "TCP connection: the attempt uses another one by now");
        };
        match event {
            StreamEvent::Opened(local) => {
                line.stream.on_opened(ctx.io.now.mono, *local);
                line.worked = true;
                self.on_opened(ctx, path, event);
            }
            StreamEvent::Closed(_) => {
                let wait = line.stream.on_closed(ctx.io.now.mono);
                line.reopen_at = Some(ctx.io.now.mono + wait);
                let worked = line.worked;
                for candidate in &mut self.candidates {
                    candidate.channel.roaming().lose_stream(path, ctx.io.now.mono);
                }
                if !worked {
                    self.on_not_opened(ctx, path);
                }
            }
        }
    }

    fn on_opened(&mut self, ctx: &mut Context<'_>, path: Path, event: &StreamEvent) {
        for candidate in &mut self.candidates {
            candidate.on_stream(ctx, path, event);
        }
        if !self.is_over_tcp() {
            return;
        }
        match self.sent.last() {
            None => {
                let method = self.method;
                if let Err(failure) = self.send(ctx, method) {
                    self.give_up(ctx, failure);
                }
            }
            // The octets are the same, because AUTH covers them.
            Some(sent) if self.candidates.is_empty() => {
                let octets = sent.octets.clone();
                self.transmit(ctx, octets, TransmitKind::Retransmission);
            }
            Some(_) => {}
        }
    }

    /// The connection was never open.
    fn on_not_opened(&mut self, ctx: &mut Context<'_>, path: Path) {
        if self.is_over_tcp() {
            match self.origin {
                Origin::Remembered => self.switch = Some(Switch::Udp),
                // Neither transport works. UDP may still get through a lossy link.
                Origin::FellBack => self.switch = Some(Switch::OneTransport),
                Origin::Configured | Origin::OneTransport => {}
            }
            return;
        }
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-reliable-transport-04#section-3.1
        //# If the
        //# initiator is unable to establish a TCP connection to port 4500, it
        //# MUST cancel the current IKE SA establishment.  The initiator in this
        //# case can restart the IKE_SA_INIT exchange over UDP without proposing
        //# separate transports
        for candidate in
            self.candidates.iter_mut().filter(|candidate| candidate.channel.route().path() == path)
        {
            candidate.close(ctx, Failure::Timeout);
        }
        self.reap(ctx);
        self.tcp = None;
        if self.candidates.is_empty() {
            self.switch = Some(Switch::OneTransport);
        }
    }

    pub(super) fn line_deadline(&self) -> Option<Instant> {
        let line = self.tcp.as_ref()?;
        let limit = (self.is_over_tcp() && self.sent.is_empty()).then(|| self.started + OPENING);
        [line.reopen_at, limit].into_iter().flatten().min()
    }

    pub(super) fn on_line_timeout(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.io.now.mono;
        if let TcpUse::Fallback(patience) = self.connection.enable_tcp
            && self.fall_back_at.is_some_and(|at| at <= now)
        {
            self.consider_tcp(now, patience);
        }
        if self.is_over_tcp() && self.sent.is_empty() && now >= self.started + OPENING {
            return self.give_up(ctx, Failure::Timeout);
        }
        let is_due = |line: &&mut Line| line.reopen_at.is_some_and(|at| at <= now);
        if let Some(line) = self.tcp.as_mut().filter(is_due) {
            line.reopen_at = None;
            line.stream.open(&mut ctx.io, &mut line.path);
            for candidate in &mut self.candidates {
                candidate.channel.roaming().change_stream(line.path, &line.stream);
            }
            if self.path.transport == Transport::Tcp {
                self.path = line.path;
            }
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9329#section-5.1
    //# It is recommended that the
    //# initial message over UDP be retransmitted at least once before
    //# falling back to TCP
    /// Changes to TCP if the present request got no answer within the fallback time.
    fn consider_tcp(&mut self, now: Instant, patience: Duration) {
        let heard = self.candidates.iter().map(|candidate| candidate.channel.last_heard()).max();
        let due = heard.map_or(self.heard, |heard| heard.max(self.heard)) + patience;
        // A signature, a verdict or a key exchange takes time at this end, not on the path.
        let busy = !self.put_off.is_empty()
            || self.candidates.iter().any(|candidate| candidate.is_waiting_here());
        let tries =
            self.candidates.iter().map(|candidate| candidate.channel.window().tries()).max();
        let tries = tries.unwrap_or_else(|| self.window.tries());
        self.fall_back_at = if self.tcp.is_some() {
            None
        } else if busy {
            Some(now + patience)
        } else if due > now {
            Some(due)
        } else if tries == 0 {
            Some(now + ONE_MORE)
        } else {
            self.switch = Some(Switch::Tcp);
            None
        };
    }
}
