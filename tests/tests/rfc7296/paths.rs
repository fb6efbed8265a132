//! §2.4, §2.11, §2.23: addresses, ports, and who is the only one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{AddressSpec, TsSpec, Unique};
use ike_proto::dataplane::{Event, Mode, TrafficSelector};
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{Command, Failure, Input, Notice, Now};
use ike_tests::bench::Bench;
use ike_tests::network::{Nat, Packet};
use ike_tests::plane::Plane;
use ike_tests::setup::address;
use ike_tests::{A, B, Pair, Setup, cheap};
use xfrm::Summary;

/// Hands `octets` to the endpoint as if from `src`; returns where its answers go.
fn answers_to(bench: &mut Bench, src: SocketAddr, octets: &[u8]) -> Vec<SocketAddr> {
    let dst = bench.world.socket(0, 500);
    bench.world.inject(Packet::forged(src, dst, octets));
    bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect()
}

#[test]
fn s2_11_a_response_goes_to_where_the_request_came_from() {
    let mut bench = Bench::new();
    let mut peer = bench.established(1007);
    let elsewhere = SocketAddr::new(address(9), 1234);
    let request = peer.next_request(ExchangeType::INFORMATIONAL, &[]);
    assert_eq!(answers_to(&mut bench, elsewhere, &request), [elsewhere]);
    // There is no NAT: nothing else goes there (§2.23).
    let home = SocketAddr::new(address(2), 500);
    assert_eq!(bench.host().ike().path.remote, home);
    let ike = bench.host().ike().id;
    bench.world.command(0, Command::TerminateIke(ike));
    let sent: Vec<_> = bench.world.net.mailbox.drain(..).map(|packet| packet.dst).collect();
    assert_eq!(sent, [home]);
}

/// A client behind a NAT at `outside` and a server, in transport mode and established.
fn transport_behind_a_nat(outside: IpAddr) -> Pair {
    let mut setup = Setup::new(1);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.a.connection.dpd_delay = Duration::from_secs(10);
    setup.both(|side| {
        let net = side.net();
        net.mode = Mode::Transport;
        (net.local_ts, net.remote_ts) = (vec![TsSpec::DYNAMIC], vec![TsSpec::DYNAMIC]);
    });
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), outside));
    pair.establish();
    pair
}

/// The client is behind a NAT, the server names itself by its own address: what each end installs is
/// in its own terms, and rekeying keeps it so.
#[test]
fn s2_23_1_transport_mode_behind_a_nat() {
    let outside: IpAddr = [192, 0, 2, 1].into();
    let mut pair = transport_behind_a_nat(outside);
    let seen = |local: IpAddr, remote: IpAddr| {
        (vec![TrafficSelector::host(local)], vec![TrafficSelector::host(remote)])
    };
    let assert_in_own_terms = |pair: &Pair| {
        let (a, b) = (pair.a().child(), pair.b().child());
        assert_eq!((a.mode, b.mode), (Mode::Transport, Mode::Transport));
        assert!(a.encap.is_some() && b.encap.is_some());
        assert_eq!((a.local_ts, a.remote_ts), seen(address(1), address(2)));
        assert_eq!((b.local_ts, b.remote_ts), seen(address(2), outside));
    };
    assert_in_own_terms(&pair);
    for end in [A, B] {
        pair.rekey_child(end);
        pair.run_for(Duration::from_secs(30));
        assert_in_own_terms(&pair);
    }
}

