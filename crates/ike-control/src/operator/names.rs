//! Host names: what is known of each, and which of them are looked up next.
//!
//! The program's [`Resolver`] looks them up. There is one look-up for a name at a time, which all share that wait for it.
//! Names that were slow last time leave room to the others ([`AT_A_TIME`]). A look-up that fails leaves what was known, and
//! so does "no such name" for an hour. What is known is kept in a file, so that a host that boots while name servers are
//! silent has the addresses of before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ike_config::{Ends, HostSpec, Hosts};
use ike_proto::config::AddressSpec;
use ike_tokio::net::resolver::{Done, FOR_PEERS, Found};
use ike_tokio::{OutsideTunnels, Resolver, Unresolved};
use tokio::sync::{Notify, watch};

use crate::error::OperatorError;

mod file;
#[cfg(test)]
mod tests;

/// Look-ups at a time: of all names, of those that were looked up before, and of those among these that were [`SLOW`].
/// Others wait for their turn. A new name can be what a peer waits for. Of the others something is known.
const AT_A_TIME: [usize; 3] = [FOR_PEERS, 8, 6];
/// How long a look-up takes at least that holds up others. Where a name server is silent, it is 5 s and more.
const SLOW: Duration = Duration::from_millis(500);
/// How long name servers may take if nothing is known of a name,
const RESOLVING: Duration = Duration::from_secs(15);
/// and if addresses are known, which then are used.
const RENEWING: Duration = Duration::from_secs(2);
/// How often a name is looked up again.
const REFRESH: Duration = Duration::from_secs(60);
/// The time after the first failure. It doubles with each further one, up to [`REFRESH`].
const BACK_OFF: Duration = Duration::from_secs(1);
/// How long name servers say that a name does not exist before its addresses are forgotten: they may be wrong for a while.
/// And how long addresses of an earlier run are kept that no connection needs: control clients may load one.
const HOUR: Duration = Duration::from_secs(3600);
/// What counts at most of the time between two answers that a name does not exist: the host may have slept.
const GAP: Duration = Duration::from_secs(120);

/// Begins a look-up of a name, and has its outcome told.
type LookUp = dyn Fn(&str, Done) + Send + Sync;

/// What is known of names. Clones share it.
#[derive(Clone)]
pub(super) struct Names(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A look-up has ended.
    news: Notify,
    look_up: Box<LookUp>,
    /// The file with what is known.
    file: OnceLock<PathBuf>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, Name>,
    /// Look-ups that wait for their turn, in the classes of [`AT_A_TIME`],
    queues: [VecDeque<String>; 3],
    /// and how many are under way.
    busy: [usize; 3],
    /// Somebody begins look-ups, and goes on while there is room.
    beginning: bool,
    /// The addresses of a name have changed since somebody asked,
    changed: bool,
    /// and since the file was written.
    unwritten: bool,
    /// A thread writes the file.
    writing: bool,
}

#[derive(Default)]
struct Name {
    /// In the order of the last answer.
    addresses: Vec<IpAddr>,
    /// The look-up under way. All that wait for it hear when the sender is dropped.
    asked: Option<watch::Sender<()>>,
    /// Look-ups since the last one that succeeded.
    failures: u32,
    /// When it is looked up again; at once if never looked up.
    due: Option<Instant>,
    /// For how long name servers have said that there is no such name,
    gone: Duration,
    /// and when they said so, if that is the last outcome.
    denied: Option<Instant>,
    /// Whether the last look-up was slow; `None` before the first one.
    slow: Option<bool>,
    /// Until when it is kept although no connection has it.
    kept: Option<Instant>,
}

/// How long a look-up outside all tunnels may take.
const OUTSIDE: Duration = Duration::from_secs(12);

