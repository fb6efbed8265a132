//! What a reload means for IKE SAs that are up.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_control::{Candidate, Configuration, Evidence, Operator, OperatorError, Program, Reloaded};
use ike_proto::{IkeState, UsedAuth};
use ike_tokio::{Builder, ChildView, Drivers, IkeView, Plane, PolicyView, Target};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};

use super::{controlled, sockets};

/// A program whose file is a text.
#[derive(Debug, Default)]
struct File {
    text: Mutex<String>,
    charon: bool,
    /// Connections for which no peer's key is in `certs` or `pubkeys` any more.
    lacks_pins: Mutex<Vec<&'static str>>,
}

impl Program for File {
    fn read(&self, _: &Path) -> Result<Candidate, OperatorError> {
        Ok(Candidate::new(configuration(&self.text.lock().unwrap())))
    }

    fn follows_charon(&self) -> bool {
        self.charon
    }

    fn evidence(&self, (connection, _): (&str, &str), _: &UsedAuth) -> Evidence {
        match self.lacks_pins.lock().unwrap().contains(&connection) {
            true => Evidence::PinRemoved,
            false => Evidence::Same,
        }
    }
}

fn configuration(text: &str) -> Configuration {
    ike_config::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).into()
}

/// The left end's file, with connections that differ in this end's identity.
fn text(count: usize, port: u16) -> String {
    let mut text = String::from("secrets.ike = { id-them = 'right', secret = 'correct horse' }\n");
    for n in 0..count {
        text += &format!(
            "[connections.c{n}]
            local_addrs = '127.0.0.1'
            remote_addrs = '127.0.0.1'
            remote_port = {port}
            keyingtries = 1
            local = {{ auth = 'psk', id = 'left{n}' }}
            remote = {{ auth = 'psk', id = 'right' }}
            children.net = {{ remote_ts = '10.1.0.0/16' }}\n"
        );
    }
    text
}

/// A way to the peer that holds the peer's IKE_AUTH responses while it is shut.
struct Gate {
    socket: Arc<UdpSocket>,
    shut: Arc<watch::Sender<bool>>,
    silent: Arc<watch::Sender<bool>>,
    held: Arc<Notify>,
}

impl Gate {
    async fn new() -> Self {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let shut = Arc::new(watch::Sender::new(false));
        let silent = Arc::new(watch::Sender::new(false));
        Self { socket, shut, silent, held: Arc::default() }
    }

    fn shut(&self) {
        self.shut.send_replace(true);
    }

    fn open(&self) {
        self.shut.send_replace(false);
    }

    /// From now on nothing of the peer arrives.
    fn silence(&self) {
        self.silent.send_replace(true);
    }

    /// A response is held.
    async fn held(&self) {
        self.held.notified().await;
    }

    /// The port that leads to the peer's.
    fn between(&self, port: u16) -> u16 {
        let (socket, held) = (Arc::clone(&self.socket), Arc::clone(&self.held));
        let (shut, silent) = (Arc::clone(&self.shut), Arc::clone(&self.silent));
        tokio::spawn(async move {
            let (peer, mut client) = (SocketAddr::from(([127, 0, 0, 1], port)), None);
            let mut octets = vec![0; 65536];
            loop {
                let (length, from) = socket.recv_from(&mut octets).await.unwrap();
                if from != peer {
                    client = Some(from);
                    socket.send_to(&octets[..length], peer).await.unwrap();
                    continue;
                }
                if *silent.borrow() {
                    continue;
                }
                // Behind the non-ESP marker.
                if octets[4 + 18] == 35 && *shut.borrow() {
                    held.notify_one();
                    shut.subscribe().wait_for(|shut| !shut).await.unwrap();
                }
                socket.send_to(&octets[..length], client.unwrap()).await.unwrap();
            }
        });
        self.socket.local_addr().unwrap().port()
    }
}

/// An end with connections that are up.
struct Site {
    operator: Operator,
    file: Arc<File>,
    text: String,
    _drivers: [Drivers; 2],
}