/// The client asks for transport mode from behind a NAT, and the server has tunnel mode for the addresses behind it: the
/// substitution is undone, and the child is in tunnel mode.
///
/// Fault: in `choose_mode` (exchange/child_sa.rs), look for the child of tunnel mode by `as_seen_here` as well.
#[test]
fn s2_23_1_transport_mode_behind_a_nat_falls_back_to_tunnel_mode() {
    let outside: IpAddr = [192, 0, 2, 1].into();
    let mut setup = Setup::new(2);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let net = setup.a.net();
    net.mode = Mode::Transport;
    (net.local_ts, net.remote_ts) = (vec![TsSpec::DYNAMIC], vec![TsSpec::DYNAMIC]);
    let behind = TrafficSelector::from_cidr([10, 0, 0, 0].into(), 24).expect("a prefix");
    let net = setup.b.net();
    (net.local_ts, net.remote_ts) = (vec![TsSpec::DYNAMIC], vec![TsSpec::Fixed(behind)]);
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), outside));
    pair.establish();
    let (a, b) = (pair.a().child(), pair.b().child());
    assert_eq!((a.mode, b.mode), (Mode::Tunnel, Mode::Tunnel), "{}", pair.story());
    let host = |n| vec![TrafficSelector::host(address(n))];
    assert_eq!((a.local_ts, a.remote_ts), (host(1), host(2)));
    assert_eq!((b.local_ts, b.remote_ts), (host(2), host(1)));
    for end in [A, B] {
        pair.rekey_child(end);
        pair.run_for(Duration::from_secs(30));
        pair.assert_agreement();
    }
}

/// The NAT in front of the client takes another address: what the server has installed must not go on
/// naming the old one.
#[test]
fn s2_23_1_transport_mode_follows_a_nat_to_another_address() {
    let (outside, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 77].into());
    let mut pair = transport_behind_a_nat(outside);
    let old = pair.b().child();
    pair.net.nats[0].outside = other;
    pair.net.nats[0].rebind();
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.b().ike().path.remote.ip(), other);
    let new = pair.b().child();
    assert_ne!(new.id, old.id, "{}", pair.story());
    let seen = vec![TrafficSelector::host(other)];
    assert_eq!((&new.remote_ts, new.outbound.dst), (&seen, other));
    let plane = &pair.b().plane;
    for (id, sa) in plane.table().sas() {
        assert_eq!((&sa.remote_ts, sa.mode), (&seen, Mode::Transport), "{id:?}");
    }
    assert!(plane.table().policies().all(|policy| policy.remote_ts == seen));
    // The client has noticed nothing but a rekey.
    let a = pair.a().child();
    assert_eq!(a.remote_ts, vec![TrafficSelector::host(address(2))]);
    assert_eq!(a.local_ts, vec![TrafficSelector::host(address(1))]);
    assert!(pair.b().child_downs().is_empty() && pair.b().child_failures().is_empty());
    pair.run_for(Duration::from_secs(30));
    pair.assert_agreement();
}

/// The first thing that comes through a new mapping is ESP: the server's data plane says so, and IKE and
/// children follow. The client is behind the NAT itself and follows nobody, nor does a pair without one.
#[test]
fn s2_23_what_esp_shows_of_a_new_mapping_is_followed() {
    let mut setup = Setup::new(7);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), [192, 0, 2, 1].into()));
    pair.establish();
    let elsewhere = SocketAddr::new([192, 0, 2, 1].into(), 40_000);
    let mapping = |pair: &Pair, host: usize| {
        let sa = if host == A { pair.a().child() } else { pair.b().child() }.inbound;
        Event::Mapping { sa, remote: elsewhere }
    };
    let home = pair.a().ike().path.remote;
    let event = mapping(&pair, A);
    pair.plane_event(A, event);
    let event = mapping(&pair, B);
    pair.plane_event(B, event);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().ike().path.remote, home);
    assert_eq!(pair.b().ike().path.remote, elsewhere, "{}", pair.story());
    let ports: Vec<_> = pair.b().plane.table().sas().map(|(_, sa)| sa.encap).collect();
    assert!(
        ports.iter().flatten().any(|encap| encap.ports().dst_port == elsewhere.port()),
        "{ports:?}"
    );
    assert!(
        ports.iter().flatten().any(|encap| encap.ports().src_port == elsewhere.port()),
        "{ports:?}"
    );

    let mut direct = Pair::established(7);
    let home = direct.b().ike().path.remote;
    let event = mapping(&direct, B);
    direct.plane_event(B, event);
    direct.run_for(Duration::from_secs(1));
    assert_eq!(direct.b().ike().path.remote, home);
}

