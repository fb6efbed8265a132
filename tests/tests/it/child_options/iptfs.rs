//! `mode = iptfs` (RFC 9347 §5.1).

use std::sync::Arc;
use std::time::Duration;

use ike_proto::Failure;
use ike_proto::dataplane::{Direction, Mode};
use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::{ESP, Handmade, deleted, notifies, proposal};
use ike_tests::setup::{Side, identity, side};
use ike_tests::{A, B, Pair, Setup};

fn wants(side: &mut Side) {
    side.net().mode = Mode::Iptfs;
    side.plane.capabilities.iptfs = true;
}

fn iptfs(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(wants);
    setup
}

#[track_caller]
fn assert_mode(pair: &Pair, mode: Mode) {
    let story = || pair.story();
    assert_eq!((pair.a().child().mode, pair.b().child().mode), (mode, mode), "{}", story());
    for host in &pair.hosts {
        assert!(host.plane.table().sas().all(|(_, sa)| sa.mode == mode), "{}", story());
    }
}

#[test]
fn both_ends_that_want_it_have_it_and_keep_it_in_rekeys() {
    for proposal in [ESP, "aes256gcm16-x25519"] {
        let mut setup = iptfs(1);
        setup.both(|side| side.esp_proposals(&[proposal]));
        let mut pair = setup.build();
        pair.establish();
        assert_mode(&pair, Mode::Iptfs);
        for end in [A, B, A] {
            let request = pair.rekey_child(end);
            pair.run_for(Duration::from_secs(20));
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
            pair.assert_agreement();
            assert_mode(&pair, Mode::Iptfs);
        }
    }
}

#[test]
fn in_create_child_sa_with_additional_key_exchanges_and_loss() {
    for seed in 20..26 {
        let mut setup = Setup::new(seed).real();
        setup.both(|side| {
            wants(side);
            side.connection.childless = ike_proto::config::Childless::Prefer;
            side.ike_proposals(&["aes256gcm16-prfsha384-x25519-ke1_mlkem768"]);
            side.esp_proposals(&["aes256gcm16-x25519-ke1_mlkem768"]);
            side.settings.retransmission.tries = Some(12);
        });
        setup.conditions.loss = 100;
        setup.conditions.duplication = 50;
        let mut pair = setup.build();
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(600));
        assert_eq!(pair.hosts[A].done(request), Some(Ok(())), "{}", pair.story());
        pair.assert_agreement();
        assert_mode(&pair, Mode::Iptfs);
    }
}

#[test]
fn both_ends_rekey_at_once() {
    for seed in 30..40 {
        let mut pair = iptfs(seed).build();
        pair.establish();
        pair.rekey_child(A);
        pair.rekey_child(B);
        pair.run_for(Duration::from_secs(60));
        pair.assert_agreement();
        assert_mode(&pair, Mode::Iptfs);
    }
}

#[test]
fn a_responder_that_does_not_want_it_or_cannot_has_tunnel_mode() {
    //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-iptfs-19#section-5.1
    //= type=test
    //# If the responder declines the request the child SA will be
    //# established without AGGFRAG_PAYLOAD payload use enabled.
    let unwilling = |side: &mut Side| side.net().mode = Mode::Tunnel;
    let transport = |side: &mut Side| side.net().mode = Mode::Transport;
    let unable = |side: &mut Side| side.plane.capabilities.iptfs = false;
    for decline in [unwilling as fn(&mut Side), transport, unable] {
        let mut setup = iptfs(2);
        decline(&mut setup.b);
        let mut pair = setup.build();
        pair.establish();
        assert_mode(&pair, Mode::Tunnel);
        // Whoever rekeys it, a plane that could not have what is configured keeps what was agreed on.
        for end in [A, B] {
            let request = pair.rekey_child(end);
            pair.run_for(Duration::from_secs(20));
            assert_eq!(pair.hosts[end].done(request), Some(Ok(())), "{}", pair.story());
            pair.assert_agreement();
            assert_mode(&pair, Mode::Tunnel);
        }
    }
}

#[test]
fn an_initiator_whose_data_plane_cannot_fails_at_once_and_says_why() {
    let mut setup = iptfs(3);
    setup.a.plane.capabilities.iptfs = false;
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(300));
    let Some(Err(Failure::Config(why))) = pair.a().done(request) else {
        panic!("{}", pair.story());
    };
    assert!(why.contains("IP-TFS"), "{why}");
    assert!(pair.a().children().is_empty() && pair.b().children().is_empty());
}

#[test]
fn what_the_peer_cannot_take_apart_is_not_split() {
    let mut setup = iptfs(4);
    Arc::make_mut(&mut setup.b.net().processing).iptfs.accept_fragments = false;
    let mut pair = setup.build();
    pair.establish();
    let split = |pair: &Pair, end: usize| {
        let table = pair.hosts[end].plane.table();
        let out = table.sas().find(|(_, sa)| sa.direction == Direction::Out);
        !out.unwrap().1.processing.iptfs.dont_frag
    };
    for _ in 0..2 {
        assert!(!split(&pair, A), "A was asked not to");
        assert!(split(&pair, B), "B may");
        pair.rekey_child(B);
        pair.run_for(Duration::from_secs(20));
    }
    // By this end's own choice.
    let mut setup = iptfs(5);
    Arc::make_mut(&mut setup.b.net().processing).iptfs.dont_frag = true;
    let mut pair = setup.build();
    pair.establish();
    assert!(split(&pair, A) && !split(&pair, B));
}

