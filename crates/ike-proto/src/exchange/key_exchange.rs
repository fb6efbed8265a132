//! Key exchange: in place by a quick method, otherwise by a question.
//!
//! A caller that gets [`Undone::Ask`] has changed nothing yet. It leaves its message to
//! [`Pending`](crate::ike_sa::pending::Pending), and is called again from the start with the result, as if the
//! message had just arrived.

use std::sync::Arc;

use super::Refusal;
use crate::crypto::{CryptoError, KeyExchange, PendingKe, Secret};
use crate::ike_sa::context::Context;
use crate::question::Exchange;
use crate::wire::registry::{KeMethodId, NotifyType};

/// Why there is no result, or no result yet.
pub(crate) enum Undone {
    Failed(CryptoError),
    /// This key exchange has to be done first.
    Ask(Exchange),
}

/// Why a request is not answered.
pub(crate) enum Halt {
    Refuse(Refusal),
    /// It will be answered when this is done.
    Ask(Exchange),
}

impl Context<'_> {
    /// The initiator's public value by `method`.
    pub(crate) fn initiate(&mut self, method: KeMethodId) -> Result<Arc<dyn PendingKe>, Undone> {
        let method = self.crypto.ke(method).ok_or(CryptoError::Unsupported)?;
        if !method.is_slow() {
            return Ok(method.initiate(self.io.rng)?);
        }
        // A private key is used once.
        let done = &mut self.ids.exchanged;
        match done.iter().position(|done| done.half(method.id()).is_some()) {
            Some(index) => match done.swap_remove(index).half(method.id()) {
                Some(half) => Ok(half?),
                None => Err(CryptoError::Backend.into()),
            },
            None => Err(Undone::Ask(Exchange::initiate(method))),
        }
    }

    /// The responder's public value by `method`, and the secret. `peer` has the right length.
    pub(crate) fn respond_to(
        &mut self,
        method: &KeyExchange,
        peer: &[u8],
    ) -> Result<(Vec<u8>, Secret), Undone> {
        if !method.is_slow() {
            return Ok(method.respond(peer, self.io.rng)?);
        }
        match self.ids.exchanged.iter().find_map(|done| done.responded(method.id())) {
            Some(done) => Ok(done?),
            None => Err(Undone::Ask(Exchange::respond(method, peer))),
        }
    }

    /// The secret of `half` by `method`. The peer's value must have the right length.
    pub(crate) fn complete(
        &self,
        method: KeMethodId,
        half: &Arc<dyn PendingKe>,
        peer: &[u8],
    ) -> Result<Secret, Undone> {
        let method = self.crypto.ke(method).ok_or(CryptoError::Unsupported)?;
        if method.lengths().responder != peer.len() {
            return Err(CryptoError::InvalidPublic.into());
        }
        if !method.is_slow() {
            return Ok(half.complete(peer)?);
        }
        match self.ids.exchanged.iter().find_map(|done| done.completed(half)) {
            Some(done) => Ok(done?),
            None => Err(Undone::Ask(Exchange::complete(method, half, peer))),
        }
    }
}

impl Undone {
    /// The same as the result of a request.
    pub(crate) fn halt(self) -> Halt {
        match self {
            Self::Ask(exchange) => Halt::Ask(exchange),
            Self::Failed(error) => Halt::Refuse(error.into()),
        }
    }
}

impl Halt {
    /// The refusal of a request that cannot ask a question.
    pub(crate) fn refusal(self) -> Refusal {
        match self {
            Self::Refuse(refusal) => refusal,
            Self::Ask(_) => NotifyType::TEMPORARY_FAILURE.into(),
        }
    }
}

impl From<CryptoError> for Undone {
    fn from(error: CryptoError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

impl From<NotifyType> for Halt {
    fn from(kind: NotifyType) -> Self {
        Self::Refuse(kind.into())
    }
}
