//! Places for the clients of a local service. If all places are taken, a new client gets the place of the client
//! that has been idle for the longest time, so silent clients block no others. Clients that are being served stay.
//! So does a client that has just connected, because its request may be under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a client must have been idle before it loses its place.
const GRACE: Duration = Duration::from_millis(500);

/// The places of a service.
#[derive(Debug, Clone)]
pub struct Places {
    shared: Arc<Shared>,
}

/// One client's place, free again when dropped.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
    number: u64,
    leave: Arc<Notify>,
}

#[derive(Debug)]
struct Shared {
    most: usize,
    taken: Mutex<Taken>,
    /// A place is free, or its client is idle.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    /// Counts clients.
    count: u64,
    clients: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    /// Since when it is idle; `None` while it is served.
    idle: Option<Instant>,
    leave: Arc<Notify>,
}

impl Places {
    /// Makes `most` places.
    pub fn new(most: usize) -> Self {
        let (taken, changed) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { most, taken, changed }) }
    }

    /// Takes a place for one more client, which is idle. Waits while every client is served or has just come.
    pub async fn take(&self) -> Place {
        loop {
            // Before the look, so that no change is missed.
            let changed = self.shared.changed.notified();
            match self.try_take(Instant::now()) {
                Ok(place) => return place,
                Err(None) => changed.await,
                Err(Some(at)) => {
                    // Whichever comes first, it is looked at again.
                    let _ = tokio::time::timeout_at(at, changed).await;
                }
            }
        }
    }

    /// The error says when a client will have been idle long enough, if any is idle.
    fn try_take(&self, now: Instant) -> Result<Place, Option<Instant>> {
        let mut taken = self.shared.taken();
        if taken.clients.len() >= self.shared.most {
            let idle = taken.clients.iter().filter_map(|(number, its)| Some((its.idle?, *number)));
            let (since, number) = idle.min().ok_or(None)?;
            if now < since + GRACE {
                return Err(Some(since + GRACE));
            }
            if let Some(client) = taken.clients.remove(&number) {
                client.leave.notify_one();
            }
        }
        taken.count += 1;
        let (number, leave) = (taken.count, Arc::new(Notify::new()));
        taken.clients.insert(number, Client { idle: Some(now), leave: Arc::clone(&leave) });
        Ok(Place { shared: Arc::clone(&self.shared), number, leave })
    }
}

impl Place {
    /// Notes that the client is served: no other client gets its place.
    pub fn busy(&self) {
        if let Some(client) = self.shared.taken().clients.get_mut(&self.number) {
            client.idle = None;
        }
    }

    /// Notes that the client is idle.
    pub fn idle(&self) {
        if let Some(client) = self.shared.taken().clients.get_mut(&self.number)
            && client.idle.is_none()
        {
            client.idle = Some(Instant::now());
            self.shared.changed.notify_waiters();
        }
    }

    /// Returns when another client has got the place. The caller then closes this client.
    pub async fn left(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.taken().clients.remove(&self.number);
        self.shared.changed.notify_waiters();
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn has_left(place: &Place) -> bool {
        tokio::time::timeout(Duration::from_millis(20), place.left()).await.is_ok()
    }

    /// Fault: in `try_take`, answer `Err(None)` when all places are taken.
    #[tokio::test]
    async fn the_client_that_is_idle_longest_gives_way() {
        let places = Places::new(3);
        let (a, b, c) = (places.take().await, places.take().await, places.take().await);
        b.busy();
        a.busy();
        tokio::time::sleep(Duration::from_millis(1)).await;
        a.idle();
        // By now `c` is idle longest, then `a`; `b` is served.
        let d = places.take().await;
        assert!(has_left(&c).await && !has_left(&a).await);
        d.busy();
        let e = places.take().await;
        assert!(has_left(&a).await && !has_left(&b).await);
        // What has left is no client any more: its end frees nothing.
        drop((a, c));
        e.busy();
        let waits = tokio::time::timeout(Duration::from_millis(20), places.take());
        assert!(waits.await.is_err(), "all are served");
    }

    /// Its request may be under way: hundreds of clients that come at once are all served.
    ///
    /// Fault: in `try_take`, leave out `GRACE`.
    #[tokio::test]
    async fn a_client_that_has_just_come_keeps_its_place() {
        let places = Places::new(1);
        let (begun, first) = (Instant::now(), places.take().await);
        let _second = places.take().await;
        assert!(has_left(&first).await);
        assert!(begun.elapsed() >= GRACE);
    }

    #[tokio::test]
    async fn a_client_waits_until_another_ends_or_is_idle() {
        let places = Places::new(1);
        let first = places.take().await;
        first.busy();
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!waiting.is_finished());
        first.idle();
        let second = waiting.await.expect("a place");
        assert!(has_left(&first).await);
        second.busy();
        let waiting = tokio::spawn(async move { places.take().await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(second);
        waiting.await.expect("a place");
    }
}
