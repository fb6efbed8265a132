//! The index of IKE SAs that are up, by the certificates of their peers.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::pki::{Answerer, FetchRequest, Record, RecordedKind, RevokedCertificate};
use ike_proto::{IkeSaId, PeerCertificate};

use super::super::Wanted;

#[derive(Debug, Default)]
pub(super) struct Known {
    pub sas: HashMap<IkeSaId, Sa>,
    /// How many SAs each connection has here. The names are those of the SAs.
    pub connections: HashMap<Arc<str>, usize>,
    /// How many SAs depend on lists about certificates of this kind.
    pub kinds: HashMap<(Arc<str>, RecordedKind), usize>,
    /// The SAs that depend on each certificate. Certificates of one kind stand beside each other.
    pub of_certificate: BTreeSet<(Record, IkeSaId)>,
    /// Certificates about which it is to be looked whether responders are to be asked.
    pub unasked: Vec<Record>,
    /// When responders are asked again about certificates.
    pub asks: HashMap<Record, Ask>,
    /// Responders have been asked: it is to be looked when that is due again.
    pub asked_again: bool,
    /// SAs that came up, or were rekeyed, and are to be judged.
    pub fresh: Vec<IkeSaId>,
    /// All are to be judged: there are other lists or responses.
    pub all: bool,
    /// It is to be looked when lists are due: there are other lists, or SAs that depend on others.
    pub renew: bool,
    /// SAs whose peer was accepted unchecked.
    pub unchecked: usize,
    /// SAs that end at a limited rate, by connection and by the list that revokes their certificates.
    pub brakes: HashMap<(Arc<str>, String), VecDeque<Verdict>>,
}

/// When responders are asked again about a certificate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub at: SystemTime,
    /// How long they were left alone because they did not help.
    pub pause: Duration,
}

/// An IKE SA whose peer has shown a certificate.
#[derive(Debug)]
pub(super) struct Sa {
    pub connection: Arc<str>,
    pub certificates: Box<[Arc<PeerCertificate>]>,
    pub state: State,
}

/// An SA that is to be judged, with its connection.
pub(super) type Asked = (IkeSaId, Arc<str>, Box<[Arc<PeerCertificate>]>);

/// What came of judging SAs.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub revoked: Vec<Verdict>,
    pub good: Vec<IkeSaId>,
    /// SAs about which newer lists are to be fetched first.
    pub outdated: HashMap<Wanted, (FetchRequest, Vec<IkeSaId>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// There was a warning that a certificate is revoked.
    Warned,
    Ending,
}

/// An SA with a revoked certificate.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub ike: IkeSaId,
    pub connection: Arc<str>,
    pub subject: Box<str>,
    pub revoked: RevokedCertificate,
}

/// Verdicts of one connection by one list or response.
#[derive(Debug)]
pub(super) struct Group {
    pub verdicts: Vec<Verdict>,
    /// How many SAs the connection has.
    pub of: usize,
}

impl Group {
    /// True if so many may be a mistake of the CA.
    pub fn is_suspicious(&self) -> bool {
        self.verdicts.len() > FEW && self.verdicts.len() * 2 > self.of
    }
}

impl Known {
    /// Returns the kinds that were not there.
    pub fn add(
        &mut self,
        ike: IkeSaId,
        connection: &str,
        certificates: Box<[Arc<PeerCertificate>]>,
    ) -> Kinds {
        let mut kinds = Kinds::default();
        if let Some(old) = self.sas.remove(&ike) {
            kinds.gone = self.forget(ike, &old);
        }
        let known = self.connections.get_key_value(connection);
        let connection = known.map_or_else(|| Arc::from(connection), |(name, _)| Arc::clone(name));
        *self.connections.entry(Arc::clone(&connection)).or_default() += 1;
        for record in records_of(&certificates) {
            let count = self.kinds.entry((Arc::clone(&connection), record.kind)).or_default();
            *count += 1;
            if *count == 1 {
                kinds.new.push(record.kind);
                self.renew = true;
            }
            if !self.has(&record) {
                self.unasked.push(record);
            }
            self.of_certificate.insert((record, ike));
        }
        self.unchecked += usize::from(is_unchecked(&certificates));
        self.fresh.push(ike);
        let sa = Sa { connection, certificates, state: State::Good };
        self.sas.insert(ike, sa);
        kinds
    }

