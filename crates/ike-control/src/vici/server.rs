//! The daemon's end of the VICI socket: segments in and out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use vici::{LONGEST_SEGMENT, Packet};

use super::session::Session;
use crate::local::{LocalSocket, Place};
use crate::operator::Operator;

/// Clients at a time. Of more, the one gives way that is idle longest: it has no request under way, and has not
/// registered for any event.
const CLIENTS: usize = 64;
/// Segments that may wait for a client to take them. Whoever streams waits for room.
const QUEUE: usize = 16;
/// A client has this long to take a segment, and to send the rest of one.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to look whether a client still waits for its answer.
const LOOK: Duration = Duration::from_secs(1);

/// A VICI socket that is there and waits for clients. Removed when dropped.
#[derive(Debug)]
pub struct ViciSocket {
    socket: LocalSocket,
}

impl ViciSocket {
    /// Makes the socket at `path`, for its owner alone.
    ///
    /// # Errors
    /// It cannot be made there, or a daemon answers there already.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Self::bind_for(path, None)
    }

    /// As [`Self::bind`], for the members of a group as well.
    ///
    /// # Errors
    /// As [`Self::bind`], or this process may not give it to that group.
    pub fn bind_for(path: &Path, group: Option<u32>) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("VICI socket {}: {error}", path.display()))
        };
        LocalSocket::bind_for(path, group).map(|socket| Self { socket }).map_err(explain)
    }

    /// The socket that `listener` is, which stays when this one is dropped.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn given(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        LocalSocket::given(listener).map(|socket| Self { socket })
    }

    /// Serves clients until dropped. `config_file` is what `reload-settings` reads.
    pub async fn serve(self, operator: Operator, config_file: Option<PathBuf>) {
        let since = SystemTime::now();
        self.socket
            .serve(CLIENTS, |stream, place| {
                let (operator, file) = (operator.clone(), config_file.clone());
                async move {
                    if let Err(error) = client(stream, &place, operator, file, since).await {
                        tracing::debug!(%error, "VICI client");
                    }
                }
            })
            .await;
    }
}

async fn client(
    stream: UnixStream,
    place: &Place,
    operator: Operator,
    file: Option<PathBuf>,
    since: SystemTime,
) -> io::Result<()> {
    let (read, write) = stream.into_split();
    let (out, queue) = mpsc::channel(QUEUE);
    let session = Session::new(operator, file, since, out);
    // Whichever ends first ends the other: events have nowhere to go without a writer.
    tokio::select! {
        served = requests(read, session, place) => served,
        written = write_all(write, queue) => written,
    }
}

async fn requests(mut read: OwnedReadHalf, mut session: Session, place: &Place) -> io::Result<()> {
    while let Some(segment) = segment(&mut read).await? {
        place.busy();
        let packet = Packet::decode(&segment).map_err(io::Error::other)?;
        tokio::select! {
            handled = session.handle(packet) => handled?,
            () = hung_up(&read) => return Ok(()),
        }
        if !session.listens() {
            place.idle();
        }
    }
    Ok(())
}

/// The next segment, without its length. `None` if there are no more.
async fn segment(read: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    // A client that only listens to events says nothing for as long as it likes.
    if read.read(&mut len[..1]).await? == 0 {
        return Ok(None);
    }
    let rest = async {
        read.read_exact(&mut len[1..]).await?;
        let len = u32::from_be_bytes(len) as usize;
        if len > LONGEST_SEGMENT {
            return Err(io::Error::other(vici::Error::TooLong));
        }
        let mut segment = vec![0; len];
        read.read_exact(&mut segment).await?;
        Ok(Some(segment))
    };
    tokio::time::timeout(PATIENCE, rest).await?
}

async fn write_all(
    mut write: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(segment) = queue.recv().await {
        tokio::time::timeout(PATIENCE, write.write_all(&segment)).await??;
    }
    Ok(())
}

/// Returns when the client has closed its socket. One that has only ended its sending still listens.
async fn hung_up(read: &OwnedReadHalf) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !read.ready(Interest::WRITABLE).await.is_ok_and(|ready| !ready.is_write_closed()) {
            return;
        }
    }
}
