//! The place of a thread among those that keep the processors busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place that its thread gives up while a token or another process signs. Dropped, it is free.
#[derive(Debug)]
pub(crate) struct Seat {
    all: Arc<Semaphore>,
    taken: Mutex<Option<OwnedSemaphorePermit>>,
    runtime: Handle,
}

impl Seat {
    /// Waits for one of the places of `all`; `None` if they are closed.
    pub(crate) async fn take(all: &Arc<Semaphore>) -> Option<Self> {
        let permit = Arc::clone(all).acquire_owned().await.ok()?;
        let (all, taken) = (Arc::clone(all), Mutex::new(Some(permit)));
        Some(Self { all, taken, runtime: Handle::current() })
    }

    /// Does `what` without the place, and then waits for one again. The thread must be one of `spawn_blocking`.
    #[cfg_attr(not(feature = "eap"), expect(dead_code, reason = "there is no TLS"))]
    pub(crate) fn leave<T>(&self, what: impl FnOnce() -> T) -> T {
        drop(self.taken().take());
        let done = what();
        // They are closed at the end of the process alone.
        *self.taken() = self.runtime.block_on(Arc::clone(&self.all).acquire_owned()).ok();
        done
    }

    fn taken(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
