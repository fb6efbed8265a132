//! Ends that name no proposals: hybrid between themselves, and with every other kind of peer what that one
//! has, in as few exchanges as ever.

use std::time::Duration;

use ike_proto::config::proposal::{SelectOptions, select};
use ike_proto::config::{AuthConfig, LocalAuth, ProposalConfig, RemoteAuth};
use ike_proto::wire::payload::{Ke, Notify, Payload, Sa, Spi};
use ike_proto::wire::registry::{ExchangeType, KeMethodId, NotifyType, ProtocolId};
use ike_proto::wire::{Message, decode_payloads};
use ike_tests::bench::{Bench, net};
use ike_tests::cheap;
use ike_tests::handmade::proposal;
use ike_tests::network::Packet;
use ike_tests::setup::side;
use ike_tests::{A, B, Pair, Seeded, Setup, forge};

const INIT: ExchangeType = ExchangeType::IKE_SA_INIT;
const INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;
const CREATE_CHILD_SA: ExchangeType = ExchangeType::CREATE_CHILD_SA;
const FOLLOWUP: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;
/// Long enough for a rekeyed inbound SA to go.
const LINGER: Duration = Duration::from_secs(10);
/// Octets that an IKE_SA_INIT request may have by default.
const MOST: usize = 600;
/// Octets of UDP in the smallest packet that every IPv6 path carries.
const ONE_PACKET: usize = 1280 - 40 - 8;

const HYBRID: [KeMethodId; 2] = [KeMethodId::CURVE_25519, KeMethodId::ML_KEM_768];

/// Key exchanges of the IKE SA at `host`.
fn of_ike(pair: &Pair, host: usize) -> Vec<KeMethodId> {
    let chosen = pair.hosts[host].ike().algorithms.unwrap();
    std::iter::once(chosen.ke).chain(chosen.additional()).collect()
}

/// Those of its child.
fn of_child(pair: &Pair, host: usize) -> Vec<KeMethodId> {
    let chosen = pair.hosts[host].child().algorithms;
    std::iter::once(chosen.ke).chain(chosen.additional()).collect()
}

/// Requests of `exchange` since the trace was emptied, each once.
fn requests(pair: &Pair, exchange: ExchangeType) -> usize {
    let asked = pair.net.trace.iter().filter(|packet| packet.is(exchange, false));
    let mut ids: Vec<_> =
        asked.map(|p| (p.src, p.header().map(|h| (h.spi_i, h.spi_r, h.message_id)))).collect();
    ids.dedup();
    ids.len()
}

/// Datagrams and octets since the trace was emptied, which it is then.
fn cost(pair: &mut Pair) -> (usize, usize) {
    let sent = std::mem::take(&mut pair.net.trace);
    (sent.len(), sent.iter().map(|packet| packet.octets.len()).sum())
}

/// Has `host` rekey its child, then its IKE SA: CREATE_CHILD_SA and IKE_FOLLOWUP_KE requests of each.
#[track_caller]
fn rekeys(pair: &mut Pair, host: usize) -> [[usize; 2]; 2] {
    [true, false].map(|child| {
        pair.net.trace.clear();
        let request = if child { pair.rekey_child(host) } else { pair.rekey_ike(host) };
        pair.run_for(LINGER);
        assert_eq!(pair.hosts[host].done(request), Some(Ok(())), "{}", pair.story());
        pair.assert_agreement();
        [requests(pair, CREATE_CHILD_SA), requests(pair, FOLLOWUP)]
    })
}

fn no_failures(pair: &Pair) {
    for host in &pair.hosts {
        assert_eq!(host.child_failures(), []);
        assert_eq!(host.child_downs(), []);
        assert_eq!(host.ike_downs(), []);
    }
    assert!(pair.traffic.lost.is_empty(), "{:#?}", pair.traffic.lost);
}

