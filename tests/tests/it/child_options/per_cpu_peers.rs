//! `per_cpu_sas` (RFC 9611) with peers made by hand, good and bad.

use ike_proto::Command;
use ike_proto::dataplane::{Event, Flow, Mode, PolicyId};
use ike_proto::wire::decode_payloads;
use ike_proto::wire::payload::{Delete, Notify, Payload, Spi, TrafficSelector};
use ike_proto::wire::registry::{ExchangeType, NotifyType, ProtocolId};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::{ESP, Handmade, deleted, notifies, proposal};
use ike_tests::setup::{Side, address, identity, side};

use super::per_cpu::wants;

fn resource(data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(NotifyType::SA_RESOURCE_INFO, data))
}

/// Payloads of CREATE_CHILD_SA, `first` among them, for the networks of the bench.
fn create<'a>(first: Payload<'a>, keywords: &str, spi: u32, request: bool) -> Vec<Payload<'a>> {
    let (ts_i, ts_r) = if request { (net(2), net(1)) } else { (net(1), net(2)) };
    vec![
        first,
        Payload::Sa(proposal(ProtocolId::ESP, keywords, Spi::Esp(spi))),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![ts_i]),
        Payload::TsR(vec![ts_r]),
    ]
}

/// A responder with this many CPUs, and a peer with a child; `agreed` if both want it for each CPU.
fn responder(cpus: u32, agreed: bool, change: impl Fn(&mut Side)) -> (Bench, Handmade) {
    let mut end = side(1, 2);
    wants(&mut end, cpus);
    change(&mut end);
    let mut bench = Bench::with(end);
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, true);
    if agreed {
        payloads.push(resource(&[]));
    }
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let sent = bench.give(&request).remove(0);
    let taken = notifies(&peer.open(&sent).unwrap()).contains(&NotifyType::SA_RESOURCE_INFO);
    let willing = bench.host().child().processing.per_cpu;
    assert_eq!(taken, willing, "says what it does");
    (bench, peer)
}

#[track_caller]
fn ask(bench: &mut Bench, peer: &mut Handmade, payloads: &[Payload<'_>]) -> Vec<NotifyType> {
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, payloads);
    let answer = bench.give(&request).remove(0);
    notifies(&peer.open(&answer).unwrap())
}

