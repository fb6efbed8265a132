//! Two daemons against each other over loopback sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Carrier, Pair, list, packet, until};
use ike_control::control::protocol::Request;
use ike_control::control::{ControlSocket, client};
use ike_control::views::IkeSa;
use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, PolicyAction, PolicyId, PolicySpec,
    Reply,
};
use ike_tokio::Target;
use ike_tokio::{NoPlane, Plane};
use xfrm::{CommandKind, Fault, Faulty};

pub(crate) fn net() -> Target {
    Target::named("net")
}

pub(crate) fn site() -> Target {
    Target::named("site")
}

#[tokio::test]
async fn up_list_rekey_down_without_a_data_plane() {
    life("").await;
}

#[expect(clippy::unwrap_used, reason = "test code")]
pub(crate) async fn life(charon: &str) {
    let pair = Pair::start(Carrier::None, charon, "").await;
    let operator = pair.left.operator();
    operator.up(&net()).await.unwrap();
    let sas = list(&pair.left).await;
    let [ike] = sas.as_slice() else { panic!("{sas:#?}") };
    assert_eq!(
        (ike.name.as_str(), ike.state.as_str(), ike.initiator),
        ("site", "ESTABLISHED", true)
    );
    assert_eq!(ike.local_id.as_deref(), Some("left.example.org"));
    assert_eq!(ike.remote_id.as_deref(), Some("right.example.org"));
    assert!(ike.mobike, "by default");
    assert_eq!(ike.local_port, pair.left.ports().nat_t);
    assert_eq!(ike.remote_port, pair.right.ports().nat_t);
    assert_eq!(ike.algorithms.encr_alg.as_deref(), Some("AES_GCM_16"));
    assert_eq!(ike.algorithms.encr_keysize, Some(256));
    assert_eq!(ike.algorithms.prf_alg.as_deref(), Some("PRF_HMAC_SHA2_256"));
    assert_eq!(ike.algorithms.dh_group.as_deref(), Some("CURVE_25519"));
    assert!(ike.setup_time_ms.is_some_and(|ms| ms > 0.0));
    let [child] = ike.child_sas.as_slice() else { panic!("{ike:#?}") };
    assert_eq!((child.name.as_str(), child.state.as_str()), ("net", "INSTALLED"));
    assert_eq!(
        (child.local_ts.as_slice(), child.mode.as_str()),
        (&["10.1.0.0/16".to_owned()][..], "TUNNEL")
    );

    let theirs =
        until(&pair.right, "responder", |sas| sas.iter().any(|s| !s.child_sas.is_empty())).await;
    assert_eq!(theirs[0].initiator_spi, ike.initiator_spi);
    assert_eq!(theirs[0].child_sas[0].spi_in, child.spi_out);

    assert_eq!(operator.rekey(&net()).await, Ok(1));
    let rekeyed = until(&pair.left, "one child", |s| s[0].child_sas.len() == 1).await;
    assert_ne!(rekeyed[0].child_sas[0].spi_in, child.spi_in);
    assert_eq!(rekeyed[0].child_sas[0].reqid, child.reqid);

    assert_eq!(operator.rekey(&site()).await, Ok(1));
    let moved = until(&pair.left, "one IKE SA", |s| s.len() == 1).await;
    assert_ne!(moved[0].initiator_spi, ike.initiator_spi);
    assert_eq!(moved[0].child_sas[0].spi_in, rekeyed[0].child_sas[0].spi_in);

    assert_eq!(operator.down(&net()).await, Ok(1));
    until(&pair.right, "no child", |s| s[0].child_sas.is_empty()).await;
    assert_eq!(operator.down(&site()).await, Ok(1));
    until(&pair.left, "nothing", <[_]>::is_empty).await;
    until(&pair.right, "nothing", <[_]>::is_empty).await;
}

