//! The initiator's side of a chain: its exchanges one after the other, and then the CREATE_CHILD_SA response.

use super::{Followup, OurOffer};

use std::time::Duration;

use crate::channel::Channel;
use crate::crypto::Secret;
use crate::event::Failure;
use crate::exchange::Payloads;
use crate::exchange::key_exchange::Undone;
use crate::exchange::ppk::create_child::ChildPpks;
use crate::exchange::sent::{RekeyOffer, Retry, Sent};
use crate::ike_sa::collision::{self, AfterRekey, RekeyResponse};
use crate::ike_sa::context::Context;
use crate::ike_sa::pending::What;
use crate::ike_sa::state::{Established, Task};
use crate::ike_sa::{Children, Stem, notify};
use crate::keys::Nonces;
use crate::keys::epoch::Opened;
use crate::question::Exchange;
use crate::wire::decode_payloads;
use crate::wire::payload::{Ke, Payload};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};

/// A peer may forget a chain after this time without a message about it: the shortest time that RFC 9370 §2.2.4
/// mentions.
const MAY_FORGET: Duration = Duration::from_secs(5);

impl Established {
    /// Handles the response to a CREATE_CHILD_SA request: it completes the exchange, or begins a chain.
    pub(crate) fn on_offer_response(
        &mut self,
        stem: &mut Stem<'_>,
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
                // It has chosen additional key exchanges, but has no link, so it cannot be used.
                return self.fail_offer(stem.channel, ctx, what, NotifyType::INVALID_SYNTAX);
            }
            if let Err((what, exchange)) = self.complete_offer(stem, ctx, what, payloads, &[]) {
                self.wait_for_secret(stem, ctx, what.initiated(), exchange, opened);
            }
            return;
        };
        let offered = match &what {
            OurOffer::Child(offer) => offer.ppks(),
            OurOffer::Ike(offer) => &offer.ppks,
        };
        if let Err(reason) = ChildPpks::of(stem.channel).taken(offered, &parsed) {
            // The chain would lead to an SA that this end refuses.
            match what {
                OurOffer::Child(offer) => {
                    offer.refuse_ppk(&mut self.parts(stem, ctx), reason, true);
                }
                OurOffer::Ike(offer) => {
                    self.refuse_ppk_of_ike(stem.seen(), ctx, &offer, payloads, reason, true);
                }
            }
            return;
        }
        if what.loses(&self.children, &parsed) {
            // RFC 9370 §2.2.4.1: the loser of a simultaneous rekey starts no IKE_FOLLOWUP_KE
            return self.withdraw(stem, ctx, what);
        }
        let response =
            Opened { first: opened.first, octets: opened.octets.clone(), front: Vec::new() };
        let (method, rest) = first_of(methods);
        let shared = Vec::new();
        let asked = ctx.io.now.mono;
        let followup = Followup { what, response, shared, method, ke: None, rest, asked };
        self.send_followup(stem, ctx, followup, link.data);
    }

    fn withdraw(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>, what: OurOffer) {
        ctx.done(what.request(), Ok(()));
        match what {
            OurOffer::Child(offer) => offer.withdraw(&mut self.parts(stem, ctx)),
            OurOffer::Ike(offer) => self.yield_ike(stem.channel, ctx, &offer),
        }
    }

    /// The peer's rekey of the IKE SA replaces ours. Its SA takes over if the rekey is complete.
    pub(crate) fn yield_ike(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        offer: &RekeyOffer,
    ) {
        match offer.crossed.as_ref().map(|crossed| crossed.ike) {
            Some(Some(theirs)) => self.replaced_by_theirs(channel, ctx, theirs),
            // The peer may never continue. Our task ends with this SA.
            Some(None) => {
                self.queue.retry_later(
                    &mut self.life,
                    ctx,
                    Task::RekeyIke { request: None, retry: Retry::default() },
                );
            }
            None => {}
        }
    }

    /// Sends the next request of the chain. Its `ke` is to be made.
    pub(crate) fn send_followup(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut followup: Followup,
        link: &[u8],
    ) {
        let method = followup.method;
        let ke = match ctx.initiate(method) {
            Ok(ke) => ke,
            Err(Undone::Ask(exchange)) => {
                self.sent = Some(Sent::Followup(Box::new(followup)));
                return stem.put_off(ctx, exchange, What::Followup(link.to_vec()));
            }
            Err(Undone::Failed(_)) => {
                return self.fail_offer(
                    stem.channel,
                    ctx,
                    followup.what,
                    NotifyType::NO_PROPOSAL_CHOSEN,
                );
            }
        };
        let payloads = [
            Payload::Ke(Ke { method, data: ke.public() }),
            notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, link),
        ];
        let sent = stem.channel.request(&mut ctx.io, ExchangeType::IKE_FOLLOWUP_KE, &payloads);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        followup.ke = Some(ke);
        self.sent = Some(Sent::Followup(Box::new(followup)));
    }

    /// Handles a complete response to `ours` in `opened` whose secret takes long.
    fn wait_for_secret(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        ours: Sent,
        exchange: Exchange,
        opened: &Opened,
    ) {
        self.sent = Some(ours);
        stem.put_off(ctx, exchange, What::Response(opened.clone()));
    }

    pub(crate) fn on_followup_response(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        followup: Followup,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            let late = ctx.io.now.mono.saturating_duration_since(followup.asked) >= MAY_FORGET;
            self.note_forgotten(error.kind, late);
            return match followup.what {
                OurOffer::Child(offer) => {
                    let outcome = offer.on_error(&mut self.parts(stem, ctx), error);
                    self.conclude(stem.channel, ctx, outcome);
                }
                OurOffer::Ike(offer) => {
                    self.on_rekey_ike_error(stem.channel, ctx, *offer, error.kind, error.data);
                }
            };
        }
        let secret = match (parsed.ke(), &followup.ke) {
            (Ok(Some(theirs)), Some(ke)) if theirs.method == followup.method => {
                match ctx.complete(followup.method, ke, theirs.data) {
                    Ok(secret) => Some(secret),
                    Err(Undone::Ask(exchange)) => {
                        let ours = Sent::Followup(Box::new(followup));
                        return self.wait_for_secret(stem, ctx, ours, exchange, opened);
                    }
                    Err(Undone::Failed(_)) => None,
                }
            }
            _ => None,
        };
        let Followup { what, response, mut shared, method, ke, rest, asked } = followup;
        let Some(secret) = secret else {
            // draft-ietf-ipsecme-ikev2-mlkem §2.4: the IKE SA is deleted, because the ends no longer agree.
            return self.fail_offer(stem.channel, ctx, what, NotifyType::INVALID_SYNTAX);
        };
        shared.push(secret);
        match parsed.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE) {
            Some(link) if !rest.is_empty() => {
                let (method, rest) = first_of(rest);
                let asked = ctx.io.now.mono;
                let followup = Followup { what, response, shared, method, ke: None, rest, asked };
                self.send_followup(stem, ctx, followup, link.data);
            }
            None if rest.is_empty() => {
                self.life.note_kept();
                match decode_payloads(response.first, &response.octets, 0) {
                    Ok(created) => {
                        let done = self.complete_offer(stem, ctx, what, &created, &shared);
                        if let Err((what, exchange)) = done {
                            // The last secret is derived again with this message.
                            shared.pop();
                            drop(created);
                            let followup =
                                Followup { what, response, shared, method, ke, rest, asked };
                            let ours = Sent::Followup(Box::new(followup));
                            self.wait_for_secret(stem, ctx, ours, exchange, opened);
                        }
                    }
                    // The message was decoded once already.
                    Err(_) => self.fail_offer(stem.channel, ctx, what, NotifyType::INVALID_SYNTAX),
                }
            }
            _ => self.fail_offer(stem.channel, ctx, what, NotifyType::INVALID_SYNTAX),
        }
    }

    /// Counts how often the peer has forgotten a chain. `late` if the time that passed explains it.
    fn note_forgotten(&mut self, error: NotifyType, late: bool) {
        if error != NotifyType::STATE_NOT_FOUND {
            return;
        }
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-multiple-ke-12#section-2.2.4
        //# If the
        //# initiator continues to receive STATE_NOT_FOUND notifications after
        //# several retries, it MUST treat this situation as a fatal error and
        //# delete IKE SA by sending a DELETE payload.
        if self.life.note_forgotten(late) {
            let reason = Failure::Peer(error);
            self.queue.push_first(Task::DeleteIke { reason, request: None });
        }
    }

    /// Acts on the CREATE_CHILD_SA response to `what`. Returns `what` if something has to be done first.
    fn complete_offer(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        what: OurOffer,
        payloads: &[Payload<'_>],
        additional: &[Secret],
    ) -> Result<(), (OurOffer, Exchange)> {
        if let Some(exchange) = unfinished(ctx, &what, &Payloads(payloads)) {
            return Err((what, exchange));
        }
        match what {
            OurOffer::Child(offer) => {
                let outcome = offer.on_response(&mut self.parts(stem, ctx), payloads, additional);
                self.conclude(stem.channel, ctx, outcome);
            }
            OurOffer::Ike(offer) => {
                self.on_rekey_ike_response(stem.seen(), ctx, *offer, payloads, additional)
            }
        }
        Ok(())
    }

    /// Handles an answer that cannot be used, so that the two ends no longer agree: the peer has an SA for which
    /// this end has no keys.
    pub(crate) fn fail_offer(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        what: OurOffer,
        kind: NotifyType,
    ) {
        self.abandon(channel, ctx, what.initiated(), kind);
    }
}

