//! An embedder's own data plane. It prints the engine's commands, without keys, and reports a packet that meets a
//! trap policy and an SA that nears its limit.
//!
//! `cargo run -p ike-proto --example own_data_plane`

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ike_proto::config::{Action, ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, PolicyAction, PolicyId, Reply, SaId,
    TrafficSelector, Usage, apply_all,
};
use ike_proto::{
    Answer, Command as Order, Endpoint, Event as Told, Input, Now, Output, Path, Question,
    RequestId,
};

const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Records what is installed. A real data plane would keep the keys as well and move packets.
#[derive(Default)]
struct Printing {
    name: &'static str,
    sas: BTreeMap<SaId, Usage>,
    policies: BTreeSet<PolicyId>,
    events: VecDeque<Event>,
}

impl DataPlane for Printing {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transport_mode: false,
            esn: true,
            plain_esp: true,
            udp_costs_less: false,
            tcp_esp: false,
            iptfs: false,
            per_cpu: false,
            cpus: 0,
            processing: false,
            header_fields: false,
        }
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let name = self.name;
        match command {
            // `encr_key` and `integ_key` are `Secret`s: even `{sa:?}` would not print them.
            Command::InstallSa(sa) => {
                let (spi, suite) = (sa.id.spi, sa.suite.encr);
                println!(
                    "{name}: {:?} SA {spi:08x} from {} to {}",
                    sa.direction, sa.src, sa.id.dst
                );
                println!("{name}:   {suite}, {:?} mode, ESN {}", sa.mode, sa.esn);
                self.sas.insert(sa.id, Usage::default());
            }
            Command::RemoveSa(id) => {
                println!("{name}: SA {:08x} is gone", id.spi);
                self.sas.remove(&id);
            }
            Command::InstallPolicy(policy) => {
                let (local, remote) = (&policy.local_ts, &policy.remote_ts);
                let how = match &policy.action {
                    PolicyAction::Protect { outbound: Some(id), .. } => format!("{:08x}", id.spi),
                    other => format!("{other:?}"),
                };
                println!("{name}: {local:?} to {remote:?} by {how}");
                self.policies.insert(policy.id);
            }
            Command::RemovePolicy(id) => {
                println!("{name}: policy {} is gone", id.0);
                self.policies.remove(&id);
            }
            Command::UpdateSa { id, src, dst, .. } => {
                println!("{name}: SA {:08x} now from {src} to {dst}", id.spi);
            }
            Command::QueryUsage(id) => {
                let usage = self.sas.get(&id).copied();
                let usage = usage.ok_or_else(|| DataPlaneError("no such SA".to_owned()))?;
                return Ok(Reply::Usage(id, usage));
            }
            // This plane asks for no probes.
            Command::PathProbed(..) => {}
            Command::RemoveSas => self.sas.clear(),
            Command::Flush => {
                self.sas.clear();
                self.policies.clear();
            }
        }
        Ok(Reply::Done)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// The loop around the engine. A real one waits for its sockets, for `Output::Timeout`, and for the data plane.
struct Driver {
    endpoint: Endpoint,
    plane: Printing,
    sent: VecDeque<(Path, Arc<[u8]>)>,
}

impl Driver {
    fn new(name: &'static str, local: &str, remote: &str) -> Result<Self, Box<dyn Error>> {
        use ike_proto::config::TsSpec;
        let mut child = ChildConfig::new("net");
        child.local_ts = vec![TsSpec::Fixed(local.parse()?)];
        child.remote_ts = vec![TsSpec::Fixed(remote.parse()?)];
        child.start_action = Action::Trap;
        let mut connection = ConnectionConfig::new("site");
        connection.children.push(Arc::new(child));
        let secret = Secret::copy_from(b"correct horse battery staple");
        let config = EndpointConfig {
            connections: vec![Arc::new(connection)],
            secrets: vec![Arc::new(PreSharedKey { ids: Vec::new(), secret })],
            ..EndpointConfig::default()
        };
        let plane = Printing { name, ..Printing::default() };
        let (crypto, rng) = (Arc::new(pq_kem::provider()), Box::new(pq_kem::os_random()));
        let endpoint = Endpoint::new(config, crypto, rng, plane.capabilities());
        Ok(Self { endpoint, plane, sent: VecDeque::new() })
    }

