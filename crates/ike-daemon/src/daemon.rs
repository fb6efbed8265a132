//! A daemon: sockets, data plane, engine and operator put together.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ike_aaa::{Accounting, Credentials, DaeSocket, Fetcher, Sessions};
use ike_control::control::ControlSocket;
#[cfg(feature = "vici")]
use ike_control::vici::ViciSocket;
use ike_control::{Operator, OperatorError, Reloaded};
use ike_proto::Registry;
use ike_proto::crypto::CryptoProvider;
use ike_tokio::{
    Builder, Crypto, Drivers, Listen, Lost, Message, Plane, Sockets, SystemResolver, Target,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::{Config, Ports};
use crate::roam;
use crate::system::System;
use crate::void_tickets::VoidTickets;
use keeper::Keeper;
use metering::Metering;
#[cfg(not(feature = "metrics"))]
use no_metering as metering;
use services::Services;

mod keeper;
#[cfg(feature = "metrics")]
mod metering;
#[cfg(not(feature = "metrics"))]
mod no_metering;
mod services;

/// How long peers of what an earlier run left are not told that their IKE SAs are gone: theirs go on carrying
/// traffic until what this run brings up by itself replaces them.
const QUIET: Duration = Duration::from_secs(10);

/// How long the data plane has to be emptied, and RADIUS servers to hear of the end.
const CLEAN_UP: Duration = Duration::from_secs(3);

/// How long peers have at most to confirm the deletes at the end,
const FAREWELL: Duration = Duration::from_secs(1);
/// and at least, for a busy peer on a fast path.
const SOON: Duration = Duration::from_millis(100);

/// What a daemon is made of.
pub struct Parts {
    /// Configuration.
    pub config: Config,
    /// Sockets.
    pub sockets: Sockets,
    /// Data plane.
    pub plane: Plane,
    /// Cryptography.
    pub crypto: Crypto,
    /// Told every IKE message.
    pub tap: Option<mpsc::UnboundedSender<Message>>,
}

/// How an orderly end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// All peers have confirmed that their SAs are deleted.
    pub confirmed: bool,
    /// Nothing that the end is to remove stays in the data plane.
    pub emptied: bool,
}

/// A running daemon. Dropping it stops it without a word to the peers; [`Daemon::shutdown`] deletes the
/// SAs first.
pub struct Daemon {
    operator: Operator,
    keeper: Keeper,
    credentials: Credentials,
    ports: Ports,
    system: System,
    accounting: Accounting,
    drivers: Drivers,
    tasks: Vec<JoinHandle<()>>,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nothing is counted"))]
    metering: Metering,
    /// Writes what is left at the end.
    _void_tickets: Option<VoidTickets>,
}

