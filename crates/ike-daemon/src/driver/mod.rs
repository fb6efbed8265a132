//! The loop between the sockets, the data plane and the engine: one shard.
//!
//! A [`Driver`] owns an [`Endpoint`] and everything the endpoint's outputs need; it shares nothing
//! with another driver but what it is given (`shards.rs`). The rest of the daemon talks to all of them by
//! a [`Handle`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use esp::io::IkeDatagram;
use ike_proto::dataplane::{SaId, Usage};
use ike_proto::{
    Answer, Endpoint, Event, IkeSaId, IkeStatus, Input, Network, Output, Path, Question, RequestId,
    StreamCommand, StreamEvent, Ticket, Transport,
};
use tokio::sync::{Mutex, Notify, broadcast, mpsc, oneshot};

use crate::metrics::{Meters, ShardState, Tally};
use crate::net::source::source;
use crate::operator::Target;
use crate::plane::control::{AT_A_TIME, Control};
use crate::system::System;
use pressure::{Pressure, Source};
use receive::{Arrived, Receiver};
use shards::{Lines, News};
use shunts::Shunts;

mod clock;
mod counters;
mod handle;
mod log;
mod pmtu;
mod pressure;
mod questions;
mod receive;
mod run;
mod seats;
mod shards;
mod shunts;
mod sockets;
mod streams;
mod trace;
mod usage;

pub(crate) use clock::now;
pub use counters::Counters;
pub use handle::{Handle, Outcome, PAGE, Stopped};
pub use questions::Credentials;
pub(crate) use receive::WAITING;
pub(crate) use seats::{Acquire, Alarm, Common, Seat, run_on_thread, seats};
pub(crate) use shards::part;
pub use sockets::{Listen, Sockets};
pub use trace::{Direction, Message};
pub use usage::{ChildView, IkeView, PolicyView};

/// Requests that may wait for the driver.
const REQUESTS: usize = 64;
/// Events that a slow listener may be behind.
const EVENTS: usize = 4096;

/// Questions that are answered in place for one input; the others of a peer who raises more wait for a task.
const AT_ONCE: u32 = 4;

/// Datagrams after which the runtime has its turn: a flood is not to keep its other tasks, and its look at
/// other sockets, waiting until this task has used up its budget of a hundred batches.
const IN_A_ROW: u32 = 32;

/// What a driver is asked to do.
pub(crate) enum Request {
    /// Feed the engine a command and answer with what became of it.
    Command(ike_proto::Command, oneshot::Sender<Outcome>),
    /// Describe one.
    View(IkeSaId, oneshot::Sender<Option<IkeView>>),
    /// Say what this shard has, in brief.
    State(oneshot::Sender<ShardState>),
    /// Count these SAs.
    Census(Vec<IkeSaId>, oneshot::Sender<Tally>),
    /// The counters of these ESP SAs.
    Usage(Vec<SaId>, oneshot::Sender<Vec<Usage>>),
    /// Answer, if this shard and the data plane are alive.
    Pulse(oneshot::Sender<()>),
    /// The numbers of all, in no order.
    Ids(oneshot::Sender<Vec<IkeSaId>>),
    /// The number of all, and of those that are not established.
    Count(oneshot::Sender<(usize, usize)>),
    /// Describe these, as far as they are there.
    Views(Vec<IkeSaId>, oneshot::Sender<Vec<IkeView>>),
    /// Traps and the daemon's own policies.
    Policies(oneshot::Sender<Vec<PolicyView>>),
    /// Whether there is an IKE SA of this connection with this peer.
    Serves(String, IpAddr, oneshot::Sender<bool>),
    /// This host's addresses are these.
    Network(Arc<[IpAddr]>, oneshot::Sender<()>),
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
    shunts: Arc<Mutex<Shunts>>,
    counters: Arc<Counters>,
    lines: Lines,
    bell: Arc<Notify>,
    ike: Option<mpsc::Receiver<IkeDatagram>>,
    sockets: Sockets,
    mtus: pmtu::PathMtus,
    /// What is about to leave.
    run: run::Run,
    credentials: Credentials,
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
    acquires: mpsc::UnboundedSender<Acquire>,
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
    meters: Option<Meters>,
    system: Option<System>,
}

