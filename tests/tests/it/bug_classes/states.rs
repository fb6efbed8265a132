//! Classes 21 and 23: messages in a state that does not expect them, and deletes of what is deleted.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{IdMatch, PreSharedKey, Retransmission};
use ike_proto::crypto::Secret;
use ike_proto::wire::payload::{Delete, Ke, Notify, Payload, Spi, TrafficSelector};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};
use ike_proto::{ChildState, Command, Failure};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::{ESP, Handmade, IKE, deleted, notifies, proposal};
use ike_tests::setup::{address, identity, side};

const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;
const CREATE_CHILD_SA: ExchangeType = ExchangeType::CREATE_CHILD_SA;
const IKE_INTERMEDIATE: ExchangeType = ExchangeType(43);
const IKE_FOLLOWUP_KE: ExchangeType = ExchangeType(44);

/// What an outsider and the operator can see of the endpoint's SAs.
fn state(bench: &Bench) -> String {
    let plane = &bench.host().plane;
    format!("{:?} {:?} {:?}", bench.host().ikes(), plane.inbound_spis(), plane.outbound_spis())
}

/// True if nothing sent is sealed for the peer.
fn nothing_protected(peer: &Handmade, sent: &[Vec<u8>]) -> bool {
    sent.iter().all(|sent| peer.open(sent).is_none())
}

#[test]
fn class_21_spis_of_no_ike_sa() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let before = state(&bench);
    let (spi_i, spi_r) = (peer.spi_i, peer.spi_r);
    for (i, r) in [(spi_i, 0), (spi_i, spi_i), (spi_r, spi_r), (spi_r, spi_i), (spi_i + 1, spi_r)] {
        (peer.spi_i, peer.spi_r) = (i, r);
        for exchange in [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_AUTH, INFORMATIONAL] {
            for response in [false, true] {
                let delete = [Payload::Delete(Delete::ike())];
                let datagram = peer.seal(exchange, peer.next_id, response, &delete);
                let sent = bench.give(&datagram);
                assert!(nothing_protected(&peer, &sent), "{i:x}/{r:x} {exchange}");
                assert!(!response || sent.is_empty(), "an answer to a response");
            }
        }
    }
    assert_eq!(state(&bench), before);
}

#[test]
fn class_21_a_response_without_a_request() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let before = state(&bench);
    for exchange in [ExchangeType::IKE_AUTH, CREATE_CHILD_SA, INFORMATIONAL, ExchangeType(99)] {
        for message_id in [0, 1, 2, 3, u32::MAX] {
            let delete = [Payload::Delete(Delete::ike())];
            let response = peer.seal(exchange, message_id, true, &delete);
            assert_eq!(bench.give(&response).len(), 0, "{exchange} {message_id}");
        }
    }
    assert_eq!(state(&bench), before);
}

#[test]
fn class_21_a_response_of_another_exchange_or_number() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::RekeyChild(child));
    assert_eq!(bench.sent().len(), 1, "CREATE_CHILD_SA, message ID 0");
    let before = state(&bench);
    for exchange in [ExchangeType::IKE_AUTH, INFORMATIONAL, IKE_FOLLOWUP_KE, ExchangeType(99)] {
        let response = peer.seal(exchange, 0, true, &[]);
        assert_eq!(bench.give(&response).len(), 0, "{exchange}");
    }
    for message_id in [1, 2, u32::MAX] {
        let response = peer.seal(CREATE_CHILD_SA, message_id, true, &[]);
        assert_eq!(bench.give(&response).len(), 0, "{message_id}");
    }
    assert_eq!(state(&bench), before);
    // From the wrong end: the flag says that the endpoint itself sent it.
    peer.initiator = false;
    let response = peer.seal(CREATE_CHILD_SA, 0, true, &[]);
    assert_eq!(bench.give(&response).len(), 0);
    peer.initiator = true;
    assert_eq!(state(&bench), before);
    let busy = [Payload::Notify(Notify::new(NotifyType::NO_ADDITIONAL_SAS, &[]))];
    let response = peer.seal(CREATE_CHILD_SA, 0, true, &busy);
    bench.give(&response);
    assert_eq!(bench.host().ike().outstanding, None, "the right one is taken");
}

