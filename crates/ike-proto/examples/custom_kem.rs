//! An embedder's own key exchange method: X25519 and ML-KEM-768 in one payload, with a transform ID for private
//! use (RFC 7296 §3.3.2), beside those of the backend. Two endpoints establish an IKE SA with it. The engine does
//! not distinguish Diffie-Hellman from a KEM: both are a [`KeMethod`].
//!
//! `cargo run -p ike-proto --example custom_kem`

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ike_proto::config::proposal::ProposalConfig;
use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey};
use ike_proto::crypto::{
    CryptoError, CryptoProvider, KeLengths, KeMethod, KeyExchange, PendingKe, Secret, SecureRandom,
};
use ike_proto::dataplane::{Capabilities, Reply};
use ike_proto::wire::registry::{KeMethodId, ProtocolId, TransformType};
use ike_proto::{Command, Endpoint, Input, Now, Output, Path, RequestId};

/// A number of the range for private use. It must have the same meaning at both ends.
const OURS: KeMethodId = KeMethodId(60_001);

/// Two methods of the backend, one after the other in each payload.
#[derive(Debug)]
struct Both {
    first: KeyExchange,
    second: KeyExchange,
}

impl Both {
    /// The two secrets, one after the other. The engine's PRF makes keys of them.
    fn join(first: &Secret, second: &Secret) -> Secret {
        Secret::new([first.expose(), second.expose()].concat())
    }
}

impl KeMethod for Both {
    fn id(&self) -> KeMethodId {
        OURS
    }

    fn lengths(&self) -> KeLengths {
        let (first, second) = (self.first.lengths(), self.second.lengths());
        KeLengths {
            initiator: first.initiator + second.initiator,
            responder: first.responder + second.responder,
        }
    }

    fn initiate(&self, rng: &mut dyn SecureRandom) -> Result<Arc<dyn PendingKe>, CryptoError> {
        let halves = [self.first.initiate(rng)?, self.second.initiate(rng)?];
        let public = halves.iter().flat_map(|half| half.public().to_vec()).collect();
        Ok(Arc::new(Half { halves, public, split: self.first.lengths().responder }))
    }

    fn respond(
        &self,
        peer: &[u8],
        rng: &mut dyn SecureRandom,
    ) -> Result<(Vec<u8>, Secret), CryptoError> {
        let split = self.first.lengths().initiator;
        let (one, two) = peer.split_at_checked(split).ok_or(CryptoError::InvalidPublic)?;
        let (mut answer, first) = self.first.respond(one, rng)?;
        let (rest, second) = self.second.respond(two, rng)?;
        answer.extend(rest);
        Ok((answer, Self::join(&first, &second)))
    }
}

/// The state that waits for the responder's payload.
struct Half {
    halves: [Arc<dyn PendingKe>; 2],
    public: Vec<u8>,
    split: usize,
}

impl PendingKe for Half {
    fn public(&self) -> &[u8] {
        &self.public
    }

    fn complete(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        let parts = peer.split_at_checked(self.split).ok_or(CryptoError::InvalidPublic)?;
        let [first, second] = &self.halves;
        Ok(Both::join(&first.complete(parts.0)?, &second.complete(parts.1)?))
    }
}

fn main() {
    #[expect(clippy::disallowed_methods, reason = "the embedder owns the clock")]
    let now = Now { mono: Instant::now(), wall: SystemTime::now() };
    let mut hosts = [host(), host()];
    let (local, remote) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let (connection, child) = ("site".to_owned(), Some("net".to_owned()));
    let initiate = Command::Initiate { connection, child, local, remote, packet: None };
    hosts[0].handle(now, Input::Command(RequestId(1), initiate));
    let mut side = 0;
    // Two exchanges, and the results of both ends.
    for _ in 0..8 {
        for (path, octets) in drain(&mut hosts[side], now) {
            let Path { local, remote, transport } = path;
            let path = Path { local: remote, remote: local, transport };
            hosts[1 - side].handle(now, Input::Datagram(path, &octets));
        }
        side = 1 - side;
    }
    for host in &hosts {
        let ike = host.ike_sas().remove(0);
        let chosen = ike.algorithms.map(|algorithms| algorithms.ke);
        assert_eq!(chosen, Some(OURS), "by our own method");
        assert_eq!(ike.children.len(), 1, "with a child");
    }
    println!("established by key exchange method {}", OURS.0);
}

/// The datagrams that leave a host. Its data plane accepts every command.
fn drain(host: &mut Endpoint, now: Now) -> Vec<(Path, Arc<[u8]>)> {
    let mut sent = Vec::new();
    loop {
        match host.poll_output() {
            Output::Transmit(transmit) => sent.push((transmit.path, transmit.octets)),
            Output::DataPlane(ticket, batch) => {
                let done = vec![Reply::Done; batch.len()];
                host.handle(now, Input::Completed(ticket, Ok(done)));
            }
            Output::Timeout(_) => return sent,
            other => println!("{other:?}"),
        }
    }
}

fn host() -> Endpoint {
    let mut crypto: CryptoProvider = pq_kem::provider();
    let backend = |id| crypto.ke(id).cloned().expect("the backend has it");
    let (first, second) = (backend(KeMethodId::CURVE_25519), backend(KeMethodId::ML_KEM_768));
    crypto.ke.insert(0, KeyExchange::new(Both { first, second }));

    let mut connection = ConnectionConfig::new("site");
    // Proposals are written with the backend's names. One name is then replaced by the number.
    let written = ProposalConfig::parse(ProtocolId::IKE, "aes256gcm16-prfsha256-x25519");
    let mut proposal = written.expect("a proposal");
    for transform in &mut proposal.transforms {
        if transform.kind == TransformType::KE {
            transform.id = OURS.0;
        }
    }
    connection.proposals = vec![proposal];
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
    Endpoint::new(config, Arc::new(crypto), Box::new(pq_kem::os_random()), plane)
}