impl Driver {
    /// The driver of `endpoint` that has `seat`, over `sockets`, which signs and judges by `credentials`.
    /// Must be called in the tokio runtime it is to run in.
    pub(crate) fn new(
        endpoint: Endpoint,
        mut sockets: Sockets,
        seat: Seat,
        credentials: Credentials,
    ) -> Self {
        // One question for each IKE SA that is being made, and those are bounded.
        let (answering, answers) = mpsc::unbounded_channel();
        let receiver = Some(Receiver::new(&sockets));
        let streams = sockets.start_streams();
        let Seat { lines, requests, events, acquires, common, bell, ike } = seat;
        let Common { control, shunts, counters } = common;
        Self {
            counters,
            shunts,
            lines,
            endpoint,
            plane: control,
            bell,
            ike,
            mtus: pmtu::PathMtus::new(sockets.options()),
            run: run::Run::default(),
            sockets,
            credentials,
            answering,
            answers,
            receiver,
            pressure: Pressure::default(),
            in_a_row: 0,
            streams,
            requests,
            events,
            acquires,
            tap: None,
            pending: HashMap::new(),
            last_request: 0,
            deadline: None,
            stopping: None,
            ending: false,
            stopped: false,
            leaving: None,
            log: log::Log::default(),
            meters: None,
            system: None,
        }
    }

    /// Counts what happens.
    pub(crate) fn set_meters(&mut self, meters: Meters) {
        self.meters = Some(meters);
    }

    /// Tells `system` of what concerns the rest of this host.
    pub fn set_system(&mut self, system: System) {
        self.system = Some(system);
    }

    /// Tells every IKE message sent and received to `tap`.
    pub fn set_tap(&mut self, tap: mpsc::UnboundedSender<Message>) {
        self.tap = Some(tap);
    }

