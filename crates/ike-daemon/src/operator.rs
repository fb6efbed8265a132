//! An operator's commands, by the names in the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ike_proto::config::{Action, AddressSpec, EndpointConfig, QcdConfig};
use ike_proto::dataplane::{Capabilities, Flow};
use ike_proto::{Answer, ChildSaId, ChildState, Command, IkeSaId, IkeState, Ticket};
use ike_tokio::{Handle, IkeView, PolicyView};
use tokio::sync::watch;

use crate::config::{Config, Ends, HostSpec, Hosts, Ports};
use crate::eap::radius::RadiusConfig;
use crate::pools::Pools;
use crate::questions::Credentials;
pub use ike_tokio::Target;

mod loading;
mod reloading;
mod resolve;

/// How long name servers may take.
const RESOLVING: Duration = Duration::from_secs(15);

/// Carries out what operators, signals and traffic ask for. Clones share one daemon.
#[derive(Debug, Clone)]
pub struct Operator {
    handle: Handle,
    config: Arc<watch::Sender<Arc<Config>>>,
    ports: Ports,
    qcd: Arc<Mutex<QcdConfig>>,
    credentials: Credentials,
    plane: Capabilities,
    loading: Arc<loading::Loading>,
}

/// The SAs a command is about.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    ikes: Vec<IkeSaId>,
    children: Vec<ChildSaId>,
}

impl Operator {
    /// An operator of the driver behind `handle`, which listens on `ports` and answers by
    /// `credentials`, over a data plane that can do `plane`.
    pub fn new(
        handle: Handle,
        config: Config,
        ports: Ports,
        credentials: Credentials,
        plane: Capabilities,
    ) -> Self {
        let qcd = Arc::new(Mutex::new(config.endpoint.qcd.clone()));
        let config = Arc::new(watch::Sender::new(Arc::new(config)));
        let loading = Arc::default();
        Self { handle, config, ports, qcd, credentials, plane, loading }
    }

    /// The driver.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }

    /// Brings up a child or a connection. The error says why not.
    pub async fn up(&self, target: &Target) -> Result<(), String> {
        let (connection, child) = to_initiate(&self.config(), target)?;
        self.initiate(connection, child, None).await
    }

    /// Brings up, all at once, every child that is not up and every connection without children, where
    /// the peer's address is configured; the number of them. The error names those that failed.
    pub async fn up_all(&self) -> Result<usize, String> {
        let views = self.list().await?;
        let wanted = not_up(&self.config(), &views);
        let count = wanted.len();
        let begin = |(connection, child): (String, Option<String>)| {
            let operator = self.clone();
            let name = child.as_ref().map_or_else(String::new, |child| format!("/{child}"));
            let name = format!("{connection}{name}");
            (name, tokio::spawn(async move { operator.initiate(connection, child, None).await }))
        };
        let tasks: Vec<_> = wanted.into_iter().map(begin).collect();
        let mut failures = Vec::new();
        for (name, task) in tasks {
            let outcome = task.await.unwrap_or_else(|error| Err(error.to_string()));
            failures.extend(outcome.err().map(|why| format!("{name}: {why}")));
        }
        match failures.as_slice() {
            [] => Ok(count),
            failed => Err(format!("{} of {count} failed\n{}", failed.len(), failed.join("\n"))),
        }
    }

    /// How many SAs `target` means; there is an error where there are none.
    pub async fn matches(&self, target: &Target) -> Result<usize, String> {
        let chosen = self.choose(target).await?;
        Ok(chosen.ikes.len() + chosen.children.len())
    }

    /// Deletes SAs; the number of them. Traffic of theirs that waits for a child to come up again may go
    /// its way, which is a success even where no SA is left.
    pub async fn down(&self, target: &Target) -> Result<usize, String> {
        let lifted = self.handle.lift(target.clone()).await.map_err(|error| error.to_string())?;
        let unwanted = self.unwant(target).await;
        let forgotten = self.forget_tickets(target).await;
        let chosen = match self.choose(target).await {
            Err(_) if lifted > 0 || forgotten || unwanted => return Ok(0),
            chosen => chosen?,
        };
        let ikes = chosen.ikes.into_iter().map(Command::TerminateIke);
        self.all(ikes.chain(chosen.children.into_iter().map(Command::TerminateChild))).await
    }

