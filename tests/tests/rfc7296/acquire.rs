//! §2.9: the packet that asks for a child is what its selectors begin with.

mod crowd;

use std::io::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::TsSpec;
use ike_proto::dataplane::{Event as Plane, Flow, PolicyAction, PolicyId, TrafficSelector};
use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use ike_proto::{Answer, Command, Event, Failure, Lease};
use ike_tests::bench::Bench;
use ike_tests::handmade::{ESP, Handmade, proposal};
use ike_tests::setup::{address, child, side};
use ike_tests::{A, B, Pair, Setup};

fn ts(text: &str) -> TrafficSelector {
    text.parse().unwrap()
}

fn flow(local: &str, remote: &str) -> Flow {
    Flow { local: ts(local), remote: ts(remote) }
}

fn initiate(child: &str, packet: Option<Flow>) -> Command {
    Command::Initiate {
        connection: "ab".to_owned(),
        child: Some(child.to_owned()),
        local: address(1),
        remote: address(2),
        packet,
    }
}

/// TSi and TSr of the only request in `sent`.
fn offered(peer: &Handmade, sent: &[Vec<u8>]) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let [only] = sent else { panic!("{} datagrams", sent.len()) };
    let opened = peer.open(only).expect("sealed for the peer");
    let (mut ts_i, mut ts_r) = (Vec::new(), Vec::new());
    for payload in decode_payloads(opened.first, &opened.octets, 0).unwrap() {
        match payload {
            Payload::TsI(list) => ts_i = list,
            Payload::TsR(list) => ts_r = list,
            _ => {}
        }
    }
    (ts_i, ts_r)
}

/// An endpoint with a child "more" to be made.
fn bench() -> (Bench, Handmade) {
    let mut side = side(1, 2);
    side.add_child("more", 3, 4);
    let mut bench = Bench::with(side);
    let peer = bench.established(1007);
    (bench, peer)
}

#[test]
fn s2_9_the_packet_is_offered_first() {
    let (mut bench, mut peer) = bench();
    let packet = flow("10.3.0.9[udp/1000]", "10.4.0.9[udp/53]");
    bench.world.command(0, initiate("more", Some(packet)));
    let sent = bench.sent();
    let (ts_i, ts_r) = offered(&peer, &sent);
    assert_eq!(ts_i, [packet.local, ts("10.3.0.0/16")]);
    assert_eq!(ts_r, [packet.remote, ts("10.4.0.0/16")]);

    // A responder may take the first choice and what is around it.
    let answer = [
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(1008))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![ts("10.3.0.9")]),
        Payload::TsR(vec![ts("10.4.0.0/24")]),
    ];
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 0, true, &answer));
    let new = bench.host().children_up().into_iter().find(|child| child.name == "more").unwrap();
    assert_eq!(
        (&new.local_ts[..], &new.remote_ts[..]),
        (&[ts("10.3.0.9")][..], &[ts("10.4.0.0/24")][..])
    );

    //= https://www.rfc-editor.org/rfc/rfc7296#section-2.9.2
    //= type=test
    //# there is no need for the selectors from the packet,
    //# so those selectors SHOULD NOT be sent.
    bench.world.command(0, Command::RekeyChild(new.id));
    let sent = bench.sent();
    assert_eq!(offered(&peer, &sent), (new.local_ts, new.remote_ts));
}

#[test]
fn s2_9_without_a_packet_of_the_policy_the_policy_is_offered() {
    let outside = [
        None,
        Some(flow("10.9.0.9", "10.4.0.9")),
        Some(flow("10.3.0.9", "10.9.0.9")),
        // The policy itself.
        Some(flow("10.3.0.0/16", "10.4.0.0/16")),
    ];
    for packet in outside {
        let (mut bench, peer) = bench();
        bench.world.command(0, initiate("more", packet));
        let sent = bench.sent();
        let expected = (vec![ts("10.3.0.0/16")], vec![ts("10.4.0.0/16")]);
        assert_eq!(offered(&peer, &sent), expected, "{packet:?}");
    }
}

