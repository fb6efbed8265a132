//! One TCP connection and the task that reads and writes it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use esp::io::Fed;
use esp::tcp::{Deframer, Message};
use ike_proto::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::outbox::{self, Outbox};
use super::strangers::Place;
use super::{Shared, What};
use crate::net::stream;

/// How long a connection may take to open.
const OPEN: Duration = Duration::from_secs(10);

/// How long a peer may take for the prefix.
const PREFIX: Duration = Duration::from_secs(10);

/// How long a stranger may take for a message, and all in all. A slow link needs half a minute for the
/// keys of FrodoKEM.
const MESSAGE: Duration = Duration::from_secs(30);
const STRANGER: Duration = Duration::from_secs(120);

/// How long a connection that the peer opened, and no IKE SA uses any more, is left to the peer to close.
const LEFT: Duration = Duration::from_secs(5);

//= https://www.rfc-editor.org/rfc/rfc9329#section-6.1
//# Implementations SHOULD NOT tear down
//# a connection if only a few consecutive ESP packets have unknown SPIs
//# since the SPI databases may be momentarily out of sync.
/// Messages in a row that are ESP of no SA, and the time since the first of them, after which a stream
/// counts as corrupt: its lengths say nonsense. A new SA takes its time to be installed.
const UNKNOWN_ESP: u32 = 16;
const UNKNOWN_ESP_TIME: Duration = Duration::from_secs(5);

/// How long what is queued may take to leave at the end.
const FLUSH: Duration = Duration::from_secs(5);

/// How long the peer may take to close its half after ours.
const LINGER: Duration = Duration::from_secs(1);

/// Octets read at a time, from a peer and from a stranger.
const READ: usize = 64 << 10;
const READ_STRANGER: usize = 2 << 10;

/// A connection as the driver and the data plane know it.
pub(super) struct Connection {
    /// Distinguishes it from others of the same path.
    pub(super) id: u64,
    pub(super) path: Path,
    /// True if the peer opened it.
    pub(super) accepted: bool,
    pub(super) outbox: Outbox,
    /// Whose it is, once that is known.
    pub(super) shard: OnceLock<u8>,
    /// The engine has had a message from it, or has asked for it.
    pub(super) known: AtomicBool,
    place: Mutex<Option<Place>>,
    /// When it is to end unless it is kept.
    limit: watch::Sender<Option<Limit>>,
    /// Where this end opened it from.
    pub(super) local: OnceLock<SocketAddr>,
    closing: Notify,
    choked: Notify,
    /// Rung if another stranger has got its place.
    displaced: Arc<Notify>,
}

/// Until when a connection may last that no IKE SA uses.
#[derive(Debug, Clone, Copy)]
struct Limit {
    at: Instant,
    /// However many messages come.
    last: Instant,
}

impl Connection {
    /// One that this shard opens.
    pub(super) fn opened(id: u64, path: Path, shard: u8) -> Self {
        let connection = Self::new(id, path, None, Outbox::with_prefix(), None);
        let _ = connection.shard.set(shard);
        connection
    }

    /// One that a stranger opened.
    pub(super) fn accepted(id: u64, path: Path, place: Place) -> Self {
        let now = Instant::now();
        let limit = Limit { at: now + MESSAGE, last: now + STRANGER };
        Self::new(id, path, Some(place), Outbox::default(), Some(limit))
    }

    fn new(
        id: u64,
        path: Path,
        place: Option<Place>,
        outbox: Outbox,
        limit: Option<Limit>,
    ) -> Self {
        // Without a place there is nothing to lose.
        let displaced = place.as_ref().map(Place::lost).unwrap_or_default();
        Self {
            id,
            path,
            accepted: place.is_some(),
            outbox,
            shard: OnceLock::new(),
            known: AtomicBool::new(place.is_none()),
            place: Mutex::new(place),
            limit: watch::Sender::new(limit),
            local: OnceLock::new(),
            closing: Notify::new(),
            choked: Notify::new(),
            displaced,
        }
    }

    /// Ends it when all that is queued has been written.
    pub(super) fn close(&self) {
        self.outbox.close();
        self.closing.notify_one();
    }

    /// Ends it, for the peer does not read.
    pub(super) fn choke(&self) {
        self.choked.notify_one();
    }

    /// An IKE SA uses it: the peer is no stranger any more.
    pub(super) fn keep(&self) {
        // It may have carried nothing but ESP.
        self.known.store(true, Ordering::Relaxed);
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.limit.send_replace(None);
    }

    /// No IKE SA uses it any more: the peer, who opened it, may close it.
    pub(super) fn leave(&self) {
        let at = Instant::now() + LEFT;
        self.limit.send_replace(Some(Limit { at, last: at }));
    }

    /// A whole message came.
    fn prolong(&self) {
        self.limit.send_if_modified(|limit| {
            if let Some(limit) = limit {
                limit.at = limit.last.min(Instant::now() + MESSAGE);
            }
            limit.is_some()
        });
    }

