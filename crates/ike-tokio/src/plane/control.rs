//! A data plane on a thread of its own, because it may wait for the kernel. A data plane that never waits is
//! called directly.
//!
//! The driver also waits before it goes on with the engine's outputs, so that they are executed in their order.
//! But it does not block the thread it runs on, nor the other tasks there. Counters of many SAs are read a few at
//! a time, so that commands need not wait for all of them.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ike_proto::dataplane::{
    Capabilities, Command, DataPlane, DataPlaneError, Event, Reply, SaId, Usage, apply_all,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A request to the thread.
enum Job {
    Apply(Vec<Command>, oneshot::Sender<Result<Vec<Reply>, DataPlaneError>>),
    Usage(Vec<SaId>, oneshot::Sender<Vec<Usage>>),
    Events(oneshot::Sender<Vec<Event>>),
    Pulse(oneshot::Sender<()>),
    Abandon,
}

/// SAs whose counters are asked for at a time.
const COUNTED: usize = 64;

/// Events taken at a time, so that a flood of them holds up neither commands nor peers.
pub(crate) const AT_A_TIME: usize = 64;

/// A driver's end of it; drivers of several shards have clones.
#[derive(Clone)]
pub(crate) struct Control {
    handle: PlaneHandle,
    /// None if there is no need of one.
    thread: Arc<Option<JoinHandle<()>>>,
    /// The end leaves policies in place.
    keep_blocks: bool,
    /// It could not be emptied.
    kept: Arc<AtomicBool>,
}

/// Reads the counters of SAs from the data plane. The data plane exists as long as one of its handles exists.
#[derive(Clone)]
pub struct PlaneHandle(Way);

impl fmt::Debug for PlaneHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaneHandle")
    }
}

/// How long a data plane with thousands of SAs may need on a busy host to be emptied.
const EMPTIED: Duration = Duration::from_secs(6);

/// Since when the thread is at its present command.
#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<Option<Instant>>);

impl Busy {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// How long it has been at it. `None` if it waits for one.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }
}

/// How the data plane is reached.
#[derive(Clone)]
enum Way {
    Thread(mpsc::UnboundedSender<Job>),
    Here(Arc<Mutex<Box<dyn DataPlane + Send>>>),
}

impl Control {
    /// Moves `plane` to a thread, unless it never waits. Must be called in a tokio runtime.
    /// At the end policies stay if `keep_blocks` is set. `busy` tells others what the thread is at.
    pub(crate) fn start(
        plane: Box<dyn DataPlane + Send>,
        waits: bool,
        keep_blocks: bool,
        busy: Arc<Busy>,
    ) -> Self {
        if !waits {
            let handle = PlaneHandle(Way::Here(Arc::new(Mutex::new(plane))));
            return Self { handle, thread: Arc::new(None), keep_blocks, kept: Arc::default() };
        }
        let (jobs, mut inbox) = mpsc::unbounded_channel();
        let thread = tokio::task::spawn_blocking(move || {
            // A panic must not drop it: what it has in the system keeps traffic in.
            let mut plane = ManuallyDrop::new(plane);
            let mut abandoned = false;
            while let Some(job) = inbox.blocking_recv() {
                match job {
                    Job::Abandon => abandoned = true,
                    job => run(&mut Timed { plane: plane.as_mut(), busy: &busy }, job),
                }
            }
            if !abandoned {
                drop(ManuallyDrop::into_inner(plane));
            }
        });
        let thread = Arc::new(Some(thread));
        let handle = PlaneHandle(Way::Thread(jobs));
        Self { handle, thread, keep_blocks, kept: Arc::default() }
    }

    /// Applies a batch in order and stops at the first failure.
    pub(crate) async fn apply(&self, batch: Vec<Command>) -> Result<Vec<Reply>, DataPlaneError> {
        self.handle.apply(batch).await
    }

    /// Asks for counters while the driver goes on.
    pub(crate) fn handle(&self) -> &PlaneHandle {
        &self.handle
    }

    /// The events that are due, up to [`AT_A_TIME`]; if there are as many there may be more.
    pub(crate) async fn events(&self) -> Vec<Event> {
        self.handle.ask(Job::Events).await.unwrap_or_default()
    }

