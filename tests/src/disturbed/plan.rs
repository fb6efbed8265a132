//! What a life is like: configurations, the network, and what may happen in it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::Registry;
use ike_proto::config::{
    Action, AddressSpec, AuthConfig, ConnectionConfig, LocalAuth, RemoteAuth, Retransmission,
    Shard, TicketKey, Unique,
};
use ike_proto::crypto::{CryptoProvider, Secret};

use crate::cheap::{self, Signer};
use crate::network::{Conditions, Nat};
use crate::pair::{A, B};
use crate::plane::Plane;
use crate::random::Seeded;
use crate::setup::{Setup, Side, address};
use crate::world::World;

/// The children both ends know, with the numbers of their networks.
pub const CHILDREN: [(&str, u8); 3] = [("net", 0), ("voice", 20), ("video", 40)];
/// The connection of both ends.
pub const CONNECTION: &str = "ab";

/// Octets that the SAs carry until a soft limit, in lives that have one.
pub const SOFT_BYTES: u64 = 20_000;
/// Packets likewise.
pub const SOFT_PACKETS: u64 = 40;

/// How long the policies of an earlier run stay without `--keep-sas`, as a daemon has it.
pub const SETTLE: Duration = Duration::from_secs(10);

/// The longest a failed attempt waits before the next, as a daemon has it: a minute and a quarter of it.
const BACK_OFF: Duration = Duration::from_secs(75);

/// No bound is longer: DPD, one schedule of retransmissions, one back-off.
const LONGEST_BOUND: Duration = Duration::from_secs(300);

/// The longest until children carry traffic again after an own change of address, unless round trips take longer.
const AFTER_MOVE: Duration = Duration::from_secs(10);
/// How long test packets, one a second, take from the soft limit to the hard one.
const SOFT_TO_HARD: Duration = Duration::from_secs(SOFT_PACKETS / 4);
/// A second passes between the soft limits and the move, and two test packets of each child leave in it.
const BEFORE_MOVE: Duration = Duration::from_secs(2);
/// The longest wait of an engine after TEMPORARY_FAILURE.
const PUT_OFF: Duration = Duration::from_secs(6);
/// How long a responder lets packets leave by another child yet.
const STANDBY: Duration = Duration::from_millis(900);
/// The longest that one step of a slow key exchange takes.
const SLOW_EXCHANGE: Duration = Duration::from_millis(100);

/// IKE proposals; the first has as many additional key exchanges as there can be.
const IKE: [&str; 7] = [
    "aes128gcm16-prfsha256-x25519-ke1_mlkem512-ke2_ecp256-ke3_ecp384-ke4_ecp521-ke5_mlkem768-ke6_modp2048-ke7_mlkem1024",
    "aes128gcm16-prfsha256-x25519-ke1_mlkem768-ke2_mlkem512-ke3_ecp256",
    "aes256-sha256-x25519-ke1_mlkem768",
    "aes128gcm16-prfsha256-x25519",
    "aes128gcm16-prfsha256-mlkem768-ke1_ecp256-ke1_none",
    "aes128gcm16-prfsha256-x25519-ke1_mlkem512-ke2_frodoa3-ke3_mlkem1024",
    "chacha20poly1305-prfsha384-modp2048-ke1_mlkem768",
];

/// ESP proposals, likewise.
const ESP: [&str; 7] = [
    "aes128gcm16-x25519-ke1_mlkem512-ke2_ecp256-ke3_ecp384-ke4_ecp521-ke5_mlkem768-ke6_modp2048-ke7_mlkem1024",
    "aes128gcm16-x25519-ke1_mlkem768-ke2_mlkem512-ke3_ecp256",
    "aes256-sha256-x25519-ke1_mlkem768",
    "aes128gcm16",
    "aes128gcm16-esn-noesn",
    "aes128gcm16-x25519",
    "aes128gcm16-modp2048-ke1_mlkem768",
];

