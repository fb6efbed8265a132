//! The requests of the peer on an established SA that are under way at this end.

use std::slice;
use std::time::{Duration, Instant};

use super::{Chain, TheirOffer};
use crate::channel::Channel;
use crate::channel::timer::{Timer, TimerKey};
use crate::child::ChildSa;
use crate::config::EndpointConfig;
use crate::crypto::Secret;
use crate::dataplane::TrafficSelector;
use crate::event::{ChildSaId, Ticket};
use crate::exchange::auth::rounds::AuthReply;
use crate::exchange::ppk::MixedPpk;
use crate::ike_sa::{Context, Life};
use crate::keys::Nonces;
use crate::wire::payload::{Payload, Proposal};
use crate::wire::registry::KeMethodId;

/// How long the responder waits for the next exchange of a chain at least: as long as a peer with the usual
/// schedule retransmits it, which is 165 s by the defaults of strongswan.conf(5). RFC 9370 §2.2.4 suggests 5 to 20
/// seconds "in most cases" and leaves the time open. A responder that forgets a chain before its peer gives up
/// makes a healthy IKE SA fail on a lossy link. A chain holds one SPI and the secrets so far, of an authenticated
/// peer.
const CHAIN_LIFE: Duration = Duration::from_secs(180);
/// How many times that time a peer gets while its fragments arrive.
const CHAIN_TIMES: u32 = 2;
/// Chains that a peer may have open at a time: links exist so that they can be interleaved.
const MAX_CHAINS: usize = 4;

/// A response that waits only for the data plane.
pub(crate) struct Responding {
    pub(crate) ticket: Ticket,
    pub(crate) child: ChildSaId,
    pub(crate) reply: Reply,
}

/// The payloads of a waiting response, owned.
pub(crate) struct Reply {
    /// IDr, CERT and AUTH of an IKE_AUTH response. They are sent even if the child fails.
    pub(crate) auth: Option<AuthReply>,
    /// SA, and with it the selectors; absent in the last IKE_FOLLOWUP_KE.
    pub(crate) proposal: Option<Proposal>,
    pub(crate) ke: Option<(KeMethodId, Vec<u8>)>,
    pub(crate) nonce: Option<Vec<u8>>,
    pub(crate) ts_i: Vec<TrafficSelector>,
    pub(crate) ts_r: Vec<TrafficSelector>,
    /// Notifies of the response about mode and CPUs.
    pub(crate) notifies: Vec<Payload<'static>>,
    /// PPK_ID of the PPK in use.
    pub(crate) ppk: Option<Vec<u8>>,
}

/// The peer's requests that are under way.
#[derive(Default)]
pub(crate) struct Answering {
    /// The request that waits for the data plane before it is answered.
    responding: Option<Box<Responding>>,
    /// CREATE_CHILD_SA exchanges with additional key exchanges to come.
    chains: Vec<Chain>,
    /// Responder: message ID of the request after the last IKE_AUTH. In it the initiator may report that the
    /// response failed (RFC 7296 §2.21.2).
    follows_auth: Option<u32>,
}

impl Answering {
    /// That of an SA whose last IKE_AUTH response is in the window now.
    pub(crate) fn after_auth(channel: &Channel) -> Self {
        let in_progress = channel.window().in_progress();
        Self { follows_auth: in_progress.and_then(|(id, _)| id.checked_add(1)), ..Self::default() }
    }

    /// True if `message_id` is that of the request after the last IKE_AUTH.
    pub(crate) fn follows_auth(&self, message_id: Option<u32>) -> bool {
        message_id.is_some() && message_id == self.follows_auth
    }

    // ---- the request that waits for the data plane ----

    /// Keeps a request until the data plane has answered.
    pub(crate) fn wait(&mut self, responding: Responding) {
        self.responding = Some(Box::new(responding));
    }

    /// The request that waits for this answer of the data plane.
    pub(crate) fn take_waiting(&mut self, ticket: Ticket) -> Option<Responding> {
        self.responding.take_if(|waiting| waiting.ticket == ticket).map(|waiting| *waiting)
    }

    /// True if a request waits for the data plane.
    pub(crate) fn waits(&self) -> bool {
        self.responding.is_some()
    }

    /// True if the last request of IKE_AUTH waits for the data plane: the initiator has no SA before its response.
    pub(crate) fn is_in_auth(&self) -> bool {
        self.responding.as_ref().is_some_and(|waiting| waiting.reply.auth.is_some())
    }

    // ---- chains of key exchanges ----

