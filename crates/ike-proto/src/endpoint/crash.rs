//! Quick crash detection (RFC 6290) without an IKE SA: the tokens for SAs that are lost, and limits for received
//! tokens.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::admission::origin;
use super::{Endpoint, Entry, Slot};
use crate::event::{Event, IkeSaId, Now, Output, Path};
use crate::exchange::qcd::{self, OwnToken};
use crate::exchange::sa_init::answer_unknown_spi;
use crate::ike_sa::established::ComingSpis;
use crate::reason::DropReason;
use crate::table::OwnTable;
use crate::wire::{Header, Message};

/// How long after the start many peers may have to learn that their IKE SAs are lost.
const SOON: Duration = Duration::from_secs(600);
/// Answers with tokens per second in that time: in all, and to one address or IPv6 prefix. A token costs one PRF.
const SOON_ANSWERS: Limits = Limits { all: 1000, one: 64 };
/// The same after that time.
const LATER_ANSWERS: Limits = Limits { all: 100, one: 16 };
/// Messages with wrong tokens per second that are logged one by one.
const TRIES: Limits = Limits { all: 2048, one: 16 };
/// Limits per second for INVALID_SPI: hosts that get it, and messages with it that are acted upon.
const HINTS: Limits = Limits { all: 100, one: 2 };

/// Limits per second: in all, and for one address or IPv6 prefix.
struct Limits {
    all: u32,
    one: u32,
}

/// The counters, and when they began.
#[derive(Default)]
pub(super) struct Crash {
    /// The time of the first input.
    begun: Option<Instant>,
    answers: Shares,
    tries: Shares,
    told: Shares,
    hints: Shares,
    /// SPIs that this end has told a peer for an IKE SA that a rekey is still making, by the SA that is being
    /// rekeyed.
    coming: OwnTable<u64, IkeSaId>,
}

impl Crash {
    /// True if one more host may get INVALID_SPI.
    pub(super) fn may_tell(&mut self, now: Instant, address: IpAddr) -> bool {
        self.told.take(now, address, &HINTS)
    }

    /// True if an INVALID_SPI from `address` may be acted upon.
    pub(super) fn may_hint(&mut self, now: Instant, address: IpAddr) -> bool {
        self.hints.take(now, address, &HINTS)
    }

    /// True if the message belongs to an IKE SA that a rekey is still making.
    fn is_coming(&self, header: &Header) -> bool {
        let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
        self.coming.contains_key(&own)
    }

    /// Records the IKE SAs into which `id` is being rekeyed.
    pub(super) fn update(&mut self, id: IkeSaId, slot: &mut Slot) {
        let now = match &slot.entry {
            Entry::Sa(sa) => sa.coming_spis(),
            Entry::Attempt(_) | Entry::Parked(_) => [None; 2],
        };
        if now == slot.keys.coming.as_deref().copied().unwrap_or_default() {
            return;
        }
        // Few SAs have such SPIs at a time.
        let any = now != [None; 2];
        let before = std::mem::replace(&mut slot.keys.coming, any.then(|| now.into()));
        self.forget_coming(id, before);
        for spi in now.into_iter().flatten() {
            self.coming.insert(spi, id);
        }
    }

    /// Removes these SPIs: the rekey of `id` does not make their IKE SAs any more.
    pub(super) fn forget_coming(&mut self, id: IkeSaId, spis: Option<Box<ComingSpis>>) {
        for spi in spis.into_iter().flat_map(|spis| *spis).flatten() {
            if self.coming.get(&spi) == Some(&id) {
                self.coming.remove(&spi);
            }
        }
    }

    /// Records the time of the first input.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// Time since the first input.
    fn age(&self, now: Instant) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun))
    }
}

/// Counters of the present second. There are never more addresses than messages that were admitted.
#[derive(Default)]
struct Shares {
    since: Option<Instant>,
    all: u32,
    from: BTreeMap<IpAddr, u32>,
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
        // A sender above its own limit takes nothing from others.
        let any = *count < limits.one;
        if any {
            *count += 1;
            self.all += 1;
        }
        any
    }
}

impl Endpoint {
    /// Answers a request for an IKE SA that does not exist, with the tokens that its peer may have.
    pub(super) fn answer_unknown(&mut self, now: Now, path: Path, message: &Message<'_>) {
        // Such a message is an answer that must not be answered (RFC 6290 §4.5), and its sender has no IKE SA.
        if qcd::is_in_clear(message) {
            return;
        }
        // The SA may exist a moment later, and its peer may have the token by then. The request will be
        // retransmitted.
        if self.crash.is_coming(&message.header) {
            return;
        }
        let tokens = self.tokens_for(now, message);
        let soon = self.crash.age(now.mono) < SOON;
        let limits = if soon { &SOON_ANSWERS } else { &LATER_ANSWERS };
        //= https://www.rfc-editor.org/rfc/rfc6290#section-8.1
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

    //= https://www.rfc-editor.org/rfc/rfc6290#section-9.2
    //# A token maker MUST NOT send a valid QCD token in an unprotected
    //# message for an existing IKE SA.
    /// The tokens that may be sent in answer to `message`, whose SPIs belong to no IKE SA of this shard.
    fn tokens_for(&self, now: Now, message: &Message<'_>) -> Vec<OwnToken> {
        let header = &message.header;
        let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
        let quiet = self.crash.age(now.mono) < self.config.qcd.quiet;
        // Another shard may have an SA with an SPI that it has chosen, however the message has come here.
        if quiet || !qcd::deserves_tokens(message) || self.config.shard.is_of_another(own) {
            return Vec::new();
        }
        OwnToken::all_for(&self.crypto, &self.config, header)
    }

    /// Handles an unprotected message with a token for the IKE SA `id`. False if `id` has no token.
    pub(super) fn on_token(
        &mut self,
        now: Now,
        path: Path,
        id: IkeSaId,
        message: &Message<'_>,
    ) -> bool {
        let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get(&id) else { return false };
        let Some(good) = sa.peer.token().judge(&sa.channel, message) else { return false };
        //= https://www.rfc-editor.org/rfc/rfc6290#section-4.5
        //# If the QCD_TOKEN cannot be
        //# validated, a response MUST NOT be sent, and the event may be logged.
        if !good {
            // Wrong tokens do not prevent that a right one is accepted: comparing them costs no more than the
            // limit itself, and 128 bits cannot be guessed at any rate (RFC 6290 §8.1).
            let few = self.crash.tries.take(now.mono, origin(path.remote.ip()), &TRIES);
            let why = if few { DropReason::WrongToken } else { DropReason::TooManyTokens };
            self.drop_datagram(path, why);
            return true;
        }
        let (peer, crossed) = (sa.channel.route().path().remote, sa.crossed_rekey());
        // The crossed SA ends first, so that a new attempt does not find it.
        if let Some(theirs) = crossed {
            self.with_sa(now, theirs, |sa, _| sa.on_crossed_lost(id));
        }
        self.with_sa(now, id, |sa, ctx| sa.on_peer_lost(ctx));
        // Other SAs with that host may be lost as well: their own tokens will show it.
        for other in self.index.at(peer.ip()) {
            self.with_sa(now, other, |sa, _| {
                if sa.channel.route().path().remote == peer {
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
