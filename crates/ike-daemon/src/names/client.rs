//! The daemon's end: asks the resolver, and replaces it.

use std::fmt;
use std::io;
use std::mem;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ike_config::SandboxOptions;
use ike_tokio::net::resolver::{Done, Found, servers_in};
use ike_tokio::{Resolver, Unresolved};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{ADDRESSES, Answer, Ask, COMMAND, LARGEST, MOST, Question, THREADS, Told};
use crate::log::LogFormat;
use crate::signer::protocol::{Limits, receive_up_to, send};
use crate::signer::spawner;

/// How long a look-up of a resolver may take. The C library's resolver gives up after some 30 s, unless resolv.conf says
/// otherwise.
const LIMIT: Duration = Duration::from_secs(60);

/// How long the resolver may take to hand files over. It is asked for them while a look-up takes longer than that.
const SILENCE: Duration = Duration::from_secs(10);

/// How long somebody waits for these files who knows an earlier text of them.
const MOMENT: Duration = Duration::from_secs(2);

/// How often times are looked at.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The wait before a new resolver, once one has ended twice. It doubles with each further one, up to [`LATEST`].
const BACK_OFF: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);

/// A resolver that has lived so long is no failure, if it ends.
const STEADY: Duration = Duration::from_secs(60);

/// How long the end waits for the process.
const FAREWELL: Duration = Duration::from_secs(1);

/// Characters of an error that count. The resolver reads what strangers send.
const LONGEST: usize = 200;

/// Starts a new resolver, and ends the former one.
type Another = Box<dyn FnMut() -> io::Result<UnixStream> + Send>;

type Lost = Box<dyn FnOnce() + Send>;

/// Looks names up by a resolver, which ends with this.
pub(crate) struct Lookups {
    line: Arc<Line>,
    child: Option<Child>,
    /// To the spawner, until it knows the limits of resolvers.
    unsealed: Option<UnixStream>,
}

struct Line {
    state: Mutex<State>,
    /// A question for files has been answered, or has failed.
    news: Condvar,
    another: Mutex<Another>,
    /// Called if there is nobody any more who could start a resolver.
    lost: Mutex<Option<Lost>>,
}

#[derive(Default)]
struct State {
    link: Link,
    /// Questions without an answer.
    open: Vec<Open>,
    number: u64,
    /// The last text of the files that name the name servers.
    files: String,
    /// When the resolver was asked for them last, and whether it has answered.
    probed: Option<(Instant, bool)>,
    /// Look-ups that have failed because they took too long. Each has a thread of this resolver, until that answers.
    overdue: Vec<u64>,
    closed: bool,
}

/// The connection to the resolver.
#[derive(Default)]
enum Link {
    /// It is being started. Questions wait.
    #[default]
    Starting,
    Up(Arc<UnixStream>),
    /// It is started later, or never. Questions fail.
    Down,
}

struct Open {
    number: u64,
    asked: Instant,
    what: Wanted,
}

enum Wanted {
    Name(String, Done),
    /// Somebody waits for it.
    Files(bool),
}

/// Why a resolver is not used any more.
enum End {
    /// The daemon ends.
    Closed,
    /// A new one may read files that have been replaced.
    Outdated,
    Lost(io::Error),
    /// And no other one can be started.
    Never,
}

