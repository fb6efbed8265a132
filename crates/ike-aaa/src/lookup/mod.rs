//! Certificates that peers send by hash and URL (RFC 7296 §3.6).
//!
//! A peer that names a URL has proven nothing but its address. So this is off unless configured, and strangers can
//! make this host do little: the size, the time, the place and the number of fetches are limited. A fetched
//! certificate is compared with its hash before it is parsed. It is then judged as if the peer had sent it.

mod cache;
mod pace;
mod place;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ::pki::{Certificate, HashAndUrl, sha1};
use ike_config::UrlPrefix;
use ike_proto::wire::registry::CertEncoding;
use ike_proto::{OwnedCert, PeerCredentials};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::spawn_blocking;

use crate::fetch::{Fetcher, Outside};
use cache::{Cache, Failures, Hash, Thing};
use pace::Pace;
use place::{Allowed, Guarded};

/// What may be looked up: `hash_and_url` and `hash_and_url_from` of `[charon]`, and what is here already.
#[derive(Debug, Clone, Default)]
pub struct LookupRules {
    on: bool,
    from: Vec<UrlPrefix>,
    known: Arc<HashMap<Hash, Arc<Certificate>>>,
}

impl LookupRules {
    /// Certificates are fetched from URLs with one of these prefixes. Without prefixes they are fetched from every
    /// public address.
    pub fn new(from: Vec<UrlPrefix>) -> Self {
        Self { on: true, from, known: Arc::default() }
    }

    /// Adds certificates that this end has already, and does not fetch. Without [`Self::new`] it does nothing.
    pub fn know<'a>(&mut self, certificates: impl Iterator<Item = &'a Arc<Certificate>>) {
        if self.on {
            let by_hash = |one: &'a Arc<Certificate>| (sha1(one.der()), Arc::clone(one));
            self.known = Arc::new(certificates.map(by_hash).collect());
        }
    }
}

/// Looks certificates up.
#[derive(Debug)]
pub(crate) struct Lookup {
    rules: RwLock<Arc<LookupRules>>,
    /// What was fetched, and is of the path to a key that a peer has proven to have.
    good: Mutex<Cache>,
    /// What was fetched for strangers.
    other: Arc<Mutex<Cache>>,
    failures: Arc<Mutex<Failures>>,
    pace: Mutex<Pace>,
    /// Fetches at a time.
    fetches: Arc<Semaphore>,
    /// Peers that wait.
    waiting: Semaphore,
    /// One fetch of a thing at a time.
    fetching: Mutex<HashMap<Thing, Arc<AsyncMutex<()>>>>,
    /// How long all fetches for one peer may take, and one of them.
    patience: [Duration; 2],
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            rules: RwLock::default(),
            good: Mutex::new(Cache::new(GOOD)),
            other: Arc::new(Mutex::new(Cache::new(OTHER))),
            failures: Arc::default(),
            pace: Mutex::new(Pace::new(Instant::now())),
            fetches: Arc::new(Semaphore::new(FETCHES)),
            waiting: Semaphore::new(WAITING),
            fetching: Mutex::default(),
            patience: [PATIENCE, ONE_FETCH],
        }
    }
}

impl Lookup {
    /// From now on by `rules`. What was fetched is kept, for a hash names the same under any rules; what could
    /// not be is forgotten.
    pub(crate) fn set(&self, rules: LookupRules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        *locked(&self.failures) = Failures::default();
    }

    fn rules(&self) -> Arc<LookupRules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if `peer` sent something that is to be looked up.
    pub(crate) fn concerns(&self, peer: &PeerCredentials) -> bool {
        peer.certs.iter().any(|cert| HashAndUrl::is(cert.encoding)) && self.rules().on
    }

    /// `peer` with certificates in place of hashes and URLs. What is not to be had is left out, but for the
    /// peer's own certificate.
    ///
    /// Servers that the peer's own tunnel covers are asked by `outside` while it is down.
    ///
    /// # Errors
    /// If that is not to be had; says why.
    pub(crate) async fn resolve(
        &self,
        peer: &PeerCredentials,
        outside: Option<Outside>,
    ) -> Result<PeerCredentials, String> {
        let urls = peer.certs.iter().filter(|cert| HashAndUrl::is(cert.encoding)).count();
        //= https://www.rfc-editor.org/rfc/rfc7296#section-3.6
        //# Implementations MUST be capable of being configured to send and
        //# accept up to four X.509 certificates in support of authentication
        if urls > MOST_URLS {
            return Err(format!("{urls} certificates by hash and URL, more than {MOST_URLS}"));
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err("too many others wait for certificates by hash and URL".to_owned());
        };
        let [patience, _] = self.patience;
        let certs = self.certificates(&peer.certs, outside.as_ref());
        let certs = tokio::time::timeout(patience, certs).await;
        let certs = certs.map_err(|_| "its certificates take too long to fetch".to_owned())??;
        Ok(PeerCredentials { certs, ..peer.clone() })
    }

    async fn certificates(
        &self,
        certs: &[OwnedCert],
        outside: Option<&Outside>,
    ) -> Result<Vec<OwnedCert>, String> {
        let mut all = Vec::new();
        for (at, cert) in certs.iter().enumerate() {
            if !HashAndUrl::is(cert.encoding) {
                all.push(cert.clone());
                continue;
            }
            match self.unpacked(cert, outside).await {
                Ok(certificates) => all.extend(certificates),
                Err(why) if at == 0 => return Err(why),
                Err(why) => tracing::debug!(%why, "certificate not looked up"),
            }
        }
        Ok(all)
    }

