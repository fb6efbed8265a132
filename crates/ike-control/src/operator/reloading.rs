//! Puts configurations in force: of the file again, and with host names resolved again.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ike_proto::Command;
use ike_proto::config::EndpointConfig;

use super::Operator;
use super::following::Follow;
use super::live::Ending;
use crate::error::OperatorError;
use crate::program::Candidate;

/// What a reload has to say about a configuration that is in force, each a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// What is hardly meant.
    pub warnings: Vec<String>,
    /// What is not in force before the next start.
    pub delayed: Vec<String>,
    /// IKE SAs that end, and those that stay as an earlier configuration had them.
    pub live: Vec<String>,
}

impl Reloaded {
    /// All of it.
    pub fn all(self) -> Vec<String> {
        [self.warnings, self.delayed, self.live].concat()
    }
}

impl Operator {
    /// Reads the configuration file at `file` again, puts it in force, and returns its warnings. If this fails, nothing
    /// changes. The log has the outcome and the warnings. With `revoke`, IKE SAs end whose secret or trust anchor the file
    /// replaces.
    ///
    /// # Errors
    /// [`OperatorError::Mistakes`] for mistakes in the file, [`OperatorError::NoFile`] without a file, and the errors of
    /// [`Self::reload`].
    pub async fn reload_file(
        &self,
        file: Option<&Path>,
        revoke: bool,
    ) -> Result<Reloaded, OperatorError> {
        self.program.reloading();
        let outcome = self.read_file(file, revoke).await;
        self.program.reloaded(outcome.is_ok());
        if let Err(refused) = &outcome {
            for line in refused.to_string().lines() {
                tracing::error!("{line}");
            }
            tracing::error!("the configuration stays as it was");
        }
        outcome
    }

    async fn read_file(
        &self,
        file: Option<&Path>,
        revoke: bool,
    ) -> Result<Reloaded, OperatorError> {
        let file = file.ok_or(OperatorError::NoFile)?;
        let before = self.config();
        let reloaded = self.reload_by(|| self.program.read(file), revoke).await?;
        tell_difference(file, &before.endpoint, &self.config().endpoint);
        Ok(reloaded)
    }

    /// Puts the configuration that `make` returns in the place of the present one. SAs keep the configuration that
    /// they were made with. IKE SAs whose peers the new configuration does not admit end. If the program follows charon, what
    /// `start_action` has begun of changed and removed children ends in their place.
    /// `make` runs while nothing else changes the configuration. Returns the candidate's warnings, which the log has as well.
    ///
    /// # Errors
    /// The error of `make`. [`OperatorError::Unmet`] if the data plane cannot honour the configuration.
    /// [`OperatorError::Stopped`] after the end of the drivers.
    pub async fn reload(
        &self,
        make: impl FnOnce() -> Result<Candidate, OperatorError> + Send,
    ) -> Result<Reloaded, OperatorError> {
        self.reload_by(make, false).await
    }

    /// As [`Self::reload`], and with `revoke` what [`Self::reload_file`] says.
    async fn reload_by(
        &self,
        make: impl FnOnce() -> Result<Candidate, OperatorError> + Send,
        revoke: bool,
    ) -> Result<Reloaded, OperatorError> {
        let mut loading = self.loading.lock().await;
        let mut candidate = self.met(blocking(make)?)?;
        let delayed = std::mem::take(&mut candidate.delayed);
        let before = self.config();
        let outcome = self.put(candidate).await;
        loading.reloads += 1;
        let follows = match outcome.is_ok() && self.program.follows_charon() {
            true => Follow::of_reload(&before, &self.config()),
            false => Vec::new(),
        };
        let mut live = Vec::new();
        if outcome.is_ok() {
            let since = Ending::since(loading.ending.take(), before, revoke);
            (live, loading.ending) = self.review_live(since, &follows, loading.reloads).await;
        }
        drop(loading);
        let warnings = outcome?;
        log(&warnings);
        log(&delayed);
        // Names that were known before stay so. `keep_resolved` looks new ones up: nothing waits for them here.
        self.start_actions_beside(&follows).await;
        for follow in follows {
            let operator = self.clone();
            tokio::spawn(async move { operator.follow_up(follow).await });
        }
        Ok(Reloaded { warnings, delayed, live })
    }

