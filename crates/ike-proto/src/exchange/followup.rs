//! IKE_FOLLOWUP_KE (RFC 9370 §2.2.4): the additional key exchanges of a CREATE_CHILD_SA.
//!
//! ```text
//!    HDR, SK {SA, Ni, KEi, ...}  -->
//!                               <--  HDR, SK {SA, Nr, KEr, ..., N(ADDITIONAL_KEY_EXCHANGE)(link1)}
//!    HDR, SK {KEi(1), N(ADDITIONAL_KEY_EXCHANGE)(link1)}  -->
//!                               <--  HDR, SK {KEr(1), [N(ADDITIONAL_KEY_EXCHANGE)(link2)]}
//! ```
//!
//! The initiator keeps the CREATE_CHILD_SA response and acts on it after the last exchange, as if it
//! had just arrived; the responder keeps what it answered.

use std::time::{Duration, Instant};

use super::child_sa::respond_ke;
use super::ppk::MixedPpk;
use super::rekey_ike::Successor;
use super::{Payloads, Refusal, required};
use crate::child::{ChildSa, Phase};
use crate::config::proposal::Selected;
use crate::crypto::{CryptoError, PendingKe, Secret};
use crate::event::{Failure, RequestId};
use crate::ike_sa::collision::{
    self, AfterRekey, ChildActivity, IkeActivity, Nonces, RekeyResponse,
};
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{
    ChildOffer, Established, IkePhase, Initiated, RekeyOffer, Reply, Retry, State, Task,
};
use crate::ike_sa::timer::{Timer, TimerKey};
use crate::ike_sa::{IkeSa, notify};
use crate::keys::epoch::Opened;
use crate::wire::decode_payloads;
use crate::wire::payload::{Ke, Notify, Payload};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};

/// How long the responder waits for the next exchange of a chain: RFC 9370 §2.2.4 asks for 5 to 20
/// seconds.
const CHAIN_LIFE: Duration = Duration::from_secs(20);
/// The time is granted so often to a peer whose fragments arrive.
const CHAIN_TIMES: u32 = 4;
/// Chains in a row that the peer has forgotten when it is asked to go on, before this end gives up.
const MAX_FORGOTTEN: u8 = 3;
/// Chains a peer may have open at a time: links exist so that they may interleave.
const MAX_CHAINS: usize = 4;

/// What this end asked for in CREATE_CHILD_SA.
pub(crate) enum OurOffer {
    Child(Box<ChildOffer>),
    Ike(Box<RekeyOffer>),
}

impl OurOffer {
    pub(crate) fn request(&self) -> Option<RequestId> {
        match self {
            Self::Child(offer) => offer.request,
            Self::Ike(offer) => offer.request,
        }
    }

    pub(crate) fn child(&self) -> Option<&ChildOffer> {
        if let Self::Child(offer) = self { Some(offer) } else { None }
    }

    pub(crate) fn child_mut(&mut self) -> Option<&mut ChildOffer> {
        if let Self::Child(offer) = self { Some(offer) } else { None }
    }

    pub(crate) fn ike(&self) -> Option<&RekeyOffer> {
        if let Self::Ike(offer) = self { Some(offer) } else { None }
    }

    pub(crate) fn ike_mut(&mut self) -> Option<&mut RekeyOffer> {
        if let Self::Ike(offer) = self { Some(offer) } else { None }
    }
}

/// The initiator's side of a chain, its next exchange in flight.
pub(crate) struct Followup {
    pub(crate) what: OurOffer,
    /// The CREATE_CHILD_SA response.
    response: Opened,
    /// Shared secrets of the additional key exchanges so far.
    shared: Vec<Secret>,
    method: KeMethodId,
    ke: Box<dyn PendingKe>,
    /// Methods after it.
    rest: Vec<KeMethodId>,
}

/// What the peer asked for in CREATE_CHILD_SA.
pub(crate) enum TheirOffer {
    Child(Box<ChildSa>),
    Ike { spis: (u64, u64), selected: Selected, started: Instant },
}

/// The responder's side of a chain, waiting for its next exchange.
pub(crate) struct Chain {
    what: TheirOffer,
    link: [u8; 8],
    nonces: (Vec<u8>, Vec<u8>),
    shared: Vec<Secret>,
    ppk: Option<MixedPpk>,
    method: KeMethodId,
    rest: Vec<KeMethodId>,
    expires: Instant,
    /// It is not prolonged beyond this.
    latest: Instant,
}

