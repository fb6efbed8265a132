use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};

use ike_proto::wire::payload::IdData;
use ike_proto::{IkeSaId, Path, Transport};
use proptest::prelude::*;

use super::*;

const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

fn pools(all: &[(&str, &str)]) -> Pools {
    let pools = Pools::default();
    pools.configure(&configs(all));
    pools
}

fn configs(all: &[(&str, &str)]) -> Vec<PoolConfig> {
    let config = |(name, range): &(&str, &str)| PoolConfig {
        name: (*name).to_owned(),
        range: Range::parse(range).unwrap(),
        attributes: vec![Attribute::ApplicationVersion(name.as_bytes().to_vec())],
    };
    all.iter().map(config).collect()
}

fn request(id: &str, remote: &str, wanted: IpAddr) -> LeaseRequest {
    let remote = SocketAddr::new(remote.parse().unwrap(), 4500);
    let local = SocketAddr::from(([192, 0, 2, 1], 4500));
    LeaseRequest {
        ike: IkeSaId(1),
        connection: "rw".to_owned(),
        pools: vec!["a".to_owned(), "b".to_owned()],
        identity: IdData::parse(id).unwrap(),
        granted: Box::default(),
        path: Path { local, remote, transport: Transport::UdpEncap },
        addresses: vec![wanted],
        sole: false,
        own: false,
        resumed: false,
        asked: Vec::new(),
    }
}

fn acquire(pools: &Pools, request: &LeaseRequest) -> Option<Assignment> {
    let Answer::Leased(request, Lease { addresses, attributes }) = pools.answer(request) else {
        return None;
    };
    let LeaseRequest { ike, connection, pools, identity, path, .. } = request;
    let peer = identity;
    Some(Assignment { ike, connection, ours: false, pools, peer, path, addresses, attributes })
}

fn get(pools: &Pools, id: &str, wanted: IpAddr) -> Option<Assignment> {
    acquire(pools, &request(id, "198.51.100.1", wanted))
}

fn counts(pools: &Pools, name: &str) -> (usize, usize) {
    let view = pools.list(Some(name), false).remove(0);
    (view.online, view.offline)
}

#[test]
fn an_identity_gets_its_old_address_and_others_do_not() {
    let pools = pools(&[("a", "10.3.0.0/29")]);
    let first = get(&pools, "carol@example.org", ANY4).unwrap();
    assert_eq!(first.addresses, ["10.3.0.1".parse::<IpAddr>().unwrap()]);
    pools.release(&first);
    assert_eq!(counts(&pools, "a"), (0, 1));
    let dave = get(&pools, "dave@example.org", ANY4).unwrap();
    assert_ne!(dave.addresses, first.addresses);
    let again = get(&pools, "carol@example.org", ANY4).unwrap();
    assert_eq!(again.addresses, first.addresses);
    let other_device = get(&pools, "carol@example.org", ANY4).unwrap();
    assert_ne!(other_device.addresses, first.addresses, "she is there already");
    assert_eq!(counts(&pools, "a"), (3, 0));
}

#[test]
fn who_reauthenticates_keeps_the_address_at_both_sas() {
    let pools = pools(&[("a", "10.3.0.0/24")]);
    let first = get(&pools, "carol", ANY4).unwrap();
    let second = get(&pools, "carol", first.addresses[0]).unwrap();
    assert_eq!(second.addresses, first.addresses);
    // Somebody elsewhere who asks for it under the same name does not get it.
    let thief = acquire(&pools, &request("carol", "203.0.113.9", first.addresses[0])).unwrap();
    assert_ne!(thief.addresses, first.addresses);
    pools.release(&first);
    assert_eq!(counts(&pools, "a"), (2, 0));
    pools.release(&second);
    pools.release(&thief);
    assert_eq!(counts(&pools, "a"), (0, 2));
    pools.release(&thief);
    assert_eq!(counts(&pools, "a"), (0, 2), "what nobody has cannot be given back");
}

#[test]
fn who_comes_again_before_anybody_noticed_gets_the_same() {
    let pools = pools(&[("a", "10.3.0.0/24")]);
    let first = get(&pools, "carol", ANY4).unwrap();
    let again = LeaseRequest {
        sole: true,
        addresses: vec![ANY4, ANY4],
        ..request("carol", "203.0.113.9", ANY4)
    };
    let second = acquire(&pools, &again).unwrap();
    assert_eq!(second.addresses[0], first.addresses[0]);
    assert_ne!(second.addresses[1], first.addresses[0], "two are two");
    pools.release(&first);
    assert_eq!(counts(&pools, "a"), (2, 0));
    pools.release(&second);
    assert_eq!(counts(&pools, "a"), (0, 2));
}

