//! Events of a kernel with ESP.
#![expect(clippy::disallowed_types, reason = "packets for the kernel to protect")]

use std::net::UdpSocket;
use std::time::Duration;

use crate::support::{self, addr, ip, kernel, state};
use ipsec_types::dataplane::Mode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xfrm::event::{Event, Events};
use xfrm::policy::{Action, Policy, PolicyDirection, PolicyId, Template};
use xfrm::selector::{Prefix, Selector};
use xfrm::state::{Direction, EncapPorts, Encapsulation, Lifetime, Replay, State};

/// The next event within five seconds.
fn next(events: &mut Events) -> Event {
    for _ in 0..50 {
        if let Some(event) = events.next().unwrap() {
            return event;
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let mut fds = [PollFd::new(events, PollFlags::IN)];
        poll(&mut fds, Some(&wait)).unwrap();
    }
    panic!("no event");
}

fn to(dst: &str, length: u8) -> Selector {
    Selector::between(Prefix::new(addr("0.0.0.0"), 0), Prefix::new(addr(dst), length))
}

/// A packet without a state asks for one, with its own addresses and ports.
pub(crate) fn acquire() {
    let mut kernel = kernel();
    ip("link add d0 type dummy");
    ip("addr add 192.0.2.1/24 dev d0");
    ip("link set d0 up");
    ip("route add 10.2.0.0/16 dev d0");
    let mut events = Events::open().unwrap();
    assert_eq!(events.next().unwrap(), None);
    let id = PolicyId::new(to("10.2.0.0", 16), PolicyDirection::Out);
    let template = Template::new(addr("192.0.2.1"), addr("192.0.2.2"), 11, Mode::Tunnel);
    kernel.set_policy(&Policy::new(id, 1, Action::Allow(vec![template]))).unwrap();
    let socket = UdpSocket::bind("192.0.2.1:7777").unwrap();
    let _ = socket.send_to(b"x", "10.2.3.4:8888");
    let Event::Acquire(acquire) = next(&mut events) else { panic!("another event") };
    let packet = acquire.packet;
    assert_eq!(
        (packet.src, packet.dst),
        (Prefix::host(addr("192.0.2.1")), Prefix::host(addr("10.2.3.4")))
    );
    assert_eq!((packet.protocol, packet.src_port.value, packet.dst_port.value), (17, 7777, 8888));
    assert_eq!((acquire.src, acquire.dst), (template.src, template.dst));
    assert_eq!((acquire.reqid, acquire.mode, acquire.cpu), (11, Some(Mode::Tunnel), None));
    assert_eq!(acquire.policy, id);
    let found = kernel.policy(&id).unwrap().unwrap();
    assert_eq!(acquire.index, found.index);
    assert!(acquire.sequence != 0);
    // The kernel keeps a state that waits, without keys.
    let waiting = kernel.states().unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!((waiting[0].id.spi, waiting[0].sequence), (0, acquire.sequence));
}

/// Packets over the limits: a soft event while the state goes on, a hard one when it is gone; and the
/// limits in seconds.
pub(crate) fn expire() {
    let mut kernel = kernel();
    ip("link add d0 type dummy");
    ip("addr add 192.0.2.1/24 dev d0");
    ip("link set d0 up");
    ip("route add 10.2.0.0/16 dev d0");
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev d0");
    let mut events = Events::open_all().unwrap();
    let id = PolicyId::new(to("10.2.0.0", 16), PolicyDirection::Out);
    let template = Template::new(addr("192.0.2.1"), addr("192.0.2.2"), 7, Mode::Tunnel);
    kernel.set_policy(&Policy::new(id, 1, Action::Allow(vec![template]))).unwrap();
    let spec = State {
        direction: Some(Direction::Out),
        lifetime: Lifetime { soft_packets: 2, hard_packets: 4, ..Lifetime::default() },
        ..state(0x7000, "192.0.2.1", "192.0.2.2")
    };
    kernel.add_state(&spec).unwrap();
    let socket = UdpSocket::bind("192.0.2.1:7777").unwrap();
    let mut seen = Vec::new();
    for _ in 0..8 {
        let _ = socket.send_to(&[0; 100], "10.2.3.4:8888");
        std::thread::sleep(Duration::from_millis(50));
        while let Some(event) = events.next().unwrap() {
            if let Event::Expire { id, reqid, hard } = event {
                assert_eq!((id, reqid), (spec.id, 7));
                seen.push((hard, kernel.state(&id).unwrap().map(|info| info.packets)));
            }
        }
    }
    let [(false, Some(packets)), (true, None)] = seen[..] else { panic!("{seen:?}") };
    assert!((2..=4).contains(&packets), "{seen:?}");

    let timed = State {
        lifetime: Lifetime { soft_seconds: 1, hard_seconds: 2, ..Lifetime::default() },
        ..state(0x7001, "192.0.2.1", "192.0.2.2")
    };
    kernel.add_state(&timed).unwrap();
    let mut hard_seen = Vec::new();
    while hard_seen != [false, true] {
        if let Event::Expire { id, hard, .. } = next(&mut events)
            && id == timed.id
        {
            hard_seen.push(hard);
        }
    }
    assert_eq!(kernel.state(&timed.id), Ok(None));
}

/// Deletions by others are heard of; a full socket says that something was lost.
pub(crate) fn deletions_and_losses() {
    let mut kernel = kernel();
    let mut events = Events::open_all().unwrap();
    let spec = state(0x7100, "192.0.2.1", "192.0.2.2");
    kernel.add_state(&spec).unwrap();
    assert!(kernel.delete_state(&spec.id).unwrap());
    assert_eq!(next(&mut events), Event::StateDeleted(spec.id));
    let id = PolicyId::new(to("10.2.0.0", 16), PolicyDirection::In);
    kernel.set_policy(&Policy::new(id, 1, Action::Block)).unwrap();
    assert!(kernel.delete_policy(&id).unwrap());
    assert_eq!(next(&mut events), Event::PolicyDeleted(id));
    kernel.add_state(&spec).unwrap();
    kernel.flush_states().unwrap();
    assert_eq!(next(&mut events), Event::StatesFlushed);

    let mut events = Events::open_all().unwrap();
    events.set_buffer(4096).unwrap();
    for _ in 0..200 {
        kernel.add_state(&spec).unwrap();
        assert!(kernel.delete_state(&spec.id).unwrap());
    }
    let mut lost = 0;
    while let Some(event) = events.next().unwrap() {
        lost += u32::from(event == Event::Lost);
    }
    assert!(lost >= 1, "nothing was lost");
    kernel.add_state(&spec).unwrap();
    assert!(kernel.delete_state(&spec.id).unwrap());
    assert_eq!(next(&mut events), Event::StateDeleted(spec.id), "it goes on afterwards");
}

/// A peer behind a NAT whose port changes: ESP in UDP from elsewhere, authenticated, is a mapping.
pub(crate) fn mapping() {
    let mut kernel = kernel();
    ip("addr add 192.0.2.1/32 dev lo");
    ip("addr add 192.0.2.2/32 dev lo");
    let mut events = Events::open().unwrap();
    let encapsulation =
        |src_port, dst_port| Some(Encapsulation::Udp(EncapPorts { src_port, dst_port }));
    // One host is both ends. The inbound state believes in port 4600; the outbound one sends from 4700.
    let key = || support::gcm(128);
    let inbound = State {
        direction: Some(Direction::In),
        encapsulation: encapsulation(4600, 4500),
        protection: key(),
        ..State::new(
            xfrm::state::StateId::new(0x7200, addr("192.0.2.1")),
            addr("192.0.2.2"),
            Mode::Transport,
            key(),
        )
    };
    kernel.add_state(&inbound).unwrap();
    let receiver = UdpSocket::bind("192.0.2.1:4500").unwrap();
    support::encapsulate(&receiver);
    let sender = UdpSocket::bind("192.0.2.2:4700").unwrap();
    sender.send_to(&support::esp_packet(0x7200, 1), "192.0.2.1:4500").unwrap();
    let event = next(&mut events);
    assert_eq!(
        event,
        Event::Mapping {
            id: inbound.id,
            reqid: 0,
            old: (addr("192.0.2.2"), 4600),
            new: (addr("192.0.2.2"), 4700),
        }
    );
}

/// The kernel's own bitmaps, of packets that came, that were missing and that came late.
pub(crate) fn bitmaps_of_what_came() {
    let mut kernel = kernel();
    ip("addr add 192.0.2.1/32 dev lo");
    ip("addr add 192.0.2.2/32 dev lo");
    let receiver = UdpSocket::bind("192.0.2.1:4500").unwrap();
    support::encapsulate(&receiver);
    let sender = UdpSocket::bind("192.0.2.2:4500").unwrap();
    for (spi, window) in [(0x7300, 32), (0x7301, 64), (0x7302, 100), (0x7303, 4096)] {
        let id = xfrm::state::StateId::new(spi, addr("192.0.2.1"));
        let spec = State {
            direction: Some(Direction::In),
            encapsulation: Some(Encapsulation::Udp(EncapPorts { src_port: 4500, dst_port: 4500 })),
            replay: Replay { window, received: 150, ..Replay::default() },
            ..State::new(id, addr("192.0.2.2"), Mode::Transport, support::gcm(128))
        };
        kernel.add_state(&spec).unwrap();
        // The last three: too old for the windows of 32 and 64, a replay, and late but in time.
        for sequence in [151, 152, 154, 158, 95, 154, 157] {
            let packet = support::esp_packet(spi, sequence);
            sender.send_to(&packet, "192.0.2.1:4500").unwrap();
        }
        let info = kernel.state(&id).unwrap().unwrap();
        assert_eq!(info.replay.received, 158, "{window}");
        assert_eq!(info.replay.bitmap[0] & 0xff, 0b1101_0011, "{window}");
        // 158 - 95 = 63 back: in the larger windows, the last bit of the second word.
        let second = info.replay.bitmap.get(1).copied().unwrap_or(0);
        assert_eq!(second >> 31, u32::from(window >= 64), "{window}: {:x?}", info.replay.bitmap);
        assert_eq!(info.errors.replay, 1, "{window}: {:?}", info.errors);
        assert_eq!(info.errors.replay_window, u32::from(window < 64), "{window}");
        assert_eq!(info.packets, if window < 64 { 5 } else { 6 }, "{window}");
    }
}