impl Lookups {
    /// Starts the process that starts resolvers: this program once more. `lost` is called if that is gone.
    ///
    /// # Errors
    /// If no process can be made.
    pub(crate) fn spawn(log: LogFormat, lost: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        // The child starts the resolvers, because this process will not be able to.
        let child =
            spawner::program(COMMAND, log).stdin(Stdio::from(OwnedFd::from(its))).spawn()?;
        let (unsealed, mut orders) = (ours.try_clone()?, 0_u8);
        let another = move || {
            orders = orders.wrapping_add(1);
            spawner::ask(&ours, orders)
        };
        let mut lookups = Self::over(another);
        (lookups.child, lookups.unsealed) = (Some(child), Some(unsealed));
        *lookups.line.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(lost));
        Ok(lookups)
    }

    /// Tells the spawner once, before the first resolver is [started](Self::start), which limits `[charon.sandbox]` sets for
    /// resolvers. An attacker who takes the daemon over later cannot change the limits.
    ///
    /// # Errors
    /// If the process that starts resolvers is gone.
    pub(crate) fn seal(&mut self, sandbox: SandboxOptions) -> io::Result<()> {
        let limits = Limits::of(sandbox);
        self.unsealed.take().map_or(Ok(()), |spawner| spawner::seal(&spawner, &[], &limits))
    }

    /// By resolvers at the other ends of the streams that `another` returns.
    pub(super) fn over(another: impl FnMut() -> io::Result<UnixStream> + Send + 'static) -> Self {
        let another = Mutex::new(Box::new(another) as Another);
        let (state, news) = (Mutex::default(), Condvar::new());
        let line = Line { state, news, another, lost: Mutex::default() };
        Self { line: Arc::new(line), child: None, unsealed: None }
    }

    /// Starts the first resolver, and a thread that takes answers. Until then questions wait, and there is no thread, so
    /// that the process can give up what threads would keep.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start(&self) -> io::Result<()> {
        let line = Arc::clone(&self.line);
        thread::Builder::new().name("names".to_owned()).spawn(move || line.keep()).map(drop)
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.closed = true;
        if let Link::Up(stream) = &state.link {
            // The resolver reads the end of its questions, and the thread here the end of the answers.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        // The process that starts resolvers ends when its connection does.
        if let Ok(mut another) = self.line.another.try_lock() {
            *another = Box::new(|| Err(gone()));
        }
        if let Some(child) = &mut self.child {
            let end = Instant::now() + FAREWELL;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(Duration::from_millis(2));
            }
            // A stopped process does not end by itself. A process that has ended is not affected.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Resolver for Lookups {
    fn ask(&self, name: &str, done: Done) {
        self.line.ask(Wanted::Name(name.to_owned(), done));
    }

    fn name_servers(&self) -> Vec<SocketAddr> {
        let mut state = self.line.lock();
        if state.put(Wanted::Files(true)).is_ok() {
            let number = state.number;
            let is_open = |state: &mut State| state.open.iter().any(|open| open.number == number);
            let waited = self.line.news.wait_timeout_while(state, MOMENT, is_open);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        servers_in(&state.files)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, what: Wanted) {
        let refused = self.lock().put(what);
        // Whoever hears of it may ask again.
        if let Err((what, why)) = refused {
            what.fail(&io::Error::other(why));
        }
    }

    /// Keeps a resolver until the daemon ends.
    fn keep(&self) {
        let (mut failures, mut outdated) = (0_u32, false);
        loop {
            let begun = Instant::now();
            let end = self.run_one();
            if begun.elapsed() > STEADY {
                failures = 0;
            }
            match end {
                End::Closed => break,
                End::Outdated => {
                    tracing::debug!("files of the system's resolver have been replaced");
                    self.lock().link = Link::Starting;
                    // They may be replaced all the time.
                    if mem::replace(&mut outdated, true) && begun.elapsed() < BACK_OFF {
                        thread::sleep(BACK_OFF);
                    }
                }
                End::Lost(error) => {
                    if failures == 0 {
                        tracing::error!(%error, "the process that looks host names up is replaced");
                    }
                    outdated = false;
                    let wait = wait_after(failures);
                    failures = failures.saturating_add(1);
                    // Questions do not wait for a late one.
                    let soon = if wait.is_zero() { Link::Starting } else { Link::Down };
                    self.fail_all(&error, soon);
                    thread::sleep(wait);
                    self.lock().link = Link::Starting;
                }
                End::Never => {
                    self.fail_all(&gone(), Link::Down);
                    let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(lost) = lost {
                        lost();
                    }
                    break;
                }
            }
        }
        *self.another.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(|| Err(gone()));
    }

    /// Starts a resolver, and takes its answers until it is not used any more.
    fn run_one(&self) -> End {
        let another = (self.another.lock().unwrap_or_else(PoisonError::into_inner))();
        let stream = match another {
            Ok(stream) => Arc::new(stream),
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => return self.end(End::Never),
            Err(why) => return self.end(End::Lost(why)),
        };
        // What is begun is there at once, and questions have room.
        let timeouts = stream
            .set_read_timeout(Some(SILENCE))
            .and_then(|()| stream.set_write_timeout(Some(MOMENT)));
        if let Err(why) = timeouts {
            return self.end(End::Lost(why));
        }
        self.lock().connect(&stream);
        loop {
            let mut events = [PollFd::new(&*stream, PollFlags::IN)];
            let news = match poll(&mut events, Some(&TICK)) {
                Ok(count) => count > 0,
                Err(rustix::io::Errno::INTR) => false,
                Err(why) => return self.end(End::Lost(why.into())),
            };
            let answer = news.then(|| receive_up_to::<Answer>(LARGEST, &mut &*stream));
            match answer {
                Some(Ok(Some(Answer { what: Told::Replace, .. }))) => {
                    return self.end(End::Outdated);
                }
                Some(Ok(Some(answer))) => self.take(answer),
                Some(Ok(None)) => return self.end(End::Lost(gone())),
                Some(Err(why)) => return self.end(End::Lost(why)),
                None => {}
            }
            let now = Instant::now();
            let overdue = self.lock().overdue(now);
            for open in overdue {
                open.what.fail(&io::Error::new(io::ErrorKind::TimedOut, "name servers are silent"));
            }
            if self.lock().is_silent(now) {
                return self
                    .end(End::Lost(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")));
            }
        }
    }

    /// `end`, unless the daemon ends.
    fn end(&self, end: End) -> End {
        if self.lock().closed { End::Closed } else { end }
    }

    fn take(&self, Answer { number, mut what }: Answer) {
        let mut state = self.lock();
        let place = state.open.iter().position(|open| open.number == number);
        let asked = place.map(|place| state.open.remove(place).what);
        state.overdue.retain(|late| *late != number);
        if let Told::Files(text) = &mut what {
            // Files that are being replaced are not there for a moment.
            if !text.trim().is_empty() {
                state.files = mem::take(text);
            }
            state.probed = state.probed.map(|(at, _)| (at, true));
        }
        drop(state);
        match asked {
            Some(Wanted::Name(_, done)) => done(found(what)),
            Some(Wanted::Files(_)) => self.news.notify_all(),
            None => {}
        }
    }

    /// All questions have failed. Others are for `link`.
    fn fail_all(&self, why: &io::Error, link: Link) {
        let mut state = self.lock();
        state.link = link;
        let open = mem::take(&mut state.open);
        drop(state);
        self.news.notify_all();
        for open in open {
            open.what.fail(why);
        }
    }
}

impl State {
    /// Takes a question, and asks it if the resolver is there. Back if it has failed, with the reason.
    fn put(&mut self, what: Wanted) -> Result<(), (Wanted, &'static str)> {
        if matches!(self.link, Link::Down) || self.closed {
            return Err((what, "the process that looks host names up has ended"));
        }
        if self.open.len() >= MOST {
            return Err((what, "too many look-ups"));
        }
        self.push(Instant::now(), what);
        Ok(())
    }

    fn push(&mut self, asked: Instant, what: Wanted) {
        self.number += 1;
        let open = Open { number: self.number, asked, what };
        self.say(&open);
        self.open.push(open);
    }

    fn say(&self, open: &Open) {
        let number = open.number;
        let what = match &open.what {
            Wanted::Name(name, _) => Ask::Name(name.clone()),
            Wanted::Files(_) => Ask::Files,
        };
        if let Link::Up(stream) = &self.link
            && let Err(error) = send(&mut &**stream, &Question { number, what })
        {
            tracing::debug!(%error, "host names: a question cannot be sent");
            // The thread notices it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Asks a new resolver what is still open, after the files: it answers that at once.
    fn connect(&mut self, stream: &Arc<UnixStream>) {
        self.link = Link::Up(Arc::clone(stream));
        self.overdue.clear();
        let now = Instant::now();
        self.open.iter_mut().for_each(|open| open.asked = now);
        self.probe(now);
        for open in self.open.iter().filter(|open| !matches!(open.what, Wanted::Files(false))) {
            self.say(open);
        }
    }

    fn probe(&mut self, now: Instant) {
        self.probed = Some((now, false));
        self.open.retain(|open| !matches!(open.what, Wanted::Files(false)));
        // There is always room for this one.
        self.push(now, Wanted::Files(false));
    }

    /// The look-ups that have taken too long, which are no longer open. Others go on.
    fn overdue(&mut self, now: Instant) -> Vec<Open> {
        let is_overdue = |open: &Open| {
            matches!(open.what, Wanted::Name(..))
                && now.saturating_duration_since(open.asked) > LIMIT
        };
        let overdue: Vec<_> = self.open.extract_if(.., |open| is_overdue(open)).collect();
        self.overdue.extend(overdue.iter().map(|open| open.number));
        overdue
    }

    /// True if the resolver has left a question for files without an answer for too long, or has no thread left. Asks it for
    /// files while a look-up takes long: name servers may be silent, and the resolver may not.
    fn is_silent(&mut self, now: Instant) -> bool {
        let since = |at: Instant| now.saturating_duration_since(at);
        let oldest = self.open.iter().map(|open| since(open.asked)).max().unwrap_or_default();
        if self.overdue.len() >= THREADS {
            return true;
        }
        match self.probed {
            Some((at, false)) => since(at) > SILENCE,
            Some((at, true)) if since(at) <= SILENCE => false,
            _ => {
                if oldest > SILENCE {
                    self.probe(now);
                }
                false
            }
        }
    }
}

impl Wanted {
    fn fail(self, why: &io::Error) {
        if let Self::Name(_, done) = self {
            done(Err(Unresolved::Failed(io::Error::new(why.kind(), why.to_string()))));
        }
    }
}

/// What came of a look-up.
fn found(told: Told) -> Found {
    match told {
        Told::Addresses(mut addresses) if !addresses.is_empty() => {
            addresses.truncate(ADDRESSES);
            // They are kept.
            addresses.shrink_to_fit();
            Ok(addresses)
        }
        Told::Addresses(_) | Told::NoSuchName => Err(Unresolved::NoSuchName),
        Told::Failed(why) => {
            let why: String = why.escape_debug().take(LONGEST).collect();
            Err(Unresolved::Failed(io::Error::other(why)))
        }
        Told::Files(_) | Told::Replace => {
            Err(Unresolved::Failed(io::Error::other("no answer to this question")))
        }
    }
}

/// The wait before a new resolver after so many failures and one.
fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(more) => {
            BACK_OFF.saturating_mul(1_u32.checked_shl(more).unwrap_or(u32::MAX)).min(LATEST)
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "it has ended")
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookups")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look-up takes long. The resolver is asked for files meanwhile: it hands them over at first, and then is stopped.
    ///
    /// Faults, each by itself: in `State::is_silent`, look at `LIMIT` alone; take an answer for none.
    #[test]
    fn a_resolver_that_does_not_hand_files_over_is_silent() {
        let (ours, _its) = UnixStream::pair().unwrap();
        let (mut state, begun) = (State::default(), Instant::now());
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        let answer = |state: &mut State| {
            state.open.retain(|open| !matches!(open.what, Wanted::Files(_)));
            state.probed = state.probed.map(|(at, _)| (at, true));
        };
        state.connect(&Arc::new(ours));
        answer(&mut state);
        assert!(!state.is_silent(after(3600)), "nothing is asked");
        state.put(Wanted::Name("gw.example".to_owned(), Box::new(|_| ()))).map_err(|_| ()).unwrap();
        assert!(!state.is_silent(after(11)));
        assert_eq!(state.probed, Some((after(11), false)));
        answer(&mut state);
        assert!(!state.is_silent(after(20)) && !state.is_silent(after(22)));
        assert_eq!(state.probed, Some((after(22), false)));
        assert!(!state.is_silent(after(31)));
        assert!(state.is_silent(after(33)), "it has not answered");
        answer(&mut state);
        assert!(!state.is_silent(after(59)));
    }

    /// Name servers are silent about one name, and then about as many as there are threads.
    ///
    /// Faults, each by itself: in `State::overdue`, take all; in `State::is_silent`, let one be enough; leave `THREADS` out;
    /// in `State::connect`, leave `asked` alone, or `overdue`.
    #[test]
    fn a_look_up_that_takes_too_long_fails_alone() {
        let (ours, _its) = UnixStream::pair().unwrap();
        let ours = Arc::new(ours);
        let mut state = State::default();
        let ask = |state: &mut State, asked: Instant| {
            state
                .put(Wanted::Name("gw.example".to_owned(), Box::new(|_| ())))
                .map_err(|_| ())
                .unwrap();
            state.open.last_mut().unwrap().asked = asked;
        };
        let begun = Instant::now();
        let late = begun + LIMIT + Duration::from_secs(1);
        ask(&mut state, begun - 2 * LIMIT);
        state.connect(&ours);
        assert_eq!(state.overdue(begun).len(), 0, "it was asked a moment ago");
        // It hands files over.
        state.open.retain(|open| !matches!(open.what, Wanted::Files(_)));
        state.probed = Some((late, true));
        ask(&mut state, late);
        assert_eq!(state.overdue(late).len(), 1);
        assert!(state.open.len() == 1 && !state.is_silent(late));
        for _ in 1..THREADS {
            assert!(!state.is_silent(late));
            ask(&mut state, begun);
            assert_eq!(state.overdue(late).len(), 1);
        }
        assert!(state.is_silent(late), "it has no thread left");
        state.connect(&ours);
        assert!(!state.is_silent(Instant::now()), "another one has");
    }

    /// Fault: in `wait_after`, let the wait not double, or not end at `LATEST`.
    #[test]
    fn the_wait_before_a_new_resolver_doubles_up_to_a_minute() {
        let waits = [0, 1, 2, 3, 6, 7, 40].map(|failures| wait_after(failures).as_secs());
        assert_eq!(waits, [0, 1, 2, 4, 32, 60, 60]);
    }
}
