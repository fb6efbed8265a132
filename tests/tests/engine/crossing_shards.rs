//! IKE SAs that cross at a host of two shards, each of which may have one of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ike_proto::config::{Action, Shard, Unique};
use ike_proto::dataplane::{DataPlane, apply_all};
use ike_proto::wire::Header;
use ike_proto::wire::registry::ExchangeType;
use ike_proto::{
    Answer, Command, Endpoint, Event, IkeSaId, IkeState, Input, Notice, Now, Output, Path,
    Question, Registry, RequestId,
};
use ike_tests::plane::Plane;
use ike_tests::setup::{address, side};
use ike_tests::{Seeded, World};
use xfrm::{CommandKind, Fault};

const DELAY: Duration = Duration::from_millis(10);
const SHARDS: u8 = 2;

/// An endpoint, its data plane, and when it wakes.
struct End {
    endpoint: Endpoint,
    plane: Plane,
    wake: Option<Instant>,
}

/// Host 1 in two shards, and host 2 in one.
struct Hosts {
    now: Instant,
    ends: Vec<End>,
    wire: VecDeque<(Instant, usize, Path, Arc<[u8]>)>,
    notices: VecDeque<(IkeSaId, Notice)>,
}

/// The single shard of host 2.
const PEER: usize = 2;

impl Hosts {
    fn new(seed: u64) -> Self {
        Self::with_peer(seed, Unique::No)
    }

    /// As [`new`](Self::new); the peer has `unique`.
    fn with_peer(seed: u64, unique: Unique) -> Self {
        Self::with(seed, [Unique::No, unique], Action::None)
    }

    /// As [`new`](Self::new); the hosts have `unique`, and both have `close_action`.
    fn with(seed: u64, unique: [Unique; 2], close: Action) -> Self {
        let registry = Registry::default();
        let shard = |index| (1, 2, Shard { index, count: SHARDS }, registry.clone());
        let whole = (2, 1, Shard::default(), Registry::default());
        let ends = [shard(0), shard(1), whole].into_iter().zip(0..);
        let ends = ends.map(|((n, m, shard, registry), number)| {
            let mut side = side(n, m);
            side.settings.shard = shard;
            side.connection.unique = unique[usize::from(n) - 1];
            side.connection.keyingtries = 0;
            side.net().close_action = close;
            let (config, plane) = (side.config(), Plane::new());
            let rng = Box::new(Seeded::new(seed * 10 + number));
            let capabilities = plane.capabilities();
            let endpoint = Endpoint::shard(config, side.crypto, rng, capabilities, registry);
            End { endpoint, plane, wake: None }
        });
        let now = World::new(1).instant();
        let (wire, notices) = (VecDeque::new(), VecDeque::new());
        Self { now, ends: ends.collect(), wire, notices }
    }

    fn handle(&mut self, to: usize, input: Input<'_>) {
        let now = Now { mono: self.now, wall: World::dawn() };
        let end = &mut self.ends[to];
        end.endpoint.handle(now, input);
        loop {
            match end.endpoint.poll_output() {
                Output::Timeout(at) => {
                    end.wake = at;
                    return;
                }
                Output::Transmit(transmit) => {
                    let Path { local, remote, transport } = transmit.path;
                    let path = Path { local: remote, remote: local, transport };
                    self.wire.push_back((self.now + DELAY, to, path, transmit.octets));
                }
                Output::DataPlane(ticket, batch) => {
                    let result = apply_all(&mut end.plane, batch);
                    end.endpoint.handle(now, Input::Completed(ticket, result));
                }
                Output::Ask(ticket, Question::Ends { .. }) => {
                    let (n, m) = if to == PEER { (2, 1) } else { (1, 2) };
                    let answer = Answer::Ends { local: address(n), remote: address(m) };
                    end.endpoint.handle(now, Input::Answered(ticket, answer));
                }
                Output::Event(Event::Notice(ike, notice)) => {
                    self.notices.push_back((ike, notice));
                }
                _ => {}
            }
        }
    }

