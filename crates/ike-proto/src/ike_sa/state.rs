//! What may legally arrive next, and the data each stage holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::established::Lingering;
use super::plane::Query;
use crate::child::ChildSa;
use crate::config::proposal::Selected;
use crate::config::{ChildConfig, ConnectionConfig};
use crate::crypto::{PendingKe, Prf};
use crate::dataplane::{Flow, Mode, PolicyId, TrafficSelector};
use crate::event::{ChildSaId, Failure, IkeSaId, RequestId, Ticket};
use crate::exchange::followup::{Chain, Followup};
use crate::keys::epoch::Epoch;
use crate::keys::int_auth::IntAuth;
use crate::keys::schedule::IkeKeys;
use crate::wire::payload::{IdData, Proposal};
use crate::wire::registry::KeMethodId;

/// The stage of an IKE SA. An initiator's IKE_SA_INIT is an
/// [`Attempt`](crate::endpoint::attempt::Attempt): there is no SA before a response.
pub(crate) enum State {
    /// Responder: the next additional key exchange is due.
    ExpectIntermediateRequest(Box<ExpectIntermediateRequest>),
    /// Initiator: an additional key exchange was sent.
    ExpectIntermediateResponse(Box<ExpectIntermediateResponse>),
    /// Responder: IKE_SA_INIT was answered, and all additional key exchanges.
    ExpectAuthRequest(Box<ExpectAuthRequest>),
    /// Initiator: IKE_AUTH was sent.
    ExpectAuthResponse(Box<ExpectAuthResponse>),
    /// Both ends are authenticated.
    Established(Box<Established>),
    /// Over; the endpoint forgets it at the end of the input.
    Closed(Failure),
}

/// Keys and algorithms in force.
pub(crate) struct Session {
    pub(crate) epoch: Epoch,
    /// The generation before, for what the peer sent before it knew of this one.
    pub(crate) previous: Option<Epoch>,
    pub(crate) prf: &'static dyn Prf,
    pub(crate) keys: IkeKeys,
    pub(crate) selected: Selected,
}

/// What AUTH covers: the IKE_SA_INIT messages (RFC 7296 §2.15), and every IKE_INTERMEDIATE.
pub(crate) struct InitTranscript {
    pub(crate) request: Arc<[u8]>,
    pub(crate) response: Arc<[u8]>,
    pub(crate) ni: Box<[u8]>,
    pub(crate) nr: Box<[u8]>,
    pub(crate) int_auth: IntAuth,
}

/// Extensions both ends announced.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extensions {
    /// RFC 7383.
    pub(crate) fragmentation: bool,
    /// RFC 6023, announced by a responder.
    pub(crate) childless: bool,
    /// RFC 9242.
    pub(crate) intermediate: bool,
}

/// What NAT detection found (RFC 7296 §2.23).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NatStatus {
    /// The peer takes part in it.
    pub(crate) supported: bool,
    /// This end is behind a NAT, or pretends to be.
    pub(crate) local: bool,
    /// The peer is behind a NAT, or pretends to be.
    pub(crate) remote: bool,
}

pub(crate) struct ExpectAuthRequest {
    pub(crate) transcript: InitTranscript,
    pub(crate) connections: Vec<Arc<ConnectionConfig>>,
}

pub(crate) struct ExpectIntermediateRequest {
    pub(crate) method: KeMethodId,
    /// Methods after it.
    pub(crate) rest: Vec<KeMethodId>,
    pub(crate) auth: ExpectAuthRequest,
}

pub(crate) struct ExpectIntermediateResponse {
    pub(crate) method: KeMethodId,
    pub(crate) ke: Box<dyn PendingKe>,
    /// Methods after it.
    pub(crate) rest: Vec<KeMethodId>,
    pub(crate) auth: ExpectAuthResponse,
    pub(crate) initial_contact: bool,
}

pub(crate) struct ExpectAuthResponse {
    pub(crate) transcript: InitTranscript,
    /// The child of this exchange; `None` when childless.
    pub(crate) child: Option<Box<ChildOffer>>,
    pub(crate) local_id: IdData,
    /// What to do once established.
    pub(crate) queue: VecDeque<Task>,
}

