//! Raw sockets: ESP straight over IP, and packets that a pass policy lets out in clear.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::cmsg_space;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};
use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::{Domain, MsgHdr, Protocol, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::ancillary::{Ancillary, with_label};
use super::dont_fragment::{Dividing, DontFragment};
use super::encap::{RecvBatch, allow_fragments, enlarge_buffers};
use super::errors;
use crate::fields::Fields;
use crate::inbound::Carrier;
use crate::ip::proto;
use crate::plane::Plane;

/// Packets that one system call sends.
const MAX_SENT: usize = 64;

/// ESP over IP (protocol 50) for one address family.
pub struct PlainEsp {
    /// A raw socket, which behaves like a UDP socket for the calls used here.
    socket: UdpSocket,
    state: UdpSocketState,
    ipv4: bool,
    dont_fragment: DontFragment,
}

/// Sockets that send whole packets in clear past the TUN device.
pub struct ClearSockets {
    v4: Socket,
    v6: Option<Socket>,
}

impl PlainEsp {
    /// Opens a raw socket for IPv4 or IPv6 that sets `mark` on its packets. Needs CAP_NET_RAW, and CAP_NET_ADMIN
    /// for the mark; must be called inside a tokio runtime.
    pub fn open(ipv4: bool, mark: Option<u32>) -> io::Result<Self> {
        let domain = if ipv4 { Domain::IPV4 } else { Domain::IPV6 };
        let protocol = Protocol::from(i32::from(proto::ESP));
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        allow_fragments(&socket, ipv4)?;
        errors::keep(&socket, ipv4)?;
        enlarge_buffers(&socket);
        let socket = UdpSocket::from_std(OwnedFd::from(socket).into())?;
        Ok(Self { socket, state, ipv4, dont_fragment: DontFragment::new(ipv4) })
    }

    /// True for IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.ipv4
    }

    /// Sends ESP packets of `segment` octets, the last of which may be shorter, with as few system calls as
    /// possible. Packets that the kernel refuses are lost; the last error is returned.
    pub(super) async fn send(
        &self,
        src: IpAddr,
        dst: IpAddr,
        fields: &Fields,
        packets: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let slices: Vec<_> =
            packets.chunks(segment.max(1)).map(|esp| [IoSlice::new(esp)]).collect();
        let mut rest = &*slices;
        let mut result = Ok(());
        while !rest.is_empty() {
            let run = rest.get(..MAX_SENT).unwrap_or(rest);
            let send = || {
                let to = Ends { src, dst, fields };
                let send = || {
                    let send = || to.send(&self.socket, run);
                    self.dont_fragment.during(&self.socket, Dividing::of(fields), send)
                };
                // The error may be an ICMP error about an earlier packet, perhaps to another peer: that is no reason to
                // lose this one.
                match send() {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => send(),
                    done => done,
                }
            };
            let sent =
                self.socket.async_io(Interest::WRITABLE, send).await.unwrap_or_else(|error| {
                    result = Err(error);
                    1
                });
            rest = rest.get(sent..).unwrap_or_default();
        }
        result
    }

    /// Waits for ESP packets; [`strip_header`] finds them in the received octets.
    pub(super) async fn recv(&self, batch: &mut RecvBatch) -> io::Result<()> {
        loop {
            let drain = |plane: Option<&Plane>| errors::drain(&self.socket, Carrier::Ip, plane);
            match batch.fill(&self.socket, &self.state, drain).await {
                // The next wait tells what becomes of the socket itself.
                Err(_) if drain(batch.plane()) => {}
                done => return done,
            }
        }
    }
}

/// The header of packets to be sent.
struct Ends<'a> {
    src: IpAddr,
    dst: IpAddr,
    fields: &'a Fields,
}

