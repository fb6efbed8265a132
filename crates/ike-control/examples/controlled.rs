//! Peers with pre-shared keys, from a file in TOML, with a control socket, a VICI socket and metrics. Run it as root with
//! `cargo run -p ike-control --example controlled -- site.toml /run/example`, and then
//! `swanctl --list-sas --uri unix:///run/example/charon.vici`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use ike_config::{MetricsListen, Settings};
use ike_control::control::ControlSocket;
use ike_control::exporter::MetricsSocket;
use ike_control::metrics::Meters;
use ike_control::vici::ViciSocket;
use ike_control::{Configuration, Operator};
use ike_tokio::{Builder, Crypto, Listen, Plane, Ports, Sockets, UserspaceOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(folder)) = (args.next(), args.next()) else {
        return Err("usage: controlled FILE FOLDER".into());
    };
    let settings = ike_config::parse(&std::fs::read_to_string(file)?);
    let settings = settings.map_err(|mistakes| mistakes[0].to_string())?;
    let options = UserspaceOptions::default();
    let listen = Listen { esp: true, mark: Some(options.mark), ..Listen::default() };
    let sockets = Sockets::bind(&listen, Ports::default())?;
    let plane = Plane::userspace(&sockets, &crypto(), options)?;
    serve(settings, sockets, plane, Path::new(&folder)).await
}

/// Serves the three sockets in `folder` until a signal ends it.
pub async fn serve(
    settings: Settings,
    sockets: Sockets,
    plane: Plane,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let configuration = Configuration::from(settings);
    let (ports, capabilities, meters) = (sockets.ports(), plane.capabilities(), Meters::new(100));
    let builder = Builder::new(configuration.unresolved(ports), crypto(), sockets).plane(plane);
    let (drivers, wanted) = builder.observer(Arc::new(meters.clone())).start();
    let handle = drivers.handle().clone();
    let operator = Operator::new(handle, configuration, ports, capabilities, Arc::new(()));
    let control = ControlSocket::bind(&folder.join("control.sock"))?;
    let vici = ViciSocket::bind(&folder.join("charon.vici"))?;
    let metrics = MetricsSocket::bind(&MetricsListen::Unix(folder.join("metrics.sock")))?;
    operator.start_actions().await;
    tokio::select! {
        () = operator.attend(wanted) => {}
        () = operator.keep_resolved() => {}
        () = control.serve(operator.clone(), None) => {}
        () = vici.serve(operator.clone(), None) => {}
        () = metrics.serve(operator.clone(), meters) => {}
        lost = drivers.lost() => return Err(lost.to_string().into()),
        signal = tokio::signal::ctrl_c() => signal?,
    }
    drivers.handle().shutdown().await?;
    Ok(())
}

/// The algorithms, and randomness from the system.
pub fn crypto() -> Crypto {
    let provider = Arc::new(pq_kem::provider());
    Crypto { provider, random: || Box::new(pq_kem::os_random()) }
}
