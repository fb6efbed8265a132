//! The revocation lists that this end has, and the rule by which they decide.
//!
//! From any list with a good signature by the certificate's CA, the serial numbers that it revokes count, until a newer
//! complete list of the same CA and scope lacks them. Whether a list may say that a certificate is good, is decided by
//! its age, its scope and its extensions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use der::flagset::FlagSet;
use x509_cert::ext::pkix::crl::dp::Reasons;

use super::crl::{Crl, Entry, SerialKey, all_reasons};
use super::{Status, push_bounded};
use crate::certificate::Certificate;
use crate::dn;
use crate::error::LoadError;
use crate::path::Signer;

/// Revocation lists from files, and fetched ones. The number and size of the fetched ones is bounded.
#[derive(Debug, Default, Clone)]
pub(super) struct Lists {
    /// From files, not verified yet, because the CA may be added later.
    loaded: Vec<Arc<Crl>>,
    /// Fetched; the signature was verified on arrival.
    fetched: VecDeque<Fetched>,
    /// How often a list was taken that was not at hand.
    taken: u64,
}

/// A list that counts for the certificates of one kind, and the one who signed it.
pub(crate) type Counting = (Arc<Crl>, Signer);

/// What revokes a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Revoker {
    /// The list or the response, safe in a log line.
    pub by: String,
    /// True if each list that revokes it is past its nextUpdate, and no response does.
    pub outdated: bool,
}

/// When the lists about certificates of one kind are to be fetched again, or the OCSP response about one certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// The first nextUpdate of the lists at hand, or that of the response; the epoch if there is none.
    pub at: SystemTime,
    /// How long after that a caller may wait: a share of the time from thisUpdate to nextUpdate.
    pub spread: Duration,
    /// Where the list that is due was fetched from; empty for a response.
    pub(crate) urls: Vec<String>,
}

impl Due {
    /// From no known URL.
    pub fn new(at: SystemTime, spread: Duration) -> Self {
        Self { at, spread, urls: Vec::new() }
    }

    /// Nothing is at hand.
    pub fn at_once() -> Self {
        Self::new(SystemTime::UNIX_EPOCH, Duration::ZERO)
    }

    /// True if nothing is at hand.
    pub fn is_at_once(&self) -> bool {
        self.at == SystemTime::UNIX_EPOCH
    }
}

/// A list that was fetched.
#[derive(Debug, Clone)]
struct Fetched {
    crl: Arc<Crl>,
    /// Where it, or the list in whose place it is, was fetched from.
    urls: Vec<String>,
    at: SystemTime,
}

/// A certificate whose status is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub certificate: &'a Certificate,
    /// Those who may sign lists about it.
    pub signers: &'a [Signer],
    /// The URLs of lists that it, or its CA's authority, names.
    pub urls: &'a [String],
    pub now: SystemTime,
}

impl<'a> Asked<'a> {
    /// The certificate as lists name it: by the DER Name of its issuer and its serial number.
    fn named(self) -> (&'a [u8], SerialKey) {
        (self.certificate.issuer(), SerialKey::of(self.certificate.serial()))
    }
}

/// A list that counts for a certificate, and the one who signed it.
struct Counted<'a> {
    crl: &'a Crl,
    by: &'a [u8],
    /// The key is that of another anchor of the CA's name, or of a signer whose status is not known.
    in_doubt: bool,
    /// The signer may call nothing good.
    only_revokes: bool,
}

impl<'a> Counted<'a> {
    fn new(crl: &'a Crl, by: &'a [u8], signer: &Signer) -> Self {
        let Signer { only_named, only_revokes, .. } = *signer;
        Self { crl, by, in_doubt: only_named || only_revokes, only_revokes }
    }

    /// True if this list ends what `older` says. The list of a namesake ends only lists by the same key, since it may be
    /// another CA, and an attacker on the path may put its list behind the URL. The same holds for one whose signer may be
    /// revoked.
    fn ends(&self, older: &Counted<'_>, now: SystemTime) -> bool {
        (!self.in_doubt || self.by == older.by) && self.crl.supersedes(older.crl, now)
    }
}

impl Lists {
    pub fn load(&mut self, crl: Arc<Crl>) {
        self.loaded.push(crl);
    }

    pub fn clear_fetched(&mut self) {
        self.fetched.clear();
    }