impl Daemon {
    /// Starts the daemon and what `start_action` wants started. Must be called in a tokio runtime.
    pub async fn start(parts: Parts) -> Self {
        let Parts { mut config, sockets, mut plane, crypto, tap } = parts;
        if !plane.adopted.is_empty() {
            config.endpoint.qcd.quiet = QUIET;
        }
        let metering = Metering::of(&config);
        let (accounting, mut unheard) = Accounting::new();
        metering.watch(&mut plane);
        accounting.watch(&mut plane);
        let ports = sockets.ports();
        let table = config.plane.routes.table;
        let configuration = config.configuration();
        // Names are resolved by a task of their own; until then they match nobody.
        let endpoint_config = configuration.unresolved(ports);
        let capabilities = plane.capabilities();
        let credentials =
            Credentials::new(config.answerer.clone(), config.eap.clone(), Fetcher::default());
        credentials.look_up(config.lookup.clone());
        credentials.keep_status();
        credentials.pools().configure(&config.pools);
        if let Some(file) = &config.remote_access.leases {
            credentials.pools().keep_in(file.clone());
        }
        let system = System::new(config.remote_access.clone(), plane.host);
        system.reload(&endpoint_config);
        let resolver = config.resolver.take().unwrap_or_else(|| Arc::new(SystemResolver));
        credentials.fetch_outside(
            sockets.outside_tunnels(),
            Arc::clone(&resolver),
            &endpoint_config,
            &plane.adopted,
        );
        // SAs that go on have their addresses.
        if plane.adopted.is_empty() {
            system.forget_leftovers().await;
        }
        let registry = Registry::default();
        let names = config.names.clone();
        let void_tickets = config.void_tickets.clone().and_then(|path| {
            let shown = path.display().to_string();
            let kept = VoidTickets::keep_in(path, registry.clone());
            let told = |error: &io::Error| {
                tracing::error!(file = shown, %error, "void tickets are not kept: those of earlier runs are good again");
            };
            kept.inspect_err(told).ok()
        });
        let answerer = metering.counted(Arc::new(credentials.clone()));
        let services = Services {
            sessions: Sessions::new(credentials.clone(), accounting.clone()),
            system: system.clone(),
            metering: metering.clone(),
        };
        let mut builder = Builder::new(endpoint_config, crypto, sockets)
            .plane(plane)
            .registry(registry)
            .answerer(answerer)
            .observer(Arc::new(services));
        if let Some(tap) = tap {
            builder = builder.tap(tap);
        }
        let handle = builder.handle().clone();
        let keeper = Keeper::new(config, credentials.clone(), resolver);
        let program = Arc::new(keeper.clone());
        let operator = Operator::new(handle, configuration, ports, capabilities, program);
        if let Some(file) = names {
            operator.keep_names_in(file);
        }
        accounting.ask(operator.handle().clone());
        let (closing, sessions) = (operator.clone(), accounting.clone());
        let close = async move {
            while let Some(session) = unheard.recv().await {
                let (operator, sessions) = (closing.clone(), sessions.clone());
                tokio::spawn(async move {
                    let down = async |ike: ike_proto::IkeSaId| {
                        tracing::warn!(ike = ike.0, "no RADIUS server hears of it: it is deleted");
                        let target = Target { ike_id: Some(ike.0), ..Target::default() };
                        operator.down(&target).await.is_ok()
                    };
                    sessions.close(session, down).await;
                });
            }
        };
        let (drivers, wanted) = builder.start();
        let tasks = vec![
            tokio::spawn({
                let operator = operator.clone();
                async move { operator.attend(wanted).await }
            }),
            tokio::spawn(close),
            tokio::spawn(credentials.clone().watch_live(operator.handle().clone())),
            tokio::spawn({
                let operator = operator.clone();
                async move { operator.keep_resolved().await }
            }),
            tokio::spawn(roam::watch(operator.handle().clone(), table)),
        ];
        // A shard answers after it has begun to hold what is to be held from the start: links may come up after READY=1.
        let _ = operator.list().await;
        operator.start_actions().await;
        Self {
            operator,
            keeper,
            credentials,
            ports,
            system,
            accounting,
            drivers,
            tasks,
            metering,
            _void_tickets: void_tickets,
        }
    }

    /// What an operator can do with it.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The configuration in force, with the daemon's own part.
    pub fn config(&self) -> Arc<Config> {
        self.keeper.present()
    }

    /// Puts `config` in force in place of the file's present one, under what control clients have loaded. SAs keep the
    /// configuration that they were made with. Returns the warnings, which the log has as well.
    ///
    /// # Errors
    /// The data plane cannot honour `config`, or it has mistakes together with what clients have loaded.
    pub async fn reload(&self, config: Config) -> Result<Vec<String>, OperatorError> {
        self.operator.reload(|| self.keeper.of_file(config)).await.map(Reloaded::all)
    }

    /// The ports it listens on.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns when the drivers cannot go on, and says why: there is nothing left to do but to end.
    pub async fn lost(&self) -> Lost {
        self.drivers.lost().await
    }

    /// Serves the control socket as long as the daemon runs. `config_file` is what a reload reads.
    pub fn serve(&mut self, socket: ControlSocket, config_file: Option<PathBuf>) {
        let operator = self.operator.clone();
        self.tasks.push(tokio::spawn(socket.serve(operator, config_file)));
    }

    /// Serves the VICI socket as long as the daemon runs. `config_file` is what a reload reads.
    #[cfg(feature = "vici")]
    pub fn serve_vici(&mut self, socket: ViciSocket, config_file: Option<PathBuf>) {
        let operator = self.operator.clone();
        self.tasks.push(tokio::spawn(socket.serve(operator, config_file)));
    }

    /// Does what RADIUS servers ask about sessions, as long as the daemon runs.
    pub fn serve_dae(&mut self, socket: DaeSocket) {
        let credentials = self.credentials.clone();
        let radius = move || credentials.radius();
        self.tasks.push(tokio::spawn(socket.serve(radius, self.accounting.clone())));
    }

