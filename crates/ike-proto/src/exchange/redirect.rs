//! Redirects (RFC 5685): a gateway redirects its client to another one, in IKE_SA_INIT, at the end of IKE_AUTH, or
//! while the IKE SA is up. `endpoint/redirect.rs` decides whether, and to which gateway.
//!
//! ```text
//!    HDR, SAi1, KEi, Ni, N(REDIRECT_SUPPORTED)  -->
//!                               <--  HDR, N(REDIRECT, new gateway, Ni)
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Payloads;
use crate::channel::Channel;
use crate::config::ConnectionConfig;
use crate::event::{Failure, IkeSaId, Path, RequestId};
use crate::exchange::parts::{Outcome, Parts, Started};
use crate::exchange::requested_child::RequestedChild;
use crate::exchange::sent::Sent;
use crate::ike_sa::context::{Context, Effect};
use crate::ike_sa::state::{ExpectAuthResponse, Task};
use crate::ike_sa::{Seen, Stem, notify};
use crate::reason::DropReason;
use crate::wants::Wanted;
use crate::wire::payload::{Notify, Payload};
use crate::wire::registry::{ExchangeType, NotifyType};

//= https://www.rfc-editor.org/rfc/rfc5685#section-7
//# The default value for the MAX_REDIRECTS
//# configuration variable is 5.  The default value for the
//# REDIRECT_LOOP_DETECT_PERIOD configuration variable is 300 seconds.
/// Redirects that are followed in that time.
const MAX_REDIRECTS: u8 = 5;
const LOOP_DETECT_PERIOD: Duration = Duration::from_secs(300);

/// How an attempt, or an IKE SA, came to its gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redirected {
    /// The gateway that has redirected it here; `None` if it came back by itself.
    pub(crate) from: Option<IpAddr>,
    /// The gateway of the first redirect: the connection's own.
    pub(crate) first: IpAddr,
    /// Consecutive redirects, and when the first one came.
    count: u8,
    since: Instant,
}

impl Redirected {
    /// One more redirect, by the gateway at `from`; `None` if that is one too many.
    pub(crate) fn again(before: Option<Self>, from: IpAddr, now: Instant) -> Option<Self> {
        let recent = before.filter(|b| now.saturating_duration_since(b.since) < LOOP_DETECT_PERIOD);
        let (count, since) = recent.map_or((0, now), |recent| (recent.count, recent.since));
        let first = before.map_or(from, |before| before.first);
        let from = Some(from);
        (count < MAX_REDIRECTS).then_some(Self { from, first, count: count + 1, since })
    }

    /// Goes back to the first gateway, because the other one does not answer.
    pub(crate) fn back(self) -> Self {
        Self { from: None, ..self }
    }
}

/// Types of gateway identities (RFC 5685 §9.2).
const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// Notification Data of REDIRECT and REDIRECTED_FROM.
pub(crate) fn gateway_data(gateway: IpAddr, nonce: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(18 + nonce.len());
    match gateway.to_canonical() {
        IpAddr::V4(ip) => {
            data.extend([IPV4, 4]);
            data.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            data.extend([IPV6, 16]);
            data.extend(ip.octets());
        }
    }
    data.extend(nonce);
    data
}

/// The gateway in such data, and the nonce after it.
pub(crate) fn read_gateway(data: &[u8]) -> Result<(IpAddr, &[u8]), DropReason> {
    let (&[kind, length], rest) = data.split_first_chunk().ok_or(DropReason::RedirectTooShort)?;
    let (identity, nonce) =
        rest.split_at_checked(length.into()).ok_or(DropReason::RedirectTooShort)?;
    let gateway: IpAddr = match kind {
        IPV4 => <[u8; 4]>::try_from(identity).map_err(|_| DropReason::RedirectLength)?.into(),
        IPV6 => <[u8; 16]>::try_from(identity).map_err(|_| DropReason::RedirectLength)?.into(),
        _ => return Err(DropReason::RedirectByName),
    };
    let gateway = gateway.to_canonical();
    if gateway.is_unspecified() || gateway.is_multicast() || gateway.is_loopback() {
        return Err(DropReason::RedirectToNoGateway);
    }
    Ok((gateway, nonce))
}

