//! Resumption together with the rest: rekeys, redirects, PPKs, EAP, NAT, MOBIKE, virtual IPs.

use std::net::IpAddr;

use ike_proto::config::{
    AuthConfig, PostQuantumKey, PpkConfig, PpkExchange, PpkId, PpkMatch, PpkRekey, RedirectPolicy,
};
use ike_proto::wire::payload::IdData;
use ike_proto::{Authorization, Command, EapAnswer, EapState, EapSuccess, Lease};
use ike_tests::credentials::{Authority, credential, key_type};
use ike_tests::network::Nat;

use super::*;
use ike_proto::crypto::SignatureScheme::Ed25519;

#[test]
fn a_rekey_gives_a_new_ticket_and_ends_the_old_one() {
    for by in [A, B] {
        let mut pair = setup(1).build();
        pair.establish();
        pair.rekey_ike(by);
        pair.run_for(5 * SECOND);
        let rekeyed = pair.a().ike();
        assert!(!rekeyed.resumed);
        lose(&mut pair);
        assert!(again(&mut pair), "rekeyed by {by}");
        pair.assert_agreement();
        assert!(complaints(&pair, B).is_empty());
    }
}

#[test]
fn a_redirect_takes_the_ticket_along() {
    let mut setup = setup(2);
    setup.a.settings.follow_redirects = true;
    let mut pair = three(setup, |_| {});
    pair.establish();
    let ike = pair.b().ike().id;
    pair.command(B, Command::Redirect(ike, address(3)));
    pair.run_for(5 * SECOND);
    let now = pair.a().ike();
    assert_eq!(now.path.remote.ip(), address(3), "{}", pair.story());
    assert!(now.resumed && pair.hosts[C].ike().resumed && pair.b().ikes().is_empty());
    assert_eq!(sent(&pair, 0, ExchangeType::IKE_SA_INIT, false), 1);
}

#[test]
fn a_redirect_in_answer_to_a_ticket() {
    for known in [true, false] {
        let mut setup = setup(3);
        setup.a.settings.follow_redirects = true;
        let mut pair = three(setup, |c| gateway(c, if known { &[1] } else { &[3] }));
        pair.establish();
        lose(&mut pair);
        let mut config = pair.b().endpoint.config().clone();
        config.redirect = RedirectPolicy { to: vec![address(3)], ..RedirectPolicy::default() };
        pair.reload(B, config);
        let request = pair.initiate(A, Some("net"));
        pair.run_for(5 * SECOND);
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        let now = pair.a().ike();
        assert_eq!((now.path.remote.ip(), now.resumed), (address(3), known), "{}", pair.story());
    }
}

fn ppk(side: &mut Side, required: bool, exchange: PpkExchange) {
    let id = PpkId::new(&b"key"[..]);
    let secret = Secret::copy_from(b"a secret of 32 octets and more ..");
    side.settings.ppks = vec![Arc::new(PostQuantumKey { ids: vec![id.clone()], secret })];
    let ids = vec![PpkMatch::Exact(id)];
    side.connection.ppk = PpkConfig { ids, required, exchange, rekey: PpkRekey::No };
}

/// It is in SK_d, and so in what comes of that (RFC 8784 §3); nothing is mixed in again.
#[test]
fn ppks() {
    for exchange in [PpkExchange::Auth, PpkExchange::Intermediate] {
        let mut setup = setup(4);
        setup.both(|side| ppk(side, true, exchange));
        let mut pair = setup.build();
        pair.establish();
        lose(&mut pair);
        assert!(again(&mut pair));
        let (a, b) = (pair.a().ike(), pair.b().ike());
        assert!(a.ppk.is_some() && a.ppk == b.ppk);
        pair.assert_agreement();
    }
}

