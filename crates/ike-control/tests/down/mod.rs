//! What is under way when a command takes a child down, and a child of another shard than its own.

use ike_proto::config::Shard;
use tokio::sync::broadcast::error::RecvError;

use super::*;

/// The configuration of the left end, whose peer is `host` at `port`.
pub(super) fn left_end(host: &str, port: u16, (child, options): (&str, &str)) -> String {
    format!(
        "[connections.site]
        local_addrs = '127.0.0.1'
        remote_addrs = '{host}'
        remote_port = {port}
        keyingtries = 1
        local = {{ auth = 'psk', id = 'left' }}
        remote = {{ auth = 'psk', id = 'right' }}
        children.{child} = {{ {options} }}
        [secrets.ike]
        secret = 'correct horse battery staple'"
    )
}

/// A data plane that is slow to take policies and SAs.
struct Slowly(Duration);

impl DataPlane for Slowly {
    fn capabilities(&self) -> Capabilities {
        NoPlane.capabilities()
    }

    fn apply(&mut self, command: PlaneCommand) -> Result<Reply, DataPlaneError> {
        let takes = match &command {
            PlaneCommand::InstallSa(_) => true,
            PlaneCommand::InstallPolicy(spec) => spec.id.0 < 1 << 63,
            _ => false,
        };
        if takes {
            std::thread::sleep(self.0);
        }
        NoPlane.apply(command)
    }

    fn poll_event(&mut self) -> Option<PlaneEvent> {
        None
    }
}

fn slow() -> Plane {
    Plane::new(Slowly(3 * SHORT))
}

fn net() -> Target {
    Target { child: Some("net".to_owned()), ..Target::default() }
}

/// What this end was making when a command took it down is taken down once it is up.
///
/// Fault: in `end_those_of`, end the note of what this end has requested as well.
#[tokio::test]
async fn a_child_that_comes_up_after_down_is_taken_down() {
    let options = ("127.0.0.1", "net", "start_action = 'start'");
    let (operator, drivers, _packets) = pair_of([Plane::none(), slow()], options, Arc::new(()));
    let us = drivers[0].handle();
    let mut events = us.events();
    let up = tokio::spawn({
        let operator = operator.clone();
        async move { operator.up(&Target::named("net")).await }
    });
    assert!(within(async || !us.ids().await.unwrap().is_empty()).await);
    assert_eq!(operator.down(&net()).await, Ok(0));
    let comes_and_goes = async {
        let mut came = false;
        loop {
            match events.recv().await {
                Ok(Event::ChildUp { .. }) => came = true,
                Ok(Event::ChildDown { .. }) => return came,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return false,
            }
        }
    };
    assert_eq!(tokio::time::timeout(LONG, comes_and_goes).await, Ok(true));
    let _ = up.await.unwrap();
    assert!(!comes_up(&operator, SHORT).await);
    assert_eq!(operator.taken_down(&[]).len(), 1);
}

/// A restart waits until a command that has begun before has told the engine what is no longer wanted, however long that takes.
///
/// Fault: in `stays_down`, wait for 500 ms and for no command.
#[tokio::test]
async fn a_restart_waits_for_a_slow_command() {
    let options = ("127.0.0.1", "net", "start_action = 'start'");
    let (operator, drivers, packets) = pair_of([slow(), Plane::none()], options, Arc::new(()));
    operator.up(&Target::named("net")).await.unwrap();
    drivers[0].handle().command(trap()).await.unwrap().unwrap();
    let down = tokio::spawn({
        let operator = operator.clone();
        async move { operator.take_down(&net()).await }
    });
    assert!(within(async || operator.taken_down(&[]).len() == 1).await);
    packets.send(restart()).unwrap();
    assert_eq!(down.await.unwrap(), Ok(1));
    assert!(!comes_up(&operator, 2 * SHORT).await);
    assert_eq!(operator.taken_down(&[]).len(), 1);
}

