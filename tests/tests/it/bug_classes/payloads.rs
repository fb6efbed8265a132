//! Class 9: each mandatory payload of each exchange removed, there twice, or in another place.

use ike_proto::wire::payload::{Ke, Notify, Payload, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, PayloadType, ProtocolId};
use ike_proto::wire::{Flags, Header, decode_payloads, encode_message};
use ike_proto::{Command, IkeState};
use ike_tests::bench::{Bench, PSK, auth_payloads, net};
use ike_tests::handmade::{ESP, ESP_PFS, Handmade, IKE, notifies, proposal};
use ike_tests::setup::{identity, side};

/// The SPI of the first child of every peer here.
const SPI: u32 = 0x0101_0101;
const NEW_SPI: u32 = 0x0202_0202;
const NONCE: [u8; 32] = [9; 32];
/// A public value of the cheap key exchange.
const PUBLIC: [u8; 32] = [3; 32];

/// Which payloads, by index, in which order.
type Choice = Vec<usize>;

/// Every payload of the first `n` left out in turn.
fn removed(n: usize) -> impl Iterator<Item = (usize, Choice)> {
    (0..n).map(move |gone| (gone, (0..n).filter(|i| *i != gone).collect()))
}

/// Every payload twice in turn: next to itself, and at the end.
fn doubled(n: usize) -> impl Iterator<Item = (usize, Choice)> {
    (0..n).flat_map(move |twice| {
        let beside = (0..n).flat_map(|i| vec![i; 1 + usize::from(i == twice)]).collect();
        let behind = (0..n).chain([twice]).collect();
        [(twice, beside), (twice, behind)]
    })
}

/// Every order of `n` payloads.
fn orders(n: usize) -> Vec<Choice> {
    let mut all: Vec<Choice> = vec![vec![]];
    for next in 0..n {
        all = all
            .iter()
            .flat_map(|order| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, next);
                    order
                })
            })
            .collect();
    }
    all
}

fn pick<'a>(payloads: &[Payload<'a>], choice: &[usize]) -> Vec<Payload<'a>> {
    choice.iter().map(|i| payloads[*i].clone()).collect()
}

/// What a peer is told in answer to its request; empty if nothing was sent.
fn told(peer: &Handmade, sent: &[Vec<u8>]) -> Vec<NotifyType> {
    let answer = sent.first().map(|sent| peer.open(sent).expect("sealed for the peer"));
    answer.map(|opened| notifies(&opened)).unwrap_or_default()
}

// ---- IKE_SA_INIT ----

#[test]
fn class_09_ike_sa_init_request() {
    let mut bench = Bench::new();
    let mandatory = 3;
    for (which, choice) in removed(mandatory).chain(doubled(mandatory)) {
        let started = bench.start();
        let sent = bench.give(&started.encode(&pick(&started.payloads(), &choice)));
        assert!(sent.len() <= 1 && sent.iter().all(|sent| started.finish(sent).is_none()));
        assert_eq!(bench.host().ikes().len(), 0, "payload {which}: {choice:?}");
    }
    for (n, order) in orders(4).into_iter().enumerate() {
        let started = bench.start();
        let sent = bench.give(&started.encode(&pick(&started.payloads(), &order)));
        assert!(started.finish(&sent[0]).is_some(), "order {order:?}");
        assert_eq!(bench.host().endpoint.half_open(), n + 1);
    }
}

