//! Fetches over HTTP: revocation information, as certificates and `authorities` name it, and certificates by hash
//! and URL (`lookup`).
//!
//! Fetched data are signed, and are requested only once a peer has shown a certificate of a trusted CA. So HTTP
//! without TLS suffices. No proxy is used, and no redirection is followed to another scheme.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::pki::{Crl, FetchKind, FetchRequest, LoadError, MAX_LIST};
use ureq::config::{AutoHeaderValue, Config, ConfigBuilder};
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::DefaultConnector;

pub(crate) use few::{Few, Lookups};
pub(crate) use outside::Outside;

mod few;
mod outside;

/// Fetches by HTTP, with limits of time and size.
#[derive(Debug, Clone)]
pub struct Fetcher {
    agent: ureq::Agent,
    /// For lists, whose bodies may be long.
    lists: ureq::Agent,
    patience: Duration,
    limits: ListLimits,
    /// Octets of all lists that are being read, by clones, too. Nobody has verified a signature on them.
    unverified: Arc<AtomicU64>,
}

/// Limits on the bodies of revocation lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListLimits {
    /// How long a server may send nothing.
    pub pause: Duration,
    /// Most octets of all lists that are being read at a time.
    pub unverified: u64,
}

impl Default for ListLimits {
    fn default() -> Self {
        Self { pause: LONGEST_PAUSE, unverified: MOST_UNVERIFIED }
    }
}

/// Why there is nothing, as one line that is safe in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchError(String);

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FetchError {}

impl From<ureq::Error> for FetchError {
    fn from(error: ureq::Error) -> Self {
        // The error may have a piece of the response in it.
        Self(error.to_string().escape_debug().take(LONGEST_ERROR).collect())
    }
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new(PATIENCE)
    }
}

impl Fetcher {
    /// Gives up on a fetch, name resolution included, after `patience`. The body of a list may take longer.
    pub fn new(patience: Duration) -> Self {
        Self::with_limits(patience, ListLimits::default())
    }

    /// As [`new`](Self::new), with other limits on lists.
    pub(crate) fn with_limits(patience: Duration, limits: ListLimits) -> Self {
        let lists = config_of_lists(patience, limits).new_agent();
        let agent = config(patience, REDIRECTS).new_agent();
        Self { agent, lists, patience, limits, unverified: Arc::default() }
    }

    /// The same for servers that may have to be reached outside tunnels.
    pub(crate) fn by(&self, outside: &Outside) -> Self {
        let agent = |config| ureq::Agent::with_parts(config, outside.clone(), outside.clone());
        Self {
            agent: agent(config(self.patience, REDIRECTS)),
            lists: agent(config_of_lists(self.patience, self.limits)),
            ..self.clone()
        }
    }

    /// The same for URLs that a stranger names: it connects to addresses of `resolver` alone, by `outside` if given, and
    /// follows no redirection.
    pub(crate) fn guarded(
        patience: Duration,
        resolver: impl Resolver,
        outside: Option<Outside>,
    ) -> Self {
        let config = config(patience, 0);
        let agent = match outside {
            None => ureq::Agent::with_parts(config, DefaultConnector::default(), resolver),
            Some(outside) => ureq::Agent::with_parts(config, outside, resolver),
        };
        let (limits, unverified) = (ListLimits::default(), Arc::default());
        Self { lists: agent.clone(), agent, patience, limits, unverified }
    }

    /// How long a fetch may take, and the response to one for a list.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// What `request` asks for. Blocks.
    ///
    /// # Errors
    /// If there is no response in time, one that is too long, or one with another status than 200.
    pub fn fetch(&self, request: &FetchRequest) -> Result<Vec<u8>, FetchError> {
        match &request.kind {
            FetchKind::Crl => self.get(&request.url, MAX_LIST),
            FetchKind::Ocsp { request: body } => self.post(&request.url, body, LARGEST_ANSWER),
        }
    }

    /// Has `read` read the revocation list that `request` asks for, and hands it to `take`, which verifies it: the list, or
    /// why the body is none. It is read as it comes. It may take minutes, if it makes progress. Blocks.
    ///
    /// # Errors
    /// If there is no response in time, or one with another status than 200, or if all lists that are being read have
    /// too many octets.
    pub fn list<T>(
        &self,
        request: &FetchRequest,
        read: impl FnOnce(&mut dyn Read) -> Result<Crl, LoadError>,
        take: impl FnOnce(Result<Crl, LoadError>) -> T,
    ) -> Result<T, FetchError> {
        let mut response = self.lists.get(&request.url).call()?;
        check_status(&response)?;
        let limit = MAX_LIST as u64 + 1;
        let mut body = self.steady(response.body_mut().with_config().limit(limit).reader());
        let list = read(&mut body);
        match body.refused {
            true => Err(FetchError(format!(
                "revocation lists that are being read have more than {} octets in all: this one is fetched again later",
                self.limits.unverified
            ))),
            // Its octets count until its signature is verified.
            false => Ok(take(list)),
        }
    }