pub(crate) struct Established {
    pub(crate) local_id: IdData,
    pub(crate) remote_id: IdData,
    pub(crate) since: Instant,
    pub(crate) children: Vec<ChildSa>,
    /// The request in flight.
    pub(crate) ours: Option<Initiated>,
    /// The peer's request that waits for the data plane before it is answered.
    pub(crate) responding: Option<Box<Responding>>,
    pub(crate) queue: VecDeque<Task>,
    /// Children this end asked for that the data plane is at work on.
    pub(crate) installing: Vec<(Ticket, ChildSaId, Option<RequestId>)>,
    pub(crate) phase: IkePhase,
    /// Tasks to be made again later.
    pub(crate) delayed: Vec<(Instant, Task)>,
    /// Inbound SAs of rekeyed children that still decrypt.
    pub(crate) lingering: Vec<Lingering>,
    /// Counters asked for.
    pub(crate) queries: Vec<(Ticket, Query)>,
    /// The peer's CREATE_CHILD_SA exchanges with additional key exchanges to come.
    pub(crate) theirs: Vec<Chain>,
}

/// Where an established IKE SA is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IkePhase {
    Alive,
    /// Made by a rekey of the peer that crossed ours: until it is clear which of the two stays, the
    /// SA of this id keeps the children.
    Crossed(IkeSaId),
    /// A rekey put this SA in its place.
    Replaced(IkeSaId),
    /// A delete is queued or in flight.
    Closing,
}

/// A request to be sent when the window is free.
#[derive(Debug)]
pub(crate) enum Task {
    CreateChild {
        config: Arc<ChildConfig>,
        /// The packet it is made for.
        packet: Option<Flow>,
        request: Option<RequestId>,
        retry: Retry,
    },
    RekeyChild {
        child: ChildSaId,
        request: Option<RequestId>,
        retry: Retry,
    },
    DeleteChild {
        child: ChildSaId,
        reason: Failure,
        request: Option<RequestId>,
    },
    RekeyIke {
        request: Option<RequestId>,
        retry: Retry,
    },
    DeleteIke {
        reason: Failure,
        request: Option<RequestId>,
    },
    /// Deletes an ESP SA that only the peer has: this end could not use the answer.
    DeleteSpi(u32),
    Liveness,
}

/// How often a request was refused for the time being, and the method the peer asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Retry {
    pub(crate) temporary_failures: u8,
    pub(crate) method: Option<KeMethodId>,
}

/// A request in flight, and what its response needs.
pub(crate) enum Initiated {
    Child(Box<ChildOffer>),
    RekeyIke(Box<RekeyOffer>),
    /// The additional key exchanges of either.
    Followup(Box<Followup>),
    DeleteChild {
        child: ChildSaId,
        reason: Failure,
        request: Option<RequestId>,
    },
    DeleteSpi,
    DeleteIke {
        reason: Failure,
        request: Option<RequestId>,
    },
    Liveness,
}

/// A Child SA this end asked for.
pub(crate) struct ChildOffer {
    pub(crate) id: ChildSaId,
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) packet: Option<Flow>,
    pub(crate) spi_in: u32,
    pub(crate) policy: PolicyId,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
    pub(crate) mode: Mode,
    pub(crate) nonce: Box<[u8]>,
    pub(crate) ke: Option<(KeMethodId, Box<dyn PendingKe>)>,
    /// The child to replace.
    pub(crate) rekeys: Option<ChildSaId>,
    /// What the peer made of the same child meanwhile.
    pub(crate) crossed: Option<CrossedChild>,
    /// SPIs of the peer's that it deleted while the request was in flight, unknown here.
    pub(crate) deleted: Vec<u32>,
    pub(crate) started: Instant,
    pub(crate) request: Option<RequestId>,
    pub(crate) retry: Retry,
}

