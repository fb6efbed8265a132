//! The daemon's end: asks the signer.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ike_proto::crypto::{CryptoError, SignatureScheme, SigningKey};

use super::protocol::{Ask, Found, Request, Response, SignError, Told, Wiped, receive, send};
use super::{KeySource, LoadRequest, Loaded, Passphrase, Refused};

/// A running signer. Clones share it; it ends with the last of them and of its keys.
#[derive(Clone)]
pub struct Signer(Arc<Line>);

/// The connection to it.
struct Line {
    number: AtomicU64,
    out: Mutex<UnixStream>,
    /// The answers, until a thread takes them.
    early: Mutex<Option<Early>>,
    waiting: Arc<Mutex<Waiting>>,
    child: Mutex<Option<Child>>,
}

/// Before there is a thread for them: where answers come from, and what is called when there are none any more.
struct Early {
    from: UnixStream,
    lost: Box<dyn FnOnce() + Send>,
}

/// Who waits for which answer; `None` once there will be none any more.
type Waiting = Option<HashMap<u64, SyncSender<Told>>>;

/// A private key that the signer holds.
struct RemoteKey {
    line: Arc<Line>,
    key: u64,
    spki: Vec<u8>,
}

impl Signer {
    /// Starts a signer: this program once more. `lost` is called when it is gone, whatever the reason, once it is
    /// [sealed](KeySource::seal).
    ///
    /// # Errors
    /// If no process can be made.
    pub fn spawn(lost: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        // By this name it is the program that runs, also after the file has been replaced.
        let child = Command::new("/proc/self/exe")
            .arg("signer")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .spawn()?;
        let signer = Self::over(ours, lost)?;
        *lock(&signer.0.child) = Some(child);
        Ok(signer)
    }

    /// A signer at the other end of `stream`.
    pub(super) fn over(
        stream: UnixStream,
        lost: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let early = Early { from: stream.try_clone()?, lost: Box::new(lost) };
        Ok(Self(Arc::new(Line {
            number: AtomicU64::new(0),
            out: Mutex::new(stream),
            early: Mutex::new(Some(early)),
            waiting: Arc::new(Mutex::new(Some(HashMap::new()))),
            child: Mutex::new(None),
        })))
    }
}

impl Line {
    /// The answer to `what`.
    fn ask(&self, what: Ask) -> io::Result<Told> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        if let Some(early) = &mut *lock(&self.early) {
            self.say(number, what)?;
            let answer = receive::<Response>(&mut early.from)?.filter(|told| told.number == number);
            return answer.map(|told| told.what).ok_or_else(gone);
        }
        let (answer, answered) = mpsc::sync_channel(1);
        match &mut *lock(&self.waiting) {
            Some(waiting) => waiting.insert(number, answer),
            None => return Err(gone()),
        };
        self.say(number, what)?;
        answered.recv().map_err(|_| gone())
    }

    /// Has a thread take the answers from now on.
    fn start(&self) -> io::Result<()> {
        let Some(Early { mut from, lost }) = lock(&self.early).take() else { return Ok(()) };
        let waiting = Arc::clone(&self.waiting);
        thread::Builder::new().name("signer".to_owned()).spawn(move || {
            while let Ok(Some(Response { number, what })) = receive::<Response>(&mut from) {
                let asker = lock(&waiting).as_mut().and_then(|waiting| waiting.remove(&number));
                if let Some(asker) = asker {
                    // There is room for one.
                    let _ = asker.send(what);
                }
            }
            // Whoever waits hears by the end of its channel.
            *lock(&waiting) = None;
            lost();
        })?;
        Ok(())
    }

    fn say(&self, number: u64, what: Ask) -> io::Result<()> {
        send(&mut *lock(&self.out), &Request { number, what })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It reads the end of its orders, and the thread that of the answers.
        let _ = lock(&self.out).shutdown(Shutdown::Both);
        if let Some(mut child) = lock(&self.child).take() {
            let _ = child.wait();
        }
    }
}

impl KeySource for Signer {
    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        match self.0.ask(Ask::Names(folder.to_path_buf()))? {
            Told::Names(names) => names.map_err(io::Error::other),
            Told::Loaded(_) | Told::Signed(_) => Err(gone()),
        }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Loaded, Refused> {
        let wiped = |secret: Option<&Passphrase>| secret.map(|secret| Wiped::new(secret.expose()));
        let ask = match request {
            LoadRequest::File { path, holds, passphrase } => Ask::File {
                path: path.to_path_buf(),
                holds: *holds,
                passphrase: wiped(*passphrase),
            },
            LoadRequest::Octets(octets) => Ask::Octets(Wiped::new(octets.expose())),
            LoadRequest::Token { key, pin } => Ask::Token { key: key.clone(), pin: wiped(*pin) },
        };
        let broken = |why: io::Error| Refused::Unreadable(format!("the signer: {why}"));
        let Told::Loaded(found) = self.0.ask(ask).map_err(broken)? else {
            return Err(broken(gone()));
        };
        let Found { keys, certificates, readable_by_others } = found?;
        let key = |(key, spki)| -> Arc<dyn SigningKey> {
            Arc::new(RemoteKey { line: Arc::clone(&self.0), key, spki })
        };
        let keys = keys.into_iter().map(key).collect();
        Ok(Loaded { keys, certificates, readable_by_others })
    }

    fn admit(&self, module: &Path) -> io::Result<()> {
        let number = self.0.number.fetch_add(1, Ordering::Relaxed);
        self.0.say(number, Ask::Admit(module.to_path_buf()))
    }

    fn seal(&self) -> io::Result<()> {
        self.0.say(self.0.number.fetch_add(1, Ordering::Relaxed), Ask::Seal)?;
        self.0.start()
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
        let key = self.key;
        let place = SignatureScheme::ALL.iter().position(|known| *known == scheme);
        let scheme = place.ok_or(CryptoError::Unsupported)?;
        match self.line.ask(Ask::Sign { key, scheme, message: message.to_vec() }) {
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
        // Nobody waits for an answer; if the signer is gone, so is the key.
        let number = self.line.number.fetch_add(1, Ordering::Relaxed);
        let _ = self.line.say(number, Ask::Drop { key: self.key });
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the signer is gone")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
