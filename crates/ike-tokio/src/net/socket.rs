//! A UDP socket that knows which of this host's addresses a datagram came to, and sends from the
//! address it is told to.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll};

use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg, recvmsg,
    setsockopt, sockopt,
};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{Domain, MsgHdr, Protocol, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::ancillary::Ancillary;

/// A bound UDP socket, usually on a wildcard address.
#[derive(Debug)]
pub struct PktSocket {
    io: UdpSocket,
    bound: SocketAddr,
}

/// Where and how a datagram leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// This host's address.
    pub address: IpAddr,
    /// DSCP, 6 bits; 0 leaves it to the socket.
    pub dscp: u8,
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self { address, dscp: 0 }
    }
}

/// What a socket needs beside a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// Mark of all it sends.
    pub mark: Option<u32>,
    /// The kernel's IPsec policies do not hold for it.
    pub bypass: bool,
    /// The kernel takes the ESP that arrives.
    pub esp: bool,
}

/// Where a received datagram came from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Octets of it.
    pub len: usize,
    /// Sender.
    pub remote: SocketAddr,
    /// This host's address and port.
    pub local: SocketAddr,
}

impl PktSocket {
    /// Binds to `address`; an IPv6 socket takes IPv6 only, so that both families can have a wildcard
    /// socket of one port. Must be called in a tokio runtime.
    pub fn bind(address: SocketAddr, options: SocketOptions) -> io::Result<Self> {
        Self::bind_to(address, options, false)
    }

    fn bind_to(address: SocketAddr, options: SocketOptions, shared: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        match address {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            SocketAddr::V6(_) => {
                socket.set_only_v6(true)?;
                setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            }
        }
        // Before anything can arrive.
        prepare(&socket, address.is_ipv4(), options)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_port(shared)?;
        socket.bind(&address.into())?;
        // Room for bursts; the kernel caps it, and less is no failure.
        let _ = socket.set_recv_buffer_size(BUFFER);
        let _ = socket.set_send_buffer_size(BUFFER);
        let io = UdpSocket::from_std(socket.into())?;
        let bound = io.local_addr()?;
        Ok(Self { io, bound })
    }

    /// Another socket of the same address and port, with the same options (SO_REUSEPORT). The first was
    /// bound without that, so that nobody else had the port. Must be called in a tokio runtime.
    pub fn another(&self, options: SocketOptions) -> io::Result<Self> {
        SockRef::from(&self.io).set_reuse_port(true)?;
        Self::bind_to(self.bound, options, true)
    }

    /// Has the kernel steer datagrams among `count` sockets of this address and port, see
    /// `net/steering.rs`.
    pub fn steer(&self, count: u8, marked: bool) -> io::Result<()> {
        super::steering::steer(&self.io, count, marked)
    }

    /// The same socket in the tokio runtime that this is called in.
    pub fn moved(self) -> io::Result<Self> {
        let Self { io, bound } = self;
        Ok(Self { io: UdpSocket::from_std(io.into_std()?)?, bound })
    }

    /// The address it is bound to, with the port the system chose if that was 0.
    pub fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// The socket itself, for somebody else to receive from.
    pub fn into_socket(self) -> UdpSocket {
        self.io
    }

