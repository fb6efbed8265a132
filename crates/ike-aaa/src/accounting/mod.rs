//! RADIUS accounting (RFC 2866): a server hears of every client's session, as with strongSwan's eap-radius. A session
//! is an IKE SA that this end has answered, with those it is rekeyed into. Each has a task, so that its requests keep
//! their order and no engine waits for a server. Where servers may ask about sessions (`dae.rs`), all of them are here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::eap::accounting::Status;
use ::eap::radius::attribute;
use ike_proto::dataplane::{SaId, Usage};
use ike_proto::{Endpoint, Event, IkeSaId, IkeStatus};
use ike_tokio::{Handle, NoPlane, Plane, PlaneHandle};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use ike_config::AccountingConfig;

use self::account::{Account, Cause, Told, attributes};
use crate::radius::{RadiusClient, grants};

mod account;
mod dynamic;
mod plane;
#[cfg(test)]
pub(crate) use dynamic::known;
use plane::Accounted;

/// An ESP SA of a session, and what was seen of it last.
struct Tracked {
    account: Arc<Account>,
    /// 0: it comes in; 1: it leaves.
    way: usize,
    seen: Usage,
}

/// A session that goes on, and how its task hears of its end.
type Open = (Arc<Account>, oneshot::Sender<Cause>);

/// A session that is over, and of which its task has not heard yet.
pub(crate) struct Over {
    account: Arc<Account>,
    stop: oneshot::Sender<Cause>,
    cause: Cause,
}

/// A session of which no server hears, although [`AccountingConfig::close_on_timeout`] asks for that.
/// [`Accounting::close`] ends it.
pub struct Unheard(Arc<Account>);

/// The sessions of all shards. Clones have the same sessions.
///
/// [`Sessions`](crate::Sessions) reports events to it, and data planes that it [watches](Self::watch) the counters of ESP SAs.
#[derive(Clone)]
pub struct Accounting(Arc<Inner>);

struct Inner {
    /// Tells sessions of this run from those of the one before.
    prefix: u64,
    sessions: Mutex<HashMap<IkeSaId, Open>>,
    sas: Mutex<HashMap<SaId, Tracked>>,
    /// How interim updates get at the figures; the data plane itself does not wait for those who hold this.
    handle: Mutex<Option<Handle>>,
    /// Sessions that are to end.
    close: mpsc::UnboundedSender<Unheard>,
    /// A clone in every task: when all are gone, so are the tasks.
    running: Mutex<Option<mpsc::Sender<()>>>,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Accounting {
    /// No sessions yet. The receiver gets the sessions for [`Self::close`].
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Unheard>) {
        let (close, to_close) = mpsc::unbounded_channel();
        let (running, ended) = mpsc::channel(1);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let inner = Inner {
            prefix: since.as_secs(),
            sessions: Mutex::default(),
            sas: Mutex::default(),
            handle: Mutex::default(),
            close,
            running: Mutex::new(Some(running)),
            ended: tokio::sync::Mutex::new(ended),
        };
        (Self(Arc::new(inner)), to_close)
    }

    /// Reads the last counters of each SA before `plane` removes it, and follows SAs that move to other addresses. Without
    /// this call the figures of accounting end with the last interim update.
    pub fn watch(&self, plane: &mut Plane) {
        let control = std::mem::replace(&mut plane.control, Box::new(NoPlane));
        plane.control = Box::new(Accounted::new(control, self.clone()));
    }

    /// Gives it the drivers: interim updates read counters by `handle`, and requests of servers end sessions by it.
    pub fn ask(&self, handle: Handle) {
        *lock(&self.0.handle) = Some(handle);
    }

    /// Drops the handle of [`Self::ask`], because drivers run as long as there is a handle.
    pub fn forget(&self) {
        drop(lock(&self.0.handle).take());
    }

