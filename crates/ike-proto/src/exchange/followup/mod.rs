//! IKE_FOLLOWUP_KE (RFC 9370 §2.2.4): the additional key exchanges of a CREATE_CHILD_SA.
//!
//! ```text
//!    HDR, SK {SA, Ni, KEi, ...}  -->
//!                               <--  HDR, SK {SA, Nr, KEr, ..., N(ADDITIONAL_KEY_EXCHANGE)(link1)}
//!    HDR, SK {KEi(1), N(ADDITIONAL_KEY_EXCHANGE)(link1)}  -->
//!                               <--  HDR, SK {KEr(1), [N(ADDITIONAL_KEY_EXCHANGE)(link2)]}
//! ```
//!
//! The initiator keeps the CREATE_CHILD_SA response and acts on it after the last exchange, as if it had just
//! arrived. The responder keeps its answer.

mod answering;
mod initiator;
mod responder;

pub(crate) use answering::{Answering, Reply, Responding};

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::child::{ChildSa, Phase};
use crate::config::ChildConfig;
use crate::config::proposal::Selected;
use crate::crypto::{PendingKe, Secret};
use crate::event::{ChildSaId, RequestId};
use crate::exchange::ppk::MixedPpk;
use crate::exchange::requested_child::RequestedChild;
use crate::exchange::sent::{RekeyOffer, Sent};
use crate::ike_sa::collision::{ChildActivity, IkeActivity};
use crate::ike_sa::state::{Established, IkePhase};
use crate::keys::epoch::Opened;
use crate::keys::{OwnNonces, Spis};
use crate::wire::registry::{KeMethodId, NotifyType};

/// How long this end waits for the next exchange of a child that the peer makes, before it makes the child itself.
pub(crate) const PEER_GOES_ON: Duration = Duration::from_secs(10);

/// What this end has requested in CREATE_CHILD_SA.
pub(crate) enum OurOffer {
    Child(Box<RequestedChild>),
    Ike(Box<RekeyOffer>),
}

impl OurOffer {
    pub(crate) fn request(&self) -> Option<RequestId> {
        match self {
            Self::Child(offer) => offer.command(),
            Self::Ike(offer) => offer.request,
        }
    }

    pub(crate) fn child(&self) -> Option<&RequestedChild> {
        if let Self::Child(offer) = self { Some(offer) } else { None }
    }

    pub(crate) fn ike(&self) -> Option<&RekeyOffer> {
        if let Self::Ike(offer) = self { Some(offer) } else { None }
    }

    // ---- as the methods of `Sent` ----

    pub(crate) fn uncross(&mut self) {
        if let Self::Ike(offer) = self {
            offer.crossed = None;
        }
    }

    pub(crate) fn uncross_child(&mut self, new: ChildSaId) {
        if let Self::Child(offer) = self {
            offer.uncross(new);
        }
    }

    pub(crate) fn note_deleted(&mut self, spi: u32) {
        if let Self::Child(offer) = self {
            offer.note_deleted(spi);
        }
    }

    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        match self {
            Self::Child(offer) => offer.is_joined_by(wanted, request),
            Self::Ike(_) => false,
        }
    }

    /// The same, with CREATE_CHILD_SA in flight.
    fn initiated(self) -> Sent {
        match self {
            Self::Child(offer) => Sent::Child(offer),
            Self::Ike(offer) => Sent::RekeyIke(offer),
        }
    }
}

/// The initiator's side of a chain, with its next exchange in flight.
pub(crate) struct Followup {
    pub(crate) what: OurOffer,
    /// The CREATE_CHILD_SA response.
    response: Opened,
    /// Shared secrets of the additional key exchanges so far.
    shared: Vec<Secret>,
    method: KeMethodId,
    /// `None` while it is being made.
    ke: Option<Arc<dyn PendingKe>>,
    /// Methods after it.
    rest: Vec<KeMethodId>,
    /// When the response came that this exchange follows.
    asked: Instant,
}

/// What the peer has requested in CREATE_CHILD_SA.
pub(crate) enum TheirOffer {
    Child(Box<ChildSa>),
    Ike { spis: Spis, selected: Selected, started: Instant },
}

/// The responder's side of a chain, waiting for its next exchange.
pub(crate) struct Chain {
    what: TheirOffer,
    link: [u8; 8],
    nonces: OwnNonces,
    shared: Vec<Secret>,
    ppk: Option<MixedPpk>,
    method: KeMethodId,
    rest: Vec<KeMethodId>,
    /// When this end answered its last exchange.
    answered: Instant,
    expires: Instant,
    /// The latest time to which it may be extended.
    latest: Instant,
}

impl Chain {
    pub(crate) fn is_child(&self) -> bool {
        self.child().is_some()
    }

    /// The SPI that this end has chosen for the IKE SA that the chain makes.
    pub(crate) fn ike_spi(&self) -> Option<u64> {
        match &self.what {
            TheirOffer::Child(_) => None,
            TheirOffer::Ike { spis, .. } => Some(spis.r()),
        }
    }

    /// The child that the chain makes.
    pub(crate) fn child(&self) -> Option<&ChildSa> {
        match &self.what {
            TheirOffer::Child(child) => Some(child),
            TheirOffer::Ike { .. } => None,
        }
    }

    /// True if the chain makes a first child of this name, and goes on.
    pub(crate) fn makes(&self, name: &str, now: Instant) -> bool {
        let is =
            |new: &ChildSa| new.config.name == name && new.replaces.is_none() && new.cpu.is_none();
        self.child().is_some_and(is) && now < self.answered + PEER_GOES_ON
    }
}

impl Established {
    /// The error for the next exchange of `chain`, if the answer to CREATE_CHILD_SA no longer holds. The rules are
    /// those for that request (RFC 7296 §2.25), except that an exchange of ours which crosses this one was
    /// considered then.
    pub(super) fn overtaken(&self, chain: &Chain) -> Option<NotifyType> {
        let put_off = Some(NotifyType::TEMPORARY_FAILURE);
        let ike = self.work().ike_activity(self.phase);
        let Some(new) = chain.child() else {
            let ends = matches!(ike, IkeActivity::Closing | IkeActivity::FollowUp);
            let free = self.phase == IkePhase::Alive
                && !ends
                && !self.work().own_child_exchange(&self.children);
            return put_off.filter(|_| !free);
        };
        if ike != IkeActivity::Idle {
            return put_off;
        }
        let id = new.replaces?;
        let Some(old) = self.children.get(id) else {
            // The peer has deleted it.
            return Some(NotifyType::STATE_NOT_FOUND);
        };
        let replaced = || self.children.iter().any(|other| other.replaces == Some(id));
        let free = match self.work().activity(old, &self.children) {
            ChildActivity::Idle | ChildActivity::Rekeying => true,
            ChildActivity::Rekeyed => old.phase == Phase::Installed && !replaced(),
            _ => false,
        };
        put_off.filter(|_| !free)
    }
}
