//! A policy as a value in a set, and the rule of the set.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::expressions::{Expressions, Part};
use super::super::rules::{IPV4, IPV6};
use super::chains::BY_DEVICE;
use crate::ip::proto;

/// The packets of a policy of the kernel for what leaves, without an XFRM interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Leaving {
    /// Source addresses: the first one, and the length of the prefix.
    pub src: (IpAddr, u8),
    /// Destination addresses, of the same family.
    pub dst: (IpAddr, u8),
    /// IP protocol; 0 is any.
    pub protocol: u8,
    /// Source port or ICMP type, and its mask.
    pub src_port: (u16, u16),
    /// Destination port or ICMP code, and its mask.
    pub dst_port: (u16, u16),
    /// The index of the interface that they leave by; 0 is any.
    pub interface: u32,
    /// Their mark, and its mask.
    pub mark: (u32, u32),
}

/// What becomes of packets that no SA transforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Of the policies that have a packet, the one with the lowest priority decides.
    pub priority: u32,
    /// They leave in clear; else they are dropped.
    pub passes: bool,
    /// A device applies the policy (packet offload): packets that it is to transform leave in clear from here.
    pub by_device: bool,
}

/// Changes of the policies for packets that leave: those that are there now, and those that are gone.
pub type Changes = HashMap<Leaving, Option<Verdict>>;

/// What policies have in common that one rule can stand for. In the order of the rules, whose comments it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shape {
    priority: u32,
    drops: bool,
    by_device: bool,
    ipv6: bool,
    src: u8,
    dst: u8,
    protocol: u8,
    interface: u32,
    src_port: u16,
    dst_port: u16,
    mark: u32,
}

/// A part of the value: where it is in a packet, its mask, what it is for a policy, and what `nft` calls it.
type Field = (Part, Vec<u8>, Vec<u8>, u32);

impl Shape {
    /// The shape of a policy; `None` if nf_tables cannot tell its packets from others, and they would be dropped. An
    /// exemption that nf_tables cannot express is for all ports.
    pub(super) fn of(policy: &Leaving, verdict: Verdict) -> Option<Self> {
        let Leaving { src, dst, protocol, src_port, dst_port, interface, mark } = *policy;
        let Verdict { priority, passes, by_device } = verdict;
        let masks = [src_port.1, dst_port.1];
        let known = [0, 1].map(|side| masks[side] == 0 || place_of_port(protocol, side).is_some());
        let [src_port, dst_port] = match known {
            [true, true] => masks,
            _ if passes => [0, 0],
            _ => return None,
        };
        let ipv6 = src.0.is_ipv6();
        (ipv6 == dst.0.is_ipv6()).then_some(Self {
            priority,
            drops: !passes,
            by_device,
            ipv6,
            src: src.1,
            dst: dst.1,
            protocol,
            interface,
            src_port,
            dst_port,
            mark: mark.1,
        })
    }

    /// The value of a policy of this shape. Empty if all packets of the shape are meant.
    pub(super) fn value(&self, policy: &Leaving) -> Vec<u8> {
        let mut all = Vec::new();
        for (_, mask, value, _) in self.fields(policy) {
            all.extend(value.iter().zip(&mask).map(|(octet, mask)| octet & mask));
            all.resize(all.len().next_multiple_of(4), 0);
        }
        all
    }

