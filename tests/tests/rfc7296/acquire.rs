//! §2.9: the packet that asks for a child is what its selectors begin with.

use std::time::Duration;

use ike_proto::config::TsSpec;
use ike_proto::dataplane::{Event as Plane, Flow, PolicyAction, PolicyId, TrafficSelector};
use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use ike_proto::{Command, Event, Failure};
use ike_tests::bench::Bench;
use ike_tests::handmade::{ESP, Handmade, proposal};
use ike_tests::setup::{address, child, side};
use ike_tests::{A, Pair, Setup};

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
    let elsewhere = ts("10.2.0.9");
    pair.plane_event(A, Plane::Acquire { policy, local, remote: elsewhere, cpu: None });
    assert_eq!(acquires(&pair).len(), 1, "the peer has said what it takes");
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
    assert_eq!(bench.host().done(second), Some(Ok(())));
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
