//! A lock, so that one daemon at a time uses the kernel's data plane of a network namespace. A second daemon would take the
//! states of the first one for those of an earlier run.
//!
//! The lock is a listening socket with an abstract name. Such names belong to the namespace, and the kernel frees them
//! when the process ends, however it ends. But every user can take any name. So there are several names, and the holder
//! of a name counts only if it runs as root, as the same user, or with the capability that the data plane takes.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
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

/// CAP_NET_ADMIN in a set of capabilities (linux/capability.h).
const NET_ADMIN: u64 = 1 << 12;

/// The holder of a name.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// A process with these credentials; `None` if it does not accept connections, or the kernel does not tell them.
    Process(Option<UnixCredentials>),
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
    among(NAME, |holder| {
        let uid = holder.uid();
        uid == 0 || uid == own || may_administer(holder)
    })
}

fn among(
    name: &str,
    is_a_daemon: impl Fn(&UnixCredentials) -> bool,
) -> io::Result<Option<InstanceLock>> {
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
            Holder::Process(Some(holder)) if is_a_daemon(&holder) => {
                let why = "another ike-daemon has the kernel data plane of this network namespace";
                return Err(io::Error::new(ErrorKind::AddrInUse, why));
            }
            Holder::Process(holder) => {
                let uid = holder.map(|holder| holder.uid());
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
        Holder::Nobody => Ok(Holder::Process(None)),
        process => Ok(process),
    }
}

fn holder(name: &str) -> io::Result<Holder> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // Connections that came before this one are accepted first.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    match connect(&socket, &address) {
        // The credentials of the process that listens. A process of another PID namespace has the number 0 here.
        Ok(()) => Ok(Holder::Process(getsockopt(&socket, PeerCredentials).ok())),
        Err(Errno::CONNREFUSED) => Ok(Holder::Nobody),
        // It accepts no connection.
        Err(_) => Ok(Holder::Process(None)),
    }
}

/// True if the process may use the kernel's data plane: then it may also remove what this daemon sets, and to keep this one
/// from starting is no more. In a user namespace of its own, every user has all capabilities. A stranger's process that has
/// started a set-uid program since it began to listen has them, too, and does not count.
fn may_administer(holder: &UnixCredentials) -> bool {
    let read = |process: &str, file: &str| {
        std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default()
    };
    let process = holder.pid().to_string();
    let users = read(&process, "uid_map");
    let status = read(&process, "status");
    has_net_admin(&status)
        && is_of(&status, holder.uid())
        && !users.is_empty()
        && users == read("self", "uid_map")
}

/// True if this is among the effective capabilities in `status`.
fn has_net_admin(status: &str) -> bool {
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = capabilities.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    set.is_some_and(|set| set & NET_ADMIN != 0)
}

/// True if all user ids in `status` are this one.
fn is_of(status: &str, uid: u32) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| ids.split_whitespace().all(|id| id.parse() == Ok(uid)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

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
        let Holder::Process(Some(first)) = holder(&format!("{name}/0")).unwrap() else { panic!() };
        assert_eq!((first.uid(), first.pid()), (own, rustix::process::getpid().as_raw_pid()));
    }

    /// A daemon need not run as root.
    ///
    /// Faults: in `may_administer`, leave out the capability, the user, or `uid_map`.
    #[test]
    fn who_may_administer_the_network_counts_as_a_daemon() {
        assert!(has_net_admin("Name:\tike-daemon\nCapEff:\t0000000000003400\n"));
        assert!(!has_net_admin("CapPrm:\t0000000000003400\nCapEff:\t0000000000002400\n"));
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(may_administer(&UnixCredentials::new()), has_net_admin(&own));
        // As after `exec su` by a process of 65534, whose uid the socket keeps.
        let su = "Uid:\t65534\t0\t0\t0\nCapEff:\t000001ffffffffff\n";
        assert!(!is_of(su, 65534) && is_of("Uid:\t7\t7\t7\t7\n", 7) && !is_of("", 7));
        let own_uid = rustix::process::geteuid().as_raw();
        let apart = ["--user", "--map-root-user", "sh", "-c", "echo; exec sleep 60"];
        let mut unshare = Command::new("unshare");
        // Where there is no such program, or where users may have no namespaces, the rest is not shown.
        let Ok(mut child) = unshare.args(apart).stdout(Stdio::piped()).spawn() else { return };
        // It has its namespace once it writes.
        let mut line = [0];
        let began = child.stdout.take().unwrap().read(&mut line).unwrap() == 1;
        let pid = child.id().try_into().unwrap();
        let credentials = nix::libc::ucred { pid, uid: own_uid, gid: 0 };
        let holder = UnixCredentials::from(credentials);
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let may = may_administer(&holder);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!began || has_net_admin(&status) && !may);
    }
}