#[test]
fn class_09_ike_sa_init_response() {
    let crypto = ike_tests::cheap::provider();
    let mut bench = Bench::new();
    let (_, request) = bench.initiate();
    let good = Handmade::answer(&crypto, &request, 3).expect("an answer");
    let message = ike_proto::wire::Message::decode(&good.response).expect("well-formed");
    let encode = |payloads: &[Payload<'_>]| encode_message(&message.header, payloads);
    for (which, choice) in removed(3).chain(doubled(3)) {
        let sent = bench.give(&encode(&pick(&message.payloads, &choice)));
        assert_eq!(sent.len(), 0, "payload {which}: {choice:?}");
    }
    assert_eq!(bench.give(&good.response).len(), 1, "and the genuine one is still taken");

    for order in orders(4) {
        let mut bench = Bench::new();
        let (_, request) = bench.initiate();
        let peer = Handmade::answer(&crypto, &request, 3).expect("an answer");
        let message = ike_proto::wire::Message::decode(&peer.response).expect("well-formed");
        let response = encode_message(&message.header, &pick(&message.payloads, &order));
        let sent = bench.give(&response);
        assert_eq!(sent.len(), 1, "order {order:?}");
        assert!(peer.open(&sent[0]).is_some());
    }
}

// ---- IKE_AUTH ----

/// IDi, AUTH, SA, TSi, TSr, chosen by index; what is told, and the bench.
fn auth_request(choice: &[usize]) -> (Bench, Vec<NotifyType>) {
    let mut bench = Bench::new();
    let mut peer = bench.half_open();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = pick(&auth_payloads(&id, &auth, SPI, true), choice);
    let request = peer.next_request(ExchangeType::IKE_AUTH, &payloads);
    let sent = bench.give(&request);
    assert_eq!(sent.len(), 1, "a request is answered");
    let told = told(&peer, &sent);
    (bench, told)
}

#[test]
fn class_09_ike_auth_request() {
    for (which, choice) in removed(5) {
        let (mut bench, told) = auth_request(&choice);
        let established = bench.host().ikes().len();
        match which {
            0 => assert_eq!((told, established), (vec![NotifyType::INVALID_SYNTAX], 0)),
            1 => assert_eq!((told, established), (vec![NotifyType::AUTHENTICATION_FAILED], 0)),
            // RFC 6023: without SA there is no child.
            2 => assert_eq!((told, established), (vec![], 1)),
            _ => assert_eq!((told, established), (vec![NotifyType::INVALID_SYNTAX], 0)),
        }
        assert_eq!(bench.host().children().len(), 0, "without payload {which}");
        bench.assert_nothing_leaked();
        if established == 0 {
            bench.established(SPI);
        }
    }
    for (which, choice) in doubled(5) {
        let (mut bench, told) = auth_request(&choice);
        assert_eq!(told, [NotifyType::INVALID_SYNTAX], "payload {which} twice");
        assert_eq!(bench.host().ikes().len(), 0);
        bench.assert_nothing_leaked();
        bench.established(SPI);
    }
    for order in orders(5) {
        let (bench, told) = auth_request(&order);
        assert_eq!(told, [], "order {order:?}");
        bench.host().child();
        bench.assert_nothing_leaked();
    }
}

/// IDr, AUTH, SA, TSi, TSr, chosen by index.
fn auth_response(choice: &[usize]) -> Bench {
    let mut bench = Bench::new();
    let (_, mut peer, _) = bench.answering();
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    let payloads = pick(&auth_payloads(&id, &auth, SPI, false), choice);
    let response = peer.seal(ExchangeType::IKE_AUTH, 1, true, &payloads);
    bench.give(&response);
    bench
}

#[test]
fn class_09_ike_auth_response() {
    for (which, choice) in removed(5).chain(doubled(5)) {
        let mut bench = auth_response(&choice);
        let proves = which >= 2;
        let established = bench.host().ikes_in(IkeState::Established).len();
        assert_eq!(established, usize::from(proves), "payload {which}: {choice:?}");
        assert_eq!(bench.host().children().len(), 0);
        bench.assert_nothing_leaked();
        // An attempt that failed ends, and the next one is not harmed.
        bench.world.run_for(std::time::Duration::from_secs(600));
        bench.sent();
        bench.assert_nothing_leaked();
        if !proves {
            assert_eq!(bench.host().ikes().len(), 0);
            bench.answered(SPI);
        }
    }
    for order in orders(5) {
        auth_response(&order).host().child();
    }
}

// ---- CREATE_CHILD_SA ----

/// An endpoint with a second child, which wants a key exchange of its own if `pfs`.
fn bench_for_children(pfs: bool) -> Bench {
    let mut side = side(1, 2);
    if pfs {
        side.esp_proposals(&["aes256gcm16-x25519"]);
    }
    side.add_child("more", 1, 2);
    Bench::with(side)
}

/// The payloads of a CREATE_CHILD_SA message of the peer for a child.
fn child_payloads(spi: u32, pfs: bool, initiator: bool) -> Vec<Payload<'static>> {
    let keywords = if pfs { ESP_PFS } else { ESP };
    let (ts_i, ts_r) = if initiator { (net(2), net(1)) } else { (net(1), net(2)) };
    let mut payloads = vec![
        Payload::Sa(proposal(ProtocolId::ESP, keywords, Spi::Esp(spi))),
        Payload::Nonce(&NONCE),
        Payload::TsI(vec![ts_i]),
        Payload::TsR(vec![ts_r]),
    ];
    if pfs {
        payloads.push(Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &PUBLIC }));
    }
    payloads
}