/// One that resumes has it from the IKE SA that ends, whatever other ones of the same identity are there.
#[test]
fn who_goes_on_from_elsewhere_keeps_the_address() {
    let pools = pools(&[("a", "10.3.0.0/24")]);
    let (first, other) = (get(&pools, "carol", ANY4).unwrap(), get(&pools, "carol", ANY4).unwrap());
    assert_ne!(first.addresses, other.addresses);
    let elsewhere = |own, wanted: &Assignment| LeaseRequest {
        own,
        ..request("carol", "203.0.113.9", wanted.addresses[0])
    };
    let again = acquire(&pools, &elsewhere(true, &first)).unwrap();
    assert_eq!(again.addresses, first.addresses);
    pools.release(&first);
    assert_eq!(counts(&pools, "a"), (2, 0), "it is the new one's now");
    // What another one has is not its own to ask for.
    let thief = acquire(&pools, &elsewhere(false, &other)).unwrap();
    assert!(![&first, &other].iter().any(|had| had.addresses == thief.addresses));
    // Nor is what somebody else has, whatever is said.
    let dave = get(&pools, "dave", ANY4).unwrap();
    let thief = acquire(&pools, &elsewhere(true, &dave)).unwrap();
    assert_ne!(thief.addresses, dave.addresses);
}

#[test]
fn when_all_have_been_used_the_longest_gone_loses_and_then_there_is_none() {
    let pools = pools(&[("a", "10.3.0.1-10.3.0.2"), ("b", "10.4.0.1")]);
    let mut leases: Vec<_> =
        ["p", "q", "r"].iter().map(|id| get(&pools, id, ANY4).unwrap()).collect();
    assert_eq!(leases[2].addresses, ["10.4.0.1".parse::<IpAddr>().unwrap()]);
    let version = Attribute::ApplicationVersion(b"b".to_vec());
    assert_eq!(leases[2].attributes, [version], "of the pool that gave the address");
    assert!(get(&pools, "s", ANY4).is_none());
    assert!(get(&pools, "s", "::".parse().unwrap()).is_none(), "no IPv6 in them");
    let (q, p) = (leases.remove(1), leases.remove(0));
    pools.release(&q);
    pools.release(&p);
    assert_eq!(get(&pools, "s", ANY4).unwrap().addresses, q.addresses);
    assert_eq!(get(&pools, "p", ANY4).unwrap().addresses, p.addresses);
    assert!(get(&pools, "q", ANY4).is_none());
}

#[test]
fn an_address_that_is_asked_for_is_given_if_it_is_free() {
    let pools = pools(&[("a", "10.3.0.0/24")]);
    let wanted: IpAddr = "10.3.0.77".parse().unwrap();
    assert_eq!(get(&pools, "carol", wanted).unwrap().addresses, [wanted]);
    assert_ne!(get(&pools, "dave", wanted).unwrap().addresses, [wanted]);
    let elsewhere: IpAddr = "10.9.9.9".parse().unwrap();
    assert_ne!(get(&pools, "eve", elsewhere).unwrap().addresses, [elsewhere]);
}

#[test]
fn anonymous_peers_leave_nothing_behind() {
    let pools = pools(&[("a", "10.3.0.1-10.3.0.3")]);
    let nobody = IdData { kind: IdType::NULL, data: Vec::new() };
    let request = LeaseRequest { identity: nobody, ..request("x", "198.51.100.1", ANY4) };
    for _ in 0..10 {
        let all: Vec<_> = (0..3).map(|_| acquire(&pools, &request).unwrap()).collect();
        assert!(acquire(&pools, &request).is_none());
        all.iter().for_each(|one| pools.release(one));
        assert_eq!(counts(&pools, "a"), (0, 0));
    }
}

#[test]
fn a_reload_keeps_leases_by_address() {
    let pools = pools(&[("a", "10.3.0.0/24")]);
    let carol = get(&pools, "carol", ANY4).unwrap();
    let dave = get(&pools, "dave", ANY4).unwrap();
    pools.release(&dave);
    pools.configure(&configs(&[("b", "10.3.0.0/16")]));
    assert_eq!(counts(&pools, "b"), (1, 1));
    assert_ne!(get(&pools, "eve", carol.addresses[0]).unwrap().addresses, carol.addresses);
    assert_eq!(get(&pools, "dave", ANY4).unwrap().addresses, dave.addresses);
    pools.configure(&[]);
    pools.release(&carol);
    assert!(pools.list(None, true).is_empty());
}

