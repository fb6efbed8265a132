//! Limits for unauthenticated peers: how many are admitted, and how often they are answered (RFC 7296 §2.6,
//! §2.21.4).

use std::net::IpAddr;
use std::time::Instant;

use super::id_set::IdSet;
use crate::config::EndpointConfig;
use crate::event::IkeSaId;
use crate::reason::DropReason;
use crate::shares::{Full, Origin, Shares};
use crate::table::{HashSeed, Table};

/// Unprotected answers per second.
const COURTESIES: u32 = 100;
/// Requests refused in one second that count as one half-open SA.
const REFUSED: usize = 8;

/// The key by which answers are counted: an IPv4 address, or a /64, from which any host on an IPv6 link may choose
/// its addresses.
pub(super) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(prefix.into())
        }
        v4 => v4,
    }
}

/// Octets of IKE_SA_INIT messages for which a half-open SA counts once more against `init_limit_half_open`. The
/// messages are kept while the SA is half-open, and are most of its memory.
const UNIT: usize = 2048;

/// SAs as responder that are not authenticated yet.
pub(super) struct HalfOpen {
    all: usize,
    /// Their weights, by origin; `None` is one that is not admitted yet.
    shares: Shares<Option<IkeSaId>>,
    /// The SAs of each origin.
    by_origin: Table<Origin, IdSet>,
    /// This end is behind with its input: only peers with a cookie may cause a key exchange.
    pub(super) behind: bool,
}

/// The weight of a half-open SA whose IKE_SA_INIT request has `octets`.
pub(super) fn weight(octets: usize) -> usize {
    octets.div_ceil(UNIT).max(1)
}

/// Why a request is dropped: its origin has its maximum of half-open SAs, and all of them are active.
pub(super) const BLOCKED: DropReason = DropReason::TooManyHalfOpenThere;
/// The same for the maximum of all origins.
pub(super) const FULL: DropReason = DropReason::TooManyHalfOpen;

/// The decision about an IKE_SA_INIT request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The request may go on.
    Open,
    /// The request must bring a cookie.
    Cookie,
    /// There are too many half-open SAs. Says in which respect.
    Full(DropReason),
}

impl HalfOpen {
    /// Of an endpoint that has none.
    pub(super) fn new(seed: HashSeed) -> Self {
        let shares = Shares::by_network(usize::MAX, seed);
        Self { all: 0, shares, by_origin: Table::new(seed), behind: false }
    }

    /// The number of half-open SAs.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// Adds one whose request has `octets`.
    pub(super) fn add(&mut self, id: IkeSaId, origin: Origin, octets: usize) {
        self.all += 1;
        // `make_room` has applied the limit.
        self.shares.add(Some(id), origin, weight(octets));
        self.by_origin.entry(origin).or_default().insert(id);
    }

    /// Removes one.
    pub(super) fn remove(&mut self, id: IkeSaId) {
        self.all = self.all.saturating_sub(1);
        // One that had to give way is not in the shares any more, nor under its origin.
        if let Some(origin) = self.shares.origin_of(Some(id)) {
            IdSet::leave(&mut self.by_origin, &origin, id);
        }
        self.shares.give_back(Some(id), usize::MAX);
    }

    /// The half-open SAs from `origin`, the oldest first.
    pub(super) fn from(&self, origin: Origin) -> impl Iterator<Item = IkeSaId> {
        self.by_origin.get(&origin).into_iter().flat_map(IdSet::iter)
    }

    /// The number of half-open SAs from `origin`.
    pub(super) fn count_from(&self, origin: Origin) -> usize {
        self.by_origin.get(&origin).map_or(0, IdSet::len)
    }

    /// True if an origin with `from` half-open SAs has the maximum of one address.
    pub(super) fn is_blocked(config: &EndpointConfig, from: usize) -> bool {
        let most = config.block_threshold as usize;
        most != 0 && from >= most
    }

    /// True if one more of this `weight` would exceed the limit for all.
    pub(super) fn is_full(&self, config: &EndpointConfig, weight: usize) -> bool {
        let most = config.init_limit_half_open as usize;
        most != 0 && self.shares.used().saturating_add(weight) > most
    }

    /// The SAs that have to end before one of `origin` with this `weight` is admitted: the oldest ones of the
    /// origin that has the most.
    ///
    /// # Errors
    ///
    /// [`Full`] if the weight alone exceeds the limit for all.
    pub(super) fn make_room(
        &mut self,
        config: &EndpointConfig,
        origin: Origin,
        weight: usize,
    ) -> Result<Vec<IkeSaId>, Full> {
        self.shares.set_limit(config.init_limit_half_open as usize);
        let gone = self.shares.displace(None, origin, weight);
        self.shares.give_back(None, usize::MAX);
        let gone = gone?.into_iter().filter_map(|(id, its)| Some((id?, its)));
        let gone: Vec<_> = gone.collect();
        for (id, its) in &gone {
            IdSet::leave(&mut self.by_origin, its, *id);
        }
        Ok(gone.into_iter().map(|(id, _)| id).collect())
    }