impl Site {
    async fn up(count: usize, charon: bool) -> Self {
        let site = Self::begun(count, charon, None).await;
        assert_eq!(site.operator.up_all().await, Ok(count));
        site
    }

    /// An end with connections that are not up yet, to a peer behind `gate`, if there is one.
    async fn begun(count: usize, charon: bool, gate: Option<&Gate>) -> Self {
        Self::begun_as(|port| text(count, port), charon, gate).await
    }

    /// As [`Self::begun`], with the file that `text` makes for the port of the peer.
    async fn begun_as(text: impl Fn(u16) -> String, charon: bool, gate: Option<&Gate>) -> Self {
        let (left, right) = (sockets(), sockets());
        let ports = left.ports();
        let remote = gate.map_or(right.ports().nat_t, |gate| gate.between(right.ports().nat_t));
        let text = text(remote);
        let peer = configuration(
            "secrets.ike = { secret = 'correct horse' }
            [connections.any]
            local_addrs = '127.0.0.1'
            remote_addrs = '127.0.0.1'
            local = { auth = 'psk', id = 'right' }
            remote = { auth = 'psk', id = '%any' }
            children.net = { local_ts = '10.1.0.0/16' }",
        );
        let end = configuration(&text);
        let start = |configuration: &Configuration, sockets: ike_tokio::Sockets| {
            let endpoint = configuration.unresolved(sockets.ports());
            let (drivers, mut wanted) =
                Builder::new(endpoint, controlled::crypto(), sockets).start();
            tokio::spawn(async move { while wanted.recv().await.is_some() {} });
            drivers
        };
        let (us, them) = (start(&end, left), start(&peer, right));
        let file = Arc::new(File { charon, ..File::default() });
        let (handle, plane) = (us.handle().clone(), Plane::none().capabilities());
        let program = Arc::<File>::clone(&file) as Arc<dyn Program>;
        let operator = Operator::new(handle, end, ports, plane, program);
        Self { operator, file, text, _drivers: [us, them] }
    }

    /// Puts the file with other words in force.
    async fn reload(&self, (from, to): (&str, &str), revoke: bool) -> Vec<String> {
        assert!(self.text.contains(from), "{from}");
        *self.file.text.lock().unwrap() = self.text.replace(from, to);
        let reloaded = self.operator.reload_file(Some(Path::new("file")), revoke).await;
        let Reloaded { live, .. } = reloaded.unwrap();
        live
    }

    async fn count(&self) -> usize {
        let views = self.operator.list().await.unwrap();
        views.iter().filter(|view| view.status.state == IkeState::Established).count()
    }
}

/// An IKE SA ends at once if no connection accepts its peer's identity any more, or if its secret was removed, also if a
/// secret for other identities would fit. If the secret was replaced, only `revoke` ends the IKE SA.
///
/// Faults, each by itself: in `excludes`, ask no connection about the identity; leave out `SecretsNow::Removed`; leave out
/// `names`; do not look at `revoke`. In `InForce::secrets`, return `Same` at the end.
#[tokio::test]
async fn an_ike_sa_that_a_reload_does_not_admit_ends_at_once() {
    let secret = "id-them = 'right', secret = 'correct horse'";
    for (change, revoke, why) in [
        (("id = 'right' }", "id = 'other' }"), false, Some("no connection accepts the identity")),
        ((secret, "id-them = 'other', secret = 'correct horse'"), false, Some("was removed")),
        ((secret, "secret = 'another'"), false, Some("was removed")),
        ((secret, "id-them = 'right', secret = 'another'"), false, None),
        ((secret, "id-them = 'right', secret = 'another'"), true, Some("was replaced")),
        ((secret, secret), true, None),
    ] {
        let site = Site::up(1, false).await;
        let live = site.reload(change, revoke).await;
        assert_eq!(site.count().await, usize::from(why.is_none()), "{change:?} {live:?}");
        match why {
            Some(why) => assert!(live.len() == 1 && live[0].contains(why), "{change:?} {live:?}"),
            None => assert!(live.is_empty(), "{change:?} {live:?}"),
        }
    }
}