/// A rekey of the same child that the peer started while ours was in flight.
pub(crate) struct CrossedChild {
    /// `None` while the peer's additional key exchanges are still to come.
    pub(crate) child: Option<ChildSaId>,
    pub(crate) nonces: (Vec<u8>, Vec<u8>),
}

/// A rekey of the IKE SA this end asked for.
pub(crate) struct RekeyOffer {
    pub(crate) spi: u64,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) nonce: Box<[u8]>,
    pub(crate) method: KeMethodId,
    pub(crate) ke: Box<dyn PendingKe>,
    pub(crate) crossed: Option<CrossedIke>,
    pub(crate) request: Option<RequestId>,
    pub(crate) retry: Retry,
    pub(crate) started: Instant,
}

/// A rekey of the IKE SA that the peer started while ours was in flight.
pub(crate) struct CrossedIke {
    /// `None` while the peer's additional key exchanges are still to come.
    pub(crate) ike: Option<IkeSaId>,
    pub(crate) nonces: (Vec<u8>, Vec<u8>),
}

/// A response that is ready but for the data plane's word.
pub(crate) struct Responding {
    pub(crate) ticket: Ticket,
    pub(crate) child: ChildSaId,
    pub(crate) reply: Reply,
}

/// The payloads of a response that waits, owned.
pub(crate) struct Reply {
    /// IDr and AUTH of an IKE_AUTH response: sent also if the child fails.
    pub(crate) auth: Option<(IdData, Vec<u8>)>,
    /// SA, and with it the selectors; absent in the last IKE_FOLLOWUP_KE.
    pub(crate) proposal: Option<Proposal>,
    pub(crate) ke: Option<(KeMethodId, Vec<u8>)>,
    pub(crate) nonce: Option<Vec<u8>>,
    pub(crate) ts_i: Vec<TrafficSelector>,
    pub(crate) ts_r: Vec<TrafficSelector>,
    pub(crate) transport: bool,
}

impl Task {
    /// The command that waits for it, and whether the end of the SA is what that command wants.
    pub(crate) fn request(self) -> (Option<RequestId>, bool) {
        match self {
            Self::CreateChild { request, .. }
            | Self::RekeyChild { request, .. }
            | Self::RekeyIke { request, .. } => (request, false),
            Self::DeleteChild { request, .. } | Self::DeleteIke { request, .. } => (request, true),
            Self::DeleteSpi(_) | Self::Liveness => (None, false),
        }
    }
}

impl Initiated {
    /// The inbound SPI set aside for a child that is being asked for.
    pub(crate) fn spi_in(&self) -> Option<u32> {
        match self {
            Self::Child(offer) => Some(offer.spi_in),
            Self::Followup(followup) => followup.spi_in(),
            _ => None,
        }
    }

    /// True if the SA ends with it.
    pub(crate) fn ends_sa(&self) -> bool {
        matches!(self, Self::DeleteIke { .. })
    }

    /// As [`Task::request`].
    pub(crate) fn request(self) -> (Option<RequestId>, bool) {
        match self {
            Self::Child(offer) => (offer.request, false),
            Self::RekeyIke(offer) => (offer.request, false),
            Self::Followup(followup) => (followup.what.request(), false),
            Self::DeleteChild { request, .. } | Self::DeleteIke { request, .. } => (request, true),
            Self::DeleteSpi | Self::Liveness => (None, false),
        }
    }
}

impl State {
    /// What a responder waits with for IKE_AUTH, before or after IKE_INTERMEDIATE.
    pub(crate) fn half_open(&self) -> Option<&ExpectAuthRequest> {
        match self {
            Self::ExpectAuthRequest(waiting) => Some(waiting),
            Self::ExpectIntermediateRequest(waiting) => Some(&waiting.auth),
            _ => None,
        }
    }

    /// What an initiator waits with for IKE_AUTH, before or after IKE_INTERMEDIATE.
    pub(crate) fn unproven(&mut self) -> Option<&mut ExpectAuthResponse> {
        match self {
            Self::ExpectAuthResponse(waiting) => Some(waiting),
            Self::ExpectIntermediateResponse(waiting) => Some(&mut waiting.auth),
            _ => None,
        }
    }
}
