//! Whether a path that was accepted earlier still stands: for tickets, and for IKE SAs that are up.
//!
//! The rule is that of a login (`revocation/lists.rs`), and the signers are those of a login (`path/signer.rs`).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ike_proto::{Answer, Distrust, PeerCertificate, ResumeClaim};

use crate::answerer::Answerer;
use crate::certificate::Certificate;
use crate::path::{ExtendedKeyUsagePolicy, PathQuery, Signer, same_ca};
use crate::record::{Example, Record, RecordedKind, write_path};
use crate::revocation::FetchRequest;
use crate::verify::{PeerPolicy, TrustedPeer, list_signers};

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
    /// The peer's certificate, or one that is known for its raw public key, as the engine keeps it; `None` without one.
    pub fn shown(&self) -> Option<Arc<PeerCertificate>> {
        let certificate = self.certificate.as_ref().or(self.path.first())?;
        let (subject, path) = (certificate.subject_text().into(), write_path(&self.path).into());
        let unchecked = !self.unchecked.is_empty();
        Some(Arc::new(PeerCertificate { subject, path, unchecked }))
    }
}

impl Answerer {
    /// Takes over what `other` knows of certificates that were accepted, so that [`standings`](Self::standings) goes
    /// on by the same rule.
    pub fn inherit_examples(&mut self, other: &Self) {
        self.examples = other.examples.clone();
    }

    /// The answer to a [`Question::Resume`](ike_proto::Question::Resume). It fetches nothing.
    pub fn resume(&self, claim: &ResumeClaim, now: SystemTime) -> Answer {
        let mut standings = self.standings(now);
        for certificate in &claim.certificates {
            let Some(path) = Record::read_all(&certificate.path) else {
                return Answer::Failed("the path of its certificate cannot be read".to_owned());
            };
            for record in &path {
                let known = standings.judge(&claim.connection, record);
                let exact = self.examples.of(record.kind).is_some_and(|example| example.exact);
                // Where it is not known which lists count for such a certificate, any list by its CA's name does. The
                // peer is then judged in full, by the certificates that it sends.
                let revoked = match known {
                    Ok(Some(revoked)) => Some(revoked),
                    Ok(None) if exact => None,
                    Ok(None) | Err(Unknown) => self.any_list(record),
                };
                if let Some(revoked) = revoked {
                    return Answer::Untrusted(Distrust::Revoked, revoked.to_string());
                }
            }
        }
        Answer::Resumable
    }

    /// Judges paths by what is at hand at `now`.
    pub fn standings(&self, now: SystemTime) -> Standings<'_> {
        Standings { answerer: self, now, known: HashMap::new() }
    }

    /// `revocation_live`: a certificate of a live IKE SA's path that is found to be revoked `ends` the SA. Without this
    /// call there is a warning only.
    pub fn set_ends_live(&mut self, connection: &str, ends: bool) {
        self.ends_live.insert(connection.to_owned(), ends);
    }

    /// What was [set](Self::set_ends_live).
    pub fn ends_live(&self, connection: &str) -> bool {
        self.ends_live.get(connection).copied().unwrap_or_default()
    }

    /// True if there is neither a revocation list nor an OCSP response at hand.
    pub fn knows_no_revocation(&self) -> bool {
        self.trust().revocation.is_empty()
    }

    /// True if an OCSP response at hand revokes the certificate that `fetch` is about.
    pub fn is_revoked_by_response(&self, fetch: &FetchRequest) -> bool {
        self.trust().revocation.is_revoked_by_response(fetch)
    }

    /// When the fetched lists about certificates of this kind of peers of `connection` are due to be fetched again:
    /// their last nextUpdate, and the share of their validity that a caller may wait. `None` if no fetched list is
    /// about them.
    pub fn list_due(
        &self,
        connection: &str,
        kind: RecordedKind,
        now: SystemTime,
    ) -> Option<(SystemTime, Duration)> {
        let example = self.examples.of(kind).filter(|example| example.exact)?;
        let (issuer, _) = example.ends()?;
        let store = &self.trust().revocation;
        let due = |policy: &&PeerPolicy| {
            let signers = self.signers(&example, policy, now)?;
            store.list_due(&example.certificate, issuer, &signers, now)
        };
        self.policies(connection).iter().filter_map(due).max()
    }

    /// The fetch of such a list, from a URL that has not failed lately.
    pub fn list_again(
        &self,
        connection: &str,
        kind: RecordedKind,
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let example = self.examples.of(kind).filter(|example| example.exact)?;
        let (issuer, _) = example.ends()?;
        let store = &self.trust().revocation;
        self.policies(connection).iter().find_map(|policy| {
            let signers = self.signers(&example, policy, now)?;
            store.list_again((&example.certificate, issuer), &signers, now)
        })
    }

    /// Those whose lists count for the certificates of which `example` is one; `None` where `policy` takes no path of
    /// this example.
    fn signers(
        &self,
        example: &Example,
        policy: &PeerPolicy,
        now: SystemTime,
    ) -> Option<Vec<Signer>> {
        let trust = self.trust();
        let (issuer, anchor) = example.ends()?;
        let (anchors, links) = policy.roots_and_links(trust);
        let trusted = anchors.iter().any(|one| same_ca(one, anchor));
        let listed = |ca: &Arc<Certificate>| policy.cacerts.iter().any(|one| same_ca(one, ca));
        if !trusted || !(policy.cacerts.is_empty() || example.issuers.iter().any(listed)) {
            return None;
        }
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
        let links = (&*example.certificate, &**issuer);
        let mut signers =
            list_signers(&query, (&policy.chain, policy.revocation), links, anchor, trust);
        // A namesake's list counts only where the certificate itself names its URL.
        signers.retain(|signer| example.exact || !signer.only_named);
        signers.insert(0, Signer::of(Arc::clone(issuer)));
        Some(signers)
    }

    /// A list by a CA of the issuer's name that revokes the certificate, whoever that CA is.
    fn any_list(&self, record: &Record) -> Option<RevokedCertificate> {
        let mut lists = self.trust().revocation.crls();
        let list = lists.find(|list| {
            record.kind.ca.is_named(list.issuer_hash()) && list.revokes_serial(record.serial)
        })?;
        let (serial, issuer) = (record.serial.to_string(), list.issuer_text());
        Some(RevokedCertificate { serial, issuer, by: list.describe() })
    }
}

