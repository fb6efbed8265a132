//! The responder's side of a chain: what it has agreed to, and how long it keeps that.

use super::answering::{chain_life, drop_chain};
use super::{Chain, TheirOffer};

use super::answering::Reply;
use crate::exchange::child_sa::KeyMaterial;
use crate::exchange::child_sa::ReadyChild;
use crate::exchange::child_sa::respond_ke;
use crate::exchange::key_exchange::Halt;
use crate::exchange::rekey_ike::Successor;
use crate::exchange::{Payloads, Refusal, required};
use crate::ike_sa::Stem;
use crate::ike_sa::context::Context;
use crate::ike_sa::notify;
use crate::ike_sa::pending::What;
use crate::ike_sa::state::Established;
use crate::keys::epoch::Opened;
use crate::wire::payload::{Ke, Notify, Payload};
use crate::wire::registry::ExchangeType;
use crate::wire::registry::{KeMethodId, NotifyType};

impl Established {
    pub(crate) fn on_followup_request(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
        opened: &Opened,
    ) {
        match self.answer_followup(stem, ctx, payloads) {
            Ok(()) => {}
            Err(Halt::Refuse(refusal)) => stem.refuse(ctx, refusal),
            Err(Halt::Ask(exchange)) => {
                let what = What::Request(ExchangeType::IKE_FOLLOWUP_KE, opened.clone());
                stem.put_off(ctx, exchange, what);
            }
        }
    }

    fn answer_followup(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> Result<(), Halt> {
        let parsed = Payloads(payloads);
        //= https://www.ietf.org/archive/id/draft-ietf-ipsecme-ikev2-multiple-ke-12#section-2.2.4
        //# If the responder receives an
        //# IKE_FOLLOWUP_KE message for which it does not have a key exchange
        //# state, it MUST send back a new error type notification
        //# STATE_NOT_FOUND.
        if self.answering.has_no_chain() {
            return Err(NotifyType::STATE_NOT_FOUND.into());
        }
        // RFC 9370 §2.2.4 has it in every request. INVALID_SYNTAX, which ends the IKE SA (RFC 7296 §2.21.3):
        // STATE_NOT_FOUND would be for an unknown link.
        let Notify { data: link, .. } =
            required(parsed.notify(NotifyType::ADDITIONAL_KEY_EXCHANGE))?;
        // RFC 9370 §2.2.4: an unknown link is answered STATE_NOT_FOUND
        let mut chain = self.answering.take(link).ok_or(NotifyType::STATE_NOT_FOUND)?;
        let overtaken = self.overtaken(&chain);
        self.answering.arm(&mut self.life);
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
                chain.expires =
                    chain.expires.max(ctx.io.now.mono + ctx.io.config.half_open_timeout);
                self.answering.keep(&mut self.life, chain);
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
            return Ok(self.finish_chain(stem, ctx, chain, (method, public))?);
        }
        chain.method = chain.rest.remove(0);
        (chain.expires, chain.latest) = chain_life(ctx, stem.channel, method, chain.method);
        chain.answered = ctx.io.now.mono;
        ctx.io.rng.fill(&mut chain.link);
        let reply = [
            Payload::Ke(Ke { method, data: &public }),
            notify(NotifyType::ADDITIONAL_KEY_EXCHANGE, &chain.link),
        ];
        stem.respond(ctx, &reply);
        self.answering.keep(&mut self.life, chain);
        Ok(())
    }

    fn finish_chain(
        &mut self,
        stem: &mut Stem<'_>,
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
                    ReadyChild::keyed(stem.channel, &self.children, ctx, *child, material)?
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
                self.install_then_respond(stem, ctx, ready, reply);
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
                let new = self.successor(stem.seen(), ctx, new)?;
                stem.respond(ctx, &[Payload::Ke(Ke { method, data: &public })]);
                self.hand_over(stem, ctx, new, nonces);
            }
        }
        Ok(())
    }
}