#[test]
fn class_21_requests_out_of_turn() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let before = state(&bench);
    for message_id in [0, 1, 3, 4, u32::MAX - 1, u32::MAX] {
        // 1 was IKE_AUTH: not the same exchange, so no retransmission of it.
        let delete = [Payload::Delete(Delete::ike())];
        let request = peer.seal(INFORMATIONAL, message_id, false, &delete);
        assert_eq!(bench.give(&request).len(), 0, "{message_id}");
    }
    assert_eq!(state(&bench), before);
    let request = peer.seal(INFORMATIONAL, 2, false, &[]);
    assert_eq!(bench.give(&request).len(), 1);
}

#[test]
fn class_21_exchanges_before_authentication() {
    let exchanges =
        [CREATE_CHILD_SA, INFORMATIONAL, IKE_INTERMEDIATE, IKE_FOLLOWUP_KE, ExchangeType(99)];
    for exchange in exchanges {
        let payload_sets = [
            vec![],
            vec![Payload::Delete(Delete::ike())],
            vec![Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT, &[]))],
            child_payloads(1009),
            rekey_ike_payloads(),
        ];
        for payloads in payload_sets {
            let mut bench = Bench::new();
            let friend = bench.established(1007);
            let mut stranger = bench.half_open();
            let request = stranger.next_request(exchange, &payloads);
            let sent = bench.give(&request);
            assert!(sent.len() <= 1);
            for answer in &sent {
                let opened = stranger.open(answer).expect("sealed for the stranger");
                assert_eq!(notifies(&opened), [NotifyType::INVALID_SYNTAX], "{exchange}");
            }
            // The friend's SA is as it was.
            assert_eq!(bench.host().ike().spi_r, friend.spi_r);
            bench.host().child();
            bench.assert_nothing_leaked();
        }
    }
}

#[test]
fn class_21_exchanges_after_authentication() {
    let exchanges = [ExchangeType::IKE_AUTH, IKE_INTERMEDIATE, IKE_FOLLOWUP_KE, ExchangeType(99)];
    for exchange in exchanges {
        let mut bench = Bench::new();
        let mut peer = bench.established(1007);
        let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
        let request = peer.next_request(exchange, &auth_payloads(&id, &auth, 1009, true));
        let sent = bench.give(&request);
        assert_eq!(sent.len(), 1, "RFC 7296 §2.21.3: every request is answered");
        let opened = peer.open(&sent[0]).expect("sealed for the peer");
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-multiple-ke-12#section-2.2.4
        //# If the responder receives an
        //# IKE_FOLLOWUP_KE message for which it does not have a key exchange
        //# state, it MUST send back a new error type notification
        //# STATE_NOT_FOUND.  This is a non-fatal error notification
        let no_state = exchange == IKE_FOLLOWUP_KE;
        let kind = if no_state { NotifyType::STATE_NOT_FOUND } else { NotifyType::INVALID_SYNTAX };
        assert_eq!(notifies(&opened), [kind], "{exchange}");
        assert_eq!(bench.host().children_up().len(), usize::from(no_state), "{exchange}");
        bench.assert_nothing_leaked();
    }
}

#[test]
fn class_21_an_sa_that_failed_is_not_there_any_more() {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let (id, wrong) = (identity(2), [7; 32]);
    let request =
        peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &wrong, 1007, true));
    assert!(!nothing_protected(&peer, &bench.give(&request)), "AUTHENTICATION_FAILED");
    let good = peer.auth(&identity(2), PSK);
    for message_id in [1, 2] {
        let payloads = auth_payloads(&id, &good, 1007, true);
        let request = peer.seal(ExchangeType::IKE_AUTH, message_id, false, &payloads);
        let sent = bench.give(&request);
        assert!(nothing_protected(&peer, &sent));
    }
    assert_eq!(bench.host().ikes().len(), 0);
    bench.assert_nothing_leaked();
}