impl Ends<'_> {
    /// Hands as many of `packets` to the kernel as it takes at once; returns how many, at least one.
    fn send(&self, socket: &UdpSocket, packets: &[[IoSlice<'_>; 1]]) -> io::Result<usize> {
        if self.fields.flow_label == 0 {
            return self.send_all(socket, packets);
        }
        let Some(first) = packets.first() else { return Ok(0) };
        with_label(self.fields, |fields| {
            let to = Ends { fields, ..*self };
            if fields.flow_label == 0 {
                to.send_all(socket, packets)
            } else {
                to.send_one(socket, first)
            }
        })
    }

    /// Hands `packet` to the kernel, with the flow label.
    fn send_one(&self, socket: &UdpSocket, packet: &[IoSlice<'_>; 1]) -> io::Result<usize> {
        let Self { src, dst, fields } = *self;
        let source = Some(src).filter(|src| !src.is_unspecified());
        let ancillary = Ancillary::new(source, dst.is_ipv4(), fields);
        let to = SockAddr::from(SocketAddr::new(dst, 0));
        let message = MsgHdr::new().with_addr(&to).with_buffers(packet);
        let message = message.with_control(ancillary.octets());
        SockRef::from(socket).sendmsg(&message, libc::MSG_DONTWAIT).map(|_| 1)
    }

    /// As [`Self::send`], without the flow label.
    fn send_all(&self, socket: &UdpSocket, packets: &[[IoSlice<'_>; 1]]) -> io::Result<usize> {
        let Self { src, dst, fields: &Fields { tos, hop_limit, .. } } = *self;
        let to = vec![Some(SockaddrStorage::from(SocketAddr::new(dst, 0))); packets.len()];
        let (class, source4, source6);
        let limit = hop_limit.map(i32::from);
        let mut control = Vec::with_capacity(3);
        // The kernel takes the whole buffer for control messages, so it has to fit them.
        let mut room = Vec::new();
        match dst {
            IpAddr::V4(_) if tos != 0 => {
                control.push(ControlMessage::Ipv4Tos(&tos));
                room.extend(cmsg_space!(u8));
            }
            IpAddr::V6(_) if tos != 0 => {
                class = i32::from(tos);
                control.push(ControlMessage::Ipv6TClass(&class));
                room.extend(cmsg_space!(i32));
            }
            _ => {}
        }
        if let Some(limit) = &limit {
            control.push(match dst {
                IpAddr::V4(_) => ControlMessage::Ipv4Ttl(limit),
                IpAddr::V6(_) => ControlMessage::Ipv6HopLimit(limit),
            });
            room.extend(cmsg_space!(i32));
        }
        match src {
            src if src.is_unspecified() => {}
            IpAddr::V4(src) => {
                let none = libc::in_addr { s_addr: 0 };
                let from = libc::in_addr { s_addr: u32::from(src).to_be() };
                source4 = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: none };
                control.push(ControlMessage::Ipv4PacketInfo(&source4));
                room.extend(cmsg_space!(libc::in_pktinfo));
            }
            IpAddr::V6(src) => {
                let from = libc::in6_addr { s6_addr: src.octets() };
                source6 = libc::in6_pktinfo { ipi6_ifindex: 0, ipi6_addr: from };
                control.push(ControlMessage::Ipv6PacketInfo(&source6));
                room.extend(cmsg_space!(libc::in6_pktinfo));
            }
        }
        // All of what is allocated counts.
        let room = Some(room.into_boxed_slice().into_vec()).filter(|room| !room.is_empty());
        let mut headers = MultiHeaders::preallocate(packets.len(), room);
        let socket = socket.as_raw_fd();
        let sent = sendmmsg(socket, &mut headers, packets, to, control, MsgFlags::empty())?;
        Ok(sent.count())
    }
}

/// The ESP packet in octets from a raw socket. An IPv4 socket returns the IP header too; an IPv6 socket does not.
pub(super) fn strip_header(packet: &[u8], ipv4: bool) -> Option<&[u8]> {
    if !ipv4 {
        return Some(packet);
    }
    let header = usize::from(packet.first()? & 15) * 4;
    packet.get(header..)
}

impl ClearSockets {
    /// Opens raw sockets that set `mark` on their packets. IPv6 may be missing on the host.
    pub fn open(mark: u32) -> io::Result<Self> {
        let open = |domain| {
            // IPPROTO_RAW: the packet brings its own header.
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(255)))?;
            socket.set_nonblocking(true)?;
            socket.set_mark(mark)?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self { v4: open(Domain::IPV4)?, v6: open(Domain::IPV6).ok() })
    }

    /// Sends the IP packet `packet` as it is.
    pub(super) fn send(&self, dst: IpAddr, packet: &[u8]) -> io::Result<()> {
        let socket = if dst.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() };
        let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
        socket.send_to(packet, &SockAddr::from(SocketAddr::new(dst, 0))).map(|_| ())
    }
}