    fn ensure(&mut self, end: usize, (n, m): (u8, u8)) {
        let (connection, child) = ("ab".to_owned(), "net".to_owned());
        let (local, remote) = (address(n), address(m));
        let command = Command::Ensure { connection, child, local, remote };
        self.handle(end, Input::Command(RequestId(1), command));
    }

    /// The first shard has had the child, and the peer has ended it. The shard keeps the traffic in since then, and the
    /// first wait after a failure is over. The first shard wants the child if `close` starts it.
    fn holding(close: Action) -> Self {
        let mut hosts = Self::with(1, [Unique::No; 2], close);
        if close == Action::Start {
            let (connection, child) = ("ab".to_owned(), "net".to_owned());
            hosts.handle(0, Input::Command(RequestId(3), Command::Want { connection, child }));
        }
        // The daemon has this shard begin it.
        hosts.ensure(0, (1, 2));
        hosts.run_for(Duration::from_secs(1));
        let ike = hosts.ends[PEER].endpoint.ike_sas()[0].id;
        hosts.handle(PEER, Input::Command(RequestId(4), Command::TerminateIke(ike)));
        hosts.run_for(Duration::from_secs(5));
        assert_eq!(hosts.established(0..PEER), []);
        assert_eq!(hosts.kept(), 1, "its traffic is kept in");
        hosts
    }

    /// Policies of the first shard.
    fn kept(&self) -> usize {
        self.ends[0].plane.table().policies().count()
    }

    /// The daemon has a shard install the trap of the child.
    fn trap(&mut self, end: usize) {
        let (connection, child) = ("ab".to_owned(), "net".to_owned());
        let (local, remote) = (address(1), address(2));
        let trap = Command::InstallTrap { connection, child, local, remote };
        self.handle(end, Input::Command(RequestId(5), trap));
    }

    /// The end that takes a datagram which `from` has sent.
    fn taker(from: usize, octets: &[u8]) -> usize {
        if from != PEER {
            return PEER;
        }
        let header = Header::peek(octets).unwrap();
        let first = header.exchange == ExchangeType::IKE_SA_INIT && !header.flags.response;
        match first {
            true => usize::from(Shard::of_initiator(SHARDS, header.spi_i)),
            false => {
                let spi = if header.flags.initiator { header.spi_r } else { header.spi_i };
                usize::from(spi.to_be_bytes()[0])
            }
        }
    }

