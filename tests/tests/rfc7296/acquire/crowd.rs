//! Many children that packets have asked for, of a peer that grants a pair of addresses at a time.

use std::ops::Range;
use std::time::Duration;

use ike_proto::Command;
use ike_proto::dataplane::PolicyId;
use ike_proto::wire::payload::{Delete, Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use ike_tests::bench::{Bench, net};
use ike_tests::handmade::{ESP, Handmade, deleted, proposal};
use xfrm::{CommandKind, Fault};

use super::{asks, bench_with_trap, flow, grants, initiate, ts};

const SECOND: Duration = Duration::from_secs(1);

/// A packet to each 10.4.0.n of `range` asks for a child, one in a second, and the peer grants its pair, with the SPI
/// 2000 + n. `id` is the message ID of the next request. Returns what follows from the last one.
fn fill(
    bench: &mut Bench,
    peer: &mut Handmade,
    policy: PolicyId,
    id: &mut u32,
    range: Range<u8>,
) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for n in range {
        assert_eq!(sent.len(), 0, "a Delete before {n}");
        let remote = format!("10.4.0.{n}");
        assert!(asks(bench, policy, flow("10.3.0.9[udp/1000]", &format!("{remote}[udp/53]"))));
        bench.sent();
        let granted = grants(2000 + u32::from(n), "10.3.0.9", &remote);
        sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, *id, true, &granted));
        *id += 1;
        bench.world.run_for(SECOND);
    }
    sent
}

/// The inbound SPI of the child whose outbound one is `spi`.
fn inbound(bench: &Bench, spi: u32) -> u32 {
    let mut children = bench.host().children().into_iter();
    children.find(|child| child.outbound.spi == spi).expect("the child").inbound.spi
}

/// The SPI in the only message of `sent`, a Delete.
fn ended(peer: &Handmade, sent: &[Vec<u8>]) -> Vec<u32> {
    let [only] = sent else { panic!("{} datagrams", sent.len()) };
    deleted(&peer.open(only).expect("sealed for the peer"))
}

/// The peer has traps of its own: a child that it asks for would be asked for again.
///
/// Fault: in `Children::is_crowded`, take any child for the newest.
#[test]
fn s2_9_beside_many_narrow_children_the_peers_newest_stays() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    // One more than there is room for, because the counters could not be read.
    bench.world.hosts[0].plane.inner.fail(Fault::Every(CommandKind::QueryUsage));
    let sent = fill(&mut bench, &mut peer, policy, &mut 0, 0..66);
    assert_eq!(sent.len(), 0, "none gives way");
    bench.world.hosts[0].plane.inner.heal();
    let request =
        peer.next_request(ExchangeType::CREATE_CHILD_SA, &grants(3000, "10.4.0.200", "10.3.0.9"));
    assert_eq!(bench.give(&request).len(), 1, "the response, and no Delete");
    bench.world.run_for(SECOND);
    assert_eq!(bench.sent().len(), 0, "no Delete");
    assert_eq!(bench.host().children_up().len(), 1 + 66 + 1);
}

/// What an operator has asked for ends by no packet, however long it is idle. What a packet has asked for still counts once
/// it is rekeyed.
///
/// Faults: in `ChildSa::may_give_way`, take each child that is ours. In `Terms::unkeyed`, let `line` not count for `asker`.
#[test]
fn s2_9_only_what_packets_have_asked_for_gives_way() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    bench.world.command(0, initiate("more", None));
    bench.sent();
    let granted = grants(1500, "10.3.0.9", "10.4.0.200");
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 0, true, &granted));
    let mut id = 1;
    let sent = fill(&mut bench, &mut peer, policy, &mut id, 0..65);
    assert_eq!(sent.len(), 0, "the operator's does not count");

    let first = bench.host().children_up().into_iter().find(|child| child.outbound.spi == 2000);
    bench.world.command(0, Command::RekeyChild(first.expect("the first one").id));
    bench.sent();
    let granted = grants(2900, "10.3.0.9", "10.4.0.0");
    let sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, id, true, &granted));
    assert_eq!(ended(&peer, &sent), [inbound(&bench, 2000)]);
    bench.give(&peer.seal(ExchangeType::INFORMATIONAL, id + 1, true, &[]));
    id += 2;

    let sent = fill(&mut bench, &mut peer, policy, &mut id, 65..66);
    assert_eq!(ended(&peer, &sent), [inbound(&bench, 2001)]);
}

