//! The gateway of the example, a client that is made of this crate and the runtime alone, and a RADIUS server that knows
//! one password.
#![expect(clippy::unwrap_used, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use ike_aaa::{Credentials, EapConfig, EapRound, EapSecrets, Fetcher};
use ike_config::{EapId, EapMethod, EapSecret, RadiusServer, Way};
use ike_proto::config::{
    AuthConfig, ChildConfig, ConnectionConfig, EndpointConfig, IdMatch, LocalAuth, RemoteAuth,
};
use ike_proto::crypto::{Secret, SignatureScheme, SigningKey};
use ike_proto::wire::payload::IdData;
use ike_proto::{Command, Failure};
use ike_tokio::{Builder, Drivers, Handle, Listen, Plane, Ports, Sockets};
use md5::{Digest, Md5};
use pki::issue::{self, Issuer, Template};
use pki::{Answerer, Certificate, Credential, PeerPolicy, TrustStore};
use pq_kem::sign::{KeyType, generate, load_private_key};
use tokio::time::timeout;
use zeroize::Zeroizing;

#[path = "../src/radius/fake.rs"]
mod fake;
/// `main` of the example needs root; the test uses the rest.
#[path = "../examples/gateway.rs"]
#[expect(dead_code, reason = "`main` is not called here")]
mod gateway;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(20);
const GATEWAY: &str = "gateway.example.org";
const SHARED: &[u8] = b"shared";
const PASSWORD: &[u8] = b"Ar3etTnp";
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 7);

/// What the RADIUS server hears of sessions: Acct-Status-Type, User-Name, Acct-Input-Octets, Acct-Terminate-Cause.
#[derive(Debug, PartialEq, Eq)]
struct Report(u8, Vec<u8>, Option<u32>, Option<u32>);

/// The first attribute of this type in a request.
fn attribute(request: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = request.get(20..)?;
    while let [kind, len, ..] = *rest {
        let (attribute, after) = rest.split_at_checked(len.into())?;
        if kind == wanted {
            return attribute.get(2..);
        }
        rest = after;
    }
    None
}

/// Asks for EAP-MD5 (RFC 3748 §5.4), and grants an address to the holder of the password.
fn authenticate(request: &[u8]) -> Vec<u8> {
    const CHALLENGE: [u8; 16] = [3; 16];
    let (identifier, authenticator) = (request[1], request[4..20].try_into().unwrap());
    let packet = attribute(request, 79).unwrap();
    let id = packet[1];
    let answer = |code, attributes: &[(u8, &[u8])]| {
        fake::answer(code, (identifier, authenticator), attributes, SHARED)
    };
    match packet[4] {
        1 => {
            let ask = [&[1, id + 1, 0, 22, 4, 16][..], &CHALLENGE].concat();
            answer(11, &[(79, &ask), (24, b"state")])
        }
        4 if attribute(request, 24) == Some(b"state") => {
            let expected = Md5::digest([&[id][..], PASSWORD, &CHALLENGE].concat());
            if packet[6..22] == expected[..] {
                answer(2, &[(79, &[3, id, 0, 4]), (8, &VIRTUAL.octets())])
            } else {
                answer(3, &[(79, &[4, id, 0, 4])])
            }
        }
        other => panic!("EAP type {other}"),
    }
}

/// A RADIUS server in a thread. The thread ends with the test.
fn radius() -> (RadiusServer, mpsc::Receiver<Report>) {
    let socket = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let (reports, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let request = &buffer[..len];
            let answer = if request[0] == 1 {
                authenticate(request)
            } else {
                let number = |kind| {
                    attribute(request, kind)
                        .map(|octets| u32::from_be_bytes(octets.try_into().unwrap()))
                };
                let user = attribute(request, 1).unwrap().to_vec();
                let status = u8::try_from(number(40).unwrap()).unwrap();
                if reports.send(Report(status, user, number(42), number(49))).is_err() {
                    return;
                }
                let mut answer = vec![5, request[1], 0, 20];
                answer.extend(&request[4..20]);
                fake::sign(&mut answer, SHARED);
                answer
            };
            socket.send_to(&answer, from).unwrap();
        }
    });
    let server = RadiusServer {
        name: "test".to_owned(),
        address,
        accounting: address,
        secret: Secret::copy_from(SHARED),
        nas_identifier: "gateway".to_owned(),
    };
    (server, heard)
}

/// A CA's certificate, and one of the gateway.
fn certificates() -> (Certificate, Credential) {
    let [ca, own] = [(); 2].map(|()| -> Arc<dyn SigningKey> {
        Arc::from(
            load_private_key(&generate(KeyType::Scheme(SignatureScheme::Ed25519)).unwrap())
                .unwrap(),
        )
    });
    let name = issue::distinguished_name("CN=Test CA").unwrap();
    let scheme = issue::default_scheme(&*ca).unwrap();
    let issuer = Issuer { key: &*ca, scheme, name: &name };
    let now = SystemTime::now();
    let template = |serial| Template {
        serial: vec![serial],
        not_before: now - Duration::from_secs(60),
        not_after: now + Duration::from_secs(3600),
        ..Template::default()
    };
    let root = Template { ca: true, subject: name.clone(), ..template(1) };
    let root = issue::certificate(&root, ca.public_key(), &issuer).unwrap();
    let leaf = Template { names: vec![IdData::fqdn(GATEWAY)], ..template(2) };
    let leaf = issue::certificate(&leaf, own.public_key(), &issuer).unwrap();
    let leaf = Arc::new(Certificate::from_der(&leaf).unwrap());
    (Certificate::from_der(&root).unwrap(), Credential::new(own, leaf, &[]).unwrap())
}

