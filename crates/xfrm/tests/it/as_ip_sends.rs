//! Requests, octet by octet, against those of `ip` (tests/data/ip.txt): the same fixed part, and the same
//! attributes in any order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipsec_types::crypto::Secret;
use netlink_packet_core::NetlinkSerializable;
use netlink_packet_xfrm::XfrmMessage;
use xfrm::kernel::{DefaultPolicy, Kernel};
use xfrm::netlink::{Error, Kind, Transport};
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, Template};
use xfrm::selector::{Port, Prefix, Selector};
use xfrm::state::{
    Algorithm, Direction, EncapPorts, Encapsulation, Lifetime, Mark, Mode, Offload, OffloadMode,
    Protection, Replay, State, StateId,
};

/// Type and octets of the last request; answers nothing, but that directions are known.
#[derive(Default)]
struct Recorder(u16, Vec<u8>);

impl Transport for Recorder {
    fn request(&mut self, message: XfrmMessage, _: Kind) -> Result<Vec<XfrmMessage>, Error> {
        let mut octets = vec![0; NetlinkSerializable::buffer_len(&message)];
        message.serialize(&mut octets);
        *self = Self(message.message_type(), octets);
        Err(Error { request: "recorded", errno: libc::EINVAL, message: None })
    }
}

type Parts = (u16, Vec<u8>, BTreeMap<u16, Vec<u8>>);

/// Octets in front of the attributes of each type (linux/xfrm.h).
fn fixed(kind: u16) -> usize {
    match kind {
        0x10 | 0x1a => 224,
        0x11 | 0x12 => 24,
        0x13 | 0x19 => 168,
        0x14 | 0x15 => 64,
        0x16 => 232,
        0x1c => 1,
        0x23 => 4,
        0x27 => 3,
        _ => panic!("{kind:#x}"),
    }
}

fn parts(kind: u16, octets: &[u8]) -> Parts {
    let (front, mut rest) = octets.split_at(fixed(kind));
    let mut attributes = BTreeMap::new();
    while let [a, b, c, d, ..] = *rest {
        let length = usize::from(u16::from_le_bytes([a, b]));
        attributes.insert(u16::from_le_bytes([c, d]), rest[4..length].to_vec());
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    (kind, front.to_vec(), attributes)
}

/// What `ip` sends for the case called `name`.
fn of_ip(name: &str) -> Parts {
    let line = include_str!("../data/ip.txt")
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no case {name}"));
    let (kind, octets) = line.split_once(' ').unwrap();
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    };
    let kind = u16::from_le_bytes(hex(kind).try_into().unwrap());
    parts(kind, &hex(octets))
}

/// What is sent by `call`.
fn sent<R>(call: impl FnOnce(&mut Kernel<Recorder>) -> Result<R, Error>) -> Parts {
    let mut kernel = Kernel::new(Recorder::default());
    assert!(kernel.knows_directions().unwrap());
    let Err(error) = call(&mut kernel) else { panic!("no answer was given") };
    assert_eq!(error.request, "recorded");
    let Recorder(kind, octets) = kernel.transport_mut();
    parts(*kind, octets)
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(from: u8, octets: usize) -> Secret {
    Secret::new((from..).take(octets).collect())
}

fn algorithm(name: &str, key: Secret, icv_bits: u32) -> Algorithm {
    Algorithm { name: name.into(), key, icv_bits }
}

fn gcm(mode: Mode, spi: u32) -> State {
    let aead = Protection::Aead(algorithm("rfc4106(gcm(aes))", key(1, 20), 128));
    let state = State::new(StateId::new(spi, addr("192.0.2.2")), addr("192.0.2.1"), mode, aead);
    State { replay: Replay::default(), ..state }
}

fn nets(src: (&str, u8), dst: (&str, u8)) -> Selector {
    Selector::between(Prefix::new(addr(src.0), src.1), Prefix::new(addr(dst.0), dst.1))
}

#[test]
fn states() {
    let everything = State {
        id: StateId {
            mark: Mark { value: 0x2a, mask: 0xff },
            ..StateId::new(0xc000_0001, addr("192.0.2.2"))
        },
        reqid: 7,
        replay: Replay { window: 32, ..Replay::default() },
        encapsulation: Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4501 })),
        direction: Some(Direction::In),
        if_id: 9,
        set_mark: Mark { value: 5, mask: 0xf },
        lifetime: Lifetime {
            soft_bytes: 1000,
            hard_bytes: 2000,
            soft_packets: 10,
            hard_packets: 20,
            soft_seconds: 100,
            hard_seconds: 200,
        },
        no_ecn: true,
        decapsulate_dscp: true,
        icmp: true,
        any_family: true,
        ..gcm(Mode::Tunnel, 0)
    };
    assert_eq!(sent(|k| k.add_state(&everything)), of_ip("state-gcm-everything"));
    // `ip` names the source as well, which the kernel looks at in states of Mobile IPv6 alone.
    let mut delete = of_ip("state-delete");
    delete.2.remove(&13);
    assert_eq!(sent(|k| k.delete_state(&everything.id)), delete);

    let esn = State {
        reqid: 1,
        replay: Replay { esn: true, window: 256, sent: 1 << 32 | 7, ..Replay::default() },
        ..State::new(
            StateId::new(0x1234_5678, addr("2001:db8::2")),
            addr("2001:db8::1"),
            Mode::Transport,
            Protection::Separate {
                encryption: algorithm("cbc(aes)", key(0x20, 16), 0),
                integrity: algorithm("hmac(sha256)", key(0, 32), 128),
            },
        )
    };
    // `ip` leaves out a bitmap of zeros, as the kernel allows.
    let mut wanted = of_ip("state-esn-cbc");
    wanted.2.get_mut(&23).unwrap().extend([0; 256 / 8]);
    assert_eq!(sent(|k| k.add_state(&esn)), wanted);

    let offload = State {
        reqid: 7,
        direction: Some(Direction::Out),
        offload: Some(Offload { ifindex: 1, mode: OffloadMode::Packet }),
        ..gcm(Mode::Transport, 0x1000)
    };
    assert_eq!(sent(|k| k.add_state(&offload)), of_ip("state-packet-offload"));
    let mut kernel = Kernel::new(Recorder::default());
    let _ = kernel.add_state(&offload);
    let octets = &kernel.transport_mut().1;
    assert_eq!(
        octets[octets.len() - 12..][..4],
        [12, 0, 28, 0],
        "the offload is the last attribute"
    );

    let inner = Selector::between(Prefix::host(addr("10.1.0.1")), Prefix::host(addr("10.2.0.1")));
    let beet =
        State { selector: Some(inner), dont_encapsulate_dscp: true, ..gcm(Mode::Beet, 0x1000) };
    assert_eq!(sent(|k| k.add_state(&beet)), of_ip("state-beet"));
    let third_cpu =
        State { cpu: Some(3), direction: Some(Direction::Out), ..gcm(Mode::Tunnel, 0x1000) };
    assert_eq!(sent(|k| k.add_state(&third_cpu)), of_ip("state-pcpu"));
    assert_eq!(sent(|k| k.update_state(&gcm(Mode::Tunnel, 0x1000))), of_ip("state-update"));
}

