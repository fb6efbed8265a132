//! Whether a path that was accepted earlier still stands: for tickets, and for IKE SAs that are up.
//!
//! The rule is that of a login (`revocation/lists.rs`), and the signers are those of a login (`path/signer.rs`).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use ike_proto::config::IdMatch;
use ike_proto::wire::payload::IdData;
use ike_proto::{Answer, Distrust, PeerCertificate, ResumeClaim, UsedAuth};

use crate::answerer::Answerer;
use crate::certificate::Certificate;
use crate::identity;
use crate::path::{ExtendedKeyUsagePolicy, Signer, same_ca};
use crate::policy::is_ca;
use crate::record::{Example, PathSchemes, PeerKeyHash, Points, Record, RecordedKind, write_path};
use crate::revocation::{Counting, FetchRequest, ListsDue, Revoker};
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

/// What is known of a path.
#[derive(Debug, Clone)]
pub enum Standing {
    /// No certificate of it is known to be revoked.
    Good,
    /// This one is.
    Revoked(RevokedCertificate),
    /// Nothing but lists past their nextUpdate revoke a certificate. A newer one may tell that a hold has ended: as for
    /// a login, this is to be fetched first.
    Outdated(FetchRequest),
}

/// Whether what made a peer's key trusted is still in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrustNow {
    /// It is.
    Same,
    /// In its place is a trust anchor of the same name with another key, or another key in `certs` or `pubkeys` for the
    /// same identity.
    Replaced,
    /// `auth` does not name a signature scheme of the program by which a certificate of the path is signed.
    SchemeRemoved,
    /// No trust anchor in force has the same name, or the path has none of the CAs that the connection asks for, or a ticket
    /// does not tell.
    AnchorRemoved,
    /// The key is not in `certs` or `pubkeys` any more, and no other one for the same identity is.
    PinRemoved,
}

impl TrustNow {
    /// Judges a peer of `connection` by the policy of the round of that name, in which it has authenticated as `used` says.
    /// The answer for a peer without a certificate or a key is `Same`. What `answerer` does not know speaks for the peer.
    pub fn of(answerer: &Answerer, (connection, round): (&str, &str), used: &UsedAuth) -> Self {
        Self::judge(answerer, (connection, round), used, true)
    }

    fn judge(
        answerer: &Answerer,
        (connection, round): (&str, &str),
        used: &UsedAuth,
        lenient: bool,
    ) -> Self {
        let Some(certificate) = &used.certificate else { return Self::Same };
        let Some(key) = PeerKeyHash::of_path(&certificate.path) else {
            // The engine keeps what this crate has written, but a ticket may come from another gateway.
            return if lenient { Self::Same } else { Self::AnchorRemoved };
        };
        let (records, none) = (Record::of_path(&certificate.path), PeerPolicy::default());
        let schemes = PathSchemes::of_path(&certificate.path);
        // A round of another method has no policy.
        let (policy, all_named) = match answerer.policy(connection, round) {
            Some(policy) => (policy, schemes.are_named(&policy.chain)),
            None => (&none, true),
        };
        let id = &proven_id(used);
        Judged { answerer, policy, id, key, records: &records, all_named, lenient }.trust()
    }
}

/// The identity that the certificate of this round has: that of EAP, if EAP has shown it.
fn proven_id(used: &UsedAuth) -> IdData {
    let told = used.eap.as_ref().and_then(|eap| eap.id.as_ref()).filter(|id| !id.data.is_empty());
    let text = told.and_then(|id| std::str::from_utf8(&id.data).ok());
    text.and_then(|text| IdData::parse(text).ok()).unwrap_or_else(|| used.id.clone())
}

/// A peer that a policy has to judge again.
struct Judged<'a> {
    answerer: &'a Answerer,
    policy: &'a PeerPolicy,
    id: &'a IdData,
    key: PeerKeyHash,
    records: &'a [Record],
    /// The policy names the schemes of the path that have to be named.
    all_named: bool,
    /// What is not known speaks for the peer.
    lenient: bool,
}

