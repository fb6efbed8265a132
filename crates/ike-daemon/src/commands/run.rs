//! `run`: the daemon in the foreground, until a signal ends it.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ike_control::Operator;
use ike_control::control::ControlSocket;
use ike_proto::crypto::CryptoProvider;
use ike_tokio::Sockets;
use ike_tokio::net::files;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::sockets::{Metrics, Vici};
use super::watchdog;
use crate::cli::{KeysIn, RunArgs};
use crate::config::{self, Config, MetricsListen, Resolve};
use crate::daemon::{Daemon, Ended, Parts, open, os_crypto};
use crate::exit::Status;
use crate::files::paths;
use crate::names::Lookups;
use crate::plane::Earlier;
use crate::service::{activation, notify, sandbox};
use crate::signer::{Bounds, KeySource, Local, Signer};
use crate::{log, plane, qcd};
use ike_aaa::DaeSocket;

/// How long the data plane has to answer at an end that leaves its SAs.
const LEAVING: Duration = Duration::from_secs(3);

/// Signals within this time after the first one count as that one.
const TOGETHER: Duration = Duration::from_millis(500);

/// How long threads have that still work after the end.
const REST: Duration = Duration::from_millis(300);

pub(super) fn run(args: &RunArgs, control: &Path, crypto: &Arc<CryptoProvider>) -> Status {
    log::init_at("info", args.log_format);
    files::raise_limit();
    let activated = match activation::vici() {
        Ok(activated) => activated,
        Err(error) => {
            eprintln!("{error}");
            return Status::Failed;
        }
    };
    // Before there are threads, sockets and keys that another process would have copies of.
    let [(ended, signer), (ended_too, resolver)] = [(); 2].map(|()| oneshot::channel());
    // At the end nobody listens any more.
    let ended = move || _ = ended.send(());
    let ended_too = move || _ = ended_too.send(());
    let keys: Arc<dyn KeySource> = match args.keys_in {
        KeysIn::Daemon => Arc::new(Local::new(crypto.schemes.clone())),
        KeysIn::Signer => match Signer::spawn(args.log_format, crypto.schemes.clone(), ended) {
            Ok(signer) => Arc::new(signer),
            Err(error) => {
                eprintln!("cannot start the signer: {error}");
                return Status::Failed;
            }
        },
    };
    let mut names = match Lookups::spawn(args.log_format, ended_too) {
        Ok(names) => names,
        Err(error) => {
            eprintln!("cannot start the process that looks host names up: {error}");
            return Status::Failed;
        }
    };
    let (mut config, vici) = match load(args, control, (&keys, crypto), activated) {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let folders = [sandbox::folder(&args.config)].into_iter().chain(paths::credentials()).collect();
    if let Err(error) = keys.seal(Bounds { folders, sandbox: config.sandbox }) {
        eprintln!("the signer: {error}");
        return Status::Failed;
    }
    // This starts threads, which inherit the restrictions of the present one.
    let started = names.seal(config.sandbox).and_then(|()| names.start());
    if let Err(error) = started.and_then(|()| log::queue_lines()) {
        eprintln!("cannot start: {error}");
        return Status::Failed;
    }
    config.resolver = Some(Arc::new(names));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            log::say(format_args!("cannot start: {error}"));
            return Status::Failed;
        }
    };
    let status = match runtime.block_on(serve(args, control, config, vici, [signer, resolver])) {
        Ok(()) => Status::Done,
        Err(error) => {
            log::say(error);
            Status::Failed
        }
    };
    // The data plane may still be on its way out.
    runtime.shutdown_timeout(REST);
    status
}