#[test]
fn s2_9_single_pair_required_is_answered_with_the_pair_of_the_packet() {
    let (mut bench, mut peer) = bench();
    let packet = flow("10.3.0.9[udp/1000]", "10.4.0.9[udp/53]");
    let request = bench.world.command(0, initiate("more", Some(packet)));
    bench.sent();
    let refused = [Payload::Notify(Notify::new(NotifyType::SINGLE_PAIR_REQUIRED, &[]))];
    let sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 0, true, &refused));
    let expected = (vec![packet.local, ts("10.3.0.9")], vec![packet.remote, ts("10.4.0.9")]);
    assert_eq!(offered(&peer, &sent), expected);
    // Once more, and it is a refusal.
    let sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 1, true, &refused));
    assert_eq!(sent.len(), 0);
    let failure = Failure::Peer(NotifyType::SINGLE_PAIR_REQUIRED);
    assert_eq!(bench.host().done(request), Some(Err(failure.clone())));
    // Nobody knows the pair without a packet.
    let request = bench.world.command(0, initiate("more", None));
    bench.sent();
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, &refused));
    assert_eq!(bench.host().done(request), Some(Err(failure)));
    bench.assert_nothing_leaked();
}

/// A traps all of 10.0.0.0/8; B has a child for each of its networks.
fn trapped() -> (Pair, PolicyId) {
    let mut setup = Setup::new(1);
    setup.a.net().remote_ts = vec![TsSpec::Fixed(ts("10.0.0.0/8"))];
    setup.b.children.push(child("other", 5, 1));
    let mut pair = setup.build();
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::InstallTrap { connection, child, local, remote });
    pair.settle();
    let is_trap = |action: &PolicyAction| *action == PolicyAction::Trap;
    let mut policies = pair.a().plane.table().policies();
    let trap = policies.find(|policy| is_trap(&policy.action)).map(|policy| policy.id).unwrap();
    drop(policies);
    (pair, trap)
}

fn acquires(pair: &Pair) -> Vec<(String, Flow)> {
    pair.a().events(|event| match event {
        Event::Acquire { child, packet, .. } => Some((child.clone(), *packet)),
        _ => None,
    })
}

#[test]
fn s2_9_the_packet_that_met_a_trap_chooses_the_responders_child() {
    let (mut pair, policy) = trapped();
    let packet = flow("10.1.0.9[tcp/4711]", "10.5.0.9[tcp/80]");
    let Flow { local, remote } = packet;
    pair.plane_event(A, Plane::Acquire { policy, local, remote, cpu: None });
    assert_eq!(acquires(&pair), [("net".to_owned(), packet)]);
    let request = pair.command(A, initiate("net", Some(packet)));
    // While it is being made the trap is hit again, and again.
    pair.plane_event(A, Plane::Acquire { policy, local, remote, cpu: None });
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    let (a, b) = (pair.a().child(), pair.b().child());
    assert_eq!(b.name, "other");
    assert_eq!((a.local_ts, a.remote_ts), (vec![ts("10.1.0.0/16")], vec![ts("10.5.0.0/16")]));
    pair.plane_event(A, Plane::Acquire { policy, local, remote, cpu: None });
    assert_eq!(acquires(&pair).len(), 1, "it has its child");
}

/// The peer has a child for each pair of networks, as many routers do, and this end one for all of them. An acquire is
/// served by a child that takes its packet, and by no other.
///
/// Fault: in `Established::serves`, let each child of that name serve, or each that is of more than one pair of addresses.
#[test]
fn s2_9_a_packet_that_a_narrowed_child_does_not_take_gets_a_child_of_its_own() {
    let (mut pair, policy) = trapped();
    for (n, network) in [(1, 5), (2, 2)] {
        let packet = flow("10.1.0.9[tcp/4711]", &format!("10.{network}.0.9[tcp/80]"));
        let Flow { local, remote } = packet;
        pair.plane_event(A, Plane::Acquire { policy, local, remote, cpu: None });
        assert_eq!(acquires(&pair).len(), n, "{}", pair.story());
        let request = pair.command(A, initiate("net", Some(packet)));
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        let up = pair.a().children_up();
        assert_eq!(up.len(), n);
        assert_eq!(up[n - 1].remote_ts, [ts(&format!("10.{network}.0.0/16"))]);
        pair.plane_event(A, Plane::Acquire { policy, local, remote, cpu: None });
        assert_eq!(acquires(&pair).len(), n, "it has its child");
    }
    assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
}

