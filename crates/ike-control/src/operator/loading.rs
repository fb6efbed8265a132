//! Puts in force the sections that control clients load, over the file's configuration and by the file's own
//! parser.
//!
//! If this is quick, a client is answered when its load is in force. With thousands of connections it is slow.
//! Then each section is checked by itself, and a task puts all of them in force together, before any other request of a
//! client. Keys, certificates and secrets are always in force when the client is answered: only a check of the whole
//! configuration shows whether one of these can be added or removed.

use std::time::{Duration, Instant};

use ike_config::{Blobs, Difference, Kind};
use tokio::sync::{Mutex, MutexGuard};
use toml::de::DeTable;

use super::Operator;
use super::following::Follow;
use super::live::Ending;
use super::reloading::{blocking, log};
use crate::error::OperatorError;
use crate::program::Loader;

/// Longer than this, and what is loaded is put in force by a task,
const QUICK: Duration = Duration::from_millis(25);
/// unless there are no more sections than this: then it is the machine that is slow.
const FEW: usize = 200;
/// What comes within this time is put in force together.
const PAUSE: Duration = Duration::from_millis(50);
/// At least so many times as long as it takes, for otherwise nothing else would be done where there is much.
const SHARE: u32 = 4;

/// The lock under which configurations change.
#[derive(Debug, Default)]
pub(super) struct Loading(Mutex<State>);

/// Under the lock.
#[derive(Debug, Default)]
pub(super) struct State {
    /// How long it took to put all in force, the last time.
    cost: Duration,
    /// Something is not in force yet.
    waiting: bool,
    /// What is to be done when it is.
    then: Vec<Follow>,
    /// How many reloads there have been.
    pub(super) reloads: u64,
    /// What the last one has begun to end, as long as that goes on.
    pub(super) ending: Option<Ending>,
}

impl Loading {
    pub(super) async fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().await
    }
}

impl State {
    /// Goes back to what was there, after a load of `name` has failed.
    fn forget_follow(&mut self, name: &str) {
        self.then.retain(|follow| follow.connection() != name);
    }
}

impl Operator {
    /// Loads a section in place of what there is of that name. If it is there just so, nothing happens. Returns the
    /// warnings that are new by it, which the log has as well. A section that a task puts in force later has its
    /// warnings in the log alone.
    ///
    /// # Errors
    /// The mistakes in the section, or [`OperatorError::NoLoader`].
    pub async fn load_section(
        &self,
        kind: Kind,
        name: &str,
        table: DeTable<'static>,
        blobs: Blobs,
    ) -> Result<Vec<String>, OperatorError> {
        let mut state = self.loading.lock().await;
        let loader = self.loader()?;
        let difference = loader.difference(kind, name, &table);
        let known = loader.overlay().has(kind, name);
        if difference == Some(Difference::None) && known {
            return Ok(Vec::new());
        }
        let before = loader.overlay().put(kind, name, table, blobs);
        let alone = blocking(|| loader.check_section(kind, name));
        let alone = alone.and_then(|alone| match alone.unmet(&self.plane) {
            unmet if unmet.is_empty() => Ok(alone),
            unmet => Err(OperatorError::Unmet(unmet)),
        });
        let outcome = match alone {
            Ok(alone) => {
                if kind == Kind::Connection {
                    let difference = difference.unwrap_or(Difference::All);
                    state.then.push(Follow::of(name, difference, (&self.config(), &alone)));
                }
                self.in_force(&mut state).await
            }
            Err(why) => Err(why),
        };
        match outcome {
            Ok(warnings) => {
                tracing::info!(%name, section = kind.section(), "loaded by a control client");
                log(&warnings);
                Ok(warnings)
            }
            Err(why) => {
                state.forget_follow(name);
                loader.overlay().take_back(kind, name, before);
                Err(why)
            }
        }
    }

    /// Takes a section away. In this project's own format it is a loaded one, and what the file has of that name is in
    /// force again. In swanctl.conf's, it may be the file's.
    ///
    /// # Errors
    /// [`OperatorError::NotLoaded`]. The mistakes of the configuration without the section.
    pub async fn unload_section(&self, kind: Kind, name: &str) -> Result<(), OperatorError> {
        let mut state = self.loading.lock().await;
        let loader = self.loader()?;
        let before = loader.overlay().remove(kind, name);
        let before = before.ok_or_else(|| OperatorError::NotLoaded(name.to_owned()))?;
        if kind == Kind::Connection {
            let config = self.config();
            let follow = Follow::of(name, Difference::All, (&config, &config));
            state.then.push(follow.without_begin());
        }
        if let Err(why) = self.in_force(&mut state).await {
            state.forget_follow(name);
            loader.overlay().put_back(kind, name, before);
            return Err(why);
        }
        tracing::info!(%name, section = kind.section(), "unloaded by a control client");
        Ok(())
    }

    /// The names of the sections of this kind that [`Self::unload_section`] takes.
    pub async fn loaded_sections(&self, kind: Kind) -> Vec<String> {
        let _one = self.loading.lock().await;
        let Ok(loader) = self.loader() else { return Vec::new() };
        loader.overlay().names(kind).into_iter().map(str::to_owned).collect()
    }

    /// Returns when everything that was loaded is in force.
    ///
    /// # Errors
    /// The reason why it cannot be.
    pub async fn settled(&self) -> Result<(), OperatorError> {
        let mut state = self.loading.lock().await;
        if state.waiting {
            log(&self.now_in_force(&mut state).await?);
        }
        Ok(())
    }

    pub(super) fn loader(&self) -> Result<&dyn Loader, OperatorError> {
        self.program.loader().ok_or(OperatorError::NoLoader)
    }

    /// Puts what is loaded in force, now or soon. Returns the warnings that are new, if it was now.
    async fn in_force(&self, state: &mut State) -> Result<Vec<String>, OperatorError> {
        let few = |loader: &dyn Loader| loader.overlay().sections() <= FEW;
        let quick = state.cost <= QUICK || self.loader().is_ok_and(few);
        if quick && !state.waiting {
            return self.now_in_force(state).await;
        }
        if !std::mem::replace(&mut state.waiting, true) {
            let (operator, pause) = (self.clone(), PAUSE.max(state.cost * SHARE));
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                if let Err(error) = operator.settled().await {
                    tracing::error!(%error, "what control clients have loaded is not in force");
                }
            });
        }
        Ok(Vec::new())
    }

    /// Puts credentials in force with all that waits. If that fails, what waits still comes in force, without them.
    pub(super) async fn credentials_in_force(
        &self,
        state: &mut State,
    ) -> Result<(), OperatorError> {
        let waiting = state.waiting;
        let outcome = self.now_in_force(state).await;
        match &outcome {
            Ok(warnings) if waiting => log(warnings),
            // Of credentials alone: what is missing may come with the next load.
            Ok(_) => {}
            Err(_) => state.waiting = waiting,
        }
        outcome.map(drop)
    }

    async fn now_in_force(&self, state: &mut State) -> Result<Vec<String>, OperatorError> {
        let begun = Instant::now();
        state.waiting = false;
        let loader = self.loader()?;
        let candidate = self.met(blocking(|| loader.merged())?)?;
        let warnings = self.put(candidate).await?;
        state.cost = begun.elapsed();
        let operator = self.clone();
        let then = std::mem::take(&mut state.then);
        tokio::spawn(async move {
            for follow in then {
                operator.follow_up(follow).await;
            }
        });
        Ok(warnings)
    }
}