impl Judged<'_> {
    fn trust(&self) -> TrustNow {
        let Self { policy, id, key, records, .. } = self;
        let mut known = policy.pubkeys.iter().filter(|known| known.id.matches(id.as_id()));
        if known.clone().any(|known| key.is(&known.spki)) {
            return TrustNow::Same;
        }
        let pinned = policy.certs.iter().any(|pin| key.is(pin.spki()));
        let needs_no_ca = policy.takes_any_ca() && policy.cert_policies.is_empty();
        if pinned && (key.raw || records.is_empty() || needs_no_ca) {
            return TrustNow::Same;
        }
        let takes_others = policy.certs.is_empty() && policy.pubkeys.is_empty();
        if !pinned && (key.raw || !takes_others) {
            let names = |pin: &Arc<Certificate>| identity::check(id, pin).is_ok();
            let other = known.next().is_some() || policy.certs.iter().any(names);
            return if other { TrustNow::Replaced } else { TrustNow::PinRemoved };
        }
        match self.all_named {
            true => self.trust_by_ca(),
            false => TrustNow::SchemeRemoved,
        }
    }

    /// Whether a CA of the path has the identity `id`; `None` if the certificate of a CA that may have it is not at hand.
    fn has_ca(&self, id: &IdMatch) -> Option<bool> {
        let Self { answerer, records, .. } = self;
        let trust = answerer.trust();
        let named = || answerer.all_policies().flat_map(|policy| &policy.cacerts);
        let mut has = Some(false);
        for record in *records {
            let is = |ca: &Arc<Certificate>| record.kind.ca.is(ca);
            let mut known = trust.cas().iter().chain(trust.intermediates()).chain(named());
            let ca = known.find(|ca| is(ca)).cloned().or_else(|| {
                answerer.example_of(record.kind)?.issuers.into_iter().find(|ca| is(ca))
            });
            match ca {
                Some(ca) if is_ca(&ca, id) => return Some(true),
                Some(_) => {}
                None => has = None,
            }
        }
        has
    }

    /// Judges a key in a certificate by the CAs alone.
    fn trust_by_ca(&self) -> TrustNow {
        let Self { answerer, policy, key, records, lenient, .. } = self;
        let trust = answerer.trust();
        let is_anchor = |is: &dyn Fn(&Certificate) -> bool| {
            let own = |ca: &Arc<Certificate>| is(ca) && trust.verified().is_self_signed(ca);
            trust.cas().iter().any(|ca| is(ca)) || policy.cacerts.iter().any(own)
        };
        let Some(last) = records.last() else {
            // It was trusted without a CA.
            let same = is_anchor(&|anchor| key.is(anchor.spki()));
            return if same { TrustNow::Same } else { TrustNow::PinRemoved };
        };
        // `cacerts` and `ca_id` are conditions on the path, and either suffices.
        let has_one = |is: &dyn Fn(&Record, &Certificate) -> bool| {
            let listed = |ca: &Arc<Certificate>| records.iter().any(|record| is(record, ca));
            policy.takes_any_ca()
                || policy.cacerts.iter().any(listed)
                || policy.ca_id.as_ref().is_some_and(|id| self.has_ca(id).unwrap_or(*lenient))
        };
        let is_ca = |record: &Record, ca: &Certificate| record.kind.ca.is(ca);
        let named = |record: &Record, ca: &Certificate| record.kind.ca.is_named(ca.subject_hash());
        if is_anchor(&|ca| is_ca(last, ca)) && has_one(&is_ca) {
            TrustNow::Same
        } else if is_anchor(&|ca| named(last, ca)) && has_one(&named) {
            TrustNow::Replaced
        } else {
            TrustNow::AnchorRemoved
        }
    }
}

impl fmt::Display for TrustNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "the trust in its key is as before",
            Self::Replaced => "the trust anchor or the key of its peer was replaced",
            Self::SchemeRemoved => {
                "`auth` names the signature scheme of its peer's certificates no longer"
            }
            Self::AnchorRemoved => "the trust anchor of its peer was removed",
            Self::PinRemoved => "the key of its peer was removed from `certs` or `pubkeys`",
        })
    }
}

