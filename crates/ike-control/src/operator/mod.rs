//! An operator's commands, by the names in the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ike_proto::config::{Action, AddressSpec, ChildConfig};
use ike_proto::dataplane::{Capabilities, Flow};
use ike_proto::{Answer, Command, IkeState, Ticket};
use ike_tokio::{Handle, IkeView, Ports, Target, Wanted};
use tokio::sync::{mpsc, watch};

use crate::error::OperatorError;
use crate::program::{Configuration, Program};
use crate::views::Waiting;
use choose::{Chosen, choose, kept, names_of, not_up, to_initiate, up_as_configured};
use following::Follow;
use names::Names;
pub use reloading::Reloaded;

mod choose;
mod credentials;
mod down;
mod following;
mod live;
mod loading;
mod names;
mod reloading;
pub mod resolve;
mod traps;

/// What comes within this time after news of a name is told to the engine together.
const PAUSE: Duration = Duration::from_millis(50);

/// Carries out the commands of operators and signals, and what traffic and ended children ask for. Clones share one
/// engine.
#[derive(Clone)]
pub struct Operator {
    handle: Handle,
    config: Arc<watch::Sender<Arc<Configuration>>>,
    ports: Ports,
    plane: Capabilities,
    program: Arc<dyn Program>,
    loading: Arc<loading::Loading>,
    names: Names,
    /// Connections and children whose traffic waits for an address.
    acquiring: Arc<Mutex<BTreeSet<(String, String)>>>,
    /// What is not there yet: a route, an address or a name. Of a child whose `start_action` waits here, or, without a
    /// child, of a connection whose starts the engine repeats.
    lacks: Arc<Mutex<BTreeMap<Lacking, OperatorError>>>,
    taken_down: down::Down,
}

/// A connection, and a child of it.
type Lacking = (String, Option<String>);

impl Operator {
    /// An operator of the drivers behind `handle`. They have `configuration` in force, listen on `ports`, and have a
    /// data plane that can do `plane`. `program` is the program around them.
    ///
    /// The drivers begin with [`Configuration::unresolved`]. [`Self::keep_resolved`] then resolves the names of hosts.
    pub fn new(
        handle: Handle,
        configuration: Configuration,
        ports: Ports,
        plane: Capabilities,
        program: Arc<dyn Program>,
    ) -> Self {
        let config = Arc::new(watch::Sender::new(Arc::new(configuration)));
        let names = Names::of_system(program.resolver(), handle.outside_tunnels());
        let (loading, acquiring) = (Arc::default(), Arc::default());
        let (lacks, taken_down) = (Arc::default(), down::Down::default());
        Self { handle, config, ports, plane, program, loading, names, acquiring, lacks, taken_down }
    }

    /// Keeps the last addresses of host names in the file at `path`, whose folder is there. Those of an earlier run count
    /// from now on, until there are newer ones. Only the first call has an effect, and only a regular file makes sense.
    pub fn keep_names_in(&self, path: PathBuf) {
        self.names.keep_in(path);
    }

