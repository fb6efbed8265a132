//! Stateless cookies (RFC 7296 §2.6).
//!
//! `Cookie = version | prf(secret, Ni | IPi | porti | SPIi)`. Nothing is kept for an address that has not proven
//! that it receives. Two secrets are valid at a time, so that a change of the secret refuses no peer.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::crypto::{Prf, Secret, SecureRandom};
use crate::table::HashSeed;

/// How long new cookies are made with one secret.
const SECRET_LIFE: Duration = Duration::from_secs(60);

/// Octets of the secret.
const SECRET_LEN: usize = 32;

/// Makes and checks cookies.
pub(crate) struct Cookies {
    prf: &'static dyn Prf,
    version: u8,
    current: Secret,
    previous: Option<Secret>,
    since: Option<Instant>,
}

impl Cookies {
    pub(super) fn new(prf: &'static dyn Prf, rng: &mut dyn SecureRandom) -> Self {
        Self { prf, version: 0, current: draw(rng), previous: None, since: None }
    }

    /// A seed for the endpoint's hash tables. No cookie is made of the same octets, because a nonce is longer.
    pub(super) fn seed(&self) -> HashSeed {
        HashSeed::new(&self.prf.prf(self.current.expose(), &[b"hash tables"]))
    }

    /// The cookie for this request.
    pub(super) fn make(
        &mut self,
        now: Instant,
        rng: &mut dyn SecureRandom,
        ni: &[u8],
        from: SocketAddr,
        spi_i: u64,
    ) -> Vec<u8> {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age >= SECRET_LIFE {
            let former = std::mem::replace(&mut self.current, draw(rng));
            // If no cookie was made for a long time, those of the former secret are old, too.
            self.previous = Some(former).filter(|_| age < 2 * SECRET_LIFE);
            self.version = self.version.wrapping_add(1);
            self.since = Some(now);
        }
        Self::cookie(self.version, &self.mac(&self.current, ni, from, spi_i))
    }

    /// True if `cookie` was made here for this request within two lives of a secret, whether other cookies were
    /// made since or not.
    pub(super) fn check(
        &self,
        now: Instant,
        cookie: &[u8],
        ni: &[u8],
        from: SocketAddr,
        spi_i: u64,
    ) -> bool {
        let Some((&version, mac)) = cookie.split_first() else { return false };
        let age = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let secret = if version == self.version {
            Some(&self.current).filter(|_| age < 2 * SECRET_LIFE)
        } else if version.wrapping_add(1) == self.version {
            self.previous.as_ref().filter(|_| age < SECRET_LIFE)
        } else {
            None
        };
        secret.is_some_and(|secret| {
            let mut wanted = self.mac(secret, ni, from, spi_i).expose().to_vec();
            wanted.truncate(63);
            Secret::new(wanted).ct_eq(mac)
        })
    }

    /// True if a cookie was ever made.
    pub(super) fn made_any(&self) -> bool {
        self.since.is_some()
    }

    /// The cookies that may have been made for this request within two lives of a secret.
    pub(super) fn made(
        &self,
        now: Instant,
        ni: &[u8],
        from: SocketAddr,
        spi_i: u64,
    ) -> Vec<Vec<u8>> {
        let Some(since) = self.since else { return Vec::new() };
        let age = now.saturating_duration_since(since);
        let current = Some(&self.current).filter(|_| age < 2 * SECRET_LIFE);
        let previous = self.previous.as_ref().filter(|_| age < SECRET_LIFE);
        let former = self.version.wrapping_sub(1);
        let secrets = [(self.version, current), (former, previous)];
        let cookie = |(version, secret): (u8, Option<&Secret>)| {
            secret.map(|secret| Self::cookie(version, &self.mac(secret, ni, from, spi_i)))
        };
        secrets.into_iter().filter_map(cookie).collect()
    }

    fn cookie(version: u8, mac: &Secret) -> Vec<u8> {
        let mut cookie = vec![version];
        cookie.extend_from_slice(mac.expose());
        cookie.truncate(64);
        cookie
    }

    fn mac(&self, secret: &Secret, ni: &[u8], from: SocketAddr, spi_i: u64) -> Secret {
        let ip: Vec<u8> = match from.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let port = from.port().to_be_bytes();
        self.prf.prf(secret.expose(), &[ni, &ip, &port, &spi_i.to_be_bytes()])
    }
}

fn draw(rng: &mut dyn SecureRandom) -> Secret {
    let mut octets = vec![0; SECRET_LEN];
    rng.fill(&mut octets);
    Secret::new(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up.
    struct Counter(u8);

    impl SecureRandom for Counter {
        fn fill(&mut self, out: &mut [u8]) {
            for octet in out {
                self.0 = self.0.wrapping_add(1);
                *octet = self.0;
            }
        }
    }

    /// The first octets of key and message: enough to tell secrets apart.
    #[derive(Debug)]
    struct Cheap;

    impl Prf for Cheap {
        fn id(&self) -> crate::wire::registry::PrfId {
            crate::wire::registry::PrfId::HMAC_SHA2_256
        }

        fn output_len(&self) -> usize {
            32
        }

        fn prf(&self, key: &[u8], parts: &[&[u8]]) -> Secret {
            Secret::new(key.iter().copied().chain(parts.concat()).take(60).collect())
        }
    }

    #[expect(clippy::disallowed_methods, reason = "an instant cannot be had otherwise")]
    fn beginning() -> Instant {
        Instant::now()
    }

    /// A cookie is good for two minutes, whether others are made meanwhile or none is.
    ///
    /// Fault: in `Cookies::check`, leave out `age`.
    #[test]
    fn a_cookie_is_not_good_for_longer_where_no_others_are_made() {
        let begin = beginning();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let from = SocketAddr::from(([192, 0, 2, 1], 500));
        for busy in [false, true] {
            let mut rng = Counter(0);
            let mut cookies = Cookies::new(&Cheap, &mut rng);
            let cookie = cookies.make(at(0), &mut rng, b"nonce", from, 7);
            let mut good = Vec::new();
            for seconds in (1..600).step_by(10) {
                if busy {
                    cookies.make(at(seconds), &mut rng, b"other", from, 8);
                }
                if cookies.check(at(seconds), &cookie, b"nonce", from, 7) {
                    good.push(seconds);
                }
            }
            assert_eq!((good.first(), good.last()), (Some(&1), Some(&111)), "{busy}: {good:?}");
        }
        // One of a secret that nobody has used for long is not taken because of the change.
        let mut rng = Counter(0);
        let mut cookies = Cookies::new(&Cheap, &mut rng);
        let cookie = cookies.make(at(0), &mut rng, b"nonce", from, 7);
        cookies.make(at(3600), &mut rng, b"other", from, 8);
        assert!(!cookies.check(at(3600), &cookie, b"nonce", from, 7));
    }
}
