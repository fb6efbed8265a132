//! Don't Fragment of outgoing IPv4 packets: an option of the socket, because no control message says it.

use std::io;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock};

use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

/// What the socket does now: true if what fits the path gets Don't Fragment, and what does not is fragmented here; false
/// if routers may fragment as well.
pub(super) struct DontFragment(RwLock<bool>);

impl DontFragment {
    /// For a socket whose packets have Don't Fragment.
    pub(super) fn on() -> Self {
        Self(RwLock::new(true))
    }

    /// Calls `send` while the packets of the IPv4 socket have Don't Fragment, or have not. Others may send the same kind
    /// meanwhile, and no other kind.
    pub(super) fn during<T>(
        &self,
        socket: &impl AsFd,
        wanted: bool,
        send: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        {
            let now = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if *now == wanted {
                return send();
            }
        }
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if *now != wanted {
            let discovery =
                if wanted { Ipv4PathMtuDiscovery::WANT } else { Ipv4PathMtuDiscovery::DONT };
            set_ip_mtu_discover(socket, discovery)?;
            *now = wanted;
        }
        send()
    }
}
