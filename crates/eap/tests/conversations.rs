//! Whole conversations between both ends, and what others make of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::{Arc, Mutex};

use eap::{
    Authenticator, AuthenticatorConfig, Conversation, EapType, Fill, Method, Offer, Peer,
    PeerConfig, Secrets, Step, Success,
};
use proptest::prelude::*;
use zeroize::Zeroizing;

const PASSWORD: &[u8] = b"Ar3etTnp";

struct Carol;

impl Secrets for Carol {
    fn password(&self, identity: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        (identity == b"carol" || identity == b"LAB\\carol").then(|| PASSWORD.to_vec().into())
    }

    fn canonical(&self, _: &[u8]) -> Vec<u8> {
        b"carol".to_vec()
    }
}

fn random(seed: u8) -> Fill {
    let state = Mutex::new(seed);
    Arc::new(move |octets: &mut [u8]| {
        let mut state = state.lock().unwrap();
        for octet in octets {
            *state = state.wrapping_mul(5).wrapping_add(13);
            *octet = *state;
        }
    })
}

fn secret(password: &[u8]) -> Zeroizing<Vec<u8>> {
    password.to_vec().into()
}

fn peer(identity: &[u8], offers: Vec<Offer>) -> Peer {
    Peer::new(PeerConfig { identity: identity.to_vec(), offers, random: random(1) })
}

fn server(identity: Option<&[u8]>, methods: Vec<Method>) -> Authenticator {
    Authenticator::new(AuthenticatorConfig {
        name: b"gw".to_vec(),
        identity: identity.map(<[u8]>::to_vec),
        methods,
        secrets: Arc::new(Carol),
        random: random(2),
    })
}

/// Both ends' ends; `meddle` may change what goes by.
fn talk(
    mut peer: Peer,
    mut server: Authenticator,
    mut meddle: impl FnMut(&mut Vec<u8>, bool),
) -> (Result<Success, String>, Result<Success, String>) {
    let mut from_server = server.handle(None);
    let mut at_server = Err("nothing yet".to_owned());
    for _ in 0..300 {
        let packet = match from_server {
            Step::Send(packet) => Some(packet),
            Step::Success(success) => {
                let packet = success.packet.clone();
                at_server = Ok(success);
                packet
            }
            Step::Failure(packet, why) => {
                at_server = Err(why);
                packet
            }
        };
        let Some(mut packet) = packet else { return (Err("cut off".to_owned()), at_server) };
        meddle(&mut packet, true);
        match peer.handle(Some(&packet)) {
            Step::Send(mut packet) => {
                meddle(&mut packet, false);
                from_server = server.handle(Some(&packet));
            }
            Step::Success(success) => return (Ok(success), at_server),
            Step::Failure(_, why) => return (Err(why), at_server),
        }
    }
    panic!("they go on for ever");
}

#[test]
fn every_method_by_password() {
    let cases = [
        (Offer::MsChapV2(secret(PASSWORD)), Method::MsChapV2, true),
        (Offer::Md5(secret(PASSWORD)), Method::Md5, false),
        (Offer::Gtc(secret(PASSWORD)), Method::Gtc, false),
    ];
    for (offer, method, has_key) in cases {
        let kind = method.kind();
        for told in [None, Some(&b"carol"[..])] {
            let server = server(told, vec![method.clone()]);
            let (a, b) = talk(peer(b"carol", vec![offer.clone()]), server, |_, _| {});
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!((a.method, b.method), (Some(kind), Some(kind)));
            assert_eq!(a.msk, b.msk);
            assert_eq!(a.msk.map(|msk| msk.expose().len()), has_key.then_some(64));
            assert_eq!(b.identity, b"carol");
        }
    }
}

#[test]
fn a_domain_belongs_to_the_identity_and_not_to_the_hash() {
    let offers = vec![Offer::MsChapV2(secret(PASSWORD))];
    let (a, b) = talk(peer(b"LAB\\carol", offers), server(None, vec![Method::MsChapV2]), |_, _| {});
    // Who it is says whoever keeps the secrets: one account has one name.
    assert_eq!((a.is_ok(), b.unwrap().identity), (true, b"carol".to_vec()));
}

