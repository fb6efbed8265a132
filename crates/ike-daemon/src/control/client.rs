//! The command line's end of the control socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::protocol::{LONGEST_RESPONSE, Request, Response};
use crate::config;

/// The daemon could not be asked.
#[derive(Debug)]
pub struct Unreachable(String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// Asks the daemon at `socket` and waits for its answer.
pub fn ask(socket: &Path, request: &Request) -> Result<Response, Unreachable> {
    exchange(socket, request).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                " (is the daemon running? `ike-daemon run`, and the same --control)"
            }
            io::ErrorKind::WouldBlock => " (it does not answer)",
            io::ErrorKind::PermissionDenied => " (only the daemon's own user may ask it)",
            _ => "",
        };
        Unreachable(format!("cannot ask the daemon at {}: {error}{hint}", socket.display()))
    })
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
        | Request::Reauth(named) => named.timeout.and_then(config::seconds),
        Request::UpAll { timeout } => timeout.and_then(config::seconds),
        Request::Redirect { .. } | Request::List | Request::Leases { .. } | Request::Reload => None,
    };
    given.unwrap_or(Duration::from_secs(60)) + Duration::from_secs(5)
}
