//! Road warriors and a gateway on the simulated network, the gateway with the daemon's own pools: what they
//! agree on, and that no lease is lost however they go.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eap::{Authenticator, AuthenticatorConfig, Method, Offer, Peer, PeerConfig, Secrets};
use ike_aaa::{PoolConfig, Pools, Range};
use ike_proto::config::{AddressSpec, AuthConfig, IdMatch, PreSharedKey, TsSpec, Unique};
use ike_proto::crypto::{Secret, SecureRandom, SignatureScheme};
use ike_proto::wire::payload::{Attribute, IdData};
use ike_proto::wire::registry::NotifyType;
use ike_proto::{Assignment, Command, Event, Failure};
use ike_tests::credentials::{Authority, credential};
use ike_tests::eap::conversations;
use ike_tests::plane::Plane;
use ike_tests::setup::side;
use ike_tests::{A, B, Host, Pair, Setup, World};
use pq_kem::sign::KeyType;

const ANY4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
const ANY6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(name: &str, range: &str, attributes: Vec<Attribute>) -> PoolConfig {
    PoolConfig { name: name.to_owned(), range: Range::parse(range).unwrap(), attributes }
}

/// Pools "four" with a name server and domains, and "six".
fn pools(four: &str) -> Pools {
    let pools = Pools::default();
    let told = vec![
        Attribute::Ip4Dns(Some([10, 2, 0, 53].into())),
        Attribute::DnsDomain(Some("corp.example".to_owned())),
    ];
    pools.configure(&[pool("four", four, told), pool("six", "fec3::/112", Vec::new())]);
    pools
}

/// A asks for addresses, B gives them out of `pools`; B's child is for them.
fn warrior(seed: u64, vips: &[IpAddr]) -> Setup {
    let mut setup = Setup::new(seed);
    setup.a.connection.vips = vips.to_vec();
    setup.b.connection.pools = vec!["four".to_owned(), "six".to_owned()];
    let all = ["10.2.0.0/16", "fec2::/64"].map(|ts| TsSpec::Fixed(ts.parse().unwrap()));
    setup.a.net().local_ts = vec![TsSpec::DYNAMIC];
    setup.a.net().remote_ts = all.to_vec();
    setup.b.net().local_ts = all.to_vec();
    setup.b.net().remote_ts = vec![TsSpec::DYNAMIC];
    setup
}

fn build(setup: Setup, pools: &Pools) -> Pair {
    let mut pair = setup.build();
    let own = pools.clone();
    pair.hosts[B].leaser = Some(Box::new(move |request| own.answer(request)));
    pair
}

/// What the driver does: gives back what the engine says is over. The assignments that came and went.
fn give_back(host: &mut Host, pools: &Pools, done: &mut usize) -> Vec<(bool, Arc<Assignment>)> {
    let told: Vec<(bool, Arc<Assignment>)> = host.log[*done..]
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Assigned(assignment) => Some((true, Arc::clone(assignment))),
            Event::Unassigned(assignment) => Some((false, Arc::clone(assignment))),
            _ => None,
        })
        .collect();
    *done = host.log.len();
    for (_, assignment) in told.iter().filter(|(up, a)| !up && !a.ours) {
        pools.release(assignment);
    }
    told
}

fn online(pools: &Pools) -> usize {
    pools.list(None, false).iter().map(|pool| pool.online).sum()
}

fn local_ts(host: &Host) -> Vec<String> {
    host.child().local_ts.iter().map(ToString::to_string).collect()
}

