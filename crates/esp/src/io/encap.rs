//! UDP sockets that carry IKE and ESP side by side (RFC 3948).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use socket2::{MsgHdr, SockAddr, SockRef};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tracing::warn;

use super::ancillary::{Ancillary, receive, tell_fields, with_label};
use super::dont_fragment::{Dividing, DontFragment};
use super::errors;
use crate::fields::Fields;
use crate::inbound::{Carrier, Outer};
use crate::plane::Plane;
use crate::udp::NON_ESP_MARKER;

/// Octets of the longest datagram over IPv4.
const LONGEST: usize = 65_535 - 20 - 8;

/// Octets that one receive may coalesce.
const MAX_DATAGRAM: usize = 65535;

/// Octets of socket buffer asked for in each direction: a few coalesced receives at full speed.
const SOCKET_BUFFER: usize = 4 << 20;

/// A UDP socket of port 4500. Receive through this type only: datagrams are coalesced, and an ordinary `recv_from`
/// would return several in one.
pub struct EncapSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    dont_fragment: DontFragment,
}

/// An IKE message that came in on an encapsulation socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeDatagram {
    /// The address and port it was sent to.
    pub local: SocketAddr,
    /// Where it came from.
    pub remote: SocketAddr,
    /// The message, without the non-ESP marker.
    pub bytes: Vec<u8>,
}

/// Datagrams received, with their buffers.
pub(super) struct RecvBatch {
    buffer: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
    count: usize,
    /// It says when all header fields are needed, and hears of errors.
    plane: Option<Plane>,
    /// Whether the socket can tell header fields.
    tells: bool,
    /// All header fields, once they are needed. It never becomes `None` again: the kernel goes on sending these control
    /// messages, and `state` has no room for them.
    fields: Option<Box<[Fields; BATCH_SIZE]>>,
}

/// The headers under which datagrams arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) remote: SocketAddr,
    pub(super) local: IpAddr,
    fields: Fields,
}

impl EncapSocket {
    /// Takes over a bound socket: turns on coalescing and the reception of destination addresses and
    /// ECN, and asks for larger buffers. There is one socket per address family: an IPv6 socket that
    /// takes IPv4 too is refused, because addresses would not compare.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let bound = socket.local_addr()?;
        let wildcard = bound.is_ipv6() && bound.ip().is_unspecified();
        if wildcard && !SockRef::from(&socket).only_v6()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "IPV6_V6ONLY is not set"));
        }
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local = socket.local_addr()?;
        allow_fragments(&socket, local.is_ipv4())?;
        errors::keep(&socket, local.is_ipv4())?;
        enlarge_buffers(&socket);
        Ok(Self { socket, state, local, dont_fragment: DontFragment::new(local.is_ipv4()) })
    }

    /// The address the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The socket, for sending. [`UserspacePlane`](super::UserspacePlane) receives.
    pub fn udp(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends an IKE message, behind the non-ESP marker, from `source` if given.
    pub async fn send_ike(
        &self,
        source: Option<IpAddr>,
        remote: SocketAddr,
        message: &[u8],
    ) -> io::Result<()> {
        let datagram = [&NON_ESP_MARKER, message].concat();
        self.send_raw(source, remote, &datagram).await
    }

    /// Sends an IKE message as [`Self::send_ike`] does, but always with Don't Fragment, also if the kernel knows a smaller
    /// path MTU. `dscp` is the DSCP of the packet.
    pub async fn send_probe(
        &self,
        (source, dscp): (IpAddr, u8),
        remote: SocketAddr,
        message: &[u8],
    ) -> io::Result<()> {
        let datagram = [&NON_ESP_MARKER, message].concat();
        let transmit = Transmit {
            destination: remote,
            ecn: None,
            contents: &datagram,
            segment_size: None,
            src_ip: own(Some(source), remote),
        };
        let fields = Fields { tos: dscp << 2, ..Fields::PLAIN };
        self.send_one(&transmit, &fields, Dividing::Nowhere).await
    }

    /// Sends a datagram as it is (a NAT keepalive), from `source` if given.
    pub async fn send_raw(
        &self,
        source: Option<IpAddr>,
        remote: SocketAddr,
        datagram: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: remote,
            ecn: None,
            contents: datagram,
            segment_size: None,
            src_ip: own(source, remote),
        };
        if datagram.len() > LONGEST {
            // The kernel would put it into the queue of errors, with the MTU of the path for that of the link.
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        self.send_one(&transmit, &Fields::PLAIN, Dividing::Here).await
    }

    /// Sends `contents` as datagrams of `segment` octets; the last may be shorter. Datagrams that the kernel
    /// refuses are lost; the last error is returned.
    pub(super) async fn send(
        &self,
        source: Option<IpAddr>,
        remote: SocketAddr,
        fields: &Fields,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let (source, dividing) = (own(source, remote), Dividing::of(fields));
        let transmit = |contents, segment_size| Transmit {
            destination: remote,
            ecn: EcnCodepoint::from_bits(fields.tos & 0b11),
            contents,
            segment_size,
            src_ip: source,
        };
        if contents.len() > segment && self.max_segments() > 1 {
            let whole = transmit(contents, Some(segment));
            // A path that is too narrow for the segments refuses them together; try them one by one.
            if self.send_one(&whole, fields, dividing).await.is_ok() {
                return Ok(());
            }
        }
        let mut result = Ok(());
        for datagram in contents.chunks(segment.max(1)) {
            let sent = self.send_one(&transmit(datagram, None), fields, dividing).await;
            result = sent.and(result);
        }
        result
    }

    /// How many datagrams one send may hold.
    pub(super) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Waits for datagrams.
    pub(super) async fn recv(&self, batch: &mut RecvBatch) -> io::Result<()> {
        loop {
            let drain = |plane: Option<&Plane>| errors::drain(&self.socket, Carrier::Udp, plane);
            match batch.fill(&self.socket, &self.state, drain).await {
                // The next wait tells what becomes of the socket itself.
                Err(_) if drain(batch.plane()) => {}
                done => return done,
            }
        }
    }

    async fn send_one(
        &self,
        transmit: &Transmit<'_>,
        fields: &Fields,
        dividing: Dividing,
    ) -> io::Result<()> {
        let ecn_alone = fields.tos <= 0b11 && fields.hop_limit.is_none() && fields.flow_label == 0;
        let send = || match ecn_alone {
            true => self.state.try_send(UdpSockRef::from(&self.socket), transmit),
            false => with_label(fields, |fields| self.send_with_fields(transmit, fields)),
        };
        let send = || self.dont_fragment.during(&self.socket, dividing, send);
        // The error may be an ICMP error about an earlier packet, perhaps to another peer: that is no reason to lose this one.
        let send = || match send() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => send(),
            done => done,
        };
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    fn send_with_fields(&self, transmit: &Transmit<'_>, fields: &Fields) -> io::Result<()> {
        let Transmit { destination, contents, segment_size, src_ip, .. } = *transmit;
        let mut ancillary = Ancillary::new(src_ip, destination.is_ipv4(), fields);
        if let Some(size) = segment_size.and_then(|size| u16::try_from(size).ok()) {
            ancillary = ancillary.cut(size);
        }
        let (to, slices) = (SockAddr::from(destination), [IoSlice::new(contents)]);
        let message = MsgHdr::new().with_addr(&to).with_buffers(&slices);
        let message = message.with_control(ancillary.octets());
        SockRef::from(&self.socket).sendmsg(&message, libc::MSG_DONTWAIT).map(drop)
    }
}

