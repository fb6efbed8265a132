//! Whether a path that was accepted earlier still stands: for tickets, and for IKE SAs that are up.
//!
//! The rule is that of a login (`revocation/lists.rs`), and the signers are those of a login (`path/signer.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::{Answer, Distrust, PeerCertificate, ResumeClaim};

use crate::answerer::Answerer;
use crate::certificate::Certificate;
use crate::path::{ExtendedKeyUsagePolicy, Path, PathQuery, Signer};
use crate::record::{Example, Record};
use crate::verify::{PeerPolicy, TrustedPeer};

/// A certificate of a path that is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedCertificate {
    /// Its serial number, in hexadecimal; of one with more than 20 octets, a hash.
    pub serial: String,
    /// Its issuer, safe in a log line; empty if it is not known.
    pub issuer: String,
    /// The list or the response that revokes it, safe in a log line.
    pub by: String,
}

impl fmt::Display for RevokedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { serial, issuer, by } = self;
        write!(f, "certificate with serial number {serial} of {issuer:?} is revoked by {by}")
    }
}

impl TrustedPeer {
    /// The peer's certificate as the engine keeps it; `None` without one.
    pub fn shown(&self) -> Option<Arc<PeerCertificate>> {
        let certificate = self.certificate.as_ref()?;
        let mut path = Vec::new();
        for (certificate, issuer) in self.path.iter().zip(self.path.iter().skip(1)) {
            Record::of(certificate, issuer).write(&mut path);
        }
        let (subject, path) = (certificate.subject_text(), path.into());
        Some(Arc::new(PeerCertificate { subject, path }))
    }
}

impl Answerer {
    /// Takes over what `other` knows of certificates that were accepted, so that [`revoked`](Self::revoked) goes on by
    /// the same rule.
    pub fn inherit_examples(&mut self, other: &Self) {
        self.examples = other.examples.clone();
    }

    /// The answer to a [`Question::Resume`](ike_proto::Question::Resume). It fetches nothing.
    pub fn resume(&self, claim: &ResumeClaim, now: SystemTime) -> Answer {
        for certificate in &claim.certificates {
            let Some(path) = Record::read_all(&certificate.path) else {
                return Answer::Failed("the path of its certificate cannot be read".to_owned());
            };
            for record in &path {
                let known = self.judge_record(&claim.connection, record, now);
                // A peer whose issuer is unknown here is judged in full, by the certificates that it sends then.
                let revoked = known.unwrap_or_else(|Unknown| self.any_list(record));
                if let Some(revoked) = revoked {
                    return Answer::Untrusted(Distrust::Revoked, revoked.to_string());
                }
            }
        }
        Answer::Resumable
    }

    /// The first certificate of `path`, the [path](ike_proto::PeerCertificate::path) of a peer of `connection`, that is
    /// known to be revoked. Only lists count by which a login of the peer would be refused.
    pub fn revoked(
        &self,
        connection: &str,
        path: &[u8],
        now: SystemTime,
    ) -> Option<RevokedCertificate> {
        let path = Record::read_all(path)?;
        path.iter().find_map(|record| self.judge_record(connection, record, now).ok().flatten())
    }

    fn judge_record(
        &self,
        connection: &str,
        record: &Record,
        now: SystemTime,
    ) -> Result<Option<RevokedCertificate>, Unknown> {
        let store = &self.trust().revocation;
        let none = PeerPolicy::default();
        let policies: Vec<&PeerPolicy> = match self.policies(connection) {
            policies if policies.is_empty() => vec![&none],
            policies => policies,
        };
        let (by, issuer) = match self.examples.of(record) {
            Some(example) => {
                let (issuer, _) = example.ends().ok_or(Unknown)?;
                let by = policies.iter().find_map(|policy| {
                    let signers = self.signers(&example, policy, now)?;
                    store.revoked_as(&example.certificate, issuer, record.serial, &signers, now)
                });
                (by, issuer.subject_text())
            }
            None => {
                let (anchors, links) = (self.trust().cas(), self.trust().intermediates());
                let named = policies.iter().flat_map(|policy| &policy.cacerts);
                let mut cas = anchors.iter().chain(links).chain(named);
                let ca = cas.find(|ca| record.ca.is(ca)).ok_or(Unknown)?;
                (store.revoked_under(ca, record.serial, now), ca.subject_text())
            }
        };
        let serial = record.serial.to_string();
        Ok(by.map(|by| RevokedCertificate { serial, issuer, by }))
    }

    /// Those whose lists count for the certificates of which `example` is one.
    fn signers(
        &self,
        example: &Example,
        policy: &PeerPolicy,
        now: SystemTime,
    ) -> Option<Vec<Signer>> {
        let trust = self.trust();
        let (issuer, anchor) = example.ends()?;
        let (anchors, links) = policy.roots_and_links(trust);
        let intermediates: Vec<_> = links.into_iter().chain(example.issuers.clone()).collect();
        let query = PathQuery {
            anchors: &anchors,
            intermediates: &intermediates,
            cacerts: &policy.cacerts,
            wanted: policy.wanted(),
            verified: trust.verified(),
            extended_key_usage: ExtendedKeyUsagePolicy::default(),
            now,
        };
        let is_revoked = |path: &Path| trust.revocation.has_revoked(path, now);
        let mut signers = query.signers(&example.certificate, issuer, anchor, &is_revoked);
        // A namesake's list counts only where the certificate itself names its URL.
        signers.retain(|signer| example.exact || !signer.only_named);
        signers.insert(0, Signer { certificate: Arc::clone(issuer), only_named: false });
        Some(signers)
    }

    /// A list by a CA of the issuer's name that revokes the certificate, whoever that CA is.
    fn any_list(&self, record: &Record) -> Option<RevokedCertificate> {
        let mut lists = self.trust().revocation.crls();
        let list = lists.find(|list| {
            record.ca.is_named(list.issuer_hash()) && list.revokes_serial(record.serial)
        })?;
        let (serial, issuer) = (record.serial.to_string(), list.issuer_text());
        Some(RevokedCertificate { serial, issuer, by: list.describe() })
    }
}

/// Neither an example nor the issuer of a certificate is known.
#[derive(Debug)]
struct Unknown;

impl PeerPolicy {
    /// The anchors of a path by this policy, and the CAs that only link.
    fn roots_and_links(
        &self,
        trust: &crate::TrustStore,
    ) -> (Vec<Arc<Certificate>>, Vec<Arc<Certificate>>) {
        let own = |ca: &&Arc<Certificate>| trust.verified().is_self_signed(ca);
        let (own, links): (Vec<_>, Vec<_>) = self.cacerts.iter().partition(own);
        let anchors = trust.cas().iter().chain(own).map(Arc::clone).collect();
        (anchors, trust.intermediates().iter().chain(links).map(Arc::clone).collect())
    }
}
