//! Settings of an IKE daemon's UDP sockets if the kernel does ESP.

use std::io;
use std::os::fd::AsFd;

use libc::c_int;
use netlink_packet_core::Emitable;
use netlink_packet_xfrm::UserPolicyInfo;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetStruct;

/// Octets of `struct xfrm_userpolicy_info`.
const POLICY: usize = 168;
/// Directions and action of `struct xfrm_userpolicy_info`.
const IN: u8 = 0;
const OUT: u8 = 1;
const ALLOW: u8 = 0;
/// ESP over UDP with the non-ESP marker; the libc crate does not name it.
const UDP_ENCAP_ESPINUDP: c_int = 2;

/// Makes the kernel take ESP in UDP (RFC 3948) that arrives at `socket`. A datagram without the non-ESP marker
/// goes to the states, and keepalives are dropped. IPv6 since Linux 5.8.
pub fn receive_esp(socket: &impl AsFd) -> io::Result<()> {
    Ok(UdpEncap.set(socket, &UDP_ENCAP_ESPINUDP)?)
}

/// Lets the packets of `socket` pass in clear in both directions, whatever the policies are. `ipv4` is the family
/// of the socket. Needs CAP_NET_ADMIN.
pub fn bypass_policies(socket: &impl AsFd, ipv4: bool) -> io::Result<()> {
    let family = if ipv4 { libc::AF_INET } else { libc::AF_INET6 };
    let mut policy = UserPolicyInfo { action: ALLOW, ..UserPolicyInfo::default() };
    policy.selector.family = family as u16;
    for direction in [IN, OUT] {
        policy.direction = direction;
        let mut octets = [0; POLICY];
        policy.emit(&mut octets);
        if ipv4 {
            Ipv4Policy.set(socket, &octets)?;
        } else {
            Ipv6Policy.set(socket, &octets)?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct UdpEncap;
nix::setsockopt_impl!(UdpEncap, libc::IPPROTO_UDP, libc::UDP_ENCAP, c_int, SetStruct<'_, c_int>);

#[derive(Debug, Clone, Copy)]
struct Ipv4Policy;
nix::setsockopt_impl!(
    Ipv4Policy,
    libc::IPPROTO_IP,
    libc::IP_XFRM_POLICY,
    [u8; POLICY],
    SetStruct<'_, [u8; POLICY]>
);

#[derive(Debug, Clone, Copy)]
struct Ipv6Policy;
nix::setsockopt_impl!(
    Ipv6Policy,
    libc::IPPROTO_IPV6,
    libc::IPV6_XFRM_POLICY,
    [u8; POLICY],
    SetStruct<'_, [u8; POLICY]>
);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// The layout of linux/xfrm.h: the limits are infinite, and but for them only the family and the
    /// direction differ from zero.
    #[test]
    fn the_policy_is_the_kernels_structure() {
        let mut policy = UserPolicyInfo { action: ALLOW, direction: OUT, ..Default::default() };
        policy.selector.family = libc::AF_INET6 as u16;
        let mut octets = [0; POLICY];
        policy.emit(&mut octets);
        let mut expected = [0; POLICY];
        expected[40] = 10;
        expected[56..88].fill(0xff);
        expected[160] = 1;
        assert_eq!(octets, expected);
    }

    /// Where the kernel has XFRM and the caller the privilege, it takes them; else it says why not.
    #[test]
    fn the_kernel_takes_them_or_says_why_not() {
        for (ipv4, address) in [(true, "127.0.0.1:0"), (false, "[::1]:0")] {
            let address: SocketAddr = address.parse().unwrap();
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
            if socket.bind(&address.into()).is_err() {
                continue;
            }
            let expected = [libc::EPERM, libc::ENOPROTOOPT, libc::EOPNOTSUPP, libc::EACCES];
            for outcome in [bypass_policies(&socket, ipv4), receive_esp(&socket)] {
                let errno = outcome.err().and_then(|error| error.raw_os_error());
                assert!(errno.is_none_or(|errno| expected.contains(&errno)), "{errno:?}");
            }
        }
        let stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        assert!(receive_esp(&stream).is_err(), "not on TCP");
    }
}
