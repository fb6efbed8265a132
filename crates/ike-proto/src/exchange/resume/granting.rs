//! Requesting and giving tickets (RFC 5723 §4.1, §4.2): in IKE_AUTH, after a rekey of the IKE SA, and in
//! INFORMATIONAL.

use std::time::{Duration, Instant};

use super::fits;
use super::former::{Former, Held};
use super::responder::seconds;
use super::ticket::TicketState;
use crate::channel::Channel;
use crate::channel::link::Link;
use crate::channel::timer::{Timer, TimerKey};
use crate::exchange::sent::Sent;
use crate::exchange::{OwnedNotifies, Payloads};
use crate::ike_sa::collision::IkeActivity;
use crate::ike_sa::context::{Context, Effect, TicketChange};
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::ike_sa::{Life, Stem};
use crate::ike_sa::{Peer, Seen, notify};
use crate::wire::registry::{ExchangeType, NotifyType};

/// The longest lifetime that is accepted.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// A gateway that has refused a ticket is asked again after this time.
const AGAIN: Duration = Duration::from_secs(120);

/// Octets of a ticket at most: IKE_SESSION_RESUME is never fragmented, and many tickets may be kept.
const LARGEST: usize = 4096;

/// Lifetime and ticket of TICKET_LT_OPAQUE (RFC 5723 §7.2), if they can be used.
fn read(data: &[u8]) -> Option<(Duration, &[u8])> {
    let (lifetime, ticket) = data.split_first_chunk()?;
    let lifetime = Duration::from_secs(u32::from_be_bytes(*lifetime).into()).min(LONGEST);
    let good = !lifetime.is_zero() && (1..=LARGEST).contains(&ticket.len());
    good.then_some((lifetime, ticket))
}

impl Established {
    /// Requests a ticket by a request of its own.
    pub(crate) fn send_ticket_request(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        let ask = [notify(NotifyType::TICKET_REQUEST, &[])];
        let sent = stem.channel.request(&mut ctx.io, ExchangeType::INFORMATIONAL, &ask);
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        self.sent = Some(Sent::TicketRequest);
    }

    /// Reads the ticket in a protected response. `at_once` if the gateway may be asked again soon.
    pub(crate) fn take_ticket(
        &mut self,
        seen: Seen<'_>,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
        at_once: bool,
    ) {
        if !wants_ticket(seen.channel.link()) {
            return;
        }
        let Some(given) = payloads.notify(NotifyType::TICKET_LT_OPAQUE) else {
            match payloads.notify(NotifyType::TICKET_ACK).is_some() {
                true if at_once => self.queue.push(Task::RequestTicket),
                true => self.life.ask_again(ctx.io.now.mono),
                // The refusal may be temporary. The present ticket stays valid.
                false => {
                    let ike = seen.channel.link().id();
                    ctx.effects.push_back(Effect::Ticket(ike, TicketChange::Refused));
                }
            }
            return;
        };
        let (Some((lifetime, octets)), Some(former)) =
            (read(given.data), Former::of(seen.channel, seen.peer, self))
        else {
            return tracing::debug!(ike = ?seen.channel.link().id(), "ticket not kept: malformed, or no SA to resume");
        };
        let now = ctx.io.now.mono;
        let vips = seen.peer.assigned().virtual_ips(true).to_vec();
        let held = Held {
            octets: octets.into(),
            expires: now + lifetime,
            secrets: fits::secrets(ctx.io.config, ctx.lookup, seen.channel.session().prf, &former),
            former,
            connection: seen.channel.connection().clone(),
            remote: seen.channel.route().path().remote.ip().to_canonical(),
            reauth_by: self.life.at(TimerKey::Ike(Timer::ReauthIke)),
            vips,
        };
        let given = TicketChange::Given(Box::new(held));
        ctx.effects.push_back(Effect::Ticket(seen.channel.link().id(), given));
        //= https://www.rfc-editor.org/rfc/rfc5723#section-4.1
        //# or when the ticket lifetime is about to expire
        self.life.set(TimerKey::Ike(Timer::Ticket), now + lifetime.mul_f64(0.8));
    }

    /// Renews the ticket, which is about to expire.
    pub(crate) fn renew_ticket(&mut self) {
        if self.phase == IkePhase::Alive {
            self.queue.push(Task::RequestTicket);
        }
    }