/// The payloads of a CREATE_CHILD_SA message of the peer to rekey the IKE SA.
fn rekey_ike_payloads() -> Vec<Payload<'static>> {
    vec![
        Payload::Sa(proposal(ProtocolId::IKE, IKE, Spi::Ike(0x77))),
        Payload::Nonce(&NONCE),
        Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &PUBLIC }),
    ]
}

/// Sends a CREATE_CHILD_SA request over an established SA.
fn create_child_request(pfs: bool, payloads: &[Payload<'_>]) -> (Bench, Vec<NotifyType>) {
    let mut bench = bench_for_children(pfs);
    let mut peer = bench.established(SPI);
    let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, payloads);
    let sent = bench.give(&request);
    assert_eq!(sent.len(), 1, "a request is answered");
    let told = told(&peer, &sent);
    (bench, told)
}

#[test]
fn class_09_create_child_sa_request_for_a_child() {
    for pfs in [false, true] {
        let good = child_payloads(NEW_SPI, pfs, true);
        for (which, choice) in removed(good.len()).chain(doubled(good.len())) {
            let (mut bench, told) = create_child_request(pfs, &pick(&good, &choice));
            let gone = choice.len() < good.len();
            if gone && which == 4 {
                assert_eq!(told, [NotifyType::INVALID_KE_PAYLOAD]);
                assert_eq!(bench.host().children_up().len(), 1, "only the first");
            } else {
                // RFC 7296 §2.21.3: fatal in both peers.
                assert_eq!(told, [NotifyType::INVALID_SYNTAX], "payload {which}: {choice:?}");
                assert_eq!(bench.host().ikes().len(), 0);
                bench.established(SPI);
            }
            bench.assert_nothing_leaked();
        }
        for order in orders(good.len()) {
            let (bench, told) = create_child_request(pfs, &pick(&good, &order));
            assert_eq!(told, [], "order {order:?}");
            assert_eq!(bench.host().children_up().len(), 2);
            bench.assert_nothing_leaked();
        }
    }
}

#[test]
fn class_09_create_child_sa_request_to_rekey_a_child() {
    let mut good = vec![Payload::Notify(Notify::esp(NotifyType::REKEY_SA, SPI))];
    good.extend(child_payloads(NEW_SPI, false, true));
    for order in orders(good.len()) {
        let (bench, told) = create_child_request(false, &pick(&good, &order));
        assert_eq!(told, [], "order {order:?}");
        assert_eq!(bench.host().children().len(), 2);
    }
    // Without the notify it is another child; with a wrong one there is nothing to rekey.
    let (bench, told) = create_child_request(false, &good[1..]);
    assert_eq!((told, bench.host().children_up().len()), (vec![], 2));
    let wrong = [
        Notify::esp(NotifyType::REKEY_SA, SPI + 1),
        Notify::esp(NotifyType::REKEY_SA, 0),
        Notify { protocol: ProtocolId::AH, ..Notify::esp(NotifyType::REKEY_SA, SPI) },
    ];
    for notify in wrong {
        good[0] = Payload::Notify(notify);
        let (bench, told) = create_child_request(false, &good);
        assert_eq!(told, [NotifyType::CHILD_SA_NOT_FOUND], "{notify:?}");
        assert_eq!(bench.host().children_up().len(), 1);
        bench.assert_nothing_leaked();
    }
}