#[test]
fn class_21_a_request_that_overtakes_the_ike_auth_response() {
    let mut bench = Bench::new();
    let (request, mut peer, _) = bench.answering();
    for exchange in [INFORMATIONAL, CREATE_CHILD_SA, ExchangeType::IKE_AUTH] {
        let early = peer.seal(exchange, 0, false, &child_payloads(1009));
        assert_eq!(bench.give(&early).len(), 0, "{exchange}");
    }
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, false);
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    bench.give(&response);
    assert_eq!(bench.host().done(request), Some(Ok(())), "the attempt is not harmed");
    // Sent again, it is heard.
    let again = peer.seal(INFORMATIONAL, 0, false, &[]);
    assert_eq!(bench.give(&again).len(), 1);
}

#[test]
fn class_21_no_request_before_the_ike_auth_response() {
    let mut side = side(1, 2);
    side.plane.delay = Duration::from_secs(1);
    side.settings.retransmission = Retransmission::strongswan();
    side.add_child("more", 1, 2);
    let mut bench = Bench::with(side);
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = auth_payloads(&id, &auth, 1007, true);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(bench.give(&request).len(), 0, "the data plane is at work");
    bench.world.command(0, ike_tests::bench::initiate());
    assert_eq!(bench.sent().len(), 0);
    bench.world.run_for(Duration::from_secs(2));
    let sent = bench.sent();
    let first = ike_proto::wire::Header::decode(&sent[0]).expect("a message");
    assert_eq!((first.exchange, first.flags.response), (ExchangeType::IKE_AUTH, true));
    assert_eq!(sent.len(), 2, "and then the request");
}

#[test]
fn class_21_a_rekey_that_overtakes_the_response_that_made_the_child() {
    let mut side = side(1, 2);
    side.add_child("more", 1, 2);
    let mut bench = Bench::with(side);
    let mut peer = bench.established(1007);
    let (connection, child) = ("ab".to_owned(), Some("more".to_owned()));
    let (local, remote) = (address(1), address(2));
    bench.world.command(0, Command::Initiate { connection, child, local, remote, packet: None });
    assert_eq!(bench.sent().len(), 1);
    // The peer has made the child 1009 and rekeys it, and its response is late.
    let mut payloads = child_payloads(1011);
    payloads.insert(0, Payload::Notify(Notify::esp(NotifyType::REKEY_SA, 1009)));
    let early = peer.next_request(CREATE_CHILD_SA, &payloads);
    let sent = bench.give(&early);
    let opened = peer.open(&sent[0]).expect("sealed for the peer");
    assert_eq!(notifies(&opened), [NotifyType::TEMPORARY_FAILURE], "it may well exist");
    let response = peer.seal(CREATE_CHILD_SA, 0, true, &child_answer(1009));
    bench.give(&response);
    assert_eq!(bench.host().children_up().len(), 2);
    let again = peer.next_request(CREATE_CHILD_SA, &payloads);
    let sent = bench.give(&again);
    let opened = peer.open(&sent[0]).expect("sealed for the peer");
    assert_eq!(notifies(&opened), []);
}

#[test]
fn class_21_an_initiators_spi_may_be_chosen_twice() {
    let mut bench = Bench::new();
    let friend = bench.established(1007);
    // The same IKE_SA_INIT request from elsewhere is a duplicate (RFC 7296 §2.1). Another one with the
    // same SPI is not.
    let elsewhere = SocketAddr::new(IpAddr::from([10, 0, 0, 2]), 4711);
    assert_eq!(bench.give_from(elsewhere, &friend.request).len(), 0);
    let mut stranger = bench.start();
    stranger.spi_i = friend.spi_i;
    let request = stranger.encode(&stranger.payloads());
    assert_eq!(bench.give(&request).len(), 1);
    assert_eq!(bench.host().endpoint.half_open(), 1);
    assert_eq!(bench.host().ike().spi_r, friend.spi_r);
    bench.host().child();
}

