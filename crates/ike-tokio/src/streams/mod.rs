//! The TCP connections of a driver (RFC 9329): their origin, received data, and data waiting to be sent.
//!
//! The driver opens and closes connections, and receives their events in an order that suits the engine: no event
//! of a connection follows its close or its end. The data plane sends ESP through the same table without the
//! driver. Neither ever waits for a peer. The resources of strangers are bounded: connections ([`strangers`]),
//! waiting octets (one message in, a few out), and time.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use esp::io::Feed;
use ike_proto::config::Shard;
use ike_proto::{Path, Transport};
pub(crate) use tokio::net::TcpListener as Listener;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::connection::Connection;
use self::outbox::Refused;
use self::strangers::Strangers;
use crate::net::files;
use crate::net::socket::SocketOptions;
use crate::net::stream;
pub(crate) use crate::net::stream::listen;

mod connection;
mod outbox;
mod strangers;

/// What may wait for the driver; those it comes from wait then.
const WAITING: usize = 256;

/// After a failure to accept, so that a lasting one does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// Both ends of a connection: local, remote. Without scopes and flow labels, which ESP does not have.
type Ends = (SocketAddr, SocketAddr);

/// The connections, as a shard sees them. All shards share them.
#[derive(Clone)]
pub(crate) struct Streams {
    shared: Arc<Shared>,
    shard: u8,
}

struct Shared {
    options: SocketOptions,
    table: RwLock<HashMap<Ends, Arc<Connection>>>,
    feed: OnceLock<Feed>,
    /// To each shard.
    happened: Vec<mpsc::Sender<Happened>>,
    /// Where the tasks run.
    runtime: Handle,
    ids: AtomicU64,
    strangers: Strangers,
}

/// Something that happened to a connection.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) path: Path,
    id: u64,
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    /// It is open, from this address and port.
    Opened(SocketAddr),
    /// An IKE message arrived.
    Message(Vec<u8>),
    /// It could not be opened, or has ended; why.
    Closed(String),
}

impl Streams {
    /// Connections over sockets with `options`, as the first of `count` shards sees them, and for each of
    /// these what will happen to its own. Must be called in a tokio runtime.
    pub(crate) fn new(options: SocketOptions, count: u8) -> (Self, Vec<mpsc::Receiver<Happened>>) {
        let (happened, receivers) = (0..count.max(1)).map(|_| mpsc::channel(WAITING)).unzip();
        let shared = Shared {
            options,
            table: RwLock::default(),
            feed: OnceLock::new(),
            happened,
            runtime: Handle::current(),
            ids: AtomicU64::new(0),
            strangers: Strangers::new(files::limit()),
        };
        (Self { shared: Arc::new(shared), shard: 0 }, receivers)
    }

    /// The same as another shard sees them.
    pub(crate) fn of_shard(&self, shard: u8) -> Self {
        Self { shared: Arc::clone(&self.shared), shard }
    }

    /// Has ESP that arrives go to `feed`. The first counts.
    pub(crate) fn feed(&self, feed: Feed) {
        let _ = self.shared.feed.set(feed);
    }

    /// By which ESP in user space sends.
    pub(crate) fn for_esp(&self) -> Option<Arc<dyn esp::io::Streams>> {
        Some(Arc::new(self.clone()))
    }

    /// Accepts connections as long as a driver runs.
    pub(crate) fn accept(&self, listener: Listener) {
        self.shared.runtime.spawn(accept(Arc::clone(&self.shared), listener));
    }

    /// Opens the connection that `path` will be the name of.
    pub(crate) fn open(&self, path: Path) {
        let connection = Arc::new(Connection::opened(self.shared.id(), path, self.shard));
        let before = self.shared.table_mut().insert(ends(&path), Arc::clone(&connection));
        // Names are not used again before their time.
        if let Some(before) = before {
            before.close();
        }
        let shared = Arc::clone(&self.shared);
        self.shared.runtime.spawn(async move {
            let why = connection.open(&shared).await;
            shared.tell(&connection, What::Closed(why)).await;
        });
    }

    /// An IKE SA uses the connection of `path`: it may be idle. False if it has ended already.
    pub(crate) fn keep(&self, path: &Path) -> bool {
        // As long as the table is held, its end cannot pass unheard.
        let table = self.shared.table();
        let connection = table.get(&ends(path));
        if let Some(connection) = connection {
            connection.keep();
        }
        connection.is_some()
    }

    /// No IKE SA uses the connection of `path` any more. One that this end opened is closed after what is
    /// queued, and nothing is heard of it any more; another one is left to its peer for a while.
    pub(crate) fn close(&self, path: &Path) {
        let Some(connection) = self.shared.find(&ends(path)) else { return };
        if connection.accepted {
            connection.leave();
        } else {
            self.shared.forget(&connection);
            connection.close();
        }
    }

