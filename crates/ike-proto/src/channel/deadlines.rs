//! What the SA may do with the deadlines of its channel.

use std::time::{Duration, Instant};

use super::io::Io;
use super::link::Link;
use super::timer::{Timer, TimerKey, TimerTable};
use crate::event::Transport;

/// How many times `half_open_timeout` a peer gets while its fragments arrive.
const HALF_OPEN_TIMES: u32 = 4;

/// The deadlines of a channel, for the time of one call.
pub(crate) struct Deadlines<'a> {
    timers: &'a mut TimerTable,
}

impl<'a> Deadlines<'a> {
    /// Those in `timers`.
    pub(crate) fn of(timers: &'a mut TimerTable) -> Self {
        Self { timers }
    }

    /// The soonest one.
    pub(crate) fn next(&self) -> Option<(Instant, TimerKey)> {
        self.timers.next()
    }

    /// Takes the soonest one that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<TimerKey> {
        self.timers.pop_due(now)
    }

    /// Clears all of them.
    pub(crate) fn clear_all(&mut self) {
        self.timers.clear_all();
    }

    /// Gives back memory.
    pub(crate) fn trim(&mut self) {
        self.timers.trim();
    }

    /// Sets when a slow key exchange is given up, or that there is none.
    pub(crate) fn limit_exchange(&mut self, at: Option<Instant>) {
        self.timers.set_or_clear(TimerKey::Ike(Timer::Exchange), at);
    }

    /// Has the SA end at `at` if it is still half-open. `None` if it is not, or waits for this end.
    pub(crate) fn limit_half_open(&mut self, at: Option<Instant>) {
        self.timers.set_or_clear(TimerKey::Ike(Timer::HalfOpen), at);
    }

    /// Has the SA end at `at`, or sooner, if it is still half-open.
    pub(crate) fn hasten_half_open(&mut self, at: Instant) {
        let key = TimerKey::Ike(Timer::HalfOpen);
        self.timers.set(key, self.timers.get(key).map_or(at, |before| before.min(at)));
    }

    /// Extends the time of a half-open SA whose peer makes progress with authentic fragments. `half_open_timeout`
    /// is not meant for such an SA: FrodoKEM takes longer over 9.6 kbit/s. It gets four times that time at most.
    pub(super) fn prolong_half_open(&mut self, io: &Io<'_>, link: &Link) {
        let key = TimerKey::Ike(Timer::HalfOpen);
        let timeout: Duration = io.config.half_open_timeout;
        if let Some(at) = self.timers.get(key).filter(|_| !link.is_initiator()) {
            let latest = link.started() + timeout.saturating_mul(HALF_OPEN_TIMES);
            self.timers.set(key, at.max((io.now.mono + timeout).min(latest)));
        }
    }

    /// Handles an authentic response by `transport`.
    pub(crate) fn on_response_over(&mut self, transport: Transport) {
        if transport != Transport::Tcp {
            self.timers.clear(TimerKey::Ike(Timer::Fallback));
        }
    }
}
