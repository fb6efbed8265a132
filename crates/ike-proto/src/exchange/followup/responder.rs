//! The responder's side of a chain: what it has agreed to, and how long it keeps that.

use super::{Chain, TheirOffer};
use std::time::{Duration, Instant};

use crate::config::EndpointConfig;
use crate::crypto::Secret;
use crate::exchange::child_sa::KeyMaterial;
use crate::exchange::child_sa::ReadyChild;
use crate::exchange::child_sa::respond_ke;
use crate::exchange::key_exchange::Halt;
use crate::exchange::ppk::MixedPpk;
use crate::exchange::rekey_ike::Successor;
use crate::exchange::{Payloads, Refusal, required};
use crate::ike_sa::Core;
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::pending::What;
use crate::ike_sa::state::{Established, Reply};
use crate::ike_sa::timer::{Timer, TimerKey};
use crate::keys::Nonces;
use crate::keys::epoch::Opened;
use crate::wire::payload::{Ke, Notify, Payload};
use crate::wire::registry::ExchangeType;
use crate::wire::registry::{KeMethodId, NotifyType};

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

impl Established {
    /// Keeps the result of a CREATE_CHILD_SA request until its additional key exchanges are done. Returns the link
    /// that the next one must have.
    pub(crate) fn start_chain(
        &mut self,
        core: &mut Core,
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
        let (expires, latest) = core.chain_life(ctx, selected.ke, method);
        let mut link = [0; 8];
        ctx.rng.fill(&mut link);
        if matches!(what, TheirOffer::Ike { .. }) {
            // One IKE SA has one successor. A peer that requests another one has given up the one before.
            for chain in self.theirs.extract_if(.., |chain| !chain.is_child()) {
                drop_chain(ctx, chain);
            }
        }
        if self.theirs.len() >= MAX_CHAINS {
            drop_chain(ctx, self.theirs.remove(0));
        }
        self.theirs.push(Chain {
            what,
            link,
            nonces,
            shared,
            ppk,
            method,
            rest,
            answered: ctx.now.mono,
            expires,
            latest,
        });
        self.arm_chains(core);
        link
    }

    pub(crate) fn on_followup_request(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        match self.answer_followup(core, ctx, payloads) {
            Ok(()) => {}
            Err(Halt::Refuse(refusal)) => core.refuse(ctx, refusal),
            Err(Halt::Ask(exchange)) => {
                let what = What::Request(ExchangeType::IKE_FOLLOWUP_KE, opened.clone());
                core.put_off(ctx, exchange, what);
            }
        }
    }

