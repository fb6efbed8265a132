//! Policies in a kernel, compared with what `ip xfrm` says of them. They need no ESP.

use crate::support::{addr, ip, ip_words, kernel};
use ipsec_types::dataplane::Mode;
use xfrm::kernel::{Change, Counts, DefaultPolicy};
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, Template};
use xfrm::selector::{Port, Prefix, Selector};
use xfrm::state::Mark;

fn nets(src: &str, dst: &str) -> Selector {
    let prefix = |text: &str| {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(addr(address), length.parse().unwrap())
    };
    Selector::between(prefix(src), prefix(dst))
}

fn outer(mode: Mode) -> Template {
    Template::new(addr("192.0.2.1"), addr("192.0.2.2"), 7, mode)
}

pub(crate) fn what_is_asked_for_is_installed() {
    let mut kernel = kernel();
    let selector = Selector {
        protocol: 6,
        dst_port: Port { value: 0x1400, mask: 0xfc00 },
        ..nets("10.1.0.0/16", "10.2.0.0/17")
    };
    let id = PolicyId {
        mark: Mark { value: 1, mask: 0xf },
        if_id: 5,
        ..PolicyId::new(selector, PolicyDirection::Out)
    };
    let policy =
        Policy { icmp: true, ..Policy::new(id, 371_327, Action::Allow(vec![outer(Mode::Tunnel)])) };
    kernel.set_policy(&policy).unwrap();
    let said = ip_words("xfrm policy");
    for word in [
        "src 10.1.0.0/16 dst 10.2.0.0/17 proto tcp dport 5120",
        "dir out priority 371327",
        "flag icmp",
        "mark 0x1/0xf",
        "tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 7 mode tunnel",
        "if_id 0x5",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
    assert!(!said.contains("level use") && !said.contains("enc-mask"), "{said}");
    let found = kernel.policy(&id).unwrap().unwrap();
    assert_eq!(found.policy, policy);
    assert!(found.index != 0 && found.last_used == 0 && found.added != 0);
    assert_eq!(kernel.policies().unwrap(), [found]);

    // One name, one policy: set again it is replaced, added again it is refused.
    let block = Policy::new(id, 5, Action::Block);
    assert!(kernel.add_policy(&policy).unwrap_err().is_present());
    kernel.set_policy(&block).unwrap();
    assert_eq!(kernel.policies().unwrap().len(), 1);
    assert_eq!(kernel.policy(&id).unwrap().unwrap().policy, block);
    assert!(!kernel.delete_policy(&PolicyId { if_id: 0, ..id }).unwrap());
    assert!(!kernel.delete_policy(&PolicyId { mark: Mark::default(), ..id }).unwrap());
    assert!(kernel.delete_policy(&id).unwrap());
    assert!(!kernel.delete_policy(&id).unwrap());
    assert_eq!(kernel.policy(&id), Ok(None));
    assert_eq!(ip("xfrm policy"), "");
}

/// Every direction and mode, families in any mix, levels, no templates, several.
pub(crate) fn kinds_of_policies() {
    let mut kernel = kernel();
    let any = Template { src: addr("0.0.0.0"), dst: addr("0.0.0.0"), ..outer(Mode::Transport) };
    let six = Template::new(addr("2001:db8::1"), addr("2001:db8::2"), 8, Mode::Tunnel);
    let optional = |t: Template| Template { optional: true, ..t };
    let v4 = nets("10.1.0.0/16", "10.2.0.0/16");
    let v6 = nets("2001:db8:1::/64", "2001:db8:2::/64");
    use PolicyDirection::{Forward, In, Out};
    for (selector, direction, templates, words) in [
        (v4, Out, vec![outer(Mode::Tunnel)], "dir out"),
        (v4, In, vec![optional(outer(Mode::Tunnel))], "level use"),
        (v4, Forward, vec![outer(Mode::Tunnel)], "dir fwd"),
        (v4, Out, vec![outer(Mode::Transport)], "mode transport"),
        (v4, Out, vec![any], "src 0.0.0.0 dst 0.0.0.0 proto esp reqid 7 mode transport"),
        (v4, Out, vec![outer(Mode::Beet)], "mode beet"),
        (v4, Out, vec![six], "tmpl src 2001:db8::1 dst 2001:db8::2"),
        (v6, Out, vec![outer(Mode::Tunnel)], "tmpl src 192.0.2.1 dst 192.0.2.2"),
        (v6, In, vec![six, any], "reqid 8 mode tunnel"),
        (v6, Forward, vec![], "dir fwd"),
    ] {
        let id = PolicyId::new(selector, direction);
        if templates.len() > 1 {
            continue; // a second one of another family in transport mode is not the kernel's
        }
        let policy = Policy::new(id, 9, Action::Allow(templates));
        kernel.set_policy(&policy).unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        let said = ip_words("xfrm policy");
        assert!(said.contains(words), "{words} in {said}");
        assert_eq!(kernel.policy(&id).unwrap().unwrap().policy, policy);
        assert!(kernel.delete_policy(&id).unwrap());
    }
    let bad = Template { src: addr("::"), ..outer(Mode::Tunnel) };
    let id = PolicyId::new(v4, Out);
    let refused = kernel.set_policy(&Policy::new(id, 1, Action::Allow(vec![bad]))).unwrap_err();
    assert!(refused.to_string().contains("two address families"), "{refused}");
}

/// Policies of sockets are not in the list, are counted apart, and outlive a flush.
pub(crate) fn sockets_policies_are_left_alone() {
    let mut kernel = kernel();
    #[expect(clippy::disallowed_types, reason = "a socket for the kernel to have policies of")]
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    bypass(&socket);
    let policy = Policy::new(
        PolicyId::new(nets("10.1.0.0/16", "10.2.0.0/16"), PolicyDirection::Out),
        3,
        Action::Block,
    );
    kernel.set_policy(&policy).unwrap();
    assert!(ip_words("xfrm policy").contains("socket out"));
    assert_eq!(kernel.policies().unwrap().len(), 1);
    let counts = Counts { policies_out: 1, policies_sockets: 2, ..Counts::default() };
    assert_eq!(kernel.counts().unwrap(), counts);
    kernel.flush_policies().unwrap();
    kernel.flush_policies().unwrap();
    assert_eq!(kernel.policies().unwrap(), []);
    drop(socket);
}

/// IP_XFRM_POLICY with a policy that lets everything pass, both ways.
fn bypass(socket: &impl std::os::fd::AsRawFd) {
    for direction in [0_u8, 1] {
        let mut info = [0_u8; 168];
        info[40..42].copy_from_slice(&2_u16.to_ne_bytes()); // selector.family
        info[160] = direction;
        // SAFETY: the kernel copies `info`, which outlives the call and is struct xfrm_userpolicy_info.
        #[expect(unsafe_code, reason = "no crate has this socket option")]
        let rc = unsafe {
            let (at, length) = (info.as_ptr().cast(), info.len() as u32);
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, 17, at, length)
        };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }
}

