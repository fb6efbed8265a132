//! How the rest of the daemon talks to a driver.

use std::fmt;

use ike_proto::{Command, Event, Failure};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::Request;
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

/// A handle to a [`Driver`](super::Driver); clones are handles to the same one.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
    events: broadcast::Sender<Event>,
}

impl Handle {
    pub(super) fn new(requests: mpsc::Sender<Request>, events: broadcast::Sender<Event>) -> Self {
        Self { requests, events }
    }

    /// Feeds the engine a command and waits for its end.
    pub async fn command(&self, command: Command) -> Result<Outcome, Stopped> {
        self.ask(|answer| Request::Command(command, answer)).await
    }

    /// Describes the SAs.
    pub async fn list(&self) -> Result<Vec<IkeView>, Stopped> {
        self.ask(Request::List).await
    }

    /// Lets the traffic of children that are not up, and were to come up again, go where the system sends
    /// it; the number of these children.
    pub async fn lift(&self, target: Target) -> Result<usize, Stopped> {
        self.ask(|answer| Request::Lift(target, answer)).await
    }

    /// Deletes every SA at the peers, waits until they have confirmed it or given up, and stops.
    pub async fn shutdown(&self) -> Result<(), Stopped> {
        self.ask(Request::Shutdown).await
    }

    /// Stops without waiting for the peers any longer, and empties the data plane.
    pub(crate) async fn stop(&self) -> Result<(), Stopped> {
        self.requests.send(Request::Stop).await.map_err(|_| Stopped)
    }

    /// Stops without a word to the peers, and leaves the data plane as it is.
    pub async fn leave(&self) -> Result<(), Stopped> {
        self.ask(Request::Leave).await
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stopped> {
        let (sender, receiver) = oneshot::channel();
        self.requests.send(request(sender)).await.map_err(|_| Stopped)?;
        receiver.await.map_err(|_| Stopped)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