    fn answer_followup(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> Result<(), Halt> {
        let parsed = Payloads(payloads);
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-multiple-ke-12#section-2.2.4
        //# If the responder receives an
        //# IKE_FOLLOWUP_KE message for which it does not have a key exchange
        //# state, it MUST send back a new error type notification
        //# STATE_NOT_FOUND.
        if self.theirs.is_empty() {
            return Err(NotifyType::STATE_NOT_FOUND.into());
        }
        // RFC 9370 §2.2.4 has it in every request. INVALID_SYNTAX, which ends the IKE SA (RFC 7296 §2.21.3):
        // STATE_NOT_FOUND would be for an unknown link.
        let Notify { data: link, .. } =
            required(parsed.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE))?;
        // RFC 9370 §2.2.4: an unknown link is answered STATE_NOT_FOUND
        let index = self
            .theirs
            .iter()
            .position(|chain| chain.link.as_slice() == *link)
            .ok_or(NotifyType::STATE_NOT_FOUND)?;
        let mut chain = self.theirs.remove(index);
        let overtaken = self.overtaken(&chain);
        self.arm_chains(core);
        if let Some(kind) = overtaken {
            drop_chain(ctx, chain);
            return Err(kind.into());
        }
        let answered = match parsed.ke() {
            Ok(Some(ke)) if ke.method == chain.method => respond_ke(ctx, chain.method, &parsed),
            Ok(_) => Err(NotifyType::INVALID_SYNTAX.into()),
            Err(refusal) => Err(refusal.into()),
        };
        let (public, secret) = match answered {
            Ok(answered) => answered,
            Err(Halt::Ask(exchange)) => {
                // The peer's request came in time.
                chain.expires = chain.expires.max(ctx.now.mono + ctx.config.half_open_timeout);
                self.theirs.push(chain);
                self.arm_chains(core);
                return Err(Halt::Ask(exchange));
            }
            Err(Halt::Refuse(refusal)) => {
                drop_chain(ctx, chain);
                return Err(refusal.into());
            }
        };
        chain.shared.push(secret);
        let method = chain.method;
        if chain.rest.is_empty() {
            return Ok(self.finish_chain(core, ctx, chain, (method, public))?);
        }
        chain.method = chain.rest.remove(0);
        (chain.expires, chain.latest) = core.chain_life(ctx, method, chain.method);
        chain.answered = ctx.now.mono;
        ctx.rng.fill(&mut chain.link);
        let reply = [
            Payload::Ke(Ke { method, data: &public }),
            notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, &chain.link),
        ];
        core.respond(ctx, &reply);
        self.theirs.push(chain);
        self.arm_chains(core);
        Ok(())
    }

    fn finish_chain(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        chain: Chain,
        (method, public): (KeMethodId, Vec<u8>),
    ) -> Result<(), Refusal> {
        let Chain { what, nonces, shared, ppk, .. } = chain;
        let shared: Vec<_> = shared.iter().collect();
        match what {
            TheirOffer::Child(child) => {
                if self.children.has_lost_its_place(&child) {
                    ctx.ids.esp.remove(&child.spi_in);
                    return Err(NotifyType::TS_MAX_QUEUE.into());
                }
                let ready = {
                    let nonces = nonces.borrow();
                    let material = KeyMaterial { shared: &shared, nonces, ppk };
                    ReadyChild::keyed(core, &self.children, ctx, *child, material)?
                };
                let reply = Reply {
                    auth: None,
                    proposal: None,
                    ke: Some((method, public)),
                    nonce: None,
                    ts_i: Vec::new(),
                    ts_r: Vec::new(),
                    notifies: Vec::new(),
                    ppk: None,
                };
                self.install_then_respond(core, ctx, ready, reply);
            }
            TheirOffer::Ike { spis, selected, started } => {
                let new = Successor {
                    initiator: false,
                    spis,
                    selected,
                    shared: &shared,
                    nonces: nonces.borrow(),
                    ppk,
                    started,
                };
                let new = self.successor(core, ctx, new)?;
                core.respond(ctx, &[Payload::Ke(Ke { method, data: &public })]);
                self.hand_over(core, ctx, new, nonces);
            }
        }
        Ok(())
    }

    /// Handles a fragment of an IKE_FOLLOWUP_KE request: the path is slow, and the peer continues. Only the
    /// complete message shows to which chain it belongs.
    pub(crate) fn prolong_chains(&mut self, core: &mut Core, ctx: &Context<'_>) {
        let until = ctx.now.mono + chain_life(ctx.config);
        for chain in &mut self.theirs {
            chain.expires = chain.expires.max(until.min(chain.latest));
        }
        self.arm_chains(core);
    }

    /// Drops chains whose next exchange did not come.
    pub(crate) fn expire_chains(&mut self, core: &mut Core, ctx: &mut Context<'_>) {
        let now = ctx.now.mono;
        self.drop_chains(core, ctx, |chain| chain.expires <= now);
    }

    /// Drops the chains for which `which` is true.
    pub(crate) fn drop_chains(
        &mut self,
        core: &mut Core,
        ctx: &mut Context<'_>,
        which: impl Fn(&Chain) -> bool,
    ) {
        for chain in self.theirs.extract_if(.., |chain| which(chain)) {
            drop_chain(ctx, chain);
        }
        self.arm_chains(core);
    }

    fn arm_chains(&mut self, core: &mut Core) {
        let first = self.theirs.iter().map(|chain| chain.expires).min();
        core.channel.timers.set_or_clear(TimerKey::Ike(Timer::Followup), first);
    }
}

impl Core {
    /// When a chain expires that is answered now by a public value of `answered`, and how far that may be
    /// extended. The time on the path of that answer and of the request for `next` does not count.
    fn chain_life(
        &self,
        ctx: &Context<'_>,
        answered: KeMethodId,
        next: KeMethodId,
    ) -> (Instant, Instant) {
        let lengths = |method| ctx.crypto.ke(method).map(|backend| backend.lengths());
        let back = lengths(answered).map_or(0, |lengths| lengths.responder);
        let here = lengths(next).map_or(0, |lengths| lengths.initiator);
        let life = chain_life(ctx.config);
        let latest = ctx.now.mono + life * CHAIN_TIMES;
        let expires = ctx.now.mono + life + self.channel.window.rtt().cost(back + here);
        (expires.min(latest), latest)
    }
}

/// How long a chain waits for its next exchange. Peers are often configured like this end, whose own schedule may
/// be longer than the usual one.
fn chain_life(config: &EndpointConfig) -> Duration {
    CHAIN_LIFE.max(config.retransmission.longest())
}

/// Releases what a chain held.
pub(crate) fn drop_chain(ctx: &mut Context<'_>, chain: Chain) {
    if let TheirOffer::Child(child) = chain.what {
        ctx.ids.esp.remove(&child.spi_in);
    }
}