    fn steady<R>(&self, body: R) -> Steady<R> {
        let (all, most) = (Arc::clone(&self.unverified), self.limits.unverified);
        Steady { body, begun: Instant::now(), octets: 0, all, most, refused: false }
    }

    /// The body at `url`, of `limit` octets at most. Blocks.
    ///
    /// # Errors
    /// As [`Fetcher::fetch`].
    pub fn get(&self, url: &str, limit: usize) -> Result<Vec<u8>, FetchError> {
        body(self.agent.get(url).call()?, limit)
    }

    /// The answer of an OCSP responder (RFC 6960 appendix A.1). Blocks.
    ///
    /// # Errors
    /// As [`Fetcher::fetch`].
    pub fn post(&self, url: &str, request: &[u8], limit: usize) -> Result<Vec<u8>, FetchError> {
        let post = self.agent.post(url).content_type("application/ocsp-request");
        body(post.send(request)?, limit)
    }
}

fn config(patience: Duration, redirects: u32) -> Config {
    limited(ureq::Agent::config_builder().timeout_global(Some(patience)), redirects).build()
}

fn config_of_lists(patience: Duration, limits: ListLimits) -> Config {
    let lists = ureq::Agent::config_builder()
        .timeout_resolve(Some(patience))
        .timeout_connect(Some(patience))
        .timeout_send_request(Some(patience))
        .timeout_recv_response(Some(patience))
        .timeout_per_read(Some(limits.pause))
        .timeout_recv_body(Some(LONGEST_LIST));
    limited(lists, REDIRECTS).build()
}

fn limited(builder: ConfigBuilder<AgentScope>, redirects: u32) -> ConfigBuilder<AgentScope> {
    builder
        .proxy(None)
        .max_redirects(redirects)
        .max_redirects_will_error(true)
        .user_agent(AutoHeaderValue::None)
        .max_idle_connections(0)
        .max_response_header_size(LARGEST_HEADER)
}

/// A body that comes steadily, or breaks off: a slow server must not keep its place for long, and several servers must
/// not fill the memory.
struct Steady<R> {
    body: R,
    begun: Instant,
    octets: u64,
    /// Octets of all such bodies, and how many they may be.
    all: Arc<AtomicU64>,
    most: u64,
    /// It broke off because they were more.
    refused: bool,
}

impl<R: Read> Read for Steady<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.body.read(buffer)?;
        self.octets += read as u64;
        let before = self.all.fetch_add(read as u64, Ordering::Relaxed);
        if before + read as u64 > self.most {
            self.refused = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let seconds = self.begun.elapsed().as_secs();
        if read > 0 && seconds >= SLOW_START && self.octets < seconds * LEAST_RATE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(read)
    }
}

impl<R> Drop for Steady<R> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

fn check_status(response: &ureq::http::Response<ureq::Body>) -> Result<(), FetchError> {
    match response.status() {
        ureq::http::StatusCode::OK => Ok(()),
        other => Err(FetchError(format!("http status: {}", other.as_u16()))),
    }
}

fn body(
    mut response: ureq::http::Response<ureq::Body>,
    limit: usize,
) -> Result<Vec<u8>, FetchError> {
    check_status(&response)?;
    let body = response.body_mut().with_config().limit(limit as u64 + 1).read_to_vec()?;
    if body.len() > limit {
        return Err(FetchError(format!("the response is longer than {limit} octets")));
    }
    Ok(body)
}

/// How long a fetch may take. The peer waits for its answer meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the server of a list may send nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Most octets of all lists that are being read at a time: two of the longest.
const MOST_UNVERIFIED: u64 = 256 * 1024 * 1024;
/// How long the body of a list may take, and what it must come to: octets a second, after some seconds.
const LONGEST_LIST: Duration = Duration::from_secs(600);
const LEAST_RATE: u64 = 16 * 1024;
const SLOW_START: u64 = 10;
/// Redirections followed.
const REDIRECTS: u32 = 3;
/// Octets of a response's header.
const LARGEST_HEADER: usize = 16 * 1024;
/// Octets of an OCSP response: certificates of the responder with SLH-DSA signatures fit.
const LARGEST_ANSWER: usize = 256 * 1024;
/// Characters of an error that are shown.
const LONGEST_ERROR: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `Fetcher::steady`, give each body a count of its own; leave out `Steady::drop`.
    #[test]
    fn lists_that_are_being_read_share_one_limit() {
        let limits = ListLimits { unverified: 100, ..ListLimits::default() };
        let fetcher = Fetcher::with_limits(PATIENCE, limits);
        let mut first = fetcher.steady(&[0; 60][..]);
        assert_eq!(first.read(&mut [0; 60]).unwrap(), 60);
        let mut second = fetcher.clone().steady(&[0; 60][..]);
        assert_eq!(second.read(&mut [0; 40]).unwrap(), 40);
        assert!(!second.refused);
        assert!(second.read(&mut [0; 1]).is_err() && second.refused);
        drop((first, second));
        // What has been read gives its place back, and so does what broke off.
        assert_eq!(fetcher.steady(&[0; 100][..]).read(&mut [0; 100]).unwrap(), 100);
    }
}