    pub fn moved(&mut self, old: IkeSaId, new: IkeSaId) -> Kinds {
        let mut kinds = Kinds::default();
        // An SA whose peer has shown no certificate is not here.
        if let Some(mut sa) = self.sas.remove(&old) {
            // A verdict about the old SA, or its end, may come too late for the new one.
            if sa.state == State::Ending {
                sa.state = State::Good;
            }
            self.fresh.push(new);
            let records = records_of(&sa.certificates);
            if let Some(other) = self.sas.insert(new, sa) {
                kinds.gone = self.forget(new, &other);
            }
            for record in records {
                self.of_certificate.remove(&(record, old));
                self.of_certificate.insert((record, new));
            }
        }
        kinds
    }

    pub fn remove(&mut self, ike: IkeSaId) -> Kinds {
        let gone = self.sas.remove(&ike).map(|sa| self.forget(ike, &sa)).unwrap_or_default();
        Kinds { gone, ..Kinds::default() }
    }

    /// Returns the kinds of which it was the last one.
    pub fn forget(&mut self, ike: IkeSaId, sa: &Sa) -> Vec<RecordedKind> {
        less(&mut self.connections, Arc::clone(&sa.connection));
        self.unchecked -= usize::from(is_unchecked(&sa.certificates));
        let records = records_of(&sa.certificates);
        for record in &records {
            self.of_certificate.remove(&(*record, ike));
            if !self.has(record) {
                self.asks.remove(record);
            }
        }
        let mut kinds: Vec<_> = records.into_iter().map(|record| record.kind).collect();
        kinds.retain(|kind| less(&mut self.kinds, (Arc::clone(&sa.connection), *kind)));
        kinds
    }

    /// True if a live SA depends on this certificate.
    pub fn has(&self, record: &Record) -> bool {
        self.sas_of(record).next().is_some()
    }

    /// The SAs that depend on this certificate.
    pub fn sas_of(&self, record: &Record) -> impl Iterator<Item = IkeSaId> {
        let all = (*record, IkeSaId(0))..=(*record, LAST);
        self.of_certificate.range(all).map(|(_, ike)| *ike)
    }

    /// Looks at all certificates about which no responder is to be asked yet.
    pub fn look_for_responders(&mut self) {
        let mut all: Vec<Record> = self.of_certificate.iter().map(|(record, _)| *record).collect();
        all.dedup();
        all.retain(|record| !self.asks.contains_key(record));
        self.unasked = all;
    }

    /// At most so many certificates about which responders are to be asked at `now`, or about which that is not known.
    pub fn ripe(&mut self, now: SystemTime, most: usize) -> Vec<Record> {
        let unasked = self.unasked.split_off(self.unasked.len().saturating_sub(most));
        let mut ripe: Vec<Record> = unasked.into_iter().filter(|record| self.has(record)).collect();
        let due = self.asks.iter().filter(|(_, ask)| ask.at <= now).map(|(record, _)| *record);
        ripe.extend(due.take(most));
        ripe
    }

    /// When it is to be looked again.
    pub fn next_ask(&self, now: SystemTime) -> Option<SystemTime> {
        match self.unasked.is_empty() {
            true => self.asks.values().map(|ask| ask.at).min(),
            false => Some(now),
        }
    }

    /// Sets when responders are asked again about a certificate that a live SA depends on.
    pub fn set_ask(&mut self, record: &Record, ask: Option<Ask>) {
        match ask.filter(|_| self.has(record)) {
            Some(ask) => self.asks.insert(*record, ask),
            None => self.asks.remove(record),
        };
    }

    /// The SAs that are to be judged now because they are new, and whether all others are.
    pub fn take(&mut self) -> (Vec<IkeSaId>, bool) {
        (std::mem::take(&mut self.fresh), std::mem::take(&mut self.all))
    }

