//! The loop between the sockets, the data plane and the engine: one shard.
//!
//! A [`Driver`] owns an [`Endpoint`] and everything that the endpoint's outputs need. It shares with other drivers
//! only the state that it is given ([`SharedParts`], `shards.rs`). The program talks to all drivers through a
//! [`Handle`](crate::handle::Handle).

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use esp::io::IkeDatagram;
use ike_proto::{Endpoint, Event, IkeState, Input, Path, RequestId, StreamEvent};
use tokio::sync::{Mutex, Notify, broadcast, mpsc, oneshot};

use crate::clock::{self, now};
use crate::delegate::{Answerer, Observer};
use crate::handle::{Outcome, Request};
use crate::plane::{AT_A_TIME, Control, Shunts};
use crate::report::{self, Counters, Direction, Message};
use crate::shards::{self, Arrived, Lines, News, WAITING};
use crate::sockets::Sockets;
use crate::streams;
use pressure::{Pressure, Source};
use receive::Receiver;

mod events;
mod log;
mod outputs;
mod pmtu;
mod pressure;
mod questions;
mod receive;
mod requests;
mod run;
mod wanted;

pub use wanted::Wanted;

/// Datagrams after which the runtime has its turn: a flood is not to keep its other tasks, and its look at
/// other sockets, waiting until this task has used up its budget of a hundred batches.
const IN_A_ROW: u32 = 32;

/// What all drivers of a host have in common.
#[derive(Clone)]
pub(crate) struct SharedParts {
    pub(crate) control: Control,
    pub(crate) shunts: Arc<Mutex<Shunts>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: broadcast::Sender<Event>,
    pub(crate) wanted: mpsc::UnboundedSender<Wanted>,
    pub(crate) answerer: Arc<dyn Answerer>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tap: Option<mpsc::UnboundedSender<Message>>,
}

/// What one driver has of the program around it.
pub(crate) struct ShardParts {
    pub(crate) lines: Lines,
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) common: SharedParts,
    /// Rung for the first driver only, which hands on what the data plane reports.
    pub(crate) bell: Arc<Notify>,
    /// IKE from the data plane's sockets; the first driver has it, and hands it on.
    pub(crate) ike: Option<mpsc::Receiver<IkeDatagram>>,
}

/// One shard: an endpoint and its surroundings.
pub(crate) struct Driver {
    endpoint: Endpoint,
    plane: Control,
    shunts: Arc<Mutex<Shunts>>,
    counters: Arc<Counters>,
    /// Our SPI and the connection of the message that came last, if it had one.
    last_in: Option<(u64, String)>,
    lines: Lines,
    bell: Arc<Notify>,
    ike: Option<mpsc::Receiver<IkeDatagram>>,
    sockets: Sockets,
    mtus: pmtu::PathMtus,
    /// What is about to leave.
    run: run::Run,
    answerer: Arc<dyn Answerer>,
    answering: mpsc::UnboundedSender<questions::Answered>,
    answers: mpsc::UnboundedReceiver<questions::Answered>,
    /// Taken out while its datagrams are handled.
    receiver: Option<Receiver>,
    pressure: Pressure,
    /// Datagrams taken since the runtime had its turn.
    in_a_row: u32,
    streams: Option<mpsc::Receiver<streams::Happened>>,
    requests: mpsc::Receiver<Request>,
    events: broadcast::Sender<Event>,
    wanted: mpsc::UnboundedSender<Wanted>,
    tap: Option<mpsc::UnboundedSender<Message>>,
    pending: HashMap<RequestId, oneshot::Sender<Outcome>>,
    last_request: u64,
    deadline: Option<Instant>,
    stopping: Option<(RequestId, oneshot::Sender<()>)>,
    /// Nothing is left to do here.
    ending: bool,
    stopped: bool,
    leaving: Option<oneshot::Sender<()>>,
    log: log::Log,
    observer: Arc<dyn Observer>,
}

