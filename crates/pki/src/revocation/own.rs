//! OCSP responses about this end's own certificates, for peers that ask for them (RFC 4806).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::fetch::FetchRequest;
use super::ocsp::OcspAnswer;
use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::hash_and_url::sha1;

/// The last verified responses about this end's own certificates. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct OwnStatus(Arc<Mutex<HashMap<Name, Entry>>>);

/// The SHA-1 of one of this end's certificates.
type Name = [u8; 20];

#[derive(Debug, Default)]
struct Entry {
    known: Option<Known>,
    /// When it was asked for in vain, and the time before which it is not asked for again.
    failed: Option<Span>,
    /// Number of such failures in a row.
    failures: u32,
}

/// A time from a moment to another one. A clock that was in the future and is set back is before the first moment, and
/// then nothing waits for the second one.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: SystemTime,
    until: SystemTime,
}

impl Span {
    fn has(self, now: SystemTime) -> bool {
        self.from <= now && now < self.until
    }
}

#[derive(Debug)]
struct Known {
    /// DER OCSPResponse.
    response: Arc<[u8]>,
    answer: OcspAnswer,
    /// Time until which it is sent.
    until: SystemTime,
    /// When it was fetched, and the time from which a newer response is.
    fresh: Span,
    /// True if the response was valid for less than [`BRIEF`] when it arrived.
    brief: bool,
}

/// One of this end's certificates for which a response is to be fetched.
#[derive(Debug, Clone)]
pub struct StatusFetch {
    /// Requests to make one after the other, until the result of one is [taken](crate::Answerer::deliver_status).
    pub requests: Vec<FetchRequest>,
    pub(crate) name: Name,
}

/// Fetches that are needed before a signature, and fetches that may run beside it.
#[derive(Debug, Clone, Default)]
pub struct StatusFetches {
    /// No usable response is available.
    pub lacking: Vec<StatusFetch>,
    /// A usable response is available, but not for long.
    pub aging: Vec<StatusFetch>,
}

impl StatusFetches {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.lacking.is_empty() && self.aging.is_empty()
    }
}

/// The state of the response for one certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// No fetch is needed before then.
    No(SystemTime),
    /// There is a response, and a newer one is due.
    Aging,
    /// There is no response.
    Lacking,
}

impl OwnStatus {
    /// The response about `certificate`, DER, if there is a current one.
    pub fn response(&self, certificate: &Certificate, now: SystemTime) -> Option<Arc<[u8]>> {
        let entries = self.entries();
        let known = entries.get(&sha1(certificate.der()))?.known.as_ref()?;
        known.is_current(now).then(|| Arc::clone(&known.response))
    }

    /// True if `fetch` is still needed: nobody else has fetched the response, or failed to, meanwhile.
    pub fn is_due(&self, fetch: &StatusFetch, now: SystemTime) -> bool {
        !matches!(self.due(&fetch.name, now), Due::No(_))
    }

    pub(crate) fn due(&self, name: &Name, now: SystemTime) -> Due {
        let entries = self.entries();
        let Some(entry) = entries.get(name) else { return Due::Lacking };
        let failed = entry.failed.filter(|failed| failed.has(now));
        match (&entry.known, failed) {
            (_, Some(failed)) => Due::No(failed.until),
            (Some(known), None) if !known.is_current(now) => Due::Lacking,
            (Some(known), None) if known.fresh.has(now) => Due::No(known.fresh.until),
            (Some(_), None) => Due::Aging,
            (None, None) => Due::Lacking,
        }
    }

    /// Keeps the verified `response`; true if the certificate is revoked.
    pub(super) fn keep(
        &self,
        request: &FetchRequest,
        (response, answer): (&[u8], OcspAnswer),
        now: SystemTime,
    ) -> Result<bool, LoadError> {
        if response.len() > MAX_RESPONSE {
            return Err(LoadError::TooLong { what: "OCSP response for IKE", most: MAX_RESPONSE });
        }
        let revoked = answer.is_revoked();
        let until = answer.sent_until(now);
        let lasts = until.duration_since(now).unwrap_or_default();
        let fresh = Span { from: now, until: now + (lasts / 2).max(RENEW_AFTER) };
        let brief = !revoked && lasts < BRIEF;
        let known = Known { response: response.into(), answer, until, fresh, brief };
        let mut entries = self.entries();
        let entry = entries.entry(sha1(request.certificate.der())).or_default();
        let better = entry.known.as_ref().filter(|old| old.answer.outranks(&known.answer, now));
        if better.is_some() {
            return Err(LoadError::Stale);
        }
        *entry = Entry { known: Some(known), failed: None, failures: 0 };
        Ok(revoked)
    }

    /// Records that no URL in `fetch` gave a usable response.
    pub fn failed(&self, fetch: &StatusFetch, now: SystemTime) {
        let mut entries = self.entries();
        let entry = entries.entry(fetch.name).or_default();
        let wait = RETRY_AFTER * 2u32.saturating_pow(entry.failures.min(DOUBLINGS));
        entry.failures = entry.failures.saturating_add(1);
        entry.failed = Some(Span { from: now, until: now + wait });
    }

    /// True if the response was fetched, or could not be fetched, before.
    pub fn knows(&self, fetch: &StatusFetch) -> bool {
        self.has(&fetch.name)
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.entries().contains_key(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// True if responses about the certificate are valid for so short a time that fetching them ahead is of no
    /// use.
    pub(crate) fn is_brief(&self, name: &Name) -> bool {
        let entries = self.entries();
        let known = entries.get(name).and_then(|entry| entry.known.as_ref());
        known.is_some_and(|known| known.brief)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.entries().clear();
    }

    /// Forgets responses that are not about one of these certificates.
    pub(crate) fn retain(&self, names: &[Name]) {
        self.entries().retain(|name, _| names.contains(name));
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// A response that says revoked is current for ever.
    fn is_current(&self, now: SystemTime) -> bool {
        self.answer.is_revoked() || now < self.until
    }
}

impl StatusFetch {
    /// `urls` are those of the responders.
    pub(crate) fn new<'a>(
        urls: impl Iterator<Item = &'a str>,
        certificate: &Arc<Certificate>,
        issuer: &Arc<Certificate>,
    ) -> Self {
        let requests = urls.take(MAX_RESPONDERS);
        let requests = requests.map(|url| FetchRequest::ocsp(url, certificate, issuer)).collect();
        Self { requests, name: sha1(certificate.der()) }
    }
}

/// Time without requests after a failure. It doubles with each further failure.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// The longest time is about an hour.
const DOUBLINGS: u32 = 6;
/// Least age at which a response is renewed, if it is valid for longer.
const RENEW_AFTER: Duration = Duration::from_secs(15);
/// A response valid for no longer than this, such as one without nextUpdate, is fetched only when a peer asks.
const BRIEF: Duration = Duration::from_secs(60);
/// Most octets of a response that is sent. With certificate and signature of a responder by ML-DSA-87 it has about
/// 12,000.
const MAX_RESPONSE: usize = 32 * 1024;
/// Most responders asked about one certificate.
const MAX_RESPONDERS: usize = 4;
