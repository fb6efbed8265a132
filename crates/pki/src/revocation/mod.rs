//! Revocation of certificates: revocation lists (RFC 5280 §5) and OCSP responses (RFC 6960) that were loaded or
//! fetched, strongSwan's `revocation` policies, and the fetches that are needed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::certificate::Certificate;
use crate::error::{LoadError, PkiError};
use crate::path::Path;

mod authority;
mod crl;
mod fetch;
mod in_band;
mod ocsp;
mod own;

pub use authority::Authority;
pub use crl::Crl;
pub use fetch::{FetchKind, FetchRequest};
pub(crate) use in_band::InBand;
use ocsp::OcspAnswer;
pub(crate) use ocsp::{ENUMERATED, ID_PKIX_OCSP_BASIC, cert_id};
pub(crate) use own::Due;
pub use own::{OwnStatus, StatusFetch, StatusFetches};

/// `revocation`: the consequence if there is no current information about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RevocationPolicy {
    /// `relaxed`: accepted. Only a certificate that is known to be revoked is refused.
    #[default]
    Relaxed,
    /// `ifuri`: refused if the certificate names a URL of revocation information.
    IfUri,
    /// `strict`: refused.
    Strict,
}

impl RevocationPolicy {
    /// Parses the value of swanctl.conf.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "relaxed" => Self::Relaxed,
            "ifuri" => Self::IfUri,
            "strict" => Self::Strict,
            _ => return None,
        })
    }
}

/// The revocation status of one certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Not revoked, by current information.
    Good,
    /// Revoked.
    Revoked,
    /// No current information.
    Unknown,
}

/// A URL that gave no usable response.
#[derive(Debug, Clone)]
struct Failed {
    url: String,
    /// The certificate that the response should have been about; `None` if there was no response at all. A
    /// certificate that names a wrong URL must not block the URL for other certificates.
    about: Option<Arc<Certificate>>,
    at: SystemTime,
}

/// Revocation lists and OCSP responses. Their number is bounded: the oldest fetched ones make room for new ones.
#[derive(Debug, Default, Clone)]
pub struct RevocationStore {
    /// From files, not verified yet, because the CA may be added later. A list is used only if its signature is
    /// good.
    loaded: Vec<Arc<Crl>>,
    /// Fetched; the signature was verified on arrival.
    crls: VecDeque<Arc<Crl>>,
    /// Fetched; the signature was verified on arrival.
    answers: VecDeque<OcspAnswer>,
    /// URLs that gave no usable response.
    failed: VecDeque<Failed>,
    /// URLs that certificates do not name.
    authorities: Vec<Authority>,
    /// OCSP responders that are trusted for every CA.
    responders: Vec<Arc<Certificate>>,
}

impl RevocationStore {
    /// Adds a revocation list from a file, PEM or DER.
    ///
    /// # Errors
    /// If it is no supported list. Its signature is verified when it is used.
    pub fn add_crl(&mut self, octets: &[u8]) -> Result<(), LoadError> {
        let crl = Crl::load(octets)?;
        self.loaded.push(Arc::new(crl));
        Ok(())
    }

    /// Adds URLs for the certificates of a CA. They are asked after the URLs in the certificates.
    ///
    /// # Errors
    /// [`LoadError::Unsupported`] if one of them is not an `http` URL.
    pub fn add_authority(&mut self, authority: Authority) -> Result<(), LoadError> {
        authority.check()?;
        self.authorities.push(authority);
        Ok(())
    }

    /// Trusts an OCSP responder with this certificate for the certificates of any CA.
    ///
    /// # Errors
    /// [`LoadError::NotResponder`] if it is not for OCSP signing.
    pub fn add_responder(&mut self, responder: Arc<Certificate>) -> Result<(), LoadError> {
        if !responder.may_sign_ocsp() {
            return Err(LoadError::NotResponder);
        }
        if !self.responders.contains(&responder) {
            self.responders.push(responder);
        }
        Ok(())
    }

    pub(crate) fn trusted_responders(&self) -> &[Arc<Certificate>] {
        &self.responders
    }

    /// The URL base at which peers find `certificate`. `issuer` is its issuer, if known; it selects among several
    /// CAs with one name.
    pub(crate) fn cert_uri_base(
        &self,
        certificate: &Certificate,
        issuer: Option<&Certificate>,
    ) -> Option<&str> {
        let named = |authority: &&Authority| {
            authority.cert_uri_base.is_some() && authority.ca.subject() == certificate.issuer()
        };
        let mut named = self.authorities.iter().filter(named);
        let first = named.clone().next();
        let same = issuer.and_then(|issuer| named.find(|one| one.ca.spki() == issuer.spki()));
        same.or(first)?.cert_uri_base.as_deref()
    }

