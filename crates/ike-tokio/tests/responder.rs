//! The responder of the example, and an initiator that is made of this crate alone. Both have ESP in user space over
//! devices in memory, so that packets go through the tunnel.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::{
    ChildConfig, ConnectionConfig, EndpointConfig, FailureShunt, PreSharedKey, ProposalConfig,
    TsSpec,
};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{
    Capabilities, Command as PlaneCommand, DataPlane, DataPlaneError, Event as PlaneEvent, Reply,
};
use ike_proto::wire::registry::{NotifyType, ProtocolId};
use ike_proto::{Command, Event, Failure, IkeState};
use ike_tokio::{Builder, Drivers, Handle, Listen, NoPlane, Plane, Ports, Sockets};
use tokio::time::timeout;

/// `main` of the example needs root; the test uses the rest.
#[path = "../examples/responder.rs"]
#[expect(dead_code, reason = "`main` is not called here")]
mod responder;

const SECRET: &str = "correct horse battery staple";
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(20);
const ANY: Ports = Ports { ike: 0, nat_t: 0 };

fn listen(esp: bool) -> Listen {
    Listen { addresses: vec![LOCALHOST], lenient: false, esp, ..Listen::default() }
}

/// A connection with a peer at `port`.
fn connection(port: u16) -> ConnectionConfig {
    let mut connection = ConnectionConfig::new("peer");
    connection.remote_port = port;
    connection.children.push(Arc::new(ChildConfig::new("host")));
    connection
}

/// An end with one connection.
fn end(connection: ConnectionConfig, secret: &str, sockets: Sockets, plane: Plane) -> Drivers {
    let mut config = EndpointConfig::default();
    config.connections.push(Arc::new(connection));
    let secret = Secret::copy_from(secret.as_bytes());
    config.secrets.push(Arc::new(PreSharedKey { ids: Vec::new(), secret }));
    Builder::new(config, responder::crypto(), sockets).plane(plane).start().0
}

async fn initiate(handle: &Handle) -> ike_tokio::Outcome {
    let (connection, child) = ("peer".to_owned(), Some("host".to_owned()));
    let (local, remote) = (LOCALHOST, LOCALHOST);
    let command = Command::Initiate { connection, child, local, remote, packet: None };
    timeout(LIMIT, handle.command(command)).await.unwrap().unwrap()
}

/// An IPv4 packet of this host to itself.
fn packet(payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 253, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend([127, 0, 0, 1, 127, 0, 0, 1]);
    let sum: u32 = packet.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// Fault: in `plane/userspace.rs`, do not pass the sockets as `encap`.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_serves_an_initiator_and_carries_packets() {
    let crypto = responder::crypto();
    let there = Sockets::bind(&listen(true), ANY).unwrap();
    let port = there.ports().nat_t;
    let (plane, mut far, _) = Plane::memory(&there, &crypto, 16).unwrap();
    let mut responder = responder::respond(SECRET, there, plane);
    let mut events = responder.handle().events();
    let here = Sockets::bind(&listen(true), ANY).unwrap();
    let (plane, mut near, _) = Plane::memory(&here, &crypto, 16).unwrap();
    let mut initiator = end(connection(port), SECRET, here, plane);

    assert_eq!(initiate(initiator.handle()).await, Ok(()));
    let sas = initiator.handle().list().await.unwrap();
    assert_eq!((sas.len(), sas[0].status.state), (1, IkeState::Established));
    assert!(near.send(packet(b"there")).await);
    assert_eq!(timeout(LIMIT, far.recv()).await.unwrap(), Some(packet(b"there")));
    assert!(far.send(packet(b"and back")).await);
    assert_eq!(timeout(LIMIT, near.recv()).await.unwrap(), Some(packet(b"and back")));

    timeout(LIMIT, initiator.handle().shutdown()).await.unwrap().unwrap();
    assert!(initiator.ended(LIMIT).await);
    assert!(initiator.handle().list().await.is_err(), "no driver is left to ask");
    let down = async { while !matches!(events.recv().await.unwrap(), Event::IkeDown { .. }) {} };
    timeout(LIMIT, down).await.expect("the responder hears of the end");
    assert_eq!(responder.handle().sa_counts().await, Ok((0, 0)));
    timeout(LIMIT, responder.handle().stop()).await.unwrap().unwrap();
    assert!(responder.ended(LIMIT).await);
}