#[test]
fn class_21_what_the_endpoint_sent_comes_back_to_it() {
    // With one key for all who have it, an endpoint has the key that its own messages prove.
    let mut side = side(1, 2);
    side.connection.set_remote_id(IdMatch::Any);
    let secret = Secret::copy_from(PSK);
    side.settings.secrets = vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })];
    for mut bench in [Bench::new(), Bench::with(side)] {
        let (request, init) = bench.initiate();
        // A mirror answers: the endpoint is asked to answer itself.
        let mut mirrored = bench.give(&init);
        for _ in 0..10 {
            let sent: Vec<_> = mirrored.iter().flat_map(|datagram| bench.give(datagram)).collect();
            mirrored = sent;
        }
        assert_eq!(bench.host().children().len(), 0, "authenticated by its own messages");
        bench.world.run_for(Duration::from_secs(600));
        assert_eq!(bench.host().ikes().len(), 0);
        assert!(matches!(bench.host().done(request), Some(Err(_))));
        bench.assert_nothing_leaked();
    }
}

#[test]
fn class_21_invalid_ike_spi_and_other_unprotected_notifies_end_nothing() {
    use ike_proto::wire::{Flags, Header, encode_message};
    let mut bench = Bench::new();
    let peer = bench.established(1007);
    let child = bench.host().child().id;
    bench.world.command(0, Command::RekeyChild(child));
    let asked = bench.sent().remove(0);
    let before = state(&bench);
    let header = Header::decode(&asked).expect("a request");
    for kind in [1, 4, 5, 7, 9, 11, 14, 24, 43] {
        let notify = [Payload::Notify(Notify::new(NotifyType(kind), &[]))];
        for exchange in [header.exchange, INFORMATIONAL, ExchangeType::IKE_SA_INIT] {
            let flags = Flags { initiator: true, version: false, response: true };
            let header = Header { exchange, flags, ..header };
            let sent = bench.give(&encode_message(&header, &notify));
            assert!(nothing_protected(&peer, &sent), "{kind}");
        }
    }
    assert_eq!(state(&bench), before);
}

// ---- class 23 ----

fn child_payloads(spi: u32) -> Vec<Payload<'static>> {
    vec![
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(spi))),
        Payload::Nonce(&[9; 32]),
        Payload::TsI(vec![net(2)]),
        Payload::TsR(vec![net(1)]),
    ]
}

/// The same as an answer to the endpoint's request.
fn child_answer(spi: u32) -> Vec<Payload<'static>> {
    let mut payloads = child_payloads(spi);
    payloads[2] = Payload::TsI(vec![net(1)]);
    payloads[3] = Payload::TsR(vec![net(2)]);
    payloads
}

fn rekey_ike_payloads() -> Vec<Payload<'static>> {
    vec![
        Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::Ike(0x77))),
        Payload::Nonce(&[9; 32]),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &[3; 32] }),
    ]
}

/// Sends deletes in one request, and returns the SPIs the answer names.
#[track_caller]
fn delete(bench: &mut Bench, peer: &mut Handmade, deletes: Vec<Delete>) -> Vec<u32> {
    let payloads: Vec<_> = deletes.into_iter().map(Payload::Delete).collect();
    let request = peer.next_request(INFORMATIONAL, &payloads);
    let sent = bench.give(&request);
    let answers: Vec<_> = sent.iter().filter_map(|sent| peer.open(sent)).collect();
    assert!(!answers.is_empty(), "every request is answered");
    answers.iter().flat_map(deleted).collect()
}

