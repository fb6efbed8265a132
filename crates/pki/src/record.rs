//! What is kept of a peer's path when the peer is accepted: enough to judge revocation and trust again later, and little
//! enough for a ticket, which cannot be fragmented.
//!
//! ```text
//! form of the peer's key (1) | peer's key (8) | [number of schemes (1) | schemes (8 each)]
//! issuer's name (8) | issuer's key (8) | distribution points (4) | length of the serial number (1) | serial number
//! ```
//!
//! The second line repeats for each certificate but the anchor. It is missing for a key that is trusted without a CA. The
//! issuer's key of the last one is the anchor's. The form is 1 for a key of `pubkeys`, 0 for a key in a certificate, and 2
//! for one whose path has signature schemes of the program: the AlgorithmIdentifiers of their keys follow. All others but numbers,
//! lengths and the serial number are the first octets of SHA-256 hashes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use der::Encode;
use ike_proto::config::SchemeConstraints;
use ike_proto::crypto::SignatureScheme;

use crate::certificate::Certificate;
use crate::dn::NameHash;
use crate::revocation::SerialKey;

/// One certificate of a path. It has 49 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// What it has in common with others.
    pub kind: RecordedKind,
    pub(crate) serial: SerialKey,
}

/// What a recorded certificate has in common with all that have the same anchor, the same issuer and the same
/// distribution points: the same lists are about them. It has 28 octets.
///
/// The anchor is a part of it, because a CA may have paths to several: whoever controls one of these anchors must not
/// decide whose lists count for the peers of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordedKind {
    anchor: [u8; 8],
    pub(crate) ca: Ca,
    points: [u8; 4],
}

impl RecordedKind {
    /// True for those of `certificate`, whatever their anchor: as far as its issuer's name and its distribution points
    /// tell.
    pub(crate) fn is_like(&self, certificate: &Certificate) -> bool {
        self.ca.is_named(certificate.issuer_hash()) && self.points == points(certificate)
    }

    /// True if the path ends at the key of `anchor`.
    pub(crate) fn ends_at(&self, anchor: &Certificate) -> bool {
        self.anchor == key_of(anchor)
    }

    /// True for certificates without distribution points.
    pub(crate) fn has_no_points(&self) -> bool {
        self.points == [0; 4]
    }

    /// The kinds of the certificates in a [path](ike_proto::PeerCertificate::path); none if it cannot be read.
    pub fn of_path(path: &[u8]) -> Vec<Self> {
        Record::of_path(path).into_iter().map(|record| record.kind).collect()
    }
}

/// A CA by its name and its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ca {
    name: [u8; 8],
    key: [u8; 8],
}

impl Ca {
    fn of(ca: &Certificate) -> Self {
        Self { name: first(ca.subject_hash().octets()), key: key_of(ca) }
    }

    /// True if it is `ca`.
    pub fn is(&self, ca: &Certificate) -> bool {
        self.is_named(ca.subject_hash()) && *self == Self::of(ca)
    }

    /// True if it has this name.
    pub fn is_named(&self, name: NameHash) -> bool {
        self.name == first(name.octets())
    }
}

/// The peer's own key, as a path has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerKeyHash {
    /// It was trusted as a key of `pubkeys`, whatever certificates there were.
    pub raw: bool,
    hash: [u8; 8],
}

impl PeerKeyHash {
    fn split(octets: &[u8]) -> Option<(Self, PathSchemes<'_>, &[u8])> {
        let (form, octets) = octets.split_first()?;
        let (hash, octets) = octets.split_first_chunk()?;
        let (schemes, octets) = match *form {
            SCHEMES => PathSchemes::split(octets)?,
            _ => (PathSchemes(&[]), octets),
        };
        Some((Self { raw: *form == RAW, hash: *hash }, schemes, octets))
    }

    /// That of a [path](ike_proto::PeerCertificate::path); `None` if it cannot be read.
    pub fn of_path(path: &[u8]) -> Option<Self> {
        Some(Self::split(path)?.0)
    }

    /// True if it is the hash of this key.
    pub fn is(self, spki: &[u8]) -> bool {
        self.hash == first(&sha256(spki))
    }
}

/// The schemes of the program in a path: the first octets of the hashes of the AlgorithmIdentifiers of their keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathSchemes<'a>(&'a [[u8; 8]]);

impl<'a> PathSchemes<'a> {
    fn split(octets: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (count, octets) = octets.split_first()?;
        let (schemes, octets) = octets.split_at_checked(8 * usize::from(*count))?;
        Some((Self(schemes.as_chunks().0), octets))
    }

    /// Those of a [path](ike_proto::PeerCertificate::path); none if it cannot be read.
    pub fn of_path(path: &'a [u8]) -> Self {
        PeerKeyHash::split(path).map_or(Self(&[]), |(_, schemes, _)| schemes)
    }