impl Driver {
    /// The driver of `endpoint` over `sockets`. Must be called in the tokio runtime in which it is to run.
    pub(crate) fn new(endpoint: Endpoint, mut sockets: Sockets, parts: ShardParts) -> Self {
        // One question for each IKE SA that is being made, and those are bounded.
        let (answering, answers) = mpsc::unbounded_channel();
        let receiver = Some(Receiver::new(&sockets));
        let streams = sockets.start_streams();
        let ShardParts { lines, requests, bell, ike, common } = parts;
        let SharedParts { control, shunts, counters, events, wanted, answerer, observer, tap } =
            common;
        Self {
            counters,
            last_in: None,
            shunts,
            lines,
            endpoint,
            plane: control,
            bell,
            ike,
            mtus: pmtu::PathMtus::new(sockets.options()),
            run: run::Run::default(),
            sockets,
            answerer,
            answering,
            answers,
            receiver,
            pressure: Pressure::default(),
            in_a_row: 0,
            streams,
            requests,
            events,
            wanted,
            tap,
            pending: HashMap::new(),
            last_request: 0,
            deadline: None,
            stopping: None,
            ending: false,
            stopped: false,
            leaving: None,
            log: log::Log::default(),
            observer,
        }
    }

    /// Runs until a shutdown was asked for and done, or all handles are gone.
    pub(crate) async fn run(mut self) {
        self.shunts.lock().await.arm_first(&self.plane).await;
        self.drain().await;
        let mut timer = std::pin::pin!(tokio::time::sleep(clock::LONGEST_SLEEP));
        while !self.stopped {
            // Not left to the choice below, where a flood of datagrams would always come first.
            let turn = now();
            if self.deadline.is_some_and(|deadline| deadline <= turn.mono) {
                self.endpoint.handle(turn, Input::Timeout);
                self.drain().await;
            }
            for (path, octets) in self.mtus.check(turn.mono) {
                self.endpoint.handle(now(), Input::PathMtu(path, octets));
                self.drain().await;
            }
            self.look_at_queues(turn.mono);
            let suppressed = self.log.summarise(turn.mono);
            if suppressed > 0 {
                self.observer.suppressed(suppressed);
            }
            let relieved = self.pressure.judge(turn.mono);
            self.pressed(relieved);
            let own = [self.mtus.next(), self.pressure.next(), self.log.next()];
            let paused = self.receiver.as_ref().and_then(Receiver::next);
            let own = own.into_iter().chain([paused]).flatten();
            let deadline = self.deadline.into_iter().chain(own).min();
            if let Some(deadline) = deadline {
                let wake = tokio::time::Instant::now() + clock::until(now().mono, deadline);
                // A turn too early does nothing, and to move the timer costs something.
                if timer.is_elapsed() || timer.deadline() > wake + clock::SLACK {
                    timer.as_mut().reset(wake);
                }
            }
            let bell = Arc::clone(&self.bell);
            let ending = self.ending.then(|| self.lines.all_ended());
            tokio::select! {
                biased;
                request = self.requests.recv() => match request {
                    Some(request) => self.request(request).await,
                    None => break,
                },
                () = bell.notified() => {
                    self.plane_events().await;
                    self.sockets_turn().await;
                }
                Some(answered) = self.answers.recv() => self.answered(answered),
                Some(news) = self.lines.heard.recv(), if self.lines.several() => {
                    self.heard(news);
                    self.sockets_turn().await;
                }
                index = readable(self.receiver.as_ref()) => self.receive(index).await,
                Some(datagram) = next(&mut self.ike) => {
                    self.steer(datagram.into());
                    self.waiting_stream();
                }
                Some(datagram) = self.lines.handed_over.recv(), if self.lines.several() => {
                    self.datagram(datagram.path, &datagram.octets);
                    self.waiting_stream();
                }
                Some(()) = conclude(ending), if self.ending => self.stopped = true,
                Some(happened) = next(&mut self.streams) => self.stream(happened),
                // The code above handles due timers.
                () = &mut timer, if deadline.is_some() => {}
            }
            self.drain().await;
        }
        // The time for the peers is not that of the data plane.
        if let Some((_, confirmed)) = self.stopping.filter(|_| self.ending) {
            let _ = confirmed.send(());
        }
        self.plane.close(self.leaving.is_some()).await;
        if let Some(left) = self.leaving {
            let _ = left.send(());
        }
    }