#[test]
fn wrong_passwords_and_unknown_names() {
    for method in [Method::MsChapV2, Method::Md5, Method::Gtc] {
        for (who, password) in [(&b"carol"[..], &b"wrong"[..]), (b"dave", PASSWORD)] {
            let password = secret(password);
            let offers = match method {
                Method::MsChapV2 => vec![Offer::MsChapV2(password)],
                Method::Md5 => vec![Offer::Md5(password)],
                _ => vec![Offer::Gtc(password)],
            };
            let (a, b) = talk(peer(who, offers), server(None, vec![method.clone()]), |_, _| {});
            assert!(a.is_err(), "{method:?}");
            let why = b.unwrap_err();
            assert!(why.contains("wrong password") || why.contains("no EAP secret"), "{why}");
            assert!(!why.contains("Ar3etTnp"));
        }
    }
}

#[test]
fn another_name_in_the_method_than_told_before_is_refused() {
    // "dave" is told, and carol's password proven.
    let offers = vec![Offer::MsChapV2(secret(PASSWORD))];
    let server = server(Some(b"dave"), vec![Method::MsChapV2]);
    let (a, b) = talk(peer(b"carol", offers), server, |_, _| {});
    assert!(a.is_err());
    assert!(b.unwrap_err().contains("another name"));
}

#[test]
fn the_peer_says_which_method_it_wants() {
    let methods = vec![Method::Gtc, Method::Md5, Method::MsChapV2];
    let offers = vec![Offer::MsChapV2(secret(PASSWORD)), Offer::Md5(secret(PASSWORD))];
    let (a, b) = talk(peer(b"carol", offers), server(None, methods), |_, _| {});
    assert_eq!(a.unwrap().method, b.unwrap().method);
    // None in common.
    let offers = vec![Offer::Md5(secret(PASSWORD))];
    let (a, b) = talk(peer(b"carol", offers), server(None, vec![Method::Gtc]), |_, _| {});
    assert!(a.is_err() && b.unwrap_err().contains("none of the methods"));
    let (a, _) = talk(peer(b"carol", Vec::new()), server(None, vec![Method::Gtc]), |_, _| {});
    assert!(a.is_err());
}

#[test]
fn success_is_not_believed_before_the_method_is_through() {
    let success = [3, 1, 0, 4];
    let mut fresh = peer(b"carol", vec![Offer::MsChapV2(secret(PASSWORD))]);
    assert!(matches!(fresh.handle(Some(&success)), Step::Failure(..)));
    // After each of the authenticator's packets but the last.
    for turns in 1..=2 {
        let mut peer = peer(b"carol", vec![Offer::MsChapV2(secret(PASSWORD))]);
        let mut server = server(Some(b"carol"), vec![Method::MsChapV2]);
        let mut step = server.handle(None);
        for _ in 0..turns {
            let Step::Send(packet) = step else { panic!("{step:?}") };
            let Step::Send(answer) = peer.handle(Some(&packet)) else { panic!() };
            step = server.handle(Some(&answer));
        }
        let early = turns == 1;
        assert_eq!(matches!(peer.handle(Some(&success)), Step::Failure(..)), early);
    }
}

#[test]
fn requests_out_of_place_and_notifications() {
    let mut peer = peer(b"carol", vec![Offer::Md5(secret(PASSWORD))]);
    assert_eq!(
        peer.handle(Some(&[1, 9, 0, 8, 2, b'h', b'e', b'y'])),
        Step::Send(vec![2, 9, 0, 5, 2])
    );
    assert_eq!(
        peer.handle(Some(&[1, 10, 0, 5, 1])),
        Step::Send([&[2, 10, 0, 10, 1][..], b"carol"].concat())
    );
    assert!(matches!(peer.handle(Some(&[1, 11, 0, 7, 4, 1, 7])), Step::Send(_)));
    // Neither the identity nor another method any more.
    assert!(matches!(peer.handle(Some(&[1, 12, 0, 5, 1])), Step::Failure(..)));
    assert!(matches!(peer.handle(Some(&[1, 12, 0, 5, 26])), Step::Failure(..)));
    for bad in [&[2, 1, 0, 5, 1][..], &[1], &[], &[9, 1, 0, 4]] {
        assert!(matches!(peer.handle(Some(bad)), Step::Failure(..)), "{bad:?}");
    }
}