    /// True if `chain` names all of them.
    pub fn are_named(&self, chain: &SchemeConstraints) -> bool {
        let is_named =
            |hash: &[u8; 8]| chain.schemes.iter().any(|scheme| scheme_hash(scheme) == *hash);
        self.0.iter().all(is_named)
    }
}

fn scheme_hash(scheme: &SignatureScheme) -> [u8; 8] {
    first(&sha256(scheme.distinct_identifier()))
}

/// The form of a key of `pubkeys`.
const RAW: u8 = 1;
/// The form of a key in a certificate whose path has schemes of the program.
const SCHEMES: u8 = 2;

/// The octets for a peer with the key `spki`, which is `raw` if it was trusted as a key of `pubkeys`. The anchor of the path
/// is last. `schemes` are those of the program in it.
pub(crate) fn write_path(
    spki: &[u8],
    raw: bool,
    path: &[Arc<Certificate>],
    schemes: &[SignatureScheme],
) -> Vec<u8> {
    // A path has at most nine signatures.
    let count = u8::try_from(schemes.len()).unwrap_or(u8::MAX);
    let schemes = schemes.iter().take(count.into());
    let form = if count > 0 { SCHEMES } else { 0 };
    let mut out = vec![if raw { RAW } else { form }];
    out.extend(first::<8>(&sha256(spki)));
    if !raw && count > 0 {
        out.push(count);
        out.extend(schemes.flat_map(scheme_hash));
    }
    let (Some(anchor), Some(1..)) = (path.last(), path.len().checked_sub(1)) else {
        return out;
    };
    for (certificate, issuer) in path.iter().zip(path.iter().skip(1)) {
        Record::of(certificate, issuer, anchor).write(&mut out);
    }
    out
}

impl Record {
    fn of(certificate: &Certificate, issuer: &Certificate, anchor: &Certificate) -> Self {
        let (anchor, points) = (key_of(anchor), points(certificate));
        let kind = RecordedKind { anchor, ca: Ca::of(issuer), points };
        Self { kind, serial: SerialKey::of(certificate.serial()) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let RecordedKind { ca, points, .. } = self.kind;
        out.extend(ca.name);
        out.extend(ca.key);
        out.extend(points);
        let serial = self.serial.octets();
        out.push(serial.len() as u8);
        out.extend(serial);
    }

    /// The certificates in a [path](ike_proto::PeerCertificate::path) but the anchor, the peer's own first; none if it
    /// cannot be read.
    pub fn of_path(path: &[u8]) -> Vec<Self> {
        Self::read_all(path).unwrap_or_default()
    }

    /// The records of a path; `None` if there is something else.
    pub(crate) fn read_all(octets: &[u8]) -> Option<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        let (_, _, mut octets) = PeerKeyHash::split(octets)?;
        while !octets.is_empty() {
            let (name, rest) = octets.split_first_chunk()?;
            let (key, rest) = rest.split_first_chunk()?;
            let (points, rest) = rest.split_first_chunk()?;
            let (length, rest) = rest.split_first()?;
            let (serial, rest) = rest.split_at_checked(usize::from(*length))?;
            let (ca, serial) = (Ca { name: *name, key: *key }, SerialKey::from_octets(serial)?);
            all.push(Self { kind: RecordedKind { anchor: ca.key, ca, points: *points }, serial });
            octets = rest;
        }
        // The issuer of the last one is the anchor of all.
        if let Some(anchor) = all.last().map(|last| last.kind.ca.key) {
            all.iter_mut().for_each(|record| record.kind.anchor = anchor);
        }
        Some(all)
    }
}

fn key_of(ca: &Certificate) -> [u8; 8] {
    first(&sha256(ca.spki()))
}

fn points(certificate: &Certificate) -> [u8; 4] {
    match certificate.crl_points() {
        [] => [0; 4],
        // What was read can be written.
        points => first(&sha256(&points.to_vec().to_der().unwrap_or_default())),
    }
}

fn sha256(octets: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, octets).as_ref());
    hash
}

fn first<const N: usize>(hash: &[u8; 32]) -> [u8; N] {
    std::array::from_fn(|at| hash.get(at).copied().unwrap_or_default())
}

/// A certificate that was accepted, with its issuers up to the anchor: an example of all of its kind. Lists count for
/// these as they count for the example.
#[derive(Debug, Clone)]
pub(crate) struct Example {
    pub certificate: Arc<Certificate>,
    /// Its issuer first; the anchor last. There is at least one.
    pub issuers: Vec<Arc<Certificate>>,
    pub points: Points,
}

/// The distribution points of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Points {
    /// Those of its kind.
    Same,
    /// It has none, and those of its kind are not known.
    Unknown,
    /// Others.
    Other,
}

impl Example {
    /// True if it has the distribution points of its kind.
    pub fn is_exact(&self) -> bool {
        self.points == Points::Same
    }

    /// The certificate and its issuer.
    pub fn link(&self) -> Option<(&Arc<Certificate>, &Arc<Certificate>)> {
        Some((&self.certificate, self.issuers.first()?))
    }

