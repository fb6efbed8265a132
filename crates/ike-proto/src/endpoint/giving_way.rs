//! Which half-open IKE SA, and which kept message of an unauthenticated peer, gives way when a limit is reached.

use std::time::Duration;

use super::admission::{BLOCKED, FULL, HalfOpen, weight};
use super::{Endpoint, Entry, Slot};
use crate::channel::memory::Pool;
use crate::event::{Failure, IkeSaId, Now};
use crate::reason::{DropReason, PolicyReason};
use crate::shares::Origin;

/// How long a half-open SA must have received nothing before it gives way to another SA of the same address. Most
/// peers continue sooner. It also limits the key exchanges of one address: `block_threshold` of them in that time.
const SILENCE: Duration = Duration::from_secs(1);

/// Why a half-open SA ends.
fn gave_way() -> Failure {
    Failure::Policy(PolicyReason::GaveWay)
}

impl Endpoint {
    /// Makes room for one more half-open SA, whose request has `octets`. Its origin has `from` half-open SAs.
    /// `proven` if the peer has shown that it receives at its address.
    ///
    /// # Errors
    ///
    /// Why there is no room.
    pub(super) fn make_room(
        &mut self,
        now: Now,
        (origin, from): (Origin, usize),
        octets: usize,
        proven: bool,
    ) -> Result<(), DropReason> {
        if HalfOpen::is_blocked(&self.config, from) {
            let silent = proven.then(|| self.longest_silent(now, origin)).flatten();
            let silent = silent.ok_or(BLOCKED)?;
            self.end_half_open(now, silent);
        }
        let weight = weight(octets);
        if self.half_open.is_full(&self.config, weight) {
            let gone = match proven {
                true => self.half_open.make_room(&self.config, origin, weight),
                false => return Err(FULL),
            };
            for ike in gone.map_err(|_| FULL)? {
                self.end_half_open(now, ike);
            }
        }
        Ok(())
    }

    /// The half-open SA from `origin` that has received nothing for the longest time. An SA that waits for this
    /// end is not silent.
    fn longest_silent(&self, now: Now, origin: Origin) -> Option<IkeSaId> {
        let heard = |ike: IkeSaId| match &self.entries.get(&ike)?.entry {
            Entry::Parked(parked) => parked.heard(),
            Entry::Sa(sa) => (!sa.is_waiting_here()).then_some(sa.channel.last_heard()),
            Entry::Attempt(_) => None,
        };
        let all = self.half_open.from(origin).filter_map(|ike| Some((heard(ike)?, ike)));
        let (heard, ike) = all.min()?;
        (now.mono.saturating_duration_since(heard) >= SILENCE).then_some(ike)
    }

    fn end_half_open(&mut self, now: Now, ike: IkeSaId) {
        match self.entries.get(&ike) {
            Some(Slot { entry: Entry::Parked(_), .. }) => self.remove(now, ike, gave_way()),
            Some(_) => self.with_sa(now, ike, |sa, ctx| sa.close(ctx, gave_way())),
            None => {}
        }
    }

    /// Handles the loss of the octets of `pool` that `ike` had: another SA has them now.
    pub(super) fn give_way(&mut self, now: Now, pool: Pool, ike: IkeSaId) {
        let (slot, mut ctx) = self.lend(now, ike);
        match slot.map(|slot| &mut slot.entry) {
            Some(Entry::Attempt(attempt)) => attempt.give_way(&mut ctx, pool),
            Some(Entry::Sa(sa)) => sa.give_way(&mut ctx, pool),
            Some(Entry::Parked(_)) | None => return,
        }
        self.settle(now, ike);
    }
}