#[test]
fn class_23_a_delete_of_the_ike_sa_with_company() {
    let companies: [Vec<Payload<'_>>; 5] = [
        vec![Payload::Delete(Delete::ike())],
        vec![Payload::Delete(Delete::esp(vec![1007, 1007, 1008]))],
        vec![Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED, &[]))],
        child_payloads(1009),
        rekey_ike_payloads(),
    ];
    for company in companies {
        for first in [false, true] {
            let mut bench = Bench::new();
            let mut peer = bench.established(1007);
            let mut payloads = company.clone();
            let at = if first { 0 } else { payloads.len() };
            payloads.insert(at, Payload::Delete(Delete::ike()));
            let request = peer.next_request(INFORMATIONAL, &payloads);
            let sent = bench.give(&request);
            assert_eq!(sent.len(), 1);
            assert_eq!(peer.open(&sent[0]).map(|opened| opened.octets), Some(vec![]));
            assert_eq!(bench.host().ikes().len(), 0);
            bench.assert_nothing_leaked();
            // The answer may have been lost (RFC 7296 §2.1). Nobody is there to hear anything else.
            assert_eq!(bench.give(&request), sent);
            let next = peer.next_request(INFORMATIONAL, &[]);
            assert!(nothing_protected(&peer, &bench.give(&next)));
            assert_eq!(bench.host().ike_downs().len(), 1, "told once");
            assert_eq!(bench.host().child_downs().len(), 1, "told once");
        }
    }
}

#[test]
fn class_23_one_child_deleted_many_times() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let own = bench.host().child().inbound.spi;
    let many = vec![1007; 10_000];
    let named =
        delete(&mut bench, &mut peer, vec![Delete::esp(many), Delete::esp(vec![1007, 1007])]);
    assert_eq!(named, [own], "answered once");
    assert_eq!(bench.host().child_downs().len(), 1);
    bench.assert_nothing_leaked();
    for _ in 0..3 {
        assert!(
            delete(&mut bench, &mut peer, vec![Delete::esp(vec![1007])]).is_empty(),
            "and no more"
        );
    }
    bench.host().ike();
    assert_eq!(bench.host().child_downs().len(), 1);
}

#[test]
fn class_23_deletes_of_what_is_not_there() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let own = bench.host().child().inbound.spi;
    let unknown: Vec<u32> = (0..16_000).filter(|spi| *spi != 1007).collect();
    let deletes = vec![
        Delete::esp(vec![]),
        Delete::esp(unknown),
        // The endpoint's own inbound SPI is not the peer's to name.
        Delete::esp(vec![0, u32::MAX, own]),
        Delete { protocol: ProtocolId::AH, spis: vec![1007] },
    ];
    assert!(delete(&mut bench, &mut peer, deletes).is_empty());
    bench.host().child();
    bench.assert_nothing_leaked();
}

#[test]
fn class_23_a_child_deleted_while_it_is_rekeyed_here() {
    for answered in [false, true] {
        let mut bench = Bench::new();
        let mut peer = bench.established(1007);
        let own = bench.host().child();
        let request = bench.world.command(0, Command::RekeyChild(own.id));
        assert_eq!(bench.sent().len(), 1);
        assert_eq!(delete(&mut bench, &mut peer, vec![Delete::esp(vec![1007])]), [own.inbound.spi]);
        bench.assert_nothing_leaked();
        let response = if answered {
            // The peer made the new child first: it stays.
            peer.seal(CREATE_CHILD_SA, 0, true, &child_answer(1009))
        } else {
            let gone = Notify { data: &[], ..Notify::esp(NotifyType::CHILD_SA_NOT_FOUND, 1007) };
            peer.seal(CREATE_CHILD_SA, 0, true, &[Payload::Notify(gone)])
        };
        bench.give(&response);
        assert!(bench.host().done(request).is_some());
        assert_eq!(bench.host().children_up().len(), usize::from(answered));
        bench.assert_nothing_leaked();
        assert_eq!(
            delete(&mut bench, &mut peer, vec![Delete::esp(vec![1007, 1009])]).len(),
            usize::from(answered)
        );
        assert_eq!(bench.host().children().len(), 0);
        bench.assert_nothing_leaked();
    }
}

