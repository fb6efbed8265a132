//! Starting and ending the drivers of a host: the only one as a task, several on a thread each.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::dataplane::Capabilities;
use ike_proto::{Endpoint, Event, Registry};
use tokio::runtime;
use tokio::sync::{Mutex, Notify, broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::crypto::Crypto;
use crate::delegate::{Answerer, NoCredentials, Observer};
use crate::driver::{Driver, ShardParts, SharedParts, Wanted};
use crate::handle::{Handle, Request};
use crate::plane::{Control, Plane, Shunts};
use crate::report::Message;
use crate::shards::{Lines, part};
use crate::sockets::Sockets;

/// Requests that may wait for a driver.
const REQUESTS: usize = 64;
/// Events that a slow listener may be behind.
const EVENTS: usize = 4096;

/// Builds an IKE endpoint from a configuration, cryptography and sockets, and from optional parts.
pub struct Builder {
    config: EndpointConfig,
    crypto: Crypto,
    sockets: Sockets,
    plane: Plane,
    registry: Registry,
    answerer: Arc<dyn Answerer>,
    observer: Arc<dyn Observer>,
    tap: Option<mpsc::UnboundedSender<Message>>,
    handle: Handle,
    requests: Vec<mpsc::Receiver<Request>>,
    events: broadcast::Sender<Event>,
}

impl Builder {
    /// An endpoint without a data plane, which has no credentials but the pre-shared keys of `config`. It gets one
    /// driver for each shard of `sockets`.
    pub fn new(config: EndpointConfig, crypto: Crypto, sockets: Sockets) -> Self {
        let (events, _) = broadcast::channel(EVENTS);
        let (senders, requests): (Vec<_>, _) =
            (0..sockets.shards()).map(|_| mpsc::channel(REQUESTS)).unzip();
        Self {
            config,
            handle: Handle::new(senders.into(), events.clone(), Arc::default(), sockets.options()),
            sockets,
            plane: Plane::none(),
            registry: Registry::default(),
            answerer: Arc::new(NoCredentials::new(crypto.random)),
            observer: Arc::new(()),
            tap: None,
            requests,
            events,
            crypto,
        }
    }

    /// Carries traffic by `plane`. The [`Listen`](crate::Listen) of the sockets must suit it.
    pub fn plane(self, plane: Plane) -> Self {
        Self { plane, ..self }
    }

    /// Answers the engine's questions by `answerer`.
    pub fn answerer(self, answerer: Arc<dyn Answerer>) -> Self {
        Self { answerer, ..self }
    }

    /// Tells `observer` what the drivers do.
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Uses `registry` for the state that the engines of all shards share, such as void tickets.
    pub fn registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Sends a description of every IKE message, received or sent, to `tap`. The channel has no limit, and messages of
    /// unauthenticated peers are included: the receiver has to keep up.
    pub fn tap(self, tap: mpsc::UnboundedSender<Message>) -> Self {
        Self { tap: Some(tap), ..self }
    }

    /// The handle to the drivers. Its requests wait until [`Self::start`].
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts the drivers. The receiver gets the connections that traffic or the end of an SA wants started. If the
    /// program drops the receiver, only [`Command::Initiate`](ike_proto::Command::Initiate) and
    /// [`Command::Ensure`](ike_proto::Command::Ensure) start connections.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(self) -> (Drivers, mpsc::UnboundedReceiver<Wanted>) {
        let Self { config, crypto, sockets, plane, registry, answerer, observer, .. } = self;
        let capabilities = plane.capabilities();
        let Plane { control, mut bell, mut ike, lost, waits, adopted, blocked, .. } = plane;
        // As many as there are traps and packets that meet them first.
        let (wanted, receiver) = mpsc::unbounded_channel();
        let control = Control::start(control, waits, plane.keep_blocks, self.handle.shared_busy());
        let kept = control.kept();
        let common = SharedParts {
            control,
            shunts: Arc::new(Mutex::new(Shunts::new(&config, adopted, blocked))),
            counters: self.handle.shared_counters(),
            events: self.events,
            wanted,
            answerer,
            observer,
            tap: self.tap,
        };
        let shards = Lines::all(sockets.shards()).into_iter().zip(self.requests);
        let shards: Vec<_> = shards.zip(sockets.split()).collect();
        let alone = shards.len() == 1;
        let alarm = Alarm::default();
        let mut tasks = Vec::new();
        for ((lines, requests), sockets) in shards {
            let engine = Engine {
                config: part(&config, lines.shard()),
                crypto: crypto.clone(),
                capabilities,
                registry: registry.clone(),
            };
            let (common, bell) = (common.clone(), std::mem::take(&mut bell));
            let parts = ShardParts { lines, requests, common, bell, ike: ike.take() };
            tasks.push(drive(engine, sockets, parts, alone, alarm.clone()));
        }
        (Drivers { handle: self.handle, lost, alarm, kept, tasks }, receiver)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builder({:?})", self.sockets)
    }
}

/// The running drivers of a host. Dropping this value aborts the drivers: the peers get no Delete, and the data plane
/// is not emptied. [`Handle::shutdown`] deletes the SAs first.
pub struct Drivers {
    handle: Handle,
    lost: Arc<Notify>,
    alarm: Alarm,
    /// The data plane could not be emptied.
    kept: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

/// Why drivers cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The data plane has lost a resource that it needs, for instance its device.
    DataPlane,
    /// A shard could not start, or has panicked.
    Shard,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DataPlane => "the data plane has lost its device",
            Self::Shard => "a shard has ended",
        })
    }
}