/// True if the sender of an IKE_SA_INIT request follows redirects.
pub(crate) fn is_supported(payloads: &Payloads<'_, '_>) -> bool {
    payloads.notify(NotifyType::REDIRECT_SUPPORTED).is_some()
        || payloads.notify(NotifyType::REDIRECTED_FROM).is_some()
}

/// The gateway that has redirected the client here.
pub(crate) fn redirected_from(payloads: &Payloads<'_, '_>) -> Option<IpAddr> {
    let from = payloads.notify(NotifyType::REDIRECTED_FROM)?;
    read_gateway(from.data).ok().map(|(gateway, _)| gateway)
}

/// A redirect of an authenticated client that this end, the gateway, has requested.
pub(crate) struct RequestedRedirect {
    request: Option<RequestId>,
}

impl RequestedRedirect {
    /// Requests that the client goes to `to`.
    pub(crate) fn request(
        stem: &mut Stem<'_>,
        ctx: &mut Context<'_>,
        to: IpAddr,
        request: Option<RequestId>,
    ) -> Started {
        if !stem.channel.link().extensions().redirect {
            let text = "the peer has not said that it follows redirects".to_owned();
            ctx.done(request, Err(Failure::Config(text)));
            return Started::Not;
        }
        let data = gateway_data(to, &[]);
        let sent = stem.channel.request(
            &mut ctx.io,
            ExchangeType::INFORMATIONAL,
            &[notify(NotifyType::REDIRECT, &data)],
        );
        sent.unwrap_or_else(|unsent| stem.ending.on_unsent(unsent));
        Started::Sent(Sent::Redirect(Self { request }))
    }

    /// Handles the response: the client goes, whatever the response says.
    pub(crate) fn on_response(self, ctx: &mut Context<'_>) -> Outcome {
        ctx.done(self.request, Ok(()));
        Outcome::Leaves
    }

    /// The command that waits for it.
    pub(crate) fn command(&self) -> Option<RequestId> {
        self.request
    }
}

/// The gateway to which the policy redirects the client of `channel`, which is authenticated.
pub(crate) fn target(ctx: &Context<'_>, channel: &Channel) -> Option<IpAddr> {
    let policy = &ctx.io.config.redirect;
    if !policy.in_auth || !channel.link().extensions().redirect {
        return None;
    }
    let Path { local, remote, .. } = channel.route().path();
    let avoid = [Some(local.ip().to_canonical())];
    policy.target(ctx.load, ctx.io.config.shard.count, remote.ip(), &avoid)
}

/// The gateway to which this client is redirected by a protected message.
pub(crate) struct ToldGateway(IpAddr);

impl ToldGateway {
    /// The gateway in a message of `channel`; `None` if this end follows no redirect.
    pub(crate) fn read(
        payloads: &Payloads<'_, '_>,
        channel: &Channel,
        ctx: &mut Context<'_>,
    ) -> Option<Self> {
        let notify: &Notify<'_> = payloads.notify(NotifyType::REDIRECT)?;
        if !ctx.io.config.follow_redirects || !channel.link().extensions().client {
            return None;
        }
        let gateway = read_gateway(notify.data);
        gateway
            .inspect_err(|&why| ctx.io.dropped(channel.route().path(), why))
            .ok()
            .map(|(gateway, _)| Self(gateway))
    }

    /// Follows a redirect at the end of IKE_AUTH: the children that were wanted of this SA, `child` among them, are
    /// wanted of the other gateway. So does what the commands in `waiting` ask for.
    pub(crate) fn follow_at_once(
        self,
        parts: &mut Parts<'_, '_>,
        child: Option<Box<RequestedChild>>,
        waiting: Vec<RequestId>,
    ) {
        let Parts { channel, peer, queue, ctx, .. } = parts;
        let mut wanted = Vec::new();
        if let Some(offer) = child {
            ctx.ids.esp.remove(&offer.spi_in());
            wanted.push(offer.into_wanted());
        }
        for task in queue.drain() {
            if let Task::CreateChild { config, packet, request, .. } = task {
                wanted.push(Wanted { child: Some(config), request, packet });
            }
        }
        let alone = |request| Wanted { child: None, request: Some(request), packet: None };
        wanted.extend(waiting.into_iter().map(alone));
        let reason = Failure::Replaced;
        queue.push_first(Task::DeleteIke { reason, request: None });
        self.go(Seen { channel, peer }, ctx, wanted);
    }