/// What a life has, and what may happen in it.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Shards of A and of B.
    pub shards: [u8; 2],
    /// A is behind a NAT.
    pub nat: bool,
    /// A gets other addresses.
    pub roams: bool,
    /// The ends have MOBIKE.
    pub mobike: bool,
    /// Both ends want the children up, and not A alone.
    pub both_want: bool,
    /// A's children wait for packets.
    pub traps: bool,
    /// `dpd_action` says nothing: that children are wanted is enough.
    pub no_dpd_action: bool,
    /// A daemon that starts again goes on with the SAs that its kernel has (`--keep-sas`).
    pub keeps_sas: bool,
    /// `unique`.
    pub unique: Unique,
    /// Peers show certificates, which are valid for a year.
    pub certificates: bool,
    /// A reauthenticates.
    pub reauthenticates: bool,
    /// Hard lifetimes are so close to the soft ones that a rekey may come too late.
    pub tight: bool,
    /// SAs have octet and packet limits.
    pub limits: bool,
    /// The proposals have seven additional key exchanges.
    pub seven: bool,
    /// Some key exchanges take their time.
    pub slow: bool,
    /// Children have SAs per CPU.
    pub per_cpu: bool,
    /// Sessions can be resumed.
    pub resumption: bool,
    /// Tokens of RFC 6290 are given.
    pub tokens: bool,
    /// There is a post-quantum preshared key.
    pub ppk: bool,
    /// The longest time from the end of all disturbances until wanted children carry traffic.
    pub bound: Duration,
    /// The same after an own change of address.
    pub move_bound: Duration,
}

/// A world that follows a plan.
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// The world.
    pub world: World,
    /// Backends of all hosts.
    pub crypto: Arc<CryptoProvider>,
}

/// Draws a plan, and the world that follows it.
pub fn prepare(seed: u64, rng: &mut Seeded, tracing: bool) -> Prepared {
    let mut plan = draw(rng);
    let crypto = cheap::chains();
    let mut setup = Setup::new(seed);
    setup.conditions = Conditions {
        loss: narrow(rng.below(251)),
        duplication: narrow(rng.below(201)),
        delay: Duration::from_millis(1 + rng.below(50)),
        jitter: Duration::from_millis(rng.below(300)),
    };
    for (side, local, remote) in [(&mut setup.a, 1, 2), (&mut setup.b, 2, 1)] {
        side.crypto = Arc::clone(&crypto);
        for (name, net) in &CHILDREN[1..] {
            side.add_child(name, local + net, remote + net);
        }
    }
    let (ike, esp) = propose(&mut setup, &mut plan, rng);
    plan.unique = match rng.below(8) {
        // With `unique = never` two ends that start at once have two of each (docs/both-ends-start.md).
        0 if !plan.both_want => Unique::Never,
        1 | 2 => Unique::Replace,
        _ => Unique::No,
    };
    let retransmission = match rng.chance(400) {
        true => Retransmission::adaptive(),
        false => Retransmission {
            timeout: Some(Duration::from_secs(2)),
            base: 1.4,
            tries: Some(5 + narrow(rng.below(4))),
            ..Retransmission::default()
        },
    };
    for (machine, side) in [(A, &mut setup.a), (B, &mut setup.b)] {
        arrange(side, machine, &plan, rng);
        side.settings.retransmission = retransmission;
    }
    if plan.ppk {
        setup.share_ppk(rng);
    }
    plan.move_bound = after_move(&plan, &setup, ike, esp);
    let dpd = setup.a.connection.dpd_delay.max(setup.b.connection.dpd_delay);
    plan.bound = dpd + retransmission.longest() + BACK_OFF;
    assert!(plan.bound <= LONGEST_BOUND, "seed {seed}: {:?}", plan.bound);
    let world = build(setup, &plan, seed, rng, tracing, &crypto);
    Prepared { plan, world, crypto }
}