/// The trap is on another shard, which does not see what is made here; or the packets met it before the
/// first of them had led to anything.
#[test]
fn s2_9_of_many_packets_that_met_a_trap_elsewhere_one_asks_for_a_child() {
    let (mut bench, mut peer) = bench();
    let packet = |n: u8| Some(flow(&format!("10.3.0.{n}[udp/1000]"), "10.4.0.9[udp/53]"));
    let first = bench.world.command(0, initiate("more", packet(1)));
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    let second = bench.world.command(0, initiate("more", packet(2)));
    let answer = [
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(1008))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![ts("10.3.0.0/16")]),
        Payload::TsR(vec![ts("10.4.0.0/16")]),
    ];
    let sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 0, true, &answer));
    assert_eq!(sent.len(), 0, "another child is asked for");
    let third = bench.world.command(0, initiate("more", packet(3)));
    assert_eq!(bench.sent().len(), 0);
    for request in [first, second, third] {
        assert_eq!(bench.host().done(request), Some(Ok(())));
    }
    assert_eq!(bench.host().children_up().len(), 2);
    // An operator who wants another one gets it.
    bench.world.command(0, initiate("more", None));
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn s2_9_packets_that_met_a_trap_elsewhere_wait_for_the_same_attempt() {
    let mut bench = Bench::new();
    let packet = |n: u8| Some(flow(&format!("10.1.0.{n}"), "10.2.0.9"));
    bench.world.command(0, initiate("net", packet(1)));
    assert_eq!(bench.sent().len(), 1);
    let second = bench.world.command(0, initiate("net", packet(2)));
    // The child of the first packet may not take the second one: the peer decides.
    assert_eq!((bench.host().done(second), bench.sent().len()), (None, 0));
    let again = bench.world.command(0, initiate("net", packet(2)));
    assert_eq!(bench.host().done(again), Some(Ok(())), "it waits already");
    // Further packets of a scan do not wait.
    for n in 3..=20 {
        bench.world.command(0, initiate("net", packet(n)));
    }
    let last = bench.world.command(0, initiate("net", packet(21)));
    assert_eq!(bench.host().done(last), Some(Ok(())));
}

/// An endpoint with a trap for its child "more", which is not up, and a peer.
fn bench_with_trap() -> (Bench, Handmade, PolicyId) {
    let (mut bench, peer) = bench();
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "more".to_owned());
    bench.world.command(0, Command::InstallTrap { connection, child, local, remote });
    let mut policies = bench.host().plane.table().policies();
    let policy = policies.find(|p| p.action == PolicyAction::Trap).map(|p| p.id).unwrap();
    drop(policies);
    (bench, peer, policy)
}

/// A packet meets the trap. True if the endpoint asks for a child; the request for one is in flight then.
fn asks(bench: &mut Bench, policy: PolicyId, packet: Flow) -> bool {
    let acquires = |bench: &Bench| {
        bench.host().events(|event| matches!(event, Event::Acquire { .. }).then_some(())).len()
    };
    let before = acquires(bench);
    let Flow { local, remote } = packet;
    bench.world.plane_event(0, Plane::Acquire { policy, local, remote, cpu: None });
    let asks = acquires(bench) > before;
    if asks {
        bench.world.command(0, initiate("more", Some(packet)));
    }
    asks
}

/// The answer of a peer to the request for "more": a child between these selectors.
fn grants(spi: u32, local: &str, remote: &str) -> Vec<Payload<'static>> {
    vec![
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(spi))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![ts(local)]),
        Payload::TsR(vec![ts(remote)]),
    ]
}