    /// Follows a redirect while the SA `of` is up: its children are made at the other gateway.
    pub(crate) fn follow(self, of: Seen<'_>, ctx: &mut Context<'_>) {
        self.go(of, ctx, Vec::new());
    }

    fn go(self, of: Seen<'_>, ctx: &mut Context<'_>, wanted: Vec<Wanted>) {
        let Seen { channel, peer } = of;
        ctx.effects.push_back(Effect::Redirect(Box::new(Redirection {
            ike: channel.link().id(),
            to: self.0,
            wanted,
            connection: Arc::clone(channel.connection()),
            path: channel.route().path(),
            before: peer.redirected(),
        })));
    }
}

/// A redirect by the gateway of an IKE SA. That SA may end before the redirect is followed.
pub(crate) struct Redirection {
    ike: IkeSaId,
    /// The other gateway.
    to: IpAddr,
    /// What is wanted of it. If that is nothing, it gets the present children of the SA.
    wanted: Vec<Wanted>,
    /// The connection of the SA, its path, and how it came to its gateway.
    connection: Arc<ConnectionConfig>,
    path: Path,
    before: Option<Redirected>,
}

impl Redirection {
    /// The SA, the other gateway, and how the client came there. `None` for the last after too many redirects.
    pub(crate) fn target(&self, now: Instant) -> (IkeSaId, IpAddr, Option<Redirected>) {
        let from = self.path.remote.ip().to_canonical();
        (self.ike, self.to, Redirected::again(self.before, from, now))
    }

    /// What is wanted of the gateway, and the connection and the path of the SA.
    pub(crate) fn into_wishes(self) -> (Vec<Wanted>, Arc<ConnectionConfig>, Path) {
        (self.wanted, self.connection, self.path)
    }
}

impl ExpectAuthResponse {
    /// Handles a redirect in the first IKE_AUTH response of several, in which the responder has authenticated
    /// itself. Nothing more is sent; the attempt goes to the other gateway.
    //= https://www.rfc-editor.org/rfc/rfc5685#section-6
    //# In all of the cases above, the client MUST accept the REDIRECT
    //# notification only in the first IKE_AUTH response or the last IKE_AUTH
    //# response.
    pub(crate) fn is_redirected_early(
        &mut self,
        channel: &Channel,
        ctx: &mut Context<'_>,
        payloads: &[Payload<'_>],
    ) -> bool {
        let (ours, theirs) = (self.rounds.local.len(), self.rounds.proven());
        // A round by EAP has no AUTH of this end yet.
        let first = theirs == 1 && ours == usize::from(!self.is_in_eap());
        let last = !self.is_in_eap() && self.rounds.are_complete(channel.connection());
        if !first || last {
            return false;
        }
        self.redirect = ToldGateway::read(&Payloads(payloads), channel, ctx).map(|told| told.0);
        self.redirect.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_read_as_they_are_written() {
        for text in ["192.0.2.7", "2001:db8::7"] {
            let gateway: IpAddr = text.parse().unwrap();
            assert_eq!(
                read_gateway(&gateway_data(gateway, b"nonce")),
                Ok((gateway, &b"nonce"[..]))
            );
        }
    }

    #[test]
    fn what_is_no_gateway_is_refused() {
        let bad: [&[u8]; 9] = [
            &[],
            &[1],
            &[1, 4, 192, 0, 2],
            &[1, 16, 192, 0, 2, 1],
            &[2, 4, 192, 0, 2, 1],
            &[3, 3, b'g', b'.', b'x'],
            &[1, 4, 0, 0, 0, 0],
            &[1, 4, 127, 0, 0, 1],
            &[1, 4, 224, 0, 0, 1],
        ];
        for data in bad {
            assert!(read_gateway(data).is_err(), "{data:?}");
        }
    }
}
