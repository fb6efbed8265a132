//! OCSP responses that a peer sends along in CERT payloads (RFC 4806), as one more source of what is known.
//!
//! They obey the rules of those that are fetched, count for the exchange that they came in, and nothing of
//! them is kept: what a peer sends takes no room from what this end has found out itself.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::ocsp::OcspAnswer;
use super::{Status, ocsp};
use crate::certificate::Certificate;

/// The responses of one peer. Nothing is known about them yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InBand<'a> {
    /// DER OCSPResponses.
    pub responses: &'a [&'a [u8]],
    /// How long ago a responder may have said that all is well; zero: until nextUpdate.
    pub max_age: Duration,
}

impl InBand<'_> {
    /// What they say about `certificate`. One signature is verified for each response about it, or a few if
    /// others than the issuer may have made it; of more responses than [`MOST`] the first are looked at.
    pub fn statuses(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        responders: &[Arc<Certificate>],
        now: SystemTime,
    ) -> Vec<Status> {
        let about = self.responses.iter().filter(|body| ocsp::is_about(body, certificate, issuer));
        let read = |body: &&[u8]| ocsp::read(body, certificate, issuer, responders, now);
        about.take(MOST).filter_map(|body| Some(self.status(&read(body).ok()?, now))).collect()
    }

    fn status(&self, answer: &OcspAnswer, now: SystemTime) -> Status {
        //= RFC 4806 §6
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

/// Responses about one certificate that are looked at.
const MOST: usize = 2;