/// Fault: in `ProposalConfig::default_ike`, put the hybrid proposal last.
#[test]
fn both_ends_are_hybrid_in_all_they_make() {
    let mut pair = Setup::new(1).default_proposals().build();
    pair.establish();
    assert_eq!([of_ike(&pair, A), of_ike(&pair, B)], [HYBRID; 2]);
    assert_eq!((requests(&pair, INIT), requests(&pair, INTERMEDIATE)), (1, 1), "{}", pair.story());
    // IKE_AUTH has no key exchange for its child (RFC 7296 §1.2).
    assert_eq!(of_child(&pair, A), [KeMethodId::NONE]);
    pair.traffic.watch();
    for host in [A, B, B, A] {
        assert_eq!(rekeys(&mut pair, host), [[1, 1]; 2], "{}", pair.story());
        assert_eq!([of_child(&pair, A), of_child(&pair, B)], [HYBRID; 2]);
        assert_eq!([of_ike(&pair, A), of_ike(&pair, B)], [HYBRID; 2]);
    }
    no_failures(&pair);
}

/// Both rekey at once, again and again.
#[test]
fn both_ends_at_once() {
    for seed in 0..40 {
        let mut pair = Setup::new(seed).default_proposals().build();
        pair.establish();
        pair.traffic.watch();
        pair.rekey_child(A);
        pair.run_for(Duration::from_millis(3 * seed));
        if let Some(child) = pair.b().children_up().first().map(|child| child.id) {
            pair.command(B, ike_proto::Command::RekeyChild(child));
        }
        pair.run_for(LINGER * 2);
        pair.assert_agreement();
        assert_eq!(of_child(&pair, A), HYBRID);
        assert!(pair.traffic.lost.is_empty(), "{:#?}", pair.traffic.lost);
    }
}

/// What a peer has that is not ours: its proposals, and what becomes of children in rekeys.
struct Peer {
    name: &'static str,
    ike: &'static [&'static str],
    esp: &'static [&'static str],
    ike_methods: &'static [KeMethodId],
    child_methods: &'static [KeMethodId],
    /// CREATE_CHILD_SA requests of a child's rekey by us that answers INVALID_KE_PAYLOAD make necessary:
    /// the first time, and from then on.
    asked: [usize; 2],
}

const NONE: &[KeMethodId] = &[KeMethodId::NONE];
const X25519: &[KeMethodId] = &[KeMethodId::CURVE_25519];
const P256: &[KeMethodId] = &[KeMethodId::ECP_256];

const PEERS: &[Peer] = &[
    Peer {
        name: "classical, children without a key exchange",
        ike: &["aes256gcm16-prfsha256-x25519"],
        esp: &["aes256gcm16"],
        ike_methods: X25519,
        child_methods: NONE,
        asked: [1, 1],
    },
    Peer {
        name: "the same with CBC",
        ike: &["aes256-sha256-ecp256"],
        esp: &["aes256-sha256"],
        ike_methods: P256,
        child_methods: NONE,
        asked: [1, 1],
    },
    Peer {
        name: "key exchange required, the group of the IKE SA (libreswan by default)",
        ike: &["aes256gcm16-prfsha512-prfsha256-ecp256"],
        esp: &["aes256gcm16-ecp256"],
        ike_methods: P256,
        child_methods: P256,
        asked: [1, 1],
    },
    Peer {
        name: "key exchange required, another group",
        ike: &["aes256gcm16-prfsha256-x25519"],
        esp: &["aes256-sha256-ecp256"],
        ike_methods: X25519,
        child_methods: P256,
        asked: [2, 1],
    },
    Peer {
        name: "key exchanges optional, another one first (strongSwan by default)",
        ike: &["aes256gcm16-prfsha256-x25519"],
        esp: &["aes256gcm16-ecp256-x25519-none"],
        ike_methods: X25519,
        child_methods: X25519,
        asked: [1, 1],
    },
    Peer {
        name: "hybrid IKE SA, classical children",
        ike: &["aes256gcm16-prfsha384-x25519-ke1_mlkem768"],
        esp: &["aes256gcm16-x25519"],
        ike_methods: &HYBRID,
        child_methods: X25519,
        asked: [1, 1],
    },
    Peer {
        name: "hybrid children over a classical IKE SA",
        ike: &["aes256gcm16-prfsha256-ecp256"],
        esp: &["aes256-sha256-ecp256-ke1_mlkem768"],
        ike_methods: P256,
        child_methods: &[KeMethodId::ECP_256, KeMethodId::ML_KEM_768],
        asked: [1, 1],
    },
    Peer {
        name: "additional key exchanges optional",
        ike: &["aes256gcm16-prfsha256-x25519-ke1_mlkem768-ke1_none"],
        esp: &["aes256gcm16-x25519-none-ke1_mlkem768-ke1_none"],
        ike_methods: &HYBRID,
        child_methods: &HYBRID,
        asked: [1, 1],
    },
];

