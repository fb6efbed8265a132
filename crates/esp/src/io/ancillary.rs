//! Control messages (cmsg(3)) about the headers of packets, to send and as received.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::libc::{self, c_int};
use nix::sys::socket::sockopt::{self, SetStruct};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SetSockOpt, SockaddrStorage, recvmmsg,
    setsockopt,
};
use quinn_udp::RecvMeta;
use socket2::{Domain, SockRef};

use crate::fields::Fields;

/// Octets of an address and an interface, TOS, TTL, a flow label and a length of segments, each with its header.
const ROOM: usize = 160;
/// Octets of all control messages with one datagram.
const RECEIVED: usize = 512;
/// What follows begins at a multiple of this.
const ALIGNED: usize = size_of::<usize>();
/// An option and a control message: the first word of an IPv6 header, without the version.
const IPV6_FLOWINFO: c_int = 11;

#[derive(Debug, Clone, Copy)]
struct ReceiveFlowInfo;
nix::setsockopt_impl!(
    ReceiveFlowInfo,
    libc::IPPROTO_IPV6,
    IPV6_FLOWINFO,
    c_int,
    SetStruct<'_, c_int>
);

/// Control messages one behind the other, as the kernel reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ancillary {
    octets: [u8; ROOM],
    len: usize,
}

