//! The daemon's end: asks the signer, and replaces a signer that does not answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ike_proto::crypto::{CryptoError, SchemeRegister, SignatureScheme, SigningKey};

use super::held::{Again, Held, Origin, PinOf, Source};
use super::link::{Link, PATIENCE, gone, silent};
use super::protocol::{Ask, Found, SignError, Told, Wiped};
use super::{Bounds, COMMAND, KeySource, LoadRequest, Loaded, Refused, lock, spawner};
use crate::log::LogFormat;

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
    schemes: SchemeRegister,
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
    /// How many signatures in a row had no answer, by the names of the keys.
    unanswered: Mutex<HashMap<String, u32>>,
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
    schemes: Cow<'static, [SignatureScheme]>,
}

impl Signer {
    /// Starts a signer: this program once more. `lost` is called when it is gone, whatever the reason, once it is
    /// [sealed](KeySource::seal), and when nobody can make another one. Keys are of one of `schemes`.
    ///
    /// # Errors
    /// If no process can be made.
    pub fn spawn(
        log: LogFormat,
        schemes: SchemeRegister,
        lost: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        // The child starts the signers, because this process will not be able to.
        let child =
            spawner::program(COMMAND, log).stdin(Stdio::from(OwnedFd::from(its))).spawn()?;
        let (unsealed, mut orders) = (ours.try_clone()?, 0_u8);
        let another = move || {
            orders = orders.wrapping_add(1);
            spawner::ask(&ours, orders)
        };
        let signer = Self::over(schemes, another, lost)?;
        *lock(&signer.0.child) = Some(child);
        *lock(&signer.0.unsealed) = Some(unsealed);
        Ok(signer)
    }