#[test]
fn class_23_both_ends_delete_one_child_at_once() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let own = bench.host().child();
    let request = bench.world.command(0, Command::TerminateChild(own.id));
    assert_eq!(bench.sent().len(), 1);
    // RFC 7296 §1.4.1: the answer to a crossing delete does not name the SPI.
    assert!(delete(&mut bench, &mut peer, vec![Delete::esp(vec![1007])]).is_empty());
    let response = peer.seal(INFORMATIONAL, 0, true, &[]);
    for _ in 0..2 {
        bench.give(&response);
    }
    assert_eq!(bench.host().done(request), Some(Ok(())));
    assert_eq!(bench.host().children().len(), 0);
    assert_eq!(bench.host().child_downs().len(), 1);
    bench.assert_nothing_leaked();
}

#[test]
fn class_23_old_and_new_child_deleted_after_the_peers_rekey() {
    for spis in [vec![1007, 1009], vec![1009, 1007], vec![1009], vec![1007, 1009, 1007, 1009]] {
        let mut bench = Bench::new();
        let mut peer = bench.established(1007);
        let mut payloads = child_payloads(1009);
        payloads.insert(0, Payload::Notify(Notify::esp(NotifyType::REKEY_SA, 1007)));
        let request = peer.next_request(CREATE_CHILD_SA, &payloads);
        assert_eq!(bench.give(&request).len(), 1);
        assert_eq!(bench.host().children().len(), 2);
        let both = spis.contains(&1007);
        let named = delete(&mut bench, &mut peer, vec![Delete::esp(spis.clone())]);
        assert_eq!(named.len(), if both { 2 } else { 1 }, "{spis:?}");
        bench.world.run_for(Duration::from_secs(10));
        bench.sent();
        assert_eq!(bench.host().children().len(), usize::from(!both), "{spis:?}");
        bench.assert_nothing_leaked();
    }
}

#[test]
fn class_23_a_child_deleted_before_the_data_plane_has_it() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let own = bench.host().child();
    bench.world.hosts[0].plane.delay = Duration::from_secs(1);
    bench.world.command(0, Command::RekeyChild(own.id));
    bench.sent();
    let response = peer.seal(CREATE_CHILD_SA, 0, true, &child_answer(1009));
    bench.give(&response);
    let children = bench.host().children();
    let new = children.iter().find(|child| child.outbound.spi == 1009).expect("the new child");
    assert_eq!(new.state, ChildState::Installing);
    assert_eq!(delete(&mut bench, &mut peer, vec![Delete::esp(vec![1009])]).len(), 1);
    bench.world.run_for(Duration::from_secs(30));
    bench.assert_nothing_leaked();
    assert!(bench.host().children().iter().all(|child| child.outbound.spi != 1009));
    bench.host().ike();
}

#[test]
fn class_23_the_ike_sa_deleted_while_requests_are_under_way() {
    let commands: [fn(&Bench) -> Command; 4] = [
        |bench| Command::RekeyChild(bench.host().child().id),
        |bench| Command::TerminateChild(bench.host().child().id),
        |bench| Command::RekeyIke(bench.host().ike().id),
        |bench| Command::TerminateIke(bench.host().ike().id),
    ];
    for (n, command) in commands.into_iter().enumerate() {
        let mut bench = Bench::new();
        let mut peer = bench.established(1007);
        let command = command(&bench);
        let request = bench.world.command(0, command);
        assert_eq!(bench.sent().len(), 1);
        delete(&mut bench, &mut peer, vec![Delete::ike()]);
        assert_eq!(bench.host().ikes().len(), 0, "command {n}");
        let expected = if n % 2 == 1 { Ok(()) } else { Err(Failure::DeletedByPeer) };
        assert_eq!(bench.host().done(request), Some(expected), "command {n}");
        // The response is too late.
        let exchange = if n % 2 == 0 { CREATE_CHILD_SA } else { INFORMATIONAL };
        let response = peer.seal(exchange, 0, true, &child_answer(1009));
        assert_eq!(bench.give(&response).len(), 0);
        bench.world.run_for(Duration::from_secs(600));
        assert_eq!(bench.sent().len(), 0);
        bench.assert_nothing_leaked();
    }
}