    /// What `target` names is not wanted up any more. True if any was. The engine sees to what a number names.
    async fn unwant(&self, target: &Target) -> bool {
        let Target { name, ike, child, ike_id, child_id } = target;
        if ike_id.is_some() || child_id.is_some() {
            return false;
        }
        let config = self.config();
        let connections = config.endpoint.connections.iter();
        let connections = connections.filter(|c| ike.as_ref().is_none_or(|ike| *ike == c.name));
        let mut any = false;
        for connection in connections {
            let child = match (name, child) {
                (_, Some(child)) => Some(child),
                (Some(name), None) if ike.is_some() || *name != connection.name => Some(name),
                (None, None) if ike.is_none() => continue,
                _ => None,
            };
            if child.is_some_and(|child| connection.child(child).is_none()) {
                continue;
            }
            let (connection, child) = (connection.name.clone(), child.cloned());
            any |= self.command(Command::Unwant { connection, child }).await.is_ok();
        }
        any
    }

    /// Whoever takes a connection down does not want its lost IKE SAs to go on either. True if there were tickets
    /// of any.
    async fn forget_tickets(&self, target: &Target) -> bool {
        let Target { name, ike, child, ike_id, child_id } = target;
        let connection = match (name, ike, child) {
            (Some(name), None, None) | (None, Some(name), None) => name.clone(),
            _ => return false,
        };
        // Of one SA, the engine forgets it.
        ike_id.is_none()
            && child_id.is_none()
            && self.command(Command::ForgetTickets(connection)).await.is_ok()
    }

    /// Rekeys SAs; the number of them.
    pub async fn rekey(&self, target: &Target) -> Result<usize, String> {
        let chosen = self.choose(target).await?;
        let ikes = chosen.ikes.into_iter().map(Command::RekeyIke);
        self.all(ikes.chain(chosen.children.into_iter().map(Command::RekeyChild))).await
    }

    /// Sends the clients of IKE SAs to the gateway at `gateway` (RFC 5685); the number of them. `peer` and
    /// `identity` leave only those with this peer, where they are given.
    pub async fn redirect(
        &self,
        target: &Target,
        gateway: IpAddr,
        peer: Option<AddressSpec>,
        identity: Option<&str>,
    ) -> Result<usize, String> {
        let views = self.list().await?;
        let named = target.name.is_some() || target.ike.is_some() || target.ike_id.is_some();
        if !named && peer.is_none() && identity.is_none() {
            return Err(
                "which clients? Name a connection, an SA, an address or an identity".to_owned()
            );
        }
        let wanted = |view: &&IkeView| {
            let status = &view.status;
            let name = target.ike.as_ref().or(target.name.as_ref());
            let id = status.remote_id.as_ref().map(ToString::to_string);
            status.state == IkeState::Established
                && name.is_none_or(|name| *name == status.connection)
                && target.ike_id.is_none_or(|id| id == status.id.0)
                && peer.is_none_or(|peer| peer.contains(status.path.remote.ip().to_canonical()))
                && identity.is_none_or(|wanted| id.as_deref() == Some(wanted))
        };
        let chosen: Vec<_> = views.iter().filter(wanted).map(|view| view.status.id).collect();
        if chosen.is_empty() {
            return Err("no IKE SA is meant by that".to_owned());
        }
        self.all(chosen.into_iter().map(|ike| Command::Redirect(ike, gateway))).await
    }

    /// Reauthenticates IKE SAs; the number of them.
    pub async fn reauthenticate(&self, target: &Target) -> Result<usize, String> {
        let chosen = self.choose(target).await?;
        if chosen.ikes.is_empty() {
            return Err("only an IKE SA can be reauthenticated: name a connection".to_owned());
        }
        self.all(chosen.ikes.into_iter().map(Command::Reauthenticate)).await
    }

    /// Describes the SAs.
    pub async fn list(&self) -> Result<Vec<IkeView>, String> {
        self.handle.list().await.map_err(|error| error.to_string())
    }

    /// Puts `config` in the place of the present one, under what control clients have loaded. SAs keep what
    /// they were made with.
    pub async fn reload(&self, config: Config) -> Result<(), String> {
        let mut loading = self.loading.lock().await;
        let config = loading.over(config)?;
        let unmet = config.unmet(&self.plane);
        if !unmet.is_empty() {
            return Err(unmet.join("\n"));
        }
        self.tell_what_waits(&config);
        self.read_qcd_secret(&config);
        let outcome = self.put(config, &mut loading).await;
        drop(loading);
        outcome?;
        // Names that were known before stay so until they are looked up; new ones are, now.
        self.refresh().await?;
        self.start_actions().await;
        Ok(())
    }

