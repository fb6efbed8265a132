//! IKE SAs that are up, by the certificates of their peers: an SA one of whose certificates is found to be revoked
//! ends, or there is a warning (`revocation_live`). Lists about these certificates are fetched again when they are due,
//! and so are OCSP responses.
//!
//! The engine's SA has no part in this. The index holds the same [`PeerCertificate`](ike_proto::PeerCertificate) as the
//! SA, and hears of SAs by events. The rule is that of a login ([`Standings`](::pki::Standings)).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ::pki::{Answerer, FetchKind, FetchRequest, ListsDue, Record, RecordedKind, Standing};
use ike_proto::{Command, Endpoint, Event, IkeSaId, IkeStatus};
use ike_tokio::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use self::index::{Ask, Asked, Brake, Group, Judged, Known, State, Verdict};
use super::{Credentials, wanted};

/// The index, and what is to be done about it.
#[derive(Debug, Default)]
pub(super) struct Live {
    known: Mutex<Known>,
    changed: Notify,
    ended: AtomicU64,
    /// Spreads fetches.
    spread: RandomState,
    /// The URLs of lists that were asked for live SAs, and how long each is left alone.
    asked: Mutex<HashMap<String, Pause>>,
    /// So many fetches of lists for live SAs at a time: logins must not wait for them.
    turns: Turns,
    /// So many questions to responders for live SAs at a time. A slow responder must not keep lists from being fetched.
    questions: Turns,
}

#[derive(Debug)]
struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(RENEWALS))
    }
}

/// A URL is left alone for a time that grows while it does not help.
#[derive(Debug, Clone, Copy)]
struct Pause {
    from: Instant,
    length: Duration,
}