    /// Looks all host names up again, all at once, and tells the engine.
    ///
    /// # Errors
    /// [`OperatorError::Stopped`] after the end of the drivers.
    pub async fn refresh(&self) -> Result<(), OperatorError> {
        let config = self.config();
        let mut look_ups = Vec::new();
        for hosts in config.hosts.values().filter(|hosts| hosts.has_names()) {
            let (names, hosts) = (self.names.clone(), hosts.clone());
            look_ups.push(tokio::spawn(async move { names.look_up(&hosts).await }));
        }
        if look_ups.is_empty() {
            return Ok(());
        }
        for look_up in look_ups {
            if let Ok(Err(error)) = look_up.await {
                tracing::debug!(%error, "names of a connection");
            }
        }
        self.tell_names().await
    }

    /// Tells the engine what is known of names by now.
    pub(super) async fn tell_names(&self) -> Result<(), OperatorError> {
        // The configuration may be another one by now.
        let _one = self.loading.lock().await;
        self.tell().await
    }

    /// `candidate`, if the data plane can honour all of it.
    pub(super) fn met(&self, candidate: Candidate) -> Result<Candidate, OperatorError> {
        match candidate.configuration.unmet(&self.plane) {
            unmet if unmet.is_empty() => Ok(candidate),
            unmet => Err(OperatorError::Unmet(unmet)),
        }
    }

    /// The program is told first, for the engine asks its credentials. Returns the warnings, which nobody has logged.
    pub(super) async fn put(&self, candidate: Candidate) -> Result<Vec<String>, OperatorError> {
        let Candidate { configuration, warnings, adopt, .. } = candidate;
        adopt();
        // What has no start any more goes when its task looks again.
        self.lacks(|lacks| lacks.retain(|(name, _), _| configuration.hosts.contains_key(name)));
        self.taken_down.review(&configuration.endpoint);
        self.config.send_replace(Arc::new(configuration));
        self.tell().await?;
        Ok(warnings)
    }

    /// The configuration in force, with the addresses of names as far as they are known.
    pub(super) fn resolved(&self) -> EndpointConfig {
        let config = self.config();
        let ends = config.hosts.iter().map(|(name, hosts)| (name.clone(), self.names.known(hosts)));
        config.resolved(self.ports, &ends.collect())
    }

    /// Gives the engine the configuration, with the addresses of names as far as they are known.
    async fn tell(&self) -> Result<(), OperatorError> {
        let endpoint = Box::new(self.resolved());
        self.command(Command::Reload(endpoint)).await
    }
}

/// Runs `what`, which may block for as long as a signer or a token takes. The runtime moves other tasks of this thread to
/// another thread meanwhile.
pub(super) fn blocking<T>(what: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(what),
        // There is no other thread.
        _ => what(),
    }
}

/// Logs warnings about a configuration that is in force.
pub(super) fn log(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn tell_difference(file: &Path, before: &EndpointConfig, after: &EndpointConfig) {
    let names = |config: &EndpointConfig| -> HashSet<String> {
        config.connections.iter().map(|connection| connection.name.clone()).collect()
    };
    let missing = |from: &EndpointConfig, of: &EndpointConfig| {
        let there = names(from);
        of.connections.iter().filter(|connection| !there.contains(&connection.name)).count()
    };
    tracing::info!(
        file = %file.display(),
        connections = after.connections.len(),
        added = missing(before, after),
        removed = missing(after, before),
        children = after.connections.iter().map(|c| c.children.len()).sum::<usize>(),
        secrets = after.secrets.len(),
        "configuration reloaded"
    );
}