    /// The pools that peers get addresses from.
    pub fn pools(&self) -> &Pools {
        self.credentials.pools()
    }

    /// Resolves all names anew and tells the engine.
    pub async fn refresh(&self) -> Result<(), String> {
        let config = self.config();
        let mut ends = BTreeMap::new();
        for (name, hosts) in config.hosts.iter().filter(|(_, hosts)| hosts.has_names()) {
            ends.insert(name.clone(), (hosts.clone(), resolve::resolve(hosts).await));
        }
        if ends.is_empty() {
            return Ok(());
        }
        // The configuration may be another one by now.
        self.loading.lock().await.resolved(ends);
        self.tell().await
    }

    /// The plane and the credentials are told first, for the engine asks them.
    async fn put(&self, config: Config, loading: &mut loading::State) -> Result<(), String> {
        self.credentials.replace(config.answerer.clone(), config.eap.clone());
        self.credentials.look_up(config.lookup.clone());
        self.credentials.pools().configure(&config.pools);
        self.config.send_replace(Arc::new(config));
        self.tell_with(loading).await
    }

    async fn tell(&self) -> Result<(), String> {
        let mut loading = self.loading.lock().await;
        self.tell_with(&mut loading).await
    }

    /// Gives the engine the configuration, with the addresses of names as far as they are known.
    async fn tell_with(&self, loading: &mut loading::State) -> Result<(), String> {
        let config = self.config();
        let ends = loading.ends(&config.hosts);
        let mut endpoint = Box::new(endpoint_config(&config, self.ports, &ends));
        endpoint.qcd = self.qcd_config().clone();
        self.command(Command::Reload(endpoint)).await
    }

    /// Does what `start_action` says for every child that is not up, each in a task of its own.
    pub async fn start_actions(&self) {
        let up: BTreeSet<(String, String)> = match self.handle.list().await {
            Ok(views) => views.iter().flat_map(names_of).collect(),
            Err(_) => return,
        };
        for connection in &self.config().endpoint.connections {
            for child in &connection.children {
                let names = (connection.name.clone(), child.name.clone());
                // What is up already may have been brought up by the peer: it is wanted all the same.
                let wanted = child.start_action == Action::Start && connection.keyingtries == 0;
                if child.start_action == Action::None || (up.contains(&names) && !wanted) {
                    continue;
                }
                let (connection, child, action) = (names.0, names.1, child.start_action);
                let operator = self.clone();
                tokio::spawn(async move { operator.start(connection, child, action).await });
            }
        }
    }

    /// True if `connection` is tried for ever.
    fn is_for_ever(&self, connection: &str) -> bool {
        let config = self.config();
        let mut all = config.endpoint.connections.iter();
        all.any(|other| other.name == connection && other.keyingtries == 0)
    }

    /// Brings up the child of an acquire, in a task of its own.
    pub fn acquire(&self, connection: String, child: String, packet: Flow) {
        let operator = self.clone();
        tokio::spawn(async move {
            let made = operator.initiate(connection.clone(), Some(child), Some(packet)).await;
            if let Err(error) = made {
                tracing::warn!(%connection, %error, "acquire");
            }
        });
    }

    /// Makes a child again that has ended, in a task of its own.
    pub(crate) fn restart(&self, connection: String, child: String, local: IpAddr, remote: IpAddr) {
        let operator = self.clone();
        tokio::spawn(async move {
            // Another shard may have it.
            if operator.handle.want_where_carried(&connection, &child).await.unwrap_or(false) {
                return;
            }
            let name = connection.clone();
            let command = Command::Ensure { connection, child, local, remote };
            if let Err(error) = operator.command(command).await {
                tracing::warn!(connection = %name, %error, "restart");
            }
        });
    }