/// What the peer has refused is not asked for again at each packet, and not for ever either.
///
/// Faults: in `RequestedChild::on_error`, do not note the refusal. In `Queue::has_refused`, do not look at the time, or at
/// the packet.
#[test]
fn s2_9_traffic_that_the_peer_refuses_is_asked_for_again_after_a_minute() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    let packet = flow("10.3.0.9[udp/1000]", "10.4.0.9[udp/53]");
    assert!(asks(&mut bench, policy, packet));
    assert_eq!(bench.sent().len(), 1);
    let refused = [Payload::Notify(Notify::new(NotifyType::TS_UNACCEPTABLE, &[]))];
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 0, true, &refused));
    // Another port is another packet of the same pair.
    let next = flow("10.3.0.9[udp/1001]", "10.4.0.9[udp/54]");
    bench.world.run_for(Duration::from_secs(59));
    assert!(!asks(&mut bench, policy, next), "it has said no");
    let other = flow("10.3.0.9[udp/1000]", "10.4.0.10[udp/53]");
    assert!(asks(&mut bench, policy, other), "of this it has said nothing");
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 1, true, &refused));
    bench.world.run_for(Duration::from_secs(2));
    assert!(asks(&mut bench, policy, next));
}

/// A peer that takes no account of the packet grants the same child each time. One is enough. Until the other one is deleted the
/// peer may send by it, and a while longer.
///
/// Faults: in `RequestedChild::finish`, install the child; do not note the packet; queue `DeleteSpi` alone; or let the child
/// keep its policy.
#[test]
fn s2_9_the_same_child_once_more_is_deleted() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    let packet = |n: u8| flow("10.3.0.9[udp/1000]", &format!("10.4.{n}.9[udp/53]"));
    assert!(asks(&mut bench, policy, packet(0)));
    let granted = grants(1008, "10.3.0.0/24", "10.4.0.0/24");
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 0, true, &granted));
    assert!(asks(&mut bench, policy, packet(1)));
    bench.sent();
    let granted = grants(1009, "10.3.0.0/24", "10.4.0.0/24");
    let sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 1, true, &granted));
    assert_eq!(sent.len(), 1, "a Delete");
    let of = |bench: &Bench, spi| {
        let mut children = bench.host().children().into_iter();
        children.find(|child| child.outbound.spi == spi)
    };
    let (first, again) = (of(&bench, 1008).unwrap(), of(&bench, 1009).unwrap());
    // The policy of the inbound SA is that of the child that is up: it lets the packets in.
    let lets_in = |bench: &Bench| bench.host().plane.table().sa(again.inbound).map(|sa| sa.policy);
    assert_eq!(lets_in(&bench), Some(first.policy));
    assert!(bench.host().plane.table().sa(again.outbound).is_none());
    bench.give(&peer.seal(ExchangeType::INFORMATIONAL, 2, true, &[]));
    assert_eq!(lets_in(&bench), Some(first.policy), "more may be on its way");
    assert_eq!(bench.host().children_up().len(), 2, "net, and more once");
    assert!(!asks(&mut bench, policy, packet(1)));
    bench.world.run_for(Duration::from_secs(6));
    bench.assert_nothing_leaked();
    let routes = bench.host().plane.routes();
    assert!(routes.contains(&(first.policy, Some(first.outbound))), "{routes:?}");
}

/// A scan of what the peer refuses does not fill the log.
///
/// Faults: in `Queue::note_refused`, do not look at `told`, or at its time, or at the name.
#[test]
fn s2_9_what_the_peer_refuses_is_logged_once_in_ten_seconds() {
    let (log, _guard) = Log::watch();
    let (mut bench, mut peer, policy) = bench_with_trap();
    let refused = [Payload::Notify(Notify::new(NotifyType::TS_UNACCEPTABLE, &[]))];
    for n in 0..15_u8 {
        let packet = flow("10.3.0.9[udp/1000]", &format!("10.4.0.{n}[udp/53]"));
        assert!(asks(&mut bench, policy, packet));
        let id = u32::from(n);
        bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, id, true, &refused));
        assert_eq!(log.text().lines().count(), 1 + usize::from(n / 10), "{}", log.text());
        bench.world.run_for(Duration::from_secs(1));
    }
    let packet = flow("10.1.0.9[udp/1000]", "10.2.0.9[udp/53]");
    let net = bench.host().children_up().remove(0);
    bench.world.command(0, Command::TerminateChild(net.id));
    bench.give(&peer.seal(ExchangeType::INFORMATIONAL, 15, true, &[]));
    bench.world.command(0, initiate("net", Some(packet)));
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 16, true, &refused));
    assert_eq!(log.text().lines().count(), 3, "another child: {}", log.text());
}