/// What REKEY_SA names is sent back in CHILD_SA_NOT_FOUND: only the protocols and SPIs that a Child SA can have are. All
/// else is INVALID_SYNTAX, without a word of what was received.
///
/// Fault: in `answer_create_child` (exchange/create_child/responder.rs), leave out `names_child`.
#[test]
fn class_22_no_protocol_or_spi_is_sent_back_that_is_not_of_a_child() {
    let spis = [Spi::None, Spi::Esp(SPI + 1), Spi::Ike(0x1122_3344_5566_7788)];
    for protocol in 0..=255 {
        for spi in spis {
            let protocol = ProtocolId(protocol);
            let notify = Notify { protocol, spi, kind: NotifyType::REKEY_SA, data: &[] };
            let mut payloads = vec![Payload::Notify(notify)];
            payloads.extend(child_payloads(NEW_SPI, false, true));
            let mut bench = bench_for_children(false);
            let mut peer = bench.established(SPI);
            let request = peer.next_request(ExchangeType::CREATE_CHILD_SA, &payloads);
            let sent = bench.give(&request);
            let opened = peer.open(&sent[0]).expect("sealed for the peer");
            let inner = decode_payloads(opened.first, &opened.octets, 0).expect("payloads");
            let [Payload::Notify(answer)] = &inner[..] else { panic!("{inner:?}") };
            let child = matches!(protocol, ProtocolId::AH | ProtocolId::ESP);
            if child && matches!(spi, Spi::Esp(_)) {
                let told = (answer.kind, answer.protocol, answer.spi);
                assert_eq!(told, (NotifyType::CHILD_SA_NOT_FOUND, protocol, spi));
            } else {
                let told = (answer.kind, answer.protocol, answer.spi);
                assert_eq!(told, (NotifyType::INVALID_SYNTAX, ProtocolId::NONE, Spi::None));
            }
            bench.assert_nothing_leaked();
        }
    }
}

#[test]
fn class_09_create_child_sa_request_to_rekey_the_ike_sa() {
    let good = rekey_ike_payloads();
    for (which, choice) in removed(good.len()).chain(doubled(good.len())) {
        let (bench, told) = create_child_request(false, &pick(&good, &choice));
        let gone = choice.len() < good.len();
        let expected = match which {
            2 if gone => NotifyType::INVALID_KE_PAYLOAD,
            _ => NotifyType::INVALID_SYNTAX,
        };
        assert_eq!(told, [expected], "payload {which}: {choice:?}");
        let alive = usize::from(expected == NotifyType::INVALID_KE_PAYLOAD);
        assert_eq!(bench.host().ikes().len(), alive);
        bench.assert_nothing_leaked();
    }
    for order in orders(good.len()) {
        let (bench, told) = create_child_request(false, &pick(&good, &order));
        assert_eq!(told, [], "order {order:?}");
        assert_eq!(bench.host().ikes_in(IkeState::Established).len(), 1);
        assert_eq!(bench.host().ikes_in(IkeState::Rekeyed).len(), 1);
        bench.assert_nothing_leaked();
    }
}