/// A child that is being deleted, or was rekeyed, has no outbound half to be moved. Asking the data plane
/// for it would fail, and take every other child along.
#[test]
fn s2_23_a_half_closed_child_does_not_fail_the_move() {
    let (outside, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 77].into());
    let mut setup = Setup::new(3);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.a.add_child("more", 3, 4);
    setup.b.add_child("more", 4, 3);
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), outside));
    pair.establish();
    let request = pair.initiate(A, Some("more"));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    // B rekeys "net" and has switched to the new SA; its Delete for the old one is still under way when
    // A's next message comes from elsewhere.
    let net = pair.b().children_up().into_iter().find(|child| child.name == "net").unwrap();
    pair.net.manual = true;
    pair.command(B, Command::RekeyChild(net.id));
    for _ in ["the request", "the response"] {
        assert!(pair.deliver_first(|_| true));
    }
    pair.net.nats[0].outside = other;
    pair.net.nats[0].rebind();
    let more = pair.a().children_up().into_iter().find(|child| child.name == "more").unwrap();
    pair.command(A, Command::RekeyChild(more.id));
    pair.deliver_all();
    pair.net.manual = false;
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.b().ike().path.remote.ip(), other, "{}", pair.story());
    assert_eq!(pair.b().children_up().len(), 2, "{}", pair.story());
    assert!(pair.b().child_downs().is_empty(), "{}", pair.story());
    pair.assert_agreement();
}

/// Two connections between the same identities, brought up at once: neither says that it is the only
/// one.
#[test]
fn s2_4_initial_contact_is_not_said_of_a_second_ike_sa() {
    let mut setup = Setup::new(1);
    setup.both(|side| {
        let mut more = side.connection.clone();
        more.name = "more".to_owned();
        more.children = side.children.iter().cloned().map(Arc::new).collect();
        side.more.push(more);
    });
    let mut pair = setup.build();
    for connection in ["ab", "more"] {
        let child = Some("net".to_owned());
        let (local, remote) = (address(1), address(2));
        let connection = connection.to_owned();
        pair.command(A, Command::Initiate { connection, child, local, remote, packet: None });
    }
    pair.run_for(Duration::from_secs(30));
    assert_eq!((pair.a().ikes().len(), pair.b().ikes().len()), (2, 2), "{}", pair.story());
}

/// What the peer has forgotten goes before the child of its new IKE SA is made: both are for the same traffic.
#[test]
fn s2_4_initial_contact_ends_the_old_ike_sa_first() {
    for unique in [Unique::No, Unique::Replace] {
        let mut setup = Setup::new(5);
        setup.b.connection.unique = unique;
        let mut pair = setup.build();
        pair.establish();
        let old = pair.b().child().id;
        pair.hosts[A].plane = Plane::new();
        pair.restart(A, cheap::provider());
        pair.hosts[B].plane.inner.inner_mut().forget();
        let request = pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(5));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        assert_eq!(pair.b().child_downs(), [(old, Failure::Replaced)]);
        let commands = pair.b().plane.table().commands();
        let removed = commands.iter().rposition(|c| matches!(c, Summary::RemovePolicy(_)));
        let made = commands.iter().position(|c| matches!(c, Summary::InstallSa { .. }));
        assert!(removed.unwrap() < made.unwrap(), "{unique:?}: {commands:#?}");
        assert_eq!(pair.b().ikes().len(), 1);
        pair.assert_agreement();
    }
}

/// Only `never` passes over it. With `keep` a peer that has restarted would have to wait for the end of an IKE SA that it
/// does not have.
///
/// Fault: in `on_established`, look at `Unique::Keep` before `initial_contact`, and leave `Keep` out in `forgets_others`
/// (exchange/auth/first_contact.rs).
#[test]
fn s2_4_initial_contact_is_not_obeyed_everywhere() {
    for (unique, left, moved) in
        [(Unique::Never, 2, false), (Unique::Keep, 1, false), (Unique::Keep, 1, true)]
    {
        let mut setup = Setup::new(6);
        setup.a.connection.local_addrs = vec![AddressSpec::Any(None)];
        setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
        setup.b.connection.unique = unique;
        setup.b.connection.dpd_delay = Duration::ZERO;
        let mut pair = setup.build();
        pair.establish();
        let old = pair.b().ike().id;
        pair.hosts[A].plane = Plane::new();
        pair.restart(A, cheap::provider());
        if moved {
            pair.set_address(A, address(9));
        }
        pair.initiate(A, Some("net"));
        pair.run_for(Duration::from_secs(5));
        assert_eq!(pair.b().ikes().len(), left, "{unique:?}: {}", pair.story());
        let is_there = pair.b().ikes().iter().any(|ike| ike.id == old);
        assert_eq!(is_there, unique == Unique::Never, "{unique:?}");
        assert_eq!(pair.a().children_up().len(), 1, "{unique:?}");
    }
}