#[test]
fn both_families_are_assigned_and_protected() {
    let pools = pools("10.3.0.0/24");
    let mut pair = build(warrior(1, &[ANY4, ANY6]), &pools);
    pair.establish();
    let own = pair.a().ike().assignment.unwrap();
    assert!(own.ours);
    assert_eq!(own.addresses, [address("10.3.0.1"), address("fec3::1")]);
    let dns: Vec<_> = own.attributes.iter().filter_map(Attribute::dns).collect();
    assert_eq!(dns, [address("10.2.0.53")]);
    assert!(own.attributes.contains(&Attribute::DnsDomain(Some("corp.example".to_owned()))));
    assert_eq!(local_ts(pair.a()), ["10.3.0.1/32", "fec3::1/128"]);
    let given = pair.b().ike().assignment.unwrap();
    assert!(!given.ours);
    assert_eq!((given.addresses.len(), online(&pools)), (2, 2));
    let (up, down) = (&mut 0, &mut 0);
    assert_eq!(give_back(&mut pair.hosts[A], &pools, up).len(), 1);
    // It goes on through rekeys of both SAs, and another child has the same addresses.
    pair.rekey_child(A);
    pair.settle();
    pair.rekey_ike(B);
    pair.run_for(Duration::from_secs(60));
    pair.assert_agreement();
    assert_eq!(local_ts(pair.a()), ["10.3.0.1/32", "fec3::1/128"]);
    assert_eq!(pair.a().ike().assignment.unwrap().addresses, own.addresses);
    assert!(give_back(&mut pair.hosts[B], &pools, down).iter().all(|(up, _)| *up));
    let ike = pair.ike_id(A);
    pair.command(A, Command::TerminateIke(ike));
    pair.settle();
    let gone = give_back(&mut pair.hosts[A], &pools, up);
    assert_eq!(gone.iter().map(|(up, _)| *up).collect::<Vec<_>>(), [false], "once");
    give_back(&mut pair.hosts[B], &pools, down);
    assert_eq!(online(&pools), 0);
}

#[test]
fn reauthentication_keeps_the_addresses() {
    let pools = pools("10.3.0.0/24");
    let mut pair = build(warrior(2, &[ANY4]), &pools);
    pair.establish();
    let ike = pair.ike_id(A);
    pair.command(A, Command::Reauthenticate(ike));
    pair.settle();
    assert_ne!(pair.ike_id(A), ike);
    assert_eq!(pair.a().ike().assignment.unwrap().addresses, [address("10.3.0.1")]);
    assert_eq!(local_ts(pair.a()), ["10.3.0.1/32"]);
    give_back(&mut pair.hosts[B], &pools, &mut 0);
    assert_eq!(online(&pools), 1);
}

#[test]
fn crossed_rekeys_of_the_ike_sa_give_nothing_back() {
    let pools = pools("10.3.0.0/24");
    let mut pair = build(warrior(3, &[ANY4]), &pools);
    pair.establish();
    let (a, b) = (pair.ike_id(A), pair.ike_id(B));
    pair.command(A, Command::RekeyIke(a));
    pair.command(B, Command::RekeyIke(b));
    pair.run_for(Duration::from_secs(120));
    pair.assert_agreement();
    assert_eq!(pair.b().ike().assignment.unwrap().addresses, [address("10.3.0.1")]);
    assert!(give_back(&mut pair.hosts[B], &pools, &mut 0).iter().all(|(up, _)| *up));
    assert_eq!(online(&pools), 1);
}

#[test]
fn without_an_address_left_there_is_an_ike_sa_and_no_child() {
    let pools = pools("10.3.0.1");
    let other = assigned_to_another(&pools);
    let mut pair = build(warrior(4, &[ANY4]), &pools);
    let request = pair.initiate(A, Some("net"));
    pair.settle();
    let failure = Failure::Peer(NotifyType::INTERNAL_ADDRESS_FAILURE);
    assert_eq!(pair.a().done(request), Some(Err(failure)), "{}", pair.story());
    assert!(pair.a().ike().children.is_empty() && pair.b().ike().children.is_empty());
    pools.release(&other);
    let ike = pair.ike_id(A);
    pair.command(A, Command::TerminateIke(ike));
    pair.settle();
    pair.establish();
}