    /// Takes note of an event of `endpoint`; sessions begin while `radius` wants them. What is given back is a
    /// session that is over: [`Self::over`].
    pub(crate) fn event(
        &self,
        event: &Event,
        endpoint: &Endpoint,
        radius: impl FnOnce() -> Option<Arc<RadiusClient>>,
    ) -> Option<Over> {
        match event {
            Event::IkeUp(ike) => {
                let wanted = |radius: &Arc<RadiusClient>| {
                    radius.options.accounting.is_some() || radius.options.dae.is_some()
                };
                let radius = radius().filter(wanted)?;
                self.begin(radius, &endpoint.ike_sa(*ike)?);
            }
            Event::ChildUp { ike, child } | Event::ChildRekeyed { ike, new: child, .. } => {
                let account = self.account(*ike).filter(|account| account.options.is_some())?;
                let child = endpoint.brief(*ike)?.children().find(|one| one.id == *child)?;
                self.track(&account, [child.inbound, child.outbound]);
            }
            Event::IkeRekeyed { old, new } => {
                let mut sessions = lock(&self.0.sessions);
                if let Some(session) = sessions.remove(old) {
                    session.0.ike.store(new.0, Ordering::Relaxed);
                    sessions.insert(*new, session);
                }
            }
            Event::IkeDown { ike, reason, .. } => {
                let (account, stop) = lock(&self.0.sessions).remove(ike)?;
                return Some(Over { account, stop, cause: Cause::of(reason) });
            }
            _ => {}
        }
        None
    }

    /// Ends a session, with the last figures of the SAs that it still has.
    pub(crate) async fn over(&self, over: Over, plane: &PlaneHandle) {
        let Over { account, stop, cause } = over;
        self.look(&Self::sas_of(&account), plane).await;
        {
            let mut sas = lock(&self.0.sas);
            std::mem::take(&mut *lock(&account.sas)).iter().for_each(|id| _ = sas.remove(id));
        }
        // The task may have ended with the daemon.
        let _ = stop.send(cause);
    }

    fn account(&self, ike: IkeSaId) -> Option<Arc<Account>> {
        lock(&self.0.sessions).get(&ike).map(|(account, _)| Arc::clone(account))
    }

    /// SAs that were moved to other addresses have other names.
    pub(crate) fn moved(&self, moves: &[(SaId, SaId)]) {
        let mut sas = lock(&self.0.sas);
        for (old, new) in moves {
            if let Some(tracked) = sas.remove(old) {
                {
                    let mut own = lock(&tracked.account.sas);
                    own.remove(old);
                    own.insert(*new);
                }
                sas.insert(*new, tracked);
            }
        }
    }

    /// The SAs of a child of a session, in and out.
    fn track(&self, account: &Arc<Account>, ids: [SaId; 2]) {
        let mut sas = lock(&self.0.sas);
        for (way, id) in ids.into_iter().enumerate() {
            if let Entry::Vacant(vacant) = sas.entry(id) {
                let account = Arc::clone(account);
                lock(&account.sas).insert(id);
                vacant.insert(Tracked { account, way, seen: Usage::default() });
            }
        }
    }

    fn sas_of(account: &Account) -> Vec<SaId> {
        lock(&account.sas).iter().copied().collect()
    }

    async fn look(&self, ids: &[SaId], plane: &PlaneHandle) {
        if !ids.is_empty() {
            self.seen(ids, plane.usage(ids).await);
        }
    }

    fn seen(&self, ids: &[SaId], counted: Vec<Usage>) {
        let mut sas = lock(&self.0.sas);
        for (id, usage) in ids.iter().zip(counted) {
            if let Some(sa) = sas.get_mut(id) {
                sa.add(usage);
            }
        }
    }

