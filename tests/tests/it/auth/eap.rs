//! EAP in IKE_AUTH (RFC 7296 §2.16), alone (RFC 5998) and in the last of several rounds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::eap::{Authenticator, AuthenticatorConfig, Method, Offer, Peer, PeerConfig, Secrets};
use ike_proto::config::{
    AuthConfig, IdMatch, LocalAuth, PostQuantumKey, PpkId, PpkMatch, PreSharedKey, RemoteAuth,
    Unique,
};
use ike_proto::crypto::Secret;
use ike_proto::crypto::SignatureScheme::Ed25519;
use ike_proto::wire::payload::IdData;
use ike_proto::wire::registry::{AuthMethod, ExchangeType, NotifyType};
use ike_proto::{
    Answer, Command, EapAnswer, EapState, EapSuccess, Failure, IkeState, Lease, LeaseRequest,
    PolicyReason, UsedAuth,
};
use ike_tests::credentials::{Authority, credential, key_type};
use ike_tests::eap::{End, conversations};
use ike_tests::network::Conditions;
use ike_tests::plane::Plane;
use ike_tests::setup::{identity, side};
use ike_tests::{A, B, Pair, Setup};

use super::{ec, refused, root, signing, told};

/// A by EAP, B by a certificate.
pub(super) fn gateway(seed: u64) -> Setup {
    let ca = root();
    let mut setup = Setup::new(seed);
    setup.b.show(credential(&ca, ec(), 2));
    setup.a.want("pubkey", &ca);
    setup.a.connection.local[0].auth = AuthConfig::Eap;
    setup.b.connection.remote[0].auth = AuthConfig::Eap;
    setup
}

/// Both ends by EAP and nothing else.
fn alone(seed: u64) -> Setup {
    let mut setup = Setup::new(seed);
    setup.both(|side| {
        side.connection.local[0].auth = AuthConfig::Eap;
        side.connection.remote[0].auth = AuthConfig::Eap;
    });
    setup
}

