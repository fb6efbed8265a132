//! A responder for a pre-shared key, with ESP in user space. Run it as root with
//! `IKE_SECRET=… cargo run -p ike-tokio --example responder`. It accepts any peer that knows the secret.

use std::error::Error;
use std::sync::Arc;

use ike_proto::config::{ChildConfig, ConnectionConfig, EndpointConfig, PreSharedKey};
use ike_proto::crypto::Secret;
use ike_tokio::{Builder, Crypto, Drivers, Listen, Plane, Ports, Sockets, UserspaceOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret = std::env::var("IKE_SECRET").map_err(|_| "IKE_SECRET is not set")?;
    let options = UserspaceOptions::default();
    let listen = Listen { esp: true, mark: Some(options.mark), ..Listen::default() };
    let sockets = Sockets::bind(&listen, Ports::default())?;
    let plane = Plane::userspace(&sockets, &crypto(), options)?;
    let drivers = respond(&secret, sockets, plane);
    let mut events = drivers.handle().events();
    loop {
        tokio::select! {
            Ok(event) = events.recv() => println!("{event:?}"),
            lost = drivers.lost() => return Err(lost.to_string().into()),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    drivers.handle().shutdown().await?;
    Ok(())
}

/// Starts the responder. Each peer gets a tunnel between its address and the address that it has sent to.
pub fn respond(secret: &str, sockets: Sockets, plane: Plane) -> Drivers {
    let mut connection = ConnectionConfig::new("any");
    connection.children.push(Arc::new(ChildConfig::new("host")));
    let mut config = EndpointConfig::default();
    config.connections.push(Arc::new(connection));
    let secret = Secret::copy_from(secret.as_bytes());
    config.secrets.push(Arc::new(PreSharedKey { ids: Vec::new(), secret }));
    let (drivers, _wanted) = Builder::new(config, crypto(), sockets).plane(plane).start();
    drivers
}

/// The algorithms, and randomness from the system.
pub fn crypto() -> Crypto {
    let provider = Arc::new(pq_kem::provider());
    Crypto { provider, random: || Box::new(pq_kem::os_random()) }
}
