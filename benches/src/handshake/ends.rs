//! Two engines in one thread that hand each other their datagrams.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ike_proto::crypto::{CryptoProvider, SecureRandom};
use ike_proto::dataplane::{Capabilities, Command as PlaneCommand, Reply, Usage};
use ike_proto::wire::registry::{ExchangeType, PayloadType};
use ike_proto::{
    Answer, Command, Endpoint, Event, Failure, IkeSaId, Input, Now, Output, Path, Question,
    RequestId,
};
use ike_tests::setup::{Side, address};
use ike_tests::{A, B, World};
use pki::Answerer;

use super::recorder;
use crate::counter::ticks;

/// One engine with its keys and certificates, behind it a data plane that does nothing.
struct End {
    endpoint: Endpoint,
    answerer: Answerer,
}

/// An initiator and a responder. Nothing is lost, and time passes only by [`Ends::pass`].
pub struct Ends {
    ends: [End; 2],
    mono: Instant,
    wall: SystemTime,
    requests: u64,
    /// On their way: who gets it.
    datagrams: VecDeque<(usize, Path, Arc<[u8]>)>,
    /// What became of the last request.
    done: Option<Result<(), Failure>>,
    up: [Option<IkeSaId>; 2],
    /// When each end wants to be woken.
    wake: [Option<Instant>; 2],
    /// Datagrams of the handshake in progress.
    pub sent: usize,
    /// Where its time goes, if somebody wants to know.
    spent: Option<Spent>,
}

/// Ticks that both ends together spend on the exchanges of a handshake. The first message belongs to
/// IKE_SA_INIT; each other one to the exchange whose answer brought it about, with the work it takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// IKE_SA_INIT.
    pub sa_init: u64,
    /// All IKE_INTERMEDIATE exchanges.
    pub intermediate: u64,
    /// IKE_AUTH.
    pub auth: u64,
    /// Of the last two: fragments that did not complete a message, opened and kept.
    pub fragments: u64,
}

impl Spent {
    fn book(&mut self, datagram: Option<&[u8]>, whole: bool, ticks: u64) {
        let at = |index| datagram.and_then(|octets| octets.get(index)).copied();
        match at(18).map(ExchangeType) {
            Some(ExchangeType::IKE_INTERMEDIATE) => self.intermediate += ticks,
            Some(ExchangeType::IKE_AUTH) => self.auth += ticks,
            _ => self.sa_init += ticks,
        }
        if !whole && at(16).map(PayloadType) == Some(PayloadType::SKF) {
            self.fragments += ticks;
        }
    }
}

impl Ends {
    /// The ends that `sides` describe, with `crypto` and random octets by `rng`.
    pub fn new(
        sides: [Side; 2],
        crypto: &Arc<CryptoProvider>,
        mut rng: impl FnMut() -> Box<dyn SecureRandom>,
    ) -> Self {
        let ends = sides.map(|side| {
            let capabilities: Capabilities = side.plane.capabilities;
            let endpoint = Endpoint::new(side.config(), Arc::clone(crypto), rng(), capabilities);
            End { endpoint, answerer: side.answerer }
        });
        Self {
            ends,
            mono: Instant::now(),
            wall: World::dawn(),
            requests: 0,
            datagrams: VecDeque::new(),
            done: None,
            up: [None, None],
            wake: [None, None],
            sent: 0,
            spent: None,
        }
    }

    /// [`handshake`](Self::handshake), and what its exchanges took.
    ///
    /// # Errors
    /// Why it failed.
    pub fn handshake_by_exchange(&mut self) -> Result<Spent, String> {
        self.spent = Some(Spent::default());
        let result = self.handshake();
        let spent = self.spent.take().unwrap_or_default();
        result.map(|()| spent)
    }

    /// An IKE SA with its first child, from the wish to when both ends have it.
    ///
    /// # Errors
    /// Why it failed.
    pub fn handshake(&mut self) -> Result<(), String> {
        self.sent = 0;
        self.command(
            A,
            Command::Initiate {
                connection: "ab".to_owned(),
                child: Some("net".to_owned()),
                local: address(1),
                remote: address(2),
                packet: None,
            },
        )
    }

