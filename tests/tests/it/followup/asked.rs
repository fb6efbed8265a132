//! The endpoint asks, and the peer answers its IKE_FOLLOWUP_KE with less than it hopes for.

use std::time::Duration;

use ike_proto::keys::Opened;
use ike_proto::wire::registry::{ExchangeType, NotifyType};
use ike_proto::{Command, Failure};
use ike_tests::bench::Bench;
use ike_tests::handmade::Handmade;

use crate::followup::stage::{
    CREATE_CHILD_SA, FOLLOWUP, INFORMATIONAL, accept_child, accept_ike, bench,
};
use crate::followup::stage::{deletes_ike, is, refuse, request};

const NONCE: [u8; 32] = [0x55; 32];

/// Waits for the endpoint's CREATE_CHILD_SA and takes it as far as its IKE_FOLLOWUP_KE, whose message
/// ID is returned.
#[track_caller]
fn chain(bench: &mut Bench, peer: &mut Handmade, sent: Vec<Vec<u8>>, ike: bool, spi: u32) -> u32 {
    let mut sent = sent;
    for _ in 0..60 {
        if sent.iter().any(|sent| is(sent, Some(CREATE_CHILD_SA), false)) {
            break;
        }
        bench.world.run_for(Duration::from_secs(1));
        sent.extend(bench.sent());
    }
    let (id, _) = request(peer, &sent, CREATE_CHILD_SA);
    let sent = match ike {
        true => accept_ike(bench, peer, id, spi.into(), &NONCE),
        false => accept_child(bench, peer, id, spi, &NONCE),
    };
    request(peer, &sent, FOLLOWUP).0
}

//= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-multiple-ke-12#section-2.2.4
//# If the
//# initiator continues to receive STATE_NOT_FOUND notifications after
//# several retries, it MUST treat this situation as a fatal error and
//# delete IKE SA by sending a DELETE payload.
#[test]
fn a_peer_that_keeps_forgetting_is_left() {
    for ike in [false, true] {
        let mut bench = bench();
        let mut peer = bench.established(1007);
        let command = match ike {
            true => Command::RekeyIke(bench.host().ike().id),
            false => Command::RekeyChild(bench.host().child().id),
        };
        bench.world.command(0, command);
        let mut sent = bench.sent();
        for spi in 1..=3 {
            assert!(!sent.iter().any(|sent| is(sent, Some(INFORMATIONAL), false)), "time {spi}");
            let id = chain(&mut bench, &mut peer, sent, ike, 2000 + spi);
            sent = refuse(&mut bench, &mut peer, FOLLOWUP, id, NotifyType::STATE_NOT_FOUND);
        }
        let (id, deletion) = request(&peer, &sent, INFORMATIONAL);
        assert!(deletes_ike(&deletion));
        let response = peer.seal(INFORMATIONAL, id, true, &[]);
        bench.give(&response);
        let downs: Vec<_> = bench.host().ike_downs().into_iter().map(|(_, why)| why).collect();
        assert_eq!(downs, [Failure::Peer(NotifyType::STATE_NOT_FOUND)]);
        bench.assert_nothing_leaked();
    }
}

//= https://www.rfc-editor.org/rfc/rfc7296#section-2.25
//# If a peer continues to
//# receive TEMPORARY_FAILURE on the same IKE SA after several minutes,
//# it SHOULD conclude that the state information is out of sync and
//# close the IKE SA.
/// An answer that opens a chain is none: what comes of it, its last exchange says.
#[test]
fn a_peer_that_puts_off_every_chain_is_left() {
    let mut bench = bench();
    let mut peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::RekeyChild(child));
    let (start, mut sent) = (bench.world.now(), bench.sent());
    for spi in 2000.. {
        if let Some((id, deletion)) = other_request(&peer, &sent, INFORMATIONAL) {
            assert!(deletes_ike(&deletion));
            assert!(bench.world.now() - start >= Duration::from_secs(5 * 60));
            let response = peer.seal(INFORMATIONAL, id, true, &[]);
            bench.give(&response);
            break;
        }
        assert!(bench.world.now() - start < Duration::from_secs(7 * 60), "it goes on for ever");
        let id = chain(&mut bench, &mut peer, sent, false, spi);
        sent = refuse(&mut bench, &mut peer, FOLLOWUP, id, NotifyType::TEMPORARY_FAILURE);
    }
    let downs: Vec<_> = bench.host().ike_downs().into_iter().map(|(_, why)| why).collect();
    assert_eq!(downs, [Failure::Peer(NotifyType::TEMPORARY_FAILURE)]);
    bench.assert_nothing_leaked();
}

/// The request of this exchange in `sent`, if there is one.
fn other_request(
    peer: &Handmade,
    sent: &[Vec<u8>],
    exchange: ExchangeType,
) -> Option<(u32, Opened)> {
    sent.iter().any(|sent| is(sent, Some(exchange), false)).then(|| request(peer, sent, exchange))
}
