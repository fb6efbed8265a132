//! Whom a gateway gives tickets, and what it remembers of those that it gave.

use std::net::IpAddr;
use std::sync::Mutex;

use ike_proto::config::{ConnectionConfig, EndpointConfig, PreSharedKey, Unique};
use ike_proto::{Answer, Command, Endpoint, Lease, Registry};
use ike_tests::setup::identity;
use xfrm::Summary;

use super::*;

fn connection(config: &mut EndpointConfig) -> &mut ConnectionConfig {
    Arc::make_mut(&mut config.connections[0])
}

/// B takes another configuration while the IKE SA is up. True if A's has a ticket after its next rekey.
#[track_caller]
fn granted_after(change: impl Fn(&mut EndpointConfig)) -> bool {
    let mut pair = setup(1).build();
    pair.establish();
    let mut config = pair.b().endpoint.config().clone();
    change(&mut config);
    pair.reload(B, config);
    pair.rekey_ike(A);
    pair.run_for(5 * SECOND);
    assert_eq!(pair.a().ike_rekeys().len(), 1, "{}", pair.story());
    lose(&mut pair);
    pair.initiate(A, Some("net"));
    pair.run_for(LONG);
    sent(&pair, 0, ExchangeType::IKE_SESSION_RESUME, false) > 0
}

/// The IKE SA that is up stays, but its peer has to authenticate again by what there is now (RFC 5723 §6.2).
#[test]
fn no_ticket_by_credentials_that_were_changed_or_taken_away() {
    assert!(granted_after(|_| {}));
    assert!(granted_after(|config| connection(config).dpd_delay = 20 * SECOND));
    assert!(!granted_after(|config| connection(config).credentials = 1));
    assert!(!granted_after(|config| connection(config).remote[0].eap = "tls".to_owned()));
    assert!(!granted_after(|config| connection(config).session_resumption = false));
    assert!(!granted_after(|config| config.connections.clear()));
    assert!(!granted_after(|config| config.secrets.clear()));
    let other = |config: &mut EndpointConfig| {
        let secret = Secret::copy_from(b"another one");
        let ids = vec![identity(1), identity(2)];
        config.secrets = vec![Arc::new(PreSharedKey { ids, secret })];
    };
    assert!(!granted_after(other));
    // As it was.
    assert!(granted_after(|config| config.secrets.reverse()));
}

/// What never had a ticket takes no room among those whose tickets are void.
#[test]
fn only_tickets_that_were_given_are_remembered() {
    for (asks, void) in [(true, 2), (false, 0)] {
        let mut setup = setup(2);
        setup.a.connection.session_resumption = asks;
        let mut pair = setup.build();
        pair.establish();
        pair.rekey_ike(A);
        pair.run_for(5 * SECOND);
        let ike = pair.ike_id(A);
        pair.command(A, Command::TerminateIke(ike));
        pair.run_for(5 * SECOND);
        assert_eq!((pair.a().endpoint.void_tickets(), pair.b().endpoint.void_tickets()), (0, void));
    }
}

/// The client may have asked again, and have a ticket that lasts longer than the one that it shows.
#[test]
fn all_tickets_of_an_ike_sa_that_is_resumed_are_void() {
    for earlier in [SECOND, 7200 * SECOND] {
        let mut pair = setup(2).build();
        pair.establish();
        pair.run_for(1800 * SECOND);
        // The gateway has lost the IKE SA; what it remembers can be seen.
        let registry = Registry::default();
        let mut config = pair.b().endpoint.config().clone();
        let lifetime = config.resumption.lifetime;
        config.resumption.lifetime = earlier;
        pair.hosts[B].plane = Plane::new();
        let (rng, plane) = (Box::new(ike_tests::Seeded::new(9)), pair.b().plane.capabilities);
        pair.hosts[B].endpoint =
            Endpoint::shard(config.clone(), cheap::provider(), rng, plane, registry.clone());
        config.resumption.lifetime = lifetime;
        pair.reload(B, config);
        pair.run_until(2 * LONG, |w| w.hosts[A].ikes().is_empty());
        assert!(again(&mut pair));
        let (_, void) = registry.void_since(0);
        let last = lifetime.max(earlier);
        let short = void.iter().any(|(_, until)| *until + 10 * SECOND < pair.wall() + last);
        assert!(!void.is_empty() && !short, "{void:?}");
    }
}