/// Two peers at one address, as behind a NAT. What leaves for one must never leave under the keys of
/// the other, nor stop because the other goes.
#[test]
fn class_23_an_outbound_spi_that_another_peer_has_is_refused() {
    let mut bench = Bench::new();
    let mut first = bench.established(1007);
    let child = bench.host().child();

    let mut second = bench.half_open();
    let (id, auth) = (identity(2), second.auth(&identity(2), PSK));
    let request =
        second.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, 1007, true));
    let sent = bench.give(&request);
    let answer = second.open(&sent[0]).expect("sealed for the second peer");
    assert_eq!(notifies(&answer), [NotifyType::NO_ADDITIONAL_SAS]);
    assert_eq!(bench.host().child().id, child.id);

    // A child more, and one in the place of its own.
    let request = second.next_request(CREATE_CHILD_SA, &child_payloads(1007));
    let sent = bench.give(&request);
    let answer = second.open(&sent[0]).expect("an answer");
    assert_eq!(notifies(&answer), [NotifyType::NO_ADDITIONAL_SAS]);
    let sent = bench.give(&second.next_request(CREATE_CHILD_SA, &child_payloads(1008)));
    assert!(second.open(&sent[0]).is_some());
    assert_eq!(bench.host().plane.outbound_spis(), [1007, 1008]);

    let delete = [Payload::Delete(Delete::ike())];
    bench.give(&second.next_request(INFORMATIONAL, &delete));
    assert_eq!(bench.host().child().id, child.id);
    bench.assert_nothing_leaked();
    // Free again once its owner has gone.
    bench.give(&first.next_request(INFORMATIONAL, &delete));
    bench.established(1007);
    bench.assert_nothing_leaked();
}

#[test]
fn class_23_children_without_end() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let mut refused = 0;
    for spi in 1000..1700 {
        let sent = bench.give(&peer.next_request(CREATE_CHILD_SA, &child_payloads(spi)));
        let answer = peer.open(&sent[0]).expect("an answer");
        refused += usize::from(notifies(&answer) == [NotifyType::NO_ADDITIONAL_SAS]);
    }
    assert_eq!(bench.host().children().len(), 500);
    assert_eq!(refused, 201);
    // One goes, one may come.
    let delete = [Payload::Delete(Delete::esp(vec![1007]))];
    bench.give(&peer.next_request(INFORMATIONAL, &delete));
    bench.give(&peer.next_request(CREATE_CHILD_SA, &child_payloads(1007)));
    assert_eq!(bench.host().children().len(), 500);
    bench.assert_nothing_leaked();
}

#[test]
fn class_23_a_child_of_many_pieces() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let mut payloads = child_payloads(1008);
    let pieces = |n: u8| {
        let pair = |i| TrafficSelector::from_cidr([10, n, i, 2].into(), 31);
        (0..200).filter_map(pair).collect::<Vec<_>>()
    };
    payloads[2] = Payload::TsI(pieces(2));
    payloads[3] = Payload::TsR(pieces(1));
    bench.give(&peer.next_request(CREATE_CHILD_SA, &payloads));
    let child = &bench.host().children()[1];
    assert_eq!((child.local_ts.len(), child.remote_ts.len()), (32, 32));
}

/// The request of a peer without a NAT, caught and sent on from elsewhere, takes nothing along.
#[test]
fn class_21_a_request_redirected_on_its_way_moves_nothing() {
    let mut bench = Bench::new();
    let (home, away) = (address(2), SocketAddr::new(address(9), 500));
    let started = bench.start_with_nat_detection();
    let sent = bench.give(&started.request);
    let mut peer = started.finish(&sent[0]).expect("an SA");
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let request = peer.next_request(ExchangeType::IKE_AUTH, &auth_payloads(&id, &auth, 1007, true));
    bench.give_from(away, &request);
    assert_eq!(bench.host().ike().path.remote.ip(), home);
    assert_eq!(bench.host().child().outbound.dst, home);
    let request = peer.next_request(INFORMATIONAL, &[]);
    bench.give_from(away, &request);
    assert_eq!(bench.host().ike().path.remote.ip(), home);
}
