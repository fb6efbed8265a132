//! CREATE_CHILD_SA to rekey the IKE SA (RFC 7296 §1.3.2, §2.8, §2.18).
//!
//! ```text
//!    HDR, SK {SA, Ni, KEi}  -->
//!                               <--  HDR, SK {SA, Nr, KEr}
//! ```
//!
//! The new SA is an [`IkeSa`] of its own. The children are moved to it, never copied.

use std::time::{Duration, Instant};

use super::child_sa::respond_ke;
use super::followup::{OurOffer, TheirOffer};
use super::key_exchange::{Halt, Undone};
use super::ppk::create_child::{ChildPpks, NO_KEY};
use super::ppk::{self, MixedPpk};
use super::requested_child::usable_methods;
use super::sa_init::invalid_ke;
use super::{Payloads, Refusal, payloads_of, required};
use crate::channel::Channel;
use crate::channel::timer::{Timer, TimerKey};
use crate::channel::{NewChannel, Session, SessionKeys};
use crate::config::proposal::{self, SelectOptions, Selected};
use crate::crypto::{CryptoError, Secret};
use crate::event::{Event, Failure, IkeSaId, RequestId};
use crate::exchange::qcd::OwnToken;
use crate::exchange::sent::{RekeyOffer, Retry, Sent};
use crate::ike_sa::collision::{self, AfterRekey, Answer, Meanwhile, RekeyResponse};
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::{Established, IkePhase, State, Task};
use crate::ike_sa::{IkeSa, Seen, Stem, notify};
use crate::keys::epoch::Epoch;
use crate::keys::{IkeKeys, Nonces, OldKeys, OwnNonces, Seed, Spis};
use crate::wire::payload::{Ke, Payload, Sa, Spi};
use crate::wire::registry::{ExchangeType, KeMethodId, NotifyType};

/// How long a replaced SA waits for the peer's Delete, or for the answer to this end's own.
pub(crate) const REPLACED_LINGERS: Duration = Duration::from_secs(60);

impl Established {
    pub(crate) fn send_rekey_ike(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        request: Option<RequestId>,
        retry: Retry,
    ) {
        match RekeyOffer::begin(stem.channel, ctx, request, retry) {
            Ok(offer) if ChildPpks::of(stem.channel).lacks_required(&offer.ppks) => {
                self.refuse_ppk_of_ike(stem.seen(), ctx, &offer, &[], NO_KEY, true);
            }
            Ok(offer) => {
                let mut payloads = vec![
                    Payload::Sa(Sa { proposals: offer.proposals.clone() }),
                    Payload::Nonce(&offer.nonce),
                    Payload::Ke(Ke { method: offer.method, data: offer.ke.public() }),
                ];
                payloads.extend(ppk::offer_payloads(&offer.ppks));
                let sent =
                    stem.channel.request(&mut ctx.io, ExchangeType::CREATE_CHILD_SA, &payloads);
                sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
                self.sent = Some(Sent::RekeyIke(Box::new(offer)));
            }
            Err(Undone::Ask(exchange)) => {
                self.prepare(stem, ctx, exchange, Task::RekeyIke { request, retry });
            }
            Err(Undone::Failed(_)) => {
                ctx.done(request, Err(Failure::Crypto));
                // There is no other timer before the hard limit.
                self.queue.retry_later(
                    &mut self.life,
                    ctx,
                    Task::RekeyIke { request: None, retry: Retry::default() },
                );
            }
        }
    }

