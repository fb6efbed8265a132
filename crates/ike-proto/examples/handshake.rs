//! Two endpoints in one process, without a runtime, a socket or a kernel: a handshake, traffic keys
//! at both ends, a child rekey and the delete.
//!
//! `cargo run -p ike-proto --example handshake`

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{self, Capabilities, Reply};
use ike_proto::{Command, Endpoint, Event, Input, Now, Output, Path, RequestId};

const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// One end: the engine, and the keys of the ESP SAs it has installed, by SPI.
struct Host(Endpoint, HashMap<u32, Vec<u8>>);

fn host() -> Host {
    let mut connection = ConnectionConfig::new("site");
    connection.children = vec![Arc::new(ChildConfig::new("net"))];
    let secret = Secret::copy_from(b"correct horse battery staple");
    let config = EndpointConfig {
        connections: vec![Arc::new(connection)],
        secrets: vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })],
        ..EndpointConfig::default()
    };
    let plane = Capabilities { transport_mode: true, esn: true, plain_esp: true };
    let crypto = Arc::new(pq_kem::provider());
    Host(Endpoint::new(config, crypto, Box::new(pq_kem::os_random()), plane), HashMap::new())
}

/// Hands `input` to the left host, and every datagram to the other one, until nothing is under way.
fn run(hosts: &mut [Host; 2], now: Now, input: Input<'_>) {
    hosts[0].0.handle(now, input);
    let mut idle = 0;
    while idle < 2 {
        for side in [0, 1] {
            idle += 1;
            for (path, datagram) in drain(&mut hosts[side], now) {
                println!("{} -> {}: {} octets", path.local, path.remote, datagram.len());
                let back = Path { local: path.remote, remote: path.local, ..path };
                hosts[1 - side].0.handle(now, Input::Datagram(back, &datagram));
                idle = 0;
            }
            hosts[side].0.handle(now, Input::Timeout);
        }
    }
}

/// Does what one endpoint wants done, and returns what it wants sent.
fn drain(Host(endpoint, keys): &mut Host, now: Now) -> VecDeque<(Path, Arc<[u8]>)> {
    let mut datagrams = VecDeque::new();
    loop {
        match endpoint.poll_output() {
            Output::Transmit(transmit) => datagrams.push_back((transmit.path, transmit.octets)),
            Output::DataPlane(ticket, batch) => {
                let replies = batch.iter().map(|command| apply(keys, command)).collect();
                endpoint.handle(now, Input::Completed(ticket, Ok(replies)));
            }
            Output::Event(Event::Done(_, result)) => println!("command: {result:?}"),
            Output::Event(event) => println!("{event:?}"),
            Output::Timeout(_) => return datagrams,
        }
    }
}

fn apply(keys: &mut HashMap<u32, Vec<u8>>, command: &dataplane::Command) -> Reply {
    match command {
        dataplane::Command::InstallSa(sa) => {
            keys.insert(sa.id.spi, sa.encr_key.expose().to_vec());
        }
        dataplane::Command::RemoveSa(id) => _ = keys.remove(&id.spi),
        _ => {}
    }
    Reply::Done
}

fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "an embedder owns the clock")]
    let mut now = Now { mono: Instant::now(), wall: SystemTime::now() };
    let mut hosts = [host(), host()];
    let (connection, child) = ("site".to_owned(), Some("net".to_owned()));
    let initiate = Command::Initiate { connection, child, local: LEFT, remote: RIGHT };
    run(&mut hosts, now, Input::Command(RequestId(1), initiate));
    check("the same two traffic keys at both ends", &hosts, 2)?;

    let ike = hosts[0].0.ike_sas().pop().ok_or("no IKE SA")?;
    let child = ike.children.first().ok_or("no Child SA")?.id;
    run(&mut hosts, now, Input::Command(RequestId(2), Command::RekeyChild(child)));
    // Packets may be under way: the old inbound SAs decrypt for some seconds more.
    now.mono += Duration::from_secs(10);
    run(&mut hosts, now, Input::Timeout);
    check("after the rekey again two keys", &hosts, 2)?;

    run(&mut hosts, now, Input::Command(RequestId(3), Command::TerminateIke(ike.id)));
    check("nothing is left", &hosts, 0)
}

fn check(what: &str, hosts: &[Host; 2], keys: usize) -> Result<(), Box<dyn Error>> {
    let good = hosts[0].1.len() == keys && hosts[0].1 == hosts[1].1;
    println!("{what}: {}", if good { "yes" } else { "NO" });
    if good { Ok(()) } else { Err(what.into()) }
}
