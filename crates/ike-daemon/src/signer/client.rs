//! The daemon's end: asks the signer, and replaces a signer that does not answer.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ike_proto::crypto::{CryptoError, SignatureScheme, SigningKey};

use super::held::{Again, Held, Origin, PinOf, Source};
use super::link::{Link, PATIENCE, gone, silent};
use super::protocol::{Ask, Found, SignError, Told, Wiped};
use super::{KeySource, LoadRequest, Loaded, Refused, lock, spawner};

/// How long a question to the signer waits for its answer, unless the configuration says something else.
const LIMIT: Duration = Duration::from_secs(30);

/// How long the end waits for the process.
const FAREWELL: Duration = Duration::from_secs(1);

/// Starts a new signer, and ends the former one.
type Another = Box<dyn FnMut() -> io::Result<UnixStream> + Send>;

/// A running signer. Clones share it; it ends with the last of them and of its keys.
#[derive(Clone)]
pub struct Signer(Arc<Line>);

/// The connection to the present signer, and what it takes to replace that signer.
struct Line {
    /// Of questions, and of keys on this side.
    number: AtomicU64,
    limit: Mutex<Duration>,
    link: Mutex<Arc<Link>>,
    lost: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    held: Mutex<Held>,
    another: Mutex<Another>,
    /// When the last replacement began, and whether one is under way.
    replaced: Mutex<Option<Instant>>,
    replacing: AtomicBool,
    child: Mutex<Option<Child>>,
    /// To the spawner, until it has the list of the modules that signers may load.
    unsealed: Mutex<Option<UnixStream>>,
    /// A question had no answer.
    failed: AtomicBool,
}

/// A private key that the signer holds.
struct RemoteKey {
    line: Arc<Line>,
    key: u64,
    name: String,
    spki: Vec<u8>,
}

impl Signer {
    /// Starts a signer: this program once more. `lost` is called when it is gone, whatever the reason, once it is
    /// [sealed](KeySource::seal), and when nobody can make another one.
    ///
    /// # Errors
    /// If no process can be made.
    pub fn spawn(lost: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        // This name is that of the running program, also after the file has been replaced. The child starts the signers,
        // because this process will not be able to.
        let child = Command::new("/proc/self/exe")
            .arg("signer")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .spawn()?;
        let (unsealed, mut orders) = (ours.try_clone()?, 0_u8);
        let another = move || {
            orders = orders.wrapping_add(1);
            spawner::ask(&ours, orders)
        };
        let signer = Self::over(another, lost)?;
        *lock(&signer.0.child) = Some(child);
        *lock(&signer.0.unsealed) = Some(unsealed);
        Ok(signer)
    }

    /// A signer at the other end of the stream that `another` returns.
    pub(super) fn over(
        mut another: impl FnMut() -> io::Result<UnixStream> + Send + 'static,
        lost: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let link = Link::new(another()?);
        Ok(Self(Arc::new(Line {
            number: AtomicU64::new(0),
            limit: Mutex::new(LIMIT),
            link: Mutex::new(Arc::new(link)),
            lost: Mutex::new(Some(Box::new(lost))),
            held: Mutex::default(),
            another: Mutex::new(Box::new(another)),
            replaced: Mutex::default(),
            replacing: AtomicBool::new(false),
            child: Mutex::default(),
            unsealed: Mutex::default(),
            failed: AtomicBool::new(false),
        })))
    }
}

impl Line {
    fn link(&self) -> Arc<Link> {
        Arc::clone(&lock(&self.link))
    }

