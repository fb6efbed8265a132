//! How many strangers are let in, and how often they are answered (RFC 7296 §2.6, §2.21.4).

use std::net::IpAddr;
use std::time::Instant;

use super::id_set::IdSet;
use super::unattended::NOBODY;
use crate::config::EndpointConfig;
use crate::event::IkeSaId;
use crate::shares::{Full, Origin, Shares};
use crate::table::Table;

/// Unprotected answers a second.
const COURTESIES: u32 = 100;
/// Requests refused in a second that count as one half-open SA.
const REFUSED: usize = 8;

/// What answers are counted by: an IPv4 address, or the /64 that any host on an IPv6 link may take its addresses
/// from.
pub(super) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(prefix.into())
        }
        v4 => v4,
    }
}

/// Octets of IKE_SA_INIT messages that make a half-open SA count once more against `init_limit_half_open`: they
/// are kept as long as it is half-open, and are most of what it costs.
const UNIT: usize = 2048;

/// SAs that this end answered and that are not authenticated yet.
pub(super) struct HalfOpen {
    all: usize,
    /// What they count, by origin.
    shares: Shares<IkeSaId>,
    /// Those of each origin.
    by_origin: Table<Origin, IdSet>,
    /// What arrives has to wait: a key exchange is for those alone who receive what is sent to them.
    pub(super) behind: bool,
}

impl Default for HalfOpen {
    fn default() -> Self {
        let shares = Shares::by_network(usize::MAX);
        Self { all: 0, shares, by_origin: Table::default(), behind: false }
    }
}

/// What a half-open SA counts whose IKE_SA_INIT request has so many octets.
pub(super) fn weight(octets: usize) -> usize {
    octets.div_ceil(UNIT).max(1)
}

/// Why a request is dropped: its origin has as many half-open SAs as it may, all of them in use.
pub(super) const BLOCKED: &str = "too many half-open IKE SAs with this address";
/// The same of all origins.
pub(super) const FULL: &str = "too many half-open IKE SAs";

/// What is to become of an IKE_SA_INIT request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may go on.
    Open,
    /// It must bring a cookie.
    Cookie,
    /// There are too many half-open SAs already; says of what.
    Full(&'static str),
}

impl HalfOpen {
    /// How many there are.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// One more, with a request of `octets`.
    pub(super) fn add(&mut self, id: IkeSaId, origin: Origin, octets: usize) {
        self.all += 1;
        // `make_room` has seen to the limit.
        self.shares.add(id, origin, weight(octets));
        self.by_origin.entry(origin).or_default().insert(id);
    }

    /// One less.
    pub(super) fn remove(&mut self, id: IkeSaId) {
        self.all = self.all.saturating_sub(1);
        if let Some(origin) = self.shares.origin_of(id)
            && let Some(its) = self.by_origin.get_mut(&origin)
        {
            its.remove(id);
            if its.is_empty() {
                self.by_origin.remove(&origin);
            }
        }
        self.shares.give_back(id, usize::MAX);
    }

    /// Those begun from `origin`, the oldest first.
    pub(super) fn from(&self, origin: Origin) -> impl Iterator<Item = IkeSaId> {
        self.by_origin.get(&origin).into_iter().flat_map(IdSet::iter)
    }

    /// How many were begun from `origin`.
    pub(super) fn count_from(&self, origin: Origin) -> usize {
        self.by_origin.get(&origin).map_or(0, IdSet::len)
    }

    /// True if an origin with `from` of them has as many as one address may have.
    pub(super) fn is_blocked(config: &EndpointConfig, from: usize) -> bool {
        let most = config.block_threshold as usize;
        most != 0 && from >= most
    }

    /// True if with one more that counts `weight` there are more than there may be in all.
    pub(super) fn is_full(&self, config: &EndpointConfig, weight: usize) -> bool {
        let most = config.init_limit_half_open as usize;
        most != 0 && self.shares.used().saturating_add(weight) > most
    }

    /// Which of them have to go before one of `origin` that counts `weight` is let in: of whoever has the
    /// most, the oldest.
    ///
    /// # Errors
    ///
    /// [`Full`] if it counts more than there may be in all.
    pub(super) fn make_room(
        &mut self,
        config: &EndpointConfig,
        origin: Origin,
        weight: usize,
    ) -> Result<Vec<IkeSaId>, Full> {
        self.shares.set_limit(config.init_limit_half_open as usize);
        let gone = self.shares.take(NOBODY, origin, weight);
        self.shares.give_back(NOBODY, usize::MAX);
        gone
    }

    /// Judges a new request that counts `weight`, from an origin that has `from` half-open SAs. `refused` is how
    /// many were refused in the last second: such a request leaves no half-open SA, and may have cost as much.
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
            // Others give way to a peer that is where it says, and to nobody else.
            let cookies = config.cookie_threshold != 0 || config.cookie_threshold_ip != 0;
            return match (cookies, blocked) {
                (true, _) => Admission::Cookie,
                (false, true) => Admission::Full(BLOCKED),
                (false, false) => Admission::Full(FULL),
            };
        }
        // The request itself is one of them.
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

/// A bucket of unprotected answers, refilled every second.
pub(super) struct Courtesy {
    most: u32,
    left: u32,
    since: Option<Instant>,
}

impl Courtesy {
    pub(super) fn new() -> Self {
        Self::of(COURTESIES)
    }

    /// So many a second.
    pub(super) fn of(most: u32) -> Self {
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

/// How many were refused in the present second.
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

/// True if a second has gone by.
fn is_over(since: Option<Instant>, now: Instant) -> bool {
    since.is_none_or(|since| now.saturating_duration_since(since).as_secs() >= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_behind_wants_a_cookie_of_everybody() {
        let mut config = EndpointConfig::default();
        let mut half_open = HalfOpen::default();
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