    /// Takes a batch from a socket. Its messages are handled one by one.
    async fn receive(&mut self, index: usize) {
        let Some(mut receiver) = self.receiver.take() else { return };
        let taken = now().mono;
        let more = receiver.take(index, taken);
        let changed = self.pressure.taken(Source::Socket(index), taken, more);
        self.pressed(changed);
        for (path, octets) in receiver.messages(index) {
            match self.lines.other(octets) {
                Some(other) => {
                    self.lines.hand_over(other, Arrived { path, octets: octets.to_vec() });
                }
                None => {
                    self.datagram(path, octets);
                    self.drain().await;
                }
            }
            self.others_turn().await;
            self.in_a_row += 1;
        }
        self.receiver = Some(receiver);
        if self.in_a_row >= IN_A_ROW {
            self.in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }

    /// What others have received waits in queues.
    fn look_at_queues(&mut self, now: Instant) {
        let many = |waiting: usize| waiting > WAITING / 2;
        let ike = self.ike.as_ref().is_some_and(|ike| many(ike.len()));
        let handed_over = many(self.lines.handed_over.len());
        for (source, more) in [(Source::DataPlane, ike), (Source::Shards, handed_over)] {
            let changed = self.pressure.taken(source, now, more);
            self.pressed(changed);
        }
    }

    /// A batch from a socket, if there is any, and one of each of what else brings datagrams: no flood of
    /// events is to keep peers out.
    async fn sockets_turn(&mut self) {
        self.drain().await;
        let ready = |context: &mut Context<'_>| {
            let receiver = self.receiver.as_ref();
            Poll::Ready(receiver.map(|receiver| receiver.poll_readable(context, now().mono)))
        };
        if let Some(Poll::Ready(index)) = std::future::poll_fn(ready).await {
            self.receive(index).await;
        }
        self.others_turn().await;
    }

    /// Tells the engine whether this shard is behind, if that has changed.
    fn pressed(&mut self, behind: Option<bool>) {
        if let Some(behind) = behind {
            tracing::debug!(behind, "backlog of the sockets");
            self.endpoint.handle(now(), Input::Behind(behind));
        }
    }

    /// One of each of what does not come by this driver's own sockets: peers there are not to wait for a
    /// flood on these to end.
    async fn others_turn(&mut self) {
        if let Some(datagram) = self.ike.as_mut().and_then(|ike| ike.try_recv().ok()) {
            self.steer(datagram.into());
        }
        if let Ok(Arrived { path, octets }) = self.lines.handed_over.try_recv() {
            self.datagram(path, &octets);
        }
        self.waiting_stream();
        self.drain().await;
    }

    /// Takes a datagram, or hands it to the shard that it is for.
    fn steer(&mut self, datagram: Arrived) {
        match self.lines.other(&datagram.octets) {
            Some(other) => self.lines.hand_over(other, datagram),
            None => self.datagram(datagram.path, &datagram.octets),
        }
    }

    /// What another shard has to say.
    fn heard(&mut self, news: News) {
        match news {
            News::Notice(ike, notice) => self.endpoint.handle(now(), Input::Notice(ike, notice)),
            News::Plane(event) => self.endpoint.handle(now(), Input::DataPlane(event)),
            News::Trap { connection, child, local, remote } => {
                let command = ike_proto::Command::InstallTrap { connection, child, local, remote };
                let id = self.next_request();
                self.endpoint.handle(now(), Input::Command(id, command));
            }
        }
    }

