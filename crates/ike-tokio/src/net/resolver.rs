//! Look-ups of host names.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};

pub use super::dns::{FILES, files, servers_in};

/// Look-ups of a program at a time: of the names of peers,
pub const FOR_PEERS: usize = 10;
/// for revocation,
pub const FOR_REVOCATION: usize = 4;
/// and of what strangers name.
pub const FOR_STRANGERS: usize = 2;

/// Why a name has no addresses.
#[derive(Debug)]
pub enum Unresolved {
    /// Name servers say that there is no such name, or that it has no address.
    NoSuchName,
    /// No answer, or a failure of the moment.
    Failed(io::Error),
}

/// The addresses of a name, in the order in which they are to be tried.
pub type Found = Result<Vec<IpAddr>, Unresolved>;

/// Told what came of a look-up.
pub type Done = Box<dyn FnOnce(Found) + Send>;

/// Looks host names up, as the system does.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Begins a look-up of `name`. `done` is called on any thread, also on this one before the return, or it is dropped
    /// if there is no outcome. Does not wait.
    fn ask(&self, name: &str, done: Done);

    /// The name servers of this host, without those on this host itself. Blocks for a moment.
    fn name_servers(&self) -> Vec<SocketAddr>;

    /// The addresses of `name`. Blocks, for `limit` at the most.
    ///
    /// # Errors
    /// [`Unresolved`].
    fn look_up(&self, name: &str, limit: Duration) -> Found {
        wait_for(limit, &mut |done| self.ask(name, done))
    }
}

/// The outcome of the look-up that `begin` begins. Blocks, for `limit` at the most.
///
/// # Errors
/// [`Unresolved`].
pub fn wait_for(limit: Duration, begin: &mut dyn FnMut(Done)) -> Found {
    let waits = Arc::new(Waits::default());
    let teller = Teller(Arc::clone(&waits));
    begin(Box::new(move |found| teller.0.tell(found)));
    let found = waits.found.lock().unwrap_or_else(PoisonError::into_inner);
    let told = waits.told.wait_timeout_while(found, limit, |found| found.is_none());
    let mut found = told.unwrap_or_else(PoisonError::into_inner).0;
    found.take().unwrap_or_else(|| Err(Unresolved::Failed(io::ErrorKind::TimedOut.into())))
}

/// Waits for the outcome of one look-up.
#[derive(Default)]
struct Waits {
    found: Mutex<Option<Found>>,
    told: Condvar,
}

impl Waits {
    /// The first outcome counts.
    fn tell(&self, found: Found) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(found);
        self.told.notify_one();
    }
}

/// Tells at its end that there is no outcome.
struct Teller(Arc<Waits>);

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.tell(Err(Unresolved::Failed(io::ErrorKind::BrokenPipe.into())));
    }
}

/// The C library's resolver in this process, a thread for each look-up.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn ask(&self, name: &str, done: Done) {
        let name = name.to_owned();
        let thread = std::thread::Builder::new().name("names".to_owned());
        if let Err(error) = thread.spawn(move || done(of_system(&name))) {
            tracing::warn!(%error, "host names: no thread for a look-up");
        }
    }

    fn name_servers(&self) -> Vec<SocketAddr> {
        servers_in(&files())
    }
}

/// The addresses of `name`, by getaddrinfo. Blocks for as long as name servers are silent.
///
/// # Errors
/// [`Unresolved`].
pub fn of_system(name: &str) -> Found {
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

impl std::error::Error for Unresolved {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `of_system`, let `NoName` be a failure as others.
    #[test]
    fn the_system_tells_a_missing_name_from_silence() {
        // RFC 6761: no name server is asked about it.
        let local = SystemResolver.look_up("localhost", Duration::from_secs(20)).unwrap();
        assert_eq!(local.iter().find(|ip| !ip.is_loopback()), None);
        // A label of 64 letters cannot be in the DNS.
        let missing = of_system(&"a".repeat(64));
        assert!(matches!(missing, Err(Unresolved::NoSuchName)), "{missing:?}");
    }
}
