//! A data plane on a thread of its own, for it may wait for the kernel.
//!
//! The driver waits too before it goes on with the engine's outputs, so that their order means what it
//! says; but it does not hold up the thread it runs on, and with it others' tasks. Counters of many SAs are
//! asked for a few at a time, so that commands need not wait for all of them.

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

/// SAs whose counters are asked for at a time.
const COUNTED: usize = 64;

/// Events taken at a time, so that a flood of them holds up neither commands nor peers.
pub(crate) const AT_A_TIME: usize = 64;

/// The driver's end of it.
pub(crate) struct Control {
    line: Line,
    thread: JoinHandle<()>,
}

/// What somebody can ask of the data plane beside the driver. The thread lasts as long as any of them.
#[derive(Clone)]
pub(crate) struct Line(mpsc::UnboundedSender<Job>);

impl Control {
    /// Moves `plane` to a thread. Must be called in a tokio runtime.
    pub(crate) fn start(mut plane: Box<dyn DataPlane + Send>) -> Self {
        let (jobs, mut inbox) = mpsc::unbounded_channel();
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(job) = inbox.blocking_recv() {
                run(plane.as_mut(), job);
            }
        });
        Self { line: Line(jobs), thread }
    }

    /// Applies a batch in order and stops at the first failure.
    pub(crate) async fn apply(&self, batch: Vec<Command>) -> Result<Vec<Reply>, DataPlaneError> {
        let died = || DataPlaneError("the data plane has died".to_owned());
        self.line.ask(|answer| Job::Apply(batch, answer)).await.unwrap_or_else(|| Err(died()))
    }

    /// A way to ask for counters while the driver goes on.
    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }

    /// The events that are due, up to [`AT_A_TIME`]; if there are as many there may be more.
    pub(crate) async fn events(&self) -> Vec<Event> {
        self.line.ask(Job::Events).await.unwrap_or_default()
    }

    /// Empties the data plane unless it is to be left as it is, and waits until it is gone with all that
    /// it had in the system.
    pub(crate) async fn close(self, leave: bool) {
        if !leave && let Err(error) = self.apply(vec![Command::Flush]).await {
            tracing::warn!(%error, "data plane not emptied");
        }
        let Self { line, thread } = self;
        drop(line);
        if let Err(error) = thread.await {
            tracing::error!(%error, "data plane");
        }
    }
}

impl Line {
    /// The counters of SAs, in their order; zero for one that is just being made or removed.
    pub(crate) async fn usage(&self, ids: &[SaId]) -> Vec<Usage> {
        let mut counted = Vec::with_capacity(ids.len());
        for few in ids.chunks(COUNTED) {
            let answer = self.ask(|answer| Job::Usage(few.to_vec(), answer)).await;
            counted.extend(answer.unwrap_or_else(|| vec![Usage::default(); few.len()]));
        }
        counted
    }

    /// `None` if the thread is no more.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(job(sender)).ok()?;
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
            _ = answer.send(std::iter::from_fn(|| plane.poll_event()).take(AT_A_TIME).collect());
        }
    }
}
