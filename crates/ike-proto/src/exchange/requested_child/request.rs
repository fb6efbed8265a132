//! The requests for a child in CREATE_CHILD_SA: a new one, and the rekey of one.

use std::sync::Arc;

use super::{NoOffer, OfferSpec, RequestedChild};
use crate::child::Join;
use crate::child::Phase;
use crate::config::ChildConfig;
use crate::dataplane::Flow;
use crate::event::{ChildSaId, Failure, RequestId};
use crate::exchange::create_child::child_failed;
use crate::exchange::parts::{Parts, Started};
use crate::exchange::ppk::create_child::{ChildPpks, NO_KEY};
use crate::exchange::sent::{Retry, Sent};
use crate::ike_sa::state::Task;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};

/// The parts of a [`Task::CreateChild`].
pub(crate) struct NewChild {
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) packet: Option<Flow>,
    pub(crate) request: Option<RequestId>,
    pub(crate) retry: Retry,
    pub(crate) join: Option<Join>,
}

impl RequestedChild {
    /// Requests `new`, at the place `join` among several for the same traffic, with a free ordinal.
    pub(crate) fn request(
        parts: &mut Parts<'_, '_>,
        new: NewChild,
        join: Option<Join>,
        ordinal: u32,
    ) -> Started {
        let Parts { channel, peer, children, ctx, .. } = parts;
        let NewChild { config, packet, request, retry, join: asked } = new;
        let other = join.map(|join| (join, children.sharing(join.policy).next()));
        let joins = match other {
            None => None,
            Some((join, Some(other))) => Some((other, join)),
            Some((_, None)) => {
                // All of them have ended meanwhile. The next packet requests a new first child.
                ctx.done(request, Err(Failure::NotFound));
                return Started::Not;
            }
        };
        let spec = OfferSpec {
            config: &config,
            rekeys: None,
            joins,
            dynamic: peer.assigned().dynamic(),
            packet,
            ike_method: Some(channel.session().selected.ke),
            ordinal,
            request,
            retry,
        };
        match Self::offer(ctx, channel.link().id(), channel.route().path(), &spec) {
            Ok(offer) => offer.send(parts),
            Err(NoOffer::Ask(exchange)) => {
                let task = Task::CreateChild { config, packet, request, retry, join: asked };
                Started::Ask(exchange, task)
            }
            Err(NoOffer::Failed(failure)) => {
                ctx.done(request, Err(failure.clone()));
                child_failed(ctx, channel, &config.name, failure);
                Started::Not
            }
        }
    }

    /// Requests a rekey of `child`.
    pub(crate) fn request_rekey(
        parts: &mut Parts<'_, '_>,
        child: ChildSaId,
        request: Option<RequestId>,
        retry: Retry,
    ) -> Started {
        let Parts { channel, peer, children, ctx, .. } = parts;
        let old = children.get(child).filter(|old| old.phase == Phase::Installed);
        let Some(old) = old else {
            ctx.done(request, Err(Failure::NotFound));
            return Started::Not;
        };
        let spec = OfferSpec {
            config: &old.config,
            rekeys: Some(old),
            joins: None,
            dynamic: peer.assigned().dynamic(),
            // RFC 7296 §2.9.2: no selectors of a packet here.
            packet: None,
            ike_method: Some(channel.session().selected.ke),
            ordinal: old.ordinal,
            request,
            retry,
        };
        match Self::offer(ctx, channel.link().id(), channel.route().path(), &spec) {
            Ok(offer) => offer.send(parts),
            Err(NoOffer::Ask(exchange)) => {
                Started::Ask(exchange, Task::RekeyChild { child, request, retry })
            }
            Err(NoOffer::Failed(failure)) => {
                ctx.done(request, Err(failure.clone()));
                child_failed(ctx, channel, &old.config.name, failure);
                parts.rearm_rekey(child);
                Started::Not
            }
        }
    }

    fn send(mut self: Box<Self>, parts: &mut Parts<'_, '_>) -> Started {
        let Parts { channel, ending, children, ctx, .. } = &mut *parts;
        self.ppks = ChildPpks::of(channel).offered(ctx.io.config, &self.nonce);
        if ChildPpks::of(channel).lacks_required(&self.ppks) {
            self.refuse_ppk(parts, NO_KEY, true);
            return Started::Not;
        }
        let old_spi = self.rekeys.and_then(|id| children.get(id).map(|child| child.spi_in));
        let mut payloads = Vec::with_capacity(8);
        if let Some(spi) = old_spi {
            // RFC 7296 §1.3.3: the SPI this end expects in the headers of inbound packets.
            payloads.push(Payload::Notify(Notify::esp(NotifyType::REKEY_SA, spi)));
        }
        payloads.extend(self.payloads(true));
        let sent = channel.request(&mut ctx.io, ExchangeType::CREATE_CHILD_SA, &payloads);
        sent.unwrap_or_else(|unsent| ending.on_unsent(unsent));
        drop(payloads);
        Started::Sent(Sent::Child(self))
    }
}
