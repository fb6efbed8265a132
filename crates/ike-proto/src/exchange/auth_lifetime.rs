//! How long an authentication is valid (RFC 4478). The gateway tells its client in the last IKE_AUTH response, and
//! again when that changes. The client authenticates again in time, or the gateway ends the IKE SA.
//!
//! ```text
//!                               <--  HDR, SK {N(AUTH_LIFETIME)}
//!    HDR, SK {}  -->
//! ```

use std::time::{Duration, Instant};

use super::{OwnedNotifies, Payloads};
use crate::channel::Channel;
use crate::channel::timer::{Timer, TimerKey};
use crate::config::ConnectionConfig;
use crate::exchange::sent::Sent;
use crate::ike_sa::context::Context;
use crate::ike_sa::state::{Established, IkePhase, Task};
use crate::ike_sa::{Life, Seen, Stem};
use crate::wire::registry::NotifyType;

//= https://www.rfc-editor.org/rfc/rfc4478#section-2
//# In that case, the original
//# responder SHOULD allow a reasonable time for the repeated
//# authentication to occur.
/// The least time that a peer has before its IKE SA ends.
const AT_LEAST: Duration = Duration::from_secs(10);

//= https://www.rfc-editor.org/rfc/rfc4478#section-5
//# An Initiator MAY set reasonable limits on the amount of time in the
//# AUTH_LIFETIME notification.
/// A client authenticates no more often than this, whatever the gateway says.
const SOONEST: Duration = Duration::from_secs(5);

const REAUTH: TimerKey = TimerKey::Ike(Timer::ReauthIke);
const END: TimerKey = TimerKey::Ike(Timer::Authorization);

impl Established {
    /// The same for an established SA. False if the SA is about to end.
    pub(crate) fn change_auth_lifetime(
        &mut self,
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        lifetime: Duration,
    ) -> bool {
        if self.phase != IkePhase::Alive {
            return false;
        }
        self.life.limit_authentication(stem.channel.connection(), ctx.io.now.mono, lifetime);
        if stem.channel.connection().session_resumption && !stem.channel.link().extensions().client
        {
            // The ticket has the earlier limit.
            let spis = stem.peer.spis_of_tickets(stem.channel);
            ctx.void_tickets(stem.channel.link().id(), spis);
        }
        if !self.identity.may_reauthenticate(stem.seen()) {
            self.queue.push(Task::AuthLifetime);
        }
        true
    }

    //= https://www.rfc-editor.org/rfc/rfc4478#section-2
    //# The Responder MUST send this information to the Initiator in an
    //# AUTH_LIFETIME notification either in the last message of an IKE_AUTH
    //# exchange, or in an INFORMATIONAL request, which may be sent at any
    //# time.
    /// The notify for the client, if it has to authenticate again.
    pub(crate) fn own_auth_lifetime(&self, seen: Seen<'_>, now: Instant) -> OwnedNotifies {
        let Some(at) = self.life.at(REAUTH).filter(|_| !self.identity.may_reauthenticate(seen))
        else {
            return Vec::new();
        };
        let seconds = at.saturating_duration_since(now).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        vec![(NotifyType::AUTH_LIFETIME, seconds.to_be_bytes().to_vec())]
    }

    /// Sends the notify. Its answer counts as that of a liveness check.
    pub(crate) fn send_auth_lifetime(&mut self, stem: &mut Stem<'_>, ctx: &mut Context<'_>) {
        let notifies = self.own_auth_lifetime(stem.seen(), ctx.io.now.mono);
        self.inform(stem, ctx, &super::payloads_of(&notifies).collect::<Vec<_>>(), Sent::Liveness);
    }

    //= https://www.rfc-editor.org/rfc/rfc4478#section-2
    //# An Initiator that received an AUTH_LIFETIME notification SHOULD
    //# repeat the Initial exchange within the time indicated in the
    //# notification.
    /// Handles the notify of the gateway in a protected message.
    pub(crate) fn take_auth_lifetime(
        &mut self,
        channel: &Channel,
        now: Instant,
        payloads: &Payloads<'_, '_>,
    ) {
        if !channel.link().extensions().client || self.phase != IkePhase::Alive {
            return;
        }
        let told = payloads.notify(NotifyType::AUTH_LIFETIME);
        if let Some(seconds) = told.and_then(|told| told.data.try_into().ok()) {
            let lifetime = Duration::from_secs(u32::from_be_bytes(seconds).into());
            let margin = (lifetime / 10).min(channel.connection().over_time);
            let by = (now + (lifetime - margin)).max(self.identity.since() + SOONEST);
            //= https://www.rfc-editor.org/rfc/rfc4478#section-5
            //# the
            //# Initiator may have a different policy regarding re-authentication,
            //# requiring more frequent re-authentication.
            let own = self.life.at(REAUTH).filter(|_| !channel.connection().reauth_time.is_zero());
            self.life.set(REAUTH, own.map_or(by, |at| at.min(by)));
        }
    }
}

impl Life {
    /// Requires the peer to authenticate again after `lifetime`.
    pub(crate) fn limit_authentication(
        &mut self,
        connection: &ConnectionConfig,
        now: Instant,
        lifetime: Duration,
    ) {
        let was_limited = self.at(END).is_some();
        // The peer's time to do so. Most of a short lifetime is left.
        let margin = (lifetime / 10 + SOONEST).min(connection.over_time).min(lifetime);
        let soft = now + (lifetime - margin);
        let configured = match connection.reauth_time {
            Duration::ZERO => None,
            // The timer may come from an earlier limit.
            time if was_limited => Some(now + time),
            _ => self.at(REAUTH),
        };
        self.set(REAUTH, configured.map_or(soft, |at| at.min(soft)));
        self.set(END, now + lifetime.max(AT_LEAST));
    }

    /// Waits for the client's reauthentication, which is due.
    pub(crate) fn await_reauthentication(&mut self, connection: &ConnectionConfig, now: Instant) {
        if self.at(END).is_none() {
            self.set(END, now + connection.over_time.max(AT_LEAST));
        }
    }

    /// Limits a resumed SA, which this end may not reauthenticate, to the time of the SA before it.
    pub(crate) fn end_after(&mut self, connection: &ConnectionConfig, by: Instant) {
        self.set(END, by + connection.over_time.max(AT_LEAST));
    }
}
