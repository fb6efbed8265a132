//! Target `endpoint_script`: two endpoints whose operators, data planes, network and attacker do as
//! the input says. Nothing panics; nothing forged ends or changes an SA; and when the network is well
//! again, both ends and their data planes agree, and everything can be taken down.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{
    Action, Childless, Fragmentation, Retransmission, SeparateTransports, TcpUse, TicketKey, Unique,
};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{Event, SaId, TrafficSelector};
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::wire::{HEADER_LEN, Message, Payload};
use ike_proto::{Command, IkeState, Path, StreamEvent};
use ike_tests::network::{Conditions, Packet};
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup};
use xfrm::Fault;

use crate::input::Input;

/// Operations taken from one input.
const MAX_STEPS: usize = 120;

/// Runs one input; counts the children there are when the network is well again.
pub fn run(octets: &[u8]) -> usize {
    let mut input = Input(octets);
    let mut pair = setup(&mut input).build();
    pair.net.manual = true;
    let mut tainted = Vec::new();
    for _ in 0..MAX_STEPS {
        let Some(step) = input.next() else { break };
        operate(&mut pair, step, &mut input, &mut tainted);
    }
    calm(&mut pair);
    converge(&mut pair, &tainted);
    let children = pair.a().children().len();
    take_down(&mut pair);
    children
}

/// Two ends that can agree, in a few variants.
fn setup(input: &mut Input<'_>) -> Setup {
    let mut setup = Setup::new(7);
    let (a, b, both) = (input.octet(), input.octet(), input.octet());
    setup.a.add_child("more", 3, 4);
    setup.b.add_child("more", 4, 3);
    for (side, bits) in [(&mut setup.a, a), (&mut setup.b, b)] {
        // SAs for each CPU (RFC 9611) of one child, and one for all of the other.
        Arc::make_mut(&mut side.children[1].processing).per_cpu = true;
        side.plane.capabilities.per_cpu = true;
        side.plane.capabilities.cpus = 2;
        // Short, so that the end of an input comes soon.
        side.connection.dpd_delay = Duration::from_secs(10);
        side.settings.retransmission = Retransmission {
            timeout: Some(Duration::from_secs(1)),
            base: 1.5,
            tries: Some(3),
            ..Retransmission::default()
        };
        side.connection.keyingtries = 1;
        if bits & 1 != 0 {
            side.settings.fragment_size = Some(160);
            side.connection.fragmentation = Fragmentation::Force;
        }
        if bits & 2 != 0 {
            side.settings.cookie_threshold = 1;
        }
        if bits & 4 != 0 {
            side.connection.childless = Childless::Prefer;
        }
        if bits & 8 != 0 {
            side.esp_proposals(&["aes256gcm16-ecp256-x25519", "aes256gcm16"]);
        }
        if bits & 16 != 0 {
            side.connection.unique = Unique::Replace;
        }
        if bits & 32 != 0 {
            side.plane.delay = Duration::from_millis(300);
        }
        if bits & 64 != 0 {
            side.net().inactivity = Duration::from_secs(40);
        }
        if bits & 128 != 0 {
            side.net().close_action = Action::Trap;
            side.net().dpd_action = Action::Start;
        }
        // Additional key exchanges (RFC 9370).
        if both & 1 != 0 {
            side.ike_proposals(&["aes256gcm16-prfsha256-x25519-ke1_ecp256-ke2_modp2048"]);
        }
        if both & 2 != 0 {
            side.esp_proposals(&["aes256gcm16-x25519-ke1_ecp256"]);
        }
        // Timers that follow the path.
        if both & 4 != 0 {
            side.settings.retransmission.timeout = None;
        }
        // Messages larger than any datagram may be, so that path MTUs matter.
        if both & 8 != 0 {
            side.esp_proposals(&["aes256gcm16-x25519"; 60]);
        }
        if both & 64 != 0 {
            side.settings.fragment_ack = None;
        }
        // Session resumption (RFC 5723), both ways.
        if both & 128 != 0 {
            side.connection.session_resumption = true;
            let secret = Secret::new(vec![1; TicketKey::SECRET_LEN]);
            side.settings.resumption.keys = vec![Arc::new(TicketKey { id: [1; 8], secret })];
        }
    }
    // IKE over TCP (RFC 9329).
    if both & 16 != 0 {
        setup.a.connection.enable_tcp = TcpUse::Yes;
    }
    if both & 32 != 0 {
        setup.a.connection.separate_transports = SeparateTransports::Yes;
        setup.b.settings.accepts_tcp = true;
    }
    setup
}

