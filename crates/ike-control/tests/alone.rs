//! Two engines that are controlled by this crate alone, without the daemon: the example is one of them.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ike_config::Settings;
use ike_control::control::client;
use ike_control::control::protocol::{Named, Request, Response};
use ike_control::views::IkeSa;
use ike_control::{Candidate, Configuration, Operator, OperatorError, Program};
use ike_proto::dataplane::Capabilities;
use ike_tokio::{Builder, Listen, Plane, Ports, Sockets, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use vici::{Packet, Section};

/// `main` of the example needs root; the test uses the rest.
#[path = "../examples/controlled.rs"]
#[expect(dead_code, reason = "`main` is not called here")]
mod controlled;

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
        let reloaded = ask(&folder, Request::Reload).await;
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