    /// The policy of this shape that has this [`value`](Self::value); `None` if it is no value of the shape.
    fn policy(&self, value: &[u8]) -> Option<Leaving> {
        let any: IpAddr = match self.ipv6 {
            false => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut policy = Leaving {
            src: (any, self.src),
            dst: (any, self.dst),
            protocol: self.protocol,
            src_port: (0, self.src_port),
            dst_port: (0, self.dst_port),
            interface: self.interface,
            mark: (0, self.mark),
        };
        let (mut rest, of_shape) = (value, self.fields(&policy));
        let (_, src_at, _) = if self.ipv6 { IPV6 } else { IPV4 };
        for (part, mask, ..) in of_shape {
            let (octets, more) = rest.split_at_checked(mask.len().next_multiple_of(4))?;
            let octets = octets.get(..mask.len())?;
            rest = more;
            match part {
                Part::Network(at) => {
                    let side = if at == src_at { &mut policy.src } else { &mut policy.dst };
                    side.0 = match <[u8; 4]>::try_from(octets) {
                        Ok(four) => Ipv4Addr::from(four).into(),
                        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into(),
                    };
                }
                Part::Transport(at) => {
                    let is_src = place_of_port(self.protocol, 0).is_some_and(|(src, _)| src == at);
                    let side = if is_src { &mut policy.src_port } else { &mut policy.dst_port };
                    side.0 = octets.iter().fold(0, |all, octet| all << 8 | u16::from(*octet));
                }
                Part::Mark => policy.mark.0 = u32::from_ne_bytes(octets.try_into().ok()?),
            }
        }
        rest.is_empty().then_some(policy)
    }

    /// What `nft` is told that values of this shape are.
    pub(super) fn kind(&self, policy: &Leaving) -> u32 {
        self.fields(policy).iter().fold(0, |all, (.., kind)| all << KIND_BITS | kind)
    }

    /// The rule for all policies of this shape that are in `set`; for all packets of the shape without one.
    pub(super) fn rule(&self, policy: &Leaving, set: Option<&CStr>) -> Expressions {
        let family = if self.ipv6 { IPV6.0 } else { IPV4.0 };
        let mut rule = Expressions::new().family(family);
        if self.protocol != 0 {
            rule = rule.protocol(self.protocol);
        }
        if self.interface != 0 {
            rule = rule.leaves_by(self.interface);
        }
        if let Some(set) = set {
            let mut at = 0;
            for (part, mask, ..) in self.fields(policy) {
                rule = rule.part(at, part, &mask);
                at += mask.len().next_multiple_of(4);
            }
            rule = rule.in_set(set);
        }
        match self.drops {
            true if self.by_device => rule.jump(BY_DEVICE),
            true => rule.counter().drop(),
            false => rule.accept(),
        }
    }

    /// The parts of the value that the shape looks at.
    fn fields(&self, policy: &Leaving) -> Vec<Field> {
        let ((_, src_at, dst_at), kind) = match self.ipv6 {
            false => (IPV4, KIND_IPV4),
            true => (IPV6, KIND_IPV6),
        };
        let mut fields = Vec::new();
        for (at, length, address) in
            [(src_at, self.src, policy.src.0), (dst_at, self.dst, policy.dst.0)]
        {
            if length != 0 {
                let octets = match address {
                    IpAddr::V4(v4) => v4.octets().to_vec(),
                    IpAddr::V6(v6) => v6.octets().to_vec(),
                };
                fields.push((Part::Network(at), prefix(length, octets.len()), octets, kind));
            }
        }
        for (side, mask, value) in
            [(0, self.src_port, policy.src_port.0), (1, self.dst_port, policy.dst_port.0)]
        {
            if let Some((at, octets)) = place_of_port(self.protocol, side).filter(|_| mask != 0) {
                let last = |value: u16| value.to_be_bytes()[2 - octets..].to_vec();
                fields.push((Part::Transport(at), last(mask), last(value), KIND_PORT));
            }
        }
        if self.mark != 0 {
            let value = policy.mark.0.to_ne_bytes().to_vec();
            fields.push((Part::Mark, self.mark.to_ne_bytes().to_vec(), value, KIND_MARK));
        }
        fields
    }
}

/// The rule for packets of this shape, in `set` if there is one, as its comment says it.
pub(super) struct Comment<'a>(pub(super) Shape, pub(super) Option<&'a CStr>);

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(shape, set) = self;
        let Shape { priority, drops, by_device, ipv6, src, dst, protocol, .. } = *shape;
        let Shape { interface, src_port, dst_port, mark, .. } = *shape;
        let verdict = match (drops, by_device) {
            (true, true) => "device",
            (true, false) => "drop",
            (false, _) => "pass",
        };
        let set = set.map_or("-".into(), CStr::to_string_lossy);
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        write!(f, "{set} {verdict} {priority} {family} {src} {dst} {protocol}")?;
        write!(f, " {src_port:x} {dst_port:x} {interface} {mark:x}")
    }
}

impl Shape {
    /// Reads a [`Comment`]; with the name of the set, if there is one.
    pub(super) fn read(comment: &str) -> Option<(Self, Option<CString>)> {
        let all: Vec<&str> = comment.split(' ').collect();
        let [set, verdict, priority, family, src, dst, protocol, ports @ .., interface, mark] =
            all.as_slice()
        else {
            return None;
        };
        let [src_port, dst_port] = ports else { return None };
        let shape = Self {
            priority: priority.parse().ok()?,
            drops: ["drop", "device"].contains(verdict),
            by_device: *verdict == "device",
            ipv6: *family == "ipv6",
            src: src.parse().ok()?,
            dst: dst.parse().ok()?,
            protocol: protocol.parse().ok()?,
            interface: interface.parse().ok()?,
            src_port: u16::from_str_radix(src_port, 16).ok()?,
            dst_port: u16::from_str_radix(dst_port, 16).ok()?,
            mark: u32::from_str_radix(mark, 16).ok()?,
        };
        let set = (*set != "-").then(|| CString::new(*set).ok());
        Some((shape, set.map_or(Some(None), |set| set.map(Some))?))
    }

