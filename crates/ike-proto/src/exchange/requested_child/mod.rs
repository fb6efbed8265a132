//! A Child SA that this end requests, in IKE_AUTH and CREATE_CHILD_SA alike (RFC 7296 §1.2, §1.3): what it offers, and
//! what becomes of the response.

mod complete;
mod offer;
mod request;
mod response;

use std::sync::Arc;
use std::time::Instant;

use super::ppk::{self, OfferedPpk};
use super::{mode, resource, tfc};
use crate::child::Heritage;
use crate::child::Join;
use crate::config::ChildConfig;
use crate::crypto::PendingKe;
use crate::dataplane::{Flow, Mode, PolicyId, TrafficSelector};
use crate::event::{ChildSaId, RequestId};
use crate::exchange::sent::Retry;
use crate::ike_sa::Children;
use crate::ike_sa::collision::{self, AfterRekey, Meanwhile, RekeyResponse};
use crate::ike_sa::state::Task;
use crate::keys::{Nonces, OwnNonces};
use crate::wants::{Sought, Wanted};
use crate::wire::payload::{Ke, Payload, Proposal, Sa};
use crate::wire::registry::KeMethodId;
pub(crate) use offer::{NoOffer, OfferSpec, usable_methods};
pub(crate) use request::NewChild;

/// SPIs of Deletes that are remembered because they may be about a child that is not known yet.
const MAX_DELETED: usize = 8;

/// A Child SA that this end has requested.
pub(crate) struct RequestedChild {
    id: ChildSaId,
    config: Arc<ChildConfig>,
    packet: Option<Flow>,
    spi_in: u32,
    policy: PolicyId,
    /// The request has SA_RESOURCE_INFO (RFC 9611).
    per_cpu: bool,
    /// Its place among several for the same traffic.
    join: Option<Join>,
    /// Its identifier among several, for the peer.
    identifier: [u8; 4],
    /// What it takes over from the child that it replaces or joins.
    heritage: Option<Heritage>,
    proposals: Vec<Proposal>,
    local_ts: Vec<TrafficSelector>,
    remote_ts: Vec<TrafficSelector>,
    mode: Mode,
    nonce: Box<[u8]>,
    ke: Option<(KeMethodId, Arc<dyn PendingKe>)>,
    /// PPKs offered.
    ppks: Vec<OfferedPpk>,
    /// The child to replace.
    rekeys: Option<ChildSaId>,
    /// What the peer has done with the same child meanwhile.
    crossed: Option<CrossedChild>,
    /// SPIs of the peer that it deleted while the request was in flight and that are unknown here.
    deleted: Vec<u32>,
    started: Instant,
    request: Option<RequestId>,
    retry: Retry,
}

/// A rekey of the same child that the peer began while ours was in flight.
struct CrossedChild {
    /// `None` while the peer's additional key exchanges are still to come.
    child: Option<ChildSaId>,
    nonces: OwnNonces,
}

impl RequestedChild {
    /// The child's configuration.
    pub(crate) fn config(&self) -> &Arc<ChildConfig> {
        &self.config
    }

    /// The child that it replaces.
    pub(crate) fn rekeys(&self) -> Option<ChildSaId> {
        self.rekeys
    }

    /// The packet that asks for it.
    pub(crate) fn packet(&self) -> Option<Flow> {
        self.packet
    }

    /// Its place among several for the same traffic.
    pub(crate) fn join(&self) -> Option<Join> {
        self.join
    }

    /// The command that waits for it.
    pub(crate) fn command(&self) -> Option<RequestId> {
        self.request
    }

    /// The inbound SPI that is reserved for it.
    pub(crate) fn spi_in(&self) -> u32 {
        self.spi_in
    }

    /// The PPKs that it offers.
    pub(crate) fn ppks(&self) -> &[OfferedPpk] {
        &self.ppks
    }

    /// The proposals that it offers.
    pub(crate) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Its key exchange, if it has one.
    pub(crate) fn ke(&self) -> Option<(KeMethodId, &Arc<dyn PendingKe>)> {
        self.ke.as_ref().map(|(method, half)| (*method, half))
    }

    /// Records a rekey of the same child that the peer has begun: `new`, or `None` while additional key exchanges are
    /// still to come. The response to this request will decide.
    pub(crate) fn crossed_by(&mut self, new: Option<ChildSaId>, nonces: OwnNonces) {
        self.crossed = Some(CrossedChild { child: new, nonces });
    }

    /// Records that the child `new`, by which the peer replaces the same one, could not be installed.
    pub(crate) fn uncross(&mut self, new: ChildSaId) {
        self.crossed.take_if(|crossed| crossed.child == Some(new));
    }

    /// True if the peer has begun to replace the same child.
    pub(crate) fn is_crossed(&self) -> bool {
        self.crossed.is_some()
    }