    /// Runs until a shutdown was asked for and done, or all handles are gone.
    pub async fn run(mut self) {
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
            if suppressed > 0
                && let Some(meters) = &self.meters
            {
                meters.suppressed(suppressed);
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
                // What is due is seen above.
                () = &mut timer, if deadline.is_some() => {}
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
                    self.shunts.lock().await.reload(config, &self.plane).await;
                    if let Some(system) = &self.system {
                        system.reload(config);
                    }
                }
                let id = self.next_request();
                self.pending.insert(id, answer);
                self.endpoint.handle(now(), Input::Command(id, command));
            }
            Request::View(id, answer) => {
                let views = self.views(self.endpoint.ike_sa(id).into_iter().collect());
                tokio::spawn(async move {
                    let _ = answer.send(views.await.pop());
                });
            }
            Request::State(answer) => _ = answer.send(ShardState::of(&self.endpoint)),
            Request::Census(ids, answer) => _ = answer.send(Tally::of(&self.endpoint, &ids)),
            Request::Usage(ids, answer) => {
                let plane = self.plane.line();
                tokio::spawn(async move { _ = answer.send(plane.usage(&ids).await) });
            }
            Request::Pulse(answer) => {
                let plane = self.plane.line();
                tokio::spawn(async move {
                    if plane.pulse().await {
                        let _ = answer.send(());
                    }
                });
            }
            Request::Ids(answer) => {
                let _ = answer.send(self.endpoint.ike_ids());
            }
            Request::Count(answer) => {
                let _ = answer.send(self.endpoint.counts());
            }
            Request::Views(ids, answer) => {
                let there = ids.into_iter().filter_map(|id| self.endpoint.ike_sa(id));
                let views = self.views(there.collect());
                tokio::spawn(async move {
                    let _ = answer.send(views.await);
                });
            }
            Request::Policies(answer) => {
                let mut policies: Vec<_> =
                    self.endpoint.traps().into_iter().map(PolicyView::Trap).collect();
                // The first shard has them for all.
                if self.endpoint.config().shard.index == 0 {
                    policies.extend(self.shunts.lock().await.all().map(PolicyView::Shunt));
                }
                let _ = answer.send(policies);
            }
            Request::Serves(connection, remote, answer) => {
                let _ = answer.send(self.endpoint.serves(&connection, remote));
            }
            Request::Lift(target, answer) => {
                let lifted = self.shunts.lock().await.lift(&target, &self.plane).await;
                let _ = answer.send(lifted);
            }
            Request::Network(addresses, answer) => {
                self.network(&addresses);
                let _ = answer.send(());
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

    /// Tells the engine where this host is, as far as the sockets can send from there.
    fn network(&mut self, addresses: &[IpAddr]) {
        let own = addresses.iter().copied().filter(|ip| self.sockets.sends_from(*ip));
        let addresses: Vec<_> = own.collect();
        let options = self.sockets.options();
        let peers = self.endpoint.mobile_peers(&addresses);
        let sources = peers.into_iter().filter_map(|peer| {
            let own = source(peer, options).inspect_err(|error| {
                tracing::debug!(%peer, %error, "no way");
            });
            Some((peer, own.ok()?))
        });
        let network = Network { sources: sources.collect(), addresses };
        self.endpoint.handle(now(), Input::Network(&network));
    }

    /// `sas` with their counters.
    fn views(&self, mut sas: Vec<IkeStatus>) -> impl Future<Output = Vec<IkeView>> + use<> {
        for status in &mut sas {
            // The engine's name of a connection has no port of this end; nor has one that is not open.
            let path = &mut status.path;
            let accepted = self.sockets.tcp_port() == Some(path.local.port());
            match self.sockets.streams().local(path) {
                _ if path.transport != Transport::Tcp => {}
                Some(local) => path.local = local,
                None if accepted => {}
                None => path.local.set_port(0),
            }
        }
        usage::views(sas, self.plane.line(), now().mono)
    }

    /// Takes a batch from a socket. What it leads to is done message by message.
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

    /// Tells the engine whether this shard is behind, if that is news.
    fn pressed(&mut self, behind: Option<bool>) {
        if let Some(behind) = behind {
            tracing::debug!(behind, "receiving");
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
        if let Some(meters) = &self.meters {
            meters.received(octets);
        }
        self.counters.message(true, octets);
        self.endpoint.handle(now(), Input::Datagram(path, octets));
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
                if let Some(meters) = &self.meters {
                    meters.received(&octets);
                }
                self.counters.message(true, &octets);
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
        for event in shards::newest_mappings(events) {
            if self.lines.plane_event(&event) {
                self.endpoint.handle(now(), Input::DataPlane(event));
            }
        }
    }

    /// Does all that the engine wants done, in its order.
    async fn drain(&mut self) {
        let mut at_once = AT_ONCE;
        loop {
            let output = self.endpoint.poll_output();
            let joins = matches!(&output, Output::Transmit(transmit) if self.run.takes(transmit));
            let news = !joins && self.run.waits() && self.send().await;
            match output {
                Output::Transmit(transmit) => {
                    let again = transmit.kind == ike_proto::TransmitKind::Retransmission;
                    if transmit.kind == ike_proto::TransmitKind::Ike {
                        self.counters.message(false, &transmit.octets);
                    }
                    if transmit.kind != ike_proto::TransmitKind::KeepAlive {
                        self.trace(Direction::Out, transmit.path, again, &transmit.octets);
                    }
                    if let Some(meters) = &self.meters {
                        meters.sent(&transmit);
                    }
                    self.run.push(transmit);
                }
                Output::Stream(path, command) => self.stream_command(path, command),
                Output::DataPlane(ticket, batch) => {
                    let result = self.plane.apply(batch).await;
                    self.endpoint.handle(now(), Input::Completed(ticket, result));
                }
                Output::Ask(ticket, question) => self.ask(ticket, question, &mut at_once),
                Output::Event(event) => self.event(event).await,
                // The engine was told something, and may have more to do.
                Output::Timeout(_) if news => {}
                Output::Timeout(deadline) => {
                    self.deadline = deadline;
                    return;
                }
            }
        }
    }

    /// Sends what is about to leave. True if the engine was told something by it.
    async fn send(&mut self) -> bool {
        let run = self.run.take();
        let Some(path) = run.first().map(|first| first.path) else { return false };
        let now = now();
        let mut news = None;
        for transmit in &run {
            news = self.mtus.on_transmit(now.mono, transmit).or(news);
        }
        if let Err(error) = self.sockets.send_run(&run).await {
            if error.raw_os_error() == Some(nix::libc::EMSGSIZE) {
                news = self.mtus.on_too_large(now.mono, &path).or(news);
            }
            self.log.not_sent(now.mono, &path, &error);
            if let Some(meters) = &self.meters {
                meters.not_sent();
            }
        }
        self.run.reuse(run);
        if let Some(octets) = news {
            self.endpoint.handle(now, Input::PathMtu(path, octets));
        }
        news.is_some()
    }

    /// Answers `question`, or has it answered by a task of its own; `at_once` is how many more may be
    /// answered here.
    fn ask(&mut self, ticket: Ticket, question: Question, at_once: &mut u32) {
        if *at_once > 0
            && let Some(answer) = self.credentials.answer_at_once(&question)
        {
            *at_once -= 1;
            if let Some(meters) = &self.meters {
                meters.asked(&question, false);
            }
            let failed = matches!(answer, Answer::Failed(_));
            let about = failed.then(|| questions::Peer::of(&question)).flatten();
            return self.answered(questions::Answered { ticket, about, answer });
        }
        let (credentials, answering) = (self.credentials.clone(), self.answering.clone());
        let meters = self.meters.clone();
        if let Some(meters) = &meters {
            meters.asked(&question, true);
        }
        tokio::spawn(async move {
            let about = questions::Peer::of(&question);
            let answer = credentials.answer(question).await;
            if let Some(meters) = meters {
                meters.answered();
            }
            if let Some(answer) = answer {
                // The driver may be gone.
                let _ = answering.send(questions::Answered { ticket, about, answer });
            }
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
        if let Event::ChildUp { ike, child } = event {
            let mut shunts = self.shunts.lock().await;
            if shunts.any()
                && let Some(status) = self.endpoint.ike_sa(ike)
            {
                shunts.child_up(status, child, &self.plane).await;
            }
        }
        if let Event::Unassigned(assignment) = &event
            && !assignment.ours
        {
            self.credentials.pools().release(assignment);
        }
        if let Some(system) = &self.system {
            system.run_hooks(&event, &self.endpoint);
            system.event(&event).await;
        }
        self.log.event(now().mono, &event, &self.endpoint);
        if let Some(meters) = &self.meters {
            meters.event(&event, &self.endpoint);
        }
        if let Event::Done(id, outcome) = &event {
            if let Some(answer) = self.pending.remove(id) {
                // The asker may have stopped waiting.
                let _ = answer.send(outcome.clone());
            }
            // Who asked for the end hears of it when the data plane is gone, too.
            if self.stopping.as_ref().is_some_and(|(stop, _)| stop == id) {
                self.stopped = !self.lines.several();
                self.ending = true;
                self.lines.end();
            }
        }
        match &event {
            Event::IkeRekeyed { new, .. } => {
                let ours = self.endpoint.ike_sa(*new).is_some_and(|status| status.initiator);
                self.counters.ike_rekeyed(ours);
            }
            Event::ChildRekeyed { .. } => self.counters.child_rekeyed(),
            Event::Dropped { why, .. } => self.counters.dropped(why),
            _ => {}
        }
        match &event {
            Event::Notice(ike, notice) => return self.lines.notify(*ike, *notice),
            Event::Trap { connection, child, local, remote } => {
                return self.lines.trap(connection.clone(), child.clone(), *local, *remote);
            }
            Event::Acquire { connection, child, packet } => {
                // The daemon may be on its way out.
                let _ = self.acquires.send((connection.clone(), child.clone(), *packet));
            }
            _ => {}
        }
        // A flood of these would push what listeners wait for out of their queues.
        let flood = matches!(event, Event::Dropped { .. } | Event::InitRefused { .. });
        if !flood && self.events.receiver_count() > 0 {
            // He may have gone meanwhile.
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
