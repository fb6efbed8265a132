//! When an established IKE SA and its children are renewed and end, and how often the peer has not let it. The
//! deadlines of its messages are in the channel.

use std::time::{Duration, Instant};

use crate::channel::Deadlines;
use crate::channel::timer::{ChildTimer, Timer, TimerKey, TimerTable};
use crate::child::{ChildSa, Phase};
use crate::config::ConnectionConfig;
use crate::event::ChildSaId;
use crate::ike_sa::context::Context;
use crate::ike_sa::standby::STANDBY;

/// This end gives up at this sum of consecutive chains that the peer has forgotten: three chains that were
/// continued in time, or a dozen if losses on the path explain it.
const MAX_FORGOTTEN: u8 = 12;
/// The weight of a forgotten chain that was continued in time.
const IN_TIME: u8 = 4;

/// How long requests on an SA that the peer's rekey has made wait for a sign that the peer has it. A peer sends
/// its Delete of the old SA at once. The time is longer than that of the first retransmission of its request, in
/// case our answer is lost.
const UNSEEN: Duration = Duration::from_secs(3);
const SIGN: TimerKey = TimerKey::Ike(Timer::Unseen);

/// The times of an established IKE SA and of its children.
#[derive(Debug, Default)]
pub(crate) struct Life {
    timers: TimerTable,
    /// When the first soft limit for a rekey or a reauthentication was reached.
    soft_at: Option<Instant>,
    /// This end is reauthenticating because of a soft limit.
    renewing: bool,
    /// How often in a row the peer had forgotten a chain of key exchanges when it was to continue (RFC 9370
    /// §2.2.4), weighted.
    forgotten: u8,
}

impl Life {
    /// That of the SA which replaces this one by a rekey.
    pub(crate) fn rekeyed(&self) -> Self {
        let soft_at = self.soft_at.filter(|_| self.renewing);
        Self { soft_at, renewing: self.renewing, ..Self::default() }
    }

    // ---- deadlines ----

    /// The deadline of `key`, if it is set.
    pub(crate) fn at(&self, key: TimerKey) -> Option<Instant> {
        self.timers.get(key)
    }

    /// The soonest deadline.
    pub(crate) fn next(&self) -> Option<(Instant, TimerKey)> {
        self.timers.next()
    }

    /// Takes the soonest of these timers and those of the channel, if it is due at `now`. Of those due together, the
    /// lower key comes first.
    pub(crate) fn pop_due(&mut self, mut channel: Deadlines<'_>, now: Instant) -> Option<TimerKey> {
        let first = channel.next();
        let own = self.next().is_some_and(|own| first.is_none_or(|first| own < first));
        if own { self.timers.pop_due(now) } else { channel.pop_due(now) }
    }

    /// Sets the deadline of `key`.
    pub(crate) fn set(&mut self, key: TimerKey, at: Instant) {
        self.timers.set(key, at);
    }

    /// Sets the deadline of `key`, or clears it.
    pub(crate) fn set_or_clear(&mut self, key: TimerKey, at: Option<Instant>) {
        self.timers.set_or_clear(key, at);
    }

    /// Clears the deadline of `key`.
    pub(crate) fn clear(&mut self, key: TimerKey) {
        self.timers.clear(key);
    }

    /// Clears all deadlines of `child`.
    pub(crate) fn clear_child(&mut self, child: ChildSaId) {
        self.timers.clear_child(child);
    }

    /// Clears all deadlines.
    pub(crate) fn clear_all(&mut self) {
        self.timers.clear_all();
    }

    /// The peer has replaced this SA. If the peer has sent no Delete by `at`, this end sends one.
    pub(crate) fn await_delete_until(&mut self, at: Instant) {
        self.clear(TimerKey::Ike(Timer::RemoveReplaced));
        self.set(TimerKey::Ike(Timer::DeleteReplaced), at);
    }

    /// Frees unused capacity.
    pub(crate) fn trim(&mut self) {
        self.timers.trim();
    }

    /// Sets the deadlines of an SA that has just been established.
    pub(crate) fn begin(&mut self, connection: &ConnectionConfig, ctx: &mut Context<'_>) {
        let now = ctx.io.now.mono;
        let mut longest = Duration::ZERO;
        for (timer, time) in
            [(Timer::RekeyIke, connection.rekey_time), (Timer::ReauthIke, connection.reauth_time)]
        {
            if !time.is_zero() {
                longest = longest.max(time);
                let at = now + ctx.jittered(time, connection.rand_time);
                self.set(TimerKey::Ike(timer), at);
            }
        }
        if !longest.is_zero() {
            let at = now + longest + connection.over_time;
            self.set(TimerKey::Ike(Timer::HardLifeIke), at);
        }
        if !connection.dpd_delay.is_zero() {
            self.set(TimerKey::Ike(Timer::Dpd), now + connection.dpd_delay);
        }
    }