    /// From now on the data plane is never dropped: what it has in the system stays until this process ends, and
    /// longer if the system keeps it.
    pub(crate) fn abandon(&self) {
        match &self.handle.0 {
            // A thread that is no more has not dropped it either.
            Way::Thread(jobs) => _ = jobs.send(Job::Abandon),
            Way::Here(plane) => std::mem::forget(Arc::clone(plane)),
        }
    }

    /// Set once [`close`](Self::close) has not been able to empty the data plane.
    pub(crate) fn kept(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.kept)
    }

    /// Flushes the data plane, unless `leave` is set, and waits until its thread has ended and released all
    /// resources. Of several drivers the last one does this.
    pub(crate) async fn close(self, leave: bool) {
        let Self { handle, thread, keep_blocks, kept } = self;
        let Some(thread) = Arc::into_inner(thread) else { return };
        let end = if keep_blocks { Command::RemoveSas } else { Command::Flush };
        if !leave && let Err(error) = handle.apply(vec![end]).await {
            tracing::error!(%error, "data plane not emptied: what stays on the host may block traffic");
            kept.store(true, Ordering::Relaxed);
        }
        drop(handle);
        if let Some(thread) = thread
            && let Err(error) = thread.await
        {
            tracing::error!(%error, "thread of the data plane failed: what it has put on the host stays");
            kept.store(true, Ordering::Relaxed);
        }
    }
}

impl PlaneHandle {
    async fn apply(&self, batch: Vec<Command>) -> Result<Vec<Reply>, DataPlaneError> {
        let died = || DataPlaneError("the thread of the data plane has ended".to_owned());
        self.ask(|answer| Job::Apply(batch, answer)).await.unwrap_or_else(|| Err(died()))
    }

    /// The counters of SAs, in the order of `ids`; zero for an SA that does not exist.
    pub async fn usage(&self, ids: &[SaId]) -> Vec<Usage> {
        let mut counted = Vec::with_capacity(ids.len());
        for few in ids.chunks(COUNTED) {
            let answer = self.ask(|answer| Job::Usage(few.to_vec(), answer)).await;
            counted.extend(answer.unwrap_or_else(|| vec![Usage::default(); few.len()]));
        }
        counted
    }

    /// True once the thread has done what it was asked for before.
    pub(crate) async fn pulse(&self) -> bool {
        self.ask(Job::Pulse).await.is_some()
    }

    /// `None` if the thread is no more.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let job = job(sender);
        match &self.0 {
            Way::Thread(jobs) => jobs.send(job).ok()?,
            Way::Here(plane) => {
                run(plane.lock().unwrap_or_else(PoisonError::into_inner).as_mut(), job);
            }
        }
        receiver.await.ok()
    }
}

/// A data plane whose commands are timed.
struct Timed<'a> {
    plane: &'a mut (dyn DataPlane + Send),
    busy: &'a Busy,
}

impl Timed<'_> {
    fn timed<T>(&mut self, work: impl FnOnce(&mut dyn DataPlane) -> T) -> T {
        self.timed_after(Duration::ZERO, work)
    }

    /// As [`Self::timed`], for work that may well take `usual`: only more counts as busy.
    fn timed_after<T>(&mut self, usual: Duration, work: impl FnOnce(&mut dyn DataPlane) -> T) -> T {
        self.busy.set(Some(Instant::now() + usual));
        let done = work(self.plane);
        self.busy.set(None);
        done
    }
}

impl DataPlane for Timed<'_> {
    fn capabilities(&self) -> Capabilities {
        self.plane.capabilities()
    }

    fn apply(&mut self, command: Command) -> Result<Reply, DataPlaneError> {
        let usual = match command {
            Command::Flush | Command::RemoveSas => EMPTIED,
            _ => Duration::ZERO,
        };
        self.timed_after(usual, |plane| plane.apply(command))
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.timed(|plane| plane.poll_event())
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
        Job::Pulse(answer) => _ = answer.send(()),
        // The thread's own loop does it.
        Job::Abandon => {}
        Job::Events(answer) => {
            _ = answer.send(std::iter::from_fn(|| plane.poll_event()).take(AT_A_TIME).collect());
        }
    }
}
