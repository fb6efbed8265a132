//! Several IKE SAs of one connection with one peer, however they came to be: one stays.
//!
//! The parent module knows two that both ends have begun at once. There are other ways to a second one: a host that
//! moved while an attempt was in flight, a reauthentication whose IKE SA was replaced meanwhile, a daemon with several
//! shards. So an end offers each IKE SA that *it has begun* for its end, a while after another one has come. One with
//! the same peer stands in for it, under the same conditions as where two have crossed.
//!
//! - Of two that this end has begun, the one with fewer children ends; if they have as many, the one with the lowest SPI.
//! - Of one of this end's and one of the peer's, the same one ends, so that two ends that know the rule choose alike. If
//!   the peer does not end its own in time, this end's ends. This holds for what `start_action = start` has begun: what an
//!   operator begins beside the peer's is meant.
//!
//! No end touches what the other has begun. `unique = never` allows the peer a second one, and asks for none.

use std::time::{Duration, Instant};

use super::super::{Endpoint, Entry, Shards, Slot};
use super::{Claim, Estate};
use crate::channel::Channel;
use crate::config::{Action, Unique};
use crate::event::{IkeSaId, Notice, Now, Redundancy};
use crate::ike_sa::crossing::doubles::{PATIENCE, THEIRS_FIRST};
use crate::ike_sa::crossing::is_redundant;
use crate::ike_sa::state::{Established, IkePhase};
use crate::ike_sa::{Children, IkeSa, Seen};
use crate::wire::registry::IdType;

/// How often an IKE SA is offered at first, and after that. SAs that are rekeyed often are seldom idle.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(30);
const AT_FIRST: Duration = Duration::from_secs(300);
/// The wait before children are asked for again that the other IKE SA lacks: what was asked for may have failed.
const ASK_AGAIN: Duration = Duration::from_secs(60);
/// More than so many between the same identities are those of clients that share an identity.
const FEW: usize = 8;

/// An IKE SA that may be one too many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Double {
    /// When another one came.
    since: Instant,
    /// When it is offered next.
    next: Instant,
    /// When missing children may be asked for again.
    ask_again: Instant,
}

impl Established {
    /// True if this end may end it for another one with the same peer.
    fn may_be_double(&self, seen: Seen<'_>) -> bool {
        seen.channel.link().extensions().client
            && self.phase == IkePhase::Alive
            && seen.channel.connection().vips.is_empty()
            && seen.peer.assigned().get().is_none()
            && self.identity.owner_id().kind != IdType::NULL
    }

    /// True if the IKE SA of this end that makes `claim`, and has so many children, is to end, and this one stays.
    fn stands_in(
        &self,
        channel: &Channel,
        now: Now,
        registry: &Shards,
        claim: &Claim,
        children: usize,
    ) -> bool {
        let own = self.children.claim(channel, registry, false);
        let redundant = is_redundant(claim.spis, own.spis);
        let there = self.carried().map_or(0, |carried| carried.len());
        let rule = match channel.link().extensions().client {
            // Nobody else has to choose alike.
            true => children < there || (children == there && redundant),
            false => {
                let allowed = claim.configured && channel.connection().unique != Unique::Never;
                // The claim may be older than this one.
                let age = now.mono.saturating_duration_since(self.identity.since());
                let late = claim.late && age >= PATIENCE + THEIRS_FIRST;
                allowed && age >= PATIENCE && (redundant || late)
            }
        };
        self.phase == IkePhase::Alive && own.with == claim.with && rule
    }
}

impl Endpoint {
    /// IKE SAs on record because another one may take their place, of all shards. For tests: where there is no IKE SA,
    /// there is none.
    pub fn offered(&self) -> usize {
        self.registry.with_crossings(|shared| shared.estates.len())
    }

    /// The IKE SA `ike` is new, or has taken the place of another one: it may be one too many, or make another one so.
    pub(in crate::endpoint) fn look_for_doubles(&mut self, now: Now, ike: IkeSaId) {
        let others = self.others_of(ike);
        for other in &others {
            self.notify(now, *other, Notice::Redundancy(Redundancy::Another));
        }
        if !others.is_empty() {
            self.on_another(now, ike);
        }
    }

    /// The other IKE SAs between the same identities, if they are few.
    fn others_of(&self, ike: IkeSaId) -> Vec<IkeSaId> {
        match self.entries.get(&ike) {
            Some(Slot { entry: Entry::Sa(_), identity: Some(identity), .. }) => {
                self.registry.others(identity, ike, FEW)
            }
            _ => Vec::new(),
        }
    }