    fn datagram(&mut self, path: Path, octets: &[u8]) {
        self.trace(Direction::In, path, false, octets);
        self.observer.received(octets);
        self.count(true, octets);
        self.endpoint.handle(now(), Input::Datagram(path, octets));
    }

    /// Counts a message, for its connection as well once that is certain.
    fn count(&mut self, incoming: bool, octets: &[u8]) {
        let Some(kind) = report::kind(incoming, octets) else { return };
        let spi = report::own_spi(incoming, octets);
        let brief = spi.and_then(|spi| self.endpoint.brief_by_spi(spi));
        // A responder's connection is a guess until its peer is authenticated.
        let certain = brief.filter(|sa| sa.initiator || sa.state != IkeState::Connecting);
        match (certain, &self.last_in) {
            (Some(sa), _) => self.counters.message(kind, sa.connection),
            // The answer to what has ended its SA.
            (None, Some((last, connection))) if !incoming && spi == Some(*last) => {
                self.counters.message(kind, connection);
            }
            _ => self.counters.message(kind, ""),
        }
        if incoming {
            let sa = certain.zip(spi).map(|(sa, spi)| (spi, sa.connection));
            match (sa, &mut self.last_in) {
                (Some((spi, name)), Some((last, known))) if known == name => *last = spi,
                (sa, last) => *last = sa.map(|(spi, name)| (spi, name.to_owned())),
            }
        }
    }

    /// What waits of TCP connections, one at a time.
    fn waiting_stream(&mut self) {
        if let Some(happened) = self.streams.as_mut().and_then(|streams| streams.try_recv().ok()) {
            self.stream(happened);
        }
    }

    fn stream(&mut self, happened: streams::Happened) {
        if !self.sockets.streams().is_news(&happened) {
            return;
        }
        let path = happened.path;
        match happened.what {
            streams::What::Message(octets) => {
                self.trace(Direction::In, path, false, &octets);
                self.observer.received(&octets);
                self.count(true, &octets);
                self.endpoint.handle(now(), Input::Datagram(path, &octets));
            }
            streams::What::Opened(local) => {
                tracing::info!(%local, remote = %path.remote, "TCP connection open");
                self.endpoint.handle(now(), Input::Stream(path, StreamEvent::Opened(local)));
            }
            streams::What::Closed(why) => {
                self.log.stream_closed(now().mono, &path, &why);
                self.endpoint.handle(now(), Input::Stream(path, StreamEvent::Closed(why)));
            }
        }
    }

    async fn plane_events(&mut self) {
        let events = self.plane.events().await;
        if events.len() == AT_A_TIME {
            // There may be more, and what there is already rings no bell.
            self.bell.notify_one();
        }
        for event in shards::newest_mappings(events) {
            if self.lines.plane_event(&event) {
                self.endpoint.handle(now(), Input::DataPlane(event));
            }
        }
    }

    fn trace(&self, direction: Direction, path: Path, again: bool, octets: &[u8]) {
        let wanted = self.tap.is_some() || tracing::enabled!(tracing::Level::DEBUG);
        if !wanted {
            return;
        }
        let Some(message) = Message::read(now().mono, direction, path, again, octets) else {
            return;
        };
        tracing::debug!("{message}");
        if let Some(tap) = &self.tap {
            let _ = tap.send(message);
        }
    }
}

/// Messages that the data plane received, if it receives at all.
async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

/// The number of a socket at which something has arrived.
async fn readable(receiver: Option<&Receiver>) -> usize {
    let readable = |context: &mut Context<'_>| match receiver {
        Some(receiver) => receiver.poll_readable(context, now().mono),
        None => Poll::Pending,
    };
    std::future::poll_fn(readable).await
}

/// Ready when the future is, if there is one.
async fn conclude(end: Option<impl Future<Output = ()>>) -> Option<()> {
    end?.await;
    Some(())
}