#[test]
fn an_authenticator_takes_answers_to_its_own_request_alone() {
    let mut server = server(None, vec![Method::Md5]);
    let Step::Send(request) = server.handle(None) else { panic!() };
    let mut answer = [&[2, request[1], 0, 10, 1][..], b"carol"].concat();
    answer[1] ^= 1;
    assert!(matches!(server.handle(Some(&answer)), Step::Failure(Some(_), _)));
    for identity in [&[][..], &[b'x'; 254]] {
        let mut server = self::server(None, vec![Method::Md5]);
        let Step::Send(request) = server.handle(None) else { panic!() };
        let len = (5 + identity.len()) as u16;
        let [high, low] = len.to_be_bytes();
        let answer = [&[2, request[1], high, low, 1][..], identity].concat();
        assert!(matches!(server.handle(Some(&answer)), Step::Failure(Some(_), _)));
    }
}

#[test]
fn neither_end_goes_on_for_ever() {
    let mut peer = peer(b"carol", Vec::new());
    let ended = (0..1000).any(|_| matches!(peer.handle(Some(&[1, 1, 0, 5, 2])), Step::Failure(..)));
    assert!(ended);
}

#[test]
fn names_of_types() {
    assert_eq!(EapType::MSCHAPV2.to_string(), "mschapv2");
    assert_eq!(EapType(200).to_string(), "type 200");
    let safe: Vec<u8> = (0..=255).filter(|kind| EapType(*kind).is_safe_alone()).collect();
    assert_eq!(safe, [13, 21]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A bit that changes on the way of MSCHAPv2 never lets one end succeed with another key than the other.
    #[test]
    fn no_change_on_the_way_goes_unseen(turn in 0..8_usize, place in 0..80_usize, bit in 0..8_u32) {
        let mut count = 0;
        let offers = vec![Offer::MsChapV2(secret(PASSWORD))];
        let server = server(None, vec![Method::MsChapV2]);
        let (a, b) = talk(peer(b"carol", offers), server, |packet, _| {
            if count == turn && let Some(octet) = packet.get_mut(place) {
                *octet ^= 1 << bit;
            }
            count += 1;
        });
        if let (Ok(a), Ok(b)) = (a, b) {
            prop_assert_eq!(a.msk, b.msk);
        }
    }

    #[test]
    fn nothing_panics(packets in proptest::collection::vec(proptest::collection::vec(0..=255_u8, 0..60), 1..6), kind in 0..4_usize) {
        let kinds = [EapType::MSCHAPV2, EapType::MD5, EapType::GTC, EapType::IDENTITY];
        let offers = vec![Offer::MsChapV2(secret(PASSWORD)), Offer::Md5(secret(PASSWORD)), Offer::Gtc(secret(PASSWORD))];
        let mut peer = peer(b"carol", offers);
        let methods = vec![Method::MsChapV2, Method::Md5, Method::Gtc];
        let mut server = server(Some(b"carol"), methods);
        let _ = server.handle(None);
        for body in packets {
            let len = (body.len() + 5) as u16;
            let [high, low] = len.to_be_bytes();
            for code in [1, 2] {
                let packet = [&[code, body.len() as u8, high, low, kinds[kind].0][..], &body].concat();
                let _ = peer.handle(Some(&packet));
                let _ = server.handle(Some(&packet));
            }
            let _ = peer.handle(Some(&body));
            let _ = server.handle(Some(&body));
        }
    }
}