    /// Takes over the information that `other` has fetched, so that a new configuration need not ask again. URLs
    /// that failed may be asked again.
    pub fn inherit(&mut self, other: &Self) {
        self.crls.clone_from(&other.crls);
        self.answers.clone_from(&other.answers);
    }

    /// Forgets everything that was fetched.
    pub fn purge(&mut self) {
        self.crls.clear();
        self.answers.clear();
        self.failed.clear();
    }

    /// Forgets the fetched lists, or the fetched OCSP responses. Both may be fetched again at once.
    pub fn flush(&mut self, lists: bool, responses: bool) {
        if lists {
            self.crls.clear();
        }
        if responses {
            self.answers.clear();
        }
        if lists || responses {
            self.failed.clear();
        }
    }

    /// All revocation lists, from files and fetched.
    pub fn crls(&self) -> impl Iterator<Item = &Arc<Crl>> {
        self.loaded.iter().chain(&self.crls)
    }

    /// Takes the result of a fetch: the body of the response, or `None` if there was none. A body counts as none,
    /// and is not kept, if it is not signed by its CA, is outdated, or does not cover the certificate.
    ///
    /// # Errors
    /// Says why the body is of no use.
    pub fn deliver(
        &mut self,
        request: &FetchRequest,
        body: Option<&[u8]>,
        now: SystemTime,
    ) -> Result<(), LoadError> {
        let taken = match body {
            None => Err(LoadError::Nothing("response")),
            Some(body) if body.len() > MAX_BODY => {
                Err(LoadError::Unsupported("so long a response"))
            }
            Some(body) => self.take(request, body, now),
        };
        if taken.is_err() {
            let about = body.map(|_| Arc::clone(&request.certificate));
            self.failed.retain(|old| old.url != request.url || old.about != about);
            let failed = Failed { url: request.url.clone(), about, at: now };
            push_bounded(&mut self.failed, failed, MAX_FAILED);
        }
        taken
    }

    fn take(
        &mut self,
        request: &FetchRequest,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), LoadError> {
        match &request.kind {
            FetchKind::Crl => {
                let crl = Crl::fetched(body, &request.issuer)?;
                if !crl.is_about(&request.certificate) {
                    return Err(LoadError::Irrelevant);
                }
                if !crl.is_current(now) {
                    return Err(LoadError::Stale);
                }
                self.crls.retain(|old| !old.is_replaced_by(&crl));
                push_bounded(&mut self.crls, Arc::new(crl), MAX_CRLS);
            }
            FetchKind::Ocsp { .. } => {
                let answer = self.read(request, body, now)?;
                if self.answers.iter().any(|o| o.is_about_same(&answer) && o.outranks(&answer)) {
                    return Err(LoadError::Stale);
                }
                self.answers.retain(|old| !old.is_about_same(&answer));
                push_bounded(&mut self.answers, answer, MAX_ANSWERS);
            }
        }
        Ok(())
    }

    /// Keeps in `own` a responder's answer about a certificate of this end; true if the certificate is revoked.
    pub(crate) fn deliver_own(
        &self,
        own: &OwnStatus,
        request: &FetchRequest,
        body: &[u8],
        now: SystemTime,
    ) -> Result<bool, LoadError> {
        own.keep(request, (body, self.read(request, body, now)?), now)
    }

    fn read(
        &self,
        request: &FetchRequest,
        body: &[u8],
        now: SystemTime,
    ) -> Result<OcspAnswer, LoadError> {
        ocsp::read(body, &request.certificate, &request.issuer, &self.responders, now)
    }

    /// Checks every certificate of a validated `path`, also by the `in_band` responses. Returns the fetches that
    /// are still needed.
    ///
    /// # Errors
    /// [`PkiError::Revoked`], or [`PkiError::RevocationUnknown`] if `policy` requires it and there is no URL left
    /// to ask.
    pub(crate) fn check(
        &self,
        path: &Path,
        policy: RevocationPolicy,
        in_band: InBand<'_>,
        now: SystemTime,
    ) -> Result<Vec<FetchRequest>, PkiError> {
        let mut pending = Vec::new();
        let mut unknown = None;
        for (certificate, issuer) in path.links() {
            match self.status(certificate, issuer, in_band, now) {
                Status::Good => {}
                Status::Revoked => {
                    return Err(PkiError::Revoked { subject: certificate.subject_text() });
                }
                Status::Unknown => match self.next_fetch(certificate, issuer, now) {
                    Some(request) => pending.push(request),
                    None if self.refuses(policy, certificate, issuer) => {
                        unknown = unknown.or_else(|| Some(certificate.subject_text()));
                    }
                    None => {}
                },
            }
        }
        match unknown {
            Some(subject) => Err(PkiError::RevocationUnknown { subject }),
            None => Ok(pending),
        }
    }