    /// The policies with these values that do not let pass, with their priority.
    pub(super) fn blocks(&self, values: &[Vec<u8>]) -> Vec<(Leaving, u32)> {
        let policies = values.iter().filter_map(|value| self.policy(value));
        policies.filter(|_| self.drops).map(|policy| (policy, self.priority)).collect()
    }
}

/// What of a policy is not, or not exactly, behind the second line; `None` if all of it is.
pub(super) fn unguarded(policy: &Leaving, verdict: Verdict) -> Option<String> {
    let Leaving { src, dst, protocol, src_port, dst_port, .. } = *policy;
    let exact = |(side, mask): (usize, u16)| mask == 0 || place_of_port(protocol, side).is_some();
    if [(0, src_port.1), (1, dst_port.1)].into_iter().all(exact) {
        return None;
    }
    let packets = format!("from {}/{} to {}/{}", src.0, src.1, dst.0, dst.1);
    let which = if protocol == 0 { "any protocol".into() } else { format!("protocol {protocol}") };
    Some(match verdict.passes {
        false => format!("nothing is dropped {packets} of {which}"),
        true => format!("the exemption {packets} of {which} is for all ports"),
    })
}

/// The mask of a prefix.
fn prefix(length: u8, octets: usize) -> Vec<u8> {
    let left = |octet: usize| usize::from(length).saturating_sub(8 * octet).min(8);
    (0..octets).map(|octet| (0xff00_u16 >> left(octet)) as u8).collect()
}

/// Where the kernel's policies look for the source port (0) or the destination port (1) in the transport header, and its
/// octets.
fn place_of_port(protocol: u8, side: usize) -> Option<(u32, usize)> {
    match protocol {
        proto::TCP | proto::UDP | DCCP | SCTP | UDP_LITE => Some([(0, 2), (2, 2)][side]),
        proto::ICMP | proto::ICMPV6 => Some([(0, 1), (1, 1)][side]),
        proto::MOBILITY => [Some((2, 1)), None][side],
        _ => None,
    }
}