struct Passwords(&'static [u8]);

impl Secrets for Passwords {
    fn password(&self, identity: &[u8]) -> Option<zeroize::Zeroizing<Vec<u8>>> {
        (identity == b"carol").then(|| self.0.to_vec().into())
    }
}

fn random() -> ::eap::Fill {
    let counter = Mutex::new(0_u8);
    Arc::new(move |octets: &mut [u8]| {
        let mut counter = counter.lock().unwrap();
        for octet in octets {
            *counter = counter.wrapping_mul(5).wrapping_add(13);
            *octet = *counter;
        }
    })
}

fn mschapv2_peer(who: &'static str, password: &'static str) -> End {
    conversations(move || {
        let offers = vec![Offer::MsChapV2(password.as_bytes().to_vec().into())];
        let identity = who.as_bytes().to_vec();
        Box::new(Peer::new(PeerConfig { identity, offers, random: random() }))
    })
}

fn mschapv2_server(password: &'static str) -> End {
    conversations(move || {
        Box::new(Authenticator::new(AuthenticatorConfig {
            name: b"b.example".to_vec(),
            identity: None,
            methods: vec![Method::MsChapV2],
            secrets: Arc::new(Passwords(password.as_bytes())),
            random: random(),
        }))
    })
}

/// A method of one request and one response that has this key in the end.
pub(super) fn short_peer(key: Option<u8>) -> End {
    Box::new(move |message| match message.packet.as_deref() {
        Some([1, ..]) => EapAnswer::Send(vec![2, 0, 0, 5, 99], EapState::default()),
        Some([3, ..]) => EapAnswer::Success(EapSuccess {
            packet: None,
            msk: key.map(|key| Secret::new(vec![key; 64])),
            method: "short".to_owned(),
            identity: None,
            password: None,
            authorization: None,
            certificate: None,
        }),
        _ => EapAnswer::Failure { packet: None, why: "refused".to_owned() },
    })
}

pub(super) fn short_server(key: Option<u8>) -> End {
    Box::new(move |message| match message.packet {
        None => EapAnswer::Send(vec![1, 0, 0, 5, 99], EapState::default()),
        Some(_) => EapAnswer::Success(EapSuccess {
            packet: Some(vec![3, 0, 0, 4]),
            msk: key.map(|key| Secret::new(vec![key; 64])),
            method: "short".to_owned(),
            identity: None,
            password: None,
            authorization: None,
            certificate: None,
        }),
    })
}

/// What EAP it was by.
fn method(used: &UsedAuth) -> Option<String> {
    Some(used.eap.as_ref()?.method.clone())
}

pub(super) fn build(setup: Setup, peer: End, server: End) -> Pair {
    let mut pair = setup.build();
    pair.hosts[A].eap = Some(peer);
    pair.hosts[B].eap = Some(server);
    pair
}

fn asked(pair: &Pair, host: usize) -> usize {
    pair.hosts[host].asked.iter().filter(|what| **what == "eap").count()
}

fn auths(pair: &Pair) -> usize {
    let mut ids = Vec::new();
    for packet in &pair.net.trace {
        let header = packet.header().unwrap();
        if header.exchange == ExchangeType::IKE_AUTH && !ids.contains(&header.message_id) {
            ids.push(header.message_id);
        }
    }
    ids.len()
}

#[track_caller]
fn comes_up(setup: Setup, peer: End, server: End) -> Pair {
    let mut pair = build(setup, peer, server);
    pair.establish();
    let (a, b) = (pair.a().ike(), pair.b().ike());
    let said = |used: &[UsedAuth]| -> Vec<_> {
        used.iter().map(|used| (used.id.clone(), used.method, method(used))).collect()
    };
    assert_eq!(said(&a.local_auth), said(&b.remote_auth));
    assert_eq!(said(&a.remote_auth), said(&b.local_auth));
    pair
}

#[test]
fn a_client_by_its_password_and_a_gateway_by_its_certificate() {
    let pair =
        comes_up(gateway(1), mschapv2_peer("carol", "Ar3etTnp"), mschapv2_server("Ar3etTnp"));
    let client = &pair.b().ike().remote_auth[0];
    assert_eq!((client.method, client.id.clone()), (AuthMethod::PSK, identity(1)));
    assert_eq!(method(client).as_deref(), Some("Some(mschapv2)"));
    assert!(pair.a().ike().remote_auth[0].scheme.is_some());
    // Identity, challenge, success, EAP-Success, AUTH.
    assert_eq!((auths(&pair), asked(&pair, A), asked(&pair, B)), (5, 4, 4));
}

#[test]
fn a_wrong_password_or_an_unknown_name_is_refused() {
    for (who, password) in [("carol", "wrong"), ("dave", "Ar3etTnp")] {
        let mut pair = build(gateway(2), mschapv2_peer(who, password), mschapv2_server("Ar3etTnp"));
        let (at_a, at_b) = refused(&mut pair);
        assert!(matches!(&at_a, Failure::Credentials(why) if why.contains("691")), "{at_a:?}");
        assert_eq!(at_b, [Failure::Authentication], "one try, for accounts may be locked");
    }
}

#[test]
fn a_gateway_that_does_not_know_the_password_is_refused() {
    // Its certificate is right, its answer to the peer's challenge is not.
    let server: End = {
        let mut real = mschapv2_server("Ar3etTnp");
        Box::new(move |message| match real(message) {
            EapAnswer::Send(mut packet, state) => {
                if packet.get(5) == Some(&3) {
                    packet[20] ^= 1;
                }
                EapAnswer::Send(packet, state)
            }
            other => other,
        })
    };
    let mut pair = build(gateway(3), mschapv2_peer("carol", "Ar3etTnp"), server);
    let (at_a, at_b) = refused(&mut pair);
    assert!(matches!(&at_a, Failure::Credentials(why) if why.contains("EAP")), "{at_a:?}");
    assert_eq!(at_b, [told()]);
}

#[test]
fn losses_copies_and_late_packets_change_nothing() {
    for seed in 0..12 {
        let mut setup = gateway(seed);
        setup.conditions = Conditions { loss: 150, duplication: 200, ..Conditions::default() };
        setup.both(|side| side.settings.retransmission.tries = Some(20));
        let pair = comes_up(setup, mschapv2_peer("carol", "Ar3etTnp"), mschapv2_server("Ar3etTnp"));
        assert_eq!((asked(&pair, A), asked(&pair, B)), (4, 4), "no packet is worked on twice");
    }
}

/// The gateway's AUTH comes first, and covers the request that the client takes for answered: here it let in a copy without
/// the cookie that it had demanded.
///
/// Fault: in `Parked::came_with`, keep the request without the cookie.
#[test]
fn the_gateway_covers_the_request_with_the_cookie() {
    let (peer, server) = (mschapv2_peer("carol", "Ar3etTnp"), mschapv2_server("Ar3etTnp"));
    let mut pair = build(gateway(21), peer, server);
    pair.net.manual = true;
    pair.set_behind(B, true);
    let request = pair.initiate(A, Some("net"));
    let first = pair.net.mailbox[0].clone();
    pair.deliver_to(B);
    pair.set_behind(B, false);
    pair.inject(first);
    pair.net.manual = false;
    pair.deliver_all();
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.b().ike_downs(), [], "{}", pair.story());
}

