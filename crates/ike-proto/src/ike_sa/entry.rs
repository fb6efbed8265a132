//! What an endpoint asks of an established IKE SA, and has it do. Any other SA answers no, and does nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::crossing::Cover;
use super::established::ComingSpis;
use super::state::{Established, State, Task};
use super::succession::Inheritance;
use super::{IkeSa, Stem};
use crate::config::ChildConfig;
use crate::dataplane::{Flow, PolicyId, Processing};
use crate::event::{ChildSaId, Failure, IkeSaId, Now, RequestId};
use crate::exchange::auth::first_contact::LastAnswer;
use crate::exchange::sent::Sent;
use crate::ike_sa::Carries;
use crate::wants::Sought;
use crate::wire::payload::IdData;

impl IkeSa {
    /// The established state.
    pub(crate) fn established(&self) -> Option<&Established> {
        match &self.state {
            State::Established(established) => Some(established),
            _ => None,
        }
    }

    /// Has the established state do something.
    pub(crate) fn when_established<T>(
        &mut self,
        act: impl FnOnce(&mut Established, &mut Stem<'_>) -> T,
    ) -> Option<T> {
        let Self { channel, peer, state, ending, pending, waiting } = self;
        match state {
            State::Established(established) => {
                Some(act(established, &mut Stem { channel, peer, ending, pending, waiting }))
            }
            _ => None,
        }
    }

    /// See [`Established::activate`].
    pub(crate) fn activate(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        self.when_established(|established, stem| established.activate(stem.channel, ctx, id));
    }

    /// See [`Established::answer_now`].
    pub(crate) fn answer_now(&mut self, ctx: &mut Context<'_>, answer: LastAnswer) {
        self.when_established(|established, stem| established.answer_now(stem, ctx, answer));
    }

    /// See [`Established::carried`].
    pub(crate) fn carried(&self) -> Option<Vec<Carries>> {
        self.established().and_then(|established| established.carried())
    }

    /// See [`Established::carries`].
    pub(crate) fn carries(&self, sought: Sought<'_>) -> bool {
        self.established().is_some_and(|established| established.carries(sought))
    }

    /// See [`Established::change_auth_lifetime`].
    pub(crate) fn change_auth_lifetime(
        &mut self,
        ctx: &mut Context<'_>,
        lifetime: Duration,
    ) -> bool {
        self.when_established(|established, stem| {
            established.change_auth_lifetime(stem, ctx, lifetime)
        })
        .unwrap_or_default()
    }

    /// See [`Established::check_liveness`].
    pub(crate) fn check_liveness(&mut self) {
        self.when_established(|established, _| established.check_liveness());
    }

    /// See [`Established::coming_spis`].
    pub(crate) fn coming_spis(&self) -> ComingSpis {
        self.established().map_or([None; 2], |established| established.coming_spis())
    }

    /// See [`Established::count_up`].
    pub(crate) fn count_up(&self, name: &str) -> usize {
        self.established().map_or(0, |established| established.count_up(name))
    }

    /// See [`Established::covers`].
    pub(crate) fn covers(&self, wanted: &[Carries]) -> Cover {
        self.established()
            .map_or(Cover::Never, |established| established.covers(&self.channel, wanted))
    }

    /// See [`Sent::crossed_rekey`].
    pub(crate) fn crossed_rekey(&self) -> Option<IkeSaId> {
        self.established()
            .and_then(|established| established.sent.as_ref().and_then(Sent::crossed_rekey))
    }

    /// See [`Established::disown`].
    pub(crate) fn disown(&mut self, ctx: &mut Context<'_>, estate: Inheritance) {
        self.when_established(|established, stem| established.disown(stem.channel, ctx, estate));
    }

    /// See [`Queue::push`](super::Queue::push).
    pub(crate) fn push(&mut self, task: Task) {
        self.when_established(|established, _| established.queue.push(task));
    }

    /// See [`Queue::push_first`](super::Queue::push_first).
    pub(crate) fn push_first(&mut self, task: Task) {
        self.when_established(|established, _| established.queue.push_first(task));
    }

    /// See [`Established::on_soft_limit`].
    pub(crate) fn on_soft_limit(&mut self, id: ChildSaId) {
        self.when_established(|established, _| established.on_soft_limit(id));
    }

    /// See [`Established::expire_child`].
    pub(crate) fn expire_child(&mut self, ctx: &mut Context<'_>, id: ChildSaId) {
        self.when_established(|established, stem| established.expire_child(stem.channel, ctx, id));
    }

    /// See [`Established::follow_esp`].
    pub(crate) fn follow_esp(
        &mut self,
        ctx: &mut Context<'_>,
        child: ChildSaId,
        remote: SocketAddr,
    ) {
        self.when_established(|established, stem| {
            established.follow_esp(stem.channel, ctx, child, remote)
        });
    }

    /// See [`Identity::forgets_others`](super::Identity::forgets_others).
    pub(crate) fn forgets_others(&self, initial_contact: bool) -> bool {
        self.established().is_some_and(|established| {
            established.identity.forgets_others(&self.channel, initial_contact)
        })
    }

    /// See [`Established::has_or_makes`].
    pub(crate) fn has_or_makes(&self, sought: Sought<'_>) -> bool {
        self.established().is_some_and(|established| established.has_or_makes(sought))
    }

    /// See [`Established::has_up`].
    pub(crate) fn has_up(&self, sought: Sought<'_>) -> bool {
        self.established().is_some_and(|established| established.has_up(sought))
    }

    /// See [`Identity::both`](super::Identity::both).
    pub(crate) fn identities(&self) -> Option<(IdData, IdData)> {
        self.established().map(|established| established.identity.both())
    }

    /// See [`Established::inherit`].
    pub(crate) fn inherit(&mut self, ctx: &mut Context<'_>, estate: Inheritance) {
        self.when_established(|established, stem| established.inherit(stem.channel, ctx, estate));
    }

    /// See [`Established::join`].
    pub(crate) fn join(&mut self, wanted: &ChildConfig, request: RequestId) -> bool {
        self.when_established(|established, _| established.join(wanted, request))
            .unwrap_or_default()
    }

    /// See [`Children::is_on_standby`](super::Children::is_on_standby).
    pub(crate) fn is_on_standby(&self, name: &str) -> bool {
        self.established().is_some_and(|established| established.children.is_on_standby(name))
    }

    /// See [`Identity::is_resumed`](super::Identity::is_resumed).
    pub(crate) fn is_resumed(&self) -> bool {
        self.established().is_some_and(|established| established.identity.is_resumed())
    }

    /// See [`Queue::make_missing`](super::Queue::make_missing).
    pub(crate) fn make_missing(&mut self, lacks: Vec<Arc<ChildConfig>>) {
        self.when_established(|established, _| established.queue.make_missing(lacks));
    }

    /// See [`Established::mark_redundant`].
    pub(crate) fn mark_redundant(&mut self) {
        self.when_established(|established, stem| established.mark_redundant(stem.channel));
    }

    /// See [`Established::names_of_children`].
    pub(crate) fn names_of_children(&self) -> Vec<String> {
        self.established().map_or(Vec::new(), |established| established.names_of_children())
    }

    /// See [`Established::on_crossed_lost`].
    pub(crate) fn on_crossed_lost(&mut self, from: IkeSaId) {
        self.when_established(|established, stem| established.on_crossed_lost(stem, from));
    }

    /// See [`Established::on_network`].
    pub(crate) fn on_network(&mut self, ctx: &mut Context<'_>) {
        self.when_established(|established, stem| established.on_network(stem.channel, ctx));
    }

    /// See [`Established::on_peer_lost`].
    pub(crate) fn on_peer_lost(&mut self, ctx: &mut Context<'_>) {
        let told = self.when_established(|established, stem| established.on_peer_lost(stem, ctx));
        if told.is_none() {
            self.ending.end(Failure::LostByPeer);
        }
    }

    /// See [`Children::send_by_others`](super::Children::send_by_others).
    pub(crate) fn send_by_others(&mut self, ctx: &mut Context<'_>, new: &[(Carries, Instant)]) {
        self.when_established(|established, _| established.children.send_by_others(ctx, new));
    }

    /// See [`Established::serves`]. A packet that the peer has refused lately needs no child either.
    pub(crate) fn serves(
        &self,
        now: Now,
        name: &str,
        packet: Flow,
        trap: Option<&Processing>,
    ) -> bool {
        let assigned = self.peer.assigned();
        self.established().is_some_and(|established| {
            established.serves(assigned, name, packet, trap)
                || established.queue.has_refused(now.mono, name, packet)
        })
    }

    /// See [`Children::shared_policy`](super::Children::shared_policy).
    pub(crate) fn shared_policy(
        &self,
        name: &str,
        packet: Flow,
        trap: &Processing,
    ) -> Option<PolicyId> {
        self.established()
            .and_then(|established| established.children.shared_policy(name, packet, trap))
    }

    /// See [`Established::take_over_stream`].
    pub(crate) fn take_over_stream(&mut self, reopen_at: Option<Instant>) {
        self.when_established(|established, stem| {
            established.take_over_stream(stem.channel, reopen_at)
        });
    }

    /// See [`Established::tell_invalid_spi`].
    pub(crate) fn tell_invalid_spi(&mut self, spi: u32) -> bool {
        self.when_established(|established, _| established.tell_invalid_spi(spi))
            .unwrap_or_default()
    }

    /// See [`Established::want_cpu`].
    pub(crate) fn want_cpu(&mut self, policy: PolicyId, cpu: u32, packet: Flow) {
        self.when_established(|established, _| established.want_cpu(policy, cpu, packet));
    }

    /// See [`Children::used_routes`](super::Children::used_routes).
    pub(crate) fn routes(&self) -> Vec<(Carries, Instant)> {
        self.established().map_or(Vec::new(), |established| established.children.used_routes())
    }
}
