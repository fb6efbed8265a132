//! Control messages to send (cmsg(3)), made on the stack: sending allocates nothing.

use std::net::IpAddr;

use nix::libc;

use super::socket::Origin;

/// Octets of an address and an interface, of a DSCP, and of a length of segments, each with its header, and some.
const ROOM: usize = 96;
/// What follows begins at a multiple of this.
const ALIGNED: usize = size_of::<usize>();

/// Control messages one behind the other, as the kernel reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ancillary {
    octets: [u8; ROOM],
    len: usize,
}

impl Ancillary {
    /// Sends from the address `local`. The interface is left to the routing table.
    pub(super) fn from(local: IpAddr) -> Self {
        let this = Self { octets: [0; ROOM], len: 0 };
        match local {
            // in_pktinfo: the interface's index, the address to send from, and one that is not for senders.
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                let info = [0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0];
                this.with(libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
            }
            // in6_pktinfo: the address, and the interface's index.
            IpAddr::V6(v6) => {
                let mut info = [0; 20];
                let (address, _interface) = info.split_at_mut(16);
                address.copy_from_slice(&v6.octets());
                this.with(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
            }
        }
    }

    /// Sends from there, with its DSCP if it has one.
    pub(super) fn of(origin: Origin) -> Self {
        let this = Self::from(origin.address);
        let (level, kind) = match origin.address {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        // DSCP is the upper six bits of what was the type of service (RFC 2474 §3).
        match origin.dscp {
            0 => this,
            dscp => this.with(level, kind, &(libc::c_int::from(dscp) << 2).to_ne_bytes()),
        }
    }

    /// Cut into datagrams of `size` octets, the last one perhaps shorter (UDP_SEGMENT).
    pub(super) fn cut(self, size: u16) -> Self {
        self.with(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes())
    }

    /// The control messages.
    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or(&self.octets)
    }

    fn with(mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_room_and_begin_where_the_kernel_looks() {
        for (local, len) in [("192.0.2.1", 28), ("2001:db8::1", 36)] {
            let ancillary = Ancillary::from(local.parse().unwrap());
            assert_eq!(ancillary.len, 40_usize.min(len + 4), "{local}");
            let both = ancillary.cut(1252);
            assert_eq!(both.len, ancillary.len + 24);
            assert!(both.len <= ROOM);
            let all = Ancillary::of(Origin { address: local.parse().unwrap(), dscp: 46 }).cut(1252);
            assert_eq!(all.len, both.len + 24);
            assert!(all.len <= ROOM);
            assert_eq!(all.octets()[..ancillary.len], *ancillary.octets());
            assert_eq!(all.octets()[ancillary.len + ALIGNED + 8..][..4], 184_i32.to_ne_bytes());
            let (first, second) = both.octets().split_at(ancillary.len);
            assert_eq!(first, ancillary.octets());
            assert_eq!(first[..ALIGNED], len.to_ne_bytes());
            assert_eq!(second[..ALIGNED], 18_usize.to_ne_bytes());
            assert_eq!(second[ALIGNED + 8..][..2], 1252_u16.to_ne_bytes());
        }
    }
}