const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// The numbers that `nft` has for types of data, and how many bits each has in a concatenation.
const KIND_BITS: u32 = 6;
const KIND_IPV4: u32 = 7;
const KIND_IPV6: u32 = 8;
const KIND_PORT: u32 = 13;
const KIND_MARK: u32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(src: (&str, u8), dst: (&str, u8)) -> Leaving {
        Leaving {
            src: (src.0.parse().unwrap(), src.1),
            dst: (dst.0.parse().unwrap(), dst.1),
            protocol: 0,
            src_port: (0, 0),
            dst_port: (0, 0),
            interface: 0,
            mark: (0, 0),
        }
    }

    const DROP: Verdict = Verdict { priority: 5, passes: false, by_device: false };

    /// Faults: in `prefix`, shift by `8 - left`; in `value`, leave the padding or the mask out.
    #[test]
    fn a_value_has_what_the_shape_looks_at() {
        let site = policy(("10.1.0.0", 16), ("10.2.128.0", 17));
        let shape = Shape::of(&site, DROP).unwrap();
        assert_eq!(shape.value(&site), [10, 1, 0, 0, 10, 2, 128, 0]);
        assert_eq!(shape.fields(&site)[1].1, [255, 255, 128, 0]);
        let all = policy(("0.0.0.0", 0), ("0.0.0.0", 0));
        assert!(Shape::of(&all, DROP).unwrap().value(&all).is_empty());
        let web = Leaving {
            protocol: proto::TCP,
            dst_port: (443, 0xffff),
            mark: (0x2a, 0xff),
            ..policy(("0.0.0.0", 0), ("192.0.2.1", 32))
        };
        let mark = 0x2a_u32.to_ne_bytes();
        let value = Shape::of(&web, DROP).unwrap().value(&web);
        assert_eq!(value[..8], [192, 0, 2, 1, 1, 187, 0, 0]);
        assert_eq!(value[8..], mark);
        let echo = Leaving {
            protocol: proto::ICMP,
            src_port: (8, 0xffff),
            ..policy(("0.0.0.0", 0), ("192.0.2.1", 32))
        };
        assert_eq!(Shape::of(&echo, DROP).unwrap().value(&echo), [192, 0, 2, 1, 8, 0, 0, 0]);
    }

    /// Fault: in `Shape::of`, drop what nf_tables cannot tell from other packets.
    #[test]
    fn what_cannot_be_told_apart_is_not_dropped() {
        let odd = Leaving {
            protocol: 47,
            src_port: (1, 0xffff),
            ..policy(("10.1.0.0", 16), ("10.2.0.0", 16))
        };
        assert_eq!(Shape::of(&odd, DROP), None);
        let pass = Verdict { passes: true, ..DROP };
        assert!(Shape::of(&odd, pass).is_some());
        assert_eq!(Shape::of(&policy(("10.1.0.0", 16), ("fd02::", 16)), DROP), None);
        let header = Leaving { protocol: proto::MOBILITY, ..odd };
        assert!(Shape::of(&header, DROP).is_some());
    }

    /// Faults: in `unguarded`, look at the source port only, or return `None` for an exemption.
    #[test]
    fn what_is_not_behind_the_second_line_is_told() {
        let net = policy(("10.1.0.0", 16), ("10.2.0.0", 16));
        let pass = Verdict { passes: true, ..DROP };
        assert_eq!(unguarded(&net, DROP), None);
        let web = Leaving { protocol: proto::TCP, dst_port: (443, 0xffff), ..net };
        assert_eq!(unguarded(&web, DROP), None);
        let key = Leaving { protocol: 47, dst_port: (1, 0xfffe), ..net };
        let told = unguarded(&key, DROP).unwrap();
        assert_eq!(told, "nothing is dropped from 10.1.0.0/16 to 10.2.0.0/16 of protocol 47");
        assert!(unguarded(&key, pass).unwrap().ends_with("protocol 47 is for all ports"));
        let any = Leaving { src_port: (53, 0xffff), ..net };
        assert!(unguarded(&any, DROP).unwrap().ends_with("of any protocol"));
    }

    /// Faults: in `Shape::policy`, leave the padding out, or take the first port for the destination's; in `Shape::read`, take
    /// one field for the next one.
    #[test]
    fn policies_are_read_from_the_comment_of_a_rule_and_the_values_of_its_set() {
        let web = Leaving {
            protocol: proto::TCP,
            dst_port: (443, 0xffff),
            mark: (0x2a, 0xff),
            interface: 7,
            ..policy(("fd01::", 32), ("fd02::1", 128))
        };
        let echo = Leaving {
            protocol: proto::ICMP,
            src_port: (8, 0xffff),
            ..policy(("10.1.0.0", 16), ("192.0.2.1", 32))
        };
        let all = policy(("0.0.0.0", 0), ("0.0.0.0", 0));
        for (policy, set) in [(web, Some(c"s1")), (echo, Some(c"s12")), (all, None)] {
            for by_device in [false, true] {
                let shape = Shape::of(&policy, Verdict { by_device, ..DROP }).unwrap();
                let comment = Comment(shape, set).to_string();
                assert!(comment.len() <= 127, "{comment}");
                let (read, name) = Shape::read(&comment).unwrap();
                assert_eq!((read, name.as_deref()), (shape, set), "{comment}");
                assert_eq!(read.blocks(&[shape.value(&policy)]), [(policy, 5)], "{comment}");
            }
        }
        let passes = Shape::of(&all, Verdict { passes: true, ..DROP }).unwrap();
        assert!(passes.blocks(&[Vec::new()]).is_empty());
        assert_eq!(Shape::read("a comment of another program"), None);
        let longest = Shape { priority: u32::MAX, interface: u32::MAX, mark: u32::MAX, ..passes };
        let set = c"s18446744073709551615";
        assert!(Comment(longest, Some(set)).to_string().len() <= 100);
    }

    /// Fault: derive the order of shapes with another field first.
    #[test]
    fn rules_are_in_the_order_of_the_policies() {
        let net = policy(("10.1.0.0", 16), ("10.2.0.0", 16));
        let of = |priority, passes| Shape::of(&net, Verdict { priority, passes, ..DROP }).unwrap();
        let mut all = [of(9, true), of(5, false), of(7, true), of(5, true)];
        all.sort();
        assert_eq!(all, [of(5, true), of(5, false), of(7, true), of(9, true)]);
    }
}
