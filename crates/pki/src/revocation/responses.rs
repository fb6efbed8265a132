//! The OCSP responses that this end has fetched, and what they say.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use super::lists::Due;
use super::ocsp::OcspAnswer;
use super::{SerialKey, push_bounded};
use crate::certificate::Certificate;
use crate::error::LoadError;

/// Fetched responses; the signature was verified on arrival. Their number is bounded.
#[derive(Debug, Default, Clone)]
pub(super) struct Responses(VecDeque<OcspAnswer>);

impl Responses {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All about `certificate`.
    pub fn about<'a>(
        &'a self,
        certificate: &'a Certificate,
        issuer: &'a Certificate,
    ) -> impl Iterator<Item = &'a OcspAnswer> {
        self.0.iter().filter(|answer| answer.is_about(certificate, issuer))
    }

    /// Those about the certificate of `issuer` with this serial number: of each responder's the newest.
    pub fn newest<'a>(
        &'a self,
        issuer: &'a Certificate,
        serial: SerialKey,
        now: SystemTime,
    ) -> impl Iterator<Item = &'a OcspAnswer> {
        let about = self.0.iter().filter(move |answer| answer.is_about_serial(serial, issuer));
        about.filter(move |answer| {
            let newer =
                |other: &OcspAnswer| other.is_about_same(answer) && other.outranks(answer, now);
            !self.0.iter().any(newer)
        })
    }

    /// When the newest of those that count is no longer current; `None` if there is none.
    pub fn due(
        &self,
        (issuer, serial): (&Certificate, SerialKey),
        counts: &dyn Fn(&OcspAnswer) -> bool,
        now: SystemTime,
    ) -> Option<Due> {
        let current = self.newest(issuer, serial, now);
        let current = current.filter(|one| !one.is_from_future(now) && counts(one));
        let due = |one: &OcspAnswer| {
            let at = one.good_until();
            let validity: Duration = at.duration_since(one.this_update()).unwrap_or_default();
            Due::new(at, validity / super::lists::SPREAD)
        };
        current.map(due).max()
    }

    /// Takes a verified response in place of an older one.
    ///
    /// # Errors
    /// [`LoadError::Stale`] if there is a newer one.
    pub fn take(&mut self, answer: OcspAnswer, now: SystemTime) -> Result<(), LoadError> {
        if self.0.iter().any(|o| o.is_about_same(&answer) && o.outranks(&answer, now)) {
            return Err(LoadError::Stale);
        }
        // One from the future takes the place of another such one alone.
        self.0.retain(|old| {
            let both = old.is_from_future(now) == answer.is_from_future(now);
            !(old.is_about_same(&answer) && both)
        });
        push_bounded(&mut self.0, answer, MAX_ANSWERS);
        Ok(())
    }
}

/// Most responses; the oldest makes room.
const MAX_ANSWERS: usize = 1024;
