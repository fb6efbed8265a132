//! Traps follow the configuration in force, whether their child is up or not (RFC 4301 §4.4.1).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::config::{
    Action, AddressSpec, IdMatch, PpkConfig, PreSharedKey, ProposalConfig, TsSpec,
};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{PolicyAction, TrafficSelector};
use ike_proto::{Command, RequestId};
use ike_tests::setup::{Side, address, child, identity, side};
use ike_tests::{A, B, Pair, Setup};
use xfrm::Fault;

/// A trap at A, and its child up. The trap is configured, or else installed by command.
fn trapped_and_up(seed: u64, configured: bool) -> Pair {
    let mut setup = Setup::new(seed);
    if configured {
        setup.a.net().start_action = Action::Trap;
    }
    let mut pair = setup.build();
    let (local, remote) = (address(1), address(2));
    let trap = Command::InstallTrap { connection: "ab".into(), child: "net".into(), local, remote };
    let request = pair.command(A, trap);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    pair.establish();
    pair
}

/// The peer's traffic that traps at A protect.
fn trapped(pair: &Pair) -> Vec<TrafficSelector> {
    let policies = pair.a().plane.table().policies();
    let traps = policies.filter(|policy| policy.action == PolicyAction::Trap);
    traps.flat_map(|policy| policy.remote_ts.clone()).collect()
}

/// A takes the configuration of `side`, and the Child SA of before stays.
fn reload(pair: &mut Pair, side: &Side) {
    let ids =
        |pair: &Pair| -> Vec<_> { pair.a().children_up().iter().map(|child| child.id).collect() };
    let before = ids(pair);
    pair.reload(A, side.config());
    pair.run_for(Duration::from_secs(1));
    let after = ids(pair);
    assert!(before.iter().all(|id| after.contains(id)), "{}", pair.story());
}

/// Fails if a reload leaves the trap of a child as it is because the child's name is still there.
#[test]
fn a_trap_has_the_new_selectors_while_its_child_is_up() {
    let mut pair = trapped_and_up(1, true);
    let mut side = side(1, 2);
    side.net().start_action = Action::Trap;
    reload(&mut pair, &side);
    let narrow = TrafficSelector {
        protocol: 0,
        start_port: 0,
        end_port: u16::MAX,
        start: IpAddr::from([10, 2, 0, 0]),
        end: IpAddr::from([10, 2, 255, 255]),
    };
    assert_eq!(trapped(&pair), [narrow]);
    let wide = TrafficSelector { end: IpAddr::from([10, 3, 255, 255]), ..narrow };
    side.net().remote_ts = vec![TsSpec::Fixed(wide)];
    reload(&mut pair, &side);
    assert_eq!(trapped(&pair), [wide]);
}

/// Fails if a reload takes away only traps of children that are gone, or also those that a command has installed.
#[test]
fn a_trap_goes_with_the_option_that_wanted_it() {
    for configured in [true, false] {
        let mut pair = trapped_and_up(2, configured);
        assert_eq!(trapped(&pair).len(), 1);
        reload(&mut pair, &side(1, 2));
        assert_eq!(trapped(&pair).len(), usize::from(!configured), "{}", pair.story());
    }
}

/// What a command took down stays down over a reload that does not change it: its trap is a block, which no packet asks
/// through and behind which none leaves in clear.
///
/// Faults: in `traps::block`, leave the trap as it is. In `traps::reload`, take a block for a trap that has changed, or
/// leave a block for a child that has.
#[test]
fn a_trap_that_is_down_by_command_blocks_until_a_command_or_a_change() {
    let mut pair = trapped_and_up(5, true);
    let blocked = |pair: &Pair| {
        let policies = pair.a().plane.table().policies();
        policies.filter(|it| matches!(it.action, PolicyAction::Shunt { .. })).count()
    };
    let block = |pair: &mut Pair| {
        let (connection, child) = ("ab".to_owned(), "net".to_owned());
        let request = pair.command(A, Command::BlockTrap { connection, child });
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
        assert_eq!((trapped(pair).len(), blocked(pair)), (0, 1), "{}", pair.story());
    };
    block(&mut pair);
    let mut same = side(1, 2);
    same.net().start_action = Action::Trap;
    reload(&mut pair, &same);
    assert_eq!((trapped(&pair).len(), blocked(&pair)), (0, 1), "{}", pair.story());
    same.net().priority = 7;
    reload(&mut pair, &same);
    assert_eq!((trapped(&pair).len(), blocked(&pair)), (1, 0), "{}", pair.story());
    block(&mut pair);
    let (local, remote) = (address(1), address(2));
    pair.command(
        A,
        Command::InstallTrap { connection: "ab".into(), child: "net".into(), local, remote },
    );
    pair.run_for(Duration::from_secs(1));
    assert_eq!((trapped(&pair).len(), blocked(&pair)), (1, 0), "{}", pair.story());
}

/// A trap that no configuration wants stays in the data plane if that refuses the block, or the trap anew: its traffic
/// does not leave in clear. What was refused is tried again.
///
/// Fault: in `on_trap_answered`, do not look at `there`.
#[test]
fn a_trap_stays_if_the_data_plane_refuses_to_change_it() {
    let mut pair = trapped_and_up(6, false);
    let policies = |pair: &Pair| -> Vec<bool> {
        let all = pair.a().plane.table().policies();
        let own =
            all.filter(|it| matches!(it.action, PolicyAction::Trap | PolicyAction::Shunt { .. }));
        own.map(|it| it.action == PolicyAction::Trap).collect()
    };
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    let (local, remote) = (address(1), address(2));
    let block = Command::BlockTrap { connection: connection.clone(), child: child.clone() };
    let install = Command::InstallTrap { connection, child, local, remote };
    for (command, before) in [(block, true), (install, false)] {
        pair.hosts[A].plane.inner.fail(Fault::Nth(1));
        pair.command(A, command);
        pair.settle();
        assert_eq!(policies(&pair), [before], "{}", pair.story());
        pair.run_for(Duration::from_secs(2));
        assert_eq!(policies(&pair), [!before], "{}", pair.story());
    }
}