impl RecvBatch {
    /// For a socket of `plane`; `tells` is whether the socket tells header fields by control messages.
    pub(super) fn new(plane: Option<Plane>, tells: bool) -> Self {
        Self {
            buffer: vec![0; BATCH_SIZE * MAX_DATAGRAM],
            meta: [RecvMeta::default(); BATCH_SIZE],
            count: 0,
            plane,
            tells,
            fields: None,
        }
    }

    /// The plane of the socket.
    pub(super) fn plane(&self) -> Option<&Plane> {
        self.plane.as_ref()
    }

    /// Waits for datagrams on `socket`. `drain` empties its queue of errors, before each look for datagrams.
    pub(super) async fn fill(
        &mut self,
        socket: &UdpSocket,
        state: &UdpSocketState,
        drain: impl Fn(Option<&Plane>) -> bool,
    ) -> io::Result<()> {
        let Self { buffer, meta, count, plane, tells, fields } = self;
        *count = 0;
        let mut slices: Vec<_> =
            buffer.chunks_exact_mut(MAX_DATAGRAM).map(IoSliceMut::new).collect();
        let recv = || {
            drain(plane.as_ref());
            if fields.is_none() && *tells && plane.as_ref().is_some_and(Plane::needs_outer_fields) {
                match tell_fields(socket) {
                    Ok(()) => *fields = Some(Box::new([Fields::default(); BATCH_SIZE])),
                    Err(error) => {
                        warn!(%error, "header fields of received ESP packets are not known and not handed up");
                        *tells = false;
                    }
                }
            }
            let mut look = || match fields {
                Some(fields) => receive(socket, &mut slices, meta, &mut **fields),
                None => state.recv(UdpSockRef::from(socket), &mut slices, meta),
            };
            // An error that is still in the queue fails one look, and there may be more errors than are taken at a time.
            match look() {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => look(),
                done => done,
            }
        };
        *count = socket.async_io(Interest::READABLE | Interest::ERROR, recv).await?;
        Ok(())
    }

    /// The datagrams, those together that follow one another under the same headers; `local` stands for a
    /// destination address the kernel did not tell.
    pub(super) fn runs(
        &self,
        local: IpAddr,
    ) -> impl Iterator<Item = (Headers, impl Iterator<Item = &[u8]>)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let filled = self.meta.get(at..self.count).filter(|rest| !rest.is_empty())?;
            let headers = |n: usize, meta: &RecvMeta| {
                let known = self.fields.as_ref().and_then(|fields| fields.get(at + n));
                Headers::new(meta, known, local)
            };
            let first = headers(0, filled.first()?);
            let all = filled.iter().enumerate().map(|(n, meta)| headers(n, meta));
            let count = all.take_while(|headers| *headers == first).count();
            let buffers = self.buffer.chunks_exact(MAX_DATAGRAM).skip(at);
            at += count;
            let datagrams = filled.iter().take(count).zip(buffers).flat_map(|(meta, buffer)| {
                buffer.get(..meta.len).unwrap_or_default().chunks(meta.stride.max(1))
            });
            Some((first, datagrams))
        })
    }
}