    /// Waits until it has lasted long enough.
    async fn expired(&self) {
        let mut changes = self.limit.subscribe();
        loop {
            let limit = *changes.borrow_and_update();
            let over = async {
                match limit {
                    Some(limit) => tokio::time::sleep_until(limit.at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                // The sender is this connection's own, and lasts.
                _ = changes.changed() => {}
            }
        }
    }

    /// Octets of IKE that may wait for it.
    pub(super) fn room(&self) -> usize {
        if self.is_stranger() { outbox::IKE_STRANGER } else { outbox::IKE }
    }

    fn is_stranger(&self) -> bool {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Opens the connection and carries its messages. Returns the reason of its end.
    pub(super) async fn open(&self, shared: &Shared) -> String {
        let (local, remote) = (self.path.local.ip(), self.path.remote);
        let opening = timeout(OPEN, stream::connect(local, remote, shared.options));
        let stream = tokio::select! {
            opened = opening => match opened {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "the peer does not answer".to_owned(),
            },
            // Nothing is queued yet.
            () = self.closing.notified() => return String::new(),
            () = shared.no_driver() => return String::new(),
        };
        match stream.local_addr() {
            Ok(local) => {
                let _ = self.local.set(local);
                shared.tell(self, What::Opened(local)).await;
            }
            Err(error) => return error.to_string(),
        }
        self.carry(shared, stream, Deframer::opened()).await
    }

    /// Reads and writes until either end closes the connection. Returns the reason of its end.
    pub(super) async fn carry(
        &self,
        shared: &Shared,
        stream: TcpStream,
        mut deframer: Deframer,
    ) -> String {
        let (mut reader, mut writer) = stream.into_split();
        let why = {
            let reading = self.read(shared, &mut reader, &mut deframer);
            // Pinned, for half a frame must not be left behind.
            let writing = self.write(&mut writer);
            tokio::pin!(writing);
            let done = |flushed| match flushed {
                Ok(Ok(())) => None,
                Ok(Err(why)) => Some(why),
                Err(_) => Some("the peer does not read the connection".to_owned()),
            };
            tokio::select! {
                why = reading => Some(why),
                result = &mut writing => result.err(),
                () = self.closing.notified() => done(timeout(FLUSH, &mut writing).await),
                () = shared.no_driver() => {
                    self.outbox.close();
                    done(timeout(FLUSH, &mut writing).await)
                }
                () = self.expired() => Some("no SA uses the connection".to_owned()),
                () = self.displaced.notified(), if self.is_stranger() => {
                    Some("unauthenticated peers have too many connections".to_owned())
                }
                () = self.choked.notified() => Some("the peer does not read the connection".to_owned()),
            }
        };
        let Some(why) = why else {
            finish(reader, writer).await;
            return "closed".to_owned();
        };
        why
    }

    async fn read(
        &self,
        shared: &Shared,
        reader: &mut OwnedReadHalf,
        deframer: &mut Deframer,
    ) -> String {
        let mut unknown = Unknown::default();
        loop {
            // What came with the prefix is there before anything is read.
            loop {
                match deframer.next_message() {
                    Ok(Some(Message::Ike(message))) => {
                        self.known.store(true, Ordering::Relaxed);
                        self.prolong();
                        unknown = Unknown::default();
                        // Nothing is lost here: the peer has to wait until the driver has time.
                        shared.tell(self, What::Message(message.to_vec())).await;
                    }
                    Ok(Some(Message::Esp(packet))) => {
                        let Path { local, remote, .. } = self.path;
                        match shared.feed.get().map(|feed| feed.esp(remote, local, packet)) {
                            Some(Fed::Taken | Fed::Lost) => unknown = Unknown::default(),
                            Some(Fed::UnknownSpi) | None if unknown.too_many(Instant::now()) => {
                                return "the peer sends ESP of no SA".to_owned();
                            }
                            Some(Fed::UnknownSpi) | None => {}
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return error.to_string(),
                }
            }
            let room = if self.is_stranger() { READ_STRANGER } else { READ };
            match reader.read_buf(deframer.room(room)).await {
                Ok(0) if deframer.waiting() > 0 => {
                    return "the peer closed the connection within a message".to_owned();
                }
                Ok(0) => return "the peer closed the connection".to_owned(),
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Writes queued frames until the queue is closed and empty.
    async fn write(&self, writer: &mut OwnedWriteHalf) -> Result<(), String> {
        while let Some(frames) = self.outbox.next().await {
            writer.write_all(&frames).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// ESP packets of no SA, one after the other.
#[derive(Debug, Default)]
struct Unknown {
    since: Option<Instant>,
    count: u32,
}

impl Unknown {
    /// Notes one more; true if they are too many, for too long.
    fn too_many(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        self.count = self.count.saturating_add(1);
        self.count >= UNKNOWN_ESP && now.saturating_duration_since(since) >= UNKNOWN_ESP_TIME
    }
}

/// Waits for the prefix of a connection that was accepted.
pub(super) async fn prefix(stream: &mut TcpStream, place: &Place) -> Result<Deframer, String> {
    let lost = place.lost();
    let mut deframer = Deframer::accepted();
    let reading = async {
        loop {
            match stream.read_buf(deframer.room(READ_STRANGER)).await {
                Ok(0) => {
                    return Err(
                        "the peer closed the connection before the stream prefix".to_owned()
                    );
                }
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
            if deframer.begin().map_err(|error| error.to_string())? {
                return Ok(());
            }
        }
    };
    tokio::select! {
        read = timeout(PREFIX, reading) => match read {
            Ok(read) => read.map(|()| deframer),
            Err(_) => Err("the peer sends no stream prefix".to_owned()),
        },
        () = lost.notified() => Err("unauthenticated peers have too many connections".to_owned()),
    }
}

/// Closes our half and waits for the peer's: an end with octets unread would take back what was sent.
async fn finish(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf) {
    let _ = writer.shutdown().await;
    let mut rest = [0; 1024];
    let _ = timeout(LINGER, async {
        while reader.read(&mut rest).await.is_ok_and(|octets| octets > 0) {}
    })
    .await;
}
