//! Children that a command has taken down. They stay down over a reload that does not change them: a reload is no wish to
//! have a tunnel back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ike_proto::Command;
use ike_proto::config::{Action, ChildConfig, EndpointConfig};
use ike_tokio::{IkeView, Target};

use super::Operator;
use super::choose::{all_but, choose, meant, names_of};
use crate::error::OperatorError;
use crate::views::TakenDown;

/// A connection, and a child of it.
type Name = (String, String);

/// The children that are down by command, as they were configured then.
#[derive(Debug, Clone, Default)]
pub(super) struct Down(Arc<Mutex<BTreeMap<Name, Arc<ChildConfig>>>>);

impl Down {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<ChildConfig>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a command has taken this child down.
    pub(super) fn has(&self, connection: &str, child: &str) -> bool {
        let down = self.lock();
        !down.is_empty() && down.contains_key(&(connection.to_owned(), child.to_owned()))
    }

    /// Leaves out what `config` does not have, or has changed.
    pub(super) fn review(&self, config: &EndpointConfig) {
        let mut down = self.lock();
        if down.is_empty() {
            return;
        }
        let named = |name: &str| config.connections.iter().find(|one| one.name == name);
        down.retain(|(connection, child), then| {
            let now = named(connection).and_then(|connection| connection.child(child));
            now.is_some_and(|now| now.start_action == then.start_action && now.asks_same_as(then))
        });
    }

    /// A command wants `child` up again, or all children of `connection`. Returns those that were down.
    pub(super) fn end(&self, connection: &str, child: Option<&str>) -> Vec<Arc<ChildConfig>> {
        let mut ended = Vec::new();
        self.lock().retain(|name, config| {
            let is = name.0 == connection && child.is_none_or(|child| child == name.1);
            ended.extend(is.then(|| Arc::clone(config)));
            !is
        });
        ended
    }
}

impl Operator {
    /// As [`Self::down`], until a command or a change of the configuration brings the children up: the traps of `target`
    /// become blocks, so that no packet brings them up, and none leaves in clear.
    ///
    /// # Errors
    /// Those of [`Self::down`].
    pub async fn take_down(&self, target: &Target) -> Result<usize, OperatorError> {
        let config = self.config();
        let traps = meant(target, &config.endpoint);
        let traps = traps.filter(|(_, child)| child.start_action == Action::Trap);
        let traps: BTreeSet<Name> =
            traps.map(|(one, child)| (one.name.clone(), child.name.clone())).collect();
        self.note_down(target, true);
        let mut blocked = false;
        for (connection, child) in traps.clone() {
            blocked |= self.command(Command::BlockTrap { connection, child }).await.is_ok();
        }
        let outcome = self.end(target, &traps).await;
        match outcome {
            Err(OperatorError::NoSa(_)) if blocked => Ok(0),
            outcome => outcome,
        }
    }

    /// Remembers which children of `target` a command takes down. Where it leaves traps, the next packet brings the child
    /// up, as with charon.
    pub(super) fn note_down(&self, target: &Target, traps: bool) {
        let config = self.config();
        let stays = |child: &ChildConfig| match child.start_action {
            Action::Start => true,
            Action::Trap => traps,
            Action::None => false,
        };
        let all = meant(target, &config.endpoint).filter(|(_, child)| stays(child));
        let all =
            all.map(|(one, child)| ((one.name.clone(), child.name.clone()), Arc::clone(child)));
        self.taken_down.lock().extend(all);
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

    /// A command wants `child` of `connection` up, or all of its children: none of them is down by command any more.
    pub(super) fn wanted_again(&self, connection: &str, child: Option<&str>) {
        for config in self.taken_down.end(connection, child) {
            if config.start_action == Action::Trap {
                let (operator, connection) = (self.clone(), connection.to_owned());
                let child = config.name.clone();
                tokio::spawn(async move {
                    operator.start(connection, child, Action::Trap).await;
                });
            }
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
    pub(super) async fn end(
        &self,
        target: &Target,
        traps: &BTreeSet<Name>,
    ) -> Result<usize, OperatorError> {
        let lifted = self.lift_but(target, traps).await?;
        let unwanted = self.unwant(target).await;
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