    /// The engine tries again by itself once it has addresses; until then it is done here.
    async fn start(&self, connection: String, child: String, action: Action) {
        if action == Action::Start && self.is_for_ever(&connection) {
            let command = Command::Want { connection: connection.clone(), child: child.clone() };
            if let Err(error) = self.command(command).await {
                tracing::warn!(%connection, %child, %error, "start_action");
            }
            return;
        }
        loop {
            let error = match self.ends(&connection).await {
                Ok((local, remote)) => {
                    let command = match action {
                        Action::Trap => {
                            let (connection, child) = (connection.clone(), child.clone());
                            Command::InstallTrap { connection, child, local, remote }
                        }
                        _ => {
                            let (connection, child) = (connection.clone(), child.clone());
                            Command::Ensure { connection, child, local, remote }
                        }
                    };
                    if let Err(error) = self.command(command).await {
                        tracing::warn!(%connection, %child, %error, "start_action");
                    }
                    return;
                }
                Err(error) => error,
            };
            tracing::warn!(%connection, %child, %error, "start_action");
            let config = self.config();
            let wait = config.endpoint.retry_initiate_interval;
            let known = config.endpoint.connections.iter().any(|c| c.name == connection);
            if wait == Duration::ZERO || !known {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn initiate(
        &self,
        connection: String,
        child: Option<String>,
        packet: Option<Flow>,
    ) -> Result<(), String> {
        let (local, remote) = self.ends(&connection).await?;
        let name = (connection.clone(), child.clone());
        let command = Command::Initiate { connection, child, local, remote, packet };
        let outcome = self.command(command).await;
        match outcome {
            Err(why) if packet.is_none() => Err(self.with_prospect(why, name).await),
            other => other,
        }
    }

    /// Why a command has failed (`why`), and what the daemon does next.
    async fn with_prospect(&self, why: String, (name, child): (String, Option<String>)) -> String {
        match self.handle.starts_in(&name, child.as_deref()).await {
            Ok(Some(Duration::ZERO)) => {
                format!("{why}; the daemon tries again until the connection is up or taken down")
            }
            Ok(Some(wait)) => {
                let seconds = wait.as_secs().max(1);
                format!(
                    "{why}; the daemon tries again in {seconds} s, until the connection is up or taken down"
                )
            }
            _ => why,
        }
    }

    /// Tells a shard between which addresses `connection` is to be started now, in a task of its own. Where the
    /// configuration names no peer, it is the one of `last` time.
    pub(crate) fn answer_ends(
        &self,
        connection: String,
        shard: u8,
        ticket: Ticket,
        last: Option<(IpAddr, IpAddr)>,
    ) {
        let operator = self.clone();
        tokio::spawn(async move {
            let found = match operator.config().hosts.get(&connection) {
                None => Err(unknown(&connection)),
                Some(hosts) => {
                    let resolving = resolve::resolve(hosts);
                    match tokio::time::timeout(RESOLVING, resolving).await {
                        Ok(ends) => resolve::choose_again(&ends, last.map(|(_, remote)| remote)),
                        Err(_) => Err(
                            "the name servers do not answer within 15 s: check /etc/resolv.conf"
                                .to_owned(),
                        ),
                    }
                }
            };
            let answer = match found {
                Ok((local, remote)) => Answer::Ends { local, remote },
                Err(why) => Answer::Failed(why),
            };
            operator.handle.answer(shard, ticket, answer).await;
        });
    }

    /// Installs the trap policies of a child. The error says why not.
    pub async fn install(&self, ike: Option<&str>, child: &str) -> Result<(), String> {
        let target = Target {
            ike: ike.map(str::to_owned),
            child: Some(child.to_owned()),
            ..Target::default()
        };
        let (connection, child) = to_initiate(&self.config(), &target)?;
        let child = child.unwrap_or_default();
        let (local, remote) = self.ends(&connection).await?;
        self.command(Command::InstallTrap { connection, child, local, remote }).await
    }

    /// Takes the trap policies of a child away: of the first connection that has them, if `ike` names none.
    pub async fn uninstall(&self, ike: Option<&str>, child: &str) -> Result<(), String> {
        let policies = self.handle.policies().await.map_err(|error| error.to_string())?;
        let found = policies.into_iter().find_map(|policy| match policy {
            PolicyView::Trap(trap)
                if trap.child.name == child && ike.is_none_or(|ike| ike == trap.connection) =>
            {
                Some(trap.connection)
            }
            _ => None,
        });
        let connection = found.ok_or_else(|| format!("no trap policy of a child {child:?}"))?;
        self.command(Command::UninstallTrap { connection, child: child.to_owned() }).await
    }

    /// Deletes IKE SAs here without waiting for their peers, those too whose Delete is under way; the number
    /// of them.
    pub async fn forget(&self, target: &Target) -> Result<usize, String> {
        let lifted = self.handle.lift(target.clone()).await.map_err(|error| error.to_string())?;
        let unwanted = self.unwant(target).await;
        let forgotten = self.forget_tickets(target).await;
        let views = self.list().await?;
        let of_child = target.child.is_some() || target.child_id.is_some();
        let wanted = |view: &&IkeView| {
            target.ike.as_ref().is_none_or(|ike| *ike == view.status.connection)
                && target.ike_id.is_none_or(|id| id == view.status.id.0)
        };
        let ikes: Vec<_> = views.iter().filter(wanted).map(|view| view.status.id).collect();
        if of_child || (target.ike.is_none() && target.ike_id.is_none()) || ikes.is_empty() {
            // A child cannot go without its IKE SA knowing.
            let chosen = match choose(&views, target) {
                Err(_) if lifted > 0 || forgotten || unwanted => return Ok(0),
                chosen => chosen?,
            };
            return self.all(chosen.children.into_iter().map(Command::TerminateChild)).await;
        }
        self.all(ikes.into_iter().map(Command::ForgetIke)).await
    }

    /// Forgets the revocation lists and OCSP responses that were fetched, of the kinds wanted.
    pub(crate) fn flush_fetched(&self, lists: bool, responses: bool) {
        self.credentials.flush(lists, responses);
    }

    /// The RADIUS servers in force.
    pub(crate) fn radius(&self) -> Option<Arc<RadiusConfig>> {
        self.credentials.radius()
    }

    /// Keys and certificates that are in force.
    pub(crate) fn answerer(&self) -> Arc<::pki::Answerer> {
        self.credentials.present()
    }

    /// Resolves the addresses to initiate `connection` between.
    async fn ends(&self, connection: &str) -> Result<(IpAddr, IpAddr), String> {
        let config = self.config();
        let hosts = config.hosts.get(connection).ok_or_else(|| unknown(connection))?;
        resolve::choose(&resolve::resolve(hosts).await)
    }

    async fn choose(&self, target: &Target) -> Result<Chosen, String> {
        choose(&self.list().await?, target)
    }

    /// Gives all the commands at once, waits for all of them, and reports the first failure.
    async fn all(&self, commands: impl Iterator<Item = Command>) -> Result<usize, String> {
        let tasks: Vec<_> = commands
            .map(|command| {
                let operator = self.clone();
                tokio::spawn(async move { operator.command(command).await })
            })
            .collect();
        let count = tasks.len();
        let mut failure = None;
        for task in tasks {
            let outcome = task.await.unwrap_or_else(|error| Err(error.to_string()));
            failure = failure.or(outcome.err());
        }
        failure.map_or(Ok(count), Err)
    }

    async fn command(&self, command: Command) -> Result<(), String> {
        match self.handle.command(command).await {
            Ok(outcome) => outcome.map_err(|why| why.to_string()),
            Err(stopped) => Err(stopped.to_string()),
        }
    }
}

/// The engine's configuration: `config` with the ports in use and the names resolved.
pub fn endpoint_config(
    config: &Config,
    ports: Ports,
    ends: &BTreeMap<String, Ends>,
) -> EndpointConfig {
    let mut endpoint = config.endpoint.clone();
    endpoint.natt_port = ports.nat_t;
    for connection in &mut endpoint.connections {
        let connection = Arc::make_mut(connection);
        connection.local_port = ports.ike;
        if let Some(ends) = ends.get(&connection.name) {
            connection.local_addrs.clone_from(&ends.local);
            connection.remote_addrs.clone_from(&ends.remote);
        }
    }
    endpoint
}

/// Connection and child that `up` means.
fn to_initiate(config: &Config, target: &Target) -> Result<(String, Option<String>), String> {
    let connections = &config.endpoint.connections;
    let with_child = |name: &str| -> Vec<&str> {
        let holding = connections.iter().filter(|c| c.child(name).is_some());
        let wanted = |c: &&str| target.ike.as_deref().is_none_or(|ike| ike == *c);
        holding.map(|c| c.name.as_str()).filter(wanted).collect()
    };
    if let Some(ike) = &target.ike
        && !connections.iter().any(|c| c.name == *ike)
    {
        return Err(unknown(ike));
    }
    let child = target.child.as_ref().or(target.name.as_ref());
    let Some(child) = child else {
        return match &target.ike {
            Some(ike) => Ok((ike.clone(), None)),
            None => Err("no name given".to_owned()),
        };
    };
    match with_child(child).as_slice() {
        [connection] => Ok(((*connection).to_owned(), Some(child.clone()))),
        [] if target.child.is_none() && connections.iter().any(|c| c.name == *child) => {
            Ok((child.clone(), None))
        }
        [] => Err(unknown(child)),
        several => Err(format!(
            "several connections have a child {child}: choose one by --ike ({})",
            several.join(", ")
        )),
    }
}

/// What `up --all` means: connection and child.
fn not_up(config: &Config, views: &[IkeView]) -> Vec<(String, Option<String>)> {
    let up: BTreeSet<(String, String)> = views.iter().flat_map(names_of).collect();
    let alive: BTreeSet<&str> = views.iter().map(|v| v.status.connection.as_str()).collect();
    let mut wanted = Vec::new();
    for connection in &config.endpoint.connections {
        if !config.hosts.get(&connection.name).is_some_and(has_peer) {
            continue;
        }
        let name = &connection.name;
        if connection.children.is_empty() && !alive.contains(name.as_str()) {
            wanted.push((name.clone(), None));
        }
        let down = |child: &&str| !up.contains(&(name.clone(), (*child).to_owned()));
        let children = connection.children.iter().map(|child| child.name.as_str()).filter(down);
        wanted.extend(children.map(|child| (name.clone(), Some(child.to_owned()))));
    }
    wanted
}

/// True if there is an address, or a name of one, to initiate to.
fn has_peer(hosts: &Hosts) -> bool {
    hosts.remote.iter().any(|host| match host {
        HostSpec::Address(spec) => spec.host().is_some(),
        HostSpec::Name(_) => true,
    })
}

/// The SAs that `target` means.
fn choose(views: &[IkeView], target: &Target) -> Result<Chosen, String> {
    // What is replaced or on its way out is nobody's to command any more.
    let live =
        views.iter().filter(|v| !matches!(v.status.state, IkeState::Rekeyed | IkeState::Deleting));
    let live = live.filter(|v| target.ike_id.is_none_or(|id| v.status.id.0 == id));
    let ikes = |name: Option<&str>| -> Vec<IkeSaId> {
        let named = live.clone().filter(|v| name.is_none_or(|name| v.status.connection == name));
        named.map(|v| v.status.id).collect()
    };
    let children = |name: Option<&str>| -> Vec<ChildSaId> {
        let wanted =
            |v: &&IkeView| target.ike.as_ref().is_none_or(|ike| *ike == v.status.connection);
        let children = live.clone().filter(wanted).flat_map(|v| &v.children);
        let named = children.filter(|c| {
            name.is_none_or(|name| c.status.name == name)
                && target.child_id.is_none_or(|id| c.status.id.0 == id)
                && !matches!(c.status.state, ChildState::Rekeyed | ChildState::Deleting)
        });
        named.map(|c| c.status.id).collect()
    };
    let by_child = |name| Chosen { ikes: Vec::new(), children: children(name) };
    let chosen = match (&target.name, &target.ike, &target.child) {
        (None, _, None) if target.child_id.is_some() => by_child(None),
        (None, None, None) if target.ike_id.is_some() => {
            Chosen { ikes: ikes(None), children: Vec::new() }
        }
        (None, Some(ike), None) => Chosen { ikes: ikes(Some(ike)), children: Vec::new() },
        (None, _, Some(child)) | (Some(child), Some(_), None) => by_child(Some(child)),
        (Some(name), None, None) => {
            let both = Chosen { ikes: ikes(Some(name)), children: children(Some(name)) };
            if !both.ikes.is_empty() && !both.children.is_empty() {
                return Err(format!("{name} is a connection and a child: say --ike or --child"));
            }
            both
        }
        _ => return Err("no name given".to_owned()),
    };
    if chosen == Chosen::default() {
        let name = target.child.as_ref().or(target.name.as_ref()).or(target.ike.as_ref());
        let number = target.child_id.or(target.ike_id).map(|number| format!("number {number}"));
        let named = name.cloned().or(number).unwrap_or_default();
        return Err(format!("no SA of {named}"));
    }
    Ok(chosen)
}

fn names_of(view: &IkeView) -> Vec<(String, String)> {
    let connection = &view.status.connection;
    view.children.iter().map(|child| (connection.clone(), child.status.name.clone())).collect()
}

fn unknown(name: &str) -> String {
    format!("the configuration has no {}", name.escape_default())
}
