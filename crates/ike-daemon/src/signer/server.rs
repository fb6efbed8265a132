//! The signer's end: holds keys, and signs.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread;

use ike_proto::crypto::{CryptoError, SchemeRegister, SignatureScheme, SigningKey};

use super::octets::Kind;
use super::protocol::{
    Ask, Found, Limits, Request, Response, SignError, Tls, Told, Wiped, receive, send,
};
use super::{COMMAND, KeySource, LoadRequest, Loaded, Local, Passphrase, Refused, lock, spawner};
use crate::log::{self, LogFormat};
use crate::service::sandbox::{self, SealedSigner as Sealed};

/// Serves the daemon that has started this process, over its standard input, until that is gone. The keys are of these
/// schemes.
///
/// # Errors
/// If standard input is no socket, or the daemon says what is not understood.
pub(crate) fn serve_stdin(format: LogFormat, schemes: &SchemeRegister) -> io::Result<()> {
    let stream = spawner::inherited()?;
    if spawner::is_meant(&stream)? {
        sandbox::enter_spawner()?;
        log::queue_lines()?;
        return spawner::serve(&stream, COMMAND, format);
    }
    spawner::end_with_spawner(&stream)?;
    sandbox::enter_signer()?;
    // After the sandbox, because a thread has the restrictions of the one that begins it.
    serve(&stream, Local::new(schemes.clone()), log::queue_lines)
}

/// Serves `stream` with keys that `local` loads, until its end. `sealed` is called once this thread has the restrictions of a sealed signer.
pub(super) fn serve(
    stream: &UnixStream,
    local: Local,
    sealed: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let held = Arc::new(Held::new(stream.try_clone()?, local));
    let mut queues = Queues::new(&held);
    let (mut modules, mut sealed) = (HashSet::new(), Some(sealed));
    let mut from = stream;
    while let Some(Request { number, what }) = receive::<Request>(&mut from)? {
        match what {
            Ask::Sign { key, scheme, message } => match held.find(key) {
                Some(kept) => queues.put(kept.module.clone().as_deref(), move |held| {
                    held.sign(number, (&kept, &scheme), &message);
                })?,
                None => held.answer(number, Told::Signed(Err(SignError::Unsupported)))?,
            },
            Ask::Drop { key } => {
                if let Some(Kept { key, module, .. }) = held.remove(key) {
                    // A token is told of the end of a session, and may hang.
                    queues.put(module.as_deref(), move |_| drop(key))?;
                }
            }
            Ask::Names(folder) => {
                let names = held.local.names(&folder).map_err(|why| why.to_string());
                held.answer(number, Told::Names(names))?;
            }
            Ask::File { path, holds, passphrase } => {
                let passphrase = secret(passphrase);
                let (path, passphrase) = (&*path, passphrase.as_ref());
                held.load(number, &LoadRequest::File { path, holds, passphrase })?;
            }
            Ask::Octets(octets) => {
                let octets = Passphrase::copy_from(octets.octets());
                held.load(number, &LoadRequest::Octets(&octets))?;
            }
            Ask::Admit(module) if sealed.is_some() => _ = modules.insert(module),
            Ask::Admit(_) => {}
            Ask::Seal(limits) => {
                if let Some(sealed) = sealed.take() {
                    sandbox::seal_signer(&Sealed {
                        // Nothing is known of what a library opens.
                        places: limits.places.iter().filter(|_| modules.is_empty()).collect(),
                        landlock: limits.landlock && modules.is_empty(),
                        seccomp: limits.seccomp,
                        modules: !modules.is_empty(),
                    })?;
                    sealed()?;
                    held.seal(limits);
                    queues.start()?;
                }
            }
            Ask::Token { key, .. } if sealed.is_none() && !modules.contains(&key.module) => {
                let why = format!("PKCS#11 module {:?}: a new one needs a restart", key.module);
                held.answer(number, Told::Loaded(Err(Refused::Content(why))))?;
            }
            Ask::Token { key, pin } => {
                let (module, pin) = (key.module.clone(), secret(pin));
                modules.insert(module.clone());
                queues.put(Some(&module), move |held| {
                    // If the daemon is gone, this process soon is.
                    let _ = held.load(number, &LoadRequest::Token { key, pin: pin.as_ref() });
                })?;
            }
        }
    }
    Ok(())
}

type Job = Box<dyn FnOnce(&Held) + Send>;

/// The threads that work. Each PKCS#11 module has a thread of its own, so that a token that hangs delays no other key, and no
/// answer about files.
struct Queues {
    held: Arc<Held>,
    /// `None` until the signer is sealed: a thread that is there before would keep what this one gives up.
    files: Option<Sender<Job>>,
    modules: HashMap<PathBuf, Sender<Job>>,
}

impl Queues {
    fn new(held: &Arc<Held>) -> Self {
        Self { held: Arc::clone(held), files: None, modules: HashMap::new() }
    }

    /// Starts the threads for files.
    fn start(&mut self) -> io::Result<()> {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        self.files = Some(work(&self.held, processors)?);
        Ok(())
    }

    /// Has the threads of a module, or else those of files, do a job.
    fn put(
        &mut self,
        module: Option<&Path>,
        job: impl FnOnce(&Held) + Send + 'static,
    ) -> io::Result<()> {
        let queue = match (module, &self.files) {
            (None, None) => {
                job(&self.held);
                return Ok(());
            }
            (None, Some(files)) => files,
            (Some(module), _) => match self.modules.entry(module.to_path_buf()) {
                Entry::Occupied(there) => &*there.into_mut(),
                Entry::Vacant(none) => &*none.insert(work(&self.held, 1)?),
            },
        };
        queue.send(Box::new(job)).map_err(|_| io::Error::other("the thread has ended"))
    }
}

