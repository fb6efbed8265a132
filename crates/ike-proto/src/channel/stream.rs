//! The TCP connection of an IKE SA (RFC 9329 §6), and when another one is opened.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Channel;
use super::io::Io;
use super::timer::{Timer, TimerKey};
use crate::event::{Output, Path, StreamCommand};

/// The wait before another connection is opened. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A connection of this age was a good one: the next wait is the first one again.
const GOOD: Duration = Duration::from_secs(10);

/// How long a peer has for a request. A connection carries a request faster, or breaks.
const PATIENCE: Duration = Duration::from_secs(10);

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

    /// True if this end opened it after `started`.
    pub(super) fn is_newer_than(&self, started: Instant) -> bool {
        self.ours && self.opened.is_none_or(|opened| opened >= started)
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

impl Channel {
    /// Takes over the connection of an attempt. It is to be opened again at `reopen_at`, if at all. True if a
    /// connection was lost before.
    pub(crate) fn take_over_stream(&mut self, reopen_at: Option<Instant>) -> bool {
        let Some(stream) = &self.route.stream else { return false };
        if stream.is_lost() {
            self.timers.set_or_clear(TimerKey::Ike(Timer::Reopen), reopen_at);
        }
        stream.failures > 0
    }

    /// Handles that the connection is closed. Returns whether this end opens the next one; `None` if the SA had none.
    pub(crate) fn on_stream_closed(&mut self, io: &Io<'_>) -> Option<bool> {
        let stream = self.route.stream.as_mut()?;
        let wait = stream.on_closed(io.now.mono);
        //= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
        //# The TCP
        //# Originator is responsible for re-establishing the TCP connection if
        //# it is torn down for any unexpected reason.
        if stream.ours {
            self.timers.set(TimerKey::Ike(Timer::Reopen), io.now.mono + wait);
        }
        Some(stream.ours)
    }
}