impl Chain {
    pub(crate) fn is_child(&self) -> bool {
        self.child().is_some()
    }

    /// The child it is to make.
    pub(crate) fn child(&self) -> Option<&ChildSa> {
        match &self.what {
            TheirOffer::Child(child) => Some(child),
            TheirOffer::Ike { .. } => None,
        }
    }
}

impl Established {
    /// The error for the next exchange of `chain`, if what CREATE_CHILD_SA was answered with does not hold
    /// any more: the rules are those of that request (RFC 7296 §2.25), but that an exchange of ours which
    /// this one crosses was taken in there.
    fn overtaken(&self, chain: &Chain) -> Option<NotifyType> {
        let put_off = Some(NotifyType::TEMPORARY_FAILURE);
        let ike = self.ike_activity();
        let Some(new) = chain.child() else {
            let ends = matches!(ike, IkeActivity::Closing | IkeActivity::FollowUp);
            let free = self.phase == IkePhase::Alive && !ends && !self.own_child_exchange();
            return put_off.filter(|_| !free);
        };
        if ike != IkeActivity::Idle {
            return put_off;
        }
        let id = new.replaces?;
        let Some(old) = self.children.iter().find(|old| old.id == id) else {
            // The peer has deleted it.
            return Some(NotifyType::STATE_NOT_FOUND);
        };
        let replaced = || self.children.iter().any(|other| other.replaces == Some(id));
        let free = match self.activity(old) {
            ChildActivity::Idle | ChildActivity::Rekeying => true,
            ChildActivity::Rekeyed => old.phase == Phase::Installed && !replaced(),
            _ => false,
        };
        put_off.filter(|_| !free)
    }
}

impl IkeSa {
    // ---- initiator ----

