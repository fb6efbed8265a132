//! Revocation of certificates: revocation lists (RFC 5280 §5) and OCSP responses (RFC 6960) that were loaded or
//! fetched, strongSwan's `revocation` policies, and the fetches that are needed.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};

use crate::certificate::Certificate;
use crate::error::{LoadError, PkiError};
use crate::path::{Path, Signer};
use crate::signed::{Schemes, Signed};
use crate::text::Date;

mod authority;
mod crl;
mod fetch;
mod in_band;
mod lists;
mod ocsp;
mod own;
mod responses;

pub use authority::Authority;
pub(crate) use crl::SerialKey;
pub use crl::{Crl, MAX_LIST};
pub use fetch::{FetchKind, FetchRequest};
pub(crate) use in_band::InBand;
pub use lists::Due as ListsDue;
use lists::{Asked, Lists};
pub(crate) use lists::{Counting, Revoker};
pub(crate) use ocsp::{ENUMERATED, ID_PKIX_OCSP_BASIC, cert_id};
use ocsp::{OcspAnswer, Trusted};
pub(crate) use own::Due;
pub use own::{OwnStatus, StatusFetch, StatusFetches};
use responses::Responses;

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

/// Whether a URL may be asked now.
pub(crate) type MayAsk<'a> = &'a dyn Fn(&str) -> bool;

/// A path without a revoked certificate.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The fetches that are still needed.
    pub pending: Vec<FetchRequest>,
    /// Certificates whose status is not known, although URLs were asked.
    pub unchecked: Vec<Arc<Certificate>>,
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
    lists: Lists,
    responses: Responses,
    /// URLs that gave no usable response.
    failed: VecDeque<Failed>,
    /// URLs that certificates do not name.
    authorities: Vec<Authority>,
    /// OCSP responders that are trusted for every CA.
    responders: Vec<Arc<Certificate>>,
    /// Signature schemes of the program.
    schemes: Schemes,
}

impl RevocationStore {
    /// An empty store, for lists and answers that are signed by a built-in scheme or one of these.
    pub(crate) fn with(schemes: Schemes) -> Self {
        Self { schemes, ..Self::default() }
    }

    /// Adds a revocation list from a file, PEM or DER.
    ///
    /// # Errors
    /// If it is no supported list. Its signature is verified when it is used.
    pub fn add_crl(&mut self, octets: &[u8]) -> Result<(), LoadError> {
        self.load_crl(Arc::new(self.read_crl(octets)?));
        Ok(())
    }

    /// As [`Crl::load`]. The list may be signed by any scheme that this store knows.
    ///
    /// # Errors
    /// If it is no supported list.
    pub fn read_crl(&self, octets: &[u8]) -> Result<Crl, LoadError> {
        Crl::load_by(self.schemes.clone(), octets)
    }

    /// As [`Crl::from_stream`]. The list may be signed by any scheme that this store knows.
    ///
    /// # Errors
    /// If it is no supported list, or the stream breaks off.
    pub fn read_crl_stream(&self, from: impl Read) -> Result<Crl, LoadError> {
        Crl::stream_by(self.schemes.clone(), from)
    }

