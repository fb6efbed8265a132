//! Several children for the same traffic on one IKE SA, however they came to be: one stays.
//!
//! The parent module knows two that both ends have asked for at once, from how they came to be. That is forgotten with
//! the first rekey of one of them, and there are other ways to a second child. So an end deletes a child that *it has
//! asked for*, a while after another one for the same traffic has come: the one with the lowest SPI of two; its own one in
//! any case if the peer does not delete that in time. What an operator has asked for although it was there stays.

use std::time::{Duration, Instant};

use super::is_redundant;
use crate::channel::Channel;
use crate::channel::timer::{ChildTimer, TimerKey};
use crate::child::{ChildSa, Phase};
use crate::config::{Action, Unique};
use crate::event::{ChildSaId, Failure};
use crate::ike_sa::Children;
use crate::ike_sa::Life;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::Established;

/// How long two SAs for the same may be there before this end looks at them: what makes a second one for a moment ends
/// the first one itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer this end waits for the peer to end the redundant one, which the peer has begun.
pub(crate) const THEIRS_FIRST: Duration = Duration::from_secs(10);
/// The age at which the peer certainly has the SAs of a child.
const SETTLED: Duration = Duration::from_secs(2);
/// The wait before a child that stays for now is looked at again.
const LATER: Duration = Duration::from_secs(4);

/// How long after the end of a double the peer may delete the other one because of a rule of its own.
const OTHER_RULE: Duration = Duration::from_secs(5);
/// The same, if the peer has let its own one live although that was the redundant one. A Delete that it has sent may
/// still be on its way, and the peer repeats it ever more seldom.
const OWN_RULE: Duration = Duration::from_secs(60);

/// What is to become of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// No other one is for the same traffic, or this end has no say.
    Stays,
    /// It may be its turn later.
    Waits(Duration),
    /// It is its turn when the peer has shown that it is alive, and has had time to send its Delete once more.
    AsksFirst,
    /// Another one carries the same.
    Ends,
}

impl ChildSa {
    /// True if both carry the same, and neither has come of the other one.
    pub(super) fn doubles(&self, other: &Self) -> bool {
        let lives = |child: &Self| child.phase == Phase::Installed && child.has_outbound();
        lives(self) && lives(other) && self.is_like(other)
    }
}

impl Established {
    /// What follows if the peer deletes the child `id`: if this end has ended a double for it, or is about to, the two
    /// ends have ended both, and one is to be up again.
    pub(crate) fn stood_in(&self, channel: &Channel, id: ChildSaId) -> Option<Effect> {
        let child = self.children.get(id)?;
        let for_it = |other: &ChildSa| {
            child.is_like(other)
                && other.phase != Phase::Rekeyed
                && self.work().reason_to_delete(other.id) == Some(&Failure::Replaced)
        };
        let ended = self.life.at(TimerKey::Child(id, ChildTimer::StandsIn)).is_some();
        let stood_in =
            child.phase == Phase::Installed && (ended || self.children.iter().any(for_it));
        stood_in.then(|| Effect::BringBack {
            connection: channel.connection().name.clone(),
            child: child.config.name.clone(),
            ends: (channel.route().path().local.ip(), channel.route().path().remote.ip()),
        })
    }
}

impl Life {
    /// The children `own`, which this end has asked for, have doubles.
    pub(in crate::ike_sa) fn look_for_doubles(&mut self, ctx: &Context<'_>, own: Vec<ChildSaId>) {
        for id in own {
            let key = TimerKey::Child(id, ChildTimer::Crossing);
            if self.at(key).is_none() {
                self.set(key, ctx.io.now.mono + PATIENCE);
            }
        }
    }
}

impl Children {
    /// The children for the traffic of `id`, which is installed, if there are several: those that this end has asked for.
    pub(in crate::ike_sa) fn doubles_of(&self, id: ChildSaId) -> Vec<ChildSaId> {
        let mut own = Vec::new();
        if let Some(child) = self.get(id) {
            let doubles = || self.iter().filter(|other| child.doubles(other));
            own.extend(doubles().filter(|other| other.is_ours()).map(|other| other.id));
            own.extend((child.is_ours() && doubles().next().is_some()).then_some(id));
        }
        own
    }

    /// The double `gone`, which this end has ended, is gone: those that carry the same stand in for it. The peer may
    /// end these for a rule of its own, which does not know of this end's.
    pub(crate) fn note_stand_in(&self, life: &mut Life, ctx: &Context<'_>, gone: &ChildSa) {
        let spis = |child: &ChildSa| (child.spi_in, child.spi_out);
        let others = self.iter().filter(|other| gone.is_like(other));
        for other in others {
            let by_rule = other.is_ours() || is_redundant(spis(gone), spis(other));
            let wait = if by_rule { OTHER_RULE } else { OWN_RULE };
            let key = TimerKey::Child(other.id, ChildTimer::StandsIn);
            life.set(key, ctx.io.now.mono + wait);
        }
    }
}

impl Fate {
    /// What is to become of `child`, for which others may stand in.
    pub(super) fn of(
        channel: &Channel,
        ctx: &Context<'_>,
        established: &Established,
        child: &ChildSa,
    ) -> Self {
        let several = ctx.wants.has_several(&channel.connection().name, &child.config.name);
        if !child.is_ours() || several {
            return Self::Stays;
        }
        // What an operator begins beside the peer's is meant.
        //= https://www.rfc-editor.org/rfc/rfc7296#section-2.8
        //# deleting SAs on the basis of duplicate Traffic Selectors SHOULD NOT
        //# be used.
        // `unique = never` obeys that. Otherwise the configuration of this end asks for one. A child that this end has
        // made without being asked, in place of one that the peer had lost, gives way to the peer's in any case.
        let wanted = ctx.wants.has(&channel.connection().name, &child.config.name);
        let configured = match channel.connection().unique {
            Unique::Never => child.config.start_action == Action::None && !wanted,
            _ => child.config.start_action == Action::Start,
        };
        let now = ctx.io.now.mono;
        let mut fate = Self::Stays;
        for other in established.children.iter().filter(|other| child.doubles(other)) {
            let redundant =
                is_redundant((child.spi_in, child.spi_out), (other.spi_in, other.spi_out));
            let since = child.installed.max(other.installed);
            let age = |at: Instant| now.saturating_duration_since(at);
            let late = !other.is_ours() && age(since) >= PATIENCE + THEIRS_FIRST;
            let concerns = if other.is_ours() { redundant } else { configured };
            // It may be about to end itself.
            let ends = established.work().reason_to_delete(other.id).is_some();
            if !concerns || ends {
                continue;
            }
            let settled = age(other.installed) >= SETTLED;
            if redundant && settled {
                return Self::Ends;
            }
            // The peer's Delete for its own one may be on a path that is dead.
            let heard = channel.last_heard() >= since + PATIENCE;
            match late && settled {
                true if heard => return Self::Ends,
                true => fate = Self::AsksFirst,
                false if fate == Self::Stays => fate = Self::Waits(LATER),
                false => {}
            }
        }
        fate
    }
}