/// CREATE_CHILD_SA payloads for one more child between the networks of the bench.
fn child_payloads<'a>(first: &[Payload<'a>], spi: u32, request: bool) -> Vec<Payload<'a>> {
    let (ts_i, ts_r) = if request { (net(2), net(1)) } else { (net(1), net(2)) };
    let mut payloads = first.to_vec();
    payloads.extend([
        Payload::Sa(proposal(ProtocolId::ESP, ESP, Spi::Esp(spi))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![ts_i]),
        Payload::TsR(vec![ts_r]),
    ]);
    payloads
}

/// The notify with these flags.
fn aggfrag(data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(NotifyType::USE_AGGFRAG, data))
}

/// Requirements nobody here can meet: congestion control information, and what is not defined.
const BEYOND: [&[u8]; 6] = [&[2], &[3], &[4], &[0x80], &[], &[0, 0]];

#[test]
fn requirements_that_are_not_understood_get_tunnel_mode() {
    let mut end = side(1, 2);
    wants(&mut end);
    let mut bench = Bench::with(end);
    let mut peer = bench.established(1007);
    for (spi, flags) in (2000..).zip(BEYOND) {
        let payloads = child_payloads(&[aggfrag(flags)], spi, true);
        let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &payloads);
        let answer = bench.give(&request).remove(0);
        let kinds = notifies(&peer.open(&answer).unwrap());
        assert_eq!(kinds, [], "{flags:x?}: a child without a word of AGGFRAG");
    }
    let children = bench.host().children_up();
    assert_eq!(children.len(), 1 + BEYOND.len());
    assert!(children.iter().all(|child| child.mode == Mode::Tunnel));
    // The protocol of a notify about no SA does not matter.
    let odd = Notify { protocol: ProtocolId::ESP, ..Notify::new(NotifyType::USE_AGGFRAG, &[1]) };
    let payloads = child_payloads(&[Payload::Notify(odd)], 3000, true);
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &payloads);
    let answer = bench.give(&request).remove(0);
    assert_eq!(notifies(&peer.open(&answer).unwrap()), [NotifyType::USE_AGGFRAG]);
}

#[test]
fn a_request_for_two_modes_gets_neither() {
    //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-iptfs-19#section-5.1
    //= type=test
    //# the USE_AGGFRAG notification MUST NOT
    //# be combined with USE_TRANSPORT notification.
    let mut end = side(1, 2);
    wants(&mut end);
    let mut bench = Bench::with(end);
    let mut peer = bench.established(1007);
    let transport = Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]));
    let payloads = child_payloads(&[transport, aggfrag(&[0])], 2000, true);
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &payloads);
    let answer = bench.give(&request).remove(0);
    assert_eq!(notifies(&peer.open(&answer).unwrap()), []);
    assert!(bench.host().children_up().iter().all(|child| child.mode == Mode::Tunnel));
}

/// An endpoint that has asked for "net" in this mode, and the answer given to it. The SPIs it deletes.
#[track_caller]
fn answered_with(mode: Mode, answer: &[Payload<'_>]) -> (Bench, Vec<u32>, Handmade) {
    let mut end = side(1, 2);
    wants(&mut end);
    end.net().mode = mode;
    let mut bench = Bench::with(end);
    let (_, mut peer, request) = bench.answering();
    let opened = peer.open(&request).unwrap();
    let asked = decode_payloads(opened.first, &opened.octets, 0).unwrap();
    let sa = asked.iter().find_map(|payload| match payload {
        Payload::Sa(sa) => sa.proposals.first().map(|proposal| proposal.spi),
        _ => None,
    });
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, false);
    payloads.extend(answer.iter().cloned());
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    let sent = bench.give(&response);
    let gone: Vec<u32> =
        sent.iter().flat_map(|octets| deleted(&peer.open(octets).unwrap())).collect();
    if let (Some(Spi::Esp(spi)), Some(first)) = (sa, gone.first()) {
        assert_eq!(spi, *first, "the SA that the peer has now");
    }
    (bench, gone, peer)
}

#[test]
fn an_answer_with_requirements_that_cannot_be_met_costs_the_child() {
    for flags in BEYOND {
        let (bench, gone, _) = answered_with(Mode::Iptfs, &[aggfrag(flags)]);
        assert_eq!(gone.len(), 1, "{flags:x?}");
        assert!(bench.host().children().is_empty(), "{flags:x?}");
        bench.assert_nothing_leaked();
        // The IKE SA is as good as before.
        bench.host().ike();
    }
}

#[test]
fn an_answer_in_a_mode_that_was_not_offered_costs_the_child() {
    let transport = || Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, &[]));
    let cases = [
        (Mode::Tunnel, vec![aggfrag(&[0])]),
        (Mode::Tunnel, vec![transport()]),
        (Mode::Transport, vec![aggfrag(&[0])]),
        (Mode::Iptfs, vec![transport()]),
        (Mode::Iptfs, vec![aggfrag(&[0]), transport()]),
    ];
    for (offered, answer) in cases {
        let (bench, gone, _) = answered_with(offered, &answer);
        assert_eq!(gone.len(), 1, "{offered:?} {answer:?}");
        assert!(bench.host().children().is_empty(), "{offered:?} {answer:?}");
        bench.assert_nothing_leaked();
    }
}
