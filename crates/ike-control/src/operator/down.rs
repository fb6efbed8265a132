//! Children that a command has taken down. They stay down over a reload that does not change them: a reload is no wish to
//! have a tunnel back. A child that the peer brings up is no longer down by command. A child that this end was already
//! bringing up is taken down as soon as it is up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ike_proto::config::{Action, ChildConfig, ConnectionConfig, EndpointConfig};
use ike_proto::{ChildSaId, ChildState, Command, Event, IkeState};
use ike_tokio::{ChildView, IkeView, Target};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::Operator;
use super::choose::{all_but, choose, meant, names_of};
use super::resolve::StartWaits;
use crate::error::OperatorError;
use crate::views::TakenDown;

/// A connection, and a child of it.
type Name = (String, String);

fn name_of(connection: &ConnectionConfig, child: &ChildConfig) -> Name {
    (connection.name.clone(), child.name.clone())
}

/// What becomes of the trap of a child that is down by command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Traps {
    /// It stays, as with charon: the next packet brings the child up.
    Stay,
    /// There was none. One that comes is to be a block.
    Block,
    /// It is a block.
    Blocked,
}

/// A child that is down by command, as it was configured then.
#[derive(Debug)]
pub(super) struct Note {
    config: Arc<ChildConfig>,
    traps: Traps,
    /// The number of the newest command when the note was made.
    by: u64,
}

/// The children that are down by command.
#[derive(Debug, Clone, Default)]
pub(super) struct Down {
    notes: Arc<Mutex<BTreeMap<Name, Note>>>,
    commands: Arc<watch::Sender<Commands>>,
}

/// The commands that take children down.
#[derive(Debug, Default)]
struct Commands {
    /// The number of the newest one.
    newest: u64,
    /// The numbers of commands that have not yet told the engine which children are no longer wanted.
    pending: BTreeSet<u64>,
}

/// A command that takes children down. Once the command is done or dropped, the peer can end the note of a child by bringing
/// the child up.
struct Taking {
    operator: Operator,
    number: u64,
    events: Option<Receiver<Event>>,
}

impl Taking {
    /// As [`Operator::unwant`].
    async fn unwant(&self, target: &Target) -> bool {
        let any = self.operator.unwant(target).await;
        self.has_unwanted();
        any
    }

    fn has_unwanted(&self) {
        let commands = &self.operator.taken_down.commands;
        commands.send_if_modified(|commands| commands.pending.remove(&self.number));
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.has_unwanted();
        if let Some(events) = self.events.take() {
            let (operator, number) = (self.operator.clone(), self.number);
            tokio::spawn(async move { operator.end_when_up(number, events).await });
        }
    }
}