/// A command that takes a child down while an `install` looks its peer up counts for more.
///
/// Fault: in `install`, end the note as `up` does.
#[tokio::test]
async fn a_child_taken_down_during_install_stays_down() {
    let (traps, late) = (Traps::default(), Arc::new(Late::default()));
    let program = Arc::new(WithResolver(Arc::clone(&late)));
    let options = ("peer.invalid", "net", "start_action = 'start'");
    let (operator, _drivers, _packets) = pair_on(Plane::new(traps.clone()), options, program);
    for (taken_down, expected) in [(true, BLOCK), (false, TRAP)] {
        let installed = tokio::spawn({
            let operator = operator.clone();
            async move { operator.install(None, "net").await }
        });
        assert!(within(async || !late.0.lock().unwrap().is_empty()).await);
        if taken_down {
            operator.take_down(&net()).await.unwrap();
        }
        for done in std::mem::take(&mut *late.0.lock().unwrap()) {
            done(Ok(vec![LOCALHOST]));
        }
        assert_eq!(installed.await.unwrap(), Ok(()));
        assert!(traps.become_(expected).await, "{taken_down}");
        assert_eq!(operator.taken_down(&[]).len(), usize::from(taken_down));
    }
}

/// The peer brings up a child that a command took down, on another shard than the child's own, and then falls silent. The
/// hold of the child's traffic stays, and the child is wanted again on its own shard.
///
/// Fault: in `Taking::drop`, start no task.
#[tokio::test]
async fn a_child_of_another_shard_stays_held_when_its_peer_falls_silent() {
    let holds = Traps(Arc::default(), true);
    let listen =
        Listen { addresses: vec![LOCALHOST], lenient: false, shards: 2, ..Listen::default() };
    let bound = Sockets::bind(&listen, Ports { ike: 0, nat_t: 0 }).unwrap();
    let ports = bound.ports();
    // Nobody is there to whom this end could send.
    let options = "start_action = 'start', dpd_action = 'start'";
    let text = format!(
        "[charon]
        retransmit_timeout = 0.1
        retransmit_tries = 1
        {}",
        left_end("127.0.0.1", 9, ("net", options)).replace("keyingtries = 1", "keyingtries = 0")
    );
    let end = Configuration::from(ike_config::parse(&text).unwrap());
    let builder = Builder::new(end.unresolved(ports), controlled::crypto(), bound);
    let (drivers, wanted) = builder.plane(Plane::new(holds.clone())).start();
    let us = drivers.handle();
    let plane = Plane::none().capabilities();
    let operator = Operator::new(us.clone(), end, ports, plane, Arc::new(()));
    tokio::spawn({
        let operator = operator.clone();
        async move { operator.attend(wanted).await }
    });
    let shard = |ids: &[ike_proto::IkeSaId]| Shard::of_number(2, ids[0].0);
    let attempt = tokio::spawn({
        let us = us.clone();
        async move { us.command(initiate(true)).await }
    });
    assert!(within(async || !us.ids().await.unwrap().is_empty()).await);
    let ids = us.ids().await.unwrap();
    let home = shard(&ids);
    us.command(Command::ForgetIke(ids[0])).await.unwrap().unwrap();
    attempt.abort();
    let mut peers = Vec::new();
    let elsewhere = loop {
        assert!(peers.len() < 40, "always on the shard of its own");
        operator.take_down(&Target::named("site")).await.unwrap();
        assert!(within(async || us.ids().await.unwrap().is_empty()).await);
        let (right, peer) =
            (sockets(), settings(["right", "left"], "127.0.0.1", ports.nat_t, "net"));
        let peer = Configuration::from(peer).unresolved(right.ports());
        let (peer, _) = Builder::new(peer, controlled::crypto(), right).start();
        peer.handle().command(initiate(false)).await.unwrap().unwrap();
        assert!(within(async || operator.taken_down(&[]).is_empty()).await);
        let ids = us.ids().await.unwrap();
        peers.push(peer);
        if shard(&ids) != home {
            break ids[0];
        }
    };
    let is_held = || !holds.0.lock().unwrap().is_empty();
    assert!(within(async || is_held()).await);
    peers.pop().unwrap().handle().leave().await.unwrap();
    let rekey = us.command(Command::RekeyIke(elsewhere));
    assert!(rekey.await.unwrap().is_err());
    assert!(within(async || !us.ids().await.unwrap().contains(&elsewhere)).await);
    let is_wanted = async || {
        assert!(is_held(), "nothing holds it");
        !us.wanted().await.unwrap().is_empty()
    };
    assert!(within(is_wanted).await);
    assert!(is_held(), "nothing holds it");
}
