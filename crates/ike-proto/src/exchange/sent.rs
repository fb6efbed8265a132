//! The request in flight: the data that its response needs.

use std::sync::Arc;
use std::time::Instant;

use crate::config::ChildConfig;
use crate::crypto::PendingKe;
use crate::event::{ChildSaId, Failure, IkeSaId, RequestId};
use crate::exchange::followup::Followup;
use crate::exchange::mobike::SentMobility;
use crate::exchange::ppk::OfferedPpk;
use crate::exchange::redirect::RequestedRedirect;
use crate::exchange::requested_child::RequestedChild;
use crate::keys::{Nonces, OwnNonces};
use crate::wire::payload::Proposal;
use crate::wire::registry::KeMethodId;

/// A request in flight, and what its response needs.
pub(crate) enum Sent {
    Child(Box<RequestedChild>),
    RekeyIke(Box<RekeyOffer>),
    /// The additional key exchanges of either of these.
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
    TicketRequest,
    Mobility(Box<SentMobility>),
    Redirect(RequestedRedirect),
    /// A probe of the path of a child, in a packet of so many octets.
    Probe {
        child: ChildSaId,
        octets: u16,
    },
}

/// How often a request was refused temporarily, and the method that the peer asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Retry {
    pub(crate) temporary_failures: u8,
    pub(crate) method: Option<KeMethodId>,
    /// The peer wants an SA for each pair of addresses.
    pub(crate) single_pair: bool,
}

/// A rekey of the IKE SA that this end has requested.
pub(crate) struct RekeyOffer {
    pub(crate) spi: u64,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) nonce: Box<[u8]>,
    pub(crate) method: KeMethodId,
    pub(crate) ke: Arc<dyn PendingKe>,
    /// PPKs offered.
    pub(crate) ppks: Vec<OfferedPpk>,
    pub(crate) crossed: Option<CrossedIke>,
    pub(crate) request: Option<RequestId>,
    pub(crate) retry: Retry,
    pub(crate) started: Instant,
}

/// A rekey of the IKE SA that the peer began while ours was in flight.
pub(crate) struct CrossedIke {
    /// `None` while the peer's additional key exchanges are still to come.
    pub(crate) ike: Option<IkeSaId>,
    pub(crate) nonces: OwnNonces,
}

impl Sent {
    /// The child of the request, by CREATE_CHILD_SA or the exchanges after it.
    pub(crate) fn child(&self) -> Option<&RequestedChild> {
        match self {
            Self::Child(offer) => Some(offer),
            Self::Followup(followup) => followup.what.child(),
            _ => None,
        }
    }

    /// The rekey of the IKE SA, in the same way.
    pub(crate) fn ike(&self) -> Option<&RekeyOffer> {
        match self {
            Self::RekeyIke(offer) => Some(offer),
            Self::Followup(followup) => followup.what.ike(),
            _ => None,
        }
    }

    /// The inbound SPI that is reserved for a requested child.
    pub(crate) fn spi_in(&self) -> Option<u32> {
        self.child().map(|offer| offer.spi_in())
    }

    /// True if the SA ends with it.
    pub(crate) fn ends_sa(&self) -> bool {
        matches!(self, Self::DeleteIke { .. })
    }

    /// The command that waits for it, and whether that command wants the end of the SA.
    pub(crate) fn request(self) -> (Option<RequestId>, bool) {
        match self {
            Self::Child(offer) => (offer.command(), false),
            Self::RekeyIke(offer) => (offer.request, false),
            Self::Redirect(redirect) => (redirect.command(), false),
            Self::Followup(followup) => (followup.what.request(), false),
            Self::DeleteChild { request, .. } | Self::DeleteIke { request, .. } => (request, true),
            Self::DeleteSpi
            | Self::Liveness
            | Self::TicketRequest
            | Self::Mobility(_)
            | Self::Probe { .. } => (None, false),
        }
    }
    // ---- exchanges of the peer that cross it ----

    /// The SA of the peer's rekey of this one, while ours waits for its answer.
    pub(crate) fn crossed_rekey(&self) -> Option<IkeSaId> {
        self.ike()?.crossed.as_ref().and_then(|crossed| crossed.ike)
    }

    /// Handles that the SA of the peer's rekey is gone: only ours is left.
    pub(crate) fn uncross(&mut self) {
        match self {
            Self::RekeyIke(offer) => offer.crossed = None,
            Self::Followup(followup) => followup.what.uncross(),
            _ => {}
        }
    }

    /// Handles that the child `new`, by which the peer replaces the same one, could not be installed.
    pub(crate) fn uncross_child(&mut self, new: ChildSaId) {
        match self {
            Self::Child(offer) => offer.uncross(new),
            Self::Followup(followup) => followup.what.uncross_child(new),
            _ => {}
        }
    }

    /// Handles a Delete of the outbound SA with `spi`, which no child has: the response may be still to come.
    pub(crate) fn note_deleted(&mut self, spi: u32) {
        match self {
            Self::Child(offer) => offer.note_deleted(spi),
            Self::Followup(followup) => followup.what.note_deleted(spi),
            _ => {}
        }
    }

    /// True if it makes the child `wanted` that this end has begun by itself. `request` waits for it from now on.
    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        match self {
            Self::Child(offer) => offer.is_joined_by(wanted, request),
            Self::Followup(followup) => followup.what.join(wanted, request),
            _ => false,
        }
    }

    /// Records the peer's rekey if this end is rekeying the SA, too. The response to ours will decide. True if so.
    pub(crate) fn note_crossed_ike(&mut self, ike: Option<IkeSaId>, nonces: OwnNonces) -> bool {
        let Self::RekeyIke(offer) = self else { return false };
        offer.crossed = Some(CrossedIke { ike, nonces });
        true
    }

    /// Records the peer's rekey of the child `old` if this end is rekeying it, too. The response to ours will decide.
    pub(crate) fn note_crossed(
        &mut self,
        old: ChildSaId,
        new: Option<ChildSaId>,
        nonces: Nonces<'_>,
    ) {
        if let Self::Child(offer) = self
            && offer.rekeys() == Some(old)
        {
            offer.crossed_by(new, nonces.to_owned());
        }
    }
}