/// Judges many paths at one time. Those of one kind have the same signers of lists.
#[derive(Debug)]
pub struct Standings<'a> {
    answerer: &'a Answerer,
    now: SystemTime,
    known: HashMap<(String, RecordedKind), Option<Judge>>,
}

/// What certificates of one kind are judged by.
#[derive(Debug)]
enum Judge {
    /// By lists of these signers: one set for each policy of the connection.
    Example(Example, Vec<Vec<Signer>>),
    /// By lists of this CA alone.
    Ca(Arc<Certificate>),
}

impl Standings<'_> {
    /// The first certificate of `path`, the [path](PeerCertificate::path) of a peer of `connection`, that is known to
    /// be revoked. Only lists count by which a login of the peer would be refused.
    pub fn revoked(&mut self, connection: &str, path: &[u8]) -> Option<RevokedCertificate> {
        let path = Record::read_all(path)?;
        path.iter().find_map(|record| self.judge(connection, record).ok().flatten())
    }

    fn judge(
        &mut self,
        connection: &str,
        record: &Record,
    ) -> Result<Option<RevokedCertificate>, Unknown> {
        let Self { answerer, now, known } = self;
        let (store, now, serial) = (&answerer.trust().revocation, *now, record.serial);
        let judge = known
            .entry((connection.to_owned(), record.kind))
            .or_insert_with(|| answerer.judge_of(connection, record.kind, now));
        let (by, issuer) = match judge.as_ref().ok_or(Unknown)? {
            Judge::Example(example, signers) => {
                let (issuer, _) = example.ends().ok_or(Unknown)?;
                let by = signers.iter().find_map(|signers| {
                    store.revoked_as(&example.certificate, issuer, serial, signers, now)
                });
                (by, issuer)
            }
            Judge::Ca(ca) => (store.revoked_under(ca, serial, now), ca),
        };
        let (serial, issuer) = (serial.to_string(), issuer.subject_text());
        Ok(by.map(|by| RevokedCertificate { serial, issuer, by }))
    }
}

impl Answerer {
    /// `None` if neither an example nor the issuer is known.
    fn judge_of(&self, connection: &str, kind: RecordedKind, now: SystemTime) -> Option<Judge> {
        let none = PeerPolicy::default();
        let policies: Vec<&PeerPolicy> = match self.policies(connection) {
            policies if policies.is_empty() => vec![&none],
            policies => policies,
        };
        if let Some(example) = self.examples.of(kind) {
            let signers = policies.iter().filter_map(|policy| self.signers(&example, policy, now));
            let signers = signers.collect();
            return Some(Judge::Example(example, signers));
        }
        let (anchors, links) = (self.trust().cas(), self.trust().intermediates());
        let named = policies.iter().flat_map(|policy| &policy.cacerts);
        let mut cas = anchors.iter().chain(links).chain(named);
        cas.find(|ca| kind.ca.is(ca)).map(|ca| Judge::Ca(Arc::clone(ca)))
    }
}

/// Neither an example nor the issuer of a certificate is known.
#[derive(Debug)]
struct Unknown;
