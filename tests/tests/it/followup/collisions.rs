//! Exchanges of both ends that cross while a chain is under way.

use std::time::Duration;

use ike_proto::dataplane::{Event as Plane, Flow, PolicyAction};
use ike_proto::wire::payload::{Ke, Payload, Spi};
use ike_proto::wire::registry::{KeMethodId, NotifyType, ProtocolId};
use ike_proto::{Command, Event};
use ike_tests::bench::{Bench, net};
use ike_tests::handmade::{ESP, Handmade, notifies, proposal};
use ike_tests::setup::address;

use crate::followup::stage::request;
use crate::followup::stage::{
    CREATE_CHILD_SA, FOLLOWUP, For, INFORMATIONAL, accept_child, accept_ike, bench,
};
use crate::followup::stage::{
    bench_with, create, delete, delete_ike, follow, link_of, opened, refuse,
};

/// Lower than any nonce of an exchange of the peer, and higher.
const LOW: [u8; 32] = [0; 32];
const HIGH: [u8; 32] = [0xff; 32];

/// The child or the IKE SA is rekeyed by the endpoint: the message ID of its request.
#[track_caller]
fn rekey(bench: &mut Bench, peer: &Handmade, ike: bool) -> u32 {
    let command = match ike {
        true => Command::RekeyIke(bench.host().ike().id),
        false => Command::RekeyChild(bench.host().child().id),
    };
    bench.world.command(0, command);
    let sent = bench.sent();
    request(peer, &sent, CREATE_CHILD_SA).0
}

/// The peer's answer to it, additional key exchange to come.
fn accept(
    bench: &mut Bench,
    peer: &mut Handmade,
    ike: bool,
    id: u32,
    nonce: &[u8],
) -> Vec<Vec<u8>> {
    match ike {
        true => accept_ike(bench, peer, id, 0x99, nonce),
        false => accept_child(bench, peer, id, 2099, nonce),
    }
}

fn theirs(ike: bool) -> For {
    if ike { For::Ike(0x77) } else { For::Rekey(2007, 1007) }
}

/// Takes the endpoint's rekey of the child as far as its IKE_FOLLOWUP_KE: the message ID of that.
#[track_caller]
fn following(bench: &mut Bench, peer: &mut Handmade) -> u32 {
    let id = rekey(bench, peer, false);
    let sent = accept(bench, peer, false, id, &HIGH);
    request(peer, &sent, FOLLOWUP).0
}

/// The peer did not know of the endpoint's request when it went on with its own, and says so.
#[test]
fn the_peer_goes_on_with_what_crossed_ours() {
    for ike in [false, true] {
        let mut bench = bench();
        let mut peer = bench.established(1007);
        let id = rekey(&mut bench, &peer, ike);
        let link = opened(&mut bench, &mut peer, theirs(ike));
        assert_eq!(follow(&mut bench, &mut peer, &link), [], "ike: {ike}");
        refuse(&mut bench, &mut peer, CREATE_CHILD_SA, id, NotifyType::TEMPORARY_FAILURE);
        if ike {
            delete_ike(&mut bench, &mut peer);
            assert_eq!(bench.host().ike().spi_i, 0x77);
        } else {
            delete(&mut bench, &mut peer, 1007);
        }
        bench.world.run_for(Duration::from_secs(60));
        assert_eq!(bench.sent().len(), 0, "ike: {ike}: what was done is not done again");
        assert_eq!(bench.host().child().outbound.spi, if ike { 1007 } else { 2007 });
        bench.assert_nothing_leaked();
    }
}

/// The peer's exchange has the lowest nonce: the endpoint goes on with its own, and only with that.
#[test]
fn the_peer_does_not_go_on_with_what_has_lost() {
    for ike in [false, true] {
        let mut bench = bench();
        let mut peer = bench.established(1007);
        let id = rekey(&mut bench, &peer, ike);
        let link = opened(&mut bench, &mut peer, theirs(ike));
        let sent = accept(&mut bench, &mut peer, ike, id, &HIGH);
        request(&peer, &sent, FOLLOWUP);
        let errors = follow(&mut bench, &mut peer, &link);
        assert_eq!(errors, [NotifyType::TEMPORARY_FAILURE], "ike: {ike}");
        assert_eq!((bench.host().ikes().len(), bench.host().children().len()), (1, 1));
    }
}

/// The endpoint's own exchange has the lowest nonce: it stops, and begins anew if the peer stops as well.
#[test]
fn the_loser_tries_again_if_the_winner_does_not_go_on() {
    for ike in [false, true] {
        for answered in [false, true] {
            let mut bench = bench();
            let mut peer = bench.established(1007);
            let id = rekey(&mut bench, &peer, ike);
            opened(&mut bench, &mut peer, theirs(ike));
            let sent = match answered {
                true => accept(&mut bench, &mut peer, ike, id, &LOW),
                false => {
                    let error = NotifyType::TEMPORARY_FAILURE;
                    refuse(&mut bench, &mut peer, CREATE_CHILD_SA, id, error)
                }
            };
            assert_eq!(sent.len(), 0, "ike: {ike}");
            bench.world.run_for(Duration::from_secs(170));
            assert_eq!(bench.sent().len(), 0, "ike: {ike}: the peer has its time");
            bench.world.run_for(Duration::from_secs(60));
            let sent = bench.sent();
            request(&peer, &sent, CREATE_CHILD_SA);
        }
    }
}