    /// Keeps the times of the SA that this one replaces by a rekey, as far as they count from the authentication.
    pub(crate) fn keep_times_of(&mut self, old: &Self, connection: &ConnectionConfig) {
        // Reauthentication counts from the last authentication, not from the last rekey.
        for timer in [Timer::ReauthIke, Timer::Authorization].map(TimerKey::Ike) {
            self.set_or_clear(timer, old.at(timer));
        }
        // Nor does a rekey put off the end of what is not authenticated anew in time.
        let hard = TimerKey::Ike(Timer::HardLifeIke);
        if let (Some(until), Some(armed)) = (old.at(hard), self.at(hard))
            && !connection.reauth_time.is_zero()
        {
            self.set(hard, armed.min(until));
        }
    }

    /// Sets the deadlines of an installed child. One that the peer has replaced has its hard limit alone.
    pub(crate) fn begin_child(&mut self, child: &ChildSa, now: Instant) {
        let hard = TimerKey::Child(child.id, ChildTimer::HardLifeChild);
        match child.phase {
            Phase::Installing | Phase::Deleting => return,
            Phase::Rekeyed => return self.set_or_clear(hard, child.expires_at),
            Phase::Installed => {}
        }
        self.set_or_clear(TimerKey::Child(child.id, ChildTimer::RekeyChild), child.rekey_at);
        self.set_or_clear(hard, child.expires_at);
        let inactivity = child.config.inactivity;
        let at = (!inactivity.is_zero()).then(|| now + inactivity);
        self.set_or_clear(TimerKey::Child(child.id, ChildTimer::Inactivity), at);
        if child.standby {
            self.set(TimerKey::Child(child.id, ChildTimer::Standby), now + STANDBY);
        }
    }

    /// Waits for the peer: it has begun the rekey that makes this SA, and does not have the SA before our answer.
    /// Requests of this end wait for a sign, which is a message on this SA or the Delete of the SA that is
    /// replaced.
    pub(crate) fn await_sign(&mut self, now: Instant) {
        self.set(SIGN, now + UNSEEN);
    }

    /// True while requests of this end wait for that sign.
    pub(crate) fn awaits_sign(&self) -> bool {
        self.at(SIGN).is_some()
    }

    /// Handles a sign that the peer has this SA.
    pub(crate) fn note_sign(&mut self) {
        self.clear(SIGN);
    }

    // ---- renewal ----

    /// Records that a soft limit is reached.
    pub(crate) fn note_soft(&mut self, now: Instant) {
        self.soft_at.get_or_insert(now);
    }

    /// When the first soft limit was reached.
    pub(crate) fn soft_at(&self) -> Option<Instant> {
        self.soft_at
    }

    /// Records that this end reauthenticates because of a soft limit.
    pub(crate) fn note_renewing(&mut self) {
        self.renewing = true;
    }

    /// True while this end reauthenticates because of a soft limit.
    pub(crate) fn renews(&self) -> bool {
        self.renewing
    }

    /// Records that the reauthentication has failed. True if there was one because of a soft limit.
    pub(crate) fn end_renewal(&mut self) -> bool {
        std::mem::take(&mut self.renewing)
    }

    /// Counts that the peer has forgotten a chain. `late` if the time that passed explains it. True if it has
    /// forgotten too many in a row.
    pub(crate) fn note_forgotten(&mut self, late: bool) -> bool {
        self.forgotten = self.forgotten.saturating_add(if late { 1 } else { IN_TIME });
        self.forgotten >= MAX_FORGOTTEN
    }

    /// Records that the peer has not forgotten a chain.
    pub(crate) fn note_kept(&mut self) {
        self.forgotten = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `Life::pop_due`, compare the times alone.
    #[test]
    fn of_timers_due_together_the_lower_key_comes_first_in_whichever_table_it_is() {
        #[expect(clippy::disallowed_methods, reason = "tests need one instant to count from")]
        let now = Instant::now();
        let (mut life, mut channel) = (Life::default(), TimerTable::default());
        let order =
            [Timer::Reassembly, Timer::RekeyIke, Timer::Dpd, Timer::KeepAlive, Timer::Forget];
        channel.set(TimerKey::Ike(Timer::Forget), now);
        life.set(TimerKey::Ike(Timer::Dpd), now);
        channel.set(TimerKey::Ike(Timer::KeepAlive), now);
        life.set(TimerKey::Ike(Timer::RekeyIke), now);
        channel.set(TimerKey::Ike(Timer::Reassembly), now);
        life.set(TimerKey::Ike(Timer::Ticket), now + UNSEEN);
        let taken = std::iter::from_fn(|| life.pop_due(Deadlines::of(&mut channel), now));
        assert_eq!(taken.collect::<Vec<_>>(), order.map(TimerKey::Ike));
        assert_eq!(channel.next(), None);
        assert!(life.next().is_some());
    }
}
