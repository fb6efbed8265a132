//! Traps follow the configuration in force, whether their child is up or not (RFC 4301 §4.4.1).

use std::net::IpAddr;
use std::time::Duration;

use ike_proto::Command;
use ike_proto::config::{Action, TsSpec};
use ike_proto::dataplane::{PolicyAction, TrafficSelector};
use ike_tests::setup::{Side, address, side};
use ike_tests::{A, Pair, Setup};

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

fn reload(pair: &mut Pair, side: &Side) {
    pair.reload(A, side.config());
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a().children_up().len(), 1, "{}", pair.story());
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