#[test]
fn answers_may_take_their_time() {
    let mut pair = build(gateway(4), mschapv2_peer("carol", "x"), mschapv2_server("x"));
    for host in [A, B] {
        pair.hosts[host].answer_delay = Some(Duration::from_millis(1500));
    }
    pair.establish();
    assert_eq!((asked(&pair, A), asked(&pair, B)), (4, 4));
}

#[test]
fn who_never_answers_is_given_up() {
    for silent in [A, B] {
        let mut pair = build(gateway(5), short_peer(Some(1)), short_server(Some(1)));
        pair.hosts[silent].answer_delay = None;
        let (at_a, at_b) = refused(&mut pair);
        if silent == A {
            assert!(matches!(at_a, Failure::Credentials(_)), "{at_a:?}");
        } else {
            assert!(!at_b.is_empty());
        }
    }
}

#[test]
fn a_conversation_without_end_is_ended() {
    let for_ever = || -> End {
        Box::new(|message| {
            let packet = match message.initiator {
                true => vec![2, 0, 0, 5, 99],
                false => vec![1, 0, 0, 5, 99],
            };
            EapAnswer::Send(packet, EapState::default())
        })
    };
    let mut pair = build(gateway(6), for_ever(), for_ever());
    refused(&mut pair);
    assert!(asked(&pair, A) <= 151 && asked(&pair, B) <= 151);
}

#[test]
fn no_eap_before_the_gateway_has_proven_itself() {
    let wrong: [fn(&mut Setup); 3] = [
        |s| {
            s.b.answerer = Default::default();
            s.b.show(credential(&Authority::root("x", ec(), 9), ec(), 2));
        },
        |s| s.a.connection.set_remote_id(IdMatch::Exact(identity(3))),
        |s| s.b.connection.local[0].auth = AuthConfig::Psk,
    ];
    for change in wrong {
        let mut setup = gateway(7);
        change(&mut setup);
        let mut pair = build(setup, short_peer(Some(1)), short_server(Some(1)));
        refused(&mut pair);
        assert_eq!(asked(&pair, A), 0, "the peer says nothing to a stranger");
    }
}

#[test]
fn success_in_eap_alone_proves_nothing() {
    // Somebody else sits between the methods: the keys differ.
    for (a, b) in [(Some(1), Some(2)), (None, Some(1)), (Some(1), None)] {
        let mut pair = build(gateway(8), short_peer(a), short_server(b));
        let (at_a, at_b) = refused(&mut pair);
        assert_eq!(
            (at_a, at_b),
            (told(), vec![Failure::Refused(NotifyType::AUTHENTICATION_FAILED)])
        );
    }
}