#[tokio::test]
async fn traffic_passes_both_ways_and_is_counted() {
    let mut pair = Pair::start(Carrier::Memory, "", "").await;
    let (mut left, mut right) = pair.hosts.take().unwrap();
    pair.left.operator().up(&net()).await.unwrap();
    let there = packet([10, 1, 0, 1], [10, 2, 0, 1], b"there");
    let back = packet([10, 2, 0, 1], [10, 1, 0, 1], b"and back");
    assert!(left.send(there.clone()).await);
    assert_eq!(right.recv().await.as_deref(), Some(&there[..]));
    assert!(right.send(back.clone()).await);
    assert_eq!(left.recv().await.as_deref(), Some(&back[..]));
    let sas = list(&pair.left).await;
    let child = &sas[0].child_sas[0];
    assert!(child.encap);
    assert_eq!((child.packets_out, child.packets_in), (1, 1));
    assert_eq!((child.bytes_out, child.bytes_in), (there.len() as u64, back.len() as u64));
    // What no selector covers stays here.
    assert!(left.send(packet([10, 1, 0, 1], [10, 3, 0, 1], b"astray")).await);
    assert!(left.send(there.clone()).await);
    assert_eq!(right.recv().await.as_deref(), Some(&there[..]));
}

#[tokio::test]
async fn a_rekey_loses_no_packet() {
    loses_no_packet("").await;
}