fn draw(rng: &mut Seeded) -> Plan {
    let nat = rng.chance(350);
    let roams = rng.chance(400);
    let both_want = !nat && !roams && rng.chance(400);
    let below_three = |rng: &mut Seeded| u8::try_from(rng.below(3)).unwrap_or_default();
    let several = |rng: &mut Seeded| 2 + below_three(rng) / 2;
    let shards = match rng.below(4) {
        0 => [1 + below_three(rng), several(rng)],
        1 | 2 => [1, several(rng)],
        _ => [1, 1],
    };
    Plan {
        shards,
        nat,
        roams,
        mobike: rng.chance(500),
        both_want,
        traps: !both_want && rng.chance(200),
        no_dpd_action: rng.chance(400),
        keeps_sas: rng.chance(500),
        unique: Unique::No,
        certificates: rng.chance(250),
        reauthenticates: rng.chance(300),
        tight: rng.chance(300),
        limits: rng.chance(300),
        seven: rng.chance(250),
        slow: rng.chance(250),
        per_cpu: rng.chance(120),
        resumption: rng.chance(300),
        tokens: rng.chance(400),
        ppk: rng.chance(250),
        bound: Duration::ZERO,
        move_bound: AFTER_MOVE,
    }
}

/// Additional key exchanges, and how many of them have messages of hundreds of octets.
#[derive(Clone, Copy)]
struct Steps {
    all: u32,
    large: u32,
}

/// How long three children take after an own change of address, at least ten seconds. With MOBIKE they move along. Without it,
/// they are made anew, one round trip after the other: RFC 7296 §2.3 allows one request at a time. Seven additional key
/// exchanges make 25 round trips, of up to 0.7 s each on the slowest link. Nine of 4,000 lives took more than ten seconds for
/// that alone; of 10,000 the slowest took 13 s. A message in small fragments takes as long as the slowest of them: up to
/// half of the jitter longer than the average.
///
/// With MOBIKE, children with packet limits move while they are rekeyed: the packets of the proof before the move bring all of
/// them to their soft limits at the same time. UPDATE_SA_ADDRESSES waits for the chain of key exchanges of A: strongSwan
/// fails at any other request in a chain. The check of the new address waits for the chain of B, and B makes no child before
/// its end. A child whose rekey comes too late for the hard limit is made anew. With seven additional key exchanges one chain
/// of three took 3.3 s of the 9 s between the limits.
///
/// A rekey of the IKE SA may become due when the child is made anew. If the two requests cross, both ends answer
/// TEMPORARY_FAILURE (RFC 7296 §2.25). They wait up to six seconds, and the rekey may come first then. Eight round trips of a
/// rekey took 3.3 s, the wait before it 2.2 s: of 872,000 lives one took 19.4 s.
fn after_move(plan: &Plan, setup: &Setup, ike: Steps, esp: Steps) -> Duration {
    let children = u32::try_from(CHILDREN.len()).expect("a few children");
    let Conditions { delay, jitter, .. } = setup.conditions;
    let small_fragments = |side: &Side| u32::from(side.settings.fragment_size.is_some());
    let ends = small_fragments(&setup.a) + small_fragments(&setup.b);
    let installing = (setup.a.plane.delay + setup.b.plane.delay) * children;
    // How long round trips take, of which some have large messages, and some make a key exchange.
    let time = |trips: u32, large: u32, exchanges: u32| {
        // The average, and four standard deviations of a sum of so many uniform times each way.
        let spread = jitter.mul_f64(4.0 * (f64::from(2 * trips) / 12.0).sqrt());
        let travel = (2 * delay + jitter) * trips + spread;
        let slowest = jitter / 2 * (large * ends);
        // Each end makes its part of a key exchange, and the initiator finishes it.
        let computing = if plan.slow { 3 * SLOW_EXCHANGE * exchanges } else { Duration::ZERO };
        travel + slowest + computing + installing
    };
    // CREATE_CHILD_SA and IKE_FOLLOWUP_KE of so many children, and how many of them have large messages.
    let chains = |children: u32| (children * (1 + esp.all), children * (1 + esp.large));
    if plan.mobike {
        let (trips, large) = chains(children);
        // With a Delete for each child, UPDATE_SA_ADDRESSES, and the check of the new address.
        let rekeys = time(trips + children + 2, large, trips);
        if !plan.limits || rekeys + BEFORE_MOVE <= SOFT_TO_HARD {
            return AFTER_MOVE;
        }
        // One child is rekeyed in time. The exchange in flight and a Delete come before the others.
        let (trips, large) = chains(children - 1);
        // And so do a request that is put off, a rekey of the IKE SA, and the first message of the new IKE SA.
        let (before, rekey) = (2 + 2, 1 + ike.all);
        let took = time(trips + before + rekey, large + 2 + ike.large, trips + 1 + rekey);
        return SOFT_TO_HARD + PUT_OFF + took + STANDBY;
    }
    let cookie = u32::from(setup.b.settings.cookie_threshold == 1);
    // IKE_SA_INIT, perhaps with a cookie, IKE_INTERMEDIATE, IKE_AUTH, and the further children. IKE_AUTH has large messages
    // as well.
    let (trips, large) = chains(children - 1);
    let took = time(2 + cookie + ike.all + trips, 1 + ike.large + large, 1 + ike.all + trips);
    (took + STANDBY).max(AFTER_MOVE)
}