impl Ancillary {
    /// A packet from `source`, if that is given, with the fields that are given. Don't Fragment is an option of the
    /// socket.
    pub(super) fn new(source: Option<IpAddr>, ipv4: bool, fields: &Fields) -> Self {
        let Fields { tos, hop_limit, dont_fragment: _, flow_label } = *fields;
        let mut this = Self { octets: [0; ROOM], len: 0 };
        match source {
            // in_pktinfo: the interface's index, the address to send from, and one that is not for senders.
            Some(IpAddr::V4(v4)) => {
                let [a, b, c, d] = v4.octets();
                let info = [0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0];
                this = this.with(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // in6_pktinfo: the address, and the interface's index.
            Some(IpAddr::V6(v6)) => {
                let mut info = [0; 20];
                let (address, _interface) = info.split_at_mut(16);
                address.copy_from_slice(&v6.octets());
                this = this.with(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
        let (level, class, limit) = if ipv4 {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        };
        if tos != 0 {
            this = this.with(level, class, &c_int::from(tos).to_ne_bytes());
        }
        if let Some(hop_limit) = hop_limit {
            this = this.with(level, limit, &c_int::from(hop_limit).to_ne_bytes());
        }
        if flow_label != 0 && !ipv4 {
            this = this.with(level, IPV6_FLOWINFO, &flow_label.to_be_bytes());
        }
        this
    }

    /// Cut into datagrams of `size` octets, the last one perhaps shorter (UDP_SEGMENT).
    pub(super) fn cut(self, size: u16) -> Self {
        self.with(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes())
    }

    /// The control messages.
    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or(&self.octets)
    }

    fn with(mut self, level: c_int, kind: c_int, data: &[u8]) -> Self {
        // The length of header and data without padding, a number of the machine's word size to the kernel.
        let len = ALIGNED + size_of_val(&level) + size_of_val(&kind) + data.len();
        let parts = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), data];
        let room = self.octets.iter_mut().skip(self.len);
        for (place, octet) in room.zip(parts.into_iter().flatten()) {
            *place = *octet;
        }
        self.len += len.next_multiple_of(ALIGNED);
        self
    }
}

/// Calls `send` with `fields`, and once more without the flow label if the kernel refuses it: once a program of the host has
/// a label of its own, the others may use none but theirs (IPV6_FLOWLABEL_MGR).
pub(super) fn with_label<T>(
    fields: &Fields,
    mut send: impl FnMut(&Fields) -> io::Result<T>,
) -> io::Result<T> {
    match send(fields) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && fields.flow_label != 0 => {
            send(&Fields { flow_label: 0, ..*fields })
        }
        done => done,
    }
}

/// Has the kernel tell the header fields of what arrives. A raw IPv4 socket gets the header itself.
pub(super) fn tell_fields(socket: &impl AsFd) -> io::Result<()> {
    if SockRef::from(socket).domain()? == Domain::IPV4 {
        setsockopt(socket, sockopt::IpRecvTos, &true)?;
        setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?;
        setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
        ReceiveFlowInfo.set(socket, &1)?;
    }
    Ok(())
}

/// Receives datagrams with their header fields, after [`tell_fields`]. Returns how many.
pub(super) fn receive(
    socket: &impl AsFd,
    slices: &mut [IoSliceMut<'_>],
    meta: &mut [RecvMeta],
    fields: &mut [Fields],
) -> io::Result<usize> {
    let mut slices: Vec<[IoSliceMut<'_>; 1]> =
        slices.iter_mut().map(|slice| [IoSliceMut::new(slice)]).collect();
    let mut headers =
        MultiHeaders::<SockaddrStorage>::preallocate(slices.len(), Some(vec![0; RECEIVED]));
    let fd = socket.as_fd().as_raw_fd();
    let mut count = 0;
    let received = recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    for ((message, meta), fields) in received.zip(meta).zip(fields) {
        describe(&message, meta, fields)?;
        count += 1;
    }
    Ok(count)
}

fn describe(
    message: &RecvMsg<'_, '_, SockaddrStorage>,
    meta: &mut RecvMeta,
    fields: &mut Fields,
) -> io::Result<()> {
    *meta = RecvMeta::default();
    *fields = Fields::default();
    (meta.len, meta.stride) = (message.bytes, message.bytes);
    meta.addr = message.address.as_ref().and_then(address).unwrap_or(meta.addr);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                let local = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
                meta.dst_ip = Some(local.into());
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                meta.dst_ip = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
            }
            ControlMessageOwned::UdpGroSegments(size) => {
                meta.stride = usize::try_from(size).unwrap_or(meta.stride);
            }
            ControlMessageOwned::Ipv4Tos(tos) => fields.tos = tos,
            ControlMessageOwned::Ipv6TClass(class) => fields.tos = class as u8,
            ControlMessageOwned::Ipv4Ttl(limit) | ControlMessageOwned::Ipv6HopLimit(limit) => {
                fields.hop_limit = u8::try_from(limit).ok();
            }
            ControlMessageOwned::Unknown(other)
                if other.cmsg_header.cmsg_level == libc::IPPROTO_IPV6
                    && other.cmsg_header.cmsg_type == IPV6_FLOWINFO =>
            {
                let word = other.data_bytes.first_chunk().map_or(0, |w| u32::from_be_bytes(*w));
                fields.flow_label = word & 0xf_ffff;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The address in `storage`.
pub(super) fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    storage.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_room_and_begin_where_the_kernel_looks() {
        let fields =
            Fields { tos: 0xb9, hop_limit: Some(255), dont_fragment: false, flow_label: 0x12345 };
        for (source, info, label) in [("192.0.2.1", 32, 0), ("2001:db8::1", 40, 24)] {
            let source: IpAddr = source.parse().unwrap();
            let plain = Ancillary::new(Some(source), source.is_ipv4(), &Fields::PLAIN);
            assert_eq!(plain.len, info, "{source}");
            let all = Ancillary::new(Some(source), source.is_ipv4(), &fields);
            assert_eq!(all.len, info + 48 + label, "{source}");
            assert_eq!(all.octets()[..info], *plain.octets());
            assert_eq!(all.octets()[info + ALIGNED + 8..][..4], 0xb9_i32.to_ne_bytes());
            assert_eq!(all.octets()[info + 24 + ALIGNED + 8..][..4], 255_i32.to_ne_bytes());
            let cut = all.cut(1252);
            assert_eq!(cut.len, all.len + 24);
            assert!(cut.len <= ROOM);
        }
    }
}
