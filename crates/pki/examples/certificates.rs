//! Two endpoints that authenticate by ML-DSA certificates, without a runtime, a socket or a file: how an embedder
//! answers the engine's questions. Panics if anything is wrong. Run it with
//! `cargo run -p ike-pki --example certificates`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ike_proto::config::{
    AuthConfig, ConnectionConfig, EndpointConfig, IdMatch, LocalAuth, RemoteAuth,
};
use ike_proto::crypto::{SignatureScheme, SigningKey};
use ike_proto::dataplane::{Capabilities, Reply};
use ike_proto::wire::payload::IdData;
use ike_proto::{Command, Endpoint, Input, Now, Output, Path, Question, RequestId};
use pki::issue::{self, Issuer, Template};
use pki::{Answerer, Certificate, Credential, PeerPolicy, TrustStore};
use pq_kem::sign::{KeyType, generate, load_private_key};

/// One end: the engine, and the answers about keys and certificates.
struct Host {
    endpoint: Endpoint,
    answerer: Answerer,
}

/// A certification authority.
struct Authority {
    key: Box<dyn SigningKey>,
    name: Vec<u8>,
    now: SystemTime,
}

fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "the embedder owns the clock")]
    let now = Now { mono: Instant::now(), wall: SystemTime::now() };
    let ca = Authority {
        key: load_private_key(&generate(KeyType::Scheme(SignatureScheme::MlDsa87))?)?,
        name: issue::distinguished_name("CN=Example CA")?,
        now: now.wall,
    };
    let names = ["left.example.org", "right.example.org"];
    let mut hosts = [host(&ca, names[0], names[1])?, host(&ca, names[1], names[0])?];
    let (local, remote) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let connection = "site".to_owned();
    let initiate = Command::Initiate { connection, child: None, local, remote, packet: None };
    hosts[0].endpoint.handle(now, Input::Command(RequestId(1), initiate));
    run(&mut hosts, now);
    for host in &hosts {
        let ike = host.endpoint.ike_sas().into_iter().next().ok_or("no IKE SA")?;
        let used = ike.remote_auth.first().ok_or("nobody is authenticated")?;
        assert_eq!(used.scheme, Some(SignatureScheme::MlDsa65));
        println!("{} is authenticated by {}", used.id, SignatureScheme::MlDsa65);
    }
    Ok(())
}

impl Authority {
    /// A certificate, the CA's own if there is no `name`.
    fn issue(
        &self,
        name: Option<&str>,
        key: &dyn SigningKey,
    ) -> Result<Certificate, Box<dyn Error>> {
        let scheme = issue::default_scheme(&*self.key).ok_or("a key without schemes")?;
        let template = Template {
            subject: if name.is_none() { self.name.clone() } else { Template::default().subject },
            names: name.map(IdData::fqdn).into_iter().collect(),
            not_before: self.now - Duration::from_secs(60),
            not_after: self.now + Duration::from_secs(86_400),
            ca: name.is_none(),
            ..Template::default()
        };
        let issuer = Issuer { key: &*self.key, scheme, name: &self.name };
        Ok(Certificate::from_der(&issue::certificate(&template, key.public_key(), &issuer)?)?)
    }
}

fn host(ca: &Authority, name: &str, peer: &str) -> Result<Host, Box<dyn Error>> {
    // `pki::files` reads them from files.
    let der = generate(KeyType::Scheme(SignatureScheme::MlDsa65))?;
    let key: Arc<dyn SigningKey> = Arc::from(load_private_key(&der)?);
    let certificate = Arc::new(ca.issue(Some(name), &*key)?);
    let mut trust = TrustStore::new();
    trust.add_ca(ca.issue(None, &*ca.key)?)?;
    let mut answerer = Answerer::new(trust);
    answerer.set_policy("site", "remote", PeerPolicy::default());
    answerer.add_credential("site", "local", Credential::new(key, certificate, &[])?);

    let mut connection = ConnectionConfig::new("site");
    let id = Some(IdData::fqdn(name));
    connection.local = vec![LocalAuth { id, ..LocalAuth::new("local", AuthConfig::pubkey()) }];
    // Only post-quantum signatures, from the CA to the peer.
    let auth = AuthConfig::parse("mldsa")?;
    connection.remote = vec![RemoteAuth {
        id: IdMatch::Exact(IdData::fqdn(peer)),
        certreqs: answerer.certreqs("site", "remote"),
        ..RemoteAuth::new("remote", auth)
    }];
    let mut config = EndpointConfig::default();
    config.connections.push(Arc::new(connection));
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
    let (crypto, rng) = (Arc::new(pq_kem::provider()), Box::new(pq_kem::os_random()));
    Ok(Host { endpoint: Endpoint::new(config, crypto, rng, plane), answerer })
}

/// Carries datagrams, and answers questions, until both hosts rest.
fn run(hosts: &mut [Host; 2], now: Now) {
    let (mut side, mut resting) = (0, 0);
    while resting < 2 {
        resting += 1;
        let mut sent = Vec::new();
        let Host { endpoint, answerer } = &mut hosts[side];
        loop {
            match endpoint.poll_output() {
                Output::Transmit(transmit) => sent.push(transmit),
                // No connection here uses TCP.
                Output::Stream(..) => {}
                Output::Ask(ticket, question) => {
                    let what = match &question {
                        Question::Sign(_) => "sign",
                        Question::Judge(_) => "judge the peer's certificate",
                        Question::Revocation(_) => "look whether it was revoked",
                        Question::Resume(_) => {
                            "look whether the certificate of a ticket was revoked"
                        }
                        Question::Exchange(_) => "do a slow key exchange",
                        Question::Lease(_) => "give the peer an address",
                        Question::Eap(_) => "look at an EAP packet",
                        Question::Ends { .. } => "find the addresses of a connection",
                    };
                    println!("host {side} is asked to {what}");
                    // A signer may be another thread, process or machine, and may take its time.
                    let answer = answerer.answer(&question, now.wall);
                    endpoint.handle(now, Input::Answered(ticket, answer));
                }
                Output::DataPlane(ticket, batch) => {
                    let done = vec![Reply::Done; batch.len()];
                    endpoint.handle(now, Input::Completed(ticket, Ok(done)));
                }
                Output::Event(event) => println!("host {side}: {event:?}"),
                Output::Timeout(_) => break,
            }
        }
        side = 1 - side;
        for transmit in sent {
            let Path { local, remote, transport } = transmit.path;
            let path = Path { local: remote, remote: local, transport };
            hosts[side].endpoint.handle(now, Input::Datagram(path, &transmit.octets));
            resting = 0;
        }
    }
}