/// Somebody else has the first address.
fn assigned_to_another(pools: &Pools) -> Arc<Assignment> {
    let mut setup = warrior(5, &[ANY4]);
    let carol = IdData::fqdn("carol.example");
    setup.a.connection.set_local_id(Some(carol.clone()));
    setup.b.connection.set_remote_id(IdMatch::Exact(carol));
    let any = PreSharedKey { ids: Vec::new(), secret: Secret::copy_from(b"anybody's") };
    let any = Arc::new(any);
    setup.both(|side| side.settings.secrets = vec![Arc::clone(&any)]);
    let mut pair = build(setup, pools);
    pair.establish();
    pair.b().ike().assignment.unwrap()
}

#[test]
fn who_does_not_ask_where_he_must_gets_no_child() {
    let pools = pools("10.3.0.0/24");
    let mut pair = build(warrior(6, &[]), &pools);
    let request = pair.initiate(A, Some("net"));
    pair.settle();
    let failure = Failure::Peer(NotifyType::FAILED_CP_REQUIRED);
    assert_eq!(pair.a().done(request), Some(Err(failure)));
    assert_eq!(pair.a().ike().children.len(), 0);
    assert_eq!(online(&pools), 0);
}

#[test]
fn who_asks_where_there_is_nothing_gets_no_child() {
    let mut setup = warrior(7, &[ANY4]);
    setup.b.connection.pools.clear();
    let mut pair = setup.build();
    let request = pair.initiate(A, Some("net"));
    pair.settle();
    let failure = Failure::Peer(NotifyType::INTERNAL_ADDRESS_FAILURE);
    assert_eq!(pair.a().done(request), Some(Err(failure)));
    assert_eq!(pair.hosts[B].asked, [""; 0], "nobody is asked in vain");
}

#[test]
fn an_answer_that_comes_too_late_is_given_back() {
    let pools = pools("10.3.0.0/24");
    let mut pair = build(warrior(8, &[ANY4]), &pools);
    pair.hosts[B].answer_delay = Some(Duration::from_secs(600));
    pair.initiate(A, Some("net"));
    pair.run_for(Duration::from_secs(590));
    assert!(pair.b().ikes().is_empty(), "{}", pair.story());
    pair.run_for(Duration::from_secs(60));
    assert!(!pair.b().asked.is_empty());
    assert_eq!(online(&pools), 1, "it was given, to nobody");
    give_back(&mut pair.hosts[B], &pools, &mut 0);
    let pool = pools.list(Some("four"), false).remove(0);
    assert_eq!((pool.online, pool.offline), (0, 1));
}

#[test]
fn a_peer_that_vanishes_gives_its_address_back() {
    let pools = pools("10.3.0.0/24");
    let mut setup = warrior(9, &[ANY4]);
    setup.b.connection.dpd_delay = Duration::from_secs(10);
    let mut pair = build(setup, &pools);
    pair.establish();
    pair.net.conditions.loss = 1000;
    pair.run_for(Duration::from_secs(900));
    assert!(pair.b().ikes().is_empty());
    give_back(&mut pair.hosts[B], &pools, &mut 0);
    assert_eq!(online(&pools), 0);
}

/// The password of a user.
fn password(user: &[u8]) -> Vec<u8> {
    [b"secret of ", user].concat()
}

struct Passwords;

impl Secrets for Passwords {
    fn password(&self, identity: &[u8]) -> Option<zeroize::Zeroizing<Vec<u8>>> {
        Some(password(identity).into())
    }
}

fn random() -> eap::Fill {
    Arc::new(|octets: &mut [u8]| pq_kem::os_random().fill(octets))
}

