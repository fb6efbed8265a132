//! Redirects (RFC 5685): a client, a gateway, and another one.

mod early;
mod ended;
mod staying;

use std::time::Duration;

use ike_proto::config::{Action, AddressSpec, RedirectPolicy, TsSpec};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, DropReason, Failure, IkeState, PolicyReason, RequestId};
use ike_tests::network::{Fate, Packet};
use ike_tests::plane::Plane;
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup, cheap};

/// The other gateway, at 10.0.0.3.
const C: usize = 2;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A client at A and gateways at B and C that both know it. `change` has the settings of B and C.
fn three(seed: u64, change: impl Fn(usize, &mut Setup)) -> Pair {
    let mut setup = Setup::new(seed);
    setup.both(|side| side.settings.follow_redirects = true);
    setup.a.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.b.connection.local_addrs = vec![AddressSpec::Any(None)];
    let mut other = Setup::new(seed);
    other.b.connection.local_addrs = vec![AddressSpec::Any(None)];
    change(B, &mut setup);
    change(C, &mut other);
    let mut pair = setup.build();
    let c = pair.add(address(3), other.b.config(), cheap::provider(), Plane::new());
    pair.hosts[c].answerer = other.b.answerer;
    assert_eq!(c, C);
    pair
}

fn to(gateways: &[u8]) -> RedirectPolicy {
    let to = gateways.iter().map(|n| address(*n)).collect();
    RedirectPolicy { to, ..RedirectPolicy::default() }
}

fn children(pair: &Pair, host: usize) -> usize {
    pair.hosts[host].children_up().len()
}

#[track_caller]
fn up(pair: &mut Pair) -> RequestId {
    let request = pair.initiate(A, Some("net"));
    pair.run_for(10 * SECOND);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    request
}

#[track_caller]
fn assert_served_by(pair: &Pair, gateway: usize) {
    assert_eq!(pair.a().ike().path.remote.ip(), pair.address(gateway), "{}", pair.story());
    let other = if gateway == B { C } else { B };
    assert_eq!((children(pair, A), children(pair, gateway), children(pair, other)), (1, 1, 0));
    assert_eq!(pair.hosts[other].ikes().len(), 0, "{}", pair.story());
}

#[test]
fn in_ike_sa_init() {
    let mut pair = three(1, |host, setup| {
        if host == B {
            setup.b.settings.redirect = to(&[3]);
        }
    });
    up(&mut pair);
    assert_served_by(&pair, C);
    assert_eq!(pair.b().exchanges, 0, "it costs the first gateway nothing");
}

#[test]
fn in_ike_auth() {
    let mut pair = three(2, |host, setup| {
        if host == B {
            setup.b.settings.redirect = RedirectPolicy { in_auth: true, ..to(&[3]) };
        }
    });
    up(&mut pair);
    assert_served_by(&pair, C);
}

#[test]
fn by_command() {
    let mut pair = three(3, |_, _| {});
    up(&mut pair);
    assert_served_by(&pair, B);
    let ike = pair.b().ike().id;
    let request = pair.command(B, Command::Redirect(ike, address(3)));
    pair.run_for(5 * SECOND);
    assert_eq!(pair.b().done(request), Some(Ok(())));
    assert_served_by(&pair, C);
    // Also from an SA that the gateway has rekeyed, which makes it the initiator of that.
    let ike = pair.hosts[C].ike().id;
    pair.command(C, Command::RekeyIke(ike));
    pair.run_for(10 * SECOND);
    let ike = pair.hosts[C].ike().id;
    let request = pair.command(C, Command::Redirect(ike, address(2)));
    pair.run_for(10 * SECOND);
    assert_eq!(pair.hosts[C].done(request), Some(Ok(())), "{}", pair.story());
    assert_served_by(&pair, B);
}

#[test]
fn who_does_not_follow_is_served() {
    let mut pair = three(4, |host, setup| {
        setup.a.settings.follow_redirects = false;
        if host == B {
            setup.b.settings.redirect = to(&[3]);
        }
    });
    up(&mut pair);
    assert_served_by(&pair, B);
    let ike = pair.b().ike().id;
    let request = pair.command(B, Command::Redirect(ike, address(3)));
    pair.run_for(SECOND);
    assert!(matches!(pair.b().done(request), Some(Err(Failure::Config(_)))));
    assert_served_by(&pair, B);
}

/// Each sends its clients to the other: nobody is sent back to where he comes from.
#[test]
fn two_gateways_that_point_at_each_other() {
    let mut pair = three(5, |host, setup| {
        setup.b.settings.redirect = if host == B { to(&[3]) } else { to(&[2]) };
    });
    up(&mut pair);
    assert_served_by(&pair, C);
}

/// Once authenticated they do not know where the client comes from: it stops following by itself.
#[test]
fn a_loop_ends() {
    let mut pair = three(6, |host, setup| {
        let there = if host == B { to(&[3]) } else { to(&[2]) };
        setup.b.settings.redirect = RedirectPolicy { in_auth: true, ..there };
    });
    let request = pair.initiate(A, Some("net"));
    pair.run_for(3 * MINUTE);
    let refused = Failure::Policy(PolicyReason::RedirectNotFollowed);
    assert_eq!(pair.a().done(request), Some(Err(refused)), "{}", pair.story());
    assert!(pair.a().ikes_in(IkeState::Established).is_empty());
    let begun = |packet: &&Packet| packet.is(ExchangeType::IKE_SA_INIT, false);
    assert_eq!(pair.net.trace.iter().filter(begun).count(), 6, "five were followed");
}

