//! Devices that go down, come up and disappear. The kernel drops offloaded SAs and policies of such a device
//! without an event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A change of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkChange {
    /// Interface index.
    pub index: u32,
    /// How it is now.
    pub now: Link,
}

/// How a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Up. Said again whenever anything about it changes.
    Up,
    /// Down.
    Down,
    /// Not in this network namespace any more.
    Gone,
}

/// Hears of changes, without waiting for them. The descriptor is readable when there are some.
#[derive(Debug)]
pub struct LinkWatch {
    socket: Socket,
    waiting: Vec<LinkChange>,
}

impl LinkWatch {
    /// Listens in the network namespace of the calling thread; needs no privilege.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(libc::RTNLGRP_LINK)?;
        socket.set_non_blocking(true)?;
        Ok(Self { socket, waiting: Vec::new() })
    }

    /// The next change, if there is one. An error of the kind `OutOfMemory` or raw `ENOBUFS` means that
    /// changes were lost: every device may be another than it was.
    pub fn next_change(&mut self) -> io::Result<Option<LinkChange>> {
        while self.waiting.is_empty() {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => self.waiting = read(&datagram),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(self.waiting.remove(0)))
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn read(mut octets: &[u8]) -> Vec<LinkChange> {
    let mut changes = Vec::new();
    while let Ok(buffer) = NetlinkBuffer::new_checked(octets) {
        let length = buffer.length() as usize;
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(octets);
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        let Ok(message) = message else { continue };
        changes.extend(match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                let up = link.header.flags.contains(LinkFlags::Up);
                Some(change(&link, if up { Link::Up } else { Link::Down }))
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => {
                Some(change(&link, Link::Gone))
            }
            _ => None,
        });
    }
    changes
}

fn change(link: &LinkMessage, now: Link) -> LinkChange {
    LinkChange { index: link.header.index, now }
}
