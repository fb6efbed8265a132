//! The loop between the sockets, the data plane and the engine: one shard.
//!
//! A [`Driver`] owns an [`Endpoint`] and everything the endpoint's outputs need; it shares nothing
//! with another driver but what it is given. The rest of the daemon talks to it by a [`Handle`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use esp::io::IkeDatagram;
use ike_proto::{
    Answer, Endpoint, Event, Input, Output, Path, Question, RequestId, StreamCommand, StreamEvent,
    Ticket, Transmit, Transport,
};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

use crate::operator::Target;
use crate::plane::Plane;
use crate::plane::control::{AT_A_TIME, Control};
use shunts::Shunts;

mod clock;
mod handle;
mod log;
mod pmtu;
mod questions;
mod receive;
mod shunts;
mod sockets;
mod streams;
mod trace;
mod usage;

pub(crate) use clock::now;
pub use handle::{Handle, Outcome, Stopped};
pub use questions::Credentials;
pub(crate) use receive::WAITING;
pub use sockets::{Listen, Sockets};
pub use trace::{Direction, Message};
pub use usage::{ChildView, IkeView};

/// Requests that may wait for the driver.
const REQUESTS: usize = 64;
/// Events that a slow listener may be behind.
const EVENTS: usize = 4096;

/// What a driver is asked to do.
pub(crate) enum Request {
    /// Feed the engine a command and answer with what became of it.
    Command(ike_proto::Command, oneshot::Sender<Outcome>),
    /// Describe the SAs.
    List(oneshot::Sender<Vec<IkeView>>),
    /// Let the traffic of children that are not up go again; the number of them.
    Lift(Target, oneshot::Sender<usize>),
    /// Delete every SA at the peers, then stop.
    Shutdown(oneshot::Sender<()>),
    /// Stop now, and empty the data plane.
    Stop,
    /// Stop without a word to the peers, and leave the data plane as it is.
    Leave(oneshot::Sender<()>),
}

/// One shard: an endpoint and its surroundings.
pub struct Driver {
    endpoint: Endpoint,
    plane: Control,
    shunts: Shunts,
    bell: Arc<Notify>,
    ike: Option<mpsc::Receiver<IkeDatagram>>,
    sockets: Sockets,
    mtus: pmtu::PathMtus,
    credentials: Credentials,
    answering: mpsc::UnboundedSender<questions::Answered>,
    answers: mpsc::UnboundedReceiver<questions::Answered>,
    arrived: mpsc::Receiver<receive::Arrived>,
    streams: Option<mpsc::Receiver<streams::Happened>>,
    requests: mpsc::Receiver<Request>,
    events: broadcast::Sender<Event>,
    tap: Option<mpsc::UnboundedSender<Message>>,
    pending: HashMap<RequestId, oneshot::Sender<Outcome>>,
    last_request: u64,
    deadline: Option<Instant>,
    stopping: Option<(RequestId, oneshot::Sender<()>)>,
    stopped: bool,
    leaving: Option<oneshot::Sender<()>>,
    log: log::Log,
}

impl Driver {
    /// A driver of `endpoint` over `sockets` and `plane`, which signs and judges by `credentials`, and
    /// the handle to it. Must be called in a tokio runtime, for it starts the receiving tasks.
    pub fn new(
        endpoint: Endpoint,
        mut sockets: Sockets,
        plane: Plane,
        credentials: Credentials,
    ) -> (Self, Handle) {
        // One question for each IKE SA that is being made, and those are bounded.
        let (answering, answers) = mpsc::unbounded_channel();
        let arrived = receive::start(&sockets);
        let streams = sockets.start_streams();
        let (request_sender, requests) = mpsc::channel(REQUESTS);
        let (events, _) = broadcast::channel(EVENTS);
        let handle = Handle::new(request_sender, events.clone());
        let Plane { control, bell, ike, lost: _, adopted } = plane;
        let driver = Self {
            shunts: Shunts::new(endpoint.config(), adopted),
            endpoint,
            plane: Control::start(control),
            bell,
            ike,
            mtus: pmtu::PathMtus::new(sockets.options()),
            sockets,
            credentials,
            answering,
            answers,
            arrived,
            streams,
            requests,
            events,
            tap: None,
            pending: HashMap::new(),
            last_request: 0,
            deadline: None,
            stopping: None,
            stopped: false,
            leaving: None,
            log: log::Log::default(),
        };
        (driver, handle)
    }

