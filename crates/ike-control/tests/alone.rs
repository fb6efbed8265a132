//! Two engines that are controlled by this crate alone, without the daemon: the example is one of them.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ike_config::{Blobs, Difference, Kind, Overlay, Settings};
use ike_control::control::client;
use ike_control::control::protocol::{Named, Request, Response};
use ike_control::views::IkeSa;
use ike_control::{Candidate, Configuration, Loader, Operator, OperatorError, Program};
use ike_proto::config::ChildConfig;
use ike_proto::dataplane::{
    Capabilities, Command as PlaneCommand, DataPlane, DataPlaneError, Event as PlaneEvent, Flow,
    PolicyAction, PolicyId, Reply, TrafficSelector,
};
use ike_proto::{Command, Event};
use ike_tokio::{
    Builder, Drivers, Listen, NoPlane, Plane, Ports, Resolver, Sockets, Target, Unresolved, Wanted,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use toml::de::DeTable;
use vici::{Packet, Section};

/// `main` of the example needs root; the test uses the rest.
#[path = "../examples/controlled.rs"]
#[expect(dead_code, reason = "`main` is not called here")]
mod controlled;
mod down;

#[path = "alone/live.rs"]
mod live;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn sockets() -> Sockets {
    let listen = Listen { addresses: vec![LOCALHOST], lenient: false, ..Listen::default() };
    Sockets::bind(&listen, Ports { ike: 0, nat_t: 0 }).unwrap()
}

/// An end whose peer is `host` at `port`.
fn settings([us, them]: [&str; 2], host: &str, port: u16, child: &str) -> Settings {
    let text = format!(
        "[connections.site]
        local_addrs = '127.0.0.1'
        remote_addrs = '{host}'
        remote_port = {port}
        local = {{ auth = 'psk', id = '{us}' }}
        remote = {{ auth = 'psk', id = '{them}' }}
        children.{child} = {{}}
        [secrets.ike]
        secret = 'correct horse battery staple'"
    );
    ike_config::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ike-control-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Asks the control socket in `folder`.
async fn ask(folder: &Path, request: Request) -> Response {
    let socket = folder.join("control.sock");
    let answer = tokio::task::spawn_blocking(move || client::ask(&socket, &request));
    answer.await.unwrap().unwrap()
}

/// Asks the VICI socket in `folder`.
async fn vici(folder: &Path, command: &str, asked: Section) -> Section {
    let mut stream = UnixStream::connect(folder.join("charon.vici")).await.unwrap();
    let request = Packet::Request(command.to_owned(), asked).encode().unwrap();
    stream.write_all(&request).await.unwrap();
    let mut segment = vec![0; stream.read_u32().await.unwrap() as usize];
    stream.read_exact(&mut segment).await.unwrap();
    match Packet::decode(&segment).unwrap() {
        Packet::Response(section) => section,
        other => panic!("{other:?}"),
    }
}

/// The metrics that the socket in `folder` has.
async fn scrape(folder: &Path) -> String {
    let mut stream = UnixStream::connect(folder.join("metrics.sock")).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// An engine with a fixed configuration is controlled by all three sockets. It resolves names of hosts.
///
/// Fault: in `Operator::ends`, take `hosts.known()` in place of the resolved ends. Another: in `Meters`, do not
/// implement `Observer::event`.
#[tokio::test]
async fn a_program_without_parts_of_its_own_is_controlled() {
    let folder = folder("alone");
    let (left, right) = (sockets(), sockets());
    let (left_port, right_port) = (left.ports().nat_t, right.ports().nat_t);
    let end = settings(["left", "right"], "localhost", right_port, "net");
    let at = folder.clone();
    let served = async move { controlled::serve(end, left, Plane::none(), &at).await.unwrap() };
    let configuration =
        Configuration::from(settings(["right", "left"], "127.0.0.1", left_port, "net"));
    let (drivers, _wanted) =
        Builder::new(configuration.unresolved(right.ports()), controlled::crypto(), right).start();
    let told = async {
        while !folder.join("metrics.sock").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let named = |name: &str| Named { name: Some(name.to_owned()), ..Named::default() };
        let unknown = ask(&folder, Request::Up(named("nett"))).await;
        assert_eq!(unknown.error.as_deref(), Some("the configuration has no nett"));
        let up = ask(&folder, Request::Up(named("net"))).await;
        assert!(up.ok, "{up:?}");
        let sas = ask(&folder, Request::List).await.sas.unwrap();
        let sas: Vec<IkeSa> = serde_json::from_value(sas).unwrap();
        assert_eq!((sas.len(), sas[0].state.as_str()), (1, "ESTABLISHED"));
        assert_eq!(sas[0].child_sas[0].name, "net");

        let version = vici(&folder, "version", Section::new()).await;
        assert_eq!(version.str("daemon"), Some("ike-control"));
        let connection = Section::new().section("other", Section::new());
        let refused = vici(&folder, "load-conn", connection).await;
        assert_eq!(refused.str("success"), Some("no"), "{refused:?}");
        let reloaded = ask(&folder, Request::Reload { revoke: false }).await;
        assert!(!reloaded.ok && !reloaded.config, "there is no file: {reloaded:?}");

        let metrics = scrape(&folder).await;
        assert!(metrics.contains("ike_handshakes_total{role=\"initiator\"} 1"), "{metrics}");
        assert!(metrics.contains("state=\"established\"} 1"), "{metrics}");
        assert!(ask(&folder, Request::Down(named("site"))).await.ok);
    };
    tokio::select! {
        () = served => panic!("it has ended"),
        told = tokio::time::timeout(Duration::from_secs(60), told) => told.unwrap(),
    }
    drop(drivers);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A configuration that the data plane cannot honour changes nothing, neither in the program nor in the engine.
///
/// Fault: in `Operator::reload`, call `put` without `met`.
#[tokio::test]
async fn a_configuration_that_cannot_be_honoured_is_not_adopted() {
    let sockets = sockets();
    let ports = sockets.ports();
    let first = Configuration::from(settings(["left", "right"], "192.0.2.1", 1, "net"));
    let (drivers, _wanted) =
        Builder::new(first.unresolved(ports), controlled::crypto(), sockets).start();
    let plane = Capabilities { processing: false, ..Plane::none().capabilities() };
    let handle = drivers.handle().clone();
    let operator = Operator::new(handle, first, ports, plane, Arc::new(()) as Arc<dyn Program>);
    let mut second = Configuration::from(settings(["left", "right"], "192.0.2.1", 1, "other"));
    let child = ike_proto::config::InterfaceId::Fixed(7);
    Arc::make_mut(&mut second.endpoint.connections[0]).if_id_in = child;
    let adopt = Box::new(|| panic!("it is adopted"));
    let candidate = Candidate { adopt, ..Candidate::new(second) };
    match operator.reload(|| Ok(candidate)).await {
        Err(OperatorError::Unmet(options)) => {
            assert!(options[0].contains("if_id_in"), "{options:?}")
        }
        other => panic!("{other:?}"),
    }
    assert!(operator.config().endpoint.connections[0].child("net").is_some());
    let second = Configuration::from(settings(["left", "right"], "192.0.2.1", 1, "other"));
    operator.reload(|| Ok(Candidate::new(second))).await.unwrap();
    let unknown = operator.up(&Target::named("net")).await;
    assert_eq!(unknown, Err(OperatorError::Unknown("net".to_owned())));
}

/// Is told what came of a look-up.
type Done = Box<dyn FnOnce(Result<Vec<IpAddr>, Unresolved>) + Send>;

/// Looks names up when it is told to: its answer is this host.
#[derive(Default)]
struct Late(Mutex<Vec<Done>>);

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Late")
    }
}

impl Resolver for Late {
    fn ask(&self, _: &str, done: Done) {
        self.0.lock().unwrap().push(done);
    }

    fn name_servers(&self) -> Vec<std::net::SocketAddr> {
        Vec::new()
    }
}

#[derive(Debug)]
struct WithResolver(Arc<Late>);

impl Program for WithResolver {
    fn resolver(&self) -> Arc<dyn Resolver> {
        Arc::<Late>::clone(&self.0)
    }
}

/// An operator of the left end, whose peer is `host` and whose child `child` has `options`, with the drivers of both
/// ends, and what gives it packets.
fn pair(
    host: &str,
    child: &str,
    options: &str,
    program: Arc<dyn Program>,
) -> (Operator, Vec<Drivers>, mpsc::UnboundedSender<Wanted>) {
    pair_on(Plane::none(), (host, child, options), program)
}

/// As [`pair`], with the data plane of the left end.
fn pair_on(
    plane: Plane,
    options: (&str, &str, &str),
    program: Arc<dyn Program>,
) -> (Operator, Vec<Drivers>, mpsc::UnboundedSender<Wanted>) {
    pair_of([plane, Plane::none()], options, program)
}

/// As [`pair`], with the data planes of both ends.
fn pair_of(
    planes: [Plane; 2],
    (host, child, options): (&str, &str, &str),
    program: Arc<dyn Program>,
) -> (Operator, Vec<Drivers>, mpsc::UnboundedSender<Wanted>) {
    let (left, right) = (sockets(), sockets());
    let ports = left.ports();
    let peer = settings(["right", "left"], "127.0.0.1", ports.nat_t, child);
    let text = down::left_end(host, right.ports().nat_t, (child, options));
    let end = ike_config::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    let (end, peer) = (Configuration::from(end), Configuration::from(peer));
    let start = |configuration: &Configuration, sockets: Sockets, plane: Plane| {
        let endpoint = configuration.unresolved(sockets.ports());
        let builder = Builder::new(endpoint, controlled::crypto(), sockets).plane(plane);
        let (drivers, mut wanted) = builder.start();
        // The questions of the engine stay without an answer.
        tokio::spawn(async move { while wanted.recv().await.is_some() {} });
        drivers
    };
    let [ours, theirs] = planes;
    let (us, them) = (start(&end, left, ours), start(&peer, right, theirs));
    let plane = Plane::none().capabilities();
    let operator = Operator::new(us.handle().clone(), end, ports, plane, program);
    let (packets, wanted) = mpsc::unbounded_channel();
    let attending = operator.clone();
    tokio::spawn(async move { attending.attend(wanted).await });
    (operator, vec![us, them], packets)
}

fn packet(child: &str) -> Wanted {
    let host = TrafficSelector::host(LOCALHOST);
    let packet = Flow { local: host, remote: host };
    Wanted::Packet { connection: "site".to_owned(), child: child.to_owned(), packet }
}

/// True if there is an SA within a time.
async fn comes_up(operator: &Operator, limit: Duration) -> bool {
    let up = async {
        while !operator.list().await.unwrap().iter().any(|ike| !ike.children.is_empty()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(limit, up).await.is_ok()
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

/// The trap that `terminate` leaves brings the child up, and the one that `down` finds is a block.
///
/// Faults, each by itself: in `drops_packets`, let what is noted at all drop packets; in `take_down`, note that traps stay.
#[tokio::test]
async fn a_packet_brings_up_what_terminate_ended_and_not_what_down_did() {
    let (operator, _drivers, packets) =
        pair("127.0.0.1", "net", "start_action = 'start', dpd_action = 'trap'", Arc::new(()));
    operator.install(None, "net").await.unwrap();
    operator.up(&Target::named("net")).await.unwrap();
    operator.down(&Target::named("net")).await.unwrap();
    assert_eq!(operator.taken_down(&[]).len(), 1);
    packets.send(packet("net")).unwrap();
    assert!(comes_up(&operator, LONG).await, "the trap is a black hole");
    assert!(operator.taken_down(&[]).is_empty(), "it is down no more");
    operator.take_down(&Target::named("site")).await.unwrap();
    packets.send(packet("net")).unwrap();
    assert!(!comes_up(&operator, SHORT).await, "the trap is no block");
    assert_eq!(operator.taken_down(&[]).len(), 1);
    assert_eq!(operator.up_all().await, Ok(1));
    assert!(operator.taken_down(&[]).is_empty());
}

/// Fault: in `any`, return `Ok(true)` for each error.
#[tokio::test]
async fn a_refused_down_has_no_effect() {
    let (operator, _drivers, packets) =
        pair("127.0.0.1", "site", "start_action = 'trap'", Arc::new(()));
    let site = Target { ike: Some("site".to_owned()), ..Target::default() };
    operator.install(None, "site").await.unwrap();
    operator.up(&Target { child: Some("site".to_owned()), ..site.clone() }).await.unwrap();
    let both = Err(OperatorError::ConnectionAndChild("site".to_owned()));
    assert_eq!(operator.take_down(&Target::named("site")).await, both);
    assert_eq!(operator.down(&Target::named("site")).await, both);
    assert!(operator.taken_down(&[]).is_empty());
    operator.down(&site).await.unwrap();
    packets.send(packet("site")).unwrap();
    assert!(comes_up(&operator, LONG).await, "the trap is a block");
}

/// Faults, each by itself: in `start`, or in `acquire`, do not look again after the look-up.
#[tokio::test]
async fn what_is_under_way_does_not_undo_down() {
    for action in ["start", "trap"] {
        let late = Arc::new(Late::default());
        let options = format!("start_action = '{action}'");
        let program = Arc::new(WithResolver(Arc::clone(&late)));
        let (operator, _drivers, packets) = pair("peer.invalid", "net", &options, program);
        match action {
            "start" => operator.start_actions().await,
            _ => packets.send(packet("net")).unwrap(),
        }
        let asked = async {
            while late.0.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, asked).await.unwrap();
        assert_eq!(operator.take_down(&Target::named("net")).await, Ok(0), "{action}");
        for done in std::mem::take(&mut *late.0.lock().unwrap()) {
            done(Ok(vec![LOCALHOST]));
        }
        assert!(!comes_up(&operator, SHORT).await, "{action}");
    }
}

/// A data plane that shows what its traps do with packets. If the flag is set, it shows the policies of `failureshunt`
/// instead.
#[derive(Clone, Default)]
struct Traps(Arc<Mutex<BTreeMap<PolicyId, PolicyAction>>>, bool);

impl DataPlane for Traps {
    fn capabilities(&self) -> Capabilities {
        NoPlane.capabilities()
    }

    fn apply(&mut self, command: PlaneCommand) -> Result<Reply, DataPlaneError> {
        let mut all = self.0.lock().unwrap();
        match command {
            // Either those of `failureshunt` or the others, without those of SAs.
            PlaneCommand::InstallPolicy(spec)
                if (spec.id.0 >= 1 << 63) == self.1
                    && !matches!(spec.action, PolicyAction::Protect { .. }) =>
            {
                all.insert(spec.id, spec.action);
            }
            PlaneCommand::RemovePolicy(id) => _ = all.remove(&id),
            other => return NoPlane.apply(other),
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<PlaneEvent> {
        None
    }
}

const TRAP: &[PolicyAction] = &[PolicyAction::Trap];
const BLOCK: &[PolicyAction] = &[PolicyAction::Shunt { silent: false }];

impl Traps {
    /// True if they become `expected`.
    async fn become_(&self, expected: &[PolicyAction]) -> bool {
        within(async || self.0.lock().unwrap().values().eq(expected)).await
    }
}

/// True if `done` is true within a long time.
async fn within(mut done: impl AsyncFnMut() -> bool) -> bool {
    let waits = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waits).await.is_ok()
}

fn name() -> (String, String) {
    ("site".to_owned(), "net".to_owned())
}

/// The raw commands of an engine, as other ends and shards cause them.
fn initiate(packet: bool) -> Command {
    let (connection, child) = name();
    let host = TrafficSelector::host(LOCALHOST);
    let packet = packet.then_some(Flow { local: host, remote: host });
    Command::Initiate {
        connection,
        child: Some(child),
        local: LOCALHOST,
        remote: LOCALHOST,
        packet,
    }
}

fn trap() -> Command {
    let (connection, child) = name();
    Command::InstallTrap { connection, child, local: LOCALHOST, remote: LOCALHOST }
}

fn restart() -> Wanted {
    let (connection, child) = name();
    Wanted::Restart { connection, child, local: LOCALHOST, remote: LOCALHOST }
}

/// What the peer has brought up is down by command no more, and its trap no block. What takes it down later has its
/// consequences, as without the command.
///
/// Faults, each by itself: in `Taking::drop`, start no task; in `end_when_up`, return if `newest() == number`.
#[tokio::test]
async fn what_the_peer_brings_up_is_down_by_command_no_more() {
    let traps = Traps::default();
    let options = ("127.0.0.1", "net", "start_action = 'start', dpd_action = 'trap'");
    let (operator, drivers, packets) = pair_on(Plane::new(traps.clone()), options, Arc::new(()));
    let (us, them) = (drivers[0].handle(), drivers[1].handle());
    us.command(trap()).await.unwrap().unwrap();
    for blocks in [false, true] {
        operator.up(&Target::named("net")).await.unwrap();
        match blocks {
            true => operator.take_down(&Target::named("net")).await.unwrap(),
            false => operator.down(&Target::named("net")).await.unwrap(),
        };
        assert_eq!(operator.taken_down(&[]).len(), 1, "{blocks}");
        assert!(traps.become_(if blocks { BLOCK } else { TRAP }).await, "{blocks}");
        them.command(initiate(false)).await.unwrap().unwrap();
        let is_over = within(async || operator.taken_down(&[]).is_empty()).await;
        assert!(is_over && traps.become_(TRAP).await, "{blocks}");
        // As after the peer's silence.
        for id in us.ids().await.unwrap() {
            us.command(Command::ForgetIke(id)).await.unwrap().unwrap();
        }
        packets.send(restart()).unwrap();
        assert!(comes_up(&operator, LONG).await, "{blocks}");
    }
}

/// What a shard wants although a command has taken it down has been up since: it is started, and what holds its traffic
/// stays. Without that it is not wanted, even if something has it.
///
/// Faults, each by itself: in `stays_down`, return true for what is wanted; in `restart`, call `want_where_carried` first.
#[tokio::test]
async fn a_restart_is_for_what_is_wanted_since_the_command() {
    let (operator, drivers, packets) =
        pair("127.0.0.1", "net", "start_action = 'start'", Arc::new(()));
    let (us, them) = (drivers[0].handle(), drivers[1].handle());
    operator.up(&Target::named("net")).await.unwrap();
    operator.down(&Target::named("net")).await.unwrap();
    packets.send(restart()).unwrap();
    assert!(!comes_up(&operator, 3 * SHORT).await);
    assert_eq!(operator.taken_down(&[]).len(), 1);
    let (connection, child) = name();
    us.command(Command::Want { connection, child }).await.unwrap().unwrap();
    packets.send(restart()).unwrap();
    assert!(comes_up(&operator, LONG).await);
    assert!(operator.taken_down(&[]).is_empty());

    operator.down(&Target::named("net")).await.unwrap();
    them.leave().await.unwrap();
    let attempt = tokio::spawn({
        let us = us.clone();
        async move { us.command(initiate(true)).await }
    });
    assert!(within(async || !us.ids().await.unwrap().is_empty()).await);
    packets.send(restart()).unwrap();
    tokio::time::sleep(3 * SHORT).await;
    assert_eq!(us.wanted().await.unwrap(), []);
    attempt.abort();
}

/// Faults, each by itself: in `install`, end the note before the look-up; in `uninstall`, leave the note as it is; in
/// `drops_packets`, block no trap that is noted as a block.
#[tokio::test]
async fn the_notes_of_traps_are_as_the_traps() {
    let traps = Traps::default();
    let late = Arc::new(Late::default());
    let program = Arc::new(WithResolver(Arc::clone(&late)));
    let options = ("peer.invalid", "net", "start_action = 'start'");
    let (operator, drivers, packets) = pair_on(Plane::new(traps.clone()), options, program);
    let us = drivers[0].handle();
    us.command(trap()).await.unwrap().unwrap();
    operator.take_down(&Target::named("net")).await.unwrap();
    assert!(traps.become_(BLOCK).await);
    // As after an end of the child on another shard.
    us.command(trap()).await.unwrap().unwrap();
    assert!(traps.become_(TRAP).await);
    packets.send(packet("net")).unwrap();
    assert!(traps.become_(BLOCK).await, "it is a trap");
    let fails = async {
        while late.0.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for done in std::mem::take(&mut *late.0.lock().unwrap()) {
            done(Err(Unresolved::NoSuchName));
        }
    };
    let (installed, ()) = tokio::join!(operator.install(None, "net"), fails);
    assert!(installed.is_err() && traps.become_(BLOCK).await, "{installed:?}");
    assert_eq!(operator.taken_down(&[]).len(), 1);
    operator.uninstall(None, "net").await.unwrap();
    assert!(traps.become_(&[]).await);
    let net = Target::named("net");
    let (up, ()) = tokio::join!(operator.up(&net), async {
        tokio::time::sleep(SHORT).await;
        for done in std::mem::take(&mut *late.0.lock().unwrap()) {
            done(Ok(vec![LOCALHOST]));
        }
    });
    assert_eq!(up, Ok(()));
    assert!(traps.become_(&[]).await, "the trap is back");
}

/// A trap that a command has taken away stays away over a reload, until the reload changes its child or a command wants it.
///
/// Faults, each by itself: in `uninstall`, do not call `untrapped`; in `untrapped`, note no child.
#[tokio::test]
async fn a_reload_installs_no_trap_that_a_command_has_taken_away() {
    let traps = Traps::default();
    let options = ("127.0.0.1", "net", "start_action = 'trap'");
    let (operator, _drivers, _packets) = pair_on(Plane::new(traps.clone()), options, Arc::new(()));
    let reload = async |change: fn(&mut ChildConfig)| {
        let mut configuration = (*operator.config()).clone();
        let connection = Arc::make_mut(&mut configuration.endpoint.connections[0]);
        change(Arc::make_mut(&mut connection.children[0]));
        operator.reload(|| Ok(Candidate::new(configuration))).await.unwrap();
    };
    for ends in [false, true] {
        operator.start_actions().await;
        assert!(traps.become_(TRAP).await);
        operator.uninstall(None, "net").await.unwrap();
        assert!(traps.become_(&[]).await);
        assert_eq!(operator.taken_down(&[]).len(), 1);
        reload(|_| {}).await;
        tokio::time::sleep(SHORT).await;
        assert!(traps.0.lock().unwrap().is_empty(), "the trap is back");
        match ends {
            true => operator.install(None, "net").await.unwrap(),
            false => reload(|child| child.priority = 7).await,
        }
        assert!(traps.become_(TRAP).await, "{ends}");
        assert!(operator.taken_down(&[]).is_empty());
    }
}

/// A trap that is made a block while a command wants its child up is a trap in the end.
///
/// Fault: in `block_if_down`, do nothing if there is no note any more.
#[tokio::test]
async fn no_trap_is_a_block_without_a_note() {
    let traps = Traps::default();
    let options = ("127.0.0.1", "net", "start_action = 'start'");
    let (operator, drivers, packets) = pair_on(Plane::new(traps.clone()), options, Arc::new(()));
    let us = drivers[0].handle();
    for steps in 0..8 {
        operator.up(&Target::named("net")).await.unwrap();
        let (connection, child) = name();
        let _ = us.command(Command::UninstallTrap { connection, child }).await.unwrap();
        operator.take_down(&Target::named("net")).await.unwrap();
        us.command(trap()).await.unwrap().unwrap();
        packets.send(packet("net")).unwrap();
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        operator.up(&Target::named("net")).await.unwrap();
        assert!(traps.become_(TRAP).await, "{steps}");
        assert!(operator.taken_down(&[]).is_empty());
    }
}

/// Takes sections and revocation lists, and is slow to assemble them.
#[derive(Debug, Default)]
struct Slow {
    overlay: Mutex<Overlay>,
    lists: Mutex<usize>,
    fails: Mutex<bool>,
    /// The numbers of sections and lists in force.
    in_force: Arc<Mutex<(usize, usize)>>,
}

impl Program for Slow {
    fn loader(&self) -> Option<&dyn Loader> {
        Some(self)
    }
}

impl Loader for Slow {
    fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap()
    }

    fn difference(&self, _: Kind, _: &str, _: &DeTable<'_>) -> Option<Difference> {
        None
    }

    fn check_section(&self, _: Kind, _: &str) -> Result<Configuration, OperatorError> {
        Ok(Configuration::default())
    }

    fn check_shared(&self, _: &str) -> Result<(), OperatorError> {
        Ok(())
    }

    fn merged(&self) -> Result<Candidate, OperatorError> {
        std::thread::sleep(Duration::from_millis(30));
        if *self.fails.lock().unwrap() {
            return Err(OperatorError::NoFile);
        }
        let (new, in_force) =
            ((self.overlay().sections(), *self.lists.lock().unwrap()), Arc::clone(&self.in_force));
        let adopt = Box::new(move || *in_force.lock().unwrap() = new);
        Ok(Candidate { adopt, ..Candidate::new(Configuration::default()) })
    }

    fn content_name(&self, _: &[u8]) -> String {
        String::new()
    }

    fn keep_credentials(&self) -> Box<dyn FnOnce() + Send + '_> {
        let lists = *self.lists.lock().unwrap();
        Box::new(move || *self.lists.lock().unwrap() = lists)
    }

    fn add_key(&self, _: &[u8], _: &str) -> Result<String, OperatorError> {
        Err(OperatorError::NoLoader)
    }

    fn add_token(&self, _: DeTable<'static>) -> Result<String, OperatorError> {
        Err(OperatorError::NoLoader)
    }

    fn remove_key(&self, _: &str) -> bool {
        false
    }

    fn key_ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn add_certificates(&self, _: &[u8], _: bool) -> Result<(), OperatorError> {
        Err(OperatorError::NoLoader)
    }

    fn add_crl(&self, _: &[u8]) -> Result<(), OperatorError> {
        *self.lists.lock().unwrap() += 1;
        Ok(())
    }

    fn clear_credentials(&self) -> Result<(), OperatorError> {
        Err(OperatorError::NoLoader)
    }
}

/// With many sections, those come in force later. Credentials do so before the answer, or are put back.
///
/// Faults, each by itself: in `load_by`, call `in_force`; in `credentials_in_force`, leave `waiting` as it is; in `load_shared`,
/// take the same secret again.
#[tokio::test]
async fn credentials_are_in_force_with_the_answer_however_much_is_loaded() {
    let program = Arc::new(Slow::default());
    let (operator, _drivers, _packets) = pair("127.0.0.1", "net", "", Arc::<Slow>::clone(&program));
    let site = Kind::Connection;
    for number in 0..=200 {
        program.overlay().put(site, &number.to_string(), DeTable::new(), Blobs::new());
    }
    let in_force = || *program.in_force.lock().unwrap();
    // From the first one on, it is known to be slow.
    for lists in 1..3 {
        operator.load_crl(&[]).await.unwrap();
        assert_eq!(in_force(), (201, lists));
    }
    operator.load_shared(Some("one"), "ike", DeTable::new()).await.unwrap();
    operator.load_section(site, "later", DeTable::new(), Blobs::new()).await.unwrap();
    *program.fails.lock().unwrap() = true;
    assert_eq!(operator.load_crl(&[]).await, Err(OperatorError::NoFile));
    assert_eq!(operator.unload_shared("one").await, Err(OperatorError::NoFile));
    assert_eq!(operator.loaded_shared().await, ["one"]);
    operator.load_shared(Some("one"), "ike", DeTable::new()).await.unwrap();
    *program.fails.lock().unwrap() = false;
    let later = async {
        while in_force() != (202, 2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, later).await.unwrap();
}