/// Chooses what both ends propose. Returns the additional key exchanges that an IKE SA and a child have at the most.
fn propose(setup: &mut Setup, plan: &mut Plan, rng: &mut Seeded) -> (Steps, Steps) {
    let count = |text: &str, kinds: &[&str]| {
        let has = |n: &u32| kinds.iter().any(|kind| text.contains(&format!("-ke{n}_{kind}")));
        u32::try_from((1..8).filter(has).count()).expect("seven at the most")
    };
    let steps = |text: &str| Steps {
        all: count(text, &[""]),
        large: count(text, &["mlkem", "frodo", "modp"]),
    };
    let pick = |rng: &mut Seeded, seven: bool| match seven {
        true => 0,
        false => 1 + usize::try_from(rng.below(6)).unwrap_or_default(),
    };
    let (ike, esp) = (pick(rng, plan.seven), pick(rng, plan.seven));
    if !plan.seven && rng.chance(300) {
        // The ends prefer different ones: INVALID_KE_PAYLOAD, and what it leads to.
        let (other_ike, other_esp) = (pick(rng, false), pick(rng, false));
        setup.a.ike_proposals(&[IKE[ike], IKE[other_ike]]);
        setup.a.esp_proposals(&[ESP[esp], ESP[other_esp]]);
        setup.b.ike_proposals(&[IKE[other_ike], IKE[ike]]);
        setup.b.esp_proposals(&[ESP[other_esp], ESP[esp]]);
        let most = |one: &str, other: &str| {
            let (one, other) = (steps(one), steps(other));
            Steps { all: one.all.max(other.all), large: one.large.max(other.large) }
        };
        return (most(IKE[ike], IKE[other_ike]), most(ESP[esp], ESP[other_esp]));
    }
    setup.both(|side| {
        side.ike_proposals(&[IKE[ike]]);
        side.esp_proposals(&[ESP[esp]]);
    });
    (steps(IKE[ike]), steps(ESP[esp]))
}

