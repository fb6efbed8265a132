//! Host names: what is known of each, and the threads that look them up.
//!
//! getaddrinfo blocks for as long as name servers are silent, and has no limit. So it runs on threads of its own: on
//! the runtime's pool for blocking work it would hold back signatures. There is one look-up for a name at a time, which all
//! share that wait for it. A look-up that fails leaves what was known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ike_config::{Ends, HostSpec, Hosts};
use ike_proto::config::AddressSpec;
use tokio::sync::{Notify, watch};

use crate::error::OperatorError;

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

/// Looks a name up. Blocks.
type Resolver = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// What is known of names. Clones share it.
#[derive(Clone)]
pub(super) struct Names(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A look-up has ended.
    news: Notify,
    resolver: Box<Resolver>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, Name>,
    /// Look-ups that no thread has begun.
    queue: VecDeque<String>,
    threads: usize,
    /// The addresses of a name have changed since somebody asked.
    changed: bool,
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
}

impl Names {
    /// By the system's resolver.
    pub(super) fn of_system() -> Self {
        Self::by(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    fn by(resolver: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        let (state, news) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { state, news, resolver: Box::new(resolver) }))
    }

    /// The ends of `hosts`, from a look-up of each name that begins now or is under way. What was known counts where
    /// this fails or takes too long; a name of which nothing is known falls away.
    ///
    /// # Errors
    /// [`OperatorError::NameServers`] if they are silent about a name of the peer of which nothing is known.
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
        match ends.remote.is_empty() && silent {
            true => Err(OperatorError::NameServers(RESOLVING)),
            false => Ok(ends),
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
        state.names.retain(|name, known| known.asked.is_some() || wanted.contains(name.as_str()));
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
                self.answered(name, Err(error));
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
            self.answered(&name, found);
        }
    }

    fn answered(&self, name: &str, found: io::Result<Vec<IpAddr>>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let entry = state.names.entry(name.to_owned()).or_default();
        let after = match found {
            Ok(found) => {
                let set = |addresses: &[IpAddr]| addresses.iter().copied().collect::<BTreeSet<_>>();
                if set(&found) != set(&entry.addresses) {
                    tracing::info!(%name, addresses = ?set(&found), "host name resolved");
                    state.changed = true;
                    self.news.notify_one();
                } else if entry.failures > 0 {
                    tracing::info!(%name, "host name resolved again");
                }
                entry.addresses = found;
                entry.failures = 0;
                REFRESH
            }
            Err(error) => {
                if entry.failures == 0 {
                    let used = &entry.addresses;
                    tracing::warn!(%name, %error, ?used, "host name not resolved: it is tried again");
                }
                entry.failures = entry.failures.saturating_add(1);
                self.news.notify_one();
                BACK_OFF.saturating_mul(1 << entry.failures.min(7).saturating_sub(1)).min(REFRESH)
            }
        };
        entry.due = Some(Instant::now() + after);
        entry.asked = None;
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

    fn silence() -> io::Result<Vec<IpAddr>> {
        Err(io::ErrorKind::TimedOut.into())
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
            if name.starts_with("silent") {
                silence()
            } else {
                Ok(vec!["192.0.2.1".parse().unwrap()])
            }
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
}