/// Fault: in `ProposalConfig::default_esp`, leave out `-none` and the proposals without key exchange, or
/// all others.
#[test]
fn every_kind_of_peer_gets_what_it_has_by_either_end() {
    for (seed, peer) in (10..).zip(PEERS) {
        for initiator in [A, B] {
            let mut setup = Setup::new(seed).default_proposals();
            setup.b.ike_proposals(peer.ike);
            setup.b.esp_proposals(peer.esp);
            let mut pair = setup.build();
            let request = pair.initiate(initiator, Some("net"));
            pair.run_until(Duration::from_secs(60), |w| w.hosts[initiator].done(request).is_some());
            pair.settle();
            let name = peer.name;
            assert_eq!(
                pair.hosts[initiator].done(request),
                Some(Ok(())),
                "{name}\n{}",
                pair.story()
            );
            pair.assert_agreement();
            assert_eq!(of_ike(&pair, A), peer.ike_methods, "{name}");
            pair.traffic.watch();
            // The peer's first rekey has shown what it takes before ours.
            for host in [B, A, A, B] {
                let [[create, _], [rekey, _]] = rekeys(&mut pair, host);
                assert_eq!(rekey, 1, "{name}: IKE SA by {host}\n{}", pair.story());
                assert_eq!(create, 1, "{name}: child by {host}\n{}", pair.story());
                assert_eq!(of_child(&pair, A), peer.child_methods, "{name}");
                assert_eq!(of_ike(&pair, A), peer.ike_methods, "{name}");
            }
            no_failures(&pair);
        }
    }
}

/// The first rekey is ours, and nothing has shown yet what the peer takes for children.
#[test]
fn a_first_rekey_of_ours_finds_the_peers_method() {
    for (seed, peer) in (30..).zip(PEERS) {
        let mut setup = Setup::new(seed).default_proposals();
        setup.b.ike_proposals(peer.ike);
        setup.b.esp_proposals(peer.esp);
        let mut pair = setup.build();
        pair.establish();
        for wanted in peer.asked {
            let [[create, _], _] = rekeys(&mut pair, A);
            assert_eq!(create, wanted, "{}\n{}", peer.name, pair.story());
        }
        assert_eq!(of_child(&pair, A), peer.child_methods, "{}", peer.name);
        no_failures(&pair);
    }
}

/// A classical peer is met in the exchanges and datagrams that a classical end needs; the octets are
/// printed.
#[test]
fn a_classical_peer_costs_no_exchange_more() {
    for initiator in [A, B] {
        let figures = [false, true].map(|by_default| {
            let mut setup = Setup::new(50);
            if by_default {
                setup = setup.default_proposals();
                let classical = side(2, 1);
                setup.b.connection.proposals = classical.connection.proposals;
                setup.b.children = classical.children;
            }
            let mut pair = setup.build();
            let request = pair.initiate(initiator, Some("net"));
            pair.run_until(Duration::from_secs(60), |w| w.hosts[initiator].done(request).is_some());
            pair.settle();
            assert_eq!(pair.hosts[initiator].done(request), Some(Ok(())), "{}", pair.story());
            let handshake = cost(&mut pair);
            let child = pair.rekey_child(A);
            pair.run_for(LINGER);
            assert_eq!(pair.a().done(child), Some(Ok(())));
            let child = cost(&mut pair);
            let ike = pair.rekey_ike(A);
            pair.run_for(LINGER);
            assert_eq!(pair.a().done(ike), Some(Ok(())));
            [handshake, child, cost(&mut pair)]
        });
        println!("by {initiator}: handshake, child's rekey, rekey (datagrams, octets)");
        println!("  classical {:?}\n  default   {:?}", figures[0], figures[1]);
        for (classical, default) in figures[0].iter().zip(&figures[1]) {
            assert_eq!(classical.0, default.0, "datagrams");
        }
    }
}