/// An IKE SA that is under way at the reload, with the settings of before, is judged as soon as it is up. The peer's last
/// response is held until the reload is done.
///
/// Fault: in `review_live`, do not spawn `review_late`.
#[tokio::test]
async fn an_ike_sa_that_comes_up_after_the_reload_is_judged_then() {
    for (change, stays) in [
        (("id = 'right' }", "id = 'other' }"), false),
        (("keyingtries = 1", "keyingtries = 2"), true),
    ] {
        let gate = Gate::new().await;
        let site = Site::begun(1, false, Some(&gate)).await;
        gate.shut();
        let operator = site.operator.clone();
        let up = tokio::spawn(async move { operator.up_all().await });
        gate.held().await;
        assert!(site.reload(change, false).await.is_empty());
        gate.open();
        assert_eq!(up.await.unwrap(), Ok(1), "{change:?}");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(site.count().await, usize::from(stays), "{change:?}");
    }
}

/// What the file says of this end, and from where a peer may come, is no matter of the peer's access: the IKE SAs stay.
///
/// Faults, each by itself: in `excludes`, ask for the rounds of this end as well, or for `remote_addrs`, or for the methods of
/// the connection of the IKE SA's own name.
#[tokio::test]
async fn own_identity_and_method_and_addresses_of_peers_end_no_ike_sa() {
    for change in [
        ("auth = 'psk', id = 'left0'", "auth = 'psk', id = 'else'"),
        ("auth = 'psk', id = 'left0'", "auth = 'pubkey', id = 'left0'"),
        ("remote_addrs = '127.0.0.1'", "remote_addrs = '192.0.2.1'"),
        ("auth = 'psk', id = 'right'", "auth = 'pubkey', id = 'right'"),
    ] {
        let site = Site::up(1, false).await;
        let live = site.reload(change, false).await;
        assert_eq!(site.count().await, 1, "{change:?} {live:?}");
        assert!(live.len() == 1 && live[0].contains("settings that the file has"), "{live:?}");
    }
}

/// If the connection of an IKE SA was removed, or does not accept the peer's identity any more, another one keeps the IKE SA
/// if it accepts the identity by the method that the peer has used, and if it has the peer's key. If the connection is there,
/// no other one decides.
///
/// Faults, each by itself: in `excludes`, do not ask `is_by`; ask all connections always; ask `evidence` for the name in the
/// IKE SA's status.
#[tokio::test]
async fn another_connection_keeps_a_peer_only_if_it_would_accept_it() {
    let (removed, other) = ("[connections.c0]", "id = 'right' }");
    for (from, remote, lacks, stays) in [
        (removed, "auth = 'psk', id = '%any'", &[][..], true),
        (other, "auth = 'psk', id = '%any'", &[], true),
        (other, "auth = 'psk', id = '%any'", &["c0"], true),
        (removed, "auth = 'psk', id = 'nobody'", &[], false),
        (removed, "auth = 'pubkey', id = '%any'", &[], false),
        (removed, "auth = 'eap-mschapv2', id = '%any'", &[], false),
        (removed, "auth = 'null'", &[], false),
        (removed, "auth = 'psk', id = '%any'", &["any"], false),
        ("keyingtries = 1", "auth = 'psk', id = '%any'", &["c0"], false),
        ("keyingtries = 1", "auth = 'psk', id = '%any'", &["any"], true),
    ] {
        let site = Site::up(1, false).await;
        let to = match from {
            "[connections.c0]" => "[connections.new]",
            "id = 'right' }" => "id = 'other' }",
            same => same,
        };
        let text = site.text.replace(from, to).replace(
            "id = 'right' }",
            match from {
                "[connections.c0]" => "id = 'other' }",
                _ => "id = 'right' }",
            },
        );
        let local = if remote.contains("eap") { "pubkey" } else { "psk" };
        let any = format!(
            "[connections.any]
            local_addrs = '127.0.0.1'
            remote_addrs = '127.0.0.1'
            local = {{ auth = '{local}', id = 'left0' }}
            remote = {{ {remote} }}
            children.net = {{ remote_ts = '10.1.0.0/16' }}\n"
        );
        *site.file.text.lock().unwrap() = text + &any;
        *site.file.lacks_pins.lock().unwrap() = lacks.to_vec();
        let reloaded = site.operator.reload_file(Some(Path::new("file")), false).await.unwrap();
        let case = (from, remote, lacks, &reloaded.live);
        assert_eq!(site.count().await, usize::from(stays), "{case:?}");
        let pins = reloaded.live.iter().any(|line| line.contains("from `certs` or `pubkeys`"));
        assert_eq!(pins, !stays && !lacks.is_empty(), "{case:?}");
    }
}