/// What the gateway's pools were asked for: the addresses, and whether the client has them by another IKE SA.
type Asked = Arc<Mutex<Vec<(Vec<IpAddr>, bool)>>>;

/// A client with a virtual IP, and that.
fn with_addresses(seed: u64, unique: Unique) -> (Pair, Asked) {
    let mut setup = setup(seed);
    setup.both(|side| {
        side.connection.local_addrs = vec![AddressSpec::Any(None)];
        side.connection.remote_addrs = vec![AddressSpec::Any(None)];
    });
    setup.a.connection.vips = vec![IpAddr::from([0, 0, 0, 0])];
    setup.b.connection.pools = vec!["pool".to_owned()];
    setup.b.connection.unique = unique;
    let mut pair = setup.build();
    let asked = Asked::default();
    let said = Arc::clone(&asked);
    pair.hosts[B].leaser = Some(Box::new(move |request| {
        said.lock().unwrap().push((request.addresses.clone(), request.own));
        let lease = Lease { addresses: vec![IpAddr::from([10, 9, 0, 5])], ..Lease::default() };
        Answer::Leased(request.clone(), lease)
    }));
    (pair, asked)
}

/// A client that comes from elsewhere has the address still that it had: its IKE SA has, which ends.
#[test]
fn the_address_goes_over_to_the_ike_sa_that_goes_on() {
    let vip = IpAddr::from([10, 9, 0, 5]);
    for unique in [Unique::Keep, Unique::Never, Unique::No] {
        let (mut pair, asked) = with_addresses(3, unique);
        pair.establish();
        pair.rekey_ike(A);
        pair.run_for(5 * SECOND);
        lose(&mut pair);
        pair.set_address(A, address(9));
        assert!(again(&mut pair));
        let all = asked.lock().unwrap().clone();
        assert!(!all[0].1);
        assert_eq!(all[1..], [(vec![vip], true)], "{unique:?}");
        // The one gives it up before the other has it.
        let told = pair.b().events(|event| match event {
            Event::Assigned(_) => Some("assigned"),
            Event::Unassigned(_) => Some("unassigned"),
            _ => None,
        });
        assert_eq!(told, ["assigned", "unassigned", "assigned"]);
        pair.assert_agreement();
    }
}

/// A gateway that knows nothing of the old one any more has nothing to hand over.
#[test]
fn nobody_gives_up_what_a_crash_has_taken() {
    let (mut pair, asked) = with_addresses(4, Unique::Never);
    pair.establish();
    crash(&mut pair);
    assert!(again(&mut pair));
    assert!(asked.lock().unwrap().iter().all(|(_, own)| !own));
}

/// The traffic of the old child is the new one's: it has gone before that is made.
#[test]
fn the_old_child_goes_before_the_new_one_comes() {
    let mut pair = setup(5).build();
    pair.establish();
    let old = pair.b().child().id;
    lose(&mut pair);
    pair.hosts[B].plane.inner.inner_mut().forget();
    assert!(again(&mut pair));
    assert!(pair.b().child_downs().iter().any(|(child, _)| *child == old));
    let commands = pair.b().plane.table().commands();
    let removed = commands.iter().rposition(|c| matches!(c, Summary::RemovePolicy(_)));
    let made = commands.iter().position(|c| matches!(c, Summary::InstallSa { .. }));
    assert!(removed.unwrap() < made.unwrap(), "{commands:#?}");
}
