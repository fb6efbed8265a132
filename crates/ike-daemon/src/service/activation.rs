//! A socket that systemd has made and passes on (sd_listen_fds(3)).

use std::io;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

/// The VICI socket, if systemd passes one. To be called before there is a second thread, for it takes variables out
/// of the environment, and before another process is made that would have the socket as well.
///
/// # Errors
/// What is passed is no such socket, or more than one.
pub(crate) fn vici() -> io::Result<Option<UnixListener>> {
    let mut passed = ListenFd::from_env();
    let refuse = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    match passed.len() {
        0 => Ok(None),
        1 => {
            let taken = passed.take_unix_listener(0);
            let taken =
                taken.map_err(|error| refuse(&format!("the socket of systemd's: {error}")))?;
            Ok(taken)
        }
        _ => Err(refuse("systemd passes several sockets: expected one, VICI's")),
    }
}