/// A gateway, and road warriors that come with a password (EAP-MSCHAPv2), go with a word or without, come
/// again, reauthenticate, and move (MOBIKE).
fn come_and_go(warriors: usize) {
    let pools = pools("10.3.0.0/20");
    let mut world = World::new(10);
    world.net.tracing = false;
    let curve = || KeyType::Scheme(SignatureScheme::EcdsaP256Sha256);
    let ca = Authority::root("root", curve(), 0);
    let mut gateway = warrior(10, &[ANY4]).b;
    gateway.show(credential(&ca, curve(), 2));
    gateway.connection.mobike = true;
    gateway.connection.remote[0].auth = AuthConfig::Eap;
    gateway.connection.set_remote_id(IdMatch::Any);
    gateway.connection.remote_addrs = vec![AddressSpec::Any(None)];
    gateway.connection.unique = Unique::Replace;
    let home = gateway.address;
    let at = world.add(home, gateway.config(), gateway.crypto.clone(), Plane::new());
    world.hosts[at].answerer = std::mem::take(&mut gateway.answerer);
    let own = pools.clone();
    world.hosts[at].leaser = Some(Box::new(move |request| own.answer(request)));
    world.hosts[at].eap = Some(conversations(|| {
        Box::new(Authenticator::new(AuthenticatorConfig {
            name: b"gateway".to_vec(),
            identity: None,
            methods: vec![Method::MsChapV2],
            secrets: Arc::new(Passwords),
            random: random(),
        }))
    }));
    let mut hosts = Vec::new();
    for number in 0..warriors {
        let mut warrior = warrior(10, &[ANY4]).a;
        let here = IpAddr::from([172, 16, (number >> 8) as u8, number as u8]);
        warrior.connection.mobike = true;
        warrior.connection.local_addrs = vec![AddressSpec::Any(None)];
        warrior.connection.local[0].auth = AuthConfig::Eap;
        // All say the same of themselves; it is EAP that tells them apart.
        warrior.connection.set_local_id(Some(IdData::fqdn("client.example")));
        warrior.want("pubkey", &ca);
        let host = world.add(here, warrior.config(), side(1, 2).crypto, Plane::new());
        world.hosts[host].answerer = std::mem::take(&mut warrior.answerer);
        world.hosts[host].eap = Some(conversations(move || {
            let identity = format!("w{number}").into_bytes();
            let offers = vec![Offer::MsChapV2(password(&identity).into())];
            Box::new(Peer::new(PeerConfig { identity, offers, random: random() }))
        }));
        hosts.push(host);
    }
    let mut first: Vec<Option<IpAddr>> = vec![None; warriors];
    let mut done = 0;
    for round in 0..3_usize {
        for &host in &hosts {
            let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
            let (local, remote) = (world.address(host), home);
            let command = Command::Initiate { connection, child, local, remote, packet: None };
            world.command(host, command);
        }
        world.settle();
        give_back(&mut world.hosts[at], &pools, &mut done);
        assert_eq!(online(&pools), warriors, "round {round}");
        for (number, &host) in hosts.iter().enumerate() {
            let ike = world.hosts[host].ike();
            let [mine] = ike.assignment.unwrap().addresses[..] else { panic!("not one address") };
            assert_eq!(*first[number].get_or_insert(mine), mine, "the same one again");
        }
        // A tenth of them gets another address meanwhile, and no SA is lost.
        for (number, &host) in hosts.iter().enumerate().filter(|(number, _)| number % 10 == 0) {
            let part = (number >> 8) as u8 | (round as u8) << 6;
            world.roam(host, IpAddr::from([172, 17, part, number as u8]));
        }
        world.settle();
        assert_eq!(world.hosts[at].children_up().len(), warriors, "round {round}");
        let paths: HashSet<IpAddr> =
            world.hosts[at].ikes().iter().map(|ike| ike.path.remote.ip()).collect();
        assert!(hosts.iter().all(|host| paths.contains(&world.address(*host))));
        for (number, &host) in hosts.iter().enumerate() {
            let ike = world.hosts[host].ike();
            match (number + round) % 4 {
                // He says goodbye.
                0 | 1 => _ = world.command(host, Command::TerminateIke(ike.id)),
                // He reauthenticates, and goes without a word.
                2 => _ = world.command(host, Command::Reauthenticate(ike.id)),
                // He goes without a word, and the gateway says goodbye to nobody.
                _ => {}
            }
        }
        world.settle();
        for (number, &host) in hosts.iter().enumerate() {
            if (number + round) % 4 >= 2 {
                let plane = Plane::new();
                world.hosts[host].plane = plane;
                world.restart(host, side(1, 2).crypto);
            }
        }
        give_back(&mut world.hosts[at], &pools, &mut done);
        assert_eq!(online(&pools), warriors / 2, "round {round}: who said nothing");
    }
    let ids: Vec<_> = world.hosts[at].ikes().into_iter().map(|ike| ike.id).collect();
    for ike in ids {
        world.command(at, Command::TerminateIke(ike));
    }
    world.run_for(Duration::from_secs(600));
    give_back(&mut world.hosts[at], &pools, &mut done);
    let pool = pools.list(Some("four"), false).remove(0);
    assert_eq!((pool.online, pool.offline), (0, warriors));
}