    /// Rekeys the child that A has, or the IKE SA itself.
    ///
    /// # Errors
    /// Why it failed.
    pub fn rekey(&mut self, ike: bool) -> Result<(), String> {
        let id = self.up[A].ok_or("no IKE SA")?;
        let status = self.ends[A].endpoint.ike_sa(id).ok_or("no IKE SA")?;
        let command = match status.children.last() {
            Some(child) if !ike => Command::RekeyChild(child.id),
            _ => Command::RekeyIke(id),
        };
        self.command(A, command)
    }

    /// Deletes the IKE SA at both ends.
    ///
    /// # Errors
    /// Why it failed.
    pub fn delete(&mut self) -> Result<(), String> {
        let id = self.up[A].ok_or("no IKE SA")?;
        self.command(A, Command::TerminateIke(id))?;
        self.up = [None, None];
        Ok(())
    }

    /// Lets time pass, with whatever is due meanwhile.
    pub fn pass(&mut self, time: Duration) {
        self.mono += time;
        self.wall += time;
        for end in [A, B] {
            self.give(end, Input::Timeout);
        }
        self.carry();
    }

    /// IKE SAs and attempts of both ends.
    pub fn count(&self) -> usize {
        self.ends.iter().map(|end| end.endpoint.ike_sas().len()).sum()
    }

    fn command(&mut self, end: usize, command: Command) -> Result<(), String> {
        self.requests += 1;
        self.done = None;
        self.give(end, Input::Command(RequestId(self.requests), command));
        self.carry();
        // Large messages leave by and by.
        while self.done.is_none() {
            let at = self.wake.into_iter().flatten().min();
            let pause = at.map(|at| at.saturating_duration_since(self.mono));
            match pause.filter(|pause| *pause < PATIENCE) {
                Some(pause) => self.pass(pause),
                None => break,
            }
        }
        match self.done.take() {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(why.to_string()),
            None => Err("does not end".to_owned()),
        }
    }

    fn carry(&mut self) {
        while let Some((to, path, octets)) = self.datagrams.pop_front() {
            self.give(to, Input::Datagram(path, &octets));
        }
    }

    fn give(&mut self, end: usize, input: Input<'_>) {
        if self.spent.is_none() {
            self.drive(end, input);
            return;
        }
        let datagram = match &input {
            Input::Datagram(_, octets) => Some(*octets),
            _ => None,
        };
        let (before, waiting) = (ticks(), self.datagrams.len());
        self.drive(end, input);
        let taken = ticks() - before;
        let whole = self.datagrams.len() > waiting || self.done.is_some();
        if let Some(spent) = &mut self.spent {
            spent.book(datagram, whole, taken);
        }
    }

    fn drive(&mut self, end: usize, input: Input<'_>) {
        recorder::at_end(end);
        let now = Now { mono: self.mono, wall: self.wall };
        self.ends[end].endpoint.handle(now, input);
        loop {
            let answer = match self.ends[end].endpoint.poll_output() {
                Output::Timeout(at) => {
                    self.wake[end] = at;
                    return;
                }
                Output::Transmit(transmit) => {
                    let Path { local, remote, transport } = transmit.path;
                    let path = Path { local: remote, remote: local, transport };
                    self.sent += 1;
                    self.datagrams.push_back((1 - end, path, transmit.octets));
                    continue;
                }
                Output::DataPlane(ticket, batch) => {
                    let replies = batch.iter().map(reply).collect();
                    Input::Completed(ticket, Ok(replies))
                }
                Output::Ask(ticket, question) => {
                    Input::Answered(ticket, self.answer(end, &question))
                }
                Output::Event(event) => {
                    match event {
                        Event::Done(_, result) => self.done = Some(result),
                        Event::IkeUp(ike) => self.up[end] = Some(ike),
                        Event::IkeRekeyed { new, .. } => self.up[end] = Some(new),
                        _ => {}
                    }
                    continue;
                }
                Output::Stream(..) => continue,
            };
            self.ends[end].endpoint.handle(now, answer);
        }
    }

    fn answer(&self, end: usize, question: &Question) -> Answer {
        let answerer = &self.ends[end].answerer;
        if let Question::Judge(peer) = question {
            recorder::judged(peer, answerer.trust());
        }
        answerer.answer(question, self.wall)
    }
}

fn reply(command: &PlaneCommand) -> Reply {
    match command {
        PlaneCommand::QueryUsage(sa) => Reply::Usage(*sa, Usage::default()),
        _ => Reply::Done,
    }
}

/// Shorter than the first timer of a retransmission.
const PATIENCE: Duration = Duration::from_millis(400);