#[test]
fn a_peer_that_asks_ten_thousand_times_gets_two_for_each_cpu() {
    //= https://www.rfc-editor.org/rfc/rfc9611#section-7
    //= type=test
    //# it is
    //# RECOMMENDED that an implementation limits the maximum number of
    //# additional Child SAs allowed per unique TSi/TSr.
    let (mut bench, mut peer) = responder(8, true, |_| {});
    let mut refused = 0;
    for n in 0..10_000_u32 {
        let data = n.to_be_bytes();
        let payloads = create(resource(&data), ESP, 2000 + n, true);
        match ask(&mut bench, &mut peer, &payloads).as_slice() {
            [NotifyType::SA_RESOURCE_INFO] => {}
            //= https://www.rfc-editor.org/rfc/rfc9611#section-6
            //= type=test
            //# Child SAs MUST NOT return the NO_ADDITIONAL_SAS error because it
            //# could be misinterpreted by the peer to mean that no other Child SA
            //# with a different TSi and/or TSr is allowed either.  Instead, it MUST
            //# return TS_MAX_QUEUE.
            [NotifyType::TS_MAX_QUEUE] => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    let children = bench.host().children_up();
    assert_eq!((children.len(), refused), (17, 10_000 - 16));
    for cpu in 0..8 {
        assert_eq!(children.iter().filter(|child| child.cpu == Some(cpu)).count(), 2);
    }
    assert_eq!(bench.host().plane.inbound_spis().len(), 17);
    assert_eq!(bench.host().plane.routes().len(), 1, "one policy for all of them");
    // Another child is another matter.
    let plain = Payload::Notify(Notify::new(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED, &[]));
    assert_eq!(ask(&mut bench, &mut peer, &create(plain, ESP, 50_000, true)), []);
}

#[test]
fn whoever_has_not_agreed_gets_ts_max_queue_and_no_second_child() {
    let unwilling = |side: &mut Side| {
        std::sync::Arc::make_mut(&mut side.net().processing).per_cpu = false;
    };
    let unable = |side: &mut Side| side.plane.capabilities.per_cpu = false;
    for (agreed, change) in
        [(true, unwilling as fn(&mut Side)), (true, unable), (false, |_: &mut Side| {})]
    {
        let (mut bench, mut peer) = responder(4, agreed, change);
        assert!(!bench.host().child().processing.per_cpu);
        let asked = ask(&mut bench, &mut peer, &create(resource(&[]), ESP, 2000, true));
        assert_eq!(asked, [NotifyType::TS_MAX_QUEUE]);
        bench.host().child();
        bench.assert_nothing_leaked();
    }
}

#[test]
fn what_the_notify_says_beside_its_type_does_not_matter() {
    let (mut bench, mut peer) = responder(8, true, |_| {});
    let long = [9; 3000];
    let plain = Notify::new(NotifyType::SA_RESOURCE_INFO, &[]);
    let odd = [
        Notify { data: &long, ..plain },
        Notify { data: &[1], ..plain },
        //= https://www.rfc-editor.org/rfc/rfc9611#section-5.1
        //= type=test
        //# Protocol ID (1 octet) -  MUST be 0.  MUST be ignored if not 0.
        Notify { protocol: ProtocolId::AH, ..plain },
        Notify { protocol: ProtocolId::ESP, spi: Spi::Esp(77), ..plain },
        Notify { protocol: ProtocolId(99), spi: Spi::Ike(5), ..plain },
    ];
    for (spi, notify) in (2000..).zip(odd) {
        let payloads = create(Payload::Notify(notify), ESP, spi, true);
        let asked = ask(&mut bench, &mut peer, &payloads);
        assert_eq!(asked, [NotifyType::SA_RESOURCE_INFO], "{notify:?}");
    }
    // Two of them are one.
    let mut payloads = create(resource(&[1]), ESP, 3000, true);
    payloads.push(resource(&[2]));
    assert_eq!(ask(&mut bench, &mut peer, &payloads), [NotifyType::SA_RESOURCE_INFO]);
    assert_eq!(bench.host().children_up().len(), 7);
}

#[test]
fn an_additional_one_must_be_like_the_first() {
    let two = |side: &mut Side| side.esp_proposals(&["aes256gcm16-aes128gcm16"]);
    let (mut bench, mut peer) = responder(4, true, two);
    //= https://www.rfc-editor.org/rfc/rfc9611#section-3
    //= type=test
    //# These resource-
    //# specific Child SAs MUST be negotiated with identical Child SA
    //# properties that were negotiated for the initial Child SA.
    let other = create(resource(&[]), "aes128gcm16", 2000, true);
    assert_eq!(ask(&mut bench, &mut peer, &other), [NotifyType::NO_PROPOSAL_CHOSEN]);
    // Other selectors are other traffic: the first child for that.
    let mut narrower = create(resource(&[]), ESP, 2001, true);
    let narrow: TrafficSelector = "10.2.3.0/24".parse().unwrap();
    narrower[3] = Payload::TsI(vec![narrow]);
    assert_eq!(ask(&mut bench, &mut peer, &narrower), [NotifyType::SA_RESOURCE_INFO]);
    let children = bench.host().children_up();
    assert_eq!(children.iter().map(|child| child.cpu).collect::<Vec<_>>(), [None, None]);
    assert_ne!(children[0].policy, children[1].policy);
    bench.assert_nothing_leaked();
}

/// An initiator that has agreed with its peer, and the policy of their child.
fn initiator() -> (Bench, Handmade, PolicyId) {
    initiator_in(Mode::Tunnel)
}

/// As [`initiator`], with the child in this mode.
fn initiator_in(mode: Mode) -> (Bench, Handmade, PolicyId) {
    let mut end = side(1, 2);
    end.net().mode = mode;
    end.plane.capabilities.iptfs = true;
    wants(&mut end, 8);
    end.esp_proposals(&["aes256gcm16-aes128gcm16"]);
    let mut bench = Bench::with(end);
    let (_, mut peer, request) = bench.answering();
    let kinds = notifies(&peer.open(&request).unwrap());
    assert!(kinds.contains(&NotifyType::SA_RESOURCE_INFO), "{kinds:?}");
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, false);
    payloads.push(resource(&[]));
    if mode == Mode::Iptfs {
        payloads.push(Payload::Notify(Notify::new(NotifyType::USE_AGGFRAG, &[0])));
    }
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    assert_eq!(bench.give(&response).len(), 0);
    let policy = bench.host().child().policy;
    (bench, peer, policy)
}

/// CPU `cpu` meets a packet; the request that this makes, if it makes one.
fn meet(bench: &mut Bench, policy: PolicyId, cpu: u32) -> Option<Vec<u8>> {
    let host = |n: u8| format!("10.{n}.0.9[udp/53]").parse().unwrap();
    let event = Event::Acquire { policy, local: host(1), remote: host(2), cpu: Some(cpu) };
    bench.world.plane_event(0, event);
    bench.sent().pop()
}

/// A peer that has no further child for a CPU, and says so with the error for any child, has not refused the packet: when
/// the child for all is gone, such packets ask for another one at once.
///
/// Fault: in `RequestedChild::on_error`, note what is refused also for a CPU.
#[test]
fn a_packet_whose_cpu_gets_no_child_of_its_own_is_not_refused() {
    let (mut bench, mut peer, policy) = initiator();
    assert!(meet(&mut bench, policy, 7).is_some());
    let refused = [Payload::Notify(Notify::new(NotifyType::NO_ADDITIONAL_SAS, &[]))];
    bench.give(&peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, &refused));
    let delete = [Payload::Delete(Delete { protocol: ProtocolId::ESP, spis: vec![1007] })];
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &delete);
    assert_eq!(bench.give(&request).len(), 1);
    let host = |n: u8| format!("10.{n}.0.9[udp/53]").parse().unwrap();
    let packet = Some(Flow { local: host(1), remote: host(2) });
    let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
    let (local, remote) = (address(1), address(2));
    bench.world.command(0, Command::Initiate { connection, child, local, remote, packet });
    assert_eq!(bench.sent().len(), 1, "a request");
}

