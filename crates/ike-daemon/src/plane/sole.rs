//! One daemon at a time has the kernel's data plane of a network namespace: a second one would take the first one's
//! states for an earlier run's.
//!
//! Names of abstract sockets are the namespace's, and go with the process however it ends. But anybody can take one:
//! who has a name is asked for its user, and there are several names.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

const NAME: &str = "ike-daemon/xfrm";

/// How many names there are, for those that a stranger has.
const NAMES: usize = 8;

/// How long a name that was just taken has to be served.
const MOMENT: Duration = Duration::from_millis(20);

/// Who has a name.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// A process of this user; `None` where it does not say.
    User(Option<u32>),
}

/// What keeps other daemons away as long as it lasts; `None` if other users have every name.
pub(super) fn sole() -> io::Result<Option<UnixListener>> {
    let own = rustix::process::geteuid().as_raw();
    among(NAME, |uid| uid == 0 || uid == own)
}

fn among(name: &str, is_a_daemon: impl Fn(u32) -> bool) -> io::Result<Option<UnixListener>> {
    let mut own = None;
    // All of them: a stranger may have had one when an earlier daemon began.
    for number in 0..NAMES {
        let name = format!("{name}/{number}");
        let mut holder = holder(&name)?;
        if own.is_none() && holder == Holder::Nobody {
            match UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
                Ok(listener) => own = Some(listener),
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
    std::thread::sleep(MOMENT);
    match holder(name)? {
        Holder::Nobody => Ok(Holder::User(None)),
        user => Ok(user),
    }
}

fn holder(name: &str) -> io::Result<Holder> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    match connect(&socket, &address) {
        // Those of the process that listens.
        Ok(()) => Ok(Holder::User(Some(sockopt::socket_peercred(&socket)?.uid.as_raw()))),
        Err(Errno::CONNREFUSED) => Ok(Holder::Nobody),
        // It has very many connections.
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
        let at = own.local_addr().unwrap();
        assert_eq!(at.as_abstract_name(), Some(format!("{name}/2").as_bytes()));
        others.extend((3..NAMES).map(|number| bind(&name, number)));
        assert!(among(&name, |_| false).unwrap().is_none(), "they have all, and it starts");
        // Ours are root's and those of the daemon's user.
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(holder(&format!("{name}/0")).unwrap(), Holder::User(Some(own)));
    }
}