    /// Queues an IKE message for the connection of `path`.
    pub(crate) fn send_ike(&self, path: &Path, message: &[u8]) -> io::Result<()> {
        let connection = self.shared.find(&ends(path)).ok_or_else(not_there)?;
        connection.outbox.ike(message, connection.room()).map_err(|refused| {
            if refused == Refused::Full {
                connection.choke();
            }
            explain(refused)
        })
    }

    /// The address and port from which this end opened the connection of `path`.
    pub(crate) fn local(&self, path: &Path) -> Option<SocketAddr> {
        self.shared.find(&ends(path))?.local.get().copied()
    }

    /// Whether what happened is news: it is, unless the connection was closed here before. The end of one
    /// is news only if the engine knew it; it is forgotten with that.
    pub(crate) fn is_news(&self, happened: &Happened) -> bool {
        let Happened { path, id, what } = happened;
        let mut table = self.shared.table_mut();
        let Some(connection) = table.get(&ends(path)).filter(|known| known.id == *id) else {
            return false;
        };
        if !matches!(what, What::Closed(_)) {
            return true;
        }
        let known = connection.known.load(Ordering::Relaxed);
        table.remove(&ends(path));
        known
    }
}

impl esp::io::Streams for Streams {
    fn send(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        packets: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let connection = self.shared.find(&(bare(local), bare(remote))).ok_or_else(not_there)?;
        connection.outbox.esp(packets, segment).map_err(explain)
    }
}

impl Shared {
    fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn find(&self, ends: &Ends) -> Option<Arc<Connection>> {
        self.table().get(ends).cloned()
    }

    /// Takes this very connection out of the table.
    fn forget(&self, connection: &Connection) {
        let mut table = self.table_mut();
        if table.get(&ends(&connection.path)).is_some_and(|known| known.id == connection.id) {
            table.remove(&ends(&connection.path));
        }
    }

    /// The same, but for one that the engine knows: false for that.
    fn forget_unknown(&self, connection: &Connection) -> bool {
        let mut table = self.table_mut();
        if connection.known.load(Ordering::Relaxed) {
            return false;
        }
        if table.get(&ends(&connection.path)).is_some_and(|there| there.id == connection.id) {
            table.remove(&ends(&connection.path));
        }
        true
    }

    /// Tells the driver, who may be gone: the one whose connection it is. It is that of the shard that
    /// the first message is for.
    async fn tell(&self, connection: &Connection, what: What) {
        let Connection { id, path, .. } = *connection;
        let shard = *connection.shard.get_or_init(|| match &what {
            What::Message(octets) => {
                let count = u8::try_from(self.happened.len()).unwrap_or(u8::MAX);
                Shard::steer(count, octets).unwrap_or_default()
            }
            What::Opened(_) | What::Closed(_) => 0,
        });
        if let Some(driver) = self.happened.get(usize::from(shard)) {
            let _ = driver.send(Happened { path, id, what }).await;
        }
    }

    /// Returns when no driver is left.
    async fn no_driver(&self) {
        for driver in &self.happened {
            driver.closed().await;
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, HashMap<Ends, Arc<Connection>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, HashMap<Ends, Arc<Connection>>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(shared: Arc<Shared>, listener: Listener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.no_driver() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                // The end of the stream is all that one too many hears.
                if let Some(place) = shared.strangers.place(remote.ip()) {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(serve(shared, stream, remote, place));
                }
            }
            // The connection is gone already, or there are too many files.
            Err(error) => {
                tracing::debug!(%error, "listener cannot accept, and pauses");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    mut stream: TcpStream,
    remote: SocketAddr,
    place: strangers::Place,
) {
    let begun = tokio::select! {
        begun = connection::prefix(&mut stream, &place) => begun,
        () = shared.no_driver() => return,
    };
    let begun = begun.and_then(|deframer| {
        stream::tune(&stream).map_err(|error| error.to_string())?;
        Ok((deframer, stream.local_addr().map_err(|error| error.to_string())?))
    });
    let (deframer, local) = match begun {
        Ok(begun) => begun,
        Err(why) => return tracing::debug!(%remote, why, "TCP connection refused"),
    };
    let path = Path { local, remote, transport: Transport::Tcp };
    let connection = Arc::new(Connection::accepted(shared.id(), path, place));
    shared.table_mut().insert(ends(&path), Arc::clone(&connection));
    let why = connection.carry(&shared, stream, deframer).await;
    tracing::debug!(%remote, why, "TCP connection ended");
    if !shared.forget_unknown(&connection) {
        shared.tell(&connection, What::Closed(why)).await;
    }
}

fn ends(path: &Path) -> Ends {
    (bare(path.local), bare(path.remote))
}

fn bare(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
    }
}

fn not_there() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "no TCP connection to the peer")
}

fn explain(refused: Refused) -> io::Error {
    io::Error::other(match refused {
        Refused::TooLong => "the message is too long for TCP",
        Refused::Full => "the peer does not read the connection",
    })
}