/// Fault: in `NoCredentials::answer`, fail at every question.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_key_exchange_needs_no_answerer() {
    let slow = |port| {
        let mut connection = connection(port);
        let proposal = ProposalConfig::parse(ProtocolId::IKE, "aes256gcm16-prfsha256-modp3072");
        connection.proposals = vec![proposal.unwrap()];
        connection
    };
    let there = Sockets::bind(&listen(false), ANY).unwrap();
    let port = there.ports().nat_t;
    let _responder = end(slow(port), SECRET, there, Plane::none());
    let here = Sockets::bind(&listen(false), ANY).unwrap();
    let initiator = end(slow(port), SECRET, here, Plane::none());
    assert_eq!(initiate(initiator.handle()).await, Ok(()));
}

/// Fault: in `end`, use `SECRET` for both ends.
#[tokio::test(flavor = "multi_thread")]
async fn another_secret_is_refused() {
    let there = Sockets::bind(&listen(false), ANY).unwrap();
    let port = there.ports().nat_t;
    let responder = responder::respond(SECRET, there, Plane::none());
    let here = Sockets::bind(&listen(false), ANY).unwrap();
    let initiator = end(connection(port), "another secret", here, Plane::none());
    assert_eq!(
        initiate(initiator.handle()).await,
        Err(Failure::Peer(NotifyType::AUTHENTICATION_FAILED))
    );
    assert_eq!(responder.handle().sa_counts().await, Ok((0, 0)));
}

/// Fault: in the example, add 20 lines, or import something of `ike_tests`.
#[test]
fn the_example_is_short_and_needs_no_helper() {
    let example = include_str!("../examples/responder.rs");
    assert!(example.lines().count() <= 60, "at most 60 lines");
    let crates: std::collections::BTreeSet<_> =
        example.lines().filter_map(|line| line.strip_prefix("use ")?.split("::").next()).collect();
    assert_eq!(crates, ["ike_proto", "ike_tokio", "std"].into());
}

/// What happens to a data plane of its own.
struct Noted {
    seen: Arc<Mutex<Vec<&'static str>>>,
    panics: bool,
}

impl DataPlane for Noted {
    fn capabilities(&self) -> Capabilities {
        NoPlane::CAPABILITIES
    }

    fn apply(&mut self, command: PlaneCommand) -> Result<Reply, DataPlaneError> {
        match command {
            PlaneCommand::InstallPolicy(_) if self.panics => panic!("as the test wants it"),
            PlaneCommand::InstallPolicy(_) => self.seen.lock().unwrap().push("policy"),
            PlaneCommand::Flush => self.seen.lock().unwrap().push("emptied"),
            _ => {}
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<PlaneEvent> {
        None
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.seen.lock().unwrap().push("gone");
    }
}

/// Drivers over [`Noted`], with a child whose failure shunt is there from the start.
fn noted(panics: bool) -> (Drivers, Arc<Mutex<Vec<&'static str>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut connection = connection(500);
    Arc::make_mut(&mut connection.children[0]).failure_shunt = FailureShunt::Reject;
    let remote_ts = vec![TsSpec::Fixed("10.2.0.0/16".parse().unwrap())];
    let child = Arc::make_mut(&mut connection.children[0]);
    (child.local_ts, child.remote_ts) = (remote_ts.clone(), remote_ts);
    let sockets = Sockets::bind(&listen(false), ANY).unwrap();
    let plane = Plane::new(Noted { seen: Arc::clone(&seen), panics });
    (end(connection, SECRET, sockets, plane), seen)
}

/// Fault: in `Driver::request`, do with `Abandon` what is done with `Stop`.
#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_data_plane_stays_as_a_crash_leaves_it() {
    let (mut drivers, seen) = noted(false);
    drivers.handle().abandon().await;
    assert!(drivers.ended(LIMIT).await);
    drop(drivers);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(*seen.lock().unwrap(), ["policy"]);
    // An orderly end leaves nothing.
    let (mut drivers, seen) = noted(false);
    drivers.handle().shutdown().await.unwrap();
    assert!(drivers.ended(LIMIT).await);
    assert_eq!(*seen.lock().unwrap(), ["policy", "emptied", "gone"]);
}
