//! The ICMP message that tells a sender that the child for its packet is down: "communication administratively prohibited"
//! (RFC 1812 §5.2.7.1, RFC 4443 §3.1).
//!
//! An unreachable route would also tell senders on this host. But with `rp_filter` the kernel drops packets from an address
//! to which such a route leads, and the packets of a full tunnel's gateway are among them: the tunnel would not come back.
//! So the packets of a child that is down go to the device, and this end answers them.

use std::net::IpAddr;

use crate::buffer::Buffer;
use crate::ip::{self, Fragment, IPV4_HEADER, IPV6_HEADER, IpPacket, proto};

/// Octets of an ICMP header.
const ICMP_HEADER: usize = 8;
/// The most octets of a message for each family: what every host takes.
const LONGEST: [usize; 2] = [576, 1280];
/// Types and codes of IPv4 and IPv6.
const PROHIBITED: [[u8; 2]; 2] = [[3, 13], [1, 1]];
/// The types of ICMP errors for IPv4, and of redirects, which are never answered.
const ERRORS_V4: [u8; 5] = [3, 4, 5, 11, 12];
/// Redirect, which is no error by its number (RFC 4443 §2.4).
const REDIRECT_V6: u8 = 137;

/// Appends to `out` that the child for `packet` is down, as [`message`] does.
pub(crate) fn refusal(packet: &[u8], out: &mut Buffer) -> Option<()> {
    message(packet, PROHIBITED, 0, out)
}

/// Appends to `out` the ICMP error about `packet`, of the types and codes `kinds` for IPv4 and IPv6, with `word` in front of
/// the quote. Returns `None` and appends nothing if the packet must not be answered (RFC 1122 §3.2.2, RFC 4443 §2.4).
///
/// The source of the message is the destination of `packet`, so that the host's source check (`rp_filter`) lets it in.
pub(crate) fn message(
    packet: &[u8],
    kinds: [[u8; 2]; 2],
    word: u32,
    out: &mut Buffer,
) -> Option<()> {
    let ip = IpPacket::parse(packet).ok()?;
    let may_be_told = ip.fragment != Fragment::Later && is_host(ip.src) && !is_error(&ip);
    let packet = packet.get(..ip.total_len).filter(|_| may_be_told && is_host(ip.dst))?;
    let [of_v4, of_v6] = kinds;
    let (longest, [kind, code], protocol, header) = match ip.dst {
        IpAddr::V4(_) => (LONGEST[0], of_v4, proto::ICMP, IPV4_HEADER),
        IpAddr::V6(_) => (LONGEST[1], of_v6, proto::ICMPV6, IPV6_HEADER),
    };
    let quoted = packet.get(..longest - header - ICMP_HEADER).unwrap_or(packet);
    let len = ICMP_HEADER + quoted.len();
    let (outer, used) = ip::header(ip.dst, ip.src, 0, protocol, len)?;
    let icmp = |sum: u16| {
        let ([high, low], [w0, w1, w2, w3]) = (sum.to_be_bytes(), word.to_be_bytes());
        [kind, code, high, low, w0, w1, w2, w3]
    };
    let sum = match (ip.src, ip.dst) {
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            let (len, next) = (u32::try_from(len).ok()?.to_be_bytes(), [0, 0, 0, protocol]);
            ip::checksum(&[&from.octets(), &to.octets(), &len, &next, &icmp(0), quoted])
        }
        _ => ip::checksum(&[&icmp(0), quoted]),
    };
    out.extend_from_slice(outer.get(..used)?);
    out.extend_from_slice(&icmp(sum));
    out.extend_from_slice(quoted);
    Some(())
}

/// True if the address is of one host, which is not only this one.
fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let many = address.is_multicast() || broadcast;
    !many && !address.is_unspecified() && !address.is_loopback()
}