/// Reads the configuration, opens the VICI socket, and drops privileges. The file is read once more under the
/// sandbox, so that a file which a later reload could not read is a mistake now.
fn load(
    args: &RunArgs,
    control: &Path,
    (keys, crypto): (&Arc<dyn KeySource>, &Arc<CryptoProvider>),
    activated: Option<UnixListener>,
) -> Result<(Config, Vici), Status> {
    // If the signer did not answer, the configuration may be right, and another start may succeed.
    let status = || match keys.has_failed() {
        true => Status::Failed,
        false => Status::Config,
    };
    let config = config::load_by(&args.config, Arc::clone(keys), crypto).map_err(|error| {
        eprintln!("{error}");
        status()
    })?;
    let mut written = vec![control.to_path_buf()];
    written.extend(config.vici.clone());
    written.extend(config.remote_access.leases.clone());
    written.extend(config.qcd_secret.clone());
    written.extend(config.void_tickets.clone());
    let names = paths::state().map(|folder| folder.join("names"));
    written.extend(names.clone());
    if let Some(Resolve::File(path)) = &config.remote_access.resolve {
        written.push(path.clone());
    }
    if let Some(MetricsListen::Unix(path)) = config.metrics.as_ref().map(|m| &m.listen) {
        written.push(path.clone());
    }
    // What is to be written may be in folders that the sandbox would not let it make.
    let kept = [&config.remote_access.leases, &config.qcd_secret, &config.void_tickets];
    for folder in kept.into_iter().flatten().filter_map(|path| path.parent()) {
        std::fs::create_dir_all(folder).map_err(|error| {
            eprintln!("{}: {error}", folder.display());
            Status::Failed
        })?;
    }
    // To give a socket to a group takes a privilege that is dropped.
    let vici = Vici::open(&config, activated).map_err(|error| {
        eprintln!("{error}");
        Status::Failed
    })?;
    let files = sandbox::Files { config: args.config.clone(), written };
    let again = || config::load_by(&args.config, Arc::clone(keys), crypto);
    let plan = sandbox::Plan::new(config.sandbox, config.starts_programs())
        .relaxed_until(&files, || again().map(drop));
    drop(config);
    sandbox::enter(plan, &files).map_err(|error| {
        eprintln!("[charon.sandbox]: {error}");
        Status::Failed
    })?;
    let mut config = again().map_err(|error| {
        eprintln!("[charon.sandbox] keeps a reload from reading what it needs\n{error}");
        status()
    })?;
    config.names = names;
    Ok((config, vici))
}

async fn serve(
    args: &RunArgs,
    control: &Path,
    mut config: Config,
    vici: Vici,
    [signer, resolver]: [oneshot::Receiver<()>; 2],
) -> Result<(), std::io::Error> {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(path) = &config.qcd_secret {
        config.endpoint.qcd.secrets =
            qcd::open(path, &mut pq_kem::os_random()).map_err(|error| {
                let why = format!("qcd_secret {}: {error}", path.display());
                std::io::Error::new(error.kind(), why)
            })?;
    }
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let control = ControlSocket::bind(control)?;
    let metrics = Metrics::bind(&config)?;
    let dae = config.eap.listens_for_dae().map(DaeSocket::bind).transpose()?;
    let options = config.plane;
    let choice = plane::choose(args.data_plane)?;
    if let Some(warning) = plane::reverse_path(choice, &config) {
        tracing::warn!("{warning}");
    }
    let mut listen = plane::listen(choice, &options);
    listen.tcp = config.tcp.listens_on();
    listen.tcp_remote = config.tcp_remote_ports();
    listen.shards = config.shards;
    if !args.listen.is_empty() {
        listen.addresses.clone_from(&args.listen);
        listen.lenient = false;
    }
    let mut crypto = CryptoProvider::clone(&config.crypto);
    // For old peers; the engine takes such a signature only where `auth` names SHA-1.
    crypto.verifiers.push(&pq_kem::sign::RsaSha1);
    crypto.ke = pq_kem::ke::renumbered(crypto.ke, config.endpoint.frodokem);
    let crypto = os_crypto(crypto);
    let earlier = if args.keep_sas { Earlier::Keep(&config) } else { Earlier::Remove };
    let start = |sockets: &Sockets| plane::start(choice, sockets, &crypto, options, earlier);
    let (sockets, mut plane) = open(&listen, config.ports, start)?;
    plane.keep_blocks = args.keep_blocks;
    let unmet = config.unmet(&plane.capabilities());
    if !unmet.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, unmet.join("\n")));
    }
    let ports = sockets.ports();
    let tcp_port = sockets.tcp_port();
    tracing::info!(port = ports.ike, port_nat_t = ports.nat_t, tcp_port, ?sockets, "listening");
    if config.shards > 1 {
        tracing::info!(shards = config.shards, "the work is shared");
    }
    if tcp_port.is_some() && !plane.capabilities().tcp_esp {
        tracing::info!(
            "this data plane has no ESP in TCP: peers over TCP need separate_transports"
        );
    }
    let mut daemon = Daemon::start(Parts { config, sockets, plane, crypto, tap: None }).await;
    daemon.serve(control, Some(args.config.clone()));
    vici.serve(&mut daemon, &args.config);
    metrics.serve(&mut daemon);
    if let Some(dae) = dae {
        let address = dae.address()?;
        tracing::info!(%address, "dynamic authorization by RADIUS");
        daemon.serve_dae(dae);
    }
    daemon.accompany(watchdog::watch(daemon.operator().clone()));
    notify::ready(format_args!("listening on UDP ports {} and {}", ports.ike, ports.nat_t));
    let process_lost = async {
        tokio::select! {
            Ok(()) = signer => "the signer has ended",
            Ok(()) = resolver => "the process that starts resolvers has ended",
            // There is nobody who could say so.
            else => std::future::pending().await,
        }
    };
    tokio::pin!(process_lost);
    let lost = loop {
        tokio::select! {
            Some(()) = hang_up.recv() => {
                // A task, for a large configuration takes long to read.
                tokio::spawn(reload(daemon.operator().clone(), args.config.clone()));
            }
            () = either(&mut terminate, &mut interrupt) => break None,
            why = daemon.lost() => break Some(why.to_string()),
            why = &mut process_lost => break Some(why.to_owned()),
        }
    };
    notify::stopping();
    match &lost {
        Some(why) => tracing::error!(
            "{why}: the daemon ends as after a crash, and leaves its policies in place so that nothing leaves in clear"
        ),
        None => tracing::info!(keep_sas = args.keep_sas, "shutting down"),
    }
    let again = async {
        hurry(async || either(&mut terminate, &mut interrupt).await).await;
        tracing::warn!("second signal: the daemon ends at once");
    };
    let ended = end(daemon, args.keep_sas, lost.is_some(), again).await;
    if let Some(why) = lost {
        // Whoever supervises this process may start it again.
        return Err(std::io::Error::other(why));
    }
    ended
}

