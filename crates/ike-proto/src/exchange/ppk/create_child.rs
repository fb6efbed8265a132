//! PPKs in CREATE_CHILD_SA (RFC 9867 §3.2): new children, and rekeys of children and IKE SAs.

use std::sync::Arc;

use super::{MixedPpk, NotOffered, OfferedPpk};
use crate::channel::link::Link;
use crate::channel::{Channel, Session};
use crate::config::{EndpointConfig, PpkRekey};
use crate::event::Failure;
use crate::exchange::sent::{RekeyOffer, Retry};
use crate::exchange::{Payloads, Refusal};
use crate::ike_sa::Seen;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, Task};
use crate::keys::mixed_in_create_child;
use crate::reason::PolicyReason;
use crate::wire::payload::Payload;
use crate::wire::registry::NotifyType;

/// Why an SA without a PPK is refused.
const REQUIRED: Failure = Failure::Policy(PolicyReason::NoPpkInRekey);
/// Why no request is sent.
pub(crate) const NO_KEY: Failure = Failure::Policy(PolicyReason::NoPpkKey);

impl Established {
    /// Handles a response to a rekey of the IKE SA that is valid except that its PPK is not ours: gives up its SA.
    /// `chained` if no SA is made yet, because additional key exchanges were to come, or because no SA was requested.
    pub(crate) fn refuse_ppk_of_ike(
        &mut self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        offer: &RekeyOffer,
        payloads: &[Payload<'_>],
        reason: Failure,
        chained: bool,
    ) {
        ctx.done(offer.request, Err(reason.clone()));
        if chained {
            let task = Task::RekeyIke { request: None, retry: Retry::default() };
            return self.queue.retry_later(&mut self.life, ctx, task);
        }
        // The peer has moved the children to its new SA: both SAs end.
        let made = self.complete_rekey_ike(seen, ctx, offer, &Payloads(payloads), &[], None);
        if let Ok((new, _)) = made {
            ctx.discard(new);
        }
        self.queue.push_first(Task::DeleteIke { reason, request: None });
    }
}

/// What the PPKs of a rekey or of a new child depend on.
pub(crate) struct ChildPpks<'a> {
    link: &'a Link,
    session: &'a Session,
}

impl<'a> ChildPpks<'a> {
    /// For an SA with this channel.
    pub(crate) fn of(channel: &'a Channel) -> Self {
        Self { link: channel.link(), session: channel.session() }
    }

    // ---- initiator ----

    /// The PPKs to offer with the nonce `ni`.
    pub(crate) fn offered(&self, config: &EndpointConfig, ni: &[u8]) -> Vec<OfferedPpk> {
        let ppk = &self.link.connection().ppk;
        if ppk.rekey == PpkRekey::No {
            return Vec::new();
        }
        let [spi_i, spi_r] = self.link.spis().octets();
        super::offer(config, ppk, self.session.prf, &[ni, &spi_i, &spi_r])
    }

    /// True if no PPK can be offered, and one is required.
    pub(crate) fn lacks_required(&self, offered: &[OfferedPpk]) -> bool {
        offered.is_empty() && self.link.connection().ppk.rekey == PpkRekey::Require
    }

    /// The result of the offered PPKs in the response. The error says why its SA cannot be used.
    pub(crate) fn taken(
        &self,
        offered: &[OfferedPpk],
        payloads: &Payloads<'_, '_>,
    ) -> Result<Option<MixedPpk>, Failure> {
        match super::taken(offered, payloads) {
            Ok(Some(ppk)) => {
                let Session { prf, keys, .. } = self.session;
                let sk_d = mixed_in_create_child(*prf, keys.d(), &ppk.key.secret);
                Ok(Some(MixedPpk { id: ppk.id.clone(), key: Arc::clone(&ppk.key), sk_d }))
            }
            Ok(None) if self.link.connection().ppk.rekey == PpkRekey::Require => Err(REQUIRED),
            Ok(None) => Ok(None),
            Err(NotOffered) => Err(Failure::Policy(PolicyReason::PpkNotOffered)),
        }
    }

    /// The PPK with which to answer a request with the nonce `ni`, and its PPK_ID as the peer wrote it.
    pub(crate) fn for_request(
        &self,
        config: &EndpointConfig,
        payloads: &Payloads<'_, '_>,
        ni: &[u8],
    ) -> Result<Option<(MixedPpk, Vec<u8>)>, Refusal> {
        let ppk = &self.link.connection().ppk;
        let [spi_i, spi_r] = self.link.spis().octets();
        let prf = self.session.prf;
        let allowed = |id: &_| ppk.rekey != PpkRekey::No && self.link.connection().takes_ppk(id);
        match super::choose(config, allowed, prf, payloads, &[ni, &spi_i, &spi_r]) {
            Some(common) => {
                let sk_d = mixed_in_create_child(prf, self.session.keys.d(), &common.key.secret);
                Ok(Some((MixedPpk { id: common.id, key: common.key, sk_d }, common.wire)))
            }
            //= https://www.rfc-editor.org/rfc/rfc9867#section-3.2
            //# If using PPKs in CREATE_CHILD_SA is mandatory for the responder, and
            //# the initiator does not include any PPK_IDENTITY_KEY notifications in
            //# the request, or
            //= https://www.rfc-editor.org/rfc/rfc9867#section-3.2
            //# then the responder MUST return the NO_PROPOSAL_CHOSEN
            //# notification
            None if ppk.rekey == PpkRekey::Require => Err(NotifyType::NO_PROPOSAL_CHOSEN.into()),
            None => Ok(None),
        }
    }
}