    /// The status by all sources: one source that says revoked decides. A list that says so counts at any age,
    /// because only a newer list can end a revocation.
    //= https://www.rfc-editor.org/rfc/rfc4945#section-5.2.1
    //# when a
    //# certificate is reported as revoked by one trusted source, the
    //# certificate MUST be considered revoked.
    fn status(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        in_band: InBand<'_>,
        now: SystemTime,
    ) -> Status {
        let answers = self.answers.iter().filter(|answer| answer.is_about(certificate, issuer));
        let mut known = vec![self.listed(certificate, issuer, now)];
        known.extend(answers.map(|answer| answer.status(now)));
        known.extend(in_band.statuses(certificate, issuer, &self.responders, now));
        if known.contains(&Status::Revoked) {
            return Status::Revoked;
        }
        if known.contains(&Status::Good) { Status::Good } else { Status::Unknown }
    }

    /// The status by the newest list.
    fn listed(&self, certificate: &Certificate, issuer: &Certificate, now: SystemTime) -> Status {
        let mut lists: Vec<&Arc<Crl>> = self.loaded.iter().chain(&self.crls).collect();
        lists.retain(|crl| !crl.is_from_future(now) && crl.is_about(certificate));
        lists.sort_by_key(|crl| std::cmp::Reverse(crl.this_update()));
        let newest = lists.into_iter().find(|crl| crl.is_signed_by(issuer));
        match newest {
            Some(crl) if crl.revokes(certificate) => Status::Revoked,
            Some(crl) if crl.is_current(now) => Status::Good,
            _ => Status::Unknown,
        }
    }

    /// The OCSP responders for `certificate`: those that it names, then those of the CA's authority.
    pub(crate) fn responders<'a>(
        &'a self,
        certificate: &'a Certificate,
        issuer: &'a Certificate,
    ) -> impl Iterator<Item = &'a str> {
        let known = self.authorities.iter().filter(|authority| authority.is_of(issuer));
        let known = known.flat_map(|authority| &authority.ocsp_uris);
        certificate.ocsp_urls().iter().chain(known).map(String::as_str)
    }

    /// False if there are none for `certificate`, whatever its issuer. This costs no signature.
    pub(crate) fn may_have_responders(&self, certificate: &Certificate) -> bool {
        !certificate.ocsp_urls().is_empty()
            || self.authorities.iter().any(|authority| !authority.ocsp_uris.is_empty())
    }

    /// The next URL to ask about `certificate`: OCSP responders first, and none that failed lately.
    fn next_fetch(
        &self,
        certificate: &Arc<Certificate>,
        issuer: &Arc<Certificate>,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let untried = |url: &&str| !self.failed_lately(url, certificate, now);
        if let Some(url) = self.responders(certificate, issuer).find(untried) {
            return Some(FetchRequest::ocsp(url, certificate, issuer));
        }
        let named = certificate.crl_urls();
        let known = self.authorities.iter().filter(|authority| authority.is_of(issuer));
        let crls = known.flat_map(|authority| &authority.crl_uris);
        let url = named.iter().chain(crls).map(String::as_str).find(untried)?;
        Some(FetchRequest::crl(url.to_owned(), certificate, issuer))
    }

    fn refuses(
        &self,
        policy: RevocationPolicy,
        certificate: &Certificate,
        issuer: &Certificate,
    ) -> bool {
        match policy {
            RevocationPolicy::Strict => true,
            RevocationPolicy::IfUri => {
                !certificate.ocsp_urls().is_empty()
                    || !certificate.crl_points().is_empty()
                    || self.authorities.iter().any(|authority| authority.is_of(issuer))
            }
            RevocationPolicy::Relaxed => false,
        }
    }

    fn failed_lately(&self, url: &str, about: &Arc<Certificate>, now: SystemTime) -> bool {
        self.failed.iter().any(|failed| {
            failed.url == url
                && failed.about.as_ref().is_none_or(|other| other == about)
                && now.duration_since(failed.at).is_ok_and(|since| since < RETRY_AFTER)
        })
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    while queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Most difference between clocks.
const SKEW: Duration = Duration::from_secs(5 * 60);
/// A URL that failed is asked again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(5 * 60);
/// Most octets of a response that is examined.
pub const MAX_BODY: usize = 16 * 1024 * 1024;
const MAX_CRLS: usize = 32;
const MAX_ANSWERS: usize = 1024;
const MAX_FAILED: usize = 256;