    /// There is another IKE SA between the identities of `ike`.
    pub(super) fn on_another(&mut self, now: Now, ike: IkeSaId) {
        let may_be_double =
            |sa: &IkeSa| sa.established().is_some_and(|own| own.may_be_double(sa.seen()));
        let double = self.established(ike).is_some_and(may_be_double);
        if double && !self.crossings.doubles.contains_key(&ike) {
            let next = now.mono + PATIENCE;
            self.offer_at(ike, Double { since: now.mono, next, ask_again: next + ASK_AGAIN });
        }
    }

    /// The IKE SA `to` has taken the place of `from`, for which others may stand in.
    pub(super) fn move_double(&mut self, now: Now, from: IkeSaId, to: IkeSaId) {
        match self.crossings.doubles.remove(&from) {
            // However often it is rekeyed, its time comes.
            Some(Double { since, .. }) => {
                self.registry.with_crossings(|shared| shared.forget_estate(from));
                let next = (since + PATIENCE).max(now.mono + OFTEN);
                self.offer_at(to, Double { since, next, ask_again: next + ASK_AGAIN });
            }
            None => self.look_for_doubles(now, to),
        }
    }

    fn offer_at(&mut self, ike: IkeSaId, double: Double) {
        self.crossings.doubles.insert(ike, double);
        self.look_at_crossing(ike, double.next);
    }

    /// Offers `ike` for its end, if it is time.
    pub(super) fn offer(&mut self, now: Now, ike: IkeSaId, double: Double) {
        let Double { since, next, mut ask_again } = double;
        let waited = now.mono.saturating_duration_since(since);
        if next > now.mono {
            return;
        }
        let others = self.others_of(ike);
        let sa = self.established(ike).filter(|_| !others.is_empty());
        let double = sa.and_then(|sa| Some((sa, sa.established()?)));
        let Some((sa, own)) = double.filter(|(sa, own)| own.may_be_double(sa.seen())) else {
            // What was asked for it does not count for the next double.
            self.crossings.doubles.remove(&ike);
            return self.registry.with_crossings(|shared| shared.forget_estate(ike));
        };
        if ask_again <= now.mono {
            self.registry.with_crossings(|shared| shared.forget_estate(ike));
            ask_again = now.mono + ASK_AGAIN;
        }
        if let Some(children) = own.carried() {
            let late = waited >= PATIENCE + THEIRS_FIRST;
            let claim = Some(own.children.claim(&sa.channel, &self.registry, late));
            // The other one has to have been heard since then.
            let since = now.mono.checked_sub(SELDOM).map_or(since, |at| at.max(since + PATIENCE));
            let estate = Estate { children, since, asked: false, claim };
            self.registry.with_crossings(|shared| shared.set_estate(ike, estate));
            for other in others {
                self.notify(now, other, Notice::Redundancy(Redundancy::StandIn(ike)));
            }
        }
        if self.crossings.doubles.contains_key(&ike) {
            let wait = if waited < AT_FIRST { OFTEN } else { SELDOM };
            self.offer_at(ike, Double { since, next: now.mono + wait, ask_again });
        }
    }

    /// The IKE SA `double` is offered; `ike` is of this shard, and may stand in for it.
    pub(super) fn on_offered(&mut self, now: Now, ike: IkeSaId, double: IkeSaId) {
        let stays = |sa: &IkeSa, Estate { children, claim, .. }: &Estate| {
            sa.established().zip(claim.as_ref()).is_some_and(|(own, claim)| {
                own.stands_in(&sa.channel, now, &self.registry, claim, children.len())
            })
        };
        let both = self.established(ike).zip(self.estate(double));
        if both.is_some_and(|(sa, estate)| stays(sa, &estate)) {
            self.on_take_over(now, ike, double);
        }
    }
}

impl Children {
    /// Its SPIs, and a number that IKE SAs of the same connection with the same address have in common.
    fn claim(&self, channel: &Channel, registry: &Shards, late: bool) -> Claim {
        let with = (&channel.connection().name, channel.route().path().remote.ip().to_canonical());
        let mut children = self.iter();
        let configured = children.all(|child| child.config.start_action == Action::Start);
        Claim { with: registry.digest(with), spis: channel.link().spis().pair(), late, configured }
    }
}