    /// Runs `task` as long as the daemon runs.
    pub(crate) fn accompany(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(tokio::spawn(task));
    }

    /// How long peers have to confirm the deletes: two round trips of the slowest one, at most 1 s. A peer that died a
    /// moment ago never confirms, and meanwhile no other tunnel comes back.
    pub async fn farewell(&self) {
        let begun = tokio::time::Instant::now();
        let slowest = self.operator.handle().slowest_handshake();
        // A handshake took two round trips and some work.
        let limit = match tokio::time::timeout(FAREWELL, slowest).await {
            Ok(Ok(Some(slowest))) => slowest.clamp(SOON, FAREWELL),
            _ => FAREWELL,
        };
        tokio::time::sleep_until(begun + limit).await;
    }

    /// Deletes the SAs at the peers, waits until they have confirmed it but no longer than `limit`, and
    /// stops. True if all were confirmed.
    pub async fn shutdown(self, limit: Duration) -> bool {
        self.shutdown_unless(tokio::time::sleep(limit)).await.confirmed
    }

    /// As [`Self::shutdown`], but waits only until `hurry` is ready: for the peers as long as [`Self::farewell`] at the most,
    /// and then for `updown` programs a minute at the most. The data plane is emptied whether the peers have confirmed
    /// their deletes or not, within a time of its own.
    pub async fn shutdown_unless(mut self, hurry: impl Future<Output = ()>) -> Ended {
        let handle = self.operator.handle().clone();
        tokio::pin!(hurry);
        let mut hurried = false;
        let confirmed = tokio::select! {
            biased;
            done = handle.shutdown() => done.is_ok(),
            () = self.farewell() => false,
            () = &mut hurry => {
                hurried = true;
                false
            }
        };
        self.system.put_name_servers_back();
        if !confirmed {
            let _ = tokio::time::timeout(FAREWELL, handle.stop()).await;
        }
        let end = tokio::time::Instant::now() + CLEAN_UP;
        let emptied = self.drivers.ended(CLEAN_UP).await;
        let rest = end.saturating_duration_since(tokio::time::Instant::now());
        self.accounting.finish(rest.max(SOON)).await;
        // The next run may take the control socket while programs still run.
        self.end_tasks().await;
        let hurry = async {
            if !hurried {
                hurry.await;
            }
        };
        self.system.end(hurry).await;
        Ended { confirmed, emptied }
    }

    /// Stops without a word to the peers, and leaves the data plane as it is: its SAs go on. True if that
    /// was done within `limit`.
    pub async fn leave(self, limit: Duration) -> bool {
        self.leave_unless(tokio::time::sleep(limit)).await
    }

    /// As [`Self::leave`], but waits for the data plane only until `hurry` is ready.
    pub async fn leave_unless(mut self, hurry: impl Future<Output = ()>) -> bool {
        let handle = self.operator.handle().clone();
        let done = tokio::select! {
            done = handle.leave() => done.is_ok(),
            () = hurry => false,
        };
        self.accounting.finish(CLEAN_UP).await;
        self.end_tasks().await;
        done
    }

    /// Stops because a part of the daemon is lost. The peers hear nothing, and policies, routes and SAs stay in the
    /// system, as after a crash: traffic is not to leave in clear until the next run has taken them over. Waits for the
    /// data plane only until `hurry` is ready.
    pub async fn abandon_unless(mut self, hurry: impl Future<Output = ()>) {
        let handle = self.operator.handle().clone();
        tokio::select! {
            () = handle.abandon() => {}
            () = hurry => tracing::warn!("a shard does not answer"),
        }
        self.accounting.finish(CLEAN_UP).await;
        self.end_tasks().await;
    }

    async fn end_tasks(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            // Once it is gone, so is what it owned: the control socket, for one.
            let _ = task.await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.accounting.forget();
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Daemon({:?})", self.ports)
    }
}

/// `provider` with the random source of the system.
pub fn os_crypto(provider: CryptoProvider) -> Crypto {
    Crypto { provider: Arc::new(provider), random: || Box::new(pq_kem::os_random()) }
}

/// Sockets that suit the data plane, and the data plane.
pub fn open(
    listen: &Listen,
    ports: Ports,
    plane: impl FnOnce(&Sockets) -> io::Result<Plane>,
) -> io::Result<(Sockets, Plane)> {
    let sockets = Sockets::bind(listen, ports)?;
    let plane = plane(&sockets)?;
    Ok((sockets, plane))
}