/// The same where the endpoint's own exchange was complete, without an additional key exchange.
#[test]
fn a_complete_loser_tries_again_if_the_winner_does_not_go_on() {
    let mut bench = bench();
    let mut peer = bench.established(1007);
    let id = rekey(&mut bench, &peer, false);
    opened(&mut bench, &mut peer, theirs(false));
    let mut sa = proposal(ProtocolId::ESP, ESP, Spi::Esp(2099));
    sa.proposals[0].number = 2;
    let response = [
        Payload::Sa(sa),
        Payload::Nonce(&LOW),
        Payload::TsI(vec![net(1)]),
        Payload::TsR(vec![net(2)]),
    ];
    let response = peer.seal(CREATE_CHILD_SA, id, true, &response);
    let sent = bench.give(&response);
    let (id, _) = request(&peer, &sent, INFORMATIONAL);
    let response = peer.seal(INFORMATIONAL, id, true, &[]);
    assert_eq!(bench.give(&response).len(), 0);
    bench.world.run_for(Duration::from_secs(170));
    assert_eq!(bench.sent().len(), 0, "the peer has its time");
    bench.world.run_for(Duration::from_secs(60));
    let sent = bench.sent();
    request(&peer, &sent, CREATE_CHILD_SA);
}

/// Only the endpoint's rekey of the IKE SA has an additional key exchange: the peer's, complete, stays if
/// that one does not come to its end.
#[test]
fn of_a_chain_and_a_complete_rekey_one_stays() {
    for dead in [false, true] {
        let mut bench = bench();
        let mut peer = bench.established(1007);
        let id = rekey(&mut bench, &peer, true);
        let answer = create(&mut bench, &mut peer, For::IkeClassic(0x77));
        assert_eq!((notifies(&answer), link_of(&answer)), (vec![], None));
        let sent = accept(&mut bench, &mut peer, true, id, &HIGH);
        request(&peer, &sent, FOLLOWUP);
        if dead {
            bench.world.run_for(Duration::from_secs(200));
        } else {
            delete_ike(&mut bench, &mut peer);
        }
        assert_eq!(bench.host().ike().spi_i, 0x77, "dead: {dead}");
        assert_eq!(bench.host().child().outbound.spi, 1007);
    }
}

/// A request about the child of the endpoint's chain overtakes the last response of it.
#[test]
fn a_rekey_of_a_child_still_unborn_is_put_off() {
    let mut bench = bench();
    let mut peer = bench.established(1007);
    following(&mut bench, &mut peer);
    let answer = create(&mut bench, &mut peer, For::Rekey(3007, 2099));
    assert_eq!(notifies(&answer), [NotifyType::TEMPORARY_FAILURE]);
}

#[test]
fn a_child_that_is_deleted_before_it_is_born_is_not_made() {
    let mut bench = bench();
    let mut peer = bench.established(1007);
    let id = following(&mut bench, &mut peer);
    delete(&mut bench, &mut peer, 2099);
    let ke = [Payload::Ke(Ke { method: KeMethodId::ECP_256, data: &[8; 64] })];
    let response = peer.seal(FOLLOWUP, id, true, &ke);
    let sent = bench.give(&response);
    // As RFC 7296 has it, both are gone then.
    let (id, _) = request(&peer, &sent, INFORMATIONAL);
    let response = peer.seal(INFORMATIONAL, id, true, &[]);
    bench.give(&response);
    assert_eq!(bench.host().children().len(), 0);
    bench.assert_nothing_leaked();
}

/// Packets go on asking for a child while it is being made, or put off: one is enough.
#[test]
fn a_packet_asks_for_one_child() {
    for put_off in [false, true] {
        let mut bench = bench_with("more");
        let mut peer = bench.established(1007);
        let local = "10.3.0.9[udp/1000]".parse().unwrap();
        let remote = "10.4.0.9[udp/53]".parse().unwrap();
        let (connection, child) = ("ab".to_owned(), "more".to_owned());
        let (here, there) = (address(1), address(2));
        bench.world.command(
            0,
            Command::InstallTrap {
                connection: connection.clone(),
                child: child.clone(),
                local: here,
                remote: there,
            },
        );
        let mut policies = bench.host().plane.table().policies();
        let policy = policies.find(|p| p.action == PolicyAction::Trap).map(|p| p.id).unwrap();
        drop(policies);
        bench.world.command(
            0,
            Command::Initiate {
                connection,
                child: Some(child),
                local: here,
                remote: there,
                packet: Some(Flow { local, remote }),
            },
        );
        let sent = bench.sent();
        let (id, _) = request(&peer, &sent, CREATE_CHILD_SA);
        if put_off {
            let error = NotifyType::TEMPORARY_FAILURE;
            refuse(&mut bench, &mut peer, CREATE_CHILD_SA, id, error);
        } else {
            let sent = accept_child(&mut bench, &mut peer, id, 2099, &HIGH);
            request(&peer, &sent, FOLLOWUP);
        }
        bench.world.plane_event(0, Plane::Acquire { policy, local, remote, cpu: None });
        let asked = bench.host().events(|e| matches!(e, Event::Acquire { .. }).then_some(()));
        assert_eq!(asked.len(), 0, "put off: {put_off}");
    }
}
