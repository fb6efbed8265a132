//! Host names: what is known of each, and the threads that look them up.
//!
//! getaddrinfo blocks for as long as name servers are silent, and has no limit. So it runs on threads of its own: on
//! the runtime's pool for blocking work it would hold back signatures. There is one look-up for a name at a time, which all
//! share that wait for it. A look-up that fails leaves what was known, and so does "no such name" for an hour. What is known
//! is kept in a file, so that a host that boots while name servers are silent has the addresses of before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use ike_config::{Ends, HostSpec, Hosts};
use ike_proto::config::AddressSpec;
use tokio::sync::{Notify, watch};

use crate::error::OperatorError;

mod file;

/// Look-ups at a time. Others wait for their turn.
const THREADS: usize = 16;
/// How long name servers may take if nothing is known of a name,
const RESOLVING: Duration = Duration::from_secs(15);
/// and if addresses are known, which then are used.
const RENEWING: Duration = Duration::from_secs(2);
/// How often a name is looked up again.
const REFRESH: Duration = Duration::from_secs(60);
/// The time after the first failure. It doubles with each further one, up to [`REFRESH`].
const BACK_OFF: Duration = Duration::from_secs(1);
/// How long addresses stay known of a name that does not exist any more: a name server may be wrong for a while. And how
/// long addresses of an earlier run are kept that no connection needs: control clients may load one.
const HOUR: Duration = Duration::from_secs(3600);

/// Why a name has no addresses.
#[derive(Debug)]
enum Unresolved {
    /// Name servers say that there is no such name, or that it has no address.
    NoSuchName,
    /// No answer, or a failure of the moment.
    Failed(io::Error),
}

/// Looks a name up. Blocks.
type Resolver = dyn Fn(&str) -> Result<Vec<IpAddr>, Unresolved> + Send + Sync;

/// What is known of names. Clones share it.
#[derive(Clone)]
pub(super) struct Names(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A look-up has ended.
    news: Notify,
    resolver: Box<Resolver>,
    /// The file with what is known.
    file: OnceLock<PathBuf>,
    /// Held while the file is written.
    writing: Mutex<()>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, Name>,
    /// Look-ups that no thread has begun.
    queue: VecDeque<String>,
    threads: usize,
    /// The addresses of a name have changed since somebody asked,
    changed: bool,
    /// and since the file was written.
    unwritten: bool,
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
    /// Since when name servers say that there is no such name.
    gone: Option<Instant>,
    /// Until when it is kept although no connection has it.
    kept: Option<Instant>,
}

impl Names {
    /// By the system's resolver.
    pub(super) fn of_system() -> Self {
        Self::by(of_system)
    }

    fn by(
        resolver: impl Fn(&str) -> Result<Vec<IpAddr>, Unresolved> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            news: Notify::new(),
            resolver: Box::new(resolver),
            file: OnceLock::new(),
            writing: Mutex::default(),
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
        state.queue.push_back(name.to_owned());
        if state.threads == THREADS {
            return (known, done);
        }
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("names".to_owned());
        match thread.spawn(move || shared.work()) {
            Ok(_) => state.threads += 1,
            // Another thread takes it, if there is one.
            Err(error) if state.threads == 0 => {
                state.queue.clear();
                drop(guard);
                self.answered(name, Err(Unresolved::Failed(error)), Instant::now());
            }
            Err(error) => tracing::debug!(%error, "no further thread for names"),
        }
        (known, done)
    }

