//! Redirects (RFC 5685) beyond a single IKE SA: which clients are redirected, and how a client follows.

use std::net::IpAddr;
use std::sync::Arc;

use super::attempt::NewAttempt;
use super::{Endpoint, Entry, Slot};
use crate::config::redirect::Load;
use crate::event::{Failure, IkeSaId, Now, Path};
use crate::exchange::Payloads;
use crate::exchange::redirect::{Redirection, gateway_data, is_supported, redirected_from};
use crate::exchange::sa_init;
use crate::ike_sa::IkeSa;
use crate::ike_sa::context::Effect;
use crate::reason::{DropReason, PolicyReason};
use crate::wants::aftermath::End;
use crate::wants::{Ended, Wanted};
use crate::wire::Message;
use crate::wire::registry::NotifyType;

impl Endpoint {
    /// The present number of IKE SAs.
    pub(super) fn load(&self) -> Load {
        Load { half_open: self.half_open.all(), sas: self.entries.len() }
    }

    /// Redirects the client of an IKE_SA_INIT request if the policy says so and the client supports it. No state
    /// is kept, and the answer is smaller than the request.
    pub(super) fn redirect_init(&mut self, path: Path, message: &Message<'_>) -> bool {
        let policy = &self.config.redirect;
        let payloads = Payloads(&message.payloads);
        if policy.to.is_empty() || policy.in_auth || !is_supported(&payloads) {
            return false;
        }
        let Ok(Some(nonce)) = payloads.nonce() else { return false };
        let avoid = [redirected_from(&payloads), Some(path.local.ip().to_canonical())];
        let shards = self.config.shard.count;
        let target = policy.target(self.load(), shards, path.remote.ip(), &avoid);
        let Some(target) = target else { return false };
        let data = gateway_data(target, nonce);
        self.drop_datagram(path, DropReason::RedirectedAway);
        self.send_unprotected(
            path,
            sa_init::answer_alone(&message.header, NotifyType::REDIRECT, &data),
        );
        true
    }

    /// The address from which to reach `gateway`, for messages that were sent from `local` before.
    pub(super) fn local_towards(&self, local: IpAddr, gateway: IpAddr) -> Option<IpAddr> {
        let family = |ip: &IpAddr| ip.to_canonical().is_ipv4() == gateway.is_ipv4();
        let own = self.network.addresses.iter().copied();
        std::iter::once(local).chain(own).find(family)
    }

    /// Follows a redirect by the gateway of an IKE SA. If nothing is wanted of the other gateway, the new SA gets the
    /// present children, and the present SA ends when the new one is up.
    pub(super) fn follow_redirect(&mut self, now: Now, redirection: Redirection) {
        let (ike, gateway, redirected) = redirection.target(now.mono);
        let (mut wanted, connection, path) = redirection.into_wishes();
        if self.shutdown.has_begun() {
            return self.end_series(now, (&connection, path), wanted, &Failure::Terminated, None);
        }
        let replaces = wanted.is_empty().then_some(ike);
        if wanted.is_empty() {
            let Some(established) = self.established(ike).and_then(IkeSa::established) else {
                return tracing::debug!(?ike, %gateway, "redirect not followed: the IKE SA has ended");
            };
            let children = established.children.iter();
            let carrying = children
                .filter(|child| child.carries() && established.children.stands_for_all(child));
            wanted.extend(carrying.map(|child| Wanted::of(Arc::clone(&child.config))));
        }
        if wanted.is_empty() {
            wanted.push(Wanted { child: None, request: None, packet: None });
        }
        let local = self.local_towards(path.local.ip(), gateway);
        let (Some(redirected), Some(local)) = (redirected, local) else {
            let why = Failure::Policy(PolicyReason::RedirectNotFollowed);
            for wanted in wanted {
                if let Some(request) = wanted.request {
                    self.done(request, Err(why.clone()));
                }
                self.effects.push_back(Effect::Ended(Box::new(Ended {
                    connection: connection.name.clone(),
                    child: wanted.child.map(|child| child.name.clone()),
                    end: End::Refused,
                    reason: why.clone(),
                    was_up: false,
                    ends: (path.local.ip(), path.remote.ip()),
                    held: Vec::new(),
                })));
            }
            return self.drop_datagram(path, DropReason::RedirectNotFollowed);
        };
        // The next redirect counts from here, whether or not this one succeeds.
        if let Some(Slot { entry: Entry::Sa(sa), .. }) = self.entries.get_mut(&ike) {
            sa.peer.set_redirected(Some(redirected));
        }
        if replaces.is_some() {
            self.supersede(now, ike, &mut wanted);
        }
        let path = self.path_to(&connection, local, gateway);
        let origin = Self::origin_of(&connection, path);
        let new = NewAttempt {
            connection,
            path,
            origin,
            wanted,
            replaces,
            tries: 0,
            initial_contact: replaces.is_none(),
            redirected: Some(redirected),
            ticket: None,
        };
        self.begin(now, new);
    }

    /// Ends attempts to replace `ike`. Commands that wait for them wait for `wanted` from now on.
    fn supersede(&mut self, now: Now, ike: IkeSaId, wanted: &mut Vec<Wanted>) {
        let replaces = |entry: &Entry| matches!(entry, Entry::Attempt(attempt) if attempt.replaces == Some(ike));
        let begun = self.entries.iter().filter(|(_, slot)| replaces(&slot.entry));
        let begun: Vec<_> = begun.map(|(id, _)| *id).collect();
        for id in begun {
            if let Some(Slot { entry: Entry::Attempt(attempt), .. }) = self.entries.get_mut(&id) {
                let waiting = attempt.wanted.iter_mut().filter_map(|wanted| wanted.request.take());
                wanted.extend(waiting.map(|request| Wanted {
                    child: None,
                    request: Some(request),
                    packet: None,
                }));
            }
            self.remove(now, id, Failure::Replaced);
        }
    }
}
