//! Priorities by selector size, the same numbers as strongSwan's, so that both daemons' policies and an
//! administrator's `priority` sort together.

use crate::selector::Selector;

/// Kinds of policies: all of one kind come before all of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PriorityClass {
    /// Let through in clear, or dropped, before protecting policies: shunts that an operator configures.
    Pass,
    /// Protected by SAs.
    Protect,
    /// Asks for SAs: right behind [`Self::Protect`] with the same selector.
    Trap,
    /// Behind everything.
    Fallback,
}

/// The priority of a policy with `selector`. The lower one comes first, and the more specific selector has the
/// lower one. The criteria, in this order: the lengths of both prefixes, a protocol, the bits of both ports, an
/// interface.
pub fn priority(selector: &Selector, class: PriorityClass) -> u32 {
    let base = match class {
        PriorityClass::Pass => BASE,
        PriorityClass::Protect | PriorityClass::Trap => 2 * BASE,
        PriorityClass::Fallback => 3 * BASE,
    };
    let prefixes = u32::from(selector.src.length) + u32::from(selector.dst.length);
    let ports = selector.src_port.mask.count_ones() + selector.dst_port.mask.count_ones();
    let size = prefixes * 512
        + u32::from(selector.protocol != 0) * 256
        + ports * 4
        + u32::from(selector.ifindex != 0) * 2
        + u32::from(class != PriorityClass::Trap);
    base.saturating_sub(size)
}

/// More than any selector's size, which is 131,459 (two IPv6 hosts, protocol, ports, interface).
const BASE: u32 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::{Port, Prefix};

    fn between(src: &str, from: u8, dst: &str, to: u8) -> Selector {
        Selector::between(
            Prefix::new(src.parse().unwrap(), from),
            Prefix::new(dst.parse().unwrap(), to),
        )
    }

    /// What strongSwan 6.1 installs.
    #[test]
    fn as_strongswan_has_them() {
        let nets = between("10.1.0.0", 24, "10.2.0.0", 24);
        assert_eq!(priority(&nets, PriorityClass::Protect), 375_423);
        assert_eq!(priority(&nets, PriorityClass::Trap), 375_424);
        assert_eq!(priority(&nets, PriorityClass::Pass), 175_423);
        let any = between("0.0.0.0", 0, "0.0.0.0", 0);
        assert_eq!(priority(&any, PriorityClass::Protect), 399_999);
        let hosts = between("10.1.0.1", 32, "10.2.0.1", 32);
        let tcp = Selector { protocol: 6, dst_port: Port::exact(80), ..hosts };
        assert_eq!(priority(&tcp, PriorityClass::Protect), 366_911);
    }

    #[test]
    fn the_more_specific_comes_first_and_classes_do_not_mix() {
        let host: std::net::IpAddr = "2001:db8::1".parse().unwrap();
        let most = Selector {
            protocol: 17,
            src_port: Port::exact(500),
            dst_port: Port::exact(500),
            ifindex: 3,
            ..Selector::between(Prefix::host(host), Prefix::host(host))
        };
        let least = between("::", 0, "::", 0);
        let classes = [PriorityClass::Pass, PriorityClass::Protect, PriorityClass::Fallback];
        for pair in classes.windows(2) {
            assert!(priority(&least, pair[0]) < priority(&most, pair[1]));
        }
        let steps = [
            most,
            Selector { ifindex: 0, ..most },
            Selector { ifindex: 0, src_port: Port::default(), ..most },
            Selector { ifindex: 0, src_port: Port::default(), dst_port: Port::default(), ..most },
            Selector::between(most.src, most.dst),
            Selector::between(Prefix::new(host, 64), most.dst),
            least,
        ];
        for pair in steps.windows(2) {
            let class = PriorityClass::Protect;
            assert!(priority(&pair[0], class) < priority(&pair[1], PriorityClass::Trap));
            assert!(priority(&pair[0], class) < priority(&pair[1], class));
        }
    }
}