    /// Waits for a datagram. One longer than `buffer` is cut, which the caller cannot tell.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.io.async_io(Interest::READABLE, || self.recv_now(buffer)).await
    }

    /// Ready when something has arrived.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.io.poll_recv_ready(context).map(drop)
    }

    /// Takes what is already here, as much as `batch` holds. True if there may be more.
    pub fn recv_batch(&self, batch: &mut Batch) -> io::Result<bool> {
        batch.make_room();
        let taken = self.io.try_io(Interest::READABLE, || {
            self.recv_many(batch)?;
            // With this the next wait is for what comes from now on.
            if batch.is_full() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        match taken {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends both `parts` in one datagram from the address `local` to `remote`. What the socket has no room
    /// for is lost, as UDP may; the caller's retransmissions make up for it.
    pub fn send(
        &self,
        local: impl Into<Origin>,
        remote: SocketAddr,
        parts: &[&[u8]; 2],
    ) -> io::Result<()> {
        send_on(&self.io, local.into(), remote, parts)
    }

    /// As [`Self::send`], but always with Don't Fragment, also if the kernel knows a smaller path MTU. No other thread may
    /// send on the socket meanwhile.
    pub fn send_whole(
        &self,
        local: impl Into<Origin>,
        remote: SocketAddr,
        parts: &[&[u8]; 2],
    ) -> io::Result<()> {
        let ipv4 = self.bound.is_ipv4();
        discover(&self.io, ipv4, (Ipv4PathMtuDiscovery::PROBE, Ipv6PathMtuDiscovery::PROBE))?;
        let sent = self.send(local, remote, parts);
        discover(&self.io, ipv4, (Ipv4PathMtuDiscovery::WANT, Ipv6PathMtuDiscovery::WANT))?;
        sent
    }

    /// Sends `datagrams`, each behind `prefix`, in one call: the kernel cuts them apart (UDP_SEGMENT). All
    /// but the last must be of one length, and the last no longer. Where that is refused, by the kernel,
    /// the device, or because one is too large for the path, they leave one by one.
    pub fn send_run(
        &self,
        local: impl Into<Origin>,
        remote: SocketAddr,
        prefix: &[u8],
        datagrams: &[&[u8]],
    ) -> io::Result<()> {
        let local = local.into();
        if self.send_segments(local, remote, prefix, datagrams).is_ok() {
            return Ok(());
        }
        let mut all = Ok(());
        for datagram in datagrams {
            all = all.and(self.send(local, remote, &[prefix, datagram]));
        }
        all
    }

    fn send_segments(
        &self,
        local: Origin,
        remote: SocketAddr,
        prefix: &[u8],
        datagrams: &[&[u8]],
    ) -> io::Result<()> {
        let first = datagrams.first().map_or(0, |first| prefix.len() + first.len());
        let size = u16::try_from(first).map_err(io::Error::other)?;
        let mut slices = [IoSlice::new(&[]); 2 * RUN];
        let used = slices.get_mut(..2 * datagrams.len()).ok_or(io::ErrorKind::InvalidInput)?;
        let parts = datagrams.iter().flat_map(|datagram| [prefix, datagram]);
        for (slice, part) in used.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        send_by(&self.io, Ancillary::of(local).cut(size), remote, used)
    }

    fn recv_now(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut control = nix::cmsg_space!(libc::in6_pktinfo);
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg::<SockaddrStorage>(
            self.io.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        )?;
        self.describe(&message)
    }

    fn recv_many(&self, batch: &mut Batch) -> io::Result<()> {
        let Batch { buffer, taken, room } = batch;
        let room = *room;
        let control = nix::cmsg_space!(libc::in6_pktinfo);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(room, Some(control));
        let chunks = buffer.chunks_exact_mut(LARGEST).take(room);
        let mut slices: Vec<_> = chunks.map(|chunk| [IoSliceMut::new(chunk)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let messages = recvmmsg(self.io.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        for message in messages {
            // One without a sender keeps its place, and is nothing.
            let nothing = Received { len: 0, remote: self.bound, local: self.bound };
            taken.push(self.describe(&message).unwrap_or(nothing));
        }
        Ok(())
    }

    fn describe(&self, message: &RecvMsg<'_, '_, SockaddrStorage>) -> io::Result<Received> {
        let remote = message.address.as_ref().and_then(socket_address);
        let remote = remote.ok_or_else(|| io::Error::other("datagram without a sender"))?;
        let mut local = self.bound;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    local.set_ip(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    local.set_ip(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
        }
        Ok(Received { len: message.bytes, remote, local })
    }
}

/// As [`PktSocket::send`], by a socket of somebody else's.
pub fn send_on(
    io: &UdpSocket,
    local: Origin,
    remote: SocketAddr,
    parts: &[&[u8]; 2],
) -> io::Result<()> {
    send_by(io, Ancillary::of(local), remote, &parts.map(IoSlice::new))
}

fn send_by(
    io: &UdpSocket,
    ancillary: Ancillary,
    remote: SocketAddr,
    slices: &[IoSlice<'_>],
) -> io::Result<()> {
    let to = SockAddr::from(remote);
    let message = MsgHdr::new().with_addr(&to).with_buffers(slices);
    let message = message.with_control(ancillary.octets());
    SockRef::from(io).sendmsg(&message, libc::MSG_DONTWAIT).map(drop)
}

/// Room for several datagrams, used again and again.
#[derive(Debug)]
pub struct Batch {
    buffer: Vec<u8>,
    taken: Vec<Received>,
    /// How many are asked for: to prepare many for few costs more than another call.
    room: usize,
}

impl Batch {
    /// The datagrams that were taken last.
    pub fn datagrams(&self) -> impl Iterator<Item = (Received, &[u8])> {
        let octets = self.buffer.chunks_exact(LARGEST);
        let received = self.taken.iter().zip(octets);
        received.map(|(received, octets)| (*received, octets.get(..received.len).unwrap_or(octets)))
    }

    fn is_full(&self) -> bool {
        self.taken.len() == self.room
    }

    /// Forgets what was taken last, and decides by it how many are asked for now.
    fn make_room(&mut self) {
        if self.is_full() {
            self.room = BATCH.min(self.room * 4);
        } else if self.taken.len() <= self.room / 4 {
            self.room = FEW.max(self.room / 2);
        }
        self.taken.clear();
    }
}

impl Default for Batch {
    fn default() -> Self {
        // Pages that no datagram reaches are never touched.
        let taken = Vec::with_capacity(BATCH);
        Self { buffer: vec![0; BATCH * LARGEST], taken, room: FEW }
    }
}

/// Gives a socket what `options` say, and the way to treat large datagrams: what fits the path is never
/// fragmented under way, so that routers report what does not; what cannot be helped (IKE_SA_INIT) leaves
/// as IP fragments.
pub(super) fn prepare(socket: &Socket, ipv4: bool, options: SocketOptions) -> io::Result<()> {
    discover(socket, ipv4, (Ipv4PathMtuDiscovery::WANT, Ipv6PathMtuDiscovery::WANT))?;
    mark_and_bypass(socket, ipv4, options)?;
    if options.esp {
        super::kernel::receive_esp(socket).map_err(|error| kernel("ESP in UDP", &error))?;
    }
    Ok(())
}

/// Sets what becomes of datagrams that do not fit the path, for the family of a socket.
fn discover(
    socket: &impl AsFd,
    ipv4: bool,
    (v4, v6): (Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery),
) -> io::Result<()> {
    match ipv4 {
        true => set_ip_mtu_discover(socket, v4)?,
        false => set_ipv6_mtu_discover(socket, v6)?,
    }
    Ok(())
}

/// Sets the mark and lets policies be, before anything can arrive.
pub(super) fn mark_and_bypass(
    socket: &Socket,
    ipv4: bool,
    options: SocketOptions,
) -> io::Result<()> {
    if let Some(mark) = options.mark {
        socket.set_mark(mark).map_err(|error| {
            let why = format!("mark {mark}: {error} (the data plane needs CAP_NET_ADMIN)");
            io::Error::new(error.kind(), why)
        })?;
    }
    if options.bypass {
        super::kernel::bypass_policies(socket, ipv4)
            .map_err(|error| kernel("a policy of its own", &error))?;
    }
    Ok(())
}

fn kernel(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the kernel refuses the socket {what}: {error}"))
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddrV6::new(v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()).into())
}

const BUFFER: usize = 4 << 20;
/// Octets of the largest UDP datagram.
const LARGEST: usize = 65_535;
/// Datagrams in one run, at the most; further ones leave one by one.
pub(crate) const RUN: usize = 32;
/// Datagrams taken at a time, at the most.
const BATCH: usize = 32;
/// Datagrams asked for where few come.
const FEW: usize = 4;

#[cfg(test)]
mod tests;