impl Drivers {
    /// The handle to the drivers.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns when the drivers cannot go on, and says why.
    pub async fn lost(&self) -> Lost {
        tokio::select! {
            () = self.lost.notified() => Lost::DataPlane,
            () = self.alarm.0.notified() => Lost::Shard,
        }
    }

    /// Waits until all drivers have ended, as they do after [`Handle::shutdown`], [`Handle::stop`] or
    /// [`Handle::leave`]. Except after `leave`, the last driver empties the data plane. It may be slow with thousands of
    /// SAs on a busy host: after `limit` the wait goes on, up to four times as long, unless the data plane has been at
    /// one command for `limit`. Then the remaining drivers are aborted, and the result is false: the data plane may not be
    /// empty. It is false, too, if the data plane has refused to be emptied.
    pub async fn ended(&mut self, limit: Duration) -> bool {
        let busy = self.handle.shared_busy();
        let (mut wait, mut left) = (limit, limit * 3);
        let ended = loop {
            let all = async {
                while let Some(task) = self.tasks.last_mut() {
                    // A driver that has panicked has ended, too.
                    let _ = task.await;
                    self.tasks.pop();
                }
            };
            if tokio::time::timeout(wait, all).await.is_ok() {
                break true;
            }
            if left.is_zero() || busy.time().is_some_and(|time| time >= limit) {
                break false;
            }
            wait = (limit / 8).min(left);
            left -= wait;
        };
        for task in self.tasks.drain(..) {
            task.abort();
        }
        ended && !self.kept.load(Ordering::Relaxed)
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drivers({})", self.tasks.len())
    }
}

/// Makes the engine of a shard.
struct Engine {
    config: EndpointConfig,
    crypto: Crypto,
    capabilities: Capabilities,
    registry: Registry,
}

impl Engine {
    fn make(self) -> Endpoint {
        let Self { config, crypto, capabilities, registry } = self;
        let rng = (crypto.random)();
        Endpoint::shard(config, crypto.provider, rng, capabilities, registry)
    }
}

/// Runs the driver of a shard: the only one in this runtime, one of several on a thread of its own.
fn drive(
    engine: Engine,
    sockets: Sockets,
    parts: ShardParts,
    alone: bool,
    alarm: Alarm,
) -> JoinHandle<()> {
    let Shard { index, .. } = parts.lines.shard();
    if alone {
        return tokio::spawn(alarm.watch(Driver::new(engine.make(), sockets, parts).run()));
    }
    let make = move || Ok(Driver::new(engine.make(), sockets.moved()?, parts));
    run_on_thread(index, alarm.clone(), make).unwrap_or_else(|error| {
        tracing::error!(%error, shard = index, "shard cannot start: no thread");
        alarm.0.notify_one();
        tokio::spawn(async {})
    })
}

/// Rung by a shard that ends without a request.
#[derive(Clone, Default)]
struct Alarm(Arc<Notify>);

impl Alarm {
    /// Runs `driver`, and rings if it panics.
    async fn watch(self, driver: impl Future<Output = ()>) {
        let _rings = Panics(self);
        driver.await;
    }
}

/// Rings when it is dropped by a panic.
struct Panics(Alarm);

impl Drop for Panics {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.0.notify_one();
        }
    }
}

/// Runs the driver from `make` on a thread of its own, until it ends or the returned task is aborted.
/// Must be called in a tokio runtime.
fn run_on_thread(
    index: u8,
    alarm: Alarm,
    make: impl FnOnce() -> io::Result<Driver> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (done, finished) = oneshot::channel::<()>();
    std::thread::Builder::new().name(format!("ike-shard-{index}")).spawn(move || {
        work(runtime, alarm, make, stopped);
        drop(done);
    })?;
    Ok(tokio::spawn(async move {
        let _stop = stop;
        let _ = finished.await;
    }))
}

fn work(
    runtime: runtime::Runtime,
    alarm: Alarm,
    make: impl FnOnce() -> io::Result<Driver>,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        match make() {
            Ok(driver) => tokio::select! {
                () = alarm.watch(driver.run()) => {}
                _ = stopped => {}
            },
            Err(error) => {
                tracing::error!(%error, "shard cannot start");
                alarm.0.notify_one();
            }
        }
    });
    // A signature may be under way.
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_shard_that_ends_unasked_is_heard() {
        let heard = async |alarm: &Alarm| {
            tokio::time::timeout(Duration::from_secs(10), alarm.0.notified()).await.is_ok()
        };
        let alarm = Alarm::default();
        let fails = || Err(io::Error::other("no socket"));
        assert!(run_on_thread(0, alarm.clone(), fails).is_ok() && heard(&alarm).await);
        let alarm = Alarm::default();
        let panics = tokio::spawn(alarm.clone().watch(async { panic!("as the test wants it") }));
        assert!(panics.await.is_err() && heard(&alarm).await);
        // One that was asked to is not news.
        let alarm = Alarm::default();
        alarm.clone().watch(async {}).await;
        let aborted = tokio::spawn(alarm.clone().watch(std::future::pending()));
        tokio::task::yield_now().await;
        aborted.abort();
        assert!(aborted.await.is_err());
        assert_eq!(Arc::strong_count(&alarm.0), 1);
        assert!(tokio::time::timeout(Duration::from_millis(1), alarm.0.notified()).await.is_err());
    }
}