#[test]
fn a_ppk_that_is_required_now_or_gone() {
    let mut pair = setup(5).build();
    pair.establish();
    lose(&mut pair);
    for (host, side) in [(A, setup(5).a), (B, setup(5).b)] {
        let mut side = side;
        ppk(&mut side, host == B, PpkExchange::Any);
        pair.reload(host, side.config());
    }
    assert!(!again(&mut pair));
    assert_eq!(complaints(&pair, B), ["a PPK is required"]);
    // This one has it, and then B has not.
    lose(&mut pair);
    pair.reload(B, setup(5).b.config());
    assert!(!again(&mut pair));
    assert_eq!(complaints(&pair, B)[1..], ["its PPK is not configured any more"]);
}

/// Without its password, and without the gateway's certificate.
#[test]
fn a_road_warrior_by_eap() {
    let ca = Authority::root("root", key_type(Ed25519), 1);
    let mut setup = setup(6);
    setup.b.show(credential(&ca, key_type(Ed25519), 2));
    setup.a.want("pubkey", &ca);
    setup.a.connection.local[0].auth = AuthConfig::Eap;
    setup.b.connection.remote[0].auth = AuthConfig::Eap;
    setup.a.connection.vips = vec![IpAddr::from([0, 0, 0, 0])];
    setup.b.connection.pools = vec!["pool".to_owned()];
    let mut pair = setup.build();
    let key = || Some(Secret::new(vec![7; 64]));
    pair.hosts[A].eap = Some(Box::new(move |message| match message.packet.as_deref() {
        Some([1, ..]) => EapAnswer::Send(vec![2, 0, 0, 5, 99], EapState::default()),
        _ => EapAnswer::Success(EapSuccess {
            packet: None,
            msk: key(),
            method: "short".to_owned(),
            identity: None,
            password: None,
            authorization: None,
            certificate: None,
        }),
    }));
    pair.hosts[B].eap = Some(Box::new(move |message| match message.packet {
        None => EapAnswer::Send(vec![1, 0, 0, 5, 99], EapState::default()),
        Some(_) => EapAnswer::Success(EapSuccess {
            packet: Some(vec![3, 0, 0, 4]),
            msk: key(),
            method: "short".to_owned(),
            identity: Some(b"carol".to_vec()),
            certificate: None,
            password: None,
            authorization: Some(Box::new(Authorization {
                connection: None,
                lifetime: Some(30 * MINUTE),
                granted: Box::new([25, 3, 7]),
            })),
        }),
    }));
    // Who asks for no address in particular gets the next one.
    let mut next = 4;
    pair.hosts[B].leaser = Some(Box::new(move |request| {
        assert_eq!(request.identity, IdData::eap(b"carol".to_vec()));
        assert_eq!(*request.granted, [25, 3, 7]);
        next += 1;
        let wanted = request.addresses.iter().copied().find(|ip| !ip.is_unspecified());
        let given = wanted.unwrap_or(IpAddr::from([10, 9, 0, next]));
        let lease = Lease { addresses: vec![given], ..Lease::default() };
        ike_proto::Answer::Leased(request.clone(), lease)
    }));
    pair.establish();
    let vip = pair.a().ike().assignment.unwrap().addresses.clone();
    let eap = |pair: &Pair, host: usize| {
        pair.hosts[host].asked.iter().filter(|what| **what != "lease").count()
    };
    let before = (eap(&pair, A), eap(&pair, B));
    assert!(before.0 > 0);
    let due = pair.time_of(pair.b().ike().reauth_at.unwrap());
    assert!(due < 30 * MINUTE, "{due:?}");
    lose(&mut pair);
    assert!(again(&mut pair));
    assert_eq!((eap(&pair, A), eap(&pair, B)), before, "nobody is asked for anything");
    let (a, b) = (pair.a().ike(), pair.b().ike());
    assert_eq!(a.assignment.unwrap().addresses, vip, "the same address");
    let carol = b.remote_auth[0].eap.clone().unwrap();
    assert_eq!(carol.id, Some(IdData::eap(b"carol".to_vec())));
    // What was granted goes on, and no longer than it was.
    assert_eq!(*carol.authorization.unwrap().granted, [25, 3, 7]);
    let then = pair.time_of(b.reauth_at.unwrap());
    assert!(then <= due + SECOND && then + 5 * SECOND >= due, "{then:?} {due:?}");
    assert_eq!(pair.a().children_up().len(), 1);
    // When that changes, the ticket is good for nothing.
    let ike = pair.ike_id(B);
    pair.command(B, Command::LimitAuthentication(ike, 20 * MINUTE));
    pair.run_for(SECOND);
    lose(&mut pair);
    assert!(!again(&mut pair));
    assert!(eap(&pair, B) > before.1);
}