    /// Adds a revocation list from a file. Its signature is verified when it is used.
    pub fn load_crl(&mut self, crl: Arc<Crl>) {
        self.lists.load(crl);
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
            authority.cert_uri_base.is_some() && certificate.names_as_issuer(&authority.ca)
        };
        let mut named = self.authorities.iter().filter(named);
        let first = named.clone().next();
        let same = issuer.and_then(|issuer| named.find(|one| one.ca.spki() == issuer.spki()));
        same.or(first)?.cert_uri_base.as_deref()
    }

    /// Takes over the information that `other` has fetched, so that a new configuration need not ask again. URLs
    /// that failed may be asked again.
    pub fn inherit(&mut self, other: &Self) {
        self.lists.inherit(&other.lists);
        self.responses.clone_from(&other.responses);
    }

    /// Forgets everything that was fetched.
    pub fn purge(&mut self) {
        self.lists.clear_fetched();
        self.responses.clear();
        self.failed.clear();
    }

    /// Forgets the fetched lists, or the fetched OCSP responses. Both may be fetched again at once.
    pub fn flush(&mut self, lists: bool, responses: bool) {
        if lists {
            self.lists.clear_fetched();
        }
        if responses {
            self.responses.clear();
        }
        if lists || responses {
            self.failed.clear();
        }
    }

    /// All revocation lists, from files and fetched.
    pub fn crls(&self) -> impl Iterator<Item = &Arc<Crl>> {
        self.lists.all()
    }

    /// Takes the result of a fetch: the body of the response, or `None` if there was none. A list by the certificate's
    /// CA is kept even if it may not say that the certificate is good, for what it revokes.
    ///
    /// # Errors
    /// Says why the body cannot tell that the certificate is good. Its URL counts as failed.
    pub fn deliver(
        &mut self,
        request: &FetchRequest,
        body: Option<&[u8]>,
        now: SystemTime,
    ) -> Result<(), LoadError> {
        let taken = match (body, &request.kind) {
            (None, _) => Err(LoadError::Nothing("response")),
            (Some(body), _) if body.len() > MAX_BODY => {
                Err(LoadError::TooLong { what: "response", most: MAX_BODY })
            }
            (Some(body), FetchKind::Crl) => self
                .read_crl(body)
                .and_then(|crl| self.lists.deliver(crl, &request.url, request.asked(now))),
            (Some(body), FetchKind::Ocsp { .. }) => self.take_answer(request, body, now),
        };
        self.judge_url(request, body.is_some(), taken, now)
    }

    /// Takes a list that was fetched, or why there is none, as [`deliver`](Self::deliver) does.
    ///
    /// # Errors
    /// Those of [`deliver`](Self::deliver).
    pub fn deliver_list(
        &mut self,
        request: &FetchRequest,
        list: Result<Crl, LoadError>,
        now: SystemTime,
    ) -> Result<(), LoadError> {
        let deliver = |crl| self.lists.deliver(crl, &request.url, request.asked(now));
        let taken = list.and_then(deliver);
        self.judge_url(request, true, taken, now)
    }

    /// Remembers a URL that gave nothing of use.
    fn judge_url(
        &mut self,
        request: &FetchRequest,
        answered: bool,
        taken: Result<(), LoadError>,
        now: SystemTime,
    ) -> Result<(), LoadError> {
        if let Err(why) = taken {
            // An outdated list is so whoever asks.
            let outdated = matches!(why, LoadError::Stale | LoadError::Older);
            let for_all = !answered || outdated && request.kind == FetchKind::Crl;
            let about = (!for_all).then(|| Arc::clone(&request.certificate));
            self.failed.retain(|old| old.url != request.url || old.about != about);
            let failed = Failed { url: request.url.clone(), about, at: now };
            push_bounded(&mut self.failed, failed, MAX_FAILED);
        }
        taken
    }

    fn take_answer(
        &mut self,
        request: &FetchRequest,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), LoadError> {
        let answer = self.read(request, body, now)?;
        if self.is_by_revoked(&answer, &request.issuer, now) {
            return Err(LoadError::RevokedResponder);
        }
        self.responses.take(answer, now)
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
        ocsp::read(body, &request.certificate, &request.issuer, self.trusted(), now)
    }

    fn trusted(&self) -> Trusted<'_> {
        Trusted { responders: &self.responders, schemes: &self.schemes }
    }

    /// Checks every certificate of a validated `path`, also by the `in_band` responses. `signers` are those who may
    /// sign lists about a certificate, besides its issuer.
    ///
    /// # Errors
    /// [`PkiError::Revoked`], or [`PkiError::RevocationUnknown`] if `policy` requires it and there is no URL left
    /// to ask.
    pub(crate) fn check(
        &self,
        path: &Path,
        signers: &dyn Fn(&Certificate, &Arc<Certificate>) -> Vec<Signer>,
        (policy, in_band): (RevocationPolicy, InBand<'_>),
        now: SystemTime,
    ) -> Result<Checked, PkiError> {
        let mut pending = Vec::new();
        let mut unchecked = Vec::new();
        let mut unknown = None;
        for (certificate, issuer) in path.links() {
            let own = Signer::of(Arc::clone(issuer));
            let signers: Vec<Signer> =
                [own].into_iter().chain(signers(certificate, issuer)).collect();
            let urls = self.list_urls(certificate, issuer);
            let asked = Asked { certificate, signers: &signers, urls: &urls, now };
            let asks = !urls.is_empty() || self.responders(certificate, issuer).next().is_some();
            match self.status(issuer, asked, in_band) {
                Status::Good => {}
                Status::Revoked => {
                    let newer = self.newer_list(issuer, asked, in_band);
                    let links = (certificate, issuer);
                    match newer.and_then(|()| self.next_list(links, &signers, urls, now)) {
                        Some(request) => pending.push(request),
                        None => {
                            return Err(PkiError::Revoked { subject: certificate.subject_text() });
                        }
                    }
                }
                Status::Unknown => {
                    match self.next_fetch((certificate, issuer), &signers, urls, now) {
                        Some(request) => pending.push(request),
                        None if self.refuses(policy, certificate, issuer) => {
                            unknown = unknown.or_else(|| Some(certificate.subject_text()));
                        }
                        None if asks => unchecked.push(Arc::clone(certificate)),
                        None => {}
                    }
                }
            }
        }
        match unknown {
            Some(subject) => Err(PkiError::RevocationUnknown { subject }),
            None => Ok(Checked { pending, unchecked }),
        }
    }

    /// The status by all sources: one source that says revoked decides.
    //= https://www.rfc-editor.org/rfc/rfc4945#section-5.2.1
    //# when a
    //# certificate is reported as revoked by one trusted source, the
    //# certificate MUST be considered revoked.
    fn status(&self, issuer: &Certificate, asked: Asked<'_>, in_band: InBand<'_>) -> Status {
        let (certificate, now) = (asked.certificate, asked.now);
        let mut known = vec![self.lists.status(asked)];
        known.extend(self.answered(certificate, issuer, in_band, now));
        if known.contains(&Status::Revoked) {
            return Status::Revoked;
        }
        if known.contains(&Status::Good) { Status::Good } else { Status::Unknown }
    }

    /// The statuses by OCSP responses, fetched and `in_band`: of one responder's answers the newest counts.
    fn answered(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        in_band: InBand<'_>,
        now: SystemTime,
    ) -> Vec<Status> {
        let fetched = self.responses.about(certificate, issuer);
        let sent = in_band.answers(certificate, issuer, self.trusted(), now);
        let all: Vec<(&OcspAnswer, bool)> = fetched
            .map(|answer| (answer, false))
            .chain(sent.iter().map(|answer| (answer, true)))
            .filter(|(answer, _)| !self.is_by_revoked(answer, issuer, now))
            .collect();
        let newest = all.iter().filter(|(answer, _)| {
            !all.iter().any(|(one, _)| one.is_about_same(answer) && one.outranks(answer, now))
        });
        newest
            .map(|(answer, sent)| match sent {
                true => in_band.status(answer, now),
                false => answer.status(now),
            })
            .collect()
    }

    /// True if a list at hand revokes the delegate of `issuer` who signed the response.
    fn is_by_revoked(&self, answer: &OcspAnswer, issuer: &Certificate, now: SystemTime) -> bool {
        let serial = answer.delegate();
        serial.is_some_and(|serial| self.lists.revoked_by_key(issuer, serial, now).is_some())
    }

    /// `Some` if nothing but lists past their nextUpdate call the certificate revoked: a newer list may tell that a
    /// hold has ended.
    fn newer_list(
        &self,
        issuer: &Certificate,
        asked: Asked<'_>,
        in_band: InBand<'_>,
    ) -> Option<()> {
        let answered = self.answered(asked.certificate, issuer, in_band, asked.now);
        let by_answer = answered.contains(&Status::Revoked);
        (!by_answer && self.lists.is_outdated(asked)).then_some(())
    }

    /// True if the status of the certificates of `path` is known as far as `policy` asks, by the keys that signed them and
    /// by the `others` who may sign lists about them.
    ///
    /// # Errors
    /// [`PkiError::Revoked`].
    pub(crate) fn standing(
        &self,
        path: &Path,
        others: &dyn Fn(&Certificate, &Certificate) -> Vec<Signer>,
        policy: RevocationPolicy,
        now: SystemTime,
    ) -> Result<bool, PkiError> {
        let mut known = true;
        for (certificate, issuer) in path.links() {
            let own = Signer::of(Arc::clone(issuer));
            let signers: Vec<Signer> =
                [own].into_iter().chain(others(certificate, issuer)).collect();
            let urls = self.list_urls(certificate, issuer);
            let asked = Asked { certificate, signers: &signers, urls: &urls, now };
            match self.status(issuer, asked, InBand::default()) {
                Status::Good => {}
                Status::Revoked => {
                    return Err(PkiError::Revoked { subject: certificate.subject_text() });
                }
                Status::Unknown => known &= !self.refuses(policy, certificate, issuer),
            }
        }
        Ok(known)
    }

    /// Checks a certificate that is trusted by itself by the lists at hand. `known` are the CAs of which this end has a
    /// certificate.
    ///
    /// # Errors
    /// [`PkiError::Revoked`], or [`PkiError::ListUnverified`] if no known CA signed the list that has the certificate.
    pub(crate) fn check_pinned<'a>(
        &self,
        certificate: &Certificate,
        known: impl Iterator<Item = &'a Arc<Certificate>> + Clone,
        now: SystemTime,
    ) -> Result<(), PkiError> {
        let signed = Signed::parse(certificate.der());
        for list in self.lists.naming(certificate, now) {
            let mut signers = known.clone().filter(|ca| list.is_signed_by(ca)).peekable();
            let (subject, issuer) = (certificate.subject_text(), list.issuer_text());
            if signers.peek().is_none() {
                return Err(PkiError::ListUnverified { subject, issuer });
            }
            if signers.any(|ca| signed.is_some_and(|signed| signed.is_by(ca.spki(), &self.schemes)))
            {
                return Err(PkiError::Revoked { subject });
            }
        }
        Ok(())
    }

    /// The lists that count for certificates like `example`, of which `issuer` is the issuer and `signers` may sign
    /// lists.
    pub(crate) fn counting(
        &self,
        (example, issuer): (&Certificate, &Certificate),
        signers: &[Signer],
        now: SystemTime,
    ) -> Vec<Counting> {
        let urls = self.list_urls(example, issuer);
        self.lists.counting(Asked { certificate: example, signers, urls: &urls, now })
    }

    /// Says by which of the `counting` lists, or by which response, a certificate with this serial number is revoked.
    /// In all other ways it is like `example`, of which `issuer` is the issuer.
    pub(crate) fn revoked_as(
        &self,
        (example, issuer): (&Certificate, &Certificate),
        serial: SerialKey,
        counting: &[Counting],
        now: SystemTime,
    ) -> Option<Revoker> {
        let list = Lists::revoked_by(counting, (example.issuer(), serial), now);
        match list {
            Some(current @ Revoker { outdated: false, .. }) => Some(current),
            list => self.revoker(issuer, serial, now).or(list),
        }
    }

    fn revoker(&self, issuer: &Certificate, serial: SerialKey, now: SystemTime) -> Option<Revoker> {
        let by = self.answered_revoked(issuer, serial, now)?;
        Some(Revoker { by, outdated: false })
    }

    /// How often a list was taken that was not at hand.
    pub(crate) fn lists_taken(&self) -> u64 {
        self.lists.taken()
    }

    /// The same for a certificate of which nothing else is known, by lists and responses of its issuer `ca` alone.
    pub(crate) fn revoked_under(
        &self,
        ca: &Certificate,
        serial: SerialKey,
        now: SystemTime,
    ) -> Option<Revoker> {
        let list = self.lists.revoked_by_key(ca, serial, now);
        let list = list.map(|by| Revoker { by, outdated: false });
        list.or_else(|| self.revoker(ca, serial, now))
    }

    /// Of each responder's answers the newest counts.
    fn answered_revoked(
        &self,
        issuer: &Certificate,
        serial: SerialKey,
        now: SystemTime,
    ) -> Option<String> {
        let mut newest = self.responses.newest(issuer, serial, now);
        let revoking = newest
            .find(|answer| answer.is_revoked() && !self.is_by_revoked(answer, issuer, now))?;
        Some(format!("an OCSP response of {}", Date(revoking.this_update())))
    }

    /// When responders are due to be asked again about the certificate of `issuer` with this serial number, which in
    /// other ways is like `example`: see [`Answerer::status_due`](crate::Answerer::status_due).
    pub(crate) fn status_due(
        &self,
        (example, issuer): (&Certificate, &Certificate),
        serial: SerialKey,
        has_list: &dyn Fn() -> bool,
        now: SystemTime,
    ) -> Option<ListsDue> {
        self.responders(example, issuer).next()?;
        let at_once = || (!has_list()).then(ListsDue::at_once);
        let counts = |answer: &OcspAnswer| !self.is_by_revoked(answer, issuer, now);
        self.responses.due((issuer, serial), &counts, now).or_else(at_once)
    }

    /// The fetch of a response about `certificate`, from a responder for certificates like `example` that has not
    /// failed lately and that is `free`.
    pub(crate) fn status_again(
        &self,
        example: &Certificate,
        (certificate, issuer): (&Arc<Certificate>, &Arc<Certificate>),
        free: MayAsk<'_>,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let untried = |url: &&str| free(url) && !self.failed_lately(url, certificate, now);
        let url = self.responders(example, issuer).find(untried)?;
        Some(FetchRequest::ocsp(url, certificate, issuer))
    }

    /// When fetched lists about `example` are due again; see [`Answerer::list_due`](crate::Answerer::list_due).
    pub(crate) fn list_due(
        &self,
        example: &Certificate,
        issuer: &Certificate,
        signers: &[Signer],
        now: SystemTime,
    ) -> Option<ListsDue> {
        let urls = self.list_urls(example, issuer);
        self.lists.due(Asked { certificate: example, signers, urls: &urls, now })
    }

    /// The fetch of a list about `example`, from a URL that has not failed lately and that is `free`. Those in `first`
    /// are taken before the others.
    pub(crate) fn list_again(
        &self,
        (example, issuer): (&Arc<Certificate>, &Arc<Certificate>),
        signers: &[Signer],
        (first, free): (&[String], MayAsk<'_>),
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let urls = self.list_urls(example, issuer);
        let mut untried: Vec<&String> =
            urls.iter().filter(|url| free(url) && !self.failed_lately(url, example, now)).collect();
        untried.sort_by_key(|url| !first.contains(url));
        let url = String::clone(untried.first()?);
        Some(FetchRequest::crl(url, (example, issuer), signers, urls))
    }

    /// True if a fetched response revokes the certificate that `fetch` is about.
    pub(crate) fn is_revoked_by_response(&self, fetch: &FetchRequest) -> bool {
        self.responses.about(&fetch.certificate, &fetch.issuer).any(OcspAnswer::is_revoked)
    }

    /// True if there is neither a list nor a response.
    pub(crate) fn is_empty(&self) -> bool {
        self.responses.is_empty() && self.lists.all().next().is_none()
    }

    /// The URLs of lists about `certificate`: those that it names, then those of the CA's authority.
    fn list_urls(&self, certificate: &Certificate, issuer: &Certificate) -> Vec<String> {
        let known = self.authorities.iter().filter(|authority| authority.is_of(issuer));
        let known = known.flat_map(|authority| &authority.crl_uris);
        list_urls(certificate).into_iter().chain(known.cloned()).collect()
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
        (certificate, issuer): (&Arc<Certificate>, &Arc<Certificate>),
        signers: &[Signer],
        urls: Vec<String>,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let untried = |url: &&str| !self.failed_lately(url, certificate, now);
        match self.responders(certificate, issuer).find(untried) {
            Some(url) => Some(FetchRequest::ocsp(url, certificate, issuer)),
            None => self.next_list((certificate, issuer), signers, urls, now),
        }
    }

    /// The next list to fetch, from none of the `urls` that failed lately.
    fn next_list(
        &self,
        (certificate, issuer): (&Arc<Certificate>, &Arc<Certificate>),
        signers: &[Signer],
        urls: Vec<String>,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let untried = |url: &&str| !self.failed_lately(url, certificate, now);
        let url = urls.iter().map(String::as_str).find(untried)?.to_owned();
        Some(FetchRequest::crl(url, (certificate, issuer), signers, urls))
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

/// `http` URLs of the distribution points of `certificate`: also of those for some reasons, or of another issuer.
fn list_urls(certificate: &Certificate) -> Vec<String> {
    let names =
        certificate.crl_points().iter().filter_map(|point| match &point.distribution_point {
            Some(DistributionPointName::FullName(names)) => Some(names),
            _ => None,
        });
    let urls = names.flatten().filter_map(|name| match name {
        GeneralName::UniformResourceIdentifier(url) => Some(url.as_str().to_owned()),
        _ => None,
    });
    urls.filter(|url| Authority::is_usable(url)).take(MAX_URLS).collect()
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
pub const MAX_BODY: usize = MAX_LIST;
/// Most URLs of lists taken from a certificate.
const MAX_URLS: usize = 8;
const MAX_FAILED: usize = 256;