/// `keep` refuses a second one that comes from elsewhere, and none from the same address: the peer may be authenticating
/// anew.
///
/// Fault: in `on_established`, leave `all_are_at` out.
#[test]
fn s2_4_keep_lets_the_same_peer_authenticate_anew() {
    let mut setup = Setup::new(7);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.b.connection.unique = Unique::Keep;
    let mut pair = setup.build();
    pair.establish();
    let (old, ike) = (pair.b().ike().id, pair.ike_id(A));
    pair.command(A, Command::Reauthenticate(ike));
    pair.run_for(Duration::from_secs(10));
    assert_ne!(pair.b().ike().id, old, "{}", pair.story());
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
}

/// What another shard says of an IKE SA that has been rekeyed since holds for its successor.
#[test]
fn s2_4_initial_contact_reaches_the_successor() {
    for notice in [Notice::Forgotten, Notice::Replaced] {
        let mut pair = Pair::established(4);
        let old = pair.ike_id(B);
        pair.net.manual = true;
        pair.rekey_ike(A);
        assert!(pair.deliver_first(|_| true), "the request");
        assert_ne!(pair.b().ike_rekeys(), []);
        let now = Now { mono: pair.instant(), wall: pair.wall() };
        pair.hosts[B].endpoint.handle(now, Input::Notice(old, notice));
        pair.wake(B);
        pair.net.manual = false;
        pair.deliver_all();
        pair.run_for(Duration::from_secs(120));
        assert!(pair.b().ikes().is_empty(), "{notice:?}\n{}", pair.story());
        assert!(pair.b().plane.table().is_empty());
    }
}

/// The same of one that this end has begun to delete before the peer used it.
#[test]
fn s2_23_a_child_that_never_carried_does_not_fail_the_move() {
    let (outside, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 77].into());
    let mut setup = Setup::new(3);
    setup.b.connection.remote_addrs = vec![AddressSpec::Any(None)];
    setup.a.add_child("more", 3, 4);
    setup.b.add_child("more", 4, 3);
    let mut pair = setup.build();
    pair.net.nats.push(Nat::new(address(1), outside));
    pair.establish();
    let request = pair.initiate(A, Some("more"));
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    let named = |pair: &Pair, host: usize, name: &str| {
        let children = pair.hosts[host].children_up().into_iter();
        children.filter(|child| child.name == name).max_by_key(|child| child.id).unwrap()
    };
    // A rekeys "net", and its Delete of the old SA is lost; B has the new one, and is told to end it before
    // it was used.
    let old = named(&pair, A, "net").id;
    pair.net.manual = true;
    pair.command(A, Command::RekeyChild(old));
    for _ in ["the request", "the response"] {
        assert!(pair.deliver_first(|_| true));
    }
    pair.lose_to(B);
    let new = named(&pair, B, "net");
    pair.command(B, Command::TerminateChild(new.id));
    pair.plane_event(B, Event::FirstPacket(new.inbound));
    // A's Delete comes again, from elsewhere.
    pair.net.nats[0].outside = other;
    pair.net.nats[0].rebind();
    pair.net.mailbox.clear();
    pair.net.manual = false;
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.b().ike().path.remote.ip(), other, "{}", pair.story());
    assert!(pair.b().children_up().iter().any(|child| child.name == "more"), "{}", pair.story());
    assert!(pair.a().children_up().iter().any(|child| child.name == "more"), "{}", pair.story());
    pair.assert_agreement();
}