#[test]
fn requests_name_the_packet_and_not_the_cpu() {
    let (mut bench, mut peer, policy) = initiator();
    let mut named = Vec::new();
    for (n, cpu) in (0..).zip([7, 2, 5]) {
        let request = meet(&mut bench, policy, cpu).unwrap();
        let opened = peer.open(&request).unwrap();
        for payload in decode_payloads(opened.first, &opened.octets, 0).unwrap() {
            match payload {
                Payload::Notify(notify) if notify.kind == NotifyType::SA_RESOURCE_INFO => {
                    assert_eq!((notify.protocol, notify.spi), (ProtocolId::NONE, Spi::None));
                    named.push(notify.data.to_vec());
                }
                //= https://www.rfc-editor.org/rfc/rfc9611#section-4
                //= type=test
                //# the Traffic Selector (TSi) entry
                //# containing the information of the trigger packet should be included
                //# in the TS set similarly to regular Child SAs
                Payload::TsI(list) => {
                    assert_eq!(list, ["10.1.0.9[udp/53]".parse().unwrap(), net(1)]);
                }
                _ => {}
            }
        }
        // While it is under way, the CPU's other packets change nothing.
        assert_eq!(meet(&mut bench, policy, cpu), None);
        let answer = create(resource(&[]), ESP, 2000 + n, false);
        let answer = peer.seal(ExchangeType::CREATE_CHILD_SA, 2 + n, true, &answer);
        assert!(bench.give(&answer).is_empty());
        assert_eq!(meet(&mut bench, policy, cpu), None);
    }
    //= https://www.rfc-editor.org/rfc/rfc9611#section-7
    //= type=test
    //# using the CPU number itself as the identifier might give an
    //# attacker knowledge of which packets are handled by which CPU ID
    let numbers = [1_u32, 2, 3].map(|n| n.to_be_bytes().to_vec());
    assert_eq!(named, numbers);
    let cpus: Vec<_> = bench.host().children_up().iter().map(|child| child.cpu).collect();
    assert_eq!(cpus, [None, Some(7), Some(2), Some(5)]);
}