    /// Takes over what `other` has fetched.
    pub fn inherit(&mut self, other: &Self) {
        self.fetched.clone_from(&other.fetched);
        self.taken = other.taken;
    }

    /// How often a list was taken that was not at hand.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// All lists, from files and fetched.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Crl>> {
        self.loaded.iter().chain(self.fetched.iter().map(|fetched| &fetched.crl))
    }

    /// The status of the certificate by all lists.
    //= https://www.rfc-editor.org/rfc/rfc5280#section-5.3.1
    //# The removeFromCRL (8) reasonCode value may only appear in delta CRLs
    //# and indicates that a certificate is to be removed from a CRL because
    //# either the certificate expired or was removed from hold.
    pub fn status(&self, asked: Asked<'_>) -> Status {
        let counted = self.counted(asked);
        if revoking(&counted, asked.named(), asked.now).next().is_some() {
            return Status::Revoked;
        }
        let mut reasons = FlagSet::<Reasons>::default();
        for one in &counted {
            if self.may_say_good(one, &counted, asked.now) {
                reasons |= one.crl.reasons(asked.certificate);
            }
        }
        if reasons.contains(all_reasons()) { Status::Good } else { Status::Unknown }
    }

    /// True if lists call the certificate revoked, and each of them is past its nextUpdate.
    pub fn is_outdated(&self, asked: Asked<'_>) -> bool {
        let counted = self.counted(asked);
        let mut revoking = revoking(&counted, asked.named(), asked.now).peekable();
        revoking.peek().is_some() && revoking.all(|one| one.crl.is_outdated(asked.now))
    }

    /// When fetched lists whose scope has the certificate, and that no newer one supersedes, are due again. Without
    /// one, lists from files count if they call it good; otherwise a list is due at once. `None` if there is no URL.
    pub fn due(&self, asked: Asked<'_>) -> Option<Due> {
        if asked.urls.is_empty() {
            return None;
        }
        let fetched = self.fetched_due(asked);
        let loaded = || self.loaded_due(asked);
        fetched.or_else(loaded).or(Some(Due::at_once()))
    }

    fn fetched_due(&self, asked: Asked<'_>) -> Option<Due> {
        let about = self.fetched.iter().filter(|one| {
            let here = one.urls.iter().any(|url| asked.urls.contains(url));
            here && signer(&one.crl, &one.urls, asked).is_some()
                && !one.crl.reasons(asked.certificate).is_empty()
                && !self.fetched.iter().any(|newer| newer.crl.supersedes(&one.crl, asked.now))
        });
        let due = |one: &Fetched| {
            // The CA does not say when there is another one.
            let at = one.crl.next_update().unwrap_or(one.at + WITHOUT_NEXT_UPDATE);
            Due { at, spread: spread(&one.crl, at), urls: one.urls.clone() }
        };
        about.map(due).min()
    }

    fn loaded_due(&self, asked: Asked<'_>) -> Option<Due> {
        if self.status(asked) != Status::Good {
            return None;
        }
        let loaded = self.loaded.iter().filter(|crl| signer(crl, &[], asked).is_some());
        let due = |crl: &Arc<Crl>| {
            let at = crl.next_update()?;
            Some(Due::new(at, spread(crl, at)))
        };
        loaded.filter_map(due).max()
    }

    /// The lists of the name of the certificate's issuer that revoke it, whoever signed them, and that no newer one of
    /// that name ends.
    pub fn naming<'a>(
        &'a self,
        certificate: &'a Certificate,
        now: SystemTime,
    ) -> impl Iterator<Item = &'a Arc<Crl>> {
        let named = move |crl: &&Arc<Crl>| {
            !crl.is_of_attributes() && dn::same(crl.issuer(), certificate.issuer())
        };
        let revoking = self.all().filter(named).filter(|crl| crl.revokes(certificate));
        revoking.filter(move |old| {
            let mut newer = self.all().filter(named).filter(|new| !new.revokes(certificate));
            !newer.any(|new| new.supersedes(old, now))
        })
    }

    /// Says which of the `counting` lists revokes the certificate of `issuer`, a DER Name, with this serial number.
    pub fn revoked_by(
        counting: &[Counting],
        named: (&[u8], SerialKey),
        now: SystemTime,
    ) -> Option<Revoker> {
        let counted = counting
            .iter()
            .map(|(crl, signer)| Counted::new(crl, signer.certificate.spki(), signer));
        let counted: Vec<Counted<'_>> = counted.collect();
        let mut revoking = revoking(&counted, named, now).peekable();
        let by = revoking.peek()?.crl.describe();
        Some(Revoker { by, outdated: revoking.all(|one| one.crl.is_outdated(now)) })
    }

    /// The lists that say something about certificates that are as the one asked for but for the serial number.
    pub fn counting(&self, asked: Asked<'_>) -> Vec<Counting> {
        let counting = self
            .with_urls()
            .filter_map(|(crl, urls)| Some((Arc::clone(crl), signer(crl, urls, asked)?.clone())));
        counting.collect()
    }

    fn with_urls(&self) -> impl Iterator<Item = (&Arc<Crl>, &[String])> {
        let loaded = self.loaded.iter().map(|crl| (crl, &[][..]));
        loaded.chain(self.fetched.iter().map(|one| (&one.crl, one.urls.as_slice())))
    }

    /// The same by lists that the key of `ca` signed, for a certificate of which nothing else is known.
    pub fn revoked_by_key(
        &self,
        ca: &Certificate,
        serial: SerialKey,
        now: SystemTime,
    ) -> Option<String> {
        let own = self.all().filter(|crl| !crl.is_of_attributes() && crl.is_signed_by(ca));
        let counted = |crl| Counted { crl, by: ca.spki(), in_doubt: false, only_revokes: false };
        let counted: Vec<Counted<'_>> = own.map(|crl| counted(&**crl)).collect();
        let mut revoking = revoking(&counted, (ca.subject(), serial), now);
        revoking.next().map(|one| one.crl.describe())
    }

    /// The lists that say something about the certificate: those by the same CA.
    fn counted<'a>(&'a self, asked: Asked<'a>) -> Vec<Counted<'a>> {
        let counted = self.with_urls().filter_map(|(crl, urls)| {
            let signer = signer(crl, urls, asked)?;
            let by = signer.certificate.spki();
            Some(Counted::new(crl, by, signer))
        });
        counted.collect()
    }

    /// True if `one` is a complete list of its scope that is current, by itself or with a delta list, and that no newer
    /// one outranks.
    fn may_say_good(&self, one: &Counted<'_>, counted: &[Counted<'_>], now: SystemTime) -> bool {
        let current = || {
            let mut deltas = counted.iter().filter(|delta| delta.by == one.by);
            one.crl.is_current(now)
                || deltas.any(|delta| delta.crl.is_current(now) && delta.crl.updates(one.crl, now))
        };
        !one.only_revokes
            && !one.crl.is_delta()
            && !one.crl.is_from_future(now)
            && !counted.iter().any(|newer| newer.ends(one, now))
            && current()
    }

    /// Takes a list from `url` that was asked for.
    ///
    /// # Errors
    /// If it says nothing about the certificate, or may not say that it is good. What it revokes counts nevertheless,
    /// unless it is by another CA or older than one at hand.
    pub fn deliver(&mut self, crl: Crl, url: &str, asked: Asked<'_>) -> Result<(), LoadError> {
        let urls = [url.to_owned()];
        if !crl.is_for(asked.certificate) && !dn::same(crl.issuer(), asked.certificate.issuer()) {
            return Err(LoadError::Signature);
        }
        let by = signer(&crl, &urls, asked).ok_or(match crl.is_of_attributes() {
            true => LoadError::Irrelevant,
            false => LoadError::Signature,
        })?;
        let signer = by.clone();
        let by = by.certificate.spki().to_vec();
        let counted = self.counted(asked);
        if counted.iter().any(|held| held.by == by && held.crl.supersedes(&crl, asked.now)) {
            return Err(LoadError::Older);
        }
        let new = Counted::new(&crl, &by, &signer);
        let current = self.may_say_good(&new, &counted, asked.now)
            || crl.is_delta() && self.is_of_use(&new, &counted, asked.now);
        let reasons = crl.reasons(asked.certificate);
        let why = match () {
            () if crl.is_from_future(asked.now) => LoadError::Stale,
            () if !crl.is_understood() => LoadError::Unsupported("a critical extension in it"),
            () if reasons.is_empty() => LoadError::Irrelevant,
            () if crl.is_delta() && !current => LoadError::Base,
            () if !current => LoadError::Stale,
            () => LoadError::Partial,
        };
        self.keep(crl, url, &by, asked.now);
        // Whatever tells nothing has failed, so that its URL is not asked again at once. The same holds where a newer
        // list is asked for, which may tell that a hold has ended.
        let is_known = self.status(asked) != Status::Unknown && !self.is_outdated(asked);
        if is_known { Ok(()) } else { Err(why) }
    }

    /// True if the delta list `new` is current, and its base is at hand.
    fn is_of_use(&self, new: &Counted<'_>, counted: &[Counted<'_>], now: SystemTime) -> bool {
        let base = |held: &Counted<'_>| held.by == new.by && new.crl.updates(held.crl, now);
        new.crl.is_current(now) && counted.iter().any(base)
    }

    /// Keeps a verified list, in place of those that it supersedes.
    fn keep(&mut self, crl: Crl, url: &str, by: &[u8], now: SystemTime) {
        let at_hand = self.all().any(|held| held.is_same_as(&crl));
        self.taken += u64::from(!at_hand);
        let mut urls = vec![url.to_owned()];
        self.fetched.retain(|old| {
            let more = || crl.supersedes(&old.crl, now) || crl.covers(&old.crl, now);
            let gone = (crl.says_the_same_as(&old.crl) || more()) && old.crl.is_by(by);
            if gone {
                urls.extend(old.urls.iter().filter(|old| *old != url).cloned());
            }
            !gone
        });
        urls.truncate(MAX_URLS);
        let mut octets: usize = self.fetched.iter().map(|held| held.crl.octets()).sum();
        octets += crl.octets();
        while octets > MAX_OCTETS
            && let Some(oldest) = self.fetched.pop_front()
        {
            octets -= oldest.crl.octets();
        }
        push_bounded(&mut self.fetched, Fetched { crl: Arc::new(crl), urls, at: now }, MAX_LISTS);
    }
}

