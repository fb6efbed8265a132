//! TCP connections in a build without the feature `tcp`: none is accepted, and one that the engine wants ends at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use esp::io::Feed;
use ike_proto::Path;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::net::socket::SocketOptions;

/// Why there are none.
const NONE: &str = "ike-tokio was built without TCP (feature `tcp`)";

/// What may wait for the driver.
const WAITING: usize = 16;

/// In place of the connections, as a shard sees them.
#[derive(Clone)]
pub(crate) struct Streams {
    happened: Arc<Vec<mpsc::Sender<Happened>>>,
    runtime: Handle,
    shard: u8,
}

/// A socket that there cannot be.
pub(crate) enum Listener {}

/// Something that happened to a connection.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) path: Path,
    pub(crate) what: What,
}

/// What happened: here the end alone.
#[derive(Debug)]
#[expect(dead_code, reason = "the driver takes what happens in a build with the feature as well")]
pub(crate) enum What {
    Opened(SocketAddr),
    Message(Vec<u8>),
    Closed(String),
}

impl Streams {
    /// As the first of `count` shards sees them, and for each of these what will happen. Must be called in a tokio runtime.
    pub(crate) fn new(_: SocketOptions, count: u8) -> (Self, Vec<mpsc::Receiver<Happened>>) {
        let (happened, receivers) = (0..count.max(1)).map(|_| mpsc::channel(WAITING)).unzip();
        let happened = Arc::new(happened);
        (Self { happened, runtime: Handle::current(), shard: 0 }, receivers)
    }

    pub(crate) fn of_shard(&self, shard: u8) -> Self {
        Self { shard, ..self.clone() }
    }

    pub(crate) fn feed(&self, _: Feed) {}

    pub(crate) fn for_esp(&self) -> Option<Arc<dyn esp::io::Streams>> {
        None
    }

    pub(crate) fn accept(&self, listener: Listener) {
        match listener {}
    }

    /// Tells the engine that the connection has ended.
    pub(crate) fn open(&self, path: Path) {
        let Some(driver) = self.happened.get(usize::from(self.shard)).cloned() else { return };
        let ended = Happened { path, what: What::Closed(NONE.to_owned()) };
        self.runtime.spawn(async move {
            // The driver may be gone.
            let _ = driver.send(ended).await;
        });
    }

    pub(crate) fn keep(&self, _: &Path) -> bool {
        false
    }

    pub(crate) fn close(&self, _: &Path) {}

    pub(crate) fn send_ike(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(none())
    }

    pub(crate) fn local(&self, _: &Path) -> Option<SocketAddr> {
        None
    }

    pub(crate) fn is_news(&self, _: &Happened) -> bool {
        true
    }
}

impl Listener {
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match *self {}
    }
}

/// Nothing listens.
pub(crate) fn listen(_: SocketAddr, _: SocketOptions) -> io::Result<Listener> {
    Err(none())
}

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, NONE)
}