    /// Looks names up until none is left.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            let Some(name) = state.queue.pop_front() else {
                state.threads -= 1;
                break;
            };
            drop(state);
            let found = (self.resolver)(&name);
            self.answered(&name, found, Instant::now());
            if let Some(path) = self.file.get() {
                self.write(path);
            }
        }
    }

    /// Writes the file if something has changed. Of several threads the last one writes what all have found.
    fn write(&self, path: &Path) {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if !std::mem::take(&mut state.unwritten) {
            return;
        }
        let known = state.names.iter().map(|(name, known)| (name, &known.addresses));
        let text = file::text(known);
        drop(state);
        if let Err(error) = file::write(path, &text) {
            self.lock().unwritten = true;
            tracing::warn!(
                file = %path.display(),
                %error,
                "addresses of host names: the file is not written; it is tried again after the next look-up"
            );
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
                (entry.failures, entry.gone) = (0, None);
                REFRESH
            }
            Err(why) => {
                if entry.failures == 0 {
                    let used = &entry.addresses;
                    tracing::warn!(%name, error = %why, ?used, "host name not resolved: it is tried again");
                }
                if matches!(why, Unresolved::NoSuchName) {
                    let since = *entry.gone.get_or_insert(now);
                    if now.saturating_duration_since(since) >= HOUR && !entry.addresses.is_empty() {
                        let unused = std::mem::take(&mut entry.addresses);
                        tracing::warn!(%name, ?unused, "host name is gone: its addresses are not used any more");
                        (state.changed, state.unwritten) = (true, true);
                    }
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

fn of_system(name: &str) -> Result<Vec<IpAddr>, Unresolved> {
    // One answer for each address, not one for each protocol.
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(name), None, Some(hints)).map_err(|why| match why.kind() {
        LookupErrorKind::NoName | LookupErrorKind::NoData => Unresolved::NoSuchName,
        _ => Unresolved::Failed(why.into()),
    })?;
    let found = found.map(|info| info.map(|info| info.sockaddr.ip()));
    found.collect::<io::Result<_>>().map_err(Unresolved::Failed)
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName => f.write_str("no such name, or no address of it"),
            Self::Failed(error) => error.fmt(f),
        }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn peer(name: &str) -> Hosts {
        Hosts { local: Vec::new(), remote: vec![HostSpec::Name(name.to_owned())] }
    }

    fn at(address: &str) -> Vec<AddressSpec> {
        vec![AddressSpec::single(address.parse().unwrap())]
    }

    fn silence() -> Result<Vec<IpAddr>, Unresolved> {
        Err(Unresolved::Failed(io::ErrorKind::TimedOut.into()))
    }

    fn one() -> Result<Vec<IpAddr>, Unresolved> {
        Ok(vec!["192.0.2.1".parse().unwrap()])
    }

    async fn until(what: impl Fn() -> bool) {
        let wait = async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("it comes");
    }

    /// Fault: in `Shared::begin`, look the name up although a look-up is under way.
    #[tokio::test]
    async fn all_that_wait_for_a_name_share_one_look_up() {
        let (go, gate) = mpsc::channel::<()>();
        let (gate, count) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        let names = Names::by(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            gate.lock().unwrap().recv_timeout(LONG).unwrap();
            Ok(vec!["192.0.2.1".parse().unwrap()])
        });
        let asks: Vec<_> = (0..400)
            .map(|_| {
                let names = names.clone();
                tokio::spawn(async move { names.look_up(&peer("gw.example")).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        go.send(()).unwrap();
        for ask in asks {
            assert_eq!(ask.await.unwrap().unwrap().remote, at("192.0.2.1"));
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    /// Fault: in `Shared::answered`, clear the addresses where the look-up has failed.
    #[tokio::test]
    async fn a_failed_look_up_leaves_what_was_known_and_is_tried_again() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let names = Names::by(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec!["192.0.2.1".parse().unwrap()]),
            1 => silence(),
            _ => Ok(vec!["192.0.2.2".parse().unwrap()]),
        });
        let peer = peer("gw.example");
        assert_eq!(names.known(&peer).remote, []);
        assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
        assert!(names.renew([&peer].into_iter()) > REFRESH / 2);
        assert_eq!(count.load(Ordering::SeqCst), 1, "it is not due");
        assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
        assert!(names.renew([&peer].into_iter()) <= BACK_OFF, "it is tried again soon");
        until(|| {
            names.renew([&peer].into_iter());
            names.known(&peer).remote == at("192.0.2.2")
        })
        .await;
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    /// Fault: in `Names::look_up`, wait `RESOLVING` for each name.
    #[tokio::test]
    async fn a_known_address_is_used_while_name_servers_are_silent() {
        let (_never, gate) = mpsc::channel::<()>();
        let (gate, count) = (Mutex::new(gate), AtomicUsize::new(0));
        let names = Names::by(move |_| {
            if count.fetch_add(1, Ordering::SeqCst) > 0 {
                _ = gate.lock().unwrap().recv_timeout(LONG);
            }
            Ok(vec!["192.0.2.1".parse().unwrap()])
        });
        let peer = peer("gw.example");
        names.look_up(&peer).await.unwrap();
        let begun = Instant::now();
        assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
        assert!(begun.elapsed() < RESOLVING / 2);
    }

    /// Fault: in `Names::look_up`, await each look-up before the next one is begun; or let `THREADS` be 1.
    #[tokio::test]
    async fn silent_names_hold_no_other_one_and_take_few_threads() {
        let (most, now) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let ended = Arc::new(AtomicUsize::new(0));
        let (seen, counted) = (Arc::clone(&most), Arc::clone(&ended));
        let names = Names::by(move |name| {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if name.starts_with("silent") {
                std::thread::sleep(Duration::from_millis(500));
            }
            now.fetch_sub(1, Ordering::SeqCst);
            counted.fetch_add(1, Ordering::SeqCst);
            if name.starts_with("silent") { silence() } else { one() }
        });
        let silent: Vec<_> = (0..THREADS - 1).map(|n| peer(&format!("silent{n}"))).collect();
        names.renew(silent.iter());
        let begun = Instant::now();
        assert_eq!(names.look_up(&peer("gw")).await.unwrap().remote, at("192.0.2.1"));
        assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
        let more: Vec<_> = (0..100).map(|n| peer(&format!("silent-too{n}"))).collect();
        names.renew(more.iter());
        assert!(!more.iter().any(|hosts| names.is_backing_off(hosts)), "they are under way");
        until(|| ended.load(Ordering::SeqCst) == THREADS + more.len()).await;
        assert_eq!(most.load(Ordering::SeqCst), THREADS);
    }

    /// Fault: in `Shared::answered`, clear the addresses at the first `NoSuchName`; or never.
    #[test]
    fn no_such_name_replaces_what_was_known_after_an_hour() {
        let (names, peer) = (Names::by(|_| silence()), peer("gw.example"));
        let begun = Instant::now();
        names.0.answered("gw.example", one(), begun);
        let answer = |minutes: u64, found| {
            names.0.answered("gw.example", found, begun + Duration::from_secs(60 * minutes));
            names.known(&peer).remote
        };
        assert_eq!(answer(1, Err(Unresolved::NoSuchName)), at("192.0.2.1"));
        assert_eq!(answer(59, Err(Unresolved::NoSuchName)), at("192.0.2.1"));
        assert_eq!(answer(60, one()), at("192.0.2.1"));
        assert_eq!(answer(70, Err(Unresolved::NoSuchName)), at("192.0.2.1"));
        assert_eq!(answer(130, silence()), at("192.0.2.1"), "a failure says nothing");
        assert_eq!(answer(131, Err(Unresolved::NoSuchName)), []);
        assert!(std::mem::take(&mut names.0.lock().changed), "the engine hears of it");
        assert_eq!(answer(132, one()), at("192.0.2.1"));
    }

    /// Fault: in `of_system`, let `NoName` be a failure as others.
    #[test]
    fn the_system_tells_a_missing_name_from_silence() {
        // RFC 6761: no name server is asked about it.
        assert_eq!(of_system("localhost").unwrap().iter().find(|ip| !ip.is_loopback()), None);
        // A label of 64 letters cannot be in the DNS.
        let missing = of_system(&"a".repeat(64));
        assert!(matches!(missing, Err(Unresolved::NoSuchName)), "{missing:?}");
    }

    /// Fault: in `Shared::work`, do not write; in `Names::keep_in`, do not read; or leave out `notify_one` there.
    #[tokio::test]
    async fn the_last_addresses_are_known_after_a_restart() {
        let path = std::env::temp_dir().join(format!("ike-names-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let (peer, other) = (peer("gw.example"), peer("other.example"));
        let names = Names::by(|_| one());
        names.keep_in(path.clone());
        names.look_up(&peer).await.unwrap();
        names.look_up(&other).await.unwrap();
        let all = "gw.example 192.0.2.1\nother.example 192.0.2.1\n";
        until(|| std::fs::read_to_string(&path).is_ok_and(|text| text == all)).await;
        let (_never, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let names = Names::by(move |_| {
            _ = gate.lock().unwrap().recv_timeout(LONG);
            silence()
        });
        names.keep_in(path.clone());
        let heard = tokio::time::timeout(LONG, names.changed()).await;
        assert_eq!(heard, Ok(true), "the engine hears of it");
        assert!(!names.is_backing_off(&peer));
        names.renew([&peer].into_iter());
        let begun = Instant::now();
        assert_eq!(names.look_up(&peer).await.unwrap().remote, at("192.0.2.1"));
        assert!(begun.elapsed() < RESOLVING / 2);
        assert_eq!(names.known(&other).remote, at("192.0.2.1"), "a control client may load it");
        std::fs::remove_file(&path).unwrap();
    }

    /// Fault: in `Shared::write`, leave `unwritten` alone after an error.
    #[test]
    fn a_file_that_could_not_be_written_is_written_after_the_next_look_up() {
        let folder = std::env::temp_dir().join(format!("ike-names-late-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        let (names, path) = (Names::by(|_| silence()), folder.join("names"));
        names.0.answered("gw.example", one(), Instant::now());
        names.0.write(&path);
        std::fs::create_dir(&folder).unwrap();
        names.0.answered("gw.example", one(), Instant::now());
        names.0.write(&path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "gw.example 192.0.2.1\n");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Fault: in `Names::renew`, keep what is in `kept` for ever.
    #[test]
    fn addresses_of_an_earlier_run_are_forgotten_if_nobody_needs_them() {
        let names = Names::by(|_| silence());
        let past = Instant::now();
        let known = Name { addresses: one().unwrap(), kept: Some(past), ..Name::default() };
        names.0.lock().names.insert("old.example".to_owned(), known);
        names.renew(std::iter::empty());
        assert_eq!(names.known(&peer("old.example")).remote, []);
    }
}