/// One of the children has no outbound SA yet, because the peer has not used its rekey: the counters of the others are
/// read.
///
/// Fault: in `Established::query`, ask for both SAs of each child.
#[test]
fn s2_9_an_sa_that_is_not_there_keeps_no_narrow_child_from_giving_way() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    let rekey = [
        Payload::Notify(Notify::esp(NotifyType::REKEY_SA, 1007)),
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(1008))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![net(2)]),
        Payload::TsR(vec![net(1)]),
    ];
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &rekey);
    assert_eq!(bench.give(&request).len(), 1);
    let sent = fill(&mut bench, &mut peer, policy, &mut 0, 0..66);
    assert_eq!(ended(&peer, &sent), [inbound(&bench, 2000)]);
}

/// Without the counters nobody knows which children are in use, and none ends. At twice their number there is none for
/// another packet, and each pair asks once in a minute.
///
/// Faults: in `Established::on_data_plane`, take an error for an empty answer. In `Children::is_full_of`, return false. In
/// `Established::start_child`, remember nothing.
#[test]
fn s2_9_no_narrow_child_ends_if_the_counters_cannot_be_read() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    bench.world.hosts[0].plane.inner.fail(Fault::Every(CommandKind::QueryUsage));
    let sent = fill(&mut bench, &mut peer, policy, &mut 0, 0..130);
    assert_eq!(sent.len(), 0, "no Delete");
    let packet = flow("10.3.0.9[udp/1000]", "10.4.0.130[udp/53]");
    assert!(asks(&mut bench, policy, packet));
    assert_eq!(bench.sent().len(), 0, "there are too many");
    assert!(!asks(&mut bench, policy, packet));
    assert_eq!(bench.host().children_up().len(), 1 + 130);

    // The peer ends one of them.
    let spis = vec![2007];
    let delete = [Payload::Delete(Delete { protocol: ProtocolId::ESP, spis })];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    bench.give(&request);
    bench.world.run_for(60 * SECOND);
    assert!(asks(&mut bench, policy, packet));
    assert_eq!(bench.sent().len(), 1);
}

/// A child of many selectors for which there is no room takes the place of 16 refusals, and not of all.
///
/// Fault: in `Established::on_usage`, remember each pair.
#[test]
fn s2_9_a_wide_child_without_room_makes_no_refusal_forgotten() {
    let (mut bench, mut peer, policy) = bench_with_trap();
    let mut id = 0;
    fill(&mut bench, &mut peer, policy, &mut id, 0..65);
    for child in bench.host().children_up() {
        let now = bench.world.now();
        bench.world.hosts[0].plane.count(child.outbound, 100, now);
    }
    let refused = flow("10.3.0.9[udp/1000]", "10.4.0.200[udp/53]");
    assert!(asks(&mut bench, policy, refused));
    let answer = [Payload::Notify(Notify::new(NotifyType::TS_UNACCEPTABLE, &[]))];
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, id, true, &answer));
    let wide = flow("10.3.1.0[udp/1000]", "10.4.1.0[udp/53]");
    assert!(asks(&mut bench, policy, wide));
    bench.sent();
    let list = |of: u8| (0..17).map(|n| ts(&format!("10.{of}.1.{n}"))).collect();
    let granted = [
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(3000))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(list(3)),
        Payload::TsR(list(4)),
    ];
    let sent = bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, id + 1, true, &granted));
    assert_eq!(ended(&peer, &sent), [inbound(&bench, 3000)]);
    bench.give(&peer.seal(ExchangeType::INFORMATIONAL, id + 2, true, &[]));
    assert!(!asks(&mut bench, policy, wide), "there is no room");
    assert!(!asks(&mut bench, policy, refused), "it has said no");
}