    /// The answer to TICKET_REQUEST, if `payloads` have one.
    pub(crate) fn answer_ticket_request(
        &mut self,
        channel: &Channel,
        peer: &mut Peer,
        ctx: &mut Context<'_>,
        payloads: &Payloads<'_, '_>,
    ) -> OwnedNotifies {
        let asked = payloads.notify(NotifyType::TICKET_REQUEST).is_some();
        if !asked {
            return Vec::new();
        }
        vec![self.grant(channel, peer, ctx).unwrap_or((NotifyType::TICKET_NACK, Vec::new()))]
    }

    /// A ticket for this SA.
    fn grant(
        &mut self,
        channel: &Channel,
        peer: &mut Peer,
        ctx: &mut Context<'_>,
    ) -> Option<(NotifyType, Vec<u8>)> {
        if channel.link().extensions().client {
            return None;
        }
        let connection = fits::may_grant(ctx, channel, peer, self)?;
        let (now, wall) = (ctx.io.now.mono, seconds(ctx.io.now.wall));
        let reauth = self.life.at(TimerKey::Ike(Timer::ReauthIke));
        if self.work().ike_activity(self.phase) == IkeActivity::Closing {
            return None;
        }
        let resumed = self.identity.authenticated().resumed.as_ref();
        // For a resumed SA the time does not begin again.
        let reauth = [reauth, resumed.and_then(|resumed| resumed.reauth_by)];
        let reauth = reauth.into_iter().flatten().min();
        //= https://www.rfc-editor.org/rfc/rfc5723#section-6.2
        //# The lifetime of the ticket sent by the gateway SHOULD be the minimum
        //# of the IKE SA lifetime (per the gateway's local policy) and its re-
        //# authentication time
        let ends = [Timer::HardLifeIke, Timer::Authorization].map(TimerKey::Ike);
        let ends = ends.into_iter().map(|timer| self.life.at(timer)).chain([reauth]);
        let left = ends.flatten().map(|at| at.saturating_duration_since(now));
        let lifetime = left.chain([ctx.io.config.resumption.lifetime, LONGEST]).min()?;
        let seconds = u32::try_from(lifetime.as_secs()).ok().filter(|seconds| *seconds > 0)?;
        let former = Former::of(channel, peer, self)?;
        let on_wall = |at: Instant| wall + at.saturating_duration_since(now).as_secs();
        let ticket = TicketState {
            connection: channel.connection().name.clone(),
            expires: wall + u64::from(seconds),
            reauth_by: reauth.map(on_wall),
            ends_by: self.life.at(TimerKey::Ike(Timer::Authorization)).map(on_wall),
            secrets: fits::secrets(ctx.io.config, ctx.lookup, channel.session().prf, &former),
            eap: fits::eap_of(connection).to_owned(),
            former,
        };
        let octets = ticket.seal(&ctx.io.config.resumption, ctx.crypto, ctx.io.rng)?;
        peer.note_ticket();
        if let Some(assigned) = peer.assigned().given() {
            ctx.registry.lend(channel.link().spis().pair(), &assigned.addresses);
        }
        Some((NotifyType::TICKET_LT_OPAQUE, [&seconds.to_be_bytes()[..], &octets].concat()))
    }
}

/// True if this end of `link`, a client, requests tickets.
pub(crate) fn wants_ticket(link: &Link) -> bool {
    link.extensions().client && link.connection().session_resumption
}

impl Life {
    /// Asks the gateway again later, because it may have a ticket then.
    pub(crate) fn ask_again(&mut self, now: Instant) {
        self.set(TimerKey::Ike(Timer::Ticket), now + AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_ticket_is_not_kept() {
        let data = |seconds: u32, len: usize| [&seconds.to_be_bytes()[..], &vec![7; len]].concat();
        assert_eq!(read(&data(60, 3)), Some((Duration::from_secs(60), &[7; 3][..])));
        assert_eq!(read(&data(u32::MAX, 3)).map(|(lifetime, _)| lifetime), Some(LONGEST));
        assert!(read(&data(60, LARGEST)).is_some());
        for bad in [data(60, LARGEST + 1), data(60, 0), data(0, 3), vec![0; 3]] {
            assert_eq!(read(&bad), None);
        }
    }
}
