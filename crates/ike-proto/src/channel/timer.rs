//! The timers of an IKE SA.

use std::time::Instant;

use crate::event::ChildSaId;

/// Timers of which an IKE SA has one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// The next datagram of a large message may leave.
    Pace,
    /// A slow key exchange has taken too long.
    Exchange,
    /// The outstanding request is due again (RFC 7296 §2.4).
    Retransmit,
    /// The SA was not established in time.
    HalfOpen,
    /// A fragmented message was not complete in time (RFC 7383 §2.6).
    Reassembly,
    /// Fragments are missing, and an acknowledgement is due.
    Acknowledge,
    /// Rekey the IKE SA.
    RekeyIke,
    /// Reauthenticate.
    ReauthIke,
    /// The IKE SA must go, rekeyed or not.
    HardLifeIke,
    /// The peer had to authenticate again, and has not (RFC 4478).
    Authorization,
    /// Check that the peer is alive.
    Dpd,
    /// Keep a NAT mapping (RFC 7296 §2.23).
    KeepAlive,
    /// Repeat a request that the peer answered with TEMPORARY_FAILURE (RFC 7296 §2.25).
    RetryTemporaryFailure,
    /// Delete a rekeyed IKE SA that the peer has not deleted.
    DeleteReplaced,
    /// Remove a rekeyed IKE SA, whether the peer has answered its Delete or not.
    RemoveReplaced,
    /// The peer's additional key exchanges did not come in time (RFC 9370 §2.2.4).
    Followup,
    /// Open another TCP connection after one that broke (RFC 9329 §6.1).
    Reopen,
    /// UDP got no answer in another network (RFC 9329 §7.1).
    Fallback,
    /// The ticket will expire soon (RFC 5723).
    Ticket,
    /// Forget the last answer (RFC 7296 §2.1).
    Forget,
    /// The peer has rekeyed into this SA and has not shown that it has the answer. No request is sent before this.
    Unseen,
}

/// Timers of which each child has one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChildTimer {
    /// Rekey the child.
    RekeyChild,
    /// The child must go, rekeyed or not.
    HardLifeChild,
    /// Check whether the child had traffic.
    Inactivity,
    /// Remove the rest of a rekeyed child.
    DeleteRekeyed,
    /// The child crossed another one, and is to end.
    Crossing,
    /// Its policy is not on standby any more.
    Standby,
    /// A double of it has ended for it. Until this time a Delete of the peer may have crossed that.
    StandsIn,
}

/// Names one timer of an IKE SA. Of timers due together, the lower comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TimerKey {
    /// A timer of the IKE SA itself.
    Ike(Timer),
    /// A timer of the child with this number.
    Child(ChildSaId, ChildTimer),
}

/// The timers of one IKE SA. Setting a timer again replaces its deadline.
#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    /// The timers that are set, in no order. An idle SA has about five.
    armed: Vec<(TimerKey, Instant)>,
}

impl TimerTable {
    /// Arms `key` for `at`.
    pub(crate) fn set(&mut self, key: TimerKey, at: Instant) {
        match self.armed.iter_mut().find(|(other, _)| *other == key) {
            Some((_, deadline)) => *deadline = at,
            None => {
                if self.armed.len() == self.armed.capacity() {
                    self.armed.reserve_exact(GROWTH);
                }
                self.armed.push((key, at));
            }
        }
    }

    /// Sets `key` if there is a deadline, otherwise clears it.
    pub(crate) fn set_or_clear(&mut self, key: TimerKey, at: Option<Instant>) {
        match at {
            Some(at) => self.set(key, at),
            None => self.clear(key),
        }
    }

    /// Disarms `key`.
    pub(crate) fn clear(&mut self, key: TimerKey) {
        if let Some(place) = self.armed.iter().position(|(other, _)| *other == key) {
            self.armed.swap_remove(place);
        }
    }

    /// Frees unused capacity. An empty table keeps none.
    pub(crate) fn trim(&mut self) {
        if self.armed.is_empty() || self.armed.capacity() - self.armed.len() > GROWTH {
            self.armed.shrink_to_fit();
        }
    }

    /// Disarms all timers of `child`.
    pub(crate) fn clear_child(&mut self, child: ChildSaId) {
        self.armed.retain(|(key, _)| !matches!(key, TimerKey::Child(id, _) if *id == child));
    }

    /// Disarms everything.
    pub(crate) fn clear_all(&mut self) {
        *self = Self::default();
    }

    /// The deadline of `key`, if it is armed.
    pub(crate) fn get(&self, key: TimerKey) -> Option<Instant> {
        self.armed.iter().find(|(other, _)| *other == key).map(|(_, at)| *at)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<(Instant, TimerKey)> {
        self.armed.iter().map(|(key, at)| (*at, *key)).min()
    }

    /// Takes the earliest timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<TimerKey> {
        let (at, key) = self.next()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }
}

/// Timers by which the capacity grows.
const GROWTH: usize = 2;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The one arbitrary instant; the engine itself never asks the clock.
    fn epoch() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
        Instant::now()
    }

    #[test]
    fn due_timers_come_out_by_deadline_then_key() {
        let t0 = epoch();
        let at = |s| t0 + Duration::from_secs(s);
        let mut table = TimerTable::default();
        assert_eq!(table.next(), None);
        table.set(TimerKey::Ike(Timer::RekeyIke), at(20));
        table.set(TimerKey::Ike(Timer::Dpd), at(10));
        table.set(TimerKey::Child(ChildSaId(2), ChildTimer::RekeyChild), at(10));
        table.set(TimerKey::Child(ChildSaId(1), ChildTimer::Inactivity), at(10));
        assert_eq!(table.next(), Some((at(10), TimerKey::Ike(Timer::Dpd))));
        assert_eq!(table.pop_due(at(9)), None);
        assert_eq!(table.pop_due(at(15)), Some(TimerKey::Ike(Timer::Dpd)));
        assert_eq!(
            table.pop_due(at(15)),
            Some(TimerKey::Child(ChildSaId(1), ChildTimer::Inactivity))
        );
        assert_eq!(
            table.pop_due(at(15)),
            Some(TimerKey::Child(ChildSaId(2), ChildTimer::RekeyChild))
        );
        assert_eq!(table.pop_due(at(15)), None);
        assert_eq!(table.pop_due(at(20)), Some(TimerKey::Ike(Timer::RekeyIke)));
        assert_eq!(table.next(), None);
    }

    #[test]
    fn setting_again_replaces_and_a_child_goes_with_all_its_timers() {
        let t0 = epoch();
        let later = t0 + Duration::from_secs(1);
        let mut table = TimerTable::default();
        let rekey = TimerKey::Child(ChildSaId(7), ChildTimer::RekeyChild);
        table.set(rekey, t0);
        table.set(rekey, later);
        table.set(TimerKey::Child(ChildSaId(7), ChildTimer::HardLifeChild), t0);
        let other = TimerKey::Child(ChildSaId(8), ChildTimer::RekeyChild);
        table.set_or_clear(other, Some(later));
        assert_eq!(table.get(rekey), Some(later));
        table.clear_child(ChildSaId(7));
        assert_eq!(table.get(rekey), None);
        assert_eq!(table.next(), Some((later, other)));
        table.set_or_clear(other, None);
        table.set(TimerKey::Ike(Timer::KeepAlive), t0);
        assert_eq!(table.get(TimerKey::Ike(Timer::KeepAlive)), Some(t0));
        table.clear_all();
        assert_eq!(table.next(), None);
    }
}