#[test]
fn a_method_without_a_key_is_bound_by_sk_p() {
    let pair = comes_up(gateway(9), short_peer(None), short_server(None));
    assert_eq!(auths(&pair), 3);
}

#[test]
fn a_failure_in_the_middle_ends_both_sides() {
    let server: End = Box::new(|message| match message.packet {
        None => EapAnswer::Send(vec![1, 0, 0, 5, 99], EapState::default()),
        Some(_) => EapAnswer::Failure { packet: Some(vec![4, 0, 0, 4]), why: "no".to_owned() },
    });
    let mut pair = build(gateway(10), short_peer(Some(1)), server);
    let (at_a, at_b) = refused(&mut pair);
    assert_eq!(at_a, Failure::Credentials("EAP: refused".to_owned()));
    assert_eq!(at_b, [Failure::Authentication]);
    // The peer's method gives up.
    let peer: End =
        Box::new(|_| EapAnswer::Failure { packet: None, why: "I do not like it".to_owned() });
    let mut pair = build(gateway(11), peer, short_server(Some(1)));
    let (at_a, at_b) = refused(&mut pair);
    assert!(matches!(at_a, Failure::Credentials(_)));
    assert_eq!(at_b, [told()]);
}

#[test]
fn a_gateway_without_a_signature_is_not_enough() {
    let needs = "EAP needs a gateway that authenticates by public key";
    for auth in [AuthConfig::Psk, AuthConfig::Null] {
        // The client does not even begin.
        let mut setup = Setup::new(12);
        setup.a.connection.local[0].auth = AuthConfig::Eap;
        setup.a.connection.remote[0].auth = auth.clone();
        let mut pair = build(setup, short_peer(Some(7)), short_server(Some(7)));
        let (at_a, _) = refused(&mut pair);
        assert!(matches!(&at_a, Failure::Config(why) if why.starts_with(needs)), "{at_a:?}");
        // The gateway gives nobody an AUTH by its secret for an identity that is only claimed.
        let mut setup = gateway(12);
        setup.b.connection.local[0].auth = auth;
        let mut pair = build(setup, short_peer(Some(7)), short_server(Some(7)));
        assert_eq!(refused(&mut pair).0, told());
        assert_eq!((asked(&pair, A), asked(&pair, B)), (0, 0));
    }
}

#[test]
fn eap_and_nothing_else() {
    let pair = comes_up(alone(13), short_peer(Some(7)), short_server(Some(7)));
    let gateway = &pair.a().ike().remote_auth[0];
    assert_eq!((gateway.id.clone(), method(gateway).as_deref()), (identity(2), Some("short")));
    // Another responder in its place does not have the key.
    let mut pair = build(alone(14), short_peer(Some(7)), short_server(Some(8)));
    refused(&mut pair);
    // Without a key nobody is authenticated.
    for (a, b) in [(None, None), (Some(1), None), (None, Some(1))] {
        refused(&mut build(alone(15), short_peer(a), short_server(b)));
    }
    // The responder must be who it is to be.
    let mut setup = alone(16);
    setup.a.connection.set_remote_id(IdMatch::Exact(identity(3)));
    setup.b.connection.set_local_id(Some(identity(2)));
    let mut pair = build(setup, short_peer(Some(7)), short_server(Some(7)));
    refused(&mut pair);
    assert_eq!(asked(&pair, A), 0);
}

#[test]
fn eap_stands_alone_only_if_both_ends_say_so() {
    let mut client = gateway(17);
    client.a.connection.remote[0].auth = AuthConfig::Eap;
    let mut server = gateway(18);
    server.b.connection.local[0].auth = AuthConfig::Eap;
    for setup in [client, server] {
        let mut pair = build(setup, short_peer(Some(7)), short_server(Some(7)));
        refused(&mut pair);
        assert_eq!(asked(&pair, A), 0);
    }
}