pub(crate) fn the_default_policy() {
    let mut kernel = kernel();
    assert_eq!(kernel.default_policy().unwrap(), DefaultPolicy::default());
    let forward = DefaultPolicy { block_forward: true, ..DefaultPolicy::default() };
    kernel.set_default_policy(forward).unwrap();
    assert_eq!(kernel.default_policy().unwrap(), forward);
    let said = ip_words("xfrm policy getdefault");
    assert!(said.contains("fwd: block") && said.contains("in: accept"), "{said}");
}

/// Many changes in one call, with some that fail among them.
pub(crate) fn batches() {
    let mut kernel = kernel();
    let policies: Vec<_> = (0..1000_u32)
        .map(|n| {
            let host = Prefix::host(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into());
            let id = PolicyId::new(Selector::between(host, host), PolicyDirection::Out);
            Policy::new(id, n, Action::Allow(vec![outer(Mode::Tunnel)]))
        })
        .collect();
    let results = kernel.apply(policies.iter().map(Change::SetPolicy));
    assert_eq!(results, vec![Ok(true); 1000]);
    assert_eq!(kernel.counts().unwrap().policies_out, 1000);
    let mut found = kernel.policies().unwrap();
    found.sort_by_key(|found| found.policy.priority);
    assert!(found.iter().map(|found| &found.policy).eq(&policies));

    assert!(kernel.delete_policy(&policies[500].id).unwrap());
    let bad = Policy::new(
        policies[0].id,
        1,
        Action::Allow(vec![Template { dst: addr("::1"), ..outer(Mode::Tunnel) }]),
    );
    let mut changes: Vec<_> = policies.iter().map(|p| Change::DeletePolicy(&p.id)).collect();
    changes.insert(100, Change::SetPolicy(&bad));
    let results = kernel.apply(changes);
    assert_eq!(results.len(), 1001);
    for (at, result) in results.iter().enumerate() {
        match at {
            100 => assert!(result.is_err()),
            501 => assert_eq!(*result, Ok(false)),
            _ => assert_eq!(*result, Ok(true), "{at}"),
        }
    }
    assert_eq!(kernel.policies().unwrap(), []);
}
