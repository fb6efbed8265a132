//! A daemon: sockets, data plane, engine and operator put together.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ike_proto::crypto::CryptoProvider;
use ike_proto::{Endpoint, Event};
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::task::JoinHandle;

use crate::config::{Config, Hosts, Ports};
use crate::control::server::ControlSocket;
use crate::driver::{Credentials, Driver, Listen, Message, Sockets};
use crate::fetch::Fetcher;
use crate::operator::{Operator, endpoint_config};
use crate::plane::Plane;

/// How often host names are resolved anew.
const REFRESH: Duration = Duration::from_secs(300);

/// How long the data plane has to be emptied.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// What a daemon is made of.
pub struct Parts {
    /// Configuration.
    pub config: Config,
    /// Sockets.
    pub sockets: Sockets,
    /// Data plane.
    pub plane: Plane,
    /// Cryptography.
    pub crypto: Arc<CryptoProvider>,
    /// Told every IKE message.
    pub tap: Option<mpsc::UnboundedSender<Message>>,
}

/// A running daemon. Dropping it stops it without a word to the peers; [`Daemon::shutdown`] deletes the
/// SAs first.
pub struct Daemon {
    operator: Operator,
    ports: Ports,
    lost: Arc<Notify>,
    driver: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Daemon {
    /// Starts the daemon and what `start_action` wants started. Must be called in a tokio runtime.
    pub async fn start(parts: Parts) -> Self {
        let Parts { config, sockets, plane, crypto, tap } = parts;
        let ports = sockets.ports();
        // Names are resolved by a task of their own; until then they match nobody.
        let ends = config.hosts.iter().map(|(name, hosts)| (name.clone(), hosts.known()));
        let endpoint_config = endpoint_config(&config, ports, &ends.collect::<BTreeMap<_, _>>());
        let rng = Box::new(pq_kem::os_random());
        let capabilities = plane.capabilities();
        let endpoint = Endpoint::new(endpoint_config, crypto, rng, capabilities);
        let credentials = Credentials::new(config.answerer.clone(), Fetcher::default());
        let lost = Arc::clone(&plane.lost);
        let (mut driver, handle) = Driver::new(endpoint, sockets, plane, credentials.clone());
        if let Some(tap) = tap {
            driver.set_tap(tap);
        }
        let operator = Operator::new(handle, config, ports, credentials, capabilities);
        let events = operator.handle().events();
        let driver = tokio::spawn(driver.run());
        let tasks = vec![
            tokio::spawn(watch(events, operator.clone())),
            tokio::spawn(refresh(operator.clone())),
        ];
        operator.start_actions().await;
        Self { operator, ports, lost, driver, tasks }
    }

    /// What an operator can do with it.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The ports it listens on.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns when the data plane has lost what it works with, as its device: there is nothing left to
    /// do but to end.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Serves the control socket as long as the daemon runs. `config_file` is what a reload reads.
    pub fn serve(&mut self, socket: ControlSocket, config_file: Option<PathBuf>) {
        let operator = self.operator.clone();
        self.tasks.push(tokio::spawn(socket.serve(operator, config_file)));
    }

    /// Deletes the SAs at the peers, waits until they have confirmed it but no longer than `limit`, and
    /// stops. True if all were confirmed.
    pub async fn shutdown(self, limit: Duration) -> bool {
        self.shutdown_unless(tokio::time::sleep(limit)).await
    }

    /// As [`Self::shutdown`], but waits for the peers only until `hurry` is ready. The data plane is emptied
    /// whether they have confirmed it or not.
    pub async fn shutdown_unless(mut self, hurry: impl Future<Output = ()>) -> bool {
        let handle = self.operator.handle().clone();
        let confirmed = tokio::select! {
            _ = handle.shutdown() => true,
            () = hurry => false,
        };
        if !confirmed {
            let _ = tokio::time::timeout(CLEAN_UP, handle.stop()).await;
        }
        // It empties the data plane and ends by itself.
        if tokio::time::timeout(CLEAN_UP, &mut self.driver).await.is_err() {
            tracing::warn!("the data plane does not answer: it may not be empty");
        }
        self.end_tasks().await;
        confirmed
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
            _ = handle.leave() => true,
            () = hurry => false,
        };
        self.end_tasks().await;
        done
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
        self.driver.abort();
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

/// Answers the events that ask for something.
async fn watch(mut events: broadcast::Receiver<Event>, operator: Operator) {
    loop {
        match events.recv().await {
            Ok(Event::Acquire { connection, child, packet }) => {
                operator.acquire(connection, child, packet);
            }
            Ok(_) => {}
            // What was missed will be asked for again by the next packet.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Resolves host names now, and again and again, for they may change their addresses.
async fn refresh(operator: Operator) {
    loop {
        let names = operator.config().hosts.values().any(Hosts::has_names);
        if names && operator.refresh().await.is_err() {
            return;
        }
        tokio::time::sleep(REFRESH).await;
    }
}
