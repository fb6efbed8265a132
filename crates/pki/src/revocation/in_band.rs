//! OCSP responses that a peer sends in CERT payloads (RFC 4806), as another source of revocation information.
//!
//! They obey the same rules as fetched responses, and count only for the exchange that carried them. They are not
//! stored, so a peer cannot displace the information that this end has fetched.

use std::time::{Duration, SystemTime};

use super::ocsp::{OcspAnswer, Trusted};
use super::{Status, ocsp};
use crate::certificate::Certificate;

/// The OCSP responses of one peer, not yet verified.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InBand<'a> {
    /// DER OCSPResponses.
    pub responses: &'a [&'a [u8]],
    /// The age up to which a good status counts; zero: until nextUpdate.
    pub max_age: Duration,
}

impl InBand<'_> {
    /// The answers about `certificate` in the responses. One signature is verified for each response about it, or a
    /// few if another signer than the issuer is possible. Only the first [`MOST`] responses are examined.
    pub(super) fn answers(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        trusted: Trusted<'_>,
        now: SystemTime,
    ) -> Vec<OcspAnswer> {
        let about = self.responses.iter().filter(|body| ocsp::is_about(body, certificate, issuer));
        let read = |body: &&[u8]| ocsp::read(body, certificate, issuer, trusted, now);
        about.take(MOST).filter_map(|body| read(body).ok()).collect()
    }

    pub(super) fn status(&self, answer: &OcspAnswer, now: SystemTime) -> Status {
        //= https://www.rfc-editor.org/rfc/rfc4806#section-6
        //# Nodes SHOULD make the required freshness of an OCSP
        //# response configurable.
        match answer.status(now) {
            Status::Good if !self.max_age.is_zero() && answer.age(now) > self.max_age => {
                Status::Unknown
            }
            status => status,
        }
    }
}

/// Most responses about one certificate that are examined.
const MOST: usize = 2;