/// Starts threads for one queue. They end with it.
fn work(held: &Arc<Held>, threads: usize) -> io::Result<Sender<Job>> {
    let (give, take) = mpsc::channel::<Job>();
    let take = Arc::new(Mutex::new(take));
    for _ in 0..threads {
        let (held, take) = (Arc::clone(held), Arc::clone(&take));
        thread::Builder::new().name("sign".to_owned()).spawn(move || {
            loop {
                let next = lock(&take).recv();
                match next {
                    Ok(job) => job(&held),
                    Err(_) => return,
                }
            }
        })?;
    }
    Ok(give)
}

/// A key, and the PKCS#11 module that has it.
#[derive(Clone)]
struct Kept {
    key: Arc<dyn SigningKey>,
    module: Option<PathBuf>,
    /// The daemon has brought it, and may have kept a copy.
    brought: bool,
}

struct Held {
    local: Local,
    keys: RwLock<HashMap<u64, Kept>>,
    /// Whose keys sign for TLS, once the signer is sealed. Until then keys sign everything.
    tls: OnceLock<Tls>,
    /// A refused message has been logged.
    told: AtomicBool,
    /// The number of the next key.
    next: AtomicU64,
    out: Mutex<UnixStream>,
}

impl Held {
    fn new(out: UnixStream, local: Local) -> Self {
        Self {
            local,
            keys: RwLock::default(),
            tls: OnceLock::new(),
            told: AtomicBool::new(false),
            next: AtomicU64::new(0),
            out: Mutex::new(out),
        }
    }

    /// From now on keys sign what they are used for.
    fn seal(&self, limits: Limits) {
        // A second list changes nothing.
        let _ = self.tls.set(limits.tls);
    }

    fn find(&self, key: u64) -> Option<Kept> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    fn remove(&self, key: u64) -> Option<Kept> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }

    fn load(&self, number: u64, request: &LoadRequest<'_>) -> io::Result<()> {
        let module = match request {
            LoadRequest::Token { key, .. } => Some(key.module.clone()),
            LoadRequest::File { .. } | LoadRequest::Octets(_) => None,
        };
        let brought = matches!(request, LoadRequest::Octets(_));
        let loaded = self.local.load(request).map(|mut loaded| {
            let mut held = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            let mut keys = Vec::new();
            for key in loaded.keys.drain(..) {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                keys.push((number, key.public_key().to_vec()));
                held.insert(number, Kept { key, module: module.clone(), brought });
            }
            let Loaded { certificates, readable_by_others, slot, .. } = loaded;
            Found { keys, certificates, readable_by_others, slot }
        });
        self.answer(number, Told::Loaded(loaded))
    }

    /// Signs `message` by the scheme with this AlgorithmIdentifier, if the key is for such messages.
    fn sign(&self, number: u64, (kept, identifier): (&Kept, &[u8]), message: &[u8]) {
        let named = |scheme: &&SignatureScheme| scheme.algorithm_identifier() == identifier;
        let signed = match kept.key.schemes().iter().find(named) {
            _ if !self.is_for(kept, message) => Err(SignError::Use),
            Some(scheme) => kept.key.sign(scheme, message).map_err(|why| match why {
                CryptoError::Unsupported => SignError::Unsupported,
                _ => SignError::Backend,
            }),
            None => Err(SignError::Unsupported),
        };
        // If the daemon is gone, this process soon is.
        let _ = self.answer(number, Told::Signed(signed));
    }

    fn is_for(&self, kept: &Kept, message: &[u8]) -> bool {
        let Some(tls) = self.tls.get() else { return true };
        let kind = Kind::of(message);
        let is_for = match kind {
            _ if kept.brought => true,
            Kind::Auth => true,
            Kind::Der => false,
            Kind::Other => tls.has(kept.key.public_key()),
        };
        if !is_for && !self.told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                ?kind,
                "signer: a message was not signed, because an AUTH payload does not cover it; if EAP over TLS is new in the configuration, restart the daemon; otherwise somebody may have taken the daemon over"
            );
        }
        is_for
    }

    fn answer(&self, number: u64, what: Told) -> io::Result<()> {
        send(&mut *lock(&self.out), &Response { number, what })
    }
}

fn secret(wiped: Option<Wiped>) -> Option<Passphrase> {
    wiped.map(|wiped| Passphrase::copy_from(wiped.octets()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Faults, each by itself: in `Queues::put`, send each job to `files`; give all modules one queue.
    #[test]
    fn a_module_that_hangs_delays_neither_files_nor_other_modules() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let held = Arc::new(Held::new(stream, Local::default()));
        let mut queues = Queues::new(&held);
        queues.start().unwrap();
        let (hung, ours) = mpsc::channel::<()>();
        let ours = Arc::new(Mutex::new(ours));
        let jobs = 1 + thread::available_parallelism().map_or(1, |count| count.get());
        for _ in 0..jobs {
            let ours = Arc::clone(&ours);
            queues.put(Some(Path::new("/hangs.so")), move |_| _ = lock(&ours).recv()).unwrap();
        }
        let (tell, told) = mpsc::channel();
        for module in [None, Some(Path::new("/works.so"))] {
            let tell = tell.clone();
            queues.put(module, move |_| tell.send(()).unwrap()).unwrap();
            told.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        drop(hung);
    }
}
