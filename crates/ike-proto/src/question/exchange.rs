//! Slow key exchanges, done outside the engine.

use std::fmt;
use std::sync::{Arc, Weak};

use super::Answer;
use crate::crypto::{CryptoError, KeyExchange, PendingKe, Secret, SecureRandom};
use crate::wire::registry::KeMethodId;

/// One step of a key exchange by a [slow](crate::crypto::KeMethod::is_slow) method, to be done on any thread. It contains a
/// private key, or makes one.
pub struct Exchange {
    method: KeyExchange,
    step: Step,
    stranger: bool,
    /// Dead when no SA waits for the exchange any more.
    claim: Weak<()>,
}

/// Held by the SA that waits for an [`Exchange`].
pub(crate) struct Claim {
    _alive: Arc<()>,
}

enum Step {
    Initiate,
    /// Answers the initiator's public value.
    Respond(Vec<u8>),
    /// Derives the secret from the responder's public value or ciphertext.
    Complete(Arc<dyn PendingKe>, Vec<u8>),
}

/// The result of an [`Exchange`].
pub struct Exchanged {
    key: Key,
    result: Result<Outcome, CryptoError>,
}

/// Identifies the step.
#[derive(Clone)]
pub(crate) enum Key {
    Initiate(KeMethodId),
    Respond(KeMethodId),
    Complete(Arc<dyn PendingKe>),
}

/// What a step has made.
pub(crate) enum Outcome {
    Half(Arc<dyn PendingKe>),
    Responded(Vec<u8>, Secret),
    Completed(Secret),
}

impl Exchange {
    pub(crate) fn initiate(method: &KeyExchange) -> Self {
        Self::of(method, Step::Initiate)
    }

    pub(crate) fn respond(method: &KeyExchange, peer: &[u8]) -> Self {
        Self::of(method, Step::Respond(peer.to_vec()))
    }

    pub(crate) fn complete(method: &KeyExchange, half: &Arc<dyn PendingKe>, peer: &[u8]) -> Self {
        Self::of(method, Step::Complete(Arc::clone(half), peer.to_vec()))
    }

    fn of(method: &KeyExchange, step: Step) -> Self {
        Self { method: method.clone(), step, stranger: false, claim: Weak::new() }
    }

    /// The exchange is wanted as long as the returned claim lives. `stranger` is the value of
    /// [`is_for_stranger`](Self::is_for_stranger).
    pub(crate) fn claim(&mut self, stranger: bool) -> Claim {
        let alive = Arc::new(());
        self.stranger = stranger;
        self.claim = Arc::downgrade(&alive);
        Claim { _alive: alive }
    }

    /// True if an unauthenticated peer has caused it. There may be very many of those, so other peers' exchanges
    /// must not wait for them.
    pub fn is_for_stranger(&self) -> bool {
        self.stranger
    }

    /// False once no SA waits for it: the IKE SA has ended, or has given it up. Then it need not be done or
    /// answered.
    pub fn is_wanted(&self) -> bool {
        self.claim.strong_count() > 0
    }

    /// The method's transform ID.
    pub fn method(&self) -> KeMethodId {
        self.method.id()
    }

    pub(crate) fn key(&self) -> Key {
        match &self.step {
            Step::Initiate => Key::Initiate(self.method.id()),
            Step::Respond(_) => Key::Respond(self.method.id()),
            Step::Complete(half, _) => Key::Complete(Arc::clone(half)),
        }
    }

    /// Does the step on this thread. A caller without other threads calls this when the question comes.
    pub fn perform(&self, rng: &mut dyn SecureRandom) -> Answer {
        let result = match &self.step {
            Step::Initiate => self.method.initiate(rng).map(Outcome::Half),
            Step::Respond(peer) => {
                let responded = self.method.respond(peer, rng);
                responded.map(|(public, shared)| Outcome::Responded(public, shared))
            }
            Step::Complete(half, peer) => half.complete(peer).map(Outcome::Completed),
        };
        Answer::Exchanged(Exchanged { key: self.key(), result })
    }
}

impl Exchanged {
    /// A failed step.
    pub(crate) fn failed(key: Key) -> Self {
        Self { key, result: Err(CryptoError::Backend) }
    }

    /// True if this is the step with `key`.
    pub(crate) fn is_of(&self, key: &Key) -> bool {
        self.key.is(key)
    }

    /// The public value that `method` has made, if this is that step.
    pub(crate) fn half(
        &self,
        method: KeMethodId,
    ) -> Option<Result<Arc<dyn PendingKe>, CryptoError>> {
        match (&self.key, &self.result) {
            (Key::Initiate(id), Ok(Outcome::Half(half))) if *id == method => {
                Some(Ok(Arc::clone(half)))
            }
            (Key::Initiate(id), Err(error)) if *id == method => Some(Err(*error)),
            _ => None,
        }
    }

    /// The answer by `method` and the secret, if this is that step.
    pub(crate) fn responded(
        &self,
        method: KeMethodId,
    ) -> Option<Result<(Vec<u8>, Secret), CryptoError>> {
        match (&self.key, &self.result) {
            (Key::Respond(id), Ok(Outcome::Responded(public, shared))) if *id == method => {
                Some(Ok((public.clone(), shared.duplicate())))
            }
            (Key::Respond(id), Err(error)) if *id == method => Some(Err(*error)),
            _ => None,
        }
    }

    /// The secret of `half`, if this is that step.
    pub(crate) fn completed(
        &self,
        half: &Arc<dyn PendingKe>,
    ) -> Option<Result<Secret, CryptoError>> {
        match (&self.key, &self.result) {
            (Key::Complete(its), Ok(Outcome::Completed(secret))) if same(its, half) => {
                Some(Ok(secret.duplicate()))
            }
            (Key::Complete(its), Err(error)) if same(its, half) => Some(Err(*error)),
            _ => None,
        }
    }
}

impl Key {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Initiate(one), Self::Initiate(other))
            | (Self::Respond(one), Self::Respond(other)) => one == other,
            (Self::Complete(one), Self::Complete(other)) => same(one, other),
            _ => false,
        }
    }
}

/// True for the same private key, not only an equal one.
fn same(one: &Arc<dyn PendingKe>, other: &Arc<dyn PendingKe>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Initiate => "initiate",
            Step::Respond(_) => "respond",
            Step::Complete(..) => "complete",
        };
        write!(f, "Exchange({}, {step})", self.method.id())
    }
}

impl fmt::Debug for Exchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.result {
            Ok(_) => f.write_str("Exchanged(done)"),
            Err(error) => write!(f, "Exchanged({error})"),
        }
    }
}
