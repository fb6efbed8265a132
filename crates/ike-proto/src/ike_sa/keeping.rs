//! Messages of the peer that an IKE SA keeps: which pool pays for them, and what ends when other peers get the octets.

use super::context::Context;
use super::io::Io;
use super::memory::{Payer, Pool};
use super::state::State;
use super::{Channel, IkeSa, Trust};
use crate::event::Failure;
use crate::keys::epoch::Opened;
use crate::reason::{DropReason, PolicyReason};
use crate::shares::Origin;
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
        let octets = length(message);
        let payer = self.core.channel.payer().of_message(octets);
        ctx.io.budget.has_room(payer, octets)
    }

    /// Handles the loss of the octets of `pool`, which other SAs have got. An unauthenticated peer is told
    /// nothing: it retransmits its fragments, or begins again.
    pub(crate) fn give_way(&mut self, ctx: &mut Context<'_>, pool: Pool) {
        for set in [&mut self.core.channel.requests, &mut self.core.channel.responses] {
            set.give_way(pool, ctx.io.budget);
        }
        if self.core.channel.kept.of(pool) == 0 {
            return ctx.io.dropped(self.core.channel.path, DropReason::FragmentsGaveWay);
        }
        if self.core.channel.link.is_stranger() {
            self.close(ctx, no_room());
        } else {
            self.refuse_waiting(ctx);
        }
    }
}

impl Channel {
    /// The account to which this SA's kept octets are charged.
    pub(super) fn payer(&self) -> Payer {
        let address = || Origin::of(self.path.remote.ip());
        let (pool, origin) = match self.link.trust() {
            Trust::Authenticated(account) => (Pool::Peers, account.unwrap_or_else(address)),
            Trust::Unauthenticated | Trust::Genuine if self.link.is_initiator() => {
                (Pool::Own, address())
            }
            Trust::Unauthenticated | Trust::Genuine => (Pool::Strangers, address()),
        };
        Payer { pool, ike: self.link.id(), origin }
    }

    /// Makes room for a message that has to wait. False if there is none.
    pub(crate) fn hold(&mut self, io: &mut Io<'_>, message: &Opened) -> bool {
        let octets = length(message);
        let payer = self.payer().of_message(octets);
        self.hold_for(io, payer, octets)
    }

    /// The same for other octets that are kept of an unauthenticated peer.
    pub(crate) fn hold_octets(&mut self, io: &mut Io<'_>, octets: usize) -> bool {
        let payer = self.payer();
        self.hold_for(io, payer, octets)
    }

    fn hold_for(&mut self, io: &mut Io<'_>, payer: Payer, octets: usize) -> bool {
        let room = io.budget.take(payer, octets);
        if room {
            self.kept.add(payer.pool, octets);
        }
        room
    }

    /// Gives back the octets: the peer is authenticated, or gone.
    pub(crate) fn let_go(&mut self, io: &mut Io<'_>) {
        let all = self.kept;
        self.kept.give_back(all, self.link.id(), io.budget);
    }
}

fn length(message: &Opened) -> usize {
    message.octets.len() + message.front.len()
}