/// Fault: in `Pools::configure`, leave out `outside.extend(…)`, or the loop that takes `outside` in.
#[test]
fn an_address_that_is_held_is_given_to_nobody_when_its_range_comes_back() {
    let large: &[(&str, &str)] = &[("a", "10.3.0.1-10.3.0.4")];
    let without: [&[(&str, &str)]; 3] =
        [&[], &[("b", "10.4.0.0/24")], &[("a", "10.3.0.3-10.3.0.4")]];
    for less in without {
        let pools = pools(large);
        let carol = get(&pools, "carol", ANY4).unwrap();
        let dave = get(&pools, "dave", ANY4).unwrap();
        let erin = get(&pools, "erin", ANY4).unwrap();
        // Reauthenticated: two IKE SAs hold the address.
        let again = get(&pools, "carol", carol.addresses[0]).unwrap();
        assert_eq!(again.addresses, carol.addresses);
        // Twice: what is outside stays outside.
        pools.configure(&configs(less));
        pools.configure(&configs(less));
        pools.release(&carol);
        pools.release(&dave);
        pools.configure(&configs(large));
        assert_eq!(counts(&pools, "a"), (2, 0), "carol and erin; dave has gone: {less:?}");
        let others: Vec<_> = (0..2).map(|n| get(&pools, &format!("p{n}"), ANY4).unwrap()).collect();
        let held = [&carol.addresses, &erin.addresses];
        assert!(others.iter().all(|other| !held.contains(&&other.addresses)), "{others:?}");
        assert!(get(&pools, "frank", carol.addresses[0]).is_none(), "nothing is left");
        pools.release(&again);
        assert_eq!(counts(&pools, "a"), (3, 1), "it is in the pool's books: {less:?}");
        assert_eq!(get(&pools, "carol", ANY4).unwrap().addresses, carol.addresses);
    }
}

/// Fault: in `Leases::release`, or in `Inner::leave`, leave out `is_of`.
#[test]
fn who_leaves_ends_no_lease_of_another() {
    let pools = pools(&[("a", "10.3.0.0/24")]);
    let carol = get(&pools, "carol", ANY4).unwrap();
    let other = Assignment { peer: IdData::parse("dave").unwrap(), ..carol.clone() };
    pools.release(&other);
    assert_eq!(counts(&pools, "a"), (1, 0));
    pools.configure(&[]);
    pools.release(&other);
    pools.configure(&configs(&[("a", "10.3.0.0/24")]));
    assert_eq!(counts(&pools, "a"), (1, 0));
    pools.release(&carol);
    assert_eq!(counts(&pools, "a"), (0, 1));
}