impl Down {
    /// The number of the newest command.
    pub(super) fn newest(&self) -> u64 {
        self.commands.borrow().newest
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a command has taken this child down.
    pub(super) fn has(&self, connection: &str, child: &str) -> bool {
        self.traps(connection, child).is_some()
    }

    /// What becomes of the trap of this child, if a command has taken the child down.
    fn traps(&self, connection: &str, child: &str) -> Option<Traps> {
        let down = self.lock();
        if down.is_empty() {
            return None;
        }
        down.get(&(connection.to_owned(), child.to_owned())).map(|note| note.traps)
    }

    /// Notes a child. `down` counts for more than `terminate` before or after it. True if the child was not noted yet.
    fn note(&self, name: Name, config: &Arc<ChildConfig>, traps: Traps) -> bool {
        let mut down = self.lock();
        let before = down.get(&name).map(|note| note.traps);
        let traps = before.map_or(traps, |before| before.max(traps));
        let by = self.newest();
        down.insert(name, Note { config: Arc::clone(config), traps, by });
        before.is_none()
    }

    /// Leaves out what `config` does not have, or has changed.
    pub(super) fn review(&self, config: &EndpointConfig) {
        let mut down = self.lock();
        if down.is_empty() {
            return;
        }
        let named = |name: &str| config.connections.iter().find(|one| one.name == name);
        down.retain(|(connection, child), Note { config: then, .. }| {
            let now = named(connection).and_then(|connection| connection.child(child));
            now.is_some_and(|now| now.start_action == then.start_action && now.asks_same_as(then))
        });
    }

    /// A command has taken away the trap of a child.
    fn untrap(&self, name: &Name) {
        if let Some(note) = self.lock().get_mut(name) {
            note.traps = note.traps.min(Traps::Block);
        }
    }

    /// A packet has met the trap of a child and brings it up.
    pub(super) fn end_by_packet(&self, (connection, child): &Name) {
        if self.traps(connection, child) == Some(Traps::Stay) {
            self.end(Some(connection), Some(child));
        }
    }

    /// Ends the note of a child whose trap a command wants. `newest` is the newest command that took children down when this
    /// one began. A note of a later command stays.
    pub(super) fn end_older(&self, name: &Name, newest: u64) {
        let mut down = self.lock();
        if down.get(name).is_some_and(|note| note.by <= newest) {
            down.remove(name);
        }
    }

    /// A command wants `child` of `connection` up again, or all children where there is no name. Returns those that were
    /// down.
    pub(super) fn end(&self, connection: Option<&str>, child: Option<&str>) -> Vec<(Name, Note)> {
        let is = |wanted: Option<&str>, name: &str| wanted.is_none_or(|wanted| wanted == name);
        let is = |name: &Name| is(connection, &name.0) && is(child, &name.1);
        let mut down = self.lock();
        let ended: Vec<Name> = down.keys().filter(|name| is(name)).cloned().collect();
        ended.into_iter().filter_map(|name| down.remove_entry(&name)).collect()
    }
}

impl Operator {
    /// As [`Self::down`], but the traps of `target` become blocks: no packet brings the children up, and none leaves in clear.
    /// This ends when a command, a change of the configuration or the peer brings the children up.
    ///
    /// # Errors
    /// Those of [`Self::down`].
    pub async fn take_down(&self, target: &Target) -> Result<usize, OperatorError> {
        self.any(target).await?;
        let taking = self.taking();
        let mut noted = self.note_down(target, Traps::Block);
        let config = self.config();
        let all = meant(target, &config.endpoint);
        let all: Vec<(Name, Arc<ChildConfig>)> =
            all.map(|(one, child)| (name_of(one, child), Arc::clone(child))).collect();
        let mut traps = BTreeSet::new();
        let mut blocked = false;
        for (name, child) in all {
            if self.block(&name).await {
                blocked = true;
                let is_new = self.taken_down.note(name.clone(), &child, Traps::Blocked);
                noted.extend(is_new.then(|| name.clone()));
                traps.insert(name);
            } else if child.start_action == Action::Trap {
                traps.insert(name);
            }
        }
        match self.end(target, &traps, &taking).await {
            Err(OperatorError::NoSa(_)) if blocked || !noted.is_empty() => Ok(0),
            outcome => self.unless_refused(outcome, &noted),
        }
    }

    /// Deletes SAs; the number of them. Traffic of theirs that waits for a child to come up again may go
    /// its way, which is a success even where no SA is left. Traps stay.
    pub async fn down(&self, target: &Target) -> Result<usize, OperatorError> {
        let any = self.any(target).await?;
        let taking = self.taking();
        self.leave_traps(target, any, self.end(target, &BTreeSet::new(), &taking)).await
    }

    /// Deletes IKE SAs here without waiting for their peers, those too whose Delete is under way; the number
    /// of them.
    pub async fn forget(&self, target: &Target) -> Result<usize, OperatorError> {
        let any = self.any(target).await?;
        let taking = self.taking();
        self.leave_traps(target, any, self.forget_now(target, &taking)).await
    }