#[expect(clippy::unwrap_used, reason = "test code")]
pub(crate) async fn loses_no_packet(charon: &str) {
    let mut pair = Pair::start(Carrier::Memory, charon, "").await;
    let (left, mut right) = pair.hosts.take().unwrap();
    let operator = pair.left.operator();
    operator.up(&net()).await.unwrap();
    let sender = tokio::spawn(async move {
        for number in 0..400_u32 {
            left.send(packet([10, 1, 0, 1], [10, 2, 0, 1], &number.to_be_bytes())).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        left
    });
    operator.rekey(&net()).await.unwrap();
    operator.rekey(&site()).await.unwrap();
    pair.right.operator().rekey(&net()).await.unwrap();
    for number in 0..400_u32 {
        let received = tokio::time::timeout(Duration::from_secs(10), right.recv()).await;
        let received = received.expect("no packet is lost").unwrap();
        assert_eq!(received[28..], number.to_be_bytes());
    }
    sender.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_reported() {
    let pair = Pair::start(Carrier::None, "", "").await;
    let Pair { left, right, .. } = pair;
    drop(right);
    let error = left.operator().up(&net()).await.unwrap_err().to_string();
    assert!(error.starts_with("the peer does not answer; the daemon tries again"), "{error}");
    assert!(list(&left).await.iter().all(|sa| sa.state != "ESTABLISHED"));
}

#[tokio::test]
async fn start_action_brings_the_child_up_and_a_shutdown_deletes_it() {
    let pair = Pair::start(Carrier::None, "", "start_action = 'start'").await;
    // Both start: one whose attempt is cut short by the shutdown leaves the other with half of it.
    let settled = |s: &[IkeSa]| {
        s.iter().any(|s| !s.child_sas.is_empty()) && s.iter().all(|s| s.state == "ESTABLISHED")
    };
    until(&pair.left, "started", settled).await;
    until(&pair.right, "started", settled).await;
    until(&pair.left, "started", settled).await;
    assert!(pair.left.shutdown(Duration::from_secs(5)).await);
    until(&pair.right, "deleted", <[_]>::is_empty).await;
}

#[tokio::test]
async fn the_first_packet_brings_a_trapped_child_up() {
    traps("").await;
}

#[expect(clippy::unwrap_used, reason = "test code")]
pub(crate) async fn traps(charon: &str) {
    let mut pair = Pair::start(Carrier::Memory, charon, "start_action = 'trap'").await;
    let (left, mut right) = pair.hosts.take().unwrap();
    assert!(list(&pair.left).await.is_empty());
    let knock = packet([10, 1, 0, 1], [10, 2, 0, 1], b"knock");
    // The trap is installed by a task of its own.
    for _ in 0..50 {
        left.send(knock.clone()).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        if !list(&pair.left).await.is_empty() {
            break;
        }
    }
    until(&pair.left, "acquired", |s| s.iter().any(|s| !s.child_sas.is_empty())).await;
    left.send(knock.clone()).await;
    assert_eq!(right.recv().await.as_deref(), Some(&knock[..]));
}

#[tokio::test]
async fn names_that_are_wrong_or_ambiguous_are_told() {
    let pair = Pair::start(Carrier::None, "", "").await;
    let operator = pair.left.operator();
    let unknown = Target::named("nett");
    assert_eq!(
        operator.up(&unknown).await.unwrap_err().to_string(),
        "the configuration has no nett"
    );
    assert_eq!(operator.down(&net()).await.unwrap_err().to_string(), "no SA of net");
    let exact = Target { ike: Some("site".into()), child: Some("net".into()), ..Target::default() };
    operator.up(&exact).await.unwrap();
    assert!(operator.reauthenticate(&net()).await.is_err());
    assert_eq!(operator.down(&exact).await, Ok(1));
}

#[tokio::test]
async fn a_reload_takes_new_settings_and_keeps_the_sas() {
    reloads("").await;
}

#[expect(clippy::unwrap_used, reason = "test code")]
pub(crate) async fn reloads(charon: &str) {
    let pair = Pair::start(Carrier::None, charon, "").await;
    let operator = pair.left.operator();
    operator.up(&net()).await.unwrap();
    let before = list(&pair.left).await;
    let port = pair.right.ports().nat_t;
    let mut config = crate::common::configuration(
        "left",
        ["left.example.org", "right.example.org"],
        port,
        "",
        "",
    );
    let mut renamed = config.endpoint.connections[0].as_ref().clone();
    renamed.name = "new".to_owned();
    let hosts = config.hosts.remove("site").unwrap();
    config.hosts.insert("new".to_owned(), hosts);
    config.endpoint.connections = vec![renamed.into()];
    pair.left.reload(config).await.unwrap();
    assert_eq!(list(&pair.left).await[0].initiator_spi, before[0].initiator_spi);
    assert!(operator.up(&site()).await.is_err());
    operator.up(&Target { ike: Some("new".into()), ..Target::default() }).await.unwrap();
}

#[tokio::test]
async fn a_data_plane_that_refuses_is_the_reason_given() {
    // The left one, which is made first.
    let faulty = std::cell::Cell::new(true);
    let plane = || {
        let mut plane = Faulty::new(NoPlane);
        if faulty.replace(false) {
            plane.fail(Fault::Every(CommandKind::InstallSa));
        }
        Plane::new(plane)
    };
    let pair = Pair::start_with(Carrier::None, "", "", Some(&plane), "right.example.org").await;
    let ours = pair.left.operator().up(&net()).await.unwrap_err().to_string();
    assert!(ours.contains("data plane"), "{ours}");
    until(&pair.right, "no child", |s| s.iter().all(|ike| ike.child_sas.is_empty())).await;
    let theirs = pair.right.operator().up(&net()).await.unwrap_err().to_string();
    assert!(theirs.starts_with("the peer answered"), "{theirs}");
    let sas = list(&pair.left).await;
    assert!(sas.iter().all(|ike| ike.child_sas.is_empty()), "{sas:#?}");
}

#[tokio::test]
async fn a_wrong_key_is_refused_by_either_side() {
    let mut pair = Pair::start(Carrier::None, "", "").await;
    let port = pair.right.ports().nat_t;
    let ids = ["left.example.org", "right.example.org"];
    let mut config = crate::common::configuration("left", ids, port, "", "");
    let secret = ike_proto::crypto::Secret::copy_from(b"another key");
    let key = ike_proto::config::PreSharedKey { ids: Vec::new(), secret };
    config.endpoint.secrets = vec![Arc::new(key)];
    pair.left.reload(config).await.unwrap();
    for daemon in [&mut pair.left, &mut pair.right] {
        assert!(daemon.operator().up(&net()).await.is_err());
    }
    until(&pair.left, "nothing", <[_]>::is_empty).await;
    until(&pair.right, "nothing", <[_]>::is_empty).await;
}

/// A data plane whose policies can be looked at, and that waits at a gate before each command.
#[derive(Clone, Default)]
pub(crate) struct Watched {
    pub(crate) policies: Arc<Mutex<BTreeMap<PolicyId, PolicySpec>>>,
    gate: Arc<Gate>,
}

/// Where a data plane waits, as long as it is closed, but not for ever.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default, PartialEq, Eq)]
enum GateState {
    #[default]
    Open,
    Closed,
    Waiting,
}

impl Gate {
    fn set(&self, state: GateState) -> GateState {
        let before = std::mem::replace(&mut *self.state.lock().expect("not poisoned"), state);
        self.changed.notify_all();
        before
    }

    fn is_waited_at(&self) -> bool {
        *self.state.lock().expect("not poisoned") == GateState::Waiting
    }

    fn pass(&self) {
        let mut state = self.state.lock().expect("not poisoned");
        if *state == GateState::Open {
            return;
        }
        *state = GateState::Waiting;
        let closed = |state: &mut GateState| *state != GateState::Open;
        let patience = Duration::from_secs(20);
        let waited = self.changed.wait_timeout_while(state, patience, closed);
        *waited.expect("not poisoned").0 = GateState::Open;
    }
}

impl Watched {
    fn shunts(&self) -> Vec<String> {
        let policies = self.policies.lock().expect("not poisoned");
        let shunt = |spec: &&PolicySpec| matches!(spec.action, PolicyAction::Shunt { .. });
        let text = |spec: &PolicySpec| format!("{} {}", spec.remote_ts[0], spec.action == DROP);
        policies.values().filter(shunt).map(text).collect()
    }

    /// Waits until there are such shunts.
    async fn until(&self, shunts: &[&str]) {
        for _ in 0..200 {
            if self.shunts() == shunts {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?} instead of {shunts:?}", self.shunts());
    }
}

const DROP: PolicyAction = PolicyAction::Shunt { silent: true };

impl DataPlane for Watched {
    fn capabilities(&self) -> Capabilities {
        NoPlane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        self.gate.pass();
        let mut policies = self.policies.lock().expect("not poisoned");
        match command {
            Command::InstallPolicy(spec) => _ = policies.insert(spec.id, *spec),
            Command::RemovePolicy(id) => _ = policies.remove(&id),
            Command::Flush => policies.clear(),
            other => return NoPlane.apply(other),
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// A pair whose left daemon has a data plane that can be watched.
pub(crate) async fn watched(options: &str) -> (Pair, Watched) {
    let plane = Watched::default();
    let first = std::cell::RefCell::new(Some(plane.clone()));
    let planes = || first.take().map_or_else(Plane::none, Plane::new);
    let pair =
        Pair::start_with(Carrier::None, "", options, Some(&planes), "right.example.org").await;
    (pair, plane)
}

#[tokio::test]
async fn traffic_of_a_child_that_goes_does_not_leave_in_clear() {
    let (pair, plane) = watched("close_action = 'trap'").await;
    let operator = pair.left.operator();
    assert!(plane.shunts().is_empty(), "nothing before the child was up");
    operator.up(&net()).await.unwrap();
    plane.until(&["10.2.0.0/16 false"]).await;
    pair.right.operator().down(&site()).await.unwrap();
    until(&pair.left, "gone", <[_]>::is_empty).await;
    plane.until(&["10.2.0.0/16 false"]).await;
    // Whoever takes it down means it, be there an SA or not.
    assert_eq!(operator.down(&net()).await, Ok(0));
    plane.until(&[]).await;
    assert_eq!(operator.down(&net()).await.unwrap_err().to_string(), "no SA of net");
    operator.up(&net()).await.unwrap();
    plane.until(&["10.2.0.0/16 false"]).await;
    assert_eq!(operator.down(&site()).await, Ok(1));
    plane.until(&[]).await;
}

#[tokio::test]
async fn a_shunt_goes_with_its_child_when_a_reload_does_without() {
    let (pair, plane) = watched("failureshunt = 'drop'").await;
    plane.until(&["10.2.0.0/16 true"]).await;
    let port = pair.right.ports().nat_t;
    let ids = ["left.example.org", "right.example.org"];
    let config = |options| crate::common::configuration("left", ids, port, "", options);
    let operator = pair.left.operator();
    pair.left.reload(config("failureshunt = 'drop'")).await.unwrap();
    plane.until(&["10.2.0.0/16 true"]).await;
    // What was lifted stays so until the child is up.
    assert_eq!(operator.down(&net()).await, Ok(0));
    pair.left.reload(config("failureshunt = 'drop'")).await.unwrap();
    plane.until(&[]).await;
    pair.left.reload(config("failureshunt = 'reject'")).await.unwrap();
    plane.until(&["10.2.0.0/16 false"]).await;
    pair.left.reload(config("start_action = 'trap'\nfailureshunt = 'passthrough'")).await.unwrap();
    plane.until(&[]).await;
    operator.up(&net()).await.unwrap();
    assert!(plane.shunts().is_empty());
    pair.left.reload(config("failureshunt = 'reject'")).await.unwrap();
    plane.until(&["10.2.0.0/16 false"]).await;
    assert!(pair.left.shutdown(Duration::from_secs(5)).await);
    assert!(plane.policies.lock().unwrap().is_empty(), "an orderly end leaves nothing");
}

/// While the data plane works on a command, this thread, on which both daemons run, goes on with the rest.
///
/// Fault: in `Control::start` (ike-tokio, plane/control.rs), take the way without a thread for every plane. The
/// thread then waits at the gate itself, until the gate opens by itself.
#[tokio::test]
async fn a_data_plane_that_takes_its_time_holds_nobody_up() {
    let (pair, plane) = watched("").await;
    plane.gate.set(GateState::Closed);
    let up = tokio::spawn({
        let operator = pair.left.operator().clone();
        async move { operator.up(&net()).await }
    });
    while !plane.gate.is_waited_at() {
        assert!(!up.is_finished(), "up without the data plane, or after it has waited in vain");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..10 {
        list(&pair.right).await;
    }
    assert!(!up.is_finished());
    let before = plane.gate.set(GateState::Open);
    assert!(before == GateState::Waiting, "the thread was held up until the gate opened by itself");
    up.await.unwrap().unwrap();
    assert_eq!(plane.policies.lock().unwrap().len(), 1);
    let sas = list(&pair.left).await;
    assert_eq!(sas[0].child_sas[0].state, "INSTALLED");
}

/// A peer that died a moment ago does not confirm that its IKE SA is deleted. All other tunnels wait for the next run, and
/// that waits for this end.
///
/// Fault: in `Daemon::farewell`, wait five seconds.
#[tokio::test]
async fn a_dead_peer_holds_the_end_for_a_second_at_most() {
    let (pair, plane) = watched("").await;
    pair.left.operator().up(&net()).await.unwrap();
    drop(pair.right);
    let begun = Instant::now();
    assert!(!pair.left.shutdown(Duration::from_secs(20)).await, "nobody has confirmed");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(plane.policies.lock().unwrap().is_empty());
}

/// A data plane that refuses to be emptied, as the kernel's does when another process owns the table of nf_tables.
struct Refusing(Watched);

impl DataPlane for Refusing {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        match command {
            Command::Flush => Err(DataPlaneError("the table stays".into())),
            other => self.0.apply(other),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.0.poll_event()
    }
}

/// A stop is to leave nothing that blocks traffic. If it does, the process ends with an error.
///
/// Faults: in `Control::close` (ike-tokio, plane/control.rs), do not note an error; in `Drivers::ended`, do not look at it.
#[tokio::test]
async fn an_end_whose_data_plane_cannot_be_emptied_says_so() {
    for refuses in [false, true] {
        let watched = Watched::default();
        let first = std::cell::RefCell::new(Some(watched));
        let planes = || match first.take() {
            Some(watched) if refuses => Plane::new(Refusing(watched)),
            Some(watched) => Plane::new(watched),
            None => Plane::none(),
        };
        let pair =
            Pair::start_with(Carrier::None, "", "", Some(&planes), "right.example.org").await;
        pair.left.operator().up(&net()).await.unwrap();
        let hurry = tokio::time::sleep(Duration::from_secs(5));
        let ended = pair.left.shutdown_unless(hurry).await;
        assert_eq!((ended.confirmed, ended.emptied), (true, !refuses));
    }
}

/// Faults: in `daemon.rs`, let `CLEAN_UP` be ten seconds; in `server.rs` of the control socket, never say that the data
/// plane hangs.
#[tokio::test]
async fn a_data_plane_that_hangs_holds_neither_the_control_socket_nor_the_end() {
    let (mut pair, plane) = watched("").await;
    let path = std::env::temp_dir().join(format!("ike-daemon-hangs-{}", std::process::id()));
    pair.left.serve(ControlSocket::bind(&path).unwrap(), None);
    plane.gate.set(GateState::Closed);
    let operator = pair.left.operator().clone();
    let _up = tokio::spawn(async move { operator.up(&net()).await });
    while !plane.gate.is_waited_at() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    let asked = tokio::task::spawn_blocking(move || client::ask(&path, &Request::List));
    let answer = asked.await.unwrap().unwrap();
    assert!(answer.error.is_some_and(|error| error.contains("data plane")));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert!(!pair.left.shutdown(Duration::from_secs(20)).await);
    assert!(begun.elapsed() < Duration::from_millis(4700), "{:?}", begun.elapsed());
    plane.gate.set(GateState::Open);
}
