//! The signer's end: holds keys, and signs.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::thread;

use ike_proto::crypto::{CryptoError, SignatureScheme, SigningKey};
use nix::sys::signal::{SigSet, Signal};

use super::protocol::{Ask, Found, Request, Response, SignError, Told, Wiped, receive, send};
use super::{KeySource, LoadRequest, Loaded, Local, Passphrase, Refused, lock, spawner};
use crate::service::sandbox;

/// Serves the daemon that has started this process, over its standard input, until that is gone.
///
/// # Errors
/// If standard input is no socket, or the daemon says what is not understood.
pub(crate) fn serve_stdin() -> io::Result<()> {
    // A signal to the terminal's processes is for the daemon, whose end ends this one.
    rustix::process::setsid().map_err(io::Error::from)?;
    // Nor is one to all processes of a service, as systemd's that stops it: whoever ended first would make an
    // orderly end look like a lost signer. Threads inherit it.
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]).thread_block()?;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.peer_addr()?;
    if spawner::is_meant(&stream)? {
        sandbox::enter_spawner()?;
        return spawner::serve(&stream);
    }
    // A signer ends with the spawner that started it. So the daemon notices the end of the spawner.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    sandbox::enter_signer()?;
    serve(&stream)
}

/// Serves `stream` until its end.
pub(super) fn serve(stream: &UnixStream) -> io::Result<()> {
    let held = Arc::new(Held { keys: RwLock::default(), out: Mutex::new(stream.try_clone()?) });
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let (give, take) = mpsc::channel::<Order>();
    let take = Arc::new(Mutex::new(take));
    for _ in 0..processors {
        let (held, take) = (Arc::clone(&held), Arc::clone(&take));
        thread::Builder::new().name("sign".to_owned()).spawn(move || {
            loop {
                let next = lock(&take).recv();
                match next {
                    Ok(order) => held.carry_out(order),
                    Err(_) => return,
                }
            }
        })?;
    }
    let mut next = 0;
    let (mut modules, mut sealed) = (HashSet::new(), false);
    let mut from = stream;
    while let Some(Request { number, what }) = receive::<Request>(&mut from)? {
        match what {
            Ask::Sign { key, scheme, message } => {
                let order = Order { number, key, scheme, message };
                give.send(order).map_err(io::Error::other)?;
            }
            Ask::Drop { key } => {
                held.keys.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
            }
            Ask::Names(folder) => {
                let names = Local.names(&folder).map_err(|why| why.to_string());
                held.answer(number, Told::Names(names))?;
            }
            Ask::File { path, holds, passphrase } => {
                let passphrase = secret(passphrase);
                let (path, passphrase) = (&*path, passphrase.as_ref());
                held.load(number, &mut next, &LoadRequest::File { path, holds, passphrase })?;
            }
            Ask::Octets(octets) => {
                let octets = Passphrase::copy_from(octets.octets());
                held.load(number, &mut next, &LoadRequest::Octets(&octets))?;
            }
            Ask::Admit(module) if !sealed => _ = modules.insert(module),
            Ask::Admit(_) => {}
            Ask::Seal => sealed = true,
            Ask::Token { key, .. } if sealed && !modules.contains(&key.module) => {
                let why = format!("PKCS#11 module {:?}: a new one needs a restart", key.module);
                held.answer(number, Told::Loaded(Err(Refused::Content(why))))?;
            }
            Ask::Token { key, pin } => {
                modules.insert(key.module.clone());
                let pin = secret(pin);
                held.load(number, &mut next, &LoadRequest::Token { key, pin: pin.as_ref() })?;
            }
        }
    }
    Ok(())
}

/// Something to sign.
struct Order {
    number: u64,
    key: u64,
    scheme: usize,
    message: Vec<u8>,
}

struct Held {
    keys: RwLock<HashMap<u64, Arc<dyn SigningKey>>>,
    out: Mutex<UnixStream>,
}

impl Held {
    fn load(&self, number: u64, next: &mut u64, request: &LoadRequest<'_>) -> io::Result<()> {
        let loaded = Local.load(request).map(|mut loaded| {
            let mut held = self.keys.write().unwrap_or_else(PoisonError::into_inner);
            let mut keys = Vec::new();
            for key in loaded.keys.drain(..) {
                keys.push((*next, key.public_key().to_vec()));
                held.insert(*next, key);
                *next += 1;
            }
            let Loaded { certificates, readable_by_others, slot, .. } = loaded;
            Found { keys, certificates, readable_by_others, slot }
        });
        self.answer(number, Told::Loaded(loaded))
    }

    fn carry_out(&self, Order { number, key, scheme, message }: Order) {
        let key =
            self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone);
        let scheme = SignatureScheme::ALL.get(scheme);
        let signed = match (key, scheme) {
            (Some(key), Some(scheme)) => key.sign(*scheme, &message).map_err(|why| match why {
                CryptoError::Unsupported => SignError::Unsupported,
                _ => SignError::Backend,
            }),
            _ => Err(SignError::Unsupported),
        };
        // If the daemon is gone, this process soon is.
        let _ = self.answer(number, Told::Signed(signed));
    }

    fn answer(&self, number: u64, what: Told) -> io::Result<()> {
        send(&mut *lock(&self.out), &Response { number, what })
    }
}

fn secret(wiped: Option<Wiped>) -> Option<Passphrase> {
    wiped.map(|wiped| Passphrase::copy_from(wiped.octets()))
}
