//! What a peer is granted in EAP: how long its authentication is good (RFC 4478), which connection it is, and what
//! whoever grants it keeps with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::{AuthConfig, ConnectionConfig, TicketKey};
use ike_proto::crypto::Secret;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{
    Answer, Authorization, Command, EapAnswer, EapSuccess, Failure, IkeSaId, IkeState, Lease,
    LeaseRequest,
};
use ike_tests::eap::End;
use ike_tests::network::Packet;
use ike_tests::plane::Plane;
use ike_tests::setup::side;
use ike_tests::{A, B, Pair, Setup, cheap};

use super::eap::{build, gateway, short_peer, short_server};
use super::{refused, told};

const MINUTE: Duration = Duration::from_secs(60);

/// A server that grants this.
fn grants(authorization: Authorization) -> End {
    let mut short = short_server(Some(7));
    Box::new(move |message| match short(message) {
        EapAnswer::Success(success) => EapAnswer::Success(EapSuccess {
            authorization: Some(Box::new(authorization.clone())),
            ..success
        }),
        other => other,
    })
}

fn lifetime(lifetime: Duration) -> Authorization {
    Authorization { lifetime: Some(lifetime), ..Authorization::default() }
}

/// EAP of a client that succeeds so often.
fn succeeds(mut times: u32) -> End {
    let mut short = short_peer(Some(7));
    Box::new(move |message| match short(message) {
        EapAnswer::Success(_) if times == 0 => {
            EapAnswer::Failure { packet: None, why: "no more".to_owned() }
        }
        EapAnswer::Success(success) => {
            times -= 1;
            EapAnswer::Success(success)
        }
        other => other,
    })
}

fn only(pair: &Pair, host: usize) -> IkeSaId {
    let all = pair.hosts[host].ikes_in(IkeState::Established);
    assert_eq!(all.len(), 1, "{}", pair.story());
    all[0].id
}

/// Attempts that `host` began.
fn begun(pair: &Pair, host: usize) -> usize {
    let init =
        |packet: &&Packet| packet.is(ExchangeType::IKE_SA_INIT, false) && packet.from == Some(host);
    pair.net.trace.iter().filter(init).count()
}

/// It is told in IKE_AUTH, and authenticates anew in time; the gateway never begins that.
#[test]
fn a_client_authenticates_anew_before_its_time_is_over() {
    for (granted, configured) in [(Some(10 * MINUTE), None), (None, Some(10 * MINUTE))] {
        let mut setup = gateway(61);
        setup.b.connection.reauth_time = configured.unwrap_or_default();
        setup.b.connection.rand_time = Duration::ZERO;
        let authorization = Authorization { lifetime: granted, ..Authorization::default() };
        let mut pair = build(setup, short_peer(Some(7)), grants(authorization));
        pair.establish();
        let first = [A, B].map(|host| only(&pair, host));
        pair.run_for(8 * MINUTE);
        assert_eq!([A, B].map(|host| only(&pair, host)), first, "{}", pair.story());
        pair.run_for(3 * MINUTE);
        let second = [A, B].map(|host| only(&pair, host));
        assert!(second.iter().zip(first).all(|(new, old)| *new != old), "{}", pair.story());
        assert!(pair.b().ike_downs().iter().all(|(_, why)| *why != Failure::Expired));
        assert_eq!((begun(&pair, A), begun(&pair, B)), (2, 0));
        pair.assert_agreement();
    }
}

#[test]
fn one_that_does_not_loses_its_ike_sa_rekeyed_or_not() {
    for rekeyed in [false, true] {
        let mut pair = build(gateway(62), succeeds(1), grants(lifetime(10 * MINUTE)));
        pair.establish();
        pair.run_for(5 * MINUTE);
        if rekeyed {
            pair.rekey_ike(B);
            pair.run_for(MINUTE);
            pair.rekey_ike(A);
        }
        pair.run_for(2 * MINUTE);
        only(&pair, B);
        pair.run_for(4 * MINUTE);
        assert!(pair.a().ikes().is_empty() && pair.b().ikes().is_empty(), "{}", pair.story());
        let ends: Vec<_> = pair.b().ike_downs().into_iter().map(|(_, why)| why).collect();
        assert!(ends.contains(&Failure::Expired), "{ends:?}");
    }
}

/// The ticket says when it ends: to resume is not to authenticate anew.
#[test]
fn a_ticket_does_not_make_it_last_longer() {
    let mut setup = gateway(62);
    setup.both(|side| side.connection.session_resumption = true);
    setup.a.connection.dpd_delay = Duration::from_secs(10);
    let key = TicketKey { id: [1; 8], secret: Secret::new(vec![1; 32]) };
    setup.b.settings.resumption.keys = vec![Arc::new(key)];
    let mut pair = build(setup, succeeds(1), grants(lifetime(10 * MINUTE)));
    pair.establish();
    pair.run_for(MINUTE);
    // It crashes, and the client goes on.
    pair.hosts[B].plane = Plane::new();
    pair.restart(B, cheap::provider());
    pair.run_until(5 * MINUTE, |w| w.hosts[A].ikes().is_empty());
    pair.initiate(A, Some("net"));
    pair.run_for(MINUTE);
    let status = pair.hosts[B].ikes_in(IkeState::Established);
    assert!(status.len() == 1 && status[0].resumed, "{}", pair.story());
    assert!(pair.now() < 8 * MINUTE);
    let left = 11 * MINUTE - pair.now();
    pair.run_for(left);
    assert!(pair.b().ikes().is_empty(), "{}", pair.story());
}

