//! Quick crash detection (RFC 6290) where no IKE SA is any more, and who may try tokens on those that are.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::admission::origin;
use super::{Endpoint, Entry, Slot};
use crate::crypto::Secret;
use crate::event::{Event, IkeSaId, Now, Output, Path};
use crate::exchange::qcd;
use crate::exchange::sa_init::answer_unknown_spi;
use crate::table::OwnTable;
use crate::wire::{Header, Message};

/// For so long after the start many peers may have to be told that their IKE SAs are gone.
const SOON: Duration = Duration::from_secs(600);
/// How many answers with tokens a second then, and how many of those to one address, or IPv6 prefix. A token costs one
/// PRF.
const SOON_ANSWERS: Limits = Limits { all: 1000, one: 64 };
/// The same later.
const LATER_ANSWERS: Limits = Limits { all: 100, one: 16 };
/// Messages with wrong tokens that are told apart in a second.
const TRIES: Limits = Limits { all: 2048, one: 16 };
/// Hosts that are told a second that there is no SA for their ESP packets, and what is heard of that from others.
const HINTS: Limits = Limits { all: 100, one: 2 };

/// How many in a second: of all, and of one address or IPv6 prefix.
struct Limits {
    all: u32,
    one: u32,
}

/// What is counted, and since when.
pub(super) struct Crash {
    /// The first input.
    begun: Option<Instant>,
    answers: Shares,
    tries: Shares,
    told: Shares,
    hints: Shares,
    /// SPIs that this end has told a peer for an IKE SA that a rekey is still making, by the SA that is rekeyed.
    coming: OwnTable<u64, IkeSaId>,
}

impl Crash {
    pub(super) fn new() -> Self {
        let [answers, tries, told, hints] = Default::default();
        Self { begun: None, answers, tries, told, hints, coming: OwnTable::default() }
    }

    /// True if one more may be told that its ESP packets are of no SA.
    pub(super) fn may_tell(&mut self, now: Instant, address: IpAddr) -> bool {
        self.told.take(now, address, &HINTS)
    }

    /// True if something is to be done about what `address` says of that.
    pub(super) fn may_hint(&mut self, now: Instant, address: IpAddr) -> bool {
        self.hints.take(now, address, &HINTS)
    }

    /// True if the message is for an IKE SA that a rekey is still making.
    fn is_coming(&self, header: &Header) -> bool {
        let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
        self.coming.contains_key(&own)
    }

    /// The IKE SAs with these SPIs are not being made any more by a rekey of `id`.
    pub(super) fn forget_coming(&mut self, id: IkeSaId, spis: Option<Box<[u64; 2]>>) {
        for spi in spis.into_iter().flat_map(|spis| *spis) {
            if self.coming.get(&spi) == Some(&id) {
                self.coming.remove(&spi);
            }
        }
    }

    /// There is an input.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// Time since the first input.
    fn age(&self, now: Instant) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun))
    }
}

/// Whose share of the present second is used up. Never more addresses than are let through.
#[derive(Default)]
struct Shares {
    since: Option<Instant>,
    all: u32,
    from: HashMap<IpAddr, u32>,
}

impl Shares {
    fn take(&mut self, now: Instant, address: IpAddr, limits: &Limits) -> bool {
        let over = |since: Instant| now.saturating_duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(over) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        if self.all >= limits.all {
            return false;
        }
        let count = self.from.entry(address).or_default();
        // Who is over his own share takes nothing of the others'.
        let any = *count < limits.one;
        if any {
            *count += 1;
            self.all += 1;
        }
        any
    }
}

impl Endpoint {
    /// Answers a request for an IKE SA that there is not, with the tokens that its peer may have.
    pub(super) fn answer_unknown(&mut self, now: Now, path: Path, message: &Message<'_>) {
        // Neither is it an answer to be answered (RFC 6290 §4.5), nor of anybody who has an IKE SA.
        if qcd::is_in_clear(message) {
            return;
        }
        // The SA may exist a moment later, and its peer may have the token by then. A request is sent again.
        if self.crash.is_coming(&message.header) {
            return;
        }
        let tokens = self.tokens_for(now, message);
        let soon = self.crash.age(now.mono) < SOON;
        let limits = if soon { &SOON_ANSWERS } else { &LATER_ANSWERS };
        //= RFC 6290 §8.1
        //# If excessive amounts of IKE requests protected with unknown IKE SPIs
        //# arrive at a token maker, the IKE module SHOULD revert to the behavior
        //# described in Section 2.21 of [RFC5996] and either send an
        //# INVALID_IKE_SPI notification or ignore it entirely.
        let allowed = if tokens.is_empty() {
            self.courtesy.take(now.mono)
        } else {
            self.crash.answers.take(now.mono, origin(path.remote.ip()), limits)
        };
        if !allowed {
            return;
        }
        if !tokens.is_empty() {
            self.out.push_back(Output::Event(Event::TokenGiven { path }));
        }
        self.send_unprotected(path, answer_unknown_spi(&message.header, &tokens));
    }

