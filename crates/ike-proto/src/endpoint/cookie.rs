//! Stateless cookies (RFC 7296 §2.6).
//!
//! `Cookie = version | prf(secret, Ni | IPi | porti | SPIi)`: nothing is kept for an address that has
//! not proven that it receives. Two secrets are good at a time, so that a change loses nobody.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::crypto::{Prf, Secret, SecureRandom};

/// How long new cookies are made from one secret.
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
    pub(crate) fn new(prf: &'static dyn Prf, rng: &mut dyn SecureRandom) -> Self {
        Self { prf, version: 0, current: draw(rng), previous: None, since: None }
    }

    /// The cookie for this request.
    pub(crate) fn make(
        &mut self,
        now: Instant,
        rng: &mut dyn SecureRandom,
        ni: &[u8],
        from: SocketAddr,
        spi_i: u64,
    ) -> Vec<u8> {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= SECRET_LIFE {
            let fresh = draw(rng);
            self.previous = Some(std::mem::replace(&mut self.current, fresh));
            self.version = self.version.wrapping_add(1);
            self.since = Some(now);
        }
        let mut cookie = vec![self.version];
        cookie.extend_from_slice(self.mac(&self.current, ni, from, spi_i).expose());
        cookie.truncate(64);
        cookie
    }

    /// True if `cookie` was made here for this request lately.
    pub(crate) fn check(&self, cookie: &[u8], ni: &[u8], from: SocketAddr, spi_i: u64) -> bool {
        let Some((&version, mac)) = cookie.split_first() else { return false };
        let secret = if version == self.version {
            Some(&self.current)
        } else if version.wrapping_add(1) == self.version {
            self.previous.as_ref()
        } else {
            None
        };
        secret.is_some_and(|secret| {
            let mut wanted = self.mac(secret, ni, from, spi_i).expose().to_vec();
            wanted.truncate(63);
            Secret::new(wanted).ct_eq(mac)
        })
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
