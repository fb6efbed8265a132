//! Several children for the same traffic on one IKE SA, however they came to be: one stays.
//!
//! The parent module knows two that both ends have asked for at once, from how they came to be. That is forgotten with
//! the first rekey of one of them, and there are other ways to a second child. So an end deletes a child that *it has
//! asked for*, a while after another one for the same traffic has come: the one with the lowest SPI of two; its own one in
//! any case if the peer does not delete that in time. What an operator has asked for although it was there stays.

use std::time::{Duration, Instant};

use super::{Carries, IkeSa, is_redundant};
use crate::child::{ChildSa, Phase};
use crate::config::Action;
use crate::event::ChildSaId;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, State};
use crate::ike_sa::timer::{ChildTimer, TimerKey};

/// How long two SAs for the same may be there before this end looks at them: what makes a second one for a moment ends
/// the first one itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer this end waits for the peer to end the redundant one, which the peer has begun.
pub(crate) const THEIRS_FIRST: Duration = Duration::from_secs(10);
/// The age at which the peer certainly has the SAs of a child.
const SETTLED: Duration = Duration::from_secs(2);
/// The wait before a child that stays for now is looked at again.
const LATER: Duration = Duration::from_secs(4);

/// What is to become of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// No other one is for the same traffic, or this end has no say.
    Stays,
    /// It may be its turn later.
    Waits(Duration),
    /// Another one carries the same.
    Ends,
}

impl ChildSa {
    /// True if both carry the same, and neither has come of the other one.
    fn doubles(&self, other: &Self) -> bool {
        let lives = |child: &Self| {
            child.phase == Phase::Installed
                && child.has_outbound()
                && child.cpu.is_none()
                && !child.processing.per_cpu
        };
        self.id != other.id
            && self.policy != other.policy
            && self.config.name == other.config.name
            && lives(self)
            && lives(other)
            && Carries::of(self) == Carries::of(other)
            && self.is_marked_like(&other.processing)
    }
}

impl IkeSa {
    /// Looks whether there is another child for the traffic of `id`, which is installed.
    pub(crate) fn judge_double(&mut self, ctx: &Context<'_>, id: ChildSaId) {
        let State::Established(established) = &self.state else { return };
        let Some(child) = established.children.iter().find(|child| child.id == id) else { return };
        let others: Vec<_> = established.children.iter().filter(|it| child.doubles(it)).collect();
        if others.is_empty() {
            return;
        }
        let own = others.into_iter().chain([child]).filter(|child| child.ours);
        for id in own.map(|child| child.id) {
            let key = TimerKey::Child(id, ChildTimer::Crossing);
            if self.timers.get(key).is_none() {
                self.timers.set(key, ctx.now.mono + PATIENCE);
            }
        }
    }

    /// What is to become of `child`, for which others may stand in.
    pub(super) fn fate_of_double(
        &self,
        ctx: &Context<'_>,
        established: &Established,
        child: &ChildSa,
    ) -> Fate {
        let several = ctx.wants.has_several(&self.connection.name, &child.config.name);
        if !child.ours || several {
            return Fate::Stays;
        }
        // What an operator begins beside the peer's is meant.
        let configured = child.config.start_action == Action::Start;
        let now = ctx.now.mono;
        let mut fate = Fate::Stays;
        for other in established.children.iter().filter(|other| child.doubles(other)) {
            let redundant =
                is_redundant((child.spi_in, child.spi_out), (other.spi_in, other.spi_out));
            let since = child.installed.max(other.installed);
            let age = |at: Instant| now.saturating_duration_since(at);
            let late = !other.ours && age(since) >= PATIENCE + THEIRS_FIRST;
            let concerns = if other.ours { redundant } else { configured };
            if !concerns {
                continue;
            }
            if (redundant || late) && age(other.installed) >= SETTLED {
                return Fate::Ends;
            }
            fate = Fate::Waits(LATER);
        }
        fate
    }
}
