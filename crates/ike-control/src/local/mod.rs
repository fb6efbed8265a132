//! Unix sockets that only their owner may use.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener as Listener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

pub use places::{Place, Places};

mod places;

/// A socket of mode 0600, or 0660 for a group, that waits for clients. Removed when dropped, unless somebody else
/// has made it.
#[derive(Debug)]
pub struct LocalSocket {
    /// The runtime's only in [`Self::serve`]: a socket can be made before there is a runtime.
    listener: Listener,
    path: Option<PathBuf>,
}

impl LocalSocket {
    /// One that listens already and is not removed.
    #[cfg(feature = "vici")]
    pub fn given(listener: Listener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: None })
    }

    /// As [`Self::bind_for`], for its owner alone.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Self::bind_for(path, None)
    }

    /// Makes the socket at `path`, with mode 0600 (0660, and its group, if there is one) from the first moment: it is made in a folder that
    /// nobody else may enter, and then moved. A socket left behind by a daemon that is gone is
    /// replaced; one that answers is not.
    pub fn bind_for(path: &Path, group: Option<u32>) -> io::Result<Self> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "a daemon answers there"));
        }
        let mut folder = path.as_os_str().to_owned();
        folder.push(format!(".{}", std::process::id()));
        let folder = PathBuf::from(folder);
        let make = || std::fs::DirBuilder::new().mode(0o700).create(&folder);
        make().or_else(|error| match error.kind() {
            // An earlier process with the number of this one was killed before it had removed the folder.
            io::ErrorKind::AlreadyExists => std::fs::remove_dir_all(&folder).and_then(|()| make()),
            _ => Err(error),
        })?;
        let made = Self::make(&folder.join("s"), path, group);
        // Already empty unless something above failed.
        let _ = std::fs::remove_dir_all(&folder);
        made
    }

    fn make(hidden: &Path, path: &Path, group: Option<u32>) -> io::Result<Self> {
        let listener = Listener::bind(hidden)?;
        listener.set_nonblocking(true)?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        if group.is_some() {
            std::os::unix::fs::chown(hidden, None, group)?;
        }
        std::fs::set_permissions(hidden, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(hidden, path)?;
        Ok(Self { listener, path: Some(path.to_path_buf()) })
    }

    /// Serves up to `clients` clients at a time: `client` gets each one with its place, in a task of its own. One more
    /// client takes the place of the client that has been idle for the longest time.
    pub async fn serve<F>(self, clients: usize, client: impl Fn(UnixStream, Arc<Place>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let places = Places::new(clients);
        let listener = match self.listener.try_clone().and_then(UnixListener::from_std) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, path = ?self.path, "socket: accepts no client any more; restart the daemon");
                return;
            }
        };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let place = Arc::new(places.take().await);
                    let served = client(stream, Arc::clone(&place));
                    tokio::spawn(async move {
                        tokio::select! {
                            () = served => {}
                            () = place.left() => tracing::debug!("socket: a client is closed to serve another one"),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, path = ?self.path, "socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `LocalSocket::bind_for`, leave out `or_else`.
    #[test]
    fn a_folder_that_a_killed_process_of_this_number_has_left_is_no_hindrance() {
        let pid = std::process::id();
        let folder = std::env::temp_dir().join(format!("ike-local-{pid}"));
        let left = folder.join(format!("s.{pid}"));
        std::fs::create_dir_all(&left).unwrap();
        let killed = Listener::bind(left.join("s")).unwrap();
        drop(killed);
        let socket = LocalSocket::bind(&folder.join("s")).unwrap();
        assert!(!left.exists() && folder.join("s").exists());
        drop(socket);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