    /// Keeps up with the IKE SAs that `id` is being rekeyed into.
    pub(super) fn update_coming(&mut self, id: IkeSaId) {
        let Some(slot) = self.entries.get_mut(&id) else { return };
        let now = match &slot.entry {
            Entry::Sa(sa) => sa.coming_spis(),
            Entry::Attempt(_) | Entry::Parked(_) => [0; 2],
        };
        if now == slot.keys.coming.as_deref().copied().unwrap_or_default() {
            return;
        }
        // Few SAs have some at a time.
        let before = std::mem::replace(&mut slot.keys.coming, (now != [0; 2]).then(|| now.into()));
        self.crash.forget_coming(id, before);
        for spi in now.into_iter().filter(|spi| *spi != 0) {
            self.crash.coming.insert(spi, id);
        }
    }

    //= RFC 6290 §9.2
    //# A token maker MUST NOT send a valid QCD token in an unprotected
    //# message for an existing IKE SA.
    /// The tokens that may be given away in answer to `message`, whose SPIs are of no IKE SA of this shard.
    fn tokens_for(&self, now: Now, message: &Message<'_>) -> Vec<Secret> {
        let header = &message.header;
        let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
        let quiet = self.crash.age(now.mono) < self.config.qcd.quiet;
        // What another shard has chosen it may have, however the message has come here.
        if quiet || !qcd::deserves_tokens(message) || self.config.shard.is_anothers(own) {
            return Vec::new();
        }
        qcd::all_for(&self.crypto, &self.config, header)
    }

    /// An unprotected message with a token, for the IKE SA `id`. False if that is none that has one.
    pub(super) fn on_token(
        &mut self,
        now: Now,
        path: Path,
        id: IkeSaId,
        message: &Message<'_>,
    ) -> bool {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&id) else { return false };
        let Some(good) = sa.judge_token(message) else { return false };
        //= RFC 6290 §4.5
        //# If the QCD_TOKEN cannot be
        //# validated, a response MUST NOT be sent, and the event may be logged.
        if !good {
            // Whoever sends wrong ones keeps nobody's good one from being taken: they are compared at the cost of
            // the limit itself, and 128 bits are not guessed at any rate (RFC 6290 §8.1).
            let few = self.crash.tries.take(now.mono, origin(path.remote.ip()), &TRIES);
            let why = if few { "QCD token that is not the peer's" } else { "too many QCD tokens" };
            self.drop_datagram(path, why);
            return true;
        }
        let (peer, crossed) = (sa.path.remote, sa.crossed_rekey());
        // First: what begins anew must not find it.
        if let Some(theirs) = crossed {
            self.with_sa(now, theirs, |sa, ctx| sa.on_crossed_lost(ctx, id));
        }
        self.with_sa(now, id, |sa, ctx| sa.on_peer_lost(ctx));
        // What else there is with that host is lost, too: its own tokens will tell.
        for other in self.index.at(peer.ip()) {
            self.with_sa(now, other, |sa, _| {
                if sa.path.remote == peer {
                    sa.check_liveness();
                }
            });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an instant cannot be had otherwise")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn who_tries_too_often_waits_and_others_do_not() {
        let mut tries = Shares::default();
        let now = now();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let taken = (0..2 * TRIES.all).filter(|_| tries.take(now, one, &TRIES)).count();
        assert_eq!(taken, TRIES.one as usize);
        assert!(tries.take(now, other, &TRIES), "what is refused to one is left to others");
        assert!(tries.take(now + Duration::from_secs(1), one, &TRIES), "a second later");
    }

    #[test]
    fn addresses_that_are_made_up_cost_no_more_memory_than_tries() {
        let mut tries = Shares::default();
        let now = now();
        for n in 0..100_000_u32 {
            tries.take(now, IpAddr::from(n.to_be_bytes()), &TRIES);
        }
        assert_eq!(tries.from.len(), TRIES.all as usize);
    }
}
