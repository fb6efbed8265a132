//! Whose traffic is blocked, and from when on.

use std::sync::{Arc, Mutex};

use ike_proto::config::{
    Action, AddressSpec, ChildConfig, ConnectionConfig, FailureShunt, InterfaceId, Scope, TsSpec,
    UniqueNumbers,
};
use ike_proto::dataplane::{Capabilities, DataPlane, DataPlaneError, Event, Processing, Reply};

use super::super::NoPlane;
use super::super::control::Busy;
use super::*;

/// Remembers whose blocks were installed, and to where.
#[derive(Debug, Clone, Default)]
struct Installed(Arc<Mutex<Vec<(String, String, TrafficSelector)>>>);

impl DataPlane for Installed {
    fn capabilities(&self) -> Capabilities {
        NoPlane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        if let Command::InstallPolicy(spec) = command {
            let (owner, child, to) = (spec.owner, spec.child, spec.remote_ts[0]);
            self.0.lock().unwrap().push((owner, child, to));
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

fn ts(text: &str) -> TrafficSelector {
    text.parse().unwrap()
}

/// A connection to these addresses with one child that is always to be up.
fn connection(name: &str, peers: &[&str], remote: TsSpec) -> ConnectionConfig {
    let mut connection = ConnectionConfig::new(name);
    connection.remote_addrs =
        peers.iter().map(|text| AddressSpec::single(text.parse().unwrap())).collect();
    let mut child = ChildConfig::new("net");
    child.start_action = Action::Start;
    child.local_ts = vec![TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: u16::MAX }];
    child.remote_ts = vec![remote];
    connection.children = vec![Arc::new(child)];
    connection
}

fn dynamic() -> TsSpec {
    TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: u16::MAX }
}

/// The owners and destinations of what is blocked at a start, when an earlier run has left blocks to `left`.
async fn blocked(
    connections: Vec<ConnectionConfig>,
    left: &[&str],
) -> Vec<(String, TrafficSelector)> {
    let connections = connections.into_iter().map(Arc::new).collect();
    let config = EndpointConfig { connections, ..EndpointConfig::default() };
    let installed = Installed::default();
    let plane = Control::start(Box::new(installed.clone()), false, true, Arc::new(Busy::default()));
    let from = ts("0.0.0.0/0");
    let left = left.iter().map(|to| (from, ts(to))).collect();
    Shunts::new(&config, Vec::new(), left).arm_first(&plane).await;
    let installed = installed.0.lock().unwrap();
    installed.iter().map(|(owner, _, to)| (owner.clone(), *to)).collect()
}

/// Fault: in `Shunt::width`, let a dynamic selector take each address.
#[tokio::test]
async fn a_block_between_two_hosts_is_that_of_the_connection_with_this_peer() {
    let peers = || {
        let near = connection("a", &["192.0.2.7"], dynamic());
        vec![near, connection("b", &["192.0.2.9"], dynamic())]
    };
    assert_eq!(blocked(peers(), &["192.0.2.9/32"]).await, [("b".into(), ts("192.0.2.9/32"))]);
    let both = blocked(peers(), &["192.0.2.9/32", "192.0.2.7/32"]).await;
    assert_eq!(both, [("b".into(), ts("192.0.2.9/32")), ("a".into(), ts("192.0.2.7/32"))]);
    assert_eq!(blocked(peers(), &["192.0.2.8/32"]).await, []);
}

/// A block of all addresses would hold the question for the peer's name.
///
/// Fault: in `Shunt::width`, leave `is_all` out.
#[tokio::test]
async fn all_addresses_are_not_blocked_while_the_peer_has_none() {
    let all = TsSpec::Fixed(ts("0.0.0.0/0"));
    assert_eq!(blocked(vec![connection("a", &[], all)], &["0.0.0.0/0"]).await, []);
    let named = vec![connection("a", &["192.0.2.7"], all)];
    assert_eq!(blocked(named, &["0.0.0.0/0"]).await, [("a".into(), ts("0.0.0.0/0"))]);
    let part = vec![connection("a", &[], TsSpec::Fixed(ts("10.0.0.0/8")))];
    assert_eq!(blocked(part, &["10.0.0.0/8"]).await, [("a".into(), ts("10.0.0.0/8"))]);
}

/// The last addresses of names are read after the start.
///
/// Faults: in `Shunts::reload`, do not claim; in `Shunts::claim`, do not look at `lifted`; in `Shunts::lift`, forget what is
/// blocked.
#[tokio::test]
async fn a_block_waits_for_the_address_of_a_name() {
    let config = |peers: &[&str]| {
        let all = TsSpec::Fixed(ts("0.0.0.0/0"));
        let connections = vec![Arc::new(connection("a", peers, all))];
        EndpointConfig { connections, ..EndpointConfig::default() }
    };
    let left = || vec![(ts("0.0.0.0/0"), ts("0.0.0.0/0"))];
    let plane =
        Control::start(Box::new(Installed::default()), false, true, Arc::new(Busy::default()));
    let mut shunts = Shunts::new(&config(&[]), Vec::new(), left());
    shunts.arm_first(&plane).await;
    assert_eq!(shunts.all().count(), 0);
    shunts.reload(&config(&["192.0.2.7"]), &plane).await;
    assert_eq!(shunts.all().count(), 1);
    let mut shunts = Shunts::new(&config(&[]), Vec::new(), left());
    shunts.arm_first(&plane).await;
    let down = |name: &str| Target { ike: Some(name.into()), ..Target::default() };
    shunts.lift(&down("a"), &plane).await;
    shunts.reload(&config(&["192.0.2.7"]), &plane).await;
    assert_eq!(shunts.all().count(), 0);
    // What is taken down is another child.
    let mut shunts = Shunts::new(&config(&[]), Vec::new(), left());
    shunts.arm_first(&plane).await;
    shunts.lift(&down("b"), &plane).await;
    shunts.reload(&config(&["192.0.2.7"]), &plane).await;
    assert_eq!(shunts.all().count(), 1);
}

/// A full tunnel and its backup, both by names: whose block the earlier run has left is not known.
///
/// Faults: in `Shunts::claim`, take a lifted name for one that claims; forget the block as soon as only a lifted name claims.
#[tokio::test]
async fn a_block_of_two_children_stays_for_the_one_that_was_not_taken_down() {
    let config = |first: &[&str], second: &[&str]| {
        let one = |name, peers| connection(name, peers, TsSpec::Fixed(ts("0.0.0.0/0")));
        begun(vec![one("a", first), one("b", second)])
    };
    let taken_down = async || {
        let (config, plane) = config(&[], &[]);
        let left = vec![(ts("0.0.0.0/0"), ts("0.0.0.0/0"))];
        let mut shunts = Shunts::new(&config, Vec::new(), left);
        shunts.arm_first(&plane).await;
        let down = Target { ike: Some("a".into()), ..Target::default() };
        shunts.lift(&down, &plane).await;
        (shunts, plane)
    };
    let owners = |shunts: &Shunts| shunts.all().map(|spec| spec.owner).collect::<Vec<_>>();
    let (mut shunts, plane) = taken_down().await;
    shunts.reload(&config(&["192.0.2.7"], &["192.0.2.8"]).0, &plane).await;
    assert_eq!(owners(&shunts), ["b"]);
    // The names get their addresses one after the other.
    let (mut shunts, plane) = taken_down().await;
    shunts.reload(&config(&["192.0.2.7"], &[]).0, &plane).await;
    assert_eq!(owners(&shunts), [""; 0]);
    shunts.reload(&config(&["192.0.2.7"], &["192.0.2.8"]).0, &plane).await;
    assert_eq!(owners(&shunts), ["b"]);
}

/// Fault: in `Shunts::claim`, take the last one first.
#[tokio::test]
async fn a_block_is_that_of_the_narrowest_child_that_covers_it() {
    let children = || {
        let wide = TsSpec::Fixed(ts("10.0.0.0/8"));
        let narrow = TsSpec::Fixed(ts("10.2.0.0/16"));
        vec![connection("a", &["192.0.2.7"], wide), connection("b", &["192.0.2.7"], narrow)]
    };
    let one = blocked(children(), &["10.2.0.0/16"]).await;
    assert_eq!(one, [("b".into(), ts("10.2.0.0/16"))]);
    let other = blocked(children(), &["10.0.0.0/8"]).await;
    assert_eq!(other, [("a".into(), ts("10.0.0.0/8"))]);
}

/// Of a route-based tunnel: its interface takes what it protects, and all else goes on.
///
/// Faults: in `Shunt::of`, take `Processing::default()`; leave `unique` out.
#[test]
fn a_shunt_matches_no_more_than_its_child() {
    let mut child = ChildConfig::new("net");
    child.start_action = Action::Start;
    child.processing =
        Arc::new(Processing { if_id_in: 42, if_id_out: 42, ..Processing::default() });
    let mut connection = ConnectionConfig::new("hub");
    let processing = |connection: &ConnectionConfig, child: &ChildConfig| {
        Shunt::of(connection, child)
            .map(|Shunt { processing, .. }| (processing.if_id_in, processing.if_id_out))
    };
    assert_eq!(processing(&connection, &child), Some((42, 42)));
    child.unique.if_id_out = Some(Scope::Pair);
    assert_eq!(processing(&connection, &child), None);
    child.unique = UniqueNumbers::default();
    child.processing = Arc::new(Processing { policies: false, ..Processing::default() });
    assert_eq!(processing(&connection, &child), None);
    child.processing = Arc::default();
    connection.if_id_out = InterfaceId::Fixed(7);
    assert_eq!(processing(&connection, &child), Some((0, 7)));
    connection.if_id_in = InterfaceId::Unique(Scope::Pair);
    assert_eq!(processing(&connection, &child), None);
}

/// A configuration of `connections`, and a plane.
fn begun(connections: Vec<ConnectionConfig>) -> (EndpointConfig, Control) {
    let connections = connections.into_iter().map(Arc::new).collect();
    let plane =
        Control::start(Box::new(Installed::default()), false, true, Arc::new(Busy::default()));
    (EndpointConfig { connections, ..EndpointConfig::default() }, plane)
}

/// A connection as above whose child has a trap and is held from the start.
fn held(peers: &[&str], remote: TsSpec) -> ConnectionConfig {
    let mut connection = connection("a", peers, remote);
    let child = Arc::make_mut(&mut connection.children[0]);
    (child.hold, child.start_action) = (true, Action::Trap);
    connection
}

/// What is in force: from where to where, and how.
fn in_force(shunts: &Shunts) -> Vec<String> {
    let text = |list: &[TrafficSelector]| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let of = |spec: PolicySpec| {
        let how = match spec.action {
            PolicyAction::Hold { anywhere: true } => "held anywhere",
            PolicyAction::Hold { anywhere: false } => "held",
            _ => "blocked",
        };
        format!("{how} {} === {}", text(&spec.local_ts), text(&spec.remote_ts))
    };
    shunts.all().map(of).collect()
}

/// What is in force after the start.
async fn first(connection: ConnectionConfig) -> Vec<String> {
    let (config, plane) = begun(vec![connection]);
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    in_force(&shunts)
}

/// Before there is an address of this host or of the peer.
///
/// Faults: in `Shunt::of`, take `Since::Up` for each child without `failureshunt`; in `Shunt::at_once`, leave `anywhere`
/// out, or the addresses of the peer.
#[tokio::test]
async fn a_child_is_held_from_the_start() {
    let net = TsSpec::Fixed(ts("10.2.0.0/16"));
    let anywhere = "held anywhere 0.0.0.0/0 ::/0 === 10.2.0.0/16";
    assert_eq!(first(held(&[], net)).await, [anywhere], "the name of the peer has no address");
    let mut own = held(&[], net);
    own.local_addrs = vec![AddressSpec::single("192.0.2.1".parse().unwrap())];
    assert_eq!(first(own.clone()).await, ["held 192.0.2.1/32 === 10.2.0.0/16"]);
    own.vips = vec!["0.0.0.0".parse().unwrap()];
    assert_eq!(first(own.clone()).await, [anywhere], "the virtual IP is not known");
    let change = |change: fn(&mut ChildConfig)| {
        let mut connection = held(&[], net);
        change(Arc::make_mut(&mut connection.children[0]));
        first(connection)
    };
    assert_eq!(change(|child| child.hold = false).await, [""; 0]);
    assert_eq!(change(|child| child.start_action = Action::None).await, [""; 0]);
    assert_eq!(change(|child| child.failure_shunt = FailureShunt::Passthrough).await, [""; 0]);
    let site = change(|child| child.local_ts = vec![TsSpec::Fixed(ts("10.1.0.0/16"))]).await;
    assert_eq!(site, ["held 10.1.0.0/16 === 10.2.0.0/16"]);
    // Between hosts the peer's address is needed.
    assert_eq!(first(held(&[], dynamic())).await, [""; 0]);
    let host = first(held(&["192.0.2.7"], dynamic())).await;
    assert_eq!(host, ["held anywhere 0.0.0.0/0 ::/0 === 192.0.2.7/32"]);
}

/// Fault: in `Shunts::reload`, leave out what has moved; in `Shunts::trap`, do nothing.
#[tokio::test]
async fn a_hold_takes_what_is_known_by_now() {
    let (config, plane) = begun(vec![held(&[], dynamic())]);
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    let (config, _) = begun(vec![held(&["192.0.2.7"], dynamic())]);
    shunts.reload(&config, &plane).await;
    assert_eq!(in_force(&shunts), ["held anywhere 0.0.0.0/0 ::/0 === 192.0.2.7/32"]);
    let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
    shunts.trap(("a".into(), "net".into()), ends, &plane).await;
    assert_eq!(in_force(&shunts), ["held 192.0.2.1/32 === 192.0.2.7/32"]);
    // The next address of the name is the trap's business.
    let (config, _) = begun(vec![held(&["192.0.2.8"], dynamic())]);
    shunts.reload(&config, &plane).await;
    assert_eq!(in_force(&shunts), ["held 192.0.2.1/32 === 192.0.2.7/32"]);
    let (config, _) = begun(Vec::new());
    shunts.reload(&config, &plane).await;
    assert_eq!(in_force(&shunts), [""; 0]);
}

/// The shards begin one after the other, and names get their addresses at any time.
///
/// Faults: in `Shunts::arm_first`, begin each time; in `Shunts::arm`, do not look at `lifted`.
#[tokio::test]
async fn a_hold_that_was_taken_down_stays_down() {
    let net = TsSpec::Fixed(ts("10.2.0.0/16"));
    let (config, plane) = begun(vec![held(&[], net)]);
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    let down = Target { ike: Some("a".into()), ..Target::default() };
    assert_eq!(shunts.lift(&down, &plane).await, 1);
    shunts.arm_first(&plane).await;
    assert_eq!(in_force(&shunts), [""; 0]);
    let (config, _) = begun(vec![held(&["192.0.2.7"], net)]);
    shunts.reload(&config, &plane).await;
    let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
    shunts.trap(("a".into(), "net".into()), ends, &plane).await;
    assert_eq!(in_force(&shunts), [""; 0]);
    // One that was not there yet as well.
    let (config, _) = begun(vec![held(&[], dynamic())]);
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    assert_eq!(shunts.lift(&down, &plane).await, 0);
    let (config, _) = begun(vec![held(&["192.0.2.7"], dynamic())]);
    shunts.reload(&config, &plane).await;
    assert_eq!(in_force(&shunts), [""; 0]);
}

/// Faults: in `Shunts::arm`, take a trap for granted that the configuration no longer wants; in `Shunts::untrap`, do
/// nothing.
#[tokio::test]
async fn a_hold_goes_on_without_its_trap_as_the_configuration_says() {
    let net = TsSpec::Fixed(ts("10.2.0.0/16"));
    let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
    let (config, plane) = begun(vec![held(&["192.0.2.7"], net)]);
    let anywhere = "held anywhere 0.0.0.0/0 ::/0 === 10.2.0.0/16";
    for (change, left) in [
        ((|child| child.hold = false) as fn(&mut ChildConfig), vec![]),
        (|child| child.start_action = Action::Start, vec![anywhere]),
    ] {
        let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
        shunts.arm_first(&plane).await;
        shunts.trap(("a".into(), "net".into()), ends, &plane).await;
        assert_eq!(in_force(&shunts), ["held 192.0.2.1/32 === 10.2.0.0/16"]);
        let mut changed = held(&["192.0.2.7"], net);
        change(Arc::make_mut(&mut changed.children[0]));
        let (changed, _) = begun(vec![changed]);
        shunts.reload(&changed, &plane).await;
        assert_eq!(in_force(&shunts), left);
    }
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    shunts.untrap(("a".into(), "net".into()), &plane).await;
    assert_eq!(in_force(&shunts), [""; 0]);
}

/// A data plane in which another program's policy has the place. It keeps what it has refused until it is told to remove it.
#[derive(Debug, Clone, Default)]
struct Refusing(Arc<Mutex<BTreeSet<PolicyId>>>);

impl DataPlane for Refusing {
    fn capabilities(&self) -> Capabilities {
        NoPlane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let mut kept = self.0.lock().unwrap();
        match command {
            Command::InstallPolicy(spec) => {
                kept.insert(spec.id);
                return Err(DataPlaneError(
                    "another program has a policy for these packets".into(),
                ));
            }
            Command::RemovePolicy(id) => _ = kept.remove(&id),
            _ => {}
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// With ESP in the kernel the second line has what a policy of another program keeps out of the kernel, until it is removed.
///
/// Faults: in `Shunts::install`, take a new number for what was refused; in `Shunts::disarm`, `untrap` or `reload`, do not look at
/// `refused`.
#[tokio::test]
async fn what_the_data_plane_has_refused_is_removed_like_what_it_has() {
    let net = TsSpec::Fixed(ts("10.2.0.0/16"));
    let (config, _) = begun(vec![held(&[], net)]);
    let (other, _) = begun(vec![held(&["192.0.2.7"], net)]);
    let (none, _) = begun(Vec::new());
    let name = || ("a".to_owned(), "net".to_owned());
    let down = Target { ike: Some("a".into()), ..Target::default() };
    for how in ["lift", "untrap", "reload"] {
        let kernel = Refusing::default();
        let busy = Arc::new(Busy::default());
        let plane = Control::start(Box::new(kernel.clone()), false, true, busy);
        let kept = || kernel.0.lock().unwrap().len();
        let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
        shunts.arm_first(&plane).await;
        assert_eq!((in_force(&shunts).len(), kept()), (0, 1));
        shunts.reload(&other, &plane).await;
        let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
        shunts.trap(name(), ends, &plane).await;
        assert_eq!(kept(), 1, "each try has the number of the first one");
        match how {
            "lift" => _ = shunts.lift(&down, &plane).await,
            "untrap" => shunts.untrap(name(), &plane).await,
            _ => shunts.reload(&none, &plane).await,
        }
        assert_eq!(kept(), 0, "{how}");
    }
}

/// A child without a trap and without `hold`, which the data plane refuses when it is up. The engine removes its policy, and the
/// block stays.
///
/// Faults: in `Shunts::block`, arm nothing, or look neither at `lifted` nor at what the child is for; in `Shunts::arm`, do not
/// look at `lifted`.
#[tokio::test]
async fn what_a_child_was_to_protect_is_blocked_if_its_policy_is_refused() {
    let net = TsSpec::Fixed(ts("10.2.0.0/16"));
    let mut bare = held(&["192.0.2.7"], net);
    let child = Arc::make_mut(&mut bare.children[0]);
    (child.hold, child.start_action) = (false, Action::Start);
    let ends = ("192.0.2.1".parse().unwrap(), "192.0.2.7".parse().unwrap());
    let name = || ("a".to_owned(), "net".to_owned());
    let down = Target { ike: Some("a".into()), ..Target::default() };
    // A policy of another program keeps the block out of the kernel as well. It is barred, under one number.
    let (config, plane) = begun(vec![bare.clone()]);
    let kernel = Refusing::default();
    let refusing = Box::new(kernel.clone());
    let refusing = Control::start(refusing, false, true, Arc::new(Busy::default()));
    let kept = || kernel.0.lock().unwrap().len();
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&refusing).await;
    assert_eq!(kept(), 0, "it may leave until the child is up");
    for _ in 0..2 {
        shunts.block(name(), ends, &refusing).await;
        assert_eq!((kept(), in_force(&shunts).len()), (1, 0));
    }
    shunts.lift(&down, &refusing).await;
    assert_eq!(kept(), 0, "by command it is free");
    shunts.block(name(), ends, &refusing).await;
    assert_eq!(kept(), 0);
    // Refused for another reason.
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    shunts.block(name(), ends, &plane).await;
    assert_eq!(in_force(&shunts), ["blocked 192.0.2.1/32 === 10.2.0.0/16"]);
    // A child that may be down has no block.
    Arc::make_mut(&mut bare.children[0]).start_action = Action::None;
    let (config, plane) = begun(vec![bare]);
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.block(name(), ends, &plane).await;
    assert_eq!(in_force(&shunts), [""; 0]);
}

/// What the log gets.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Faults: in `Shunts::reload`, tell nothing; all that is held.
#[tokio::test]
async fn a_reload_says_what_it_begins_to_hold() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let said = || String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
    let net = |name: &str| {
        let connection = held(&["192.0.2.7"], TsSpec::Fixed(ts("10.2.0.0/16")));
        ConnectionConfig { name: name.into(), ..connection }
    };
    let (config, plane) = begun(vec![net("a")]);
    let mut shunts = Shunts::new(&config, Vec::new(), Vec::new());
    shunts.arm_first(&plane).await;
    assert!(said().contains("net of a to 10.2.0.0/16"));
    shunts.reload(&config, &plane).await;
    assert_eq!(said(), "");
    let (config, _) = begun(vec![net("a"), net("b")]);
    shunts.reload(&config, &plane).await;
    let said = said();
    assert!(said.contains("net of b to") && !said.contains("net of a"), "{said}");
}
