//! IKE SAs that are up, by the certificates of their peers: an SA one of whose certificates is found to be revoked
//! ends, or there is a warning (`revocation_live`). Lists about these certificates are fetched again when they are due.
//!
//! The engine's SA has no part in this. The index holds the same [`PeerCertificate`] as the SA, and hears of SAs by
//! events. The rule is that of a login ([`Standings`](::pki::Standings)).

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ::pki::{FetchKind, FetchRequest, RecordedKind, RevokedCertificate};
use ike_proto::{Command, Endpoint, Event, IkeSaId, IkeStatus, PeerCertificate};
use ike_tokio::Handle;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::{Credentials, wanted};

/// The index, and what is to be done about it.
#[derive(Debug, Default)]
pub(super) struct Live {
    known: Mutex<Known>,
    changed: Notify,
    ended: AtomicU64,
    /// Spreads fetches.
    spread: RandomState,
}

#[derive(Debug, Default)]
struct Known {
    sas: HashMap<IkeSaId, Sa>,
    /// How many SAs each connection has here. The names are those of the SAs.
    connections: HashMap<Arc<str>, usize>,
    /// How many SAs depend on lists about certificates of this kind.
    kinds: HashMap<(Arc<str>, RecordedKind), usize>,
    /// SAs that came up, or were rekeyed, and are to be judged.
    fresh: Vec<IkeSaId>,
    /// All are to be judged: there are other lists or responses.
    all: bool,
    /// It is to be looked when lists are due: there are other lists, or SAs that depend on others.
    renew: bool,
    /// SAs whose peer was accepted unchecked.
    unchecked: usize,
}

/// An IKE SA whose peer has shown a certificate.
#[derive(Debug)]
struct Sa {
    connection: Arc<str>,
    certificates: Box<[Arc<PeerCertificate>]>,
    state: State,
}

/// An SA that is to be judged, with its connection.
type Asked = (IkeSaId, Arc<str>, Box<[Arc<PeerCertificate>]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// There was a warning that a certificate is revoked.
    Warned,
    Ending,
}

/// An SA with a revoked certificate.
#[derive(Debug, Clone)]
struct Verdict {
    ike: IkeSaId,
    connection: Arc<str>,
    subject: Box<str>,
    revoked: RevokedCertificate,
}

/// Verdicts of one connection by one list or response.
#[derive(Debug)]
struct Group {
    verdicts: Vec<Verdict>,
    /// How many SAs the connection has.
    of: usize,
}

impl Group {
    /// True if so many may be a mistake of the CA.
    fn is_suspicious(&self) -> bool {
        self.verdicts.len() > FEW && self.verdicts.len() * 2 > self.of
    }
}

impl Known {
    fn add(&mut self, ike: IkeSaId, connection: &str, certificates: Box<[Arc<PeerCertificate>]>) {
        let known = self.connections.get_key_value(connection);
        let connection = known.map_or_else(|| Arc::from(connection), |(name, _)| Arc::clone(name));
        *self.connections.entry(Arc::clone(&connection)).or_default() += 1;
        for kind in kinds(&certificates) {
            let count = self.kinds.entry((Arc::clone(&connection), kind)).or_default();
            *count += 1;
            self.renew |= *count == 1;
        }
        self.unchecked += usize::from(is_unchecked(&certificates));
        self.fresh.push(ike);
        let sa = Sa { connection, certificates, state: State::Good };
        if let Some(old) = self.sas.insert(ike, sa) {
            self.forget(&old);
        }
    }

    fn moved(&mut self, old: IkeSaId, new: IkeSaId) {
        // An SA whose peer has shown no certificate is not here.
        if let Some(mut sa) = self.sas.remove(&old) {
            // A verdict about the old SA, or its end, may come too late for the new one.
            if sa.state == State::Ending {
                sa.state = State::Good;
            }
            self.fresh.push(new);
            if let Some(other) = self.sas.insert(new, sa) {
                self.forget(&other);
            }
        }
    }

    fn remove(&mut self, ike: IkeSaId) {
        if let Some(sa) = self.sas.remove(&ike) {
            self.forget(&sa);
        }
    }