    /// The issuer and the anchor, which may be the same.
    pub fn ends(&self) -> Option<(&Arc<Certificate>, &Arc<Certificate>)> {
        Some((self.issuers.first()?, self.issuers.last()?))
    }
}

/// Examples of accepted certificates. Clones share them, and so do successive configurations.
#[derive(Clone, Default)]
pub(crate) struct Examples(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    all: HashMap<RecordedKind, Example>,
    oldest_first: VecDeque<RecordedKind>,
    /// Those that make no room, and how often they are held.
    held: HashMap<RecordedKind, usize>,
    awaited: u64,
}

impl Known {
    /// Lets the oldest go that are not held.
    fn make_room(&mut self) {
        while self.oldest_first.len() > MOST_EXAMPLES + self.held.len()
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            if self.held.contains_key(&oldest) {
                self.oldest_first.push_back(oldest);
            } else {
                self.all.remove(&oldest);
            }
        }
    }
}

impl Examples {
    /// Keeps the certificates of a path that leads to a trusted CA, the anchor last.
    pub fn keep(&self, path: &[Arc<Certificate>]) {
        for (at, certificate) in path.iter().enumerate() {
            let issuers = path.get(at + 1..).unwrap_or_default();
            let (Some(issuer), Some(anchor)) = (issuers.first(), issuers.last()) else { return };
            let key = Record::of(certificate, issuer, anchor).kind;
            let mut known = self.known();
            let same = |old: &Example| {
                let urls = old.certificate.ocsp_urls();
                // Only the responders that the example names are asked.
                old.issuers.iter().map(|ca| ca.der()).eq(issuers.iter().map(|ca| ca.der()))
                    && certificate.ocsp_urls().iter().all(|url| urls.contains(url))
            };
            if known.all.get(&key).is_some_and(same) {
                continue;
            }
            let certificate = Arc::clone(certificate);
            let example = Example { certificate, issuers: issuers.to_vec(), points: Points::Same };
            if known.all.insert(key, example).is_none() {
                known.oldest_first.push_back(key);
                known.awaited += u64::from(known.held.contains_key(&key));
            }
            known.make_room();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps examples of these kinds until they are released as often.
    pub fn hold(&self, kinds: &[RecordedKind]) {
        let mut known = self.known();
        for kind in kinds {
            *known.held.entry(*kind).or_default() += 1;
        }
    }

    pub fn release(&self, kinds: &[RecordedKind]) {
        let mut known = self.known();
        for kind in kinds {
            if let Entry::Occupied(mut count) = known.held.entry(*kind) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        known.make_room();
    }

    /// How often there was a first example of a kind that is held.
    pub fn awaited(&self) -> u64 {
        self.known().awaited
    }

    /// An example of a certificate, at best with the same distribution points.
    pub fn of(&self, kind: RecordedKind) -> Option<Example> {
        let known = self.known();
        if let Some(example) = known.all.get(&kind) {
            return Some(example.clone());
        }
        let mut others = known
            .all
            .iter()
            .filter(|(other, _)| (other.anchor, other.ca) == (kind.anchor, kind.ca));
        let other = others.next().map(|(_, example)| example.clone());
        other.map(|example| Example { points: Points::Other, ..example })
    }
}

impl fmt::Debug for Examples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known();
        f.debug_tuple("Examples").field(&known.all.len()).finish()
    }
}

/// Most examples that are not held; the oldest makes room. Each has the certificate of one peer.
const MOST_EXAMPLES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `Record::read_all`, take a serial number of any length.
    #[test]
    fn a_path_is_read_as_it_was_written_and_nothing_else_is_read() {
        let ca = Ca { name: [1; 8], key: [2; 8] };
        let serials = [&[7][..], &[8; 20], &[9; 40]];
        let kind = RecordedKind { anchor: ca.key, ca, points: [3; 4] };
        let record = |serial: &&[u8]| Record { kind, serial: SerialKey::of(serial) };
        let all: Vec<Record> = serials.iter().map(record).collect();
        let mut octets = write_path(b"key", true, &[], &[]);
        assert_eq!(Record::read_all(&octets), Some(Vec::new()));
        all.iter().for_each(|one| one.write(&mut octets));
        assert_eq!(octets.len(), 9 + 3 * 21 + 1 + 20 + 21);
        assert_eq!(Record::read_all(&octets), Some(all));
        let key = PeerKeyHash::of_path(&octets).unwrap();
        assert!(key.raw && key.is(b"key") && !key.is(b"other"));
        for cut in [0, 1, 8, 10, 16, 29, 30, octets.len() - 1] {
            assert_eq!(Record::read_all(&octets[..cut]), None, "{cut}");
        }
        let long = [&[0; 29][..], &[22], &[0; 22]].concat();
        assert_eq!(Record::read_all(&long), None);
    }
}