    /// The response to a CREATE_CHILD_SA request: the end of the matter, or the start of a chain.
    pub(crate) fn on_offer_response(
        &mut self,
        ctx: &mut Context<'_>,
        what: OurOffer,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let parsed = Payloads(payloads);
        let methods = additional_of(&what, &parsed);
        let (Some(link), false) =
            (parsed.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE), methods.is_empty())
        else {
            if !methods.is_empty() && parsed.error().is_none() {
                // Chosen, but no link to go on with: the answer is of no use.
                return self.fail_offer(ctx, what, NotifyType::INVALID_SYNTAX);
            }
            return self.complete_offer(ctx, what, payloads, &[]);
        };
        let offered = match &what {
            OurOffer::Child(offer) => &offer.ppks,
            OurOffer::Ike(offer) => &offer.ppks,
        };
        if let Err(reason) = self.ppk_taken(offered, &parsed) {
            // The chain is not worth walking to its end.
            return self.refuse_ppk(ctx, what, payloads, reason, true);
        }
        if self.loses(&what, &parsed) {
            // RFC 9370 §2.2.4.1: the loser of a simultaneous rekey starts no IKE_FOLLOWUP_KE
            return self.withdraw(ctx, what);
        }
        let response =
            Opened { first: opened.first, octets: opened.octets.clone(), front: Vec::new() };
        self.send_followup(ctx, what, response, Vec::new(), methods, link.data);
    }

    /// True if the peer's rekey of the same SA crossed this one, and stays.
    fn loses(&self, what: &OurOffer, payloads: &Payloads<'_, '_>) -> bool {
        let Ok(Some(r)) = payloads.nonce() else { return false };
        let after = match what {
            OurOffer::Child(offer) if offer.rekeys.is_some() => {
                let created = RekeyResponse::Created(Nonces { i: &offer.nonce, r });
                collision::after_rekey(created, self.meanwhile(offer, None))
            }
            OurOffer::Child(_) => return false,
            OurOffer::Ike(offer) => {
                let created = RekeyResponse::Created(Nonces { i: &offer.nonce, r });
                collision::after_rekey(created, offer.meanwhile())
            }
        };
        after == AfterRekey::DeleteNew
    }

    fn withdraw(&mut self, ctx: &mut Context<'_>, what: OurOffer) {
        ctx.done(what.request(), Ok(()));
        match what {
            OurOffer::Child(offer) => {
                ctx.ids.esp.remove(&offer.spi_in);
                self.watch_child(ctx, &offer);
            }
            OurOffer::Ike(offer) => self.yield_ike(ctx, &offer),
        }
    }

    /// The peer's rekey of the IKE SA stays in the place of ours: it takes over if it is complete.
    pub(crate) fn yield_ike(&mut self, ctx: &mut Context<'_>, offer: &RekeyOffer) {
        match offer.crossed.as_ref().map(|crossed| crossed.ike) {
            Some(Some(theirs)) => self.replaced_by(ctx, theirs),
            // The peer may never go on. The wish ends with this SA.
            Some(None) => {
                self.retry_later(ctx, Task::RekeyIke { request: None, retry: Retry::default() });
            }
            None => {}
        }
    }

    /// The same of a child. The timer ends with the child that is replaced.
    pub(crate) fn watch_child(&mut self, ctx: &mut Context<'_>, offer: &ChildOffer) {
        let crossed = offer.crossed.as_ref();
        if let Some(old) = offer.rekeys.filter(|_| crossed.is_some_and(|c| c.child.is_none())) {
            self.rearm_rekey(ctx, old);
        }
    }

    fn send_followup(
        &mut self,
        ctx: &mut Context<'_>,
        what: OurOffer,
        response: Opened,
        shared: Vec<Secret>,
        mut methods: Vec<KeMethodId>,
        link: &[u8],
    ) {
        let method = methods.remove(0);
        let started = ctx
            .crypto
            .ke(method)
            .ok_or(CryptoError::Unsupported)
            .and_then(|backend| backend.initiate(ctx.rng));
        let Ok(ke) = started else {
            return self.fail_offer(ctx, what, NotifyType::NO_PROPOSAL_CHOSEN);
        };
        let payloads = [
            Payload::Ke(Ke { method, data: ke.public() }),
            notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, link),
        ];
        self.request(ctx, ExchangeType::IKE_FOLLOWUP_KE, &payloads);
        if let State::Established(established) = &mut self.state {
            let followup = Followup { what, response, shared, method, ke, rest: methods };
            established.ours = Some(Initiated::Followup(Box::new(followup)));
        }
    }

    pub(crate) fn on_followup_response(
        &mut self,
        ctx: &mut Context<'_>,
        followup: Followup,
        payloads: &[Payload<'_>],
    ) {
        let Followup { what, response, mut shared, method, ke, rest } = followup;
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            self.note_forgotten(error.kind);
            return match what {
                OurOffer::Child(offer) => self.on_child_error(ctx, *offer, error),
                OurOffer::Ike(offer) => {
                    self.on_rekey_ike_error(ctx, *offer, error.kind, error.data);
                }
            };
        }
        let lengths = ctx.crypto.ke(method).map(|backend| backend.lengths());
        let secret = match parsed.ke() {
            Ok(Some(theirs))
                if theirs.method == method
                    && lengths.is_some_and(|lengths| lengths.responder == theirs.data.len()) =>
            {
                ke.complete(theirs.data).ok()
            }
            _ => None,
        };
        let Some(secret) = secret else {
            // draft-ietf-ipsecme-ikev2-mlkem §2.4: the IKE SA is deleted, since the ends no longer
            // agree.
            return self.fail_offer(ctx, what, NotifyType::INVALID_SYNTAX);
        };
        shared.push(secret);
        match parsed.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE) {
            Some(link) if !rest.is_empty() => {
                self.send_followup(ctx, what, response, shared, rest, link.data);
            }
            None if rest.is_empty() => {
                self.forgotten = 0;
                match decode_payloads(response.first, &response.octets, 0) {
                    Ok(created) => self.complete_offer(ctx, what, &created, &shared),
                    // It was decoded before.
                    Err(_) => self.fail_offer(ctx, what, NotifyType::INVALID_SYNTAX),
                }
            }
            _ => self.fail_offer(ctx, what, NotifyType::INVALID_SYNTAX),
        }
    }

    /// Counts how often the peer has forgotten a chain.
    fn note_forgotten(&mut self, error: NotifyType) {
        if error != NotifyType::STATE_NOT_FOUND {
            return;
        }
        self.forgotten = self.forgotten.saturating_add(1);
        //= RFC 9370 §2.2.4
        //# If the initiator continues to receive
        //# STATE_NOT_FOUND notifications after several retries, it MUST treat
        //# this situation as a fatal error and delete the IKE SA by sending a
        //# DELETE payload.
        if self.forgotten >= MAX_FORGOTTEN {
            let reason = Failure::Peer(error);
            self.enqueue_urgent(Task::DeleteIke { reason, request: None });
        }
    }

    fn complete_offer(
        &mut self,
        ctx: &mut Context<'_>,
        what: OurOffer,
        payloads: &[Payload<'_>],
        additional: &[Secret],
    ) {
        match what {
            OurOffer::Child(offer) => self.on_child_response(ctx, offer, payloads, additional),
            OurOffer::Ike(offer) => self.on_rekey_ike_response(ctx, *offer, payloads, additional),
        }
    }

    /// The answer cannot be used, and the two ends no longer agree: the peer has an SA that this end
    /// has no keys for.
    pub(crate) fn fail_offer(&mut self, ctx: &mut Context<'_>, what: OurOffer, kind: NotifyType) {
        let ours = match what {
            OurOffer::Child(offer) => Initiated::Child(offer),
            OurOffer::Ike(offer) => Initiated::RekeyIke(offer),
        };
        self.abandon(ctx, ours, kind);
    }

    // ---- responder ----

    /// Keeps what a CREATE_CHILD_SA request agreed on until its additional key exchanges are done.
    /// Returns the link that the next one must bring.
    pub(crate) fn start_chain(
        &mut self,
        ctx: &mut Context<'_>,
        what: TheirOffer,
        shared: Vec<Secret>,
        (ni, nr): (&[u8], &[u8]),
        ppk: Option<MixedPpk>,
    ) -> [u8; 8] {
        let selected = match &what {
            TheirOffer::Child(child) => &child.selected,
            TheirOffer::Ike { selected, .. } => selected,
        };
        let mut rest: Vec<_> = selected.additional().collect();
        let method = if rest.is_empty() { KeMethodId::NONE } else { rest.remove(0) };
        let nonces = (ni.to_vec(), nr.to_vec());
        let (expires, latest) = self.chain_life(ctx, selected.ke, method);
        let mut link = [0; 8];
        ctx.rng.fill(&mut link);
        let State::Established(established) = &mut self.state else { return link };
        if matches!(what, TheirOffer::Ike { .. }) {
            // One IKE SA has one successor. Who asks anew has given the one before up.
            for chain in established.theirs.extract_if(.., |chain| !chain.is_child()) {
                drop_chain(ctx, chain);
            }
        }
        if established.theirs.len() >= MAX_CHAINS {
            drop_chain(ctx, established.theirs.remove(0));
        }
        established.theirs.push(Chain {
            what,
            link,
            nonces,
            shared,
            ppk,
            method,
            rest,
            expires,
            latest,
        });
        self.arm_chains();
        link
    }

    pub(crate) fn on_followup_request(&mut self, ctx: &mut Context<'_>, payloads: &[Payload<'_>]) {
        if let Err(refusal) = self.answer_followup(ctx, payloads) {
            self.refuse(ctx, refusal);
        }
    }

    fn answer_followup(
        &mut self,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> Result<(), Refusal> {
        let parsed = Payloads(payloads);
        // RFC 9370 §2.2.4 has it in every request. INVALID_SYNTAX, which ends the IKE SA (RFC 7296
        // §2.21.3): STATE_NOT_FOUND would be for a link that is unknown.
        let Notify { data: link, .. } =
            required(parsed.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE))?;
        let State::Established(established) = &mut self.state else { return Ok(()) };
        // RFC 9370 §2.2.4: an unknown link is answered STATE_NOT_FOUND
        let index = established
            .theirs
            .iter()
            .position(|chain| chain.link.as_slice() == *link)
            .ok_or(NotifyType::STATE_NOT_FOUND)?;
        let mut chain = established.theirs.remove(index);
        let overtaken = established.overtaken(&chain);
        self.arm_chains();
        if let Some(kind) = overtaken {
            drop_chain(ctx, chain);
            return Err(kind.into());
        }
        let answered = match parsed.ke() {
            Ok(Some(ke)) if ke.method == chain.method => respond_ke(ctx, chain.method, &parsed),
            Ok(_) => Err(NotifyType::INVALID_SYNTAX.into()),
            Err(refusal) => Err(refusal),
        };
        let (public, secret) = match answered {
            Ok(answered) => answered,
            Err(refusal) => {
                drop_chain(ctx, chain);
                return Err(refusal);
            }
        };
        chain.shared.push(secret);
        let method = chain.method;
        if chain.rest.is_empty() {
            return self.finish_chain(ctx, chain, (method, public));
        }
        chain.method = chain.rest.remove(0);
        (chain.expires, chain.latest) = self.chain_life(ctx, method, chain.method);
        ctx.rng.fill(&mut chain.link);
        let reply = [
            Payload::Ke(Ke { method, data: &public }),
            notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, &chain.link),
        ];
        self.respond(ctx, &reply);
        if let State::Established(established) = &mut self.state {
            established.theirs.push(chain);
        }
        self.arm_chains();
        Ok(())
    }

    fn finish_chain(
        &mut self,
        ctx: &mut Context<'_>,
        chain: Chain,
        (method, public): (KeMethodId, Vec<u8>),
    ) -> Result<(), Refusal> {
        let Chain { what, nonces: (ni, nr), shared, ppk, .. } = chain;
        let shared: Vec<_> = shared.iter().collect();
        match what {
            TheirOffer::Child(child) => {
                if self.has_lost_its_place(&child) {
                    ctx.ids.esp.remove(&child.spi_in);
                    return Err(NotifyType::TS_MAX_QUEUE.into());
                }
                let ready = self.keyed(ctx, *child, &shared, (&ni, &nr), ppk)?;
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
                self.install_then_respond(ctx, ready, reply);
            }
            TheirOffer::Ike { spis, selected, started } => {
                let new = Successor {
                    initiator: false,
                    spis,
                    selected,
                    shared: &shared,
                    nonces: (&ni, &nr),
                    ppk,
                    started,
                };
                let new = self.successor(ctx, new)?;
                self.respond(ctx, &[Payload::Ke(Ke { method, data: &public })]);
                self.hand_over(ctx, new, ni, nr);
            }
        }
        Ok(())
    }

    /// When a chain expires that is answered now by a public value of `answered`, and how far that may be
    /// put off. The way back of that and the way here of `next` are not the peer's time.
    fn chain_life(
        &self,
        ctx: &Context<'_>,
        answered: KeMethodId,
        next: KeMethodId,
    ) -> (Instant, Instant) {
        let lengths = |method| ctx.crypto.ke(method).map(|backend| backend.lengths());
        let back = lengths(answered).map_or(0, |lengths| lengths.responder);
        let here = lengths(next).map_or(0, |lengths| lengths.initiator);
        let latest = ctx.now.mono + CHAIN_LIFE * CHAIN_TIMES;
        let expires = ctx.now.mono + CHAIN_LIFE + self.window.rtt().cost(back + here);
        (expires.min(latest), latest)
    }

    /// A fragment of an IKE_FOLLOWUP_KE request has come: the path is slow, and the peer goes on. Which
    /// chain it is of, the whole message will tell.
    pub(crate) fn prolong_chains(&mut self, now: Instant) {
        let State::Established(established) = &mut self.state else { return };
        for chain in &mut established.theirs {
            chain.expires = chain.expires.max((now + CHAIN_LIFE).min(chain.latest));
        }
        self.arm_chains();
    }

    /// Forgets chains whose next exchange did not come.
    pub(crate) fn expire_chains(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now.mono;
        self.drop_chains(ctx, |chain| chain.expires <= now);
    }

    /// Forgets the chains that `which` is true for.
    pub(crate) fn drop_chains(&mut self, ctx: &mut Context<'_>, which: impl Fn(&Chain) -> bool) {
        let State::Established(established) = &mut self.state else { return };
        for chain in established.theirs.extract_if(.., |chain| which(chain)) {
            drop_chain(ctx, chain);
        }
        self.arm_chains();
    }

    fn arm_chains(&mut self) {
        let State::Established(established) = &self.state else { return };
        let first = established.theirs.iter().map(|chain| chain.expires).min();
        self.timers.set_or_clear(TimerKey::Ike(Timer::Followup), first);
    }
}

/// Gives back what a chain held.
pub(crate) fn drop_chain(ctx: &mut Context<'_>, chain: Chain) {
    if let TheirOffer::Child(child) = chain.what {
        ctx.ids.esp.remove(&child.spi_in);
    }
}

/// The additional key exchanges that the answer to `what` chose.
fn additional_of(what: &OurOffer, payloads: &Payloads<'_, '_>) -> Vec<KeMethodId> {
    let proposals = match what {
        OurOffer::Child(offer) => &offer.proposals,
        OurOffer::Ike(offer) => &offer.proposals,
    };
    match payloads.sa() {
        Ok(Some(sa)) => crate::config::proposal::accept(proposals, sa)
            .map(|selected| selected.additional().collect())
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}