/// A peer that grants a pair of addresses at a time: what is used stays, and there are no more than 64 beside the one
/// that is configured.
///
/// Faults: in `Children::is_crowded`, return false. In `Children::gives_way`, take the smallest.
#[test]
fn s2_9_of_too_many_narrow_children_the_one_that_is_idle_for_longest_ends() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    let spis = |bench: &Bench| -> Vec<u32> {
        let up = bench.host().children_up().into_iter();
        up.filter(|child| child.name == "more").map(|child| child.outbound.spi).collect()
    };
    let mut id = 0;
    for n in 0..66_u8 {
        let remote = format!("10.4.0.{n}");
        assert!(asks(&mut bench, policy, flow("10.3.0.9[udp/1000]", &format!("{remote}[udp/53]"))));
        bench.sent();
        let granted = grants(2000 + u32::from(n), "10.3.0.9", &remote);
        bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, id, true, &granted));
        id += 1;
        bench.world.run_for(Duration::from_secs(1));
        if n == 10 {
            // The first one is used once more.
            let first = bench.host().children_up().into_iter().find(|it| it.outbound.spi == 2000);
            let (first, now) = (first.unwrap().outbound, bench.world.now());
            bench.world.hosts[0].plane.count(first, 100, now);
        }
    }
    bench.give(&peer.seal(ExchangeType::INFORMATIONAL, id, true, &[]));
    let up = spis(&bench);
    assert_eq!(up.len(), 65);
    assert!(up.contains(&2000) && !up.contains(&2001), "{up:?}");
}

/// A peer that grants a pair of addresses at a time, and more pairs than may have a child at a time are in use: those
/// that have one keep it, and each of the rest is asked for once in a minute.
///
/// Faults: in `Children::gives_way`, take the one that is idle for longest whatever its idle time is. In
/// `Established::on_usage`, remember nothing of the newest one. In `Queue::has_refused`, leave `is_in` out.
#[test]
fn s2_9_narrow_children_that_are_in_use_do_not_end_each_other() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    let (mut id, mut asked) = (0, [0; 70]);
    for _ in 0..50 {
        for (n, asked) in asked.iter_mut().enumerate() {
            let remote = format!("10.4.0.{n}");
            let up = bench.host().children_up();
            let own = up.iter().find(|child| child.remote_ts == [ts(&remote)]);
            if let Some(own) = own {
                let now = bench.world.now();
                bench.world.hosts[0].plane.count(own.outbound, 100, now);
                continue;
            }
            if !asks(&mut bench, policy, flow("10.3.0.9[udp/1000]", &format!("{remote}[udp/53]"))) {
                continue;
            }
            *asked += 1;
            bench.sent();
            let granted = grants(2000 + id, "10.3.0.9", &remote);
            let deletes = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, id, true, &granted));
            id += 1;
            for _ in deletes {
                bench.give(&peer.seal(ExchangeType::INFORMATIONAL, id, true, &[]));
                id += 1;
            }
        }
        bench.world.run_for(Duration::from_secs(1));
    }
    assert_eq!(asked, [1; 70]);
    assert_eq!(id, 75, "a request for each pair, and a Delete for each that has no room");
    assert_eq!(bench.host().children_up().len(), 1 + 65);
}

/// What a thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What this thread logs from now on, of WARN and above.
    fn watch() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The trap of a road warrior names its own address, and its child the virtual IP. What is bound to the own address meets