    pub(crate) fn on_rekey_ike_response(
        &mut self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        offer: RekeyOffer,
        payloads: &[Payload<'_>],
        additional: &[Secret],
    ) {
        let parsed = Payloads(payloads);
        if let Some(error) = parsed.error() {
            return self.on_rekey_ike_error(seen.channel, ctx, offer, error.kind, error.data);
        }
        let ppk = match ChildPpks::of(seen.channel).taken(&offer.ppks, &parsed) {
            Ok(ppk) => ppk,
            Err(reason) => {
                return self.refuse_ppk_of_ike(seen, ctx, &offer, payloads, reason, false);
            }
        };
        let (new, nr) = match self.complete_rekey_ike(seen, ctx, &offer, &parsed, additional, ppk) {
            Ok(made) => made,
            Err(refusal) => {
                return self.fail_offer(
                    seen.channel,
                    ctx,
                    OurOffer::Ike(Box::new(offer)),
                    refusal.kind,
                );
            }
        };
        let ours = Nonces { i: &offer.nonce, r: &nr };
        let meanwhile = offer.meanwhile();
        let new_id = new.channel.link().id();
        let mut new = Box::new(new);
        let adopted = matches!(self.phase, IkePhase::Replaced(_));
        match collision::after_rekey(RekeyResponse::Created(ours), meanwhile) {
            AfterRekey::DeleteOld if adopted => {
                // The peer uses the SA of its own rekey, whatever the nonces say.
                new.mark_redundant();
                ctx.effects.push_back(Effect::Rekeyed(new));
            }
            AfterRekey::DeleteNew => {
                new.mark_redundant();
                ctx.effects.push_back(Effect::Rekeyed(new));
                self.yield_ike(seen.channel, ctx, &offer);
            }
            _ => {
                if let Some(task) = OwnToken::to_give(&new.channel, ctx) {
                    new.push(task);
                }
                ctx.effects.push_back(Effect::Rekeyed(new));
                self.replaced_by(seen.channel, ctx, new_id);
                if let Some(theirs) = offer.crossed.as_ref().and_then(|crossed| crossed.ike) {
                    ctx.effects.push_back(Effect::Redundant(theirs));
                }
                let reason = Failure::Replaced;
                self.queue.push_first(Task::DeleteIke { reason, request: None });
            }
        }
        ctx.done(offer.request, Ok(()));
    }

    /// Hands the children to the SA `to`, and waits for the end of this one.
    pub(crate) fn replaced_by(&mut self, channel: &Channel, ctx: &mut Context<'_>, to: IkeSaId) {
        let from = channel.link().id();
        if matches!(self.phase, IkePhase::Replaced(_)) {
            return;
        }
        self.phase = IkePhase::Replaced(to);
        self.answering.drop_chains(&mut self.life, ctx, |_| true);
        let lives = [Timer::RekeyIke, Timer::ReauthIke, Timer::HardLifeIke, Timer::Authorization];
        for timer in lives.into_iter().chain([Timer::Dpd]) {
            self.life.clear(TimerKey::Ike(timer));
        }
        self.life.set(TimerKey::Ike(Timer::RemoveReplaced), ctx.io.now.mono + REPLACED_LINGERS);
        let estate = self.release_children(channel);
        ctx.effects.push_back(Effect::MoveChildren { from, to, estate });
        ctx.io.event(Event::IkeRekeyed { old: from, new: to });
    }

    /// As [`replaced_by`](Self::replaced_by), by the SA `to` of the peer's rekey. A peer that lacks the answer asks for it on
    /// this SA for as long as its schedule lasts, which is often that of this end. The SA ends at its hard limit in any case.
    pub(crate) fn replaced_by_theirs(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        to: IkeSaId,
    ) {
        let limit = self.life.at(TimerKey::Ike(Timer::HardLifeIke));
        self.replaced_by(channel, ctx, to);
        let lingers = ctx.io.now.mono + REPLACED_LINGERS.max(ctx.lookup.schedule());
        self.life.await_delete_until(limit.map_or(lingers, |limit| limit.min(lingers)));
    }

    /// Waits for the peer's Delete of this SA, which the peer's rekey made and which lost to ours.
    pub(crate) fn await_delete(&mut self, channel: &mut Channel, ctx: &Context<'_>) {
        self.phase = IkePhase::Replaced(channel.link().id());
        channel.deadlines().clear_all();
        self.life.clear_all();
        self.life.await_delete_until(ctx.io.now.mono + REPLACED_LINGERS);
    }

    /// Marks this SA as the loser of two simultaneous rekeys. The end that made it deletes it.
    pub(crate) fn mark_redundant(&mut self, channel: &mut Channel) {
        self.phase = IkePhase::Replaced(channel.link().id());
        self.queue.push(Task::DeleteIke { reason: Failure::Replaced, request: None });
        channel.deadlines().clear_all();
        self.life.clear_all();
    }

    pub(crate) fn complete_rekey_ike(
        &self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        offer: &RekeyOffer,
        payloads: &Payloads<'_, '_>,
        additional: &[Secret],
        ppk: Option<MixedPpk>,
    ) -> Result<(IkeSa, Vec<u8>), Refusal> {
        let sa = required(payloads.sa()?)?;
        let ke = required(payloads.ke()?)?;
        let nr = required(payloads.nonce()?)?.to_vec();
        let selected = proposal::accept(&offer.proposals, sa)
            .map_err(|_| Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN))?;
        let Spi::Ike(spi_r) = selected.spi else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        if ke.method != offer.method || selected.ke != offer.method || spi_r == 0 {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        let shared = ctx
            .complete(offer.method, &offer.ke, ke.data)
            .map_err(|_| Refusal::new(NotifyType::INVALID_SYNTAX))?;
        let successor = Successor {
            initiator: true,
            spis: Spis::new(offer.spi, spi_r),
            selected,
            shared: &std::iter::once(&shared).chain(additional).collect::<Vec<_>>(),
            nonces: Nonces { i: &offer.nonce, r: &nr },
            ppk,
            started: offer.started,
        };
        let mut new = self.successor(seen, ctx, successor)?;
        new.peer.take_token(&new.channel, payloads.0);
        Ok((new, nr))
    }

    pub(crate) fn on_rekey_ike_error(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        offer: RekeyOffer,
        kind: NotifyType,
        data: &[u8],
    ) {
        let failure = Failure::Peer(kind);
        let wanted = <[u8; 2]>::try_from(data).ok().map(|id| KeMethodId(u16::from_be_bytes(id)));
        if kind == NotifyType::INVALID_KE_PAYLOAD
            && let Some(method) = wanted
            && offer.retry.method.is_none()
            // The request had that method.
            && method != offer.method
            // A rekey of the peer that crossed this one has done the work.
            && offer.crossed.is_none()
            && usable_methods(ctx, &channel.connection().proposals).contains(&method)
        {
            let retry = Retry { method: Some(method), ..offer.retry };
            self.queue.push_first(Task::RekeyIke { request: offer.request, retry });
            return;
        }
        let response = match kind {
            NotifyType::TEMPORARY_FAILURE | NotifyType::STATE_NOT_FOUND => {
                RekeyResponse::TemporaryFailure
            }
            _ => RekeyResponse::Refused,
        };
        match collision::after_rekey(response, offer.meanwhile()) {
            AfterRekey::Done => {
                self.yield_ike(channel, ctx, &offer);
                ctx.done(offer.request, Ok(()));
            }
            AfterRekey::RetryLater => {
                let temporary_failures = offer.retry.temporary_failures.saturating_add(1);
                let retry = Retry { temporary_failures, ..offer.retry };
                self.queue.retry_later(
                    &mut self.life,
                    ctx,
                    Task::RekeyIke { request: offer.request, retry },
                );
            }
            _ => {
                ctx.done(offer.request, Err(failure));
                self.queue.retry_later(
                    &mut self.life,
                    ctx,
                    Task::RekeyIke { request: None, retry: Retry::default() },
                );
            }
        }
    }

    pub(crate) fn answer_rekey_ike(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> Result<(), Halt> {
        let activity = self.work().ike_activity(self.phase);
        let child_exchange = self.child_exchange();
        match collision::on_ike_rekey_request(activity, child_exchange) {
            Answer::Accept => {}
            _ => return Err(NotifyType::TEMPORARY_FAILURE.into()),
        }
        let sa = required(payloads.sa()?)?;
        let ni = *required(payloads.nonce()?)?;
        // RFC 9370 §2.2.1 requires IKE_INTERMEDIATE for IKE_SA_INIT only.
        let options = SelectOptions { intermediate: true, ..SelectOptions::default() };
        let selected = proposal::select(&stem.channel.connection().proposals, sa, options)
            .ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        let Spi::Ike(spi_i) = selected.spi else {
            return Err(NotifyType::INVALID_SYNTAX.into());
        };
        if spi_i == 0 {
            return Err(NotifyType::INVALID_SYNTAX.into());
        }
        if payloads.ke()?.is_none_or(|ke| ke.method != selected.ke) {
            return Err(invalid_ke(selected.ke).into());
        }
        let ppk = ChildPpks::of(stem.channel).for_request(ctx.io.config, payloads, ni)?;
        let (ppk, ppk_id) = ppk.unzip();
        let (public, shared) = respond_ke(ctx, selected.ke, payloads)?;
        let spi_r = ctx.ids.ike_spi(ctx.io.rng);
        let nr = ctx.nonce();
        let method = selected.ke;
        let proposal = selected.to_wire(Spi::Ike(spi_r));
        let started = ctx.io.now.mono;
        let spis = Spis::new(spi_i, spi_r);
        let nonces = Nonces { i: ni, r: &nr };
        let mut reply = vec![
            Payload::Sa(Sa { proposals: vec![proposal] }),
            Payload::Nonce(&nr),
            Payload::Ke(Ke { method, data: &public }),
        ];
        reply.extend(ppk_id.iter().map(|id| notify(NotifyType::PPK_IDENTITY, id)));
        let token = OwnToken::of_responder(stem.channel, ctx, spis);
        reply.extend(token.iter().map(OwnToken::payload));
        if selected.additional().next().is_some() {
            let what = TheirOffer::Ike { spis, selected, started };
            let link =
                self.answering.start_chain(stem.channel, ctx, what, vec![shared], nonces, ppk);
            self.answering.arm(&mut self.life);
            reply.push(notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, &link));
            let later = payloads.notify(NotifyType::TICKET_REQUEST).is_some();
            reply.extend(later.then(|| notify(NotifyType::TICKET_ACK, &[])));
            stem.respond(ctx, &reply);
            if let Some(sent) = &mut self.sent {
                sent.note_crossed_ike(None, nonces.to_owned());
            }
            return Ok(());
        }
        let new = Successor {
            initiator: false,
            spis,
            selected,
            shared: &[&shared],
            nonces,
            ppk,
            started,
        };
        let mut new = self.successor(stem.seen(), ctx, new)?;
        let ticket = new.when_established(|new, stem| {
            new.answer_ticket_request(stem.channel, stem.peer, ctx, payloads)
        });
        let ticket = ticket.unwrap_or_default();
        reply.extend(payloads_of(&ticket));
        stem.respond(ctx, &reply);
        self.hand_over(stem, ctx, new, nonces.to_owned());
        Ok(())
    }

    /// Handles that the peer has its new SA: that SA takes over, unless our own rekey is in flight as well.
    pub(crate) fn hand_over(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        mut new: IkeSa,
        nonces: OwnNonces,
    ) {
        let (from, to) = (stem.channel.link().id(), new.channel.link().id());
        self.answering.drop_chains(&mut self.life, ctx, |_| true);
        new.when_established(|new, _| new.life.await_sign(ctx.io.now.mono));
        if stem.ending.is_set() {
            // No answer was sent, so the peer has no new SA. The children end with this one.
            return ctx.effects.push_back(Effect::Rekeyed(Box::new(new)));
        }
        if self.sent.as_mut().is_some_and(|sent| sent.note_crossed_ike(Some(to), nonces)) {
            let crossed = new.when_established(|new, _| new.phase = IkePhase::Crossed(from));
            debug_assert!(crossed.is_some(), "a successor is not established");
            ctx.effects.push_back(Effect::Rekeyed(Box::new(new)));
        } else {
            ctx.effects.push_back(Effect::Rekeyed(Box::new(new)));
            self.replaced_by_theirs(stem.channel, ctx, to);
        }
    }

    /// The successor of this SA: the same peers, new keys, no children yet.
    pub(crate) fn successor(
        &self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        new: Successor<'_>,
    ) -> Result<IkeSa, Refusal> {
        let refused = || Refusal::new(NotifyType::NO_PROPOSAL_CHOSEN);
        let prf = ctx.crypto.prf(new.selected.prf).ok_or_else(refused)?;
        let lengths = ctx.crypto.ciphers.lengths(new.selected.suite).ok_or_else(refused)?;
        let old = seen.channel.session();
        let sk_d = new.ppk.as_ref().map_or(old.keys.d(), |ppk| &ppk.sk_d);
        let old = OldKeys::new(old.prf, sk_d);
        let seed = Seed::new(new.nonces, new.spis);
        let keys = IkeKeys::rekeyed(old, new.shared, &seed, prf, &lengths);
        let epoch = Epoch::new(ctx.crypto.ciphers, new.selected.suite, &keys, new.initiator)
            .map_err(|_| refused())?;
        let mut established = Box::new(self.rekeyed(ctx.io.now.mono));
        let id = ctx.ids.ike();
        let mut channel = Channel::new(
            &ctx.io,
            NewChannel {
                id,
                initiator: new.initiator,
                spis: new.spis,
                path: seen.channel.route().path(),
                nat: seen.channel.route().nat(),
                extensions: seen.channel.link().extensions(),
                connection: seen.channel.connection().clone(),
                session: Session {
                    epoch,
                    previous: None,
                    prf,
                    keys: SessionKeys::of_successor(keys),
                    selected: new.selected,
                },
                started: new.started,
            },
        );
        channel.succeed(&ctx.io, seen.channel);
        established.life.begin(channel.connection(), ctx);
        established.life.keep_times_of(&self.life, seen.channel.connection());
        let seed = ctx.registry.seed();
        let peer = seen.peer.rekeyed(new.ppk.map(|ppk| ppk.used(seed)));
        Ok(IkeSa::new(channel, peer, State::Established(established)))
    }
}

impl RekeyOffer {
    /// What this end offers for the successor of an SA with this `channel`.
    fn begin(
        channel: &Channel,
        ctx: &mut Context<'_>,
        request: Option<RequestId>,
        retry: Retry,
    ) -> Result<Self, Undone> {
        let methods = usable_methods(ctx, &channel.connection().proposals);
        let current = channel.session().selected.ke;
        let method = retry
            .method
            .or_else(|| methods.iter().copied().find(|&method| method == current))
            .or(methods.first().copied())
            .ok_or(CryptoError::Unsupported)?;
        let ke = ctx.initiate(method)?;
        let spi = ctx.ids.ike_spi(ctx.io.rng);
        let proposals = (1..)
            .zip(&channel.connection().proposals)
            .map(|(number, proposal)| proposal.led_by(method).to_wire(number, Spi::Ike(spi)))
            .collect();
        let nonce = ctx.nonce();
        Ok(Self {
            spi,
            proposals,
            ppks: ChildPpks::of(channel).offered(ctx.io.config, &nonce),
            nonce: nonce.into(),
            method,
            ke,
            crossed: None,
            request,
            retry,
            started: ctx.io.now.mono,
        })
    }
}

/// The differences between an SA and its successor.
pub(crate) struct Successor<'a> {
    pub(crate) initiator: bool,
    pub(crate) spis: Spis,
    pub(crate) selected: Selected,
    pub(crate) shared: &'a [&'a Secret],
    pub(crate) nonces: Nonces<'a>,
    /// The PPK of this exchange.
    pub(crate) ppk: Option<MixedPpk>,
    pub(crate) started: Instant,
}

impl RekeyOffer {
    pub(crate) fn meanwhile(&self) -> Meanwhile<'_> {
        match &self.crossed {
            Some(crossed) => Meanwhile::RekeyedByPeer(crossed.nonces.borrow()),
            None => Meanwhile::Nothing,
        }
    }
}
