//! How the rest of the daemon talks to a driver.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ike_proto::config::{EndpointConfig, Shard};
use ike_proto::{ChildSaId, Command, Event, Failure, IkeSaId};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::Request;
use super::shards::{home, part};
use super::usage::IkeView;
use crate::operator::Target;

/// What became of a command.
pub type Outcome = Result<(), Failure>;

/// The driver has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon is shutting down")
    }
}

impl std::error::Error for Stopped {}

/// A handle to the [`Driver`](super::Driver)s of all shards; clones are handles to the same ones.
#[derive(Clone)]
pub struct Handle {
    shards: Arc<[mpsc::Sender<Request>]>,
    events: broadcast::Sender<Event>,
}

impl Handle {
    pub(super) fn new(
        shards: Arc<[mpsc::Sender<Request>]>,
        events: broadcast::Sender<Event>,
    ) -> Self {
        Self { shards, events }
    }

    /// Feeds the engine a command and waits for its end.
    pub async fn command(&self, command: Command) -> Result<Outcome, Stopped> {
        let index = match &command {
            Command::Initiate { connection, remote, .. } => {
                self.shard_with(connection, *remote).await?
            }
            Command::InstallTrap { connection, .. } => home(self.count(), connection),
            Command::TerminateIke(IkeSaId(number))
            | Command::RekeyIke(IkeSaId(number))
            | Command::Reauthenticate(IkeSaId(number))
            | Command::TerminateChild(ChildSaId(number))
            | Command::RekeyChild(ChildSaId(number)) => Shard::of_number(self.count(), *number),
            Command::Reload(config) => return self.reload(config).await,
            Command::Shutdown => return self.shutdown().await.map(Ok),
        };
        self.ask(index, |answer| Request::Command(command, answer)).await
    }

    /// Describes the SAs.
    pub async fn list(&self) -> Result<Vec<IkeView>, Stopped> {
        let mut views: Vec<_> = self.all(Request::List).await?.into_iter().flatten().collect();
        views.sort_by_key(|view| view.status.id);
        Ok(views)
    }

    /// Describes one IKE SA, if it is there.
    pub async fn view(&self, id: IkeSaId) -> Result<Option<IkeView>, Stopped> {
        self.ask(Shard::of_number(self.count(), id.0), |answer| Request::View(id, answer)).await
    }

    /// Lets the traffic of children that are not up, and were to come up again, go where the system sends
    /// it; the number of these children.
    pub async fn lift(&self, target: Target) -> Result<usize, Stopped> {
        self.ask(0, |answer| Request::Lift(target, answer)).await
    }

    /// Deletes every SA at the peers, waits until they have confirmed it or given up, and stops.
    pub async fn shutdown(&self) -> Result<(), Stopped> {
        self.all(Request::Shutdown).await.map(drop)
    }

    /// Stops without waiting for the peers any longer, and empties the data plane.
    pub(crate) async fn stop(&self) -> Result<(), Stopped> {
        for shard in self.shards.iter() {
            // One that has stopped already is none the worse.
            let _ = shard.send(Request::Stop).await;
        }
        Ok(())
    }

    /// Stops without a word to the peers, and leaves the data plane as it is.
    pub async fn leave(&self) -> Result<(), Stopped> {
        self.all(Request::Leave).await.map(drop)
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn count(&self) -> u8 {
        u8::try_from(self.shards.len()).unwrap_or(u8::MAX)
    }

    /// The shard that has an IKE SA of `connection` with the peer at `remote`; else the one where it is
    /// begun.
    async fn shard_with(&self, connection: &str, remote: IpAddr) -> Result<u8, Stopped> {
        let home = home(self.count(), connection);
        if self.count() == 1 {
            return Ok(home);
        }
        let serve = self.all(|answer| Request::Serves(connection.to_owned(), remote, answer));
        let serving: Vec<_> =
            (0..).zip(serve.await?).filter_map(|(index, serves)| serves.then_some(index)).collect();
        let first = serving.first().copied();
        Ok(if serving.contains(&home) { home } else { first.unwrap_or(home) })
    }

    async fn reload(&self, config: &EndpointConfig) -> Result<Outcome, Stopped> {
        let outcomes = self.each(|shard, answer| {
            let command = Command::Reload(Box::new(part(config, shard)));
            Request::Command(command, answer)
        });
        Ok(outcomes.await?.into_iter().collect())
    }

    /// Asks every shard; the answers in their order.
    async fn all<T: Send + 'static>(
        &self,
        request: impl Fn(oneshot::Sender<T>) -> Request,
    ) -> Result<Vec<T>, Stopped> {
        self.each(|_, answer| request(answer)).await
    }

    async fn each<T: Send + 'static>(
        &self,
        request: impl Fn(Shard, oneshot::Sender<T>) -> Request,
    ) -> Result<Vec<T>, Stopped> {
        let mut waiting = Vec::new();
        for (shard, line) in Shard::all(self.count()).zip(self.shards.iter()) {
            let (sender, receiver) = oneshot::channel();
            // One that has ended does not answer; the others hear of it all the same.
            let _ = line.send(request(shard, sender)).await;
            waiting.push(receiver);
        }
        let mut answers = Vec::new();
        for receiver in waiting {
            answers.push(receiver.await.map_err(|_| Stopped));
        }
        answers.into_iter().collect()
    }

    async fn ask<T>(
        &self,
        index: u8,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stopped> {
        let (sender, receiver) = oneshot::channel();
        let line = self.shards.get(usize::from(index)).ok_or(Stopped)?;
        line.send(request(sender)).await.map_err(|_| Stopped)?;
        receiver.await.map_err(|_| Stopped)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shard_that_has_ended_keeps_nothing_from_the_others() {
        let (lines, mut ends): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel(1)).unzip();
        let handle = Handle::new(lines.into(), broadcast::channel(1).0);
        drop(ends.remove(0));
        let asked = tokio::spawn(async move { handle.shutdown().await });
        for end in &mut ends {
            let Some(Request::Shutdown(answer)) = end.recv().await else { panic!("not asked") };
            assert!(!asked.is_finished(), "the last one is waited for");
            let _ = answer.send(());
        }
        assert_eq!(asked.await.ok(), Some(Err(Stopped)), "not all have confirmed");
    }
}
