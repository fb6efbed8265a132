//! A data plane on a thread of its own, for it may wait for the kernel.
//!
//! The driver waits too before it goes on with the engine's outputs, so that their order means what it
//! says; but it does not hold up the thread it runs on, and with it others' tasks.

use ike_proto::dataplane::{
    Command, DataPlane, DataPlaneError, Event, Reply, SaId, Usage, apply_all,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// What the thread is asked for.
enum Job {
    Apply(Vec<Command>, oneshot::Sender<Result<Vec<Reply>, DataPlaneError>>),
    Usage(Vec<SaId>, oneshot::Sender<Vec<Usage>>),
    Events(oneshot::Sender<Vec<Event>>),
}

/// The driver's end of it.
pub(crate) struct Control {
    jobs: mpsc::UnboundedSender<Job>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Moves `plane` to a thread. Must be called in a tokio runtime.
    pub(crate) fn start(mut plane: Box<dyn DataPlane + Send>) -> Self {
        let (jobs, mut inbox) = mpsc::unbounded_channel();
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(job) = inbox.blocking_recv() {
                run(plane.as_mut(), job);
            }
        });
        Self { jobs, thread }
    }

    /// Applies a batch in order and stops at the first failure.
    pub(crate) async fn apply(&self, batch: Vec<Command>) -> Result<Vec<Reply>, DataPlaneError> {
        let died = || DataPlaneError("the data plane has died".to_owned());
        self.ask(|answer| Job::Apply(batch, answer)).await.unwrap_or_else(|| Err(died()))
    }

    /// The counters of SAs, in their order; zero for one that is just being made or removed.
    pub(crate) async fn usage(&self, ids: Vec<SaId>) -> Vec<Usage> {
        self.ask(|answer| Job::Usage(ids, answer)).await.unwrap_or_default()
    }

    /// The events that are due.
    pub(crate) async fn events(&self) -> Vec<Event> {
        self.ask(Job::Events).await.unwrap_or_default()
    }

    /// Empties the data plane, and waits until it is gone with all that it had in the system.
    pub(crate) async fn close(self) {
        if let Err(error) = self.apply(vec![Command::Flush]).await {
            tracing::warn!(%error, "data plane not emptied");
        }
        let Self { jobs, thread } = self;
        drop(jobs);
        if let Err(error) = thread.await {
            tracing::error!(%error, "data plane");
        }
    }

    /// `None` if the thread is no more.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.jobs.send(job(sender)).ok()?;
        receiver.await.ok()
    }
}

/// Who asked may have gone away.
fn run(plane: &mut dyn DataPlane, job: Job) {
    match job {
        Job::Apply(batch, answer) => _ = answer.send(apply_all(plane, batch)),
        Job::Usage(ids, answer) => {
            let usage = |id| match plane.apply(Command::QueryUsage(id)) {
                Ok(Reply::Usage(_, usage)) => usage,
                _ => Usage::default(),
            };
            _ = answer.send(ids.into_iter().map(usage).collect());
        }
        Job::Events(answer) => {
            _ = answer.send(std::iter::from_fn(|| plane.poll_event()).collect());
        }
    }
}