/// A change is told, and counts instead of what was before.
#[test]
fn the_time_may_change() {
    let mut pair = build(gateway(63), short_peer(Some(7)), grants(lifetime(10 * MINUTE)));
    pair.establish();
    let first = only(&pair, B);
    let request = pair.command(B, Command::LimitAuthentication(first, 60 * MINUTE));
    pair.run_for(15 * MINUTE);
    assert_eq!(pair.b().done(request), Some(Ok(())));
    assert_eq!(only(&pair, B), first, "{}", pair.story());
    // At once, but the client has time for it.
    pair.command(B, Command::LimitAuthentication(first, Duration::ZERO));
    pair.run_for(Duration::from_secs(5));
    let second = only(&pair, B);
    assert_ne!(second, first, "{}", pair.story());
    let request = pair.command(B, Command::LimitAuthentication(first, MINUTE));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.b().done(request), Some(Err(Failure::NotFound)));
    assert_eq!(begun(&pair, B), 0);
    pair.assert_agreement();
}

/// Where this end can begin anew itself, it does, and tells nobody.
#[test]
fn a_responder_that_may_begin_does_so() {
    let mut pair = Pair::established(64);
    let first = pair.ike_id(B);
    pair.command(B, Command::LimitAuthentication(first, 5 * MINUTE));
    pair.run_for(6 * MINUTE);
    assert_ne!(only(&pair, B), first, "{}", pair.story());
    assert_eq!(begun(&pair, B), 1);
    pair.assert_agreement();
}

/// A gateway cannot have a client authenticate all the time.
#[test]
fn a_client_does_not_go_round_in_circles() {
    let mut pair = build(gateway(65), short_peer(Some(7)), grants(lifetime(Duration::ZERO)));
    pair.establish();
    pair.run_for(MINUTE);
    assert!(begun(&pair, A) <= 14, "{}", pair.story());
}

/// Another connection of B's, like its first one but for the name.
fn second(setup: &mut Setup) -> &mut ConnectionConfig {
    let mut other = side(2, 1).connection;
    other.name = "other".to_owned();
    other.local.clone_from(&setup.b.connection.local);
    other.remote.clone_from(&setup.b.connection.remote);
    other.children = setup.b.children.iter().cloned().map(Arc::new).collect();
    setup.b.more.push(other);
    setup.b.more.last_mut().unwrap()
}

#[test]
fn the_peer_may_turn_out_to_be_another_connection() {
    let offered = |change: fn(&mut ConnectionConfig), name: &str| {
        let mut setup = gateway(66);
        change(second(&mut setup));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let connection = Some(name.to_owned());
        let mut server = grants(Authorization { connection, ..Authorization::default() });
        let server: End = Box::new(move |message| {
            *told.lock().unwrap() = message.others.clone();
            server(message)
        });
        (build(setup, short_peer(Some(7)), server), seen)
    };
    let (mut pair, seen) = offered(|_| {}, "other");
    pair.establish();
    assert_eq!(*seen.lock().unwrap(), [("other".to_owned(), "remote".to_owned())]);
    assert_eq!(pair.b().ike().connection, "other");
    pair.assert_agreement();
    let (mut pair, _) = offered(|_| {}, "ab");
    pair.establish();
    assert_eq!(pair.b().ike().connection, "ab");
    // One that was not offered is no connection of this peer's.
    let changes: [fn(&mut ConnectionConfig); 3] = [
        |other| other.local[0].id = Some(ike_tests::setup::identity(9)),
        |other| other.remote[0].auth = AuthConfig::Psk,
        |other| other.remote_addrs = vec![],
    ];
    for change in changes {
        let (mut pair, seen) = offered(change, "other");
        let (failure, _) = refused(&mut pair);
        assert_eq!(failure, told());
        assert!(seen.lock().unwrap().is_empty());
    }
    let (mut pair, _) = offered(|_| {}, "nobody");
    assert_eq!(refused(&mut pair).0, told());
}

#[test]
fn what_is_granted_is_there_for_leases_and_in_the_status() {
    let mut setup = gateway(67);
    setup.a.connection.vips = vec![[0, 0, 0, 0].into()];
    setup.b.connection.pools = vec!["radius".to_owned()];
    let granted: Box<[u8]> = Box::new([25, 3, 7]);
    let server = grants(Authorization { granted: granted.clone(), ..Authorization::default() });
    let mut pair = build(setup, short_peer(Some(7)), server);
    let seen = Arc::new(Mutex::new(None));
    let told = Arc::clone(&seen);
    pair.hosts[B].leaser = Some(Box::new(move |request: &LeaseRequest| {
        *told.lock().unwrap() = Some(request.granted.clone());
        let addresses = vec![[10, 9, 0, 7].into()];
        Answer::Leased(request.clone(), Lease { addresses, attributes: Vec::new() })
    }));
    pair.establish();
    assert_eq!(*seen.lock().unwrap(), Some(granted.clone()));
    let remote = pair.b().ike().remote_auth;
    let eap = remote[0].eap.clone().unwrap();
    assert_eq!(eap.authorization.unwrap().granted, granted);
}