/// Those lists that call the certificate revoked, and that no other one ends.
fn revoking<'a>(
    counted: &'a [Counted<'a>],
    (issuer, serial): (&'a [u8], SerialKey),
    now: SystemTime,
) -> impl Iterator<Item = &'a Counted<'a>> {
    let says = move |one: &Counted<'_>| one.crl.entry_of(issuer, serial);
    let ends = move |new: &Counted<'_>, old: &Counted<'_>| match says(new) {
        Some(Entry::Revoked) => false,
        Some(Entry::Removed) if new.crl.is_delta() => {
            new.by == old.by && new.crl.lifts(old.crl, now)
        }
        Some(Entry::Removed) | None => new.ends(old, now),
    };
    let revoking = counted.iter().filter(move |one| says(one) == Some(Entry::Revoked));
    revoking.filter(move |old| !counted.iter().any(|new| ends(new, old)))
}

/// The one of the signers who made `crl`, if the list, from these URLs, says anything about the certificate.
fn signer<'a>(crl: &Crl, urls: &[String], asked: Asked<'a>) -> Option<&'a Signer> {
    if crl.is_of_attributes() || !crl.is_for(asked.certificate) {
        return None;
    }
    let named =
        || urls.iter().any(|url| asked.urls.contains(url)) || crl.is_of_point_of(asked.certificate);
    let mut signers = asked.signers.iter().filter(|signer| crl.is_signed_by(&signer.certificate));
    let first = signers.next()?;
    if !first.only_named || named() {
        return Some(first);
    }
    signers.find(|signer| !signer.only_named)
}

fn spread(crl: &Crl, next: SystemTime) -> Duration {
    next.duration_since(crl.this_update()).unwrap_or_default() / SPREAD
}

/// When a list without nextUpdate is fetched again.
const WITHOUT_NEXT_UPDATE: Duration = Duration::from_secs(3600);
/// The part of a list's or a response's validity over which fetches of the next one are spread.
pub(super) const SPREAD: u32 = 20;
/// Most fetched lists.
const MAX_LISTS: usize = 256;
/// Most octets of memory for all of them.
const MAX_OCTETS: usize = 256 * 1024 * 1024;
/// Most URLs remembered of one list.
const MAX_URLS: usize = 16;