/// Carol, who asks for an address.
fn client(password: &[u8], ca: Certificate, port: u16, sockets: Sockets, plane: Plane) -> Drivers {
    let mut connection = ConnectionConfig::new("work");
    let id = Some(IdData::fqdn("laptop.example.org"));
    connection.local = vec![LocalAuth { id, ..LocalAuth::new("carol", AuthConfig::Eap) }];
    connection.remote = vec![RemoteAuth {
        id: IdMatch::Exact(IdData::fqdn(GATEWAY)),
        ..RemoteAuth::new("gateway", AuthConfig::pubkey())
    }];
    connection.remote_port = port;
    connection.vips = vec![Ipv4Addr::UNSPECIFIED.into()];
    connection.children.push(Arc::new(ChildConfig::new("net")));
    let mut config = EndpointConfig::default();
    config.connections.push(Arc::new(connection));

    let mut trust = TrustStore::new();
    trust.add_ca(ca).unwrap();
    let mut answerer = Answerer::new(trust);
    answerer.set_policy("work", "gateway", PeerPolicy::default());
    let round = EapRound {
        eap_id: Some(EapId::Exact("carol".to_owned())),
        ..EapRound::new(Way::One(EapMethod::Md5))
    };
    let password = Zeroizing::new(password.to_vec());
    let eap = EapConfig {
        rounds: [(("work".to_owned(), "carol".to_owned()), Arc::new(round))].into(),
        secrets: Arc::new(EapSecrets(vec![EapSecret { ids: vec![b"carol".to_vec()], password }])),
        ..EapConfig::default()
    };
    let credentials = Credentials::new(answerer, eap, Fetcher::default());
    let builder = Builder::new(config, gateway::crypto(), sockets).plane(plane);
    builder.answerer(Arc::new(credentials)).start().0
}

async fn initiate(handle: &Handle) -> ike_tokio::Outcome {
    let (connection, child) = ("work".to_owned(), Some("net".to_owned()));
    let (local, remote) = (LOCALHOST, LOCALHOST);
    let command = Command::Initiate { connection, child, local, remote, packet: None };
    timeout(LIMIT, handle.command(command)).await.unwrap().unwrap()
}

/// With `esp` a data plane reads the NAT-T socket.
fn sockets(esp: bool) -> Sockets {
    let listen = Listen { addresses: vec![LOCALHOST], lenient: false, esp, ..Listen::default() };
    Sockets::bind(&listen, Ports { ike: 0, nat_t: 0 }).unwrap()
}

/// A packet of the client to the gateway. Nothing here checks the checksum.
fn packet() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 253, 0, 0];
    packet.extend(VIRTUAL.octets());
    packet.extend(Ipv4Addr::LOCALHOST.octets());
    packet.extend([7; 8]);
    packet
}

/// Fault: in `Sessions::event`, return `None`; or in `Accounting::watch`, leave the data plane as it is; or in
/// `Pools::answer`, leave out the addresses that are granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_lets_a_client_in_and_hears_of_its_traffic() {
    let (server, heard) = radius();
    let (ca, own) = certificates();
    let there = sockets(true);
    let port = there.ports().nat_t;
    let (plane, mut far, _) = Plane::memory(&there, &gateway::crypto(), 16).unwrap();
    let (drivers, accounting) = gateway::serve(own, server, there, plane).unwrap();
    let here = sockets(true);
    let (plane, near, _) = Plane::memory(&here, &gateway::crypto(), 16).unwrap();
    let client = client(PASSWORD, ca, port, here, plane);

    assert_eq!(initiate(client.handle()).await, Ok(()));
    let sas = drivers.handle().list().await.unwrap();
    assert_eq!(sas.len(), 1);
    let assignment = sas[0].status.assignment.as_ref().expect("an address");
    assert_eq!(assignment.addresses, [IpAddr::V4(VIRTUAL)]);
    assert_eq!(heard.recv_timeout(LIMIT).unwrap(), Report(1, b"carol".to_vec(), None, None));

    assert!(near.send(packet()).await);
    assert_eq!(timeout(LIMIT, far.recv()).await.unwrap(), Some(packet()));
    timeout(LIMIT, client.handle().shutdown()).await.unwrap().unwrap();
    let over = heard.recv_timeout(LIMIT).unwrap();
    assert_eq!(over, Report(2, b"carol".to_vec(), Some(28), Some(1)), "octets, User-Request");
    timeout(LIMIT, drivers.handle().stop()).await.unwrap().unwrap();
    accounting.finish(LIMIT).await;
}

/// Fault: in `eap/radius.rs`, take Access-Reject for Access-Accept.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_keeps_a_client_out_that_has_another_password() {
    let (server, heard) = radius();
    let (ca, own) = certificates();
    let there = sockets(false);
    let port = there.ports().nat_t;
    let (drivers, accounting) = gateway::serve(own, server, there, Plane::none()).unwrap();
    let client = client(b"another", ca, port, sockets(false), Plane::none());
    let refused = initiate(client.handle()).await;
    assert!(matches!(refused, Err(Failure::Credentials(_))), "{refused:?}");
    assert_eq!(drivers.handle().sa_counts().await, Ok((0, 0)));
    accounting.finish(LIMIT).await;
    assert!(heard.try_recv().is_err(), "there was no session");
}