/// True for an ICMP error, a redirect, and a packet that may be one.
fn is_error(ip: &IpPacket) -> bool {
    let kind = ip.ports.map(|(kind, _)| (kind >> 8) as u8);
    match ip.protocol {
        Some(proto::ICMP) => kind.is_none_or(|kind| ERRORS_V4.contains(&kind)),
        Some(proto::ICMPV6) => kind.is_none_or(|kind| kind < 128 || kind == REDIRECT_V6),
        Some(_) => false,
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(src: &str, dst: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = (src.parse().expect("one"), dst.parse().expect("one"));
        let (header, used) = ip::header(src, dst, 0, protocol, payload.len()).expect("a header");
        [&header[..used], payload].concat()
    }

    fn told(packet: &[u8]) -> Option<Vec<u8>> {
        let mut out = Buffer::with_capacity(2048);
        refusal(packet, &mut out).map(|()| out.to_vec())
    }

    /// Fault: in `message`, leave `next` out of the sum.
    #[test]
    fn senders_are_told_in_either_family() {
        let four = packet("10.1.0.1", "10.2.0.1", proto::TCP, &[7; 900]);
        let about = told(&four).expect("a message");
        let ip = IpPacket::parse(&about).expect("a packet");
        assert_eq!(
            (ip.src.to_string(), ip.dst.to_string()),
            ("10.2.0.1".into(), "10.1.0.1".into())
        );
        assert_eq!((ip.protocol, ip.ports), (Some(proto::ICMP), Some((0x030d, 0x030d))));
        assert_eq!((about.len(), ip::checksum(&[&about[20..]])), (576, 0));
        assert_eq!(about[28..], four[..548]);

        let six = packet("fd01::1", "fd02::1", proto::UDP, &[7; 9]);
        let about = told(&six).expect("a message");
        let ip = IpPacket::parse(&about).expect("a packet");
        assert_eq!((ip.protocol, ip.ports), (Some(proto::ICMPV6), Some((0x0101, 0x0101))));
        let pseudo = [&about[8..40], &[0, 0, 0, 57, 0, 0, 0, 58][..]].concat();
        assert_eq!(ip::checksum(&[&pseudo, &about[40..]]), 0);
        assert_eq!(about[48..], six);
    }

    /// Fault: in `message`, leave `may_be_told` out; or in `is_host` the loopback, in `is_error` the redirect or `None`.
    #[test]
    fn no_message_answers_an_error_a_group_or_a_later_fragment() {
        let echo = packet("10.1.0.1", "10.2.0.1", proto::ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]);
        assert!(told(&echo).is_some());
        let mut later = echo.clone();
        later[7] = 9;
        let error = packet("10.1.0.1", "10.2.0.1", proto::ICMP, &[3, 1, 0, 0, 0, 0, 0, 0]);
        let six = packet("fd01::1", "fd02::1", proto::ICMPV6, &[2, 0, 0, 0, 0, 0, 0, 0]);
        let group = packet("10.1.0.1", "239.1.1.1", proto::UDP, &[0; 8]);
        let nobody = packet("0.0.0.0", "10.2.0.1", proto::UDP, &[0; 8]);
        let redirect = packet("fd01::1", "fd02::1", proto::ICMPV6, &[137, 0, 0, 0, 0, 0, 0, 0]);
        let loops = packet("127.0.0.1", "10.2.0.1", proto::UDP, &[0; 8]);
        let loops_v6 = packet("::1", "fd02::1", proto::UDP, &[0; 8]);
        // A first fragment, in which options hide what follows them.
        let hidden = [proto::DESTINATION, 0, 0, 1, 0, 0, 0, 9, proto::ICMPV6, 9, 0, 0, 0, 0, 0, 0];
        let hidden = packet("fd01::1", "fd02::1", proto::FRAGMENT, &hidden);
        assert_eq!(IpPacket::parse(&hidden).map(|ip| ip.protocol), Ok(None));
        let more = [redirect, loops, loops_v6, hidden];
        for packet in [later, error, six, group, nobody, vec![0x45; 9]].into_iter().chain(more) {
            assert_eq!(told(&packet), None, "{packet:?}");
        }
    }
}
