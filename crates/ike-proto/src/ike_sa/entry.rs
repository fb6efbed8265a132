//! What an endpoint asks of an established IKE SA, and has it do. Any other SA answers no, and does nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::crossing::Cover;
use super::established::ComingSpis;
use super::state::{Established, State, Task};
use super::succession::Inheritance;
use super::{Core, IkeSa};
use crate::config::ChildConfig;
use crate::dataplane::{Flow, PolicyId, Processing};
use crate::event::{ChildSaId, Failure, IkeSaId, RequestId};
use crate::exchange::auth::first_contact::LastAnswer;
use crate::exchange::sent::Sent;
use crate::ike_sa::Carries;
use crate::wants::Sought;
use crate::wire::payload::IdData;

impl IkeSa {
    /// The established state, and what the SA has in every state.
    pub(crate) fn established(&self) -> Option<(&Established, &Core)> {
        match &self.state {
            State::Established(established) => Some((established, &self.core)),
            _ => None,
        }
    }

    /// As [`established`](Self::established).
    pub(crate) fn established_mut(&mut self) -> Option<(&mut Established, &mut Core)> {
        match &mut self.state {
            State::Established(established) => Some((established, &mut self.core)),
            _ => None,
        }
    }

    /// Has the established state do something.
    pub(crate) fn when_established(&mut self, act: impl FnOnce(&mut Established, &mut Core)) {
        if let Some((established, core)) = self.established_mut() {
            act(established, core);
        }
    }

    /// See [`Established::activate`].
    pub(crate) fn activate(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        if let Some((established, core)) = self.established_mut() {
            established.activate(core, ctx, id);
        }
    }

    /// See [`Established::answer_now`].
    pub(crate) fn answer_now(&mut self, ctx: &mut Context<'_>, answer: LastAnswer) {
        if let Some((established, core)) = self.established_mut() {
            established.answer_now(core, ctx, answer);
        }
    }

    /// See [`Established::ask_for_life`].
    pub(crate) fn ask_for_life(&mut self) {
        if let Some((established, _)) = self.established_mut() {
            established.ask_for_life();
        }
    }

    /// See [`Established::carried`].
    pub(crate) fn carried(&self) -> Option<Vec<Carries>> {
        self.established().and_then(|(established, _)| established.carried())
    }

    /// See [`Established::carries`].
    pub(crate) fn carries(&self, sought: Sought<'_>) -> bool {
        self.established().is_some_and(|(established, _)| established.carries(sought))
    }

    /// See [`Established::change_auth_lifetime`].
    pub(crate) fn change_auth_lifetime(
        &mut self,
        ctx: &mut Context<'_>,
        lifetime: Duration,
    ) -> bool {
        self.established_mut().is_some_and(|(established, core)| {
            established.change_auth_lifetime(core, ctx, lifetime)
        })
    }

    /// See [`Established::check_liveness`].
    pub(crate) fn check_liveness(&mut self) {
        if let Some((established, _)) = self.established_mut() {
            established.check_liveness();
        }
    }

    /// See [`Established::coming_spis`].
    pub(crate) fn coming_spis(&self) -> ComingSpis {
        self.established().map_or([None; 2], |(established, _)| established.coming_spis())
    }

    /// See [`Established::count_up`].
    pub(crate) fn count_up(&self, name: &str) -> usize {
        self.established().map_or(0, |(established, _)| established.count_up(name))
    }

    /// See [`Established::covers`].
    pub(crate) fn covers(&self, wanted: &[Carries]) -> Cover {
        self.established()
            .map_or(Cover::Never, |(established, core)| established.covers(core, wanted))
    }

    /// See [`Sent::crossed_rekey`].
    pub(crate) fn crossed_rekey(&self) -> Option<IkeSaId> {
        self.established()
            .and_then(|(established, _)| established.sent.as_ref().and_then(Sent::crossed_rekey))
    }

    /// See [`Established::disown`].
    pub(crate) fn disown(&mut self, ctx: &mut Context<'_>, estate: Inheritance) {
        if let Some((established, core)) = self.established_mut() {
            established.disown(core, ctx, estate);
        }
    }

    /// See [`Established::end_crossed`].
    pub(crate) fn end_crossed(&mut self, ctx: &mut Context<'_>) {
        if let Some((established, _)) = self.established_mut() {
            established.end_crossed(ctx);
        }
    }

    /// See [`Queue::push`](super::Queue::push).
    pub(crate) fn push(&mut self, task: Task) {
        if let Some((established, _)) = self.established_mut() {
            established.queue.push(task);
        }
    }

    /// See [`Queue::push_first`](super::Queue::push_first).
    pub(crate) fn push_first(&mut self, task: Task) {
        if let Some((established, _)) = self.established_mut() {
            established.queue.push_first(task);
        }
    }

    /// See [`Established::on_soft_limit`].
    pub(crate) fn on_soft_limit(&mut self, id: ChildSaId) {
        if let Some((established, _)) = self.established_mut() {
            established.on_soft_limit(id);
        }
    }

    /// See [`Established::expire_child`].
    pub(crate) fn expire_child(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        if let Some((established, core)) = self.established_mut() {
            established.expire_child(core, ctx, id);
        }
    }

    /// See [`Established::follow_esp`].
    pub(crate) fn follow_esp(
        &mut self,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        remote: SocketAddr,
    ) {
        if let Some((established, core)) = self.established_mut() {
            established.follow_esp(core, ctx, child, remote);
        }
    }