/// the trap, and no child can take it: the peer is not asked, and nothing says that it has refused.
///
/// Faults: in `ChildSa::leaves_out`, return false. In `RequestedChild::finish`, note each packet. In
/// `Established::has_one_for`, ask only what the child takes.
#[test]
fn s2_9_a_packet_that_no_child_can_take_beside_a_virtual_ip_asks_for_none() {
    let (log, _guard) = Log::watch();
    let mut setup = Setup::new(1);
    setup.a.connection.vips = vec![IpAddr::from([0, 0, 0, 0])];
    setup.a.net().local_ts = vec![TsSpec::DYNAMIC];
    setup.b.connection.pools = vec!["pool".to_owned()];
    setup.b.net().remote_ts = vec![TsSpec::DYNAMIC];
    let mut pair = setup.build();
    pair.hosts[B].leaser = Some(Box::new(|request| {
        let lease = Lease { addresses: vec![IpAddr::from([10, 9, 0, 5])], ..Lease::default() };
        Answer::Leased(request.clone(), lease)
    }));
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::InstallTrap { connection, child, local, remote });
    pair.settle();
    let mut policies = pair.a().plane.table().policies();
    let policy = policies.find(|p| p.action == PolicyAction::Trap).map(|p| p.id).unwrap();
    drop(policies);

    let packet = |n: u8| flow("10.0.0.1[udp/1000]", &format!("10.2.{n}.9[udp/53]"));
    let meets = |pair: &mut Pair, n| {
        let Flow { local, remote } = packet(n);
        pair.plane_event(A, Plane::Acquire { policy, local, remote, cpu: None });
    };
    meets(&mut pair, 0);
    assert_eq!(acquires(&pair).len(), 1, "no child is up");
    let first = pair.command(A, initiate("net", Some(packet(0))));
    // These wait for the same attempt.
    let others = [1, 2].map(|n| pair.command(A, initiate("net", Some(packet(n)))));
    pair.run_for(Duration::from_secs(1));
    for request in [first].into_iter().chain(others) {
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    }
    assert_eq!(pair.a().child().local_ts, [ts("10.9.0.5")]);
    assert_eq!(pair.net.trace.len(), 4, "IKE_SA_INIT and IKE_AUTH: {}", pair.story());
    for n in 3..103 {
        meets(&mut pair, n);
        // The trap may belong to another shard.
        pair.command(A, initiate("net", Some(packet(n))));
        pair.settle();
    }
    assert_eq!(acquires(&pair).len(), 1, "{}", pair.story());
    assert_eq!(pair.net.trace.len(), 4, "{}", pair.story());
    assert_eq!(log.text(), "");
}

#[test]
fn s2_9_a_peer_that_wants_an_sa_for_each_pair_gets_one_for_each() {
    let mut side = side(1, 2);
    side.add_child("more", 3, 4);
    let mut bench = Bench::with(side);
    let mut peer = bench.established(1007);
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "more".to_owned());
    bench.world.command(0, Command::InstallTrap { connection, child, local, remote });
    let mut policies = bench.host().plane.table().policies();
    let policy = policies.find(|p| p.action == PolicyAction::Trap).map(|p| p.id).unwrap();
    drop(policies);
    for n in 0..3_u8 {
        let packet = flow("10.3.0.9[udp/1000]", &format!("10.4.0.{n}[udp/53]"));
        let Flow { local, remote } = packet;
        let acquires = |bench: &Bench| {
            bench.host().events(|event| matches!(event, Event::Acquire { .. }).then_some(())).len()
        };
        bench.world.plane_event(0, Plane::Acquire { policy, local, remote, cpu: None });
        assert_eq!(acquires(&bench), usize::from(n) + 1);
        bench.world.command(0, initiate("more", Some(packet)));
        bench.sent();
        let answer = [
            Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(2000 + u32::from(n)))),
            Payload::Nonce(&[7; 32]),
            Payload::TsI(vec![ts("10.3.0.9")]),
            Payload::TsR(vec![ts(&format!("10.4.0.{n}"))]),
        ];
        bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, u32::from(n), true, &answer));
        bench.world.plane_event(0, Plane::Acquire { policy, local, remote, cpu: None });
        assert_eq!(acquires(&bench), usize::from(n) + 1, "it is there");
    }
    assert_eq!(bench.host().children_up().len(), 4);
}