#[test]
fn a_thousand_road_warriors_leak_no_lease() {
    come_and_go(1000);
}

/// An EAP identity is another than the same octets as an identity of IKE, also in the file.
#[test]
fn a_lease_of_an_eap_identity_outlives_a_restart() {
    let file = crate::common::tempdir("eap-leases").join("leases.json");
    let begin = || {
        let pools = Pools::default();
        pools.configure(&[pool("four", "10.3.0.0/24", Vec::new())]);
        pools.keep_in(file.clone());
        pools
    };
    let ask = |pools: &Pools, identity: IdData| {
        let at = |text: &str| std::net::SocketAddr::new(address(text), 4500);
        let (local, remote) = (at("192.0.2.1"), at("198.51.100.1"));
        let path = ike_proto::Path { local, remote, transport: ike_proto::Transport::UdpEncap };
        let answer = pools.answer(&ike_proto::LeaseRequest {
            ike: ike_proto::IkeSaId(1),
            connection: "rw".to_owned(),
            pools: vec!["four".to_owned()],
            identity,
            granted: Box::default(),
            path,
            addresses: vec![ANY4],
            sole: false,
            own: false,
            resumed: false,
            asked: Vec::new(),
        });
        let ike_proto::Answer::Leased(_, lease) = answer else { panic!("no lease") };
        lease.addresses
    };
    let carols = || [IdData::eap(*b"carol"), IdData::keyid(*b"carol")];
    let pools = begin();
    let before = carols().map(|carol| ask(&pools, carol));
    assert_eq!(before, [[address("10.3.0.1")], [address("10.3.0.2")]]);
    drop(pools);
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"name\":\"eap:carol\""));
    let pools = begin();
    let [in_eap, by_key] = carols();
    let after = [ask(&pools, by_key), ask(&pools, in_eap)];
    assert_eq!(after, [before[1].clone(), before[0].clone()]);
}

/// The configurations in the documentation are without a mistake.
#[test]
fn the_documentations_examples_are_read() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/remote-access.md");
    let text = std::fs::read_to_string(file).unwrap();
    let section = |heading: &str| {
        let below = text.split_once(&format!("\n## {heading}\n")).unwrap().1;
        let code: Vec<_> = below
            .lines()
            .skip_while(|line| !line.starts_with("    "))
            .take_while(|line| line.is_empty() || line.starts_with("    "))
            .map(str::trim_start)
            .collect();
        // There are no certificates here.
        let by_secret = |line: &str| match line.split_once('=') {
            Some(("certs " | "auth ", _)) => "auth = \"psk\"".to_owned(),
            _ => line.to_owned(),
        };
        let code: Vec<_> = code.into_iter().map(by_secret).collect();
        ike_daemon::config::parse(&code.join("\n"), Path::new("")).unwrap()
    };
    let gateway = section("The gateway");
    assert_eq!(gateway.pools.len(), 2);
    assert_eq!(gateway.endpoint.connections[0].pools, ["rw4", "rw6"]);
    assert!(gateway.remote_access.leases.is_some());
    let warrior = section("The road warrior");
    assert_eq!(warrior.endpoint.connections[0].vips, [ANY4, ANY6]);
}
