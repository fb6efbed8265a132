//! Fetches over HTTP: revocation information, as certificates and `authorities` name it, and certificates by hash
//! and URL (`lookup`).
//!
//! Fetched data are signed, and are requested only once a peer has shown a certificate of a trusted CA. So HTTP
//! without TLS suffices. No proxy is used, and no redirection is followed to another scheme.

use std::fmt;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use ::pki::{Crl, FetchKind, FetchRequest, LoadError, MAX_LIST};
use ureq::config::{AutoHeaderValue, Config, ConfigBuilder};
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::DefaultConnector;

/// Fetches by HTTP, with limits of time and size.
#[derive(Debug, Clone)]
pub struct Fetcher {
    agent: ureq::Agent,
    /// For lists, whose bodies may be long.
    lists: ureq::Agent,
    patience: Duration,
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
        let lists = ureq::Agent::config_builder()
            .timeout_resolve(Some(patience))
            .timeout_connect(Some(patience))
            .timeout_send_request(Some(patience))
            .timeout_recv_response(Some(patience))
            .timeout_per_read(Some(LONGEST_PAUSE))
            .timeout_recv_body(Some(LONGEST_LIST));
        let lists = limited(lists, REDIRECTS).build().new_agent();
        Self { agent: config(patience, REDIRECTS).new_agent(), lists, patience }
    }

    /// The same for URLs that a stranger names: it connects to addresses of `resolver` alone, and follows no
    /// redirection.
    pub(crate) fn guarded(patience: Duration, resolver: impl Resolver) -> Self {
        let config = config(patience, 0);
        let agent = ureq::Agent::with_parts(config, DefaultConnector::default(), resolver);
        Self { lists: agent.clone(), agent, patience }
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

    /// The revocation list that `request` asks for, read as it comes. It may take minutes, if it makes progress.
    /// Blocks.
    ///
    /// # Errors
    /// If there is no response in time, or one with another status than 200; inside, if the body is no list.
    pub fn list(&self, request: &FetchRequest) -> Result<Result<Crl, LoadError>, FetchError> {
        let mut response = self.lists.get(&request.url).call()?;
        check_status(&response)?;
        let limit = MAX_LIST as u64 + 1;
        let body = response.body_mut().with_config().limit(limit).reader();
        Ok(Crl::from_stream(Steady { body, begun: Instant::now(), octets: 0 }))
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

fn limited(builder: ConfigBuilder<AgentScope>, redirects: u32) -> ConfigBuilder<AgentScope> {
    builder
        .proxy(None)
        .max_redirects(redirects)
        .max_redirects_will_error(true)
        .user_agent(AutoHeaderValue::None)
        .max_idle_connections(0)
        .max_response_header_size(LARGEST_HEADER)
}

/// A body that comes steadily, or breaks off: a slow server must not keep its place for long.
struct Steady<R> {
    body: R,
    begun: Instant,
    octets: u64,
}

impl<R: Read> Read for Steady<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.body.read(buffer)?;
        self.octets += read as u64;
        let seconds = self.begun.elapsed().as_secs();
        if read > 0 && seconds >= SLOW_START && self.octets < seconds * LEAST_RATE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(read)
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