#[test]
fn who_shows_auth_where_eap_is_wanted_is_refused() {
    // And who wants EAP where there is none.
    let mut shows = gateway(19);
    shows.a.connection.local[0].auth = AuthConfig::Psk;
    let mut wants = gateway(20);
    wants.b.connection.remote[0].auth = AuthConfig::Psk;
    let mut key = gateway(21);
    key.b.connection.remote[0].auth = AuthConfig::pubkey();
    // A responder that is to be authenticated by EAP itself.
    let mut turned = signing(22, ec(), ec());
    turned.b.connection.local[0].auth = AuthConfig::Eap;
    for setup in [shows, wants, key, turned] {
        let mut pair = build(setup, short_peer(Some(7)), short_server(Some(7)));
        refused(&mut pair);
        assert_eq!((asked(&pair, A), asked(&pair, B)), (0, 0));
    }
}

#[test]
fn first_a_key_and_then_eap() {
    let user = || IdData::email("user@example");
    let mut setup = signing(23, key_type(Ed25519), ec());
    let local = LocalAuth { id: Some(user()), ..LocalAuth::new("local-2", AuthConfig::Eap) };
    let remote =
        RemoteAuth { id: IdMatch::Exact(user()), ..RemoteAuth::new("remote-2", AuthConfig::Eap) };
    setup.a.connection.local.push(local.clone());
    setup.b.connection.remote.push(remote);
    let pair = comes_up(setup, short_peer(Some(7)), short_server(Some(7)));
    let used = &pair.b().ike().remote_auth;
    assert_eq!((used[0].scheme.clone(), used[0].id.clone()), (Some(Ed25519), identity(1)));
    assert_eq!((used[1].id.clone(), method(&used[1]).as_deref()), (user(), Some("short")));
    // Without the second round there is nothing.
    let mut setup = signing(24, key_type(Ed25519), ec());
    setup.a.connection.local.push(local);
    refused(&mut build(setup, short_peer(Some(7)), short_server(Some(7))));
}

#[test]
fn with_a_post_quantum_preshared_key() {
    let key = |octet: u8| {
        Arc::new(PostQuantumKey {
            ids: vec![PpkId::new(*b"ppk")],
            secret: Secret::new(vec![octet; 32]),
        })
    };
    let mixing = |seed, (at_a, at_b): (Option<u8>, Option<u8>), required| {
        let mut setup = gateway(seed);
        setup.both(|side| {
            side.connection.ppk.ids = vec![PpkMatch::Exact(PpkId::new(*b"ppk"))];
            side.connection.ppk.required = required;
            side.connection.ppk.exchange = ike_proto::config::PpkExchange::Auth;
        });
        setup.a.settings.ppks = at_a.map(key).into_iter().collect();
        setup.b.settings.ppks = at_b.map(key).into_iter().collect();
        setup
    };
    let pair =
        comes_up(mixing(25, (Some(1), Some(1)), true), short_peer(Some(7)), short_server(Some(7)));
    assert!(pair.a().ike().ppk.is_some() && pair.b().ike().ppk.is_some());
    let pair = comes_up(mixing(26, (Some(1), None), false), short_peer(None), short_server(None));
    assert!(pair.a().ike().ppk.is_none() && pair.b().ike().ppk.is_none());
    for at_b in [Some(2), None] {
        let setup = mixing(27, (Some(1), at_b), true);
        refused(&mut build(setup, short_peer(Some(7)), short_server(Some(7))));
    }
}