    /// The drivers.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Configuration> {
        Arc::clone(&self.config.borrow())
    }

    /// The program around the drivers.
    pub fn program(&self) -> &dyn Program {
        &*self.program
    }

    /// Brings up a child or a connection. The error says why not.
    pub async fn up(&self, target: &Target) -> Result<(), OperatorError> {
        let (connection, child) = to_initiate(&self.config(), target)?;
        self.wanted_again(Some(&connection), child.as_deref());
        self.initiate(connection, child, None).await
    }

    /// Brings up, all at once, every child that is not up and every connection without children, where
    /// the peer's address is configured; the number of them. The error names those that failed.
    pub async fn up_all(&self) -> Result<usize, OperatorError> {
        let views = self.list().await?;
        // Of what its peer has brought up as well.
        self.wanted_again(None, None);
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
            let outcome = task.await.unwrap_or(Err(OperatorError::Task));
            failures.extend(outcome.err().map(|why| (name, why)));
        }
        match failures.is_empty() {
            true => Ok(count),
            false => Err(OperatorError::Several { of: count, failed: failures }),
        }
    }

    /// How many SAs `target` means; there is an error where there are none.
    pub async fn matches(&self, target: &Target) -> Result<usize, OperatorError> {
        let chosen = self.choose(target).await?;
        Ok(chosen.ikes.len() + chosen.children.len())
    }

    /// Lifts the blocks of `target` once more. A child that came up after the first call has a block again. A child that
    /// is up on an SA that was not chosen keeps its block.
    async fn lift_again(
        &self,
        target: &Target,
        chosen: &Chosen,
        traps: &BTreeSet<(String, String)>,
    ) -> Result<(), OperatorError> {
        let mut kept = kept(&self.list().await?, chosen);
        kept.extend(traps.iter().cloned());
        self.lift_but(target, &kept).await.map(drop)
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
            any |= self.lacks(|lacks| {
                let before = lacks.len();
                lacks.retain(|(of, name), _| {
                    name.is_none() || *of != connection || (child.is_some() && child != *name)
                });
                lacks.len() < before
            });
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
    pub async fn rekey(&self, target: &Target) -> Result<usize, OperatorError> {
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
    ) -> Result<usize, OperatorError> {
        let views = self.list().await?;
        let named = target.name.is_some() || target.ike.is_some() || target.ike_id.is_some();
        if !named && peer.is_none() && identity.is_none() {
            return Err(OperatorError::AnyClient);
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
            return Err(OperatorError::NoClient);
        }
        self.all(chosen.into_iter().map(|ike| Command::Redirect(ike, gateway))).await
    }

    /// Reauthenticates IKE SAs; the number of them.
    pub async fn reauthenticate(&self, target: &Target) -> Result<usize, OperatorError> {
        let chosen = self.choose(target).await?;
        if chosen.ikes.is_empty() {
            return Err(OperatorError::NoIkeSa);
        }
        self.all(chosen.ikes.into_iter().map(Command::Reauthenticate)).await
    }

    /// Describes the SAs.
    pub async fn list(&self) -> Result<Vec<IkeView>, OperatorError> {
        Ok(self.handle.list().await?)
    }

    /// Does what `start_action` says for every child that is not up, each in a task of its own.
    pub async fn start_actions(&self) {
        self.start_actions_beside(&[]).await;
    }

    /// As [`Self::start_actions`], but for what `follows` begin later.
    async fn start_actions_beside(&self, follows: &[Follow]) {
        let config = self.config();
        let mut children = Vec::new();
        for connection in &config.endpoint.connections {
            let name = &connection.name;
            let later = |child: &ChildConfig| follows.iter().any(|it| it.begins_later(name, child));
            let now = connection.children.iter().filter(|child| !later(child));
            children
                .extend(now.map(|child| (name.clone(), child.name.clone(), child.start_action)));
        }
        self.begin(children).await;
    }

    /// Begins what the `start_action` of each child says. What is up counts if it is as the child is configured now: one of
    /// its name from before a reload may protect other traffic. A trap is installed whether its child is up or not, because the
    /// SAs may cover less than the trap, and end.
    async fn begin(&self, mut children: Vec<(String, String, Action)>) {
        children.retain(|(.., action)| *action != Action::None);
        if children.is_empty() {
            return;
        }
        let views = match self.handle.list().await {
            Ok(views) => views,
            Err(error) => {
                tracing::debug!(%error, "start_action: the drivers have ended");
                return;
            }
        };
        let config = self.config();
        children.retain(|(connection, child, _)| !self.taken_down.has(connection, child));
        let all = config.endpoint.connections.iter().map(|it| (&*it.name, it));
        let all: BTreeMap<&str, _> = all.collect();
        let up = up_as_configured(&views, |name| all.get(name).map(|it| &***it));
        for (connection, child, action) in children {
            // What is up may have been brought up by the peer: if it is wanted for ever, it is wanted all the same.
            let is_there = action == Action::Start
                && all.get(&*connection).is_none_or(|it| it.keyingtries != 0)
                && up.contains(&(&*connection, &*child));
            if !is_there {
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

    /// Answers what the drivers want of the program: brings up the children that traffic needs and those that are to
    /// be up again, and tells the addresses of peers. Returns when the drivers have ended.
    pub async fn attend(&self, mut wanted: mpsc::UnboundedReceiver<Wanted>) {
        while let Some(wanted) = wanted.recv().await {
            match wanted {
                Wanted::Packet { connection, child, packet } => {
                    self.acquire(connection, child, packet);
                }
                Wanted::Restart { connection, child, local, remote } => {
                    self.restart(connection, child, local, remote);
                }
                Wanted::Ends { connection, shard, ticket, last } => {
                    self.answer_ends(connection, shard, ticket, last);
                }
            }
        }
    }

    /// Looks host names up, now and each minute, because they may change their addresses; sooner after a failure. Each
    /// name is put in force when its addresses are there. Returns when a name has changed and the drivers have ended.
    pub async fn keep_resolved(&self) {
        let mut configuration = self.config.subscribe();
        loop {
            let config = Arc::clone(&configuration.borrow_and_update());
            let next = self.names.renew(config.hosts.values());
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                // The sender is this operator's own.
                _ = configuration.changed() => {}
                changed = self.names.changed() => {
                    tokio::time::sleep(PAUSE).await;
                    if changed && self.tell_names().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Brings up the child of an acquire, in a task of its own. Further acquires of a child wait with the first one for
    /// an address of the peer.
    fn acquire(&self, connection: String, child: String, packet: Flow) {
        let hosts = self.config().hosts.get(&connection).cloned();
        let key = (connection, child);
        if self.drops_packets(&key) {
            return;
        }
        let backs_off = hosts.is_some_and(|hosts| self.names.is_backing_off(&hosts));
        if backs_off || !self.acquiring(|acquiring| acquiring.insert(key.clone())) {
            tracing::debug!(
                connection = key.0,
                child = key.1,
                "acquire: no address of the peer yet"
            );
            return;
        }
        let (local, remote) = (packet.local, packet.remote);
        tracing::info!(
            connection = key.0,
            child = key.1,
            %local,
            %remote,
            "packet matches a trap; starting the child"
        );
        let operator = self.clone();
        tokio::spawn(async move {
            let ends = operator.ends(&key.0).await;
            operator.acquiring(|acquiring| acquiring.remove(&key));
            // It may have been taken down meanwhile.
            if operator.drops_packets(&key) {
                return;
            }
            operator.taken_down.end_by_packet(&key);
            let (connection, child) = key;
            let made = match ends {
                Ok(ends) => {
                    operator
                        .initiate_between(ends, connection.clone(), Some(child), Some(packet))
                        .await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = made {
                tracing::warn!(%connection, %error, "acquire");
            }
        });
    }

    /// Reads or changes which acquires wait for an address.
    fn acquiring<T>(&self, change: impl FnOnce(&mut BTreeSet<(String, String)>) -> T) -> T {
        change(&mut self.acquiring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a child again that has ended, in a task of its own.
    fn restart(&self, connection: String, child: String, local: IpAddr, remote: IpAddr) {
        let operator = self.clone();
        tokio::spawn(async move {
            // A command may have taken the child down, or another shard may have it.
            if operator.stays_down(&connection, &child).await
                || operator.handle.want_where_carried(&connection, &child).await.unwrap_or(false)
            {
                return;
            }
            let name = connection.clone();
            let command = Command::Ensure { connection, child, local, remote };
            if let Err(error) = operator.command(command).await {
                tracing::warn!(connection = %name, %error, "restart");
            }
        });
    }

    /// The engine tries again by itself once it has addresses. Until then it is done here: no route, address or name at
    /// the start is not a try.
    async fn start(&self, connection: String, child: String, mut action: Action) {
        if action == Action::Start && self.is_for_ever(&connection) {
            let command = Command::Want { connection: connection.clone(), child: child.clone() };
            if let Err(error) = self.command(command).await {
                tracing::warn!(%connection, %child, %error, "start_action");
            }
            return;
        }
        let key = (connection.clone(), Some(child.clone()));
        let mut waits = resolve::StartWaits::default();
        let mut told = None;
        loop {
            let found = self.ends(&connection).await;
            if self.taken_down.has(&connection, &child) {
                self.lacks(|lacks| lacks.remove(&key));
                tracing::debug!(%connection, %child, "start_action: down by command");
                return;
            }
            let waited = told.is_some();
            if waited {
                // A reload may have changed it: the task of that reload has left it to this one.
                action = self.start_action(&connection, &child);
            }
            let error = match found {
                Ok(ends) => {
                    let was_there = self.lacks(|lacks| lacks.remove(&key)).is_some();
                    // It may have been taken down meanwhile.
                    if action != Action::None && (was_there || !waited) {
                        self.start_between(ends, (connection, child), action).await;
                    }
                    return;
                }
                Err(error) => error,
            };
            if told.as_ref() != Some(&error) {
                tracing::warn!(%connection, %child, %error, "start_action waits for a way to the peer");
            }
            let goes_on = self.lacks(|lacks| {
                // Otherwise another task waits for it, or it was taken down.
                let ours = lacks.contains_key(&key) == waited;
                if ours && action == Action::None {
                    lacks.remove(&key);
                } else if ours {
                    lacks.insert(key.clone(), error.clone());
                }
                ours && action != Action::None
            });
            if !goes_on {
                return;
            }
            told = Some(error);
            let interval = self.config().endpoint.retry_initiate_interval;
            tokio::time::sleep(waits.next(interval)).await;
        }
    }

    async fn start_between(
        &self,
        (local, remote): (IpAddr, IpAddr),
        (connection, child): (String, String),
        action: Action,
    ) {
        let names = (connection.clone(), child.clone());
        let started = match action {
            Action::Trap => self.install_between(&names, (local, remote)).await,
            _ => self.command(Command::Ensure { connection, child, local, remote }).await,
        };
        if let Err(error) = started {
            tracing::warn!(connection = names.0, child = names.1, %error, "start_action");
        }
    }

    /// The `start_action` of a child in the configuration in force.
    fn start_action(&self, connection: &str, child: &str) -> Action {
        let config = self.config();
        let mut all = config.endpoint.connections.iter();
        let found = all.find(|other| other.name == connection);
        let found = found.and_then(|connection| connection.child(child));
        found.map_or(Action::None, |child| child.start_action)
    }

    /// Reads or changes what is not there yet.
    fn lacks<T>(&self, change: impl FnOnce(&mut BTreeMap<Lacking, OperatorError>) -> T) -> T {
        change(&mut self.lacks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if a child may be waiting for a way to the peer.
    pub fn may_wait(&self) -> bool {
        self.lacks(|lacks| !lacks.is_empty())
    }

    /// The children that are to be started as soon as there is a way to the peer, without those in `views`.
    pub async fn waiting(&self, views: &[IkeView]) -> Vec<Waiting> {
        let lacks = self.lacks(|lacks| lacks.clone());
        if lacks.is_empty() {
            return Vec::new();
        }
        let config = self.config();
        let actions = config.endpoint.connections.iter().flat_map(|connection| {
            let action = |child: &Arc<ChildConfig>| {
                let acts = child.start_action != Action::None;
                acts.then(|| (connection.name.clone(), Some(child.name.clone())))
            };
            connection.children.iter().filter_map(action)
        });
        let mut children: BTreeSet<Lacking> =
            actions.filter(|key| lacks.contains_key(key)).collect();
        // The engine knows what it repeats.
        let wanted = self.handle.wanted().await.unwrap_or_default().into_iter();
        children.extend(wanted.filter(|(name, _)| lacks.contains_key(&(name.clone(), None))));
        let up: BTreeSet<(String, String)> = views.iter().flat_map(names_of).collect();
        let waiting = children.into_iter().filter_map(|key| {
            let why = lacks.get(&key).or_else(|| lacks.get(&(key.0.clone(), None)))?;
            let names = (key.0, key.1?);
            let waits_for = why.to_string();
            (!up.contains(&names)).then_some(Waiting {
                connection: names.0,
                child: names.1,
                waits_for,
            })
        });
        waiting.collect()
    }

    async fn initiate(
        &self,
        connection: String,
        child: Option<String>,
        packet: Option<Flow>,
    ) -> Result<(), OperatorError> {
        let ends = self.ends(&connection).await?;
        self.initiate_between(ends, connection, child, packet).await
    }

    async fn initiate_between(
        &self,
        (local, remote): (IpAddr, IpAddr),
        connection: String,
        child: Option<String>,
        packet: Option<Flow>,
    ) -> Result<(), OperatorError> {
        let name = (connection.clone(), child.clone());
        let command = Command::Initiate { connection, child, local, remote, packet };
        match self.command(command).await {
            Err(OperatorError::Failed(why)) if packet.is_none() => {
                match self.handle.starts_in(&name.0, name.1.as_deref()).await {
                    Ok(Some(wait)) => Err(OperatorError::TriesAgain(why, wait)),
                    _ => Err(OperatorError::Failed(why)),
                }
            }
            other => other,
        }
    }

    /// Tells a shard between which addresses `connection` is to be started now, in a task of its own. Where the
    /// configuration names no peer, it is the one of `last` time.
    fn answer_ends(
        &self,
        connection: String,
        shard: u8,
        ticket: Ticket,
        last: Option<(IpAddr, IpAddr)>,
    ) {
        let operator = self.clone();
        tokio::spawn(async move {
            let name = connection.clone();
            let found = match operator.config().hosts.get(&connection) {
                None => Err(OperatorError::Unknown(connection)),
                Some(hosts) => operator.names.look_up(hosts).await.and_then(|ends| {
                    let last = last.map(|(_, remote)| remote);
                    resolve::choose_again(&ends, last, &|remote| operator.handle.source(remote))
                }),
            };
            let key = (name, None);
            let answer = match found {
                Ok((local, remote)) => {
                    operator.lacks(|lacks| lacks.remove(&key));
                    Answer::Ends { local, remote }
                }
                Err(why) => {
                    let text = why.to_string();
                    operator.lacks(|lacks| lacks.insert(key, why));
                    Answer::Failed(text)
                }
            };
            operator.handle.answer(shard, ticket, answer).await;
        });
    }

    /// Resolves the addresses to initiate `connection` between.
    async fn ends(&self, connection: &str) -> Result<(IpAddr, IpAddr), OperatorError> {
        let config = self.config();
        let hosts = config.hosts.get(connection);
        let hosts = hosts.ok_or_else(|| OperatorError::Unknown(connection.to_owned()))?;
        let ends = self.names.look_up(hosts).await?;
        let found = resolve::choose(&ends, &|remote| self.handle.source(remote))?;
        self.lacks(|lacks| lacks.remove(&(connection.to_owned(), None)));
        Ok(found)
    }

    async fn choose(&self, target: &Target) -> Result<Chosen, OperatorError> {
        choose(&self.list().await?, target)
    }

    /// Gives all the commands at once, waits for all of them, and reports the first failure.
    async fn all(&self, commands: impl Iterator<Item = Command>) -> Result<usize, OperatorError> {
        let tasks: Vec<_> = commands
            .map(|command| {
                let operator = self.clone();
                tokio::spawn(async move { operator.command(command).await })
            })
            .collect();
        let count = tasks.len();
        let mut failure = None;
        for task in tasks {
            let outcome = task.await.unwrap_or(Err(OperatorError::Task));
            failure = failure.or(outcome.err());
        }
        failure.map_or(Ok(count), Err)
    }

    async fn command(&self, command: Command) -> Result<(), OperatorError> {
        Ok(self.handle.command(command).await??)
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operator({:?})", self.ports)
    }
}