/// Ends `daemon`. Once `again` is ready, after another signal, the daemon ends at once.
///
/// # Errors
/// The data plane is not empty: a stop has not done what it is for.
async fn end(
    daemon: Daemon,
    keep_sas: bool,
    lost: bool,
    again: impl Future<Output = ()>,
) -> std::io::Result<()> {
    if !lost && !keep_sas {
        let Ended { confirmed, emptied } = daemon.shutdown_unless(again).await;
        if !confirmed {
            tracing::warn!("some peers have not confirmed the deletes");
        }
        return if emptied { Ok(()) } else { Err(std::io::Error::other(NOT_EMPTIED)) };
    }
    let hurry = async {
        tokio::select! {
            () = tokio::time::sleep(LEAVING) => {}
            () = again => {}
        }
    };
    if lost {
        daemon.abandon_unless(hurry).await;
    } else if !daemon.leave_unless(hurry).await {
        tracing::warn!("the data plane does not answer");
    }
    Ok(())
}

/// The last line of a stop that leaves something on the host.
const NOT_EMPTIED: &str = "the data plane is not empty, or has not answered: XFRM policies and states, routes, or tables of nf_tables \
                           stay on the host and may block traffic; `ike-daemon unblock` removes them";

async fn reload(operator: Operator, file: PathBuf) {
    // The log has the outcome and the warnings.
    let _ = operator.reload_file(Some(&file), false).await;
}

/// Ready at the next signal, but not at one within [`TOGETHER`] of the first signal: a supervisor and a terminal may both
/// send one.
async fn hurry(mut signal: impl AsyncFnMut()) {
    let begun = tokio::time::Instant::now();
    loop {
        signal().await;
        if begun.elapsed() >= TOGETHER {
            return;
        }
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: in `hurry`, return at the first signal.
    #[tokio::test]
    async fn a_signal_that_comes_twice_at_once_is_no_hurry() {
        let (send, mut signals) = tokio::sync::mpsc::unbounded_channel();
        send.send(()).unwrap();
        send.send(()).unwrap();
        let hurried = tokio::spawn(hurry(async move || signals.recv().await.unwrap()));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!hurried.is_finished());
        tokio::time::sleep(TOGETHER).await;
        assert!(!hurried.is_finished());
        send.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(10), hurried).await.unwrap().unwrap();
    }
}
