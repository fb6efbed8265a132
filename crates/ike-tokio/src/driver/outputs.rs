//! Executes the engine's outputs.

use std::sync::Arc;

use ike_proto::dataplane::{Command, Reply};
use ike_proto::{Answer, Input, Output, Path, Question, StreamCommand, StreamEvent, Ticket};

use super::{Driver, Wanted, questions};
use crate::clock::now;
use crate::report::Direction;

/// Questions that are answered in place for one input; the others of a peer who raises more wait for a task.
const AT_ONCE: u32 = 4;

fn removes(command: &Command) -> bool {
    matches!(command, Command::RemoveSa(_) | Command::RemovePolicy(_))
}

impl Driver {
    /// Does all that the engine wants done, in its order.
    pub(super) async fn drain(&mut self) {
        let mut at_once = AT_ONCE;
        loop {
            let output = self.endpoint.poll_output();
            let joins = matches!(&output, Output::Transmit(transmit) if self.run.takes(transmit));
            let news = !joins && self.run.waits() && self.send().await;
            match output {
                Output::Transmit(transmit) => {
                    let again = transmit.kind == ike_proto::TransmitKind::Retransmission;
                    let kinds = [ike_proto::TransmitKind::Ike, ike_proto::TransmitKind::Probe];
                    if kinds.contains(&transmit.kind) {
                        self.count(false, &transmit.octets);
                    }
                    if transmit.kind != ike_proto::TransmitKind::KeepAlive {
                        self.trace(Direction::Out, transmit.path, again, &transmit.octets);
                    }
                    self.observer.sending(&transmit);
                    self.run.push(transmit);
                }
                Output::Stream(path, command) => self.stream_command(path, command),
                Output::DataPlane(ticket, batch) => {
                    let result = match self.stopping.is_some() && batch.iter().all(removes) {
                        // The data plane is emptied at once when the peers have confirmed.
                        true => Ok(vec![Reply::Done; batch.len()]),
                        false => self.plane.apply(batch).await,
                    };
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
    pub(super) async fn send(&mut self) -> bool {
        let run = self.run.take();
        let Some(path) = run.first().map(|first| first.path) else { return false };
        let now = now();
        let mut news = None;
        for transmit in &run {
            news = self.mtus.on_transmit(now.mono, transmit).or(news);
        }
        if let Err(error) = self.sockets.send_run(&run).await {
            let too_large = error.raw_os_error() == Some(nix::libc::EMSGSIZE);
            if too_large {
                news = self.mtus.on_too_large(now.mono, &path).or(news);
            }
            // A probe that does not fit is no failure: it is sent to find that out.
            if !too_large || run.iter().any(|one| one.kind != ike_proto::TransmitKind::Probe) {
                self.log.not_sent(now.mono, &path, &error);
                self.observer.not_sent();
            }
        }
        self.run.reuse(run);
        if let Some(octets) = news {
            self.endpoint.handle(now, Input::PathMtu(path, octets));
        }
        news.is_some()
    }

    /// Does with a TCP connection what the engine wants.
    pub(super) fn stream_command(&mut self, path: Path, command: StreamCommand) {
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

    /// Answers `question`, or has it answered by a task of its own; `at_once` is how many more may be
    /// answered here.
    pub(super) fn ask(&mut self, ticket: Ticket, question: Question, at_once: &mut u32) {
        if let Question::Ends { connection, last } = question {
            let wanted = Wanted::Ends { connection, shard: self.lines.shard().index, ticket, last };
            if self.wanted.send(wanted).is_err() {
                let why = "addresses are not looked up: the IKE service is stopping";
                let answer = Answer::Failed(why.to_owned());
                // This driver goes on until it has ended its SAs.
                let _ = self.answering.send(questions::Answered { ticket, about: None, answer });
            }
            return;
        }
        if *at_once > 0
            && let Some(answer) = self.answerer.answer_at_once(&question)
        {
            *at_once -= 1;
            let failed = matches!(answer, Answer::Failed(_) | Answer::Untrusted(..));
            let about = failed.then(|| questions::Peer::of(&question)).flatten();
            return self.answered(questions::Answered { ticket, about, answer });
        }
        let (answerer, answering) = (Arc::clone(&self.answerer), self.answering.clone());
        tokio::spawn(async move {
            let about = questions::Peer::of(&question);
            let answer = answerer.answer(question).await;
            if let Some(answer) = answer {
                // The driver may be gone.
                let _ = answering.send(questions::Answered { ticket, about, answer });
            }
        });
    }

    pub(super) fn answered(&mut self, answered: questions::Answered) {
        let questions::Answered { ticket, about, answer } = answered;
        if let (Some(peer), Answer::Failed(why) | Answer::Untrusted(_, why)) = (&about, &answer) {
            self.log.refused(now().mono, peer, why);
        }
        self.endpoint.handle(now(), Input::Answered(ticket, answer));
    }
}
