//! Look-ups for fetches: a few at a time.
//!
//! Strangers have a say in what is fetched. The names of peers are looked up in the same process: look-ups for fetches must
//! leave room to them, and those for strangers to those for revocation.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ike_tokio::net::resolver::{FOR_REVOCATION, FOR_STRANGERS, Found, wait_for};
use ike_tokio::{Resolver, Unresolved};

/// Looks names up for fetches, a few at a time. Look-ups whose outcome nobody waits for any more count as well. Strangers
/// cannot use up the places of revocation.
#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    pub(crate) revocation: Arc<Few>,
    /// For certificates by hash and URL.
    pub(crate) strangers: Arc<Few>,
}

/// Looks names up, some at a time.
pub(crate) struct Few {
    resolver: Arc<dyn Resolver>,
    places: Arc<Places>,
}

struct Places {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Lookups {
    pub(crate) fn new(resolver: &Arc<dyn Resolver>) -> Self {
        let few = |at_a_time| Arc::new(Few::new(Arc::clone(resolver), at_a_time));
        Self { revocation: few(FOR_REVOCATION), strangers: few(FOR_STRANGERS) }
    }
}

impl Few {
    fn new(resolver: Arc<dyn Resolver>, at_a_time: usize) -> Self {
        let places = Places { free: Mutex::new(at_a_time), freed: Condvar::new() };
        Self { resolver, places: Arc::new(places) }
    }

    /// The name servers of this host, without those on this host itself.
    pub(crate) fn name_servers(&self) -> Vec<SocketAddr> {
        self.resolver.name_servers()
    }

    /// The addresses of `name`. Blocks, for `limit` at the most.
    pub(crate) fn look_up(&self, name: &str, limit: Duration) -> Found {
        let late = || Unresolved::Failed(io::ErrorKind::TimedOut.into());
        let begun = Instant::now();
        let mut place = Some(Places::take(&self.places, limit).ok_or_else(late)?);
        let left = limit.saturating_sub(begun.elapsed());
        wait_for(left, &mut |done| {
            let place = place.take();
            let done = move |found| {
                done(found);
                drop(place);
            };
            self.resolver.ask(name, Box::new(done));
        })
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one in time.
    fn take(this: &Arc<Self>, limit: Duration) -> Option<Place> {
        let waited = this.freed.wait_timeout_while(this.lock(), limit, |free| *free == 0);
        let (mut free, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        (!waited.timed_out()).then(|| {
            *free -= 1;
            Place(Arc::clone(this))
        })
    }
}

/// Given back when it is dropped.
struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.freed.notify_one();
    }
}

impl fmt::Debug for Few {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Few").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ike_tokio::net::resolver::Done;

    use super::*;

    /// Keeps what it is asked.
    #[derive(Default)]
    struct Silent(Mutex<Vec<Done>>);

    impl fmt::Debug for Silent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Silent")
        }
    }

    impl Resolver for Silent {
        fn ask(&self, _: &str, done: Done) {
            self.0.lock().unwrap().push(done);
        }

        fn name_servers(&self) -> Vec<SocketAddr> {
            Vec::new()
        }
    }

    /// Fault: in `Few::look_up`, let the place end with the wait and not with the look-up.
    #[test]
    fn look_ups_that_nobody_waits_for_any_more_count_until_they_end() {
        let silent = Arc::new(Silent::default());
        let few = Few::new(Arc::clone(&silent) as Arc<dyn Resolver>, FOR_REVOCATION);
        let moment = Duration::from_millis(10);
        for _ in 0..FOR_REVOCATION + 2 {
            assert!(few.look_up("gw.example", moment).is_err());
        }
        assert_eq!(silent.0.lock().unwrap().len(), FOR_REVOCATION);
        let done = silent.0.lock().unwrap().pop().unwrap();
        done(Ok(Vec::new()));
        assert!(few.look_up("gw.example", moment).is_err());
        assert_eq!(silent.0.lock().unwrap().len(), FOR_REVOCATION);
    }

    /// Strangers name silent servers.
    ///
    /// Fault: in `Lookups::new`, let both be the same.
    #[test]
    fn strangers_leave_revocation_its_places() {
        let silent = Arc::new(Silent::default());
        let resolver: Arc<dyn Resolver> = Arc::<Silent>::clone(&silent);
        let Lookups { revocation, strangers } = Lookups::new(&resolver);
        let moment = Duration::from_millis(10);
        for few in [strangers, revocation] {
            for _ in 0..FOR_REVOCATION + 2 {
                assert!(few.look_up("gw.example", moment).is_err());
            }
        }
        assert_eq!(silent.0.lock().unwrap().len(), FOR_STRANGERS + FOR_REVOCATION);
    }
}