    /// Tells every IKE message sent and received to `tap`.
    pub fn set_tap(&mut self, tap: mpsc::UnboundedSender<Message>) {
        self.tap = Some(tap);
    }

    /// Runs until a shutdown was asked for and done, or all handles are gone.
    pub async fn run(mut self) {
        self.shunts.arm_first(&self.plane).await;
        self.drain().await;
        while !self.stopped {
            // Not left to the choice below, where a flood of datagrams would always come first.
            if self.deadline.is_some_and(|deadline| deadline <= now().mono) {
                self.endpoint.handle(now(), Input::Timeout);
                self.drain().await;
            }
            for (path, octets) in self.mtus.check(now().mono) {
                self.endpoint.handle(now(), Input::PathMtu(path, octets));
                self.drain().await;
            }
            let deadline = self.deadline.into_iter().chain(self.mtus.next()).min();
            let bell = Arc::clone(&self.bell);
            tokio::select! {
                biased;
                request = self.requests.recv() => match request {
                    Some(request) => self.request(request).await,
                    None => break,
                },
                () = bell.notified() => self.plane_events().await,
                Some(answered) = self.answers.recv() => self.answered(answered),
                Some(datagram) = self.arrived.recv() => {
                    self.datagram(&datagram);
                    // Nor are the peers on the other ports to wait for a flood on this one to end.
                    if let Some(datagram) = self.ike.as_mut().and_then(|ike| ike.try_recv().ok()) {
                        self.datagram(&datagram.into());
                    }
                    self.waiting_stream();
                }
                Some(datagram) = next(&mut self.ike) => {
                    self.datagram(&datagram.into());
                    self.waiting_stream();
                }
                Some(happened) = next(&mut self.streams) => self.stream(happened),
                // What is due is seen above.
                () = sleep_until(deadline) => {}
            }
            self.drain().await;
        }
        self.plane.close(self.leaving.is_some()).await;
        for answer in self.stopping.map(|(_, answer)| answer).into_iter().chain(self.leaving) {
            let _ = answer.send(());
        }
    }

    async fn request(&mut self, request: Request) {
        match request {
            Request::Command(mut command, answer) => {
                if let ike_proto::Command::Reload(config) = &mut command {
                    // As it was at the start, whatever the file says by now.
                    config.accepts_tcp = self.sockets.tcp_port().is_some();
                    self.shunts.reload(config, &self.plane).await;
                }
                let id = self.next_request();
                self.pending.insert(id, answer);
                self.endpoint.handle(now(), Input::Command(id, command));
            }
            Request::List(answer) => {
                let mut all = self.endpoint.ike_sas();
                for status in &mut all {
                    // The engine's name of a connection has no port of this end; nor has one that is not
                    // open.
                    let path = &mut status.path;
                    let accepted = self.sockets.tcp_port() == Some(path.local.port());
                    match self.sockets.streams().local(path) {
                        _ if path.transport != Transport::Tcp => {}
                        Some(local) => path.local = local,
                        None if accepted => {}
                        None => path.local.set_port(0),
                    }
                }
                let views = usage::views(all, self.plane.line(), now().mono);
                // A task, for the counters of many SAs take long. The asker may have gone away.
                tokio::spawn(async move {
                    let _ = answer.send(views.await);
                });
            }
            Request::Lift(target, answer) => {
                let _ = answer.send(self.shunts.lift(&target, &self.plane).await);
            }
            Request::Stop => self.stopped = true,
            Request::Leave(answer) => {
                self.leaving = Some(answer);
                self.stopped = true;
            }
            Request::Shutdown(answer) => {
                let id = self.next_request();
                self.stopping = Some((id, answer));
                self.endpoint.handle(now(), Input::Command(id, ike_proto::Command::Shutdown));
            }
        }
    }