    /// Records that the peer has deleted an SA that is unknown here: it may be the one of the response.
    pub(crate) fn note_deleted(&mut self, spi: u32) {
        if self.deleted.len() < MAX_DELETED {
            self.deleted.push(spi);
        }
    }

    /// True if the peer's rekey of the same child wins against this one, whose response has the nonce `r`.
    pub(crate) fn loses(&self, children: &Children, r: &[u8]) -> bool {
        let created = RekeyResponse::Created(Nonces { i: &self.nonce, r });
        self.rekeys.is_some()
            && collision::after_rekey(created, self.meanwhile(children, None))
                == AfterRekey::DeleteNew
    }

    /// The first request for this child once more, for no command; `None` for a rekey.
    pub(crate) fn once_more(&self) -> Option<Task> {
        let config = Arc::clone(&self.config);
        let (packet, join, retry) = (self.packet, self.join, Retry::default());
        self.rekeys.is_none().then_some(Task::CreateChild {
            config,
            packet,
            request: None,
            retry,
            join,
        })
    }

    /// What is wanted, for another IKE SA.
    pub(crate) fn into_wanted(self) -> Wanted {
        Wanted { child: Some(self.config), request: self.request, packet: self.packet }
    }

    /// The payloads of the offer in IKE_AUTH, owned, so that the SA is not borrowed while it sends them.
    pub(crate) fn payloads_in_auth(&self) -> Vec<Payload<'static>> {
        let rest = [
            Payload::Sa(Sa { proposals: self.proposals.clone() }),
            Payload::TsI(self.local_ts.clone()),
            Payload::TsR(self.remote_ts.clone()),
        ];
        let notifies = mode::payload(self.mode, &self.config.processing).into_iter();
        let notifies = notifies.chain(tfc::payload(self.mode));
        // In IKE_AUTH it is the first for its traffic, and has no identifier.
        notifies.chain(self.per_cpu.then(|| resource::payload(&[]))).chain(rest).collect()
    }

    /// True if it makes the child `wanted` that this end has begun by itself. `request` waits for it from now on.
    pub(crate) fn is_joined_by(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        let joined = Sought::Present(wanted).is(&self.config)
            && self.rekeys.is_none()
            && self.join.is_none()
            && self.packet.is_none()
            && self.request.is_none();
        if joined {
            self.request = Some(request);
        }
        joined
    }

    /// The notifies before SA: the mode, and whether further children for the same traffic are possible.
    pub(crate) fn notifies(&self) -> impl Iterator<Item = Payload<'_>> {
        let resource = self.resource().map(resource::payload);
        let mode = mode::payload(self.mode, &self.config.processing);
        mode.into_iter().chain(tfc::payload(self.mode)).chain(resource)
    }

    /// The payloads of the offer, in the order of RFC 7296 §1.3.1: SA, \[Ni, \[KEi\]\], TSi, TSr, after the
    /// notifies.
    pub(crate) fn payloads(&self, with_nonce: bool) -> Vec<Payload<'_>> {
        let mut payloads = Vec::with_capacity(8);
        payloads.extend(self.notifies());
        payloads.push(Payload::Sa(Sa { proposals: self.proposals.clone() }));
        if with_nonce {
            payloads.push(Payload::Nonce(&self.nonce));
            if let Some((method, ke)) = &self.ke {
                payloads.push(Payload::Ke(Ke { method: *method, data: ke.public() }));
            }
        }
        payloads.push(Payload::TsI(self.local_ts.clone()));
        payloads.push(Payload::TsR(self.remote_ts.clone()));
        payloads.extend(ppk::offer_payloads(&self.ppks));
        payloads
    }

    /// The data of SA_RESOURCE_INFO, if the offer has it.
    pub(crate) fn resource(&self) -> Option<&[u8]> {
        //= https://www.rfc-editor.org/rfc/rfc9611#section-7
        //# Notification data SHOULD NOT be an identifier
        //# that can be used to gain information about the hardware.
        // Numbers in the order of requests, not of CPUs; none for the first child.
        let numbered = self.join.is_some_and(|join| join.cpu.is_some());
        self.per_cpu.then_some(if numbered { self.identifier.as_slice() } else { &[] })
    }

    /// What the peer has done with the child that is rekeyed while the request was in flight.
    pub(crate) fn meanwhile(&self, children: &Children, spi_out: Option<u32>) -> Meanwhile<'_> {
        let theirs = self.crossed.as_ref().map(|crossed| crossed.nonces.borrow());
        if spi_out.is_some_and(|spi| self.deleted.contains(&spi)) {
            return Meanwhile::NewDeleted(theirs);
        }
        if let Some(theirs) = theirs {
            return Meanwhile::RekeyedByPeer(theirs);
        }
        match self.rekeys {
            Some(old) if children.get(old).is_none() => Meanwhile::OldDeleted,
            _ => Meanwhile::Nothing,
        }
    }
}