fn bench(certificates: bool) -> Bench {
    let mut side = side(1, 2);
    side.connection.proposals = ProposalConfig::default_ike();
    side.net().esp_proposals = ProposalConfig::default_esp();
    side.crypto = cheap::real();
    side.settings.follow_redirects = true;
    side.connection.mobike = true;
    if certificates {
        let id = side.connection.local_id().cloned();
        side.connection.local =
            vec![LocalAuth { id, ..LocalAuth::new("local", AuthConfig::pubkey()) }];
        let id = side.connection.remote_id().clone();
        side.connection.remote =
            vec![RemoteAuth { id, ..RemoteAuth::new("remote", AuthConfig::pubkey()) }];
    }
    Bench::with(side)
}

/// The request that `answer` to the last one brings about.
#[track_caller]
fn asked_again(bench: &mut Bench, request: &[u8], kind: NotifyType, data: &[u8]) -> Vec<u8> {
    let [here, there] = [1, 2].map(|n| (ike_tests::setup::address(n), 500).into());
    let answer = forge::notify_response(&Packet::forged(here, there, request), kind, data);
    let mut sent = bench.give(&answer.octets);
    assert_eq!(sent.len(), 1, "{kind}");
    sent.remove(0)
}

/// IKE_SA_INIT cannot be fragmented, so it stays small: with the method of the first request however long
/// the cookie is, and after INVALID_KE_PAYLOAD with the curves up to P-384, as far as a cookie of this
/// engine's length goes with P-256. Greater public values speak for themselves, and are still one packet
/// on every IPv6 path.
///
/// Fault: in `ProposalConfig::default_ike`, give the hybrid proposal all methods of the classical ones.
#[test]
fn the_first_request_stays_small() {
    for certificates in [false, true] {
        let mut first = bench(certificates);
        let (_, request) = first.initiate();
        let with_cookie = asked_again(&mut first, &request, NotifyType::COOKIE, &[7; 64]);
        println!("certificates: {certificates}; x25519 {}, ", request.len());
        println!("  and a cookie of 64 octets {}", with_cookie.len());
        assert_eq!(with_cookie.len(), request.len() + 72);
        assert!(with_cookie.len() <= MOST, "{}", with_cookie.len());
        let methods = ProposalConfig::default_ike()[1].clone();
        for method in methods.ke_methods().skip(1) {
            let mut other = bench(certificates);
            let (_, request) = other.initiate();
            let data = method.0.to_be_bytes();
            let again = asked_again(&mut other, &request, NotifyType::INVALID_KE_PAYLOAD, &data);
            let cookie = asked_again(&mut other, &again, NotifyType::COOKIE, &[7; 33]);
            println!("  {method} {}, and a cookie of 33 octets {}", again.len(), cookie.len());
            let small = match method {
                KeMethodId::ECP_256 | KeMethodId::ECP_384 => MOST,
                _ => ONE_PACKET,
            };
            assert!(again.len() <= small, "{method}: {}", again.len());
            assert!(cookie.len() <= ONE_PACKET, "{method}: {}", cookie.len());
        }
    }
}

/// The proposals of a decoded request.
fn proposals_of(octets: &[u8]) -> Sa {
    let message = Message::decode(octets).unwrap();
    message
        .payloads
        .iter()
        .find_map(|payload| match payload {
            Payload::Sa(sa) => Some(sa.clone()),
            _ => None,
        })
        .unwrap()
}

/// A responder that knows nothing of RFC 9370 finds the classical proposals behind the hybrid one, in the
/// order that they had before.
#[test]
fn the_classical_proposals_follow_the_hybrid_one() {
    let (_, request) = bench(false).initiate();
    let offered = proposals_of(&request);
    let hybrid = |p: &ike_proto::wire::payload::Proposal| {
        p.transforms.iter().any(|t| t.kind.additional_ke().is_some())
    };
    assert_eq!(offered.proposals.iter().map(hybrid).collect::<Vec<_>>(), [true, false, false]);
    for (text, number) in [
        ("aes256gcm16-prfsha256-x25519", 2),
        ("aes128gcm16-prfsha512-modp4096", 2),
        ("chacha20poly1305-prfsha384-ecp521", 2),
        ("aes128-sha512-prfsha512-modp2048", 3),
    ] {
        let theirs = ProposalConfig::parse(ProtocolId::IKE, text).unwrap();
        let chosen = select(&[theirs], &offered, SelectOptions::default()).unwrap();
        assert_eq!(chosen.number, number, "{text}");
    }
}