    async fn forget_now(&self, target: &Target, taking: &Taking) -> Result<usize, OperatorError> {
        let lifted = self.handle.lift(target.clone()).await?;
        let unwanted = taking.unwant(target).await;
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

    /// Notes the children that `work` takes down. Their traps stay. `any` is true if there are SAs.
    async fn leave_traps(
        &self,
        target: &Target,
        any: bool,
        work: impl Future<Output = Result<usize, OperatorError>>,
    ) -> Result<usize, OperatorError> {
        if any {
            let noted = self.note_down(target, Traps::Stay);
            return self.unless_refused(work.await, &noted);
        }
        let ended = work.await?;
        // It was on its way up.
        self.note_down(target, Traps::Stay);
        Ok(ended)
    }

    /// A command has taken away the trap of a child. A trap that the configuration asks for stays away.
    pub(super) fn untrapped(&self, name: Name) {
        let _taking = self.taking();
        let target =
            Target { ike: Some(name.0.clone()), child: Some(name.1.clone()), ..Target::default() };
        let config = self.config();
        for (_, child) in meant(&target, &config.endpoint) {
            if child.start_action == Action::Trap {
                self.taken_down.note(name.clone(), child, Traps::Stay);
            }
        }
        self.taken_down.untrap(&name);
    }

    fn taking(&self) -> Taking {
        // The subscription comes first: otherwise an event could be lost between the former command and this one.
        let events = Some(self.handle.events());
        let mut number = 0;
        self.taken_down.commands.send_modify(|commands| {
            commands.newest += 1;
            number = commands.newest;
            commands.pending.insert(number);
        });
        Taking { operator: self.clone(), number, events }
    }

    /// Ends the notes of children that the peer brings up, until no note is left or a newer command does the same.
    async fn end_when_up(self, number: u64, mut events: Receiver<Event>) {
        let newest = || self.taken_down.newest();
        while !self.taken_down.lock().is_empty() {
            let event = events.recv().await;
            match event {
                _ if newest() != number => return,
                Ok(Event::ChildUp { ike, child }) => {
                    let view = self.handle.view(ike).await.ok().flatten();
                    view.iter().for_each(|view| self.end_those_of(view, |id| id == child));
                }
                Err(RecvError::Lagged(_)) => {
                    let views = self.list().await.unwrap_or_default();
                    views.iter().for_each(|view| self.end_those_of(view, |_| true));
                }
                Err(RecvError::Closed) => return,
                Ok(_) => {}
            }
        }
    }

    /// Ends the notes of children of `view` that are up and for which `counts` is true. A child that this end has requested
    /// is taken down again instead: the request is older than the note, because each later request ends the note first.
    fn end_those_of(&self, view: &IkeView, counts: impl Fn(ChildSaId) -> bool) {
        // A command may have chosen it when it was just up.
        let ends = view.status.state == IkeState::Deleting;
        let up = |it: &&ChildView| !ends && it.status.state != ChildState::Deleting;
        for it in view.children.iter().filter(up).filter(|it| counts(it.status.id)) {
            let (connection, child) = (&view.status.connection, &it.status.name);
            if !self.taken_down.has(connection, child) {
                continue;
            }
            if it.status.ours {
                let (operator, id) = (self.clone(), it.status.id);
                // It may have ended by itself.
                tokio::spawn(async move { operator.command(Command::TerminateChild(id)).await });
            } else {
                self.wanted_again(Some(connection), Some(child));
            }
        }
    }

    /// True if `target` has SAs. What is refused is refused here, before it has any effect.
    async fn any(&self, target: &Target) -> Result<bool, OperatorError> {
        match choose(&self.list().await?, target) {
            Err(OperatorError::NoSa(_)) => Ok(false),
            chosen => chosen.map(|_| true),
        }
    }

    /// Remembers which children of `target` a command takes down. Returns those that were not down. Where the traps stay,
    /// so do the children whose trap is their `start_action`.
    fn note_down(&self, target: &Target, traps: Traps) -> Vec<Name> {
        let config = self.config();
        let stays = |child: &ChildConfig| match child.start_action {
            Action::Start => true,
            Action::Trap => traps != Traps::Stay,
            Action::None => false,
        };
        let all = meant(target, &config.endpoint).filter(|(_, child)| stays(child));
        let note = |(one, child): (&Arc<ConnectionConfig>, &Arc<ChildConfig>)| {
            let name = name_of(one, child);
            self.taken_down.note(name.clone(), child, traps).then_some(name)
        };
        all.filter_map(note).collect()
    }

    /// Takes back what was noted for a command that was refused after all. An SA ends even if its peer does not confirm it,
    /// which is a failure as well.
    fn unless_refused(
        &self,
        outcome: Result<usize, OperatorError>,
        noted: &[Name],
    ) -> Result<usize, OperatorError> {
        if matches!(&outcome, Err(why) if !matches!(why, OperatorError::Failed(_))) {
            for (connection, child) in noted {
                self.wanted_again(Some(connection), Some(child));
            }
        }
        outcome
    }

    /// Makes the trap of a child a block. True if there is one.
    async fn block(&self, (connection, child): &Name) -> bool {
        let (connection, child) = (connection.clone(), child.clone());
        self.command(Command::BlockTrap { connection, child }).await.is_ok()
    }

    /// As [`Self::block`], if a command has taken the child down and its trap is not to bring it up.
    async fn block_if_down(&self, name: &Name) {
        if self.taken_down.traps(&name.0, &name.1) <= Some(Traps::Stay) || !self.block(name).await {
            return;
        }
        match self.taken_down.lock().get_mut(name) {
            Some(note) if note.traps > Traps::Stay => note.traps = Traps::Blocked,
            // A command wants it up since then.
            _ => self.unblock(name.clone()),
        }
    }

    /// True if a command has taken a child down whose trap a packet has met, and the packet brings nothing up.
    pub(super) fn drops_packets(&self, name: &Name) -> bool {
        let traps = self.taken_down.traps(&name.0, &name.1);
        if traps <= Some(Traps::Stay) {
            return false;
        }
        tracing::debug!(connection = name.0, child = name.1, "acquire: down by command");
        // If the trap was a block, an end of the child has installed it anew.
        let (operator, name) = (self.clone(), name.clone());
        tokio::spawn(async move { operator.block_if_down(&name).await });
        true
    }

    /// True if a command has taken down a child that was to be started again. Such a command tells the engine that the child
    /// is not wanted. If the engine still wants it then, the child has been up since the command, and the note ends.
    pub(super) async fn stays_down(&self, connection: &str, child: &str) -> bool {
        if !self.taken_down.has(connection, child) {
            return false;
        }
        let newest = self.taken_down.newest();
        let have_told =
            |commands: &Commands| commands.pending.first().is_none_or(|it| *it > newest);
        // The sender is this operator's own.
        let _ = self.taken_down.commands.subscribe().wait_for(have_told).await;
        let wanted = self.handle.wanted().await.unwrap_or_default();
        if wanted.iter().any(|(of, name)| of == connection && name.as_deref() == Some(child)) {
            self.wanted_again(Some(connection), Some(child));
            return false;
        }
        tracing::debug!(connection, child, "restart: down by command");
        true
    }

    /// Installs a trap. It becomes a block if a command takes its child down meanwhile.
    pub(super) async fn install_between(
        &self,
        name: &Name,
        (local, remote): (IpAddr, IpAddr),
    ) -> Result<(), OperatorError> {
        let (connection, child) = name.clone();
        let installed =
            self.command(Command::InstallTrap { connection, child, local, remote }).await;
        self.block_if_down(name).await;
        installed
    }

    /// Lifts the blocks of `target`, but for those of `kept`. Returns how many there were.
    pub(super) async fn lift_but(
        &self,
        target: &Target,
        kept: &BTreeSet<Name>,
    ) -> Result<usize, OperatorError> {
        if kept.is_empty() {
            return Ok(self.handle.lift(target.clone()).await?);
        }
        let mut lifted = 0;
        for one in all_but(target, kept, &self.config().endpoint) {
            lifted += self.handle.lift(one).await?;
        }
        Ok(lifted)
    }

    /// A command wants `child` of `connection` up, or all children where there is no name: none of them is down by command
    /// any more.
    pub(super) fn wanted_again(&self, connection: Option<&str>, child: Option<&str>) {
        for ((connection, child), note) in self.taken_down.end(connection, child) {
            let operator = self.clone();
            if note.config.start_action == Action::Trap {
                tokio::spawn(async move {
                    operator.start(connection, child, Action::Trap).await;
                });
            } else if note.traps == Traps::Blocked {
                self.unblock((connection, child));
            }
        }
    }

    /// Installs a trap again, in a task of its own.
    fn unblock(&self, name: Name) {
        let operator = self.clone();
        tokio::spawn(async move { operator.install_again(name).await });
    }

    async fn install_again(&self, name: Name) {
        let mut waits = StartWaits::default();
        let error = loop {
            match self.ends(&name.0).await {
                Ok(_) if self.taken_down.traps(&name.0, &name.1) > Some(Traps::Stay) => return,
                Ok(ends) => break self.install_between(&name, ends).await.err(),
                Err(why @ (OperatorError::Unknown(_) | OperatorError::Stopped)) => break Some(why),
                Err(why) => {
                    tracing::debug!(connection = name.0, child = name.1, %why, "its trap waits")
                }
            }
            let interval = self.config().endpoint.retry_initiate_interval;
            tokio::time::sleep(waits.next(interval)).await;
        };
        if let Some(error) = error {
            tracing::warn!(connection = name.0, child = name.1, %error, "trap: still blocks the packets of the child, because it could not be installed again; run `up` to bring the child up");
        }
    }

    /// The children that are down by command, without those in `views`: their peer may have brought them up.
    pub fn taken_down(&self, views: &[IkeView]) -> Vec<TakenDown> {
        let up: BTreeSet<Name> = views.iter().flat_map(names_of).collect();
        let down = self.taken_down.lock();
        let names = down.keys().filter(|name| !up.contains(*name)).cloned();
        names.map(|(connection, child)| TakenDown { connection, child }).collect()
    }

    /// Deletes the SAs of `target`, without lifting blocks of `traps`.
    async fn end(
        &self,
        target: &Target,
        traps: &BTreeSet<Name>,
        taking: &Taking,
    ) -> Result<usize, OperatorError> {
        let lifted = self.lift_but(target, traps).await?;
        let unwanted = taking.unwant(target).await;
        let forgotten = self.forget_tickets(target).await;
        let views = self.list().await?;
        let chosen = match choose(&views, target) {
            Err(_) if lifted > 0 || forgotten || unwanted => return Ok(0),
            chosen => chosen?,
        };
        let ikes = chosen.ikes.iter().copied().map(Command::TerminateIke);
        let children = chosen.children.iter().copied().map(Command::TerminateChild);
        let deleted = self.all(ikes.chain(children)).await;
        self.lift_again(target, &chosen, traps).await?;
        deleted
    }
}
