//! OCSP responses that an [`Answerer`] sends about its own certificates (RFC 4806).

use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::wire::registry::CertEncoding;
use ike_proto::{OwnedCert, SignRequest};

use crate::answerer::Answerer;
use crate::certificate::Certificate;
use crate::credential::Credential;
use crate::error::LoadError;
use crate::hash_and_url::sha1;
use crate::revocation::{Due, FetchRequest, OwnStatus, StatusFetch, StatusFetches};
use crate::signed::{Signature, Signed};

impl Answerer {
    /// `ocsp` with `reply` or `both`: the rounds of this end in `connection` send OCSP responses about their
    /// certificates to peers that ask for them. With `ahead`, the responses are [fetched](Self::status_ahead)
    /// before the first peer asks.
    pub fn reply_by_ocsp(&mut self, connection: &str, ahead: bool) {
        self.replies.insert(connection.to_owned(), ahead);
    }

    /// The OCSP responses about this end's own certificates.
    pub fn own_status(&self) -> &OwnStatus {
        &self.own_status
    }

    /// Takes a responder's answer to `request`. The rules are those of
    /// [`RevocationStore::deliver`](crate::RevocationStore::deliver). Returns true if the certificate is revoked;
    /// such a response is sent as well.
    ///
    /// # Errors
    /// Says why the response is of no use.
    pub fn deliver_status(
        &self,
        request: &FetchRequest,
        response: &[u8],
        now: SystemTime,
    ) -> Result<bool, LoadError> {
        self.trust().revocation.deliver_own(&self.own_status, request, response, now)
    }

    /// Takes over the responses that `other` has fetched about certificates that both have.
    pub fn inherit_status(&mut self, other: &Self) {
        self.own_status = other.own_status.clone();
        if self.own_status.is_empty() {
            return;
        }
        let all = self.local.values().flat_map(|rounds| rounds.values()).flatten();
        let names: Vec<_> = all.flat_map(Credential::chain).map(|one| sha1(one.der())).collect();
        self.own_status.retain(&names);
    }

    /// The fetches for the answer to `request`. There are none unless the peer asks for OCSP responses and gets
    /// them.
    pub fn status_fetches(&self, request: &SignRequest, now: SystemTime) -> StatusFetches {
        let mut fetches = StatusFetches::default();
        if self.tells_status(request)
            && let Some((credential, _)) = self.chosen(request)
        {
            self.due(credential, true, now, &mut fetches);
        }
        fetches
    }

    /// The fetches that are due before a peer asks, or asks again, and when to look again, if ever.
    pub fn status_ahead(&self, now: SystemTime) -> (Vec<StatusFetch>, Option<SystemTime>) {
        let mut fetches = StatusFetches::default();
        let mut next: Option<SystemTime> = None;
        let never = self.own_status.is_empty();
        for (connection, ahead) in self.replies.iter().filter(|(_, ahead)| **ahead || !never) {
            let rounds = self.local.get(connection).into_iter().flat_map(|rounds| rounds.values());
            for credential in rounds.flatten() {
                let at = self.due(credential, *ahead, now, &mut fetches);
                next = next.into_iter().chain(at).min();
            }
        }
        let StatusFetches { mut lacking, aging } = fetches;
        lacking.extend(aging);
        lacking.retain(|fetch| !self.own_status.is_brief(&fetch.name));
        lacking.sort_by_key(|fetch| fetch.name);
        lacking.dedup_by_key(|fetch| fetch.name);
        (lacking, next)
    }

    /// CERT payloads with the available responses for `credential`.
    pub(crate) fn status_payloads(
        &self,
        request: &SignRequest,
        credential: &Credential,
        now: SystemTime,
    ) -> Vec<OwnedCert> {
        if !self.tells_status(request) {
            return Vec::new();
        }
        let responses = credential.chain().iter();
        let responses = responses.filter_map(|one| self.own_status.response(one, now));
        let encoding = CertEncoding::OCSP;
        responses.map(|response| OwnedCert { encoding, data: response.to_vec() }).collect()
    }

    /// The peer may name responders that it trusts. They are ignored, because the CA chooses its responder.
    fn tells_status(&self, request: &SignRequest) -> bool {
        request.requests.iter().any(|one| one.encoding == CertEncoding::OCSP)
            && self.replies.contains_key(&request.connection)
    }

    /// Adds to `fetches` the due fetches about the chain of `credential`: about `all` of it, or only about
    /// certificates that were asked for before. Returns the time when to look at the rest.
    fn due(
        &self,
        credential: &Credential,
        all: bool,
        now: SystemTime,
        fetches: &mut StatusFetches,
    ) -> Option<SystemTime> {
        let mut next: Option<SystemTime> = None;
        for (at, certificate) in credential.chain().iter().enumerate() {
            let name = sha1(certificate.der());
            let asks = self.trust().revocation.may_have_responders(certificate);
            if !asks || !(all || self.own_status.has(&name)) {
                continue;
            }
            let place = match self.own_status.due(&name, now) {
                Due::No(again) => {
                    next = Some(next.map_or(again, |next| next.min(again)));
                    continue;
                }
                Due::Aging => &mut fetches.aging,
                Due::Lacking => &mut fetches.lacking,
            };
            let issuer = credential.chain().get(at + 1).or_else(|| self.issuer_of(certificate));
            let Some(issuer) = issuer else { continue };
            let urls = self.trust().revocation.responders(certificate, issuer);
            let fetch = StatusFetch::new(urls, certificate, issuer);
            if !fetch.requests.is_empty() {
                place.push(fetch);
            }
        }
        next
    }

    /// The CA that signed `certificate`, if it is known here.
    fn issuer_of(&self, certificate: &Certificate) -> Option<&Arc<Certificate>> {
        let trust = self.trust();
        let signed = Signed::parse(certificate.der())?;
        let is_by =
            |ca: &Certificate| trust.verified().check(&signed, ca.spki()) == Signature::Good;
        trust
            .cas()
            .iter()
            .chain(trust.intermediates())
            .find(|ca| certificate.names_as_issuer(ca) && is_by(ca))
    }
}
