//! A gateway whose clients a RADIUS server authenticates by EAP. Each client gets the address that the server grants, and
//! the server hears of its session. Run it as root with a certificate and a private key in PEM:
//! `IKE_CERT=… IKE_KEY=… RADIUS_SERVER=192.0.2.9 RADIUS_SECRET=… cargo run -p ike-aaa --example gateway`

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ike_aaa::{Accounting, Credentials, EapConfig, EapRound, Fetcher, RadiusClient, Sessions};
use ike_config::{AccountingConfig, BY_RADIUS, EapId, RadiusOptions, RadiusServer, Way};
use ike_proto::config::{
    AuthConfig, ChildConfig, ConnectionConfig, EndpointConfig, LocalAuth, RemoteAuth, SendCert,
};
use ike_proto::crypto::Secret;
use ike_tokio::{Builder, Crypto, Drivers, Listen, Plane, Ports, Sockets, UserspaceOptions};
use pki::{Answerer, Credential, files};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let set = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let certificate = files::load_certificates(&std::fs::read(set("IKE_CERT")?)?)?.swap_remove(0);
    let key = files::load_private_key(&std::fs::read(set("IKE_KEY")?)?, None)?;
    let own = Credential::new(key, Arc::new(certificate), &[])?;
    let server: IpAddr = set("RADIUS_SERVER")?.parse()?;
    let secret = Secret::copy_from(set("RADIUS_SECRET")?.as_bytes());
    let radius = RadiusServer {
        name: "server".to_owned(),
        address: (server, 1812).into(),
        accounting: (server, 1813).into(),
        secret,
        nas_identifier: "gateway".to_owned(),
    };
    let options = UserspaceOptions::default();
    let listen = Listen { esp: true, mark: Some(options.mark), ..Listen::default() };
    let sockets = Sockets::bind(&listen, Ports::default())?;
    let plane = Plane::userspace(&sockets, &crypto(), options)?;
    let (drivers, accounting) = serve(own, radius, sockets, plane)?;
    tokio::select! {
        lost = drivers.lost() => return Err(lost.to_string().into()),
        _ = tokio::signal::ctrl_c() => drivers.handle().shutdown().await?,
    }
    accounting.finish(Duration::from_secs(5)).await;
    Ok(())
}

/// Starts the gateway, with the certificate `own` and one RADIUS server.
pub fn serve(
    own: Credential,
    radius: RadiusServer,
    sockets: Sockets,
    mut plane: Plane,
) -> Result<(Drivers, Accounting), Box<dyn Error>> {
    let mut connection = ConnectionConfig::new("clients");
    let id = Some(own.identity(None)?);
    connection.local = vec![LocalAuth { id, ..LocalAuth::new("own", AuthConfig::pubkey()) }];
    connection.remote = vec![RemoteAuth::new("client", AuthConfig::Eap)];
    connection.send_cert = SendCert::Always;
    connection.pools = vec![BY_RADIUS.to_owned()];
    connection.children.push(Arc::new(ChildConfig::new("net")));
    let mut config = EndpointConfig::default();
    config.connections.push(Arc::new(connection));

    let mut answerer = Answerer::default();
    answerer.add_credential("clients", "own", own);
    let accounting = AccountingConfig {
        interval: None,
        close_on_timeout: false,
        requires_vip: false,
        send_class: false,
    };
    let radius = RadiusClient::new(RadiusOptions {
        servers: vec![radius],
        accounting: Some(accounting),
        ..RadiusOptions::default()
    });
    // The server hears the identity that the client has in EAP.
    let round = EapRound { eap_id: Some(EapId::Any), ..EapRound::new(Way::Radius) };
    let name = ("clients".to_owned(), "client".to_owned());
    let rounds = [(name, Arc::new(round))].into();
    let eap = EapConfig { rounds, radius: Some(Arc::new(radius)), ..EapConfig::default() };

    let credentials = Credentials::new(answerer, eap, Fetcher::default());
    let (accounting, _unheard) = Accounting::new();
    accounting.watch(&mut plane);
    let sessions = Sessions::new(credentials.clone(), accounting.clone());
    let builder = Builder::new(config, crypto(), sockets).plane(plane);
    let builder = builder.answerer(Arc::new(credentials)).observer(Arc::new(sessions));
    accounting.ask(builder.handle().clone());
    let (drivers, _wanted) = builder.start();
    Ok((drivers, accounting))
}

/// The algorithms, and randomness from the system.
pub fn crypto() -> Crypto {
    let provider = Arc::new(pq_kem::provider());
    Crypto { provider, random: || Box::new(pq_kem::os_random()) }
}