/// With a file in swanctl.conf's format the same reload ends no IKE SA: the answer names the IKE SAs that stay, and the
/// command that ends them. In our own format the answer does the same for changes that exclude no peer.
///
/// Faults, each by itself: in `review_live`, do not ask `follows_charon`; in `differs`, do not compare the children, or the
/// connection.
#[tokio::test]
async fn ike_sas_that_stay_are_named_with_the_command_that_ends_them() {
    for (charon, change, command) in [
        (true, ("id = 'right' }", "id = 'other' }"), "`swanctl --terminate --ike c0`"),
        (true, ("[connections.c0]", "[connections.new]"), "`swanctl --terminate --ike c0`"),
        (false, ("10.1.0.0/16", "10.2.0.0/16"), "`ike-daemon down --ike c0`"),
        (false, ("keyingtries = 1", "dpd_delay = 7"), "`ike-daemon down --ike c0`"),
    ] {
        let site = Site::up(1, charon).await;
        let live = site.reload(change, false).await;
        assert_eq!(site.count().await, 1, "{change:?}");
        assert!(live.len() == 1 && live[0].contains(command), "{change:?} {live:?}");
        let target = Target { ike: Some("c0".to_owned()), ..Target::default() };
        assert_eq!(site.operator.take_down(&target).await, Ok(1), "{change:?}");
    }
}