    fn begin(&self, radius: Arc<RadiusClient>, status: &IkeStatus) {
        if status.initiator {
            return;
        }
        let addresses = status.assignment.as_ref().map_or(&[][..], |given| &given.addresses);
        let granted = grants::of_sa(status);
        let told = |options: &AccountingConfig| !(options.requires_vip && addresses.is_empty());
        let mut options = radius.options.accounting.clone().filter(told);
        if options.is_none() && radius.options.dae.is_none() {
            return;
        }
        let mut attributes = attributes(status, addresses);
        if let Some(options) = &mut options {
            options.interval = grants::interim(granted).or(options.interval);
            if options.send_class {
                let classes = grants::classes(granted);
                attributes.extend(classes.map(|class| (attribute::CLASS, class.to_vec())));
            }
        }
        let Some(running) = lock(&self.0.running).clone() else { return };
        let account = Arc::new(Account {
            ike: AtomicU64::new(status.id.0),
            id: format!("{}-{}", self.0.prefix, status.id.0),
            attributes,
            radius,
            options,
            begun: Instant::now(),
            totals: Mutex::default(),
            sas: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        let (stop, stopped) = oneshot::channel();
        lock(&self.0.sessions).insert(status.id, (Arc::clone(&account), stop));
        if account.options.is_none() {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            this.keep(&account, stopped).await;
            drop(running);
        });
    }

    /// Tells a server of a session from its beginning to its end.
    async fn keep(&self, account: &Arc<Account>, mut stopped: oneshot::Receiver<Cause>) {
        let Some(options) = &account.options else { return };
        let mut unheard = account.tell(Status::Start, None).await == Told::Unheard;
        let cause = loop {
            if unheard {
                let _ = self.0.close.send(Unheard(Arc::clone(account)));
            }
            let pause = options.interval.filter(|_| !unheard);
            let next = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Without a word: the daemon ends.
                cause = &mut stopped => break cause.unwrap_or(Cause::NasReboot),
                () = next => {}
            }
            let ids = Self::sas_of(account);
            let handle = lock(&self.0.handle).clone();
            if let Some(handle) = handle
                && let Ok(counted) = handle.usage(ids.clone()).await
            {
                self.seen(&ids, counted);
            }
            let told = account.tell(Status::Interim, None).await;
            unheard = told == Told::Unheard && options.close_on_timeout;
        };
        account.tell(Status::Stop, Some(cause)).await;
    }

    /// Ends the IKE SA of a session by `down`, which returns true if it has ended that SA. `down` is called again if it
    /// fails, or if the SA was rekeyed meanwhile, until the session is over.
    pub async fn close<F: Future<Output = bool>>(
        &self,
        Unheard(account): Unheard,
        down: impl Fn(IkeSaId) -> F,
    ) {
        let mut pause = CLOSE_AGAIN;
        while self.is_open(&account) {
            let ike = account.ike();
            if down(ike).await && account.ike() == ike {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(CLOSE_AGAIN_MAX);
        }
    }

    fn is_open(&self, account: &Arc<Account>) -> bool {
        let sessions = lock(&self.0.sessions);
        sessions.get(&account.ike()).is_some_and(|(open, _)| Arc::ptr_eq(open, account))
    }

    /// Ends all sessions, and waits until servers have confirmed it, but no longer than `limit`.
    pub async fn finish(&self, limit: Duration) {
        drop(lock(&self.0.running).take());
        lock(&self.0.sessions).clear();
        let mut ended = self.0.ended.lock().await;
        if tokio::time::timeout(limit, ended.recv()).await.is_err() {
            tracing::warn!("RADIUS servers have not heard of the end of all sessions");
        }
    }
}

impl Tracked {
    /// Adds what came since. Less than before is no news: an SA that is just being moved has no counters.
    fn add(&mut self, now: Usage) {
        let mut totals = lock(&self.account.totals);
        totals.octets[self.way] += now.bytes.saturating_sub(self.seen.bytes);
        totals.packets[self.way] += now.packets.saturating_sub(self.seen.packets);
        self.seen.bytes = self.seen.bytes.max(now.bytes);
        self.seen.packets = self.seen.packets.max(now.packets);
    }
}

/// How soon an IKE SA is asked to end again, at first and at last.
const CLOSE_AGAIN: Duration = Duration::from_millis(500);
const CLOSE_AGAIN_MAX: Duration = Duration::from_secs(60);

impl fmt::Debug for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unheard({})", self.0.id)
    }
}

impl fmt::Debug for Accounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accounting({} sessions)", lock(&self.0.sessions).len())
    }
}

#[cfg(test)]
mod tests;