    /// The chains.
    pub(crate) fn chains(&self) -> slice::Iter<'_, Chain> {
        self.chains.iter()
    }

    /// True if there is no chain.
    pub(crate) fn has_no_chain(&self) -> bool {
        self.chains.is_empty()
    }

    /// The children that chains make.
    pub(crate) fn children(&self) -> impl Iterator<Item = &ChildSa> {
        self.chains.iter().filter_map(Chain::child)
    }

    /// True if the peer is rekeying the IKE SA, and its additional key exchanges are still to come.
    pub(crate) fn rekeys_ike(&self) -> bool {
        !self.chains.iter().all(Chain::is_child)
    }

    /// True if the peer is rekeying the child `old`, and its additional key exchanges are still to come.
    pub(crate) fn rekeys_child(&self, old: ChildSaId) -> bool {
        self.children().any(|new| new.replaces == Some(old))
    }

    /// The SPI of this end for the successor that a chain makes.
    pub(crate) fn coming_spi(&self) -> Option<u64> {
        self.chains.iter().find_map(Chain::ike_spi)
    }

    /// Keeps the result of a CREATE_CHILD_SA request until its additional key exchanges are done. Returns the link
    /// that the next one must have. Its timer is not set yet.
    pub(crate) fn start_chain(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        what: TheirOffer,
        shared: Vec<Secret>,
        nonces: Nonces<'_>,
        ppk: Option<MixedPpk>,
    ) -> [u8; 8] {
        let selected = match &what {
            TheirOffer::Child(child) => &child.selected,
            TheirOffer::Ike { selected, .. } => selected,
        };
        let mut rest: Vec<_> = selected.additional().collect();
        let method = if rest.is_empty() { KeMethodId::NONE } else { rest.remove(0) };
        let nonces = nonces.to_owned();
        let (expires, latest) = chain_life(ctx, channel, selected.ke, method);
        let mut link = [0; 8];
        ctx.io.rng.fill(&mut link);
        if matches!(what, TheirOffer::Ike { .. }) {
            // One IKE SA has one successor. A peer that requests another one has given up the one before.
            for chain in self.chains.extract_if(.., |chain| !chain.is_child()) {
                drop_chain(ctx, chain);
            }
        }
        if self.chains.len() >= MAX_CHAINS {
            drop_chain(ctx, self.chains.remove(0));
        }
        self.chains.push(Chain {
            what,
            link,
            nonces,
            shared,
            ppk,
            method,
            rest,
            answered: ctx.io.now.mono,
            expires,
            latest,
        });
        link
    }

    /// Takes the chain whose next exchange has this link. Its timer stays.
    pub(super) fn take(&mut self, link: &[u8]) -> Option<Chain> {
        let index = self.chains.iter().position(|chain| chain.link.as_slice() == link)?;
        Some(self.chains.remove(index))
    }

    /// Keeps a chain until its next exchange.
    pub(super) fn keep(&mut self, life: &mut Life, chain: Chain) {
        self.chains.push(chain);
        self.arm(life);
    }

    /// Sets the timer of the chains.
    pub(crate) fn arm(&self, life: &mut Life) {
        let first = self.chains.iter().map(|chain| chain.expires).min();
        life.set_or_clear(TimerKey::Ike(Timer::Followup), first);
    }

    /// Handles a fragment of an IKE_FOLLOWUP_KE request: the path is slow, and the peer continues. Only the
    /// complete message shows to which chain it belongs.
    pub(crate) fn prolong(&mut self, life: &mut Life, ctx: &Context<'_>) {
        let until = ctx.io.now.mono + shortest_life(ctx.io.config);
        for chain in &mut self.chains {
            chain.expires = chain.expires.max(until.min(chain.latest));
        }
        self.arm(life);
    }

    /// Drops chains whose next exchange did not come.
    pub(crate) fn expire(&mut self, life: &mut Life, ctx: &mut Context<'_>) {
        let now = ctx.io.now.mono;
        self.drop_chains(life, ctx, |chain| chain.expires <= now);
    }

    /// Drops the chains for which `which` is true.
    pub(crate) fn drop_chains(
        &mut self,
        life: &mut Life,
        ctx: &mut Context<'_>,
        which: impl Fn(&Chain) -> bool,
    ) {
        for chain in self.chains.extract_if(.., |chain| which(chain)) {
            drop_chain(ctx, chain);
        }
        self.arm(life);
    }

    /// Drops everything, because the IKE SA has ended.
    pub(crate) fn dissolve(self, ctx: &mut Context<'_>) {
        for chain in self.chains {
            drop_chain(ctx, chain);
        }
    }

    /// Frees the capacity of a list that is nearly always empty.
    pub(crate) fn trim(&mut self) {
        if self.chains.is_empty() && self.chains.capacity() > 0 {
            self.chains = Vec::new();
        }
    }
}

/// When a chain expires that is answered now by a public value of `answered`, and how far that may be
/// extended. The time on the path of that answer and of the request for `next` does not count.
pub(super) fn chain_life(
    ctx: &Context<'_>,
    channel: &Channel,
    answered: KeMethodId,
    next: KeMethodId,
) -> (Instant, Instant) {
    let lengths = |method| ctx.crypto.ke(method).map(|backend| backend.lengths());
    let back = lengths(answered).map_or(0, |lengths| lengths.responder);
    let here = lengths(next).map_or(0, |lengths| lengths.initiator);
    let life = shortest_life(ctx.io.config);
    let latest = ctx.io.now.mono + life * CHAIN_TIMES;
    let expires = ctx.io.now.mono + life + channel.window().rtt().cost(back + here);
    (expires.min(latest), latest)
}

/// How long a chain waits for its next exchange. Peers are often configured like this end, whose own schedule may
/// be longer than the usual one.
fn shortest_life(config: &EndpointConfig) -> Duration {
    CHAIN_LIFE.max(config.retransmission.longest())
}

/// Releases what a chain held.
pub(super) fn drop_chain(ctx: &mut Context<'_>, chain: Chain) {
    if let TheirOffer::Child(child) = chain.what {
        ctx.ids.esp.remove(&child.spi_in);
    }
}
