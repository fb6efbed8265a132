//! One daemon at a time has the kernel's data plane of a network namespace: a second one would take the first one's
//! states for an earlier run's.
//!
//! Names of abstract sockets are the namespace's, and go with the process however it ends. But anybody can take one:
//! who has a name is asked for its user, and there are several names.

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

/// How many names there are, for those that a stranger has.
const NAMES: usize = 8;

/// How long a name that was just taken has to be served.
const MOMENT: Duration = Duration::from_millis(20);

/// How long who has a name has to take a connection, for others may ask as well.
const PATIENCE: Duration = Duration::from_millis(250);

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// A process of this user; `None` where it does not say.
    User(Option<u32>),
}

/// Keeps other daemons away as long as it lasts.
#[derive(Debug)]
pub(super) struct Sole {
    listener: UnixListener,
    /// Takes connections, and ends them: a line that is full would hide whose the name is.
    thread: Option<JoinHandle<()>>,
}

impl Sole {
    fn new(listener: UnixListener) -> io::Result<Self> {
        let its = listener.try_clone()?;
        let take = move || {
            loop {
                match its.accept() {
                    Ok(_) => {}
                    // The end.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                    // Of descriptors or memory there may be more later.
                    Err(_) => thread::sleep(MOMENT),
                }
            }
        };
        let thread = thread::Builder::new().name("sole".to_owned()).spawn(take)?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        // It wakes the thread, after which nobody has the name.
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// `None` if other users have every name.
pub(super) fn sole() -> io::Result<Option<Sole>> {
    // One of an earlier version has this name, which does not say whose it is: anybody can take it.
    if UnixDatagram::unbound()?.connect_addr(&SocketAddr::from_abstract_name(NAME)?).is_ok() {
        tracing::warn!(
            name = NAME,
            "a process has the name that ike-daemon of an earlier version has: end that one first, if it is one"
        );
    }
    let own = rustix::process::geteuid().as_raw();
    among(NAME, |uid| uid == 0 || uid == own)
}

fn among(name: &str, is_a_daemon: impl Fn(u32) -> bool) -> io::Result<Option<Sole>> {
    let mut own = None;
    // All of them: a stranger may have had one when an earlier daemon began.
    for number in 0..NAMES {
        let name = format!("{name}/{number}");
        let mut holder = holder(&name)?;
        if own.is_none() && holder == Holder::Nobody {
            match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
                Ok(listener) => own = Some(Sole::new(listener)?),
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
                tracing::warn!(name, uid, "another user has a name that keeps second daemons away");
            }
        }
    }
    if own.is_none() {
        tracing::warn!("other users have all names: nothing keeps a second daemon away");
    }
    Ok(own)
}

/// Who has taken a name a moment ago, or does not serve it.
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
    // Whoever waits comes before those who ask later.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    match connect(&socket, &address) {
        // Those of the process that listens.
        Ok(()) => Ok(Holder::User(Some(sockopt::socket_peercred(&socket)?.uid.as_raw()))),
        Err(Errno::CONNREFUSED) => Ok(Holder::Nobody),
        // It takes none.
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
        // There was a stranger when that one began.
        let _first = bind(&name, 3);
        assert!(among(&name, |_| true).is_err());
    }

    /// Fault: in `Sole::new`, begin no thread.
    #[test]
    fn who_asks_very_often_does_not_hide_the_first_daemon() {
        let name = name("full");
        let first = among(&name, |_| true).unwrap().unwrap();
        // A short line is soon full.
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