/// A trap that one action wants in place of another is no block any more: no command has taken the child down as it is now.
///
/// Fault: in `Trap::reloaded`, do not compare `start_action`.
#[test]
fn a_block_ends_with_the_start_action() {
    let mut pair = trapped_and_up(7, true);
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::BlockTrap { connection, child });
    pair.run_for(Duration::from_secs(1));
    assert!(trapped(&pair).is_empty(), "{}", pair.story());
    let mut other = side(1, 2);
    other.net().start_action = Action::Start;
    other.net().dpd_action = Action::Trap;
    reload(&mut pair, &other);
    assert_eq!(trapped(&pair).len(), 1, "{}", pair.story());
}

/// An IKE SA, and a child that its responder's configuration gets later.
fn with_a_child_more(change: impl Fn(&mut Side)) -> (Pair, RequestId) {
    let mut pair = Pair::established(3);
    let (mut a, mut b) = (side(1, 2), side(2, 1));
    a.add_child("more", 3, 4);
    b.add_child("more", 4, 3);
    change(&mut b);
    pair.reload(A, a.config());
    pair.reload(B, b.config());
    let request = pair.initiate(A, Some("more"));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().ikes().len(), 1, "{}", pair.story());
    (pair, request)
}

/// Fails if a responder looks only at the children that the configuration had when the IKE SA was made.
#[test]
fn an_ike_sa_that_is_up_takes_a_child_that_a_reload_adds() {
    let (pair, request) = with_a_child_more(|_| {});
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert_eq!(pair.b().children_up().len(), 2, "{}", pair.story());
    pair.assert_agreement();
}

/// What the new configuration grants is granted to peers that it would accept. Fails if a responder does not look whether
/// the IKE SA could be one of the new connection.
#[test]
fn an_ike_sa_that_the_new_configuration_would_refuse_takes_none_of_its_children() {
    let other_key = || PreSharedKey { ids: Vec::new(), secret: Secret::copy_from(b"another") };
    let changes: [&dyn Fn(&mut Side); 6] = [
        &|b| b.settings.secrets = vec![Arc::new(other_key())],
        &|b| b.connection.remote_addrs = vec![AddressSpec::single(address(3))],
        // The IKE SA has no additional key exchange.
        &|b| b.connection.proposals = ProposalConfig::default_ike()[..1].to_vec(),
        &|b| b.connection.set_remote_id(IdMatch::Exact(identity(3))),
        &|b| b.ike_proposals(&["chacha20poly1305-prfsha512-ecp521"]),
        &|b| b.connection.ppk = PpkConfig { required: true, ..PpkConfig::default() },
    ];
    for change in changes {
        let (pair, request) = with_a_child_more(change);
        assert!(matches!(pair.a().done(request), Some(Err(_))), "{}", pair.story());
        assert_eq!(pair.b().children_up().len(), 1, "{}", pair.story());
    }
}

/// An IKE SA that the configuration does not admit any more ends at both ends. A wanted child stays wanted: it is started
/// again as soon as possible, and its traffic does not leave meanwhile.
///
/// Faults, each by itself: in `forget`, call `unwant_of` for each reason; in `on_forget`, leave `forget` out.
#[test]
fn a_wanted_child_comes_back_after_its_ike_sa_was_excluded() {
    let mut setup = Setup::new(8);
    setup.a.net().start_action = Action::Start;
    let mut pair = setup.build();
    let (local, remote) = (address(1), address(2));
    let (connection, child) = ("ab".to_owned(), "net".to_owned());
    pair.command(A, Command::Ensure { connection, child, local, remote });
    pair.run_for(Duration::from_secs(1));
    let (old, theirs) = (pair.ike_id(A), pair.ike_id(B));
    let request = pair.command(A, Command::Exclude(old));
    assert_eq!(pair.a().done(request), Some(Ok(())), "{}", pair.story());
    assert!(pair.a().ikes().iter().all(|ike| ike.id != old), "{}", pair.story());
    pair.run_for(Duration::from_secs(5));
    assert!(pair.b().ikes().iter().all(|ike| ike.id != theirs), "{}", pair.story());
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
    pair.assert_agreement();
}

/// Fails if a child counts as up because one of its name is.
#[test]
fn a_child_that_a_reload_changes_is_started_as_it_is_now() {
    let mut setup = Setup::new(4);
    setup.a.net().start_action = Action::Start;
    setup.b.add_child("more", 4, 3);
    let mut pair = setup.build();
    let (local, remote) = (address(1), address(2));
    let ensure = || Command::Ensure { connection: "ab".into(), child: "net".into(), local, remote };
    pair.command(A, ensure());
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
    for begun_anew in [false, true] {
        let mut a = side(1, 2);
        let (local, remote) = if begun_anew { (1, 2) } else { (3, 4) };
        *a.net() = child("net", local, remote);
        a.net().start_action = Action::Start;
        pair.reload(A, a.config());
        pair.run_for(Duration::from_secs(1));
        // Both are as some configuration had them, so that the second reload finds its child up.
        assert_eq!(pair.a().children_up().len(), 2, "{}", pair.story());
        pair.command(A, ensure());
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.a().children_up().len(), 2, "{}", pair.story());
    }
    pair.assert_agreement();
}