/// The slow key exchange that must be done before the CREATE_CHILD_SA response to `what` can be used.
fn unfinished(ctx: &Context<'_>, what: &OurOffer, payloads: &Payloads<'_, '_>) -> Option<Exchange> {
    let (method, half) = match what {
        OurOffer::Child(offer) => offer.ke()?,
        OurOffer::Ike(offer) => (offer.method, &offer.ke),
    };
    let theirs = payloads.ke().ok()??;
    if theirs.method != method || !ctx.crypto.ke(method)?.is_slow() {
        return None;
    }
    match ctx.complete(method, half, theirs.data) {
        Err(Undone::Ask(exchange)) => Some(exchange),
        _ => None,
    }
}

/// The next method, and the methods after it. There is at least one.
fn first_of(mut methods: Vec<KeMethodId>) -> (KeMethodId, Vec<KeMethodId>) {
    (methods.remove(0), methods)
}

/// The additional key exchanges that the answer to `what` has chosen.
fn additional_of(what: &OurOffer, payloads: &Payloads<'_, '_>) -> Vec<KeMethodId> {
    let proposals = match what {
        OurOffer::Child(offer) => offer.proposals(),
        OurOffer::Ike(offer) => &offer.proposals,
    };
    match payloads.sa() {
        Ok(Some(sa)) => crate::config::proposal::accept(proposals, sa)
            .map(|selected| selected.additional().collect())
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

impl OurOffer {
    /// True if the peer's rekey of the same SA crossed this one and wins.
    fn loses(&self, children: &Children, payloads: &Payloads<'_, '_>) -> bool {
        let Ok(Some(r)) = payloads.nonce() else { return false };
        match self {
            Self::Child(offer) => offer.loses(children, r),
            Self::Ike(offer) => {
                let created = RekeyResponse::Created(Nonces { i: &offer.nonce, r });
                collision::after_rekey(created, offer.meanwhile()) == AfterRekey::DeleteNew
            }
        }
    }
}