impl TrustedPeer {
    /// The peer's certificate, or one that is known for its raw public key, as the engine keeps it. Without one it has no
    /// subject.
    pub fn shown(&self) -> Arc<PeerCertificate> {
        let certificate = self.certificate.as_ref().or(self.path.first());
        let subject = certificate.map(|one| one.subject_text()).unwrap_or_default().into();
        let raw = self.certificate.is_none();
        let path = write_path(&self.spki, raw, &self.path, &self.schemes).into();
        Arc::new(PeerCertificate { subject, path, unchecked: !self.unchecked.is_empty() })
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
        for (round, used) in &claim.rounds {
            let Some(certificate) = &used.certificate else { continue };
            let Some(path) = Record::read_all(&certificate.path) else {
                return Answer::Failed("the path of its certificate cannot be read".to_owned());
            };
            // As with a pre-shared key, the peer has to authenticate by what takes the place of its key or its anchor. If that
            // is not known, the peer is judged in full, by the certificates that it sends.
            let trust = TrustNow::judge(self, (&claim.connection, round), used, false);
            if trust != TrustNow::Same {
                return Answer::Untrusted(Distrust::Other, trust.to_string());
            }
            for record in &path {
                let known = standings.judge(&claim.connection, record);
                let exact = self.examples.of(record.kind).is_some_and(|one| one.is_exact());
                // Where it is not known which lists count for such a certificate, any list by its CA's name does. The
                // peer is then judged in full, by the certificates that it sends.
                let revoked = match known {
                    Ok(Some((revoked, _))) => Some(revoked),
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

    /// Takes over from `other` what is set for connections that are here no longer and that are `up`.
    pub fn inherit_ends_live(&mut self, other: &Self, up: impl Fn(&str) -> bool) {
        for (connection, ends) in &other.ends_live {
            if !self.ends_live.contains_key(connection) && up(connection) {
                self.ends_live.insert(connection.clone(), *ends);
            }
        }
    }

    /// Certificates of these kinds are in the paths of live SAs: what is known of them is kept, until it is
    /// [released](Self::release_examples) as often.
    pub fn hold_examples(&self, kinds: &[RecordedKind]) {
        self.examples.hold(kinds);
    }

    /// The end of [`hold_examples`](Self::hold_examples).
    pub fn release_examples(&self, kinds: &[RecordedKind]) {
        self.examples.release(kinds);
    }

    /// How often a certificate was accepted that is the first known of a kind that is held.
    pub fn awaited_examples(&self) -> u64 {
        self.examples.awaited()
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

    /// How often a revocation list was taken that was not at hand.
    pub fn lists_taken(&self) -> u64 {
        self.trust().revocation.lists_taken()
    }

    /// When the lists about certificates of this kind of peers of `connection` are due to be fetched again: at the last
    /// time by the policies of the connection. `None` if no URL of a list is known.
    pub fn list_due(
        &self,
        connection: &str,
        kind: RecordedKind,
        now: SystemTime,
    ) -> Option<ListsDue> {
        let example = self.example_of(kind).filter(|one| one.points != Points::Other)?;
        let (issuer, _) = example.ends()?;
        let (store, none) = (&self.trust().revocation, PeerPolicy::default());
        let due = |policy: &PeerPolicy| {
            let signers = self.signers(&example, policy, now)?;
            store.list_due(&example.certificate, issuer, &signers, now)
        };
        self.policies_or(connection, &none).into_iter().filter_map(due).max()
    }

    /// The fetch of such a list, from a URL that has not failed lately and that is `free`; at best from one of those
    /// that are `due`.
    pub fn list_again(
        &self,
        connection: &str,
        kind: RecordedKind,
        (due, free): (&ListsDue, &dyn Fn(&str) -> bool),
        now: SystemTime,
    ) -> Option<FetchRequest> {
        let example = self.example_of(kind).filter(|one| one.points != Points::Other)?;
        let (store, none) = (&self.trust().revocation, PeerPolicy::default());
        self.policies_or(connection, &none).into_iter().find_map(|policy| {
            let signers = self.signers(&example, policy, now)?;
            store.list_again(example.link()?, &signers, (&due.urls, free), now)
        })
    }

    /// The policies of a connection; `none` for one that was removed.
    fn policies_or<'a>(&'a self, connection: &str, none: &'a PeerPolicy) -> Vec<&'a PeerPolicy> {
        match self.policies(connection) {
            policies if policies.is_empty() => vec![none],
            policies => policies,
        }
    }

    /// Those whose lists count for the certificates of which `example` is one; `None` where `policy` trusts no anchor of this
    /// example. A login may have been by other words of `policy` than its `cacerts`: by `ca_id`, or by the raw key.
    pub(crate) fn signers(
        &self,
        example: &Example,
        policy: &PeerPolicy,
        now: SystemTime,
    ) -> Option<Vec<Signer>> {
        let trust = self.trust();
        let (issuer, anchor) = example.ends()?;
        let (anchors, links) = policy.roots_and_links(trust);
        let trusted = anchors.iter().any(|one| same_ca(one, anchor));
        if !trusted {
            return None;
        }
        let intermediates: Vec<_> = links.into_iter().chain(example.issuers.clone()).collect();
        let usage = ExtendedKeyUsagePolicy::default();
        let query = policy.query((&anchors, &intermediates), trust, usage, now);
        let links = (&*example.certificate, &**issuer);
        let mut signers =
            list_signers(&query, (&policy.chain, policy.revocation), links, anchor, trust);
        // A namesake's list counts only where the certificate itself names its URL.
        signers.retain(|signer| example.is_exact() || !signer.only_named);
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
    known: HashMap<RecordedKind, HashMap<String, Option<Judge>>>,
}

/// What certificates of one kind are judged by.
#[derive(Debug)]
enum Judge {
    /// By the lists that count for it: one set for each policy of the connection.
    Example(Example, Vec<Vec<Counting>>),
    /// By lists of this CA alone.
    Ca(Arc<Certificate>),
}

impl Standings<'_> {
    /// The first certificate of `path`, the [path](PeerCertificate::path) of a peer of `connection`, that is known to
    /// be revoked. Only lists count by which a login of the peer would be refused.
    pub fn revoked(&mut self, connection: &str, path: &[u8]) -> Option<RevokedCertificate> {
        let path = Record::read_all(path)?;
        path.iter().find_map(|record| Some(self.judge(connection, record).ok()??.0))
    }

    /// True if this certificate in the path of a peer of `connection` is known to be revoked.
    pub fn is_revoked(&mut self, connection: &str, record: &Record) -> bool {
        matches!(self.judge(connection, record), Ok(Some(_)))
    }

    /// The standing of `path`, the [path](PeerCertificate::path) of a peer of `connection`, by the rule of a login.
    /// A newer list is asked for only at a URL that has not failed lately and that is `free`.
    pub fn standing(
        &mut self,
        connection: &str,
        path: &[u8],
        free: &dyn Fn(&str) -> bool,
    ) -> Standing {
        let mut outdated = None;
        for record in Record::read_all(path).unwrap_or_default() {
            let Ok(Some((revoked, is_outdated))) = self.judge(connection, &record) else {
                continue;
            };
            let newer = || self.newer(connection, record.kind, free);
            match is_outdated.then(newer).flatten() {
                Some(fetch) => outdated = outdated.or(Some(fetch)),
                None => return Standing::Revoked(revoked),
            }
        }
        outdated.map_or(Standing::Good, Standing::Outdated)
    }

    /// The fetch of a newer list about certificates of this kind.
    fn newer(
        &self,
        connection: &str,
        kind: RecordedKind,
        free: &dyn Fn(&str) -> bool,
    ) -> Option<FetchRequest> {
        let due = self.answerer.list_due(connection, kind, self.now)?;
        self.answerer.list_again(connection, kind, (&due, free), self.now)
    }

    /// True beside a revoked certificate: each list that revokes it is outdated.
    fn judge(
        &mut self,
        connection: &str,
        record: &Record,
    ) -> Result<Option<(RevokedCertificate, bool)>, Unknown> {
        let Self { answerer, now, known } = self;
        let (store, now, serial) = (&answerer.trust().revocation, *now, record.serial);
        let known = known.entry(record.kind).or_default();
        if !known.contains_key(connection) {
            let judge = answerer.judge_of(connection, record.kind, now);
            known.insert(connection.to_owned(), judge);
        }
        let judge = known.get(connection).and_then(Option::as_ref);
        let (by, issuer) = match judge.ok_or(Unknown)? {
            Judge::Example(example, sets) => {
                let (certificate, issuer) = example.link().ok_or(Unknown)?;
                let link = (&**certificate, &**issuer);
                let revokers = sets
                    .iter()
                    .filter_map(|counting| store.revoked_as(link, serial, counting, now));
                (revokers.min_by_key(|revoker| revoker.outdated), issuer)
            }
            Judge::Ca(ca) => (store.revoked_under(ca, serial, now), ca),
        };
        let Some(Revoker { by, outdated }) = by else { return Ok(None) };
        let (serial, issuer) = (serial.to_string(), issuer.subject_text());
        Ok(Some((RevokedCertificate { serial, issuer, by }, outdated)))
    }
}

impl Answerer {
    /// `None` if neither an example nor the issuer is known.
    fn judge_of(&self, connection: &str, kind: RecordedKind, now: SystemTime) -> Option<Judge> {
        let none = PeerPolicy::default();
        let policies = self.policies_or(connection, &none);
        if let Some(example) = self.example_of(kind) {
            let store = &self.trust().revocation;
            let (certificate, issuer) = example.link()?;
            let sets = policies.iter().filter_map(|policy| {
                let signers = self.signers(&example, policy, now)?;
                Some(store.counting((certificate, issuer), &signers, now))
            });
            let sets = sets.collect();
            return Some(Judge::Example(example, sets));
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