    /// Handles one input and the outputs that follow.
    fn handle(&mut self, now: Now, input: Input<'_>) {
        self.endpoint.handle(now, input);
        loop {
            match self.endpoint.poll_output() {
                Output::Transmit(transmit) => {
                    self.sent.push_back((transmit.path, transmit.octets));
                }
                Output::DataPlane(ticket, batch) => {
                    let result = apply_all(&mut self.plane, batch);
                    self.endpoint.handle(now, Input::Completed(ticket, result));
                }
                // The engine does not resolve addresses: the driver finds them and initiates.
                Output::Event(Told::Acquire { connection, child, packet }) => {
                    let (child, packet) = (Some(child), Some(packet));
                    let (local, remote) = (GATEWAY, PEER);
                    let order = Order::Initiate { connection, child, local, remote, packet };
                    self.endpoint.handle(now, Input::Command(RequestId(0), order));
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
                    self.endpoint.handle(now, Input::Answered(ticket, answer));
                }
                Output::Event(event) => println!("{}: {event:?}", self.plane.name),
                Output::Timeout(_) => match self.plane.poll_event() {
                    Some(event) => self.endpoint.handle(now, Input::DataPlane(event)),
                    None => return,
                },
            }
        }
    }
}

/// Carries datagrams until none is in flight.
fn network(now: Now, gateway: &mut Driver, peer: &mut Driver) {
    loop {
        let (from, to) = if gateway.sent.is_empty() {
            (&mut *peer, &mut *gateway)
        } else {
            (&mut *gateway, &mut *peer)
        };
        let Some((path, datagram)) = from.sent.pop_front() else { return };
        let path = Path { local: path.remote, remote: path.local, ..path };
        to.handle(now, Input::Datagram(path, &datagram));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "the embedder owns the clock")]
    let mut now = Now { mono: Instant::now(), wall: SystemTime::now() };
    let mut gateway = Driver::new("gateway", "10.1.0.0/16", "10.2.0.0/16")?;
    let mut peer = Driver::new("peer", "10.2.0.0/16", "10.1.0.0/16")?;

    let (connection, child) = ("site".to_owned(), "net".to_owned());
    let trap = Order::InstallTrap { connection, child, local: GATEWAY, remote: PEER };
    gateway.handle(now, Input::Command(RequestId(1), trap));
    let policy = *gateway.plane.policies.iter().next().ok_or("no trap")?;

    println!("-- a packet meets the trap");
    let local = TrafficSelector::host([10, 1, 0, 1].into());
    let remote = TrafficSelector::host([10, 2, 0, 1].into());
    gateway.plane.events.push_back(Event::Acquire { policy, local, remote, cpu: None });
    gateway.handle(now, Input::Timeout);
    network(now, &mut gateway, &mut peer);
    expect("two SAs at each end", gateway.plane.sas.len() == 2 && peer.plane.sas.len() == 2)?;

    println!("-- an SA nears its byte limit");
    let child = gateway.endpoint.ike_sas().first().and_then(|ike| ike.children.first().cloned());
    let old = child.ok_or("no Child SA")?.outbound;
    gateway.plane.events.push_back(Event::SoftExpire(old));
    gateway.handle(now, Input::Timeout);
    network(now, &mut gateway, &mut peer);
    now.mono += Duration::from_secs(10);
    gateway.handle(now, Input::Timeout);
    peer.handle(now, Input::Timeout);
    expect("others in their place", gateway.plane.sas.len() == 2 && peer.plane.sas.len() == 2)?;
    expect("and the old one gone", !gateway.plane.sas.contains_key(&old))?;

    println!("-- shutdown");
    gateway.handle(now, Input::Command(RequestId(2), Order::Shutdown));
    network(now, &mut gateway, &mut peer);
    let planes = [&gateway.plane, &peer.plane];
    expect("nothing is left", planes.iter().all(|p| p.sas.is_empty() && p.policies.is_empty()))
}

fn expect(what: &str, holds: bool) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(format!("not so: {what}").into()) }
}