/// `tainted` takes the initiator's SPIs of attempts that somebody answered with a forgery: there may be
/// two SAs of their name for a while, which the audit cannot tell apart.
fn operate(pair: &mut Pair, step: u8, input: &mut Input<'_>, tainted: &mut Vec<String>) {
    let host = usize::from(step >> 7);
    match step & 0x7f {
        0..=19 => deliver(pair, input, true),
        20..=22 => deliver(pair, input, false),
        23 | 24 => {
            if let Some(index) = input.index(pair.net.mailbox.len()) {
                pair.net.mailbox.remove(index);
            }
        }
        25..=29 => {
            if let Some(packet) = sent_before(pair, input) {
                pair.inject(packet);
            }
        }
        30..=54 => mutate(pair, input, tainted),
        55..=59 => invent(pair, input, tainted),
        60..=66 => {
            let time = Duration::from_millis(u64::from(input.word()) * 4);
            pair.run_for(time);
        }
        67..=69 => pair.deliver_all(),
        70..=96 => command(pair, host, input),
        97..=107 => plane_event(pair, host, input),
        108..=112 => {
            let n = u64::from(input.octet() % 8) + 1;
            let lost = input.octet() & 1 != 0;
            let fault = if lost { Fault::LostAnswer(n) } else { Fault::Nth(n) };
            pair.hosts[host].plane.inner.fail(fault);
        }
        113 => pair.hosts[host].plane.inner.fail(Fault::All),
        114..=116 => pair.hosts[host].plane.inner.heal(),
        117 => {
            let octets = u32::from(input.word());
            pair.path_mtu(host, Pair::other(host), octets);
        }
        118 => stream(pair, host, input, tainted),
        _ => pair.wake(host),
    }
}

fn deliver(pair: &mut Pair, input: &mut Input<'_>, once: bool) {
    let Some(index) = input.index(pair.net.mailbox.len()) else { return };
    let packet = pair.net.mailbox[index].clone();
    if once {
        pair.net.mailbox.remove(index);
    }
    pair.inject(packet);
}

/// A packet that was sent at some time.
fn sent_before(pair: &Pair, input: &mut Input<'_>) -> Option<Packet> {
    let index = input.index(pair.net.trace.len())?;
    pair.net.trace.get(index).cloned()
}

// ---- the attacker ----

/// Changes a packet that was sent, and delivers it.
fn mutate(pair: &mut Pair, input: &mut Input<'_>, tainted: &mut Vec<String>) {
    let Some(mut packet) = sent_before(pair, input) else { return };
    let mut octets = packet.octets.to_vec();
    for _ in 0..=input.octet() % 4 {
        let how = input.octet();
        let at = input.index(octets.len()).unwrap_or(0);
        match how % 6 {
            0 | 1 => {
                if let Some(octet) = octets.get_mut(at) {
                    *octet ^= input.octet().max(1);
                }
            }
            2 => octets.truncate(at),
            3 => octets.extend_from_slice(input.take(usize::from(how))),
            4 => {
                for (to, from) in octets.iter_mut().skip(at).zip(input.take(8)) {
                    *to = *from;
                }
            }
            // The header alone, where flags and numbers are.
            _ => {
                if let Some(octet) = octets.get_mut(16 + at % 12) {
                    *octet = input.octet();
                }
            }
        }
    }
    if input.octet() & 1 != 0 {
        mend(&mut octets);
    }
    if input.octet() & 7 == 7 {
        packet.src = SocketAddr::new(IpAddr::from([10, 0, 0, 66]), 500);
    }
    packet.octets = octets.into();
    forge(pair, packet, tainted);
}

/// Makes a packet from nothing but the SPIs of an SA that is there.
fn invent(pair: &mut Pair, input: &mut Input<'_>, tainted: &mut Vec<String>) {
    let host = usize::from(input.octet() & 1);
    let ikes = pair.hosts[host].ikes();
    let spis = input.index(ikes.len()).map_or((0x1111, 0), |n| (ikes[n].spi_i, ikes[n].spi_r));
    let mut octets = Vec::new();
    octets.extend(spis.0.to_be_bytes());
    octets.extend(spis.1.to_be_bytes());
    let length = usize::from(input.octet());
    octets.extend_from_slice(input.take(length));
    if octets.len() > 20 {
        octets[17] = 0x20;
    }
    mend(&mut octets);
    let (src, dst) =
        (address(if host == A { 2 } else { 1 }), address(if host == A { 1 } else { 2 }));
    let (src, dst) = (SocketAddr::new(src, 500), SocketAddr::new(dst, 500));
    forge(pair, Packet::forged(src, dst, octets), tainted);
}

