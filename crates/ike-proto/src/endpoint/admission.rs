//! How many strangers are let in, and how often they are answered (RFC 7296 §2.6, §2.21.4).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use crate::config::EndpointConfig;

/// Unprotected answers a second.
const COURTESIES: u32 = 100;
/// Requests refused in a second that count as one half-open SA.
const REFUSED: usize = 8;

/// SAs that this end answered and that are not authenticated yet.
#[derive(Default)]
pub(super) struct HalfOpen {
    all: usize,
    from: HashMap<IpAddr, usize>,
    /// What arrives has to wait: a key exchange is for those alone who receive what is sent to them.
    pub(super) behind: bool,
}

/// What half-open SAs are counted by: an IPv4 address, or the /64 that any host on an IPv6 link may take
/// its addresses from. A cookie shows that somebody is there, not that he is one of many.
pub(super) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(prefix.into())
        }
        v4 => v4,
    }
}

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

    /// One more, begun from `address`, an [`origin`] as everywhere here.
    pub(super) fn add(&mut self, address: IpAddr) {
        self.all += 1;
        *self.from.entry(address).or_default() += 1;
    }

    /// One less.
    pub(super) fn remove(&mut self, address: IpAddr) {
        self.all = self.all.saturating_sub(1);
        if let Some(count) = self.from.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.from.remove(&address);
            }
        }
    }

    /// Judges a new request from `address`. `refused` is how many were refused in the last second: such
    /// a request leaves no half-open SA, and may have cost as much.
    pub(super) fn judge(
        &self,
        config: &EndpointConfig,
        address: IpAddr,
        refused: usize,
    ) -> Admission {
        let from = self.from.get(&address).copied().unwrap_or_default();
        let over = |limit: u32, count: usize| limit != 0 && count >= limit as usize;
        if over(config.init_limit_half_open, self.all) {
            return Admission::Full("too many half-open IKE SAs");
        }
        if over(config.block_threshold, from) {
            return Admission::Full("too many half-open IKE SAs with this address");
        }
        // The request itself is one of them.
        let all = self.all.saturating_add(refused / REFUSED).saturating_add(1);
        let hurried = self.behind && config.cookie_threshold != 0;
        if hurried
            || over(config.cookie_threshold, all)
            || over(config.cookie_threshold_ip, from + 1)
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
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(half_open.judge(&config, address, 0), Admission::Open);
        half_open.behind = true;
        assert_eq!(half_open.judge(&config, address, 0), Admission::Cookie);
        config.cookie_threshold = 0;
        assert_eq!(half_open.judge(&config, address, 0), Admission::Open, "never is never");
        config.cookie_threshold = 30;
        half_open.behind = false;
        assert_eq!(half_open.judge(&config, address, 0), Admission::Open);
    }
}