#[test]
fn an_answer_unlike_the_first_is_deleted() {
    let narrow = |n: u8| format!("10.{n}.0.0/24").parse::<TrafficSelector>().unwrap();
    let cases: [(&str, Vec<Payload<'_>>); 4] = [
        ("another algorithm", create(resource(&[]), "aes128gcm16", 2000, false)),
        ("without a word", create(Payload::Nonce(&[7; 32]), ESP, 2000, false)),
        ("narrower", {
            let mut payloads = create(resource(&[]), ESP, 2000, false);
            payloads[3] = Payload::TsI(vec![narrow(1)]);
            payloads
        }),
        // Tunnel mode, which a first one may be granted.
        ("another mode", create(resource(&[]), ESP, 2000, false)),
    ];
    for (what, mut answer) in cases {
        if what == "without a word" {
            answer.remove(0);
        }
        let mode = if what == "another mode" { Mode::Iptfs } else { Mode::Tunnel };
        let (mut bench, mut peer, policy) = initiator_in(mode);
        let request = meet(&mut bench, policy, 3).unwrap();
        let opened = peer.open(&request).unwrap();
        let asked = decode_payloads(opened.first, &opened.octets, 0).unwrap();
        let spi = asked.iter().find_map(|payload| match payload {
            Payload::Sa(sa) => sa.proposals.first().map(|proposal| proposal.spi),
            _ => None,
        });
        let answer = peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, &answer);
        let sent = bench.give(&answer);
        let gone: Vec<_> = sent.iter().map(|octets| deleted(&peer.open(octets).unwrap())).collect();
        let Some(Spi::Esp(spi)) = spi else { panic!("{spi:?}") };
        assert_eq!(gone, [vec![spi]], "{what}");
        if let Some(octets) = sent.first() {
            let message = peer.open(octets).unwrap();
            assert!(!deleted(&message).is_empty());
            let answer = peer.seal(ExchangeType::INFORMATIONAL, 3, true, &[]);
            bench.give(&answer);
        }
        assert_eq!(meet(&mut bench, policy, 4), None, "the answer would be the same: {what}");
        assert_eq!(bench.host().child().cpu, None, "{what}");
        bench.assert_nothing_leaked();
    }
}

#[test]
fn a_peer_that_offers_what_was_not_asked_for_is_one_without_it() {
    let mut bench = Bench::new();
    let (_, mut peer, request) = bench.answering();
    let kinds = notifies(&peer.open(&request).unwrap());
    assert!(!kinds.contains(&NotifyType::SA_RESOURCE_INFO), "{kinds:?}");
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let mut payloads = auth_payloads(&id, &auth, 1007, false);
    payloads.push(resource(&[]));
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    bench.give(&response);
    let child = bench.host().child();
    assert!(!child.processing.per_cpu);
    assert_eq!(meet(&mut bench, child.policy, 1), None);
}

/// CREATE_CHILD_SA payloads that rekey the child with this SPI of the peer.
fn rekey<'a>(old: u32, keywords: &str, spi: u32) -> Vec<Payload<'a>> {
    create(Payload::Notify(Notify::esp(NotifyType::REKEY_SA, old)), keywords, spi, true)
}