    /// The next `most` certificates in the index after this one.
    pub fn certificates_after(&self, after: Option<Record>, most: usize) -> Vec<Record> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded((after, LAST)));
        let mut found: Vec<Record> = Vec::new();
        for (record, _) in self.of_certificate.range((from, Bound::Unbounded)) {
            if found.last() != Some(record) {
                if found.len() == most {
                    break;
                }
                found.push(*record);
            }
        }
        found
    }

    /// The connections that have SAs with certificates of each kind.
    pub fn connections_by_kind(&self) -> HashMap<RecordedKind, Vec<Arc<str>>> {
        let mut all: HashMap<RecordedKind, Vec<Arc<str>>> = HashMap::new();
        for (connection, kind) in self.kinds.keys() {
            all.entry(*kind).or_default().push(Arc::clone(connection));
        }
        all
    }

    /// Those of them that are up and do not end already.
    pub fn asked(&self, ids: &[IkeSaId]) -> Vec<Asked> {
        let found = ids.iter().filter_map(|ike| {
            let sa = self.sas.get(ike).filter(|sa| sa.state != State::Ending)?;
            Some((*ike, Arc::clone(&sa.connection), sa.certificates.clone()))
        });
        found.collect()
    }

    /// No SA but these has a revoked certificate; see [`calm`](Self::calm).
    pub fn calm_others(&mut self, suspects: &[IkeSaId]) {
        let suspects: HashSet<IkeSaId> = suspects.iter().copied().collect();
        for (ike, sa) in &mut self.sas {
            if sa.state == State::Warned && !suspects.contains(ike) {
                sa.state = State::Good;
            }
        }
    }

    /// They are not revoked any more. If that changes, there is another warning.
    pub fn calm(&mut self, good: &[IkeSaId]) {
        for ike in good {
            if let Some(sa) = self.sas.get_mut(ike).filter(|sa| sa.state == State::Warned) {
                sa.state = State::Good;
            }
        }
    }

    /// True if SAs of the `group` end at a limited rate: they are in line then. The caller of a new line sees to
    /// their ends.
    pub fn brake(&mut self, group: &mut Group, is_suspicious: bool) -> Brake {
        let Some(first) = group.verdicts.first() else { return Brake::Line };
        let key = (Arc::clone(&first.connection), first.revoked.by.clone());
        match self.brakes.entry(key) {
            Entry::Occupied(mut line) => {
                line.get_mut().extend(std::mem::take(&mut group.verdicts));
                Brake::Line
            }
            Entry::Vacant(none) if is_suspicious => {
                let key = none.key().clone();
                none.insert(std::mem::take(&mut group.verdicts).into());
                Brake::New(key)
            }
            Entry::Vacant(_) => Brake::None,
        }
    }

    /// The next of a line; the line ends with the last one.
    pub fn next_of(&mut self, key: &(Arc<str>, String)) -> Option<Verdict> {
        let next = self.brakes.get_mut(key)?.pop_front();
        if next.is_none() {
            self.brakes.remove(key);
        }
        next
    }

    /// Sets the state of an SA; false if it has that state, or is gone.
    pub fn set(&mut self, ike: IkeSaId, state: State) -> bool {
        match self.sas.get_mut(&ike) {
            Some(sa) if sa.state != state => {
                sa.state = state;
                true
            }
            _ => false,
        }
    }

    pub fn grouped(&self, verdicts: Vec<Verdict>) -> Vec<Group> {
        let mut groups: HashMap<(Arc<str>, String), Group> = HashMap::new();
        for verdict in verdicts {
            let key = (Arc::clone(&verdict.connection), verdict.revoked.by.clone());
            let of = self.connections.get(&verdict.connection).copied().unwrap_or_default();
            let group = groups.entry(key).or_insert_with(|| Group { verdicts: Vec::new(), of });
            group.verdicts.push(verdict);
        }
        groups.into_values().collect()
    }
}

/// Whether SAs end at a limited rate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Brake {
    None,
    /// They do, after those in line.
    Line,
    /// They do, and there was no line.
    New((Arc<str>, String)),
}

/// Kinds of certificates that live SAs depend on since now, or no longer.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    pub new: Vec<RecordedKind>,
    pub gone: Vec<RecordedKind>,
}

impl Kinds {
    pub fn tell(self, answerer: &Answerer) {
        answerer.hold_examples(&self.new);
        answerer.release_examples(&self.gone);
    }
}

fn records_of(certificates: &[Arc<PeerCertificate>]) -> Vec<Record> {
    certificates.iter().flat_map(|one| Record::of_path(&one.path)).collect()
}

fn is_unchecked(certificates: &[Arc<PeerCertificate>]) -> bool {
    certificates.iter().any(|one| one.unchecked)
}

/// Counts one less of `key`; true if it was the last.
fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) -> bool {
    let Entry::Occupied(mut count) = counts.entry(key) else { return false };
    *count.get_mut() -= 1;
    let last = *count.get() == 0;
    if last {
        count.remove();
    }
    last
}

/// No SA comes after it.
const LAST: IkeSaId = IkeSaId(u64::MAX);
/// So many SAs of a connection may end by one list, whatever part of them they are.
const FEW: usize = 10;
