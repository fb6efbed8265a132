//! Sockets, the TUN device and the routes around a [`Plane`](crate::Plane) (Linux, tokio).
//!
//! ```text
//!            ┌ outbound task (one per TUN queue) ─ Outbound ─ runs of equal datagrams ─▶ UDP GSO, sendmmsg
//!  Device ◀──┤
//!            └ inbound task (one per socket) ───── Inbound ◀─ UDP GRO, recvmmsg ──────── EncapSocket
//!                                                                                         PlainEsp
//! ```
//!
//! The kernel chooses the queue of a packet: by the queue to which the other direction was written, if any, else
//! by a hash of its flow. The tasks therefore write each flow to a queue of its own ([`Device`]). Otherwise all
//! flows with answers would end up in one queue.
//!
//! ESP in TCP leaves through [`Streams`] and arrives through a [`Feed`]. The owner of the connections for IKE also
//! owns them for ESP.
//!
//! [`UserspacePlane`] owns the tasks and is the [`DataPlane`](ipsec_types::dataplane::DataPlane) that an
//! engine's driver talks to. The tasks share nothing that is locked across I/O.
//!
//! # Which packets come to the TUN device
//!
//! [`routes`] gives the device a routing table of its own, asked before the main table by one rule
//! per address family: *packets without our mark*. Every socket that carries IKE or ESP sets the mark
//! ([`set_mark`]), so outer packets never come back to the device, even where a remote traffic selector
//! covers the peer itself, as in transport mode. A kernel with strict reverse path filtering
//! (`rp_filter` = 1) on the outer interface drops the peer's outer packets in that case; 0 and 2 work.
//!
//! The kernel passes only outbound packets to the device. Packets that arrive in clear do not pass here. The
//! kernel's nf_tables drop those that should have been protected (RFC 4301 §5.2), by rules that [`Guard`] makes
//! from the SPD.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

mod ancillary;
mod device;
mod dont_fragment;
mod early;
mod encap;
mod errors;
mod exemptions;
mod guard;
mod outer_fragments;
mod raw;
mod routed;
mod sender;
mod streams;
mod tasks;
mod userspace;

pub use device::{Device, MemoryHost, TunOptions};
pub use encap::{EncapSocket, IkeDatagram};
pub use guard::{
    Changes, Guard, GuardOptions, Leaving, TcpPorts, Verdict, XfrmGuard, XfrmGuardOptions, missing,
    put_back,
};
pub use raw::{ClearSockets, PlainEsp};
pub use routed::Routed;
pub use routes::{DEFAULT_MARK, RouteOptions};
pub use streams::{Fed, Feed, Streams};
pub use userspace::{Config, UserspacePlane};

/// Marks the packets of `socket`, so that they do not enter the TUN device. Needs CAP_NET_ADMIN.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    socket2::SockRef::from(socket).set_mark(mark)
}

/// The time. The core is told it; this is where it comes from.
#[expect(clippy::disallowed_methods, reason = "the one place where this crate asks for the time")]
fn now() -> Instant {
    Instant::now()
}
