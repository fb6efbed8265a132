//! Where drivers run: the only one as a task, several on a thread each.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use esp::io::IkeDatagram;
use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::dataplane::Flow;
use ike_proto::{Event, Ticket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::control::Control;
use super::counters::Counters;
use super::plane::Plane;
use super::shards::Lines;
use super::shunts::Shunts;
use super::{Driver, EVENTS, Handle, REQUESTS, Request};

/// What all drivers share: the data plane, and the policies of the daemon's own.
#[derive(Clone)]
pub(crate) struct Common {
    pub(super) control: Control,
    pub(super) shunts: Arc<Mutex<Shunts>>,
    pub(super) counters: Arc<Counters>,
}

/// What a driver has of the daemon around it.
pub(crate) struct Seat {
    pub(super) lines: Lines,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) acquires: mpsc::UnboundedSender<Acquire>,
    pub(super) common: Common,
    /// Rung for the first one only, which hands on what the data plane reports.
    pub(super) bell: Arc<Notify>,
    /// IKE from the data plane's sockets; the first one has it, and hands it on.
    pub(super) ike: Option<mpsc::Receiver<IkeDatagram>>,
}

impl Seat {
    /// Whose it is.
    pub(crate) fn shard(&self) -> Shard {
        self.lines.shard
    }
}

/// What an engine needs of the daemon to start a connection.
pub(crate) struct Acquire {
    pub(crate) connection: String,
    pub(crate) why: Why,
}

/// What it is.
pub(crate) enum Why {
    /// This packet met the trap of a child.
    Packet { child: String, packet: Flow },
    /// A child is to be started between these addresses, by whichever shard has an IKE SA for it.
    Restart { child: String, local: IpAddr, remote: IpAddr },
    /// A shard asks between which addresses; it was `last` between these.
    Ends { shard: u8, ticket: Ticket, last: Option<(IpAddr, IpAddr)> },
}

/// The seats of `count` drivers of one data plane, the handle to them, and what traffic will want. `config`
/// is what they begin with. Must be called in the tokio runtime of the data plane.
pub(crate) fn seats(
    count: u8,
    plane: Plane,
    config: &EndpointConfig,
) -> (Vec<Seat>, Handle, mpsc::UnboundedReceiver<Acquire>) {
    let Plane { control, bell, mut ike, lost: _, waits, adopted, host: _ } = plane;
    let shunts = Arc::new(Mutex::new(Shunts::new(config, adopted)));
    let counters = Arc::<Counters>::default();
    let control = Control::start(control, waits);
    let common = Common { control, shunts, counters: Arc::clone(&counters) };
    let (events, _) = broadcast::channel(EVENTS);
    // As many as there are traps and packets that meet them first.
    let (acquires, wanted) = mpsc::unbounded_channel();
    let mut bell = Some(bell);
    let mut lines_to = Vec::new();
    let mut seats = Vec::new();
    for lines in Lines::all(count) {
        let (sender, requests) = mpsc::channel(REQUESTS);
        lines_to.push(sender);
        let (events, acquires, common) = (events.clone(), acquires.clone(), common.clone());
        let bell = bell.take().unwrap_or_default();
        seats.push(Seat { lines, requests, events, acquires, common, bell, ike: ike.take() });
    }
    (seats, Handle::new(lines_to.into(), events).counting(counters), wanted)
}

/// Rung by a shard that ends though nobody has asked it to.
#[derive(Clone, Default)]
pub(crate) struct Alarm(pub(crate) Arc<Notify>);

impl Alarm {
    /// Runs `driver`, and rings if it panics.
    pub(crate) async fn watch(self, driver: impl Future<Output = ()>) {
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

/// Runs what `make` makes on a thread of its own, until it ends or the task that is returned is aborted.
/// Must be called in a tokio runtime.
pub(crate) fn run_on_thread(
    index: u8,
    alarm: Alarm,
    make: impl FnOnce() -> io::Result<Driver> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
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
    runtime: Runtime,
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
                tracing::error!(%error, "a shard cannot start");
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
