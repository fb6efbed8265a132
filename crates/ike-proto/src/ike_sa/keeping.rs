//! Messages of the peer that an IKE SA keeps: which pool pays for them, and what ends when other peers get the octets.

use super::IkeSa;
use super::context::Context;
use super::state::State;
use crate::channel::memory::Pool;
use crate::event::Failure;
use crate::keys::epoch::Opened;
use crate::reason::{DropReason, PolicyReason};
use crate::wire::payload::Payload;
use crate::wire::registry::AuthMethod;

/// Why a message of an unauthenticated peer is dropped.
pub(super) const NO_ROOM: DropReason = DropReason::NoMemory;

/// Why an IKE SA ends for which there is no memory, or no longer any.
pub(crate) fn no_room() -> Failure {
    Failure::Policy(PolicyReason::NoMemory)
}

impl IkeSa {
    /// True unless a message of an unauthenticated peer would have to wait and has no room. A peer that is
    /// authenticated by a secret does not wait.
    pub(super) fn has_room_for<E>(
        &self,
        ctx: &mut Context<'_>,
        payloads: &Result<Vec<Payload<'_>>, E>,
        message: &Opened,
    ) -> bool {
        let Ok(payloads) = payloads else { return true };
        let talks = match &self.state {
            State::Established(_) => true,
            // Its first request is kept already. EAP packets are not kept.
            State::ExpectAuthRequest(waiting) => waiting.eap.is_some(),
            _ => false,
        };
        let by_secret = payloads.iter().any(|payload| {
            matches!(payload, Payload::Auth(auth)
                if matches!(auth.method, AuthMethod::PSK | AuthMethod::NULL))
        });
        if talks || by_secret {
            return true;
        }
        let octets = message.kept_octets();
        let payer = self.channel.link().payer(self.channel.route().path()).of_message(octets);
        ctx.io.budget.has_room(payer, octets)
    }

    /// Handles the loss of the octets of `pool`, which other SAs have got. An unauthenticated peer is told
    /// nothing: it retransmits its fragments, or begins again.
    pub(crate) fn give_way(&mut self, ctx: &mut Context<'_>, pool: Pool) {
        if !self.channel.give_way(&mut ctx.io, pool) {
            return ctx.io.dropped(self.channel.route().path(), DropReason::FragmentsGaveWay);
        }
        if self.channel.link().is_stranger() {
            self.close(ctx, no_room());
        } else {
            self.refuse_waiting(ctx);
        }
    }
}