impl Headers {
    fn new(meta: &RecvMeta, fields: Option<&Fields>, local: IpAddr) -> Self {
        let ecn = || meta.ecn.map_or(0, |ecn| ecn as u8);
        let fields = fields.copied().unwrap_or_else(|| Fields { tos: ecn(), ..Fields::default() });
        Self { remote: meta.addr, local: meta.dst_ip.unwrap_or(local), fields }
    }

    pub(super) fn outer(&self, carrier: Carrier) -> Outer {
        let Self { remote, local, fields } = *self;
        let port = if carrier == Carrier::Ip { 0 } else { remote.port() };
        Outer { src: SocketAddr::new(remote.ip(), port), dst: local, fields, carrier }
    }
}

/// `source`, if a packet to `remote` can come from there.
fn own(source: Option<IpAddr>, remote: SocketAddr) -> Option<IpAddr> {
    source.filter(|source| !source.is_unspecified() && source.is_ipv4() == remote.is_ipv4())
}

/// Allows fragmentation, which a QUIC sender forbids and an IKE sender needs. IP may have to fragment a large IKE
/// message, or an ESP packet if the path is narrower than the tunnel's MTU.
pub(super) fn allow_fragments(socket: &impl AsFd, ipv4: bool) -> io::Result<()> {
    if ipv4 {
        set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT)?;
    } else {
        set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::WANT)?;
        setsockopt(socket, sockopt::Ipv6DontFrag, &false)?;
    }
    Ok(())
}

/// Best effort: past the system's limit only with CAP_NET_ADMIN.
pub(super) fn enlarge_buffers(socket: &impl AsFd) {
    let plain = SockRef::from(socket);
    if setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BUFFER).is_err() {
        _ = plain.set_recv_buffer_size(SOCKET_BUFFER);
    }
    if setsockopt(socket, sockopt::SndBufForce, &SOCKET_BUFFER).is_err() {
        _ = plain.set_send_buffer_size(SOCKET_BUFFER);
    }
}

/// The socket that sends for an SA: the one bound to its source port and address.
pub(super) fn choose(
    sockets: &[Arc<EncapSocket>],
    source: IpAddr,
    port: u16,
) -> Option<&Arc<EncapSocket>> {
    let mut family = sockets.iter().filter(|s| s.local.is_ipv4() == source.is_ipv4());
    let exact = |s: &&Arc<EncapSocket>| {
        s.local.port() == port && (s.local.ip().is_unspecified() || s.local.ip() == source)
    };
    family.clone().find(exact).or_else(|| family.next())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn socket() -> EncapSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        EncapSocket::new(socket).unwrap()
    }

    /// Fault: in `EncapSocket::send`, return at the first error.
    #[tokio::test]
    async fn a_datagram_that_is_refused_takes_no_other_with_it() {
        let (from, to) = (socket().await, socket().await);
        let run = vec![7; LONGEST + 20];
        let sent = from.send(None, to.local, &Fields::PLAIN, &run, LONGEST + 10).await;
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
        let mut datagram = [0; 100];
        let arrives = tokio::time::timeout(Duration::from_secs(20), to.socket.recv(&mut datagram));
        assert_eq!(arrives.await.expect("a datagram").unwrap(), 10);
    }

    /// Fault: in `RecvBatch::fill`, look once. A stranger who makes errors holds up what arrives.
    #[tokio::test]
    async fn many_errors_hold_up_no_datagram() {
        let (to, from) = (socket().await, socket().await);
        let nobody = socket().await.local;
        for _ in 0..200 {
            // More than one error before it may fail a send.
            _ = to.send_raw(None, nobody, b"1").await;
        }
        from.send_raw(None, to.local, b"2").await.unwrap();
        let mut batch = RecvBatch::new(None, false);
        let drain = |_: Option<&Plane>| errors::drain(&to.socket, Carrier::Udp, None);
        let filled = batch.fill(&to.socket, &to.state, drain);
        tokio::time::timeout(Duration::from_secs(20), filled).await.expect("a datagram").unwrap();
        assert_eq!(batch.count, 1);
        assert!(drain(None), "and errors are left");
    }

    /// Fault: in `EncapSocket::send_raw`, leave `LONGEST` out.
    #[tokio::test]
    async fn no_error_of_the_own_link_tells_the_size_of_a_path() {
        let (from, to) = (socket().await, socket().await);
        assert!(from.send_raw(None, to.local, &vec![0; LONGEST + 1]).await.is_err());
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let mut octets = [std::mem::MaybeUninit::uninit(); 9];
        let error = SockRef::from(&from.socket).recv_with_flags(&mut octets, flags).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