    /// See [`Identity::forgets_others`](super::Identity::forgets_others).
    pub(crate) fn forgets_others(&self, initial_contact: bool) -> bool {
        self.established().is_some_and(|(established, core)| {
            established.identity.forgets_others(core, initial_contact)
        })
    }

    /// See [`Queue::give_up_child`](super::Queue::give_up_child).
    pub(crate) fn give_up_child(&mut self, child: ChildSaId, reason: Failure) {
        if let Some((established, _)) = self.established_mut() {
            established.queue.give_up_child(child, reason);
        }
    }

    /// See [`Established::has_or_makes`].
    pub(crate) fn has_or_makes(&self, sought: Sought<'_>) -> bool {
        self.established().is_some_and(|(established, _)| established.has_or_makes(sought))
    }

    /// See [`Established::has_up`].
    pub(crate) fn has_up(&self, sought: Sought<'_>) -> bool {
        self.established().is_some_and(|(established, _)| established.has_up(sought))
    }

    /// See [`Identity::both`](super::Identity::both).
    pub(crate) fn identities(&self) -> Option<(IdData, IdData)> {
        self.established().map(|(established, _)| established.identity.both())
    }

    /// See [`Established::inherit`].
    pub(crate) fn inherit(&mut self, ctx: &mut Context<'_>, estate: Inheritance) {
        if let Some((established, core)) = self.established_mut() {
            established.inherit(core, ctx, estate);
        }
    }

    /// See [`Established::join`].
    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        self.established_mut().is_some_and(|(established, _)| established.join(wanted, request))
    }

    /// See [`Children::is_on_standby`](super::Children::is_on_standby).
    pub(crate) fn is_on_standby(&self, name: &str) -> bool {
        self.established().is_some_and(|(established, _)| established.children.is_on_standby(name))
    }

    /// See [`Identity::is_resumed`](super::Identity::is_resumed).
    pub(crate) fn is_resumed(&self) -> bool {
        self.established().is_some_and(|(established, _)| established.identity.is_resumed())
    }

    /// See [`Queue::make_missing`](super::Queue::make_missing).
    pub(crate) fn make_missing(&mut self, lacks: Vec<Arc<ChildConfig>>) {
        if let Some((established, _)) = self.established_mut() {
            established.queue.make_missing(lacks);
        }
    }

    /// See [`Established::mark_redundant`].
    pub(crate) fn mark_redundant(&mut self) {
        if let Some((established, core)) = self.established_mut() {
            established.mark_redundant(core);
        }
    }

    /// See [`Established::names_of_children`].
    pub(crate) fn names_of_children(&self) -> Vec<String> {
        self.established().map_or(Vec::new(), |(established, _)| established.names_of_children())
    }

    /// See [`Established::on_crossed_lost`].
    pub(crate) fn on_crossed_lost(&mut self, from: IkeSaId) {
        if let Some((established, core)) = self.established_mut() {
            established.on_crossed_lost(core, from);
        }
    }

    /// See [`Established::on_network`].
    pub(crate) fn on_network(&mut self, ctx: &mut Context<'_>) {
        if let Some((established, core)) = self.established_mut() {
            established.on_network(core, ctx);
        }
    }

    /// See [`Established::on_peer_lost`].
    pub(crate) fn on_peer_lost(&mut self, ctx: &mut Context<'_>) {
        match self.established_mut() {
            Some((established, core)) => established.on_peer_lost(core, ctx),
            None => self.core.end(Failure::LostByPeer),
        }
    }

    /// See [`Children::send_by_others`](super::Children::send_by_others).
    pub(crate) fn send_by_others(&mut self, ctx: &mut Context<'_>, new: &[(Carries, Instant)]) {
        if let Some((established, _)) = self.established_mut() {
            established.children.send_by_others(ctx, new);
        }
    }

    /// See [`Established::serves`].
    pub(crate) fn serves(&self, name: &str, packet: Flow, trap: Option<&Processing>) -> bool {
        self.established().is_some_and(|(established, _)| established.serves(name, packet, trap))
    }

    /// See [`Children::shared_policy`](super::Children::shared_policy).
    pub(crate) fn shared_policy(
        &self,
        name: &str,
        packet: Flow,
        trap: &Processing,
    ) -> Option<PolicyId> {
        self.established()
            .and_then(|(established, _)| established.children.shared_policy(name, packet, trap))
    }

    /// See [`Established::take_over_stream`].
    pub(crate) fn take_over_stream(&mut self, reopen_at: Option<Instant>) {
        if let Some((established, core)) = self.established_mut() {
            established.take_over_stream(core, reopen_at);
        }
    }

    /// See [`Established::tell_invalid_spi`].
    pub(crate) fn tell_invalid_spi(&mut self, spi: u32) -> bool {
        self.established_mut().is_some_and(|(established, _)| established.tell_invalid_spi(spi))
    }

    /// See [`Established::want_cpu`].
    pub(crate) fn want_cpu(&mut self, policy: PolicyId, cpu: u32, packet: Flow) {
        if let Some((established, _)) = self.established_mut() {
            established.want_cpu(policy, cpu, packet);
        }
    }

    /// See [`Children::used_routes`](super::Children::used_routes).
    pub(crate) fn routes(&self) -> Vec<(Carries, Instant)> {
        self.established().map_or(Vec::new(), |(established, _)| established.children.used_routes())
    }
}