/// From another network, behind a NAT that was not there.
#[test]
fn from_elsewhere() {
    let mut setup = setup(7);
    setup.both(|side| {
        side.connection.mobike = true;
        side.connection.local_addrs = vec![AddressSpec::Any(None)];
        side.connection.remote_addrs = vec![AddressSpec::Any(None)];
    });
    let mut pair = setup.build();
    pair.establish();
    lose(&mut pair);
    pair.set_address(A, address(9));
    pair.net.nats.push(Nat::new(address(9), IpAddr::from([192, 0, 2, 1])));
    assert!(again(&mut pair));
    let (a, b) = (pair.a().ike(), pair.b().ike());
    assert!(a.nat_local && b.nat_remote && a.mobike && b.mobike);
    assert_eq!(b.path.remote.ip(), IpAddr::from([192, 0, 2, 1]));
    assert_eq!(pair.b().ikes().len(), 1, "the old one is gone");
}

/// What a chain of key exchanges has made goes on without another one.
#[test]
fn after_additional_key_exchanges_and_fragments() {
    let mut setup = setup(8).real();
    setup.both(|side| side.ike_proposals(&["aes256gcm16-prfsha384-x25519-ke1_mlkem768"]));
    let mut pair = setup.build();
    pair.establish();
    lose(&mut pair);
    let from = pair.net.trace.len();
    assert!(again(&mut pair));
    assert_eq!(sent(&pair, from, ExchangeType::IKE_INTERMEDIATE, false), 0);
    let all = pair.a().ike().algorithms.unwrap();
    assert_eq!(all.additional().count(), 1, "a rekey does it again");
    pair.rekey_ike(A);
    pair.run_for(10 * SECOND);
    pair.assert_agreement();
    lose(&mut pair);
    assert!(again(&mut pair), "the ticket of the rekeyed one");
}

/// The old SA is over at the gateway without a word, and its child with it, though others of the same
/// identity stay.
#[test]
fn only_the_old_one_is_replaced() {
    let mut setup = setup(9);
    setup.both(|side| side.connection.unique = ike_proto::config::Unique::Never);
    let mut pair = setup.build();
    pair.establish();
    let old = pair.b().ike().id;
    lose(&mut pair);
    assert!(again(&mut pair));
    assert!(pair.b().ikes().iter().all(|ike| ike.id != old));
    assert_eq!(sent(&pair, 0, ExchangeType::INFORMATIONAL, true), 0);
    pair.assert_agreement();
}

/// The old one is none that the new one would have to make way for.
#[test]
fn unique_keep_keeps_the_new_one() {
    let mut setup = setup(10);
    setup.b.connection.unique = ike_proto::config::Unique::Keep;
    let mut pair = setup.build();
    pair.establish();
    for _ in 0..2 {
        let old = pair.b().ike().id;
        lose(&mut pair);
        assert!(again(&mut pair));
        pair.run_for(30 * SECOND);
        assert_eq!((pair.a().ikes().len(), pair.b().ikes().len()), (1, 1), "{}", pair.story());
        assert!(pair.a().ike().resumed && pair.b().ike().resumed && pair.b().ike().id != old);
        pair.assert_agreement();
    }
}