impl Names {
    /// By `resolver`. If it fails, the system's name servers are asked outside all tunnels.
    pub(super) fn of_system(resolver: Arc<dyn Resolver>, sockets: OutsideTunnels) -> Self {
        Self::by(move |name, done| {
            let (asked, servers) = (name.to_owned(), Arc::clone(&resolver));
            let then = move |found: Found| match found {
                // A name without a dot is one of the host's own domains, which only the resolver knows.
                Err(Unresolved::Failed(error)) if asked.trim_end_matches('.').contains('.') => {
                    ask_outside((asked, error), servers, sockets, done);
                }
                found => done(found),
            };
            resolver.ask(name, Box::new(then));
        })
    }

    fn by(look_up: impl Fn(&str, Done) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            news: Notify::new(),
            look_up: Box::new(look_up),
            file: OnceLock::new(),
        }))
    }

    /// Keeps what is known in the file at `path`, once and for all, and knows what an earlier run has kept there.
    pub(super) fn keep_in(&self, path: PathBuf) {
        let found = match file::read(&path) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "addresses of host names: the file is ignored");
                BTreeMap::new()
            }
        };
        let mut state = self.0.lock();
        let kept = Instant::now().checked_add(HOUR);
        for (name, addresses) in found {
            let entry = state.names.entry(name).or_default();
            if entry.addresses.is_empty() {
                (entry.addresses, entry.kept) = (addresses, kept);
                state.changed = true;
            }
        }
        if state.changed {
            self.0.news.notify_one();
        }
        _ = self.0.file.set(path);
    }

    /// The ends of `hosts`, from a look-up of each name that begins now or is under way. What was known counts where
    /// this fails or takes too long; a name of which nothing is known falls away.
    ///
    /// # Errors
    /// [`OperatorError::NameServers`] if they are silent about a name of the peer of which nothing is known.
    /// [`OperatorError::NoAddress`] if no name of the peer has an address.
    pub(super) async fn look_up(&self, hosts: &Hosts) -> Result<Ends, OperatorError> {
        let names: BTreeSet<&str> = names_of(hosts).collect();
        let waits: Vec<_> = names.into_iter().map(|name| self.0.begin(name)).collect();
        let begun = tokio::time::Instant::now();
        let mut silent = false;
        for (known, mut done) in waits {
            let limit = if known { RENEWING } else { RESOLVING };
            // The sender is dropped when the answer is there.
            let answered = tokio::time::timeout_at(begun + limit, done.changed()).await.is_ok();
            silent |= !answered && !known;
        }
        let ends = self.known(hosts);
        match names_in(&hosts.remote).next() {
            Some(_) if ends.remote.is_empty() && silent => {
                Err(OperatorError::NameServers(RESOLVING))
            }
            Some(name) if ends.remote.is_empty() => Err(OperatorError::NoAddress(name.to_owned())),
            _ => Ok(ends),
        }
    }

    /// The ends of `hosts` as far as they are known.
    pub(super) fn known(&self, hosts: &Hosts) -> Ends {
        let state = self.0.lock();
        let specs = |hosts: &[HostSpec]| {
            let of = |host: &HostSpec| match host {
                HostSpec::Address(spec) => vec![*spec],
                HostSpec::Name(name) => {
                    let known = state.names.get(name).into_iter();
                    let known = known.flat_map(|name| &name.addresses);
                    known.map(|address| AddressSpec::single(*address)).collect()
                }
            };
            hosts.iter().flat_map(of).collect()
        };
        Ends { local: specs(&hosts.local), remote: specs(&hosts.remote) }
    }

    /// True if no address of the peer is known, and the last look-up of a name of it failed too short a time ago.
    pub(super) fn is_backing_off(&self, hosts: &Hosts) -> bool {
        if !self.known(hosts).remote.is_empty() {
            return false;
        }
        let (state, now) = (self.0.lock(), Instant::now());
        names_in(&hosts.remote).filter_map(|name| state.names.get(name)).any(|name| {
            let later = name.due.is_some_and(|due| due > now);
            name.asked.is_none() && name.failures > 0 && later
        })
    }

    /// Begins the look-ups that are due of the names of `all`, and forgets other names. When the next one is due.
    pub(super) fn renew<'a>(&self, all: impl Iterator<Item = &'a Hosts>) -> Duration {
        let wanted: BTreeSet<&str> = all.flat_map(names_of).collect();
        let now = Instant::now();
        let mut state = self.0.lock();
        state.names.retain(|name, known| {
            let kept = known.kept.is_some_and(|until| now < until);
            known.asked.is_some() || kept || wanted.contains(name.as_str())
        });
        let is_due = |name: &&&str| {
            let due = state.names.get(**name).and_then(|known| known.due);
            due.is_none_or(|due| due <= now)
        };
        let due: Vec<&str> = wanted.iter().filter(is_due).copied().collect();
        let next = state.names.values().filter(|name| name.asked.is_none());
        let next = next.filter_map(|name| name.due).filter(|due| *due > now).min();
        drop(state);
        for name in due {
            self.0.begin(name);
        }
        next.map_or(REFRESH, |next| next.saturating_duration_since(now))
    }

    /// Waits until a look-up has changed something. True if addresses have changed since the last call, false if a
    /// look-up has failed, so that another time is the next one.
    pub(super) async fn changed(&self) -> bool {
        self.0.news.notified().await;
        std::mem::take(&mut self.0.lock().changed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look-up of `name` unless one is under way. Whether addresses are known, and what ends with the look-up.
    fn begin(self: &Arc<Self>, name: &str) -> (bool, watch::Receiver<()>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let entry = state.names.entry(name.to_owned()).or_default();
        let known = !entry.addresses.is_empty();
        if let Some(asked) = &entry.asked {
            return (known, asked.subscribe());
        }
        let (asked, done) = watch::channel(());
        entry.asked = Some(asked);
        let class = entry.slow.map_or(0, |slow| 1 + usize::from(slow));
        state.queues[class].push_back(name.to_owned());
        drop(guard);
        self.begin_waiting();
        (known, done)
    }

    /// Begins the look-ups that wait, as far as there is room. An outcome may be there at once, and then calls this again.
    fn begin_waiting(self: &Arc<Self>) {
        let next = || self.lock().begin_next();
        while let Some((class, name)) = next() {
            let (shared, begun) = (Arc::clone(self), Instant::now());
            let under_way = UnderWay { shared, name: name.clone(), class, begun, found: None };
            (self.look_up)(&name, Box::new(move |found| under_way.end(found)));
            self.lock().beginning = false;
        }
    }

    /// Writes the file if something has changed, on a thread of its own: a disk may be slow.
    fn keep(self: &Arc<Self>, path: &Path) {
        let mut state = self.lock();
        if state.writing || !state.unwritten {
            return;
        }
        let (shared, path) = (Arc::clone(self), path.to_path_buf());
        let thread = std::thread::Builder::new().name("names-file".to_owned());
        match thread.spawn(move || shared.write(&path)) {
            Ok(_) => state.writing = true,
            Err(error) => {
                tracing::warn!(%error, "addresses of host names: no thread writes the file");
            }
        }
    }

    /// Writes the file until nothing has changed meanwhile.
    fn write(&self, path: &Path) {
        loop {
            let mut state = self.lock();
            if !std::mem::take(&mut state.unwritten) {
                state.writing = false;
                return;
            }
            let known = state.names.iter().map(|(name, known)| (name, &known.addresses));
            let text = file::text(known);
            drop(state);
            if let Err(error) = file::write(path, &text) {
                let mut state = self.lock();
                (state.unwritten, state.writing) = (true, false);
                tracing::warn!(
                    file = %path.display(),
                    %error,
                    "addresses of host names: the file is not written; it is tried again after the next look-up"
                );
                return;
            }
        }
    }

    fn answered(&self, name: &str, found: Result<Vec<IpAddr>, Unresolved>, now: Instant) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let entry = state.names.entry(name.to_owned()).or_default();
        let after = match found {
            Ok(found) => {
                let set = |addresses: &[IpAddr]| addresses.iter().copied().collect::<BTreeSet<_>>();
                if set(&found) != set(&entry.addresses) {
                    tracing::info!(%name, addresses = ?set(&found), "host name resolved");
                    (state.changed, state.unwritten) = (true, true);
                    self.news.notify_one();
                } else if entry.failures > 0 {
                    tracing::info!(%name, "host name resolved again");
                }
                entry.addresses = found;
                (entry.failures, entry.gone, entry.denied) = (0, Duration::ZERO, None);
                REFRESH
            }
            Err(why) => {
                if entry.failures == 0 {
                    let used = &entry.addresses;
                    tracing::warn!(%name, error = %why, ?used, "host name not resolved: it is tried again");
                }
                // Time without an answer does not count.
                let denied = matches!(why, Unresolved::NoSuchName).then_some(now);
                if let (Some(before), Some(now)) = (entry.denied, denied) {
                    entry.gone += now.saturating_duration_since(before).min(GAP);
                }
                entry.denied = denied;
                if entry.gone >= HOUR && denied.is_some() && !entry.addresses.is_empty() {
                    let unused = std::mem::take(&mut entry.addresses);
                    tracing::warn!(%name, ?unused, "host name is gone: its addresses are not used any more");
                    (state.changed, state.unwritten) = (true, true);
                }
                entry.failures = entry.failures.saturating_add(1);
                self.news.notify_one();
                BACK_OFF.saturating_mul(1 << entry.failures.min(7).saturating_sub(1)).min(REFRESH)
            }
        };
        entry.due = Some(now + after);
        entry.asked = None;
    }
}

