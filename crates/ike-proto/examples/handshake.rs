//! Two endpoints without a runtime, a socket or a kernel: a handshake, traffic keys at both ends, a
//! child rekey and the delete. Panics if anything is off. Run it with
//! `cargo run -p ike-proto --example handshake`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{Capabilities, Command as Plane, Reply};
use ike_proto::{Answer, Command, Endpoint, Input, Now, Output, Path, Question, RequestId};

/// One end: the engine, and the keys of the ESP SAs it has installed, by SPI.
type Host = (Endpoint, BTreeMap<u32, Vec<u8>>);

fn main() {
    #[expect(clippy::disallowed_methods, reason = "the embedder owns the clock")]
    let mut now = Now { mono: Instant::now(), wall: SystemTime::now() };
    let mut hosts = [host(), host()];
    let (local, remote) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let (connection, child) = ("site".to_owned(), Some("net".to_owned()));
    let initiate = Command::Initiate { connection, child, local, remote, packet: None };
    run(&mut hosts, now, Input::Command(RequestId(1), initiate));
    assert_eq!((hosts[0].1.len(), &hosts[0].1), (2, &hosts[1].1), "the same two keys at both ends");

    let ike = hosts[0].0.ike_sas().remove(0);
    let old = &ike.children[0];
    run(&mut hosts, now, Input::Command(RequestId(2), Command::RekeyChild(old.id)));
    // The old inbound SAs go on for some seconds: packets may be under way.
    now.mono += Duration::from_secs(10);
    run(&mut hosts, now, Input::Timeout);
    assert_eq!((hosts[0].1.len(), &hosts[0].1), (2, &hosts[1].1), "two keys after the rekey");
    assert!(!hosts[0].1.contains_key(&old.inbound.spi), "and they are new");

    run(&mut hosts, now, Input::Command(RequestId(3), Command::TerminateIke(ike.id)));
    assert!(hosts.iter().all(|host| host.1.is_empty() && host.0.ike_sas().is_empty()), "all gone");
    println!("established, rekeyed and deleted");
}

fn host() -> Host {
    let mut connection = ConnectionConfig::new("site");
    connection.children = vec![Arc::new(ChildConfig::new("net"))];
    let secret = Secret::copy_from(b"correct horse battery staple");
    let mut config = EndpointConfig::default();
    config.connections.push(Arc::new(connection));
    config.secrets.push(Arc::new(PreSharedKey { ids: Vec::new(), secret }));
    let plane = Capabilities {
        transport_mode: true,
        esn: true,
        plain_esp: true,
        udp_costs_less: false,
        tcp_esp: false,
        iptfs: false,
        per_cpu: false,
        cpus: 0,
        processing: false,
        header_fields: false,
    };
    let crypto = Arc::new(pq_kem::provider());
    (Endpoint::new(config, crypto, Box::new(pq_kem::os_random()), plane), BTreeMap::new())
}

/// Hands `input` to the first host, then datagrams to and fro until both hosts rest.
fn run(hosts: &mut [Host; 2], now: Now, input: Input<'_>) {
    hosts[0].0.handle(now, input);
    hosts[1].0.handle(now, Input::Timeout);
    let (mut side, mut resting) = (0, 0);
    while resting < 2 {
        resting += 1;
        let (endpoint, keys) = &mut hosts[side];
        let mut sent = Vec::new();
        loop {
            match endpoint.poll_output() {
                Output::Transmit(transmit) => sent.push(transmit),
                Output::DataPlane(ticket, batch) => {
                    for command in &batch {
                        if let Plane::InstallSa(sa) = command {
                            keys.insert(sa.id.spi, sa.encr_key.expose().to_vec());
                        } else if let Plane::RemoveSa(id) = command {
                            keys.remove(&id.spi);
                        }
                    }
                    let done = vec![Reply::Done; batch.len()];
                    endpoint.handle(now, Input::Completed(ticket, Ok(done)));
                }
                // No connection here uses TCP.
                Output::Stream(..) => {}
                Output::Ask(ticket, question) => {
                    let answer = match question {
                        // A slow method, such as FrodoKEM. Another thread could do it meanwhile.
                        Question::Exchange(exchange) => exchange.perform(&mut pq_kem::os_random()),
                        // Pre-shared keys need no signature.
                        _ => Answer::Failed("no private key".to_owned()),
                    };
                    endpoint.handle(now, Input::Answered(ticket, answer));
                }
                Output::Event(event) => println!("host {side}: {event:?}"),
                Output::Timeout(_) => break,
            }
        }
        side = 1 - side;
        for transmit in sent {
            println!("to host {side}: {} octets", transmit.octets.len());
            let Path { local, remote, transport } = transmit.path;
            let path = Path { local: remote, remote: local, transport };
            hosts[side].0.handle(now, Input::Datagram(path, &transmit.octets));
            resting = 0;
        }
    }
}