    fn forget(&mut self, sa: &Sa) {
        less(&mut self.connections, Arc::clone(&sa.connection));
        for kind in kinds(&sa.certificates) {
            less(&mut self.kinds, (Arc::clone(&sa.connection), kind));
        }
        self.unchecked -= usize::from(is_unchecked(&sa.certificates));
    }

    /// Those to be judged now. Those that end already are not among them.
    fn take(&mut self) -> Vec<Asked> {
        let fresh = std::mem::take(&mut self.fresh);
        let ids: Vec<IkeSaId> = match std::mem::take(&mut self.all) {
            true => self.sas.keys().copied().collect(),
            false => fresh,
        };
        let found = ids.into_iter().filter_map(|ike| {
            let sa = self.sas.get(&ike).filter(|sa| sa.state != State::Ending)?;
            Some((ike, Arc::clone(&sa.connection), sa.certificates.clone()))
        });
        found.collect()
    }

    /// Sets the state of an SA; false if it has that state, or is gone.
    fn set(&mut self, ike: IkeSaId, state: State) -> bool {
        match self.sas.get_mut(&ike) {
            Some(sa) if sa.state != state => {
                sa.state = state;
                true
            }
            _ => false,
        }
    }

    fn grouped(&self, verdicts: Vec<Verdict>) -> Vec<Group> {
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

fn kinds(certificates: &[Arc<PeerCertificate>]) -> Vec<RecordedKind> {
    certificates.iter().flat_map(|one| RecordedKind::of_path(&one.path)).collect()
}

fn is_unchecked(certificates: &[Arc<PeerCertificate>]) -> bool {
    certificates.iter().any(|one| one.unchecked)
}

/// Counts one less of `key`.
fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Live {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other lists or responses are at hand, or other terms.
    pub(super) fn judge_all(&self) {
        {
            let mut known = self.known();
            (known.all, known.renew) = (true, true);
        }
        self.changed.notify_one();
    }

    /// When a list that is due at `next` is fetched again.
    fn at(&self, kind: RecordedKind, (next, spread): (SystemTime, Duration)) -> SystemTime {
        let share = self.spread.hash_one((kind, next)) % SHARES;
        next + spread.min(LONGEST_SPREAD).mul_f64(share as f64 / SHARES as f64)
    }
}

impl Credentials {
    /// IKE SAs that were ended because a certificate of their peer was found to be revoked.
    pub fn revoked_sas(&self) -> u64 {
        self.0.live.ended.load(Ordering::Relaxed)
    }

    /// IKE SAs that are up, and whose peer was accepted although the status of a certificate was not known and URLs
    /// were asked.
    pub fn unchecked_sas(&self) -> usize {
        self.0.live.known().unchecked
    }

    /// Takes note of an event of `endpoint`.
    pub(crate) fn note(&self, event: &Event, endpoint: &Endpoint) {
        let live = &self.0.live;
        match event {
            Event::IkeUp(ike) => {
                if let Some(status) = endpoint.ike_sa(*ike) {
                    self.came_up(*ike, status);
                }
            }
            Event::IkeRekeyed { old, new } => {
                live.known().moved(*old, *new);
                live.changed.notify_one();
            }
            Event::IkeDown { ike, established: true, .. } => live.known().remove(*ike),
            _ => {}
        }
    }

    fn came_up(&self, ike: IkeSaId, status: IkeStatus) {
        let rounds = status.remote_auth.into_iter();
        let certificates: Box<[_]> = rounds.filter_map(|used| used.certificate).collect();
        if !certificates.is_empty() {
            self.0.live.known().add(ike, &status.connection, certificates);
            self.0.live.changed.notify_one();
        }
    }

    /// Ends IKE SAs of `handle` whose peers' certificates are found to be revoked, or warns of them, and fetches
    /// lists about the others when they are due. It ends with the drivers. A program runs it as a task, once, and
    /// stops the task when it stops the drivers.
    pub async fn watch_live(self, handle: Handle) {
        let mut next = Instant::now() + LOOK_AT_LEAST;
        loop {
            let _ = tokio::time::timeout_at(next, self.0.live.changed.notified()).await;
            let verdicts = self.judge_live().await;
            let groups = self.0.live.known().grouped(verdicts);
            for group in groups {
                if self.act(&handle, group).await.is_err() {
                    return;
                }
            }
            let renew = std::mem::take(&mut self.0.live.known().renew);
            if renew || next <= Instant::now() {
                next = Instant::now() + self.renew_lists().await;
            }
        }
    }

    /// Judges the SAs that are to be judged.
    async fn judge_live(&self) -> Vec<Verdict> {
        let sas = self.0.live.known().take();
        if sas.is_empty() || self.present().knows_no_revocation() {
            return Vec::new();
        }
        let judged = self.work(move |answerer| {
            let mut standings = answerer.standings(SystemTime::now());
            let verdicts = sas.into_iter().filter_map(|(ike, connection, certificates)| {
                let (revoked, subject) = certificates.iter().find_map(|one| {
                    Some((standings.revoked(&connection, &one.path)?, one.subject.clone()))
                })?;
                Some(Verdict { ike, connection, subject, revoked })
            });
            verdicts.collect::<Vec<_>>()
        });
        judged.await.unwrap_or_default()
    }

    /// Does with the SAs of `group` what `revocation_live` says. An error: the drivers have ended.
    async fn act(&self, handle: &Handle, mut group: Group) -> Result<(), ike_tokio::Stopped> {
        let Some(first) = group.verdicts.first() else { return Ok(()) };
        if !self.present().ends_live(&first.connection) {
            for verdict in group.verdicts {
                self.warn(handle, &verdict).await?;
            }
            return Ok(());
        }
        let suspicious = group.is_suspicious();
        let known = || self.0.live.known();
        group.verdicts.retain(|verdict| known().set(verdict.ike, State::Ending));
        if !suspicious {
            for verdict in &group.verdicts {
                self.end(handle, verdict).await?;
            }
            return Ok(());
        }
        if let Some(Verdict { connection, revoked, .. }) = group.verdicts.first() {
            tracing::error!(
                %connection, ends = group.verdicts.len(), of = group.of,
                "{} revokes the certificates of more than half of the peers: their IKE SAs end, {A_SECOND} a second; \
                 if the list is wrong, remove it, or set `revocation_live = no`, and reload",
                revoked.by
            );
        }
        let (this, handle) = (self.clone(), handle.clone());
        tokio::spawn(async move { this.end_slowly(&handle, group.verdicts).await });
        Ok(())
    }

    /// An SA goes on, and there is one warning of it.
    async fn warn(&self, handle: &Handle, verdict: &Verdict) -> Result<(), ike_tokio::Stopped> {
        let Verdict { ike, connection, subject, revoked } = verdict;
        if self.0.live.known().set(*ike, State::Warned) {
            let remote = who(handle, *ike).await?;
            tracing::warn!(
                ike = ike.0, %connection, %remote, %subject,
                "IKE SA goes on, although a {revoked}: end it by `swanctl --terminate --ike-id {}`", ike.0
            );
        }
        Ok(())
    }

    async fn end(&self, handle: &Handle, verdict: &Verdict) -> Result<(), ike_tokio::Stopped> {
        let Verdict { ike, connection, subject, revoked } = verdict;
        let remote = who(handle, *ike).await?;
        // If it was rekeyed meanwhile, the new one is judged.
        if handle.command(Command::ForgetIke(*ike)).await?.is_ok() {
            self.0.live.ended.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                ike = ike.0, %connection, %remote, %subject,
                "IKE SA ended: a {revoked}. The peer needs another certificate"
            );
        }
        Ok(())
    }

    /// Ends SAs at a limited rate. Before the end of each it looks whether the list still says so.
    async fn end_slowly(&self, handle: &Handle, verdicts: Vec<Verdict>) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / A_SECOND);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for verdict in verdicts {
            ticks.tick().await;
            if self.still_ends(&verdict).await {
                if self.end(handle, &verdict).await.is_err() {
                    return;
                }
            } else {
                self.0.live.known().set(verdict.ike, State::Good);
            }
        }
    }

    async fn still_ends(&self, verdict: &Verdict) -> bool {
        let Some(certificates) = ({
            let known = self.0.live.known();
            known.sas.get(&verdict.ike).map(|sa| sa.certificates.clone())
        }) else {
            return false;
        };
        let connection = Arc::clone(&verdict.connection);
        let judged = self.work(move |answerer| {
            let mut standings = answerer.standings(SystemTime::now());
            answerer.ends_live(&connection)
                && certificates
                    .iter()
                    .any(|one| standings.revoked(&connection, &one.path).is_some())
        });
        judged.await.unwrap_or_default()
    }

    /// Has lists fetched that are due and that live SAs depend on. Returns how long to wait until the next is due.
    async fn renew_lists(&self) -> Duration {
        let kinds: Vec<_> = self.0.live.known().kinds.keys().cloned().collect();
        if kinds.is_empty() || self.present().knows_no_revocation() {
            return LOOK_AT_LEAST;
        }
        let this = self.clone();
        let now = SystemTime::now();
        let (fetches, next) = self
            .work(move |answerer| {
                let (mut fetches, mut next) = (Vec::new(), None::<SystemTime>);
                for (connection, kind) in kinds {
                    let Some(due) = answerer.list_due(&connection, kind, now) else { continue };
                    let mut at = this.0.live.at(kind, due);
                    if at <= now {
                        // A URL that has failed is asked again after some minutes.
                        at = now + AGAIN;
                        let fetch = answerer.list_again(&connection, kind, now);
                        fetches.extend(fetch.map(|fetch| (connection, kind, fetch)));
                    }
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
                (fetches, next)
            })
            .await
            .unwrap_or_default();
        for (connection, kind, fetch) in fetches {
            tokio::spawn(self.clone().renew(connection, kind, fetch));
        }
        let next = next.map(|next| next.duration_since(now).unwrap_or_default());
        next.unwrap_or(LOOK_AT_LEAST).clamp(LOOK_AT_MOST, LOOK_AT_LEAST)
    }

    /// Fetches a list unless somebody else has done so by the time it is this one's turn.
    async fn renew(self, connection: Arc<str>, kind: RecordedKind, fetch: FetchRequest) {
        let turn = self.turn(wanted(&fetch));
        let _turn = turn.lock().await;
        let now = SystemTime::now();
        let due = |due: (SystemTime, Duration)| due.0 <= now;
        let present = self.present();
        let again = present.list_again(&connection, kind, now);
        // The URL may have failed for another kind of certificates.
        if again.is_none_or(|again| wanted(&again) != wanted(&fetch))
            || !present.list_due(&connection, kind, now).is_some_and(due)
        {
            return;
        }
        let connections = match fetch.kind {
            FetchKind::Crl => &self.0.lists,
            FetchKind::Ocsp { .. } => &self.0.connections,
        };
        // They are never closed.
        if let Ok(_connection) = connections.acquire().await {
            let this = self.clone();
            // If it panics, the list is asked for again later.
            let _ = spawn_blocking(move || this.fetch_now(&fetch)).await;
        }
    }
}

/// The peer of an SA.
async fn who(handle: &Handle, ike: IkeSaId) -> Result<String, ike_tokio::Stopped> {
    let view = handle.view(ike).await?;
    let id = view.and_then(|view| view.status.remote_id);
    Ok(id.map_or_else(|| "unknown".to_owned(), |id| id.to_string()))
}

/// So many SAs of a connection may end by one list, whatever part of them they are.
const FEW: usize = 10;
/// Most SAs that end in a second if one list ends more.
const A_SECOND: u32 = 20;
/// How often to look at what is due, at the least and at the most: the clock may be set.
const LOOK_AT_LEAST: Duration = Duration::from_secs(3600);
const LOOK_AT_MOST: Duration = Duration::from_millis(100);
/// When to look again for a list that is due.
const AGAIN: Duration = Duration::from_secs(30);
/// The longest time after nextUpdate within which a list is fetched again.
const LONGEST_SPREAD: Duration = Duration::from_secs(600);
/// Steps of the spread.
const SHARES: u64 = 1 << 16;

#[cfg(test)]
mod tests;