    /// Lets a new signer load this module too, if the first one may.
    fn admit(&self, module: &Path) {
        let mut held = lock(&self.held);
        if !held.sealed && !held.modules.iter().any(|known| known == module) {
            held.modules.push(module.to_path_buf());
        }
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// The answer to a question about `name`. A signer that has not answered `patience` questions is not asked.
    fn ask(
        self: &Arc<Self>,
        link: &Link,
        what: Ask,
        name: &str,
        patience: u32,
    ) -> io::Result<Told> {
        let limit = *lock(&self.limit);
        let answer = if link.is_silent(patience) {
            link.count_unasked(limit);
            Err(silent())
        } else {
            link.ask(self.next(), what, limit).inspect_err(|error| {
                if error.kind() == io::ErrorKind::TimedOut {
                    tracing::error!(key = name, ?limit, "the signer does not answer");
                }
            })
        };
        if answer.is_err() {
            self.failed.store(true, Ordering::SeqCst);
        }
        if link.is_silent(PATIENCE) {
            self.replace_soon();
        }
        answer
    }

    /// Has a thread replace the signer, unless that was tried a moment ago.
    fn replace_soon(self: &Arc<Self>) {
        let (limit, mut last) = (*lock(&self.limit), lock(&self.replaced));
        if last.is_some_and(|last| last.elapsed() < limit)
            || self.replacing.swap(true, Ordering::SeqCst)
        {
            return;
        }
        *last = Some(Instant::now());
        let line = Arc::clone(self);
        let thread = thread::Builder::new().name("signer-new".to_owned()).spawn(move || {
            tracing::error!("the signer does not answer: a new one is started");
            match line.replace() {
                Ok((keys, 0)) => tracing::info!(keys, "the new signer has the keys"),
                Ok((keys, lost)) => tracing::error!(
                    keys,
                    lost,
                    "the new signer does not have all keys: reload the file, or let the VICI client load its keys again"
                ),
                Err(error) => {
                    tracing::error!(%error, "a new signer cannot be started: restart the daemon");
                }
            }
            line.replacing.store(false, Ordering::SeqCst);
        });
        if let Err(error) = thread {
            self.replacing.store(false, Ordering::SeqCst);
            tracing::error!(%error, "a new signer cannot be started: no thread");
        }
    }

    /// Returns how many keys the new signer has, and how many it lacks.
    fn replace(self: &Arc<Self>) -> io::Result<(usize, usize)> {
        let former = self.link();
        // From here on the end of the former signer is no loss.
        former.retire(true);
        let stream = (lock(&self.another))().inspect_err(|why| {
            former.retire(false);
            // The spawner is gone, and the last signer may hang for ever.
            if why.kind() == io::ErrorKind::BrokenPipe {
                self.lose();
            }
        })?;
        let link = Arc::new(Link::new(stream));
        let all = lock(&self.held).again();
        self.watch(&link)?;
        let (mut there, mut missing) = (0, 0);
        for Again { ask, name, keys } in all {
            let token = ask.as_ref().and_then(PinOf::of);
            // A key before it, or a reload meanwhile, may have had the PIN refused.
            let usable = token.as_ref().is_none_or(|pin| lock(&self.held).keeps(pin));
            let told = ask.filter(|_| usable).map(|ask| self.ask(&link, ask, &name, 1));
            let found = match told {
                Some(Ok(Told::Loaded(Ok(found)))) => found.keys,
                Some(Ok(Told::Loaded(Err(why)))) => {
                    tracing::error!(key = name, %why, "the new signer has not loaded the key");
                    lock(&self.held).refuse(token.as_ref(), &why);
                    Vec::new()
                }
                // `ask` has logged that there is no answer.
                _ => Vec::new(),
            };
            for (key, spki) in keys {
                match found.iter().find(|(_, known)| *known == spki) {
                    Some((its, _)) => {
                        link.learn(key, *its);
                        there += 1;
                    }
                    None => missing += 1,
                }
            }
        }
        *lock(&self.link) = link;
        former.close();
        Ok((there, missing))
    }

    /// Starts the threads of `link`. Its end is a loss, unless its signer has been replaced.
    fn watch(self: &Arc<Self>, link: &Arc<Link>) -> io::Result<()> {
        let line = Arc::downgrade(self);
        link.start(move || {
            if let Some(line) = line.upgrade() {
                line.lose();
            }
        })
    }

    fn lose(&self) {
        let lost = lock(&self.lost).take();
        if let Some(lost) = lost {
            lost();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.link().close();
        // The spawner ends when its connection does.
        *lock(&self.another) = Box::new(|| Err(gone()));
        *lock(&self.unsealed) = None;
        if let Some(mut child) = lock(&self.child).take() {
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

/// What a key is called in the log.
fn name(request: &LoadRequest<'_>) -> String {
    match request {
        LoadRequest::File { path, .. } => path.display().to_string(),
        LoadRequest::Octets(_) => "a key of a VICI client".to_owned(),
        LoadRequest::Token { key, .. } => {
            let handle: String = key.handle.iter().map(|octet| format!("{octet:02x}")).collect();
            format!("{handle} of {}", key.module.display())
        }
    }
}

impl KeySource for Signer {
    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let (ask, name) = (Ask::Names(folder.to_path_buf()), folder.display().to_string());
        match self.0.ask(&self.0.link(), ask, &name, 1)? {
            Told::Names(names) => names.map_err(io::Error::other),
            Told::Loaded(_) | Told::Signed(_) => Err(gone()),
        }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Loaded, Refused> {
        let (mut source, name, link) = (Source::of(request), name(request), self.0.link());
        let ask = match request {
            LoadRequest::Octets(octets) => Some(Ask::Octets(Wiped::new(octets.expose()))),
            LoadRequest::File { .. } | LoadRequest::Token { .. } => source.ask(),
        };
        let broken = |why: io::Error| Refused::Unreadable(format!("the signer: {why}"));
        let ask = ask.ok_or_else(|| broken(gone()))?;
        let pin = PinOf::of(&ask);
        if let LoadRequest::Token { key, .. } = request {
            self.0.admit(&key.module);
        }
        // A reload does not wait for a signer that has left another question without an answer.
        let Told::Loaded(found) = self.0.ask(&link, ask, &name, 1).map_err(broken)? else {
            return Err(broken(gone()));
        };
        let mut held = lock(&self.0.held);
        let found = found.inspect_err(|why| held.refuse(pin.as_ref(), why))?;
        // Only this token has taken the PIN.
        if let Source::Token { key, .. } = &mut source {
            key.slot = found.slot.or(key.slot);
        }
        let mut origin = Origin { source, name: name.clone(), keys: Vec::new() };
        let key = |(its, spki): (u64, Vec<u8>)| -> Arc<dyn SigningKey> {
            let key = self.0.next();
            link.learn(key, its);
            origin.keys.push((key, spki.clone()));
            Arc::new(RemoteKey { line: Arc::clone(&self.0), key, name: name.clone(), spki })
        };
        let Found { keys, certificates, readable_by_others, slot } = found;
        let keys = keys.into_iter().map(key).collect();
        held.origins.push(origin);
        Ok(Loaded { keys, certificates, readable_by_others, slot })
    }

    fn admit(&self, module: &Path) -> io::Result<()> {
        self.0.admit(module);
        self.0.link().say(self.0.next(), Ask::Admit(module.to_path_buf()))
    }

    fn answer_within(&self, limit: Duration) {
        *lock(&self.0.limit) = limit;
    }

    fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::SeqCst)
    }

    fn seal(&self) -> io::Result<()> {
        let link = self.0.link();
        let modules = {
            let mut held = lock(&self.0.held);
            held.sealed = true;
            mem::take(&mut held.modules)
        };
        // The spawner seals new signers. An attacker who takes this process over later cannot change that.
        if let Some(spawner) = lock(&self.0.unsealed).take() {
            spawner::seal(&spawner, &modules)?;
        }
        link.say(self.0.next(), Ask::Seal)?;
        self.0.watch(&link)
    }
}

impl SigningKey for RemoteKey {
    fn schemes(&self) -> &[SignatureScheme] {
        SignatureScheme::of_public_key(&self.spki)
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let place = SignatureScheme::ALL.iter().position(|known| *known == scheme);
        let scheme = place.ok_or(CryptoError::Unsupported)?;
        let link = self.line.link();
        let key = link.number_of(self.key).ok_or(CryptoError::Backend)?;
        let ask = Ask::Sign { key, scheme, message: message.to_vec() };
        match self.line.ask(&link, ask, &self.name, PATIENCE) {
            Ok(Told::Signed(Ok(signature))) => Ok(signature),
            Ok(Told::Signed(Err(SignError::Unsupported))) => Err(CryptoError::Unsupported),
            _ => Err(CryptoError::Backend),
        }
    }

    fn is_elsewhere(&self) -> bool {
        true
    }
}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        lock(&self.line.held).drop_key(self.key);
        let link = self.line.link();
        if let Some(key) = link.forget(self.key) {
            // Nobody waits for an answer; if the signer is gone, so is the key.
            let _ = link.say(self.line.next(), Ask::Drop { key });
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteKey({})", self.key)
    }
}

#[cfg(test)]
impl Signer {
    /// How many requests a new signer would get.
    pub(super) fn kept(&self) -> usize {
        lock(&self.0.held).again().len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::protocol::{Request, Response, receive, send};
    use super::super::{Passphrase, TokenKey};
    use super::*;

    /// A signer that refuses every token, and counts.
    fn refusing(asked: mpsc::Sender<Option<u64>>) -> UnixStream {
        let (ours, mut its) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            while let Ok(Some(Request { number, what })) = receive(&mut its) {
                if let Ask::Token { key, .. } = what {
                    asked.send(key.slot).unwrap();
                    let what = Told::Loaded(Err(Refused::Pin("wrong PIN".to_owned())));
                    send(&mut its, &Response { number, what }).unwrap();
                }
            }
        });
        ours
    }

    /// Faults, each by itself: in `Line::replace`, ask whatever `keeps` says; in `PinOf::is_of`, leave out the slot.
    #[test]
    fn another_signer_tries_a_pin_once_with_a_token() {
        let (tell, asked) = mpsc::channel();
        let signer = Signer::over(move || Ok(refusing(tell.clone())), || {}).unwrap();
        signer.seal().unwrap();
        let origin = |number: u64, slot: u64, pin: &[u8]| {
            let key = TokenKey { module: "/a.so".into(), slot: Some(slot), handle: vec![1] };
            let source = Source::Token { key, pin: Some(Wiped::new(pin)) };
            Origin { source, name: String::new(), keys: vec![(number, Vec::new())] }
        };
        let same = (0..3).map(|number| origin(number, 7, b"1"));
        lock(&signer.0.held).origins =
            same.chain([origin(3, 8, b"1"), origin(4, 7, b"2")]).collect();
        assert_eq!(signer.0.replace().unwrap(), (0, 5));
        let asked: Vec<_> = asked.try_iter().collect();
        assert_eq!(asked, [Some(7), Some(8), Some(7)], "a token locks itself after three");
    }

    /// Fault: in `KeySource::load`, keep the slot of the request.
    #[test]
    fn a_pin_goes_again_to_the_token_that_has_taken_it_alone() {
        let (ours, mut its) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            while let Ok(Some(Request { number, .. })) = receive(&mut its) {
                let (keys, certificates) = (vec![(0, vec![1])], Vec::new());
                let found = Found { keys, certificates, readable_by_others: false, slot: Some(9) };
                send(&mut its, &Response { number, what: Told::Loaded(Ok(found)) }).unwrap();
            }
        });
        let mut ours = Some(ours);
        let first = move || ours.take().ok_or_else(gone);
        let signer = Signer::over(first, || {}).unwrap();
        let key = TokenKey { module: "/a.so".into(), slot: None, handle: vec![1] };
        let pin = Passphrase::copy_from(b"1");
        let _loaded = signer.load(&LoadRequest::Token { key, pin: Some(&pin) }).unwrap();
        let again = lock(&signer.0.held).again();
        assert!(
            matches!(&again[0].ask, Some(Ask::Token { key, pin: Some(_) }) if key.slot == Some(9))
        );
    }

    /// Fault: in `Line::replace`, do not call `lose`.
    #[test]
    fn the_end_of_the_spawner_is_that_of_the_signer() {
        let (ours, _its) = UnixStream::pair().unwrap();
        let (tell, lost) = mpsc::channel();
        let mut ours = Some(ours);
        let first = move || ours.take().ok_or_else(gone);
        let signer = Signer::over(first, move || tell.send(()).unwrap()).unwrap();
        signer.seal().unwrap();
        assert!(signer.0.replace().is_err());
        lost.try_recv().unwrap();
    }

    /// Faults, each by itself: in `Link::answer_here`, take the first answer; in `Line::ask`, note no failure.
    #[test]
    fn before_the_seal_a_late_answer_is_nobodys_and_the_failure_is_remembered() {
        let (ours, mut its) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut late = Vec::new();
            while let Ok(Some(Request { number, what })) = receive(&mut its) {
                let Ask::Names(folder) = what else { continue };
                let what = Told::Names(Ok(vec![folder.display().to_string()]));
                late.push(Response { number, what });
                if late.len() > 1 {
                    late.drain(..).for_each(|answer| send(&mut its, &answer).unwrap());
                }
            }
        });
        let mut ours = Some(ours);
        let first = move || ours.take().ok_or_else(gone);
        let signer = Signer::over(first, || {}).unwrap();
        signer.answer_within(Duration::from_millis(100));
        assert!(!signer.has_failed());
        assert_eq!(signer.names(Path::new("/a")).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(signer.has_failed());
        signer.answer_within(Duration::from_secs(20));
        assert_eq!(signer.names(Path::new("/b")).unwrap(), ["/b"]);
    }

    /// Fault: in `Link::ask`, count each question that ends without an answer.
    #[test]
    fn a_signer_that_answers_others_is_not_replaced_for_a_slow_token() {
        let (ours, mut its) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            while let Ok(Some(Request { number, what })) = receive(&mut its) {
                if let Ask::Names(_) = what {
                    send(&mut its, &Response { number, what: Told::Names(Ok(Vec::new())) })
                        .unwrap();
                }
            }
        });
        let link = Arc::new(Link::new(ours));
        link.start(|| {}).unwrap();
        let slow = |number| {
            let link = Arc::clone(&link);
            let ask = Ask::Sign { key: 0, scheme: 0, message: Vec::new() };
            thread::spawn(move || link.ask(number, ask, Duration::from_millis(400)).is_err())
        };
        let asked = [slow(1), slow(2)];
        thread::sleep(Duration::from_millis(100));
        link.ask(3, Ask::Names("/".into()), Duration::from_secs(20)).unwrap();
        for one in asked {
            assert!(one.join().unwrap());
        }
        assert!(!link.is_silent(1));
        assert!(slow(4).join().unwrap());
        assert!(link.is_silent(1), "now it answers nobody");
    }
}