    fn datagram(&mut self, datagram: &receive::Arrived) {
        self.trace(Direction::In, datagram.path, false, &datagram.octets);
        self.endpoint.handle(now(), Input::Datagram(datagram.path, &datagram.octets));
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

    /// Does with a TCP connection what the engine wants.
    fn stream_command(&mut self, path: Path, command: StreamCommand) {
        let streams = self.sockets.streams();
        match command {
            StreamCommand::Open => {
                tracing::info!(remote = %path.remote, "IKE goes by TCP: opening a connection");
                streams.open(path);
            }
            StreamCommand::Keep => {
                if !streams.keep(&path) {
                    let ended = StreamEvent::Closed("ended already".to_owned());
                    self.endpoint.handle(now(), Input::Stream(path, ended));
                }
            }
            StreamCommand::Close => {
                tracing::debug!(remote = %path.remote, "TCP connection not needed any more");
                streams.close(&path);
            }
        }
    }

    async fn plane_events(&mut self) {
        let events = self.plane.events().await;
        if events.len() == AT_A_TIME {
            // There may be more, and what there is already rings no bell.
            self.bell.notify_one();
        }
        for event in events {
            self.endpoint.handle(now(), Input::DataPlane(event));
        }
    }

    /// Does all that the engine wants done, in its order.
    async fn drain(&mut self) {
        loop {
            match self.endpoint.poll_output() {
                Output::Transmit(transmit) => {
                    let again = transmit.kind == ike_proto::TransmitKind::Retransmission;
                    if transmit.kind != ike_proto::TransmitKind::KeepAlive {
                        self.trace(Direction::Out, transmit.path, again, &transmit.octets);
                    }
                    self.transmit(&transmit).await;
                }
                Output::Stream(path, command) => self.stream_command(path, command),
                Output::DataPlane(ticket, batch) => {
                    let result = self.plane.apply(batch).await;
                    self.endpoint.handle(now(), Input::Completed(ticket, result));
                }
                Output::Ask(ticket, question) => self.ask(ticket, question),
                Output::Event(event) => self.event(event).await,
                Output::Timeout(deadline) => {
                    self.deadline = deadline;
                    return;
                }
            }
        }
    }

    async fn transmit(&mut self, transmit: &Transmit) {
        let path = transmit.path;
        let mut news = self.mtus.on_transmit(now().mono, transmit);
        if let Err(error) = self.sockets.send(transmit).await {
            if error.raw_os_error() == Some(nix::libc::EMSGSIZE) {
                news = self.mtus.on_too_large(now().mono, &path).or(news);
            }
            self.log.not_sent(now().mono, &path, &error);
        }
        if let Some(octets) = news {
            self.endpoint.handle(now(), Input::PathMtu(path, octets));
        }
    }

    /// Has `question` answered by a task of its own.
    fn ask(&self, ticket: Ticket, question: Question) {
        let (credentials, answering) = (self.credentials.clone(), self.answering.clone());
        tokio::spawn(async move {
            let about = questions::Peer::of(&question);
            let answer = credentials.answer(question).await;
            // The driver may be gone.
            let _ = answering.send(questions::Answered { ticket, about, answer });
        });
    }

    fn answered(&mut self, answered: questions::Answered) {
        let questions::Answered { ticket, about, answer } = answered;
        if let (Some(peer), Answer::Failed(why)) = (&about, &answer) {
            self.log.refused(now().mono, peer, why);
        }
        self.endpoint.handle(now(), Input::Answered(ticket, answer));
    }

    async fn event(&mut self, event: Event) {
        if let Event::ChildUp { ike, child } = event
            && let Some(status) = self.endpoint.ike_sa(ike)
        {
            self.shunts.child_up(status, child, &self.plane).await;
        }
        self.log.event(now().mono, &event, &self.endpoint);
        if let Event::Done(id, outcome) = &event {
            if let Some(answer) = self.pending.remove(id) {
                // The asker may have stopped waiting.
                let _ = answer.send(outcome.clone());
            }
            // Who asked for the end hears of it when the data plane is gone, too.
            self.stopped |= self.stopping.as_ref().is_some_and(|(stop, _)| stop == id);
        }
        // A flood of these would push what listeners wait for out of their queues.
        if !matches!(event, Event::Dropped { .. } | Event::InitRefused { .. }) {
            // Nobody need be listening.
            let _ = self.events.send(event);
        }
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
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

/// What the data plane received, if it receives at all.
async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(clock::until(now().mono, deadline)).await,
        None => std::future::pending().await,
    }
}