/// Timers short enough to fire during a life, and what the plan wants.
fn arrange(side: &mut Side, machine: usize, plan: &Plan, rng: &mut Seeded) {
    let seconds = Duration::from_secs;
    let rekey_time = seconds(60 + rng.below(600));
    let wants = machine == A || plan.both_want;
    let action = match (wants, plan.traps) {
        (false, _) => Action::None,
        (true, true) => Action::Trap,
        (true, false) => Action::Start,
    };
    let anywhere = vec![AddressSpec::Any(None)];
    let reauth = machine == A && plan.reauthenticates;
    side.connection = ConnectionConfig {
        rekey_time,
        reauth_time: if reauth { seconds(100 + rng.below(600)) } else { Duration::ZERO },
        rand_time: rekey_time / 5,
        over_time: seconds(if plan.tight { 15 + rng.below(30) } else { 300 }),
        dpd_delay: seconds(20 + rng.below(40)),
        keyingtries: 0,
        unique: plan.unique,
        mobike: plan.mobike,
        session_resumption: plan.resumption,
        local_addrs: anywhere.clone(),
        remote_addrs: match machine {
            A => vec![AddressSpec::single(address(2))],
            _ if plan.both_want => vec![AddressSpec::single(address(1))],
            _ => anywhere,
        },
        ..side.connection.clone()
    };
    if plan.certificates {
        let local = side.connection.local_id().cloned();
        let round = LocalAuth::new("local", AuthConfig::pubkey());
        side.connection.local = vec![LocalAuth { id: local, ..round }];
        let remote = side.connection.remote_id().clone();
        let round = RemoteAuth::new("remote", AuthConfig::pubkey());
        side.connection.remote = vec![RemoteAuth { id: remote, ..round }];
    }
    if rng.chance(200) {
        side.settings.fragment_size = Some(200 + u16::try_from(rng.below(400)).unwrap_or_default());
    }
    if rng.chance(200) {
        side.settings.fragment_ack = None;
    }
    if rng.chance(200) {
        side.settings.cookie_threshold = 1;
    }
    if rng.chance(300) {
        side.plane.delay = Duration::from_millis(1 + rng.below(100));
    }
    side.settings.return_routability = rng.chance(500);
    side.settings.prefer_best_path = rng.chance(300);
    if plan.resumption {
        let key = TicketKey { id: [1; 8], secret: Secret::new(vec![1; 32]) };
        side.settings.resumption.keys = vec![Arc::new(key)];
    }
    if plan.tokens {
        let secret = Secret::new(vec![u8::try_from(machine).unwrap_or_default() + 1; 32]);
        side.settings.qcd.secrets = vec![secret].into();
    }
    for child in &mut side.children {
        child.rekey_time = seconds(40 + rng.below(400));
        child.life_time =
            child.rekey_time + seconds(if plan.tight { 5 + rng.below(30) } else { 400 });
        child.rand_time = child.rekey_time / 5;
        (child.start_action, child.close_action, child.dpd_action) = (action, action, action);
        if plan.no_dpd_action && action == Action::Start {
            child.dpd_action = Action::None;
        }
        if plan.limits {
            child.limits.soft_bytes = SOFT_BYTES;
            child.limits.hard_bytes = SOFT_BYTES * 5 / 4;
            child.limits.soft_packets = SOFT_PACKETS;
            child.limits.hard_packets = SOFT_PACKETS * 5 / 4;
        }
        if plan.per_cpu {
            Arc::make_mut(&mut child.processing).per_cpu = true;
        }
    }
    if plan.per_cpu {
        side.plane.capabilities.per_cpu = true;
        side.plane.capabilities.cpus = 2;
    }
}

fn build(
    setup: Setup,
    plan: &Plan,
    seed: u64,
    rng: &mut Seeded,
    tracing: bool,
    crypto: &Arc<CryptoProvider>,
) -> World {
    let mut world = World::new(seed);
    world.net.conditions = setup.conditions;
    world.net.tracing = tracing;
    world.audit.random_ivs = true;
    for (machine, side) in [(A, setup.a), (B, setup.b)] {
        let registry = Registry::default();
        let count = plan.shards[machine];
        for shard in Shard::all(count) {
            let mut config = side.config();
            config.shard = shard;
            let mut plane = Plane::new();
            (plane.delay, plane.capabilities) = (side.plane.delay, side.plane.capabilities);
            let own = (machine, registry.clone());
            world.add_shard(side.address, config, Arc::clone(crypto), plane, own);
        }
    }
    let dawn = World::dawn();
    let half_a_year = Duration::from_secs(183 * 86_400);
    for host in &mut world.hosts {
        if plan.slow {
            host.exchange_delay = Some(SLOW_EXCHANGE);
            host.exchanges_vary = true;
        }
        if plan.certificates {
            host.signer = Some(Signer { certificate: 600, signature: 72 });
            host.validity = Some(dawn - half_a_year..dawn + half_a_year);
        }
    }
    if plan.nat {
        let expiry = Duration::from_secs(30 + rng.below(60));
        let expires = rng.chance(500);
        for inside in ADDRESSES_OF_A {
            let [.., last] = inside;
            let mut nat = Nat::new(inside.into(), IpAddr::from([192, 0, 2, last]));
            nat.expiry = if expires { expiry } else { Duration::ZERO };
            world.net.nats.push(nat);
        }
    }
    world.traffic.first_packets = rng.chance(500);
    world
}

/// Where A may be. The first is its home.
pub const ADDRESSES_OF_A: [[u8; 4]; 4] =
    [[10, 0, 0, 1], [10, 0, 0, 11], [10, 0, 0, 12], [10, 0, 0, 13]];

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}