/// A TCP connection breaks, on one side first or not; or the driver tells of one that nobody knows.
fn stream(pair: &mut Pair, host: usize, input: &mut Input<'_>, tainted: &mut Vec<String>) {
    let kind = input.octet();
    let open = pair.streams.open();
    match (kind % 4, input.index(open.len())) {
        (0, Some(n)) => pair.cut(open[n]),
        (1, Some(n)) => pair.cut_opener(open[n]),
        (2, _) => {
            let path = unknown_stream(pair, host);
            let opened = StreamEvent::Opened(path.local);
            let closed = StreamEvent::Closed("reset".to_owned());
            let event = if kind & 4 == 0 { opened } else { closed };
            pair.handle_stream(host, path, event);
        }
        _ => {
            // What was sent before comes by a connection that somebody else has opened.
            let Some(packet) = sent_before(pair, input) else { return };
            tainted.extend(packet.header().map(|header| format!("{:016x}/", header.spi_i)));
            let path = unknown_stream(pair, host);
            pair.receive(host, path, &packet.octets);
        }
    }
}

fn unknown_stream(pair: &Pair, host: usize) -> Path {
    pair.stranger(host, SocketAddr::new(IpAddr::from([10, 0, 0, 66]), 40_000))
}

fn mend(octets: &mut [u8]) {
    if octets.len() >= HEADER_LEN {
        let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        octets[24..28].copy_from_slice(&length.to_be_bytes());
    }
}

/// Delivers what nobody with keys has sent, and holds the receiver to changing nothing.
fn forge(pair: &mut Pair, packet: Packet, tainted: &mut Vec<String>) {
    if pair.net.trace.iter().any(|sent| sent.octets == packet.octets) {
        return pair.inject(Packet { from: None, ..packet });
    }
    let before = [state(pair, A), state(pair, B)];
    let waiting = pair.net.mailbox.len();
    let is = |kind| packet.header().is_some_and(|header| header.exchange == kind);
    let resumes = is(ExchangeType::IKE_SESSION_RESUME);
    let init = is(ExchangeType::IKE_SA_INIT) || resumes;
    let story = packet.describe();
    if init {
        tainted.extend(packet.header().map(|header| format!("{:016x}/", header.spi_i)));
    }
    pair.inject(Packet { from: None, ..packet });
    for (host, before) in before.iter().enumerate() {
        let after = state(pair, host);
        assert_eq!(before.settled, after.settled, "host {host}: {story}");
        for id in &before.unsettled {
            // A ticket that is refused, by whomever, is followed by an attempt without it.
            let anew = resumes && after.unsettled.len() >= before.unsettled.len();
            assert!(anew || after.unsettled.contains(id), "host {host} gave {id:?} up: {story}");
        }
    }
    for sent in pair.net.mailbox.iter().skip(waiting) {
        let message = Message::decode(&sent.octets).expect("what is sent is well-formed");
        // An attempt may begin anew or go on to IKE_AUTH; nobody else says a protected word.
        let bare = matches!(message.payloads.as_slice(), [Payload::Notify(n)]
            if n.kind == NotifyType::INVALID_IKE_SPI || n.kind == NotifyType::INVALID_MAJOR_VERSION);
        assert!(init || bare, "{story} was answered by {}", sent.describe());
    }
}

/// What an attacker must not change.
struct State {
    /// Established SAs, their children, and the data plane.
    settled: Vec<String>,
    /// Attempts and half-open SAs.
    unsettled: Vec<u64>,
}

fn state(pair: &Pair, host: usize) -> State {
    let host = &pair.hosts[host];
    let (settled, unsettled): (Vec<_>, Vec<_>) =
        host.ikes().into_iter().partition(|ike| ike.state != IkeState::Connecting);
    let plane = format!("{:x?} {:x?}", host.plane.inbound_spis(), host.plane.outbound_spis());
    let settled = settled.iter().map(|ike| format!("{ike:?}")).chain([plane]).collect();
    State { settled, unsettled: unsettled.iter().map(|ike| ike.id.0).collect() }
}

// ---- operators and data planes ----

