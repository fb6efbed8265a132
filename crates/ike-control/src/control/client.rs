//! The client's end of the control socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ike_config::seconds;

use super::protocol::{LONGEST_RESPONSE, Request, Response};

/// The daemon could not be asked.
#[derive(Debug)]
pub struct Unreachable {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The reason.
    pub error: io::Error,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, error } = self;
        write!(f, "cannot ask the daemon at {}: {error}", socket.display())?;
        f.write_str(match error.kind() {
            io::ErrorKind::WouldBlock => " (it does not answer)",
            io::ErrorKind::PermissionDenied => " (only the daemon's own user may ask it)",
            _ => "",
        })
    }
}

impl std::error::Error for Unreachable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Asks the daemon at `socket` and waits for its answer.
///
/// # Errors
/// The socket does not exist, or the daemon does not answer in time.
pub fn ask(socket: &Path, request: &Request) -> Result<Response, Unreachable> {
    exchange(socket, request).map_err(|error| Unreachable { socket: socket.to_path_buf(), error })
}

fn exchange(socket: &Path, request: &Request) -> io::Result<Response> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience(request)))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    // A daemon that hangs says nothing, not even that time is up.
    BufReader::new(stream).take(LONGEST_RESPONSE as u64).read_until(b'\n', &mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up without an answer"));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// How long an answer may take: what the daemon was given, and some more.
fn patience(request: &Request) -> Duration {
    let given = match request {
        Request::Up(named)
        | Request::Down(named)
        | Request::Rekey(named)
        | Request::Reauth(named) => named.timeout.and_then(seconds),
        Request::UpAll { timeout } => timeout.and_then(seconds),
        Request::Redirect { .. }
        | Request::List
        | Request::Leases { .. }
        | Request::Reload { .. } => None,
    };
    given.unwrap_or(Duration::from_secs(60)) + Duration::from_secs(5)
}