    /// What an operator, or a daemon for a packet, has one shard begin.
    fn initiate(&mut self, end: usize, (n, m): (u8, u8)) {
        let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
        let (local, remote) = (address(n), address(m));
        let command = Command::Initiate { connection, child, local, remote, packet: None };
        self.handle(end, Input::Command(RequestId(2), command));
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            if let Some((ike, notice)) = self.notices.pop_front() {
                let shard = usize::from(Shard::of_number(SHARDS, ike.0));
                self.handle(shard, Input::Notice(ike, notice));
                continue;
            }
            let wakes = self.ends.iter().enumerate();
            let wake = wakes.filter_map(|(to, end)| Some((end.wake?, to))).min();
            let arrival = self.wire.front().map(|(at, ..)| *at);
            match (arrival, wake) {
                (Some(at), wake) if at <= end && wake.is_none_or(|(wake, _)| at <= wake) => {
                    let Some((_, from, path, octets)) = self.wire.pop_front() else { return };
                    self.now = at;
                    let to = Self::taker(from, &octets);
                    self.handle(to, Input::Datagram(path, &octets));
                }
                (_, Some((at, to))) if at <= end => {
                    self.now = self.now.max(at);
                    self.handle(to, Input::Timeout);
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
    }

    /// SPIs and children of the IKE SAs of some ends.
    fn established(&self, ends: std::ops::Range<usize>) -> Vec<(u64, u64, usize)> {
        let all = self.ends[ends].iter().flat_map(|end| end.endpoint.ike_sas());
        let all = all.filter(|ike| ike.state == IkeState::Established);
        all.map(|ike| (ike.spi_i, ike.spi_r, ike.children.len())).collect()
    }
}

/// Whether the peer knows the rule or not: then the shards alone end the redundant one.
///
/// Fault: in `Endpoint::notify`, drop what is for another shard.
#[test]
fn ike_sas_of_two_shards_that_cross_end_in_one() {
    for unique in [Unique::No, Unique::Never] {
        cross_in_two_shards(unique);
    }
}

fn cross_in_two_shards(unique: Unique) {
    let mut apart = 0;
    for seed in 0..40 {
        let mut hosts = Hosts::with_peer(seed, unique);
        hosts.ensure(0, (1, 2));
        hosts.ensure(PEER, (2, 1));
        hosts.run_for(Duration::from_millis(500));
        assert_eq!(hosts.established(0..PEER).len(), 2, "seed {seed}: they have not crossed");
        apart += usize::from(hosts.established(0..1).len() == 1);
        hosts.run_for(Duration::from_secs(40));
        let (host, peer) = (hosts.established(0..PEER), hosts.established(PEER..PEER + 1));
        assert_eq!(host, peer, "{unique:?}, seed {seed}");
        assert_eq!(host.iter().map(|(.., children)| *children).collect::<Vec<_>>(), [1]);
    }
    println!("{unique:?}: {apart} of 40 in two shards");
    assert!(apart > 10);
}

/// The peer has made an IKE SA with one shard, and another is told to bring the same child up: by somebody who asked
/// that shard a moment before. It looks once more, and goes on if it is told to again.
///
/// Fault: in `is_known_elsewhere`, say no.
#[test]
fn a_shard_does_not_begin_what_another_has_got_meanwhile() {
    for seed in 0..20 {
        let mut hosts = Hosts::new(seed);
        hosts.ensure(PEER, (2, 1));
        hosts.run_for(Duration::from_secs(1));
        let other = usize::from(!hosts.established(1..2).is_empty());
        let other = 1 - other;
        hosts.ensure(other, (1, 2));
        hosts.run_for(Duration::from_secs(5));
        assert_eq!(hosts.established(0..PEER).len(), 1, "seed {seed}");
        hosts.ensure(other, (1, 2));
        hosts.run_for(Duration::from_secs(1));
        assert_eq!(hosts.established(0..PEER).len(), 2, "seed {seed}");
    }
}

/// One end has begun both, one on each shard, one long after the other. One of them stays, and the other one ends within
/// half a minute. `unique = never` is about what a peer may have, and asks for no second one either.
///
/// Fault: in `look_for_doubles`, return at once; or in `stands_in`, answer `false` for what this end has begun.
#[test]
fn two_ike_sas_that_one_end_has_begun_end_in_one() {
    for (unique, seed) in (0..20).map(|seed| (Unique::No, seed)).chain([(Unique::Never, 20)]) {
        let mut hosts = Hosts::with(seed, [unique; 2], Action::None);
        hosts.initiate(0, (1, 2));
        hosts.run_for(Duration::from_secs(100 * seed));
        hosts.initiate(1, (1, 2));
        hosts.run_for(Duration::from_secs(5));
        assert_eq!(hosts.established(0..PEER).len(), 2, "seed {seed}");
        hosts.run_for(Duration::from_secs(25));
        let (host, peer) = (hosts.established(0..PEER), hosts.established(PEER..PEER + 1));
        assert_eq!(host, peer, "seed {seed}");
        assert_eq!(host.iter().map(|(.., children)| *children).collect::<Vec<_>>(), [1]);
    }
}

/// One shard has lost a child that it wants, and keeps its traffic in. Another shard is told to bring the child up, as the
/// daemon has it, and does. From then on nothing of the first shard keeps the traffic in.
///
/// Fault: in `tell_waiting_shards`, return at once.
#[test]
fn a_shard_lifts_its_hold_when_another_has_the_child() {
    let mut hosts = Hosts::holding(Action::Start);
    hosts.ensure(1, (1, 2));
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.established(1..PEER).len(), 1);
    assert_eq!(hosts.kept(), 0);
}

/// As above, but the other shard does not bring the child up: an operator takes it down there. Nothing of the first shard
/// keeps the traffic in for ever.
///
/// Fault: in `unwant`, leave `tell_given_up` out.
#[test]
fn a_shard_lifts_its_hold_when_another_gives_the_child_up() {
    let mut hosts = Hosts::holding(Action::Start);
    hosts.ensure(1, (1, 2));
    assert_eq!(hosts.kept(), 1, "its traffic is kept in");
    let (connection, child) = ("ab".to_owned(), Some("net".to_owned()));
    hosts.handle(1, Input::Command(RequestId(5), Command::Unwant { connection, child }));
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.kept(), 0);
    assert_eq!(hosts.ends[0].endpoint.wanted(), []);
}

