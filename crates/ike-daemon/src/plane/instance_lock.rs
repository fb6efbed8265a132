//! A lock, so that one daemon at a time uses the kernel's data plane of a network namespace. A second daemon would take the
//! states of the first one for those of an earlier run.
//!
//! The lock is a listening socket with an abstract name. Such names belong to the namespace, and the kernel frees them
//! when the process ends, however it ends. But every user can take any name. So there are several names, and the holder
//! of a name counts only if it runs as root or as the same user.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};

const NAME: &str = "ike-daemon/xfrm";

/// How many names there are: strangers may hold some.
const NAMES: usize = 8;

/// How long a process has from taking a name to accepting connections.
const MOMENT: Duration = Duration::from_millis(20);

/// How long the holder of a name has to accept a connection: others may connect as well.
const PATIENCE: Duration = Duration::from_millis(250);

/// The holder of a name.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// A process of this user; `None` if it does not accept connections.
    User(Option<u32>),
}

/// The lock, held until this is dropped.
#[derive(Debug)]
pub(super) struct InstanceLock {
    listener: UnixListener,
    /// Accepts connections and closes them. With a full backlog, others could not connect and learn the user.
    thread: Option<JoinHandle<()>>,
}

impl InstanceLock {
    fn new(listener: UnixListener) -> io::Result<Self> {
        let its = listener.try_clone()?;
        let take = move || {
            loop {
                match its.accept() {
                    Ok(_) => {}
                    // The socket was shut down.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                    // Too few descriptors, or too little memory: that may change.
                    Err(_) => thread::sleep(MOMENT),
                }
            }
        };
        let thread = thread::Builder::new().name("instance-lock".to_owned()).spawn(take)?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        // That wakes the thread. The name is free after it has ended.
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes the lock. `None` if other users hold every name.
///
/// # Errors
/// If another daemon holds the lock.
pub(super) fn lock_instance() -> io::Result<Option<InstanceLock>> {
    // Earlier versions bind a datagram socket to this name. It does not tell the user, so it is no proof of a daemon.
    if UnixDatagram::unbound()?.connect_addr(&SocketAddr::from_abstract_name(NAME)?).is_ok() {
        tracing::warn!(
            name = NAME,
            "a process holds the socket name of earlier versions of ike-daemon: if it is an ike-daemon, end it first"
        );
    }
    let own = rustix::process::geteuid().as_raw();
    among(NAME, |uid| uid == 0 || uid == own)
}

fn among(name: &str, is_a_daemon: impl Fn(u32) -> bool) -> io::Result<Option<InstanceLock>> {
    let mut own = None;
    // All names are asked: the first daemon may hold a later one, because a stranger held those before it.
    for number in 0..NAMES {
        let name = format!("{name}/{number}");
        let mut holder = holder(&name)?;
        if own.is_none() && holder == Holder::Nobody {
            match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
                Ok(listener) => own = Some(InstanceLock::new(listener)?),
                Err(error) if error.kind() == ErrorKind::AddrInUse => holder = new_holder(&name)?,
                Err(error) => return Err(error),
            }
        }
        match holder {
            Holder::Nobody => {}
            Holder::User(Some(uid)) if is_a_daemon(uid) => {
                let why = "another ike-daemon has the kernel data plane of this network namespace";
                return Err(io::Error::new(ErrorKind::AddrInUse, why));
            }
            Holder::User(uid) => {
                tracing::warn!(
                    name,
                    uid,
                    "a process of another user holds this socket name: it does not count as an ike-daemon"
                );
            }
        }
    }
    if own.is_none() {
        tracing::warn!(
            "other users hold all socket names of the lock: do not start a second ike-daemon in this network namespace"
        );
    }
    Ok(own)
}

/// The holder of a name that was taken a moment ago.
fn new_holder(name: &str) -> io::Result<Holder> {
    thread::sleep(MOMENT);
    match holder(name)? {
        Holder::Nobody => Ok(Holder::User(None)),
        user => Ok(user),
    }
}

fn holder(name: &str) -> io::Result<Holder> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // Connections that came before this one are accepted first.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    match connect(&socket, &address) {
        // The credentials of the process that listens.
        Ok(()) => Ok(Holder::User(Some(sockopt::socket_peercred(&socket)?.uid.as_raw()))),
        Err(Errno::CONNREFUSED) => Ok(Holder::Nobody),
        // It accepts no connection.
        Err(_) => Ok(Holder::User(None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(what: &str) -> String {
        format!("ike-daemon-test/{what}/{}", std::process::id())
    }

    fn bind(name: &str, number: usize) -> UnixListener {
        let name = format!("{name}/{number}");
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    }

    /// Fault: in `among`, end the loop once a name is bound.
    #[test]
    fn a_second_daemon_is_refused_whichever_name_the_first_one_has() {
        let name = name("second");
        let first = among(&name, |_| true).unwrap().unwrap();
        let why = among(&name, |_| true).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::AddrInUse);
        drop(first);
        // As if a stranger had held the names before it.
        let _first = bind(&name, 3);
        assert!(among(&name, |_| true).is_err());
    }

    /// Fault: in `InstanceLock::new`, begin no thread.
    #[test]
    fn many_connections_do_not_hide_the_first_daemon() {
        let name = name("full");
        let first = among(&name, |_| true).unwrap().unwrap();
        // A short backlog is soon full.
        rustix::net::listen(&first.listener, 1).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let at = SocketAddrUnix::new_abstract_name(format!("{name}/0").as_bytes()).unwrap();
        let ask = |_| {
            let socket = socket_with(family, kind, flags, None).unwrap();
            let _ = connect(&socket, &at);
            socket
        };
        let _asked: Vec<_> = (0..8).map(ask).collect();
        assert!(among(&name, |_| true).is_err());
        drop(first);
        assert!(among(&name, |_| true).unwrap().is_some(), "the name goes with it");
    }

    /// Fault: in `among`, take every user for a daemon.
    #[test]
    fn another_user_keeps_no_daemon_away() {
        let name = name("stranger");
        let mut others = vec![bind(&name, 0)];
        // One who does not listen.
        let family = (AddressFamily::UNIX, SocketType::STREAM);
        let deaf = socket_with(family.0, family.1, SocketFlags::CLOEXEC, None).unwrap();
        let second = SocketAddrUnix::new_abstract_name(format!("{name}/1").as_bytes()).unwrap();
        rustix::net::bind(&deaf, &second).unwrap();
        let own = among(&name, |_| false).unwrap().unwrap();
        let at = own.listener.local_addr().unwrap();
        assert_eq!(at.as_abstract_name(), Some(format!("{name}/2").as_bytes()));
        others.extend((3..NAMES).map(|number| bind(&name, number)));
        assert!(among(&name, |_| false).unwrap().is_none(), "they have all, and it starts");
        // Ours are root's and those of the daemon's user.
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(holder(&format!("{name}/0")).unwrap(), Holder::User(Some(own)));
    }
}
