//! What is known of another program that has policies for the packets of a child.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::selector::Selector;

/// Where charon's VICI listens.
const SOCKET: &str = "/run/charon.vici";

/// What a policy with this selector is for.
pub(super) fn packets(Selector { src, dst, .. }: &Selector) -> String {
    format!("from {}/{} to {}/{}", src.address, src.length, dst.address, dst.length)
}

/// Says that another program has a policy with this selector, and what program that may be.
pub(super) fn has_policy(selector: &Selector) -> String {
    let who = charon().map(|process| format!("; charon runs here as process {process}"));
    let who = who.unwrap_or_default();
    format!("another program has a policy for packets {}{who}", packets(selector))
}

/// The process of charon on this host, as far as its socket tells.
pub(super) fn charon() -> Option<i32> {
    charon_at(SOCKET)
}

/// A daemon of ours may listen there as well, or a service manager for it.
fn charon_at(path: &str) -> Option<i32> {
    // One that does not accept is not waited for.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    let process = getsockopt(&socket, PeerCredentials).ok()?.pid();
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    name.starts_with("charon").then_some(process)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Faults: in `charon_at`, take each process for charon; in `packets`, leave out a prefix.
    #[test]
    fn the_process_behind_charons_socket_is_named_if_it_is_charon() {
        let path = std::env::temp_dir().join(format!("charon-{}.vici", std::process::id()));
        let path = path.to_str().unwrap();
        _ = std::fs::remove_file(path);
        assert_eq!(charon_at(path), None, "nobody listens");
        let _listener = UnixListener::bind(path).unwrap();
        assert_eq!(charon_at(path), None, "a daemon of ours");
        std::fs::write("/proc/self/comm", "charon-systemd").unwrap();
        let process = i32::try_from(std::process::id()).unwrap();
        assert_eq!(charon_at(path), Some(process));
        std::fs::remove_file(path).unwrap();
        let prefix =
            |text: &str, length| crate::selector::Prefix::new(text.parse().unwrap(), length);
        let selector = Selector {
            src: prefix("10.1.0.0", 16),
            dst: prefix("10.2.0.0", 16),
            protocol: 0,
            src_port: Default::default(),
            dst_port: Default::default(),
            ifindex: 0,
        };
        assert_eq!(packets(&selector), "from 10.1.0.0/16 to 10.2.0.0/16");
    }
}