/// Fault: in `Inner::lines`, leave out `outside`.
#[test]
fn a_lease_outside_the_pools_survives_a_restart() {
    let folder = std::env::temp_dir().join(format!("ike-leases-out-{}", std::process::id()));
    let file = folder.join("leases.json");
    let all: &[(&str, &str)] = &[("a", "10.3.0.0/24")];
    let before = {
        let pools = pools(all);
        pools.keep_in(file.clone());
        get(&pools, "x", ANY4).unwrap();
        let carol = get(&pools, "carol", ANY4).unwrap();
        pools.configure(&[]);
        carol
    };
    let pools = pools(all);
    pools.keep_in(file);
    assert_eq!(get(&pools, "carol", ANY4).unwrap().addresses, before.addresses);
    drop(pools);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn leases_survive_a_restart_and_bad_lines() {
    let folder = std::env::temp_dir().join(format!("ike-leases-{}", std::process::id()));
    let file = folder.join("leases.json");
    let start = || {
        let pools = pools(&[("a", "10.3.0.0/24"), ("b", "fec3::/64")]);
        pools.keep_in(file.clone());
        pools
    };
    let (before, first) = {
        let pools = start();
        let early = get(&pools, "x", ANY4).unwrap();
        let carol = get(&pools, "carol@example.org", ANY4).unwrap();
        (carol, early)
    };
    use std::io::Write;
    let mut out = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    out.write_all(b"not a lease\n{\"address\":\"10.3.0.9\",\"id_type\":2,\"id\":\"0\"}\n").unwrap();
    let pools = start();
    assert_eq!(counts(&pools, "a"), (0, 2), "they are all offline");
    assert_ne!(get(&pools, "dave", ANY4).unwrap().addresses, first.addresses);
    assert_eq!(get(&pools, "carol@example.org", ANY4).unwrap().addresses, before.addresses);
    drop(pools);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn large_pools_cost_nothing() {
    let pools = pools(&[("a", "10.0.0.0/8"), ("b", "2001:db8::/64")]);
    for number in 0..2000 {
        let lease = get(&pools, &format!("p{number}"), ANY4).unwrap();
        pools.release(&lease);
        let six = get(&pools, &format!("p{number}"), "::".parse().unwrap()).unwrap();
        assert!(six.addresses[0].is_ipv6());
    }
    assert_eq!(counts(&pools, "a"), (0, 2000));
    assert_eq!(counts(&pools, "b"), (2000, 0));
}

#[test]
fn a_pool_remembers_so_many_and_gives_their_addresses_again() {
    use super::pool::MOST_OFFLINE;
    let mut leases = Leases::new(Range::parse("10.0.0.0/8").unwrap());
    let at: IpAddr = "198.51.100.1".parse().unwrap();
    let mut come = |number: usize| {
        let id = IdData::fqdn(format!("p{number}"));
        let mut claims = CLAIMS.iter();
        let got =
            claims.find_map(|claim| leases.acquire(*claim, &id, ANY4, (at, false, false), &[]));
        let got = got.unwrap();
        assert!(leases.release(got, &id));
        (got, leases.offline())
    };
    let first = come(0).0;
    for number in 1..MOST_OFFLINE {
        come(number);
    }
    assert_eq!(come(0), (first, MOST_OFFLINE), "still known");
    let (new, count) = come(MOST_OFFLINE);
    assert_eq!(count, MOST_OFFLINE);
    // p1 is the longest gone now.
    let (next, count) = come(MOST_OFFLINE + 1);
    assert_eq!(count, MOST_OFFLINE);
    assert_eq!((next, new.is_ipv4()), ("10.0.0.2".parse().unwrap(), true));
    assert_eq!(come(0).0, first);
}

proptest! {
    /// Whatever peers do: no address has two identities, nobody gets one while there is none, and when all
    /// have gone all are offline.
    #[test]
    fn no_lease_is_lost_or_given_twice(steps in prop::collection::vec((0_u8..12, any::<bool>(), 0_u8..9), 1..200)) {
        let pools = pools(&[("a", "10.3.0.1-10.3.0.4"), ("b", "10.4.0.1-10.4.0.2")]);
        let mut held: Vec<(u8, Assignment)> = Vec::new();
        for (who, comes, wish) in steps {
            if comes {
                let wanted = if wish < 6 { ANY4 } else { IpAddr::from([10, 3, 0, wish - 5]) };
                let got = acquire(&pools, &request(&format!("p{who}"), &format!("198.51.100.{who}"), wanted));
                let busy: BTreeMap<IpAddr, u8> = held.iter().map(|(who, a)| (a.addresses[0], *who)).collect();
                match got {
                    Some(one) => {
                        let owner = busy.get(&one.addresses[0]);
                        prop_assert!(owner.is_none_or(|owner| *owner == who));
                        held.push((who, one));
                    }
                    None => prop_assert_eq!(busy.len(), 6),
                }
            } else if let Some(at) = held.iter().position(|(holder, _)| *holder == who) {
                let (_, one) = held.remove(at);
                pools.release(&one);
            }
            let distinct: HashMap<IpAddr, u8> = held.iter().map(|(who, a)| (a.addresses[0], *who)).collect();
            let online: usize = pools.list(None, false).iter().map(|pool| pool.online).sum();
            prop_assert_eq!(online, distinct.len());
        }
        for (_, one) in held {
            pools.release(&one);
        }
        prop_assert_eq!(pools.list(None, false).iter().map(|pool| pool.online).sum::<usize>(), 0);
    }
}

/// What a RADIUS server grants goes to who wants it, in the family that is wanted, where the connection says so.
#[cfg(feature = "radius")]
#[test]
fn addresses_of_a_server_are_for_connections_that_take_them() {
    let pools = pools(&[("a", "10.3.0.0/30")]);
    let v6 = [0xfd, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let granted = |attributes: &[(u8, &[u8])]| -> Box<[u8]> {
        let one =
            |(kind, value): &(u8, &[u8])| [&[*kind, value.len() as u8 + 2][..], value].concat();
        attributes.iter().flat_map(one).collect()
    };
    let all = granted(&[
        (8, &[10, 9, 0, 7]),
        (8, &[10, 9, 0, 8]),
        (168, &v6),
        (26, &[0, 0, 1, 55, 28, 6, 10, 1, 0, 53]),
    ]);
    let got = |granted: &[u8], pools_named: &[&str], wanted: Vec<IpAddr>| {
        let request = LeaseRequest {
            granted: granted.into(),
            pools: pools_named.iter().map(ToString::to_string).collect(),
            addresses: wanted,
            ..request("carol@example.org", "198.51.100.1", ANY4)
        };
        acquire(&pools, &request).map(|one| (one.addresses, one.attributes))
    };
    let any6 = IpAddr::from([0_u16; 8]);
    let dns = vec![Attribute::Ip4Dns(Some([10, 1, 0, 53].into()))];
    let (seven, eight): (IpAddr, IpAddr) = ([10, 9, 0, 7].into(), [10, 9, 0, 8].into());
    assert_eq!(got(&all, &["radius"], vec![ANY4]), Some((vec![seven], dns.clone())));
    assert_eq!(got(&all, &["radius"], vec![eight]), Some((vec![eight], dns.clone())));
    let three = vec![eight, seven, v6.into()];
    assert_eq!(got(&all, &["radius"], vec![eight, ANY4, any6]), Some((three, dns.clone())));
    // There are no more than were granted, and none elsewhere; another pool may have some.
    assert_eq!(got(&granted(&[(168, &v6)]), &["radius"], vec![ANY4]), None);
    assert_eq!(got(&[], &["radius"], vec![ANY4]), None);
    let of_pool = got(&all, &["a"], vec![ANY4]).expect("an address");
    assert!(of_pool.1.contains(&dns[0]), "name servers all the same");
    assert!(of_pool.0[0] != seven && of_pool.0[0] != eight);
    let leaves_it = granted(&[(8, &[255, 255, 255, 254])]);
    let (own, _) = got(&leaves_it, &["radius", "a"], vec![ANY4]).expect("an address");
    assert!(matches!(own[0], IpAddr::V4(ip) if ip.octets()[..3] == [10, 3, 0]), "{own:?}");
}

/// A ticket says what a server granted some time ago. The session was over for it, and the address is another's.
#[cfg(feature = "radius")]
#[test]
fn a_ticket_takes_no_address_that_the_server_has_given_to_another() {
    let pools = pools(&[("a", "10.9.0.0/24")]);
    let seven: IpAddr = [10, 9, 0, 7].into();
    let by_server = |id: &str, resumed: bool| LeaseRequest {
        granted: [8, 6, 10, 9, 0, 7].into(),
        pools: vec!["radius".to_owned()],
        resumed,
        ..request(id, "198.51.100.1", ANY4)
    };
    let carol = acquire(&pools, &by_server("carol", false)).unwrap();
    assert_eq!(carol.addresses, [seven]);
    // She may come again before anybody noticed, and after.
    let again = acquire(&pools, &by_server("carol", true)).unwrap();
    pools.release(&carol);
    pools.release(&again);
    let again = acquire(&pools, &by_server("carol", true)).unwrap();
    pools.release(&again);
    let dave = acquire(&pools, &by_server("dave", false)).unwrap();
    assert_eq!(dave.addresses, [seven]);
    assert_eq!(acquire(&pools, &by_server("carol", true)), None);
    let own = LeaseRequest { own: true, ..by_server("carol", true) };
    assert_eq!(acquire(&pools, &own).unwrap().addresses, [seven], "it has not ended for her");
    pools.release(&carol);
    // The server's word of now counts.
    let carol = acquire(&pools, &by_server("carol", false)).unwrap();
    pools.release(&carol);
    pools.release(&dave);
    let carol = acquire(&pools, &by_server("carol", true)).unwrap();
    pools.release(&carol);
    // What is given back was of no pool, even if one has the address, too.
    let of_pool = |id: &str| acquire(&pools, &request(id, "198.51.100.1", seven)).unwrap();
    let erin = of_pool("erin");
    assert_eq!(erin.addresses, [seven]);
    let carol = acquire(&pools, &by_server("carol", false)).unwrap();
    pools.release(&carol);
    assert_eq!(counts(&pools, "a"), (1, 0), "it is erin's still");
}
