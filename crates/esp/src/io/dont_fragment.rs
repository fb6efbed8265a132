//! Don't Fragment of outgoing packets: a socket option, because there is no control message for it.

use std::io;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock};

use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};

use crate::fields::Fields;

/// Where packets that do not fit are fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dividing {
    /// Nowhere. The kernel's own path MTU is ignored, because the kernel believes every ICMP message.
    Nowhere,
    /// By this host or a router; over IPv6 by this host.
    Anywhere,
    /// By this host, to the path MTU that the kernel knows. For IKE.
    Here,
}

/// The present setting of a socket.
pub(super) struct DontFragment {
    ipv4: bool,
    now: RwLock<Dividing>,
}

impl Dividing {
    /// For a packet under `fields`.
    pub(super) fn of(fields: &Fields) -> Self {
        if fields.dont_fragment { Self::Nowhere } else { Self::Anywhere }
    }
}

impl DontFragment {
    /// For a socket of IPv4 or IPv6, which fragments [here](Dividing::Here).
    pub(super) fn new(ipv4: bool) -> Self {
        Self { ipv4, now: RwLock::new(Dividing::Here) }
    }

    /// Calls `send` while the socket is set to `wanted`. Other calls with the same `wanted` may run meanwhile, and no
    /// others.
    pub(super) fn during<T>(
        &self,
        socket: &impl AsFd,
        wanted: Dividing,
        send: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        {
            let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
            if *now == wanted {
                return send();
            }
        }
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        if *now != wanted {
            self.set(socket, wanted)?;
            *now = wanted;
        }
        send()
    }

    fn set(&self, socket: &impl AsFd, wanted: Dividing) -> io::Result<()> {
        let (v4, v6) = match wanted {
            Dividing::Nowhere => (Ipv4PathMtuDiscovery::PROBE, Ipv6PathMtuDiscovery::PROBE),
            // Not DONT: it follows what the kernel has heard, and hears no more itself. Over IPv6 nobody else divides.
            Dividing::Anywhere => (Ipv4PathMtuDiscovery::OMIT, Ipv6PathMtuDiscovery::WANT),
            Dividing::Here => (Ipv4PathMtuDiscovery::WANT, Ipv6PathMtuDiscovery::WANT),
        };
        if self.ipv4 {
            set_ip_mtu_discover(socket, v4)?;
        } else {
            set_ipv6_mtu_discover(socket, v6)?;
        }
        Ok(())
    }
}