    /// A signer at the other end of the stream that `another` returns.
    pub(super) fn over(
        schemes: SchemeRegister,
        mut another: impl FnMut() -> io::Result<UnixStream> + Send + 'static,
        lost: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let link = Link::new(another()?);
        Ok(Self(Arc::new(Line {
            schemes,
            number: AtomicU64::new(0),
            limit: Mutex::new(LIMIT),
            link: Mutex::new(Arc::new(link)),
            lost: Mutex::new(Some(Box::new(lost))),
            held: Mutex::default(),
            another: Mutex::new(Box::new(another)),
            replaced: Mutex::default(),
            replacing: AtomicBool::new(false),
            unanswered: Mutex::default(),
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
        let signs = matches!(what, Ask::Sign { .. });
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
        let hangs = signs && self.hangs(name, answer.is_ok());
        if (hangs || link.is_silent(PATIENCE)) && !link.is_retired() {
            self.replace_soon();
        }
        answer
    }

    /// Takes note whether a signature by the key `name` was answered. True once so many in a row were not that its token hangs,
    /// whatever the signer answers about other keys. A new signer asks that token for the key before it signs by it.
    fn hangs(&self, name: &str, answered: bool) -> bool {
        let mut unanswered = lock(&self.unanswered);
        if answered {
            unanswered.remove(name);
            return false;
        }
        let count = unanswered.entry(name.to_owned()).or_default();
        *count += 1;
        *count >= 2 * PATIENCE
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
        self.watch(&link).inspect_err(|_| former.retire(false))?;
        // From here on keys are loaded by the new signer: see `KeySource::load`.
        let mut all = {
            let held = lock(&self.held);
            *lock(&self.link) = Arc::clone(&link);
            lock(&self.unanswered).clear();
            held.again()
        };
        former.close();
        // A token may hang, a file does not.
        all.sort_by_key(|again| again.module().is_some());
        let (mut there, mut missing, mut hung) = (0, 0, Vec::new());
        for again in all {
            let (module, wanted) = (again.module().map(Path::to_path_buf), again.keys.len());
            let loaded = match &module {
                Some(module) if hung.contains(module) => Ok(0),
                _ => self.load_again(&link, again, 1),
            };
            if let (Err(_), Some(module)) = (&loaded, module) {
                // That is the token's fault. The signer is asked for the others.
                link.forgive();
                hung.push(module);
            }
            let loaded = loaded.unwrap_or(0);
            (there, missing) = (there + loaded, missing + wanted.saturating_sub(loaded));
        }
        Ok((there, missing))
    }

    /// Has the signer at the other end of `link` load keys again. Returns how many of them it has.
    fn load_again(self: &Arc<Self>, link: &Link, again: Again, patience: u32) -> io::Result<usize> {
        let Again { ask, name, mut keys } = again;
        let wanted = keys.len();
        keys.retain(|(key, _)| link.number_of(*key).is_none());
        let pin = ask.as_ref().and_then(PinOf::of);
        // A key before it, or a reload meanwhile, may have had the PIN refused.
        let usable = pin.as_ref().is_none_or(|pin| lock(&self.held).keeps(pin));
        let found = match ask.filter(|_| usable && !keys.is_empty()) {
            // The caller counts the keys that are missing.
            None => Vec::new(),
            Some(ask) => match self.ask(link, ask, &name, patience)? {
                Told::Loaded(Ok(found)) => found.keys,
                Told::Loaded(Err(why)) => {
                    tracing::error!(key = name, %why, "the new signer has not loaded the key");
                    lock(&self.held).refuse(pin.as_ref(), &why);
                    Vec::new()
                }
                Told::Names(_) | Told::Signed(_) => return Err(gone()),
            },
        };
        let held = lock(&self.held);
        for (its, spki) in found {
            // The key may have been dropped meanwhile.
            let of_ours = |(key, known): &(u64, Vec<u8>)| *known == spki && held.has(*key);
            let key = keys.iter().position(of_ours).map(|place| keys.swap_remove(place).0);
            let unused = key.map_or(Some(its), |key| link.learn(key, its));
            if let Some(key) = unused {
                // If the signer is gone, so is the key.
                let _ = link.say(self.next(), Ask::Drop { key });
            }
        }
        keys.retain(|(key, _)| held.has(*key));
        Ok(wanted - keys.len())
    }

    /// The signer's number of a key. A new signer may have to load the key first: a token that was away may be back.
    fn number_of(self: &Arc<Self>, link: &Link, key: u64, name: &str) -> Option<u64> {
        link.number_of(key).or_else(|| {
            let again = lock(&self.held).again_for(key, *lock(&self.limit));
            // `ask` has logged that there is no answer.
            let _ = again.map(|again| self.load_again(link, again, PATIENCE));
            let number = link.number_of(key);
            if number.is_none() {
                tracing::error!(
                    key = name,
                    "the signer does not have the key: reload the file, or let the VICI client load the key again"
                );
            }
            number
        })
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
        lock(&self.0.held).read(folder);
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
        match request {
            LoadRequest::Token { key, .. } => self.0.admit(&key.module),
            LoadRequest::File { path, .. } => lock(&self.0.held).read(path),
            LoadRequest::Octets(_) => {}
        }
        // A reload does not wait for a signer that has left another question without an answer.
        let Told::Loaded(found) = self.0.ask(&link, ask, &name, 1).map_err(broken)? else {
            return Err(broken(gone()));
        };
        let mut held = lock(&self.0.held);
        let found = found.inspect_err(|why| held.refuse(pin.as_ref(), why))?;
        if !Arc::ptr_eq(&link, &self.0.link()) {
            // The signer has been replaced since the question.
            drop(held);
            return self.load(request);
        }
        // Only this token has taken the PIN.
        if let Source::Token { key, .. } = &mut source {
            key.slot = found.slot.or(key.slot);
        }
        let mut origin = Origin { source, name: name.clone(), keys: Vec::new(), tried: None };
        let key = |(its, spki): (u64, Vec<u8>)| -> Arc<dyn SigningKey> {
            let key = self.0.next();
            link.learn(key, its);
            origin.keys.push((key, spki.clone()));
            let (line, name) = (Arc::clone(&self.0), name.clone());
            let schemes = schemes_of(&line.schemes, &spki);
            Arc::new(RemoteKey { line, key, name, spki, schemes })
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

    fn admit_tls(&self, spki: Option<&[u8]>) -> bool {
        lock(&self.0.held).admit_tls(spki)
    }

    fn seal(&self, bounds: Bounds) -> io::Result<()> {
        let link = self.0.link();
        let (modules, limits) = {
            let mut held = lock(&self.0.held);
            for folder in &bounds.folders {
                held.read(folder);
            }
            held.limits.landlock = bounds.sandbox.landlock;
            held.limits.seccomp = bounds.sandbox.seccomp;
            held.sealed = true;
            (mem::take(&mut held.modules), held.limits.clone())
        };
        // The spawner seals new signers. An attacker who takes this process over later cannot change that.
        if let Some(spawner) = lock(&self.0.unsealed).take() {
            spawner::seal(&spawner, &modules, &limits)?;
        }
        link.say(self.0.next(), Ask::Seal(limits))?;
        self.0.watch(&link)
    }
}

/// The schemes by which the key of `spki` signs.
fn schemes_of(known: &SchemeRegister, spki: &[u8]) -> Cow<'static, [SignatureScheme]> {
    match known.of_key(spki) {
        Some(scheme) => Cow::Owned(vec![SignatureScheme::Outside(scheme.clone())]),
        None => Cow::Borrowed(SignatureScheme::of_built_in_key(spki)),
    }
}

impl SigningKey for RemoteKey {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign(&self, scheme: &SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let link = self.line.link();
        let key = self.line.number_of(&link, self.key, &self.name).ok_or(CryptoError::Backend)?;
        let ask = Ask::Sign {
            key,
            scheme: scheme.algorithm_identifier().to_vec(),
            message: message.to_vec(),
        };
        match self.line.ask(&link, ask, &self.name, PATIENCE) {
            Ok(Told::Signed(Ok(signature))) => Ok(signature),
            Ok(Told::Signed(Err(SignError::Unsupported))) => Err(CryptoError::Unsupported),
            Ok(Told::Signed(Err(SignError::Use))) => {
                tracing::error!(
                    key = self.name,
                    "key: the signer refused to sign with it, because EAP did not use it for TLS at the start, or the message is neither for AUTH nor for TLS; if EAP is new for this key, restart the daemon"
                );
                Err(CryptoError::Backend)
            }
            _ => Err(CryptoError::Backend),
        }
    }

    fn is_elsewhere(&self) -> bool {
        true
    }
}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        // Locked, so that a new signer that loads the key at this moment is told as well.
        let mut held = lock(&self.line.held);
        held.drop_key(self.key);
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
mod tests;