/// With a file in swanctl.conf's format, a reload closes the `start` children of a connection or a child that it changes or
/// removes, as charon does, with their IKE SA where nothing else is left on it. What lives on is named.
///
/// Faults, each by itself: in `reload_by`, follow nothing; in `ends_ike`, do not look at `end_ike`, or at the other children;
/// in `difference`, compare children by name; in `review_live`, do not call `leave_out`.
#[tokio::test]
async fn with_swanctl_conf_start_children_end_with_their_configuration() {
    let start = "remote_ts = '10.1.0.0/16', start_action = 'start'";
    let more = "children.more = { remote_ts = '10.1.9.0/24' }";
    // Changes, children of before that are left, IKE SAs of before that are left, lines, and IKE SAs in the end.
    for (change, other, children, ikes, lines, end) in [
        (("keyingtries = 1", "keyingtries = 1"), false, 1, 1, 0, 1),
        (("[connections.c0]", "[connections.new]"), false, 0, 0, 0, 1),
        (("keyingtries = 1", "keyingtries = 1\ndpd_delay = 7"), false, 0, 0, 0, 1),
        (("keyingtries = 1", "keyingtries = 1\ndpd_delay = 7"), true, 1, 1, 1, 1),
        ((start, "remote_ts = '10.1.2.0/24', start_action = 'start'"), true, 1, 1, 0, 1),
        ((start, "remote_ts = '10.1.2.0/24', start_action = 'start'"), false, 0, 1, 0, 1),
        ((start, "remote_ts = '10.1.0.0/16'"), false, 0, 0, 0, 0),
        ((more, "children.more = { remote_ts = '10.1.2.0/24' }"), true, 2, 1, 1, 1),
    ] {
        let text = |port| {
            let text = text(1, port).replace("remote_ts = '10.1.0.0/16'", start);
            if other { text + more } else { text }
        };
        let site = Site::begun_as(text, true, None).await;
        assert_eq!(site.operator.up_all().await, Ok(1 + usize::from(other)));
        let before = site.operator.list().await.unwrap();
        let left = async || {
            let now = site.operator.list().await.unwrap();
            let is_up = |view: &&IkeView| view.status.state == IkeState::Established;
            let same = |view: &&IkeView| before.iter().any(|it| it.status.id == view.status.id);
            let of_before: Vec<_> = now.iter().filter(is_up).filter(same).collect();
            let ids: Vec<_> = before.iter().flat_map(|view| &view.children).collect();
            let children = of_before.iter().flat_map(|view| &view.children);
            let known = |child: &&ChildView| ids.iter().any(|it| it.status.id == child.status.id);
            (children.filter(known).count(), of_before.len())
        };
        let live = site.reload(change, false).await;
        let case = (change, other);
        for _ in 0..60 {
            if left().await == (children, ikes) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Nothing more ends.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(left().await, (children, ikes), "{case:?}");
        assert_eq!(live.len(), lines, "{case:?} {live:?}");
        // What the file wants is up again.
        for _ in 0..60 {
            if site.count().await == end {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(site.count().await, end, "{case:?}");
    }
}

/// A `start` child that becomes a trap: the trap does not wait for the end of the SAs, because the traffic of its new
/// selectors would leave in clear meanwhile.
///
/// Fault: in `begins_later`, do not ask for the action.
#[tokio::test]
async fn with_swanctl_conf_a_trap_waits_for_no_end() {
    let start = "remote_ts = '10.1.0.0/16', start_action = 'start'";
    let text = |port| text(1, port).replace("remote_ts = '10.1.0.0/16'", start);
    let gate = Gate::new().await;
    let site = Site::begun_as(text, true, Some(&gate)).await;
    assert_eq!(site.operator.up_all().await, Ok(1));
    // The peer does not answer the Delete.
    gate.silence();
    site.reload((start, "remote_ts = '10.1.2.0/24', start_action = 'trap'"), false).await;
    for _ in 0..20 {
        let policies = site.operator.handle().policies().await.unwrap();
        if policies
            .iter()
            .any(|policy| matches!(policy, PolicyView::Trap(trap) if trap.child.name == "net"))
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the trap waits");
}

/// A second reload of the same file, while IKE SAs end slowly, ends the rest, too: also if their secret was removed and one
/// without identities is left, and if only the first reload has said that what is replaced ends.
///
/// Faults, each by itself: in `Ending::since`, return `before`, or `revoke`, as it is.
#[tokio::test]
async fn a_second_reload_of_the_same_file_ends_the_rest_as_well() {
    let secret = "id-them = 'right', secret = 'correct horse'";
    for (change, revoke) in [
        ((secret, "secret = 'another'"), false),
        ((secret, "id-them = 'right', secret = 'another'"), true),
    ] {
        let site = Site::up(12, false).await;
        site.reload(change, revoke).await;
        let left = site.count().await;
        let live = site.reload(change, false).await;
        assert!(live.len() > 3 && left >= live.len(), "{left}, {live:?}");
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if site.count().await == 0 {
                break;
            }
        }
        assert_eq!(site.count().await, 0, "{change:?}");
    }
}

/// A mistake in the file that would end most IKE SAs ends them slowly. The file is in force at once, and another reload keeps
/// the IKE SAs that are left.
///
/// Faults, each by itself: in `review_live`, let `few` be true; in `exclude_slowly`, do not look at `reloads`, or wait for no
/// tick.
#[tokio::test]
async fn more_than_half_of_the_ike_sas_end_slowly() {
    let site = Site::up(12, false).await;
    let wrong = ("id = 'right' }", "id = 'other' }");
    let begun = tokio::time::Instant::now();
    assert_eq!(site.reload(wrong, false).await.len(), 12);
    assert!(site.count().await > 6 || begun.elapsed() > Duration::from_millis(250));
    let same = ("id = 'right' }", "id = 'right' }");
    assert!(site.reload(same, false).await.is_empty());
    let left = site.count().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(left > 0 && site.count().await == left, "{left}");
    site.reload(wrong, false).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if site.count().await == 0 {
            return;
        }
    }
    panic!("{} are still up", site.count().await);
}