    /// Judges a new request with this `weight`, from an origin that has `from` half-open SAs. `refused` requests
    /// were refused in the last second. They leave no half-open SA, but may have cost as much as one.
    pub(super) fn judge(
        &self,
        config: &EndpointConfig,
        from: usize,
        weight: usize,
        refused: usize,
    ) -> Admission {
        let over = |limit: u32, count: usize| limit != 0 && count >= limit as usize;
        let blocked = Self::is_blocked(config, from);
        if blocked || self.is_full(config, weight) {
            // SAs give way only to a peer that has proven its address.
            let cookies = config.cookie_threshold != 0 || config.cookie_threshold_ip != 0;
            return match (cookies, blocked) {
                (true, _) => Admission::Cookie,
                (false, true) => Admission::Full(BLOCKED),
                (false, false) => Admission::Full(FULL),
            };
        }
        // The request itself counts as well.
        let all = self.all.saturating_add(refused / REFUSED).saturating_add(1);
        let hurried = self.behind && config.cookie_threshold != 0;
        if hurried
            || over(config.cookie_threshold, all)
            || over(config.cookie_threshold_ip, from.saturating_add(1))
        {
            return Admission::Cookie;
        }
        Admission::Open
    }
}

/// A bucket of unprotected answers. It is refilled every second.
pub(super) struct Courtesy {
    most: u32,
    left: u32,
    since: Option<Instant>,
}

impl Default for Courtesy {
    fn default() -> Self {
        Self::of(COURTESIES)
    }
}

impl Courtesy {
    /// A bucket of `most` answers a second.
    fn of(most: u32) -> Self {
        Self { most, left: most, since: None }
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        if is_over(self.since, now) {
            self.since = Some(now);
            self.left = self.most;
        }
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

/// Requests refused in the present second.
#[derive(Default)]
pub(super) struct Refused {
    count: usize,
    since: Option<Instant>,
}

impl Refused {
    pub(super) fn in_second(&self, now: Instant) -> usize {
        if is_over(self.since, now) { 0 } else { self.count }
    }

    pub(super) fn count(&mut self, now: Instant) {
        if is_over(self.since, now) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
    }
}

/// True if a second has passed.
fn is_over(since: Option<Instant>, now: Instant) -> bool {
    since.is_none_or(|since| now.saturating_duration_since(since).as_secs() >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has to give way is not counted with its address any more, and nothing of it is kept.
    ///
    /// Fault: in `make_room`, leave `IdSet::leave` out.
    #[test]
    fn half_open_sas_that_gave_way_do_not_block_their_address() {
        let config = EndpointConfig { init_limit_half_open: 3, ..EndpointConfig::default() };
        let address = |last| Origin::of(IpAddr::from([192, 0, 2, last]));
        let mut half_open = HalfOpen::new(HashSeed::TEST);
        for id in 1..=20 {
            let origin = address(id % 2);
            let id = IkeSaId(u64::from(id));
            if half_open.is_full(&config, 1) {
                let gone = half_open.make_room(&config, origin, 1).unwrap();
                assert_eq!(gone.len(), 1);
                gone.into_iter().for_each(|id| half_open.remove(id));
            }
            half_open.add(id, origin, 1);
            let counted = half_open.count_from(address(0)) + half_open.count_from(address(1));
            assert_eq!(counted, half_open.all());
        }
        for id in 1..=20 {
            let id = IkeSaId(id);
            if half_open.shares.origin_of(Some(id)).is_some() {
                half_open.remove(id);
            }
        }
        assert_eq!((half_open.all(), half_open.by_origin.len()), (0, 0));
    }

    #[test]
    fn who_is_behind_wants_a_cookie_of_everybody() {
        let mut config = EndpointConfig::default();
        let mut half_open = HalfOpen::new(HashSeed::TEST);
        assert_eq!(half_open.judge(&config, 0, 1, 0), Admission::Open);
        half_open.behind = true;
        assert_eq!(half_open.judge(&config, 0, 1, 0), Admission::Cookie);
        config.cookie_threshold = 0;
        assert_eq!(half_open.judge(&config, 0, 1, 0), Admission::Open, "never is never");
        config.cookie_threshold = 30;
        half_open.behind = false;
        assert_eq!(half_open.judge(&config, 0, 1, 0), Admission::Open);
    }
}