fn command(pair: &mut Pair, host: usize, input: &mut Input<'_>) {
    let (local, remote) = (pair.address(host), pair.address(Pair::other(host)));
    let connection = "ab".to_owned();
    let child = ["net", "more", "nobody"][usize::from(input.octet() % 3)].to_owned();
    let ikes = pair.hosts[host].ikes();
    let children = pair.hosts[host].children();
    let ike = input.index(ikes.len()).map(|n| ikes[n].id);
    let child_id = input.index(children.len()).map(|n| children[n].id);
    let command = match (input.octet() % 16, ike, child_id) {
        (0..=3, ..) => {
            Command::Initiate { connection, child: Some(child), local, remote, packet: None }
        }
        (4, ..) => Command::Initiate { connection, child: None, local, remote, packet: None },
        (5 | 6, Some(ike), _) => Command::RekeyIke(ike),
        (7..=9, _, Some(child)) => Command::RekeyChild(child),
        (10, Some(ike), _) => Command::TerminateIke(ike),
        (11 | 12, _, Some(child)) => Command::TerminateChild(child),
        (13, Some(ike), _) => Command::Reauthenticate(ike),
        (14, ..) => Command::InstallTrap { connection, child, local, remote },
        (15, ..) => Command::Reload(Box::new(pair.hosts[host].endpoint.config().clone())),
        _ => return,
    };
    pair.command(host, command);
}

fn plane_event(pair: &mut Pair, host: usize, input: &mut Input<'_>) {
    let sas: Vec<SaId> = {
        let plane = &pair.hosts[host].plane;
        let mut sas: Vec<_> = plane.table().sas().map(|(id, _)| id).collect();
        sas.sort_by_key(|sa| sa.spi);
        sas
    };
    let sa = input.index(sas.len()).map_or(SaId { spi: 9, dst: address(1) }, |n| sas[n]);
    let kind = input.octet();
    let event = match kind % 5 {
        0 => Event::SoftExpire(sa),
        1 => Event::HardExpire(sa),
        2 => Event::FirstPacket(sa),
        3 => Event::Mapping { sa, remote: SocketAddr::new(address(66), 4500) },
        _ => {
            let policies: Vec<_> =
                pair.hosts[host].plane.table().policies().map(|policy| policy.id).collect();
            let Some(n) = input.index(policies.len()) else { return };
            let local = TrafficSelector::host([10, 1, 0, 1].into());
            let remote = TrafficSelector::host([10, 2, 0, 1].into());
            let cpu = (kind / 5 % 2 == 1).then_some(u32::from(kind / 10 % 4));
            Event::Acquire { policy: policies[n], local, remote, cpu }
        }
    };
    pair.plane_event(host, event);
}

// ---- the end ----

/// The attacker goes away, and network and data planes are well again.
fn calm(pair: &mut Pair) {
    // Batches end in the order in which they began.
    pair.settle();
    for host in &mut pair.hosts {
        host.plane.inner.heal();
        host.plane.delay = Duration::ZERO;
    }
    pair.net.manual = false;
    pair.net.conditions = Conditions { delay: Duration::from_millis(1), ..Conditions::default() };
    let waiting = std::mem::take(&mut pair.net.mailbox);
    for packet in waiting {
        pair.inject(packet);
    }
}

fn converge(pair: &mut Pair, tainted: &[String]) {
    // What was forged may have come by the wrong port; that is not the endpoints' doing.
    pair.net.misdirected = 0;
    // A ladder of retransmissions, then a liveness check and its ladder, then what that starts.
    pair.run_for(Duration::from_secs(100));
    let mut disagreement = String::new();
    for _ in 0..50 {
        let complaints = &mut pair.audit.complaints;
        complaints.retain(|complaint| !tainted.iter().any(|spi| complaint.contains(spi)));
        match pair.agreement() {
            Ok(()) => return,
            Err(why) => disagreement = why,
        }
        // Something is under way just now, or waits to be made again.
        pair.run_for(Duration::from_millis(7_300));
    }
    panic!("{disagreement}\n{}", pair.story());
}

fn take_down(pair: &mut Pair) {
    for host in [A, B] {
        pair.command(host, Command::Shutdown);
    }
    pair.run_for(Duration::from_secs(300));
    for (name, host) in ["A", "B"].iter().zip(&pair.hosts) {
        let ikes = host.ikes();
        assert!(ikes.is_empty(), "{name}: {ikes:?}\n{}", pair.story());
        let left = host.plane.table();
        assert!(left.is_empty(), "{name}: {left:?}\n{}", pair.story());
        assert_eq!(host.endpoint.half_open(), 0, "{name}");
        assert_eq!(host.endpoint.reassembly_memory(), 0, "{name}");
    }
}