#[test]
fn a_rekey_of_one_keeps_what_it_has_in_common_with_the_others() {
    let change = |side: &mut Side| {
        side.esp_proposals(&["aes256gcm16-aes128gcm16"]);
        side.net().mode = Mode::Iptfs;
        side.plane.capabilities.iptfs = true;
    };
    let (mut bench, mut peer) = responder(4, true, change);
    let more = create(resource(&[]), ESP, 2000, true);
    assert_eq!(ask(&mut bench, &mut peer, &more), [NotifyType::SA_RESOURCE_INFO]);
    let narrow: TrafficSelector = "10.2.3.0/24".parse().unwrap();
    for old in [1007, 2000] {
        let mut narrower = rekey(old, ESP, 3001);
        narrower[3] = Payload::TsI(vec![narrow]);
        let mut mode = rekey(old, ESP, 3002);
        mode.push(Payload::Notify(Notify::new(NotifyType::USE_AGGFRAG, &[0])));
        for (other, refusal) in [
            (rekey(old, "aes128gcm16", 3000), NotifyType::NO_PROPOSAL_CHOSEN),
            (narrower, NotifyType::TS_UNACCEPTABLE),
            (mode, NotifyType::NO_PROPOSAL_CHOSEN),
        ] {
            assert_eq!(ask(&mut bench, &mut peer, &other), [refusal]);
        }
        // The same, said in another way.
        let mut same = rekey(old, ESP, old + 100);
        same[3] = Payload::TsI(vec![narrow, net(2)]);
        assert_eq!(ask(&mut bench, &mut peer, &same), []);
    }
    let children = bench.host().children_up();
    assert!(children.iter().all(|child| child.remote_ts == [net(2)]), "{children:?}");
    assert!(children.iter().all(|child| child.mode == Mode::Tunnel));
}

#[test]
fn one_that_is_being_rekeyed_counts_once() {
    let (mut bench, mut peer) = responder(2, true, |_| {});
    for spi in [2000, 2001] {
        let more = create(resource(&[]), ESP, spi, true);
        assert_eq!(ask(&mut bench, &mut peer, &more), [NotifyType::SA_RESOURCE_INFO]);
        assert_eq!(ask(&mut bench, &mut peer, &rekey(spi, ESP, spi + 100)), []);
    }
    for (spi, answer) in [
        (2002, NotifyType::SA_RESOURCE_INFO),
        (2003, NotifyType::SA_RESOURCE_INFO),
        (2004, NotifyType::TS_MAX_QUEUE),
    ] {
        let more = create(resource(&[]), ESP, spi, true);
        assert_eq!(ask(&mut bench, &mut peer, &more), [answer]);
    }
}

#[test]
fn the_packet_may_stand_first_in_the_answer() {
    let (mut bench, mut peer, policy) = initiator();
    meet(&mut bench, policy, 3).unwrap();
    let mut answer = create(resource(&[]), ESP, 2000, false);
    answer[3] = Payload::TsI(vec!["10.1.0.9[udp/53]".parse().unwrap(), net(1)]);
    answer[4] = Payload::TsR(vec!["10.2.0.9[udp/53]".parse().unwrap(), net(2)]);
    let answer = peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, &answer);
    assert!(bench.give(&answer).is_empty());
    let children = bench.host().children_up();
    assert_eq!(children.len(), 2);
    assert!(children.iter().all(|child| child.local_ts == [net(1)]), "{children:?}");
}

#[test]
fn the_last_one_that_the_peer_does_not_know_is_made_anew() {
    let (mut bench, mut peer, policy) = initiator();
    meet(&mut bench, policy, 3).unwrap();
    let answer = create(resource(&[]), ESP, 2000, false);
    let answer = peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, &answer);
    assert!(bench.give(&answer).is_empty());
    let delete = Payload::Delete(Delete::esp(vec![1007]));
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &[delete]);
    bench.give(&request);
    let child = bench.host().child();
    assert_eq!(child.cpu, Some(3));
    bench.world.command(0, Command::RekeyChild(child.id));
    assert_eq!(bench.sent().len(), 1);
    let unknown = Notify::esp(NotifyType::CHILD_SA_NOT_FOUND, child.inbound.spi);
    let answer = peer.seal(ExchangeType::CREATE_CHILD_SA, 3, true, &[Payload::Notify(unknown)]);
    let sent = bench.give(&answer);
    assert_eq!(sent.len(), 1, "asks for a first one");
    let kinds = notifies(&peer.open(&sent[0]).unwrap());
    assert_eq!(kinds, [NotifyType::SA_RESOURCE_INFO]);
}