/// Only above the limit, and as soon as it is reached.
#[test]
fn above_a_limit() {
    let mut pair = three(7, |host, setup| {
        if host == B {
            setup.b.settings.redirect = RedirectPolicy { sas_above: Some(0), ..to(&[3]) };
        }
    });
    up(&mut pair);
    assert_served_by(&pair, B);
    let ike = pair.a().ike().id;
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(10 * SECOND);
    assert_served_by(&pair, C);
}

/// Somebody who has not seen the request, and somebody who sends what nobody can follow.
#[test]
fn forged_redirects_are_dropped() {
    let mut pair = three(8, |host, setup| {
        if host == B {
            setup.b.settings.redirect = to(&[3]);
        }
    });
    // The gateway's answer with one octet changed, octet by octet of the data.
    let mut n = 0;
    pair.net.tap(move |packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, true) && packet.src.ip() == address(2) {
            let mut octets = packet.octets.to_vec();
            let last = octets.len() - 1 - n % 32;
            octets[last] ^= 1;
            n += 1;
            packet.octets = octets.into();
        }
        Fate::Pass
    });
    pair.initiate(A, Some("net"));
    pair.run_for(MINUTE);
    assert_eq!(children(&pair, C), 0);
    assert!(pair.a().dropped.contains(&DropReason::RedirectNonce));
    pair.net.taps.clear();
    pair.run_for(MINUTE);
    assert_served_by(&pair, C);
}

fn begun(pair: &Pair) -> Vec<u64> {
    let requests = pair.net.trace.iter().filter(|p| p.is(ExchangeType::IKE_SA_INIT, false));
    let mut spis: Vec<_> = requests.filter_map(|p| p.header()).map(|h| h.spi_i).collect();
    spis.dedup();
    spis
}

/// To an address of a family that the client does not have.
#[test]
fn to_where_nothing_leads() {
    let mut pair = three(9, |host, setup| {
        if host == B {
            setup.b.settings.redirect = to(&[3]);
        }
    });
    // The gateway's answer with an IPv6 address in place of 10.0.0.3.
    pair.net.tap(|packet| {
        if packet.is(ExchangeType::IKE_SA_INIT, true) {
            let (head, rest) = packet.octets.split_at(36);
            let mut octets = head.to_vec();
            octets.extend([2, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
            octets.extend(&rest[6..]);
            let length = u32::try_from(octets.len()).unwrap();
            octets[24..28].copy_from_slice(&length.to_be_bytes());
            octets[28 + 2..28 + 4].copy_from_slice(&(length as u16 - 28).to_be_bytes());
            packet.octets = octets.into();
        }
        Fate::Pass
    });
    pair.tell_network(A);
    let request = pair.initiate(A, Some("net"));
    pair.run_for(MINUTE);
    let refused = Failure::Policy(PolicyReason::RedirectFamily);
    assert_eq!(pair.a().done(request), Some(Err(refused)), "{}", pair.story());
    assert_eq!(begun(&pair).len(), 1, "{}", pair.story());
}

/// To a gateway that is down: it goes back to its own.
#[test]
fn to_a_gateway_that_is_down() {
    let mut pair = three(10, |host, setup| {
        setup.a.connection.keyingtries = 2;
        if host == B {
            setup.b.settings.redirect = to(&[9]);
        }
    });
    let request = pair.initiate(A, Some("net"));
    pair.run_for(SECOND);
    assert_eq!(begun(&pair).len(), 2);
    let mut setup = Setup::new(10);
    setup.both(|side| side.settings.follow_redirects = true);
    setup.b.connection.local_addrs = vec![AddressSpec::Any(None)];
    pair.reload(B, setup.b.config());
    pair.run_for(10 * MINUTE);
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_served_by(&pair, B);
}

/// Told again and again to go where nobody answers: each time takes the place of the one before, and the
/// sixth is not followed; not even if the SA was rekeyed meanwhile.
#[test]
fn one_redirect_after_the_other() {
    let mut pair = three(11, |_, _| {});
    up(&mut pair);
    for n in 0..8 {
        let ike = pair.b().ike().id;
        let request = pair.command(B, Command::Redirect(ike, address(9)));
        pair.run_for(SECOND);
        assert_eq!(pair.b().done(request), Some(Ok(())));
        assert_eq!(pair.a().ikes().len(), 2, "{}", pair.story());
        assert_eq!(begun(&pair).len(), 2 + n.min(4), "{}", pair.story());
        if n == 2 {
            pair.rekey_ike(B);
            pair.run_for(SECOND);
            pair.net.trace.retain(|p| p.is(ExchangeType::IKE_SA_INIT, false));
        }
    }
}

/// The gateway that the client was sent to takes no child of it: each further try for the child goes there on the IKE SA
/// that is up, and makes no other one.
///
/// Fault: in `start_between`, leave out `sent_on`.
#[test]
fn a_child_that_is_refused_is_asked_for_where_the_client_was_sent_to() {
    let mut pair = three(31, |host, setup| match host {
        B => {
            setup.b.settings.redirect = to(&[3]);
            // The driver answers with the configured address, not with the last one.
            setup.a.connection.remote_addrs = vec![AddressSpec::single(address(2))];
            setup.a.connection.keyingtries = 0;
            setup.a.net().start_action = Action::Start;
        }
        _ => {
            setup.b.net().local_ts = vec![TsSpec::Fixed("10.77.0.0/16".parse().expect("selectors"))]
        }
    });
    pair.initiate(A, Some("net"));
    pair.run_for(10 * MINUTE);
    assert_eq!(pair.hosts[C].ikes().len(), 1, "{}", pair.story());
    assert_eq!(children(&pair, A), 0);
    assert_eq!(begun(&pair).len(), 2, "{}", pair.story());
    let refused = pair.a().child_failures().len();
    assert!((6..30).contains(&refused), "{refused} times\n{}", pair.story());
}
