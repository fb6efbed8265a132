//! The error queue of a socket (`IP_RECVERR`): packets that were too big for a link, and ICMP messages of routers.
//!
//! The queue is read by itself, because its errors concern any peer: an error about one peer must not fail a send to
//! another peer, or a receive. The plane hears of packets that were too big, and judges which report to believe.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;
use tracing::info;

use super::ancillary::address;
use super::now;
use crate::inbound::Carrier;
use crate::plane::{Plane, TooBig};

/// Errors that are taken from the queue at a time.
const ERRORS: usize = 64;
/// Octets that are read of the packet that caused an error: SPI and sequence number.
const QUOTED: usize = 8;

/// Origins of errors (errqueue.h).
const LOCAL: u8 = 1;
const ICMP: u8 = 2;
const ICMPV6: u8 = 3;

/// Has the kernel keep errors for [`drain`].
pub(super) fn keep(socket: &impl AsFd, ipv4: bool) -> io::Result<()> {
    // Without this, Linux ignores a Packet Too Big about a raw IPv6 socket that is not connected.
    let set = match ipv4 {
        true => setsockopt(socket, sockopt::Ipv4RecvErr, &true),
        false => setsockopt(socket, sockopt::Ipv6RecvErr, &true),
    };
    Ok(set?)
}

/// Empties the error queue of a socket for ESP in `carrier`: the queue takes room in the receive buffer. True if there was
/// an error. Errors beyond [`ERRORS`] stay for the next call, so that a stranger who causes many delays nothing else.
pub(super) fn drain(socket: &impl AsRawFd, carrier: Carrier, plane: Option<&Plane>) -> bool {
    let mut any = false;
    for _ in 0..ERRORS {
        let (mut quoted, mut control) = ([0; QUOTED], [0; 256]);
        let mut slices = [IoSliceMut::new(&mut quoted)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
        let Ok(message) = message else { return any };
        any = true;
        let (told, len) = (said(&message), message.bytes);
        if let (Some((peer, origin, octets)), Some(plane)) = (told, plane) {
            let quoted = quoted.get(..len).unwrap_or_default();
            tell(plane, origin, TooBig { peer, carrier, octets, quoted });
        }
    }
    any
}

/// Destination of the packet that was too big, origin of the error, and the size that fits.
fn said(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<(SocketAddr, u8, u16)> {
    let peer = message.address.as_ref().and_then(address)?;
    message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _)
            if error.ee_errno == libc::EMSGSIZE as u32 =>
        {
            let octets = u16::try_from(error.ee_info).unwrap_or(u16::MAX);
            Some((peer, error.ee_origin, octets))
        }
        _ => None,
    })
}

fn tell(plane: &Plane, origin: u8, report: TooBig<'_>) {
    let TooBig { peer, octets, .. } = report;
    let news = match origin {
        LOCAL => plane.link_too_small(now(), peer.ip(), octets),
        ICMP | ICMPV6 => plane.too_big(now(), &report).is_some(),
        _ => false,
    };
    if news {
        let by = if origin == LOCAL { "the link" } else { "the path" };
        info!(peer = %peer.ip(), octets, by, "ESP packets to this peer get smaller, to fit the path MTU");
    }
}
