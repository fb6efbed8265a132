//! Questions of a driver to the program around it, and reports of the driver to the program.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use ike_proto::config::EndpointConfig;
use ike_proto::crypto::SecureRandom;
use ike_proto::{Answer, Endpoint, Event, Question, Transmit};
use tokio::sync::Semaphore;

use crate::plane::PlaneHandle;

/// Work that a driver waits for or runs as a task.
pub type Work<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers the engine's questions, by private keys, certificates and pools of addresses. An implementation also
/// performs slow key exchanges ([`Question::Exchange`]); it can pass these questions to [`NoCredentials`].
///
/// The drivers of all shards share one answerer. An answerer gets no [`Question::Ends`], because the answer needs the
/// configured host names. That question leaves the driver as [`Wanted::Ends`](crate::Wanted::Ends).
pub trait Answerer: Send + Sync {
    /// Answers on the driver's thread, which does nothing else meanwhile. `None` if the answer may take a millisecond
    /// or more. Then the driver calls [`Self::answer`] in a task.
    fn answer_at_once(&self, question: &Question) -> Option<Answer>;

    /// Answers in a task of its own, within any time. `None` if the engine does not need the answer any more.
    ///
    /// This method must know every answer. After four immediate answers to one input, the driver calls it without
    /// [`Self::answer_at_once`].
    fn answer(&self, question: Question) -> Work<'_, Option<Answer>>;
}

/// Gets reports about the work of the drivers. By default every method does nothing.
///
/// The driver calls these methods on its own thread, and peers wait meanwhile.
pub trait Observer: Send + Sync {
    /// The engine has reported `event`, and `endpoint` has not changed since. The driver finishes the returned work
    /// before it does anything else. `plane` answers questions about SAs during that work.
    fn event<'a>(
        &'a self,
        event: &'a Event,
        endpoint: &Endpoint,
        plane: &'a PlaneHandle,
    ) -> Option<Work<'a>> {
        let _ = (event, endpoint, plane);
        None
    }

    /// The engine of a shard is about to get this configuration by [`Command::Reload`](ike_proto::Command::Reload).
    /// With several shards the method is called once for each shard.
    fn reloading(&self, config: &EndpointConfig) {
        let _ = config;
    }

    /// A message has come, by UDP or TCP. `octets` begin with the IKE header, and nothing has checked them yet.
    fn received(&self, octets: &[u8]) {
        let _ = octets;
    }

    /// An IKE message or a NAT keepalive is about to be sent, by UDP or TCP.
    fn sending(&self, transmit: &Transmit) {
        let _ = transmit;
    }

    /// Datagrams or a message could not be sent.
    fn not_sent(&self) {}

    /// The driver has left out this number of log lines, because there were too many of the same kind.
    fn suppressed(&self, lines: u32) {
        let _ = lines;
    }
}

/// Ignores everything.
impl Observer for () {}

/// Has no credentials: it does slow key exchanges, and fails at everything else. It is enough for peers that
/// authenticate by pre-shared keys and are assigned no addresses.
pub struct NoCredentials {
    random: fn() -> Box<dyn SecureRandom>,
    /// As many key exchanges at a time as there are processors; the rest waits in order.
    processors: Arc<Semaphore>,
}

impl NoCredentials {
    /// Does key exchanges with what `random` makes.
    pub fn new(random: fn() -> Box<dyn SecureRandom>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self { random, processors: Arc::new(Semaphore::new(processors)) }
    }

    /// The reason why `question` has no answer here.
    fn lacks(question: &Question) -> &'static str {
        match question {
            Question::Sign(_) => "no private key",
            Question::Judge(_) | Question::Revocation(_) | Question::Resume(_) => {
                "no certificates to trust"
            }
            Question::Lease(_) => "no addresses to assign",
            Question::Eap(_) => "no EAP credentials",
            Question::Exchange(_) => "the key exchange was interrupted",
            Question::Ends { .. } => "no resolver for host names",
        }
    }
}

impl Answerer for NoCredentials {
    fn answer_at_once(&self, question: &Question) -> Option<Answer> {
        match question {
            Question::Exchange(_) => None,
            _ => Some(Answer::Failed(Self::lacks(question).to_owned())),
        }
    }

    fn answer(&self, question: Question) -> Work<'_, Option<Answer>> {
        Box::pin(async move {
            let lacks = Self::lacks(&question);
            let Question::Exchange(exchange) = question else {
                return Some(Answer::Failed(lacks.to_owned()));
            };
            let _processor = self.processors.acquire().await;
            let random = self.random;
            let perform = move || exchange.perform(&mut *random());
            let performed = tokio::task::spawn_blocking(perform).await;
            Some(performed.unwrap_or_else(|_| Answer::Failed(lacks.to_owned())))
        })
    }
}

impl fmt::Debug for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoCredentials")
    }
}
