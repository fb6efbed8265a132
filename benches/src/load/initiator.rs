//! One handshake: an engine of its own, so that none is told apart from another by what came before, and
//! the SAs of many identities, or of one, do not meet at this end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ike_proto::config::EndpointConfig;
use ike_proto::crypto::CryptoProvider;
use ike_proto::dataplane::{DataPlane as _, apply_all};
use ike_proto::{
    Command, Endpoint, Event, IkeSaId, Input, Now, Output, Path, RequestId, TransmitKind,
};
use ike_tokio::NoPlane;
use pki::Answerer;

/// What all handshakes of an initiator from one socket have in common.
#[derive(Debug, Clone)]
pub struct Template {
    /// Configuration, with one connection.
    pub config: EndpointConfig,
    /// Name of the connection.
    pub connection: String,
    /// Keys and certificates.
    pub answerer: Arc<Answerer>,
    /// Cryptography.
    pub crypto: Arc<CryptoProvider>,
    /// Addresses of both ends.
    pub ends: (IpAddr, IpAddr),
}

/// A handshake, and the delete after it.
pub struct Initiator {
    endpoint: Endpoint,
    answerer: Arc<Answerer>,
    ike: Option<IkeSaId>,
    /// When it was due.
    pub due: Instant,
    /// The socket it uses.
    pub socket: usize,
    deadline: Option<Instant>,
    spis: Vec<u64>,
}

/// What an input led to.
#[derive(Debug, Default)]
pub struct Step {
    /// Datagrams to send, and whether they were sent before.
    pub transmits: Vec<(Path, Arc<[u8]>, bool)>,
    /// The handshake, or the delete, has ended.
    pub ended: Option<Result<(), String>>,
}

const UP: RequestId = RequestId(1);
const DOWN: RequestId = RequestId(2);

impl Initiator {
    /// Begins one.
    pub fn begin(template: &Template, due: Instant, socket: usize) -> (Self, Step) {
        let endpoint = Endpoint::new(
            template.config.clone(),
            Arc::clone(&template.crypto),
            Box::new(pq_kem::os_random()),
            NoPlane.capabilities(),
        );
        let mut initiator = Self {
            endpoint,
            answerer: Arc::clone(&template.answerer),
            ike: None,
            due,
            deadline: None,
            socket,
            spis: Vec::new(),
        };
        let (local, remote) = template.ends;
        let command = Command::Initiate {
            connection: template.connection.clone(),
            child: Some("net".to_owned()),
            local,
            remote,
            packet: None,
        };
        let step = initiator.handle(Input::Command(UP, command));
        (initiator, step)
    }

    /// When the engine wants to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Its SPIs, by which answers are known; more than one if it began anew.
    pub fn spis(&self) -> &[u64] {
        &self.spis
    }

    /// Deletes what was established. `None` if there is nothing.
    pub fn delete(&mut self) -> Option<Step> {
        let ike = self.ike?;
        Some(self.handle(Input::Command(DOWN, Command::TerminateIke(ike))))
    }

    /// Takes an input and does what the engine wants done, but for sending.
    pub fn handle(&mut self, input: Input<'_>) -> Step {
        let mut step = Step::default();
        self.endpoint.handle(now(), input);
        loop {
            match self.endpoint.poll_output() {
                Output::Transmit(transmit) => {
                    let again = transmit.kind == TransmitKind::Retransmission;
                    if let Some(spi) = transmit.octets.first_chunk() {
                        let spi = u64::from_be_bytes(*spi);
                        if transmit.kind != TransmitKind::KeepAlive && !self.spis.contains(&spi) {
                            self.spis.push(spi);
                        }
                    }
                    step.transmits.push((transmit.path, transmit.octets, again));
                }
                Output::DataPlane(ticket, batch) => {
                    let result = apply_all(&mut NoPlane, batch);
                    self.endpoint.handle(now(), Input::Completed(ticket, result));
                }
                Output::Ask(ticket, question) => {
                    let answer = self.answerer.answer(&question, SystemTime::now());
                    self.endpoint.handle(now(), Input::Answered(ticket, answer));
                }
                Output::Event(Event::IkeUp(ike)) => self.ike = Some(ike),
                Output::Event(Event::Done(_, outcome)) => {
                    step.ended = Some(outcome.map_err(|why| why.to_string()));
                }
                // Suites of `load` use neither TCP nor anything else that these would matter for.
                Output::Event(_) | Output::Stream(..) => {}
                Output::Timeout(deadline) => {
                    self.deadline = deadline;
                    return step;
                }
            }
        }
    }
}

fn now() -> Now {
    Now { mono: Instant::now(), wall: SystemTime::now() }
}