/// Judges `sas` at this moment. A newer list is asked for only at a URL that is `free`.
fn judged(answerer: &Answerer, sas: Vec<Asked>, free: &dyn Fn(&str) -> bool) -> Judged {
    let mut standings = answerer.standings(SystemTime::now());
    let mut judged = Judged::default();
    for (ike, connection, certificates) in sas {
        let mut fetch = None;
        let revoked = certificates.iter().find_map(|one| {
            match standings.standing(&connection, &one.path, free) {
                Standing::Good => None,
                Standing::Revoked(revoked) => Some((revoked, one.subject.clone())),
                Standing::Outdated(newer) => {
                    fetch = Some(newer);
                    None
                }
            }
        });
        match (revoked, fetch) {
            (Some((revoked, subject)), _) => {
                judged.revoked.push(Verdict { ike, connection, subject, revoked });
            }
            (None, Some(fetch)) => {
                let entry = judged.outdated.entry(wanted(&fetch));
                entry.or_insert_with(|| (fetch, Vec::new())).1.push(ike);
            }
            (None, None) => judged.good.push(ike),
        }
    }
    judged
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

    /// What was fetched is gone: each URL may be asked at once.
    pub(super) fn flushed(&self) {
        self.asked().clear();
        {
            let mut known = self.known();
            known.asks.clear();
            known.renew = true;
        }
        self.changed.notify_one();
    }

    /// True if an SA of this connection is up.
    pub(super) fn has(&self, connection: &str) -> bool {
        self.known().connections.contains_key(connection)
    }

    /// When what is `due` about certificates of a kind, or about one certificate, is fetched again.
    fn at(&self, about: impl Hash, due: &ListsDue) -> SystemTime {
        let share = self.spread.hash_one((about, due.at)) % SHARES;
        due.at + due.spread.min(LONGEST_SPREAD).mul_f64(share as f64 / SHARES as f64)
    }

    fn next_of(&self, line: &(Arc<str>, String)) -> Option<Verdict> {
        self.known().next_of(line)
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, Pause>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if `url` was not asked for live SAs lately.
    fn is_free(&self, url: &str, now: Instant) -> bool {
        self.asked().get(url).is_none_or(|pause| now >= pause.from + pause.length)
    }

    /// `url` was asked. It has `helped` if the list from there is not due again at once. One that has failed is left
    /// alone for some minutes anyway.
    fn pause(&self, url: &str, helped: bool, now: Instant) {
        let mut asked = self.asked();
        asked.retain(|_, pause| now < pause.from + 2 * LONGEST_PAUSE);
        let before = asked.get(url).filter(|_| !helped).map(|pause| 2 * pause.length);
        let length = before.unwrap_or(AGAIN).clamp(AGAIN, LONGEST_PAUSE);
        asked.insert(url.to_owned(), Pause { from: now, length });
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
                live.known().moved(*old, *new).tell(&self.present());
                live.changed.notify_one();
            }
            Event::IkeDown { ike, established: true, .. } => {
                live.known().remove(*ike).tell(&self.present());
            }
            _ => {}
        }
    }

    fn came_up(&self, ike: IkeSaId, status: IkeStatus) {
        let rounds = status.remote_auth.into_iter();
        let certificates: Box<[_]> = rounds.filter_map(|used| used.certificate).collect();
        if !certificates.is_empty() {
            let mut known = self.0.live.known();
            known.add(ike, &status.connection, certificates).tell(&self.present());
            drop(known);
            self.0.live.changed.notify_one();
        }
    }

    /// Ends IKE SAs of `handle` whose peers' certificates are found to be revoked, or warns of them, and fetches
    /// lists about the others when they are due. It ends with the drivers. A program runs it as a task, once, and
    /// stops the task when it stops the drivers.
    pub async fn watch_live(self, handle: Handle) {
        let mut next = Instant::now() + LOOK_AT_LEAST;
        let mut next_ask = next;
        let mut awaited = self.present().awaited_examples();
        loop {
            let _ =
                tokio::time::timeout_at(next.min(next_ask), self.0.live.changed.notified()).await;
            let more = self.present().awaited_examples();
            if more != awaited {
                // An SA that a ticket has resumed can be judged only now.
                awaited = more;
                let mut known = self.0.live.known();
                (known.all, known.renew) = (true, true);
            }
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
            let ask = {
                let mut known = self.0.live.known();
                if renew {
                    known.look_for_responders();
                }
                std::mem::take(&mut known.asked_again) || !known.unasked.is_empty()
            };
            if ask || next_ask <= Instant::now() {
                next_ask = Instant::now() + self.ask_responders().await;
            }
        }
    }

    /// The SAs that have a certificate which is known to be revoked. The index is asked about each certificate once.
    async fn suspects(&self) -> Vec<IkeSaId> {
        let connections = Arc::new(self.0.live.known().connections_by_kind());
        let (mut suspects, mut after) = (Vec::new(), None);
        loop {
            let some = self.0.live.known().certificates_after(after, PIECE);
            let Some(last) = some.last() else { return suspects };
            after = Some(*last);
            let connections = Arc::clone(&connections);
            let revoked = self.work(move |answerer| {
                let mut standings = answerer.standings(SystemTime::now());
                let mut is_revoked = |record: &Record| {
                    let mut of = connections.get(&record.kind).into_iter().flatten();
                    of.any(|connection| standings.is_revoked(connection, record))
                };
                some.into_iter().filter(|record| is_revoked(record)).collect::<Vec<_>>()
            });
            let revoked = revoked.await.unwrap_or_default();
            let known = self.0.live.known();
            suspects.extend(revoked.iter().flat_map(|record| known.sas_of(record)));
        }
    }

    /// Judges the SAs that are to be judged.
    async fn judge_live(&self) -> Vec<Verdict> {
        let (mut ids, all) = self.0.live.known().take();
        let mut verdicts = Vec::new();
        let knows_nothing = self.present().knows_no_revocation();
        if all {
            let suspects = if knows_nothing { Vec::new() } else { self.suspects().await };
            self.0.live.known().calm_others(&suspects);
            ids.extend(suspects);
            ids.sort_unstable();
            ids.dedup();
        }
        if knows_nothing {
            return verdicts;
        }
        // Others want the processors meanwhile.
        for some in ids.chunks(CHUNK) {
            let sas = self.0.live.known().asked(some);
            let this = self.clone();
            let free = move |url: &str| this.0.live.is_free(url, Instant::now());
            let judged = self.work(move |answerer| judged(answerer, sas, &free)).await;
            let Judged { revoked, good, outdated } = judged.unwrap_or_default();
            verdicts.extend(revoked);
            self.0.live.known().calm(&good);
            for (fetch, ids) in outdated.into_values() {
                tokio::spawn(self.clone().fetch_newer(fetch, ids));
            }
        }
        verdicts
    }

    /// Fetches a list before SAs end by an older one. They are judged again after that, whatever came of it.
    async fn fetch_newer(self, fetch: FetchRequest, ids: Vec<IkeSaId>) {
        let turn = self.turn(wanted(&fetch));
        let _turn = turn.lock().await;
        if self.0.live.is_free(&fetch.url, Instant::now()) {
            let url = fetch.url.clone();
            self.fetch_for_live(fetch).await;
            self.0.live.pause(&url, false, Instant::now());
        }
        self.0.live.known().fresh.extend(ids);
        self.0.live.changed.notify_one();
    }

    /// Makes a fetch, in its turn; false if its URL counts as failed.
    async fn fetch_for_live(&self, fetch: FetchRequest) -> bool {
        // It is never closed.
        let Ok(_turn) = self.0.live.turns.0.acquire().await else { return false };
        self.fetch_in_turn(fetch).await
    }

    async fn fetch_in_turn(&self, fetch: FetchRequest) -> bool {
        let connections = match fetch.kind {
            FetchKind::Crl => &self.0.lists,
            FetchKind::Ocsp { .. } => &self.0.connections,
        };
        // They are never closed.
        let Ok(_connection) = connections.acquire().await else { return false };
        let this = self.clone();
        // If it panics, the list or the response is asked for again later.
        spawn_blocking(move || this.fetch_now(&fetch, &this.0.fetcher)).await.unwrap_or_default()
    }

    /// Does with the SAs of `group` what `revocation_live` says. An error: the drivers have ended.
    async fn act(&self, handle: &Handle, mut group: Group) -> Result<(), ike_tokio::Stopped> {
        let Some(first) = group.verdicts.first().cloned() else { return Ok(()) };
        let ends = self.present().ends_live(&first.connection);
        let suspicious = group.is_suspicious();
        let state = if ends { State::Ending } else { State::Warned };
        let known = || self.0.live.known();
        group.verdicts.retain(|verdict| known().set(verdict.ike, state));
        let (connection, by) = (&first.connection, &first.revoked.by);
        let (many, of) = (group.verdicts.len(), group.of);
        if !ends {
            if suspicious && many > 0 {
                tracing::error!(
                    %connection, revoked = many, of,
                    "{by} revokes the certificates of more than half of the peers: their IKE SAs go on, as \
                     `revocation_live = no` says; the lines below name them"
                );
            }
            for verdict in &group.verdicts {
                self.warn(handle, verdict).await?;
            }
            return Ok(());
        }
        let brake = known().brake(&mut group, suspicious);
        if let Brake::New(key) = brake {
            tracing::error!(
                %connection, ends = many, of,
                "{by} revokes the certificates of more than half of the peers: their IKE SAs end, {A_SECOND} a second; \
                 if the list is wrong, set `revocation_live = no` and reload; or remove its file and reload; or, where \
                 it was fetched, put another on its server and flush (`swanctl --flush-certs --type x509_crl`)"
            );
            let (this, handle) = (self.clone(), handle.clone());
            tokio::spawn(async move { this.end_slowly(&handle, &key).await });
        }
        for verdict in &group.verdicts {
            self.end(handle, verdict).await?;
        }
        Ok(())
    }

    /// An SA goes on, and there is one warning of it.
    async fn warn(&self, handle: &Handle, verdict: &Verdict) -> Result<(), ike_tokio::Stopped> {
        let Verdict { ike, connection, subject, revoked } = verdict;
        let remote = who(handle, *ike).await?;
        tracing::warn!(
            ike = ike.0, %connection, %remote, %subject,
            "IKE SA goes on, although a {revoked}: end it by `swanctl --terminate --ike-id {}`", ike.0
        );
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

    /// Ends the SAs in a line at a limited rate. Before the end of each it looks whether the list still says so.
    async fn end_slowly(&self, handle: &Handle, line: &(Arc<str>, String)) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / A_SECOND);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while let Some(verdict) = self.0.live.next_of(line) {
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
        if kinds.is_empty() {
            return LOOK_AT_LEAST;
        }
        let this = self.clone();
        let now = SystemTime::now();
        let (fetches, next) = self
            .work(move |answerer| {
                let (mut fetches, mut next) = (Vec::new(), None::<SystemTime>);
                let free = |url: &str| this.0.live.is_free(url, Instant::now());
                for (connection, kind) in kinds {
                    let Some(due) = answerer.list_due(&connection, kind, now) else { continue };
                    let mut at = this.0.live.at(kind, &due);
                    if at <= now {
                        // A URL that has failed, or has not helped, is asked again after some minutes.
                        at = now + AGAIN;
                        let fetch = answerer.list_again(&connection, kind, (&due, &free), now);
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
        let due = || {
            let now = SystemTime::now();
            let due = self.present().list_due(&connection, kind, now);
            due.filter(|due| due.at <= now)
        };
        let before = due();
        // The URL may have failed, or have been asked, for another kind of certificates.
        let free = |url: &str| self.0.live.is_free(url, Instant::now());
        let now = SystemTime::now();
        let again = before
            .as_ref()
            .and_then(|due| self.present().list_again(&connection, kind, (due, &free), now));
        if again.is_some_and(|again| wanted(&again) == wanted(&fetch)) {
            let url = fetch.url.clone();
            let has_failed = !self.fetch_for_live(fetch).await;
            // If there was no list at all, others may have taken its place, and would again.
            let was_none = before.is_some_and(|due| due.is_at_once());
            let has_helped = due().is_none() && !was_none;
            self.0.live.pause(&url, has_failed || has_helped, Instant::now());
        }
    }
}

impl Credentials {
    /// Has responders asked about certificates on which live SAs depend, where that is due. Returns how long to wait
    /// until it is due again.
    async fn ask_responders(&self) -> Duration {
        let now = SystemTime::now();
        let ripe = self.0.live.known().ripe(now, ASKS);
        let judged = self.work(move |answerer| {
            let due = |record: Record| {
                let due = answerer.status_due(&record, now);
                // At its login the peer may have sent a response, which was not kept.
                let waits = due.as_ref().is_some_and(|due| due.is_at_once())
                    && answerer.has_accepted(record.kind);
                (record, due, waits)
            };
            ripe.into_iter().map(due).collect::<Vec<_>>()
        });
        for (record, due, waits) in judged.await.unwrap_or_default() {
            let waits = waits && !self.0.live.known().asks.contains_key(&record);
            let at = due.map(|due| self.0.live.at(record, &due));
            let at = if waits { Some(now + FIRST_PAUSE) } else { at };
            let is_due = at.is_some_and(|at| at <= now);
            // Until the responder has answered. If its task panics, it is asked again after that.
            let at = if is_due { Some(now + LONGEST_QUESTION) } else { at };
            let mut known = self.0.live.known();
            let pause = known.asks.get(&record).filter(|_| is_due).map(|ask| ask.pause);
            known.set_ask(&record, at.map(|at| Ask { at, pause: pause.unwrap_or_default() }));
            if is_due {
                tokio::spawn(self.clone().ask_about(record));
            }
        }
        let next = self.0.live.known().next_ask(now);
        let next = next.map(|next| next.duration_since(now).unwrap_or_default());
        next.unwrap_or(LOOK_AT_LEAST).clamp(LOOK_AT_MOST, LOOK_AT_LEAST)
    }

    /// Asks one responder after the other about a certificate, until one has told something new.
    async fn ask_about(self, record: Record) {
        let at = |this: &Self| {
            let due = this.present().status_due(&record, SystemTime::now());
            due.map(|due| this.0.live.at(record, &due))
        };
        let mut asked = Vec::new();
        // It is never closed. A URL that has failed meanwhile for another certificate is not asked.
        let _question = self.0.live.questions.0.acquire().await;
        while at(&self).is_some_and(|at| at <= SystemTime::now()) {
            let free = |url: &str| !asked.iter().any(|asked| asked == url);
            let Some(fetch) = self.present().status_again(&record, &free, SystemTime::now()) else {
                break;
            };
            let turn = self.turn(wanted(&fetch));
            let waited = turn.try_lock().is_err();
            let _turn = turn.lock().await;
            asked.push(fetch.url.clone());
            // A login may have asked meanwhile.
            if !waited || at(&self).is_some_and(|at| at <= SystemTime::now()) {
                self.fetch_in_turn(fetch).await;
            }
        }
        let (at, now) = (at(&self), SystemTime::now());
        let mut known = self.0.live.known();
        let before = known.asks.get(&record).map(|ask| ask.pause).unwrap_or_default();
        let ask = at.map(|at| match at > now {
            // A responder chooses how long its response is good for.
            true => Ask { at: at.max(now + AGAIN), pause: Duration::ZERO },
            false => {
                let pause = (2 * before).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                Ask { at: now + pause, pause }
            }
        });
        known.set_ask(&record, ask);
        known.asked_again = true;
        drop(known);
        self.0.live.changed.notify_one();
    }
}

/// The peer of an SA.
async fn who(handle: &Handle, ike: IkeSaId) -> Result<String, ike_tokio::Stopped> {
    let view = handle.view(ike).await?;
    let id = view.and_then(|view| view.status.remote_id);
    Ok(id.map_or_else(|| "unknown".to_owned(), |id| id.to_string()))
}

/// Most SAs that end in a second if one list ends more.
const A_SECOND: u32 = 20;
/// How often to look at what is due, at the least and at the most: the clock may be set.
const LOOK_AT_LEAST: Duration = Duration::from_secs(3600);
const LOOK_AT_MOST: Duration = Duration::from_millis(100);
/// Most certificates that are looked at at a time.
const PIECE: usize = if cfg!(test) { 4 } else { 4096 };
/// Most SAs that are judged at a time.
const CHUNK: usize = 256;
/// Fetches of lists for live SAs at a time, and questions to responders for them.
const RENEWALS: usize = 4;
/// The longest time for which a URL that does not help is left alone.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Most certificates about which responders are asked in one look.
const ASKS: usize = 64;
/// How long responders are left alone at first if they did not help about a certificate, or after a login that needed
/// none.
const FIRST_PAUSE: Duration = Duration::from_secs(300);
/// How long a question waits for its turn and for its response at the most, before the certificate is looked at again.
const LONGEST_QUESTION: Duration = Duration::from_secs(24 * 3600);
/// When to look again for a list that is due, and the shortest time between two questions about one certificate.
const AGAIN: Duration = Duration::from_secs(30);
/// The longest time after nextUpdate within which a list is fetched again.
const LONGEST_SPREAD: Duration = Duration::from_secs(600);
/// Steps of the spread.
const SHARES: u64 = 1 << 16;

mod index;
#[cfg(test)]
mod tests;