/// What strangers make this end keep for EAP has its bounds, and is given back however it ends.
#[test]
fn conversations_are_counted_against_the_memory_of_strangers() {
    const ROOM: usize = 16 * 1024;
    let large = || -> End {
        let mut server = short_server(Some(7));
        Box::new(move |message| match server(message) {
            EapAnswer::Send(packet, _) => EapAnswer::Send(packet, EapState::of_size((), ROOM)),
            other => other,
        })
    };
    for (memory, fits) in [(3 * ROOM, true), (2 * ROOM, false)] {
        let mut setup = gateway(28);
        setup.b.settings.reassembly_memory = memory;
        let mut pair = build(setup, short_peer(Some(7)), large());
        if fits {
            pair.hosts[A].answer_delay = Some(Duration::from_millis(1500));
            let request = pair.initiate(A, Some("net"));
            let held = |w: &ike_tests::World| w.hosts[B].endpoint.reassembly_memory();
            pair.run_until(Duration::from_secs(10), |w| held(w) > ROOM);
            assert!((ROOM..ROOM + 2000).contains(&held(&pair)), "{}", held(&pair));
            pair.run_for(Duration::from_secs(10));
            assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        } else {
            // Three eighths are for strangers' conversations. That there is no room is no verdict.
            let (at_a, at_b) = refused(&mut pair);
            assert_eq!(at_a, Failure::Timeout);
            let why = Failure::Policy(PolicyReason::NoMemory);
            assert!(!at_b.is_empty() && at_b.iter().all(|it| *it == why), "{at_b:?}");
            assert_eq!(asked(&pair, A), 0);
        }
        assert_eq!(pair.b().endpoint.reassembly_memory(), 0);
    }
}

/// Who is carol in EAP is not who says ID_KEY_ID "carol": neither takes the other's SAs or addresses.
#[test]
fn an_eap_identity_is_no_identity_in_ike() {
    let in_ike = IdData::keyid(*b"carol");
    let key = Arc::new(PreSharedKey {
        ids: vec![in_ike.clone(), identity(2)],
        secret: Secret::copy_from(b"of the other carol"),
    });
    let mut setup = gateway(29);
    setup.a.connection.vips = vec![[0, 0, 0, 0].into()];
    let b = &mut setup.b;
    b.connection.unique = Unique::Replace;
    b.connection.pools = vec!["pool".to_owned()];
    b.settings.secrets.push(Arc::clone(&key));
    let mut by_secret = side(2, 3);
    by_secret.connection.name = "psk".to_owned();
    by_secret.connection.set_remote_id(IdMatch::Exact(in_ike.clone()));
    by_secret.connection.unique = Unique::Replace;
    by_secret.connection.pools = vec!["pool".to_owned()];
    by_secret.connection.children = by_secret.children.iter().cloned().map(Arc::new).collect();
    b.more.push(by_secret.connection);
    let server: End = {
        let mut short = short_server(Some(7));
        Box::new(move |message| match short(message) {
            EapAnswer::Success(success) => {
                EapAnswer::Success(EapSuccess { identity: Some(b"carol".to_vec()), ..success })
            }
            other => other,
        })
    };
    let mut pair = build(setup, short_peer(Some(7)), server);
    let leased = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&leased);
    pair.hosts[B].leaser = Some(Box::new(move |request: &LeaseRequest| {
        let mut told = told.lock().unwrap();
        told.push(request.identity.clone());
        let addresses = vec![[10, 9, 0, told.len() as u8].into()];
        Answer::Leased(request.clone(), Lease { addresses, attributes: Vec::new() })
    }));
    let mut other = side(3, 2);
    other.connection.set_local_id(Some(in_ike.clone()));
    other.connection.vips = vec![[0, 0, 0, 0].into()];
    other.settings.secrets = vec![key];
    let c = pair.add(other.address, other.config(), other.crypto.clone(), Plane::new());
    pair.establish();
    for _ in 0..2 {
        // It says INITIAL_CONTACT the second time, too: the first SA is forgotten.
        let command = Command::Initiate {
            connection: "ab".to_owned(),
            child: Some("net".to_owned()),
            local: pair.address(c),
            remote: pair.address(B),
            packet: None,
        };
        let request = pair.command(c, command);
        pair.run_for(Duration::from_secs(10));
        assert_eq!(pair.hosts[c].done(request), Some(Ok(())), "{}", pair.story());
        assert_eq!(pair.b().ikes_in(IkeState::Established).len(), 2, "{}", pair.story());
        assert_eq!(pair.a().ikes_in(IkeState::Established).len(), 1, "{}", pair.story());
        pair.restart(c, other.crypto.clone());
    }
    let carol = IdData::eap(*b"carol");
    assert_eq!(*leased.lock().unwrap(), [carol, in_ike.clone(), in_ike]);
}