/// IKE_AUTH has no key exchange for its child, and so proposes each suite once.
///
/// Fault: in `child_offer::offered`, push what is there already.
#[test]
fn the_request_of_ike_auth_has_each_suite_once() {
    let mut bench = bench(false);
    let (_, peer, request) = bench.answering();
    let opened = peer.open(&request).unwrap();
    let payloads = decode_payloads(opened.first, &opened.octets, 0).unwrap();
    let sa = payloads.iter().find_map(|payload| match payload {
        Payload::Sa(sa) => Some(sa.clone()),
        _ => None,
    });
    let numbers: Vec<u8> = sa.unwrap().proposals.iter().map(|p| p.number).collect();
    assert_eq!(numbers, [1, 2]);
}

/// A peer made by hand that requires a key exchange of X25519 for every child (`pfs=yes`), refuses what has
/// none, and answers INVALID_KE_PAYLOAD to nobody.
///
/// Fault: in `child_offer::first_method`, return `None`.
#[test]
fn a_strict_peer_with_pfs_rekeys_by_either_end() {
    const PFS: &str = "aes256gcm16-x25519";
    let mut bench = bench(false);
    let mut peer = bench.answered(0xc000_0001);
    let crypto = cheap::real();
    let x25519 = crypto.ke(KeMethodId::CURVE_25519).unwrap();
    let mut rng = Seeded::new(7);

    // The peer's rekey.
    let old = bench.host().child();
    let half = x25519.initiate(&mut rng).unwrap();
    let request = peer.next_request(
        CREATE_CHILD_SA,
        &[
            Payload::Notify(Notify::esp(NotifyType::REKEY_SA, old.outbound.spi)),
            Payload::Sa(proposal(ProtocolId::ESP, PFS, Spi::Esp(0xc000_0002))),
            Payload::Nonce(&[9; 32]),
            Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: half.public() }),
            Payload::TsI(vec![net(2)]),
            Payload::TsR(vec![net(1)]),
        ],
    );
    let sent = bench.give(&request);
    let answer = peer.open(&sent[0]).unwrap();
    let payloads = decode_payloads(answer.first, &answer.octets, 0).unwrap();
    assert!(payloads.iter().any(|payload| matches!(payload, Payload::Ke(_))), "{payloads:?}");

    // Ours, of another IKE SA: it has what the peer wants in the first request.
    let mut bench = self::bench(false);
    let mut peer = bench.answered(0xc000_0001);
    let child = bench.host().child().id;
    bench.world.command(0, ike_proto::Command::RekeyChild(child));
    let sent = bench.sent();
    let request = peer.open(sent.last().unwrap()).unwrap();
    let id = Message::decode(sent.last().unwrap()).unwrap().header.message_id;
    let payloads = decode_payloads(request.first, &request.octets, 0).unwrap();
    let (mut public, mut chosen) = (None, None);
    for payload in &payloads {
        match payload {
            Payload::Ke(ke) if ke.method == KeMethodId::CURVE_25519 => public = Some(ke.data),
            Payload::Sa(sa) => {
                let theirs = ProposalConfig::parse(ProtocolId::ESP, PFS).unwrap();
                chosen = select(&[theirs], sa, SelectOptions::default());
            }
            _ => {}
        }
    }
    let (public, _) = x25519.respond(public.expect("X25519 goes along"), &mut rng).unwrap();
    let chosen = chosen.expect("a proposal for the peer").to_wire(Spi::Esp(0xc000_0002));
    let response = peer.seal(
        CREATE_CHILD_SA,
        id,
        true,
        &[
            Payload::Sa(Sa { proposals: vec![chosen] }),
            Payload::Nonce(&[8; 32]),
            Payload::Ke(Ke { method: KeMethodId::CURVE_25519, data: &public }),
            Payload::TsI(vec![net(1)]),
            Payload::TsR(vec![net(2)]),
        ],
    );
    bench.give(&response);
    assert_eq!(bench.host().child_failures(), []);
    let now = bench.host().children_up();
    assert!(now.iter().any(|child| child.outbound.spi == 0xc000_0002), "{now:?}");
}