/// A child of one shard ends, and another shard installs its trap, as the daemon has it. The first shard keeps the child's
/// traffic in until then, or until it ends itself.
///
/// Fault: in `trap_again`, remove the policies in `held` at once; in `unwant_all`, leave `until_trapped`.
#[test]
fn a_shard_keeps_traffic_in_until_another_has_the_trap() {
    for home in [Some(0), Some(1), None] {
        let mut hosts = Hosts::holding(Action::Trap);
        let Some(home) = home else {
            hosts.handle(0, Input::Command(RequestId(6), Command::Shutdown));
            assert_eq!(hosts.kept(), 0);
            continue;
        };
        hosts.trap(home);
        hosts.run_for(Duration::from_secs(1));
        // The trap itself, if it is here.
        assert_eq!(hosts.kept(), usize::from(home == 0));
        assert_eq!(hosts.ends[home].endpoint.traps().len(), 1);
    }
}

/// As above, but the other shard loses a trap while it brings the child up. That is not the end of the child.
///
/// Fault: in `tell_given_up`, tell the other shards in any case.
#[test]
fn a_trap_that_goes_does_not_lift_the_hold_of_another_shard() {
    let mut hosts = Hosts::holding(Action::Start);
    hosts.ensure(1, (1, 2));
    hosts.ends[1].plane.inner.fail(Fault::NthOf(CommandKind::InstallPolicy, 1));
    hosts.trap(1);
    hosts.run_for(Duration::from_millis(1));
    assert_eq!(hosts.kept(), 1, "its traffic is kept in");
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(hosts.kept(), 0);
    assert_eq!(hosts.established(1..PEER).len(), 1);
}

/// A peer reauthenticates, and its new IKE SA meets another shard than the old one. `unique = keep` is about peers at
/// other addresses.
///
/// Fault: in `on_newcomer`, leave out the comparison of the addresses.
#[test]
fn a_peer_that_reauthenticates_with_another_shard_is_kept() {
    let mut apart = 0;
    for seed in 0..20 {
        let mut hosts = Hosts::with(seed, [Unique::Keep, Unique::No], Action::None);
        hosts.initiate(PEER, (2, 1));
        hosts.run_for(Duration::from_secs(1));
        let (old, here) = (hosts.established(PEER..PEER + 1), hosts.established(0..1).len());
        let ike = hosts.ends[PEER].endpoint.ike_sas()[0].id;
        hosts.handle(PEER, Input::Command(RequestId(5), Command::Reauthenticate(ike)));
        hosts.run_for(Duration::from_secs(5));
        let (host, peer) = (hosts.established(0..PEER), hosts.established(PEER..PEER + 1));
        assert_eq!(host, peer, "seed {seed}");
        assert_eq!(peer.len(), 1, "seed {seed}");
        assert_ne!(peer, old, "seed {seed}");
        apart += usize::from(hosts.established(0..1).len() != here);
    }
    println!("{apart} of 20 met the other shard");
    assert!(apart > 3);
}