    async fn unpacked(
        &self,
        cert: &OwnedCert,
        outside: Option<&Outside>,
    ) -> Result<Vec<OwnedCert>, String> {
        let wanted = HashAndUrl::read(cert).map_err(|why| why.to_string())?;
        let found = self.find(&wanted, outside).await;
        let found = found.map_err(|why| format!("{}: {why}", wanted.url))?;
        wanted.unpack(&found).map_err(|why| format!("{}: {why}", wanted.url))
    }

    async fn find(
        &self,
        wanted: &HashAndUrl<'_>,
        outside: Option<&Outside>,
    ) -> Result<Arc<[u8]>, String> {
        let rules = self.rules();
        if let Some(known) = rules.known.get(&wanted.hash) {
            return Ok(known.der().into());
        }
        let thing = (wanted.hash, wanted.url.to_owned(), wanted.limit());
        if let Some(found) = self.cached(&thing) {
            return found;
        }
        let allowed = Allowed::of(wanted.url, &rules.from);
        let allowed = allowed.ok_or("`hash_and_url_from` does not allow it")?;
        let turn = {
            let mut fetching = locked(&self.fetching);
            fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(fetching.entry(thing.clone()).or_default())
        };
        let turn = turn.lock_owned().await;
        // Somebody else may have fetched it meanwhile.
        if let Some(found) = self.cached(&thing) {
            return found;
        }
        let fetches = Arc::clone(&self.fetches);
        let place = fetches.acquire_owned().await.map_err(|_| "this daemon ends")?;
        if allowed == Allowed::Public && !locked(&self.pace).take(Instant::now()) {
            return Err("too much is fetched for strangers".to_owned());
        }
        let (other, failures) = (Arc::clone(&self.other), Arc::clone(&self.failures));
        let [_, patience] = self.patience;
        let guarded = Guarded { allowed, outside: outside.cloned() };
        let fetcher = Fetcher::guarded(patience, guarded, outside.cloned());
        // It goes on if nobody waits for it any more, has its place and its turn until then, and what comes
        // of it is there for the next who asks.
        let work = spawn_blocking(move || {
            let found = fetch(&thing, &fetcher);
            match &found {
                Ok(octets) => locked(&other).insert(thing.0, Arc::clone(octets)),
                Err(why) => locked(&failures).remember(thing, why.clone(), Instant::now()),
            }
            drop((turn, place));
            found
        });
        work.await.map_err(|_| "fetching broke off")?
    }

    fn cached(&self, thing: &Thing) -> Option<Result<Arc<[u8]>, String>> {
        let good = locked(&self.good).get(&thing.0);
        let found = good.or_else(|| locked(&self.other).get(&thing.0));
        if let Some(found) = found {
            return Some(Ok(found));
        }
        let failures = locked(&self.failures);
        let why = failures.why(thing, Instant::now())?;
        Some(Err(format!("{why} (tried a short while ago)")))
    }

    /// True if something that was fetched for `peer` is to be [kept](Self::keep) once it has proven to have the
    /// key that `path` leads to.
    pub(crate) fn would_keep(&self, peer: &PeerCredentials, path: &[&[u8]]) -> bool {
        let mut wanted = peer.certs.iter().filter_map(|cert| HashAndUrl::read(cert).ok());
        wanted.any(|wanted| {
            let found = locked(&self.other).get(&wanted.hash);
            found.is_some_and(|octets| is_of(path, &wanted, &octets))
        })
    }

    /// `peer` has proven to have the key that `path` leads to, certificates in DER. Strangers cannot displace
    /// them any more. What else came along may still be anything.
    pub(crate) fn keep(&self, peer: &PeerCredentials, path: &[&[u8]]) {
        for wanted in peer.certs.iter().filter_map(|cert| HashAndUrl::read(cert).ok()) {
            let found = locked(&self.other).get(&wanted.hash);
            if let Some(octets) = found.filter(|octets| is_of(path, &wanted, octets)) {
                let (url, length) = (wanted.url, octets.len());
                tracing::info!(url, octets = length, "certificate fetched and kept");
                locked(&self.other).remove(&wanted.hash);
                locked(&self.good).insert(wanted.hash, octets);
            }
        }
    }
}

/// True if `octets` are certificates of `path`, each once, and nothing else.
fn is_of(path: &[&[u8]], wanted: &HashAndUrl<'_>, octets: &[u8]) -> bool {
    let certs = wanted.unpack(octets).unwrap_or_default();
    let again = |at, cert: &OwnedCert| certs.iter().take(at).any(|other| other.data == cert.data);
    !certs.is_empty()
        && certs.iter().enumerate().all(|(at, cert)| {
            cert.encoding == CertEncoding::X509_SIGNATURE
                && path.contains(&&*cert.data)
                && !again(at, cert)
        })
}

/// Blocks.
fn fetch((hash, url, limit): &Thing, fetcher: &Fetcher) -> Result<Arc<[u8]>, String> {
    let octets = fetcher.get(url, *limit).map_err(|why| why.to_string())?;
    if sha1(&octets) != *hash {
        return Err("what was fetched has another hash".to_owned());
    }
    tracing::debug!(url, octets = octets.len(), "certificate fetched");
    Ok(octets.into())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// URLs of one peer.
const MOST_URLS: usize = 4;
/// How long all fetches for one peer may take: it waits meanwhile, and this end keeps its half-open SA.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one fetch may take.
const ONE_FETCH: Duration = Duration::from_secs(5);
/// Fetches at a time.
const FETCHES: usize = 4;
/// Peers that wait at a time.
const WAITING: usize = 256;
/// What could not be fetched is not tried again for so long.
const FORGIVEN_AFTER: Duration = Duration::from_secs(30);
/// Octets of what belongs to proven keys: more than 500 certificates with ML-DSA-87.
const GOOD: usize = 4 << 20;
/// Octets of what strangers have named.
const OTHER: usize = 1 << 20;

#[cfg(test)]
mod tests;
