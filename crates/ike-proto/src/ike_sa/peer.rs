//! What this end knows of the other end of an IKE SA, and has agreed with it.

use crate::channel::Channel;
use crate::child::processing::{Asker, IfIds};
use crate::config::ConnectionConfig;
use crate::config::PpkId;
use crate::dataplane::Flow;
use crate::event::{Disbelief, Failure, IkeSaId};
use crate::exchange::Payloads;
use crate::exchange::config::Assigned;
use crate::exchange::ppk::PpkStage;
use crate::exchange::ppk::auth::AuthData;
use crate::exchange::qcd::PeerToken;
use crate::exchange::redirect::Redirected;
use crate::exchange::resume::fits::InForce;
use crate::ike_sa::Context;
use crate::wire::payload::Payload;

/// What this end knows of the other end, and has agreed with it, in every state of the SA. The connection and the
/// extensions are in the [`Link`](crate::channel::link::Link) of the channel, which needs them.
#[derive(Default)]
pub(crate) struct Peer {
    ppk: PpkStage,
    /// Interface ids, in and out, for children without their own.
    if_ids: IfIds,
    /// What one end has got from the other by configuration payloads.
    assigned: Assigned,
    lineage: Lineage,
    /// True if this end made the SA to replace another one by reauthentication.
    renews: bool,
    /// Gateway: a ticket was given for this SA (RFC 5723).
    ticketed: bool,
    /// The token that the peer will send if it loses this SA (RFC 6290).
    token: PeerToken,
}

/// The IKE SAs before this one.
#[derive(Default)]
struct Lineage {
    /// Initiator: how the SA came to its gateway by redirects.
    redirected: Option<Box<Redirected>>,
    /// The SA that this one replaces by reauthentication. It is deleted when this one is established.
    reauthenticates: Option<IkeSaId>,
    /// SAs whose rekeys led to this one and that may still exist, the oldest first.
    predecessors: Box<[IkeSaId]>,
}

impl Peer {
    /// Of an SA that this end makes. `renews` if it is to replace another one by reauthentication.
    pub(crate) fn asked(renews: bool) -> Self {
        Self { renews, ..Self::default() }
    }

    /// The same peer, for the SA that a rekey with `ppk` makes. SK_d contains the PPK of this SA.
    pub(crate) fn rekeyed(&self, ppk: Option<(PpkId, u64)>) -> Self {
        let ppk = match (ppk, &self.ppk) {
            (Some((id, print)), _) => PpkStage::Used(id, print),
            (None, PpkStage::Used(id, print)) => PpkStage::Used(id.clone(), *print),
            (None, _) => PpkStage::Without,
        };
        let redirected = self.lineage.redirected.clone();
        Self {
            ppk,
            if_ids: self.if_ids.clone(),
            assigned: self.assigned.clone(),
            lineage: Lineage { redirected, ..Lineage::default() },
            ..Self::default()
        }
    }

    // ---- PPK ----

    /// The PPK of the SA.
    pub(crate) fn ppk(&self) -> &PpkStage {
        &self.ppk
    }

    /// Records that the keys depend on the PPK `id`, whose key has this [`print`](crate::table::HashSeed::print).
    pub(crate) fn use_ppk(&mut self, id: PpkId, print: u64) {
        self.ppk = PpkStage::Used(id, print);
    }

    /// See [`PpkStage::mix_in_auth`].
    pub(crate) fn mix_ppk(
        &mut self,
        channel: &mut Channel,
        in_force: InForce<'_>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.ppk.mix_in_auth(channel, in_force)
    }

    /// See [`PpkStage::settle`].
    pub(crate) fn settle_ppk(
        &mut self,
        channel: &mut Channel,
        payloads: &Payloads<'_, '_>,
    ) -> Result<(), Failure> {
        self.ppk.settle(channel, payloads)
    }

    /// See [`PpkStage::take_in_auth`].
    pub(crate) fn take_ppk<'a>(
        &mut self,
        channel: &mut Channel,
        in_force: InForce<'_>,
        connection: &ConnectionConfig,
        payloads: &Payloads<'a, '_>,
    ) -> Result<AuthData<'a>, Disbelief> {
        self.ppk.take_in_auth(channel, in_force, connection, payloads)
    }

    // ---- addresses and interface ids ----

    /// What one end has got from the other by configuration payloads.
    pub(crate) fn assigned(&self) -> &Assigned {
        &self.assigned
    }

    /// Records what one end has got from the other.
    pub(crate) fn assign(&mut self, assigned: Assigned) {
        self.assigned = assigned;
    }

    /// See [`Assigned::give_back`].
    pub(crate) fn give_back(&mut self, ctx: &mut Context<'_>) {
        self.assigned.give_back(ctx);
    }

    /// Interface ids, in and out, for children without their own.
    pub(crate) fn if_ids(&self) -> [u32; 2] {
        self.if_ids.values
    }

    /// Chooses the interface ids of an SA of `channel`, which is established.
    pub(crate) fn choose_if_ids(&mut self, channel: &Channel, ctx: &mut Context<'_>) {
        let asker = match channel.link().is_initiator() {
            true => self.asker(None),
            false => Asker::Peer,
        };
        self.if_ids = ctx.if_ids(channel.connection(), asker);
    }

    /// The [`Asker`] of a child that this end requests, perhaps for `packet`.
    pub(crate) fn asker(&self, packet: Option<Flow>) -> Asker {
        match packet {
            Some(_) => Asker::Packet,
            None if self.renews => Asker::Renewal,
            None => Asker::Us,
        }
    }

    // ---- tickets and tokens ----

    /// Records that a ticket was given for this SA.
    pub(crate) fn note_ticket(&mut self) {
        self.ticketed = true;
    }

    /// The SPIs by which this gateway's tickets for the SA of `channel` are known; `None` if it has given none.
    pub(crate) fn spis_of_tickets(&self, channel: &Channel) -> Option<(u64, u64)> {
        self.ticketed.then_some(channel.link().spis().pair())
    }

    /// The token that the peer will send if it loses this SA.
    pub(crate) fn token(&self) -> &PeerToken {
        &self.token
    }

    /// See [`PeerToken::take`].
    pub(crate) fn take_token(&mut self, channel: &Channel, payloads: &[Payload<'_>]) {
        self.token.take(channel, payloads);
    }

    // ---- the SAs before this one ----

    /// The SA that this one replaces by reauthentication.
    pub(crate) fn reauthenticates(&self) -> Option<IkeSaId> {
        self.lineage.reauthenticates
    }

    /// Has this SA replace `old` by reauthentication, or none.
    pub(crate) fn set_reauthenticates(&mut self, old: Option<IkeSaId>) {
        self.lineage.reauthenticates = old;
    }

    /// How the SA came to its gateway by redirects.
    pub(crate) fn redirected(&self) -> Option<Redirected> {
        self.lineage.redirected.as_deref().copied()
    }

    /// Records how the SA came to its gateway.
    pub(crate) fn set_redirected(&mut self, redirected: Option<Redirected>) {
        self.lineage.redirected = redirected.map(Box::new);
    }

    /// Takes out the SAs whose rekeys led to this one.
    pub(crate) fn take_predecessors(&mut self) -> Vec<IkeSaId> {
        std::mem::take(&mut self.lineage.predecessors).into_vec()
    }

    /// Records the SAs whose rekeys led to this one and that may still exist, the oldest first.
    pub(crate) fn set_predecessors(&mut self, predecessors: Vec<IkeSaId>) {
        self.lineage.predecessors = predecessors.into();
    }
}
