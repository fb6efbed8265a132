//! Where drivers run: the only one as a task, several on a thread each.

use std::io;
use std::sync::Arc;

use esp::io::IkeDatagram;
use ike_proto::Event;
use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::dataplane::Flow;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::shards::Lines;
use super::shunts::Shunts;
use super::{Driver, EVENTS, Handle, REQUESTS, Request};
use crate::plane::Plane;
use crate::plane::control::Control;

/// What all drivers share: the data plane, and the policies of the daemon's own.
#[derive(Clone)]
pub(crate) struct Common {
    pub(super) control: Control,
    pub(super) shunts: Arc<Mutex<Shunts>>,
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

/// What traffic wants: connection, child, and the packet.
pub(crate) type Acquire = (String, String, Flow);

/// The seats of `count` drivers of one data plane, the handle to them, and what traffic will want. `config`
/// is what they begin with. Must be called in the tokio runtime of the data plane.
pub(crate) fn seats(
    count: u8,
    plane: Plane,
    config: &EndpointConfig,
) -> (Vec<Seat>, Handle, mpsc::UnboundedReceiver<Acquire>) {
    let Plane { control, bell, mut ike, lost: _, waits, adopted } = plane;
    let shunts = Arc::new(Mutex::new(Shunts::new(config, adopted)));
    let common = Common { control: Control::start(control, waits), shunts };
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
    (seats, Handle::new(lines_to.into(), events), wanted)
}

/// Runs what `make` makes on a thread of its own, until it ends or the task that is returned is aborted.
/// Must be called in a tokio runtime.
pub(crate) fn run_on_thread(
    index: u8,
    make: impl FnOnce() -> io::Result<Driver> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (done, finished) = oneshot::channel::<()>();
    std::thread::Builder::new().name(format!("ike-shard-{index}")).spawn(move || {
        work(runtime, make, stopped);
        drop(done);
    })?;
    Ok(tokio::spawn(async move {
        let _stop = stop;
        let _ = finished.await;
    }))
}

fn work(
    runtime: Runtime,
    make: impl FnOnce() -> io::Result<Driver>,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        match make() {
            Ok(driver) => tokio::select! {
                () = driver.run() => {}
                _ = stopped => {}
            },
            Err(error) => tracing::error!(%error, "a shard cannot start"),
        }
    });
    // A signature may be under way.
    runtime.shutdown_background();
}