#[test]
fn other_requests_about_states() {
    // See above.
    let mut get = of_ip("state-get");
    get.2.remove(&13);
    let id = StateId::new(0xc000_0001, addr("2001:db8::2"));
    assert_eq!(sent(|k| k.state(&id)), get);
    // SA_DIR is ours: a reserved SPI is of one direction. Limits, which `ip` leaves zero, do not count.
    let mut allocate = of_ip("allocspi");
    allocate.1[96..128].fill(0xff);
    allocate.2.insert(33, vec![1]);
    let range = (0xc000_0000, 0xc000_00ff);
    let (src, dst) = (addr("192.0.2.2"), addr("192.0.2.1"));
    assert_eq!(sent(|k| k.allocate_spi(src, dst, 7, Mark::default(), range)), allocate);
    assert_eq!(sent(Kernel::flush_states), of_ip("flush"));
    assert_eq!(sent(Kernel::counts), of_ip("counts"));
}

#[test]
fn policies() {
    let selector = Selector {
        protocol: 6,
        dst_port: Port::exact(80),
        ..nets(("10.1.0.0", 16), ("10.2.0.0", 17))
    };
    let id = PolicyId {
        mark: Mark { value: 1, mask: 0xf },
        if_id: 5,
        ..PolicyId::new(selector, PolicyDirection::Out)
    };
    let (src, dst) = (addr("192.0.2.1"), addr("192.0.2.2"));
    let tunnel = Template::new(src, dst, 7, Mode::Tunnel);
    let policy = Policy { icmp: true, ..Policy::new(id, 371_327, Action::Allow(vec![tunnel])) };
    assert_eq!(sent(|k| k.set_policy(&policy)), of_ip("policy-tunnel"));
    assert_eq!(sent(|k| k.delete_policy(&id)), of_ip("policy-delete"));

    let selector = Selector { ifindex: 1, ..nets(("2001:db8:1::", 64), ("2001:db8:2::", 64)) };
    let second = Template {
        spi: 0x1234,
        ..Template::new(addr("2001:db8::1"), addr("2001:db8::2"), 0, Mode::Transport)
    };
    let templates = vec![Template { optional: true, ..tunnel }, second];
    let id = PolicyId::new(selector, PolicyDirection::In);
    let two = Policy::new(id, 9, Action::Allow(templates));
    assert_eq!(sent(|k| k.set_policy(&two)), of_ip("policy-two"));

    let ping = Selector {
        protocol: 1,
        src_port: Port::exact(8),
        dst_port: Port::exact(0),
        ..nets(("10.1.0.1", 32), ("10.2.0.1", 32))
    };
    let id = PolicyId::new(ping, PolicyDirection::Forward);
    assert_eq!(sent(|k| k.add_policy(&Policy::new(id, 0, Action::Block))), of_ip("policy-block"));

    let id = PolicyId::new(nets(("10.1.0.0", 16), ("10.2.0.0", 16)), PolicyDirection::Out);
    let transport = Template::new(src, dst, 7, Mode::Transport);
    let offload = Some(Offload { ifindex: 1, mode: OffloadMode::Packet });
    let policy = Policy { offload, ..Policy::new(id, 5, Action::Allow(vec![transport])) };
    assert_eq!(sent(|k| k.set_policy(&policy)), of_ip("policy-offload"));

    let default = DefaultPolicy { block_forward: true, ..DefaultPolicy::default() };
    assert_eq!(sent(|k| k.set_default_policy(default)), of_ip("default"));
}
