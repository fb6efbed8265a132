//! OCSP responses about this end's own certificates, to be sent to peers that ask for them (RFC 4806).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::fetch::FetchRequest;
use super::ocsp::OcspAnswer;
use crate::certificate::Certificate;
use crate::error::LoadError;
use crate::hash_and_url::sha1;

/// What responders last said about this end's own certificates, verified. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct OwnStatus(Arc<Mutex<HashMap<Name, Entry>>>);

/// The SHA-1 of a certificate of this end's own.
type Name = [u8; 20];

#[derive(Debug, Default)]
struct Entry {
    known: Option<Known>,
    /// Nothing of use was to be had, and is not to be asked for again before then.
    again: Option<SystemTime>,
    /// How many times in a row.
    failures: u32,
}

#[derive(Debug)]
struct Known {
    /// DER OCSPResponse.
    response: Arc<[u8]>,
    answer: OcspAnswer,
    /// From then on a newer one is fetched.
    renew: SystemTime,
    /// It was good for less than [`BRIEF`] when it came.
    brief: bool,
}

/// One of this end's certificates that a response is to be fetched about.
#[derive(Debug, Clone)]
pub struct StatusFetch {
    /// To be fetched one after the other, until what comes of one is
    /// [taken](crate::Answerer::deliver_status).
    pub requests: Vec<FetchRequest>,
    pub(crate) name: Name,
}

/// What is to be fetched before a signature, and beside it.
#[derive(Debug, Clone, Default)]
pub struct StatusFetches {
    /// Nothing that could be sent is here.
    pub lacking: Vec<StatusFetch>,
    /// What is here will do, but not for long.
    pub aging: Vec<StatusFetch>,
}

impl StatusFetches {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.lacking.is_empty() && self.aging.is_empty()
    }
}

/// How things stand with one certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing is to be done before then.
    No(SystemTime),
    /// There is a response, and it is time for a newer one.
    Aging,
    /// There is none.
    Lacking,
}

impl OwnStatus {
    /// The response about `certificate`, DER, if there is a current one.
    pub fn response(&self, certificate: &Certificate, now: SystemTime) -> Option<Arc<[u8]>> {
        let entries = self.entries();
        let known = entries.get(&sha1(certificate.der()))?.known.as_ref()?;
        known.is_current(now).then(|| Arc::clone(&known.response))
    }

    /// True if `fetch` is still worth the while: nobody else has fetched it or found nothing meanwhile.
    pub fn is_due(&self, fetch: &StatusFetch, now: SystemTime) -> bool {
        !matches!(self.due(&fetch.name, now), Due::No(_))
    }

    pub(crate) fn due(&self, name: &Name, now: SystemTime) -> Due {
        let entries = self.entries();
        let Some(entry) = entries.get(name) else { return Due::Lacking };
        let again = entry.again.filter(|again| now < *again);
        match (&entry.known, again) {
            (_, Some(again)) => Due::No(again),
            (Some(known), None) if !known.is_current(now) => Due::Lacking,
            (Some(known), None) if known.renew <= now => Due::Aging,
            (Some(known), None) => Due::No(known.renew),
            (None, None) => Due::Lacking,
        }
    }

    /// Takes the answer that `response` is; true if the certificate is revoked.
    pub(super) fn keep(
        &self,
        request: &FetchRequest,
        (response, answer): (&[u8], OcspAnswer),
        now: SystemTime,
    ) -> Result<bool, LoadError> {
        if response.len() > MAX_RESPONSE {
            return Err(LoadError::Unsupported("so long a response in IKE"));
        }
        let revoked = answer.is_revoked();
        let lasts = answer.valid_until().duration_since(now).unwrap_or_default();
        let renew = now + (lasts / 2).max(RENEW_AFTER);
        let brief = !revoked && lasts < BRIEF;
        let known = Known { response: response.into(), answer, renew, brief };
        let mut entries = self.entries();
        let entry = entries.entry(sha1(request.certificate.der())).or_default();
        let better = entry.known.as_ref().filter(|old| old.answer.outranks(&known.answer));
        if better.is_some() {
            return Err(LoadError::Stale);
        }
        *entry = Entry { known: Some(known), again: None, failures: 0 };
        Ok(revoked)
    }

    /// None of the addresses in `fetch` gave anything of use.
    pub fn failed(&self, fetch: &StatusFetch, now: SystemTime) {
        let mut entries = self.entries();
        let entry = entries.entry(fetch.name).or_default();
        let wait = RETRY_AFTER * 2u32.saturating_pow(entry.failures.min(DOUBLINGS));
        entry.failures = entry.failures.saturating_add(1);
        entry.again = Some(now + wait);
    }

    /// True if the same was fetched, or could not be had, before.
    pub fn knows(&self, fetch: &StatusFetch) -> bool {
        self.has(&fetch.name)
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.entries().contains_key(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// True if what is known of the certificate is good for so short a time that it is not worth the while to
    /// have it ready.
    pub(crate) fn is_brief(&self, name: &Name) -> bool {
        let entries = self.entries();
        let known = entries.get(name).and_then(|entry| entry.known.as_ref());
        known.is_some_and(|known| known.brief)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.entries().clear();
    }

    /// Forgets what is not about one of these.
    pub(crate) fn retain(&self, names: &[Name]) {
        self.entries().retain(|name, _| names.contains(name));
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// That a certificate is revoked is current for ever.
    fn is_current(&self, now: SystemTime) -> bool {
        self.answer.is_revoked() || now < self.answer.valid_until()
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

/// After nothing of use was had, nobody is asked again for so long, and twice as long each time after that.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// About an hour is the longest.
const DOUBLINGS: u32 = 6;
/// A response is good for that long at the least before there is to be a newer one, if it lasts.
const RENEW_AFTER: Duration = Duration::from_secs(15);
/// What lasts no longer is only fetched when it is asked for: that without nextUpdate, for one.
const BRIEF: Duration = Duration::from_secs(60);
/// Octets of the longest response that is sent: with certificate and signature of a responder by ML-DSA-87 it
/// has about 12,000.
const MAX_RESPONSE: usize = 32 * 1024;
/// Responders asked about one certificate.
const MAX_RESPONDERS: usize = 4;