impl State {
    /// True if a look-up of this class may begin.
    fn has_room(&self, class: usize) -> bool {
        self.busy[class..].iter().sum::<usize>() < AT_A_TIME[class]
    }

    /// The next look-up, which begins now, and its class; none while another one is begun.
    fn begin_next(&mut self) -> Option<(usize, String)> {
        let mut with_room = (0..AT_A_TIME.len()).filter(|class| self.has_room(*class));
        let class = with_room.find(|class| !self.queues[*class].is_empty())?;
        let queue = self.queues.get_mut(class).filter(|_| !self.beginning)?;
        let name = queue.pop_front()?;
        self.busy[class] += 1;
        self.beginning = true;
        Some((class, name))
    }
}

/// A look-up. It ends with this, and has failed if nothing was found by then: whoever was to tell the outcome is gone.
struct UnderWay {
    shared: Arc<Shared>,
    name: String,
    class: usize,
    begun: Instant,
    found: Option<Found>,
}

impl UnderWay {
    fn end(mut self, found: Found) {
        self.found = Some(found);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let broken = || Err(Unresolved::Failed(io::Error::other("the look-up broke off")));
        let found = self.found.take().unwrap_or_else(broken);
        let mut state = self.shared.lock();
        state.busy[self.class] -= 1;
        if let Some(entry) = state.names.get_mut(&self.name) {
            entry.slow = Some(self.begun.elapsed() > SLOW);
        }
        drop(state);
        self.shared.answered(&self.name, found, Instant::now());
        if let Some(path) = self.shared.file.get() {
            self.shared.keep(path);
        }
        self.shared.begin_waiting();
    }
}

/// Asks the system's name servers about a name outside all tunnels, on a thread of its own. `error` is why the resolver has
/// no addresses.
fn ask_outside(
    (name, error): (String, io::Error),
    resolver: Arc<dyn Resolver>,
    sockets: OutsideTunnels,
    done: Done,
) {
    let ask = move || {
        let found = sockets.addresses(&name, &resolver.name_servers(), OUTSIDE);
        done(if found.is_empty() { Err(Unresolved::Failed(error)) } else { Ok(found) });
    };
    if let Err(error) = std::thread::Builder::new().name("names".to_owned()).spawn(ask) {
        tracing::debug!(%error, "no thread to ask name servers outside the tunnels");
    }
}

fn names_of(hosts: &Hosts) -> impl Iterator<Item = &str> {
    names_in(&hosts.local).chain(names_in(&hosts.remote))
}

fn names_in(hosts: &[HostSpec]) -> impl Iterator<Item = &str> {
    hosts.iter().filter_map(|host| match host {
        HostSpec::Name(name) => Some(name.as_str()),
        HostSpec::Address(_) => None,
    })
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().names.keys()).finish()
    }
}