/// The endpoint sends a request, the peer answers it with `payloads`.
fn create_child_response(command: fn(&Bench) -> Command, payloads: &[Payload<'_>]) -> Bench {
    let mut bench = bench_for_children(false);
    let mut peer = bench.answered(SPI);
    // What is wanted would be begun anew after an end.
    let connection = bench.host().endpoint.config().connections[0].name.clone();
    bench.world.command(0, Command::Unwant { connection, child: None });
    let command = command(&bench);
    bench.world.command(0, command);
    assert_eq!(bench.sent().len(), 1, "the request");
    let response = peer.seal(ExchangeType::CREATE_CHILD_SA, 2, true, payloads);
    // What it says then is a Delete at most.
    let sent = bench.give(&response);
    assert!(sent.len() <= 1);
    for (id, request) in sent.iter().enumerate() {
        assert!(peer.open(request).is_some());
        let id = 3 + u32::try_from(id).expect("a message ID");
        let empty = peer.seal(ExchangeType::INFORMATIONAL, id, true, &[]);
        bench.give(&empty);
    }
    bench.world.run_for(std::time::Duration::from_secs(8));
    bench
}

#[test]
fn class_09_create_child_sa_response() {
    let commands: [fn(&Bench) -> Command; 2] = [
        |_| Command::Initiate {
            connection: "ab".to_owned(),
            child: Some("more".to_owned()),
            local: ike_tests::setup::address(1),
            remote: ike_tests::setup::address(2),
            packet: None,
        },
        |bench| Command::RekeyChild(bench.host().child().id),
    ];
    let good = child_payloads(NEW_SPI, false, false);
    for (n, command) in commands.into_iter().enumerate() {
        let after = 2 - n;
        for (which, choice) in removed(good.len()).chain(doubled(good.len())) {
            let bench = create_child_response(command, &pick(&good, &choice));
            assert_eq!(bench.host().children_up().len(), 1, "payload {which}: {choice:?}");
            bench.host().ike();
            bench.assert_nothing_leaked();
        }
        for order in orders(good.len()) {
            let bench = create_child_response(command, &pick(&good, &order));
            assert_eq!(bench.host().children_up().len(), after, "order {order:?}");
            bench.assert_nothing_leaked();
        }
    }
}

#[test]
fn class_09_create_child_sa_response_about_the_ike_sa() {
    let command: fn(&Bench) -> Command = |bench| Command::RekeyIke(bench.host().ike().id);
    let good = rekey_ike_payloads();
    for (which, choice) in removed(good.len()).chain(doubled(good.len())) {
        let bench = create_child_response(command, &pick(&good, &choice));
        // The peer has an SA that cannot be used: the two no longer agree, and it is over.
        assert_eq!(bench.host().ikes().len(), 0, "payload {which}: {choice:?}");
        bench.assert_nothing_leaked();
    }
    for order in orders(good.len()) {
        let bench = create_child_response(command, &pick(&good, &order));
        bench.host().ike();
        bench.host().child();
        bench.assert_nothing_leaked();
    }
}

// ---- without any protection ----

#[test]
fn class_09_the_payload_that_protects_the_others_is_missing() {
    let mut bench = Bench::new();
    let peer = bench.established(SPI);
    let before = format!("{:?}", bench.host().ikes());
    let (id, auth) = (identity(2), peer.auth(&identity(2), PSK));
    for exchange in
        [ExchangeType::IKE_AUTH, ExchangeType::CREATE_CHILD_SA, ExchangeType::INFORMATIONAL]
    {
        for message_id in 0..4 {
            for response in [false, true] {
                let header = Header {
                    spi_i: peer.spi_i,
                    spi_r: peer.spi_r,
                    next_payload: PayloadType::NONE,
                    minor_version: 0,
                    exchange,
                    flags: Flags { initiator: true, version: false, response },
                    message_id,
                    length: 0,
                };
                let delete = Payload::Delete(ike_proto::wire::payload::Delete::ike());
                let failed = Notify::new(NotifyType::AUTHENTICATION_FAILED, &[]);
                for payloads in
                    [vec![], vec![delete], vec![Payload::Notify(failed)], rekey_ike_payloads()]
                {
                    assert_eq!(bench.give(&encode_message(&header, &payloads)).len(), 0);
                }
                let payloads = auth_payloads(&id, &auth, SPI, true);
                assert_eq!(bench.give(&encode_message(&header, &payloads)).len(), 0);
            }
        }
    }
    assert_eq!(format!("{:?}", bench.host().ikes()), before);
}
